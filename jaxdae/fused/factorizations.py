"""Factorizations and triangular solves of small matrices, entry by entry.

Cholesky, LU and triangular solves work on constants and nodes directly, so that structural zeros and their
fill-in cost nothing. QR and SVD are written in `jax.numpy` and lowered like any other function:

* QR by Householder reflections.
* SVD by one-sided Jacobi rotations: A is multiplied from the right by plane rotations until its columns are
  orthogonal. The rotations accumulate to V, the lengths of the columns are the singular values, and the
  columns themselves, divided by their lengths, are U.

References:
    G. H. Golub, C. F. Van Loan, "Matrix Computations", 4th edition, sections 3.2, 4.2, 5.2 and 8.6.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.fused.graph import Graph, Unsupported, filled, kind_of

if TYPE_CHECKING:
    from jaxdae.fused.lower import Lowering

LARGEST_SVD = 12
"""The largest number of columns of an SVD. One sweep takes some 8 n^3 operations."""
SWEEPS = 30
"""The most Jacobi sweeps. Convergence is quadratic and takes some six sweeps."""

Array = np.ndarray


def _dot_from(g: Graph, start: Any, xs: Any, ys: Any) -> Any:
    """Return start - sum x y."""
    for x, y in zip(xs, ys, strict=True):
        start = g.binary("sub", start, g.binary("mul", x, y, "F"), "F")
    return start


def _each(function: Any, *stacks: Array) -> list[Array]:
    """Return the results of a function of matrices for each matrix in stacks of them."""
    leading = stacks[0].shape[:-2]
    if not leading:
        return list(function(*stacks))
    flat = [x.reshape(-1, *x.shape[len(leading) :]) for x in stacks]
    results = [function(*matrices) for matrices in zip(*flat, strict=True)]
    out = []
    for parts in zip(*results, strict=True):
        stacked = np.empty((len(parts), *parts[0].shape), object)
        for k, part in enumerate(parts):
            stacked[k] = part
        out.append(stacked.reshape(*leading, *parts[0].shape))
    return out


def cholesky(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    """Lower `cholesky`: L with A = L L^T, from the lower triangle of A."""
    g = low.graph

    def one(a: Array) -> list[Array]:
        n = len(a)
        lower = filled((n, n), g.real(0))
        for j in range(n):
            lower[j, j] = g.unary("sqrt", _dot_from(g, a[j, j], lower[j, :j], lower[j, :j]), "F")
            inverse = g.binary("div", g.real(1), lower[j, j], "F")
            for i in range(j + 1, n):
                lower[i, j] = g.binary("mul", _dot_from(g, a[i, j], lower[i, :j], lower[j, :j]), inverse, "F")
        return [lower]

    return _each(one, *inputs)


def triangular_solve(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    """Lower `triangular_solve`: X with A X = B or X A = B."""
    g, p = low.graph, equation.params

    def one(a: Array, b: Array) -> list[Array]:
        lower, transposed = p["lower"], p["transpose_a"]
        if not p["left_side"]:
            b, transposed = b.T, not transposed
        if transposed:
            a, lower = a.T, not lower
        n = len(a)
        x = np.empty(b.shape, object)
        for i in range(n) if lower else reversed(range(n)):
            others = slice(0, i) if lower else slice(i + 1, n)
            inverse = g.real(1) if p["unit_diagonal"] else g.binary("div", g.real(1), a[i, i], "F")
            for c in range(b.shape[1]):
                x[i, c] = g.binary("mul", _dot_from(g, b[i, c], a[i, others], x[others, c]), inverse, "F")
        return [x if p["left_side"] else x.T]

    return _each(one, *inputs)


def lu(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    """Lower `lu`: L and U in one matrix, the pivots and the permutation, with partial pivoting."""
    g = low.graph

    def one(a: Array) -> list[Array]:
        a, (m, n) = a.copy(), a.shape
        pivots = np.empty((min(m, n),), object)
        for j in range(min(m, n)):
            best, row = g.unary("abs", a[j, j], "F"), g.integer(j)
            for i in range(j + 1, m):
                size = g.unary("abs", a[i, j], "F")
                larger = g.binary("gt", size, best, "F")
                best, row = g.select(larger, size, best, "F"), g.select(larger, g.integer(i), row, "I")
            pivots[j] = row
            _swap(g, a, j, row, "F")
            singular = g.binary("eq", a[j, j], g.real(0), "F")  # The column below is zero, too, and stays so.
            inverse = g.binary("div", g.real(1), g.select(singular, g.real(1), a[j, j], "F"), "F")
            for i in range(j + 1, m):
                a[i, j] = g.binary("mul", a[i, j], inverse, "F")
                for k in range(j + 1, n):
                    a[i, k] = _dot_from(g, a[i, k], [a[i, j]], [a[j, k]])
        return [a, pivots, _permuted(g, pivots, m)]

    return _each(one, *inputs)


def _swap(g: Graph, rows: Array, j: int, other: Any, kind: str) -> None:
    """Exchange row j with a later row, whose number may be traced."""
    for i in range(j + 1, len(rows)):
        mask = g.binary("eq", other, g.integer(i), "I")
        for place in np.ndindex(rows.shape[1:]):
            x, y = rows[(j, *place)], rows[(i, *place)]
            rows[(j, *place)], rows[(i, *place)] = g.select(mask, y, x, kind), g.select(mask, x, y, kind)


def _permuted(g: Graph, pivots: Array, size: int) -> Array:
    order = g.constants(np.arange(size))
    for j, pivot in enumerate(pivots):
        _swap(g, order, j, pivot, "I")
    return order


def permutation(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    """Lower `lu_pivots_to_permutation`."""
    if inputs[0].ndim != 1:
        raise Unsupported("permutations of a stack of LU factorizations")
    return [_permuted(low.graph, inputs[0], equation.params["permutation_size"])]


def qr(params: Any, a: Any) -> Any:
    """Return Q and R of a matrix (m, n), by Householder reflections."""
    if params.get("pivoting") or a.ndim != 2:
        raise Unsupported("QR with pivoting, or of a stack of matrices")
    m, n = a.shape
    q = jnp.eye(m, dtype=a.dtype)
    for k in range(min(m - 1, n)):
        x = a[k:, k]
        below = jnp.sum(x[1:] ** 2)
        moves = below > 0  # As in LAPACK, a column that is triangular keeps its sign.
        length = jnp.sqrt(x[0] ** 2 + below)
        v = x.at[0].add(jnp.where(x[0] < 0, -length, length))
        scale = jnp.where(moves, 2.0 / jnp.where(moves, jnp.sum(v * v), 1.0), 0.0)
        a = a.at[k:].add(-scale * v[:, None] * (v @ a[k:])[None, :])
        q = q.at[:, k:].add(-scale * (q[:, k:] @ v)[:, None] * v[None, :])
    size = m if params["full_matrices"] else min(m, n)
    return q[:, :size], jnp.triu(a[:size])


def svd(params: Any, a: Any) -> Any:
    """Return the singular values, and U and V^T if they are wanted, of a matrix (m, n).

    Columns of U with singular value zero are zero.
    """
    if a.ndim != 2 or kind_of(a.dtype) != "F":
        raise Unsupported("SVD of a stack of matrices")
    m, n = a.shape
    full, rank = params["full_matrices"] and params["compute_uv"], min(m, n)
    if m < n and not full:
        s, *vectors = svd(params, a.T)
        return s, *[x.T for x in reversed(vectors)]
    if full and m > n:
        raise Unsupported("SVD with a square U of a matrix with more rows than columns")
    if n > LARGEST_SVD:
        raise Unsupported(f"SVD with {n} columns; at most {LARGEST_SVD}")
    largest = jnp.max(jnp.abs(a), initial=0.0)
    unit = jnp.where(
        (largest > 0) & jnp.isfinite(largest), largest, 1.0
    )  # Squares neither overflow nor vanish.
    columns = [a[:, k] / unit for k in range(n)]
    basis = list(jnp.eye(n, dtype=a.dtype))
    eps = float(jnp.finfo(a.dtype).eps)

    def rotate(x: Any, y: Any, c: Any, s: Any) -> tuple[Any, Any]:
        return c * x - s * y, s * x + c * y

    def sweep(carry: Any) -> Any:
        count, _, columns, basis = carry
        columns, basis = list(columns), list(basis)
        worst = jnp.zeros((), a.dtype)
        for i in range(n):
            for j in range(i + 1, n):
                x, y = columns[i], columns[j]
                xx, yy, xy = jnp.sum(x * x), jnp.sum(y * y), jnp.sum(x * y)
                size = jnp.sqrt(xx * yy)
                moves = jnp.abs(xy) > eps * size
                worst = jnp.where(
                    moves, jnp.maximum(worst, jnp.abs(xy) / jnp.where(size > 0, size, 1.0)), worst
                )
                zeta = (yy - xx) / (2.0 * jnp.where(moves, xy, 1.0))
                t = jnp.where(zeta < 0, -1.0, 1.0) / (jnp.abs(zeta) + jnp.sqrt(1.0 + zeta * zeta))
                c = 1.0 / jnp.sqrt(1.0 + t * t)
                c, s = jnp.where(moves, c, 1.0), jnp.where(moves, c * t, 0.0)
                columns[i], columns[j] = rotate(x, y, c, s)
                basis[i], basis[j] = rotate(basis[i], basis[j], c, s)
        return count + 1, worst, tuple(columns), tuple(basis)

    def goes_on(carry: Any) -> Any:
        return (carry[0] < SWEEPS) & (carry[1] > 8.0 * eps)

    start = (jnp.zeros((), jnp.int32), jnp.ones((), a.dtype), tuple(columns), tuple(basis))
    _, _, columns, basis = jax.lax.while_loop(goes_on, sweep, start)
    columns, basis = list(columns), list(basis)
    lengths = [jnp.sqrt(jnp.sum(x * x)) for x in columns]
    for last in range(n - 1, 0, -1):
        for k in range(last):
            swap = lengths[k + 1] > lengths[k]
            for rows in (lengths, columns, basis):
                x, y = rows[k], rows[k + 1]
                rows[k], rows[k + 1] = jnp.where(swap, y, x), jnp.where(swap, x, y)
    s = jnp.stack(lengths)[:rank]
    if not params["compute_uv"]:
        return (unit * s,)
    positive = s > 0
    u = jnp.where(
        positive[None, :], jnp.stack(columns[:rank], axis=1) / jnp.where(positive, s, 1.0)[None, :], 0.0
    )
    return unit * s, u, jnp.stack(basis)[: n if full else rank]

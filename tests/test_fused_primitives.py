"""Fused kernels against JAX: each primitive, for batches of 1, 3 and 37 worlds, in single and double
precision.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxdae.fused import fuse

WORLDS = 37
SINGLE = pytest.param(jnp.float32, marks=pytest.mark.exhaustive, id="single")
precisions = pytest.mark.parametrize("dtype", [pytest.param(jnp.float64, id="double"), SINGLE])


def differences(cases, arguments, scale=1.0):
    """Return one line per case whose kernel disagrees with `jax.vmap`. All cases run in one kernel.

    Args:
        cases: (name, function of the arguments of one world).
        arguments: arrays with a leading axis of WORLDS worlds.
        scale: factor of the tolerance, for ill-conditioned cases.
    """

    def every(*x):
        return [function(*x) for _, function in cases]

    expected = jax.jit(jax.vmap(every))(*arguments)
    kernel = fuse(every)
    lines = []
    for worlds in (WORLDS, 3, 1):
        found = jax.jit(jax.vmap(kernel))(*[x[:worlds] for x in arguments])
        for (name, _), x, y in zip(cases, found, expected, strict=True):
            for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True):
                problem = difference(np.asarray(a), np.asarray(b)[:worlds], scale)
                if problem:
                    lines.append(f"{name}, {worlds} worlds: {problem}")
    return lines


def difference(a, b, scale=1.0):
    """Return how a kernel's result differs from that of JAX, or an empty string."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
    tolerance = 0.0 if b.dtype.kind != "f" else scale * (1e-13 if b.dtype == np.float64 else 2e-5)
    wrong = ~np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    if not wrong.any():
        return ""
    at = tuple(int(k) for k in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} entries, at {at} {a[at]}, expected {b[at]}"


def numbers(seed, *shape, dtype=np.float64):
    """Return numbers between -2 and 2 for each world, away from zero."""
    x = np.random.default_rng(seed).uniform(0.1, 2.0, (WORLDS, *shape))
    return jnp.asarray(x * np.random.default_rng(seed + 1).choice([-1, 1], x.shape), dtype)


def specials(dtype):
    """Return zeros, negative numbers, halves, NaN and infinities, three for each world."""
    x = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.3, -1.7, np.nan, np.inf, -np.inf]
    return jnp.asarray(np.random.default_rng(0).permutation(8 * x)[: 3 * WORLDS].reshape(WORLDS, 3), dtype)


def integers(seed, *shape, dtype=jnp.int32):
    """Return integers between -7 and 7 for each world."""
    return jnp.asarray(np.random.default_rng(seed).integers(-7, 8, (WORLDS, *shape)), dtype)


def booleans(seed, *shape):
    """Return booleans for each world."""
    return jnp.asarray(np.random.default_rng(seed).integers(0, 2, (WORLDS, *shape)) > 0)


UNARY = [
    "neg",
    "abs",
    "sign",
    "sqrt",
    "rsqrt",
    "cbrt",
    "floor",
    "ceil",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "erf",
    "logistic",
    "square",
    "is_finite",
]
BINARY = ["add", "sub", "mul", "div", "rem", "max", "min", "pow", "atan2", "eq", "ne", "lt", "le", "gt", "ge"]
INTEGER = [
    "add",
    "sub",
    "mul",
    "max",
    "min",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "div",
    "rem",
]
BOOLEAN = ["bitwise_and", "bitwise_or", "bitwise_xor", "max", "min", "eq", "ne", "lt", "le", "gt", "ge"]


@pytest.mark.long
@precisions
def test_elementwise_operations(dtype):
    constants = [0.0, 1.0, -1.0, 2.0, 0.5, -3.0, np.nan, np.inf, -np.inf]
    cases = [(name, lambda s, x, y, f=getattr(lax, name): f(s)) for name in UNARY]
    cases += [
        (f"{name} of constants", lambda s, x, y, f=getattr(lax, name): f(jnp.asarray(constants, dtype)))
        for name in UNARY
    ]
    cases += [(name, lambda s, x, y, f=getattr(lax, name): f(s, lax.rev(s, (0,)))) for name in BINARY]
    cases += [(f"{name} of x and x", lambda s, x, y, f=getattr(lax, name): f(s, s)) for name in BINARY]
    for c in (0.0, 1.0, -1.0, 0.5, np.nan, np.inf):
        # A structural zero times infinity is zero, so that products and quotients with zero see finite
        # numbers.
        for name in BINARY:
            if c == 0.0 and name in ("mul", "div"):
                cases.append(
                    (
                        f"{name} with {c}",
                        lambda s, x, y, f=getattr(lax, name), c=c: (
                            f(x, jnp.full_like(x, c)),
                            f(jnp.full_like(x, c), x),
                        ),
                    )
                )
            else:
                cases.append(
                    (
                        f"{name} with {c}",
                        lambda s, x, y, f=getattr(lax, name), c=c: (
                            f(s, jnp.full_like(s, c)),
                            f(jnp.full_like(s, c), s),
                        ),
                    )
                )
    cases += [
        (f"integer_pow {n}", lambda s, x, y, n=n: lax.integer_pow(s, n)) for n in (-7, -2, -1, 0, 1, 2, 3, 10)
    ]
    cases += [
        ("pow with an integer", lambda s, x, y: lax.pow(s, jnp.asarray(3, jnp.int32))),
        ("round away from zero", lambda s, x, y: lax.round(s)),
        (
            "round away from zero, just below a half",
            lambda s, x, y: lax.round(
                lax.select(
                    x > 9,
                    x,
                    jnp.full_like(x, float(np.nextafter(np.dtype(dtype).type(0.5), np.dtype(dtype).type(0)))),
                )
            ),
        ),
        (
            "round a large number",
            lambda s, x, y: lax.round(2.0 ** (23 if dtype == jnp.float32 else 52) + 1 + 2 * jnp.round(x)),
        ),
        ("round to even", lambda s, x, y: lax.round(s, lax.RoundingMethod.TO_NEAREST_EVEN)),
        ("clamp", lambda s, x, y: lax.clamp(jnp.asarray(-1.0, dtype), s, jnp.asarray(0.4, dtype))),
        ("clamp with bounds in the wrong order", lambda s, x, y: lax.clamp(x[0] + 5, x, x[0] - 5)),
        ("clip", lambda s, x, y: jnp.clip(s, 0.0, jnp.inf)),
        ("select_n", lambda s, x, y: lax.select_n(x > y, x, y)),
        (
            "select_n by integers",
            lambda s, x, y: lax.select_n((x > 0).astype(jnp.int32) + (y > 0).astype(jnp.int32), x, y, x * y),
        ),
        ("where with NaN", lambda s, x, y: jnp.where(s > 0, s, -s)),
        (
            "negations",
            lambda s, x, y: (
                lax.neg(lax.neg(x)),
                x - (-y),
                -(x - y),
                -x + y,
                (-x) * y,
                (-x) * (-y),
                x / (-y),
                abs(-x),
                0.0 - x,
            ),
        ),
        (
            "neutral elements",
            lambda s, x, y: (x + 0, 0 + x, x - 0, x * 1, 1 * x, x / 1, x * -1, x / 4, x / 3, x / -0.5),
        ),
    ]
    wrong = differences(cases, (specials(dtype), numbers(0, 3, dtype=dtype), numbers(2, 3, dtype=dtype)))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.long
@precisions
def test_integers_booleans_and_conversions(dtype):
    cases = [(f"{name} of integers", lambda n, m, a, b, s, f=getattr(lax, name): f(n, m)) for name in INTEGER]
    cases += [
        (f"{name} of booleans", lambda n, m, a, b, s, f=getattr(lax, name): f(a, b)) for name in BOOLEAN
    ]
    for c in (0, 1, -1, 3, -2):
        for name in INTEGER:
            cases.append(
                (
                    f"{name} of integers with {c}",
                    lambda n, m, a, b, s, f=getattr(lax, name), c=c: (
                        f(n, jnp.full_like(n, c)),
                        f(jnp.full_like(n, c), n),
                    ),
                )
            )
    for c in (False, True):
        for name in BOOLEAN:
            cases.append(
                (
                    f"{name} of booleans with {c}",
                    lambda n, m, a, b, s, f=getattr(lax, name), c=c: (
                        f(a, jnp.full_like(a, c)),
                        f(jnp.full_like(a, c), a),
                    ),
                )
            )
    limits = np.iinfo(np.int32)
    cases += [
        ("not", lambda n, m, a, b, s: (~n, ~a, ~~a)),
        ("abs, sign and neg of integers", lambda n, m, a, b, s: (abs(n), lax.sign(n), -n, n - m, n**2)),
        (
            "clamp of integers",
            lambda n, m, a, b, s: lax.clamp(jnp.asarray(-2, jnp.int32), n, jnp.asarray(3, jnp.int32)),
        ),
        (
            "floor division and modulo",
            lambda n, m, a, b, s: (
                n // 3,
                n % 3,
                n // -3,
                n % -3,
                jnp.where(m == 0, 0, n // jnp.where(m == 0, 1, m)),
            ),
        ),
        ("division by zero", lambda n, m, a, b, s: (lax.div(n, n - n), lax.rem(n, n - n))),
        (
            "division of the smallest integer",
            lambda n, m, a, b, s: (
                lax.div(jnp.full_like(n, limits.min), lax.sign(n)),
                lax.rem(jnp.full_like(n, limits.min), lax.sign(n)),
            ),
        ),
        (
            "select of booleans",
            lambda n, m, a, b, s: (
                jnp.where(a, b, True),
                jnp.where(a, False, b),
                jnp.where(a, b, ~b),
                jnp.where(n > m, a, b),
            ),
        ),
        ("select of integers", lambda n, m, a, b, s: jnp.where(a, n, 4)),
        (
            "booleans as numbers",
            lambda n, m, a, b, s: (
                a.astype(jnp.int32),
                a.astype(dtype),
                jnp.sum(a),
                a.astype(dtype) * (1 + abs(n).astype(dtype)),
            ),
        ),
        (
            "integers as numbers",
            lambda n, m, a, b, s: (n.astype(dtype), n.astype(bool), n.astype(jnp.int64), n.astype(jnp.int8)),
        ),
        (
            "numbers as integers",
            lambda n, m, a, b, s: (s.astype(jnp.int32), s.astype(bool), (1000 * s).astype(jnp.int32)),
        ),
        ("large numbers as integers", lambda n, m, a, b, s: (1e30 * s).astype(jnp.int32)),
        (
            "constants as integers",
            lambda n, m, a, b, s: jnp.asarray([np.nan, np.inf, -np.inf, 2.7, -2.7, 1e30], dtype).astype(
                jnp.int32
            ),
        ),
        (
            "argmax of booleans",
            lambda n, m, a, b, s: (
                jnp.argmax(a),
                jnp.argmin(a),
                jnp.max(a),
                jnp.min(a),
                jnp.any(a),
                jnp.all(a),
            ),
        ),
        (
            "argmax of integers",
            lambda n, m, a, b, s: (
                jnp.argmax(n),
                jnp.argmin(n),
                jnp.max(n),
                jnp.min(n),
                jnp.sum(n),
                jnp.prod(n),
            ),
        ),
        (
            "cumulative of integers",
            lambda n, m, a, b, s: (jnp.cumsum(n), lax.cummax(n), lax.cummin(n, reverse=True), lax.cumprod(n)),
        ),
        ("cumulative of booleans", lambda n, m, a, b, s: (jnp.cumsum(a), jnp.cumsum(a.astype(jnp.int32)))),
    ]
    arguments = integers(4, 3), integers(5, 3), booleans(6, 3), booleans(7, 3), specials(dtype)
    wrong = differences(cases, arguments)
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.long
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32], ids=["double", "single"])
def test_reductions_products_and_rearrangements(dtype):
    def constant(*shape, seed=0):
        return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)

    eye = jnp.eye(3, dtype=dtype)
    cases = [
        (
            "reductions",
            lambda a, b, s: [
                f(a, axis) for f in (jnp.sum, jnp.prod, jnp.max, jnp.min) for axis in (0, 1, None)
            ],
        ),
        (
            "reductions with NaN",
            lambda a, b, s: [f(s) for f in (jnp.sum, jnp.max, jnp.min, jnp.argmax, jnp.argmin)],
        ),
        (
            "reductions of constants",
            lambda a, b, s: [
                f(jnp.asarray([0.5, np.nan, -3.0], dtype)) for f in (jnp.sum, jnp.max, jnp.argmax, jnp.argmin)
            ],
        ),
        (
            "reductions of empty axes",
            lambda a, b, s: (
                jnp.sum(a[:0], 0),
                jnp.prod(a[:, :0], 1),
                jnp.sum(a[:0], 1),
                jnp.max(a[:0], 1),
                jnp.any(a[:0] > 0, 0),
                jnp.all(a[:0] > 0, 0),
            ),
        ),
        ("empty sums plus numbers", lambda a, b, s: jnp.max(a[:0], 0, initial=-jnp.inf)),
        (
            "argmax",
            lambda a, b, s: (
                jnp.argmax(a, 0),
                jnp.argmin(a, 1),
                jnp.argmax(a),
                jnp.argmax(jnp.round(a)),
                jnp.argmax(a > 9),
            ),
        ),
        (
            "cumulative",
            lambda a, b, s: (
                jnp.cumsum(a, 0),
                jnp.cumprod(a, 1),
                lax.cummax(a, 0, reverse=True),
                lax.cummin(a, 1),
                lax.cumsum(a[0], reverse=True),
                jnp.cumsum(a[:0], 0),
                lax.cummax(s),
            ),
        ),
        (
            "dot",
            lambda a, b, s: (a @ b.T, a.T @ a, a[0] @ b[0], a @ b[1], jnp.outer(a[0], b[1]), jnp.vdot(a, b)),
        ),
        (
            "dot with constants",
            lambda a, b, s: (
                a @ constant(3, 4),
                constant(4, 2) @ a,
                eye @ a[0],
                a @ eye,
                a @ (2 * eye),
                jnp.zeros((2, 2), dtype) @ a,
            ),
        ),
        ("dot over empty axes", lambda a, b, s: (a[:0].T @ b[:0], a[:, :0] @ b[:, :0].T, a[:0] @ b.T)),
        (
            "dot over several axes",
            lambda a, b, s: (
                jnp.tensordot(a, b, 2),
                jnp.einsum("ij,kj->", a, b),
                jnp.einsum("ii->i", a[:, :2]),
            ),
        ),
        (
            "dot in batches",
            lambda a, b, s: (
                jnp.einsum("ij,ij->i", a, b),
                jnp.einsum("ij,ik->ijk", a, b),
                jnp.einsum("bij,bjk->bik", constant(2, 3, 2), jnp.stack([a, b])),
                jnp.einsum("bij,jb->bi", constant(2, 4, 3), a.T),
            ),
        ),
        (
            "reshape",
            lambda a, b, s: (
                a.reshape(3, 2),
                a.reshape(-1),
                a.T.reshape(2, 3),
                a[None],
                a.ravel(order="F"),
                a[0, 0].reshape(1, 1),
            ),
        ),
        (
            "broadcast",
            lambda a, b, s: (
                jnp.broadcast_to(a[0], (2, 3)),
                jnp.broadcast_to(a[0, 0], (2, 2)),
                jnp.tile(a, (2, 1)),
                jnp.repeat(a, 2, 1),
                lax.broadcast_in_dim(a, (2, 4, 3), (0, 2)),
            ),
        ),
        (
            "slice",
            lambda a, b, s: (a[:, ::2], a[1:, 1:], a[::-1], a[:, ::-2], a[-1], a[..., None], a[:, None, 1:2]),
        ),
        (
            "transpose, concatenate, split, rev",
            lambda a, b, s: (
                a.T,
                jnp.concatenate([a, b, 0 * eye[:1]]),
                jnp.split(a, [1], 1),
                jnp.flip(a),
                jnp.roll(a, 1, 1),
                jnp.stack([a, b], 1),
                jnp.hstack([a, b]),
            ),
        ),
        (
            "pad",
            lambda a, b, s: (
                jnp.pad(a, 1),
                jnp.pad(a, ((0, 1), (2, 0)), constant_values=3),
                lax.pad(a, b[0, 0], ((-1, 2, 0), (1, 0, 1))),
                jnp.pad(a, 1, "edge"),
            ),
        ),
        (
            "iota",
            lambda a, b, s: (
                jnp.arange(3) + 0 * jnp.argmax(a[0]),
                jnp.arange(3, dtype=dtype) * a,
                jnp.eye(2, 3, dtype=dtype) * a,
                lax.broadcasted_iota(jnp.int32, (2, 3), 1),
            ),
        ),
        (
            "triangles and diagonals",
            lambda a, b, s: (
                jnp.tril(a),
                jnp.triu(a, 1),
                jnp.diag(a[0]),
                jnp.diag(a @ b.T),
                jnp.trace(a @ b.T),
            ),
        ),
        (
            "structural zeros",
            lambda a, b, s: (
                jnp.diag(a[0]) @ jnp.diag(b[0]),
                jnp.block([[a, jnp.zeros((2, 2), dtype)], [eye, constant(3, 2)]])
                @ jnp.concatenate([a[0], b[0, :2]]),
                jnp.zeros(3, dtype) * a[0] + a[1],
                a * 0,
            ),
        ),
        (
            "structural zero of the other sign",
            lambda a, b, s: (
                jnp.zeros(3, dtype) / a[0],
                a[0] * jnp.array([0, 1, -1], dtype),
                jnp.where(eye > 0, a[0], 0.0),
            ),
        ),
        (
            "norms and means",
            lambda a, b, s: (
                jnp.linalg.norm(a),
                jnp.mean(a),
                jnp.var(a, 0),
                jnp.cross(a[0], b[0]),
                jnp.hypot(a, b),
                jnp.linalg.norm(0 * a[0]),
            ),
        ),
        (
            "copies",
            lambda a, b, s: (
                lax.stop_gradient(a),
                jnp.copy(a),
                lax.optimization_barrier(a),
                jax.checkpoint(jnp.sin)(a),
                jax.jit(jnp.cos)(a),
                lax.reduce_precision(a, *((8, 23) if dtype == jnp.float32 else (11, 52))),
            ),
        ),
        (
            "derivatives",
            lambda a, b, s: (
                jax.grad(lambda x: jnp.sum(jnp.tanh(x @ b.T)))(a),
                jax.jvp(jnp.linalg.norm, (a,), (b,))[1],
                jax.jacfwd(lambda x: x[0] * x)(a[0]),
                jax.hessian(lambda x: jnp.prod(jnp.sin(x)))(a[0]),
            ),
        ),
        (
            "functions with their own derivatives",
            lambda a, b, s: (
                jax.nn.relu(a),
                jax.nn.softplus(a),
                jax.nn.sigmoid(a),
                jnp.logaddexp(a, b),
                jax.nn.silu(a),
                jnp.sinc(a),
                jnp.heaviside(s, 0.5),
                jnp.nan_to_num(s),
                jnp.sign(s),
                jnp.maximum(s, 0),
                jnp.fmod(a, b),
                jnp.remainder(a, b),
                jnp.deg2rad(a),
                jnp.interp(a[0], jnp.array([-1.0, 0.0, 2.0], dtype), b[0]),
            ),
        ),
    ]
    wrong = differences(
        cases, (numbers(8, 2, 3, dtype=dtype), numbers(10, 2, 3, dtype=dtype), specials(dtype))
    )
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.long
@precisions
def test_indices_constant_and_traced(dtype):
    table = jnp.asarray(np.random.default_rng(3).normal(size=(12,)), dtype)
    modes = ("clip", "fill", "promise_in_bounds", None)
    at = np.array([3, 0, 3, -1])
    outside = np.array([5, -9, 1])

    def matrix(x):
        return x[:20].reshape(4, 5)

    cases = [
        (
            "constant indices",
            lambda x, k, i: (
                x[at],
                matrix(x)[[0, 2], [1, -1]],
                matrix(x)[:, at],
                jnp.take(x, at),
                x[np.array([], int)],
                jnp.take(matrix(x), at, axis=1),
            ),
        ),
        (
            "constant indices out of range",
            lambda x, k, i: [
                x[:5].at[outside].get(mode=mode) for mode in modes if mode != "promise_in_bounds"
            ],
        ),
        (
            "constant indices out of range of integers",
            lambda x, k, i: [
                f(y)
                for y in (i, i > 0)
                for f in (lambda y: y.at[outside].get(mode="fill"), lambda y: y.at[outside].get(mode="clip"))
            ],
        ),
        (
            "fill value",
            lambda x, k, i: (
                x[:5].at[outside].get(mode="fill", fill_value=7.0),
                x[:5].at[k].get(mode="fill", fill_value=7.0),
                i.at[k].get(mode="fill", fill_value=3),
            ),
        ),
        (
            "traced index",
            lambda x, k, i: (
                x[k[0]],
                x[:5][k],
                i[k],
                (i > 0)[k],
                table[k],
                matrix(x)[k[0]],
                matrix(x)[:, k[1]],
                matrix(x)[k[0], k[1]],
            ),
        ),
        (
            "modes",
            lambda x, k, i: [
                (y.at[k].get(mode=mode)) for y in (x, x[:3], i, i > 0, table) for mode in ("clip", "fill")
            ],
        ),
        (
            "rows and columns",
            lambda x, k, i: (
                matrix(x)[k, k[::-1]],
                matrix(x)[k[:, None], k[None]],
                matrix(x).at[k].get(mode="clip"),
                jnp.take(matrix(x), k, axis=1, mode="clip"),
            ),
        ),
        (
            "take along an axis",
            lambda x, k, i: (
                jnp.take_along_axis(x, k, 0, mode="clip"),
                jnp.take_along_axis(matrix(x), jnp.argmax(matrix(x), 1)[:, None], 1),
            ),
        ),
        ("one row of rows picked by a maximum", lambda x, k, i: x[jnp.argmax(x)]),
        (
            "dynamic slice",
            lambda x, k, i: (
                lax.dynamic_slice(x, (k[0],), (3,)),
                lax.dynamic_slice(matrix(x), (k[0], k[1]), (2, 2)),
                lax.dynamic_slice(table, (k[2],), (2,)),
                lax.dynamic_slice(i, (k[0],), (1,)),
                lax.dynamic_index_in_dim(matrix(x), k[0], 1),
            ),
        ),
        (
            "dynamic slice at constants",
            lambda x, k, i: (
                lax.dynamic_slice(x, (30,), (3,)),
                lax.dynamic_slice(matrix(x), (1, -2), (2, 2)),
                lax.dynamic_slice(matrix(x), (k[0], jnp.asarray(9, jnp.int32)), (2, 2)),
            ),
        ),
        (
            "dynamic update",
            lambda x, k, i: (
                lax.dynamic_update_slice(x, x[:2], (k[0],)),
                lax.dynamic_update_slice(matrix(x), matrix(x)[:2, :2], (k[0], k[1])),
                lax.dynamic_update_slice(i, i[:1], (k[1],)),
                lax.dynamic_update_slice(x, x[:2], (99,)),
                lax.dynamic_update_slice(x, x[:3], (-1,)),
            ),
        ),
        (
            "set",
            lambda x, k, i: (
                x.at[2].set(9.0),
                x.at[at].set(1.0),
                matrix(x).at[:, 1].set(x[:4]),
                matrix(x).at[1:3, ::2].set(0),
                x.at[np.array([99])].set(5, mode="drop"),
                i.at[0].set(7),
            ),
        ),
        (
            "add",
            lambda x, k, i: (
                x.at[2].add(x[0]),
                x.at[at].add(x[:4]),
                matrix(x).at[:, 1].add(x[:4]),
                matrix(x).at[[0, 0], [1, 1]].add(2),
                x[:3].at[np.array([1, 99, 1])].add(x[:3], mode="drop"),
                i.at[at].add(i[:4]),
            ),
        ),
        (
            "set and add at traced places",
            lambda x, k, i: (
                x[:6].at[k[0]].set(9.0),
                x[:6].at[k].add(x[:4]),
                matrix(x).at[k[0]].set(x[:5]),
                matrix(x).at[k[0], k[1]].add(1.0),
                i.at[k[1]].add(2),
            ),
        ),
        (
            "multiply and extremes",
            lambda x, k, i: (
                x.at[at].multiply(x[:4]),
                x.at[2].min(0.0),
                x.at[at].max(x[:4]),
                x.at[1].divide(2.0),
            ),
        ),
        (
            "segment sums",
            lambda x, k, i: (
                jax.ops.segment_sum(x[:4], jnp.asarray([0, 2, 0, 1]), 3),
                jax.grad(lambda x: jnp.sum(x[at] ** 2))(x),
                jax.grad(lambda x: jnp.sum(lax.dynamic_slice(x, (k[0],), (3,)) ** 2))(x),
                jax.grad(lambda x: jnp.sum(x[k] ** 2))(x),
            ),
        ),
        (
            "interpolation in a table",
            lambda x, k, i: (
                jnp.interp(x[0], jnp.linspace(-2, 2, 12, dtype=dtype), table),
                jnp.searchsorted(jnp.linspace(-1, 1, 12, dtype=dtype), x[:3]),
            ),
        ),
        (
            "one-hot and matrices of masks",
            lambda x, k, i: (
                jax.nn.one_hot(k, 5, dtype=dtype) @ x[:5],
                jnp.where(jnp.arange(24, dtype=jnp.int32) == k[0], x, 0.0),
            ),
        ),
    ]
    wrong = differences(cases, (numbers(12, 24, dtype=dtype), integers(14, 4), integers(15, 6)))
    assert not wrong, "\n".join(map(str, wrong))


def matrices(seed, m, n, dtype):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(WORLDS, m, n)), dtype)


@pytest.mark.long
@precisions
def test_factorizations_and_solves(dtype):
    arrow = jnp.asarray([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]], dtype)
    band = jnp.asarray([[4.0, 1, 0, 0], [1, 5, 2, 0], [0, 2, 6, 1], [0, 0, 1, 7]], dtype)
    flags = [
        (left, lower, transposed, unit)
        for left in (True, False)
        for lower in (True, False)
        for transposed in (True, False)
        for unit in (True, False)
    ]

    def positive(a):
        return a @ a.T + 0.5 * jnp.eye(len(a), dtype=dtype)

    def triangular(a, b, left, lower, transposed, unit):
        a = a + 4 * jnp.eye(4, dtype=dtype)
        b = b if left else b.T
        return lax.linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=transposed, unit_diagonal=unit
        )

    def solve_both(a, b):
        a = a + 3 * jnp.eye(4, dtype=dtype)
        return (
            jnp.linalg.solve(a, b),
            jnp.linalg.solve(a, b[:, 0]),
            jnp.linalg.inv(a),
            jnp.linalg.det(a),
            jnp.linalg.slogdet(a),
        )

    permuted = jnp.eye(4, dtype=dtype)[np.array([2, 0, 3, 1])]
    cases = [
        ("Cholesky", lambda a, b: jnp.linalg.cholesky(positive(a))),
        (
            "Cholesky of a band and an arrow",
            lambda a, b: (
                jnp.linalg.cholesky(band * (1 + b[0, 0] ** 2)),
                jnp.linalg.cholesky(arrow[::-1, ::-1] * 0.1 + jnp.diag(1 + b[:, 0] ** 2)),
            ),
        ),
        ("Cholesky of a constant", lambda a, b: jnp.linalg.cholesky(band)),
        (
            "Cholesky of the lower triangle",
            lambda a, b: jnp.linalg.cholesky(positive(a) + jnp.triu(a, 1), symmetrize_input=False),
        ),
        (
            "Cholesky of a stack",
            lambda a, b: jnp.linalg.cholesky(jnp.stack([positive(a), positive(b @ b.T), band])),
        ),
        ("Cholesky of one number", lambda a, b: jnp.linalg.cholesky(a[:1, :1] ** 2)),
        (
            "solves by Cholesky",
            lambda a, b: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(positive(a)), True), b),
        ),
        ("triangular solves", lambda a, b: [triangular(a, b, *flag) for flag in flags]),
        (
            "triangular solve of a stack",
            lambda a, b: lax.linalg.triangular_solve(
                jnp.stack([band, a + 4 * jnp.eye(4, dtype=dtype)]),
                jnp.stack([b, b]),
                left_side=True,
                lower=True,
            ),
        ),
        ("LU", lambda a, b: lax.linalg.lu(a)),
        ("LU of a wide and a tall matrix", lambda a, b: (lax.linalg.lu(a[:2]), lax.linalg.lu(b))),
        ("LU of a stack", lambda a, b: lax.linalg.lu(jnp.stack([a, a.T]))),
        ("LU with zeros on the diagonal", lambda a, b: lax.linalg.lu(permuted * a[0, 0])),
        ("LU of constants", lambda a, b: lax.linalg.lu(permuted + band)),
        (
            "LU of a saddle point",
            lambda a, b: lax.linalg.lu(jnp.block([[positive(a), b], [b.T, jnp.zeros((2, 2), dtype)]])),
        ),
        (
            "LU with equal pivots",
            lambda a, b: lax.linalg.lu(
                jnp.ones((3, 3), dtype) * a[0, 0] + jnp.diag(jnp.asarray([0.0, 0, 1], dtype))
            ),
        ),
        (
            "LU of a matrix with a column of zeros",
            lambda a, b: (
                lax.linalg.lu(a * jnp.asarray([1.0, 0, 1, 1], dtype)),
                lax.linalg.lu(a * jnp.where(b[0, 0] > 0, jnp.asarray([1.0, 0, 1, 1], dtype), 1.0)),
            ),
        ),
        ("linear systems", solve_both),
        (
            "determinant of a singular matrix",
            lambda a, b: jnp.linalg.det(a * jnp.asarray([1.0, 0, 1, 1], dtype)),
        ),
        (
            "transposed systems",
            lambda a, b: jax.grad(
                lambda b: jnp.sum(jnp.sin(jnp.linalg.solve(a + 3 * jnp.eye(4, dtype=dtype), b)))
            )(b),
        ),
        ("QR", lambda a, b: [jnp.linalg.qr(x) for x in (a, b, b.T, a[:1], a[:, :1])]),
        ("complete QR", lambda a, b: jnp.linalg.qr(b, mode="complete")),
        ("QR of triangular matrices", lambda a, b: [jnp.linalg.qr(jnp.triu(x)) for x in (a, -abs(a), b)]),
        (
            "singular values",
            lambda a, b: [jnp.linalg.svd(x, compute_uv=False) for x in (b, b.T * 1e-12, a[:1] * 1e12)],
        ),
        ("pseudo-inverse and least squares", lambda a, b: (jnp.linalg.pinv(b), jnp.linalg.lstsq(b, a)[0])),
    ]
    wrong = differences(cases, (matrices(20, 4, 4, dtype), matrices(21, 4, 2, dtype)), scale=300)
    assert not wrong, "\n".join(map(str, wrong))


FEW = ["wide", "tall", "of rank 2"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("dtype", "names"),
    [
        (jnp.float64, FEW),
        pytest.param(jnp.float64, None, marks=pytest.mark.exhaustive),
        pytest.param(jnp.float32, None, marks=pytest.mark.exhaustive),
    ],
    ids=["few", "double", "single"],
)
def test_singular_values_and_vectors(dtype, names):
    def low_rank(a):
        return a.at[2].set(a[0] - 2 * a[1])

    shapes = {
        "square": lambda a: a,
        "wide": lambda a: a[:2, :3],
        "tall": lambda a: a[:, :2],
        "one row": lambda a: a[:1],
        "of rank 2": lambda a: low_rank(a[:3, :3]),
        "tall, of rank 2": lambda a: low_rank(a[:3]).T,
        "small numbers": lambda a: a * 1e-15,
        "with a column of zeros": lambda a: a * jnp.asarray([1.0, 0, 1, 1], dtype),
        "zero": lambda a: 0 * a,
        "diagonal": lambda a: jnp.diag(a[0]),
        "identity": lambda a: jnp.eye(4, dtype=dtype) * a[0, 0],
        "columns of very different lengths": lambda a: a * jnp.asarray([1e6, 1.0, 1e-4, 1e3], dtype),
    }

    shapes = shapes if names is None else {name: shapes[name] for name in names}

    def every(a):
        thin = [jnp.linalg.svd(f(a), full_matrices=False) for f in shapes.values()]
        return thin, [jnp.linalg.svd(f(a)) for f in shapes.values() if f(a).shape[0] <= f(a).shape[1]]

    a = matrices(22, 4, 4, dtype)
    thin, full = jax.jit(jax.vmap(fuse(every)))(a)
    given = [np.asarray(jax.vmap(f)(a)) for f in shapes.values()]
    wrong = []
    cases = [(n, x, r, "thin") for n, x, r in zip(shapes, given, thin, strict=True)]
    cases += [
        (n, x, r, "full")
        for (n, x), r in zip(
            [c for c in zip(shapes, given, strict=True) if c[1].shape[1] <= c[1].shape[2]], full, strict=True
        )
    ]
    eps = float(jnp.finfo(dtype).eps)
    for name, x, (u, s, vt), kind in cases:
        u, s, vt = map(np.asarray, (u, s, vt))
        rank, size = min(x.shape[1:]), np.linalg.norm(x, axis=(1, 2))
        shape = (WORLDS, x.shape[2] if kind == "full" else rank, x.shape[2])
        errors = {
            "shapes": float(
                (u.shape, s.shape, vt.shape) != ((WORLDS, x.shape[1], rank), (WORLDS, rank), shape)
            )
            * 1e9,
            "A - U S V^T": np.max(
                np.linalg.norm(u * s[:, None] @ vt[:, :rank] - x, axis=(1, 2)) / np.where(size > 0, size, 1)
            ),
            "s": np.max(
                np.abs(s - np.linalg.svd(x.astype(float), compute_uv=False)).max(1)
                / np.where(size > 0, size, 1)
            ),
            "order of s": np.max(np.diff(s, axis=1), initial=-np.inf),
            "V^T V": np.max(np.abs(vt @ vt.transpose(0, 2, 1) - np.eye(shape[1]))),
        }
        wrong += [
            f"{name}, {kind}: {key} {error:.1e}" for key, error in errors.items() if not error <= 50 * eps
        ]
    assert not wrong, "\n".join(wrong)

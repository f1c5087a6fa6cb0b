"""Rules that lower the primitives of step programs: one small function per primitive.

A rule takes the lowering, an equation of a jaxpr and its inputs as arrays of constants and nodes. It returns the outputs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.fused import factorizations
from jaxdae.fused.graph import Graph, Node, Unsupported, kind_of

if TYPE_CHECKING:
    from jaxdae.fused.lower import Lowering

Array = np.ndarray
Rule = Callable[["Lowering", Any, list[Array]], list[Array]]

SELECTED = 8
"""An entry of so many at a traced index is selected; one of more is read from memory."""


def _kind(variable: Any) -> str:
    return kind_of(variable.aval.dtype)


def _known(x: Array) -> bool:
    return not any(isinstance(y, Node) for y in x.reshape(-1))


def _values(x: Array, variable: Any) -> np.ndarray:
    """Return an array of constants with the dtype of its variable."""
    return np.asarray(x.tolist(), variable.aval.dtype).reshape(variable.aval.shape)


# Elementwise operations.


def _binary(op: str) -> Rule:
    def rule(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
        kind = _kind(equation.invars[0])
        return [low.elementwise(lambda a, b: low.graph.binary(op, a, b, kind), *inputs)]

    return rule


def _unary(op: str, result: str | None = None) -> Rule:
    def rule(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
        kind = _kind(equation.invars[0])
        if op == "abs" and equation.invars[0].aval.dtype.kind == "u":
            return inputs
        return [low.elementwise(lambda a: low.graph.unary(op, a, kind, result), inputs[0])]

    return rule


def _less(g: Graph, op: str, a: Any, b: Any, kind: str) -> Any:
    """Return a < b or a <= b in an order in which NaN is the largest number."""
    found = g.binary(op, a, b, kind)
    if kind != "F":
        return found
    last = g.binary("ne", b, b, kind)
    return g.binary("or", found, last if op == "le" else g.binary("and", last, g.binary("eq", a, a, kind), "B"), "B")


def _total_order(op: str) -> Rule:
    def rule(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
        return [low.elementwise(lambda a, b: _less(low.graph, op, a, b, _kind(equation.invars[0])), *inputs)]

    return rule


def _pow(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    g, (base, exponent) = low.graph, equation.invars
    if _kind(base) != "F":
        raise Unsupported("powers of integers with traced exponents")
    exponents = low.elementwise(lambda n: g.convert(n, _kind(exponent), "F", g.real), inputs[1])
    return [low.elementwise(lambda x, n: g.binary("pow", x, n, "F"), inputs[0], exponents)]


def _integer_pow(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    g, kind, exponent = low.graph, _kind(equation.invars[0]), equation.params["y"]

    def power(x: Any, n: int) -> Any:
        if n < 0:
            return g.binary("div", g.constant(np.asarray(1, equation.invars[0].aval.dtype)), power(x, -n), kind)
        if n <= 1:
            return x if n else g.constant(np.asarray(1, equation.invars[0].aval.dtype))
        half = power(x, n // 2)
        square = g.binary("mul", half, half, kind)
        return g.binary("mul", square, x, kind) if n % 2 else square

    return [low.elementwise(lambda x: power(x, exponent), inputs[0])]


def _square(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    return [low.elementwise(lambda x: low.graph.binary("mul", x, x, _kind(equation.invars[0])), inputs[0])]


def _select_n(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    g, kind, (which, *cases) = low.graph, _kind(equation.outvars[0]), inputs
    if _kind(equation.invars[0]) == "B":
        no, yes = cases
        return [low.elementwise(lambda m, a, b: g.select(m, a, b, kind), which, yes, no)]
    found = cases[-1]
    for k in reversed(range(len(cases) - 1)):
        mask = low.elementwise(lambda i, k=k: g.binary("eq", i, g.integer(k), "I"), which)
        found = low.elementwise(lambda m, a, b: g.select(m, a, b, kind), mask, cases[k], found)
    return [found]


def _clamp(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    g, kind, (least, x, most) = low.graph, _kind(equation.invars[1]), inputs
    raised = low.elementwise(lambda a, b: g.binary("max", a, b, kind), x, least)
    return [low.elementwise(lambda a, b: g.binary("min", a, b, kind), raised, most)]


def _convert(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    source, target = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
    g, kind, new = low.graph, kind_of(source), kind_of(target)
    wide = g.constant(np.zeros((), target)).dtype

    def converted(x: Any) -> Any:
        found = g.convert(x, kind, new, target if kind == "F" else wide)
        if (kind, new) == ("F", "I") and np.dtype(target).itemsize < wide.itemsize:  # saturates
            limits = np.iinfo(target)
            found = g.binary("min", g.binary("max", found, g.integer(limits.min), "I"), g.integer(limits.max), "I")
        return found

    return [low.elementwise(converted, inputs[0])]


def _sign(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    g, kind = low.graph, _kind(equation.invars[0])
    one = g.constant(np.asarray(1, equation.invars[0].aval.dtype))

    def sign(x: Any) -> Any:
        negative = g.select(g.binary("lt", x, 0 * one, kind), -one, x, kind)  # x itself if it is 0 or NaN
        return g.select(g.binary("gt", x, 0 * one, kind), one, negative, kind)

    return [low.elementwise(sign, inputs[0])]


def _round(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    g = low.graph
    if equation.params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        return [low.elementwise(lambda x: g.unary("rint", x, "F"), inputs[0])]

    def away(x: Any) -> Any:  # from zero, if halfway
        size = g.unary("abs", x, "F")
        down = g.unary("floor", size, "F")
        rest = g.binary("sub", size, down, "F")  # Exact; size + 1/2 is rounded.
        up = g.select(g.binary("ge", rest, g.real(0.5), "F"), g.binary("add", down, g.real(1), "F"), down, "F")
        return g.select(g.binary("lt", x, g.real(0), "F"), g.negative(up, "F"), up, "F")

    return [low.elementwise(away, inputs[0])]


# Sums and products.


def _reduction(op: str, empty: Any) -> Rule:
    def rule(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
        (x,), axes, kind, g = inputs, equation.params["axes"], _kind(equation.outvars[0]), low.graph
        kept = [k for k in range(x.ndim) if k not in axes]
        rows = np.transpose(x, [*kept, *axes]).reshape(*[x.shape[k] for k in kept], -1 if x.size else 0)
        start = g.constant(np.asarray(empty(equation.outvars[0].aval.dtype), equation.outvars[0].aval.dtype))
        out = np.empty(rows.shape[:-1], object)
        flat = rows.reshape(-1, rows.shape[-1]) if rows.size else [()] * out.size
        out.reshape(-1)[:] = [reduce(lambda a, b: g.binary(op, a, b, kind), row) if len(row) else start for row in flat]
        return [out]

    return rule


def _argument(op: str) -> Rule:
    def rule(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
        g, kind, (axis,) = low.graph, _kind(equation.invars[0]), equation.params["axes"]
        rows = np.moveaxis(inputs[0], axis, -1)
        out = np.empty(rows.shape[:-1], object)

        def place(row: Any) -> Any:
            best, at = row[0], g.integer(0)
            for k in range(1, len(row)):
                better = g.binary(op, row[k], best, kind)
                if kind == "F":  # The first NaN counts as the extreme.
                    new = g.binary("and", g.binary("ne", row[k], row[k], kind), g.binary("eq", best, best, kind), "B")
                    better = g.binary("or", better, new, "B")
                best, at = g.select(better, row[k], best, kind), g.select(better, g.integer(k), at, "I")
            return at

        out.reshape(-1)[:] = [place(row) for row in rows.reshape(-1, rows.shape[-1])]
        return [out]

    return rule


def _cumulative(op: str) -> Rule:
    def rule(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
        g, kind, axis = low.graph, _kind(equation.invars[0]), equation.params["axis"]
        rows = np.moveaxis(inputs[0], axis, 0).copy()
        order = range(len(rows)) if not equation.params["reverse"] else reversed(range(len(rows)))
        last = None
        for k in order:
            if last is not None:
                rows[k, ...] = low.elementwise(lambda a, b: g.binary(op, a, b, kind), np.asarray(rows[last]), np.asarray(rows[k]))
            last = k
        return [np.moveaxis(rows, 0, axis)]

    return rule


def _dot_general(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    a, b = inputs
    left = [k for k in range(a.ndim) if k not in left_sum and k not in left_batch]
    right = [k for k in range(b.ndim) if k not in right_sum and k not in right_batch]
    batch, terms = math.prod(a.shape[k] for k in left_batch), math.prod(a.shape[k] for k in left_sum)
    rows = np.transpose(a, [*left_batch, *left, *left_sum]).reshape(batch, -1 if terms and batch else 0, terms)
    columns = np.transpose(b, [*right_batch, *right, *right_sum]).reshape(batch, -1 if terms and batch else 0, terms)
    g, kind, shape = low.graph, _kind(equation.outvars[0]), equation.outvars[0].aval.shape
    out = np.empty((math.prod(shape),), object)
    zero = g.constant(np.zeros((), equation.outvars[0].aval.dtype))

    def dot(x: Any, y: Any) -> Any:
        total = zero
        for p, q in zip(x, y, strict=True):
            total = g.binary("add", total, g.binary("mul", p, q, kind), kind)
        return total

    if not terms or not batch:
        out[:] = zero
    else:
        out[:] = [dot(x, y) for xs, ys in zip(rows, columns, strict=True) for x in xs for y in ys]
    return [out.reshape(shape)]


# Rearrangements.


def _reshape(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    order = equation.params["dimensions"] if equation.primitive.name == "reshape" else None
    x = inputs[0] if order is None else np.transpose(inputs[0], order)
    return [x.reshape(equation.outvars[0].aval.shape)]


def _broadcast_in_dim(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    shape = equation.outvars[0].aval.shape
    ones = [1] * len(shape)
    for k, place in enumerate(equation.params["broadcast_dimensions"]):
        ones[place] = inputs[0].shape[k]
    return [np.broadcast_to(inputs[0].reshape(ones), shape)]


def _slice(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    p = equation.params
    strides = p["strides"] or (1,) * len(p["start_indices"])
    return [inputs[0][tuple(map(slice, p["start_indices"], p["limit_indices"], strides))]]


def _transpose(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    return [np.transpose(inputs[0], equation.params["permutation"])]


def _concatenate(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    return [np.concatenate(inputs, axis=equation.params["dimension"])]


def _join(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    return [np.stack(inputs, axis=equation.params["axis"])]


def _unstack(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    axis = equation.params["axis"]
    return [np.squeeze(x, axis) for x in np.split(inputs[0], inputs[0].shape[axis], axis)]


def _split(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    return np.split(inputs[0], np.cumsum(equation.params["sizes"])[:-1], axis=equation.params["axis"])


def _rev(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    return [np.flip(inputs[0], equation.params["dimensions"])]


def _tile(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    return [np.tile(inputs[0], equation.params["reps"])]


def _iota(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    p = equation.params
    shape = [1] * len(p["shape"])
    shape[p["dimension"]] = -1
    return [low.graph.constants(np.broadcast_to(np.arange(p["shape"][p["dimension"]], dtype=p["dtype"]).reshape(shape), p["shape"]))]


def _by_places(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    """Apply a primitive that moves entries to the places of the entries instead."""
    places, entries, given = [], [], 0
    data = _MOVES[equation.primitive.name]
    for k, (x, variable) in enumerate(zip(inputs, equation.invars, strict=True)):
        if k in data:
            places.append(np.arange(1 + given, 1 + given + x.size, dtype=np.int32).reshape(x.shape))
            entries.extend(x.reshape(-1))
            given += x.size
        elif _known(x):
            places.append(_values(x, variable))
        else:
            raise Unsupported(f"primitive {equation.primitive.name} with traced indices")
    params = dict(equation.params)
    fill = np.zeros((), equation.outvars[0].aval.dtype)
    if equation.primitive.name == "gather":
        params["fill_value"], fill = 0, _fill(equation)
    found = np.asarray(equation.primitive.bind(*map(jnp.asarray, places), **params))
    table = np.empty(given + 1, object)
    table[0] = low.graph.constant(fill)
    table[1:] = entries
    out = np.empty(found.shape, object)
    out[...] = table[found]
    return [out]


_MOVES = {"pad": (0, 1), "gather": (0,), "dynamic_slice": (0,), "dynamic_update_slice": (0, 1)}


def _fill(equation: Any) -> np.ndarray:
    """Return the value that `gather` takes for indices out of range."""
    value, dtype = equation.params["fill_value"], equation.outvars[0].aval.dtype
    if value is None:
        kind = kind_of(dtype)
        value = np.nan if kind == "F" else True if kind == "B" else np.iinfo(dtype).min
    return np.asarray(value, dtype)


def _offsets(shape: Any, strides: Any) -> np.ndarray:
    """Return the places, in a flattened array, of the entries of a window of a shape."""
    return np.indices(shape).reshape(len(shape), math.prod(shape)).T @ np.asarray(strides, int)


def _pick(low: Lowering, entries: Array, index: Any, kind: str) -> Any:
    """Return the entry at a traced index, which is within bounds."""
    g = low.graph
    if not isinstance(index, Node):
        return entries[int(index)]
    if all(isinstance(x, Node) and x.op == "load" and x.args[:2] == entries[0].args[:2] for x in entries):
        buffer, base, first = entries[0].args
        if all(x.args[2] == first + k for k, x in enumerate(entries)):
            at = index if base is None else g.binary("add", base, index, "I")
            return g.load(buffer, g.binary("add", at, g.integer(first), "I"))
    if len(entries) <= SELECTED:
        found = entries[-1]
        for k in reversed(range(len(entries) - 1)):
            found = g.select(g.binary("le", index, g.integer(k), "I"), entries[k], found, kind)
        return found
    if _known(entries):
        return g.load(g.buffer("table", len(entries), kind, True, tuple(entries)), index)
    return g.load(low.stored(entries, kind), index)


def _clamped(low: Lowering, index: Any, most: int) -> Any:
    g = low.graph
    return g.binary("min", g.binary("max", index, g.integer(0), "I"), g.integer(most), "I")


def _dynamic_slice(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    if all(map(_known, inputs[1:])):
        return _by_places(low, equation, inputs)
    g, (x, *starts), sizes = low.graph, inputs, equation.params["slice_sizes"]
    strides = [math.prod(x.shape[k + 1 :]) for k in range(x.ndim)]
    base = g.integer(0)
    for start, length, size, stride in zip(starts, x.shape, sizes, strides, strict=True):
        place = _clamped(low, start.item(), length - size)
        base = g.binary("add", base, g.binary("mul", place, g.integer(stride), "I"), "I")
    return [_picked(low, x, base, _offsets(sizes, strides), sizes, _kind(equation.outvars[0]))]


def _picked(low: Lowering, x: Array, base: Any, offsets: Any, shape: Any, kind: str) -> Array:
    """Return entries at base + offsets of the flattened array."""
    flat = x.reshape(-1)
    out = np.empty(len(offsets), object)
    span = int(max(offsets, default=0))
    out[:] = [_pick(low, flat[o : len(flat) - span + o], base, kind) for o in map(int, offsets)]
    return out.reshape(shape)


def _dynamic_update_slice(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    if all(map(_known, inputs[2:])):
        return _by_places(low, equation, inputs)
    g, (x, update, *starts), kind = low.graph, inputs, _kind(equation.outvars[0])
    where = [_clamped(low, s.item(), n - m) for s, n, m in zip(starts, x.shape, update.shape, strict=True)]
    out = x.copy()
    for start in np.ndindex(*[n - m + 1 for n, m in zip(x.shape, update.shape, strict=True)]):
        mask: Any = np.bool_(True)
        for at, k in zip(where, start, strict=True):
            mask = g.binary("and", mask, g.binary("eq", at, g.integer(k), "I"), "B")
        for place in np.ndindex(*update.shape):
            target = tuple(a + b for a, b in zip(start, place, strict=True))
            out[target] = g.select(mask, update[place], out[target], kind)
    return [out]


def _gather(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    """Lower `gather`; out-of-range indices are clamped, or filled if the mode says so."""
    if _known(inputs[1]):
        return _by_places(low, equation, inputs)
    g, (x, indices), p = low.graph, inputs, equation.params
    numbers, sizes, shape = p["dimension_numbers"], p["slice_sizes"], equation.outvars[0].aval.shape
    kind, strides = _kind(equation.outvars[0]), [math.prod(x.shape[k + 1 :]) for k in range(x.ndim)]
    fill = p["mode"] == jax.lax.GatherScatterMode.FILL_OR_DROP
    kept = [k for k in range(x.ndim) if k not in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)]
    offsets = _offsets([sizes[k] for k in kept], [strides[k] for k in kept])
    missing = g.constant(_fill(equation))
    batch = [k for k in range(len(shape)) if k not in numbers.offset_dims]
    rows = indices.reshape(-1, indices.shape[-1])
    found = np.empty((len(rows), len(offsets)), object)
    for k, (row, place) in enumerate(zip(rows, np.ndindex(indices.shape[:-1]), strict=True)):
        pairs = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
        base, inside = g.integer(sum(place[d] * strides[axis] for axis, d in pairs)), np.bool_(True)
        for start, axis in zip(row, numbers.start_index_map, strict=True):
            most = x.shape[axis] - sizes[axis]
            at = _clamped(low, start, most)
            inside = g.binary("and", inside, g.binary("eq", at, start, "I"), "B")
            base = g.binary("add", base, g.binary("mul", at, g.integer(strides[axis]), "I"), "I")
        values = _picked(low, x, base, offsets, (len(offsets),), kind)
        if fill:
            values = low.elementwise(lambda v, inside=inside: g.select(inside, v, missing, kind), values)
        found[k] = values
    order = [*batch, *numbers.offset_dims]
    return [np.transpose(found.reshape([shape[k] for k in order]), np.argsort(order))]


def _scatter(op: str | None) -> Rule:
    """Return the rule of a scatter that combines entries by an operation, or replaces them."""

    def rule(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
        g, (x, indices, updates), kind = low.graph, inputs, _kind(equation.outvars[0])
        numbers, clip = equation.params["dimension_numbers"], equation.params["mode"] == jax.lax.GatherScatterMode.CLIP
        batching = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
        window_axes = [k for k in range(x.ndim) if k not in numbers.inserted_window_dims and k not in batching]
        window = dict(zip(window_axes, (updates.shape[k] for k in numbers.update_window_dims), strict=True))
        others = [k for k in range(updates.ndim) if k not in numbers.update_window_dims]
        moved = np.transpose(updates, [*others, *numbers.update_window_dims])
        out = x.copy()
        for row in np.ndindex(indices.shape[:-1]):
            starts = [[(0, np.bool_(True))] for _ in range(x.ndim)]
            for axis, d in batching.items():
                starts[axis] = [(row[d], np.bool_(True))]
            for index, axis in zip(indices[row], numbers.scatter_dims_to_operand_dims, strict=True):
                most = x.shape[axis] - window.get(axis, 1)
                at = _clamped(low, index, most) if clip else index
                known = None if isinstance(at, Node) else [int(at)] if 0 <= at <= most else []
                starts[axis] = [(k, g.binary("eq", at, g.integer(k), "I")) for k in (range(most + 1) if known is None else known)]
            for start in itertools.product(*starts):
                mask = reduce(lambda a, b: g.binary("and", a, b, "B"), [m for _, m in start], np.bool_(True))
                for place in np.ndindex(*window.values()):
                    inside = dict(zip(window, place, strict=True))
                    target = tuple(k + inside.get(axis, 0) for axis, (k, _) in enumerate(start))
                    new = moved[(*row, *place)]
                    new = new if op is None else g.binary(op, out[target], new, kind)
                    out[target] = g.select(mask, new, out[target], kind)
        return [out]

    return rule


LARGEST_SORT = 16
"""The most entries of a sorted axis."""


def _sort(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    """Lower `sort` by exchanging neighbors."""
    p, size = equation.params, inputs[0].shape[equation.params["dimension"]]
    if p["num_keys"] != 1 or size > LARGEST_SORT:
        raise Unsupported(f"sort by several keys, or of more than {LARGEST_SORT} entries")
    g, kinds = low.graph, [_kind(v) for v in equation.invars]
    rows = [np.moveaxis(x, p["dimension"], 0).copy() for x in inputs]
    for last in range(size - 1, 0, -1):
        for k in range(last):
            swap = low.elementwise(lambda a, b: _less(g, "lt", a, b, kinds[0]), np.asarray(rows[0][k + 1]), np.asarray(rows[0][k]))
            for x, kind in zip(rows, kinds, strict=True):
                pick = partial(_chosen, g, kind)
                a, b = np.asarray(x[k], object), np.asarray(x[k + 1], object)
                x[k, ...], x[k + 1, ...] = low.elementwise(pick, swap, b, a), low.elementwise(pick, swap, a, b)
    return [np.moveaxis(x, 0, p["dimension"]) for x in rows]


def _chosen(g: Graph, kind: str, mask: Any, yes: Any, no: Any) -> Any:
    return g.select(mask, yes, no, kind)


# Calls.


def _call(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    p = equation.params
    jaxpr = next(p[name] for name in ("jaxpr", "call_jaxpr", "call", "fun_jaxpr") if name in p)
    return low.closed(jaxpr, inputs) if hasattr(jaxpr, "jaxpr") else low.run(jaxpr, (), inputs)


def _fused(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    if any(equation.params["batched"]):
        raise Unsupported("a batch of worlds inside of a world")
    return low.closed(equation.params["program"].jaxpr, inputs)


def _linear_solve(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    lengths = equation.params["const_lengths"]
    first = lengths.matvec + lengths.vecmat
    sides = inputs[first + lengths.solve + lengths.transpose_solve :]
    return low.closed(equation.params["jaxprs"].solve, [*inputs[first : first + lengths.solve], *sides])


def _platform_index(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    for k, names in enumerate(equation.params["platforms"]):
        if names is None or low.platform in names:
            return [low.graph.constants(np.asarray(k, np.int32))]
    raise Unsupported(f"no branch for the platform {low.platform}")


def _same(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    return inputs


def _jnp(function: Callable[..., Any]) -> Rule:
    """Return a rule that lowers a function of `factorizations`, traced for the shapes of the inputs."""

    def rule(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
        traced = jax.make_jaxpr(lambda *x: jax.tree.leaves(function(equation.params, *x)))(*shapes)
        return low.closed(traced, inputs)

    return rule


def _scan(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    return low.scan(equation, inputs)


def _while(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    return low.while_loop(equation, inputs)


def _cond(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    return low.cond(equation, inputs)


def _limits(sign: float) -> Callable[[Any], Any]:
    def empty(dtype: Any) -> Any:
        if kind_of(dtype) == "B":
            return sign > 0
        if kind_of(dtype) == "I":
            return np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min
        return sign * np.inf

    return empty


# ruff: noqa: SIM905
_BINARY = "add sub mul div rem max min and or xor eq ne lt le gt ge atan2".split()
_UNARY = (
    "neg abs sqrt rsqrt cbrt floor ceil sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log1p erf not"
).split()
_CALLS = (
    "jit pjit closed_call core_call custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr custom_vmap_call remat2 checkpoint remat"
    " custom_lin"
).split()

RULES: dict[str, Rule] = {
    **{op: _binary(op) for op in _BINARY},
    **{op: _unary(op) for op in _UNARY},
    **dict.fromkeys(_CALLS, _call),
    **dict.fromkeys("stop_gradient name copy copy_p optimization_barrier pvary pcast reduce_precision".split(), _same),
    "add_any": _binary("add"),
    "is_finite": _unary("isfinite", "B"),
    "lt_to": _total_order("lt"),
    "le_to": _total_order("le"),
    "pow": _pow,
    "integer_pow": _integer_pow,
    "square": _square,
    "sign": _sign,
    "round": _round,
    "select_n": _select_n,
    "clamp": _clamp,
    "convert_element_type": _convert,
    "reduce_sum": _reduction("add", lambda dtype: 0),
    "reduce_prod": _reduction("mul", lambda dtype: 1),
    "reduce_max": _reduction("max", _limits(-1.0)),
    "reduce_min": _reduction("min", _limits(1.0)),
    "reduce_and": _reduction("and", lambda dtype: True),
    "reduce_or": _reduction("or", lambda dtype: False),
    "argmax": _argument("gt"),
    "argmin": _argument("lt"),
    "cumsum": _cumulative("add"),
    "cumprod": _cumulative("mul"),
    "cummax": _cumulative("max"),
    "cummin": _cumulative("min"),
    "dot_general": _dot_general,
    **dict.fromkeys(("reshape", "squeeze", "expand_dims"), _reshape),
    "broadcast_in_dim": _broadcast_in_dim,
    "slice": _slice,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "split": _split,
    "stack": _join,
    "unstack": _unstack,
    "tile": _tile,
    "rev": _rev,
    "iota": _iota,
    "pad": _by_places,
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "fused": _fused,
    "scatter": _scatter(None),
    "scatter-add": _scatter("add"),
    "scatter-mul": _scatter("mul"),
    "scatter-min": _scatter("min"),
    "scatter-max": _scatter("max"),
    "sort": _sort,
    "custom_linear_solve": _linear_solve,
    "platform_index": _platform_index,
    "cholesky": factorizations.cholesky,
    "triangular_solve": factorizations.triangular_solve,
    "lu": factorizations.lu,
    "logistic": _jnp(lambda params, x: 1 / (1 + jnp.exp(-x))),
    "lu_pivots_to_permutation": factorizations.permutation,
    "svd": _jnp(factorizations.svd),
    "qr": _jnp(factorizations.qr),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}

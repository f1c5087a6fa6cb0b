"""Rules that rearrange the entries of arrays: slices, gathers, scatters and sorts.

Constant indices are resolved while lowering and cost nothing. An entry at a traced index is selected, or read
from memory.
"""

from __future__ import annotations

import itertools
import math
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.fused.arithmetic import Array, Rule, is_known, kind_of_variable, known_values, less
from jaxdae.fused.graph import Graph, Node, Unsupported, kind_of

if TYPE_CHECKING:
    from jaxdae.fused.lower import Lowering

SELECTED = 8
"""An entry of so many at a traced index is selected; one of more is read from memory."""


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
    return [
        low.graph.constants(
            np.broadcast_to(
                np.arange(p["shape"][p["dimension"]], dtype=p["dtype"]).reshape(shape), p["shape"]
            )
        )
    ]


def _by_places(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    """Apply a primitive that moves entries to the places of the entries instead."""
    places, entries, given = [], [], 0
    data = _MOVES[equation.primitive.name]
    for k, (x, variable) in enumerate(zip(inputs, equation.invars, strict=True)):
        if k in data:
            places.append(np.arange(1 + given, 1 + given + x.size, dtype=np.int32).reshape(x.shape))
            entries.extend(x.reshape(-1))
            given += x.size
        elif is_known(x):
            places.append(known_values(x, variable))
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
    if is_known(entries):
        return g.load(g.buffer("table", len(entries), kind, True, tuple(entries)), index)
    return g.load(low.stored(entries, kind), index)


def _clamped(low: Lowering, index: Any, most: int) -> Any:
    g = low.graph
    return g.binary("min", g.binary("max", index, g.integer(0), "I"), g.integer(most), "I")


def _dynamic_slice(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    if all(map(is_known, inputs[1:])):
        return _by_places(low, equation, inputs)
    g, (x, *starts), sizes = low.graph, inputs, equation.params["slice_sizes"]
    strides = [math.prod(x.shape[k + 1 :]) for k in range(x.ndim)]
    base = g.integer(0)
    for start, length, size, stride in zip(starts, x.shape, sizes, strides, strict=True):
        place = _clamped(low, start.item(), length - size)
        base = g.binary("add", base, g.binary("mul", place, g.integer(stride), "I"), "I")
    return [_picked(low, x, base, _offsets(sizes, strides), sizes, kind_of_variable(equation.outvars[0]))]


def _picked(low: Lowering, x: Array, base: Any, offsets: Any, shape: Any, kind: str) -> Array:
    """Return entries at base + offsets of the flattened array."""
    flat = x.reshape(-1)
    out = np.empty(len(offsets), object)
    span = int(max(offsets, default=0))
    out[:] = [_pick(low, flat[o : len(flat) - span + o], base, kind) for o in map(int, offsets)]
    return out.reshape(shape)


def _dynamic_update_slice(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    if all(map(is_known, inputs[2:])):
        return _by_places(low, equation, inputs)
    g, (x, update, *starts), kind = low.graph, inputs, kind_of_variable(equation.outvars[0])
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
    if is_known(inputs[1]):
        return _by_places(low, equation, inputs)
    g, (x, indices), p = low.graph, inputs, equation.params
    numbers, sizes, shape = p["dimension_numbers"], p["slice_sizes"], equation.outvars[0].aval.shape
    kind, strides = (
        kind_of_variable(equation.outvars[0]),
        [math.prod(x.shape[k + 1 :]) for k in range(x.ndim)],
    )
    fill = p["mode"] == jax.lax.GatherScatterMode.FILL_OR_DROP
    kept = [
        k for k in range(x.ndim) if k not in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    ]
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
        g, (x, indices, updates), kind = low.graph, inputs, kind_of_variable(equation.outvars[0])
        numbers, clip = (
            equation.params["dimension_numbers"],
            equation.params["mode"] == jax.lax.GatherScatterMode.CLIP,
        )
        batching = dict(
            zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
        )
        window_axes = [
            k for k in range(x.ndim) if k not in numbers.inserted_window_dims and k not in batching
        ]
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
                starts[axis] = [
                    (k, g.binary("eq", at, g.integer(k), "I"))
                    for k in (range(most + 1) if known is None else known)
                ]
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
    g, kinds = low.graph, [kind_of_variable(v) for v in equation.invars]
    rows = [np.moveaxis(x, p["dimension"], 0).copy() for x in inputs]
    for last in range(size - 1, 0, -1):
        for k in range(last):
            swap = low.elementwise(
                lambda a, b: less(g, "lt", a, b, kinds[0]), np.asarray(rows[0][k + 1]), np.asarray(rows[0][k])
            )
            for x, kind in zip(rows, kinds, strict=True):
                pick = partial(_chosen, g, kind)
                a, b = np.asarray(x[k], object), np.asarray(x[k + 1], object)
                x[k, ...], x[k + 1, ...] = (
                    low.elementwise(pick, swap, b, a),
                    low.elementwise(pick, swap, a, b),
                )
    return [np.moveaxis(x, 0, p["dimension"]) for x in rows]


def _chosen(g: Graph, kind: str, mask: Any, yes: Any, no: Any) -> Any:
    return g.select(mask, yes, no, kind)


INDEXING: dict[str, Rule] = {
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
    "scatter": _scatter(None),
    "scatter-add": _scatter("add"),
    "scatter-mul": _scatter("mul"),
    "scatter-min": _scatter("min"),
    "scatter-max": _scatter("max"),
    "sort": _sort,
}

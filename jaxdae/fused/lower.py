"""Lowering of a closed jaxpr of one world to a scalar graph.

Calls, such as `jit`, `custom_jvp` and `checkpoint`, are entered. A short `scan` is unrolled, so that its
tables become constants. A long `scan` is a loop, which stores its stacked outputs in buffers, one number per
iteration. A `while` runs until its condition fails in all worlds; finished worlds keep their values. A branch
of `cond` runs if any world takes it.

A loop carries an entry as a constant if the entry starts as a constant and every iteration returns the same
constant. All other entries are variables. The first trace of a body assumes constants wherever the start is
constant. The body is traced again until the assumption holds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from jax.extend import core

from jaxdae.fused.graph import Block, Graph, Node, Unsupported, affine, filled, kind_of, same_constant
from jaxdae.fused.primitives import RULES

UNROLLED = 300
"""The number of scalar operations up to which a scan is unrolled.

Scans over a table of integers and scans with `unroll=True` are always unrolled.
"""
SMALL_BRANCH = 30
"""Branches with at most so many scalar operations run in all worlds, without a jump."""

Array = np.ndarray


@dataclasses.dataclass(frozen=True)
class Loop:
    """Static data of a loop node.

    Attributes:
        body: its block.
        length: the number of iterations, None for a loop with a condition.
        count: the node of the iteration number, 0, 1, ...
        variables: (variable, value at the end of an iteration, start).
        mask: in which worlds the loop goes on, None for a fixed number of iterations.
    """

    body: Block
    length: int | None
    count: Node | None
    variables: list[tuple[Node, Any, Any]]
    mask: Any


class Lowering:
    """Lowers jaxprs into one graph, see the module.

    Attributes:
        graph: the graph.
        platform: the name of the platform that `platform_dependent` selects.
    """

    def __init__(self, graph: Graph, platform: str) -> None:
        self.graph = graph
        self.platform = platform
        self._carried: dict[int, tuple[Any, list[str]]] = {}
        self._costs: dict[int, tuple[Any, int]] = {}

    def run(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Array]) -> list[Array]:
        """Return the outputs of a jaxpr.

        Raises:
            Unsupported: a primitive without a rule.
        """
        values: dict[Any, Array] = {}

        def read(atom: Any) -> Array:
            return (
                self.graph.constants(np.asarray(atom.val)) if isinstance(atom, core.Literal) else values[atom]
            )

        for variable, value in zip(jaxpr.constvars, consts, strict=True):
            known = isinstance(value, np.ndarray) and value.dtype == object
            values[variable] = value if known else self.graph.constants(np.asarray(value))
        values.update(zip(jaxpr.invars, arguments, strict=True))
        for equation in jaxpr.eqns:
            rule = RULES.get(equation.primitive.name)
            if rule is None:
                raise Unsupported(f"primitive {equation.primitive.name}")
            values.update(
                zip(equation.outvars, rule(self, equation, [read(x) for x in equation.invars]), strict=True)
            )
        return [read(x) for x in jaxpr.outvars]

    def closed(self, jaxpr: Any, arguments: Sequence[Array]) -> list[Array]:
        """Return the outputs of a closed jaxpr."""
        return self.run(jaxpr.jaxpr, jaxpr.consts, arguments)

    def elementwise(self, function: Callable[..., Any], *arrays: Array) -> Array:
        """Return the array of a function of scalars, with broadcasting."""
        shape = np.broadcast_shapes(*[x.shape for x in arrays])
        out = np.empty(shape, object)
        flat = [x.reshape(-1) if x.shape == shape else np.broadcast_to(x, shape).reshape(-1) for x in arrays]
        out.reshape(-1)[:] = [function(*entries) for entries in zip(*flat, strict=True)]
        return out

    # Control flow.

    def scan(self, equation: Any, inputs: list[Array]) -> list[Array]:
        """Lower `scan`."""
        p = equation.params
        length, jaxpr = p["length"], p["jaxpr"]
        # Shapes tell constants, carry and stacked arrays apart; the names of the parameters depend on the
        # release of JAX.
        carried = len(equation.outvars) - _count_of_stacked(equation.outvars, jaxpr.jaxpr.outvars)
        fixed = len(inputs) - carried - _count_of_stacked(equation.invars, jaxpr.jaxpr.invars)
        consts, carry, xs = inputs[:fixed], inputs[fixed : fixed + carried], inputs[fixed + carried :]
        tables = any(
            kind_of(v.aval.dtype) == "I" and _is_table(x)
            for v, x in zip(equation.invars[fixed + carried :], xs, strict=True)
        )
        if length <= 1 or tables or p["unroll"] >= length or length * self.cost(jaxpr.jaxpr) <= UNROLLED:
            return self._unrolled(jaxpr, length, p["reverse"], consts, carry, xs)
        g = self.graph
        readers = [self._reader(x, length) for x in xs]
        kinds = [kind_of(v.aval.dtype) for v in jaxpr.jaxpr.invars[fixed : fixed + carried]]
        outer = g.block
        stacked: list[Array] = []
        count: Any = None

        def body(values: list[Array]) -> list[Array]:
            nonlocal count, stacked
            count = g.effect("count", (), "I", uniform=True)
            at = g.binary("sub", g.integer(length - 1), count, "I") if p["reverse"] else count
            found = self.closed(jaxpr, [*consts, *values, *[reader(at) for reader in readers]])
            stacked = found[carried:]
            place[:] = [at]
            return found[:carried]

        place: list[Any] = []
        final, inner = self._loop(equation, body, None, carry, kinds, length, lambda: count)
        shapes = [v.aval for v in jaxpr.jaxpr.outvars[carried:]]
        saved = {}
        kept = [
            self._stacked(y, kind_of(aval.dtype), length, inner, place[0], count, outer, saved)
            for y, aval in zip(stacked, shapes, strict=True)
        ]
        return [*final, *kept]

    def _unrolled(
        self, jaxpr: Any, length: int, reverse: bool, consts: Any, carry: Any, xs: Any
    ) -> list[Array]:
        ys: list[Any] = [None] * length
        for t in reversed(range(length)) if reverse else range(length):
            found = self.closed(jaxpr, [*consts, *carry, *[x[t, ...] for x in xs]])
            carry, ys[t] = found[: len(carry)], found[len(carry) :]
        kinds = [v.aval for v in jaxpr.jaxpr.outvars[len(carry) :]]
        return [*carry, *[_stack([y[k] for y in ys], (length, *aval.shape)) for k, aval in enumerate(kinds)]]

    def _reader(self, x: Array, length: int) -> Callable[[Node], Array]:
        """Return a function of the iteration that returns an entry of a stacked array."""
        g, columns = self.graph, x.reshape(length, -1)

        def column(entries: Any) -> Callable[[Node], Any]:
            first = entries[0]
            if all(
                y is first
                or (not isinstance(y, Node) and not isinstance(first, Node) and same_constant(y, first))
                for y in entries
            ):
                return lambda at: first
            if all(isinstance(y, Node) and y.op == "load" and y.args[:2] == first.args[:2] for y in entries):
                found = affine([y.args[2] for y in entries])
                if found is not None:
                    buffer, base, _ = first.args
                    return lambda at: g.load(buffer, self._index(at, found, base))
            if not any(isinstance(y, Node) for y in entries):
                found = affine(entries) if isinstance(first, np.integer) else None
                if found is not None:
                    return lambda at: self._index(at, found, None)
                kind = kind_of(np.asarray(first).dtype)
                table = g.buffer("table", length, kind, True, tuple(entries))
                return lambda at: g.load(table, at)
            kind = next(y for y in entries if isinstance(y, Node)).kind
            buffer = self.stored(entries, kind)
            return lambda at: g.load(buffer, at)

        readers = [column(columns[:, k]) for k in range(columns.shape[1])]

        def read(at: Node) -> Array:
            out = np.empty(x.shape[1:], object)
            out.reshape(-1)[:] = [reader(at) for reader in readers]
            return out

        return read

    def _index(self, at: Any, line: tuple[int, int], base: Any) -> Any:
        g = self.graph
        index = g.binary("mul", at, g.integer(line[1]), "I")
        index = index if base is None else g.binary("add", base, index, "I")
        return g.binary("add", index, g.integer(line[0]), "I")

    def stored(self, entries: Any, kind: str) -> Any:
        """Return a buffer that holds the entries."""
        g = self.graph
        uniform = all(x.uniform for x in entries if isinstance(x, Node))
        buffer = g.buffer("temporary", len(entries), kind, uniform)
        for k, x in enumerate(entries):
            g.effect("store", (buffer, None, k, x), kind)
        return buffer

    def _stacked(
        self,
        y: Array,
        kind: str,
        length: int,
        body: Block,
        at: Any,
        count: Node,
        outer: Block,
        saved: dict[Any, Any],
    ) -> Array:
        """Return the stacked outputs (length, ...) of a loop that has ended.

        Its iterations store what they change.
        """
        g = self.graph
        out = np.empty((length, y.size), object)
        for k, z in enumerate(y.reshape(-1)):
            if not isinstance(z, Node) or z.block.depth <= outer.depth:
                out[:, k] = z
                continue
            buffer = (
                z.args[0] if z.op == "load" and z.args[1] is None and z.args[0].label == "temporary" else None
            )
            if (
                buffer is not None
                and buffer.block is body
                and (buffer.outer is None or buffer.outer[1] is at)
            ):
                if buffer.outer is None:
                    buffer.outer = (
                        g.buffer("temporary", length * buffer.size, buffer.kind, buffer.uniform),
                        at,
                    )
                into, stride, first = buffer.outer[0], buffer.size, z.args[2]
            else:
                if z not in saved:
                    saved[z] = g.buffer("temporary", length, kind, z.uniform)
                    base, offset = (
                        (at.args[0], int(at.args[1]))
                        if at.op == "add" and not isinstance(at.args[1], Node)
                        else (at, 0)
                    )
                    g.effect("store", (saved[z], base, offset, z), kind, block=body)
                into, stride, first = saved[z], 1, 0
            out[:, k] = [g.load(into, t * stride + first) for t in range(length)]
        return out.reshape(length, *y.shape)

    def _loop(
        self,
        equation: Any,
        body: Callable[[list[Array]], list[Array]],
        condition: Callable[[list[Array]], Any] | None,
        carry: list[Array],
        kinds: list[str],
        length: int | None,
        count: Callable[[], Any],
    ) -> tuple[list[Array], Block]:
        """Return (carry at the end, block of the body) of a loop, see the module.

        Each carried entry is "constant", "uniform" (a variable with one value for all worlds) or "varying".
        """
        g, outer = self.graph, self.graph.block
        starts = [x for array in carry for x in array.reshape(-1)]
        entry_kinds = [kind for kind, array in zip(kinds, carry, strict=True) for _ in range(array.size)]
        _, before = self._carried.get(id(equation), (None, None))
        found = [
            "constant" if not isinstance(x, Node) else "uniform" if x.uniform else "varying" for x in starts
        ]
        states = (
            found
            if before is None
            else [max(a, b, key=_ORDER.index) for a, b in zip(found, before, strict=True)]
        )
        while True:
            g.block = inner = Block(outer)
            variables = [
                x if state == "constant" else g.effect("variable", (x,), kind, uniform=state == "uniform")
                for x, state, kind in zip(starts, states, entry_kinds, strict=True)
            ]
            given = _shaped(variables, carry)
            mask = None
            if condition is not None:
                mask = condition(given)
                g.effect("break", (mask,), "B")
            ends = [x for array in body(given) for x in array.reshape(-1)]
            g.block = outer
            varies = isinstance(mask, Node) and not mask.uniform
            after = [
                _state_after(state, x, end, variable, varies)
                for state, x, end, variable in zip(states, starts, ends, variables, strict=True)
            ]
            if after == states:
                break
            states = after
        self._carried[id(equation)] = equation, states  # A reference keeps the id from being used again.
        named = list(zip(variables, ends, starts, strict=True))
        loop = Loop(
            inner,
            length,
            count(),
            [(v, e, x) for v, e, x in named if isinstance(v, Node) and v is not x],
            mask,
        )
        node = g.effect("loop", (loop,), "I")
        results = [
            x
            if not isinstance(v, Node) or v is x
            else start
            if x is v
            else g.effect("result", (v, node), v.kind, uniform=v.uniform)
            for v, x, start in zip(variables, ends, starts, strict=True)
        ]
        results = [
            start if state == "constant" else x
            for x, start, state in zip(results, starts, states, strict=True)
        ]
        return _shaped(results, carry), inner

    def while_loop(self, equation: Any, inputs: list[Array]) -> list[Array]:
        """Lower `while`; a condition that is known in advance unrolls it."""
        p = equation.params
        tests, bodies = p["cond_nconsts"], p["body_nconsts"]
        test_consts, body_consts, carry = (
            inputs[:tests],
            inputs[tests : tests + bodies],
            inputs[tests + bodies :],
        )

        def condition(values: list[Array]) -> Any:
            return self.closed(p["cond_jaxpr"], [*test_consts, *values])[0].reshape(-1)[0]

        trips = _trip_count(self, condition, p, carry, body_consts)
        if trips is not None:
            return trips
        kinds = [kind_of(v.aval.dtype) for v in p["body_jaxpr"].jaxpr.invars[bodies:]]
        return self._loop(
            equation,
            lambda values: self.closed(p["body_jaxpr"], [*body_consts, *values]),
            condition,
            carry,
            kinds,
            None,
            lambda: None,
        )[0]

    def cond(self, equation: Any, inputs: list[Array]) -> list[Array]:
        """Lower `cond` and `switch`."""
        g, branches = self.graph, equation.params["branches"]
        index, operands = inputs[0].reshape(-1)[0], inputs[1:]
        if not isinstance(index, Node):
            return self.closed(branches[min(max(int(index), 0), len(branches) - 1)], operands)
        small = sum(self.cost(branch.jaxpr) for branch in branches) <= SMALL_BRANCH
        result = None
        for k in reversed(range(len(branches))):
            if index.kind == "B":
                taken = index if k else g.unary("not", index, "B")
            else:  # An index out of range counts as the first or the last one.
                op = "le" if k == 0 else "ge" if k == len(branches) - 1 else "eq"
                taken = g.binary(op, index, g.integer(k), "I")
            result = self._case(branches[k], operands, taken, result, small)
        return result or []

    def _case(
        self, branch: Any, operands: list[Array], taken: Any, others: list[Array] | None, small: bool
    ) -> list[Array]:
        """Return the outputs of a branch where it is taken, else those of the other branches."""
        g = self.graph
        kinds = [kind_of(v.aval.dtype) for v in branch.jaxpr.outvars]
        if small:
            found = self.closed(branch, operands)
            if others is None:
                return found
            selects = [partial(self._selected, taken, kind) for kind in kinds]
            return [self.elementwise(f, x, y) for f, x, y in zip(selects, found, others, strict=True)]
        outer = g.block
        g.block = block = Block(outer, is_branch=True)
        found = self.closed(branch, operands)
        g.block = outer
        node = g.effect("branch", (taken, block), "B")
        if others is None:
            others = [filled(x.shape, g.zero(kind)) for x, kind in zip(found, kinds, strict=True)]
        merges = [partial(self._merged, node, taken, block, kind) for kind in kinds]
        return [self.elementwise(f, x, y) for f, x, y in zip(merges, found, others, strict=True)]

    def _selected(self, taken: Any, kind: str, yes: Any, no: Any) -> Any:
        return self.graph.select(taken, yes, no, kind)

    def _merged(self, node: Node, taken: Any, block: Block, kind: str, yes: Any, no: Any) -> Any:
        """Return `yes`, of a branch, where it is taken, and else `no`."""
        g = self.graph
        if not isinstance(yes, Node) or yes.block is not block:
            return g.select(taken, yes, no, kind)
        uniform = taken.uniform and yes.uniform and (not isinstance(no, Node) or no.uniform)
        return g.effect("merge", (node, taken, yes, no), kind, uniform=uniform)

    def cost(self, jaxpr: Any) -> int:
        """Return an estimate of the number of scalar operations of a jaxpr."""
        known = self._costs.get(id(jaxpr))
        if known is not None:
            return known[1]
        total = 0
        for equation in jaxpr.eqns:
            inner = [self.cost(sub) for sub in subjaxprs(equation.params)]
            times = equation.params["length"] if equation.primitive.name == "scan" else 1
            size = sum(math.prod(v.aval.shape) for v in equation.outvars)
            total += times * sum(inner) if inner else size if equation.primitive.name in COUNTED else 0
        self._costs[id(jaxpr)] = (jaxpr, total)
        return total


# ruff: noqa: SIM905
_ORDER = ["constant", "uniform", "varying"]
COUNTED = frozenset(
    (
        "add sub mul div max min neg abs sign sqrt rsqrt sin cos tan exp log pow integer_pow select_n "
        "dot_general reduce_sum reduce_max reduce_min reduce_and reduce_or eq ne lt le gt ge and or not "
        "cholesky triangular_solve lu svd qr atan2 floor round add_any"
    ).split()
)


def subjaxprs(params: dict[str, Any]) -> list[Any]:
    """Return the jaxprs among the parameters of an equation."""
    found = []
    for value in params.values():
        for x in value if isinstance(value, tuple | list) else (value,):
            if hasattr(x, "eqns"):
                found.append(x)
            elif hasattr(getattr(x, "jaxpr", None), "eqns"):
                found.append(x.jaxpr)
    return found


def _is_table(x: Array) -> bool:
    """Return whether a stacked array has integer constants that are not affine in the iteration."""
    columns = x.reshape(len(x), -1)
    known = [column for column in columns.T if not any(isinstance(y, Node) for y in column)]
    return any(affine(column) is None for column in known)


def _count_of_stacked(outer: Any, inner: Any) -> int:
    """Return how many arrays of a scan have the axis of the iterations in front."""
    return sum(len(x.aval.shape) > len(y.aval.shape) for x, y in zip(outer, inner, strict=True))


def _stack(arrays: list[Array], shape: tuple[int, ...]) -> Array:
    out = np.empty(shape, object)
    for k, x in enumerate(arrays):
        out[k] = x if x.ndim else x.item()
    return out


def _shaped(entries: list[Any], like: list[Array]) -> list[Array]:
    arrays, start = [], 0
    for x in like:
        out = np.empty(x.shape, object)
        out.reshape(-1)[:] = entries[start : start + x.size]
        arrays.append(out)
        start += x.size
    return arrays


def _state_after(state: str, start: Any, end: Any, variable: Any, varies: bool) -> str:
    if state == "constant":
        if not isinstance(end, Node):
            return "constant" if same_constant(start, end) else "varying" if varies else "uniform"
        return "uniform" if end.uniform and not varies else "varying"
    if state == "uniform" and end is not variable:
        return "uniform" if (not isinstance(end, Node) or end.uniform) and not varies else "varying"
    return state


def _trip_count(
    lowering: Lowering, condition: Any, p: Any, carry: list[Array], consts: list[Array]
) -> list[Array] | None:
    """Return the carry after a short loop whose condition does not depend on data, else None."""
    first = condition(carry)
    if isinstance(first, Node):
        return None
    cost, trips = max(lowering.cost(p["body_jaxpr"].jaxpr), 1), 0
    while not isinstance(first, Node) and first:
        if trips * cost > UNROLLED and trips > 1:
            return None
        carry = lowering.closed(p["body_jaxpr"], [*consts, *carry])
        first, trips = condition(carry), trips + 1
    return None if isinstance(first, Node) else carry

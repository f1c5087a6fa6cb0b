"""C code of a graph: one body for all backends.

The body uses a few types and functions that a backend defines (see `cpu.py`): `R` and `Z` are a
floating-point number and an integer that all worlds share, `F`, `I` and `B` are those of each world, `V`
makes the latter from the former. Each node becomes one assignment.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import Any

import numpy as np

from jaxdae.fused.graph import Block, Buffer, Graph, Node
from jaxdae.fused.lower import Loop

OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
TYPES = {
    ("F", False): "F",
    ("I", False): "I",
    ("B", False): "B",
    ("F", True): "R",
    ("I", True): "Z",
    ("B", True): "Z",
}


@dataclasses.dataclass(frozen=True)
class Code:
    """The body of a kernel.

    Attributes:
        lines: its lines.
        tables: the constants of each table, as (kind, values).
        temporaries: numbers per world in temporary memory.
        operations: scalar operations by name, each counted once, whether or not in a loop.
        looped: scalar operations inside of loops, each counted once. In a rollout, these are the operations
            of a step.
    """

    lines: list[str]
    tables: list[tuple[str, tuple[Any, ...]]]
    temporaries: int
    operations: Counter[str]
    looped: int


def emit(graph: Graph, outputs: list[np.ndarray]) -> Code:
    """Return the code that computes the outputs, arrays of constants and nodes."""
    writer = _Writer(graph, outputs)
    writer.block(graph.root, 1)
    for k, array in enumerate(outputs):
        writer.output(k, array)
    tables = [(b.kind, b.values) for b in graph.buffers if b.label == "table"]
    return Code(writer.lines, tables, writer.temporaries, writer.operations, writer.looped)


def literal(x: Any) -> str:
    """Return a constant in C."""
    if isinstance(x, np.bool_):
        return "TRUE" if x else "FALSE"
    if isinstance(x, np.floating):
        if math.isnan(x):
            return "(R)NAN"
        return f"(R){float(x)!r}" if math.isfinite(x) else "(R)INFINITY" if x > 0 else "(-(R)INFINITY)"
    return f"(Z){int(x)}"


class _Writer:
    def __init__(self, graph: Graph, outputs: list[np.ndarray]) -> None:
        self.lines: list[str] = []
        self.operations: Counter[str] = Counter()
        self.looped = 0
        self._open_loops = 0
        self.alive: set[Node] = set()
        self._stores: dict[Buffer, list[Node]] = {}
        self._loops: dict[Block, Node] = {}
        self._branches: dict[Block, Node] = {}
        self._merges: dict[Node, list[Node]] = {}
        self._inner: dict[Buffer, list[Buffer]] = {}
        for buffer in graph.buffers:
            if buffer.outer is not None:
                self._inner.setdefault(buffer.outer[0], []).append(buffer)
        self._register(graph.root)
        self._mark([x for array in outputs for x in array.reshape(-1)])
        self.places: dict[Buffer, int] = {}
        self.temporaries = 0
        for buffer in graph.buffers:
            is_outermost = buffer.label == "temporary" and buffer.outer is None
            if is_outermost and not self.alive.isdisjoint(self._stores_into(buffer)):
                self.places[buffer] = self.temporaries
                self.temporaries += buffer.size

    def _stores_into(self, buffer: Buffer) -> list[Node]:
        """Return the stores into a buffer, also those into buffers of which it keeps all iterations."""
        return [
            *self._stores.get(buffer, ()),
            *(node for b in self._inner.get(buffer, ()) for node in self._stores_into(b)),
        ]

    # Liveness.

    def _register(self, block: Block) -> None:
        for node in block.nodes:
            if node.op == "store":
                self._stores.setdefault(node.args[0], []).append(node)
            elif node.op == "loop":
                loop: Loop = node.args[0]
                self._loops[loop.body] = node
                self._register(loop.body)
            elif node.op == "branch":
                self._branches[node.args[1]] = node
                self._register(node.args[1])
            elif node.op == "merge":
                self._merges.setdefault(node.args[0], []).append(node)

    def _mark(self, roots: list[Any]) -> None:
        ends = {v: end for node in self._loops.values() for v, end, _ in node.args[0].variables}
        stack = [x for x in roots if isinstance(x, Node)]
        while stack:
            node = stack.pop()
            if node in self.alive:
                continue
            self.alive.add(node)
            at: Block | None = node.block
            while at is not None:  # Whatever contains it runs.
                owner = self._loops.get(at) or self._branches.get(at)
                if owner is not None and owner not in self.alive:
                    stack.append(owner)
                at = at.parent
            if node.op in ("load", "store"):
                at_buffer = node.args[0]
                while at_buffer.outer is not None:  # Its address contains the iteration of an outer loop.
                    at_buffer, count = at_buffer.outer
                    stack.append(count)
            if node.op == "load":
                stack.extend(self._stores_into(node.args[0]))
            elif node.op == "variable":
                stack.extend(x for x in (ends.get(node),) if isinstance(x, Node))
            elif node.op == "loop":
                loop = node.args[0]
                stack.extend(x for x in (loop.mask, loop.count) if isinstance(x, Node))
            elif node.op == "branch":
                stack.extend(x for x in (node.args[0],) if isinstance(x, Node))
            stack.extend(x for x in node.args if isinstance(x, Node))

    # Expressions.

    def reference(self, x: Any, uniform: bool = True) -> str:
        """Return a value; `uniform` is whether its reader takes what all worlds share."""
        text = f"v{x.id}" if isinstance(x, Node) else literal(x)
        return f"V({text})" if not uniform and (not isinstance(x, Node) or x.uniform) else text

    def address(self, buffer: Buffer, base: Any, offset: int) -> str:
        """Return the place of an entry in its memory."""
        parts = [] if base is None else [self.reference(base)]
        number = offset
        while buffer.outer is not None:
            buffer, at = buffer.outer[0], (buffer.outer[1], buffer.size)
            parts.append(f"{self.reference(at[0])} * {at[1]}")
        number += self.places.get(buffer, 0)
        return " + ".join([*parts, str(number)])

    def expression(self, node: Node) -> str:
        op, args, u = node.op, node.args, node.uniform
        if op in OPERATORS and (op, node.kind) != ("div", "I"):
            return f"{self.reference(args[0], u)} {OPERATORS[op]} {self.reference(args[1], u)}"
        if op == "neg":
            return f"-{self.reference(args[0], u)}"
        if op == "load":
            buffer, base, offset = args
            name = {"arg": f"ARG{buffer.index}", "table": f"T{buffer.index}", "temporary": "temporary"}[
                buffer.label
            ]
            if base is not None and not base.uniform:
                shared = "SHARED" if buffer.uniform else "EACH"
                return (
                    f"GATHER_{shared}_{node.kind}({name}, {self.reference(base)}, "
                    f"{self.address(buffer, None, offset)})"
                )
            get = "GET" if buffer.label == "temporary" else "READ"
            return (
                f"{get}_{'SHARED_' if buffer.uniform else ''}{node.kind}({name}, "
                f"{self.address(buffer, base, offset)})"
            )
        return f"{op.upper()}({', '.join(self.reference(x, u) for x in args)})"

    # Statements.

    def line(self, depth: int, text: str) -> None:
        self.lines.append(" " * depth + text)

    def block(self, block: Block, depth: int) -> None:
        for node in block.nodes:
            if node in self.alive or node.op == "break":
                self.statement(node, depth)

    def statement(self, node: Node, depth: int) -> None:
        op, kind = node.op, TYPES[node.kind, node.uniform]
        if op in ("variable", "count", "merge"):
            return  # declared by their loop or branch
        if op == "loop":
            self.loop(node.args[0], depth)
        elif op == "branch":
            self.branch(node, depth)
        elif op == "break":
            mask = node.args[0]
            self.line(depth, f"if (!ANY({self.reference(mask)})) break;")
        elif op == "store":
            buffer, base, offset, value = node.args
            address = self.address(buffer, base, offset)
            shared = "SHARED_" if buffer.uniform else ""
            self.line(
                depth, f"PUT_{shared}{buffer.kind}({address}, {self.reference(value, buffer.uniform)});"
            )
        elif op == "result":
            self.line(depth, f"const {kind} v{node.id} = v{node.args[0].id};")
        else:
            self.operations[op] += 1
            self.looped += self._open_loops > 0
            self.line(depth, f"const {kind} v{node.id} = {self.expression(node)};")

    def loop(self, loop: Loop, depth: int) -> None:
        variables = [(v, end, start) for v, end, start in loop.variables if v in self.alive]
        for v, _, start in variables:
            self.line(depth, f"{TYPES[v.kind, v.uniform]} v{v.id} = {self.reference(start, v.uniform)};")
        head = (
            "for (;;) {"
            if loop.count is None
            else f"for (Z v{loop.count.id} = 0; v{loop.count.id} < {loop.length}; ++v{loop.count.id}) {{"
        )
        self.line(depth, head)
        self._open_loops += 1
        self.block(loop.body, depth + 1)
        self._open_loops -= 1
        changed = [(v, end) for v, end, _ in variables if end is not v]
        for v, end in changed:
            value = self.reference(end, v.uniform)
            if loop.mask is not None and not v.uniform:
                value = f"SELECT({self.reference(loop.mask, False)}, {value}, v{v.id})"
            self.line(depth + 1, f"const {TYPES[v.kind, v.uniform]} n{v.id} = {value};")
        for v, _ in changed:
            self.line(depth + 1, f"v{v.id} = n{v.id};")
        self.line(depth, "}")

    def branch(self, node: Node, depth: int) -> None:
        taken, block = node.args
        merges = [m for m in self._merges.get(node, ()) if m in self.alive]
        for m in merges:
            self.line(depth, f"{TYPES[m.kind, m.uniform]} v{m.id} = {self.reference(m.args[3], m.uniform)};")
        self.line(depth, f"if (ANY({self.reference(taken)})) {{")
        self.block(block, depth + 1)
        for m in merges:
            yes = self.reference(m.args[2], m.uniform)
            mask = self.reference(taken, False)
            value = yes if m.uniform or taken.uniform else f"SELECT({mask}, {yes}, v{m.id})"
            self.line(depth + 1, f"v{m.id} = {value};")
        self.line(depth, "}")

    def output(self, k: int, array: np.ndarray) -> None:
        """Write an output; columns of a buffer are copied by a loop."""
        entries = array.reshape(-1)
        for start, stop, step, first in _runs(entries):
            if stop - start > step:
                buffer, _, offset = first.args
                index = f"{offset} + k * {entries[start + step].args[2] - offset}"
                place = self.places[buffer]
                shared = "SHARED_" if buffer.uniform else ""
                load = f"GET_{shared}{buffer.kind}(temporary, {place} + {index})"
                load = f"V({load})" if buffer.uniform else load
                count = (stop - start) // step
                self.line(1, f"for (Z k = 0; k < {count}; ++k) WRITE(OUT{k}, {start} + k * {step}, {load});")
            else:
                self.line(1, f"WRITE(OUT{k}, {start}, {self.reference(first, False)});")


def _runs(entries: Any) -> list[tuple[int, int, int, Any]]:
    """Return (start, stop, step, first entry) of runs of buffer columns at constant strides."""
    columns: dict[Any, list[int]] = {}
    runs = []
    for k, x in enumerate(entries):
        if isinstance(x, Node) and x.op == "load" and x.args[0].label == "temporary" and x.args[1] is None:
            columns.setdefault(x.args[0], []).append(k)
        else:
            runs.append((k, k + 1, 1, x))
    for places in columns.values():
        runs.extend(_strided(entries, places))
    return runs


def _strided(entries: Any, places: list[int]) -> list[tuple[int, int, int, Any]]:
    """Return the runs of one buffer: places and offsets that advance by constant strides."""
    runs, at = [], 0
    while at < len(places):
        end = at + 1
        if end < len(places):
            step = places[end] - places[at]
            stride = entries[places[end]].args[2] - entries[places[at]].args[2]
            while end < len(places) and places[end] - places[end - 1] == step:
                if entries[places[end]].args[2] - entries[places[end - 1]].args[2] != stride:
                    break
                end += 1
        if end - at > 2:
            runs.append(
                (
                    places[at],
                    places[at] + (end - at) * (places[at + 1] - places[at]),
                    places[at + 1] - places[at],
                    entries[places[at]],
                )
            )
            at = end
        else:
            runs.append((places[at], places[at] + 1, 1, entries[places[at]]))
            at += 1
    return runs

"""Scalar graph of a program: nodes with value numbering, constant folding, and blocks for loops and branches.

Every array of a program becomes a NumPy array of objects. Each entry is a constant (a NumPy scalar) or a
`Node`, one scalar operation. Slices, transposes and concatenations rearrange entries and cost nothing. A node
is placed in the outermost block that has all of its arguments, so that quantities without a dependence on a
loop leave that loop. Equal operations on equal arguments are one node.

Folding assumes that a structural zero times any number is zero, also if that number is NaN or infinite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxdae.fused.folding import FOLD_BINARY, FOLD_UNARY, OF_BOOLEANS, SIMPLIFIED, cast


class Unsupported(Exception):
    """A program that cannot become a kernel; the message states the reason."""


class Block:
    """A list of nodes that run in order: the program, the body of a loop, or a branch.

    Attributes:
        parent: the enclosing block, None for the program.
        is_branch: whether the block runs under a condition, so that its nodes must not move out.
        nodes: its nodes, in order.
    """

    __slots__ = ("depth", "is_branch", "nodes", "parent", "seen")

    def __init__(self, parent: Block | None, is_branch: bool = False) -> None:
        self.parent = parent
        self.is_branch = is_branch
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.nodes: list[Node] = []
        self.seen: dict[Any, Node] = {}


class Node:
    """One scalar operation.

    Attributes:
        op: the name of the operation.
        args: nodes, constants, and for some operations other static data.
        kind: "F" for a floating-point number, "I" for an integer, "B" for a boolean.
        uniform: whether all worlds have the same value.
        block: where it runs.
        id: a unique number, which increases in the order of creation.
    """

    __slots__ = ("args", "block", "id", "kind", "op", "uniform")

    def __init__(
        self, op: str, args: tuple[Any, ...], kind: str, uniform: bool, block: Block, number: int
    ) -> None:
        self.op, self.args, self.kind, self.uniform, self.block, self.id = (
            op,
            args,
            kind,
            uniform,
            block,
            number,
        )


class Buffer:
    """Memory of the kernel: an argument, a table of constants, or one number per iteration of a loop.

    Attributes:
        label: "arg", "table" or "temporary".
        index: its number among the buffers with this label.
        size: the number of entries.
        kind: the kind of the entries.
        uniform: whether all worlds share the entries.
        block: the block in which loads of it may run.
        values: the constants of a table.
        outer: (buffer, iteration node) if an enclosing loop keeps the entries of all of its iterations: entry
            k of iteration t is entry t * size + k of that buffer.
    """

    __slots__ = ("block", "index", "kind", "label", "outer", "size", "uniform", "values")

    def __init__(
        self, label: str, index: int, size: int, kind: str, uniform: bool, block: Block, values: Any = None
    ) -> None:
        self.label, self.index, self.size, self.kind, self.uniform = label, index, size, kind, uniform
        self.block, self.values = block, values
        self.outer: tuple[Buffer, Node] | None = None


COMMUTATIVE = frozenset({"add", "mul", "max", "min", "and", "or", "eq", "ne"})
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


class Graph:
    """Builds the nodes of a program.

    Attributes:
        real: the floating-point type.
        root: the block of the program.
        block: the block in which new nodes are needed.
        buffers: all buffers, in the order of creation.
        limit: the largest number of nodes.
    """

    def __init__(self, real: Any, limit: int) -> None:
        self.real = np.dtype(real).type
        self.integer = np.int64 if np.dtype(real).itemsize == 8 else np.int32
        self.root = self.block = Block(None)
        self.buffers: list[Buffer] = []
        self.limit = limit
        self._count = 0

    # Nodes and their places.

    def node(
        self,
        op: str,
        args: tuple[Any, ...],
        kind: str,
        *,
        block: Block | None = None,
        uniform: bool | None = None,
    ) -> Node:
        """Return the node of a pure operation, new or known.

        Args:
            op: its name.
            args: nodes, constants and static data.
            kind: the kind of its value.
            block: a block outside of which it must not run.
            uniform: whether all worlds have the same value; by default if this holds for all arguments.
        """
        key = (op, kind, *[x if isinstance(x, Node) else _key(x) for x in args])
        place = self._place(args, block)
        at: Block | None = self.block
        while at is not None and at.depth >= place.depth:
            found = at.seen.get(key)
            if found is not None:
                return found
            at = at.parent
        target, at = place, self.block
        while at is not None and at.depth > place.depth:  # Not out of a branch.
            if at.is_branch:
                target = at
            at = at.parent
        if uniform is None:
            uniform = all(x.uniform for x in args if isinstance(x, Node))
        new = self.effect(op, args, kind, target, uniform)
        target.seen[key] = new
        return new

    def effect(
        self, op: str, args: tuple[Any, ...], kind: str, block: Block | None = None, uniform: bool = False
    ) -> Node:
        """Return a new node at the end of a block, by default the current one."""
        self._count += 1
        if self._count > self.limit:
            raise Unsupported(f"more than {self.limit} scalar operations")
        block = self.block if block is None else block
        new = Node(op, args, kind, uniform, block, self._count)
        block.nodes.append(new)
        return new

    def _place(self, args: tuple[Any, ...], block: Block | None) -> Block:
        place = self.root if block is None else block
        for x in args:
            if isinstance(x, Node) and x.block.depth > place.depth:
                place = x.block
        return place

    # Memory.

    def buffer(self, label: str, size: int, kind: str, uniform: bool, values: Any = None) -> Buffer:
        """Return new memory, whose loads may run in the current block and inside of it."""
        index = sum(b.label == label for b in self.buffers)
        block = self.root if label != "temporary" else self.block
        self.buffers.append(Buffer(label, index, size, kind, uniform, block, values))
        return self.buffers[-1]

    def load(self, buffer: Buffer, index: Any) -> Any:
        """Return entry `index` of a buffer, an integer constant or node."""
        base, offset = _split(index)
        if base is None and buffer.values is not None:
            return buffer.values[offset]
        uniform = buffer.uniform and (base is None or base.uniform)
        return self.node("load", (buffer, base, offset), buffer.kind, block=buffer.block, uniform=uniform)

    # Arithmetic with folding.

    def binary(self, op: str, a: Any, b: Any, kind: str) -> Any:
        """Return a (op) b, where `kind` is that of the arguments."""
        a_known, b_known = not isinstance(a, Node), not isinstance(b, Node)
        if kind == "B" and op in OF_BOOLEANS and not (a_known and b_known):
            return OF_BOOLEANS[op](self, a, b)
        if a_known and b_known:
            with np.errstate(all="ignore"):
                return FOLD_BINARY[op](a, b)
        rule = SIMPLIFIED.get(op)
        if rule is not None:
            found = rule(self, a, b, a_known, b_known, kind)
            if found is not None:
                return found
        elif op in COMPARISONS and a is b and kind != "F":
            return np.bool_(op in ("eq", "le", "ge"))
        if op in COMMUTATIVE and not b_known and (a_known or b.id < a.id):
            a, b = b, a
        return self.node(op, (a, b), "B" if op in COMPARISONS else kind)

    def negative(self, a: Any, kind: str) -> Any:
        """Return -a."""
        if not isinstance(a, Node):
            return -a
        if a.op == "neg":
            return a.args[0]
        if a.op == "sub":
            return self.binary("sub", a.args[1], a.args[0], kind)
        return self.node("neg", (a,), kind)

    def unary(self, op: str, a: Any, kind: str, result: str | None = None) -> Any:
        """Return (op) a, where `kind` is that of the argument and `result` that of the value."""
        if not isinstance(a, Node):
            with np.errstate(all="ignore"):
                return FOLD_UNARY[op](a)
        if op == "neg":
            return self.negative(a, kind)
        if op == "abs" and a.op in ("abs", "sqrt"):
            return a
        if op == "abs" and a.op == "neg":
            a = a.args[0]
        if op == "not" and a.op == "not":
            return a.args[0]
        return self.node(op, (a,), result or kind)

    def select(self, mask: Any, yes: Any, no: Any, kind: str) -> Any:
        """Return `yes` where the mask holds, else `no`."""
        if not isinstance(mask, Node):
            return yes if mask else no
        if yes is no or (not isinstance(yes, Node) and not isinstance(no, Node) and same_constant(yes, no)):
            return yes
        if kind == "B":
            if not isinstance(yes, Node):
                return (
                    self.binary("or", mask, no, "B")
                    if yes
                    else self.binary("and", self.unary("not", mask, "B"), no, "B")
                )
            if not isinstance(no, Node):
                return (
                    self.binary("or", self.unary("not", mask, "B"), yes, "B")
                    if no
                    else self.binary("and", mask, yes, "B")
                )
        return self.node("select", (mask, yes, no), kind)

    def convert(self, a: Any, source: str, kind: str, dtype: Any) -> Any:
        """Return a number of another kind."""
        if not isinstance(a, Node):
            return self.constant(cast(a, dtype))
        return a if source == kind else self.node(f"{source}to{kind}", (a,), kind)

    def constant(self, x: Any) -> Any:
        """Return a NumPy scalar in the type of the kernel."""
        kind = kind_of(np.asarray(x).dtype)
        return {"F": self.real, "I": self.integer, "B": np.bool_}[kind](x)

    def zero(self, kind: str) -> Any:
        """Return the constant 0, or False, of a kind."""
        return {"F": self.real(0), "I": self.integer(0), "B": np.bool_(False)}[kind]

    def constants(self, x: Any) -> np.ndarray:
        """Return an array of constants."""
        x = np.asarray(x)
        cast = x.astype({"F": self.real, "I": self.integer, "B": np.bool_}[kind_of(x.dtype)])
        out = np.empty(x.shape, object)
        out.reshape(-1)[:] = list(cast.reshape(-1))
        return out


def kind_of(dtype: Any) -> str:
    """Return the kind of a dtype.

    Raises:
        Unsupported: complex numbers and random keys.
    """
    kinds = {"f": "F", "i": "I", "u": "I", "b": "B"}
    if dtype.kind not in kinds:
        raise Unsupported(f"numbers of type {dtype}")
    return kinds[dtype.kind]


def filled(shape: Any, value: Any) -> np.ndarray:
    """Return an array of one constant; `np.full` would make a Python number of it."""
    out = np.empty(shape, object)
    out.fill(value)
    return out


def same_constant(a: Any, b: Any) -> bool:
    """Return whether two constants are equal; NaN equals NaN."""
    return bool(a == b) or bool(a != a and b != b)


def affine(entries: Any) -> tuple[int, int] | None:
    """Return (first, stride) if integer constants are first + stride * k, else None."""
    if any(isinstance(x, Node) for x in entries):
        return None
    first = int(entries[0])
    stride = int(entries[1]) - first if len(entries) > 1 else 0
    return (first, stride) if all(int(x) == first + stride * k for k, x in enumerate(entries)) else None


def _key(x: Any) -> Any:
    if isinstance(x, np.generic):
        return (type(x), x.tobytes())
    return x


def _split(index: Any) -> tuple[Node | None, int]:
    """Return (node, constant) whose sum is an index."""
    if not isinstance(index, Node):
        return None, int(index)
    if index.op == "add" and not isinstance(index.args[1], Node):
        return index.args[0], int(index.args[1])
    return index, 0

"""Count the kernels of a compiled program: the sequence of kernel launches in each step of a loop.

Read from the optimized program (HLO) of XLA, whose top-level operations are launched one by one: fused loops,
calls of libraries, products, copies, sorts. Names, tuples and views cost nothing and do not count. A loop
inside of a step counts as often as it runs, where that is known. The bytes of a kernel include its results
and its operands. If it only slices an operand, the bytes of the slices count.
"""

import math
import re
from collections.abc import Callable
from typing import TypeAlias

_FREE = {
    "parameter",
    "constant",
    "get-tuple-element",
    "tuple",
    "bitcast",
    "after-all",
    "opt-barrier",
    "partition-id",
    "add-dependency",
}
_HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_ARRAY = re.compile(r"\b(pred|[fsu]\d+)\[([\d,]*)\]")
Computation: TypeAlias = dict[str, str]
"""Instructions by the names of their results."""


def computations(text: str) -> dict[str, Computation]:
    """Return the computations of a program by name."""
    found: dict[str, Computation] = {}
    inside: Computation = {}
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            inside = found.setdefault(head[1], {})
        elif line.startswith("}"):
            inside = {}
        else:
            instruction = _INSTRUCTION.match(line)
            if instruction:
                inside[instruction[1]] = instruction[2]
    return found


def _parts(instruction: str) -> tuple[str, str, str]:
    """Return the type of an instruction (possibly a tuple), the name of its operation, and its operands."""
    kind = _closed(instruction) if instruction.startswith("(") else instruction.partition(" ")[0]
    operation, _, rest = instruction[len(kind) :].strip().partition("(")
    return kind, operation.strip(), _closed("(" + rest)


def _closed(text: str) -> str:
    """Return a text that begins with a parenthesis up to the one that closes it."""
    depth = 0
    for index, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return text[: index + 1]
    return text


def _operation(instruction: str) -> str:
    return _parts(instruction)[1]


def _called(instruction: str, key: str) -> str | None:
    found = re.search(rf"\b{key}=%?([\w.\-]+)", instruction)
    return found[1] if found else None


def _bytes(kind: str) -> int:
    """Return the bytes of all arrays in a type."""
    sizes = ((1 if name == "pred" else int(name[1:]) // 8, shape) for name, shape in _ARRAY.findall(kind))
    return sum(size * math.prod(int(n) for n in shape.split(",") if n) for size, shape in sizes)


def _read(inside: Computation, name: str) -> int:
    """Return the bytes of a value that its readers in a fused computation need."""
    whole, total = _bytes(_parts(inside[name])[0]), 0
    for reader, instruction in inside.items():
        kind, operation, operands = _parts(instruction)
        if name not in re.findall(r"%([\w.\-]+)", operands):
            continue
        views = operation in ("bitcast", "reshape", "copy")
        total += (
            _read(inside, reader)
            if views
            else _bytes(kind)
            if operation in ("slice", "dynamic-slice")
            else whole
        )
    return min(total, whole)


def _moved(parts: dict[str, Computation], inside: Computation, name: str) -> int:
    """Return the bytes that a kernel reads and writes."""
    kind, operation, operands = _parts(inside[name])
    reads = [_bytes(_parts(inside[one])[0]) for one in re.findall(r"%([\w.\-]+)", operands)]
    if operation == "fusion":
        fused = parts[_called(inside[name], "calls") or ""]
        numbers = {
            one: re.match(r"\((\d+)\)", _parts(text)[2])
            for one, text in fused.items()
            if _operation(text) == "parameter"
        }
        needed = {int(number[1]): _read(fused, one) for one, number in numbers.items() if number}
        reads = [min(whole, needed[k]) for k, whole in enumerate(reads)]
    return _bytes(kind) + sum(reads)


def _total(parts: dict[str, Computation], name: str, cost: Callable[[Computation, str], int]) -> int:
    """Return the sum of a cost over the kernels of a computation, loops in it as often as they run."""
    total, inside = 0, parts.get(name, {})
    for result, instruction in inside.items():
        operation = _operation(instruction)
        if operation == "while":
            trips = _TRIPS.search(instruction)
            total += (int(trips[1]) if trips else 1) * _total(parts, _called(instruction, "body") or "", cost)
        elif operation == "call":
            total += _total(parts, _called(instruction, "to_apply") or "", cost)
        elif operation == "conditional":
            branches = re.search(r"branch_computations=\{([^}]*)\}", instruction)
            names = re.findall(r"%?([\w.\-]+)", branches[1]) if branches else []
            names += [
                one for key in ("true_computation", "false_computation") if (one := _called(instruction, key))
            ]
            total += max((_total(parts, one, cost) for one in names), default=0)
        elif operation not in _FREE:
            total += cost(inside, result)
    return total


def _of_steps(
    parts: dict[str, Computation], steps: int, cost: Callable[[Computation, str], int]
) -> int | None:
    """Return the sum of a cost over all loops that run `steps` times, forward and backward.

    None without such a loop.
    """
    loops = [
        _called(instruction, "body") or ""
        for inside in parts.values()
        for instruction in inside.values()
        if _operation(instruction) == "while"
        and (trips := _TRIPS.search(instruction))
        and int(trips[1]) == steps
    ]
    return sum(_total(parts, body, cost) for body in loops) if loops else None


def per_step(text: str, steps: int) -> int | None:
    """Return the number of kernels of one step, or None without a loop over time.

    Args:
        text: of the optimized program, `compiled.as_text()`.
        steps: how often the loop over time runs; a number that no other loop has.
    """
    return _of_steps(computations(text), steps, lambda inside, name: 1)


def bytes_per_step(text: str, steps: int) -> int | None:
    """Return the bytes that the kernels of one step read and write, or None without a loop over time.

    Arguments as for `per_step`.

    Updates of slices count as if they wrote the whole array: use it for rollouts that save their last state
    only.
    """
    parts = computations(text)
    return _of_steps(parts, steps, lambda inside, name: _moved(parts, inside, name))

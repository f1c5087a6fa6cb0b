"""Counts the kernels of a compiled program: what a device is asked to begin, one after the other, in each step of a loop.

Read from the optimized program (HLO) of XLA, whose top-level operations are launched one by one: fused loops, calls of libraries,
products, copies, sorts. Names, tuples and views cost nothing and do not count. A loop inside of a step counts as often as it runs, where
that is known.
"""

import re

_FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "opt-barrier", "partition-id", "add-dependency"}
_HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (.*)$")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


def computations(text: str) -> dict[str, list[str]]:
    """Returns the instructions of each computation of a program, without the names of their results."""
    found: dict[str, list[str]] = {}
    inside: list[str] = []
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            inside = found.setdefault(head[1], [])
        elif line.startswith("}"):
            inside = []
        else:
            instruction = _INSTRUCTION.match(line)
            if instruction:
                inside.append(instruction[1])
    return found


def _operation(instruction: str) -> str:
    """Returns the name of an operation: the word before the first parenthesis behind the type, which may be a tuple."""
    rest, depth = instruction, 0
    if rest.startswith("("):
        for index, letter in enumerate(rest):
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if depth == 0:
                rest = rest[index + 1 :]
                break
    else:
        rest = rest.partition(" ")[2]
    return rest.strip().partition("(")[0].strip()


def _called(instruction: str, key: str) -> str | None:
    found = re.search(rf"\b{key}=%?([\w.\-]+)", instruction)
    return found[1] if found else None


def count(parts: dict[str, list[str]], name: str) -> int:
    """Returns the number of kernels of a computation, loops in it as often as they run."""
    total = 0
    for instruction in parts.get(name, ()):
        operation = _operation(instruction)
        if operation == "while":
            trips = _TRIPS.search(instruction)
            total += (int(trips[1]) if trips else 1) * count(parts, _called(instruction, "body") or "")
        elif operation == "call":
            total += count(parts, _called(instruction, "to_apply") or "")
        elif operation == "conditional":
            branches = re.search(r"branch_computations=\{([^}]*)\}", instruction)
            names = re.findall(r"%?([\w.\-]+)", branches[1]) if branches else []
            names += [one for key in ("true_computation", "false_computation") if (one := _called(instruction, key))]
            total += max((count(parts, one) for one in names), default=0)
        elif operation not in _FREE:
            total += 1
    return total


def per_step(text: str, steps: int) -> int | None:
    """Returns the kernels of one step: those of all loops that run `steps` times, forward and backward; None where there is no such loop.

    Args:
        text: of the optimized program, `compiled.as_text()`.
        steps: how often the loop over time runs; a number that no other loop has.
    """
    parts = computations(text)
    loops = [
        _called(instruction, "body") or ""
        for instructions in parts.values()
        for instruction in instructions
        if _operation(instruction) == "while" and (trips := _TRIPS.search(instruction)) and int(trips[1]) == steps
    ]
    return sum(count(parts, body) for body in loops) if loops else None

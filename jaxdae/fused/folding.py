"""Simplification of operations: with constants, negative numbers and equal arguments.

A rule (graph, a, b, whether a and b are constants, kind) returns the simplified value, or None. Both
arguments are not constant at once; operations on two constants are folded in the precision of the kernel.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxdae.fused.graph import Graph


def _add(g: Graph, a: Any, b: Any, a_known: bool, b_known: bool, kind: str) -> Any:
    if a_known and a == 0:
        return b
    if b_known and b == 0:
        return a
    if not b_known and b.op == "neg":
        return g.binary("sub", a, b.args[0], kind)
    if not a_known and a.op == "neg":
        return g.binary("sub", b, a.args[0], kind)
    if kind == "I":  # (x + c) + d, so that indices are a node and a constant
        for x, y, constant in ((a, b, b_known), (b, a, a_known)):
            if constant and x.op == "add" and isinstance(x.args[1], np.generic):
                return g.binary("add", x.args[0], x.args[1] + y, kind)
    return None


def _sub(g: Graph, a: Any, b: Any, a_known: bool, b_known: bool, kind: str) -> Any:
    if b_known and b == 0:
        return a
    if a_known and a == 0:
        return g.negative(b, kind)
    if kind == "I" and b_known:
        return g.binary("add", a, -b, kind)
    if not b_known and b.op == "neg":
        return g.binary("add", a, b.args[0], kind)
    return None


def _mul(g: Graph, a: Any, b: Any, a_known: bool, b_known: bool, kind: str) -> Any:
    for x, y, known in ((a, b, a_known), (b, a, b_known)):
        if known:
            if x == 0:
                return x
            if x == 1:
                return y
            if x == -1:
                return g.negative(y, kind)
    if not a_known and a.op == "neg":
        return g.negative(g.binary("mul", a.args[0], b, kind), kind)
    if not b_known and b.op == "neg":
        return g.negative(g.binary("mul", a, b.args[0], kind), kind)
    return None


def _div(g: Graph, a: Any, b: Any, a_known: bool, b_known: bool, kind: str) -> Any:
    if b_known and b == 1:
        return a
    if a_known and a == 0 and kind == "F":
        return a
    if (
        b_known
        and kind == "F"
        and math.isfinite(1.0 / b if b else math.inf)
        and math.frexp(float(b))[0] in (0.5, -0.5)
    ):
        return g.binary("mul", a, type(b)(1) / b, kind)
    return None


def _logic(op: str) -> Any:
    neutral = op == "and"

    def rule(g: Graph, a: Any, b: Any, a_known: bool, b_known: bool, kind: str) -> Any:
        if kind != "B":
            return None
        for x, y, known in ((a, b, a_known), (b, a, b_known)):
            if known:
                return y if bool(x) == neutral else np.bool_(not neutral)
        return a if a is b else None

    return rule


def _extreme(op: str) -> Any:
    neutral = -np.inf if op == "max" else np.inf

    def rule(g: Graph, a: Any, b: Any, a_known: bool, b_known: bool, kind: str) -> Any:
        if a is b:
            return a
        for x, y, known in ((a, b, a_known), (b, a, b_known)):
            if (
                known
                and kind == "F"
                and (x == neutral or (op == "max" and x <= 0 and y.op in ("abs", "sqrt")))
            ):
                return y
        return None

    return rule


SIMPLIFIED: dict[str, Any] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "and": _logic("and"),
    "or": _logic("or"),
    "max": _extreme("max"),
    "min": _extreme("min"),
}


# True is stored as -1, so that order relations of booleans are logic.
OF_BOOLEANS: dict[str, Any] = {
    "max": lambda g, a, b: g.binary("or", a, b, "B"),
    "min": lambda g, a, b: g.binary("and", a, b, "B"),
    "gt": lambda g, a, b: g.binary("and", a, g.unary("not", b, "B"), "B"),
    "lt": lambda g, a, b: g.binary("and", g.unary("not", a, "B"), b, "B"),
    "ge": lambda g, a, b: g.binary("or", a, g.unary("not", b, "B"), "B"),
    "le": lambda g, a, b: g.binary("or", g.unary("not", a, "B"), b, "B"),
}


def _divided(a: Any, b: Any) -> Any:
    if isinstance(a, np.floating):
        return a / b
    if b == 0:
        return type(a)(-1)
    return (
        type(a)(0) - a if b == -1 else type(a)(abs(int(a)) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1))
    )


def _remainder(a: Any, b: Any) -> Any:
    return np.fmod(a, b) if isinstance(a, np.floating) else a if b == 0 else a - _divided(a, b) * b


def cast(x: Any, dtype: Any) -> Any:
    """Return a constant of another type.

    From a number to an integer as XLA does, which saturates and takes NaN to 0.
    """
    if isinstance(x, np.floating) and np.dtype(dtype).kind == "i":
        limits = np.iinfo(dtype)
        return np.asarray(
            0
            if np.isnan(x)
            else limits.min
            if x <= limits.min
            else limits.max
            if x >= limits.max
            else int(x),
            dtype,
        )
    return np.asarray(x).astype(dtype)


FOLD_BINARY: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _divided,
    "rem": _remainder,
    "pow": lambda a, b: a**b,
    "max": np.maximum,
    "min": np.minimum,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "atan2": np.arctan2,
    "eq": lambda a, b: np.bool_(a == b),
    "ne": lambda a, b: np.bool_(a != b),
    "lt": lambda a, b: np.bool_(a < b),
    "le": lambda a, b: np.bool_(a <= b),
    "gt": lambda a, b: np.bool_(a > b),
    "ge": lambda a, b: np.bool_(a >= b),
}
FOLD_UNARY: dict[str, Any] = {
    "neg": lambda a: -a,
    "not": lambda a: np.bool_(not a) if isinstance(a, np.bool_) else ~a,
    "abs": np.abs,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: type(a)(1) / np.sqrt(a),
    "cbrt": np.cbrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "rint": np.rint,
    "trunc": np.trunc,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "erf": lambda a: type(a)(math.erf(float(a))),
    "isfinite": lambda a: np.bool_(np.isfinite(a)),
}

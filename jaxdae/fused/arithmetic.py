"""Rules for arithmetic: elementwise operations, reductions and products of arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxdae.fused.graph import Graph, Node, Unsupported, kind_of

if TYPE_CHECKING:
    from jaxdae.fused.lower import Lowering

Array = np.ndarray
Rule = Callable[["Lowering", Any, list[Array]], list[Array]]


def kind_of_variable(variable: Any) -> str:
    """Return the kind of a variable of a jaxpr."""
    return kind_of(variable.aval.dtype)


def is_known(x: Array) -> bool:
    """Return whether all entries are constants."""
    return not any(isinstance(y, Node) for y in x.reshape(-1))


def known_values(x: Array, variable: Any) -> np.ndarray:
    """Return an array of constants with the dtype of its variable."""
    return np.asarray(x.tolist(), variable.aval.dtype).reshape(variable.aval.shape)


# Elementwise operations.


def _binary(op: str) -> Rule:
    def rule(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
        kind = kind_of_variable(equation.invars[0])
        return [low.elementwise(lambda a, b: low.graph.binary(op, a, b, kind), *inputs)]

    return rule


def _unary(op: str, result: str | None = None) -> Rule:
    def rule(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
        kind = kind_of_variable(equation.invars[0])
        if op == "abs" and equation.invars[0].aval.dtype.kind == "u":
            return inputs
        return [low.elementwise(lambda a: low.graph.unary(op, a, kind, result), inputs[0])]

    return rule


def less(g: Graph, op: str, a: Any, b: Any, kind: str) -> Any:
    """Return a < b or a <= b in an order in which NaN is the largest number."""
    found = g.binary(op, a, b, kind)
    if kind != "F":
        return found
    last = g.binary("ne", b, b, kind)
    return g.binary(
        "or", found, last if op == "le" else g.binary("and", last, g.binary("eq", a, a, kind), "B"), "B"
    )


def _total_order(op: str) -> Rule:
    def rule(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
        return [
            low.elementwise(
                lambda a, b: less(low.graph, op, a, b, kind_of_variable(equation.invars[0])), *inputs
            )
        ]

    return rule


def _pow(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    g, (base, exponent) = low.graph, equation.invars
    if kind_of_variable(base) != "F":
        raise Unsupported("powers of integers with traced exponents")
    exponents = low.elementwise(lambda n: g.convert(n, kind_of_variable(exponent), "F", g.real), inputs[1])
    return [low.elementwise(lambda x, n: g.binary("pow", x, n, "F"), inputs[0], exponents)]


def _integer_pow(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    g, kind, exponent = low.graph, kind_of_variable(equation.invars[0]), equation.params["y"]

    def power(x: Any, n: int) -> Any:
        if n < 0:
            return g.binary(
                "div", g.constant(np.asarray(1, equation.invars[0].aval.dtype)), power(x, -n), kind
            )
        if n <= 1:
            return x if n else g.constant(np.asarray(1, equation.invars[0].aval.dtype))
        half = power(x, n // 2)
        square = g.binary("mul", half, half, kind)
        return g.binary("mul", square, x, kind) if n % 2 else square

    return [low.elementwise(lambda x: power(x, exponent), inputs[0])]


def _square(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    return [
        low.elementwise(
            lambda x: low.graph.binary("mul", x, x, kind_of_variable(equation.invars[0])), inputs[0]
        )
    ]


def _select_n(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    g, kind, (which, *cases) = low.graph, kind_of_variable(equation.outvars[0]), inputs
    if kind_of_variable(equation.invars[0]) == "B":
        no, yes = cases
        return [low.elementwise(lambda m, a, b: g.select(m, a, b, kind), which, yes, no)]
    found = cases[-1]
    for k in reversed(range(len(cases) - 1)):
        mask = low.elementwise(lambda i, k=k: g.binary("eq", i, g.integer(k), "I"), which)
        found = low.elementwise(lambda m, a, b: g.select(m, a, b, kind), mask, cases[k], found)
    return [found]


def _clamp(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    g, kind, (least, x, most) = low.graph, kind_of_variable(equation.invars[1]), inputs
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
            found = g.binary(
                "min", g.binary("max", found, g.integer(limits.min), "I"), g.integer(limits.max), "I"
            )
        return found

    return [low.elementwise(converted, inputs[0])]


def _sign(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    g, kind = low.graph, kind_of_variable(equation.invars[0])
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
        up = g.select(
            g.binary("ge", rest, g.real(0.5), "F"), g.binary("add", down, g.real(1), "F"), down, "F"
        )
        return g.select(g.binary("lt", x, g.real(0), "F"), g.negative(up, "F"), up, "F")

    return [low.elementwise(away, inputs[0])]


# Sums and products.


def _reduction(op: str, empty: Any) -> Rule:
    def rule(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
        (x,), axes, kind, g = (
            inputs,
            equation.params["axes"],
            kind_of_variable(equation.outvars[0]),
            low.graph,
        )
        kept = [k for k in range(x.ndim) if k not in axes]
        rows = np.transpose(x, [*kept, *axes]).reshape(*[x.shape[k] for k in kept], -1 if x.size else 0)
        start = g.constant(np.asarray(empty(equation.outvars[0].aval.dtype), equation.outvars[0].aval.dtype))
        out = np.empty(rows.shape[:-1], object)
        flat = rows.reshape(-1, rows.shape[-1]) if rows.size else [()] * out.size
        out.reshape(-1)[:] = [
            reduce(lambda a, b: g.binary(op, a, b, kind), row) if len(row) else start for row in flat
        ]
        return [out]

    return rule


def _argument(op: str) -> Rule:
    def rule(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
        g, kind, (axis,) = low.graph, kind_of_variable(equation.invars[0]), equation.params["axes"]
        rows = np.moveaxis(inputs[0], axis, -1)
        out = np.empty(rows.shape[:-1], object)

        def place(row: Any) -> Any:
            best, at = row[0], g.integer(0)
            for k in range(1, len(row)):
                better = g.binary(op, row[k], best, kind)
                if kind == "F":  # The first NaN counts as the extreme.
                    new = g.binary(
                        "and", g.binary("ne", row[k], row[k], kind), g.binary("eq", best, best, kind), "B"
                    )
                    better = g.binary("or", better, new, "B")
                best, at = g.select(better, row[k], best, kind), g.select(better, g.integer(k), at, "I")
            return at

        out.reshape(-1)[:] = [place(row) for row in rows.reshape(-1, rows.shape[-1])]
        return [out]

    return rule


def _cumulative(op: str) -> Rule:
    def rule(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
        g, kind, axis = low.graph, kind_of_variable(equation.invars[0]), equation.params["axis"]
        rows = np.moveaxis(inputs[0], axis, 0).copy()
        order = range(len(rows)) if not equation.params["reverse"] else reversed(range(len(rows)))
        last = None
        for k in order:
            if last is not None:
                rows[k, ...] = low.elementwise(
                    lambda a, b: g.binary(op, a, b, kind), np.asarray(rows[last]), np.asarray(rows[k])
                )
            last = k
        return [np.moveaxis(rows, 0, axis)]

    return rule


def _dot_general(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    a, b = inputs
    left = [k for k in range(a.ndim) if k not in left_sum and k not in left_batch]
    right = [k for k in range(b.ndim) if k not in right_sum and k not in right_batch]
    batch, terms = math.prod(a.shape[k] for k in left_batch), math.prod(a.shape[k] for k in left_sum)
    rows = np.transpose(a, [*left_batch, *left, *left_sum]).reshape(
        batch, -1 if terms and batch else 0, terms
    )
    columns = np.transpose(b, [*right_batch, *right, *right_sum]).reshape(
        batch, -1 if terms and batch else 0, terms
    )
    g, kind, shape = low.graph, kind_of_variable(equation.outvars[0]), equation.outvars[0].aval.shape
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
    "neg abs sqrt rsqrt cbrt floor ceil sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp "
    "exp2 expm1 log log1p erf not"
).split()
ARITHMETIC: dict[str, Rule] = {
    **{op: _binary(op) for op in _BINARY},
    **{op: _unary(op) for op in _UNARY},
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
}

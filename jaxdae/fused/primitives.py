"""Rules that lower the primitives of step programs: one small function per primitive.

A rule takes the lowering, an equation of a jaxpr and its inputs as arrays of constants and nodes. It returns
the outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.fused import factorizations
from jaxdae.fused.arithmetic import ARITHMETIC, Array, Rule
from jaxdae.fused.graph import Unsupported
from jaxdae.fused.indexing import INDEXING

if TYPE_CHECKING:
    from jaxdae.fused.lower import Lowering


def _call(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    p = equation.params
    jaxpr = next(p[name] for name in ("jaxpr", "call_jaxpr", "call", "fun_jaxpr") if name in p)
    return low.closed(jaxpr, inputs) if hasattr(jaxpr, "jaxpr") else low.run(jaxpr, (), inputs)


def _fused(low: Lowering, equation: Any, inputs: list[Array]) -> list[Array]:
    if any(equation.params["batched"]):
        raise Unsupported("a batch of worlds inside a world")
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


# ruff: noqa: SIM905
_CALLS = (
    "jit pjit closed_call core_call custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr custom_vmap_call "
    "remat2 checkpoint remat"
    " custom_lin"
).split()

RULES: dict[str, Rule] = {
    **ARITHMETIC,
    **INDEXING,
    **dict.fromkeys(_CALLS, _call),
    **dict.fromkeys(
        "stop_gradient name copy copy_p optimization_barrier pvary pcast reduce_precision".split(), _same
    ),
    "fused": _fused,
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

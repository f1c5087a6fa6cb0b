"""What reverse mode keeps of every step, and what it computes a second time.

A rollout keeps the state at which each step began, and makes the step once more when the derivative comes by. What is expensive in a step
has a name (`jax.ad_checkpoint.checkpoint_name`), so that it can be kept beside the state.
"""

from __future__ import annotations

import enum
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

ROOT = "newton_root"
"""The name of what Newton's iterations found."""
FACTOR = "factor"
"""The name of factorized matrices."""
SOLUTION = "saddle_point_solution"
"""The name of the accelerations and multipliers that solve a saddle-point system."""


class Keep(enum.Enum):
    """What reverse mode keeps of a step; more of it is faster and takes more memory, see `docs/checkpointing.md`.

    To keep every intermediate result is no choice: it takes three times the memory of `FACTORS` and was never seen to be faster.
    """

    STATES = "states"
    """The state, the integrator's memory and the roots of Newton's iterations: least memory, and no iteration runs twice."""
    FACTORS = "factors"
    """Those, and the factors and solutions of all saddle-point systems: nothing is factorized or solved twice."""

    def applied(self, step: Any) -> Any:
        """Returns a function whose derivative in reverse mode keeps no more than this."""
        return jax.checkpoint(step, policy=_named_only(*((ROOT,) if self is Keep.STATES else (ROOT, FACTOR, SOLUTION))))


def _named_only(*names: str) -> Any:
    """Returns the policy that keeps what has one of these names, and nothing else.

    It is JAX's own, asked about the name alone: parameters of other primitives may be called like its arguments, as those are of a loop of
    Equinox in a batch (`prim`).
    """
    known = jax.checkpoint_policies.save_only_these_names(*names)

    def policy(primitive: Any, /, *values: Any, **parameters: Any) -> Any:
        return known(primitive, *values, **{key: x for key, x in parameters.items() if key == "name"})

    return policy


def named(value: Any, name: str) -> Any:
    """Returns the value, under a name that policies of `jax.checkpoint` know."""
    return checkpoint_name(value, name)


def made_again(function: Any, static_argnums: int | tuple[int, ...] = ()) -> Any:
    """Returns a function of pytrees of arrays whose reverse mode keeps its arguments alone, and computes the rest a second time.

    For functions that loops of a user's own call: what a loop keeps of every step costs more to store and to read than numbers of small
    systems cost to compute. In a loop forward and backward pass are programs apart. Where both are one, the compiler may see that it
    computes the same twice, and keep it.

    Args:
        function: takes pytrees of arrays, and what is static.
        static_argnums: the places of arguments that are static, as of `jax.jit`.
    """
    return jax.checkpoint(function, prevent_cse=False, static_argnums=static_argnums)

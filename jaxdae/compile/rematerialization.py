"""Gradient checkpoints: the values of a step that reverse mode saves, and the values that it recomputes.

A rollout saves the state at the start of each step and recomputes the step in the backward pass. Expensive
values of a step have a name (`jax.ad_checkpoint.checkpoint_name`), so that they can be saved with the state.
"""

from __future__ import annotations

import enum
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

ROOT = "newton_root"
"""The name of the roots that Newton iterations found."""
FACTOR = "factor"
"""The name of factorized matrices."""
SOLUTION = "saddle_point_solution"
"""The name of the accelerations and multipliers that solve a saddle-point system."""


class Keep(enum.Enum):
    """Values of a step that reverse mode saves.

    Saving more values is faster and takes more memory, see `docs/checkpointing.md`. Saving every intermediate
    result is not an option: it takes three times the memory of `FACTORS` and was never faster in
    measurements.
    """

    STATES = "states"
    """Save the state, the integrator's memory and the roots of Newton iterations. This takes the least
    memory, and no iteration runs twice."""
    FACTORS = "factors"
    """Also save the factors and solutions of all saddle-point systems. Nothing is factorized or solved
    twice."""

    def applied(self, step: Any) -> Any:
        """Return the function with a reverse mode that saves only these values."""
        return jax.checkpoint(
            step, policy=_named_only(*((ROOT,) if self is Keep.STATES else (ROOT, FACTOR, SOLUTION)))
        )


def _named_only(*names: str) -> Any:
    """Return the policy that saves only values with one of these names.

    The policy passes only the name to JAX's own policy. Parameters of other primitives may clash with the
    arguments of JAX's policy, such as the parameter `prim` of Equinox loops in a batch.
    """
    known = jax.checkpoint_policies.save_only_these_names(*names)

    def policy(primitive: Any, /, *values: Any, **parameters: Any) -> Any:
        return known(primitive, *values, **{key: x for key, x in parameters.items() if key == "name"})

    return policy


def named(value: Any, name: str) -> Any:
    """Give the value a name that policies of `jax.checkpoint` refer to."""
    return checkpoint_name(value, name)


def made_again(function: Any, static_argnums: int | tuple[int, ...] = ()) -> Any:
    """Apply `jax.checkpoint` to a function of pytrees of arrays, and save only the arguments.

    Use it for functions that a user calls in a loop. For small systems, storing and reading saved values of
    every step costs more than recomputing them. In a loop, the forward and backward passes are separate
    programs. If both are in one program, the compiler may recognize the common subexpressions and store them
    instead.

    Args:
        function: takes pytrees of arrays and static arguments.
        static_argnums: the positions of the static arguments, as in `jax.jit`.
    """
    return jax.checkpoint(function, prevent_cse=False, static_argnums=static_argnums)

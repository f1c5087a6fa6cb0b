"""What users hand over to rollouts, looked at on the host before anything is compiled: feedback laws, and the stacked states of a batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.functions import checked_function, is_plain
from jaxdae.requirements import came, check_requirements
from jaxdae.system import State, checked_state


def state_axes_of(state: Any, axes: Any) -> Any:
    """Returns the axes of the worlds in the states; one number serves stacked q and v with a `t` that is a single number.

    Raises:
        TypeError: no `State`.
        ValueError: q or v that are not stacked along the axis that is named, or are stacked where none is.
    """
    if not isinstance(state, State):
        checked_state(state)
    if axes == 0 and jnp.ndim(state.t) == 0:
        axes = State(t=None, q=0, v=0)
    for name, length in (("q", "nq"), ("v", "nv")):
        axis, shape = getattr(axes, name, axes), jnp.shape(getattr(state, name))
        if axis is None and len(shape) != 1:
            raise ValueError(f"batch_rollout: state.{name} has shape {shape}, but in_axes says that all worlds share it, ({length},)")
        if isinstance(axis, int) and len(shape) != 2:
            raise ValueError(
                f"batch_rollout: state.{name} must have a leading world axis, shape (worlds, {length}), got {shape}; equal starts are"
                f" jnp.tile(state.{name}, (worlds, 1)), or in_axes=(..., None, ...) for the state where other arguments are stacked"
            )
    return axes


def checked_law(controls: Any) -> Any:
    """Returns the controls, of a bound method of a pytree the pytree that stands for it.

    Raises:
        TypeError: a class, or an object with `__call__` of a class that is no pytree.
    """
    if isinstance(controls, type):
        raise TypeError(f"controls must be an array (steps, nu), a feedback law with __call__(t, state), or None; got {came(controls)}")
    return checked_function(controls, "controls")


def as_law(controls: Any, state: State) -> Any:
    """Returns controls as a pytree whose numbers have a meaning; a plain function as structure, with what it captured of a differentiation.

    Raises:
        TypeError: a class, or an object with `__call__` of a class that is no pytree.
        ValueError: requirements that are not met, see `jaxdae.requirements`.
    """
    function = checked_law(controls)
    if not is_plain(function):
        check_requirements("controls", function)
        return function
    converted, captured = jax.closure_convert(function, state.t, state)
    if not captured:
        return jax.tree_util.Partial(function)
    return jax.tree_util.Partial(lambda constants, t, at: converted(t, at, *constants), captured)

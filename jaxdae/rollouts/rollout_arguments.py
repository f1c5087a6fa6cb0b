"""Host-side checks of the arguments of rollouts before compilation."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.base.callables import checked_function, is_plain
from jaxdae.base.requirements import came, check_arrays, check_real, check_requirements, checked_count
from jaxdae.base.suggestions import brief
from jaxdae.compile.rematerialization import Keep
from jaxdae.integrators.integrator import check_integrator
from jaxdae.integrators.method import check_resolves
from jaxdae.systems.system import State, check_system, checked_state, default_tolerance


def checked_start(system: Any, integrator: Any, state: Any, tolerance: Any) -> tuple[State, Any]:
    """Return the start as arrays, and its tolerance, after a check of system, method and start.

    Args:
        system: the system.
        integrator: the method.
        state: the start.
        tolerance: the largest accepted violation of the constraints at the start; None for the default.

    Raises:
        TypeError: a wrong type, including leaves of the system and of the method.
        ValueError: unmet requirements, see `jaxdae.base.requirements`; contacts that the method ignores; a
            state with a wrong number of axes; a negative tolerance.
    """
    check_system(system)
    state = checked_state(state)
    check_integrator(integrator)
    check_arrays("system", system)
    check_arrays("integrator", integrator)
    check_resolves(system, integrator)
    return state, checked_tolerance(tolerance, state.q.dtype)


def state_axes_of(state: Any, axes: Any) -> Any:
    """Return the batch axes of the states. The axis 0 also accepts stacked q and v with a scalar `t`.

    Raises:
        TypeError: not a `State`.
        ValueError: q or v that are not stacked along the given axis, or are stacked without one.
    """
    if not isinstance(state, State):
        checked_state(state)
    if axes == 0 and jnp.ndim(state.t) == 0:
        axes = State(t=None, q=0, v=0)
    for name, length in (("q", "nq"), ("v", "nv")):
        axis, shape = getattr(axes, name, axes), jnp.shape(getattr(state, name))
        if axis is None and len(shape) != 1:
            raise ValueError(
                f"batch_rollout: state.{name} has shape {shape}, but in_axes declares it shared by all "
                f"worlds, with shape ({length},)"
            )
        if isinstance(axis, int) and len(shape) != 2:
            raise ValueError(
                f"batch_rollout: state.{name} must have a leading world axis, shape (worlds, {length}), got "
                f"{shape}; for equal starts, use jnp.tile(state.{name}, (worlds, 1)), or None for the "
                "state in in_axes if other arguments are stacked"
            )
    return axes


def checked_controls(controls: Any) -> Any:
    """Return the controls; a bound method of a pytree is converted to a pytree.

    Raises:
        TypeError: a class, an object with `__call__` whose class is not a pytree, or Booleans or complex
            numbers.
    """
    if isinstance(controls, type):
        raise TypeError(
            "controls must be an array (steps, nu), a feedback law with __call__(t, state), or None; got "
            f"{came(controls)}"
        )
    check_real("controls", controls)
    return checked_function(controls, "controls")


def as_controls(controls: Any, state: State) -> Any:
    """Return controls as a pytree with valid numbers.

    A plain function becomes part of the tree structure. Traced values that it captures become leaves, so that
    they are differentiated.

    Raises:
        TypeError: a class, or an object with `__call__` whose class is not a pytree.
        ValueError: unmet requirements, see `jaxdae.base.requirements`.
    """
    function = checked_controls(controls)
    if not is_plain(function):
        check_requirements("controls", function)
        return function
    converted, captured = jax.closure_convert(function, state.t, state)
    if not captured:
        return jax.tree_util.Partial(function)
    return jax.tree_util.Partial(lambda constants, t, at: converted(t, at, *constants), captured)


# The plan of a rollout contains only counts, so that it can be static.


@dataclasses.dataclass(frozen=True)
class Plan:
    """The number of steps of a rollout, and the distances between entries and between checkpoints.

    Attributes:
        steps: the number of steps.
        save_every: steps between entries of the trajectory.
        segment: steps between checkpoints of reverse mode; 0 for none.
        keep: the values of a step that reverse mode saves.
    """

    steps: int
    save_every: int
    segment: int
    keep: Keep


def make_plan(
    controls: Any, steps: int | None, save_every: int, segment: int | None, keep: Keep, time_axis: int
) -> Plan:
    """Return the plan of a rollout.

    Raises:
        ValueError: counts that are not positive or do not divide, controls of a wrong shape.
        TypeError: counts that are not integers, invalid controls.
    """
    if isinstance(controls, jax.Array | np.ndarray):
        if controls.ndim != 2 + time_axis:
            expected = "(worlds, steps, nu)" if time_axis else "(steps, nu)"
            raise ValueError(f"controls must have shape {expected}, got {controls.shape}")
        given = controls.shape[time_axis]
        if steps is not None and steps != given:
            raise ValueError(
                f"steps is {steps}, but controls have {given} steps; omit steps or make them equal"
            )
        steps = given
    elif controls is not None and not callable(controls):
        raise TypeError(
            "controls must be an array (steps, nu), a feedback law with __call__(t, state), or None; got "
            f"{type(controls).__name__}"
        )
    if not isinstance(keep, Keep):
        raise TypeError(f"keep must be a Keep, such as Keep.STATES, got {came(keep)}")
    if steps is None:
        raise ValueError("steps is required if controls are not an array")
    steps, save_every = checked_count("steps", steps), checked_count("save_every", save_every)
    if steps % save_every:
        raise ValueError(f"save_every = {save_every} must divide steps = {steps}")
    if segment is None:
        return Plan(steps, save_every, 0, keep)
    segment = checked_count("segment", segment)
    if steps % segment or (segment % save_every and save_every % segment):
        raise ValueError(
            f"segment = {segment} must divide steps = {steps}, and divide or be divided by save_every = "
            f"{save_every}"
        )
    return Plan(steps, save_every, segment, keep)


def check_dt(dt: Any) -> None:
    """Raise an error if dt is not a positive number. The value of a traced dt is not checked."""
    if not _is_number(dt):
        raise TypeError(f"dt must be a number, the step in s, got {brief(dt)}")
    if jnp.ndim(dt) != 0:
        raise ValueError(f"dt must be a single number, got shape {jnp.shape(dt)}")
    if isinstance(dt, Tracer):
        return
    value = np.asarray(dt)  # Under jit, comparing a JAX array is traced even if its value is known.
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"dt must be positive and finite, got {dt}")


def checked_tolerance(tolerance: Any, dtype: Any) -> Any:
    """Return the tolerance of a start, or the default if it is None.

    Raises:
        TypeError: not a number.
        ValueError: an array, or a negative number.
    """
    if tolerance is None:
        return default_tolerance(dtype)
    if not _is_number(tolerance):
        raise TypeError(f"start_tolerance must be a number, got {brief(tolerance)}")
    if not isinstance(tolerance, Tracer) and (jnp.ndim(tolerance) != 0 or not tolerance >= 0):
        raise ValueError(f"start_tolerance must be non-negative, got {tolerance}")
    return tolerance


def _is_number(x: Any) -> bool:
    """Return whether an object is a number or an array of numbers. Booleans are not numbers."""
    return isinstance(x, int | float | np.number | np.ndarray | jax.Array) and jnp.result_type(x) != np.bool_

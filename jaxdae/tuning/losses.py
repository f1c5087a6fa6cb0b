"""Loss terms of a rollout: each is a scalar function of a trajectory, and terms can be added and multiplied.

    def loss(parameters):
        trajectory = rollout(...)
        return tracking(trajectory, tip, target, over=final) + 1e-3 * effort(controls)

A term squares a quantity of every saved state, sums it over the entries of the quantity, and reduces it over
time: `time_average` (the default), `final` or any function of an array (..., time). For many worlds, (world,
time), a term is the mean over the worlds.

A failed world, because of a step or an inconsistent start, stays at its last good state. There a loss would
be finite and may even be small. Every term and its derivative are therefore NaN if a world of the trajectory
failed. `fit` and `least_squares` do not start there, and they shorten a step that leads there. In your own
loss, use `nan_if_failed(trajectory, value)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.rollouts.trajectory import Trajectory
from jaxdae.systems.status import Status
from jaxdae.systems.system import AnySystem, State, energy, velocity_residual

Over = Callable[[Any], Any]
"""Map from a quantity (..., time) to its value over time (...)."""


def time_average(x: Any) -> Any:
    """Return the mean over the saved states."""
    return jnp.mean(x, axis=-1)


def final(x: Any) -> Any:
    """Return the value at the last saved state."""
    return x[..., -1]


def tracking(
    trajectory: Trajectory, observe: Callable[[State], Any] | Any, target: Any, *, over: Over = time_average
) -> Any:
    """Return |observe(state) - target|^2 over time, in the squared unit of the observed quantity.

    Args:
        trajectory: from `rollout` or `batch_rollout`.
        observe: State -> scalar or vector (k,): a point, an angle, a velocity. Or the observed values of all
            saved states, (time, ...) or (world, time, ...), such as contact forces from `trajectory.info`.
        target: a value like the result of `observe`, or one per saved state, (time, ...), or one per world
            and state; or a function of t.
        over: `time_average`, `final` or another function of an array (..., time).

    Raises:
        TypeError: `observe` is neither a function nor an array, `observe` does not return an array, or `over`
            is not a function.
        ValueError: observed values or a target with a wrong shape.

    NaN if a world failed, like all terms.
    """
    shape = jnp.shape(trajectory.state.t)
    if callable(observe):
        seen = _mapped(observe, trajectory.state)
    elif hasattr(observe, "shape"):
        seen = observe
        if seen.shape[: len(shape)] != shape:
            raise ValueError(
                f"tracking: observed values must begin with the axes of the saved states, {shape}, got "
                f"{seen.shape}"
            )
    else:
        raise TypeError(
            "tracking: observe must be a function of a State, such as lambda state: state.q[0], or an array "
            f"of observed values, got {observe!r}"
        )
    if not hasattr(seen, "shape"):
        raise TypeError(
            f"tracking: observe must return a number or a vector, got {type(seen).__name__}; use "
            "jnp.stack([...])"
        )
    wanted = (
        _mapped(lambda state: target(state.t), trajectory.state)
        if callable(target)
        else jnp.asarray(target, seen.dtype)
    )
    axes = len(shape)
    # Broadcasting alone would mistake one number per time for one number per component if their counts are
    # equal.
    if wanted.shape != () and wanted.shape not in [seen.shape[k:] for k in range(axes + 1)]:
        raise ValueError(
            f"tracking: target must be a number, or have the shape of the observation, {seen.shape[axes:]}, "
            f"or of all saved observations, {seen.shape}; got {wanted.shape}"
        )
    return _over(over, seen - wanted, trajectory)


def effort(controls: Any, *, over: Over = time_average) -> Any:
    """Return |u|^2 over time, in the squared unit of u, of inputs (steps, nu) or (worlds, steps, nu)."""
    controls = jnp.asarray(controls)
    return jnp.mean(over(jnp.sum(controls**2, axis=-1)))


def energy_error(
    system: AnySystem, trajectory: Trajectory, reference: Any, *, over: Over = time_average
) -> Any:
    """Return (E - reference)^2 over time in J^2, where E is the kinetic plus potential energy.

    Args:
        system: the mechanical system; many worlds share one system.
        trajectory: from `rollout` or `batch_rollout`.
        reference: the desired energy in J; pass the energy of the start to conserve it.
        over: as in `tracking`.
    """
    return _over(over, _mapped(lambda state: energy(system, state), trajectory.state) - reference, trajectory)


def constraint_violation(system: AnySystem, trajectory: Trajectory, *, over: Over = time_average) -> Any:
    """Return |g|^2 over time, in the squared units of the rows: the drift of the constraints."""
    return _over(
        over, _mapped(lambda state: system.constraint(state.t, state.q), trajectory.state), trajectory
    )


def velocity_violation(system: AnySystem, trajectory: Trajectory, *, over: Over = time_average) -> Any:
    """Return |[g'; w]|^2 over time, in the squared units of the rows per second."""
    return _over(over, _mapped(lambda state: velocity_residual(system, state), trajectory.state), trajectory)


def reaction(trajectory: Trajectory, rows: Any = None, *, over: Over = time_average) -> Any:
    """Return |lam|^2 over time: reaction forces, or the torque of a motor that is a constraint.

    Args:
        trajectory: from `rollout` or `batch_rollout`.
        rows: the multipliers, as an index, a slice or an array of row indices; all rows by default.
        over: as in `tracking`.

    Raises:
        ValueError: an index out of range.
    """
    lam = trajectory.info.lam
    if rows is not None and not isinstance(rows, slice | Tracer):
        _check_rows(np.asarray(rows), lam.shape[-1])
    return _over(over, lam if rows is None else lam[..., rows], trajectory)


def _check_rows(rows: np.ndarray, count: int) -> None:
    # JAX silently clamps indices of arrays that are out of range.
    if rows.dtype != bool and not np.all((rows >= -count) & (rows < count)):
        raise ValueError(f"reaction: rows must be indices of the {count} constraint rows, got {rows}")


def nan_if_failed(trajectory: Trajectory, value: Any) -> Any:
    """Return the value if no world failed, else NaN with a NaN derivative.

    All terms of this module already include this function; use it in your own losses. `fit` responds with a
    shorter step.
    """
    good = jnp.all(trajectory.info.status == Status.OK)
    value = jnp.asarray(value)
    # Use a product, because the derivative of a selection would be zero.
    return value * jnp.where(good, jnp.ones((), value.dtype), jnp.nan)


def _mapped(function: Callable[[State], Any], states: State) -> Any:
    """Return the values at stacked states of a function of single states."""
    for _ in range(jnp.ndim(states.t)):
        function = jax.vmap(function)
    return function(states)


def _over(over: Over, error: Any, trajectory: Trajectory) -> Any:
    axes = tuple(range(jnp.ndim(trajectory.state.t), error.ndim))
    if not callable(over):
        raise TypeError(
            f"over must be a function of an array (..., time), such as final or time_average, got {over!r}"
        )
    return nan_if_failed(trajectory, jnp.mean(over(jnp.sum(jnp.square(error), axis=axes))))

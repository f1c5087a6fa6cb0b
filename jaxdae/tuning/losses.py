"""What a rollout can be asked for: terms of a loss, each a scalar of a trajectory, which add and multiply as numbers do.

    def loss(parameters):
        trajectory = rollout(...)
        return tracking(trajectory, tip, target, over=final) + 1e-3 * effort(controls)

A term squares a quantity of every saved state, sums it over the entries of that quantity, and takes it over time: `time_average` (the
default), `final` or any function of an array (..., time). Of many worlds, (world, time), terms are the mean over the worlds.

A world that fails, in a step or because its start is not consistent, stays at its last good state, where a loss would be finite and may
even be small. Every term is therefore NaN, and so is its derivative, where a world of the trajectory failed: `fit` and `least_squares`
refuse to begin there, and shorten the step that led there. A loss of your own says so by `nan_if_failed(trajectory, value)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.status import Status
from jaxdae.system import AnySystem, State, energy, velocity_residual
from jaxdae.trajectory import Trajectory

Over = Callable[[Any], Any]
"""From a quantity (..., time) to its value over time (...)."""


def time_average(x: Any) -> Any:
    """Returns the mean over the saved states."""
    return jnp.mean(x, axis=-1)


def final(x: Any) -> Any:
    """Returns the value at the last saved state."""
    return x[..., -1]


def tracking(trajectory: Trajectory, observe: Callable[[State], Any], target: Any, *, over: Over = time_average) -> Any:
    """Returns |observe(state) - target|^2 over time, in the square of the unit of what is observed.

    Args:
        trajectory: from `rollout` or `batch_rollout`.
        observe: State -> scalar or vector (k,): a point, an angle, a velocity.
        target: the same, or one for every saved state, (time, ...), or for every world and state; or a function of t.
        over: `time_average`, `final` or another function of an array (..., time).

    Raises:
        TypeError: `observe` or `over` that is no function, or an `observe` that returns no array.
        ValueError: a target of another shape.

    Like all terms NaN where a world failed.
    """
    if not callable(observe):
        raise TypeError(f"tracking: observe must be a function of a State, such as lambda state: state.q[0], got {observe!r}")
    seen = _mapped(observe, trajectory.state)
    if not hasattr(seen, "shape"):
        raise TypeError(f"tracking: observe must return a number or a vector, got {type(seen).__name__}; jnp.stack([...]) makes one")
    wanted = _mapped(lambda state: target(state.t), trajectory.state) if callable(target) else jnp.asarray(target, seen.dtype)
    axes = jnp.ndim(trajectory.state.t)
    # Broadcasting alone would take one number a time for one a component where there are as many of both.
    if wanted.shape != () and wanted.shape not in [seen.shape[k:] for k in range(axes + 1)]:
        raise ValueError(
            f"tracking: target must be a number, or have the shape of what is observed, {seen.shape[axes:]}, alone or for every saved"
            f" state, {seen.shape}; got {wanted.shape}"
        )
    return _over(over, seen - wanted, trajectory)


def effort(controls: Any, *, over: Over = time_average) -> Any:
    """Returns |u|^2 of a sequence of inputs (steps, nu), or of many, (worlds, steps, nu), over time, in the square of their unit."""
    controls = jnp.asarray(controls)
    return jnp.mean(over(jnp.sum(controls**2, axis=-1)))


def energy_error(system: AnySystem, trajectory: Trajectory, reference: Any, *, over: Over = time_average) -> Any:
    """Returns (E - reference)^2 over time in J^2, E kinetic plus potential energy; `reference` is that of the start to keep it.

    Args:
        system: the mechanical system; of many worlds, one that they share.
        trajectory: from `rollout` or `batch_rollout`.
        reference: the wanted energy in J.
        over: as in `tracking`.
    """
    return _over(over, _mapped(lambda state: energy(system, state), trajectory.state) - reference, trajectory)


def constraint_violation(system: AnySystem, trajectory: Trajectory, *, over: Over = time_average) -> Any:
    """Returns |g|^2 over time, in the squares of the units of the rows: how far the constraints drift."""
    return _over(over, _mapped(lambda state: system.constraint(state.t, state.q), trajectory.state), trajectory)


def velocity_violation(system: AnySystem, trajectory: Trajectory, *, over: Over = time_average) -> Any:
    """Returns |[g'; w]|^2 over time, in the squares of the units of the rows per second."""
    return _over(over, _mapped(lambda state: velocity_residual(system, state), trajectory.state), trajectory)


def reaction(trajectory: Trajectory, rows: Any = None, *, over: Over = time_average) -> Any:
    """Returns |lam|^2 over time: reaction forces, or the torque of a motor that is a constraint.

    Args:
        trajectory: from `rollout` or `batch_rollout`.
        rows: which multipliers, as an index, a slice or an array of indices of the rows; all by default.
        over: as in `tracking`.

    Raises:
        ValueError: an index of no row.
    """
    lam = trajectory.info.lam
    if rows is not None and not isinstance(rows, slice | Tracer):
        _check_rows(np.asarray(rows), lam.shape[-1])
    return _over(over, lam if rows is None else lam[..., rows], trajectory)


def _check_rows(rows: np.ndarray, count: int) -> None:
    # Indices of JAX arrays that are out of range are moved into it in silence.
    if rows.dtype != bool and not np.all((rows >= -count) & (rows < count)):
        raise ValueError(f"reaction: rows must be indices of the {count} constraint rows, got {rows}")


def nan_if_failed(trajectory: Trajectory, value: Any) -> Any:
    """Returns the value where no world failed, and NaN where one did, with a derivative that is NaN too.

    All terms of this module have it already; it is for losses of your own. `fit` answers with a shorter step.
    """
    good = jnp.all(trajectory.info.status == Status.OK)
    value = jnp.asarray(value)
    # A product, because the derivative of a selection would be zero.
    return value * jnp.where(good, jnp.ones((), value.dtype), jnp.nan)


def _mapped(function: Callable[[State], Any], states: State) -> Any:
    """Returns a function of single states at stacked ones."""
    for _ in range(jnp.ndim(states.t)):
        function = jax.vmap(function)
    return function(states)


def _over(over: Over, error: Any, trajectory: Trajectory) -> Any:
    axes = tuple(range(jnp.ndim(trajectory.state.t), error.ndim))
    if not callable(over):
        raise TypeError(f"over must be a function of an array (..., time), such as final or time_average, got {over!r}")
    return nan_if_failed(trajectory, jnp.mean(over(jnp.sum(jnp.square(error), axis=axes))))

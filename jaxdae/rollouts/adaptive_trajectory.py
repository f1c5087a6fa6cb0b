"""Adaptive integration over a grid of times: the fastest way to an accurate trajectory.

`rollout` with an `Adaptive` method ends a step at every output time. `adaptive_rollout` instead chooses steps
as long as the tolerances allow, independent of the output times, in a single `diffrax.diffeqsolve`. The
interpolant of the method provides the outputs. They are then projected, so that they satisfy the constraints
as accurately as the steps.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import check_arrays, checked_count
from jaxdae.integrators.adaptive import Adaptive
from jaxdae.integrators.equation_of_motion import bound, motion
from jaxdae.integrators.integrator import step_info
from jaxdae.integrators.ode import VectorField, load_diffrax, projected_solver, vector_field
from jaxdae.integrators.projected import projection_status
from jaxdae.rollouts.guard import undefined_if_failed
from jaxdae.rollouts.rollout_arguments import as_controls, checked_start
from jaxdae.rollouts.trajectory import Trajectory
from jaxdae.systems.consistency import first_status
from jaxdae.systems.status import Status, first_failure
from jaxdae.systems.system import AnySystem, State, check_fit
from jaxdae.typing import Leaf


def adaptive_rollout(
    system: AnySystem,
    integrator: Adaptive,
    state: State,
    controls: Any = None,
    *,
    times: Any,
    max_steps: int = 4096,
    adjoint: Any = None,
    start_tolerance: Any = None,
) -> Trajectory:
    """Return the trajectory of one world at given times, from one integration with adaptive steps.

    Args:
        system: the mechanical system.
        integrator: the method, its tolerances and its projection. Its `max_steps` applies to one step of a
            rollout, and is not used.
        state: the start; use `initialize` to make it consistent.
        controls: an input (nu,), constant over all times; inputs (times, nu), each held from the previous
            time (for the first input, from the start) to its own time, where a step then ends; a feedback law
            (t, state) -> u; or None.
        times: the times of the entries (n,) in s, increasing, none before the start; leaves: changing them
            does not recompile. With held inputs and a first time equal to the start time, there is no
            derivative with respect to only one of these two times: vary both together.
        max_steps: the largest total number of steps, accepted and rejected. Entries that are not reached have
            the status STEP_BUDGET and the last valid state. The first entry at which `System.condition` is
            not OK and all later entries also have the last valid state, with the status of this condition.
            The condition is not checked between entries.
        adjoint: the Diffrax adjoint. `diffrax.RecursiveCheckpointAdjoint()` by default: reverse mode with
            memory for about log(max_steps) states. For forward mode pass `diffrax.ForwardMode()`, for both
            modes `diffrax.DirectAdjoint()`.
        start_tolerance: as in `rollout`.

    Returns:
        `Trajectory` with one entry per time. In its `info`, `a`, `lam` and the violations belong to the entry
        itself, and `iterations` is the number of steps, accepted and rejected, of the whole integration.
        Check it with `raise_if_failed`.

    Raises:
        ImportError: Diffrax is not installed.
        TypeError: an invalid method, times or coordinates that are not floating point, a count that is not an
            integer.
        ValueError: times that are not increasing and finite or lie before the start, counts that are not
            positive. For traced times the status is OUT_OF_RANGE instead.

    Compiled. For many worlds use `jax.vmap`: every world has its own steps, and all run until the last one
    ends. The derivative holds the step sizes constant. Exception: for a system that fails in a step that is
    then rejected, the derivative may be NaN although the derivative of `rollout` with the same method is not.
    """
    if not isinstance(integrator, Adaptive):
        raise TypeError(f"integrator must be an Adaptive(...) method, got {type(integrator).__name__}")
    integrator.check()
    state, tolerance = checked_start(system, integrator, state, start_tolerance)
    times = _checked_times(times, state)
    max_steps = checked_count("max_steps", max_steps)
    diffrax, _ = load_diffrax()
    adjoint = diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint
    if not isinstance(adjoint, diffrax.AbstractAdjoint):
        raise TypeError(f"adjoint must be a Diffrax adjoint, like diffrax.ForwardMode(); got {adjoint!r}")
    if controls is None or callable(controls):
        law, jumps = as_controls(controls, state), False
    else:
        law, jumps = _held(controls, times)
    check_arrays("controls", law)
    return _adaptive_rollout(system, integrator, state, law, times, tolerance, (max_steps, adjoint, jumps))


def _checked_times(times: Any, state: State) -> Any:
    """Return the times in the precision of the state. Check shape, type and, if concrete, order."""
    if jnp.ndim(times) != 1 or jnp.shape(times)[0] == 0:
        raise ValueError(f"times must have one axis and at least one entry, got shape {jnp.shape(times)}")
    values = jnp.asarray(times, state.q.dtype)
    if not isinstance(values, Tracer) and not (
        np.all(np.diff(np.asarray(values)) > 0) and np.all(np.isfinite(values))
    ):
        raise ValueError("times must be increasing and finite")
    if (
        not isinstance(values, Tracer)
        and not isinstance(state.t, Tracer)
        and np.asarray(values)[0] < np.asarray(state.t)
    ):
        raise ValueError(
            f"times must not be before the start: the first is {float(values[0])} s, state.t is "
            f"{float(state.t)} s"
        )
    return values


@pytree
class _Held:
    """Piecewise constant inputs, each held from the previous time to its own. As a law: the current input."""

    times: Leaf
    inputs: Leaf

    def __call__(self, t: Any, state: State) -> Any:
        return self.inputs[self.interval(self.times, t)]

    def interval(self, times: Any, t: Any) -> Any:
        """Return the index of the interval () that contains t; intervals are closed on the left."""
        return jnp.minimum(jnp.searchsorted(times, t, side="right"), self.inputs.shape[0] - 1)


@pytree
class _HeldField:
    """The vector field with held inputs, in a time variable that is constant under differentiation.

    The inputs jump at ends of steps. To differentiate with respect to the jump times, the ends must move with
    them. The integration variable is theta, which equals t in value. Within each interval t(theta) is linear,
    with a slope of one whose derivative is the derivative of the interval length, so that y' = dt/dtheta
    f(t, y, u_k).
    """

    field: VectorField
    start: Leaf
    held: _Held

    def clock(self, theta: Any) -> Any:
        """Return the time t in s."""
        return self._moved(theta)[0]

    def __call__(self, theta: Any, y: Any, args: Any) -> Any:
        t, slope, k = self._moved(theta)
        return jax.tree.map(lambda rate: slope * rate, self.field(t, y, self.held.inputs[k]))

    def _moved(self, theta: Any) -> tuple[Any, Any, Any]:
        ends = self.held.times
        still_ends, still_start = jax.lax.stop_gradient((ends, self.start))
        k = self.held.interval(still_ends, theta)
        begin, still_begin = (
            jnp.where(k > 0, times[jnp.maximum(k - 1, 0)], first)
            for times, first in ((ends, self.start), (still_ends, still_start))
        )
        length, still_length = ends[k] - begin, still_ends[k] - still_begin
        # The slope of an interval of zero length does not matter. An example is a first time equal to the
        # start.
        slope: Any = jnp.where(
            still_length > 0.0, length / jnp.where(still_length > 0.0, still_length, 1.0), 1.0
        )
        return begin + slope * (theta - still_begin), slope, k


def _held(controls: Any, times: Any) -> tuple[Any, bool]:
    """Return the controls as an input or a law, and whether they jump."""
    if not isinstance(controls, jax.Array | np.ndarray) or controls.ndim not in (1, 2):
        raise TypeError(
            "controls must be an array (nu,) or (times, nu), a feedback law with __call__(t, state), or None;"
            f" got {getattr(controls, 'shape', None) or type(controls).__name__}"
        )
    if controls.ndim == 1:
        return controls, False
    if controls.shape[0] != times.shape[0]:
        raise ValueError(
            f"controls must have one entry per time, got {controls.shape[0]} entries for {times.shape[0]} "
            "times"
        )
    return _Held(times, controls), times.shape[0] > 1


@partial(jax.jit, static_argnums=6)
def _adaptive_rollout(
    system: AnySystem,
    integrator: Adaptive,
    state: State,
    law: Any,
    times: Any,
    tolerance: Any,
    plan: tuple[int, Any, bool],
) -> Trajectory:
    check_fit(system, state)
    begun = _begun(system, integrator, law, state, times, tolerance)
    diffrax, ours = load_diffrax()
    max_steps, adjoint, jumps = plan
    solver = integrator.solver
    controller = integrator.controller(state.q.dtype, None)
    field: Any = vector_field(system, solver=solver, stabilization=integrator.stabilization)
    method = projected_solver(integrator.diffrax_method(), system, integrator.projection, solver=solver)
    # A world that cannot start takes no step, so that its batch does not wait. Diffrax does not see its
    # times.
    goes = begun == Status.OK
    start: Any = jnp.where(goes, state.t, 0.0)
    ends: Any = jnp.where(goes, times, start)
    if jumps:
        field = _HeldField(field, start, law)
        method = dataclasses.replace(method, clock=jax.tree_util.Partial(_HeldField.clock, field))
        start, ends = jax.lax.stop_gradient((start, ends))
        controller = diffrax.ClipStepSizeController(controller, jump_ts=ends[:-1])
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        method,
        t0=start,
        t1=ends[-1],
        dt0=None,
        y0=(state.q, state.v),
        args=law,
        stepsize_controller=controller,
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=ends), diffrax.SubSaveAt(t1=True)]),
        adjoint=adjoint,
        max_steps=max_steps,
        throw=False,
    )
    (saved_times, last_time), (saved, last) = solution.ts, solution.ys
    steps = jnp.asarray(solution.stats["num_steps"], jnp.int32)

    def entry(t: Any, time: Any, y: Any, held: Any) -> tuple[State, Any]:
        # As in `rollout`, an entry uses the input held up to it; the law returns the next.
        controls = law if held is None else held
        saved = jnp.isfinite(time) & goes
        # The start is reached without a step, even if no step is accepted and nothing is saved.
        reached = saved | (goes & (t <= state.t))
        q, v = jax.tree.map(lambda x, y: jnp.where(saved, x, y[0]), y, last)
        t = jnp.where(reached, t, last_time[0])
        at = ours.projected_state(system, integrator.projection, solver, State(t, q, v), State(t, q, v))
        v, a, lam, moving = motion(system, at, controls, solver, integrator.stabilization)
        at = State(at.t, at.q, v)
        info = step_info(bound(system, at, controls), at, a, lam)
        status = jnp.where(
            jnp.all(jnp.isfinite(a)), jnp.where(reached, Status.OK, Status.STEP_BUDGET), Status.NONFINITE
        )
        # If no velocity is feasible, steps are rejected until the budget is exhausted. The cause takes
        # precedence.
        status = first_failure(
            begun, moving, status, projection_status(system, integrator.projection, info, at)
        )
        info = dataclasses.replace(info, iterations=steps, status=status)
        return jax.tree.map(lambda x, y: jnp.where(goes, x, y), at, state), info

    trajectory = _until_beyond(
        system, state, Trajectory(*jax.vmap(entry)(times, saved_times, saved, law.inputs if jumps else None))
    )
    return undefined_if_failed(
        (system, integrator, state, law, times), trajectory, trajectory.info.status != Status.OK
    )


def _begun(
    system: AnySystem, integrator: Adaptive, law: Any, state: State, times: Any, tolerance: Any
) -> Any:
    """Return the initial status () of the entries: as in `rollout`, plus a check for NaN.

    Unlike in `rollout`, no step would report NaN.
    """
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in (state.t, state.q, state.v)]))
    increasing = (times[0] >= state.t) & jnp.all(times[1:] > times[:-1])
    begun = first_status(system, integrator, law, state, None, tolerance, goes_on=False)
    parts = ((finite, Status.NONFINITE), (increasing & jnp.isfinite(times[-1]), Status.OUT_OF_RANGE))
    known, fitting = (jnp.where(good, Status.OK, other) for good, other in parts)
    return first_failure(known, begun, fitting)


def _until_beyond(system: AnySystem, start: State, trajectory: Trajectory) -> Trajectory:
    """Return the trajectory, frozen at the last good entry before a violation of `System.condition`."""
    at: Any = trajectory.state
    if jax.eval_shape(system.condition, start.t, start.q) is None:
        return trajectory
    conditions: Any = jax.vmap(system.condition)(at.t, at.q)
    conditions = jnp.where(trajectory.info.status == Status.OK, conditions, Status.OK)
    beyond = jnp.cumsum(conditions != Status.OK) > 0
    first = jnp.argmax(beyond)
    entries = jnp.where(beyond, jnp.maximum(first - 1, 0), jnp.arange(beyond.shape[0]))
    state, info = jax.tree.map(lambda x: x[entries], (at, trajectory.info))
    # If the first entry is beyond a limit, only the start is left.
    none = beyond & (first == 0)
    state = jax.tree.map(lambda x, x0: jnp.where(none.reshape(-1, *(1,) * x0.ndim), x0, x), state, start)
    own = trajectory.info.status
    status = jnp.where(beyond & (own == Status.OK), conditions[first], own)
    return Trajectory(state, dataclasses.replace(info, status=status))

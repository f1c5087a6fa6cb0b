"""Rollouts that end at an event, such as the heel strike of a walker, for return maps and periodic motions.

The rollout steps until e(state) changes from positive to zero or negative within a step. The last step then
has the length s h, where s in [0, 1] is the root of

    e(Phi(x_k, s h)) = 0,        Phi: one step of the method from the last state x_k before the event.

Bracketed secants solve this equation to round-off. The state at the event therefore has the accuracy of the
method, whatever its order.

*Derivatives.* The implicit function theorem differentiates the root, so the derivative contains the change of
the event time: with x = Phi(x_k, s h) and f = dx/dt,

    dx = (I - f (grad e)^T / (grad e . f)) dPhi        at fixed s, for an e that does not depend on time.

The chain of a rollout to an event and a reset is the return map; its Jacobian is the monodromy matrix with
saltation, exact for the discrete motion. The derivative does not exist at grazing events, grad e . f = 0.

References:
    M. A. Aizerman, F. R. Gantmacher, Q. J. Mech. Appl. Math. 11 (1958), for the saltation matrix. I. A.
    Hiskens, M. A. Pai, "Trajectory sensitivity analysis of hybrid systems", IEEE Trans. Circuits Syst. I 47
    (2000).
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.base.callables import checked_function, is_plain
from jaxdae.base.requirements import check_arrays, checked_count
from jaxdae.compile.rematerialization import Keep
from jaxdae.integrators.integrator import Integrator
from jaxdae.integrators.method import begun_with
from jaxdae.integrators.stability import (
    feedback_status,
    may_be_unstable,
    stability_status,
    steps_between_examinations,
)
from jaxdae.rollouts.guard import checked_memory, guarded_step, undefined_if_failed
from jaxdae.rollouts.rollout_arguments import as_controls, check_dt, checked_start, make_plan
from jaxdae.rollouts.scan import examined_status, steps_per_examination
from jaxdae.rollouts.trajectory import Trajectory
from jaxdae.systems.consistency import first_status
from jaxdae.systems.linearization import Point
from jaxdae.systems.status import Status, first_failure
from jaxdae.systems.system import AnySystem, State, check_fit

_SEARCH = 12  # secants for the fraction of the last step; smooth events need 4 to 7


def rollout_until(
    system: AnySystem,
    integrator: Integrator,
    state: State,
    event: Any,
    controls: Any = None,
    *,
    dt: Any,
    steps: int | None = None,
    start_tolerance: Any = None,
    memory: Any = None,
) -> Trajectory:
    """Return the end of a rollout that stops at an event.

    The event is the first change of `event(system, state)` from positive to zero or negative between two
    steps. The start is not an event, even if the function is zero or negative there. If a rollout starts from
    the state after a previous event, such as an impact, the function should therefore be exactly zero or
    negative at the start.

    Args:
        system: the mechanical system.
        integrator: a one-step method, such as `Projected(RungeKutta.rk4())`.
        state: the start.
        event: (system, state) -> (), any unit: a plain function, or a pytree with `__call__`.
        controls: as in `rollout`.
        dt: the length of all steps but the last in s; a leaf.
        steps: the largest number of steps; taken from `controls` if given as an array. The program always
            executes all steps.
        start_tolerance: as in `rollout`.
        memory: as in `rollout`.

    Returns:
        `Trajectory` without a time axis: the state at the event, the report of the last step, and the memory.
        Without an event, the state after all steps, with the status STEP_BUDGET.

    Raises:
        ValueError: as in `rollout`; an event that is not a scalar.
        TypeError: as in `rollout`; an event that is not callable.

    Compiled, and differentiable with respect to system, integrator, state, event, controls and dt, forward
    and reverse, at every order. The derivative contains the change of the event time. It is NaN if the
    rollout fails. For many worlds use `jax.vmap`.
    """
    plan = make_plan(controls, steps, 1, None, Keep.STATES, time_axis=0)
    state, tolerance = checked_start(system, integrator, state, start_tolerance)
    check_dt(dt)
    law = as_controls(controls, state)
    check_arrays("controls", law)
    check_arrays("memory", memory)
    measure = _as_event(event, system, state)
    return _rollout_until(
        system, integrator, state, measure, law, dt, memory, tolerance, checked_count("steps", plan.steps)
    )


def _as_event(event: Any, system: AnySystem, state: State) -> Any:
    """Return the event as a pytree; captured traced values of a plain function become leaves."""
    if not callable(event):
        raise TypeError(f"event must be a function (system, state) -> (), got {type(event).__name__}")
    function = checked_function(event, "event")
    shape = jax.eval_shape(function, system, state).shape
    if shape != ():
        raise ValueError(f"event must return a scalar, got shape {shape}")
    if not is_plain(function):
        return function
    converted, captured = jax.closure_convert(function, system, state)
    if not captured:
        return jax.tree_util.Partial(function)
    return jax.tree_util.Partial(lambda values, *given: converted(*given, *values), captured)


@partial(jax.jit, static_argnums=8)
def _rollout_until(
    system: Any,
    integrator: Any,
    state: State,
    event: Any,
    law: Any,
    dt: Any,
    memory: Any,
    tolerance: Any,
    steps: int,
) -> Trajectory:
    check_fit(system, state)
    dt = jnp.asarray(dt, state.q.dtype)
    still = jax.lax.stop_gradient((system, integrator, law, state, dt, tolerance))
    status = first_status(*still, memory is not None)
    status = first_failure(status, feedback_status(*still[:2], still[3], still[4]))
    tested = may_be_unstable(system, integrator, law if callable(law) else None)
    begun = integrator.init(system, state)
    memory = begun if memory is None else checked_memory(memory, begun)
    point = begun_with(integrator, system, state, law, dt, memory, status)

    def advance(point: Point, memory: Any, status: Any, count: Any, share: Any) -> Any:
        """Return the result of a step of the length share dt, the number `count` from the start."""
        u = law if law is None or callable(law) else law[count]
        new, memory, info = guarded_step(system, integrator, point, memory, status, u, share * dt)
        t = jnp.where(
            info.status == Status.OK, state.t + (count.astype(dt.dtype) + share) * dt, point.state.t
        )
        return dataclasses.replace(new, state=dataclasses.replace(new.state, t=t)), memory, info

    def measure(point: Point) -> Any:
        return jnp.asarray(event(system, point.state), dt.dtype)

    def one_step(carry: Any, _: Any) -> tuple[Any, None]:
        point, memory, status, count, ended, before = carry
        new, moved, info = advance(point, memory, status, count, jnp.ones_like(dt))
        ended |= (measure(point) > 0.0) & (measure(new) <= 0.0) & (info.status == Status.OK)
        after = (new, moved, info.status, count + 1, ended, jax.lax.stop_gradient(point.state.v))
        return jax.tree.map(lambda x, y: jnp.where(ended, x, y), (*carry[:4], ended, before), after), None

    def examine(at: State, last: Any, carried: Any, u: Any) -> Any:
        return stability_status(system, integrator, at, last, carried, law if callable(law) else u, dt)

    often = steps_between_examinations(integrator, steps)
    every = steps_per_examination(steps, often) if tested else steps

    def examined_steps(carry: Any, _: Any) -> tuple[Any, None]:
        point, memory, status, count, ended, before = carry
        if tested:
            u = law if law is None or callable(law) else law[count]
            found = examined_status(examine, often, every, count, point.state, before, memory, u, status)
            status = jnp.where(ended, status, found)
        carry = (point, memory, status, count, ended, before)
        return jax.lax.scan(Keep.STATES.applied(one_step), carry, length=every)

    unknown = jnp.full_like(jax.lax.stop_gradient(state.v), jnp.inf)
    carry = (point, memory, status, jnp.zeros((), jnp.int32), jnp.zeros((), bool), unknown)
    carry, _ = jax.lax.scan(examined_steps, carry, length=steps // every)
    *before, count, ended, _ = carry

    def last_step(share: Any) -> Any:
        point, memory, status = before
        return advance(point, memory, status, count, share)

    def residual(share: Any) -> Any:
        return jnp.where(ended, measure(last_step(share)[0]), 1.0 - share)

    solve = partial(_solved, start=jnp.where(ended, measure(before[0]), 1.0))
    share = jax.lax.custom_root(
        residual, jnp.ones_like(dt), solve, lambda slope, y: y / slope(jnp.ones_like(y))
    )
    located = last_step(share)
    end, memory = jax.tree.map(lambda x, y: jnp.where(ended, x, y), located[:2], tuple(before[:2]))
    missed = first_failure(before[2], jnp.asarray(Status.STEP_BUDGET, jnp.int32))
    info = dataclasses.replace(located[2], status=jnp.where(ended, located[2].status, missed))
    given = (system, integrator, state, event, law, dt)
    return undefined_if_failed(given, Trajectory(end.state, info, memory), info.status != Status.OK)


def _solved(residual: Any, share: Any, start: Any) -> Any:
    """Return the root in [0, 1] of a function that is positive at 0 and not at 1, by bracketed secants.

    Args:
        residual: the function.
        share: 1.
        start: its value at 0.
    """

    def shrink(_: Any, carry: Any) -> Any:
        low, high, s, before, value_before = carry
        value = residual(s)
        low, high = jnp.where(value > 0.0, s, low), jnp.where(value > 0.0, high, s)
        drop = value_before - value
        guess = s + value * (s - before) / jnp.where(drop == 0.0, 1.0, drop)
        inside = (guess >= low) & (guess <= high)
        return low, high, jnp.where(inside, guess, 0.5 * (low + high)), s, value

    zero = jnp.zeros_like(share)
    return jax.lax.fori_loop(0, _SEARCH, shrink, (zero, share, share, zero, start))[2]

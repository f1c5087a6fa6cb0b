"""The loop over steps: nested scans with checkpoints, saved entries, and occasional stability tests."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.compile.platform import on_accelerator
from jaxdae.compile.sharding import device_axes, varying
from jaxdae.integrators.integrator import StepInfo
from jaxdae.rollouts.rollout_arguments import Plan
from jaxdae.systems.linearization import Point
from jaxdae.systems.status import Status, first_failure
from jaxdae.systems.system import State


def steps_per_examination(length: int, often: int) -> int:
    """Return the number of steps between examinations: the largest divisor of the loop length up to the aim.

    If this divisor is less than half of the aim, it is the loop length.
    """
    most = max(d for d in range(1, min(length, often) + 1) if length % d == 0)
    return most if 2 * most >= often else length


def examined_status(
    examine: Any,
    often: int,
    every: int,
    count: Any,
    state: State,
    before: Any,
    memory: Any,
    u: Any,
    status: Any,
) -> Any:
    """Return the status of a world () after a stability test, if one is due at this step.

    Args:
        examine: (state, v of the previous step, memory, u) -> status.
        often: the aim of the number of steps between tests.
        every: the number of steps between calls of this function, see `steps_per_examination`.
        count: the number of steps before.
        state: the state at the start of the step.
        before: velocities (nv,) one step earlier, infinite at the start.
        memory: the memory of the method.
        u: the input of the step.
        status: of the world ().
    """
    given = jax.lax.stop_gradient((state, before, memory, u))
    if 2 * every >= often:
        return first_failure(status, examine(*given))
    return jax.lax.cond(
        count % often < every,
        lambda x, told: first_failure(told, examine(*x)),
        lambda _, told: told,
        given,
        status,
    )


def scan_steps(
    step: Any,
    examine: Any,
    often: int,
    point: Point,
    memory: Any,
    status: Any,
    inputs: Any,
    dt: Any,
    plan: Plan,
) -> tuple[tuple[State, StepInfo], Any]:
    """Return ((states, infos), memory) after the nested scans.

    The scans run over segments of blocks of steps, or over blocks of segments of steps.
    `examine(state, v of the previous step, memory, u)`, unless None, returns a status. It runs at the first
    step and at about every `often`-th step.
    """
    steps, save_every, segment = plan.steps, plan.save_every, plan.segment
    checkpointed = plan.keep.applied(step)
    t0 = point.state.t

    def one_step(carry: Any, u: Any) -> tuple[Any, None]:
        count, at, carried, info, before = carry
        before = None if examine is None else jax.lax.stop_gradient(at.state.v)
        # Time follows from the count, not from a sum, which would drift in single precision.
        t_next = t0 + (count + 1).astype(dt.dtype) * dt
        new, carried, now = varying(checkpointed(at, carried, info.status, u), axes)
        # A failed world stops its clock.
        at = dataclasses.replace(
            new,
            state=dataclasses.replace(new.state, t=jnp.where(now.status == Status.OK, t_next, at.state.t)),
        )
        info = dataclasses.replace(
            now,
            violation=_largest(info.violation, now.violation, info.status),
            velocity_violation=_largest(info.velocity_violation, now.velocity_violation, info.status),
            iterations=_largest(info.iterations, now.iterations, info.status),
        )
        return (count + 1, at, carried, info, before), None

    def look(carry: Any, us: Any, every: int) -> Any:
        count, at, carried, info, before = carry
        u = jax.tree.map(lambda x: x[0], us)
        status = examined_status(examine, often, every, count, at.state, before, carried, u, info.status)
        return count, at, carried, dataclasses.replace(info, status=status), before

    def run_steps(carry: Any, us: Any, length: int) -> Any:
        if examine is None:
            return _repeat(one_step, carry, us, length)[0]
        every = steps_per_examination(length, often)

        def examined(carry: Any, us: Any) -> Any:
            return _repeat(one_step, look(carry, us, every), us, every)

        return _repeat(examined, carry, _grouped(us, length // every), length // every)[0]

    def block(carry: Any, us: Any) -> tuple[Any, Any]:
        count, at, carried, info, before = carry
        carry = (count, at, carried, _restarted(info), before)
        if 0 < segment < save_every:
            carry, _ = _repeat(
                jax.checkpoint(lambda c, x: (run_steps(c, x, segment), None)),
                carry,
                _grouped(us, save_every // segment),
                save_every // segment,
            )
        else:
            carry = run_steps(carry, us, save_every)
        return carry, (carry[1].state, carry[3])

    first_input = None if inputs is None else jax.tree.map(lambda x: x[0], inputs)
    shapes = jax.eval_shape(step, point, memory, status, first_input)
    axes = device_axes(shapes)
    info = dataclasses.replace(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes[2]), status=status)
    before = None if examine is None else jnp.full_like(jax.lax.stop_gradient(point.state.v), jnp.inf)
    carry = (jnp.zeros((), jnp.int32), *varying((point, memory, info, before), axes))
    blocks = _grouped(inputs, steps // save_every)
    if segment < save_every or segment == 0:
        last, trajectory = _repeat(block, carry, blocks, steps // save_every)
    else:
        inner, outer = segment // save_every, steps // segment
        last, nested = _repeat(
            jax.checkpoint(lambda c, x: _repeat(block, c, x, inner)), carry, _grouped(blocks, outer), outer
        )
        trajectory = jax.tree.map(lambda x: x.reshape(outer * inner, *x.shape[2:]), nested)
    return trajectory, last[2]


def _largest(before: Any, now: Any, status: Any) -> Any:
    """Return the larger of the values before and in this step.

    A world that failed before reports zero in this step. Accelerators also select by status: XLA merges
    operations that read a common array, here the status, into one kernel.
    """
    larger = jnp.maximum(before, now)
    return jnp.where(status == Status.OK, larger, before) if on_accelerator() else larger


def _repeat(body: Any, carry: Any, xs: Any, length: int) -> tuple[Any, Any]:
    """Return the result of `lax.scan`; a single repetition runs without a loop."""
    if length > 1:
        return jax.lax.scan(body, carry, xs, length=length)
    carry, y = body(carry, jax.tree.map(lambda x: x[0], xs))
    return carry, jax.tree.map(lambda x: x[None], y)


def _grouped(xs: Any, groups: int) -> Any:
    """Return xs with its leading axis split into (groups, rest)."""
    return jax.tree.map(lambda x: x.reshape(groups, x.shape[0] // groups, *x.shape[1:]), xs)


def _restarted(info: StepInfo) -> StepInfo:
    """Return the info with its maxima reset to zero; the status is kept."""
    fresh = jax.tree.map(jnp.zeros_like, info)
    return dataclasses.replace(fresh, status=info.status)

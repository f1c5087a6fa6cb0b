"""Many steps in one compiled program, for one world or for thousands.

A rollout is a `lax.scan` over steps. Three things happen around each step:

* *Checkpointing.* The step is rematerialized in reverse mode, so that only its start state is kept, and what Newton's iterations found in
  it: these do not run a second time. With `segment=k` only every k-th state is kept, and memory falls from O(steps) to O(steps / k + k)
  states.
* *Freezing.* A step whose result is not finite, or whose status is not OK, is discarded: the world stays at its last good state
  with that status, and so do its gradients (see `guarded_step`).
* *Thinning.* One entry is kept every `save_every` steps; the violations in it are the largest since the entry before.

`batch_rollout` runs the same scan over a step that is vectorized over worlds, with the world axis *last* in every array: the small
matrices of a mechanism are then vectorized over worlds by the compiler.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae._pytree import pytree
from jaxdae.batch import count_worlds, leaf_axes, spread_over_devices
from jaxdae.functions import is_plain
from jaxdae.guard import guarded_step
from jaxdae.integrators.interface import Integrator, StepInfo, check_integrator, check_roles
from jaxdae.newton import ROOT
from jaxdae.requirements import Stacked, check_arrays, check_requirements
from jaxdae.rollout_arguments import as_law, checked_law, state_axes_of
from jaxdae.system import State, System, check_fit, check_is_system, check_system, checked_state
from jaxdae.typing import Leaf

_ARGUMENTS = ("system", "integrator", "state", "controls")


@pytree
class Trajectory:
    """What a rollout returns: a stacked `State` and a stacked `StepInfo`, one entry for every `save_every` steps.

    The leading axes are (time,), or (world, time) from `batch_rollout`. The start state is not among the entries.
    """

    state: Leaf
    info: Leaf


@overload
def rollout(
    system: System,
    integrator: Integrator,
    state: State,
    controls: Any = None,
    *,
    dt: Any,
    steps: int | None = None,
    save_every: int = 1,
    segment: int | None = None,
    memory: Any = None,
    return_memory: Literal[False] = False,
) -> Trajectory: ...


@overload
def rollout(
    system: System,
    integrator: Integrator,
    state: State,
    controls: Any = None,
    *,
    dt: Any,
    steps: int | None = None,
    save_every: int = 1,
    segment: int | None = None,
    memory: Any = None,
    return_memory: bool,
) -> tuple[Trajectory, Any]: ...


def rollout(
    system: System,
    integrator: Integrator,
    state: State,
    controls: Any = None,
    *,
    dt: Any,
    steps: int | None = None,
    save_every: int = 1,
    segment: int | None = None,
    memory: Any = None,
    return_memory: bool = False,
) -> Any:
    """Returns the trajectory of one world over a fixed number of fixed steps.

    Args:
        system: the mechanical system.
        integrator: a one-step method, such as `Projected(RungeKutta.rk4())`.
        state: the start; see `initialize` for a consistent one.
        controls: inputs (steps, nu), each held over its step; or a feedback law (t, state) -> u that is evaluated at every
            stage; or None. A law is a pytree with `__call__`, whose gains are leaves, or a plain function, which is part of
            the program: another function compiles anew.
        dt: the step in s; a leaf: changing it does not recompile.
        steps: how many steps; taken from `controls` where these are an array.
        save_every: steps from one entry of the trajectory to the next; must divide `steps`.
        segment: steps from one checkpoint of reverse mode to the next; must divide `steps`, and divide or be divided by
            `save_every`. None keeps one state a step, and the roots found in it.
        memory: what the integrator carries from step to step, where this rollout goes on from another; None to begin.
        return_memory: whether to return (trajectory, memory after the last step).

    Returns:
        `Trajectory` with steps / save_every entries. Check it with `raise_if_failed`.

    Raises:
        ValueError: counts that are not positive or do not divide, dt <= 0, shapes that do not fit.
        TypeError: coordinates that are not floating point.

    Compiled, and differentiable with respect to system, integrator, state, controls and dt, forward and reverse.
    """
    plan = _plan(controls, steps, save_every, segment, return_memory, time_axis=0)
    check_system(system)
    state = checked_state(state)
    check_integrator(integrator)
    _check_dt(dt)
    law = as_law(controls, state)
    for name, part in (("system", system), ("integrator", integrator), ("controls", law)):
        check_arrays(name, part)
    return _rollout(system, integrator, state, law, dt, memory, plan)


@overload
def batch_rollout(
    system: System,
    integrator: Integrator,
    state: State,
    controls: Any = None,
    *,
    dt: Any,
    steps: int | None = None,
    save_every: int = 1,
    segment: int | None = None,
    in_axes: tuple[Any, Any, Any, Any] = (None, None, 0, None),
    memory: Any = None,
    return_memory: Literal[False] = False,
) -> Trajectory: ...


@overload
def batch_rollout(
    system: System,
    integrator: Integrator,
    state: State,
    controls: Any = None,
    *,
    dt: Any,
    steps: int | None = None,
    save_every: int = 1,
    segment: int | None = None,
    in_axes: tuple[Any, Any, Any, Any] = (None, None, 0, None),
    memory: Any = None,
    return_memory: bool,
) -> tuple[Trajectory, Any]: ...


def batch_rollout(
    system: System,
    integrator: Integrator,
    state: State,
    controls: Any = None,
    *,
    dt: Any,
    steps: int | None = None,
    save_every: int = 1,
    segment: int | None = None,
    in_axes: tuple[Any, Any, Any, Any] = (None, None, 0, None),
    memory: Any = None,
    return_memory: bool = False,
) -> Any:
    """Returns the trajectories of many worlds, which may differ in any leaf.

    Args:
        system: the system, or a stack of systems (see `in_axes`).
        integrator: a one-step method, or a stack of them.
        state: the starts, stacked along a leading world axis; its `t` may be a single number.
        controls: as in `rollout`; different inputs for each world are (worlds, steps, nu) with axis 0 in `in_axes`.
        dt: the step in s, the same for all worlds.
        steps: how many steps; taken from `controls` where these are an array.
        save_every: as in `rollout`.
        segment: as in `rollout`.
        in_axes: which leaves of (system, integrator, state, controls) are stacked, as in `jax.vmap`: 0 or None for a whole argument,
            or a pytree of them; `batch_axes(system, "mass", "gravity")` makes one.
        memory: as in `rollout`, of all worlds: every leaf stacked.
        return_memory: as in `rollout`.

    Returns:
        `Trajectory` with axes (world, time, ...). The result of each world is that of its own `rollout` to round-off, and a world
        that fails does not touch the others.

    Raises:
        ValueError: as in `rollout`; no stacked leaf, or stacks of different lengths.

    Where JAX sees several devices and their number divides the number of worlds, the worlds are spread over them.
    """
    if not isinstance(in_axes, tuple | list) or len(in_axes) != 4:
        raise ValueError(f"in_axes must have four entries, for system, integrator, state and controls; got {in_axes!r}")
    check_is_system(system)
    _check_dt(dt)
    state_axes = state_axes_of(state, in_axes[2])
    check_roles(integrator)
    controls = checked_law(controls)
    plain = is_plain(controls)
    arguments = (system, integrator, state, None if plain else controls)
    for name, part in zip(_ARGUMENTS, arguments, strict=True):
        check_arrays(name, part)
    leaves, structure = jax.tree.flatten(arguments)
    axes = leaf_axes((in_axes[0], in_axes[1], state_axes, in_axes[3]), arguments)
    worlds = count_worlds(leaves, axes)
    # Where the leaves of a world are stacked, so are the sides of its requirements.
    seen = jax.tree.unflatten(structure, [x if k is None else Stacked(x, k) for x, k in zip(leaves, axes, strict=True)])
    for name, part in zip(_ARGUMENTS, seen, strict=True):
        check_requirements(name, part)
    leaves = spread_over_devices(leaves, axes, worlds)
    batched_controls = isinstance(controls, jax.Array | np.ndarray) and axes[-1] is not None
    plan = _plan(controls, steps, save_every, segment, return_memory, time_axis=1 if batched_controls else 0)
    if plain:
        first = [jnp.take(x, 0, axis=k) if k is not None else x for x, k in zip(leaves, axes, strict=True)]
        law = as_law(controls, checked_state(jax.tree.unflatten(structure, first)[2]))
        captured = jax.tree.leaves(law)
        structure = jax.tree.structure((*arguments[:3], law))
        leaves, axes = [*leaves, *captured], [*axes, *[None] * len(captured)]
    return _batch_rollout(leaves, dt, memory, structure, tuple(axes), worlds, plan)


# The plan of a rollout: counts only, so that it can be static.


@jax.tree_util.register_static
class _Plan(tuple[int, ...]):
    """(steps, save_every, segment, return_memory): segment is 0 for none."""

    __slots__ = ()


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return int(value)


def _plan(controls: Any, steps: int | None, save_every: int, segment: int | None, return_memory: bool, time_axis: int) -> _Plan:
    if isinstance(controls, jax.Array | np.ndarray):
        if controls.ndim != 2 + time_axis:
            expected = "(worlds, steps, nu)" if time_axis else "(steps, nu)"
            raise ValueError(f"controls must have shape {expected}, got {controls.shape}")
        given = controls.shape[time_axis]
        if steps is not None and steps != given:
            raise ValueError(f"steps is {steps}, but controls hold {given} steps; leave steps out or make them agree")
        steps = given
    elif controls is not None and not callable(controls):
        raise TypeError(
            f"controls must be an array (steps, nu), a feedback law with __call__(t, state), or None; got {type(controls).__name__}"
        )
    if steps is None:
        raise ValueError("steps is needed where controls are not an array")
    steps, save_every = _positive("steps", steps), _positive("save_every", save_every)
    if steps % save_every:
        raise ValueError(f"save_every = {save_every} must divide steps = {steps}")
    if segment is None:
        return _Plan((steps, save_every, 0, bool(return_memory)))
    segment = _positive("segment", segment)
    if steps % segment or (segment % save_every and save_every % segment):
        raise ValueError(f"segment = {segment} must divide steps = {steps}, and divide or be divided by save_every = {save_every}")
    return _Plan((steps, save_every, segment, bool(return_memory)))


def _check_dt(dt: Any) -> None:
    if not isinstance(dt, int | float | np.number | np.ndarray | jax.Array):
        raise TypeError(f"dt must be a number, the step in s, got {dt!r}")
    if jnp.ndim(dt) != 0:
        raise ValueError(f"dt must be a single number, got shape {jnp.shape(dt)}")
    if isinstance(dt, Tracer):
        return
    value = np.asarray(dt)  # Comparing a JAX array would be traced inside of jit, even where its value is known.
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"dt must be positive and finite, got {dt}")


# The scan.


@partial(jax.jit, static_argnums=6)
def _rollout(system: Any, integrator: Any, state: Any, controls: Any, dt: Any, memory: Any, plan: _Plan) -> Any:
    check_fit(system, state)
    dt = jnp.asarray(dt, state.q.dtype)
    memory = integrator.init(system, state) if memory is None else memory
    law = controls if callable(controls) else None

    def step(at: State, carried: Any, status: Any, u: Any, t_next: Any) -> Any:
        return guarded_step(system, integrator, at, carried, status, u if law is None else law, dt, t_next)

    return _scan(step, state, memory, None if callable(controls) else controls, dt, plan)


@partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _batch_rollout(leaves: list[Any], dt: Any, memory: Any, structure: Any, axes: tuple[int | None, ...], worlds: int, plan: _Plan) -> Any:
    last = [x if k is None else jnp.moveaxis(x, k, -1) for x, k in zip(leaves, axes, strict=True)]
    system, integrator, state, controls = jax.tree.unflatten(structure, last)
    last_axes = jax.tree.unflatten(structure, [None if k is None else -1 for k in axes])
    system_axes, integrator_axes, state_axes, controls_axes = last_axes
    q = jnp.asarray(state.q)
    state = State(jnp.asarray(state.t, q.dtype), q, jnp.asarray(state.v))
    dt = jnp.asarray(dt, state.q.dtype)

    def spread(x: Any, axis: int | None) -> Any:
        return x if axis is not None else jnp.broadcast_to(x[..., None], (*x.shape, worlds))

    # Every world has a time of its own, because a failed world stops its clock.
    state = State(*(spread(getattr(state, name), getattr(state_axes, name)) for name in ("t", "q", "v")))

    def init(s: Any, i: Any, x: Any) -> Any:
        check_fit(s, checked_state(x))
        return i.init(s, x)

    if memory is None:
        start_axes = (system_axes, integrator_axes, -1)
        memory = jax.vmap(init, in_axes=start_axes, out_axes=-1, axis_size=worlds)(system, integrator, state)
    else:
        memory = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), memory)
    law, law_axes, input_axes = (controls, controls_axes, None) if callable(controls) else (None, None, controls_axes)

    def one(s: Any, i: Any, x: Any, m: Any, status: Any, feedback: Any, u: Any, t_next: Any) -> Any:
        return guarded_step(s, i, x, m, status, u if feedback is None else feedback, dt, t_next)

    vectorized = jax.vmap(
        one,
        in_axes=(system_axes, integrator_axes, -1, -1, -1, law_axes, input_axes, -1),
        out_axes=-1,
        axis_size=worlds,
    )

    def step(at: State, carried: Any, status: Any, u: Any, t_next: Any) -> Any:
        return vectorized(system, integrator, at, carried, status, law, u, t_next)

    trajectory = _scan(step, state, memory, None if law is not None else controls, dt, plan)
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), trajectory)


def _scan(step: Any, state: State, memory: Any, inputs: Any, dt: Any, plan: _Plan) -> Any:
    """Runs the nested scans: segments of blocks of steps, or blocks of segments of steps."""
    steps, save_every, segment, return_memory = plan
    checkpointed = jax.checkpoint(step, policy=jax.checkpoint_policies.save_only_these_names(ROOT))
    t0 = state.t

    def one_step(carry: Any, u: Any) -> tuple[Any, None]:
        count, at, carried, info = carry
        # Time from the count, not by summation: in single precision the sum would drift.
        t_next = t0 + (count + 1).astype(dt.dtype) * dt
        new, carried, now = checkpointed(at, carried, info.status, u, t_next)
        info = dataclasses.replace(
            now,
            violation=jnp.maximum(info.violation, now.violation),
            velocity_violation=jnp.maximum(info.velocity_violation, now.velocity_violation),
            iterations=jnp.maximum(info.iterations, now.iterations),
        )
        return (count + 1, new, carried, info), None

    def run_steps(carry: Any, us: Any, length: int) -> Any:
        return _repeat(one_step, carry, us, length)[0]

    def block(carry: Any, us: Any) -> tuple[Any, Any]:
        count, at, carried, info = carry
        carry = (count, at, carried, _restarted(info))
        if 0 < segment < save_every:
            carry, _ = _repeat(
                jax.checkpoint(lambda c, x: (run_steps(c, x, segment), None)),
                carry,
                _grouped(us, save_every // segment),
                save_every // segment,
            )
        else:
            carry = run_steps(carry, us, save_every)
        return carry, Trajectory(carry[1], carry[3])

    first_input = None if inputs is None else jax.tree.map(lambda x: x[0], inputs)
    status = jnp.zeros_like(t0, dtype=jnp.int32)
    shapes = jax.eval_shape(step, state, memory, status, first_input, t0)[2]
    info = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    carry = (jnp.zeros((), jnp.int32), state, memory, info)
    blocks = _grouped(inputs, steps // save_every)
    if segment < save_every or segment == 0:
        last, trajectory = _repeat(block, carry, blocks, steps // save_every)
    else:
        inner, outer = segment // save_every, steps // segment
        last, nested = _repeat(jax.checkpoint(lambda c, x: _repeat(block, c, x, inner)), carry, _grouped(blocks, outer), outer)
        trajectory = jax.tree.map(lambda x: x.reshape(outer * inner, *x.shape[2:]), nested)
    return (trajectory, last[2]) if return_memory else trajectory


def _repeat(body: Any, carry: Any, xs: Any, length: int) -> tuple[Any, Any]:
    """Returns what `lax.scan` returns; a single repetition is not wrapped in a loop."""
    if length > 1:
        return jax.lax.scan(body, carry, xs, length=length)
    carry, y = body(carry, jax.tree.map(lambda x: x[0], xs))
    return carry, jax.tree.map(lambda x: x[None], y)


def _grouped(xs: Any, groups: int) -> Any:
    """Returns xs with its leading axis split into (groups, rest)."""
    return jax.tree.map(lambda x: x.reshape(groups, x.shape[0] // groups, *x.shape[1:]), xs)


def _restarted(info: StepInfo) -> StepInfo:
    """Returns the info with its maxima set back to zero; the status stays."""
    fresh = jax.tree.map(jnp.zeros_like, info)
    return dataclasses.replace(fresh, status=info.status)

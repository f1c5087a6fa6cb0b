"""One step that cannot hurt anybody: a failed world keeps its last good state, and its gradients stay finite.

Values are easy: `where(good, new, old)`. Derivatives are not: the derivative of a failed step is NaN or infinite, and 0 * NaN is NaN, so
that one failed world would destroy the gradient with respect to everything that worlds share. The rule here is to cut the
failed step out on both sides: tangents are set to zero *before* they enter its linearization and selected away after it. Transposed,
cotangents are zeroed on both sides too. A frozen world then passes on the derivative of its last good state and nothing else.

That is right for worlds among others. A single world that failed has no others to spare: there a finite gradient, zero perhaps, would pass
for the gradient of what was asked. `undefined_if_failed` makes it NaN.

The linearization of a `Point` follows from its state. Under differentiation it is computed anew from the state that it belongs to, so that
reverse mode stores states only; a frozen world need not keep it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.batching.axes import worlds_first
from jaxdae.batching.varying import varying_with
from jaxdae.integrators.interface import StepInfo
from jaxdae.integrators.method import of_points
from jaxdae.linearization import Point
from jaxdae.moving import Moving, is_float, is_still, zero_tangent
from jaxdae.status import Status, first_failure


def checked_memory(memory: Any, begun: Any) -> Any:
    """Returns the memory with which a rollout goes on.

    Args:
        memory: that of the trajectory before.
        begun: what the method begins with.

    Raises:
        ValueError: a memory that is not that of the method.
    """
    given, wanted = ([jnp.shape(x) for x in jax.tree.leaves(tree)] for tree in (memory, begun))
    if jax.tree.structure(memory) != jax.tree.structure(begun) or given != wanted:
        raise ValueError(
            "memory must be the memory of a trajectory of this system with this integrator, rollout(memory=trajectory.memory); None begins"
            f" anew. Got {jax.tree.structure(memory)} of shapes {given}"
        )
    return memory


def _still(point: Point) -> Point:
    """Returns the point with its linearization constant under differentiation, and without that of a stage, which nobody needs any more."""
    return Point(point.state, jax.lax.stop_gradient(point.linearization), estimate=point.estimate)


def _motion(point: Point) -> tuple[Any, Any]:
    """Returns what of a point belongs to the motion: the state, and the estimate where there is one."""
    return point.state, point.estimate


@jax.jit
def _attempt(arguments: Any) -> tuple[Point, Any, StepInfo]:
    """Returns (point, memory, info) of the step. Compiled as a unit, so that JAX traces and differentiates it once."""
    system, integrator, point, memory, _, u, dt = arguments
    new, memory, info = of_points(integrator).advance(system, point, memory, u, dt)
    condition, jumps = system.condition(new.state.t, new.state.q), system.jumps(point.state, new.state)
    if condition is not None:
        info = dataclasses.replace(info, status=first_failure(info.status, condition))
    if jumps is not None:
        jumped = jnp.where(jumps, Status.OUT_OF_RANGE, Status.OK).astype(info.status.dtype)
        info = dataclasses.replace(info, status=first_failure(info.status, jumped))
    return _still(new), memory, info


def _good(status: Any, result: Any) -> Any:
    """Return whether state and residuals are finite, and whether a good world also reports OK."""
    point, memory, info = result
    floats = [x for x in jax.tree.leaves((_motion(point), memory)) if is_float(x)]
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in floats]))
    # Rows that are NaN do not change a motion that only their second derivatives reach. Other statuses know better.
    finite &= jnp.isfinite(info.violation + info.velocity_violation) | (info.status != Status.OK)
    return finite, finite & (info.status == Status.OK) & (status == Status.OK)


def _select(status: Any, old: tuple[Point, Any], result: Any) -> Any:
    """Returns the result where it is good, else the old state and memory, with the status that says why."""
    point, memory, info = result
    finite, good = _good(status, result)
    # A method that says SINGULAR or CONFLICTING_ROWS knows better where the NaN comes from.
    told = finite | (info.status == Status.SINGULAR) | (info.status == Status.CONFLICTING_ROWS)
    now: Any = jnp.where(told, info.status, jnp.asarray(Status.NONFINITE, info.status.dtype))
    before = (_motion(old[0]), old[1], jax.tree.map(jnp.zeros_like, info))
    (state, estimate), memory, info = jax.tree.map(lambda new, x: jnp.where(good, new, x), (_motion(point), memory, info), before)
    info = dataclasses.replace(info, status=first_failure(status, now))
    return Point(state, point.linearization, estimate=estimate), memory, info


@jax.custom_jvp
def _guarded(arguments: Any) -> tuple[Point, Any, StepInfo]:
    return worlds_first(_select(arguments[4], arguments[2:4], _attempt(arguments)))


def _guarded_jvp(primals: Any, tangents: Any) -> Any:
    (arguments,), (dots,) = primals, tangents
    moving = Moving.of(arguments, dots)

    def step(*values: Any) -> Any:
        system, integrator, point, *rest = moving.filled(values)
        point, memory, info = _attempt((system, integrator, point.again(system), *rest))
        results, structure = jax.tree.flatten((_motion(point), memory, info))
        return [x for x in results if is_float(x)], (results, structure, point.linearization)

    # Inside of `jax.shard_map` a world's `good` differs from device to device, and with it the tangents of what all worlds share.
    values, moved = varying_with((moving.values, moving.tangents), primals)
    _, push, (results, structure, here) = jax.linearize(step, *values, has_aux=True)
    (state, estimate), memory, info = jax.tree.unflatten(structure, results)
    result, status, old = (Point(state, here, estimate=estimate), memory, info), arguments[4], arguments[2:4]
    _, good = _good(status, result)
    pushed = iter(push(*[jnp.where(good, dx, jnp.zeros_like(x)) for x, dx in zip(values, moved, strict=True)]))

    point, memory, info = out = worlds_first(_select(status, old, result))
    old_dots = jax.tree.leaves((_motion(dots[2]), dots[3]), is_leaf=is_still)
    out_leaves, out_structure = jax.tree.flatten((_motion(point), memory, info))
    dot_out: list[Any] = []
    for k, x in enumerate(out_leaves):
        if not is_float(x):
            dot_out.append(zero_tangent(x))
            continue
        dot = next(pushed)
        kept = old_dots[k] if k < len(old_dots) and not is_still(old_dots[k]) else jnp.zeros_like(dot)
        dot_out.append(jnp.where(good, dot, kept))
    (state_dot, estimate_dot), memory_dot, info_dot = jax.tree.unflatten(out_structure, dot_out)
    # Not selected by `good`: a leaf that all worlds share would have a tangent for each, which vmap does not expect.
    linear_dot = jax.tree.map(lambda x: jnp.zeros_like(x) if is_float(x) else zero_tangent(x), point.linearization)
    return out, (Point(state_dot, linear_dot, estimate=estimate_dot), memory_dot, info_dot)


_guarded.defjvp(_guarded_jvp, symbolic_zeros=True)


def guarded_step(system: Any, integrator: Any, point: Point, memory: Any, status: Any, u: Any, dt: Any) -> tuple[Point, Any, StepInfo]:
    """Returns the result of the integrator's step, or the old state and memory where the world has failed, now or before.

    Args:
        system: the mechanical system.
        integrator: any integrator.
        point: the state before the step, with what was factorized there.
        memory: the integrator's memory before the step.
        status: the world's status () before the step; anything but OK keeps it frozen.
        u: input array, feedback law or None.
        dt: the step in s.
    """
    new, memory, info = _guarded((system, integrator, _still(point), memory, status, u, dt))
    return _still(new), memory, info


@jax.custom_jvp
def _undefined(arguments: Any, result: Any, failed: Any) -> Any:
    return result


def _undefined_jvp(primals: Any, tangents: Any) -> Any:
    _, result, failed = primals
    moving = [dx for dx in jax.tree.leaves(tangents[0], is_leaf=is_still) if not is_still(dx)]
    leaves, structure = jax.tree.flatten(result)
    dots = jax.tree.leaves(tangents[1], is_leaf=is_still)
    out = []
    for x, dx in zip(leaves, dots, strict=True):
        if not is_float(x):
            out.append(zero_tangent(x))
            continue
        dx = jnp.zeros_like(x) if is_still(dx) else dx
        if moving:
            total = sum((jnp.sum(d).astype(x.dtype) for d in moving), jnp.zeros((), x.dtype))
            there = failed.reshape(failed.shape + (1,) * (x.ndim - failed.ndim))
            # A product, which has a transpose: zero times NaN is NaN, so that no loss is flat enough to hide a failure.
            dx = dx + jnp.where(there, jnp.nan, jnp.zeros_like(x)) * total
        out.append(dx)
    return result, jax.tree.unflatten(structure, out)


_undefined.defjvp(_undefined_jvp, symbolic_zeros=True)


def undefined_if_failed(arguments: Any, result: Any, failed: Any) -> Any:
    """Returns the result; its derivative with respect to the arguments is NaN in the entries that failed.

    In reverse mode that makes the gradient NaN where any entry failed, whatever the loss looks at.

    Args:
        arguments: all that the result was computed from: a pytree.
        result: a pytree whose leaves begin with the axes of `failed`.
        failed: booleans.
    """
    return _undefined(arguments, result, jax.lax.stop_gradient(failed))

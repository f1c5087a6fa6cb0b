"""Freeze failed worlds and keep their gradients finite.

A failed world keeps its last good state. The values only need `where(good, new, old)`. The derivatives need
more: the derivative of a failed step is NaN or infinite, and 0 * NaN is NaN, so one failed world would
destroy the gradient with respect to all data that worlds share. The derivative rule here cuts out the failed
step on both sides: it sets tangents to zero *before* they enter the linearization of the step, and discards
them after it. The transpose also sets cotangents to zero on both sides. A frozen world then passes on the
derivative of its last good state and nothing else.

This is right for one world of a batch. A single world that failed is different: a finite gradient, perhaps
zero, would look like the requested gradient. `undefined_if_failed` makes it NaN.

The linearization of a `Point` follows from its state. Under differentiation it is recomputed from that state,
so reverse mode stores only states, and a frozen world need not store its linearization.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.compile.batch_axis import worlds_first
from jaxdae.compile.sharding import varying_with
from jaxdae.compile.zero_tangents import Moving, is_float, is_still, zero_tangent
from jaxdae.integrators.integrator import StepInfo
from jaxdae.integrators.method import of_points
from jaxdae.systems.linearization import Point
from jaxdae.systems.status import Status, first_failure


def checked_memory(memory: Any, begun: Any) -> Any:
    """Return the memory with which a rollout continues.

    Args:
        memory: the memory of the preceding trajectory.
        begun: the initial memory of the method.

    Raises:
        ValueError: the structure or shapes of the memory do not match the method.
    """
    given, wanted = ([jnp.shape(x) for x in jax.tree.leaves(tree)] for tree in (memory, begun))
    if jax.tree.structure(memory) != jax.tree.structure(begun) or given != wanted:
        raise ValueError(
            "memory must be the memory of a trajectory of this system with this integrator, "
            f"rollout(memory=trajectory.memory), or None to start fresh. Got {jax.tree.structure(memory)} "
            f"of shapes {given}"
        )
    return memory


def _still(point: Point) -> Point:
    """Return the point with a linearization that is constant under differentiation.

    Drop the linearization of the last stage, which is no longer needed.
    """
    return Point(point.state, jax.lax.stop_gradient(point.linearization), estimate=point.estimate)


def _motion(point: Point) -> tuple[Any, Any]:
    """Return the parts of a point that belong to the motion: the state, and the estimate if it has one."""
    return point.state, point.estimate


@jax.jit
def _attempt(arguments: Any) -> tuple[Point, Any, StepInfo]:
    """Return (point, memory, info) of the step. Jitted, so that JAX traces and differentiates it once."""
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
    # The motion may be finite although rows are NaN, if only their second derivatives affect it. A status
    # other than OK already states the cause.
    finite &= jnp.isfinite(info.violation + info.velocity_violation) | (info.status != Status.OK)
    return finite, finite & (info.status == Status.OK) & (status == Status.OK)


def _select(status: Any, old: tuple[Point, Any], result: Any) -> Any:
    """Return the result if it is good, else the old state and memory, with the status of the failure."""
    point, memory, info = result
    finite, good = _good(status, result)
    # SINGULAR and CONFLICTING_ROWS state the cause of a NaN more precisely than NONFINITE.
    told = finite | (info.status == Status.SINGULAR) | (info.status == Status.CONFLICTING_ROWS)
    now: Any = jnp.where(told, info.status, jnp.asarray(Status.NONFINITE, info.status.dtype))
    before = (_motion(old[0]), old[1], jax.tree.map(jnp.zeros_like, info))
    (state, estimate), memory, info = jax.tree.map(
        lambda new, x: jnp.where(good, new, x), (_motion(point), memory, info), before
    )
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

    # Inside `jax.shard_map`, `good` varies over the devices, and so do the tangents of data that all worlds
    # share.
    values, moved = varying_with((moving.values, moving.tangents), primals)
    _, push, (results, structure, here) = jax.linearize(step, *values, has_aux=True)
    (state, estimate), memory, info = jax.tree.unflatten(structure, results)
    result, status, old = (Point(state, here, estimate=estimate), memory, info), arguments[4], arguments[2:4]
    _, good = _good(status, result)
    pushed = iter(
        push(*[jnp.where(good, dx, jnp.zeros_like(x)) for x, dx in zip(values, moved, strict=True)])
    )

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
    # Do not select by `good`: a leaf that all worlds share would get a tangent per world, which `jax.vmap`
    # does not expect.
    linear_dot = jax.tree.map(
        lambda x: jnp.zeros_like(x) if is_float(x) else zero_tangent(x), point.linearization
    )
    return out, (Point(state_dot, linear_dot, estimate=estimate_dot), memory_dot, info_dot)


_guarded.defjvp(_guarded_jvp, symbolic_zeros=True)


def guarded_step(
    system: Any, integrator: Any, point: Point, memory: Any, status: Any, u: Any, dt: Any
) -> tuple[Point, Any, StepInfo]:
    """Return the result of the integrator's step, or the old state and memory if the world has failed.

    The failure may occur in this step or before it.

    Args:
        system: the mechanical system.
        integrator: any integrator.
        point: the state before the step, with its factorizations.
        memory: the integrator's memory before the step.
        status: the world's status () before the step; any status but OK keeps the world frozen.
        u: input array, feedback law or None.
        dt: the step size in s.
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
            # A product has a transpose. Zero times NaN is NaN, so even a flat loss does not hide a failure.
            dx = dx + jnp.where(there, jnp.nan, jnp.zeros_like(x)) * total
        out.append(dx)
    return result, jax.tree.unflatten(structure, out)


_undefined.defjvp(_undefined_jvp, symbolic_zeros=True)


def undefined_if_failed(arguments: Any, result: Any, failed: Any) -> Any:
    """Return the result; its derivative with respect to the arguments is NaN in the failed entries.

    In reverse mode, the gradient is NaN if any entry failed, whichever entries the loss reads.

    Args:
        arguments: all inputs from which the result was computed, a pytree.
        result: a pytree whose leaves begin with the axes of `failed`.
        failed: booleans that mark the failed entries.
    """
    return _undefined(arguments, result, jax.lax.stop_gradient(failed))

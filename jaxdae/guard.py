"""One step that cannot hurt anybody: a failed world keeps its last good state, and its gradients stay finite.

Values are easy: `where(good, new, old)`. Derivatives are not: the derivative of a failed step is NaN or infinite, and 0 * NaN is NaN, so
that one failed world would destroy the gradient with respect to everything that worlds share. The rule here is to cut the
failed step out on both sides: tangents are set to zero *before* they enter its linearization and selected away after it. Transposed,
cotangents are zeroed on both sides too. A frozen world then passes on the derivative of its last good state and nothing else.

That is right for worlds among others. A single world that failed has no others to spare: there a finite gradient, zero perhaps, would pass
for the gradient of what was asked. `undefined_if_failed` makes it NaN.

A `Linearization` in the memory is a cache: what it holds follows from the state. Under differentiation it is computed anew from the state
that it belongs to, so that reverse mode stores states only; a frozen world need not keep it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.batching.axes import worlds_first
from jaxdae.integrators.interface import StepInfo
from jaxdae.linearization import Linearization, linearize
from jaxdae.moving import Moving, is_float, is_still, zero_tangent
from jaxdae.status import Status
from jaxdae.system import State, System


def _is_cache(x: Any) -> bool:
    return isinstance(x, Linearization)


def without_caches(memory: Any) -> Any:
    """Returns the memory with () in the place of everything that follows from the state."""
    return jax.tree.map(lambda x: () if _is_cache(x) else x, memory, is_leaf=_is_cache)


def continued(memory: Any, begun: Any) -> Any:
    """Returns the memory of a rollout that goes on: what was carried, and the caches of a memory that begins at the same state.

    Args:
        memory: from `without_caches`.
        begun: what the method begins with at the state.

    Raises:
        ValueError: a memory that is not that of the method.
    """
    expected = without_caches(begun)
    given, wanted = ([jnp.shape(x) for x in jax.tree.leaves(tree)] for tree in (memory, expected))
    if jax.tree.structure(memory) != jax.tree.structure(expected) or given != wanted:
        raise ValueError(
            "memory must be the memory of a trajectory of this system with this integrator, rollout(memory=trajectory.memory); None begins"
            f" anew. Got {jax.tree.structure(memory)} of shapes {given}"
        )
    return jax.tree.map(lambda x, carried: x if _is_cache(x) else carried, begun, memory, is_leaf=_is_cache)


def _recomputed(memory: Any, system: System, state: State) -> Any:
    return jax.tree.map(lambda x: linearize(system, state, x.solver) if _is_cache(x) else x, memory, is_leaf=_is_cache)


def _still(memory: Any) -> Any:
    """Returns the memory with its caches constant under differentiation."""
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if _is_cache(x) else x, memory, is_leaf=_is_cache)


@jax.jit
def _attempt(arguments: Any) -> tuple[State, Any, StepInfo]:
    """Returns (state, memory, info) of the step. Compiled as a unit, so that JAX traces and differentiates it once."""
    system, integrator, state, memory, _, u, dt, t_next = arguments
    new, new_memory, info = integrator.step(system, state, memory, u, dt)
    return dataclasses.replace(new, t=t_next), new_memory, info


def _good(status: Any, result: Any) -> Any:
    """Returns whether the world was good before and the step's result is finite and reports OK."""
    state, memory, info = result
    floats = [x for x in jax.tree.leaves((state, without_caches(memory))) if is_float(x)]
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in floats]))
    return finite, finite & (info.status == Status.OK) & (status == Status.OK)


def _select(status: Any, old: tuple[Any, Any], result: Any) -> Any:
    """Returns the result where it is good, else the old state and memory, with the status that says why."""
    state, memory, info = result
    finite, good = _good(status, result)
    # A method that says SINGULAR knows better where the NaN comes from.
    told = finite | (info.status == Status.SINGULAR)
    now: Any = jnp.where(told, info.status, jnp.asarray(Status.NONFINITE, info.status.dtype))
    zeros = jax.tree.map(jnp.zeros_like, info)

    def choose(new: Any, x: Any) -> Any:
        return new if _is_cache(new) else jnp.where(good, new, x)

    kept = jax.tree.map(choose, (state, memory, info), (*old, zeros), is_leaf=_is_cache)
    return kept[0], kept[1], dataclasses.replace(kept[2], status=jnp.where(status == Status.OK, now, status))


@jax.custom_jvp
def _guarded(arguments: Any) -> tuple[State, Any, StepInfo]:
    return worlds_first(_select(arguments[4], arguments[2:4], _attempt(arguments)))


def _guarded_jvp(primals: Any, tangents: Any) -> Any:
    (arguments,), (dots,) = primals, tangents
    moving = Moving.of(arguments, dots)

    def step(*values: Any) -> Any:
        system, integrator, state, memory, *rest = moving.filled(values)
        attempt = _attempt((system, integrator, state, _recomputed(memory, system, state), *rest))
        results, result_structure = jax.tree.flatten((attempt[0], _still(attempt[1]), attempt[2]))
        floats = [x for x in results if is_float(x)]
        return floats, (results, result_structure)

    _, push, (results, result_structure) = jax.linearize(step, *moving.values, has_aux=True)
    result = jax.tree.unflatten(result_structure, results)
    status, old = arguments[4], arguments[2:4]
    _, good = _good(status, result)
    pushed = iter(push(*[jnp.where(good, dx, jnp.zeros_like(x)) for x, dx in zip(moving.values, moving.tangents, strict=True)]))

    out = worlds_first(_select(status, old, result))
    old_dots = jax.tree.leaves((dots[2], dots[3]), is_leaf=is_still)
    out_leaves, out_structure = jax.tree.flatten(out)
    cached = jax.tree.map(lambda x: jax.tree.map(lambda _: _is_cache(x), x), out, is_leaf=_is_cache)
    is_cached = jax.tree.leaves(cached)
    dot_out: list[Any] = []
    for k, x in enumerate(out_leaves):
        if not is_float(x):
            dot_out.append(zero_tangent(x))
            continue
        dot = next(pushed)
        if is_cached[k]:
            # Not selected by `good`: a leaf that all worlds share would have a tangent for each, which vmap does not expect.
            dot_out.append(jnp.zeros_like(x))
            continue
        kept = old_dots[k] if k < len(old_dots) and not is_still(old_dots[k]) else jnp.zeros_like(dot)
        dot_out.append(jnp.where(good, dot, kept))
    return out, jax.tree.unflatten(out_structure, dot_out)


_guarded.defjvp(_guarded_jvp, symbolic_zeros=True)


def guarded_step(
    system: Any, integrator: Any, state: State, memory: Any, status: Any, u: Any, dt: Any, t_next: Any
) -> tuple[State, Any, StepInfo]:
    """Returns the result of `integrator.step`, or the old state and memory where the world has failed, now or before.

    Args:
        system: the mechanical system.
        integrator: any integrator.
        state: the state before the step.
        memory: the integrator's memory before the step.
        status: the world's status () before the step; anything but OK keeps it frozen.
        u: input array, feedback law or None.
        dt: the step in s.
        t_next: the time in s after the step.
    """
    new, memory, info = _guarded((system, integrator, state, _still(memory), status, u, dt, t_next))
    return new, _still(memory), info


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

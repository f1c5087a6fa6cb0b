"""Feedback laws with and without memory, and their composition.

A law is a pytree with `__call__(t, state)` that returns the input u. Its gains are leaves, and
`rollout(..., controls=law)` evaluates it at every stage. A law with a memory (the integral of a PID) must be
evaluated exactly once per step and in order. It has two methods instead:

    init(system, state) -> memory                     before the first step
    update(t, state, memory, dt) -> (u, memory)       once per step

Such a law runs inside `Sampled(integrator, law)`, which holds u over the step as a digital controller does.
Sums and limits of laws pass the memory on. Their property `has_memory` states whether any of their laws has
one.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

import jax.numpy as jnp

from jaxdae.base.dataclass import function_field, pytree
from jaxdae.base.requirements import not_above, offers
from jaxdae.integrators.integrator import checked_input
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Input, Leaf


class Law(Protocol):
    """A feedback law without memory; a pytree."""

    def __call__(self, t: Any, state: State) -> Input:
        """Return the input u (nu,)."""
        ...


class MemoryLaw(Protocol):
    """A feedback law with a memory; a pytree that runs inside `Sampled`."""

    def init(self, system: AnySystem, state: State) -> Any:
        """Return the memory before the first step: a pytree of arrays."""
        ...

    def update(self, t: Any, state: State, memory: Any, dt: Any) -> tuple[Input, Any]:
        """Return the input u (nu,) for the interval from t to t + dt, and the memory at its end."""
        ...


def is_law(law: Any) -> bool:
    """Return whether an object is a feedback law, with or without memory."""
    return offers(law, "__call__") or offers(law, "init", "update")


def has_memory(law: Any) -> bool:
    """Return the property `has_memory` of a law if defined, else whether the law has `update`."""
    return law.has_memory if offers(law, "has_memory") else offers(law, "update")


def init_law(law: Any, system: AnySystem, state: State) -> Any:
    """Return the memory of a law before the first step; () for a law without memory."""
    return law.init(system, state) if offers(law, "update") else ()


def update_law(law: Any, t: Any, state: State, memory: Any, dt: Any) -> tuple[Input, Any]:
    """Return (u, memory) of a law with or without memory."""
    return law.update(t, state, memory, dt) if offers(law, "update") else (law(t, state), memory)


def refuse_call(law: Any) -> NoReturn:
    """Raise TypeError for the call of a law with memory as a law without memory."""
    raise TypeError(
        f"{type(law).__name__} has memory, so it cannot be passed as controls; wrap the integrator, "
        "Sampled(integrator, law), and omit controls"
    )


@pytree
class Sum:
    """The sum of laws, such as a PD and the compensation of gravity.

    Attributes:
        laws: a tuple of laws with the same inputs; some may have a memory.
    """

    laws: tuple[Any, ...] = function_field()

    def requirements(self) -> Any:
        """Yield the conditions on the laws; see `jaxdae.base.requirements`."""
        laws = self.laws
        yield (
            isinstance(laws, tuple | list) and all(map(is_law, laws)),
            "laws must be a tuple of feedback laws, such as (PD(...), law)",
        )

    @property
    def has_memory(self) -> bool:
        """Return whether any of the laws has a memory."""
        return any(map(has_memory, self.laws))

    def __call__(self, t: Any, state: State) -> Input:
        """Return the sum of the inputs (nu,)."""
        if self.has_memory:
            refuse_call(next(part for part in self.laws if has_memory(part)))
        return self._total([checked_input(law, law(t, state)) for law in self.laws])

    def init(self, system: AnySystem, state: State) -> tuple[Any, ...]:
        """Return the memories of the laws."""
        return tuple(init_law(law, system, state) for law in self.laws)

    def update(self, t: Any, state: State, memory: tuple[Any, ...], dt: Any) -> tuple[Input, tuple[Any, ...]]:
        """Return the sum of the inputs (nu,), and the memories."""
        pairs = [update_law(law, t, state, part, dt) for law, part in zip(self.laws, memory, strict=True)]
        return self._total([u for u, _ in pairs]), tuple(part for _, part in pairs)

    def _total(self, inputs: list[Any]) -> Input:
        if not inputs:
            raise ValueError("Sum.laws must hold at least one law")
        shapes = [jnp.shape(u) for u in inputs]
        if len(set(shapes)) > 1:
            raise ValueError(f"Sum.laws must return inputs of one shape, got {shapes}")
        return sum(inputs[1:], inputs[0])


@pytree
class Saturated:
    """A law whose inputs stay within limits.

    Attributes:
        law: the law, with or without memory. A PID has its own limits, which stop its integral.
        lower: smallest inputs, a number or (nu,).
        upper: largest inputs.

    Differentiable almost everywhere: with respect to the law if no limit is active, and with respect to an
    active limit. The derivative with respect to the law is then zero. Gradient descent therefore cannot
    improve a law that is always saturated.
    """

    law: Any = function_field()
    lower: Leaf
    upper: Leaf

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield is_law(self.law), "law must be a feedback law, such as PD(...)"
        yield not_above(self.lower, self.upper), "lower must not be above upper"

    @property
    def has_memory(self) -> bool:
        """Return whether the law has a memory."""
        return has_memory(self.law)

    def __call__(self, t: Any, state: State) -> Input:
        """Return the limited inputs (nu,)."""
        return clip(checked_input(self.law, self.law(t, state)), self.lower, self.upper)

    def init(self, system: AnySystem, state: State) -> Any:
        """Return the memory of the law."""
        return init_law(self.law, system, state)

    def update(self, t: Any, state: State, memory: Any, dt: Any) -> tuple[Input, Any]:
        """Return the limited inputs (nu,), and the memory of the law."""
        u, memory = update_law(self.law, t, state, memory, dt)
        return clip(checked_input(self.law, u), self.lower, self.upper), memory


def clip(u: Any, lower: Any, upper: Any) -> Any:
    """Return u clipped to its limits; None means unlimited.

    Raises:
        ValueError: limits that are neither numbers nor of the shape of u.
    """
    u = jnp.asarray(u)
    for name, limit in (("lower", lower), ("upper", upper)):
        if limit is None:
            continue
        if jnp.shape(limit) not in ((), u.shape):
            raise ValueError(
                f"{name} must be a number or have the shape of the input {u.shape}, got {jnp.shape(limit)}"
            )
        limit = jnp.asarray(limit, u.dtype)
        u = jnp.maximum(u, limit) if name == "lower" else jnp.minimum(u, limit)
    return u

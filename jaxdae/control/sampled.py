"""Laws that are evaluated once per step and held: a digital controller, and the memory of laws."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import function_field, pytree, static
from jaxdae.base.requirements import checked_count
from jaxdae.control.law import init_law, is_law, update_law
from jaxdae.integrators.integrator import Integrator, StepInfo, checked_input, input_at
from jaxdae.integrators.method import PointWrapping
from jaxdae.systems.linearization import Point
from jaxdae.systems.system import AnySystem, State


@pytree
class Sampled(PointWrapping):
    """Any integrator, driven by a law that is evaluated at the start of a step and held (zero-order hold).

    The memory of the law is part of the integrator's memory. Each world in a batch therefore has its own
    memory, a failed world freezes it, and it is differentiated like the state. Wrap `Sampled` around
    everything else: `Sampled(Projected(RungeKutta.rk4()), law)`. If the rollout has `controls`, they are
    added to the input and also held.

    Feedback that is held for T = every dt has its own stability limit, independent of the integrator: a
    velocity gain of c per unit of mass is stable up to c T = 2. Beyond the limit rollouts have the status
    `UNSTABLE`, see `jaxdae.integrators.sampled_feedback`. This check evaluates the law at fixed time and
    memory.

    Attributes:
        integrator: any integrator.
        law: a feedback law, with or without memory.
        every: number of steps between evaluations of the law (static); the sampling period is every dt.

    Raises:
        ValueError: `every` is not positive.
    """

    samples: ClassVar[bool] = True
    integrator: Integrator
    law: Any = function_field()
    every: int = static(one_of=int, default=1)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield is_law(self.law), "law must be a feedback law, such as PD(...)"

    def sampled_law(self, memory: Any, dt: Any) -> tuple[Any, int] | None:
        """Return the law at its memory, and `every`; None for a law with `examined = False`."""
        if not getattr(self.law, "examined", True):
            return None
        return lambda t, state: checked_input(
            self.law, update_law(self.law, t, state, memory[1], self.every * dt)[0]
        ), self.every

    def init(self, system: AnySystem, state: State) -> Any:
        """Return the memories of integrator and law; for `every` > 1 also the held input and a step count."""
        checked_count("Sampled.every", self.every)
        inner, memory = self.integrator.init(system, state), init_law(self.law, system, state)
        if self.every == 1:
            return inner, memory
        dt = jnp.ones((), state.q.dtype)
        held = jax.eval_shape(lambda: update_law(self.law, state.t, state, memory, dt)[0])
        return (
            inner,
            memory,
            jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), held),
            jnp.zeros((), jnp.int32),
        )

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt, the memory, and the report of the integrator."""
        state, (inner, remembered) = point.state, memory[:2]
        with jax.named_scope("feedback"):
            period = self.every * dt

            def evaluated() -> tuple[Any, Any]:
                now, updated = update_law(self.law, state.t, state, remembered, period)
                return checked_input(self.law, now), updated

            rest: tuple[Any, ...] = ()
            if self.every == 1:
                now, updated = evaluated()
            else:
                held, count = memory[2:]
                # Without a batch, the law costs nothing between its evaluations. Worlds of a batch may have
                # stopped at different steps.
                now, updated = jax.lax.cond(count % self.every == 0, evaluated, lambda: (held, remembered))
                rest = (now, count + 1)
            added = input_at(u, state)
        total = now if added is None else now + added
        new, inner, info = self.inner.advance(system, point, inner, total, dt)
        return new, (inner, updated, *rest), info

"""Any integrator, followed by a projection onto the constraint manifold.

The projection moves the state by no more than the local error of the step (up to a constant), so the order of the wrapped method is
kept (E. Hairer, C. Lubich, G. Wanner, "Geometric Numerical Integration", section IV.4).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp

from jaxdae._pytree import pytree
from jaxdae.integrators.interface import Integrator, StepInfo, step_info
from jaxdae.stabilization import PositionProjection, Projection
from jaxdae.status import Status
from jaxdae.system import State, System


@pytree
class Projected:
    """The step of `integrator`, then `projection`.

    Attributes:
        integrator: any integrator.
        projection: what is projected, in which metric; `Projection()` projects positions to round-off, then velocities.
    """

    integrator: Integrator
    projection: Projection = Projection()

    def init(self, system: System, state: State) -> Any:
        """Returns the memory of the wrapped integrator."""
        return self.integrator.init(system, state)

    def step(self, system: System, state: State, memory: Any, u: Any, dt: Any) -> tuple[State, Any, StepInfo]:
        """Returns the projected state after dt; status NOT_CONVERGED where an iterated projection leaves more than its tolerance."""
        estimate, memory, inner = self.integrator.step(system, state, memory, u, dt)
        new = self.projection.project(system, estimate, state)
        info = step_info(system, new, inner.a, inner.lam, status=inner.status)
        position = self.projection.position
        if not isinstance(position, PositionProjection):
            return new, memory, info
        closed = info.violation <= position.tolerance
        failed = jnp.where(closed | jnp.isnan(info.violation), Status.OK, Status.NOT_CONVERGED).astype(jnp.int32)
        return (
            new,
            memory,
            dataclasses.replace(
                info,
                iterations=inner.iterations + position.iterations,
                status=jnp.where(inner.status == Status.OK, failed, inner.status),
            ),
        )

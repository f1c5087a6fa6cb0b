"""Any integrator, followed by a projection onto the constraint manifold.

The projection moves the state by no more than the local error of the step (up to a constant), so the order of the wrapped method is
kept (E. Hairer, C. Lubich, G. Wanner, "Geometric Numerical Integration", section IV.4).

The velocity projection at the end of a step and the dynamics at the start of the next need the same factorization. It is handed on as
the integrator's memory, which makes one factorization less a step; with `Origin.PREVIOUS` the position projection uses it as well, and with
`Origin.STAGE` it uses that of the method's last stage.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae._pytree import pytree
from jaxdae.integrators.interface import Integrator, StepInfo, known_linearization, step_info
from jaxdae.linearization import linearize
from jaxdae.requirements import offers
from jaxdae.stabilization import Origin, PositionProjection, Projection
from jaxdae.status import Status
from jaxdae.system import State, System, default_tolerance


def _follows(part: Any) -> bool:
    """Returns whether a projection solves as the integrator does."""
    return part.solver is None


@pytree
class Projected:
    """The step of `integrator`, then `projection`.

    Attributes:
        integrator: any integrator.
        projection: what is projected, in which metric; `Projection()` projects positions to round-off, then velocities.
    """

    integrator: Integrator
    projection: Projection = Projection()

    def requirements(self) -> Any:
        """Yields what the fields have to satisfy; see `jaxdae.requirements`."""
        yield (
            offers(self.projection, "resolved"),
            "projection must be a Projection(position, velocity), with one of them None for the other alone",
        )

    def init(self, system: System, state: State) -> Any:
        """Returns the memory of the wrapped integrator, or the `Linearization` at the state where steps and projections share it."""
        memory = self.integrator.init(system, state)
        return linearize(system, state, self._solver) if memory == () and self._shares(system, state) else memory

    def step(self, system: System, state: State, memory: Any, u: Any, dt: Any) -> tuple[State, Any, StepInfo]:
        """Returns the projected state after dt; status NOT_CONVERGED where a projection does not reach the manifold.

        That is where an iterated position projection leaves more than its tolerance, or where velocities break the rows after their
        projection, |[g'; w]| > 1e-5 (1 + max |v|) (3.5e-4 in single precision): rows that contradict each other, or are far from affine.
        """
        before = known_linearization(memory)
        new, memory, inner = self.integrator.step(system, state, memory, u, dt)
        position, velocity = self.projection.resolved(self._solver)
        if position is not None:
            with jax.named_scope("position_projection"):
                known = {Origin.PREVIOUS: before, Origin.STAGE: known_linearization(memory)}.get(position.origin)
                new = position.project(system, new, state, known if _follows(self.projection.position) else None)
        if before is not None:
            with jax.named_scope("linearize"):
                memory = linearize(system, new, self._solver)
        if velocity is not None:
            with jax.named_scope("velocity_projection"):
                shared = memory if before is not None and _follows(self.projection.velocity) else None
                new = velocity.project(system, new, state, shared)
        after = step_info(system, new, inner.a, inner.lam)
        # What else the method reports stays: efforts of motors, rows that are on.
        found = {name: getattr(after, name) for name in ("violation", "velocity_violation", "iterations")}
        info = dataclasses.replace(inner, **found)
        left = jnp.zeros((), bool)  # Comparisons with NaN are false: that is a matter of its own.
        if isinstance(position, PositionProjection):
            left |= info.violation > position.tolerance
            info = dataclasses.replace(info, iterations=inner.iterations + position.iterations)
        if velocity is not None:
            size = 1.0 + jnp.max(jnp.abs(new.v), initial=0.0)
            left |= info.velocity_violation > default_tolerance(new.v.dtype) * size
        failed = jnp.where(left, Status.NOT_CONVERGED, Status.OK).astype(jnp.int32)
        return new, memory, dataclasses.replace(info, status=jnp.where(inner.status == Status.OK, failed, inner.status))

    @property
    def _solver(self) -> Any:
        return getattr(self.integrator, "solver", None)

    def _shares(self, system: System, state: State) -> bool:
        """Returns whether one linearization serves the end of a step and the start of the next.

        It does where J does not depend on the velocities, which are projected after it is made, and where no row is soft, because
        projections leave soft rows out.
        """
        return (
            getattr(self.integrator, "takes_linearization", False)
            and jax.eval_shape(system.velocity_constraint, state.t, state.q, state.v).shape[0] == 0
            and system.compliance(state.t, state.q) is None
        )

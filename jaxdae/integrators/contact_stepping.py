"""The velocity-level step of physics engines with exact contact: one stage, one factorization, order one.

A step of length h from (t, q, v), with all rows and forces evaluated at its start:

    M (v_f - v) = h f + J^T P_f,     J v_f + dg/dt = -g / h        v_f: velocities without contact forces
    D = J_c Y                                                      Y: responses to unit impulses, loops closed
    u = [c_n + gap / h ; c_t] + D p                                c = J_c v_f + s
    v+ = v_f + Y p,                  q+ = q (+) h v+ + xi

p and u satisfy the contact law (`jaxdae.contact_problem`), so a contact closes at the end of a step to first
order: gap+ = gap + h c_n+ >= 0. Dry friction with the limit F has |p| <= h F. `Touching` defines Y, D and the
rows; as there, J Y = 0, so contact impulses never open the loops. xi closes the loops at the end of the step,
by simplified Newton corrections with the factorization at its start, M xi = J^T mu, as in SHAKE.

Consequences:

* The step is of first order: a block that slides with the acceleration a is off by a h t / 2. At rest, a
  body below the friction angle does not creep, because v+ = 0 moves nothing.
* A contact that closes within a step loses the rest of its approach in the next step, so the impulse of an
  impact is spread over two steps.
* gap / h brakes a body before it reaches the ground, so no velocity of approach remains that restitution
  could reverse: the error of a bounce would not vanish with h. The step therefore rejects restitution.
* A penetrating start leaves with the velocity -gap / h.
* The velocities satisfy the rows at the start of the step; at its end they violate them by O(h).

References:
    D. E. Stewart, J. C. Trinkle, "An implicit time-stepping scheme for rigid body dynamics with inelastic
    collisions and Coulomb friction", Int. J. Numer. Methods Eng. 39 (1996), 2673-2691.
    M. Anitescu, F. A. Potra, Nonlinear Dynamics 14 (1997), 231-247.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.requirements import offers, seen_from
from jaxdae.contact_problem import Robust
from jaxdae.dynamics.stabilization import PositionProjection, Projection
from jaxdae.integrators.contact_method import (
    ContactInfo,
    ContactMethod,
    Rows,
    closed_loops,
    report,
    responses_at,
)
from jaxdae.integrators.contact_selection import Selection
from jaxdae.integrators.euler import SemiImplicitEuler
from jaxdae.integrators.integrator import input_at, step_info_at
from jaxdae.integrators.projected import projection_status
from jaxdae.saddle_point.derivative import solve as solve_bilateral
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.linearization import linearize_at
from jaxdae.systems.status import Status, first_failure
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Leaf


@pytree
class SteppingMemory:
    """Memory of `ContactStepping`.

    Attributes:
        impulses: impulses p of the last step (n,), in N s.
        gap: gaps at the end of the last step (m + k,), in m or rad; zero at the start.
    """

    impulses: Leaf
    gap: Leaf


@pytree
class ContactStepping(ContactMethod):
    """The step of physics engines with exact contact, for learning at large steps; see the module.

    It costs less than `Touching` and is of first order. Restitution must be zero.

    Attributes:
        contacts: as for `Touching`.
        contact_solver: as for `Touching`.
        smoothing: as for `Touching`.
        penetration: as for `Touching`.
        tolerance: as for `Touching`.
        most: as for `Touching`.
        solver: a saddle-point solver; None for the default solver of the system.
        corrections: number of corrections that close the loops at the end of a step, at least 1. Each
            correction multiplies the opening by about h |v|.

    `StepInfo.a` and `StepInfo.lam` are the means of the step, (v+ - v) / h and P / h, with the effect of
    contact forces.
    """

    contacts: Any = None
    contact_solver: Any = Robust()
    smoothing: Leaf = None
    penetration: Leaf = None
    tolerance: Leaf = None
    most: int | None = static(default=None)
    solver: Leaf = None
    corrections: int = static(default=6)

    # Without contact and loops, a step is one of semi-implicit Euler.
    position_share = SemiImplicitEuler.position_share
    damping_limit = SemiImplicitEuler.damping_limit
    step_matrix = SemiImplicitEuler.step_matrix

    @property
    def is_plastic(self) -> bool:
        """Whether contacts must not rebound: True."""
        return True

    def on_linear_systems(self) -> SemiImplicitEuler:
        """Return semi-implicit Euler."""
        return SemiImplicitEuler(self.solver)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield from ContactMethod.requirements(self)
        yield self.corrections >= 1, "corrections must be at least 1"
        if offers(self.contacts, "restitution"):
            yield (
                seen_from(self, self.contacts).restitution == 0,
                "contacts must have the restitution 0, because ContactStepping stops bodies before they "
                "rebound; use Touching",
            )

    def init(self, system: AnySystem, state: State) -> SteppingMemory:
        """Return the memory at a start: no impulses.

        Raises:
            TypeError: the system is of first order.
            ValueError: the system has no contacts, joint limits or dry friction.
        """
        touch = self.zero_touch(system, state)
        return SteppingMemory(touch.drift, touch.gap)

    def step(
        self, system: AnySystem, state: State, memory: SteppingMemory, u: Any, dt: Any
    ) -> tuple[State, SteppingMemory, ContactInfo]:
        """Return the state after dt, the memory and the report of the step; see `Integrator`."""
        at = system.evaluate(state.t, state.q, state.v)
        here = linearize_at(at, self.solver)
        push = dt * at.force(input_at(u, state, system))
        dv, lam = solve_bilateral(
            here.factors, here.mass, here.jacobian, here.compliance, push, _closing(at, dt)
        )
        free, every = state.v + dv, self.touch(at)
        ahead = dataclasses.replace(every, gap=every.gap + dt * every.normals(every.velocity(free)))
        selection = Selection.of(self.most, every, ahead)
        touch = selection.touch(every)
        responses, multipliers = responses_at(here, touch)
        delassus, free_rates = touch.rows @ responses, touch.velocity(free)
        rows = Rows(touch, responses, multipliers, delassus, free_rates, jnp.zeros_like(free))
        wanted = rows.free + touch.join(touch.gap / dt, jnp.zeros_like(touch.discs(rows.free)))
        guess = selection.rows(memory.impulses)
        p, residual = self.impulses(rows, wanted, guess, dt * touch.dry, self.smoothing)
        v = free + responses @ p

        moved = system.evaluate(state.t + dt, system.retract(state.q, dt * v), v)
        projection = PositionProjection(iterations=self.corrections, solver=self.solver)
        end = closed_loops(projection, moved, here)
        new, last = State(end.t, end.q, v), self.touch(end)
        info = step_info_at(end, (v - state.v) / dt, (lam + multipliers @ p) / dt)
        bounces: Any = jnp.where(jnp.any(every.restitution > 0.0), Status.OUT_OF_RANGE, Status.OK)
        status = first_failure(
            bounces,
            self.status(system, touch, selection.groups(memory.gap), residual),
            jnp.where(selection.misses(every, ahead, last), Status.TOO_MANY_CONTACTS, Status.OK),
            projection_status(system, Projection(projection, None), info, new),
        )
        kept = SteppingMemory(selection.every_row(p), last.gap)
        info = dataclasses.replace(info, status=status)
        return new, kept, report(info, last, kept.impulses, v, residual, dt)


def _closing(at: Evaluation, dt: Any) -> Array:
    """Return the rates -[g'; w] - [g; 0] / dt of the rows (nc,) that close them within the step."""
    rates, g = at.velocity, at.position
    return -rates - jnp.pad(g / dt, (0, rates.shape[0] - g.shape[0]))

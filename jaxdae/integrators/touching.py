"""A contact-free step, corrected by contact impulses in two stages.

The inner integrator takes a step without contacts to (q_e, v_e), which satisfies the bilateral constraints.
As in RATTLE, one set of impulses corrects the positions and another set corrects the velocities. Contact rows
never enter the bilateral factorization. With the solutions Y of [M -J^T; J C] [Y; .] = [J_c^T; 0],

    D = J_c Y                      the Delassus matrix of the contacts on the constraint manifold
    v+ = v_e + Y p                 satisfies J v+ = J v_e to round-off for any p

so loops stay closed whatever the contact solver returns. With the gaps and the contact velocities c_0 at the
start and c_e at (q_e, v_e), and h = dt,

    impact               tau: the first zero of the cubic through (gap_0, c_0n) and (gap_e, c_en) if
                         gap_0 > 0 >= gap_e, otherwise 0 (contact persists);
                         c_tau: the normal velocity there, at most zero
    stage 1, positions   d = [gap_e - gap* ; slip] + D pi;   pi and d satisfy the contact law;   pi in kg m
                         slip = (h - tau) (c_t(tau) + c_et) / 2 + (s - 1/2) h (c_et - c_0t),   c_t linear
                         between c_0t and c_et;   s: `Method.position_share`, 1/2 for methods of order two
                         gap* = max(0, gap_e - (1 + e) c_tau (h - tau)),  `integrators.impacts`
                         q+ = q_e (+) Y pi, projected
    stage 2, velocities  rows and D at q+; v_e carried there (`System.carry`) and projected;
                         c = [c_en - c* ; c_et] + D p for contacts with gap_e <= 0, and with e = 0 for
                         contacts with pi_n > 0, which others press closed, or with a gap of round-off;
                         a contact that moved to another feature is closed if its gap at q+ is small;
                         c*: the rate after a rebound if gap_e <= 0 (`integrators.impacts`), otherwise 0
                         v+ = v_e + Y p

Joint limits have the rows of c_n only. Dry friction with the limit F has the rows of c_t only: tau = 0, and
the impulses have the bounds |pi| <= s F h^2 and |p| <= F h, which a constant force F has.

Forces of contacts that remain closed act during the whole step, along rows that turn with the bodies.
Therefore the inner step starts with half of the predicted impulse p_0 = h F_0, where F_0 are the mean forces
of the last step, and Y_0 its responses. It leads from (q_0, v_0 + Y_0 p_0 / 2) to (q_e', v_e'). Above,

    q_e = q_e' (-) h Y p_0 / 2,      v_e = v_e' - Y p_0 / 2,

and the gaps and velocities gap_e and c_e there are the motion without contact forces. If the prediction is
exact, half of the impulse acts at the start, along the rows there, and half at the end, as in RATTLE. Errors
of the prediction have an effect of second order, because p and pi are determined as without it. Where a
contact moves to another feature of a shape, its row jumps, and Y_0 replaces Y. F_0 is zero after an impact.
With inner methods of first order, p_0 replaces p_0 / 2, and acts after the inner step on its positions and
velocities: they evaluate forces at the start of a step, and damping there would change p.

Where a row slides at the start, both stages first apply a known part of its friction, which ends when the
slip does (`integrators.sliding`). Both stages solve a `ContactProblem` for the rest; stage 1 has
displacements in place of velocities. Consequences:

* In flight, the step is the step of the inner method.
* Forces that are constant over the step are integrated exactly: a ball that bounces and a block that slides
  have no error for any step size. A body at rest below the friction angle does not creep.
* Restitution needs no velocity threshold, because c_tau tends to zero with the velocity of approach.
  max(0, .) ends a sequence of bounces that falls below the step size.
* The derivative passes through impacts and ends of slip: tau is differentiated as the root of its cubic, and
  the share of the step before slip ends as the root of a line.

Sliding, rolling and ends of slip are of second order.

References:
    V. Acary, B. Brogliato, "Numerical Methods for Nonsmooth Dynamical Systems", Springer (2008), chapter 10.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.contact_problem import Robust
from jaxdae.dynamics.accelerations import forward_dynamics
from jaxdae.dynamics.stabilization import PositionProjection, Projection, VelocityProjection
from jaxdae.integrators.contact_method import (
    ContactInfo,
    ContactMethod,
    Kick,
    Rows,
    closed_gaps,
    closed_loops,
    report,
    responses_at,
)
from jaxdae.integrators.contact_selection import Selection
from jaxdae.integrators.equation_of_motion import bound
from jaxdae.integrators.impacts import Impact, impact_within
from jaxdae.integrators.integrator import Integrator, StepInfo, input_at, step_info_at
from jaxdae.integrators.method import NOT_SWITCHING, PointWrapping, on_linear_systems, switches_rows
from jaxdae.integrators.projected import linearized_start, projection_status
from jaxdae.integrators.sliding import FirstPart, Modes, first_part, modes_after
from jaxdae.systems.contacts import Touch
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.linearization import Linearization, Point, linearize_at
from jaxdae.systems.status import Status, first_failure
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Leaf, Scalar, Velocity

CORRECTIONS = 6
"""Corrections that close the loops with the factors at q_e.

Impulses displace by x = |Y pi| and open the loops by the order of x^2 / L. Each correction multiplies this by
the order of x / L. Six of them reach 1e-16 L for x = 0.01 L.
"""


@pytree
class ContactMemory:
    """Memory of `Touching`.

    Attributes:
        inner: memory of the inner integrator.
        velocities: impulses p of the last step (n,), in N s.
        positions: impulses pi of the last step (n,), in kg m.
        gap: gaps at the end of the last step (m + k,), in m or rad; zero at the start.
        modes: which rows pushed and slid at the end of the last step.
        steady: normal accelerations at zero velocity at the end of the last step (m + k,); zero at the start.
        begun: whether there is a last step ().
        responses: Y at the end of the last step (nv, n).
        force: mean forces of the last step (n,), in N; zero at the start and after an impact.
    """

    inner: Leaf
    velocities: Leaf
    positions: Leaf
    gap: Leaf
    modes: Modes
    steady: Leaf
    begun: Leaf
    responses: Leaf
    force: Leaf

    def selected(self, selection: Selection) -> ContactMemory:
        """Return the memory of selected contacts; responses and forces contain all candidates."""
        return dataclasses.replace(
            self,
            velocities=selection.rows(self.velocities),
            positions=selection.rows(self.positions),
            gap=selection.groups(self.gap),
            modes=Modes(selection.groups(self.modes.closed), selection.groups(self.modes.slides)),
            steady=selection.groups(self.steady),
        )


@pytree
class Touching(ContactMethod, PointWrapping):
    """The step of `integrator`, then contact impulses in two stages; see the module.

    Attributes:
        integrator: a contact-free method of one step that satisfies the constraints, such as
            `Projected(RungeKutta.rk4())`.
        contacts: contacts of a hand-written system, such as `FunctionContacts(...)`; None for the contacts,
            joint limits and dry friction of the system itself.
        contact_solver: solver of the contact problems, such as `Robust.quick()`.
        smoothing: kappa () in J; None for the exact law. Use values far below m (h g)^2 per contact, with the
            mass m, the step h and the gravitational acceleration g.
        penetration: largest penetration at the start of a step, in m or rad; None for 1e-3 min(L, 1 m) with
            the characteristic length L of the system, and 1e-3 rad. Beyond this depth, the status is
            INCONSISTENT_START, because the first step would push the bodies apart abruptly.
        tolerance: largest residual of the contact law; None for 1e-6 (1e-3 in single precision). Above it,
            the status is NOT_CONVERGED.
        most: largest number of contacts that a step solves for: the contacts with the smallest gaps. None for
            all contacts. If another contact closes, the status is TOO_MANY_CONTACTS.
    """

    integrator: Integrator
    contacts: Any = None
    contact_solver: Any = Robust()
    smoothing: Leaf = None
    penetration: Leaf = None
    tolerance: Leaf = None
    most: int | None = static(default=None)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield from ContactMethod.requirements(self)
        yield not switches_rows(self.integrator), NOT_SWITCHING

    def on_linear_systems(self) -> Integrator:
        """Return the inner integrator."""
        return on_linear_systems(self.integrator)

    def init(self, system: AnySystem, state: State) -> ContactMemory:
        """Return the memory at a start: no impulses.

        Raises:
            TypeError: the system is of first order.
            ValueError: the system has no contacts, joint limits or dry friction; the inner integrator carries
                memory between steps.
        """
        touch = self.zero_touch(system, state)
        inner = self.integrator.init(system, state)
        if jax.tree.leaves(inner):
            raise ValueError(
                f"Touching: {type(self.integrator).__name__} carries memory between steps, which an impact "
                "makes invalid; use a method without memory, such as Projected(RungeKutta.rk4()), and write "
                "control laws around the contact: Sampled(Touching(...), law)"
            )
        none, gap = touch.drift, touch.gap
        begun, responses = jnp.asarray(False), jnp.zeros_like(touch.rows.T)
        return ContactMemory(inner, none, none, gap, Modes.unknown(touch), gap, begun, responses, none)

    def begin(self, system: AnySystem, state: State) -> Point:
        """Return the start, linearized if the inner step and the last stage share a linearization."""
        return linearized_start(self.inner, system, state, self.solver)

    def advance(
        self, system: AnySystem, point: Point, memory: ContactMemory, u: Any, dt: Any
    ) -> tuple[Point, ContactMemory, ContactInfo]:
        """Return the point after dt, the memory and the report of the step."""
        state = point.state
        kick = memory.force * (dt / 2.0 if self.is_of_second_order else dt)
        free, inner, info = self._inner_step(system, point, memory.inner, memory.responses @ kick, u, dt)
        end = free.state
        system = bound(system, end, u)
        first_touch = self.touch(system.evaluate(state.t, state.q))

        at = system.evaluate(end.t, end.q, end.v)
        here = free.linearization or linearize_at(at, self.solver)
        touch = self.touch(at)
        selection = Selection.of(self.most, first_touch, touch)
        every_steady = self._steady(system, end, u, here, touch)
        start, steady = selection.touch(first_touch), selection.groups(every_steady)
        before = Kick.of(selection, kick, start.rows, memory.responses)
        memory = memory.selected(selection)
        rows = self._rows(selection.touch(touch), at, here, before).without_kick(dt)
        plan = self._plan(system, start, start.velocity(state.v), rows, steady, memory, dt)
        positions, first = self._positions(rows, plan, memory, dt)
        # With e = 0, other contacts can press a contact closed that would open without their forces.
        pushes = plan.closed | (plan.is_plastic & (rows.touch.normals(positions) > 0.0))
        q = system.retract(end.q, rows.responses @ positions - dt * rows.kicked)
        to_positions = PositionProjection(iterations=CORRECTIONS, solver=self.solver)
        to_velocities = VelocityProjection(solver=self.solver)
        q = closed_loops(to_positions, system.evaluate(end.t, q, end.v), here).q

        at = system.evaluate(end.t, q, system.carry(end.q, end.v, q))
        here = linearize_at(at, self.solver)
        if here.jacobian.shape[0]:
            at = to_velocities.projected(at, state, here)
        last_touch = self.touch(at)
        shift = rows.touch.normals(rows.delassus @ positions)
        expected = rows.touch.gap + shift
        rows = self._rows(selection.touch(last_touch), at, here, before)
        gap, (least, near) = rows.touch.gap, closed_gaps(system, rows.touch)
        # A contact that moved to another feature of a shape may be open there, or closed.
        jumped = jnp.abs(gap - expected) > jnp.abs(shift) + near
        pushes = jnp.where(jumped, gap <= near, pushes | (plan.is_plastic & (gap <= least)))
        impulses, rest, second = self._velocities(rows, plan, pushes, memory, dt)
        v = at.v + rows.responses @ impulses - rows.kicked

        residual = jnp.maximum(first, second)
        new = State(end.t, q, v)
        forces = impulses / dt
        a, lam = info.a + rows.responses @ forces, info.lam + rows.multipliers @ forces
        found = step_info_at(at.with_velocities(v), a, lam)
        status = first_failure(
            self.status(system, start, memory.gap, residual),
            jnp.where(selection.misses(first_touch, touch, last_touch), Status.TOO_MANY_CONTACTS, Status.OK),
            info.status,
            projection_status(system, Projection(to_positions, to_velocities), found, new),
        )
        least = self.largest_residual(residual.dtype)
        modes = modes_after(rows.touch, impulses, rest, plan.part, dt, least)
        force: Any = jnp.where(jnp.all(~pushes | plan.stays), forces, 0.0)
        kept = ContactMemory(
            inner=inner,
            velocities=selection.every_row(impulses),
            positions=selection.every_row(positions),
            gap=last_touch.gap,
            modes=Modes(selection.every_group(modes.closed), selection.every_group(modes.slides)),
            steady=every_steady,
            begun=jnp.asarray(True),
            responses=selection.every_row(rows.responses.T).T,
            force=selection.every_row(force),
        )
        told = dataclasses.replace(found, iterations=info.iterations, status=status)
        passed_on = None if point.linearization is None else here
        last = Point(new, passed_on, estimate=None if point.estimate is None else q)
        return last, kept, report(told, last_touch, kept.velocities, v, residual, dt)

    def _inner_step(
        self, system: AnySystem, point: Point, memory: Any, kick: Velocity, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the inner step with a change of the velocities at its start (nv,).

        The end has the linearization of the inner integrator, if that belongs to the state at the end.
        """
        if self.is_of_second_order:
            kicked = dataclasses.replace(point.state, v=point.v + kick)
            start = dataclasses.replace(point, state=kicked)
            end, memory, info = self.inner.advance(system, start, memory, u, dt)
            return (end if end.estimate is None else Point(end.state)), memory, info
        end, memory, info = self.inner.advance(system, point, memory, u, dt)
        q = system.retract(end.q, dt * kick)
        return Point(State(end.t, q, system.carry(end.q, end.v, q) + kick)), memory, info

    def _rows(self, touch: Touch, at: Evaluation, here: Linearization, kick: Kick) -> Rows:
        responses, multipliers = responses_at(here, touch)
        kicked = kick.velocities(touch.rows, responses)
        free = touch.velocity(at.v - kicked)
        return Rows(touch, responses, multipliers, touch.rows @ responses, free, kicked)

    def _plan(
        self,
        system: AnySystem,
        start: Touch,
        before: Array,
        rows: Rows,
        steady: Array,
        memory: ContactMemory,
        dt: Any,
    ) -> _Plan:
        """Return impacts and friction of the step; `before` are velocities of the rows at its start (n,)."""
        touch, was_closed = rows.touch, memory.modes.closed
        is_plastic = (touch.restitution == 0.0) & (self.smoothing is None)
        rests, share = was_closed & is_plastic, self.position_share
        impact = impact_within(start, before, touch, rows.free, rests, dt, share)
        slope: Any = jnp.where(memory.begun, (steady - memory.steady) / dt, 0.0)
        closed, target = touch.gap <= 0.0, impact.gap_after(touch, steady, slope)
        stays = was_closed & jnp.where(closed, target == 0.0, is_plastic)
        part = FirstPart.none(touch)
        if self.smoothing is None and part.share.size:
            # A contact that left its feature, as at an edge, is farther away than the motion along its row.
            moved = dt * touch.normals((1.0 - share) * before + share * rows.free)
            round_off, _ = closed_gaps(system, touch)
            remains = closed | (stays & (touch.gap - moved <= jnp.abs(moved) + round_off))
            modes = dataclasses.replace(memory.modes, closed=stays)
            least = self.largest_residual(rows.free.dtype)
            part = first_part(touch, rows.delassus, before, rows.free, remains, modes, dt, least)
        return _Plan(impact, steady, slope, target, closed, stays, is_plastic, part)

    def _positions(self, rows: Rows, plan: _Plan, memory: ContactMemory, dt: Any) -> tuple[Array, Scalar]:
        """Return the impulses pi of stage 1 (n,), in kg m, and the residual."""
        touch = rows.touch
        given, moved = plan.part.in_positions(touch, dt, self.position_share)
        gaps = jnp.where(plan.closed, touch.gap - plan.target, touch.gap)
        travel = touch.join(gaps, plan.impact.slip - moved) + rows.delassus @ given
        largest = self.position_share * dt**2 * touch.dry
        bounds = plan.part.left_in_positions[len(touch.friction) :] * largest
        # A smoothed problem in positions: impulse times displacement, J s^2.
        kappa = None if self.smoothing is None else self.smoothing * dt**2
        rest, residual = self.impulses(rows, travel, memory.positions - given, bounds, kappa)
        return given + rest, residual

    def _velocities(
        self, rows: Rows, plan: _Plan, pushes: Array, memory: ContactMemory, dt: Any
    ) -> tuple[Array, Array, Scalar]:
        """Return the impulses p of stage 2 and of its second part (n,), in N s, and the residual."""
        touch = rows.touch
        given, normal = plan.part.in_velocities(touch), touch.normals(rows.free)
        rebound: Any = jnp.where(
            plan.closed, plan.impact.rate_after(touch, normal, plan.steady, plan.slope), 0.0
        )
        wanted = touch.join(normal - rebound, touch.discs(rows.free)) + rows.delassus @ given
        bounds = plan.part.left[len(touch.friction) :] * dt * touch.dry
        rest, residual = self.impulses(
            rows, wanted, memory.velocities - given, bounds, self.smoothing, pushes
        )
        return given + rest, rest, residual

    def _steady(self, system: AnySystem, end: State, u: Any, here: Linearization, touch: Touch) -> Array:
        """Return the normal accelerations (m + k,) that contact-free motion would have at zero velocity."""
        still = State(end.t, end.q, jnp.zeros_like(end.v))
        given = input_at(u, end, system)
        a = forward_dynamics(system, still, given, solver=self.solver, linearization=here)[0]

        def of_surface(t: Scalar) -> Array:
            return self.touch(system.evaluate(t, end.q)).drift

        return touch.normals(touch.rows @ a + jax.jvp(of_surface, (end.t,), (jnp.ones_like(end.t),))[1])


@pytree
class _Plan:
    """Impacts, persistent contacts and friction of a step, from the motion without contact forces.

    Attributes:
        impact: closing times and velocities.
        steady: normal accelerations at zero velocity (m + k,).
        slope: their rates (m + k,).
        target: gap* (m + k,).
        closed: whether gap_e <= 0 (m + k,).
        stays: whether a contact or one-sided row was closed and remains so (m + k,).
        is_plastic: whether e = 0 in the exact law (m + k,).
        part: the first part of the friction.
    """

    impact: Impact
    steady: Leaf
    slope: Leaf
    target: Leaf
    closed: Leaf
    stays: Leaf
    is_plastic: Leaf
    part: FirstPart

"""Systems with switching structure: a law activates and deactivates constraint rows, with impulses.

Examples are a string that becomes slack and taut, or a foot that pins and releases. Between two switchings
the rows are fixed, and any integrator is suitable. In each step, `Switching`

1. makes the step without switching, and evaluates the law at its end;
2. locates the first switching within the step. `margin` of the law measures the distance of each row from
   switching. Hermite's cubic interpolates it from its values and rates at both ends; its zero has an error of
   O(h^4);
3. repeats the step up to this instant, switches, and completes the step with the new rows.

The program has no branches: every step makes these three inner steps, and without switching only the first
counts. With `events` = n, a step locates n switchings. Any further switching waits for the next step, with an
error of order h in that world. A row that switches on and off within a single step is not detected.

*At a switch.* A projection in the mass metric closes position-level rows that become active: it removes the
O(h^4) error of a located instant, or the O(h) error without location. The status is INCONSISTENT_START if
such a row is open by more than its motion in two steps plus 1 % of the characteristic length (of 1 rad for a
row in radians). The velocities then receive the impulse p of the new rows,

    M (v+ - v-) = J^T p,     J v+ + dg/dt = 0,

which preserves the momentum along the manifold and never adds energy if the rows do not depend on time. A law
with unilateral rows may reject an impulse by its sign; the impulse is then recomputed without these rows.
Finally, the multipliers right after the switch are examined. Rows whose multipliers the law rejects become
inactive at once, such as a string that jerks and is slack again.

A first-order system (`KinematicSystem`) has neither momentum nor impulses: when rows switch, its velocity
changes at once to the feasible velocity. Velocities along inactive rows are then the ones that the rate
requests.

*Accuracy.* With located instants, the inner method keeps its order, up to four. With `events` = 0, or a law
without `margin`, rows switch at the end of the step, up to h late. A switch with an impulse then has an error
of order h, and a release one of order h^2, because the multiplier, and with it the jump of the acceleration,
is zero there. The instant of a release is located to second order only, because the multipliers are
interpolated linearly.

*Derivatives.* A located instant is differentiated as a root, together with the inner steps before and after
it. At an impulse, the derivative of a rollout has the jump of the variational equation (the saltation
matrix), because the switching times change. Without location, switchings lie on the time grid and do not move
for small changes. The derivative is exact for the program, but it is that of a motion with fixed switching
times. With an impulse it is *not* close to the derivative of the motion itself. In both cases the sequence of
switchings is constant: where it changes, the motion has no derivative.

References:
    E. Hairer, S. P. Norsett, G. Wanner, "Solving Ordinary Differential Equations I", section II.6 (events by
    dense output). J. J. Moreau, "Unilateral contact and dry friction in finite freedom dynamics" (1988), for
    the impulses. M. A. Aizerman, F. R. Gantmacher, "Determination of stability by linear approximation of a
    periodic solution of a system of differential equations with discontinuous right-hand sides", Q. J. Mech.
    Appl. Math. 11 (1958), for the jump of the variational equation.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import function_field, pytree, static
from jaxdae.base.requirements import not_above, offers
from jaxdae.dynamics.impulse import constraint_impulse
from jaxdae.dynamics.stabilization import PositionProjection
from jaxdae.integrators.coulomb_law import CoulombFriction
from jaxdae.integrators.equation_of_motion import with_feasible_velocity
from jaxdae.integrators.integrator import Integrator, StepInfo, step_info
from jaxdae.integrators.method import Wrapping, reported_dynamics, samples_law, single_step
from jaxdae.integrators.zero_crossing import first_zero
from jaxdae.systems.masks import Masked
from jaxdae.systems.sliding_rows import SlidingRows
from jaxdae.systems.status import Status, first_failure
from jaxdae.systems.system import AnySystem, State, velocity_residual
from jaxdae.systems.tolerances import scales
from jaxdae.typing import Leaf, Rows, Velocity


class SwitchingLaw(Protocol):
    """Law that selects the active rows: a pytree, whose leaves may differ between worlds.

    Two methods are optional. `margin(system, state, lam, active)` returns the distance (nc,) of each row from
    switching: positive if the row keeps its status, zero at the switch, differentiable, equal for rows that
    switch together. It is required to locate instants. `admissible(lam, active)` returns (nc,), as booleans,
    whether each row may stay active with the multipliers or impulses lam.
    """

    def __call__(self, system: AnySystem, state: State, lam: Rows, active: Any) -> Any:
        """Return the rows that are to be active (nc,), as booleans.

        Args:
            system: the system with all of its rows.
            state: the state at the end of a step.
            lam: multipliers (nc,) there; zero in inactive rows.
            active: the currently active rows (nc,), as booleans.
        """
        ...


@pytree
class Unilateral:
    """Rows that can only push or only pull, and that activate and release independently.

    A row with direction s is a contact with s g >= 0, s lam >= 0, and one of the two zero. It becomes active
    when s g reaches zero and closes, and inactive when s lam becomes negative. A foot above the ground, with
    g its height, pushes: s = 1. A string, with g its elongation, pulls: s = -1. Velocity-level rows have no
    gap and become active only with a row that they follow.

    Attributes:
        direction: s (nc,): 1 if lam must be positive, -1 if it must be negative, 0 for rows that never
            switch.
        follows: for each row, the row that decides for it (static); by default, each row decides for itself.
            The row that prevents a foot from slipping follows the row that supports it. Directions of rows
            that follow others are ignored.
    """

    direction: Leaf
    follows: tuple[int, ...] | None = static(default=None)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        s = self.direction
        yield (s == 1) | (s == -1) | (s == 0), "direction must be 1, -1 or 0 for each row"

    def __call__(self, system: AnySystem, state: State, lam: Rows, active: Any) -> Any:
        """Return the rows that are to be active (nc,)."""
        s, gap = self._direction(active, lam), self._gap(system, state, active)
        closing = s * velocity_residual(system, state) < 0.0
        return self._led(
            jnp.where(s == 0.0, active, jnp.where(active, s * lam >= 0.0, (s * gap <= 0.0) & closing))
        )

    def margin(self, system: AnySystem, state: State, lam: Rows, active: Any) -> Rows:
        """Return s lam in active rows, s g in inactive rows (nc,)."""
        s, gap = self._direction(active, lam), self._gap(system, state, active)
        return self._led(jnp.where(s == 0.0, 1.0, s * jnp.where(active, lam, gap)))

    def admissible(self, lam: Rows, active: Any) -> Any:
        """Return s lam >= 0 (nc,)."""
        return self._led(self._direction(active, lam) * lam >= 0.0)

    def _direction(self, active: Any, lam: Rows) -> Rows:
        direction = jnp.asarray(self.direction, lam.dtype)
        if direction.shape not in ((), active.shape):
            raise ValueError(
                f"Unilateral.direction must have one entry per constraint row, shape {active.shape}, got "
                f"{direction.shape}"
            )
        return jnp.broadcast_to(direction, active.shape)

    def _gap(self, system: AnySystem, state: State, active: Any) -> Rows:
        """Return g, with ones for velocity-level rows, which have no gap."""
        g = system.constraint(state.t, state.q)
        return jnp.concatenate([g, jnp.ones((active.shape[0] - g.shape[0],), g.dtype)])

    def _led(self, rows: Any) -> Any:
        if self.follows is None:
            return rows
        if len(self.follows) != rows.shape[0] or not all(0 <= k < rows.shape[0] for k in self.follows):
            raise ValueError(
                f"Unilateral.follows must name a row for each of the {rows.shape[0]} rows, got {self.follows}"
            )
        return rows[jnp.asarray(self.follows)]


@pytree
class Scheduled:
    """Rows that are active for a span of time, on <= t < off.

    Attributes:
        on: activation time of each row in s, (nc,) or a scalar; -inf for rows active from the start.
        off: deactivation time in s, (nc,) or a scalar; inf for never.

    A position-level row should be closed at its activation. A projection removes any gap, which moves the
    system.
    """

    on: Leaf
    off: Leaf

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield not_above(self.on, self.off), "on must not be later than off"

    def __call__(self, system: AnySystem, state: State, lam: Rows, active: Any) -> Any:
        """Return the rows whose span contains the time (nc,)."""
        on, off = self._span(active, lam)
        return (on <= state.t) & (state.t < off)

    def margin(self, system: AnySystem, state: State, lam: Rows, active: Any) -> Rows:
        """Return the time to the next switching in s (nc,), negative if it is overdue."""
        on, off = self._span(active, lam)
        to_on: Any = on - state.t
        to_off: Any = off - state.t
        of_rows_on: Any = jnp.where(to_on > 0.0, -1.0, to_off)
        of_rows_off: Any = jnp.where(to_off > 0.0, to_on, 1.0)
        return jnp.where(active, of_rows_on, of_rows_off)

    def _span(self, active: Any, lam: Rows) -> Any:
        return tuple(jnp.broadcast_to(jnp.asarray(x, lam.dtype), active.shape) for x in (self.on, self.off))


@pytree
class SwitchingInfo(StepInfo):
    """Report of a step with switchings: a `StepInfo`, and the active rows.

    `impulse` and `switched` are totals since the start, so a `Trajectory` that stores every n-th step loses
    no impulse. All are zero in worlds that have failed; the memory of the trajectory contains the values
    before the failure.

    Attributes:
        active: the active rows (nc,) after the step, as booleans.
        impulse: the sum of all impulses p (nc,) since the start: N s for a row in meters, N m s for a row in
            radians.
        switched: the time in s of the last switching or impulse of each row (nc,); the start time if there
            was none.
        inside: the report of the inner integrator for the first inner step, if it has more fields than
            `StepInfo` (such as the efforts of `VelocityStepping`); else (). If an event divides the step,
            this is the report of the trial over the whole step.
        sliding: with `CoulombFriction`, the sign of the slip velocity of each contact (m,) after the step,
            zero for contacts that stick or are open; else (). `lam` contains the friction in the slip rows.
    """

    active: Leaf
    impulse: Leaf
    switched: Leaf
    inside: Any = ()
    sliding: Any = ()


@pytree
class SwitchingMemory:
    """Memory of `Switching`: the totals of `SwitchingInfo`, and the memory of the inner integrator."""

    active: Leaf
    impulse: Leaf
    switched: Leaf
    inner: Leaf = ()
    sliding: Leaf = ()


@pytree
class Switching(Wrapping):
    """The step of `integrator` for a `Masked` system; `law` switches its rows, with impulses at activation.

    The system defines the active rows at the start; then the law decides. The module's statements about
    accuracy and derivatives hold for integrators that satisfy the constraints, such as `Projected`.

    Attributes:
        integrator: any integrator; its memory is reinitialized when rows switch.
        law: a `SwitchingLaw`, such as `Unilateral` or `Scheduled`.
        events: number of switchings that a step can locate (static); 0 switches at the end of steps, at a
            third of the cost.

    Steps report a `SwitchingInfo`. One step makes 2 events + 1 inner steps.

    Write `Sampled(Switching(...), law)`, because a sampled law is evaluated once per step, not per inner
    step. Write `Switching(Projected(...), law)`, because projections use the active rows of the inner step.
    The reversed nesting raises an error.
    """

    switches: ClassVar[bool] = True
    integrator: Integrator
    law: Any = function_field()
    events: int = static(one_of=int, default=1)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield (
            offers(self.law, "__call__"),
            "law must be a SwitchingLaw, such as Unilateral(...) or Scheduled(...)",
        )
        yield (
            not samples_law(self.integrator),
            "integrator must not contain Sampled; write Sampled(Switching(integrator, law), feedback)",
        )

    def init(self, system: AnySystem, state: State) -> SwitchingMemory:
        """Return the memory with the active rows at the start.

        Raises:
            TypeError: the system is not `Masked`.
            ValueError: a negative number of events.
        """
        if not isinstance(system, Masked):
            raise TypeError(
                f"Switching needs a Masked system, got {type(system).__name__}; write Masked(system, active)"
            )
        if self.events < 0:
            raise ValueError(f"Switching.events must not be negative, got {self.events}")
        rows = velocity_residual(system.system, state)
        active = system.active_rows(state.t, state.q, rows.shape[0])
        since = jnp.broadcast_to(jnp.asarray(state.t, rows.dtype), rows.shape)
        sliding = ()
        if self._has_friction:
            law, active = self.law.begun(system.system, state, active)
            sliding = law.direction
        memory = SwitchingMemory(active, jnp.zeros_like(rows), since, (), sliding)
        inner = self.integrator.init(self._with_rows(system.system, memory), state)
        return dataclasses.replace(memory, inner=inner)

    def step(
        self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any
    ) -> tuple[State, Any, StepInfo]:
        """Return the state after dt, the memory with the active rows, and a `SwitchingInfo`."""
        inside = system.system if isinstance(system, Masked) else system
        dt = jnp.asarray(dt, state.q.dtype)
        if self.events and offers(self.law, "margin"):
            new, memory, (a, lam, more), status, iterations = self._in_parts(inside, state, memory, u, dt)
        else:
            trial, memory, info, flips, _ = self._trial(inside, state, memory, u, dt, dt)
            new, memory, failed = self._switched(inside, trial, memory, flips, u, dt)
            (a, lam, more), iterations = _told(info), info.iterations
            status = first_failure(info.status, failed)
        ended = vars(step_info(Masked(inside, memory.active), new, a, lam, status=status))
        totals = {name: getattr(memory, name) for name in ("active", "impulse", "switched", "sliding")}
        return new, memory, SwitchingInfo(**{**ended, "iterations": iterations}, **totals, inside=more)

    def _in_parts(self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any) -> tuple[Any, ...]:
        """Return state, memory, start report, status and iterations of a step that is cut at switchings.

        The loop makes inner steps of two kinds. A *trial* goes to the end of the step. Without switching it
        is accepted and ends the step; otherwise it only determines the length of the next part. A *part* has
        this length, and rows switch at its end. The last trial is always accepted; its switchings wait for
        the next step.
        """

        def inner_step(carry: Any, last: Any) -> Any:
            state, memory, report, left, ahead, pending = carry
            new, moved, info, flips, share = self._trial(system, state, memory, u, ahead, dt)
            switched, later, failed = self._switched(system, new, moved, pending, u, dt)
            is_part, is_over = jnp.any(pending), left == 0.0
            # Use only rows that switch: a minimum shares its derivative among equal entries, such as 1.
            of_flips: Any = jnp.where(flips, share, 2.0)
            first = jnp.where(jnp.any(flips), jnp.min(of_flips, initial=2.0), 1.0)
            cut = jnp.any(flips) & ~is_part & ~is_over & ~last
            report = _choose(cut | is_over, report, _joined(report, info))
            # Advance a finished step by zero time: after a switch at the very end, the rest still has a
            # derivative.
            state, memory = _choose(cut, (state, memory), (new, moved))
            status, corrections = report
            report = (first_failure(status, failed), corrections)
            state, memory = _choose(is_part, (switched, later), (state, memory))
            remaining = _choose(is_part, left - ahead, _choose(cut, left, jnp.zeros_like(left)))
            ahead = _choose(cut, first * remaining, remaining)
            pending = cut & flips & (share <= first + _near(first))
            return (state, memory, report, remaining, ahead, pending), _told(info)

        last = jnp.arange(2 * self.events + 1) == 2 * self.events
        report = (jnp.asarray(Status.OK, jnp.int32), jnp.zeros((), jnp.int32))
        carry = (state, memory, report, dt, dt, jnp.zeros_like(memory.active))
        (state, memory, report, *_), starts = jax.lax.scan(inner_step, carry, last)
        return (state, memory, jax.tree.map(lambda x: x[0], starts), *report)

    def _trial(
        self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any, whole: Any
    ) -> tuple[State, Any, StepInfo, Any, Any]:
        """Return the inner step, the switching rows, and their switching instants as fractions (nc,).

        The fraction is 1 for rows that do not switch.

        Args:
            system: the system with all of its rows.
            state: the start of the inner step.
            memory: the active rows, and the memory of the inner integrator.
            u: constant input, or a feedback law.
            dt: the length of the inner step in s.
            whole: the length of the whole step in s.
        """
        active = memory.active
        state = self._with_rates(system, state, active, u)
        new, memory, info = self._advance(system, state, memory, u, dt, whole)
        a, lam = self._dynamics(system, new, memory, u, whole)
        law = self._law(memory)
        flips = _answer("the law", law(system, new, lam, active), active) != active
        if not offers(self.law, "margin"):
            return new, memory, info, flips, jnp.ones_like(lam)
        if self._has_friction:
            law = law.leaving(lam, active)
        values = []
        for at, acceleration, multipliers in ((state, info.a, info.lam), (new, a, lam)):

            def margin(s: Any, at: State = at, a: Any = acceleration, start: Any = multipliers) -> Rows:
                # Interpolate the multipliers linearly.
                moved = State(at.t + s * dt, system.retract(at.q, s * dt * at.v), at.v + s * dt * a)
                return law.margin(system, moved, start + s * (lam - info.lam), active)

            values += jax.jvp(margin, (jnp.zeros_like(dt),), (jnp.ones_like(dt),))
        return new, memory, info, flips, first_zero(flips, *values)

    def _advance(
        self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any, whole: Any
    ) -> tuple[State, Any, StepInfo]:
        """Return the state after dt, the memory, and the report of the integrator.

        A part of zero or nearly zero length, as for a switch at the start of a step, is an Euler step. Its
        error is of the size of rounding. Methods that divide by the step length would amplify the rounding of
        positions to velocities, or yield NaN.
        """
        is_short = dt <= _near(dt) * whole
        length = jnp.where(is_short, whole, dt)
        rows = self._with_rows(system, memory)
        new, inner, info = single_step(self.integrator, rows, state, memory.inner, u, length)
        # After the end of a step no time passes, and accelerations may be NaN.
        a = jnp.where(jnp.isfinite(info.a) | (dt > 0.0), info.a, 0.0)
        moved = State(state.t + dt, system.retract(state.q, dt * state.v), state.v + dt * a)
        ok = jnp.asarray(Status.OK, info.status.dtype)
        new, inner = _choose(is_short, (moved, memory.inner), (new, inner))
        status = jnp.where(is_short, ok, info.status)
        lam = info.lam
        if isinstance(rows, SlidingRows):
            lam = rows.completed(lam)
            jammed: Any = jnp.where(rows.is_jammed(new), Status.NOT_CONVERGED, ok)
            status = first_failure(status, jammed.astype(jnp.int32))
        info = dataclasses.replace(info, lam=lam, status=status)
        return new, dataclasses.replace(memory, inner=inner), info

    def _dynamics(self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any) -> Any:
        """Return the reported accelerations (zero for first-order systems) and multipliers."""
        rows = self._with_rows(system, memory)
        a, lam = reported_dynamics(self.integrator, rows, state, u, dt)
        lam = jnp.where(memory.active, lam, 0.0)
        return a, rows.completed(lam) if isinstance(rows, SlidingRows) else lam

    @property
    def _has_friction(self) -> bool:
        return isinstance(self.law, CoulombFriction)

    def _law(self, memory: Any) -> Any:
        """Return the law; with friction, in the current mode."""
        return dataclasses.replace(self.law, direction=memory.sliding) if self._has_friction else self.law

    def _with_rows(self, system: AnySystem, memory: Any) -> Masked | SlidingRows:
        """Return the system with the active rows, and with the friction of sliding contacts."""
        rows = Masked(system, memory.active)
        return self._law(memory).sliding(rows, self.roles.solver) if self._has_friction else rows

    def _with_rates(self, system: AnySystem, state: State, active: Any, u: Any) -> State:
        """Return the state; for a first-order system, with the feasible velocity for these rows."""
        return with_feasible_velocity(Masked(system, active), state, u, self.roles.solver)[0]

    def _switched(
        self, system: AnySystem, state: State, memory: Any, flips: Any, u: Any, dt: Any
    ) -> tuple[State, Any, Any]:
        """Return the state after the impulse, the new memory and a status; dt is the length of the step."""
        opened = _comes_on_open(system, state, flips & ~memory.active, dt)
        failed = jnp.where(opened, Status.INCONSISTENT_START, Status.OK).astype(jnp.int32)
        if self._has_friction:
            new, p, active, sliding, impact_failed = self._after_friction(system, state, memory, flips, u, dt)
            failed = first_failure(failed, impact_failed)
        else:
            new, p, active = self._after_impulse(system, state, memory, flips, u, dt)
            sliding = memory.sliding
        new = self._with_rates(system, new, active, u)
        changed = flips | (active != memory.active)
        switched = _choose(changed, jnp.broadcast_to(state.t, p.shape), memory.switched)
        after = SwitchingMemory(active, memory.impulse + p, switched, memory.inner, sliding)
        # The memory of the integrator belongs to a motion that has ended.
        begun = self.integrator.init(self._with_rows(system, after), new)
        inner = _choose(jnp.any(flips), begun, memory.inner)
        return new, dataclasses.replace(after, inner=inner), failed

    def _after_friction(
        self, system: AnySystem, state: State, memory: Any, flips: Any, u: Any, dt: Any
    ) -> tuple[Any, ...]:
        """Return state, impulses, active rows, directions of slip and status, without change for no flips."""

        def dynamics(at: State, law: CoulombFriction, active: Any) -> tuple[Velocity, Rows]:
            mode = dataclasses.replace(memory, active=active, sliding=law.direction)
            return self._dynamics(jax.lax.stop_gradient(system), at, mode, u, dt)

        new, p, law, active, failed = self._law(memory).switched(
            system, state, memory.active, flips, dynamics, self.roles.solver, dt
        )
        events = (new, p, active, law.direction, failed)
        ok = jnp.zeros_like(failed)
        return _choose(jnp.any(flips), events, (state, jnp.zeros_like(p), memory.active, memory.sliding, ok))

    def _after_impulse(
        self, system: AnySystem, state: State, memory: Any, flips: Any, u: Any, dt: Any
    ) -> tuple[State, Rows, Any]:
        """Return the state after the impulse, the impulse and the active rows."""
        solver = self.roles.solver
        active = memory.active ^ flips
        impact = jnp.any(flips & active)
        closed = PositionProjection(solver=solver).project(Masked(system, active), state)
        v, p = constraint_impulse(system, closed, active, solver=solver)
        carrying = active
        if system.first_order:
            p = jnp.zeros_like(p)
        elif offers(self.law, "admissible"):
            # Round-off in rows without an impulse has an arbitrary sign.
            noise = _near(p) * jnp.max(jnp.abs(p), initial=0.0)
            carrying = self._admitted(jnp.where(jnp.abs(p) > noise, p, 0.0), active)
            v, p = constraint_impulse(system, closed, carrying, solver=solver)
        new, p, active = _choose(
            impact, (State(state.t, closed.q, v), p, carrying), (state, jnp.zeros_like(p), active)
        )
        if offers(self.law, "admissible"):
            mode = dataclasses.replace(memory, active=active)
            remaining = self._admitted(self._dynamics(system, new, mode, u, dt)[1], active)
            active = _choose(jnp.any(flips), remaining, active)
        return new, p, active

    def _admitted(self, lam: Rows, active: Any) -> Any:
        """Return the active rows without those whose multipliers or impulses the law rejects."""
        return active & _answer("law.admissible", self.law.admissible(lam, active), active)


def _comes_on_open(system: AnySystem, state: State, rows: Any, dt: Any) -> Any:
    """Return whether a position-level row becomes active while it is open by more than its limit.

    The limit is |g'| 2 dt, the motion of the row in two steps, plus 1 % of its characteristic size. Closing a
    row that is open further would move the system by more than the error of the instant.
    """
    g = system.constraint(state.t, state.q)
    rate = velocity_residual(system, state)[: g.shape[0]]
    near = 2.0 * dt * jnp.abs(rate) + 1e-2 * scales(system, system.names.row_units, g.shape[0], g.dtype)
    return jnp.any(rows[: g.shape[0]] & (jnp.abs(g) > near))


def _answer(who: str, rows: Any, active: Any) -> Any:
    """Return the result of a law after a check of its shape and dtype."""
    rows = jnp.asarray(rows)
    if rows.shape != active.shape or rows.dtype != active.dtype:
        raise ValueError(
            f"{who} must return one boolean per constraint row, shape {active.shape}, got {rows.dtype} of "
            f"shape {rows.shape}"
        )
    return rows


def _choose(flag: Any, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(flag, x, y), yes, no)


def _told(info: StepInfo) -> tuple[Velocity, Rows, Any]:
    """Return a and lam at the start of an inner step, and its report if it extends `StepInfo`, else ()."""
    return info.a, info.lam, () if type(info) is StepInfo else info


def _joined(report: Any, info: StepInfo) -> Any:
    """Return the first failure and the largest iteration count of consecutive inner steps."""
    status, iterations = report
    return first_failure(status, info.status), jnp.maximum(iterations, info.iterations)


def _near(x: Any) -> float:
    return float(jnp.finfo(x.dtype).eps) ** 0.5

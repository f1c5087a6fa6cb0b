"""Motions that change their structure: a law switches constraint rows on and off, and impulses make the velocities consistent.

A string that goes slack and taut, a foot that pins and releases: between two switchings such a system moves under a fixed set of rows, and
any integrator will do. `Switching` keeps the set of rows that are on, and in each step

1. makes the step as if nothing switched, and asks the law at its end which rows are to be on;
2. locates the first switch within the step. The law's `margin` says how far each row is from switching; along the step it is interpolated
   by Hermite's cubic from its values and rates at both ends, whose zero is wrong by O(h^4);
3. repeats the step up to there, switches, and makes the rest of the step with the new rows.

Nothing branches: every step takes these three inner steps, and where nothing switches the first one counts. With `events` = n a step
locates n switchings. A further one waits for the next step, at the start of which it is made up for; that world then has an error of order
h. A row that comes on and goes off again within a single step is not seen.

*At a switch.* Position-level rows that come on are closed by a projection in the mass metric: it removes the O(h^4) of a located instant,
or the O(h) of one that is not located. A row that comes on while it is farther open than two steps lead, and than 1 % of 1 + the largest
coordinate, has the status INCONSISTENT_START. Then the velocities get the impulse p of the new rows,

    M (v+ - v-) = J^T p,     J v+ + dg/dt = 0,

which keeps the momentum along the manifold and, where the rows do not move by themselves, never gains energy. A law with unilateral rows
may refuse an impulse by its sign: then it is computed anew without these rows. Last the multipliers right after the switch are looked at.
Rows whose multipliers the law refuses go off at once, with the impulse behind them: a string that jerks and is slack again.

A first-order system (`KinematicSystem`) has no momentum and knows no impulses: where rows switch, its velocity becomes the feasible one at
once. Velocities of rows that are off are then those that the rate asks for.

*Accuracy.* With located instants the order of the inner method is kept, up to four. With `events` = 0, or a law without `margin`, rows
switch at the end of the step in which they ought to. They are late by up to h: a switch with an impulse then costs an error of order h, a
release one of order h^2, because the multiplier is zero there and with it the jump of the acceleration. For the same reason the instant of
a release is located to second order only: the multipliers are interpolated linearly.

*Derivatives.* A located instant is differentiated as the root that it is, and with it the inner steps before and after: the derivative of a
rollout has the jump of the variational equation at an impulse (the saltation matrix), because the switching times move along. Where
instants are not located, switchings sit on the grid of steps and do not move for small changes. The derivative, exact for the program, is
then that of a motion with the switching times held, and at a switch with an impulse *not* near that of the motion itself. In both cases
the sequence of switchings is held: at a start where it changes the motion has no derivative.

References:
    E. Hairer, S. P. Norsett, G. Wanner, "Solving Ordinary Differential Equations I", section II.6 (events by dense output). J. J. Moreau,
    "Unilateral contact and dry friction in finite freedom dynamics" (1988), for the impulses. M. A. Aizerman, F. R. Gantmacher,
    "Determination of stability by linear approximation of a periodic solution of a system of differential equations with discontinuous
    right-hand sides", Q. J. Mech. Appl. Math. 11 (1958), for the jump of the variational equation.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp

from jaxdae._pytree import function_field, pytree, static
from jaxdae.impulse import constraint_impulse
from jaxdae.integrators.hermite import first_zero
from jaxdae.integrators.interface import Integrator, StepInfo, step_info
from jaxdae.integrators.method import Wrapping, reported_dynamics, samples_law, single_step
from jaxdae.integrators.motion import with_feasible_velocity
from jaxdae.masks import Masked
from jaxdae.requirements import not_above, offers
from jaxdae.stabilization import PositionProjection
from jaxdae.status import Status, first_failure
from jaxdae.system import AnySystem, State, velocity_residual
from jaxdae.typing import Leaf, Rows, Velocity


class SwitchingLaw(Protocol):
    """Which rows are to be on: a pytree, whose leaves may differ from world to world.

    Two further methods are optional. `margin(system, state, lam, active)` returns (nc,) how far each row is from switching: positive as
    long as it stays as it is, zero where it switches, differentiable, the same for rows that switch together. With it instants are located.
    `admissible(lam, active)` returns (nc,), as booleans, which rows may stay on with the multipliers or impulses lam.
    """

    def __call__(self, system: AnySystem, state: State, lam: Rows, active: Any) -> Any:
        """Returns the rows that are to be on (nc,), as booleans.

        Args:
            system: the system with all of its rows.
            state: the state at the end of a step.
            lam: multipliers (nc,) there; zero in rows that are off.
            active: the rows that are on (nc,), as booleans.
        """
        ...


@pytree
class Unilateral:
    """Rows that can only push or only pull: each touches and lets go by itself.

    A row with direction s is a contact with s g >= 0, s lam >= 0, and one of the two zero. It comes on when s g reaches zero and closes,
    and goes off when s lam gets negative. A foot above the ground, g its height, pushes: s = 1. A string, g its length beyond the
    natural one, pulls: s = -1. Velocity-level rows have no gap and come on only with a row that they follow.

    Attributes:
        direction: s (nc,): 1 where lam may only be positive, -1 where it may only be negative, 0 for rows that stay as they are.
        follows: for each row the row that decides for it (static); by default each for itself. The row that keeps a foot from slipping
            follows the row that carries it. Directions of rows that follow others are not looked at.
    """

    direction: Leaf
    follows: tuple[int, ...] | None = static(default=None)

    def requirements(self) -> Any:
        """Yields what the fields have to satisfy; see `jaxdae.requirements`."""
        s = self.direction
        yield (s == 1) | (s == -1) | (s == 0), "direction must be 1, -1 or 0 for each row"

    def __call__(self, system: AnySystem, state: State, lam: Rows, active: Any) -> Any:
        """Returns the rows that are to be on (nc,)."""
        s, gap = self._direction(active, lam), self._gap(system, state, active)
        closing = s * velocity_residual(system, state) < 0.0
        return self._led(jnp.where(s == 0.0, active, jnp.where(active, s * lam >= 0.0, (s * gap <= 0.0) & closing)))

    def margin(self, system: AnySystem, state: State, lam: Rows, active: Any) -> Rows:
        """Returns s lam in rows that are on, s g in rows that are off (nc,)."""
        s, gap = self._direction(active, lam), self._gap(system, state, active)
        return self._led(jnp.where(s == 0.0, 1.0, s * jnp.where(active, lam, gap)))

    def admissible(self, lam: Rows, active: Any) -> Any:
        """Returns where s lam >= 0 (nc,)."""
        return self._led(self._direction(active, lam) * lam >= 0.0)

    def _direction(self, active: Any, lam: Rows) -> Rows:
        direction = jnp.asarray(self.direction, lam.dtype)
        if direction.shape not in ((), active.shape):
            raise ValueError(f"Unilateral.direction must have one entry a constraint row, shape {active.shape}, got {direction.shape}")
        return jnp.broadcast_to(direction, active.shape)

    def _gap(self, system: AnySystem, state: State, active: Any) -> Rows:
        """Returns g with ones for the velocity-level rows, which are never reached."""
        g = system.constraint(state.t, state.q)
        return jnp.concatenate([g, jnp.ones((active.shape[0] - g.shape[0],), g.dtype)])

    def _led(self, rows: Any) -> Any:
        if self.follows is None:
            return rows
        if len(self.follows) != rows.shape[0] or not all(0 <= k < rows.shape[0] for k in self.follows):
            raise ValueError(f"Unilateral.follows must name a row for each of the {rows.shape[0]} rows, got {self.follows}")
        return rows[jnp.asarray(self.follows)]


@pytree
class Scheduled:
    """Rows that are on for a span of time, on <= t < off.

    Attributes:
        on: when each row comes on, in s, (nc,) or a scalar; -inf for from the start.
        off: when it goes off, in s, (nc,) or a scalar; inf for never.

    A position-level row should be closed when it comes on: what is open then is projected away, which moves the system.
    """

    on: Leaf
    off: Leaf

    def requirements(self) -> Any:
        """Yields what the fields have to satisfy; see `jaxdae.requirements`."""
        yield not_above(self.on, self.off), "on must not be later than off"

    def __call__(self, system: AnySystem, state: State, lam: Rows, active: Any) -> Any:
        """Returns the rows whose span holds the time (nc,)."""
        on, off = self._span(active, lam)
        return (on <= state.t) & (state.t < off)

    def margin(self, system: AnySystem, state: State, lam: Rows, active: Any) -> Rows:
        """Returns the time to the next switching in s (nc,), negative where it is overdue."""
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
    """What a step with switchings found out: a `StepInfo`, and which rows are on.

    `impulse` and `switched` are totals since the start, so that entries of a `Trajectory` that keeps every n-th step miss no impulse. In
    worlds that have failed all are zero; the memory of the trajectory has those before the failure.

    Attributes:
        active: the rows that are on (nc,) after the step, as booleans.
        impulse: the sum of all impulses p (nc,) since the start: N s for a row in meters, N m s for one in radians.
        switched: the time in s of each row's last switching (nc,), or of the last impulse that it came on for; that of the start before.
        inside: what the integrator inside reports of the inner step that begins with the step, where that is more than a `StepInfo`, as of
            `VelocityStepping` with its efforts; else (). Where a step is cut, that is of the trial to the end of the step.
    """

    active: Leaf
    impulse: Leaf
    switched: Leaf
    inside: Any = ()


@pytree
class SwitchingMemory:
    """What `Switching` carries from step to step: the totals of `SwitchingInfo`, and the memory of the integrator inside."""

    active: Leaf
    impulse: Leaf
    switched: Leaf
    inner: Leaf = ()


@pytree
class Switching(Wrapping):
    """The step of `integrator` for a `Masked` system whose rows are switched by `law`; rows that come on bring their impulse.

    The rows that are on at the start are those of the system; from then on the law decides. What the module says about accuracy and
    derivatives holds for integrators that keep to the constraints, such as `Projected`.

    Attributes:
        integrator: any integrator; its memory is begun anew where rows switch.
        law: a `SwitchingLaw`, such as `Unilateral` or `Scheduled`.
        events: how many switchings a step can locate (static); 0 switches at the end of steps, for a third of the cost.

    Steps report a `SwitchingInfo`. One step takes 2 events + 1 inner steps.

    A law that is sampled, and its memory, belong to whole steps: write `Sampled(Switching(...), law)`. Projections belong to the rows that
    are on: write `Switching(Projected(...), law)`. The other way round either is refused.
    """

    switches: ClassVar[bool] = True
    integrator: Integrator
    law: Any = function_field()
    events: int = static(one_of=int, default=1)

    def requirements(self) -> Any:
        """Yields what the fields have to satisfy; see `jaxdae.requirements`."""
        yield offers(self.law, "__call__"), "law must be a SwitchingLaw, such as Unilateral(...) or Scheduled(...)"
        yield not samples_law(self.integrator), "integrator must not be Sampled inside: write Sampled(Switching(integrator, law), feedback)"

    def init(self, system: AnySystem, state: State) -> SwitchingMemory:
        """Returns the rows that are on at the start.

        Raises:
            TypeError: the system is not `Masked`.
            ValueError: a negative number of events.
        """
        if not isinstance(system, Masked):
            raise TypeError(f"Switching needs a Masked system, got {type(system).__name__}; write Masked(system, active)")
        if self.events < 0:
            raise ValueError(f"Switching.events must not be negative, got {self.events}")
        rows = velocity_residual(system.system, state)
        active = system.active_rows(state.t, state.q, rows.shape[0])
        since = jnp.broadcast_to(jnp.asarray(state.t, rows.dtype), rows.shape)
        return SwitchingMemory(active, jnp.zeros_like(rows), since, self.integrator.init(system, state))

    def step(self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any) -> tuple[State, Any, StepInfo]:
        """Returns the state after dt, the rows that are on then, and a `SwitchingInfo`."""
        inside = system.system if isinstance(system, Masked) else system
        dt = jnp.asarray(dt, state.q.dtype)
        if self.events and offers(self.law, "margin"):
            new, memory, (a, lam, more), status, iterations = self._in_parts(inside, state, memory, u, dt)
        else:
            trial, memory, info, flips, _ = self._trial(inside, state, memory, u, dt, dt)
            opened = _comes_on_open(inside, trial, flips & ~memory.active, dt)
            new, memory = self._switched(inside, trial, memory, flips, u, dt)
            (a, lam, more), iterations = _told(info), info.iterations
            status = jnp.where(opened & (info.status == Status.OK), Status.INCONSISTENT_START, info.status)
        ended = vars(step_info(Masked(inside, memory.active), new, a, lam, status=status))
        totals = {name: getattr(memory, name) for name in ("active", "impulse", "switched")}
        return new, memory, SwitchingInfo(**{**ended, "iterations": iterations}, **totals, inside=more)

    def _in_parts(self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any) -> tuple[Any, ...]:
        """Returns state, memory, what is told of the start, status and iterations of a step that is cut where rows switch.

        A loop of inner steps, each of which is one of two things. A *trial* goes to the end of the step: where nothing switches it is
        accepted and ends the step, where something does it only tells how far to go. A *part* goes that far, and there the rows switch. The
        last trial is accepted in any case; what switches in it waits for the next step.
        """

        def inner_step(carry: Any, last: Any) -> Any:
            state, memory, report, left, ahead, pending = carry
            new, moved, info, flips, share = self._trial(system, state, memory, u, ahead, dt)
            switched, later = self._switched(system, new, moved, pending, u, dt)
            opened = _comes_on_open(system, new, pending & ~memory.active, dt)
            is_part, is_over = jnp.any(pending), left == 0.0
            # Of the rows that switch alone: a minimum shares its derivative among all that are equal to it, as 1 may be.
            of_flips: Any = jnp.where(flips, share, 2.0)
            first = jnp.where(jnp.any(flips), jnp.min(of_flips, initial=2.0), 1.0)
            cut = jnp.any(flips) & ~is_part & ~is_over & ~last
            report = _choose(cut | is_over, report, _joined(report, info))
            # What is over still moves, by nothing: where a row has switched at the very end the rest of the step has a derivative.
            state, memory = _choose(cut, (state, memory), (new, moved))
            status, corrections = report
            status = jnp.where(opened & (status == Status.OK), jnp.asarray(Status.INCONSISTENT_START, jnp.int32), status)
            report = (status, corrections)
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

    def _trial(self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any, whole: Any) -> tuple[State, Any, StepInfo, Any, Any]:
        """Returns the inner step, the rows that switch in it, and after which part of it (nc,): 1 for those that do not.

        Args:
            system: the system with all of its rows.
            state: where the inner step begins.
            memory: the rows that are on, and what the integrator inside remembers.
            u: input that is held, or a law of it.
            dt: how far the inner step goes in s.
            whole: the length of the whole step in s.
        """
        active = memory.active
        state = self._with_rates(system, state, active, u)
        new, memory, info = self._advance(system, state, memory, u, dt, whole)
        a, lam = self._dynamics(system, new, active, u, whole)
        flips = _answer("the law", self.law(system, new, lam, active), active) != active
        if not offers(self.law, "margin"):
            return new, memory, info, flips, jnp.ones_like(lam)
        values = []
        for at, acceleration, multipliers in ((state, info.a, info.lam), (new, a, lam)):

            def margin(s: Any, at: State = at, a: Any = acceleration, start: Any = multipliers) -> Rows:
                # The multipliers move at their mean rate.
                moved = State(at.t + s * dt, system.retract(at.q, s * dt * at.v), at.v + s * dt * a)
                return self.law.margin(system, moved, start + s * (lam - info.lam), active)

            values += jax.jvp(margin, (jnp.zeros_like(dt),), (jnp.ones_like(dt),))
        return new, memory, info, flips, first_zero(flips, *values)

    def _advance(self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any, whole: Any) -> tuple[State, Any, StepInfo]:
        """Returns the state after dt, the memory, and what the integrator reports.

        A part of no length, or of next to none, as where a row switches at the start of a step, is one of Euler's. Its error is that of
        rounding, while methods that divide by the length of a step would make velocities of the rounding of positions, or NaN.
        """
        is_short = dt <= _near(dt) * whole
        length = jnp.where(is_short, whole, dt)
        new, inner, info = single_step(self.integrator, Masked(system, memory.active), state, memory.inner, u, length)
        # Where a step is over, accelerations of what follows may be no numbers, and no time passes.
        a = jnp.where(jnp.isfinite(info.a) | (dt > 0.0), info.a, 0.0)
        moved = State(state.t + dt, system.retract(state.q, dt * state.v), state.v + dt * a)
        ok = jnp.asarray(Status.OK, info.status.dtype)
        new, inner = _choose(is_short, (moved, memory.inner), (new, inner))
        info = dataclasses.replace(info, status=jnp.where(is_short, ok, info.status))
        return new, dataclasses.replace(memory, inner=inner), info

    def _dynamics(self, system: AnySystem, state: State, active: Any, u: Any, dt: Any) -> Any:
        """Returns accelerations and multipliers as the inner integrator sees them; accelerations of a first-order system count as zero."""
        a, lam = reported_dynamics(self.integrator, Masked(system, active), state, u, dt)
        return a, jnp.where(active, lam, 0.0)

    def _with_rates(self, system: AnySystem, state: State, active: Any, u: Any) -> State:
        """Returns the state; of a first-order system with the velocity that these rows leave it, no part of where it starts."""
        return with_feasible_velocity(Masked(system, active), state, u, self.roles.solver)[0]

    def _switched(self, system: AnySystem, state: State, memory: Any, flips: Any, u: Any, dt: Any) -> tuple[State, Any]:
        """Returns the state after the impulse and the memory with the rows that are on then; dt is the length of the whole step."""
        solver = self.roles.solver
        active = memory.active ^ flips
        impact = jnp.any(flips & active)
        closed = PositionProjection(solver=solver).project(Masked(system, active), state)
        v, p = constraint_impulse(system, closed, active, solver=solver)
        carrying = active
        if system.first_order:
            p = jnp.zeros_like(p)
        elif offers(self.law, "admissible"):
            # What round-off leaves in rows that take no part has any sign.
            noise = _near(p) * jnp.max(jnp.abs(p), initial=0.0)
            carrying = self._admitted(jnp.where(jnp.abs(p) > noise, p, 0.0), active)
            v, p = constraint_impulse(system, closed, carrying, solver=solver)
        new, p, active = _choose(impact, (State(state.t, closed.q, v), p, carrying), (state, jnp.zeros_like(p), active))
        if offers(self.law, "admissible"):
            remaining = self._admitted(self._dynamics(system, new, active, u, dt)[1], active)
            active = _choose(jnp.any(flips), remaining, active)
        new = self._with_rates(system, new, active, u)
        switched = _choose(flips | (active != memory.active), jnp.broadcast_to(state.t, p.shape), memory.switched)
        # What the integrator remembers is of a motion that has ended.
        inner = _choose(jnp.any(flips), self.integrator.init(Masked(system, active), new), memory.inner)
        return new, SwitchingMemory(active, memory.impulse + p, switched, inner)

    def _admitted(self, lam: Rows, active: Any) -> Any:
        """Returns the rows that are on, without those whose multipliers or impulses the law refuses."""
        return active & _answer("law.admissible", self.law.admissible(lam, active), active)


def _comes_on_open(system: AnySystem, state: State, rows: Any, dt: Any) -> Any:
    """Returns whether a position-level row comes on while it is farther from closed than two steps lead.

    To close it would move the system by something that is no error of the instant: a string that was too long from the start, say.
    """
    g = system.constraint(state.t, state.q)
    scale = system.jacobian_operator(state.t, state.q, state.v).row_sizes()[: g.shape[0]]
    near = 2.0 * dt * jnp.max(jnp.abs(state.v), initial=0.0) + 1e-2 * (1.0 + jnp.max(jnp.abs(state.q), initial=0.0))
    return jnp.any(rows[: g.shape[0]] & (jnp.abs(g) > near * scale))


def _answer(who: str, rows: Any, active: Any) -> Any:
    """Returns what a law answered, after a check of its shape."""
    rows = jnp.asarray(rows)
    if rows.shape != active.shape or rows.dtype != active.dtype:
        raise ValueError(f"{who} must return one boolean a constraint row, shape {active.shape}, got {rows.dtype} of shape {rows.shape}")
    return rows


def _choose(flag: Any, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(flag, x, y), yes, no)


def _told(info: StepInfo) -> tuple[Velocity, Rows, Any]:
    """Returns a and lam at the start of an inner step, and its report where that is more than a `StepInfo`, else ()."""
    return info.a, info.lam, () if type(info) is StepInfo else info


def _joined(report: Any, info: StepInfo) -> Any:
    """Returns status and iterations of inner steps one after the other: the first failure, the most iterations."""
    status, iterations = report
    return first_failure(status, info.status), jnp.maximum(iterations, info.iterations)


def _near(x: Any) -> float:
    return float(jnp.finfo(x.dtype).eps) ** 0.5

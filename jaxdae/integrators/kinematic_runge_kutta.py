"""Explicit Runge-Kutta methods for first-order systems, x' = rate(t, x, u) with constraints.

The lecture notes enforce constraints on x' = f in three ways. The corresponding methods are

    sequential:            Sequential(Kinematic(tableau, projected=False))
                           a step of x' = f, then root-finding for c = 0
    projected step:        ProjectedStep(Kinematic(tableau, projected=False))
                           a step of x' = f without its infeasible component
    projected derivative:  Kinematic(tableau)
                           steps of x' = P f - J^+ b, feasible at every stage

The projected derivative has the order of its tableau. You can wrap it in a projection:
`Projected(Kinematic.rk4())` removes its small drift.

References:
    A. Kelly, "Mobile Robotics: Mathematics, Models, and Methods", sections 3.4.1, 3.4.2 and 3.5.2; lecture
    notes, Carnegie Mellon University.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from jaxdae.base.dataclass import pytree, static
from jaxdae.integrators.equation_of_motion import bound, with_feasible_velocity
from jaxdae.integrators.integrator import StepInfo, input_at, largest, step_info
from jaxdae.integrators.method import PointMethod
from jaxdae.integrators.runge_kutta import EULER, MIDPOINT, RK4, Tableau, amplifying_rate, combine
from jaxdae.integrators.tangent_rates import tangent_rate
from jaxdae.systems.kinematic_system import (
    check_kinematic,
    feasible_velocity,
    held_velocity,
    step_status,
    unprojected_rate,
)
from jaxdae.systems.linearization import Point
from jaxdae.systems.status import Status, first_failure
from jaxdae.systems.system import AnySystem, State
from jaxdae.systems.tolerances import scales
from jaxdae.typing import Coordinates, Leaf, Velocity


@pytree
class Kinematic(PointMethod):
    """An explicit Runge-Kutta method for a `KinematicSystem`, of the order of its tableau.

    Constructors such as `Kinematic.rk4()` set the tableau.

    A step depends only on t and q at its start. It returns in v the feasible velocity at its end, with the
    input of the step. `lam` is the multiplier of `kinematic_velocity` at the start. `a` is the mean
    acceleration over the step, (v at the end - v at the start) / h.

    A feedback law (t, state) receives the time and the coordinates of a stage, but the velocity at the start
    of the step.

    The status is that of `kinematic_status` at both ends of the step. It is SINGULAR if the step passes a
    singular configuration, such as a steering angle of 90 degrees, see `step_status`. It is UNSTABLE if the
    step amplifies the differences between its own stages, see `is_unstable`, or if large slopes of its stages
    cancel, see `is_stalled`.

    Attributes:
        tableau: the coefficients.
        projected: whether to project the derivative, x' = P f - J^+ b (the third approach of the lecture
            notes, see `jaxdae.textbook`). Otherwise the derivative is f, and you wrap the method in
            `Sequential` or `ProjectedStep` to enforce position-level rows. Velocity-level rows are always
            enforced.
        solver: a saddle-point solver; None for the default solver of the system.
    """

    takes_linearization: ClassVar[bool] = False

    tableau: Tableau = static(one_of=Tableau, default=RK4)
    projected: bool = static(one_of=bool, default=True)
    solver: Leaf = None

    @classmethod
    def euler(cls, **kwargs: Any) -> Kinematic:
        """Return Euler's method: order 1, one stage."""
        return cls(tableau=EULER, **kwargs)

    @classmethod
    def midpoint(cls, **kwargs: Any) -> Kinematic:
        """Return the explicit midpoint method: order 2, two stages."""
        return cls(tableau=MIDPOINT, **kwargs)

    @classmethod
    def rk4(cls, **kwargs: Any) -> Kinematic:
        """Return the classical Runge-Kutta method: order 4, four stages."""
        return cls(tableau=RK4, **kwargs)

    def init(self, system: AnySystem, state: State) -> tuple[()]:
        """Return (): the method has no memory."""
        check_kinematic(system)
        return ()

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt.

        The step evaluates the rate once per stage and once at the end. If the last stage is not at the end of
        the step, the stability test takes two more evaluations.
        """
        check_kinematic(system)
        state = point.state

        def moved(coefficients: tuple[float, ...], t: Any) -> tuple[State, Any]:
            xi = dt * combine(coefficients, slopes)
            return State(t, system.retract(state.q, xi), state.v), xi

        given = input_at(u, state, system)
        solver: Any = self.solver
        start, lam, status = feasible_velocity(system, state, given, solver)
        slopes = [start if self.projected else self._slope(system, state, u)]
        xi, slope = jnp.zeros_like(start), slopes[0]
        for row, c in zip(self.tableau.a[1:], self.tableau.c[1:], strict=True):
            stage, xi = moved(row, state.t + c * dt)
            slope = self._slope(system, stage, u)
            slopes.append(tangent_rate(system, state.q, xi, slope))
        end, whole = moved(self.tableau.b, state.t + dt)
        new, ended = with_feasible_velocity(system, end, u, self.solver)
        at_end = new.v if self.projected else self._slope(system, end, u)
        unstable = jnp.ones((), bool)
        if self.tableau.c[-1] != 1.0:
            # No stage is at the end of the step: compare with the start state at the end time. If the rate
            # jumps, the rate at half the step lies on one of the two sides of the jump.
            xi, slope = jnp.zeros_like(whole), self._slope(system, State(end.t, state.q, state.v), u)
            half = self._slope(system, State(end.t, system.retract(state.q, 0.5 * whole), state.v), u)
            unstable = largest(half - 0.5 * (slope + at_end)) < 0.25 * largest(at_end - slope)
        unstable &= is_unstable(system, self.tableau, state.q, dt, (slopes[0], slope, at_end), whole - xi)
        unstable |= is_stalled(system, state.q, dt, slopes, whole)
        passed = step_status(system, state, new, input_at(u, new, system), solver)
        status = first_failure(status, ended, passed, jnp.where(unstable, Status.UNSTABLE, Status.OK))
        return (
            Point(new),
            memory,
            step_info(bound(system, new, u), new, (new.v - start) / dt, lam, status=status),
        )

    def _slope(self, system: Any, at: State, u: Any) -> Velocity:
        stage_input = input_at(u, at, system)
        if self.projected:
            return held_velocity(system, at, stage_input, self.solver)
        return unprojected_rate(system, at, stage_input, self.solver)


def is_stalled(system: AnySystem, q: Coordinates, dt: Any, slopes: list[Velocity], whole: Velocity) -> Any:
    """Return whether the slopes of the stages are large but cancel in an entry of the step.

    A rate that saturates, such as x' = -r tanh(x / d) with h r >> d, has slopes of alternating signs at the
    stages. The method then stops at a false equilibrium, up to h r / 2 from the equilibrium. Slopes that
    change their sign in a step that resolves them are small at one of the stages.

    Args:
        system: the system.
        q: coordinates at the start of the step.
        dt: h in s.
        slopes: the slopes of the stages.
        whole: the step xi (nv,).
    """
    least = dt * jnp.min(jnp.abs(jnp.stack(slopes)), axis=0)
    rates = least / scales(system, system.names.velocity_units, least.shape[0], q.dtype)
    matters = rates > resolution(system, q)
    return jnp.any((jnp.abs(whole) < 0.1 * least) & matters)


def is_unstable(
    system: AnySystem,
    tableau: Tableau,
    q: Coordinates,
    dt: Any,
    slopes: tuple[Velocity, Velocity, Velocity],
    apart: Velocity,
) -> Any:
    """Return whether a step of an explicit method amplifies a mode that it should damp.

    Two points at the end of the step, separated by xi, have slopes k and k+, so rho = h |k+ - k| / |xi|
    estimates h times the Lipschitz constant of the rate (Hairer and Wanner's test for stiffness). With the
    stability function R of the method, the step multiplies a mode that decays at that rate by R(-rho). The
    step is unstable if all of these conditions hold:

    * |R| is 1.1 or more,
    * the slope grows by more than that factor over the step,
    * the slope at the end is significant, h |k+| > sqrt(eps) (1 + |q|), with lengths in units of the
      characteristic length,
    * the change of the slope does not point along xi, as it does if the motion itself diverges.

    Args:
        system: the system.
        tableau: the coefficients.
        q: coordinates at the start of the step.
        dt: h in s.
        slopes: the slopes at the start, at the first of the two points (k), and at the end of the step (k+).
        apart: xi (nv,), from the first point to the end of the step.

    References:
        E. Hairer, G. Wanner, "Solving Ordinary Differential Equations II", section IV.2.
    """
    first, near, last = slopes
    change = last - near
    grows = jnp.sum(last**2) > 1.1**2 * jnp.sum(first**2)
    rates = last / scales(system, system.names.velocity_units, last.shape[0], q.dtype)
    matters = dt * largest(rates) > resolution(system, q)
    product = jnp.sum(change * apart)
    away = (product > 0.0) & (product**2 > 0.25 * jnp.sum(change**2) * jnp.sum(apart**2))
    return grows & matters & ~away & (dt * largest(change) > amplifying_rate(tableau) * largest(apart))


def resolution(system: AnySystem, q: Coordinates) -> Any:
    """Return sqrt(eps) (1 + |q|) (), with lengths in units of the characteristic length."""
    places = q / scales(system, system.names.coordinate_units, q.shape[0], q.dtype)
    return float(jnp.finfo(q.dtype).eps) ** 0.5 * (1.0 + largest(places))

"""Stability limits of explicit methods.

`jaxdae.integrators.sampled_feedback` covers sampled laws with any method.

An explicit method multiplies a decaying mode v' = -mu v by R(-h mu) in a step of length h, where R is its
stability function. Beyond the limit z* of the method, |R(-h mu)| > 1 for h mu > z*, and the mode grows
although it should decay. A saturating force, such as dry friction, bounds the error: the result stays finite
but is wrong. Two tests detect such steps.

*Feedback of constraints.* Baumgarte feedback x'' + 2 alpha x' + beta^2 x = 0 is linear with known
coefficients. With the companion matrix A, a step multiplies (x, h x') by a 2 x 2 matrix S(h A), which is R(h
A) for a Runge-Kutta method. The step is stable if the spectral radius of S is at most 1. `GROWTH` leaves a
margin for round-off and for undamped feedback, which methods of order two amplify slightly.

*Forces.* Evaluate the acceleration a(t, q, v) as in the first stages of a Runge-Kutta method:

    a_1 = a(t, q, v),
    a_2 = a(t + h/2, q (+) h/2 v, v + h/2 a_1),
    a_3 = a(t + h/2, q (+) h/2 v_2, v + h/2 a_2).

For a linear damper with rate mu and z = h mu, a_2 - a_1 = -z/2 a_1 and a_3 - a_2 = z^2/4 a_1. For an undamped
spring of frequency omega, a_3 - a_2 = -(h omega)^2/4 a_1. For dry friction that saturates in both directions,
a_2 = -a_1 and a_3 = a_1. In a step that resolves the motion, the differences decrease: a_3 - a_2 = O(h) (a_2
- a_1). The step is beyond the limit z* if, for some velocity,

    (a_2 - a_1)(a_3 - a_2) < 0,    |a_3 - a_2| >= 0.95 |a_2 - a_1|,
    |a_3 - a_2| >= min(0.95 z*^2 / 4, 1.9) |a_1|.

A stable method can also stop at a false equilibrium, where the increments of its stages cancel. There the
last condition is weaker, |a_3 - a_2| >= |a_1|, and the last step has undone its own acceleration, |v -
v_last| < 0.1 h |a_1|. `_MIXED` times the largest entry of a_1 is a lower bound of |a_1|, so that entries that
are zero by symmetry have no effect.

This bound hides a body that friction holds beside a body with a large acceleration, such as a rotor. Without
the bound, a fourth acceleration must confirm the result:

    a_4 = a(t + h/2, q (+) h/2 v, v + h/2 a_2).

It differs from a_2 in the velocity only, by h/2 (a_2 - a_1), so that a_4 - a_2 is the effect of the dampers
on a_2 - a_1. In the same velocity, it must satisfy the first two conditions in place of a_3, and |a_4 - a_2|
must be at least `_MIXED` times the largest entry of a_2 - a_1, in units of their scales.

Several modes in one velocity can satisfy these conditions in a stable step. Quotients in the mass metric,
<x, y> = x^T M y, cannot: they do not exceed the largest rate if stiffness K and damping D are symmetric. With

    a_5 = a(t + h/2, q, v + h/2 a_2),

a_3 - a_4 = -h^2/4 K a_1 and a_4 - a_5 = -h/2 K v contain only the springs. With d = a_2 - a_1, the
difference e = a_4 - a_2 = -h/2 D d contains only the dampers. Let sigma = (h omega)^2/4 be the larger one of
the Rayleigh quotients of K in the directions a_1 and v, and let

    delta = -<e, e> / <d, e> <= h mu / 2.

A force that saturates limits delta to 1, which is stable for z* > 2. Its response to a quarter of d is not a
quarter of e,

    a_6 = a(t + h/2, q (+) h/2 v, v + h/2 (a_1 + d/4)),    |a_6 - a_2 - e/4| > `_BENT` |e|.

The conditions above count in one of three cases:

- a_4 satisfies the first two conditions in the same velocity, and the force there saturates;
- 2 delta/z* >= `_STEEP`;
- 4 sigma/z*^2 + 2 delta/z* >= `_MARGIN` (1 is the exact limit of semi-implicit Euler).

Without these conditions, 4 sigma/z*^2 >= `_MARGIN` is beyond the limit. This finds undamped springs and
servos. It does not apply to feedback laws, whose K may be unsymmetric.

The limits of undamped springs are lower than z* for methods such as Heun's, and the limit of semi-implicit
Euler is lower than z* with damping. A mode that grows soon dominates the motion, and both Rayleigh quotients
are then its own. After the first step, the step is therefore also beyond the limit if

    |v - v_last|^2 + |h a_1|^2 > `_FAST`^2 |v|^2    in the mass metric,

and if S(h A) has a spectral radius above `GROWTH`, with beta^2 = 4 sigma / h^2 from the smaller quotient and
alpha = -<d, e> / <d, d> / h. In contrast to delta, this quotient of D stays small if inertial forces turn e
away from d.

The test sees the forces near the examined states. A servo at its force limit has no stiffness there, so that
an undamped servo that saturates in almost all steps can stay unnoticed. `stable_step` at its set point, or a
test in the first step from there, finds it.

References:
    E. Hairer, G. Wanner, "Solving Ordinary Differential Equations II", sections IV.2 (stability functions,
    detection of stiffness).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.dynamics.stabilization import Baumgarte
from jaxdae.integrators.equation_of_motion import motion
from jaxdae.integrators.integrator import input_at, largest
from jaxdae.integrators.method import of_points, roles_of, sampled_law, samples_law
from jaxdae.integrators.sampled_feedback import is_held_loop_unstable
from jaxdae.systems.status import Status
from jaxdae.systems.system import AnySystem, State
from jaxdae.systems.tolerances import scales

_MIXED = 0.1
_MARGIN = 1.1
"""The bound of Rayleigh quotients relative to z*, above the limits of undamped springs in `stable_step`."""
_STEEP = 0.97
"""The bound of dampers relative to z*. At 1.1 z*, dry friction saturates until the quotient is 0.97 to 1."""
_BENT = 0.01
GROWTH = 1.01
"""The largest growth of a mode per step; `stable_step` allows the same."""
_FAST = 0.1
"""|v - v_last| is about h omega |v| in a mode. Explicit Euler grows by `GROWTH` from h omega = 0.14 on."""


def companion(alpha: Any, beta: Any) -> Any:
    """Return A (2, 2) of x'' + 2 alpha x' + beta^2 x = 0 as (x, x')' = A (x, x')."""
    alpha, beta = jnp.asarray(alpha), jnp.asarray(beta)
    zero = jnp.zeros_like(alpha)
    return jnp.stack([jnp.stack([zero, zero + 1.0]), jnp.stack([-(beta**2), -2.0 * alpha])])


def spectral_radius(matrix: Any) -> Any:
    """Return the spectral radius of a real matrix (2, 2) from its trace and determinant."""
    half, determinant = 0.5 * jnp.trace(matrix), matrix[0, 0] * matrix[1, 1] - matrix[0, 1] * matrix[1, 0]
    discriminant = half**2 - determinant
    real = jnp.abs(half) + jnp.sqrt(jnp.maximum(discriminant, 0.0))
    return jnp.where(discriminant >= 0.0, real, jnp.sqrt(jnp.maximum(determinant, 0.0)))


def is_beyond_limit(system: AnySystem, integrator: Any, state: State, before: Any, u: Any, dt: Any) -> Any:
    """Return whether a step exceeds the stability limit of an explicit method for the forces at a state ().

    Args:
        system: a system of second order.
        integrator: an explicit method.
        state: time (s), coordinates and velocities.
        before: velocities (nv,) one step earlier, infinite at the start.
        u: input (nu,), a feedback law, or None.
        dt: the step in s.

    The cost is six evaluations of the acceleration.
    """
    q, v, half = state.q, state.v, 0.5 * dt
    solver, limit = roles_of(integrator).solver, damping_limit(integrator)

    def stage(speeds: tuple[Any, Any], number: Any) -> tuple[tuple[Any, Any], Any]:
        second, third = speeds  # v + h/2 a_1 and v + h/2 a_2, from the first two stages
        quarter: Any = 0.75 * second + 0.25 * third
        later = jnp.where(number == 1, second, jnp.where(number == 5, quarter, third))
        speed = jnp.where(number == 0, v, later)
        shift: Any = jnp.where(number > 0, half, 0.0)
        ahead: Any = jnp.where(number == 4, 0.0, shift)
        at = State(state.t + shift, system.retract(q, ahead * jnp.where(number == 2, second, v)), speed)
        a = motion(system, at, u, solver, None)[1]
        ahead_of_v: Any = v + half * a
        return (jnp.where(number == 0, ahead_of_v, second), jnp.where(number == 1, ahead_of_v, third)), a

    start, *later = jax.lax.scan(stage, (v, v), jnp.arange(6))[1]
    first, second, damped = later[0] - start, later[1] - later[0], later[2] - later[0]
    mass = system.mass_operator(q)

    def quotient(change: Any, direction: Any) -> Any:
        weighted: Any = mass.times(direction)
        square: Any = jnp.sum(weighted * direction)
        positive: Any = jnp.where(square > 0.0, square, 1.0)
        return jnp.where(square > 0.0, -jnp.sum(weighted * change) / positive, 0.0)

    along, across = quotient(later[1] - later[2], start), half * quotient(later[2] - later[3], v)
    springs = jnp.maximum(along, across) / (limit**2 / 4.0)
    weighted: Any = mass.times(damped)
    decrease: Any = -jnp.sum(weighted * first)
    positive: Any = jnp.where(decrease > 0.0, decrease, 1.0)
    delta: Any = jnp.where(decrease > 0.0, jnp.sum(weighted * damped) / positive, 0.0)
    dampers = delta / (limit / 2.0)
    sizes = scales(system, system.names.velocity_units, v.shape[0], v.dtype)

    def grows(size: Any) -> Any:
        cancels = jnp.abs(v - before) < 0.1 * dt * size
        least = jnp.where(cancels, 1.0, min(0.95 * limit**2 / 4.0, 1.9))
        return opposes(second) & (jnp.abs(second) >= least * size)

    def opposes(change: Any) -> Any:
        return (first * change < 0.0) & (jnp.abs(change) >= 0.95 * jnp.abs(first))

    mixed = grows(jnp.maximum(jnp.abs(start), _MIXED * largest(start)))
    confirmed = opposes(damped) & (jnp.abs(damped) >= _MIXED * sizes * largest(first / sizes))
    least = float(jnp.finfo(q.dtype).eps) ** 0.75 * (1.0 + largest(q)) * sizes
    matters, springs_matter = (
        dt**2 * jnp.abs(change) > least
        for change in (second, jnp.stack([later[1] - later[2], later[2] - later[3]]))
    )
    saturates = jnp.abs(later[4] - later[0] - 0.25 * damped) > _BENT * jnp.abs(damped)
    counts = (opposes(damped) & saturates) | (dampers >= _STEEP) | (springs + dampers >= _MARGIN)
    beyond = jnp.any((mixed | (grows(jnp.abs(start)) & confirmed)) & counts & matters)
    beyond |= (springs >= _MARGIN) & jnp.any(springs_matter) & (not callable(u))

    def energy(x: Any) -> Any:
        return jnp.sum(mass.times(x) * x)

    moved = energy(v - before)  # not finite at the start
    fast = jnp.isfinite(moved) & (moved + energy(dt * start) > _FAST**2 * energy(v))
    spring, damper = jnp.minimum(along, across), quotient(damped, first)
    alone = companion(jnp.maximum(damper, 0.0), 2.0 * jnp.sqrt(jnp.maximum(spring, 0.0)))
    growing = spectral_radius(of_points(integrator).step_matrix(alone)) > GROWTH
    return beyond | (fast & growing & jnp.any(springs_matter))


def stability_status(
    system: AnySystem, integrator: Any, state: State, before: Any, memory: Any, u: Any, dt: Any
) -> Any:
    """Return UNSTABLE if the step exceeds the limit for the forces or a sampled law, else OK (), int32.

    Args:
        system: the system.
        integrator: any integrator.
        state: time (s), coordinates and velocities.
        before: velocities (nv,) one step earlier, infinite at the start.
        memory: the memory of the integrator.
        u: input (nu,), a feedback law, or None.
        dt: the step in s.
    """
    solver, beyond = roles_of(integrator).solver, jnp.zeros((), bool)
    sampled = sampled_law(integrator, memory, dt)
    own = of_points(integrator).system_input
    if sampled is None and samples_law(integrator):  # Too expensive to examine: its inputs are zero here.
        count = system.sizes(state.q).nu
        if u is None and count is None:
            return jnp.zeros((), jnp.int32)
        here = jnp.zeros((count,), state.q.dtype) if u is None else own(u)
    elif sampled is None:
        here = own(u)
    else:
        law, every = sampled

        def held(t: Any, at: State) -> Any:
            added = input_at(u, at)
            return own(law(t, at) if added is None else law(t, at) + added)

        share = 0.5 + (of_points(integrator).position_share - 0.5) / every
        here = held(state.t, state)
        beyond = is_held_loop_unstable(system, state, held, here, every * dt, solver, share)
    if _has_steep_forces(system, integrator, here):
        # Steps beyond the limit may alternate between two velocities. Friction is steeper at the slower one.
        sizes = scales(system, system.names.velocity_units, state.v.shape[0], state.v.dtype)
        slower = largest(before / sizes) < largest(state.v / sizes)
        state, before = (
            dataclasses.replace(state, v=jnp.where(slower, before, state.v)),
            jnp.where(slower, state.v, before),
        )
        beyond |= is_beyond_limit(system, integrator, state, before, here, dt)
    return jnp.where(beyond, Status.UNSTABLE, Status.OK).astype(jnp.int32)


def may_be_unstable(system: AnySystem, integrator: Any, law: Any) -> bool:
    """Return whether to test steps for stability.

    The test applies to sampled laws, and to explicit methods if forces may be steep.
    """
    return samples_law(integrator) or _has_steep_forces(system, integrator, law)


def steps_between_examinations(integrator: Any, steps: int) -> int:
    """Return the aim of the number of steps between two stability tests; steps beyond the limit persist.

    A test takes six evaluations of the acceleration: 1 % of the cost of RK4 every 125 steps, and up to 2 % of
    methods of order one every 500 steps. These methods evaluate the acceleration once per step. The test of a
    sampled law also takes ten evaluations of the law. Friction and tires that saturate at the start are not
    steep there. Shorter rollouts are therefore tested once more halfway, if that costs at most 2 %.

    Args:
        integrator: any integrator.
        steps: the number of steps of the rollout.
    """
    aim = 250 if samples_law(integrator) else 125 if of_points(integrator).is_of_second_order else 500
    return min(aim, steps // 2) if steps >= 0.6 * aim else aim


def _has_steep_forces(system: AnySystem, integrator: Any, u: Any) -> bool:
    return (
        damping_limit(integrator) < float("inf")
        and not system.first_order
        and (callable(u) or system.resists)
    )


def feedback_status(system: AnySystem, integrator: Any, state: State, dt: Any) -> Any:
    """Return UNSTABLE if Baumgarte feedback exceeds the limit of the integrator, else OK (), int32."""
    method, feedback = of_points(integrator), roles_of(integrator).stabilization
    if not isinstance(feedback, Baumgarte) or damping_limit(integrator) == float("inf"):
        return jnp.zeros((), jnp.int32)
    alpha, beta = (jnp.asarray(dt * gain, state.q.dtype) for gain in (feedback.alpha, feedback.beta))
    sizes = system.sizes(state.q)
    gains = [beta] * (sizes.ng > 0) + [jnp.zeros_like(beta)] * (sizes.nw > 0)
    radii = [spectral_radius(method.step_matrix(companion(alpha, gain))) for gain in gains]
    grows = jnp.any(jnp.stack([jnp.zeros((), state.q.dtype), *radii]) > GROWTH)
    return jnp.where(grows, Status.UNSTABLE, Status.OK).astype(jnp.int32)


def damping_limit(integrator: Any) -> float:
    """Return the largest h mu for which an integrator damps v' = -mu v.

    The limit is infinity for implicit and user-defined integrators.
    """
    return of_points(integrator).damping_limit

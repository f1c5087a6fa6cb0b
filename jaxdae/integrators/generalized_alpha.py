"""Generalized-alpha method on the index-3 form: second order, with adjustable damping of fast modes.

With an auxiliary acceleration A in addition to a, and with alpha_m, alpha_f, gamma and beta defined by one
parameter rho = rho_inf,

    q1 = q0 (+) (h v0 + h^2 (1/2 - beta) A0 + h^2 beta A1),        v1 = v0 + h (1 - gamma) A0 + h gamma A1,
    (1 - alpha_m) A1 + alpha_m A0 = (1 - alpha_f) a1 + alpha_f a0,
    M(q1) a1 = f(t1, q1, v1) + J(q1)^T lam1,        g(t1, q1) = 0,  w(t1, q1, v1) = 0,

    alpha_m = (2 rho - 1) / (rho + 1),   alpha_f = rho / (rho + 1),
    gamma = 1/2 + alpha_f - alpha_m,     beta = (gamma + 1/2)^2 / 4.

rho_inf is the factor by which a step multiplies infinitely fast modes: 1 preserves them, 0 removes them in
one step. The constraint rows are divided by h^2 beta', the factor with which a1 moves the positions. Newton's
matrix is then the saddle-point matrix up to terms in h,

    [M + h gamma' D + h^2 beta' K, -J^T; J, C],     (beta', gamma') = (beta, gamma) (1 - alpha_f) / (1 -
    alpha_m),

with D = -df/dv and K = d(M a - f - J^T lam)/dq; see `jaxdae.linalg.newton` for its inverse.

Positions, velocities and multipliers converge with order two. Position-level rows hold to round-off, their
rates to O(h^2). With rotations in `retract`, this is the Lie-group method of Bruels and Cardona.

References:
    J. Chung, G. M. Hulbert, J. Appl. Mech. 60 (1993). M. Arnold, O. Bruels, "Convergence of the
    generalized-alpha scheme for constrained mechanical systems", Multibody Syst. Dyn. 18 (2007). O. Bruels,
    A. Cardona, M. Arnold, "Lie group generalized-alpha time integration of constrained flexible multibody
    systems", Mech. Mach. Theory 48 (2012).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.integrators.implicit import Unknowns, dynamic_rows, hard_or_soft, saddle_point_corrections
from jaxdae.integrators.integrator import StepInfo, closed_step_info, convergence, dynamics_at_start
from jaxdae.integrators.method import Method
from jaxdae.linalg.newton import DenseNewton, NewtonMethod, is_newton
from jaxdae.systems.linearization import linearize
from jaxdae.systems.system import AnySystem, State, velocity_residual
from jaxdae.typing import Leaf


@pytree
class AlphaMemory:
    """Memory: auxiliary and true accelerations (nv,), multipliers (nc,), and whether they are valid ()."""

    auxiliary: Leaf
    a: Leaf
    lam: Leaf
    started: Leaf


def _weights(rho: Any) -> tuple[Any, Any, Any, Any]:
    alpha_m, alpha_f = (2.0 * rho - 1.0) / (rho + 1.0), rho / (rho + 1.0)
    gamma = 0.5 + alpha_f - alpha_m
    return alpha_m, alpha_f, gamma, 0.25 * (gamma + 0.5) ** 2


def _factors(rho: Any) -> tuple[Any, Any]:
    """Return beta' and gamma', the factors with which h^2 a1 and h a1 move positions and velocities."""
    alpha_m, alpha_f, gamma, beta = _weights(rho)
    share = (1.0 - alpha_f) / (1.0 - alpha_m)
    return beta * share, gamma * share


def _end(
    state: State, system: AnySystem, a: Any, memory: AlphaMemory, rho: Any, dt: Any
) -> tuple[Any, State]:
    """Return the auxiliary acceleration and the state at the end."""
    alpha_m, alpha_f, gamma, beta = _weights(rho)
    new = ((1.0 - alpha_f) * a + alpha_f * memory.a - alpha_m * memory.auxiliary) / (1.0 - alpha_m)
    v = state.v + dt * ((1.0 - gamma) * memory.auxiliary + gamma * new)
    xi = dt * state.v + dt**2 * ((0.5 - beta) * memory.auxiliary + beta * new)
    return new, State(state.t + dt, system.retract(state.q, xi), v)


def _residual(x: Unknowns, args: Any) -> Unknowns:
    system, state, memory, rho, u, dt = args
    beta, gamma = _factors(rho)
    a, lam = x.dv / dt, x.impulse / dt
    _, end = _end(state, system, a, memory, rho, dt)
    position = system.constraint(end.t, end.q) / (dt**2 * beta)
    velocity = system.velocity_constraint(end.t, end.q, end.v) / (dt * gamma)
    rows = hard_or_soft(system, end, a, lam, jnp.concatenate([position, velocity]))
    return Unknowns(dt * dynamic_rows(system, end, a, lam, u), dt * rows)


@pytree
class GeneralizedAlpha(Method):
    """The generalized-alpha method with position-level constraints. Order 2; rho_inf damps fast modes.

    `StepInfo.a` and `lam` are the values of the method at the start of the step. In the first step, they are
    the values of the dynamics.

    Attributes:
        rho_inf: the factor by which a step multiplies infinitely fast modes, 0 to 1.
        solver: a saddle-point solver for the first guess, the corrections of `SaddlePointNewton`, and
            projections around the method.
        newton: `DenseNewton(...)`, or `SaddlePointNewton(...)` for many bodies; the corrections update h a
            and h lam.
    """

    rho_inf: Leaf = 0.8
    solver: Leaf = None
    newton: NewtonMethod = DenseNewton(iterations=8)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield (self.rho_inf >= 0) & (self.rho_inf <= 1), "rho_inf must lie between 0 and 1"
        yield is_newton(self.newton)

    def init(self, system: AnySystem, state: State) -> AlphaMemory:
        """Return the memory before the first step.

        The first step computes the accelerations, because they may need an input.
        """
        nothing = jnp.zeros_like(state.v)
        return AlphaMemory(
            nothing, nothing, jnp.zeros_like(velocity_residual(system, state)), jnp.zeros((), bool)
        )

    def step(
        self, system: AnySystem, state: State, memory: AlphaMemory, u: Any, dt: Any
    ) -> tuple[State, AlphaMemory, StepInfo]:
        """Return the state after dt."""
        dt, rho = (jnp.asarray(x, state.q.dtype) for x in (dt, self.rho_inf))
        at = linearize(system, state, self.solver)
        a, lam = dynamics_at_start(self, system, state, at, u)
        before = AlphaMemory(
            *(
                jnp.where(memory.started, kept, new)
                for kept, new in ((memory.auxiliary, a), (memory.a, a), (memory.lam, lam))
            ),
            started=jnp.ones((), bool),
        )
        args = (system, state, before, rho, u, dt)
        guess = Unknowns(dt * a, dt * lam)
        x, change = self.newton.root(_residual, guess, args, saddle_point_corrections(at))
        auxiliary, new = _end(state, system, x.dv / dt, before, rho, dt)
        status = convergence(change, self.newton.tolerance, new.q, 1.0 / (dt * _factors(rho)[0]))
        info = closed_step_info(system, new, before.a, before.lam, self.newton.iterations, status)
        return new, AlphaMemory(auxiliary, x.dv / dt, x.impulse / dt, before.started), info

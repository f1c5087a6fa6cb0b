"""Linear-quadratic regulators of constrained systems, about an equilibrium and about a trajectory.

The equations are written for the linear model in minimal coordinates z (see `minimal`), with the deviation
d = (xi, dv) = N z from the reference.

*Equilibrium.* Minimize the integral of  d^T Q d + du^T R du  over all time. With Qz = N^T Q N, and X the
stabilizing solution of A^T X + X A - X B R^-1 B^T X + Qz = 0,

    du = -K N^+ d,      K = R^-1 B^T X.

*Trajectory.* Minimize the sum over k < n of  d_k^T Q d_k + du_k^T R du_k,  plus d_n^T Qf d_n. The recursion
runs backward from P_n = Qf, in the z of each step:

    K_k = (R + B_k^T P_{k+1} B_k)^-1 B_k^T P_{k+1} A_k,
    P_k = Qz + A_k^T P_{k+1} (A_k - B_k K_k),
    du_k = -K_k N_k^+ d_k.

The gains K N^+ (nu, 2 nv) act on all coordinates. They do not depend on the basis N, and they ignore
deviations that the constraints do not allow.

References:
    B. D. O. Anderson, J. B. Moore, "Optimal Control: Linear Quadratic Methods" (1990), chapters 2 and 3.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from jaxdae.base.dataclass import pytree
from jaxdae.control.gravity import at_rest, static_inputs
from jaxdae.control.linear_model import (
    LinearModel,
    check_input,
    count_dimension,
    linearize_equilibrium,
    tangent_basis,
)
from jaxdae.control.riccati import solve_riccati
from jaxdae.dynamics.accelerations import forward_dynamics
from jaxdae.dynamics.stabilization import Stabilization
from jaxdae.integrators.integrator import Integrator
from jaxdae.rollouts.trajectory import rollout
from jaxdae.saddle_point import NullSpace, SaddlePointSolver
from jaxdae.systems.status import raise_if_failed
from jaxdae.systems.system import AnySystem, State, check_system, checked_state
from jaxdae.typing import Input, Leaf


@pytree
class LinearFeedback:
    """u = u0 - K (q - q0, v), made by `linear_quadratic_regulator`.

    Attributes:
        system: the system, whose `difference` measures q - q0.
        q: q0 (nq,).
        u: u0 (nu,).
        gain: K (nu, 2 nv), position columns first.
        cost: (2 nv, 2 nv); d^T cost d is the cost of the return from a small deviation d = (q - q0, v).

    Angles are not wrapped: q0 and q0 + 2 pi are different positions.
    """

    system: AnySystem
    q: Leaf
    u: Leaf
    gain: Leaf
    cost: Leaf

    def deviation(self, state: State) -> Array:
        """Return d = (q - q0, v), (2 nv,)."""
        return jnp.concatenate([self.system.difference(self.q, state.q), state.v])

    def __call__(self, t: Any, state: State) -> Input:
        """Return u (nu,)."""
        return self.u - self.gain @ self.deviation(state)


def linear_quadratic_regulator(
    system: AnySystem,
    state: State,
    u: Input = None,
    *,
    position_weight: Any,
    velocity_weight: Any,
    input_weight: Any,
    inputs: int | None = None,
    dimension: int | None = None,
    solver: SaddlePointSolver | None = None,
    stabilization: Stabilization | None = None,
) -> LinearFeedback:
    """Return the linear feedback that brings a constrained system back to an equilibrium at minimal cost.

    The cost is the integral over all time of  xi^T Qp xi + v^T Qv v + du^T R du.

    Args:
        system: the mechanical system.
        state: time (s) and coordinates of the equilibrium; velocities are taken as zero.
        u: input (nu,) that holds the equilibrium; `static_inputs` by default.
        position_weight: Qp: a number, (nv,) or (nv, nv), non-negative. Any distribution of the cost over the
            coordinates of one mechanism is allowed.
        velocity_weight: Qv: a number, (nv,) or (nv, nv), non-negative.
        input_weight: R: a number, (nu,) or (nu, nu), positive.
        inputs: the number of inputs, if the system does not define it.
        dimension: twice the mobility; see `linearize_equilibrium`.
        solver: a saddle-point solver; `NullSpace()` by default, which allows dependent rows.
        stabilization: the stabilization of the integrator, for compliant rows; see `linearize_equilibrium`.
            If compliant rows carry a load, pass u.

    Raises:
        ValueError: not an equilibrium, no stabilizing feedback, or weights that do not fit. Under
            transformations values are unknown; if no stabilizing feedback exists, the gains are then NaN.

    Differentiable at constant rank with respect to system, state, input and weights.
    """
    state = at_rest(system, state)
    solver = solver or NullSpace()
    u = static_inputs(system, state, inputs, solver=solver) if u is None else jnp.asarray(u, state.q.dtype)
    check_input(system, u, inputs)
    _check_equilibrium(system, state, u, solver, stabilization)
    model = linearize_equilibrium(
        system, state, u, dimension=dimension, solver=solver, stabilization=stabilization
    )
    weights = _weights(state, u, position_weight, velocity_weight, input_weight)
    gain, cost = _gain(model, *weights)
    if not isinstance(gain, Tracer) and not np.all(np.isfinite(np.asarray(gain))):
        raise ValueError(f"no stabilizing feedback: {_why_none(system, state, model)}")
    return LinearFeedback(system, state.q, u, gain, cost)


def _why_none(system: AnySystem, state: State, model: LinearModel) -> str:
    """Describe undamped motions that the inputs do not reach (Hautus' test), else other likely causes."""
    a, b = np.asarray(model.a), np.asarray(model.b)
    lost = np.zeros(len(a))
    for value in np.linalg.eigvals(a):
        if value.real > -1e-6 * np.linalg.norm(a, 2):
            left, size, _ = np.linalg.svd(np.hstack([a - value * np.eye(len(a)), b]))
            lost = np.maximum(lost, np.max(np.abs(left) * (size < 1e-6 * size[0]), axis=1))
    if not np.any(lost):
        return (
            "the weights do not penalize an undamped motion of the linear model, or the inputs hardly "
            "affect one; give all coordinates a position_weight and a velocity_weight"
        )
    share = np.max(np.abs(np.asarray(model.inverse).T @ np.diag(lost)), axis=1).reshape(2, -1).max(axis=0)
    names = system.names.filled(system.sizes(state.q)).velocities
    moved = ", ".join(name for name, part in zip(names, share, strict=True) if part > 0.1 * share.max())
    return (
        f"the inputs do not affect an undamped motion of {moved} (nonholonomic rows always leave one); "
        "drive it, damp it, or constrain it with a joint"
    )


def _check_equilibrium(system: AnySystem, state: State, u: Input, solver: Any, stabilization: Any) -> None:
    a, _ = forward_dynamics(system, state, u, solver=solver, stabilization=stabilization)
    if isinstance(a, Tracer):
        return
    limit = float(jnp.finfo(a.dtype).eps) ** 0.4  # 5e-7 in double precision: closed to round-off, any mass.
    violation = float(jnp.max(jnp.abs(a), initial=0.0))
    free, _ = forward_dynamics(system, state, jnp.zeros_like(u), solver=solver, stabilization=stabilization)
    if not violation <= limit * (1.0 + float(jnp.max(jnp.abs(free), initial=0.0))):
        raise ValueError(
            f"state and u must be an equilibrium, but the largest acceleration is {violation:.3g}; there "
            "may be too few motors to hold the state, or open loops"
        )


def _weights(state: State, u: Input, position: Any, velocity: Any, control: Any) -> tuple[Array, Array]:
    """Return Q (2 nv, 2 nv) and R (nu, nu)."""
    size, dtype = state.v.shape[0], state.q.dtype
    on_state = jax.scipy.linalg.block_diag(
        _weight("position_weight", position, size, dtype), _weight("velocity_weight", velocity, size, dtype)
    )
    return on_state, _weight("input_weight", control, u.shape[-1], dtype)


def _weight(name: str, weight: Any, size: int, dtype: Any) -> Array:
    weight = jnp.asarray(weight, dtype)
    if weight.ndim < 2 and weight.shape in ((), (size,)):
        return jnp.diag(jnp.broadcast_to(weight, (size,)))
    if weight.shape != (size, size):
        raise ValueError(
            f"{name} must be a number, or of shape ({size},) or ({size}, {size}), got {weight.shape}"
        )
    return 0.5 * (weight + weight.T)


@jax.jit
def _gain(model: LinearModel, on_state: Array, on_input: Array) -> tuple[Array, Array]:
    """Return K N^+ and N^+T X N^+."""
    reduced = model.basis.T @ on_state @ model.basis
    input_gain = jnp.linalg.solve(on_input, model.b.T)
    x = solve_riccati(model.a, model.b @ input_gain, reduced)
    return input_gain @ x @ model.inverse, model.inverse.T @ x @ model.inverse


@pytree
class TrajectoryFeedback:
    """u_k - K_k (q - q_k, v - v_k) along a trajectory, made by `trajectory_regulator`.

    Use it in `Sampled(integrator, law)`, which evaluates it at the start of every step. Between steps, the
    law interpolates q and v of the trajectory linearly. After the end, it extrapolates with the last input
    and gain, about the last state.

    Attributes:
        system: the system, whose `difference` measures q - q_k.
        q: (steps + 1, nq).
        v: (steps + 1, nv).
        controls: u_k (steps, nu).
        gains: K_k (steps, nu, 2 nv), position columns first.
        start: start time () in s.
        dt: step length () in s.
    """

    system: AnySystem
    q: Leaf
    v: Leaf
    controls: Leaf
    gains: Leaf
    start: Leaf
    dt: Leaf

    def __call__(self, t: Any, state: State) -> Input:
        """Return u (nu,)."""
        steps = self.controls.shape[0]
        count = (t - self.start) / self.dt
        # Step times are multiples of dt up to rounding. A time that is early by a thousandth of a step is
        # on time.
        k = jnp.clip(jnp.floor(count + 1e-3), 0, steps - 1)
        part = jnp.clip(count - k, 0.0, 1.0)
        k = k.astype(jnp.int32)
        way = self.system.difference(self.q[k], self.q[k + 1])
        q = self.system.retract(self.q[k], part * way)
        v = self.v[k] + part * (self.v[k + 1] - self.v[k])
        return self.controls[k] - self.gains[k] @ jnp.concatenate(
            [self.system.difference(q, state.q), state.v - v]
        )


def trajectory_regulator(
    system: AnySystem,
    integrator: Integrator,
    state: State,
    controls: Any,
    *,
    dt: Any,
    position_weight: Any,
    velocity_weight: Any,
    input_weight: Any,
    final_position_weight: Any = None,
    final_velocity_weight: Any = None,
    dimension: int | None = None,
) -> TrajectoryFeedback:
    """Return the time-varying feedback that holds a constrained system on a trajectory at minimal cost.

    The trajectory is the result of `rollout(system, integrator, state, controls, dt=dt)`, and the linear
    models are linearizations of its steps. The cost is the sum over the steps of  xi^T Qp xi + dv^T Qv dv +
    du^T R du  of the deviations (not multiplied by dt), plus the cost of the last state.

    Args:
        system: the mechanical system.
        integrator: a one-step method that satisfies the constraints, such as `Projected(RungeKutta.rk4())`.
            Every step of a method with its own memory is linearized as a first step.
        state: the start, consistent.
        controls: inputs (steps, nu).
        dt: the step length in s.
        position_weight: Qp: a number, (nv,) or (nv, nv), non-negative.
        velocity_weight: Qv: a number, (nv,) or (nv, nv), non-negative.
        input_weight: R: a number, (nu,) or (nu, nu), positive.
        final_position_weight: Qp of the last state; `position_weight` by default.
        final_velocity_weight: Qv of the last state; `velocity_weight` by default.
        dimension: the number of independent states, twice the mobility for holonomic rows. By default it is
            counted at a known start. Under transformations the default is 2 nv - 2 ng - nw; there you must
            pass it if rows may be compliant or inactive.

    Raises:
        ValueError: shapes that do not fit.
        SimulationError: the trajectory fails.

    Differentiable at constant rank with respect to system, integrator, state, controls, dt and weights. Each
    step costs n + nu forward-mode products of the step, where n is the dimension.
    """
    check_system(system)
    state = checked_state(state)
    controls = jnp.asarray(controls, state.q.dtype)
    if controls.ndim != 2:
        raise ValueError(f"controls must have shape (steps, nu), got {controls.shape}")
    trajectory = rollout(system, integrator, state, controls, dt=dt)
    if not isinstance(trajectory.info.status, Tracer):
        raise_if_failed(trajectory)
    dimension = count_dimension(system, state, dimension)
    on_state, on_input = _weights(state, controls, position_weight, velocity_weight, input_weight)
    on_end, _ = _weights(
        state,
        controls,
        position_weight if final_position_weight is None else final_position_weight,
        velocity_weight if final_velocity_weight is None else final_velocity_weight,
        input_weight,
    )
    states = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), state, trajectory.state)
    gains = _trajectory_gains(
        system,
        integrator,
        states,
        controls,
        jnp.asarray(dt, state.q.dtype),
        on_state,
        on_end,
        on_input,
        dimension,
    )
    return TrajectoryFeedback(
        system, states.q, states.v, controls, gains, state.t, jnp.asarray(dt, state.q.dtype)
    )


@partial(jax.jit, static_argnums=8)
def _trajectory_gains(
    system: Any,
    integrator: Any,
    states: State,
    controls: Array,
    dt: Array,
    on_state: Array,
    on_end: Array,
    on_input: Array,
    dimension: int,
) -> Array:
    """Return K_k N_k^+ (steps, nu, 2 nv)."""
    # Loops instead of batches: XLA unrolls small matrices of a batch, which takes long to compile.
    bases, inverses = jax.lax.map(lambda at: tangent_basis(system, at, dimension), states)

    def model(step: Any) -> tuple[Array, Array]:
        at, after, u, basis, inverse = step

        def moved(z: Array, u: Array) -> Array:
            xi, dv = jnp.split(basis @ z, 2)
            near = State(at.t, system.retract(at.q, xi), at.v + dv)
            new, _, _ = integrator.step(system, near, integrator.init(system, near), u, dt)
            return inverse @ jnp.concatenate([system.difference(after.q, new.q), new.v - after.v])

        return jax.jacfwd(moved, argnums=(0, 1))(jnp.zeros((dimension,), u.dtype), u)

    before, after = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[1:], states)
    a, b = jax.lax.map(model, (before, after, controls, bases[:-1], inverses[1:]))

    def backward(p: Array, at: Any) -> tuple[Array, Array]:
        a, b, basis = at
        gain = jnp.linalg.solve(on_input + b.T @ p @ b, b.T @ p @ a)
        p = basis.T @ on_state @ basis + a.T @ p @ (a - b @ gain)
        return 0.5 * (p + p.T), gain

    last = bases[-1].T @ on_end @ bases[-1]
    _, gains = jax.lax.scan(backward, last, (a, b, bases[:-1]), reverse=True)
    return gains @ inverses[:-1]

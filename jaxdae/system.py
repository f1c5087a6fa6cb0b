"""Mechanical systems with constraints: what a user writes, and the terms that follow from it.

The equation, and the sign that everything here uses (the constraint force is **+J^T lam**, as in robotics; much of the DAE
literature writes the opposite):

    M(q) a = f(t, q, v, u) + J^T lam          f: all that is not inertia or constraint
    g(t, q) = 0                               position level (holonomic); may depend on time
    w(t, q, v) = 0                            velocity level (nonholonomic), usually A(t, q) v + b(t, q)

The rows are differentiated along the motion, which moves t and q together: q(s) = q (+) s v. With

    g'  = d/ds g(t + s, q (+) s v)        at s = 0
    J   = [dg/dxi ; dw/dv]                xi: tangent at q, q (+) xi = retract(q, xi)

the second derivative of g and the first of w are both linear in a,  J a + gamma = 0, where gamma is the derivative along the
motion with v held constant:

    gamma = d/ds [g' ; w](t + s, q (+) s v, v)   at s = 0.

That one definition holds dJ/dt v and all explicit time derivatives. It is computed by forward-mode products (`jax.jvp`) along one
direction; no derivative tensor is formed.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jaxdae import small_matrix
from jaxdae._pytree import pytree
from jaxdae.names import Names, Sizes
from jaxdae.operators import AutodiffRows, DenseMatrix, DenseRows, JacobianOperator, MassOperator
from jaxdae.requirements import check_requirements, offers
from jaxdae.saddle_point import SaddlePointSolver, SchurComplement
from jaxdae.typing import Coordinates, Count, Input, Jacobian, Leaf, Residual, Rows, Scalar, Square, Velocity, VelocityResidual


@pytree
class State:
    """Where a system is: time t () in s, coordinates q (nq,), velocities v (nv,). Physics only: no caches, no multipliers."""

    t: Leaf
    q: Leaf
    v: Leaf


class AnySystem(abc.ABC):
    """What systems of both orders are: coordinates that move on a manifold, with constraints, weighed by a matrix M.

    Users write a `System`, with forces, or a `KinematicSystem`, with rates. The derived terms (`mass_operator`, `constraint_jacobian`,
    `constraint_bias`, `constraint_rate`) are computed by autodiff and are overridden only to exploit structure. All quantities are in SI
    units.
    """

    first_order: ClassVar[bool] = False
    """Whether the system has rates in place of forces and accelerations (`KinematicSystem`)."""
    n_inputs: ClassVar[int | None] = None
    """How many inputs the system reads; None where its author does not say."""
    coordinate_names: ClassVar[tuple[str, ...]] = ()
    """The names of the coordinates; those that are missing are numbered."""
    resists: ClassVar[bool] = True
    """Whether forces may be too steep for an explicit step."""
    characteristic_length: Any = 1.0
    """In m; tolerances of lengths are relative to it."""
    row_names: ClassVar[tuple[str, ...]] = ()
    """The names of the constraint rows, position-level rows first; those that are missing are numbered."""
    affine_rows: ClassVar[bool] = False
    """Whether all velocity-level rows are affine in the velocities; a `KinematicSystem` finds out unless it is True."""

    @property
    def default_solver(self) -> SaddlePointSolver:
        """The saddle-point solver wherever none is named: `SchurComplement()`, and `LeastSquares(1e-5)` for rows known to be redundant."""
        return SchurComplement()

    @property
    def names(self) -> Names:
        """What coordinates and rows are called: `coordinate_names` and `row_names` by default. A wrapper has those of the system inside."""
        return Names(coordinates=tuple(self.coordinate_names), rows=tuple(self.row_names))

    def sizes(self, q: Any) -> Sizes:
        """Returns how many coordinates, velocities, rows and inputs there are; q: coordinates (nq,), or their shape and dtype."""
        q = jax.ShapeDtypeStruct(q.shape, q.dtype)
        t, v = jax.ShapeDtypeStruct((), q.dtype), jax.ShapeDtypeStruct(jax.eval_shape(self.mass_matrix, q).shape[:1], q.dtype)
        ng, nw = jax.eval_shape(self.constraint, t, q).shape[0], jax.eval_shape(self.velocity_constraint, t, q, v).shape[0]
        return Sizes(q.shape[0], v.shape[0], ng, nw, self.n_inputs)

    @abc.abstractmethod
    def mass_matrix(self, q: Coordinates) -> Square:
        """Returns M(q) (nv, nv), symmetric positive definite."""

    def constraint(self, t: Scalar, q: Coordinates) -> Residual:
        """Returns g(t, q) (ng,); none by default."""
        return jnp.zeros((0,), q.dtype)

    def opening(self, t: Scalar, q: Coordinates) -> Residual:
        """Returns the rows by which a start is found and judged (ng,): g by default; see `Joint.opening` for others with the same zero."""
        return self.constraint(t, q)

    @property
    def turns_over(self) -> bool:
        """Whether g is zero as well at poses that are none, where bodies are turned over, so that `opening` is not g."""
        return False

    def velocity_constraint(self, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
        """Returns w(t, q, v) (nw,); none by default."""
        return jnp.zeros((0,), v.dtype)

    def compliance(self, t: Scalar, q: Coordinates) -> Rows | None:
        """Returns C (nc,), the diagonal of the zero block of the saddle point: zero for hard rows; None, the default, where all are hard.

        A row with C > 0 gives way, J a + C lam = r, and projections leave it alone. `Masked` and `Soft` are made of it.
        """
        return None

    @property
    def driven_rows(self) -> int:
        """How many of the last rows hold velocities at inputs: those of drives of a `KinematicMechanism`; none by default."""
        return 0

    def at_input(self, u: Input) -> AnySystem:
        """Returns the system at an input: itself, but for systems of first order some of whose rows read u (`KinematicMechanism`)."""
        return self

    def at(self, q: Coordinates) -> AnySystem:
        """Return the system for several of its terms at q, this very object: the terms share their intermediate results.

        The result is the same system, by default the system itself.
        """
        return self

    @property
    def flat(self) -> bool:
        """Whether q (+) xi is q + xi: where `retract` is not written anew."""
        return type(self).retract is AnySystem.retract

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Returns q (+) xi, the coordinates after the tangent step xi; q + xi by default."""
        return q + xi

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Returns xi with q0 (+) xi = q1, the inverse of `retract`; q1 - q0 by default.

        Raises:
            TypeError: a system with a `retract` of its own but without its inverse.
        """
        if type(self).retract is not AnySystem.retract:
            raise TypeError(
                f"{type(self).__name__} has a retract(q, xi) of its own: write difference(q0, q1) as well, its inverse, for which something"
                " here has a use (jaxdae.rotation has that of quaternions)"
            )
        return q1 - q0

    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity | None:
        """Returns xi' (nv,) of q (+) xi(t) where it moves with velocity v, in closed form; None, the default, where nobody wrote one.

        Methods for curved coordinates ask for it; without one they differentiate `difference`, see `jaxdae.integrators.tangent`.
        """
        return None

    def potential_energy(self, t: Scalar, q: Coordinates) -> Scalar:
        """Returns the potential energy in J, for energy reports; zero by default. The dynamics never use it."""
        return jnp.zeros((), q.dtype)

    def condition(self, t: Scalar, q: Coordinates) -> Count | None:
        """Return the `Status` () at a start and after a step; None, the default, if it is always OK."""
        return None

    def jumps(self, before: State, after: State) -> Any:
        """Return whether rows or forces jump in a step (); None, the default, if they never do."""
        return None

    def kinetic_energy(self, q: Coordinates, v: Velocity) -> Scalar:
        """Returns v^T M v / 2 in J."""
        return 0.5 * jnp.sum(v * small_matrix.matvec(self.mass_matrix(q), v))

    def mass_operator(self, q: Coordinates) -> MassOperator:
        """Returns M(q) as solvers take it: dense; override it with a `DiagonalMatrix`, say, where the system has structure."""
        return DenseMatrix(self.mass_matrix(q))

    def jacobian_operator(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Returns J as solvers take it: dense; override it with `BlockRows`, say, where the system has structure."""
        return DenseRows(self.constraint_jacobian(t, q, v))

    def jacobian_products(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Returns J as solvers take it that need only products: by autodiff, never formed."""
        return AutodiffRows(self, State(t, q, v))

    def constraint_rate(self, t: Scalar, q: Coordinates, v: Velocity) -> Residual:
        """Returns g' (ng,), the rate of g along the motion, explicit time derivative included."""
        along = uniform_motion(self, t, q, v)
        return jax.jvp(lambda s: self.constraint(*along(s)), (jnp.zeros_like(t),), (jnp.ones_like(t),))[1]

    def constraint_jacobian(self, t: Scalar, q: Coordinates, v: Velocity) -> Jacobian:
        """Returns J (nc, nv), position-level rows first."""
        of_positions = jax.jacfwd(lambda xi: self.constraint(t, self.retract(q, xi)))(jnp.zeros_like(v))
        return jnp.concatenate([of_positions, velocity_rows_jacobian(self, t, q, v)])

    def constraint_bias(self, t: Scalar, q: Coordinates, v: Velocity) -> Rows:
        """Returns gamma (nc,): all of g'' and w' that is not J a."""
        along = uniform_motion(self, t, q, v)

        def rows(s: Array) -> Array:
            moved_t, moved_q = along(s)
            return jnp.concatenate([self.constraint_rate(moved_t, moved_q, v), self.velocity_constraint(moved_t, moved_q, v)])

        return jax.jvp(rows, (jnp.zeros_like(t),), (jnp.ones_like(t),))[1]


class System(AnySystem):
    """A mechanical system. Subclass it, decorate with `@jaxdae.pytree`, and write `mass_matrix` and `force`; all else has defaults."""

    @abc.abstractmethod
    def force(self, t: Scalar, q: Coordinates, v: Velocity, u: Input) -> Velocity:
        """Returns f (nv,): applied forces minus Coriolis, centrifugal and gravity terms."""


def velocity_rows_jacobian(system: AnySystem, t: Scalar, q: Coordinates, v: Velocity) -> Float[Array, "nw nv"]:
    """Returns dw/dv (nw, nv), the rows of J that `velocity_constraint` gives."""
    return jax.jacfwd(lambda rate: system.velocity_constraint(t, q, rate))(v)


def velocity_rows_bias(system: AnySystem, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
    """Returns the entries (nw,) of gamma that `velocity_constraint` gives: its derivative along the motion at constant v."""
    along = uniform_motion(system, t, q, v)

    def rows(s: Array) -> Array:
        moved_t, moved_q = along(s)
        return system.velocity_constraint(moved_t, moved_q, v)

    return jax.jvp(rows, (jnp.zeros_like(t),), (jnp.ones_like(t),))[1]


def uniform_motion(system: AnySystem, t: Scalar, q: Coordinates, v: Velocity) -> Callable[[Scalar], tuple[Scalar, Coordinates]]:
    """Returns s -> (t + s, q (+) s v), the motion at constant v; s in s."""
    return lambda s: (t + s, system.retract(q, s.astype(v.dtype) * v))


class LagrangianSystem(System):
    """A system given by its energies; M and f follow by autodiff. Needs coordinates with q' = v (the default `retract`).

    With T(q, v) quadratic in v, V(t, q) and the generalized force Q, Lagrange's equations d/dt(dT/dv) - dT/dq + dV/dq = Q read

        M a = Q + d(T - V)/dq - d(dT/dv)/dq v,        M = d^2 T / dv^2.

    Each term is one derivative of an energy: a Hessian for M, a gradient, and a directional derivative of dT/dv along v.
    """

    @abc.abstractmethod
    def kinetic_energy(self, q: Coordinates, v: Velocity) -> Scalar:
        """Returns T(q, v) in J."""

    def generalized_force(self, t: Scalar, q: Coordinates, v: Velocity, u: Input) -> Velocity:
        """Returns Q (nv,): forces without potential, such as damping and inputs; zero by default."""
        return jnp.zeros_like(v)

    def mass_matrix(self, q: Coordinates) -> Square:
        """Returns M = d^2 T / dv^2."""
        return jax.hessian(self.kinetic_energy, argnums=1)(q, jnp.zeros_like(q))

    def force(self, t: Scalar, q: Coordinates, v: Velocity, u: Input) -> Velocity:
        """Returns f = Q + d(T - V)/dq - d(dT/dv)/dq v.

        Raises:
            TypeError: a `retract` of the system's own, for which these are not the equations of motion.
        """
        if not self.flat:
            raise TypeError(
                f"{type(self).__name__} is a LagrangianSystem with a retract of its own: Lagrange's equations need coordinates with q' = v;"
                " write a System with mass_matrix and force instead"
            )
        momentum = jax.grad(self.kinetic_energy, argnums=1)
        lagrangian_gradient = jax.grad(lambda x: self.kinetic_energy(x, v) - self.potential_energy(t, x))(q)
        momentum_change = jax.jvp(lambda x: momentum(x, v), (q,), (v,))[1]
        return self.generalized_force(t, q, v, u) + lagrangian_gradient - momentum_change


def velocity_residual(system: AnySystem, state: State) -> Rows:
    """Returns [g'; w] (nc,): how far the velocities are from the constraints, in the units of the rows per second."""
    state = checked_state(state)
    t, q, v = state.t, state.q, state.v
    # The rate is shaped like the residual that the user wrote, so that the message names that one.
    rate = checked("constraint(t, q)", system.constraint_rate(t, q, v), (None,), q.dtype)
    w = checked("velocity_constraint(t, q, v)", system.velocity_constraint(t, q, v), (None,), q.dtype)
    return jnp.concatenate([rate, w])


def default_tolerance(dtype: Any) -> float:
    """Returns the residual, relative to 1 + the size of coordinates or velocities, from which on rows count as broken.

    1e-5, or sqrt(eps) where that is larger: 3.5e-4 in single precision.
    """
    return max(1e-5, float(jnp.finfo(dtype).eps) ** 0.5)


def checked_state(state: Any) -> State:
    """Returns the state as arrays, its time in the dtype of the coordinates, after a check of types and axes (not of values).

    Raises:
        TypeError: no `State`, or coordinates that are not floating point or not of one dtype.
        ValueError: more or fewer axes than one state has.
    """
    if not isinstance(state, State):
        hint = ": initialize returns (state, info)" if isinstance(state, tuple) else ""
        raise TypeError(f"state must be a State(t, q, v), got {type(state).__name__}{hint}")
    q, v = jnp.asarray(state.q), jnp.asarray(state.v)
    for name, value in (("q", q), ("v", v)):
        if not jnp.issubdtype(value.dtype, jnp.floating):
            raise TypeError(f"state.{name} must be floating point, got {value.dtype}; write 0.0 instead of 0")
        if value.ndim != 1:
            raise ValueError(f"state.{name} must have one axis, got shape {value.shape}; for many worlds use batch_rollout")
    if q.dtype != v.dtype:
        raise TypeError(f"state.q and state.v must have one dtype, got {q.dtype} and {v.dtype}")
    if not isinstance(state.t, int | float | np.number | np.ndarray | jax.Array):
        raise TypeError(f"state.t must be a number, the time in s, got {state.t!r}")
    if jnp.ndim(state.t) != 0:
        raise ValueError(f"state.t must be a single number, got shape {jnp.shape(state.t)}")
    return State(jnp.asarray(state.t, q.dtype), q, v)


def checked(method: str, value: Any, shape: tuple[int | None, ...], dtype: Any, why: str = "") -> Any:
    """Returns what a method of a system returned, after a check of its type, shape (None: any length) and dtype.

    Raises:
        TypeError: not an array, or of another dtype than the state.
        ValueError: another shape.
    """
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        raise TypeError(f"system.{method} must return an array, got {type(value).__name__}; jnp.stack([...]) makes one")
    if len(value.shape) != len(shape) or any(n not in (None, m) for n, m in zip(shape, value.shape, strict=True)):
        expected = ", ".join("rows" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "")
        hint = "; jnp.stack([...]) makes a vector of numbers" if not value.shape else ""
        raise ValueError(f"system.{method} must return an array of shape ({expected}){why}, got {value.shape}{hint}")
    if value.dtype != dtype:
        raise TypeError(
            f"system.{method} returned {value.dtype}, but the state is {dtype}: give the numbers of the system and of the"
            " state one precision"
        )
    return value


def check_system(system: Any) -> None:
    """Raises where `system` is no system, or its numbers have no meaning.

    Raises:
        TypeError: no instance of `System`, or its class is no pytree.
        ValueError: requirements that are not met, see `jaxdae.requirements`.
    """
    check_is_system(system)
    check_requirements("system", system)


def check_is_system(system: Any) -> None:
    """Raises TypeError where `system` is no instance of `System`, or its class is no pytree."""
    if not isinstance(system, AnySystem):
        name = f"the class {system.__name__}" if isinstance(system, type) else type(system).__name__
        hint = ": planar_mechanism returns (mechanism, q)" if isinstance(system, tuple) else ""
        raise TypeError(f"system must be an instance of a jaxdae.System, got {name}{hint}")
    if jax.tree_util.all_leaves([system]):
        raise TypeError(f"system: the class {type(system).__name__} is unknown to JAX; decorate it with @jaxdae.pytree")


MODEL_TEXT = "model must be a System (planar_mechanism returns one and its start coordinates)"


def is_system(system: Any) -> bool:
    """Returns whether something is an instance of `System`, or stands for one on the host while requirements are checked."""
    return offers(system, "mass_matrix", "retract")


def check_fit(system: Any, state: State) -> None:
    """Raises where `system` is no system, its rows are no vectors, or its mass matrix and `retract` do not fit the lengths of q and v.

    Raises:
        TypeError: no `System`, or rows that are no arrays or of another dtype than the state.
        ValueError: lengths that do not fit.
    """
    check_system(system)
    q, v = state.q, state.v
    for method, function, arguments, shape in (
        ("mass_matrix(q)", system.mass_matrix, (q,), v.shape * 2),
        ("retract(q, v)", system.retract, (q, v), q.shape),
    ):
        why = f" for q of shape {q.shape} and v of shape {v.shape}"
        try:
            result = jax.eval_shape(function, *arguments)
        except (IndexError, TypeError, ValueError) as error:
            raise ValueError(
                f"system.{method} fails{why}; check the lengths of q and v, and in batch_rollout that in_axes names every"
                f" stacked leaf of the system: {error}"
            ) from error
        checked(method, result, shape, q.dtype, why)
    named = system.names.coordinates  # Those that are missing have numbers for names.
    if len(named) > q.shape[0]:
        raise ValueError(f"state.q must have {len(named)} numbers ({', '.join(named)}), got {q.shape[0]}")
    checked("constraint(t, q)", jax.eval_shape(system.constraint, state.t, q), (None,), q.dtype)
    checked("velocity_constraint(t, q, v)", jax.eval_shape(system.velocity_constraint, state.t, q, v), (None,), q.dtype)


def applied_force(system: Any, t: Any, q: Any, v: Any, u: Any) -> Any:
    """Returns `system.force(t, q, v, u)`.

    Raises:
        TypeError: a first-order system, which has no forces; or the force reads an input, but there is none.
    """
    if system.first_order:
        raise TypeError(
            f"{type(system).__name__} is a KinematicSystem, x' = rate(t, x, u), and has no forces: integrate it with Kinematic.rk4()"
            " (or Sequential or ProjectedStep around a Kinematic), and get its velocity from kinematic_velocity"
        )
    return _with_input(system.force, (t, q, v, u))


def wanted_rate(system: Any, t: Any, x: Any, u: Any) -> Any:
    """Returns `system.rate(t, x, u)`.

    Raises:
        TypeError: the rate reads an input, but there is none.
    """
    return _with_input(system.rate, (t, x, u))


def _with_input(function: Any, arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except (AttributeError, TypeError, ValueError) as error:
        if arguments[-1] is not None or "None" not in str(error):
            raise
        raise TypeError(
            f"this system reads an input u, but no controls were given: pass controls of shape (steps, nu) to rollout, or u=... to other"
            f" functions ({function.__qualname__}: {error})"
        ) from error


def energy(system: AnySystem, state: State) -> Scalar:
    """Returns kinetic plus potential energy in J; constant along motions without driving and damping."""
    return system.kinetic_energy(state.q, state.v) + system.potential_energy(state.t, state.q)


def as_dense_mass(system: AnySystem, state: State) -> Square:
    """Returns M(q) as an array (nv, nv), whatever structure the system exploits."""
    return system.mass_operator(state.q).as_dense()

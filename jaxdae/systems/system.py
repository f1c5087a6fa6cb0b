"""Mechanical systems with constraints: the interface that users implement, and the terms derived from it.

Equations of motion and sign convention. The constraint force is **+J^T lam**, as in robotics; much of the DAE
literature uses the opposite sign.

    M(q) a = f(t, q, v, u) + J^T lam          f: all forces except inertia and constraint forces
    g(t, q) = 0                               position level (holonomic); may depend on time
    w(t, q, v) = 0                            velocity level (nonholonomic), usually A(t, q) v + b(t, q)

The rows are differentiated along the motion, which moves t and q together: q(s) = q (+) s v. With

    g'  = d/ds g(t + s, q (+) s v)        at s = 0
    J   = [dg/dxi ; dw/dv]                xi: tangent at q, q (+) xi = retract(q, xi)

the second derivative of g and the first derivative of w are both linear in a, J a + gamma = 0. Here gamma is
the derivative along the motion with v held constant:

    gamma = d/ds [g' ; w](t + s, q (+) s v, v)   at s = 0.

This definition includes dJ/dt v and all explicit time derivatives. Forward-mode products (`jax.jvp`) along
one direction compute it without forming a derivative tensor.
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

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import check_requirements, offers
from jaxdae.linalg import small_matrix
from jaxdae.matrices import AutodiffRows, DenseMatrix, DenseRows, JacobianOperator, MassOperator
from jaxdae.saddle_point import SaddlePointSolver, SchurComplement
from jaxdae.systems.evaluation import Evaluation, checked, with_input
from jaxdae.systems.names import Names, Sizes
from jaxdae.typing import (
    Coordinates,
    Count,
    Input,
    Jacobian,
    Leaf,
    Residual,
    Rows,
    Scalar,
    Square,
    Velocity,
    VelocityResidual,
)


@pytree
class State:
    """A state: time t () in s, coordinates q (nq,), velocities v (nv,). It holds no caches or multipliers."""

    t: Leaf
    q: Leaf
    v: Leaf


class AnySystem(abc.ABC):
    """Base class of first- and second-order systems: coordinates on a manifold, constraints, and a matrix M.

    Users write a `System`, with forces, or a `KinematicSystem`, with rates. Autodiff computes the derived
    terms (`mass_operator`, `constraint_jacobian`, `constraint_bias`, `constraint_rate`). Override them only
    to exploit structure. All quantities are in SI units.
    """

    first_order: ClassVar[bool] = False
    """Whether the system has rates in place of forces and accelerations (`KinematicSystem`)."""
    n_inputs: ClassVar[int | None] = None
    """The number of inputs that the system reads; None if unspecified."""
    coordinate_names: ClassVar[tuple[str, ...]] = ()
    """The names of the coordinates; missing names are numbered, such as "q0"."""
    resists: ClassVar[bool] = True
    """Whether forces may be too stiff for an explicit step."""
    vanishing_rows: ClassVar[bool] = False
    """Whether rows of J can vanish at singular configurations; see `linearization.lost_rows`."""
    characteristic_length: Any = 1.0
    """In m; length tolerances are relative to it."""
    row_names: ClassVar[tuple[str, ...]] = ()
    """The names of the constraint rows, position-level rows first; missing names are numbered, such as "row
    0"."""
    affine_rows: ClassVar[bool] = False
    """Whether all velocity-level rows are affine in v. If False, a `KinematicSystem` checks this itself."""

    @property
    def default_solver(self) -> SaddlePointSolver:
        """The default solver: `SchurComplement()`, or `LeastSquares(1e-5)` for rows known to be redundant."""
        return SchurComplement()

    @property
    def names(self) -> Names:
        """The names of coordinates and rows: by default `coordinate_names` and `row_names`."""
        return Names(coordinates=tuple(self.coordinate_names), rows=tuple(self.row_names))

    def sizes(self, q: Any) -> Sizes:
        """Return the numbers of coordinates, velocities, rows and inputs; q: (nq,) or its shape and dtype."""
        q = jax.ShapeDtypeStruct(q.shape, q.dtype)
        t, v = (
            jax.ShapeDtypeStruct((), q.dtype),
            jax.ShapeDtypeStruct(jax.eval_shape(self.mass_matrix, q).shape[:1], q.dtype),
        )
        ng, nw = (
            jax.eval_shape(self.constraint, t, q).shape[0],
            jax.eval_shape(self.velocity_constraint, t, q, v).shape[0],
        )
        return Sizes(q.shape[0], v.shape[0], ng, nw, self.n_inputs)

    @abc.abstractmethod
    def mass_matrix(self, q: Coordinates) -> Square:
        """Return M(q) (nv, nv), symmetric positive definite."""

    def constraint(self, t: Scalar, q: Coordinates) -> Residual:
        """Return g(t, q) (ng,); empty by default."""
        return jnp.zeros((0,), q.dtype)

    def velocity_constraint(self, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
        """Return w(t, q, v) (nw,); empty by default."""
        return jnp.zeros((0,), v.dtype)

    def compliance(self, t: Scalar, q: Coordinates) -> Rows | None:
        """Return C (nc,), the diagonal of the zero block of the saddle point; None if all are hard.

        C = 0 is a hard row. C > 0 is a soft row, J a + C lam = r, as in `Masked` and `Soft`; projections
        ignore it.
        """
        return None

    @property
    def driven_rows(self) -> int:
        """The number of trailing rows that set velocities to inputs (drives of a `KinematicMechanism`)."""
        return 0

    def at_input(self, u: Input) -> AnySystem:
        """Return the system with u inserted in rows that read it (`KinematicMechanism`); default: itself."""
        return self

    def evaluate(self, t: Scalar, q: Coordinates, v: Velocity | None = None) -> Evaluation:
        """Return the terms at a state (M, J, gamma, f and residuals), which share intermediate results.

        Args:
            t: time () in s.
            q: coordinates (nq,).
            v: velocities (nv,); None if you need only terms that do not depend on velocities.
        """
        return Evaluation(self, t, q, v)

    @property
    def flat(self) -> bool:
        """Whether q (+) xi is q + xi, that is, whether the class does not override `retract`."""
        return type(self).retract is AnySystem.retract

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Return q (+) xi, the coordinates after the tangent step xi; q + xi by default.

        Raises:
            ValueError: q and xi have different lengths, which would otherwise broadcast if one is 1.
        """
        return plain_sum(q, xi)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Return xi with q0 (+) xi = q1, the inverse of `retract`; q1 - q0 by default.

        Raises:
            TypeError: the system overrides `retract` but not `difference`.
        """
        if type(self).retract is not AnySystem.retract:
            raise TypeError(
                f"{type(self).__name__} defines retract(q, xi) but not its inverse, difference(q0, q1), "
                "which is required here; define difference too (jaxdae.rotation has the inverse for "
                "quaternions)"
            )
        return q1 - q0

    def carry(self, q: Coordinates, v: Velocity, new: Coordinates) -> Velocity:
        """Return velocities (nv,) at the coordinates `new` that continue the motion v at q; v by default."""
        return v

    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity | None:
        """Return xi' (nv,) of q (+) xi(t) moving with velocity v in closed form; None (default) if unknown.

        Methods for curved coordinates then differentiate `difference`; see
        `jaxdae.integrators.tangent_rates`.
        """
        return None

    def potential_energy(self, t: Scalar, q: Coordinates) -> Scalar:
        """Return the potential energy in J, for energy reports; zero by default. Dynamics never use it."""
        return jnp.zeros((), q.dtype)

    def condition(self, t: Scalar, q: Coordinates) -> Count | None:
        """Return the `Status` () at a start and after a step; None, the default, if it is always OK."""
        return None

    def jumps(self, before: State, after: State) -> Any:
        """Return whether rows or forces jump in a step (); None, the default, if they never do."""
        return None

    def touch(self, t: Scalar, q: Coordinates) -> Any:
        """Return the contacts, joint limits and dry friction (`systems.contacts.Touch`), None by default."""
        return None

    @property
    def touches(self) -> bool:
        """Whether the system has contacts, joint limits or dry friction, which need a step with contact."""
        return type(self).touch is not AnySystem.touch

    @property
    def rebounding(self) -> tuple[str, ...]:
        """The names of contacts and joint limits with a restitution above zero, if it is not traced."""
        return ()

    def kinetic_energy(self, q: Coordinates, v: Velocity) -> Scalar:
        """Return v^T M v / 2 in J."""
        return 0.5 * jnp.sum(v * small_matrix.matvec(self.mass_matrix(q), v))

    def mass_operator(self, q: Coordinates) -> MassOperator:
        """Return M(q) for solvers: dense by default; override it to exploit structure (`DiagonalMatrix`)."""
        return DenseMatrix(self.mass_matrix(q))

    def jacobian_operator(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Return J for solvers: dense by default; override it to exploit structure (`BlockRows`)."""
        return DenseRows(self.constraint_jacobian(t, q, v))

    def jacobian_products(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Return J for solvers that need only products: matrix-free, by autodiff."""
        return AutodiffRows(self, State(t, q, v))

    def constraint_rate(self, t: Scalar, q: Coordinates, v: Velocity) -> Residual:
        """Return g' (ng,), the rate of g along the motion, including the explicit time derivative."""
        along = uniform_motion(self, t, q, v)
        return jax.jvp(lambda s: self.constraint(*along(s)), (jnp.zeros_like(t),), (jnp.ones_like(t),))[1]

    def constraint_jacobian(self, t: Scalar, q: Coordinates, v: Velocity) -> Jacobian:
        """Return J (nc, nv), position-level rows first."""
        of_positions = jax.jacfwd(lambda xi: self.constraint(t, self.retract(q, xi)))(jnp.zeros_like(v))
        return jnp.concatenate([of_positions, velocity_rows_jacobian(self, t, q, v)])

    def constraint_bias(self, t: Scalar, q: Coordinates, v: Velocity) -> Rows:
        """Return gamma (nc,): g'' and w' without the term J a."""
        along = uniform_motion(self, t, q, v)

        def rows(s: Array) -> Array:
            moved_t, moved_q = along(s)
            return jnp.concatenate(
                [self.constraint_rate(moved_t, moved_q, v), self.velocity_constraint(moved_t, moved_q, v)]
            )

        return jax.jvp(rows, (jnp.zeros_like(t),), (jnp.ones_like(t),))[1]


class System(AnySystem):
    """A mechanical system: subclass it, decorate with `@jaxdae.tree.pytree`, write `mass_matrix`, `force`."""

    @abc.abstractmethod
    def force(self, t: Scalar, q: Coordinates, v: Velocity, u: Input) -> Velocity:
        """Return f (nv,): applied forces minus Coriolis, centrifugal and gravity terms."""


def velocity_rows_jacobian(
    system: AnySystem, t: Scalar, q: Coordinates, v: Velocity
) -> Float[Array, "nw nv"]:
    """Return dw/dv (nw, nv), the rows of J that belong to `velocity_constraint`."""
    return jax.jacfwd(lambda rate: system.velocity_constraint(t, q, rate))(v)


def velocity_rows_bias(system: AnySystem, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
    """Return the entries (nw,) of gamma for `velocity_constraint`: dw/dt along the motion at constant v."""
    along = uniform_motion(system, t, q, v)

    def rows(s: Array) -> Array:
        moved_t, moved_q = along(s)
        return system.velocity_constraint(moved_t, moved_q, v)

    return jax.jvp(rows, (jnp.zeros_like(t),), (jnp.ones_like(t),))[1]


def uniform_motion(
    system: AnySystem, t: Scalar, q: Coordinates, v: Velocity
) -> Callable[[Scalar], tuple[Scalar, Coordinates]]:
    """Return s -> (t + s, q (+) s v), the motion at constant v; s in s."""
    return lambda s: (t + s, system.retract(q, s.astype(v.dtype) * v))


class LagrangianSystem(System):
    """A system defined by its energies; autodiff derives M and f. It needs q' = v (the default `retract`).

    With T(q, v) quadratic in v, V(t, q) and the generalized force Q, Lagrange's equations
    d/dt(dT/dv) - dT/dq + dV/dq = Q read

        M a = Q + d(T - V)/dq - d(dT/dv)/dq v,        M = d^2 T / dv^2.

    Each term is one derivative of an energy: a Hessian for M, a gradient, and a directional derivative of
    dT/dv along v.
    """

    @abc.abstractmethod
    def kinetic_energy(self, q: Coordinates, v: Velocity) -> Scalar:
        """Return T(q, v) in J."""

    def generalized_force(self, t: Scalar, q: Coordinates, v: Velocity, u: Input) -> Velocity:
        """Return Q (nv,): nonconservative forces, such as damping and inputs; zero by default."""
        return jnp.zeros_like(v)

    def mass_matrix(self, q: Coordinates) -> Square:
        """Return M = d^2 T / dv^2."""
        return jax.hessian(self.kinetic_energy, argnums=1)(q, jnp.zeros_like(q))

    def force(self, t: Scalar, q: Coordinates, v: Velocity, u: Input) -> Velocity:
        """Return f = Q + d(T - V)/dq - d(dT/dv)/dq v.

        Raises:
            TypeError: the system overrides `retract`, so that these are not its equations of motion.
        """
        if not self.flat:
            raise TypeError(
                f"{type(self).__name__} is a LagrangianSystem that defines retract, but Lagrange's "
                "equations need coordinates with q' = v; write a System with mass_matrix and force instead"
            )
        momentum = jax.grad(self.kinetic_energy, argnums=1)
        lagrangian_gradient = jax.grad(lambda x: self.kinetic_energy(x, v) - self.potential_energy(t, x))(q)
        momentum_change = jax.jvp(lambda x: momentum(x, v), (q,), (v,))[1]
        return self.generalized_force(t, q, v, u) + lagrangian_gradient - momentum_change


def velocity_residual(system: AnySystem, state: State) -> Rows:
    """Return [g'; w] (nc,), the violation of the constraints by the velocities, in row units per second."""
    state = checked_state(state)
    return system.evaluate(state.t, state.q, state.v).velocity


def default_tolerance(dtype: Any) -> float:
    """Return the tolerance of residuals, relative to 1 + the size of coordinates or velocities.

    It is 1e-5, or sqrt(eps) where that is larger: 3.5e-4 in single precision.
    """
    return max(1e-5, float(jnp.finfo(dtype).eps) ** 0.5)


def checked_state(state: Any) -> State:
    """Return the state as arrays, its time in the dtype of the coordinates. Check types and axes, not values.

    Raises:
        TypeError: not a `State`, or coordinates that are not floating point or not of one dtype.
        ValueError: wrong number of axes.
    """
    if not isinstance(state, State):
        hint = ": initialize returns (state, info)" if isinstance(state, tuple) else ""
        raise TypeError(f"state must be a State(t, q, v), got {type(state).__name__}{hint}")
    q, v = jnp.asarray(state.q), jnp.asarray(state.v)
    for name, value in (("q", q), ("v", v)):
        if not jnp.issubdtype(value.dtype, jnp.floating):
            raise TypeError(f"state.{name} must be floating point, got {value.dtype}; write 0.0 instead of 0")
        if value.ndim != 1:
            raise ValueError(
                f"state.{name} must have one axis, got shape {value.shape}; for many worlds use batch_rollout"
            )
    if q.dtype != v.dtype:
        raise TypeError(f"state.q and state.v must have one dtype, got {q.dtype} and {v.dtype}")
    if not isinstance(state.t, int | float | np.number | np.ndarray | jax.Array):
        raise TypeError(f"state.t must be a number, the time in s, got {state.t!r}")
    if jnp.ndim(state.t) != 0:
        raise ValueError(f"state.t must be a single number, got shape {jnp.shape(state.t)}")
    return State(jnp.asarray(state.t, q.dtype), q, v)


def check_system(system: Any) -> None:
    """Raise an error if `system` is not a system, or if a parameter is out of range.

    Raises:
        TypeError: not an instance of `System`, or its class is not a pytree.
        ValueError: unmet requirements, see `jaxdae.base.requirements`.
    """
    check_is_system(system)
    check_requirements("system", system)


def check_is_system(system: Any) -> None:
    """Raise TypeError if `system` is not an instance of `System`, or its class is not a pytree."""
    if not isinstance(system, AnySystem):
        name = f"the class {system.__name__}" if isinstance(system, type) else type(system).__name__
        hint = ": planar_mechanism returns (mechanism, q)" if isinstance(system, tuple) else ""
        raise TypeError(f"system must be an instance of a jaxdae.System, got {name}{hint}")
    if jax.tree_util.all_leaves([system]):
        raise TypeError(
            f"system: the class {type(system).__name__} is unknown to JAX; decorate it with "
            "@jaxdae.tree.pytree"
        )


def check_mechanism(mechanism: Any) -> None:
    """Raise TypeError if an object has no bodies, such as a wrapper or a first-order mechanism."""
    if offers(mechanism, "body_names") and offers(mechanism, "coordinates"):
        return
    inner = [name for name in ("system", "mechanism") if offers(mechanism, name)]
    hint = f"; pass its field {inner[0]!r}" if inner else ""
    hint = ": planar_mechanism returns (mechanism, q)" if isinstance(mechanism, tuple) else hint
    raise TypeError(f"mechanism must be a jaxdae.mechanisms.Mechanism, got {type(mechanism).__name__}{hint}")


MODEL_TEXT = "model must be a System (planar_mechanism returns one and its start coordinates)"


def is_system(system: Any) -> bool:
    """Return whether an object is a `System`, or represents one on the host during requirement checks."""
    return offers(system, "mass_matrix", "retract")


def plain_sum(q: Any, xi: Any) -> Any:
    """Return q + xi, the tangent step of coordinates without quaternions.

    Raises:
        ValueError: different lengths, also if one of them is 1.
    """
    if q.shape[-1:] != xi.shape[-1:]:
        raise ValueError(f"q must have as many entries as xi, got {q.shape[-1]} and {xi.shape[-1]}")
    return q + xi


def check_fit(system: Any, state: State) -> None:
    """Raise an error unless `system` is a system with vectors of rows that fits the lengths of q and v.

    Raises:
        TypeError: not a `System`, or rows that are not arrays or whose dtype differs from the state.
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
                f"system.{method} fails{why}; check the lengths of q and v, and in batch_rollout that "
                "in_axes names every"
                f" stacked leaf of the system: {error}"
            ) from error
        checked(method, result, shape, q.dtype, why)
    named = system.names.coordinates  # Missing names are numbered.
    if len(named) > q.shape[0]:
        raise ValueError(f"state.q must have {len(named)} numbers ({', '.join(named)}), got {q.shape[0]}")
    checked("constraint(t, q)", jax.eval_shape(system.constraint, state.t, q), (None,), q.dtype)
    checked(
        "velocity_constraint(t, q, v)",
        jax.eval_shape(system.velocity_constraint, state.t, q, v),
        (None,),
        q.dtype,
    )


def wanted_rate(system: Any, t: Any, x: Any, u: Any) -> Any:
    """Return `system.rate(t, x, u)`.

    Raises:
        TypeError: the rate reads an input but u is None.
    """
    return with_input(system.rate, t, x, u)


def energy(system: AnySystem, state: State) -> Scalar:
    """Return kinetic plus potential energy in J; it is constant along motions without driving and damping.

    Raises:
        TypeError: not a `System`.
        ValueError: if a parameter of the system is out of range.
    """
    check_system(system)
    return system.kinetic_energy(state.q, state.v) + system.potential_energy(state.t, state.q)

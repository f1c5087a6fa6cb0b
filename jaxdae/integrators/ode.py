"""Equations of motion as an ODE for Diffrax, and Diffrax solvers with a projection after every step.

With the multipliers eliminated, the equations of motion are the ordinary differential equation (the index-1
form) for y = (q, v)

    q' = d/ds q (+) s v  at s = 0,        v' = a(t, q, v, u),        [M -J^T; J C] [a; lam] = [f; r].

For a first-order system, q' is the feasible velocity nearest to its rate. v is an output and stays constant.

All features of Diffrax are available: controllers, dense output, events, adjoints. An integrator lets its
solutions drift off the constraint manifold, and a projection after every step removes this drift (see
`jaxdae.integrators.diffrax_solver` for the requirements on a solver).

Diffrax is an optional dependency, the extra `adaptive`. It is imported only if needed.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.dynamics.stabilization import NoStabilization, Projection, Stabilization, check_stabilization
from jaxdae.integrators.equation_of_motion import motion
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.saddle_point.saddle_point_solver import check_solver
from jaxdae.systems.system import AnySystem, State, check_system, checked_state


@pytree
class VectorField:
    """The vector field (t, (q, v), u) -> (q', v') of a system; see `vector_field`."""

    system: AnySystem
    solver: SaddlePointSolver
    stabilization: Stabilization

    def __call__(self, t: Any, y: tuple[Any, Any], args: Any = None) -> tuple[Any, Any]:
        """Return (q', v') at time t (s) and y = (q, v).

        `args` is the input u, a feedback law (t, state) -> u, or None.
        """
        state = checked_state(State(t, *y))
        v, a, _, _ = motion(self.system, state, args, self.solver, self.stabilization)
        zero = jnp.zeros_like(state.t)
        rate = jax.jvp(lambda s: self.system.retract(state.q, s * v), (zero,), (jnp.ones_like(zero),))[1]
        return rate, a


def vector_field(
    system: AnySystem, *, solver: SaddlePointSolver | None = None, stabilization: Stabilization | None = None
) -> VectorField:
    """Return the equations of motion as a vector field f(t, (q, v), args) -> (q', v').

    Use it with Diffrax or any other ODE library. q' = d/ds q (+) s v at s = 0, which equals v except for
    coordinates such as quaternions; v' = a of `forward_dynamics`. For a `KinematicSystem`, q' follows from
    `kinematic_velocity`, and v' = 0.

    Args:
        system: the mechanical system.
        solver: a saddle-point solver; None for the default solver of the system.
        stabilization: the target of the acceleration row; `NoStabilization()` by default.

    The result is a pytree: gradients with respect to the system, the gains and `args` (the input u, a
    feedback law of (t, state), or None) pass through it. It does not require Diffrax.

    Example:
        >>> solution = diffrax.diffeqsolve(
        ...     diffrax.ODETerm(jaxdae.diffrax.vector_field(system)),
        ...     jaxdae.diffrax.projected_solver(diffrax.Tsit5(), system),
        ...     t0=0.0, t1=1.0, dt0=None, y0=(state.q, state.v),
        ...     stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-8),
        ... )
    """
    check_system(system)
    check_solver(solver)
    check_stabilization(stabilization)
    return VectorField(system, solver or system.default_solver, stabilization or NoStabilization())


def load_diffrax() -> tuple[Any, Any]:
    """Return the module `diffrax` and the module `jaxdae.integrators.diffrax_solver`.

    Raises:
        ImportError: Diffrax is not installed.
    """
    try:
        import diffrax

        from jaxdae.integrators import diffrax_solver
    except ImportError as error:
        raise ImportError(
            "adaptive integration needs the extra adaptive; install it with pip install '.[adaptive]' in a "
            "clone of jaxdae "
            f"({error})"
        ) from error
    return diffrax, diffrax_solver


def projected_solver(
    method: Any,
    system: AnySystem,
    projection: Projection | None = Projection(),
    *,
    solver: SaddlePointSolver | None = None,
) -> Any:
    """Return a Diffrax solver whose steps end on the constraint manifold, for y = (q, v) and `vector_field`.

    The error that controls the steps is that of the method before the projection. Dense output and
    `SaveAt(ts=...)` use the interpolant of the method. It keeps its accuracy, but it is off the manifold by
    the local error. The steps themselves, `SaveAt(t1=True)` and `SaveAt(steps=True)`, are on the manifold.

    Args:
        method: an explicit Diffrax solver, such as `diffrax.Dopri8()`. Methods that pass their last stage on
            to the next step (FSAL) evaluate it again after the projection.
        system: the mechanical system.
        projection: the projection. None normalizes quaternions and projects nothing.
        solver: the saddle-point solver of projections without their own solver; None for the default solver
            of the system.

    Raises:
        ImportError: Diffrax is not installed.
        TypeError: `method` is not an explicit Diffrax solver, or `projection` is not a `Projection`.
    """
    _, ours = load_diffrax()
    check_system(system)
    check_method(method)
    check_projection(projection)
    check_solver(solver)
    return ours.ProjectedSolver(method, system, projection, solver or system.default_solver)


def check_method(method: Any) -> None:
    """Raise TypeError if `method` is not an explicit Diffrax solver."""
    diffrax, _ = load_diffrax()
    if not isinstance(method, diffrax.AbstractSolver):
        hint = "; call it: Dopri8(), not Dopri8" if isinstance(method, type) else ""
        raise TypeError(f"method must be a Diffrax solver, like diffrax.Dopri8(); got {method!r}{hint}")
    if isinstance(method, diffrax.AbstractImplicitSolver):
        raise TypeError(
            f"method must be an explicit Diffrax solver, like diffrax.Dopri8(); {type(method).__name__} is "
            "implicit"
        )


def check_projection(projection: Any) -> None:
    """Raise TypeError if `projection` is neither a `Projection` nor None."""
    if projection is not None and not isinstance(projection, Projection):
        name = type(projection).__name__
        raise TypeError(f"projection must be a Projection(position, velocity) or None, got {name}")

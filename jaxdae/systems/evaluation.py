"""All terms of a system at one state: M, J, gamma, f and the residuals of the constraints.

Integrators, projections, dynamics and reports need several terms at the same state. In a mechanism all of
them depend on the frames of the bodies. `System.evaluate` computes the frames once and returns an
`Evaluation`, which computes each term on access. Pass it on to functions that need terms at the same state:

    at = system.evaluate(t, q, v)
    a_free = at.mass.solve(at.force(u))

An evaluation is an immutable pytree. It stores frames but no terms, because a term computed inside a
transformation, such as `jax.grad`, must not be visible outside. Under `jax.jit`, unused frames cost nothing.

`Evaluation` calls the methods of a user's system. Mechanisms (`jaxdae.mechanisms.mechanism_evaluation`)
compute the terms from frames, and wrappers (`jaxdae.systems.wrapper`) transform the terms of their inner
system.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.matrices import JacobianOperator, MassOperator
from jaxdae.typing import Input, Jacobian, Leaf, Residual, Rows, Velocity, VelocityResidual


@pytree
class Evaluation:
    """The terms of a system at a state; see `System.evaluate`.

    Attributes:
        system: the system.
        t: time () in s.
        q: coordinates (nq,).
        v: velocities (nv,); None if the caller needs only `mass`, `position`, `opening` and `compliance`.
    """

    system: Leaf
    t: Leaf
    q: Leaf
    v: Leaf = None

    def with_velocities(self, v: Velocity) -> Evaluation:
        """Return the terms at the same time and coordinates and at other velocities (nv,)."""
        return dataclasses.replace(self, v=v)

    def with_system(self, system: Any) -> Evaluation:
        """Return the terms at this state for a system with the same coordinates and other forces or rows."""
        return dataclasses.replace(self, system=system)

    @property
    def mass(self) -> MassOperator:
        """M (nv, nv)."""
        return self.system.mass_operator(self.q)

    @property
    def position(self) -> Residual:
        """The residual g (ng,)."""
        return checked("constraint(t, q)", self.system.constraint(self.t, self.q), (None,), self.q.dtype)

    @property
    def opening(self) -> Residual:
        """The residual (ng,) that closes and checks a start: g by default; see `Joint.opening`."""
        return self.position

    @property
    def turns_over(self) -> bool:
        """Whether g also vanishes at invalid poses with flipped bodies, so that `opening` differs from g."""
        return False

    @property
    def constraint_rate(self) -> Residual:
        """The rate g' (ng,) along the motion."""
        # The rate has the shape of the user's residual, so that the message names `constraint`.
        return checked(
            "constraint(t, q)", self.system.constraint_rate(self.t, self.q, self.v), (None,), self.q.dtype
        )

    @property
    def velocity_constraint(self) -> VelocityResidual:
        """The residual w (nw,)."""
        w = self.system.velocity_constraint(self.t, self.q, self.v)
        return checked("velocity_constraint(t, q, v)", w, (None,), self.q.dtype)

    @property
    def velocity(self) -> Rows:
        """The violation [g'; w] (nc,) of the constraints by the velocities, in row units per second."""
        return jnp.concatenate([self.constraint_rate, self.velocity_constraint])

    @property
    def jacobian(self) -> JacobianOperator:
        """J (nc, nv), position-level rows first."""
        return self._checked_jacobian(self.system.jacobian_operator(self.t, self.q, self.v))

    @property
    def jacobian_products(self) -> JacobianOperator:
        """J for solvers that need only products; the default never forms the matrix."""
        return self._checked_jacobian(self.system.jacobian_products(self.t, self.q, self.v))

    @property
    def dense_jacobian(self) -> Jacobian:
        """J (nc, nv) as an array."""
        return self._checked_jacobian(self.system.constraint_jacobian(self.t, self.q, self.v))

    @property
    def bias(self) -> Rows:
        """The bias gamma (nc,)."""
        gamma, rows = self.system.constraint_bias(self.t, self.q, self.v), self._rows
        return checked("constraint_bias(t, q, v)", gamma, (rows,), self.q.dtype, _declared(rows))

    @property
    def compliance(self) -> Rows | None:
        """The compliance C (nc,); None if all rows are hard."""
        return self.system.compliance(self.t, self.q)

    @property
    def touch(self) -> Any:
        """The contacts, joint limits and dry friction, a `systems.contacts.Touch`; None without any."""
        return self.system.touch(self.t, self.q)

    def force(self, u: Input = None) -> Velocity:
        """Return f (nv,) for the input u (nu,).

        Raises:
            TypeError: a first-order system, which has no forces; or the force reads an input but u is None.
        """
        if self.system.first_order:
            raise TypeError(
                f"{type(self.system).__name__} is a KinematicSystem, x' = rate(t, x, u), and has no "
                "forces; integrate it with"
                " Kinematic.rk4() (or Sequential or ProjectedStep around a Kinematic), and get its velocity "
                "from kinematic_velocity"
            )
        f = with_input(self.system.force, self.t, self.q, self.v, u)
        return checked("force(t, q, v, u)", f, self.v.shape, self.q.dtype)

    @property
    def _rows(self) -> int:
        return jax.eval_shape(lambda at: at.velocity, self).shape[0]

    def _checked_jacobian(self, jacobian: Any) -> Any:
        rows = self._rows
        return checked(
            "constraint_jacobian(t, q, v)", jacobian, (rows, *self.v.shape), self.q.dtype, _declared(rows)
        )


@pytree
class WrappedEvaluation(Evaluation):
    """The terms of a wrapper: by default those of its inner system. Subclasses transform them.

    Attributes:
        inner: the evaluation of the inner system at the same state.
    """

    inner: Leaf = None

    def with_velocities(self, v: Velocity) -> WrappedEvaluation:
        """Return the terms at the same time and coordinates and at other velocities (nv,)."""
        return dataclasses.replace(self, v=v, inner=self.inner.with_velocities(v))

    @property
    def mass(self) -> MassOperator:
        """M of the inner system."""
        return self.inner.mass

    @property
    def position(self) -> Residual:
        """The residual g of the inner system."""
        return self.inner.position

    @property
    def opening(self) -> Residual:
        """The residual of the inner system that closes and checks a start."""
        return self.inner.opening

    @property
    def turns_over(self) -> bool:
        """Whether g of the inner system also vanishes at poses with flipped bodies."""
        return self.inner.turns_over

    @property
    def constraint_rate(self) -> Residual:
        """The rate g' of the inner system."""
        return self.inner.constraint_rate

    @property
    def velocity_constraint(self) -> VelocityResidual:
        """The residual w of the inner system."""
        return self.inner.velocity_constraint

    @property
    def jacobian(self) -> JacobianOperator:
        """J of the inner system."""
        return self.inner.jacobian

    @property
    def jacobian_products(self) -> JacobianOperator:
        """J of the inner system for solvers that need only products."""
        return self.inner.jacobian_products

    @property
    def dense_jacobian(self) -> Jacobian:
        """The array J (nc, nv) of `jacobian`."""
        return self.jacobian.as_dense()

    @property
    def bias(self) -> Rows:
        """The bias gamma of the inner system."""
        return self.inner.bias

    @property
    def compliance(self) -> Rows | None:
        """The compliance C of the inner system."""
        return self.inner.compliance

    @property
    def touch(self) -> Any:
        """The contacts, joint limits and dry friction of the inner system."""
        return self.inner.touch

    def force(self, u: Input = None) -> Velocity:
        """Return f of the inner system."""
        return self.inner.force(u)


def checked(method: str, value: Any, shape: tuple[int | None, ...], dtype: Any, why: str = "") -> Any:
    """Return the result of a system method after a check of its type, shape (None: any length) and dtype.

    Raises:
        TypeError: not an array, or a dtype that differs from the state.
        ValueError: wrong shape.
    """
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        raise TypeError(
            f"system.{method} must return an array, got {type(value).__name__}; use jnp.stack([...])"
        )
    if len(value.shape) != len(shape) or any(
        n not in (None, m) for n, m in zip(shape, value.shape, strict=True)
    ):
        expected = ", ".join("rows" if n is None else str(n) for n in shape) + (
            "," if len(shape) == 1 else ""
        )
        hint = "; use jnp.stack([...]) to return a vector" if not value.shape else ""
        raise ValueError(
            f"system.{method} must return an array of shape ({expected}){why}, got {value.shape}{hint}"
        )
    if value.dtype != dtype:
        raise TypeError(
            f"system.{method} returned {value.dtype}, but the state is {dtype}; use the same precision for "
            "the system and the state"
        )
    return value


def _declared(rows: int) -> str:
    return f" ({rows} rows are declared by constraint and velocity_constraint)"


def with_input(function: Any, *arguments: Any) -> Any:
    """Return the result of a method of a system, whose last argument is the input.

    Raises:
        TypeError: the method reads an input but the input is None.
    """
    try:
        return function(*arguments)
    except (AttributeError, TypeError, ValueError) as error:
        if arguments[-1] is not None or "None" not in str(error):
            raise
        raise TypeError(
            "this system reads an input u, but no controls were given: pass controls of shape (steps, nu) "
            "to rollout, or u=... to other"
            f" functions ({function.__qualname__}: {error})"
        ) from error

"""Base classes of systems that are made of another system.

A `Wrapper` transforms the evaluation of its inner system and forwards all other methods. A system with
`SameCoordinates` forwards only the methods of the coordinates. Its equations and rows are its own.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

from jaxdae.matrices import JacobianOperator, MassOperator
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.systems.evaluation import Evaluation, WrappedEvaluation
from jaxdae.systems.names import Names, Sizes
from jaxdae.systems.system import AnySystem, State, System
from jaxdae.typing import (
    Coordinates,
    Count,
    Input,
    Jacobian,
    Residual,
    Rows,
    Scalar,
    Square,
    Velocity,
    VelocityResidual,
)


class SameCoordinates(AnySystem):
    """A system in the coordinates of another system: it forwards only the methods of the coordinates."""

    @property
    @abc.abstractmethod
    def coordinates_of(self) -> AnySystem:
        """The other system."""

    @property
    def flat(self) -> bool:
        """Whether q (+) xi is q + xi in the other system."""
        return self.coordinates_of.flat

    @property
    def vanishing_rows(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether rows in these coordinates can vanish at singular configurations."""
        return self.coordinates_of.vanishing_rows

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Return q (+) xi of the other system."""
        return self.coordinates_of.retract(q, xi)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Return the inverse of `retract` of the other system."""
        return self.coordinates_of.difference(q0, q1)

    def carry(self, q: Coordinates, v: Velocity, new: Coordinates) -> Velocity:
        """Return velocities of the other system at `new` that continue the motion v at q."""
        return self.coordinates_of.carry(q, v, new)

    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity | None:
        """Return the rate of a tangent step of the other system; None if a subclass overrides `retract`."""
        return (
            self.coordinates_of.step_rate(q, xi, v) if type(self).retract is SameCoordinates.retract else None
        )


_TERMS = (
    *(
        "constraint",
        "velocity_constraint",
        "constraint_rate",
        "constraint_jacobian",
        "jacobian_operator",
        "jacobian_products",
    ),
    *("constraint_bias", "compliance", "force", "mass_operator", "mass_matrix"),
)
"""The methods of a `Wrapper` that return terms of its evaluation."""


class Wrapper(System):
    """A system around an inner system, `system`.

    All terms come from one evaluation of the inner system. A subclass transforms them in its `evaluation`.
    """

    evaluation: ClassVar[type[WrappedEvaluation]] = WrappedEvaluation
    """The class of the evaluations, which transforms the terms of the inner system."""
    system: AnySystem

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = [name for name in _TERMS if name in vars(cls)]
        if own:
            raise TypeError(
                f"{cls.__name__} overrides {', '.join(own)}: set `evaluation` to a subclass of "
                "WrappedEvaluation instead"
            )

    def evaluate(self, t: Scalar, q: Coordinates, v: Velocity | None = None) -> WrappedEvaluation:
        """Return the terms of the inner system at a state, transformed."""
        return self.around(self.system.evaluate(t, q, v))

    def around(self, at: Evaluation) -> WrappedEvaluation:
        """Return the transformed terms of an evaluation of the inner system."""
        return self.evaluation(self, at.t, at.q, at.v, at)

    def mass_matrix(self, q: Coordinates) -> Square:
        """Return M(q) of the inner system."""
        return self.system.mass_matrix(q)

    def mass_operator(self, q: Coordinates) -> MassOperator:
        """Return the mass operator of the inner system."""
        return self.system.mass_operator(q)

    def force(self, t: Scalar, q: Coordinates, v: Velocity, u: Input) -> Velocity:
        """Return f (nv,)."""
        return self.evaluate(t, q, v).force(u)

    def constraint(self, t: Scalar, q: Coordinates) -> Residual:
        """Return g (ng,)."""
        return self.evaluate(t, q).position

    def velocity_constraint(self, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
        """Return w (nw,)."""
        return self.evaluate(t, q, v).velocity_constraint

    def compliance(self, t: Scalar, q: Coordinates) -> Rows | None:
        """Return C (nc,); None if all rows are hard."""
        return self.evaluate(t, q).compliance

    def condition(self, t: Scalar, q: Coordinates) -> Count | None:
        """Return the condition of the inner system."""
        return self.system.condition(t, q)

    def jumps(self, before: State, after: State) -> Any:
        """Return whether rows or forces of the inner system jump in a step."""
        return self.system.jumps(before, after)

    def touch(self, t: Scalar, q: Coordinates) -> Any:
        """Return the contacts, joint limits and dry friction of the inner system."""
        return self.system.touch(t, q)

    @property
    def touches(self) -> bool:
        """Whether the inner system has contacts, joint limits or dry friction."""
        return self.system.touches

    @property
    def rebounding(self) -> tuple[str, ...]:
        """The names of contacts and joint limits of the inner system with a restitution above zero."""
        return self.system.rebounding

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Return q (+) xi of the inner system."""
        return self.system.retract(q, xi)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Return the inverse of `retract` of the inner system."""
        return self.system.difference(q0, q1)

    def carry(self, q: Coordinates, v: Velocity, new: Coordinates) -> Velocity:
        """Return velocities of the inner system at `new` that continue the motion v at q."""
        return self.system.carry(q, v, new)

    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity | None:
        """Return the rate of a tangent step of the inner system; None if a subclass overrides `retract`."""
        return self.system.step_rate(q, xi, v) if type(self).retract is Wrapper.retract else None

    def kinetic_energy(self, q: Coordinates, v: Velocity) -> Scalar:
        """Return the kinetic energy of the inner system, in J."""
        return self.system.kinetic_energy(q, v)

    def potential_energy(self, t: Scalar, q: Coordinates) -> Scalar:
        """Return the potential energy of the inner system, in J."""
        return self.system.potential_energy(t, q)

    def constraint_rate(self, t: Scalar, q: Coordinates, v: Velocity) -> Residual:
        """Return g' (ng,)."""
        return self.evaluate(t, q, v).constraint_rate

    def constraint_jacobian(self, t: Scalar, q: Coordinates, v: Velocity) -> Jacobian:
        """Return J (nc, nv) as an array."""
        return self.evaluate(t, q, v).dense_jacobian

    def jacobian_operator(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Return J (nc, nv)."""
        return self.evaluate(t, q, v).jacobian

    def jacobian_products(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Return J for solvers that need only products."""
        return self.evaluate(t, q, v).jacobian_products

    def constraint_bias(self, t: Scalar, q: Coordinates, v: Velocity) -> Rows:
        """Return gamma (nc,)."""
        return self.evaluate(t, q, v).bias

    def rate(self, t: Scalar, x: Coordinates, u: Input) -> Velocity:
        """Return the desired velocity of the inner system, which must be a `KinematicSystem`."""
        return self.system.rate(t, x, u)  # pyright: ignore[reportAttributeAccessIssue]

    def rate_status(self, t: Scalar, x: Coordinates, u: Input) -> Count | None:
        """Return the rate status of the inner system, which must be a `KinematicSystem`."""
        return self.system.rate_status(t, x, u)  # pyright: ignore[reportAttributeAccessIssue]

    def step_status(self, before: State, after: State, u: Input) -> Count | None:
        """Return the step status of the inner system, which must be a `KinematicSystem`."""
        return self.system.step_status(before, after, u)  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def driven_rows(self) -> int:
        """The number of trailing rows of the inner system that set velocities to inputs."""
        return self.system.driven_rows

    def at_input(self, u: Input) -> AnySystem:
        """Return the wrapper around the inner system with u inserted."""
        inside = self.system.at_input(u)
        if inside is self.system:
            return self
        return dataclasses.replace(self, system=inside)  # pyright: ignore[reportArgumentType]

    def sizes(self, q: Any) -> Sizes:
        """Return the sizes of the inner system."""
        return self.system.sizes(q)

    @property
    def names(self) -> Names:
        """The names of the inner system."""
        return self.system.names

    @property
    def flat(self) -> bool:
        """Whether q (+) xi is q + xi in the inner system."""
        return self.system.flat

    @property
    def first_order(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the inner system is of first order."""
        return self.system.first_order

    @property
    def characteristic_length(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The characteristic length of the inner system."""
        return self.system.characteristic_length

    @property
    def affine_rows(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether all velocity-level rows of the inner system are affine in the velocities."""
        return self.system.affine_rows

    @property
    def default_solver(self) -> SaddlePointSolver:
        """The default solver of the inner system."""
        return self.system.default_solver

    @property
    def resists(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether forces of the inner system may be too stiff for an explicit step."""
        return self.system.resists

    @property
    def vanishing_rows(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether rows of the inner system can vanish at singular configurations."""
        return self.system.vanishing_rows

    @property
    def n_inputs(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of inputs of the inner system."""
        return self.system.n_inputs

    @property
    def coordinate_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The names of the coordinates of the inner system."""
        return self.names.coordinates

    @property
    def row_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The names of the constraint rows."""
        return self.names.rows

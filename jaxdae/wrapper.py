"""What systems that are made of another system have in common.

A `Wrapper` changes some of what the system inside says, and passes on all else. A system with `SameCoordinates` takes over nothing but the
coordinates: its equations and its rows are its own.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

from jaxdae.names import Names, Sizes
from jaxdae.operators import JacobianOperator, MassOperator
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.system import AnySystem, State, System
from jaxdae.typing import Coordinates, Count, Input, Jacobian, Residual, Rows, Scalar, Square, Velocity, VelocityResidual


class SameCoordinates(AnySystem):
    """A system in the coordinates of another one: how these move is passed on, and nothing else."""

    @property
    @abc.abstractmethod
    def coordinates_of(self) -> AnySystem:
        """The other system."""

    @property
    def flat(self) -> bool:
        """Whether q (+) xi is q + xi in the other system."""
        return self.coordinates_of.flat

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Returns q (+) xi of the other system."""
        return self.coordinates_of.retract(q, xi)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Returns the inverse of `retract` of the other system."""
        return self.coordinates_of.difference(q0, q1)

    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity | None:
        """Returns the rate of a tangent step of the other system; None where a subclass has a `retract` of its own."""
        return self.coordinates_of.step_rate(q, xi, v) if type(self).retract is SameCoordinates.retract else None


class Wrapper(System):
    """A system around another one, `system`, to which everything is passed on."""

    system: AnySystem

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "constraint" in vars(cls) and "opening" not in vars(cls):
            raise TypeError(f"{cls.__name__} has a constraint of its own, and needs an opening: the rows by which starts are judged")

    def mass_matrix(self, q: Coordinates) -> Square:
        """Returns M(q) of the system inside."""
        return self.system.mass_matrix(q)

    def mass_operator(self, q: Coordinates) -> MassOperator:
        """Returns the mass operator of the system inside."""
        return self.system.mass_operator(q)

    def force(self, t: Scalar, q: Coordinates, v: Velocity, u: Input) -> Velocity:
        """Returns f of the system inside, where that is a `System`."""
        return self.system.force(t, q, v, u)  # pyright: ignore[reportAttributeAccessIssue]

    def constraint(self, t: Scalar, q: Coordinates) -> Residual:
        """Returns g of the system inside."""
        return self.system.constraint(t, q)

    def opening(self, t: Scalar, q: Coordinates) -> Residual:
        """Returns the rows by which a start is judged, those of the system inside. Wrappers that change g override both."""
        return self.system.opening(t, q)

    @property
    def turns_over(self) -> bool:
        """Whether the system inside is turned over at some zeros of its g."""
        return self.system.turns_over

    def velocity_constraint(self, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
        """Returns w of the system inside."""
        return self.system.velocity_constraint(t, q, v)

    def compliance(self, t: Scalar, q: Coordinates) -> Rows | None:
        """Returns C of the system inside."""
        return self.system.compliance(t, q)

    def condition(self, t: Scalar, q: Coordinates) -> Count | None:
        """Returns the condition of the system inside."""
        return self.system.condition(t, q)

    def jumps(self, before: State, after: State) -> Any:
        """Return whether rows or forces of the system inside jump in a step."""
        return self.system.jumps(before, after)

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Returns q (+) xi of the system inside."""
        return self.system.retract(q, xi)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Returns the inverse of `retract` of the system inside."""
        return self.system.difference(q0, q1)

    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity | None:
        """Returns the rate of a tangent step of the system inside; None where a subclass has a `retract` of its own."""
        return self.system.step_rate(q, xi, v) if type(self).retract is Wrapper.retract else None

    def kinetic_energy(self, q: Coordinates, v: Velocity) -> Scalar:
        """Returns the kinetic energy of the system inside, in J."""
        return self.system.kinetic_energy(q, v)

    def potential_energy(self, t: Scalar, q: Coordinates) -> Scalar:
        """Returns the potential energy of the system inside, in J."""
        return self.system.potential_energy(t, q)

    def constraint_rate(self, t: Scalar, q: Coordinates, v: Velocity) -> Residual:
        """Returns g' of the system inside."""
        return self.system.constraint_rate(t, q, v)

    def constraint_jacobian(self, t: Scalar, q: Coordinates, v: Velocity) -> Jacobian:
        """Returns J (nc, nv), that of `jacobian_operator`."""
        return self.jacobian_operator(t, q, v).as_dense()

    def jacobian_operator(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Returns J of the system inside."""
        return self.system.jacobian_operator(t, q, v)

    def jacobian_products(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Returns J of the system inside, never formed."""
        return self.system.jacobian_products(t, q, v)

    def constraint_bias(self, t: Scalar, q: Coordinates, v: Velocity) -> Rows:
        """Returns gamma of the system inside."""
        return self.system.constraint_bias(t, q, v)

    def rate(self, t: Scalar, x: Coordinates, u: Input) -> Velocity:
        """Returns the wanted velocity of the system inside, where that is a `KinematicSystem`."""
        return self.system.rate(t, x, u)  # pyright: ignore[reportAttributeAccessIssue]

    def rate_status(self, t: Scalar, x: Coordinates, u: Input) -> Count | None:
        """Returns what the system inside, where that is a `KinematicSystem`, tells of its rate."""
        return self.system.rate_status(t, x, u)  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def driven_rows(self) -> int:
        """How many of the last rows hold velocities at inputs in the system inside."""
        return self.system.driven_rows

    def at_input(self, u: Input) -> AnySystem:
        """Returns the wrapper around the system inside at an input."""
        inside = self.system.at_input(u)
        return self if inside is self.system else dataclasses.replace(self, system=inside)  # pyright: ignore[reportArgumentType]

    def at(self, q: Coordinates) -> AnySystem:
        """Return the wrapper around the inner system, whose terms at q share their intermediate results."""
        inside = self.system.at(q)
        return self if inside is self.system else dataclasses.replace(self, system=inside)  # pyright: ignore[reportArgumentType]

    def sizes(self, q: Any) -> Sizes:
        """Returns the sizes of the system inside."""
        return self.system.sizes(q)

    @property
    def names(self) -> Names:
        """The names of the system inside."""
        return self.system.names

    @property
    def flat(self) -> bool:
        """Whether q (+) xi is q + xi in the system inside."""
        return self.system.flat

    @property
    def first_order(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the system inside is of first order."""
        return self.system.first_order

    @property
    def characteristic_length(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The characteristic length of the system inside."""
        return self.system.characteristic_length

    @property
    def affine_rows(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether all velocity-level rows of the system inside are affine in the velocities."""
        return self.system.affine_rows

    @property
    def default_solver(self) -> SaddlePointSolver:
        """The default solver of the system inside."""
        return self.system.default_solver

    @property
    def resists(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether forces of the system inside may be too steep for an explicit step."""
        return self.system.resists

    @property
    def n_inputs(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of inputs of the system inside."""
        return self.system.n_inputs

    @property
    def coordinate_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The names of the coordinates of the system inside."""
        return self.names.coordinates

    @property
    def row_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The names of the constraint rows."""
        return self.names.rows

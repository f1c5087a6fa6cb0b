"""What the coordinates of a mechanism say: where its bodies are and how they move.

With the twists T v of all bodies (of their mass centers, see `jaxdae.geometry`), the equations of the bodies become those of the mechanism:

    M = T^T M_b T,      J = J_b T,      gamma = gamma_b + J_b T' v,      f = T^T (f_b - M_b T' v)

where M_b, J_b, gamma_b, f_b are those of free bodies. Joints and forces know bodies only, and coordinates know neither.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from jaxdae.mechanisms.measures import Blocks, Kinematics, Pairs
from jaxdae.operators import JacobianOperator, MassOperator
from jaxdae.typing import Coordinates, Jacobian, Scalar, Velocity


class BodyCoordinates(abc.ABC):
    """How bodies move with q; a pytree, as a part of a `Mechanism`."""

    flat: bool
    """Whether q (+) xi is q + xi."""

    @property
    @abc.abstractmethod
    def names(self) -> tuple[tuple[str, str], ...]:
        """The names of q with their units."""

    @property
    @abc.abstractmethod
    def velocity_names(self) -> tuple[tuple[str, str], ...]:
        """The names of v with their units."""

    @abc.abstractmethod
    def kinematics(self, q: Coordinates, v: Velocity) -> Kinematics:
        """Returns frames, twists T v, and T' v, of all bodies."""

    @abc.abstractmethod
    def pull(self, q: Coordinates, motion: Kinematics, wrench: Any) -> Velocity:
        """Returns T^T F (nv,) of wrenches F on all bodies, a stacked `Twist`."""

    def efforts(self, q: Coordinates, v: Velocity) -> Velocity | None:
        """Returns forces (nv,) on the coordinates themselves, such as the damping of joints; None where there are none."""
        return None

    def own(self, joint: str, number: int) -> tuple[int, int] | None:
        """Returns where a coordinate of a joint is in q and its rate in v; None where it is not."""
        return None

    def elastic_energy(self, q: Coordinates) -> Scalar | None:
        """Returns the energy in J of springs on the coordinates themselves; None where there are none."""
        return None

    @abc.abstractmethod
    def mass_operator(self, q: Coordinates, mass: Any, inertia: Any) -> MassOperator:
        """Returns M = T^T M_b T.

        Args:
            q: coordinates (nq,).
            mass: of the bodies (n,) in kg.
            inertia: about the mass centers in kg m^2: (n,) in the plane, (n, 3) or (n, 3, 3) in the axes of the body in space.
        """

    @abc.abstractmethod
    def kinetic_energy(self, q: Coordinates, v: Velocity, mass: Any, inertia: Any) -> Scalar:
        """Returns v^T M v / 2 in J."""

    @abc.abstractmethod
    def dense_rows(self, q: Coordinates, motion: Kinematics, block: Blocks, pair: Pairs) -> Jacobian:
        """Returns the rows J_b T of a group as an array."""

    def joined_rows(self, q: Coordinates, motion: Kinematics, parts: Sequence[tuple[Blocks, Pairs]]) -> Jacobian:
        """Returns the rows J_b T of several groups as an array."""
        nothing = jnp.zeros((0, len(self.velocity_names)), q.dtype)
        return jnp.concatenate([nothing, *(self.dense_rows(q, motion, *part) for part in parts)])

    @abc.abstractmethod
    def block_rows(self, q: Coordinates, motion: Kinematics, parts: Sequence[tuple[Blocks, Pairs]]) -> JacobianOperator:
        """Returns the rows J_b T of several groups without forming zeros."""

    @abc.abstractmethod
    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Returns q (+) xi."""

    @abc.abstractmethod
    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Returns xi with q0 (+) xi = q1."""

"""Interface of the coordinates of a mechanism, which give the frames and twists of its bodies.

Let T v be the twists of the mass centers of all bodies (see `jaxdae.geometry`). The equations of motion of
the mechanism follow from the equations of the free bodies:

    M = T^T M_b T,      J = J_b T,      gamma = gamma_b + J_b T' v,      f = T^T (f_b - M_b T' v)

where M_b, J_b, gamma_b, f_b belong to the free bodies. Joints and forces use bodies only. Coordinates do not
depend on joints or forces.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.matrices import DenseRows, JacobianOperator, MassOperator
from jaxdae.mechanisms.describe.measures import Blocks, Kinematics, Pairs
from jaxdae.typing import Coordinates, Jacobian, Scalar, Velocity


class BodyTerm(NamedTuple):
    """The part of Jacobian rows that acts on two bodies per row.

    Attributes:
        block: the derivatives of the rows by the twists of both bodies.
        pair: the two bodies of each row.
        relative: whether the rows are invariant to a common motion of both bodies.
    """

    block: Blocks
    pair: Pairs
    relative: bool = True

    @property
    def sides(self) -> tuple[Array, Array]:
        """Return the derivatives by the twists of both bodies, 2 x (k rows, width)."""
        on_a, on_b = (side.transpose(2, 1, 0).reshape(-1, side.shape[0]) for side in self.block)
        return on_a, on_b

    def repeated(self, k: int, factors: Any) -> BodyTerm:
        """Return the term of several rows, each equal to row k times one of the factors (rows,)."""
        on_a, on_b = (side[..., k, None] * factors for side in self.block)
        a, b = ((side[k],) * len(factors) for side in (self.pair.a, self.pair.b))
        return BodyTerm((on_a, on_b), Pairs(a, b, self.pair.bodies), self.relative)


class VelocityTerm(NamedTuple):
    """The part of Jacobian rows that acts directly on velocity coordinates, one per row.

    Attributes:
        in_v: the index in v for each row (k,).
        entries: the derivatives of the rows with respect to these velocities (k,).
    """

    in_v: tuple[int, ...]
    entries: Any

    def repeated(self, k: int, factors: Any) -> VelocityTerm:
        """Return the term of several rows, each equal to row k times one of the factors (rows,)."""
        return VelocityTerm((self.in_v[k],) * len(factors), self.entries[k] * factors)


class Terms(NamedTuple):
    """The terms whose sum gives the Jacobian rows of a group.

    Attributes:
        on_bodies: the terms that act on bodies, two per row.
        on_velocities: the terms that act directly on velocity coordinates.
    """

    on_bodies: tuple[BodyTerm, ...] = ()
    on_velocities: tuple[VelocityTerm, ...] = ()

    def and_also(self, others: Terms) -> Terms:
        """Return the sum of these terms and other terms, row by row."""
        return Terms(self.on_bodies + others.on_bodies, self.on_velocities + others.on_velocities)

    def repeated(self, k: int, factors: Any) -> Terms:
        """Return the terms of several rows, each equal to row k times one of the factors (rows,)."""
        on_bodies = tuple(term.repeated(k, factors) for term in self.on_bodies)
        return Terms(on_bodies, tuple(term.repeated(k, factors) for term in self.on_velocities))


class BodyCoordinates(abc.ABC):
    """Coordinates of all bodies; a pytree and a part of a `Mechanism`.

    `locate` computes the frames of the bodies. All other functions of the motion take the result, so that the
    mass matrix, the Jacobian rows and the forces at one state share it. XLA does not reliably merge repeated
    computations of the frames, because it simplifies each of them separately before it compares them.
    """

    flat: bool
    """Whether q (+) xi is q + xi."""
    vanishing_rows: ClassVar[bool] = False
    """Whether rows of J can vanish, because lever arms of loops do."""

    def of_joints(self, groups: Any) -> Any:
        """Return the coordinates with the parameters of the stacked tree joints, if they have any."""
        return self

    def axes_of_joints(self, groups: Any, axes: Any) -> Any:
        """Return the batch axes of the result of `of_joints`, with -1 or None in place of each leaf.

        The batch axes of the joints have the same form.
        """
        return self

    @abc.abstractmethod
    def locate(self, q: Coordinates) -> Any:
        """Return the frames of the bodies at q, in the representation of these coordinates."""

    @property
    @abc.abstractmethod
    def names(self) -> tuple[tuple[str, str], ...]:
        """Return the names of the coordinates q with their units."""

    @property
    @abc.abstractmethod
    def velocity_names(self) -> tuple[tuple[str, str], ...]:
        """Return the names of the velocities v with their units."""

    @abc.abstractmethod
    def moving(self, located: Any, v: Velocity) -> Kinematics:
        """Return the frames, the twists T v, and T' v of all bodies, from the result of `locate`."""

    @abc.abstractmethod
    def resting(self, located: Any) -> Kinematics:
        """Return the frames of all bodies, for callers that need no twists, from the result of `locate`."""

    def kinematics(self, q: Coordinates, v: Velocity) -> Kinematics:
        """Return the frames, the twists T v, and T' v of all bodies."""
        return self.moving(self.locate(q), v)

    def at_rest(self, q: Coordinates) -> Kinematics:
        """Return the frames of all bodies, for callers that need no twists."""
        return self.resting(self.locate(q))

    @abc.abstractmethod
    def pull(self, q: Coordinates, motion: Kinematics, wrench: Any) -> Velocity:
        """Return T^T F (nv,), with the wrenches F on all bodies, a stacked `Twist`."""

    def efforts(self, q: Coordinates, v: Velocity) -> Velocity | None:
        """Return the forces (nv,) that act directly on the coordinates, such as joint damping, or None."""
        return None

    def own(self, joint: str, number: int) -> tuple[int, int] | None:
        """Return the indices of a joint coordinate in q and of its rate in v, or None if q has none."""
        return None

    def elastic_energy(self, q: Coordinates) -> Scalar | None:
        """Return the energy in J of springs on the coordinates, or None without springs."""
        return None

    @abc.abstractmethod
    def mass_operator(self, q: Coordinates, motion: Kinematics, mass: Any, inertia: Any) -> MassOperator:
        """Return M = T^T M_b T.

        Args:
            q: the coordinates (nq,).
            motion: the motion at q.
            mass: the masses of the bodies (n,) in kg.
            inertia: the inertias about the mass centers in kg m^2: (n,) in the plane; (n, 3) or (n, 3, 3) in
                body axes in space.
        """

    @abc.abstractmethod
    def kinetic_energy(self, q: Coordinates, v: Velocity, mass: Any, inertia: Any) -> Scalar:
        """Return v^T M v / 2 in J."""

    @abc.abstractmethod
    def dense_rows(self, q: Coordinates, motion: Kinematics, block: Blocks, pair: Pairs) -> Jacobian:
        """Return the Jacobian rows J_b T of a group as an array."""

    def joined_rows(
        self, q: Coordinates, motion: Kinematics, parts: Sequence[tuple[Blocks, Pairs]]
    ) -> Jacobian:
        """Return the Jacobian rows J_b T of several groups as an array."""
        nothing = jnp.zeros((0, len(self.velocity_names)), q.dtype)
        return jnp.concatenate([nothing, *(self.dense_rows(q, motion, *part) for part in parts)])

    @abc.abstractmethod
    def block_rows(self, q: Coordinates, motion: Kinematics, groups: Sequence[Terms]) -> JacobianOperator:
        """Return the Jacobian rows J_b T of several groups as an operator that can exploit their sparsity."""

    def term_rows(self, q: Coordinates, motion: Kinematics, terms: Terms) -> Jacobian:
        """Return the Jacobian rows of a group as an array."""
        rows: Any = 0.0
        for term in terms.on_bodies:
            rows = rows + self.dense_rows(q, motion, term.block, term.pair)
        for term in terms.on_velocities:
            seen = jnp.asarray(np.eye(len(self.velocity_names))[np.asarray(term.in_v, int)], q.dtype)
            rows = rows + term.entries[:, None] * seen
        return rows

    def group_rows(self, q: Coordinates, motion: Kinematics, groups: Sequence[Terms]) -> Jacobian:
        """Return the Jacobian rows of several groups as an array.

        Consecutive groups with a single body term and no velocity term share one call of `joined_rows`.
        """
        rows: list[Any] = [jnp.zeros((0, len(self.velocity_names)), q.dtype)]
        for of_two_bodies, some in itertools.groupby(
            groups, lambda terms: len(terms.on_bodies) == 1 and not terms.on_velocities
        ):
            if of_two_bodies:
                parts = [(term.block, term.pair) for terms in some for term in terms.on_bodies]
                rows.append(self.joined_rows(q, motion, parts))
            else:
                rows += [self.term_rows(q, motion, terms) for terms in some]
        return jnp.concatenate(rows)

    def dense_group_rows(
        self, q: Coordinates, motion: Kinematics, groups: Sequence[Terms]
    ) -> JacobianOperator:
        """Return the Jacobian rows of several groups as a dense operator."""
        return DenseRows(self.group_rows(q, motion, groups))

    @abc.abstractmethod
    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Return q (+) xi."""

    @abc.abstractmethod
    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Return xi with q0 (+) xi = q1."""

    @abc.abstractmethod
    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity:
        """Return xi' such that q (+) xi(t) moves with velocity v; see `System.step_rate`."""

"""What the coordinates of a mechanism say: where its bodies are and how they move.

With the twists T v of all bodies (of their mass centers, see `jaxdae.geometry`), the equations of the bodies become those of the mechanism:

    M = T^T M_b T,      J = J_b T,      gamma = gamma_b + J_b T' v,      f = T^T (f_b - M_b T' v)

where M_b, J_b, gamma_b, f_b are those of free bodies. Joints and forces know bodies only, and coordinates know neither.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae._pytree import pytree
from jaxdae.mechanisms import measures
from jaxdae.mechanisms.measures import Blocks, Kinematics, Pairs
from jaxdae.operators import DenseRows, JacobianOperator, MassOperator
from jaxdae.typing import Coordinates, Jacobian, Leaf, Scalar, Velocity


@pytree
class Known:
    """Where bodies are at some coordinates: q itself, the very object, and what `BodyCoordinates.located` returns there."""

    q: Leaf
    found: Leaf


@dataclasses.dataclass(frozen=True)
class BodyTerm:
    """What rows see of two bodies each.

    Attributes:
        blocks: returns the derivatives of the rows in the twists of both bodies, for those who ask for `block`.
        pair: which bodies these are.
        relative: whether the rows do not notice where both bodies move as one.
        arrays: returns the same as `sides`; None where these are put together from the blocks.
    """

    blocks: Callable[[], Blocks]
    pair: Pairs
    relative: bool = True
    arrays: Callable[[], tuple[Array, Array]] | None = None

    @functools.cached_property
    def block(self) -> Blocks:
        """The derivatives of the rows in the twists of both bodies, number by number."""
        return self.blocks()

    @property
    def sides(self) -> tuple[Array, Array]:
        """The derivatives of the rows in the twists of both bodies, 2 x (k rows, width)."""
        return measures.pair_rows(self.block) if self.arrays is None else self.arrays()

    def repeated(self, k: int, factors: Any) -> BodyTerm:
        """Returns what rows see that all look at what row k looks at, times factors (rows,)."""

        def blocks() -> Blocks:
            return [[tuple(row[k] * factors for row in direction) for direction in side] for side in self.block]

        a, b = ((side[k],) * len(factors) for side in (self.pair.a, self.pair.b))
        return BodyTerm(blocks, Pairs(a, b, self.pair.bodies), self.relative)


class VelocityTerm(NamedTuple):
    """What rows see of velocities themselves, one each.

    Attributes:
        in_v: which entry of v each row sees (k,).
        entries: the derivatives of the rows in them (k,).
    """

    in_v: tuple[int, ...]
    entries: Any

    def repeated(self, k: int, factors: Any) -> VelocityTerm:
        """Returns what rows see that all look at what row k looks at, times factors (rows,)."""
        return VelocityTerm((self.in_v[k],) * len(factors), self.entries[k] * factors)


class Terms(NamedTuple):
    """What the rows of a group are the sum of.

    Attributes:
        on_bodies: what they see of bodies, two each.
        on_velocities: what they see of velocities themselves.
    """

    on_bodies: tuple[BodyTerm, ...] = ()
    on_velocities: tuple[VelocityTerm, ...] = ()

    def and_also(self, others: Terms) -> Terms:
        """Returns the terms of rows that see both these and others."""
        return Terms(self.on_bodies + others.on_bodies, self.on_velocities + others.on_velocities)

    def repeated(self, k: int, factors: Any) -> Terms:
        """Returns the terms of rows that all see what row k sees, times factors (rows,)."""
        on_bodies = tuple(term.repeated(k, factors) for term in self.on_bodies)
        return Terms(on_bodies, tuple(term.repeated(k, factors) for term in self.on_velocities))


class BodyCoordinates(abc.ABC):
    """How bodies move with q; a pytree, as a part of a `Mechanism`.

    Mass matrix, rows and forces at one state all ask where the bodies are. The compiler does not reliably see that they ask for the same,
    because it simplifies each computation by itself before it compares them; so whoever asks for several of them at one q says so by `at`.
    """

    flat: bool
    """Whether q (+) xi is q + xi."""
    known: Known | None
    """What was located already, None where nothing was. It counts for the object `known.q` only, so that it is never out of date."""

    def at(self, q: Coordinates) -> Any:
        """Return the coordinates with the frames of the bodies at q."""
        if self.known is not None and self.known.q is q:
            return self
        return dataclasses.replace(self, known=Known(q, self.located(q)))  # pyright: ignore[reportArgumentType]

    def of_joints(self, groups: Any) -> Any:
        """Return the coordinates with the parameters of the stacked joints of a tree; absolute coordinates have none."""
        return self

    def axes_of_joints(self, groups: Any, axes: Any) -> Any:
        """Return the batch axes of `of_joints`, from the axes of the joints, -1 or None in place of each leaf."""
        return self

    def located(self, q: Coordinates) -> Any:
        """Returns where bodies are at q, in the form of these coordinates."""
        known = self.known
        return known.found if known is not None and known.q is q else self.plain.locate(q)

    @property
    def plain(self) -> Any:
        """The coordinates themselves, with nothing located."""
        return self if self.known is None else dataclasses.replace(self, known=None)  # pyright: ignore[reportArgumentType]

    @abc.abstractmethod
    def locate(self, q: Coordinates) -> Any:
        """Computes what `located` returns."""

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
    def at_rest(self, q: Coordinates) -> Kinematics:
        """Returns the frames of all bodies, for those who do not ask for twists."""

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
    def block_rows(self, q: Coordinates, motion: Kinematics, groups: Sequence[Terms]) -> JacobianOperator:
        """Returns the rows J_b T of several groups without forming zeros."""

    def term_rows(self, q: Coordinates, motion: Kinematics, terms: Terms) -> Jacobian:
        """Returns the rows of a group as an array."""
        rows: Any = 0.0
        for term in terms.on_bodies:
            rows = rows + self.dense_rows(q, motion, term.block, term.pair)
        for term in terms.on_velocities:
            seen = jnp.asarray(np.eye(len(self.velocity_names))[np.asarray(term.in_v, int)], q.dtype)
            rows = rows + term.entries[:, None] * seen
        return rows

    def group_rows(self, q: Coordinates, motion: Kinematics, groups: Sequence[Terms]) -> Jacobian:
        """Returns the rows of several groups as an array; of groups in a row that see two bodies and nothing else, all at once."""
        rows: list[Any] = [jnp.zeros((0, len(self.velocity_names)), q.dtype)]
        for of_two_bodies, some in itertools.groupby(groups, lambda terms: len(terms.on_bodies) == 1 and not terms.on_velocities):
            if of_two_bodies:
                parts = [(term.block, term.pair) for terms in some for term in terms.on_bodies]
                rows.append(self.joined_rows(q, motion, parts))
            else:
                rows += [self.term_rows(q, motion, terms) for terms in some]
        return jnp.concatenate(rows)

    def dense_group_rows(self, q: Coordinates, motion: Kinematics, groups: Sequence[Terms]) -> JacobianOperator:
        """Return the rows of several groups as a dense operator."""
        return DenseRows(self.group_rows(q, motion, groups))

    @abc.abstractmethod
    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Returns q (+) xi."""

    @abc.abstractmethod
    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Returns xi with q0 (+) xi = q1."""

    @abc.abstractmethod
    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity:
        """Returns xi' of q (+) xi(t) where it moves with velocity v; see `System.step_rate`."""

"""The contact problem: impulses of contacts, one-sided rows and dry friction, at one instant.

The velocities u of n rows depend on the impulses p by

    u = D p + b           D: Delassus matrix (n, n), symmetric, positive semidefinite
                          b: velocities without the impulses

The rows stand in three groups, in this order:

    m contacts            normal and tangents of each contact:   0 <= p_n  perp  u_n >= 0,
                          |p_t| <= mu p_n,   |u_t| p_t = -mu p_n u_t        (Signorini and Coulomb)
    k one-sided rows      0 <= p  perp  u >= 0                              (joint limits, stops, cables)
    f dry-friction rows   |p| <= bound,   |u| p = -bound u                  (dry friction in joints)

One law covers all groups. Every *normal* is a one-sided pair (p_n, u_n), and every *tangent* is a pair (p_t,
u_t) in a disc |p_t| <= rho that opposes the motion. The radius rho is mu p_n for contacts and `bound` for
dry-friction rows. One-sided rows have no tangent, and dry-friction rows have no normal.

The problem is independent of mechanics. In a mechanism, u are the velocities of the contact points in contact
axes, and D is the inverse effective mass in the space that the bilateral constraints leave free.

*Smoothing.* With `smoothing` kappa > 0 (J), complementarity is rounded (see `contact_problem.contact_law`).

References:
    V. Acary, B. Brogliato, "Numerical Methods for Nonsmooth Dynamical Systems", Springer (2008), chapters 3,
    10.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.linalg.small_matrix import diagonal
from jaxdae.typing import Leaf, Scalar


class RowGroups:
    """A vector of n rows in the three groups of the module."""

    tangents: int
    """Tangents per contact: 2 in space, 1 in the plane."""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of contacts m, one-sided rows k and dry-friction rows f."""
        raise NotImplementedError

    def normals(self, x: Array) -> Array:
        """Return the normal entries of a vector x (n,): of contacts, then of one-sided rows (m + k,)."""
        contacts, one_sided, _ = self.split(x)
        return jnp.concatenate([contacts[:, 0], one_sided])

    def discs(self, x: Array) -> Array:
        """Return the tangential entries of a vector x (n,): of contacts, then of dry rows (m + f, tangents).

        Dry-friction rows have one tangent; the others are zero.
        """
        contacts, _, dry = self.split(x)
        padding = ((0, 0), (0, self.tangents - 1))
        return jnp.concatenate([contacts[:, 1:], jnp.pad(dry[:, None], padding)])

    def join(self, normals: Array, discs: Array) -> Array:
        """Return the vector (n,) with the given normal (m + k,) and tangential entries (m + f, tangents)."""
        contacts = self.sizes[0]
        block = jnp.concatenate([normals[:contacts, None], discs[:contacts]], axis=1)
        return jnp.concatenate([block.reshape(-1), normals[contacts:], discs[contacts:, 0]])

    def split(self, x: Array) -> tuple[Array, Array, Array]:
        """Return the rows of contacts (m, 1 + tangents), one-sided rows (k,) and dry-friction rows (f,)."""
        contacts, one_sided, _ = self.sizes
        rows = contacts * (1 + self.tangents)
        return (
            x[:rows].reshape(contacts, 1 + self.tangents),
            x[rows : rows + one_sided],
            x[rows + one_sided :],
        )


@pytree
class ContactProblem(RowGroups):
    """Impulses p with u = D p + b that satisfy the contact law; see the module for the groups of rows.

    Attributes:
        delassus: D (n, n), in m/s per N s. Symmetric and positive semidefinite.
        velocity: b (n,), in m/s.
        friction: mu (m,), non-negative.
        bound: largest impulse of each dry-friction row (f,), in N s, non-negative; None for no such rows.
        smoothing: kappa (), in J, positive; None for the exact law.
        tangents: tangents per contact: 2 in space, 1 in the plane.
    """

    delassus: Leaf
    velocity: Leaf
    friction: Leaf
    bound: Leaf = None
    smoothing: Leaf = None
    tangents: int = static(default=2)

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield self.friction >= 0, "friction must be non-negative"
        yield self.bound is None or self.bound >= 0, "bound must be non-negative"
        yield (
            self.smoothing is None or self.smoothing > 0,
            "smoothing must be positive, or None for the exact law",
        )

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of contacts m, one-sided rows k and dry-friction rows f."""
        contacts = self.friction.shape[0]
        dry = 0 if self.bound is None else self.bound.shape[0]
        return contacts, self.velocity.shape[0] - contacts * (1 + self.tangents) - dry, dry

    def velocities(self, p: Array) -> Array:
        """Return u = D p + b (n,)."""
        return self.delassus @ p + self.velocity

    def radii(self, normals: Array) -> Array:
        """Return the radius rho of each disc (m + f,): mu p_n, or the bound."""
        radii = self.friction * normals[: self.sizes[0]]
        return radii if self.bound is None else jnp.concatenate([radii, self.bound])

    def default_compliance(self) -> Array:
        """Return sqrt(eps) times the mean diagonal entry of D per contact (n,), in m/s per N s."""
        return float(jnp.finfo(self.delassus.dtype).eps) ** 0.5 * self._mean_diagonal()

    def scales(self) -> tuple[Array, Scalar]:
        """Return the factors s (n,) and the size of the velocities () that normalize the problem.

        S D S has blocks of trace 1 + tangents, with one factor per contact, so that friction cones remain
        circular. The size is the largest entry of S b over contacts and one-sided rows that approach, and
        over dry-friction rows. With smoothing, it is max |S b|, or sqrt(kappa) where that is larger.
        """
        factors = self._factors()
        velocity = factors * self.velocity
        largest = jnp.max(jnp.abs(velocity), initial=0.0)
        if self.smoothing is not None:
            return factors, jnp.sqrt(largest**2 + self.smoothing)
        approaches = self.normals(velocity) < 0.0
        acting = self.taking_part(approaches)
        size = jnp.max(jnp.where(acting, jnp.abs(velocity), 0.0), initial=0.0)
        # Velocities of approach that are rounding errors of the others do not set the scale.
        size = jnp.maximum(size, 100.0 * float(jnp.finfo(velocity.dtype).eps) ** 0.5 * largest)
        return factors, jnp.where(size == 0.0, 1.0, size)

    def scaled(self, factors: Array, size: Scalar) -> ContactProblem:
        """Return the problem in p / (s size) and s u / size, for the result of `scales`."""
        dry = self.sizes[2]
        return dataclasses.replace(
            self,
            delassus=factors[:, None] * self.delassus * factors,
            velocity=factors * self.velocity / size,
            bound=None if self.bound is None else self.bound / (factors[len(factors) - dry :] * size),
            smoothing=None if self.smoothing is None else self.smoothing / size**2,
        )

    def masked(self, active: Array) -> ContactProblem:
        """Return the problem without some contacts and one-sided rows; their impulses are exactly zero.

        Inactive rows have a unit block of D, and separate with the largest scaled velocity of the problem, so
        that they do not set the size in `scales`. A guess must be zero in these rows; see `taking_part`.

        Args:
            active: (m + k,), boolean: whether the contact or one-sided row takes part.
        """
        out = ~self.taking_part(active)
        separates = self.join(jnp.ones_like(active), jnp.zeros_like(self.discs(self.velocity), bool))
        velocity: Any = jnp.where(out, 0.0, self._factors() * self.velocity)
        largest = jax.lax.stop_gradient(jnp.max(jnp.abs(velocity), initial=0.0))
        away: Any = jnp.where(separates, jnp.where(largest == 0.0, 1.0, largest), 0.0)
        unit = jnp.eye(out.shape[0], dtype=self.delassus.dtype)
        return dataclasses.replace(
            self,
            delassus=jnp.where(out[:, None] | out, unit, self.delassus),
            velocity=jnp.where(out, away, self.velocity),
        )

    def taking_part(self, active: Array) -> Array:
        """Return whether each row takes part (n,): rows of active contacts, and dry-friction rows.

        Args:
            active: (m + k,), boolean: whether the contact or one-sided row takes part.
        """
        discs = jnp.pad(active[: self.sizes[0]], (0, self.sizes[2]), constant_values=True)
        return self.join(active, jnp.broadcast_to(discs[:, None], (discs.shape[0], self.tangents)))

    def _factors(self) -> Array:
        """Return s (n,); S D S has blocks of trace 1 + tangents."""
        mean = self._mean_diagonal()
        return 1.0 / jnp.sqrt(jnp.where(mean == 0.0, 1.0, mean))

    def _mean_diagonal(self) -> Array:
        """Return the mean diagonal entry of D per contact, and the entry itself for single rows (n,)."""
        contacts, one_sided, dry = self.split(diagonal(self.delassus))
        mean = jnp.broadcast_to(jnp.mean(contacts, axis=1, keepdims=True), contacts.shape)
        return jnp.concatenate([mean.reshape(-1), one_sided, dry])


class ContactSolver(Protocol):
    """A method for contact problems: a stateless pytree with a largest number of iterations.

    Apply it with `contact_problem.solve`, which adds the compliance, scales the problem and defines the
    derivative. The iterations are never differentiated.
    """

    def solve(self, problem: ContactProblem, guess: Array) -> tuple[Array, Scalar]:
        """Return impulses p (n,) and their residual (), for a scaled problem and a guess (n,)."""
        ...


def better(first: tuple[Array, Scalar], second: tuple[Array, Scalar]) -> tuple[Array, Scalar]:
    """Return the pair (impulses, residual) with the smaller residual; any residual is smaller than NaN."""
    improved = (second[1] < first[1]) | jnp.isnan(first[1])
    return jnp.where(improved, second[0], first[0]), jnp.where(improved, second[1], first[1])

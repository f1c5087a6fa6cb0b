"""Sliding friction along constraint rows that are off, with the normal force from the multipliers of others.

Contact k slides in the direction sigma_k = sign(c_k) of its slip velocity c_k = J_k v + b_k. Coulomb's law
gives the force

    s_k = -sigma_k (bound_k + mu_k N_k)           along the slip row k: the generalized force is J_k^T s_k

with the multiplier N_k of the active row that supports the contact. N depends on s. Let lam_0 be the
multipliers without friction, and let the columns of Z be the multipliers due to the forces J_k^T alone. Then
lam = lam_0 + Z s, and the rows of Z that support the contacts, Z_n, give

    A N = lam_0,n - Z_n (sigma bound),            A = I + Z_n diag(sigma mu).

One factorization of the saddle-point matrix provides lam_0 and Z. For one contact and no other rows,
Z_n = -D_nt / D_nn with the Delassus matrix D, so that A = (D_nn - sigma mu D_nt) / D_nn: the matrix
W_N^T M^-1 (W_N - sigma mu W_T) of Pfeiffer and Glocker, divided by D_nn. Where A or its determinant is not
positive (Painleve), the law has no solution or several.

References:
    F. Pfeiffer, C. Glocker, "Multibody Dynamics with Unilateral Contacts", Wiley (1996), chapter 5. F.
    Genot, B. Brogliato, "New results on Painleve paradoxes", Eur. J. Mech. A 18 (1999).
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.saddle_point.derivative import solve
from jaxdae.systems.evaluation import WrappedEvaluation
from jaxdae.systems.linearization import linearize_at
from jaxdae.systems.masks import Masked
from jaxdae.systems.system import State
from jaxdae.systems.wrapper import Wrapper
from jaxdae.typing import Input, Leaf, Rows, Velocity


@pytree
class _SlidingEvaluation(WrappedEvaluation):
    """The terms of a `SlidingRows` system."""

    def force(self, u: Input = None) -> Velocity:
        """Return f with the friction forces."""
        at, slip, (responses, matrix) = self.linearized()
        f, friction = self.inner.force(u), self.system
        lam = solve(at.factors, at.mass, at.jacobian, at.compliance, f, -self.inner.bias)[1]
        right = friction.supporting(lam) - responses @ (friction.direction * friction.bound)
        return f + slip.T @ friction.forces(jnp.linalg.solve(matrix, right))

    def linearized(self) -> tuple[Any, Array, tuple[Array, Array]]:
        """Return the linearization without friction, the slip rows (m, nv), and Z_n and A (m, m)."""
        at, friction = linearize_at(self.inner, self.system.solver), self.system
        slip = self.inner.inner.jacobian.as_dense()[jnp.asarray(friction.slip)]
        none = jnp.zeros((at.jacobian.shape[0],), slip.dtype)

        def multipliers(force: Array) -> Array:
            lam = solve(at.factors, at.mass, at.jacobian, at.compliance, force, none)[1]
            return friction.supporting(lam)

        responses = jax.vmap(multipliers, out_axes=1)(slip)
        matrix = jnp.eye(len(slip), dtype=slip.dtype) + responses * (friction.direction * friction.friction)
        return at, slip, (responses, matrix)


@pytree
class SlidingRows(Wrapper):
    """A `Masked` system with friction along m of its inactive rows; see the module.

    Attributes:
        system: the system with the active rows.
        direction: sigma (m,): the sign of the slip velocity, 0 for contacts that do not slide.
        friction: mu (m,).
        bound: the part of the friction force that does not depend on the normal force (m,).
        solver: a saddle-point solver; None for the default solver of the system.
        slip: the slip row of each contact.
        normal: the row that supports each contact; None for dry friction without normal force.
    """

    evaluation: ClassVar[type[WrappedEvaluation]] = _SlidingEvaluation
    system: Masked
    direction: Leaf
    friction: Leaf
    bound: Leaf
    solver: Leaf
    slip: tuple[int, ...] = static()
    normal: tuple[int | None, ...] = static()

    def supporting(self, lam: Rows) -> Array:
        """Return the normal force of each contact (m,), zero for dry friction without normal force."""
        return jnp.stack([jnp.zeros((), lam.dtype) if n is None else lam[n] for n in self.normal])

    def is_jammed(self, state: State) -> Array:
        """Return whether A has a diagonal entry or a determinant that is not positive ()."""
        still, at = jax.lax.stop_gradient((self, state))
        matrix = _SlidingEvaluation(
            still, at.t, at.q, at.v, still.system.evaluate(at.t, at.q, at.v)
        ).linearized()[2][1]
        return jnp.any(jnp.diagonal(matrix) <= 0.0) | (jnp.linalg.det(matrix) <= 0.0)

    def forces(self, normal: Array) -> Array:
        """Return the friction forces s (m,) for the normal forces N (m,)."""
        return -self.direction * (self.bound + self.friction * normal)

    def completed(self, lam: Rows) -> Rows:
        """Return the multipliers (nc,) with the friction forces in the slip rows."""
        return lam.at[jnp.asarray(self.slip)].add(self.forces(self.supporting(lam)))

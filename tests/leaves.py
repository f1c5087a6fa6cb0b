"""Sensitivity of everything that a mechanism computes to each of its leaves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae as jd
from jaxdae import mechanisms as jm


def outputs(mechanism: Any, state: jd.State, u: Any) -> list[Any]:
    """Return all terms of the equation, energies, frames and the loads in the joints."""
    t, q, v = state.t, state.q, state.v
    lam = jnp.linspace(1.0, 2.0, mechanism.constraint_bias(t, q, v).shape[0])
    return [
        mechanism.mass_matrix(q),
        mechanism.force(t, q, v, u),
        mechanism.constraint(t, q),
        mechanism.velocity_constraint(t, q, v),
        mechanism.constraint_bias(t, q, v),
        mechanism.potential_energy(t, q),
        mechanism.kinetic_energy(q, v),
        list(mechanism.frames(q)),
        jax.tree.leaves(jm.reactions(mechanism, state, lam, u)),
    ]


def dead_leaves(mechanism: Any, state: jd.State, u: Any = None) -> list[str]:
    """Return the paths of leaves to which no output is sensitive, neither in its derivative nor for a finite change."""

    def flat(some: Any) -> Any:
        return jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(outputs(some, state, u))])

    derivative = jax.jit(jax.jacrev(flat))(mechanism)
    quiet = [
        path
        for path, rows in zip(jd.leaf_paths(mechanism), jax.tree.leaves(derivative), strict=True)
        if not np.any(np.abs(np.asarray(rows)) > 1e-9)
    ]
    return quiet

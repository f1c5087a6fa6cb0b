"""Sensitivity of everything that a mechanism computes to each of its leaves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae as jd
from jaxdae import mechanisms as jm


def dead_leaves(mechanism: Any, state: jd.State, u: Any = None) -> list[str]:
    """Return the paths of leaves that change neither a term of the equation, an energy, a frame, a load, nor the status."""

    @jax.jit
    def outputs(some: Any) -> Any:
        t, q, v = state.t, state.q, state.v
        lam = jnp.linspace(1.0, 2.0, some.constraint_bias(t, q, v).shape[0])
        found = [
            some.mass_matrix(q),
            some.force(t, q, v, u),
            some.constraint(t, q),
            some.velocity_constraint(t, q, v),
            some.constraint_bias(t, q, v),
            some.potential_energy(t, q),
            some.kinetic_energy(q, v),
            list(some.frames(q)),
            jax.tree.leaves(jm.reactions(some, state, lam, u)),
            () if (status := some.condition(t, q)) is None else status.astype(float),
        ]
        return jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(found)])

    before, dead = np.asarray(outputs(mechanism)), []
    rng = np.random.default_rng(5)
    for path in jd.leaf_paths(mechanism):
        leaf = np.asarray(jd.get_leaf(mechanism, path))
        # Small changes first, then values at which limits act.
        for changed in (leaf + 0.1 * rng.normal(size=leaf.shape), 0.0 * np.nan_to_num(leaf), -np.nan_to_num(leaf) - 1.0):
            after = np.asarray(outputs(jd.set_leaf(mechanism, path, jnp.asarray(changed))))
            if not np.allclose(after, before, rtol=1e-9, atol=1e-12, equal_nan=True):
                break
        else:
            dead.append(path)
    return dead

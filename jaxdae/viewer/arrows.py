"""Arrows over time: what joints do to their bodies, and what is applied to bodies.

Reactions are forces on the body b of a joint, at its place there, from the multipliers; of a body's applied forces, its weight among them,
the sum acts at the mass center. Torques are not drawn.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.mechanisms import Mechanism, reactions
from jaxdae.system import State
from jaxdae.viewer import colors
from jaxdae.viewer.elements import drawn, placed_bodies, places_in_bodies
from jaxdae.viewer.outline import placed


@dataclasses.dataclass(frozen=True)
class Arrows:
    """Vectors of one kind, of world 0.

    Attributes:
        name: "reactions" or "forces".
        labels: what each of them is, (n,).
        starts: (time, n, 3) in m.
        vectors: (time, n, 3) in N.
        color: 0 to 255 each.
    """

    name: str
    labels: tuple[str, ...]
    starts: np.ndarray
    vectors: np.ndarray
    color: tuple[int, int, int]

    @property
    def largest(self) -> float:
        """The length in N to which the others are seen: all but the largest hundredth are below."""
        lengths = np.linalg.norm(self.vectors, axis=-1)
        lengths = lengths[np.isfinite(lengths)]
        return float(np.quantile(lengths, 0.99)) if lengths.size and lengths.max() > 0.0 else 0.0


def reaction_arrows(mechanism: Mechanism, state: State, lam: Any, poses: np.ndarray, controls: Any = None) -> Arrows:
    """Returns the reactions of all joints of one world.

    Args:
        mechanism: in either form of coordinates.
        state: stacked along (time,).
        lam: (time, nc) the multipliers.
        poses: (time, body, 7) of the bodies that have a place, in space.
        controls: (time, nu) the inputs at these instants; None where there are none.
    """
    state = jax.tree.map(jnp.asarray, state)
    found = jax.jit(jax.vmap(functools.partial(reactions, mechanism)))(state, jnp.asarray(lam), controls)
    joints = {joint.name: joint for joint in drawn(mechanism).joints}
    bodies = placed_bodies(mechanism)
    shown, starts = [], []
    for k, name in enumerate(found.names):
        joint = joints[name]
        if joint.b in bodies:
            point = places_in_bodies(joint).get("b", np.zeros(3))
            local = np.concatenate([point, np.zeros(3 - len(point))])
            starts.append(placed(poses[:, bodies.index(joint.b)], local))
            shown.append(k)
    vectors = _in_space(np.asarray(found.force)[:, shown])
    return Arrows("reactions", tuple(found.names[k] for k in shown), _stacked(starts, vectors), vectors, colors.REACTION)


def force_arrows(mechanism: Mechanism, state: State, poses: np.ndarray, controls: Any = None) -> Arrows:
    """Returns the applied forces on all bodies of one world, weights among them; see `reaction_arrows`."""

    def of(s: State, u: Any) -> Any:
        motion = mechanism.coordinates.kinematics(s.q, s.v)
        total = mechanism.applied(s.t, s.q, s.v, u, motion)
        if motion.bias is not None:
            # What constant v takes is no force that is applied.
            taken = mechanism.space.inertial(mechanism.mass, mechanism.inertia, motion.bias)
            total = jax.tree.map(jnp.add, total, taken)
        return jnp.stack(tuple(total)[: mechanism.space.dimension], axis=-1)

    bodies = placed_bodies(mechanism)
    vectors = _in_space(np.asarray(jax.jit(jax.vmap(of))(jax.tree.map(jnp.asarray, state), controls))[:, : len(bodies)])
    starts = [poses[:, k, :3] for k in range(len(bodies))]
    return Arrows("forces", bodies, _stacked(starts, vectors), vectors, colors.FORCE)


def _in_space(vectors: np.ndarray) -> np.ndarray:
    missing = 3 - vectors.shape[-1]
    return np.concatenate([vectors, np.zeros((*vectors.shape[:-1], missing))], axis=-1) if missing else vectors


def _stacked(starts: list[np.ndarray], vectors: np.ndarray) -> np.ndarray:
    return np.stack(starts, axis=1) if starts else np.zeros_like(vectors)

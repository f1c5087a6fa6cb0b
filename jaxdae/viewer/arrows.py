"""Arrows over time for joint reactions, applied forces and contact forces.

Reactions are the constraint forces on body b of a joint, at the joint, from the multipliers. The sum of the
applied forces on a body, including its weight, acts at the mass center. Contact forces act on body b at the
contact. Torques are not drawn.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.geometry.pairs.contact_points import tangents
from jaxdae.mechanisms import Mechanism, Reactions, reactions
from jaxdae.systems.system import State
from jaxdae.viewer import colors
from jaxdae.viewer.drawn_elements import drawn, placed_bodies, places_in_bodies
from jaxdae.viewer.outline import placed


@dataclasses.dataclass(frozen=True)
class Arrows:
    """Vectors of one kind, for world 0.

    Attributes:
        name: "reactions", "forces" or "contacts".
        labels: the labels of the vectors, (n,).
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
        """The reference length of the arrows in N: the 99th percentile of the vector lengths."""
        lengths = np.linalg.norm(self.vectors, axis=-1)
        lengths = lengths[np.isfinite(lengths)]
        return float(np.quantile(lengths, 0.99)) if lengths.size and lengths.max() > 0.0 else 0.0


def reaction_arrows(
    mechanism: Mechanism,
    state: State,
    lam: Any,
    poses: np.ndarray,
    controls: Any = None,
    row_forces: Any = None,
) -> Arrows:
    """Return the reactions of all joints of one world.

    Args:
        mechanism: the mechanism, in absolute or joint coordinates.
        state: the states, stacked along (time,).
        lam: (time, nc) the multipliers.
        poses: (time, body, 7) the poses in space of all bodies except rotors.
        controls: (time, nu) the inputs at these instants; None without inputs.
        row_forces: (time, n) the forces of contacts, limits and dry friction; None without.
    """

    def of(state: State, lam: Any, u: Any, row_forces: Any) -> Reactions:
        return reactions(mechanism, state, lam, u, row_forces=row_forces)

    state = jax.tree.map(jnp.asarray, state)
    found = jax.jit(jax.vmap(of))(state, jnp.asarray(lam), controls, row_forces)
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
    return Arrows(
        "reactions", tuple(found.names[k] for k in shown), _stacked(starts, vectors), vectors, colors.REACTION
    )


def force_arrows(mechanism: Mechanism, state: State, poses: np.ndarray, controls: Any = None) -> Arrows:
    """Return the applied forces on all bodies of one world, including weights; see `reaction_arrows`."""

    def of(s: State, u: Any) -> Any:
        motion = mechanism.coordinates.kinematics(s.q, s.v)
        total = mechanism.evaluate_joints(s.t, s.q, s.v).applied(u)
        if motion.bias is not None:
            # The inertial force of the bias acceleration is not an applied force.
            taken = mechanism.space.inertial(mechanism.mass, mechanism.inertia, motion.bias)
            total = jax.tree.map(jnp.add, total, taken)
        return jnp.stack(tuple(total)[: mechanism.space.dimension], axis=-1)

    bodies = placed_bodies(mechanism)
    vectors = _in_space(
        np.asarray(jax.jit(jax.vmap(of))(jax.tree.map(jnp.asarray, state), controls))[:, : len(bodies)]
    )
    starts = [poses[:, k, :3] for k in range(len(bodies))]
    return Arrows("forces", bodies, _stacked(starts, vectors), vectors, colors.FORCE)


def contact_arrows(mechanism: Mechanism, state: State, force: Any) -> Arrows:
    """Return the contact forces of one world.

    Args:
        mechanism: the mechanism, in absolute or joint coordinates.
        state: the states, stacked along (time,).
        force: (time, m, 1 + tangents) the forces in the axes of the contacts in N, `ContactInfo.force`.
    """
    if mechanism.contacts is None:
        raise ValueError("the mechanism has no contacts")

    def of(s: State, force: Any) -> tuple[Any, Any]:
        found = mechanism.contacts.points(mechanism.coordinates.at_rest(s.q))
        axes = jax.vmap(lambda normal: jnp.stack([normal, *tangents(normal)]))(found.normal)
        return found.place, jnp.einsum("ca,cad->cd", force, axes)

    found = jax.jit(jax.vmap(of))(jax.tree.map(jnp.asarray, state), jnp.asarray(force))
    starts, vectors = (_in_space(np.asarray(x)) for x in found)
    return Arrows("contacts", mechanism.contacts.names, starts, vectors, colors.CONTACT)


def _in_space(vectors: np.ndarray) -> np.ndarray:
    missing = 3 - vectors.shape[-1]
    return (
        np.concatenate([vectors, np.zeros((*vectors.shape[:-1], missing))], axis=-1) if missing else vectors
    )


def _stacked(starts: list[np.ndarray], vectors: np.ndarray) -> np.ndarray:
    return np.stack(starts, axis=1) if starts else np.zeros_like(vectors)

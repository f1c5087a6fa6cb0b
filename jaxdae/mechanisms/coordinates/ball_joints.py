"""Retraction, difference and rates of tree coordinates with ball joints.

All other coordinates are additive.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.geometry.rotation import quat_difference, quat_retract, quat_velocity, rotation_vector_rate
from jaxdae.mechanisms.describe.links import Structure


def retracted(shape: Structure, q: Any, xi: Any) -> Any:
    """Return q (+) xi (nq,); quaternions keep length 1."""
    vectors_q, vectors_v, balls_q, balls_v = shape.vectors_and_balls
    return _joined(
        vectors_q, q[vectors_q] + xi[vectors_v], balls_q, jax.vmap(quat_retract)(q[balls_q], xi[balls_v])
    )


def difference(shape: Structure, q0: Any, q1: Any) -> Any:
    """Return xi (nv,) with q0 (+) xi = q1; rotations of ball joints are at most half a turn."""
    vectors_q, vectors_v, balls_q, balls_v = shape.vectors_and_balls
    return _joined(
        vectors_v, q1[vectors_q] - q0[vectors_q], balls_v, jax.vmap(quat_difference)(q0[balls_q], q1[balls_q])
    )


def step_rate(shape: Structure, xi: Any, v: Any) -> Any:
    """Return xi' (nv,) such that q (+) xi(t) moves with velocity v."""
    _, vectors_v, _, balls_v = shape.vectors_and_balls
    return _joined(vectors_v, v[vectors_v], balls_v, jax.vmap(rotation_vector_rate)(xi[balls_v], v[balls_v]))


def velocity_of(shape: Structure, q: Any, rate: Any) -> Any:
    """Return the velocities (nv,) for coordinate rates (nq,); rates along a quaternion have no effect."""
    vectors_q, vectors_v, balls_q, balls_v = shape.vectors_and_balls
    return _joined(vectors_v, rate[vectors_q], balls_v, jax.vmap(quat_velocity)(q[balls_q], rate[balls_q]))


def _joined(at_vectors: np.ndarray, vectors: Any, at_balls: np.ndarray, balls: Any) -> Any:
    """Interleave additive entries (k,) and entries of orientations (balls, size) in link order."""
    back = np.argsort(np.concatenate([at_vectors, at_balls.reshape(-1)]))
    return jnp.concatenate([vectors, balls.reshape(-1)])[back]

"""Derivatives of joints in closed form are those of what the joints measure."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.geometry.spatial_frames import Frame, Twist
from jaxdae.mechanisms.describe import measures
from jaxdae.mechanisms.joints.pair_rows import KNOWN
from jaxdae.mechanisms.joints.spatial_joints import SPATIAL_JOINTS

BODIES, JOINTS = 6, 5


class Group(NamedTuple):
    """What joints are made of, with axes that are no unit vectors: every entry of every derivative counts."""

    point_a: Any
    point_b: Any
    axes_a: Any
    axes_b: Any


def test_sides_of_all_known_rows_times_twists_are_rates():
    types = [kind for kind in SPATIAL_JOINTS if kind.residual in KNOWN]
    rng = np.random.default_rng(0)
    group = Group(*(rng.normal(size=(JOINTS, *size)) for size in ((3,), (3,), (3, 3), (3, 3))))
    pair = measures.Pairs(
        tuple(rng.integers(0, BODIES + 1, JOINTS).tolist()),
        tuple(rng.integers(0, BODIES, JOINTS).tolist()),
        BODIES,
    )
    quaternions = rng.normal(size=(4, BODIES))
    frames = Frame.of_pose(rng.normal(size=(3, BODIES)), quaternions / np.linalg.norm(quaternions, axis=0))
    twists = rng.normal(size=(6, BODIES))

    @jax.jit
    def compared(group, frames, twists):
        motion, t = measures.Kinematics(frames, Twist(*twists)), jnp.zeros(())
        moving = [jnp.pad(twists, ((0, 0), (0, 1)))[:, side] for side in pair.sides]
        found = []
        for kind in types:
            sides = kind.derivatives.sides(kind.residual, group, pair, motion, t)
            rates = sum(
                jnp.einsum("krd,dk->kr", side.reshape(JOINTS, -1, 6), along)
                for side, along in zip(sides, moving, strict=True)
            )
            found.append((rates, measures.rates(kind.residual, group, pair, motion, t)))
        return found

    for kind, (rates, expected) in zip(types, compared(group, frames, twists), strict=True):
        np.testing.assert_allclose(
            rates, expected, rtol=0, atol=1e-13 * np.max(np.abs(expected)), err_msg=kind.__name__
        )
    assert len(types) == 10

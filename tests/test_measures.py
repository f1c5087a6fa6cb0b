"""Rows of J are the derivatives of what joints measure: times the twists of both bodies, they give the rates."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdae.geometry.spatial_frames import Frame, Twist
from jaxdae.mechanisms import spatial as js
from jaxdae.mechanisms.describe import measures

BODIES, JOINTS = 6, 5
TYPES = (
    js.Revolute,
    js.Prismatic,
    js.Cylindrical,
    js.Universal,
    js.Ball,
    js.Planar,
    js.Weld,
    js.PointOnLine,
    js.PointOnPlane,
    js.ConstantVelocity,
)


class Group(NamedTuple):
    """What joints are made of, with axes that are no unit vectors: every entry of every derivative counts."""

    point_a: Any
    point_b: Any
    axes_a: Any
    axes_b: Any


@pytest.mark.long
def test_blocks_times_twists_are_rates():
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
        for kind in TYPES:
            block = measures.blocks(kind.residual, group, pair, motion, t)
            rates = sum(jnp.einsum("drk,dk->kr", *each) for each in zip(block, moving, strict=True))
            found.append((rates, measures.rates(kind.residual, group, pair, motion, t)))
        return found

    for kind, (rates, expected) in zip(TYPES, compared(group, frames, twists), strict=True):
        np.testing.assert_allclose(
            rates, expected, rtol=0, atol=1e-13 * np.max(np.abs(expected)), err_msg=kind.__name__
        )

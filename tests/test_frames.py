"""Frames of bodies: they take vectors as users write them."""

import jax.numpy as jnp
import numpy as np

from jaxdae.geometry import planar_frames, spatial_frames


def test_vectors_may_be_lists_of_numbers_and_of_arrays():
    flat = planar_frames.Frame.of_pose(*(jnp.asarray(x) for x in (1.0, 2.0, 0.5 * np.pi)))
    zero, one = jnp.asarray(0.0), jnp.asarray(1.0)
    for vector in ([1.0, 0.0], (one, zero), jnp.stack([one, zero])):
        np.testing.assert_allclose(flat.point(vector).array(), [1.0, 3.0], rtol=0, atol=1e-15)
        np.testing.assert_allclose(flat.components_of(vector), [0.0, -1.0], rtol=0, atol=1e-15)
    # A quarter turn about z.
    x, y, z = (
        spatial_frames.Vector(zero, one, zero),
        spatial_frames.Vector(-one, zero, zero),
        spatial_frames.Vector(zero, zero, one),
    )
    solid = spatial_frames.Frame.of_axes(spatial_frames.Vector(one, 2.0 * one, 3.0 * one), x, y, z)
    for vector in ([1.0, 0.0, 2.0], (one, zero, 2.0 * one), jnp.stack([one, zero, 2.0 * one])):
        np.testing.assert_allclose(solid.point(vector).array(), [1.0, 3.0, 5.0], rtol=0, atol=1e-15)
        np.testing.assert_allclose(solid.components_of(vector), [0.0, -1.0, 2.0], rtol=0, atol=1e-15)

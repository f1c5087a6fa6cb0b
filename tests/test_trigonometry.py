"""Cosine and sine against extended precision, at every quadrant and at the awkward angles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdae.geometry.trigonometry import cos_sin

# The largest error in units of the result's spacing near 1, and how far from zero it holds.
PRECISIONS = ((np.float64, np.longdouble, 1e6), (np.float32, np.float64, 1e4))
AWKWARD = np.array([0.0, -0.0, 1e-30, *(k * np.pi / 4 for k in range(-9, 10))])


@pytest.mark.parametrize(("precision", "exact", "largest"), PRECISIONS, ids=("double", "single"))
def test_values(precision, exact, largest):
    spread = np.random.default_rng(0).uniform(-1.0, 1.0, (3, 20_000)) * np.array([[1.0], [30.0], [largest]])
    angles = np.concatenate([AWKWARD, spread.ravel()]).astype(precision)
    results = jax.jit(cos_sin)(jnp.asarray(angles))
    for result, function in zip(results, (np.cos, np.sin), strict=True):
        assert result.dtype == precision
        # Half an ulp for rounding, one for the reduced angle and one for the sum.
        np.testing.assert_allclose(
            np.asarray(result).astype(exact),
            function(angles.astype(exact)),
            rtol=0.0,
            atol=1.25 * np.finfo(precision).eps,
        )


def test_small_angles_keep_their_relative_precision():
    angles = np.geomspace(1e-300, 1e-3, 50)
    np.testing.assert_allclose(cos_sin(jnp.asarray(angles))[1], np.sin(angles), rtol=3e-16)


def test_not_a_number():
    for result in cos_sin(jnp.array([jnp.nan, jnp.inf, -jnp.inf])):
        assert np.all(np.isnan(result))


def test_derivatives():
    angles = jnp.array([0.0, 0.3, 2.0, -4.0, 50.0])

    def both(x):
        return jnp.stack(cos_sin(x))

    def along(function):
        return jax.vmap(jax.jacfwd(function))(angles)

    np.testing.assert_allclose(
        along(both), np.stack([-np.sin(angles), np.cos(angles)], axis=1), rtol=0, atol=4e-16
    )
    np.testing.assert_allclose(jax.vmap(jax.jacrev(both))(angles), along(both), rtol=0, atol=0.0)
    np.testing.assert_allclose(along(jax.jacrev(both)), -both(angles).T, rtol=0, atol=4e-16)

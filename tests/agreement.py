"""Whether numbers agree to round-off, and what both forms of a mechanism have to agree in."""

import jax
import jax.numpy as jnp
import numpy as np

EPS = float(np.finfo(float).eps)


def close(found, expected, accuracy, least=1.0):
    """Asserts that errors are small, relative to the largest entry or to `least`: small entries are
    differences of large ones.

    Where the accuracy is infinite, nothing is promised but numbers.
    """
    if accuracy == np.inf:
        assert not np.any(np.isnan(np.asarray(found)))
        return
    scale = max(least, np.max(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=accuracy * scale)


def near(found, expected, factor=1.0):
    """Asserts that numbers of another program agree to round-off of the largest of them, times a condition
    number.
    """
    close(found, expected, 200.0 * EPS * factor, least=1e-3)


@jax.jit
def body_accelerations(mechanism, state, a):
    """Returns the accelerations of all bodies (bodies * (3 or 6),), as absolute coordinates have them, from
    those of coordinates (nv,).
    """
    motion = mechanism.coordinates.kinematics(state.q, state.v)
    rates = jax.tree.map(jnp.add, mechanism.coordinates.kinematics(state.q, a).velocity, motion.bias)
    return jnp.stack(rates, axis=-1).reshape(-1)


def accelerate_alike(absolute, joints, state, there, here):
    """Asserts that a mechanism in both forms has the same accelerations and multipliers.

    Args:
        absolute: in absolute coordinates.
        joints: in joint coordinates.
        state: in joint coordinates.
        there: (a, lam) in absolute coordinates.
        here: (a, lam) in joint coordinates.
    """
    rows = np.asarray([absolute.names.rows.index(name) for name in joints.names.rows])
    # Both solve linear equations, of condition 1e3 to 1e4 in mechanisms of a few bodies.
    for own, other in ((body_accelerations(joints, state, here[0]), there[0]), (here[1], there[1][rows])):
        np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-12 * float(jnp.abs(other).max()))

"""A sphere that rolls on a surface of any shape: in an upright pipe by its closed form, and on a plane as on
terrain.

With the radii R of the pipe and r of the sphere, rho = R - r, the inertia k m r^2, e_rho outward and phi the
angle about the axis of the pipe, no slip says rho phi' + r omega_z = 0 and z' = r omega_phi. Then phi' is
constant, omega_rho' = phi' z' / r, and

    (1 + k) z'' = -g - k r phi' omega_rho,        a harmonic motion of the frequency phi' sqrt(k / (1 + k)): the ball climbs again.

References:
    J. I. Neimark, N. A. Fufaev, "Dynamics of Nonholonomic Systems", AMS, 1972, chapter III (sphere in an
    upright cylinder).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae import vehicles as jv
from jaxdae.mechanisms import spatial as js

PIPE, BALL, MASS, K, G = 0.5, 0.06, 0.3, 0.4, 9.81
SPEED, RADIAL, RISE = 6.0, -3.0, 0.7  # phi', omega_rho and z' at the start
RHO = PIPE - BALL


@jd.tree.pytree
class Pipe:
    """The distance from the wall of an upright pipe, inside."""

    radius: float = PIPE

    def __call__(self, p):
        return self.radius - jnp.sqrt(p[0] ** 2 + p[1] ** 2)


@functools.cache
def rolling(coordinates, surface=Pipe(), at=(RHO, 0.0, 0.2)):
    ball = js.Body("ball", MASS, (K * MASS * BALL**2,) * 3, at)
    contact = js.SphereOnSurface("wall", "ground", "ball", surface, point_b=(0, 0, 0), radius=BALL)
    return jm.spatial_mechanism([ball], [contact], coordinates=coordinates)


def start(q):
    v = jnp.array([0.0, RHO * SPEED, RISE, RADIAL, RISE / BALL, -RHO * SPEED / BALL])
    return jd.State(jnp.asarray(0.0), q, v)


@pytest.mark.long
@pytest.mark.parametrize(
    "coordinates",
    [
        pytest.param(jm.Absolute(), id="absolute", marks=pytest.mark.exhaustive),
        pytest.param(jm.Joints(), id="joints"),
    ],
)
def test_a_ball_in_an_upright_pipe_is_pushed_as_its_closed_form_says(coordinates):
    mechanism, q = rolling(coordinates)
    state = start(q)
    a, lam = jd.forward_dynamics(mechanism, state)
    climbing = -(G + K * BALL * SPEED * RADIAL) / (1.0 + K)
    spin = jnp.array([SPEED * RISE / BALL, climbing / BALL, 0.0]) + jnp.array(
        [-SPEED * RISE / BALL, SPEED * RADIAL, 0.0]
    )
    # omega' in the world: the rates of its components about e_rho, e_phi and e_z, and the turn of these axes.
    expected = jnp.concatenate([jnp.array([-RHO * SPEED**2, 0.0, climbing]), spin])
    np.testing.assert_allclose(a, expected, rtol=1e-12, atol=1e-11)
    force, _ = jm.reactions(mechanism, state, lam).of("wall")
    np.testing.assert_allclose(
        force, MASS * (np.asarray(a[:3]) + np.array([0.0, 0.0, G])), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(lam[0], MASS * RHO * SPEED**2, rtol=1e-12)


@pytest.mark.exhaustive
def test_a_ball_climbs_in_an_upright_pipe():
    mechanism, q = rolling(jm.Absolute())
    trajectory = jd.rollout(
        mechanism, jd.Projected(jd.RungeKutta.rk4()), start(q), dt=5e-4, steps=2000, save_every=100
    )
    jd.raise_if_failed(trajectory)
    t, at = np.asarray(trajectory.state.t), np.asarray(trajectory.state.q)
    frequency = SPEED * np.sqrt(K / (1.0 + K))
    fall = (G + K * BALL * SPEED * RADIAL) / (1.0 + K) / frequency**2
    z = 0.2 - fall * (1.0 - np.cos(frequency * t)) + RISE / frequency * np.sin(frequency * t)
    # Errors of order four: 8.0e-6, 5.0e-7 and 3.1e-8 m after 1 s with steps of 2, 1 and 0.5 ms.
    np.testing.assert_allclose(at[:, 2], z, rtol=0, atol=5e-8)
    np.testing.assert_allclose(
        at[:, :2], RHO * np.stack([np.cos(SPEED * t), np.sin(SPEED * t)], axis=1), rtol=0, atol=5e-8
    )


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::jaxdae.StateWarning")
def test_on_a_plane_it_is_a_rolling_sphere():
    at, slope = (0.1, -0.2, 0.3), np.array([0.3, -0.2, 1.0])
    unit = slope / np.linalg.norm(slope)
    offset = (np.dot(unit, at) - BALL) / unit[2]
    mechanism, q = rolling(jm.Absolute(), lambda p: jnp.sum(jnp.asarray(unit) * p) - unit[2] * offset, at)
    ball = js.Body("ball", MASS, (K * MASS * BALL**2,) * 3, at)
    ground = jv.Plane(normal=slope, offset=offset)
    other, _ = jm.spatial_mechanism(
        [ball], [js.RollingSphere("wall", "ground", "ball", point_b=(0, 0, 0), radius=BALL, terrain=ground)]
    )
    state, info = jd.initialize(other, q, jnp.array([0.4, -0.3, 0.0, 1.0, 2.0, 0.5]))
    assert int(info.status) == jd.Status.OK
    (a, lam), (b, mu) = (jd.forward_dynamics(one, state) for one in (mechanism, other))
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(lam[0], mu[0], rtol=1e-12)
    np.testing.assert_allclose(jnp.linalg.norm(lam[1:]), jnp.linalg.norm(mu[1:]), rtol=1e-12)
    # Height and slip are of one joint, whose reaction is all that the ground does.
    for system, multipliers in ((mechanism, lam), (other, mu)):
        found = jm.reactions(system, state, multipliers)
        assert found.names == ("wall",)
        np.testing.assert_allclose(
            found.of("wall")[0], MASS * (np.asarray(a[:3]) + np.array([0.0, 0.0, G])), rtol=1e-12, atol=1e-12
        )
    assert float(jnp.max(jnp.abs(jax.jit(mechanism.velocity_constraint)(state.t, state.q, state.v)))) < 1e-14


def test_a_surface_that_returns_no_distance_is_a_mistake():
    with pytest.raises(
        ValueError, match=r"surface must return the distance from the surface.*length 0.88; divide"
    ):
        rolling(jm.Absolute(), lambda p: PIPE**2 - p[0] ** 2 - p[1] ** 2)

"""What ends a motion on terrain: its edge, two contacts, NaN; in one world of many, in single precision, and
with adaptive steps.
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


@jd.tree.pytree
class Pit(jv.Terrain):
    """Level ground that is known for |x| <= 2, with a pit at (-1.5, 0) that is narrower than a ball of radius 0.3: 0.3 h'' = 1.33."""

    def height(self, x, y):
        return -0.2 * jnp.exp(-((x + 1.5) ** 2 + y * y) / 0.09)

    def inside(self, x, y):
        return jnp.abs(x) <= 2.0


GROUND = Pit()


@functools.cache
def ball():
    joint = js.SlidingSphere("contact", "ground", "ball", point_b=(0, 0, 0), radius=0.3, terrain=GROUND)
    return jm.spatial_mechanism(
        [js.Body("ball", 1.0, (0.036,) * 3, (1.0, 0.0, 0.3))], [joint], gravity=(0.0, 0.0, -9.81)
    )


def start(x, vx):
    return jd.State(jnp.zeros(()), ball()[1].at[0].set(x), jnp.zeros(6).at[0].set(vx))


WORLDS = [(0.0, 0.5), (1.5, 2.0), (0.0, -3.5), (0.0, np.nan), (2.5, 0.0)]
EXPECTED = [
    jd.Status.OK,
    jd.Status.OFF_TERRAIN,
    jd.Status.TWO_CONTACTS,
    jd.Status.NONFINITE,
    jd.Status.OFF_TERRAIN,
]
METHOD = jd.SemiImplicitEuler(solver=jd.SchurComplement())


@functools.cache
def rolled(dtype):
    system = jax.tree.map(lambda x: x.astype(dtype), ball()[0])
    starts = jax.tree.map(lambda *x: jnp.stack(x).astype(dtype), *(start(*world) for world in WORLDS))
    run = functools.partial(jd.rollout, system, METHOD, dt=0.01, steps=50)
    return jax.jit(jax.vmap(run))(starts)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [jnp.float64, pytest.param(jnp.float32, marks=pytest.mark.exhaustive)])
def test_each_of_many_worlds_ends_for_its_own_reason(dtype):
    trajectory = rolled(dtype)
    assert trajectory.state.q.dtype == dtype
    assert list(trajectory.info.status[:, -1]) == EXPECTED
    x = np.array(trajectory.state.q[:, :, 0])
    # Worlds that ended stay at their last good place: on the map, and before the middle of the pit.
    np.testing.assert_allclose(x[0, -1], 0.25, rtol=0, atol=1e-6)
    ended = int(np.argmax(trajectory.info.status[1] != jd.Status.OK))
    assert x[1, -1] == x[1, ended] == x[1, ended - 1]
    np.testing.assert_allclose(x[1, -1], 2.0, rtol=0, atol=0.021)  # The way of one step.
    assert -1.5 < x[2, -1] < -1.2
    assert x[4, -1] == 2.5
    with pytest.raises(jd.SimulationError, match="OFF_TERRAIN"):
        jd.raise_if_failed(jax.tree.map(lambda x: x[1], trajectory.info))


@pytest.mark.exhaustive
def test_adaptive_rollouts_end_there_too():
    method = jd.diffrax.Adaptive(rtol=1e-8, atol=1e-8)
    times = jnp.linspace(0.1, 0.5, 5)
    run = jax.jit(jax.vmap(lambda state: jd.diffrax.adaptive_rollout(ball()[0], method, state, times=times)))
    trajectory = run(
        jax.tree.map(lambda *x: jnp.stack(x), start(0.0, 0.5), start(1.55, 2.0), start(1.95, 2.0))
    )
    off, fine = jd.Status.OFF_TERRAIN, jd.Status.OK
    assert trajectory.info.status.tolist() == [[fine] * 5, [fine] * 2 + [off] * 3, [off] * 5]
    np.testing.assert_allclose(trajectory.state.q[1, :, 0], [1.75, 1.95, 1.95, 1.95, 1.95], rtol=0, atol=1e-7)
    np.testing.assert_allclose(trajectory.state.q[2, :, 0], 1.95, rtol=0, atol=1e-7)


@pytest.mark.long
def test_a_start_beside_the_terrain_is_said_by_initialize():
    mechanism, q = ball()
    with pytest.raises(
        jd.SimulationError,
        match="OFF_TERRAIN: the constraints are closed, but a wheel is outside the terrain",
    ):
        jd.initialize(mechanism, q.at[0].set(2.5))
    assert jd.initialize(mechanism, q)[1].status == jd.Status.OK
    # In the pit with both faces near: closed, and touching twice.
    with pytest.raises(jd.SimulationError, match="TWO_CONTACTS"):
        jd.initialize(mechanism, q.at[0].set(-1.5).at[2].set(0.2))

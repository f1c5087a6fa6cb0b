"""Loads of tires that are multipliers of height rows, against load transfer in the plane; wheels that are
pulled at; mistakes.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
import jaxdae.mechanisms as jm
from jaxdae import vehicles as jv
from jaxdae.mechanisms import spatial as js

PLACES = {"front": (1.2, 0.1), "left": (-1.1, 0.7), "right": (-1.3, -0.6)}
# Locked wheels slip at many times their speed: so soft a brush sticks partly, and its force is not in
# proportion to the load.
LAW = {"stiffness": 20.0, "friction": 0.8, "load": 1.0}
YAW, RADIUS = 0.4, 0.3
TURN = np.array([[np.cos(YAW), -np.sin(YAW)], [np.sin(YAW), np.cos(YAW)]])
MOVING = TURN @ [8.0, 1.0]


def in_space(height, tire=js.BrushTire, wheel=js.SlidingDisc, **law):
    """Returns a tricycle whose locked wheels skid, and its state: it brakes, drifts to the left and turns."""
    turned = np.cos(0.5 * YAW), 0.0, 0.0, np.sin(0.5 * YAW)
    body = js.Body(
        "car",
        1000.0,
        (800.0, 900.0, 1500.0),
        jnp.stack([jnp.asarray(x) for x in (3.0, -2.0, height)]),
        turned,
    )
    wheels = [
        wheel(
            f"{name}_wheel",
            "ground",
            "car",
            (0, 1, 0),
            point_b=jnp.stack([jnp.asarray(x) for x in (*place, RADIUS - height)]),
            radius=RADIUS,
            terrain=jv.Plane(),
        )
        for name, place in PLACES.items()
    ]
    mechanism, q = jm.spatial_mechanism(
        [body], wheels, [tire(name=name, wheel=f"{name}_wheel", **law) for name in PLACES]
    )
    return mechanism, jd.State(jnp.zeros(()), q, jnp.array([*MOVING, 0.0, 0.0, 0.0, 0.3]))


@pytest.mark.long
def test_the_given_loads_are_no_leaves():
    mechanism, _ = in_space(0.5, **LAW)
    assert [path for path in jd.tree.leaf_paths(mechanism) if path.endswith("load")]
    assert not [path for path in jd.tree.leaf_paths(jv.HeightLoads(mechanism)) if path.endswith("load")]


def accelerated(friction, height):
    mechanism, state = in_space(height, **(LAW | {"friction": friction}))
    system = jv.HeightLoads(mechanism)
    return system.report(state), *jd.forward_dynamics(system, state)


@functools.cache
def compiled():
    return jax.jit(accelerated)


@pytest.mark.long
def test_on_level_ground_loads_are_those_of_load_transfer():
    report, a, lam = compiled()(0.8, 0.5)
    tires = [
        jm.BrushTire(name=name, body="car", axis=(1.0, 0.0), point=place, rim_speed=0.0, **LAW)
        for name, place in PLACES.items()
    ]
    flat, q = jm.planar_mechanism(
        [jm.Body("car", 1000.0, 1500.0, pose=(3.0, -2.0, YAW))], [], tires, gravity=(0.0, 0.0)
    )
    state = jd.State(jnp.zeros(()), q, jnp.array([*MOVING, 0.3]))
    expected, planar = jax.jit(lambda s: (s.report(state), jd.forward_dynamics(s, state)[0]))(
        jv.LoadTransfer(flat, 0.5)
    )
    assert report.names == tuple(PLACES)
    assert [int(report.status), int(expected.status)] == [jd.Status.OK] * 2
    np.testing.assert_allclose(report.load, expected.load, rtol=1e-11)
    np.testing.assert_allclose(np.array(a)[[0, 1, 5]], planar, rtol=1e-11)
    np.testing.assert_allclose(np.array(a)[2:5], 0.0, rtol=0, atol=1e-12)
    # What tires carry is what the ground pushes with, as far as the last correction was small.
    assert report.change < 1e-10
    np.testing.assert_allclose(lam, report.load, rtol=float(report.change) + 1e-13)


@pytest.mark.long
def test_accelerations_are_differentiable_through_the_loads():
    p, d = np.array([0.8, 0.5]), np.array([1.0, -0.5])
    slope = jax.jit(lambda p, d: jax.jvp(lambda p: accelerated(*p)[1], (p,), (d,))[1])(p, d)
    above, below = (np.array(compiled()(*(p + step * d))[1]) for step in (1e-5, -1e-5))
    np.testing.assert_allclose(slope, (above - below) / 2e-5, rtol=1e-7, atol=1e-8)


@pytest.mark.long
def test_wheels_that_are_pulled_at_are_named_and_have_no_force():
    report, _, lam = compiled()(0.8, 3.0)
    assert report.lifted()
    lifted = [name in report.lifted() for name in PLACES]
    np.testing.assert_array_equal(np.array(report.load)[lifted], 0.0)
    # The rows go on holding them.
    assert report.change < 1e-10
    np.testing.assert_allclose(np.array(lam)[lifted], -np.array(report.pull)[lifted], rtol=1e-10)
    np.testing.assert_allclose(jnp.sum(lam), 9810.0, rtol=1e-12)


def test_tires_without_a_wheel_that_slides_are_mistakes():
    with pytest.raises(ValueError, match=r"wheel must be a SlidingDisc.*is a RollingDisc"):
        in_space(0.5, wheel=js.RollingDisc, **LAW)
    lost = js.BrushTire(name="tire", wheel="right_whel", **LAW)
    with pytest.raises(ValueError, match=r"'right_whel', which is not a joint"):
        jm.spatial_mechanism([js.Body("car", 1.0, (1, 1, 1))], [], [lost])
    body, q = jm.spatial_mechanism([js.Body("car", 1.0, (1, 1, 1))], [])
    with pytest.raises(ValueError, match="HeightLoads needs tires on terrain"):
        jv.HeightLoads(body).loads(jd.State(jnp.zeros(()), q, jnp.zeros(6)))
    flat, _ = jm.planar_mechanism(
        [jm.Body("car", 1.0, 1.0)],
        [],
        [jm.BrushTire(name="t", body="car", axis=(1.0, 0.0), point=(0.0, 0.0), **LAW)],
        gravity=(0.0, 0.0),
    )
    with pytest.raises(ValueError, match="use LoadTransfer in the plane"):
        jv.HeightLoads(flat).loads(jd.State(jnp.zeros(()), jnp.zeros(3), jnp.zeros(3)))

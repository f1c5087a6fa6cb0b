"""The Whipple bicycle: published matrices, eigenvalues and speeds from the mechanism, and a published run."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from terrain_references import file

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae import vehicles as jv

MATRICES = ("M", "C1", "K0", "K2")


@functools.cache
def published():
    """Returns the linear equations with the published matrices."""
    given = file("whipple_linear")["reference"]
    return jv.LinearBicycle(*(jnp.asarray(given[name]) for name in MATRICES), jnp.asarray(9.81))


def assert_published(equations):
    """The eigenvalues and the critical speeds of linear equations are those of the file."""
    given = file("whipple_linear")["reference"]
    for entry in given["eigenvalues"]:
        expected = np.sort_complex([complex(*value) for value in entry["values"]])
        np.testing.assert_allclose(
            np.sort_complex(equations.eigenvalues(float(entry["v"]))), expected, rtol=0, atol=1e-11
        )
    speeds = equations.critical_speeds()
    assert set(speeds) == set(given["speeds"])
    np.testing.assert_allclose(
        [speeds[name] for name in speeds], [given["speeds"][name] for name in speeds], rtol=0, atol=1e-10
    )


@pytest.mark.long
def test_linear_equations_of_the_mechanism_are_the_published_ones():
    found = jv.linear_bicycle()
    for name in MATRICES:
        np.testing.assert_allclose(getattr(found, name), getattr(published(), name), rtol=0, atol=1e-12)
    assert_published(found)


def test_eigenvalues_and_critical_speeds_of_the_matrices():
    assert_published(published())


@functools.cache
def bicycle():
    return jm.mechanism(jv.whipple_bicycle(), jm.Joints())


def running(given):
    """Returns the published start: rolling at 4.6 m/s with a roll rate of 0.5 rad/s."""
    mechanism, q = bicycle()
    names = mechanism.names.velocities
    frame = given["initial_conditions"]["bodies_v"][6:12]
    wanted = dict(
        zip(
            ("vx", "vy", "vz", "omega_x", "omega_y", "omega_z"),
            [*frame[:1], -frame[1], -frame[2], *frame[3:]],
            strict=True,
        )
    )
    v = {f"frame.{name}": value for name, value in wanted.items()}
    v |= {
        "rear_hub.angle_rate": -given["initial_conditions"]["v"][7],
        "front_hub.angle_rate": -given["initial_conditions"]["v"][8],
    }
    return jd.State(jnp.zeros(()), q, jnp.array([v.get(name, 0.0) for name in names]))


@pytest.mark.long
def test_the_bicycle_stands_on_two_wheels_and_rolls_at_the_published_start():
    mechanism, _ = bicycle()
    state = running(file("whipple_trajectory"))
    np.testing.assert_allclose(mechanism.constraint(state.t, state.q), 0.0, rtol=0, atol=1e-15)
    np.testing.assert_allclose(mechanism.constraint_rate(state.t, state.q, state.v), 0.0, rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        mechanism.velocity_constraint(state.t, state.q, state.v), 0.0, rtol=0, atol=1e-14
    )


@pytest.mark.long
def test_a_published_run_to_its_digits():
    # Nine are promised; the two models of the reference agree to 2e-12.
    given = file("whipple_trajectory")
    mechanism, _ = bicycle()
    state, h = running(given), 5e-4
    method = jd.RungeKutta.rk4(solver=jd.DenseKKT())
    step = jax.jit(lambda s, state: method.step(s, state, (), None, h)[0])
    order = [mechanism.body_names.index(name) for name in ("rear_wheel", "frame", "fork", "front_wheel")]
    for expected in given["reference"]["states"][1:]:
        for _ in range(round(0.5 / h)):
            state = step(mechanism, state)
        frames, twists = mechanism.frames(state.q), mechanism.twists(state.q, state.v)
        # Half a turn about x from z down to z up.
        places = np.array(expected["bodies_q"]).reshape(4, 7)[:, :3] * [1.0, -1.0, -1.0]
        velocities = np.array(expected["bodies_v"]).reshape(4, 6)[:, :3] * [1.0, -1.0, -1.0]
        np.testing.assert_allclose(np.stack(frames[:3], axis=1)[order], places, rtol=0, atol=1e-11)
        w, x, y, z = (np.array(expected["bodies_q"]).reshape(4, 7)[:, 3:] * [1.0, 1.0, -1.0, -1.0]).T
        # The first and the last axis of the bodies.
        first = np.stack([1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y + w * z), 2.0 * (x * z - w * y)])
        last = np.stack([2.0 * (x * z + w * y), 2.0 * (y * z - w * x), 1.0 - 2.0 * (x * x + y * y)])
        np.testing.assert_allclose(
            np.stack([frames.r11, frames.r21, frames.r31])[:, order], first, rtol=0, atol=1e-11
        )
        np.testing.assert_allclose(
            np.stack([frames.r13, frames.r23, frames.r33])[:, order], last, rtol=0, atol=1e-11
        )
        np.testing.assert_allclose(np.stack(twists[:3], axis=1)[order], velocities, rtol=0, atol=1e-11)

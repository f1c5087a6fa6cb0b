"""The experiment of the string and the walker: its config, and both mechanisms in one compiled rollout of
1000 worlds.

The rollout runs the experiment's scene and law on bodies that are written by hand, which compile faster than
those of the config.
"""

import importlib.util
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae.app import load

ROOT = pathlib.Path(__file__).parents[2]
MASS, INERTIA, OFFSET, REACH = 10.0, 0.625, 0.25, 1.0
BALL, LENGTH, GRAVITY = 1.3, 0.8, 9.81
SLOPE = np.deg2rad(3.0)
# Rows: the string, the hip, the heights of the feet and their slip.
STRING, HEIGHTS, SLIPS = 0, slice(3, 5), slice(5, 7)


def experiment():
    spec = importlib.util.spec_from_file_location("experiment", ROOT / "experiments" / "switching.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ours = experiment()


@pytest.mark.long
def test_the_config_is_sound():
    config, worlds = load(str(ROOT / "configs" / "switching.yaml"), ("batch.size=3",))
    settings = ours.Settings.model_validate(config.experiment)
    mechanism, _, state = worlds.one()
    assert np.max(worlds.closed.violation) < 1e-14
    system, active, direction = ours.scene(settings, mechanism)
    rows = (*mechanism.row_names, "left.height", "right.height", "left.slip", "right.slip")
    assert [name for name, on in zip(rows, active, strict=True) if not on] == ["right.height", "right.slip"]
    assert [name for name, s in zip(rows, direction, strict=True) if s != 0.0] == ["string.length"]
    # The foot that stands is on the ground; start poses are rounded to 1e-5 m.
    feet = np.asarray(system.feet(state.q))
    np.testing.assert_allclose(feet[0, 1], 0.0, rtol=0, atol=2e-5)
    legs = ours.Legs.of(system)
    np.testing.assert_allclose([legs.offset, legs.length], [[OFFSET] * 2, [REACH] * 2], rtol=1e-15)


@jd.tree.pytree
class Bodies(jd.System):
    """A ball on a string and two legs with a common hip; q = (x, y, angle) of the ball and of both legs."""

    body_names: tuple[str, ...] = jd.tree.static(default=("ball", "left", "right"))

    def mass_matrix(self, q):
        return jnp.diag(jnp.array([BALL, BALL, 1.0, *[MASS, MASS, INERTIA] * 2]))

    def force(self, t, q, v, u):
        return -GRAVITY * jnp.array([0.0, BALL, 0.0, 0.0, MASS, 0.0, 0.0, MASS, 0.0])

    def constraint(self, t, q):
        x, y, angle = q.reshape(3, 3)[1:].T
        hips = jnp.stack([x - OFFSET * jnp.sin(angle), y + OFFSET * jnp.cos(angle)])
        return jnp.concatenate([(q[:2] @ q[:2] - LENGTH**2)[None] / (2 * LENGTH), hips[:, 0] - hips[:, 1]])

    def potential_energy(self, t, q):
        return GRAVITY * jnp.sum(jnp.array([BALL, MASS, MASS]) * q[1::3])


LEGS = ours.Legs(*(np.full(2, x) for x in (MASS, INERTIA, OFFSET, REACH)), np.array([0.0, -GRAVITY]))
WORLDS, DT, STEPS = 1000, 0.01, 100


def starts():
    """Returns balls thrown upward from the height of the pivot, and legs near the gait, the left one standing
    at the origin.
    """
    random = np.random.default_rng(0)
    angle = (
        np.array([0.27103, -0.27103]) - SLOPE + random.normal(0.0, 0.003, (WORLDS, 1)) * np.array([1.0, 0.0])
    )
    rate = np.array([-1.09238, -0.37737]) + random.normal(0.0, 0.01, (WORLDS, 2))
    speed = random.uniform(1.9, 4.5, WORLDS)
    hip, hip_velocity = -REACH * ours.outward(angle[:, 0]), -REACH * ours.along(angle[:, 0]) * rate[:, :1]
    q, v = np.zeros((WORLDS, 3, 3)), np.zeros((WORLDS, 3, 3))
    q[:, 0, 0], v[:, 0, 1] = LENGTH, speed
    q[:, 1:, :2], v[:, 1:, :2] = (
        hip[:, None] + OFFSET * ours.outward(angle),
        hip_velocity[:, None] + OFFSET * ours.along(angle) * rate[..., None],
    )
    q[:, 1:, 2], v[:, 1:, 2] = angle, rate
    return jd.State(
        jnp.zeros(WORLDS), jnp.asarray(q.reshape(WORLDS, 9)), jnp.asarray(v.reshape(WORLDS, 9))
    ), speed


@pytest.fixture(scope="module")
def walk() -> Any:
    """The start, the trajectory, and the speeds of the balls."""
    system = ours.Scene(
        mechanism=Bodies(),
        slope=jnp.asarray(SLOPE),
        points=jnp.array([[0.0, OFFSET - REACH]] * 2),
        bodies=(1, 2),
    )
    law = ours.Stride(jnp.array([-1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]), None, jnp.asarray(0.05))
    masked = jd.Masked(system, jnp.array([True, True, True, True, False, True, False]))
    state, speed = starts()
    run = jd.batch_rollout(
        masked,
        jd.switching.Switching(jd.Projected(jd.RungeKutta.rk4()), law, events=2),
        state,
        dt=DT,
        steps=STEPS,
    )
    jd.raise_if_failed(run)
    assert np.max(run.info.violation) < 1e-14
    assert np.max(run.info.velocity_violation) < 1e-13
    return state, run, speed


def body_energies(state):
    """Returns the energy of the ball and of the legs."""
    q, v = (np.asarray(x).reshape(*x.shape[:-1], 3, 3) for x in (state.q, state.v))
    mass, inertia = np.array([BALL, MASS, MASS]), np.array([0.0, INERTIA, INERTIA])
    energy = (
        mass * (np.sum(v[..., :2] ** 2, axis=-1) / 2 + GRAVITY * q[..., 1]) + inertia * v[..., 2] ** 2 / 2
    )
    return energy[..., 0], energy[..., 1] + energy[..., 2]


@pytest.mark.exhaustive
def test_the_strings_jerk_as_they_should(walk):
    """Thrown upward from the height of the pivot: slack at cos phi = -v^2 / (3 g L), phi from below."""
    _, run, speed = walk
    phi = np.arccos(-(speed**2) / (3 * GRAVITY * LENGTH))
    v = np.sqrt(-GRAVITY * LENGTH * np.cos(phi))[:, None] * ours.along(phi)
    flight = 4 * v[:, 1:] / GRAVITY
    fall = np.array([0.0, GRAVITY])
    radial = (
        np.sum((v - fall * flight) * (LENGTH * ours.outward(phi) + v * flight - fall * flight**2 / 2), axis=1)
        / LENGTH
    )
    impulse, switched = (np.asarray(x)[..., STRING] for x in (run.info.impulse, run.info.switched))
    worlds, entry = np.arange(WORLDS), np.argmax(impulse != 0.0, axis=1)
    slack = np.asarray(run.info.active)[worlds, entry - 1, STRING]
    assert not np.any(slack)
    # RK4 and Hermite's cubic at (h omega)^4 = 1e-5 with omega = v / L up to 6/s, over 24 and more, for
    # impulses up to 7 N s.
    np.testing.assert_allclose(impulse[worlds, entry], -BALL * radial, rtol=0.0, atol=1e-5)
    # The release is located to second order, 1e-4 s, and known when the string is taut again.
    np.testing.assert_allclose(
        switched[worlds, entry] - switched[worlds, entry - 1], flight[:, 0], rtol=0.0, atol=2e-4
    )
    energy, _ = body_energies(run.state)
    np.testing.assert_allclose(
        energy[worlds, entry - 1] - energy[worlds, entry], BALL * radial**2 / 2, rtol=0.0, atol=2e-5
    )
    np.testing.assert_allclose(energy[worlds, entry - 1], BALL * speed**2 / 2, rtol=0.0, atol=2e-5)
    assert len(np.unique(np.round(switched[worlds, entry], 5))) > WORLDS / 2


@pytest.mark.exhaustive
def test_the_feet_strike_as_they_should(walk):
    """The impulse on the foot and the energy lost are those of the angular momenta, from the angles of the
    entry before.
    """
    state, run, _ = walk
    active, impulse, switched = (
        np.asarray(x) for x in (run.info.active, run.info.impulse, run.info.switched)
    )
    np.testing.assert_array_equal(active[..., HEIGHTS], active[..., SLIPS])
    np.testing.assert_array_equal(active[..., 3] ^ active[..., 4], True)
    # One stride in this time: the right foot strikes, the left one is released.
    strikes = np.diff(active[..., 4].astype(int), axis=1)
    np.testing.assert_array_equal(np.sum(strikes != 0, axis=1), 1)
    worlds, entry = np.arange(WORLDS), np.argmax(strikes, axis=1)
    jump = (impulse[:, 1:] - impulse[:, :-1])[worlds, entry]
    # Round-off from the jerk of the string, where that falls into the same step.
    np.testing.assert_allclose(jump[:, [3, 5]], 0.0, rtol=0, atol=1e-13)
    before = jax.tree.map(lambda x: np.asarray(x)[worlds, entry], run.state)
    angle, rate = before.q[:, [5, 8]], before.v[:, [5, 8]]
    order = np.broadcast_to([0, 1], angle.shape)
    angle, rate = LEGS.moved(angle, rate, order, switched[worlds, entry + 1, 4] - before.t)
    up, down = np.array([np.sin(SLOPE), np.cos(SLOPE)]), np.array([np.cos(SLOPE), -np.sin(SLOPE)])
    # RK4 and Hermite's cubic with h omega = 0.03: (h omega)^4 / 24 = 3e-8 of strides of 0.5 m, impulses of 15
    # N s and energies of 150 J.
    ends = REACH * ours.outward(angle)
    np.testing.assert_allclose((ends[:, 1] - ends[:, 0]) @ up, 0.0, rtol=0, atol=2e-8)
    exact, lost = LEGS.struck(angle, rate, order)
    np.testing.assert_allclose(
        jump[:, [4, 6]], np.stack([exact @ up, exact @ down], axis=1), rtol=0.0, atol=1e-6
    )
    _, energy = body_energies(run.state)
    np.testing.assert_allclose(energy[worlds, entry] - energy[worlds, entry + 1], lost, rtol=0.0, atol=2e-6)
    np.testing.assert_allclose(energy[worlds, entry], body_energies(state)[1], rtol=0.0, atol=2e-6)
    assert len(np.unique(np.round(switched[:, -1, 4], 6))) > WORLDS / 2


@pytest.mark.exhaustive
def test_multipliers_and_energy(walk):
    state, run, _ = walk
    lam, active = np.asarray(run.info.lam)[:, 1:], np.asarray(run.info.active)[:, :-1]
    np.testing.assert_array_equal(lam[~active], 0.0)
    # The foot that stands is pushed, the string pulls.
    assert np.all(lam[..., HEIGHTS][active[..., HEIGHTS]] > 0.0)
    assert np.all(lam[..., STRING][active[..., STRING]] < 0.0)
    for first, energy in zip(body_energies(state), body_energies(run.state), strict=True):
        # Up to the error of RK4 in a step: (h omega)^5 / 120 with h omega up to 0.06 is 6e-9 of some 20 J.
        assert np.max(np.diff(np.concatenate([first[:, None], energy], axis=1), axis=1)) < 1e-6

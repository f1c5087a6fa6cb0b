"""Coulomb friction in `Switching`: transitions, impacts, derivatives, Painleve configurations, messages."""

import functools
import json
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from small_systems import central, without_typechecker

import jaxdae as jd
from jaxdae.switching import CoulombFriction, Switching

NAMES = ("m", "g", "k", "mu", "alpha")
FILES = pathlib.Path(__file__).parent / "reference" / "contact"
# Straight contacts stay closed without projections.
RK4 = jd.RungeKutta.rk4(unroll=False)
EXACT = jd.textbook.Taylor(jerk=False)  # for motions that are quadratic in time


def cases(name, *chosen):
    """Return the given cases of a reference."""
    found = {case["name"]: case for case in json.loads((FILES / f"{name}.json").read_text())["cases"]}
    return [found[case] for case in chosen]


def starts(selected, names):
    """Return parameters, coordinates and velocities, stacked over cases."""
    parameters = {name: jnp.asarray([case["parameters"][name] for case in selected]) for name in names}
    initial = [case["initial_conditions"] for case in selected]
    return parameters, *(jnp.asarray([x[name] for x in initial]) for name in ("q", "v"))


@jd.tree.pytree
class Slider(jd.System):
    """A mass on a spring along a slope: its distance from the slope, then its slip."""

    p: Any

    def mass_matrix(self, q):
        return self.p["m"] * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        p = self.p
        weight = p["m"] * p["g"] * jnp.stack([jnp.sin(p["alpha"]), -jnp.cos(p["alpha"])])
        return weight.at[0].add(-p["k"] * q[0])

    def constraint(self, t, q):
        return q[1:]

    def velocity_constraint(self, t, q, v):
        return v[:1]


def slides(p, q, v, dt, steps, method=RK4):
    """Return the trajectory of a mass that starts on the slope."""
    law = CoulombFriction(normal=(0,), slip=(1,), friction=p["mu"])
    system = jd.Masked(Slider(p), jnp.array([True, False]))
    state = jd.State(jnp.zeros(()), q, v)
    return jd.rollout(system, Switching(method, law), state, dt=dt, steps=steps)


@pytest.mark.long
def test_a_block_sticks_slides_and_turns_exactly():
    """All motions are quadratic in time; slip ends within a step."""
    names = ("rest_26_degrees", "rest_27_degrees", "kicked_up_stays", "kicked_up_returns")
    selected = cases("block_incline", *names)
    p, q, v = starts(selected, ("m", "g", "mu", "alpha"))
    run = jax.jit(jax.vmap(lambda p, q, v: slides({**p, "k": 0.0}, q, v, 0.05, 20, EXACT)))(p, q, v)
    np.testing.assert_array_equal(run.info.status, jd.Status.OK)
    for k, case in enumerate(selected):
        last = case["reference"]["states"][-1]
        np.testing.assert_allclose(run.state.q[k, -1], last["q"], rtol=0, atol=1e-14)
        np.testing.assert_allclose(run.state.v[k, -1], last["v"], rtol=0, atol=1e-14)
        sticks = last["mode"] == "t"
        np.testing.assert_array_equal(run.info.active[k, -1], [True, sticks])
        np.testing.assert_array_equal(run.info.sliding[k, -1], [0.0 if sticks else 1.0])
        force = [float(x) for x in last["forces_hp"]["slope"]]
        np.testing.assert_allclose(run.info.lam[k, -1], force, rtol=0, atol=1e-13)
        for event in case["reference"].get("events", []):
            np.testing.assert_allclose(run.info.switched[k, -1, 1], event["t"], rtol=0, atol=1e-14)


@jd.tree.pytree
class Ramp(Slider):
    """A mass that a force k t pulls along level ground."""

    def force(self, t, q, v, u):
        return jnp.stack([self.p["k"] * t, -self.p["m"] * self.p["g"]])


@pytest.mark.long
def test_slip_starts_where_a_force_from_zero_reaches_the_bound():
    # Friction is zero at the start, where its absolute value has no derivative: slip started 13 ms late.
    p = {"m": jnp.asarray(2.0), "g": jnp.asarray(10.0), "k": jnp.asarray(100.0)}
    law = CoulombFriction(normal=(0,), slip=(1,), friction=0.05)
    start = jd.State(jnp.zeros(()), jnp.zeros(2), jnp.zeros(2))
    run = jd.rollout(jd.Masked(Ramp(p), jnp.ones(2, bool)), Switching(RK4, law), start, dt=0.05, steps=1)
    np.testing.assert_allclose(run.info.switched[0, 1], 0.05 * 2.0 * 10.0 / 100.0, rtol=0, atol=1e-12)


@pytest.mark.long
def test_order_and_derivative_of_an_oscillator_that_comes_to_rest():
    (case,) = cases("coulomb_oscillator", "five_half_swings")
    p, q, v = jax.tree.map(lambda x: x[0], starts([case], NAMES))

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, 0, None))
    def after(z, direction, dt):
        def last(z):
            run = slides({**p, "mu": z[1], "k": z[2]}, q.at[0].set(z[0]), v, dt, 400)
            return run.state.q[-1, 0], (run.info.switched[-1, 1], run.info.status)

        return jax.jvp(last, (z,), (direction,), has_aux=True)

    z, exact, errors = jnp.stack([q[0], p["mu"], p["k"]]), case["reference"], []
    for dt in (0.01, 0.005):
        x, slope, (instant, status) = after(jnp.tile(z, (3, 1)), jnp.eye(3), dt)
        np.testing.assert_array_equal(status, jd.Status.OK)
        errors.append([x[0] - exact["states"][-1]["q"][0], instant[0] - exact["events"][-1]["t"]])
    ratios = np.abs(np.divide(*errors))
    # Rest positions have order five, because turning points are stationary. Instants have order four.
    assert 26.0 < ratios[0] < 38.0
    assert 13.0 < ratios[1] < 19.0
    # (h omega)^5 / 120 of 0.1 m, and (h omega)^4 / 384 of a period.
    assert np.all(np.abs(errors[1]) < [1e-8, 2e-7])
    derivatives = {x["by"]: x["value"] for x in case["derivatives"] if x["at_t"] == 2.0}
    np.testing.assert_allclose(slope, [derivatives[x] for x in ("x(t0)", "mu", "k")], rtol=1e-7)
    difference = central(lambda s: after(z * (1.0 + s * jnp.eye(3)), jnp.eye(3), 0.005)[0], 0.0, 1e-5)
    np.testing.assert_allclose(slope * z, difference, rtol=1e-7)


@pytest.mark.exhaustive
def test_a_pendulum_with_a_dry_joint():
    (case,) = cases("pendulum_dry_joint", "comes_to_rest")
    p, q, v = jax.tree.map(lambda x: x[0], starts([case], ("m", "l", "g", "tau0")))

    @jd.tree.pytree
    class Dry(jd.System):
        p: Any

        def mass_matrix(self, q):
            return (self.p["m"] * self.p["l"] ** 2).reshape(1, 1)

        def force(self, t, q, v, u):
            return -self.p["m"] * self.p["g"] * self.p["l"] * jnp.sin(q)

        def velocity_constraint(self, t, q, v):
            return v

    law = CoulombFriction(normal=(None,), slip=(0,), bound=p["tau0"])
    method = Switching(RK4, law)
    run = jd.rollout(
        jd.Masked(Dry(p), jnp.array([False])), method, jd.State(jnp.zeros(()), q, v), dt=0.015, steps=400
    )
    jd.raise_if_failed(run)
    # (h omega)^5 / 120 = 1e-8 of 1 rad in each of 9 swings.
    np.testing.assert_allclose(run.state.q[-1], case["reference"]["states"][-1]["q"], rtol=0, atol=1e-7)
    np.testing.assert_array_equal(run.state.v[-1], 0.0)
    np.testing.assert_array_equal(run.info.active[-1], True)


@jd.tree.pytree
class Rod(jd.System):
    """A rod above a floor: the gap of its lower end, then its slip velocity."""

    p: Any

    def mass_matrix(self, q):
        m, length = self.p["m"], self.p["L"]
        return jnp.diag(jnp.stack([m, m, m * length**2 / 12.0]))

    def force(self, t, q, v, u):
        return jnp.zeros_like(q).at[1].set(-self.p["m"] * self.p["g"])

    def constraint(self, t, q):
        return (q[1] - self.p["L"] / 2.0 * jnp.sin(q[2]))[None]

    def velocity_constraint(self, t, q, v):
        return (v[0] + self.p["L"] / 2.0 * jnp.sin(q[2]) * v[2])[None]


def rod(p, active):
    law = CoulombFriction(normal=(0,), slip=(1,), friction=p["mu"], restitution=p["e"])
    return jd.Masked(Rod(p), active), law


def jams(mu, angle):
    """Return parameters, coordinates and velocities of a rod of 1 m whose lower end slides backward."""
    p = {"m": 1.0, "g": 9.81, "L": 1.0, "mu": mu, "e": 0.0}
    q, v = jnp.array([0.0, jnp.sin(angle) / 2.0, angle]), jnp.array([-1.0, 0.0, 0.0])
    return {name: jnp.asarray(x) for name, x in p.items()}, q, v


@pytest.mark.long
@all_cases(("mu", "angle"), [(1.2, 1.1), (2.0, 1.45), (2.0, 1.1)])
def test_normal_force_of_a_rod_that_slides(mu, angle):
    """Gap acceleration A N / m - g with A = 1 + 3 cos^2 - 3 mu sin cos; A < 0 is Painleve's paradox."""
    p, q, v = jams(mu, angle)
    system, law = rod(p, jnp.array([True, False]))
    at = jd.State(jnp.zeros(()), q, v)
    law, active = law.begun(system.system, at, system.active)
    np.testing.assert_array_equal(law.direction, [-1.0])
    sliding = law.sliding(jd.Masked(system.system, active), None)
    effective = 1.0 + 3.0 * np.cos(angle) ** 2 - 3.0 * mu * np.sin(angle) * np.cos(angle)
    assert bool(sliding.is_jammed(at)) == (effective < 0.0)
    if effective > 0.0:
        lam = jd.forward_dynamics(sliding, at)[1]
        np.testing.assert_allclose(lam[0], 9.81 / effective, rtol=1e-13)


@pytest.mark.long
@pytest.mark.parametrize("differentiated", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_impacts_of_a_rod_with_friction(differentiated):
    """The end sticks, slides on and slides back in an impact; a jammed rod stops with a status."""
    selected = cases("rod_on_floor", "sticks", "slides_on", "slides_back")
    p, q, v = starts(selected, ("m", "g", "L", "mu", "e"))
    times = [case["reference"]["states"][-1]["t"] for case in selected]
    # The last world is jammed from its start on.
    p, q, v = jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), (p, q, v), jams(2.0, 1.1))
    active = jnp.zeros((4, 2), bool).at[3, 0].set(True)

    def last(z, p, active, time):
        system, law = rod({**p, "e": z[6]}, active)
        state = jd.State(jnp.zeros(()), z[:3], z[3:6])
        run = jd.rollout(system, Switching(EXACT, law), state, dt=time / 20, steps=20)
        values = jnp.concatenate([run.state.q[-1], run.state.v[-1], run.info.impulse[-1]])
        return values, run.info.status

    z = jnp.concatenate([q, v, p["e"][:, None]], axis=1)
    given = p, active, jnp.asarray([*times, 0.1])
    values, status = jax.jit(jax.vmap(last))(z, *given)
    np.testing.assert_array_equal(status[:3], jd.Status.OK)
    np.testing.assert_array_equal(status[3], jd.Status.NOT_CONVERGED)
    np.testing.assert_array_equal(values[3, :6], z[3, :6])
    for k, case in enumerate(selected):
        end = case["reference"]["states"][-1]
        np.testing.assert_allclose(values[k, :6], [*end["q"], *end["v"]], rtol=0, atol=5e-14)
        wanted = case["reference"]["events"][0]["impulses_hp"]["end_B"]
        np.testing.assert_allclose(values[k, 6:], [float(x) for x in wanted], rtol=1e-13)
    if not differentiated:
        return

    @jax.jit
    @jax.vmap
    def derivative(z, direction, *given):
        return jax.jvp(lambda z: last(z, *given)[0], (z,), (direction,))[1]

    # Every world has two directions of derivatives.
    places = {"th(t0)": 2, "e": 6}
    worlds = jax.tree.map(lambda x: jnp.repeat(x, 2, axis=0), (z, *given))
    directions = jnp.tile(jnp.eye(7)[jnp.asarray([*places.values()])], (4, 1))
    slopes = derivative(worlds[0], directions, *worlds[1:]).reshape(4, 2, -1)
    for k, case in enumerate(selected):
        for entry in case["derivatives"]:
            if entry["of"] == "th_t" and entry["by"] in places:
                slope = slopes[k, [*places].index(entry["by"]), 5]
                np.testing.assert_allclose(slope, entry["value"], rtol=1e-12)


@pytest.mark.exhaustive
def test_hops_within_a_step_and_bounces_end_at_rest():
    """A hop of 4 ms, and a mass on a spring that bounces until it sticks where the spring holds it."""

    @jax.jit
    @jax.vmap
    def run(q, v, restitution, k):
        law = CoulombFriction(normal=(0,), slip=(1,), friction=0.5, restitution=restitution)
        p = {"m": jnp.ones(()), "g": jnp.asarray(9.81), "k": k, "alpha": jnp.zeros(())}
        system = jd.Masked(Slider(p), jnp.zeros(2, bool))
        return jd.rollout(system, Switching(RK4, law), jd.State(0.0, q, v), dt=5e-3, steps=400)

    q, v = jnp.array([[0.0, 0.0], [0.3, 0.01]]), jnp.array([[0.0, 0.02], [0.0, 0.0]])
    found = run(q, v, jnp.array([0.5, 0.3]), jnp.array([0.0, 10.0]))
    np.testing.assert_array_equal(found.info.status, jd.Status.OK)
    np.testing.assert_allclose(found.info.impulse[0, :, 0], 0.02, rtol=1e-12)
    np.testing.assert_allclose(found.state.q[0], 0.0, rtol=0, atol=1e-15)
    at_rest = found.state.q[1, -1]
    np.testing.assert_allclose(found.state.v[:, -1], 0.0, rtol=0, atol=1e-15)
    np.testing.assert_allclose(found.info.lam[1, -1], [9.81, 10.0 * at_rest[0]], rtol=1e-12)
    # Steps of 2.5 ms give 0.29576.
    np.testing.assert_allclose(at_rest, [0.29576, 0.0], rtol=0, atol=1e-4)


@pytest.mark.exhaustive
def test_impacts_in_single_precision():
    """A mass falls with a horizontal velocity, loses mu times its fall velocity, and slides until it rests."""
    p = {"m": jnp.float32(1.0), "g": jnp.float32(9.81), "k": jnp.float32(0.0), "alpha": jnp.float32(0.0)}
    law = CoulombFriction(normal=(0,), slip=(1,), friction=jnp.float32(0.3))
    system = jd.Masked(Slider(p), jnp.zeros(2, bool))
    state = jd.State(jnp.float32(0.0), jnp.array([0.0, 1.0], "float32"), jnp.array([3.0, 0.0], "float32"))
    dt = jnp.float32(0.01)
    found = jax.jit(lambda x: jd.rollout(system, Switching(RK4, law), x, dt=dt, steps=150))(state)
    np.testing.assert_array_equal(found.info.status, jd.Status.OK)
    fall = np.sqrt(2.0 / 9.81)
    expected = 3.0 * fall + (3.0 - 0.3 * 9.81 * fall) ** 2 / (2.0 * 0.3 * 9.81)
    np.testing.assert_allclose(found.state.q[-1], [expected, 0.0], rtol=0, atol=1e-5)


@all_cases(
    ("law", "message"),
    [
        (CoulombFriction((0,), (1, 2)), "normal and slip must name one row for each contact"),
        (CoulombFriction((1,), (2,)), "each normal must be a position-level row (below 1)"),
        (CoulombFriction((0,), (0,)), "a velocity-level row (1 to 1), got the rows 0 and 0"),
        (CoulombFriction((0, 0), (1, 1)), "two slip rows per contact (in space) are not supported"),
        (CoulombFriction((0,), (1,), friction=jnp.ones(2)), "shape (1,), got (2,)"),
        (CoulombFriction((0,), (1,), friction=-0.1), "friction must not be negative"),
        (CoulombFriction((0,), (1,), restitution=1.1), "restitution must be at most 1"),
    ],
)
def test_mistakes(law, message):
    p = {name: jnp.asarray(1.0) for name in NAMES}
    system = jd.Masked(Slider(p), jnp.array([True, False]))
    state = jd.State(jnp.zeros(()), jnp.zeros(2), jnp.zeros(2))
    with without_typechecker(), pytest.raises(ValueError, match=re.escape(message)):
        jd.rollout(system, Switching(RK4, law), state, dt=0.1, steps=1)

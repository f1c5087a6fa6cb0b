"""The systems of `reference_systems` against their files: constraints, accelerations, multipliers, energies,
motions between states.

No integrator of jaxdae takes part. Motions are those of scipy's Dormand-Prince method of order 8 on the
first-order form, q' and v' = a, without projection, from every state of a file to the next one. Of the two
stiff problems, the elastic rod has accelerations in its file, and those of the governor are compared with the
model in three coordinates.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import reference_systems as systems
import scipy.integrate
from all_cases import all_cases
from catalogue import SYSTEMS, quick

import jaxdae as jd

EPS = np.finfo(float).eps

# Rows of each problem: position level, velocity level.
ROWS = {
    "heavy_top_bruls": (3, 0),
    "heavy_top_steady": (3, 0),
    "torque_free_asymmetric": (0, 0),
    "chaplygin_sleigh": (0, 1),
    "rolling_penny": (0, 2),
    "ivptest_slider_crank": (3, 0),
    "iftomm_a03_andrews": (6, 0),
    "iftomm_a05_flyball": (20, 0),
}
SPATIAL = ("heavy_top_bruls", "heavy_top_steady", "torque_free_asymmetric", "iftomm_a05_flyball")

# The governor has most to compile; it is compared with its minimal model below.
each_problem = pytest.mark.parametrize(
    "name", quick(ROWS, *(name for name in ROWS if name != "iftomm_a05_flyball"))
)


def listed(name, key):
    """Returns what the file lists at all states under one key."""
    return np.array([s[key] for s in problems.reference(name).file["reference"]["states"]])


def reference_states(name):
    """Returns t, q and v of all states of a file, with omega_body."""
    file = problems.reference(name)
    return (file.t, *(systems.body_states(name) if name in SPATIAL else (file.q, file.v)))


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0, 0, 0))
def evaluated(system, t, q, v):
    """Returns all that is compared, in one compiled function a system. LAPACK's solver compiles fastest."""
    state = jd.State(t, q, v)
    a, lam = jd.forward_dynamics(system, state, solver=jd.DenseKKT())
    step = 0.5 * v / (1.0 + jnp.max(jnp.abs(v)))
    return {
        "a": a,
        "lam": lam,
        "constraint": system.constraint(t, q),
        "rates": jnp.concatenate([system.constraint_rate(t, q, v), system.velocity_constraint(t, q, v)]),
        "energy": jd.energy(system, state),
        "step": step,
        "step_again": system.difference(q, system.retract(q, step)),
    }


MOST_STATES = 8


def evaluated_at(system, *states):
    """Returns `evaluated` at some states, filled up with the last one to a common number: both tops share
    their compiled function.
    """
    count = len(states[0])
    padded = (
        jnp.asarray(np.concatenate([x, np.repeat(x[-1:], MOST_STATES - count, axis=0)])) for x in states
    )
    return {key: np.asarray(x)[:count] for key, x in evaluated(system, *padded).items()}


@functools.cache
def found(name):
    """Returns `evaluated` at all states of a file."""
    system, _ = SYSTEMS[name]()
    return evaluated_at(system, *reference_states(name))


def assert_close(computed, expected, tolerance):
    """Asserts that the largest error at each state is within the tolerance times the largest component of the
    state, or times 1.
    """
    error = np.max(np.abs(computed - expected), axis=-1)
    scale = np.maximum(1.0, np.max(np.abs(expected), axis=-1))
    assert np.all(error <= tolerance * scale), f"errors {error}, scales {scale}"


@each_problem
def test_starts_are_the_first_states(name):
    _, start = SYSTEMS[name]()
    _, q, v = reference_states(name)
    # The governor's file rounds its start and its first state differently.
    np.testing.assert_allclose(start.q, q[0], rtol=0.0, atol=2 * EPS)
    np.testing.assert_allclose(start.v, v[0], rtol=0.0, atol=32 * EPS)


@each_problem
def test_reference_states_satisfy_the_constraints(name):
    """To the rounding of the states: lengths are below 1.5 m, the crank's angle below 16 rad, and rates act
    on arms below 1 m.
    """
    here = found(name)
    _, _, v = reference_states(name)
    assert (here["constraint"].shape[1], here["rates"].shape[1] - here["constraint"].shape[1]) == ROWS[name]
    assert np.all(np.abs(here["constraint"]) <= 8 * EPS)
    assert np.all(np.abs(here["rates"]) <= 4 * EPS * np.max(np.abs(v), axis=1, keepdims=True))


@each_problem
def test_energies(name):
    expected = listed(name, "energy")
    if name == "iftomm_a05_flyball":
        # The file counts the weights that move; that of the shaft is constant.
        shaft = problems.reference(name).parameters["shaft"]
        expected = expected + shaft["m"] * problems.reference(name).parameters["g"] * shaft["size"][2] / 2
    np.testing.assert_allclose(found(name)["energy"], expected, rtol=8 * EPS)


@each_problem
def test_difference_undoes_retract(name):
    # Rounding of the coordinates, up to 56 rad, and of their difference.
    _, q, _ = reference_states(name)
    np.testing.assert_allclose(
        found(name)["step_again"], found(name)["step"], rtol=0.0, atol=4 * EPS * max(1.0, np.max(np.abs(q)))
    )


# Solving the saddle point magnifies roundings by what the masses and moments of inertia of a problem differ:
# EPS times 100 covers it.


@all_cases("name", ["chaplygin_sleigh", "rolling_penny", "ivptest_slider_crank", "iftomm_a03_andrews"])
def test_multipliers(name):
    assert_close(found(name)["lam"], problems.reference(name).lam, 100 * EPS)


@pytest.mark.parametrize("name", ["ivptest_slider_crank", "iftomm_a03_andrews"])
def test_accelerations(name):
    assert_close(found(name)["a"], listed(name, "a"), 100 * EPS)


def test_published_accelerations_of_the_slider_crank():
    """The test set's own numbers at 0.1 s, to the digits to which they agree with the reference."""
    (published,) = problems.reference("ivptest_slider_crank").file["published"]
    here = found("ivptest_slider_crank")
    # It solves the problem of index 2 with multipliers of the opposite sign; its smallest accelerations are
    # right to 1e-7.
    assert_close(here["a"][-1], np.array(published["values"][14:21]), 1e-10)
    np.testing.assert_allclose(here["a"][-1, 3:], published["values"][17:21], rtol=3e-7)
    np.testing.assert_allclose(here["lam"][-1], -np.array(published["values"][21:]), rtol=1e-10)


@pytest.mark.parametrize("name", ["heavy_top_bruls", "heavy_top_steady"])
def test_tops_obey_eulers_equations_about_the_pivot(name):
    """J_p omega' = arm x R^T m g - omega x J_p omega,  place'' = R (omega' x arm + omega x (omega x arm)),
    lam = m (place'' - g).
    """
    system, _ = SYSTEMS[name]()
    (m,), (inertia,), g, arm = (
        np.asarray(x) for x in (system.mass, system.inertia, system.gravity, system.arm)
    )
    about_pivot = np.diag(inertia) + m * (arm @ arm * np.eye(3) - np.outer(arm, arm))
    _, q, v = reference_states(name)
    for k, (e0, *e) in enumerate(q[:, 3:]):
        e, omega = np.array(e), v[k, 3:]
        cross = np.cross(np.eye(3), e)
        to_world = np.eye(3) + 2.0 * e0 * cross + 2.0 * cross @ cross
        turning = np.linalg.solve(
            about_pivot, np.cross(arm, to_world.T @ (m * g)) - np.cross(omega, about_pivot @ omega)
        )
        moving = to_world @ (np.cross(turning, arm) + np.cross(omega, np.cross(omega, arm)))
        # Quaternions are rounded to EPS, angular accelerations are their sines times omega^2.
        tolerance = 16 * EPS * (omega @ omega)
        np.testing.assert_allclose(found(name)["a"][k], [*moving, *turning], rtol=0.0, atol=tolerance)
        np.testing.assert_allclose(found(name)["lam"][k], m * (moving - g), rtol=0.0, atol=m * tolerance)


def test_the_steady_top_precesses_steadily():
    """R = R_z(wp t) R_x(alpha) R_z(ws t): a circle with wp, and omega_body = (wp sin alpha sin(ws t), wp sin
    alpha cos(ws t), const).
    """
    p = problems.reference("heavy_top_steady").parameters
    _, q, v = reference_states("heavy_top_steady")
    a = found("heavy_top_steady")["a"]
    circle = -(p["precession_rate"] ** 2) * q[:, :3] * np.array([1.0, 1.0, 0.0])
    turning = p["spin_rate"] * np.stack([v[:, 4], -v[:, 3], np.zeros(len(v))], axis=1)
    # Sums of terms omega^2 = 2e4, on an arm of 0.075 m.
    np.testing.assert_allclose(a[:, 3:], turning, rtol=0.0, atol=2e4 * 16 * EPS)
    np.testing.assert_allclose(a[:, :3], circle, rtol=0.0, atol=2e4 * 16 * EPS)


# Motions.


def coordinate_rates(q, v):
    """Returns q': v itself, or for spatial bodies (v_world, e (0, omega_body) / 2)."""
    if q.shape == v.shape:
        return v
    (e0, e), twist = (q[:, 3:4], q[:, 4:]), v
    omega = twist[:, 3:]
    scalar = -0.5 * np.sum(e * omega, axis=1, keepdims=True)
    return np.concatenate([twist[:, :3], scalar, 0.5 * (e0 * omega + np.cross(e, omega))], axis=1)


# The largest error of q and v at the next state, relative to the largest component. Tolerances of 1e-12 a
# step add up over up to some hundred steps, about 1e-11. Two motions magnify them: the Lagrange top turns by
# 75 rad between two states, and the free body leaves its saddle like exp(2.9 t), of which a flip leaves 10^2.
MOTIONS = {
    "heavy_top_bruls": 3e-10,
    "torque_free_asymmetric": 1e-9,
    "chaplygin_sleigh": 1e-11,
    "rolling_penny": 1e-11,
    "iftomm_a03_andrews": 3e-11,
}


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.exhaustive if name in ("heavy_top_bruls", "iftomm_a03_andrews") else (),
        )
        for name in MOTIONS
    ],
)
def test_motions_lead_from_state_to_state(name):
    """All intervals of the file at once, each in its own unit of time; the last state stays where it is."""
    system, _ = SYSTEMS[name]()
    t, q, v = reference_states(name)
    span = np.append(np.diff(t), 0.0)
    both = np.concatenate([q, v], axis=1)
    nq = q.shape[1]

    def rates(s, y):
        q, v = np.split(y.reshape(both.shape), [nq], axis=1)
        a = evaluated_at(system, t + s * span, q, v)["a"]
        return (span[:, None] * np.concatenate([coordinate_rates(q, v), a], axis=1)).ravel()

    end = scipy.integrate.solve_ivp(
        rates, (0.0, 1.0), both.ravel(), method="DOP853", rtol=1e-12, atol=1e-12, t_eval=[1.0]
    )
    assert end.success
    end_q, end_v = np.split(end.y[:, -1].reshape(both.shape)[:-1], [nq], axis=1)
    # The files follow the quaternions continuously: no signs to choose.
    assert_close(end_q, q[1:], MOTIONS[name])
    assert_close(end_v, v[1:], MOTIONS[name])


# The governor.


def test_flyball_has_the_coordinates_of_the_minimal_model():
    name = "iftomm_a05_flyball"
    _, q, v = reference_states(name)
    expected = np.array([[float(x) for x in s] for s in listed(name, "minimal_hp")])
    computed = systems.flyball_minimal(q, v)
    turns = np.round((expected[:, 0] - computed[:, 0]) / (2.0 * np.pi))
    computed[:, 0] += 2.0 * np.pi * turns
    np.testing.assert_allclose(computed, expected, rtol=0.0, atol=64 * EPS)
    heights = problems.reference(name).file["reference"]["s_every_0.1s"]
    np.testing.assert_allclose(
        computed[:, 1],
        np.array(heights)[np.rint(reference_states(name)[0] / 0.1).astype(int)],
        rtol=0.0,
        atol=EPS,
    )


@pytest.mark.long
def test_flyball_accelerates_like_the_minimal_model():
    name = "iftomm_a05_flyball"
    p = problems.reference(name).parameters
    expected = np.array([systems.minimal_flyball_accelerations(x) for x in listed(name, "minimal_hp")])
    computed = systems.flyball_minimal_rates(found(name)["a"])
    # The spring-dampers feel the rounding of lengths (1 m) and speeds (6 m/s), and act on 3 kg.
    np.testing.assert_allclose(
        computed, expected, rtol=0.0, atol=4 * EPS * (p["K"] + 6.0 * p["C"]) / p["slider"]["m"]
    )
    # Both rods alike.
    rods = found(name)["a"].reshape(-1, 4, 6)[:, 2:]
    np.testing.assert_allclose(rods[:, 0, :2], -rods[:, 1, :2], rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(rods[:, 0, 4], -rods[:, 1, 4], rtol=0.0, atol=1e-9)


def test_minimal_flyball_moves_like_the_reference():
    """Radau's method over the first 0.1 s of the three-coordinate model, which ties it to the file."""
    name = "iftomm_a05_flyball"
    states = np.array([[float(x) for x in s] for s in listed(name, "minimal_hp")])

    def rates(t, x):
        return [*x[3:], *systems.minimal_flyball_accelerations(x)]

    end = scipy.integrate.solve_ivp(
        rates, (0.0, 0.1), states[0], method="Radau", rtol=1e-9, atol=1e-10, t_eval=[0.1]
    )
    np.testing.assert_allclose(end.y[:, -1], states[1], rtol=0.0, atol=1e-7)

"""Published problems in space, without slip, elastic and stiff, to the digits that their files expect of a
double-precision run.

The planar point masses and Andrews' mechanism at 0.03 s are in `test_accuracy_reference`, whose rule holds
here too: at each time of a file

    error <= 10^-digits * max(1, largest component) + round-off,

with `digits` of the file. Round-off is nothing unless a case says otherwise. Rotations are those of unit
quaternions, velocities of spatial bodies (v_world, omega_body).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import reference_systems as systems
from catalogue import METHODS, SYSTEMS, distinct, in_ci, precise

import jaxdae as jd

EPS = np.finfo(float).eps


@functools.partial(jax.jit, static_argnames=("steps", "save_every"))
def rolled(system, method, start, dt, steps, save_every=1):
    return jd.rollout(system, method, start, dt=dt, steps=steps, save_every=save_every)


@jax.jit
def dynamics(system, states):
    """Returns accelerations and multipliers at stacked states."""
    return jax.vmap(lambda s: jd.forward_dynamics(system, s, solver=jd.DenseKKT()))(states)


def reference_states(name):
    """Returns t, q and v of all states of a file but the start, with omega_body."""
    file = problems.reference(name)
    spatial = file.q.shape[1] % 7 == 0 and "mass centre and unit quaternion" in str(
        file.file["model"].get("coordinates")
    )
    q, v = systems.body_states(name) if spatial else (file.q, file.v)
    return file.t[1:], q[1:], v[1:]


def errors(computed, expected):
    """Returns the largest error at each state, relative to the largest component, or to 1."""
    return np.max(np.abs(np.asarray(computed) - expected), axis=1) / np.maximum(
        1.0, np.max(np.abs(expected), axis=1)
    )


def check(what, computed, expected, digits, round_off=0.0):
    error = errors(computed, expected)
    assert np.all(error <= 10.0**-digits + round_off), (
        f"{what}: errors {error}, allowed {10.0**-digits} and {round_off} for round-off"
    )


FIFTH = jd.Projected(jd.RungeKutta.dormand_prince5(unroll=False))
# Eight corrections leave 1e-12 a step of the fast top, which add up to 2e-9.
EIGHTH = jd.Composition.kahan_li8(jd.Rattle(iterations=12))


# Problem: method, steps over the whole time of the file, and the round-off to allow relative to the largest
# component.
PROBLEMS = {
    # Turns by 300 rad, 0.3 rad a step.
    "heavy_top_bruls": (EIGHTH, 1000, 0.0),
    "heavy_top_steady": (EIGHTH, 1000, 0.0),
    # Flips about the middle axis magnify a change of the rates by 2500: of the roundings of all steps, which
    # add up like a random walk.
    "torque_free_asymmetric": (FIFTH, 4000, 2500 * EPS * 4000**0.5),
    "chaplygin_sleigh": (FIFTH, 4000, 0.0),
    # Constant rates: equal increments of the heading round in the same direction, by up to EPS/2 a step, and
    # few steps are best.
    "rolling_penny": (FIFTH, 500, EPS * 500 / 8),
    "iftomm_a03_andrews": (FIFTH, 5000, 0.0),
    # Modes of 7e4 rad/s, undamped, that the step resolves.
    "ivptest_slider_crank": (FIFTH, 25000, 0.0),
}


@functools.cache
def solved(name):
    """Returns the system, and the states at the times of the file."""
    method, steps, _ = PROBLEMS[name]
    system, start = SYSTEMS[name]()
    t, *_ = reference_states(name)
    entries = np.rint(t * steps / t[-1]).astype(int)
    np.testing.assert_allclose(entries * t[-1] / steps, t, rtol=1e-12)
    save_every = int(np.gcd.reduce(entries))
    trajectory = rolled(system, method, start, t[-1] / steps, steps, save_every)
    jd.raise_if_failed(trajectory)
    return system, jax.tree.map(lambda x: x[entries // save_every - 1], trajectory.state)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] if name == "iftomm_a03_andrews" else [])
        for name in PROBLEMS
    ],
)
def test_reaches_the_expected_digits(name):
    file, round_off = problems.reference(name), PROBLEMS[name][-1]
    digits = file.file["expected_digits"]
    _, q, v = reference_states(name)
    system, states = solved(name)
    check("q", states.q, q, digits["q"], round_off)
    check("v", states.v, v, digits["v"], round_off)
    if file.lam is not None:
        check("lam", dynamics(system, states)[1], file.lam[1:], digits["lambda"], round_off)


@pytest.mark.exhaustive
def test_andrews_balances_its_energy():
    """Kinetic energy, spring and the work of the motor, its torque times the crank's angle."""
    system, states = solved("iftomm_a03_andrews")
    energy = jax.jit(jax.vmap(lambda s: jd.energy(system, s)))(states)
    expected = [s["energy"] for s in problems.reference("iftomm_a03_andrews").file["reference"]["states"]][1:]
    np.testing.assert_allclose(energy, expected, rtol=1e-11)


@pytest.mark.long
def test_elastic_coordinates_of_the_slider_crank():
    """Bending and stretching are below 1e-2 m, where ten digits of the crank's angle say little: here
    relative to their own sizes.
    """
    _, q, v = reference_states("ivptest_slider_crank")
    _, states = solved("ivptest_slider_crank")
    for computed, expected, digits in ((states.q, q, 8), (states.v, v, 6)):
        computed, expected = np.asarray(computed)[:, 3:], expected[:, 3:]
        error = np.max(np.abs(computed - expected), axis=0) / np.max(np.abs(expected), axis=0)
        assert np.all(error <= 10.0**-digits), f"relative errors {error}"


# Sensitivities.


@pytest.mark.exhaustive
def test_sensitivities_of_the_heavy_top():
    """Derivatives of the state at 2 s by mass, moments of inertia and gravity, in forward mode through all
    steps of a method of order 8.

    To eight digits, where the states have twelve: in each part of each step the tangents of Newton's
    equations are solved to EPS^0.6 only.
    """
    name, steps = "heavy_top_bruls", 1000
    file = problems.reference(name).file
    top, start = SYSTEMS[name]()
    p = file["parameters"]
    values = jnp.array([p["m"], p["J_about_mass_centre"][0], p["J_about_mass_centre"][1], -p["g"][2]])

    @jax.jit
    @functools.partial(jax.jacfwd, has_aux=True)
    def end(x):
        m, transverse, axial, g = x
        gravity = jnp.stack([jnp.zeros_like(g), jnp.zeros_like(g), -g])
        inertia = jnp.stack([transverse, axial, transverse])[None]
        system = systems.HeavyTop(m[None], inertia, gravity, top.arm)
        last = jd.rollout(system, EIGHTH, start, dt=2.0 / steps, steps=steps, save_every=steps)
        return (last.state.q[0], last.state.v[0]), last.info.status

    (dq, dv), status = end(values)
    assert np.all(np.asarray(status) == jd.Status.OK)
    dq, dv = np.asarray(dq).T, np.asarray(dv).T
    at, rates = (np.array(file["reference"]["states"][-1][key]) for key in ("q", "v"))
    for k, key in enumerate(("m", "J1", "J2", "g")):
        listed = file["sensitivities"]["by_parameter"][key]
        by_q, by_v = np.array(listed["dq"]), np.array(listed["dv"])
        # omega = 2 Im(conj(e) e') is linear in both.
        omega = (systems.body_velocities(at, by_v) + systems.body_velocities(by_q, rates))[3:]
        check(key, dq[k][None], by_q[None], 8)
        check(key, dv[k][None], np.concatenate([by_v[:3], omega])[None], 8)


# Orders on a curved space, and unit quaternions.

FEW = ("rk4", "rattle", "semi_implicit_euler", "generalized_alpha", "radau_iia", "kahan_li8")
COUNTS = {1: (320, 640), 2: (80, 160), 3: (80, 160), 4: (80, 160), 5: (40, 80), 6: (20, 40), 8: (6, 10)}


def check_orders_and_unit_quaternions_of_the_free_body(method, order):
    """Fitted between two steps in the first second: five radians."""
    system, start = SYSTEMS["torque_free_asymmetric"]()
    t, q, _ = (x[0] for x in reference_states("torque_free_asymmetric"))
    counts, found = COUNTS[order], []
    for count in counts:
        trajectory = rolled(system, method, start, t / count, max(counts))
        reached = jax.tree.map(
            lambda x, k=count: np.asarray(x)[k - 1], jd.Trajectory(trajectory.state, trajectory.info)
        )
        assert reached.info.status == jd.Status.OK
        found.append(np.max(np.abs(reached.state.q - q)))
        # Every step multiplies by a unit quaternion, to its rounding.
        norms = np.linalg.norm(np.asarray(trajectory.state.q)[:count, 3:], axis=1)
        np.testing.assert_allclose(norms, 1.0, rtol=0.0, atol=4 * EPS)
    slope = -np.diff(np.log(found))[0] / np.diff(np.log(counts))[0]
    assert abs(slope - order) <= 0.2, f"expected order {order}, fitted {slope:.3f} to {found}"


# Steps of the eighth order turn the body by 0.5 to 0.8 rad: errors of 8e-11 and 1e-12, and 5e-15 at twice as
# many.
# Tableaus and coefficients alone have their orders in `test_accuracy_orders` and
# `test_accuracy_orders_implicit`; here the highest order is among them.
@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    in_ci([*distinct(), "kahan_li8"], *FEW),
)
def test_orders_and_unit_quaternions_of_the_free_body(name):
    check_orders_and_unit_quaternions_of_the_free_body(precise(name), METHODS[name].order)


@pytest.mark.long
@pytest.mark.parametrize(
    "wrapper", [pytest.param(jd.Projected, marks=pytest.mark.exhaustive), jd.textbook.ProjectedDerivative]
)
def test_orders_and_unit_quaternions_of_wrapped_methods(wrapper):
    check_orders_and_unit_quaternions_of_the_free_body(wrapper(jd.RungeKutta.rk4()), 4)


# The governor: dampers of 2e4 1/s, and a relaxation at 20 1/s that is of interest.

GOVERNOR = "iftomm_a05_flyball"


def governed(method, dt, steps):
    """Returns the trajectory, and its last (psi, s, alpha)."""
    system, start = SYSTEMS[GOVERNOR]()
    trajectory = rolled(system, method, start, dt, steps)
    return trajectory, systems.flyball_minimal(np.asarray(trajectory.state.q)[-1])


# `test_accuracy_spatial` follows it with `RadauIIA`, in both coordinates.
@pytest.mark.exhaustive
def test_generalized_alpha_follows_the_governor():
    method = jd.GeneralizedAlpha(newton=jd.DenseNewton(iterations=8))
    trajectory, reached = governed(method, 0.01, 10)
    jd.raise_if_failed(trajectory)
    expected = [float(x) for x in problems.reference(GOVERNOR).file["reference"]["states"][1]["minimal_hp"]][
        :3
    ]
    np.testing.assert_allclose(reached, expected, rtol=0.0, atol=1e-3)
    norms = np.linalg.norm(np.asarray(trajectory.state.q).reshape(-1, 4, 7)[..., 3:], axis=-1)
    np.testing.assert_allclose(norms, 1.0, rtol=0.0, atol=4 * EPS)


@pytest.mark.exhaustive
def test_rk4_fails_with_the_governor_at_the_same_step():
    trajectory, _ = governed(jd.Projected(jd.RungeKutta.rk4()), 0.01, 10)
    assert trajectory.info.status[-1] != jd.Status.OK

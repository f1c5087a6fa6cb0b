"""The published problems of `tests/reference`, to the digits that their files expect of a double-precision
run.

All are integrated with Dormand and Prince's method of order 5 and the default projection, at steps so small
that the method's error is below the expected digits; for the order itself see `test_accuracy_orders.py`. A
state is held to

    error <= 10^-digits * scale + eps * sqrt(steps),

with `digits` of the file and the scale max(1, largest component) of the state. The second term is round-off:
every step rounds by about eps/2, and the roundings add up like a random walk. It matters for one problem
only, whose file asks for 15 digits.
"""

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
from catalogue import SYSTEMS

import jaxdae as jd

METHOD = jd.Projected(jd.RungeKutta.dormand_prince5())

# The step, and the steps between two entries of the trajectory; all times of a file are multiples of their
# product.
POINT_MASSES = {
    "ivptest_pendulum": (1 / 256, 64),
    # 30 s with speeds up to 5 m/s: the smallest steps, because 13 digits are asked for.
    "sundials_pendulum_period2": (1 / 2048, 512),
    "iftomm_a01_pendulum": (5e-4, 20),
    "double_pendulum": (1 / 2048, 1024),
    "spherical_pendulum": (1 / 1024, 512),
    "bead_rotating_wire": (1 / 1024, 256),
}


def states_at(reference, system, start, dt, save_every):
    """Returns the computed states at the times of the reference, the start left out, and how many steps were
    made.
    """
    entries = np.rint(reference.t[1:] / (dt * save_every)).astype(int)
    steps = int(entries[-1]) * save_every
    trajectory = jd.rollout(system, METHOD, start, dt=dt, steps=steps, save_every=save_every)
    jd.raise_if_failed(trajectory)
    return jax.tree.map(lambda x: x[entries - 1], trajectory.state), steps


@jax.jit
def dynamics(system, states):
    """Returns accelerations and multipliers at stacked states."""
    return jax.vmap(lambda s: jd.forward_dynamics(system, s))(states)


def check(name, computed, expected, digits, steps):
    """Asserts that stacked vectors agree to so many digits of their scale."""
    scale = np.maximum(1.0, np.max(np.abs(expected), axis=1))
    error = np.max(np.abs(np.asarray(computed) - expected), axis=1)
    allowed = 10.0**-digits * scale + np.finfo(float).eps * np.sqrt(steps)
    assert np.all(error <= allowed), f"{name}: errors {error}, allowed {allowed}"


@pytest.mark.parametrize(
    "name",
    [
        "ivptest_pendulum",
        "bead_rotating_wire",
        pytest.param("spherical_pendulum", marks=pytest.mark.long),
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in ("sundials_pendulum_period2", "iftomm_a01_pendulum", "double_pendulum")
        ),
    ],
)
def test_point_masses_reach_the_expected_digits(name):
    dt, save_every = POINT_MASSES[name]
    reference, (system, start) = problems.reference(name), SYSTEMS[name]()
    states, steps = states_at(reference, system, start, dt, save_every)
    digits = reference.file["expected_digits"]
    check("q", states.q, reference.q[1:], digits["q"], steps)
    check("v", states.v, reference.v[1:], digits["v"], steps)
    # The double pendulum's file lists multipliers but no digits for them; they are no better than the
    # velocities.
    check("lam", dynamics(system, states)[1], reference.lam[1:], digits.get("lambda", digits["v"]), steps)


@pytest.mark.exhaustive
def test_period_of_the_sundials_pendulum():
    """After 15 periods the bob is where it started; CVODE at rtol = 1e-9 with projection is off by 1.8e-6 in
    y.
    """
    dt, save_every = POINT_MASSES["sundials_pendulum_period2"]
    reference, (system, start) = (
        problems.reference("sundials_pendulum_period2"),
        SYSTEMS["sundials_pendulum_period2"](),
    )
    states, _ = states_at(reference, system, start, dt, save_every)
    # Truncation: C h^5 T with C near 1e3 (fourth powers of the frequency), h = 1/2048; round-off: 250 eps.
    np.testing.assert_allclose(states.q[-1], start.q, rtol=0.0, atol=1e-13)


# Andrews' squeezing mechanism, twice.

ANDREWS = "ivptest_andrews"
ANDREWS_STEPS = 6000


@pytest.fixture(scope="module")
def andrews():
    """The system in seven angles and its states at the times of the reference."""
    system, start = SYSTEMS[ANDREWS]()
    return system, states_at(
        problems.reference(ANDREWS), system, start, 0.03 / ANDREWS_STEPS, ANDREWS_STEPS // 6
    )[0]


@pytest.fixture(scope="module")
def andrews_bodies():
    """The mechanism of seven bodies and its states at the times of the reference."""
    reference = problems.reference(ANDREWS)
    mechanism, poses = problems.andrews_mechanism(problems.andrews_parameters(), reference.start().q)
    start = problems.state(poses)
    return mechanism, states_at(reference, mechanism, start, 0.03 / ANDREWS_STEPS, ANDREWS_STEPS // 6)[0]


def check_relative(name, computed, expected, digits):
    """As `check`; the scale is the largest component, because rates are of the order of 1e3 rad/s."""
    error = np.max(np.abs(np.asarray(computed) - expected), axis=1) / np.max(np.abs(expected), axis=1)
    assert np.all(error <= 10.0**-digits), f"{name}: relative errors {error}"


@pytest.mark.long
def test_andrews_in_angles(andrews):
    system, states = andrews
    reference = problems.reference(ANDREWS)
    digits = reference.file["expected_digits"]
    check_relative("q", states.q, reference.q[1:], digits["q"])
    check_relative("v", states.v, reference.v[1:], digits["v"])
    a, lam = dynamics(system, states)
    check_relative("lam", lam, reference.lam[1:], digits["lambda"])
    # Accelerations are as well conditioned as the multipliers that they come with.
    check_relative(
        "a", a, np.array([s["a"] for s in reference.file["reference"]["states"]])[1:], digits["lambda"]
    )


@pytest.mark.exhaustive
def test_andrews_as_bodies(andrews_bodies):
    _, states = andrews_bodies
    reference = problems.reference(ANDREWS)
    digits = reference.file["expected_digits"]
    check_relative("q", problems.andrews_angles(states.q), reference.q[1:], digits["q"])
    check_relative("v", problems.andrews_angles(states.v), reference.v[1:], digits["v"])


@pytest.mark.exhaustive
def test_andrews_twice_the_same(andrews, andrews_bodies):
    """Seven angles with a full mass matrix, and 21 coordinates with a diagonal one: positions agree to 1e-10."""
    (_, angles), (_, bodies) = andrews, andrews_bodies
    np.testing.assert_allclose(problems.andrews_angles(bodies.q), angles.q, rtol=0.0, atol=1e-10)
    largest = np.max(np.abs(angles.v))
    np.testing.assert_allclose(problems.andrews_angles(bodies.v), angles.v, rtol=0.0, atol=1e-10 * largest)
    # All poses, not only the angles: the hinges hold the bodies where the angles say.
    poses = jax.vmap(lambda q: problems.andrews_poses(problems.andrews_parameters(), q))(angles.q)
    np.testing.assert_allclose(bodies.q, poses, rtol=0.0, atol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize(
    "index", [1, pytest.param(3, marks=pytest.mark.exhaustive), pytest.param(6, marks=pytest.mark.exhaustive)]
)
def test_andrews_bodies_have_the_mass_matrix_of_the_angles(index):
    """Kinetic energy at arbitrary rates, closures, total energy: the mass centers and frames are those of the
    seven-angle form.
    """
    p, reference = problems.andrews_parameters(), problems.reference(ANDREWS)
    system = problems.AndrewsAngles(p)
    q = jnp.asarray(reference.q[index])
    mechanism, _ = problems.andrews_mechanism(p, reference.start().q)
    zero = jnp.zeros(())
    moving = jax.jit(lambda rates: jax.jvp(lambda x: problems.andrews_poses(p, x), (q,), (rates,)))
    for rates in np.random.default_rng(index).normal(size=(5, 7)):
        poses, twists = moving(jnp.asarray(rates))
        expected = 0.5 * rates @ system.mass_matrix(q) @ rates
        np.testing.assert_allclose(mechanism.kinetic_energy(poses, twists), expected, rtol=1e-12)
    # Lengths are below 0.1 m; the references are rounded to 1e-16 rad.
    np.testing.assert_allclose(mechanism.constraint(zero, poses), 0.0, rtol=0, atol=1e-15)
    poses, twists = moving(jnp.asarray(reference.v[index]))
    np.testing.assert_allclose(mechanism.constraint_rate(zero, poses, twists), 0.0, rtol=0, atol=1e-12)
    energy = reference.file["reference"]["states"][index]["energy"]
    np.testing.assert_allclose(jd.energy(mechanism, jd.State(zero, poses, twists)), energy, rtol=1e-12)
    np.testing.assert_allclose(
        jd.energy(system, jd.State(zero, q, jnp.asarray(reference.v[index]))), energy, rtol=1e-12
    )
    np.testing.assert_allclose(problems.andrews_angles(poses), q, rtol=0.0, atol=1e-14)

"""The four-bar on which the engines were measured: 10 s of RK4 with projection at 1 ms, in double and in
single precision.

The loop is measured here from the poses alone, as the largest distance between the two points of a hinge, and
not by the library's own report; the two must agree.
"""

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest

import jaxdae as jd

STEPS, DT = 10_000, 1e-3
METHOD = jd.Projected(jd.RungeKutta.rk4())
LENGTHS = np.array([1.0, 2.5, 2.0])


def run(dtype):
    """Returns mechanism, start and trajectory, with an entry for every step."""
    mechanism, start = problems.cast(problems.CrankRocker().build(), dtype)
    trajectory = jd.rollout(mechanism, METHOD, start, dt=DT, steps=STEPS)
    jd.raise_if_failed(trajectory)
    assert trajectory.state.q.dtype == trajectory.state.v.dtype == dtype
    return mechanism, start, trajectory


@pytest.fixture(scope="module")
def double():
    return run(jnp.float64)


@pytest.fixture(scope="module")
def single():
    return run(jnp.float32)


def hinge_gaps(q):
    """Returns the distances (n, 4) between the two points of each hinge, from poses (n, 9)."""
    pose = np.asarray(q, np.float64).reshape(-1, 3, 3)
    half = 0.5 * LENGTHS[:, None] * np.stack([np.cos(pose[..., 2]), np.sin(pose[..., 2])], axis=-1)
    tail, head = pose[..., :2] - half, pose[..., :2] + half
    ends = [
        (np.zeros(2), tail[:, 0]),
        (head[:, 0], tail[:, 1]),
        (head[:, 1], head[:, 2]),
        (np.array([2.0, 0.0]), tail[:, 2]),
    ]
    return np.stack([np.linalg.norm(a - b, axis=-1) for a, b in ends], axis=-1)


@pytest.mark.long
def test_loops_stay_closed_at_every_step(double):
    _, start, trajectory = double
    assert np.max(hinge_gaps(start.q)) <= 1e-15
    assert np.max(hinge_gaps(trajectory.state.q)) <= 1e-12
    assert np.max(trajectory.info.violation) <= 1e-12
    # Speeds reach 10 m/s; a velocity projection solves one linear system, to round-off.
    assert np.max(trajectory.info.velocity_violation) <= 1e-12


@pytest.mark.parametrize(("seconds", "tolerance"), [(1, 1e-9), (2, 1e-8), (5, 1e-8), (10, 1e-7)])
def test_crank_angle(double, seconds, tolerance):
    """Against the reference angles: 1e-9 rad at 1 s and 1e-7 at 10 s, the project's bar."""
    crank = double[2].state.q[seconds * 1000 - 1, 2]
    np.testing.assert_allclose(crank - 1.0, problems.CRANK_ANGLES[seconds], rtol=0.0, atol=tolerance)


def test_energy(double):
    """Constant to 1e-8 of itself at every step; the mechanism has no damping."""
    mechanism, start, trajectory = double
    energies = jax.jit(jax.vmap(lambda s: jd.energy(mechanism, s)))(trajectory.state)
    np.testing.assert_allclose(energies, jd.energy(mechanism, start), rtol=1e-8)


def test_time_is_counted_not_summed(double):
    np.testing.assert_allclose(double[2].state.t, DT * np.arange(1, STEPS + 1), rtol=1e-15)


@pytest.mark.exhaustive
def test_single_precision(single):
    """Loops within 5e-6 m at every step: positions up to 3 m are rounded by 1e-7 m, and three corrections
    remove all else.
    """
    mechanism, start, trajectory = single
    assert np.max(hinge_gaps(trajectory.state.q)) <= 5e-6
    assert np.max(trajectory.info.violation) <= 5e-6
    # 10000 steps, each rounded by about 1.2e-7 of the energy, add up like a random walk: 100 times that.
    energies = jax.jit(jax.vmap(lambda s: jd.energy(mechanism, s)))(trajectory.state)
    np.testing.assert_allclose(energies, jd.energy(mechanism, start), rtol=1.2e-5)

"""The terms of losses, on trajectories written by hand and in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from small_systems import without_typechecker

import jaxdae
from jaxdae.tuning import (
    constraint_violation,
    effort,
    energy_error,
    final,
    nan_if_failed,
    reaction,
    time_average,
    tracking,
    velocity_violation,
)


@jaxdae.tree.pytree
class Pendulum(jaxdae.System):
    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -10.0])

    def constraint(self, t, q):
        return 0.5 * (q @ q - 1.0)[None]

    def potential_energy(self, t, q):
        return 10.0 * q[1]


TIMES = jnp.array([0.5, 1.0, 1.5])
Q = jnp.array([[1.0, 0.0], [0.0, -1.1], [3.0, 4.0]])
V = jnp.array([[0.0, 1.0], [1.0, 0.5], [0.0, 0.0]])
LAM = jnp.array([[1.0, 2.0], [0.0, -1.0], [2.0, 2.0]])


def trajectory(status=(0, 0, 0)):
    info = jaxdae.interfaces.StepInfo(
        V, LAM, jnp.zeros(3), jnp.zeros(3), jnp.zeros(3, jnp.int32), jnp.asarray(status, jnp.int32)
    )
    return jaxdae.Trajectory(jaxdae.State(TIMES, Q, V), info)


def two_worlds():
    return jax.tree.map(lambda x: jnp.stack([x, x[::-1]]), trajectory())


def test_tracking():
    ways = {
        "a point": (lambda s: s.q, jnp.array([1.0, 0.0]), (0.0 + (1.0 + 1.21) + (4.0 + 16.0)) / 3.0, 20.0),
        "a scalar": (lambda s: s.q[0], 1.0, (0.0 + 1.0 + 4.0) / 3.0, 4.0),
        "one for every state": (lambda s: s.q[0], jnp.array([1.0, 1.0, 2.0]), 2.0 / 3.0, 1.0),
        "a function of time": (lambda s: s.v[0], lambda t: t, (0.25 + 0.0 + 2.25) / 3.0, 2.25),
    }
    for name, (observe, target, mean, last) in ways.items():
        assert tracking(trajectory(), observe, target) == pytest.approx(mean, rel=1e-14), name
        assert tracking(trajectory(), observe, target, over=final) == pytest.approx(last, rel=1e-14), name
    worst = tracking(trajectory(), lambda s: s.q[0], 1.0, over=lambda x: jnp.max(x, axis=-1))
    assert worst == 4.0


def test_the_mean_over_worlds():
    assert tracking(two_worlds(), lambda s: s.q[0], 1.0, over=final) == pytest.approx(
        (4.0 + 0.0) / 2.0, rel=1e-14
    )
    assert tracking(two_worlds(), lambda s: s.q[0], 1.0) == pytest.approx(5.0 / 3.0, rel=1e-14)
    assert constraint_violation(Pendulum(), two_worlds(), over=final) == pytest.approx(
        12.0**2 / 2.0, rel=1e-14
    )


def test_the_other_terms():
    system, found = Pendulum(), trajectory()
    assert effort(jnp.array([[1.0, 2.0], [0.0, 2.0]])) == pytest.approx(4.5)
    assert effort(jnp.array([[1.0, 2.0], [0.0, 3.0]]), over=final) == pytest.approx(9.0)
    violations = np.array([0.0, 0.5 * (1.21 - 1.0), 12.0])
    np.testing.assert_allclose(constraint_violation(system, found), np.mean(violations**2), rtol=1e-13)
    np.testing.assert_allclose(
        velocity_violation(system, found), np.mean(np.array([0.0, -0.55, 0.0]) ** 2), rtol=1e-13
    )
    energies = np.array([0.5, 0.625 - 11.0, 40.0])
    np.testing.assert_allclose(energy_error(system, found, 0.5), np.mean((energies - 0.5) ** 2), rtol=1e-13)
    np.testing.assert_allclose(reaction(found), (5.0 + 1.0 + 8.0) / 3.0, rtol=1e-14)
    np.testing.assert_allclose(reaction(found, 1, over=final), 4.0, rtol=1e-14)
    np.testing.assert_allclose(reaction(found, jnp.array([0])), 5.0 / 3.0, rtol=1e-14)


def test_terms_are_numbers():
    total = 2.0 * tracking(trajectory(), lambda s: s.q[0], 1.0) + 0.5 * reaction(
        trajectory(), over=time_average
    )
    assert total == pytest.approx(10.0 / 3.0 + 7.0 / 3.0, rel=1e-14)


def test_failures_are_not_taken_for_successes():
    assert nan_if_failed(trajectory(), jnp.asarray(2.0)) == 2.0
    assert np.isnan(nan_if_failed(trajectory((0, 0, 1)), jnp.asarray(2.0)))


@all_cases(
    ("change", "error", "message"),
    [
        ({"observe": 3}, TypeError, "tracking: observe must be a function of a State, .* got 3"),
        (
            {"observe": lambda at: [at.q[0]]},
            TypeError,
            "tracking: observe must return a number or a vector, got list",
        ),
        (
            {"target": jnp.ones(3)},
            ValueError,
            r"the observation, \(2,\), or of all saved observations, \(3, 2\); got \(3,\)",
        ),
        ({"target": lambda t: t}, ValueError, r"tracking: target must be a number, or .* got \(3,\)"),
        ({"over": "final"}, TypeError, r"over must be a function of an array \(..., time\), .* got 'final'"),
    ],
)
def test_mistakes(change, error, message):
    with without_typechecker(), pytest.raises(error, match=message):
        tracking(trajectory(), **{"observe": lambda at: at.q, "target": 0.0, **change})


def test_rows_of_reactions_exist():
    assert reaction(trajectory(), 0) == reaction(trajectory(), [0])
    with pytest.raises(ValueError, match="reaction: rows must be indices of the 2 constraint rows, got 7"):
        reaction(trajectory(), 7)

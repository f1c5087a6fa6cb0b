"""Fits over rollouts that fail: nothing that rests on one passes for a result."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import Pendulum

import jaxdae as jd
from jaxdae import tuning as jt

INTEGRATOR = jd.Projected(jd.SemiImplicitEuler())


@jd.tree.pytree
class Rod(Pendulum):
    """A pendulum on a support that moves away: no length below `reach` reaches it."""

    def constraint(self, t, q):
        return jnp.stack([0.5 * ((q[0] - 1.0) ** 2 + (q[1]) ** 2 - self.length**2), q[0] - 0.0 * q[1]])


def rod(length):
    return Rod(jnp.asarray(1.0), jnp.asarray(length), jnp.asarray(9.81))


def assembled(p):
    """The pattern of the documentation: the report of the assembly is not looked at."""
    state, _ = jd.initialize(p["system"], jnp.array([0.05, -0.3]))
    return jd.rollout(p["system"], INTEGRATOR, state, dt=1e-2, steps=3)


def miss(p):
    return jt.tracking(assembled(p), lambda at: at.q, jnp.array([0.0, -0.5]))


SHORT, LONG = {"system": rod(0.9)}, {"system": rod(1.2)}
LENGTH = {"system.length": jt.Positive()}


@pytest.mark.long
def test_a_loop_that_cannot_close_is_no_small_loss():
    """With 0.9 m the rod ends 0.1 m from its slot; with 1.2 m it closes."""
    value, gradient = jax.jit(jax.value_and_grad(miss))(SHORT)
    assert np.isnan(value)
    assert np.isnan(gradient["system"].length)
    value, gradient = jax.jit(jax.value_and_grad(miss))(LONG)
    assert np.isfinite(value)
    assert np.isfinite(gradient["system"].length)


@pytest.mark.long
def test_fit_refuses_to_begin_there_and_says_why():
    with pytest.raises(
        ValueError,
        match=r"not finite at the start, probably because a rollout or the assembly of its start failed",
    ):
        jt.fit(miss, SHORT, optax.sgd(0.1), steps=3, trainable=LENGTH)


@pytest.mark.long
def test_fit_skips_steps_that_lead_there_and_counts_them():
    """The target is nearest at a length of 1.0 m, beyond which a long step goes into the lengths that cannot
    close.
    """
    found = jt.fit(miss, LONG, optax.sgd(2.0), steps=12, trainable=LENGTH)
    assert found.skipped > 0
    assert found.parameters["system"].length > 1.0
    assert np.isfinite(found.loss)
    np.testing.assert_array_equal(np.isnan(found.history.loss), found.history.skipped)


@pytest.mark.exhaustive
def test_least_squares_says_that_its_start_failed():
    found = jt.least_squares(lambda p: assembled(p).state.q - jnp.array([0.0, -0.5]), SHORT, trainable=LENGTH)
    assert found.status == jd.Status.NONFINITE
    assert found.iterations == 0


@pytest.mark.exhaustive
def test_the_certificate_fails():
    report = jt.check_gradients(miss, SHORT, trainable="system.length")
    assert not report.passed
    assert report.not_finite == ("system.length",)


@pytest.mark.long
@pytest.mark.parametrize(
    "term", ["tracking", "energy_error", "constraint_violation", "velocity_violation", "reaction"]
)
def test_every_term_knows_of_one_world_among_many(term):
    system = Pendulum(*(jnp.asarray(x) for x in (1.0, 1.0, 9.81)))
    starts = jd.State(jnp.zeros(2), jnp.array([[1.0, 0.0], [1.05, 0.0]]), jnp.zeros((2, 2)))
    found = jd.batch_rollout(system, INTEGRATOR, starts, dt=1e-2, steps=2)
    value = {
        "tracking": lambda x: jt.tracking(x, lambda at: at.q, 0.0, over=jt.final),
        "energy_error": lambda x: jt.energy_error(system, x, 0.0),
        "constraint_violation": lambda x: jt.constraint_violation(system, x),
        "velocity_violation": lambda x: jt.velocity_violation(system, x),
        "reaction": lambda x: jt.reaction(x),
    }[term]
    assert np.isnan(value(found))
    assert np.isfinite(value(jax.tree.map(lambda x: x[:1], found)))


def test_the_derivative_of_a_failure_is_no_zero():
    failed = jd.Trajectory(None, jd.interfaces.StepInfo(None, None, None, None, None, jnp.array([0, 2])))
    assert np.isnan(jax.grad(lambda x: jt.nan_if_failed(failed, 0.0 * x))(1.0))

"""Environments, optimal control and losses of rollouts by fused kernels equal those by XLA."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
import jaxdae.optimal_control as oc
from jaxdae import envs
from jaxdae.optimal_control.problem import advance
from jaxdae.tuning import RolloutLoss


@pytest.fixture(autouse=True)
def kernels(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXDAE_KERNELS", str(tmp_path))


@jd.tree.pytree
class Driven(jd.System):
    """A mass on a circle (mass, radius), pushed by two forces."""

    mass: Any
    radius: Any

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -9.81]) * self.mass + (0.0 if u is None else u)

    def constraint(self, t, q):
        return jnp.array([0.5 * (q @ q - self.radius**2)])


SYSTEM = Driven(jnp.asarray(1.3), jnp.asarray(1.0))
START = jd.State(jnp.zeros(()), jnp.array([1.0, 0.0]), jnp.zeros(2))
METHOD = jd.Projected(jd.RungeKutta.midpoint())


def close(found, expected):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12), found, expected)


@pytest.mark.long
def test_rollout_losses_and_stages():
    def loss(kernel, segment=None):
        def setup(controls):
            return SYSTEM, METHOD, START, controls

        return RolloutLoss(
            setup,
            lambda _, found: jnp.sum(found.state.q[-1] ** 3),
            dt=0.02,
            steps=4,
            segment=segment,
            kernel=kernel,
        )

    controls = jnp.array([[1.0, 0.5], [-1.0, 2.0], [0.3, 0.2], [1.0, -1.0]])
    many = controls * jnp.linspace(0.5, 1.5, 3)[:, None, None]
    expected, found = (
        jax.jit(jax.vmap(jax.value_and_grad(loss(kernel))))(many) for kernel in (None, jd.Fused())
    )
    close(found, expected)
    law = RolloutLoss(
        lambda gain: (SYSTEM, METHOD, START, lambda t, x: -gain * x.v),
        lambda _, found: found.state.q[-1, 0],
        0.02,
        2,
        kernel=jd.Fused(),
    )
    close(law(jnp.asarray(3.0)), dataclasses.replace(law, kernel=None)(jnp.asarray(3.0)))

    problem = oc.Problem(system=SYSTEM, integrator=METHOD, state=START, dt=0.02, steps=4, every=2)
    stages = [
        jax.vmap(
            jax.jacfwd(
                lambda u, kernel=kernel: advance(dataclasses.replace(problem, kernel=kernel), START, u)[0].v
            )
        )
        for kernel in (None, jd.Fused())
    ]
    close(stages[1](controls), stages[0](controls))


@pytest.mark.exhaustive
def test_environments():
    task = dataclasses.replace(envs.cart_pole(), steps=2)
    plain, by_kernels = envs.Environment(task), envs.Environment(task, kernel=jd.Fused())
    keys = jax.random.split(jax.random.key(0), 5)
    states, _ = jax.jit(jax.vmap(plain.reset))(keys)
    actions = jnp.linspace(-1.0, 1.0, 5)[:, None].at[2, 0].set(jnp.nan)  # One world fails.

    def total(actions, environment):
        found = jax.vmap(envs.AutoReset(environment).step)(keys, states, actions)
        return jnp.sum(found.reward), dataclasses.replace(found, state=found.state.state)

    found, expected = (
        jax.jit(jax.value_and_grad(lambda a, e=e: total(a, e), has_aux=True))(actions)
        for e in (by_kernels, plain)
    )
    close(found, expected)
    assert found[0][1].status[2] != 0


@pytest.mark.exhaustive
def test_ilqr():
    cost = {
        "running": lambda x, u: 0.01 * u @ u,
        "final": lambda x: jnp.sum((x.q - jnp.array([0.6, -0.8])) ** 2),
    }
    problem = oc.Problem(system=SYSTEM, integrator=METHOD, state=START, dt=0.02, steps=5, **cost)
    found, expected = (
        oc.ilqr(dataclasses.replace(problem, kernel=kernel), jnp.zeros((5, 2)))
        for kernel in (jd.Fused(), None)
    )
    np.testing.assert_allclose(found.controls, expected.controls, rtol=0, atol=1e-9)
    assert (found.status, found.iterations) == (expected.status, expected.iterations)

"""Steps that begin at the estimate of the step before (`Origin.SHARED`): order, drift, energy, and
derivatives.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import CrankRocker, double_pendulum, double_pendulum_state

import jaxdae as jd
from jaxdae.integrators.method import of_points

SHARED = jd.Projection(jd.PositionProjection(origin=jd.Origin.SHARED, iterations=2))
AT_ESTIMATE = jd.Projection(jd.PositionProjection(iterations=2))


def swinging():
    return double_pendulum_state(double_pendulum().length, jnp.array([0.7, -0.4]), jnp.array([1.5, -2.0]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "order", "steps"),
    [(jd.SemiImplicitEuler(), 1, 50), pytest.param(jd.RungeKutta.rk4(), 4, 20, marks=pytest.mark.exhaustive)],
    ids=("euler", "rk4"),
)
def test_the_order_is_that_of_the_method(method, order, steps):
    system, start, duration = double_pendulum(), swinging(), 0.2

    def end(projection, steps):
        found = jd.rollout(
            system,
            jd.Projected(method, projection),
            start,
            dt=duration / steps,
            steps=steps,
            save_every=steps,
        )
        jd.raise_if_failed(found)
        return np.asarray(found.state.q[-1])

    exact = end(AT_ESTIMATE, 64 * steps)
    errors = [np.abs(end(SHARED, k * steps) - exact).max() for k in (1, 2)]
    # The reference of order one has 1/64 of the error itself.
    assert abs(np.log2(errors[0] / errors[1]) - order) <= 0.2


@pytest.mark.long
def test_loops_stay_closed_and_the_energy_is_that_of_the_step_at_the_estimate():
    system, start = CrankRocker().build()
    energies = []
    for projection in (SHARED, AT_ESTIMATE):
        found = jd.rollout(
            system, jd.Projected(jd.RungeKutta.rk4(), projection), start, dt=1e-3, steps=400, save_every=40
        )
        jd.raise_if_failed(found)
        # Newton's method at the estimate: 1e-9 of a step of order four, squared, is below round-off.
        assert found.info.violation.max() <= 1e-14
        # J is that of the estimate, which changes of velocities of 1e-9 notice in the order of 1e-18.
        assert found.info.velocity_violation.max() <= 1e-13
        energies.append(np.asarray(jax.vmap(lambda x: jd.energy(system, x))(found.state)))
    drift = np.abs(energies[1] - energies[1][0]).max()
    np.testing.assert_allclose(energies[0], energies[1], rtol=0, atol=max(drift, 1e-12))


@pytest.mark.long
def test_derivatives_are_those_of_what_is_computed():
    integrator = jd.Projected(
        jd.SemiImplicitEuler(), jd.Projection(jd.PositionProjection(origin=jd.Origin.SHARED, iterations=4))
    )

    def end(shift):
        at = dataclasses.replace(swinging(), v=swinging().v + shift)
        return jd.rollout(double_pendulum(), integrator, at, dt=1e-2, steps=3, save_every=3).state.q[-1, 0]

    shift, compiled = jnp.zeros_like(swinging().v), jax.jit(end)
    value, gradient = jax.jit(jax.value_and_grad(end))(shift)
    np.testing.assert_allclose(value, compiled(shift), rtol=1e-13)
    exact = [(compiled(e) - compiled(-e)) / 2e-5 for e in 1e-5 * jnp.eye(4)]
    # Central differences: 1e-10 of truncation and 1e-11 of round-off.
    np.testing.assert_allclose(gradient, exact, rtol=0, atol=1e-9)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::jaxdae.StateWarning")
def test_a_step_goes_on_from_corrected_positions_with_dynamics_at_the_estimate():
    system, method, h = double_pendulum(), jd.SemiImplicitEuler(), 1e-2
    integrator = of_points(jd.Projected(method, SHARED))
    point, _, _ = integrator.advance(system, integrator.begin(system, swinging()), (), None, h)
    assert (
        jnp.abs(system.constraint(point.t, point.estimate)).max()
        >= 1e-5
        >= 1e5 * jnp.abs(system.constraint(point.t, point.q)).max()
    )
    _, _, info = integrator.advance(system, point, (), None, h)
    a, _ = jd.forward_dynamics(system, point.origin)
    np.testing.assert_allclose(info.a, a, rtol=1e-12, atol=1e-12)


def test_methods_that_begin_at_the_state_alone_are_refused():
    with pytest.raises(TypeError, match=r"Origin\.SHARED needs an integrator that starts at the estimate"):
        jd.rollout(double_pendulum(), jd.Projected(jd.Rattle(), SHARED), swinging(), dt=1e-3, steps=1)

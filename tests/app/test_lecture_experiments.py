"""The experiments of the lectures' missing pieces, each against a closed form or a statement of theirs, in
small.
"""

import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae.app import load

ROOT = pathlib.Path(__file__).parents[2]


def experiment(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "experiments" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config, worlds = load(str(ROOT / "configs" / f"{name}.yaml"))
    system, _, start = worlds.one()
    return module, config.experiment, system, start


@pytest.mark.long
def test_a_projection_about_any_point_is_on_the_tangent_there():
    module, _, system, _ = experiment("projection_point")
    angles = jnp.asarray([0.0, 0.2, 1.0])
    found = module.sweep(system, 0.1, angles)
    exact = np.sqrt(1.0 + (1.1 * np.sin(angles)) ** 2)
    np.testing.assert_allclose(np.hypot(*found["linear, once"].T), exact, rtol=0, atol=1e-14)
    # Closed by repeating it, at the place where the line along the point's direction meets the circle.
    x, y = found["iterated, 20"][1]
    np.testing.assert_allclose(
        [np.hypot(x, y), (x - 1.1) * np.sin(0.2) - y * np.cos(0.2)], [1.0, 0.0], rtol=0, atol=1e-12
    )
    assert np.hypot(x - 1.0, y) > 0.019


@pytest.mark.long
def test_sequential_and_projected_steps_err_as_their_series_say():
    module, _, _, _ = experiment("sequential_step")
    steps = np.array([1e-2, 1e-3])
    for angle in (1.0, 2.5):
        found = module.measured(1.0, angle, steps, module.one_step(1.0, angle, jnp.asarray(steps)))
        expected = steps * np.cos(angle) / 2.0
        for name, sign in (("sequential step", -1.0), ("projected step", 1.0)):
            assert np.all(np.abs(found[name][0] - sign * expected) < steps**2)
        np.testing.assert_allclose(
            found["projected step"][1], (steps * np.sin(angle)) ** 2 / 2.0, rtol=1e-3, atol=0
        )
        assert np.max(np.abs(found["projected derivative, RK4"][0])) < 1e-9
        assert np.max(found["sequential step"][1]) < 1e-14


@pytest.mark.long
def test_a_powered_hinge_goes_along_the_tangent():
    module, _, system, start = experiment("powered_hinge")
    betas = jnp.asarray([0.1, 1.0])
    for dt in (1e-3, 1e-4):
        radius, angles = module.radii(system, start, 1.0, betas, 0.5, dt, 40)
        np.testing.assert_allclose(radius[:, 0], module.first(np.asarray(betas), 0.5), rtol=1e-12)
    np.testing.assert_allclose(angles[1, -1], 0.5, rtol=0, atol=1e-12)


@pytest.mark.long
def test_the_function_falls_as_its_formula_says():
    module, given, system, start = experiment("lyapunov")
    opened = module.opened(system, start, jnp.asarray(given["open"]), jnp.zeros(2))
    np.testing.assert_allclose(system.constraint(opened.t, opened.q), given["open"], rtol=0, atol=1e-12)
    found = module.follow(system, opened, 200.0, 20.0, 1e-3, 200)
    assert np.all(np.diff(found["V"]) < 0.0)
    slope = np.gradient(found["V"], 1e-3)[1:-1]
    # Central differences: h^2 / 6 of a third derivative of some (2 alpha)^(3/2) = 8e3 V.
    np.testing.assert_allclose(
        slope, (found["taken"] + found["added"])[1:-1], rtol=0, atol=2e-3 * np.abs(slope).max()
    )
    inward = module.opened(system, start, jnp.asarray(given["open"]), jnp.asarray([-2.0, 0.0]))
    thrown = module.follow(system, inward, 200.0, 1.0, 1e-3, 200)
    assert thrown["V"].max() > 1.1 * thrown["V"][0]


@pytest.mark.exhaustive
def test_stiffer_feedback_takes_more_steps_and_a_projection_none():
    module, _, system, start = experiment("stiffness_cost")
    steps, opening, status = module.cost(system, start, jnp.asarray([1.0, 1000.0]), 1e-4, 1.0)
    assert not status.any()
    assert steps[1] >= 1000.0 / 3.4
    assert steps[1] > 50 * steps[0]
    assert opening[1] < opening[0]
    many, closed = module.projected(system, start, 1e-4, 1.0)
    assert many <= 2 * steps[0]
    assert closed < 1e-14


@pytest.mark.exhaustive
def test_solvers_for_any_rank_pass_a_goal_beside_the_rod():
    module, given, system, start = experiment("singular_goal")
    along = module.Along(*map(jnp.asarray, (given["swing"], given["rate"], 0.0)))
    away = module.Along(*map(jnp.asarray, (given["swing"], given["rate"], given["off"])))
    # The goal's own derivatives say where it leaves the circle.
    assert float(jnp.linalg.norm(along(0.3))) == pytest.approx(1.0, abs=1e-15)
    rank = np.linalg.matrix_rank(
        module.with_goal(system, along).constraint_jacobian(jnp.zeros(()), start.q, start.v)
    )
    assert rank == 2
    # One solver for full rank, and two for any rank: each compiles for seconds.
    for name in ("SchurComplement", "LeastSquares", "ConjugateGradient"):
        found = module.follow(system, start, along, module.SOLVERS[name], 1e-3, 20)
        if list(module.SOLVERS).index(name) < module.FULL_RANK:
            assert found.status != jd.Status.OK, name
        else:
            assert found.status == jd.Status.OK, name
            assert found.away < 1e-12, name
            assert found.shared < 1e-6, name
    assert (
        module.follow(system, start, away, module.SOLVERS["LeastSquares"], 1e-3, 20).status
        == jd.Status.NOT_CONVERGED
    )


@pytest.mark.exhaustive
def test_the_integral_takes_the_offset_away():
    module, _, system, start = experiment("integral_drift")
    start = jd.State(start.t, start.q, jnp.asarray([0.0, 3.0, 0.0]))
    without, within = (module.opening(system, start, (100.0, 20.0, i), 1e-3, 4000) for i in (0.0, 500.0))
    # Per step the mass goes outward by (h v)^2 / 2 and its velocity turns by h v: an acceleration of about h
    # v d + ..., over p.
    assert 5e-4 < without[-1] < 2e-3
    assert abs(within[-1]) < 1e-2 * without[-1]
    half = module.opening(system, start, (100.0, 20.0, 0.0), 5e-4, 8000)
    assert without[-1] / half[-1] == pytest.approx(2.0, rel=0.1)
    # Its memory is no leaf that a batch would share: two worlds have two integrals.
    method = module.WithIntegral(jd.ExplicitEuler(), *map(jnp.asarray, (100.0, 20.0, 500.0)))
    worlds = jax.tree.map(lambda x: jnp.stack([x, x]), start)
    both = jd.batch_rollout(system, method, worlds, dt=1e-3, steps=10, in_axes=(None, None, 0, None))
    np.testing.assert_array_equal(both.state.q[0], both.state.q[1])

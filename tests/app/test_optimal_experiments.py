"""What the experiments `swing_up_ilqr` and `mpc` are made of; the solvers themselves are tested in
tests/optimal_control.
"""

import importlib
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdae.app import load

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiments():
    sys.path.insert(0, str(ROOT / "experiments"))
    yield importlib.import_module
    sys.path.remove(str(ROOT / "experiments"))
    for name in ("swing_up", "swing_up_ilqr", "mpc"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def swing(experiments):
    module = experiments("swing_up_ilqr")
    config, worlds = load(str(ROOT / "configs" / "swing_up_ilqr.yaml"))
    settings = module.Settings.model_validate(config.experiment)
    plain = module.swing_up.Settings.model_validate(
        {name: getattr(settings, name) for name in module.swing_up.Settings.model_fields}
    )
    return module, settings, module.swing_up.task_of(config, plain, worlds)


@pytest.mark.long
def test_the_cost_of_the_swing_up_is_that_of_its_errors_and_its_effort(swing):
    module, settings, task = swing
    problem = module.problem_of(task, settings)
    assert (problem.steps, problem.every, problem.stages, problem.dimension) == (250, 10, 25, 4)
    limits = jnp.asarray(task.limits)
    # With all torques at their limits the mean square of u / limit is one.
    np.testing.assert_allclose(
        sum(problem.running(task.start, limits) for _ in range(25)), settings.effort, rtol=1e-12
    )
    away, rates = task.errors(task.start.q, task.start.v)
    np.testing.assert_allclose(
        problem.final(task.start), 0.5 * (away @ away + 0.01 * rates @ rates), rtol=1e-12
    )


def test_free_variables_give_the_torques_back(swing):
    module, _, task = swing
    torques = task.limits * np.linspace(-1.0, 1.0, 50).reshape(1, 25, 2)
    back = np.asarray(task.torques(jnp.asarray(module.free_variables(task, torques))))
    np.testing.assert_allclose(back, torques, rtol=0, atol=1e-14)
    assert np.all(np.abs(back) <= task.limits)


@pytest.mark.long
def test_the_arm_has_seven_motors_that_hold_it(experiments):
    module = experiments("mpc")
    config, _ = load(str(ROOT / "configs" / "mpc.yaml"))
    assert module.Settings.model_validate(config.experiment).period == 0.01
    system, q = module.arm_of_seven()
    assert (system.n_inputs, q.shape) == (7, (7,))
    # Upright it balances without torque.
    zero = jnp.zeros(7)
    np.testing.assert_allclose(jax.jit(system.force)(jnp.zeros(()), q, zero, zero), 0.0, rtol=0, atol=1e-12)

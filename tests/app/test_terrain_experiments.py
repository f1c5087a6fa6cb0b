"""The experiments `whipple_stability` and `rover_terrain`."""

import importlib.util
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from jaxdae.app import precision
from jaxdae.app.model.load_config import load

ROOT = pathlib.Path(__file__).parents[2]


def experiment(name):
    """Returns a script as a module, and its loaded config."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "experiments" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, *load(str(ROOT / "configs" / f"{name}.yaml"))


@pytest.mark.exhaustive
def test_a_bicycle_has_the_published_eigenvalues():
    module, config, worlds = experiment("whipple_stability")
    plan = module.Settings.model_validate(config.experiment)
    with precision(config):
        system, _, start = worlds.one()
        published = module.LinearBicycle(
            *(jnp.asarray(plan.published[name]) for name in ("M", "C1", "K0", "K2")), plan.gravity
        )
        for v in (0.0, 4.6):
            found = module.state_matrix(system, start.q, jnp.asarray(v / plan.radius))
            # Entries up to 20, from solves with 15 unknowns.
            np.testing.assert_allclose(found, published.state_matrix(v), rtol=0, atol=1e-12)
        critical = module.of_mechanism(system, start.q, plan.radius, plan.gravity).critical_speeds()
        expected = published.critical_speeds()
    assert set(critical) == {"weave", "capsize", "double_root"}
    np.testing.assert_allclose(
        [critical[name] for name in expected], list(expected.values()), rtol=0, atol=1e-12
    )


@pytest.mark.exhaustive
def test_a_rover_drives_where_it_would_be_placed():
    module, config, worlds = experiment("rover_terrain")
    plan = module.Settings.model_validate({**config.experiment, "duration": 0.4})
    with precision(config):
        mechanism, _, start = worlds.one()
        q, report = module.placed(
            mechanism, start.q, jnp.asarray(plan.start.place), jnp.asarray(plan.start.yaw)
        )
        assert report.norm < 1e-14
        drive = module.driven(mechanism, q, plan)
    assert drive.q.shape[0] == 5
    # Four steps of RK4 of 0.1 s, in which angles of the suspension turn at 0.1 rad/s: 1e-8 over the whole
    # drive of 100.
    np.testing.assert_allclose(drive.gap, 0.0, rtol=0, atol=1e-8)
    np.testing.assert_allclose(drive.apart, 0.0, rtol=0, atol=1e-8)
    assert np.all(np.linalg.norm(drive.slip, axis=1) > 1e-3)  # On hills six wheels cannot all roll.

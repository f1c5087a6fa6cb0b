"""The experiment `gripper`: its statics, and blocks that slide or stay."""

import dataclasses
import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdae import contact
from jaxdae.app import load, precision

ROOT = pathlib.Path(__file__).parents[2]


# m g l (sin(a) / mu - cos(a)) - 2 w l cos(a) with cos(a) = 9/20, l = 2/25 m, in 20 digits, in N m.
CRITICAL = 0.50307920994405652


@pytest.fixture(scope="module")
def module():
    spec = importlib.util.spec_from_file_location("gripper", ROOT / "experiments" / "gripper.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_statics_of_the_gripper(module):
    statics = module.Statics(0.4, 0.08 * 9.81, 0.08, np.arccos(0.45), 9.81, 0.4)
    assert abs(statics.critical_torque() - CRITICAL) < 1e-15
    assert abs(statics.acceleration(CRITICAL, 0.4)) < 1e-14
    found = module.critical_torque(lambda x: x < CRITICAL, 0.1, 0.7, 6, passes=17)
    assert abs(found - CRITICAL) < 1e-14


@pytest.mark.exhaustive
def test_a_gripper_holds_or_drops_a_block(module):
    config, worlds = load(str(ROOT / "configs" / "gripper.yaml"), ("coordinates=absolute",))
    statics = module.Statics.of(config.mechanism)
    assert abs(statics.critical_torque() - CRITICAL) < 1e-15
    torques = jnp.asarray([0.8, 1.001]) * statics.critical_torque()
    with precision(config):
        system, method, start = worlds.one()
        method = dataclasses.replace(method, contact_solver=contact.ContactNewton(10))
        at = system.names.coordinates.index("block.y")
        run = jax.jit(lambda x: module.simulate(system, method, start, x, 0.4, config.dt, config.steps))
        found = [run(x) for x in torques]  # without vmap, which compiles longer
        fallen = [float(start.q[at]) - np.asarray(x.state.q)[:, at] for x in found]
    assert not any(np.any(x.info.status) for x in found)
    assert max(np.max(x.info.violation) for x in found) < 1e-15
    # Within a step, the fingers with I = 1.3e-3 kg m^2 swing out and back by T h^2 / (8 I) = 4e-5 rad.
    fall = statics.acceleration(torques[0], 0.4) * config.duration**2 / 2.0
    np.testing.assert_allclose(fallen[0][-1], fall, rtol=1e-4)
    assert np.ptp(fallen[1]) < 3e-10
    assert abs(fallen[1][-1] - fallen[1][9]) < 1e-12

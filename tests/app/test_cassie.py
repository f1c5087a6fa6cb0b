"""The experiment `cassie`: how far loops open in MuJoCo, and that the robot rests and stands here with loops
that stay closed.
"""

import importlib.util
import pathlib

import jax
import numpy as np
import pytest

import jaxdae as jd
from jaxdae.app.config.config_source import read

pytest.importorskip("mujoco", reason="the extra robots is not installed: pip install '.[robots]'")
ROOT = pathlib.Path(__file__).parents[2]
FILE = str(ROOT / "tests" / "reference" / "models" / "cassie.xml")


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location("cassie", ROOT / "experiments" / "cassie.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_soft_equalities_open_and_cost_energy(experiment):
    """The default opens by a tenth of a millimeter and more where the legs move."""
    qvel = np.zeros(32)
    qvel[4], qvel[12] = 2.0, 2.0
    qpos = np.zeros(35)
    qpos[2], qpos[[3, 10, 24]] = 1.1, 1.0
    qpos[14], qpos[28] = np.radians([-45.0, -45.0])
    qpos[16], qpos[30] = np.radians([58.0, 58.0])
    plain, stiff = (experiment.fall_of_mujoco(FILE, qpos, qvel, 400, 40, dt) for dt in (None, 5e-4))
    assert plain.dt == 2e-3
    np.testing.assert_allclose(stiff.time, 0.02 * np.arange(1, 11))
    # What the start leaves open, angles with few digits, closes within a tenth of a second.
    assert plain.opening[5:].max() > 1e-4 > 1e-5 > stiff.opening[5:].max()
    assert np.abs(plain.energy[9]) > 10.0 * np.abs(stiff.energy[-1])


def test_limbs_are_lines_with_gaps(experiment):
    lines = {name: np.ones((3, 2, 3)) for name in ("cassie-pelvis", "left-knee", "right-knee", "left-foot")}
    found = experiment.limbs(lines)
    assert {name: x.shape for name, x in found.items()} == {
        "pelvis": (3, 2, 3),
        "left leg": (3, 5, 3),
        "right leg": (3, 2, 3),
    }
    assert np.all(np.isnan(found["left leg"][:, 2]))


@pytest.mark.exhaustive
def test_it_rests_and_stands_with_closed_loops(experiment):
    section = read(str(ROOT / "configs" / "cassie.yaml")).data["experiment"]
    settings = experiment.Settings.model_validate(section | {"file": FILE})
    standing = experiment.on_blades(settings)
    a, _ = jax.jit(jd.forward_dynamics)(standing.system, standing.rest, standing.torques)
    assert np.abs(a).max() < 1e-7  # 1e-13 of the weight on parts of 1e-6 kg m^2
    start = experiment.pushed(standing, settings.push)
    found = experiment.stand(standing, start, 5e-4, 600, 1)
    assert np.all(np.asarray(found.info.status) == jd.Status.OK)
    assert np.asarray(found.info.violation).max() < 1e-12
    # Pushed at 0.1 m/s and 0.15 m/s the pelvis is on its way back after 0.3 s.
    off = np.linalg.norm(np.asarray(found.state.q)[:, :2] - np.asarray(standing.rest.q)[:2], axis=1)
    assert 0.01 < off.max() < 0.03
    assert off[-1] < off.max()

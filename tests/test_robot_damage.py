"""Damaged robot files are refused with a message, or read; nothing else happens, and no number that is none
comes out.
"""

import pathlib
import random

import numpy as np
import pytest
from robot_mutations import mutated

from jaxdae import robots

MODELS = pathlib.Path(__file__).parents[1] / "configs" / "models"
FILES = ["gripper_arm.urdf", "press.sdf", "biped_leg.xml"]


def damage(name, path, seed, count):
    """Loads mutations of a file; returns how many of them were refused."""
    if name.endswith(".xml"):
        pytest.importorskip("mujoco", reason="the extra robots is not installed: pip install '.[robots]'")
    whole, dice, problems = (MODELS / name).read_bytes(), random.Random(seed), []
    path = path / name
    for _ in range(count):
        path.write_bytes(mutated(whole, dice))
        try:
            description, start, _ = robots.load(path)
        except robots.RobotFileError as error:
            problems.append(error.problems)
            continue
        numbers = [
            np.concatenate([[body.mass], np.ravel(body.inertia), body.place, body.quaternion])
            for body in description.bodies
        ]
        assert np.all(np.isfinite(np.concatenate([*numbers, *map(np.ravel, start.values())])))
        assert min(body.mass for body in description.bodies) >= 0.0
    assert all(str(path) in problem for found in problems for problem in found)
    return len(problems)


@pytest.mark.parametrize("name", FILES)
def test_some_damaged_files(name, tmp_path):
    assert 20 < damage(name, tmp_path, 0, 40) < 40


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::jaxdae.mechanisms.describe.bodies.DescriptionWarning")
@pytest.mark.parametrize("name", FILES)
def test_three_hundred_damaged_files(name, tmp_path):
    assert 150 < damage(name, tmp_path, 1, 300) < 300


def test_files_that_name_each_other_or_lead_elsewhere(tmp_path):
    """Models that include themselves, entities, links out of the folder."""
    path, outside = tmp_path / "robot" / "a.sdf", tmp_path / "secret.sdf"
    path.parent.mkdir()
    outside.write_text("<sdf version='1.9'><model name='m'><link name='l'/></model></sdf>")

    def refused(text):
        path.write_text(text)
        with pytest.raises(robots.RobotFileError) as error:
            robots.load(path)
        return str(error.value)

    def include(uri):
        return (
            "<sdf version='1.9'><model name='m'><link "
            f"name='b'/><include><uri>{uri}</uri></include></model></sdf>"
        )

    assert "files include each other in a cycle: a.sdf -> a.sdf" in refused(include("a.sdf"))
    assert "is outside the folder of the robot" in refused(include("../secret.sdf"))
    assert "is outside the folder of the robot" in refused(include(f"file://{outside}"))
    (path.parent / "link.sdf").symlink_to(outside)
    assert "is outside the folder of the robot" in refused(include("link.sdf"))
    assert "the package or model 'gone' was not found; give its folder as packages={'gone': ...}" in refused(
        include("model://gone")
    )
    bomb = "<!DOCTYPE s [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;&a;'>]><sdf version='1.9'>&b;</sdf>"
    assert "document types and entities are not supported; remove them" in refused(bomb)
    path.write_text(include("model://far/secret.sdf"))
    assert "m::l" in robots.load(path, packages={"far": tmp_path}).report.frames

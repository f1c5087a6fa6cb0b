"""Contacts of MJCF files: the pairs that MuJoCo lets touch, its distances, friction, and a fall to the ground."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import contact, robots
from jaxdae import mechanisms as jm

mujoco = pytest.importorskip("mujoco")

FLOOR = '<geom name="floor" type="plane" size="1 1 1" friction="0.7"/>'
SCENE = f"""<mujoco><worldbody>{FLOOR}
  <body name="box" pos="0 0 0.3" euler="20 10 0"><freejoint/>
    <geom name="shell" type="box" size="0.1 0.15 0.2" pos="0.02 0 0" euler="0 0 30" mass="1" friction="0.3"/>
    <body name="arm" pos="0.3 0 0"><joint name="elbow" type="hinge" axis="0 1 0"/>
      <geom name="rod" type="capsule" fromto="0 0 0 0.3 0 0.05" size="0.03" mass="0.2"/></body></body>
  <body name="ball" pos="1 0 0.5"><freejoint/><geom name="ball" type="sphere" size="0.1" mass="0.5"/></body>
</worldbody></mujoco>"""


def loaded(tmp_path, text, **options):
    path = tmp_path / "scene.xml"
    path.write_text(text)
    return path, robots.load(path, **options)


def pairs(robot):
    return {one.name: one for one in robot.description.contacts}


@pytest.mark.long
def test_gaps_are_the_distances_of_mujoco(tmp_path):
    path, robot = loaded(tmp_path, SCENE, contacts=True)
    assert set(pairs(robot)) == {"floor/shell", "floor/rod", "floor/ball", "shell/ball", "rod/ball"}
    mechanism, q = jm.mechanism(robot.description, jm.Joints())
    state = robots.joint_state(mechanism, q, robot.start)
    gaps = dict(zip(mechanism.gap_names, np.asarray(mechanism.touch(state.t, state.q).gap), strict=True))
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    for name in pairs(robot):
        ids = [model.geom(geom).id for geom in name.split("/")]
        distance = mujoco.mj_geomDistance(model, data, *ids, 10.0, np.zeros(6))
        smallest = min(gap for key, gap in gaps.items() if key.split(".")[0] == name)
        np.testing.assert_allclose(smallest, distance, atol=1e-6)  # MuJoCo's own tolerance for boxes.
    assert "contacts: 5 pairs of geoms" in str(robot.report)
    assert not any(one.what == "geom" for one in robot.report.ignored)


def test_friction_and_filters_are_those_of_mujoco(tmp_path):
    geom = '<geom name="{}" type="sphere" size="0.1" mass="1" {}/>'
    bodies = [
        ("low", 'friction="0.2"'),
        ("high", 'friction="0.2" priority="1"'),
        ("smooth", 'condim="1"'),
        ("off", 'contype="0" conaffinity="0"'),
        ("apart", ""),
    ]
    world = "".join(
        f'<body name="{name}_link" pos="{k} 0 1"><freejoint/>{geom.format(name, options)}</body>'
        for k, (name, options) in enumerate(bodies)
    )
    floor = FLOOR.replace("/>", ' condim="1"/>')
    text = f"""<mujoco><worldbody>{floor}{world}</worldbody><contact>
      <exclude body1="low_link" body2="apart_link"/>
      <pair geom1="off" geom2="low" friction="0.45 0.45 0 0 0"/></contact></mujoco>"""
    found = pairs(loaded(tmp_path, text, contacts=True)[1])
    assert found["floor/low"].friction == 0.7
    assert found["floor/high"].friction == 0.2
    assert found["floor/smooth"].friction == 0.0
    assert found["low/off"].friction == 0.45  # MuJoCo orders the geoms of a pair.
    assert "low/apart" not in found
    assert not any("off" in name for name in found if name != "low/off")
    named = pairs(loaded(tmp_path, text, contacts=["floor"])[1])
    assert set(named) == {"floor/low", "floor/high", "floor/smooth", "floor/apart"}


def test_welded_bodies_neighbors_and_unsupported_shapes_have_no_contacts(tmp_path):
    box = '<geom name="{}" type="box" size="0.1 0.1 0.1" mass="1"/>'
    text = f"""<mujoco><worldbody>{FLOOR}<body name="a" pos="0 0 1"><freejoint/>{box.format("one")}
      <body name="b">{box.format("two")}<body name="c"><joint type="hinge"/>{box.format("three")}</body></body></body>
      <body name="d" pos="2 0 1"><freejoint/>{box.replace("box", "ellipsoid").format("four")}</body>
      </worldbody></mujoco>"""
    _, robot = loaded(tmp_path, text, contacts=True)
    assert set(pairs(robot)) == {f"floor/{name}" for name in ("one", "two", "three", "four")}
    assert "contacts between box and ellipsoid are not supported: 3 pairs of geoms" in robot.report.notes


def test_unknown_names_raise(tmp_path):
    with pytest.raises(ValueError, match=r"'flor', which is not a geom or link.*did you mean 'floor'"):
        loaded(tmp_path, SCENE, contacts=["flor"])


@pytest.mark.exhaustive
def test_a_robot_falls_and_comes_to_rest_on_the_floor(tmp_path):
    _, robot = loaded(tmp_path, SCENE, contacts=["floor"])
    mechanism, q = jm.mechanism(robot.description, jm.Joints())
    start = robots.joint_state(mechanism, q, robot.start)
    found = jd.rollout(
        mechanism, contact.Touching(jd.RungeKutta.rk4(unroll=False)), start, dt=2e-3, steps=1500
    )
    assert (found.info.status == 0).all()
    states = jax.tree.map(lambda x: x[np.array([0, 750, 1499])], found.state)
    energy = jax.jit(jax.vmap(lambda state: jd.energy(mechanism, state)))(states)
    assert energy[0] > energy[1] >= energy[2] - 1e-6
    assert found.info.gap.min() > -1e-3
    assert jnp.abs(found.info.gap[-1]).min() < 1e-9

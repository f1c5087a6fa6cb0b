"""What robot files show: shapes in the frames of links, in the place of those that follow from joints."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae
from jaxdae import mechanisms as jm
from jaxdae import robots, viewer

INERTIA = (
    '<inertial><origin xyz="0.1 0 0"/><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" '
    'ixz="0" iyz="0"/></inertial>'
)
URDF = f"""<robot name="r">
  <material name="red"><color rgba="1 0 0 1"/></material>
  <link name="base"/>
  <link name="arm">{INERTIA}
    <visual>
      <origin xyz="0 0 0.5" rpy="0 0 1.5707963267948966"/>
      <geometry><box size="2 0.2 0.4"/></geometry><material name="red"/>
    </visual>
    <visual><geometry><mesh filename="package://nowhere/arm.stl"/></geometry></visual>
  </link>
  <link name="tool">{INERTIA}
    <visual><geometry><sphere radius="0.25"/></geometry></visual>
  </link>
  <joint name="shoulder" type="continuous"><parent link="base"/><child link="arm"/><axis xyz="0 0 1"/></joint>
  <joint name="glue" type="fixed"><parent link="arm"/><child link="tool"/><origin xyz="1 0 0"/></joint>
</robot>"""

MJCF = """<mujoco><asset><mesh name="tip" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/></asset><worldbody><body name="arm">
  <joint name="shoulder" axis="0 0 1"/><inertial pos="0.1 0 0" mass="1" diaginertia="1 1 1"/>
  <geom type="box" size="1 0.1 0.2" pos="0 0 0.5" rgba="0 1 0 1" contype="0"/>
  <geom type="capsule" size="0.1 0.5" group="3"/>
  <geom type="mesh" mesh="tip"/>
</body></worldbody></mujoco>"""


SDF = """<sdf version="1.9"><model name="r"><link name="base"/>
  <link name="arm"><pose>0 0 1 0 0 0</pose><inertial><pose>0.1 0 0 0 0 0</pose><mass>1</mass></inertial>
    <visual name="bar"><pose>0 0 0.5 0 0 1.5707963267948966</pose><geometry><box><size>2 0.2 0.4</size></box></geometry>
      <material><diffuse>0 0 1 1</diffuse></material></visual>
    <visual name="end"><pose relative_to="tip">0 0 0 0 0 0</pose><geometry><sphere><radius>0.25</radius></sphere></geometry></visual>
    <visual name="lost"><geometry><mesh><uri>model://nowhere/arm.dae</uri></mesh></geometry></visual>
  </link>
  <frame name="tip" attached_to="arm"><pose>1 0 0 0 0 0</pose></frame>
  <joint name="foot" type="fixed"><parent>world</parent><child>base</child></joint>
  <joint name="shoulder" type="revolute"><parent>base</parent><child>arm</child><axis><xyz>0 0 1</xyz></axis></joint>
</model></sdf>"""


def shown(path):
    """Returns the parts of the scene of a file that are not from joints, and what cannot be found."""
    robot = robots.load(path)
    mechanism, q = jm.mechanism(robot.description, jm.Joints())
    states = jaxdae.State(jnp.zeros(1), q[None], jnp.zeros((1, len(mechanism.names.velocities))))
    visuals, missing = robots.read_visuals(path)
    scene, wrong = viewer.with_robot(viewer.scene(mechanism, states), robot.report, visuals)
    return (
        {part.color: part.mesh.vertices for part in scene.parts if "/file" in part.name},
        [*missing, *wrong],
        scene,
    )


def test_shapes_of_a_urdf_stand_in_the_frames_of_bodies(tmp_path):
    (tmp_path / "r.urdf").write_text(URDF)
    parts, missing, scene = shown(tmp_path / "r.urdf")
    # Both links are one body, whose frame is at its mass center, (0.6, 0, 0) from the shoulder: (0.1 + 1.1) /
    # 2.
    red = parts[(255, 0, 0)]
    np.testing.assert_allclose(red.max(axis=0), [0.1 - 0.6, 1.0, 0.7], rtol=0, atol=1e-12)
    np.testing.assert_allclose(red.min(axis=0), [-0.1 - 0.6, -1.0, 0.3], rtol=0, atol=1e-12)
    (sphere,) = (vertices for color, vertices in parts.items() if color != (255, 0, 0))
    np.testing.assert_allclose(sphere[:, 2].max(), 0.25)
    np.testing.assert_allclose(
        0.5 * (sphere.min(axis=0) + sphere.max(axis=0)), [0.4, 0, 0], rtol=0, atol=1e-9
    )
    assert missing == [
        "the package or model 'nowhere' was not found; give its folder as packages={'nowhere': ...}"
    ]
    # The bar that follows from joints is gone.
    assert "arm" not in {part.name for part in scene.parts}


def test_shapes_of_an_sdf_stand_in_links_or_in_frames(tmp_path):
    (tmp_path / "r.sdf").write_text(SDF)
    parts, missing, _ = shown(tmp_path / "r.sdf")
    # In the body's frame, which is at the mass center, 0.1 m along x of the link.
    blue = parts[(0, 0, 255)]
    np.testing.assert_allclose(
        [blue.min(axis=0), blue.max(axis=0)], [[-0.2, -1.0, 0.3], [0.0, 1.0, 0.7]], rtol=0, atol=1e-12
    )
    (sphere,) = (vertices for color, vertices in parts.items() if color != (0, 0, 255))
    np.testing.assert_allclose(
        0.5 * (sphere.min(axis=0) + sphere.max(axis=0)), [0.9, 0, 0], rtol=0, atol=1e-9
    )
    assert missing == [
        "the package or model 'nowhere' was not found; give its folder as packages={'nowhere': ...}"
    ]


def test_shapes_of_an_mjcf_are_those_of_its_compiler(tmp_path):
    pytest.importorskip("mujoco", reason="needs mujoco: pip install '.[robots]'")
    (tmp_path / "r.xml").write_text(MJCF)
    parts, missing, _ = shown(tmp_path / "r.xml")
    assert not missing
    green = parts[(0, 255, 0)]
    np.testing.assert_allclose(
        [green.min(axis=0), green.max(axis=0)], [[-1.1, -0.1, 0.3], [0.9, 0.1, 0.7]], rtol=0, atol=1e-12
    )
    # The compiler moves a mesh to its mass center, and its geom there: together it is where the file has it.
    # Group 3 is for contacts.
    (mesh,) = (vertices for color, vertices in parts.items() if color != (0, 255, 0))
    np.testing.assert_allclose(
        [mesh.min(axis=0), mesh.max(axis=0)], [[-0.1, 0, 0], [0.9, 1, 1]], rtol=0, atol=1e-6
    )


def test_files_of_meshes(tmp_path):
    trimesh = pytest.importorskip("trimesh", reason="needs trimesh: make test-viewer installs it")
    trimesh.creation.box((2.0, 1.0, 1.0)).export(tmp_path / "arm.stl")
    mesh, bad = ('<mesh filename="arm.stl" scale="0.5 1 1"/>', '<mesh filename="bad.obj"/>')
    (tmp_path / "r.urdf").write_text(
        URDF.replace('<box size="2 0.2 0.4"/>', mesh).replace(
            '<mesh filename="package://nowhere/arm.stl"/>', bad
        )
    )
    parts, missing, _ = shown(tmp_path / "r.urdf")
    np.testing.assert_allclose(np.ptp(parts[(255, 0, 0)], axis=0), [1.0, 1.0, 1.0], rtol=0, atol=1e-6)
    assert len(missing) == 1
    assert "does not exist" in missing[0]

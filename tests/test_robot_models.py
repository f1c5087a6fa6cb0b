"""Our own models in configs/models: what moves, what closes loops, and where links are."""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae import robots
from jaxdae.mechanisms import spatial as js

MODELS = pathlib.Path(__file__).parents[1] / "configs" / "models"
PINS = [
    js.Ball("pin_left", "lower_left", "finger_left", point_a=(0.03, 0.0, 0.05), point_b=(0.025, 0.0, 0.0)),
    js.Ball(
        "pin_right", "lower_right", "finger_right", point_a=(-0.03, 0.0, 0.05), point_b=(-0.025, 0.0, 0.0)
    ),
]
# Name: loops that are given, velocities, rows, mobility.
EXPECTED = {
    "gripper_arm.urdf": ((), 5, 1, 4),
    "four_bar_gripper.urdf": (PINS, 6, 5, 1),
    "delta.sdf": ((), 18, 15, 3),
    "press.sdf": ((), 5, 0, 5),
    "stewart.xml": ((), 24, 18, 6),
    "biped_leg.xml": ((), 18, 5, 13),
}


def test_all_models_are_here():
    assert {path.name for path in MODELS.iterdir()} == set(EXPECTED)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "gripper_arm.urdf",
        "press.sdf",
        "biped_leg.xml",
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in ("four_bar_gripper.urdf", "delta.sdf", "stewart.xml")
        ),
    ],
)
def test_mobility_and_independent_rows(name):
    if name.endswith(".xml"):
        pytest.importorskip("mujoco")
    loops, velocities, rows, mobility = EXPECTED[name]
    robot = robots.load(MODELS / name, loops=loops, strict=name not in ("gripper_arm.urdf",))
    mechanism, q = jm.mechanism(robot.description, jm.Joints())
    state = robots.joint_state(mechanism, q, robot.start)
    jacobian = np.asarray(mechanism.constraint_jacobian(state.t, state.q, state.v))
    assert jacobian.shape == (rows, velocities)
    assert np.linalg.matrix_rank(jacobian) == rows == velocities - mobility
    np.testing.assert_allclose(mechanism.constraint(state.t, state.q), 0.0, rtol=0, atol=1e-14)


@pytest.mark.long
def test_loops_that_are_open_in_the_file_are_closed_at_the_start():
    """A pin that is 5 mm off: the start closes it, and the report says so; one that is out of reach is a
    mistake.
    """
    longer = js.Ball(
        "pin_left", "lower_left", "finger_left", point_a=(0.03, 0.0, 0.055), point_b=(0.025, 0.0, 0.0)
    )
    robot = robots.load(MODELS / "four_bar_gripper.urdf", loops=[longer, PINS[1]])
    assert any("up to 5 mm (pin_left)" in note for note in robot.report.notes)
    mechanism, q = jm.mechanism(robot.description, jm.Joints())
    state = robots.joint_state(mechanism, q, robot.start)
    np.testing.assert_allclose(mechanism.constraint(state.t, state.q), 0.0, rtol=0, atol=1e-9)
    away = js.Ball(
        "pin_left", "lower_left", "finger_left", point_a=(0.03, 0.0, 0.5), point_b=(0.025, 0.0, 0.0)
    )
    with pytest.raises(
        robots.RobotFileError, match=r"loop 'pin_left' is open by 450 mm .* assembly failed: .*pin_left by"
    ):
        robots.load(MODELS / "four_bar_gripper.urdf", loops=[away])
    across = js.Ball(
        "pin_left", "lower_left", "finger_left", point_a=(0.03, 0.01, 0.05), point_b=(0.025, 0.0, 0.0)
    )
    with pytest.raises(
        robots.RobotFileError, match="open by -10 mm along its hinges, which are all parallel"
    ):
        robots.load(MODELS / "four_bar_gripper.urdf", loops=[across])


@pytest.mark.long
def test_loops_stay_closed_where_joints_follow_others_with_an_offset(tmp_path):
    """In the pose of the file the loop is closed, and the follower is not where it is to be: the start has
    both, or there is none.
    """
    inertial = '<inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1"/></inertial>'
    links = '<link name="w"/>' + "".join(f'<link name="{name}">{inertial}</link>' for name in "abc")
    hinge = (
        '<joint name="{}" type="revolute"><origin xyz="{}"/><parent link="{}"/><child link="{}"/><axis '
        'xyz="0 0 1"/>{}</joint>'
    )
    second, third = (
        '<mimic joint="j1" multiplier="0.5" offset="0.3"/>',
        hinge.format("j3", "1 0.5 0", "b", "c", ""),
    )

    def loaded(rest, held):
        bars = hinge.format("j1", "0 0 0", "w", "a", "") + hinge.format("j2", "1 0 0", "a", "b", second)
        (tmp_path / "robot.urdf").write_text(f'<robot name="r">{links}{bars}{rest}</robot>')
        return robots.load(tmp_path / "robot.urdf", loops=[held])

    slide = js.PointOnLine("slot", "w", "c", axis=(1.0, 0.0, 0.0), at=(2.5, 1.0, 0.0))
    robot = loaded(third, slide)
    assert any("loops were open at the start, by up to" in note for note in robot.report.notes)
    mechanism, q = jm.mechanism(robot.description, jm.Joints())
    state = robots.joint_state(mechanism, q, robot.start)
    np.testing.assert_allclose(mechanism.constraint(state.t, state.q), 0.0, rtol=0, atol=1e-9)
    assert robot.start["j2"] == pytest.approx(0.5 * robot.start["j1"] + 0.3, abs=1e-9)
    with pytest.raises(robots.RobotFileError, match=r"is open by .* at the start, and assembly failed"):
        loaded(hinge.format("j3", "1 0 0", "b", "c", ""), js.Ball("pin", "w", "c", at=(-9.0, 0.0, 0.0)))


def test_loops_that_are_no_loops():
    path = MODELS / "four_bar_gripper.urdf"
    with pytest.raises(
        ValueError, match=r"loops names 'finger', which is not a joint of four_bar_gripper\.urdf"
    ):
        robots.load(path, loops=["finger"])
    with pytest.raises(
        ValueError, match=r"loop 'x': b is 'pat_left', which is not a link \(did you mean 'pad_left'\?\)"
    ):
        robots.load(path, loops=[js.Ball("x", "palm", "pat_left", at=(0, 0, 0))])
    with pytest.raises(ValueError, match=r"loop 'x': point_a must be three finite numbers .*got 3"):
        robots.load(path, loops=[js.Ball("x", "palm", "pad_left", point_a=3, point_b=(0, 0, 0))])
    with pytest.raises(ValueError, match="loop 'x' needs a position: give at or point_b"):
        robots.load(path, loops=[js.Ball("x", "palm", "pad_left", point_a=(0, 0, 0))])
    with pytest.raises(
        ValueError,
        match="loops must contain joints with rows between two links, or names of joints in the file, got",
    ):
        robots.load(path, loops=[3])
    for loops in ([js.Ball("lower_left_joint", "palm", "pad_left", at=(0, 0, 0))], PINS[:1] * 2):
        with pytest.raises(
            ValueError, match=rf"loop '{loops[0].name}': a joint already has this name; rename the loop"
        ):
            robots.load(path, loops=loops)


@pytest.mark.long
def test_a_joint_of_the_file_may_close_a_loop():
    robot = robots.load(MODELS / "delta.sdf", loops=["motor0"])
    assert "motor0" in robot.description.loops
    mechanism, q = jm.mechanism(robot.description, jm.Joints())
    state = robots.joint_state(mechanism, q, robot.start)
    jacobian = np.asarray(mechanism.constraint_jacobian(state.t, state.q, state.v))
    assert jacobian.shape[1] - np.linalg.matrix_rank(jacobian) == 3


@pytest.mark.long
def test_hinges_in_a_loop_are_reduced_where_nothing_acts_along_them():
    hinges = [
        js.Revolute("pin_left", "lower_left", "finger_left", axis=(0, 1, 0), at=(0.075, 0.0, 0.06)),
        PINS[1],
    ]
    robot = robots.load(MODELS / "four_bar_gripper.urdf", loops=hinges)
    assert [(loop.rows, loop.rows_in_file) for loop in robot.report.loops] == [(2, 5), (2, 3)]
    damped = [
        js.Revolute(
            "pin_left", "lower_left", "finger_left", axis=(0, 1, 0), at=(0.075, 0.0, 0.06), damping=0.1
        )
    ]
    assert [
        loop.rows for loop in robots.load(MODELS / "four_bar_gripper.urdf", loops=damped).report.loops
    ] == [5]


FLAT = {  # what closes a chain of so many parallel hinges, and how many rows are independent
    "weld": (4, lambda end: js.Weld("end", end, "ground", at=(0.3, 0.1, 0.2)), 3),
    "slider across": (
        3,
        lambda end: js.Prismatic("end", end, "ground", axis=(0.6, 0.0, 0.8), at=(0.3, 0.1, 0.2)),
        2,
    ),
    "slider along": (
        4,
        lambda end: js.Prismatic("end", end, "ground", axis=(0.0, 1.0, 0.0), at=(0.3, 0.1, 0.2)),
        3,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["weld", "slider across", pytest.param("slider along", marks=pytest.mark.exhaustive)]
)
def test_welds_and_sliders_of_planar_loops_are_reduced(name, tmp_path):
    """To as many rows as there are independent ones, which leave the same motions."""
    count, closing, rank = FLAT[name]
    box = (
        '<inertial><origin xyz="0.1 0.02 0"/><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" '
        'ixz="0" iyz="0"/></inertial>'
    )
    links, hinges = ['<link name="l0"/>'], []
    for k in range(count):
        links.append(f'<link name="l{k + 1}">{box}</link>')
        at = f'<origin xyz="0.1 {0.03 * k} {0.1 * (k % 2)}" rpy="0 {0.3 * k} 0"/><axis xyz="0 1 0"/>'
        hinges.append(
            f'<joint name="j{k}" type="continuous"><parent link="l{k}"/><child link="l{k + 1}"/>{at}</joint>'
        )
    path = tmp_path / "chain.urdf"
    path.write_text(f"<robot>{''.join(links + hinges)}</robot>")
    robot = robots.load(path, loops=[closing(f"l{count}")])
    (loop,) = robot.report.loops
    assert (loop.rows, loop.rows_in_file) == (rank, 6 if name == "weld" else 5)
    hinged = [joint for joint in robot.description.joints if not joint.name.startswith("end")]
    whole = dataclasses.replace(robot.description, joints=[*hinged, closing(f"l{count}")], loops=("end",))
    spaces = []
    for description in (robot.description, whole):
        mechanism, q = jm.mechanism(description, jm.Joints())
        jacobian = np.asarray(mechanism.constraint_jacobian(jnp.zeros(()), q, 0.0 * q))
        np.testing.assert_allclose(mechanism.constraint(jnp.zeros(()), q), 0.0, rtol=0, atol=1e-15)
        spaces.append(np.linalg.pinv(jacobian, rcond=1e-9) @ jacobian)
    assert np.linalg.matrix_rank(spaces[0], tol=1e-9) == rank
    np.testing.assert_allclose(spaces[0], spaces[1], rtol=0, atol=1e-12)


@pytest.mark.long
def test_pinocchio_orders_joints_by_name_and_mujoco_as_in_the_file(tmp_path):
    """With a continuous joint as cosine and sine, and a base velocity in the axes of the base. MuJoCo 4.0 has
    a before b here.
    """
    box = (
        '<inertial><origin xyz="0.1 0.2 0"/><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" '
        'ixz="0" iyz="0"/></inertial>'
    )
    parts = [f'<link name="{name}">{box}</link>' for name in ("root", "late", "early")]
    for name, kind, child in (("a", "continuous", "early"), ("b", "revolute", "late")):
        parts.append(
            f'<joint name="{name}" type="{kind}"><parent link="root"/><child link="{child}"/></joint>'
        )
    path = tmp_path / "robot.urdf"
    path.write_text(f"<robot>{''.join(parts)}</robot>")
    robot = robots.load(path, base="floating")
    mechanism, _ = jm.mechanism(robot.description, jm.Joints())
    quaternion = np.asarray([0.5, -0.5, 0.5, 0.5])
    rotation = robots.quaternion_matrix(quaternion)
    place, linear, omega = (
        np.asarray([1.0, 2.0, 3.0]),
        np.asarray([0.1, -0.2, 0.3]),
        np.asarray([1.0, 2.0, -1.0]),
    )
    q = np.concatenate([place, np.roll(quaternion, -1), [np.cos(2.0), np.sin(2.0)], [0.4]])
    v = np.concatenate([linear, omega, [0.7, -0.6]])
    state = robots.from_pinocchio(robot.report, mechanism, q, v)
    names = mechanism.names.coordinates
    assert state.q[names.index("a.angle")] == pytest.approx(2.0, abs=1e-15)
    assert state.q[names.index("b.angle")] == 0.4
    np.testing.assert_array_equal(state.q[:7], [*place, *quaternion])
    np.testing.assert_allclose(state.v[:6], [*(rotation @ linear), *omega], rtol=0, atol=1e-15)
    # A body that no joint connects moves by its mass center instead of the frame of the link; another frame
    # of it serves as well.
    bare = dataclasses.replace(robot.description, joints=robot.description.joints[1:])
    turned = js.Free("root", "ground", "root", (0.3, 0.1, -0.2), (0.5, 0.5, -0.5, 0.5))
    framed = dataclasses.replace(bare, joints=[turned, *bare.joints])
    by_center, by_frame = (jm.mechanism(description, jm.Joints())[0] for description in (bare, framed))
    center, there = np.asarray([0.1, 0.2, 0.0]), robots.from_pinocchio(robot.report, by_center, q, v)
    np.testing.assert_allclose(there.q[:3], place + rotation @ center, rtol=0, atol=1e-15)
    np.testing.assert_allclose(there.v[:3], rotation @ (linear + np.cross(omega, center)), rtol=0, atol=1e-15)
    for system, of in (
        (mechanism, state),
        (by_center, there),
        (by_frame, robots.from_pinocchio(robot.report, by_frame, q, v)),
    ):
        for ours, theirs in zip(robots.to_pinocchio(robot.report, system, of), (q, v), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-15)
        back = jm.to_joints(system, jm.to_absolute(system, of))
        np.testing.assert_allclose(back.v, of.v, rtol=0, atol=1e-14)
        np.testing.assert_allclose(system.frames(back.q), mechanism.frames(state.q), rtol=0, atol=1e-14)
    qpos, qvel = robots.to_mujoco(robot.report, mechanism, state)
    np.testing.assert_allclose(qpos, [*place, *quaternion, 2.0, 0.4], rtol=0, atol=1e-15)
    np.testing.assert_allclose(qvel, [*(rotation @ linear), *omega, 0.7, -0.6], rtol=0, atol=1e-15)
    # The origin of the link moves as both say, by differences.
    ahead = mechanism.retract(state.q, 1e-6 * state.v)
    moved = robots.to_mujoco(robot.report, mechanism, jaxdae.State(state.t, ahead, state.v))[0][:3]
    np.testing.assert_allclose((moved - qpos[:3]) / 1e-6, rotation @ linear, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match=r"Pinocchio: positions must have the shape \(10,\), got \(9,\)"):
        robots.from_pinocchio(robot.report, mechanism, q[:-1])
    absolute, _ = jm.mechanism(robot.description)
    with pytest.raises(
        TypeError,
        match=r"the mechanism has no joint coordinate of 'a'; build the mechanism from this robot with jm\.Joints\(\)",
    ):
        robots.to_mujoco(robot.report, absolute, state)


@pytest.mark.long
def test_bodies_without_mass_need_joint_coordinates():
    bodies = [
        js.Body("cross", 0.0, (0.0, 0.0, 0.0)),
        js.Body("hand", 1.0, (0.1, 0.2, 0.3), place=(0.3, 0.2, 0.1)),
    ]
    joints = [
        js.Revolute("first", "ground", "cross", axis=(1, 0, 0), at=(0, 0, 0)),
        js.Revolute("second", "cross", "hand", axis=(0, 1, 0), at=(0, 0, 0)),
    ]
    one = js.Universal("both", "ground", "hand", axis=(1, 0, 0), second=(0, 1, 0), at=(0, 0, 0))
    split, q = jm.spatial_mechanism(bodies, joints, coordinates=jm.Joints())
    whole, _ = jm.spatial_mechanism(bodies[1:], [one], coordinates=jm.Joints())
    q, v = q + jnp.asarray([0.3, -0.4]), jnp.asarray([1.0, 2.0])

    @jax.jit
    def a(mechanism):
        return jaxdae.forward_dynamics(
            mechanism, jaxdae.State(jnp.zeros(()), q, v), None, solver=jaxdae.SchurComplement()
        )[0]

    np.testing.assert_allclose(a(split), a(whole), rtol=1e-13)
    with pytest.raises(
        ValueError,
        match=r"body 'cross': mass must be a positive number, got 0\.0 \(only joint .*; body 'cross': inertia "
        r"must be positive",
    ):
        jm.spatial_mechanism(bodies, joints)
    with pytest.raises(ValueError, match=r"Description\.loops: 'ring' is not a joint"):
        jm.mechanism(
            jm.Description(space=jm.SPACE, bodies=bodies, joints=joints, loops=("ring",)), jm.Joints()
        )


@pytest.mark.long
def test_quantities_by_name():
    """Velocities are the rates of places, accelerations those of velocities, momentum that of the parts; by
    differences.
    """
    robot = robots.load(MODELS / "press.sdf")
    mechanism, q = jm.mechanism(robot.description, jm.Joints())
    positions = {"spindle": 0.3, "thread": 2.0, "gimbal": (0.4, -0.3), "stroke": 0.02}
    state = robots.joint_state(
        mechanism, q, positions, {"spindle": 1.0, "thread": -3.0, "gimbal": (2.0, 0.7), "stroke": 0.4}
    )
    a = jnp.asarray([0.5, -1.0, 0.3, 2.0, 0.1])

    @jax.jit
    def everything(h):
        here = jaxdae.State(state.t + h, state.q + h * state.v + h * h / 2 * a, state.v + h * a)
        place, rotation = robots.link_frame(robot.report, mechanism, here.q, "face")
        return {
            "place": place,
            "rotation": rotation,
            "velocity": robots.link_velocity(robot.report, mechanism, here, "face"),
            "acceleration": robots.link_acceleration(robot.report, mechanism, here, a, "face"),
            "jacobian": robots.link_jacobian(robot.report, mechanism, here.q, "face"),
            "center": robots.center_of_mass(mechanism, here.q),
            "center_jacobian": robots.center_of_mass_jacobian(mechanism, here.q),
            "momentum": robots.centroidal_momentum(mechanism, here),
            "tau": robots.inverse_dynamics(mechanism, here, a),
            "bias": robots.nonlinear_effects(mechanism, here),
            "mass": mechanism.mass_matrix(here.q),
        }

    here, ahead, behind = everything(0.0), everything(1e-5), everything(-1e-5)
    rate = jax.tree.map(lambda x, y: (x - y) / 2e-5, ahead, behind)
    spin = rate["rotation"] @ here["rotation"].T
    np.testing.assert_allclose(here["velocity"][:3], rate["place"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(here["velocity"][3:], [spin[2, 1], spin[0, 2], spin[1, 0]], rtol=0, atol=1e-8)
    np.testing.assert_allclose(here["acceleration"], rate["velocity"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(here["jacobian"] @ state.v, here["velocity"], rtol=0, atol=1e-13)
    np.testing.assert_allclose(here["center_jacobian"] @ state.v, rate["center"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        here["momentum"][:3], jnp.sum(mechanism.mass) * rate["center"], rtol=0, atol=1e-7
    )
    np.testing.assert_allclose(here["tau"], here["mass"] @ a + here["bias"], rtol=0, atol=1e-13)
    place, rotation = robots.link_frame(robot.report, mechanism, q, "column")
    np.testing.assert_allclose(place, [0.0, 0.0, 1.2])
    np.testing.assert_allclose(rotation[:2, 0], [np.cos(0.3), np.sin(0.3)])
    np.testing.assert_array_equal(robots.link_velocity(robot.report, mechanism, state, "column"), np.zeros(6))
    output, arm = (
        robots.LinkPlace.named(robot.report, mechanism, "face", (0.1, 0.0, 0.0)),
        jnp.asarray([0.1, 0.0, 0.0]),
    )
    place, rotation = robots.link_frame(robot.report, mechanism, state.q, "face")
    np.testing.assert_allclose(output(state.q), place + rotation @ arm, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(
        robots.CenterOfMass(mechanism)(state.q), robots.center_of_mass(mechanism, state.q)
    )
    with pytest.raises(ValueError, match="'column' is welded to the ground and cannot move"):
        robots.LinkPlace.named(robot.report, mechanism, "column")
    with pytest.raises(
        ValueError, match=r"press has no link, frame or site named 'fase' \(did you mean 'face'\?\)"
    ):
        robots.link_frame(robot.report, mechanism, q, "fase")

"""Robots from MJCF against two engines, and what of the format is used, reported or refused."""

import dataclasses
import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import near
from all_cases import all_cases
from catalogue import in_ci

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae import robots
from jaxdae.geometry.rotation import quat_exp, quat_multiply
from jaxdae.mechanisms import spatial as js

mujoco = pytest.importorskip("mujoco", reason="the extra robots is not installed: pip install '.[robots]'")

REFERENCES = pathlib.Path(__file__).parent / "reference"
MODELS = ["cassie", "robotiq_2f85", "stewart"]
EPS = np.finfo(float).eps


@functools.cache
def model(name):
    robot = robots.load(REFERENCES / "models" / f"{name}.xml")
    return robot, jm.mechanism(robot.description, jm.Joints())[0]


@jax.jit
def terms(mechanism, state, tau):
    """Returns M, f and the rows J with their bias, and acceleration and constraint force by a solver that
    needs full rank.
    """
    t, q, v = state.t, state.q, state.v
    mass, force = mechanism.mass_matrix(q), mechanism.force(t, q, v, None)
    rows, bias = mechanism.constraint_jacobian(t, q, v), mechanism.constraint_bias(t, q, v)
    solvers = jaxdae.SchurComplement(), jaxdae.NullSpace(jaxdae.operators.SingularValues(1e-9))
    return (
        mass,
        force,
        rows,
        *(jaxdae.solve_saddle_point(solver, mass, rows, force + tau, -bias) for solver in solvers),
    )


def kinematics(name, mechanism, qpos, qvel):
    """Returns our state of MuJoCo's, T with v = T v_file, and T' v_file."""
    report = model(name)[0].report

    def inward(w):
        return robots.from_mujoco(report, mechanism, qpos, w)

    state = inward(qvel)

    def ahead(h):
        there = dataclasses.replace(state, q=mechanism.retract(state.q, h * state.v))
        return robots.from_mujoco(report, mechanism, robots.to_mujoco(report, mechanism, there)[0], qvel).v

    return state, jax.jacfwd(lambda w: inward(w).v)(qvel), jax.jvp(ahead, (0.0,), (1.0,))[1]


def check(name, entry, mechanism, singular):
    found = jax.jit(functools.partial(kinematics, name, mechanism))(
        jnp.asarray(entry["q"]), jnp.asarray(entry["v"])
    )
    state, transform, drift = found[0], *map(np.asarray, found[1:])
    tau = jnp.asarray(np.linalg.solve(transform.T, np.asarray(entry["tau"])))
    mass, force, rows, full, tolerant = terms(mechanism, state, tau)
    near(transform.T @ mass @ transform, entry["mass_matrix"])
    near(
        transform.T @ (force - mass @ drift),
        np.asarray(entry["passive_force"]) - np.asarray(entry["nonlinear_effects"]),
        10.0,
    )
    np.testing.assert_allclose(mechanism.constraint(state.t, state.q), 0.0, rtol=0, atol=1e-12)
    limit = 1e-12 * max(entry["condition_kkt"] / 1e3, 1.0)
    for a, lam in [tolerant] if singular else [full, tolerant]:
        ours = np.linalg.solve(transform, np.asarray(a) - drift)
        for got, key in (
            (ours, "acceleration"),
            (transform.T @ rows.T @ np.asarray(lam), "constraint_force"),
        ):
            expected = np.asarray(entry[key])
            np.testing.assert_allclose(
                got, expected, rtol=0.0, atol=limit * np.abs(expected).max(), err_msg=key
            )
    return rows


@pytest.mark.long
@pytest.mark.parametrize("name", in_ci(MODELS, "robotiq_2f85"))
def test_accelerations_and_forces_of_loops(name):
    """With independent rows, by a solver that needs them and by one that does not."""
    data = json.loads((REFERENCES / f"loop_{name}.json").read_text())
    _, mechanism = model(name)
    assert len(mechanism.names.velocities) == data["nv"]
    for entry in data["states"]:
        rows = check(name, entry, mechanism, singular=False)
        assert rows.shape[0] == entry["rank"]


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param("cassie", marks=pytest.mark.exhaustive), "robotiq_2f85"])
def test_the_rows_of_the_file_by_solvers_for_any_rank(name):
    """Balls as in the file, 12 rows of rank 10 and 7 of rank 5."""
    data = json.loads((REFERENCES / f"loop_{name}.json").read_text())
    robot, _ = model(name)
    balls = [
        js.Ball(joint.name, joint.a, joint.b, point_a=joint.point_a, point_b=joint.point_b)
        if isinstance(joint, js.PointOnLine)
        else joint
        for joint in robot.description.joints
    ]
    mechanism, _ = jm.mechanism(dataclasses.replace(robot.description, joints=balls), jm.Joints())
    for entry in data["states"]:
        rows = check(name, entry, mechanism, singular=True)
        assert rows.shape[0] == {"cassie": 12, "robotiq_2f85": 7}[name]


def moved(joints, qpos, xi):
    """Returns MuJoCo's coordinates after a tangent step: places in the axes of the world, rotations in those
    of the body.
    """
    for joint in joints:
        q, v = joint["q"], joint["v"]
        if joint["type"] == "free":
            qpos = qpos.at[q : q + 3].add(xi[v : v + 3])
            q, v = q + 3, v + 3
        if joint["type"] in ("free", "ball"):
            qpos = qpos.at[q : q + 4].set(quat_multiply(qpos[q : q + 4], quat_exp(xi[v : v + 3])))
        else:
            qpos = qpos.at[q].add(xi[v])
    return qpos


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("robotiq_2f85", ".x"),
        pytest.param("stewart", "", marks=pytest.mark.exhaustive),
        pytest.param("cassie", "plantar.y", marks=pytest.mark.exhaustive),
    ],
)
def test_derivatives_of_accelerations_of_loops(name, left_out):
    """To the error bars of the file, whose derivatives leave the manifold: so they depend on the rows, balls
    that are no planar rows, and on those of the dependent ones that are left out."""
    data, (robot, _) = json.loads((REFERENCES / f"loop_{name}.json").read_text()), model(name)
    entry = data["states"][1]
    balls = [
        js.Ball(joint.name, joint.a, joint.b, point_a=joint.point_a, point_b=joint.point_b)
        if isinstance(joint, js.PointOnLine)
        else joint
        for joint in robot.description.joints
    ]
    mechanism, _ = jm.mechanism(dataclasses.replace(robot.description, joints=balls), jm.Joints())
    kept = np.asarray([k for k, row in enumerate(mechanism.row_names) if not left_out or left_out not in row])
    qpos, y, tau = (jnp.asarray(entry[key]) for key in ("q", "v", "tau"))

    def moving(xi, y):
        return kinematics(name, mechanism, moved(data["joints"], qpos, xi), y)

    def accelerations(state, acting):
        at = state.t, state.q, state.v
        rows, bias = mechanism.constraint_jacobian(*at)[kept], mechanism.constraint_bias(*at)[kept]
        force = mechanism.force(*at, None) + acting
        return jaxdae.solve_saddle_point(
            jaxdae.SchurComplement(), mechanism.mass_matrix(state.q), rows, force, -bias
        )[0]

    # Two programs and not one, which takes longer to compile.
    first = jax.jit(lambda x, dx: jax.jvp(moving, x, dx))
    then = jax.jit(lambda x, dx: jax.jvp(accelerations, x, dx))
    nothing = jnp.zeros_like(y)
    found = []
    for directions in (jnp.eye(len(y)), jnp.zeros((len(y), len(y)))):
        for direction in zip(directions, jnp.eye(len(y)) - directions, strict=True):
            (state, square, drift), (dstate, dsquare, ddrift) = first((nothing, y), direction)
            acting = jnp.linalg.solve(square.T, tau)
            a, da = then((state, acting), (dstate, -jnp.linalg.solve(square.T, dsquare.T @ acting)))
            ours = jnp.linalg.solve(square, a - drift)
            found.append(jnp.linalg.solve(square, da - ddrift - dsquare @ ours))
    expected = entry["d_acceleration"]
    for key, ours in zip(("d_q", "d_v"), np.split(np.stack(found, axis=1), 2, axis=1), strict=True):
        wanted = np.asarray(expected[key])
        accuracy = max(expected["error_bar_relative"][key], 1e-15 * entry["condition_kkt"])
        np.testing.assert_allclose(ours, wanted, rtol=0.0, atol=accuracy * np.abs(wanted).max(), err_msg=key)


# Everything that is used of a tree: a free body, balls, several joints in a body, references, springs,
# motors' inertia, actuators.
TREE = """
<mujoco model="tree"><compiler autolimits="true" eulerseq="zyx"/><option gravity="0.3 -0.2 -9.7"><flag contact="disable"/></option>
<default><joint damping="0.1" armature="0.01"/><geom mass="0"/></default>
<worldbody>
  <body name="base" pos="0 0 1" euler="20 -30 40"><joint name="root" type="free" damping="0" armature="0.2"/>
    <inertial pos="0.1 -0.05 0.02" mass="3" fullinertia="0.05 0.06 0.07 0.01 -0.005 0.008"/>
    <body name="wrist" pos="0.2 0.1 0" quat="0.8 0.2 -0.4 0.4" gravcomp="0.6">
      <inertial pos="0 0.02 0.1" mass="1.5" diaginertia="0.02 0.03 0.015"/>
      <joint name="first" axis="1 0.2 0" pos="0.01 0 -0.02" ref="30" range="-90 60"/>
      <joint name="second" axis="0 1 1" stiffness="4" springref="-20" ref="10"/>
      <joint name="third" type="slide" axis="0 0.1 1" ref="0.05" stiffness="30" springref="0.02"/>
      <site name="thruster" pos="0.03 0 0.2" euler="0 50 0"/>
      <body name="hand" pos="0 0.05 0.3" euler="0 0 90">
        <inertial pos="0.02 0 0.04" mass="0.7" diaginertia="0.002 0.0025 0.001"/>
        <joint name="ball" type="ball" pos="0 0.01 0" damping="0.05" stiffness="0.8"/>
        <body name="thumb" pos="0.05 0 0" euler="5 6 7"><inertial pos="0 0 0.05" mass="0.2" diaginertia="0.0004 0.0005 0.0002"/>
          <joint name="grip" axis="0 1 0"/></body>
      </body>
    </body>
    <body name="welded" pos="-0.1 0 0.1"><inertial pos="0 0 0" mass="0.4" diaginertia="0.001 0.001 0.002"/></body>
  </body>
</worldbody>
<tendon><fixed name="cable" stiffness="7" damping="0.3" springlength="-0.1 0.05">
  <joint joint="first" coef="0.8"/><joint joint="third" coef="-1.3"/><joint joint="grip" coef="0.5"/>
</fixed></tendon>
<actuator>
  <motor joint="first" gear="3" ctrlrange="-0.5 0.5"/>
  <position name="servo" joint="second" kp="12" kv="0.7" forcerange="-2 2"/>
  <velocity joint="third" kv="5" gear="-2"/>
  <general joint="grip" gaintype="affine" gainprm="1 0.5 -0.2" biastype="affine" biasprm="0.3 -0.4 0.1" gear="1.5"/>
  <motor site="thruster" gear="1 -2 3 0.1 0.2 -0.3"/>
  <motor joint="ball" gear="0.1 0.3 -0.2"/>
  <general joint="root" gear="1 2 3 0.4 0.5 0.6" gainprm="2"/>
  <position tendon="cable" kp="3" kv="0.2" gear="1.7" forcerange="-1 1"/>
</actuator>
<keyframe>
  <key name="home" qpos="0.1 0.2 0.9 0.5 0.5 -0.5 0.5 0.2 0.3 0.01 0.6 0 0.8 0 0.4" ctrl="1 2 3 4 5 6 7 8"/><key name="other"/>
</keyframe>
</mujoco>
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    path = tmp_path_factory.mktemp("mjcf") / "tree.xml"
    path.write_text(TREE)
    robot = robots.load(path, strict=True)
    mechanism, q = jm.mechanism(robot.description, jm.Joints())
    theirs = mujoco.MjModel.from_xml_path(str(path))
    return robot, mechanism, q, theirs


@pytest.mark.long
def test_a_tree_accelerates_as_in_mujoco(tree):
    robot, mechanism, _, theirs = tree
    data, dice = mujoco.MjData(theirs), np.random.default_rng(0)

    @jax.jit
    def accelerations(qpos, qvel, u):
        state = robots.from_mujoco(robot.report, mechanism, qpos, qvel)
        a = jnp.linalg.solve(mechanism.mass_matrix(state.q), mechanism.force(state.t, state.q, state.v, u))
        # MuJoCo's accelerations are the rates of qvel along the motion.
        there = jaxdae.State(state.t, state.q, state.v)

        def ahead(h):
            q = mechanism.retract(there.q, h * there.v)
            return robots.to_mujoco(robot.report, mechanism, jaxdae.State(there.t, q, there.v + h * a))[1]

        return jax.jvp(ahead, (jnp.zeros(()),), (jnp.ones(()),))[1], *robots.to_mujoco(
            robot.report, mechanism, state
        )

    for turns in (0, 0, 1, -3):
        mujoco.mj_resetData(theirs, data)
        step = np.concatenate([dice.uniform(-1.0, 1.0, 6), dice.uniform(-0.5, 0.5, theirs.nv - 6)])
        mujoco.mj_integratePos(theirs, data.qpos, step, 1.0)
        for joint in ("second", "grip"):  # where a spring and actuators with feedback are
            data.qpos[theirs.joint(joint).qposadr[0]] += 2.0 * np.pi * turns
        data.qvel[:], data.ctrl[:] = dice.uniform(-2.0, 2.0, theirs.nv), dice.uniform(-1.0, 1.0, theirs.nu)
        mujoco.mj_forward(theirs, data)
        full = np.zeros((theirs.nv, theirs.nv))
        mujoco.mj_fullM(theirs, data, full)
        found, qpos, qvel = accelerations(data.qpos, data.qvel, data.ctrl)
        np.testing.assert_allclose(qpos, data.qpos, rtol=0, atol=1e-14)
        np.testing.assert_allclose(qvel, data.qvel, rtol=0, atol=1e-14)
        limit = 1e-14 * max(np.linalg.cond(full), 100.0) * np.abs(data.qacc).max()
        np.testing.assert_allclose(found, data.qacc, rtol=0.0, atol=limit)


@pytest.mark.long
def test_named_states(tree):
    robot, mechanism, q, theirs = tree
    assert list(robot.report.keyframes) == ["home", "other"]
    assert robot.report.keyframes["home"].controls == (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
    for k, key in enumerate(robot.report.keyframes.values()):
        state = robots.joint_state(mechanism, q, key.positions, key.rates)
        qpos, qvel = robots.to_mujoco(robot.report, mechanism, state)
        expected = theirs.key_qpos[k].copy()
        mujoco.mj_normalizeQuat(theirs, expected)
        np.testing.assert_allclose(qpos, expected, rtol=0, atol=1e-15)
        np.testing.assert_array_equal(qvel, theirs.key_qvel[k])
    assert robot.start == robot.report.keyframes["home"].positions
    assert "links without mass between several joints of one body: wrist/1, wrist/2" in robot.report.notes


@pytest.mark.long
def test_the_base_that_is_asked_for(tree, tmp_path):
    path = tmp_path / "tree.xml"
    path.write_text(TREE)
    standing = robots.load(path, base="fixed")
    assert standing.report.base == "fixed"
    assert standing.report.grounded == ("base", "welded")
    assert "base" not in standing.start
    assert "grip" in standing.start


def file(tmp_path, body="", rest=""):
    path = tmp_path / "robot.xml"
    path.write_text(f"<mujoco>\n<worldbody>{body}</worldbody>{rest}</mujoco>")
    return path


BALL = '<body name="b"><joint name="j"/><geom name="g" size="0.1"/></body>'
URDF_INERTIA = (
    '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
)
REFUSED = {
    "an unknown element": ("<bdy/>", "", ":2: MuJoCo: XML Error: Schema violation: unrecognized element"),
    "an unknown joint": (
        BALL,
        '<actuator><motor joint="k"/></actuator>',
        "MuJoCo: Error: unknown transmission target 'k'",
    ),
    "no mass": (
        "<body><joint/></body>",
        "",
        "MuJoCo: Error: mass and inertia of moving bodies must be larger than mjMINVAL",
    ),
    "an entity": ("&e;", "", "invalid XML: undefined entity"),
    "a file elsewhere": (BALL, '<include file="../../secret.xml"/>', "is outside the folder of the robot"),
    "a mesh elsewhere": (
        BALL,
        '<asset><mesh file="/etc/passwd"/></asset>',
        "is outside the folder of the robot",
    ),
    "a file that is missing": (BALL, '<include file="other.xml"/>', "other.xml does not exist"),
}


@all_cases("name", REFUSED)
def test_what_is_refused(name, tmp_path):
    body, rest, message = REFUSED[name]
    path = file(tmp_path, body, rest)
    with pytest.raises(robots.RobotFileError) as error:
        robots.load(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_what_is_not_used_is_told_with_its_line(tmp_path):
    rest = """
    <equality><joint joint1="j" active="false"/></equality>
    <tendon><spatial name="t" limited="true" range="0 1"><site site="s"/><site site="g"/></spatial></tendon>
    <actuator><motor tendon="t"/><intvelocity joint="j" actrange="-1 1"/></actuator>"""
    sites = '<site name="g"/>' + BALL.replace("</body>", '<site name="s"/></body>')
    path = file(tmp_path, sites, rest)
    found = {(one.what, one.line) for one in robots.load(path).report.ignored}
    assert {("geom", 2), ("equality with active=false", 3), ("spatial tendon", 4)} < found
    assert {("actuator on a spatial tendon", 5), ("actuator with activation", 5)} < found
    with pytest.raises(robots.RobotFileError, match=r":4: <spatial tendon> is not used \(1 times\)"):
        robots.load(path, strict=True)


def test_names_and_lines_that_the_file_does_not_have(tmp_path):
    """Links between joints of one body have names of their own; what is included has the line of the include."""
    several = '<joint name="j1"/><joint name="j2" axis="0 1 0"/><geom size="0.1"/>'
    path = file(tmp_path, f'<body name="c">{several}<body name="c/1" pos="1 0 0">{BALL}</body></body>')
    assert [one.child for one in robots.load(path).report.tree] == ["c/1_", "c", "c/1", "b"]
    notes = robots.load(path, base="floating").report.notes
    assert "base='floating' has no effect: joints of the file attach the moving links to the world" in notes
    (tmp_path / "arm.xml").write_text(
        '<mujoco><body><joint actuatorfrcrange="-1 1"/><geom size="0.1"/></body></mujoco>'
    )
    path = file(tmp_path, "\n\n<include file='arm.xml'/>")
    assert ("actuatorfrcrange", 4, 1) in robots.load(path).report.ignored


def test_a_missing_mesh_does_not_stop_dynamics(tmp_path):
    inside = (
        '<inertial pos="0 0 0.1" mass="1" diaginertia="1 1 1"/><joint name="j"/><geom type="mesh" '
        'mesh="m" material="x"/>'
    )
    asset = (
        '<asset><mesh name="m" file="gone.stl"/><texture name="t" file="gone.png"/><material name="x" '
        'texture="t"/></asset>'
    )
    robot = robots.load(file(tmp_path, f'<body name="b">{inside}</body>', asset))
    assert "gone.stl" in str(robot.report)
    assert [body.mass for body in robot.description.bodies] == [1.0]


@pytest.mark.long
def test_joints_that_are_held_and_coupled(tmp_path):
    body = (
        '<body><joint name="j" ref="10"/><geom size="0.1" pos="0 0 1"/><body><joint name="k"/><geom '
        'size="0.1" pos="0 0 1"/></body></body>'
    )
    rest = (
        '<equality><joint joint1="j" polycoef="0.2 0 0 0 0"/><joint joint1="k" joint2="j" polycoef="0.1 '
        '0.5 2 0 0"/></equality>'
    )
    tendons = '<tendon><fixed name="s"><joint joint="j" coef="2"/><joint joint="k" coef="-1"/></fixed>' + (
        '<fixed name="t"><joint joint="k" coef="3"/></fixed></tendon>'
    )
    rest = (
        rest.replace("</equality>", '<tendon tendon1="s" tendon2="t" polycoef="0.1 0.5 2 0 0"/></equality>')
        + tendons
    )
    mechanism, q = jm.mechanism(robots.load(file(tmp_path, body, rest)).description, jm.Joints())
    ref = np.radians(10.0)
    for j, k in ((ref, 0.0), (ref + 0.2, 0.1 + 0.5 * 0.2 + 2 * 0.04)):
        state = robots.joint_state(mechanism, q, {"j": j, "k": k})
        rows = dict(
            zip(mechanism.names.rows, np.asarray(mechanism.constraint(state.t, state.q)), strict=True)
        )
        offset = j - ref
        expected = {"motion": offset - 0.2, "relation": k - (0.1 + 0.5 * offset + 2 * offset**2)}
        expected["tendons"] = 2 * offset - k - (0.1 + 0.5 * 3 * k + 2 * (3 * k) ** 2)
        np.testing.assert_allclose(sorted(rows.values()), sorted(expected.values()), rtol=0, atol=1e-15)


def test_what_flags_disable(tmp_path):
    """As in MuJoCo: nothing acts that the file disables."""
    body = (
        '<body name="b"><joint name="j" stiffness="5" damping="1" frictionloss="2"/><geom size="0.1"/></body>'
    )
    motors = (
        '<actuator><motor joint="j" ctrllimited="true" ctrlrange="-1 1" group="2"/><motor '
        'joint="j"/></actuator>'
    )
    rest = f'<equality><joint joint1="j"/></equality>{motors}'
    for flags, names in (
        ('<flag spring="disable" damper="disable"/>', ["actuator0", "actuator1"]),
        ('<flag constraint="disable" clampctrl="disable"/>', ["actuator0", "actuator1"]),
        ('<flag actuation="disable"/>', []),
        ("", ["actuator1"]),
    ):
        option = f'<option actuatorgroupdisable="{2 if not flags else ""}">{flags}</option>'
        robot = robots.load(file(tmp_path, body, option + rest))
        assert [force.name for force in robot.description.forces] == names
        hinge = robot.description.joints[0]
        off = "spring" in flags, "spring" in flags, "constraint" in flags
        assert [not getattr(hinge, name) for name in ("stiffness", "damping", "friction")] == list(off)
        assert len(robot.description.joints) == (1 if "constraint" in flags else 2)
        if "clampctrl" in flags:
            assert robot.description.forces[0].most_input is None


def test_a_weight_below_zero_is_carried_beside_others_only(tmp_path):
    """MuJoCo counts the bodies that it carries by `gravcomp` above zero, and where there are none it carries
    no other one either.
    """
    for beside, forces, what in (
        ("", [], ["gravcomp with negative values only, which MuJoCo ignores"]),
        ('gravcomp="0.2"', [6.0, -15.0], []),
    ):
        bodies = "".join(
            f'<body {carried}><joint/><geom mass="3" size="0.1"/></body>'
            for carried in (beside, 'gravcomp="-0.5"')
        )
        path = file(tmp_path, bodies, '<option gravity="0 0 -10"/>')
        robot, theirs = robots.load(path), mujoco.MjModel.from_xml_path(str(path))
        assert [one.force[2] for one in robot.description.forces] == pytest.approx(forces)
        assert [one.what for one in robot.report.ignored if "gravcomp" in one.what] == what
        assert bool(theirs.ngravcomp) == bool(forces)


def test_controls_of_actuators_that_have_several(tmp_path):
    """Input k is control k, also behind an actuator with two of them; a weld without torque holds points."""
    body = BALL + BALL.replace('"b"', '"c"').replace('"j"', '"k"').replace('"g"', '"h"')
    rest = (
        '<actuator><pid name="p" joint="j" kp="3" ki="1"/><motor name="m" joint="k" ctrllimited="true" '
        'ctrlrange="-2 3"/></actuator>'
    )
    if int(mujoco.__version__.split(".")[0]) >= 4:
        robot = robots.load(file(tmp_path, body, rest))
        (motor,) = robot.description.forces
        assert (motor.name, motor.input, motor.least_input, motor.most_input) == ("m", 2, -2.0, 3.0)
        assert robot.report.controls == ("p.0", "p.1", "m")
    free = body.replace("<joint", "<freejoint")
    held = robots.load(
        file(tmp_path, free, '<equality><weld name="w" body1="b" body2="c" torquescale="0"/></equality>')
    )
    assert [type(joint) for joint in held.description.joints if joint.name == "w"] == [js.Ball]


@pytest.mark.long
def test_states_have_as_many_controls_as_there_are_inputs(tmp_path):
    """Actuators behind the last one that acts are no inputs, and their controls of keyframes none either."""
    rest = (
        '<actuator><general dyntype="filter" joint="j"/><motor name="m" joint="j"/><general '
        'dyntype="filter" joint="j"/></actuator>'
    )
    key = '<keyframe><key name="k" ctrl="1 2 3"/></keyframe>'
    robot = robots.load(file(tmp_path, BALL, rest + key))
    mechanism, q = jm.mechanism(robot.description, jm.Joints())
    assert (robot.report.controls, robot.report.keyframes["k"].controls) == (("actuator0", "m"), (1.0, 2.0))
    assert mechanism.sizes(q)[-1] == 2


def test_bounds_of_actuators():
    with pytest.raises(ValueError, match="force 'm': least_force 2 must not be above most_force 1"):
        jm.spatial_mechanism(
            [js.Body("b", 1.0, (1.0, 1.0, 1.0))],
            [js.Revolute("j", "ground", "b", axis=(0, 0, 1), at=(0, 0, 0))],
            [js.Actuator("m", "j", least_force=2.0, most_force=1.0)],
        )


@pytest.mark.parametrize("joints", [None, "cadb", "bdca"])
def test_a_urdf_in_the_order_of_mujoco(joints, tmp_path):
    """MuJoCo's own reader of the same file has the joints where `to_mujoco` puts them, also where they come
    in another order than links.
    """
    path = pathlib.Path(__file__).parents[1] / "configs" / "models" / "gripper_arm.urdf"
    if joints:
        links = "".join(f'<link name="{name}">{URDF_INERTIA}</link>' for name in "rabcd")
        above = {"a": "r", "b": "r", "c": "r", "d": "b"}
        hinges = (
            f'<joint name="{k}{k}" type="continuous"><parent link="{above[k]}"/><child link="{k}"/></joint>'
            for k in joints
        )
        path = tmp_path / "r.urdf"
        path.write_text(f'<robot name="r">{links}{"".join(hinges)}</robot>')
    robot = robots.load(path)
    mechanism, q = jm.mechanism(robot.description, jm.Joints())
    theirs = mujoco.MjModel.from_xml_path(str(path))
    names = [mujoco.mj_id2name(theirs, mujoco.mjtObj.mjOBJ_JOINT, k) for k in range(theirs.njnt)]
    values = {name: 0.1 * (k + 1) for k, name in enumerate(names)}
    state = robots.joint_state(mechanism, q, values, {name: -value for name, value in values.items()})
    qpos, qvel = robots.to_mujoco(robot.report, mechanism, state)
    np.testing.assert_array_equal(qpos, list(values.values()))
    np.testing.assert_array_equal(qvel, [-value for value in values.values()])

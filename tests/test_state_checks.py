"""States off the constraint manifold: followers move with their drivers, and functions of one state report
violated constraints.
"""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
import jaxdae.mechanisms as jm
from jaxdae import control as jc
from jaxdae import robots
from jaxdae.control import output_motion
from jaxdae.systems.state_checks import report_coordinates

INERTIA = '<inertia ixx=".01" iyy=".02" izz=".03" ixy="0" ixz="0" iyz="0"/>'
REVOLUTE = (
    '<joint name="{}" type="revolute"><parent link="base"/><child link="{}"/><axis '
    'xyz="{}"/>{}<limit lower="-3" upper="3"/></joint>'
)
MIMIC = '<mimic joint="{}" multiplier="{}" offset="{}"/>'
URDF = f"""<robot name="g"><link name="base"/>
<link name="d"><inertial><origin xyz="0.1 0 0.3"/><mass value="2"/>{INERTIA}</inertial></link>
<link name="f"><inertial><origin xyz="0 0.2 0.25"/><mass value="1.5"/>{INERTIA}</inertial></link>
<link name="g"><inertial><mass value="1e-9"/><inertia ixx="1e-9" iyy="1e-9" izz="1e-9" ixy="0" ixz="0" iyz="0"/></inertial></link>
{REVOLUTE.format("driver", "d", "0 1 0", "")}
{REVOLUTE.format("follower", "f", "1 0 0", MIMIC.format("driver", -2.5, 0.4))}
{REVOLUTE.format("last", "g", "1 0 0", MIMIC.format("follower", 2.0, 0.1))}</robot>"""


@pytest.fixture(scope="module")
def gears(tmp_path_factory):
    path = tmp_path_factory.mktemp("robots") / "gears.urdf"
    path.write_text(URDF)
    robot = robots.load(path)
    return robot, *jm.mechanism(robot.description, jm.Joints())


@pytest.fixture(scope="module")
def moved(gears):
    """A state with the driver at 0.3 rad and the followers at their start, as written by hand."""
    _, mechanism, _ = gears
    return mechanism, jd.State(jnp.zeros(()), jnp.array([0.3, 0.4, 0.9]), jnp.array([0.0, 1.0, 2.0]))


def of(mechanism, *names):
    return [mechanism.names.coordinates.index(f"{name}.angle") for name in names]


def test_followers_move_with_their_driver(gears):
    robot, mechanism, q = gears
    start = robot.start
    assert start == {"driver": 0.0, "follower": 0.4, "last": 0.9}
    order = of(mechanism, "driver", "follower", "last")
    follow = [0.3, -0.35, -0.6]
    cases = [
        (start | {"driver": 0.3}, {"driver": 1.0}, follow, [1.0, -2.5, -5.0]),
        ({"driver": 0.3}, None, follow, [0.0, 0.0, 0.0]),
        (
            dict(start) | {"driver": 0.3},
            dict.fromkeys(start, 0.0) | {"driver": 1.0},
            follow,
            [1.0, -2.5, -5.0],
        ),
        (start, None, [0.0, 0.4, 0.9], [0.0, 0.0, 0.0]),
        ({}, None, [0.0, 0.4, 0.9], [0.0, 0.0, 0.0]),
        # Followers alone move their drivers.
        (start | {"follower": -0.35}, {"follower": -2.5}, follow, [1.0, -2.5, -5.0]),
        (start | {"last": -0.6}, {"last": -5.0}, follow, [1.0, -2.5, -5.0]),
        ({"last": -0.6}, None, follow, [0.0, 0.0, 0.0]),
        # Numbers that the user chose stay.
        (
            start | {"driver": 0.3, "follower": 0.1},
            {"driver": 1.0, "follower": 2.0},
            [0.3, 0.1, 0.3],
            [1.0, 2.0, 4.0],
        ),
        ({"driver": 0.0, "follower": 0.1}, None, [0.0, 0.1, 0.3], [0.0, 0.0, 0.0]),
    ]
    for positions, rates, at, moving in cases:
        state = robots.joint_state(mechanism, q, positions, rates)
        np.testing.assert_allclose(state.q[np.array(order)], at, rtol=0, atol=1e-15, err_msg=f"{positions}")
        np.testing.assert_allclose(state.v[np.array(order)], moving, rtol=0, atol=1e-15, err_msg=f"{rates}")
    slopes = np.array([1.0, -2.5, -5.0])

    def place(x):
        return robots.joint_state(mechanism, q, start | {"driver": x}, {"driver": 2.0 * x})

    value, slope = jax.jit(place)(0.3), jax.jit(jax.jacfwd(place))(0.0)
    np.testing.assert_allclose(value.q[np.array(order)], follow, rtol=0, atol=1e-15)
    np.testing.assert_allclose(value.v[np.array(order)], 0.6 * slopes, rtol=0, atol=1e-15)
    np.testing.assert_allclose(slope.q[np.array(order)], slopes, rtol=0, atol=1e-15)
    assert isinstance(jax.tree.map(lambda x: x, start), robots.Posture)


@pytest.mark.long
def test_the_documented_state_of_a_mimic_joint(gears):
    """Energy of the one freedom by hand: the inertias and the torques of gravity at angles of 0.3 and -0.35
    rad.
    """
    robot, mechanism, q = gears
    state = robots.joint_state(mechanism, q, robot.start | {"driver": 0.3})
    a, _ = jd.forward_dynamics(mechanism, state)
    about_y, about_x = 0.02 + 2.0 * (0.1**2 + 0.3**2), 0.01 + 1.5 * (0.2**2 + 0.25**2)
    turn, other = 0.3, -0.35
    torque_y = 2.0 * 9.81 * (0.3 * np.sin(turn) + 0.1 * np.cos(turn))
    torque_x = 1.5 * 9.81 * (0.25 * np.sin(other) - 0.2 * np.cos(other))
    expected = (torque_y - 2.5 * torque_x) / (about_y + 2.5**2 * about_x)
    np.testing.assert_allclose(expected, 11.0008, rtol=0, atol=5e-5)
    np.testing.assert_allclose(
        a[of(mechanism, "driver")[0]], expected, rtol=1e-6
    )  # The last link weighs 1e-9 kg.


def relations(coefficients):
    """A slider with a second one that follows by a polynomial, counted from the start, and a cylinder-like
    pair of coordinates.
    """
    bodies = [jm.Body(name, 1.0, 0.1, (0.0, 0.0, 0.0)) for name in ("a", "b")]
    joints = [
        jm.Prismatic(name.upper(), jm.GROUND, name, axis=(1.0, 0.0), at=(0.0, 0.0)) for name in ("a", "b")
    ]
    joints.append(jm.Relation("R", "B", "A", coefficients, 0.0, 0.5))
    return jm.mechanism(jm.Description(bodies=bodies, joints=joints), jm.Joints())


def test_polynomials():
    mechanism, q = relations((0.1, 2.0, -1.0, 3.0))
    state = robots.joint_state(mechanism, q, {"A": 1.5}, {"A": 2.0})
    np.testing.assert_allclose(state.q, [1.5, 0.1 + 2.0 - 1.0 + 3.0], rtol=1e-15)
    np.testing.assert_allclose(state.v, [2.0, 2.0 * (2.0 - 2.0 + 9.0)], rtol=1e-15)
    np.testing.assert_allclose(mechanism.constraint(state.t, state.q), 0.0, rtol=0, atol=1e-14)
    message = (
        r"positions of 'B' cannot move its driver 'A', because .* not affine with nonzero slope; "
        r"give 'A' instead"
    )
    with pytest.raises(ValueError, match=message):
        robots.joint_state(mechanism, q, {"B": 1.0})
    with pytest.raises(ValueError, match="rates of 'B' cannot move"):
        robots.joint_state(mechanism, q, {"A": 1.0}, {"B": 1.0})
    with pytest.raises(ValueError, match="cannot move its driver"):
        robots.joint_state(*relations((0.1, 0.0)), {"B": 1.0})
    mechanism, q = relations((0.1, 2.0, 0.0))
    np.testing.assert_allclose(robots.joint_state(mechanism, q, {"B": 1.1}).q, [1.0, 1.1], rtol=1e-15)


QUICK = ("forward_dynamics", "inverse_dynamics", "link_frame", "link_velocity", "center_of_mass")


@pytest.mark.long
@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_functions_of_one_state_report_violations(gears, moved, quick):
    (robot, _, _), (mechanism, state) = gears, moved
    a, lam = jnp.zeros(3), jnp.zeros(2)
    report, q = robot.report, state.q
    of_state = {
        "forward_dynamics": lambda: jd.forward_dynamics(mechanism, state),
        "inverse_dynamics": lambda: jd.inverse_dynamics(mechanism, state, a),
        "kkt_inverse": lambda: jd.operators.kkt_inverse(mechanism, state),
        "reactions": lambda: jm.reactions(mechanism, state, lam),
        "link_velocity": lambda: robots.link_velocity(report, mechanism, state, "f"),
        "link_acceleration": lambda: robots.link_acceleration(report, mechanism, state, a, "f"),
        "centroidal_momentum": lambda: robots.centroidal_momentum(mechanism, state),
        "nonlinear_effects": lambda: robots.nonlinear_effects(mechanism, state),
        "output_motion": lambda: output_motion(mechanism, robots.CenterOfMass(mechanism), state),
    }
    of_coordinates = {
        "link_frame": lambda: robots.link_frame(report, mechanism, q, "f"),
        "link_jacobian": lambda: robots.link_jacobian(report, mechanism, q, "f"),
        "LinkPlace": lambda: robots.LinkPlace.named(report, mechanism, "f")(q),
        "center_of_mass": lambda: robots.center_of_mass(mechanism, q),
        "center_of_mass_jacobian": lambda: robots.center_of_mass_jacobian(mechanism, q),
    }
    again = {"inverse_dynamics": lambda: robots.inverse_dynamics(mechanism, state, a)}
    for name, function in (*of_state.items(), *of_coordinates.items(), *again.items()):
        if (name in QUICK) != quick:
            continue
        with pytest.warns(jd.StateWarning) as told:
            function()
        (text,) = [str(one.message) for one in told]
        assert text.startswith(f"{name}: the state violates the constraints: "), text
        assert "follower_mimic.relation = 0.75 rad" in text, text
        assert ("rate of follower_mimic.relation = 1 rad/s" in text) == (name in of_state), text
        assert text.endswith("; in robots.joint_state, give the driver, and jaxdae computes its followers"), (
            text
        )
        assert ("initialize(system, state.q, state.v)" in text) == (name in of_state), text


def test_nothing_is_reported_inside_of_transformations_or_with_feedback(gears, moved):
    (robot, _, _), (mechanism, state) = gears, moved
    jax.eval_shape(jd.forward_dynamics, mechanism, state)
    jax.eval_shape(lambda: jd.forward_dynamics(mechanism, state))
    jax.eval_shape(lambda a: jd.inverse_dynamics(mechanism, state, a), state.v)
    jax.eval_shape(lambda: robots.link_frame(robot.report, mechanism, state.q, "f"))
    jax.eval_shape(jax.vmap(lambda q: robots.center_of_mass(mechanism, q)), state.q[None])
    bead = Bead(jnp.asarray(1.0)), jd.State(0.0, jnp.array([0.0, 0.1]), jnp.zeros(2))
    jd.forward_dynamics(*bead, stabilization=jd.Baumgarte(1.0, 1.0))
    jax.jvp(lambda x: jd.forward_dynamics(bead[0], x)[0], (bead[1],), (bead[1],))


def test_the_status_of_states(moved):
    mechanism, state = moved
    closed = jd.State(0.0, jnp.array([0.3, -0.35, -0.6]), jnp.array([1.0, -2.5, -5.0]))
    stacked = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y, float) for y in x]), closed, state)
    found = jax.jit(jax.vmap(lambda x: jd.state_status(mechanism, x)))(stacked)
    np.testing.assert_array_equal(found, [jd.Status.OK, jd.Status.INCONSISTENT_START])
    assert int(jd.state_status(mechanism, state, tolerance=10.0)) == jd.Status.OK
    with pytest.raises(ValueError, match="state_status: tolerance must be non-negative, got -1"):
        jd.state_status(mechanism, state, tolerance=-1)


def pendulum(*more, coordinates=None):
    joints = [jm.Revolute("A", jm.GROUND, "rod", at=(0.0, 0.0)), *more]
    return jm.mechanism(
        jm.Description(bodies=[jm.Body("rod", 1.0, 0.1, (0.5, 0.0, 0.0))], joints=joints),
        coordinates or jm.Absolute(),
    )


@pytest.mark.long
def test_rows_that_depend_on_time_are_not_checked_without_a_time():
    """A driven link, whose prescribed angle is known at a time only."""
    mechanism, _ = pendulum(
        jm.PrescribedMotion("drive", "A", jm.Polynomial(jnp.array([0.0, 1.0]))), coordinates=jm.Absolute()
    )
    x, y = 0.5 * np.cos(0.3), 0.5 * np.sin(0.3)
    turned = jd.State(0.3, jnp.array([x, y, 0.3]), jnp.array([-y, x, 1.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jd.forward_dynamics(mechanism, turned)
        report_coordinates("places", mechanism, turned.q)
    with pytest.warns(jd.StateWarning, match=r"places: the state violates the constraints: A.x = -?0.1 m\. "):
        report_coordinates("places", mechanism, turned.q + jnp.array([0.1, 0.0, 0.0]))
    with pytest.warns(jd.StateWarning, match=r"drive.angle = -0.7 rad"):
        jd.forward_dynamics(mechanism, jd.State(1.0, turned.q, turned.v))


@pytest.mark.long
def test_causes_of_results_that_are_not_finite():
    mechanism, q = pendulum(jm.Revolute("B", jm.GROUND, "rod", at=(0.0, 0.0)))
    at, single = jd.State(0.0, q, jnp.zeros(3)), pendulum()[0]
    reasons = {
        r"the rows A.x, A.y, B.x and 1 more are linearly dependent \(rank 2 of 4 rows\), and SchurComplement "
        r"needs full rank": lambda: (
            mechanism,
            at,
        ),
        r"the coordinates are not finite \(rod.theta\)": lambda: (
            single,
            jd.State(0.0, q.at[2].set(jnp.nan), at.v),
        ),
        r"the velocities are not finite \(rod.omega\)": lambda: (
            single,
            jd.State(0.0, q, at.v.at[2].set(jnp.nan)),
        ),
    }
    for reason, arguments in reasons.items():
        with pytest.warns(jd.StateWarning, match=f"forward_dynamics: the result is not finite: {reason}"):
            a, _ = jd.forward_dynamics(*arguments(), solver=jd.SchurComplement())
        assert not np.all(np.isfinite(a))


@jd.tree.pytree
class Bead(jd.System):
    """A bead of some mass on a line, y = 0."""

    mass: jax.Array

    def mass_matrix(self, q):
        return jnp.diag(jnp.stack([self.mass, jnp.ones_like(self.mass)]))

    def force(self, t, q, v, u):
        return jnp.array([0.0, -9.81]) + (0.0 if u is None else u)

    def constraint(self, t, q):
        return q[1:]


def test_causes_in_systems_of_ones_own():
    at = jd.State(0.0, jnp.zeros(2), jnp.zeros(2))
    for mass, u, reason in (
        (0.0, None, r"the mass matrix is singular \(v0\); give each moving coordinate mass"),
        (1.0, jnp.array([jnp.nan, 0.0]), r"the input is not finite \(u0\)"),
        (jnp.nan, None, r"the mass matrix is not finite \(v0\)"),
    ):
        with pytest.warns(jd.StateWarning, match=reason):
            jd.forward_dynamics(Bead(jnp.asarray(mass, float)), at, u)
    with pytest.warns(
        jd.StateWarning,
        match=r"rate of row 0 = 0.2, row 0 = 0.1\. Close them with initialize\(system, state.q, state.v\)$",
    ):
        jd.forward_dynamics(
            Bead(jnp.asarray(1.0)), jd.State(0.0, jnp.array([0.0, 0.1]), jnp.array([0.0, 0.2]))
        )


@pytest.mark.long
def test_to_joints_reports_states_that_violate_the_tree():
    bodies = [jm.Body("arm", 1.0, 0.1, (0.5, 0.0, 0.0)), jm.Body("tip", 1.0, 0.1, (1.5, 0.0, 0.0))]
    joints = [jm.Revolute("A", "ground", "arm", (0.0, 0.0)), jm.Revolute("B", "arm", "tip", (1.0, 0.0))]
    mechanism = jm.planar_mechanism(bodies, joints, coordinates=jm.Joints())[0]
    state = jm.to_absolute(mechanism, jd.State(0.0, jnp.array([7.0, 0.3]), jnp.array([1.0, 2.0])))
    jm.to_joints(mechanism, state)
    moved = dataclasses.replace(state, q=state.q.at[3].add(0.01))
    with pytest.warns(jd.StateWarning, match=r"to_joints: .* tree joints: tip would move by 0.01 m\. Close"):
        jm.to_joints(mechanism, moved)
    spinning = dataclasses.replace(state, v=state.v.at[4].add(0.5))
    with pytest.warns(jd.StateWarning, match=r"tip.vy would change by -0.5 m/s"):
        jm.to_joints(mechanism, spinning)
    jax.jit(lambda at: jm.to_joints(mechanism, at))(moved)


def test_constraint_impulse_reports_open_rows():
    bodies, joints = (
        [jm.Body("arm", 1.0, 0.1, (0.5, 0.0, 0.0))],
        [jm.Revolute("A", "ground", "arm", (0.0, 0.0))],
    )
    mechanism, q = jm.planar_mechanism(bodies, joints)
    falling = jnp.array([0.3, -1.0, 0.0])
    v, _ = jd.constraint_impulse(mechanism, jd.State(0.0, q, falling))
    np.testing.assert_allclose(v[1], 0.5 * v[2], rtol=1e-14)
    opened = jd.State(0.0, q + jnp.array([0.1, 0.0, 0.0]), falling)
    with pytest.warns(
        jd.StateWarning, match=r"constraint_impulse: the state violates the constraints: A.x = 0.1 m\."
    ):
        jd.constraint_impulse(mechanism, opened)
    jd.constraint_impulse(mechanism, opened, jnp.array([False, True]))


@pytest.mark.exhaustive
def test_static_inputs_and_linear_models_report_open_rows():
    rod = jm.Body("rod", 1.0, 0.1, (0.5, 0.0, 0.0))
    hinge = jm.Revolute("A", "ground", "rod", at=(0.0, 0.0))
    mechanism, q = jm.planar_mechanism([rod], [hinge], [jm.JointForce("motor", "A", input=0)])
    opened = jd.State(0.0, q + jnp.array([0.1, 0.0, 0.0]), jnp.zeros(3))
    with pytest.warns(jd.StateWarning, match=r"static_inputs: .* A\.x = 0\.1 m"):
        u = jc.static_inputs(mechanism, opened)
    with pytest.warns(jd.StateWarning, match=r"linearize_equilibrium: .* A\.x = 0\.1 m"):
        jc.linearize_equilibrium(mechanism, opened, u)


@pytest.mark.long
def test_kinematic_velocity_reports_an_open_joint():
    rod = jm.Body("rod", pose=(0.5, 0.0, 0.0))
    hinge = jm.Revolute("A", "ground", "rod", at=(0.0, 0.0))
    description = jm.Description(bodies=[rod], joints=[hinge], drives=[jm.JointRate("turn", "A")])
    system, q = jm.kinematic_mechanism(description)
    jd.kinematic_velocity(system, jd.State(0.0, q, 0.0 * q), jnp.ones(1))
    with pytest.warns(jd.StateWarning, match=r"kinematic_velocity: .* A\.x = 0\.1 m"):
        jd.kinematic_velocity(system, jd.State(0.0, q.at[0].add(0.1), 0.0 * q), jnp.ones(1))
    for shift, expected in ((0.0, jd.Status.OK), (0.1, jd.Status.INCONSISTENT_START)):
        state = jd.State(0.0, q.at[0].add(shift), 0.0 * q)
        assert jd.kinematic_status(system, state, jnp.ones(1)) == expected

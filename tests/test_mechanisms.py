"""Planar mechanisms: every joint and force against the generic derivatives, closed forms of mechanics, and
its own description.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from catalogue import BODIES, FORCES, JOINTS, MOTIONS, POSES
from problems import cast, state
from scipy.special import ellipk
from small_systems import central, without_typechecker

import jaxdae as jd
from jaxdae import mechanisms as jm

ROUND_OFF = {"rtol": 1e-12, "atol": 1e-12}
G = 9.81


def in_frame(body, vector, offset=True):
    """Returns world components at the start pose in a body's frame, by NumPy."""
    x, y, angle = POSES.get(body, (0.0, 0.0, 0.0))
    c, s = np.cos(angle), np.sin(angle)
    return tuple(np.array([[c, s], [-s, c]]) @ (np.asarray(vector) - (np.array([x, y]) if offset else 0.0)))


def moving(t=0.6):
    """A state where no joint holds and everything moves."""
    q = np.concatenate(list(POSES.values()))
    return state(q + 0.1 * np.cos(np.arange(9.0)), np.sin(1.0 + np.arange(9.0)), t)


class TestJoints:
    def test_all_hold_at_the_start_pose(self):
        mechanism, q = jm.planar_mechanism(BODIES, JOINTS)
        np.testing.assert_array_equal(q, np.concatenate(list(POSES.values())))
        np.testing.assert_allclose(
            mechanism.constraint(jnp.zeros(()), q), np.zeros(len(mechanism.row_names)), rtol=0, atol=1e-15
        )

    @pytest.mark.long
    def test_derived_terms_are_those_of_the_generic_system(self):
        mechanism, _ = jm.planar_mechanism(BODIES, [*JOINTS, *MOTIONS])
        at = moving()

        @jax.jit
        def terms(t, q, v):
            methods = ("constraint_jacobian", "constraint_rate", "constraint_bias")
            return [
                (getattr(mechanism, name)(t, q, v), getattr(jd.System, name)(mechanism, t, q, v))
                for name in methods
            ]

        for ours, generic in terms(at.t, at.q, at.v):
            np.testing.assert_allclose(ours, generic, rtol=1e-13, atol=1e-13)
        energy = jd.System.kinetic_energy(mechanism, at.q, at.v)
        np.testing.assert_allclose(mechanism.kinetic_energy(at.q, at.v), energy, rtol=1e-14)

    @all_cases("joint", ["Revolute", "Weld", "Prismatic", "PointOnLine"])
    @all_cases(("a", "b"), [("ground", "left"), ("left", "middle")])
    def test_places_in_the_world_and_in_the_bodies_are_the_same(self, joint, a, b):
        place, axis = (0.4, -0.7), np.array([0.6, 0.8])
        kind, has_axis = getattr(jm, joint), joint in ("Prismatic", "PointOnLine")
        world = kind("j", a, b, at=place, **({"axis": 3.0 * axis} if has_axis else {}))
        points = {"point_a": in_frame(a, place), "point_b": in_frame(b, place)}
        body = kind("j", a, b, **points, **({"axis": in_frame(a, axis, offset=False)} if has_axis else {}))
        (from_world, _), (from_body, _) = (jm.planar_mechanism(BODIES, [x]) for x in (world, body))
        for x, y in zip(jax.tree.leaves(from_world), jax.tree.leaves(from_body), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-14, atol=1e-15)

    def test_two_places_of_rods_and_springs(self):
        ends = {"at_a": (0.2, 0.1), "at_b": (0.9, 0.9)}
        points = {"point_a": in_frame("left", (0.2, 0.1)), "point_b": in_frame("middle", (0.9, 0.9))}
        mixed = {"at_a": (0.2, 0.1), "point_b": points["point_b"]}
        for numbers in (ends, points, mixed):
            mechanism, _ = jm.planar_mechanism(
                BODIES,
                [jm.Rod("r", "left", "middle", **numbers)],
                [jm.LinearSpring("s", "left", "middle", **numbers, stiffness=1.0)],
            )
            # Length and rest length are the distance at the start pose.
            np.testing.assert_allclose(mechanism.joints["rod"].length, [np.hypot(0.7, 0.8)], rtol=1e-14)
            np.testing.assert_allclose(
                mechanism.forces["linear_spring"].rest_length, [np.hypot(0.7, 0.8)], rtol=1e-14
            )

    def test_names_and_units_follow_the_rows(self):
        mechanism, q = jm.planar_mechanism(BODIES, [*JOINTS, *MOTIONS])
        assert len(mechanism.row_names) == mechanism.constraint(jnp.zeros(()), q).size
        assert set(mechanism.joint_names) == {joint.name for joint in (*JOINTS, *MOTIONS)}
        assert mechanism.coordinate_names[:4] == ("left.x", "left.y", "left.theta", "middle.x")
        assert mechanism.coordinate_units == ("m", "m", "rad") * 3
        units = dict(zip(mechanism.row_names, mechanism.row_units, strict=True))
        assert (
            units["pin.x"]
            == units["rail.normal"]
            == units["rod.length"]
            == units["feed.slide"]
            == units["slot.normal"]
            == "m"
        )
        assert (
            units["rail.angle"]
            == units["weld.angle"]
            == units["gears.angle"]
            == units["motor.angle"]
            == "rad"
        )
        # Moving a point of one joint changes the rows of that name and no others.
        at = moving()
        for group, k, name in (
            ("revolute", 1, "elbow"),
            ("rod", 0, "rod"),
            ("point_on_line", 0, "slot"),
            ("weld", 0, "weld"),
        ):
            path = f"joints.{group}.point_b"
            moved = jd.tree.set_leaf(mechanism, path, jd.tree.get_leaf(mechanism, path).at[k, 0].add(0.1))
            changed = moved.constraint(at.t, at.q) != mechanism.constraint(at.t, at.q)
            assert {
                row.split(".")[0] for row, yes in zip(mechanism.row_names, changed, strict=True) if yes
            } == {name}

    def test_rows_keep_their_order_when_jax_rebuilds_the_mechanism(self):
        mechanism, _ = jm.planar_mechanism(BODIES, [*JOINTS, *MOTIONS])
        rebuilt = jax.tree.map(lambda x: x, mechanism)
        assert rebuilt.row_names == mechanism.row_names
        at = moving()
        np.testing.assert_array_equal(rebuilt.constraint(at.t, at.q), mechanism.constraint(at.t, at.q))

    @pytest.mark.exhaustive
    def test_single_precision_stays_single(self):
        mechanism, at = cast(
            (jm.planar_mechanism(BODIES, [*JOINTS, *MOTIONS], FORCES)[0], moving()), jnp.float32
        )
        for function, arguments in (
            (jd.operators.constraint_terms, (mechanism, at)),
            (jd.energy, (mechanism, at)),
            (mechanism.force, (at.t, at.q, at.v, None)),
        ):
            assert {x.dtype for x in jax.tree.leaves(jax.eval_shape(function, *arguments))} == {
                jnp.dtype(jnp.float32)
            }


def power(mechanism, at, u=None):
    """Returns the power of all forces but gravity in W."""
    weightless = jd.tree.set_leaf(mechanism, "gravity", jnp.zeros(2))
    return float(at.v @ weightless.force(at.t, at.q, at.v, u))


class TestForces:
    @pytest.mark.long
    def test_conservative_forces_are_minus_the_gradient_of_the_potential(self):
        undamped = [
            jm.Revolute("elbow", "left", "middle", at=(0.7, 0.3)),
            jm.Prismatic("rail", "ground", "right", (1.0, 2.0), (0.0, 0.0)),
        ]
        mechanism, _ = jm.planar_mechanism(BODIES, undamped, FORCES, gravity=(1.0, -G))
        at = moving()
        force, gradient = jax.jit(
            lambda q: (
                mechanism.force(at.t, q, at.v, None),
                jax.grad(lambda q: mechanism.potential_energy(at.t, q))(q),
            )
        )(at.q)
        np.testing.assert_allclose(force, -gradient, **ROUND_OFF)

    @pytest.mark.parametrize(
        ("joints", "forces", "loss"),
        [
            (
                [jm.Revolute("elbow", "left", "middle", at=(0.7, 0.3), damping=0.4)],
                [],
                lambda w: -0.4 * (w[1] - w[0]) ** 2,
            ),
            ([], [jm.TorsionalSpring("coil", "ground", "left", damping=0.3)], lambda w: -0.3 * w[0] ** 2),
            (
                [],
                [jm.TorsionalSpring("coil", "right", "middle", damping=0.3)],
                lambda w: -0.3 * (w[1] - w[2]) ** 2,
            ),
        ],
    )
    def test_rotary_damping_dissipates(self, joints, forces, loss):
        mechanism, _ = jm.planar_mechanism(BODIES, joints, forces)
        at = moving()
        np.testing.assert_allclose(power(mechanism, at), loss(np.asarray(at.v)[2::3]), **ROUND_OFF)

    def test_linear_damping_dissipates(self):
        # The rate of the length and of the slide are checked against their difference quotients along the
        # motion.
        rail = jm.Prismatic("rail", "middle", "right", axis=(1.0, 2.0), at=(-0.5, 0.4), damping=0.7)
        damper = jm.LinearSpring("damper", "left", "middle", at_a=(0.2, 0.1), at_b=(0.9, 0.9), damping=0.5)
        at = moving()
        a = np.array(in_frame("middle", (1.0, 2.0), offset=False)) / np.sqrt(5.0)

        def point(q, body, place):
            k = 3 * list(POSES).index(body)
            c, s = np.cos(q[k + 2]), np.sin(q[k + 2])
            return q[k : k + 2] + np.array([[c, -s], [s, c]]) @ place

        def length(s):
            q = np.asarray(at.q + s * at.v)
            gap = point(q, "middle", in_frame("middle", (0.9, 0.9))) - point(
                q, "left", in_frame("left", (0.2, 0.1))
            )
            return np.hypot(*gap)

        def slide(s):
            q = np.asarray(at.q + s * at.v)
            gap = point(q, "right", in_frame("right", (-0.5, 0.4))) - point(
                q, "middle", in_frame("middle", (-0.5, 0.4))
            )
            return gap @ (point(q, "middle", a) - q[3:5])

        for joints, forces, damping, measure in (([], [damper], 0.5, length), ([rail], [], 0.7, slide)):
            mechanism, _ = jm.planar_mechanism(BODIES, joints, forces)
            np.testing.assert_allclose(power(mechanism, at), -damping * central(measure, 0.0) ** 2, rtol=1e-8)

    @pytest.mark.long
    def test_internal_forces_have_no_resultant(self):
        # Actio = reactio: no total force, and no total moment about the origin.
        joints = [jm.Revolute("elbow", "left", "middle", at=(0.7, 0.3), damping=0.4)]
        joints.append(jm.Prismatic("slide", "middle", "right", axis=(-1.0, 0.5), at=(0.2, 0.8), damping=0.6))
        forces = [
            jm.LinearSpring(
                "spring",
                "left",
                "middle",
                at_a=(0.2, 0.1),
                at_b=(0.9, 0.9),
                stiffness=30.0,
                damping=2.0,
                rest_length=0.4,
            ),
            jm.TorsionalSpring("coil", "right", "left", stiffness=5.0, damping=0.3, rest_angle=0.1),
            jm.Torque("push", "left", "right", torque=1.7),
            jm.JointForce("drive", "slide", force=1.3),
            jm.JointForce("wind", "elbow", force=-0.6),
        ]
        at = moving()
        for active in forces:
            mechanism, _ = jm.planar_mechanism(BODIES, joints, [active], gravity=(0.0, 0.0))
            force = mechanism.force(at.t, at.q, at.v, None).reshape(3, 3)
            q = at.q.reshape(3, 3)
            moment = jnp.sum(q[:, 0] * force[:, 1] - q[:, 1] * force[:, 0] + force[:, 2])
            assert np.max(np.abs(force)) > 0.1
            np.testing.assert_allclose(
                jnp.append(jnp.sum(force[:, :2], axis=0), moment), np.zeros(3), rtol=0, atol=1e-13
            )

    def test_point_forces(self):
        at = moving()
        c, s = np.cos(at.q[5]), np.sin(at.q[5])
        turn = np.array([[c, -s], [s, c]])
        arm = turn @ np.array([0.3, -0.1])
        for body_frame in (False, True):
            force = jm.Force("pull", "middle", point=(0.3, -0.1), force=(2.0, -3.0), body_frame=body_frame)
            mechanism, _ = jm.planar_mechanism(BODIES, [], [force], gravity=(0.0, 0.0))
            f = turn @ np.array([2.0, -3.0]) if body_frame else np.array([2.0, -3.0])
            expected = np.zeros(9)
            expected[3:6] = [*f, arm[0] * f[1] - arm[1] * f[0]]
            np.testing.assert_allclose(mechanism.force(at.t, at.q, at.v, None), expected, **ROUND_OFF)

    @pytest.mark.long
    def test_a_spring_of_length_zero_is_finite(self):
        spring = jm.LinearSpring(
            "spring",
            "ground",
            "left",
            at_a=POSES["left"][:2],
            point_b=(0.0, 0.0),
            stiffness=30.0,
            rest_length=0.4,
        )
        mechanism, q = jm.planar_mechanism(BODIES[:1], [], [spring], gravity=(0.0, 0.0))

        @jax.jit
        def force_and_slopes(q):
            def force(q):
                return mechanism.force(jnp.zeros(()), q, jnp.zeros(3), None)

            return force(q), jax.jacrev(force)(q), jax.jacfwd(force)(q)

        force, *slopes = force_and_slopes(q)
        np.testing.assert_array_equal(force, np.zeros(3))
        assert np.all(np.isfinite(slopes))

    @pytest.mark.long
    def test_a_spring_of_rest_length_zero_is_as_stiff_where_its_ends_meet(self):
        spring = jm.LinearSpring(
            "spring", "ground", "left", at_a=POSES["left"][:2], point_b=(0.0, 0.0), stiffness=30.0
        )
        mechanism, q = jm.planar_mechanism(BODIES[:1], [], [spring], gravity=(0.0, 0.0))
        stiffness = jax.jit(jax.jacfwd(lambda x: -mechanism.force(jnp.zeros(()), x, jnp.zeros(3), None)))(q)
        np.testing.assert_allclose(stiffness, np.diag([30.0, 30.0, 0.0]), **ROUND_OFF)
        bend = jax.jit(jax.hessian(lambda x: mechanism.potential_energy(jnp.zeros(()), x)))(q)
        np.testing.assert_allclose(bend, stiffness, **ROUND_OFF)

    def test_gravity(self):
        mechanism, _ = jm.planar_mechanism(BODIES, [], gravity=(1.0, -G))
        at = moving()
        np.testing.assert_allclose(
            mechanism.force(at.t, at.q, at.v, None).reshape(3, 3),
            [[m * 1.0, m * -G, 0.0] for m in (1.0, 2.0, 3.0)],
            **ROUND_OFF,
        )
        np.testing.assert_allclose(jd.forward_dynamics(mechanism, at)[0], [1.0, -G, 0.0] * 3, **ROUND_OFF)


class TestInputs:
    rail = jm.Prismatic("rail", "ground", "right", axis=(1.0, 2.0), at=(0.0, 0.0))

    def effect(self, force, u, torque=0.0):
        """Returns the generalized force of input u less that of no input."""
        mechanism, _ = jm.planar_mechanism(BODIES, [self.rail, JOINTS[1]], [force])
        at = moving()
        return (
            np.asarray(mechanism.force(at.t, at.q, at.v, u) - mechanism.force(at.t, at.q, at.v, None)),
            mechanism,
            at,
        )

    def test_torque(self):
        change, mechanism, _ = self.effect(
            jm.Torque("m", "left", "right", torque=0.5, input=1, gain=3.0), jnp.array([7.0, 2.0])
        )
        assert mechanism.n_inputs == 2
        np.testing.assert_allclose(change, np.eye(9)[8] * 6.0 - np.eye(9)[2] * 6.0, **ROUND_OFF)

    def test_joint_forces(self):
        change, *_ = self.effect(jm.JointForce("m", "elbow", input=0, gain=3.0), jnp.array([2.0]))
        np.testing.assert_allclose(change, np.eye(9)[5] * 6.0 - np.eye(9)[2] * 6.0, **ROUND_OFF)
        change, _, _at = self.effect(jm.JointForce("m", "rail", input=0, gain=3.0), jnp.array([2.0]))
        np.testing.assert_allclose(change[6:8], 6.0 * np.array([1.0, 2.0]) / np.sqrt(5.0), **ROUND_OFF)

    def test_point_force(self):
        for body_frame in (False, True):
            force = jm.Force(
                "m",
                "left",
                point=(0.0, 0.0),
                force=(1.0, 1.0),
                input=0,
                direction=(3.0, 4.0),
                body_frame=body_frame,
            )
            change, _, at = self.effect(force, jnp.array([2.0]))
            c, s = np.cos(at.q[2]), np.sin(at.q[2])
            expected = np.array([[c, -s], [s, c]]) @ [6.0, 8.0] if body_frame else [6.0, 8.0]
            np.testing.assert_allclose(change[:2], expected, **ROUND_OFF)

    def test_two_forces_may_read_one_input_and_integers_will_do(self):
        motors = [jm.Torque(name, "ground", name, input=0) for name in ("left", "right")]
        mechanism, _ = jm.planar_mechanism(BODIES, [], motors, gravity=(0.0, 0.0))
        at = moving()
        for u in (jnp.array([2.0]), jnp.array([2]), np.array([2.0], np.float32), [2]):
            np.testing.assert_array_equal(
                mechanism.force(at.t, at.q, at.v, u), np.eye(9)[2] * 2.0 + np.eye(9)[8] * 2.0
            )

    def test_wrong_inputs(self):
        at = moving()
        reading, _ = jm.planar_mechanism(BODIES, [], [jm.Torque("m", "ground", "left", input=1)])
        with pytest.raises(
            ValueError, match=r"u must have shape \(2,\), got \(1,\): forces with input=k read u\[k\]"
        ):
            reading.force(at.t, at.q, at.v, jnp.ones(1))
        for u in (jnp.array([True, False]), jnp.ones(2, complex)):
            with pytest.raises(TypeError, match=f"u must contain real numbers, got {u.dtype}"):
                reading.force(at.t, at.q, at.v, u)
        deaf, _ = jm.planar_mechanism(BODIES, [], [jm.Torque("m", "ground", "left")])
        with pytest.raises(
            ValueError,
            match=r"u must be None because no force of this mechanism has an input, got shape \(1,\)",
        ):
            deaf.force(at.t, at.q, at.v, jnp.ones(1))


def bar(name, pose, mass=1.0, length=1.0):
    return jm.Body(name, mass, mass * length**2 / 12.0, pose)


class TestClosedForms:
    """Accelerations and reactions that a textbook gives."""

    def dynamics(self, bodies, joints, forces=(), v=None, u=None, t=0.0):
        mechanism, q = jm.planar_mechanism(bodies, joints, forces)
        at = state(q, np.zeros(q.size) if v is None else v, t)
        np.testing.assert_allclose(mechanism.constraint(at.t, at.q), 0.0, rtol=0, atol=1e-14)
        a, lam = jd.forward_dynamics(mechanism, at, u)
        return np.asarray(a), dict(zip(mechanism.row_names, np.asarray(lam), strict=True))

    def test_hinged_bar_released_from_the_horizontal(self):
        a, lam = self.dynamics(
            [bar("bar", (0.5, 0.0, 0.0), mass=3.0)], [jm.Revolute("pin", "ground", "bar", at=(0.0, 0.0))]
        )
        np.testing.assert_allclose(a, [0.0, -0.75 * G, -1.5 * G], **ROUND_OFF)
        # The pin carries a quarter of the weight: +J^T lam acts on b.
        np.testing.assert_allclose([lam["pin.x"], lam["pin.y"]], [0.0, 0.25 * 3.0 * G], **ROUND_OFF)

    def test_block_on_an_incline(self):
        angle = 0.4
        axis = (np.cos(angle), np.sin(angle))
        a, lam = self.dynamics(
            [jm.Body("block", 2.0, 0.1)], [jm.Prismatic("slope", "ground", "block", axis, at=(0.0, 0.0))]
        )
        np.testing.assert_allclose(
            a, [-G * np.sin(angle) * axis[0], -G * np.sin(angle) * axis[1], 0.0], **ROUND_OFF
        )
        np.testing.assert_allclose(lam["slope.normal"], 2.0 * G * np.cos(angle), **ROUND_OFF)
        np.testing.assert_allclose(lam["slope.angle"], 0.0, rtol=0, atol=1e-12)

    def test_pin_in_a_slot(self):
        # The pin slides down freely; off the mass center, the body turns with it: (m h^2 + I) theta'' = 0 at
        # rest below the center.
        a, lam = self.dynamics(
            [jm.Body("block", 2.0, 0.1)],
            [jm.PointOnLine("slot", "ground", "block", (1.0, 0.0), at=(0.5, 0.0))],
        )
        # y'' + 0.5 theta'' = 0 at the pin, m y'' = -m g + lam, I theta'' = 0.5 lam.
        normal = 2.0 * G / (1.0 + 2.0 * 0.25 / 0.1)
        np.testing.assert_allclose(lam["slot.normal"], normal, **ROUND_OFF)
        np.testing.assert_allclose(a, [0.0, -G + normal / 2.0, 0.5 * normal / 0.1], **ROUND_OFF)

    @pytest.mark.long
    def test_gears(self):
        wheels = [jm.Body("a", 1.0, 0.4), jm.Body("b", 1.0, 0.9, (2.0, 0.0, 0.0))]
        joints = [
            jm.Revolute("A", "ground", "a", at=(0.0, 0.0)),
            jm.Revolute("B", "ground", "b", at=(2.0, 0.0)),
        ]
        a, lam = self.dynamics(
            wheels,
            [*joints, jm.Gear("gear", "a", "b", ratio=-2.5)],
            [jm.Torque("motor", "ground", "a", torque=3.0)],
        )
        expected = 3.0 / (0.4 + 2.5**2 * 0.9)
        np.testing.assert_allclose(a[[2, 5]], [expected, -2.5 * expected], **ROUND_OFF)
        np.testing.assert_allclose(lam["gear.angle"], 0.9 * -2.5 * expected, **ROUND_OFF)

    def test_gears_count_from_the_start_pose(self):
        wheels = [jm.Body("a", 1.0, 0.4, (0.0, 0.0, 0.7)), jm.Body("b", 1.0, 0.9, (2.0, 0.0, -0.2))]
        mechanism, q = jm.planar_mechanism(wheels, [jm.Gear("gear", "a", "b", ratio=-2.5)])
        np.testing.assert_allclose(
            mechanism.constraint(jnp.zeros(()), q.at[2].add(0.1).at[5].add(-0.25)), 0.0, rtol=0, atol=1e-15
        )

    def test_two_welded_bars_are_one(self):
        bars = [bar("left", (0.5, 0.0, 0.0)), bar("right", (1.5, 0.0, 0.0))]
        joints = [
            jm.Revolute("pin", "ground", "left", at=(0.0, 0.0)),
            jm.Weld("weld", "left", "right", at=(1.0, 0.0)),
        ]
        a, lam = self.dynamics(bars, joints)
        # One bar of length 2, mass 2.
        np.testing.assert_allclose(a[[2, 5]], -1.5 * G / 2.0, **ROUND_OFF)
        np.testing.assert_allclose(lam["pin.y"], 0.25 * 2.0 * G, **ROUND_OFF)
        # What the right half needs: m y'' = -m g + F with y'' = -1.125 g, and I theta'' = F 0.5 + moment.
        np.testing.assert_allclose(lam["weld.y"], -0.125 * G, **ROUND_OFF)
        np.testing.assert_allclose(lam["weld.angle"], -0.75 * G / 12.0 - 0.5 * 0.125 * G, **ROUND_OFF)

    def test_a_rod_carries_thrust_only(self):
        # A conical weight: a body hanging by its center on a rod of length 2, turning about the ground point
        # with 3 rad/s.
        swing = jm.Rod("rod", "ground", "bob", at_a=(0.0, 0.0), point_b=(0.0, 0.0))
        a, lam = self.dynamics([jm.Body("bob", 2.0, 0.1, (0.0, -2.0, 0.0))], [swing], v=[6.0, 0.0, 0.0])
        np.testing.assert_allclose(a, [0.0, 2.0 * 9.0, 0.0], **ROUND_OFF)
        np.testing.assert_allclose(
            lam["rod.length"], -2.0 * (G + 18.0), **ROUND_OFF
        )  # tension: negative thrust

    def test_a_disk_rolls_down_an_incline(self):
        # a = g sin(angle) / (1 + I / (m r^2)), and the incline pushes the rim back with I a / r^2.
        angle, radius = 0.4, 0.5
        axis = (np.cos(angle), np.sin(angle))
        joints = [
            jm.RackAndPinion("rim", "ground", "disk", axis=axis, radius=radius, at=(1.0, 2.0)),
            jm.PointOnLine("tread", "ground", "disk", axis=axis, at=(1.0, 2.0)),
        ]
        a, lam = self.dynamics([jm.Body("disk", 2.0, 0.1, (1.0, 2.0, 0.7))], joints)
        along = -G * np.sin(angle) / (1.0 + 0.1 / (2.0 * radius**2))
        np.testing.assert_allclose(a, [along * axis[0], along * axis[1], -along / radius], **ROUND_OFF)
        np.testing.assert_allclose(lam["rim.slip"], -0.1 * along / radius**2, **ROUND_OFF)

    @pytest.mark.long
    def test_a_pinion_drives_a_rack_on_its_other_side(self):
        # The pinion is pinned to the ground, below the rack: seen along the axis on its right.
        bodies = [jm.Body("rack", 3.0, 0.1, (0.2, 0.5, 0.0)), jm.Body("pinion", 1.0, 0.4, (0.0, 0.0, -0.3))]
        joints = [
            jm.Prismatic("guide", "ground", "rack", axis=(1.0, 0.0), at=(0.2, 0.5)),
            jm.Revolute("pin", "ground", "pinion", at=(0.0, 0.0)),
            jm.RackAndPinion("teeth", "rack", "pinion", axis=(1.0, 0.0), radius=-0.5, at=(0.0, 0.0)),
        ]
        a, lam = self.dynamics(bodies, joints, [jm.Torque("motor", "ground", "pinion", torque=3.0)])
        turning = 3.0 / (0.4 + 3.0 * 0.5**2)
        np.testing.assert_allclose(a, [-0.5 * turning, 0.0, 0.0, 0.0, 0.0, turning], **ROUND_OFF)
        np.testing.assert_allclose(lam["teeth.slip"], 3.0 * 0.5 * turning, **ROUND_OFF)

    def test_prescribed_motion_reports_the_motor_torque(self):
        # theta = 3 t^2: the motor gives I_pin theta'' against gravity.
        joints = [
            jm.Revolute("pin", "ground", "bar", at=(0.0, 0.0)),
            jm.PrescribedMotion("motor", "pin", jm.Polynomial((0.0, 0.0, 3.0))),
        ]
        a, lam = self.dynamics([bar("bar", (0.5, 0.0, 0.0), mass=2.0)], joints)
        np.testing.assert_allclose(a[2], 6.0, **ROUND_OFF)
        np.testing.assert_allclose(lam["motor.angle"], 2.0 / 3.0 * 6.0 + 2.0 * G * 0.5, **ROUND_OFF)

    def test_prescribed_slide_reports_the_motor_force(self):
        joints = [
            jm.Prismatic("lift", "ground", "car", (0.0, 1.0), at=(0.0, 0.0)),
            jm.PrescribedMotion("motor", "lift", lambda t: 1.5 * t**2),
        ]
        a, lam = self.dynamics([jm.Body("car", 2.0, 0.1)], joints)
        np.testing.assert_allclose(a, [0.0, 3.0, 0.0], **ROUND_OFF)
        np.testing.assert_allclose(lam["motor.slide"], 2.0 * (3.0 + G), **ROUND_OFF)


class TestMotion:
    def run(self, bodies, joints, forces=(), v=None, duration=1.0, steps=200, **options):
        mechanism, q = jm.planar_mechanism(bodies, joints, forces)
        at = state(q, np.zeros(q.size) if v is None else v)
        integrator = jd.Projected(jd.RungeKutta.midpoint())
        trajectory = jd.rollout(mechanism, integrator, at, dt=duration / steps, steps=steps, **options)
        jd.raise_if_failed(trajectory)
        return trajectory.state

    def test_pendulum_period(self):
        # Released at 2 rad from the lowest position; T = 4 sqrt(I / (m g l)) K(sin^2(1)).
        period = 4.0 * np.sqrt((1.0 / 3.0) / (G * 0.5)) * ellipk(np.sin(1.0) ** 2)
        pose = (0.5 * np.sin(2.0), -0.5 * np.cos(2.0), 2.0 - 0.5 * np.pi)
        pin = jm.Revolute("pin", "ground", "bar", at=(0.0, 0.0))
        at = self.run([bar("bar", pose)], [pin], duration=period, steps=10_000, save_every=5_000)
        # At half the period it is on the other side. Second order: the error is some (2 pi / steps)^2 = 4e-7.
        np.testing.assert_allclose(at.q[:, 2] + 0.5 * np.pi, [-2.0, 2.0], rtol=0, atol=1e-6)

    @pytest.mark.exhaustive
    def test_mass_on_a_spring(self):
        rail = jm.Prismatic("rail", "ground", "mass", (1.0, 0.0), at=(0.0, 0.0))
        spring = jm.LinearSpring(
            "spring",
            "ground",
            "mass",
            at_a=(-1.0, 0.0),
            at_b=(0.0, 0.0),
            stiffness=50.0,
            damping=0.8,
            rest_length=0.7,
        )
        at = self.run([jm.Body("mass", 2.0, 0.1)], [rail], [spring], steps=10_000, save_every=2_000)
        decay, w = 0.8 / 4.0, np.sqrt(25.0 - 0.2**2)
        x = -0.3 + 0.3 * np.exp(-decay * at.t) * (np.cos(w * at.t) + decay / w * np.sin(w * at.t))
        np.testing.assert_allclose(
            at.q[:, 0], x, rtol=0, atol=1e-7
        )  # second order: (w dt)^2 = 2.5e-7 times 0.3

    @pytest.mark.long
    def test_prescribed_motions_are_followed(self):
        pin, rail = (
            jm.Revolute("pin", "ground", "arm", at=(0.0, 0.0)),
            jm.Prismatic("rail", "arm", "car", (1.0, 0.0), at=(0.5, 0.0)),
        )
        sine = jm.Sinusoid(amplitude=0.4, frequency=0.5)
        motions = [
            jm.PrescribedMotion("turn", "pin", sine),
            jm.PrescribedMotion("feed", "rail", lambda t: 0.1 * t**3),
        ]
        at = self.run(
            [bar("arm", (0.5, 0.0, 0.0)), jm.Body("car", 1.0, 0.1, (0.5, 0.0, 0.0))],
            [pin, rail, *motions],
            v=[0.0, 0.2 * np.pi, 0.4 * np.pi] * 2,
            steps=20,
        )
        angle = 0.4 * np.sin(np.pi * at.t)
        np.testing.assert_allclose(at.q[:, 2], angle, rtol=0, atol=1e-14)
        radius = 0.5 + 0.1 * at.t**3
        np.testing.assert_allclose(at.q[:, 3], radius * np.cos(angle), rtol=0, atol=1e-14)
        np.testing.assert_allclose(at.q[:, 4], radius * np.sin(angle), rtol=0, atol=1e-14)

    def test_bodies_without_joints_in_worlds_of_different_mass(self):
        mechanism, q = jm.planar_mechanism(BODIES, [])
        assert mechanism.row_names == mechanism.row_units == mechanism.joint_names == ()
        mechanism = jd.tree.set_leaf(mechanism, "mass", jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
        axes = (jd.tree.batch_axes(mechanism, "mass"), None, None, None)
        trajectory = jd.batch_rollout(
            mechanism, jd.Projected(jd.textbook.Taylor()), state(q), dt=0.1, steps=5, in_axes=axes
        )
        jd.raise_if_failed(trajectory)
        fallen = np.asarray(q) - np.tile([0.0, 0.5 * G * 0.25, 0.0], 3)
        np.testing.assert_allclose(trajectory.state.q[:, -1], np.stack([fallen, fallen]), **ROUND_OFF)


class TestVelocityRows:
    """Rows of joints at velocity level come after those of positions, with names and units."""

    ROLLING = (
        jm.Skate("blade", "ground", "left", axis=(1.0, 0.5), at=(0.6, 0.1)),
        jm.Revolute("pin", "left", "middle", at=(0.7, 0.3)),
        jm.Skate("sledge", "middle", "right", axis=(0.3, -1.0), point_b=(0.2, -0.4)),
        jm.PrescribedMotion("motor", "pin", jm.Sinusoid(0.3, 1.7)),
    )

    @pytest.mark.exhaustive
    def test_a_skater_describes_an_arc(self):
        """v = 1 m/s along the blade, turning at 0.5 rad/s: x = 2 sin(t / 2), y = 2 (1 - cos(t / 2))."""
        blade = jm.Skate("blade", "ground", "body", axis=(1.0, 0.0), point_b=(0.0, 0.0))
        mechanism, q = jm.planar_mechanism(
            [jm.Body("body", mass=2.0, inertia=0.3)], [blade], gravity=(0.0, 0.0)
        )
        start, _ = jd.initialize(mechanism, q, jnp.array([1.0, 0.0, 0.5]))
        end = jd.rollout(
            mechanism, jd.Projected(jd.RungeKutta.rk4()), start, dt=1e-2, steps=200, save_every=200
        )
        np.testing.assert_allclose(
            end.state.q[-1], [2.0 * np.sin(1.0), 2.0 * (1.0 - np.cos(1.0)), 1.0], rtol=0, atol=1e-8
        )
        assert (mechanism.row_names, mechanism.row_units) == (("blade.normal",), ("m/s",))
        # What turns it, m v omega = 1 N, is the multiplier.
        np.testing.assert_allclose(end.info.lam[-1], [1.0], rtol=0, atol=1e-8)
        assert jd.diagnose(mechanism, start).mobility == 2
        slipping = jd.State(0.0, q, jnp.array([1.0, 0.2, 0.5]))
        assert np.all(
            jd.rollout(mechanism, jd.RungeKutta.rk4(), slipping, dt=1e-2, steps=2).info.status
            == jd.Status.INCONSISTENT_START
        )

    def test_derived_terms_are_those_of_the_generic_system(self):
        mechanism, _ = jm.planar_mechanism(BODIES, self.ROLLING)
        at = moving()
        assert mechanism.row_names == ("motor.angle", "pin.x", "pin.y", "blade.normal", "sledge.normal")
        assert mechanism.row_units == ("rad", "m", "m", "m/s", "m/s")

        @jax.jit
        def terms(t, q, v):
            methods = ("constraint_jacobian", "constraint_bias")
            return [
                (getattr(mechanism, name)(t, q, v), getattr(jd.System, name)(mechanism, t, q, v))
                for name in methods
            ]

        for ours, generic in terms(at.t, at.q, at.v):
            np.testing.assert_allclose(ours, generic, rtol=1e-13, atol=1e-13)

    def test_the_slip_is_that_over_the_other_body(self):
        """Two bodies that move as one do not slip on each other, whatever both do."""
        mechanism, q = jm.planar_mechanism(BODIES, self.ROLLING[2:3])
        v = jnp.concatenate(
            [jnp.stack([1.0 - 2.0 * y, 0.5 + 2.0 * x, 2.0 + 0.0 * x]) for x, y, _ in q.reshape(3, 3)]
        )
        np.testing.assert_allclose(
            mechanism.velocity_constraint(jnp.zeros(()), q, v), [0.0], rtol=0, atol=1e-15
        )

    def test_a_subclass_adds_further_rows(self):
        mechanism, _ = jm.planar_mechanism(BODIES, self.ROLLING)
        held = TestRowsOfSubclasses.as_kind(HeldSkates, mechanism)
        at = moving()
        assert held.row_names == (*mechanism.row_names, "velocity_constraint.0")
        assert held.row_units == (*mechanism.row_units, "")
        np.testing.assert_allclose(
            held.constraint_jacobian(at.t, at.q, at.v)[:-1],
            mechanism.constraint_jacobian(at.t, at.q, at.v),
            rtol=0,
            atol=1e-14,
        )


class TestTracedNumbers:
    def test_a_mechanism_may_be_built_inside_a_differentiated_function(self):
        def angular_acceleration(length, mass):
            body = jm.Body("bar", mass, mass * length**2 / 12.0, (0.5 * length, 0.0, 0.0))
            mechanism, q = jm.planar_mechanism(
                [body], [jm.Revolute("pin", "ground", "bar", at=(0.0, 0.0), damping=0.0 * mass)]
            )
            return jd.forward_dynamics(mechanism, state(q))[0][2]

        # theta'' = -1.5 g / length, whatever the mass.
        slope = jax.jit(jax.grad(angular_acceleration, argnums=(0, 1)))(2.0, 3.0)
        np.testing.assert_allclose(slope, [1.5 * G / 4.0, 0.0], rtol=1e-12, atol=1e-12)

    def test_distances_at_the_start_pose_have_a_derivative_even_at_zero(self):
        def rest_length(x):
            spring = jm.LinearSpring("s", "ground", "b", at_a=(0.0, 0.0), point_b=(0.0, 0.0), stiffness=1.0)
            mechanism, _ = jm.planar_mechanism([jm.Body("b", 1.0, 1.0, (x, 0.0, 0.0))], [], [spring])
            return mechanism.forces["linear_spring"].rest_length[0]

        assert jax.grad(rest_length)(2.0) == 1.0
        assert jax.grad(rest_length)(0.0) == 0.0

    def test_motions_have_derivatives(self):
        joints = [
            jm.Revolute("pin", "ground", "left", at=(0.1, 0.2)),
            jm.PrescribedMotion("motor", "pin", jm.Sinusoid(0.3, 1.7)),
        ]
        mechanism, q = jm.planar_mechanism(BODIES[:1], joints)
        path = "joints.prescribed_angle_sinusoid.motion.amplitude"

        def row(amplitude):
            return jd.tree.set_leaf(mechanism, path, amplitude).constraint(jnp.asarray(0.1), q)[0]

        np.testing.assert_allclose(
            jax.jacfwd(row)(jnp.array([0.3])), [-np.sin(2.0 * np.pi * 1.7 * 0.1)], rtol=1e-14
        )

    def test_motions_of_different_form_are_groups_of_their_own(self):
        pins = [jm.Revolute(f"pin{k}", "ground", body.name, at=(0.0, 0.0)) for k, body in enumerate(BODIES)]
        motions = (jm.Polynomial((0.0, 1.0)), jm.Polynomial((0.0, 1.0, 2.0)), jm.Polynomial((1.0, 2.0)))
        joints = [
            *pins,
            *(jm.PrescribedMotion(f"m{k}", f"pin{k}", motion) for k, motion in enumerate(motions)),
        ]
        mechanism, q = jm.planar_mechanism(BODIES, joints)
        names = {key: group.names for key, group in mechanism.joints.items()}
        assert names["prescribed_angle_polynomial"] == ("m0", "m2")
        assert names["prescribed_angle_polynomial_2"] == ("m1",)
        rows = dict(zip(mechanism.row_names, mechanism.constraint(jnp.asarray(2.0, float), q), strict=True))
        np.testing.assert_allclose([rows[f"m{k}.angle"] for k in range(3)], [-2.0, -10.0, -5.0], rtol=1e-14)


with without_typechecker():
    NUMBER_AS_NAME = jm.Body(1, 1.0, 1.0)
    TEXT_AS_INPUT = jm.Torque("f", "left", "right", input="motor")

PIN = jm.Revolute("pin", "ground", "left", at=(0.0, 0.0))
ENDS = {"at_a": (0.0, 0.0), "at_b": (1.0, 0.0)}

MISTAKES = {
    "no bodies": ({"bodies": []}, "a mechanism needs at least one body"),
    "twice the same body": ({"bodies": [BODIES[0], BODIES[0]]}, "body name 'left' is used twice"),
    "ground as a body": (
        {"bodies": [jm.Body("ground", 1.0, 1.0)]},
        "a body cannot be named 'ground', the name of the fixed world",
    ),
    "negative mass": (
        {"bodies": [jm.Body("b", -1.0, 1.0)]},
        "body 'b': mass must be a positive number, got -1.0",
    ),
    "zero inertia": (
        {"bodies": [jm.Body("b", 1.0, 0.0)]},
        "body 'b': inertia must be a positive number, got 0.0",
    ),
    "infinite mass": (
        {"bodies": [jm.Body("b", np.inf, 1.0)]},
        "body 'b': mass must be a positive number, got inf",
    ),
    "many masses": (
        {"bodies": [jm.Body("b", np.ones(2), 1.0)]},
        "body 'b': mass must be a positive number, got [1. 1.]",
    ),
    "short pose": (
        {"bodies": [jm.Body("b", 1.0, 1.0, (0.0, 0.0))]},
        "body 'b': pose must be three finite numbers (x, y, theta), got",
    ),
    "ragged pose": (
        {"bodies": [jm.Body("b", 1.0, 1.0, (0.0, (1.0, 2.0), 0.0))]},
        "body 'b': pose must be three finite numbers",
    ),
    "twice the same joint": ({"joints": [PIN, PIN]}, "joint name 'pin' is used twice"),
    "unknown body": (
        {"joints": [jm.Revolute("j", "ground", "lft", at=(0.0, 0.0))]},
        "joint 'j': b is 'lft', which is not a body (did you mean 'left'?)",
    ),
    "unlike any body": (
        {"joints": [jm.Revolute("j", "ground", "xyz", at=(0.0, 0.0))]},
        "joint 'j': b is 'xyz', which is not a body (available: left, middle, right, ground)",
    ),
    "a body with itself": (
        {"joints": [jm.Weld("j", "left", "left", at=(0.0, 0.0))]},
        "joint 'j' connects 'left' with itself",
    ),
    "no place": (
        {"joints": [jm.Weld("j", "left", "right")]},
        "joint 'j' needs a position: give at or point_a and at or point_b",
    ),
    "half a place": (
        {"joints": [jm.Weld("j", "left", "right", point_a=(0.0, 0.0))]},
        "joint 'j' needs a position: give at or point_b",
    ),
    "two places": (
        {"joints": [jm.Weld("j", "left", "right", at=(0.0, 0.0), point_a=(0.0, 0.0))]},
        "joint 'j' has both at and point_a; give only one of them",
    ),
    "a place in space": (
        {"joints": [jm.Weld("j", "left", "right", at=(0.0, 0.0, 0.0))]},
        "joint 'j': at must be two finite numbers (x, y), got (0.0, 0.0, 0.0)",
    ),
    "a place as text": (
        {"joints": [jm.Weld("j", "left", "right", at="here")]},
        "joint 'j': at must be two finite numbers (x, y), got 'here'",
    ),
    "no axis": (
        {"joints": [jm.Prismatic("j", "left", "right", axis=(0.0, 0.0), at=(0.0, 0.0))]},
        "joint 'j': axis must be two numbers that are not both zero, got (0.0, 0.0)",
    ),
    "an axis as text": (
        {"joints": [jm.Prismatic("j", "left", "right", axis="x", at=(0.0, 0.0))]},
        "joint 'j': axis must be two numbers that are not both zero, got 'x'",
    ),
    "many lengths": (
        {"joints": [jm.Rod("j", "left", "right", **ENDS, length=np.ones(2))]},
        "joint 'j': length must be a finite number",
    ),
    "no length": (
        {"joints": [jm.Rod("j", "left", "right", at_a=(1.0, 0.0), at_b=(1.0, 0.0))]},
        "joint 'j': its points coincide at the start pose, so its default length would be 0; give length",
    ),
    "no length in body frames": (
        {"joints": [jm.Rod("j", "ground", "left", at_a=POSES["left"][:2], point_b=(0.0, 0.0))]},
        "joint 'j': its points coincide at the start pose",
    ),
    "no ratio": (
        {"joints": [jm.Gear("j", "left", "right", ratio=None)]},
        "joint 'j': ratio must be a finite number, got None",
    ),
    "motion of no joint": (
        {"joints": [PIN, jm.PrescribedMotion("m", "pni", jm.Sinusoid(1.0, 1.0))]},
        "joint 'm': joint is 'pni', which is not a revolute or prismatic joint (did you mean 'pin'?)",
    ),
    "motion of a weld": (
        {
            "joints": [
                jm.Weld("w", "left", "right", at=(0.0, 0.0)),
                jm.PrescribedMotion("m", "w", jm.Sinusoid(1.0, 1.0)),
            ]
        },
        "joint 'm': joint is 'w', which has no coordinate; name a revolute or prismatic joint",
    ),
    "motion is a number": (
        {"joints": [PIN, jm.PrescribedMotion("m", "pin", 3.0)]},
        "motion must be a function of time such as Sinusoid(...)",
    ),
    "motion is a class": (
        {"joints": [PIN, jm.PrescribedMotion("m", "pin", jm.Sinusoid)]},
        "motion must be a function of time such as",
    ),
    "motion that fails": (
        {"joints": [PIN, jm.PrescribedMotion("m", "pin", lambda t, u: t)]},
        "which fails: ",
    ),
    "motion of two numbers": (
        {"joints": [PIN, jm.PrescribedMotion("m", "pin", lambda t: jnp.stack([t, t]))]},
        "which returns shape (2,) instead of one number",
    ),
    "force on the ground": (
        {"forces": [jm.Force("f", "ground", at=(0.0, 0.0))]},
        "force 'f': body is 'ground', which is not a body",
    ),
    "force without place": (
        {"forces": [jm.Force("f", "left")]},
        "force 'f' needs a position: give at or point",
    ),
    "force of one number": (
        {"forces": [jm.Force("f", "left", at=(0.0, 0.0), force=1.0)]},
        "force 'f': force must be two finite numbers (x, y), got 1.0",
    ),
    "direction": (
        {"forces": [jm.Force("f", "left", at=(0.0, 0.0), direction=(1.0, 0.0, 0.0))]},
        "force 'f': direction must be two finite numbers (x, y)",
    ),
    "force of no joint": (
        {"forces": [jm.JointForce("f", "pin")]},
        "force 'f': joint is 'pin', which is not a revolute or prismatic joint",
    ),
    "input": (
        {"forces": [jm.Torque("f", "left", "right", input=-1)]},
        "force 'f': input must be an index from 0 to 9999, got -1",
    ),
    "huge input": (
        {"forces": [jm.Torque("f", "left", "right", input=10**5000)]},
        "force 'f': input must be an index from 0 to 9999, got a huge int",
    ),
    "many inputs": (
        {"forces": [jm.Torque("f", "left", "right", input=10_000)]},
        "force 'f': input must be an index from 0 to 9999, got 10000",
    ),
    "input name": (
        {"forces": [TEXT_AS_INPUT]},
        "force 'f': input must be an index from 0 to 9999, got 'motor'",
    ),
    "many torques": (
        {"forces": [jm.Torque("f", "left", "right", torque=(1.0, 2.0))]},
        "force 'f': torque must be a finite number, got (1.0, 2.0)",
    ),
    "scalar gravity": ({"gravity": -9.81}, "gravity must be two finite numbers (x, y) in m/s^2, got -9.81"),
    "gravity in space": (
        {"gravity": (0.0, 0.0, -9.81)},
        "gravity must be two finite numbers (x, y) in m/s^2, got (0.0, 0.0, -9.81)",
    ),
}


@all_cases(("changes", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(changes, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is compared below)
        jm.planar_mechanism(**{"bodies": BODIES, "joints": [], "forces": [], **changes})
    assert str(caught.value).startswith("planar_mechanism: ")
    assert message in str(caught.value)


WRONG_THINGS = {
    "a name": ({"bodies": ["left"]}, "bodies[0] is a str; expected Body"),
    "one body": ({"bodies": BODIES[0]}, "bodies must be a list, got Body"),
    "nothing": ({"joints": None}, "joints must be a list, got NoneType"),
    "a force among the joints": (
        {"joints": [PIN, FORCES[0]]},
        "joints[1] is a LinearSpring; expected Revolute, Prismatic, Weld, Rod, PointOnLine, Gear, "
        "PrescribedMotion",
    ),
    "a joint among the forces": (
        {"forces": [PIN]},
        "forces[0] is a Revolute; expected LinearSpring, TorsionalSpring, Torque, Force, JointForce",
    ),
    "a number as name": ({"bodies": [NUMBER_AS_NAME]}, "bodies[0]: name must be text, got 1"),
    "no name": ({"joints": [jm.Gear("", "left", "right", 1.0)]}, "joints[0]: name must be text, got ''"),
}


@all_cases(("changes", "message"), WRONG_THINGS.values(), ids=WRONG_THINGS)
def test_wrong_things_in_the_lists(changes, message):
    with without_typechecker(), pytest.raises(TypeError) as caught:
        jm.planar_mechanism(**{"bodies": BODIES, "joints": [], "forces": [], **changes})
    assert message in str(caught.value)


def test_all_mistakes_come_at_once():
    with pytest.raises(ValueError, match="planar_mechanism: ") as caught:
        jm.planar_mechanism(
            [jm.Body("a", -1.0, 0.0), jm.Body("a", 1.0, 1.0)],
            [jm.Revolute("j", "ground", "z", at=(0.0, 0.0)), jm.Weld("j", "a", "ground")],
            [jm.Force("f", "q", at=(0.0, 0.0)), jm.JointForce("g", "k", gain="much")],
            gravity=1.0,
        )
    expected = [
        "used twice",
        "mass must",
        "inertia must",
        "b is 'z'",
        "joint name 'j'",
        "needs a position",
        "body is 'q'",
        "joint is 'k'",
        "gain must",
        "gravity must",
    ]
    for part in expected:
        assert part in str(caught.value), part


class TestRowsOfSubclasses:
    """Rows that a subclass declares are in J, in gamma and in the reports."""

    @staticmethod
    def as_kind(kind, mechanism):
        return kind(**{field.name: getattr(mechanism, field.name) for field in dataclasses.fields(mechanism)})

    @pytest.mark.long
    @pytest.mark.parametrize(
        "integrator",
        [pytest.param(jd.RungeKutta.rk4(), marks=pytest.mark.exhaustive), jd.Projected(jd.RungeKutta.rk4())],
    )
    def test_a_skate(self, integrator):
        """v = 1 m/s along the blade, turning at 0.5 rad/s: an arc, x = 2 sin(1), y = 2 (1 - cos(1)) after 2
        s.
        """
        mechanism, q = jm.planar_mechanism(
            [jm.Body("skate", mass=2.0, inertia=0.3)], [], [], gravity=(0.0, 0.0)
        )
        skate = self.as_kind(Skate, mechanism)
        start = jd.State(0.0, q, jnp.array([1.0, 0.0, 0.5]))
        end = jd.rollout(skate, integrator, start, dt=1e-2, steps=200, save_every=200)
        np.testing.assert_allclose(
            end.state.q[-1], [2.0 * np.sin(1.0), 2.0 * (1.0 - np.cos(1.0)), 1.0], rtol=0, atol=1e-8
        )
        assert end.info.velocity_violation[-1] < 1e-7
        assert (skate.row_names, skate.row_units) == (("velocity_constraint.0",), ("",))
        assert jd.diagnose(skate, start).mobility == 2
        slipping = jd.State(0.0, q, jnp.array([1.0, 0.2, 0.5]))
        np.testing.assert_array_equal(
            jd.rollout(skate, integrator, slipping, dt=1e-2, steps=2).info.status,
            jd.Status.INCONSISTENT_START,
        )

    @pytest.mark.exhaustive
    def test_a_steered_bicycle(self):
        """A chassis with a fork, hinged at L = 1.2 m: two blades; with the fork held at delta the rear wheel
        turns at v tan(delta) / L.
        """
        bodies = [jm.Body("chassis", 3.0, 0.5), jm.Body("fork", 0.5, 0.02, pose=(1.2, 0.0, 0.4))]
        joints = [
            jm.Revolute("head", "chassis", "fork", at=(1.2, 0.0)),
            jm.Gear("steer", "chassis", "fork", ratio=1.0),
        ]
        mechanism, q = jm.planar_mechanism(bodies, joints, gravity=(0.0, 0.0))
        bicycle = self.as_kind(Bicycle, mechanism)
        state, _ = jd.initialize(bicycle, q, jnp.array([1.0, 0.0, 0.0, 1.0, 0.0, 0.0]))
        assert bicycle.row_names[-2:] == ("velocity_constraint.0", "velocity_constraint.1")
        np.testing.assert_allclose(state.v[2], state.v[0] * np.tan(0.4) / 1.2, rtol=1e-12)
        end = jd.rollout(
            bicycle, jd.Projected(jd.RungeKutta.rk4()), state, dt=1e-2, steps=100, save_every=100
        )
        v, turn = np.hypot(*end.state.v[-1, :2]), end.state.v[-1, 2]
        np.testing.assert_allclose(turn, v * np.tan(0.4) / 1.2, rtol=1e-9)
        # Nothing drives and nothing brakes it.
        np.testing.assert_allclose(
            jd.energy(bicycle, jax.tree.map(lambda x: x[-1], end.state)), jd.energy(bicycle, state), rtol=1e-9
        )

    @pytest.mark.long
    def test_position_rows_of_a_subclass_come_with_their_derivatives(self):
        bodies = [jm.Body("wheel", 1.0, 0.5), jm.Body("bob", 1.0, 0.1, pose=(0.3, -0.4, 0.0))]
        mechanism, q = jm.planar_mechanism(
            bodies, [jm.Revolute("pin", "wheel", "bob", at=(0.0, 0.0))], gravity=(0.3, -9.81)
        )
        disk, plain = self.as_kind(RollingDisk, mechanism), mechanism
        start = jd.State(jnp.zeros(()), q, jnp.array([0.5, 0.0, -1.0, 0.5, 0.0, 0.0]))
        jacobian, bias = (
            f(start.t, start.q, start.v) for f in (disk.constraint_jacobian, disk.constraint_bias)
        )
        np.testing.assert_allclose(
            jacobian[:2], plain.constraint_jacobian(start.t, start.q, start.v), rtol=0, atol=1e-15
        )
        np.testing.assert_allclose(
            jacobian[2:], [[1.0, 0.0, 0.5, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]], rtol=0, atol=1e-15
        )
        np.testing.assert_allclose(
            bias[:2], plain.constraint_bias(start.t, start.q, start.v), rtol=0, atol=1e-14
        )
        assert disk.row_names == ("pin.x", "pin.y", "constraint.0", "constraint.1")

    def test_a_jacobian_that_forgets_rows_is_an_error(self):
        @jd.tree.pytree
        class Forgetful(Skate):
            def constraint_jacobian(self, t, q, v):
                return jnp.zeros((0, 3))

        mechanism, q = jm.planar_mechanism([jm.Body("skate", mass=2.0, inertia=0.3)], [], [])
        with pytest.raises(
            ValueError,
            match=r"constraint_jacobian\(t, q, v\) must return .* shape \(1, 3\) \(1 rows are declared",
        ):
            jd.forward_dynamics(self.as_kind(Forgetful, mechanism), jd.State(0.0, q, 0.0 * q))


@jd.tree.pytree
class HeldSkates(jm.Mechanism):
    """Joints at velocity level, and a first body that does not turn."""

    def velocity_constraint(self, t, q, v):
        return jnp.append(super().velocity_constraint(t, q, v), v[2])


@jd.tree.pytree
class Skate(jm.Mechanism):
    """A body on a blade: no motion across it."""

    def velocity_constraint(self, t, q, v):
        return jnp.stack([jnp.cos(q[2]) * v[1] - jnp.sin(q[2]) * v[0]])


@jd.tree.pytree
class Bicycle(jm.Mechanism):
    """Two bodies, each with a blade at its mass center."""

    def velocity_constraint(self, t, q, v):
        return jnp.stack([jnp.cos(q[k + 2]) * v[k + 1] - jnp.sin(q[k + 2]) * v[k] for k in (0, 3)])


@jd.tree.pytree
class RollingDisk(jm.Mechanism):
    """A disk of radius 0.5 m that rolls along y = 0, by position-level rows: x + r theta = 0 and y = 0."""

    def constraint(self, t, q):
        return jnp.concatenate([super().constraint(t, q), jnp.stack([q[0] + 0.5 * q[2], q[1]])])

"""Transmission and workspace of parallel robots against closed forms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import jaxdae as jd
from jaxdae import kinematics as jk
from jaxdae import mechanisms as jm
from jaxdae import models

CRANK, ROD, TURNS = 0.3, 0.35, np.pi / 2.0 + 2.0 * np.pi / 3.0 * np.arange(3)
BASE, PLATFORM = (radius * np.stack([np.cos(TURNS), np.sin(TURNS)], axis=1) for radius in (0.5, 0.15))
MASS, CRANK_MASS, ROD_MASS = (2.0, 0.01), 0.4, 0.3
MOTORS = ("motor0", "motor1", "motor2")


def cross(a, b):
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def across(a):
    return np.stack([-a[..., 1], a[..., 0]], axis=-1)


def legs(x, y, turn):
    """Returns the cranks, rods and arms of the platform (3, 2) of the 3-RRR robot, all elbows on one side."""
    arms = PLATFORM @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    leg = np.array([x, y]) + arms - BASE
    square = np.sum(leg**2, axis=1)
    along = (square + CRANK**2 - ROD**2) / (2.0 * square)
    cranks = along[:, None] * leg + np.sqrt(CRANK**2 / square - along**2)[:, None] * across(leg)
    return cranks, leg - cranks, arms


def closed_form(x, y, turn):
    """Returns A and B of A (x', y', turn') = B theta'."""
    cranks, rods, arms = legs(x, y, turn)
    return np.concatenate([rods, cross(arms, rods)[:, None]], axis=1), np.diag(cross(cranks, rods))


def inertia(x, y, turn):
    """Returns the effective inertia of the platform from the kinetic energy of all bodies."""
    cranks, rods, arms = legs(x, y, turn)
    a, b = closed_form(x, y, turn)
    total = np.diag([MASS[0], MASS[0], MASS[1]])
    turns = np.linalg.solve(b, a)
    for k in range(3):
        elbow = np.outer(across(cranks[k]), turns[k])
        end = np.concatenate([np.eye(2), across(arms[k])[:, None]], axis=1)
        spin = across(rods[k]) @ (end - elbow) / ROD**2
        middle = (elbow + end) / 2.0
        total += CRANK_MASS * CRANK**2 / 3.0 * np.outer(turns[k], turns[k])
        total += ROD_MASS * (middle.T @ middle + ROD**2 / 12.0 * np.outer(spin, spin))
    return total


@functools.cache
def robot():
    """The planar 3-RRR robot of Gosselin and Angeles, and its start."""
    cranks, rods, arms = legs(0.0, 0.0, 0.1)
    bodies, joints = [jm.Body("platform", *MASS, (0.0, 0.0, 0.1))], []
    for k in range(3):
        elbow = BASE[k] + cranks[k]
        for name, mass, at, rod in (
            (f"crank{k}", CRANK_MASS, BASE[k], cranks[k]),
            (f"rod{k}", ROD_MASS, elbow, rods[k]),
        ):
            pose = (*(at + rod / 2.0), np.arctan2(rod[1], rod[0]))
            bodies.append(jm.Body(name, mass, mass * (rod @ rod) / 12.0, pose))
        joints.append(jm.Revolute(f"motor{k}", jm.GROUND, f"crank{k}", at=BASE[k]))
        joints.append(jm.Revolute(f"elbow{k}", f"crank{k}", f"rod{k}", at=elbow))
        joints.append(jm.Revolute(f"end{k}", f"rod{k}", "platform", at=arms[k]))
    return jm.planar_mechanism(bodies, joints, coordinates=jm.Joints())


def platform(p):
    return jk.PoseTarget("platform", p[:2], p[2])


@functools.cache
def posed():
    mechanism, start = robot()

    @jax.jit
    @jax.vmap
    def found(p):
        def at(p):
            state, info = jk.inverse_kinematics(mechanism, platform(p), start)
            seen = jk.transmission(
                mechanism, state, platform(0.0 * p), MOTORS, motor_stiffness=(100.0, 200.0, 300.0)
            )
            return seen, (seen, info.status)

        return jax.jacfwd(at, has_aux=True)(p)

    return found


@pytest.mark.long
def test_singular_values_stiffness_and_inertia_of_a_3rrr_robot():
    mechanism, _ = robot()
    length = float(mechanism.characteristic_length)
    poses = np.random.default_rng(0).uniform((-0.1, -0.1, -0.3), (0.1, 0.1, 0.3), (20, 3))
    slopes, (found, status) = posed()(jnp.array(poses))
    assert not np.any(status)

    def expected(p):
        a, b = closed_form(*p)
        scaled = a * np.array([length, length, 1.0])
        pairs = np.linalg.svd(np.concatenate([-b, scaled], axis=1))[2][3:].T
        values = np.linalg.svd(np.linalg.solve(scaled, b), compute_uv=False)
        inverse = np.linalg.solve(b, a)
        return {
            "jacobian": np.linalg.solve(a, b),
            "singular_values": values,
            "manipulability": np.prod(values),
            "dexterity": values[2] / values[0],
            "type1": np.linalg.svd(pairs[3:], compute_uv=False)[2],
            "type2": np.linalg.svd(pairs[:3], compute_uv=False)[2],
            "stiffness": inverse.T @ np.diag([100.0, 200.0, 300.0]) @ inverse,
            "inertia": inertia(*p),
        }

    for k, p in enumerate(poses):
        for name, value in expected(p).items():
            # Rounding times the condition of A and B, some 100.
            np.testing.assert_allclose(getattr(found, name)[k], value, rtol=1e-10, atol=1e-12, err_msg=name)
    near = [[expected(poses[0] + s * e) for s in (1e-6, -1e-6)] for e in np.eye(3)]
    for name in near[0][0]:
        difference = np.stack([(high[name] - low[name]) / 2e-6 for high, low in near], axis=-1)
        # h^2 = 1e-12 of third derivatives, and rounding / h.
        np.testing.assert_allclose(
            getattr(slopes, name)[0], difference, rtol=1e-6, atol=1e-6 * np.abs(difference).max()
        )


@pytest.mark.exhaustive
def test_singularity_curve_of_a_3rrr_robot():
    """The curve det A = 0 in the plane y = 0 of all poses."""

    def direct(turn, x):
        _, (found, status) = posed()(jnp.array([[x, 0.0, turn]]))
        assert not np.any(status)
        return float(np.sign(np.linalg.det(found.jacobian[0])) * found.type2[0])

    for x in (-0.1, -0.05, 0.0, 0.05, 0.1):
        at = brentq(lambda turn, x=x: np.linalg.det(closed_form(x, 0.0, turn)[0]), -0.9, -0.3, xtol=1e-14)
        found = brentq(lambda turn, x=x: direct(turn, x), at - 0.02, at + 0.01, xtol=1e-12)
        # Rounding of type2 over its slope, some 1.
        np.testing.assert_allclose(found, at, rtol=0, atol=1e-11)


@pytest.mark.long
def test_workspace_boundary_of_a_3rrr_robot():
    """The curve det B = 0: the end of a straight leg is on the circle of radius a + b, of a folded leg b - a."""
    mechanism, start = robot()
    length = float(mechanism.characteristic_length)

    @jax.jit
    @jax.vmap
    def bent(motor, elbow, turn):
        leg = jk.JointTarget({"motor0": motor, "elbow0": elbow})
        state, info = jk.inverse_kinematics(
            mechanism, (leg, jk.PoseTarget("platform", orientation=turn)), start
        )
        seen = jk.transmission(mechanism, state, platform(jnp.zeros(3)), MOTORS)
        return state.q, jnp.stack(mechanism.frames(state.q)[:2])[:, 0], seen.type1, info.status

    motor, turn = np.array([-1.8, -1.6, -1.4, 1.4, 1.6, 1.8]), np.array([0.0, 0.1, -0.1] * 2)
    fold = np.repeat([0.0, -np.pi], 3)
    _, place, type1, status = bent(*map(jnp.array, (motor, fold, turn)))
    assert not np.any(status)
    np.testing.assert_allclose(type1, 0.0, atol=1e-14)
    reach = CRANK + np.cos(fold) * ROD
    ends = BASE[0] + reach[:, None] * np.stack([np.cos(motor), np.sin(motor)], axis=1)
    arms = np.stack([legs(*pose, angle)[2][0] for pose, angle in zip(place, turn, strict=True)])
    np.testing.assert_allclose(place, ends - arms, rtol=0, atol=1e-13)
    # Poses near the curve, and steps to both of its sides.
    q, near, type1, status = bent(*map(jnp.array, (motor, fold + np.where(fold < 0.0, 0.01, -0.01), turn)))
    assert not np.any(status)
    solve = jax.jit(jax.vmap(lambda p, q: jk.inverse_kinematics(mechanism, platform(p), q)[1].status))
    outward = np.where(fold < 0.0, -1.0, 1.0)[:, None] * (ends - BASE[0]) / np.abs(reach)[:, None]
    for step, expected in ((-1e-6, jd.Status.OK), (1e-6, jd.Status.UNREACHABLE)):
        beside = np.concatenate([place + step * outward, turn[:, None]], axis=1)
        assert list(solve(jnp.array(beside), q)) == [expected] * 6
    for k in range(6):
        a, b = closed_form(*near[k], turn[k])
        scaled = a * np.array([length, length, 1.0])
        pairs = np.linalg.svd(np.concatenate([-b, scaled], axis=1))[2][3:].T
        np.testing.assert_allclose(type1[k], np.linalg.svd(pairs[3:], compute_uv=False)[2], rtol=1e-9)


@pytest.mark.exhaustive
def test_workspace_of_a_five_bar():
    """A lens less two holes: each leg reaches a ring about its motor.

    The map finds both holes from one start. Bisection on rays locates the boundary.
    """
    linkage, start = models.five_bar()
    outer, inner, base = 0.6, 0.1, 0.15

    def reach(p):
        return jk.PoseTarget("rod1", p, point=(0.175, 0.0))

    axis = np.linspace(-0.64, 0.66, 40)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    away = np.hypot(points[..., 0] - base * np.array([[[-1.0]], [[1.0]]]), points[..., 1])
    limits = {"motor1": (-9.0, 9.0)}
    found = jk.workspace(linkage, reach, points, start, ("motor1", "motor2"), limits=limits)
    inside = np.all((away < outer) & (away > inner), axis=0)
    np.testing.assert_array_equal(found.reachable, inside)
    motor = found.state.q[..., linkage.names.coordinates.index("motor1.angle")]
    np.testing.assert_allclose(found.margin, 9.0 - np.abs(motor), rtol=1e-14)

    # Gauss-Legendre rays from the middle, in two halves without corners, and rays from the motors in the holes.
    nodes, weights = np.polynomial.legendre.leggauss(10)
    half, turn = np.pi / 2.0 * nodes, np.pi / 4.0 * np.arange(8)
    angles = np.concatenate([half, half + np.pi, turn, turn])
    centers = np.repeat([[0.0, 0.0], [-base, 0.0], [base, 0.0]], (20, 8, 8), axis=0)
    rays = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    sign = np.repeat([1.0, -1.0], (20, 16))  # 1 if the inner end is reachable.
    low, high = np.repeat([[0.3, 0.8], [0.0, 0.14]], (20, 16), axis=0).T
    solve = jax.jit(jax.vmap(lambda p, q: jk.inverse_kinematics(linkage, reach(p), q)))
    flat, usable = points.reshape(-1, 2), np.asarray(found.reachable).reshape(-1)
    ends = centers + np.where(sign > 0, low, high)[:, None] * rays
    nearest = np.argmin(np.linalg.norm(flat - ends[:, None], axis=2) + 9.0 * ~usable, axis=1)
    poses = found.state.q.reshape(-1, 4)[nearest]
    for _ in range(17):  # To 1e-5 of the radius.
        middle = (low + high) / 2.0
        state, info = solve(centers + middle[:, None] * rays, poses)
        hit = np.asarray(info.status) == 0
        poses = np.where(hit[:, None], state.q, poses)
        low, high = (np.where(hit == (sign > 0), middle, low), np.where(hit == (sign > 0), high, middle))
    parts = np.concatenate([weights, weights, -np.full(16, 0.5)]) * np.pi / 4.0 * (low + high) ** 2 / 4.0
    lens = 2.0 * (outer**2 * np.arccos(base / outer) - base * np.sqrt(outer**2 - base**2))
    np.testing.assert_allclose(np.sum(parts), lens - 2.0 * np.pi * inner**2, rtol=2e-5)


@pytest.mark.long
def test_redundant_motors():
    """The five-bar with a third motor at an elbow: weighted efforts and stiffness."""
    linkage, start = models.five_bar()
    names, weights, stiffness = ("motor1", "motor2", "elbow1"), (1.0, 2.0, 5.0), (100.0, 50.0, 20.0)
    tool = jk.PoseTarget("rod1", (0.0, 0.0), point=(0.175, 0.0))
    x, y = np.asarray(linkage.frames(start.q))[:2, 1]
    found = jk.transmission(linkage, start, tool, names, motor_stiffness=stiffness)
    # Rates of the cranks and of the elbow for a velocity of the tip, from rods of constant length.
    turns = np.array([2.2, 0.9])
    cranks = 0.25 * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    rod1 = 2.0 * (np.array([x + 0.15, y]) - cranks[0])
    tip = np.array([-0.15, 0.0]) + cranks[0] + rod1
    rods = np.stack([rod1, tip - np.array([0.15, 0.0]) - cranks[1]])
    rates = rods / cross(cranks, rods)[:, None]
    spin = across(rod1) @ (np.eye(2) - np.outer(across(cranks[0]), rates[0])) / 0.35**2
    inverse = np.concatenate([rates, (spin - rates[0])[None]])
    np.testing.assert_allclose(found.jacobian @ inverse, np.eye(2), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.stiffness, inverse.T @ np.diag(stiffness) @ inverse, rtol=1e-11)

    still = jnp.zeros((4,))
    two = jk.actuator_efforts(linkage, start, still, names[:2]).efforts
    three = jk.actuator_efforts(linkage, start, still, names, weights=weights)
    np.testing.assert_allclose(three.residual, 0.0, atol=1e-12)
    # The same force at the tip, and efforts that are orthogonal to internal loads in the metric of weights.
    efforts = np.asarray(three.efforts)
    np.testing.assert_allclose(inverse.T @ efforts, inverse[:2].T @ np.asarray(two), rtol=1e-11)
    internal = np.linalg.svd(inverse.T)[2][2]
    np.testing.assert_allclose(internal @ (np.array(weights) * efforts), 0.0, atol=1e-12)
    assert abs(efforts[2]) > 0.01

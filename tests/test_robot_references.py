"""Robots with loops, in joint and in absolute coordinates, against two independent engines: see
tests/reference/README.md.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import robot_models
from agreement import body_accelerations, close, near
from catalogue import in_ci
from scipy.spatial.transform import Rotation
from spatial_references import file

import jaxdae as jd
from jaxdae import mechanisms as jm

EPS = np.finfo(float).eps
CUTS = {"robotiq_2f85": ("right", "left"), "stewart": tuple(f"ball{k}" for k in range(6))}


@functools.cache
def model(name):
    """Returns a mechanism in the coordinates of the file, and the mass centers of its bodies."""
    description, offsets = robot_models.read(name)
    return jm.mechanism(description, jm.Joints(CUTS[name]))[0], offsets


def own_names(mechanism):
    """Returns the names of the velocities as the file has them: those of its joints, of a free body six that
    are not named.
    """
    found = []
    for name in mechanism.names.velocities:
        joint, coordinate = name.rsplit(".", 1)
        if "+" in joint:
            joint = joint.split("+")[coordinate.startswith("second")]
        found.append(joint)
    return found


def translated(name, state):
    """Returns our state of a state of the file, the map T of its velocities to ours, and T' v there."""
    data, (mechanism, offsets) = file(f"loop_{name}"), model(name)
    in_file = {joint["name"]: joint for joint in data["joints"]}
    given_q, given_v = np.array(state["q"]), np.array(state["v"])
    names = own_names(mechanism)
    size = len(names)
    q, transform, drift = np.zeros(len(mechanism.names.coordinates)), np.zeros((size, size)), np.zeros(size)
    q_names = [
        name.rsplit(".", 1)[0] if "+" not in name else names[k]
        for k, name in enumerate(mechanism.names.coordinates)
    ]
    for k, joint in enumerate(names):
        if joint in in_file:
            transform[k, in_file[joint]["v"]] = 1.0
    for k, joint in enumerate(q_names):
        if joint in in_file:
            q[k] = given_q[in_file[joint]["q"]]
    for joint in data["joints"]:
        if joint["type"] == "free":
            body, at, first = joint["body"], joint["v"], names.index(joint["body"])
            place, quaternion = given_q[joint["q"] :][:3], given_q[joint["q"] + 3 :][:4]
            turned, center = Rotation.from_quat(np.roll(quaternion, -1)), offsets[joint["body"]]
            q_at = q_names.index(body)
            q[q_at : q_at + 7] = [*(place + turned.apply(center)), *quaternion]
            arm = np.array(
                [[0.0, -center[2], center[1]], [center[2], 0.0, -center[0]], [-center[1], center[0], 0.0]]
            )
            transform[first : first + 6, at : at + 6] = np.eye(6)
            transform[first : first + 3, at + 3 : at + 6] = -turned.as_matrix() @ arm
            omega = given_v[at + 3 : at + 6]
            drift[first : first + 3] = turned.apply(np.cross(omega, np.cross(omega, center)))
    return jnp.asarray(q), transform, drift


@jax.jit
def terms(mechanism, state):
    """Returns M, f, J and gamma."""
    t, q, v = state.t, state.q, state.v
    return (
        mechanism.mass_matrix(q),
        mechanism.force(t, q, v, None),
        mechanism.constraint_jacobian(t, q, v),
        mechanism.constraint_bias(t, q, v),
    )


@pytest.mark.parametrize("number", range(3))
@pytest.mark.long
@pytest.mark.parametrize("name", in_ci(CUTS, "robotiq_2f85"))
def test_equations_in_joint_coordinates(name, number):
    data, (mechanism, _) = file(f"loop_{name}"), model(name)
    expected = data["states"][number]
    q, transform, drift = translated(name, expected)
    v = np.asarray(expected["v"])
    assert len(v) == len(mechanism.names.velocities)
    np.testing.assert_allclose(mechanism.constraint(jnp.zeros(()), q), 0.0, rtol=0, atol=1e-15)
    state = jd.State(jnp.zeros(()), q, jnp.asarray(transform @ v))
    mass, force, jacobian, bias = (np.asarray(x) for x in terms(mechanism, state))
    near(transform.T @ mass @ transform, expected["mass_matrix"])
    near(
        transform.T @ (force - mass @ drift),
        np.asarray(expected["passive_force"]) - np.asarray(expected["nonlinear_effects"]),
        10.0,
    )
    # Rows of the file are joint by joint, and ours by type: balls, then relations, which stand in the order of the file here.
    near(jacobian @ transform, expected["jacobian"])
    near(bias + jacobian @ drift, expected["bias"], 10.0)
    # M a = f + tau + J^T lam and J a + gamma = 0, where the rank of the file is not that of all rows.
    tau = np.linalg.solve(transform.T, np.asarray(expected["tau"]))
    solution = jd.solve_saddle_point(
        jd.NullSpace(), jnp.asarray(mass), jnp.asarray(jacobian), jnp.asarray(force + tau), jnp.asarray(-bias)
    )
    ours = np.linalg.solve(transform, np.asarray(solution[0]) - drift)
    # 1e-12 at a condition of 1e3.
    accuracy = 1e-15 * expected["condition_kkt"]
    close(ours, expected["acceleration"], accuracy, least=1e-3)
    close(
        transform.T @ jacobian.T @ np.asarray(solution[1]), expected["constraint_force"], accuracy, least=1e-3
    )


@jax.jit
def accelerations(mechanism, state):
    solver = jd.NullSpace(jd.operators.SingularValues(1e-9))
    return jd.forward_dynamics(mechanism, state, solver=solver)[0]


@pytest.mark.long
def test_the_gripper_in_absolute_coordinates():
    """The same accelerations of all bodies, with springs, damping and armature of joints as rows, and the
    coupling between two of them.
    """
    tree, _ = model("robotiq_2f85")
    absolute, _ = jm.mechanism(robot_models.read("robotiq_2f85")[0])
    for expected in file("loop_robotiq_2f85")["states"][1:]:
        q, transform, _ = translated("robotiq_2f85", expected)
        here = jd.State(jnp.zeros(()), q, jnp.asarray(transform @ np.asarray(expected["v"])))
        a = accelerations(absolute, jax.jit(jm.to_absolute)(tree, here))
        near(body_accelerations(tree, here, accelerations(tree, here)), a, expected["condition_kkt"])

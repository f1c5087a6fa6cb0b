"""Robots that move, against trajectories of two other engines to 1e-9: by RK4 with steps of fitted length,
and by adaptive steps.

Fitted: the error of RK4 falls by 2^4 where steps are halved, so that the errors e of n and e' of 2 n steps
tell those of any number, and (e / 1e-10)^(1/4) n steps reach 1e-10. The files are those of `tests/reference`;
robots with URDF files need `make test-robots`.
"""

import dataclasses
import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from robot_models import MODELS, read
from robot_trees import Tree
from spatial_references import file
from test_robot_references import model, translated
from test_robot_trees import FOLDERS, needs_files

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae import robots
from jaxdae.mechanisms import spatial as js

BAR = 1e-9


def same_signs(q, expected, quaternions):
    """Returns coordinates with the signs of the expected quaternions, which begin at these numbers."""
    q = np.array(q)
    for first in quaternions:
        part = slice(first, first + 4)
        q[:, part] *= np.sign(np.sum(q[:, part] * expected[:, part], axis=1, keepdims=True))
    return q


class Motion:
    """A robot, and where it is at the times of a file."""

    def __init__(self, mechanism, t, q, v):
        self.mechanism, self.t, self.q, self.v = mechanism, np.asarray(t), np.asarray(q), np.asarray(v)
        names = mechanism.names.coordinates
        self.quaternions = [k for k, name in enumerate(names) if name.endswith(".qw")]
        self.start = jd.State(*(jnp.asarray(x[0]) for x in (self.t, self.q, self.v)))

    def in_absolute(self, mechanism):
        """Returns the same in absolute coordinates."""
        states = jd.State(jnp.asarray(self.t), jnp.asarray(self.q), jnp.asarray(self.v))
        absolute = jax.jit(jax.vmap(jm.to_absolute, in_axes=(None, 0)))(self.mechanism, states)
        return Motion(mechanism, self.t, absolute.q, absolute.v)

    def error(self, states):
        """Returns the largest error of positions, and of velocities relative to the largest of them, at the
        times of the file.
        """
        q = same_signs(states.q, self.q[1:], self.quaternions)
        return max(
            np.max(np.abs(q - self.q[1:])), np.max(np.abs(states.v - self.v[1:])) / np.max(np.abs(self.v))
        )


def stewart():
    """Returns the platform that falls on its damped legs."""
    states = file("trajectory_stewart")["states"]
    found = [translated("stewart", state) for state in states]
    v = [transform @ np.asarray(state["v"]) for state, (_, transform, _) in zip(states, found, strict=True)]
    return Motion(model("stewart")[0], [state["t"] for state in states], [q for q, _, _ in found], v)


def from_mjcf(name):
    """Returns a robot with loops from its file in MJCF, with the constant torques of the reference on its
    joints.
    """
    data = file(f"trajectory_{name}")
    robot = robots.load(MODELS / f"{data['name']}.xml")
    in_file = {joint["v"]: joint["name"] for joint in file(f"loop_{data['name']}")["joints"]}
    pushes = [js.JointForce(f"push {k}", in_file[k], force=tau) for k, tau in enumerate(data["tau"]) if tau]
    mechanism, _ = jm.mechanism(
        dataclasses.replace(robot.description, forces=[*robot.description.forces, *pushes]), jm.Joints()
    )
    entries = data["states"]
    states = [
        robots.from_mujoco(robot.report, mechanism, *(jnp.asarray(entry[key]) for key in "qv"))
        for entry in entries
    ]
    return Motion(mechanism, [entry["t"] for entry in entries], [s.q for s in states], [s.v for s in states])


def published(name, of):
    """Returns a robot of a URDF file."""
    data, constants = file(f"trajectory_{name}"), file(f"tree_{of}")
    path = next(path for folder in FOLDERS if (path := folder / constants["source"]["file"]).exists())
    tree = Tree(path, constants)
    damping = {
        key: jnp.full((len(group.names),), data["damping"])
        for key, group in tree.mechanism.carrying.items()
        if group.coordinates
    }
    damped = tree.mechanism
    for key, each in damping.items():
        damped = jd.tree.set_leaf(damped, f"carrying.{key}.damping", each)
    states = []
    for entry in data["states"]:
        positions = dict(zip(data["joint_order"], entry["joint_position"], strict=True))
        states.append(tree.state(entry | {"joint_position": positions, "velocity": entry["v"]})[0])
    return Motion(
        damped, [entry["t"] for entry in data["states"]], [s.q for s in states], [s.v for s in states]
    )


@functools.partial(jax.jit, static_argnums=(2, 3))
def rolled(mechanism, start, method, entries, dt, every):
    """Returns the states of all entries, so many steps apart; how many these are is no part of the program."""

    def entry(state, _):
        after = jax.lax.fori_loop(0, every, lambda _, at: method.step(mechanism, at, (), None, dt)[0], state)
        return after, after

    return jax.lax.scan(entry, start, None, length=entries)[1]


def assert_fitted(motion, solver, first):
    """Asserts that RK4 is of order 4 from some number of steps on, and that the steps that follow from its
    errors reach the bar.
    """
    entries, last = len(motion.t) - 1, motion.t[-1]
    method = jd.RungeKutta.rk4(solver=solver)
    method = jd.Projected(method) if motion.mechanism.names.rows else method

    def error(every):
        return motion.error(
            rolled(motion.mechanism, motion.start, method, entries, last / entries / every, every)
        )

    coarse, fine = error(first // entries), error(2 * first // entries)
    assert 2.0**3.5 < coarse / fine < 2.0**4.7, (coarse, fine)
    every = int(np.ceil(2 * first / entries * (fine / (0.1 * BAR)) ** 0.25))
    assert error(every) < BAR


def assert_adaptive(motion, solver):
    entries, last = len(motion.t) - 1, motion.t[-1]
    # Seven stages are compiled in half of the time of the fourteen of order 8.
    method = jd.diffrax.Adaptive(rtol=1e-11, atol=1e-11, solver=solver, method=diffrax.Tsit5())
    trajectory = jd.rollout(motion.mechanism, method, motion.start, dt=last / entries, steps=entries)
    jd.raise_if_failed(trajectory)
    assert motion.error(trajectory.state) < BAR


@pytest.mark.long
@pytest.mark.parametrize("form", ["joints", pytest.param("absolute", marks=pytest.mark.exhaustive)])
def test_a_platform_on_six_legs(form):
    motion = stewart()
    if form == "absolute":
        motion = motion.in_absolute(jm.mechanism(read("stewart")[0])[0])
    assert_fitted(motion, jd.SchurComplement(), 100)


@pytest.mark.exhaustive
def test_adaptive_steps_of_a_platform_on_six_legs():
    assert_adaptive(stewart(), jd.SchurComplement())


@needs_files
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "of", "first"), [("panda_damped", "panda", 1000), ("solo12_ballistic", "solo12", 200)]
)
def test_published_robots(name, of, first):
    motion = published(name, of)
    assert_fitted(motion, jd.SchurComplement(), first)
    assert_adaptive(motion, jd.SchurComplement())


@pytest.mark.exhaustive
def test_a_gripper_from_its_file():
    pytest.importorskip("mujoco", reason="the extra robots is not installed: pip install '.[robots]'")
    assert_fitted(from_mjcf("robotiq_2f85"), jd.SchurComplement(), 4000)


@pytest.mark.exhaustive
def test_cassie_falls_with_its_stiff_springs_and_redundant_loops():
    pytest.importorskip("mujoco", reason="the extra robots is not installed: pip install '.[robots]'")
    motion = from_mjcf("cassie_free_fall")
    # Damped at 5300 1/s: RK4 is unstable with steps over 0.5 ms, and the thousands of steps that take none of
    # these digits are more than are allowed by default. The times of the file are not evenly spaced.
    method = jd.diffrax.Adaptive(rtol=1e-10, atol=1e-10, solver=jd.SchurComplement(), method=diffrax.Tsit5())
    trajectory = jd.diffrax.adaptive_rollout(
        motion.mechanism,
        method,
        motion.start,
        times=jnp.asarray(motion.t[1:]),
        max_steps=20_000,
        adjoint=diffrax.ForwardMode(),
    )
    jd.raise_if_failed(trajectory)
    assert motion.error(trajectory.state) < BAR
    # Loops stay closed to round-off of lengths of 1 m.
    assert np.max(trajectory.info.violation) < 10 * np.finfo(float).eps

"""Robots as `jaxdae.robots` loads them, in the conventions of the reference files of trees (tests/reference/README.md)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae import robots
from jaxdae.geometry.rotation import rotation_matrix


def loaded(path, floating, gravity):
    """Returns the mechanism of a file without damping, friction and mimic joints, its start coordinates and the report."""
    found = robots.load(path, base="floating" if floating else "fixed", gravity=gravity)
    moving = [joint for joint in found.description.joints if not isinstance(joint, jm.Relation | jm.spatial.Relation)]
    free = [dataclasses.replace(joint, damping=0.0, friction=0.0) for joint in moving]
    return *jm.mechanism(dataclasses.replace(found.description, joints=free), jm.Joints()), found.report


class Tree:
    """A robot in the velocities of a reference file: of the base link in its own axes, then of joints by name."""

    def __init__(self, path, data):
        self.floating, self.gravity = data["floating"], np.asarray(data["gravity"])
        self.base = data["base_link"]
        self.joints = [name for name in data["velocity_order"] if ":" not in name]
        self.mechanism, self.q, self.report = loaded(path, self.floating, data["gravity"])
        self.evaluated = jax.jit(self._evaluated)
        self.links = {}

    def state(self, entry):
        """Returns the state of an entry, the matrix T of v = T x for the velocities x of the file, and T' x."""
        names = self.mechanism.names
        size = 6 if self.floating else 0
        x = np.asarray(entry["velocity"])
        rates = dict(zip(self.joints, x[size:], strict=True))
        positions = {name: entry["joint_position"][name] for name in self.joints}
        state = robots.joint_state(self.mechanism, self.q, positions, rates)
        turns = np.zeros((len(names.velocities), len(x)))
        bias = np.zeros(len(names.velocities))
        for column, name in enumerate(self.joints, start=size):
            turns[[row for row, of in enumerate(names.velocities) if of.rsplit(".", 1)[0] == name], column] = 1.0
        if not self.floating:
            return state, turns, bias
        frame = self.report.frames[self.base]
        turn = np.asarray(rotation_matrix(jnp.asarray(entry["base"]["quat_wb"])))
        center = -frame.rotation.T @ frame.place
        q, body = np.array(state.q), frame.body
        q[[names.coordinates.index(f"{body}.{axis}") for axis in "xyz"]] = entry["base"]["position"] + turn @ center
        q[[names.coordinates.index(f"{body}.q{axis}") for axis in "wxyz"]] = entry["base"]["quat_wb"]
        linear, angular = ([names.velocities.index(f"{body}.{kind}{axis}") for axis in "xyz"] for kind in ("v", "omega_"))
        turns[np.ix_(linear, range(3))] = turn
        turns[np.ix_(linear, range(3, 6))] = turn @ np.cross(np.eye(3), center).T
        turns[np.ix_(angular, range(3, 6))] = np.eye(3)
        bias[linear] = turn @ np.cross(x[3:6], x[:3] + np.cross(x[3:6], center))
        return jaxdae.State(state.t, jnp.asarray(q), jnp.asarray(turns @ x)), turns, bias

    def named(self, state):
        """Returns mass center, linear and angular momentum."""
        momentum = jax.jit(robots.centroidal_momentum)(self.mechanism, state)
        return jax.jit(robots.center_of_mass)(self.mechanism, state.q), momentum[:3], momentum[3:]

    def of_link(self, link, state, a):
        """Returns place, velocity, Jacobian and acceleration of a link."""
        if link not in self.links:
            self.links[link] = jax.jit(
                lambda state, a: (
                    robots.link_frame(self.report, self.mechanism, state.q, link)[0],
                    robots.link_velocity(self.report, self.mechanism, state, link),
                    robots.link_jacobian(self.report, self.mechanism, state.q, link),
                    robots.link_acceleration(self.report, self.mechanism, state, a, link),
                )
            )
        return self.links[link](state, jnp.asarray(a))

    def _evaluated(self, state):
        system, still = self.mechanism, jnp.zeros_like(state.v)
        motion = system.coordinates.kinematics(state.q, state.v)
        energies = system.kinetic_energy(state.q, state.v), system.potential_energy(state.t, state.q)
        forces = (-system.force(state.t, state.q, v, None) for v in (state.v, still))
        return system.mass_matrix(state.q), *forces, motion.frame, motion.velocity, *energies

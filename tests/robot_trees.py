"""Robots as `jaxdae.robots` loads them, in the conventions of the reference files of trees
(tests/reference/README.md).
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae import robots
from jaxdae.geometry.rotation import rotation_matrix


def loaded(path, floating, gravity):
    """Returns the mechanism of a file without damping, friction and mimic joints, its start coordinates and
    the report.
    """
    found = robots.load(path, base="floating" if floating else "fixed", gravity=gravity)
    moving = [
        joint
        for joint in found.description.joints
        if not isinstance(joint, jm.Relation | jm.spatial.Relation)
    ]
    free = [
        dataclasses.replace(joint, **dict.fromkeys({"damping", "friction"} & joint.kinds().keys(), 0.0))
        for joint in moving
    ]
    return *jm.mechanism(dataclasses.replace(found.description, joints=free), jm.Joints()), found.report


class Tree:
    """A robot in the velocities of a reference file: of the base link in its own axes, then of joints by
    name.
    """

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
            turns[
                [row for row, of in enumerate(names.velocities) if of.rsplit(".", 1)[0] == name], column
            ] = 1.0
        if not self.floating:
            return state, turns, bias
        turn = np.asarray(rotation_matrix(jnp.asarray(entry["base"]["quat_wb"])))
        q = np.array(state.q)
        q[self._base_q("")] = entry["base"]["position"]
        q[self._base_q("q")] = entry["base"]["quat_wb"]
        linear, angular = self._base_v("v"), self._base_v("omega_")
        turns[np.ix_(linear, range(3))] = turn
        turns[np.ix_(angular, range(3, 6))] = np.eye(3)
        bias[linear] = turn @ np.cross(x[3:6], x[:3])
        return jaxdae.State(state.t, jnp.asarray(q), jnp.asarray(turns @ x)), turns, bias

    def _base_q(self, kind):
        """Returns where the place or quaternion of the base is in q."""
        axes = "wxyz" if kind == "q" else "xyz"
        return np.asarray(
            [
                self.mechanism.names.coordinates.index(f"{self.report.frames[self.base].body}.{kind}{axis}")
                for axis in axes
            ]
        )

    def _base_v(self, kind):
        """Returns where the velocity or angular velocity of the base is in v."""
        return np.asarray(
            [
                self.mechanism.names.velocities.index(f"{self.report.frames[self.base].body}.{kind}{axis}")
                for axis in "xyz"
            ]
        )

    def _mapped(self, q, turns, x):
        """Returns T x and T' x at other coordinates than those where T was found; differentiable."""
        v, drift = jnp.asarray(turns) @ x, jnp.zeros_like(q, shape=turns.shape[:1])
        if not self.floating:
            return v, drift
        turn, linear = rotation_matrix(q[self._base_q("q")]), self._base_v("v")
        return v.at[linear].set(turn @ x[:3]), drift.at[linear].set(turn @ jnp.cross(x[3:6], x[:3]))

    def acceleration(self, q, turns, x, tau):
        """Returns the acceleration in the velocities of the file (nv,), a with T^T (M (T a + T' x) - f) =
        tau; differentiable.
        """
        square = jax.jacfwd(lambda y: self._mapped(q, turns, y)[0])(x)
        v, drift = self._mapped(q, turns, x)
        applied = self.mechanism.force(jnp.zeros(()), q, v, None) + jnp.linalg.solve(square.T, tau)
        return jnp.linalg.solve(square, self.mechanism.mass_operator(q).solve(applied) - drift)

    own_acceleration = jax.jit(acceleration, static_argnums=0)

    @functools.partial(jax.jit, static_argnums=0)
    def acceleration_derivatives(self, q, turns, x, tau):
        """Returns da/dq and da/dx in the tangent of the file: xi moves the base by the twist xi in its own
        axes.
        """
        moved = jnp.asarray(turns)
        return jax.jacfwd(
            lambda xi, y: self.acceleration(self.mechanism.retract(q, moved @ xi), turns, y, tau), (0, 1)
        )(jnp.zeros_like(x), x)

    @functools.partial(jax.jit, static_argnums=0)
    def of_links(self, numbers, places, q, turns, x, a):
        """Returns velocities and accelerations of points of bodies and of these bodies (links, 6), and
        Jacobians (links, 6, nv).
        """

        def moving(q, y):
            v, _ = self._mapped(q, turns, y)
            motion = self.mechanism.coordinates.kinematics(q, v)
            rows = jnp.stack(motion.frame[3:], axis=-1).reshape(-1, 3, 3)[numbers]
            center, omega = (
                jnp.stack(motion.velocity[part], axis=-1)[numbers] for part in (slice(0, 3), slice(3, 6))
            )
            linear = center + jnp.einsum("nij,nj->ni", rows, jnp.cross(omega, places))
            return jnp.concatenate([linear, jnp.einsum("nij,nj->ni", rows, omega)], axis=1)

        v = self._mapped(q, turns, x)[0]
        velocity, acceleration = jax.jvp(
            lambda s, y: moving(self.mechanism.retract(q, s * v), y), (jnp.zeros(()), x), (jnp.ones(()), a)
        )
        return velocity, acceleration, jax.jacfwd(moving, 1)(q, x)

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

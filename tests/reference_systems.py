"""More systems of `tests/reference`, written by hand: rigid bodies in space, rolling without slip, an elastic
rod, Andrews once more.

Spatial bodies have the coordinates (x, y, z, quat_wb) and the velocities (v_world, omega_body), mass center
and body frame, one body after the other. The files have quaternion rates instead of omega_body; `body_states`
converts them, with e' = e (0, omega_body) / 2. All numbers are leaves, so that any of them can be
differentiated.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from problems import AndrewsAngles, reference, state

import jaxdae as jd
from jaxdae import rotation

AXES = np.eye(3)
X, Y, Z = AXES


def _leaf(x: Any) -> Any:
    return jnp.asarray(x, float)


# Rigid bodies in space.


def _turned(quat_wb, x):
    """Returns world components (n, 3) of body components (n, 3)."""
    return jax.vmap(rotation.quat_rotate)(quat_wb, x)


def _turned_back(quat_wb, x):
    """Returns body components (n, 3) of world components (n, 3)."""
    return _turned(jax.vmap(rotation.quat_conjugate)(quat_wb), x)


@jd.tree.pytree
class Bodies(jd.System):
    """Free rigid bodies: mass (n,), principal moments of inertia about the mass center (n, 3), gravity (3,).
    q (7 n,), v (6 n,).
    """

    mass: Any
    inertia: Any
    gravity: Any

    def poses(self, q):
        """Returns places (n, 3) and quaternions (n, 4)."""
        rows = q.reshape(-1, 7)
        return rows[:, :3], rows[:, 3:]

    def twists(self, v):
        """Returns v_world (n, 3) and omega_body (n, 3)."""
        rows = v.reshape(-1, 6)
        return rows[:, :3], rows[:, 3:]

    def _diagonal(self):
        mass = jnp.broadcast_to(self.mass[:, None], self.inertia.shape)
        return jnp.concatenate([mass, self.inertia], axis=1).reshape(-1)

    def mass_matrix(self, q):
        return jnp.diag(self._diagonal())

    def mass_operator(self, q):
        return jd.operators.DiagonalMatrix(self._diagonal())

    def force(self, t, q, v, u):
        omega = self.twists(v)[1]
        weight = self.mass[:, None] * self.gravity
        return jnp.concatenate([weight, -jnp.cross(omega, self.inertia * omega)], axis=1).reshape(-1)

    def retract(self, q, xi):
        (place, quat), (step, turn) = self.poses(q), self.twists(xi)
        return jnp.concatenate([place + step, jax.vmap(rotation.quat_retract)(quat, turn)], axis=1).reshape(
            -1
        )

    def difference(self, q0, q1):
        (place0, quat0), (place1, quat1) = self.poses(q0), self.poses(q1)
        return jnp.concatenate(
            [place1 - place0, jax.vmap(rotation.quat_difference)(quat0, quat1)], axis=1
        ).reshape(-1)

    def potential_energy(self, t, q):
        return -jnp.sum(self.mass[:, None] * self.gravity * self.poses(q)[0])


def body_velocities(q: Any, rates: Any) -> np.ndarray:
    """Returns (..., 6 n), v_world and omega_body, from coordinates (..., 7 n) and their rates (..., 7 n)."""
    q, rates = (np.asarray(x, float).reshape(*np.shape(x)[:-1], -1, 7) for x in (q, rates))
    e0, e, de0, de = q[..., 3:4], q[..., 4:], rates[..., 3:4], rates[..., 4:]
    # 2 Im(conj(e) e')
    omega = 2.0 * (e0 * de - de0 * e - np.cross(e, de))
    return np.concatenate([rates[..., :3], omega], axis=-1).reshape(*q.shape[:-2], -1)


def body_states(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns q (times, 7 n) and v (times, 6 n) of a reference with spatial bodies."""
    file = reference(name)
    return file.q, body_velocities(file.q, file.v)


def _start(name: str) -> jd.State:
    initial = reference(name).file["initial_conditions"]
    return state(initial["q"], body_velocities(initial["q"], initial["v"]))


@jd.tree.pytree
class HeavyTop(Bodies):
    """A body whose point -arm, seen from the mass center in the body frame, stays at the origin."""

    arm: Any

    def constraint(self, t, q):
        (place,), (quat,) = self.poses(q)
        return place - rotation.quat_rotate(quat, self.arm)


def heavy_top(name: str) -> tuple[HeavyTop, jd.State]:
    """Returns the top and the start of `heavy_top_bruls` or `heavy_top_steady`."""
    p = reference(name).parameters
    if name == "heavy_top_bruls":
        inertia, arm = p["J_about_mass_centre"], p["X_mass_centre_from_pivot_body"]
    else:
        transverse = p["J_transverse_about_mass_centre"]
        inertia, arm = [transverse, transverse, p["J_axial"]], p["mass_centre_from_pivot"] * Z
    return HeavyTop(_leaf([p["m"]]), _leaf([inertia]), _leaf(p["g"]), _leaf(arm)), _start(name)


def torque_free() -> tuple[Bodies, jd.State]:
    """Returns the free body of `torque_free_asymmetric` and its start."""
    p = reference("torque_free_asymmetric").parameters
    return Bodies(_leaf([p["m"]]), _leaf([p["J"]]), jnp.zeros(3)), _start("torque_free_asymmetric")


# Rolling and sliding without slip.


@jd.tree.pytree
class ChaplyginSleigh(jd.System):
    """A body (x, y, theta) on a blade at the distance `arm` behind its mass center that does not slide
    sideways.
    """

    mass: Any
    inertia: Any
    arm: Any

    def mass_matrix(self, q):
        return jnp.diag(jnp.stack([self.mass, self.mass, self.inertia]))

    def force(self, t, q, v, u):
        return jnp.zeros_like(v)

    def velocity_constraint(self, t, q, v):
        return jnp.stack([-jnp.sin(q[2]) * v[0] + jnp.cos(q[2]) * v[1] - self.arm * v[2]])


def chaplygin_sleigh() -> tuple[ChaplyginSleigh, jd.State]:
    """Returns the sleigh of the reference and its start."""
    file = reference("chaplygin_sleigh")
    return ChaplyginSleigh(*(_leaf(file.parameters[key]) for key in ("m", "I", "a"))), file.start()


@jd.tree.pytree
class RollingPenny(jd.System):
    """An upright disk (x, y, roll angle, heading) that rolls without slip: two velocity-level rows."""

    mass: Any
    roll_inertia: Any
    heading_inertia: Any
    radius: Any

    def mass_matrix(self, q):
        return jnp.diag(jnp.stack([self.mass, self.mass, self.roll_inertia, self.heading_inertia]))

    def force(self, t, q, v, u):
        return jnp.zeros_like(v)

    def velocity_constraint(self, t, q, v):
        return v[:2] - self.radius * v[2] * jnp.stack([jnp.cos(q[3]), jnp.sin(q[3])])


def rolling_penny() -> tuple[RollingPenny, jd.State]:
    """Returns the penny of the reference and its start."""
    file = reference("rolling_penny")
    return RollingPenny(*(_leaf(file.parameters[key]) for key in ("m", "I", "J", "R"))), file.start()


# The slider crank with an elastic rod.


@jd.tree.pytree
class ElasticSliderCrank(jd.LagrangianSystem):
    """A driven slider crank, q = (phi1, phi2, x3, q1, q2, q3, q4); `p`: all constants by name.

    The rod bends in two sine modes (q1, q2) and stretches in a quadratic element (q3 in its middle, q4 at its
    end). Its shape functions give the matrices below; `pi` is a constant of the model, 3.1415927 in the
    published one.
    """

    p: dict[str, Any]

    def _rod(self):
        """Returns Mq, Kq, Bq (4, 4) and c1, c2, c12, c21 (4,)."""
        p = self.p
        pi, section = p["pi"], p["B"] * p["H"] * p["L2"]
        mass, stiffness = p["rho"] * section, p["E"] * p["B"] * p["H"] / p["L2"]
        bending = stiffness * pi**4 * (p["H"] / p["L2"]) ** 2
        none = jnp.zeros_like(pi)

        def blocks(first, second, coupled):
            return (
                jnp.zeros((4, 4), pi.dtype).at[0, 0].set(first).at[1, 1].set(second).at[2:, 2:].set(coupled)
            )

        mass_matrix = blocks(mass / 2.0, mass / 2.0, mass * jnp.asarray([[8.0, 1.0], [1.0, 2.0]], pi.dtype))
        stiffness_matrix = blocks(
            bending / 24.0,
            bending * 2.0 / 3.0,
            stiffness / 3.0 * jnp.asarray([[16.0, -8.0], [-8.0, 7.0]], pi.dtype),
        )
        upper = (
            jnp.zeros((4, 4), pi.dtype)
            .at[0, 2]
            .set(-16.0 / pi**3)
            .at[0, 3]
            .set(8.0 / pi**3 - 1.0 / pi)
            .at[1, 3]
            .set(0.5 / pi)
        )
        return (
            mass_matrix,
            stiffness_matrix,
            section * (upper - upper.T),
            section * jnp.stack([none, none, none + 2.0 / 3.0, none + 1.0 / 6.0]),
            section * jnp.stack([2.0 / pi, none, none, none]),
            p["L2"] * section * jnp.stack([none, none, none + 1.0 / 3.0, none + 1.0 / 6.0]),
            p["L2"] * section * jnp.stack([1.0 / pi, -0.5 / pi, none, none]),
        )

    def mass_matrix(self, q):
        p = self.p
        rod_mass, _, rod_coupling, c1, c2, c12, c21 = self._rod()
        cos, sin, e = jnp.cos(q[0] - q[1]), jnp.sin(q[0] - q[1]), q[3:]
        m12 = 0.5 * p["M2"] * p["L1"] * p["L2"] * cos + p["rho"] * p["L1"] * (sin * c2 + cos * c1) @ e
        rows = jnp.zeros((7, 7), q.dtype)
        rows = rows.at[0, 1].set(m12)
        rows = rows.at[0, 3:].set(p["rho"] * p["L1"] * (cos * c2 - sin * c1))
        rows = rows.at[1, 3:].set(p["rho"] * (c21 + rod_coupling.T @ e))
        rows = rows + rows.T
        rows = rows.at[0, 0].set(p["J1"] + p["M2"] * p["L1"] ** 2)
        rows = rows.at[1, 1].set(p["J2"] + e @ rod_mass @ e + 2.0 * p["rho"] * c12 @ e)
        return rows.at[2, 2].set(p["M3"]).at[3:, 3:].set(rod_mass)

    def kinetic_energy(self, q, v):
        return 0.5 * v @ self.mass_matrix(q) @ v

    def potential_energy(self, t, q):
        return 0.5 * q[3:] @ self._rod()[1] @ q[3:]

    def constraint(self, t, q):
        p = self.p
        phi1, phi2, x3, length = q[0], q[1], q[2], p["L2"] + q[6]
        return jnp.stack(
            [
                p["L1"] * jnp.sin(phi1) + length * jnp.sin(phi2),
                x3 - p["L1"] * jnp.cos(phi1) - length * jnp.cos(phi2),
                phi1 - p["Omega"] * t,
            ]
        )


def elastic_slider_crank() -> tuple[ElasticSliderCrank, jd.State]:
    """Returns the slider crank of `ivptest_slider_crank` and its (consistent) start."""
    file = reference("ivptest_slider_crank")
    assert file.parameters["g"] == 0.0  # The model has no weight.
    return ElasticSliderCrank({name: _leaf(value) for name, value in file.parameters.items()}), file.start()


# Andrews' mechanism as in the IFToMM library: another start and a longer time.


def iftomm_andrews() -> tuple[AndrewsAngles, jd.State]:
    """Returns Andrews' mechanism of `iftomm_a03_andrews` and its start, with the crank at -0.062 rad."""
    file = reference("iftomm_a03_andrews")
    return AndrewsAngles({name: _leaf(value) for name, value in file.parameters.items()}), file.start()


# The flyball governor.


@jd.tree.pytree
class Flyball(Bodies):
    """A governor of four bodies, shaft, slider and two rods with balls: 28 coordinates, 24 velocities, 20
    rows, mobility 4.

    The shaft turns about the vertical, the slider slides along it, the rods (body x axis along the rod, away
    from the hinge) turn about the y axis of the shaft; both swing freely, and alike on the motion of the
    reference. Spring-dampers join slider and rod centers.

    `arm`: from a hinge to the mass center of its rod with the ball; `middle`: to the center of the rod, where
    the spring ends; `offset`: from the axis to the hinges, and to the springs' ends on the slider.
    """

    shaft_length: Any
    offset: Any
    arm: Any
    middle: Any
    stiffness: Any
    damping: Any
    rest_length: Any

    def _revolutes(self):
        """Returns points on the first and on the second body (3, 3) of three joints: ground to shaft, shaft
        to rods.
        """
        half, zero = 0.5 * self.shaft_length, jnp.zeros_like(self.offset)
        on_first = jnp.stack(
            [
                jnp.stack(x)
                for x in ((zero, zero, zero), (self.offset, zero, half), (-self.offset, zero, half))
            ]
        )
        on_second = jnp.stack(
            [jnp.stack(x) for x in ((zero, zero, -half), (-self.arm, zero, zero), (-self.arm, zero, zero))]
        )
        return on_first, on_second

    def constraint(self, t, q):
        place, quat = self.poses(q)
        place = jnp.concatenate([place, jnp.zeros((1, 3), q.dtype)])
        turn = jax.vmap(rotation.rotation_matrix)(
            jnp.concatenate([quat, jnp.asarray([[1.0, 0.0, 0.0, 0.0]], q.dtype)])
        )
        # Revolutes: points meet, and two axes of the first body stay normal to the axis of the second one.
        # Body 4 is the ground.
        first, second = np.array([4, 0, 0]), np.array([0, 2, 3])
        normals, axis = (
            jnp.asarray(x, q.dtype)
            for x in (np.stack([AXES[[0, 1]], AXES[[0, 2]], AXES[[0, 2]]]), np.stack([Z, Y, Y]))
        )
        on_first, on_second = self._revolutes()
        gap = place[second] + jnp.einsum("jab,jb->ja", turn[second], on_second)
        gap = gap - place[first] - jnp.einsum("jab,jb->ja", turn[first], on_first)
        tilt = jnp.einsum("jka,jba,jbc,jc->jk", normals, turn[first], turn[second], axis)
        # Prismatic: the slider is on the z axis of the shaft and parallel to it.
        relative = turn[0].T @ turn[1]
        off_axis = turn[0].T @ (place[1] - place[0])
        parallel = relative[np.array([0, 1, 2]), np.array([1, 2, 0])]
        return jnp.concatenate([jnp.concatenate([gap, tilt], axis=1).reshape(-1), off_axis[:2], parallel])

    def _springs(self, q):
        """Returns the ends in body frames (2, 3) on slider and rods, the vectors between them in the world
        (2, 3), and their lengths.
        """
        place, quat = self.poses(q)
        zero = jnp.zeros_like(self.offset)
        on_slider = jnp.stack([jnp.stack([self.offset, zero, zero]), jnp.stack([-self.offset, zero, zero])])
        on_rod = jnp.stack([jnp.stack([self.middle - self.arm, zero, zero])] * 2)
        end = place[2:] + _turned(quat[2:], on_rod)
        vector = end - place[1] - _turned(jnp.stack([quat[1], quat[1]]), on_slider)
        return on_slider, on_rod, vector, jnp.linalg.norm(vector, axis=1)

    def force(self, t, q, v, u):
        quat, (velocity, omega) = self.poses(q)[1], self.twists(v)
        on_slider, on_rod, vector, length = self._springs(q)
        slider = jnp.stack([quat[1], quat[1]])
        omega_slider = jnp.stack([omega[1], omega[1]])
        speed = velocity[2:] + _turned(quat[2:], jnp.cross(omega[2:], on_rod))
        speed = speed - velocity[1] - _turned(slider, jnp.cross(omega_slider, on_slider))
        direction = vector / length[:, None]
        pull = self.stiffness * (length - self.rest_length) + self.damping * jnp.sum(
            direction * speed, axis=1
        )
        on_rods = -pull[:, None] * direction
        wrenches = jnp.zeros((4, 6), q.dtype)
        wrenches = wrenches.at[1, :3].add(-jnp.sum(on_rods, axis=0)).at[2:, :3].add(on_rods)
        wrenches = wrenches.at[1, 3:].add(
            jnp.sum(jnp.cross(on_slider, _turned_back(slider, -on_rods)), axis=0)
        )
        wrenches = wrenches.at[2:, 3:].add(jnp.cross(on_rod, _turned_back(quat[2:], on_rods)))
        return super().force(t, q, v, u) + wrenches.reshape(-1)

    def potential_energy(self, t, q):
        stretch = self._springs(q)[3] - self.rest_length
        return super().potential_energy(t, q) + 0.5 * self.stiffness * jnp.sum(stretch**2)


def _box_inertia(mass, size):
    """Returns the principal moments of inertia of a uniform box."""
    x, y, z = np.square(size)
    return mass / 12.0 * np.array([y + z, z + x, x + y])


def flyball() -> tuple[Flyball, jd.State]:
    """Returns the governor of `iftomm_a05_flyball` and its start. The balls are point masses at the ends of
    the rods.
    """
    p = reference("iftomm_a05_flyball").parameters
    shaft, slider, rod, ball = p["shaft"], p["slider"], p["rod"], p["ball"]
    length = rod["size"][2]
    mass = rod["m"] + ball
    arm = (0.5 * rod["m"] + ball) * length / mass
    # The rod lies along its body's x axis; the file gives its size along z.
    along_x = _box_inertia(rod["m"], rod["size"][::-1])
    steiner = rod["m"] * (arm - 0.5 * length) ** 2 + ball * (length - arm) ** 2
    rod_inertia = along_x + steiner * np.array([0.0, 1.0, 1.0])
    system = Flyball(
        mass=_leaf([shaft["m"], slider["m"], mass, mass]),
        inertia=_leaf(
            [
                _box_inertia(shaft["m"], shaft["size"]),
                _box_inertia(slider["m"], slider["size"]),
                rod_inertia,
                rod_inertia,
            ],
        ),
        gravity=_leaf([0.0, 0.0, -p["g"]]),
        shaft_length=_leaf(shaft["size"][2]),
        offset=_leaf(p["offset"]),
        arm=_leaf(arm),
        middle=_leaf(0.5 * length),
        stiffness=_leaf(p["K"]),
        damping=_leaf(p["C"]),
        rest_length=_leaf(p["l0"]),
    )
    return system, _start("iftomm_a05_flyball")


def flyball_minimal(q: Any, v: Any = None) -> np.ndarray:
    """Returns (psi, s, alpha) (..., 3), or with velocities their rates, (..., 6) in all, as in `minimal_hp`
    of the file.

    psi is the angle of the shaft in (-pi, pi], s the height of the slider, alpha the angle of the first rod
    below the horizontal.
    """
    rows = np.asarray(q).reshape(*np.shape(q)[:-1], 4, 7)
    psi = 2.0 * np.arctan2(rows[..., 0, 6], rows[..., 0, 3])
    psi = psi - 2.0 * np.pi * np.round(psi / (2.0 * np.pi))
    e0, e1, e2, e3 = np.moveaxis(rows[..., 2, 3:], -1, 0)
    # The x axis of the rod in world components is (cos alpha cos psi, cos alpha sin psi, -sin alpha).
    axis = np.stack([1.0 - 2.0 * (e2**2 + e3**2), 2.0 * (e1 * e2 + e0 * e3), 2.0 * (e1 * e3 - e0 * e2)])
    alpha = np.arctan2(-axis[2], np.hypot(axis[0], axis[1]))
    place = np.stack([psi, rows[..., 1, 2], alpha], axis=-1)
    return place if v is None else np.concatenate([place, flyball_minimal_rates(v)], axis=-1)


def flyball_minimal_rates(v: Any) -> np.ndarray:
    """Returns (psi', s', alpha') (..., 3) of velocities, and the second derivatives of accelerations."""
    rows = np.asarray(v).reshape(*np.shape(v)[:-1], 4, 6)
    # The rod turns with the shaft about the vertical, which is normal to its y axis, and by alpha about that
    # axis.
    return np.stack([rows[..., 0, 5], rows[..., 1, 2], rows[..., 2, 4]], axis=-1)


def minimal_flyball_accelerations(state: Any) -> np.ndarray:
    """Returns (psi'', s'', alpha'') at (psi, s, alpha, psi', s', alpha'), from Lagrange's equations in these
    three, without jaxdae.

    T = I(alpha) psi'^2/2 + m_s s'^2/2 + (m a^2 + J) alpha'^2,  V = m_s g s - 2 m g a sin(alpha) + K (l -
    l0)^2, l the length of a spring.
    """
    p = reference("iftomm_a05_flyball").parameters
    _, s, alpha, psi_rate, s_rate, alpha_rate = (np.longdouble(x) for x in state)
    cos, sin = np.cos(alpha), np.sin(alpha)
    rod, ball, length, offset = p["rod"]["m"], p["ball"], p["rod"]["size"][2], np.longdouble(p["offset"])
    thickness = np.longdouble(p["rod"]["size"][0])
    mass, arm = (
        np.longdouble(rod + ball),
        (np.longdouble(rod) / 2 + ball) * length / (np.longdouble(rod) + ball),
    )
    across = (
        np.longdouble(rod) * (length**2 + thickness**2) / 12
        + rod * (arm - length / 2) ** 2
        + ball * (length - arm) ** 2
    )
    along = np.longdouble(rod) * thickness**2 / 6
    radius = offset + arm * cos
    vertical = sum(part["m"] * np.longdouble(part["size"][0]) ** 2 / 6 for part in (p["shaft"], p["slider"]))
    vertical = vertical + 2 * (mass * radius**2 + along * sin**2 + across * cos**2)
    vertical_slope = 2 * (-2 * mass * radius * arm * sin + 2 * (along - across) * sin * cos)
    half = np.longdouble(length) / 2
    # The hinges are at the height of the shaft's upper end.
    height = p["shaft"]["size"][2] - half * sin - s
    spring = np.hypot(half * cos, height)
    by_s = -height / spring
    by_alpha = -half * cos * (half * sin + height) / spring
    pull = p["K"] * (spring - p["l0"]) + p["C"] * (by_s * s_rate + by_alpha * alpha_rate)
    return np.array(
        [
            -vertical_slope * alpha_rate * psi_rate / vertical,
            -p["g"] - 2 * pull * by_s / p["slider"]["m"],
            (vertical_slope * psi_rate**2 / 4 + mass * p["g"] * arm * cos - pull * by_alpha)
            / (mass * arm**2 + across),
        ],
        float,
    )

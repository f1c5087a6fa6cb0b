"""Mechanisms with redundant rows and with singular configurations, written by hand from the formulas in
`tests/reference`.

The rectangular Bricard mechanism (35 rows of rank 34 on all of its motion), a parallelogram whose coupler
hangs on three cranks (12 rows of rank 11), the double four-bar (14 rows, rank 12 where all links are
collinear) and a slider crank with equal crank and rod (6 rows, rank 5 where they fold). All numbers are
leaves.

Three of them have closed forms. With crank and links in parallel the last three reduce to one angle; where
gravity acts it is a pendulum,

    theta'' = w2 sin(theta),    theta clockwise from the upward vertical,

whose solutions are elliptic functions (`revolving`, `swinging`).
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import scipy.special
from problems import reference, state

import jaxdae as jd
from jaxdae import mechanisms as jm

# Bricard's mechanism.


def _quaternion_forms():
    """Returns (rotation, rates), (3, 3, 4, 4) and (3, 4, 4): R = rotation e e takes body to space components,
    and G = rates e.

    As constant tensors: a few products instead of many small operations, which compile three times as slowly.
    """
    cross = np.zeros((3, 3, 4))
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        cross[i, j, k + 1], cross[j, i, k + 1] = -1.0, 1.0
    scalar, vector = np.eye(4)[0], np.eye(4)[1:]
    norm = np.diag([1.0, -1.0, -1.0, -1.0])
    turn = np.einsum("ij,ab->ijab", np.eye(3), norm) + 2.0 * np.einsum("ia,jb->ijab", vector, vector)
    turn += 2.0 * np.einsum("ija,b->ijab", cross, scalar)
    rates = np.concatenate([-vector[:, None, :], np.einsum("ij,a->ija", np.eye(3), scalar) - cross], axis=1)
    return 0.5 * (turn + turn.swapaxes(2, 3)), rates


ROTATION, RATES = _quaternion_forms()


def rotation(e):
    """Returns the matrix (..., 3, 3) that takes body to space components, quadratic in the quaternion e =
    (e0, e1, e2, e3).
    """
    return jnp.einsum("ijab,...a,...b->...ij", jnp.asarray(ROTATION, e.dtype), e, e)


def body_rates(e):
    """Returns G (..., 3, 4): the angular velocity in body components is 2 G(e) e', and G(e) e = 0."""
    return jnp.einsum("ija,...a->...ij", jnp.asarray(RATES, e.dtype), e)


@jd.tree.pytree
class Bricard(jd.System):
    """Five rigid rods in space between six hinges on a line; q = (x, y, z, e0, e1, e2, e3) a rod, q' = v.

    The quaternions are plain coordinates, held at unit length by the rows (|e|^2 - 1)/2. Each of the hinges, between rods k - 1 and k
    (rod 0 and rod 6 are the ground), has three rows for its point and two for its axis: 5 + 6 * 5 = 35 rows
    on 35 coordinates.

    The inertia of a rod. With the angular velocity 2 G(e) e' the kinetic energy of the rotation is 2 e'^T G^T
    J G e', and Lagrange's equations read

        4 G^T J G e'' = -8 G(e')^T J G(e) e' + applied + rows,

    with a matrix of rank 3: G e = 0, so a change of length of the quaternion has no inertia. The multiplier
    of the norm row takes care of that, but solvers that factorize M need it to be definite. So the length is
    given the inertia c: the energy c (e^T e')^2 / 2 is added, which is zero on the manifold. By Lagrange's
    equations it adds

        d/dt(c (e^T e') e) - c (e^T e') e' = c e (e^T e'' + e'^T e'),

    that is c e e^T to the matrix and -c |e'|^2 e to the right-hand side. The factor e^T e'' + |e'|^2 is the second derivative of
    the norm row, which the accelerations have to be zero in: with or without c the equations have the same
    accelerations, and the same multipliers. (With c on the left alone the motion would still be the same,
    because e is the gradient of the norm row, but that row's multiplier would differ.) Off the manifold, in
    the stages of an integrator, the norm row's second derivative is zero as well, because it is an
    acceleration row like all others. Here c is 4 times the mean moment of inertia, the mean of the
    eigenvalues of 4 G^T J G.

    Attributes:
        mass: (5,) in kg.
        inertia: (5, 3), the moments of inertia about the axes of the body in kg m^2.
        gravity: (3,) in m/s^2.
        before: (6, 3), the points of the hinges in m in the frames of rods 0 to 5.
        behind: (6, 3), the same in the frames of rods 1 to 6.
        axis: (6, 3), the axes in the frames of rods 0 to 5.
        normals: (6, 2, 3), two directions across the axes in the frames of rods 1 to 6.
        length_inertia: c over its default.
    """

    mass: Any
    inertia: Any
    gravity: Any
    before: Any
    behind: Any
    axis: Any
    normals: Any
    length_inertia: Any

    def _length_inertia(self):
        return self.length_inertia * 4.0 * jnp.mean(self.inertia, axis=1)

    def mass_matrix(self, q):
        def block(mass, inertia, c, e):
            g = body_rates(e)
            rotational = 4.0 * g.T @ (inertia[:, None] * g) + c * jnp.outer(e, e)
            return jax.scipy.linalg.block_diag(mass * jnp.eye(3, dtype=q.dtype), rotational)

        blocks = jax.vmap(block)(self.mass, self.inertia, self._length_inertia(), q.reshape(-1, 7)[:, 3:])
        bodies = jnp.eye(blocks.shape[0], dtype=q.dtype)
        return jnp.einsum("ij,iab->iajb", bodies, blocks).reshape(q.shape[0], q.shape[0])

    def force(self, t, q, v, u):
        def on_body(mass, inertia, c, e, rate):
            gyroscopic = -8.0 * body_rates(rate).T @ (inertia * (body_rates(e) @ rate))
            return jnp.concatenate([mass * self.gravity, gyroscopic - c * jnp.sum(rate**2) * e])

        e, rates = q.reshape(-1, 7)[:, 3:], v.reshape(-1, 7)[:, 3:]
        return jax.vmap(on_body)(self.mass, self.inertia, self._length_inertia(), e, rates).reshape(-1)

    def constraint(self, t, q):
        poses = q.reshape(-1, 7)
        ground = jnp.zeros((1, 7), q.dtype).at[0, 3].set(1.0)

        def hinge(a, b, before, behind, axis, normals):
            turned_a, turned_b = rotation(a[3:]), rotation(b[3:])
            gap = b[:3] + turned_b @ behind - a[:3] - turned_a @ before
            return jnp.concatenate([gap, normals @ turned_b.T @ turned_a @ axis])

        a, b = jnp.concatenate([ground, poses]), jnp.concatenate([poses, ground])
        hinges = jax.vmap(hinge)(a, b, self.before, self.behind, self.axis, self.normals)
        norms = 0.5 * (jnp.sum(poses[:, 3:] ** 2, axis=1) - 1.0)
        return jnp.concatenate([hinges.reshape(-1), norms])

    def potential_energy(self, t, q):
        return -jnp.sum(self.mass[:, None] * self.gravity * q.reshape(-1, 7)[:, :3])


def bricard(length: Any = 1.0) -> tuple[Bricard, jd.State]:
    """Returns the mechanism of the reference and its start; `length` scales all lengths, the section and the
    moments of inertia.

    All body frames are parallel to the world at the start, so that points and axes there give those of the
    body frames.
    """
    given = reference("iftomm_a04_bricard").parameters
    length = jnp.asarray(length, float)
    points = length * jnp.asarray(given["joint_points_at_start"], float)
    centers = 0.5 * (points[:-1] + points[1:])
    section, mass = given["square_section"] * length, jnp.full((5,), given["m"], float)
    along = np.argmax(np.abs(np.diff(np.array(given["joint_points_at_start"]), axis=0)), axis=1)
    axial, transverse = section**2 / 6.0, ((given["L"] * length) ** 2 + section**2) / 12.0
    inertia = mass[:, None] * jnp.where(np.arange(3)[None, :] == along[:, None], axial, transverse)
    frame = np.eye(3)
    axes = np.array(["xyz".index(name) for name in given["joint_axes_at_start"]])
    origin = jnp.zeros((1, 3))
    system = Bricard(
        mass,
        inertia,
        jnp.asarray(given["g"], float),
        points - jnp.concatenate([origin, centers]),
        points - jnp.concatenate([centers, origin]),
        jnp.asarray(frame[axes]),
        jnp.asarray(frame[np.stack([(axes + 1) % 3, (axes + 2) % 3], axis=1)]),
        jnp.ones(()),
    )
    upright = jnp.zeros((5, 4)).at[:, 0].set(1.0)
    return system, state(jnp.concatenate([centers, upright], axis=1).reshape(-1))


# Planar mechanisms with parallel cranks.


def _rod(name, mass, length, angle, tail):
    """Returns a uniform rod whose tail is at a place of the world at the start."""
    along = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    return jm.Body(
        name, mass=mass, inertia=mass * length**2 / 12.0, pose=jnp.append(tail + 0.5 * length * along, angle)
    )


@jd.tree.pytree(kw_only=True)
class Parallelogram:
    """A coupler on three cranks of equal length, whose feet are as far apart as their pins on the coupler:
    one crank too many.

    Four bodies, 12 coordinates, 12 rows of rank 11 on all of the motion: all cranks turn by the same angle
    and the coupler moves in parallel to itself. With three uniform cranks of mass m and the coupler's mass M,
    theta clockwise from the upward vertical,

        (m + M) L^2 theta'' = (3 m / 2 + M) g L sin(theta).

    Where the cranks are in line with their feet the rank drops to 10.

    Attributes:
        length: L of the cranks in m.
        feet: (3,) places of the feet on the ground line in m.
        mass: m in kg.
        coupler: M in kg.
        gravity: g in m/s^2.
        angle: theta at the start in rad.
        rate: theta' at the start in rad/s.
    """

    length: Any = 1.0
    feet: Any = dataclasses.field(default_factory=lambda: jnp.array([0.0, 0.7, 2.0]))
    mass: Any = 1.0
    coupler: Any = 2.0
    gravity: Any = 9.81
    angle: Any = 0.0
    rate: Any = 0.0

    @property
    def frequency(self):
        """w2 in 1/s^2."""
        return (1.5 * self.mass + self.coupler) / (self.mass + self.coupler) * self.gravity / self.length

    def build(self) -> tuple[jm.Mechanism, jd.State]:
        """Returns the mechanism and its start."""
        length, mass, angle, rate = (
            jnp.asarray(x, float) for x in (self.length, self.mass, self.angle, self.rate)
        )
        zero, span = jnp.zeros(()), self.feet[2] - self.feet[0]
        tip = length * jnp.stack([jnp.sin(angle), jnp.cos(angle)])
        cranks = [
            _rod(f"crank{k}", mass, length, 0.5 * np.pi - angle, jnp.stack([self.feet[k], zero]))
            for k in range(3)
        ]
        bodies = [
            *cranks,
            _rod(
                "coupler", jnp.asarray(self.coupler, float), span, zero, tip + jnp.stack([self.feet[0], zero])
            ),
        ]
        joints = []
        for k in range(3):
            pin = jnp.stack([self.feet[k] - self.feet[0] - 0.5 * span, zero])
            foot, head = jnp.stack([-0.5 * length, zero]), jnp.stack([0.5 * length, zero])
            joints.append(
                jm.Revolute(
                    f"foot{k}", "ground", f"crank{k}", point_a=jnp.stack([self.feet[k], zero]), point_b=foot
                )
            )
            joints.append(jm.Revolute(f"pin{k}", f"crank{k}", "coupler", point_a=head, point_b=pin))
        mechanism, q = jm.planar_mechanism(bodies, joints, gravity=(0.0, -jnp.asarray(self.gravity, float)))
        speed = rate * jnp.stack([tip[1], -tip[0]])
        crank = jnp.append(0.5 * speed, -rate)
        return mechanism, jd.State(zero, q, jnp.concatenate([crank, crank, crank, jnp.append(speed, zero)]))


def double_four_bar() -> tuple[jm.Mechanism, jd.State]:
    """Returns the double four-bar of the reference and its start: crank0, coupler0, crank1, coupler1, crank2,
    in its coordinates.
    """
    file = reference("iftomm_a02_double_four_bar")
    m, length, gravity = (jnp.asarray(file.parameters[key], float) for key in ("m", "L", "g"))
    start = file.start()
    names = ("crank0", "coupler0", "crank1", "coupler1", "crank2")
    bodies = [
        jm.Body(name, mass=m, inertia=m * length**2 / 12.0, pose=pose)
        for name, pose in zip(names, start.q.reshape(-1, 3), strict=True)
    ]
    tail, head = (-0.5 * length, 0.0), (0.5 * length, 0.0)
    joints = [
        jm.Revolute(f"foot{k}", "ground", f"crank{k}", point_a=(k * length, 0.0), point_b=tail)
        for k in range(3)
    ]
    joints += [
        jm.Revolute(f"left{k}", f"crank{k}", f"coupler{k}", point_a=head, point_b=tail) for k in range(2)
    ]
    joints += [
        jm.Revolute(f"right{k}", f"crank{k + 1}", f"coupler{k}", point_a=head, point_b=head) for k in range(2)
    ]
    mechanism, q = jm.planar_mechanism(bodies, joints, gravity=(0.0, -gravity))
    return mechanism, jd.State(start.t, q, start.v)


def double_four_bar_poses(theta):
    """Returns q (15,) where all cranks are at theta, clockwise from the upward vertical."""
    length = jnp.asarray(reference("iftomm_a02_double_four_bar").parameters["L"], float)
    zero, tip = jnp.zeros_like(theta), length * jnp.stack([jnp.sin(theta), jnp.cos(theta)])

    def crank(k):
        return jnp.concatenate([0.5 * tip + k * length * jnp.eye(2)[0], jnp.stack([0.5 * np.pi - theta])])

    def coupler(k):
        return jnp.concatenate([tip + (k + 0.5) * length * jnp.eye(2)[0], jnp.stack([zero])])

    return jnp.concatenate([crank(0), coupler(0), crank(1), coupler(1), crank(2)])


def double_four_bar_at(t: Any) -> jd.State:
    """Returns the states (n, 15) of the reference's motion at the times t (n,), exactly."""
    given = reference("iftomm_a02_double_four_bar").parameters
    return _moving(double_four_bar_poses, t, *revolving(t, given["w2"], given["vB0"] / given["L"]))


def double_four_bar_in_line() -> float:
    """Returns when the cranks are horizontal for the first time, to round-off."""
    given = reference("iftomm_a02_double_four_bar").parameters

    def past(t):
        return revolving(t, given["w2"], given["vB0"] / given["L"])[0] - 0.5 * np.pi

    return scipy.optimize.brentq(past, 0.0, 1.0, xtol=1e-16, rtol=1e-15)


def slider_crank() -> tuple[jm.Mechanism, jd.State]:
    """Returns the slider crank of the reference and its start, as crank, rod and a sliding point.

    The file's slider has no orientation; a body has one, and here it is held by the guide.
    """
    file = reference("slider_crank_singular")
    m, slider, length = (jnp.asarray(file.parameters[key], float) for key in ("m", "ms", "L"))
    start = file.start()

    def padded(x):
        return jnp.concatenate([x, jnp.zeros((2,))])

    poses = padded(start.q).reshape(3, 3)
    inertia = m * length**2 / 12.0
    bodies = [
        jm.Body("crank", mass=m, inertia=inertia, pose=poses[0]),
        jm.Body("rod", mass=m, inertia=inertia, pose=poses[1]),
        jm.Body("slider", mass=slider, inertia=slider, pose=poses[2]),
    ]
    tail, head = (-0.5 * length, 0.0), (0.5 * length, 0.0)
    joints = [
        jm.Revolute("foot", "ground", "crank", point_a=(0.0, 0.0), point_b=tail),
        jm.Revolute("knee", "crank", "rod", point_a=head, point_b=tail),
        jm.Revolute("wrist", "rod", "slider", point_a=head, point_b=(0.0, 0.0)),
        jm.Prismatic("guide", "ground", "slider", axis=(1.0, 0.0), point_a=(0.0, 0.0), point_b=(0.0, 0.0)),
    ]
    mechanism, q = jm.planar_mechanism(bodies, joints, gravity=(0.0, 0.0))
    return mechanism, jd.State(start.t, q, padded(start.v))


def slider_crank_poses(theta):
    """Returns q (9,) where the crank is at theta against the guide and the rod at -theta."""
    length = jnp.asarray(reference("slider_crank_singular").parameters["L"], float)
    cos, sin, zero = length * jnp.cos(theta), length * jnp.sin(theta), jnp.zeros_like(theta)
    return jnp.stack([0.5 * cos, 0.5 * sin, theta, 1.5 * cos, 0.5 * sin, -theta, 2.0 * cos, zero, zero])


def slider_crank_at(t: Any) -> jd.State:
    """Returns the states (n, 9) of the reference's motion at the times t (n,), exactly.

    The kinetic energy a theta'^2 (1 + (b / a) sin^2 theta) / 2 is constant, so that time is an elliptic
    integral of the second kind in the angle; it is inverted by bisection.
    """
    p = reference("slider_crank_singular").parameters
    a = p["m"] * p["L"] ** 2 * (1.0 / 4.0 + 2.0 / 12.0 + 1.0 / 4.0)
    b = (2.0 * p["m"] + 4.0 * p["ms"]) * p["L"] ** 2
    speed = abs(p["omega0"]) * np.sqrt(1.0 + b / a * np.sin(p["theta0"]) ** 2)
    start = scipy.special.ellipeinc(p["theta0"], -b / a)

    def angle(time):
        # The angle falls by no more than `speed` in a second.
        bracket = p["theta0"] - speed * abs(time) - 1.0, p["theta0"] + speed * abs(time) + 1.0
        return scipy.optimize.brentq(
            lambda x: scipy.special.ellipeinc(x, -b / a) - start + speed * time,
            *bracket,
            xtol=1e-15,
            rtol=1e-15,
        )

    theta = np.array([angle(time) for time in np.atleast_1d(t)])
    return _moving(slider_crank_poses, t, theta, -speed / np.sqrt(1.0 + b / a * np.sin(theta) ** 2))


def _moving(poses, t, angle, rate) -> jd.State:
    """Returns the states at stacked angles and rates."""
    angle, rate = jnp.atleast_1d(jnp.asarray(angle)), jnp.atleast_1d(jnp.asarray(rate))
    return jd.State(jnp.atleast_1d(jnp.asarray(t, float)), *_poses_and_velocities(poses, angle, rate))


@functools.partial(jax.jit, static_argnums=0)
def _poses_and_velocities(poses, angle, rate):
    return jax.vmap(lambda x, dx: jax.jvp(poses, (x,), (dx,)))(angle, rate)


# Closed forms of theta'' = w2 sin(theta), theta from the unstable vertical.


def revolving(t: Any, w2: float, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns theta and theta' at the times t, from theta = 0 with the given positive rate.

    With phi = theta + pi from the stable vertical, phi'^2 = rate^2 + 2 w2 (1 + cos phi): a pendulum that
    revolves. Its half angle is an amplitude, phi/2 = am(W t + K, m) with W = (rate^2 + 4 w2)^1/2 / 2 and m =
    w2 / W^2, where the time of half a turn is K(m) / W.
    """
    fastest = 0.5 * np.sqrt(rate**2 + 4.0 * w2)
    m = w2 / fastest**2
    # am adds pi for every 2 K; scipy's amplitude is exact on all of the line.
    _, _, dn, amplitude = scipy.special.ellipj(fastest * np.asarray(t) + scipy.special.ellipk(m), m)
    return 2.0 * amplitude - np.pi, 2.0 * fastest * dn


def swinging(t: Any, w2: float, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns theta and theta' at the times t, from rest at theta = pi - angle, that is `angle` off the
    stable vertical.
    """
    w, k = np.sqrt(w2), np.sin(0.5 * angle)
    sn, cn, _, _ = scipy.special.ellipj(w * np.asarray(t) + scipy.special.ellipk(k**2), k**2)
    return np.pi - 2.0 * np.arcsin(k * sn), -2.0 * k * w * cn

"""Mechanisms with motors for the tests of feedback laws, and an open arm once more in its joint angles."""

from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxdae as jd
from jaxdae import mechanisms as jm

GRAVITY = 9.81


def _rod(name: str, start: Any, end: Any, mass: float) -> jm.Body:
    start, end = np.asarray(start, float), np.asarray(end, float)
    along = end - start
    middle = (start + end) / 2
    return jm.Body(
        name,
        mass=mass,
        inertia=mass * float(along @ along) / 12,
        pose=(*middle, float(np.arctan2(along[1], along[0]))),
    )


def _at_rest(q: Any) -> jd.State:
    """Returns the state of poses that close all loops by construction: nothing has to be compiled to close
    them.
    """
    return jd.State(jnp.zeros(()), q, jnp.zeros_like(q))


def arm(
    lengths: tuple[float, ...], angles: Any, motors: tuple[int, ...] | None = None
) -> tuple[jm.Mechanism, jd.State]:
    """Returns a chain of uniform rods hinged to the origin and to each other, 1 kg/m, with motors in the
    given hinges (all by default).

    Args:
        lengths: of the rods in m.
        angles: absolute, counted from the x axis.
        motors: the hinges with a motor, in the order of the inputs.
    """
    ends = np.cumsum(
        [[0.0, 0.0], *[[n * np.cos(a), n * np.sin(a)] for n, a in zip(lengths, angles, strict=True)]], axis=0
    )
    names = [f"rod{k}" for k in range(len(lengths))]
    bodies = [_rod(name, p, q, n) for name, p, q, n in zip(names, ends[:-1], ends[1:], lengths, strict=True)]
    parents = [jm.GROUND, *names[:-1]]
    joints = [
        jm.Revolute(f"hinge{k}", a, b, at=tuple(ends[k]))
        for k, (a, b) in enumerate(zip(parents, names, strict=True))
    ]
    motors = tuple(range(len(lengths))) if motors is None else motors
    forces = [jm.JointForce(f"motor{k}", f"hinge{k}", input=u) for u, k in enumerate(motors)]
    mechanism, q = jm.planar_mechanism(bodies, joints, forces, gravity=(0.0, -GRAVITY))
    return mechanism, _at_rest(q)


def five_bar(motors: tuple[str, ...] = ("left", "right")) -> tuple[jm.Mechanism, jd.State]:
    """Returns a symmetric five-bar, mobility 2, with motors at the named hinges of the ground ("left",
    "right") or of the tip ("tip").
    """
    a, b, c, d, e = (0.0, 0.0), (-0.2, 0.3), (0.25, 0.75), (0.7, 0.3), (0.5, 0.0)
    bodies = [
        _rod("left", a, b, 0.4),
        _rod("upper_left", b, c, 0.6),
        _rod("right", e, d, 0.4),
        _rod("upper_right", d, c, 0.6),
    ]
    joints = [
        jm.Revolute("left", jm.GROUND, "left", at=a),
        jm.Revolute("knee_left", "left", "upper_left", at=b),
        jm.Revolute("right", jm.GROUND, "right", at=e),
        jm.Revolute("knee_right", "right", "upper_right", at=d),
        jm.Revolute("tip", "upper_left", "upper_right", at=c),
    ]
    forces = [jm.JointForce(f"motor_{name}", name, input=k) for k, name in enumerate(motors)]
    mechanism, q = jm.planar_mechanism(bodies, joints, forces, gravity=(0.0, -GRAVITY))
    return mechanism, _at_rest(q)


def parallel_arm() -> tuple[jm.Mechanism, jd.State]:
    """Returns a redundant arm with a closed loop: a parallelogram that carries two more rods; mobility 3,
    four motors.

    The parallelogram has motors on both of its cranks: they can fight each other without moving anything.
    """
    a, b, c, d = (0.0, 0.0), (0.1, 0.5), (0.5, 0.5), (0.4, 0.0)
    e, f = (0.8, 0.8), (1.1, 0.5)
    bodies = [
        _rod("crank", a, b, 0.5),
        _rod("bar", b, c, 0.4),
        _rod("follower", d, c, 0.5),
        _rod("fore", c, e, 0.4),
        _rod("hand", e, f, 0.3),
    ]
    joints = [
        jm.Revolute("A", jm.GROUND, "crank", at=a),
        jm.Revolute("B", "crank", "bar", at=b),
        jm.Revolute("C", "bar", "follower", at=c),
        jm.Revolute("D", jm.GROUND, "follower", at=d),
        jm.Revolute("E", "bar", "fore", at=c),
        jm.Revolute("F", "fore", "hand", at=e),
    ]
    forces = [
        jm.JointForce(name, joint, input=k)
        for k, (name, joint) in enumerate((("m0", "A"), ("m1", "D"), ("m2", "E"), ("m3", "F")))
    ]
    mechanism, q = jm.planar_mechanism(bodies, joints, forces, gravity=(0.0, -GRAVITY))
    return mechanism, _at_rest(q)


def moving(mechanism: jm.Mechanism, state: jd.State, seed: int = 0) -> jd.State:
    """Returns the state with random velocities that the constraints allow."""
    v = np.random.default_rng(seed).normal(size=state.v.shape[0])
    free = jd.operators.null_projector(mechanism.constraint_jacobian(state.t, state.q, state.v))
    return jd.State(state.t, state.q, free @ jnp.asarray(v))


def errors_of_second_order(t: Any, e0: Any, rate0: Any, kp: Any, kd: Any) -> Any:
    """Returns the solution (len(t),) of e'' + kd e' + kp e = 0."""
    roots = np.roots([1.0, kd, kp]).astype(complex)
    weights = np.linalg.solve(np.array([[1.0, 1.0], roots]), np.array([e0, rate0], complex))
    return np.real(np.exp(np.outer(np.asarray(t), roots)) @ weights)


@jd.tree.pytree
class JointArm(jd.LagrangianSystem):
    """The arm of `arm` in its absolute angles, a motor in every hinge: minimal coordinates, no constraints."""

    lengths: Any

    def kinetic_energy(self, q, v):
        steps = self.lengths[:, None] * jnp.stack([-jnp.sin(q), jnp.cos(q)], axis=1) * v[:, None]
        middle = jnp.cumsum(steps, axis=0) - steps / 2
        return jnp.sum(self.lengths * (jnp.sum(middle**2, axis=1) + self.lengths**2 * v**2 / 12)) / 2

    def potential_energy(self, t, q):
        steps = self.lengths * jnp.sin(q)
        return GRAVITY * jnp.sum(self.lengths * (jnp.cumsum(steps) - steps / 2))

    def generalized_force(self, t, q, v, u):
        return u - jnp.append(u[1:], 0.0)


def cart_pole(
    cart: Any = 1.2, pole: Any = 0.3, length: Any = 0.8, slope: float = 0.0
) -> tuple[jm.Mechanism, jd.State]:
    """Returns a cart on a rail with a uniform pole on it, upright at the origin: q = (x, y, 0, x, y + length
    / 2, pi / 2).

    Args:
        cart: mass in kg.
        pole: mass in kg.
        length: of the pole in m.
        slope: angle of the rail in rad.
    """
    bodies = [
        jm.Body("cart", mass=cart, inertia=0.1, pose=(0.0, 0.0, 0.0)),
        jm.Body("pole", mass=pole, inertia=pole * length**2 / 12.0, pose=(0.0, 0.5 * length, 0.5 * np.pi)),
    ]
    joints = [
        jm.Prismatic("rail", jm.GROUND, "cart", axis=(np.cos(slope), np.sin(slope)), at=(0.0, 0.0)),
        jm.Revolute("pin", "cart", "pole", at=(0.0, 0.0)),
    ]
    mechanism, q = jm.planar_mechanism(
        bodies, joints, [jm.JointForce("motor", "rail", input=0)], gravity=(0.0, -GRAVITY)
    )
    return mechanism, _at_rest(q)


def cart_pole_linear(cart: float, pole: float, length: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns A, B of the upright cart-pole in (x, p, x', p'), p counted from the upright towards +x, and the
    map T (12, 4) to (q, v).

    With l half of the length, (M + m) x'' + m l p'' = u and m l x'' + (I + m l^2) p'' = m g l p.
    """
    half = length / 2
    mass = np.array([[cart + pole, pole * half], [pole * half, pole * length**2 / 12 + pole * half**2]])
    stiffness = np.array([[0.0, 0.0], [0.0, pole * GRAVITY * half]])
    a = np.block([[np.zeros((2, 2)), np.eye(2)], [np.linalg.solve(mass, stiffness), np.zeros((2, 2))]])
    b = np.concatenate([np.zeros(2), np.linalg.solve(mass, [1.0, 0.0])])[:, None]
    place = np.zeros((6, 2))
    place[0, 0] = place[3, 0] = 1.0
    place[3, 1], place[5, 1] = half, -1.0
    return a, b, np.kron(np.eye(2), place)

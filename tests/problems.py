"""The systems of the tests, written by hand from the formulas in `tests/reference`, and the references
themselves.

Three kinds: point masses (pendulum in the plane and in space, double pendulum, bead on a turning wire),
Andrews' squeezing mechanism in its seven angles and again as seven planar bodies, and the crank-rocker
four-bar. All numbers are leaves, so that any of them can be differentiated.
"""

import dataclasses
import functools
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae as jd
from jaxdae import mechanisms as jm

REFERENCE = pathlib.Path(__file__).resolve().parent / "reference"


# References.


@dataclasses.dataclass(frozen=True)
class Reference:
    """A problem of `tests/reference`: `t` (n,), `q` (n, nq), `v` (n, nv), `lam` (n, nc) in jaxdae's sign or
    None, and the whole file.
    """

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    lam: np.ndarray | None
    file: dict[str, Any]

    def at(self, t: float) -> int:
        """Returns the index of the state at time t."""
        (index,) = np.flatnonzero(np.isclose(self.t, t, rtol=0.0, atol=1e-12))
        return int(index)

    @property
    def parameters(self) -> dict[str, Any]:
        return self.file["parameters"]

    def start(self) -> jd.State:
        """Returns the start state of the file."""
        initial = self.file["initial_conditions"]
        return state(initial["q"], initial["v"])


@functools.cache
def reference(name: str) -> Reference:
    """Returns a reference problem by the name of its file."""
    file = json.loads((REFERENCE / f"{name}.json").read_text())
    states = file["reference"]["states"]
    # The files have M v' = f - J^T lambda, jaxdae has + J^T lam.
    lam = -np.array([s["lambda"] for s in states]) if "lambda" in states[0] else None
    t, q, v = (np.array([s[key] for s in states]) for key in ("t", "q", "v"))
    return Reference(t, q, v, lam, file)


def state(q: Any, v: Any = None, t: float = 0.0) -> jd.State:
    """Returns a state of arrays; at rest by default."""
    q = jnp.asarray(q, float)
    return jd.State(jnp.asarray(t, q.dtype), q, jnp.zeros_like(q) if v is None else jnp.asarray(v, q.dtype))


def cast(tree: Any, dtype: Any) -> Any:
    """Returns the pytree with its floating-point leaves in another precision."""
    return jax.tree.map(
        lambda x: jnp.asarray(x, dtype) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x, tree
    )


def assert_same_bits(x: Any, y: Any) -> None:
    """Asserts that two pytrees of one structure are equal in every bit, and names the leaf that is not."""
    for name, a, b in zip(jd.tree.leaf_paths(x), jax.tree.leaves(x), jax.tree.leaves(y), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


# Point masses.


@jd.tree.pytree
class Pendulum(jd.System):
    """A point mass at constant distance from the origin, in the plane or in space; gravity along the last
    axis, downward.
    """

    mass: Any
    length: Any
    gravity: Any

    def mass_matrix(self, q):
        return self.mass * jnp.eye(q.shape[0], dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros_like(q).at[-1].set(-self.mass * self.gravity)

    def constraint(self, t, q):
        return jnp.stack([0.5 * (jnp.sum(q**2) - self.length**2)])

    def potential_energy(self, t, q):
        return self.mass * self.gravity * q[-1]


@jd.tree.pytree
class DoublePendulum(jd.System):
    """Two point masses in the plane, q = (x1, y1, x2, y2)."""

    mass: Any
    length: Any
    gravity: Any

    def mass_matrix(self, q):
        return jnp.diag(jnp.repeat(self.mass, 2, total_repeat_length=4))

    def force(self, t, q, v, u):
        weights = -self.mass * self.gravity
        return jnp.stack([jnp.zeros_like(weights), weights], axis=1).reshape(-1)

    def constraint(self, t, q):
        arms = jnp.stack([q[:2], q[2:] - q[:2]])
        return 0.5 * (jnp.sum(arms**2, axis=1) - self.length**2)

    def potential_energy(self, t, q):
        return self.gravity * jnp.sum(self.mass * q[1::2])


def double_pendulum_state(length: Any, angle: Any, rate: Any) -> jd.State:
    """Returns the state of a `DoublePendulum` from the angles of its arms against the downward vertical and
    their rates.
    """
    arms = length[:, None] * jnp.stack([jnp.sin(angle), -jnp.cos(angle)], axis=1)
    speeds = (length * rate)[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
    return state(jnp.cumsum(arms, axis=0).reshape(-1), jnp.cumsum(speeds, axis=0).reshape(-1))


@jd.tree.pytree
class BeadOnWire(jd.System):
    """A bead on a straight wire through the origin that turns at the given rate in a vertical plane: a
    constraint that moves.
    """

    mass: Any
    gravity: Any
    rate: Any

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros_like(q).at[1].set(-self.mass * self.gravity)

    def constraint(self, t, q):
        angle = self.rate * t
        return jnp.stack([-jnp.sin(angle) * q[0] + jnp.cos(angle) * q[1]])

    def potential_energy(self, t, q):
        return self.mass * self.gravity * q[1]


def pendulum(name: str) -> Pendulum:
    """Returns the pendulum of a reference problem."""
    parameters = reference(name).parameters
    return Pendulum(*(jnp.asarray(parameters[key], float) for key in ("m", "L", "g")))


def double_pendulum() -> DoublePendulum:
    """Returns the double pendulum of the reference."""
    parameters = reference("double_pendulum").parameters
    return DoublePendulum(*(jnp.asarray(parameters[key], float) for key in ("m", "L", "g")))


def bead_on_wire() -> BeadOnWire:
    """Returns the bead of the reference."""
    parameters = reference("bead_rotating_wire").parameters
    return BeadOnWire(*(jnp.asarray(parameters[key], float) for key in ("m", "g", "Omega")))


# Andrews' squeezing mechanism.


@jd.tree.pytree
class AndrewsAngles(jd.System):
    """Andrews' mechanism as in Hairer and Wanner, q = (beta, Theta, gamma, Phi, delta, Omega, epsilon); `p`:
    all constants by name.

    Each of the three links that touch no ground point is at the end of another one, a body at a u(P) + b u(P
    + Q + const), and adds terms in the angles P and Q, with c the cosine between the two directions and s =
    -dc/dQ.
    """

    p: dict[str, Any]

    def _floating(self, q):
        """Returns (index of P, index of Q, mass, inertia, a, b, c, s) of the three links."""
        p = self.p
        return (
            (0, 1, p["m2"], p["I2"], p["rr"], -p["da"], jnp.cos(q[1]), jnp.sin(q[1])),
            (4, 3, p["m4"], p["I4"], p["zt"], p["e"] - p["ea"], jnp.sin(q[3]), -jnp.cos(q[3])),
            (6, 5, p["m6"], p["I6"], p["u"], p["zf"] - p["fa"], -jnp.sin(q[5]), jnp.cos(q[5])),
        )

    def mass_matrix(self, q):
        p = self.p
        m = jnp.zeros((7, 7), q.dtype)
        m = m.at[0, 0].add(p["m1"] * p["ra"] ** 2 + p["I1"])
        m = m.at[2, 2].add(p["m3"] * (p["sa"] ** 2 + p["sb"] ** 2) + p["I3"])
        m = m.at[4, 4].add(p["m5"] * (p["ta"] ** 2 + p["tb"] ** 2) + p["I5"])
        m = m.at[6, 6].add(p["m7"] * (p["ua"] ** 2 + p["ub"] ** 2) + p["I7"])
        for i, j, mass, inertia, a, b, c, _ in self._floating(q):
            mixed = mass * (b**2 + a * b * c) + inertia
            m = m.at[i, i].add(mass * (a**2 + 2.0 * a * b * c + b**2) + inertia)
            m = m.at[i, j].add(mixed).at[j, i].add(mixed).at[j, j].add(mass * b**2 + inertia)
        return m

    def _spring_end(self, q):
        """Returns D, the point of the triangle that the spring pulls."""
        p, cos, sin = self.p, jnp.cos(q[2]), jnp.sin(q[2])
        return jnp.stack([p["xb"] + p["sd"] * cos + p["sc"] * sin, p["yb"] + p["sd"] * sin - p["sc"] * cos])

    def _spring_energy(self, q):
        p = self.p
        stretch = jnp.linalg.norm(self._spring_end(q) - jnp.stack([p["xc"], p["yc"]])) - p["l0"]
        return 0.5 * p["c0"] * stretch**2

    def force(self, t, q, v, u):
        f = jnp.zeros_like(q).at[0].add(self.p["mom"])
        for i, j, mass, _, a, b, _, s in self._floating(q):
            f = (
                f.at[i]
                .add(mass * a * b * s * v[j] * (2.0 * v[i] + v[j]))
                .at[j]
                .add(-mass * a * b * s * v[i] ** 2)
            )
        return f - jax.grad(self._spring_energy)(q)

    def constraint(self, t, q):
        p = self.p
        beta, theta, gamma, phi, delta, omega, epsilon = q
        e_x = p["rr"] * jnp.cos(beta) - p["d"] * jnp.cos(beta + theta)
        e_y = p["rr"] * jnp.sin(beta) - p["d"] * jnp.sin(beta + theta)
        return jnp.stack(
            [
                e_x - p["ss"] * jnp.sin(gamma) - p["xb"],
                e_y + p["ss"] * jnp.cos(gamma) - p["yb"],
                e_x - p["e"] * jnp.sin(phi + delta) - p["zt"] * jnp.cos(delta) - p["xa"],
                e_y + p["e"] * jnp.cos(phi + delta) - p["zt"] * jnp.sin(delta) - p["ya"],
                e_x - p["zf"] * jnp.cos(omega + epsilon) - p["u"] * jnp.sin(epsilon) - p["xa"],
                e_y - p["zf"] * jnp.sin(omega + epsilon) + p["u"] * jnp.cos(epsilon) - p["ya"],
            ]
        )

    def potential_energy(self, t, q):
        return self._spring_energy(q) - self.p["mom"] * q[0]


def andrews_parameters() -> dict[str, Any]:
    """Returns the constants of Andrews' mechanism."""
    return {
        name: jnp.asarray(value, float) for name, value in reference("ivptest_andrews").parameters.items()
    }


ANDREWS_BODIES = ("crank", "link_fe", "triangle", "link_ge", "link_ga", "link_he", "link_ha")


def andrews_poses(p: dict[str, Any], q: Any) -> Any:
    """Returns the poses (21,) of the seven bodies from the seven angles.

    With n(x) = (sin x, -cos x), the direction u(x) turned by -90 degrees, the closures read

        E = F - d u(beta + Theta) = B + ss n(gamma) = G + e n(Phi + delta) = H + zf u(Omega + epsilon),
        F = rr u(beta),  G = A + zt u(delta),  H = A + u n(epsilon).

    A body's angle is the one by which it turns; its mass center follows from the mass matrix: links at the
    end of others have it at a u(P) + b u(P + Q + const), bodies on the ground at a distance whose direction
    does not matter without gravity.
    """
    beta, theta, gamma, phi, delta, omega, epsilon = q

    def u(x):
        return jnp.stack([jnp.cos(x), jnp.sin(x)])

    def n(x):
        return jnp.stack([jnp.sin(x), -jnp.cos(x)])

    a, b = jnp.stack([p["xa"], p["ya"]]), jnp.stack([p["xb"], p["yb"]])
    bodies = [
        (p["ra"] * u(beta), beta),
        (p["rr"] * u(beta) - p["da"] * u(beta + theta), beta + theta),
        (b + p["sb"] * u(gamma) + p["sa"] * n(gamma), gamma),
        (a + p["zt"] * u(delta) + (p["e"] - p["ea"]) * n(phi + delta), phi + delta),
        (a + p["ta"] * u(delta) - p["tb"] * n(delta), delta),
        (a + p["u"] * n(epsilon) + (p["zf"] - p["fa"]) * u(omega + epsilon), omega + epsilon),
        (a - p["ub"] * u(epsilon) + p["ua"] * n(epsilon), epsilon),
    ]
    return jnp.concatenate([jnp.append(place, angle) for place, angle in bodies])


def andrews_angles(poses: Any) -> Any:
    """Returns the seven angles (..., 7) from poses (..., 21), or their rates from velocities."""
    crank, fe, triangle, ge, ga, he, ha = jnp.moveaxis(poses[..., 2::3], -1, 0)
    return jnp.stack([crank, fe - crank, triangle, ge - ga, ga, he - ha, ha], axis=-1)


def andrews_mechanism(p: dict[str, Any], q: Any) -> tuple[jm.Mechanism, Any]:
    """Returns Andrews' mechanism as seven planar bodies with ten hinges, and the poses at the angles q.

    Points in the body frames follow from `andrews_poses`: the x axis of a body is u of its angle, its y axis
    -n.
    """
    poses = andrews_poses(p, q)
    bodies = [
        jm.Body(name, mass=p[f"m{k + 1}"], inertia=p[f"I{k + 1}"], pose=poses[3 * k : 3 * k + 3])
        for k, name in enumerate(ANDREWS_BODIES)
    ]
    zero = jnp.zeros(())
    a, b = (p["xa"], p["ya"]), (p["xb"], p["yb"])
    e_fe = (p["da"] - p["d"], zero)
    joints = [
        jm.Revolute("O", "ground", "crank", point_a=(0.0, 0.0), point_b=(-p["ra"], zero)),
        jm.Revolute("F", "crank", "link_fe", point_a=(p["rr"] - p["ra"], zero), point_b=(p["da"], zero)),
        jm.Revolute("B", "ground", "triangle", point_a=b, point_b=(-p["sb"], p["sa"])),
        jm.Revolute("E1", "link_fe", "triangle", point_a=e_fe, point_b=(-p["sb"], p["sa"] - p["ss"])),
        jm.Revolute("E2", "link_fe", "link_ge", point_a=e_fe, point_b=(zero, -p["ea"])),
        jm.Revolute("E3", "link_fe", "link_he", point_a=e_fe, point_b=(p["fa"], zero)),
        jm.Revolute(
            "G", "link_ga", "link_ge", point_a=(p["zt"] - p["ta"], -p["tb"]), point_b=(zero, p["e"] - p["ea"])
        ),
        jm.Revolute("A1", "ground", "link_ga", point_a=a, point_b=(-p["ta"], -p["tb"])),
        jm.Revolute(
            "H", "link_ha", "link_he", point_a=(p["ub"], p["ua"] - p["u"]), point_b=(p["fa"] - p["zf"], zero)
        ),
        jm.Revolute("A2", "ground", "link_ha", point_a=a, point_b=(p["ub"], p["ua"])),
    ]
    forces = [
        jm.Torque("motor", "ground", "crank", torque=p["mom"]),
        jm.LinearSpring(
            "spring",
            "ground",
            "triangle",
            point_a=(p["xc"], p["yc"]),
            point_b=(p["sd"] - p["sb"], p["sa"] - p["sc"]),
            stiffness=p["c0"],
            rest_length=p["l0"],
        ),
    ]
    return jm.planar_mechanism(bodies, joints, forces, gravity=(0.0, 0.0))


# Crank-rocker.


@jd.tree.pytree(kw_only=True)
class CrankRocker:
    """The numbers of the crank-rocker four-bar: uniform rods, mass in kg = length in m.

    `mass` (3,) of crank, coupler and rocker is a number of its own, so that lengths and masses can be varied
    separately; the moments of inertia follow from both.
    """

    ground: Any = 2.0
    crank: Any = 1.0
    coupler: Any = 2.5
    rocker: Any = 2.0
    mass: Any = dataclasses.field(default_factory=lambda: jnp.array([1.0, 2.5, 2.0]))
    gravity: Any = 9.81
    torque: Any = 0.0
    rates: Any = dataclasses.field(default_factory=lambda: jnp.zeros(9))

    def build(self) -> tuple[jm.Mechanism, jd.State]:
        """Returns the mechanism and its start: the crank at 1 rad, the coupler joint on the left of the ray
        from crank tip to rocker foot.

        The loop is closed in closed form, so that start and lengths are consistent and differentiable.
        Velocities are the consistent ones nearest to `rates`.
        """
        lengths = jnp.stack([jnp.asarray(x, float) for x in (self.crank, self.coupler, self.rocker)])
        crank, coupler, rocker = lengths
        o, d = jnp.zeros(2), jnp.stack([jnp.asarray(self.ground, float), jnp.zeros(())])
        b = crank * jnp.array([np.cos(1.0), np.sin(1.0)])
        ray, distance = d - b, jnp.linalg.norm(d - b)
        along = (coupler**2 - rocker**2 + distance**2) / (2.0 * distance)
        height = jnp.sqrt(coupler**2 - along**2)
        c = b + (along * ray + height * jnp.stack([-ray[1], ray[0]])) / distance
        rods = {"crank": (o, b), "coupler": (b, c), "rocker": (d, c)}
        bodies = [
            jm.Body(
                name,
                mass=mass,
                inertia=mass * length**2 / 12.0,
                pose=jnp.append(0.5 * (p + q), jnp.arctan2(q[1] - p[1], q[0] - p[0])),
            )
            for (name, (p, q)), mass, length in zip(rods.items(), self.mass, lengths, strict=True)
        ]
        half, zero = 0.5 * lengths, jnp.zeros(())
        joints = [
            jm.Revolute("A", "ground", "crank", point_a=o, point_b=(-half[0], zero)),
            jm.Revolute("B", "crank", "coupler", point_a=(half[0], zero), point_b=(-half[1], zero)),
            jm.Revolute("C", "coupler", "rocker", point_a=(half[1], zero), point_b=(half[2], zero)),
            jm.Revolute("D", "ground", "rocker", point_a=d, point_b=(-half[2], zero)),
        ]
        motor = jm.Torque("motor", "ground", "crank", torque=self.torque, input=0)
        mechanism, q = jm.planar_mechanism(
            bodies, joints, [motor], gravity=(0.0, -jnp.asarray(self.gravity, float))
        )
        return mechanism, jd.VelocityProjection().project(mechanism, jd.State(jnp.zeros(()), q, self.rates))


CRANK_ANGLES = {1: -2.1812300736, 2: -4.7662002052, 5: -4.6071611334, 10: -1.2036641273}
"""Reference angles of the crank minus 1 rad, by time in s; rounded to 1e-10."""

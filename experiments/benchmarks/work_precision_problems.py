"""The four problems of `work_precision.py`: bodies, joints and exact final values for all engines.

A `Linkage` is planar: bodies with mass centers and hinges at their places at the start. Its coordinates for
jaxdae and IDA are the turns phi of its bodies since the start. With e_j = exp(i phi_j) every point of a body
is p = p_0 + sum_j d_j e_j, complex numbers for the plane, d_j constant along the chain of hinges from the
ground, so that with A_jk the sum over the bodies of m conj(d_j) d_k (and the moments of inertia on the
diagonal)

    M_jk = Re(A_jk conj(e_j) e_k),    f_j = sum_k Im(A_jk conj(e_j) e_k) v_k^2 - g Re(sum m d_j e_j) + torque + spring,

and a joint that closes a loop reads sum_j l_j e_j + constant = 0: the same equations for jaxdae and for IDA,
with far fewer unknowns than the poses of all bodies, which are the second form here (jaxdae's own planar
mechanism, and what Exudyn has).

Sources of the numbers. Andrews' mechanism: Test Set for IVP Solvers (E. Hairer, G. Wanner, "Solving Ordinary
Differential Equations II", section VII.7), its end state from a form with one degree of freedom in 80-bit
floats (tests/reference/ivptest_andrews.json). Pendulum A01 and double four-bar A02: IFToMM library of
computational benchmark problems, both with closed forms in 40 digits
(tests/reference/iftomm_a01_pendulum.json, iftomm_a02_double_four_bar.json). Crank-rocker: the four-bar of
`four_bar.py`; its end angle was computed for this benchmark in 80-bit floats.
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae import mechanisms

GRAVITY = 9.81  # m/s^2
EXACT_ANDREWS = (
    15.81077119515370678,
    -15.75637105841183907,
    0.04082224011964580177,
    -0.5347301163420795993,
    0.5244099658799540691,
    0.5347301163420795992,
    1.048080741041937873,
)
EXACT_CRANK = -1.203664127260277  # published before, rounded: -1.2036641273


@dataclasses.dataclass(frozen=True)
class Body:
    """A planar body: mass in kg, inertia in kg m^2, start position of the mass center in m (complex)."""

    name: str
    mass: float
    inertia: float
    center: complex


@dataclasses.dataclass(frozen=True)
class Spring:
    """A linear spring from a point of the ground to one of a body (m), stiffness in N/m, rest length in m."""

    body: str
    anchor: complex
    point: complex
    stiffness: float
    rest: float


@dataclasses.dataclass(frozen=True)
class Linkage:
    """Bodies and hinges (body or "ground", body, point).

    A body hangs on the first hinge that names it as second body. Other hinges close loops.
    """

    bodies: tuple[Body, ...]
    hinges: tuple[tuple[str, str, complex], ...]
    gravity: float = GRAVITY
    torque: tuple[float, ...] = ()  # Nm, on each body, from the ground
    spring: Spring | None = None

    def tree(self) -> tuple[dict[str, tuple[str, complex]], list[tuple[str, str, complex]]]:
        """Return (what every body hangs on and where, the hinges that close loops)."""
        parents: dict[str, tuple[str, complex]] = {}
        loops = []
        for a, b, point in self.hinges:
            if b in parents:
                loops.append((a, b, point))
            else:
                parents[b] = (a, point)
        return parents, loops

    def arms(self, body: str, point: complex) -> np.ndarray:
        """Return d (n,) of a point of a body (m): its place is a constant + sum_j d_j exp(i phi_j)."""
        parents, _ = self.tree()
        names = [b.name for b in self.bodies]
        d = np.zeros(len(names), complex)
        while body != "ground":
            body_of, hinge = parents[body]
            d[names.index(body)] += point - hinge
            body, point = body_of, hinge
        return d

    def numbers(self) -> dict[str, np.ndarray]:
        """Return the constants: A, gravity moments, loops (k, n) and their sums (k,), torques, spring."""
        arms = np.array([self.arms(b.name, b.center) for b in self.bodies])
        mass = np.array([b.mass for b in self.bodies])
        inertia = np.diag([b.inertia for b in self.bodies])
        loops = np.array([self.arms(a, x) - self.arms(b, x) for a, b, x in self.tree()[1]])
        found = {
            "A": np.einsum("b,bj,bk->jk", mass, arms.conj(), arms) + inertia,
            "weight": self.gravity * mass @ arms,
            "loops": loops,
            "closed": loops.sum(axis=1),
            "torque": np.asarray(self.torque or np.zeros(len(mass)), float),
        }
        if self.spring:
            arm = self.arms(self.spring.body, self.spring.point)
            found |= {"spring": arm, "spring_from": self.spring.point - arm.sum() - self.spring.anchor}
        return found


@jaxdae.tree.pytree
class Turns(jaxdae.System):
    """A linkage in the turns of its bodies.

    Every complex constant as the pair of its parts along the first axis.
    """

    A: jaxdae.typing.Leaf
    weight: jaxdae.typing.Leaf
    loops: jaxdae.typing.Leaf
    closed: jaxdae.typing.Leaf
    torque: jaxdae.typing.Leaf
    spring: jaxdae.typing.Leaf = None  # (arm, from, stiffness, rest length)

    @classmethod
    def of(cls, linkage: Linkage) -> "Turns":
        """Return the system of a linkage."""
        numbers = linkage.numbers()
        parts = {
            name: jnp.stack([jnp.asarray(x.real), jnp.asarray(x.imag)])
            for name, x in numbers.items()
            if np.iscomplexobj(x)
        }
        spring = None
        if linkage.spring:
            spring = (
                parts.pop("spring"),
                parts.pop("spring_from"),
                jnp.asarray(linkage.spring.stiffness),
                jnp.asarray(linkage.spring.rest),
            )
        return cls(**parts, torque=jnp.asarray(numbers["torque"]), spring=spring)

    def _turned(self, q):
        """Return the parts of conj(e_j) e_k."""
        c, s = jnp.cos(q), jnp.sin(q)
        return c[:, None] * c + s[:, None] * s, c[:, None] * s - s[:, None] * c

    def mass_matrix(self, q):
        """Return M (n, n)."""
        real, imaginary = self._turned(q)
        return self.A[0] * real - self.A[1] * imaginary

    def force(self, t, q, v, u):
        """Return f (n,)."""
        real, imaginary = self._turned(q)
        c, s = jnp.cos(q), jnp.sin(q)
        f = (
            jnp.sum((self.A[0] * imaginary + self.A[1] * real) * v**2, axis=1)
            - (self.weight[0] * c - self.weight[1] * s)
            + self.torque
        )
        if self.spring is None:
            return f
        arm, start, stiffness, rest = self.spring
        x, y = arm[0] * c - arm[1] * s, arm[0] * s + arm[1] * c
        along = jnp.stack([start[0] + jnp.sum(x), start[1] + jnp.sum(y)])
        length = jnp.sqrt(along @ along)
        pull = stiffness * (length - rest) / length * along
        return f + pull[0] * y - pull[1] * x

    def constraint(self, t, q):
        """Return what the loops are open by (2 k,), m."""
        c, s = jnp.cos(q), jnp.sin(q)
        x = jnp.sum(self.loops[0] * c - self.loops[1] * s, axis=1)
        y = jnp.sum(self.loops[0] * s + self.loops[1] * c, axis=1)
        return jnp.concatenate([x - self.closed[0], y - self.closed[1]])


@jaxdae.tree.pytree
class Pendulum(jaxdae.System):
    """A point mass of 1 kg at 1 m from the origin, q = (x, y)."""

    length: jaxdae.typing.Leaf

    def mass_matrix(self, q):
        """Return the unit matrix."""
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        """Return the weight."""
        return jnp.array([0.0, -GRAVITY], q.dtype)

    def constraint(self, t, q):
        """Return (|q|^2 - length^2) / 2."""
        return jnp.array([0.5 * (q @ q - self.length**2)])


@dataclasses.dataclass(frozen=True)
class Problem:
    """A problem with its exact end.

    Attributes:
        name, title: of files, and of plots.
        end: time in s.
        linkage: bodies and hinges; None for the pendulum.
        positions: what is compared, from turns (n,), or from (x, y) of the pendulum.
        exact: its values at the end.
        steps: how many steps a method of order four takes in the coarsest run here.
    """

    name: str
    title: str
    end: float
    linkage: Linkage | None
    positions: Callable
    exact: np.ndarray
    steps: int

    def error(self, q) -> float:
        """Return the largest position error of end coordinates."""
        found = self.positions(np.asarray(q, float))
        return float(np.max(np.abs(found - self.exact))) if np.all(np.isfinite(found)) else np.inf

    def forms(self) -> dict[str, tuple]:
        """Return (system, start, turns from coordinates) by the name of the coordinates."""
        if self.linkage is None:
            start = jaxdae.State(jnp.zeros(()), jnp.array([-1.0, 0.0]), jnp.zeros(2))
            return {"x, y": (Pendulum(jnp.ones(())), start, lambda q: q)}
        n = len(self.linkage.bodies)
        rates = start_rates(self)
        turns = (
            Turns.of(self.linkage),
            jaxdae.State(jnp.zeros(()), jnp.zeros(n), jnp.asarray(rates)),
            lambda q: q,
        )
        mechanism, q, v = poses(self.linkage, rates)
        return {"turns": turns, "poses": (mechanism, jaxdae.State(jnp.zeros(()), q, v), lambda q: q[2::3])}


def start_rates(problem: Problem) -> np.ndarray:
    """Return the rates of the bodies at the start, rad/s."""
    return (
        np.array([-1.0, 0.0, -1.0, 0.0, -1.0])
        if problem.name == "double_four_bar"
        else np.zeros(len(problem.linkage.bodies))
    )


def poses(linkage: Linkage, rates: np.ndarray) -> tuple:
    """Return (mechanism, coordinates, velocities) of jaxdae's bodies and hinges.

    All frames lie along x and y at the start.
    """
    bodies = [
        mechanisms.Body(b.name, mass=b.mass, inertia=b.inertia, pose=(b.center.real, b.center.imag, 0.0))
        for b in linkage.bodies
    ]
    joints = [
        mechanisms.Revolute(f"hinge{k}", a, b, at=(x.real, x.imag))
        for k, (a, b, x) in enumerate(linkage.hinges)
    ]
    forces = [
        mechanisms.Torque(f"motor{k}", "ground", linkage.bodies[k].name, torque=value)
        for k, value in enumerate(linkage.torque)
        if value
    ]
    if linkage.spring:
        s, body = linkage.spring, next(b for b in linkage.bodies if b.name == linkage.spring.body)
        ends = {
            "point_a": (s.anchor.real, s.anchor.imag),
            "point_b": ((s.point - body.center).real, (s.point - body.center).imag),
        }
        forces.append(
            mechanisms.LinearSpring(
                "spring", "ground", s.body, stiffness=s.stiffness, rest_length=s.rest, **ends
            )
        )
    mechanism, q = mechanisms.planar_mechanism(bodies, joints, forces, gravity=(0.0, -linkage.gravity))
    moved = np.array([1j * linkage.arms(b.name, b.center) @ rates for b in linkage.bodies])
    return mechanism, q, jnp.asarray(np.stack([moved.real, moved.imag, rates], axis=1).reshape(-1))


def andrews() -> Problem:
    """Return Andrews' squeezing mechanism; compared are the seven angles of the test set, rad."""
    start = [
        -0.06171389001427645,
        0.0,
        0.45527981916307037,
        0.22266839016588588,
        0.48736497954384256,
        -0.22266839016588588,
        1.2305474445498212,
    ]
    beta, theta, gamma, phi, delta, omega, epsilon = start
    a, b, c = -0.06934 - 0.00227j, -0.03635 + 0.03273j, 0.014 + 0.072j

    def u(x):
        return complex(np.exp(1j * x))

    def n(x):
        return -1j * u(x)

    point_f, point_g, point_h = 0.007 * u(beta), a + 0.04 * u(delta), a + 0.04 * n(epsilon)
    point_e = point_f - 0.028 * u(beta + theta)
    bodies = (
        Body("crank", 0.04325, 2.194e-6, 0.00092 * u(beta)),
        Body("link_fe", 0.00365, 4.41e-7, point_f - 0.0115 * u(beta + theta)),
        Body("triangle", 0.02373, 5.255e-6, b + 0.01043 * u(gamma) + 0.01874 * n(gamma)),
        Body("link_ge", 0.00706, 5.667e-7, point_g + (0.02 - 0.01421) * n(phi + delta)),
        Body("link_ga", 0.0705, 1.169e-5, a + 0.02308 * u(delta) - 0.00916 * n(delta)),
        Body("link_he", 0.00706, 5.667e-7, point_h + (0.02 - 0.01421) * u(omega + epsilon)),
        Body("link_ha", 0.05498, 1.912e-5, a - 0.00449 * u(epsilon) + 0.01228 * n(epsilon)),
    )
    hinges = (
        ("ground", "crank", 0j),
        ("crank", "link_fe", point_f),
        ("ground", "triangle", b),
        ("ground", "link_ga", a),
        ("link_ga", "link_ge", point_g),
        ("ground", "link_ha", a),
        ("link_ha", "link_he", point_h),
        ("link_fe", "triangle", point_e),
        ("link_fe", "link_ge", point_e),
        ("link_fe", "link_he", point_e),
    )
    spring = Spring("triangle", c, b + 0.02 * u(gamma) + 0.018 * n(gamma), 4530.0, 0.07785)
    linkage = Linkage(bodies, hinges, gravity=0.0, torque=(0.033, 0, 0, 0, 0, 0, 0), spring=spring)

    def positions(q):
        crank, fe, triangle, ge, ga, he, ha = q
        return np.array(start) + np.array([crank, fe - crank, triangle, ge - ga, ga, he - ha, ha])

    return Problem(
        "andrews",
        "Andrews' squeezing mechanism, 0.03 s",
        0.03,
        linkage,
        positions,
        np.array(EXACT_ANDREWS),
        200,
    )


def crank_rocker() -> Problem:
    """Return the crank-rocker four-bar over 10 s; compared is the crank angle, rad."""
    foot, tip = 2.0 + 0j, complex(np.exp(1j))
    ray = foot - tip
    along = (abs(ray) ** 2 + 2.5**2 - 2.0**2) / (2 * abs(ray))
    knee = tip + ray / abs(ray) * (along + 1j * np.sqrt(2.5**2 - along**2))
    ends = {"crank": (0j, tip), "coupler": (tip, knee), "rocker": (foot, knee)}
    bodies = tuple(Body(name, abs(q - p), abs(q - p) ** 3 / 12, (p + q) / 2) for name, (p, q) in ends.items())
    hinges = (
        ("ground", "crank", 0j),
        ("crank", "coupler", tip),
        ("ground", "rocker", foot),
        ("coupler", "rocker", knee),
    )
    return Problem(
        "crank_rocker",
        "Crank-rocker, 10 s",
        10.0,
        Linkage(bodies, hinges),
        lambda q: q[:1],
        np.array([EXACT_CRANK]),
        1000,
    )


def pendulum() -> Problem:
    """Return the pendulum A01 over 10 s; compared are x and y, m."""
    exact = np.array([-0.27508746257611686, -0.961419205099125064])
    return Problem("pendulum", "Pendulum A01, 10 s", 10.0, None, lambda q: q, exact, 500)


def double_four_bar() -> Problem:
    """Return the double four-bar A02 over 10 s, through ten singular configurations.

    Compared are the five angles, rad.
    """
    cranks = [Body(f"crank{k}", 1.0, 1 / 12, k + 0.5j) for k in range(3)]
    couplers = [Body(f"coupler{k}", 1.0, 1 / 12, k + 0.5 + 1j) for k in range(2)]
    bodies = (cranks[0], couplers[0], cranks[1], couplers[1], cranks[2])
    hinges = (
        *(("ground", f"crank{k}", complex(k)) for k in range(3)),
        *((f"crank{k}", f"coupler{k}", k + 1j) for k in range(2)),
        *((f"crank{k + 1}", f"coupler{k}", k + 1 + 1j) for k in range(2)),
    )
    exact = -31.75059718698610181708 * np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    return Problem(
        "double_four_bar",
        "Double four-bar A02, 10 s",
        10.0,
        Linkage(bodies, hinges),
        lambda q: q,
        exact,
        1000,
    )


PROBLEMS = {
    "andrews": andrews,
    "crank_rocker": crank_rocker,
    "pendulum": pendulum,
    "double_four_bar": double_four_bar,
}

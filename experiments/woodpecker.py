"""The woodpecker toy: period, fixed point and eigenvalue of its limit cycle, compared with the publication.

A sleeve with play slides on a pole and carries a bird by a spring. Its coordinates are the height y of the
sleeve and the angles phi_M of the sleeve and phi_S of the bird. The kinematics are linear in the angles, as
in the publication. While the sleeve jams, y and phi_M = -(r_M - r_0) / h_M stand still, and the bird is an
oscillator about the equilibrium phi_e with the rate Omega:

    phi_e = phi_M - m_S g l_G / c,        Omega^2 = c / (J_S + m_S l_G^2).

So the state is known from the smallest phi_S during jamming, and the motion is a map P of this angle. A
rollout from one jam into the next gives P, as phi_e - sqrt((phi_S - phi_e)^2 + (phi_S' / Omega)^2), and
the time at which the bird is there. `jax.jacfwd` through all impacts gives its slope, and Newton's method
its fixed point. The toy at rest jams for a friction coefficient above T / N, with the forces at the sleeve

    T = (m_M + m_S) g,        N h_M = m_S g (l_M + l_G) - T r_M.

    python experiments/woodpecker.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

References:
    R. I. Leine, C. Glocker, D. H. van Campen, "Nonlinear dynamics of the woodpecker toy", Proc. ASME Design
    Engineering Technical Conferences, DETC2001/VIB-21608 (2001).
    F. Pfeiffer, C. Glocker, "Multibody Dynamics with Unilateral Contacts", Wiley (1996).
"""

import math
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pydantic

import jaxdae
from jaxdae import contact
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/woodpecker.yaml"
PUBLISHED = {"period": 0.1452, "equilibrium": -0.2216, "friction": 0.285, "frequency": 72.91}
"""Period in s, phi_S at rest in rad, its least friction coefficient, frequency of the free vibration in Hz."""


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    guess: float
    horizon: pydantic.PositiveFloat
    steps: list[pydantic.PositiveFloat] = pydantic.Field(min_length=1)
    newton: pydantic.PositiveInt
    drawn: list[float] = pydantic.Field(min_length=2, max_length=2)


class Toy(NamedTuple):
    """Masses in kg, inertias in kg m^2, lengths in m, stiffness in N m/rad, and gravity in m/s^2."""

    m_sleeve: float
    j_sleeve: float
    m_bird: float
    j_bird: float
    pole: float
    bore: float
    half_height: float
    to_spring: float
    to_bird: float
    beak_height: float
    beak_length: float
    stiffness: float
    gravity: float

    @classmethod
    def of(cls, mechanism: Any) -> "Toy":
        """Return the numbers of the mechanism of the config."""
        bodies = {body.name: body for body in mechanism.bodies}
        shapes = {pair.name: pair.shape_b.at for pair in mechanism.contacts}
        spring = next(joint for joint in mechanism.joints if joint.name == "spring")
        sleeve, bird = bodies["sleeve"], bodies["bird"]
        return cls(
            *(sleeve.mass, sleeve.inertia, bird.mass, bird.inertia),
            mechanism.contacts[0].shape_a.at[0],
            *shapes["upper"],
            spring.at[0],
            bird.pose[0] - spring.at[0],
            shapes["beak"][1],
            -shapes["beak"][0],
            spring.stiffness,
            -mechanism.gravity[1],
        )

    def jammed(self) -> float:
        """Return the angle of the jammed sleeve in rad."""
        return -(self.bore - self.pole) / self.half_height

    def equilibrium(self) -> float:
        """Return the angle of the bird at rest in rad."""
        return self.jammed() - self.m_bird * self.gravity * self.to_bird / self.stiffness

    def rate(self) -> float:
        """Return Omega in rad/s."""
        return math.sqrt(self.stiffness / (self.j_bird + self.m_bird * self.to_bird**2))

    def mass_matrix(self) -> np.ndarray:
        """Return the mass matrix (3, 3)."""
        a = np.array([1.0, self.to_spring, self.to_bird])
        own = np.diag([self.m_sleeve, self.j_sleeve, self.j_bird])
        return own + self.m_bird * np.outer(a, a)

    def least_friction(self) -> float:
        """Return the friction coefficient that holds the toy at rest."""
        tangential = (self.m_sleeve + self.m_bird) * self.gravity
        moment = self.m_bird * self.gravity * (self.to_spring + self.to_bird) - tangential * self.bore
        return tangential * self.half_height / moment

    def frequency(self) -> float:
        """Return the frequency of the free vibration in Hz."""
        spring = self.stiffness * np.array([[0.0, 0.0, 0.0], [0.0, 1.0, -1.0], [0.0, -1.0, 1.0]])
        squares = np.linalg.eigvals(np.linalg.solve(self.mass_matrix(), spring))
        return math.sqrt(float(np.max(squares.real))) / (2.0 * math.pi)


@jaxdae.tree.pytree
class Linear(jaxdae.System):
    """The toy with kinematics that are linear in the angles.

    Attributes:
        mass: (3, 3).
        weight: generalized forces of gravity (3,).
        stiffness: of the spring in N m/rad.
    """

    mass: Any
    weight: Any
    stiffness: Any

    def mass_matrix(self, q):
        """Return the mass matrix for y, phi_M and phi_S."""
        return self.mass

    def force(self, t, q, v, u):
        """Return weight and spring force."""
        moment = self.stiffness * (q[2] - q[1])
        return self.weight + jnp.stack([jnp.zeros_like(moment), moment, -moment])


def model(toy: Toy, friction: Any, restitution: Any) -> tuple[Linear, Any]:
    """Return the system, and the step with the contacts of beak, lower and upper edge of the sleeve."""
    mass = jnp.asarray(toy.mass_matrix())
    lever = jnp.asarray([1.0, toy.to_spring, toy.to_bird])
    weight = -toy.gravity * (toy.m_bird * lever + jnp.asarray([toy.m_sleeve, 0.0, 0.0]))

    def gap(t, q):
        beak = toy.to_spring + toy.to_bird - toy.beak_length - toy.pole - toy.beak_height * q[2]
        play, tilt = toy.bore - toy.pole, toy.half_height * q[1]
        return jnp.stack([beak, play + tilt, play - tilt])

    def slip(t, q, v):
        beak = v[0] + toy.to_spring * v[1] + (toy.to_bird - toy.beak_length) * v[2]
        edge = v[0] + toy.bore * v[1]
        return jnp.stack([beak, edge, edge])[:, None]

    contacts = contact.FunctionContacts(
        gap=gap, slip=slip, friction=friction, restitution=restitution, tangents=1
    )
    step = contact.Touching(jaxdae.RungeKutta.rk4(), contacts, contact_solver=contact.Robust.quick())
    return Linear(mass, weight, jnp.asarray(toy.stiffness)), step


class Image(NamedTuple):
    """The image of the map: angle in rad, time in s, height in m, and whether the sleeve jams at the horizon.

    Without a jam at the horizon, the other numbers have no meaning.
    """

    angle: Any
    time: Any
    height: Any
    jams: Any
    trajectory: Any


def image(
    toy: Toy, angle: Any, friction: Any, restitution: Any, dt: Any, steps: int, horizon: float
) -> Image:
    """Return the image of a jam with the smallest phi_S `angle` in rad.

    Args:
        toy: the numbers of the toy.
        angle: in rad.
        friction: coefficients (3,).
        restitution: coefficients (3,).
        dt: step in s.
        steps: number of steps of the rollout.
        horizon: a time in the next jam in s.
    """
    system, step = model(toy, friction, restitution)
    q = jnp.stack([jnp.zeros_like(angle), jnp.full_like(angle, toy.jammed()), angle])
    trajectory = jaxdae.rollout(system, step, jaxdae.State(0.0, q, jnp.zeros(3)), dt=dt, steps=steps)
    at = jnp.round(horizon / dt).astype(int) - 1
    t, q, v = (jnp.take(x, at, axis=0) for x in (trajectory.state.t, trajectory.state.q, trajectory.state.v))
    away, rate = q[2] - toy.equilibrium(), v[2] / toy.rate()
    # In a jam, away = -A cos(Omega s) and rate = A sin(Omega s) at the time s after the smallest angle.
    smallest = toy.equilibrium() - jnp.sqrt(away**2 + rate**2)
    jams = (jnp.abs(v[0]) < 1e-6) & (jnp.abs(v[1]) < 1e-6)
    return Image(smallest, t - jnp.arctan2(rate, -away) / toy.rate(), q[0], jams, trajectory)


def turning_points(time: np.ndarray, angle: np.ndarray, below: float) -> np.ndarray:
    """Return the times of minima of an angle that are smaller than `below`, by parabolas through 3 values."""
    a, b, c = angle[:-2], angle[1:-1], angle[2:]
    at = np.flatnonzero((b < a) & (b <= c) & (b < below))
    offset = 0.5 * (a[at] - c[at]) / (a[at] - 2.0 * b[at] + c[at])
    return time[1:-1][at] + offset * (time[1] - time[0])


def draw(cycle: Any, curve: tuple[Any, Any], fixed: float, period: float, fall: Any) -> Any:
    """Return the figure: phase portraits of bird and sleeve, return map, height against time."""
    with styled() as figure_class:
        figure = figure_class(figsize=(11, 8), layout="constrained")
        (bird, sleeve), (map_, height) = figure.subplots(2, 2)
        time, q, v = (np.asarray(x) for x in (cycle.state.t, cycle.state.q, cycle.state.v))
        bird.plot(q[:, 2], v[:, 2], **line_style(0))
        bird.set(xlabel="angle in rad", ylabel="rate in rad/s", title="limit cycle, bird")
        sleeve.plot(q[:, 1], v[:, 1], **line_style(1))
        sleeve.set(xlabel="angle in rad", ylabel="rate in rad/s", title="limit cycle, sleeve")
        map_.plot(*curve, ".", markersize=3, color=line_style(0)["color"], label="return map")
        map_.axline((fixed, fixed), slope=1.0, color="black", linewidth=0.6)
        map_.plot([fixed], [fixed], "o", color=line_style(2)["color"], label="fixed point")
        map_.set(
            xlabel="smallest angle of a jam in rad", ylabel="of the next jam", title="return map of the bird"
        )
        map_.locator_params(nbins=6)
        map_.legend()
        for k in range(round(fall[0][-1] / period)):
            name = "" if k else "linear kinematics"
            height.plot(time + k * period, 1e3 * (q[:, 0] + k * q[-1, 0]), label=name, **line_style(0))
        height.plot(fall[0], 1e3 * fall[1], label="full kinematics", **line_style(3))
        height.set(xlabel="time in s", ylabel="height in mm", title="sleeve")
        height.legend()
        return figure


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, settings = asked.config, jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    toy = Toy.of(config.mechanism)
    pairs = config.mechanism.contacts
    finest = min(settings.steps)
    count = round(settings.horizon / finest)
    with precision(config):
        mu, e = (jnp.asarray([getattr(x, name) for x in pairs]) for name in ("friction", "restitution"))

        @jax.jit
        def mapped(angle: Any, friction: Any, dt: Any) -> Any:
            """Return the slope of the map, and the image. All calls share this program."""

            def one(angle: Any) -> Any:
                found = image(toy, angle, friction, e, dt, count, settings.horizon)
                return found.angle, found

            return jax.jacfwd(one, has_aux=True)(angle)

        def at(angle: float, dt: float, friction: Any = mu) -> Any:
            return mapped(jnp.asarray(float(angle)), friction, jnp.asarray(float(dt)))

        rows, cycles = [], {}
        for dt in settings.steps:
            angle = settings.guess
            for _ in range(settings.newton):
                slope, found = at(angle, dt)
                angle += float((found.angle - angle) / (1.0 - slope))
            slope, found = at(angle, dt)
            cycles[dt] = (angle, float(slope), found)
            rows.append(
                (
                    f"{dt:g}",
                    f"{angle:.6f}",
                    f"{float(slope):.4f}",
                    f"{1e3 * float(found.time):.3f}",
                    f"{-1e3 * float(found.height):.3f}",
                )
            )
        fixed, slope, found = cycles[finest]
        angles = np.linspace(*settings.drawn, 60)
        images = [at(x, finest)[1] for x in angles]
        curve = (angles, [float(x.angle) if x.jams else np.nan for x in images])
        eps = 1e-6
        up, down = (float(at(fixed + s * eps, finest)[1].angle) for s in (1.0, -1.0))
        least = toy.least_friction()
        drops = [
            float(at(toy.equilibrium(), finest, jnp.asarray([x, x, x]))[1].height)
            for x in (least - 1e-3, least + 1e-3)
        ]
        system, method, start = asked.worlds.one()
        names = system.names.coordinates
        pole, bird = (names.index(x) for x in ("sleeve.y", "bird.theta"))
        full = jaxdae.rollout(system, method, start, dt=config.dt, steps=config.steps)
    q, time = np.asarray(full.state.q), np.asarray(full.state.t)
    turns = turning_points(time, q[:, bird], -0.4)
    periods = np.diff(turns)[-4:]
    status = max(int(np.asarray(x.info.status).max()) for x in (found.trajectory, full))
    sentences = [
        f"The published period is {1e3 * PUBLISHED['period']:g} ms. With full kinematics, the last"
        f" {len(periods)} periods take {1e3 * periods.mean():.2f} ms on average.",
        f"The slope of the map at its fixed point agrees with central differences to"
        f" {abs((up - down) / (2.0 * eps) / slope - 1.0):.0e}.",
        f"Bird at rest: {toy.equilibrium():.4f} rad; published: {PUBLISHED['equilibrium']:g} rad."
        f" Free vibration: {toy.frequency():.2f} Hz; published: {PUBLISHED['frequency']:g} Hz.",
        f"The toy at rest needs a friction coefficient of {least:.4f}; published: {PUBLISHED['friction']:g}."
        f" With 0.001 less it falls by {abs(drops[0]):.1e} m in {1e3 * settings.horizon:g} ms, with 0.001"
        f" more by {abs(drops[1]):.1e} m.",
        f"Status: {jaxdae.Status(status).name}.",
    ]
    headings = ("step, s", "fixed point, rad", "eigenvalue", "period, ms", "descent per period, mm")
    figure = draw(found.trajectory, curve, fixed, float(found.time), (time, q[:, pole]))
    conclude(asked, headings, rows, sentences, {"woodpecker": figure})
    return 0 if status == jaxdae.Status.OK else 1


if __name__ == "__main__":
    sys.exit(main())

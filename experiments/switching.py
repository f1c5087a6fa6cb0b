"""A slack and taut string, and a walker with pinning feet: impulses and energies against closed forms.

    python experiments/switching.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

Both mechanisms are in one scene, and all worlds, which switch at different times, in one compiled rollout.
The ball is thrown upward; where its string goes slack it flies on a parabola until the string jerks. The legs
walk down a slope without motors: the foot ahead strikes, pins, and the other one is released, at an impact
without rebound.

The closed forms. *String*, of length L, angle phi from below, v^2 = v0^2 + 2 g L (cos phi - cos phi0): the
tension vanishes at v^2 = -g L cos phi. From there |x|^2 - L^2 = t^3 (g^2 t / 4 - g v sin phi), so that the
flight takes 4 v sin(phi) / g, and the string takes the radial velocity away. The time before is the integral
of L / v. *Walker*, with m, I, hip distance b and length l of each leg: the angular momentum of the whole
about the foot that strikes is kept, and that of the other leg about the hip. The angles just before come from
the equations of motion in these two angles, integrated from the last saved state.
"""

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import xarray as xr

import jaxdae
from jaxdae.app import begin, finish, line_style, precision, script, show_table, styled, table_lines

CONFIG = "configs/switching.yaml"
SIDES = ("left", "right")


class Feet(pydantic.BaseModel, extra="forbid", strict=True):
    """The points that touch the ground, in the frames of the legs, in m."""

    left: list[float] = pydantic.Field(min_length=2, max_length=2)
    right: list[float] = pydantic.Field(min_length=2, max_length=2)


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    slope: float
    feet: Feet
    standing: str = pydantic.Field(pattern="^(left|right)$")
    stride: pydantic.PositiveFloat
    events: pydantic.NonNegativeInt
    drawn: pydantic.PositiveInt


@jaxdae.tree.pytree(kw_only=True)
class Scene(jaxdae.System):
    """A mechanism on a slope through the origin.

    Additional rows are the heights of two feet and their velocities along the ground.

    Attributes:
        mechanism: the mechanism.
        slope: angle in rad by which the ground falls toward +x.
        points: (2, 2) the feet in the frames of their bodies, in m.
        bodies: the numbers of the two bodies (static).
    """

    mechanism: Any
    slope: Any
    points: Any
    bodies: tuple[int, ...] = jaxdae.tree.static()

    def mass_matrix(self, q):
        """Return that of the mechanism."""
        return self.mechanism.mass_matrix(q)

    def mass_operator(self, q):
        """Return that of the mechanism, a diagonal."""
        return self.mechanism.mass_operator(q)

    def force(self, t, q, v, u):
        """Return that of the mechanism."""
        return self.mechanism.force(t, q, v, u)

    def potential_energy(self, t, q):
        """Return that of the mechanism."""
        return self.mechanism.potential_energy(t, q)

    def constraint(self, t, q):
        """Return the rows of the mechanism, then the heights of the feet."""
        return jnp.concatenate([self.mechanism.constraint(t, q), self.feet(q)[:, 1]])

    def velocity_constraint(self, t, q, v):
        """Return the velocities of the feet along the ground."""
        return jax.jvp(self.feet, (q,), (v,))[1][:, 0]

    def feet(self, q):
        """Return places along the slope and heights above it (2, 2), in m."""
        x, y, theta = q.reshape(-1, 3)[jnp.asarray(self.bodies)].T
        c, s = jnp.cos(theta), jnp.sin(theta)
        x = x + c * self.points[:, 0] - s * self.points[:, 1]
        y = y + s * self.points[:, 0] + c * self.points[:, 1]
        down, up = jnp.cos(self.slope), jnp.sin(self.slope)
        return jnp.stack([down * x - up * y, up * x + down * y], axis=1)


@jaxdae.tree.pytree
class Stride(jaxdae.switching.Unilateral):
    """Unilateral rows, and two feet of which one stands: when the other one strikes ahead of it, it lets go.

    Attributes:
        ahead: how far ahead in m a foot must be for its touch to count.
    """

    ahead: Any = 0.0

    def __call__(self, system, state, lam, active):
        """Return the rows that are to be on."""
        others, stands = super().__call__(system, state, lam, active)[:-4], active[-2:]
        feet, rates = jax.jvp(system.feet, (state.q,), (state.v,))
        strikes = (
            ~stands & (feet[:, 1] <= 0.0) & (rates[:, 1] < 0.0) & (feet[:, 0] - feet[::-1, 0] > self.ahead)
        )
        stands = jnp.where(jnp.any(strikes), strikes, stands)
        return jnp.concatenate([others, stands, stands])

    def margin(self, system, state, lam, active):
        """Return how far each row is from switching: the feet switch together."""
        others, stands = super().margin(system, state, lam, active)[:-4], active[-2:]
        height = jnp.sum(jnp.where(stands, 0.0, system.feet(state.q)[:, 1]))
        return jnp.concatenate([others, jnp.broadcast_to(height, (4,))])


def scene(settings, mechanism) -> tuple[Scene, Any, Any]:
    """Return the scene, the rows that are on at the start, and the direction of each row's force."""
    bodies = tuple(mechanism.body_names.index(side) for side in SIDES)
    points = jnp.asarray([getattr(settings.feet, side) for side in SIDES])
    standing = jnp.asarray([side == settings.standing for side in SIDES])
    rows = len(mechanism.row_names)
    active = jnp.concatenate([jnp.ones(rows, bool), standing, standing])
    direction = jnp.zeros(rows + 4).at[mechanism.row_names.index("string.length")].set(-1.0)
    return (
        Scene(mechanism=mechanism, slope=jnp.asarray(settings.slope), points=points, bodies=bodies),
        active,
        direction,
    )


def simulate(config, settings, worlds) -> tuple[Scene, xr.Dataset, np.ndarray]:
    """Return the scene, all saved entries with the start among them, and the status of each world."""
    mechanism, method, _ = worlds.one()
    system, active, direction = scene(settings, mechanism)
    masked = jaxdae.Masked(system, active)
    held = np.array(
        [name.split(".")[0] not in SIDES or name.endswith("theta") for name in mechanism.coordinate_names]
    )
    start = jax.jit(
        jax.vmap(lambda q, v: jaxdae.initialize(masked, q, v, fixed=held, fixed_velocity=held)[0])
    )
    states = start(worlds.state.q, worlds.state.v)
    integrator = jaxdae.switching.Switching(
        method, Stride(direction, None, jnp.asarray(settings.stride)), settings.events
    )
    plan = {"dt": config.dt, "steps": config.steps, "save_every": config.save_every}
    trajectory = jaxdae.batch_rollout(masked, integrator, states, **plan)
    none = np.zeros((worlds.size, active.size))
    before = {
        "q": states.q,
        "v": states.v,
        "active": np.broadcast_to(active, none.shape),
        "impulse": none,
        "switched": none,
    }
    after = vars(trajectory.state) | vars(trajectory.info)
    data = {
        name: np.concatenate([np.asarray(x)[:, None], np.asarray(after[name])], axis=1)
        for name, x in before.items()
    }
    q, v = (data[name].reshape(*data[name].shape[:2], -1, 3) for name in "qv")
    mass, inertia, gravity = (np.asarray(getattr(mechanism, name)) for name in ("mass", "inertia", "gravity"))
    energy = 0.5 * (mass * np.sum(v[..., :2] ** 2, axis=-1) + inertia * v[..., 2] ** 2) - mass * (
        q[..., :2] @ gravity
    )
    axes = {
        "q": "coordinate",
        "v": "coordinate",
        "active": "row",
        "impulse": "row",
        "switched": "row",
        "energy": "body",
    }
    shaped = {name: (("world", "time", axes[name]), x) for name, x in {**data, "energy": energy}.items()}
    feet = [f"{side}.{row}" for row in ("height", "slip") for side in SIDES]
    names = {
        "time": ("time", config.dt * config.save_every * np.arange(q.shape[1]), {"units": "s"}),
        "coordinate": list(mechanism.coordinate_names),
        "row": [*mechanism.row_names, *feet],
        "body": list(mechanism.body_names),
    }
    return system, xr.Dataset(shaped, names), np.asarray(trajectory.info.status)[:, -1]


# The string.


def jerks(system, data) -> xr.Dataset:
    """Return the first flight of each world with a slack string, simulated and in closed form."""
    rod, body = system.mechanism.joints["rod"], system.mechanism.body_names.index("ball")
    length, pivot = float(rod.length[0]), np.asarray(rod.point_a[0])
    mass, g = float(system.mechanism.mass[body]), -float(system.mechanism.gravity[1])
    row = data.sel(row="string.length")
    worlds = np.flatnonzero((~row.active).any("time") & (row.impulse != 0.0).any("time"))
    off = np.argmin(row.active.values[worlds], axis=1)
    on = np.argmax(row.impulse.values[worlds] != 0.0, axis=1)
    energy = data.energy.sel(body="ball").values
    simulated = {
        "slack": row.switched.values[worlds, off],
        "taut": row.switched.values[worlds, on],
        "impulse": row.impulse.values[worlds, on],
        "loss": energy[worlds, on - 1] - energy[worlds, on],
    }
    place, velocity = (
        data[name].values[worlds, 0].reshape(-1, len(data.body), 3)[:, body, :2] for name in "qv"
    )
    place = place - pivot
    phi0 = np.arctan2(place[:, 0], -place[:, 1])
    # v^2 = rest + 2 g L cos phi, and v^2 = -g L cos phi where the tension is zero.
    rest = np.sum(velocity**2, axis=1) - 2 * g * length * np.cos(phi0)
    phi = np.arccos(-rest / (3 * g * length))
    nodes, weights = np.polynomial.legendre.leggauss(40)
    half = (phi - phi0) / 2
    between = (phi + phi0)[:, None] / 2 + half[:, None] * nodes
    slack = half * np.sum(
        weights * length / np.sqrt(rest[:, None] + 2 * g * length * np.cos(between)), axis=1
    )
    speed = np.sqrt(-g * length * np.cos(phi))
    flight = 4 * speed * np.sin(phi) / g
    fallen = np.array([0.0, g]) * flight[:, None]
    start = speed[:, None] * along(phi)
    radial = (
        np.sum((start - fallen) * (length * outward(phi) + (start - fallen / 2) * flight[:, None]), axis=1)
        / length
    )
    closed = {"slack": slack, "taut": slack + flight, "impulse": -mass * radial, "loss": mass * radial**2 / 2}
    return compared(simulated, closed, worlds, simulated["taut"])


def outward(angle) -> Any:
    """Return the unit vectors (n, 2) at angles (n,) from below, counterclockwise."""
    return np.stack([np.sin(angle), -np.cos(angle)], axis=-1)


def along(angle) -> Any:
    """Return the derivatives of the unit vectors (n, 2)."""
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def compared(simulated, closed, worlds, times) -> xr.Dataset:
    """Return simulated and closed-form values, with events along the first axis, and the simulated times."""
    pairs = {name: np.stack([x, closed[name]], axis=1) for name, x in simulated.items()}
    axes = ("event", "source", "direction")
    table = {name: (axes[: x.ndim], x) for name, x in pairs.items()}
    return xr.Dataset(
        table | {"world": ("event", worlds), "time": ("event", times)}, {"source": ["simulated", "closed"]}
    )


# The walker.


def strikes(system, data) -> xr.Dataset:
    """Return all strikes of all worlds, simulated and by the closed form."""
    feet = data.sel(row=["left.height", "left.slip", "right.height", "right.slip"])
    stands = feet.active.values[..., ::2].astype(bool)
    worlds, entries = np.nonzero(stands[:, 1:, 0] != stands[:, :-1, 0])
    new = stands[worlds, entries + 1].argmax(axis=1)
    time = feet.switched.values[worlds, entries + 1, 2 * new]
    jump = np.diff(feet.impulse.values, axis=1)[worlds, entries].reshape(-1, 2, 2)[np.arange(new.size), new]
    energy = data.energy.sel(body=list(SIDES)).sum("body").values
    loss = energy[worlds, entries] - energy[worlds, entries + 1]
    legs, places = Legs.of(system), np.asarray(system.bodies)
    # The leg that stands comes first.
    order = np.stack([1 - new, new], axis=1)
    angle, rate = (
        np.take_along_axis(
            data[name].values[worlds, entries].reshape(new.size, -1, 3)[:, places, 2], order, axis=1
        )
        for name in "qv"
    )
    angle, rate = legs.moved(angle, rate, order, time - data.time.values[entries])
    up = np.array([np.sin(system.slope), np.cos(system.slope)])
    down = np.array([up[1], -up[0]])
    impulse, lost = legs.struck(angle, rate, order)
    # Where the foot is at the reported instant; in the closed form it is on the ground.
    ends = legs.length[order][..., None] * outward(angle)
    simulated = {"height": (ends[:, 1] - ends[:, 0]) @ up, "impulse": jump, "loss": loss}
    closed = {
        "height": np.zeros_like(time),
        "impulse": np.stack([impulse @ up, impulse @ down], axis=1),
        "loss": lost,
    }
    return compared(simulated, closed, worlds, time)


@dataclasses.dataclass(frozen=True)
class Legs:
    """Two legs in the angles (n, 2) of the one that stands, and of the other one.

    `order` (n, 2) says which is which.

    Attributes:
        mass: (2,) in kg.
        inertia: (2,) about the mass center, in kg m^2.
        offset: (2,) from the hip to the mass center, in m.
        length: (2,) from the hip to the foot, in m.
        gravity: (2,) in m/s^2.
    """

    mass: np.ndarray
    inertia: np.ndarray
    offset: np.ndarray
    length: np.ndarray
    gravity: np.ndarray

    @classmethod
    def of(cls, system):
        """Return the legs of a scene, hips and feet on their long axes."""
        mechanism, bodies = system.mechanism, np.asarray(system.bodies)
        hip = mechanism.joints["revolute"]
        ends = {hip.a[0]: hip.point_a[0], hip.b[0]: hip.point_b[0]}
        offset = np.array([float(ends[k][1]) for k in system.bodies])
        mass, inertia, gravity = (
            np.asarray(getattr(mechanism, name)) for name in ("mass", "inertia", "gravity")
        )
        return cls(mass[bodies], inertia[bodies], offset, offset - np.asarray(system.points)[:, 1], gravity)

    def accelerations(self, angle, rate, order):
        """Return the second derivatives of the angles (n, 2), by Lagrange's equations."""
        (m, n), (i, j) = self.mass[order].T, self.inertia[order].T
        (b, c), reach = self.offset[order].T, self.length[order][:, 0]
        cosine, sine = np.cos(angle[:, 0] - angle[:, 1]), np.sin(angle[:, 0] - angle[:, 1])
        coupling = n * reach * c
        pull = along(angle) @ self.gravity
        f0 = coupling * sine * rate[:, 1] ** 2 - (m * (reach - b) + n * reach) * pull[:, 0]
        f1 = -coupling * sine * rate[:, 0] ** 2 + n * c * pull[:, 1]
        mass = np.stack(
            [m * (reach - b) ** 2 + i + n * reach**2, -coupling * cosine, -coupling * cosine, n * c**2 + j],
            axis=1,
        )
        return np.linalg.solve(mass.reshape(-1, 2, 2), np.stack([f0, f1], axis=1)[..., None])[..., 0]

    def moved(self, angle, rate, order, duration, steps=20):
        """Return angles and rates after a while (n,), by RK4."""
        h = (duration / steps)[:, None]
        for _ in range(steps):
            slopes = []
            for share in (0.0, 0.5, 0.5, 1.0):
                dq, dv = slopes[-1] if slopes else (0.0, 0.0)
                moved_rate = rate + share * h * dv
                slopes.append((moved_rate, self.accelerations(angle + share * h * dq, moved_rate, order)))
            angle, rate = (
                x + h / 6 * (k[0] + 2 * k[1] + 2 * k[2] + k[3])
                for x, k in zip((angle, rate), zip(*slopes, strict=True), strict=True)
            )
        return angle, rate

    def struck(self, angle, rate, order):
        """Return the impulse on the foot that strikes (n, 2) and the energy that is lost (n,)."""
        arm = outward(angle)
        mass, inertia, offset, length = (
            x[order] for x in (self.mass, self.inertia, self.offset, self.length)
        )
        hip = -length[:, 1:] * arm[:, 1]
        centers = hip[:, None] + offset[..., None] * arm  # both from the foot that strikes

        def velocities(rate, standing):
            hip = -length[:, standing, None] * along(angle[:, standing]) * rate[:, standing, None]
            return hip[:, None] + offset[..., None] * along(angle) * rate[..., None]

        def momenta(rate, standing):
            """Return the angular momenta of both legs about the striking foot and of one about the hip."""
            momentum = mass[..., None] * velocities(rate, standing)
            about = [np.sum(cross(centers, momentum) + inertia * rate, axis=1)]
            about.append(cross(centers[:, 0] - hip, momentum[:, 0]) + inertia[:, 0] * rate[:, 0])
            return np.stack(about, axis=1)

        columns = [momenta(np.broadcast_to(unit, rate.shape), 1) for unit in np.eye(2)]
        after = np.linalg.solve(np.stack(columns, axis=2), momenta(rate, 0)[..., None])[..., 0]
        old, new = velocities(rate, 0), velocities(after, 1)
        energy = np.sum(mass * np.sum(old**2 - new**2, axis=2) + inertia * (rate**2 - after**2), axis=1) / 2
        return np.sum(mass[..., None] * (new - old), axis=1), energy


def cross(x, y) -> Any:
    """Return the cross products of vectors in the plane."""
    return x[..., 0] * y[..., 1] - x[..., 1] * y[..., 0]


# The report.


def draw(data, system, jerked, struck, count):
    """Return the figure: paths, energies, gaits, times and impulses."""
    order = jerked.world.values[np.argsort(jerked.loss.sel(source="closed").values)]
    balls = order[np.linspace(0, order.size - 1, count).astype(int)]
    legs = range(count)
    with styled() as figure_class:
        figure = figure_class(figsize=(15, 8.5), layout="constrained")
        ((paths, energy, times), (gaits, leg_energy, impulses)) = figure.subplots(2, 3)
        slack = ~data.active.sel(row="string.length").values.astype(bool)
        for k, world in enumerate(balls):
            x, off, color = (
                data.q.sel(coordinate=["ball.x", "ball.y"]).values[world],
                slack[world, :, None],
                line_style(k)["color"],
            )
            paths.plot(*np.where(off, np.nan, x).T, color=color)
            paths.plot(*np.where(off, x, np.nan).T, color=color, linestyle=":")
            energy.plot(data.time, data.energy.sel(body="ball").values[world], color=color)
        paths.set(title="balls; dotted: string slack", xlabel="x in m", ylabel="y in m", aspect="equal")
        energy.set(title="energy of these balls", xlabel="time in s", ylabel="energy in J")
        for k, world in enumerate(legs):
            motion = [data[name].sel(coordinate="left.theta").values[world] for name in "qv"]
            gaits.plot(*motion, linewidth=0.8, color=line_style(k)["color"])
            leg_energy.plot(
                data.time,
                data.energy.sel(body=list(SIDES)).sum("body").values[world],
                color=line_style(k)["color"],
            )
        gaits.set(title="left legs; vertical: strikes", xlabel="angle in rad", ylabel="its rate in rad/s")
        leg_energy.set(title="energy of these legs", xlabel="time in s", ylabel="energy in J")
        bins = np.linspace(0.0, float(data.time[-1]), 121)
        instants = {
            "string slack": jerked.slack.sel(source="simulated"),
            "string taut": jerked.time,
            "foot strikes": struck.time,
        }
        for k, (name, x) in enumerate(instants.items()):
            times.hist(x, bins, histtype="step", label=name, color=line_style(k)["color"])
        times.set(title=f"when {data.sizes['world']} worlds switch", xlabel="time in s", ylabel="worlds")
        up, down = struck.impulse.isel(direction=0), struck.impulse.isel(direction=1)
        for k, (name, x) in enumerate(
            {"string": jerked.impulse, "foot, upward": up, "foot, along the ground": down}.items()
        ):
            pair = [x.sel(source=source) for source in ("closed", "simulated")]
            impulses.plot(*pair, ".", markersize=3, label=name, color=line_style(k)["color"])
        impulses.axline((0.0, 0.0), slope=1.0, color="black", linewidth=0.6, zorder=0)
        impulses.set(title="impulses in N s", xlabel="closed form", ylabel="simulated")
        times.legend()
        impulses.legend()
        return figure


def summary(data, jerked, struck) -> list[tuple[str, ...]]:
    """Return the rows of the table: what, how many events, size, largest error."""
    rows = []
    quantities = {
        "string goes slack, s": jerked.slack,
        "string gets taut, s": jerked.taut,
        "impulse of the string, N s": jerked.impulse,
        "energy lost by the ball, J": jerked.loss,
        "height of the foot that strikes, m": struck.height,
        "impulse on the foot, N s": struck.impulse,
        "energy lost by the legs, J": struck.loss,
    }
    for name, pair in quantities.items():
        error = np.abs(pair.sel(source="simulated") - pair.sel(source="closed"))
        size = np.abs(pair.sel(source="closed"))
        rows.append(
            (
                name,
                str(pair.sizes["event"]),
                f"{float(size.min()):.3g} to {float(size.max()):.3g}",
                f"{float(error.max()):.1e}",
            )
        )
    total = data.energy.sum("body")
    rows.append(
        (
            "energy gained between two entries, J",
            "",
            f"{float(np.abs(total).max()):.3g}",
            f"{float(total.diff('time').max()):.1e}",
        )
    )
    return rows


def report(config, data, jerked, struck, headings, rows, failed) -> str:
    """Return the report: what was asked, what came out, and the table."""
    strides = np.bincount(struck.world, minlength=data.sizes["world"])
    first, last = float(jerked.time.min()), float(jerked.time.max())
    errors = dict(
        zip(
            ("slack", "taut", "jerk", "ball", "height", "strike", "legs", "gain"),
            (row[3] for row in rows),
            strict=True,
        )
    )
    shows = f"""\
In one compiled rollout of {data.sizes["world"]} worlds the string goes slack in {jerked.sizes["event"]} of them and gets taut
again between {first:.2f} and {last:.2f} s; the walkers make {strides.min()} to {strides.max()} strides, each at times of its
own. At steps of {config.dt:g} s the impulses agree with the closed forms to {errors["jerk"]} N s (string) and
{errors["strike"]} N s (foot), the energies that they take to {errors["ball"]} J and {errors["legs"]} J. Between switchings the
energy is kept, at a switching it falls; its largest gain from one entry to the next is {errors["gain"]} J, the error of the
integrator. The instant at which the string goes slack is known less well than the others, to second order in the step: the
tension is zero there, and a little more or less of it hardly moves the ball. The legs settle on one gait, in which the
strikes take what the slope gives. Worlds that failed: {failed}."""
    table = "\n".join(table_lines(headings, rows))
    return f"# {config.name}\n\n{config.description}\n\n{shows}\n\n{table}\n\n![switching](switching.png)\n"


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, console = asked.config, asked.console
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    if any(x is not None for x in jax.tree.leaves((asked.worlds.system_axes, asked.worlds.integrator_axes))):
        console.print(
            f"{asked.source}: batch.vary: only start poses and velocities may vary here", markup=False
        )
        return 2
    with precision(config):
        console.print(f"{config.steps} steps of {asked.worlds.size} worlds")
        system, data, status = simulate(config, settings, asked.worlds)
    jerked, struck = jerks(system, data), strikes(system, data)
    if not (jerked.sizes["event"] and struck.sizes["event"]):
        console.print("nothing to compare: no string jerked, or no foot struck, in this time")
        return 1
    folder, record = begin(config, asked.out, asked.source)
    for name, found in {"entries": data, "jerks": jerked, "strikes": struck}.items():
        found.to_zarr(folder / "switching.zarr", group=name, zarr_format=2, consolidated=False)
    draw(data, system, jerked, struck, settings.drawn).savefig(folder / "switching.png", bbox_inches="tight")
    headings = ("what", "events", "size", "largest error")
    rows = summary(data, jerked, struck)
    show_table(console, f"against the closed forms, dt = {config.dt:g} s", headings, rows)
    failed = int(np.sum(status != jaxdae.Status.OK))
    (folder / "report.md").write_text(
        report(config, data, jerked, struck, headings, rows, failed), encoding="utf-8"
    )
    finish(folder, record, switching=[dict(zip(headings, row, strict=True)) for row in rows], failed=failed)
    console.print(f"run folder: {folder}", highlight=False, markup=False, soft_wrap=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

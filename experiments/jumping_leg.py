"""Co-design of a jumping five-bar leg: link lengths, gear ratio and torques, by gradient and by CMA-ES.

Two motors at the trunk turn two thighs, and two shins meet at the foot. A vertical guide holds the trunk.
The unknowns are the share of the thigh in the length of the leg, the distance of the motors, the gear ratio n
and the torque command u(t) at knots, linear in between. All have bounds. The length of the leg is fixed.

Motor. With the rotor speed w = n (hip rate), the torque at the hip is n T, where

    T = clip(peak u, -stall (1 + w / free), stall (1 - w / free)),        |u| <= 1,

and the rotor adds the inertia n^2 J to the hip. A large ratio gives torque, a small ratio gives speed.

Stance. A hinge holds the foot on the ground until the vertical ground force is zero. Both motors receive the
same command, so the left half of the leg and of the trunk represents the whole, and the hinge closes its loop.
With the height y, velocity v and acceleration a of the mass center, a takeoff now leads to the apex

    h = y + v^2 / (2 g),        dh/dt = v (1 + a / g) = v (ground force) / (weight),

so h is largest when the ground force is zero. The maximum of a parabola through three samples of h is the
apex, including the derivative. The objective is the rise of the mass center from the start to the apex. Poses
near the two singular poses (leg folded, leg stretched) cost a penalty.

Check. The whole leg jumps from a floor with friction, with finer steps (`ContactStepping`). After takeoff, the
motors brake the legs. The largest height of the mass center is the apex.

    python experiments/jumping_leg.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

References:
    N. Hansen, "The CMA Evolution Strategy: A Tutorial", arXiv:1604.00772 (2016).
    G. Kenneally, A. De, D. E. Koditschek, "Design principles for a family of direct-drive legged robots",
    IEEE Robotics and Automation Letters 1 (2016).
"""

import importlib
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import scipy.optimize

import jaxdae
from jaxdae import contact
from jaxdae import mechanisms as jm
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/jumping_leg.yaml"
GRAVITY = 9.81  # m/s^2
SIDES = {"left": -1.0, "right": 1.0}
FAILED = 1.0  # m, objective of a design whose rollout fails

Positive = pydantic.PositiveFloat
Bounds = Annotated[list[float], pydantic.Field(min_length=2, max_length=2)]


class Leg(pydantic.BaseModel, extra="forbid", strict=True):
    """Constants of all designs: m, kg, kg/m, and the knee angles in rad that stay away from singular poses."""

    length: Positive
    height: Positive
    trunk: Positive
    density: Positive
    knee: Bounds


class Motor(pydantic.BaseModel, extra="forbid", strict=True):
    """A motor: N m, N m, rad/s, kg m^2."""

    peak: Positive
    stall: Positive
    free: Positive
    inertia: Positive


class Design(pydantic.BaseModel, extra="forbid", strict=True):
    """Nominal value and bounds of one dimension."""

    nominal: float
    bounds: Bounds


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    leg: Leg
    motor: Motor
    thigh: Design
    hips: Design
    gear: Design
    command: Design
    knots: pydantic.PositiveInt
    push: Positive
    samples: pydantic.PositiveInt
    penalty: Positive
    budget: pydantic.PositiveInt
    seeds: pydantic.PositiveInt
    finer: pydantic.PositiveInt


@jaxdae.tree.pytree
class Motors:
    """The law of both motors: the command until takeoff, then a brake.

    Attributes:
        command: (knots,) between -1 and 1; positive values extend the leg.
        span: time of the last knot in s.
        gear: ratio of rotor speed and hip rate.
        takeoff: in s.
        motor: peak and stall torque in N m, free speed in rad/s (static).
        rates: velocities of the hips (static).
        sides: -1 for the left hip, 1 for the right hip (static).
    """

    command: Any
    span: Any
    gear: Any
    takeoff: Any
    motor: tuple[float, float, float] = jaxdae.tree.static()
    rates: tuple[int, ...] = jaxdae.tree.static()
    sides: tuple[float, ...] = jaxdae.tree.static()

    def __call__(self, t, state):
        """Return the torques at the hips in N m."""
        signs = -jnp.asarray(self.sides)
        speed = self.gear * signs * state.v[jnp.asarray(self.rates)]
        times = jnp.linspace(0.0, self.span, self.command.shape[0])
        brake = jnp.clip(-20.0 * speed / self.motor[2], -1.0, 1.0)
        u = jnp.where(t < self.takeoff, jnp.interp(t, times, self.command), brake)
        return signs * self.gear * motor_torque(u, speed, *self.motor)


def motor_torque(u: Any, speed: Any, peak: float, stall: float, free: float) -> Any:
    """Return the torque of a motor in N m at a command u and a rotor speed in rad/s."""
    return jnp.clip(peak * u, -stall * (1.0 + speed / free), stall * (1.0 - speed / free))


def apex(y: Any, v: Any) -> Any:
    """Return the height in m that a ballistic motion reaches from the height y with the velocity v."""
    return y + v**2 / (2.0 * GRAVITY)


class Stance(NamedTuple):
    """A jump from the start to takeoff: rise in m, takeoff time in s, states (samples + 1), status."""

    rise: Any
    takeoff: Any
    states: Any
    status: Any


class Jumper:
    """Designs of the leg as points x in [-1, 1]^n, and their jumps.

    Args:
        settings: of the experiment.
        method: the integrator.
        dt: step in s.
        steps: the largest number of steps on the ground.
    """

    def __init__(self, settings: Settings, method: Any, dt: float, steps: int):
        """Collect the bounds of all unknowns."""
        self.settings, self.method, self.dt, self.steps = settings, method, dt, steps
        given = [settings.thigh, settings.hips, settings.gear, *[settings.command] * settings.knots]
        low, high = np.array([x.bounds for x in given]).T
        self.middle, self.half = 0.5 * (low + high), 0.5 * (high - low)
        self.nominal = (np.array([x.nominal for x in given]) - self.middle) / self.half

    def values(self, x: Any) -> tuple[Any, Any, Any, Any]:
        """Return thigh share, distance of the motors in m, gear ratio and command (knots,) of a point x."""
        values = self.middle + self.half * x
        return values[0], values[1], values[2], values[3:]

    def mechanism(self, x: Any, whole: bool) -> tuple[Any, Any]:
        """Return mechanism and start q of a point x: the whole leg over a floor, or its left half on a hinge."""
        leg = self.settings.leg
        share, hips, gear, _ = self.values(x)
        thigh, shin = share * leg.length, (1.0 - share) * leg.length
        mass = leg.trunk if whole else 0.5 * leg.trunk
        bodies = [jm.Body("trunk", mass, mass, jnp.asarray([0.0, leg.height, 0.0]))]
        joints: list[Any] = [jm.Prismatic("guide", jm.GROUND, "trunk", at=(0.0, 0.0), axis=(0.0, 1.0))]
        forces = []
        for k, (side, sign) in enumerate(SIDES.items() if whole else [("left", SIDES["left"])]):
            hip = jnp.stack([sign * hips / 2.0, jnp.asarray(leg.height)])
            knee = hip + thigh * self.along(sign, thigh, shin, hip)
            for name, upper, lower, length in (("thigh", hip, knee, thigh), ("shin", knee, 0.0 * hip, shin)):
                turn = jnp.arctan2(*(lower - upper)[::-1])
                pose = jnp.concatenate([(upper + lower) / 2.0, turn[None]])
                mass = leg.density * length
                bodies.append(jm.Body(f"{side}_{name}", mass, mass * length**2 / 12.0, pose))
            rotor = gear**2 * self.settings.motor.inertia
            joints.append(jm.Revolute(f"{side}_hip", "trunk", f"{side}_thigh", at=hip, armature=rotor))
            joints.append(jm.Revolute(f"{side}_knee", f"{side}_thigh", f"{side}_shin", at=knee))
            forces.append(jm.JointForce(f"{side}_motor", f"{side}_hip", force=0.0, input=k))
        other, toe = "right_shin" if whole else jm.GROUND, contact.Disc(0.0, at=(0.5 * shin, 0.0))
        joints.append(jm.Revolute("foot", other, "left_shin", at=(0.0, 0.0)))
        floor = contact.Pair("floor", jm.GROUND, "left_shin", contact.Line(), toe, friction=0.8)
        options = {"contacts": [floor]} if whole else {}
        description = jm.Description(
            space=jm.PLANE, bodies=bodies, joints=joints, forces=forces, gravity=(0.0, -GRAVITY), **options
        )
        return jm.mechanism(description, jm.Joints(cut=("foot",)))

    @staticmethod
    def along(sign: float, thigh: Any, shin: Any, hip: Any) -> Any:
        """Return the direction (2,) from a hip to its outer knee, with the foot at the origin."""
        reach = jnp.linalg.norm(hip)
        angle = sign * jnp.arccos((thigh**2 + reach**2 - shin**2) / (2.0 * thigh * reach))
        x, y = -hip / reach
        return jnp.stack([x * jnp.cos(angle) - y * jnp.sin(angle), x * jnp.sin(angle) + y * jnp.cos(angle)])

    def law(self, x: Any, system: Any, takeoff: Any = jnp.inf) -> Motors:
        """Return the law of a point x for the motors of a system."""
        *_, gear, command = self.values(x)
        motor, names = self.settings.motor, list(system.names.velocities)
        sides = {side: sign for side, sign in SIDES.items() if f"{side}_hip.angle_rate" in names}
        rates = tuple(names.index(f"{side}_hip.angle_rate") for side in sides)
        limits = (motor.peak, motor.stall, motor.free)
        return Motors(command, self.settings.push, gear, takeoff, limits, rates, tuple(sides.values()))

    def grounded(self, x: Any, dt: Any, steps: int) -> tuple[Any, Any, Any]:
        """Return states and status (steps + 1) of a point x with the foot hinged, and the apex heights in m."""
        system, q = self.mechanism(x, whole=False)
        start = jaxdae.State(jnp.zeros(()), q, jnp.zeros_like(q))
        made = jaxdae.rollout(system, self.method, start, self.law(x, system), dt=dt, steps=steps)
        states = jax.tree.map(lambda first, later: jnp.concatenate([first[None], later]), start, made.state)
        y, v = jax.vmap(lambda state: center(system, state))(states)
        return states, made.info.status, (y, v)

    def last(self, x: Any) -> Any:
        """Return the number () of the step at which the ground force of a point x becomes zero, as a float."""
        _, _, (_, v) = self.grounded(x, self.dt, self.steps)
        pulls = jnp.append(jnp.diff(v) + GRAVITY * self.dt < 0.0, True)
        return jnp.maximum(jnp.argmax(pulls), 1).astype(v.dtype)

    def stance(self, x: Any) -> Stance:
        """Return the jump of a point x; the sample before the last one is next to takeoff."""
        count = self.settings.samples
        dt = self.dt * self.last(jax.lax.stop_gradient(x)) / (count - 1)
        states, status, (y, v) = self.grounded(x, dt, count)
        before, here, after = apex(y[-3:], v[-3:])
        slope, bend = 0.5 * (after - before), after - 2.0 * here + before
        rise = here - 0.5 * slope**2 / bend - y[0]
        return Stance(rise, states.t[-2] - slope / bend * dt, states, jnp.max(status))

    def knee(self, x: Any, q: Any) -> Any:
        """Return the angle () between thigh and shin in rad; 0 is a folded leg."""
        leg, (share, hips, *_) = self.settings.leg, self.values(x)
        square = (leg.height + q[0]) ** 2 + (hips / 2.0) ** 2
        thigh, shin = share * leg.length, (1.0 - share) * leg.length
        return jnp.arccos((thigh**2 + shin**2 - square) / (2.0 * thigh * shin))

    def objective(self, x: Any) -> Any:
        """Return minus the rise in m, plus the penalty of knee angles close to singular poses."""
        stance, (fold, stretch) = self.stance(x), self.settings.leg.knee
        angles = jax.vmap(lambda q: self.knee(x, q))(stance.states.q)[:-1]
        until = (stance.takeoff - stance.states.t[-2]) / (stance.states.t[-2] - stance.states.t[-3])
        end = angles[-1] + until * (angles[-1] - angles[-2])
        outside = jnp.maximum(0.0, fold - jnp.min(angles)) ** 2 + jnp.maximum(0.0, end - stretch) ** 2
        return jnp.where(stance.status == 0, self.settings.penalty * outside - stance.rise, jnp.nan)


def center(system: Any, state: Any) -> tuple[Any, Any]:
    """Return height in m and vertical velocity in m/s of the mass center."""

    def height(q):
        return system.mass @ system.frames(q).place.y / jnp.sum(system.mass)

    return jax.jvp(height, (state.q,), (state.v,))


class Search(NamedTuple):
    """A result: best point x, its rise in m, cost in evaluations and best rise over the search, wall time in s."""

    x: Any
    rise: float
    costs: list[float]
    rises: list[float]
    wall: float


class Record:
    """The best point of a search, and its history.

    Args:
        budget: in evaluations.
    """

    def __init__(self, budget: float):
        """Start the clock."""
        self.budget, self.begun = budget, time.perf_counter()
        self.x: Any = None
        self.best, self.costs, self.rises = np.inf, [0.0], [np.nan]

    def add(self, x: Any, value: float, cost: float) -> float:
        """Record the objective of a point, and return it; a failed rollout has the objective FAILED."""
        value = value if np.isfinite(value) else FAILED
        if value < self.best:
            self.x, self.best = np.array(x), value
        self.costs.append(self.costs[-1] + cost)
        self.rises.append(-self.best)
        return value

    def full(self) -> bool:
        """Return whether the budget is spent."""
        return self.costs[-1] >= self.budget

    def result(self) -> Search:
        """Return the result."""
        return Search(self.x, -self.best, self.costs, self.rises, time.perf_counter() - self.begun)


def by_gradient(jumper: Jumper, improve: Callable, cost: float, fixed: int) -> Search:
    """Return the result of L-BFGS-B from the nominal design; the first `fixed` unknowns stay constant.

    Args:
        jumper: the problem.
        improve: x -> objective and gradient.
        cost: of a gradient in evaluations.
        fixed: number of constant unknowns.
    """
    record = Record(jumper.settings.budget)

    def evaluated(x):
        value, gradient = improve(jnp.asarray(x))
        return record.add(x, float(value), cost), np.nan_to_num(np.asarray(gradient))

    def stop(_):
        if record.full():
            raise StopIteration

    bounds = [(x, x) if i < fixed else (-1.0, 1.0) for i, x in enumerate(jumper.nominal)]
    scipy.optimize.minimize(
        evaluated,
        jumper.nominal,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        callback=stop,
        options={"maxiter": 10**6, "maxfun": 10**6, "ftol": 1e-12, "gtol": 1e-9},
    )
    return record.result()


def by_cma(jumper: Jumper, evaluate: Callable, seed: int) -> Search:
    """Return the result of CMA-ES from the nominal design.

    Args:
        jumper: the problem.
        evaluate: points (n, unknowns) -> objectives (n,).
        seed: of the random numbers.
    """
    cmaes: Any = importlib.import_module("cmaes")
    record, size = Record(jumper.settings.budget), len(jumper.nominal)
    bounds = np.tile([-1.0, 1.0], (size, 1))
    search = cmaes.CMA(mean=jumper.nominal, sigma=0.3, bounds=bounds, seed=seed)
    while not record.full():
        points = [search.ask() for _ in range(search.population_size)]
        values = np.asarray(evaluate(jnp.asarray(points)))
        search.tell([(x, record.add(x, float(value), 1.0)) for x, value in zip(points, values, strict=True)])
    return record.result()


def checked_rise(jumper: Jumper, x: Any, takeoff: Any, steps: int) -> tuple[Any, Any]:
    """Return the rise () in m of the whole leg from a floor with friction, and the status ().

    Args:
        jumper: the problem.
        x: the design.
        takeoff: time () in s at which the motors begin to brake.
        steps: number of steps, past the apex.
    """
    system, q = jumper.mechanism(x, whole=True)
    start, law = jaxdae.State(jnp.zeros(()), q, jnp.zeros_like(q)), jumper.law(x, system, takeoff)
    method, dt = contact.ContactStepping(), jumper.dt / jumper.settings.finer
    made = jaxdae.rollout(system, method, start, law, dt=dt, steps=steps)
    heights = jax.vmap(lambda state: center(system, state)[0])(made.state)
    return jnp.max(heights) - center(system, start)[0], jnp.max(made.info.status)


def cost_ratio(improve: Callable, evaluate: Callable, x: Any, repeats: int = 20) -> float:
    """Return the time of a gradient over the time of an evaluation, both compiled, for single points."""
    times = []
    for function in (improve, evaluate):
        jax.block_until_ready(function(x))
        begun = time.perf_counter()
        for _ in range(repeats):
            jax.block_until_ready(function(x))
        times.append(time.perf_counter() - begun)
    return times[0] / times[1]


def reached(search: Search) -> float:
    """Return the cost in evaluations at which a search first reaches 99 % of its result."""
    return search.costs[int(np.argmax(np.asarray(search.rises) >= 0.99 * search.rise))]


def draw(jumper: Jumper, found: dict[str, Search], stances: dict[str, Stance]) -> Any:
    """Return the figure: legs at the start and at takeoff, rise over cost, and torques at the hips."""
    with styled() as figure_class:
        figure = figure_class(figsize=(14, 4.4), layout="constrained")
        legs, cost, torque = figure.subplots(1, 3, width_ratios=(1.6, 1.0, 1.0))
        for k, (name, search) in enumerate(found.items()):
            style, stance = line_style(k), stances[name]
            share, hips, *_ = (np.asarray(value) for value in jumper.values(search.x))
            leg, offset = jumper.settings.leg, 0.3 * k
            for index, alpha in ((0, 0.4), (-2, 1.0)):
                height = leg.height + float(stance.states.q[index, 0])
                for sign in SIDES.values():
                    hip = np.array([sign * hips / 2.0, height])
                    thigh, shin = share * leg.length, (1.0 - share) * leg.length
                    knee = hip + thigh * np.asarray(jumper.along(sign, thigh, shin, hip))
                    line = np.array([[0.0, height], hip, knee, [0.0, 0.0]]) + np.array([offset, 0.0])
                    legs.plot(*line.T, "o-", color=style["color"], alpha=alpha, markersize=3)
            legs.text(
                offset,
                -0.02,
                name.replace(", ", ",\n").replace("s a", "s\na"),
                ha="center",
                va="top",
                fontsize=8,
            )
            if search.wall:
                cost.semilogx(search.costs[1:], search.rises[1:], label=name, **style)
            law = jumper.law(search.x, jumper.mechanism(search.x, whole=False)[0])
            torques = np.asarray(jax.vmap(law)(stance.states.t, stance.states))[:-1, 0]
            torque.plot(1e3 * np.asarray(stance.states.t)[:-1], torques, label=name, **style)
        legs.set(
            ylim=(-0.1, 0.32), xticks=[], ylabel="y in m", title="start (pale) and takeoff", aspect="equal"
        )
        cost.set(xlabel="cost in evaluations", ylabel="best rise in m", title="search")
        torque.set(xlabel="time in ms", ylabel="torque in N m", title="left hip until takeoff")
        cost.legend()
        torque.legend()
        return figure


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    with precision(asked.config):
        jumper = Jumper(settings, asked.worlds.one()[1], asked.config.dt, asked.config.steps)
        first = jnp.asarray(jumper.nominal)
        improve = jax.jit(jax.value_and_grad(jumper.objective))
        evaluate = jax.jit(jax.vmap(jumper.objective))
        ratio = cost_ratio(improve, jax.jit(jumper.objective), first)
        found = {
            "nominal": Search(jumper.nominal, -float(improve(first)[0]), [0.0], [np.nan], 0.0),
            "torques alone": by_gradient(jumper, improve, ratio, fixed=3),
            "co-design, gradient": by_gradient(jumper, improve, ratio, fixed=0),
        }
        try:
            by_cma(jumper, evaluate, 0)  # compiles
            runs = sorted((by_cma(jumper, evaluate, k) for k in range(settings.seeds)), key=lambda x: x.rise)
            found["co-design, CMA-ES"] = runs[len(runs) // 2]
            spread = f"The {len(runs)} runs of CMA-ES rise by {runs[0].rise:.4f} to {runs[-1].rise:.4f} m"
        except ModuleNotFoundError:
            spread = "CMA-ES needs the package cmaes: pip install cmaes"
        stance = jax.jit(jumper.stance)
        stances = {name: stance(search.x) for name, search in found.items()}
        flight = max(float(s.takeoff) + np.sqrt(2.0 * float(s.rise) / GRAVITY) for s in stances.values())
        steps = int(np.ceil(flight / jumper.dt)) * settings.finer
        check = jax.jit(lambda x, takeoff: checked_rise(jumper, x, takeoff, steps))
        checks = {name: check(search.x, stances[name].takeoff) for name, search in found.items()}
        angles = {
            name: np.asarray(jax.vmap(lambda q, x=search.x: jumper.knee(x, q))(stances[name].states.q))
            for name, search in found.items()
        }
        figure = draw(jumper, found, stances)
    errors = {name: float(checks[name][0]) / float(x.rise) - 1.0 for name, x in stances.items()}
    rows = []
    for name, search in found.items():
        share, hips, gear, _ = jumper.values(search.x)
        thigh = 1e3 * share * settings.leg.length
        rows.append(
            (
                name,
                f"{float(stances[name].rise):.4f}",
                f"{float(checks[name][0]):.4f}",
                f"{thigh:.0f} / {1e3 * settings.leg.length - thigh:.0f}",
                f"{1e3 * hips:.0f}",
                f"{gear:.2f}",
                f"{np.degrees(angles[name].min()):.0f} to {np.degrees(angles[name][-2]):.0f}",
                f"{search.costs[-1]:.0f}",
                f"{reached(search):.0f}",
                f"{search.wall:.1f}",
            )
        )
    headings = (
        "design",
        "rise, m",
        "check, m",
        "thigh / shin, mm",
        "hips, mm",
        "gear",
        "knee, deg",
        "cost",
        "cost to 99 %",
        "wall time, s",
    )
    base = found["torques alone"].rise
    gains = [f"{100.0 * (x.rise / base - 1.0):.1f} % ({name})" for name, x in found.items() if "co-" in name]
    status = max(int(x[1]) for x in checks.values())
    sentences = [
        f"Co-design raises the jump over torques alone by {', '.join(gains)}.",
        f"Costs are in evaluations of the objective. A gradient costs {ratio:.1f} evaluations.",
        f"{spread}.",
        "The contact simulation with friction and steps of "
        f"{1e3 * jumper.dt / settings.finer:g} ms agrees to {100.0 * max(map(abs, errors.values())):.2f} %.",
        f"Status: {jaxdae.Status(status).name}.",
    ]
    conclude(asked, headings, rows, sentences, {"jumping_leg": figure})
    return 0 if status == 0 and max(map(abs, errors.values())) < 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())

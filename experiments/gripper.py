"""A gripper with two four-bar fingers: does it hold a block at the edge of the friction cone without creep?

A torque T on the left crank and a gear close both fingers. Their cranks of length l are inclined by the angle
a, and each finger weighs w with its two cranks. By virtual work of a finger, with the normal force N and the
friction F at its pad, upward on the block of mass m,

    T / (2 l) + (w + F) cos(a) = N sin(a).

The block is held with F = m g / 2 <= mu N, that is, above the critical torque

    T* = m g l (sin(a) / mu - cos(a)) - 2 w l cos(a).

Below T*, F = mu N, and the block slides down with the acceleration g - 2 mu N / m. The weight of the block
pulls the fingers closed, so the gripper holds with T = 0 if tan(a) is small enough.

*Identification.* The friction coefficient follows by least squares from the noisy height of a sliding block.
The derivative passes through the contacts. The guess must let the block slide: the motion of a block that is
held does not depend on friction.

    python experiments/gripper.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import importlib
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pydantic

import jaxdae
from jaxdae import tuning
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/gripper.yaml"
DROPS = 0.1  # m/s, mean speed of a block that drops instead of creeping


class Identification(pydantic.BaseModel, extra="forbid", strict=True):
    """Settings of the identification."""

    torque: pydantic.PositiveFloat
    noise: pydantic.PositiveFloat
    guess: pydantic.PositiveFloat
    seed: int


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    factors: list[pydantic.PositiveFloat] = pydantic.Field(min_length=2)
    hold: pydantic.PositiveFloat
    settle: pydantic.PositiveFloat
    identification: Identification


class Statics(NamedTuple):
    """The closed form: block mass in kg, weight of a finger in N, l in m, a in rad, g in m/s^2, mu."""

    mass: float
    weight: float
    length: float
    angle: float
    gravity: float
    friction: float

    @classmethod
    def of(cls, mechanism: Any) -> "Statics":
        """Return the closed form for the mechanism of the config."""
        masses = {body.name: body.mass for body in mechanism.bodies}
        places = {joint.name: np.array(joint.at) for joint in mechanism.joints if joint.name != "gear"}
        crank = places["left_knuckle"] - places["left_crank"]
        gravity = -mechanism.gravity[1]
        moved = masses["left_finger"] + (masses["left_upper"] + masses["left_lower"]) / 2.0
        length, angle = np.hypot(*crank), np.arctan2(-crank[1], -crank[0])
        friction = mechanism.contacts[0].friction
        return cls(masses["block"], moved * gravity, length, angle, gravity, friction)

    def critical_torque(self) -> float:
        """Return T* in N m."""
        c, s = np.cos(self.angle), np.sin(self.angle)
        of_block = self.mass * self.gravity * (s / self.friction - c)
        return self.length * (of_block - 2.0 * self.weight * c)

    def acceleration(self, torque: Any, friction: Any) -> Any:
        """Return the acceleration of the sliding block in m/s^2, downward."""
        c, s = np.cos(self.angle), np.sin(self.angle)
        normal = (torque / (2.0 * self.length) + self.weight * c) / (s - friction * c)
        return self.gravity - 2.0 * friction * normal / self.mass


def simulate(system: Any, method: Any, start: Any, torque: Any, friction: Any, dt: Any, steps: int) -> Any:
    """Return the trajectory for a torque in N m and a friction coefficient."""
    for path, value in (
        ("forces.motor.force", torque),
        ("contacts.left.friction", friction),
        ("contacts.right.friction", friction),
    ):
        system = jaxdae.tree.set_leaf(system, path, value)
    return jaxdae.rollout(system, method, start, dt=dt, steps=steps)


def critical_torque(slides: Any, low: float, high: float, count: int, passes: int = 10) -> float:
    """Return the torque in N m above which the block is held.

    Args:
        slides: torques (count,) -> whether the block slides (count,).
        low: a torque in N m with which it slides.
        high: a torque in N m with which it is held.
        count: the number of torques per pass.
        passes: each narrows the interval by the factor count + 1.
    """
    for _ in range(passes):
        torques = np.linspace(low, high, count + 2)
        sliding = int(np.count_nonzero(slides(torques[1:-1])))
        low, high = torques[sliding], torques[sliding + 1]
    return (low + high) / 2.0


def identified(height: Any, guess: float, seen: Any, noise: float) -> Any:
    """Return the fit of the friction coefficient.

    Args:
        height: friction coefficient -> heights of the block (steps,) in m.
        guess: of the coefficient.
        seen: measured heights (steps,) in m.
        noise: their standard deviation in m.
    """

    def residual(parameters: Any) -> Any:
        return (height(parameters["friction"]) - seen) / noise

    return jax.jit(lambda x: tuning.least_squares(residual, {"friction": x}, standard_deviation=1.0))(guess)


def mujoco_creep(mechanism: Any, torque: float, hold: float, settle: float, elliptic: bool) -> float | None:
    """Return the creep speed of the block in MuJoCo in m/s, None without MuJoCo.

    Args:
        mechanism: of the config.
        torque: of the motor in N m.
        hold: duration in s.
        settle: time in s before creep is measured.
        elliptic: whether friction has elliptic cones and impratio 10, as MuJoCo recommends against slip.
    """
    try:
        mujoco: Any = importlib.import_module("mujoco")
    except ModuleNotFoundError:
        return None
    model = mujoco.MjModel.from_xml_string(_mjcf(mechanism, elliptic))
    data = mujoco.MjData(model)
    data.qfrc_applied[model.joint("left_crank").dofadr[0]] = torque

    def slip_after(duration: float) -> float:
        while data.time < duration:
            mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)
        return float(data.body("block").xipos[2] - data.body("left_finger").xipos[2])

    first = slip_after(settle)
    return abs(slip_after(hold) - first) / (hold - settle)


def _mjcf(mechanism: Any, elliptic: bool) -> str:
    """Return the mechanism as a model of MuJoCo in the x-z plane, with its default soft constraints."""
    bodies = {body.name: body for body in mechanism.bodies}
    places = {joint.name: joint.at for joint in mechanism.joints if joint.name != "gear"}
    armature = mechanism.joints[0].armature
    friction = f'friction="{mechanism.contacts[0].friction} 0 0"'
    tree, loops = "", ""

    def inertial(name: str, x: float, y: float) -> str:
        body = bodies[name]
        at = f"{body.pose[0] - x} 0 {body.pose[1] - y}"
        return f'<inertial pos="{at}" mass="{body.mass}" diaginertia="{" ".join([str(body.inertia)] * 3)}"/>'

    def opened(name: str, joint: str, x: float, y: float, extra: str = "") -> str:
        there = places[joint]
        return (
            f'<body name="{name}" pos="{there[0] - x} 0 {there[1] - y}">'
            f'<joint name="{joint}" axis="0 -1 0" {extra}/>{inertial(name, *there)}'
        )

    for side, sign in (("left", 1), ("right", -1)):
        crank, knuckle, pin = (places[f"{side}_{name}"] for name in ("crank", "knuckle", "pin"))
        finger = bodies[f"{side}_finger"].pose
        at = f"{finger[0] - knuckle[0] + sign * 0.003} 0 {finger[1] - knuckle[1]}"
        pad = f'<geom type="box" size="0.003 0.02 0.05" pos="{at}" contype="1" conaffinity="0" {friction}/>'
        extra = f'armature="{armature}"' if side == "left" else ""
        tree += opened(f"{side}_upper", f"{side}_crank", 0.0, 0.0, extra)
        tree += opened(f"{side}_finger", f"{side}_knuckle", *crank) + pad + "</body></body>"
        tree += opened(f"{side}_lower", f"{side}_pivot", 0.0, 0.0) + "</body>"
        anchor = f"{pin[0] - knuckle[0]} 0 {pin[1] - knuckle[1]}"
        loops += f'<connect body1="{side}_finger" body2="{side}_lower" anchor="{anchor}"/>'
    x, z, _ = bodies["block"].pose
    cone = 'cone="elliptic" impratio="10"' if elliptic else ""
    return (
        f'<mujoco><option timestep="0.001" gravity="0 0 {mechanism.gravity[1]}" {cone}/><worldbody>{tree}'
        f'<body name="block" pos="{x} 0 {z}"><joint type="slide" axis="1 0 0"/>'
        f'<joint type="slide" axis="0 0 1"/><joint axis="0 -1 0"/>{inertial("block", x, z)}'
        f'<geom type="box" size="0.04 0.02 0.02" contype="0" conaffinity="1" {friction}/></body>'
        f'</worldbody><equality>{loops}<joint joint1="right_crank" joint2="left_crank" polycoef="0 -1 0 0 0"/>'
        "</equality></mujoco>"
    )


def draw(time: Any, factors: Any, fallen: Any, theory: Any, creeps: dict[str, list], fit: Any) -> Any:
    """Return the figure: sliding blocks, creep of held blocks, identification."""
    with styled() as figure_class:
        figure = figure_class(figsize=(14, 4.2), layout="constrained")
        slip, creep, data = figure.subplots(1, 3)
        for k, factor in enumerate(factors):
            if factor < 1.0 or k == int(np.argmax(factors > 1.0)):
                slip.plot(time, 1e3 * fallen[k], label=f"{factor:g} T*", **line_style(k))
                slip.plot(time[::10], 1e3 * theory[k, ::10], ".", color=line_style(k)["color"])
        slip.set(xlabel="time in s", ylabel="slip in mm", title="block; dots: closed form")
        slip.legend()
        held = np.asarray(factors)[np.asarray(factors) > 1.0]
        for k, (name, speeds) in enumerate(creeps.items()):
            creep.plot(held, 1e6 * np.maximum(speeds, 1e-17), "o-", label=name, color=line_style(k)["color"])
        creep.set(yscale="log", xlabel="torque / T*", ylabel="creep in um/s", title="block that is held")
        creep.legend()
        at, seen, guessed, found, label = fit
        data.plot(at, seen, ".", markersize=3, color="black", label="noisy data")
        data.plot(at, guessed, label="guess", **line_style(1))
        data.plot(at, found, label=label, **line_style(0))
        data.set(xlabel="time in s", ylabel="slip in mm", title="identification of friction")
        data.legend()
        return figure


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, settings = asked.config, jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    statics, wanted = Statics.of(config.mechanism), settings.identification
    critical, mu = statics.critical_torque(), statics.friction
    factors = np.array(sorted(settings.factors))
    torques, is_held = factors * critical, factors > 1.0
    with precision(config):
        system, method, start = asked.worlds.one()
        block = system.names.coordinates.index("block.y")

        def run(steps: int) -> Any:
            def one(torque: Any, friction: Any) -> Any:
                return simulate(system, method, start, torque, friction, config.dt, steps)

            return jax.jit(jax.vmap(one))

        # The sweep, the search and the curves of the fit share one compiled program.
        moves, count = run(config.steps), len(factors)
        short = moves(jnp.asarray(torques), jnp.full(count, mu))

        def slides(at: Any) -> Any:
            return np.asarray(moves(jnp.asarray(at), jnp.full(count, mu)).state.v)[:, -1, block] < -1e-10

        found = critical_torque(slides, 0.9 * critical, 1.1 * critical, count)
        steps = round(settings.hold / config.dt)
        long = run(steps)(jnp.asarray(torques[is_held]), jnp.full(int(is_held.sum()), mu))

        def curve(friction: float) -> Any:
            torque = jnp.full(count, wanted.torque)
            return np.asarray(moves(torque, jnp.full(count, friction)).state.q)[0, :, block]

        def height(friction: Any) -> Any:
            found = simulate(system, method, start, wanted.torque, friction, config.dt, config.steps)
            return found.state.q[:, block]

        noise = wanted.noise * np.random.default_rng(wanted.seed).standard_normal(config.steps)
        seen = curve(mu) + noise
        fit = identified(height, wanted.guess, seen, wanted.noise)
        friction, error = (float(x["friction"]) for x in (fit.parameters, fit.standard_error))
        guessed, fitted = curve(wanted.guess), curve(friction)
    time = config.dt * np.arange(1, config.steps + 1)
    fallen = float(start.q[block]) - np.asarray(short.state.q)[..., block]
    accelerations = np.maximum(0.0, statics.acceleration(torques, mu))
    theory = accelerations[:, None] * time**2 / 2.0
    heights = np.asarray(long.state.q)[..., block]
    settled = round(settings.settle / config.dt) - 1
    creep = np.abs(heights[:, -1] - heights[:, settled]) / (settings.hold - settings.settle)
    creeps = {"jaxdae": list(creep)}
    for name, elliptic in (("MuJoCo, default", False), ("MuJoCo, elliptic cones, impratio 10", True)):
        times = (settings.hold, settings.settle)
        speeds = [mujoco_creep(config.mechanism, x, *times, elliptic) for x in torques[is_held]]
        if None not in speeds:
            creeps[name] = speeds
    loops = max(float(np.asarray(x.info.violation).max()) for x in (short, long))
    status = max(int(np.asarray(x.info.status).max()) for x in (short, long))
    eps = 1e-6
    forms = [-statics.acceleration(wanted.torque, friction + x) * time**2 / 2.0 for x in (-eps, eps)]
    of_theory = wanted.noise / np.linalg.norm((forms[1] - forms[0]) / (2.0 * eps))
    headings = (
        "torque / T*",
        f"slip after {config.duration:g} s, m",
        "error, m",
        *(f"creep, um/s: {name}" for name in creeps),
    )
    rows = []
    for k, factor in enumerate(factors):
        off = f"{np.max(np.abs(fallen[k] - theory[k])):.1e}"
        held = k - int(np.count_nonzero(~is_held))
        rows.append(
            (
                f"{factor:g}",
                f"{fallen[k, -1]:.3e}",
                off,
                *(
                    "slides" if held < 0 or x[held] > DROPS else f"{1e6 * x[held]:.2g}"
                    for x in creeps.values()
                ),
            )
        )
    first = np.max(np.abs(heights[:, settled] - float(start.q[block])))
    sentences = [
        f"The gripper holds the block above {found:.10f} N m; statics: {critical:.10f} N m.",
        f"A held block moves by {first:.1e} m until contact forces are known, and then by"
        f" {np.max(creep) * (settings.hold - settings.settle):.1e} m in"
        f" {settings.hold - settings.settle:g} s.",
        f"The loops are open by at most {loops:.1e} m.",
        f"The friction coefficient is {friction:.5f} +- {error:.5f} from slip with errors of"
        f" {1e3 * wanted.noise:g} mm, from the guess {wanted.guess:g}; exact: {mu:g}.",
        f"Its standard error is {error:.7f}; closed form: {of_theory:.7f}.",
        f"Status: {jaxdae.Status(status).name}.",
    ]
    if len(creeps) == 1:
        sentences.append("MuJoCo is not installed, so its creep is not shown.")
    curves = [1e3 * (float(start.q[block]) - x) for x in (seen, guessed, fitted)]
    label = f"fit: {friction:.4f} +- {error:.4f}"
    figure = draw(time, factors, fallen, theory, creeps, (time, *curves, label))
    conclude(asked, headings, rows, sentences, {"gripper": figure})
    return 0 if status == jaxdae.Status.OK else 1


if __name__ == "__main__":
    sys.exit(main())

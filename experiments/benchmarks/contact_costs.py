"""Measure the cost of contact: Cassie and a humanoid with 8 foot contacts each, and a hexapod with 24.

    python experiments/benchmarks/contact_costs.py [--robots humanoid] [--only "Touching, XLA" "MJX, XLA"]

One process runs all contenders of a robot one after another, in double precision. The worlds start at 64
states: Cassie falls onto its feet and stands by joint feedback, as in the experiment `cassie_ground`. The
humanoid of 30 bodies and the hexapod stand by springs in their joints, with random joint rates. The columns:

- us/step: CPU time of all threads per world and step, the smallest of the repetitions;
- ratio: to the step of jaxdae without contact that runs in the same way, or by XLA if that was not measured.
  Of a gradient: to the same rollout without the gradient;
- compile, s: CPU time of tracing and compilation, with an empty cache of kernels;
- penetration, drift: of the humanoid and the hexapod in MJX and jaxdae. Without rates at the start, one world
  stands for 1 s. Penetration is the largest one in the second half. Drift is the mean speed of the floating
  body, including sway;
- stopped: share of worlds with a status other than OK.

A gradient is the value and the derivative of the sum of all coordinates at the end with respect to the
initial velocities, in reverse mode. The humanoid and the hexapod need MuJoCo, and MJX where it is installed.
"""

import argparse
import dataclasses
import importlib.util
import math
import pathlib
import resource
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from side_by_side import markdown

import jaxdae
from jaxdae import contact, robots
from jaxdae import mechanisms as jm
from jaxdae.app.config.config_elements import description
from jaxdae.app.model.load_config import load

ROOT = pathlib.Path(__file__).resolve().parents[2]
STATES, SHORT = 64, 25
EULER = jaxdae.SemiImplicitEuler()
WAYS = {
    "XLA": jaxdae.Layout(kernel=None),
    "XLA in chunks of 8": jaxdae.Layout(kernel=None, chunk=8),
    "kernel": jaxdae.Layout(kernel=jaxdae.Fused()),
}


class Task(NamedTuple):
    """A robot with and without contact, the methods, the law of the motors, the starts, and the step in s."""

    touching: Any
    free: Any
    methods: dict[str, Any]
    law: Any
    start: jaxdae.State
    dt: float
    file: str = ""


def cassie() -> Task:
    """Return Cassie with two capsules per foot, 6 cm apart, in states of its landing and standing."""
    sys.path.insert(0, str(ROOT / "experiments"))
    ground: Any = importlib.import_module("cassie_ground")
    config, _ = load(str(ROOT / ground.CONFIG))
    settings = ground.Settings.model_validate(config.experiment)
    settings = settings.model_copy(update={"file": str(ROOT / "configs" / settings.file)})
    robot = ground.over_the_ground(config, settings)
    pairs = [
        dataclasses.replace(
            pair,
            name=f"{pair.name}{k}",
            shape_b=dataclasses.replace(pair.shape_b, at=(*pair.shape_b.at[:2], side)),
        )
        for pair in description(config.model_dump()).contacts
        for k, side in enumerate((-0.03, 0.03))
    ]
    motors = [jm.spatial.JointForce(f"{name} motor", name, input=k) for k, name in enumerate(robot.motors)]
    loaded = robots.load(settings.file).description
    loaded = dataclasses.replace(loaded, forces=[*loaded.forces, *motors])
    free, _ = jm.mechanism(loaded, jm.Joints())
    touching, _ = jm.mechanism(dataclasses.replace(loaded, contacts=pairs), jm.Joints())
    method = contact.Touching(EULER)
    plan = {"dt": config.dt, "steps": 50 * STATES, "save_every": 50}
    found = jax.jit(lambda state: jaxdae.rollout(touching, method, state, robot.law, **plan))(robot.start)
    jaxdae.raise_if_failed(found.info)
    methods = {"without contact": jaxdae.Projected(EULER), "Touching": method}
    return Task(touching, free, methods, robot.law, found.state, config.dt)


def chain(links: list[tuple[Any, ...]], last: str = "") -> str:
    """Return nested MJCF bodies on hinges: (name, place, mass, length, axis, stiffness, damping)."""
    if not links:
        return last
    name, place, mass, length, axis, stiffness, damping = links[0]
    moment = mass * length**2
    return f"""<body name="{name}" pos="{place}">
        <inertial pos="0 0 {-length / 2}" mass="{mass}" diaginertia="{moment} {moment} {moment / 2}"/>
        <joint name="{name}" axis="{axis}" stiffness="{stiffness}" damping="{damping}" armature="0.05"/>
        {chain(links[1:], last)}</body>"""


def humanoid_file() -> str:
    """Return the MJCF text of a humanoid of 30 bodies and 35 velocities, with four spheres per foot."""
    x, y, z = "1 0 0", "0 1 0", "0 0 1"
    legs, arms = "", ""
    for side, sign in (("left", 1.0), ("right", -1.0)):
        foot = "".join(
            f'<geom type="sphere" size="0.01" pos="{along} {across} -0.04" contype="1" conaffinity="0"/>'
            for along in (0.12, -0.06)
            for across in (0.04, -0.04)
        )
        leg = [
            ("hip_pitch", f"0 {0.1 * sign} -0.05", 1.5, 0.1, y),
            ("hip_roll", "0 0 -0.03", 1.5, 0.1, x),
            ("hip_yaw", "0 0 -0.03", 1.5, 0.3, z),
            ("knee", "0 0 -0.3", 2.0, 0.3, y),
            ("ankle_pitch", "0 0 -0.35", 0.3, 0.1, y),
            ("ankle_roll", "0 0 -0.03", 0.6, 0.1, x),
        ]
        arm = [
            ("shoulder_pitch", f"0 {0.2 * sign} 0.3", 0.8, 0.1, y),
            ("shoulder_roll", "0 0 -0.03", 0.8, 0.1, x),
            ("shoulder_yaw", "0 0 -0.05", 0.8, 0.15, z),
            ("elbow", "0 0 -0.2", 0.6, 0.15, y),
            ("wrist_roll", "0 0 -0.15", 0.3, 0.1, z),
            ("wrist_pitch", "0 0 -0.05", 0.2, 0.1, y),
            ("wrist_yaw", "0 0 -0.05", 0.2, 0.1, x),
        ]
        legs += chain([(f"{side}_{link[0]}", *link[1:], 2000, 10) for link in leg], foot)
        arms += chain([(f"{side}_{link[0]}", *link[1:], 100, 2) for link in arm])
    spine = [("yaw", z, 1.0, 0.1), ("roll", x, 1.0, 0.1), ("pitch", y, 9.0, 0.2)]
    torso = chain(
        [(f"spine_{n}", "0 0 0.05", mass, size, axis, 1000, 10) for n, axis, mass, size in spine], arms
    )
    return f"""<mujoco model="humanoid"><compiler angle="radian"/><option timestep="0.002"/>
        <default><geom friction="0.8 0 0"/></default>
        <worldbody><geom name="floor" type="plane" size="1 1 1" contype="0" conaffinity="1"/>
        <body name="pelvis" pos="0 0 0.84"><freejoint name="pelvis"/>
        <inertial pos="0 0 0" mass="4" diaginertia="0.03 0.03 0.03"/>{legs}{torso}</body>
        </worldbody></mujoco>"""


def hexapod_file() -> str:
    """Return the MJCF text of a hexapod of 19 bodies and 24 velocities, with four spheres per leg.

    One sphere is the foot. The other spheres are at both ends of the thigh and in the middle of the shank.
    """
    legs = ""
    for k in range(6):
        angle = math.radians(60 * k)
        outward = math.cos(angle), math.sin(angle)

        def at(radius: float, height: float, outward: Any = outward) -> str:
            return f"{radius * outward[0]} {radius * outward[1]} {height}"

        def spheres(*places: str) -> str:
            return "".join(
                f'<geom type="sphere" size="0.015" pos="{place}" contype="1" conaffinity="0"/>'
                for place in places
            )

        across = f"{-outward[1]} {outward[0]} 0"
        thigh_spheres = spheres(at(0.0, 0.0), at(0.1, 0.03))
        shank_spheres = spheres(at(0.02, -0.06), at(0.04, -0.135))
        leg = [
            (f"hip{k}", at(0.15, 0.0), 0.2, 0.05, "0 0 1", 20, 0.2),
            (f"thigh{k}", at(0.05, 0.0), 0.3, 0.1, across, 200, 1),
        ]
        shank = chain([(f"shank{k}", at(0.1, 0.03), 0.2, 0.12, across, 200, 1)], shank_spheres)
        legs += chain(leg, thigh_spheres + shank)
    return f"""<mujoco model="hexapod"><compiler angle="radian"/><option timestep="0.002"/>
        <default><geom friction="0.8 0 0"/></default>
        <worldbody><geom name="floor" type="plane" size="1 1 1" contype="0" conaffinity="1"/>
        <body name="trunk" pos="0 0 0.12"><freejoint name="trunk"/>
        <inertial pos="0 0 0" mass="3" diaginertia="0.02 0.02 0.03"/>{legs}</body>
        </worldbody></mujoco>"""


def on_springs(text: str) -> Task:
    """Return a robot from MJCF text with random joint rates; the first state is at rest."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "robot.xml"
        path.write_text(text)
        robot = robots.load(path, contacts=True)
    touching, q = jm.mechanism(robot.description, jm.Joints())
    free, _ = jm.mechanism(dataclasses.replace(robot.description, contacts=()), jm.Joints())
    start = robots.joint_state(touching, q, robot.start)
    rates = 0.3 * np.random.default_rng(0).normal(size=(STATES, start.v.shape[0]))
    rates[0], rates[:, :6] = 0.0, 0.0
    start = jaxdae.State(jnp.zeros(STATES), jnp.tile(start.q, (STATES, 1)), jnp.asarray(rates))
    methods = {
        "without contact": EULER,
        "Touching": contact.Touching(EULER),
        "ContactStepping": contact.ContactStepping(),
    }
    return Task(touching, free, methods, None, start, 2e-3, text)


def of_jaxdae(task: Task, name: str, layout: Any, steps: int, gradient: bool = False) -> Callable[[Any], Any]:
    """Return a program of starts that returns (q, v, status) at the end, or (value, gradient, status)."""
    system = task.free if name == "without contact" else task.touching

    def ends(start: Any) -> Any:
        plan = {"dt": task.dt, "steps": steps, "save_every": steps, "layout": layout}
        found = jaxdae.batch_rollout(system, task.methods[name], start, task.law, **plan)
        return found.state.q[:, 0], found.state.v[:, 0], found.info.status[:, 0]

    def loss(v: Any, start: Any) -> Any:
        q, _, status = ends(dataclasses.replace(start, v=v))
        return jnp.sum(q), status

    def derivative(start: Any) -> Any:
        (value, status), slope = jax.value_and_grad(loss, has_aux=True)(start.v, start)
        return value, slope, status

    return derivative if gradient else ends


def of_mjx(task: Task, steps: int) -> Callable[[Any], Any]:
    """Return the program in MJX; the status is zero."""
    mujoco: Any = importlib.import_module("mujoco")
    mjx: Any = importlib.import_module("mujoco.mjx")
    model = mjx.put_model(mujoco.MjModel.from_xml_string(task.file))

    def one(q: Any, v: Any) -> Any:
        data = mjx.make_data(model).replace(qpos=q, qvel=v)
        data = jax.lax.scan(lambda data, _: (mjx.step(model, data), None), data, None, steps)[0]
        return data.qpos, data.qvel, jnp.zeros((), jnp.int32)

    return lambda start: jax.vmap(one)(start.q, start.v)


def standing(task: Task, program: Callable[[Any], Any]) -> tuple[str, str]:
    """Return penetration (m) and drift (um/s) in the second half of 1 s, from a program of `SHORT` steps."""
    state, lowest, places = jax.tree.map(lambda x: x[:1], task.start), 0.0, []
    gap = jax.jit(lambda q: jnp.min(task.touching.evaluate(0.0, q).touch.gap))
    count = round(1.0 / (task.dt * SHORT))
    for k in range(count):
        q, v, _ = program(state)
        state = jaxdae.State(state.t, q, v)
        if 2 * k >= count:
            lowest = min(lowest, float(gap(q[0])))
            places.append(np.asarray(q[0, :2]))
    moved = np.linalg.norm(places[-1] - places[0]) / ((len(places) - 1) * SHORT * task.dt)
    return f"{abs(lowest):.0e}", f"{1e6 * moved:.1g}"


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its compilers."""
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def main() -> None:
    """Print one table per robot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--robots", nargs="+", default=["cassie", "humanoid"])
    parser.add_argument("--only", nargs="+", help="names of contenders (default: all)")
    parser.add_argument("--worlds", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for robot in asked.robots:
        task = ROBOTS[robot]()
        start = jax.tree.map(lambda x: x[np.arange(asked.worlds) % STATES], task.start)
        programs = {
            f"{name}, {way}": of_jaxdae(task, name, layout, asked.steps)
            for way, layout in WAYS.items()
            for name in task.methods
        }
        for name in task.methods:
            program = of_jaxdae(task, name, WAYS["XLA"], asked.steps, gradient=True)
            programs[f"{name}, gradient, XLA"] = program
        if task.file and importlib.util.find_spec("mujoco.mjx"):
            programs["MJX, XLA"] = of_mjx(task, asked.steps)
        chosen = {k: f for k, f in programs.items() if asked.only is None or k in asked.only}
        rows = measured(task, chosen, start, asked.steps, asked.repeats)
        print(
            f"\n## {robot}, {asked.worlds} worlds, {asked.steps} steps\n", markdown([HEAD, *rows]), sep="\n"
        )


ROBOTS = {
    "cassie": cassie,
    "humanoid": lambda: on_springs(humanoid_file()),
    "hexapod": lambda: on_springs(hexapod_file()),
}
HEAD = ["contender", "us/step", "ratio", "compile, s", "penetration, m", "drift, um/s", "stopped, %"]


def measured(task: Task, programs: dict[str, Any], start: Any, steps: int, repeats: int) -> list[list[str]]:
    """Return the rows of the table."""
    compiled, seconds, times, stopped = {}, {}, {}, {}
    for name, program in programs.items():
        began = cpu_seconds()
        compiled[name] = jax.jit(program).lower(start).compile()
        seconds[name], times[name] = cpu_seconds() - began, []
        stopped[name] = 100.0 * float(
            np.mean(np.asarray(jax.block_until_ready(compiled[name](start))[-1]) > 0)
        )
    for _ in range(repeats):
        for name, program in compiled.items():
            began = cpu_seconds()
            jax.block_until_ready(program(start))
            times[name].append(1e6 * (cpu_seconds() - began) / (steps * len(start.t)))
    rows = []
    for name in programs:
        still = ("", "")
        if task.file and name.startswith(("Touching, XLA", "MJX")):
            one = of_mjx(task, SHORT) if "MJX" in name else of_jaxdae(task, "Touching", WAYS["XLA"], SHORT)
            still = standing(task, jax.jit(one))
        way = name.rsplit(", ", 1)[1]
        base = times.get(f"without contact, {way}", times.get("without contact, XLA"))
        if ", gradient" in name:
            base = times.get(name.replace(", gradient", ""))
        ratio = "" if base is None else f"{min(times[name]) / min(base):.1f}"
        row = [name, f"{min(times[name]):.1f}", ratio, f"{seconds[name]:.0f}", *still, f"{stopped[name]:.0f}"]
        print(" | ".join(row), flush=True)
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()

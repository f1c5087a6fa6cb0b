"""Robots with loops compared with MuJoCo (C) and MJX, and the program of a humanoid: a part of `make bench`.

Cassie (12 rows of rank 10) and the gripper Robotiq 2F-85 (two four-bars and geared drivers, 7 rows of rank 5)
move without damping: microseconds of CPU time a step, of one world and of each of 1024 (64 at a time in one
program), and by how much loops are open at most at the end of the motion. jaxdae takes semi-implicit Euler in
joint coordinates and projects positions and velocities in every step, with one factorization a step, that at
its end, which serves the next one: corrections of positions (`Origin.PREVIOUS`) and of velocities, and
accelerations. "once" has J (v + h a) = -h gamma in place of a projection of velocities, and factorizes at the
estimate: one correction of positions there, and the dynamics of the next step (`Origin.SHARED`). MuJoCo is as
it comes, but for limits and contacts; "fastest" is MJX with one iteration of Newton's method and of its line
search, which suffice for equalities, and without its implicit treatment of damping. Programs return the state
at the end alone, as rollouts do: what else a step finds need not be kept.

Another table has opening and energy over 5 s in which nothing is lost or driven, of a gripper of our own with
two parallelograms that swings upside down (without its limits the Robotiq soon reaches configurations where
it locks): MuJoCo as it comes, and as stiff as it may be (solref of two steps, solimp near 1, RK4).

Of the humanoid (27 velocities, free base) the table has the CPU time that the programs of a step and of a
gradient through 200 steps take to compile, and to run.
"""

import argparse
import contextlib
import dataclasses
import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# A word that is no flag comes last: what stands behind it is not read.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_multi_thread_eigen=false --xla_cpu_enable_concurrency_optimized_scheduler=false "
    "--xla_cpu_use_fusion_emitters=false"
    " intra_op_parallelism_threads=1",
)

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from side_by_side import markdown

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae import robots
from jaxdae.mechanisms import spatial as js

with contextlib.redirect_stdout(io.StringIO()):  # it announces its optional packages
    from mujoco import mjx

MODELS = Path(__file__).resolve().parents[2] / "tests" / "reference" / "models"
FILES = {
    "Cassie": MODELS / "cassie.xml",
    "Gripper": MODELS / "robotiq_2f85.xml",
    "Hanging gripper": MODELS.parents[2] / "configs" / "models" / "four_bar_gripper.urdf",
}
RATES: dict[str, dict[str, Any]] = {
    "Cassie": {"left-knee": 2.0, "right-knee": -1.0, "cassie-pelvis": (0.0, 0.0, 0.0, 0.0, 2.0, 0.0)},
    "Gripper": {"left_driver_joint": 1.0, "right_driver_joint": 1.0},
    "Hanging gripper": {"crank_left_joint": 1.0, "crank_right_joint": -1.0},
}
"""How they begin to move, in rad/s; what loops do not allow is projected away."""
STEPS = {"Cassie": 5e-4, "Gripper": 1e-3, "Hanging gripper": 1e-3}  # s
HUMANOID = Path(mjx.__file__).parent / "test_data" / "humanoid" / "humanoid.xml"
CHUNK = 64


class Contender:
    """A program that makes steps of worlds.

    Attributes:
        name: whose it is.
        run: makes them, and returns by how much loops are open after them, in m or rad; more than 0.01 ends
            the program.
        world_steps: how many.
        compile_s: CPU seconds of compiling.
        times: us a step of a world, one entry a repetition.
        opening: what `run` returned, m or rad.
    """

    def __init__(
        self, name: str, run: Callable[[], float], world_steps: int, compile_s: float | None = None
    ) -> None:
        self.name, self.run, self.world_steps, self.compile_s = name, run, world_steps, compile_s
        self.times: list[float] = []
        self.opening = run()
        if not self.opening < 1e-2:
            raise SystemExit(f"{name}: the loops are open by {self.opening}")

    def measured(self) -> None:
        """Add a repetition."""
        begin = time.process_time()
        self.run()
        self.times.append(1e6 * (time.process_time() - begin) / self.world_steps)


class Subject:
    """A robot without damping, and the start of its motion in both engines."""

    def __init__(self, name: str) -> None:
        self.path, self.dt = FILES[name], STEPS[name]
        robot = self.robot()
        joints = [
            dataclasses.replace(x, damping=0.0) if hasattr(x, "damping") else x
            for x in robot.description.joints
        ]
        forces = [one for one in robot.description.forces if not isinstance(one, js.RotationalDamper)]
        self.mechanism, q = jm.mechanism(
            dataclasses.replace(robot.description, joints=joints, forces=forces), jm.Joints()
        )
        given = robots.joint_state(self.mechanism, q, robot.start, RATES[name])
        self.start = jaxdae.initialize(self.mechanism, given.q, given.v)[0]
        self.qpos, self.qvel = (
            np.asarray(x) for x in robots.to_mujoco(robot.report, self.mechanism, self.start)
        )

    def robot(self) -> Any:
        """Return the robot of the file."""
        return robots.load(self.path)

    def spec(self) -> mujoco.MjSpec:
        """Return what MuJoCo reads."""
        return mujoco.MjSpec.from_file(str(self.path))

    def model(self, *, fastest: bool = False) -> mujoco.MjModel:
        """Return the model of MuJoCo without damping, limits and contacts."""
        model = self.spec().compile()
        model.dof_damping[:] = 0.0
        model.opt.timestep, model.opt.integrator = self.dt, mujoco.mjtIntegrator.mjINT_EULER
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_LIMIT | mujoco.mjtDisableBit.mjDSBL_CONTACT
        if fastest:
            model.opt.iterations, model.opt.ls_iterations = 1, 1
            model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_EULERDAMP
        return model

    def data(self, model: mujoco.MjModel) -> mujoco.MjData:
        """Return the start."""
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = self.qpos, self.qvel
        mujoco.mj_forward(model, data)
        return data


class Hanging(Subject):
    """A gripper whose fingers are couplers of parallelograms, upside down, so that it swings.

    Its file cannot hold the loops.
    """

    UP = (0.0, 0.0, 9.81)

    def robot(self) -> Any:
        """Return the robot of the file, its loops closed by pins."""
        ends = (("left", 1.0), ("right", -1.0))
        pins = [
            js.Ball(
                f"pin_{side}",
                f"lower_{side}",
                f"finger_{side}",
                point_a=(sign * 0.03, 0.0, 0.05),
                point_b=(sign * 0.025, 0.0, 0.0),
            )
            for side, sign in ends
        ]
        return robots.load(self.path, loops=pins, gravity=self.UP)

    def spec(self) -> mujoco.MjSpec:
        """Return what MuJoCo reads, with the pins and the mimic joint as equalities."""
        spec = super().spec()
        spec.option.gravity = self.UP
        for side, sign in (("left", 1.0), ("right", -1.0)):
            pin = spec.add_equality(type=mujoco.mjtEq.mjEQ_CONNECT, objtype=mujoco.mjtObj.mjOBJ_BODY)
            pin.name1, pin.name2, pin.data[:3] = f"lower_{side}", f"finger_{side}", (sign * 0.03, 0.0, 0.05)
        gears = spec.add_equality(type=mujoco.mjtEq.mjEQ_JOINT, objtype=mujoco.mjtObj.mjOBJ_JOINT)
        gears.name1, gears.name2, gears.data[:5] = (
            "crank_right_joint",
            "crank_left_joint",
            (0.0, -1.0, 0.0, 0.0, 0.0),
        )
        return spec


def opening(model: mujoco.MjModel, data: mujoco.MjData) -> float:
    """Return by how much equalities are not satisfied where `data` is, in m or rad."""
    mujoco.mj_forward(model, data)
    return float(np.max(np.abs(data.efc_pos[: data.ne])))


def of_mujoco(subject: Subject, steps: int) -> Contender:
    """Return MuJoCo with one world."""
    model = subject.model()

    def run() -> float:
        data = subject.data(model)
        mujoco.mj_step(model, data, nstep=steps)
        return opening(model, data)

    return Contender("MuJoCo C", run, steps)


def rolled(
    begin: Callable[[Any], Any],
    step: Callable[[Any], Any],
    end: Callable[[Any], Any],
    start: Any,
    worlds: int,
    steps: int,
) -> tuple[Any, float]:
    """Return the compiled program of steps of worlds from one start, and the CPU seconds of compiling.

    It returns the end of the first.
    """

    def one(state: Any) -> Any:
        return end(jax.lax.fori_loop(0, steps, lambda _, at: step(at), begin(state)))

    def all_worlds(state: Any) -> Any:
        if worlds == 1:
            return one(state)
        count = min(CHUNK, worlds)
        batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (worlds // count, count, *x.shape)), state)
        return jax.tree.map(lambda x: x[0, 0], jax.lax.map(jax.vmap(one), batch))

    started = time.process_time()
    compiled = jax.jit(all_worlds).lower(start).compile()
    return compiled, time.process_time() - started


def title(name: str, worlds: int) -> str:
    """Return the name of a contender with the number of its worlds."""
    return f"{name}, {'one world' if worlds == 1 else f'each of {worlds}'}"


def of_mjx(subject: Subject, worlds: int, steps: int, *, fastest: bool) -> Contender:
    """Return MJX with a batch of worlds."""
    model = subject.model(fastest=fastest)
    mx = mjx.put_model(model)
    start = mjx.make_data(mx).replace(qpos=jnp.asarray(subject.qpos), qvel=jnp.asarray(subject.qvel))
    compiled, spent = rolled(
        lambda at: at, lambda at: mjx.step(mx, at), lambda at: (at.qpos, at.qvel), start, worlds, steps
    )
    data = mujoco.MjData(model)

    def run() -> float:
        data.qpos[:] = np.asarray(jax.block_until_ready(compiled(start))[0])
        return opening(model, data)

    return Contender(title(f"MJX{' fastest' if fastest else ''}", worlds), run, steps * worlds, spent)


def of_jaxdae(name: str, subject: Subject, worlds: int, steps: int, method: Any) -> Contender:
    """Return jaxdae with a batch of worlds.

    What a step has factorized at its end serves the next one, as in rollouts.
    """
    system, start = subject.mechanism, subject.start
    compiled, spent = rolled(
        lambda at: method.begin(system, at),
        lambda at: method.advance(system, at, (), None, subject.dt)[0],
        lambda at: at.state,
        start,
        worlds,
        steps,
    )

    def run() -> float:
        end = jax.block_until_ready(compiled(start))
        return float(jnp.max(jnp.abs(system.constraint(end.t, end.q))))

    return Contender(title(f"jaxdae{name}", worlds), run, steps * worlds, spent)


def ways(dt: float) -> tuple[tuple[str, Any], ...]:
    """Return the methods by their names."""
    whole = jaxdae.Projection(jaxdae.PositionProjection(origin=jaxdae.Origin.PREVIOUS))
    once = jaxdae.Projection(jaxdae.PositionProjection(iterations=1, origin=jaxdae.Origin.SHARED), None)
    euler = jaxdae.SemiImplicitEuler()
    damped = jaxdae.SemiImplicitEuler(stabilization=jaxdae.Baumgarte(0.5 / dt, 0.0))
    return ("", jaxdae.Projected(euler, whole)), (" once", jaxdae.Projected(damped, once))


def with_loops(name: str, worlds: int, repeats: int) -> list[list[str]]:
    """Return the table of a robot with loops."""
    subject = Subject(name)
    found = [of_mujoco(subject, 1000)]
    for count in (1, worlds):
        steps = 200 if count == 1 else 20
        found += [of_mjx(subject, count, steps, fastest=fastest) for fastest in (False, True)]
        found += [of_jaxdae(way, subject, count, steps, method) for way, method in ways(subject.dt)]
    for _ in range(repeats):
        for one in found:
            one.measured()
    rows = [["", "us/step", "open by, m or rad", "compile, s"]]
    for one in found:
        spent = "-" if one.compile_s is None else f"{one.compile_s:.1f}"
        rows.append([one.name, f"{min(one.times):.1f}", f"{one.opening:.1e}", spent])
    return rows


def kept(duration: float = 5.0) -> list[list[str]]:
    """Return the table of the largest opening and change of energy over a motion of the hanging gripper."""
    subject = Hanging("Hanging gripper")
    steps = round(duration / subject.dt)
    rows = [["", "opens by at most, m or rad", "energy changes by at most, J"]]
    for title, stiff in (("MuJoCo C, default", False), ("MuJoCo C, stiff, RK4", True)):
        model = subject.model()
        model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
        if stiff:
            model.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
            model.eq_solref[:], model.eq_solimp[:] = (
                (2.0 * subject.dt, 1.0),
                (0.9999, 0.9999, 0.001, 0.5, 2.0),
            )
        data = subject.data(model)
        first, worst, change = data.energy.sum(), 0.0, 0.0
        for _ in range(steps):
            mujoco.mj_step(model, data)
            worst = max(worst, opening(model, data))
            change = max(change, abs(data.energy.sum() - first))
        rows.append([title, f"{worst:.1e}", f"{change:.1e}"])
    whole = ways(subject.dt)[0][1]
    for title, method in (
        ("jaxdae, semi-implicit Euler and projection", whole),
        ("jaxdae, RK4 and projection", dataclasses.replace(whole, integrator=jaxdae.RungeKutta.rk4())),
    ):
        found = jaxdae.rollout(subject.mechanism, method, subject.start, dt=subject.dt, steps=steps)
        jaxdae.raise_if_failed(found)
        energy = jax.jit(jax.vmap(lambda x: jaxdae.energy(subject.mechanism, x)))(found.state)
        change = float(jnp.max(jnp.abs(energy - jaxdae.energy(subject.mechanism, subject.start))))
        rows.append([title, f"{float(jnp.max(found.info.violation)):.1e}", f"{change:.1e}"])
    return rows


def humanoid(steps: int = 200) -> list[list[str]]:
    """Return what the programs of a step and of a gradient cost."""
    mechanism, q = jm.mechanism(robots.load(HUMANOID).description, jm.Joints())
    method = jaxdae.SemiImplicitEuler()
    start = jaxdae.State(jnp.zeros(()), q, jnp.zeros((len(mechanism.names.velocities),)))
    idle = jnp.zeros((mechanism.n_inputs,))

    def height(speed: Any) -> Any:
        at = jaxdae.State(start.t, start.q, speed)
        end = jax.lax.scan(
            lambda x, _: (method.step(mechanism, x, (), idle, 2e-3)[0], None), at, None, length=steps
        )[0]
        return robots.center_of_mass(mechanism, end.q)[2]

    rows = [["humanoid", "compile, s", "run, s"]]
    single = jax.jit(lambda x: method.step(mechanism, x, (), idle, 2e-3)[0])
    for name, program, argument in (
        ("step", single, start),
        (f"gradient through {steps} steps", jax.jit(jax.value_and_grad(height)), start.v),
    ):
        begin = time.process_time()
        compiled = program.lower(argument).compile()
        middle = time.process_time()
        found = jax.block_until_ready(compiled(argument))
        end = time.process_time()
        if not all(np.all(np.isfinite(x)) for x in jax.tree.leaves(found)):
            raise SystemExit(f"humanoid, {name}: not finite")
        rows.append([name, f"{middle - begin:.1f}", f"{end - middle:.4f}"])
    return rows


def main() -> None:
    """Run and print everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, help="interleaved repetitions (default: 5)")
    parser.add_argument("--worlds", type=int, default=1024, help="worlds of a batch (default: 1024)")
    parser.add_argument("--quick", action="store_true", help="the humanoid alone")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="titles with these words, such as Cassie (default: all)"
    )
    parser.add_argument("--out", type=Path, help="a Markdown file for the tables")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    jax.config.update("jax_enable_x64", True)
    tasks: list[tuple[str, Callable[[], list[list[str]]]]] = [("Humanoid", humanoid)]
    if not options.quick:
        tasks += [
            (name, lambda name=name: with_loops(name, options.worlds, options.repeats))
            for name in ("Cassie", "Gripper")
        ]
        tasks.append(("Hanging gripper over 5 s", kept))
    lines: list[str] = []
    for name, task in tasks:
        if not any(word in name for word in options.only):
            continue
        lines += [f"## {name}", "", markdown(task()), ""]
        print("\n".join(lines[-4:]), flush=True)
        if options.out is not None:
            options.out.write_text("\n".join(lines))
        jax.clear_caches()


if __name__ == "__main__":
    main()

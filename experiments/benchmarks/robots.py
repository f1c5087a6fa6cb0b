"""A robot with loops beside MuJoCo (C) and MJX, from the same file, and what a humanoid's program costs: a part of `make bench`.

Cassie (12 rows of rank 10) falls without damping, by steps of 0.5 ms: microseconds of CPU time a
step, of one world and of each of 1024 (64 at a time in one program). It begins at rest, where loops tell nothing: how far these open in
seconds of motion is measured by `experiments/cassie.py`. jaxdae takes semi-implicit Euler in joint coordinates and projects positions and
velocities; "once" has J (v + h a) = -h gamma in place of a projection of velocities, and one correction of positions by what the step has
factorized anyway. MuJoCo is as it comes, but for limits and contacts; "fastest" is MJX with one iteration of Newton's method and of its
line search, which suffice for equalities, and without its implicit treatment of damping.

Of the humanoid (27 velocities, free base) the table has the CPU time that the programs of a step and of a gradient through 200 steps take
to compile, and to run.
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
    "--xla_cpu_multi_thread_eigen=false --xla_cpu_enable_concurrency_optimized_scheduler=false --xla_cpu_use_fusion_emitters=false"
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
HUMANOID = Path(mjx.__file__).parent / "test_data" / "humanoid" / "humanoid.xml"
DT = 5e-4  # s
CHUNK = 64


class Contender:
    """A program that makes steps of worlds.

    Attributes:
        name: whose it is.
        run: makes them, and returns by how much loops are open after them, in m; more than 10 mm ends the program.
        world_steps: how many.
        compile_s: CPU seconds of compiling.
        times: us a step of a world, one entry a repetition.
    """

    def __init__(self, name: str, run: Callable[[], float], world_steps: int, compile_s: float | None = None) -> None:
        self.name, self.run, self.world_steps, self.compile_s = name, run, world_steps, compile_s
        self.times: list[float] = []
        if not run() < 1e-2:
            raise SystemExit(f"{name}: the loops are open")

    def measured(self) -> None:
        """Adds a repetition."""
        begin = time.process_time()
        self.run()
        self.times.append(1e6 * (time.process_time() - begin) / self.world_steps)


def of_file(path: Path, *, fastest: bool = False) -> mujoco.MjModel:
    """Returns the model of a file without damping, limits and contacts."""
    model = mujoco.MjModel.from_xml_path(str(path))
    model.dof_damping[:] = 0.0
    model.opt.timestep, model.opt.integrator = DT, mujoco.mjtIntegrator.mjINT_EULER
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_LIMIT | mujoco.mjtDisableBit.mjDSBL_CONTACT
    if fastest:
        model.opt.iterations, model.opt.ls_iterations = 1, 1
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_EULERDAMP
    return model


def of_mujoco(path: Path, steps: int) -> Contender:
    """Returns MuJoCo with one world."""
    model = of_file(path)
    data = mujoco.MjData(model)

    def run() -> float:
        mujoco.mj_resetData(model, data)
        mujoco.mj_step(model, data, nstep=steps)
        mujoco.mj_forward(model, data)
        return float(np.max(np.abs(data.efc_pos[: data.ne])))

    return Contender("MuJoCo C", run, steps)


def rolled(step: Callable[[Any], Any], start: Any, worlds: int, steps: int) -> tuple[Any, float]:
    """Returns the compiled program of steps of worlds from one start, and the CPU seconds of compiling; it returns the first world."""

    def one(state: Any) -> Any:
        return jax.lax.fori_loop(0, steps, lambda _, at: step(at), state)

    def all_worlds(state: Any) -> Any:
        if worlds == 1:
            return one(state)
        count = min(CHUNK, worlds)
        batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (worlds // count, count, *x.shape)), state)
        return jax.tree.map(lambda x: x[0, 0], jax.lax.map(jax.vmap(one), batch))

    begin = time.process_time()
    compiled = jax.jit(all_worlds).lower(start).compile()
    return compiled, time.process_time() - begin


def of_mjx(path: Path, worlds: int, steps: int, *, fastest: bool) -> Contender:
    """Returns MJX with a batch of worlds."""
    model = of_file(path, fastest=fastest)
    mx = mjx.put_model(model)
    compiled, spent = rolled(lambda at: mjx.step(mx, at), mjx.make_data(mx), worlds, steps)
    data, start = mujoco.MjData(model), mjx.make_data(mx)

    def run() -> float:
        end = jax.block_until_ready(compiled(start))
        return float(np.max(np.abs(opening(end))))

    def opening(end: Any) -> np.ndarray:
        data.qpos[:] = np.asarray(end.qpos)
        mujoco.mj_forward(model, data)
        return data.efc_pos[: data.ne]

    name = f"MJX{' fastest' if fastest else ''}, {'one world' if worlds == 1 else f'each of {worlds}'}"
    return Contender(name, run, steps * worlds, spent)


def of_jaxdae(name: str, path: Path, worlds: int, steps: int, stabilization: Any, projection: Any) -> Contender:
    """Returns jaxdae with a batch of worlds."""
    robot = robots.load(path)
    joints = [dataclasses.replace(x, damping=0.0) if hasattr(x, "damping") else x for x in robot.description.joints]
    forces = [one for one in robot.description.forces if not isinstance(one, js.RotationalDamper)]
    description = dataclasses.replace(robot.description, joints=joints, forces=forces)
    mechanism, q = jm.mechanism(description, jm.Joints())
    start = jaxdae.initialize(mechanism, robots.joint_state(mechanism, q, robot.start).q)[0]
    method = jaxdae.Projected(jaxdae.SemiImplicitEuler(solver=jaxdae.SchurComplement(), stabilization=stabilization), projection)
    compiled, spent = rolled(lambda at: method.step(mechanism, at, method.init(mechanism, at), None, DT)[0], start, worlds, steps)

    def run() -> float:
        end = jax.block_until_ready(compiled(start))
        return float(jnp.max(jnp.abs(mechanism.constraint(end.t, end.q))))

    return Contender(f"jaxdae{name}, {'one world' if worlds == 1 else f'each of {worlds}'}", run, steps * worlds, spent)


def with_loops(path: Path, worlds: int, repeats: int) -> list[list[str]]:
    """Returns the table of a robot with loops."""
    once = jaxdae.Projection(jaxdae.PositionProjection(iterations=1, origin=jaxdae.Origin.STAGE), None)
    ways = (("", jaxdae.NoStabilization(), jaxdae.Projection()), (" once", jaxdae.Baumgarte(0.5 / DT, 0.0), once))
    found = [of_mujoco(path, 1000)]
    for count in (1, worlds):
        steps = 200 if count == 1 else 4
        found += [of_mjx(path, count, steps, fastest=fastest) for fastest in (False, True)]
        found += [of_jaxdae(name, path, count, steps, *way) for name, *way in ways]
    for _ in range(repeats):
        for one in found:
            one.measured()
    rows = [["", "us/step", "compile, s"]]
    for one in found:
        spent = "-" if one.compile_s is None else f"{one.compile_s:.1f}"
        rows.append([one.name, f"{min(one.times):.1f}", spent])
    return rows


def humanoid(steps: int = 200) -> list[list[str]]:
    """Returns what the programs of a step and of a gradient cost."""
    mechanism, q = jm.mechanism(robots.load(HUMANOID).description, jm.Joints())
    method = jaxdae.SemiImplicitEuler()
    start = jaxdae.State(jnp.zeros(()), q, jnp.zeros((len(mechanism.names.velocities),)))
    idle = jnp.zeros((mechanism.n_inputs,))

    def height(speed: Any) -> Any:
        at = jaxdae.State(start.t, start.q, speed)
        end = jax.lax.scan(lambda x, _: (method.step(mechanism, x, (), idle, 2e-3)[0], None), at, None, length=steps)[0]
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
    """Runs and prints everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="interleaved repetitions (default: 5)")
    parser.add_argument("--worlds", type=int, default=1024, help="worlds of a batch (default: 1024)")
    parser.add_argument("--quick", action="store_true", help="the humanoid alone")
    parser.add_argument("--only", nargs="+", default=[""], help="titles with these words, such as Cassie (default: all)")
    parser.add_argument("--out", type=Path, help="a Markdown file for the tables")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    jax.config.update("jax_enable_x64", True)
    tasks: list[tuple[str, Callable[[], list[list[str]]]]] = [("Humanoid", humanoid)]
    if not options.quick:
        tasks.append(("Cassie", lambda: with_loops(MODELS / "cassie.xml", options.worlds, options.repeats)))
    lines: list[str] = []
    for title, task in tasks:
        if not any(word in title for word in options.only):
            continue
        lines += [f"## {title}", "", markdown(task()), ""]
        print("\n".join(lines[-4:]), flush=True)
        if options.out is not None:
            options.out.write_text("\n".join(lines))
        jax.clear_caches()


if __name__ == "__main__":
    main()

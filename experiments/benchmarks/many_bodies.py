"""Mechanisms of many bodies compared with MuJoCo (C), MJX, Pinocchio and frax: a part of `make bench`.

jaxdae uses absolute and joint coordinates.

Chains of hinges in the plane and in space, ladders of four-bars in the plane, trees and Bricard's six-bar in
space, and the humanoid G1 where the package example-robot-data is installed; float64, one core, microseconds
a step of semi-implicit Euler at 1 ms, of one world and of each of 64, as many at a time as
`jaxdae.batch_rollout` takes. Where there are loops jaxdae projects positions and velocities in every step.
MuJoCo runs the same bodies by `mj_step` with Euler, its constraints off where there are no loops, and closes
those of the ladders by `connect`, hinges in space by two of them. MJX runs the same up to 30 bodies, with one
iteration of its solver. Where Pinocchio is installed its `aba` and `integrate` are called from Python for
every step of a tree, and where frax is, trees of up to 64 bodies run in a scan of its `forward_dynamics` (pip
install pin frax). All contenders of a size run in turn, and ratios are taken within a repetition.
"""

import argparse
import contextlib
import copy
import io
import os
import tempfile
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
from many_bodies_models import bricard, chain, g1, g1_file, g1_of_mujoco, ladder, links, mjcf, tree, urdf
from side_by_side import Accuracy, Contender, Group, markdown, measure

import jaxdae
import jaxdae.mechanisms as jm

with contextlib.redirect_stdout(io.StringIO()):  # it announces its optional packages
    from mujoco import mjx

try:
    import pinocchio
except ImportError:
    pinocchio: Any = None
try:
    import frax
except ImportError:
    frax: Any = None

DT = 1e-3  # s
WORLDS = 64
CHAINS, LADDERS, QUICK = (8, 64, 256, 1024), (1, 4, 32, 128, 256), 64
FRAX_UP_TO = 64  # its matrices are dense
MJX_UP_TO = 30  # to compile a chain of 64 takes it more than two minutes of the CPU
PINOCCHIO_UP_TO = 256  # to read a chain of 1024 takes it more than 20 GB


def of_mujoco(model: mujoco.MjModel, steps: int) -> Contender:
    """Return MuJoCo with one world."""
    data = mujoco.MjData(model)

    def run() -> None:
        mujoco.mj_resetData(model, data)
        mujoco.mj_step(model, data, nstep=steps)

    run()
    mujoco.mj_fwdPosition(model, data)
    # Rows of `connect` are meters.
    opening = float(np.max(np.abs(data.efc_pos[: data.nefc]), initial=0.0))
    return Contender("MuJoCo C", run, steps, Accuracy(opening, np.nan))


def of_mjx(model: mujoco.MjModel, worlds: int, steps: int) -> Contender:
    """Return MJX with a batch of worlds."""
    model = copy.copy(model)
    model.opt.iterations, model.opt.ls_iterations = 1, 1  # its fastest setting
    mx = mjx.put_model(model)
    data = mjx.make_data(mx)
    start = jax.vmap(lambda q: data.replace(qpos=q))(
        jnp.broadcast_to(jnp.asarray(model.qpos0), (worlds, model.nq))
    )

    def rolled(batch: Any) -> Any:
        return jax.lax.fori_loop(0, steps, lambda _, at: jax.vmap(mjx.step, in_axes=(None, 0))(mx, at), batch)

    begin = time.perf_counter()
    compiled = jax.jit(rolled).lower(start).compile()
    spent = time.perf_counter() - begin
    return Contender(
        f"MJX, each of {worlds}",
        lambda: jax.block_until_ready(compiled(start)),
        steps * worlds,
        Accuracy(np.nan, np.nan),
        spent,
    )


def of_pinocchio(description: str, steps: int) -> Contender:
    """Return Pinocchio with one world of a model in MJCF."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.xml"
        file.write_text(description)
        model = pinocchio.buildModelFromMJCF(str(file))
    data, still = model.createData(), np.zeros(model.nv)
    neutral = pinocchio.neutral(model)

    def run() -> None:
        q, v = neutral, still
        for _ in range(steps):
            v = v + DT * pinocchio.aba(model, data, q, v, still)
            q = pinocchio.integrate(model, q, DT * v)

    return Contender("Pinocchio, from Python", run, steps, Accuracy(np.nan, np.nan))


def of_frax(description: str, worlds: int, steps: int) -> Contender:
    """Return frax with one or more worlds of a tree, a URDF."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.urdf"
        file.write_text(description)
        robot = frax.Robot(str(file))
    still = jnp.zeros(robot.nv)
    start = still if worlds == 1 else jnp.zeros((worlds, robot.nv))

    def rolled(q: Any) -> Any:
        def step(at: Any, _: Any) -> Any:
            q, v = at
            v = v + DT * robot.forward_dynamics(q, v, still, None)
            return (robot.integrate(q, v, DT), v), None

        return jax.lax.scan(step, (q, still), None, length=steps)[0][0]

    begin = time.perf_counter()
    compiled = jax.jit(jax.vmap(rolled) if worlds > 1 else rolled).lower(start).compile()
    spent = time.perf_counter() - begin
    label = f"frax, {'one world' if worlds == 1 else f'each of {worlds}'}"
    return Contender(
        label, lambda: jax.block_until_ready(compiled(start)), steps * worlds, Accuracy(np.nan, np.nan), spent
    )


def of_jaxdae(
    name: str,
    description: jm.Description,
    coordinates: Any,
    worlds: int,
    steps: int,
    *,
    project: bool,
    solver: Any = jaxdae.SchurComplement(),
    projection: Any = jaxdae.Projection(),
    stabilization: Any = jaxdae.NoStabilization(),
    guarded: bool = False,
) -> Contender:
    """Return jaxdae with worlds in a bare scan, or `guarded`, with one world in `rollout`."""
    mechanism, q = jm.mechanism(description, coordinates)
    method: Any = jaxdae.SemiImplicitEuler(solver=solver, stabilization=stabilization)
    method = jaxdae.Projected(method, projection) if project else method
    rest = jaxdae.State(jnp.zeros(()), q, jnp.zeros((len(mechanism.names.velocities),)))
    at = rest if worlds == 1 else jax.tree.map(lambda x: jnp.broadcast_to(x, (worlds, *x.shape)), rest)

    def rolled(start: jaxdae.State) -> jaxdae.State:
        if guarded:
            end = jaxdae.rollout(mechanism, method, start, dt=DT, steps=steps, save_every=steps).state
            return jax.tree.map(lambda x: x[-1], end)
        return jax.lax.scan(
            lambda state, _: (method.step(mechanism, state, (), None, DT)[0], None), start, None, length=steps
        )[0]

    def batch(starts: jaxdae.State) -> jaxdae.State:
        chunk = jaxdae.Layout().placement(worlds, rest.v.size, rest.v.dtype).chunk
        return jax.lax.map(rolled, starts, batch_size=chunk) if chunk < worlds else jax.vmap(rolled)(starts)

    begin = time.perf_counter()
    compiled = jax.jit(batch if worlds > 1 else rolled).lower(at).compile()
    spent = time.perf_counter() - begin
    end = compiled(at)
    one = end if worlds == 1 else jax.tree.map(lambda x: x[0], end)
    opening = float(jnp.max(jnp.abs(mechanism.constraint(one.t, one.q)), initial=0.0))
    if not np.all(np.isfinite(end.q)):
        raise SystemExit(f"{name}: not finite")
    label = f"jaxdae {name}, {'one world' if worlds == 1 else f'each of {worlds}'}"
    return Contender(
        label, lambda: jax.block_until_ready(compiled(at)), steps * worlds, Accuracy(opening, np.nan), spent
    )


def group(
    title: str, space: Any, shape: Callable[[int], Any], size: int, options: argparse.Namespace
) -> Group:
    """Return all contenders of a size."""
    places, joints = shape(size)
    description, redundant = links(space, places, joints), shape is bricard
    loops = redundant or shape is ladder
    steps = max(20, 6400 // (size + 7))
    model = mjcf(places, joints, DT, hinged=redundant)
    found = []
    with contextlib.suppress(ValueError):  # Elements of very long chains are nested too deep for its parser.
        found.append(of_mujoco(mujoco.MjModel.from_xml_string(model), steps))
    if pinocchio is not None and not loops and size <= PINOCCHIO_UP_TO:
        found.append(of_pinocchio(model, max(10, steps // 4)))
    batched_steps = max(
        10, 8 * steps // WORLDS
    )  # A call costs some 0.1 ms: 12 steps of 64 four-bars, 0.5 ms, took a fifth longer by it.
    batches = (1, WORLDS) if size <= options.batches_up_to and not redundant else (1,)
    if size <= MJX_UP_TO:
        found.append(of_mjx(mujoco.MjModel.from_xml_string(model), WORLDS, max(10, batched_steps // 8)))
    if frax is not None and not loops and size <= FRAX_UP_TO:
        # A batch of its chains of 64 takes more than 20 GB.
        several = batches if size < FRAX_UP_TO else (1,)
        found += [
            of_frax(urdf(places, joints), worlds, steps if worlds == 1 else batched_steps)
            for worlds in several
        ]
    solver = (
        jaxdae.NullSpace(jaxdae.operators.SingularValues(1e-5)) if redundant else jaxdae.SchurComplement()
    )
    for name, coordinates in (("joints", jm.Joints()), ("absolute", jm.Absolute())):
        for worlds in batches:
            project = loops or name == "absolute"
            count = steps if worlds == 1 else batched_steps
            found.append(
                of_jaxdae(name, description, coordinates, worlds, count, project=project, solver=solver)
            )
        if redundant:
            # Loops that are a million times as closed as MuJoCo's, with what a step has factorized anyway: J
            # (v + h a) = -h gamma in place of a projection of velocities, and one or two corrections of
            # positions.
            feedback = jaxdae.Baumgarte(0.5 / DT, 0.0)
            ways = [("", jaxdae.Proximal(), jaxdae.Projection(), jaxdae.NoStabilization())]
            for label, count in ((" once", 1), (" twice", 2)):
                corrected = jaxdae.PositionProjection(iterations=count, origin=jaxdae.Origin.STAGE)
                ways.append(
                    (label, jaxdae.Proximal(iterations=1), jaxdae.Projection(corrected, None), feedback)
                )
            for label, proximal, projection, stabilization in ways:
                options_of = {"solver": proximal, "projection": projection, "stabilization": stabilization}
                found.append(
                    of_jaxdae(
                        f"{name}, Proximal{label}",
                        description,
                        coordinates,
                        1,
                        steps,
                        project=True,
                        **options_of,
                    )
                )
                if label == " twice" and name == "joints":
                    label = f"{name}, Proximal{label}, rollout"
                    found.append(
                        of_jaxdae(
                            label,
                            description,
                            coordinates,
                            1,
                            steps,
                            project=True,
                            guarded=True,
                            **options_of,
                        )
                    )
    return Group(title, found, [one.name for one in found[:1] if one.name == "MuJoCo C"])


def humanoid(file: Any) -> Group:
    """Return all contenders of G1, a free base and 29 hinges."""
    description, model = g1(file), g1_of_mujoco(file, DT)
    found = [of_mujoco(model, 200), of_mjx(model, WORLDS, 10)]
    found += [
        of_jaxdae("joints", description, jm.Joints(), worlds, 200 // worlds + 10, project=False)
        for worlds in (1, WORLDS)
    ]
    return Group("G1, 35 velocities", found, ["MuJoCo C"])


def main() -> None:
    """Run and print everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, help="interleaved repetitions (default: 5)")
    parser.add_argument("--quick", action="store_true", help=f"sizes up to {QUICK} only")
    parser.add_argument(
        "--batches-up-to",
        type=int,
        default=256,
        help="the largest size that is run in batches (default: 256)",
    )
    parser.add_argument(
        "--only", nargs="+", default=[""], help="titles with these words, such as Bricard G1 (default: all)"
    )
    parser.add_argument("--out", type=Path, help="a Markdown file for the tables")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    jax.config.update("jax_enable_x64", True)
    tasks = [("Chain of {} in the plane", jm.PLANE, chain, size) for size in CHAINS]
    tasks += [("Chain of {} in space", jm.SPACE, chain, size) for size in CHAINS]
    tasks += [("Ladder of {} four-bars", jm.PLANE, ladder, size) for size in LADDERS]
    tasks += [("Tree of {} in space", jm.SPACE, tree, size) for size in (30, 64, 256)]
    tasks = [("Bricard's six-bar", jm.SPACE, bricard, 5), *tasks]
    file, lines = g1_file(), []
    if file is None:
        print("G1 is left out: pip install --no-deps example-robot-data==6.0.0", flush=True)
    makers = [
        (
            title.format(size),
            size,
            lambda *task: group(*task, options),
            (title.format(size), space, shape, size),
        )
        for title, space, shape, size in tasks
    ]
    makers += [] if file is None else [("G1", 35, humanoid, (file,))]
    for title, size, maker, task in makers:
        if (options.quick and size > QUICK) or not any(word in title for word in options.only):
            continue
        made = maker(*task)
        measure(made, options.repeats)
        rows = [["", "us/step min", "median", "time / MuJoCo C", "loop opening, m", "compile, s"]]
        for one in made.contenders:
            opening = f"{one.accuracy.opening:.0e}" if one.accuracy.opening > 0.0 else "-"
            ratio = f"{one.ratio(made['MuJoCo C']):.2f}" if made.baselines else "-"
            rows.append([one.name, f"{one.best:.1f}", f"{one.median:.1f}", ratio, opening])
            rows[-1].append("-" if one.compile_s is None else f"{one.compile_s:.1f}")
        lines += [f"## {made.title}", "", markdown(rows), ""]
        print("\n".join(lines[-4:]), flush=True)
        if options.out is not None:
            options.out.write_text("\n".join(lines))
        jax.clear_caches()


if __name__ == "__main__":
    main()

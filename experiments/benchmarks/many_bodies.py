"""Mechanisms of many bodies, by absolute and by joint coordinates, beside MuJoCo (C): a part of `make bench`.

Chains of hinges in the plane and in space, ladders of four-bars in the plane, and a tree of 30 bodies in space; float64, one core,
microseconds a step of semi-implicit Euler at 1 ms, of one world and of each of 64. Where there are loops jaxdae projects positions and
velocities in every step. MuJoCo runs the same bodies by `mj_step` with Euler, its constraints off where there are no loops, and closes
those of the ladders by `connect`. All contenders of a size run in turn, and ratios are taken within a repetition.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from side_by_side import Accuracy, Contender, Group, markdown, measure

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae.mechanisms import spatial as js

DT = 1e-3  # s
WORLDS = 64
INERTIA = (0.02, 0.1, 0.1)  # kg m^2, of every body of 1 kg
CHAINS, LADDERS, QUICK = (8, 64, 256, 1024), (4, 32, 128, 256), 64


def links(space: Any, places: dict[str, Any], joints: list[tuple[str, str, Any, Any]]) -> jm.Description:
    """Returns bodies of 1 kg with hinges (body, body, axis, place)."""
    if space is jm.PLANE:
        bodies = [jm.Body(name, 1.0, INERTIA[2], (*place[:2], 0.0)) for name, place in places.items()]
        hinges = [jm.Revolute(f"j{k}", a, b, at=at[:2]) for k, (a, b, _, at) in enumerate(joints)]
        return jm.Description(bodies=bodies, joints=hinges)
    bodies = [js.Body(name, 1.0, INERTIA, place=place) for name, place in places.items()]
    hinges = [js.Revolute(f"j{k}", a, b, axis=axis, at=at) for k, (a, b, axis, at) in enumerate(joints)]
    return jm.Description(space=jm.SPACE, bodies=bodies, joints=hinges, gravity=(0.0, -9.81, 0.0))


def chain(size: int) -> tuple[dict[str, Any], list[tuple[str, str, Any, Any]]]:
    """Returns a horizontal chain of links of 1 m."""
    places = {f"b{k}": (k + 0.5, 0.0, 0.0) for k in range(size)}
    return places, [("ground" if k == 0 else f"b{k - 1}", f"b{k}", (0.0, 0.0, 1.0), (float(k), 0.0, 0.0)) for k in range(size)]


def tree(size: int) -> tuple[dict[str, Any], list[tuple[str, str, Any, Any]]]:
    """Returns five limbs on one body, with hinges in all directions."""
    rng = np.random.default_rng(0)
    places, joints = {"b0": (0.5, 0.0, 0.0)}, [("ground", "b0", (0.0, 0.0, 1.0), (0.0, 0.0, 0.0))]
    for k in range(1, size):
        parent = "b0" if k <= 5 else f"b{k - 5}"
        axis = rng.normal(size=3)
        at = np.asarray(places[parent]) + rng.normal(size=3) * 0.2
        places[f"b{k}"] = tuple(at + rng.normal(size=3) * 0.2)
        joints.append((parent, f"b{k}", tuple(axis / np.linalg.norm(axis)), tuple(at)))
    return places, joints


def ladder(size: int) -> tuple[dict[str, Any], list[tuple[str, str, Any, Any]]]:
    """Returns four-bars, each on the coupler of the one below."""
    places, joints, axis = {}, [], (0.0, 0.0, 1.0)
    for k in range(size):
        base, left = ("ground", 0.0) if k == 0 else (f"c{k - 1}", 0.1)
        places |= {f"a{k}": (0.05, k + 0.5, 0.0), f"c{k}": (0.6, k + 1.0, 0.0), f"b{k}": (1.05, k + 0.5, 0.0)}
        joints += [
            (base, f"a{k}", axis, (left, k, 0.0)),
            (f"a{k}", f"c{k}", axis, (0.1, k + 1.0, 0.0)),
            (f"c{k}", f"b{k}", axis, (1.1, k + 1.0, 0.0)),
            (f"b{k}", base, axis, (1.0 + left, k, 0.0)),
        ]
    return places, joints


def mjcf(places: dict[str, Any], joints: list[tuple[str, str, Any, Any]]) -> str:
    """Returns the same bodies as a tree of MuJoCo, all with axes of the world at the start, and `connect` for what closes loops."""
    at = {"ground": np.zeros(3), **{name: np.asarray(place) for name, place in places.items()}}
    children: dict[str, list[tuple[str, Any, Any]]] = {name: [] for name in at}
    loops, hung = [], set()
    for a, b, axis, place in joints:
        if b in hung or b == "ground" or (a not in hung and a != "ground"):
            loops.append((a, b, place))
        else:
            children[a].append((b, axis, place))
            hung.add(b)

    def text(values: Any) -> str:
        return " ".join(repr(float(x)) for x in values)

    lines: list[str] = []
    stack: list[Any] = [(child, "ground") for child in reversed(children["ground"])]
    while stack:
        item = stack.pop()
        if item == "end":
            lines.append("</body>")
            continue
        (name, axis, place), parent = item
        lines.append(f'<body name="{name}" pos="{text(at[name] - at[parent])}"><joint axis="{text(axis)}" pos="{text(place - at[name])}"/>')
        lines.append(f'<inertial pos="0 0 0" mass="1" diaginertia="{text(INERTIA)}"/>')
        stack += ["end", *((child, name) for child in reversed(children[name]))]
    closed = "".join(
        f'<connect body1="{b if b != "ground" else a}" {f"""body2="{a}" """ if "ground" not in (a, b) else ""}'
        f'anchor="{text(np.asarray(place) - at[b if b != "ground" else a])}"/>'
        for a, b, place in loops
    )
    flags = "" if loops else '<flag constraint="disable"/>'
    return (
        f'<mujoco><size memory="200M"/><option timestep="{DT}" gravity="0 -9.81 0" integrator="Euler">{flags}</option>'
        f"<worldbody>{''.join(lines)}</worldbody><equality>{closed}</equality></mujoco>"
    )


def of_mujoco(xml: str, steps: int) -> Contender:
    """Returns MuJoCo with one world."""
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)

    def run() -> None:
        mujoco.mj_resetData(model, data)
        for _ in range(steps):
            mujoco.mj_step(model, data)

    return Contender("MuJoCo C", run, steps, Accuracy(np.nan, np.nan))


def of_jaxdae(name: str, description: jm.Description, coordinates: Any, worlds: int, steps: int, *, project: bool) -> Contender:
    """Returns jaxdae with one or more worlds."""
    mechanism, q = jm.mechanism(description, coordinates)
    method: Any = jaxdae.SemiImplicitEuler()
    method = jaxdae.Projected(method) if project else method
    rest = jaxdae.State(jnp.zeros(()), q, jnp.zeros((len(mechanism.names.velocities),)))
    at = rest if worlds == 1 else jax.tree.map(lambda x: jnp.broadcast_to(x, (worlds, *x.shape)), rest)

    def rolled(start: jaxdae.State) -> jaxdae.State:
        return jax.lax.scan(lambda state, _: (method.step(mechanism, state, (), None, DT)[0], None), start, None, length=steps)[0]

    begin = time.perf_counter()
    compiled = jax.jit(jax.vmap(rolled) if worlds > 1 else rolled).lower(at).compile()
    spent = time.perf_counter() - begin
    end = compiled(at)
    one = end if worlds == 1 else jax.tree.map(lambda x: x[0], end)
    opening = float(jnp.max(jnp.abs(mechanism.constraint(one.t, one.q)), initial=0.0))
    if not np.all(np.isfinite(end.q)):
        raise SystemExit(f"{name}: not finite")
    label = f"jaxdae {name}, {'one world' if worlds == 1 else f'each of {worlds}'}"
    return Contender(label, lambda: jax.block_until_ready(compiled(at)), steps * worlds, Accuracy(opening, np.nan), spent)


def group(title: str, space: Any, shape: Callable[[int], Any], size: int, options: argparse.Namespace) -> Group:
    """Returns all contenders of a size."""
    places, joints = shape(size)
    description, loops = links(space, places, joints), shape is ladder
    steps = max(20, 6400 // size)
    found = [of_mujoco(mjcf(places, joints), steps)]
    for name, coordinates in (("joints", jm.Joints()), ("absolute", jm.Absolute())):
        if name == "joints" and loops and size > 32:
            continue  # J of the loops is a matrix there, of cubic cost.
        for worlds in (1, WORLDS) if size <= options.batches_up_to else (1,):
            project = loops or name == "absolute"
            found.append(of_jaxdae(name, description, coordinates, worlds, max(10, steps // worlds), project=project))
    return Group(title, found, ["MuJoCo C"])


def main() -> None:
    """Runs and prints everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="interleaved repetitions (default: 5)")
    parser.add_argument("--quick", action="store_true", help=f"sizes up to {QUICK} only")
    parser.add_argument("--batches-up-to", type=int, default=256, help="the largest size that is run in batches (default: 256)")
    parser.add_argument("--out", type=Path, help="a Markdown file for the tables")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    jax.config.update("jax_enable_x64", True)
    tasks = [("Chain of {} in the plane", jm.PLANE, chain, size) for size in CHAINS]
    tasks += [("Chain of {} in space", jm.SPACE, chain, size) for size in CHAINS]
    tasks += [("Ladder of {} four-bars", jm.PLANE, ladder, size) for size in LADDERS]
    tasks += [("Tree of {} in space", jm.SPACE, tree, size) for size in (30, 64, 256)]
    lines = []
    for title, space, shape, size in tasks:
        if options.quick and size > QUICK:
            continue
        made = group(title.format(size), space, shape, size, options)
        measure(made, options.repeats)
        rows = [["", "us/step min", "median", "time / MuJoCo C", "loop opening, m", "compile, s"]]
        for one in made.contenders:
            known = one.compile_s is not None
            opening = f"{one.accuracy.opening:.0e}" if known and one.accuracy.opening > 0.0 else "-"
            rows.append([one.name, f"{one.best:.1f}", f"{one.median:.1f}", f"{one.ratio(made['MuJoCo C']):.2f}", opening])
            rows[-1].append(f"{one.compile_s:.1f}" if known else "-")
        lines += [f"## {made.title}", "", markdown(rows), ""]
        print("\n".join(lines[-4:]), flush=True)
        jax.clear_caches()
    if options.out is not None:
        options.out.write_text("\n".join(lines))


if __name__ == "__main__":
    main()

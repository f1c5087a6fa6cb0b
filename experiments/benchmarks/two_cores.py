"""What a second core gives a batch: one thread against as many as there are cores, in turn, in one process.

    python experiments/benchmarks/two_cores.py [--models G1 Cassie] [--repeats 9] [--out FILE.md]

As `jaxdae run` does on a CPU: of several threads each runs the program of its share of the worlds. One thread has two ways: the program of
all worlds, which is `--devices 1`, or that of a share, share after share, whose arrays are smaller. The gain is over the faster of both.
Every repetition times all three, one after the other, and the gain is the median of the quotients within a repetition. The columns of
cores tell how many were at work on the average: more than 1 with one thread means that the compiler itself shares operations; less than
there are threads, that others had the cores. Ends must agree to the last bit. Run it on a machine that does nothing else, on Linux as
`chrt --rr 1 python ...`; the load is printed.
"""

import argparse
import concurrent.futures
import os
import statistics
import time
from pathlib import Path
from typing import Any

from side_by_side import markdown

from jaxdae.app.flags import for_small_programs

for_small_programs()

import jax  # noqa: E402  # the flags come first
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from accelerator_models import MODELS, Missing, Model  # noqa: E402

import jaxdae  # noqa: E402

STEPS = {"four-bar": 4000, "Andrews": 400, "G1": 400, "Cassie": 100}


def program(model: Model, worlds: int, steps: int) -> Any:
    """Returns what simulates so many worlds, compiled; it takes their start velocities (world, nv)."""

    def run(system: Any, method: Any, v: Any, dt: Any) -> Any:
        start = jax.tree.map(lambda x: jnp.broadcast_to(x, (worlds, *jnp.shape(x))), model.start)
        ends = jaxdae.batch_rollout(system, method, jaxdae.State(start.t, start.q, v), dt=dt, steps=steps, save_every=steps)
        return ends.state.q, ends.info.status

    dt = jnp.asarray(model.dt, model.start.q.dtype)
    given = jnp.zeros((worlds, *model.start.v.shape), model.start.v.dtype)
    compiled = jax.jit(run).lower(model.system, model.method, given, dt).compile()
    return lambda v: jax.block_until_ready(compiled(model.system, model.method, v, dt))


def timed(run: Any) -> tuple[float, float, Any]:
    """Returns the wall time and the CPU time of a run in s, and what it returned."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = run()
    return time.perf_counter() - wall, time.process_time() - cpu, found


def compare(name: str, worlds: int, threads: int, repeats: int) -> list[str]:
    """Returns the row of a model."""
    model, steps = MODELS[name](), STEPS[name]
    each = worlds // threads
    alone, share = program(model, threads * each, steps), program(model, each, steps)
    v = jnp.broadcast_to(model.start.v, (threads * each, *model.start.v.shape))
    parts = [v[k * each : (k + 1) * each] for k in range(threads)]
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:

        def one() -> Any:
            return alone(v)

        def in_turn() -> Any:
            return [share(part) for part in parts]

        def several() -> Any:
            return list(pool.map(share, parts))

        whole, pieces = one(), several()
        if not all(np.array_equal(x, np.concatenate(y)) for x, y in zip(whole, zip(*pieces, strict=True), strict=True)):
            raise SystemExit(f"{name}: threads change the results")
        if np.any(np.asarray(whole[1]) != jaxdae.Status.OK):
            raise SystemExit(f"{name}: {jaxdae.Status(int(np.max(whole[1]))).name}")
        rounds = [[timed(way) for way in (one, in_turn, several)] for _ in range(repeats)]
    gain = statistics.median(min(at_once[0], after[0]) / side_by_side[0] for at_once, after, side_by_side in rounds)
    cells = [name, str(threads * each), str(steps)]
    for ways in zip(*rounds, strict=True):
        us = 1e6 * min(wall for wall, _, _ in ways) / (threads * each * steps)
        cells += [f"{us:.3f}", f"{statistics.median(cpu / wall for wall, cpu, _ in ways):.2f}"]
    return [*cells, f"{gain:.2f}"]


def main() -> None:
    """Runs and prints everything."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), help="default: all")
    parser.add_argument("--worlds", type=int, default=256, help="worlds of a batch (default: 256)")
    parser.add_argument("--threads", type=int, default=cores, help="default: as many as there are cores")
    parser.add_argument("--repeats", type=int, default=9, help="repetitions in turn (default: 9)")
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    several = f"{options.threads} threads"
    ways = ("one thread, all at once, us/step", "one thread, in shares, us/step", f"{several}, us/step")
    rows = [["", "worlds", "steps", *(cell for way in ways for cell in (way, "cores")), "gain"]]
    for name in options.models:
        load = os.getloadavg()[0]
        try:
            rows.append(compare(name, options.worlds, options.threads, options.repeats))
        except Missing as error:
            print(f"{name}: left out, {error}", flush=True)
            continue
        print(f"{name}: gain {rows[-1][-1]} (load {load:.1f} before)", flush=True)
        if options.out is not None:
            options.out.write_text(markdown(rows) + "\n")
        jax.clear_caches()
    print(markdown(rows))


if __name__ == "__main__":
    main()

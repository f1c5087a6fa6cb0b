"""What more cores give a batch, over one: the ways to run it, in turn, in one process.

    chrt --rr 1 python experiments/benchmarks/two_cores.py [--models G1 Cassie] [--repeats 9] [--out FILE.md]

- One core, to which all threads of the process are confined: the program of all worlds, or that of a share,
  share after share, whose arrays are smaller.
- One program on all cores, as the compiler shares its operations among them: `jaxdae run --devices 1`, and
  `batch_rollout` in a script.
- A thread for each core, each with the program of its share: `jaxdae run`.

Every repetition times all of them, one after the other. The gain is that of threads over the faster way of
one core, the median of the quotients within a repetition; the columns of cores tell how many were at work on
the average. Ends must agree to the last bit. Run it on a machine that does nothing else (`chrt`, for those
who may, keeps others off); the load is printed. Linux alone can confine threads.
"""

import argparse
import concurrent.futures
import contextlib
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from side_by_side import markdown

from jaxdae.app.xla_flags import for_small_programs

for_small_programs()

import jax  # noqa: E402  # the flags come first
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from batch_models import MODELS, Missing, Model  # noqa: E402

import jaxdae  # noqa: E402

STEPS = {"four-bar": 4000, "Andrews": 400, "G1": 400, "Cassie": 100}


def program(model: Model, worlds: int, steps: int) -> Any:
    """Return what simulates so many worlds, compiled; it takes their start velocities (world, nv)."""

    def run(system: Any, method: Any, v: Any, dt: Any) -> Any:
        start = jax.tree.map(lambda x: jnp.broadcast_to(x, (worlds, *jnp.shape(x))), model.start)
        ends = jaxdae.batch_rollout(
            system, method, jaxdae.State(start.t, start.q, v), dt=dt, steps=steps, save_every=steps
        )
        return ends.state.q, ends.info.status

    dt = jnp.asarray(model.dt, model.start.q.dtype)
    given = jnp.zeros((worlds, *model.start.v.shape), model.start.v.dtype)
    compiled = jax.jit(run).lower(model.system, model.method, given, dt).compile()
    return lambda v: jax.block_until_ready(compiled(model.system, model.method, v, dt))


def timed(run: Any) -> tuple[float, float]:
    """Return the wall time and the CPU time of a run in s."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


@contextlib.contextmanager
def confined() -> Iterator[None]:
    """Confine all threads of the process to one core."""
    cores = os.sched_getaffinity(0)
    _allow({min(cores)})
    try:
        yield
    finally:
        _allow(cores)


def _allow(cores: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # It has just ended.
            os.sched_setaffinity(int(thread), cores)


def compare(name: str, worlds: int, threads: int, repeats: int) -> list[str]:
    """Return the row of a model."""
    model, steps = MODELS[name](), STEPS[name]
    each = worlds // threads
    together, share = program(model, threads * each, steps), program(model, each, steps)
    v = jnp.broadcast_to(model.start.v, (threads * each, *model.start.v.shape))
    parts = [v[k * each : (k + 1) * each] for k in range(threads)]
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:

        def at_once() -> Any:
            return together(v)

        def in_turn() -> Any:
            return [share(part) for part in parts]

        def side_by_side() -> Any:
            return list(pool.map(share, parts))

        whole, pieces = at_once(), side_by_side()
        if not all(
            np.array_equal(x, np.concatenate(y))
            for x, y in zip(whole, zip(*pieces, strict=True), strict=True)
        ):
            raise SystemExit(f"{name}: threads change the results")
        if np.any(np.asarray(whole[1]) != jaxdae.Status.OK):
            raise SystemExit(f"{name}: {jaxdae.Status(int(np.max(whole[1]))).name}")
        rounds = []
        for _ in range(repeats):
            with confined():
                alone = [timed(way) for way in (at_once, in_turn)]
            rounds.append([*alone, timed(at_once), timed(side_by_side)])
    gain = statistics.median(
        min(at_once, in_turn) / threads for (at_once, _), (in_turn, _), _, (threads, _) in rounds
    )
    us = [1e6 * min(wall for wall, _ in way) / (threads * each * steps) for way in zip(*rounds, strict=True)]
    busy = [statistics.median(cpu / wall for wall, cpu in way) for way in zip(*rounds, strict=True)]
    shared = [
        cell for time, cores in zip(us[2:], busy[2:], strict=True) for cell in (f"{time:.3f}", f"{cores:.2f}")
    ]
    return [
        name,
        str(threads * each),
        str(steps),
        *(f"{time:.3f}" for time in us[:2]),
        *shared,
        f"{gain:.2f}",
    ]


def main() -> None:
    """Run and print everything."""
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=list(STEPS), default=list(STEPS), help="default: all")
    parser.add_argument("--worlds", type=int, default=256, help="worlds of a batch (default: 256)")
    parser.add_argument("--threads", type=int, default=cores, help="default: as many as there are cores")
    parser.add_argument("--repeats", type=int, default=9, help="repetitions in turn (default: 9)")
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    head = [
        "",
        "worlds",
        "steps",
        "one core, us/step",
        "in shares",
        "one program",
        "cores",
        f"{options.threads} threads",
        "cores",
        "gain",
    ]
    rows = [head]
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

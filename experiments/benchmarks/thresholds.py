"""Measure the thresholds of `jaxdae/compile/thresholds.py` again, and report those that no longer pay.

    python experiments/benchmarks/thresholds.py [--only DENSE_UP_TO ...] [--repeats 7]

Each row moves one threshold out of the way and compares the step with the step as it is, on one core, in
double precision. Both programs run in processes of their own, one after the other in turns. The columns:

- replaced by: the value of the threshold in the second program;
- time: the time of the second program relative to the first one, best of the repetitions;
- compile: its tracing and compile time relative to the first one.

`ENTRIES_UP_TO` needs a GPU. `TERMS_UP_TO` and `BLOCK` bound compile times, too.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from side_by_side import markdown

ROOT = Path(__file__).resolve().parents[2]
NEVER, ALWAYS = 0, 10**9
PAYS = 1.15
STEPS = 50

# Of each threshold: the value in its place, and the cases, each with the number of worlds.
CASES: dict[str, tuple[int, list[tuple[str, int]]]] = {
    "DENSE_UP_TO": (NEVER, [("tree of 30", 1), ("chain of 64", 1)]),
    "ARTICULATED_FROM": (ALWAYS, [("chain of 12", 64), ("tree of 30", 64)]),
    "ELIMINATED_FROM": (ALWAYS, [("ladder of 16", 64), ("ladder of 16", 1)]),
    "DENSE_ROWS_UP_TO": (NEVER, [("ladder of 4, absolute", 1)]),
    "UNROLLED_UP_TO": (NEVER, [("four-bar", 64), ("chain of 4, absolute", 64)]),
    "BLOCK": (ALWAYS, [("chain of 4, absolute", 64)]),
    "CORRECTIONS_UNROLLED": (NEVER, [("four-bar", 64), ("four-bar", 1)]),
}


def model(name: str) -> Any:
    """Return a system, a method, a start and a step, for a name such as "chain of 4, absolute"."""
    import batch_models
    import jax.numpy as jnp
    import many_bodies_models as shapes

    import jaxdae
    import jaxdae.mechanisms as jm

    if name in batch_models.MODELS:
        return batch_models.MODELS[name]()
    shape, size = name.removesuffix(", absolute").split(" of ")
    description = shapes.links(
        jm.PLANE if shape == "ladder" else jm.SPACE, *getattr(shapes, shape)(int(size))
    )
    mechanism, q = jm.mechanism(description, jm.Absolute() if name.endswith("absolute") else jm.Joints())
    method: Any = jaxdae.SemiImplicitEuler(solver=jaxdae.SchurComplement())
    if mechanism.sizes(q).nc:
        method = jaxdae.Projected(method, jaxdae.Projection())
    rest = jaxdae.State(jnp.zeros(()), q, jnp.zeros((len(mechanism.names.velocities),)))
    return batch_models.Model(mechanism, method, rest, 1e-3)


def program(name: str, worlds: int) -> tuple[Callable[[], Any], float]:
    """Return the compiled rollout of a model, and the CPU seconds of tracing and compiling."""
    import jax
    import jax.numpy as jnp

    import jaxdae

    jax.config.update("jax_enable_x64", True)
    made = model(name)
    plan = {"dt": made.dt, "steps": STEPS, "save_every": STEPS}
    start = (
        made.start
        if worlds == 1
        else jax.tree.map(lambda x: jnp.broadcast_to(x, (worlds, *x.shape)), made.start)
    )
    rollout = jaxdae.rollout if worlds == 1 else jaxdae.batch_rollout
    begin = time.process_time()
    compiled = jax.jit(lambda start: rollout(made.system, made.method, start, **plan)).lower(start).compile()
    return lambda: jax.block_until_ready(compiled(start)), time.process_time() - begin


def work(threshold: str, value: int | None, name: str, worlds: int) -> None:
    """Compile a program with a threshold moved, and run it once per line of the standard input."""
    spec = importlib.util.spec_from_file_location(
        "jaxdae.compile.thresholds", ROOT / "jaxdae" / "compile" / "thresholds.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if value is not None:
        setattr(module, threshold, value)
    sys.modules["jaxdae.compile.thresholds"] = module  # Before the package reads it.
    run, seconds = program(name, worlds)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    run()
    print(json.dumps(seconds), flush=True)
    for _ in sys.stdin:
        begin = time.process_time()
        run()
        print(json.dumps(time.process_time() - begin), flush=True)


def compare(threshold: str, value: int, name: str, worlds: int, repeats: int) -> tuple[float, float]:
    """Return the relative times of running and of compiling with a threshold moved."""
    command = [sys.executable, __file__, "--work", threshold, name, str(worlds)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([*command, *more], **pipes) for more in ([], [str(value)])]

    def answer(process: subprocess.Popen[str], line: str = "") -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line)
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    compiled = [answer(process) for process in processes]
    times = [[answer(process, "\n") for process in processes] for _ in range(repeats)]
    for process in processes:
        process.communicate()
    best = [min(each) for each in zip(*times, strict=True)]
    return best[1] / best[0], compiled[1] / compiled[0]


def main() -> None:
    """Print the table, and the thresholds that pay nowhere."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--work", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        threshold, name, worlds, *value = options.work
        work(threshold, int(value[0]) if value else None, name, int(worlds))
        return
    rows, idle = [], []
    for threshold in options.only:
        value, cases = CASES[threshold]
        found = [compare(threshold, value, *case, options.repeats) for case in cases]
        for (name, worlds), (ran, compiled) in zip(cases, found, strict=True):
            rows.append(
                [
                    threshold,
                    "never" if value == NEVER else "always",
                    name,
                    str(worlds),
                    f"{ran:.2f}",
                    f"{compiled:.2f}",
                ]
            )
        if all(ran < PAYS for ran, _ in found):
            idle.append(threshold)
    print(markdown([["threshold", "replaced by", "model", "worlds", "time", "compile"], *rows]))
    print(f"\nLess than {PAYS:.2f} everywhere: {', '.join(idle) or 'none'}")


if __name__ == "__main__":
    main()

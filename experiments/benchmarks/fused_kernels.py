"""Compare fused kernels with batches by XLA: speed on one core and on all cores, agreement and compile time.

    python experiments/benchmarks/fused_kernels.py [--models four-bar Andrews] [--worlds 1024] [--out
    FUSED_KERNELS.md]

Each case runs in a process of its own. Both programs run in that process, interleaved, and the table shows
the best of the repetitions. Only Linux can confine threads to a core. The batches start at 64 different
states of one trajectory. The columns:

- operations: scalar operations in the code of the kernel, in and before the loop over time;
- kernel, XLA: world-steps per second on one core;
- ratio: median of the ratios within a repetition;
- all cores: speed of the kernel on all cores of the process, relative to one core;
- difference: largest difference of the final coordinates (gradients: relative, in the Euclidean norm);
- compile, s: CPU seconds of tracing, lowering and the C++ compiler; XLA's CPU seconds.

A gradient is the derivative of the summed final coordinates with respect to all start velocities.
"""

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from side_by_side import markdown

HEAD = [
    "model",
    "dtype",
    "worlds",
    "operations",
    "kernel, 1/s",
    "XLA, 1/s",
    "ratio",
    "all cores",
    "difference",
]
HEAD += ["compile, s", "XLA, s"]
MODELS = ["four-bar", "four-bar in joint coordinates", "Andrews", "G1", "Cassie"]
GRADIENTS = ["four-bar", "Andrews"]
STEPS, STATES = 97, 64


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its compilers."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def confine(cores: list[int]) -> None:
    """Confine all threads of the process to these cores."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # The thread has ended.
            os.sched_setaffinity(int(thread), cores)


def measure(name: str, dtype: str, worlds: int, gradient: bool, repeats: int) -> list[str] | str:
    """Return a row of the table, or the reason why the model is missing."""
    from jaxdae.app.xla_flags import for_small_programs

    for_small_programs()
    import jax
    import jax.numpy as jnp
    import numpy as np

    jax.config.update("jax_enable_x64", dtype == "float64")
    from batch_models import MODELS as BUILDERS
    from batch_models import Missing

    import jaxdae

    try:
        model = BUILDERS[name]()
    except Missing as reason:
        return str(reason)
    every = jaxdae.rollout(
        model.system, model.method, model.start, dt=model.dt, steps=4 * STATES, save_every=4
    )
    jaxdae.raise_if_failed(every.info)
    chosen = np.arange(worlds) % STATES
    start = jaxdae.State(
        jnp.zeros((worlds,), every.state.q.dtype), every.state.q[chosen], every.state.v[chosen]
    )

    def forward(state: Any, layout: Any) -> Any:
        return jaxdae.batch_rollout(
            model.system, model.method, state, dt=model.dt, steps=STEPS, save_every=STEPS, layout=layout
        )

    def program(layout: Any) -> Callable[[Any], Any]:
        def ends(state: Any) -> Any:
            found = forward(state, layout)
            return found.state.q[:, 0], found.info.status

        def derivative(state: Any) -> Any:
            def loss(v: Any) -> Any:
                q, status = ends(dataclasses.replace(state, v=v))
                return jnp.sum(q), status

            return jax.grad(loss, has_aux=True)(state.v)

        return jax.jit(derivative if gradient else ends)

    counted = Operations()
    logger = logging.getLogger("jaxdae.fused")
    logger.addHandler(counted)
    logger.setLevel(logging.INFO)
    compiled, seconds = {}, {}
    for key, layout in (
        ("kernel", jaxdae.Layout(kernel=jaxdae.Fused())),
        ("XLA", jaxdae.Layout(kernel=None)),
    ):
        jax.clear_caches()
        begin = cpu_seconds()
        compiled[key] = program(layout).lower(start).compile()
        seconds[key] = cpu_seconds() - begin
    cores = sorted(os.sched_getaffinity(0))
    times: dict[str, list[float]] = {"kernel": [], "XLA": [], "all": []}
    results = {key: jax.block_until_ready(run(start)) for key, run in compiled.items()}
    for _ in range(repeats):
        for key in times:
            confine(cores if key == "all" else cores[-1:])
            begin = time.perf_counter()
            jax.block_until_ready(compiled["kernel" if key == "all" else key](start))
            times[key].append(time.perf_counter() - begin)
    confine(cores)
    (found, status), (expected, expected_status) = results["kernel"], results["XLA"]
    if not np.array_equal(status, expected_status):
        raise RuntimeError(f"{name}: statuses differ")
    difference = (
        np.linalg.norm(found - expected) / np.linalg.norm(expected)
        if gradient
        else np.max(np.abs(found - expected))
    )
    ratio, gain = (
        statistics.median(a / b for a, b in zip(times[x], times[y], strict=True))
        for x, y in (("XLA", "kernel"), ("kernel", "all"))
    )
    rates = [f"{worlds * STEPS / min(times[key]):.2g}" for key in ("kernel", "XLA")]
    last = [
        f"{ratio:.1f}",
        f"{gain:.2f}",
        f"{difference:.0e}",
        f"{seconds['kernel']:.0f}",
        f"{seconds['XLA']:.0f}",
    ]
    return [name + ", gradient" * gradient, dtype, str(worlds), str(max(counted.found)), *rates, *last]


class Operations(logging.Handler):
    """Collects the numbers of operations of all kernels that are compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[int] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Take the number from the message about a kernel."""
        if isinstance(record.args, tuple) and record.args:
            self.found.append(int(str(record.args[0]).replace(",", "")))


def main() -> None:
    """Read the command line, measure in processes and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--precisions", nargs="+", default=["float32", "float64"])
    parser.add_argument("--worlds", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measure(*json.loads(options.case))))
        return
    rows = []
    for name in options.models:
        for dtype in options.precisions:
            for gradient in (False, True) if name in GRADIENTS else (False,):
                case = json.dumps([name, dtype, options.worlds, gradient, options.repeats])
                with (
                    tempfile.TemporaryDirectory() as folder
                ):  # an empty cache of kernels, to time the compiler
                    environment = os.environ | {"JAXDAE_KERNELS": folder}
                    command = [sys.executable, __file__, "--case", case]
                    done = subprocess.run(
                        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
                    )
                row = json.loads(done.stdout.splitlines()[-1])
                print(row if isinstance(row, str) else " | ".join(row), flush=True)
                if not isinstance(row, str):
                    rows.append(row)
    table = markdown([HEAD, *rows])
    print("", table, sep="\n")
    if options.out is not None:
        options.out.write_text(table + "\n")


if __name__ == "__main__":
    main()

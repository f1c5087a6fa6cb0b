"""Measure speed, compile time and constraint violation of batched rollouts on a GPU within a time budget.

    python experiments/benchmarks/gpu.py [--budget 540] [--out GPU.md] [--vendor DIR] [--only TEXT] [--quick]

The script runs from a checkout on a machine without network. It needs Python, JAX, NumPy, jaxtyping and
wadler-lindig. It needs neither optax nor the packages of jaxdae's extras. If jaxtyping is missing, download
it on a machine with network, and copy the folder to the checkout on the GPU machine:

    pip install --no-deps --target vendor jaxtyping wadler-lindig
    python experiments/benchmarks/gpu.py --vendor vendor --out GPU.md

Each case runs in its own process with its own time limit, the most decisive case first. The script prints
every row when it is measured and rewrites the --out file after each case. It ends when the budget is used up,
and lists all measurements that it skipped.

Fused cases run each world through one kernel (`jaxdae.fused`), which needs nvcc on PATH or in CUDA_HOME; on a
CPU they need g++. Without the compiler they fail and state the reason.

The case MJX runs the four-bar in MuJoCo's MJX with its fastest settings, if mujoco-mjx is installed. Its
violation is the largest opening of the loop at the last step, which is not checked. Profiled cases list
occupancy and throughput of a fused kernel as Nsight Compute measures them, if `ncu` is on PATH.

Each row measures one compiled rollout. The step is 1 ms, and 20 us for Andrews' squeezing mechanism. The
worlds start at different velocities. The columns:

- world-steps/s: worlds times steps per second, the best of up to five runs;
- compile, s: seconds of tracing and compilation;
- difference: fused cases only, the largest difference between the final coordinates (or the gradient) and
  those of XLA on the CPU, relative to the largest entry, over up to 64 worlds;
- MB: memory of arguments, results and temporaries, as the compiler states it;
- kernels/step: kernels per step of the compiled loop, with the stability check of every 100th step;
- violation, m: the largest |g| over all worlds and steps. A case fails if it exceeds rounding error and the
  closure error of the integrator, if a status is not OK, or if a result is not finite.

A gradient is the derivative of the summed final coordinates with respect to all start velocities. Its time
includes the forward pass.
"""

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kernels import per_step
from side_by_side import markdown

ROOT = Path(__file__).resolve().parents[2]
HEAD = ["case", "dtype", "worlds", "steps", "world-steps/s", "compile, s"]
HEAD += ["MB", "kernels/step", "violation, m", "difference"]
FOUR_BAR_WORLDS, WORLDS, QUICK_WORLDS = (1, 1_000, 100_000, 1_000_000), (1_000, 100_000), (1, 8)
FUSED_WORLDS, COMPARED = (1, 1_000, 10_000, 100_000, 1_000_000), 64
COPY, COPIED_BYTES = "copy bandwidth", 2**30
MJX = "four-bar in MJX"
NCU = ("ncu", "--kernel-name", "rollout", "--launch-count", "1")
NCU += tuple(
    word
    for section in ("SpeedOfLight", "LaunchStats", "Occupancy", "MemoryWorkloadAnalysis")
    for word in ("--section", section)
)
# `per_step` finds the loop over time by its length: use primes, so that no other loop has the same length.
STEPS, STEPS_OF_LARGE_BATCH, QUICK_STEPS = 997, 97, 11
REPEATS, ENOUGH_S = 5, 2.0
SHORTEST_S = 10.0  # no case starts with less time
NO_COMMAND_BUFFERS = "--xla_gpu_enable_command_buffer="
MISSING = """cannot import {name}. On a machine with network run
    pip install --no-deps --target vendor {package}
Copy the folder vendor here and add --vendor vendor."""
PACKAGES = {"jaxtyping": "jaxtyping wadler-lindig", "wadler_lindig": "wadler-lindig"}


@dataclasses.dataclass(frozen=True)
class Case:
    """The measurements of one process."""

    model: str
    dtype: str = "float32"
    gradient: bool = False
    fused: bool = False
    command_buffers: bool = True
    profiled: bool = False
    worlds: tuple[int, ...] = WORLDS
    limit_s: float = 90.0

    @property
    def title(self) -> str:
        """The name in the table."""
        kind = ", fused" * self.fused + ", gradient" * self.gradient + ", profiled" * self.profiled
        return self.model + kind + ", no command buffers" * (not self.command_buffers)

    def sizes(self, quick: bool) -> list[tuple[int, int]]:
        """Return the pairs (worlds, steps) of all rows."""
        if quick:
            least = min(self.worlds, default=QUICK_WORLDS[-1] + 1)
            return [(worlds, QUICK_STEPS) for worlds in QUICK_WORLDS if least == 1 or 1 < worlds < least]
        is_long = [worlds <= 1_000 and not self.gradient and not self.fused for worlds in self.worlds]
        steps = [STEPS if long else STEPS_OF_LARGE_BATCH for long in is_long]
        return list(zip(self.worlds, steps, strict=True))


CASES = (
    Case(COPY, worlds=()),
    Case("four-bar", fused=True, worlds=FUSED_WORLDS),
    Case("four-bar", worlds=FOUR_BAR_WORLDS, limit_s=120.0),
    Case("four-bar", gradient=True, fused=True, worlds=(1, *WORLDS)),
    Case("four-bar", "float64", fused=True, worlds=FUSED_WORLDS),
    Case("four-bar in joint coordinates", fused=True, worlds=FUSED_WORLDS),
    Case("Andrews", fused=True, limit_s=120.0),
    Case("humanoid", fused=True, limit_s=120.0),
    Case(MJX),
    Case("four-bar", fused=True, profiled=True, worlds=WORLDS[-1:], limit_s=45.0),
    Case("Andrews", fused=True, profiled=True, worlds=WORLDS[-1:], limit_s=60.0),
    Case("four-bar", worlds=FOUR_BAR_WORLDS, command_buffers=False),
    Case("four-bar in joint coordinates"),
    Case("Andrews"),
    Case("humanoid"),
    Case("four-bar", gradient=True),
    Case("four-bar", "float64", worlds=FOUR_BAR_WORLDS),
    Case("four-bar", "float64", gradient=True, fused=True),
    Case("humanoid", gradient=True, worlds=WORLDS[-1:]),
    Case("four-bar", "float64", gradient=True),
    Case("Andrews", "float64"),
    Case("humanoid", "float64"),
    Case("Andrews", gradient=True, worlds=WORLDS[-1:]),
)


# The process of one case.


def environment() -> str:
    """Return the device and the versions, after the import of all packages."""
    import jax

    import jaxdae
    import jaxdae.mechanisms  # `import jaxdae` alone imports no other package.

    device = jax.devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    memory = "" if limit is None else f", {limit / 1e9:.0f} GB available to JAX"
    found = " No GPU was found." if device.platform == "cpu" else ""
    text = f"Device: {device.device_kind} ({device.platform}, {len(jax.devices())} visible{memory}).{found}"
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("jax", "jaxlib", "numpy"))
    return f"{text} Python {platform.python_version()}, {versions}, jaxdae {jaxdae.__version__}."


def copied(size: int) -> str:
    """Return the rate of a kernel that reads and writes arrays of this many bytes."""
    import jax
    import jax.numpy as jnp

    x, negate, times = jnp.ones(size // 4), jax.jit(jnp.negative), []
    negate(x).block_until_ready()
    for _ in range(REPEATS):
        begin = time.perf_counter()
        negate(x).block_until_ready()
        times.append(time.perf_counter() - begin)
    return f"Copy bandwidth: {2 * size / min(times) / 1e9:.0f} GB/s."


def measure(case: Case, quick: bool) -> Iterator[dict[str, Any]]:
    """Yield one row per number of worlds.

    Raises:
        RuntimeError: a rollout failed, or its results are not finite or not precise.
        FallbackWarning: a fused case cannot become a kernel.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    jax.config.update("jax_enable_x64", case.dtype == "float64")
    jax.config.update("jax_default_matmul_precision", "highest")  # TF32 would open the loops.
    from gpu_models import MODELS

    import jaxdae
    from jaxdae.compile.layout import Fused
    from jaxdae.fused import FallbackWarning

    warnings.simplefilter("error", FallbackWarning)
    model, layout = MODELS[case.model](), jaxdae.Layout(kernel=Fused() if case.fused else None)

    def rollout(
        layout: Any, system: Any, method: Any, v: jax.Array, dt: Any, steps: int
    ) -> tuple[jax.Array, ...]:
        """Return the final coordinates, the largest violation and the largest status."""
        t, q = model.start.t, model.start.q
        if len(v) == 1 and not case.fused:
            roll, start = jaxdae.rollout, jaxdae.State(t, q, v[0])
        else:
            roll, start = (
                partial(jaxdae.batch_rollout, layout=layout),
                jaxdae.State(t, jnp.tile(q, (len(v), 1)), v),
            )
        end = roll(system, method, start, dt=dt, steps=steps, save_every=steps)
        return end.state.q, jnp.max(end.info.violation), jnp.max(end.info.status)

    def gradient(
        layout: Any, system: Any, method: Any, v: jax.Array, dt: Any, steps: int
    ) -> tuple[jax.Array, ...]:
        def loss(v: jax.Array) -> Any:
            q, *checks = rollout(layout, system, method, v, dt, steps)
            return jnp.sum(q), checks

        found, checks = jax.grad(loss, has_aux=True)(v)
        return found, *checks

    function = gradient if case.gradient else rollout
    program, by_xla = (
        jax.jit(partial(function, x), static_argnums=4) for x in (layout, jaxdae.Layout(kernel=None))
    )

    def difference(v: jax.Array, values: jax.Array, steps: int) -> float:
        """Return the largest difference between results and those of XLA on the CPU."""
        some = np.linspace(0, len(v) - 1, COMPARED).astype(int)
        arguments = jax.device_put(
            (model.system, model.method, v[some], jnp.asarray(model.dt, v.dtype)), jax.devices("cpu")[0]
        )
        expected, *_ = by_xla(*arguments, steps)
        return float(np.max(np.abs(np.asarray(values)[some] - expected)) / np.max(np.abs(expected)))

    for worlds, steps in case.sizes(quick):
        v = jnp.linspace(0.9, 1.1, worlds)[:, None] * model.start.v
        arguments = model.system, model.method, v, jnp.asarray(model.dt, v.dtype)
        begin = time.perf_counter()
        compiled = program.lower(*arguments, steps).compile()
        compile_s, times = time.perf_counter() - begin, []
        while len(times) < REPEATS and sum(times) < ENOUGH_S:
            begin = time.perf_counter()
            values, violation, status = jax.block_until_ready(compiled(*arguments))
            times.append(time.perf_counter() - begin)
        name, largest, allowed = jaxdae.Status(int(status)).name, float(violation), model.allowed_violation()
        if name != "OK" or not bool(jnp.all(jnp.isfinite(values))):
            raise RuntimeError(f"{worlds} worlds: status {name}; results must be finite")
        if not largest <= allowed:
            raise RuntimeError(f"{worlds} worlds: violation {largest:.1e} m, allowed {allowed:.1e} m")
        apart = difference(v, values, steps) if case.fused else None
        if apart is not None and not apart <= 1e4 * float(jnp.finfo(v.dtype).eps):
            raise RuntimeError(f"{worlds} worlds: the results of XLA differ by {apart:.1e}")
        memory = compiled.memory_analysis()
        yield {
            "worlds": worlds,
            "steps": steps,
            "rate": worlds * steps / min(times),
            "compile_s": compile_s,
            "bytes": memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes,
            "kernels": per_step(compiled.as_text(), steps),
            "violation": largest,
            "difference": apart,
        }


def measure_mjx(case: Case, quick: bool) -> Iterator[dict[str, Any]]:
    """Yield one row per number of worlds of MJX, or the reason why it cannot run."""
    if importlib.util.find_spec("mujoco") is None or importlib.util.find_spec("mujoco.mjx") is None:
        yield {"skipped": "mujoco-mjx is not installed"}
        return
    from peers_mujoco import MJXBatch, opening

    for worlds, steps in case.sizes(quick):
        batch, times = MJXBatch("MJX fastest", 1e-3, case.dtype, worlds), []
        while len(times) < REPEATS and sum(times) < ENOUGH_S:
            begin = time.perf_counter()
            end = batch.advance(batch.start, steps)
            times.append(time.perf_counter() - begin)
        memory = batch.compiled.memory_analysis()
        yield {
            "worlds": worlds,
            "steps": steps,
            "rate": worlds * steps / min(times),
            "compile_s": batch.compile_s,
            "bytes": memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes,
            "kernels": None,
            "violation": opening(end.site_xpos),
            "difference": None,
        }


def print_case(case: Case, quick: bool) -> None:
    """Print the environment and the rows of a case as lines of JSON."""
    try:
        if case.model == COPY:
            text = f"{environment()} {copied(COPIED_BYTES // 64 if quick else COPIED_BYTES)}"
            print(json.dumps({"environment": text}), flush=True)
            return
        print(json.dumps({"environment": environment()}), flush=True)
        for row in (measure_mjx if case.model == MJX else measure)(case, quick):
            print(json.dumps(row), flush=True)
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        text = MISSING.format(name=name, package=PACKAGES.get(name, name))
        print(json.dumps({"missing": text}), flush=True)


# The process that the user starts.


def run_case(case: Case, options: argparse.Namespace, seconds: float) -> Iterator[dict[str, Any]]:
    """Run a case in a process; yield its lines as they come, and the reason if it fails or is stopped.

    A profiled case yields the report of `ncu` instead of its rows, whose times are those below the profiler.
    """
    if case.profiled and shutil.which(NCU[0]) is None:
        yield {"skipped": f"{NCU[0]} is not on PATH"}
        return
    vendor = [] if options.vendor is None else [str(options.vendor.resolve())]
    path = [str(ROOT), *vendor, *filter(None, [os.environ.get("PYTHONPATH")])]
    flags = [os.environ.get("XLA_FLAGS", ""), *([] if case.command_buffers else [NO_COMMAND_BUFFERS])]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(path),
        "XLA_FLAGS": " ".join(flags).strip(),
        "JAX_TRACEBACK_FILTERING": "off",  # The last line of an unfiltered traceback is the error.
    }
    command = [sys.executable, __file__, "--case", str(CASES.index(case)), *["--quick"] * options.quick]
    command, profile = [*NCU, *command] if case.profiled else command, ""
    end = time.monotonic() + seconds
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=env, text=True)
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        try:
            for line in process.stdout or ():
                found = json.loads(line) if line.startswith("{") and line.endswith("}\n") else {}
                if case.profiled and ("rate" in found or not found):
                    profile += "" if found else line
                elif found:
                    yield found
            code = process.wait()
        finally:
            timer.cancel()
            process.kill()
            process.wait()
        if profile:
            yield {"profile": profile}
        if code and time.monotonic() >= end:
            yield {"skipped": f"stopped after {seconds:.0f} s"}
        elif code:
            errors.seek(0)
            yield {"failed": (errors.read().strip().splitlines() or [f"exit code {code}"])[-1][:300]}


def cells(case: Case, row: dict[str, Any]) -> list[str]:
    """Return a row of the table."""
    worlds, kernels = f"{row['worlds']:,}".replace(",", " "), row["kernels"]
    numbers = [f"{row['rate']:.3g}", f"{row['compile_s']:.1f}", f"{row['bytes'] / 1e6:.3g}"]
    last = ["-" if kernels is None else str(kernels), f"{row['violation']:.1e}"]
    last.append("-" if row["difference"] is None else f"{row['difference']:.1e}")
    return [case.title, case.dtype, worlds, str(row["steps"]), *numbers, *last]


def report(environment: str, rows: list[list[str]], notes: list[str], profiles: list[str]) -> str:
    """Return the table, the list of missing measurements and the reports of kernels as Markdown."""
    missing = ["", "Not measured:", "", *notes] if notes else []
    lines = [
        "# Batched rollouts on one device",
        "",
        environment,
        "",
        markdown([HEAD, *rows]),
        *missing,
        *profiles,
        "",
    ]
    return "\n".join(lines)


def run_all(options: argparse.Namespace) -> int:
    """Measure all cases within the budget; return 1 if a measurement failed and 2 if a package is missing."""
    end, told, code = time.monotonic() + options.budget, "", 0
    rows, notes, profiles = [], [], []
    for case in [case for case in CASES if options.only in case.title]:
        left, remaining = end - time.monotonic(), [str(worlds) for worlds, _ in case.sizes(options.quick)]
        limit = left if options.quick else min(case.limit_s, left)
        lines = run_case(case, options, limit) if left >= SHORTEST_S else [{"skipped": "no time left"}]
        for line in lines:
            if "missing" in line:
                print(f"gpu.py: {line['missing']}", file=sys.stderr)
                return 2
            if "environment" in line:
                if not told:
                    print(line["environment"], " | ".join(HEAD), sep="\n", flush=True)
                told = told or line["environment"]
            elif "rate" in line:
                remaining.remove(str(line["worlds"]))
                rows.append(cells(case, line))
                print(" | ".join(rows[-1]), flush=True)
            elif "profile" in line:
                profiles += ["", f"## {case.title}", "", "```text", line["profile"].strip(), "```"]
                print(line["profile"], flush=True)
            else:
                (reason,) = line
                worlds = f", {case.dtype}, worlds {', '.join(remaining)}" if case.worlds else ""
                notes.append(f"- {case.title}{worlds}: {reason}, {line[reason]}")
                print(notes[-1], flush=True)
                code = max(code, int(reason == "failed"))
        if options.out is not None:
            options.out.write_text(report(told, rows, notes, profiles))
    print("", report(told, rows, notes, profiles), sep="\n")
    return code


def main() -> int:
    """Read the command line and measure."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--budget", type=float, default=540.0, help="total wall-clock seconds (default: 540)")
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    parser.add_argument("--vendor", type=Path, help="a folder with the packages that this machine lacks")
    parser.add_argument("--only", default="", help="measure only the cases whose title contains this text")
    parser.add_argument("--quick", action="store_true", help="at most 8 worlds, 11 steps; no limit per case")
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is None:
        return run_all(options)
    print_case(CASES[options.case], options.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())

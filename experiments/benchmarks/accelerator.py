"""How fast batches are on whatever device JAX finds, in single and double precision, forward and by gradient, beside MJX.

    python experiments/benchmarks/accelerator.py [--budget SECONDS] [--quick] [--out FILE.md]

Four-bar, Andrews' mechanism, G1 and Cassie (`accelerator_models.py`) from one world to a million. Every table row is a program of a fixed
number of steps, compiled for its number of worlds: world steps per second (best run of up to five), seconds of tracing and compiling,
memory of the program (arguments, results, temporaries, as the compiler states them), the largest violation of a constraint over all worlds
and steps (of MJX the loops of one world at the end), and kernels a step: what the device is asked to begin one after the other, counted in
the compiled program. A gradient is that of the mean of all final coordinates by all start velocities, forward pass included.

Each model with each engine, precision and direction is a process of its own with a share of the time that is left, so that this always
ends within its budget; what did not fit, in time or in memory, is named below the tables. Where a CPU is the device, all cores that the
process may use are the compiler's; worlds are not divided among threads, as `jaxdae run` does (`two_cores.py`).
"""

import argparse
import dataclasses
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from side_by_side import markdown

from jaxdae.app.flags import for_small_programs

PRECISIONS = ("float32", "float64")
WORLDS = (1, 100, 10_000, 1_000_000)
WEIGHTS = {"four-bar": 2.0, "Andrews": 2.0, "G1": 3.0, "Cassie": 4.0}
MODELS = tuple(WEIGHTS)
STEPS = 97  # of a program at most; no other loop runs as often
SHORTER = {10_000: 31, 1_000_000: 11}  # of a program from so many worlds on
REPEATS, ENOUGH_S = 5, 2.0
LARGEST_SHARE = 0.8  # of the memory that is free
HEAD = ["", "worlds", "steps", "world steps/s", "compile, s", "MB", "violation", "kernels/step"]


@dataclasses.dataclass(frozen=True)
class Case:
    """What one process measures, over all numbers of worlds."""

    model: str
    engine: str
    precision: str
    gradient: bool

    @property
    def words(self) -> str:
        """In words."""
        return f"{self.model}, {self.engine}, {self.precision}, {'gradient' if self.gradient else 'forward'}"

    @property
    def weight(self) -> float:
        """How much of the time it gets: what takes longer to compile gets more."""
        return WEIGHTS[self.model] * (1.5 if self.gradient else 0.6 if self.engine == "MJX" else 1.0)


# in the process of one case


def measure(case: Case, worlds: tuple[int, ...], seconds: float) -> Iterator[dict[str, Any]]:
    """Gives a row for each number of worlds, or why there is none."""
    import jax

    jax.config.update("jax_enable_x64", case.precision == "float64")
    # Products in single precision are those of single precision: TF32 has 10 bits, and loops do not close by them.
    jax.config.update("jax_default_matmul_precision", "highest")
    from accelerator_models import Missing
    from kernels import per_step

    end, rate = time.monotonic() + seconds, 0.0
    try:
        made = _mjx(case) if case.engine == "MJX" else _jaxdae(case)
    except Missing as error:
        yield {"left_out": str(error)}
        return
    for count in worlds:
        steps = next((SHORTER[least] for least in sorted(SHORTER, reverse=True) if count >= least), STEPS)
        needed = 1.2 * count * steps / rate if rate else 0.0
        if needed > end - time.monotonic():
            yield {"worlds": count, "left_out": f"would take about {needed:.0f} s"}
            return
        begin = time.perf_counter()
        lowered, arguments, found = made(count, steps)
        compiled = lowered.compile()
        spent = time.perf_counter() - begin
        size, free = _bytes(compiled), _free_bytes()
        if size > LARGEST_SHARE * free:
            yield {"worlds": count, "left_out": f"needs {size / 1e9:.1f} GB, of which {free / 1e9:.1f} are free"}
            return
        times: list[float] = []
        while True:
            start = time.perf_counter()
            out = jax.block_until_ready(compiled(*arguments))
            times.append(time.perf_counter() - start)
            if len(times) == REPEATS or sum(times) > ENOUGH_S:
                break
        rate = count * steps / min(times)
        row = {"worlds": count, "steps": steps, "rate": rate, "compile_s": spent, "bytes": size, "violation": found(out)}
        yield row | {"kernels": per_step(compiled.as_text(), steps)}


def _jaxdae(case: Case) -> Callable[[int, int], Any]:
    import jax
    import jax.numpy as jnp
    from accelerator_models import MODELS as made

    import jaxdae

    model = made[case.model]()
    dt = jnp.asarray(model.dt, model.start.q.dtype)

    def program(count: int, steps: int) -> Any:
        single = count == 1
        roll: Any = jaxdae.rollout if single else jaxdae.batch_rollout
        start = model.start if single else jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *jnp.shape(x))), model.start)

        def run(system: Any, method: Any, at: Any, dt: Any) -> Any:
            ends = roll(system, method, at, dt=dt, steps=steps, save_every=steps)
            return ends.state.q, ends.info.violation, ends.info.status

        def loss(v: Any, system: Any, method: Any, at: Any, dt: Any) -> Any:
            q, *told = run(system, method, dataclasses.replace(at, v=v), dt)
            return jnp.mean(q), told

        def derivative(system: Any, method: Any, at: Any, dt: Any) -> Any:
            gradient, told = jax.grad(loss, has_aux=True)(at.v, system, method, at, dt)
            return gradient, *told

        arguments = (model.system, model.method, start, dt)
        return jax.jit(derivative if case.gradient else run).lower(*arguments), arguments, found

    def found(out: Any) -> float:
        values, violation, status = out
        if not bool(jnp.all(jnp.isfinite(values))) or bool(jnp.any(status != jaxdae.Status.OK)):
            raise SystemExit(f"{case.words}: {jaxdae.Status(int(jnp.max(status))).name}")
        return float(jnp.max(violation))

    return program


def _mjx(case: Case) -> Callable[[int, int], Any]:
    import jax
    import jax.numpy as jnp
    from accelerator_models import peer

    made = peer(case.model)

    def program(count: int, steps: int) -> Any:
        def one(at: Any) -> Any:
            return made.advance(at, steps)

        start = made.start if count == 1 else jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *jnp.shape(x))), made.start)
        return jax.jit(one if count == 1 else jax.vmap(one)).lower(start), (start,), made.opening

    return program


def _bytes(program: Any) -> int:
    needs = program.memory_analysis()
    return needs.temp_size_in_bytes + needs.argument_size_in_bytes + needs.output_size_in_bytes


def _free_bytes() -> float:
    """Returns how much memory of the device, or of the machine where that is the device, is free."""
    import jax

    told = jax.devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    if told and "bytes_limit" in told:
        return told["bytes_limit"] - told["bytes_in_use"]
    if Path("/proc/meminfo").exists():
        rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return 1024.0 * float(rows["MemAvailable"].split()[0])
    return float("inf")


# in the process that is called


def environment() -> list[str]:
    """Returns the device and the versions, in lines; asked in a process of its own, because a process holds the memory of its device."""
    text = "import jax; d = jax.devices(); print(jax.default_backend(), len(d), d[0].device_kind, sep=chr(10))"
    backend, count, kind = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.split("\n")[:3]
    if backend == "cpu":
        rows = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
        kind = next((row.partition(":")[2].strip() for row in rows if row.startswith("model name")), platform.processor())
        kind = f"{kind} ({platform.machine()}), {len(os.sched_getaffinity(0))} cores"
    versions = []
    for package in ("jaxdae", "jax", "jaxlib", "mujoco-mjx"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"{package} not installed")
    load = f"; load before the first row {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return [
        f"Device: {backend}, {count} x {kind}{load}.",
        f"Python {platform.python_version()}, {', '.join(versions)}; XLA_FLAGS `{os.environ.get('XLA_FLAGS', '')}`.",
    ]


def run(case: Case, worlds: tuple[int, ...], seconds: float) -> tuple[list[dict[str, Any]], str]:
    """Returns the rows of a case that its process has told in time, and why there are no more."""
    words = [case.model, case.engine, case.precision, "gradient" if case.gradient else "forward"]
    command = [sys.executable, __file__, "--case", *words, "--budget", str(seconds), "--worlds", *map(str, worlds)]
    with tempfile.TemporaryFile("w+") as told, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=told, stderr=errors)
        reason = ""
        try:
            if process.wait(seconds):
                errors.seek(0)
                lines = errors.read().strip().splitlines() or ["no message"]
                reason = f"ended with code {process.returncode}: {lines[-1][:200]}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            reason = f"did not end in {seconds:.0f} s"
        told.seek(0)
        found = [json.loads(line) for line in told.read().split("\n")[:-1] if line.startswith("{")]
    rows = [row for row in found if "left_out" not in row]
    reason = next((row["left_out"] for row in found if "left_out" in row), reason)
    return rows, reason


def cells(case: Case, row: dict[str, Any]) -> list[str]:
    """Returns a row of a table."""
    kernels = "-" if row["kernels"] is None else str(row["kernels"])
    name = f"{case.engine}, {case.precision}{', gradient' if case.gradient else ''}"
    numbers = [f"{row['rate']:.3g}", f"{row['compile_s']:.1f}", f"{row['bytes'] / 1e6:.3g}", f"{row['violation']:.1e}", kernels]
    return [name, f"{row['worlds']:,}".replace(",", " "), str(row["steps"]), *numbers]


def report(told: list[str], cases: list[Case], results: dict[Case, tuple[list[dict[str, Any]], str]], worlds: tuple[int, ...]) -> str:
    """Returns everything as Markdown."""
    lines = ["# Batches on this device", "", *told, ""]
    left = []
    for model in dict.fromkeys(case.model for case in cases):
        rows = [cells(case, row) for case in cases if case.model == model and case in results for row in results[case][0]]
        if rows:
            lines += [f"## {model}", "", markdown([HEAD, *rows]), ""]
    for case in cases:
        found, reason = results.get(case, ([], "no time was left"))
        missing = [str(count) for count in worlds if count not in {row["worlds"] for row in found}]
        if missing:
            left.append(f"- {case.words}, worlds {', '.join(missing)}: {reason}")
    return "\n".join([*lines, *(["## Left out", "", *left, ""] if left else [])])


def main() -> None:
    """Runs and prints everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=1800.0, help="seconds for everything (default: 1800)")
    parser.add_argument("--quick", action="store_true", help="1 and 100 worlds, at most 300 s")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="default: all")
    parser.add_argument("--worlds", nargs="+", type=int, default=list(WORLDS), help=f"default: {' '.join(map(str, WORLDS))}")
    parser.add_argument("--out", type=Path, help="a Markdown file for the tables")
    parser.add_argument("--case", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for_small_programs()
    if options.case:
        model, engine, precision, direction = options.case
        for row in measure(Case(model, engine, precision, direction == "gradient"), tuple(options.worlds), options.budget):
            print(json.dumps(row), flush=True)
        return
    worlds = tuple(options.worlds[:2]) if options.quick else tuple(options.worlds)
    end = time.monotonic() + (min(options.budget, 300.0) if options.quick else options.budget)
    told = environment()
    precise = [(model, precision) for model in options.models for precision in PRECISIONS]
    cases = [Case(model, "jaxdae", precision, gradient) for gradient in (False, True) for model, precision in precise]
    cases += [Case(model, "MJX", precision, False) for model, precision in precise]
    cases.sort(key=lambda case: (case.gradient, options.models.index(case.model), case.engine == "MJX", case.precision))
    results: dict[Case, tuple[list[dict[str, Any]], str]] = {}
    for index, case in enumerate(cases):
        share = (end - time.monotonic()) * case.weight / sum(other.weight for other in cases[index:])
        if share < 1.0:
            break
        results[case] = rows, reason = run(case, worlds, share)
        print(f"{case.words}: {len(rows)} rows{'; ' if reason else ''}{reason}", file=sys.stderr, flush=True)
        if options.out is not None:
            options.out.write_text(report(told, cases, results, worlds))
    if hasattr(os, "getloadavg"):
        told[0] += f" Load after the last row {os.getloadavg()[0]:.1f}."
    text = report(told, cases, results, worlds)
    if options.out is not None:
        options.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()

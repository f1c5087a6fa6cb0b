"""How fast batches are on whatever device JAX finds, in single and double precision, forward and by gradient, beside MJX.

    python experiments/benchmarks/accelerator.py [--budget SECONDS] [--quick] [--out FILE.md] [--rows FILE.jsonl]
    python experiments/benchmarks/accelerator.py --rows FILE.jsonl --models G1 --engines MJX --precisions float32 --worlds 1 100

Four-bar, Andrews' mechanism, G1 and Cassie (`accelerator_models.py`) from one world to a million. Every table row is a program of a fixed
number of steps, compiled for its number of worlds: world steps per second (best run of up to five), seconds of tracing and compiling,
memory of the program (arguments, results, temporaries, as the compiler states them), the largest violation of a constraint over all worlds
and steps (of MJX the loops of one world at the end), and kernels a step: what the device is asked to begin one after the other, counted in
the compiled program. A gradient is that of the mean of all final coordinates by all start velocities, forward pass included.

Each model with each engine, precision and direction is a process of its own with a share of the time that is left, so that this always
ends within its budget; what did not fit, in time or in memory, is named below the tables. With `--rows` every row goes into a file as soon
as it is measured, and what is there is not measured again: the same command goes on where it was ended, and the tables are those of the
whole file. The column of the load tells how busy the machine was when a process began (its load average of one minute): times of a
machine that others use are upper bounds. Where a CPU is the device, all cores that the process may use are the compiler's; worlds are not
divided among threads, as `jaxdae run` does (`two_cores.py`).
"""

import argparse
import dataclasses
import itertools
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
HEAD = ["", "worlds", "steps", "world steps/s", "compile, s", "MB", "violation", "kernels/step", "load"]
ENGINES = ("jaxdae", "MJX")
DIRECTIONS = ("forward", "gradient")


@dataclasses.dataclass(frozen=True)
class Case:
    """What one process measures, over all numbers of worlds."""

    model: str
    engine: str
    precision: str
    gradient: bool

    @property
    def key(self) -> list[str]:
        """What it is called on a command line and in a file."""
        return [self.model, self.engine, self.precision, DIRECTIONS[self.gradient]]

    @property
    def words(self) -> str:
        """In words."""
        return ", ".join(self.key)

    @property
    def weight(self) -> float:
        """How much of the time it gets: what takes longer to compile gets more."""
        return WEIGHTS[self.model] * (1.5 if self.gradient else 0.6 if self.engine == "MJX" else 1.0)


# in the process of one case


def measure(case: Case, worlds: tuple[int, ...], seconds: float, rate: float) -> Iterator[dict[str, Any]]:
    """Gives a row for each number of worlds, or why there is none.

    Args:
        case: the case.
        worlds: the numbers of worlds, in order.
        seconds: how long it may take.
        rate: world steps per second that were measured before with fewer worlds; 0 where none were.
    """
    import jax

    jax.config.update("jax_enable_x64", case.precision == "float64")
    # Products in single precision are those of single precision: TF32 has 10 bits, and loops do not close by them.
    jax.config.update("jax_default_matmul_precision", "highest")
    from accelerator_models import Missing
    from kernels import per_step

    end = time.monotonic() + seconds
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
    return [
        f"Device: {backend}, {count} x {kind}.",
        f"Python {platform.python_version()}, {', '.join(versions)}; XLA_FLAGS `{os.environ.get('XLA_FLAGS', '')}`.",
    ]


def run(case: Case, worlds: tuple[int, ...], seconds: float, rate: float) -> list[dict[str, Any]]:
    """Returns the rows of a case that its process has told in time, and behind them why there are no more."""
    options = ["--budget", str(seconds), "--rate", str(rate), "--worlds", *map(str, worlds)]
    command = [sys.executable, __file__, "--case", *case.key, *options]
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    with tempfile.TemporaryFile("w+") as told, tempfile.TemporaryFile("w+") as errors:
        # With JAX's own frames the last line is the error.
        process = subprocess.Popen(command, stdout=told, stderr=errors, env=os.environ | {"JAX_TRACEBACK_FILTERING": "off"})
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
    if reason:
        found.append({"left_out": reason})
    return [{"case": case.key, "load": load, **row} for row in found]


def kept(file: Path | None, told: list[str]) -> list[dict[str, Any]]:
    """Returns the rows in a file; none where there is no file."""
    if file is None or not file.exists():
        return []
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    if any(row["on"] != told for row in rows):
        raise SystemExit(f"{file}: holds rows of another device or of other versions; choose another file")
    return rows


def cells(row: dict[str, Any]) -> list[str]:
    """Returns a row of a table."""
    _, engine, precision, direction = row["case"]
    kernels = "-" if row["kernels"] is None else str(row["kernels"])
    name = f"{engine}, {precision}{', gradient' if direction == 'gradient' else ''}"
    numbers = [f"{row['rate']:.3g}", f"{row['compile_s']:.1f}", f"{row['bytes'] / 1e6:.3g}", f"{row['violation']:.1e}", kernels]
    return [name, f"{row['worlds']:,}".replace(",", " "), str(row["steps"]), *numbers, f"{row['load']:.1f}"]


def report(told: list[str], cases: list[Case], rows: list[dict[str, Any]], worlds: tuple[int, ...]) -> str:
    """Returns everything as Markdown: of each case the rows that were measured, and below the tables what was not, and why."""
    lines, left = ["# Batches on this device", "", *told, ""], []
    of = {case: [row for row in rows if row["case"] == case.key] for case in cases}
    measured = {case: {row["worlds"]: row for row in _measured(case, rows)} for case in cases}
    for model in dict.fromkeys(case.model for case in cases):
        table = [cells(measured[case][count]) for case in cases if case.model == model for count in sorted(measured[case])]
        if table:
            lines += [f"## {model}", "", markdown([HEAD, *table]), ""]
    for case in cases:
        missing = [str(count) for count in worlds if count not in measured[case]]
        reason = next((row["left_out"] for row in reversed(of[case]) if "left_out" in row), "no time was left")
        if missing:
            left.append(f"- {case.words}, worlds {', '.join(missing)}: {reason}")
    return "\n".join([*lines, *(["## Left out", "", *left, ""] if left else [])])


def every(models: list[str]) -> list[Case]:
    """Returns all cases of these models, in the order of the tables."""
    cases = [Case(*one, False) for one in itertools.product(models, ENGINES, PRECISIONS)]
    return cases + [Case(model, "jaxdae", precision, True) for model, precision in itertools.product(models, PRECISIONS)]


def main() -> None:
    """Runs and prints everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=1800.0, help="seconds for everything (default: 1800)")
    parser.add_argument("--quick", action="store_true", help="1 and 100 worlds, at most 300 s")
    for name, known in (("models", MODELS), ("engines", ENGINES), ("precisions", PRECISIONS), ("directions", DIRECTIONS)):
        parser.add_argument(f"--{name}", nargs="+", choices=known, default=list(known), help="default: all")
    parser.add_argument("--worlds", nargs="+", type=int, default=list(WORLDS), help=f"default: {' '.join(map(str, WORLDS))}")
    parser.add_argument("--out", type=Path, help="a Markdown file for the tables")
    parser.add_argument("--rows", type=Path, help="a file of what is measured, from which this goes on")
    parser.add_argument("--case", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for_small_programs()
    if options.case:
        model, engine, precision, direction = options.case
        case = Case(model, engine, precision, direction == "gradient")
        for row in measure(case, tuple(options.worlds), options.budget, options.rate):
            print(json.dumps(row), flush=True)
        return
    worlds = tuple(options.worlds[:2]) if options.quick else tuple(options.worlds)
    end = time.monotonic() + (min(options.budget, 300.0) if options.quick else options.budget)
    told = environment()
    rows = kept(options.rows, told)
    wanted = {case: _missing(case, worlds, rows) for case in every(options.models) if _is_asked_for(case, options)}
    for case in [case for case in every(list(MODELS)) if wanted.get(case)]:
        left = [other for other in wanted if wanted[other]]
        share = (end - time.monotonic()) * case.weight / sum(other.weight for other in left)
        if share < 1.0:
            break
        rate = max(((row["worlds"], row["rate"]) for row in _measured(case, rows)), default=(0, 0.0))[1]
        found = [row | {"on": told} for row in run(case, wanted[case], share, rate)]
        wanted[case] = ()
        rows += found
        words = "; ".join(str(row["left_out"]) if "left_out" in row else f"{row['worlds']} worlds {row['rate']:.3g}/s" for row in found)
        print(f"{case.words}: {words}", file=sys.stderr, flush=True)
        if options.rows is not None:
            with options.rows.open("a") as stream:
                stream.writelines(json.dumps(row) + "\n" for row in found)
        if options.out is not None:
            options.out.write_text(_report_of_all(told, rows, list(wanted), worlds))
    print(_report_of_all(told, rows, list(wanted), worlds))


def _measured(case: Case, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["case"] == case.key and "left_out" not in row]


def _missing(case: Case, worlds: tuple[int, ...], rows: list[dict[str, Any]]) -> tuple[int, ...]:
    found = {row["worlds"] for row in _measured(case, rows)}
    return tuple(count for count in worlds if count not in found)


def _is_asked_for(case: Case, options: argparse.Namespace) -> bool:
    return case.engine in options.engines and case.precision in options.precisions and case.key[-1] in options.directions


def _report_of_all(told: list[str], rows: list[dict[str, Any]], wanted: list[Case], worlds: tuple[int, ...]) -> str:
    """Returns everything as Markdown: what is asked for now, and what was measured before."""
    known = [row["case"] for row in rows]
    cases = [case for case in every(list(MODELS)) if case in wanted or case.key in known]
    return report(told, cases, rows, tuple(sorted({*worlds, *(row["worlds"] for row in rows if "worlds" in row)})))


if __name__ == "__main__":
    main()

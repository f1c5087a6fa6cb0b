"""Error against wall time of every integrator here, and of SUNDIALS IDA, Exudyn and MuJoCo, on four problems.

    python experiments/benchmarks/work_precision.py [--quick] [--problems andrews ...] [--engines jaxdae IDA
    ...]

Andrews' mechanism, the crank-rocker, the pendulum A01 and the double four-bar, one world each, in double
precision. Every contender runs over a sweep of steps or tolerances; compared are the end positions with exact
ones. Times are those of a whole run after compilation, the least of several; all settings of all contenders
of a problem run in turn, so that a drifting clock hits all of them. Settings that take longer than --limit
are timed once, and a contender's finer settings are left out after that. The time at a target error is read
off between the two settings around it, on log scales. jaxdae runs in the coordinates that IDA has ("turns"; x
and y of the pendulum), and its best methods again in poses of bodies.
"""

import argparse
import contextlib
import functools
import importlib
import json
import os
import platform
import sys
import time
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

NAMES = ("andrews", "crank_rocker", "pendulum", "double_four_bar")
ENGINES = ("jaxdae", "IDA", "Exudyn", "MuJoCo")
TARGET = 1e-8
FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler=false"


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, help="results folder (default: runs/benchmarks/work-precision-<date and time>)"
    )
    parser.add_argument("--problems", nargs="+", choices=NAMES, default=list(NAMES), help="default: all")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), help="default: all")
    parser.add_argument("--methods", nargs="+", help="only jaxdae methods whose names contain one of these")
    parser.add_argument("--cores", type=int, default=1, help="CPU cores to use; 0: all (default: 1)")
    parser.add_argument("--repeats", type=int, default=7, help="interleaved repetitions (default: 7)")
    parser.add_argument(
        "--limit", type=float, default=2.0, help="longest run in s that is repeated (default: 2)"
    )
    parser.add_argument(
        "--sequential", action="store_true", help=f"run with XLA_FLAGS={FLAG}, which helps small programs"
    )
    parser.add_argument("--quick", action="store_true", help="two settings a contender, 3 repetitions")
    options = parser.parse_args()
    if options.quick:
        options.repeats = 3
    if options.out is None:
        options.out = Path("runs/benchmarks") / f"work-precision-{datetime.now():%Y%m%d-%H%M%S}"
    if options.out.exists():
        parser.error(f"--out {options.out} exists; a run never overwrites another")
    if options.cores:
        # Before JAX starts its threads, and the last cores, because interrupts like the first.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.cores :])
    if options.sequential:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}"
    return options


def environment() -> dict:
    """Return what the times depend on."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        names = [
            row.split(":", 1)[1]
            for row in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in row
        ]
        cpu = names[0].strip() if names else cpu
    versions = {"python": platform.python_version()}
    for package in ("jaxdae", "jax", "jaxlib", "diffrax", "scikit-sundae", "exudyn", "mujoco", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "missing"
    cores, flags = len(os.sched_getaffinity(0)), os.environ.get("XLA_FLAGS", "").strip()
    return {
        "cpu": cpu,
        "cores": cores,
        "load": round(os.getloadavg()[0], 1),
        "XLA_FLAGS": flags,
        "versions": versions,
    }


def note(text: str) -> None:
    """Print one line of progress to stderr."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


# jaxdae.


def methods(problem) -> dict:
    """Return (integrator, step factor of the coarsest run, whether it also runs in poses) by name."""
    import jaxdae as jd

    # Parts of compositions are taken with large steps, some of them back in time, close to the singular
    # configurations.
    solver = jd.NullSpace() if problem.name == "double_four_bar" else jd.SchurComplement()
    rattle = jd.Rattle(solver)

    at_stage = jd.Projection(jd.PositionProjection(origin=jd.Origin.STAGE))
    dp5 = jd.RungeKutta.dormand_prince5()
    return {
        "RK4": (jd.Projected(jd.RungeKutta.rk4(), at_stage), 2.0, False),
        "Dormand-Prince 5": (jd.Projected(dp5, at_stage), 1.0, True),
        "HEM4": (jd.Projected(jd.HalfExplicitRungeKutta()), 1.0, False),
        "RKMK, Dormand-Prince 5": (jd.Projected(jd.RungeKutta.dormand_prince5()), 1.0, False),
        "Rattle": (rattle, 8.0, False),
        "Rattle, Suzuki 4": (jd.Composition.suzuki4(rattle), 1.0, False),
        "Rattle, Kahan-Li 6": (jd.Composition.kahan_li6(rattle), 0.5, False),
        "Rattle, Kahan-Li 8": (jd.Composition.kahan_li8(rattle), 0.25, True),
        "discrete Euler-Lagrange": (jd.DiscreteEulerLagrange(), 4.0, False),
        "implicit midpoint": (jd.ImplicitMidpoint(), 4.0, False),
        "generalized-alpha": (jd.GeneralizedAlpha(), 4.0, False),
        "Radau IIA": (jd.RadauIIA(), 0.5, False),
        "backward Euler": (jd.BackwardEuler(), 8.0, False),
        "explicit Euler": (jd.Projected(jd.ExplicitEuler()), 8.0, False),
        "semi-implicit Euler": (jd.Projected(jd.SemiImplicitEuler()), 8.0, False),
        "Taylor": (jd.Projected(jd.textbook.Taylor()), 8.0, False),
        "sequential, RK4": (jd.textbook.Sequential(jd.RungeKutta.rk4()), 2.0, False),
        "projected step, RK4": (jd.textbook.ProjectedStep(jd.RungeKutta.rk4()), 2.0, False),
        "projected derivative, RK4": (jd.textbook.ProjectedDerivative(jd.RungeKutta.rk4()), 2.0, False),
    }


def ours(problem, options) -> dict:
    """Return jaxdae's contenders, compiled."""
    import diffrax
    import jax
    import jax.numpy as jnp
    import numpy as np
    from work_precision_peers import Point

    import jaxdae

    def chosen(name):
        return not options.methods or any(part in name for part in options.methods)

    def point(setting, call, turns):
        def read(end):
            return turns(np.asarray(end.state.q[-1])) * (
                1.0 if np.all(np.asarray(end.info.status) == 0) else np.nan
            )

        jax.block_until_ready(call())  # compiles
        return Point(setting, lambda: jax.block_until_ready(call()), read)

    found = {}
    for number, (form, (system, start, turns)) in enumerate(problem.forms().items()):
        for name, (integrator, factor, everywhere) in methods(problem).items():
            if not chosen(name) or (number > 0 and not everywhere):
                continue
            points = []
            for power in (0, 2) if options.quick else range(4):
                steps = round(problem.steps * factor * 2**power)
                dt = jnp.asarray(problem.end / steps)
                call = functools.partial(
                    jaxdae.rollout, system, integrator, start, dt=dt, steps=steps, save_every=steps
                )
                points.append(point(f"{steps} steps", call, turns))
            found[f"jaxdae {name} ({form})"] = points
            note(f"{problem.name}: compiled {name} ({form})")
        for name, method in {"Tsit5": diffrax.Tsit5(), "Dopri8": diffrax.Dopri8()}.items():
            if not chosen(f"adaptive {name}"):
                continue
            points = []
            for tolerance in (1e-7, 1e-9) if options.quick else 10.0 ** -np.arange(6.0, 12.5):
                given = {"rtol": jnp.asarray(tolerance), "atol": jnp.asarray(tolerance)}
                integrator = jaxdae.diffrax.Adaptive(**given, method=method)
                times = jnp.array([problem.end])
                call = functools.partial(
                    jaxdae.diffrax.adaptive_rollout, system, integrator, start, times=times, max_steps=20_000
                )
                points.append(point(f"tolerance {tolerance:g}", call, turns))
            found[f"jaxdae adaptive {name} ({form})"] = points
            note(f"{problem.name}: compiled adaptive {name} ({form})")
    return found


# Measurements.


def measure(problem, contenders: dict, options) -> dict[str, list[dict]]:
    """Return the points (setting, error, time in ms) of every contender."""
    kept = []
    for name, points in contenders.items():
        for point in points:
            begin = time.perf_counter()
            end = point.run()
            seconds = time.perf_counter() - begin
            error = problem.error(point.read(end))
            record = {
                "setting": point.setting,
                "error": error,
                "times_ms": [] if seconds < options.limit else [1e3 * seconds],
            }
            kept.append((name, point, record, seconds))
            if seconds > options.limit and error < float("inf"):
                break
        note(
            f"{problem.name}: {name}: {len(points)} settings, best error "
            f"{min(r['error'] for n, _, r, _ in kept if n == name):.1e}"
        )
    for _ in range(options.repeats):
        for _, point, record, seconds in kept:
            if seconds < options.limit and sum(record["times_ms"]) < 1e3 * options.limit:
                begin = time.perf_counter()
                point.run()
                record["times_ms"].append(1e3 * (time.perf_counter() - begin))
    found: dict[str, list[dict]] = {}
    for name, _, record, _ in kept:
        found.setdefault(name, []).append(record | {"time_ms": min(record["times_ms"])})
    return found


def front(points: list[dict]) -> list[dict]:
    """Return the points that no faster point of the same contender beats, by time."""
    best, out = float("inf"), []
    for point in sorted(points, key=lambda p: p["time_ms"]):
        if point["error"] < best:
            best = point["error"]
            out.append(point)
    return out


def time_at(points: list[dict], target: float) -> float | None:
    """Return the time in ms at an error, between the points around it on log scales.

    None where it is not reached.
    """
    import numpy as np

    points = front(points)
    reached = [k for k, point in enumerate(points) if point["error"] <= target]
    if not reached:
        return None
    after = points[reached[0]]
    if reached[0] == 0:
        return after["time_ms"]
    before = points[reached[0] - 1]
    share = np.log(before["error"] / target) / np.log(before["error"] / max(after["error"], 1e-16))
    return (
        float(before["time_ms"] * (after["time_ms"] / before["time_ms"]) ** share)
        if np.isfinite(share)
        else after["time_ms"]
    )


def table(found: dict[str, list[dict]]) -> list[list[str]]:
    """Return contender, time at the target error, ratio to the fastest of jaxdae, and most accurate point.

    The fastest contender comes first.
    """
    times = {name: time_at(points, TARGET) for name, points in found.items()}
    mine = [x for name, x in times.items() if x is not None and name.startswith("jaxdae")]
    rows = []
    for name in sorted(
        times, key=lambda x: (times[x] is None, times[x] or min(p["error"] for p in found[x]))
    ):
        best = min(found[name], key=lambda p: p["error"])
        reached = times[name] is not None
        ratio = f"{times[name] / min(mine):.2f}" if reached and mine else "-"
        cell = f"{times[name]:.3g}" if reached else "not reached"
        rows.append(
            [name, cell, ratio, f"{best['error']:.1e} in {best['time_ms']:.3g} ms ({best['setting']})"]
        )
    return [["contender", f"ms at {TARGET:g}", "over the fastest of jaxdae", "most accurate"], *rows]


def andrews_against_ida(found: dict[str, list[dict]]) -> list[list[str]]:
    """Return the time of adaptive jaxdae to 1e-9 rad against IDA's at its tolerance of 1e-6, and to 1e-6."""
    rows = [["Andrews, jaxdae adaptive to 1e-9 rad against", "IDA, ms", "jaxdae, ms", "ratio", "to reach"]]
    adaptive = [t for name, points in found.items() if "adaptive" in name and (t := time_at(points, 1e-9))]
    for name, points in found.items():
        if name.startswith("IDA") and adaptive:
            settings = [point["time_ms"] for point in points if point["setting"] == "tolerance 1e-06"]
            for what, theirs in (
                (f"{name}, tolerance 1e-6", settings[0] if settings else None),
                (f"{name}, to 1e-6 rad", time_at(points, 1e-6)),
            ):
                if theirs:
                    rows.append(
                        [
                            what,
                            f"{theirs:.3g}",
                            f"{min(adaptive):.3g}",
                            f"{min(adaptive) / theirs:.3f}",
                            "<= 0.2",
                        ]
                    )
    return rows


def plot(problem, found: dict[str, list[dict]], path: Path) -> None:
    """Draw error against time: jaxdae's methods in color, peers in black and gray."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(10.5, 6.0), layout="constrained")
    own = [name for name in found if name.startswith("jaxdae")]
    own_forms = list(dict.fromkeys(name.rsplit("(", 1)[1] for name in own))
    bases = list(dict.fromkeys(name.rsplit(" (", 1)[0] for name in own))
    colors = dict(
        zip(bases, plt.cm.turbo([k / max(1, len(bases) - 1) for k in range(len(bases))]), strict=True)
    )
    shades = {"IDA": "black", "Exudyn": "dimgray", "MuJoCo": "darkgray"}
    seen: dict[str, int] = {}
    for name, points in found.items():
        points = [p for p in points if 0 < p["error"] < 1e2]
        xy = [p["time_ms"] for p in points], [p["error"] for p in points]
        if name in own:
            base, form = name.rsplit(" (", 1)
            adaptive = "adaptive" in name
            style = {
                "color": colors[base],
                "marker": "*" if adaptive else "o",
                "markersize": 9 if adaptive else 4,
            }
            axes.plot(
                *xy,
                linestyle="-" if form == own_forms[0] else ":",
                linewidth=2.0 if adaptive else 1.2,
                label=name,
                **style,
            )
        else:
            engine = name.split()[0]
            seen[engine] = seen.get(engine, 0) + 1
            axes.plot(
                *xy,
                color=shades[engine],
                linestyle="--",
                marker="sD^v"[seen[engine] - 1],
                markersize=5,
                linewidth=1.2,
                label=name,
            )
    axes.axhline(TARGET, color="red", linewidth=0.8, alpha=0.6)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="wall time of the whole run, ms",
        ylabel="largest position error at the end, rad or m",
    )
    axes.set_title(problem.title, loc="left")
    axes.set_ylim(top=3.0)
    axes.grid(alpha=0.25)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=7.5, frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    """Measures, prints, and writes results.md, results.json and a plot for every problem."""
    options = arguments()
    import jax

    jax.config.update("jax_enable_x64", True)
    from side_by_side import markdown, plain
    from work_precision_peers import PEERS
    from work_precision_problems import PROBLEMS

    where = environment()
    versions = ", ".join(f"{name} {number}" for name, number in where["versions"].items())
    head = (
        f"{where['cpu']}, {where['cores']} core(s), load {where['load']}, "
        f"XLA_FLAGS={where['XLA_FLAGS'] or 'none'}; {versions}"
    )
    options.out.mkdir(parents=True)
    sections, records = [], {}
    for name in options.problems:
        problem = PROBLEMS[name]()
        contenders = ours(problem, options) if "jaxdae" in options.engines else {}
        for engine, (module, make) in PEERS.items():
            if engine not in options.engines:
                continue
            try:
                importlib.import_module(module)
            except ImportError:
                print(f"{engine} is left out: {module} cannot be imported; pip install -e '.[bench]'.")
                continue
            contenders |= make(problem, options.quick)
        found = records[name] = measure(problem, contenders, options)
        sections.append((problem.title, table(found)))
        if name == "andrews" and len(compared := andrews_against_ida(found)) > 1:
            sections.append(("Andrews: adaptive jaxdae against IDA", compared))
        with contextlib.suppress(ImportError):
            plot(problem, found, options.out / f"{name}.png")
        # After every problem, so that a run that is cut short leaves what it has.
        (options.out / "results.json").write_text(
            json.dumps({"environment": where, "problems": records}, indent=1)
        )
        text = "\n\n".join(f"## {title}\n\n{markdown(rows)}" for title, rows in sections)
        (options.out / "results.md").write_text(
            f"# Work and precision\n\n{head}; at most {options.repeats} repetitions\n\n{__doc__}\n{text}\n"
        )
        # Compiled programs hold memory mappings, of which Linux allows a process 65530.
        del contenders
        jax.clear_caches()
        for title, rows in sections[-2 if name == "andrews" else -1 :]:
            print(f"\n{title}\n{plain(rows)}", flush=True)
    print(f"\n{head}\nWritten to {options.out}.")


if __name__ == "__main__":
    main()

"""jaxdae, MuJoCo (C) and MJX side by side on one closed four-bar: `make bench`.

One world against MuJoCo's Euler and RK4, batches against MJX; beside every speed stand the largest opening of
the loop and the crank angle's error. Every repetition runs all engines in turn, so that a drifting clock hits
all of them.

The loop opening is the largest over 10 s at 1 ms with every step looked at, of 64 worlds that start between 1
and 1.05 rad in the batches, over all four joints in jaxdae and at the one joint that is a constraint in
MuJoCo and MJX. "MJX fastest" is iterations=1, ls_iterations=1 and no implicit damping, which changes none of
the digits printed of it.
"""

import argparse
import json
import os
import platform
import sys
import time
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

DT = 1e-3  # s
ENGINES = ("jaxdae", "mujoco", "mjx")
PRECISIONS = ("float32", "float64")
STEPS = {64: 1000, 1024: 200, 4096: 50}  # steps a repetition, by number of worlds
JAXDAE_EULER, JAXDAE_RK4 = "jaxdae semi-implicit Euler + projection", "jaxdae RK4 + projection"


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, help="results folder (default: runs/benchmarks/peers-<date and time>)"
    )
    parser.add_argument("--cores", type=int, default=1, help="CPU cores to use; 0: all (default: 1)")
    parser.add_argument("--repeats", type=int, default=7, help="interleaved repetitions (default: 7)")
    parser.add_argument(
        "--worlds", type=int, nargs="*", default=list(STEPS), help="batch sizes, default 64 1024 4096"
    )
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), help="default: all")
    parser.add_argument("--quick", action="store_true", help="3 repetitions, batches of 64 and 1024")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.worlds = 3, [64, 1024]
    if options.out is None:
        options.out = Path("runs/benchmarks") / f"peers-{datetime.now():%Y%m%d-%H%M%S}"
    if options.out.exists():
        parser.error(f"--out {options.out} exists; a run never overwrites another")
    if options.cores:
        # Before JAX starts its threads, and the last cores, because interrupts like the first.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.cores :])
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
    for package in ("jaxdae", "jax", "jaxlib", "mujoco", "mujoco-mjx", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "missing"
    cores = len(os.sched_getaffinity(0))
    return {"cpu": cpu, "cores": cores, "load": round(os.getloadavg()[0], 1), "versions": versions}


def note(text: str) -> None:
    """Print one line of progress to stderr."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def single_world(engines: list[str]) -> list:
    """Return the two groups of one world, float64: Euler and RK4."""
    from side_by_side import Group

    steps = round(10 / DT)
    members: dict[str, list] = {"Euler": [], "RK4": []}
    if "jaxdae" in engines:
        from peers_jaxdae import Batch

        for key, name in (("Euler", JAXDAE_EULER), ("RK4", JAXDAE_RK4)):
            note(f"{name}, one world")
            batch = Batch(name, DT, "float64", None)
            members[key].append(batch.contender(steps, batch.accuracy()))
    if "mujoco" in engines:
        from peers_mujoco import MUJOCO, mujoco_single

        for name in MUJOCO:
            note(f"{name}, one world")
            members["Euler" if "Euler" in name else "RK4"].append(mujoco_single(name, DT, steps))
    return [
        Group(f"One world, float64, {key}-type methods", contenders, [f"MuJoCo {key}"])
        for key, contenders in members.items()
        if contenders
    ]


def batches(engines: list[str], sizes: list[int]) -> list:
    """Return one group a precision and batch size.

    An engine's accuracy is measured once a precision, on 64 worlds.
    """
    from side_by_side import Group

    groups = []
    for precision in PRECISIONS:
        accuracies: dict[str, object] = {}
        for worlds in sizes:
            steps = STEPS.get(worlds, max(1, 204_800 // worlds))
            contenders = []
            for name, make in batch_makers(engines).items():
                note(f"{name}, {worlds} worlds, {precision}")
                batch = make(name, DT, precision, worlds)
                if name not in accuracies:
                    few = batch if worlds == 64 else make(name, DT, precision, 64)
                    accuracies[name] = few.accuracy()
                contenders.append(batch.contender(steps, accuracies[name]))
            title = f"{worlds} worlds, {precision}, time per world and step"
            groups.append(Group(title, contenders, ["MJX iterations=1", "MJX fastest"]))
    return groups


def batch_makers(engines: list[str]) -> dict:
    """Return what makes a batch, by contender name."""
    makers: dict = {}
    if "jaxdae" in engines:
        from peers_jaxdae import KERNEL, Batch

        makers |= dict.fromkeys(
            [name + kernel for name in (JAXDAE_EULER, JAXDAE_RK4) for kernel in ("", KERNEL)], Batch
        )
    if "mjx" in engines:
        from peers_mujoco import MJX, MJXBatch

        makers |= dict.fromkeys(MJX, MJXBatch)
    return makers


def comparison(groups: list) -> list[list[str]]:
    """Return what jaxdae must reach: 4 times MuJoCo's time.

    MJX's, a quarter of it from 1024 worlds on, at 1000 times less opening.
    """
    rows = [["jaxdae against", "time ratio", "to reach", "opening ratio", "to reach", ""]]
    for group in groups:
        many = not group.title.startswith(("One world", "64 worlds"))
        for mine, theirs, bar, opening_bar in (
            (JAXDAE_EULER, "MuJoCo Euler", 4.0, None),
            (JAXDAE_RK4, "MuJoCo RK4", 4.0, None),
            (JAXDAE_EULER, "MJX iterations=1", 0.25 if many else 1.0, 1000.0),
            (JAXDAE_EULER, "MJX fastest", None, None),
        ):
            if mine not in group or theirs not in group:
                continue
            ratio = group[mine].ratio(group[theirs])
            opening = group[theirs].accuracy.opening / group[mine].accuracy.opening
            row = [f"{theirs}: {group.title}", f"{ratio:.2f}", "-" if bar is None else f"<= {bar:g}"]
            row += [f"1/{opening:.1e}", "-" if opening_bar is None else f"<= 1/{opening_bar:g}"]
            reached = (bar is None or ratio <= bar) and (opening_bar is None or opening >= opening_bar)
            rows.append([*row, "-" if bar is None else "reached" if reached else "NOT reached"])
    return rows


def main() -> None:
    """Measures, prints, and writes results.md and results.json."""
    options = arguments()
    try:
        import mujoco  # noqa: F401
    except ImportError:
        if set(options.engines) & {"mujoco", "mjx"}:
            sys.exit("peers.py needs the benchmark extra: pip install -e '.[bench]', or run `make bench`.")
    from side_by_side import markdown, measure, plain, record, table

    where = environment()
    groups = single_world(options.engines) + batches(options.engines, options.worlds)
    for group in groups:
        note(f"timing: {group.title}")
        measure(group, options.repeats)
    versions = ", ".join(f"{name} {number}" for name, number in where["versions"].items())
    head = (
        f"{where['cpu']}, {where['cores']} core(s), load {where['load']}; {versions}; {options.repeats} "
        "repetitions"
    )
    sections = [(group.title, table(group)) for group in groups]
    compared = comparison(groups)
    if len(compared) > 1:
        sections.append(("What jaxdae must reach", compared))

    options.out.mkdir(parents=True)
    (options.out / "results.json").write_text(
        json.dumps(
            {"environment": where, "dt_s": DT, "groups": [record(group) for group in groups]}, indent=1
        )
    )
    text = "\n\n".join(f"## {title}\n\n{markdown(rows)}" for title, rows in sections)
    (options.out / "results.md").write_text(f"# Four-bar, side by side\n\n{head}\n\n{__doc__}\n{text}\n")
    print(head)
    for title, rows in sections:
        print(f"\n{title}\n{plain(rows)}")
    print(f"\nTimes in us per world and step. Written to {options.out}/results.md and results.json.")


if __name__ == "__main__":
    main()

"""Compare measured speeds with the limits of a GPU: arithmetic for fused kernels, memory for batches by XLA.

    python experiments/benchmarks/limits.py [--models four-bar Andrews] [--gpu GPU.md] [--out LIMITS.md]

All numbers are for single precision and 1000 or more worlds. The columns:

- operations: scalar operations of the fused kernel per step of one world; a multiply-add counts as two;
- kernel, limit: `--peak` divided by the operations, in world-steps per second;
- XLA, B: bytes per world and step that the kernels of the XLA program read and write, from the optimized
  program for 100,000 worlds. XLA compiles it for an H200 that need not be present, if `jax[cuda12]` or
  `jax[cuda13]` is installed;
- XLA, limit: `--bandwidth` divided by these bytes;
- CPU: measured world-steps per second on one core of this machine, 1024 worlds, and the median ratio within a
  repetition;
- GPU: the largest measured world-steps per second in the file of `--gpu`, which `gpu.py --out` writes.

The defaults of `--peak` and `--bandwidth` are those of NVIDIA's data sheet of the H200 SXM.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from side_by_side import markdown

HEAD = ["model", "operations", "kernel, limit", "XLA, B", "XLA, limit"]
HEAD += ["kernel, CPU", "XLA, CPU", "ratio, CPU", "kernel, GPU", "XLA, GPU"]
MODELS = ["pendulum", "four-bar", "four-bar in joint coordinates", "Andrews", "G1", "Cassie"]
WORLDS, WORLDS_OF_GPU = 1024, 100_000
PLUGINS = ("jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13")


def operations(name: str) -> dict[str, Any]:
    """Return the operations of a step of the fused kernel, or the reason why the model is missing."""
    from batch_models import MODELS as BUILDERS
    from batch_models import Missing

    import jaxdae
    from jaxdae.fused.call import traced

    try:
        model = BUILDERS[name]()
    except Missing as reason:
        return {"missing": str(reason)}

    def rollout(*given: Any) -> Any:
        return jaxdae.rollout(*given, dt=model.dt, steps=97, save_every=97)

    program, _ = traced(rollout, model.system, model.method, model.start)
    code, _ = program.code(
        (False,) * (len(program.jaxpr.jaxpr.invars) - 3) + (True,) * 3
    )  # t, q and v of each world
    return {"operations": code.looped}


def transferred(name: str) -> dict[str, Any]:
    """Return the bytes per world and step of the XLA program for a described GPU."""
    from absent_gpu import STEPS, compiled, described
    from batch_models import MODELS as BUILDERS
    from kernels import bytes_per_step

    device = described()  # before anything is traced
    *_, text = compiled(BUILDERS[name](), WORLDS_OF_GPU, device)
    return {"bytes": (bytes_per_step(text, STEPS) or 0) / WORLDS_OF_GPU}


def measured(name: str) -> dict[str, Any]:
    """Return the speeds of the kernel and of XLA on one core."""
    from fused_kernels import HEAD as COLUMNS
    from fused_kernels import measure

    row = dict(zip(COLUMNS, measure(name, "float32", WORLDS, False, 5), strict=True))
    return {"kernel, CPU": row["kernel, 1/s"], "XLA, CPU": row["XLA, 1/s"], "ratio, CPU": row["ratio"]}


PARTS = {"operations": operations, "transferred": transferred, "measured": measured}


def in_process(part: str, name: str) -> dict[str, Any]:
    """Return what a part of the measurements of a model prints in a process of its own."""
    command = [sys.executable, __file__, "--part", part, "--models", name]
    with (
        tempfile.TemporaryDirectory() as folder
    ):  # an empty cache of kernels, as `fused_kernels.measure` expects
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
            "JAXDAE_KERNELS": folder,
        }
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def of_gpu(file: Path | None) -> dict[str, float]:
    """Return the largest measured speeds of the cases in the table of `gpu.py`, in single precision."""
    speeds: dict[str, float] = {}
    lines = file.read_text().splitlines() if file is not None else []
    for cells in (
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")
    ):
        if len(cells) > 4 and cells[1] == "float32":
            speeds[cells[0]] = max(speeds.get(cells[0], 0.0), float(cells[4]))
    return speeds


def main() -> None:
    """Read the command line, measure in processes and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--peak", type=float, default=67e12, help="operations per second, default 67e12")
    parser.add_argument("--bandwidth", type=float, default=4.8e12, help="bytes per second, default 4.8e12")
    parser.add_argument("--gpu", type=Path, help="the file that `gpu.py --out` wrote")
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part is not None:
        print(json.dumps(PARTS[options.part](options.models[0])))
        return
    speeds, rows = of_gpu(options.gpu), []
    has_compiler = importlib.util.find_spec("jax_plugins") is not None and any(
        map(importlib.util.find_spec, PLUGINS)
    )
    if not has_compiler:
        print("no bytes of the XLA program: install jax[cuda12] of the version of jax")
    for name in options.models:
        row = in_process("operations", name)
        if "missing" in row:
            print(f"{name}: {row['missing']}")
            continue
        row["kernel, limit"] = f"{options.peak / row['operations']:.1e}"
        if has_compiler:
            moved = in_process("transferred", name)["bytes"]
            row |= {"XLA, B": f"{moved:.0f}", "XLA, limit": f"{options.bandwidth / moved:.1e}"}
        row |= in_process("measured", name)
        found = {"kernel, GPU": f"{name}, fused", "XLA, GPU": name}
        row |= {column: f"{speeds[case]:.1e}" for column, case in found.items() if case in speeds}
        rows.append([str(({"model": name} | row).get(column, "")) for column in HEAD])
        print(" | ".join(rows[-1]), flush=True)
    load = f"Load at the end: {os.getloadavg()[0]:.1f}, on {os.cpu_count()} cores."
    table = "\n".join([load, "", markdown([HEAD, *rows])])
    print("", table, sep="\n")
    if options.out is not None:
        options.out.write_text(table + "\n")


if __name__ == "__main__":
    main()

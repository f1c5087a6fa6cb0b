"""Andrews' squeezing mechanism against its reference solution: how exact, how closed, how fast?

256 worlds with scattered motor torque; world 0 is nominal, and its end state is compared with the reference
of the published benchmark (problem "andrews" of the Test Set for IVP Solvers), whose coordinates are seven
angles. How they follow from the poses of the bodies is in configs/squeezing_mechanism.yaml.

    python experiments/squeezing_mechanism.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import json
import pathlib
import sys

import numpy as np
import rich.table
import xarray as xr

from jaxdae.app import run, script, table

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = "configs/squeezing_mechanism.yaml"
REFERENCE = HERE.parent / "tests" / "reference" / "ivptest_andrews.json"

# Each angle of the reference as a body, or as the difference of two bodies.
ANGLES = {
    "beta": ("crank", None),
    "Theta": ("link_fe", "crank"),
    "gamma": ("triangle", None),
    "Phi": ("link_ge", "link_ga"),
    "delta": ("link_ga", None),
    "Omega": ("link_he", "link_ha"),
    "epsilon": ("link_ha", None),
}


def angles(values: xr.DataArray) -> np.ndarray:
    """Return the seven angles of the reference from body coordinates, or their rates from velocities."""

    def theta(body):
        return 0.0 if body is None else values.sel(coordinate=f"{body}.theta").values

    return np.stack([theta(body) - theta(minus) for body, minus in ANGLES.values()], axis=-1)


def comparison(data: xr.Dataset) -> rich.table.Table:
    """Return the end state of the nominal world beside the reference."""
    reference = json.loads(REFERENCE.read_text())
    end = data.isel(world=0, time=-1)
    states = [
        state for state in reference["reference"]["states"] if abs(state["t"] - float(end.time)) < 1e-12
    ]
    compared = rich.table.Table(title=f"nominal world at t = {float(end.time):g} s", title_justify="left")
    for heading in ("angle", "simulated, rad", "reference, rad", "error, rad", "error of its rate, rad/s"):
        compared.add_column(heading, justify="left" if heading == "angle" else "right")
    if not states:
        compared.add_row("no reference at this time")
        return compared
    q, v = angles(end.q), angles(end.v)
    for name, simulated, rate, exact, exact_rate in zip(
        ANGLES, q, v, states[0]["q"], states[0]["v"], strict=True
    ):
        compared.add_row(
            name,
            f"{simulated:.12f}",
            f"{exact:.12f}",
            f"{abs(simulated - exact):.1e}",
            f"{abs(rate - exact_rate):.1e}",
        )
    compared.add_section()
    compared.add_row(
        "largest",
        "",
        "",
        f"{np.max(np.abs(q - states[0]['q'])):.1e}",
        f"{np.max(np.abs(v - states[0]['v'])):.1e}",
    )
    return compared


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    done = run(asked.config, asked.worlds, asked.out, asked.console, source=asked.source)
    asked.console.print(table(asked.config, done.record))
    with xr.open_zarr(done.folder / "results.zarr", chunks=None) as data:
        asked.console.print(comparison(data))
    results, timing = done.record["results"], done.record["timing"]
    everywhere = f"{asked.worlds.size} worlds and {asked.config.steps} steps"
    for line in (
        f"largest loop opening over {everywhere}: {results['largest_violation']:.2e} m",
        f"speed: {timing['worlds_per_s']:.3g} worlds per second",
        f"run folder: {done.folder}",
    ):
        asked.console.print(line, highlight=False, markup=False, soft_wrap=True)
    if done.summary.failure:
        asked.console.print(f"the simulation failed: {done.summary.failure}")
    return 1 if done.summary.failure else 0


if __name__ == "__main__":
    sys.exit(main())

"""A crank-rocker four-bar against its reference angles: does the loop stay closed, is the energy kept?

    python experiments/crank_rocker.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

The reference is the crank angle minus its start value, from the loop closed analytically (one degree of
freedom) and integrated to twelve digits. Single precision: `--set precision=float32`.
"""

import sys

import numpy as np
import rich.table
import xarray as xr

from jaxdae.app import run, script, table

CONFIG = "configs/crank_rocker.yaml"
REFERENCE = {1.0: -2.1812300736, 2.0: -4.7662002052, 5.0: -4.6071611334, 10.0: -1.2036641273}


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    done = run(asked.config, asked.worlds, asked.out, asked.console, source=asked.source)
    asked.console.print(table(asked.config, done.record))
    compared = rich.table.Table(title="crank angle minus start, nominal world", title_justify="left")
    for heading in ("time, s", "simulated, rad", "reference, rad", "error, rad"):
        compared.add_column(heading, justify="right")
    with xr.open_zarr(done.folder / "results.zarr", chunks=None) as data:
        angle = data.q.sel(world=0, coordinate="crank.theta").load()
        energy = (data.kinetic_energy + data.potential_energy).sel(world=0).values.astype(float)
        kinetic = float(data.kinetic_energy.sel(world=0).max())
    for instant, exact in REFERENCE.items():
        if instant <= asked.config.duration:
            turned = float(angle.sel(time=instant, method="nearest") - angle[0])
            compared.add_row(f"{instant:g}", f"{turned:.10f}", f"{exact:.10f}", f"{abs(turned - exact):.1e}")
    asked.console.print(compared)
    for line in (
        f"largest loop opening at {asked.config.steps} steps: {done.summary.largest_violation:.2e} m",
        f"largest energy error: {np.max(np.abs(energy - energy[0])):.2e} J of {kinetic:.3g} J",
        f"run folder: {done.folder}",
    ):
        asked.console.print(line, highlight=False, markup=False, soft_wrap=True)
    if done.summary.failure:
        asked.console.print(f"the simulation failed: {done.summary.failure}")
    return 1 if done.summary.failure else 0


if __name__ == "__main__":
    sys.exit(main())

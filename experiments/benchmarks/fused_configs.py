"""Table of the configs that run by fused kernels, with the reason if a config does not.

For each config, the script lowers the rollout of one world and counts the scalar operations of a step. With
`--run`, it also compiles the kernels of small programs and compares 8 worlds over 200 steps with XLA in
float64.

    python experiments/benchmarks/fused_configs.py                              # a table in Markdown, without a compiler
    python experiments/benchmarks/fused_configs.py --run --most 8000 crank_rocker arm
"""

import argparse
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae.app.config.precision import precision
from jaxdae.app.model.load_config import load
from jaxdae.app.runs.energy_account import accounted
from jaxdae.compile.layout import Fused
from jaxdae.fused.call import traced
from jaxdae.fused.graph import Unsupported

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
STEPS, WORLDS = 200, 8
HEAD = [
    "config",
    "operations per step",
    "with energy account",
    "program",
    "largest relative difference from XLA",
    "status equal",
]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="configs by name; all by default")
    parser.add_argument("--run", action="store_true", help="compile small kernels and compare them with XLA")
    parser.add_argument(
        "--most", type=int, default=6000, help="operations of the largest kernel to compile, default 6000"
    )
    given = parser.parse_args()
    names = given.names or sorted(file.stem for file in CONFIGS.glob("*.yaml"))
    head = HEAD if given.run else HEAD[:4]
    print(_row(head), _row(["---"] * len(head)), sep="\n", flush=True)
    for name in names:
        print(_row(_entries(name, given.most if given.run else None)), flush=True)


def _entries(name: str, most: int | None) -> list[str]:
    config, worlds = load(str(CONFIGS / f"{name}.yaml"), ("precision=float64",))
    with precision(config):
        system, integrator, state = worlds.one()
        dt = config.dt
        plain, reason = _operations(system, integrator, state, dt)
        whole, of_account = _operations(system, accounted(integrator, config), state, dt)
        entries = [f"`{name}`", plain, whole, reason or of_account or "fused"]
        if most is None:
            return entries
        if reason or int(plain.replace(",", "")) > most:
            return [*entries, "", ""]
        return [*entries, *_compared(system, integrator, state, dt)]


def _operations(system: Any, integrator: Any, state: Any, dt: float) -> tuple[str, str]:
    """Return the operations of a step, in words, and the reason why the rollout cannot become a kernel."""

    def rollout(*given: Any) -> Any:
        return jaxdae.rollout(*given, dt=dt, steps=STEPS)

    program, _ = traced(rollout, system, integrator, state)
    try:
        code, _ = program.code((True,) * len(program.jaxpr.jaxpr.invars))
    except Unsupported as error:
        return "", str(error)
    return f"{code.looped:,}", ""


def _compared(system: Any, integrator: Any, state: Any, dt: float) -> list[str]:
    """Return the largest relative difference from XLA over 8 worlds, and whether the status is equal.

    The worlds begin at consecutive states of one trajectory.
    """
    first = jaxdae.rollout(system, integrator, state, dt=dt, steps=WORLDS - 1).state
    starts = jax.tree.map(lambda x, y: jnp.concatenate([jnp.asarray(x)[None], y]), state, first)
    by_xla, by_kernel = (
        jaxdae.batch_rollout(system, integrator, starts, dt=dt, steps=STEPS, layout=layout)
        for layout in (jaxdae.Layout(kernel=None), jaxdae.Layout(kernel=Fused()))
    )
    differences = [
        _difference(getattr(by_kernel.state, name), getattr(by_xla.state, name)) for name in ("q", "v")
    ]
    equal = bool(jnp.all(by_xla.info.status == by_kernel.info.status))
    return [f"{max(differences):.1e}", "yes" if equal else "no"]


def _difference(a: Any, b: Any) -> float:
    """Return the largest difference relative to the largest value."""
    scale = float(np.max(np.abs(b), initial=0.0)) or 1.0
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b)), initial=0.0)) / scale


def _row(entries: list[str]) -> str:
    return f"| {' | '.join(entries)} |"


if __name__ == "__main__":
    main()

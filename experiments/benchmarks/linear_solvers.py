"""Every saddle-point solver over sizes, batches and precisions, forward and with its gradient.

And tiny matrices against LAPACK.

    python experiments/benchmarks/linear_solvers.py [--quick]

The first tables solve random saddle points of full rank with n constraint rows and 3 n / 2 coordinates with a
diagonal mass matrix, in us a solve; the gradient is that of a scalar of (a, lam) with respect to M, J, f and
r. The last ones factorize and solve symmetric positive definite matrices as `SchurComplement` does inside of
`batch_rollout`, worlds along the last axis, and beside it with vmapped LAPACK routines.

Contenders of one table row run in turn in every repetition, the least time counts, and ratios are taken
within a repetition. Cells that one call would take longer than --limit seconds for are left out.
"""

import argparse
import functools
import json
import os
import pathlib
import platform
import statistics
import sys
import time
from datetime import datetime

SIZES = (2, 4, 8, 12, 16, 24, 32, 64)
WORLDS = (1, 64, 1024, 4096)
TINY = (2, 4, 6, 8, 10, 12, 16, 20, 24, 32)


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        help="results folder (default: runs/benchmarks/linear-solvers-<date and time>)",
    )
    parser.add_argument("--cores", type=int, default=1, help="CPU cores to use; 0: all (default: 1)")
    parser.add_argument("--repeats", type=int, default=5, help="interleaved repetitions (default: 5)")
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=list(SIZES), help="numbers of constraint rows"
    )
    parser.add_argument("--worlds", type=int, nargs="*", default=list(WORLDS), help="batch sizes")
    parser.add_argument("--limit", type=float, default=1.0, help="longest call in s (default: 1)")
    parser.add_argument(
        "--quick", action="store_true", help="sizes 2, 8 and 16, batches of 1 and 1024, 3 repetitions"
    )
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.worlds, options.repeats = [2, 8, 16], [1, 1024], 3
    if options.out is None:
        options.out = pathlib.Path("runs/benchmarks") / f"linear-solvers-{datetime.now():%Y%m%d-%H%M%S}"
    if options.out.exists():
        parser.error(f"--out {options.out} exists; a run never overwrites another")
    if options.cores:
        # Before JAX starts its threads, and the last cores, because interrupts like the first.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.cores :])
    return options


def note(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


def solvers() -> dict:
    """Return the solvers by the names of the columns."""
    import jaxdae

    return {
        "Schur": jaxdae.SchurComplement(),
        "dense LU": jaxdae.DenseKKT(),
        "null space, SVD": jaxdae.NullSpace(),
        "null space, QR": jaxdae.NullSpace(jaxdae.operators.HouseholderQR()),
        "null space, normal eq.": jaxdae.NullSpace(jaxdae.operators.NormalEquations()),
        "least squares": jaxdae.LeastSquares(),
        "proximal": jaxdae.Proximal(),
        "conj. gradient": jaxdae.ConjugateGradient(),
        "biconj. gradient": jaxdae.BiconjugateGradient(),
    }


def problem(rows: int, worlds: int, precision: str):
    """Return (mass diagonal, J, f, r), worlds last."""
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(rows)
    size = 3 * rows // 2
    shapes = ((size,), (rows, size), (size,), (rows,))
    mass, *others = (rng.standard_normal((*shape, worlds)) for shape in shapes)
    return tuple(jnp.asarray(x, precision) for x in (np.exp(0.3 * mass), *others))


def forward(solver, inputs):
    """Return (a, lam) of every world."""
    import jax

    import jaxdae

    solve = lambda m, *sides: jaxdae.solve_saddle_point(solver, jaxdae.operators.DiagonalMatrix(m), *sides)  # noqa: E731
    return jax.vmap(solve, in_axes=-1, out_axes=-1)(*inputs)


def gradient(solver, inputs):
    """Return the gradient of a scalar of all worlds with respect to all inputs."""
    import jax
    import jax.numpy as jnp

    return jax.grad(lambda x: sum(jnp.sum(jnp.sin(y)) for y in forward(solver, x)))(inputs)


def interleaved(calls: dict, repeats: int) -> dict[str, list[float]]:
    """Return the times of every call in s, one a repetition."""
    import jax

    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            begin = time.perf_counter()
            jax.block_until_ready(call())
            times[name].append(time.perf_counter() - begin)
    return times


def compiled(function, *inputs):
    """Return a call of the compiled function, and how long its first run took."""
    import jax

    call = functools.partial(jax.jit(function).lower(*inputs).compile(), *inputs)
    begin = time.perf_counter()
    jax.block_until_ready(call())
    return call, time.perf_counter() - begin


def solver_tables(options) -> dict[str, list[list[str]]]:
    """Return a table for every precision, mode and batch size, by title."""
    import jax

    tables = {}
    contenders = solvers()
    for precision in ("float32", "float64"):
        for mode in (forward, gradient):
            per_world: dict[tuple[str, int], float] = {}
            for worlds in options.worlds:
                title = f"{mode.__name__}, {precision}, {worlds} worlds, us a solve"
                rows = [["n", *contenders]]
                for size in options.sizes:
                    calls = {}
                    with jax.enable_x64(precision == "float64"):
                        inputs = problem(size, worlds, precision)
                        for name, solver in contenders.items():
                            if per_world.get((name, size), 0.0) * worlds > options.limit:
                                continue
                            calls[name], first = compiled(functools.partial(mode, solver), inputs)
                            # One world alone is mostly the cost of the call.
                            if worlds > 1:
                                per_world[name, size] = first / worlds
                        times = interleaved(calls, options.repeats)
                    best = {name: min(seconds) / worlds * 1e6 for name, seconds in times.items()}
                    rows.append(
                        [str(size), *(f"{best[name]:.3g}" if name in best else "-" for name in contenders)]
                    )
                    note(f"{title}: n = {size}")
                tables[title] = rows
    return tables


def tiny_tables(options) -> dict[str, list[list[str]]]:
    """Return the tables of tiny matrices, by title."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jaxdae.linalg import small_matrix

    def unrolled(matrix, b):
        return small_matrix.cholesky(matrix).solve(b)

    def cholesky(matrix, b):
        return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix, lower=True), b)

    ways = {"small_matrix": unrolled, "LAPACK Cholesky": cholesky, "LAPACK LU": jnp.linalg.solve}
    tables = {}
    for precision in ("float32", "float64"):
        for worlds in [w for w in options.worlds if w > 1]:
            rows = [["n", *(f"{name}, us" for name in ways), "Cholesky / small_matrix", "LU / small_matrix"]]
            for size in TINY if not options.quick else (4, 8, 12):
                rng = np.random.default_rng(size)
                half = rng.standard_normal((size, size, worlds))
                with jax.enable_x64(precision == "float64"):
                    matrix = jnp.asarray(
                        np.einsum("ikw,jkw->ijw", half, half) + size * np.eye(size)[:, :, None], precision
                    )
                    b = jnp.asarray(rng.standard_normal((size, worlds)), precision)
                    calls = {
                        name: compiled(jax.vmap(way, in_axes=-1, out_axes=-1), matrix, b)[0]
                        for name, way in ways.items()
                    }
                    times = interleaved(calls, 3 * options.repeats)
                mine = times["small_matrix"]
                ratios = [
                    statistics.median(x / y for x, y in zip(times[name], mine, strict=True))
                    for name in ways
                    if name != "small_matrix"
                ]
                rows.append(
                    [
                        str(size),
                        *(f"{min(times[name]) / worlds * 1e6:.3g}" for name in ways),
                        *(f"{x:.2f}" for x in ratios),
                    ]
                )
            tables[f"tiny matrices, {precision}, {worlds} worlds, factor and solve"] = rows
            note(f"tiny matrices, {precision}, {worlds} worlds")
    return tables


def main() -> None:
    """Measures, prints, and writes results.md and results.json."""
    options = arguments()
    from importlib.metadata import version

    from side_by_side import markdown, plain

    cpu = platform.processor() or platform.machine()
    if pathlib.Path("/proc/cpuinfo").exists():
        names = [
            row.split(":", 1)[1]
            for row in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in row
        ]
        cpu = names[0].strip() if names else cpu
    head = (
        f"{cpu}, {options.cores or 'all'} core(s), load {os.getloadavg()[0]:.1f}; jaxdae "
        f"{version('jaxdae')}, jax {version('jax')}"
    )
    tables = tiny_tables(options) | solver_tables(options)
    options.out.mkdir(parents=True)
    (options.out / "results.json").write_text(json.dumps({"environment": head, "tables": tables}, indent=1))
    text = "\n\n".join(f"## {title}\n\n{markdown(rows)}" for title, rows in tables.items())
    (options.out / "results.md").write_text(f"# Linear solvers\n\n{head}\n\n{__doc__}\n{text}\n")
    print(head)
    for title, rows in tables.items():
        print(f"\n{title}\n{plain(rows)}")
    print(f"\nWritten to {options.out}/results.md and results.json.")


if __name__ == "__main__":
    main()

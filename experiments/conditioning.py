"""How many digits do saddle-point solvers lose, and is the full system really better than the small one?

The lecture's remark: eliminating the accelerations gives a system that is "smaller/faster but numerically can
have worse condition numbers (worse accuracy). Generally solving the KKT system is better." Tested on a
four-bar in three ways, from a ratio of 1 to 10^12:

    link:  one of its bodies, held by others on both sides, loses its mass;
    tip:   the last joint is open, and the body at the free end of the chain loses its mass;
    rows:  of each pair of rows the second is replaced by the first plus (second) / ratio, and so are the
        right-hand sides: the
           accelerations stay what they are, the multipliers grow, the rows become parallel.

Each with the diagonal mass matrix of absolute coordinates, and with the full one of coordinates that are
relative to the body before. The exact solution for the very doubles that the solvers get comes from integer
arithmetic.

    python experiments/conditioning.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

Digits are those that are correct in the largest entry of a, or of lam: -log10 of the largest error over the
largest entry. What counts is the worst of some random right-hand sides.
"""

import fractions
import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import xarray as xr

import jaxdae
from jaxdae.app import begin, finish, line_style, precision, script, show_table, styled, table_lines

CONFIG = "configs/conditioning.yaml"
SOLVERS = {
    "DenseKKT": jaxdae.DenseKKT(),
    "SchurComplement": jaxdae.SchurComplement(),
    "NullSpace (SVD)": jaxdae.NullSpace(),
    "NullSpace (QR)": jaxdae.NullSpace(jaxdae.operators.HouseholderQR()),
    "NullSpace (normal equations)": jaxdae.NullSpace(jaxdae.operators.NormalEquations()),
    "LeastSquares": jaxdae.LeastSquares(),
    "Proximal": jaxdae.Proximal(),
}
FAMILIES = {"link": "one light link", "tip": "a light tip", "rows": "nearly parallel rows"}
MASSES = ("diagonal", "full")
PARTS = {"a": "accelerations", "lam": "multipliers"}
MOST = 53 * math.log10(2)  # digits of a double
CLEAR = 0.25  # digits a decade that make a difference

REMARKS = """
Condition numbers do not predict these errors. A Cholesky factorization does not depend on the units of its rows, so the condition
of J M^-1 J^T scaled to a diagonal of ones determines the error of SchurComplement. A light body at a free end increases both condition
numbers, but neither error. A light link between heavier bodies increases the error of SchurComplement: all of its rows become large
except for one combination of them, whose digits J M^-1 J^T loses, while the full matrix keeps its condition. Null-space methods behave
the other way round: the light link has no motion of its own and does not matter, but N^T M N loses the free motion of a light tip among
the heavy bodies. Nearly parallel rows enter the full matrix and J M^-1 J^T as the square of their angle; orthogonal decompositions of J
contain the angle itself. Singular values below a tolerance relative to the largest, 1e-5 in NullSpace (SVD) and the square root of
the rounding unit in LeastSquares, count as zero. Below this tolerance, these solvers treat the rows as dependent, which is another problem.
DenseKKT, SchurComplement and NullSpace (normal equations) then return NaN, counted as no digits. Proximal adds the square root of the
rounding unit, times the mean, to the diagonal of J M^-1 J^T. Its five iterations cannot remove this error in directions in which the
matrix is much smaller.
""".strip()


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    light: str
    highest: float = pydantic.Field(gt=1)
    count: int = pydantic.Field(ge=2)
    samples: pydantic.PositiveInt
    seed: pydantic.NonNegativeInt


def exact_solution(matrix: np.ndarray, sides: np.ndarray) -> list[list[fractions.Fraction]]:
    """Return the solutions X of A X = B as rational numbers, by fraction-free (Bareiss) integer elimination.

    Args:
        matrix: A (n, n), doubles.
        sides: B (n, k), doubles.
    """
    size = len(matrix)
    rows = []
    for row in np.concatenate([matrix, sides], axis=1).tolist():
        # Every double is an integer over a power of two: the largest of these powers makes a row of integers.
        ratios = [x.as_integer_ratio() for x in row]
        common = max(below for _, below in ratios)
        rows.append([above * (common // below) for above, below in ratios])
    last = 1
    for k in range(size):
        pivot = next(i for i in range(k, size) if rows[i][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        top = rows[k]
        for i, row in enumerate(rows):
            if i != k:
                rows[i] = [(top[k] * x - row[k] * y) // last for x, y in zip(row, top, strict=True)]
        last = top[k]
    return [[fractions.Fraction(x, rows[i][i]) for x in rows[i][size:]] for i in range(size)]


def digits(result: np.ndarray, exact: list[fractions.Fraction]) -> float:
    """Return how many digits of the largest entry are right; none where something is not finite."""
    largest = max(abs(x) for x in exact)
    if not np.all(np.isfinite(result)) or not largest:
        return 0.0
    error = max(abs(fractions.Fraction(float(x)) - y) for x, y in zip(result, exact, strict=True)) / largest
    return MOST if error == 0 else min(MOST, max(0.0, -math.log10(error)))


def problem(
    system, state, settings: Settings, family: str, mass: str, ratio: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return M (nv, nv), J (nc, nv) and the row transformation (nc, nc) of a family at a ratio."""
    diagonal = np.array(system.mass_operator(state.q).diagonal)
    jacobian = np.array(system.constraint_jacobian(state.t, state.q, state.v))
    count = len(diagonal) // 3
    if family == "tip":
        jacobian = jacobian[:-2]
    if family != "rows":
        body = system.body_names.index(settings.light) if family == "link" else count - 1
        diagonal[3 * body : 3 * body + 3] /= ratio
    mix = np.eye(len(jacobian))
    if family == "rows":
        mix = np.kron(np.eye(len(jacobian) // 2), np.array([[1.0, 0.0], [1.0, 1.0 / ratio]]))
    if mass == "diagonal":
        return np.diag(diagonal), mix @ jacobian, mix
    # Poses relative to the body before: q = T q', with ones for every body up to this one.
    chain = np.kron(np.tril(np.ones((count, count))), np.eye(3))
    return chain.T @ np.diag(diagonal) @ chain, mix @ jacobian @ chain, mix


@jax.jit
def solutions(solver, mass, jacobian, f, r):
    """Return (a, lam) (samples, nv + nc); one by one, as a mechanism is simulated alone."""
    return jax.lax.map(
        lambda sides: jnp.concatenate(jaxdae.solve_saddle_point(solver, mass, jacobian, *sides)), (f, r)
    )


def condition(matrix: np.ndarray) -> float:
    """Return the condition number in the Euclidean norm."""
    values = np.linalg.svd(matrix, compute_uv=False)
    return float(values[0] / values[-1]) if values[-1] else math.inf


def scaled(matrix: np.ndarray) -> np.ndarray:
    """Return the symmetric matrix with rows and columns in units that make its diagonal one."""
    units = 1.0 / np.sqrt(np.diag(matrix))
    return units[:, None] * matrix * units[None, :]


def measure(system, state, settings: Settings, family: str, mass: str) -> xr.Dataset:
    """Return digits (solver, ratio) of a and lam, and condition numbers (ratio), of one family."""
    ratios = np.geomspace(1.0, settings.highest, settings.count)
    rng = np.random.default_rng(settings.seed)
    found = {part: np.zeros((len(SOLVERS), len(ratios))) for part in PARTS}
    numbers = {
        name: np.zeros(len(ratios))
        for name in ("KKT matrix", "Delassus matrix", "scaled Delassus matrix", "mass matrix")
    }
    for column, ratio in enumerate(ratios):
        m, j, mix = problem(system, state, settings, family, mass, float(ratio))
        size = len(m)
        f, r = (
            rng.standard_normal((settings.samples, size)),
            rng.standard_normal((settings.samples, len(j))) @ mix.T,
        )
        matrix = np.block([[m, -j.T], [j, np.zeros((len(j), len(j)))]])
        exact = list(zip(*exact_solution(matrix, np.concatenate([f, r], axis=1).T), strict=True))
        delassus = j @ np.linalg.solve(m, j.T)
        for name, of in zip(numbers, (matrix, delassus, scaled(delassus), m), strict=True):
            numbers[name][column] = condition(of)
        operator = (
            jaxdae.operators.DiagonalMatrix(jnp.asarray(np.diag(m))) if mass == "diagonal" else jnp.asarray(m)
        )
        for row, solver in enumerate(SOLVERS.values()):
            results = np.asarray(solutions(solver, operator, jnp.asarray(j), jnp.asarray(f), jnp.asarray(r)))
            for part, shown in zip(PARTS, (slice(None, size), slice(size, None)), strict=True):
                found[part][row, column] = min(
                    digits(x[shown], y[shown]) for x, y in zip(results, exact, strict=True)
                )
    coords = {"ratio": ratios, "solver": list(SOLVERS), "matrix": list(numbers)}
    data = {part: (("solver", "ratio"), values) for part, values in found.items()}
    return xr.Dataset(data | {"condition": (("matrix", "ratio"), np.stack(list(numbers.values())))}, coords)


def draw(found: dict[tuple[str, str], xr.Dataset]):
    """Return the figure: digits over the ratio.

    A column a family, and a row for a and for lam with each mass matrix.
    """
    with styled() as figure_class:
        figure = figure_class(
            figsize=(4.4 * len(FAMILIES), 3.0 * len(PARTS) * len(MASSES)), layout="constrained"
        )
        panels = figure.subplots(
            len(PARTS) * len(MASSES), len(FAMILIES), sharex=True, sharey=True, squeeze=False
        )
        for column, (family, title) in enumerate(FAMILIES.items()):
            for row, (mass, part) in enumerate((mass, part) for mass in MASSES for part in PARTS):
                axes, data = panels[row][column], found[family, mass]
                for k, name in enumerate(SOLVERS):
                    axes.plot(
                        data.ratio, data[part].sel(solver=name), **line_style(k), marker=".", label=name
                    )
                axes.set_xscale("log")
                axes.set_ylim(-0.5, 16.5)
                if column == 0:
                    axes.set_ylabel(f"digits of the {PARTS[part]},\n{mass} mass matrix")
            panels[0][column].set_title(title)
            panels[-1][column].set_xlabel(
                "length of the rows over their distance" if family == "rows" else "mass ratio"
            )
        figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return figure


def loss(data: xr.Dataset, part: str, solver: str) -> float:
    """Return how many digits are lost when the ratio grows tenfold, on average, as long as any are left."""
    values = data[part].sel(solver=solver).values
    left = np.flatnonzero(values > 1.0)
    last = int(left[-1]) if left.size else 0
    return float(max(0.0, values[0] - values[last]) / max(np.log10(data.ratio.values[last]), 1.0))


def rows(found: dict[tuple[str, str], xr.Dataset]) -> list[tuple[str, ...]]:
    """Return the rows of the table: digits of a and lam at three ratios, and the digits lost per decade."""
    table = []
    for (family, mass), data in found.items():
        for name in SOLVERS:
            cells = [
                f"{float(data[part].sel(solver=name)[k]):.1f}"
                for k in (0, len(data.ratio) // 2, -1)
                for part in PARTS
            ]
            table.append(
                (FAMILIES[family], mass, name, *cells, *(f"{loss(data, part, name):.1f}" for part in PARTS))
            )
    return table


def headings(found: dict[tuple[str, str], xr.Dataset]) -> tuple[str, ...]:
    """Return the heading of each column."""
    ratio = next(iter(found.values())).ratio.values
    places = (f"{part} at {ratio[k]:.0e}" for k in (0, len(ratio) // 2, -1) for part in PARTS)
    return ("family", "mass matrix", "solver", *places, *(f"{part}: lost a decade" for part in PARTS))


def verdict(family: str, mass: str, data: xr.Dataset) -> str:
    """Return whether the remark holds in one family, in numbers."""
    lost = {part: {name: loss(data, part, name) for name in SOLVERS} for part in PARTS}
    lead = [lost[part]["SchurComplement"] - lost[part]["DenseKKT"] for part in PARTS]
    answer = (
        "holds"
        if max(lead) > CLEAR and min(lead) > -CLEAR
        else "is reversed"
        if min(lead) < -CLEAR
        else "does not hold"
    )
    numbers = data.condition.isel(ratio=-1)
    kkt, small, rescaled, of_mass = (float(x) for x in numbers)
    keepers = {
        part: [name for name in SOLVERS if lost[part][name] <= min(lost[part].values()) + CLEAR]
        for part in PARTS
    }
    return (
        f"**{FAMILIES[family]}, {mass} mass matrix: the remark {answer}.** When the ratio grows tenfold, "
        "DenseKKT loses"
        f" {lost['a']['DenseKKT']:.1f} digits of a and {lost['lam']['DenseKKT']:.1f} of lam, SchurComplement"
        f" {lost['a']['SchurComplement']:.1f} and {lost['lam']['SchurComplement']:.1f}. Least is lost of a by"
        f" {', '.join(keepers['a'])} ({min(lost['a'].values()):.1f}), of lam by {', '.join(keepers['lam'])}"
        f" ({min(lost['lam'].values()):.1f}). Condition numbers at {float(data.ratio[-1]):.0e}: {kkt:.1e} "
        "of the full matrix,"
        f" {small:.1e} of the small one, {rescaled:.1e} of the small one with a diagonal of ones, "
        f"{of_mass:.1e} of M."
    )


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, console = asked.config, asked.console
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    names = [body.name for body in config.mechanism.bodies]
    if settings.light not in names:
        expected = ", ".join(names)
        console.print(
            f"{asked.source}: experiment.light: got {settings.light}, expected one of {expected}",
            markup=False,
        )
        return 2
    found = {}
    with precision(config):
        system, _, state = asked.worlds.one()
        for family in FAMILIES:
            for mass in MASSES:
                console.print(
                    f"{family}, {mass} mass matrix: {settings.count} ratios, {len(SOLVERS)} solvers"
                )
                found[family, mass] = measure(system, state, settings, family, mass)
    folder, record = begin(config, asked.out, asked.source)
    for (family, mass), data in found.items():
        data.to_zarr(folder / "digits.zarr", group=f"{family}/{mass}", zarr_format=2, consolidated=False)
    draw(found).savefig(folder / "digits.png", bbox_inches="tight")
    heads, table = headings(found), rows(found)
    sentences = [verdict(*key, data) for key, data in found.items()]
    show_table(console, "correct digits", heads, table)
    for sentence in sentences:
        console.print(sentence.replace("**", ""), markup=False, highlight=False)
    lines = [
        f"# {config.name}",
        "",
        config.description,
        "",
        *(f"- {sentence}" for sentence in sentences),
        "",
        REMARKS,
        "",
    ]
    lines += table_lines(heads, table)
    (folder / "report.md").write_text("\n".join([*lines, "", "![digits](digits.png)", ""]), encoding="utf-8")
    finish(folder, record, digits=[dict(zip(heads, row, strict=True)) for row in table], findings=sentences)
    console.print(f"run folder: {folder}", highlight=False, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A goal for a place beside the rod that leads there: the matrix is singular. Which solvers pass?

Theta = (|q| - l) = 0 is the rod, Phi = q - q*(t) = 0 asks for a place, and both together are three rows for two freedoms: J M^-1 J^T has
rank two. If q*(t) stays on the circle the rows agree, accelerations are unique and only the multipliers are
not: rod and goal share the load in any way. If it leaves the circle they contradict each other, and nothing
satisfies all. The published example ("Controlling a pendulum with constraints", May 8, 2017) meets the
singular matrix and therefore solves the goal apart from the rod.

Solvers for full rank divide by what is zero up to round-off: they say so, or what they return is noise.
Solvers for any rank return the accelerations, and those that take the shortest multipliers share the load:
lam = J^+T (M a - f).

    python experiments/singular_goal.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae import control
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/singular_goal.yaml"
SOLVERS: dict[str, Any] = {
    "SchurComplement": jaxdae.SchurComplement(),
    "DenseKKT": jaxdae.DenseKKT(),
    "NullSpace, normal equations": jaxdae.NullSpace(jaxdae.operators.NormalEquations()),
    "BiconjugateGradient": jaxdae.BiconjugateGradient(),
    "NullSpace": jaxdae.NullSpace(jaxdae.operators.SingularValues(1e-5)),
    "LeastSquares": jaxdae.LeastSquares(1e-5),
    "Proximal": jaxdae.Proximal(),
    "ConjugateGradient": jaxdae.ConjugateGradient(rank_tolerance=1e-5),
}
FULL_RANK = 4  # so many of them need it


class Result(NamedTuple):
    """What became of one solver.

    Attributes:
        status: at the end.
        steps: that were made until it failed.
        away: largest distance from the goal in m.
        largest: multiplier, in N.
        shared: largest distance of the multipliers from the shortest ones, in N.
    """

    status: int
    steps: int
    away: float
    largest: float
    shared: float


@jaxdae.tree.pytree
class Along:
    """The goal: a point on the circle of radius 1 m at the angle swing sin(rate t), plus a radial offset.

    The offset grows as 1 - cos(rate t).
    """

    swing: Any
    rate: Any
    off: Any

    def __call__(self, t: Any) -> Any:
        """Return the place (2,) in m at a time in s."""
        phi = self.swing * jnp.sin(self.rate * t)
        radius = 1.0 + self.off * (1.0 - jnp.cos(self.rate * t))
        return radius * jnp.stack([jnp.sin(phi), -jnp.cos(phi)])


def with_goal(system: Any, goal: Along) -> Any:
    """Return the pendulum with the place of its mass as two further rows."""
    return control.WithGoals(system, (control.Goal(control.Coordinates((0, 1)), goal),))


def follow(system: Any, start: jaxdae.State, goal: Along, solver: Any, dt: float, steps: int) -> Result:
    """Return how a solver gets through, with RK4 and projections."""
    both = with_goal(system, goal)
    method = jaxdae.Projected(jaxdae.RungeKutta.rk4(solver=solver))
    # The start moves with the goal: phi' = swing rate.
    moving = jaxdae.State(start.t, start.q, jnp.zeros_like(start.v).at[0].set(goal.swing * goal.rate))
    found = jaxdae.rollout(both, method, moving, dt=dt, steps=steps)
    status = np.asarray(found.info.status)
    good = np.flatnonzero(status == jaxdae.Status.OK)
    if not len(good):
        return Result(int(status[-1]), 0, np.nan, np.nan, np.nan)
    # Multipliers are those at the start of a step: the state before.
    states = jax.tree.map(
        lambda first, x: jnp.concatenate([jnp.asarray(first)[None], x[:-1]]), moving, found.state
    )

    def shortest(state: jaxdae.State, a: Any) -> Any:
        jacobian = both.constraint_jacobian(state.t, state.q, state.v)
        rest = both.mass_matrix(state.q) @ a - both.force(state.t, state.q, state.v, None)
        return jnp.linalg.pinv(jacobian.T, rtol=1e-6) @ rest

    lam, exact = found.info.lam, jax.jit(jax.vmap(shortest))(states, found.info.a)
    away = jnp.linalg.norm(found.state.q[:, :2] - jax.vmap(goal)(found.state.t), axis=1)
    take = slice(0, good[-1] + 1)
    return Result(
        int(status[-1]),
        len(good),
        float(away[take].max()),
        float(jnp.abs(lam[take]).max()),
        float(jnp.abs(lam - exact)[take].max()),
    )


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    with precision(config):
        system, _, start = asked.worlds.one()
        goals = {
            "agree": Along(*map(jnp.asarray, (given["swing"], given["rate"], 0.0))),
            "contradict": Along(*map(jnp.asarray, (given["swing"], given["rate"], given["off"]))),
        }
        found = {
            (case, name): follow(system, start, goal, solver, config.dt, config.steps)
            for case, goal in goals.items()
            for name, solver in SOLVERS.items()
        }
    headings = (
        "rows",
        "solver",
        "status",
        "steps",
        "from the goal, m",
        "largest multiplier",
        "from the shortest",
    )
    rows = [
        (
            case,
            name,
            jaxdae.Status(x.status).name,
            str(x.steps),
            f"{x.away:.1e}",
            f"{x.largest:.3g}",
            f"{x.shared:.1e}",
        )
        for (case, name), x in found.items()
    ]
    passed = [
        name for name in SOLVERS if found["agree", name].status == 0 and found["agree", name].away < 1e-6
    ]
    sharing = [name for name in passed if found["agree", name].shared < 1e-6]
    silent = [name for name in SOLVERS if found["contradict", name].status == 0]
    sentences = [
        f"Where the rows agree, {', '.join(passed)} pass all steps on the goal; the others say"
        " "
        f"{', '.join(sorted({jaxdae.Status(found['agree', n].status).name for n in SOLVERS if n not in passed})) or 'nothing'}.",
        f"The load is shared by the shortest multipliers with {', '.join(sharing) or 'none'}.",
        "Where the rows contradict each other,"
        " "
        f"{'no solver goes on without a status' if not silent else ', '.join(silent) + ' go on without a status'}.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(9, 4.2), layout="constrained")
        axes = figure.subplots()
        for index, case in enumerate(goals):
            places = np.arange(len(SOLVERS)) + 0.38 * index
            axes.barh(
                places,
                [found[case, name].steps for name in SOLVERS],
                height=0.36,
                color=line_style(index)["color"],
                label=f"rows {case}",
            )
            for place, name in zip(places, SOLVERS, strict=True):
                x = found[case, name]
                name_of_status, style = (
                    jaxdae.Status(x.status).name,
                    {"fontsize": 8, "color": line_style(index)["color"]},
                )
                axes.text(x.steps + 0.01 * config.steps, place, name_of_status, va="center", **style)
        axes.set(
            yticks=np.arange(len(SOLVERS)) + 0.19,
            xlabel=f"steps passed, of {config.steps}",
            xlim=(0, 1.28 * config.steps),
        )
        axes.set_yticklabels(list(SOLVERS))
        axes.set_xticks(np.linspace(0, config.steps, 6))
        axes.invert_yaxis()
        axes.set_title("two rows of a goal beside the rod, three for two freedoms")
        figure.legend(loc="outside lower center", ncols=2)
    conclude(asked, headings, rows, sentences, {"singular_goal": figure})
    return 0


if __name__ == "__main__":
    sys.exit(main())

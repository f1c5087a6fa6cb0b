"""Bricard's overconstrained six-bar: which solvers follow its motion, and how well does its loop stay closed?

Five rods and six hinges have 30 velocities and 30 rows. One row depends on the others on all of its motion,
and only there: an instant off the manifold all of them are independent, and the mechanism is locked. A solver
has to decide the rank by a tolerance that lies above what a step leaves open. Compared are solvers that do,
and that which takes every row as it is.

    python experiments/bricard.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

The reference is the angle of the first rod as the only coordinate, with the loop closed in closed form,
integrated to 18 digits; compared is the place of the hinge P3, between the second and the third rod.
"""

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae.app import conclude, line_style, precision, script, skeleton, styled, write_animation

CONFIG = "configs/bricard.yaml"
REFERENCE = {  # s: place of P3 in m
    0.5: (0.7747178080392334, -0.979815047655669, -0.19990615895344271),
    1.0: (0.27448131926462305, -0.886707938734672, -0.46233000268737606),
    2.0: (-0.7781353730332908, -0.9803526834432565, -0.19725267061717064),
    5.0: (0.999932742302117, -0.9999999977383531, -6.725543608394534e-05),
    10.0: (0.9997309873038354, -0.9999999638258172, -0.0002689765122492711),
}
RANK = 1e-5  # singular values below this fraction of the largest count as zero
SOLVERS = {
    "null_space": jaxdae.NullSpace(jaxdae.operators.SingularValues(RANK)),
    "least_squares": jaxdae.LeastSquares(RANK),
    "proximal": jaxdae.Proximal(),
    "schur_complement": jaxdae.SchurComplement(),
}


class Result(NamedTuple):
    """One simulation, with an entry per saved state.

    The entries are the largest opening in m or rad, the energy error in J, the position of P3 in m, the poses
    and the status.
    """

    time: np.ndarray
    opening: np.ndarray
    energy: np.ndarray
    hinge: np.ndarray
    poses: np.ndarray
    status: np.ndarray


def simulate(system: Any, start: Any, solver: Any, dt: float, steps: int, save_every: int) -> Result:
    """Return what becomes of the mechanism with a solver."""
    method = jaxdae.Projected(jaxdae.RungeKutta.dormand_prince5(solver=solver))
    trajectory = jaxdae.rollout(system, method, start, dt=dt, steps=steps, save_every=save_every)
    states = trajectory.state
    energy = jax.vmap(lambda x: jaxdae.energy(system, x))(states) - jaxdae.energy(system, start)

    def hinge(q: Any) -> Any:
        rod = jax.tree.map(lambda entry: entry[1], system.frames(q))
        return rod.point(jnp.asarray([0.0, -0.5, 0.0])).array()

    time = dt * save_every * np.arange(1, steps // save_every + 1)
    numbers = (
        trajectory.info.violation,
        np.abs(energy),
        jax.vmap(hinge)(states.q),
        states.q.reshape(len(time), -1, 7),
    )
    return Result(time, *(np.asarray(x) for x in numbers), np.asarray(trajectory.info.status))


def error(result: Result) -> float:
    """Return the largest error of P3 at the times of the reference in m, of those that there are.

    NaN without any.
    """
    found = [
        np.linalg.norm(result.hinge[k] - place)
        for t, place in REFERENCE.items()
        for k in np.flatnonzero(np.abs(result.time - t) < 1e-9)
    ]
    return float(np.max(found)) if found else float("nan")


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config = asked.config
    with precision(config):
        system, _, start = asked.worlds.one()
        plan = config.dt, config.steps, config.save_every
        found = {name: simulate(system, start, solver, *plan) for name, solver in SOLVERS.items()}
    headings = ("solver", "opening, m or rad", "energy error, J", "error of P3, m", "status")
    rows, sentences = [], []
    for name, x in found.items():
        status, good = jaxdae.Status(int(x.status.max())), x.status == jaxdae.Status.OK
        if np.all(good):
            rows.append(
                (name, f"{x.opening.max():.2e}", f"{x.energy.max():.2e}", f"{error(x):.2e}", status.name)
            )
        else:
            rows.append((name, "", "", "", f"{status.name} at {x.time[~good][0]:.3g} s"))
            sentences.append(f"{name} stops at {x.time[~good][0]:.3g} s: {status.meaning}")
    best = found["null_space"]
    travelled = np.sum(np.linalg.norm(np.diff(best.hinge, axis=0), axis=1))
    opening, off = best.opening.max(), error(best)
    moved = f"P3 moves along {travelled:.3g} m in {config.duration:g} s with null_space"
    sentences.insert(0, f"{moved}; the loop opens by {opening:.2g} m or rad, and P3 is off by {off:.2g} m.")
    with styled() as figure_class:
        figure = figure_class(figsize=(9, 5.5), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        for index, (name, x) in enumerate(found.items()):
            good = x.status == jaxdae.Status.OK
            if not np.any(good):  # Only the table has it.
                continue
            upper.plot(x.time[good], np.maximum(x.opening[good], 1e-17), label=name, **line_style(index))
            lower.plot(x.time[good], np.maximum(x.energy[good], 1e-17), **line_style(index))
        upper.set(
            yscale="log",
            ylabel="largest opening in m or rad",
            title=f"{config.name}: an overconstrained loop, dt = {config.dt:g} s",
        )
        lower.set(yscale="log", ylabel="energy error in J", xlabel="time in s")
        figure.legend(loc="outside right center")
    shown = slice(None, max(1, round(3.0 / (config.dt * config.save_every))))
    mechanism: Any = config.mechanism
    lines = skeleton(mechanism, best.poses[shown])
    conclude(
        asked,
        headings,
        rows,
        sentences,
        {"bricard": figure},
        lambda folder: write_animation(
            folder / "bricard.gif",
            best.time[shown],
            lines,
            traces={"P3": best.hinge[shown]},
            title=config.name,
        ),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What single precision can reach: the floors of every integrator on the crank-rocker four-bar.

    python experiments/benchmarks/single_precision.py

Each method runs 1 s from rest in float32 and in float64, with steps of 20 ms down to 0.625 ms, against the
crank angle of the reference. Where the error in float64 is below a tenth of that in float32, rounding is all
that is left of it: the largest error in float32 at such steps is the method's floor, and the longest of them
the step below which there is nothing to gain. Beside it: the largest distance that opens between the points
of a joint and the largest rate of that, at any step size. Links are 1 to 2.5 m long, speeds up to 10 m/s; the
unit of rounding is 1.2e-7.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae as jd

jax.config.update("jax_enable_x64", True)
sys.path.insert(0, str(Path(__file__).parent))

from side_by_side import markdown, plain  # noqa: E402
from work_precision_problems import crank_rocker  # noqa: E402

END, EXACT = 1.0, -2.1812300736
STEPS = [50 * 2**k for k in range(6)]


def methods() -> dict:
    """Return the integrators by name."""
    explicit = {
        "explicit Euler, projected": jd.Projected(jd.ExplicitEuler()),
        "semi-implicit Euler, projected": jd.Projected(jd.SemiImplicitEuler()),
        "Taylor, projected": jd.Projected(jd.textbook.Taylor()),
        "RK4, projected": jd.Projected(jd.RungeKutta.rk4()),
        "Dormand-Prince 5, projected": jd.Projected(jd.RungeKutta.dormand_prince5()),
        "RKMK 4, projected": jd.Projected(jd.RungeKutta.rk4()),
        "HEM4, projected": jd.Projected(jd.HalfExplicitRungeKutta()),
    }
    closed = {
        "Rattle": jd.Rattle(),
        "discrete Euler-Lagrange": jd.DiscreteEulerLagrange(),
        "Rattle, Suzuki 4": jd.Composition.suzuki4(jd.Rattle()),
        "Rattle, Kahan-Li 6": jd.Composition.kahan_li6(jd.Rattle()),
        "Rattle, Kahan-Li 8": jd.Composition.kahan_li8(jd.Rattle()),
        "backward Euler": jd.BackwardEuler(),
        "implicit midpoint": jd.ImplicitMidpoint(),
        "generalized-alpha": jd.GeneralizedAlpha(),
        "Radau IIA": jd.RadauIIA(),
    }
    routes = {
        "sequential, RK4": jd.textbook.Sequential(jd.RungeKutta.rk4()),
        "projected step, RK4": jd.textbook.ProjectedStep(jd.RungeKutta.rk4()),
        "projected derivative, RK4": jd.textbook.ProjectedDerivative(jd.RungeKutta.rk4()),
        "adaptive Dopri5 (tolerance 1e-5)": jd.diffrax.Adaptive(rtol=1e-5, atol=1e-5),
    }
    return explicit | closed | routes


def cast(tree, dtype):
    """Return a pytree with its floating-point leaves in a precision."""
    return jax.tree.map(
        lambda x: jnp.asarray(x, dtype) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x, tree
    )


def measured(integrator, dtype) -> np.ndarray:
    """Return (error, opening, rate of opening), one row a step size.

    An infinite error where the run failed.
    """
    system, start, turns = crank_rocker().forms()["turns"]
    out = []
    for steps in STEPS:
        given = cast((system, integrator, start), dtype)
        run = jd.rollout(*given, dt=jnp.asarray(END / steps, dtype), steps=steps, save_every=steps)
        crank = float(turns(np.asarray(run.state.q[-1], float))[0])
        good = int(run.info.status[-1]) == jd.Status.OK
        error = abs(crank - EXACT) if good else np.inf
        out.append((error, float(run.info.violation[-1]), float(run.info.velocity_violation[-1])))
    return np.array(out)


def main() -> None:
    """Measures, prints and writes SINGLE_PRECISION.md beside this file."""
    rows = [["integrator", "floor, rad", "from steps of", "opening, m", "its rate, m/s", "least error, rad"]]
    for name, integrator in methods().items():
        single, double = (measured(integrator, dtype) for dtype in (jnp.float32, jnp.float64))
        rounding = double[:, 0] < 0.1 * single[:, 0]
        first = int(np.argmax(rounding))
        floor = f"{np.max(single[rounding, 0]):.1e}" if rounding.any() else "not reached"
        step = f"{1e3 * END / STEPS[first]:g} ms" if rounding.any() else "-"
        opening, rate = np.max(single[:, 1:], axis=0)
        rows.append([name, floor, step, f"{opening:.1e}", f"{rate:.1e}", f"{np.min(single[:, 0]):.1e}"])
        print(
            f"{name}: "
            f"{', '.join(f'{a:.1e} ({b:.1e})' for a, b in zip(single[:, 0], double[:, 0], strict=True))}",
            flush=True,
        )
    text = __doc__.split("\n\n", 2)
    path = Path(__file__).with_name("SINGLE_PRECISION.md")
    path.write_text(f"# Single precision\n\n`{text[1].strip()}`\n\n{text[2].strip()}\n\n{markdown(rows)}\n")
    print(plain(rows))


if __name__ == "__main__":
    main()

"""Tires whose normal loads are the multipliers of the height rows of their wheels.

The ground pushes on a wheel on terrain with the multiplier of its height row. From this load and the slip, a
tire computes forces along the ground. These forces accelerate the vehicle and thereby change the multiplier.
Let f(x) be the forces at loads x, and let C select the height rows:

    [ M  -J^T ] [ a   ]   [ f(max(x, 0)) ]
    [ J   0   ] [ lam ] = [ -gamma       ],        x = C lam(x).

This has as many equations as tires, and no further rows. Tires as additional rows, lam_lateral = mu(s)
lam_height, would push in other directions than their rows measure, and every solver here requires symmetric
matrices. Laws such as the brush model are also not proportional to the load. All solutions use the same
factors. The slope of C lam in x is the slope of the tires times the coupling of C (J M^-1 J^T)^-1 J M^-1. Its
size is friction times height of the mass center divided by the distance between wheels, 0.1 to 0.5 for cars.
Newton's method, with slopes after a first correction, solves the equation: exactly if forces are proportional
to loads (Magic Formula). Otherwise errors shrink by a factor of some hundredths per correction. The
derivative is the derivative of the root.

The loads belong to the stage that evaluates the forces, without a delay. They exclude the contribution of
stabilization to the multipliers.

References:
    H. B. Pacejka, "Tire and Vehicle Dynamics", chapter 4. M. Blundell, D. Harty, "The Multibody Systems
    Approach to Vehicle Dynamics", chapter 5 (tire forces from contact forces).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.mechanisms import Mechanism
from jaxdae.saddle_point.derivative import solve
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.linearization import linearize_at
from jaxdae.typing import Input, Leaf
from jaxdae.vehicles.tire_loads import WithLoads, carrying, loaded_tires, root


@pytree
class HeightLoads(WithLoads):
    """A mechanism in space whose tire loads are the multipliers of the height rows of their wheels.

    Every evaluation of forces computes the `load` of all tires on terrain. `system` is stored without the
    numbers given for it. `loads(state, u)` returns the loads in N, in the order of `tire_names`. A wheel at
    which the ground would have to pull has no tire force, and `report(state, u)` names it. Its
    height row remains active.

    Attributes:
        system: the mechanism, with `SlidingDisc` wheels that carry tires such as
            `jaxdae.mechanisms.spatial.BrushTire`.
        solver: a saddle-point solver for the multipliers. Height rows must be independent, as the rows of
            wheels with suspensions are.
        iterations: number of Newton iterations (static).

    Differentiable. One force evaluation costs as many evaluations of forces and solves as iterations, plus
    two of each per tire for the slopes. All use one factorization, which the accelerations share.
    """

    system: Mechanism
    solver: Leaf = None
    iterations: int = static(default=8)

    def _rows(self) -> np.ndarray:
        """Return the indices of the height rows of the tires (k,).

        Raises:
            ValueError: no tires on terrain.
        """
        names = self.system.row_names
        wheels = [
            wheel for group in loaded_tires(self.system).values() for wheel in getattr(group, "stands_on", ())
        ]
        if not wheels or len(wheels) != len(self.tire_names):
            raise ValueError(
                "HeightLoads needs tires on terrain, such as jaxdae.mechanisms.spatial.BrushTire on a "
                "SlidingDisc; use LoadTransfer in the plane"
            )
        return np.array([names.index(f"{wheel}.height") for wheel in wheels], int)

    def balanced(self, at: Evaluation, u: Input) -> tuple[Array, Array]:
        """Return the multipliers of the height rows (k,) in N, and the last relative change ()."""
        rows, here = self._rows(), linearize_at(at, self.solver)

        def missing(x: Any, args: Any) -> Any:
            at, u, here, bias = args
            f = at.with_system(carrying(at.system, jnp.maximum(x, 0.0))).force(u)
            return x - solve(here.factors, here.mass, here.jacobian, here.compliance, f, -bias)[1][rows]

        # Start from unloaded tires. One correction determines which wheels lift off. Slopes are computed
        # after it.
        nothing = jnp.zeros((rows.size,), at.q.dtype)
        return root(missing, nothing, (at, u, here, at.bias), moves=2, iterations=self.iterations)

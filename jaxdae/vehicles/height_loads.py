"""Tires whose normal loads are the multipliers of the height rows of their wheels.

The ground pushes at a wheel on terrain with the multiplier of its height row. A tire makes of it, and of the slip at hand, forces along
the ground, which accelerate the vehicle and thereby change the multiplier. With f(x) the forces at loads x and C the choice of the
height rows,

    [ M  -J^T ] [ a   ]   [ f(max(x, 0)) ]
    [ J   0   ] [ lam ] = [ -gamma       ],        x = C lam(x):

as many equations as tires, and no further rows. Tires as rows of their own, lam_lateral = mu(s) lam_height, would push in other directions
than their rows measure, and every solver here is for symmetric matrices; nor are laws such as the brush in proportion to the load. All
solutions have the same factors. The slope of C lam in x is that of the tires times the coupling of C (J M^-1 J^T)^-1 J M^-1, of the size
of friction times height of the mass center over the distance of wheels, 0.1 to 0.5 for cars. Newton's method, with the slopes after a
first correction, solves it: exactly where forces are in proportion to loads (Magic Formula), else errors shrink by a factor of some
hundredths a correction. The derivative is that of the root.

Loads are those of the stage in which forces are asked for: nothing lags behind. What stabilization adds to multipliers is no load.

References:
    H. B. Pacejka, "Tire and Vehicle Dynamics", chapter 4. M. Blundell, D. Harty, "The Multibody Systems Approach to Vehicle Dynamics",
    chapter 5 (tire forces from contact forces).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae._pytree import pytree, static
from jaxdae.linearization import linearize
from jaxdae.mechanisms import Mechanism
from jaxdae.saddle_point.derivative import solve
from jaxdae.system import State
from jaxdae.typing import Input, Leaf
from jaxdae.vehicles.loads import WithLoads, carrying, loaded_tires, root


@pytree
class HeightLoads(WithLoads):
    """A mechanism in space whose tires carry what the ground pushes their wheels with: the multipliers of the height rows.

    The `load` of all tires on terrain is computed at every evaluation of forces; numbers given for it are not used. `loads(state, u)`
    returns it, in N and in the order of `tire_names`. A wheel at which the ground would have to pull has no tire force, and
    `report(state, u)` names it; its height row goes on holding it.

    Attributes:
        system: the mechanism, with `SlidingDisc` wheels and tires such as `jaxdae.mechanisms.spatial.BrushTire` on them.
        solver: a saddle-point solver, for multipliers; height rows have to be independent, as those of wheels with suspensions are.
        iterations: of Newton's method (static).

    Differentiable. A force costs as many evaluations of forces and solutions as iterations, and two of each a tire for the slopes; all
    with one factorization, the same as that of the accelerations.
    """

    system: Mechanism
    solver: Leaf = None
    iterations: int = static(default=8)

    def _rows(self) -> np.ndarray:
        """Returns the numbers of the height rows of the tires (k,).

        Raises:
            ValueError: no tires on terrain.
        """
        names = self.system.row_names
        wheels = [wheel for group in loaded_tires(self.system).values() for wheel in getattr(group, "stands_on", ())]
        if not wheels or len(wheels) != len(self.tire_names):
            raise ValueError(
                "HeightLoads needs tires that stand on terrain, such as jaxdae.mechanisms.spatial.BrushTire on a SlidingDisc; in the plane"
                " LoadTransfer has the loads"
            )
        return np.array([names.index(f"{wheel}.height") for wheel in wheels], int)

    def balanced(self, state: State, u: Input) -> tuple[Array, Array]:
        """Returns the multipliers of the height rows (k,) in N, and the last relative change of the iteration ()."""
        mechanism, rows = self.system, self._rows()
        at = linearize(mechanism, state, self.solver)
        bias = mechanism.constraint_bias(state.t, state.q, state.v)

        def missing(x: Any, args: Any) -> Any:
            mechanism, state, u, at, bias = args
            f = carrying(mechanism, jnp.maximum(x, 0.0)).force(state.t, state.q, state.v, u)
            return x - solve(at.factors, at.mass, at.jacobian, at.compliance, f, -bias)[1][rows]

        # The loads of tires without load, then a correction that finds which wheels lift off, then the slopes there.
        nothing = jnp.zeros((rows.size,), state.q.dtype)
        return root(missing, nothing, (mechanism, state, u, at, bias), moves=2, iterations=self.iterations)

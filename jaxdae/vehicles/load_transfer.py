"""Tires whose normal loads follow from how the vehicle accelerates: load transfer inside a mechanism in the plane.

A vehicle in the plane does not know of heights. With its mass center at the height h, and no motion of roll and pitch, the loads F of its
wheels at places p, seen from the mass center of the whole mechanism, balance weight and inertia,

    sum F = m g,      sum F p = -m h (a_c(F) - g_p),

with a_c the acceleration of the mass center, which tires make of these loads, and g_p the gravity of the mechanism, along the plane of a
slope: on what is left of the acceleration tires push, at the ground. Of all loads that balance, `wheel_loads` takes those of least squares,
which are affine in a_c, so that there are two unknowns, however many wheels there are. Forces put into the equation again and again would
multiply errors by about friction times h over the distance of wheels, 0.1 to 0.3 for cars. Newton's method begins with one such correction,
which finds the wheels that lift off, and has the slopes of two more; then those of the last one do. The derivative is that of the root.
Mechanisms in space know of heights themselves, see `HeightLoads`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae._pytree import pytree, static
from jaxdae.linearization import linearize
from jaxdae.mechanisms import Mechanism
from jaxdae.saddle_point.derivative import solve
from jaxdae.system import State
from jaxdae.typing import Input, Leaf
from jaxdae.vehicles.commonroad import wheel_loads
from jaxdae.vehicles.loads import WithLoads, carrying, loaded_tires, root


@pytree
class LoadTransfer(WithLoads):
    """A mechanism in the plane whose tires carry what its acceleration leaves them.

    The `load` of brush and Magic Formula tires is computed at every evaluation of forces; numbers given for it are not used.
    `loads(state, u)` returns it, in N and in the order of `tire_names`. A wheel that would have to pull carries nothing: then the others
    carry more than the weight, the vehicle would tip in truth, and `report(state, u)` says so.
    A rollout does not say that: of all its states `jax.vmap(vehicle.report)` does. Where the last of the iterations changes the
    acceleration by more than a thousandth, forces are NaN, and a rollout ends with the status NONFINITE.

    Attributes:
        system: the mechanism, with three or more tires that have a load, not all on a line.
        height: of the mass center above the ground, in m.
        gravity: normal to the ground in m/s^2.
        solver: a saddle-point solver, for accelerations.
        iterations: of Newton's method with the last slopes (static).

    Differentiable. A force costs as many evaluations of forces and solutions as iterations, and three with slopes before, all with one
    factorization, the same as that of the accelerations.
    """

    system: Mechanism
    height: Leaf
    gravity: Leaf = 9.81
    solver: Leaf = None
    iterations: int = static(default=4)

    def requirements(self) -> Any:
        """Yield the conditions on the numbers; see `jaxdae.requirements`."""
        yield (self.height >= 0) & (self.height < np.inf), "height must be non-negative and finite"
        yield (self.gravity >= 0) & (self.gravity < np.inf), "gravity must be non-negative and finite"

    def balanced(self, state: State, u: Input) -> tuple[Array, Array]:
        """Returns the loads that balance (k,) in N, negative ones among them, and the last relative change of the iteration ()."""
        mechanism, q = self.system, state.q
        frames = mechanism.frames(q)
        points = [
            jax.vmap(lambda frame, point: frame.point(point).array())(
                jax.tree.map(lambda x, b=group.b: x[jnp.asarray(b)], frames), group.point_b
            )
            for group in self._tires().values()
        ]
        places = jnp.concatenate(points) - self._center(q)
        at = linearize(mechanism, state, self.solver)
        bias = mechanism.constraint_bias(state.t, q, state.v)

        def loads(acceleration: Any, args: Any) -> Array:
            vehicle, places = args[0], args[1]
            return wheel_loads(jnp.sum(vehicle.system.mass), places, vehicle.height, acceleration, vehicle.gravity)

        def missing(acceleration: Any, args: Any) -> Array:
            vehicle, _, state, u, at, bias = args
            mechanism = vehicle.system
            f = carrying(mechanism, jnp.maximum(loads(acceleration, args), 0.0)).force(state.t, state.q, state.v, u)
            a = solve(at.factors, at.mass, at.jacobian, at.compliance, f, -bias)[0]
            return acceleration - vehicle._acceleration(state.q, state.v, a) + mechanism.gravity.astype(a.dtype)

        # From the loads of a vehicle at rest. With two corrections by slopes of their own, loads near zero, where slopes of tires change
        # most, would be left to 1e-4.
        args, start = (self, places, state, u, at, bias), -mechanism.gravity.astype(q.dtype)
        acceleration, change = root(missing, start, args, moves=3, iterations=self.iterations, inverse=_inverse)
        return loads(acceleration, args), change

    def _tires(self) -> dict[str, Any]:
        """Returns the groups of tires that have a load.

        Raises:
            ValueError: fewer than three tires.
        """
        found = loaded_tires(self.system)
        count = len(self.tire_names)
        if count < 3:
            raise ValueError(
                f"LoadTransfer needs three or more tires with a load, such as BrushTire, not all on a line; this mechanism has {count}."
                " Of a single track axle_loads has the loads"
            )
        return found

    def _center(self, q: Any) -> Array:
        """Returns the mass center (2,) in m."""
        frames, mass = self.system.frames(q), self.system.mass
        return jnp.stack([jnp.sum(mass * frames.x), jnp.sum(mass * frames.y)]) / jnp.sum(mass)

    def _acceleration(self, q: Any, v: Any, a: Any) -> Array:
        """Returns the acceleration of the mass center (2,) in m/s^2: the second derivative along q (+) (s v + s^2 a / 2)."""

        def rate(s: Any) -> Array:
            return jax.jvp(lambda s: self._center(self.system.retract(q, s * v + 0.5 * s * s * a)), (s,), (jnp.ones_like(s),))[1]

        zero = jnp.zeros((), q.dtype)
        return jax.jvp(rate, (zero,), (jnp.ones_like(zero),))[1]


def _inverse(matrix: Any) -> Array:
    """Returns the inverse of a matrix (2, 2), in a batch too without a call of LAPACK for every world."""
    (a, b), (c, d) = jnp.unstack(matrix[0]), jnp.unstack(matrix[1])
    return jnp.stack([jnp.stack([d, -b]), jnp.stack([-c, a])]) / (a * d - b * c)

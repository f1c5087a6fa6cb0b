"""Tires whose normal loads follow from the acceleration of the vehicle: load transfer in a planar mechanism.

A mechanism in the plane has no heights. Let the mass center be at the height h, without roll and pitch
motion, and let p be the wheel positions relative to the mass center of the whole mechanism. The wheel loads F
then balance weight and inertia,

    sum F = m g,      sum F p = -m h (a_c(F) - g_p).

Here a_c is the acceleration of the mass center that the tires cause at these loads, and g_p is the gravity of
the mechanism along the plane of a slope: the tires provide the difference a_c - g_p, at the ground. Wheels
share the load as springs of equal stiffness that only push,

    F_i = max(x_0 + x_1 p_i1 + x_2 p_i2, 0).

These are the non-negative loads with the smallest sum of squares that balance. There are three unknowns for
any number of wheels. If no loads balance, the vehicle tips. Fixed-point iteration would multiply errors by
about friction times h divided by the distance between wheels, 0.1 to 0.3 for cars. Newton's method begins
with one fixed-point correction, which determines the wheels that lift off. It recomputes the slopes in two
more corrections, and then reuses the last slopes. The derivative is the derivative of the root. Mechanisms in
space have heights; see `HeightLoads`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.mechanisms import Mechanism
from jaxdae.saddle_point.derivative import solve
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.linearization import linearize_at
from jaxdae.typing import Input, Leaf
from jaxdae.vehicles.commonroad import check_not_collinear
from jaxdae.vehicles.tire_loads import SETTLED, WithLoads, carrying, loaded_tires, root


@pytree
class LoadTransfer(WithLoads):
    """A mechanism in the plane whose tire loads follow from its acceleration.

    Every evaluation of forces computes the `load` of brush and Magic Formula tires. `system` is stored
    without the numbers given for it. `loads(state, u)` returns the loads in N, in the order of `tire_names`.
    A wheel that lifts off has zero load, and `report(state, u)` names it; the other wheels carry the weight.
    If no loads balance, the vehicle tips. If it tips, or if the last iteration changes the loads by more than
    a thousandth, forces are NaN, and a rollout ends with the status NONFINITE.

    Attributes:
        system: the mechanism, with three or more tires that have a load, not all collinear.
        height: height of the mass center above the ground, in m.
        gravity: gravity normal to the ground in m/s^2.
        solver: a saddle-point solver, for accelerations.
        iterations: number of Newton iterations with the last slopes (static).

    Differentiable. One force evaluation costs as many evaluations of forces and solves as iterations, plus
    three evaluations with slopes before. All use one factorization, which the accelerations share.
    """

    system: Mechanism
    height: Leaf
    gravity: Leaf = 9.81
    solver: Leaf = None
    iterations: int = static(default=4)

    def requirements(self) -> Any:
        """Yield the conditions on the numbers; see `jaxdae.base.requirements`."""
        yield (self.height >= 0) & (self.height < np.inf), "height must be non-negative and finite"
        yield (self.gravity >= 0) & (self.gravity < np.inf), "gravity must be non-negative and finite"

    def balanced(self, at: Evaluation, u: Input) -> tuple[Array, Array]:
        """Return the balancing loads (k,) in N, negative at lifted wheels, and their change ()."""
        tires, mechanism, q = self._tires(), self.system, at.q
        frames = mechanism.frames(q)
        points = [
            jax.vmap(lambda frame, point: frame.point(point).array())(
                jax.tree.map(lambda x, b=group.b: x[jnp.asarray(b)], frames), group.point_b
            )
            for group in tires.values()
        ]
        places = jnp.concatenate(points) - self._center(q)
        check_not_collinear("LoadTransfer", places)
        size = jnp.sqrt(jnp.mean(places**2))
        balance = jnp.concatenate([jnp.ones((1, len(places)), q.dtype), places.T / size])
        inverse = _inverse(balance @ balance.T)
        here = linearize_at(at, self.solver)

        def loads(x: Any, args: Any) -> Array:
            vehicle, balance = args[:2]
            return jnp.sum(vehicle.system.mass) * (balance.T @ x)

        def missing(x: Any, args: Any) -> Array:
            vehicle, balance, inverse, size, at, u, here, bias = args
            mechanism, carried = vehicle.system, jnp.maximum(loads(x, args), 0.0)
            f = at.with_system(carrying(mechanism, carried)).force(u)
            a = solve(here.factors, here.mass, here.jacobian, here.compliance, f, -bias)[0]
            pushed = vehicle._acceleration(at.q, at.v, a) - mechanism.gravity.astype(a.dtype)
            needed = vehicle._needed(pushed / size)
            return inverse @ (balance @ carried / jnp.sum(mechanism.mass) - needed)

        # Start from the loads at rest. With two corrections that recompute slopes, loads near zero, where the
        # slopes of tires change most, would have errors of 1e-4.
        args = self, balance, inverse, size, at, u, here, at.bias
        start = inverse @ self._needed(-mechanism.gravity.astype(q.dtype) / size)
        x, change = root(missing, start, args, moves=3, iterations=self.iterations, inverse=_inverse)
        found = loads(x, args)
        # If no loads balance, iterates grow without bound and lose the weight.
        weight = jnp.sum(mechanism.mass) * self.gravity
        carried = jnp.sum(jnp.maximum(found, 0.0))
        balanced = jnp.abs(carried - weight) <= SETTLED * weight
        return found, jnp.asarray(jnp.where(balanced, change, jnp.inf))

    def _needed(self, pushed: Any) -> Array:
        """Return weight and moments per mass (3,), for the force (2,) of the ground per mass."""
        return jnp.stack([jnp.asarray(self.gravity, pushed.dtype), *(-self.height * pushed)])

    def _tires(self) -> dict[str, Any]:
        """Return the groups of tires that have a load.

        Raises:
            ValueError: fewer than three tires.
        """
        found = loaded_tires(self.system)
        count = len(self.tire_names)
        if count < 3:
            raise ValueError(
                "LoadTransfer needs at least three tires with a load, such as BrushTire, not all on a "
                f"line, got {count}; use axle_loads for a single-track vehicle"
            )
        return found

    def _center(self, q: Any) -> Array:
        """Return the mass center (2,) in m."""
        frames, mass = self.system.frames(q), self.system.mass
        return jnp.stack([jnp.sum(mass * frames.x), jnp.sum(mass * frames.y)]) / jnp.sum(mass)

    def _acceleration(self, q: Any, v: Any, a: Any) -> Array:
        """Return the mass-center acceleration (2,) in m/s^2, d^2/ds^2 along q (+) (s v + s^2 a / 2)."""

        def rate(s: Any) -> Array:
            return jax.jvp(
                lambda s: self._center(self.system.retract(q, s * v + 0.5 * s * s * a)),
                (s,),
                (jnp.ones_like(s),),
            )[1]

        zero = jnp.zeros((), q.dtype)
        return jax.jvp(rate, (zero,), (jnp.ones_like(zero),))[1]


def _inverse(matrix: Any) -> Array:
    """Return the inverse of a matrix (3, 3), without a LAPACK call per world in batches."""
    a, b, c = matrix
    rows = jnp.cross(jnp.stack([b, c, a]), jnp.stack([c, a, b]))
    return rows.T / jnp.sum(a * rows[0])

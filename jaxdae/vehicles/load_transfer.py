"""Tires whose normal loads follow from how the vehicle accelerates: load transfer inside a mechanism in the plane.

A vehicle in the plane does not know of heights. With its mass center at the height h, and no motion of roll and pitch, the loads F of its
wheels at places p, seen from the mass center of the whole mechanism, balance weight and inertia,

    sum F = m g,      sum F p = -m h a_c(F),

with a_c the acceleration of the mass center, which tires make of these loads. It is a fixed point: one iteration multiplies errors by about
friction times h over the distance of wheels, 0.1 to 0.3 for cars. Of all loads that balance, `wheel_loads` takes those of least squares.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae._pytree import pytree, static
from jaxdae.dynamics import forward_dynamics
from jaxdae.mechanisms import Mechanism
from jaxdae.saddle_point import SaddlePointSolver, SchurComplement
from jaxdae.system import State
from jaxdae.typing import Coordinates, Input, Leaf, Scalar, Velocity
from jaxdae.vehicles.commonroad import wheel_loads
from jaxdae.wrapper import Wrapper


@pytree
class LoadTransfer(Wrapper):
    """A mechanism in the plane whose tires carry what its acceleration leaves them.

    The `load` of brush and Magic Formula tires is computed at every evaluation of forces; numbers given for it are not used. A wheel that
    would have to pull carries nothing: then the others carry more than the weight, and the vehicle would tip in truth.

    Attributes:
        system: the mechanism, with three or more tires that have a load, not all on a line.
        height: of the mass center above the ground, in m.
        gravity: in m/s^2.
        solver: a saddle-point solver, for accelerations.
        iterations: of the fixed point (static).

    Differentiable; a force costs as many solutions of the dynamics as iterations.
    """

    system: Mechanism  # pyright: ignore[reportIncompatibleVariableOverride]
    height: Leaf
    gravity: Leaf = 9.81
    solver: SaddlePointSolver = SchurComplement()
    iterations: int = static(default=8)

    def force(self, t: Scalar, q: Coordinates, v: Velocity, u: Input) -> Velocity:
        """Returns f (nv,) of the mechanism with these loads, in N and N m."""
        return self._carrying(self.loads(State(t, q, v), u)).force(t, q, v, u)

    def loads(self, state: State, u: Input = None) -> Array:
        """Returns the loads (k,) of the tires in N, in the order of `tire_names`."""
        mechanism, q = self.system, state.q
        mass: Any = jnp.sum(mechanism.mass)
        frames = mechanism.frames(q)
        center = self._center(q)
        points = [
            jax.vmap(lambda frame, point: frame.point(point).array())(
                jax.tree.map(lambda x, b=group.b: x[jnp.asarray(b)], frames), group.point_b
            )
            for group in self._tires().values()
        ]
        places = jnp.concatenate(points) - center

        def balanced(acceleration: Any) -> Array:
            return jnp.maximum(wheel_loads(mass, places, self.height, acceleration, self.gravity), 0.0)

        def improved(loads: Any, _: Any) -> tuple[Any, None]:
            a, _ = forward_dynamics(self._carrying(loads), state, u, solver=self.solver)
            return balanced(self._acceleration(q, state.v, a)), None

        return jax.lax.scan(improved, balanced(jnp.zeros_like(center)), None, length=self.iterations)[0]

    @property
    def tire_names(self) -> tuple[str, ...]:
        """The names of the tires that have a load."""
        return tuple(name for group in self._tires().values() for name in group.names)

    def _tires(self) -> dict[str, Any]:
        """Returns the groups of tires that have a load.

        Raises:
            ValueError: fewer than three tires.
        """
        found = {key: group for key, group in self.system.forces.items() if hasattr(group, "load")}
        count = sum(len(group.names) for group in found.values())
        if count < 3:
            raise ValueError(
                f"LoadTransfer needs three or more tires with a load, such as BrushTire, not all on a line; this mechanism has {count}."
                " Of a single track axle_loads has the loads"
            )
        return found

    def _carrying(self, loads: Any) -> Mechanism:
        """Returns the mechanism with these loads (k,)."""
        forces, first = dict(self.system.forces), 0
        for key, group in self._tires().items():
            behind = first + len(group.names)
            forces[key] = dataclasses.replace(group, load=loads[first:behind])
            first = behind
        return dataclasses.replace(self.system, forces=forces)

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

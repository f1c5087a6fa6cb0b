"""What tires carry: mechanisms whose tires have the loads that follow from their motion, and reports of loads that no ground could give."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae._pytree import pytree, static
from jaxdae.mechanisms import Mechanism
from jaxdae.newton import simplified_newton
from jaxdae.requirements import check_requirements, offers
from jaxdae.status import Status
from jaxdae.system import State
from jaxdae.typing import Coordinates, Input, Leaf, Scalar, Velocity
from jaxdae.wrapper import Wrapper

_SETTLED = 1e-3
"""The last relative change of an iteration above which forces are none: steps with loads that were not found would look like others."""


@pytree
class LoadReport:
    """What the tires of a vehicle carry.

    Attributes:
        load: (k,) of the tires in N, not below zero.
        pull: (k,) by how much the ground would have to pull at a wheel in N, zero where it pushes. A wheel that is pulled at would lift
            off: the motion that is computed is not that of the vehicle then.
        change: () the last relative change of the iteration that found the loads.
        status: () OK; NOT_CONVERGED where the iteration has not ended.
        names: of the tires (static).
    """

    load: Leaf
    pull: Leaf
    change: Leaf
    status: Leaf
    names: tuple[str, ...] = static()

    def lifted(self) -> tuple[str, ...]:
        """Returns the names of the tires that are pulled at, on the host."""
        return tuple(name for name, pull in zip(self.names, self.pull, strict=True) if pull > 0.0)


def loaded_tires(mechanism: Mechanism) -> dict[str, Any]:
    """Returns the groups of tires that have a load."""
    return {key: group for key, group in mechanism.forces.items() if offers(group, "load")}


def carrying(mechanism: Mechanism, loads: Any) -> Mechanism:
    """Returns the mechanism whose tires have these loads (k,) in N, in the order of `loaded_tires`."""
    forces, first = dict(mechanism.forces), 0
    for key, group in loaded_tires(mechanism).items():
        behind = first + len(group.names)
        forces[key] = dataclasses.replace(group, load=jax.lax.slice_in_dim(loads, first, behind))
        first = behind
    return dataclasses.replace(mechanism, forces=forces)


class WithLoads(Wrapper):
    """A mechanism whose tires carry what follows from its motion; how it follows is what a class of this kind says.

    Attributes:
        system: the mechanism, with tires that have a load.
    """

    system: Mechanism  # pyright: ignore[reportIncompatibleVariableOverride]

    @abc.abstractmethod
    def balanced(self, state: State, u: Input) -> tuple[Array, Array]:
        """Returns the loads that balance (k,) in N, negative where wheels would have to pull, and the last relative change () of them."""

    def force(self, t: Scalar, q: Coordinates, v: Velocity, u: Input) -> Velocity:
        """Returns f (nv,) of the mechanism with these loads, in N and N m.

        NaN where the last correction was more than a thousandth of what it corrects: a rollout ends with NONFINITE there.
        """
        wanted, change = self.balanced(State(t, q, v), u)
        found = carrying(self.system, jnp.maximum(wanted, 0.0)).force(t, q, v, u)
        return jnp.where(change <= _SETTLED, found, jnp.nan)

    def loads(self, state: State, u: Input = None) -> Array:
        """Return the loads (k,) of the tires in N, in the order of `tire_names`.

        Raises:
            ValueError: numbers that have no meaning, such as a negative height of the mass center.
        """
        check_requirements(type(self).__name__, self)
        return jnp.maximum(self.balanced(state, u)[0], 0.0)

    def report(self, state: State, u: Input = None) -> LoadReport:
        """Return the loads, at which wheels the ground would have to pull, and a status; raise as `loads`."""
        check_requirements(type(self).__name__, self)
        wanted, change = self.balanced(state, u)
        pull = jnp.maximum(-wanted, 0.0)
        converged = change <= float(jnp.finfo(wanted.dtype).eps) ** 0.5
        status: Any = jnp.where(converged, Status.OK, Status.NOT_CONVERGED)
        return LoadReport(jnp.maximum(wanted, 0.0), pull, change, status.astype(jnp.int32), self.tire_names)

    @property
    def tire_names(self) -> tuple[str, ...]:
        """The names of the tires that have a load."""
        return tuple(name for group in loaded_tires(self.system).values() for name in group.names)


def root(
    missing: Callable[[Any, Any], Any],
    start: Any,
    args: Any,
    *,
    moves: int,
    iterations: int,
    inverse: Callable[[Any], Any] = jnp.linalg.inv,
) -> tuple[Any, Any]:
    """Returns x (n,) with missing(x, args) = 0 by Newton's method, and its last relative change (); the derivative is that of the root.

    A first correction without slopes finds which wheels lift off. Then come slopes at the points that are reached, and the last ones serve
    for all further iterations.

    Args:
        missing: function of x, x less what follows from it, and args.
        start: where it begins (n,).
        args: what it depends on besides, a pytree.
        moves: of three points with slopes, from how many x is corrected before the iterations (static).
        iterations: with the last slopes (static).
        inverse: the inverse of a matrix (n, n).
    """
    one, still = jnp.eye(start.size, dtype=start.dtype), jax.lax.stop_gradient(args)

    def guess(k: Any, at: Any) -> Any:
        x, _ = at
        residual, slopes = missing(x, still), jax.jacfwd(missing)(x, still)
        inverted = inverse(jnp.where(k == 0, one, slopes))
        return jnp.where(k < moves, x - inverted @ residual, x), inverted

    def correction(residual: Any, args: Any) -> Any:
        return args[1] @ residual

    better, inverted = jax.lax.fori_loop(0, 3, guess, (jax.lax.stop_gradient(start), one))
    return simplified_newton(
        lambda x, args: x - correction(missing(x, args[0]), args),
        lambda x, args: missing(x, args[0]),
        correction,
        iterations,
        better,
        (args, jax.lax.stop_gradient(inverted)),
        transposed=lambda residual, args: args[1].T @ residual,
    )

"""Tire loads: mechanisms whose tire loads follow from their motion, and reports of impossible loads."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.requirements import check_requirements, offers
from jaxdae.linalg.newton import simplified_newton
from jaxdae.mechanisms import Mechanism
from jaxdae.systems.evaluation import Evaluation, WrappedEvaluation, with_input
from jaxdae.systems.status import Status
from jaxdae.systems.system import State, check_mechanism
from jaxdae.systems.wrapper import Wrapper
from jaxdae.typing import Input, Leaf, Velocity

SETTLED = 1e-3
"""Relative change of the last iteration above which forces are NaN, so that unconverged loads are visible."""


@pytree
class LoadReport:
    """The loads of the tires of a vehicle.

    Attributes:
        load: (k,) loads of the tires in N, at least zero.
        pull: (k,) force in N with which the ground would have to pull at a wheel, zero where it pushes. Such
            a wheel lifts off in `LoadTransfer`. In `HeightLoads`, the ground pulls, and the computed motion
            is not the motion of the vehicle.
        change: () last relative change of the iteration for the loads.
        status: () OK; NOT_CONVERGED if the iteration has not converged.
        names: names of the tires (static).
    """

    load: Leaf
    pull: Leaf
    change: Leaf
    status: Leaf
    names: tuple[str, ...] = static()

    def lifted(self) -> tuple[str, ...]:
        """Return the names of the tires with a positive pull, on the host."""
        return tuple(name for name, pull in zip(self.names, self.pull, strict=True) if pull > 0.0)


def loaded_tires(mechanism: Mechanism) -> dict[str, Any]:
    """Return the groups of tires that have a load."""
    check_mechanism(mechanism)
    return {key: group for key, group in mechanism.forces.items() if offers(group, "load")}


def carrying(mechanism: Mechanism, loads: Any) -> Mechanism:
    """Return the mechanism with these tire loads (k,) in N, in the order of `loaded_tires`."""
    forces, first = dict(mechanism.forces), 0
    for key, group in loaded_tires(mechanism).items():
        behind = first + len(group.names)
        forces[key] = dataclasses.replace(group, load=jax.lax.slice_in_dim(loads, first, behind))
        first = behind
    return dataclasses.replace(mechanism, forces=forces)


@pytree
class _LoadedEvaluation(WrappedEvaluation):
    """The terms of `WithLoads`, whose tires carry the balancing loads."""

    def force(self, u: Input = None) -> Velocity:
        """Return f (nv,) of the mechanism with these loads, in N and N m.

        NaN if the relative size of the last correction exceeds a thousandth. A rollout then ends with
        NONFINITE.
        """
        wanted, change = with_input(self.system.balanced, self.inner, u)
        found = self.inner.with_system(carrying(self.system.system, jnp.maximum(wanted, 0.0))).force(u)
        return jnp.asarray(jnp.where(change <= SETTLED, found, jnp.nan))


class WithLoads(Wrapper):
    """A mechanism whose tire loads follow from its motion; subclasses define the load balance.

    Attributes:
        system: the mechanism, with tires that have a load. It is stored without their loads.
    """

    evaluation: ClassVar[type[WrappedEvaluation]] = _LoadedEvaluation
    system: Mechanism  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self) -> None:
        """Remove the given loads of the tires, which have no effect."""
        if isinstance(self.system, Mechanism):
            tires = {
                key: dataclasses.replace(tire, load=None) for key, tire in loaded_tires(self.system).items()
            }
            system = dataclasses.replace(self.system, forces={**self.system.forces, **tires})
            object.__setattr__(self, "system", system)

    @abc.abstractmethod
    def balanced(self, at: Evaluation, u: Input) -> tuple[Array, Array]:
        """Return the balancing loads (k,) in N, negative where the ground must pull, and their change ().

        Args:
            at: the terms of the mechanism at the state.
            u: input (nu,).
        """

    def loads(self, state: State, u: Input = None) -> Array:
        """Return the loads (k,) of the tires in N, in the order of `tire_names`.

        Raises:
            ValueError: numbers outside their valid range, such as a negative height of the mass center.
        """
        check_requirements(type(self).__name__, self)
        return jnp.maximum(self._balanced(state, u)[0], 0.0)

    def report(self, state: State, u: Input = None) -> LoadReport:
        """Return the loads, the pull at each wheel, and a status; raise the same errors as `loads`."""
        check_requirements(type(self).__name__, self)
        wanted, change = self._balanced(state, u)
        pull = jnp.maximum(-wanted, 0.0)
        converged = change <= float(jnp.finfo(wanted.dtype).eps) ** 0.5
        status: Any = jnp.where(converged, Status.OK, Status.NOT_CONVERGED)
        return LoadReport(jnp.maximum(wanted, 0.0), pull, change, status.astype(jnp.int32), self.tire_names)

    def _balanced(self, state: State, u: Input) -> tuple[Array, Array]:
        return self.balanced(self.system.evaluate(state.t, state.q, state.v), u)

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
    """Return x (n,) with missing(x, args) = 0 by Newton's method, and its last relative change ().

    The first correction uses no slopes and determines which wheels lift off. The next corrections recompute
    the slopes, and all further iterations reuse the last slopes. The derivative is the derivative of the
    root.

    Args:
        missing: function of x and args: x minus the value that follows from x.
        start: initial guess (n,).
        args: all other data of the equation, a pytree.
        moves: number of corrections before the iterations, at most three; slopes are evaluated at three
            points (static).
        iterations: number of iterations with the last slopes (static).
        inverse: function that inverts a matrix (n, n).
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

"""Symmetric compositions: high orders from a symmetric method of order two.

A method with steps gamma_1 h, ..., gamma_s h one after the other, symmetric coefficients gamma_i = gamma_{s+1-i} and

    sum gamma_i = 1,    sum gamma_i^3 = 0,    sum gamma_i^5 = 0 and one more for order 6, ...,

is symmetric again and of order 4, 6 or 8. It inherits what the steps have: symplecticity, exact momenta, constraints. Some steps go
backwards; with dissipative forces that loses stability, and methods that damp should not be composed.

References:
    E. Hairer, C. Lubich, G. Wanner, "Geometric Numerical Integration", sections II.4 and V.3.2. M. Suzuki, Phys. Lett. A 146 (1990).
    H. Yoshida, Phys. Lett. A 150 (1990). W. Kahan, R.-C. Li, Math. Comput. 66 (1997).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae._pytree import pytree, static
from jaxdae.integrators.interface import Integrator, StepInfo
from jaxdae.integrators.method import PointWrapping, is_symmetric
from jaxdae.linearization import Point
from jaxdae.status import Status, first_failure
from jaxdae.system import AnySystem, State


def _mirrored(*half: float) -> tuple[float, ...]:
    """Returns the coefficients from their first half and the middle one."""
    return (*half, *half[-2::-1])


_YOSHIDA = 1.0 / (2.0 - 2.0 ** (1.0 / 3.0))
_SUZUKI = 1.0 / (4.0 - 4.0 ** (1.0 / 3.0))

YOSHIDA4 = _mirrored(_YOSHIDA, 1.0 - 2.0 * _YOSHIDA)
SUZUKI4 = _mirrored(_SUZUKI, _SUZUKI, 1.0 - 4.0 * _SUZUKI)
YOSHIDA6 = _mirrored(0.78451361047755726382, 0.23557321335935813368, -1.17767998417887100695, 1.31518632068391121889)
KAHAN_LI6 = _mirrored(
    0.39216144400731413928, 0.33259913678935943860, -0.70624617255763935981, 0.08221359629355080023, 0.79854399093482996340
)
KAHAN_LI8 = _mirrored(
    0.13020248308889008088,
    0.56116298177510838456,
    -0.38947496264484728641,
    0.15884190655515560090,
    -0.39590389413323757734,
    0.18453964097831570709,
    0.25837438768632204729,
    0.29501172360931029887,
    -0.60550853383003451170,
)


@pytree
class Composition(PointWrapping):
    """Steps of a symmetric method of order two, of lengths gamma_i h; of the order of its coefficients.

    Attributes:
        integrator: a symmetric method of order two: `Rattle`, `DiscreteEulerLagrange`, `ImplicitMidpoint`, or one of your own that says so
            by a class attribute `symmetric = True`. The order of others would not rise.
        coefficients: gamma_i; they sum to 1. `Composition.yoshida4(...)` and its sisters fill them in.

    At high orders the parts have to be solved to round-off for the whole to be as accurate as it could be: `Rattle(iterations=12)`.

    `StepInfo.a` and `lam` are those of the first part, `violation` that at the end, `iterations` the most of a part. Inputs that are arrays
    are held over the whole step, laws are evaluated in the parts.
    """

    integrator: Integrator
    coefficients: tuple[float, ...] = static(default=SUZUKI4)

    def requirements(self) -> Any:
        """Yields what the method has to be; see `jaxdae.requirements`."""
        yield (
            is_symmetric(self.integrator),
            "integrator must be symmetric and of order two, as Rattle(), DiscreteEulerLagrange() and ImplicitMidpoint() are",
        )

    @classmethod
    def yoshida4(cls, integrator: Integrator) -> Composition:
        """Returns the triple jump of order 4: three parts, the longest 1.7 h."""
        return cls(integrator, YOSHIDA4)

    @classmethod
    def suzuki4(cls, integrator: Integrator) -> Composition:
        """Returns Suzuki's composition of order 4: five parts, the longest 0.66 h, with errors far below those of the triple jump."""
        return cls(integrator, SUZUKI4)

    @classmethod
    def yoshida6(cls, integrator: Integrator) -> Composition:
        """Returns Yoshida's composition of order 6: seven parts (solution A)."""
        return cls(integrator, YOSHIDA6)

    @classmethod
    def kahan_li6(cls, integrator: Integrator) -> Composition:
        """Returns Kahan and Li's composition of order 6: nine parts, with errors far below those of Yoshida's."""
        return cls(integrator, KAHAN_LI6)

    @classmethod
    def kahan_li8(cls, integrator: Integrator) -> Composition:
        """Returns Kahan and Li's composition of order 8: seventeen parts."""
        return cls(integrator, KAHAN_LI8)

    def init(self, system: AnySystem, state: State) -> Any:
        """Returns the memory of the parts.

        Raises:
            ValueError: coefficients that do not sum to 1, or are not symmetric.
        """
        gammas = self.coefficients
        if not gammas or abs(sum(gammas) - 1.0) > 1e-12:
            raise ValueError(f"Composition.coefficients must sum to 1, got {sum(gammas)}")
        if any(abs(x - y) > 1e-12 for x, y in zip(gammas, reversed(gammas), strict=True)):
            raise ValueError(f"Composition.coefficients must be symmetric, got {gammas}")
        return self.integrator.init(system, state)

    def advance(self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any) -> tuple[Point, Any, StepInfo]:
        """Returns the point after dt."""
        state, dt = point.state, jnp.asarray(dt, point.q.dtype)

        def part(carry: Any, gamma: Any) -> Any:
            at, memory, status, iterations = carry
            at, memory, info = self.inner.advance(system, at, memory, u, gamma * dt)
            status = first_failure(status, info.status)
            return (at, memory, status, jnp.maximum(iterations, info.iterations)), info

        # A loop: the program does not grow with the number of parts.
        start = (point, memory, jnp.asarray(Status.OK, jnp.int32), jnp.zeros((), jnp.int32))
        (new, memory, status, iterations), infos = jax.lax.scan(part, start, jnp.asarray(self.coefficients, state.q.dtype))
        first, last = (jax.tree.map(lambda x, k=k: x[k], infos) for k in (0, -1))
        info = dataclasses.replace(last, a=first.a, lam=first.lam, status=status, iterations=iterations)
        # Time in one sum: that of the parts would differ by rounding.
        return Point(State(state.t + dt, new.q, new.v), new.linearization, estimate=new.estimate), memory, info

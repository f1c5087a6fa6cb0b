"""Symmetric compositions: high-order methods from a symmetric method of order two.

A method with consecutive steps gamma_1 h, ..., gamma_s h, symmetric coefficients gamma_i = gamma_{s+1-i} and

    sum gamma_i = 1,    sum gamma_i^3 = 0,    sum gamma_i^5 = 0 and one more for order 6, ...,

is also symmetric and has order 4, 6 or 8. It inherits the properties of its steps: symplecticity, exact
momenta, constraints. Some steps go backward. With dissipative forces, this reduces stability. Do not compose
methods with numerical damping.

References:
    E. Hairer, C. Lubich, G. Wanner, "Geometric Numerical Integration", sections II.4 and V.3.2. M. Suzuki,
    Phys. Lett. A 146 (1990). H. Yoshida, Phys. Lett. A 150 (1990). W. Kahan, R.-C. Li, Math. Comput. 66
    (1997).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree, static
from jaxdae.integrators.integrator import Integrator, StepInfo
from jaxdae.integrators.method import PointWrapping, is_symmetric
from jaxdae.systems.linearization import Point
from jaxdae.systems.status import Status, first_failure
from jaxdae.systems.system import AnySystem, State


def _mirrored(*half: float) -> tuple[float, ...]:
    """Return the coefficients from the first half, including the middle coefficient."""
    return (*half, *half[-2::-1])


_YOSHIDA = 1.0 / (2.0 - 2.0 ** (1.0 / 3.0))
_SUZUKI = 1.0 / (4.0 - 4.0 ** (1.0 / 3.0))

YOSHIDA4 = _mirrored(_YOSHIDA, 1.0 - 2.0 * _YOSHIDA)
SUZUKI4 = _mirrored(_SUZUKI, _SUZUKI, 1.0 - 4.0 * _SUZUKI)
YOSHIDA6 = _mirrored(
    0.78451361047755726382, 0.23557321335935813368, -1.17767998417887100695, 1.31518632068391121889
)
KAHAN_LI6 = _mirrored(
    0.39216144400731413928,
    0.33259913678935943860,
    -0.70624617255763935981,
    0.08221359629355080023,
    0.79854399093482996340,
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
    """Composition of steps gamma_i h of a symmetric method of order two; the coefficients set the order.

    Attributes:
        integrator: a symmetric method of order two: `Rattle`, `DiscreteEulerLagrange`, `ImplicitMidpoint`, or
            your own method with the class attribute `symmetric = True`. Composition does not raise the order
            of other methods.
        coefficients: gamma_i; they sum to 1. Use the constructors, such as `Composition.yoshida4(...)`.

    At high orders, solve each part to round-off to reach the full accuracy, for example with
    `Rattle(iterations=12)`.

    `StepInfo.a` and `lam` come from the first part, `violation` from the end, and `iterations` is the maximum
    over the parts. Input arrays are held over the whole step; feedback laws are evaluated in each part.
    """

    integrator: Integrator
    coefficients: tuple[float, ...] = static(default=SUZUKI4)

    def requirements(self) -> Any:
        """Yield the conditions on the integrator; see `jaxdae.base.requirements`."""
        yield (
            is_symmetric(self.integrator),
            "integrator must be symmetric and of order two, as Rattle(), DiscreteEulerLagrange() and "
            "ImplicitMidpoint() are",
        )

    @classmethod
    def yoshida4(cls, integrator: Integrator) -> Composition:
        """Return the triple jump of order 4: three parts, the longest 1.7 h."""
        return cls(integrator, YOSHIDA4)

    @classmethod
    def suzuki4(cls, integrator: Integrator) -> Composition:
        """Return Suzuki's composition of order 4: five parts, the longest 0.66 h.

        Its errors are far below the errors of the triple jump.
        """
        return cls(integrator, SUZUKI4)

    @classmethod
    def yoshida6(cls, integrator: Integrator) -> Composition:
        """Return Yoshida's composition of order 6: seven parts (solution A)."""
        return cls(integrator, YOSHIDA6)

    @classmethod
    def kahan_li6(cls, integrator: Integrator) -> Composition:
        """Return Kahan and Li's composition of order 6: nine parts, far more accurate than `yoshida6`."""
        return cls(integrator, KAHAN_LI6)

    @classmethod
    def kahan_li8(cls, integrator: Integrator) -> Composition:
        """Return Kahan and Li's composition of order 8: seventeen parts."""
        return cls(integrator, KAHAN_LI8)

    def init(self, system: AnySystem, state: State) -> Any:
        """Return the memory of the parts.

        Raises:
            ValueError: the coefficients do not sum to 1, or are not symmetric.
        """
        gammas = self.coefficients
        if not gammas or abs(sum(gammas) - 1.0) > 1e-12:
            raise ValueError(f"Composition.coefficients must sum to 1, got {sum(gammas)}")
        if any(abs(x - y) > 1e-12 for x, y in zip(gammas, reversed(gammas), strict=True)):
            raise ValueError(f"Composition.coefficients must be symmetric, got {gammas}")
        return self.integrator.init(system, state)

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt."""
        state, dt = point.state, jnp.asarray(dt, point.q.dtype)

        def part(carry: Any, gamma: Any) -> Any:
            at, memory, status, iterations = carry
            at, memory, info = self.inner.advance(system, at, memory, u, gamma * dt)
            status = first_failure(status, info.status)
            return (at, memory, status, jnp.maximum(iterations, info.iterations)), info

        # Use a loop so that the program size does not depend on the number of parts.
        start = (point, memory, jnp.asarray(Status.OK, jnp.int32), jnp.zeros((), jnp.int32))
        (new, memory, status, iterations), infos = jax.lax.scan(
            part, start, jnp.asarray(self.coefficients, state.q.dtype)
        )
        first, last = (jax.tree.map(lambda x, k=k: x[k], infos) for k in (0, -1))
        info = dataclasses.replace(last, a=first.a, lam=first.lam, status=status, iterations=iterations)
        # Compute the time in one sum. Adding up the parts would change it by rounding.
        return (
            Point(State(state.t + dt, new.q, new.v), new.linearization, estimate=new.estimate),
            memory,
            info,
        )

"""Precomputed inputs, such as the result of `jaxdae optimize`, as a law."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import ascending
from jaxdae.systems.system import State
from jaxdae.typing import Input, Leaf

_ROUNDING = 2.0 / 3.0
"""The power of eps in the tolerance of times, relative to the largest time. The rounding error of a clock is
2e-11 of its time after 1e6 steps in double precision, and 1e-5 after 1e3 steps in single precision."""


@pytree
class HeldInputs:
    """u(t) = u_k from t_k to t_k+1: a table of inputs, each held until the next.

    The first input holds before the first time, the last input after the last time.

    Use it in `Sampled(integrator, law)`, which evaluates it at the start of every step. A time that is early
    by rounding counts as on time. Differentiable with respect to the values.

    Attributes:
        times: t_k (k,) in s, ascending.
        values: u_k (k, nu).
    """

    times: Leaf
    values: Leaf

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield ascending(self.times), "times must be increasing"

    def __call__(self, t: Any, state: State) -> Input:
        """Return u (nu,)."""
        times, values = (jnp.asarray(x, state.q.dtype) for x in (self.times, self.values))
        if times.ndim != 1 or values.ndim != 2 or values.shape[0] != times.shape[0] or times.shape[0] == 0:
            raise ValueError(
                f"HeldInputs: times must have the shape (k,), values (k, nu), got {times.shape} and "
                f"{values.shape}"
            )
        rounding = float(jnp.finfo(times.dtype).eps) ** _ROUNDING * jnp.max(jnp.abs(times))
        # At most half of the shortest interval, so that no value is skipped.
        early = jnp.minimum(rounding, 0.5 * jnp.min(jnp.diff(times), initial=jnp.inf))
        k = jnp.searchsorted(times, t + early, side="right") - 1
        return values[jnp.clip(k, 0, times.shape[0] - 1)]

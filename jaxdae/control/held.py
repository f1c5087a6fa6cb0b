"""Inputs that were found before, such as by `jaxdae optimize`, as a law."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae._pytree import pytree
from jaxdae.requirements import ascending
from jaxdae.system import State
from jaxdae.typing import Input, Leaf

_ROUNDING = 2.0 / 3.0
"""The power of eps, relative to the largest time: rounding leaves 2e-11 of it in a clock to which 1e6 steps were added in double precision,
and 1e-5 after 1e3 steps in single precision."""


@pytree
class HeldInputs:
    """u(t) = u_k from t_k to t_k+1: a table of inputs, each held to the next; the first before the first time, the last after the last.

    Meant for `Sampled(integrator, law)`, which evaluates it at the start of every step. A time that is early by rounding is on time.
    Differentiable with respect to the values.

    Attributes:
        times: t_k (k,) in s, ascending.
        values: u_k (k, nu).
    """

    times: Leaf
    values: Leaf

    def requirements(self) -> Any:
        """Yields what the fields have to satisfy; see `jaxdae.requirements`."""
        yield ascending(self.times), "times must ascend"

    def __call__(self, t: Any, state: State) -> Input:
        """Returns u (nu,)."""
        times, values = (jnp.asarray(x, state.q.dtype) for x in (self.times, self.values))
        if times.ndim != 1 or values.ndim != 2 or values.shape[0] != times.shape[0] or times.shape[0] == 0:
            raise ValueError(f"HeldInputs: times must have the shape (k,), values (k, nu), got {times.shape} and {values.shape}")
        rounding = float(jnp.finfo(times.dtype).eps) ** _ROUNDING * jnp.max(jnp.abs(times))
        # No more than half of the shortest interval, so that no value is passed over.
        early = jnp.minimum(rounding, 0.5 * jnp.min(jnp.diff(times), initial=jnp.inf))
        k = jnp.searchsorted(times, t + early, side="right") - 1
        return values[jnp.clip(k, 0, times.shape[0] - 1)]

"""Inputs that were found before, such as by `jaxdae optimize`, as a law."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae._pytree import pytree
from jaxdae.system import State
from jaxdae.typing import Input, Leaf

_EARLY = 1e-3  # of the shortest interval: times of steps are multiples of dt to rounding


@pytree
class HeldInputs:
    """u(t) = u_k from t_k to t_k+1: a table of inputs, each held to the next; the first before the first time, the last after the last.

    Meant for `Sampled(integrator, law)`, which evaluates it at the start of every step. Differentiable with respect to the values.

    Attributes:
        times: t_k (k,) in s, ascending.
        values: u_k (k, nu).
    """

    times: Leaf
    values: Leaf

    def __call__(self, t: Any, state: State) -> Input:
        """Returns u (nu,)."""
        times = jnp.asarray(self.times, state.q.dtype)
        early = _EARLY * jnp.min(jnp.diff(times)) if times.shape[0] > 1 else 0.0
        k = jnp.searchsorted(times, t + early, side="right") - 1
        return jnp.asarray(self.values, state.q.dtype)[jnp.clip(k, 0, times.shape[0] - 1)]

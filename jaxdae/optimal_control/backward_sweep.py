"""The quadratic problem of an expansion, solved backward in time.

The cost-to-go from a stage is v^T z + z^T V z / 2. At the end v = dl_f/dz and V = d^2 l_f/dz^2. A stage leads
to z' = A z + B du + e, where e is the gap. There the cost-to-go has the slope v' = v + V e. The cost of the
stage plus the cost-to-go therefore has the derivatives

    Q_z = l_z + A^T v'      Q_zz = l_zz + A^T V A      Q_uz = l_uz + B^T V A
    Q_u = l_u + B^T v'      Q_uu = l_uu + B^T V B + mu

The optimal change of the input is du = k + K z. Here k is the minimum of k^T Q_uu k / 2 + Q_u^T k within the
limits, lower - u <= k <= upper - u. K = -Q_uu^-1 Q_uz in the entries that are not at a limit, and zero in the
other entries. Substitution, without mu, gives the cost-to-go of the preceding stage:

    v = Q_z + K^T Q_uu k + K^T Q_u + Q_uz^T k,      V = Q_zz + K^T Q_uu K + K^T Q_uz + Q_uz^T K.

A sweep fails if Q_uu is not positive definite; a larger damping mu helps. The sweep is a block-tridiagonal
elimination of the optimality conditions of the quadratic problem and costs O(stages (n + nu)^3).

References:
    Y. Tassa, T. Erez, E. Todorov, "Synthesis and stabilization of complex behaviors through online trajectory
    optimization", IROS (2012), section II; and Tassa, Mansard, Todorov (2014), see `box_newton`. S. J.
    Wright, "Interior point methods for optimal control of discrete time systems", Journal of Optimization
    Theory and Applications 77 (1993).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.optimal_control.box_newton import box_minimum, minimum
from jaxdae.optimal_control.expansion import Expansion
from jaxdae.typing import Leaf


@pytree
class Sweep:
    """Changes of inputs du = k + K z to first order, and their predicted effect.

    Attributes:
        change: k (stages, nu).
        gain: K (stages, nu, n).
        good: whether all Q_uu are positive definite ().
        promised: (2,): without gaps, the cost changes by about s promised[0] + s^2 promised[1] for s k in
            place of k.
    """

    change: Leaf
    gain: Leaf
    good: Leaf
    promised: Leaf


def sweep(at: Expansion, controls: Array, limits: tuple[Array, Array] | None, damping: Array) -> Sweep:
    """Return the solution of the quadratic problem.

    Args:
        at: the expansion.
        controls: u (stages, nu).
        limits: the smallest and the largest inputs (nu,), None for no limits.
        damping: mu ().
    """
    n, size = at.a.shape[1], controls.shape[1]

    def backward(carried: Any, stage: Any) -> Any:
        v, big_v, good, promised = carried
        a, b, gap, slope, hessian, u = stage
        ab = jnp.concatenate([a, b], axis=1)
        q = slope + ab.T @ (v + big_v @ gap)
        qq = hessian + ab.T @ big_v @ ab
        qz, qu, qzz, quz, quu = q[:n], q[n:], qq[:n, :n], qq[n:, :n], qq[n:, n:]
        damped = quu + damping * jnp.eye(size, dtype=u.dtype)
        if limits is None:
            k, w, fine = minimum(damped, qu)
        else:
            k, _, w, fine = box_minimum(
                damped, qu, jnp.minimum(limits[0] - u, 0.0), jnp.maximum(limits[1] - u, 0.0)
            )
        gain = -(w.T @ (w @ quz))
        v = qz + gain.T @ (quu @ k + qu) + quz.T @ k
        big_v = qzz + gain.T @ quu @ gain + gain.T @ quz + quz.T @ gain
        promised = promised + jnp.stack([k @ qu, 0.5 * k @ quu @ k])
        return (v, 0.5 * (big_v + big_v.T), good & fine, promised), (k, gain)

    begin = (at.final_slope, at.final_hessian, jnp.ones((), bool), jnp.zeros((2,), controls.dtype))
    stages = (at.a, at.b, at.gap, at.slope, at.hessian, controls)
    (_, _, good, promised), (change, gain) = jax.lax.scan(backward, begin, stages, reverse=True)
    return Sweep(change, gain, good & jnp.all(jnp.isfinite(change)) & jnp.all(jnp.isfinite(gain)), promised)

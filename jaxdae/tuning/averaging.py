"""A loss averaged over a batch, with its gradient, on one or more devices.

Every device evaluates the loss and the gradient of its own items,

    L_d = sum_i w_i loss(x, item_i) / n,      w_i = 1, or 0 for a copy that makes the items divide evenly,

and one all-reduce of the numbers (L_d, dL_d/dx) distributes the mean and its gradient to all devices. A step
of a fit exchanges 8 bytes per trained number and 8 bytes for the loss, independent of the length of the
rollouts. The devices may belong to several processes that JAX's runtime has connected. The order of the sum
depends on the number of devices, and so do the last bits of the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.compile.layout import automatic
from jaxdae.tuning.differentiation import Mode

_Loss = Callable[[Any, Any], Any]


def mean(loss: _Loss, x: Any, items: Any, mesh: jax.sharding.Mesh | None) -> Any:
    """Return the mean of loss(x, item) over the items, or loss(x, None) without items.

    Args:
        loss: (x, item) -> scalar.
        x: a pytree.
        items: a pytree whose leaves have a leading axis of items, or None.
        mesh: the devices among which the items are divided; None for one device.

    Raises:
        ValueError: a loss that is not a scalar.
    """
    if items is None:
        return _scalars(loss(x, None), ())
    if mesh is None:
        return jnp.mean(_of_each(loss, x, items))
    return _divided(lambda x, *own: _weighted(loss, x, *own), x, items, mesh)


def value_and_grad(
    mode: Mode, loss: _Loss, x: Any, items: Any, mesh: jax.sharding.Mesh | None
) -> tuple[Any, Any]:
    """Return the mean over the items, see `mean`, and its gradient by `mode`, a pytree like x."""
    if items is None or mesh is None:
        return mode.value_and_grad(lambda x: mean(loss, x, items, None), x)
    return _divided(
        lambda x, *own: mode.value_and_grad(lambda x: _weighted(loss, x, *own), x), x, items, mesh
    )


def _of_each(loss: _Loss, x: Any, items: Any) -> Any:
    return _scalars(jax.vmap(loss, in_axes=(None, 0))(x, items), (jax.tree.leaves(items)[0].shape[0],))


def _scalars(value: Any, shape: tuple[int, ...]) -> Any:
    if not hasattr(value, "shape") or value.shape != shape:
        raise ValueError(
            f"loss must return a scalar, got {getattr(value, 'shape', type(value).__name__)}; reduce it "
            "with jnp.mean or jnp.sum"
        )
    return value


def _weighted(loss: _Loss, x: Any, items: Any, weights: Any) -> Any:
    """Return the weighted sum of the losses; a copy has weight zero, even if its loss is not finite."""
    losses = _of_each(loss, x, items)
    weights = weights.astype(losses.dtype)
    return jnp.sum(jnp.where(weights > 0, losses, 0.0) * weights)


def _divided(function: Callable[..., Any], x: Any, items: Any, mesh: jax.sharding.Mesh) -> Any:
    """Return the sum over all devices of function(x, items of the device, weights of these items)."""
    count, names = jax.tree.leaves(items)[0].shape[0], mesh.axis_names
    padded = -(-count // mesh.size) * mesh.size
    numbers = jnp.arange(padded)
    weights = jnp.where(numbers < count, 1.0 / count, 0.0)
    items = jax.tree.map(lambda leaf: jnp.take(leaf, jnp.minimum(numbers, count - 1), axis=0), items)
    own, everywhere = jax.sharding.PartitionSpec(names), jax.sharding.PartitionSpec()
    summed = jax.shard_map(
        lambda *of_device: jax.lax.psum(function(*of_device), names),
        mesh=automatic(mesh),
        in_specs=(everywhere, own, own),
        out_specs=everywhere,
        check_vma=False,  # Devices are independent inside; the sum of their results is the only exchange.
    )
    return summed(x, items, weights)

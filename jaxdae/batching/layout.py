"""On which devices the worlds of a batch run, and how many of them at a time."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae._pytree import pytree, static

_CACHE = 4_000_000
"""Bytes of matrices of all worlds of a chunk, on a CPU: what a step makes of them then stays within a few MB, in the cache of a core."""
_LEAST, _MOST = 32, 256
"""Fewer worlds at a time leave the vector units empty; more only take memory."""
_LARGE, _LEAST_OF_LARGE = 512, 16
"""The number of velocities beyond which a step keeps so much of each world, half a megabyte and more, that fewer worlds are faster."""
_VECTOR = 32
"""Bytes of the vectors that XLA prefers on a CPU. What does not fill one it computes number by number, where a product and a sum may be
rounded otherwise: seen of a pendulum with a damped hinge in chunks of 7, 10, 18 and 50, and never in multiples of four."""


class Remainder(enum.Enum):
    """What is done with worlds that do not divide evenly among devices and chunks."""

    PAD = "pad"
    """The last world is repeated until they do; its copies are computed and cut off."""
    REFUSE = "refuse"
    """It is an error."""


@dataclasses.dataclass(frozen=True)
class Fused:
    """Select fused kernels in a `Layout`: one kernel per rollout, on CPUs and NVIDIA GPUs, from the program of one world.

    A CPU needs a C++ compiler, and a GPU needs nvcc. No GPU has run the kernels yet. A program that cannot become a kernel runs by XLA,
    with a `jaxdae.fused.FallbackWarning` that states the reason. So do all programs on other platforms.
    """


@pytree
class Layout:
    """Where the worlds of a batch run.

    Attributes:
        mesh: the devices, in a mesh of any number of axes; None for all that JAX sees. Where the caller has set a mesh (`jax.set_mesh`) or
            is inside of `jax.shard_map`, None leaves the worlds where they are.
        chunk: the most worlds that a device runs at a time; 1 counts as two, and on a CPU whole vectors are filled: with multiples of four
            worlds in double precision, of eight in single. None: all of them on an accelerator; on a CPU as many as keep what a step
            computes in the cache, see `placement`.
        remainder: what is done with worlds that do not divide, see `Remainder`.
        kernel: `Fused()` to run each world through one kernel with the time loop inside; None for a batch by XLA. See
            docs/fused.md. A kernel takes the worlds of a device in vectors and ignores `chunk`.

    No result depends on it beyond round-off, and on like hardware none depends in any bit on how many worlds a chunk has. The programs for
    several devices, or several chunks, may contract other products and sums to fused multiply-adds than that for one; see `docs/layout.md`.
    """

    mesh: jax.sharding.Mesh | None = static(default=None)
    chunk: int | None = static(default=None)
    remainder: Remainder = static(one_of=Remainder, default=Remainder.PAD)
    kernel: Fused | None = static(default=None)

    def placement(self, worlds: int, nv: int, dtype: Any) -> Placement:
        """Returns what is chosen for a number of worlds.

        Args:
            worlds: how many.
            nv: the number of velocities of each: on a CPU, a chunk holds as many worlds as have 4 MB of matrices of that size, four in
                each world, but 32 to 256, and 16 where there are more than 512 velocities. Measured and stated in `docs/layout.md`.
            dtype: the precision.

        Raises:
            TypeError: a field of another type.
            ValueError: a chunk that is not positive, or worlds that do not divide where that is refused.
        """
        self._check()
        mesh = self.mesh
        placed_by_caller = mesh is None and not jax.sharding.get_abstract_mesh().empty
        if mesh is None and not placed_by_caller and jax.device_count() > 1:
            mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("world",))
        mesh = None if mesh is None else automatic(mesh)
        devices = 1 if mesh is None else mesh.size
        share = -(-worlds // devices)
        on_cpu = (jax.default_backend() if mesh is None else mesh.devices.flat[0].platform) == "cpu" and not placed_by_caller
        most = self.chunk
        if most is None:
            room = _CACHE // (4 * max(nv, 1) ** 2 * np.dtype(dtype).itemsize)
            least = _LEAST_OF_LARGE if nv > _LARGE else _LEAST
            most = min(max(least, room), _MOST) if on_cpu else share
        if self.remainder is Remainder.REFUSE:
            if worlds % devices or (self.chunk is not None and share % min(most, share)):
                raise ValueError(
                    f"layout: {worlds} worlds do not divide among {devices} devices and chunks of {min(most, share)};"
                    " choose another number or chunk, or remainder=Remainder.PAD"
                )
            chunks = next(n for n in range(-(-share // most), share + 1) if share % n == 0)
            return Placement(worlds, mesh, chunks, share // chunks)
        # One world alone would be compiled without a world axis, to other last bits. Chunks are of one size, as even as they can be.
        vector = lanes(dtype) if on_cpu and worlds > 1 else 1
        least = max(min(worlds, 2), vector)
        most = max(most // vector * vector, least)
        chunks = -(-share // most)
        if self.chunk is None:  # A few more chunks, where no copies are needed then.
            chunks = next((n for n in range(chunks, 2 * chunks) if share % (n * vector) == 0), chunks)
        return Placement(worlds, mesh, chunks, max(-(-share // (chunks * vector)) * vector, least))

    def _check(self) -> None:
        for name, kind in (("mesh", jax.sharding.Mesh), ("chunk", int | np.integer), ("kernel", Fused)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
                raise TypeError(f"layout: {name} must be of type {getattr(kind, '__name__', kind)}, got {value!r}")
        if self.chunk is not None and self.chunk < 1:
            raise ValueError(f"layout: chunk must be at least 1, got {self.chunk}")


def lanes(dtype: Any) -> int:
    """Returns how many worlds fill a vector of a CPU: in multiples of it every world has the same bits, wherever it stands.

    Args:
        dtype: the precision.
    """
    return _VECTOR // np.dtype(dtype).itemsize


def automatic(mesh: jax.sharding.Mesh) -> jax.sharding.Mesh:
    """Returns a mesh of the same devices that leaves to the compiler where arrays lie: the last worlds need not divide among them."""
    names = mesh.axis_names
    return jax.sharding.Mesh(mesh.devices, names, axis_types=(jax.sharding.AxisType.Auto,) * len(names))


@dataclasses.dataclass(frozen=True)
class Placement:
    """What a layout chose for a number of worlds.

    Attributes:
        worlds: how many there are.
        mesh: the devices over which they are spread; None for one, or where the caller has placed them.
        chunks: how many times a device begins anew.
        chunk: how many worlds a device runs at a time.
    """

    worlds: int
    mesh: jax.sharding.Mesh | None
    chunks: int
    chunk: int

    @property
    def devices(self) -> int:
        """How many devices."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def together(self) -> int:
        """How many worlds run at a time on all devices."""
        return self.devices * self.chunk

    @property
    def added(self) -> int:
        """How many copies of the last world are computed and cut off."""
        return self.together * self.chunks - self.worlds

    @property
    def share(self) -> int:
        """How many worlds a device has, without the copies that it makes itself."""
        return -(-self.worlds // self.devices)

    def record(self) -> dict[str, int]:
        """Returns what was chosen, in numbers: devices, worlds at a time on each, chunks, copies of the last world."""
        return {"devices": self.devices, "chunk": self.chunk, "chunks": self.chunks, "added_worlds": self.added}

    def spread(self, leaves: list[Any], axes: list[int | None]) -> list[Any]:
        """Returns the leaves with copies of the last world, placed on the devices, split along their world axes."""
        return [self._placed(self._padded(x, axis), axis) for x, axis in zip(leaves, axes, strict=True)]

    def over_devices(self, function: Callable[..., Any], stacked: tuple[Any, ...], shared: tuple[Any, ...]) -> Any:
        """Returns what a function of the worlds of one device gives for all of them, (world, ...).

        Each device runs the whole program on its own worlds. Left to the compiler, the factorizations that it calls from a library would
        not be divided: every device would do those of all worlds.

        Args:
            function: takes `stacked` of the worlds of a device, then `shared`; returns arrays (world, ...).
            stacked: pytrees of arrays (..., world).
            shared: pytrees of arrays that are the same for all worlds.
        """
        if self.mesh is None or self.devices == 1:
            return function(*stacked, *shared)
        names, nowhere = self.mesh.axis_names, jax.sharding.PartitionSpec()
        divided = jax.tree.map(lambda x: jax.sharding.PartitionSpec(*[None] * (jnp.ndim(x) - 1), names), stacked)
        specs = (*divided, *jax.tree.map(lambda _: nowhere, shared))
        return jax.shard_map(function, mesh=self.mesh, in_specs=specs, out_specs=jax.sharding.PartitionSpec(names))(*stacked, *shared)

    def split(self, x: Any) -> Any:
        """Returns (chunk, ..., world) of an array (..., world) of a device."""
        return jnp.moveaxis(x.reshape(*x.shape[:-1], self.chunks, self.chunk), -2, 0)

    def join(self, x: Any) -> Any:
        """Returns (world, ...) of an array (chunk, world, ...) of a device."""
        return x.reshape(self.chunks * self.chunk, *x.shape[2:])

    def filled(self, x: Any) -> Any:
        """Returns (..., world) of an array (..., world) of a device with copies of its last world: no device asks another for them."""
        missing = self.chunks * self.chunk - self.share
        return jnp.concatenate([x, jnp.repeat(x[..., -1:], missing, axis=-1)], axis=-1) if missing else x

    def own(self, x: Any) -> Any:
        """Returns (world, ...) of a device without the copies that it made."""
        return x[: self.share]

    def cut(self, x: Any) -> Any:
        """Returns (world, ...) without copies that make the devices even."""
        return x[: self.worlds] if self._uneven else x

    @property
    def _uneven(self) -> int:
        return self.devices * self.share - self.worlds

    def _padded(self, x: Any, axis: int | None) -> Any:
        if axis is None or not self._uneven:
            return x
        # Slices, whose derivatives are padded. That of a gather is a scatter, at which XLA ends the process where worlds do not divide.
        last = jax.lax.slice_in_dim(jnp.asarray(x), x.shape[axis] - 1, x.shape[axis], axis=axis)
        return jnp.concatenate([jnp.asarray(x), *[last] * self._uneven], axis=axis)

    def _placed(self, x: Any, axis: int | None) -> Any:
        if self.mesh is None:
            return x
        names: list[Any] = [None] * jnp.ndim(x)
        if axis is not None:
            names[axis] = self.mesh.axis_names
        return jax.device_put(x, jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec(*names)))


def local(x: Any) -> np.ndarray:
    """Returns the part of an array that lies on the devices of this process: all of it where there is one process."""
    if not isinstance(x, jax.Array) or x.is_fully_addressable or x.is_fully_replicated:
        return np.asarray(x)
    parts = {tuple((s.start or 0) for s in shard.index): shard for shard in x.addressable_shards}
    starts = sorted(parts)
    (axis,) = [k for k in range(x.ndim) if len({start[k] for start in starts}) > 1] or [0]
    return np.concatenate([np.asarray(parts[start].data) for start in starts], axis=axis)

"""Devices and chunks: where the worlds of a batch run, and how many of them run at a time."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree, static
from jaxdae.compile.thresholds import KERNEL_WORK

_CACHE = 4_000_000
"""The size in bytes of the matrices of all worlds of a chunk on a CPU. The data that a step computes from
them then stays within a few MB, in the cache of a core."""
_LEAST, _MOST = 32, 256
"""The range of worlds at a time: fewer leave the vector units empty, more only take memory."""
_LARGE, _LEAST_OF_LARGE = 512, 16
"""The number of velocities above which smaller chunks are faster, and the smallest chunk there. A step then
stores half a megabyte or more per world."""
_VECTOR = 32
"""The size in bytes of the vectors that XLA prefers on a CPU. XLA computes a remainder that does not fill a
vector element by element, and may round a product and a sum differently there. This was observed for a
pendulum with a damped hinge in chunks of 7, 10, 18 and 50, and never in multiples of four."""


class Remainder(enum.Enum):
    """Treatment of worlds that do not divide evenly among devices and chunks."""

    PAD = "pad"
    """Repeat the last world until the worlds divide evenly; compute the copies and discard them."""
    REFUSE = "refuse"
    """Raise an error."""


@dataclasses.dataclass(frozen=True)
class Fused:
    """Select fused kernels in a `Layout`: one kernel per rollout, from the program of one world.

    Kernels run on CPUs and NVIDIA GPUs. A CPU needs a C++ compiler, and a GPU needs nvcc. No GPU has run the
    kernels yet. XLA runs a program that cannot become a kernel, with a `jaxdae.fused.FallbackWarning` that
    states the reason. XLA also runs all programs on other platforms.

    Attributes:
        largest: the largest number of scalar operations of a kernel; XLA runs larger programs.
    """

    largest: int = 200_000


@dataclasses.dataclass(frozen=True)
class Automatic:
    """Let a `Layout` choose between a fused kernel and XLA; the default.

    A kernel runs a batch if the default platform is a CPU, a C++ compiler is present, the caller has not
    placed the worlds on a mesh, and the batch is so long that a kernel saves more time than its compilation
    takes. XLA runs all other batches, and programs that cannot become a kernel, without a warning. The last
    digits of the results depend on this choice. To fix the choice, pass `Fused()` or None.

    Attributes:
        work: the smallest product of worlds and steps for which a kernel runs the batch.
        largest: the largest number of scalar operations of a kernel.
    """

    work: int = KERNEL_WORK
    largest: int = 40_000


@pytree
class Layout:
    """Devices and chunks on which the worlds of a batch run.

    Attributes:
        mesh: the devices, a mesh with any number of axes; None for all devices that JAX sees. If the caller
            has set a mesh (`jax.set_mesh`) or runs inside `jax.shard_map`, None leaves the placement of the
            worlds unchanged.
        chunk: the largest number of worlds that a device runs at a time, at least 2 (1 is rounded up). On a
            CPU, chunks fill whole vectors: multiples of four worlds in double precision, of eight in single
            precision. None: all worlds on an accelerator; on a CPU, the number of worlds whose data of a step
            fit into the cache, see `placement`.
        remainder: treatment of worlds that do not divide evenly, see `Remainder`.
        kernel: `Fused()` to run each world through one kernel that contains the time loop; None to run a
            batch by XLA; `Automatic()`, the default, to let jaxdae choose. See docs/fused.md. A kernel runs
            the worlds of a device in vectors and ignores `chunk`.

    Results depend on the layout only within round-off. On the same hardware, they are bitwise independent of
    the number of worlds per chunk. A program for several devices, or for several chunks, may combine
    different products and sums into fused multiply-adds than the program for one device and chunk; see
    `docs/layout.md`.
    """

    mesh: jax.sharding.Mesh | None = static(default=None)
    chunk: int | None = static(default=None)
    remainder: Remainder = static(one_of=Remainder, default=Remainder.PAD)
    kernel: Fused | Automatic | None = static(default=Automatic())

    def placement(self, worlds: int, nv: int, dtype: Any) -> Placement:
        """Return the placement of a number of worlds.

        Args:
            worlds: the number of worlds.
            nv: the number of velocities of each world. On a CPU, a chunk holds as many worlds as fit into 4
                MB, with four nv by nv matrices per world, but 32 to 256 worlds, and 16 above 512 velocities.
                Without `chunk`, a smaller chunk is used if it avoids copies of the last world.
                `docs/layout.md` states the measurements.
            dtype: the floating-point dtype.

        Raises:
            TypeError: a field has the wrong type.
            ValueError: `chunk` is not positive, or the worlds do not divide evenly and `remainder` is REFUSE.
        """
        self._check()
        mesh = self.mesh
        placed_by_caller = _is_placed_by_caller(mesh)
        if mesh is None and not placed_by_caller and jax.device_count() > 1:
            mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("world",))
        mesh = None if mesh is None else automatic(mesh)
        devices = 1 if mesh is None else mesh.size
        share = -(-worlds // devices)
        on_cpu = (
            jax.default_backend() if mesh is None else mesh.devices.flat[0].platform
        ) == "cpu" and not placed_by_caller
        most = self.chunk
        if most is None:
            room = _CACHE // (4 * max(nv, 1) ** 2 * np.dtype(dtype).itemsize)
            least = _LEAST_OF_LARGE if nv > _LARGE else _LEAST
            most = min(max(least, room), _MOST) if on_cpu else share
        if self.remainder is Remainder.REFUSE:
            if worlds % devices or (self.chunk is not None and share % min(most, share)):
                raise ValueError(
                    f"layout: {worlds} worlds cannot be divided evenly among {devices} devices and chunks "
                    f"of {min(most, share)}; choose another number or chunk, or use remainder=Remainder.PAD"
                )
            chunks = next(n for n in range(-(-share // most), share + 1) if share % n == 0)
            return Placement(worlds, mesh, chunks, share // chunks)
        # XLA would compile a chunk of one world without a batch axis, and round differently.
        vector = lanes(dtype) if on_cpu and worlds > 1 else 1
        least = max(min(worlds, 2), vector)
        most = max(most // vector * vector, least)
        chunks = -(-share // most)
        if self.chunk is None:  # Use more chunks if that avoids copies.
            chunks = next((n for n in range(chunks, 2 * chunks) if share % (n * vector) == 0), chunks)
        return Placement(worlds, mesh, chunks, max(-(-share // (chunks * vector)) * vector, least))

    def _check(self) -> None:
        for name, kind in (
            ("mesh", jax.sharding.Mesh),
            ("chunk", int | np.integer),
            ("kernel", Fused | Automatic),
        ):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
                raise TypeError(
                    f"layout: {name} must be of type {getattr(kind, '__name__', kind)}, got {value!r}"
                )
        if self.chunk is not None and self.chunk < 1:
            raise ValueError(f"layout: chunk must be at least 1, got {self.chunk}")


def lanes(dtype: Any) -> int:
    """Return the number of worlds that fill a vector of a CPU.

    In chunks of a multiple of this number, the results of a world do not depend on its position in any bit.

    Args:
        dtype: the floating-point dtype.
    """
    return _VECTOR // np.dtype(dtype).itemsize


def _is_placed_by_caller(mesh: jax.sharding.Mesh | None) -> bool:
    return mesh is None and not jax.sharding.get_abstract_mesh().empty


def automatic(mesh: jax.sharding.Mesh) -> jax.sharding.Mesh:
    """Return a mesh of the same devices on which the compiler chooses the sharding.

    The number of worlds then need not be a multiple of the number of devices.
    """
    names = mesh.axis_names
    return jax.sharding.Mesh(mesh.devices, names, axis_types=(jax.sharding.AxisType.Auto,) * len(names))


@dataclasses.dataclass(frozen=True)
class Placement:
    """Devices and chunks that a layout chose for a number of worlds.

    Attributes:
        worlds: the number of worlds.
        mesh: the devices that share the worlds; None for one device, or if the caller has placed the worlds.
        chunks: the number of chunks that a device runs one after another.
        chunk: the number of worlds per chunk.
    """

    worlds: int
    mesh: jax.sharding.Mesh | None
    chunks: int
    chunk: int

    @property
    def by_caller(self) -> bool:
        """Return whether the caller has placed the worlds (`jax.set_mesh`, `jax.shard_map`)."""
        return _is_placed_by_caller(self.mesh)

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def together(self) -> int:
        """Return the number of worlds that run at a time on all devices."""
        return self.devices * self.chunk

    @property
    def added(self) -> int:
        """Return the number of copies of the last world that are computed and discarded."""
        return self.together * self.chunks - self.worlds

    @property
    def share(self) -> int:
        """Return the number of worlds per device, without the copies that the device makes itself."""
        return -(-self.worlds // self.devices)

    def record(self) -> dict[str, int]:
        """Return the numbers of devices, worlds per chunk, chunks, and copies of the last world."""
        return {
            "devices": self.devices,
            "chunk": self.chunk,
            "chunks": self.chunks,
            "added_worlds": self.added,
        }

    def spread(self, leaves: list[Any], axes: list[int | None]) -> list[Any]:
        """Pad the leaves with copies of the last world, and shard their batch axes over the devices."""
        return [self._placed(self._padded(x, axis), axis) for x, axis in zip(leaves, axes, strict=True)]

    def over_devices(
        self, function: Callable[..., Any], stacked: tuple[Any, ...], shared: tuple[Any, ...]
    ) -> Any:
        """Apply a function to the worlds of each device, and return the results of all worlds, (world, ...).

        Each device runs the whole program on its own worlds. If the compiler chose the partitioning, it would
        not divide library calls such as factorizations: every device would factorize the matrices of all
        worlds.

        Args:
            function: takes `stacked` for the worlds of a device, then `shared`; returns arrays (world, ...).
            stacked: pytrees of arrays (..., world).
            shared: pytrees of arrays that all worlds share.
        """
        if self.mesh is None or self.devices == 1:
            return function(*stacked, *shared)
        names, nowhere = self.mesh.axis_names, jax.sharding.PartitionSpec()
        divided = jax.tree.map(
            lambda x: jax.sharding.PartitionSpec(*[None] * (jnp.ndim(x) - 1), names), stacked
        )
        specs = (*divided, *jax.tree.map(lambda _: nowhere, shared))
        return jax.shard_map(
            function, mesh=self.mesh, in_specs=specs, out_specs=jax.sharding.PartitionSpec(names)
        )(*stacked, *shared)

    def split(self, x: Any) -> Any:
        """Split an array (..., world) of a device into chunks (chunk, ..., world)."""
        return jnp.moveaxis(x.reshape(*x.shape[:-1], self.chunks, self.chunk), -2, 0)

    def join(self, x: Any) -> Any:
        """Join the chunks of an array (chunk, world, ...) of a device to (world, ...)."""
        return x.reshape(self.chunks * self.chunk, *x.shape[2:])

    def filled(self, x: Any) -> Any:
        """Append copies of the last world to an array (..., world) of a device, without communication."""
        missing = self.chunks * self.chunk - self.share
        return jnp.concatenate([x, jnp.repeat(x[..., -1:], missing, axis=-1)], axis=-1) if missing else x

    def own(self, x: Any) -> Any:
        """Return an array (world, ...) of a device without the copies that the device made."""
        return x[: self.share]

    def cut(self, x: Any) -> Any:
        """Return an array (world, ...) without the copies that make the shares of the devices equal."""
        return x[: self.worlds] if self._uneven else x

    @property
    def _uneven(self) -> int:
        return self.devices * self.share - self.worlds

    def _padded(self, x: Any, axis: int | None) -> Any:
        if axis is None or not self._uneven:
            return x
        # The transpose of a slice is a pad. The transpose of a gather is a scatter, on which XLA aborts if
        # the worlds do not divide evenly.
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
    """Return the part of an array on the devices of this process; with one process, the whole array."""
    if not isinstance(x, jax.Array) or x.is_fully_addressable or x.is_fully_replicated:
        return np.asarray(x)
    parts = {tuple((s.start or 0) for s in shard.index): shard for shard in x.addressable_shards}
    starts = sorted(parts)
    (axis,) = [k for k in range(x.ndim) if len({start[k] for start in starts}) > 1] or [0]
    return np.concatenate([np.asarray(parts[start].data) for start in starts], axis=axis)

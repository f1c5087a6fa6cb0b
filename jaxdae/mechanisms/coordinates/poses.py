"""How the frames of a tree's links are held while they are composed: entry by entry, or as one array.

Both compute the same. Twelve entries of a frame in space are twelve programs for the compiler, each with a cost of its own, which is most
of the time where there are few links. Where there are many, entries are arrays that the processor runs through without a gap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxdae.mechanisms import measures

ARRAYS_UP_TO = 12
"""The number of links up to which frames are composed as arrays. Measured on CPU, chains of hinges in space, microseconds a step of one
world / of each of 64, by entries and by arrays: 3 links 5.3 / 1.4 and 3.5 / 1.1; 12 links 20 / 8.3 and 15 / 8.9; 30 links 37 / 23
and 31 / 32."""


class Entries(NamedTuple):
    """Poses as they are, stacked frames of the class `frame`."""

    frame: Any

    def of(self, frames: Any) -> Any:
        """Returns the poses of stacked frames."""
        return frames

    def frames(self, poses: Any) -> Any:
        """Returns the frames of poses."""
        return poses

    def composed(self, poses: Any, others: Any) -> Any:
        """Returns the poses of others that are given in poses, one by one."""
        return poses.then(others)

    def chosen(self, numbers: np.ndarray, poses: Any) -> Any:
        """Returns the poses with these numbers (k,); that of the ground for the number one beyond the last."""
        return measures.frames_of(numbers, poses)


class Arrays(NamedTuple):
    """Poses as one array (..., n) of the frames' class `frame`; the methods are those of `Entries`."""

    frame: Any

    def of(self, frames: Any) -> Any:
        """Returns the poses of stacked frames."""
        return frames.array()

    def frames(self, poses: Any) -> Any:
        """Returns the frames of poses."""
        return self.frame.of_array(poses)

    def composed(self, poses: Any, others: Any) -> Any:
        """Returns the poses of others that are given in poses, one by one."""
        return self.frame.composed(poses, others)

    def chosen(self, numbers: np.ndarray, poses: Any) -> Any:
        """Returns the poses with these numbers (k,); that of the ground for the number one beyond the last."""
        ground = self.frame(*(jnp.full((1,), entry, poses.dtype) for entry in self.frame.GROUND)).array()
        return jnp.concatenate([poses, ground], axis=-1)[..., numbers]


def poses_of(frame: Any, links: int) -> Entries | Arrays:
    """Returns how so many links are held best."""
    return Arrays(frame) if links <= ARRAYS_UP_TO else Entries(frame)

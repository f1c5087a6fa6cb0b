"""Joint positions by name that remember the stored numbers, so that `joint_state` detects replacements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np


@jax.tree_util.register_pytree_node_class
class Posture(dict[str, Any]):
    """The positions of a start or a keyframe by joint, in rad and m; a dictionary with its original numbers.

    `start | {"driver": 0.3}` replaces numbers and keeps the originals in `stored`. `joint_state` therefore
    moves the followers of the driver, although the dictionary names them.

    Attributes:
        stored: the original numbers.
    """

    def __init__(self, positions: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> None:
        """Store a copy of the positions; `stored` holds the original ones, the positions by default."""
        super().__init__(positions)
        self.stored = {
            name: _plain(numbers) for name, numbers in (positions if stored is None else stored).items()
        }

    def __or__(self, others: Any) -> Any:
        """Return the positions, updated with the positions in `others`."""
        return Posture({**self, **others}, self.stored) if isinstance(others, Mapping) else NotImplemented

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Return the numbers as leaves, and the names and the original numbers as the structure."""
        names = tuple(sorted(self))
        return tuple(self[name] for name in names), (names, tuple(sorted(self.stored.items())))

    @classmethod
    def tree_unflatten(cls, structure: Any, leaves: Any) -> Posture:
        """Return the positions from the leaves and the structure of a pytree."""
        names, stored = structure
        return cls(dict(zip(names, leaves, strict=True)), dict(stored))


def _plain(numbers: Any) -> Any:
    """Return a number, or a tuple of numbers, that can be a part of the structure of a pytree."""
    values = np.asarray(numbers, float)
    return tuple(values.tolist()) if values.ndim else float(values)

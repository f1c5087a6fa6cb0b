"""Targets of inverse kinematics: poses of bodies and values of coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.suggestions import brief, join_first
from jaxdae.geometry.rotation import matrix_quaternion, quat_difference, quat_normalize
from jaxdae.mechanisms import Mechanism
from jaxdae.mechanisms.joints.spatial_measures import nearest_turn
from jaxdae.typing import Leaf


def coordinate_indices(what: str, mechanism: Mechanism, names: Any) -> tuple[int, ...]:
    """Return the indices in q of coordinates.

    A name is the name of a coordinate, such as "crank.angle", or of a joint with one coordinate, "crank".

    Args:
        what: the name of the argument, for messages.
        mechanism: the mechanism.
        names: the names.

    Raises:
        ValueError: an unknown or ambiguous name, or two names of the same coordinate.
    """
    known = mechanism.names.coordinates
    found = []
    for name in names:
        fitting = [k for k, full in enumerate(known) if name in (full, full.rsplit(".", 1)[0])]
        if len(fitting) != 1:
            problem = "has several coordinates" if fitting else "is not a coordinate"
            listed = [known[k] for k in fitting] or known
            raise ValueError(f"{what}: {brief(name)} {problem}; available: {join_first(listed)}")
        if fitting[0] in found:
            raise ValueError(f"{what}: {brief(name)} is named twice")
        found.append(fitting[0])
    return tuple(found)


def real_array(name: str, value: Any, dtype: Any) -> Array:
    """Return real numbers as an array; raise TypeError for text, Booleans and complex numbers."""
    for leaf in jax.tree.leaves(value):
        if np.dtype(getattr(leaf, "dtype", type(leaf))).kind not in "iuf":
            raise TypeError(f"{name} must be real numbers, got {brief(value)}")
    return jnp.asarray(value, dtype)


@pytree
class PoseTarget:
    """A target for the position of a body-fixed point, for the orientation of a body, or for both.

    The residual is the difference of positions in m, then the rotation from the target to the body: in the
    plane the angle within half a turn, in space the rotation vector in the axes of the target, in rad.

    Attributes:
        body: the name of the body (static).
        position: target position of the point in the world (2,) or (3,) in m; None for any position.
        orientation: target angle () in rad in the plane; quaternion wxyz (4,), body to world, in space; None
            for any orientation.
        point: the point (2,) or (3,) in the frame of the body in m; None for its mass center.
    """

    body: str = static()
    position: Leaf = None
    orientation: Leaf = None
    point: Leaf = None

    def units(self, mechanism: Mechanism) -> tuple[str, ...]:
        """Return the unit of each row, m or rad."""
        flat = mechanism.space.dimension == 2
        lengths = 0 if self.position is None else mechanism.space.dimension
        angles = 0 if self.orientation is None else 1 if flat else 3
        return ("m",) * lengths + ("rad",) * angles

    def checked(self, mechanism: Mechanism) -> PoseTarget:
        """Return the target with arrays in the precision of the mechanism.

        Raises:
            ValueError: an unknown body, a wrong shape, or a target without position and orientation.
        """
        if self.body not in mechanism.body_names:
            raise ValueError(
                f"PoseTarget: no body {brief(self.body)}; available: {join_first(mechanism.body_names)}"
            )
        if self.position is None and self.orientation is None:
            raise ValueError(f"PoseTarget({self.body!r}): give a position, an orientation, or both")
        size = mechanism.space.dimension
        found: dict[str, Any] = {}
        for name, shape in (
            ("position", (size,)),
            ("orientation", () if size == 2 else (4,)),
            ("point", (size,)),
        ):
            value = getattr(self, name)
            given = f"PoseTarget({self.body!r}): {name}"
            found[name] = value if value is None else real_array(given, value, mechanism.dtype)
            if value is not None and found[name].shape != shape:
                raise ValueError(
                    f"{given} must have shape {shape}, got {found[name].shape}; use jax.vmap for many targets"
                )
        return PoseTarget(self.body, **found)

    def angles(self, mechanism: Mechanism) -> dict[str, Any]:
        """Return the target angles in rad by name."""
        flat = mechanism.space.dimension == 2 and self.orientation is not None
        return {f"orientation of {brief(self.body)}": self.orientation} if flat else {}

    def error(self, mechanism: Mechanism, frames: Any, q: Array) -> Array:
        """Return the residual (rows,) in m and rad.

        Args:
            mechanism: the mechanism.
            frames: the frames of all bodies at q.
            q: coordinates (nq,).
        """
        place, turn = self._pose(mechanism, frames)
        parts = []
        if place is not None:
            parts.append(place - self.position)
        if turn is not None and mechanism.space.dimension == 2:
            parts.append(nearest_turn(turn - self.orientation)[None])
        elif turn is not None:
            parts.append(quat_difference(quat_normalize(self.orientation), turn))
        return jnp.concatenate(parts)

    def reached(self, mechanism: Mechanism, frames: Any) -> PoseTarget:
        """Return the target with the pose at these frames as its values."""
        return PoseTarget(self.body, *self._pose(mechanism, frames), self.point)

    def _pose(self, mechanism: Mechanism, frames: Any) -> tuple[Array | None, Array | None]:
        """Return position and orientation at these frames, None where the target leaves them free."""
        frame = jax.tree.map(lambda x: x[mechanism.body_names.index(self.body)], frames)
        size, place, turn = mechanism.space.dimension, None, None
        if self.position is not None:
            point = jnp.zeros((size,), mechanism.dtype) if self.point is None else self.point
            place = frame.point(point).array()
        if self.orientation is not None and size == 2:
            turn = frame.angle
        elif self.orientation is not None:
            turn = matrix_quaternion(jnp.stack(list(frame)[3:]).reshape(3, 3))
        return place, turn


@pytree
class JointTarget:
    """Target values of coordinates, such as motor angles or a preferred posture.

    The rows of the residual are in alphabetical order of the names.

    Attributes:
        values: values () in rad and m by the names of coordinates, or of joints with one coordinate.
    """

    values: Mapping[str, Any]

    def units(self, mechanism: Mechanism) -> tuple[str, ...]:
        """Return the unit of each row, m or rad."""
        return tuple(mechanism.names.coordinate_units[k] for k in self._indices(mechanism))

    def checked(self, mechanism: Mechanism) -> JointTarget:
        """Return the target with values in the precision of the mechanism.

        Raises:
            ValueError: an unknown name, no name, or a value that is not a single number.
        """
        if not self.values:
            raise ValueError("JointTarget: give at least one value")
        self._indices(mechanism)
        values = {
            name: real_array(f"JointTarget: {brief(name)}", value, mechanism.dtype)
            for name, value in self.values.items()
        }
        for name, value in values.items():
            if value.shape != ():
                raise ValueError(
                    f"JointTarget: {brief(name)} must be a single number, got shape {value.shape}; "
                    "use jax.vmap for many targets"
                )
        return JointTarget(values)

    def angles(self, mechanism: Mechanism) -> dict[str, Any]:
        """Return the target angles in rad by name."""
        pairs = zip(sorted(self.values), self.units(mechanism), strict=True)
        return {f"the target of {brief(name)}": self.values[name] for name, unit in pairs if unit == "rad"}

    def error(self, mechanism: Mechanism, frames: Any, q: Array) -> Array:
        """Return the residual (k,) in m and rad; arguments as in `PoseTarget`."""
        values = jnp.stack([self.values[name] for name in sorted(self.values)])
        return q[jnp.asarray(self._indices(mechanism))] - values

    def reached(self, mechanism: Mechanism, frames: Any) -> JointTarget:
        """Return the target, whose derivative does not depend on its values."""
        return self

    def _indices(self, mechanism: Mechanism) -> tuple[int, ...]:
        return coordinate_indices("JointTarget", mechanism, sorted(self.values))


def stacked_targets(what: str, mechanism: Mechanism, targets: Sequence[Any]) -> tuple[Any, ...]:
    """Return targets of K poses with arrays (K, ...) as values.

    Args:
        what: the names of the arguments, for messages.
        mechanism: the mechanism.
        targets: targets with values (K, ...), or other pytrees with a method `checked`. The field `point` is
            not stacked, but it is in the result.

    Raises:
        ValueError: values of different lengths.
    """
    arrays = [_as_arrays(mechanism, target) for target in targets]
    plain = [replace(target, point=None) if isinstance(target, PoseTarget) else target for target in arrays]
    shapes = [x.shape for x in jax.tree.leaves(plain)]
    count = shapes[0][:1] if shapes else ()
    if not count or any(shape[:1] != count for shape in shapes):
        raise ValueError(f"{what} must have one entry per pose, got the shapes {shapes}")

    def stacked(target: Any) -> Any:
        if not isinstance(target, PoseTarget) or target.point is None:
            return target
        return replace(target, point=jnp.broadcast_to(target.point, (*count, *target.point.shape)))

    return tuple(stacked(target) for target in arrays)


def _as_arrays(mechanism: Mechanism, target: Any) -> Any:
    """Return a target with arrays as values."""
    if not isinstance(target, PoseTarget | JointTarget):
        return target.checked(mechanism)
    if isinstance(target, JointTarget):
        return JointTarget({name: jnp.asarray(x, mechanism.dtype) for name, x in target.values.items()})
    values = {name: getattr(target, name) for name in ("position", "orientation", "point")}
    arrays = {name: x if x is None else jnp.asarray(x, mechanism.dtype) for name, x in values.items()}
    return PoseTarget(target.body, **arrays)

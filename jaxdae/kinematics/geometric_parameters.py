"""Corrections of geometric parameters of a mechanism; zero corrections give the nominal mechanism.

The correction of a point is a vector in the frame of its body, p + d. The correction of axes R, whose columns
are the axes of the joint in the frame of the body, and of directions e is a rotation vector phi. They
therefore stay rotations and unit vectors:

    R exp(phi),      phi in the axes of the joint,
    exp(phi) e,      phi in the frame of the body; an angle in the plane.

The component of phi along an axis of rotation has the same effect as the offset of an encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import get_leaf, set_leaf
from jaxdae.base.suggestions import brief, join_first
from jaxdae.geometry.rotation import quat_exp, rotation_matrix
from jaxdae.kinematics.targets import PoseTarget, coordinate_indices
from jaxdae.mechanisms import Mechanism
from jaxdae.mechanisms.describe.number_kinds import PerCoordinate
from jaxdae.mechanisms.describe.place_kinds import Direction, JointAxes, Point
from jaxdae.mechanisms.joint_copies import with_equal_copies

XYZ = ("x", "y", "z")
SYMMETRIC = ("xx", "yy", "zz", "yz", "xz", "xy")
"""The entries of the correction of a symmetric matrix."""
_ROWS, _COLUMNS = (0, 1, 2, 1, 0, 0), (0, 1, 2, 2, 2, 1)


class Parameter(NamedTuple):
    """A parameter with a correction.

    Attributes:
        name: name of the parameter, or of a motor for the offset of its encoder.
        form: "number", "point" (a vector), "tensor" (a symmetric matrix), "direction", "axes", "center" (of
            mass) or "offset".
        total: the number of entries of the correction.
        unit: their unit, such as m or rad.
        free: the indices of the entries that are calibrated; the others are zero.
        leaf: the path of the leaf with this parameter of all elements of the type; the name of the body for
            centers of mass; empty for offsets.
        index: the index of the element in the leaf, or of the body.
    """

    name: str
    form: str
    total: int
    unit: str
    free: tuple[int, ...]
    leaf: str = ""
    index: Any = 0

    @property
    def size(self) -> int:
        """The number of calibrated entries."""
        return len(self.free)

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of the calibrated entries."""
        name = f"offsets.{self.name}" if self.form == "offset" else self.name
        labels = SYMMETRIC if self.form == "tensor" else XYZ
        return (name,) if self.total == 1 else tuple(f"{name}.{labels[k]}" for k in self.free)


def joint_parameter(mechanism: Mechanism, path: str) -> Parameter:
    """Return the parameter of a joint, such as "joints.rod1.length"; "joints.rod1.point_a.x" for one entry.

    Raises:
        ValueError: the path is not a point, a direction, axes, a length or an angle of a joint.
    """
    name, _, axis = path.rpartition(".")
    only = axis in ("x", "y", "z")
    name = name if only else path
    form, total, unit, leaf, index = _form(mechanism, name)
    free = ("xyz".index(axis),) if only else tuple(range(total))
    if not form or free[0] >= total or (only and total == 1):
        raise ValueError(
            f"parameters: {brief(path)} is not a point, a direction, the axes, a length or an angle of a "
            'joint; write "joints.<name>.<field>", or "joints.<name>.<field>.x" for one entry'
        )
    return Parameter(name, form, total, unit, free, leaf, index)


def check_entries(parameters: Sequence[Parameter]) -> None:
    """Raise ValueError without parameters, or if an entry is named twice."""
    entries = [entry for parameter in parameters for entry in parameter.entries]
    if not entries or len(set(entries)) < len(entries):
        raise ValueError("parameters: name at least one parameter or offset, and each of them once")


def nominal_values(mechanism: Mechanism, parameters: Sequence[Parameter]) -> Array:
    """Return the free entries (p,) of points, lengths and angles; zero for axes and directions."""
    parts = [
        jnp.ravel(get_leaf(mechanism, parameter.leaf)[parameter.index])[jnp.array(parameter.free)]
        if parameter.form in ("number", "point")
        else jnp.zeros((parameter.size,), mechanism.dtype)
        for parameter in parameters
    ]
    return jnp.concatenate(parts)


def _form(mechanism: Mechanism, path: str) -> tuple[str, int, str, str, Any]:
    """Return form, number of entries, unit, leaf and index of a parameter; no form if it is not geometric."""
    names, size, other = path.split("."), mechanism.space.dimension, ("", 0, "", "", 0)
    if len(names) != 3 or names[0] != "joints":
        return other
    try:
        place = mechanism.element_leaf(*names)
    except KeyError as error:
        raise ValueError(f"parameters: {error.args[0]}") from None
    if place is None:
        return other
    kind = declared_kind(mechanism, place[0])
    if isinstance(kind, JointAxes):
        return "axes", 3, "rad", *place
    if isinstance(kind, Direction):
        return "direction", 1 if size == 2 else 3, "rad", *place
    if isinstance(kind, Point):
        return "point", size, "m", *place
    leaf = get_leaf(mechanism, place[0])
    if kind is None or isinstance(kind, PerCoordinate):  # Springs, damping and friction are not geometry.
        return other
    if kind.unit in ("m", "rad") and jnp.ndim(leaf[place[1]]) == 0:
        return "number", 1, kind.unit, *place
    return other


def declared_kind(mechanism: Mechanism, leaf: str) -> Any:
    """Return the kind of the field of joints or forces that a leaf path names; None without one."""
    group, _, field = leaf.rpartition(".")
    owner = get_leaf(mechanism, group)
    return owner.kinds(mechanism.space).get(field) if hasattr(owner, "kinds") else None


def without_entry(path: str) -> str:
    """Return the path of a parameter without the name of an entry, such as ".x" or ".xy"."""
    whole, _, entry = path.rpartition(".")
    return whole if entry in (*XYZ, *SYMMETRIC) else path


def encoder_offset(mechanism: Mechanism, actuated: Sequence[str], name: str) -> Parameter:
    """Return the offset of the encoder of a motor.

    Raises:
        ValueError: the name is not the name of an actuated coordinate.
    """
    if name not in actuated:
        raise ValueError(f"offsets: {brief(name)} is not in actuated; available: {join_first(actuated)}")
    index = coordinate_indices("offsets", mechanism, [name])[0]
    return Parameter(name, "offset", 1, mechanism.names.coordinate_units[index], (0,))


def corrected(mechanism: Mechanism, parameters: Sequence[Parameter], x: Array) -> Mechanism:
    """Return a mechanism with corrections x (p,) of its leaves.

    If the center of mass of a body is displaced by d, its points change by -d, because it is their origin.
    Copies of joint geometry, for example in forces along a joint, change with the joint.
    """
    end = 0
    for parameter in parameters:
        start, end = end, end + parameter.size
        if parameter.form not in ("offset", "center"):
            change = jnp.zeros((parameter.total,), x.dtype).at[jnp.array(parameter.free)].set(x[start:end])
            leaf = jnp.asarray(get_leaf(mechanism, parameter.leaf))
            new = _changed(leaf[parameter.index], parameter.form, change)
            mechanism = set_leaf(mechanism, parameter.leaf, leaf.at[parameter.index].set(new))
    for body, change in centers_of(parameters, x).items():
        for path, index, _ in points_of_body(mechanism, body):
            leaf = jnp.asarray(get_leaf(mechanism, path))
            mechanism = set_leaf(mechanism, path, leaf.at[index].add(-change))
    return with_equal_copies(mechanism)


def points_of_body(mechanism: Mechanism, body: str) -> Iterator[tuple[str, int, str]]:
    """Yield leaf path, index and name of each point of joints and forces that is fixed in a body."""
    for path, group in joints_and_forces(mechanism):
        kinds: Any = group.kinds(mechanism.space)
        for field, kind in kinds.items():
            if isinstance(kind, Point) and getattr(group, field) is not None:
                place = "forces" if path.startswith("forces") else "joints"
                yield from (
                    (f"{path}.{field}", k, f"{place}.{group.names[k]}.{field}")
                    for k, one in enumerate(getattr(group, kind.body))
                    if one == mechanism.body_names.index(body)
                )


def joints_and_forces(mechanism: Mechanism) -> Iterator[tuple[str, Any]]:
    """Yield the paths and the groups of joints and forces."""
    for place in ("joints", "carrying", "forces"):
        yield from ((f"{place}.{key}", group) for key, group in getattr(mechanism, place).items())


def centers_of(parameters: Sequence[Parameter], x: Array) -> dict[str, Array]:
    """Return the displacements of centers of mass (2,) or (3,) in corrections x (p,) by body."""
    found: dict[str, Array] = {}
    end = 0
    for parameter in parameters:
        start, end = end, end + parameter.size
        if parameter.form == "center":
            change = jnp.zeros((parameter.total,), x.dtype).at[jnp.array(parameter.free)].set(x[start:end])
            found[parameter.leaf] = found.get(parameter.leaf, 0.0) + change
    return found


def with_center(target: Any, centers: Mapping[str, Array]) -> Any:
    """Return a measurement whose point is fixed in a body, after displacements of centers of mass by body."""
    if not isinstance(target, PoseTarget) or target.body not in centers:
        return target
    return replace(target, point=(0.0 if target.point is None else target.point) - centers[target.body])


def offsets_of(parameters: Sequence[Parameter], x: Array) -> dict[str, Array]:
    """Return the encoder offsets () in corrections x (p,) by the names of their motors."""
    found, end = {}, 0
    for parameter in parameters:
        end += parameter.size
        if parameter.form == "offset":
            found[parameter.name] = x[end - 1]
    return found


def _changed(old: Any, form: str, change: Array) -> Array:
    """Return a leaf with a correction."""
    if form == "axes":
        return old @ rotation_matrix(quat_exp(change))
    if form == "direction" and change.shape == (1,):
        cos, sin = jnp.cos(change[0]), jnp.sin(change[0])
        return jnp.stack([cos * old[0] - sin * old[1], sin * old[0] + cos * old[1]])
    if form == "tensor":
        half = jnp.zeros((3, 3), change.dtype).at[jnp.array(_ROWS), jnp.array(_COLUMNS)].set(change)
        return old + half + half.T - jnp.diag(jnp.diagonal(half))
    if form == "direction":
        return rotation_matrix(quat_exp(change)) @ old
    return old + change.reshape(jnp.shape(old))

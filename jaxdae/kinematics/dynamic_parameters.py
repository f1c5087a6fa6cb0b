"""Corrections of parameters that act on motor efforts: masses, inertias, centers of mass, joint elements.

A correction d of the center of mass of a body is a vector in the frame of the body, whose origin is this
center. All points that are fixed in the body therefore change by -d.

The characteristic size of a parameter or an effort is a product of powers of three units: the total mass, the
characteristic length, and a time T with

    1 / T^2 = g / L + sum (rms(s')^2 + rms(s'')),

with the sum over the motor positions s in the log, in rad or relative to L. With these units, gravity, the
velocity and the acceleration of the log are of order 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import get_leaf
from jaxdae.base.suggestions import brief
from jaxdae.kinematics.geometric_parameters import (
    SYMMETRIC,
    XYZ,
    Parameter,
    declared_kind,
    joint_parameter,
    joints_and_forces,
    without_entry,
)
from jaxdae.mechanisms import Mechanism
from jaxdae.mechanisms.describe.function_kinds import Function
from jaxdae.mechanisms.describe.number_kinds import Components, Number, PerCoordinate

_UNITS = {"kg": (1, 0, 0), "m": (0, 1, 0), "s": (0, 0, 1), "N": (1, 1, -2), "rad": (0, 0, 0)}
"""The exponents of mass, length and time in a unit."""


def calibration_parameters(
    mechanism: Mechanism, paths: Sequence[str], with_efforts: bool
) -> tuple[Parameter, ...]:
    """Return the parameters of a calibration: geometry of joints, and parameters that act on efforts.

    Args:
        mechanism: the mechanism.
        paths: such as "joints.rod1.length", "bodies.arm.mass", "joints.hinge.damping" or "gravity".
        with_efforts: whether the log contains motor efforts.

    Raises:
        ValueError: paths without a correction, or parameters that act on efforts without efforts. The message
            lists all of them.
    """
    found, unknown, idle = [], [], []
    for path in paths:
        try:
            dynamic = _dynamic(mechanism, path)
            found.extend(dynamic or [joint_parameter(mechanism, path)])
            if dynamic and not with_efforts:
                idle.append(brief(path))
        except ValueError as error:
            unknown.append(str(error).removeprefix("parameters: "))
    if idle:
        acts = "act" if len(idle) > 1 else "acts"
        unknown.append(
            f"{', '.join(idle)} {acts} on motor efforts only; add MeasuredEfforts to the measurements"
        )
    if unknown:
        raise ValueError(f"parameters: {'; '.join(unknown)}")
    return tuple(found)


def _dynamic(mechanism: Mechanism, path: str) -> list[Parameter]:
    """Return the entries of a parameter that acts on efforts; empty for other paths.

    Raises:
        ValueError: the element has no such parameter, or its center of mass cannot be corrected.
    """
    name, entry = without_entry(path), path.rpartition(".")[2]
    form, leaf, index, units = _place(mechanism, name)
    labels = SYMMETRIC if form == "tensor" else XYZ
    wanted = range(len(units)) if name == path else [labels.index(entry)] if entry in labels else []
    if name != path and (len(units) == 1 or not all(k < len(units) for k in wanted)):
        return []
    return [Parameter(name, form, len(units), units[k], (k,), leaf, index) for k in wanted]


def _place(mechanism: Mechanism, name: str) -> tuple[str, str, Any, tuple[str, ...]]:
    """Return form, leaf, index and the unit of each entry of a parameter; no units if it is not dynamic."""
    names, size = name.split("."), mechanism.space.dimension
    other: Any = "", "", 0, ()
    if name == "gravity":
        return "point", name, ..., ("m/s^2",) * size
    if len(names) != 3:
        return other
    kind, element, field = names
    if kind == "bodies" and element in mechanism.body_names:
        body = mechanism.body_names.index(element)
        if field == "mass":
            return "number", field, body, ("kg",)
        if field == "inertia":
            shape = jnp.shape(mechanism.inertia)[1:]
            form, count = {(): ("number", 1), (3,): ("point", 3), (3, 3): ("tensor", 6)}[shape]
            return form, field, body, ("kg m^2",) * count
        if field == "center":
            _check_center(mechanism, element, body)
            return "center", element, body, ("m",) * size
    if kind not in ("joints", "forces"):
        return other
    try:
        place = mechanism.element_leaf(*names)
    except KeyError as error:
        raise ValueError(error.args[0]) from None
    if place is None:
        return other
    declared = declared_kind(mechanism, place[0])
    if isinstance(declared, PerCoordinate):
        owner = get_leaf(mechanism, place[0].rpartition(".")[0])
        units = tuple(declared.units[unit] for unit in owner.coordinates.values())
        return "number" if len(units) == 1 else "point", *place, units
    if kind == "forces" and isinstance(declared, Number | Components):
        shape = jnp.shape(jnp.asarray(get_leaf(mechanism, place[0]))[place[1]])
        count = size if isinstance(declared, Components) else 1
        if shape == ((size,) if isinstance(declared, Components) else ()):
            return "number" if count == 1 else "point", *place, (declared.unit,) * count
    return other


def _check_center(mechanism: Mechanism, element: str, body: int) -> None:
    """Raise ValueError if a curve, a surface or a contact shape is fixed in a body."""
    contacts = {} if mechanism.contacts is None else mechanism.contacts.groups
    fixed = [group for group in contacts.values() if body in (*group.a, *group.b)]
    for _, group in joints_and_forces(mechanism):
        kinds: Any = group.kinds(mechanism.space)
        bodies = [b for field, kind in kinds.items() if kind.names_body for b in getattr(group, field)]
        if body in bodies and any(type(kind) is Function for kind in kinds.values()):
            fixed.append(group)
    if fixed:
        raise ValueError(
            f"'bodies.{element}.center' has no correction, because the shape of "
            f"{brief(fixed[0].names[0])} is fixed in the body"
        )


def sizes_of(mechanism: Mechanism, units: Sequence[str], rate: Any) -> Array:
    """Return the characteristic sizes (k,) of quantities with these units.

    Args:
        mechanism: the mechanism.
        units: such as "m", "rad" or "N m s/rad".
        rate: 1 / T () in 1/s.
    """
    total = jnp.sum(mechanism.mass)
    mass = jnp.where(total > 0.0, total, 1.0)
    length = jnp.asarray(mechanism.characteristic_length)
    exponents = jnp.array([_exponents(unit) for unit in units], mechanism.dtype).reshape(-1, 3)
    basis = jnp.stack([mass, length, 1.0 / rate]).astype(mechanism.dtype)
    return jnp.prod(basis**exponents, axis=1)


def _exponents(unit: str) -> tuple[int, ...]:
    """Return the exponents of mass, length and time in a unit, such as "N m s/rad"."""
    above, _, below = unit.split(" or ")[0].partition("/")
    found = [0, 0, 0]
    for text, sign in ((above, 1), (below, -1)):
        for factor in text.split():
            name, _, power = factor.partition("^")
            if name in _UNITS:
                found = [x + sign * int(power or 1) * y for x, y in zip(found, _UNITS[name], strict=True)]
    return tuple(found)

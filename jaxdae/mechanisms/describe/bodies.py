"""User descriptions of rigid bodies."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from jaxdae.geometry import planar_frames, spatial_frames
from jaxdae.geometry.rotation import quat_normalize
from jaxdae.mechanisms.describe.angle_limits import looks_like_degrees
from jaxdae.mechanisms.describe.keywords import ByKeywords
from jaxdae.mechanisms.describe.numbers import (
    batches,
    concrete,
    has_length,
    is_number,
    is_positive,
    is_vector,
    is_zero,
    real,
    shape_of,
    shown,
    vector,
)

Number = Any

_ROUNDED = 1e-3
"""Relative error allowed for numbers with few digits."""

_POINT = 1e-14
"""Squared radius of gyration in m^2, 0.1 micrometers, below which a body is a point mass."""


class DescriptionWarning(UserWarning):
    """Warning about a computable, but physically implausible description."""


def _many(*names: str, use: str) -> dict[str, str]:
    return dict.fromkeys(names, f"use {use}")


@dataclasses.dataclass(frozen=True)
class Body(ByKeywords):
    """A rigid body.

    Attributes:
        name: unique; not "ground".
        mass: in kg, positive; in joint coordinates it may be zero if M stays positive definite. A
            `kinematic_mechanism` needs no mass.
        inertia: in kg m^2 about the mass center, positive; it may be zero or missing in the same cases as the
            mass.
        pose: (x, y, theta) of the mass center at the start in m and rad. World points `at` of joints refer to
            this pose. If joints have `point_a` and `point_b`, a rough guess suffices: see `initialize`.
    """

    name: str
    mass: Number = None
    inertia: Number = None
    pose: Any = (0.0, 0.0, 0.0)

    instead: ClassVar[Mapping[str, str]] = _many(
        "place", "position", "angle", "quaternion", "x", "y", "theta", use="pose=(x, y, theta)"
    )
    turns_only: ClassVar[bool] = False
    """Whether the body has an angle, but no position."""

    def mistakes(self, massless: bool = False) -> Iterable[str]:
        """Yield the errors of the body; `massless` allows zero mass and inertia."""
        for name in ("mass", "inertia"):
            yield from _number_mistakes(name, getattr(self, name), massless)
        if not is_vector(self.pose, 3):
            yield (
                "pose must be three finite numbers (x, y, theta), got "
                f"{shown(self.pose)}{batches(self.pose, 3)}"
            )

    def doubts(self) -> Iterable[str]:
        """Yield warnings about computable but implausible values: an angle in degrees."""
        pose = concrete(self.pose)
        if pose is not None and looks_like_degrees(pose[2]):
            yield (
                f"pose has the angle {pose[2]:g} rad; if the angle is in degrees, write "
                f"{np.radians(pose[2]):.6g} rad"
            )

    def with_unit_mass(self) -> Body:
        """Return the body with missing mass and inertia set to one."""
        return dataclasses.replace(self, **_one_where_missing(self, mass=1.0, inertia=1.0))

    def frame(self) -> planar_frames.Frame:
        """Return the body frame at the start."""
        x, y, angle = vector(self.pose)
        return planar_frames.Frame(x, y, angle, jnp.cos(angle), jnp.sin(angle))

    def coordinates(self) -> Any:
        """Return the absolute coordinates at the start (3,)."""
        return vector(self.pose)

    def moments(self) -> Any:
        """Return the inertia ()."""
        return real(self.inertia)


@dataclasses.dataclass(frozen=True)
class Rotor(ByKeywords):
    """A rotation without a position in the plane: the spin of a wheel about its axle, the shaft of a motor.

    The axle of a wheel lies in the plane of motion of its vehicle, so its spin is not a rotation in the
    plane. The spin has kinetic energy inertia spin'^2 / 2 and is otherwise independent of the motion of the
    bodies. A rotor is this single coordinate. It has no mass: the body that carries a wheel includes the
    wheel's mass and its inertia about the vertical. A `Wheel` couples its spin to the ground.

    Attributes:
        name: unique; not "ground".
        inertia: in kg m^2 about the axle, positive; a `kinematic_mechanism` needs no inertia.
        angle: at the start in rad; positive spin rolls forward.
    """

    name: str
    inertia: Number = None
    angle: Any = 0.0

    turns_only: ClassVar[bool] = True

    @property
    def mass(self) -> float:
        """Zero, because the body that carries a rotor includes its mass."""
        return 0.0

    def mistakes(self, massless: bool = False) -> Iterable[str]:
        """Yield the errors of the rotor; `massless` has no effect, because its inertia must be positive."""
        if not is_positive(self.inertia):
            yield f"inertia must be a positive number, got {shown(self.inertia)}"
        if not is_number(self.angle):
            yield f"angle must be a finite number in rad, got {shown(self.angle)}"

    def doubts(self) -> Iterable[str]:
        """Return no warnings."""
        return ()

    def with_unit_mass(self) -> Rotor:
        """Return the rotor with a missing inertia set to one."""
        return dataclasses.replace(self, **_one_where_missing(self, inertia=1.0))

    def frame(self) -> planar_frames.Frame:
        """Return the frame at the start: at the origin, rotated by the angle."""
        zero = jnp.zeros_like(real(self.angle))
        return planar_frames.Frame.of_pose(zero, zero, real(self.angle))

    def coordinates(self) -> Any:
        """Return the angle at the start (1,)."""
        return real(self.angle)[None]

    def moments(self) -> Any:
        """Return the inertia ()."""
        return real(self.inertia)


@dataclasses.dataclass(frozen=True)
class SpatialBody(ByKeywords):
    """A rigid body in space. Its frame has its origin in the mass center.

    Attributes:
        name: unique; not "ground".
        mass: in kg, positive; in joint coordinates it may be zero if M stays positive definite, as between
            the hinges of a wrist.
        inertia: in kg m^2 about the mass center in the axes of the body: principal moments (3,), or a
            symmetric matrix (3, 3); positive definite; in joint coordinates, it may be singular if M stays
            positive definite. `mechanism` warns if the largest moment exceeds the sum of the other two. No
            physical body has such an inertia, but some published models do.
        place: position (3,) of the mass center at the start in m. World points `at` of joints refer to this
            position; see `pose` of `Body`.
        quaternion: (4,) wxyz, body to world, at the start; any nonzero length is accepted and normalized,
            with a warning.
    """

    name: str
    mass: Number = None
    inertia: Any = None
    place: Any = (0.0, 0.0, 0.0)
    quaternion: Any = (1.0, 0.0, 0.0, 0.0)

    instead: ClassVar[Mapping[str, str]] = {
        **_many("pose", use="place=(x, y, z) and quaternion=(w, x, y, z)"),
        **_many("position", "point", "at", use="place=(x, y, z)"),
        **_many("orientation", "rotation", "rpy", "axes", use="quaternion=(w, x, y, z)"),
    }
    turns_only: ClassVar[bool] = False

    def mistakes(self, massless: bool = False) -> Iterable[str]:
        """Yield the errors of the body; `massless` allows zero mass and inertia."""
        yield from _number_mistakes("mass", self.mass, massless)
        yield from _inertia_mistakes(self, massless)
        if not is_vector(self.place, 3):
            yield (
                "place must be three finite numbers (x, y, z), got "
                f"{shown(self.place)}{batches(self.place, 3)}"
            )
        quaternion = concrete(self.quaternion)
        if not is_vector(self.quaternion, 4) or (quaternion is not None and not np.any(quaternion)):
            remedy = (
                "; use (1, 0, 0, 0) for the world axes"
                if is_vector(self.quaternion, 4)
                else batches(self.quaternion, 4)
            )
            yield (
                "quaternion must be four finite numbers (w, x, y, z) that are not all zero, got "
                f"{shown(self.quaternion)}{remedy}"
            )
        elif not has_length(self.quaternion):
            yield (
                f"quaternion must have a nonzero length that does not underflow, got {shown(self.quaternion)}"
            )

    def doubts(self) -> Iterable[str]:
        """Yield warnings about computable values that no physical body has."""
        inertia, quaternion = concrete(self.inertia), concrete(self.quaternion)
        if inertia is not None:
            moments, nothing = _principal(inertia), self._nothing()
            if moments[0] < -nothing:
                yield f"the principal moments of inertia {moments} are not physical: one is negative"
            elif moments[2] > (moments[0] + moments[1]) * (1.0 + _ROUNDED) + nothing:
                yield (
                    f"the principal moments of inertia {moments} are not physical: the largest exceeds the "
                    "sum of the other two; check the signs of the products of inertia, and that all values "
                    "are about the mass center"
                )
        if quaternion is not None and abs(np.linalg.norm(quaternion) - 1.0) > _ROUNDED:
            yield f"quaternion had length {np.linalg.norm(quaternion):.6g} and was normalized"

    def _nothing(self) -> float:
        """Return the threshold below which a moment of inertia is zero.

        Rotating and shifting the tensor of a point mass leaves round-off in place of zeros.
        """
        mass = concrete(self.mass)
        return 0.0 if mass is None or mass.ndim else _POINT * float(mass)

    def with_unit_mass(self) -> SpatialBody:
        """Return the body with missing mass and inertia set to one."""
        return dataclasses.replace(self, **_one_where_missing(self, mass=1.0, inertia=(1.0, 1.0, 1.0)))

    def frame(self) -> spatial_frames.Frame:
        """Return the body frame at the start."""
        return spatial_frames.Frame.of_pose(vector(self.place), quat_normalize(vector(self.quaternion)))

    def coordinates(self) -> Any:
        """Return the absolute coordinates at the start (7,)."""
        return jnp.concatenate([vector(self.place), quat_normalize(vector(self.quaternion))])

    def moments(self) -> Any:
        """Return the inertia (3,) or (3, 3)."""
        return jnp.asarray(self.inertia, jnp.result_type(float))


def inertia_requirements(mass: Any, inertia: Any, count: int, dimension: int) -> Iterator[tuple[Any, str]]:
    """Yield the conditions on the masses and inertias of a mechanism; see `jaxdae.base.requirements`.

    Zero is allowed: a singular mass matrix has a status of its own.

    Args:
        mass: (count,) in kg.
        inertia: (count,) in the plane, (count, 3) or (count, 3, 3) in space; further axes may come first.
        count: the number of bodies.
        dimension: 2 or 3.
    """
    yield mass >= 0.0, "mass must be non-negative"
    shape = getattr(inertia, "shape", None)
    if shape is None:  # Unknown on the host.
        return
    if dimension == 2:
        yield inertia >= 0.0, "inertia must be non-negative"
        return
    # The allowed rounding of moments is that of descriptions.
    if shape[-3:] != (count, 3, 3):
        moments = [inertia[..., k] for k in range(3)]
        rounding = _ROUNDED * sum(map(abs, moments)) + _POINT * mass
        for moment in moments:
            yield moment >= -rounding, "inertia must be non-negative"
        return
    a, b, c = (inertia[..., k, k] for k in range(3))
    size = abs(a) + abs(b) + abs(c)
    for j, k in ((0, 1), (0, 2), (1, 2)):
        yield (
            abs(inertia[..., j, k] - inertia[..., k, j]) <= _ROUNDED * size,
            "inertia must be symmetric matrices",
        )
    rounding = _ROUNDED * size + _POINT * mass
    a, b, c = a + rounding, b + rounding, c + rounding
    f, g, h = inertia[..., 1, 2], inertia[..., 0, 2], inertia[..., 0, 1]
    minors = (a, a * b - h * h, a * (b * c - f * f) - h * (h * c - f * g) + g * (h * f - b * g))
    for minor in minors:
        yield minor >= 0.0, "inertia must be positive definite"


def _one_where_missing(body: Any, **ones: Any) -> dict[str, Any]:
    """Return the given values for the fields of a body that are None."""
    return {name: one for name, one in ones.items() if getattr(body, name) is None}


_SINGULAR = "only joint coordinates, Joints(), accept zero, and only if the mass matrix is positive definite"


def _number_mistakes(name: str, given: Any, massless: bool) -> Iterable[str]:
    if not is_positive(given) and not (massless and is_zero(given)):
        yield (
            f"{name} must be a positive number, got "
            f"{shown(given)}{f' ({_SINGULAR})' if is_zero(given) else batches(given)}"
        )


def _inertia_mistakes(body: SpatialBody, massless: bool) -> Iterable[str]:
    moments, given = concrete(body.inertia), body.inertia
    if (shape_of(given) if moments is None else moments.shape) not in ((3,), (3, 3)) or not np.all(
        np.isfinite(0.0 if moments is None else moments)
    ):
        worlds = batches(given, 3) or batches(given, 3, 3)
        yield (
            "inertia must be three principal moments or a matrix (3, 3) of finite numbers, got "
            f"{shown(given)}{worlds}"
        )
        return
    if moments is None:
        return
    matrix = np.diag(moments) if moments.ndim == 1 else moments
    # Tolerance relative to the largest entry: round-off from rotating or shifting a tensor is not an error.
    if not np.allclose(matrix, matrix.T, rtol=0.0, atol=1e-9 * np.max(np.abs(matrix))):
        yield (
            f"inertia must be symmetric, got {shown(given)}; write each product of inertia on both sides "
            "of the diagonal"
        )
        return
    principal = _principal(moments)
    lowest = -max(_ROUNDED * principal[2], body._nothing())
    if principal[0] < lowest or not (massless or principal[0] > 0.0):
        singular = principal[0] >= lowest
        remedy = (
            _SINGULAR
            if singular
            else "check the signs of the products of inertia, and that all values are about the mass center"
        )
        yield (
            f"inertia must be positive definite, got {shown(given)} with principal moments {principal} "
            f"({remedy})"
        )


def _principal(inertia: np.ndarray) -> np.ndarray:
    """Return the principal moments (3,) in ascending order."""
    return np.sort(inertia) if inertia.ndim == 1 else np.linalg.eigvalsh(inertia)

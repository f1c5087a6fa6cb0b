"""Shared base classes of spatial joints: axes, and elements along coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree
from jaxdae.base.suggestions import brief
from jaxdae.geometry.spatial_frames import Frame
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.attachments import AxesOfBoth, PointOfBoth, TwoBodies
from jaxdae.mechanisms.describe.elements import Joint, Number, Rows
from jaxdae.mechanisms.describe.plane_and_space import SPACE, Plane, Space
from jaxdae.mechanisms.joints import spatial_measures as parts
from jaxdae.mechanisms.joints.passive_elements import WithElements

PARALLEL = 1e-6
"""Sine of the angle below which two directions count as parallel."""


class SpatialJoint(Joint):
    """A joint in space; a joint with `coordinates` can be driven, damped and prescribed along them."""

    space: ClassVar[Plane | Space] = SPACE


class Facing(SpatialJoint):
    """A joint whose rows are sines of the constrained angles.

    The rows also vanish if b is flipped by half a turn.
    """

    turns_over: ClassVar[bool] = True

    def facing(self, a: Frame, b: Frame) -> Any:
        """Return the cosine of the angle whose sine is the norm of the rows in rad.

        By default, this is the angle between the z axes.
        """
        return parts.axis_a(self, a, 2).dot(parts.axis_b(self, b, 2))

    def opening(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the residual with its rows in rad scaled by angle / sin(angle).

        The scaled rows do not vanish at half a turn.
        """
        rows, cosine, units = self.residual(a, b, t), self.facing(a, b), list(self.rows.values())
        square = sum(row * row for row, unit in zip(rows, units, strict=True) if unit == "rad")
        aligned = square < jnp.finfo(cosine.dtype).eps
        sine = jnp.sqrt(jnp.where(aligned, 1.0, square))
        longer = jnp.where(aligned, 1.0, jnp.arctan2(sine, cosine) / sine)
        # At half a turn the direction back is undefined, so any direction is valid.
        turned = jnp.where(aligned & (cosine < 0.0), jnp.pi, 0.0)
        first = units.index("rad")
        return tuple(
            row if unit == "m" else row * longer + (turned if k == first else 0.0)
            for k, (row, unit) in enumerate(zip(rows, units, strict=True))
        )


@pytree
class WithAxes(AxesOfBoth, PointOfBoth, SpatialJoint):
    """A joint with a point and axes x, y, z in both bodies, which determine both joint frames of a group."""

    def joint_frames(self) -> tuple[Frame, Frame]:
        """Return the frames of the joint in both bodies."""
        return parts.frames_of_joint(self)


@pytree
class _Axis(TwoBodies):
    axis: Any = fields.axis("the axis of the joint")


@pytree
class OnAxis(WithAxes, _Axis):
    """A joint with an axis: z of the joint, along `axis` at the start pose.

    With `at`, `axis` is a direction in the world. With `point_a` and `point_b`, it is a direction in the
    frame of a.
    """

    axis_fields: ClassVar[tuple[str, ...]] = ("axis",)

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield an error if the axis is missing or specified twice."""
        if self.axis is None and self.axes_a is None:
            yield "needs a direction; give axis, or axes_a and axes_b"
        if self.axis is not None and self.axes_a is not None:
            yield "has both axis and axes_a; give only one of them"


DAMPER, SPRING = "RotationalDamper", "RotationalSpring"
ROTATIONAL = {
    "damping": f"add the force {DAMPER}(name, a, b, damping) between the same bodies, which damps rotation "
    "about all axes",
    "stiffness": f"add the force {SPRING}(name, a, b, stiffness=...) between the same bodies, which acts "
    "about all axes",
    "rest": f"the force {SPRING} has zero torque if its axes_a and axes_b coincide",
}
"""Remedies for rotational keywords of joints: the forces that act on any relative rotation of two bodies."""


class Movable(WithElements, SpatialJoint):
    """A joint with coordinates, whose angles are in (-pi, pi]."""

    counts_turns: ClassVar[bool] = False


@pytree(kw_only=True)
class AnyOrientation(SpatialJoint):
    """A joint that leaves any orientation, with what may act on each of its velocities in joint coordinates.

    In joint coordinates, armature is the same inertia about all axes, and dry friction acts on each velocity
    component, as in robot files. Both are part of the reaction.
    """

    tree_only: ClassVar[tuple[str, ...]] = ("armature", "friction")

    armature: Number = fields.number(
        "the inertia that motors add to each velocity (armature), for tree joints only,",
        "kg m^2 or kg",
        value=0.0,
        at_least=0.0,
        sparse=True,
    )
    friction: Number = fields.number(
        "the dry friction against each velocity, for tree joints only,",
        "N m or N",
        value=0.0,
        at_least=0.0,
        sparse=True,
    )
    friction_speed: Number = fields.number(
        "the speed at which friction reaches 76 % of its maximum",
        "rad/s or m/s",
        value=0.01,
        above=0.0,
        needs="friction",
    )

    def elements(self) -> dict[str, Any]:
        """Return the armature and friction fields of a group by name."""
        return {name: getattr(self, name) for name in ("armature", "friction", "friction_speed")}


def two_axes_mistakes(joint: Any, places: Mapping[str, Any], names: tuple[str, str]) -> Iterable[str]:
    """Yield errors for the two directions that define the axes of a joint.

    Directions may be missing, specified twice, or parallel.

    Args:
        joint: the described joint.
        places: the directions in the world at the start pose by field name; None for a traced or invalid
            direction.
        names: the names of the two fields.
    """
    given = [name for name in names if getattr(joint, name) is not None]
    if joint.axes_a is not None:
        yield from (f"has both {name} and axes_a; give only one of them" for name in given)
        return
    if len(given) < 2:
        yield f"needs two directions; give {names[0]} and {names[1]}, or axes_a and axes_b"
        return
    first, second = (places[name] for name in names)
    if first is not None and second is not None and np.linalg.norm(np.cross(first, second)) < PARALLEL:
        given = [brief(getattr(joint, name), str) for name in names[:2]]
        yield f"{names[0]} and {names[1]} must not be parallel, got {given[0]} and {given[1]}"

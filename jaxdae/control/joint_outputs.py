"""Outputs of planar mechanisms for motors and end effectors: joint coordinates and body frames."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.suggestions import brief, join_first
from jaxdae.control.outputs import body_frame, point_of_body
from jaxdae.geometry.planar_frames import Frame
from jaxdae.systems.system import check_mechanism
from jaxdae.typing import Coordinates as Q
from jaxdae.typing import Leaf

Vector = Float[Array, " ny"]


@pytree
class JointCoordinate:
    """y = the coordinate of a joint (1,).

    For a revolute joint it is the angle of b relative to a in rad, for a prismatic joint the displacement in
    m.

    The multiplier of a goal for this output is the effort of the joint's motor: N m or N on b, with the
    reaction on a.

    Attributes:
        a: index of the body a, None for the ground (static).
        b: index of the body b (static).
        joint: the joint, an element of one of the mechanism's groups.
        coordinates: the map from q to the bodies of the mechanism, with its lengths at the call of `named`;
            None for (x, y, theta) of every body.

    The coordinate is measured between the frames of both bodies, also in joint coordinates; planar angles
    include full turns.
    """

    a: int | None = static()
    b: int | None = static()
    joint: Leaf
    coordinates: Leaf = None

    @classmethod
    def named(cls, mechanism: Any, name: str) -> JointCoordinate:
        """Return the output for the name of a joint.

        Args:
            mechanism: the mechanism, which defines `joint_names`.
            name: name of a revolute or prismatic joint.

        Raises:
            ValueError: an unknown joint, a joint without a coordinate, or a spatial mechanism.
            TypeError: a wrapper or a first-order mechanism.
        """
        _refuse_space("JointCoordinate", mechanism)
        groups = [*mechanism.joints.values(), *mechanism.carrying.values()]
        able = [n for group in groups if group.movable for n in group.names]
        if name not in able:
            kind = "has no coordinate" if name in mechanism.joint_names else "does not exist"
            raise ValueError(
                f"JointCoordinate.named: joint {brief(name)} {kind}; available: {join_first(able) or 'none'}"
            )
        group = next(group for group in groups if name in group.names)
        k = group.names.index(name)
        # Drop the static fields, which are tuples over the group.
        plain = {f.name: () for f in dataclasses.fields(group) if f.metadata.get("static")}
        joint = jax.tree.map(lambda x: x[k], dataclasses.replace(group, **plain))
        ground = len(mechanism.body_names)
        a, b = (None if side[k] == ground else side[k] for side in (group.a, group.b))
        return cls(a, b, joint, mechanism.coordinates)

    def __call__(self, q: Q) -> Vector:
        """Return y (1,).

        Raises:
            ValueError: a body that does not exist.
        """
        a, b = (
            _frame(f"JointCoordinate.{side}", q, getattr(self, side), self.coordinates) for side in ("a", "b")
        )
        return jnp.stack(type(self.joint).coordinate(self.joint, a, b, jnp.zeros((), q.dtype)))


@pytree
class BodyFrame:
    """y = (x, y, theta) of a frame fixed in a planar body, parallel to that of the body; in m and rad.

    The multiplier of a goal for this output is a force and a torque: N, N, N m.

    Attributes:
        body: index of the body (static).
        point: (2,) origin of the frame in m, in the frame of the body, whose origin is its mass center.
        coordinates: the map from q to the bodies of the mechanism, with its lengths at the call of `named`;
            None for (x, y, theta) of every body.
    """

    body: int = static()
    point: Leaf
    coordinates: Leaf = None

    @classmethod
    def named(cls, mechanism: Any, name: str, point: Any = (0.0, 0.0)) -> BodyFrame:
        """Return the output for the name of a body.

        Args:
            mechanism: the mechanism, which defines `body_names`.
            name: name of the body.
            point: (2,) in the frame of the body, in m.

        Raises:
            ValueError: an unknown body, a point with a wrong number of components, or a spatial mechanism.
        """
        _refuse_space("BodyFrame", mechanism)
        return cls(*point_of_body("BodyFrame", mechanism, name, point))

    def __call__(self, q: Q) -> Vector:
        """Return y (3,).

        Raises:
            ValueError: a body that does not exist.
        """
        frame = body_frame("BodyFrame.body", self.coordinates, q, self.body)
        place = frame.point(self.point)
        return jnp.stack([place.x, place.y, frame.angle])


def _refuse_space(what: str, mechanism: Any) -> None:
    check_mechanism(mechanism)
    if mechanism.space.dimension != 2:
        raise ValueError(
            f"{what}.named: the mechanism is spatial, but {what} is an output of planar mechanisms; use "
            "BodyPoint, which supports both"
        )


def _frame(what: str, q: Q, body: int | None, coordinates: Any) -> Frame:
    """Return the frame of a body; None is the ground."""
    if body is None:
        zero, one = jnp.zeros((), q.dtype), jnp.ones((), q.dtype)
        return Frame(zero, zero, zero, one, zero)
    return body_frame(what, coordinates, q, body)

"""Outputs of planar mechanisms that motors and end effectors act on: the coordinate of a joint, and the frame of a body."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxdae._pytree import pytree, static
from jaxdae.geometry.planar import Frame
from jaxdae.geometry.trigonometry import cos_sin
from jaxdae.outputs import check_index, point_of_body
from jaxdae.typing import Coordinates as Q
from jaxdae.typing import Leaf

Vector = Float[Array, " ny"]


@pytree
class JointCoordinate:
    """y = the coordinate of a joint (1,): the angle of b against a in rad of a revolute joint, the slide in m of a prismatic one.

    The multiplier of a goal for it is the effort of the joint's motor: N m or N on b, with the reaction on a.

    Attributes:
        a: number of the body a, None for the ground (static).
        b: number of the body b (static).
        joint: the joint, an element of one of the mechanism's groups.
    """

    a: int | None = static()
    b: int | None = static()
    joint: Leaf

    @classmethod
    def named(cls, mechanism: Any, name: str) -> JointCoordinate:
        """Returns the output by the name of the joint.

        Args:
            mechanism: whose `joint_names` these are.
            name: a revolute or a prismatic joint.

        Raises:
            ValueError: an unknown joint, or one without a coordinate.
        """
        able = [n for group in mechanism.joints.values() if group.movable for n in group.names]
        if name not in able:
            kind = "has no coordinate" if name in mechanism.joint_names else "does not exist"
            raise ValueError(f"JointCoordinate.named: joint {name!r} {kind}; those with one are: {', '.join(able) or 'none'}")
        group = next(group for group in mechanism.joints.values() if name in group.names)
        k = group.names.index(name)
        # Without the static fields, which are tuples over the group.
        plain = {f.name: () for f in dataclasses.fields(group) if f.metadata.get("static")}
        joint = jax.tree.map(lambda x: x[k], dataclasses.replace(group, **plain))
        ground = len(mechanism.body_names)
        a, b = (None if side[k] == ground else side[k] for side in (group.a, group.b))
        return cls(a, b, joint)

    def __call__(self, q: Q) -> Vector:
        """Returns y (1,).

        Raises:
            ValueError: a body that does not exist.
        """
        for side in ("a", "b"):
            if getattr(self, side) is not None:
                check_index(f"JointCoordinate.{side}", getattr(self, side), q.shape[0] // 3, "body")
        zero = jnp.zeros((), q.dtype)
        return jnp.stack(type(self.joint).coordinate(self.joint, _frame(q, self.a), _frame(q, self.b), zero))


@pytree
class BodyFrame:
    """y = (x, y, theta) of a frame fixed in a planar body, parallel to that of the body; in m and rad.

    The multiplier of a goal for it is a force and a torque: N, N, N m.

    Attributes:
        body: number of the body (static).
        point: (2,) origin of the frame in that of the body, whose origin is its mass center; in m.
    """

    body: int = static()
    point: Leaf

    @classmethod
    def named(cls, mechanism: Any, name: str, point: Any = (0.0, 0.0)) -> BodyFrame:
        """Returns the output by the name of the body.

        Args:
            mechanism: whose `body_names` these are.
            name: the body.
            point: (2,) in the frame of the body, in m.

        Raises:
            ValueError: an unknown body.
        """
        return cls(*point_of_body("BodyFrame", mechanism, name, point))

    def __call__(self, q: Q) -> Vector:
        """Returns y (3,).

        Raises:
            ValueError: a body that does not exist.
        """
        check_index("BodyFrame.body", self.body, q.shape[0] // 3, "body")
        place = _frame(q, self.body).point(self.point)
        return jnp.stack([place.x, place.y, q[3 * self.body + 2]])


def _frame(q: Q, body: int | None) -> Frame:
    if body is None:
        zero, one = jnp.zeros((), q.dtype), jnp.ones((), q.dtype)
        return Frame(zero, zero, zero, one, zero)
    x, y, angle = q[3 * body], q[3 * body + 1], q[3 * body + 2]
    return Frame(x, y, angle, *cos_sin(angle))

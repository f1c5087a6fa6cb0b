"""Collision elements of URDF and SDF: shapes, coefficients, and the pairs that may touch.

Two elements collide unless their links are welded together or a joint connects them, also if one of them is
fixed to the world. Of two coefficients of friction or restitution, the larger one applies, as in
MuJoCo. Elements without a coefficient of friction have mu = 1, the default of Gazebo.

A URDF describes a robot without its surroundings. Its ground is the plane z = 0 with the name "ground", whose
pairs are selected by this name only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

import jaxdae.mechanisms.spatial as js
from jaxdae.geometry import shapes
from jaxdae.mechanisms import GROUND
from jaxdae.robots.file_limits import MOST_LINKS
from jaxdae.robots.robot_graph import HERE, Geom, GeomPair, Joint, Pose, axes_with_z
from jaxdae.robots.robot_source import Node, Source

_FRICTION = 1.0
SHAPES: Mapping[str, tuple[str, ...]] = {
    "box": ("size",),
    "sphere": ("radius",),
    "cylinder": ("radius", "length"),
    "capsule": ("radius", "length"),
    "ellipsoid": ("radii",),
    "plane": ("normal", "size"),
    "mesh": ("filename", "uri", "scale", "submesh"),
}
"""The geometries with their attributes in URDF, which are elements in SDF."""


class Collision(NamedTuple):
    """A collision element.

    Attributes:
        geom: its shape.
        friction: the friction coefficient.
        restitution: the coefficient of restitution.
    """

    geom: Geom
    friction: float
    restitution: float = 0.0


def collision(
    source: Source,
    name: str,
    link: str,
    pose: Pose,
    geometry: Node,
    friction: float | None,
    restitution: float = 0.0,
) -> Collision:
    """Return a collision element, and report invalid numbers as mistakes of the file.

    Args:
        source: the file.
        name: the name of the element; empty if the file does not name it.
        link: the name of the link.
        pose: the pose of the element in the link.
        geometry: the geometry, such as a <box>, with its numbers as attributes.
        friction: the friction coefficient; None if the file does not define it.
        restitution: the coefficient of restitution.
    """
    mu = _FRICTION if friction is None else friction
    for value, what, most in ((mu, "friction", np.inf), (restitution, "restitution", 1.0)):
        if not 0.0 <= value <= most:
            bounds = "non-negative" if most == np.inf else "from 0 to 1"
            source.wrong(
                geometry.line, f"the {what} of a collision of link {link!r} must be {bounds}, got {value:g}"
            )
    shape, turned = _shape(source, geometry)
    if shape is not None and len(source.problems) == 0:
        for mistake in shape.mistakes():
            source.wrong(geometry.line, f"<{geometry.tag}>: {mistake}")
    return Collision(Geom(name, link, shape, pose.then(turned), geometry.tag), mu, restitution)


def _shape(source: Source, node: Node) -> tuple[shapes.Shape | None, Pose]:
    """Return a shape and its pose in the element; None for a geometry that contacts do not support."""

    def numbers(name: str, count: int) -> np.ndarray:
        source.text(node, name)
        return source.numbers(node, name, (1.0,) * count)

    def number(name: str) -> float:
        return float(numbers(name, 1)[0])

    if node.tag == "box":
        return shapes.Box(tuple((numbers("size", 3) / 2.0).tolist())), HERE
    if node.tag == "sphere":
        return shapes.Sphere(number("radius")), HERE
    if node.tag == "cylinder":
        return shapes.Cylinder(number("radius"), number("length") / 2.0), HERE
    if node.tag == "capsule":
        return shapes.Capsule(number("radius"), number("length") / 2.0), HERE
    if node.tag == "ellipsoid":
        return shapes.Ellipsoid(tuple(numbers("radii", 3).tolist())), HERE
    if node.tag != "plane":
        return None, HERE
    normal = source.numbers(node, "normal", (0.0, 0.0, 1.0))
    if not np.any(normal):
        source.wrong(node.line, "the normal of a <plane> must not be zero")
        return None, HERE
    return shapes.Plane(), Pose(axes_with_z(normal), np.zeros(3))


def named(source: Source, collisions: Sequence[Collision]) -> list[Collision]:
    """Return collision elements with unique names.

    Names that are missing, or that several elements have, become link and number: "foot_collision0".

    Raises:
        RobotFileError: too many elements.
    """
    source.at_most(MOST_LINKS, len(collisions), "collision elements")
    given = Counter(one.geom.name for one in collisions)
    of_link, found = Counter[str](), []
    for one in collisions:
        geom = one.geom
        number = of_link[geom.link]
        of_link[geom.link] += 1
        if not geom.name or given[geom.name] > 1:
            geom = geom._replace(name=f"{geom.link}_collision{number}")
        found.append(one._replace(geom=geom))
    return found


def pairs(
    collisions: Sequence[Collision],
    joints: Sequence[Joint],
    may_touch: Callable[[Collision, Collision], bool] = lambda a, b: True,
) -> list[GeomPair]:
    """Return the pairs of collision elements that may touch."""
    part = _welded(joints)
    beside = {frozenset(part.get(link, link) for link in (joint.parent, joint.child)) for joint in joints}
    found = []
    for k, a in enumerate(collisions):
        for b in collisions[k + 1 :]:
            parts = frozenset(part.get(one.geom.link, one.geom.link) for one in (a, b))
            if len(parts) == 2 and parts not in beside and may_touch(a, b):
                mu, e = max(a.friction, b.friction), max(a.restitution, b.restitution)
                found.append(GeomPair(a.geom, b.geom, mu, restitution=e))
    return found


def _welded(joints: Sequence[Joint]) -> dict[str, str]:
    """Return a representative of the links that are welded together, without welds to the ground."""
    part: dict[str, str] = {}
    for joint in joints:
        if joint.kind is js.Weld and GROUND not in (joint.parent, joint.child):
            one, other = (part.get(link, link) for link in (joint.parent, joint.child))
            part |= {link: one for link, of in part.items() if of == other} | {other: one, joint.child: one}
    return part


def on_the_ground(collisions: Sequence[Collision]) -> list[GeomPair]:
    """Return the pairs of all collision elements with the plane z = 0."""
    ground = Geom(GROUND, GROUND, shapes.Plane(), HERE, "plane")
    return [
        GeomPair(ground, one.geom, one.friction, restitution=one.restitution, by_name=True)
        for one in collisions
    ]

"""Contacts of an SDF file: the pairs of <collision> elements that may touch.

Links of one model collide only if <self_collide> of one of them is true; its default is the value of the
model. All pairs of elements need a common bit in <collide_bitmask>. A <plane> is a half space.

References:
    http://sdformat.org/spec, there the elements <collision> and <surface>, and <self_collide> of links.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxdae.base.suggestions import brief
from jaxdae.robots.collision_elements import SHAPES, Collision, collision, named, pairs
from jaxdae.robots.robot_graph import FileContacts, Joint
from jaxdae.robots.robot_source import Node, Source
from jaxdae.robots.sdf_frames import Frames, Scope
from jaxdae.robots.unused_elements import Format, unused

_ALL_BITS = 0xFFFF
_READ = Format(
    elements={
        "collision": {"pose", "geometry", "surface"},
        "geometry": {*SHAPES, "empty"},
        **SHAPES,
        "submesh": {"name", "center"},
        "surface": {"friction", "bounce", "contact"},
        "friction": {"ode", "bullet"},
        "ode": {"mu"},
        "bullet": {"friction"},
        "bounce": {"restitution_coefficient"},
        "contact": {"collide_bitmask", "ode"},
    },
    attributes={
        "collision": {"name"},
        "pose": {"relative_to", "rotation_format", "degrees"},
    },
    several=(),
    texts=True,
)


def contacts(
    source: Source, scopes: Sequence[Scope], frames: Frames, joints: Sequence[Joint]
) -> FileContacts:
    """Return the pairs of collision elements that may touch.

    Args:
        source: the file.
        scopes: the models of the file.
        frames: the poses of all frames.
        joints: the joints of all models.
    """
    nodes: list[Node] = []
    found: list[Collision] = []
    models: dict[str, str] = {}
    colliding, bits = set[str](), {}
    for scope in scopes:
        for link in scope.all("link"):
            name = scope.named(link)
            models[name] = scope.prefix
            if source.truth(link.first("self_collide") or scope.node.first("self_collide"), False):
                colliding.add(name)
            for node in link.all("collision"):
                nodes.append(node)
                geometry = _geometry(node)
                if geometry is not None:
                    bits[len(found)] = _bits(source, node)
                    found.append(_collision(source, scope, name, node, geometry, frames))
    found = named(source, found)
    masks = {one.geom.name: bits[k] for k, one in enumerate(found)}

    def may_touch(a: Collision, b: Collision) -> bool:
        one, other = a.geom.link, b.geom.link
        apart = models[one] != models[other] or bool(colliding & {one, other})
        return apart and bool(masks[a.geom.name] & masks[b.geom.name])

    ignored = unused(source, nodes, _READ, {})
    return FileContacts(pairs(found, joints, may_touch), ("collision", "self_collide"), ignored)


def _geometry(node: Node) -> Node | None:
    """Return the geometry of a collision element with its numbers as attributes, as in a URDF."""
    inside = node.first("geometry")
    shape = None if inside is None else next((one for one in inside.children if one.tag != "empty"), None)
    if shape is None:
        return None
    return Node(shape.tag, {one.tag: one.content.strip() for one in shape.children}, shape.line)


def _collision(
    source: Source, scope: Scope, link: str, node: Node, geometry: Node, frames: Frames
) -> Collision:
    at = node.first("pose")
    given, pose = "" if at is None else at.attributes.get("relative_to", ""), frames.raw(source, at)
    if given:
        pose = frames.pose(scope.full(given)).then(pose).seen_from(frames.pose(link))
    mu = _inside(node, "surface", "friction", "ode", "mu")
    mu = mu or _inside(node, "surface", "friction", "bullet", "friction")
    bounce = _inside(node, "surface", "bounce", "restitution_coefficient")
    return collision(
        source,
        node.attributes.get("name", ""),
        link,
        pose,
        geometry,
        None if mu is None else source.value(mu, 1.0),
        source.value(bounce, 0.0),
    )


def _inside(node: Node, *tags: str) -> Node | None:
    """Return a descendant by the tags on the way to it."""
    found: Node | None = node
    for tag in tags:
        found = None if found is None else found.first(tag)
    return found


def _bits(source: Source, node: Node) -> int:
    mask = _inside(node, "surface", "contact", "collide_bitmask")
    if mask is None:
        return _ALL_BITS
    try:
        return int(mask.content.strip(), 0)
    except ValueError:
        source.wrong(mask.line, f"<collide_bitmask> must be a whole number, got {brief(mask.content)}")
        return _ALL_BITS

"""The structure of a mechanism in words: the spanning tree of its bodies, and the joints that close loops."""

from collections.abc import Iterator
from typing import Any

from jaxdae.app.config.config_elements import description
from jaxdae.app.config.schema import Config
from jaxdae.app.model import coordinate_names
from jaxdae.mechanisms.describe.kinds import GROUND
from jaxdae.mechanisms.describe.spanning_tree import Tree, spanning_tree


def lines(config: Config) -> list[str]:
    """Return the spanning tree of a mechanism, one indented line per body, and its loops.

    The tree is the tree of joint coordinates, with `cut` if the config has it. In absolute coordinates, it is
    the tree that joint coordinates would use.
    """
    values = config.model_dump()
    joints = description(values).joints
    tree = spanning_tree(
        [body.name for body in description(values).bodies], joints, tuple(config.mechanism.cut)
    )
    in_joints = config.mechanism.coordinates == "joints"
    heading = (
        "tree (joint coordinates):"
        if in_joints
        else "tree (as in joint coordinates; with absolute coordinates, all joints are rows):"
    )
    found = [heading, GROUND, *(f"  {line}" for line in _below(tree, GROUND))]
    kinds = {joint.name: joint.type_key() for joint in joints}
    found.append("loops closed by:" if tree.loops else "loops closed by: none")
    found += [f"  {joint.name} ({_ends(joint)})" for joint in tree.loops]
    if in_joints:
        entries = coordinate_names.of_values(values)
        names = [] if entries is None else entries.names
        found.append(f"coordinates: {', '.join(names) or 'none'}")
    used = ", ".join(f"{list(kinds.values()).count(kind)} {kind}" for kind in dict.fromkeys(kinds.values()))
    found.append(f"joints: {used or 'none'}")
    return found


def _below(tree: Tree, carrier: str) -> Iterator[str]:
    """Yield the descendants of a body, indented."""
    for edge in tree.edges:
        if edge.parent != carrier:
            continue
        joint = "moves freely" if edge.joint is None else f"{edge.joint.type_key()} {edge.joint.name}"
        backward = f", defined from {edge.child} to {edge.parent}" if edge.reversed else ""
        yield f"{edge.child} ({joint}{backward})"
        for line in _below(tree, edge.child):
            yield f"  {line}"


def _ends(joint: Any) -> str:
    """Return the type of a joint and its bodies, or the joint of a motor, or the body of a wheel."""
    if "body" in joint.kinds():
        return f"{joint.type_key()} below {joint.body}"
    if "joint" in joint.kinds():
        return f"{joint.type_key()} of {joint.joint}"
    return f"{joint.type_key()} between {joint.a} and {joint.b}"

"""The graph of bodies and joints: its spanning tree, and the joints that close loops.

The graph is processed on the host, before compilation. The tree grows breadth-first from the ground, with
joints in the given order, so the same description always has the same tree. Joints without rows are added
last. A body that no tree joint reaches moves freely relative to the ground.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jaxdae.base.suggestions import brief, join_first
from jaxdae.mechanisms.describe.kinds import GROUND
from jaxdae.mechanisms.describe.numbers import hint, is_there


class Edge(NamedTuple):
    """An edge of the tree: a body, its parent, and their joint.

    Attributes:
        parent: the name of the parent body, or of the ground.
        child: the name of the body.
        joint: the joint between both bodies, or None for a free body.
        reversed: whether the joint points from the child to the parent.
    """

    parent: str
    child: str
    joint: Any
    reversed: bool


class Tree(NamedTuple):
    """The edges of a spanning tree, parents before children, and the loop-closing joints."""

    edges: tuple[Edge, ...]
    loops: tuple[Any, ...]


def spanning_tree(
    bodies: Sequence[str], joints: Sequence[Any], cut: Sequence[str] = (), loops: Sequence[str] = ()
) -> Tree:
    """Return the spanning tree of bodies.

    Args:
        bodies: the names of the bodies.
        joints: all joints; only joints of a type with `in_tree` can be edges.
        cut: the names of joints that must not be edges. If there are any, they must cut all loops.
        loops: the names of joints that are no edges if `cut` is empty; other loops may remain.

    Raises:
        ValueError: if `cut` is invalid; the message lists all errors, see `cut_mistakes`.
    """
    if mistakes := cut_mistakes(bodies, joints, cut):
        raise ValueError(f"Joints.cut: {'; '.join(mistakes)}")
    edges = _edges(bodies, _able(joints, cut or loops))
    used = {edge.joint.name for edge in edges if edge.joint is not None}
    return Tree(tuple(edges), tuple(joint for joint in joints if joint.name not in used and holds(joint)))


def cut_mistakes(
    bodies: Sequence[str], joints: Sequence[Any], cut: Sequence[str], unsound: Sequence[str] = ()
) -> list[str]:
    """Return the errors of a cut: unknown names, remaining loops, and bodies lost from the tree.

    A body must not become free if a joint that cannot be in the tree still constrains it.

    Args:
        bodies: the names of the bodies.
        joints: the joints between existing bodies.
        cut: the names of joints that must not be edges.
        unsound: the names of further joints that have errors, so that their constraints are unknown.
    """
    if not cut:
        return []
    names = [*(joint.name for joint in joints), *unsound]
    mistakes = [f"{brief(name)} is not a joint{hint(name, names)}" for name in cut if name not in names]
    able = _able(joints, cut)
    edges = _edges(bodies, able)
    used = {edge.joint.name for edge in edges if edge.joint is not None}
    left = [repr(joint.name) for joint in able if joint.name not in used and holds(joint)]
    if left:
        mistakes.append(
            f"leaves a loop that {join_first(left)} closes; name one joint of each loop, or omit cut to "
            "grow the tree from the ground in the order of the joints"
        )
    return mistakes if unsound else [*mistakes, *_torn(bodies, joints, cut, edges)]


def _able(joints: Sequence[Any], left_out: Sequence[str]) -> list[Any]:
    """Return the joints that can be edges."""
    return [joint for joint in joints if joint.in_tree and joint.name not in left_out]


def holds(joint: Any) -> bool:
    """Return whether a joint constrains motion if it is not an edge.

    Only joints that can be edges and have no rows, such as free joints, do not.
    """
    return bool(joint.rows or joint.velocity_rows or not joint.in_tree)


def lost_off_the_tree(joints: Sequence[Any], remedy: str) -> Iterable[tuple[str, str, str]]:
    """Yield joints outside the tree with parameters that act only on tree joints: "joint", name, and message.

    A free joint has no rows either, so it has no effect outside the tree.
    """
    for joint in joints:
        if lost := [name for name in joint.tree_only if is_there(getattr(joint, name))]:
            act = "acts" if len(lost) == 1 else "act"
            where = f"{act} only on tree joints in joint coordinates"
            text = f"joint {brief(joint.name)}: {' and '.join(lost)} {where}; {remedy}, or omit it"
            yield "joint", joint.name, text


def _torn(
    bodies: Sequence[str], joints: Sequence[Any], cut: Sequence[str], edges: Sequence[Edge]
) -> list[str]:
    """Return the errors of a cut that frees a body which a joint without `in_tree` constrains."""
    whole = {
        edge.child
        for edge in _edges(bodies, [joint for joint in joints if joint.in_tree])
        if edge.joint is None
    }
    roots: dict[str, str] = {GROUND: GROUND}
    for edge in edges:
        roots[edge.child] = edge.child if edge.joint is None else roots[edge.parent]
    found = []
    for root in (edge.child for edge in edges if edge.joint is None and edge.child not in whole):
        across = [
            joint
            for joint in joints
            if joint.rows and "a" in joint.kinds() and (roots[joint.a] == root) != (roots[joint.b] == root)
        ]
        others = [joint for joint in across if not joint.in_tree]
        if others:
            named = join_first(f"{joint.name!r} ({joint.type_key()})" for joint in others)
            own = join_first(brief(joint.name) for joint in across if joint.name in cut)
            found.append(
                f"removes body {root!r} from the tree, and {named} cannot be a tree joint; remove {own} "
                "from cut"
            )
    return found


def _edges(bodies: Sequence[str], able: Sequence[Any]) -> list[Edge]:
    """Return the edges of the tree of these joints."""
    around: dict[str, list[Any]] = {name: [] for name in (GROUND, *bodies)}
    for joint in (joint for joint in able if holds(joint)):
        around[joint.a].append(joint)
        around[joint.b].append(joint)
    edges: list[Edge] = []
    reached = {GROUND}

    def grow(start: str) -> None:
        queue = deque([start])
        while queue:
            parent = queue.popleft()
            for joint in around[parent]:
                child = joint.b if joint.a == parent else joint.a
                if child not in reached:
                    reached.add(child)
                    edges.append(Edge(parent, child, joint, reversed=joint.b == parent))
                    queue.append(child)

    grow(GROUND)
    # Joints without rows carry only bodies that no other joint carries.
    free = [joint for joint in able if not holds(joint)]
    while True:
        joint = next((joint for joint in free if joint.a in reached and joint.b not in reached), None)
        if joint is None:
            break
        reached.add(joint.b)
        edges.append(Edge(joint.a, joint.b, joint, reversed=False))
        grow(joint.b)
    for body in bodies:
        if body not in reached:
            reached.add(body)
            edges.append(Edge(GROUND, body, None, reversed=False))
            grow(body)
    return edges


def overconstrained(
    joints: Sequence[Any], freedoms: Mapping[str, int], related: Sequence[Sequence[str]] = ()
) -> bool:
    """Return whether some loops have so many rows that the rows are dependent if the loops move.

    The Chebychev-Gruebler-Kutzbach count, for a set of loops that share joints and without prescribed
    motions, is

        mobility = sum of the freedoms of their bodies, except the body nearest to the ground
                   - sum of the rows of their joints.

    Loops with mobility <= 0 can move only because of special geometry: Bennett's and Bricard's linkages,
    planar linkages of hinges in space, parallelograms with three cranks. A truss without mobility also
    counts. A single loop with mobility < 0 has redundant rows, whatever the mobility of the loops around it.
    The count also applies to pairs of loops that share a joint, because a parallelogram with three cranks may
    be a part of a mechanism with many freedoms. Two lateral rows of wheels on one body also count as
    overconstrained, because the axles are usually parallel. Each relation and each prescribed motion removes
    one freedom.

    Args:
        joints: the resolved joints with bodies `a` and `b`.
        freedoms: the freedoms of the unconstrained bodies by name.
        related: the names of the joints of each relation, and of the joint of each prescribed motion.
    """
    lateral = [joint.b for joint in joints if "lateral" in joint.velocity_rows]
    if len(set(lateral)) < len(lateral):
        return True
    holding = _holding(joints)
    cycles = [[holding[k] for k in cycle] for cycle in _cycles(holding)]
    between: dict[frozenset[str], list[Any]] = {}
    for joint in holding:
        between.setdefault(frozenset((joint.a, joint.b)), []).append(joint)
    parallel = [pair for pair in between.values() if len(pair) > 1]
    if any(_mobility(loop, freedoms) < 0 for loop in (*cycles, *parallel)):
        return True
    if any(_mobility(loops, freedoms) <= 0 for loops in _pairs_of_loops(cycles)):
        return True
    sets = [
        _Set(_mobility(loops, freedoms), {joint.name for joint in loops}) for loops in _sharing_joints(cycles)
    ]
    for group in sets:
        if group.mobility <= 0:
            return True
    looped = {name for group in sets for name in group.names}
    sets += [_Set(len(joint.coordinates), {joint.name}) for joint in joints if joint.name not in looped]
    return _overrelated(sets, related)


def loops_that_share_joints(joints: Sequence[Any]) -> list[list[Any]]:
    """Return the joints with rows of each set of loops that share joints, without prescribed motions."""
    holding = _holding(joints)
    return _sharing_joints([[holding[k] for k in cycle] for cycle in _cycles(holding)])


def _holding(joints: Sequence[Any]) -> list[Any]:
    return [joint for joint in joints if joint.rows and not joint.prescribes]


class _Set(NamedTuple):
    """A set of joints that move together.

    Attributes:
        mobility: the number of degrees of freedom of the set.
        names: the names of the joints.
    """

    mobility: int
    names: set[str]


def _overrelated(sets: list[_Set], related: Sequence[Sequence[str]]) -> bool:
    """Return whether relations leave a set of joints without freedom, except by fixing a single joint.

    Three hinges that are geared pairwise, or a parallelogram with equal crank angles, move only because of
    their special parameters.
    """
    for names in sorted(map(set, related), key=len):
        touched = [one for one in sets if one.names & names]
        total = sum(one.mobility for one in touched) - 1
        if total < 0 or (total == 0 and len(touched) == 1 and len(names) > 1):
            return True
        sets = [one for one in sets if not one.names & names] + [
            _Set(total, set().union(*(one.names for one in touched)))
        ]
    return False


def _mobility(joints: Sequence[Any], freedoms: Mapping[str, int]) -> int:
    """Return the mobility of loops from the number of their rows."""
    bodies = dict.fromkeys(name for joint in joints for name in (joint.a, joint.b))
    nearest = GROUND if GROUND in bodies else max(bodies, key=lambda name: freedoms[name])
    return sum(freedoms[name] for name in bodies if name != nearest) - sum(
        len(joint.rows) for joint in joints
    )


def _pairs_of_loops(cycles: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
    """Yield the joints of pairs of loops that share a joint.

    For each joint, these are the loops of neighboring length, so that the number of pairs is not larger than
    the number of joints in all loops.
    """
    through: dict[str, list[int]] = {}
    for k in sorted(range(len(cycles)), key=lambda k: len(cycles[k])):
        for joint in cycles[k]:
            through.setdefault(joint.name, []).append(k)
    for one, other in sorted({pair for loops in through.values() for pair in itertools.pairwise(loops)}):
        yield list({joint.name: joint for joint in (*cycles[one], *cycles[other])}.values())


def _sharing_joints(cycles: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return the joints of loops that share joints (the biconnected components of the body graph)."""
    groups: list[dict[str, Any]] = []
    for cycle in cycles:
        merged = {joint.name: joint for joint in cycle}
        apart = [group for group in groups if not group.keys() & merged.keys()]
        for group in groups:
            if group.keys() & merged.keys():
                merged = group | merged
        groups = [*apart, merged]
    return [list(group.values()) for group in groups]


def _cycles(joints: Sequence[Any]) -> list[list[int]]:
    """Return the indices of the joints of each loop: the closing joint, and its path in a spanning forest."""
    up: dict[str, tuple[str, int]] = {}  # Parent in a spanning forest, and joint to it.
    depth: dict[str, int] = {}
    around: dict[str, list[tuple[str, int]]] = {}
    for k, joint in enumerate(joints):
        around.setdefault(joint.a, []).append((joint.b, k))
        around.setdefault(joint.b, []).append((joint.a, k))
    for root in (GROUND, *around):
        if root in depth:
            continue
        depth[root], queue = 0, deque([root])
        while queue:
            body = queue.popleft()
            for other, k in around.get(body, ()):
                if other not in depth:
                    depth[other], up[other] = depth[body] + 1, (body, k)
                    queue.append(other)
    in_tree = {k for _, k in up.values()}
    cycles = []
    for k in range(len(joints)):
        a, b = joints[k].a, joints[k].b
        if k in in_tree or a == b:
            continue
        cycle = [k]
        while a != b:
            a, b = (a, b) if depth[a] >= depth[b] else (b, a)
            a, own = up[a]
            cycle.append(own)
        cycles.append(cycle)
    return cycles

"""Assembly of a mechanism description from the graph of a robot.

Links that are welded to each other form one body. The body has the name and the axes of the link that is
closest to the root, and its frame is at the common mass center. Links that are welded to the ground belong to
the ground. Joints outside the spanning tree close loops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import jaxdae.mechanisms.spatial as js
from jaxdae.base.suggestions import brief
from jaxdae.mechanisms import GROUND, SPACE, Description
from jaxdae.mechanisms.describe.description_checks import velocities_without_inertia
from jaxdae.mechanisms.describe.kinds import NOTHING
from jaxdae.robots.attach import on_bodies
from jaxdae.robots.joint_motions import columns, mass_matrix, spatial_inertia
from jaxdae.robots.load_report import Carried, LinkFrame, Loop, Report, Robot
from jaxdae.robots.planar_loops import EXACT, reduced
from jaxdae.robots.postures import Posture
from jaxdae.robots.robot_graph import (
    HERE,
    Branch,
    Coupling,
    Graph,
    Joint,
    Keyframe,
    Link,
    Pose,
    Tree,
    matrix_quaternion,
    quaternion_matrix,
    spanning,
)
from jaxdae.robots.robot_source import Source

GRAVITY = (0.0, 0.0, -9.81)
_OPEN = 1e-9  # In m: loop gap along parallel axes above which a note is issued.


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the user.

    Attributes:
        base: "fixed", "floating", or None for the base in the file.
        gravity: (3,) in m/s^2, or None for the gravity in the file.
        cut: names of joints in the file that close loops.
    """

    base: str | None = None
    gravity: Any = None
    cut: tuple[str, ...] = ()


def assembled(
    source: Source, graph: Graph, options: Options, others: Sequence[Any] = (), by_names: bool = False
) -> Robot:
    """Return the robot of a graph.

    Args:
        source: the file, for messages.
        graph: links and joints.
        options: options of the user.
        others: additional loop joints of `jaxdae.mechanisms.spatial` between links.
        by_names: whether Pinocchio orders the joints of such a file by name, and MuJoCo by position in the
            file.

    Raises:
        RobotFileError: moving parts without inertia, loops that cannot be closed, or numbers out of range,
            such as a negative damping.
    """
    joints = graph.joints
    if options.base == "floating":
        joints = [
            one
            for one in joints
            if not (one.kind is js.Weld and GROUND in (one.parent, one.child) and not one.closes)
        ]
    tree = spanning(list(graph.links), joints, options.cut)
    if options.base == "fixed":
        tree = _standing(tree, graph)
    owner = _owners(tree)
    bodies, frames, notes = _bodies(graph, owner)
    _check_inertia(source, tree, owner, graph, bodies)
    _check_numbers(source, joints)
    loops, reports, more = _loops(source, tree, owner, graph)
    notes += more
    source.end()
    for name, (link, pose) in graph.frames.items():
        own = frames[link]
        frames.setdefault(
            name, LinkFrame(own.body, own.rotation @ pose.rotation, own.place + own.rotation @ pose.place)
        )
    moving = [branch.joint for branch in tree.branches if branch.joint.kind is not js.Weld]
    named = _free_names(tree, graph, others)
    made: list[Any] = [
        js.Free(
            named[link],
            GROUND,
            link,
            frames[link].place,
            frames[link].rotation,
            **graph.floating.get(link, {}),
        )
        for link in tree.free
    ]
    made += [_element(joint, frames) for joint in (*moving, *loops)]
    further = [on_bodies(loop, frames) for loop in others]
    made += [*further, *(_relation(coupling) for coupling in graph.couplings), *graph.rows]
    gravity = (
        options.gravity
        if options.gravity is not None
        else graph.gravity
        if graph.gravity is not None
        else GRAVITY
    )
    forces, count, idle = _forces(graph, frames, gravity)
    notes += idle
    report = Report(
        robot=graph.name,
        base="floating" if any(owner[link] != GROUND for link in tree.free) else "fixed",
        frames=frames,
        merged={link: body for link, body in owner.items() if link != GROUND and body not in (GROUND, link)},
        grounded=tuple(
            link.name for link in graph.links.values() if owner[link.name] == GROUND and link.mass > 0.0
        ),
        limits={joint.name: joint.limits for joint in joints if joint.limits},
        ignored=graph.ignored,
        loops=(
            *reports,
            *(Loop(one.name, one.type_key(), one.a, one.b, len(one.rows), len(one.rows)) for one in others),
        ),
        notes=(*graph.notes, *notes),
        tree=_carried(tree, graph, named, by_joints=by_names),
        by_names=by_names,
        mass=float(sum(body.mass for body in bodies)),
        controls=graph.controls[:count],
        relations={one.name: _equation(one) for one in graph.couplings},
        keyframes=_keyframes(graph, frames, named, count),
    )
    if options.base == "floating" and report.base == "fixed" and bodies:
        text = "base='floating' has no effect: joints of the file attach the moving links to the world"
        report = dataclasses.replace(report, notes=(*report.notes, text))
    if not bodies:
        report = dataclasses.replace(
            report, notes=(*report.notes, "no link moves; use base='floating' to make the root a free body")
        )
    start = Posture(
        report.keyframes["home"].positions if "home" in report.keyframes else _start(moving, graph)
    )
    names = tuple(joint.name for joint in (*loops, *further))
    return Robot(
        Description(space=SPACE, bodies=bodies, joints=made, forces=forces, gravity=gravity, loops=names),
        start,
        report,
    )


def _forces(graph: Graph, frames: Mapping[str, LinkFrame], gravity: Any) -> tuple[list[Any], int, list[str]]:
    """Return the active forces, their number of inputs, and notes on inactive forces.

    Args:
        graph: links and forces.
        frames: poses of the links in their bodies.
        gravity: (3,) in m/s^2.
    """
    acting, idle = _acting([on_bodies(force, frames) for force in graph.forces])
    lifting = [_lift(link, frames[link.name], gravity) for link in graph.links.values() if link.lifted]
    forces = [*acting, *(force for force in lifting if force is not None)]
    # Actuators behind the last active actuator have no input.
    return (
        forces,
        1 + max((force.input for force in forces if getattr(force, "input", None) is not None), default=-1),
        idle,
    )


def _standing(tree: Tree, graph: Graph) -> Tree:
    """Return the tree with its free links welded to the ground, except links that are free in the file."""
    welded = [graph.links[link] for link in tree.free if link not in graph.afloat]
    welds = [
        Joint(f"{link.name} weld", link.line, js.Weld, GROUND, link.name, link.pose, HERE) for link in welded
    ]
    branches = (*(Branch(GROUND, weld.child, weld, reversed=False) for weld in welds), *tree.branches)
    return Tree(branches, tree.loops, tuple(link for link in tree.free if link in graph.afloat))


def _owners(tree: Tree) -> dict[str, str]:
    """Return the body of each link."""
    owner = {GROUND: GROUND} | {link: link for link in tree.free}
    for branch in tree.branches:
        owner[branch.child] = owner[branch.parent] if branch.joint.kind is js.Weld else branch.child
    return owner


def _members(links: Mapping[str, Link], owner: Mapping[str, str]) -> dict[str, list[Link]]:
    members: dict[str, list[Link]] = {}
    for name, body in owner.items():
        if name != GROUND:
            members.setdefault(body, []).append(links[name])
    return members


def together(members: Sequence[Link], at: Link | None = None) -> tuple[float, np.ndarray, np.ndarray]:
    """Return mass, mass center in the world, and inertia about it in world axes, of welded links.

    Args:
        members: the links.
        at: link whose origin is the center of a massless body.
    """
    mass = sum(link.mass for link in members)
    centers = [link.pose.then(Pose(np.eye(3), link.center)).place for link in members]
    if mass > 0.0:
        center = (
            sum((link.mass * place for link, place in zip(members, centers, strict=True)), np.zeros(3)) / mass
        )
    else:
        center = (at or members[0]).pose.place
    inertia = np.zeros((3, 3))
    for link, place in zip(members, centers, strict=True):
        rotation, arm = link.pose.rotation, place - center
        inertia += rotation @ link.inertia @ rotation.T + link.mass * (
            arm @ arm * np.eye(3) - np.outer(arm, arm)
        )
    return mass, center, 0.5 * (inertia + inertia.T)


def _bodies(graph: Graph, owner: Mapping[str, str]) -> tuple[list[js.Body], dict[str, LinkFrame], list[str]]:
    """Return the bodies, the poses of the links in them, and notes on doubtful inertias."""
    bodies, notes = [], []
    frames = {GROUND: LinkFrame(GROUND, np.eye(3), np.zeros(3))}
    for body, inside in _members(graph.links, owner).items():
        here = HERE
        if body != GROUND:
            link = graph.links[body]
            mass, center, inertia = together(inside, link)
            here = Pose(link.pose.rotation, center)
            own = here.rotation.T @ inertia @ here.rotation
            own = 0.5 * (own + own.T)
            bodies.append(js.Body(body, mass, own, place=center, quaternion=matrix_quaternion(here.rotation)))
            notes += [f"body {brief(body)}: {doubt}; used unchanged" for doubt in bodies[-1].doubts()]
        for link in inside:
            pose = link.pose.seen_from(here)
            frames[link.name] = LinkFrame(body, pose.rotation, pose.place)
    return bodies, frames, notes


def _check_inertia(
    source: Source, tree: Tree, owner: Mapping[str, str], graph: Graph, made: Sequence[js.Body]
) -> None:
    """Report joints that move no inertia, and bodies with inertia that no coordinate moves."""
    number = {GROUND: -1}
    names, carriers, own, armature, children = [], [], [], [], []
    origin = graph.links[tree.branches[0].child].pose.place if tree.branches else np.zeros(3)
    near = {
        name: Pose(link.pose.rotation, link.pose.place - origin) for name, link in graph.links.items()
    } | {GROUND: Pose(np.eye(3), -origin)}

    def add(body: str, carrier: int, name: str, motions: np.ndarray, inertia: float) -> None:
        number[body] = len(names)
        names.append(name)
        carriers.append(carrier)
        own.append(motions)
        armature.append(inertia)
        children.append(body)

    everything = np.eye(6)
    for link in tree.free:
        add(link, -1, "", everything, 0.0)
    for branch in tree.branches:
        joint = branch.joint
        if joint.kind is not js.Weld:
            steps = _stepped(joint)
            frame = near[joint.parent].then(joint.in_parent)
            motions, _ = columns(steps, frame, np.zeros(len(steps)))
            motors = np.min(np.asarray(joint.numbers.get("armature", 0.0), float))
            add(owner[branch.child], number[owner[branch.parent]], joint.name, motions, float(motors))
    bodies = {}
    for body, inside in _members(graph.links, owner).items():
        if body != GROUND:
            mass, center, inertia = together(inside, graph.links[body])
            bodies[number[body]] = spatial_inertia(mass, center - origin, inertia)
    told = set()
    of_velocity = np.repeat(np.arange(len(own)), [motions.shape[1] for motions in own])
    singular = velocities_without_inertia(mass_matrix(carriers, own, bodies, armature))
    for k in dict.fromkeys(int(of_velocity[velocity]) for velocity in singular):
        link = graph.links[children[k]]
        told.add(link.name)
        mass, _, inertia = together(_members(graph.links, owner)[link.name], link)
        by = f"by the joint {brief(names[k])} " if names[k] else "freely "
        what = (
            "and has no mass"
            if mass == 0.0
            else f"and has {mass:g} kg with the principal moments of inertia {np.linalg.eigvalsh(inertia)}"
        )
        source.wrong(
            link.line,
            f"link {brief(link.name)} moves {by}{what}, and the links that it carries lack inertia too, so "
            "the mass matrix is singular; add an <inertial>",
        )
    for body in made:
        for mistake in body.mistakes(massless=True) if body.name not in told else ():
            source.wrong(
                graph.links[body.name].line,
                f"link {brief(body.name)}, including the links welded to it: {mistake}",
            )


def _check_numbers(source: Source, joints: Sequence[Joint]) -> None:
    """Report joint numbers out of range. Ball joints have the damping of a hinge about all axes."""
    for joint in joints:
        kinds = {**js.Revolute.kinds(), **joint.kind.kinds()}
        for name, value in joint.numbers.items():
            for mistake in kinds[name].mistakes(value, NOTHING):
                source.wrong(joint.line, f"joint {joint.name!r}: {name} {mistake}")


def _stepped(joint: Joint) -> tuple[Any, ...]:
    """Return the motion steps of a joint."""
    given = {key: value for key, value in joint.numbers.items() if key == "lead"}
    return joint.kind(joint.name, "a", "b", **given).steps()


def _loops(
    source: Source, tree: Tree, owner: Mapping[str, str], graph: Graph
) -> tuple[list[Joint], tuple[Loop, ...], list[str]]:
    """Return the loop joints, reduced to the plane if possible, their report entries, and notes."""
    made, reports, notes = [], [], []
    for joint in tree.loops:
        a, b = owner[joint.parent], owner[joint.child]
        if a == b:
            notes.append(
                f"joint {brief(joint.name)} in line {joint.line} joins {brief(joint.parent)} and "
                f"{brief(joint.child)},"
                " which are one body; the joint is ignored"
            )
            continue
        flat = reduced(joint, tree.branches, tree.free, graph.links)
        rows = len(joint.kind.rows)
        fewer = sum(len(one.kind.rows) for one in flat.joints) if flat else rows
        reports.append(Loop(joint.name, joint.kind.type_key(), joint.parent, joint.child, fewer, rows))
        if flat is None:
            made.append(joint)
            continue
        made.extend(flat.joints)
        if flat.sine > EXACT:
            notes.append(
                f"loop {joint.name}: hinges that are parallel within {flat.sine:.1g} rad are treated as "
                "parallel"
            )
        if abs(flat.gap) > 1e-6:
            source.wrong(
                joint.line,
                f"the loop of joint {brief(joint.name)} is open by {1e3 * flat.gap:.6g} mm"
                " along its hinges, which are all parallel, so no motion closes it; move the joint or one "
                "of the hinges along the axes",
            )
        elif abs(flat.gap) > _OPEN:
            notes.append(
                f"loop {joint.name}: {1e3 * flat.gap:.3g} mm along the axes of its parallel hinges is "
                "ignored, because no motion changes it"
            )
    return made, tuple(reports), notes


def _element(joint: Joint, frames: Mapping[str, LinkFrame]) -> Any:
    """Return the joint as an element of a description."""
    a, b = frames[joint.parent], frames[joint.child]
    known = joint.kind.kinds()
    places: dict[str, Any] = {
        "point_a": a.place + a.rotation @ joint.in_parent.place,
        "point_b": b.place + b.rotation @ joint.in_child.place,
        "axes_a": a.rotation @ joint.in_parent.rotation,
        "axes_b": b.rotation @ joint.in_child.rotation,
    }
    given = {key: value for key, value in places.items() if key in known}
    return joint.kind(joint.name, a=a.body, b=b.body, **given, **joint.numbers)


def _relation(coupling: Coupling) -> js.Relation:
    references = coupling.reference, coupling.other_reference
    return js.Relation(coupling.name, coupling.joint, coupling.other, coupling.coefficients, *references)


def _equation(coupling: Coupling) -> str:
    """Return the coupling as an equation in text form."""

    def less(name: str, reference: float) -> str:
        return f"({name} - {reference:.6g})" if reference else name

    powers = ("", " {x}", *(f" {{x}}^{k}" for k in range(2, 5)))
    other = less(coupling.other, coupling.other_reference)
    terms = [
        f"{c:.6g}{power.format(x=other)}"
        for c, power in zip(coupling.coefficients, powers, strict=False)
        if c
    ]
    return f"{less(coupling.joint, coupling.reference)} = {' + '.join(terms) or '0'}"


def _lift(link: Link, frame: LinkFrame, gravity: Any) -> Any:
    """Return the force that carries a part of the weight of a link; None for links of the ground."""
    if frame.body == GROUND:
        return None
    point = frame.place + frame.rotation @ link.center
    return js.Force(
        f"{link.name} lifted",
        frame.body,
        point=point,
        force=-link.lifted * link.mass * np.asarray(gravity, float),
    )


def _acting(forces: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Return the forces that act on a body, and notes on the other forces."""
    acting, idle = [], []
    for force in forces:
        ends = [getattr(force, name) for name, kind in force.kinds().items() if kind.names_body]
        if ends and set(ends) == {GROUND}:
            idle.append(f"force {brief(force.name)} acts only on the ground and is ignored")
        else:
            acting.append(force)
    return acting, idle


def _free_names(tree: Tree, graph: Graph, others: Sequence[Any]) -> dict[str, str]:
    """Return the joint names of free links: the link names, unless another joint has the same name."""
    taken = {one.name for one in (*graph.joints, *graph.couplings, *graph.rows, *others)}
    return {link: f"{link} free" if link in taken else link for link in tree.free}


def _carried(tree: Tree, graph: Graph, free: Mapping[str, str], by_joints: bool) -> tuple[Carried, ...]:
    # MuJoCo attaches the links of a URDF in the order of the joints.
    links, order = graph.links, [joint.child for joint in graph.joints] if by_joints else list(graph.links)
    number = {link: order.index(link) if link in order else -1 for link in graph.links}
    found = [
        Carried(GROUND, link, free[link], "free", False, False, links[link].pose.rotation, number[link])
        for link in tree.free
    ]
    for branch in tree.branches:
        kind = "fixed" if branch.joint.kind is js.Weld else "ball" if branch.joint.kind is js.Ball else "axes"
        above = np.eye(3) if branch.parent == GROUND else links[branch.parent].pose.rotation
        turned = above.T @ links[branch.child].pose.rotation
        hangs = branch.parent, branch.child, branch.joint.name, kind, branch.reversed, branch.joint.wraps
        found.append(Carried(*hangs, turned, number[branch.child]))
    return tuple(found)


def _keyframes(
    graph: Graph, frames: Mapping[str, LinkFrame], free: Mapping[str, str], inputs: int
) -> dict[str, Keyframe]:
    """Return the named states in MuJoCo coordinates (qpos, qvel) by joint, each with `inputs` controls."""
    carried = {joint.child: joint for joint in graph.joints if not joint.closes}
    found = {}
    for name, (qpos, qvel, controls) in graph.keyframes.items():
        positions: dict[str, Any] = {}
        rates: dict[str, Any] = {}
        at_q = at_v = 0
        for link in graph.links:
            joint = carried.get(link)
            if joint is None:
                if link in free:  # Otherwise it is free in the file, and welded to the ground by the user.
                    place, quaternion = np.split(qpos[at_q : at_q + 7], [3])
                    positions[free[link]] = (*place, *(quaternion / np.linalg.norm(quaternion)))
                    rates[free[link]] = tuple(qvel[at_v : at_v + 6])
                at_q, at_v = at_q + 7, at_v + 6
            elif joint.kind is js.Ball:
                turned = graph.links[link].pose.rotation
                over = np.eye(3) if joint.parent == GROUND else graph.links[joint.parent].pose.rotation
                rotation = (
                    frames[joint.parent].rotation @ over.T @ turned @ quaternion_matrix(qpos[at_q : at_q + 4])
                )
                positions[joint.name], rates[joint.name] = (
                    tuple(matrix_quaternion(rotation)),
                    tuple(qvel[at_v : at_v + 3]),
                )
                at_q, at_v = at_q + 4, at_v + 3
            elif joint.kind is not js.Weld:
                positions[joint.name], rates[joint.name] = float(qpos[at_q]), float(qvel[at_v])
                at_q, at_v = at_q + 1, at_v + 1
        found[name] = Keyframe(Posture(positions), Posture(rates), tuple(float(x) for x in controls[:inputs]))
    return found


def _start(moving: Sequence[Joint], graph: Graph) -> dict[str, float]:
    """Return the coordinates of single-coordinate joints in the file pose; follower values are consistent."""
    start = {joint.name: float(joint.at_file[0]) for joint in moving if len(joint.at_file) == 1}
    followers = {one.joint: one for one in graph.couplings if one.joint in start and one.other in start}

    found: dict[str, float] = {}
    for name in followers:
        way = {name: None}  # In order, from a follower to the driver of the chain.
        at = name
        while at in followers and at not in found and followers[at].other not in way:
            at = followers[at].other
            way[at] = None
        for joint in reversed(way):
            one = followers.get(joint)
            if one is None or joint in found:
                continue
            x = found.get(one.other, start[one.other]) - one.other_reference
            found[joint] = float(sum(c * x**k for k, c in enumerate(one.coefficients))) + one.reference
    return start | found

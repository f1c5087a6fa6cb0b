"""Loops that the user closes, and the start at which the loops are closed.

In the pose of the file, loops may be open. If joints follow others, or the state `home` is the start, loops
may be open at the start too. The start is then the nearest pose that closes the loops
(`jaxdae.dynamics.initialization.initialize`). If no such pose exists, an error reports the loop gap in mm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdae.base.suggestions import brief
from jaxdae.dynamics.initialization import initialize
from jaxdae.geometry.spatial_frames import Frame
from jaxdae.mechanisms import GROUND, Description, Joints, mechanism
from jaxdae.mechanisms.describe.kinds import Known
from jaxdae.mechanisms.describe.numbers import hint, real
from jaxdae.robots.joint_states import joint_state
from jaxdae.robots.planar_loops import REDUCIBLE
from jaxdae.robots.robot_graph import HERE, Graph, Joint, Pose
from jaxdae.robots.robot_source import Source
from jaxdae.systems.status import SimulationError

OPEN = 1e-9
"""Loop gap in the pose of the file, in m and rad, above which the start is corrected."""

_REACH = 1e3
"""Loop gap, relative to the size of the robot, above which assembly is not attempted."""


def check_loops(graph: Graph, loops: Sequence[Any]) -> None:
    """Raise ValueError if loops name unknown links, are not joints with two ends, or have duplicate names."""
    known = [GROUND, *graph.links, *graph.frames]
    taken = {joint.name for joint in graph.joints} | {coupling.name for coupling in graph.couplings}
    for loop in loops:
        ends = (
            []
            if not hasattr(loop, "kinds")
            else [name for name, kind in loop.kinds().items() if kind.names_body]
        )
        if len(ends) != 2 or not loop.rows:
            raise ValueError(
                "load: loops must contain joints with rows between two links, or names of joints in the "
                f"file, got {brief(loop)}"
            )
        if not isinstance(loop.name, str) or not loop.name:
            raise ValueError(f"load: loops: name must be text, got {brief(loop.name)}")
        if loop.name in taken:
            raise ValueError(f"load: loop {brief(loop.name)}: a joint already has this name; rename the loop")
        taken.add(loop.name)
        for end in ends:
            name = getattr(loop, end)
            if name not in known:
                raise ValueError(
                    f"load: loop {brief(loop.name)}: {end} is {brief(name)}, which is not a "
                    f"link{hint(name, known)}"
                )
        missing = [
            f"{at} or {point}"
            for at, point in loop.places()
            if getattr(loop, at) is None and getattr(loop, point) is None
        ]
        if missing:
            raise ValueError(f"load: loop {brief(loop.name)} needs a position: give {' and '.join(missing)}")
        names = Known(known, (), "", {})
        for name, kind in loop.kinds().items():
            wrong = () if kind.names_body else kind.mistakes(getattr(loop, name), names)
            for mistake in wrong:
                raise ValueError(f"load: loop {brief(loop.name)}: {name} {mistake}")


def in_graph(graph: Graph, loops: Sequence[Any]) -> tuple[Graph, list[Any]]:
    """Return the graph with the loops that may be reduced to a plane, and the remaining loops.

    Args:
        graph: links and joints.
        loops: joints of `jaxdae.mechanisms.spatial` between links.
    """
    check_loops(graph, loops)
    if not loops:
        return graph, []
    frames = {name: _frame(link.pose) for name, link in graph.links.items()}
    poses = {name: link.pose for name, link in graph.links.items()} | {GROUND: HERE}
    frames |= {
        name: _frame(poses[link].then(pose))
        for name, (link, pose) in graph.frames.items()
        if name not in frames
    }
    frames[GROUND] = Frame(*Frame.GROUND)
    numbers = {name: k for k, name in enumerate(frames)}
    made, rest = [], []
    for loop in loops:
        plain = isinstance(loop, REDUCIBLE) and not any(np.any(np.asarray(x)) for x in _acting(loop).values())
        ends = loop.a, loop.b
        if not plain or any(end in graph.frames for end in ends):
            rest.append(loop)
            continue
        in_a, in_b = (_pose(frame) for frame in loop.placed(frames, numbers).joint_frames())
        made.append(Joint(loop.name, 0, type(loop), *ends, in_a, in_b, closes=True))
    return dataclasses.replace(graph, joints=[*graph.joints, *made]), rest


def _acting(loop: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in loop.elements().items()
        if name in ("damping", "friction", "stiffness", "armature")
    }


def _frame(pose: Pose) -> Frame:
    return Frame(*(real(x) for x in (*pose.place, *pose.rotation.reshape(-1))))


def _pose(frame: Frame) -> Pose:
    numbers = np.asarray([float(entry) for entry in frame])
    return Pose(numbers[3:].reshape(3, 3), numbers[:3])


def open_at_file(description: Description) -> dict[str, float]:
    """Return the largest residual in m and rad of each loop joint at the body start poses, by name."""
    closing: list[Any] = [
        joint for joint in description.joints if joint.name in description.loops and joint.rows
    ]
    ends = {end for joint in closing for end in (joint.a, joint.b)}
    frames: dict[str, Any] = {body.name: body.frame() for body in description.bodies if body.name in ends}
    frames[GROUND] = Frame(*(real(x) for x in Frame.GROUND))
    numbers = {name: k for k, name in enumerate(frames)}
    found = {}
    for joint in closing:
        rows = joint.placed(frames, numbers).opening(frames[joint.a], frames[joint.b], real(0.0))
        found[joint.name] = max(abs(float(row)) for row in rows)
    return found


def closed_start(
    source: Source,
    description: Description,
    start: Mapping[str, Any],
    lines: Mapping[str, int],
    elsewhere: bool,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the start at which all loops are closed, and notes about it.

    Loops that cannot be closed are reported as mistakes of the file.

    Args:
        source: the file, for messages.
        description: description of the robot.
        start: initial guess of the coordinates, by joint.
        lines: lines of the joints in the file.
        elsewhere: whether the initial guess may differ from the pose of the file, or rows other than loop
            rows exist.
    """
    limit = max(OPEN, 100.0 * float(jnp.finfo(real(0.0).dtype).eps))
    apart = {name: opening for name, opening in open_at_file(description).items() if not opening <= limit}
    elsewhere = elsewhere and bool(description.loops)
    if not apart and not elsewhere:
        return dict(start), ()
    where, unit = "in the pose of the file", "m"
    if apart:
        widest = max(apart, key=lambda name: apart[name])
        size = 1.0 + max(float(np.max(np.abs(np.asarray(body.place)))) for body in description.bodies)
        if not apart[widest] <= _REACH * size:
            text = (
                f"loop {brief(widest)} is open by {apart[widest]:.4g} m {where}, although all bodies are "
                f"within {size:.4g} m"
            )
            source.wrong(lines.get(widest, 0), text)
            return dict(start), ()
    made, q = mechanism(description, Joints())
    begun = joint_state(made, q, start)
    if not apart:
        rows = np.abs(np.asarray(made.evaluate(begun.t, begun.q).opening, float))
        apart = {
            name.rsplit(".", 1)[0]: float(row)
            for row, name in sorted(zip(rows, made.names.rows, strict=False))
            if not row <= limit
        }
        if not apart:
            return dict(start), ()
        where, unit = "at the start", made.names.row_units[int(np.argmax(rows))]
    widest = max(apart, key=lambda name: apart[name])
    opening = f"{1e3 * apart[widest]:.4g} mm" if unit == "m" else f"{apart[widest]:.4g} {unit}"
    try:
        state, _ = initialize(made, begun.q)
    except SimulationError as error:
        source.wrong(
            lines.get(widest, 0),
            f"loop {brief(widest)} is open by {opening} {where}, and assembly failed: {error}",
        )
        return dict(start), ()
    moved: dict[str, Any] = {}
    for name, value in zip(made.names.coordinates, np.asarray(state.q, float), strict=True):
        moved.setdefault(name.rsplit(".", 1)[0], []).append(float(value))
    text = f"loops were open {where}, by up to {opening} ({widest}); the start closes them"
    return {name: values[0] if len(values) == 1 else tuple(values) for name, values in moved.items()}, (text,)

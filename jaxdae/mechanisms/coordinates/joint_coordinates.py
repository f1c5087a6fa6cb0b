"""The option `Joints`, and the construction of a tree of links from bodies and joints."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxdae.base.suggestions import join_first
from jaxdae.compile.thresholds import ARTICULATED_FROM, ELIMINATED_FROM
from jaxdae.geometry import spatial_frames
from jaxdae.geometry.rotation import matrix_quaternion
from jaxdae.mechanisms.coordinates.tree_coordinates import TreeCoordinates
from jaxdae.mechanisms.describe.bodies import Body, Rotor, SpatialBody
from jaxdae.mechanisms.describe.keywords import ByKeywords
from jaxdae.mechanisms.describe.kinds import GROUND
from jaxdae.mechanisms.describe.links import AXIS, BALL, PLACE, Step, Structure, ball, place
from jaxdae.mechanisms.describe.numbers import are_names, real, said
from jaxdae.mechanisms.describe.plane_and_space import Plane, Space
from jaxdae.mechanisms.describe.spanning_tree import Edge, cut_mistakes, lost_off_the_tree, spanning_tree


def _given(cut: Any) -> str:
    """Return a short text for the given value of `cut`."""
    return f"({join_first(map(said, cut))})" if isinstance(cut, list | tuple) else said(cut)


@dataclasses.dataclass(frozen=True)
class Joints(ByKeywords):
    """Select joint coordinates: the coordinates of the joints of a spanning tree.

    Joints outside the tree are constraint rows. The tree grows breadth-first from the ground, in the order of
    the joints. A body that the tree does not reach has its own coordinates, as in absolute coordinates.

    Attributes:
        cut: the names of joints that close loops and stay outside the tree. If you name joints, name at least
            one joint of every loop.
    """

    cut: Sequence[str] = ()

    massless: ClassVar[bool] = True
    """Whether bodies may lack mass and inertia; M contains the inertia of the whole subtree of a joint."""

    def wrong_kinds(self) -> Iterable[str]:
        """Yield an error if `cut` is not a sequence of names."""
        if not are_names(self.cut):
            yield f'Joints.cut must be names of joints, such as ("crank_pin",), got {_given(self.cut)}'

    def mistakes(
        self, bodies: Sequence[str], joints: Sequence[Any], unsound: Sequence[Any], loops: Sequence[str]
    ) -> Iterable[Any]:
        """Yield the errors of this option for a description: kind ("joint" or empty), name, and text.

        Args:
            bodies: the names of the bodies.
            joints: the joints without errors.
            unsound: the joints with errors.
            loops: the names of joints that stay outside the tree if `cut` is empty.
        """
        cut = self.cut if are_names(self.cut) else ()
        found = cut_mistakes(bodies, joints, cut, [joint.name for joint in unsound])
        if found:
            yield "", "", f"Joints.cut: {join_first(found, '; ')}"
        yield from lost_off_the_tree(
            [joint for joint in (*joints, *unsound) if joint.name in cut],
            "name another joint of the loop in cut",
        )
        others = [joint for joint in joints if joint.tree_only and joint.name not in cut]
        if others and not (found or unsound):
            edges = {
                edge.joint.name
                for edge in spanning_tree(bodies, joints, cut, loops).edges
                if edge.joint is not None
            }
            off = [joint for joint in others if joint.name not in edges]
            yield from lost_off_the_tree(off, "name another joint of the loop in Joints.cut")

    def of(
        self,
        space: Plane | Space,
        bodies: Sequence[Body | Rotor | SpatialBody],
        joints: Sequence[Any],
        frames: Mapping[str, Any],
        numbers: Any,
        loops: Sequence[str] = (),
    ) -> tuple[TreeCoordinates, Any, tuple[Any, ...], tuple[Any, ...]]:
        """Return the coordinates, q at the start poses, the joints with constraint rows, and the tree joints.

        Args:
            space: the plane or space.
            bodies: the bodies.
            joints: the joints.
            frames: the frames of all bodies at the start, by name.
            numbers: the indices of all bodies, by name.
            loops: the names of joints that stay outside the tree if `cut` is empty.

        Raises:
            ValueError: if `cut` is invalid (the message lists all errors), or if welds hold all bodies, so
                that no coordinate is left.
        """
        names = [body.name for body in bodies]
        tree = spanning_tree(names, joints, self.cut, loops)
        making = _Making(space, frames, numbers, [body.name for body in bodies if body.turns_only])
        for edge in tree.edges:
            making.hang(edge)
        if not making.q:
            raise ValueError(
                f"Joints(): welds hold all bodies ({', '.join(names[:3])}{', ...' if names[3:] else ''}) to "
                "the ground, so that"
                " no coordinate is left; give a body a joint that moves, or use Absolute()"
            )
        carrying = tuple(edge.joint for edge in tree.edges if edge.joint is not None)
        form = making.coordinates(names, ELIMINATED_FROM if tree.loops else ARTICULATED_FROM)
        return form, making.start(), tree.loops, carrying


class _Making:
    """Builds a tree by adding links, parents before children."""

    def __init__(
        self,
        space: Plane | Space,
        frames: Mapping[str, Any],
        numbers: Mapping[str, int],
        rotors: Sequence[str],
    ) -> None:
        self.space, self.frames, self.numbers, self.rotors = space, frames, numbers, rotors
        self.identity = jax.tree.map(real, space.frame(*space.frame.GROUND))
        self.parents: list[int | None] = []
        self.steps: list[Step] = []
        self.names: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = []
        self.q: list[Any] = []
        self.joints: list[int] = []
        self.backward: list[bool] = []
        self.ends: list[tuple[int, int]] = []
        self.joint_names: list[str] = []
        # The link that carries each body.
        self.carriers: dict[str, int | None] = {GROUND: None}

    def hang(self, edge: Edge) -> None:
        """Add the links of an edge."""
        at_start = self.frames[edge.parent], self.frames[edge.child]
        if edge.joint is None:
            steps, ends, q = self._free(edge.child)
            name = edge.child
        else:
            joint = edge.joint.placed(self.frames, self.numbers)
            steps, (in_a, in_b) = joint.steps(), joint.joint_frames()
            ends = (in_b, in_a) if edge.reversed else (in_a, in_b)
            q = self._measured(joint, steps, edge, at_start, ends)
            name = joint.name[0]
        carrier = self.carriers[edge.parent]
        # A reversed joint has its links in opposite order, each with the inverse motion.
        order = -1 if edge.reversed else 1
        for step in steps[::order]:
            self.parents.append(carrier)
            self.steps.append(step)
            self.joints.append(len(self.joint_names))
            self.names.append((name, step.names, step.velocity_names))
            carrier = len(self.steps) - 1
        self.q.extend(q[::order])
        self.joint_names.append(name)
        self.backward.append(edge.reversed)
        self.ends.append((self.numbers[edge.parent], self.numbers[edge.child]))
        # A weld has no link, so the link of the parent also carries the child.
        self.carriers[edge.child] = carrier

    def _free(self, body: str) -> tuple[tuple[Step, ...], tuple[Any, Any], list[Any]]:
        frame = self.frames[body]
        if self.space.dimension == 3:
            return (
                (place(), ball()),
                (self.identity, self.identity),
                [frame.place.array(), _quaternion(frame)],
            )
        axes = (
            Step(AXIS, 0.0, (1.0, 0.0), (("x", "m"),), (("vx", "m/s"),)),
            Step(AXIS, 0.0, (0.0, 1.0), (("y", "m"),), (("vy", "m/s"),)),
            Step(AXIS, 1.0, (0.0, 0.0), (("theta", "rad"),), (("omega", "rad/s"),)),
        )
        if body in self.rotors:
            return axes[2:], (self.identity, self.identity), [frame.angle]
        return axes, (self.identity, self.identity), [frame.x, frame.y, frame.angle]

    def _measured(self, joint: Any, steps: Sequence[Step], edge: Edge, at_start: Any, ends: Any) -> list[Any]:
        """Return the coordinates of a joint at the start, one entry per step."""
        a, b = reversed(at_start) if edge.reversed else at_start
        scalars = (
            iter(joint.coordinate(a, b, real(0.0))) if any(step.kind == AXIS for step in steps) else iter(())
        )
        parent, child = (frame.then(end) for frame, end in zip(at_start, ends, strict=True))
        pose = child.seen_from(parent)
        others = {BALL: _quaternion, PLACE: lambda frame: frame.place.array()}
        return [next(scalars) if step.kind == AXIS else others[step.kind](pose) for step in steps]

    def coordinates(self, bodies: Sequence[str], articulated_from: int) -> TreeCoordinates:
        """Return the coordinates of all links; see `TreeCoordinates.articulated_from`."""
        ground = len(self.steps)
        structure = Structure(
            parents=tuple(ground if parent is None else parent for parent in self.parents),
            kinds=tuple(step.kind for step in self.steps),
            body_links=tuple(
                ground if link is None else link for link in (self.carriers[body] for body in bodies)
            ),
            names=tuple((f"{owner}.{name}", unit) for owner, names, _ in self.names for name, unit in names),
            velocity_names=tuple(
                (f"{owner}.{name}", unit) for owner, _, names in self.names for name, unit in names
            ),
            joints=tuple(self.joints),
            backward=tuple(self.backward),
            ends=tuple(self.ends),
            joint_names=tuple(self.joint_names),
        )
        return TreeCoordinates(space=self.space, structure=structure, articulated_from=articulated_from)

    def start(self) -> Any:
        """Return q at the start poses."""
        return jnp.concatenate([jnp.atleast_1d(real(entry)) for entry in self.q])


def _quaternion(frame: spatial_frames.Frame) -> Any:
    return matrix_quaternion(jnp.stack([axis.array() for axis in frame.axes], axis=1))

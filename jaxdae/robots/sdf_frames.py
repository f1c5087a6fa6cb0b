"""SDF frames: links, joints, frames and models with poses in other frames, attached to links.

Since version 1.7 a pose may name its reference frame (`relative_to`). The default reference frame is the
model for links and models, and the child link for joints. For frames it is the frame that they are attached
to, else the model. Before 1.7 poses were always in the model, and for joints in the child link. Names are
local to their scope, with the prefix `model::` from outside. One frame of a model may define its position
(`placement_frame`).
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from jaxdae.base.suggestions import brief, join_first
from jaxdae.mechanisms import GROUND
from jaxdae.mechanisms.describe.numbers import hint
from jaxdae.robots.angle_units import angles_in_radians, doubt, orientation_in_degrees
from jaxdae.robots.referenced_files import Folders
from jaxdae.robots.robot_graph import HERE, Link, Pose, quaternion_matrix, roll_pitch_yaw
from jaxdae.robots.robot_source import Library, Node, Source

MODEL = "__model__"
_DEEPEST = 20
"""The depth of nested models."""


class Entry(NamedTuple):
    """A frame of a file.

    Attributes:
        line: line in its file.
        what: link, joint, frame or model.
        base: full name of the reference frame of its pose, empty for the world.
        pose: pose in the reference frame.
        attached: full name of the frame that it is attached to; None for links, which end the chain.
        placement: for a model, full name of its frame that has the given pose; empty for the model frame.
    """

    line: int
    what: str
    base: str
    pose: Pose
    attached: str | None
    placement: str = ""


@dataclasses.dataclass(frozen=True)
class Scope:
    """A model or a world, with the names in it.

    Attributes:
        node: the element.
        prefix: prefix of full names, such as "arm::", empty at the top level.
        model_frame: full name of its own frame.
        version: version of the format.
        static: whether the model is static.
        is_world: whether it is a world.
        path: the file that contains it.
        alone: for a world with one model, the name of this model, which full names omit; otherwise empty.
    """

    node: Node
    prefix: str
    model_frame: str
    version: tuple[int, int]
    static: bool
    is_world: bool
    path: pathlib.Path
    alone: str = ""

    def all(self, tag: str) -> Iterator[Node]:
        """Yield the named elements with a tag."""
        return (node for node in self.node.all(tag) if node.attributes.get("name"))

    def named(self, node: Node) -> str:
        """Return the full name of an element."""
        return self.prefix + node.attributes.get("name", "")

    def full(self, name: str) -> str:
        """Return the full name for a name in this scope."""
        if name == MODEL:
            return self.model_frame
        inner = name.removesuffix(f"::{MODEL}")  # The frame of a model has the name of the model.
        if self.alone and inner == self.alone:
            return MODEL
        if self.alone:
            inner = inner.removeprefix(f"{self.alone}::")
        return "" if name == "world" else self.prefix + inner

    def canonical(self) -> str | None:
        """Return the full name of the canonical link of the model."""
        given = self.node.attributes.get("canonical_link", "")
        first = next(self.all("link"), None)
        return self.prefix + given if given else None if first is None else self.named(first)


@dataclasses.dataclass
class Frames:
    """All frames by full name. Joints are separate, because old files use one name for a link and a joint."""

    source: Source
    entries: dict[str, Entry] = dataclasses.field(default_factory=dict)
    joints: dict[str, Entry] = dataclasses.field(default_factory=dict)
    canonical: dict[str, str] = dataclasses.field(default_factory=dict)
    known: dict[tuple[bool, str], Pose | None] = dataclasses.field(default_factory=dict)
    fixed: dict[str, str | None] = dataclasses.field(default_factory=dict)
    complete: bool = False

    def raw(self, source: Source, node: Node | None) -> Pose:
        """Return the pose of a <pose> element."""
        if node is None:
            return HERE
        quaternion = node.attributes.get("rotation_format", "euler_rpy") == "quat_xyzw"
        default = (0.0,) * 6 + ((1.0,) if quaternion else ())
        numbers = source.values(node, default)
        if quaternion:
            x, y, z, w = numbers[3:]
            if not np.any(numbers[3:]):
                source.wrong(node.line, "the quaternion of <pose> must not be zero")
                return HERE
            return Pose(quaternion_matrix(np.asarray([w, x, y, z])), numbers[:3])
        degrees = node.attributes.get("degrees", "false").lower() in ("true", "1")
        if (angles_in_radians if degrees else orientation_in_degrees)(numbers[3:]):
            source.doubt(node.line, doubt("the orientation of <pose>", numbers[3:], degrees))
        return Pose(roll_pitch_yaw(*(np.radians(numbers[3:]) if degrees else numbers[3:])), numbers[:3])

    def add(self, scope: Scope, node: Node, what: str, name: str, base: str, attached: str | None) -> None:
        """Add a frame with a pose in `base`, unless the element names another reference frame."""
        table = self.joints if what == "joint" else self.entries
        others = (self.entries, self.joints) if scope.version >= (1, 7) else (table,)
        for other in others:
            if name in other:
                self.source.wrong(
                    node.line,
                    f"the {what} {brief(name)} is already used by the {other[name].what} in line "
                    f"{other[name].line}; rename one",
                )
                return
        own = node.attributes.get("name", "")
        if "::" in own or own in ("world", MODEL) or (what != "joint" and own == GROUND):
            self.source.wrong(node.line, f"a {what} must not be named {brief(own)}; rename it")
            return
        pose = node.first("pose")
        given = "" if pose is None else pose.attributes.get("relative_to", "")
        old = "" if pose is None else pose.attributes.get("frame", "")
        if old and pose is not None:
            self.source.wrong(
                pose.line,
                f"a pose with frame={brief(old)}, which SDF does not define; use SDF 1.7 with relative_to",
            )
        table[name] = Entry(
            node.line, what, scope.full(given) if given else base, self.raw(self.source, pose), attached
        )

    def _entry(self, name: str) -> Entry | None:
        return self.entries.get(name) or self.joints.get(name)

    def has(self, name: str) -> bool:
        """Return whether a frame with this full name exists; the name of the world is empty."""
        return name == "" or self._entry(name) is not None

    def pose(self, name: str) -> Pose:
        """Return the world pose of a frame, links before joints; report unknown frames and cycles."""
        return (
            self._resolved(
                name, self.entries.get(name) or self.joints.get(name), name not in self.entries, ()
            )
            or HERE
        )

    def joint_pose(self, name: str) -> Pose | None:
        """Return the world pose of a joint, None if it is unknown."""
        return self._resolved(name, self.joints.get(name), True, ())

    def _resolved(self, name: str, entry: Entry | None, of_joint: bool, way: tuple[str, ...]) -> Pose | None:
        if name == "":
            return HERE
        key = (of_joint, name)
        if key in self.known:
            return self.known[key]
        if entry is None:
            return None
        if name in way or len(way) > 400:
            self.source.wrong(
                entry.line,
                f"the pose of {brief(name)} is defined in a cycle: {join_first([*way[-5:], name], ' -> ')}",
            )
            self.known[key] = None
            return None
        base = self._resolved(
            entry.base, self._entry(entry.base), entry.base not in self.entries, (*way, name)
        )
        if base is None:
            if entry.base and self._entry(entry.base) is None:
                self.source.wrong(
                    entry.line,
                    f"the pose of {brief(name)} is relative to the unknown frame "
                    f"{brief(entry.base)}{hint(entry.base, list(self.entries))}",
                )
            self.known[key] = None
            return None
        pose = base.then(entry.pose)
        if entry.placement:
            inner = self._within(entry.placement, name)
            if inner is None:
                self.source.wrong(
                    entry.line,
                    f"the placement_frame of {brief(name)} refers to the unknown frame "
                    f"{brief(entry.placement)}",
                )
                inner = HERE
            pose = pose.then(HERE.seen_from(inner))
        self.known[key] = pose
        return pose

    def _within(self, name: str, model: str) -> Pose | None:
        """Return the pose of a frame in the frame of its model."""
        pose, seen = HERE, set()
        while name != model:
            entry = self._entry(name)
            if entry is None or name in seen:
                return None
            seen.add(name)
            pose, name = entry.pose.then(pose), entry.base
        return pose

    def link_of(self, name: str) -> str | None:
        """Return the link that a frame is attached to, or None."""
        seen: dict[str, None] = {}
        found = None
        while name not in seen:
            if name in self.fixed:
                found = self.fixed[name]
                break
            entry = self._entry(name)
            if entry is None:
                break
            if entry.what == "link":
                found = name
                break
            seen[name] = None
            name = self.canonical.get(name, "") if entry.what == "model" else entry.attached or ""
        if self.complete:
            self.fixed |= dict.fromkeys(seen, found)
        return found

    def extra(self) -> list[str]:
        """Return the names of frames other than links, joints and models."""
        return [name for name, entry in self.entries.items() if entry.what == "frame"]

    def in_link(self, name: str, links: Mapping[str, Link]) -> Pose:
        """Return the pose of a frame in its link."""
        link = self.link_of(name)
        return HERE if link is None else self.pose(name).seen_from(links[link].pose)


def in_scopes(
    source: Source, root: Node, version: tuple[int, int], folders: Folders
) -> tuple[list[Scope], Frames]:
    """Return the models and worlds of a file, and the frames in them.

    Args:
        source: the file.
        root: its root element.
        version: version of the format.
        folders: folders in which files may be read.
    """
    frames, scopes = Frames(source), []
    way = _Way(source.path, 0, (pathlib.Path(os.path.realpath(source.path)),))
    reading = _Reading(source, frames, scopes, folders)
    worlds, models = list(root.all("world")), list(root.all("model"))
    for world in worlds:
        inside = [*world.all("model"), *world.all("include")]
        named = [
            node.attributes.get("name") or getattr(node.first("name"), "content", "").strip()
            for node in inside
        ]
        scope = Scope(world, "", "", version, False, True, source.path, named[0] if len(named) == 1 else "")
        scopes.append(scope)
        reading.contents(scope, way, several=len(inside) > 1)
    for model in models:
        reading.model(
            model,
            Scope(root, "", "", version, False, True, source.path),
            way,
            prefixed=len(models) + len(worlds) > 1,
        )
    frames.complete = True
    for name in [name for name, entry in frames.entries.items() if entry.what == "link"]:
        frames.pose(name)
    return scopes, frames


class _Way(NamedTuple):
    """The current file, the depth of its models, and the chain of resolved files that leads to it."""

    path: pathlib.Path
    depth: int
    chain: tuple[pathlib.Path, ...]


@dataclasses.dataclass
class _Reading:
    """The models during reading."""

    source: Source
    frames: Frames
    scopes: list[Scope]
    folders: Folders

    def model(self, node: Node, outer: Scope, way: _Way, prefixed: bool, static: bool = False) -> None:
        """Read a model in a scope."""
        name = self.source.text(node, "name")
        prefix = f"{outer.prefix}{name}::" if prefixed else outer.prefix
        frame = outer.prefix + name if prefixed else prefix + MODEL
        still = static or outer.static or self.source.truth(node.first("static"), False)
        scope = Scope(node, prefix, frame, outer.version, still, False, way.path)
        if prefixed:
            self.frames.add(outer, node, "model", frame, outer.model_frame, None)
        else:
            pose = node.first("pose")
            given = "" if pose is None else pose.attributes.get("relative_to", "")
            base = outer.full(given) if given else outer.model_frame
            self.frames.entries[frame] = Entry(
                node.line, "model", base, self.frames.raw(self.source, pose), None
            )
        placement = node.attributes.get("placement_frame", "")
        if placement and frame in self.frames.entries:
            self.frames.entries[frame] = self.frames.entries[frame]._replace(placement=prefix + placement)
        self.scopes.append(scope)
        self.contents(scope, way, several=True)
        canonical = scope.canonical()
        if canonical is not None:
            self.frames.canonical[frame] = canonical
            given = node.attributes.get("canonical_link")
            if given and canonical not in self.frames.entries:
                self.source.wrong(node.line, f"the canonical_link {brief(given)} is not a link of the model")

    def contents(self, scope: Scope, way: _Way, several: bool) -> None:
        """Read the contents of a model or a world."""
        if way.depth > _DEEPEST:
            self.source.wrong(scope.node.line, f"models are nested more than {_DEEPEST} deep")
            return
        for tag in ("link", "joint", "frame"):
            for node in scope.node.all(tag):
                if not self.source.text(node, "name"):
                    continue
                name = scope.named(node)
                if tag == "link":
                    self.frames.add(scope, node, tag, name, scope.model_frame, None)
                elif tag == "joint":
                    end = node.first("child")
                    child = "" if end is None else (end.content.strip() or end.attributes.get("link", ""))
                    self.frames.add(scope, node, tag, name, scope.full(child), scope.full(child))
                else:
                    attached = node.attributes.get("attached_to", "")
                    base = scope.full(attached) if attached else scope.model_frame
                    self.frames.add(scope, node, tag, name, base, base)
        for node in scope.node.all("model"):
            self.model(node, scope, way._replace(depth=way.depth + 1), prefixed=several)
        for node in scope.node.all("include"):
            self.include(node, scope, way, several)

    def include(self, node: Node, scope: Scope, way: _Way, several: bool) -> None:
        """Read the model of another file.

        Raises:
            RobotFileError: a file that cannot be read, includes itself, or exceeds a limit.
        """
        uri = node.first("uri")
        found = "it has no <uri>" if uri is None else self.folders.found(uri.content, way.path.parent)
        if not isinstance(found, str) and found.is_dir():
            found = _of_folder(self.folders, found, self.source.library)
        if isinstance(found, str):
            self.source.wrong(node.line, f"<include> cannot be read: {found}")
            return
        root = Source(found, self.source.library, way.chain).root("sdf")
        inner = _Way(found, way.depth + 1, (*way.chain, found))
        models = list(root.all("model"))
        if len(models) != 1:
            self.source.wrong(
                node.line, f"<include> of {found.name} must contain one model, got {len(models)}"
            )
            return
        model = models[0]
        name, pose, placement = (node.first(key) for key in ("name", "pose", "placement_frame"))
        attributes = dict(model.attributes)
        if name is not None:
            attributes["name"] = name.content.strip()
        if placement is not None:
            attributes["placement_frame"] = placement.content.strip()
        others = [child for child in model.children if child.tag != "pose" or pose is None]
        changed = Node("model", attributes, node.line, [*others, *([pose] if pose is not None else [])])
        still = self.source.truth(node.first("static"), False)
        if node.attributes.get("merge", "false").lower() in ("true", "1"):
            self.merged(changed, scope, inner, still)
        else:
            self.model(changed, scope, inner, prefixed=several, static=still)

    def merged(self, node: Node, outer: Scope, way: _Way, static: bool) -> None:
        """Read a model whose elements become elements of the including model."""
        frame = f"{outer.prefix}_merged__{node.attributes.get('name', '')}__model__"
        base = node.first("pose")
        relative = "" if base is None else base.attributes.get("relative_to", "")
        entry = Entry(
            node.line,
            "model",
            outer.full(relative) if relative else outer.model_frame,
            self.frames.raw(self.source, base),
            None,
        )
        placement = node.attributes.get("placement_frame", "")
        self.frames.entries[frame] = entry._replace(placement=outer.prefix + placement if placement else "")
        scope = Scope(node, outer.prefix, frame, outer.version, static or outer.static, False, way.path)
        self.scopes.append(scope)
        self.contents(scope, way, several=True)
        canonical = scope.canonical()
        if canonical is not None:
            self.frames.canonical[frame] = canonical


def _of_folder(folders: Folders, folder: pathlib.Path, library: Library) -> pathlib.Path | str:
    """Return the file of a model folder: the last entry of `model.config`, else `model.sdf`."""
    config = folders.found("model.config", folder)
    if not isinstance(config, str):
        named = [
            node.content.strip()
            for node in Source(config, library).root("model").all("sdf")
            if node.content.strip()
        ]
        if named:
            return folders.found(named[-1], folder)
    return folders.found("model.sdf", folder)

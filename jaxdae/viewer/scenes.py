"""Scenes: solids of bodies, their poses over time, forces on them, and loop-closure errors.

A scene does not depend on a renderer. It consists of plain arrays: triangles in the frames of bodies, poses
(world, time, body, 7), lines between bodies, and arrows over time. `jaxdae.viewer.stage` passes it to viser.

A planar mechanism lies in the plane z = 0 of the scene. Its bodies are stacked slightly above each other, as
if cut from sheets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.mechanisms import Mechanism, to_absolute
from jaxdae.systems.system import State
from jaxdae.viewer import colors
from jaxdae.viewer.arrows import Arrows
from jaxdae.viewer.drawn_elements import drawn, placed_bodies
from jaxdae.viewer.meshes import SINGLE, Mesh, checkered
from jaxdae.viewer.outline import outline, placed, shown
from jaxdae.viewer.solids import Solids, solids

FASTEST = 30.0
"""The maximum number of frames per second."""

_SHORTEST = 1.5  # minimum duration in s on the screen; faster motions are slowed down
_STEPS = (1.0, 2.0, 5.0)
_ASPECT = 1.5  # width over height of a grid of many worlds
_MANY, _BOLD = 64, 2.0  # above this number of worlds, bodies are drawn thicker


class Part(NamedTuple):
    """Triangles that move with a body.

    Attributes:
        name: the name of the part, unique in the scene.
        body: the index of the body, -1 for the ground.
        mesh: the triangles in the frame of the body, or in the world.
        color: 0 to 255 each.
        is_detail: whether scenes with many worlds may omit the part: joints, marks on wheels.
    """

    name: str
    body: int
    mesh: Mesh
    color: tuple[int, int, int]
    is_detail: bool = False


class Link(NamedTuple):
    """A straight line between points of two bodies: a rod, a spring or a slide.

    Attributes:
        name: the name of the link, unique in the scene.
        a: the index of the first body, -1 for the ground.
        point_a: (3,) in its frame in m.
        b: the index of the second body, -1 for the ground.
        point_b: (3,) in its frame in m.
        radius: the radius of the line in m.
        color: 0 to 255 each.
    """

    name: str
    a: int
    point_a: np.ndarray
    b: int
    point_b: np.ndarray
    radius: float
    color: tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Scene:
    """A motion to show.

    Attributes:
        title: the title.
        times: (time,) in s.
        bodies: the names of the bodies.
        poses: (world, time, body, 7), positions in m and quaternions wxyz, body to world.
        parts: parts that move with bodies, and parts on the ground.
        links: lines between bodies.
        violation: largest constraint violation (world, time) in m or rad; None if unknown.
        arrows: forces and reactions of one world.
        up: "+y" for planar mechanisms; "+z" in space, and for planar vehicles, which are seen from above.
        size: the size of one world in m, over its whole motion.
        center: (3,) the center of one world in m.
        extent: (3,) the extent of one world in m, along x, y and z.
        lift: the offset of arrows and frames in front of the bodies, along z in m; zero in space.
    """

    title: str
    times: np.ndarray
    bodies: tuple[str, ...]
    poses: np.ndarray
    parts: tuple[Part, ...]
    links: tuple[Link, ...]
    violation: np.ndarray | None
    arrows: tuple[Arrows, ...]
    up: str
    size: float
    center: np.ndarray
    extent: np.ndarray
    lift: float = 0.0

    @property
    def worlds(self) -> int:
        """The number of worlds."""
        return self.poses.shape[0]

    @property
    def pace(self) -> float:
        """The playback speed in seconds of motion per second on the screen; see `pace`."""
        return pace(self.times)

    def frames(self, rate: float = FASTEST) -> np.ndarray:
        """Return the indices of the shown instants, see `shown_instants`."""
        return shown_instants(self.times, rate)

    def offsets(self, apart: bool) -> np.ndarray:
        """Return the offsets of the worlds (world, 3) in m: zero, or a grid of rows side by side."""
        if not apart or self.worlds == 1:
            return np.zeros((self.worlds, 3))
        # Flat worlds still need some space.
        step = np.array([1.1, 1.1, 0.0]) * np.maximum(self.extent, 0.25 * self.size)
        columns = min(self.worlds, int(np.ceil(np.sqrt(_ASPECT * self.worlds * step[1] / step[0]))))
        row, column = np.divmod(np.arange(self.worlds), columns)
        places = np.stack([column - 0.5 * (columns - 1), 0.5 * row[-1] - row, np.zeros(self.worlds)], axis=1)
        return step * places

    def of_worlds(self, worlds: Any) -> Scene:
        """Return the scene of some worlds, given as indices or a slice.

        Arrows belong to world 0, and remain only if it comes first.
        """
        numbers = np.arange(self.worlds)[worlds]
        kept = self.arrows if numbers.size and numbers[0] == 0 else ()
        violation = None if self.violation is None else self.violation[numbers]
        return dataclasses.replace(self, poses=self.poses[numbers], violation=violation, arrows=kept)

    def with_parts(self, *parts: Part, instead_of: tuple[str, ...] = ()) -> Scene:
        """Return the scene with additional parts.

        Args:
            parts: the additional parts.
            instead_of: the names of bodies whose solids and details are removed.
        """
        gone = {self.bodies.index(name) for name in instead_of}
        return dataclasses.replace(
            self, parts=(*(part for part in self.parts if part.body not in gone), *parts)
        )


def pace(times: np.ndarray) -> float:
    """Return the seconds of motion per second on the screen.

    The result is 1, or a smaller round number for short motions.
    """
    span = float(times[-1] - times[0])
    if span <= 0.0 or span >= _SHORTEST:
        return 1.0
    wanted = span / _SHORTEST
    decade = 10.0 ** np.floor(np.log10(wanted))
    return float(min(1.0, max(step * decade for step in _STEPS if step * decade <= wanted * (1.0 + 1e-9))))


def shown_instants(times: np.ndarray, rate: float = FASTEST) -> np.ndarray:
    """Return the indices of the shown instants, at most `rate` per second on the screen.

    They include the first and the last instant.

    Args:
        times: (time,) in s.
        rate: frames per second.

    Raises:
        ValueError: the rate is not positive.
    """
    if not rate > 0.0:
        raise ValueError(f"rate must be positive, in frames per second, got {rate}")
    seconds = (times - times[0]) / pace(times)
    count = min(len(times), max(2, int(np.floor(seconds[-1] * rate + 1e-9)) + 1))
    wanted = np.linspace(0.0, seconds[-1], count)
    nearest = np.searchsorted(seconds, wanted - 1e-9 * max(1.0, seconds[-1]))
    return np.unique(np.clip(nearest, 0, len(times) - 1))


def scene(
    mechanism: Mechanism,
    states: State | Any,
    *,
    violation: Any = None,
    arrows: tuple[Arrows, ...] = (),
    title: str = "",
) -> Scene:
    """Return the scene of a mechanism in motion.

    The joints determine the shapes. A body with two joints is a bar between them, and a body with more joints
    is a plate or a star. Wheels are discs. A body without joints, or with its only joint at the mass center,
    is the box with its inertia.

    Args:
        mechanism: a planar or spatial mechanism in absolute or joint coordinates; for many worlds, the
            nominal mechanism, whose shapes all worlds share.
        states: a `State` or a `Trajectory`, stacked along (time,) or (world, time); the scene includes the
            violations of a trajectory.
        violation: (time,) or (world, time) in m or rad, in place of the violations of a trajectory.
        arrows: forces and reactions of world 0, see `reaction_arrows` and `force_arrows`.
        title: the title.

    Raises:
        ValueError: the states are not stacked, or have no entries.
    """
    state = getattr(states, "state", states)
    info = getattr(states, "info", None)
    if violation is None and info is not None:
        violation = info.violation
    q = np.asarray(state.q)
    if q.ndim not in (2, 3) or 0 in q.shape[:2]:
        raise ValueError(
            "states must be stacked along (time,) or (world, time), with at least one entry; got q of "
            f"shape {q.shape}"
        )
    poses = absolute_poses(mechanism, state)
    if q.ndim == 2:
        poses, violation = poses[None], None if violation is None else np.asarray(violation)[None]
    times = np.broadcast_to(np.asarray(state.t, float), q.shape[:-1]).reshape(-1, q.shape[-2])[0]
    return from_poses(mechanism, times, poses, violation=violation, arrows=arrows, title=title)


def absolute_poses(mechanism: Mechanism, state: State) -> np.ndarray:
    """Return the poses (..., body, 3 or 7) of all bodies except rotors, from stacked states."""
    lead = np.shape(state.q)[:-1]
    flat = State(
        jnp.zeros(int(np.prod(lead)), state.q.dtype),
        *(jnp.reshape(x, (-1, x.shape[-1])) for x in (state.q, state.v)),
    )
    found = jax.jit(jax.vmap(lambda s: to_absolute(mechanism, s).q))(flat)
    count = len(placed_bodies(mechanism))
    entries = 3 if mechanism.space.dimension == 2 else 7
    return np.asarray(found)[:, : entries * count].reshape(*lead, count, entries)


def from_poses(
    mechanism: Mechanism,
    times: np.ndarray,
    poses: np.ndarray,
    *,
    violation: Any = None,
    arrows: tuple[Arrows, ...] = (),
    title: str = "",
    shapes: Sequence[Any] = (),
) -> Scene:
    """Return the scene of poses (world, time, body, 3 or 7), such as poses in a run folder; see `scene`.

    `shapes` are the bodies of a config, with the `points` and `outline` to draw.
    """
    elements = drawn(mechanism, shapes)
    poses, names = in_space(np.asarray(poses, float)), placed_bodies(mechanism)
    shape = outline(elements)
    center, extent = _extent(shape, poses)
    size = float(extent.max()) or 1.0
    solid = solids(elements, shape, size, _BOLD if len(poses) > _MANY else 1.0)
    parts, links = _parts(solid, names, poses, size)
    up = "+z" if elements.dimension == 3 or solid.stands else "+y"
    times = np.asarray(times, float)
    open_by = None if violation is None else np.asarray(violation, float)
    lift = 1.1 * max((float(part.mesh.vertices[:, 2].max()) for part in parts if part.body >= 0), default=0.0)
    lift = lift if elements.dimension == 2 else 0.0
    return Scene(
        title,
        times,
        names,
        poses.astype(SINGLE),
        parts,
        links,
        open_by,
        tuple(arrows),
        up,
        size,
        center,
        extent,
        lift,
    )


def in_space(poses: np.ndarray) -> np.ndarray:
    """Return poses in space (..., 7); rotate planar poses (..., 3) about z."""
    if poses.shape[-1] == 7:
        return poses
    x, y, angle = np.moveaxis(poses, -1, 0)
    zero = np.zeros_like(x)
    return np.stack([x, y, zero, np.cos(0.5 * angle), zero, zero, np.sin(0.5 * angle)], axis=-1)


def _extent(shape: Any, poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return center and extent of the motion of world 0 and of the ground points, in m."""
    seen = [poses[0, :, k, :3] for k in range(poses.shape[2])]
    for k, name in enumerate(shape.bodies):
        for point in shown(shape, name):
            seen.append(placed(poses[0, :, k], _lifted(point)))
    if shape.ground_points:
        seen.append(np.array([_lifted(point) for point in shape.ground_points]))
    places = np.concatenate(seen) if seen else np.zeros((1, 3))
    places = places[np.isfinite(places).all(axis=-1)]
    if not len(places):
        return np.zeros(3), np.zeros(3)
    low, high = places.min(axis=0), places.max(axis=0)
    return 0.5 * (low + high), high - low


def _lifted(point: np.ndarray) -> np.ndarray:
    return np.asarray([*point, *[0.0] * (3 - len(point))], float)


def _parts(
    solid: Solids, names: tuple[str, ...], poses: np.ndarray, size: float
) -> tuple[tuple[Part, ...], tuple[Link, ...]]:
    """Return the solids of bodies with their colors, the parts on the ground, and the lines."""
    number = {name: k for k, name in enumerate(names)}
    parts = [Part(name, number[name], mesh, colors.rgb(number[name])) for name, mesh in solid.bodies.items()]
    parts += [
        Part(f"{name}/joints", number[name], mesh, colors.GRAY, True) for name, mesh in solid.details.items()
    ]
    if solid.ground is not None:
        parts.append(Part("ground", -1, solid.ground, colors.GRAY))
    for k, terrain in enumerate(solid.terrains):
        fields = checkered(terrain.mesh(poses[..., :3], size))
        parts += [
            Part(f"terrain/{k}/{color}", -1, mesh, colors.EARTH[color]) for color, mesh in enumerate(fields)
        ]
    links = []
    for k, (kind, a, point_a, b, point_b) in enumerate(solid.links):
        color, radius = (colors.SPRING, 0.7) if kind == "spring" else (colors.LINK, 1.0)
        ends = number.get(a, -1), _lifted(point_a), number.get(b, -1), _lifted(point_b)
        links.append(Link(f"{kind}/{k}", *ends, radius * solid.thickness, color))
    return tuple(parts), tuple(links)

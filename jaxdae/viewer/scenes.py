"""What there is to see of a motion, whoever shows it: solids of bodies, their places over time, what pulls on them, how open loops are.

A scene knows nothing of a renderer. It is plain arrays: triangles in the frames of bodies, poses (world, time, body, 7), lines between
bodies, arrows over time. `jaxdae.viewer.stage` hands it to viser; another renderer would need as little.

A mechanism in the plane lies in the plane z = 0 of the scene, its bodies a little above each other, as cut from sheets.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.mechanisms import Mechanism, to_absolute
from jaxdae.system import State
from jaxdae.viewer import colors
from jaxdae.viewer.arrows import Arrows
from jaxdae.viewer.elements import drawn, placed_bodies
from jaxdae.viewer.meshes import SINGLE, Mesh, checkered
from jaxdae.viewer.outline import outline, placed, shown
from jaxdae.viewer.solids import Solids, solids

FASTEST = 30.0
"""Frames a second at most."""

_SHORTEST = 1.5  # seconds that a motion takes on the screen; faster ones are slowed down
_STEPS = (1.0, 2.0, 5.0)
_ASPECT = 1.5  # of many worlds beside each other, as screens have it
_MANY, _BOLD = 64, 2.0  # worlds beyond which bodies are drawn thicker, so that they are seen from afar


class Part(NamedTuple):
    """Triangles that move with a body.

    Attributes:
        name: of the part, unique in the scene.
        body: number of the body, -1 for the ground.
        mesh: in the frame of the body, or in the world.
        color: 0 to 255 each.
        is_detail: whether it may be left out where there are many worlds: joints, marks on wheels.
    """

    name: str
    body: int
    mesh: Mesh
    color: tuple[int, int, int]
    is_detail: bool = False


class Link(NamedTuple):
    """A straight line between points of two bodies: a rod, a spring, a slide.

    Attributes:
        name: of the link, unique in the scene.
        a: number of the first body, -1 for the ground.
        point_a: (3,) in its frame in m.
        b: number of the second body, -1 for the ground.
        point_b: (3,) in its frame in m.
        radius: of the line in m.
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
    """A motion to be shown.

    Attributes:
        title: in words.
        times: (time,) in s.
        bodies: their names.
        poses: (world, time, body, 7), places in m and quaternions wxyz, body to world.
        parts: what moves with bodies, and what stands.
        links: lines between bodies.
        violation: largest constraint violation (world, time) in m or rad; None where nobody knows.
        arrows: forces and reactions of one world.
        up: "+y" for mechanisms in the plane, "+z" in space and for vehicles in the plane, which are seen from above.
        size: of one world in m, over its whole motion.
        center: (3,) of one world in m.
        extent: (3,) of one world in m, along x, y and z.
        lift: how far in front of the bodies arrows and frames are drawn, along z in m; zero in space.
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
        """Number of worlds."""
        return self.poses.shape[0]

    @property
    def pace(self) -> float:
        """Seconds of the motion in a second on the screen: 1, or a round number below where all is over in a moment."""
        return pace(self.times)

    def frames(self, rate: float = FASTEST) -> np.ndarray:
        """Returns which saved instants are shown, see `shown_instants`."""
        return shown_instants(self.times, rate)

    def offsets(self, apart: bool) -> np.ndarray:
        """Returns where the worlds stand (world, 3) in m: all in one place, or in rows beside each other."""
        if not apart or self.worlds == 1:
            return np.zeros((self.worlds, 3))
        # Flat worlds still need some room.
        step = np.array([1.1, 1.1, 0.0]) * np.maximum(self.extent, 0.25 * self.size)
        columns = min(self.worlds, int(np.ceil(np.sqrt(_ASPECT * self.worlds * step[1] / step[0]))))
        row, column = np.divmod(np.arange(self.worlds), columns)
        places = np.stack([column - 0.5 * (columns - 1), 0.5 * row[-1] - row, np.zeros(self.worlds)], axis=1)
        return step * places

    def of_worlds(self, worlds: Any) -> Scene:
        """Returns the scene of some worlds: numbers, or a slice. Arrows are those of world 0, and stay where that does."""
        numbers = np.arange(self.worlds)[worlds]
        kept = self.arrows if numbers.size and numbers[0] == 0 else ()
        violation = None if self.violation is None else self.violation[numbers]
        return dataclasses.replace(self, poses=self.poses[numbers], violation=violation, arrows=kept)

    def with_parts(self, *parts: Part, instead_of: tuple[str, ...] = ()) -> Scene:
        """Returns the scene with further parts.

        Args:
            parts: what is added.
            instead_of: names of bodies whose solids and details they take the place of.
        """
        gone = {self.bodies.index(name) for name in instead_of}
        return dataclasses.replace(self, parts=(*(part for part in self.parts if part.body not in gone), *parts))


def pace(times: np.ndarray) -> float:
    """Returns the seconds of a motion in a second on the screen: 1, or a round number below where all is over in a moment."""
    span = float(times[-1] - times[0])
    if span <= 0.0 or span >= _SHORTEST:
        return 1.0
    wanted = span / _SHORTEST
    decade = 10.0 ** np.floor(np.log10(wanted))
    return float(min(1.0, max(step * decade for step in _STEPS if step * decade <= wanted * (1.0 + 1e-9))))


def shown_instants(times: np.ndarray, rate: float = FASTEST) -> np.ndarray:
    """Returns which saved instants are shown, at most `rate` a second on the screen, the first and the last among them.

    Args:
        times: (time,) in s.
        rate: frames a second.

    Raises:
        ValueError: a rate that is not positive.
    """
    if not rate > 0.0:
        raise ValueError(f"rate must be positive, in frames a second, got {rate}")
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
    """Returns what there is to see of a mechanism in motion.

    Args:
        mechanism: in the plane or in space, in either form of coordinates; of many worlds the nominal one, whose shapes all have.
        states: a `State` or a `Trajectory`, stacked along (time,) or (world, time); the violations of a trajectory are shown, too.
        violation: (time,) or (world, time) in m or rad, in place of those.
        arrows: forces and reactions of world 0, see `reaction_arrows` and `force_arrows`.
        title: in words.

    Raises:
        ValueError: states that are not stacked, or have no entries.

    Shapes follow from joints: a body with two joints is a bar between them, one with more a plate or a star, wheels are discs, and a body
    with its joint in the mass center, or with none, is the box that has its inertia.
    """
    state = getattr(states, "state", states)
    info = getattr(states, "info", None)
    if violation is None and info is not None:
        violation = info.violation
    q = np.asarray(state.q)
    if q.ndim not in (2, 3) or 0 in q.shape[:2]:
        raise ValueError(f"states must be stacked along (time,) or (world, time), with at least one entry; got q of shape {q.shape}")
    poses = absolute_poses(mechanism, state)
    if q.ndim == 2:
        poses, violation = poses[None], None if violation is None else np.asarray(violation)[None]
    times = np.broadcast_to(np.asarray(state.t, float), q.shape[:-1]).reshape(-1, q.shape[-2])[0]
    return from_poses(mechanism, times, poses, violation=violation, arrows=arrows, title=title)


def absolute_poses(mechanism: Mechanism, state: State) -> np.ndarray:
    """Returns the poses (..., body, 3 or 7) of all bodies that have a place, of stacked states."""
    lead = np.shape(state.q)[:-1]
    flat = State(jnp.zeros(int(np.prod(lead)), state.q.dtype), *(jnp.reshape(x, (-1, x.shape[-1])) for x in (state.q, state.v)))
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
) -> Scene:
    """Returns the scene of poses (world, time, body, 3 or 7) that were found before, such as those in a run folder; see `scene`."""
    elements = drawn(mechanism)
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
    return Scene(title, times, names, poses.astype(SINGLE), parts, links, open_by, tuple(arrows), up, size, center, extent, lift)


def in_space(poses: np.ndarray) -> np.ndarray:
    """Returns poses (..., 7): those of the plane (..., 3) as poses in space, turned about z."""
    if poses.shape[-1] == 7:
        return poses
    x, y, angle = np.moveaxis(poses, -1, 0)
    zero = np.zeros_like(x)
    return np.stack([x, y, zero, np.cos(0.5 * angle), zero, zero, np.sin(0.5 * angle)], axis=-1)


def _extent(shape: Any, poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns center and extent of what world 0 does, in m: its places over time, and what stands on the ground."""
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


def _parts(solid: Solids, names: tuple[str, ...], poses: np.ndarray, size: float) -> tuple[tuple[Part, ...], tuple[Link, ...]]:
    """Returns the solids of bodies with their colors, what stands on the ground, and the lines."""
    number = {name: k for k, name in enumerate(names)}
    parts = [Part(name, number[name], mesh, colors.rgb(number[name])) for name, mesh in solid.bodies.items()]
    parts += [Part(f"{name}/joints", number[name], mesh, colors.GRAY, True) for name, mesh in solid.details.items()]
    if solid.ground is not None:
        parts.append(Part("ground", -1, solid.ground, colors.GRAY))
    for k, terrain in enumerate(solid.terrains):
        fields = checkered(terrain.mesh(poses[..., :3], size))
        parts += [Part(f"terrain/{k}/{color}", -1, mesh, colors.EARTH[color]) for color, mesh in enumerate(fields)]
    links = []
    for k, (kind, a, point_a, b, point_b) in enumerate(solid.links):
        color, radius = (colors.SPRING, 0.7) if kind == "spring" else (colors.LINK, 1.0)
        ends = number.get(a, -1), _lifted(point_a), number.get(b, -1), _lifted(point_b)
        links.append(Link(f"{kind}/{k}", *ends, radius * solid.thickness, color))
    return tuple(parts), tuple(links)

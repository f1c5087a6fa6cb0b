"""A scene in viser. Each part is one mesh with one instance per world.

A thousand worlds therefore need no more objects than one world. A frame consists of poses, and of colors if
they show the violation. Lines and arrows are stretched meshes of unit length.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from typing import Any

import numpy as np

from jaxdae.viewer import colors
from jaxdae.viewer.arrows import Arrows
from jaxdae.viewer.meshes import SINGLE, Mesh, arrow, cylinder
from jaxdae.viewer.outline import placed
from jaxdae.viewer.scenes import Link, Part, Scene

DETAILED = 64
"""The number of worlds above which joints and marks are omitted by default."""

_FIELD = 40.0  # vertical field of view of the camera in degrees
_ASPECT = 1.2  # minimum width over height of windows
_LONGEST_ARROW = 0.3  # relative to the size of a world
_THINNEST = 0.008  # arrow width relative to the size of a world


@dataclasses.dataclass(frozen=True)
class Look:
    """The visible parts of a scene, and their appearance.

    Attributes:
        apart: whether worlds stand side by side in rows; otherwise, all worlds overlap.
        joints: whether to show joints and marks on wheels; None shows them for few worlds.
        frames: whether to show the axes of bodies.
        arrows: the names of the shown arrows: "reactions", "forces", "contacts".
        violation: whether the color of bodies shows the constraint violation of their world.
        dark: whether the background is dark; for pages only, because a live view has a switch in the browser.
    """

    apart: bool = True
    joints: bool | None = None
    frames: bool = False
    arrows: tuple[str, ...] = ()
    violation: bool = False
    dark: bool = False


def import_viser() -> Any:
    """Import and return the package viser.

    Raises:
        ModuleNotFoundError: viser is not installed.
    """
    try:
        return importlib.import_module("viser")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the viewer needs the extra viewer; install it with pip install '.[viewer]' in a clone of jaxdae",
            name="viser",
        ) from error


def quiet_server(port: int, label: str = "jaxdae") -> Any:
    """Return a viser server on loopback that prints nothing.

    Raises:
        ModuleNotFoundError: viser is not installed.
    """
    viser = import_viser()
    with contextlib.redirect_stdout(None):
        return viser.ViserServer(host="127.0.0.1", port=port, label=label, verbose=False)


class Stage:
    """A scene on a viser server.

    Args:
        server: `viser.ViserServer`.
        scene: the scene.
        look: the look of the scene.
    """

    def __init__(self, server: Any, scene: Scene, look: Look = Look()):
        """Add all parts with their poses at the first instant."""
        self._server, self._scene, self._look = server, scene, look
        self.offsets = scene.offsets(look.apart).astype(SINGLE)
        self._front = self.offsets + np.array([0.0, 0.0, scene.lift], SINGLE)
        self._parts: dict[str, tuple[Part, Any]] = {}
        self._links: dict[str, tuple[Link, Any]] = {}
        self._arrows: dict[str, tuple[Arrows, Any]] = {}
        self._axes: Any = None
        self._camera()
        self._lights()
        self._build()
        self.show(0)

    @property
    def parts(self) -> dict[str, Any]:
        """The handles of the parts of bodies, by name."""
        return {name: handle for name, (part, handle) in self._parts.items() if part.body >= 0}

    def _camera(self) -> None:
        scene = self._scene
        self._server.scene.set_up_direction(scene.up)
        low, high = self.offsets.min(axis=0), self.offsets.max(axis=0)
        center = scene.center + 0.5 * (low + high)
        across, deep, tall = high - low + scene.extent + 0.15 * scene.size
        if scene.up == "+y":
            toward = np.array([0.12, 0.16, 1.0])
            radius = 0.55 * max(deep, across / _ASPECT)
        else:
            toward = np.array([0.45, -1.0, 0.85])
            radius = 0.5 * float(np.linalg.norm([across / _ASPECT, 0.7 * deep, tall]))
        distance = radius / np.tan(0.5 * np.deg2rad(_FIELD))
        camera = self._server.initial_camera
        camera.fov = np.deg2rad(_FIELD)
        camera.near, camera.far = 1e-3 * distance, 1e2 * distance
        camera.position = tuple(center + distance * toward / np.linalg.norm(toward))
        camera.look_at = tuple(center)

    def _lights(self) -> None:
        # The default lights of viser wash out colors.
        place = self._server.scene
        place.configure_default_lights(enabled=False)
        place.configure_environment_map(hdri=None)
        place.add_light_ambient("/light/all", intensity=1.8)
        place.add_light_directional("/light/one", intensity=2.2, position=(0.4, -0.6, 1.0))
        place.add_light_directional("/light/other", intensity=0.6, position=(-0.8, 0.6, 0.3))

    def _build(self) -> None:
        scene, look = self._scene, self._look
        detailed = scene.worlds <= DETAILED if look.joints is None else look.joints
        still = np.tile([1.0, 0.0, 0.0, 0.0], (scene.worlds, 1)).astype(SINGLE)
        for part in scene.parts:
            if part.is_detail and not detailed:
                continue
            is_ground = part.name.startswith("terrain")
            places = self.offsets[:1] if is_ground and not look.apart else self.offsets
            self._parts[part.name] = (
                part,
                self._mesh(part.name, part.mesh, still[: len(places)], places, part.color, is_ground),
            )
        unit = cylinder(np.zeros(3), np.array([0.0, 0.0, 1.0]), 1.0)
        for link in scene.links:
            self._links[link.name] = link, self._mesh(link.name, unit, still, self.offsets, link.color)
        for arrows in scene.arrows:
            if arrows.name in look.arrows and arrows.labels:
                nowhere = np.zeros((len(arrows.labels), 3), SINGLE)
                handle = self._mesh(
                    arrows.name, arrow(), np.tile(still[:1], (len(nowhere), 1)), nowhere, arrows.color
                )
                self._arrows[arrows.name] = arrows, handle
        if scene.up == "+z" and scene.lift > 0.0:
            self._grid()
        if look.frames:
            count = scene.worlds * len(scene.bodies)
            length = 0.08 * scene.size
            self._axes = self._server.scene.add_batched_axes(
                "/frames",
                np.tile(still[:1], (count, 1)),
                np.zeros((count, 3), SINGLE),
                axes_length=length,
                axes_radius=0.06 * length,
            )

    def _grid(self) -> None:
        """Show the plane below the wheels of vehicles, with grid lines at a round number of meters."""
        scene = self._scene
        cell = 10.0 ** np.floor(np.log10(scene.size))
        across, deep = (
            2.0 * cell * np.ceil((np.ptp(self.offsets, axis=0) + 1.5 * scene.size)[:2] / cell / 2.0)
        )
        low = min(float(part.mesh.vertices[:, 2].min()) for part in scene.parts if part.body >= 0)
        center = (*(np.round(scene.center[:2] / cell) * cell), low)
        lines = {
            "cell_color": colors.LINK,
            "section_color": colors.LINK,
            "cell_size": cell,
            "section_size": 10.0 * cell,
        }
        self._server.scene.add_grid(
            "/plane", float(across), float(deep), plane="xy", position=center, **lines
        )

    def _mesh(
        self,
        name: str,
        mesh: Mesh,
        turns: np.ndarray,
        places: np.ndarray,
        color: Any,
        is_ground: bool = False,
    ) -> Any:
        return self._server.scene.add_batched_meshes_simple(
            f"/{name}",
            mesh.vertices.astype(SINGLE),
            mesh.faces.astype(np.uint32),
            turns,
            places,
            batched_scales=np.ones((len(places), 3), SINGLE),
            batched_colors=np.tile(colors.linear(np.array(color)), (len(places), 1)),
            lod="off",
            side="double" if is_ground else "front",
            cast_shadow=False,
            receive_shadow=False,
        )

    def show(self, instant: int) -> None:
        """Show one of the saved instants."""
        scene, poses = self._scene, self._scene.poses[:, instant]
        # Replace non-finite poses by zeros, because they would stop the browser.
        poses = np.where(np.isfinite(poses).all(axis=(1, 2), keepdims=True), poses, 0.0)
        shades = None
        if self._look.violation and scene.violation is not None:
            shades = colors.linear(colors.of_violation(scene.violation[:, instant]))
        for part, handle in self._parts.values():
            if part.body < 0:
                continue
            handle.batched_positions = poses[:, part.body, :3] + self.offsets
            handle.batched_wxyzs = poses[:, part.body, 3:]
            if shades is not None and not part.is_detail:
                handle.batched_colors = shades
        for link, handle in self._links.values():
            start, end = (
                _end(poses, body, point) + self.offsets
                for body, point in ((link.a, link.point_a), (link.b, link.point_b))
            )
            length = np.linalg.norm(end - start, axis=1)
            handle.batched_positions = start.astype(SINGLE)
            handle.batched_wxyzs = turned_to(end - start)
            handle.batched_scales = np.stack(
                [np.full_like(length, link.radius)] * 2 + [np.maximum(length, 1e-9)], axis=1
            ).astype(SINGLE)
        for arrows, handle in self._arrows.values():
            vectors = np.nan_to_num(arrows.vectors[instant])
            size = np.minimum(np.linalg.norm(vectors, axis=1) / (arrows.largest or 1.0), 1.5)
            handle.batched_positions = (np.nan_to_num(arrows.starts[instant]) + self._front[0]).astype(SINGLE)
            handle.batched_wxyzs = turned_to(vectors)
            across = np.where(size > 1e-3, _THINNEST * scene.size, 1e-9)
            handle.batched_scales = np.stack(
                [across, across, np.maximum(_LONGEST_ARROW * scene.size * size, 1e-9)], axis=1
            ).astype(SINGLE)
        if self._axes is not None:
            self._axes.batched_positions = (poses[..., :3] + self._front[:, None]).reshape(-1, 3)
            self._axes.batched_wxyzs = poses[..., 3:].reshape(-1, 4)

    def clear(self) -> None:
        """Remove all parts, links, arrows and frames."""
        # Remove details first: removing a part also removes its descendants in the name tree.
        for name in sorted((*self._parts, *self._links, *self._arrows), key=lambda name: -name.count("/")):
            (self._parts.get(name) or self._links.get(name) or self._arrows[name])[1].remove()
        if self._axes is not None:
            self._axes.remove()


def _end(poses: np.ndarray, body: int, point: np.ndarray) -> np.ndarray:
    """Return the position of a point of a body or of the ground in all worlds (world, 3)."""
    return np.tile(point, (len(poses), 1)) if body < 0 else placed(poses[:, body], point)


def turned_to(vectors: np.ndarray) -> np.ndarray:
    """Return quaternions wxyz (n, 4) that rotate z into the directions of vectors (n, 3).

    A zero vector gives the identity. With the unit vector d, the half-way rotation is (1 + d_z, -d_y, d_x, 0)
    up to its length; for d = -z it is half a turn about x.
    """
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    x, y, z = (vectors / np.where(length > 0.0, length, 1.0)).T
    z = np.where(length[:, 0] > 0.0, z, 1.0)
    turns = np.stack([1.0 + z, -y, x, np.zeros_like(x)], axis=1)
    turns[1.0 + z < 1e-9] = (0.0, 1.0, 0.0, 0.0)
    return (turns / np.linalg.norm(turns, axis=1, keepdims=True)).astype(SINGLE)

"""The visuals of robot files, in place of shapes from joints."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxdae.base.suggestions import brief
from jaxdae.robots.load_report import Report
from jaxdae.robots.robot_source import Library
from jaxdae.robots.visuals import Box, MeshFile, Rounded, Triangles, Visual
from jaxdae.viewer.meshes import Mesh, ball, cuboid, cylinder, merged
from jaxdae.viewer.scenes import Part, Scene

_FORMATS = ("stl", "obj", "dae", "ply", "off", "glb", "gltf")
_PLAIN = (0.62, 0.64, 0.68)


def with_robot(
    scene: Scene, report: Report, visuals: Sequence[Visual], names: Mapping[str, str] | None = None
) -> tuple[Scene, list[str]]:
    """Return a scene with the visuals of a robot file, and messages about unreadable visuals.

    Bodies with visuals lose their previous shapes. The package trimesh, which comes with viser, reads mesh
    files.

    Args:
        scene: the scene of the robot's mechanism.
        report: the report of `jaxdae.robots.load`, with the frames of links in their bodies.
        visuals: the visuals from `jaxdae.robots.read_visuals`.
        names: from body names in the report to body names in the scene; by default, they agree.
    """
    found: dict[tuple[str, tuple[int, int, int]], list[Mesh]] = {}
    wrong: list[str] = []
    for visual in visuals:
        frame = report.frames.get(visual.link)
        body = None if frame is None else (names or {}).get(frame.body, frame.body)
        if frame is None or body not in scene.bodies:
            continue
        mesh = _mesh(visual.geometry, wrong)
        if mesh is None:
            continue
        in_link = visual.place + mesh.vertices @ visual.rotation.T
        red, green, blue = (round(255 * min(max(x, 0.0), 1.0)) for x in visual.color or _PLAIN)
        found.setdefault((body, (red, green, blue)), []).append(
            Mesh(frame.place + in_link @ frame.rotation.T, mesh.faces)
        )
    parts = [
        Part(f"{body}/file{k}", scene.bodies.index(body), merged(meshes), color)
        for k, ((body, color), meshes) in enumerate(found.items())
    ]
    return scene.with_parts(*parts, instead_of=tuple(dict.fromkeys(body for body, _ in found))), wrong


def _mesh(geometry: Any, wrong: list[str]) -> Mesh | None:
    return _MAKERS[type(geometry)](geometry, wrong)


def _box(box: Box, wrong: list[str]) -> Mesh:
    return cuboid(0.5 * box.size)


def _rounded(shape: Rounded, wrong: list[str]) -> Mesh:
    if shape.length <= 0.0:
        return ball(np.zeros(3), shape.radius)
    half = np.array([0.0, 0.0, 0.5 * shape.length])
    ends = [ball(half, shape.radius), ball(-half, shape.radius)] if shape.balls else []
    return merged([cylinder(-half, half, shape.radius), *ends])


def _file(file: MeshFile, wrong: list[str]) -> Mesh | None:
    try:
        trimesh: Any = importlib.import_module("trimesh")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "mesh files need the extra viewer; install it with pip install '.[viewer]' in a clone of jaxdae",
            name="trimesh",
        ) from error
    kind = file.path.suffix.lower().removeprefix(".")
    if kind not in _FORMATS:
        wrong.append(
            f"{file.path} cannot be read (format {brief(kind)}; expected one of {', '.join(_FORMATS)})"
        )
        return None
    try:
        # Load from memory, so that the file cannot open other files.
        loaded: Any = trimesh.load(io.BytesIO(Library().data(file.path)), file_type=kind, force="mesh")
        return Mesh(np.asarray(loaded.vertices, float) * file.scale, np.asarray(loaded.faces))
    except Exception as error:  # Readers of many formats raise any exception; show the rest of the scene.
        wrong.append(
            f"{file.path} cannot be read ({' '.join(str(error).split())[:100] or type(error).__name__})"
        )
        return None


def _given(triangles: Triangles, wrong: list[str]) -> Mesh:
    return Mesh(triangles.vertices, triangles.faces)


_MAKERS: dict[type, Callable[[Any, list[str]], Mesh | None]] = {
    Box: _box,
    Rounded: _rounded,
    MeshFile: _file,
    Triangles: _given,
}

"""Visual geometry of robot links in link frames: boxes, cylinders, spheres and mesh files."""

from __future__ import annotations

import importlib
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxdae.base.suggestions import shorten
from jaxdae.robots.mjcf_compiler import compiled
from jaxdae.robots.mjcf_files import prepared
from jaxdae.robots.referenced_files import Folders
from jaxdae.robots.robot_graph import quaternion_matrix, roll_pitch_yaw
from jaxdae.robots.robot_source import Library, Node, RobotFileError, Source
from jaxdae.robots.sdf import sdf_version
from jaxdae.robots.sdf_frames import in_scopes

_DEFAULT_RGBA = np.array([0.5, 0.5, 0.5, 1.0])


class Box(NamedTuple):
    """A box with sides (3,) in m."""

    size: np.ndarray


class Rounded(NamedTuple):
    """A cylinder along z, radius and length in m; a sphere at length zero, a capsule if `balls` is set."""

    radius: float
    length: float
    balls: bool = False


class MeshFile(NamedTuple):
    """A file of triangles (STL, OBJ, ...), and the scale factors of its numbers (3,)."""

    path: pathlib.Path
    scale: np.ndarray


class Triangles(NamedTuple):
    """Vertices (n, 3) in m and faces (m, 3)."""

    vertices: np.ndarray
    faces: np.ndarray


class Visual(NamedTuple):
    """A visual element of a link.

    Attributes:
        link: name of the link.
        rotation: (3, 3) rotation of the element in the frame of the link.
        place: (3,) position of the element in the frame of the link, in m.
        geometry: a `Box`, `Rounded`, `MeshFile` or `Triangles`.
        color: red, green and blue from 0 to 1; None if the file does not define it.
    """

    link: str
    rotation: np.ndarray
    place: np.ndarray
    geometry: Box | Rounded | MeshFile | Triangles
    color: tuple[float, float, float] | None


def read_visuals(
    path: str | os.PathLike[str], packages: Mapping[str, str | os.PathLike[str]] | None = None
) -> tuple[list[Visual], list[str]]:
    """Return the visual elements of all links, and messages about missing files.

    Args:
        path: a file in URDF, SDF or MJCF.
        packages: as in `load`.

    Raises:
        RobotFileError: an unreadable file, or invalid XML.
    """
    path = pathlib.Path(path)
    folders = Folders(
        path.absolute().parent, {name: pathlib.Path(folder) for name, folder in (packages or {}).items()}
    )
    if path.suffix == ".urdf":
        return _of_urdf(path, folders)
    if path.suffix in (".xml", ".mjcf"):
        return _of_mjcf(path, folders)
    return _of_sdf(path, folders)


def _of_urdf(path: pathlib.Path, folders: Folders) -> tuple[list[Visual], list[str]]:
    source, missing = Source(path), []
    root = source.root("robot")
    named = {node.attributes.get("name", ""): _color(source, node) for node in root.all("material")}
    found: list[Visual] = []
    for link in root.all("link"):
        for node in link.all("visual"):
            shape, material, origin = (node.first(tag) for tag in ("geometry", "material", "origin"))
            geometry = (
                None
                if shape is None
                else next(_geometries(source, shape, folders, path.absolute().parent, missing), None)
            )
            if geometry is None:
                continue
            color = (
                None
                if material is None
                else _color(source, material) or named.get(material.attributes.get("name", ""))
            )
            rotation = roll_pitch_yaw(*source.numbers(origin, "rpy", (0.0, 0.0, 0.0)))
            place = source.numbers(origin, "xyz", (0.0, 0.0, 0.0))
            found.append(Visual(link.attributes.get("name", ""), rotation, place, geometry, color))
    return found, [*missing, *source.problems]


def _color(source: Source, material: Node) -> tuple[float, float, float] | None:
    node = material.first("color")
    if node is None:
        return None
    red, green, blue, _ = source.numbers(node, "rgba", (0.6, 0.6, 0.6, 1.0))
    return float(red), float(green), float(blue)


def _geometries(
    source: Source, shape: Node, folders: Folders, home: pathlib.Path, missing: list[str]
) -> Iterator[Any]:
    for node in shape.all("box"):
        yield Box(source.numbers(node, "size", (1.0, 1.0, 1.0)))
    for node in shape.all("cylinder"):
        yield Rounded(source.number(node, "radius"), source.number(node, "length"))
    for node in shape.all("sphere"):
        yield Rounded(source.number(node, "radius"), 0.0)
    for node in shape.all("mesh"):
        place = folders.found(node.attributes.get("filename", ""), home)
        if isinstance(place, str):
            missing.append(place)
        else:
            yield MeshFile(place, source.numbers(node, "scale", (1.0, 1.0, 1.0)))


def _of_sdf(path: pathlib.Path, folders: Folders) -> tuple[list[Visual], list[str]]:
    """Read the visuals of all links; their poses are in the link, or in the frame of `relative_to`."""
    source, missing = Source(path), []
    root = source.root("sdf")
    scopes, frames = in_scopes(source, root, sdf_version(source, root), folders)
    found: list[Visual] = []
    for scope in scopes:
        for link in scope.all("link"):
            name = scope.named(link)
            for node in link.all("visual"):
                shape, material, at = (node.first(tag) for tag in ("geometry", "material", "pose"))
                geometry = (
                    None
                    if shape is None
                    else next(
                        _sdf_geometries(source, shape, folders, scope.path.absolute().parent, missing), None
                    )
                )
                if geometry is None:
                    continue
                given, pose = (
                    "" if at is None else at.attributes.get("relative_to", ""),
                    frames.raw(source, at),
                )
                if given:
                    pose = frames.pose(scope.full(given)).then(pose).seen_from(frames.pose(name))
                diffuse = None if material is None else material.first("diffuse")
                found.append(
                    Visual(
                        name,
                        pose.rotation,
                        pose.place,
                        geometry,
                        None if diffuse is None else _diffuse(source, diffuse),
                    )
                )
    return found, [*missing, *source.problems]


def _diffuse(source: Source, node: Node) -> tuple[float, float, float]:
    gray = (0.6, 0.6, 0.6, 1.0)
    red, green, blue, *_ = source.values(node, gray[:3] if len(node.content.split()) == 3 else gray)
    return float(red), float(green), float(blue)


def _sdf_geometries(
    source: Source, shape: Node, folders: Folders, home: pathlib.Path, missing: list[str]
) -> Iterator[Any]:
    for node in shape.all("box"):
        yield Box(source.values(node.first("size"), (1.0, 1.0, 1.0)))
    for tag in ("cylinder", "capsule", "sphere"):
        for node in shape.all(tag):
            length = 0.0 if tag == "sphere" else source.value(node.first("length"), 1.0)
            yield Rounded(source.value(node.first("radius"), 0.5), length, tag == "capsule")
    for node in shape.all("mesh"):
        uri = node.first("uri")
        place = folders.found("" if uri is None else uri.content, home)
        if isinstance(place, str):
            missing.append(place)
        else:
            yield MeshFile(place, source.values(node.first("scale"), (1.0, 1.0, 1.0)))


def _of_mjcf(path: pathlib.Path, folders: Folders) -> tuple[list[Visual], list[str]]:
    """Read the compiled geoms of groups 0 to 2; by convention the other groups are contact geometry."""
    try:
        mujoco: Any = importlib.import_module("mujoco")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "reading MJCF requires MuJoCo; install it with pip install '.[robots]' in a clone of jaxdae"
        ) from error
    try:
        files = prepared(path, folders, Library())
        _, model, _ = compiled(mujoco, path, files)
    except RobotFileError as error:
        return [], [shorten(" ".join(str(error).split()), 400)]
    kinds, found = mujoco.mjtGeom, []
    for k in np.flatnonzero(model.geom_group <= 2):
        size, of = model.geom_size[k], int(model.geom_type[k])
        geometry: Any = {
            kinds.mjGEOM_BOX: lambda size=size: Box(2.0 * size),
            kinds.mjGEOM_SPHERE: lambda size=size: Rounded(float(size[0]), 0.0),
            kinds.mjGEOM_CYLINDER: lambda size=size: Rounded(float(size[0]), 2.0 * float(size[1])),
            kinds.mjGEOM_CAPSULE: lambda size=size: Rounded(float(size[0]), 2.0 * float(size[1]), True),
            kinds.mjGEOM_MESH: lambda k=k: _triangles(model, int(model.geom_dataid[k])),
        }.get(of)
        body = model.body(int(model.geom_bodyid[k])).name
        if geometry is not None and body != "world":
            own, material = model.geom_rgba[k], int(model.geom_matid[k])
            # As in MuJoCo: the color of the material, unless the geom has a color other than the default.
            color = model.mat_rgba[material] if material >= 0 and np.array_equal(own, _DEFAULT_RGBA) else own
            red, green, blue, _ = (float(x) for x in color)
            found.append(
                Visual(
                    body,
                    quaternion_matrix(model.geom_quat[k]),
                    model.geom_pos[k].copy(),
                    geometry(),
                    (red, green, blue),
                )
            )
    return found, [f"{shorten(name, 300)} does not exist" for name in files.missing.values()]


def _triangles(model: Any, mesh: int) -> Triangles:
    first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    face, faces = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
    return Triangles(
        model.mesh_vert[first : first + count].astype(float), model.mesh_face[face : face + faces].copy()
    )

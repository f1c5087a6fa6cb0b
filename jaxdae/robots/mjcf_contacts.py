"""Contacts of an MJCF model: the pairs of geoms that may touch.

The rules are those of MuJoCo, except that contacts are rigid:

    a pair collides     if contype of one and conaffinity of the other have a common bit; not if both geoms
                        are on one body or on bodies that are welded together, on a body and its parent unless
                        the parent is the world, or on bodies named in `exclude`
    friction            friction[0] of the geom with the higher priority, or the larger one; 0 for condim 1
    explicit pairs      `pair` elements collide always, with friction of their own

`solref`, `solimp`, margins, and torsional and rolling friction have no meaning for rigid contacts.

References:
    MuJoCo documentation, "Computation", collision detection and contact parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxdae.geometry import shapes
from jaxdae.robots.robot_graph import FileContacts, Geom, GeomPair, Pose, quaternion_matrix

_KINDS = ("PLANE", "HFIELD", "SPHERE", "CAPSULE", "ELLIPSOID", "CYLINDER", "BOX", "MESH", "SDF")


def contacts(mujoco: Any, model: Any, bodies: list[str]) -> FileContacts:
    """Return the pairs of geoms that may touch.

    Args:
        mujoco: the module.
        model: the compiled model.
        bodies: the links of the bodies.
    """
    kinds = {int(getattr(mujoco.mjtGeom, f"mjGEOM_{kind}")): kind.lower() for kind in _KINDS}
    geoms = [_geom(mujoco, model, kinds, bodies, k) for k in range(model.ngeom)]
    pairs = [
        GeomPair(geoms[first], geoms[second], friction, explicit)
        for first, second, friction, explicit in _colliding(mujoco, model)
    ]
    return FileContacts(pairs, ("geom", "pair", "exclude"))


def _geom(mujoco: Any, model: Any, kinds: dict[int, str], bodies: list[str], k: int) -> Geom:
    name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_GEOM, k)
    link = bodies[model.geom_bodyid[k]]
    number = int(k - model.body_geomadr[model.geom_bodyid[k]])
    pose = Pose(quaternion_matrix(model.geom_quat[k]), np.array(model.geom_pos[k]))
    kind = kinds.get(int(model.geom_type[k]), "geom")
    return Geom(name or f"{link}_geom{number}", link, _shape(kind, model, k), pose, kind)


def _shape(kind: str, model: Any, k: int) -> shapes.Shape | None:
    """Return the shape of a geom without its pose, None if contacts do not support it."""
    size = model.geom_size[k].tolist()
    if kind == "plane":
        return shapes.Plane()
    if kind == "sphere":
        return shapes.Sphere(size[0])
    if kind == "capsule":
        return shapes.Capsule(size[0], size[1])
    if kind == "cylinder":
        return shapes.Cylinder(size[0], size[1])
    if kind == "ellipsoid":
        return shapes.Ellipsoid(tuple(size))
    return shapes.Box(tuple(size)) if kind == "box" else None


def _colliding(mujoco: Any, model: Any) -> Iterator[tuple[int, int, float, bool]]:
    """Yield the pairs of geoms that may touch, with their friction, and whether a `pair` lists them."""
    explicit = set()
    for k in range(model.npair):
        first, second = int(model.pair_geom1[k]), int(model.pair_geom2[k])
        explicit.add(frozenset((first, second)))
        yield first, second, float(model.pair_friction[k, 0]) if model.pair_dim[k] > 1 else 0.0, True
    flags, bits = int(model.opt.disableflags), mujoco.mjtDisableBit
    if flags & int(bits.mjDSBL_CONTACT | bits.mjDSBL_CONSTRAINT):
        return
    excluded = {int(signature) for signature in model.exclude_signature}
    filters_parents = not flags & int(bits.mjDSBL_FILTERPARENT)
    for first in range(model.ngeom):
        for second in range(first + 1, model.ngeom):
            bits_match = (model.geom_contype[first] & model.geom_conaffinity[second]) or (
                model.geom_contype[second] & model.geom_conaffinity[first]
            )
            pair = frozenset((first, second))
            if (
                bits_match
                and pair not in explicit
                and _may_touch(model, first, second, excluded, filters_parents)
            ):
                yield first, second, _friction(model, first, second), False


def _may_touch(model: Any, first: int, second: int, excluded: set[int], filters_parents: bool) -> bool:
    """Return whether the bodies of two geoms may touch."""
    bodies = sorted((int(model.geom_bodyid[first]), int(model.geom_bodyid[second])))
    a, b = (int(model.body_weldid[body]) for body in bodies)
    first_last = (bodies[0] << 16) + bodies[1], (bodies[1] << 16) + bodies[0]
    if a == b or excluded.intersection(first_last):
        return False
    above = [int(model.body_weldid[model.body_parentid[body]]) for body in (a, b)]
    return not (filters_parents and a and b and (a == above[1] or b == above[0]))


def _friction(model: Any, first: int, second: int) -> float:
    """Return the friction coefficient of two geoms."""
    if max(int(model.geom_condim[first]), int(model.geom_condim[second])) == 1:
        return 0.0
    frictions = [float(model.geom_friction[k, 0]) for k in (first, second)]
    priorities = [int(model.geom_priority[k]) for k in (first, second)]
    if priorities[0] == priorities[1]:
        return max(frictions)
    return frictions[int(np.argmax(priorities))]

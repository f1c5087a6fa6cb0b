"""Parameters of a tree of links, computed from the fields of its joints.

The fields of a joint are the only copy of its parameters, in joint coordinates and in absolute coordinates. A
derivative, a sweep or a fit with respect to `carrying.revolute.point_b` therefore changes the motion.

Let H_P be the frame of body P in the link that carries it. A joint between P and C has the frame A in P and
the frame B in C. Both frames coincide if the coordinates of the joint are zero. Then

    F = H_P A            frame of the first link of the joint in its parent link, at coordinate zero
    H_C = B^-1           frame of C in the last link of the joint
    H_C = F B^-1         for a weld, which has no link

For a joint that the tree passes from b to a, exchange A and B, reverse the order of the links, and negate the
axes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.mechanisms.describe import measures
from jaxdae.mechanisms.describe.links import AXIS, BALL, VELOCITIES, Structure
from jaxdae.mechanisms.describe.plane_and_space import Plane, Space

ALWAYS = ("damping", "armature")
PAIRS = (("friction", "friction_speed"), ("stiffness", "rest"))
ELEMENTS = (*ALWAYS, *(name for pair in PAIRS for name in pair))
"""Parameters of single velocities; a pair of `PAIRS` exists if its first parameter is nonzero for any
joint."""


def tree_parameters(space: Plane | Space, structure: Structure, groups: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves of `TreeCoordinates` for the joint groups of a tree.

    Args:
        space: the plane or space.
        structure: the structure of the tree.
        groups: the stacked tree joints by type; bodies without a joint move freely.
    """
    rows = {name: k for k, name in enumerate(name for group in groups.values() for name in group.names)}
    joints = [rows.get(name, len(rows)) for name in structure.joint_names]
    fixed, held = _frames(space, structure, groups, np.asarray(joints, int))
    turning, sliding = _axes(space, structure, groups)
    return {"fixed": fixed, "held": held, "turning": turning, "sliding": sliding} | {
        name: _along(structure, groups, name, 1.0 if name == "friction_speed" else 0.0)
        for name in _elements(groups)
    }


@jax.jit
def with_tree_parameters(form: Any, groups: dict[str, Any]) -> Any:
    """Return the coordinates of a tree with their parameters; all callers share one compiled trace."""
    return dataclasses.replace(form, **tree_parameters(form.space, form.structure, groups))


def parameter_axes(
    space: Plane | Space, groups: Mapping[str, Any], axes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the batch axes of `tree_parameters`: -1 for parameters that differ between worlds, else None.

    Args:
        space: the plane or space.
        groups: the stacked tree joints by type.
        axes: the same groups with batch axes, -1 or None, in place of the leaves.
    """
    varies = {name for group in axes.values() for name in _varying(group)}
    geometry = -1 if varies - set(ELEMENTS) else None
    frame = space.frame(*(geometry for _ in space.frame.GROUND))
    elements = {name: -1 if name in varies else None for name in _elements(groups)}
    return {"fixed": frame, "held": frame, "turning": geometry, "sliding": geometry} | elements


def dtype_of(groups: Any) -> Any:
    """Return the floating-point type of the leaves of joints, or the default type without leaves."""
    leaves = jax.tree.leaves(groups)
    return leaves[0].dtype if leaves else jnp.result_type(float)


def _elements(groups: Mapping[str, Any]) -> list[str]:
    """Return the names of the parameters of single velocities that any joint has."""
    given = {
        name for group in groups.values() for name in group.elements() if getattr(group, name) is not None
    }
    return [*ALWAYS, *(name for pair in PAIRS if pair[0] in given for name in pair)]


def _varying(group: Any) -> list[str]:
    """Return the names of the fields of a group that have a batch axis."""
    return [name for name in group.__dataclass_fields__ if -1 in jax.tree.leaves(getattr(group, name))]


def _frames(
    space: Plane | Space, structure: Structure, groups: Mapping[str, Any], joints: np.ndarray
) -> tuple[Any, Any]:
    """Return the frames `fixed` of all links in their parents and `held` of all bodies in their links."""
    kind, count, bodies = space.frame, len(structure.joint_names), len(structure.body_links)
    sides = [jax.vmap(lambda joint: joint.joint_frames())(group) for group in groups.values() if group.names]
    ground = jnp.asarray(kind.GROUND, dtype_of(groups))[:, None]
    on_a, on_b = (
        jnp.concatenate([*(jnp.stack(side[k]) for side in sides), ground], axis=1) for k in range(2)
    )
    number, backward = on_a.shape[1], np.asarray(structure.backward, bool)
    both = jnp.concatenate([on_a, on_b], axis=1)
    near = kind(*measures.columns(both, joints + number * backward))
    far = kind(*measures.columns(both, joints + number * ~backward))
    back = kind(*jnp.broadcast_to(ground, (len(ground), count))).seen_from(far)
    parents, children = np.asarray(structure.ends, int).reshape(-1, 2).T
    carried_by = np.empty(bodies, int)
    carried_by[children] = np.arange(count)
    held = measures.frames_of(carried_by, back)
    for welds in _welds_by_depth(structure):
        placed = (
            measures.frames_of(parents[welds], held)
            .then(measures.frames_of(welds, near))
            .then(measures.frames_of(welds, back))
        )
        held = kind(*(own.at[children[welds]].set(new) for own, new in zip(held, placed, strict=True)))
    of_joints = measures.frames_of(parents, held).then(near)
    owners = np.asarray(structure.joints, int)
    first = np.append(True, owners[1:] != owners[:-1]) if owners.size else np.zeros(0, bool)
    return measures.frames_of(np.where(first, owners, count), of_joints), held


def _welds_by_depth(structure: Structure) -> list[np.ndarray]:
    """Return the joints without links by depth, so that a weld follows the welds of its parent body."""
    depths: dict[int, int] = {}
    welds = set(range(len(structure.joint_names))) - set(structure.joints)
    for joint, (parent, child) in enumerate(structure.ends):
        depths[child] = depths.get(parent, 0) + 1 if joint in welds else 0
    found: dict[int, list[int]] = {}
    for joint in sorted(welds):
        found.setdefault(depths[structure.ends[joint][1]], []).append(joint)
    return [np.asarray(found[depth], int) for depth in sorted(found)]


def _axes(space: Plane | Space, structure: Structure, groups: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the unit rotations and translations of all velocities, in the axes of their links."""
    turning, sliding = _constant_axes(space, structure)
    dtype = dtype_of(groups)
    turnings, slidings, signs = (
        [jnp.asarray(turning, dtype)],
        [jnp.asarray(sliding, dtype)],
        np.ones(len(turning)),
    )
    index, size = np.arange(len(turning)), len(turning)
    starts, links = structure.starts(VELOCITIES), _links_by_joint(structure)
    for group in groups.values():
        for step, (turns, slides) in enumerate(_steps(group)):
            for k, name in enumerate(group.names):
                link, sign = links[name][0][step], links[name][1]
                if structure.kinds[link] == AXIS:
                    index[starts[link]], signs[starts[link]] = size + k, sign
            turnings.append(turns)
            slidings.append(slides)
            size += len(group.names)
    each = jnp.asarray(signs, turnings[0].dtype)
    turning, sliding = (jnp.concatenate(entries)[index] for entries in (turnings, slidings))
    return each.reshape(-1, *(1,) * (turning.ndim - 1)) * turning, each[:, None] * sliding


def _links_by_joint(structure: Structure) -> dict[str, tuple[list[int], float]]:
    """Return the links of each joint in the order of its steps, and -1 for a reversed joint, else 1.

    The tree passes a reversed joint from b to a.
    """
    found: list[list[int]] = [[] for _ in structure.joint_names]
    for link, joint in enumerate(structure.joints):
        found[joint].append(link)
    ordered = [
        (links[::-1], -1.0) if back else (links, 1.0)
        for links, back in zip(found, structure.backward, strict=True)
    ]
    return dict(zip(structure.joint_names, ordered, strict=True))


def _steps(group: Any) -> list[tuple[Any, Any]]:
    """Return the unit rotations and translations (k, ...) of each step of a group of joints."""
    dtype = dtype_of(group)

    def of_joint(joint: Any) -> list[tuple[Any, Any]]:
        return [
            (jnp.asarray(step.turning, dtype), jnp.asarray(step.sliding, dtype)) for step in joint.steps()
        ]

    return jax.vmap(of_joint)(group)


def _constant_axes(space: Plane | Space, structure: Structure) -> tuple[np.ndarray, np.ndarray]:
    """Return the axes of orientations, positions and free bodies; `_axes` replaces the other rows."""
    columns = structure.column_links
    if space.dimension == 3:
        turning, sliding = np.zeros((2, len(columns), 3))
        for link, kind in enumerate(structure.kinds):
            if kind != AXIS:
                (turning if kind == BALL else sliding)[columns == link] = np.eye(3)
        return turning, sliding
    # A free body translates along x and y and rotates; a rotor only rotates.
    free = {3: [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]}
    counts = [structure.joints.count(joint) for joint in dict.fromkeys(structure.joints)]
    table = np.concatenate(
        [free.get(count, [[1.0, 0.0, 0.0]] * count) for count in counts] or [np.zeros((0, 3))]
    )
    return table[:, 0], table[:, 1:]


def _along(structure: Structure, groups: Mapping[str, Any], name: str, default: float) -> Any:
    """Return a parameter of the joints for each velocity (nv,)."""
    starts, links = structure.starts(VELOCITIES), _links_by_joint(structure)
    values, index, size = (
        [jnp.asarray([default], dtype_of(groups))],
        np.zeros(len(structure.velocity_names), int),
        1,
    )
    for group in groups.values():
        value = group.elements().get(name)
        if value is None:
            continue
        per_joint = max(1, len(group.coordinates))
        for k, joint in enumerate(group.names):
            own = [link for link in links[joint][0] if structure.kinds[link] == AXIS or not group.coordinates]
            for c, link in enumerate(own):
                columns = starts[link] + np.arange(VELOCITIES[structure.kinds[link]])
                index[columns] = size + per_joint * k + (c if group.coordinates else 0)
        values.append(value.reshape(-1))
        size += per_joint * len(group.names)
    return jnp.concatenate(values)[index]

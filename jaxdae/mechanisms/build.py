"""From named bodies, joints and forces to stacked arrays.

Names become index tuples (structure), numbers become leaves. Places given in the world at the start pose are moved into the frames of
both bodies here, so that the mechanism itself knows body frames only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.mechanisms.check import check_description
from jaxdae.mechanisms.describe import Body, Element, Force, Joint
from jaxdae.mechanisms.fields import GROUND, real, vector
from jaxdae.mechanisms.forces.planar import PLANAR_FORCES
from jaxdae.mechanisms.joints.planar import PLANAR_JOINTS
from jaxdae.mechanisms.measures import Frame
from jaxdae.mechanisms.mechanism import Mechanism


def planar_mechanism(
    bodies: Sequence[Body],
    joints: Sequence[Joint],
    forces: Sequence[Force] = (),
    *,
    gravity: Any = (0.0, -9.81),
) -> tuple[Mechanism, Any]:
    """Returns a planar mechanism and its start pose.

    Args:
        bodies: at least one `Body`.
        joints: `Revolute`, `Prismatic`, `Weld` and the other types of joints.
        forces: `LinearSpring`, `TorsionalSpring`, `Torque`, `Force`, `JointForce`.
        gravity: (2,) in m/s^2.

    Returns:
        The `Mechanism`, and q (3 n,): the start poses stacked. Close the loops of a rough pose with `initialize`.

    Raises:
        ValueError: every mistake at once: unknown or repeated names, missing places, non-positive masses.
        TypeError: things in the lists that are no bodies, joints or forces.

    Differentiable with respect to every number in the description.
    """
    check_description(bodies, joints, forces, gravity, PLANAR_JOINTS, PLANAR_FORCES)
    numbers = {body.name: k for k, body in enumerate(bodies)} | {GROUND: len(bodies)}
    poses = [vector(body.pose) for body in bodies]
    ground = jnp.zeros(3, jnp.result_type(float))
    frames = {name: _frame(pose) for name, pose in zip(numbers, [*poses, ground], strict=True)}
    by_name = {joint.name: joint for joint in joints}
    joint_groups, force_groups = (_groups(item.resolved(by_name).placed(frames, numbers) for item in items) for items in (joints, forces))
    mechanism = Mechanism(
        body_names=tuple(body.name for body in bodies),
        n_inputs=max((k for group in force_groups.values() for k in group.inputs), default=-1) + 1,
        mass=jnp.stack([real(body.mass) for body in bodies]),
        inertia=jnp.stack([real(body.inertia) for body in bodies]),
        gravity=vector(gravity),
        joints=joint_groups,
        forces=force_groups,
    )
    return mechanism, jnp.concatenate(poses)


def _frame(pose: Any) -> Frame:
    x, y, angle = pose
    return Frame(x, y, angle, jnp.cos(angle), jnp.sin(angle))


def _groups(elements: Iterable[Any]) -> dict[str, Any]:
    """Returns the elements stacked by key; those that do not stack, as motions of different form, are numbered groups of their own."""
    shapes: dict[str, list[Any]] = {}
    groups: dict[str, list[Any]] = {}
    for element in elements:
        leaves, structure = jax.tree.flatten(_plain(element))
        shape = (structure, [leaf.shape for leaf in leaves])
        known = shapes.setdefault(element.key, [])
        if shape not in known:
            known.append(shape)
        number = known.index(shape)
        groups.setdefault(element.key + (f"_{number + 1}" if number else ""), []).append(element)
    # Sorted, because JAX sorts the keys of a dictionary whenever it rebuilds one, and rows follow the order of the groups.
    return {key: _stack(groups[key]) for key in sorted(groups)}


def _stack(elements: list[Element]) -> Any:
    """Returns one group from single elements: leaves stacked, names and numbers joined, numbers that are all zero left out."""
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(_plain(element) for element in elements))
    joined = {name: sum((getattr(e, name) for e in elements), ()) for name in _static(elements[0])}
    sparse = [name for name, kind in elements[0].kinds().items() if kind.sparse]
    absent = {name: None for name in sparse if not any(_nonzero(getattr(e, name)) for e in elements)}
    return dataclasses.replace(stacked, **joined, **absent)


def _plain(element: Any) -> Any:
    """Returns an element without what is static."""
    return dataclasses.replace(element, **dict.fromkeys(_static(element), ()))


def _static(element: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(element) if field.metadata.get("static")]


def _nonzero(x: Any) -> bool:
    return isinstance(x, Tracer) or bool(np.any(np.asarray(x) != 0.0))

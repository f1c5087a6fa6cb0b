"""Conversion of states between absolute and joint coordinates.

To convert from joint to absolute coordinates, collect the frames and twists of all bodies.

In the opposite direction, each joint of the tree measures its coordinates between the frames of its two
bodies. Its velocities v follow from the relative motion V of these bodies. With S the motion subspace of the
joint, about a point of the joint,

    S v = V_child - V_parent,

which has a unique solution, because S has full column rank.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.base.requirements import check_requirements
from jaxdae.mechanisms.coordinates.absolute import absolute_form, frame_quaternions
from jaxdae.mechanisms.coordinates.tree_coordinates import TreeCoordinates
from jaxdae.mechanisms.describe import measures
from jaxdae.mechanisms.describe.links import AXIS, BALL, COORDINATES, PLACE
from jaxdae.mechanisms.describe.measures import Kinematics
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.systems.state_checks import StateWarning
from jaxdae.systems.system import State, check_mechanism, default_tolerance


def to_absolute(mechanism: Mechanism, state: State) -> State:
    """Return a state in absolute coordinates.

    Args:
        mechanism: in either form of coordinates.
        state: in the coordinates of the mechanism.

    Raises:
        ValueError: if a parameter is out of range.

    Differentiable; quaternions have w >= 0.
    """
    check_mechanism(mechanism)
    check_requirements("mechanism", mechanism)
    motion = mechanism.coordinates.kinematics(state.q, state.v)
    form = mechanism.absolute
    q = form.of_frames(motion.frame)
    return State(state.t, q, form.of_twists(q, motion.velocity))


def to_joints(mechanism: Mechanism, state: State) -> State:
    """Return a state in the joint coordinates of a mechanism.

    In space, angles are in (-pi, pi]; in the plane, they keep full turns. Quaternions have w >= 0.

    Args:
        mechanism: in joint coordinates.
        state: in absolute coordinates; it must satisfy the joints of the tree.

    Raises:
        TypeError: if the mechanism has other coordinates.
        ValueError: if a parameter is out of range.

    Warns:
        StateWarning: if the state violates joints of the tree, so that the result has another pose or motion.
            The function checks nothing under `jit`, `vmap` and `grad`. A violation of loop rows remains in
            the result; `state_status` reports it.

    Differentiable.
    """
    check_mechanism(mechanism)
    tree = mechanism.coordinates
    if not isinstance(tree, TreeCoordinates):
        raise TypeError(
            "to_joints: mechanism must have joint coordinates; build it with jm.mechanism(description, "
            "jm.Joints())"
        )
    check_requirements("mechanism", mechanism)
    motion = mechanism.absolute.kinematics(state.q, state.v)
    q = _coordinates(mechanism, tree, motion)
    found = State(state.t, q, _velocities(mechanism, tree, q, motion))
    _report_change(mechanism, state, found)
    return found


def _report_change(mechanism: Mechanism, state: State, found: State) -> None:
    """Warn if a state in absolute coordinates is a different motion than the result of `to_joints`."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((mechanism, state, found))):
        return
    again, form = to_absolute(mechanism, found), mechanism.absolute
    names, units = zip(*form.velocity_names, strict=True)
    moved, changed = (np.asarray(x, float) for x in (form.difference(state.q, again.q), again.v - state.v))
    turns = np.asarray([unit == "rad/s" for unit in units])
    moved = np.where(turns, (moved + np.pi) % (2.0 * np.pi) - np.pi, moved)
    k, j = np.argmax(np.abs(moved)), np.argmax(np.abs(changed))
    near, slow = (1.0 + np.max(np.abs(x)) for x in (state.q, state.v))
    if np.abs(moved[k]) > default_tolerance(state.q.dtype) * near:
        text = (
            f"{names[k].rpartition('.')[0]} would move by {np.abs(moved[k]):.3g} "
            f"{units[k].removesuffix('/s')}"
        )
    elif np.abs(changed[j]) > default_tolerance(state.q.dtype) * slow:
        text = f"{names[j]} would change by {changed[j]:.3g} {units[j]}"
    else:
        return
    remedy = "Close the joints first: call initialize with the mechanism in absolute coordinates"
    message = f"to_joints: the state violates the tree joints: {text}. {remedy}"
    warnings.warn(message, StateWarning, stacklevel=3)


def _coordinates(mechanism: Mechanism, tree: TreeCoordinates, motion: Kinematics) -> Any:
    """Return q from the frames of all bodies."""
    shape = tree.structure
    starts = shape.starts(COORDINATES)
    q = jnp.zeros((len(tree.names),), motion.frame.x.dtype)
    for group in mechanism.carrying.values():
        pair = measures.Pairs(group.a, group.b, len(mechanism.body_names))
        axes = np.asarray([starts[shape.of_joint(name, AXIS)] for name in group.names], int)
        if axes.size:
            q = q.at[axes].set(
                measures.values(type(group).coordinate, group, pair, motion, jnp.zeros((), q.dtype))
            )
        balls = [link for name in group.names for link in shape.of_joint(name, BALL)]
        if balls:
            on_a, on_b = jax.vmap(type(group).joint_frames)(group)
            a, b = (
                frame.then(own) for frame, own in zip(measures.ends(pair, motion), (on_a, on_b), strict=True)
            )
            backward = np.asarray([shape.backward[shape.joint_names.index(name)] for name in group.names])
            turned = jnp.where(
                backward[:, None], frame_quaternions(a.seen_from(b)), frame_quaternions(b.seen_from(a))
            )
            q = q.at[starts[balls][:, None] + np.arange(4)].set(turned)
        places = [link for name in group.names for link in shape.of_joint(name, PLACE)]
        if places:
            on_a, on_b = jax.vmap(type(group).joint_frames)(group)
            a, b = (
                frame.then(own) for frame, own in zip(measures.ends(pair, motion), (on_a, on_b), strict=True)
            )
            q = q.at[starts[places][:, None] + np.arange(3)].set(b.seen_from(a).place.array().T)
    free = [
        name
        for name in shape.joint_names
        if name in mechanism.body_names and name not in mechanism.joint_names
    ]
    for name in free:
        number = mechanism.body_names.index(name)
        frame = jax.tree.map(lambda entry, k=number: entry[k : k + 1], motion.frame)
        first = min(k for kind in (PLACE, BALL, AXIS) for k in shape.of_joint(name, kind))
        pose = absolute_form(mechanism.space, (name,), (0,) if number in mechanism.rotors else ()).of_frames(
            frame
        )
        q = q.at[starts[first] + np.arange(pose.shape[0])].set(pose)
    return q


def _velocities(mechanism: Mechanism, tree: TreeCoordinates, q: Any, motion: Kinematics) -> Any:
    """Return v from the twists of all bodies."""
    shape, screw, near = tree.structure, mechanism.space.screw, tree.locate(q)
    bodies = screw.of_twist(near.bodies, motion.velocity)
    padded = [jnp.append(entry, 0.0) for entry in bodies]
    parents, children = np.asarray(shape.ends, int).T
    # Expressed at the last link of each joint, where the motion subspace columns are orthonormal.
    last = np.zeros(len(shape.joint_names), int)
    last[np.asarray(shape.joints, int)] = np.arange(shape.count)
    own = measures.frames_of(last, near.links)
    against = jnp.stack(screw(*(entry[children] - entry[parents] for entry in padded)).at(own))
    joints = np.asarray(shape.joints, int)[shape.column_links]
    columns = jnp.stack(near.columns.at(measures.frames_of(last[joints], near.links)))
    products = jnp.where(shape.same_joint, columns.T @ columns, 0.0)
    return jnp.linalg.solve(products, jnp.sum(columns * against[:, joints], axis=0))

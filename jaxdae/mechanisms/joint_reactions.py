"""Reaction forces and torques of joints on the bodies that they connect.

The multipliers of a joint act on both of its bodies. Moved to the joint's point, they are its force and
torque. A tree joint has no multipliers. Its reaction is the wrench M_b (T a + T' v) that all bodies beyond it
need, minus the forces that act on them:

    reaction = sum over carried bodies of M_b a_b - f_b - (J_b^T lam of the loops).

Efforts along the coordinates of a joint (springs, dampers, motors with their inertia, relations, limits, dry
friction) count as forces and are not part of its reaction. Both forms of coordinates give the same reactions
if no rows are linearly dependent.

References:
    R. Featherstone, "Rigid Body Dynamics Algorithms" (2008), chapter 5.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.integrators.contact_method import ContactInfo
from jaxdae.integrators.integrator import StepInfo
from jaxdae.mechanisms.coordinates.tree_coordinates import TreeCoordinates
from jaxdae.mechanisms.describe import measures as fr
from jaxdae.mechanisms.describe.measures import Blocks, Kinematics, Pairs
from jaxdae.mechanisms.describe.spanning_tree import holds
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.mechanisms.massless import MasslessMechanism, refuse
from jaxdae.systems.state_checks import report_state
from jaxdae.systems.system import State, check_mechanism
from jaxdae.typing import Rows


@pytree
class Reactions:
    """Force and torque that each joint applies to its body b; body a receives the opposite.

    A `Gear` and the planar wheels are exceptions: their body a does not receive the opposite, because the
    ground balances their effect on the bodies.

    Attributes:
        names: of the joints (k,), static, so that reactions can be compiled and batched like arrays.
        force: in world axes, or in the axes of each joint's body b on request, (k, 2) or (k, 3), in N.
        torque: about the joint's point on b, or about the mass center of b if the joint has no point: (k,) in
            the plane, (k, 3) in the same axes as the force in space, in N m.
    """

    names: tuple[str, ...] = static()
    force: Array
    torque: Array

    def of(self, name: str) -> tuple[Array, Array]:
        """Return force and torque of one joint.

        Raises:
            ValueError: if the joint is unknown.
        """
        if name not in self.names:
            raise ValueError(f"Reactions.of: no joint {name!r}; available: {', '.join(self.names)}")
        k = self.names.index(name)
        return self.force[k], self.torque[k]


def reactions(
    mechanism: Mechanism,
    state: State,
    lam: Rows | StepInfo,
    u: Any = None,
    *,
    body_frame: bool = False,
    row_forces: Array | None = None,
) -> Reactions:
    """Return force and torque of every joint, in either form of coordinates.

    Args:
        mechanism: the mechanism.
        state: time (s), coordinates and velocities.
        lam: the multipliers at the state (nc,), as from `forward_dynamics`, or the report of a step.
        u: input (nu,); it affects only the reactions of tree joints.
        body_frame: whether forces and torques are in the axes of each joint's body b instead of world axes;
            for the ground, both are the same.
        row_forces: forces of contacts, limits and dry friction (n,), as in a `ContactInfo`; by default the
            forces of the report if `lam` is a report, otherwise zero.

    Raises:
        TypeError: a wrapper or a first-order mechanism, which has no forces.
        ValueError: if there is not one multiplier per row, or not one force per row of contacts, limits and
            dry friction of the mechanism.

    Warns:
        StateWarning: if the state violates the constraints. Checked for concrete arguments only, not under
            `jit`, `vmap` and `grad`; use `state_status` there.

    Differentiable. If rows are linearly dependent, the equations determine neither the individual multipliers
    nor the reactions.
    """
    check_mechanism(mechanism)
    if isinstance(mechanism, MasslessMechanism):
        refuse("reactions")
    if row_forces is None and isinstance(lam, ContactInfo):
        row_forces = lam.row_forces
    touching = None if row_forces is None else _split(mechanism, row_forces)
    rows, lam = len(mechanism.names.rows), jnp.asarray(lam.lam if isinstance(lam, StepInfo) else lam)
    if lam.shape != (rows,):
        raise ValueError(
            f"reactions: lam must have shape ({rows},), one multiplier per row of the mechanism, got "
            f"{lam.shape}"
        )
    motion = mechanism.coordinates.kinematics(state.q, state.v)
    loops, related, along = _of_rows(mechanism, state, lam, u, motion, touching)
    found = [
        (group.names, pair.sides[1], *_at_points(mechanism, group, pair, motion, on_b))
        for group, pair, on_b, _ in loops
    ]
    if isinstance(mechanism.coordinates, TreeCoordinates):
        wrenches = [everywhere for *_, everywhere in loops] + related
        found.extend(_of_tree(mechanism, mechanism.coordinates, state, u, motion, wrenches, along))
    shapes = ((0, 2), (0,)) if mechanism.space.dimension == 2 else ((0, 3), (0, 3))
    nothing = (), np.zeros(0, int), *(jnp.zeros(shape, state.q.dtype) for shape in shapes)
    names, bodies, forces, torques = zip(nothing, *found, strict=True)
    force, torque = jnp.concatenate(forces), jnp.concatenate(torques)
    if body_frame:
        frames, turned = (
            fr.frames_of(np.concatenate(bodies), motion.frame),
            jax.vmap(lambda frame, vector: frame.components_of(vector)),
        )
        # In the plane, a torque is the same in all axes.
        force, torque = turned(frames, force), torque if torque.ndim == 1 else turned(frames, torque)
    report_state("reactions", mechanism, state, force, torque)
    return Reactions(sum(names, ()), force, torque)


def _of_rows(
    mechanism: Mechanism, state: State, lam: Any, u: Any, motion: Kinematics, touching: list[Array] | None
) -> tuple[list[tuple[Any, Pairs, Any, Any]], list[Any], Any]:
    """Return the wrenches and efforts of multipliers and tendons.

    The first item lists the groups of joints with rows, with the wrenches on their bodies b (k,) and on all
    bodies (n,). The second item lists the wrenches on all bodies of contacts, and of relations, tendons,
    limits and dry friction along measured coordinates. The third item is the efforts (nv,) of the latter on
    the coordinates themselves. `touching` are the forces of contacts, limits and dry friction, or None.
    """
    used, loads, along = 0, dict[str, Any](), jnp.zeros_like(state.v)
    pulls: list[tuple[Any, Any]] = []
    for rows, measure, derivative in (
        ("rows", "residual", "blocks"),
        ("velocity_rows", "velocity_residual", "velocity_blocks"),
    ):
        for key, group in mechanism.joints.items():
            count = len(getattr(group, rows))
            if count:
                pair = Pairs(group.a, group.b, len(mechanism.body_names))
                own = lam[used : used + count * len(group.names)].reshape(-1, count)
                used += own.size
                block = getattr(group.derivatives, derivative)(
                    getattr(type(group), measure), group, pair, motion, state.t
                )
                load = (group, pair, _on_b(mechanism, block, own), mechanism.virtual_work(block, pair, own))
                # A joint that rolls on a surface has rows of both levels, which belong to one reaction.
                loads[key] = (
                    (group, pair, *jax.tree.map(jnp.add, loads[key][2:], load[2:])) if key in loads else load
                )
        for group in mechanism.relations.values() if rows == "rows" else ():
            own = lam[used : used + len(group.names)]
            used += own.size
            pulls.extend(group.efforts(mechanism.coordinates, motion, state.q, state.t, own))
    if mechanism.tendons is not None:
        acting = mechanism.tendons.acting(mechanism.coordinates, motion, (state.t, state.q, state.v), u)
        pulls.extend(mechanism.tendons.lengths.pulls(acting))
    related = []
    if touching is not None:
        of_contacts, of_limits, of_friction = touching
        if mechanism.contacts is not None:
            block, pair = mechanism.contacts.blocks(mechanism.contacts.points(motion), motion)
            axes = of_contacts.reshape(-1, mechanism.space.dimension)
            related.append(mechanism.virtual_work(block, pair, axes))
        if (limits := mechanism.joint_limits) is not None:
            pulls.extend(limits.along.pulls(limits.efforts(of_limits)))
        if (friction := mechanism.joint_friction) is not None:
            pulls.extend(friction.along.pulls(of_friction))
    for side, effort in pulls:
        terms = side.terms(motion, state.t, effort)
        for term in terms.on_velocities:
            along = along.at[np.asarray(term.in_v)].add(term.entries)
        for term in terms.on_bodies:
            related.append(mechanism.virtual_work(term.block, term.pair, jnp.ones_like(effort)[:, None]))
    return list(loads.values()), related, along


def _split(mechanism: Mechanism, forces: Array) -> list[Array]:
    """Return the forces of contacts, limits and dry friction, from the forces of all rows (n,).

    Raises:
        ValueError: if there is not one force per row.
    """
    contacts, limits, friction = mechanism.contacts, mechanism.joint_limits, mechanism.joint_friction
    counts = (
        0 if contacts is None else mechanism.space.dimension * len(contacts.names),
        0 if limits is None else len(limits.of_rows),
        0 if friction is None else len(friction.names),
    )
    if forces.shape != (rows := sum(counts),):
        raise ValueError(
            f"reactions: row_forces must have shape ({rows},), one force per row of contacts, limits and dry "
            f"friction of the mechanism, got {forces.shape}; to ignore the forces of other contacts, such as "
            "FunctionContacts(...), pass info.lam"
        )
    return jnp.split(forces, np.cumsum(counts)[:-1])


def _on_b(mechanism: Mechanism, block: Blocks, efforts: Any) -> Any:
    """Return the wrenches (k,) on the bodies b of efforts (k, rows)."""
    return mechanism.space.twist(*jnp.sum(block[1] * efforts.T, axis=1))


def _of_tree(
    mechanism: Mechanism,
    tree: TreeCoordinates,
    state: State,
    u: Any,
    motion: Kinematics,
    loops: list[Any],
    along: Any,
) -> list[tuple[tuple[str, ...], np.ndarray, Any, Any]]:
    """Return names, bodies b, forces and torques of the tree joints.

    The loop wrenches and the efforts along the coordinates are given.
    """
    t, q, v = state.t, state.q, state.v
    at = mechanism.evaluate_joints(t, q, v)
    acting = at.applied(u)
    for wrench in loops:
        acting = jax.tree.map(jnp.add, acting, wrench)
    own = tree.efforts(q, v) + along
    a = at.mass.solve(tree.pull(q, motion, acting) + own)
    changes = tree.kinematics(q, a).velocity
    needed = mechanism.space.inertial(mechanism.mass, mechanism.inertia, changes)
    for group, pair in (
        (group, Pairs(group.a, group.b, len(mechanism.body_names))) for group in mechanism.joints.values()
    ):
        if group.reflects:
            arguments = type(group).coordinate, group, pair, Kinematics(motion.frame, changes), t
            turning = group.each(group.armature) * fr.rates(*arguments)
            needed = jax.tree.map(
                jnp.add, needed, mechanism.virtual_work(fr.blocks(*arguments), pair, turning)
            )
    own = own - tree.armature * a
    near = at.motion.located
    missing = mechanism.space.screw.of_wrench(near.bodies, jax.tree.map(jnp.subtract, needed, acting))
    carried = jnp.asarray(tree.structure.carried_bodies, q.dtype)
    through = mechanism.space.screw(*(jnp.stack(missing) @ carried))
    found = []
    for group in (group for group in mechanism.carrying.values() if holds(group)):
        pair = Pairs(group.a, group.b, len(mechanism.body_names))
        numbers = np.asarray([tree.structure.joint_names.index(name) for name in group.names], int)
        children = np.asarray(tree.structure.ends, int)[numbers, 1]
        # Reaction on the child, which is body a if the joint points back to the parent.
        sign = np.where(np.asarray(tree.structure.backward)[numbers], -1.0, 1.0)
        on_child = jax.tree.map(lambda entry, k=numbers, s=sign: entry[k] * s, through)
        force, torque = _moved(
            mechanism, on_child.wrench_at(fr.frames_of(children, near.bodies)), children, group, pair, motion
        )
        if group.coordinates:
            columns = np.asarray([tree.structure.axes_of_joint(name) for name in group.names], int)
            acting = _on_b(mechanism, fr.blocks(type(group).coordinate, group, pair, motion, t), own[columns])
            own_force, own_torque = _at_points(mechanism, group, pair, motion, acting)
            force, torque = force - own_force, torque - own_torque
        found.append((group.names, pair.sides[1], force, torque))
    return found


def _at_points(
    mechanism: Mechanism, group: Any, pair: Pairs, motion: Kinematics, wrench: Any
) -> tuple[Any, Any]:
    """Return wrenches on the bodies b as forces and torques about the joint points, in world axes."""
    return _moved(mechanism, wrench, pair.sides[1], group, pair, motion)


def _moved(
    mechanism: Mechanism, wrench: Any, bodies: np.ndarray, group: Any, pair: Pairs, motion: Kinematics
) -> tuple[Any, Any]:
    """Return wrenches about mass centers as forces and torques about the joint points."""
    frame, (_, b) = fr.frames_of(bodies, motion.frame), fr.ends(pair, motion)
    place = b.point(group.point_b.T) if "point_b" in group.kinds() else b.place
    return mechanism.space.about(wrench, frame, frame.place - place)

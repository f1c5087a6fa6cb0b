"""Conversion of named bodies, joints and forces to stacked arrays.

Names become index tuples (structure), and numbers become leaves. World positions at the start pose are
converted to the frames of both bodies here, so the mechanism itself uses body frames only.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxdae.base.requirements import offers
from jaxdae.base.suggestions import brief
from jaxdae.mechanisms.contacts.contact_elements import Pair
from jaxdae.mechanisms.contacts.contact_pairs import ContactPairs
from jaxdae.mechanisms.coordinates.absolute import Absolute
from jaxdae.mechanisms.couplings.joint_limits import limits_of
from jaxdae.mechanisms.couplings.relations import groups_of
from jaxdae.mechanisms.couplings.weighted_sums import Sides
from jaxdae.mechanisms.describe.bodies import Body, Rotor, SpatialBody
from jaxdae.mechanisms.describe.description_checks import Elements, check_description, check_resistance
from jaxdae.mechanisms.describe.elements import Element, Force, Joint
from jaxdae.mechanisms.describe.keywords import ByKeywords
from jaxdae.mechanisms.describe.kinds import GROUND
from jaxdae.mechanisms.describe.numbers import concrete, is_there, real, vector
from jaxdae.mechanisms.describe.plane_and_space import PLANE, SPACE, Plane, Space
from jaxdae.mechanisms.describe.spanning_tree import loops_that_share_joints, overconstrained
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.mechanisms.forces.force_bases import Driven
from jaxdae.mechanisms.forces.motors import GearedMotor
from jaxdae.mechanisms.forces.planar_forces import PLANAR_FORCES
from jaxdae.mechanisms.forces.spatial_forces import SPATIAL_FORCES
from jaxdae.mechanisms.forces.tendon import Tendon
from jaxdae.mechanisms.joint_copies import copies_of
from jaxdae.mechanisms.joints.drives import DRIVES
from jaxdae.mechanisms.joints.passive_elements import with_rest
from jaxdae.mechanisms.joints.planar_joints import PLANAR_JOINTS
from jaxdae.mechanisms.joints.planar_prescribed import PrescribedMotion
from jaxdae.mechanisms.joints.relation_elements import Relation, TendonRelation
from jaxdae.mechanisms.joints.spatial_joints import SPATIAL_JOINTS
from jaxdae.mechanisms.joints.spatial_prescribed import PrescribedMotion as SpatialMotion
from jaxdae.mechanisms.loop_rank import PlacedJoint, have_dependent_rows

TYPES: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "plane": (PLANAR_JOINTS, PLANAR_FORCES),
    "space": (SPATIAL_JOINTS, SPATIAL_FORCES),
}
"""The joint types and force types of each space."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description(ByKeywords):
    """The elements of a mechanism; the same description works with all coordinates.

    Attributes:
        space: `PLANE` or `SPACE`.
        bodies: at least one, `Body` and `Rotor` in the plane, `SpatialBody` in space.
        joints: elements of the joint types.
        forces: elements of the force types.
        drives: velocities that are inputs of the first-order mechanism (`kinematic_mechanism`).
        contacts: the pairs of shapes that can touch (`jaxdae.contact.Pair`).
        gravity: (2,) or (3,) in m/s^2; by default 9.81 downward, along -y in the plane and -z in space.
        loops: names of the joints that close loops in joint coordinates, used if `Joints.cut` names none; the
            other joints form the tree.
    """

    space: Plane | Space = PLANE
    bodies: Sequence[Any]
    joints: Sequence[Joint] = ()
    forces: Sequence[Force] = ()
    drives: Sequence[Any] = ()
    contacts: Sequence[Any] = ()
    gravity: Any = None
    loops: Sequence[str] = ()

    instead: ClassVar[Mapping[str, str]] = {"coordinates": "pass them to mechanism(description, coordinates)"}


def mechanism(description: Description, coordinates: Any = Absolute()) -> tuple[Mechanism, Any]:
    """Return the mechanism of a description in the given coordinates, and its start coordinates q.

    Close the loops of an approximate pose with `initialize`. Differentiable with respect to every number in
    the description.

    Args:
        description: bodies, joints, forces and contacts.
        coordinates: `Absolute()` or `Joints()`.

    Raises:
        ValueError: lists all mistakes: unknown or repeated names, missing positions, non-positive masses,
            numbers out of bounds or without effect, invalid shapes, invalid cuts, and, in a tree without
            rows, joints that move no inertia.
        TypeError: for list elements that are not bodies, joints, forces or contacts, reported with all other
            mistakes (this error is also a ValueError); for invalid coordinates.

    Warns:
        DescriptionWarning: for inertia that no physical body has, quaternions whose length is not 1, body
            angles in degrees, and a start at which the mass matrix is singular.
    """
    return built("mechanism", description, coordinates)[:2]


def planar_mechanism(
    bodies: Sequence[Body | Rotor],
    joints: Sequence[Joint],
    forces: Sequence[Force] = (),
    *,
    gravity: Any = (0.0, -9.81),
    coordinates: Any = Absolute(),
) -> tuple[Mechanism, Any]:
    """Return a planar mechanism and its start pose.

    Args:
        bodies: at least one `Body` or `Rotor`.
        joints: `Revolute`, `Prismatic`, `Weld` and the other joint types.
        forces: `LinearSpring`, `TorsionalSpring`, `Torque`, `Force`, `JointForce`, `Motor`, `Drag`.
        gravity: (2,) in m/s^2.
        coordinates: `Absolute()` or `Joints()`.

    Returns:
        The `Mechanism`, and q: in absolute coordinates (3 n,), the stacked start poses. Close the loops of an
            approximate pose with `initialize`.

    Raises:
        ValueError: lists all mistakes: unknown or repeated names, missing positions, non-positive masses,
            numbers out of bounds or without effect, invalid cuts, and, in a tree without rows, joints that
            move no inertia.
        TypeError: for list elements that are not bodies, joints or forces, reported with all other mistakes
            (this error is also a ValueError); for invalid coordinates.

    Warns:
        DescriptionWarning: for inertia that no physical body has, quaternions whose length is not 1, body
            angles in degrees, and a start at which the mass matrix is singular.

    Differentiable with respect to every number in the description.
    """
    description = Description(space=PLANE, bodies=bodies, joints=joints, forces=forces, gravity=gravity)
    return built("planar_mechanism", description, coordinates)[:2]


def spatial_mechanism(
    bodies: Sequence[SpatialBody],
    joints: Sequence[Joint],
    forces: Sequence[Force] = (),
    *,
    gravity: Any = (0.0, 0.0, -9.81),
    coordinates: Any = Absolute(),
) -> tuple[Mechanism, Any]:
    """Return a mechanism in space and its start pose.

    Args:
        bodies: at least one `SpatialBody`.
        joints: types of `jaxdae.mechanisms.spatial`, such as `Revolute`, `Ball`, `Universal`.
        forces: types of `jaxdae.mechanisms.spatial`, such as `LinearSpring`, `JointForce`, `Bushing`.
        gravity: (3,) in m/s^2.
        coordinates: `Absolute()` or `Joints()`.

    Returns:
        The `Mechanism`, and q: in absolute coordinates (7 n,), position and quaternion wxyz of each body.
            Close the loops of an approximate pose with `initialize`.

    Raises:
        ValueError: lists all mistakes: unknown or repeated names, missing positions, inertia that is not
            positive definite, numbers out of bounds or without effect, invalid cuts, and, in a tree without
            rows, joints that move no inertia.
        TypeError: for list elements that are not bodies, joints or forces, reported with all other mistakes
            (this error is also a ValueError); for invalid coordinates.

    Warns:
        DescriptionWarning: for inertia that no physical body has, quaternions whose length is not 1, body
            angles in degrees, and a start at which the mass matrix is singular.

    Differentiable with respect to every number in the description.
    """
    description = Description(space=SPACE, bodies=bodies, joints=joints, forces=forces, gravity=gravity)
    return built("spatial_mechanism", description, coordinates)[:2]


def _frames(space: Plane | Space, bodies: Sequence[Any]) -> dict[str, Any]:
    """Return the frames of all bodies and the ground at the start, by name."""
    return {body.name: body.frame() for body in bodies} | {
        GROUND: jax.tree.map(real, space.frame(*space.frame.GROUND))
    }


def check_is_description(caller: str, description: Any) -> None:
    """Raise TypeError unless the argument is a description with a valid space."""
    if not isinstance(description, Description):
        raise TypeError(
            f"{caller}: description must be a Description(bodies=..., joints=...), got a "
            f"{type(description).__name__}"
        )
    if description.space not in (PLANE, SPACE):
        raise TypeError(
            f"{caller}: Description.space must be jaxdae.mechanisms.PLANE or SPACE, got "
            f"{brief(description.space)}"
        )


def built(
    caller: str, description: Description, coordinates: Any, *, moved: bool = True
) -> tuple[Mechanism, Any, dict[str, Any]]:
    """Return the mechanism of a description, its start coordinates, and its drives as groups.

    Args:
        caller: name of the calling function, for messages.
        description: the elements of the mechanism.
        coordinates: `Absolute()` or `Joints()`.
        moved: whether forces move the mechanism, so that its mass matrix must be positive definite.

    Raises:
        TypeError: as in `mechanism`.
        ValueError: as in `mechanism`.
    """
    check_is_description(caller, description)
    gravity = _checked(caller, description, coordinates)
    space, bodies = description.space, description.bodies
    numbers = {body.name: k for k, body in enumerate(bodies)} | {GROUND: len(bodies)}
    frames = _frames(space, bodies)
    parts = _resolved(description, frames, numbers)
    chosen = functools.partial(
        coordinates.of, space, bodies, parts.joints, numbers=numbers, loops=tuple(description.loops)
    )
    form, q, rows, carrying = chosen(frames=frames)
    in_tree = {joint.name for joint in carrying}
    joint_groups, carrying_groups, force_groups, drive_groups = (
        _groups(item.placed(frames, numbers) for item in items)
        for items in (rows, carrying, parts.forces, parts.drives)
    )
    joint_groups = {
        key: dataclasses.replace(group, **dict.fromkeys(group.tree_fields))
        for key, group in joint_groups.items()
    }
    if moved and coordinates.massless and not (rows or parts.relations or parts.tendon_relations):

        def located() -> tuple[Any, Any, Any, Any]:
            numbers_of_bodies = _masses(bodies), _stacked_moments(bodies)
            if concrete(q) is not None:
                return form.of_joints(carrying_groups), q, *numbers_of_bodies
            start = _frames(space, bodies)
            tree = form.of_joints(_groups(joint.placed(start, numbers) for joint in carrying))
            return tree, chosen(frames=start)[1], *numbers_of_bodies

        check_resistance(caller, bodies, carrying, located)

    def own(name: str, number: int) -> tuple[int, int] | None:
        return form.own(name, number) if name in in_tree else None

    sides = Sides(parts.by_name, own, frames, numbers)
    over_joints = sides.tendons(parts.tendons)
    relations = groups_of(parts.relations, parts.by_name, own, frames, numbers)
    relations |= sides.relations(parts.tendon_relations)
    read = [
        k for group in (*force_groups.values(), *([over_joints] if over_joints else [])) for k in group.inputs
    ]
    joint_limits, joint_friction = limits_of(parts.joints, own, frames, numbers)
    made = Mechanism(
        body_names=tuple(body.name for body in bodies),
        rotors=tuple(k for k, body in enumerate(bodies) if body.turns_only),
        n_inputs=max(read, default=-1) + 1,
        space=space,
        form=form,
        mass=_masses(bodies),
        inertia=_stacked_moments(bodies),
        gravity=vector(gravity),
        joints=joint_groups,
        carrying=carrying_groups,
        relations=dict(sorted(relations.items())),  # in the key order of JAX
        forces=force_groups,
        tendons=over_joints,
        joint_limits=joint_limits,
        joint_friction=joint_friction,
        contacts=_contacts(description.contacts, frames, numbers),
        turns=_turns(parts.forces, force_groups, own),
        redundant=_is_overconstrained(description, parts)
        or _have_dependent_rows(space, bodies, parts.joints, frames, numbers),
    )
    return _with_copies(made, description), q, drive_groups


def _checked(caller: str, description: Description, coordinates: Any) -> Any:
    """Check the elements of a description, and return its gravity."""
    if not offers(coordinates, "of"):
        raise TypeError(f"{caller}: coordinates must be Absolute() or Joints(), got {brief(coordinates)}")
    space, drives = description.space, description.drives
    gravity = (*(0.0,) * (space.dimension - 1), -9.81) if description.gravity is None else description.gravity
    joint_types, force_types = TYPES[space.name]
    elements = {
        "joint": Elements(description.joints, joint_types),
        "force": Elements(description.forces, force_types),
        "drive": Elements(list(drives) if isinstance(drives, Sequence) else drives, DRIVES[space.name]),
        "contact": Elements(description.contacts, (Pair,)),
    }
    check_description(
        caller,
        space,
        description.bodies,
        elements,
        gravity,
        coordinates=coordinates,
        loops=description.loops,
    )
    return gravity


class _Parts(NamedTuple):
    """The elements of a description by the place that they have in a mechanism.

    Attributes:
        joints: joints between bodies, with the joints that they refer to resolved.
        relations: relations between two joint coordinates.
        tendon_relations: relations between sums of joint coordinates.
        forces: forces other than tendons.
        tendons: tendons.
        drives: drives that do not slip.
        by_name: all joints by name.
    """

    joints: list[Any]
    relations: list[Relation]
    tendon_relations: list[TendonRelation]
    forces: list[Any]
    tendons: list[Tendon]
    drives: list[Any]
    by_name: dict[str, Any]


def _resolved(description: Description, frames: Mapping[str, Any], numbers: Mapping[str, int]) -> _Parts:
    """Return the elements of a description with the joints that they refer to."""
    forces = description.forces
    joints = [
        functools.reduce(lambda driven, force: force.adds_to(driven), forces, joint)
        for joint in description.joints
    ]
    by_name = {joint.name: joint for joint in joints}
    between = [
        joint.resolved(by_name) for joint in joints if not isinstance(joint, Relation | TendonRelation)
    ]
    return _Parts(
        joints=with_rest(between, frames, numbers),
        relations=[joint for joint in joints if isinstance(joint, Relation)],
        tendon_relations=[joint for joint in joints if isinstance(joint, TendonRelation)],
        forces=[force.resolved(by_name) for force in forces if not isinstance(force, Tendon)],
        tendons=[force for force in forces if isinstance(force, Tendon)],
        drives=[drive.resolved(by_name) for drive in description.drives if not drive.slips],
        by_name=by_name,
    )


def _is_overconstrained(description: Description, parts: _Parts) -> bool:
    """Return whether a count of rows and freedoms calls the loops overconstrained."""
    freedoms = {body.name: _freedoms(body, description.space) for body in description.bodies}
    related = [
        *((one.joint, one.other) for one in parts.relations),
        *((*one.joints, *one.others) for one in parts.tendon_relations),
        *((one.joint,) for one in description.joints if isinstance(one, PrescribedMotion | SpatialMotion)),
    ]
    return overconstrained(parts.joints, freedoms | {GROUND: 0}, related)


def _with_copies(made: Mechanism, description: Description) -> Mechanism:
    """Return a mechanism that knows which leaves are copies of one number of its description."""
    measured = {item.name: _measured_joint(item) for item in (*description.joints, *description.forces)}
    places = ("joints", "carrying", "forces", "tendons", "relations", "joint_limits", "joint_friction")
    copies = copies_of(made, {place: getattr(made, place) for place in places}, measured)
    motors = [force for force in description.forces if isinstance(force, GearedMotor)]
    with_rotors = tuple((motor.name, motor.joint) for motor in motors if is_there(motor.rotor_inertia))
    return dataclasses.replace(made, copies=copies, with_rotors=with_rotors)


def _contacts(
    pairs: Sequence[Pair], frames: Mapping[str, Any], numbers: Mapping[str, int]
) -> ContactPairs | None:
    """Return the described pairs of shapes as groups, or None without pairs."""
    return ContactPairs(_groups(pair.placed(frames, numbers) for pair in pairs)) if pairs else None


def _have_dependent_rows(
    space: Plane | Space, bodies: Sequence[Any], joints: Sequence[Any], frames: Any, numbers: Any
) -> bool:
    """Return whether rows of loops are dependent at the start pose; False if numbers are traced."""
    loops = [
        [PlacedJoint(joint.a, joint.b, joint.placed(frames, numbers)) for joint in each]
        for each in loops_that_share_joints(joints)
    ]
    still = [0.0] * 3 if space.dimension == 2 else [0.0] * 3 + [1.0] + [0.0] * 3
    poses = {
        body.name: jnp.append(jnp.zeros(2), body.angle) if body.turns_only else body.coordinates()
        for body in bodies
    }
    return bool(loops) and have_dependent_rows(space, loops, poses | {GROUND: jnp.asarray(still)})


def _measured_joint(item: Any) -> str:
    """Return the name of the joint along which a described element acts or measures, or empty text."""
    named = getattr(item, "joint", getattr(item, "wheel", None))
    return named if isinstance(named, str) else ""


def _freedoms(body: Any, space: Plane | Space) -> int:
    """Return the number of degrees of freedom of a body without joints."""
    return 1 if body.turns_only else 3 if space.dimension == 2 else 6


def _turns(
    forces: Sequence[Any], groups: Mapping[str, Any], own: Callable[[str, int], Any]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the force groups that measure entries of q, with the index in q per element, or -1."""
    places = {force.name: own(*force.measured_joint) for force in forces if force.measured_joint}
    each = (
        (key, tuple(place[0] if (place := places.get(name)) else -1 for name in group.names))
        for key, group in groups.items()
    )
    return tuple((key, places) for key, places in each if any(place >= 0 for place in places))


def _masses(bodies: Sequence[Body | Rotor | SpatialBody]) -> Any:
    """Return the masses of all bodies (n,)."""
    return jnp.stack([real(body.mass) for body in bodies])


def _stacked_moments(bodies: Sequence[Body | Rotor | SpatialBody]) -> Any:
    """Return the inertia of all bodies: principal moments if all bodies have them, else matrices."""
    moments = [body.moments() for body in bodies]
    if len({m.ndim for m in moments}) > 1:
        moments = [jnp.diag(m) if m.ndim == 1 else m for m in moments]
    return jnp.stack(moments)


def _groups(elements: Iterable[Any]) -> dict[str, Any]:
    """Return the elements stacked by key.

    Elements that do not stack, such as motions of different form, become separate numbered groups.
    """
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
    # Sorted, because JAX sorts the keys of a dictionary whenever it rebuilds one, and the row order follows
    # the group order.
    return {key: _stack(groups[key]) for key in sorted(groups)}


def _stack(elements: list[Element]) -> Any:
    """Return one group of single elements: leaves stacked, names and indices joined, zeros omitted."""
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(_plain(element) for element in elements))
    joined = {name: sum((getattr(e, name) for e in elements), ()) for name in _static(elements[0])}
    kinds = elements[0].kinds()
    absent = [
        name
        for name, kind in kinds.items()
        if kind.sparse and not any(is_there(getattr(e, name)) for e in elements)
    ]
    absent += [name for name, kind in kinds.items() if kind.needs in absent]
    absent += elements[0].without_effect
    if isinstance(elements[0], Driven) and all(k is None or k < 0 for k in joined["input"]):
        absent += elements[0].of_input
    return dataclasses.replace(stacked, **joined, **dict.fromkeys(absent))


def _plain(element: Any) -> Any:
    """Return an element without its static fields."""
    return dataclasses.replace(element, **dict.fromkeys(_static(element), ()))


def _static(element: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(element) if field.metadata.get("static")]

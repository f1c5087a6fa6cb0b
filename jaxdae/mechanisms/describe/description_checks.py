"""Checks of a mechanism description that report all mistakes together."""

from __future__ import annotations

import collections
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.suggestions import brief, join_first
from jaxdae.linalg.small_matrix import rounding
from jaxdae.mechanisms.describe.bodies import Body, DescriptionWarning, Rotor, SpatialBody
from jaxdae.mechanisms.describe.elements import Joint, known_names
from jaxdae.mechanisms.describe.kinds import GROUND, Known
from jaxdae.mechanisms.describe.numbers import are_names, concrete, has_length, hint, is_vector, shown
from jaxdae.mechanisms.describe.plane_and_space import Plane, Space

BODIES: dict[str, tuple[Any, ...]] = {"plane": (Body, Rotor), "space": (SpatialBody,)}
_WHERE = {"plane": "the plane", "space": "space"}

_SHOWN = 20

_SMALLEST_PIVOT = 1e-13
"""The smallest pivot of a mass matrix with unit diagonal in double precision; below it, M is singular."""

Mistake = tuple[str, str, str]
"""The kind of element, its name, and the message."""


class DescriptionError(ValueError):
    """Mistakes in a description.

    Attributes:
        caller: name of the calling function.
        mistakes: for each mistake the kind of element ("body", "joint", "force", or empty), its name, and the
            message.
    """

    def __init__(self, caller: str, mistakes: Sequence[Mistake]) -> None:
        """Store the mistakes."""
        self.caller, self.mistakes = caller, tuple(mistakes)
        super().__init__(f"{caller}: " + _first([text for _, _, text in self.mistakes]))

    def __reduce__(self) -> Any:
        """Return the constructor arguments, so that the error can be pickled."""
        return type(self), (self.caller, self.mistakes)


class WrongKindError(DescriptionError, TypeError):
    """Mistakes in a description that include elements of the wrong type."""


class Elements(NamedTuple):
    """One list of a description, with its permitted element types."""

    given: Sequence[Any]
    types: tuple[Any, ...]

    @property
    def right(self) -> list[Any]:
        """The elements that have a permitted type and a name."""
        return [item for item in _listed(self.given) if isinstance(item, self.types) and _is_name(item.name)]

    @property
    def strays(self) -> list[str]:
        """The names of elements of other types, if they have names."""
        return [
            item.name
            for item in _listed(self.given)
            if not isinstance(item, self.types) and _is_name(getattr(item, "name", None))
        ]

    @property
    def known(self) -> bool:
        """Whether all names are known."""
        listed = isinstance(self.given, Sequence) and not isinstance(self.given, str)
        return listed and len(self.right) + len(self.strays) == len(self.given)


def check_description(
    caller: str,
    space: Plane | Space,
    bodies: Sequence[Any],
    elements: Mapping[str, Elements],
    gravity: Any,
    *,
    coordinates: Any,
    loops: Any = (),
) -> None:
    """Raise an error that lists all mistakes of a description.

    Args:
        caller: name of the calling function, for messages.
        space: the space of the mechanism.
        bodies: the given bodies.
        elements: the given joints, forces and drives, by "joint", "force" and "drive".
        gravity: in m/s^2.
        coordinates: the choice of coordinates.
        loops: the given names of joints that close loops.

    Raises:
        WrongKindError: a TypeError and a ValueError: for list elements of the wrong type, reported with all
            other mistakes.
        DescriptionError: a ValueError: for invalid names, positions, axes, values, or trees.

    Warns:
        DescriptionWarning: for values that no physical body has, and for angles in degrees.
    """
    lists = {"body": Elements(bodies, BODIES[space.name]), **elements}
    kinds = [
        mistake for what, some in lists.items() for mistake in _kind_mistakes(what, some.given, some.types)
    ]
    kinds += coordinates.wrong_kinds()
    if not are_names(loops):
        kinds.append(f'Description.loops must be names of joints, such as ("crank_pin",), got {shown(loops)}')
    right = {what: some.right for what, some in lists.items()}
    wrong = [
        ("body", body.name, f"body {brief(body.name)}: {mistake}")
        for body in right["body"]
        for mistake in body.mistakes(coordinates.massless)
    ]
    mistakes = [
        *(("", "", kind) for kind in kinds),
        *((what, n, m) for what, some in right.items() for n, m in _name_mistakes(what, some)),
    ]
    if lists["body"].known and not bodies:
        mistakes.append(("", "", "a mechanism needs at least one body"))
    mistakes += wrong
    if lists["body"].known and lists["joint"].known:
        mistakes += _of_elements(space, lists, {name for _, name, _ in wrong}, coordinates, loops)
    if not is_vector(gravity, space.dimension):
        count = "two finite numbers (x, y)" if space.dimension == 2 else "three finite numbers (x, y, z)"
        mistakes.append(("", "", f"gravity must be {count} in m/s^2, got {shown(gravity)}"))
    if mistakes:
        raise (WrongKindError if kinds else DescriptionError)(caller, mistakes)
    joints = {joint.name: joint for joint in right.get("joint", ())}
    doubts = [f"body {brief(body.name)}: {doubt}" for body in right["body"] for doubt in body.doubts()]
    doubts += [
        f"{what} {brief(one.name)}: {doubt}"
        for what in ("joint", "force", "contact")
        for one in right.get(what, ())
        for doubt in one.resolved(joints).doubts(joints)
    ]
    if doubts:
        # The stack level points to the line that builds the mechanism.
        warnings.warn(f"{caller}: " + _first(doubts), DescriptionWarning, stacklevel=4)


def check_resistance(
    caller: str, bodies: Sequence[Any], carrying: Sequence[Any], made: Callable[[], tuple[Any, Any, Any, Any]]
) -> None:
    """Raise an error if joints of a tree without rows move no inertia, so that the mass matrix is singular.

    With rows, a singular mass matrix is allowed: the rows determine the motion of massless bodies.

    Args:
        caller: name of the calling function, for messages.
        bodies: valid bodies.
        carrying: the joints of the tree.
        made: () -> the coordinates of the tree, q at the start, and masses and inertias of all bodies.

    Raises:
        DescriptionError: for joints that move no inertia in any configuration.

    Warns:
        DescriptionWarning: for joints that move no inertia at the start.
    """
    if not any(map(_lacks_inertia, bodies)):
        return  # M is positive definite.
    # Known numbers stay concrete inside a function that is being compiled.
    with jax.ensure_compile_time_eval():
        form, q, mass, inertia = made()
        # The second configuration has offsets without simple ratios.
        elsewhere = form.retract(q, jnp.sin(1.0 + 2.3 * jnp.arange(len(form.velocity_names), dtype=q.dtype)))
        matrices = [
            form.mass_operator(at, form.at_rest(at), mass, inertia).as_dense() for at in (q, elsewhere)
        ]
    if concrete(matrices) is None:
        return
    shape = form.structure
    names = [shape.joint_names[shape.joints[link]] for link in shape.column_links]
    found, again = ({names[k] for k in velocities_without_inertia(np.asarray(matrix))} for matrix in matrices)
    always, at_start = (
        [name for name in dict.fromkeys(names) if name in some] for some in (found & again, found - again)
    )
    joints = {joint.name for joint in carrying}
    if always:
        raise DescriptionError(caller, [_unresisted(name, name in joints) for name in always])
    if at_start:
        listed = join_first(map(brief, at_start))
        text = (
            f"{caller}: the mass matrix is singular at the start because the joints {listed} move no "
            "inertia there; start from another configuration"
        )
        warnings.warn(text, DescriptionWarning, stacklevel=4)


def velocities_without_inertia(matrix: np.ndarray) -> list[int]:
    """Return the velocities whose pivot in the mass matrix of a tree is not positive.

    The elimination starts at the leaves, which are the last velocities. The pivot of a velocity is the
    inertia that it moves while all velocities beyond it are free: D_j = S_j . I^A S_j + armature_j, with the
    articulated inertia I^A. It counts as zero if it does not exceed the rounding error of M_jj.

    Args:
        matrix: the mass matrix (nv, nv), with parents before children.
    """
    limit = max(_SMALLEST_PIVOT, rounding(len(matrix), matrix.dtype))
    diagonal, rest = np.diag(matrix), np.array(matrix)
    failed = []
    for k in reversed(range(len(rest))):
        if rest[k, k] > limit * abs(diagonal[k]):
            rest[:k, :k] -= np.outer(rest[:k, k], rest[:k, k]) / rest[k, k]
        else:
            failed.append(k)
    return failed[::-1]


def _lacks_inertia(body: Any) -> bool:
    """Return whether the mass or a moment of inertia of a body is known to be zero."""
    mass, inertia = concrete(body.mass), concrete(body.inertia)
    massless = not body.turns_only and mass is not None and bool(mass == 0.0)
    if inertia is None:
        return massless
    return massless or bool((np.linalg.eigvalsh(inertia)[0] if inertia.ndim == 2 else np.min(inertia)) <= 0.0)


def _unresisted(name: str, is_joint: bool) -> Mistake:
    if is_joint:
        remedy = (
            "the mass matrix is singular; give the bodies that it moves mass and inertia, or give the "
            "joint an armature"
        )
        return (
            "joint",
            name,
            f"joint {brief(name)}: it moves no inertia while the joints beyond it are free:\x20{remedy}",
        )
    return (
        "body",
        name,
        f"body {brief(name)} moves freely but lacks mass or inertia, so the mass matrix is singular; give "
        "it both",
    )


def _of_elements(
    space: Plane | Space,
    lists: Mapping[str, Elements],
    unsound_bodies: Collection[str],
    coordinates: Any,
    loops: Any,
) -> list[Mistake]:
    """Return the mistakes of joints, forces and drives, and of the tree that the joints form."""
    bodies, joints = lists["body"].right, lists["joint"].right
    names = known_names(bodies, joints, lists["joint"].types)
    # Elements of the wrong type are already reported; references to them are valid.
    strays = lists["joint"].strays
    names = names._replace(bodies=[*names.bodies, *lists["body"].strays], movable=[*names.movable, *strays])
    # Known numbers stay concrete inside a function that is being compiled.
    with jax.ensure_compile_time_eval():
        frames = {body.name: body.frame() for body in bodies if body.name not in unsound_bodies} | {
            GROUND: space.frame(*space.frame.GROUND)
        }
    found: list[Mistake] = [
        (what, item.name, f"{what} {brief(item.name)}{mistake}")
        for what, some in lists.items()
        if what != "body"
        for item in some.right
        for mistake in _element_mistakes(space, item, names, frames)
    ]
    every = [*names.coordinates, *strays]
    if are_names(loops):
        found += [
            ("", "", f"Description.loops: {brief(name)} is not a joint{hint(name, every)}")
            for name in loops
            if name not in every
        ]
    # A repeated name is ambiguous.
    wrong = {name for what, name, _ in found if what == "joint"} | _twice(
        [*(joint.name for joint in joints), *strays]
    )
    doubles = _twice(names.bodies)
    unsound = [
        joint for joint in joints if joint.name in wrong or doubles & set(filter(_is_name, _ends(joint)))
    ]
    unsound += [
        joint for joint in _listed(lists["joint"].given) if isinstance(joint, Joint) and joint.name in strays
    ]
    sound = [joint for joint in joints if joint not in unsound]
    return [
        *found,
        *coordinates.mistakes(
            list(dict.fromkeys(names.bodies)), sound, unsound, loops if are_names(loops) else ()
        ),
    ]


def _first(texts: Sequence[str]) -> str:
    """Return the first texts of a list, and the number of the remaining texts."""
    more = [f"... ({len(texts) - _SHOWN} more)"] if len(texts) > _SHOWN else []
    return "; ".join([*texts[:_SHOWN], *more])


def _twice(names: Sequence[str]) -> set[str]:
    """Return the names that occur more than once."""
    return {name for name, count in collections.Counter(names).items() if count > 1}


def _ends(item: Any) -> list[Any]:
    """Return the given names of the bodies that a joint or a force connects."""
    return [getattr(item, end) for end in ("a", "b") if end in item.kinds()]


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and bool(name)


def _listed(given: Any) -> Sequence[Any]:
    """Return a list, or an empty list if something else was given."""
    return given if isinstance(given, Sequence) and not isinstance(given, str) else ()


def _kind_mistakes(what: str, items: Any, kinds: tuple[Any, ...]) -> Iterable[str]:
    plural = "bodies" if what == "body" else f"{what}s"
    if not isinstance(items, Sequence) or isinstance(items, str):
        yield f"{plural} must be a list, got {type(items).__name__}"
        return
    for k, item in enumerate(items):
        if not isinstance(item, kinds):
            yield f"{plural}[{k}] is {_thing(item, kinds)}"
        elif not (isinstance(item.name, str) and item.name):
            yield f"{plural}[{k}]: name must be text, got {shown(item.name)}"


def _thing(item: Any, kinds: tuple[Any, ...]) -> str:
    """Return a message that describes an element of the wrong type and the expected types."""
    if item in kinds:
        return f"the class {item.__name__}; call it: {item.__name__}(...)"
    kind = type(item)
    expected = ", ".join(own.__name__ for own in kinds)
    home = next(
        (name for name, own in BODIES.items() if kind in own),
        getattr(getattr(item, "space", None), "name", ""),
    )
    here = next(
        (name for name, own in BODIES.items() if kinds[0] in own),
        getattr(getattr(kinds[0], "space", None), "name", ""),
    )
    if not home or home == here:
        return f"a {kind.__name__}; expected {expected}"
    constant = "PLANE" if home == "plane" else "SPACE"
    return (
        f"a {kind.__name__} of {_WHERE[home]}; expected {expected} of {_WHERE[here]}, or a Description "
        f"with space={constant}"
    )


def _name_mistakes(what: str, items: Sequence[Any]) -> Iterable[tuple[str, str]]:
    seen: set[str] = set()
    for item in items:
        if item.name in seen:
            yield item.name, f"{what} name {brief(item.name)} is used twice; names must be unique"
        if item.name == GROUND:
            yield item.name, f"a {what} cannot be named {GROUND!r}, the name of the fixed world"
        seen.add(item.name)


def _element_mistakes(
    space: Plane | Space, item: Any, names: Known, frames: Mapping[str, Any]
) -> Iterable[str]:
    """Yield the mistakes of a joint or a force; each message follows the name of the element."""
    kinds = item.kinds(space)
    ends = _ends(item)
    if len(ends) == 2 and all(map(_is_name, ends)) and ends[0] == ends[1]:
        yield (
            f" connects {brief(ends[0])} with itself; a and b must be two different bodies, or a body and "
            "the ground"
        )
    pairs = item.places()
    given = {name for pair in pairs for name in pair if getattr(item, name) is not None}
    missing = [f"{x} or {y}" for x, y in pairs if not {x, y} & given]
    double = [f"{x} and {y}" for x, y in pairs if {x, y} <= given]
    if missing:
        yield f" needs a position: give {' and '.join(missing)}"
    if double:
        yield f" has both {' and both '.join(double)}; give only one of them"
    for name, kind in kinds.items():
        for mistake in kind.mistakes(getattr(item, name), names):
            yield f": {name} {mistake}"
    for name, partner in item.idle(space):
        yield (
            f": {name} without {partner} has no effect, got {name} = {shown(getattr(item, name))}; remove "
            f"{name} or give {partner}"
        )
    for body in dict.fromkeys(filter(_is_name, (getattr(item, kinds[point].body) for _, point in pairs))):
        if body in names.rotors:
            yield (
                f": {brief(body)} is a rotor, which has an angle but no position; name the body that "
                "carries it"
            )
    places = {point: _start_place(item, at, point, kinds[point], frames) for at, point in pairs}
    directions = {
        name: _start_direction(item, name, kind, frames) for name, kind in kinds.items() if kind.is_direction
    }
    for mistake in (*item.mistakes(places | directions), *item.unknown(names)):
        yield f": {mistake}"


def _frame_of(item: Any, kind: Any, frames: Mapping[str, Any]) -> Any:
    """Return the frame of the body in which a field is given, or None if it is unknown."""
    name = getattr(item, kind.body)
    return frames.get(name) if _is_name(name) else None


def _start_place(item: Any, at: str, point: str, kind: Any, frames: Mapping[str, Any]) -> Any:
    """Return a world position at the start pose, or None if it is traced or invalid."""
    frame, in_world = _frame_of(item, kind, frames), getattr(item, at) is not None
    place = concrete(getattr(item, at if in_world else point))
    if frame is None or concrete(list(frame)) is None or place is None or place.shape != (kind.dimension,):
        return None
    with jax.ensure_compile_time_eval():
        return place if in_world else concrete(frame.point(place).array())


def _start_direction(item: Any, name: str, kind: Any, frames: Mapping[str, Any]) -> Any:
    """Return a world unit vector at the start pose, or None if it is missing, traced or invalid."""
    frame, given = _frame_of(item, kind, frames), getattr(item, name)
    axis = None if given is None else concrete(given)
    if (
        frame is None
        or concrete(list(frame)) is None
        or axis is None
        or axis.shape != (kind.dimension,)
        or not has_length(axis)
    ):
        return None
    axis = axis / np.linalg.norm(axis)
    in_world = kind.world is not None and getattr(item, kind.world) is not None
    with jax.ensure_compile_time_eval():
        return axis if in_world else concrete(frame.direction(axis).array())

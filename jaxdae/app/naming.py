"""The names of coordinates and velocities of a config's mechanism, from its values alone, before anything is built.

A velocity that is the rate of a coordinate goes by the name of the coordinate, too: `crank.theta`, `elbow.angle`, `base.x`. Rotations in
space have velocities `base.omega_x`, ..., about the axes of the body, and quaternions `base.qw`, ..., of which none is the rate.
"""

from typing import Any, NamedTuple

import pydantic

from jaxdae.app.schema_mechanism import SECTIONS, space_of
from jaxdae.app.source import value_at
from jaxdae.mechanisms.coordinates.absolute import FORMS, absolute_form
from jaxdae.mechanisms.graph import Tree, spanning_tree
from jaxdae.mechanisms.kinds import GROUND
from jaxdae.mechanisms.space import PLANE, SPACE

SPACE_OF = {space.name: space for space in (PLANE, SPACE)}
_QUATERNION = 4  # entries, of which three rotations are the rates


class Entries(NamedTuple):
    """The names of q and of v with their units."""

    coordinates: tuple[tuple[str, str], ...]
    velocities: tuple[tuple[str, str], ...]

    @property
    def names(self) -> list[str]:
        """The names of q."""
        return [name for name, _ in self.coordinates]

    @property
    def flat(self) -> bool:
        """Whether each velocity is the rate of a coordinate."""
        return len(self.coordinates) == len(self.velocities)

    @property
    def rates(self) -> dict[str, int]:
        """The numbers of velocities by all names that they go by, those of coordinates first."""
        found, at, moving = {}, 0, 0
        while at < len(self.coordinates):
            name, unit = self.coordinates[at]
            if unit:
                found[name] = moving
            # What has no unit is the beginning of a quaternion.
            at, moving = (at + 1, moving + 1) if unit else (at + _QUATERNION, moving + _QUATERNION - 1)
        return found | {name: number for number, (name, _) in enumerate(self.velocities) if name not in found}

    @property
    def places(self) -> dict[str, int]:
        """The numbers of coordinates by name, without quaternions."""
        return {name: number for number, (name, unit) in enumerate(self.coordinates) if unit}

    def unit(self, name: str) -> str:
        """Returns the unit of a coordinate; empty where there is none of this name."""
        return dict(self.coordinates).get(name, "")

    def rate_unit(self, name: str) -> str:
        """Returns the unit of a velocity; empty where there is none of this name."""
        number = self.rates.get(name)
        return "" if number is None else self.velocities[number][1]


def of_system(system: Any) -> Entries:
    """Returns the names of a mechanism that was built."""
    found = mechanism_of(system).form
    coordinates, velocities = found.names, found.velocity_names
    return Entries(tuple(coordinates), tuple(velocities))


def is_absolute(system: Any) -> bool:
    """Returns whether q and v of a mechanism are the poses and twists of its bodies: not where there are rotors, which have no pose."""
    mechanism = mechanism_of(system)
    return isinstance(mechanism.form, tuple(FORMS.values())) and not mechanism.rotors


def mechanism_of(system: Any) -> Any:
    """Returns the bodies and joints of a mechanism of either order."""
    return system.mechanism if system.first_order else system


def of_values(data: Any) -> Entries | None:
    """Returns the names of a config's mechanism; None in joint coordinates where mistakes hide the tree.

    Args:
        data: the config as plain values, as written or validated.
    """
    mechanism = value_at(data, ("mechanism",))
    form = _form(mechanism)
    if value_at(mechanism, ("coordinates",)) != "joints":
        whole = form(tuple(dict.fromkeys(body_names(mechanism))))
        return Entries(whole.names, whole.velocity_names)
    try:
        found = tree(data)
    except ValueError:
        return None
    return None if found is None else _of_tree(found, form)


def tree(data: Any) -> Tree | None:
    """Returns the spanning tree of a config's mechanism, with `cut` in joint coordinates; None where mistakes hide it.

    Args:
        data: the config as plain values, as written or validated.

    Raises:
        ValueError: a `cut` that names no joint, or leaves a loop.
    """
    mechanism = value_at(data, ("mechanism",))
    bodies = body_names(mechanism)
    joints, known = [], {*bodies, GROUND}
    written = value_at(mechanism, ("joints",))
    for joint in written if isinstance(written, list) else ():
        described = _described(joint, space_of(mechanism))
        if described is None:
            return None
        ends = [getattr(described, end) for end in ("a", "b") if end in described.kinds()]
        if not set(ends) <= known or len(set(ends)) < len(ends):
            return None
        joints.append(described)
    names = [joint.name for joint in joints]
    if len(set(bodies)) < len(bodies) or len(set(names)) < len(names) or GROUND in bodies:
        return None
    cut = value_at(mechanism, ("cut",)) if value_at(mechanism, ("coordinates",)) == "joints" else ()
    return spanning_tree(bodies, joints, tuple(name for name in cut if isinstance(name, str)) if isinstance(cut, list) else ())


def body_names(mechanism: Any) -> list[str]:
    """Returns the names of bodies and below them of rotors."""
    return [*_names(mechanism, "bodies"), *_names(mechanism, "rotors")]


def _names(mechanism: Any, section: str) -> list[str]:
    elements = value_at(mechanism, (section,))
    named = (value_at(element, ("name",)) for element in (elements if isinstance(elements, list) else ()))
    return [name for name in named if isinstance(name, str)]


def _form(mechanism: Any) -> Any:
    """Returns what makes absolute coordinates of names."""
    space, rotors = SPACE_OF[space_of(mechanism)], set(_names(mechanism, "rotors"))
    return lambda names: absolute_form(space, names, tuple(k for k, name in enumerate(names) if name in rotors))


def _described(joint: Any, space: str) -> Any:
    """Returns a joint with its names and axes, None where it has mistakes."""
    section = SECTIONS[space].get(str(value_at(joint, ("type",))))
    if section is None:
        return None
    try:
        values = section.model_validate(joint).model_dump(exclude={"type", "motion"})
    except pydantic.ValidationError:
        return None
    return section.kind(**values | ({"motion": None} if "motion" in section.kind.kinds() else {}))


def _of_tree(found: Tree, form: Any) -> Entries:
    """Returns names in the order in which the links of a tree hang on each other."""
    coordinates, velocities = [], []
    for edge in found.edges:
        if edge.joint is None:
            free = form((edge.child,))
            coordinates += free.names
            velocities += free.velocity_names
            continue
        steps = edge.joint.steps()
        for step in reversed(steps) if edge.reversed else steps:
            coordinates += [(f"{edge.joint.name}.{name}", unit) for name, unit in step.names]
            velocities += [(f"{edge.joint.name}.{name}", unit) for name, unit in step.velocity_names]
    return Entries(tuple(coordinates), tuple(velocities))

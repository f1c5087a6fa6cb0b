"""The names of coordinates and velocities of a config's mechanism, from its values alone, before it is built.

The rate of a coordinate also has the name of the coordinate: `crank.theta`, `elbow.angle`, `base.x`. For
rotations in space, the velocities are `base.omega_x`, ..., about the body axes, and the coordinates are the
quaternion entries `base.qw`, .... No velocity is the rate of a quaternion entry.
"""

from typing import Any, NamedTuple

import pydantic

from jaxdae.app.config.config_source import value_at
from jaxdae.app.config.schema_mechanism import SECTIONS, space_of
from jaxdae.mechanisms.coordinates.absolute import FORMS, absolute_form
from jaxdae.mechanisms.describe.kinds import GROUND
from jaxdae.mechanisms.describe.plane_and_space import PLANE, SPACE
from jaxdae.mechanisms.describe.spanning_tree import Tree, spanning_tree

SPACE_OF = {space.name: space for space in (PLANE, SPACE)}
_QUATERNION = 4  # entries, whose rates are three angular velocities


class Entries(NamedTuple):
    """The names of q and v with their units."""

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
        """The indices of the velocities by each of their names, coordinate names first."""
        found, at, moving = {}, 0, 0
        while at < len(self.coordinates):
            name, unit = self.coordinates[at]
            if unit:
                found[name] = moving
            # An entry without a unit starts a quaternion.
            at, moving = (at + 1, moving + 1) if unit else (at + _QUATERNION, moving + _QUATERNION - 1)
        return found | {name: number for number, (name, _) in enumerate(self.velocities) if name not in found}

    @property
    def places(self) -> dict[str, int]:
        """The indices of the coordinates by name, without quaternions."""
        return {name: number for number, (name, unit) in enumerate(self.coordinates) if unit}

    def unit(self, name: str) -> str:
        """Return the unit of a coordinate, or an empty string for an unknown name."""
        return dict(self.coordinates).get(name, "")

    def rate_unit(self, name: str) -> str:
        """Return the unit of a velocity, or an empty string for an unknown name."""
        number = self.rates.get(name)
        return "" if number is None else self.velocities[number][1]


def of_system(system: Any) -> Entries:
    """Return the names of a built mechanism."""
    found = mechanism_of(system).form
    coordinates, velocities = found.names, found.velocity_names
    return Entries(tuple(coordinates), tuple(velocities))


def is_absolute(system: Any) -> bool:
    """Return whether q and v of a mechanism are the poses and twists of its bodies.

    This is false for a mechanism with rotors, because rotors have no pose.
    """
    mechanism = mechanism_of(system)
    return isinstance(mechanism.form, tuple(FORMS.values())) and not mechanism.rotors


def mechanism_of(system: Any) -> Any:
    """Return the mechanism of a first- or second-order system."""
    return system.mechanism if system.first_order else system


def of_values(data: Any) -> Entries | None:
    """Return the names of a config's mechanism, or None if errors in joint coordinates hide the tree.

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
    """Return the spanning tree of a config's mechanism, or None if errors hide it.

    In joint coordinates, the tree respects `cut`.

    Args:
        data: the config as plain values, as written or validated.

    Raises:
        ValueError: `cut` names an unknown joint or leaves a loop closed.
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
    return spanning_tree(
        bodies, joints, tuple(name for name in cut if isinstance(name, str)) if isinstance(cut, list) else ()
    )


def body_names(mechanism: Any) -> list[str]:
    """Return the names of the bodies, followed by the names of the rotors."""
    return [*_names(mechanism, "bodies"), *_names(mechanism, "rotors")]


def _names(mechanism: Any, section: str) -> list[str]:
    elements = value_at(mechanism, (section,))
    named = (value_at(element, ("name",)) for element in (elements if isinstance(elements, list) else ()))
    return [name for name in named if isinstance(name, str)]


def _form(mechanism: Any) -> Any:
    """Return a function from body names to absolute coordinates."""
    space, rotors = SPACE_OF[space_of(mechanism)], set(_names(mechanism, "rotors"))
    return lambda names: absolute_form(
        space, names, tuple(k for k, name in enumerate(names) if name in rotors)
    )


def _described(joint: Any, space: str) -> Any:
    """Return a joint with its names and axes, or None if it has errors."""
    section = SECTIONS[space].get(str(value_at(joint, ("type",))))
    if section is None:
        return None
    try:
        values = section.model_validate(joint).model_dump(exclude={"type", "motion"})
    except pydantic.ValidationError:
        return None
    return section.kind(**values | ({"motion": None} if "motion" in section.kind.kinds() else {}))


def _of_tree(found: Tree, form: Any) -> Entries:
    """Return the names in the order of the edges of a tree."""
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

"""Units of the numbers of a config, for plot axes."""

from typing import Any

from jaxdae.app.config.config_source import Location, value_at
from jaxdae.app.config.schema_mechanism import TYPES, space_of
from jaxdae.app.config.schema_terrain import UNITS as OF_TERRAIN
from jaxdae.app.model import coordinate_names

_OF_KEYS = {
    "mass": "kg",
    "inertia": "kg m^2",
    "gravity": "m/s^2",
    "frequency_hz": "Hz",
    "phase": "rad",
}
_OF_TYPES = {
    ("baumgarte", "alpha"): "1/s",
    ("baumgarte", "beta"): "1/s",
}


def unit_of(values: Any, location: Location) -> str:
    """Return the unit of a number of a config, or an empty string without a unit.

    Args:
        values: the config as plain values, defaults included.
        location: the location of the number.
    """
    if location[:2] == ("start", "velocities"):
        entries = coordinate_names.of_values(values)
        return "" if entries is None else entries.rate_unit(str(location[-1]))
    if location[:2] == ("start", "positions"):
        entries = coordinate_names.of_values(values)
        return "" if entries is None else entries.unit(str(location[-1]))
    keys = [part for part in location if isinstance(part, str)]
    key, index = keys[-1], location[-1]
    if key == "pose":
        return "rad" if index == 2 else "m"
    if "pose" in keys:
        return {"place": "m", "rpy": "rad"}.get(key, "")
    if "motion" in keys:
        return _of_motion(values, location, key)
    if "terrain" in keys:
        return OF_TERRAIN.get(key, "")
    section = value_at(values, location[: location.index(key)])
    kind = value_at(section, ("type",))
    if kind == "joint_force" and key == "force":
        return force_unit(values, section)
    types = TYPES[space_of(value_at(values, ("mechanism",)))]
    if kind in types:
        return types[kind].kinds()[key].unit
    return _OF_TYPES.get((str(kind), key), _OF_KEYS.get(key, ""))


def force_unit(values: Any, force: Any) -> str:
    """Return the unit of a torque or of a force along a joint, given as plain values of a config."""
    if value_at(force, ("type",)) in ("torque", "motor"):
        return "N m"
    return "N m" if _turns(values, force) else "N"


def _of_motion(values: Any, location: Location, key: str) -> str:
    """Return the unit of a number of a prescribed motion."""
    if key in _OF_KEYS:
        return _OF_KEYS[key]
    moved = value_at(values, location[: location.index("motion")])
    unit, power = "rad" if _turns(values, moved) else "m", location[-1]
    if key != "coefficients" or not isinstance(power, int) or power == 0:
        return unit
    return f"{unit}/s" if power == 1 else f"{unit}/s^{power}"


def _turns(values: Any, element: Any) -> bool:
    """Return whether the joint coordinate of a force or motor is an angle."""
    mechanism = value_at(values, ("mechanism",))
    named = value_at(element, ("joint",))
    found = [each for each in value_at(mechanism, ("joints",)) or () if value_at(each, ("name",)) == named]
    if not found:
        return False
    kind: Any = TYPES[space_of(mechanism)][str(value_at(found[0], ("type",)))]
    if not kind.coordinates:
        return kind.type_key() == "revolute"
    return kind.coordinates[value_at(element, ("along",)) or next(iter(kind.coordinates))] == "rad"

"""YAML nodes from plain values and from elements of mechanisms, to expand sections of a config."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
import yaml

from jaxdae import robots
from jaxdae.mechanisms.describe.function_kinds import Ground
from jaxdae.mechanisms.describe.kinds import BodyName, JointName, JointNames
from jaxdae.mechanisms.describe.place_kinds import JointAxes

_MAP, _SEQ, _STR = (f"tag:yaml.org,2002:{tag}" for tag in ("map", "seq", "str"))


@contextlib.contextmanager
def double() -> Iterator[None]:
    """Compute in double precision, regardless of the precision in the config."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def plain(given: yaml.Node) -> Any:
    """Return a node as plain values."""
    return yaml.safe_load(yaml.serialize(given))


def node(value: Any, at: str | yaml.Mark) -> yaml.Node:
    """Return plain values as YAML nodes that record their origin: a name, or a position in a file."""
    mark = yaml.Mark(at, 0, 0, 0, None, 0) if isinstance(at, str) else at
    if isinstance(value, dict):
        return yaml.MappingNode(
            _MAP, [(node(key, mark), node(each, mark)) for key, each in value.items()], mark
        )
    if isinstance(value, list):
        return yaml.SequenceNode(_SEQ, [node(each, mark) for each in value], mark)
    if isinstance(value, bool):
        return yaml.ScalarNode("tag:yaml.org,2002:bool", "true" if value else "false", mark)
    if isinstance(value, float):
        return yaml.ScalarNode("tag:yaml.org,2002:float", repr(value), mark)
    return yaml.ScalarNode(_STR, value, mark)


def added(section: yaml.MappingNode, key: str, entries: Any, *, first: bool = False) -> None:
    """Add entries to a list of a section; create the list if it is missing.

    A present value that is not a list stays unchanged, so that the checks report it.

    Args:
        section: changed in place.
        key: the key of the list.
        entries: a sequence.
        first: whether to insert the entries before the present ones.
    """
    present = next((value for name, value in section.value if name.value == key), None)
    if present is None:
        section.value.append((node(key, entries.start_mark), entries))
    elif isinstance(present, yaml.SequenceNode):
        present.value = [*entries.value, *present.value] if first else [*present.value, *entries.value]


def values(element: Any, names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a joint or force in the form of the config.

    Args:
        element: the element, with concrete numbers; its terrain is the terrain of the mechanism.
        names: the names of bodies, joints and forces in the config, if they differ.
    """
    names = names or {}
    found: dict[str, Any] = {"type": element.type_key(), "name": names.get(element.name, element.name)}
    for name, kind in element.kinds().items():
        value = getattr(element, name)
        if name == "name" or not kind.in_config or value is None or isinstance(kind, Ground):
            continue
        if isinstance(kind, BodyName | JointName):
            found[name] = names.get(value, value)
        elif isinstance(kind, JointNames):
            found[name] = [names.get(one, one) for one in value]
        elif isinstance(kind, JointAxes):
            found[name] = robots.matrix_quaternion(np.asarray(value, float)).tolist()
        elif name == "motion":
            found[name] = {
                "type": "polynomial",
                "coefficients": np.asarray(value.coefficients, float).tolist(),
            }
        elif isinstance(value, bool | str):
            found[name] = value
        else:
            found[name] = np.asarray(value, float).tolist()
    return found

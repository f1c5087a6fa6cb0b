"""YAML with the core schema of YAML 1.2: `1e-3` is a number, `yes` and `on` are text, `010` is ten.

PyYAML reads YAML 1.1; this loader replaces its plain scalars by those of YAML 1.2.
"""

import re
from typing import ClassVar

import yaml


class Loader(yaml.SafeLoader):
    """YAML 1.2 scalars on PyYAML's parser."""

    yaml_implicit_resolvers: ClassVar[dict] = {}


def _construct_integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(loader.construct_scalar(node))


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"^(~|null|Null|NULL|)$"), ["~", "n", "N", ""]
)
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)
Loader.add_constructor("tag:yaml.org,2002:int", _construct_integer)


# YAML nodes of a config: keys, element names and shorthands.


def key_text(node: yaml.Node) -> str:
    """Return the text of a key, or a question mark if the key is not a scalar."""
    return node.value if isinstance(node, yaml.ScalarNode) else "?"


def name_of(node: yaml.Node) -> str | None:
    """Return the name of a list element, or None if it has no name."""
    if isinstance(node, yaml.MappingNode):
        return next(
            (v.value for k, v in node.value if key_text(k) == "name" and isinstance(v, yaml.ScalarNode)), None
        )
    return None


def longest_key(node: yaml.MappingNode, parts: list[str]) -> tuple[int, int | None]:
    """Find the longest key that the path starts with; return its number of parts and its position.

    Return (1, None) if no key matches.
    """
    keys = [key_text(key) for key, _ in node.value]
    for used in range(len(parts), 0, -1):
        key = ".".join(parts[:used])
        if key in keys:
            return used, keys.index(key)
    return 1, None


def as_mapping(node: yaml.Node, label: str) -> yaml.Node:
    """Expand a shorthand node such as `rk4` to `{type: rk4}`, and a null node to an empty mapping."""
    if not isinstance(node, yaml.ScalarNode):
        return node
    mark = yaml.Mark(label, 0, 0, 0, None, 0)
    if node.tag == "tag:yaml.org,2002:null":
        return yaml.MappingNode("tag:yaml.org,2002:map", [], mark)
    if node.tag == "tag:yaml.org,2002:str":
        return yaml.MappingNode(
            "tag:yaml.org,2002:map", [(yaml.ScalarNode(node.tag, "type", mark), node)], node.start_mark
        )
    return node

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


Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(~|null|Null|NULL|)$"), ["~", "n", "N", ""])
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"),
    list("-+0123456789."),
)
Loader.add_constructor("tag:yaml.org,2002:int", _construct_integer)

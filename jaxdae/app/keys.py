"""Nodes of YAML as a config is read: keys, names of elements, and shorthands."""

import yaml


def key_text(node: yaml.Node) -> str:
    """Returns the text of a key; a question mark where it is none."""
    return node.value if isinstance(node, yaml.ScalarNode) else "?"


def name_of(node: yaml.Node) -> str | None:
    """Returns the name of an element of a list; None where it has none."""
    if isinstance(node, yaml.MappingNode):
        return next((v.value for k, v in node.value if key_text(k) == "name" and isinstance(v, yaml.ScalarNode)), None)
    return None


def longest_key(node: yaml.MappingNode, parts: list[str]) -> tuple[int, int | None]:
    """Returns how many parts the longest key has that a path begins with, and its position; None where there is none."""
    keys = [key_text(key) for key, _ in node.value]
    for used in range(len(parts), 0, -1):
        key = ".".join(parts[:used])
        if key in keys:
            return used, keys.index(key)
    return 1, None


def as_mapping(node: yaml.Node, label: str) -> yaml.Node:
    """Returns the node with a shorthand such as `rk4` written out as `{type: rk4}`, and nothing as an empty mapping."""
    if not isinstance(node, yaml.ScalarNode):
        return node
    mark = yaml.Mark(label, 0, 0, 0, None, 0)
    if node.tag == "tag:yaml.org,2002:null":
        return yaml.MappingNode("tag:yaml.org,2002:map", [], mark)
    if node.tag == "tag:yaml.org,2002:str":
        return yaml.MappingNode("tag:yaml.org,2002:map", [(yaml.ScalarNode(node.tag, "type", mark), node)], node.start_mark)
    return node

"""YAML nodes of a config: keys, element names and shorthands."""

import yaml


def key_text(node: yaml.Node) -> str:
    """Return the text of a key, or a question mark if the key is not a scalar."""
    return node.value if isinstance(node, yaml.ScalarNode) else "?"


def name_of(node: yaml.Node) -> str | None:
    """Return the name of a list element, or None if it has no name."""
    if isinstance(node, yaml.MappingNode):
        return next((v.value for k, v in node.value if key_text(k) == "name" and isinstance(v, yaml.ScalarNode)), None)
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
        return yaml.MappingNode("tag:yaml.org,2002:map", [(yaml.ScalarNode(node.tag, "type", mark), node)], node.start_mark)
    return node

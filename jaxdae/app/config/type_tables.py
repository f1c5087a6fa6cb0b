"""Tables of the joint and force types for docs/configs_reference.md, from the fields of the types."""

from collections.abc import Iterable

from jaxdae.mechanisms.describe.elements import Element


def table(types: Iterable[type[Element]]) -> str:
    """Return the table of types in Markdown: names in configs, keys with units, and summaries."""
    rows = [
        f"| `{kind.type_key()}` | {', '.join(_keys(kind))} | {kind.summary().replace('|', chr(92) + '|')} |"
        for kind in types
    ]
    return "\n".join(["| type | keys | description |", "|---|---|---|", *rows]) + "\n"


def _keys(kind: type[Element]) -> list[str]:
    """Return the keys of a type except its name; alternative keys of one position form one entry."""
    in_bodies = {point: world for world, point in kind.places()}
    shared = len(in_bodies) > len(set(in_bodies.values()))
    keys: dict[str, None] = {}
    for name, field in kind.kinds().items():
        if name in in_bodies:
            keys["place" if shared else f"`{in_bodies[name]}` or `{name}`"] = None
        elif name not in in_bodies.values() and name != "name" and field.in_config:
            keys[f"`{name}` in {field.unit}" if field.unit else f"`{name}`"] = None
    return list(keys)

"""Tables of the types of joints and forces for configs/README.md, from the fields of the types."""

from collections.abc import Iterable

from jaxdae.mechanisms.describe import Element


def table(types: Iterable[type[Element]]) -> str:
    """Returns the table of types in Markdown: their names in configs, their keys with units, and what they are."""
    rows = [f"| `{kind.type_key()}` | {', '.join(_keys(kind))} | {kind.summary().replace('|', chr(92) + '|')} |" for kind in types]
    return "\n".join(["| type | keys | what it is |", "|---|---|---|", *rows]) + "\n"


def _keys(kind: type[Element]) -> list[str]:
    """Returns the keys of a type but its name, those of a place as one."""
    in_bodies = {point: world for world, point in kind.places()}
    shared = len(in_bodies) > len(set(in_bodies.values()))
    keys: dict[str, None] = {}
    for name, field in kind.kinds().items():
        if name in in_bodies:
            keys["place" if shared else f"`{in_bodies[name]}` or `{name}`"] = None
        elif name not in in_bodies.values() and name != "name" and field.in_config:
            keys[f"`{name}` in {field.unit}" if field.unit else f"`{name}`"] = None
    return list(keys)

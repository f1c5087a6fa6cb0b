"""Convert pydantic errors to problems with a location, an expectation and a remedy."""

import types
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, Union

import annotated_types
import pydantic
from pydantic.fields import FieldInfo

from jaxdae.app.config.config_source import Document, Location, value_at
from jaxdae.app.config.problems import Problem, did_you_mean, is_number, show
from jaxdae.app.config.schema_mechanism import PYTHON_TYPES, why_not_here

_TAG_KEYS = ("type", "space")


def explain(
    model: type[pydantic.BaseModel], error: pydantic.ValidationError, document: Document
) -> list[Problem]:
    """Return one problem for each error that a model found in the data of a document."""
    return [_problem(model, details, document) for details in error.errors()]


def field_at(
    model: type[pydantic.BaseModel], data: object, location: Location
) -> tuple[Any, tuple[Any, ...], str] | None:
    """Return annotation, constraints and description of a location; None if the schema has no such location.

    Args:
        model: the schema.
        data: values as in `Document.data`, which select the types of joints and forces.
        location: the location in the config.
    """
    found = _Walk(model)
    for part in location:
        found.choose_by(data)
        data = value_at(data, (part,))
        if not found.step(part, data):
            return None
    annotation, constraints = _narrowed(found.annotation, found.constraints, data)
    return annotation, constraints, found.description


def _narrowed(annotation: Any, constraints: tuple[Any, ...], data: object) -> tuple[Any, tuple[Any, ...]]:
    """Select the annotation and constraints of a number if the data is a number but could be a list."""
    several = _is_list(annotation) and is_number(data)
    inside = typing.get_args(annotation)[0] if typing.get_origin(annotation) is Annotated else annotation
    members = [arg for arg in typing.get_args(inside) if float in _alternatives(arg)] if several else []
    return (members[0], _metadata(members[0])) if members else (annotation, constraints)


def default_at(
    model: type[pydantic.BaseModel], path: tuple[str, ...], written: Callable[[tuple[str, ...]], Any]
) -> Any:
    """Return the default at a path of keys as plain values, or None if it has no default.

    The default of a section contains only the keys that the schema sets explicitly.

    Args:
        model: the schema.
        path: keys of sections, outermost first.
        written: function from a path of keys to the text written there, or None. It selects between sections.
    """
    value: Any = None
    for depth, key in enumerate(path):
        field = model.model_fields.get(key)
        if field is None:
            return None
        value = None if field.is_required() else field.get_default()
        inside = (
            [type(value)] if isinstance(value, pydantic.BaseModel) else list(_alternatives(field.annotation))
        )
        sections = [each for each in inside if _is_section(each)]
        if len(sections) > 1:
            word = _tag_key(sections[0])
            tag = written((*path[: depth + 1], word)) or sections[0].model_fields[word].get_default()
            sections = [each for each in sections if tag in _tags(each)]
        # A value that is not a section has no keys: the next iteration returns None.
        model = sections[0] if len(sections) == 1 else pydantic.BaseModel
    return value.model_dump(exclude_unset=True) if isinstance(value, pydantic.BaseModel) else value


def expectation(annotation: Any, constraints: tuple[Any, ...] = ()) -> str:
    """Describe an annotation and its constraints in words, such as `a number > 0`."""
    bounds = " and ".join(_bound(item) for item in constraints if _bound(item))
    types_ = list(_alternatives(annotation))
    words = []
    for alternative in types_:
        origin, arguments = typing.get_origin(alternative), typing.get_args(alternative)
        if origin is Literal:
            words.extend(str(argument) for argument in arguments)
        elif origin is tuple:
            words.append(
                "a list of numbers" if Ellipsis in arguments else f"a list of {len(arguments)} numbers"
            )
        elif origin in (list, dict):
            words.append({list: "a list", dict: "a mapping of names to numbers"}[origin])
        elif _is_section(alternative):
            words.append("a mapping")
        else:
            words.append(
                {float: "a finite number", int: "a whole number", str: "text", bool: "true or false"}.get(
                    alternative, "a value"
                )
            )
    text = " or ".join(dict.fromkeys(words))
    return f"{text} {bounds}" if bounds else text


class _Walk:
    """Cursor that follows a location through the annotations of a schema."""

    def __init__(self, model: type[pydantic.BaseModel]):
        self.annotation: Any = model
        self.constraints: tuple[Any, ...] = ()
        self.description = ""
        self.chosen: type[pydantic.BaseModel] | None = None

    @property
    def models(self) -> list[type[pydantic.BaseModel]]:
        alternatives = [self.chosen] if self.chosen else _alternatives(self.annotation)
        return [a for a in alternatives if _is_section(a)]

    def choose(self, tag: object) -> bool:
        """Select the member of a union by its tag; return False without a union or without this tag."""
        if len(self.models) < 2:
            return False
        self.chosen = next((m for m in self.models if tag in _tags(m)), None)
        return self.chosen is not None

    def choose_by(self, data: object) -> None:
        """Select the member of a union that matches the tag in the data."""
        if len(self.models) > 1 and isinstance(data, dict):
            key = _tag_key(self.models[0])
            self.choose(data.get(key, self.models[0].model_fields[key].get_default()))

    def step(self, part: str | int, data: object = None) -> bool:
        """Step to a part whose value is `data`, if known; return False if the schema has no such part."""
        for model in self.models:
            if part in model.model_fields:
                self._enter(model.model_fields[str(part)])
                return True
        for alternative in _alternatives(self.annotation):
            origin, arguments = typing.get_origin(alternative), typing.get_args(alternative)
            if origin in (list, tuple) and isinstance(part, int):
                element = (
                    arguments[0]
                    if origin is list or Ellipsis in arguments
                    else arguments[min(part, len(arguments) - 1)]
                )
                if isinstance(data, list | tuple) and not _is_list(element):
                    continue
                self.annotation, self.constraints, self.chosen = element, _metadata(element), None
                return True
            if origin is dict:
                self.annotation, self.constraints, self.chosen = arguments[1], _metadata(arguments[1]), None
                return True
        return False

    def _enter(self, field: FieldInfo) -> None:
        self.annotation, self.constraints, self.chosen = field.annotation, tuple(field.metadata), None
        self.description = field.description or ""


def _problem(model: type[pydantic.BaseModel], details: Any, document: Document) -> Problem:
    walk, location = _Walk(model), []
    for part in details["loc"]:
        if walk.choose(part):
            continue
        last = walk
        if not walk.step(part):
            location.append(part)
            break
        location.append(part)
    place, kind, value = tuple(location), details["type"], details["input"]
    if kind == "extra_forbidden":
        key = place[-1]
        known = sorted({name for candidate in last.models for name in candidate.model_fields})
        reasons = (reason for candidate in last.models if (reason := why_not_here(candidate, str(key))))
        remedy = next(reasons, "") or did_you_mean(key, known, "keys")
        return document.problem(place, "an unknown key", "a key of the config", remedy, key=True)
    if kind == "missing":
        described = _describe(walk)
        add = f"add {place[-1]}: {described}" if isinstance(place[-1], str) else f"give {described}"
        return document.problem(place, "nothing", expectation(walk.annotation, walk.constraints), add)
    if kind == "value_error":
        # The message of a section's validator is got|expected|remedy, plus an optional key for the location.
        got, expected, remedy, *key = (words := str(details["ctx"]["error"]).split("|")) + [""] * (
            3 - len(words)
        )
        return document.problem((*place, *key), got, expected, remedy)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return _unknown_type(walk, place, kind, value, document)
    if kind == "string_pattern_mismatch":
        word = "a word of letters, digits, _ and -, starting with a letter or _, at most 100 of them"
        return document.problem(place, show(value), word, _describe(walk))
    return document.problem(
        place, show(value), expectation(walk.annotation, walk.constraints), _remedy(walk, value)
    )


def _unknown_type(walk: _Walk, place: Location, kind: str, value: object, document: Document) -> Problem:
    known, key = [tag for model in walk.models for tag in _tags(model)], _tag_key(walk.models[0])
    if kind == "union_tag_not_found":
        return document.problem(place, f"no {key}", f"a {key}", f"add {key}: one of {', '.join(known)}")
    tag = value.get(key) if isinstance(value, dict) else value
    place = (
        (*place, key)
        if isinstance(value, dict) and isinstance(value_at(document.data, place), dict)
        else place
    )
    from_python = (
        ("this type needs a function: build the mechanism in Python") if str(tag) in PYTHON_TYPES else ""
    )
    return document.problem(
        place,
        f"the unknown {key} {tag!r}",
        f"one of {', '.join(known)}",
        from_python or did_you_mean(tag, known),
    )


def _remedy(walk: _Walk, value: object) -> str:
    alternatives = list(_alternatives(walk.annotation))
    literals = [
        str(a)
        for alternative in alternatives
        for a in typing.get_args(alternative)
        if typing.get_origin(alternative) is Literal
    ]
    if literals:
        return did_you_mean(value, literals)
    if isinstance(value, str) and (float in alternatives or int in alternatives):
        try:
            float(value)
        except ValueError:
            return f"give {_describe(walk)}"
        return "remove the quotes"
    return f"give {_describe(walk)}"


def _describe(walk: _Walk) -> str:
    return walk.description or expectation(walk.annotation, walk.constraints)


def _alternatives(annotation: Any) -> Iterator[Any]:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(typing.get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for argument in typing.get_args(annotation):
            if argument is not type(None):
                yield from _alternatives(argument)
    else:
        yield annotation


def _tag_key(section: type[pydantic.BaseModel]) -> str:
    """Return the key that selects between the sections of a union."""
    return next(key for key in _TAG_KEYS if key in section.model_fields)


def _tags(section: type[pydantic.BaseModel]) -> tuple[Any, ...]:
    """Return the values of the tag key that select this section."""
    return typing.get_args(section.model_fields[_tag_key(section)].annotation)


def _is_list(annotation: Any) -> bool:
    return any(typing.get_origin(alternative) in (list, tuple) for alternative in _alternatives(annotation))


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel)


def _metadata(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) is not Annotated:
        return ()
    items = typing.get_args(annotation)[1:]
    return tuple(
        part for item in items for part in (item.metadata if isinstance(item, FieldInfo) else [item])
    )


def _bound(item: Any) -> str:
    signs = (
        (annotated_types.Gt, "gt", ">"),
        (annotated_types.Ge, "ge", ">="),
        (annotated_types.Lt, "lt", "<"),
        (annotated_types.Le, "le", "<="),
        (annotated_types.MinLen, "min_length", "of length >="),
        (annotated_types.MaxLen, "max_length", "of length <="),
    )
    return next(
        (f"{sign} {getattr(item, name):g}" for kind, name, sign in signs if isinstance(item, kind)), ""
    )

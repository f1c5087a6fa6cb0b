"""Reads and checks a config: all of its mistakes at once, closed loops included."""

from functools import partial
from typing import Any

import pydantic
import yaml

from jaxdae.app import laws
from jaxdae.app.crosscheck import crosscheck
from jaxdae.app.explain import default_at, explain
from jaxdae.app.problems import ConfigError, Problem
from jaxdae.app.schema import Config
from jaxdae.app.schema_mechanism import SECTIONS, space_of
from jaxdae.app.source import Document, read, value_at


def load(path: str, overrides: tuple[str, ...] = ()) -> tuple[Config, Any]:
    """Returns a config and its worlds at their closed, consistent starts. Writes nothing.

    Args:
        path: YAML file.
        overrides: `path.to.key=value` each, as given to `--set`.

    Returns:
        The config and its `jaxdae.app.build.Worlds`.

    Raises:
        ConfigError: with every mistake that was found.
    """
    document, config, problems = _read(path, overrides)
    skeleton = config if config is not None and not problems else None if document.hidden else _skeleton(document)
    if skeleton is not None:
        # The library is imported here, so that spelling mistakes are answered without waiting for it.
        from jaxdae.app import closing

        worlds, found = closing.close(skeleton, document)
        if config is not None and skeleton is config and worlds is not None and not found and (config.tune or config.optimize):
            from jaxdae.app import reach

            found = reach.unreachable(config, document, worlds)
        if config is not None and skeleton is config and worlds is not None and not found:
            from jaxdae.app import build
            from jaxdae.app.precision import precision

            with precision(config):
                return build.with_chosen_solver(config, worlds)
        problems += found
    raise ConfigError(problems)


def readable(path: str, overrides: tuple[str, ...] = ()) -> Config | None:
    """Returns a config whose text has no mistakes, loops not looked at; None where it has some, all of which `load` tells.

    Nothing is computed: processes that are to be connected may call it before.
    """
    try:
        _, config, problems = _read(path, overrides)
    except ConfigError:
        return None
    return None if problems else config


def _read(path: str, overrides: tuple[str, ...]) -> tuple[Document, Config | None, list[Problem]]:
    """Returns a config as it was read, what the schema makes of it, and the mistakes in its text."""
    document = read(path, overrides, partial(default_at, Config))
    unread = laws.expand(document)
    problems = [*document.problems, *unread]
    config = None
    try:
        config = Config.model_validate(document.data)
    except pydantic.ValidationError as error:
        told = {problem.path for problem in unread}  # A name in place of the table is what the schema would find wrong there.
        problems += [problem for problem in explain(Config, error, document) if problem.path not in told]
    problems += crosscheck(document, config)
    if document.hidden:
        # What refers to bodies that are not there yet is no mistake.
        blind = ("mechanism.", "start.", "batch.vary", "tune", "optimize")
        problems = [*document.problems, *(one for one in problems if one.path != "mechanism" and not one.path.startswith(blind))]
    return document, config, problems


def _skeleton(document: Document) -> Config | None:
    """Returns what closing the loops needs of a config with mistakes elsewhere; None where they are there, too.

    Bodies, joints and fixed coordinates matter; masses, forces and all that comes after the loops are closed do not.
    """
    mechanism = value_at(document.data, ("mechanism",))
    bodies, joints = value_at(mechanism, ("bodies",)), value_at(mechanism, ("joints",))
    start = {key: value_at(document.data, ("start", key)) for key in ("fixed", "positions")}
    if not isinstance(bodies, list) or not isinstance(joints, list) or not joints:
        return None
    space = space_of(mechanism)
    form = {key: mechanism[key] for key in ("coordinates", "cut", "terrain") if key in mechanism}
    stand_ins = {"mass": 1.0, "inertia": [1.0, 1.0, 1.0] if space == "space" else 1.0, "free": True}
    values = {
        "name": "skeleton",
        "duration": 1.0,
        "dt": 1.0,
        "mechanism": form
        | {
            "space": space,
            "bodies": [{"name": value_at(body, ("name",)), "pose": value_at(body, ("pose",)), **stand_ins} for body in bodies],
            "joints": [_known_keys(joint, space) for joint in joints],
        },
        "start": {key: value for key, value in start.items() if value is not None},
    }
    skeleton = Document("skeleton", yaml.safe_dump(values))
    try:
        config = Config.model_validate(skeleton.data)
    except pydantic.ValidationError:
        return None
    return None if crosscheck(skeleton) else config


def _known_keys(joint: Any, space: str) -> Any:
    """Returns a joint without the keys that the schema does not know, and without its damping."""
    section = SECTIONS[space].get(str(value_at(joint, ("type",))))
    return joint if section is None else {k: v for k, v in joint.items() if k in section.model_fields and k != "damping"}

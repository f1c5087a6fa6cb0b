"""Read and check a config, including the loop closure, and report all errors at once."""

from functools import partial
from typing import Any

import pydantic
import yaml

from jaxdae.app.config.config_source import Document, read, value_at
from jaxdae.app.config.explain import default_at, explain
from jaxdae.app.config.problems import ConfigError, Problem
from jaxdae.app.config.schema import Config
from jaxdae.app.config.schema_mechanism import SECTIONS, space_of
from jaxdae.app.model import config_laws
from jaxdae.app.model.crosscheck import crosscheck


def load(path: str, overrides: tuple[str, ...] = ()) -> tuple[Config, Any]:
    """Return a config and its worlds at their closed, consistent initial states. Write no files.

    Args:
        path: YAML file.
        overrides: assignments `path.to.key=value`, as given to `--set`.

    Returns:
        The config and its `jaxdae.app.model.build.Worlds`.

    Raises:
        ConfigError: the config has errors; the exception lists all of them.
    """
    document, config, problems = _read(path, overrides)
    skeleton = (
        config if config is not None and not problems else None if document.hidden else _skeleton(document)
    )
    if skeleton is not None:
        # Import the library here, so that spelling errors are reported without waiting for the import.
        from jaxdae.app.model import close_loops

        worlds, found = close_loops.close(skeleton, document)
        if (
            config is not None
            and skeleton is config
            and worlds is not None
            and not found
            and (config.tune or config.optimize)
        ):
            from jaxdae.app.model import reachability

            found = reachability.unreachable(config, document, worlds)
        if config is not None and skeleton is config and worlds is not None and not found:
            from jaxdae.app.config.precision import precision
            from jaxdae.app.model import build

            with precision(config):
                return build.with_chosen_solver(config, worlds)
        problems += found
    raise ConfigError(problems)


def readable(path: str, overrides: tuple[str, ...] = ()) -> Config | None:
    """Return a config after checking its text but not its loops; None if the text has errors.

    `load` reports the errors.

    This function runs no JAX computation. Distributed processes may call it before they connect.
    """
    try:
        _, config, problems = _read(path, overrides)
    except ConfigError:
        return None
    return None if problems else config


def _read(path: str, overrides: tuple[str, ...]) -> tuple[Document, Config | None, list[Problem]]:
    """Return the document, the validated config (None if validation fails) and the errors in the text."""
    document = read(path, overrides, partial(default_at, Config))
    unread = config_laws.expand(document)
    problems = [*document.problems, *unread]
    config = None
    try:
        config = Config.model_validate(document.data)
    except pydantic.ValidationError as error:
        told = {problem.path for problem in unread}  # The schema would also report the file name here.
        problems += [problem for problem in explain(Config, error, document) if problem.path not in told]
    problems += crosscheck(document, config)
    if document.hidden:
        # References to bodies that are not known yet are not errors.
        blind = ("mechanism.", "start.", "batch.vary", "tune", "optimize", "map", "calibrate")
        problems = [
            *document.problems,
            *(one for one in problems if one.path != "mechanism" and not one.path.startswith(blind)),
        ]
    return document, config, problems


def _skeleton(document: Document) -> Config | None:
    """Return a reduced config that suffices for the loop closure; None if the reduced config has errors.

    The reduction keeps bodies, joints and start coordinates. It drops masses, forces and everything else that
    the loop closure does not use.
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
            "bodies": [
                {"name": value_at(body, ("name",)), "pose": value_at(body, ("pose",)), **stand_ins}
                for body in bodies
            ],
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
    """Return a joint without its damping and without keys that the schema does not define."""
    section = SECTIONS[space].get(str(value_at(joint, ("type",))))
    return (
        joint
        if section is None
        else {k: v for k, v in joint.items() if k in section.model_fields and k != "damping"}
    )

"""A robot file where a config is expected: the config of a robot that is released at its start."""

import pathlib
import re

import yaml

ENDINGS = (".urdf", ".sdf", ".xml", ".mjcf")
"""How names of files end that are robots and not configs; spelled here, because the readers take seconds to import."""
DURATION = 2.0
"""How long the robot moves, in s, unless `--set duration=...` says otherwise."""
STEP = 1e-3
"""The step in s, likewise: robots with stiff damping in their joints need smaller ones."""


def is_robot(path: str) -> bool:
    """Returns whether the name of a file is that of a robot."""
    return pathlib.Path(path).suffix in ENDINGS


def config_of(path: str) -> str:
    """Returns the text of a config, as if it stood beside the file of the robot: one world, and all else as by default."""
    file = pathlib.Path(path)
    word = re.sub(r"[^A-Za-z0-9_-]", "_", file.stem)[:90]
    name = word if re.match(r"[A-Za-z_]", word) else f"_{word}"
    return yaml.safe_dump({"name": name, "mechanism": {"file": file.name}, "duration": DURATION, "dt": STEP}, sort_keys=False)

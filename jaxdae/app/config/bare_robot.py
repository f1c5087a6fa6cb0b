"""Robot files in place of a config: build the config of a robot that is released from its initial state."""

import pathlib
import re

import yaml

ENDINGS = (".urdf", ".sdf", ".xml", ".mjcf")
"""File extensions of robot files. They are listed here because the readers take seconds to import."""
KEYS = ("file", "base", "loops", "packages", "strict", "limits", "dry_friction", "file_contacts")
"""The keys of a `mechanism` section that select what a robot file expands to."""
DURATION = 2.0
"""Default duration in s; override it with `--set duration=...`."""
STEP = 1e-3
"""Default step size in s; override it with `--set dt=...`. Stiff joint damping needs a smaller step."""


def is_robot(path: str) -> bool:
    """Return whether a file name has the extension of a robot file."""
    return pathlib.Path(path).suffix in ENDINGS


def config_of(path: str) -> str:
    """Return the text of a config in the folder of the robot file, with one world and default settings."""
    file = pathlib.Path(path)
    word = re.sub(r"[^A-Za-z0-9_-]", "_", file.stem)[:90]
    name = word if re.match(r"[A-Za-z_]", word) else f"_{word}"
    return yaml.safe_dump(
        {"name": name, "mechanism": {"file": file.name}, "duration": DURATION, "dt": STEP}, sort_keys=False
    )

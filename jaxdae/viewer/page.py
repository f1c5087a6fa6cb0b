"""A scene as a single HTML file that plays in any browser without a network connection.

The file contains viser's client and the recorded frames.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import warnings
from typing import Any

from jaxdae.base.atomic_writes import whole
from jaxdae.viewer.scenes import FASTEST, Scene
from jaxdae.viewer.stage import Look, Stage, quiet_server

LARGE = 20_000_000
"""The size in bytes above which `write_html` warns: browsers take seconds to open such a page."""


def write_html(
    scene: Scene, path: pathlib.Path | str, *, look: Look = Look(), rate: float = FASTEST
) -> pathlib.Path:
    """Write a scene into a file that plays on its own, and return its path.

    Writing needs the extra `viewer`. Neither writing nor playing needs a network connection.

    Args:
        scene: the scene.
        path: the file, ending in ".html"; it is written atomically.
        look: the look of the scene.
        rate: the maximum number of frames per second on the screen.

    Raises:
        ValueError: the path has another ending, or the rate is not positive.
        ModuleNotFoundError: viser is not installed.

    Warns:
        UserWarning: the file exceeds 20 MB. Show fewer worlds, or use a lower rate, for a smaller file.
    """
    path = pathlib.Path(path)
    if path.suffix != ".html":
        raise ValueError(f"path must end in .html, got {path.name!r}")
    shown = scene.frames(rate)
    text = _recorded(scene, look, shown)
    with whole(path) as partial:
        partial.write_text(text, encoding="utf-8")
    if len(text) > LARGE:
        what = f"{path} has {len(text) / 1e6:.0f} MB, {len(shown)} frames of {scene.worlds} worlds"
        warnings.warn(
            f"{what}; for a smaller page, show fewer worlds or fewer frames per second", stacklevel=2
        )
    return path


def _recorded(scene: Scene, look: Look, shown: Any) -> str:
    """Return the page: the scene at its first instant, then the changes from frame to frame."""
    # Use a separate port on loopback without clients: viser records the messages to clients.
    server = quiet_server(port=0)
    try:
        stage = Stage(server, scene, look)
        stage.show(int(shown[0]))
        recorder = server.get_scene_serializer()
        seconds = (scene.times - scene.times[0]) / scene.pace
        for before, k in itertools.pairwise(shown):
            recorder.insert_sleep(float(seconds[k] - seconds[before]))
            stage.show(int(k))
        recorder.insert_sleep(1.0 / FASTEST)
        return recorder.as_html(look.dark)
    finally:
        with contextlib.redirect_stdout(None):
            server.stop()

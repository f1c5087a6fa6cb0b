"""A scene as one file of HTML that plays in any browser and asks the network for nothing: viser's client with the recorded frames in it."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import warnings
from typing import Any

from jaxdae.disk import whole
from jaxdae.viewer.scenes import FASTEST, Scene
from jaxdae.viewer.stage import Look, Stage, quiet_server

LARGE = 20_000_000
"""The size in bytes above which a page is told to be large: browsers take seconds to open it."""


def write_html(scene: Scene, path: pathlib.Path | str, *, look: Look = Look(), rate: float = FASTEST) -> pathlib.Path:
    """Writes a scene into a file that plays by itself, and returns its path. It needs the extra `viewer`, and no network, then or later.

    Args:
        scene: what is shown.
        path: the file, ending in ".html"; written whole or not at all.
        look: what of it, and how.
        rate: frames a second on the screen at most.

    Raises:
        ValueError: another ending, or a rate that is not positive.
        ModuleNotFoundError: viser is not installed.

    Warns where the file has more than 20 MB: fewer worlds, or a lower rate, make it smaller.
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
        warnings.warn(f"{what}; show fewer worlds, or fewer frames a second, for a smaller one", stacklevel=2)
    return path


def _recorded(scene: Scene, look: Look, shown: Any) -> str:
    """Returns the page: the scene at its first instant, then what changes from frame to frame."""
    # A port of its own on loopback, which nobody connects to: viser records what it would send.
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

"""A live view: a server on loopback with a time slider and display controls.

The controls select worlds, joints, frames, arrows and colors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable

import numpy as np

from jaxdae.viewer.arrows import Arrows
from jaxdae.viewer.scenes import FASTEST, Scene
from jaxdae.viewer.stage import Look, Stage, quiet_server

_ALL, _ONE = "all", "one"


class Live:
    """A scene that plays in browsers, created by `show`.

    Attributes:
        server: the viser server, to which you may add objects.
        url: the address for browsers.
    """

    def __init__(
        self, scene: Scene, look: Look, port: int, arrows: Callable[[int], tuple[Arrows, ...]] | None
    ):
        """Start the server, and show the first instant."""
        self._whole, self._look, self._find_arrows = scene, look, arrows
        self._known: dict[int, tuple[Arrows, ...]] = {}
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._instant, self._elapsed = 0, 0.0
        self.server = quiet_server(port, scene.title or "jaxdae")
        self.url = f"http://127.0.0.1:{self.server.get_port()}"
        self._seconds = (scene.times - scene.times[0]) / scene.pace
        self._controls()
        self._rebuild()
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the view."""
        self._stop.set()
        self._thread.join()
        with contextlib.redirect_stdout(None):
            self.server.stop()

    def wait(self) -> None:
        """Block until the view is closed, or until Ctrl-C."""
        while not self._stop.wait(0.2):
            pass

    # The controls.

    def _controls(self) -> None:
        gui, scene = self.server.gui, self._whole
        gui.configure_theme(show_logo=False, show_share_button=False)
        self.told = gui.add_markdown("")
        self.playing = gui.add_checkbox("play", True)
        self.time = gui.add_slider("frame", min=0, max=max(len(scene.times) - 1, 1), step=1, initial_value=0)
        self.speed = gui.add_slider("speed", min=0.05, max=4.0, step=0.05, initial_value=1.0)
        with gui.add_folder("worlds", visible=scene.worlds > 1):
            self.which = gui.add_dropdown("show", (_ALL, _ONE), initial_value=_ALL)
            self.world = gui.add_number("world", 0, min=0, max=max(scene.worlds - 1, 0), step=1)
            self.apart = gui.add_checkbox("side by side", self._look.apart)
        with gui.add_folder("show"):
            few = self._look.joints is not False and scene.worlds <= 64
            self.joints = gui.add_checkbox("joints", few)
            self.frames = gui.add_checkbox("frames of bodies", self._look.frames)
            self.violation = gui.add_checkbox(
                "violation in color", self._look.violation, disabled=scene.violation is None
            )
            known = self._find_arrows is not None or bool(scene.arrows)
            self.reactions = gui.add_checkbox(
                "reactions", "reactions" in self._look.arrows, disabled=not known
            )
            self.forces = gui.add_checkbox("forces", "forces" in self._look.arrows, disabled=not known)
            self.contacts = gui.add_checkbox("contacts", "contacts" in self._look.arrows, disabled=not known)
        for control in (
            self.which,
            self.world,
            self.apart,
            self.joints,
            self.frames,
            self.violation,
            self.reactions,
            self.forces,
            self.contacts,
        ):
            control.on_update(lambda _: self._rebuild())
        self.time.on_update(
            lambda event: self.go_to(int(self.time.value)) if event.client is not None else None
        )

    def go_to(self, instant: int) -> None:
        """Show one of the saved instants, and pause."""
        with self._lock:
            self.playing.value = False
            self._show(instant)
            self._elapsed = float(self._seconds[instant])

    def pick(self, world: int) -> None:
        """Show one world alone."""
        with self._lock:
            self.world.value, self.which.value = world, _ONE
            self._rebuild()

    def _rebuild(self) -> None:
        """Rebuild the scene from the values of the controls."""
        with self._lock, self.server.atomic():
            one = self.which.value == _ONE or self._whole.worlds == 1
            number = int(self.world.value) if self._whole.worlds > 1 else 0
            scene = self._whole.of_worlds([number]) if one else self._whole
            names = self._arrow_names()
            if names and self._find_arrows is not None:
                shown = number if one else 0
                if shown not in self._known:
                    self._known[shown] = self._find_arrows(shown)
                scene = dataclasses.replace(scene, arrows=self._known[shown])
            look = Look(self.apart.value, self.joints.value, self.frames.value, names, self.violation.value)
            if getattr(self, "_stage", None) is not None:
                self._stage.clear()
            self._scene, self._stage = scene, Stage(self.server, scene, look)
            if not one:
                for handle in self._stage.parts.values():
                    handle.on_click(lambda event: self.pick(int(event.instance_index)))
            self._show(self._instant)

    def _arrow_names(self) -> tuple[str, ...]:
        boxes = (("reactions", self.reactions), ("forces", self.forces), ("contacts", self.contacts))
        return tuple(name for name, box in boxes if box.value)

    # The time.

    def _show(self, instant: int) -> None:
        self._instant = instant
        with self.server.atomic():
            self._stage.show(instant)
        scene = self._scene
        text = f"**{scene.title or 'jaxdae'}**, t = {scene.times[instant]:.4g} s"
        if scene.pace != 1.0:
            text += f", {1.0 / scene.pace:.4g} times slower"
        if scene.violation is not None:
            text += f"; loops open by {np.nanmax(scene.violation[:, instant], initial=0.0):.1e} (m or rad)"
        for arrows in scene.arrows if self._arrow_names() else ():
            text += f"; longest of {arrows.name} {arrows.largest:.3g} N"
        if text != self.told.content:
            self.told.content = text

    def _play(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(1.0 / FASTEST):
            now = time.monotonic()
            passed, last = now - last, now
            if not self.playing.value or len(self._seconds) < 2:
                continue
            with self._lock:
                self._elapsed += passed * self.speed.value
                # Pause briefly at the end before the motion restarts.
                if self._elapsed > self._seconds[-1] + 0.5:
                    self._elapsed = 0.0
                instant = int(
                    np.clip(
                        np.searchsorted(self._seconds, self._elapsed, side="right") - 1,
                        0,
                        len(self._seconds) - 1,
                    )
                )
                if instant != self._instant:
                    self._show(instant)
                    self.time.value = instant


def show(
    scene: Scene,
    *,
    look: Look = Look(),
    port: int = 8080,
    arrows: Callable[[int], tuple[Arrows, ...]] | None = None,
) -> Live:
    """Show a scene live on loopback, and return the view; it needs the extra `viewer`.

    Browsers on this machine find the view at its `url`.

    Args:
        scene: the scene.
        look: the initial look; the controls in the browser change it.
        port: the port of the server; if it is taken, the server uses another one.
        arrows: returns the forces and reactions of a world on request; by default, the arrows of the scene.

    Raises:
        ModuleNotFoundError: viser is not installed.
    """
    return Live(scene, look, port, arrows)

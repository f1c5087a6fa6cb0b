"""Pages and live views in a browser without a display: `make test-viewer`, which needs Chromium and the extra
`viewer`.
"""

import base64
import contextlib
import io
import json
import pathlib
import re
import shutil
import subprocess
import time
import urllib.request

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jaxdae
from jaxdae import mechanisms as jm
from jaxdae import viewer
from jaxdae.viewer import colors
from jaxdae.viewer import page as pages

pytest.importorskip("viser", reason="needs viser: make test-viewer installs it")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    # viser's server is asyncio's, and what it uses of that is its own affair.
    pytest.mark.filterwarnings("default"),
]

WIDTH, HEIGHT = 900, 600
CLEAR = 160  # rows at the top in which Chromium says that it has no graphics card
SECONDS = 4.0


@pytest.fixture(scope="module")
def turning():
    """A bar that turns slowly by a half turn about the origin, and one that stands to its right."""
    bodies = [
        jm.Body("hand", mass=1.0, inertia=0.1, pose=(0.5, 0.0, 0.0)),
        jm.Body("post", mass=1.0, inertia=0.1, pose=(2.0, 0.5, np.pi / 2)),
    ]
    joints = [
        jm.Revolute("axle", jm.GROUND, "hand", at=(0.0, 0.0)),
        jm.Revolute("tip", jm.GROUND, "post", at=(2.0, 0.0)),
    ]
    mechanism, q = jm.planar_mechanism(bodies, joints, [], gravity=(0.0, -9.81))
    times = np.linspace(0.0, SECONDS, 121)
    angle = np.pi * times / SECONDS
    hand = np.stack([0.5 * np.cos(angle), 0.5 * np.sin(angle), angle], axis=1)
    poses = np.concatenate([hand, np.tile(np.asarray(q)[3:], (len(times), 1))], axis=1)
    return mechanism, jaxdae.State(jnp.asarray(times), jnp.asarray(poses), jnp.zeros_like(poses))


def browser(profile):
    """Returns the command of a browser without a display that calls nobody by itself."""
    return [
        CHROMIUM,
        "--headless=new",
        "--no-sandbox",
        "--use-angle=swiftshader",
        "--enable-unsafe-swiftshader",
        "--hide-scrollbars",
        f"--window-size={WIDTH},{HEIGHT}",
        f"--user-data-dir={profile}",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
    ]


@contextlib.contextmanager
def watching(url, profile):
    """Gives a function that returns the picture of a live page as it is at that moment, by the protocol of
    the browser's debugger.

    A clock of its own, as for pages, does not go with a server: the browser would wait for it for ever.
    """
    from websockets.sync.client import connect

    process = subprocess.Popen(
        [*browser(profile), "--remote-debugging-port=0", url],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        port = patiently(lambda: (profile / "DevToolsActivePort").read_text().split()[0], OSError, IndexError)
        pages = patiently(
            lambda: json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=20)),
            OSError,
        )
        address = next(each["webSocketDebuggerUrl"] for each in pages if each["type"] == "page")
        with connect(address, max_size=None, open_timeout=60) as debugger:

            def picture():
                debugger.send(json.dumps({"id": 1, "method": "Page.captureScreenshot"}))
                while (answer := json.loads(debugger.recv(timeout=60))).get("id") != 1:
                    pass
                data = base64.b64decode(answer["result"]["data"])
                return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)

            yield picture
    finally:
        process.terminate()
        process.wait(20)


def patiently(ask, *errors, good=lambda found: True, seconds=90.0):
    """Returns the first good answer; the last one where none comes in time."""
    end = time.monotonic() + seconds
    while True:
        try:
            found = ask()
            if good(found) or time.monotonic() > end:
                return found
        except errors:
            if time.monotonic() > end:
                raise
        time.sleep(0.3)


def look_at(url, folder, name, milliseconds):
    """Returns the picture of a page after a time of its clock, and the URLs that it asked for."""
    picture, log = folder / f"{name}.png", folder / f"{name}.json"
    options = [f"--virtual-time-budget={milliseconds}", f"--log-net-log={log}", f"--screenshot={picture}"]
    subprocess.run([*browser(folder / name), *options, url], check=True, capture_output=True, timeout=100)
    asked = set(re.findall(r'"url":"((?:https?|wss?)://[^"]+)"', log.read_text(errors="replace")))
    return np.asarray(Image.open(picture).convert("RGB")).astype(int), asked


def pixels(picture, color):
    """Returns the places (n, 2) of the pixels below the note whose color has the hue of a body's."""
    shown = picture[CLEAR : HEIGHT - 45]

    def hue(x):
        x = np.asarray(x, float)
        gray = x.mean(axis=-1, keepdims=True)
        strength = np.linalg.norm(x - gray, axis=-1, keepdims=True)
        return (x - gray) / np.maximum(strength, 1e-9), strength[..., 0]

    (wanted, _), (found, strength) = hue(color), hue(shown)
    rows, columns = np.nonzero((found @ wanted > 0.97) & (strength > 40))
    return np.stack([columns, rows + CLEAR], axis=1)


# The page.


def test_a_page_moves_the_right_body_and_asks_for_nothing(turning, tmp_path):
    mechanism, states = turning
    scene = viewer.scene(mechanism, states, title="turning")
    path = viewer.write_html(scene, tmp_path / "scene.html")
    assert path.stat().st_size < 2_000_000
    early, asked = look_at(path.as_uri(), tmp_path, "early", 1500)
    late, asked_late = look_at(path.as_uri(), tmp_path, "late", 3500)
    # Chromium looks for updates of its own; nothing else goes out.
    assert not {url for url in asked | asked_late if "google" not in url and "gvt1" not in url}
    hand, post = ([pixels(picture, colors.rgb(k)) for picture in (early, late)] for k in (0, 1))
    assert min(len(found) for found in (*hand, *post)) > 300
    # The hand turns to the left over the top; the post stays where it is. When a page begins to play depends
    # on the machine.
    assert hand[0][:, 0].mean() - hand[1][:, 0].mean() > 25
    np.testing.assert_allclose(post[0].mean(axis=0), post[1].mean(axis=0), rtol=0, atol=1.0)
    assert post[0][:, 0].mean() > hand[0][:, 0].max()


def test_a_dark_page_of_many_worlds(turning, tmp_path):
    mechanism, states = turning
    many = jaxdae.State(states.t, jnp.tile(states.q, (100, 1, 1)), jnp.tile(states.v, (100, 1, 1)))
    violation = np.tile(np.linspace(0.0, 1e-1, 100)[:, None], (1, 121))
    scene = viewer.scene(mechanism, many, violation=violation)
    path = viewer.write_html(
        scene, tmp_path / "scene.html", look=viewer.Look(dark=True, violation=True), rate=5.0
    )
    picture, _ = look_at(path.as_uri(), tmp_path, "dark", 1500)
    assert np.median(picture) < 60
    # All worlds but the first are open by more than a hundredth: red, each at a place of its own.
    red = pixels(picture, (230, 30, 30))
    assert len(red) > 1000
    assert np.ptp(red, axis=0).min() > 250


def test_large_pages_warn(turning, tmp_path, monkeypatch):
    mechanism, states = turning
    monkeypatch.setattr(pages, "LARGE", 1000)
    with pytest.warns(UserWarning, match=r"1 MB, \d+ frames of 1 worlds; show fewer worlds"):
        viewer.write_html(viewer.scene(mechanism, states), tmp_path / "scene.html", rate=2.0)
    assert not list(pathlib.Path(tmp_path).glob("*.partial"))


# The live view.


def test_a_live_view_on_loopback(turning, tmp_path):
    mechanism, states = turning
    two = jaxdae.State(states.t, jnp.stack([states.q, states.q]), jnp.stack([states.v, states.v]))
    scene = viewer.scene(mechanism, two, violation=np.zeros((2, 121)), title="live")
    still = viewer.scene(mechanism, states).poses[0].astype(float)

    def arrows(world):
        one = jaxdae.State(states.t, states.q, states.v)
        return (viewer.force_arrows(mechanism, one, still),)

    def hands(picture):
        """Returns the pixels of the hands; the controls to the right are blue, too."""
        found = pixels(picture, colors.rgb(0))
        return found[found[:, 0] < 550]

    live = viewer.show(scene, port=18080, arrows=arrows)
    try:
        assert live.url.startswith("http://127.0.0.1:")
        text = urllib.request.urlopen(live.url, timeout=20).read()
        assert b"<html" in text.lower()
        live.go_to(0)
        with watching(live.url, tmp_path / "profile") as picture:
            before = patiently(picture, good=lambda seen: len(hands(seen)) > 200)
            assert len(hands(before)) > 200
            assert len(pixels(before, colors.FORCE)) < 10
            # One world alone, with its forces as arrows.
            live.pick(1)
            live.forces.value = True
            live._rebuild()
            after = patiently(picture, good=lambda seen: len(pixels(seen, colors.FORCE)) > 50)
            assert len(pixels(after, colors.FORCE)) > 50
            # The hand is in one place, no longer in two below each other.
            assert np.ptp(hands(after)[:, 1]) < 0.7 * np.ptp(hands(before)[:, 1])
        assert "live" in live.told.content
        assert "longest of forces 9.81 N" in live.told.content
    finally:
        live.close()

"""Animations: what is in the file, and what is said of wrong arguments."""

import itertools

import numpy as np
import pytest
from all_cases import all_cases
from matplotlib.axes import Axes
from PIL import Image

from jaxdae import Status
from jaxdae.app import write_animation

TIMES = np.linspace(0.0, 2.0, 41)
BAR = np.stack([np.zeros((41, 2)), np.stack([np.sin(TIMES), -np.cos(TIMES)], axis=-1)], axis=1)


def frames_of(path):
    with Image.open(path) as image:
        pictures = []
        for k in range(getattr(image, "n_frames", 1)):
            image.seek(k)
            pictures.append(np.asarray(image.convert("RGB")))
        return pictures, image.info["duration"]


@pytest.mark.long
def test_pictures_move_and_play_in_real_time(tmp_path):
    path = write_animation(
        tmp_path / "a.gif",
        TIMES,
        {"bar": BAR},
        traces={"tip": BAR[:, 1]},
        points={"goal": [[1.0, 0.0]]},
        frames=21,
    )
    assert [file.name for file in tmp_path.iterdir()] == ["a.gif"]
    pictures, duration = frames_of(path)
    assert len(pictures) == 21
    assert duration == pytest.approx(
        100, abs=10
    )  # ms: 20 intervals over 2 s; GIF counts hundredths of a second
    assert len({picture.shape for picture in pictures}) == 1
    changed = [np.any(a != b, axis=-1).mean() for a, b in itertools.pairwise(pictures)]
    assert min(changed) > 1e-3
    # The limits hold all positions: what moves stays where it can be seen, and the fixed marker is drawn.
    assert np.any(np.all(np.abs(pictures[0].astype(int) - [0, 114, 178]) < 30, axis=-1))


def test_what_is_nan_is_not_drawn(tmp_path):
    hidden = np.where(TIMES[:, None, None] < 1.0, np.nan, BAR)
    pictures, duration = frames_of(
        write_animation(tmp_path / "b.gif", 100.0 * TIMES, {"bar": hidden}, title="bar", frames=2)
    )
    assert duration == 100
    first, last = ((picture < 128).any(axis=-1)[60:-80, 90:-20].sum() for picture in pictures)
    assert first == 0
    assert last > 100


def failing(entry):
    return np.where(np.arange(41) < entry, Status.OK, Status.NONFINITE)


def test_a_failed_world_is_drawn_up_to_its_failure(tmp_path, monkeypatch):
    titles = []
    monkeypatch.setattr(Axes, "set_title", lambda axes, text: titles.append(text))
    away = BAR * np.where(TIMES < 0.75, 1.0, 1e25)[:, None, None]
    lines, status = {"a": BAR, "b": away}, {"a": failing(41), "b": failing(21)}
    pictures, _ = frames_of(
        write_animation(tmp_path / "two.gif", TIMES, lines, traces={"b": away[:, 1]}, status=status, frames=9)
    )
    # The other world goes on, and sets the limits: what runs away before it fails does not.
    assert len(pictures) == 9
    assert titles[-1] == "t = 2.00 s\nb failed at t = 1 to 1.05 s (NONFINITE)"
    both, alone = (
        np.sum(np.all(np.abs(pictures[k].astype(int) - [0, 158, 115]) < 40, axis=-1)) for k in (2, 3)
    )
    assert both > alone + 50
    pictures, _ = frames_of(
        write_animation(
            tmp_path / "one.gif", TIMES, {"b": BAR}, status={"b": failing(1)}, title="bar", frames=41
        )
    )
    assert len(pictures) == 1
    assert titles[-1] == "bar   t = 0.00 s\nfailed at t = 0 to 0.05 s (NONFINITE)"


@all_cases(
    ("change", "message"),
    [
        ({"path": "a.mp4"}, r"path must end in \.gif, got 'a\.mp4'"),
        ({"frames": 0}, "frames must be at least 1, got 0"),
        (
            {"times": TIMES[:, None]},
            r"times must have shape \(time,\) with at least one entry, got \(41, 1\)",
        ),
        ({"lines": {"bar": BAR[1:]}}, r"lines\['bar'\] must have shape \(41, any, 2\), got \(40, 2, 2\)"),
        ({"traces": {"tip": BAR}}, r"traces\['tip'\] must have shape \(41, 2\), got \(41, 2, 2\)"),
        (
            {"status": {"rod": TIMES}},
            r"status\['rod'\] must have .* the name of a line, got no such line in \['bar'\]",
        ),
        ({"status": {"bar": TIMES[1:]}}, r"status\['bar'\] must have shape \(41,\) .* got shape \(40,\)"),
        ({"points": {"goal": [1.0, 2.0]}}, r"points\['goal'\] must have shape \(any, 2\), got \(2,\)"),
        ({"lines": {"bar": np.full_like(BAR, np.nan)}}, "nothing to draw"),
    ],
)
def test_mistakes(tmp_path, change, message):
    arguments = {"path": "a.gif", "times": TIMES, "lines": {"bar": BAR}, **change}
    with pytest.raises(ValueError, match=message):
        write_animation(
            tmp_path / arguments.pop("path"), arguments.pop("times"), arguments.pop("lines"), **arguments
        )
    assert not list(tmp_path.iterdir())

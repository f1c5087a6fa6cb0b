"""Files that are whole or not there, whatever happens while they are written."""

import os

import pytest

from jaxdae.base import atomic_writes


def test_a_file_is_forced_before_it_has_its_name(tmp_path, monkeypatch):
    file, real, seen = tmp_path / "x.csv", os.fsync, []

    def noted(descriptor):
        seen.append((os.fstat(descriptor).st_ino, file.read_text()))
        real(descriptor)

    file.write_text("before")
    monkeypatch.setattr(os, "fsync", noted)
    with atomic_writes.whole(file) as partial:
        partial.write_text("after")
    assert seen == [(file.stat().st_ino, "before"), (tmp_path.stat().st_ino, "after")]
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("error", [OSError, ValueError, KeyboardInterrupt])
def test_a_file_that_could_not_be_written_leaves_no_trace(tmp_path, error):
    file = tmp_path / "x.csv"
    file.write_text("before")

    def write():
        with atomic_writes.whole(file) as partial:
            partial.write_text("half")
            raise error

    with pytest.raises(error):
        write()
    assert [(each, each.read_text()) for each in tmp_path.iterdir()] == [(file, "before")]


def test_a_link_in_its_place_is_replaced(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "x.csv").symlink_to(tmp_path / "mine")
    with atomic_writes.whole(tmp_path / "x.csv") as partial:
        partial.write_text("x")
    assert ((tmp_path / "x.csv").read_text(), (tmp_path / "mine").read_text()) == ("x", "mine")

"""Loops over cases list every case that fails, so that they may stand for one test per case."""

import pytest
from all_cases import all_cases

ROOTS = {"two": (4.0, 2.0), "wrong": (9.0, 4.0), "three": (9.0, 3.0), "negative": (-1.0, 1.0)}


def test_all_failures_are_listed():
    @all_cases(("square", "root"), ROOTS.values(), ids=ROOTS)
    def roots(square, root):
        if square < 0:
            with pytest.raises(ValueError, match="negative"):
                float(square)
        assert square**0.5 == root

    with pytest.raises(AssertionError) as caught:
        roots()
    lines = str(caught.value).splitlines()
    assert lines[0] == "2 of 4 cases fail:"
    assert [line.split(":")[0] for line in lines if line.startswith("[")] == [
        "[wrong] AssertionError",
        "[negative] Failed",
    ]


@all_cases("name", ["a", "b"])
@all_cases("text", ["1", "2"])
def test_fixtures_and_nested_loops(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert (tmp_path / name).read_text() == text
    assert (tmp_path / "a").exists()


class TestMethods:
    @all_cases("x", [1, 2, 3])
    def test_of_a_class(self, x):
        assert isinstance(self, TestMethods)
        assert x in (1, 2, 3)


def test_no_cases_are_a_mistake():
    with pytest.raises(ValueError, match="expected cases for x, got none"):
        all_cases("x", [])

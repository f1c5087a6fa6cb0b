"""Every feature of robot files is supported, reported or refused as the table of `docs/robots.md` says."""

import pathlib

import pytest
from all_cases import all_cases
from robot_features import FEATURES, FORMATS, Mjcf, table

DOCUMENT = pathlib.Path(__file__).parents[1] / "docs" / "robots.md"
CASES = [
    (name, kind, cell)
    for name, cells in FEATURES.items()
    for kind, cell in zip(FORMATS, cells, strict=True)
    if cell is not None
]


@pytest.mark.long
@all_cases(("name", "kind", "cell"), CASES, ids=[f"{name} {kind.ending[1:]}" for name, kind, _ in CASES])
def test_what_becomes_of_a_feature(name, kind, cell, tmp_path):
    if kind is Mjcf:
        pytest.importorskip("mujoco", reason="the extra robots is not installed: pip install '.[robots]'")
    path = tmp_path / f"robot{kind.ending}"
    path.write_text(cell.file)
    cell.verify(path)


def test_the_table_of_the_documentation():
    assert "\n".join(table()) in DOCUMENT.read_text(), "\n".join(
        ["docs/robots.md must have this table:", *table()]
    )

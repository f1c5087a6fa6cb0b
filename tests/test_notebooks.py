"""The notebooks of the site contain the outputs that their code prints."""

import importlib
import pathlib
import re
import sys

import jax
import matplotlib
import pytest

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
sys.path.insert(0, str(DOCS))
try:
    notebooks = importlib.import_module("site_notebooks")
    pages = importlib.import_module("site_pages")
finally:
    sys.path.remove(str(DOCS))


def test_notebooks_have_outputs_and_are_listed():
    stems = [path.stem for path in notebooks.NOTEBOOKS]
    assert len(stems) == 6
    assert sorted(pages.CONTENTS["Notebooks"]) == [f"notebooks/{stem}" for stem in stems]
    for path in notebooks.NOTEBOOKS:
        cells = notebooks.code_cells(path)
        text = re.sub(r'"image/png": "[^"]*"', "", path.read_text())
        assert path.stat().st_size <= 120_000, path.name
        assert not re.search(r'"execution":|[\s"]/\w+/', text), path.name
        for source, outputs in cells:
            kinds = {output["output_type"] for output in outputs}
            assert kinds <= {"stream", "display_data"}, path.name
            assert ("stream" in kinds) == ("print(" in source), f"{path.name}: {source}"
            pictures = sum("image/png" in output.get("data", ()) for output in outputs)
            assert pictures == source.count("plt.subplots("), f"{path.name}: {source}"
        assert sum(len(outputs) for _, outputs in cells) >= 4, path.name


@pytest.mark.long
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            id=path.stem,
            marks=() if path.stem == "first_linkage" else pytest.mark.exhaustive,
        )
        for path in notebooks.NOTEBOOKS
    ],
)
def test_notebooks_print_their_stored_text(path):
    matplotlib.use("Agg")
    # A notebook is a program of a user, with the type promotion of JAX's default.
    with jax.numpy_dtype_promotion("standard"):
        assert not notebooks.mistakes(path)
    importlib.import_module("matplotlib.pyplot").close("all")

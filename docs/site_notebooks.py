"""Run the notebooks of the site, and compare their output with the stored output.

The repository contains notebooks with outputs, so that GitHub and the site show them without running them. After a
change of a notebook, store its outputs again. `make notebooks` runs all of them; with the extra `docs`,

    python docs/site_notebooks.py car

runs one of them.
"""

import contextlib
import io
import json
import pathlib
import sys
import tempfile

NOTEBOOKS = sorted((pathlib.Path(__file__).resolve().parent / "notebooks").glob("*.ipynb"))


def code_cells(path):
    """Return (source, outputs) of every code cell of a notebook."""
    cells = json.loads(path.read_text())["cells"]
    return [("".join(cell["source"]), cell["outputs"]) for cell in cells if cell["cell_type"] == "code"]


def printed(outputs):
    """Return the stored text of the outputs of a cell."""
    return "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")


def mistakes(path):
    """Run the code cells of a notebook in an empty folder; return each difference from the stored text."""
    wrong, namespace = [], {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for k, (source, outputs) in enumerate(code_cells(path)):
            found = io.StringIO()
            with contextlib.redirect_stdout(found):
                exec(compile(source, f"{path.name}, code cell {k}", "exec"), namespace)
            if found.getvalue() != printed(outputs):
                wrong.append(
                    f"{path.name}, code cell {k}: prints {found.getvalue()!r}, stored {printed(outputs)!r}"
                )
    return wrong


def store(path):
    """Run a notebook in an empty folder, and store its outputs without times and versions."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "matplotlibrc").write_text("figure.dpi: 72\n")  # small pictures
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(
            notebook, timeout=600, record_timing=False, coalesce_streams=True, resources=resources
        ).execute()
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for notebook in NOTEBOOKS:
        if notebook.stem in (sys.argv[1:] or [notebook.stem]):
            store(notebook)

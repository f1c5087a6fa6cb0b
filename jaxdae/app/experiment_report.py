"""Output of an experiment: table and findings on the console and in a report, figures, and the run record."""

import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import rich.table

from jaxdae.app.config import safe_files
from jaxdae.app.experiment_script import Script
from jaxdae.app.jobs.run_record import begin, finish
from jaxdae.app.runs.run_folder import REPORT


def show_table(console: Any, title: str, headings: Iterable[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table on a console; wide cells wrap."""
    table = rich.table.Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def table_lines(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table for a report."""
    return [f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *rows)]


def conclude(
    asked: Script,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    sentences: Sequence[str],
    figures: dict[str, Any],
    draw: Callable[[pathlib.Path], None] | None = None,
) -> pathlib.Path:
    """Print the results of an experiment, write them with figures to a new run folder, and return the folder.

    Args:
        asked: the command-line request of the experiment.
        headings: headings of the table.
        rows: rows of the table.
        sentences: findings, one sentence each.
        figures: Matplotlib figures by file name without extension.
        draw: function that writes additional files to the folder, such as animations.
    """
    config, console = asked.config, asked.console
    folder, record = begin(config, asked.out, asked.source)
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", bbox_inches="tight")
    if draw is not None:
        draw(folder)
    show_table(console, config.description or config.name, headings, rows)
    for sentence in sentences:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    lines = [f"# {config.name}", "", config.description, "", *(f"- {sentence}" for sentence in sentences), ""]
    lines += table_lines(headings, rows)
    lines += ["", *(f"![{name}]({name}.png)" for name in figures), ""]
    safe_files.write_text(folder / REPORT, "\n".join(lines))
    finish(
        folder,
        record,
        table=[dict(zip(headings, row, strict=True)) for row in rows],
        findings=list(sentences),
    )
    console.print(f"run folder: {folder}", highlight=False, markup=False, soft_wrap=True)
    return folder

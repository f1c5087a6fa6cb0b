"""How an experiment ends: its table and sentences on the console and in a report, its figure, and the record of its run folder."""

import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import rich.table

from jaxdae.app import files
from jaxdae.app.run_folder import REPORT
from jaxdae.app.run_record import begin, finish
from jaxdae.app.script import Script


def show_table(console: Any, title: str, headings: Iterable[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table on a console; cells that are too wide go on in further lines."""
    table = rich.table.Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def table_lines(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the lines of a table in Markdown, as reports have it."""
    return [f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *rows)]


def conclude(
    asked: Script,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    sentences: Sequence[str],
    figures: dict[str, Any],
    draw: Callable[[pathlib.Path], None] | None = None,
) -> pathlib.Path:
    """Prints what an experiment found, writes it into a new run folder with its figures, and returns the folder.

    Args:
        asked: what the experiment was asked to do.
        headings: of the table.
        rows: of the table.
        sentences: what the numbers say.
        figures: of matplotlib, by the names of their files without ending.
        draw: writes more files into the folder, such as animations.
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
    files.write_text(folder / REPORT, "\n".join(lines))
    finish(folder, record, table=[dict(zip(headings, row, strict=True)) for row in rows], findings=list(sentences))
    console.print(f"run folder: {folder}", highlight=False, markup=False, soft_wrap=True)
    return folder

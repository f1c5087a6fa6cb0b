"""`jaxdae tune` and `jaxdae optimize`: fits whose run folder can be continued after any interruption.

The folder holds the resolved config and the checkpoint from the beginning on. Continuing reads both: the same config makes the same
program, whose fingerprint the checkpoint carries. The history follows every checkpoint; plots and report are written at the end.
"""

import dataclasses
import pathlib
import time
from typing import Any

import numpy as np
import rich.console
import yaml

from jaxdae import tuning
from jaxdae.app import run_folder
from jaxdae.app.build import Worlds
from jaxdae.app.history import History, table, write_text
from jaxdae.app.learned_plots import CONTROLS, HISTORY, draw_learned
from jaxdae.app.objective import Objective, objective, optimizer, tuned_values
from jaxdae.app.precision import precision
from jaxdae.app.run import begin, finish
from jaxdae.app.schema import Config
from jaxdae.app.schema_tuning import Optimize, Tune

CHECKPOINT = "checkpoint.npz"
TUNED = "tuned.yaml"
_SECONDS_BETWEEN_LINES = 5.0


@dataclasses.dataclass(frozen=True)
class Learned:
    """What a fit left behind.

    Attributes:
        folder: its run folder.
        result: of the fit.
        record: what `run.json` holds.
    """

    folder: pathlib.Path
    result: tuning.FitResult
    record: dict[str, Any]


def learn(
    config: Config,
    worlds: Worlds,
    command: str,
    console: rich.console.Console,
    *,
    parent: pathlib.Path = pathlib.Path("runs"),
    source: str = "",
    resume: pathlib.Path | None = None,
) -> Learned:
    """Runs the section of a command, `tune` or `optimize`, in a new folder or in the one to be continued.

    Args:
        config: a config that has the section; of a run that is continued its own, or one with more iterations.
        worlds: its worlds.
        command: the name of the section, for the record.
        console: for progress.
        parent: where a new run folder is made.
        source: the file of the config, for the record.
        resume: the run folder to continue.

    Raises:
        ValueError: a checkpoint of another fit, or a loss that is not finite at the start.
    """
    section: Tune | Optimize = getattr(config, command)
    if resume is None:
        folder, record = begin(config, parent, source)
        record |= {"learned": {"command": command, "resumed": 0}}
        run_folder.write_record(folder, record)
    else:
        folder, record = resume, run_folder.read_record(resume)
        record["learned"]["resumed"] += 1
    history = History(folder / HISTORY)

    def saved(told: tuning.FitStep, recorded: dict[str, Any]) -> None:
        # A checkpoint that is there has been found to be of this fit: only now the folder takes over what was lengthened.
        _keep_config(folder, config, record)
        history.write(told, recorded)

    if not (folder / CHECKPOINT).exists():
        _keep_config(folder, config, record)
    started = time.perf_counter()
    with precision(config):
        found = objective(config, worlds, section)
        result = tuning.fit(
            found.loss if found.batch_loss is None else found.batch_loss,
            found.parameters,
            optimizer(section),
            steps=section.iterations,
            trainable=found.trainable,
            batch=found.batch,
            clip=section.optimizer.clip,
            record=lambda numbers: numbers,
            progress=_Progress(section.iterations, console),
            checkpoint=tuning.Checkpoint(folder / CHECKPOINT, every=section.checkpoint_every, saved=saved),
        )
        _write(folder, config, section, found, result)
    numbers = {name.replace("/", "."): np.asarray(x).tolist() for name, x in result.parameters.items()}
    summary = {
        "loss_at_start": float(result.history.loss[0]),
        "loss": result.loss,
        "best_iteration": result.best_step,
        "iterations": section.iterations,
        "skipped": result.skipped,
    }
    record["learned"] |= summary | {"parameters": numbers}
    finish(folder, record, timing={"wall_s": time.perf_counter() - started})
    if config.output.plots:
        draw_learned(folder, folder / run_folder.PLOTS, config, command)
    return Learned(folder, result, record)


def _keep_config(folder: pathlib.Path, config: Config, record: dict[str, Any]) -> None:
    """Writes a config that differs from that of the record; its run did not finish then."""
    resolved = run_folder.resolved(config)
    if record["config"] == resolved:
        return
    run_folder.write_config(folder, config)
    record |= {"config": resolved, "finished": None}
    run_folder.write_record(folder, record)


class _Progress:
    """Prints loss and gradient norm now and then; called after every iteration."""

    def __init__(self, total: int, console: rich.console.Console):
        self._total, self._console, self._last = total, console, -np.inf

    def __call__(self, count: int, step: tuning.FitStep) -> None:
        now = time.perf_counter()
        if now - self._last < _SECONDS_BETWEEN_LINES and count + 1 < self._total:
            return
        self._last = now
        skipped = ", skipped" if step.skipped else ""
        text = f"iteration {count + 1}/{self._total}: loss {step.loss:.6g} (best {step.best:.6g}), gradient norm {step.gradient_norm:.3g}"
        self._console.print(text + skipped, highlight=False, markup=False, soft_wrap=True)


def rows(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns what a reader wants to know first, as label and value."""
    learned = record["learned"]
    found = [
        ("loss", f"{learned['loss_at_start']:.6g} at the start, {learned['loss']:.6g} at iteration {learned['best_iteration'] + 1}"),
        ("iterations", f"{learned['iterations']}, {learned['skipped']} skipped, continued {learned['resumed']} times"),
    ]
    for name, value in learned["parameters"].items():
        shown = f"{value:.10g}" if isinstance(value, float) else f"{len(value)} knots from {min(value):.4g} to {max(value):.4g}"
        found.append((name, shown))
    return found


def report_text(config: Config, record: dict[str, Any], pictures: list[str]) -> str:
    """Returns the report of a fit, in Markdown."""
    command = record["learned"]["command"]
    lines = [f"# {config.name}: {command}", ""]
    if config.description:
        lines += [config.description.strip(), ""]
    lines += ["| | |", "|---|---|", *(f"| {label} | {value} |" for label, value in rows(record)), ""]
    what = f"`jaxdae run {TUNED}` simulates the tuned mechanism." if command == "tune" else f"`{CONTROLS}` holds the inputs at every step."
    lines += [what + f" `{HISTORY}` holds every iteration.", ""]
    lines += [line for name in pictures for line in (f"![{name}]({run_folder.PLOTS}/{name}.png)", "")]
    return "\n".join(lines)


def _write(folder: pathlib.Path, config: Config, section: Tune | Optimize, found: Objective, result: tuning.FitResult) -> None:
    """Writes tuned config or controls."""
    if found.controls is None:
        values = tuned_values(config, found, result.parameters)
        text = yaml.safe_dump(
            run_folder.resolved(Config.model_validate(values)), sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
        )
        write_text(folder / TUNED, text)
        return
    controls = np.asarray(found.controls(result.parameters))
    names = [given.force for given in section.inputs] if isinstance(section, Optimize) else []
    columns = {"t": config.dt * np.arange(config.steps), **{name: controls[:, k] for k, name in enumerate(names)}}
    write_text(folder / CONTROLS, table(columns))


def write_report(folder: pathlib.Path, config: Config, record: dict[str, Any]) -> None:
    """Writes the report of a finished fit beside its plots."""
    pictures = sorted(path.stem for path in (folder / run_folder.PLOTS).glob("*.png"))
    write_text(folder / run_folder.REPORT, report_text(config, record, pictures) + "\n")

"""`jaxdae tune` and `jaxdae optimize`: fits whose run folder can be continued after any interruption.

The folder holds the resolved config and the checkpoint from the beginning on. Continuing reads both: the same config makes the same
program, whose fingerprint the checkpoint carries. History, plots and report are written at the end, each whole or not at all.
"""

import csv
import dataclasses
import io
import pathlib
import time
from typing import Any

import numpy as np
import rich.console
import yaml

from jaxdae import tuning
from jaxdae.app import files, interrupts, opened, run_folder
from jaxdae.app.build import Worlds
from jaxdae.app.objective import Objective, objective, optimizer, tuned_values
from jaxdae.app.precision import precision
from jaxdae.app.problems import Failed, Refused
from jaxdae.app.run import begin, finish
from jaxdae.app.run_folder import CHECKPOINT, CONTROLS, HISTORY, TUNED
from jaxdae.app.schema import Config
from jaxdae.app.schema_tuning import Optimize, Tune
from jaxdae.app.style import line_style, styled
from jaxdae.tuning.checkpoint import CheckpointError

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
    resume: opened.Opened | None = None,
) -> Learned:
    """Runs the section of a command, `tune` or `optimize`, in a new folder or in the one to be continued.

    Args:
        config: a config that has the section.
        worlds: its worlds.
        command: the name of the section, for the record.
        console: for progress.
        parent: where a new run folder is made.
        source: the file of the config, for the record.
        resume: the run folder to continue, which the caller keeps locked.

    Raises:
        Refused: no folder can be made there, or a checkpoint of another fit.
        Failed: the disk let the fit down on the way.
        ValueError: a loss that is not finite at the start.
        KeyboardInterrupt: with what is left behind in words.
    """
    if resume is not None:
        resume.record["learned"]["resumed"] += 1
        return _continuable(config, worlds, command, console, resume.folder, resume.record)
    folder, record = begin(config, parent, source)
    with opened.lock(folder):
        record |= {"learned": {"command": command, "resumed": 0}}
        return _continuable(config, worlds, command, console, folder, record)


def _continuable(
    config: Config, worlds: Worlds, command: str, console: rich.console.Console, folder: pathlib.Path, record: dict[str, Any]
) -> Learned:
    """Runs a fit in its folder, and says how it is continued where it is stopped."""
    told = f"{folder} is not complete; jaxdae {command} --resume {folder} continues it"
    try:
        run_folder.write_record(folder, record)
        return _learn(config, worlds, command, console, folder, record)
    except CheckpointError as error:
        raise Refused(f"--resume: {error}") from None
    except KeyboardInterrupt:
        interrupts.forget()
        finish(folder, record, "interrupted")
        raise KeyboardInterrupt(told) from None
    except OSError as error:
        raise Failed(f"{files.explained(error, folder)}; {told}") from error


def _learn(
    config: Config, worlds: Worlds, command: str, console: rich.console.Console, folder: pathlib.Path, record: dict[str, Any]
) -> Learned:
    """Runs a fit, from its checkpoint where there is one."""
    section: Tune | Optimize = getattr(config, command)
    started = time.perf_counter()
    with precision(config):
        found = objective(config, worlds, section)
        interrupts.check()
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
            checkpoint=tuning.Checkpoint(folder / CHECKPOINT, every=section.checkpoint_every),
        )
        controls = None if found.controls is None else [np.asarray(found.controls(p)) for p in (found.parameters, result.parameters)]
    _write(folder, config, section, found, result, controls)
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
    return Learned(folder, result, record)


class _Progress:
    """Prints loss and gradient norm now and then; called after every iteration."""

    def __init__(self, total: int, console: rich.console.Console):
        self._total, self._console, self._last = total, console, -np.inf

    def __call__(self, count: int, step: tuning.FitStep) -> None:
        interrupts.check()
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


def _write(
    folder: pathlib.Path, config: Config, section: Tune | Optimize, found: Objective, result: tuning.FitResult, controls: Any
) -> None:
    """Writes history, tuned config or controls, and plots."""
    history = {name: np.asarray(getattr(result.history, name)) for name in ("loss", "gradient_norm", "learning_rate", "update_norm")}
    columns = {"iteration": np.arange(1, section.iterations + 1), **history, "skipped": np.asarray(result.history.skipped).astype(int)}
    recorded = {name.replace("/", "."): np.asarray(x) for name, x in result.recorded.items()}
    scalars = {name: x for name, x in recorded.items() if x.ndim == 1}
    files.write_text(folder / HISTORY, _csv(columns | scalars))
    if controls is None:
        values = tuned_values(config, found, result.parameters)
        text = yaml.safe_dump(
            run_folder.resolved(Config.model_validate(values)), sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
        )
        files.write_text(folder / TUNED, text)
    else:
        instants = config.dt * np.arange(config.steps)
        names = [given.force for given in section.inputs] if isinstance(section, Optimize) else []
        files.write_text(folder / CONTROLS, _csv({"t": instants, **{name: controls[1][:, k] for k, name in enumerate(names)}}))
    if config.output.plots:
        with run_folder.pictures(folder) as place:
            _draw(place, config, history, np.asarray(result.history.skipped), scalars, list(found.parameters), controls)


def write_report(folder: pathlib.Path, config: Config, record: dict[str, Any]) -> None:
    """Writes the report of a finished fit beside its plots."""
    pictures = sorted(path.stem for path in (folder / run_folder.PLOTS).glob("*.png"))
    files.write_text(folder / run_folder.REPORT, report_text(config, record, pictures) + "\n")


def _csv(columns: dict[str, Any]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(np.asarray(x).tolist() for x in columns.values()), strict=True))
    return text.getvalue()


def _draw(folder: pathlib.Path, config: Config, history: Any, skipped: Any, scalars: Any, names: list[str], controls: Any) -> None:
    folder.mkdir(exist_ok=True)
    iterations = np.arange(1, len(skipped) + 1)
    with styled() as figure_class:
        figure = figure_class(figsize=(8, 6), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        for axes, key, label in ((upper, "loss", "loss"), (lower, "gradient_norm", "norm of the gradient")):
            axes.plot(iterations, np.where(skipped, np.nan, history[key]), **line_style(0))
            if np.all(history[key][~skipped] > 0):
                axes.set_yscale("log")
            axes.set_ylabel(label)
            for k in iterations[skipped]:
                axes.axvline(k, color="#d0d0d0", linewidth=0.8, zorder=0)
        upper.set_title(f"{config.name}" + (f": {int(skipped.sum())} iterations skipped (gray)" if skipped.any() else ""))
        lower.set_xlabel("iteration")
        figure.savefig(folder / "history.png")
        if scalars:
            figure = figure_class(figsize=(8, 1.2 + 1.8 * len(scalars)), layout="constrained")
            panels = figure.subplots(len(scalars), 1, sharex=True, squeeze=False)[:, 0]
            for k, (axes, (name, x)) in enumerate(zip(panels, scalars.items(), strict=True)):
                axes.plot(iterations, x, **line_style(k))
                axes.set_ylabel(name)
            panels[-1].set_xlabel("iteration")
            figure.savefig(folder / "parameters.png")
        if controls is not None:
            instants = config.dt * np.arange(config.steps)
            figure = figure_class(figsize=(8, 1.2 + 2.2 * len(names)), layout="constrained")
            panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
            for k, (axes, name) in enumerate(zip(panels, names, strict=True)):
                for which, label in ((0, "start"), (1, "optimized")):
                    axes.step(instants, controls[which][:, k], where="post", label=label, **line_style(1 - which))
                axes.set_ylabel(name)
            panels[0].legend()
            panels[-1].set_xlabel("time in s")
            figure.savefig(folder / "controls.png")

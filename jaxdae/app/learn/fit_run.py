"""`jaxdae tune` and `jaxdae optimize`: fits that can be continued after any interruption.

From the start, the run folder holds the resolved config and the checkpoint. A continued fit reads both. The
same config gives the same program, and the checkpoint stores its fingerprint. The history is written after
every checkpoint. Plots and report are written at the end, and again by `jaxdae plot`.
"""

import dataclasses
import pathlib
import shutil
import time
from typing import Any

import jax
import numpy as np
import rich.console
import yaml

from jaxdae import tuning
from jaxdae.app.config import safe_files
from jaxdae.app.config.precision import precision
from jaxdae.app.config.problems import Refused
from jaxdae.app.config.schema import Config
from jaxdae.app.config.schema_tuning import Optimize, Tune
from jaxdae.app.jobs.hosts import Hosts
from jaxdae.app.jobs.run_config import run as simulate
from jaxdae.app.jobs.run_record import begin, draw_finished, finish
from jaxdae.app.learn.fit_plots import draw_learned
from jaxdae.app.model.build import Worlds
from jaxdae.app.model.fit_history import History, table
from jaxdae.app.model.objective import Objective, objective, optimizer, tuned_values
from jaxdae.app.runs import interrupts, locks, open_run, run_folder
from jaxdae.app.runs.metrics import FitMetrics
from jaxdae.app.runs.progress import compiling, kernels_shown
from jaxdae.app.runs.run_folder import CHECKPOINT, CONTROLS, HISTORY, MOTION, OPTIMIZED, TUNED
from jaxdae.tuning.checkpoint import CheckpointError

_SECONDS_BETWEEN_LINES = 5.0


@dataclasses.dataclass(frozen=True)
class Learned:
    """Result of a fit.

    Attributes:
        folder: the run folder.
        result: the result of the fit.
        record: the content of `run.json`.
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
    resume: open_run.Opened | None = None,
    hosts: Hosts | None = None,
) -> Learned | None:
    """Run the section of a command, `tune` or `optimize`, in a new run folder or in the folder to continue.

    Args:
        config: a config with the section. To continue a run, pass its own config, possibly with more
            iterations.
        worlds: the worlds of the config.
        command: the name of the section, for the record.
        console: console for the progress.
        parent: folder in which a new run folder is created.
        source: the file of the config, for the record.
        resume: the run folder to continue, which the caller has locked.
        hosts: the processes that share the worlds; None for a single process. Process 0 writes the files.

    Returns:
        The result of the fit in process 0, None in the other processes.

    Raises:
        Refused: the folder cannot be created, or the checkpoint belongs to another fit.
        Failed: the disk failed during the fit.
        ValueError: the loss is not finite at the start.
        KeyboardInterrupt: the fit was interrupted; the message describes the state of the run folder.
    """
    if hosts is not None and hosts.index > 0:
        _help(config, worlds, command, None if resume is None else resume.folder / CHECKPOINT)
        hosts.meet()
        return None
    done = _learned_here(config, worlds, command, console, parent, source, resume)
    if hosts is not None:
        hosts.meet()
    return done


def check_divides(config: Config, command: str) -> None:
    """Raise `Refused` if a fit has a single world, which cannot be divided among processes."""
    if config.batch.size == 1 or not config.batch.vary:
        raise Refused(
            f"{command} --distributed: got one world, expected several worlds to divide; set batch.size and "
            "batch.vary"
        )


def _help(config: Config, worlds: Worlds, command: str, checkpoint: pathlib.Path | None) -> None:
    """Run this process's share of a fit without writing files.

    Start from the checkpoint if process 0 continues from it.
    """
    section = getattr(config, command)
    with precision(config):
        _fit(
            objective(config, worlds, section),
            section,
            None if checkpoint is None else tuning.Checkpoint(checkpoint),
        )


def _learned_here(
    config: Config,
    worlds: Worlds,
    command: str,
    console: rich.console.Console,
    parent: pathlib.Path,
    source: str,
    resume: Any,
) -> Learned:
    """Run a fit in this process, which writes the results."""
    if resume is not None:
        place = _Place(resume.folder, resume.record, config, command, complete=resume.record["complete"])
        return _finished(place, worlds, console)
    folder, record = begin(config, parent, source)
    with locks.lock(folder):
        return _finished(_Place(folder, record, config, command), worlds, console)


@dataclasses.dataclass
class _Place:
    """Run folder of a fit.

    Attributes:
        folder: the folder.
        record: the content of its `run.json`.
        config: the config of the fit, possibly with more iterations than the config in the record.
        command: `tune` or `optimize`.
        taken: whether this fit has written to the folder.
        complete: whether the folder on disk holds a finished run.
    """

    folder: pathlib.Path
    record: dict[str, Any]
    config: Config
    command: str
    taken: bool = False
    complete: bool = False

    @property
    def section(self) -> Tune | Optimize:
        """Return the section of the config that defines the fit."""
        return getattr(self.config, self.command)

    @property
    def told(self) -> str:
        """Describe the state of the folder for a fit that ends early."""
        if self.complete:
            return f"the results in {self.folder} are complete; use jaxdae plot {self.folder} to draw them"
        return f"{self.folder} is not complete; jaxdae {self.command} --resume {self.folder} continues it"

    def take(self) -> None:
        """Write the config and mark the run as in progress; remove the record of a previous end."""
        if self.taken:
            return
        with interrupts.held():
            resolved = run_folder.resolved(self.config)
            if self.record["config"] != resolved:
                run_folder.write_config(self.folder, self.config)
            before = self.record.get("learned")
            learned = {"command": self.command, "resumed": 0 if before is None else before["resumed"] + 1}
            self.record |= {
                "config": resolved,
                "finished": None,
                "complete": False,
                "digests": {},
                "learned": learned,
            }
            self.record.pop("stopped", None)
            # The motion belongs to outdated inputs. Remove it first: a record without it is still consistent.
            shutil.rmtree(self.folder / MOTION, ignore_errors=True)
            run_folder.write_record(self.folder, self.record)
            self.taken, self.complete = True, False


def _finished(place: _Place, worlds: Worlds, console: rich.console.Console) -> Learned:
    """Run a fit to its end; if it stops early, report how to continue it."""
    clock = time.perf_counter()
    try:
        found, result = _fitted(place, worlds, console)
        with interrupts.held():
            _write(place, found, result)
            finish(
                place.folder,
                place.record,
                learned=_learned(place, result),
                timing={"wall_s": time.perf_counter() - clock},
            )
            place.complete = True
    except CheckpointError as error:
        raise Refused(f"--resume: {error}") from None
    except KeyboardInterrupt:
        interrupts.forget()
        if place.taken and not place.complete:
            finish(place.folder, place.record, "interrupted")
        raise KeyboardInterrupt(place.told) from None
    except OSError as error:
        raise run_folder.failed(error, place.folder, place.told) from error
    draw_finished(draw, place.folder, place.config, place.record)
    if place.command == "optimize" and place.config.output.plots:
        _write_motion(place.folder, console)
    return Learned(place.folder, result, place.record)


def _fitted(
    place: _Place, worlds: Worlds, console: rich.console.Console
) -> tuple[Objective, tuning.FitResult]:
    """Run a fit from its checkpoint, if one exists."""
    section, history = place.section, History(place.folder / HISTORY)
    if not (place.folder / CHECKPOINT).exists():
        place.take()

    def saved(told: tuning.FitStep, recorded: dict[str, Any]) -> None:
        # An existing checkpoint has been verified by now, so the folder of another fit stays unchanged.
        with interrupts.held():
            place.take()
            history.write(told, recorded)
            metrics.add(told)

    metrics = FitMetrics(place.folder, section.iterations, place.config.batch.size, place.config.steps)
    with precision(place.config), kernels_shown(console):
        found = objective(place.config, worlds, section)
        interrupts.check()
        checkpoint = tuning.Checkpoint(place.folder / CHECKPOINT, every=section.checkpoint_every, saved=saved)
        compiling(console, _what_compiles(place.config, found))
        result = _fit(found, section, checkpoint, _Progress(section.iterations, console))
    return found, result


def _what_compiles(config: Config, found: Any) -> str:
    """Describe the program that the first iteration compiles."""
    count = sum(np.size(x) for x in jax.tree.leaves(found.parameters))
    mode = "forward" if isinstance(tuning.ByCount().chosen(count), tuning.Forward) else "reverse"
    worlds = "" if found.batch is None else f" of {config.batch.size} worlds"
    numbers = "1 number" if count == 1 else f"{count} numbers"
    return (
        f"the loss over {config.steps} steps{worlds} and its derivatives with respect to {numbers}, in "
        f"{mode} mode"
    )


def _fit(
    found: Any, section: Tune | Optimize, checkpoint: tuning.Checkpoint | None, progress: Any = None
) -> tuning.FitResult:
    """Run a fit with its worlds divided among all devices of all processes."""
    several = found.batch is not None and jax.device_count() > 1
    return tuning.fit(
        found.loss if found.batch_loss is None else found.batch_loss,
        found.parameters,
        optimizer(section),
        steps=section.iterations,
        trainable=found.trainable,
        batch=found.batch,
        clip=section.optimizer.clip,
        record=lambda numbers: numbers,
        progress=progress,
        checkpoint=checkpoint,
        mesh=jax.sharding.Mesh(np.asarray(jax.devices()), ("world",)) if several else None,
    )


def _learned(place: _Place, result: tuning.FitResult) -> dict[str, Any]:
    """Return the entry `learned` for the record of a finished fit."""
    return place.record["learned"] | {
        "loss_at_start": float(result.history.loss[0]),
        "loss": result.loss,
        "best_iteration": result.best_step,
        "iterations": place.section.iterations,
        "skipped": result.skipped,
        "parameters": {
            name.replace("/", "."): np.asarray(x).tolist() for name, x in result.parameters.items()
        },
    }


class _Progress:
    """Callback after every iteration that prints loss and gradient norm at intervals."""

    def __init__(self, total: int, console: rich.console.Console):
        self._total, self._console, self._last = total, console, -np.inf

    def __call__(self, count: int, step: tuning.FitStep) -> None:
        interrupts.check()
        now = time.perf_counter()
        if now - self._last < _SECONDS_BETWEEN_LINES and count + 1 < self._total:
            return
        self._last = now
        skipped = ", skipped" if step.skipped else ""
        text = (
            f"iteration {count + 1}/{self._total}: loss {step.loss:.6g} (best {step.best:.6g}), gradient "
            f"norm {step.gradient_norm:.3g}"
        )
        self._console.print(text + skipped, highlight=False, markup=False, soft_wrap=True)


def rows(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the main results of a fit as pairs of label and value."""
    learned = record["learned"]
    found = [
        (
            "loss",
            f"{learned['loss_at_start']:.6g} at the start, {learned['loss']:.6g} at iteration "
            f"{learned['best_iteration'] + 1}",
        ),
        (
            "iterations",
            f"{learned['iterations']}, {learned['skipped']} skipped, continued {learned['resumed']} times",
        ),
    ]
    for name, value in learned["parameters"].items():
        shown = (
            f"{value:.10g}"
            if isinstance(value, float)
            else f"{len(value)} knots from {min(value):.4g} to {max(value):.4g}"
        )
        found.append((name, shown))
    return found


def report_text(config: Config, record: dict[str, Any], pictures: list[str]) -> str:
    """Return the Markdown report of a fit; for an incomplete fit, the reason and the pictures."""
    command = record["learned"]["command"]
    lines = [f"# {config.name}: {command}", ""]
    if config.description:
        lines += [config.description.strip(), ""]
    reason = run_folder.incomplete(record)
    if reason:
        lines += [f"**The run is not complete:** {reason}. `jaxdae {command} --resume` continues it.", ""]
    else:
        what = (
            f"`jaxdae run {TUNED}` simulates the tuned mechanism."
            if command == "tune"
            else f"`{CONTROLS}` contains the inputs at every step; `jaxdae run {OPTIMIZED}` replays them."
        )
        lines += [
            "| | |",
            "|---|---|",
            *(f"| {label} | {value} |" for label, value in rows(record)),
            "",
            what,
            "",
        ]
    lines += [f"`{HISTORY}` contains every iteration.", ""]
    lines += [line for name in pictures for line in (f"![{name}]({run_folder.PLOTS}/{name}.png)", "")]
    return "\n".join(lines)


def _write(place: _Place, found: Objective, result: tuning.FitResult) -> None:
    """Write the tuned config, or the optimized inputs and their config."""
    config, section = place.config, place.section
    if found.controls is None:
        values = tuned_values(config, found, result.parameters)
        _write_config(place.folder / TUNED, Config.model_validate(values))
        return
    with precision(config):
        controls = np.asarray(found.controls(result.parameters))
    names = [given.force for given in section.inputs] if isinstance(section, Optimize) else []
    columns = {
        "t": config.dt * np.arange(config.steps),
        **{name: controls[:, k] for k, name in enumerate(names)},
    }
    safe_files.write_text(place.folder / CONTROLS, table(columns))
    _write_config(
        place.folder / OPTIMIZED,
        config.model_copy(update={"optimize": None, "tune": None}),
        controls=CONTROLS,
    )


def _write_config(file: pathlib.Path, config: Config, **others: Any) -> None:
    values = run_folder.resolved(config) | others
    safe_files.write_text(
        file, yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    )


def _write_motion(folder: pathlib.Path, console: rich.console.Console) -> None:
    """Simulate the optimized config as `jaxdae run` does, in a run folder inside the folder of the fit."""
    from jaxdae.app.draw.animate_run import animate
    from jaxdae.app.model.load_config import load

    config, worlds = load(str(folder / OPTIMIZED))
    done = simulate(config, worlds, folder, console, source=str(folder / OPTIMIZED))
    animate(done.folder, config)
    shutil.rmtree(folder / MOTION, ignore_errors=True)
    done.folder.rename(folder / MOTION)


def draw(folder: pathlib.Path, config: Config, record: dict[str, Any], pictures: bool) -> None:
    """Draw the plots of a fit if `pictures` is set, and write its report; use the data available so far."""
    drawn = []
    if pictures:
        with run_folder.pictures(folder) as place:
            drawn = draw_learned(folder, place, config, record)
    text = report_text(config, record, [file.stem for file in drawn])
    safe_files.write_text(folder / run_folder.REPORT, text + "\n")

"""Simulate the worlds of a run part by part, in one or many processes, without losing finished work.

A run consists of its folder: config, record, a store that is created completely at the start, and the started
parts (`jaxdae.app.jobs.parts`). A process takes the worlds of its share, skips complete parts, resumes from
checkpoints and fills its regions of the store. The process that sees all parts complete finishes the run: it
writes their summaries into `run.json` and deletes the folder of parts. Processes share nothing but files.
"""

import dataclasses
import os
import pathlib
import shutil
import time
from typing import Any

import jax
import numpy as np
import rich.console

from jaxdae.app.config import safe_files
from jaxdae.app.config.precision import precision
from jaxdae.app.config.problems import Refused
from jaxdae.app.config.schema import Config
from jaxdae.app.jobs import parts, watch
from jaxdae.app.jobs.run_record import Run, draw, draw_finished, finish
from jaxdae.app.model.build import Worlds
from jaxdae.app.runs import interrupts, locks, results, run_folder, run_report, verdicts
from jaxdae.app.runs.metrics import Metrics
from jaxdae.app.runs.progress import Progress, kernels_shown
from jaxdae.app.runs.result_grid import Grid, Range, grid
from jaxdae.app.runs.run_identity import check
from jaxdae.app.runs.simulate import Carried, Part, Simulator, Summary
from jaxdae.systems.status import Status

SECONDS_BETWEEN_CHECKPOINTS = 5.0
SECONDS_BETWEEN_LOOKS = 1.0


def grid_of(config: Config, worlds: Worlds) -> Grid:
    """Return the chunking of the results of a config."""
    return grid(config, results.entry_bytes(worlds.one()[0], 8 if config.precision == "float64" else 4))


@dataclasses.dataclass
class Shares:
    """A run folder in which a process works.

    Attributes:
        folder: the folder.
        record: the contents of its `run.json`.
        config: the config of the run.
        worlds: all of its worlds at their starts.
        console: the console for progress.
        number: the number of this process among the processes of the run; None for a single process.
        mesh: the devices of this process; None to follow `devices`.
        devices: the number of cores or devices; None to follow the config, which defaults to all.
        reports: whether this process reports the joint progress of all processes.
    """

    folder: pathlib.Path
    record: dict[str, Any]
    config: Config
    worlds: Worlds
    console: rich.console.Console
    number: int | None = None
    mesh: jax.sharding.Mesh | None = None
    devices: int | None = None
    reports: bool = False

    def __post_init__(self) -> None:
        """Determine the chunking of the results."""
        self.grid = grid_of(self.config, self.worlds)
        self._clock = time.perf_counter()
        self._shown: dict[Range, int] = {}  # stored instants of interrupted parts

    def all(self) -> Run:
        """Simulate all incomplete worlds, and finish the run.

        Raises:
            Failed: a disk error stopped the run.
            KeyboardInterrupt: with a message about the saved part of the run.
        """
        stopped = ""
        try:
            try:
                self._simulate((0, self.grid.size))
            except KeyboardInterrupt:
                interrupts.forget()
                stopped = "interrupted"
            with interrupts.held(), locks.turn(self.folder):
                self._end(stopped)
        except OSError as error:
            raise run_folder.failed(error, self.folder, self._left(self._way_on)) from error
        if stopped:
            raise KeyboardInterrupt(self._interrupted())
        draw_finished(draw, self.folder, self.config, self.record)
        return Run(self.config, self.folder, self._summary, self.record)

    def _go_on(self) -> bool:
        """Remove an earlier stop from the record; return whether the run is still incomplete.

        Another process may have finished the run in the meantime. Call this method while the lock of a part
        is held: a process that stops the run later sees the lock and leaves the record unchanged.
        """
        self._forget_end()
        with locks.turn(self.folder):
            there = run_folder.read_record(self.folder)
            if there.get("stopped"):
                run_folder.write_record(self.folder, self.record)
        return not there["complete"]

    @property
    def _ended(self) -> bool:
        """Whether the run is complete by now; the folder of its parts is then deleted."""
        return run_folder.read_record(self.folder)["complete"]

    def _check_not_ended(self) -> None:
        if self._ended:
            raise Refused(
                f"{self.folder}: got a run that another process has finished in the meantime; use jaxdae "
                "plot to draw it"
            )

    def _forget_end(self) -> None:
        for key in ("stopped", "written", "results", "timing", "layout", "digests"):
            self.record.pop(key, None)

    def share(self, index: int, count: int) -> str:
        """Simulate the incomplete worlds of a share, and return a summary in words.

        Raises:
            Refused: `count` exceeds the possible number of shares, or another process works on one of these
                worlds.
            Failed: a disk error stopped the run.
            KeyboardInterrupt: with a message about the saved part of the run.
        """
        within = self.grid.share(index, count)
        told = f"chunk {index} of {count}, worlds {within[0]} to {within[1] - 1}"
        try:
            done = self._simulate(within)
        except KeyboardInterrupt:
            interrupts.forget()
            raise KeyboardInterrupt(
                f"{told} of {self.folder} is not complete; repeat the same command to continue"
            ) from None
        except OSError as error:
            raise run_folder.failed(
                error, self.folder, self._left("repeat the same command to continue")
            ) from error
        return f"{told}: {'complete' if done else 'already complete'}"

    def failed(self, index: int, count: int) -> str:
        """Return the number and the statuses of failed worlds of a complete share; empty without failures."""
        within = self.grid.share(index, count)
        ended = results.last_status(self.folder / run_folder.RESULTS, within)
        failed = {name: number for name, number in ended.items() if name != Status.OK.name}
        how = ", ".join(f"{number} {name}" for name, number in failed.items())
        return (
            f"{sum(failed.values())} of worlds {within[0]} to {within[1] - 1} failed: {how}" if failed else ""
        )

    def wait(self) -> None:
        """Wait until the worlds of other processes are complete.

        This method polls files, because XLA limits the duration of an exchange between processes, and other
        processes may need hours more.

        Raises:
            KeyboardInterrupt: with a message about the saved part of the run.
        """
        said = time.monotonic()
        try:
            while self.grid.parts((0, self.grid.size), self._found()[0]) and not self._ended:
                time.sleep(SECONDS_BETWEEN_LOOKS)
                interrupts.check()
                if self.reports and time.monotonic() - said >= SECONDS_BETWEEN_CHECKPOINTS:
                    self.console.print(
                        f"all processes: {self._far()}", highlight=False, markup=False, soft_wrap=True
                    )
                    said = time.monotonic()
        except KeyboardInterrupt:
            interrupts.forget()
            raise KeyboardInterrupt(
                f"{self.folder} is not complete: {self._far()}; repeat the same command to continue"
            ) from None

    def _far(self) -> str:
        return watch.far(self._parts(), self.grid.size, self.config.steps)

    def merge(self, asked: str = "merge") -> Run:
        """Finish a run whose parts are all complete.

        Raises:
            Refused: parts are missing or incomplete; the message lists their worlds.
        """
        self._check_not_ended()
        complete, begun = self._found()
        open_ones = [
            f"{first} to {behind - 1}" for first, behind in self.grid.parts((0, self.grid.size), complete)
        ]
        if open_ones:
            more = f"; {len(begun)} of them have started" if begun else ""
            raise Refused(
                f"{asked}: got {self.folder}, where worlds {', '.join(open_ones[:5])} are missing{more}; "
                "simulate them first"
            )
        try:
            with interrupts.held(), locks.turn(self.folder):
                self._end("")
        except OSError as error:
            raise run_folder.failed(
                error, self.folder, self._left(f"run jaxdae merge {self.folder} again")
            ) from error
        draw_finished(draw, self.folder, self.config, self.record)
        return Run(self.config, self.folder, self._summary, self.record)

    def _found(self) -> tuple[list[Range], list[Range]]:
        """Return the complete and the incomplete parts of this run; reject parts of other runs."""
        found = self._parts()
        return [part.worlds for part in found if part.complete], [
            part.worlds for part in found if not part.complete
        ]

    def _parts(self) -> list[parts.Found]:
        found = parts.found(self.folder)
        for part in found:
            check(
                self.folder / parts.FOLDER,
                part.told["identity"],
                self.record["identity"],
                f"worlds {part.worlds[0]} to {part.worlds[1] - 1}",
            )
        return found

    def _planned(self, within: Range) -> list[Range]:
        """Return the incomplete parts of some worlds, in order."""
        complete, begun = self._found()
        # A process that finishes a run first marks it as complete, and then deletes the folder of its parts.
        if self._ended:
            return []
        # An earlier process may have used another partition: a started part belongs to the share with its
        # first world.
        mine = [worlds for worlds in begun if within[0] <= worlds[0] < within[1]]
        return sorted(mine + self.grid.parts(within, complete + begun))

    def _simulate(self, within: Range) -> int:
        """Simulate the incomplete parts of some worlds, and return the number of simulated parts."""
        planned, count = self._planned(within), 0
        if not planned:
            return 0
        try:
            self._check(within)
        except Refused:
            # Another process may have finished the run and removed the lists of its files.
            if self._ended:
                return 0
            raise
        threads, mesh = divided(self.devices or self.config.layout.devices)
        most = max(behind - first for first, behind in planned)
        simulator = Simulator(self.config, self.grid.block, self.mesh or mesh, threads, most)
        total = sum(behind - first for first, behind in planned)
        metrics = Metrics(self.folder, self.config.steps, self.number)
        others = self._far if self.reports else None
        finished = 0  # world steps
        shown = Progress(self.config.steps, self.console, total, others=others)
        with precision(self.config), shown as progress, kernels_shown(self.console):
            while planned:
                worlds = planned[0]
                size = worlds[1] - worlds[0]
                with parts.locked(self.folder, worlds):
                    # Check again: the previous holder of the lock may just have completed these worlds.
                    if worlds in self._planned(within) and self._go_on():
                        working = _Working(self, simulator, metrics, worlds)
                        working.run(
                            lambda done, size=size, before=finished: progress.update(before + done * size)
                        )
                        finished, count = finished + self.config.steps * size, count + 1
                planned = self._planned(within)
        return count

    def _check(self, within: Range) -> None:
        """Create the store of a new run; otherwise verify the written files of some worlds."""
        found = self._parts()
        if not found and not (self.folder / run_folder.RESULTS).exists():
            system, listed = self.worlds.one()[0], self.folder / parts.STORE
            listed.parent.mkdir(exist_ok=True)
            results.create(
                self.folder / run_folder.RESULTS,
                listed,
                self.config,
                self.grid,
                system,
                self.worlds.parameters,
            )
        parts.check_store(self.folder)
        parts.check_written(
            self.folder, self.grid, [part for part in found if within[0] <= part.worlds[0] < within[1]]
        )

    def _end(self, stopped: str) -> None:
        """Write the record of a complete or stopped run, unless other processes continue a stopped run."""
        self._check_not_ended()
        found = [part for part in parts.found(self.folder) if stopped or part.complete]
        if not stopped:  # Other jobs may still be writing otherwise.
            for folder in (self.folder / run_folder.RESULTS).glob("**/"):
                safe_files.remove_leftovers(folder)
        busy = bool(stopped) and parts.at_work(self.folder)
        digests = {} if busy else run_folder.digests(self.folder)
        if not stopped:
            # Verify all files again before marking the run as complete: a file may have changed during the
            # simulation.
            inside = {name.removeprefix(f"{run_folder.RESULTS}/"): digest for name, digest in digests.items()}
            parts.check_store(self.folder, inside.get)
            parts.check_written(self.folder, self.grid, found, inside.get)
        self._summary = summary = parts.merged(found)
        if not stopped and parts.overlap(found):
            summary.status = results.last_status(self.folder / run_folder.RESULTS)
        self._forget_end()
        told: dict[str, Any] = {}
        written = [[*part.worlds, self._shown.get(part.worlds, part.told["written"])] for part in found]
        # Plots need the nominal world.
        if any(first == 0 and entries for first, _, entries in written):
            told = {
                "results": _results(self.config, summary),
                "layout": summary.layout,
                "timing": self._timing(summary),
            }
        if stopped:
            stopped = f"{stopped} {self._far_of(found, summary)}"
            told["written"] = written
            if busy:
                self.record["stopped"] = f"{stopped}; other processes continue the run"
                return
        finish(self.folder, self.record, stopped, digests=digests, **told)
        if not stopped:
            shutil.rmtree(self.folder / parts.FOLDER, ignore_errors=True)

    def shown(self, worlds: Range, entries: int) -> None:
        """Record the number of stored instants of an interrupted part, including an incomplete chunk."""
        self._shown[worlds] = entries

    def _far_of(self, found: list[parts.Found], summary: Summary) -> str:
        """Return the finished steps, or with several parts the number of complete worlds, in words."""
        if self.grid.part >= self.grid.size:
            return f"after {summary.steps} of {self.config.steps} steps"
        count = sum(part.worlds[1] - part.worlds[0] for part in found if part.complete)
        return f"with {count} of {self.grid.size} worlds complete"

    @property
    def _way_on(self) -> str:
        return f"jaxdae run --resume {self.folder} continues it"

    def _left(self, way_on: str) -> str:
        return f"{self.folder} is not complete; {way_on}"

    def _interrupted(self) -> str:
        """Write the report of an interrupted run, and return a message about its saved part."""
        told = f"{self.folder} is not complete: {self.record['stopped']}; {self._way_on}"
        if "results" not in self.record:  # The nominal world is missing, or other processes continue.
            return told
        try:
            run_report.write(self.folder / run_folder.REPORT, self.config, self.record, [])
        except OSError as error:
            raise run_folder.failed(error, self.folder, self._left(self._way_on)) from error
        return f"{told}; use jaxdae plot {self.folder} to draw the results so far"

    def _timing(self, summary: Summary) -> dict[str, float]:
        seconds = max(summary.simulate_s, 1e-9)
        return {
            "compile_s": summary.compile_s,
            "simulate_s": summary.simulate_s,
            "wall_s": time.perf_counter() - self._clock,
            "worlds_per_s": self.worlds.size / seconds,
            "world_steps_per_s": self.worlds.size * summary.steps / seconds,
        }


class _Working:
    """The simulation of one part."""

    def __init__(self, run: Shares, simulator: Simulator, metrics: Metrics, worlds: Range):
        self._run, self._simulator, self._metrics, self._range = run, simulator, metrics, worlds
        self._worlds = run.worlds.part(*worlds)
        self._identity = run.record["identity"]
        start, store = simulator.carried(self._worlds), run.folder / run_folder.RESULTS
        found, listed = parts.resumed(run.folder, worlds, start), parts.listed(run.folder, worlds)
        self._carried, self._saved = start, time.monotonic()
        if found is None:
            self._summary, carried, done = Summary(), None, 0
            self._writer = results.Writer(store, run.grid, worlds, listed)
        else:
            told, carried, pending = found
            self._summary, done = Summary(**told["summary"]), told["steps"]
            self._carried = carried
            self._writer = results.Writer(store, run.grid, worlds, listed, told["written"], pending)
        self._part = Part(worlds[0], run.grid.size, carried, done)

    def run(self, progress: Any) -> None:
        """Simulate the part to its end; on an interrupt, write the results so far and a checkpoint."""
        self._metrics.begin(self._part.done)
        try:
            self._simulator.run(
                self._worlds, self._writer.add, progress, self._summary, self._part, self._after_block
            )
        except KeyboardInterrupt:
            with interrupts.held():
                interrupts.forget()
                if self._summary.steps:
                    self._run.shown(self._range, self._writer.flush())
                    self._save()
            raise
        with interrupts.held():
            parts.complete(self._run.folder, self._range, self._identity, self._writer, self._summary)

    def _after_block(self, carried: Carried) -> None:
        self._carried = carried
        self._metrics.add(self._range, self._summary)
        if time.monotonic() - self._saved >= SECONDS_BETWEEN_CHECKPOINTS:
            self._save()

    def _save(self) -> None:
        parts.save(self._run.folder, self._range, self._identity, self._carried, self._writer, self._summary)
        self._saved = time.monotonic()


def _results(config: Config, summary: Summary) -> dict[str, Any]:
    """Return the results section of `run.json` for a simulation, with the verdicts."""
    energy = verdicts.energy_balance(config, summary)
    return {
        "largest_violation": summary.largest_violation,
        "largest_velocity_violation": summary.largest_velocity_violation,
        "largest_velocity": summary.largest_velocity,
        "constraints": verdicts.constraints(config, summary),
        **({} if energy is None else {"energy_balance": energy}),
        "status": summary.status,
        "failure": summary.failure,
        "steps": summary.steps,
    }


# Distribute the worlds of a batch over CPU cores, with one thread per core, or over JAX devices.
#
# Measured with 64 worlds of Andrews' mechanism on two cores: one program over both cores takes 0.40 s, as on
# one core, because its operations are too short to be shared. Two threads take 0.19 s, and two host devices
# (`jax.shard_map`) take 0.18 s. All threads run one program, so no bit depends on the number of threads.
# Programs for several devices are fused differently, which changes the last bits (docs/layout.md explains
# why).


def divided(devices: int | None) -> tuple[int, jax.sharding.Mesh | None]:
    """Return the number of threads and the device mesh; None for all devices that JAX sees.

    Args:
        devices: the number of cores or devices; None for all.

    Raises:
        Refused: `devices` exceeds the number of devices.
    """
    if jax.default_backend() == "cpu":
        return devices or _cores(), None
    found = jax.local_devices()
    if devices is None:
        return 1, None
    if devices > len(found):
        raise Refused(
            f"--devices: got {devices}, expected at most {len(found)}, the number of devices that JAX sees"
        )
    return 1, jax.sharding.Mesh(np.asarray(found[:devices]), ("world",))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

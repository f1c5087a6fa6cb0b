"""Scenes of run folders, for `jaxdae view` and `jaxdae plot --html`."""

import dataclasses
import pathlib
import warnings
from typing import Any

import numpy as np
import yaml

import jaxdae
from jaxdae import robots
from jaxdae.app.config import safe_files
from jaxdae.app.config.config_source import CONFIG_BYTES
from jaxdae.app.config.precision import precision
from jaxdae.app.config.problems import Refused
from jaxdae.app.config.robot_section import words
from jaxdae.app.model import build, coordinate_names
from jaxdae.app.runs import open_run, results, run_folder
from jaxdae.viewer import (
    Arrows,
    Live,
    Look,
    Scene,
    contact_arrows,
    force_arrows,
    from_poses,
    reaction_arrows,
    show,
    with_robot,
    write_html,
)
from jaxdae.viewer.scenes import in_space, shown_instants

PAGE = "scene.html"
"""The file that `jaxdae plot --html` writes."""


class Seen:
    """The scene of a run.

    Args:
        found: the run folder.
        worlds: the number of worlds, from the first; None for all.
        all_instants: whether to read all saved instants; otherwise, only those that a screen can show.
        robot: the robot file; None for the robot file of the config, if it still exists.

    Attributes:
        scene: the scene.
        notes: unreadable visuals of the robot, in words.
    """

    def __init__(
        self,
        found: open_run.Opened,
        worlds: int | None = None,
        all_instants: bool = False,
        robot: pathlib.Path | None = None,
    ):
        """Read the instants.

        Raises:
            Refused: the run has no results.
        """
        store = found.folder / run_folder.RESULTS
        self._config = config = found.config
        with results.read(store, found.record.get("written")) as data:
            if not data.sizes["world"] or not data.sizes["time"]:
                raise Refused(
                    f"{found.folder}: got a run that stopped before its first saved state; jaxdae run "
                    "--resume continues it"
                )
            times = data.time.values
            data = data.isel(
                time=slice(None) if all_instants else shown_instants(times), world=slice(0, worlds)
            )
            self._worlds = data.world.values
            self._state = {name: data[name].values for name in ("q", "v", "lam")}
            self._contact_force = data.contact_force.values if "contact_force" in data else None
            self._row_forces = _row_forces(data)
            self._controls = data.u.values if "u" in data else None
            self._times = data.time.values
            poses = results.poses(data, len(config.mechanism.bodies)).values
            violation = data.violation.values
        self._poses = in_space(poses)
        with precision(config):
            self.scene = from_poses(
                self._mechanism(0),
                self._times,
                poses,
                violation=violation,
                title=config.title,
                shapes=config.mechanism.bodies,
            )
            self.notes: list[str] = []
            if config.mechanism.space == "space":
                self._show_robot(robot or _robot_file(found.record.get("source", "")), robot is not None)

    def _show_robot(self, file: pathlib.Path | None, asked: bool) -> None:
        """Replace the shapes of bodies by the visuals of the robot file, if there is one."""
        if file is None:
            return
        try:
            robot = robots.load(file)
            visuals, missing = robots.read_visuals(file)
            self.scene, wrong = with_robot(self.scene, robot.report, visuals, words(robot))
            self.notes += [*missing, *wrong]
        except ValueError as error:
            if asked:
                raise Refused(f"--robot: {error}") from None

    def _mechanism(self, world: int) -> Any:
        """Return the mechanism of a world, with its numbers."""
        locations, samples = build.sample(self._config)
        numbers = [float(column[self._worlds[world]]) for column in samples]
        made = build.construct(build.with_numbers(self._config.model_dump(), locations, numbers))[0]
        return coordinate_names.mechanism_of(made)

    def arrows(self, world: int) -> tuple[Arrows, ...]:
        """Return reactions, applied forces and contact forces of a world.

        The tuple is empty for first order, which has no forces.
        """
        if self._config.mechanism.order == "first":
            return ()
        with precision(self._config):
            mechanism = self._mechanism(world)
            q, v, lam = (self._state[name][world] for name in ("q", "v", "lam"))
            state, poses = jaxdae.State(self._times.astype(q.dtype), q, v), self._poses[world]
            controls = None if self._controls is None else self._controls[world]
            forces = None if self._row_forces is None else self._row_forces[world]
            found = (
                reaction_arrows(mechanism, state, lam, poses, controls, forces),
                force_arrows(mechanism, state, poses, controls),
            )
            if self._contact_force is None:
                return found
            return (*found, contact_arrows(mechanism, state, self._contact_force[world]))


def _row_forces(data: Any) -> np.ndarray | None:
    """Return the forces of contacts, limits and dry friction (world, time, n), or None without any."""
    names = [name for name in ("contact_force", "limit_force", "friction_force") if name in data]
    parts = [data[name].values for name in names]
    # No step ends at the start, which has NaN.
    flat = [np.nan_to_num(part.reshape(*part.shape[:2], -1)) for part in parts]
    return np.concatenate(flat, axis=2) if flat else None


def _robot_file(source: str) -> pathlib.Path | None:
    """Return the robot file of a config, if both files still exist."""
    try:
        section = yaml.safe_load(safe_files.read_text(pathlib.Path(source), CONFIG_BYTES))["mechanism"]
        file = pathlib.Path(source).parent / section["file"]
    except (OSError, safe_files.Unreadable, ValueError, yaml.YAMLError, KeyError, TypeError, RecursionError):
        return None
    return file if file.is_file() else None


def write_page(
    found: open_run.Opened, *, worlds: int | None, look: Look, robot: pathlib.Path | None = None
) -> tuple[pathlib.Path, list[str]]:
    """Write the HTML page of a run into its folder; return its file and notes for the user.

    Raises:
        Refused: the run has no results, or the folder is not writable.
        ModuleNotFoundError: viser is not installed.
    """
    seen, path = Seen(found, worlds, robot=robot), found.folder / PAGE
    scene = with_arrows(seen, look)
    safe_files.check_place(path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            write_html(scene, path, look=look)
        except OSError as error:
            raise Refused(safe_files.explained(error, path)) from error
    notes = seen.notes + [str(each.message) for each in told if issubclass(each.category, UserWarning)]
    if scene.pace != 1.0:
        notes.append(f"playback is {1.0 / scene.pace:.4g} times slower than real time")
    return path, notes


def with_arrows(seen: Seen, look: Look) -> Scene:
    """Return the scene of a run with the arrows of world 0 that a look selects."""
    return dataclasses.replace(seen.scene, arrows=seen.arrows(0)) if look.arrows else seen.scene


def live(
    found: open_run.Opened, *, worlds: int | None, port: int, robot: pathlib.Path | None = None
) -> tuple[Live, list[str]]:
    """Show a run live on loopback; return the view and notes for the user.

    Raises:
        Refused: the run has no results.
        ModuleNotFoundError: viser is not installed.
    """
    seen = Seen(found, worlds, robot=robot)
    return show(seen.scene, port=port, arrows=seen.arrows), seen.notes

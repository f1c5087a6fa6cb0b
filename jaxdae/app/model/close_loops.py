"""Close the loops of a config's mechanism, and report the open joints if the loop closure fails."""

import math
import re
import warnings

import annotated_types
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae.app.config.config_source import Document, value_at
from jaxdae.app.config.explain import field_at
from jaxdae.app.config.gap_lines import gap_lines, gap_units
from jaxdae.app.config.precision import precision
from jaxdae.app.config.problems import Problem
from jaxdae.app.config.schema import Config
from jaxdae.app.model import build, config_laws, coordinate_names
from jaxdae.app.model.build import Worlds
from jaxdae.app.model.config_laws import LawError
from jaxdae.integrators.contact_method import default_penetration
from jaxdae.mechanisms.describe.description_checks import DescriptionError
from jaxdae.vehicles import terrain_report

_UNIT = 1e-6  # report quaternions whose norm differs from one by more than this
_WORTH = 0.1  # fraction of the largest residual: smaller residuals are not reported
_CLOSED = 1e-3  # m or rad; far above the closure tolerance, far below the residual of an open loop


def close(config: Config, document: Document) -> tuple[Worlds | None, list[Problem]]:
    """Return the worlds of a config with closed loops, or None, and the problems found.

    Args:
        config: a config that conforms to its schema.
        document: the source of the config, which gives the locations of the problems.
    """
    problems = _outside_of_bounds(config, document)
    if problems:
        return None, problems
    with precision(config):
        try:
            worlds = build.worlds(config)
        except DescriptionError as error:
            return None, [_unsound(document, mistake) for mistake in error.mistakes]
        except LawError as error:
            return None, [
                document.problem(
                    ("control",),
                    f"a regulator that does not exist: {error}",
                    "a start that constant inputs can hold",
                )
            ]
        except ValueError as error:
            named = re.match(r"(body|joint|force|drive) '([^']+)'", str(error))
            what, name = (named[1], named[2]) if named else ("", "")
            return None, [_unsound(document, (what, name, str(error)))]
        failed = np.flatnonzero(worlds.closed.status == jaxdae.Status.INCONSISTENT_START)
        if failed.size:
            # Non-finite rows are not open loops: a wheel that lies flat has no contact point to measure.
            lying = (
                []
                if np.all(np.isfinite(worlds.closed.residual[0]))
                else _off_terrain(config, document, worlds)
            )
            return None, lying or [_open(config, document, worlds, failed)]
        found = [*_off_terrain(config, document, worlds), *_penetrating(config, document, worlds)]
        return (None, found) if found else (worlds, found)


def _unsound(document: Document, mistake: tuple[str, str, str]) -> Problem:
    """Return the problem for an error that the library finds in an element, such as parallel axes."""
    what, name, text = mistake
    key = {"body": "bodies"}.get(what, f"{what}s")
    elements = value_at(document.data, ("mechanism", key)) or ()
    index = next((k for k, element in enumerate(elements) if value_at(element, ("name",)) == name), None)
    place = ("mechanism",) if index is None else ("mechanism", key, index)
    what = what or "mechanism"
    return document.problem(place, f"a {what} that cannot be built: {text}", f"a valid {what}")


def _outside_of_bounds(config: Config, document: Document) -> list[Problem]:
    """Return a problem for each varied number that is outside its allowed range in some world."""
    problems = []
    data = config.model_dump()
    locations, samples = build.sample(config)
    for index, (location, column) in enumerate(zip(locations, samples, strict=True)):
        field = field_at(Config, data, location)
        for bound in field[1] if field else ():
            if isinstance(bound, annotated_types.Gt):
                outside, limit = column <= bound.gt, f"> {bound.gt}"
            elif isinstance(bound, annotated_types.Ge):
                outside, limit = column < bound.ge, f">= {bound.ge}"
            else:
                continue
            if np.any(outside):
                got = (
                    f"{np.sum(outside)} of {len(column)} sampled values out of range, the smallest "
                    f"{column.min():.4g}"
                )
                place = ("batch", "vary", index)
                problems.append(
                    document.problem(
                        place,
                        got,
                        f"values {limit} in every world",
                        "reduce the spread, or use a uniform distribution between low and high",
                    )
                )
    return problems


def _off_terrain(config: Config, document: Document, worlds: Worlds) -> list[Problem]:
    """Return a problem for each wheel that is off its terrain or touches it twice, in the nominal world."""
    system, _, state = worlds.one()
    mechanism = coordinate_names.mechanism_of(system)
    if not any(group.margins for group in mechanism.joints.values()):
        return []
    report = terrain_report(mechanism, state.q)
    problems = []
    for name, inside, margin in zip(
        report.names, np.asarray(report.inside), np.asarray(report.margin), strict=True
    ):
        if inside and margin > 0.0:
            continue
        place = _of_joint(config, name)
        if inside:
            problems.append(
                document.problem(
                    place,
                    f"a wheel that touches the ground at two points ({name})",
                    "a single contact point",
                    "move the start position",
                )
            )
        else:
            problems.append(
                document.problem(
                    place,
                    f"a wheel that starts beyond its terrain ({name})",
                    "a start on the terrain",
                    "move the start position",
                )
            )
    return problems


def _of_joint(config: Config, joint: str) -> tuple[str | int, ...]:
    """Return the location of a joint in a config."""
    index = next((i for i, element in enumerate(config.mechanism.joints) if element.name == joint), None)
    return ("mechanism", "joints") if index is None else ("mechanism", "joints", index)


def _open(config: Config, document: Document, worlds: Worlds, failed: np.ndarray) -> Problem:
    """Return the problem for the worlds without a consistent initial state; `failed` holds their indices."""
    world = int(failed[0])
    where = f" in {failed.size} of {worlds.size} worlds, the first of them {world}" if worlds.size > 1 else ""
    residual = np.nan_to_num(np.abs(worlds.closed.residual[world]), nan=np.inf)
    system = worlds.one(world)[0]
    if np.max(residual, initial=0.0) < _CLOSED:
        gap = worlds.closed.gap
        if gap is not None and np.min(gap[world], initial=0.0) < -_CLOSED:
            held = ", ".join([*config.start.fixed, *config.start.positions])
            got = f"bodies or joints that penetrate by {-np.min(gap[world]):.3g} m or rad{where}"
            remedy = f"do not keep the start positions of {held}" if held else "move the start poses"
            return document.problem(("start", "separate"), got, "bodies that can be separated", remedy)
        rate = worlds.closed.velocity_violation[world]
        got = f"start velocities that violate the joints by {rate:.3g} m/s or rad/s{where}"
        remedy = (
            f"give fewer velocities; the mechanism has {diagnosis(config, worlds).mobility} degrees of "
            "freedom"
        )
        return document.problem(("start", "velocities"), got, "velocities that keep the loops closed", remedy)
    row = system.row_names[int(np.argmax(residual))]
    joint = row.rsplit(".", 1)[0]
    place = _of_joint(config, joint)
    unit = system.names.row_units[int(np.argmax(residual))]
    # Least squares spreads the closure error over the joints, so no single joint shows all of it.
    others = [
        f"{system.row_names[k]} ({residual[k]:.3g})"
        for k in np.argsort(-residual)[1:5]
        if residual[k] > _WORTH * residual.max()
    ]
    spread = f", also at {', '.join(others)}" if others else ""
    got = f"loops that do not close: {residual.max():.3g} {unit} stay open at {row}{spread}{where}"
    named = ", ".join([*config.start.fixed, *config.start.positions])
    held = f", or remove {named} from start.fixed" if named else ""
    return document.problem(
        place, got, "bodies that the joints can hold together", f"check lengths, places and start poses{held}"
    )


def diagnosis(config: Config, worlds: Worlds) -> jaxdae.interfaces.Diagnosis:
    """Return mobility, rank, conditioning and redundant joints at the initial state of the nominal world."""
    with precision(config):
        system, _, state = worlds.one()
        return jaxdae.diagnose(system, state)


def gaps(config: Config, worlds: Worlds) -> list[str]:
    """Return lines with the gaps of contacts and joint limits at the start of the nominal world."""
    system, _, state = worlds.one()
    mechanism = coordinate_names.mechanism_of(system)
    if not mechanism.gap_names:
        return []
    with precision(config):
        return [*gap_lines("contacts and limits", mechanism, mechanism.touch(state.t, state.q))]


def _penetrating(config: Config, document: Document, worlds: Worlds) -> list[Problem]:
    """Return a problem for each contact or limit that is violated in the nominal world.

    The tolerances are those of `Touching`.
    """
    system, _, state = worlds.one()
    mechanism = coordinate_names.mechanism_of(system)
    if not mechanism.gap_names:
        return []
    with precision(config):
        touch = mechanism.touch(state.t, state.q)
        given = config.contact_step.penetration
        largest = default_penetration(mechanism, touch) if given is None else np.full(touch.gap.shape, given)
    contacts = {contact.name: k for k, contact in enumerate(config.mechanism.contacts)}
    problems = []
    gaps = zip(mechanism.gap_names, np.asarray(touch.gap), np.asarray(largest), gap_units(touch), strict=True)
    for name, gap, depth, unit in gaps:
        if gap >= -depth:
            continue
        first = name.split(".")[0]
        place = ("mechanism", "contacts", contacts[first]) if first in contacts else _of_joint(config, first)
        got = f"a start beyond {name} by {-gap:.3g} {unit}"
        problems.append(
            document.problem(place, got, "a start without penetration", "move the start position")
        )
    return problems


def stable_step(config: Config, worlds: Worlds) -> list[str]:
    """Return a line with the largest stable step at the initial state of the nominal world.

    The list is empty for first-order mechanisms.
    """
    system, integrator, state = worlds.one()
    if system.first_order:
        return []
    method = integrator.integrator if isinstance(integrator, config_laws.Remembering) else integrator
    longest = max(1.0, 10.0 * config.dt)
    try:
        with precision(config), warnings.catch_warnings():
            warnings.simplefilter("ignore", jaxdae.StateWarning)  # Another line reports open loops.
            limit = jaxdae.stable_step(system, state, method, longest=longest)
    except ValueError as error:
        return [f"{'stable step':<28}unknown: {str(error).removeprefix('stable_step: ')}"]
    if limit >= longest:
        return [f"{'stable step':<28}above {longest:.3g} s"]
    verdict = (
        f"shorter than dt = {config.dt:.3g} s, so the run ends with UNSTABLE; choose a smaller dt"
        if limit < config.dt
        else f"dt = {config.dt:.3g} s"
    )
    return [f"{'stable step':<28}{limit:.3g} s at the start; {verdict}"]


def moved(config: Config, worlds: Worlds) -> list[tuple[str, float]]:
    """Return the change of each coordinate of the nominal world by the loop closure.

    Rotations in space are about the axes of the body.
    """
    system, _, state = worlds.one()
    with precision(config):
        change = np.asarray(system.difference(jnp.asarray(worlds.guess[0]), state.q), float)
    names = {number: name for name, number in reversed(coordinate_names.of_system(system).rates.items())}
    return [(names[number], float(by)) for number, by in enumerate(change)]


def notes(config: Config) -> list[str]:
    """Return notes about a config that are not errors: quaternions that were normalized."""
    if config.mechanism.space != "space":
        return []
    lengths = {
        body.name: math.hypot(*body.pose.quaternion)
        for body in config.mechanism.bodies
        if body.pose.quaternion is not None
    }
    return [
        f"bodies.{name}.pose.quaternion has length {length:.6g}; it is normalized"
        for name, length in lengths.items()
        if abs(length - 1.0) > _UNIT
    ]

"""Time-varying inputs and feedback laws in configs: driven forces, and the control law of the integrator.

The integrator evaluates a law at the start of every step and holds its input over the step, like a digital
controller. The input of a law with memory at a saved time depends on its memory at this time. Trajectories do
not store this memory, so `Remembering` adds it to the report of every step.
"""

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae import control
from jaxdae.app.config import safe_files
from jaxdae.app.config.config_source import Document, Location, value_at
from jaxdae.app.config.problems import Problem, did_you_mean, show
from jaxdae.app.config.schema_mechanism import TYPES, space_of
from jaxdae.app.model import coordinate_names, driven_forces
from jaxdae.app.model.fit_history import read_table
from jaxdae.base.dataclass import function_field, pytree, static
from jaxdae.control.law import has_memory, update_law
from jaxdae.control.linear_model import count_dimension
from jaxdae.integrators import StepInfo
from jaxdae.integrators.method import PointWrapping

_EARLY = 1e-3  # fraction of a step

LARGEST_TABLE = 50_000_000
"""The maximum size of an input file in bytes."""


def driven_names(values: dict[str, Any]) -> list[str]:
    """Return the names of the forces that a table of inputs or a law drives, in the order of the inputs."""
    table, law = values.get("controls"), values.get("control")
    return list(table["inputs"]) if table else list(law["inputs"]) if law else []


def with_inputs(values: dict[str, Any]) -> dict[str, Any]:
    """Return the plain values of a config in which the driven forces read inputs."""
    names = driven_names(values)
    if not names or values["mechanism"]["order"] == "first":
        return values
    forces = [
        driven_forces.with_input(force, names.index(force["name"])) if force["name"] in names else force
        for force in values["mechanism"]["forces"]
    ]
    return values | {"mechanism": values["mechanism"] | {"forces": forces}}


def sampled(values: dict[str, Any], system: Any, state: Any, method: Any) -> Any:
    """Wrap the integrator of a config in its control law; return the integrator itself without a law.

    Args:
        values: the plain values of the config, which may be traced.
        system: the mechanism.
        state: the initial state, with closed loops.
        method: the integrator.
    """
    table, law = values.get("controls"), values.get("control")
    if values["mechanism"]["order"] == "first":
        return control.Sampled(method, _of_drives(values, system, state))
    if table:
        return control.Sampled(method, _held(table, values["dt"], state.q.dtype))
    if not law:
        return method
    found = _LAWS[law["type"]](law, system, state)
    if has_memory(found):
        return Remembering(control.Sampled(method, found))
    if law["lower"] is not None or law["upper"] is not None:
        found = control.Saturated(found, law["lower"], law["upper"])
    return control.Sampled(method, found)


@jaxdae.tree.pytree
class RememberedInfo(StepInfo):
    """Step report with the memory of the law after the step, and the energy account or contacts if available.

    Attributes:
        memory: the memory of the law.
        account: the energy account.
        contacts: the `ContactInfo` of the step.
    """

    memory: Any
    account: Any = None
    contacts: Any = None


@jaxdae.tree.pytree
class Remembering(PointWrapping):
    """Wrapper of `Sampled` that adds the memory of its law to the step reports."""

    integrator: Any

    def advance(
        self, system: Any, point: Any, memory: Any, u: Any, dt: Any
    ) -> tuple[Any, Any, RememberedInfo]:
        """Return the point after dt, the new memory and the step report."""
        point, memory, info = self.inner.advance(system, point, memory, u, dt)
        account = getattr(info, "account", None)
        contacts = info if isinstance(info, jaxdae.contact.ContactInfo) else None
        return (
            point,
            memory,
            RememberedInfo(**info.common(), memory=memory[1], account=account, contacts=contacts),
        )


def memory_at_start(integrator: Any, memory: Any) -> Any:
    """Extract the memory of a law from the memory of its integrator; () if the law has no memory."""
    return memory[1] if isinstance(integrator, Remembering) else ()


def memory_after(info: Any) -> Any:
    """Extract the memory of a law from a step report; () if the law has no memory."""
    return info.memory if isinstance(info, RememberedInfo) else ()


def contacts_after(info: Any) -> Any:
    """Extract the report of contacts from a step report."""
    return info.contacts if isinstance(info, RememberedInfo) else info


def input_of(integrator: Any, state: Any, memory: Any, dt: Any) -> Any:
    """Return the input of the law around an integrator at a state, held over dt; None without a law."""
    if isinstance(integrator, Remembering):
        return update_law(integrator.integrator.law, state.t, state, memory, dt)[0]
    return integrator.law(state.t, state) if isinstance(integrator, control.Sampled) else None


def input_units(values: dict[str, Any]) -> list[str]:
    """Return the units of the driven forces, in the order of the inputs."""
    forces, joints = ({x["name"]: x for x in values["mechanism"][key]} for key in ("forces", "joints"))
    types = TYPES[space_of(values["mechanism"])]

    def unit(force: dict[str, Any]) -> str:
        if "joint" not in force:
            return "N m"
        joint: Any = types[joints[force["joint"]]["type"]]
        coordinates = joint.coordinates
        return "N" if coordinates[force.get("along") or next(iter(coordinates))] == "m" else "N m"

    return [unit(forces[name]) for name in driven_names(values)]


@pytree
class _Drives:
    """Inputs of all drives: constant values, some of which a law replaces.

    Attributes:
        values: constant inputs (nu,).
        law: law for some of the inputs, or None.
        numbers: indices of the inputs that the law gives (static).
    """

    values: Any
    law: Any = function_field(default=None)
    numbers: tuple[int, ...] = static(default=())

    def __call__(self, t: Any, state: Any) -> Any:
        """Return u (nu,)."""
        return (
            self.values
            if self.law is None
            else self.values.at[np.asarray(self.numbers)].set(self.law(t, state))
        )


def _of_drives(values: dict[str, Any], system: Any, state: Any) -> Any:
    """Return the law of the drives of a first-order mechanism: constants, a table or a feedback law."""
    section, table = values["mechanism"], values.get("controls")
    law: Any = values.get("control")
    names = [drive["name"] for drive in section["drives"]]
    constant = jnp.stack([jnp.asarray(section["rates"].get(name, 0.0), state.q.dtype) for name in names])
    if table:
        found: Any = _held(table, values["dt"], state.q.dtype)
    elif law:
        found = control.PD(**_output(law, system), kp=law["kp"], kd=law["kd"])
        if law["lower"] is not None or law["upper"] is not None:
            found = control.Saturated(found, law["lower"], law["upper"])
    else:
        return _Drives(constant)
    return _Drives(constant, found, tuple(names.index(name) for name in driven_names(values)))


def _held(table: dict[str, Any], dt: float, dtype: Any) -> control.HeldInputs:
    """Return a table of inputs as a law.

    Times within a thousandth of a step of a step boundary snap to it, because tables have few digits.
    """
    times = np.asarray(table["times"], float)
    steps = np.round(times / dt)
    snapped = np.where(np.abs(times / dt - steps) < _EARLY, steps * dt, times)
    # Do not snap two times to the same boundary: the table may express a jump by two close times.
    merged = np.diff(snapped) <= 0.0
    times = np.where(np.append(merged, False) | np.append(False, merged), times, snapped)
    columns = [jnp.asarray(column, dtype) for column in table["inputs"].values()]
    return control.HeldInputs(jnp.asarray(times, dtype), jnp.stack(columns, axis=1))


def _output(law: dict[str, Any], system: Any) -> dict[str, Any]:
    of = tuple(coordinate_names.of_system(system).places[name] for name in law["coordinates"])
    return {
        "model": system,
        "output": control.Coordinates(of),
        "reference": jnp.stack([jnp.asarray(x) for x in law["reference"]]),
    }


def _pd(law: dict[str, Any], system: Any, state: Any) -> Any:
    feedback = control.PD(**_output(law, system), kp=law["kp"], kd=law["kd"])
    return control.Sum((feedback, control.GravityCompensation(system))) if law["gravity"] else feedback


def _pid(law: dict[str, Any], system: Any, state: Any) -> Any:
    weight = control.GravityCompensation(system) if law["gravity"] else None
    gains = {name: law[name] for name in ("kp", "ki", "kd", "lower", "upper")}
    return control.PID(**_output(law, system), **gains, feedforward=weight)


def _computed_torque(law: dict[str, Any], system: Any, state: Any) -> Any:
    return control.ComputedTorque(**_output(law, system), kp=law["kp"], kd=law["kd"])


def _regulator(law: dict[str, Any], system: Any, state: Any) -> Any:
    weights = {name: law[name] for name in ("position_weight", "velocity_weight", "input_weight")}
    return control.linear_quadratic_regulator(system, state, **weights, dimension=law["dimension"])


class LawError(ValueError):
    """Error for a control law that does not exist."""


def regulated(law: dict[str, Any], system: Any, state: Any) -> int:
    """Return the dimension of the linear model of a regulator.

    Raises:
        LawError: nothing can move, constant inputs cannot hold the initial position, or no feedback returns
            the mechanism to it.
    """
    rest = jaxdae.State(state.t, state.q, jnp.zeros_like(state.v))
    try:
        dimension = count_dimension(system, rest, None)
        _regulator(law | {"dimension": dimension}, system, rest)
    except ValueError as error:
        raise LawError(str(error)) from None
    return dimension


_LAWS: dict[str, Callable[..., Any]] = {
    "pd": _pd,
    "pid": _pid,
    "computed_torque": _computed_torque,
    "regulator": _regulator,
}


# Checks.


def expand(document: Document) -> list[Problem]:
    """Replace the file name in `controls` by the content of the file, in place; return the problems."""
    place: Location = ("controls",)
    given, data = value_at(document.data, place), document.data
    if not isinstance(given, str) or not isinstance(data, dict):
        return []
    file = pathlib.Path(document.name).parent / given
    columns = None
    try:
        text = safe_files.read_text(file, LARGEST_TABLE)
        columns = read_table(file) if text else None
    except (OSError, safe_files.Unreadable, UnicodeDecodeError) as error:
        got = f"{given!r}, which is not readable ({getattr(error, 'strerror', None) or error})"
        return [
            document.problem(place, got, "a CSV file", "the path is relative to the folder of the config")
        ]
    except (ValueError, IndexError):
        pass
    if columns is None or "t" not in columns or len(columns) < 2 or not len(columns["t"]):
        expected = "numbers in a column t and one column per force, with the names in the first line"
        return [
            document.problem(
                place, f"{given!r}, which has another format", expected, "jaxdae optimize writes controls.csv"
            )
        ]
    times = columns.pop("t").tolist()
    data["controls"] = {"times": times, "inputs": {name: column.tolist() for name, column in columns.items()}}
    return []


def problems(document: Document, coordinates: dict[str, int] | None) -> Iterator[Problem]:
    """Yield the conflicts between inputs, laws and the rest of a config.

    Args:
        document: the config as written.
        coordinates: indices of the coordinates by name; None if errors make them unavailable.
    """
    given = [
        key
        for key in ("controls", "control", "optimize")
        if isinstance(value_at(document.data, (key,)), dict)
    ]
    if len(given) > 1:
        yield document.problem(
            (given[1],),
            f"{' and '.join(given)}",
            "one of them",
            "remove the others: they drive the same forces",
        )
    first = value_at(document.data, ("mechanism", "order")) == "first"
    if first:
        yield from _of_first_order(document)
    elements = value_at(document.data, ("mechanism", "drives" if first else "forces"))
    named = (
        {f["name"]: f for f in elements if isinstance(value_at(f, ("name",)), str)}
        if isinstance(elements, list)
        else {}
    )
    motors = [
        name for name, element in named.items() if first or str(element.get("type")) in driven_forces.NUMBERS
    ]
    rates = value_at(document.data, ("mechanism", "rates"))
    for name in rates if first and isinstance(rates, dict) else ():
        if name not in motors:
            yield document.problem(
                ("mechanism", "rates", name),
                f"the unknown drive {name!r}",
                "a drive",
                did_you_mean(name, motors, "one"),
                key=True,
            )
    what, expected = (
        ("drive", "a drive")
        if first
        else ("force", " or ".join(f"a {kind}" for kind in driven_forces.NUMBERS))
    )
    table, law = (
        value_at(document.data, ("controls", "inputs")),
        value_at(document.data, ("control", "inputs")),
    )
    places: list[tuple[Location, Any]] = [
        (("controls", "inputs", name), name) for name in (table if isinstance(table, dict) else ())
    ]
    places += [
        (("control", "inputs", k), name) for k, name in enumerate(law if isinstance(law, list) else ())
    ]
    seen = set()
    for place, name in places:
        if not isinstance(name, str):
            continue
        if name in seen:
            yield document.problem(
                place, f"{name!r} a second time", f"each {what} once", "remove one of them"
            )
        elif name not in motors:
            got = (
                f"the {what} {name!r} of type {show(named[name].get('type'))}"
                if name in named
                else f"the unknown {what} {name!r}"
            )
            yield document.problem(place, got, expected, did_you_mean(name, motors, "one"))
        elif not first and isinstance(named[name].get("torque"), list) and not any(named[name]["torque"]):
            yield document.problem(
                place,
                f"the torque {name!r} with the value [0, 0, 0]",
                "a torque with a direction",
                "give its direction, such as [0, 0, 1]",
            )
        seen.add(name)
    wanted = value_at(document.data, ("control", "coordinates"))
    for k, name in enumerate(wanted if isinstance(wanted, list) and coordinates is not None else ()):
        if isinstance(name, str) and name not in (coordinates or {}):
            remedy = did_you_mean(name, list(coordinates or {}), "one")
            yield document.problem(
                ("control", "coordinates", k),
                f"the unknown coordinate {name!r}",
                "a coordinate of the mechanism",
                remedy,
            )


def _of_first_order(document: Document) -> Iterator[Problem]:
    """Yield the problems of unsupported settings of a first-order mechanism.

    These are fits, maps, calibrations, laws other than pd, gravity compensation, start velocities,
    stabilization, and integrators that are not in `FIRST_ORDER`.
    """
    for key in ("tune", "optimize", "map", "calibrate"):
        if value_at(document.data, (key,)) is not None:
            yield document.problem(
                (key,), f"{key} with order first", f"{key} with order second only", f"remove {key}"
            )
    law = value_at(document.data, ("control", "type"))
    if isinstance(law, str) and law in _LAWS and law != "pd":
        yield document.problem(
            ("control", "type"), f"{law} with order first", "pd", "the other laws need forces"
        )
    if value_at(document.data, ("control", "gravity")) is True:
        yield document.problem(
            ("control", "gravity"),
            "gravity with order first",
            "no gravity",
            "remove it: bodies have no weight",
        )
    if value_at(document.data, ("start", "velocities")):
        remedy = "remove it: velocities follow from the drives"
        yield document.problem(("start", "velocities"), "start velocities with order first", "none", remedy)
    stabilization = value_at(document.data, ("stabilization",))
    if stabilization not in (None, "none") and value_at(stabilization, ("type",)) != "none":
        yield document.problem(
            ("stabilization",),
            "a stabilization with order first",
            "none",
            "remove it: it acts on accelerations",
        )
    integrator = value_at(document.data, ("integrator",))
    method = integrator if isinstance(integrator, str) else value_at(integrator, ("type",))
    if isinstance(method, str) and method not in FIRST_ORDER:
        got, expected = f"the integrator {method} with order first", ", ".join(FIRST_ORDER)
        yield document.problem(
            ("integrator",), got, f"one of {expected}", did_you_mean(method, FIRST_ORDER, "one")
        )


FIRST_ORDER = ("explicit_euler", "midpoint", "rk4")
"""The integration methods for first-order mechanisms."""

"""Reference problems of contact and friction: a system and its contacts from the formulas of a file.

The files name coordinates, parameters, and formulas of the mass matrix, forces, constraints, gaps and
tangents. `tests/reference/README.md` says where they come from.
"""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae as jd
from jaxdae.contact import ContactNewton, Touching
from jaxdae.systems.contacts import Touch

FOLDER = pathlib.Path(__file__).parent / "reference" / "contact"
FUNCTIONS = {name: getattr(jnp, name) for name in ("sin", "cos")} | {"pi": np.pi}


@functools.cache
def problem(name):
    """Return the content of a file."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def _array(name, formulas, parameters, t, q, v=None):
    """Return the values of formulas of the coordinates (n,)."""
    names = problem(name)["model"]["coordinates"]
    known = {**FUNCTIONS, **parameters, "t": t, **dict(zip(names, q, strict=True))}
    if v is not None:
        known |= {f"{coordinate}_t": rate for coordinate, rate in zip(names, v, strict=True)}
    values = [eval(formula, {"__builtins__": {}}, known) for formula in formulas]
    return (
        jnp.stack([jnp.asarray(value, q.dtype) for value in values]) if values else jnp.zeros((0,), q.dtype)
    )


@jd.tree.pytree
class Formulas(jd.System):
    """The system of a file, with its parameters as leaves."""

    parameters: dict
    name: str = jd.tree.static()

    def _of(self, field, *at):
        return _array(self.name, problem(self.name)["model"].get(field, []), self.parameters, *at)

    def mass_matrix(self, q):
        rows = problem(self.name)["model"]["mass_matrix"]
        return jnp.stack([_array(self.name, row, self.parameters, 0.0, q) for row in rows])

    def force(self, t, q, v, u):
        return self._of("force", t, q, v)

    def constraint(self, t, q):
        return self._of("constraints", t, q)


@jd.tree.pytree
class FormulaContacts:
    """The contacts of a file; those without tangents are one-sided rows."""

    parameters: dict
    name: str = jd.tree.static()

    def touch(self, at):
        model = problem(self.name)["model"]
        contacts, dry = model.get("contacts", []), model.get("dry_friction", [])
        tangents = max((len(contact["tangents"]) for contact in contacts), default=0)
        t, q = at.t, at.q

        def values(formulas):
            return _array(self.name, formulas, self.parameters, t, q)

        def gap(t, q):
            return _array(self.name, [contact["gap"] for contact in contacts], self.parameters, t, q)

        normals = jax.jacfwd(gap, argnums=1)(t, q)
        rates = jax.jvp(lambda t: gap(t, q), (t,), (jnp.ones_like(t),))[1]
        rows, drift = [], []
        for normal, rate, contact in zip(normals, rates, contacts, strict=True):
            rows += [normal, *(values(row) for row in contact["tangents"])]
            drift += [rate, *values(contact.get("drift", ["0"] * tangents))]
        rows += [values(row["row"]) for row in dry]
        drift += [jnp.zeros_like(q[0])] * len(dry)
        friction = values([contact["friction"] for contact in contacts])
        return Touch(
            gap(t, q),
            jnp.stack(rows),
            jnp.stack(drift),
            friction if tangents else friction[:0],
            values([contact["restitution"] for contact in contacts]),
            values([row["limit"] for row in dry]),
            max(tangents, 1),
            () if tangents else (False,) * len(contacts),
        )


@functools.partial(jax.jit, static_argnums=0)
def _motion(name, parameters, q, v, times, steps):
    """Return q and v at all times but the first, and the largest status."""
    system = Formulas(parameters, name)
    inner, contacts = jd.Projected(jd.RungeKutta.rk4()), FormulaContacts(parameters, name)
    integrator = Touching(inner, contacts=contacts, contact_solver=ContactNewton(10))
    start = jd.State(times[0], q, v)

    def interval(carry, bounds):
        first, last, count = bounds
        dt = (last - first) / count.astype(q.dtype)

        def step(_, carry):
            state, memory, worst = carry
            state, memory, info = integrator.step(system, state, memory, None, dt)
            return state, memory, jnp.maximum(worst, info.status)

        carry = jax.lax.fori_loop(0, count, step, carry)
        return carry, (carry[0].q, carry[0].v)

    carry = (start, integrator.init(system, start), jnp.zeros((), jnp.int32))
    (*_, worst), (q, v) = jax.lax.scan(interval, carry, (times[:-1], times[1:], steps))
    return q, v, worst


@functools.partial(jax.jit, static_argnums=0)
def _tangents(name, start, directions, times, steps):
    """Return the derivatives of q and v by parameters and start, one for each direction."""

    def derivative(direction):
        return jax.jvp(lambda *at: _motion(name, *at, times, steps)[:2], start, direction)[1]

    return jax.vmap(derivative)(directions)


class Case:
    """A case of a file: its start, its reference states, and their derivatives."""

    def __init__(self, name, case):
        self.name = name
        self.case = next(one for one in problem(name)["cases"] if one["name"] == case)
        initial = self.case["initial_conditions"]
        parameters = {key: jnp.asarray(float(value)) for key, value in self.case["parameters"].items()}
        self.start = (parameters, jnp.asarray(initial["q"], float), jnp.asarray(initial["v"], float))
        self.states = self.case["reference"]["states"]
        self.times = np.asarray([initial["t0"], *(state["t"] for state in self.states)])

    def _steps(self, dt):
        return jnp.asarray(np.ceil(np.diff(self.times) / dt - 1e-9).astype(int))

    def errors(self, dt):
        """Return the largest errors of q and v at the reference states, and the largest status."""
        q, v, worst = _motion(self.name, *self.start, jnp.asarray(self.times), self._steps(dt))
        expected = [np.asarray([state[key] for state in self.states]) for key in ("q", "v")]
        return float(np.max(np.abs(q - expected[0]))), float(np.max(np.abs(v - expected[1]))), int(worst)

    def derivative_errors(self, dt):
        """Return the errors of all derivatives by a parameter or an initial value, relative above 1."""
        coordinates = problem(self.name)["model"]["coordinates"]
        names = [*coordinates, *(f"{coordinate}_t" for coordinate in coordinates)]
        wanted = self.case["derivatives"]
        directions = [self._direction(one["by"].split("(")[0], names) for one in wanted]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *directions)
        q, v = _tangents(self.name, self.start, stacked, jnp.asarray(self.times), self._steps(dt))
        found = np.concatenate([q, v], axis=-1)
        at = [int(np.argmin(np.abs(self.times[1:] - one["at_t"]))) for one in wanted]
        of = [names.index(one["of"]) for one in wanted]
        value = np.asarray([one["value"] for one in wanted])
        return np.abs(found[np.arange(len(wanted)), at, of] - value) / np.maximum(1.0, np.abs(value))

    def _direction(self, name, names):
        parameters, q, _ = self.start
        rates = {key: jnp.asarray(float(key == name)) for key in parameters}
        assert name in rates or name in names, f"derivative by an unknown {name}"
        unit = jnp.asarray([float(one == name) for one in names])
        return rates, unit[: len(q)], unit[len(q) :]

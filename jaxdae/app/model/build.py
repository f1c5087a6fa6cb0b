"""Build the objects of the library from a config: mechanism, integrator and the initial states of all worlds.

Worlds differ in numbers of the config. One function of these numbers performs the whole construction, from
body and joint specifications to closed loops. Vectorizing this function gives all worlds, so every dependent
quantity varies consistently.
"""

import copy
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae import control, mechanisms
from jaxdae.app.config.config_elements import description
from jaxdae.app.config.config_source import Location, find, value_at
from jaxdae.app.config.schema import Config, Vary
from jaxdae.app.model import config_laws, coordinate_names

_METHODS = {
    "explicit_euler": jaxdae.ExplicitEuler,
    "semi_implicit_euler": jaxdae.SemiImplicitEuler,
    "taylor": jaxdae.textbook.Taylor,
    "lecture_taylor": lambda **roles: jaxdae.textbook.Taylor(jerk=False, **roles),
    "midpoint": jaxdae.RungeKutta.midpoint,
    "heun": jaxdae.RungeKutta.heun,
    "ralston3": jaxdae.RungeKutta.ralston3,
    "rk4": jaxdae.RungeKutta.rk4,
    "dormand_prince5": jaxdae.RungeKutta.dormand_prince5,
    "rkmk4": jaxdae.RungeKutta.rk4,
}
_FIRST_ORDER = {
    "explicit_euler": jaxdae.Kinematic.euler,
    "midpoint": jaxdae.Kinematic.midpoint,
    "rk4": jaxdae.Kinematic.rk4,
}
_ROUTES = {
    "sequential": jaxdae.textbook.Sequential,
    "projected_step": jaxdae.textbook.ProjectedStep,
    "projected_derivative": jaxdae.textbook.ProjectedDerivative,
}
_CLOSED = {
    "half_explicit4": jaxdae.HalfExplicitRungeKutta,
    "rattle": jaxdae.Rattle,
    "shake": functools.partial(jaxdae.Rattle, velocity_level=False),
    "velocity_stepping": control.VelocityStepping,
    "contact_stepping": jaxdae.contact.ContactStepping,
}
_IMPLICIT = {
    "discrete_euler_lagrange": jaxdae.DiscreteEulerLagrange,
    "backward_euler": jaxdae.BackwardEuler,
    "implicit_midpoint": jaxdae.ImplicitMidpoint,
    "generalized_alpha": jaxdae.GeneralizedAlpha,
    "radau_iia": jaxdae.RadauIIA,
}
_LAGRANGIANS = {"midpoint": jaxdae.MidpointLagrangian, "trapezoidal": jaxdae.TrapezoidalLagrangian}
_SOLVERS = {
    "auto": jaxdae.SchurComplement,  # Placeholder until the loops are closed; see `with_chosen_solver`.
    "dense_kkt": jaxdae.DenseKKT,
    "schur_complement": jaxdae.SchurComplement,
    "null_space": jaxdae.NullSpace,
    "least_squares": jaxdae.LeastSquares,
    "proximal": jaxdae.Proximal,
    "conjugate_gradient": jaxdae.ConjugateGradient,
    "biconjugate_gradient": jaxdae.BiconjugateGradient,
}
_DECOMPOSITIONS = {"qr": jaxdae.operators.HouseholderQR, "normal_equations": jaxdae.operators.NormalEquations}
_CONTACT_SOLVERS = {
    "robust": jaxdae.contact.Robust,
    "contact_newton": jaxdae.contact.ContactNewton,
    "interior_point": jaxdae.contact.InteriorPoint,
    "gauss_seidel": jaxdae.contact.GaussSeidel,
}
_STABILIZATIONS = {
    "none": jaxdae.NoStabilization,
    "baumgarte": jaxdae.Baumgarte,
    "multiplier_feedback": jaxdae.textbook.MultiplierFeedback,
}


_TOGETHER = 4096
"""Number of worlds whose loops are closed in one batch. A larger batch only uses more memory."""


@dataclasses.dataclass(frozen=True)
class Worlds:
    """All worlds of a config at their closed, consistent initial states.

    Attributes:
        system: the mechanism; leaves that differ between worlds are stacked along a leading world axis.
        integrator: the integrator, stacked in the same way.
        state: the initial states, all leaves stacked (world, ...).
        system_axes: 0 at the stacked leaves of `system`, None elsewhere.
        integrator_axes: 0 at the stacked leaves of `integrator`, None elsewhere.
        closed: report of the loop closure, leaves (world, ...).
        guess: coordinates before the loop closure, (world, nq).
        parameters: the varied numbers, by path, (world,).
    """

    system: Any
    integrator: Any
    state: jaxdae.State
    system_axes: Any
    integrator_axes: Any
    closed: jaxdae.interfaces.InitializeInfo
    guess: np.ndarray
    parameters: dict[str, np.ndarray]

    @property
    def size(self) -> int:
        """Return the number of worlds."""
        return len(self.guess)

    def one(self, world: int = 0) -> tuple[Any, Any, jaxdae.State]:
        """Return the system, integrator and initial state of a single world."""
        system, integrator = (
            jax.tree.map(
                lambda axis, x: x if axis is None else x[world], axes, stack, is_leaf=lambda x: x is None
            )
            for axes, stack in ((self.system_axes, self.system), (self.integrator_axes, self.integrator))
        )
        return system, integrator, jax.tree.map(lambda x: x[world], self.state)

    def part(self, first: int, behind: int) -> "Worlds":
        """Return the worlds first:behind, padded at the end with copies of the last world."""
        if (first, behind) == (0, self.size):
            return self

        def taken(axes: Any, stack: Any) -> Any:
            return jax.tree.map(
                lambda axis, x: x if axis is None else cut(x, first, behind),
                axes,
                stack,
                is_leaf=lambda x: x is None,
            )

        state, closed, guess = jax.tree.map(
            lambda x: cut(x, first, behind), (self.state, self.closed, self.guess)
        )
        parameters = {path: cut(column, first, behind) for path, column in self.parameters.items()}
        system, integrator = (
            taken(self.system_axes, self.system),
            taken(self.integrator_axes, self.integrator),
        )
        return Worlds(
            system, integrator, state, self.system_axes, self.integrator_axes, closed, guess, parameters
        )


def cut(x: Any, first: int, behind: int) -> Any:
    """Return x[first:behind]; if the array is too short, pad it with copies of its last entry.

    Args:
        x: the array (world, ...), a NumPy or JAX array.
        first: index of the first entry.
        behind: index after the last entry.
    """
    missing = behind - len(x)
    if missing <= 0:
        return x[first:behind]
    join, repeat = (np.concatenate, np.repeat) if isinstance(x, np.ndarray) else (jnp.concatenate, jnp.repeat)
    return join([x[first:], repeat(x[-1:], missing, axis=0)])


def worlds(config: Config) -> Worlds:
    """Return the worlds of a config; world 0 is the nominal world. Call this function inside `precision`.

    Raises:
        ValueError: `jaxdae.mechanisms.mechanism` rejects the description.
        LawError: the regulator does not exist.
    """
    values = with_dimension(config.model_dump())
    locations, samples = sample(config)

    def closed(numbers: Any) -> Any:
        return started(with_numbers(values, locations, numbers))

    size = config.batch.size
    together = min(size, _TOGETHER)
    many = jax.jit(jax.vmap(closed, in_axes=(0 if samples else None,), axis_size=together))
    found: list[Any] = []
    for first in range(0, size, together):
        # The last batch overlaps the previous one, so that all batches share one compiled program.
        at = min(first, size - together)
        some = many([jnp.asarray(column[at : at + together]) for column in samples])
        if size == together:
            found = [(*map(_shared_unstacked, some[:2]), *some[2:])]
            break
        found.append(_compact(jax.tree.map(lambda x, skip=first - at: np.asarray(x)[skip:], some)))
    made = found[0] if len(found) == 1 else _joined(found)
    (system, system_axes), (integrator, integrator_axes), state, info, guess = made
    state = jaxdae.State(jnp.broadcast_to(state.t, (size,)), state.q, state.v)
    parameters = {vary.path: column for vary, column in zip(config.batch.vary, samples, strict=True)}
    info = jax.tree.map(np.asarray, info)
    return Worlds(
        system, integrator, state, system_axes, integrator_axes, info, np.asarray(guess), parameters
    )


def construct(values: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return mechanism, initial q, initial v and integrator from plain values, possibly traced."""
    values = config_laws.with_inputs(values)
    section = values["mechanism"]
    chosen = (
        mechanisms.Joints(cut=tuple(section["cut"]))
        if section["coordinates"] == "joints"
        else mechanisms.Absolute()
    )
    made = mechanisms.kinematic_mechanism if section["order"] == "first" else mechanisms.mechanism
    system, q = made(description(values), chosen)
    entries = coordinate_names.of_system(system)
    for name, position in values["start"]["positions"].items():
        q = q.at[entries.places[name]].set(jnp.asarray(position, q.dtype))
    rates, v = entries.rates, [jnp.zeros((), q.dtype)] * len(system.names.velocities)
    for name, velocity in values["start"]["velocities"].items():
        v[rates[name]] = jnp.asarray(velocity, q.dtype)
    return system, q, jnp.stack(v), stepping(values, system)


def with_dimension(values: dict[str, Any]) -> dict[str, Any]:
    """Add the dimension of a regulator's linear model to the plain values; the values must be concrete.

    Raises the same errors as `worlds`.
    """
    if (values["control"] or {}).get("type") != "regulator":
        return values
    system, _, state, info, _ = jax.jit(lambda: _closed_start(values))()
    # `closing` reports open loops, and no law is evaluated in that case.
    dimension = (
        config_laws.regulated(values["control"], system, state) if int(info.status) == jaxdae.Status.OK else 1
    )
    return values | {"control": values["control"] | {"dimension": dimension}}


def started(values: dict[str, Any]) -> tuple[Any, Any, jaxdae.State, Any, Any]:
    """Return mechanism, integrator, consistent initial state, loop-closure report and q before closure.

    `values` are the plain values of a config, possibly traced.
    """
    system, method, state, info, guess = _closed_start(values)
    return system, config_laws.sampled(values, system, state, method), state, info, guess


def _closed_start(values: dict[str, Any]) -> tuple[Any, Any, jaxdae.State, Any, Any]:
    """Return the same values as `started`, without a control law around the integrator."""
    system, guess, velocities, method = construct(values)
    rates, start = coordinate_names.of_system(system).rates, values["start"]
    held = (
        np.isin(np.arange(velocities.shape[0]), [rates[name] for name in names])
        for names in ([*start["fixed"], *start["positions"]], start["velocities"])
    )
    fixed, fixed_velocity = held
    state, info = jaxdae.initialize(
        system,
        guess,
        velocities,
        fixed=fixed,
        fixed_velocity=fixed_velocity,
        contacts=start["separate"],
    )
    return system, method, state, info, guess


def stepping(values: dict[str, Any], system: Any) -> Any:
    """Return the integrator from the plain values of a config, with contact if the system needs it."""
    method = integrator(values)
    if not system.touches:
        return method
    step = dict(values["contact_step"])
    solver = {key: value for key, value in step.pop("solver").items() if value is not None}
    options = step | {"contact_solver": _CONTACT_SOLVERS[solver.pop("type")](**solver)}
    if isinstance(method, jaxdae.contact.ContactStepping):
        return dataclasses.replace(method, **options)
    return jaxdae.contact.Touching(method, **options)


def integrator(values: dict[str, Any]) -> Any:
    """Return the integrator from the plain values of a config, without contact."""
    solver, section = _solver(values["solver"]), values["integrator"]
    projection = _projection(section["projection"])
    if values["mechanism"]["order"] == "first":
        # Constraint rows and drives determine the velocities at every stage: no velocity projection.
        method = _FIRST_ORDER[section["type"]](solver=solver)
        position = None if projection is None else projection.position
        return (
            method
            if position is None
            else jaxdae.Projected(method, jaxdae.Projection(position=position, velocity=None))
        )
    if section["type"] == "adaptive":
        import diffrax

        method = {"tsit5": diffrax.Tsit5, "dopri5": diffrax.Dopri5, "dopri8": diffrax.Dopri8}[
            section["method"]
        ]()
        options = {key: section[key] for key in ("rtol", "atol", "max_steps")}
        stabilization = _stabilization(values["stabilization"])
        return jaxdae.diffrax.Adaptive(
            method=method, projection=projection, solver=solver, stabilization=stabilization, **options
        )
    method = _method(section, values["stabilization"], solver)
    return method if projection is None else jaxdae.Projected(method, projection)


def _projection(section: dict[str, Any] | None) -> jaxdae.Projection | None:
    if section is None or (section["position"] is None and not section["velocity"]):
        return None
    metric, origin = jaxdae.Metric(section["metric"]), jaxdae.Origin(section["origin"])
    position = None
    if section["position"] == "iterated":
        given = {key: section[key] for key in ("iterations", "tolerance") if section[key] is not None}
        position = jaxdae.PositionProjection(metric=metric, origin=origin, **given)
    elif section["position"] == "linear":
        position = jaxdae.textbook.LinearPositionProjection(metric=metric, origin=origin)
    return jaxdae.Projection(
        position=position, velocity=jaxdae.VelocityProjection(metric=metric) if section["velocity"] else None
    )


def _stabilization(section: dict[str, Any]) -> Any:
    gains = {key: jnp.asarray(gain) for key, gain in section.items() if key != "type"}
    return _STABILIZATIONS[section["type"]](**gains)


def _method(section: dict[str, Any], stabilization: dict[str, Any], solver: Any) -> Any:
    if section["type"] in _METHODS:
        return _METHODS[section["type"]](solver=solver, stabilization=_stabilization(stabilization))
    if section["type"] in _ROUTES:
        return _ROUTES[section["type"]](_method(section | {"type": section["of"]}, stabilization, solver))
    options = {
        key: value
        for key, value in section.items()
        if key not in ("type", "projection") and value is not None
    }
    if "of" in options:
        parts = _closed(options.pop("of"), {"iterations": 12} | options, solver)
        return getattr(jaxdae.Composition, section["type"])(parts)
    return _closed(section["type"], options, solver)


def _closed(name: str, options: dict[str, Any], solver: Any) -> Any:
    """Return a method that satisfies the constraints without projection, from the options of its section."""
    if name in _CLOSED:
        return _CLOSED[name](solver=solver, **options)
    method, kind = _IMPLICIT[name](solver=solver), options.pop("newton", "dense")
    keys = ("iterations", "factorizations", "tolerance") if kind == "dense" else ("iterations", "tolerance")
    given = {key: options[key] for key in keys if key in options}
    newton = dataclasses.replace(method.newton if kind == "dense" else jaxdae.SaddlePointNewton(), **given)
    others = {"rho_inf": options["rho_inf"]} if "rho_inf" in options else {}
    if "lagrangian" in options:
        others["lagrangian"] = _LAGRANGIANS[options["lagrangian"]]()
    return dataclasses.replace(method, newton=newton, **others)


def _solver(section: dict[str, Any]) -> Any:
    if section["type"] == "default":
        return None
    options = {key: value for key, value in section.items() if key != "type" and value is not None}
    if section["type"] == "null_space":
        kind = options.pop("decomposition")
        decomposition = (
            jaxdae.operators.SingularValues(**options) if kind == "svd" else _DECOMPOSITIONS[kind]()
        )
        return jaxdae.NullSpace(decomposition)
    return _SOLVERS[section["type"]](**options)


def with_chosen_solver(config: Config, built: Worlds) -> tuple[Config, Worlds]:
    """Replace the solver `auto` by the choice of `jaxdae.choose_solver` for the nominal world."""
    if config.solver.type != "auto":
        return config, built
    system, _, state = built.one()
    chosen = jaxdae.choose_solver(system, state).solver
    name = next(name for name, kind in _SOLVERS.items() if name != "auto" and type(chosen) is kind)
    section: Any = name
    if isinstance(chosen, jaxdae.LeastSquares):
        section = {"type": name, "tolerance": float(chosen.tolerance)}
    resolved = Config.model_validate(config.model_dump(exclude_unset=True) | {"solver": section})

    def swapped(method: Any, solver: Any) -> Any:
        if hasattr(method, "integrator"):
            return dataclasses.replace(method, integrator=swapped(method.integrator, solver))
        return dataclasses.replace(method, solver=solver)

    shared = jax.tree.map(lambda _: None, chosen)
    return resolved, dataclasses.replace(
        built,
        integrator=swapped(built.integrator, chosen),
        integrator_axes=swapped(built.integrator_axes, shared),
    )


def sample(config: Config) -> tuple[list[Location], list[np.ndarray]]:
    """Return the locations of the varied numbers and their values (world,), with the nominal value first.

    Every entry of `vary` has its own random stream: adding entries or worlds does not change the others.
    """
    data = config.model_dump()
    locations, samples = [], []
    for index, vary in enumerate(config.batch.vary):
        location, rest = find(data, vary.path.split("."))
        location = (*location, *rest)
        nominal = float(value_at(data, location) or 0.0)
        column = _draw(vary, nominal, np.random.default_rng([config.batch.seed, index]), config.batch.size)
        column[0] = nominal
        locations.append(location)
        samples.append(column)
    return locations, samples


def _draw(vary: Vary, nominal: float, generator: np.random.Generator, size: int) -> np.ndarray:
    if vary.distribution == "normal":
        spread = abs(nominal) * vary.scatter if vary.scatter is not None else float(vary.std or 0.0)
        return nominal + spread * generator.standard_normal(size)
    if vary.scatter is not None:
        return nominal * (1.0 + vary.scatter * generator.uniform(-1.0, 1.0, size))
    return generator.uniform(float(vary.low or 0.0), float(vary.high or 0.0), size)


def with_numbers(values: dict[str, Any], locations: list[Location], numbers: list[Any]) -> dict[str, Any]:
    """Return a copy of the values with the given numbers at the given locations."""
    values = copy.deepcopy(values)
    for location, number in zip(locations, numbers, strict=True):
        _put(values, location, number)
    return values


def _put(inside: Any, location: Location, number: Any) -> Any:
    key: Any = location[0]
    below = _put(inside[key], location[1:], number) if len(location) > 1 else number
    if isinstance(inside, tuple):
        return (*inside[:key], below, *inside[key + 1 :])
    inside[key] = below
    return inside


def _compact(some: Any) -> Any:
    """Store leaves of the system and integrator once where they agree in all worlds of a batch."""
    kept = [
        jax.tree.map(lambda x: x[:1] if np.array_equal(x, np.broadcast_to(x[:1], x.shape)) else x, tree)
        for tree in some[:2]
    ]
    return (*kept, *some[2:])


def _joined(found: list[Any]) -> Any:
    """Join the loop-closure results of several batches into the result of a single batch."""
    counts = [len(guess) for *_, guess in found]

    def joined(*leaves: Any) -> tuple[Any, Any]:
        if all(len(x) == 1 and np.array_equal(x, leaves[0]) for x in leaves):
            return jnp.asarray(leaves[0][0]), None
        return jnp.concatenate(
            [np.broadcast_to(x, (count, *x.shape[1:])) for x, count in zip(leaves, counts, strict=True)]
        ), 0

    made = []
    for trees in list(zip(*found, strict=True))[:2]:
        flat = [joined(*leaves) for leaves in zip(*map(jax.tree.leaves, trees), strict=True)]
        structure = jax.tree.structure(trees[0])
        made.append(
            tuple(jax.tree.unflatten(structure, part) for part in zip(*flat, strict=True))
            if flat
            else (trees[0], trees[0])
        )
    whole = [
        jax.tree.map(lambda *x: jnp.concatenate(x), *trees) for trees in list(zip(*found, strict=True))[2:]
    ]
    state, info, guess = whole
    return made[0], made[1], state, info, guess


def _shared_unstacked(stack: Any) -> tuple[Any, Any]:
    """Unstack the leaves that agree in all worlds; return the tree and the axes of its leaves."""
    leaves, structure = jax.tree.flatten(stack)
    axes = [0 if np.any(np.asarray(x) != np.asarray(x)[:1]) else None for x in leaves]
    kept = [x if axis == 0 else x[0] for x, axis in zip(leaves, axes, strict=True)]
    return jax.tree.unflatten(structure, kept), jax.tree.unflatten(structure, axes)

"""The loss of a config, which `jaxdae tune`, `optimize` and `check --gradients` differentiate.

The loss is a function of numbers of the config. It builds bodies, joints and forces from these numbers. It
also closes loops and makes velocities consistent wherever a number may change them. The gradient therefore
includes all these steps.
"""

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxdae
from jaxdae import contact, tuning
from jaxdae.app.config.config_source import Location
from jaxdae.app.config.schema import Config
from jaxdae.app.config.schema_tuning import Optimize, Tune
from jaxdae.app.model import build, config_laws, coordinate_names, driven_forces
from jaxdae.app.model.build import Worlds, with_numbers
from jaxdae.app.model.crosscheck_tuning import bounds, target
from jaxdae.compile.layout import Fused

_MOVES_THE_START = ("mechanism", "start")


@dataclasses.dataclass(frozen=True)
class Objective:
    """The loss, its parameters and their ranges.

    Attributes:
        loss: `RolloutLoss` of the nominal world, a function of the trained numbers.
        batch_loss: the loss of one world of a batch, (numbers, varied numbers) -> scalar; None for a single
            world.
        batch: the varied numbers by path, (worlds,).
        parameters: the start values by path; for inputs, the knots.
        trainable: the ranges of the parameters.
        locations: the locations of the trained numbers in the config; empty for inputs.
        controls: numbers -> inputs (steps, nu); None without driven inputs.
    """

    loss: tuning.RolloutLoss
    batch_loss: Callable[[Any, Any], Any] | None
    batch: dict[str, Any] | None
    parameters: dict[str, Any]
    trainable: dict[str, Any]
    locations: dict[str, Location]
    controls: Callable[[Any], Any] | None


def objective(config: Config, worlds: Worlds, section: Tune | Optimize | None) -> Objective:
    """Return the objective of a section.

    Without a section, which only the gradient certificate uses, the loss is the distance of the coordinates
    between start and end.

    Args:
        config: the config.
        worlds: its worlds, with closed loops.
        section: `config.tune`, `config.optimize` or None. Call this function inside `precision`.
    """
    values = build.with_dimension(config.model_dump())
    if isinstance(section, Optimize):
        return _of_inputs(config, worlds, section, values)
    if section is None:
        entries = [(path, None, None) for path in _certified(config.mechanism)]
        entries += [
            (f"stabilization.{key}", None, None)
            for key in ("alpha", "beta")
            if config.stabilization.type != "none"
        ]
    else:
        entries = [(entry.path, entry.lower, entry.upper) for entry in section.parameters]
    locations, parameters, trainable = {}, {}, {}
    for path, lower, upper in entries:
        location = target(values, path)[0]
        # Dots separate the levels of a leaf path.
        name = path.replace(".", "/")
        locations[name] = location
        parameters[name] = jnp.asarray(float(_value(values, location)))
        trainable[name] = _range(*bounds(values, location, lower, upper))
    moving = any(location[0] in _MOVES_THE_START for location in locations.values())
    varied = build.sample(config)[0]

    def setup(numbers: Any, sample: Any = ()) -> Any:
        places = [*locations.values(), *varied[: len(sample)]]
        world = with_numbers(values, places, [*(numbers[name] for name in locations), *sample])
        system, _, state = build.started(world)[:3] if moving or sample else worlds.one()
        return (
            system,
            config_laws.sampled(world, system, state, build.stepping(world, system)),
            state,
            None,
        )

    return _of_worlds(config, section, setup, (parameters, trainable, locations, None))


def _of_inputs(config: Config, worlds: Worlds, section: Optimize, values: dict[str, Any]) -> Objective:
    changed = copy.deepcopy(values)
    forces = changed["mechanism"]["forces"]
    parameters, trainable = {}, {}
    for index, given in enumerate(section.inputs):
        number = next(k for k, force in enumerate(forces) if force["name"] == given.force)
        parameters[given.force] = jnp.full((given.knots,), driven_forces.start(forces[number]))
        trainable[given.force] = _range(given.lower, given.upper)
        forces[number] = driven_forces.with_input(forces[number], index)
    system = build.construct(changed)[0]
    _, method, state = worlds.one()
    varied = build.sample(config)[0]
    # Inputs are constant over a step: each value interpolates the knots at the middle of its step.
    middles = (np.arange(config.steps) + 0.5) / config.steps

    def controls(numbers: Any) -> Any:
        columns = [
            jnp.interp(middles, np.linspace(0.0, 1.0, given.knots), numbers[given.force])
            for given in section.inputs
        ]
        return jnp.stack(columns, axis=1)

    def setup(numbers: Any, sample: Any = ()) -> Any:
        if not sample:
            return system, method, state, controls(numbers)
        world = with_numbers(changed, varied, sample)
        here, _, start, _, _ = build.started(world)
        return here, build.stepping(world, here), start, controls(numbers)

    return _of_worlds(config, section, setup, (parameters, trainable, {}, controls))


def _of_worlds(
    config: Config,
    section: Tune | Optimize | None,
    setup: Callable[..., Any],
    learned: tuple[Any, Any, Any, Any],
) -> Objective:
    """Return the objective of the nominal world and, if several worlds differ, of the worlds of the batch.

    Args:
        config: the config.
        section: the section with the terms of the loss.
        setup: (numbers, varied numbers of a world, empty for the nominal world) -> system, integrator, start,
            inputs.
        learned: parameters, trainable, locations and controls of the objective.
    """
    parameters, trainable, locations, controls = learned

    def of(sample: Any) -> tuning.RolloutLoss:
        def here(numbers: Any) -> Any:
            return setup(numbers, sample)

        return _rollout_loss(config, section, here, _terms(section, here, controls))

    samples = build.sample(config)[1]
    if config.batch.size == 1 or not samples:
        return Objective(of(()), None, None, parameters, trainable, locations, controls)
    paths = [vary.path for vary in config.batch.vary]
    batch = {path: jnp.asarray(column) for path, column in zip(paths, samples, strict=True)}

    def of_world(numbers: Any, sample: Any) -> Any:
        return of([sample[path] for path in paths])(numbers)

    return Objective(of(()), of_world, batch, parameters, trainable, locations, controls)


def _certified(mechanism: Any) -> list[str]:
    """Return the paths of the gradient certificate without a section: masses, or rates in first order."""
    if mechanism.order == "first":
        return [f"mechanism.rates.{name}" for name in mechanism.rates]
    return [path for body in mechanism.bodies for path in _of_body(body)]


def _of_body(body: Any) -> list[str]:
    """Return the paths of the mass and the moments of inertia of a body."""
    names = [f"bodies.{body.name}.mass", f"bodies.{body.name}.inertia"]
    if not isinstance(body.inertia, tuple):
        return names
    rows = (f"{k}.{k}" if isinstance(row, tuple) else f"{k}" for k, row in enumerate(body.inertia))
    return [names[0], *(f"{names[1]}.{row}" for row in rows)]


def _rollout_loss(
    config: Config, section: Tune | Optimize | None, setup: Any, terms: Any
) -> tuning.RolloutLoss:
    steps, every = config.steps, config.save_every
    fitting = (
        [n for n in range(1, steps + 1) if steps % n == 0 and (n % every == 0 or every % n == 0)]
        if steps <= 100_000
        else [every]
    )
    segment = min(fitting, key=lambda n: abs(math.log(n / math.sqrt(steps))))
    plan: Any = {
        "save_every": every,
        "segment": segment if segment > 1 else None,
        "keep": jaxdae.Keep(section.keep) if section else jaxdae.Keep.STATES,
        "kernel": Fused() if config.layout.kernel == "fused" else None,
    }
    return tuning.RolloutLoss(setup, terms, dt=config.dt, steps=steps, **plan)


def optimizer(section: Tune | Optimize) -> optax.GradientTransformation:
    """Return the optimizer of a section, with the learning rate in its state."""
    given = section.optimizer
    rate, count = given.learning_rate, section.iterations
    schedule: Any = {
        "constant": rate,
        "cosine": optax.cosine_decay_schedule(rate, count),
        "exponential": optax.exponential_decay(rate, count, 0.01),
    }[given.schedule]
    return optax.inject_hyperparams(
        {"adam": optax.adam, "nadam": optax.nadam, "rmsprop": optax.rmsprop, "sgd": optax.sgd}[given.type]
    )(learning_rate=schedule)


def tuned_values(config: Config, found: Objective, numbers: dict[str, Any]) -> dict[str, Any]:
    """Return the config as plain values with the trained numbers inserted and without its `tune` section."""
    values = with_numbers(
        config.model_dump(),
        list(found.locations.values()),
        [float(numbers[name]) for name in found.locations],
    )
    return values | {"tune": None}


def _value(values: Any, location: Location) -> Any:
    for part in location:
        values = values.get(part, 0.0) if isinstance(values, dict) else values[part]
    return values


def _range(lower: Any, upper: Any) -> Any:
    if lower is not None and upper is not None:
        return tuning.Between(lower, upper)
    if lower is not None:
        return tuning.Positive() if lower == 0.0 else tuning.AtLeast(lower)
    return tuning.Unbounded() if upper is None else tuning.AtMost(upper)


# Terms.


def observer(term: Any, system: Any) -> Callable[[jaxdae.State], Any]:
    """Return the quantity of a coordinate, velocity or point term as a function of a state."""
    if term.type == "point":
        body, dimension = system.body_names.index(term.body), system.space.dimension
        point = (0.0,) * dimension if term.point is None else term.point

        def place(state: jaxdae.State) -> Any:
            frame = jax.tree.map(lambda entry: entry[body], system.frames(state.q))
            return frame.point(jnp.asarray(point, state.q.dtype)).array()

        return place
    entries = coordinate_names.of_system(system)
    if term.type == "velocity":
        number = entries.rates[term.coordinate]
        return lambda state: state.v[number]
    index = entries.names.index(term.coordinate)
    return lambda state: state.q[index]


def _terms(
    section: Tune | Optimize | None, setup: Callable[[Any], Any], controls: Any
) -> Callable[[Any, Any], Any]:
    """Return the loss (numbers, trajectory) -> scalar of a world; NaN if the world failed.

    The terms use the mechanism and the start that belong to this world and these numbers: positions of bodies
    in joint coordinates, violations and energies depend on them.
    """

    def loss(numbers: Any, trajectory: Any) -> Any:
        system, _, start, _ = setup(numbers)
        if section is None:
            return tuning.tracking(trajectory, lambda state: state.q, start.q, over=tuning.final)
        world = _World(system, start, trajectory, lambda: controls(numbers))
        total: Any = jnp.zeros((), trajectory.state.q.dtype)
        for term in section.loss:
            over = tuning.final if term.over == "final" else tuning.time_average
            total = total + term.weight * _MEASURES[term.type](term, world, over)
        return tuning.nan_if_failed(trajectory, total)

    return loss


class _World(NamedTuple):
    """The arguments of a loss term: a world, its trajectory and a function that returns its inputs."""

    system: Any
    start: jaxdae.State
    trajectory: jaxdae.Trajectory
    inputs: Callable[[], Any]


def _tracking(term: Any, world: _World, over: Any) -> Any:
    return tuning.tracking(
        world.trajectory, observer(term, world.system), jnp.asarray(term.target), over=over
    )


def _reaction(term: Any, world: _World, over: Any) -> Any:
    rows = np.array(
        [k for k, name in enumerate(world.system.row_names) if name.rsplit(".", 1)[0] == term.joint]
    )
    return tuning.reaction(world.trajectory, rows, over=over)


def _of_contact(term: Any, world: _World, over: Any) -> Any:
    found = world.trajectory
    return tuning.tracking(found, _seen(term, world.system, found.info), jnp.asarray(term.target), over=over)


def _seen(term: Any, system: Any, info: Any) -> Any:
    """Return what a term of a contact measures: a function of the state, or forces over time (time, k)."""
    if term.type == "gap":
        gap = contact.Gap.named(system, term.contact)
        return lambda state: gap(state.q)
    if term.type == "slip":
        return contact.Slip.named(system, term.contact)
    return contact.ContactForce.named(system, term.contact)(config_laws.contacts_after(info))[..., 0]


_MEASURES: dict[str, Callable[[Any, _World, Any], Any]] = {
    "coordinate": _tracking,
    "velocity": _tracking,
    "point": _tracking,
    "reaction": _reaction,
    "gap": _of_contact,
    "slip": _of_contact,
    "normal_force": _of_contact,
    "violation": lambda _, world, over: tuning.constraint_violation(
        world.system, world.trajectory, over=over
    ),
    "velocity_violation": lambda _, world, over: tuning.velocity_violation(
        world.system, world.trajectory, over=over
    ),
    "energy": lambda _, world, over: tuning.energy_error(
        world.system, world.trajectory, jaxdae.energy(world.system, world.start), over=over
    ),
    "effort": lambda _, world, over: tuning.effort(world.inputs(), over=over),
}
"""The loss terms by their type in configs, each (term, world, over) -> scalar."""


def random_guesses(system: Any, q: Any, count: int) -> Any:
    """Return a start pose and randomly rotated copies of it, (count, nq).

    Bodies are rotated in absolute coordinates, joints in joint coordinates.
    """
    turning = np.array([unit == "rad/s" for unit in system.names.velocity_units])
    turns = np.zeros((count, len(turning)))
    turns[1:, turning] = np.random.default_rng(0).uniform(-np.pi, np.pi, (count, int(turning.sum())))[1:]
    return jax.vmap(system.retract, in_axes=(None, 0))(q, jnp.asarray(turns, q.dtype))


def jitted_closing(system: Any, t: Any) -> Callable[[Any], Any]:
    """Return a jitted function from guesses (count, nq) to reports of constraint closure at time t."""
    return jax.jit(jax.vmap(lambda q: jaxdae.initialize(system, q, t=t)[1]))

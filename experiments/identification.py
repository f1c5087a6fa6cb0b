"""Inertial parameters of a four-bar from noisy measurements, and the coverage of their intervals.

A crank-rocker with known lengths and mass centers moves for 5 s under gravity and a known motor torque.
Unknown are three masses, three inertias about the mass centers and the viscous damping of four joints; the
angle and rate of the crank at the start are nuisances that are fitted with them. Measured are angles, and
forces of the two bearings on the ground: entries of the multipliers `lam`. The fit is Levenberg-Marquardt
with the Jacobian by forward mode through the rollout, from guesses far off; all repeats are one batched
program.

    python experiments/identification.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

What can be known. The coupler acts on the motion like two point masses at its pins B and C and a free couple.
With its mass center at the distances a from B and b from C, a + b = l, some of its mass can be taken away, d,
and given to its neighbors, d b/l to the crank's tip and d a/l to the rocker's, without any change of the
motion. The angles therefore depend on nine combinations of the ten parameters and on nothing else: the four
dampings, and the base parameters (s from the fixed pins A and D to the mass centers, r the lengths of the
links)

    m1 s1 + m2 (b/l) r1,    I1 + m1 s1^2 + m2 (b/l) r1^2,    I2 - m2 a b,    m3 s3 + m2 (a/l) r3,    I3 + m3 s3^2 + m2 (a/l) r3^2.

Without a motor a common factor of all parameters is lost as well. The force on the ground, the sum of masses
times accelerations less weights, tells the masses one by one. The experiment shows this by the singular
values of the residual's Jacobian for each set of signals, and then fits all ten parameters to angles and
forces.

Errors. Each signal has independent normal errors, equal in all samples, whose standard deviation is 1 % of
the standard deviation of that signal in time over the 5 s (about its mean, so that an offset of an angle or a
weight on a bearing does not count). The torque is known exactly. The data are simulated with steps four times
finer than the fitted model's, so that the model has an error of its own. With steps of 10 ms (and samples 10
ms apart) the mean of the estimates was up to a third of a standard error off, and 89 to 96 intervals of 100
held the truth; the steps, and the samples, are therefore 5 ms apart. The intervals are estimate +- 1.96
standard errors from the covariance s^2 (J^T J)^-1, with s^2 from the residuals. The bar counts each parameter
by itself: its interval holds the truth in at least 90 of 100 repeats. Of ten parameters one misses that bar
by chance in about every tenth run of 100 repeats; 500 repeats (seed 2) give 465 to 482 of 500.

References:
    W. Khalil, E. Dombre, "Modeling, Identification and Control of Robots", Hermes Penton (2002), chapters 9
    and 12. G. A. F. Seber, C. J. Wild, "Nonlinear Regression", Wiley (1989), section 5.1 (approximate
    intervals).
"""

import dataclasses
import functools
import statistics
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import xarray as xr

import jaxdae
from jaxdae import tuning
from jaxdae.app import begin, finish, line_style, precision, script, show_table, styled, table_lines
from jaxdae.app.draw.animation import write_animation

CONFIG = "configs/identification.yaml"
LEAVES = {"m": "mass", "I": "inertia", "c": "joints.revolute.damping"}
UNITS = {"m": "kg", "I": "kg m^2", "c": "N m s/rad"}
NUISANCES = ("angle", "rate")  # of the first fixed coordinate, at the start
# singular values below this times the largest are zero: errors of the steps, which see the masses, leave some
# 1e-8
DEPENDENT = 1e-6


class Motor(pydantic.BaseModel, extra="forbid", strict=True):
    """offset + sum of amplitude sin(2 pi frequency t + phase), in N m."""

    offset: float
    amplitude: list[float]
    frequency_hz: list[float]
    phase: list[float]

    @pydantic.model_validator(mode="after")
    def _same_lengths(self) -> "Motor":
        if not len(self.amplitude) == len(self.frequency_hz) == len(self.phase):
            raise ValueError("amplitude, frequency_hz and phase must have one length")
        return self


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    motor: Motor
    angles: list[str] = pydantic.Field(min_length=1)
    forces: list[str]
    noise: pydantic.PositiveFloat
    repeats: pydantic.PositiveInt
    guess: pydantic.NonNegativeFloat
    window: pydantic.PositiveFloat
    finer: pydantic.PositiveInt
    confidence: float = pydantic.Field(gt=0.0, lt=1.0)


@jaxdae.tree.pytree
class Multisine:
    """The motor torque over time: offset (), amplitude (k,) in N m, frequency (k,) in Hz, phase (k,)."""

    offset: Any
    amplitude: Any
    frequency_hz: Any
    phase: Any

    def __call__(self, t, state):
        """Return the input (1,)."""
        waves = self.amplitude * jnp.sin(2.0 * jnp.pi * self.frequency_hz * t + self.phase)
        return (self.offset + jnp.sum(waves))[None]


@dataclasses.dataclass(frozen=True)
class Bench:
    """The test bench: what is simulated and what is measured.

    Attributes:
        system: the mechanism with the true numbers, whose torques read the motor's input.
        integrator: the one-step method.
        start: the true start.
        held: mask of the coordinate that gives the start.
        motor: the torque.
        columns: the measured entries of (q, lam).
        signals: their names.
        dt: step of the model in s, and time between samples.
        samples: how many.
    """

    system: Any
    integrator: Any
    start: jaxdae.State
    held: np.ndarray
    motor: Multisine
    columns: np.ndarray
    signals: tuple[str, ...]
    dt: float
    samples: int

    def truth(self) -> dict[str, Any]:
        """Return the true parameters: the mechanism, and the start of the held coordinate."""
        index = int(np.flatnonzero(self.held)[0])
        return {"system": self.system, "angle": self.start.q[index], "rate": self.start.v[index]}

    def trainable(self) -> dict[str, Any]:
        """Return what is fitted, and that masses, inertias and dampings are positive."""
        return {f"system.{leaf}": tuning.Positive() for leaf in LEAVES.values()} | dict.fromkeys(
            NUISANCES, tuning.Unbounded()
        )

    def simulate(self, parameters: dict[str, Any], motor: Multisine, finer: int = 1) -> Any:
        """Return q and lam (samples, nq + nc) at t = 0, dt, 2 dt, ..., from steps of dt / finer."""
        system, held = parameters["system"], jnp.asarray(self.held)
        q = jnp.where(held, parameters["angle"], self.start.q)
        v = jnp.where(held, parameters["rate"], 0.0)
        start, _ = jaxdae.initialize(system, q, v, fixed=self.held, fixed_velocity=self.held)
        run = jaxdae.rollout(
            system, self.integrator, start, motor, dt=self.dt / finer, steps=self.samples * finer
        )
        # An entry has the state after a step, and the multipliers before it.
        q = jnp.concatenate([start.q[None], run.state.q[:-1]])
        return jnp.concatenate([q, run.info.lam], axis=1)[::finer]

    def measure(self, parameters: dict[str, Any], motor: Multisine) -> Any:
        """Return the signals (samples, signals) without errors."""
        return self.simulate(parameters, motor)[:, self.columns]


def bench(config: Any, settings: Settings, worlds: Any) -> Bench:
    """Return the bench of a config.

    Raises:
        ValueError: names of signals that the mechanism does not have, no torque, or not one held coordinate.
    """
    system, integrator, start = worlds.one()
    names = (*system.coordinate_names, *system.row_names)
    signals = (*settings.angles, *settings.forces)
    unknown = [name for name in signals if name not in names]
    if unknown:
        raise ValueError(f"angles, forces: no {', '.join(unknown)}; there is: {', '.join(names)}")
    held = np.array([name in config.start.fixed for name in system.coordinate_names])
    torque = system.forces.get("torque")
    if held.sum() != 1 or torque is None:
        raise ValueError("one coordinate must be fixed at the start, and a torque must act")
    if not 0 < round(settings.window / config.dt) <= config.steps:
        raise ValueError(
            f"window: expected between one step and {config.duration:g} s, got {settings.window:g} s"
        )
    # The first torque becomes the motor: it reads the input.
    motor = dataclasses.replace(torque, input=(0, *torque.inputs[1:]), gain=jnp.ones(len(torque.names)))
    return Bench(
        system=dataclasses.replace(system, n_inputs=1, forces=system.forces | {"torque": motor}),
        integrator=integrator,
        start=start,
        held=held,
        motor=Multisine(**{key: jnp.asarray(value) for key, value in settings.motor.model_dump().items()}),
        columns=np.array([names.index(name) for name in signals]),
        signals=signals,
        dt=config.dt,
        samples=config.steps,
    )


def numbers(parameters: Any) -> Any:
    """Return masses, inertias and dampings in one row (..., n)."""
    return jnp.concatenate(
        [jaxdae.tree.get_leaf(parameters["system"], leaf) for leaf in LEAVES.values()], axis=-1
    )


def labels(system: Any) -> list[str]:
    """Return the names of these, such as "m crank" or "c A"."""
    joints = system.joints["revolute"].names
    return [f"{key} {name}" for key in LEAVES for name in (joints if key == "c" else system.body_names)]


# What can be known.


def base_parameters(system: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the matrix (5, 6) from masses and inertias to base parameters, and its null direction (6,)."""
    group = system.joints["revolute"]
    ends = {
        name: (np.asarray(group.point_a)[k], np.asarray(group.point_b)[k])
        for k, name in enumerate(group.names)
    }
    s1, s3 = np.linalg.norm(ends["A"][1]), np.linalg.norm(ends["D"][1])
    r1, r3 = np.linalg.norm(ends["B"][0] - ends["A"][1]), np.linalg.norm(ends["C"][1] - ends["D"][1])
    a, b = np.linalg.norm(ends["B"][1]), np.linalg.norm(ends["C"][0])
    tip1, tip3 = b / (a + b), a / (a + b)
    matrix = [
        [s1, tip1 * r1, 0.0, 0.0, 0.0, 0.0],
        [s1**2, tip1 * r1**2, 0.0, 1.0, 0.0, 0.0],
        [0.0, -a * b, 0.0, 0.0, 1.0, 0.0],
        [0.0, tip3 * r3, s3, 0.0, 0.0, 0.0],
        [0.0, tip3 * r3**2, s3**2, 0.0, 0.0, 1.0],
    ]
    unseen = [-tip1 * r1 / s1, 1.0, -tip3 * r3 / s3, tip1 * r1 * (s1 - r1), a * b, tip3 * r3 * (s3 - r3)]
    return np.array(matrix), np.array(unseen)


def sensitivities(at: Bench) -> dict[str, np.ndarray]:
    """Return the relative Jacobians (samples, signals, n + 2) in units of the errors at 100 %.

    The result has one Jacobian with the motor and one without it.

    A column is the change of the signals, over their standard deviations, by a change of a parameter by its
    own size (of the start: by 1 rad and 1 rad/s). Without the motor the crank is released 1 rad away.
    """
    scale = numbers(at.truth())
    chosen = tuning.reparametrize(at.truth(), at.trainable())

    @jax.jit
    def columns(truth: Any, motor: Multisine) -> Any:
        free = chosen.split(truth)  # logarithms of the positive ones
        signals, jacobian = (
            at.measure(truth, motor),
            jax.jacfwd(lambda z: at.measure(chosen.join(truth, z), motor))(free),
        )
        order = [*(f"system.{leaf}" for leaf in LEAVES.values()), *NUISANCES]
        flat = [jacobian[path].reshape(*signals.shape, -1) for path in order]
        return jnp.concatenate(flat, axis=-1) / jnp.std(signals, axis=0)[None, :, None]

    released = at.truth() | {"angle": at.truth()["angle"] + 1.0}
    off = jax.tree.map(jnp.zeros_like, at.motor)
    found = {"motor": np.asarray(columns(at.truth(), at.motor)), "free": np.asarray(columns(released, off))}
    assert all(x.shape[-1] == scale.size + len(NUISANCES) for x in found.values())
    return found


def identifiability(at: Bench, settings: Settings) -> xr.Dataset:
    """Return singular values of the relative Jacobians, ranks and expected relative standard errors.

    There is one entry per set of signals.
    """
    jacobians, count = sensitivities(at), len(labels(at.system))
    angles = np.arange(len(settings.angles))
    sets = {
        "angles, no motor": ("free", angles),
        "crank angle": ("motor", angles[:1]),
        "angles": ("motor", angles),
        "angles and forces": ("motor", np.arange(len(at.signals))),
    }
    values, ranks, errors, unseen = [], [], [], []
    for motor, columns in sets.values():
        matrix = jacobians[motor][:, columns].reshape(-1, count + len(NUISANCES))
        _, s, rows = np.linalg.svd(matrix, full_matrices=False)
        rank = int(np.sum(s > DEPENDENT * s[0]))
        values.append(s)
        ranks.append(rank)
        unseen.append(rows[-1])
        full = rank == s.size
        errors.append(
            settings.noise * np.linalg.norm(rows / s[:, None], axis=0) if full else np.full(s.size, np.inf)
        )
    parameter = [*labels(at.system), *NUISANCES]
    data = {"singular_value": (("signals", "index"), np.array(values)), "rank": ("signals", ranks)}
    data |= {
        "expected": (("signals", "parameter"), np.array(errors)),
        "unseen": (("signals", "parameter"), np.array(unseen)),
    }
    return xr.Dataset(data, {"signals": list(sets), "parameter": parameter})


# The fits.


def data_sets(at: Bench, settings: Settings, key: Any) -> tuple[Any, Any]:
    """Return noisy signals (repeats, samples, signals), and the motion without errors (samples, nq + nc)."""
    motion = jax.jit(functools.partial(at.simulate, finer=settings.finer))(at.truth(), at.motor)
    exact = motion[:, at.columns]
    errors = jax.random.normal(key, (settings.repeats, *exact.shape), exact.dtype)
    return exact + settings.noise * jnp.std(exact, axis=0) * errors, motion


def guesses(at: Bench, settings: Settings, key: Any, data: Any) -> dict[str, Any]:
    """Return starts of the fits: numbers off by random factors, the measured first angle, and rest."""
    parameters = at.truth()
    for leaf in LEAVES.values():
        key, now = jax.random.split(key)
        value = jaxdae.tree.get_leaf(at.system, leaf)
        factors = jnp.exp(
            jax.random.uniform(
                now, (settings.repeats, *value.shape), value.dtype, -settings.guess, settings.guess
            )
        )
        parameters = jaxdae.tree.set_leaf(parameters, f"system.{leaf}", value * factors)
    return parameters | {"angle": data[:, 0, 0], "rate": jnp.zeros(settings.repeats, data.dtype)}


def fit(at: Bench, settings: Settings, data: Any, starts: dict[str, Any]) -> tuple[Any, Any]:
    """Return the results of all repeats, and the iterations (stages, repeats).

    The stages are the first window and the full data.
    """
    axes = jaxdae.tree.batch_axes(at.truth(), *at.trainable())

    def one(start: Any, measured: Any, weight: Any) -> Any:
        # The standard deviation of a measured signal differs from that without errors by 5e-5 of itself.
        scale = weight[:, None] / (settings.noise * jnp.std(measured, axis=0))
        residual = lambda p: (at.measure(p, at.motor) - measured) * scale  # noqa: E731
        return tuning.least_squares(
            residual,
            start,
            trainable=at.trainable(),
            iterations=30,
            damping=1e-2,
            max_step=0.5,
            tolerance=1e-5,
        )

    batch = jax.jit(jax.vmap(one, in_axes=(axes, 0, None)))
    time = jnp.asarray(at.dt * np.arange(at.samples), data.dtype)
    first = batch(starts, data, (time < settings.window).astype(data.dtype))
    trained = {path: jaxdae.tree.get_leaf(first.parameters, path) for path in at.trainable()}
    again = starts
    for path, value in trained.items():
        again = jaxdae.tree.set_leaf(again, path, value)
    last = batch(again, data, jnp.ones_like(time))
    return last, np.stack([first.iterations, last.iterations])


def judged(at: Bench, settings: Settings, result: Any, starts: Any) -> xr.Dataset:
    """Return estimates, standard errors, intervals and their coverage, by repeat and parameter."""
    truth, names = np.asarray(numbers(at.truth())), labels(at.system)
    estimate = np.asarray(numbers(result.parameters))
    error = np.concatenate(
        [np.asarray(result.standard_error[f"system.{leaf}"]) for leaf in LEAVES.values()], axis=-1
    )
    # The covariance is in the order of the paths; only the ten numbers are judged, whatever the nuisances
    # are.
    sizes = {path: int(np.prod(np.shape(jaxdae.tree.get_leaf(at.truth(), path)))) for path in result.paths}
    ends = dict(zip(sizes, np.cumsum(list(sizes.values())), strict=True))
    order = np.concatenate(
        [
            np.arange(ends[path] - sizes[path], ends[path])
            for path in (f"system.{leaf}" for leaf in LEAVES.values())
        ]
    )
    covariance = np.asarray(result.covariance)[:, order[:, None], order]
    off = estimate - truth
    distance = np.einsum("ri,ri->r", off, np.linalg.solve(covariance, off[:, :, None])[:, :, 0])
    factor = statistics.NormalDist().inv_cdf(0.5 + 0.5 * settings.confidence)
    data = {
        "estimate": (("repeat", "parameter"), estimate),
        "guess": (("repeat", "parameter"), np.asarray(numbers(starts))),
        "standard_error": (("repeat", "parameter"), error),
        "covered": (("repeat", "parameter"), np.abs(off) <= factor * error),
        # Of all ten together: the ellipsoid of the covariance.
        "ellipsoid": (
            "repeat",
            np.asarray(jax.scipy.stats.chi2.cdf(distance, truth.size)) <= settings.confidence,
        ),
        "standard_deviation": ("repeat", np.asarray(result.standard_deviation)),
        "converged": ("repeat", np.asarray(result.status) == jaxdae.Status.OK),
        "truth": ("parameter", truth),
    }
    return xr.Dataset(data, {"parameter": names}, {"coverage_factor": factor})


def rows(found: xr.Dataset, known: xr.Dataset) -> list[tuple[str, ...]]:
    """Return the rows of the table, one a parameter."""
    table = []
    for name in found.parameter.values:
        one = found.sel(parameter=name)
        truth, off = float(one.truth), one.estimate.values - float(one.truth)
        table.append(
            (
                f"{name}, {UNITS[name[0]]}",
                f"{truth:g}",
                f"{float(one.estimate[0]):.5g} +- {found.coverage_factor * float(one.standard_error[0]):.2g}",
                f"{100 * np.abs(off).max() / truth:.2f}",
                f"{100 * np.std(off) / truth:.3f}",
                f"{100 * float(one.standard_error.mean()) / truth:.3f}",
                f"{100 * float(known.expected.sel(signals='angles and forces', parameter=name)):.3f}",
                f"{int(one.covered.sum())} of {one.covered.size}",
            )
        )
    return table


HEADINGS = (
    "parameter",
    "truth",
    "first repeat",
    "largest error, %",
    "scatter, %",
    "standard error, %",
    "expected, %",
    "interval holds",
)


def findings(at: Bench, found: xr.Dataset, known: xr.Dataset, iterations: np.ndarray) -> list[str]:
    """Return what the results say, in sentences."""
    repeats, names = found.sizes["repeat"], found.parameter.values
    worst = 100 * float((np.abs(found.estimate - found.truth) / found.truth).max())
    counts = found.covered.sum("repeat").values
    whole = known.singular_value.shape[1]
    _, unseen = base_parameters(at.system)
    masses = len(unseen)
    # The direction in logarithms, of unit length, up to its sign.
    predicted = np.concatenate([unseen / found.truth.values[:masses], np.zeros(whole - masses)])
    predicted /= np.linalg.norm(predicted)
    measured = known.unseen.sel(signals="angles").values
    angle = np.linalg.norm(measured - predicted * (measured @ predicted))
    rank = {str(name): int(known["rank"].sel(signals=name)) for name in known.signals.values}
    ratio = {name: float(s[-1] / s[0]) for name, s in zip(rank, known.singular_value.values, strict=True)}
    bias = found.estimate.mean("repeat") - found.truth
    return [
        "**What is known.** Ranks of the Jacobian for "
        + f"{whole} unknowns ({len(names)} parameters, 2 of the start): "
        + "; ".join(
            f"{name}: {rank[name]} (smallest over largest singular value {ratio[name]:.1e})" for name in rank
        )
        + ". The direction that angles do not see is the predicted shift of the coupler's mass to its pins "
        f"within {angle:.1e}.",
        f"**Errors.** The largest of all {repeats} repeats and {len(names)} parameters is {worst:.2f} %. "
        "The mean of the repeats"
        f" is off by at most {float(np.abs(bias / found.standard_error.mean('repeat')).max()):.2f} standard "
        "errors (chance alone: some"
        f" {2.0 / repeats**0.5:.2f}).",
        f"**Intervals, each parameter by itself.** {int(counts.min())} to {int(counts.max())} of {repeats} "
        "hold the truth"
        f" (of all {counts.sum()} of {counts.size * repeats}: "
        f"{100 * counts.sum() / (counts.size * repeats):.1f} %).",
        f"**All parameters at once.** In {int(found.ellipsoid.sum())} of {repeats} repeats the ellipsoid of "
        "the covariance holds the truth;"
        f" in {int(found.covered.all('parameter').sum())} all {len(names)} intervals do.",
        f"**Fits.** {int(found.converged.sum())} of {repeats} converged, from guesses off by a factor of up "
        "to"
        f" {float(np.exp(np.abs(np.log(found.guess / found.truth))).max()):.2f}, in at most "
        f"{iterations[0].max()} and {iterations[1].max()}"
        f" iterations; the residuals' standard deviation is {float(found.standard_deviation.mean()):.4f} of "
        "the errors that were put in.",
    ]


# Pictures.


def draw_fit(at: Bench, data: np.ndarray, fitted: np.ndarray, noise: np.ndarray):
    """Return the figure of one repeat: noisy signals, the fit, and the residuals in standard deviations."""
    with styled() as figure_class:
        figure = figure_class(figsize=(13.0, 1.5 * len(at.signals) + 0.6), layout="constrained")
        panels = figure.subplots(len(at.signals), 2, sharex=True, squeeze=False, width_ratios=(2.2, 1.0))
        time = at.dt * np.arange(at.samples)
        for k, (name, (left, right)) in enumerate(zip(at.signals, panels, strict=True)):
            left.plot(time, data[:, k], ".", color="black", markersize=2, alpha=0.35, label="measured")
            left.plot(time, fitted[:, k], **line_style(k), label="fit")
            left.set_ylabel(f"{name}\nin {'rad' if name.endswith('theta') else 'N'}")
            right.plot(
                time,
                (data[:, k] - fitted[:, k]) / noise[k],
                ".",
                color=line_style(k)["color"],
                markersize=2.5,
            )
            right.set_ylim(-4.5, 4.5)
        panels[0, 0].set_title("measured and fitted, first repeat")
        panels[0, 0].legend(loc="lower left", ncols=2)
        panels[0, 1].set_title("residuals in standard deviations of the errors")
        for panel in panels[-1]:
            panel.set_xlabel("t in s")
        return figure


def draw_intervals(found: xr.Dataset):
    """Return the figure of all intervals, by parameter, sorted by their middle."""
    names = found.parameter.values
    with styled() as figure_class:
        columns = 5
        figure = figure_class(figsize=(14.0, 2.7 * -(-len(names) // columns)), layout="constrained")
        panels = figure.subplots(-(-len(names) // columns), columns, squeeze=False).ravel()
        for panel, name in zip(panels, names, strict=False):
            one = found.sel(parameter=name)
            middle = 100.0 * (one.estimate.values / float(one.truth) - 1.0)
            half = 100.0 * found.coverage_factor * one.standard_error.values / float(one.truth)
            order = np.argsort(middle)
            place, inside = np.arange(order.size), one.covered.values[order]
            for holds, index in ((True, 0), (False, 1)):
                chosen = order[inside == holds]
                panel.vlines(
                    place[inside == holds],
                    (middle - half)[chosen],
                    (middle + half)[chosen],
                    color=line_style(index)["color"],
                )
            panel.plot(place, middle[order], ".", color="black", markersize=2)
            panel.axhline(0.0, color="black", linewidth=0.8)
            panel.set_title(f"{name}: {int(one.covered.sum())} of {order.size}")
        for panel in panels[len(names) :]:
            panel.set_axis_off()
        for panel in panels[::columns]:
            panel.set_ylabel("off the truth in %")
        figure.suptitle(
            "intervals of all repeats, sorted by the estimate, and how many hold the truth (orange: those "
            "that do not)"
        )
        return figure


def draw_singular_values(known: xr.Dataset):
    """Return the figure of the singular values of each set of signals."""
    with styled() as figure_class:
        figure = figure_class(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        for k, (name, s) in enumerate(zip(known.signals.values, known.singular_value.values, strict=True)):
            axes.semilogy(
                np.arange(1, s.size + 1), s / s[0], marker="o", markersize=4, **line_style(k), label=str(name)
            )
        axes.axhline(DEPENDENT, color="black", linewidth=1.0, linestyle=":")
        axes.set_xlabel("number")
        axes.set_ylabel("singular value over the largest")
        axes.set_title("of the relative Jacobian")
        axes.legend()
        return figure


def pins(system: Any, q: np.ndarray) -> np.ndarray:
    """Return the places (time, joints, 2) of the joints in the order of their names, in m."""
    group = system.joints["revolute"]
    places = []
    for k in np.argsort(group.names):
        x, y, angle = np.moveaxis(q.reshape(*q.shape[:-1], -1, 3)[..., group.b[k], :], -1, 0)
        px, py = np.asarray(group.point_b)[k]
        c, s = np.cos(angle), np.sin(angle)
        places.append(np.stack([x + c * px - s * py, y + s * px + c * py], axis=-1))
    return np.stack(places, axis=-2)


def report(config: Any, sentences: list[str], table: list[tuple[str, ...]], pictures: list[str]) -> str:
    """Return the text of the report."""
    lines = [f"# {config.name}", "", config.description, "", *(f"- {sentence}" for sentence in sentences), ""]
    lines += [
        "*Scatter*: standard deviation of the estimates over the repeats. *Standard error*: mean of the "
        "reported ones."
    ]
    lines += [
        "*Expected*: from the Jacobian at the truth. All in percent of the true value; errors over all "
        "repeats.",
        "",
    ]
    lines += table_lines(HEADINGS, table)
    return "\n".join([*lines, "", *(f"![{name}]({name})" for name in pictures), ""])


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__ or "")
    config, console = asked.config, asked.console
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    with precision(config):
        try:
            at = bench(config, settings, asked.worlds)
        except ValueError as error:
            console.print(f"{asked.source}: experiment: {error}", markup=False)
            return 2
        of_errors, of_guesses = jax.random.split(jax.random.key(config.batch.seed))
        console.print("singular values")
        known = identifiability(at, settings)
        data, motion = data_sets(at, settings, of_errors)
        console.print(f"{settings.repeats} fits")
        starts = guesses(at, settings, of_guesses, data)
        result, iterations = fit(at, settings, data, starts)
        found = judged(at, settings, result, starts)
        first, guess = at.truth(), at.truth()
        for path in at.trainable():
            first, guess = (
                jaxdae.tree.set_leaf(one, path, jaxdae.tree.get_leaf(all_of, path)[0])
                for one, all_of in ((first, result.parameters), (guess, starts))
            )
        simulate = jax.jit(at.simulate)
        fitted, guessed = (np.asarray(simulate(parameters, at.motor)) for parameters in (first, guess))
    folder, record = begin(config, asked.out, asked.source)
    for group, dataset in (("fits", found), ("identifiability", known)):
        dataset.to_zarr(folder / "identification.zarr", group=group, zarr_format=2, consolidated=False)
    noise = settings.noise * np.asarray(motion)[:, at.columns].std(axis=0)
    draw_fit(at, np.asarray(data[0]), fitted[:, at.columns], noise).savefig(
        folder / "fit.png", bbox_inches="tight"
    )
    draw_intervals(found).savefig(folder / "intervals.png", bbox_inches="tight")
    draw_singular_values(known).savefig(folder / "singular_values.png", bbox_inches="tight")
    size = at.start.q.shape[0]
    motions = {"guess": guessed, "fitted": fitted, "true": np.asarray(motion)}
    lines = {name: pins(at.system, each[:, :size]) for name, each in motions.items()}
    write_animation(folder / "identification.gif", at.dt * np.arange(at.samples), lines, title="first repeat")
    table, sentences = rows(found, known), findings(at, found, known, iterations)
    show_table(console, f"{settings.repeats} repeats", HEADINGS, table)
    for sentence in sentences:
        console.print(sentence.replace("**", ""), markup=False, highlight=False)
    pictures = ["fit.png", "intervals.png", "singular_values.png", "identification.gif"]
    (folder / "report.md").write_text(report(config, sentences, table, pictures), encoding="utf-8")
    finish(
        folder,
        record,
        identification=[dict(zip(HEADINGS, row, strict=True)) for row in table],
        findings=sentences,
    )
    console.print(f"run folder: {folder}", highlight=False, markup=False, soft_wrap=True)
    return 0 if bool(found.converged.all()) else 1


if __name__ == "__main__":
    sys.exit(main())

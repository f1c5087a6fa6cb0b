"""Which masses and mass centers of an arm do the torques of its motors tell, and how well?

    python experiments/panda_identification.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

A body of mass m, with its mass center at c from a point of the body whose acceleration is a_p (in axes of the
body, gravity g), makes

    F = m (a_p - g) + alpha x h + omega x (omega x h),      N = h x (a_p - g) + I_p alpha + omega x I_p omega,      h = m c,

about that point, and the torques of the motors are sums of J_v^T F + J_omega^T N over the bodies: linear in
(m, h, I_p), by a matrix Y that depends on the motion only. Unknown are the masses m and the first moments h
of all bodies that the hinges carry, for points where the file has the mass centers; the inertias I_p about
these points are taken as known.

Not all of them can be known: whatever a hinge carries is felt in its torque only. Columns of the Jacobian are
taken one after the other, each time that which is farthest from those taken (QR with column pivoting); those
that depend on them are shared out. Each base parameter is one unknown and its share of others. They are
fitted by Levenberg-Marquardt, with the others held where the guess has them, to torques with noise, many
times over; the intervals are judged by how often they hold the truth.

Reference: M. Gautier, W. Khalil, "Direct calculation of minimum set of inertial parameters of serial robots",
IEEE Trans. Robotics and Automation 6 (1990).
"""

import pathlib
import site
import statistics
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pydantic

import jaxdae
from jaxdae import mechanisms as jm
from jaxdae import robots, tuning
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/panda_identification.yaml"
PANDA = "cmeel.prefix/share/example-robot-data/robots/panda_description/urdf/panda.urdf"
ARM = "models/gripper_arm.urdf"  # relative to the config
DEPENDENT = 1e-7  # columns of unit length that are nearer to the others than this count as dependent
SCALE = 0.1  # m, by which first moments are divided beside relative masses
KINDS = ("m", "hx", "hy", "hz")


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    file: str
    seconds: pydantic.PositiveFloat
    harmonics: pydantic.PositiveInt
    samples: pydantic.PositiveInt
    noise: pydantic.PositiveFloat
    guess: pydantic.NonNegativeFloat
    repeats: pydantic.PositiveInt
    confidence: float = pydantic.Field(gt=0.0, lt=1.0)


class Arm(NamedTuple):
    """An arm: mechanism, file, indices of hinge velocities and unknown bodies, limits (hinges, 2) in rad."""

    system: Any
    file: str
    hinges: np.ndarray
    bodies: np.ndarray
    limits: np.ndarray


class Data(NamedTuple):
    """Y (samples, hinges, bodies, 10), and the known and total torques (samples, hinges) in N m."""

    matrix: np.ndarray
    known: np.ndarray
    torques: np.ndarray


class Base(NamedTuple):
    """Indices of the base parameters and of the others, and the combination matrix (base, others)."""

    chosen: np.ndarray
    others: np.ndarray
    shares: np.ndarray


def arm(given: str, beside: pathlib.Path = pathlib.Path()) -> Arm:
    """Return the arm of a file (default: the Panda, if installed) without damping and friction.

    Args:
        given: the file, relative to `beside`; empty for the default.
        beside: the folder of the config.
    """
    installed = [path for folder in site.getsitepackages() if (path := pathlib.Path(folder) / PANDA).exists()]
    file = str(beside / given if given else [*installed, beside / ARM][0])
    robot = robots.load(file)
    joints = [
        type(j)(**{**vars(j), "damping": 0.0, "friction": 0.0}) if hasattr(j, "damping") else j
        for j in robot.description.joints
    ]
    system, _ = jm.mechanism(jm.Description(**{**vars(robot.description), "joints": joints}), jm.Joints())
    names = [name.removesuffix(".angle_rate") for name in system.names.velocities]
    hinges = np.array([k for k, name in enumerate(system.names.velocities) if name.endswith(".angle_rate")])
    carried = {joint.b for joint in robot.description.joints if joint.name in {names[k] for k in hinges}}
    limits = [robot.report.limits.get(names[k], {}) for k in hinges]
    bounds = np.array([[limit.get("lower", -np.pi), limit.get("upper", np.pi)] for limit in limits])
    return Arm(
        system,
        file,
        hinges,
        np.array([k for k, name in enumerate(system.body_names) if name in carried]),
        bounds,
    )


def motion(at: Arm, settings: Settings, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return q, v and a (samples, nv) of sums of sines that use three quarters of the limits."""
    dice, n = np.random.default_rng(seed), len(at.system.names.velocities)
    k = np.arange(1, settings.harmonics + 1)
    t = settings.seconds * np.arange(settings.samples) / settings.samples
    size, phase = (
        dice.uniform(0.3, 1.0, (len(at.hinges), k.size)) / k,
        dice.uniform(0.0, 2.0 * np.pi, (len(at.hinges), k.size)),
    )
    w = 2.0 * np.pi * k / settings.seconds
    angle = w * t[:, None, None] + phase
    parts = [np.sum(size * x, axis=-1) for x in (np.sin(angle), w * np.cos(angle), -(w**2) * np.sin(angle))]
    room = 0.375 * (at.limits[:, 1] - at.limits[:, 0]) / np.abs(parts[0]).max(axis=0)
    found = [np.zeros((settings.samples, n)) for _ in range(3)]
    for x, part in zip(found, parts, strict=True):
        x[:, at.hinges] = room * part
    found[0][:, at.hinges] += at.limits.mean(axis=1)
    return found[0], found[1], found[2]


def regressor(system: Any, q: Any, v: Any, a: Any) -> Any:
    """Return Y (nv, bodies, 10) with the torques Y (m, h, I_p).

    I_p has the entries xx, yy, zz, xy, xz, yz about the mass centers of the model.
    """

    def twist(q: Any, v: Any) -> tuple[Any, Any]:
        """Return world velocities of the points and angular velocities in body axes, (bodies, 3) each."""
        found = system.twists(q, v)
        return jnp.stack(found[:3], -1), jnp.stack(found[3:], -1)

    (_, omega), (rate, alpha) = jax.jvp(twist, (q, v), (v, a))
    by_v = jax.jacfwd(twist, argnums=1)(q, v)
    turned = jnp.stack(system.frames(q)[3:], axis=-1).reshape(-1, 3, 3)
    felt = jnp.einsum("kji,kj->ki", turned, rate - system.gravity)

    def wrench(part: Any) -> tuple[Any, Any]:
        """Return force and moment of bodies with the numbers `part` (bodies, 10), in their axes."""
        m, h, (xx, yy, zz, xy, xz, yz) = part[:, :1], part[:, 1:4], part[:, 4:].T
        inertia = jnp.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz], axis=-1).reshape(-1, 3, 3)
        moved = jnp.cross(alpha, h) + jnp.cross(omega, jnp.cross(omega, h))
        spin = jnp.einsum("kij,kj->ki", inertia, alpha) + jnp.cross(
            omega, jnp.einsum("kij,kj->ki", inertia, omega)
        )
        return m * felt + moved, jnp.cross(h, felt) + spin

    def torques(part: Any) -> Any:
        force, moment = wrench(part)
        return jnp.einsum("kiv,kij,kj->v", by_v[0], turned, force) + jnp.einsum("kiv,ki->v", by_v[1], moment)

    return jax.jacfwd(torques)(jnp.zeros((turned.shape[0], 10), q.dtype))


def numbers(mass: Any, moment: Any, inertia: Any) -> Any:
    """Return (m, h, I_p) (bodies, 10) of masses, first moments (bodies, 3) and inertias (bodies, 3, 3)."""
    flat = [inertia[:, i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]
    return jnp.concatenate([mass[:, None], moment, jnp.stack(flat, -1)], axis=-1)


def inertias(system: Any) -> Any:
    """Return the inertias (bodies, 3, 3) in kg m^2."""
    given = system.inertia
    return jax.vmap(jnp.diag)(given) if given.ndim == 2 else given


def measured(at: Arm, settings: Settings, seed: int) -> Data:
    """Return the data without noise."""
    matrix = jax.jit(jax.vmap(lambda q, v, a: regressor(at.system, q, v, a)))(
        *(jnp.asarray(x) for x in motion(at, settings, seed))
    )
    matrix = np.asarray(matrix)[:, at.hinges]
    whole = np.asarray(numbers(at.system.mass, jnp.zeros((len(at.system.mass), 3)), inertias(at.system)))
    rest = np.setdiff1d(np.arange(len(whole)), at.bodies)
    known = np.einsum("shkp,kp->sh", matrix[:, :, rest], whole[rest])
    return Data(matrix[:, :, at.bodies], known, np.einsum("shkp,kp->sh", matrix, whole))


def torques_of(at: Arm, data: Data, x: Any) -> Any:
    """Return the torques (samples, hinges) for the unknowns (4 bodies,).

    The unknowns are masses relative to the file, and first moments divided by these masses and SCALE.
    """
    mass, part = at.system.mass[at.bodies], x.reshape(-1, 4)
    found = numbers(mass * part[:, 0], SCALE * mass[:, None] * part[:, 1:], inertias(at.system)[at.bodies])
    return jnp.asarray(data.known) + jnp.einsum("shkp,kp->sh", data.matrix, found)


def base(jacobian: np.ndarray) -> Base:
    """Return which columns of a Jacobian can be known, by Gram-Schmidt with the farthest column first."""
    rest, chosen, size = jacobian.copy(), [], np.linalg.norm(jacobian, axis=0).max()
    while len(chosen) < rest.shape[1]:
        lengths = np.linalg.norm(rest, axis=0)
        best = int(np.argmax(lengths))
        if lengths[best] < DEPENDENT * size:
            break
        direction = rest[:, best] / lengths[best]
        for _ in range(2):  # Once leaves round-off that a second pass removes.
            rest -= np.outer(direction, direction @ rest)
        chosen.append(best)
    picked = np.sort(np.array(chosen, int))
    others = np.setdiff1d(np.arange(rest.shape[1]), picked)
    return Base(picked, others, np.linalg.lstsq(jacobian[:, picked], jacobian[:, others], rcond=None)[0])


def labels(at: Arm) -> list[str]:
    """Return the names of the unknowns."""
    return [f"{kind}({at.system.body_names[k]})" for k in at.bodies for kind in KINDS]


def named(at: Arm, found: Base) -> list[str]:
    """Return the base parameters in words."""
    words = labels(at)
    made = []
    for row, k in enumerate(found.chosen):
        parts = [
            f"{share:+.3g} {words[j]}"
            for j, share in zip(found.others, found.shares[row], strict=True)
            if abs(share) > 1e-6
        ]
        made.append(" ".join([words[k], *parts]))
    return made


def fits(
    at: Arm, settings: Settings, data: Data, found: Base, seed: int
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the results of all repeats, the noise (hinges,) in N m, and the unknowns of the guess."""
    dice = np.random.default_rng(seed + 1)
    truth = truth_of(at)
    guess = truth + settings.guess * dice.standard_normal(truth.size)
    sigma = settings.noise * np.sqrt(np.mean(data.torques**2, axis=0))
    noisy = jnp.asarray(data.torques + sigma * dice.standard_normal((settings.repeats, *data.torques.shape)))

    def one(torques: Any) -> Any:
        def residual(x: Any) -> Any:
            return (
                torques_of(at, data, jnp.asarray(guess).at[found.chosen].set(x["base"])) - torques
            ) / sigma

        return tuning.least_squares(
            residual, {"base": jnp.asarray(guess[found.chosen])}, iterations=30, tolerance=1e-7
        )

    return jax.jit(jax.vmap(one))(noisy), sigma, guess


def truth_of(at: Arm) -> np.ndarray:
    """Return the unknowns of the file: masses 1, first moments 0."""
    return np.tile([1.0, 0.0, 0.0, 0.0], len(at.bodies))


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config = asked.config
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    seed = config.batch.seed
    with precision(config):
        at = arm(settings.file, asked.folder)
        data, truth = measured(at, settings, seed), truth_of(at)
        scale = np.sqrt(np.mean(data.torques**2, axis=0))
        jacobian = np.asarray(
            jax.jit(jax.jacfwd(lambda x: torques_of(at, data, x) / scale))(jnp.asarray(truth))
        )
        jacobian = jacobian.reshape(-1, truth.size)
        values = np.linalg.svd(jacobian, compute_uv=False)
        found = base(jacobian)
        inertial = (
            data.matrix.reshape(-1, data.matrix.shape[-2] * 10) / np.tile(scale, len(data.matrix))[:, None]
        )
        every = np.linalg.svd(
            inertial / np.maximum(np.linalg.norm(inertial, axis=0), 1e-300), compute_uv=False
        )
        result, _, guess = fits(at, settings, data, found, seed)
    estimate, error = np.asarray(result.parameters["base"]), np.asarray(result.standard_error["base"])
    factor = statistics.NormalDist().inv_cdf(0.5 + 0.5 * settings.confidence)
    # What is held at the guess shifts the estimates by its share: the base parameters are what is left.
    expected = truth[found.chosen] + found.shares @ (truth - guess)[found.others]
    held = np.abs(estimate - expected) <= factor * error
    words = named(at, found)
    rows = [
        (
            word,
            f"{expected[k]:.4f}",
            f"{estimate[0, k]:.4f} +- {factor * error[0, k]:.2g}",
            f"{np.std(estimate[:, k]):.2g}",
            f"{error[:, k].mean():.2g}",
            f"{int(held[:, k].sum())} of {len(held)}",
        )
        for k, word in enumerate(words)
    ]
    alone = [word for word in words if " " not in word]
    sentences = [
        f"From {at.file}: {len(at.bodies)} bodies on {len(at.hinges)} hinges, {truth.size} unknowns, "
        f"{len(found.chosen)} base parameters."
        + (
            " The Panda's file is not installed; this is an arm of our own."
            if at.file.endswith(ARM) and not settings.file
            else ""
        ),
        f"Known by themselves: {len(alone)}; to better than 0.1: {int(np.sum(error.mean(axis=0) < 0.1))}. "
        "Were the inertias unknown as"
        f" well, {int(np.sum(every > DEPENDENT * every[0]))} numbers of {every.size} could be known.",
        f"Largest singular value {values[0]:.3g}, the last that counts {values[len(found.chosen) - 1]:.2g}, "
        "the first that does not"
        f" {values[len(found.chosen)] if len(found.chosen) < values.size else 0.0:.1e}.",
        f"Of {held.size} intervals of {100 * settings.confidence:g} % {int(held.sum())} hold the truth "
        f"({100 * held.mean():.1f} %);"
        f" {int(np.sum(np.asarray(result.status) == jaxdae.Status.OK))} of {settings.repeats} fits "
        "converged in at most"
        f" {int(np.asarray(result.iterations).max())} iterations.",
        f"m is a mass over that of the file, h a first moment over that and {SCALE:g} m; values are those "
        "with the other unknowns held"
        f" where the guess has them, which is off by {settings.guess:g} (standard deviation).",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(11, 5.5), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.6))
        left.semilogy(
            np.arange(1, values.size + 1), values / values[0], marker="o", markersize=4, **line_style(0)
        )
        left.axvline(len(found.chosen) + 0.5, color="black", linestyle=":", linewidth=1.0)
        left.set(
            xlabel="number", ylabel="singular value over the largest", title="of the Jacobian of the torques"
        )
        off = (estimate - expected) / error
        right.boxplot(off, whis=(2.5, 97.5), showfliers=False)
        for bound in (-factor, factor):
            right.axhline(bound, color="black", linestyle=":", linewidth=1.0)
        right.set_xticklabels([word.split(" ")[0] for word in words], rotation=90, fontsize=7)
        right.set(
            ylabel="off the truth in standard errors",
            title=f"{settings.repeats} repeats; boxes hold half, whiskers 95 %",
        )
        figure.suptitle(config.name)
    headings = ("base parameter", "truth", "first repeat", "scatter", "standard error", "interval holds")
    conclude(asked, headings, rows, sentences, {"panda_identification": figure})
    return 0


if __name__ == "__main__":
    sys.exit(main())

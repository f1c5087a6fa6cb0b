"""The schema of a config: the sections and keys of a YAML file.

`configs/` holds examples. A bare word is a section with this type and default options: `integrator: rk4` is
`integrator: {type: rk4}`.
"""

from typing import Annotated, Any, Literal

import jax
import numpy as np
from pydantic import BeforeValidator, Field, Strict, model_validator

from jaxdae.app.config.schema_contact import ContactStep
from jaxdae.app.config.schema_control import Controls, Law
from jaxdae.app.config.schema_integrator import Adaptive, ContactStepping, Integrator, Method, Route
from jaxdae.app.config.schema_kinematics import Calibrate, Map
from jaxdae.app.config.schema_mechanism import Mechanism
from jaxdae.app.config.schema_tuning import Optimize, Tune, written_out
from jaxdae.app.config.section import Name, Section


class Start(Section):
    """The initial state: the start poses with closed loops, and consistent velocities."""

    fixed: list[str] = Field(
        default=[], description="coordinates that the loop closure must not change, for example [crank.theta]"
    )
    positions: dict[str, float] = Field(
        default={},
        description="start values in m and rad by coordinate, for example {crank.theta: 1.0}; they replace "
        "the start poses and stay fixed during the loop closure",
    )
    velocities: dict[str, float] = Field(
        default={},
        description="start velocities in m/s and rad/s by coordinate, for example {crank.theta: 1.0}",
    )
    separate: bool = Field(
        default=False,
        description="whether to move bodies apart that penetrate each other, and joints back to their limits",
    )


class NoStabilization(Section):
    """No feedback: the constraints hold at the acceleration level."""

    type: Literal["none"] = "none"


class _Feedback(Section):
    alpha: float = Field(ge=0, description="the gain alpha")
    beta: float = Field(ge=0, description="the gain beta")


class Baumgarte(_Feedback):
    """Baumgarte feedback, g'' + 2 alpha g' + beta^2 g = 0, with gains in 1/s."""

    type: Literal["baumgarte"]


class MultiplierFeedback(_Feedback):
    """Feedback by multipliers, lam - alpha g - beta g'."""

    type: Literal["multiplier_feedback"]


class Solver(Section):
    """The linear solver for accelerations and multipliers.

    `default` is least_squares if the structure of the loops or axles, or their pose at the start, makes
    constraints redundant, and schur_complement otherwise. `auto` chooses by rank and conditioning at the
    start of the nominal world.
    """

    type: Literal["default", "auto", "dense_kkt", "schur_complement"] = Field(description="the method")


class _Ranked(Section):
    tolerance: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="singular values below this fraction of the largest count as zero; left out: the "
        "library's default",
    )


class NullSpaceSolver(_Ranked):
    """Reduced equations on the null space of the constraints."""

    type: Literal["null_space"]
    decomposition: Literal["svd", "qr", "normal_equations"] = Field(
        default="svd", description="svd (any rank), qr or normal_equations"
    )

    @model_validator(mode="after")
    def _tolerance_where_ranks_are_found(self) -> "NullSpaceSolver":
        if self.tolerance is not None and self.decomposition != "svd":
            raise ValueError(
                f"tolerance with decomposition {self.decomposition}|tolerance only with svd, which "
                "determines the rank|remove tolerance"
            )
        return self


class LeastSquaresSolver(_Ranked):
    """Minimum-norm multipliers."""

    type: Literal["least_squares"]


class ProximalSolver(Section):
    """The method of multipliers."""

    type: Literal["proximal"]
    regularization: float | None = Field(
        default=None,
        gt=0,
        description="the regularization relative to the mean diagonal of the Delassus matrix; omit for the "
        "library's default",
    )
    iterations: int = Field(
        default=5, ge=1, le=100, description="the number of iterations, which share one factorization"
    )


class _Krylov(Section):
    tolerance: float | None = Field(
        default=None, gt=0, lt=1, description="relative residual at convergence; omit for round-off"
    )
    max_iterations: int | None = Field(
        default=None,
        ge=1,
        description="the largest number of iterations; omit for a value that fits the number of rows",
    )


class ConjugateGradientSolver(_Krylov):
    """Matrix-free conjugate gradients on the Delassus operator. Rows may be dependent."""

    type: Literal["conjugate_gradient"]
    rank_tolerance: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="directions with a smaller J M^-1/2 count as dependent; omit for the library's default",
    )


class BiconjugateGradientSolver(_Krylov):
    """Matrix-free stabilized biconjugate gradients on the Delassus operator."""

    type: Literal["biconjugate_gradient"]


class Vary(Section):
    """A number of the config that differs from world to world."""

    path: str = Field(
        min_length=1, description="the path of the number in the config, for example forces.motor.torque"
    )
    distribution: Literal["normal", "uniform"] = Field(default="normal", description="normal or uniform")
    scatter: float | None = Field(
        default=None,
        gt=0,
        description="relative spread: standard deviation (normal) or half width (uniform) divided by the "
        "nominal value",
    )
    std: float | None = Field(
        default=None, gt=0, description="standard deviation around the nominal value, in its unit (normal)"
    )
    low: float | None = Field(default=None, description="lowest value, in its unit (uniform)")
    high: float | None = Field(default=None, description="highest value, in its unit (uniform)")

    @model_validator(mode="after")
    def _one_spread(self) -> "Vary":
        ways = (("scatter",), ("std",)) if self.distribution == "normal" else (("scatter",), ("low", "high"))
        given = {key for key in ("scatter", "std", "low", "high") if getattr(self, key) is not None}
        if not any(given == set(way) for way in ways):
            expected = " or ".join(" with ".join(way) for way in ways)
            came = ", ".join(sorted(given)) or "no spread"
            raise ValueError(
                f"{came} for a {self.distribution} distribution|{expected}|give the spread in one of these "
                "forms"
            )
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"low {self.low:g} and high {self.high:g}|low below high|swap them")
        return self


class Batch(Section):
    """Many worlds at once; world 0 is always the nominal one."""

    size: int = Field(default=1, ge=1, le=10_000_000, description="the number of worlds")
    seed: int = Field(default=0, ge=0, description="the seed of all random values")
    vary: list[Vary] = Field(
        default=[],
        description="the numbers that differ between worlds, a list of {path, distribution, scatter}",
    )


class Layout(Section):
    """Devices, chunks and kernel of the worlds. They change results in the last digits at most."""

    devices: int | None = Field(
        default=None,
        ge=1,
        description="the number of cores, or of devices, that share the worlds; omit for all",
    )
    chunk: int | None = Field(
        default=None,
        ge=1,
        description="the number of worlds that a device runs at a time; omit for a "
        "number that fits their size",
    )
    kernel: Literal["auto", "none", "fused"] = Field(
        default="auto",
        description="auto (fused for long batches on CPUs), none (XLA), or fused (one compiled kernel per "
        "rollout, on CPUs and"
        " NVIDIA GPUs)",
    )


class Output(Section):
    """The plots of a run."""

    plots: bool = Field(default=True, description="whether to draw plots; true or false")
    overlay: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Strict(False)] | None = Field(
        default=None, description="times of the poses in the overlay picture, in s; omit for six times"
    )


class Config(Section):
    """The config of a run."""

    name: Name = Field(description="the name of the run, a word; run folders begin with it")
    description: str = Field(default="", description="a description of the experiment in words")
    mechanism: Mechanism = Field(description="bodies, joints and forces")
    start: Start = Field(
        default=Start(), description="start positions and velocities, and the coordinates to keep fixed"
    )
    integrator: Annotated[
        Method,
        BeforeValidator(written_out),
    ] = Field(default=Integrator(type="rk4"), description="a method's name, or {type: ..., projection: ...}")
    solver: Annotated[
        Annotated[
            Solver
            | NullSpaceSolver
            | LeastSquaresSolver
            | ProximalSolver
            | ConjugateGradientSolver
            | BiconjugateGradientSolver,
            Field(discriminator="type"),
        ],
        BeforeValidator(written_out),
    ] = Field(default=Solver(type="default"), description="a solver's name, or {type: ..., options}")
    stabilization: Annotated[
        Annotated[NoStabilization | Baumgarte | MultiplierFeedback, Field(discriminator="type")],
        BeforeValidator(written_out),
    ] = Field(default=NoStabilization(), description="none, or {type: baumgarte, alpha: ..., beta: ...}")
    contact_step: ContactStep = Field(
        default=ContactStep(), description="{solver: ..., smoothing: ..., tolerance: ..., most: ...}"
    )
    duration: float = Field(gt=0, description="the simulated time in s")
    dt: float = Field(gt=0, description="the step in s")
    save_every: int = Field(default=1, ge=1, description="the number of steps between saved states")
    precision: Literal["float32", "float64"] = Field(default="float64", description="float32 or float64")
    batch: Batch = Field(default=Batch(), description="{size: ..., seed: ..., vary: [...]}")
    layout: Layout = Field(default=Layout(), description="{devices: ..., chunk: ..., kernel: ...}")
    tune: Tune | None = Field(
        default=None, description="{parameters: [...], loss: [...], optimizer: ..., iterations: ...}"
    )
    optimize: Optimize | None = Field(
        default=None, description="{inputs: [...], loss: [...], optimizer: ..., iterations: ...}"
    )
    map: Map | None = Field(
        default=None, description="{body: ..., x: ..., y: ..., actuated: [...], quantities: [...]}"
    )
    calibrate: Calibrate | None = Field(
        default=None, description="{actuated: [...], measured: [...], parameters: [...], offsets: [...]}"
    )
    controls: Controls | None = Field(
        default=None,
        description="inputs over time: the name of a CSV file with a column t, in the folder of the config",
    )
    control: Law | None = Field(
        default=None, description="a feedback law, {type: pd, inputs: [...], coordinates: [...], ...}"
    )
    output: Output = Field(default=Output(), description="{plots: ..., overlay: [...]}")
    script: str = Field(
        default="", description="the script that this config belongs to, such as experiments/parking.py"
    )
    experiment: dict[str, Any] = Field(
        default={}, description="settings that only the script of an experiment reads"
    )

    @model_validator(mode="after")
    def _stabilization_where_it_acts(self) -> "Config":
        feedback, method = self.stabilization.type, self.integrator.type
        if feedback != "none" and not isinstance(self.integrator, Integrator | Route | Adaptive):
            raise ValueError(
                f"stabilization {feedback} with integrator {method}|a stabilization only with explicit "
                f"methods|remove stabilization: {method} satisfies the constraints without it|stabilization"
            )
        return self

    @model_validator(mode="after")
    def _contact_where_stepped(self) -> "Config":
        if not isinstance(self.integrator, ContactStepping):
            return self
        if not self.touches:
            raise ValueError(
                "contact_stepping without contacts|a mechanism with contacts, joint limits or dry friction|"
                "choose another method, such as semi_implicit_euler|integrator"
            )
        bounces = [
            part.name
            for part in (*self.mechanism.contacts, *self.mechanism.joints)
            if np.any(getattr(part, "restitution", 0.0))
        ]
        if bounces:
            raise ValueError(
                f"contact_stepping with the restitution of {', '.join(bounces)}|a restitution of 0, because "
                "this step stops bodies before they rebound|remove the restitution, or choose another "
                "method, such as rk4|integrator"
            )
        return self

    @model_validator(mode="after")
    def _contact_options_where_contacts(self) -> "Config":
        if self.touches:
            return self
        for given, what, key in (
            (self.contact_step != ContactStep(), "contact_step", "contact_step"),
            (self.start.separate, "separate", "start"),
        ):
            if given:
                raise ValueError(
                    f"{what} without contacts|a mechanism with contacts, joint limits or dry friction|"
                    f"remove {what}|{key}"
                )
        return self

    @property
    def touches(self) -> bool:
        """Whether the mechanism has contacts, joint limits or dry friction."""
        return bool(self.mechanism.contacts) or any(
            jax.tree.leaves(getattr(joint, "limits", None)) or np.any(getattr(joint, "dry_friction", 0.0))
            for joint in self.mechanism.joints
        )

    @property
    def title(self) -> str:
        """The name in the titles of pictures and reports.

        A suffix marks a config whose experiment is run by a script instead of the command.
        """
        return f"{self.name} (mechanism only)" if self.of_script else self.name

    @property
    def of_script(self) -> str:
        """The script that this config belongs to, in words; empty if the command runs the whole config."""
        return self.script or ("a script, which reads the section experiment" if self.experiment else "")

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return round(self.duration / self.dt)

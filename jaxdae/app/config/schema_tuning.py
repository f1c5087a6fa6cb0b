"""The sections `tune` and `optimize` of a config: trained numbers or inputs, loss and optimizer."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Strict, model_validator

from jaxdae.app.config.section import Section

Place = Annotated[tuple[float, ...], Strict(False), Field(min_length=2, max_length=3)]


class Parameter(Section):
    """A number of the config that is trained."""

    path: str = Field(
        min_length=1, description="the path of the number in the config, for example stabilization.alpha"
    )
    lower: float | None = Field(default=None, description="its lower bound, in its unit")
    upper: float | None = Field(default=None, description="its upper bound, in its unit")

    @model_validator(mode="after")
    def _ordered(self) -> "Parameter":
        check_order(self.lower, self.upper)
        return self


def check_order(lower: float | None, upper: float | None) -> None:
    """Raise ValueError if the lower bound is not below the upper bound."""
    if lower is not None and upper is not None and lower >= upper:
        raise ValueError(f"lower {lower:g} and upper {upper:g}|lower below upper|swap them")


class Input(Section):
    """A torque, joint force or motor as an input over time, linear between knots."""

    force: str = Field(
        min_length=1,
        description="the name of a torque, joint_force or motor; its value is the initial guess of all knots",
    )
    knots: int = Field(
        default=20, ge=2, le=100_000, description="the number of values, evenly spaced over the duration"
    )
    lower: float | None = Field(default=None, description="the lower limit in N m or N")
    upper: float | None = Field(default=None, description="the upper limit in N m or N")

    @model_validator(mode="after")
    def _ordered(self) -> "Input":
        check_order(self.lower, self.upper)
        return self


class _Term(Section):
    over: Literal["average", "final"] = Field(
        default="average", description="average (over the saved states) or final (the last state)"
    )
    weight: float = Field(default=1.0, gt=0, description="the factor of the term in the loss")


class CoordinateTerm(_Term):
    """(coordinate - target)^2."""

    type: Literal["coordinate", "velocity"]
    coordinate: str = Field(
        description="the coordinate, for example crank.theta or elbow.angle; with type velocity its rate, or "
        "a velocity such as base.omega_x"
    )
    target: float = Field(description="the target in m, rad, m/s or rad/s")


class PointTerm(_Term):
    """The squared distance of a point from its target."""

    type: Literal["point"]
    body: str = Field(description="the body of the point")
    point: Place | None = Field(
        default=None, description="the point in the frame of the body in m; omit for the center of mass"
    )
    target: Place = Field(description="the target in the world in m, [x, y], or [x, y, z] in space")


class ReactionTerm(_Term):
    """The sum of the squared multipliers of a joint."""

    type: Literal["reaction"]
    joint: str = Field(description="the name of the joint")


class ContactTerm(_Term):
    """(value - target)^2, summed over contacts: gaps in m, slips in m/s or normal forces in N."""

    type: Literal["gap", "slip", "normal_force"]
    contact: str = Field(description="the name of a contact; for a contact with several points, all of them")
    target: float = Field(default=0.0, description="the target in m, m/s or N")


class PlainTerm(_Term):
    """A term without further options: |g|^2, |g'|^2, (E - E(0))^2 or |u|^2."""

    type: Literal["violation", "velocity_violation", "energy", "effort"]


Term = Annotated[
    CoordinateTerm | PointTerm | ReactionTerm | ContactTerm | PlainTerm, Field(discriminator="type")
]


class Optimizer(Section):
    """An optimizer of optax with its learning-rate schedule."""

    type: Literal["adam", "nadam", "rmsprop", "sgd"] = Field(
        default="adam", description="adam, nadam, rmsprop or sgd"
    )
    learning_rate: float = Field(
        default=0.05,
        gt=0,
        description="the step size in unconstrained variables: logarithms, or quarters of a range",
    )
    schedule: Literal["constant", "cosine", "exponential"] = Field(
        default="cosine",
        description="the schedule of the learning rate: constant, cosine (to zero) or exponential (to a "
        "hundredth)",
    )
    clip: float | None = Field(
        default=None, gt=0, description="the largest norm of the gradient; omit for no limit"
    )


def written_out(value: object) -> object:
    """Return `{type: value}` for a text, and any other value unchanged."""
    return {"type": value} if isinstance(value, str) else value


class _Learning(Section):
    loss: list[Term] = Field(
        min_length=1, description="the terms of the loss, a list of {type, ..., over, weight}"
    )
    optimizer: Annotated[Optimizer, BeforeValidator(written_out)] = Field(
        default=Optimizer(),
        description="an optimizer's name, or {type: ..., learning_rate: ..., schedule: ..., clip: ...}",
    )
    iterations: int = Field(default=100, ge=1, le=10_000_000, description="the number of optimizer steps")
    checkpoint_every: int = Field(
        default=10, ge=1, description="the number of iterations between checkpoints"
    )
    keep: Literal["states", "factors"] = Field(
        default="states",
        description="the saved residuals of a step for the gradient: states, or factors, which is faster and "
        "needs more memory",
    )


class Tune(_Learning):
    """Numbers of the config, fitted by gradient descent."""

    parameters: list[Parameter] = Field(
        min_length=1, description="the trained numbers, a list of {path, lower, upper}"
    )


class Optimize(_Learning):
    """Inputs over time, optimized by gradient descent."""

    inputs: list[Input] = Field(
        min_length=1, description="the trained inputs, a list of {force, knots, lower, upper}"
    )

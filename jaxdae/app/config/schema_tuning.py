"""The sections `tune` and `optimize` of a config: what is learned, from which loss, by which optimizer."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Strict, model_validator

from jaxdae.app.config.schema_mechanism import Section

Place = Annotated[tuple[float, ...], Strict(False), Field(min_length=2, max_length=3)]


class Parameter(Section):
    """A number of the config that is trained."""

    path: str = Field(
        min_length=1, description="the number, by its path in the config, for example stabilization.alpha"
    )
    lower: float | None = Field(default=None, description="its lower bound, in its unit")
    upper: float | None = Field(default=None, description="its upper bound, in its unit")

    @model_validator(mode="after")
    def _ordered(self) -> "Parameter":
        check_order(self.lower, self.upper)
        return self


def check_order(lower: float | None, upper: float | None) -> None:
    """Raises where bounds are not in order."""
    if lower is not None and upper is not None and lower >= upper:
        raise ValueError(f"lower {lower:g} and upper {upper:g}|lower below upper|swap them")


class Input(Section):
    """A torque, joint force or motor that becomes a sequence of values over time, linear between knots."""

    force: str = Field(
        min_length=1,
        description="the name of a torque, joint_force or motor; its number is the start of all knots",
    )
    knots: int = Field(
        default=20, ge=2, le=100_000, description="how many values, evenly spread over the duration"
    )
    lower: float | None = Field(default=None, description="the lower limit in N m or N")
    upper: float | None = Field(default=None, description="the upper limit in N m or N")

    @model_validator(mode="after")
    def _ordered(self) -> "Input":
        check_order(self.lower, self.upper)
        return self


class _Term(Section):
    over: Literal["average", "final"] = Field(
        default="average", description="average or final, over the saved states"
    )
    weight: float = Field(default=1.0, gt=0, description="the factor of the term in the loss")


class CoordinateTerm(_Term):
    """(coordinate - target)^2."""

    type: Literal["coordinate", "velocity"]
    coordinate: str = Field(
        description="the coordinate, for example crank.theta or elbow.angle; of type velocity its rate, or "
        "a velocity such as base.omega_x"
    )
    target: float = Field(description="the target in m, rad, m/s or rad/s")


class PointTerm(_Term):
    """The square of the distance of a point from its target."""

    type: Literal["point"]
    body: str = Field(description="the body of the point")
    point: Place | None = Field(
        default=None, description="the point in the frame of the body in m; left out: the mass center"
    )
    target: Place = Field(description="the target in the world in m, [x, y], in space [x, y, z]")


class ReactionTerm(_Term):
    """The square of the multipliers of a joint."""

    type: Literal["reaction"]
    joint: str = Field(description="the joint whose reaction counts")


class PlainTerm(_Term):
    """|g|^2, |g'|^2, (E - E(0))^2, |u|^2."""

    type: Literal["violation", "velocity_violation", "energy", "effort"]


Term = Annotated[CoordinateTerm | PointTerm | ReactionTerm | PlainTerm, Field(discriminator="type")]


class Optimizer(Section):
    """An optimizer of optax with its schedule."""

    type: Literal["adam", "nadam", "rmsprop", "sgd"] = Field(
        default="adam", description="adam, nadam, rmsprop or sgd"
    )
    learning_rate: float = Field(
        default=0.05, gt=0, description="the step in free variables: logarithms, or quarters of a range"
    )
    schedule: Literal["constant", "cosine", "exponential"] = Field(
        default="cosine",
        description="of the learning rate: constant, cosine (to zero) or exponential (to a hundredth)",
    )
    clip: float | None = Field(
        default=None, gt=0, description="the largest norm of the gradient; left out: no limit"
    )


def written_out(value: object) -> object:
    """Returns a section whose type alone was given, `{type: ...}`; anything else as it is."""
    return {"type": value} if isinstance(value, str) else value


class _Learning(Section):
    loss: list[Term] = Field(
        min_length=1, description="the terms of the loss, a list of {type, ..., over, weight}"
    )
    optimizer: Annotated[Optimizer, BeforeValidator(written_out)] = Field(
        default=Optimizer(),
        description="an optimizer's name, or {type: ..., learning_rate: ..., schedule: ..., clip: ...}",
    )
    iterations: int = Field(default=100, ge=1, le=10_000_000, description="how many steps of the optimizer")
    checkpoint_every: int = Field(default=10, ge=1, description="iterations from one checkpoint to the next")
    keep: Literal["states", "factors"] = Field(
        default="states",
        description="what the gradient keeps of a step: states, or factors too, which is faster and takes "
        "more memory",
    )


class Tune(_Learning):
    """Numbers of the config, found by gradient."""

    parameters: list[Parameter] = Field(
        min_length=1, description="what is trained, a list of {path, lower, upper}"
    )


class Optimize(_Learning):
    """Inputs over time, found by gradient."""

    inputs: list[Input] = Field(
        min_length=1, description="what is trained, a list of {force, knots, lower, upper}"
    )

"""The sections `controls` and `control` of a config: inputs over time, and feedback laws."""

from typing import Annotated, Literal

from pydantic import Field, Strict, model_validator

from jaxdae.app.config.section import Section

Numbers = Annotated[tuple[float, ...], Strict(False), Field(min_length=1)]


class Controls(Section):
    """Inputs over time, each held until the next time.

    The content of a CSV file with a column t and one column per force.
    """

    times: Numbers = Field(description="the times at which the inputs change, in s, ascending")
    inputs: dict[str, Numbers] = Field(
        min_length=1, description="the values in N m or N by the names of the forces, one per time"
    )

    @model_validator(mode="after")
    def _fitting(self) -> "Controls":
        if any(a >= b for a, b in zip(self.times[:-1], self.times[1:], strict=True)):
            raise ValueError(
                "times that are not ascending|ascending times|sort the table, and remove repeated times"
            )
        wrong = [name for name, column in self.inputs.items() if len(column) != len(self.times)]
        if wrong:
            raise ValueError(
                f"{len(self.inputs[wrong[0]])} values of {wrong[0]} at {len(self.times)} times|one value per "
                "time|complete the table"
            )
        return self


class _Law(Section):
    inputs: list[str] = Field(
        min_length=1, description="the names of the torques, joint_forces or motors that the law drives"
    )
    lower: float | None = Field(default=None, description="the smallest input in N m or N; omit for no limit")
    upper: float | None = Field(default=None, description="the largest input in N m or N; omit for no limit")

    @model_validator(mode="after")
    def _limits(self) -> "_Law":
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise ValueError(f"lower {self.lower:g} and upper {self.upper:g}|lower below upper|swap them")
        return self


class _Tracking(_Law):
    coordinates: list[str] = Field(
        min_length=1, description="the names of the coordinates that follow the reference"
    )
    reference: Numbers = Field(description="the target of each coordinate in m or rad")
    kp: float = Field(ge=0, description="the proportional gain")
    kd: float = Field(default=0.0, ge=0, description="the derivative gain")

    @model_validator(mode="after")
    def _one_each(self) -> "_Tracking":
        if len(self.reference) != len(self.coordinates):
            got = f"{len(self.reference)} references for {len(self.coordinates)} coordinates"
            raise ValueError(f"{got}|one reference per coordinate|complete the list")
        return self


class _Pushing(_Tracking):
    gravity: bool = Field(default=False, description="whether to compensate gravity; true or false")

    @model_validator(mode="after")
    def _pairs(self) -> "_Pushing":
        if len(self.inputs) != len(self.coordinates):
            got = f"{len(self.inputs)} inputs for {len(self.coordinates)} coordinates"
            raise ValueError(f"{got}|one input per coordinate|input k drives coordinate k")
        return self


class PDLaw(_Pushing):
    """PD feedback, u = kp (reference - y) + kd (0 - y'); input k drives coordinate k.

    With `gravity`, the law adds the inputs that compensate gravity.
    """

    type: Literal["pd"]


class PIDLaw(_Pushing):
    """The law `pd` with an integral term, z' = ki (reference - y).

    The integral stops while an input is at its limit and the error drives it beyond (anti-windup).
    """

    type: Literal["pid"]
    ki: float = Field(ge=0, description="the integral gain")


class ComputedTorqueLaw(_Tracking):
    """Inputs that give y'' = kp (reference - y) - kd y', with all loops taken into account."""

    type: Literal["computed_torque"]


class RegulatorLaw(_Law):
    """The linear-quadratic regulator about the start. Constant inputs must be able to hold the start."""

    type: Literal["regulator"]
    position_weight: float = Field(
        default=1.0, ge=0, description="the weight of the squared deviations of the coordinates"
    )
    velocity_weight: float = Field(default=1.0, ge=0, description="the weight of the squared velocities")
    input_weight: float = Field(
        default=1.0,
        gt=0,
        description="the weight of the squared deviations of the inputs from the inputs that hold the start",
    )


Law = Annotated[PDLaw | PIDLaw | ComputedTorqueLaw | RegulatorLaw, Field(discriminator="type")]

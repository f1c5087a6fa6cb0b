"""The sections `controls` and `control` of a config: inputs over time, and feedback laws."""

from typing import Annotated, Literal

from pydantic import Field, Strict, model_validator

from jaxdae.app.config.schema_mechanism import Section

Numbers = Annotated[tuple[float, ...], Strict(False), Field(min_length=1)]


class Controls(Section):
    """Inputs over time, each held from its time to the next: a file of CSV with a column t and one for each force, written out."""

    times: Numbers = Field(description="when the inputs change, in s, ascending")
    inputs: dict[str, Numbers] = Field(
        min_length=1, description="the values in N m or N by the names of the forces, as many as times"
    )

    @model_validator(mode="after")
    def _fitting(self) -> "Controls":
        if any(a >= b for a, b in zip(self.times[:-1], self.times[1:], strict=True)):
            raise ValueError(
                "times that do not ascend|ascending times|sort the table, and remove what is there twice"
            )
        wrong = [name for name, column in self.inputs.items() if len(column) != len(self.times)]
        if wrong:
            raise ValueError(
                f"{len(self.inputs[wrong[0]])} values of {wrong[0]} at {len(self.times)} times|as many of "
                "both|complete the table"
            )
        return self


class _Law(Section):
    inputs: list[str] = Field(
        min_length=1, description="the torques, joint_forces or motors that the law drives, by name"
    )
    lower: float | None = Field(
        default=None, description="the smallest input in N m or N; left out: no limit"
    )
    upper: float | None = Field(default=None, description="the largest input in N m or N; left out: no limit")

    @model_validator(mode="after")
    def _limits(self) -> "_Law":
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise ValueError(f"lower {self.lower:g} and upper {self.upper:g}|lower below upper|swap them")
        return self


class _Tracking(_Law):
    coordinates: list[str] = Field(
        min_length=1, description="what is to follow its reference, coordinates by name"
    )
    reference: Numbers = Field(description="where the coordinates are to be, in m or rad, one number each")
    kp: float = Field(ge=0, description="the proportional gain")
    kd: float = Field(default=0.0, ge=0, description="the derivative gain")

    @model_validator(mode="after")
    def _one_each(self) -> "_Tracking":
        if len(self.reference) != len(self.coordinates):
            got = f"{len(self.reference)} references of {len(self.coordinates)} coordinates"
            raise ValueError(f"{got}|one number each|complete the list")
        return self


class _Pushing(_Tracking):
    gravity: bool = Field(default=False, description="true where the weight is compensated")

    @model_validator(mode="after")
    def _pairs(self) -> "_Pushing":
        if len(self.inputs) != len(self.coordinates):
            got = f"{len(self.inputs)} inputs for {len(self.coordinates)} coordinates"
            raise ValueError(f"{got}|an input for each coordinate|input k pushes coordinate k")
        return self


class PDLaw(_Pushing):
    """u = kp (reference - y) + kd (0 - y'), input k for coordinate k.

    With the inputs that hold the weight, where these are wanted.
    """

    type: Literal["pd"]


class PIDLaw(_Pushing):
    """The same with an integral, z' = ki (reference - y), which stands still while a limit holds and the error drives the input beyond."""

    type: Literal["pid"]
    ki: float = Field(ge=0, description="the integral gain")


class ComputedTorqueLaw(_Tracking):
    """Inputs with which y'' = kp (reference - y) - kd y', through all loops."""

    type: Literal["computed_torque"]


class RegulatorLaw(_Law):
    """The linear-quadratic regulator about the start, which must be one that constant inputs can hold."""

    type: Literal["regulator"]
    position_weight: float = Field(
        default=1.0, ge=0, description="of squares of deviations of the coordinates"
    )
    velocity_weight: float = Field(default=1.0, ge=0, description="of squares of the velocities")
    input_weight: float = Field(
        default=1.0, gt=0, description="of squares of what the inputs differ from those that hold the start"
    )


Law = Annotated[PDLaw | PIDLaw | ComputedTorqueLaw | RegulatorLaw, Field(discriminator="type")]

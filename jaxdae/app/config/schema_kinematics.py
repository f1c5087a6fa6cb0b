"""The sections `map` and `calibrate` of a config: workspace over a grid, and calibration from a log."""

import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, Strict, model_validator

from jaxdae.app.config.problems import is_number
from jaxdae.app.config.schema_tuning import Place, check_order
from jaxdae.app.config.section import Name, Section

_MOST_POSES = 1_000_000
Std = Annotated[float, Field(gt=0)]


class Axis(Section):
    """Cells of equal size along an axis. The poses of a map are at the centers of the cells."""

    lower: float = Field(description="the lower end of the first cell in m")
    upper: float = Field(description="the upper end of the last cell in m")
    cells: int = Field(ge=1, le=_MOST_POSES, description="the number of cells")

    @model_validator(mode="after")
    def _ordered(self) -> "Axis":
        if self.cells > 1 or self.lower > self.upper:
            check_order(self.lower, self.upper)
        return self

    @property
    def centers(self) -> np.ndarray:
        """The centers of the cells (cells,) in m."""
        return self.lower + (self.upper - self.lower) * (np.arange(self.cells) + 0.5) / self.cells


def _one_value(given: Any) -> Any:
    """Return the axis with one cell at a number, and any other value unchanged."""
    return {"lower": given, "upper": given, "cells": 1} if is_number(given) else given


class Map(Section):
    """The workspace of a frame and its distances from singular configurations, over a grid of positions."""

    body: str = Field(description="the body of the frame")
    point: Place | None = Field(
        default=None, description="the origin of the frame on the body in m; omit for the center of mass"
    )
    x: Annotated[Axis, BeforeValidator(_one_value)] = Field(
        description="{lower: ..., upper: ..., cells: ...} in m, or one number"
    )
    y: Annotated[Axis, BeforeValidator(_one_value)] = Field(
        description="{lower: ..., upper: ..., cells: ...} in m, or one number"
    )
    z: Annotated[Axis | None, BeforeValidator(_one_value)] = Field(
        default=None, description="in space, {lower: ..., upper: ..., cells: ...} in m, or one number"
    )
    theta: float | None = Field(
        default=None, description="in the plane, the angle of the body in rad; omit for any angle"
    )
    rpy: Annotated[tuple[float, float, float], Strict(False)] | None = Field(
        default=None, description="in space, roll, pitch and yaw of the body in rad; omit for any orientation"
    )
    actuated: list[str] = Field(
        min_length=1, description="the coordinates of the motors, for example [left.angle, right.angle]"
    )
    quantities: list[
        Literal["type1", "type2", "dexterity", "manipulability", "smallest_singular_value", "margin"]
    ] = Field(default=["type1", "type2", "dexterity"], min_length=1, description="the quantities to draw")

    @model_validator(mode="after")
    def _a_grid(self) -> "Map":
        cells = [axis.cells for axis in self.axes.values()]
        if sum(count > 1 for count in cells) < 2:
            raise ValueError("fewer than two axes with several cells|two or three of them|add cells")
        if math.prod(cells) > _MOST_POSES:
            raise ValueError(f"{math.prod(cells):.3g} poses|at most {_MOST_POSES:.0e} poses|use fewer cells")
        return self

    @property
    def axes(self) -> dict[str, Axis]:
        """The axes of the grid by name."""
        axes = {"x": self.x, "y": self.y, "z": self.z}
        return {name: axis for name, axis in axes.items() if axis is not None}


class Measured(Section):
    """A frame whose measured poses are in the log."""

    name: Name = Field(description="the name of the frame; its columns are name.x, name.y, ...")
    body: str = Field(description="the body of the frame")
    point: Place | None = Field(
        default=None, description="the origin of the frame on the body in m; omit for the center of mass"
    )
    position_std: float | None = Field(
        default=None, gt=0, description="standard deviation of the measured positions in m; omit without them"
    )
    orientation_std: float | None = Field(
        default=None, gt=0, description="standard deviation of the orientations in rad; omit without them"
    )

    @model_validator(mode="after")
    def _measured(self) -> "Measured":
        if self.position_std is None and self.orientation_std is None:
            raise ValueError("no standard deviation|position_std, orientation_std, or both|add one of them")
        return self


class Calibrate(Section):
    """Geometry, encoder offsets, masses and friction, fitted to measured poses and motor efforts."""

    actuated: list[str] = Field(
        min_length=1, description="the coordinates with encoders, which are columns of the log"
    )
    measured: list[Measured] = Field(default=[], description="the measured frames")
    effort_std: Std | list[Std] | None = Field(
        default=None,
        description="standard deviation of the efforts in N m or N, one number, or one per actuated "
        "coordinate; the log then has columns name.rate, name.acceleration and name.effort for each of them",
    )
    parameters: list[str] = Field(
        default=[],
        description="fields of joints, for example [joints.elbow.point_a.x]; with effort_std also "
        "bodies.rod.mass, bodies.rod.center and joints.elbow.damping",
    )
    offsets: list[str] = Field(default=[], description="the actuated coordinates with an unknown offset")
    robust: bool = Field(default=True, description="whether large residuals have smaller weights")
    held_out: float = Field(
        default=0.0, ge=0, lt=1, description="the share of the poses that test the result, without the fit"
    )

    @model_validator(mode="after")
    def _unknowns(self) -> "Calibrate":
        if not self.parameters and not self.offsets:
            raise ValueError("no unknowns|parameters, offsets, or both|add parameters")
        if not self.measured and self.effort_std is None:
            raise ValueError("no measurements|measured, effort_std, or both|add one of them")
        count = len(self.effort_std) if isinstance(self.effort_std, list) else len(self.actuated)
        if count != len(self.actuated):
            raise ValueError(
                f"{count} values of effort_std|one number, or {len(self.actuated)}|give one per motor"
            )
        return self

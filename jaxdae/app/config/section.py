"""Base of all sections of a config."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,99}$")]


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, types are not converted, and numbers are finite."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

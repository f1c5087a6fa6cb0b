"""Fields that are or may be functions: of time, of a coordinate, and terrains (heights over positions)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.callables import as_pytree
from jaxdae.base.requirements import check_requirements
from jaxdae.geometry.terrain import terrain_mistakes
from jaxdae.mechanisms.describe.kinds import Kind, Known, Start
from jaxdae.mechanisms.describe.number_kinds import Number
from jaxdae.mechanisms.describe.numbers import concrete, real, shown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Function(Kind):
    """A function: a callable pytree whose numbers are leaves, or a plain function.

    Attributes:
        name: the name of the field.
        what: a description of the expected value.
        returns: a description of the return value.
        takes: the shape of the argument.
        gives: the shape of the return value.
    """

    name: str
    what: str
    returns: str
    takes: tuple[int, ...] = ()
    gives: tuple[int, ...] = ()

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield an error if the value is not a valid function."""
        expected = f"must be {self.what}, got {shown(value)}"
        if not callable(value) or isinstance(value, type):
            yield expected
            return
        numbers = [leaf for leaf in jax.tree.leaves(value) if leaf is not value]
        wrong = [x for x in numbers if (known := concrete(x)) is not None and not np.all(np.isfinite(known))]
        if wrong:
            yield f"contains {shown(wrong[0])}, expected finite numbers"
            return
        try:
            check_requirements("", value)
        except (TypeError, ValueError) as error:
            yield f"is invalid: {str(error).removeprefix(': ')}"
            return
        try:
            found = jax.eval_shape(lambda x: value(x), jnp.zeros(self.takes))
        except Exception as error:
            numpy = (
                "; use jax.numpy instead of numpy"
                if isinstance(error, jax.errors.TracerArrayConversionError)
                else ""
            )
            yield f"{expected}, which fails: {str(error).partition(chr(10))[0]}{numpy}"
            return
        shape = getattr(found, "shape", None)
        if shape is None:
            remedy = "; use jnp.stack to return an array" if isinstance(found, list | tuple) else ""
            yield f"{expected}, which returns a {type(found).__name__} instead of {self.returns}{remedy}"
        elif shape != self.gives:
            yield f"{expected}, which returns shape {shape} instead of {self.returns}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the function as a pytree of arrays."""
        # A plain function is structure: it has no leaves.
        return jax.tree.map(real, as_pytree(value, f"joint {element.name[0]!r}: {self.name}"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Varying(Number):
    """A number, or from Python a function of time.

    The function is a pytree that is called with t in s, whose numbers are leaves, or a plain function.
    """

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield an error if the value is neither a number nor a function of time."""
        if callable(value):
            return Function(
                text=self.text, name=self.text, what="a number or a function of time", returns="one number"
            ).mistakes(value, names)
        return super().mistakes(value, names)

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the number as an array (), or the function as a pytree of arrays."""
        if not callable(value):
            return super().placed(value, element, start)
        return jax.tree.map(real, as_pytree(value, f"joint {element.name[0]!r}: {self.text}"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ground(Kind):
    """A terrain."""

    plain: ClassVar[str] = "terrain"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield the errors of the terrain."""
        yield from terrain_mistakes(value)

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the terrain with arrays."""
        return jax.tree.map(real, value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Motion(Function):
    """A function of time."""

    name: str = "motion"
    what: str = "a function of time such as Sinusoid(...)"
    returns: str = "one number"
    plain: ClassVar[str] = "motion"

"""Checks and constructions that the models share. Traced numbers are not checked."""

from __future__ import annotations

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.suggestions import brief
from jaxdae.mechanisms import DescriptionWarning
from jaxdae.mechanisms.describe.angle_limits import doubts_of, rests_in_degrees
from jaxdae.mechanisms.describe.numbers import concrete


def check_dimensions(*angles: Any, **lengths: Any) -> None:
    """Check that lengths are positive, and start angles probably in rad.

    Args:
        angles: start angles in rad.
        lengths: the lengths in m, numbers or arrays, by their names.

    Raises:
        ValueError: a length is not positive.

    Warns:
        DescriptionWarning: an angle is probably in degrees.
    """
    for name, length in lengths.items():
        known = concrete(length)
        if known is not None and not np.all(known > 0.0):
            raise ValueError(f"{name} must be positive, got {brief(length)}")
    for doubt in doubts_of("the start angle", angles, rests_in_degrees):
        warnings.warn(doubt, DescriptionWarning, stacklevel=3)


def meet(what: str, p: Array, from_p: Any, q: Array, from_q: Any) -> Array:
    """Return the point (2,) at the distances from p and q to the left of the line from p to q.

    With d = |q - p|, it is x = (d^2 + from_p^2 - from_q^2) / (2 d) along the line, and sqrt(from_p^2 - x^2)
    perpendicular to it.

    Raises:
        ValueError: the circles about p and q do not intersect; `what` names their radii.
    """
    line = q - p
    square = line @ line
    along = (square + from_p**2 - from_q**2) / (2.0 * square)
    rest = from_p**2 / square - along**2
    known = concrete(rest)
    if known is not None and known < 0.0:
        far, one, two = (float(np.asarray(x)) for x in (jnp.sqrt(square), from_p, from_q))
        raise ValueError(
            f"the lengths of {what} do not close the loop: got {one:.4g} m and {two:.4g} m between points "
            f"{far:.4g} m apart; change the lengths or the start angle"
        )
    return p + along * line + jnp.sqrt(rest) * jnp.stack([-line[1], line[0]])

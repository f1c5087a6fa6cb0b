"""The lines of `jaxdae check` about contacts and joint limits."""

from collections.abc import Iterator
from typing import Any

import numpy as np

_MOST = 10
"""Number of pairs and limits with a line of their own."""
_ROUND_OFF = 1e-12
"""Penetration in m or rad that counts as contact."""


def gap_units(touch: Any) -> list[str]:
    """Return the unit of each gap of contacts, then of joint limits."""
    return ["m"] * touch.sizes[0] + ["rad" if angular else "m" for angular in touch.angular]


def gap_lines(label: str, mechanism: Any, touch: Any) -> Iterator[str]:
    """Yield the number of pairs and joint limits, then the pairs and limits with the smallest gaps.

    Args:
        label: what is counted.
        mechanism: the mechanism.
        touch: its gaps.
    """
    pairs = () if mechanism.contacts is None else mechanism.contacts.pair_names
    names = (*pairs, *mechanism.gap_names[len(pairs) :])
    smallest: dict[str, tuple[float, str]] = {}
    for name, gap, unit in zip(names, np.asarray(touch.gap).tolist(), gap_units(touch), strict=True):
        smallest[name] = min(smallest.get(name, (np.inf, unit)), (gap, unit))
    yield f"{label:<28}{len(smallest)}"
    for name in sorted(smallest, key=lambda name: smallest[name])[:_MOST]:
        gap, unit = smallest[name]
        what = "gap" if gap > -_ROUND_OFF else "penetration"
        yield f"  {name:<25} {what} {abs(gap):.3g} {unit}"
    if len(smallest) > _MOST:
        yield f"  and {len(smallest) - _MOST} with larger gaps"

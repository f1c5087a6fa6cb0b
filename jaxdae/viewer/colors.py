"""The colors of bodies: readers who are color-blind tell them apart, on light ground and on dark."""

from __future__ import annotations

import numpy as np

# M. Okabe, K. Ito, "Color Universal Design" (2008), without black and the yellow that vanishes on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""The colors of bodies in their order, as pictures of all kinds use them."""

GRAY = (150, 150, 150)
"""Joints, and what stands on the ground."""

EARTH = (172, 164, 150), (140, 132, 119)
"""Terrain: the fields of a chess board."""

REACTION, FORCE = (220, 40, 90), (60, 170, 60)
"""Arrows: what joints do, and what is applied."""

LINK, SPRING = (120, 125, 135), (200, 160, 60)
"""Rods between bodies, and springs."""

_CLOSED, _OPEN = np.array([70.0, 110.0, 160.0]), np.array([230.0, 30.0, 30.0])
_DECADES = (-12.0, -2.0)


def rgb(index: int) -> tuple[int, int, int]:
    """Returns the color of the n-th body, 0 to 255."""
    text = PALETTE[index % len(PALETTE)]
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def of_violation(violation: np.ndarray) -> np.ndarray:
    """Returns colors (n, 3) of constraint violations (n,) in m or rad, by decades: blue-gray up to 1e-12, red from 1e-2 on and for NaN."""
    low, high = _DECADES
    decades = np.log10(np.maximum(np.nan_to_num(np.asarray(violation, float), nan=1.0), 10.0**low))
    part = np.clip((decades - low) / (high - low), 0.0, 1.0)[..., None]
    return np.round((1.0 - part) * _CLOSED + part * _OPEN).astype(np.uint8)


def linear(color: np.ndarray) -> np.ndarray:
    """Returns colors (..., 3) as parts of light, 0 to 255, which is how renderers take the colors of instances.

    The inverse of the transfer function of sRGB, IEC 61966-2-1.
    """
    part = np.asarray(color, float) / 255.0
    light = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return np.round(255.0 * light).astype(np.uint8)

"""The colors of bodies, distinguishable for color-blind readers on light and dark backgrounds."""

from __future__ import annotations

import numpy as np

# M. Okabe, K. Ito, "Color Universal Design" (2008), without black and without the yellow that is invisible on
# white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""The colors of bodies in their order, for all kinds of pictures."""

GRAY = (150, 150, 150)
"""The color of joints and of ground supports."""

EARTH = (172, 164, 150), (140, 132, 119)
"""The two colors of the terrain checkerboard."""

REACTION, FORCE, CONTACT = (220, 40, 90), (60, 170, 60), (230, 159, 0)
"""The colors of the arrows of reactions, applied forces and contact forces."""

LINK, SPRING = (120, 125, 135), (200, 160, 60)
"""The colors of rods between bodies and of springs."""

_CLOSED, _OPEN = np.array([70.0, 110.0, 160.0]), np.array([230.0, 30.0, 30.0])
_DECADES = (-12.0, -2.0)


def rgb(index: int) -> tuple[int, int, int]:
    """Return the color of body `index`, 0 to 255."""
    text = PALETTE[index % len(PALETTE)]
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def of_violation(violation: np.ndarray) -> np.ndarray:
    """Return colors (n, 3) of constraint violations (n,) in m or rad, on a logarithmic scale.

    The scale runs from blue-gray (up to 1e-12) to red (from 1e-2 on, and for NaN).
    """
    low, high = _DECADES
    decades = np.log10(np.maximum(np.nan_to_num(np.asarray(violation, float), nan=1.0), 10.0**low))
    part = np.clip((decades - low) / (high - low), 0.0, 1.0)[..., None]
    return np.round((1.0 - part) * _CLOSED + part * _OPEN).astype(np.uint8)


def linear(color: np.ndarray) -> np.ndarray:
    """Return colors (..., 3) in linear light, 0 to 255, as renderers expect the colors of instances.

    This is the inverse of the sRGB transfer function, IEC 61966-2-1.
    """
    part = np.asarray(color, float) / 255.0
    light = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return np.round(255.0 * light).astype(np.uint8)

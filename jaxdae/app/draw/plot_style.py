"""The style of all plots: colors for color-blind readers, thin lines, light grids."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jaxdae.viewer.colors import PALETTE

COLORS = (*PALETTE, "#000000")
DASHES = ("-", "--", ":", "-.")
GRAY = "#8a8a8a"

_SETTINGS: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.dpi": 100,
    "savefig.dpi": 150,
}


@contextmanager
def styled() -> Iterator[Any]:
    """Yield matplotlib's figure class in the project's style, without a display or global state."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_SETTINGS):
        yield Figure


def line_style(index: int) -> dict[str, str]:
    """Return color and dashes of line `index`; lines beyond the number of colors change their dashes."""
    return {"color": COLORS[index % len(COLORS)], "linestyle": DASHES[index // len(COLORS) % len(DASHES)]}

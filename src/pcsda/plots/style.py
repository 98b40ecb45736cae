"""What all displays have in common: colours that are safe for the colour-blind, and new axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colour-blind safe set without black, yellow late because it is faint on white,
# extended by three colours of Tol's muted set that stay apart from it.
PALETTE = (
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#CC79A7",
    "#0072B2",
    "#D55E00",
    "#882255",
    "#999933",
    "#44AA99",
    "#F0E442",
)
MARKERS = ("o", "s", "D", "v")
POSITIVE_COLOR = "#111111"
POSITIVE_MARKER = "^"
REST_COLOR = PALETTE[0]
LINE_COLOR = "#0072B2"
SECOND_COLOR = "#D55E00"
MUTED_COLOR = "#777777"


def new_axes() -> Axes:
    """Axes of a new figure; says what to install where matplotlib is missing."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "matplotlib is needed to draw but is not installed; pip install pcsda[plot]"
        ) from error
    _, ax = plt.subplots(figsize=(8.0, 5.0), layout="constrained")
    return ax


def group_style(group: int) -> dict[str, str]:
    """Colour and marker of a group: 0 is the class of interest."""
    if group == 0:
        return {"color": POSITIVE_COLOR, "marker": POSITIVE_MARKER}
    cycle, index = divmod(group - 1, len(PALETTE))
    return {"color": PALETTE[index], "marker": MARKERS[cycle % len(MARKERS)]}


def rimmed(width: float, alpha: float = 1.0) -> list[Any]:
    """A white rim that keeps a line or text visible on a cloud of its own colour."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=width, foreground="white", alpha=alpha)]

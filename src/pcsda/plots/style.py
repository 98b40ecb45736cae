"""Code shared by all displays: axes to draw on, and colours safe for colour-blind readers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..core.linalg import Array, Mask
from ..metrics.scorers import scores_of
from ..unwrap import unwrap
from ..validation import MatrixLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import StepPatch
    from matplotlib.patheffects import AbstractPathEffect

# Okabe and Ito's colour-blind safe set without black, with yellow late because it is faint on
# white, extended by three distinct colours of Tol's muted set.
PALETTE = (
    *("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2"),
    *("#D55E00", "#882255", "#999933", "#44AA99", "#F0E442"),
)
MARKERS = ("o", "s", "D", "v")
POSITIVE_COLOR = "#111111"
POSITIVE_MARKER = "^"
REST_COLOR = PALETTE[0]
LINE_COLOR = "#0072B2"
SECOND_COLOR = "#D55E00"
MUTED_COLOR = "#777777"
DECISION_STYLE: dict[str, Any] = {"color": POSITIVE_COLOR, "linestyle": "--", "linewidth": 1.6}
# Style of a reference line, such as the diagonal of perfect calibration.
REFERENCE_STYLE: dict[str, Any] = {"color": MUTED_COLOR, "linestyle": ":", "zorder": 1}

# A legend beside the axes hides neither points nor curves.
BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5), "frameon": False}


class Display(ABC):
    """A plot that stores its data, so that it can be drawn again."""

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the plot.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw. None means a new figure.

        Returns
        -------
        display
            The display itself.
        """
        self.ax_ = _new_axes() if ax is None else ax
        self.figure_ = self.ax_.get_figure()
        self._draw()
        return self

    @abstractmethod
    def _draw(self) -> None:
        """Draw the plot on `ax_` and store its artists."""


def _new_axes() -> Axes:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "matplotlib is needed to draw but is not installed; pip install pcsda[plot]"
        ) from error
    return plt.subplots(figsize=(8.0, 5.0), layout="constrained")[1]


def score_rows(estimator: BaseEstimator, X: MatrixLike, y: ArrayLike) -> tuple[Mask, Array, bool]:
    """Return which rows are positive, the scores, and whether they are log-likelihood ratios."""
    check_is_fitted(estimator)
    label = unwrap(estimator).label
    return np.asarray(y) == label, *scores_of(estimator, X, label)


def require(model: Any, name: str, what: str) -> None:
    """Raise TypeError if a model, such as a mixture or a bank, has nothing of its own to draw."""
    if not hasattr(model, name):
        raise TypeError(
            f"{type(model).__name__} has no {what} of its own; draw one of the models in models_"
        )


def group_style(group: int) -> dict[str, str]:
    """Return the colour and marker for a group; group 0 is the class of interest."""
    if group == 0:
        return {"color": POSITIVE_COLOR, "marker": POSITIVE_MARKER}
    cycle, index = divmod(group - 1, len(PALETTE))
    return {"color": PALETTE[index], "marker": MARKERS[cycle % len(MARKERS)]}


def rimmed(width: float, alpha: float = 1.0) -> list[AbstractPathEffect]:
    """Return a white outline that keeps a line or text visible on points of the same colour."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=width, foreground="white", alpha=alpha)]


def draw_histogram(
    ax: Axes, values: Array, edges: Array, color: str, label: str, *, in_front: bool
) -> StepPatch:
    """Draw a histogram with area one, on top of other histograms if `in_front`."""
    heights, _ = np.histogram(values, edges, density=True)
    style: dict[str, Any] = {"facecolor": (color, 0.25), "edgecolor": color, "label": label}
    width, layer = (1.8, 3) if in_front else (1.2, 2)
    return ax.stairs(heights, edges, fill=True, linewidth=width, zorder=layer, **style)

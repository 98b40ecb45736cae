"""Plot the eigenvalues of a subspace: how well each axis separates the class of interest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..core.linalg import Array
from ..unwrap import unwrap
from .style import LINE_COLOR, Display, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Above this ratio of the largest to the smallest eigenvalue the axis is logarithmic.
_WIDE = 100.0
# Up to this many bars, the shares are written above them.
_MOST_TEXTS = 12


@dataclass(kw_only=True, eq=False, repr=False)
class SpectrumDisplay(Display):
    """Bar chart of the eigenvalue of each axis, with cumulative shares of their sum.

    Use :meth:`from_estimator` to make one. An eigenvalue is the criterion's value on its axis:
    the spread of the rest about the positive mean, divided by the spread within the groups.

    Parameters
    ----------
    eigenvalues : ndarray of shape (n_components,)
        Eigenvalues in the order of the axes.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
        Where the plot was drawn.
    bars_ : BarContainer
        One bar for each eigenvalue.
    texts_ : list of Text
        Cumulative shares of the sum, for up to 12 axes.

    Examples
    --------
    >>> import numpy as np
    >>> from pcsda.plots import SpectrumDisplay
    >>> display = SpectrumDisplay(eigenvalues=np.array([6.0, 3.0, 1.0])).plot()
    >>> [text.get_text() for text in display.texts_]
    ['60%', '90%', '100%']
    """

    eigenvalues: Array

    @classmethod
    def from_estimator(cls, estimator: BaseEstimator, *, ax: Axes | None = None) -> Self:
        """Plot the spectrum of a fitted estimator, or of a pipeline or search that contains one.

        Parameters
        ----------
        estimator : fitted PCSDA, CSDA, KernelPCSDA or KernelCSDA, or a model that contains one
            The model whose eigenvalues are drawn.
        ax : matplotlib axes, optional
            Where to draw; by default, a new figure.

        Returns
        -------
        SpectrumDisplay
        """
        check_is_fitted(estimator)
        model = unwrap(estimator).model
        require(model, "eigenvalues_", "axes")
        return cls(eigenvalues=np.asarray(model.eigenvalues_, dtype=np.float64)).plot(ax=ax)

    def _draw(self) -> None:
        values = np.asarray(self.eigenvalues)
        places = np.arange(1, len(values) + 1)
        self.bars_ = self.ax_.bar(places, values, width=0.7, color=LINE_COLOR)
        shares = np.cumsum(values) / values.sum()
        self.texts_ = []
        if len(values) <= _MOST_TEXTS:
            self.texts_ = self.ax_.bar_label(self.bars_, [f"{s:.0%}" for s in shares], padding=2)
        smallest = values[values > 0].min(initial=np.inf)
        if values.max() > _WIDE * smallest:
            self.ax_.set_yscale("log")
        self.ax_.margins(y=0.1)
        self.ax_.set_xticks(places[:: 1 + len(places) // 20])
        # The bar of a single axis should not fill the plot.
        room = max(0.4, (5 - len(values)) / 2)
        above = " (above: share of the sum so far)" if self.texts_ else ""
        self.ax_.set(xlim=(0.5 - room, len(values) + 0.5 + room))
        self.ax_.set(xlabel="axis", ylabel=f"eigenvalue{above}")

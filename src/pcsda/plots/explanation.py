"""Plot why a row has its score: the columns that speak for and against the class of interest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from sklearn.base import BaseEstimator

from ..core.explanation import Explanation
from ..validation import MatrixLike
from .style import LINE_COLOR, SECOND_COLOR, Display

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(kw_only=True, eq=False, repr=False)
class ExplanationDisplay(Display):
    """Bar chart of what each column contributes to one row's log-likelihood ratio.

    Use :meth:`from_estimator` to make one, with a linear model. Bars to the right speak for the
    class of interest, bars to the left against it. The columns and the baseline sum to the score.

    Parameters
    ----------
    explanation : Explanation
        Explanation of one or more rows, with `columns`.
    row : int, default=0
        Which row to draw.
    n_columns : int, default=12
        Number of columns with their own bar; the other columns share one bar.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
        Where the plot was drawn.
    bars_ : BarContainer
        The bars, from bottom to top; the largest contribution is on top.

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> from pcsda.plots import ExplanationDisplay
    >>> data = make_class_specific(300, n_features=5, random_state=0)
    >>> model = PCSDA(n_subclasses=3, random_state=0).fit(data.data, data.target)
    >>> display = ExplanationDisplay.from_estimator(model, data.data[:1])
    >>> len(display.bars_)
    5
    """

    explanation: Explanation
    row: int = 0
    n_columns: int = 12

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: MatrixLike,
        *,
        row: int = 0,
        n_columns: int = 12,
        ax: Axes | None = None,
    ) -> Self:
        """Explain one row's score from a fitted estimator, and plot the explanation.

        Parameters
        ----------
        estimator : fitted PCSDA or CSDA, or a pipeline of :func:`pcsda.make_pipeline`
            The model whose score is explained.
        X : array-like of shape (n_samples, n_features)
            Up to 200 rows.
        row : int, default=0
            Which row to draw.
        n_columns : int, default=12
            Number of columns with their own bar.
        ax : matplotlib axes, optional
            Where to draw; by default, a new figure.

        Returns
        -------
        ExplanationDisplay
        """
        found = estimator.explain(X)[row]
        return cls(explanation=found, n_columns=n_columns).plot(ax=ax)

    def _draw(self) -> None:
        parts = self.explanation.table(self.row)
        shown, rest = parts[: self.n_columns], parts[self.n_columns :]
        if rest:
            shown = [*shown, (f"{len(rest)} more columns", sum(part for _, part in rest))]
        names, values = zip(*shown[::-1], strict=True)
        colors = [LINE_COLOR if value > 0 else SECOND_COLOR for value in values]
        self.bars_ = self.ax_.barh(range(len(values)), values, color=colors)
        self.ax_.bar_label(self.bars_, [f"{value:+.3g}" for value in values], padding=3)
        self.ax_.set_yticks(range(len(names)), names)
        self.ax_.axvline(0, color="0.4", linewidth=0.8)
        self.ax_.margins(x=0.15)
        self.ax_.set_xlabel("speaks against        speaks for the class of interest")
        self.ax_.set_title(f"log-likelihood ratio {self.explanation.score[self.row]:.3g}")

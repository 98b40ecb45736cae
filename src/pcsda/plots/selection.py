"""Plot the scores from a search over the numbers of axes and subclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..core.linalg import Array, Ints
from ..estimators import MixtureVerifier, Verifier, VerifierBank
from ..unwrap import steps
from .style import POSITIVE_COLOR, SECOND_COLOR, Display

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(kw_only=True, eq=False, repr=False)
class SelectionDisplay(Display):
    """Coloured grid of the score for each number of subclasses K and number of axes d.

    Use :meth:`from_estimator` to make one. Each score is the best over the other parameters of the
    search. A ring marks the chosen setting, and a cross marks the best score. The two differ if a
    simpler setting is about as good as the best.

    Parameters
    ----------
    scores : ndarray of shape (n_subclass_counts, n_dimensions)
        Scores; NaN if a setting does not exist.
    n_subclasses, n_components : ndarrays
        Values of K and d for the rows and columns.
    chosen : tuple of int
        K and d in the chosen setting.
    score_name : str
        Name of the score beside the colour bar.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
        Where the plot was drawn.
    mesh_ : QuadMesh
        The coloured grid.
    chosen_, best_ : PathCollection
        The ring and the cross.

    Examples
    --------
    >>> from pcsda import PCSDA, PCSDACV
    >>> from pcsda.datasets import make_class_specific
    >>> from pcsda.plots import SelectionDisplay
    >>> data = make_class_specific(200, n_features=5, random_state=0)
    >>> search = PCSDACV(
    ...     PCSDA(random_state=0), n_subclasses=[2, 6], n_components=[1, 3], regularization=[0.01]
    ... )
    >>> display = SelectionDisplay.from_estimator(search.fit(data.data, data.target))
    >>> display.scores.shape, display.chosen
    ((2, 2), (6, 3))
    """

    scores: Array
    n_subclasses: Ints
    n_components: Ints
    chosen: tuple[int, int]
    score_name: str = "score"

    @classmethod
    def from_estimator(cls, estimator: BaseEstimator, *, ax: Axes | None = None) -> Self:
        """Plot the scores from a fitted :class:`pcsda.PCSDACV`.

        Parameters
        ----------
        estimator : PCSDACV, or a pipeline that ends in one
            The fitted search.
        ax : matplotlib axes, optional
            Where to draw; by default, a new figure.

        Returns
        -------
        SelectionDisplay
        """
        search = steps(estimator)[-1]
        if isinstance(search, Verifier | MixtureVerifier | VerifierBank):
            raise TypeError(
                f"{type(search).__name__} has no search to draw; give a fitted PCSDACV, or a "
                "pipeline that ends in one"
            )
        check_is_fitted(search, "cv_results_")
        results, best = search.cv_results_, search.best_params_
        (subclasses, rows), (components, columns) = (
            np.unique(np.asarray(results[f"param_{name}"]), return_inverse=True)
            for name in ("n_subclasses", "n_components")
        )
        values = np.asarray(results["mean_test_score"], dtype=np.float64)
        scores = np.full((len(subclasses), len(components)), np.nan)
        # Take the best score over the other parameters; any number beats NaN.
        np.fmax.at(scores, (rows, columns), np.where(np.isfinite(values), values, np.nan))
        return cls(
            scores=scores,
            n_subclasses=subclasses,
            n_components=components,
            chosen=(best["n_subclasses"], best["n_components"]),
            score_name=search.scoring if isinstance(search.scoring, str) else "score",
        ).plot(ax=ax)

    def _draw(self) -> None:
        visible = np.ma.masked_invalid(self.scores)
        # Only the best few settings matter, so poor scores share the darkest colour.
        floor = float(np.nanquantile(self.scores, 0.1))
        self.mesh_ = self.ax_.pcolormesh(visible, cmap="cividis", vmin=floor)
        self.ax_.set_xticks(np.arange(len(self.n_components)) + 0.5, self.n_components.tolist())
        self.ax_.set_yticks(np.arange(len(self.n_subclasses)) + 0.5, self.n_subclasses.tolist())
        if len(self.n_components) > 15:
            for label in self.ax_.get_xticklabels()[1::2]:
                label.set_visible(False)
        row, column = np.unravel_index(np.nanargmax(self.scores), self.scores.shape)
        cross: dict[str, Any] = {"marker": "x", "color": POSITIVE_COLOR, "s": 60}
        self.best_ = self.ax_.scatter(column + 0.5, row + 0.5, label="best score", **cross)
        x = np.searchsorted(self.n_components, self.chosen[1]) + 0.5
        y = np.searchsorted(self.n_subclasses, self.chosen[0]) + 0.5
        ring: dict[str, Any] = {"facecolors": "none", "edgecolors": SECOND_COLOR}
        self.chosen_ = self.ax_.scatter(x, y, s=160, linewidths=2.5, label="chosen", **ring)
        self.ax_.set(xlabel="number of axes d", ylabel="number of subclasses K")
        if self.figure_ is not None:
            self.figure_.colorbar(self.mesh_, ax=self.ax_, label=self.score_name)
        self.ax_.legend(loc="upper left", bbox_to_anchor=(0, 1.14), ncols=2, frameon=False)

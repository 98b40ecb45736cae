"""The selection surface of a search: its score over the number of axes and of subclasses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ..unwrap import steps
from .style import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class SelectionDisplay:
    """Score of every K and d, at the best of the other settings, as a coloured grid.

    Use :meth:`from_estimator` to make one. The chosen setting has a ring, the best score a cross;
    they differ where a simpler setting is as good.

    Parameters
    ----------
    scores : ndarray of shape (n_subclass_counts, n_dimensions)
        NaN where a setting does not exist.
    n_subclasses, n_components : ndarrays
        Values of K and d that the rows and columns stand for.
    chosen : tuple of int
        Values of K and d of the chosen setting.
    score_name : str

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure
    mesh_ : QuadMesh
        The coloured grid.
    chosen_, best_ : PathCollection
        The ring and the cross.
    """

    def __init__(
        self,
        *,
        scores: NDArray[np.float64],
        n_subclasses: NDArray[np.intp],
        n_components: NDArray[np.intp],
        chosen: tuple[int, int],
        score_name: str = "score",
    ) -> None:
        self.scores = scores
        self.n_subclasses = n_subclasses
        self.n_components = n_components
        self.chosen = chosen
        self.score_name = score_name

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> SelectionDisplay:
        """Draw the surface of a fitted :class:`pcsda.PCSDACV`.

        Parameters
        ----------
        estimator : PCSDACV, or a pipeline that ends in one
        ax : matplotlib axes, optional
        """
        search = steps(estimator)[-1]
        check_is_fitted(search, "cv_results_")
        results = search.cv_results_
        of_k = np.asarray(results["param_n_subclasses"])
        of_d = np.asarray(results["param_n_components"])
        rows, columns = np.unique(of_k), np.unique(of_d)
        scores = np.full((len(rows), len(columns)), np.nan)
        for k, d, score in zip(of_k, of_d, results["mean_test_score"], strict=True):
            cell = np.searchsorted(rows, k), np.searchsorted(columns, d)
            if np.isfinite(score):
                scores[cell] = np.fmax(scores[cell], score)
        best = search.best_params_
        name = search.scoring if isinstance(search.scoring, str) else "score"
        chosen = (best["n_subclasses"], best["n_components"])
        display = cls(
            scores=scores, n_subclasses=rows, n_components=columns, chosen=chosen, score_name=name
        )
        return display.plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> SelectionDisplay:
        """Draw, on new axes unless some are given."""
        self.ax_ = new_axes() if ax is None else ax
        self.figure_ = self.ax_.get_figure()
        visible = np.ma.masked_invalid(self.scores)
        # The few best settings are what one looks at: poor scores share the darkest colour.
        floor = float(np.nanquantile(self.scores, 0.1))
        self.mesh_ = self.ax_.pcolormesh(visible, cmap="cividis", vmin=floor)
        self.ax_.set_xticks(np.arange(len(self.n_components)) + 0.5, self.n_components.tolist())
        self.ax_.set_yticks(np.arange(len(self.n_subclasses)) + 0.5, self.n_subclasses.tolist())
        if len(self.n_components) > 15:
            for label in self.ax_.get_xticklabels()[1::2]:
                label.set_visible(False)
        row, column = np.unravel_index(np.nanargmax(self.scores), self.scores.shape)
        self.best_ = self.ax_.scatter(
            column + 0.5, row + 0.5, marker="x", color="#111111", s=60, label="best score"
        )
        place = (
            np.searchsorted(self.n_components, self.chosen[1]) + 0.5,
            np.searchsorted(self.n_subclasses, self.chosen[0]) + 0.5,
        )
        self.chosen_ = self.ax_.scatter(
            *place,
            marker="o",
            facecolors="none",
            edgecolors="#D55E00",
            s=160,
            linewidths=2.5,
            label="chosen",
        )
        self.ax_.set_xlabel("number of axes d")
        self.ax_.set_ylabel("number of subclasses K")
        if self.figure_ is not None:
            self.figure_.colorbar(self.mesh_, ax=self.ax_, label=self.score_name)
        self.ax_.legend(loc="upper left", bbox_to_anchor=(0, 1.14), ncols=2, frameon=False)
        return self

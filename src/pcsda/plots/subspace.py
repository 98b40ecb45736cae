"""Pictures of models and their subspaces; matplotlib is needed only when one is drawn."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from ..unwrap import unwrap
from .decision import DECISION_STYLE, Decision, draw_decision, has_density, margin_decision
from .style import group_style, new_axes, rimmed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Ellipse
    from matplotlib.text import Text

__all__ = ["SubspaceDisplay"]

FloatArray = NDArray[np.float64]

# Beyond this many a legend and colours tell nothing; the negatives are then drawn as one group.
_MAX_SUBCLASSES = 20
_ELLIPSE_LEVELS = (1.0, 2.0)
_SUBCLASS = "subclass "


class SubspaceDisplay:
    """Scatter of samples in the subspace with a Gaussian ellipse for every group.

    Use :meth:`from_estimator` or :meth:`from_predictions` to make one. The class of interest is
    drawn dark and with its own marker, the rest coloured by subclass; ellipses lie at one and two
    standard deviations. A single axis is shown as a histogram for each group.

    Parameters
    ----------
    z : ndarray of shape (n_samples, n_components)
        Samples in the subspace.
    groups : ndarray of shape (n_samples,)
        0 for the class of interest, 1..K for the subclasses of the rest.
    names : sequence of K + 1 str
        Names of the groups in the legend.
    axes : tuple of one or two int, default=(0, 1)
        Which axes of the subspace to draw, counted from 0. A one-dimensional subspace has only
        axis 0, whatever is asked for by default.
    means : ndarray of shape (K + 1, n_components), default=None
        Centres of the ellipses. None means those of the samples.
    covariances : ndarray of shape (K + 1, n_components, n_components), default=None
        Shapes of the ellipses. None means the covariances of the samples; a group with fewer than
        three of them has no ellipse then.
    eigenvalues : ndarray of shape (n_components,), default=None
        Shown in the axis labels.
    decision : callable, default=None
        Decision value of points on the drawn axes, (n_points, n_axes) to (n_points,), at least
        zero for the class of interest. None draws no decision.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure of `ax_`.
    points_ : list of K + 1 matplotlib artists
        Points (PathCollection) of every group, or its histogram (StepPatch); None for a group
        without samples.
    ellipses_ : list of K + 1 lists of matplotlib Ellipse
        Ellipses of every group, at one and two standard deviations; empty lists for histograms.
    decision_ : matplotlib artist or list of them
        Contour (ContourSet) at which the decision is zero; on a single axis, lines where it
        changes; None or an empty list without.
    texts_ : list of matplotlib Text
        Names written at the centres of the subclasses, when there are several.
    legend_ : matplotlib Legend
        The legend.
    """

    ax_: Axes

    def __init__(
        self,
        *,
        z: FloatArray,
        groups: NDArray[np.int64],
        names: Sequence[str],
        axes: tuple[int, ...] = (0, 1),
        means: FloatArray | None = None,
        covariances: FloatArray | None = None,
        eigenvalues: FloatArray | None = None,
        decision: Decision | None = None,
    ) -> None:
        self.z = z
        self.groups = groups
        self.names = names
        self.axes = axes
        self.means = means
        self.covariances = covariances
        self.eigenvalues = eigenvalues
        self.decision = decision

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        axes: tuple[int, ...] = (0, 1),
        subclasses: ArrayLike | None = None,
        contour: bool = True,
        ax: Axes | None = None,
    ) -> SubspaceDisplay:
        """Draw samples in the subspace of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator, or a pipeline or search that holds one
            Gives the subspace, the class of interest, the subclasses and the decision.
        X : array-like of shape (n_samples, n_features)
            Samples, of training or of test.
        y : array-like of shape (n_samples,)
            Their labels; all but the class of interest are drawn as the rest.
        axes : tuple of one or two int, default=(0, 1)
            Which axes of the subspace to draw, counted from 0.
        subclasses : array-like of shape (n_samples,), default=None
            Subclass of every sample, for instance its original label; entries of the class of
            interest are ignored. None means the subclass whose mean is nearest in the subspace,
            and one common group if the estimator has more than 20 subclasses.
        contour : bool, default=True
            Whether to draw where the decision changes, at the fitted prior. Of a subspace with more
            axes than are drawn, it is the decision of a model that knows the drawn axes only.
        ax : matplotlib Axes, default=None
            Where to draw. None means a new figure.

        Returns
        -------
        SubspaceDisplay
            The display that was drawn.
        """
        check_is_fitted(estimator)
        inside = unwrap(estimator)
        model = inside.model
        z = np.asarray(model.transform(inside.rows(X)), dtype=np.float64)
        axes = _check_axes(axes, z.shape[1])
        if subclasses is None:
            centers = _subclass_centers(model)
            if len(centers) <= _MAX_SUBCLASSES:
                subclasses = 1 + pairwise_distances_argmin(z, centers)
        return cls.from_predictions(
            y,
            z,
            subclasses=subclasses,
            pos_label=inside.label,
            axes=axes,
            eigenvalues=getattr(model, "eigenvalues_", None),
            decision=margin_decision(model, axes) if contour and has_density(model) else None,
            ax=ax,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        z: ArrayLike,
        *,
        subclasses: ArrayLike | None = None,
        pos_label: Any = 1,
        axes: tuple[int, ...] = (0, 1),
        means: ArrayLike | None = None,
        covariances: ArrayLike | None = None,
        eigenvalues: ArrayLike | None = None,
        decision: Decision | None = None,
        ax: Axes | None = None,
    ) -> SubspaceDisplay:
        """Draw samples whose coordinates in the subspace are known.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Labels; all but `pos_label` are drawn as the rest.
        z : array-like of shape (n_samples, n_components)
            Samples in the subspace.
        subclasses : array-like of shape (n_samples,), default=None
            Subclass of every sample; entries of the class of interest are ignored. None draws the
            rest as one group.
        pos_label : int, float, bool or str, default=1
            The class of interest.
        axes : tuple of one or two int, default=(0, 1)
            Which axes of the subspace to draw, counted from 0.
        means : array-like of shape (K + 1, n_components), default=None
            Centres of the ellipses: the class of interest, then the K subclasses present in sorted
            order. None means those of the samples.
        covariances : array-like of shape (K + 1, n_components, n_components), default=None
            Shapes of the ellipses in the same order. None means those of the samples.
        eigenvalues : array-like of shape (n_components,), default=None
            Shown in the axis labels.
        decision : callable, default=None
            Decision value of points on the drawn axes, (n_points, n_axes) to (n_points,), at least
            zero for the class of interest.
        ax : matplotlib Axes, default=None
            Where to draw. None means a new figure.

        Returns
        -------
        SubspaceDisplay
            The display that was drawn.
        """
        points: FloatArray = check_array(z, dtype=np.float64)
        labels = column_or_1d(y_true)
        check_consistent_length(points, labels, subclasses)
        groups, names = _encode_groups(labels == pos_label, subclasses, pos_label)
        display = cls(
            z=points,
            groups=groups,
            names=names,
            axes=_check_axes(axes, points.shape[1]),
            means=_check_moments("means", means, 2, len(names), points.shape[1]),
            covariances=_check_moments("covariances", covariances, 3, len(names), points.shape[1]),
            eigenvalues=None if eigenvalues is None else column_or_1d(eigenvalues),
            decision=decision,
        )
        return display.plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> SubspaceDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw. None means a new figure.

        Returns
        -------
        SubspaceDisplay
            The display itself.
        """
        if ax is None:
            ax = new_axes()
        self.ax_ = ax
        self.figure_ = ax.get_figure()
        self.axes = _check_axes(self.axes, self.z.shape[1])
        self.points_: list[Any] = [None] * len(self.names)
        self.ellipses_: list[list[Ellipse]] = [[] for _ in self.names]
        self.texts_: list[Text] = []
        self.decision_: Any = None
        if len(self.axes) == 1:
            self._draw_histograms()
        else:
            self._draw_scatter()
            if len(self.names) > 2:
                self._draw_names()
        if self.decision is not None:
            self.decision_ = draw_decision(self.ax_, self.decision, self.z[:, self.axes])
        self._draw_legend()
        return self

    def _draw_scatter(self) -> None:
        # The class of interest comes last: it lies in the middle and is the smaller one.
        for group in [*range(1, len(self.names)), 0]:
            points = self.z[self.groups == group][:, self.axes]
            style = group_style(group)
            if len(points):
                self.points_[group] = self.ax_.scatter(
                    points[:, 0],
                    points[:, 1],
                    s=26 if group == 0 else 16,
                    c=style["color"],
                    marker=style["marker"],
                    alpha=0.85 if group == 0 else 0.55,
                    edgecolors="white" if group == 0 else "none",
                    linewidths=0.4,
                    zorder=3 if group == 0 else 2,
                    label=self._legend_name(group),
                )
            self.ellipses_[group] = self._draw_ellipses(group, points)
        self.ax_.set_xlabel(self._axis_label(0))
        self.ax_.set_ylabel(self._axis_label(1))
        self.ax_.set_aspect("equal", adjustable="datalim")

    def _draw_ellipses(self, group: int, points: FloatArray) -> list[Ellipse]:
        from matplotlib.patches import Ellipse

        center, covariance = self._moments(group, points)
        if center is None or covariance is None:
            return []
        variances, directions = np.linalg.eigh(covariance)
        lengths = np.sqrt(np.clip(variances, 0.0, None))
        ellipses = []
        for level in _ELLIPSE_LEVELS:
            ellipse = Ellipse(
                (float(center[0]), float(center[1])),
                *(2.0 * level * lengths),
                angle=float(np.degrees(np.arctan2(directions[1, 0], directions[0, 0]))),
                fill=False,
                edgecolor=group_style(group)["color"],
                linewidth=1.8 if level == _ELLIPSE_LEVELS[0] else 1.1,
                zorder=5 if group == 0 else 4,
                path_effects=rimmed(3.2, 0.7),
            )
            self.ax_.add_patch(ellipse)
            ellipses.append(ellipse)
        return ellipses

    def _moments(
        self, group: int, points: FloatArray
    ) -> tuple[FloatArray | None, FloatArray | None]:
        """Centre and covariance of a group on the drawn axes, None where they are unknown."""
        axes = list(self.axes)
        center = covariance = None
        if self.means is not None:
            center = self.means[group, axes]
        elif len(points):
            center = points.mean(axis=0)
        if self.covariances is not None:
            covariance = self.covariances[group][np.ix_(axes, axes)]
        elif len(points) > 2:
            covariance = np.cov(points, rowvar=False)
        return center, covariance

    def _draw_names(self) -> None:
        """Write the name of every subclass at its centre, so that colour is not the only guide."""
        for group in range(1, len(self.names)):
            center, _ = self._moments(group, self.z[self.groups == group][:, self.axes])
            if center is None:
                continue
            text = self.ax_.text(
                float(center[0]),
                float(center[1]),
                self.names[group].removeprefix(_SUBCLASS),
                ha="center",
                va="center",
                fontweight="bold",
                zorder=6,
                path_effects=rimmed(2.5),
            )
            self.texts_.append(text)

    def _draw_histograms(self) -> None:
        values = self.z[:, self.axes[0]]
        edges = np.histogram_bin_edges(values, bins=min(60, max(10, round(len(values) ** 0.5))))
        for group in [*range(1, len(self.names)), 0]:
            members = values[self.groups == group]
            if not len(members):
                continue
            heights, _ = np.histogram(members, bins=edges, density=True)
            self.points_[group] = self.ax_.stairs(
                heights,
                edges,
                fill=True,
                facecolor=(group_style(group)["color"], 0.25),
                edgecolor=group_style(group)["color"],
                linewidth=1.8 if group == 0 else 1.2,
                zorder=3 if group == 0 else 2,
                label=self._legend_name(group),
            )
        self.ax_.set_xlabel(self._axis_label(0))
        self.ax_.set_ylabel("density within group")

    def _draw_legend(self) -> None:
        from matplotlib.lines import Line2D

        handles = [artist for artist in self.points_ if artist is not None]
        if self.decision_:
            alone = " by these axes alone" if len(self.axes) < self.z.shape[1] else ""
            handles.append(Line2D([], [], label=f"decision{alone}", **DECISION_STYLE))
        # Beside the axes: ten entries would hide the points.
        self.legend_ = self.ax_.legend(
            handles=handles, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False
        )
        if len(self.axes) == 2:
            for handle in filter(None, self.legend_.legend_handles):
                handle.set_alpha(1.0)

    def _legend_name(self, group: int) -> str:
        return f"{self.names[group]} (n = {np.sum(self.groups == group)})"

    def _axis_label(self, position: int) -> str:
        axis = self.axes[position]
        if self.eigenvalues is None:
            return f"axis {axis + 1}"
        return f"axis {axis + 1} (eigenvalue {self.eigenvalues[axis]:.3g})"


def _subclass_centers(model: Any) -> FloatArray:
    """Means of the subclasses in the subspace."""
    if has_density(model):
        centers: FloatArray = model.density_.base.subclasses
        return centers
    with warnings.catch_warnings():
        # The means are an array even where the model was fitted on named columns.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return np.asarray(model.transform(model.subclass_means_))


def _encode_groups(
    positive: NDArray[np.bool_], subclasses: ArrayLike | None, pos_label: Any
) -> tuple[NDArray[np.int64], list[str]]:
    """Return groups 0..K and their names; the subclasses are numbered in sorted order."""
    groups = np.zeros(len(positive), dtype=np.int64)
    if subclasses is None:
        groups[~positive] = 1
        present = ["rest"]
    else:
        labels, codes = np.unique(column_or_1d(subclasses)[~positive], return_inverse=True)
        groups[~positive] = 1 + codes
        present = [f"{_SUBCLASS}{label}" for label in labels]
    # The labels 1 and True only say "the class of interest" once more.
    named = "" if pos_label == 1 else f": {pos_label}"
    return groups, [f"class of interest{named}", *present]


def _check_axes(axes: tuple[int, ...], n_components: int) -> tuple[int, ...]:
    if n_components == 1 and tuple(axes) == (0, 1):
        return (0,)
    if len(axes) not in (1, 2):
        raise ValueError(f"axes={axes} must have 1 or 2 entries; name one or two axes")
    for axis in axes:
        if not 0 <= axis < n_components:
            raise ValueError(
                f"axes={tuple(axes)} must lie between 0 and {n_components - 1}"
                f" (= n_components - 1); choose other axes or fit with more components"
            )
    return tuple(axes)


def _check_moments(
    name: str, values: ArrayLike | None, ndim: int, n_groups: int, n_components: int
) -> FloatArray | None:
    if values is None:
        return None
    array = np.asarray(values, dtype=np.float64)
    expected = (n_groups,) + (n_components,) * (ndim - 1)
    if array.shape != expected:
        raise ValueError(
            f"{name} has shape {array.shape} but must have {expected}: the class of interest, then"
            " the subclasses present in sorted order"
        )
    return array

"""Plot samples in a subspace, with their groups and the decision boundary."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from ..core.linalg import Array, Mask
from ..partition import MIXED, mostly
from ..unwrap import unwrap
from .decision import Decision, draw_decision, has_density, margin_decision
from .style import BESIDE, DECISION_STYLE, Display, draw_histogram, group_style, require, rimmed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Ellipse
    from matplotlib.text import Text

    from ..estimators import Verifier

# With more subclasses than this, colours do not help, so all negatives are drawn as one group.
_MAX_SUBCLASSES = 20
# Standard deviations of the ellipses, and the widths of their lines.
_ELLIPSES = ((1.0, 1.8), (2.0, 1.1))
_SUBCLASS = "subclass "
# With more subclasses than this, names appear only in the plot, and the legend has one line for
# all subclasses.
_LEGEND_SUBCLASSES = 6


@dataclass(kw_only=True, eq=False, repr=False)
class SubspaceDisplay(Display):
    """Scatter plot of samples in the subspace, with Gaussian ellipses for each group.

    Use :meth:`from_estimator` or :meth:`from_predictions` to make one. The class of interest is
    dark and has its own marker; the rest is coloured by subclass. Ellipses lie at one and two
    standard deviations. A single axis is shown as a histogram of each group.

    Parameters
    ----------
    z : ndarray of shape (n_samples, n_components)
        Samples in the subspace.
    groups : ndarray of shape (n_samples,)
        0 for the class of interest, 1..K for the subclasses of the rest.
    names : sequence of K + 1 str
        Names of the groups in the legend.
    axes : tuple of one or two int, default=(0, 1)
        Which axes of the subspace to draw, counted from 0. For a one-dimensional subspace the
        default draws axis 0 only.
    means : ndarray of shape (K + 1, n_components), default=None
        Ellipse centres. None means the sample means.
    covariances : ndarray of shape (K + 1, n_components, n_components), default=None
        Covariances that shape the ellipses. None means the sample covariances; then a group with
        fewer than three samples has no ellipse.
    eigenvalues : ndarray of shape (n_components,), default=None
        Shown in the axis labels.
    decision : callable, default=None
        Function that maps points on the drawn axes, of shape (n_points, n_axes), to decision values
        of shape (n_points,), at least zero for the class of interest. None draws no boundary.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        Figure that contains `ax_`.
    points_ : list of K + 1 matplotlib artists
        Each group's points (PathCollection) or histogram (StepPatch); None for a group without
        samples.
    ellipses_ : list of K + 1 lists of matplotlib Ellipse
        Each group's ellipses, at one and two standard deviations; empty lists for histograms.
    decision_ : matplotlib artist or list of them
        Contour (ContourSet) where the decision value is zero; on a single axis, lines where the
        decision changes; None or an empty list if there is no boundary.
    texts_ : list of matplotlib Text
        Names written at the subclass centres, if there are several subclasses.
    legend_ : matplotlib Legend
        The legend.

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> from pcsda.plots import SubspaceDisplay
    >>> data = make_class_specific(300, n_features=5, n_subclasses=3, random_state=0)
    >>> model = PCSDA(n_subclasses=3, random_state=0).fit(data.data, data.target)
    >>> display = SubspaceDisplay.from_estimator(model, data.data, data.target)
    >>> display.names
    ['class of interest', 'subclass 1', 'subclass 2', 'subclass 3']
    """

    z: Array
    groups: NDArray[np.int64]
    names: Sequence[str]
    axes: tuple[int, ...] = (0, 1)
    means: Array | None = None
    covariances: Array | None = None
    eigenvalues: Array | None = None
    decision: Decision | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike,
        *,
        axes: tuple[int, ...] = (0, 1),
        subclasses: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        contour: bool = True,
        ax: Axes | None = None,
    ) -> Self:
        """Plot samples in a fitted estimator's subspace.

        Parameters
        ----------
        estimator : fitted estimator, or a pipeline or search that holds one
            Provides the subspace, the class of interest, the subclasses and the decision.
        X : array-like of shape (n_samples, n_features)
            Training or test samples.
        y : array-like of shape (n_samples,)
            Labels; all except the class of interest are drawn as the rest.
        axes : tuple of one or two int, default=(0, 1)
            Which axes of the subspace to draw, counted from 0.
        subclasses : array-like of shape (n_samples,), default=None
            Subclass of each sample, for instance its original label; entries for the class of
            interest are ignored. None assigns each sample to the subclass with the nearest mean in
            the subspace, or all to one group if the estimator has more than 20 subclasses.
        labels : array-like of shape (n_samples,), default=None
            Original labels, used to name subclasses, as in "subclass 3 (mostly 8)". None means the
            labels in y if it has more than two, otherwise the names stored in the model.
        contour : bool, default=True
            Whether to draw the decision boundary, at the fitted prior. If the subspace has more
            axes than are drawn, the boundary is for a model that uses the drawn axes only.
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
        require(model, "transform", "subspace")
        z = np.asarray(model.transform(inside.rows(X)), dtype=np.float64)
        axes = _check_axes(axes, z.shape[1])
        if subclasses is None:
            centers = _subclass_centers(model)
            if len(centers) <= _MAX_SUBCLASSES:
                places = pairwise_distances_argmin(z[:, : centers.shape[1]], centers)
                subclasses = 1 + places
                known = getattr(model, "subclass_names_", None)
                if known is not None and labels is None and len(np.unique(column_or_1d(y))) < 3:
                    labels = np.array(known)[places]
        return cls.from_predictions(
            y,
            z,
            subclasses=subclasses,
            labels=labels,
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
        labels: ArrayLike | None = None,
        pos_label: object = 1,
        axes: tuple[int, ...] = (0, 1),
        means: ArrayLike | None = None,
        covariances: ArrayLike | None = None,
        eigenvalues: ArrayLike | None = None,
        decision: Decision | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw samples with given coordinates in the subspace.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Labels; all except `pos_label` are drawn as the rest.
        z : array-like of shape (n_samples, n_components)
            Samples in the subspace.
        subclasses : array-like of shape (n_samples,), default=None
            Subclass of each sample; entries for the class of interest are ignored. None draws the
            rest as one group.
        labels : array-like of shape (n_samples,), default=None
            Original labels, used to name subclasses. None means the labels in `y_true`.
        pos_label : int, float, bool or str, default=1
            The class of interest.
        axes : tuple of one or two int, default=(0, 1)
            Which axes of the subspace to draw, counted from 0.
        means : array-like of shape (K + 1, n_components), default=None
            Ellipse centres: first for the class of interest, then for the K subclasses present, in
            sorted order. None means the sample means.
        covariances : array-like of shape (K + 1, n_components, n_components), default=None
            Covariances that shape the ellipses, in the same order. None means sample covariances.
        eigenvalues : array-like of shape (n_components,), default=None
            Shown in the axis labels.
        decision : callable, default=None
            Function that maps points on the drawn axes, of shape (n_points, n_axes), to decision
            values of shape (n_points,), at least zero for the class of interest.
        ax : matplotlib Axes, default=None
            Where to draw. None means a new figure.

        Returns
        -------
        SubspaceDisplay
            The display that was drawn.
        """
        points: Array = check_array(z, dtype=np.float64)
        truth = column_or_1d(y_true)
        check_consistent_length(points, truth, subclasses, labels)
        groups, names = _encode_groups(truth == pos_label, subclasses, pos_label)
        names = _named_groups(groups, names, truth if labels is None else column_or_1d(labels))
        return cls(
            z=points,
            groups=groups,
            names=names,
            axes=_check_axes(axes, points.shape[1]),
            means=_check_moments("means", means, 2, len(names), points.shape[1]),
            covariances=_check_moments("covariances", covariances, 3, len(names), points.shape[1]),
            eigenvalues=None if eigenvalues is None else column_or_1d(eigenvalues),
            decision=decision,
        ).plot(ax=ax)

    def _draw(self) -> None:
        self.axes = _check_axes(self.axes, self.z.shape[1])
        self.points_: list[Any] = [None] * len(self.names)
        self.ellipses_: list[list[Ellipse]] = [[] for _ in self.names]
        self.texts_: list[Text] = []
        self.decision_: Any = None
        labels = [f"axis {axis + 1}" for axis in self.axes]
        if self.eigenvalues is not None:
            values = self.eigenvalues[list(self.axes)]
            labels = [f"{n} (eigenvalue {v:.3g})" for n, v in zip(labels, values, strict=True)]
        alone = len(self.axes) == 1
        self.ax_.set(xlabel=labels[0], ylabel="density within group" if alone else labels[1])
        (self._draw_histograms if alone else self._draw_scatter)()
        if self.decision is not None:
            self.decision_ = draw_decision(self.ax_, self.decision, self.z[:, self.axes])
        self._draw_legend()

    def _members(self) -> Iterator[tuple[int, Array, str]]:
        """Yield the number, the points and the label of each group.

        The class of interest comes last, on top, because it is smaller and lies in the middle.
        """
        for group in [*range(1, len(self.names)), 0]:
            points = self.z[self.groups == group][:, self.axes]
            yield group, points, f"{self.names[group]} (n = {len(points)})"

    def _draw_scatter(self) -> None:
        for group, points, label in self._members():
            style: dict[str, Any] = {"alpha": 0.55, "s": 16, "edgecolors": "none", "zorder": 2}
            if group == 0:
                style = {"alpha": 0.85, "s": 26, "edgecolors": "white", "zorder": 3}
            style |= group_style(group)
            style |= {"linewidths": 0.4, "label": label}
            if len(points):
                self.points_[group] = self.ax_.scatter(*points.T, **style)
            center, covariance = self._moments(group, points)
            if center is not None and covariance is not None:
                self.ellipses_[group] = self._draw_ellipses(group, center, covariance)
            if center is not None and group > 0 and len(self.names) > 2:
                self._draw_name(group, center)
        self.ax_.set_aspect("equal", adjustable="datalim")

    def _draw_ellipses(self, group: int, center: Array, covariance: Array) -> list[Ellipse]:
        from matplotlib.patches import Ellipse

        variances, directions = np.linalg.eigh(covariance)
        lengths = np.sqrt(np.clip(variances, 0.0, None))
        style: dict[str, Any] = {
            "angle": float(np.degrees(np.arctan2(directions[1, 0], directions[0, 0]))),
            "edgecolor": group_style(group)["color"],
            "zorder": 5 if group == 0 else 4,
            "path_effects": rimmed(3.2, 0.7),
        }
        ellipses = [
            Ellipse(tuple(center), *(2.0 * level * lengths), fill=False, linewidth=width, **style)
            for level, width in _ELLIPSES
        ]
        for ellipse in ellipses:
            self.ax_.add_patch(ellipse)
        return ellipses

    def _moments(self, group: int, points: Array) -> tuple[Array | None, Array | None]:
        """Return a group's centre and covariance on the drawn axes.

        Each is None if it is not given and there are too few points to estimate it.
        """
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

    def _draw_name(self, group: int, center: Array) -> None:
        """Write a subclass's name at its centre, so that colour is not the only cue."""
        name = self.names[group].removeprefix(_SUBCLASS)
        if name.endswith(")"):  # the label in brackets says more than the number before it
            name = name.partition(" (")[2].removesuffix(")").removeprefix("mostly ")
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontweight": "bold", "zorder": 6}
        x, y = center.tolist()
        self.texts_.append(self.ax_.text(x, y, name, path_effects=rimmed(2.5), **style))

    def _draw_histograms(self) -> None:
        values = self.z[:, self.axes[0]]
        edges = np.histogram_bin_edges(values, bins=min(60, max(10, round(len(values) ** 0.5))))
        for group, points, label in self._members():
            if len(points):
                look = group_style(group)["color"], label
                bars = draw_histogram(self.ax_, points[:, 0], edges, *look, in_front=group == 0)
                self.points_[group] = bars

    def _draw_legend(self) -> None:
        from matplotlib.lines import Line2D

        drawn = [artist for artist in self.points_ if artist is not None]
        many = len(drawn) - 1 > _LEGEND_SUBCLASSES and len(self.axes) == 2
        handles = drawn[:1] if many else drawn
        if many:
            rest = f"rest, in {len(self.names) - 1} subclasses (n = {int((self.groups > 0).sum())})"
            style: dict[str, Any] = {"color": "0.5", "marker": "o", "linestyle": "none"}
            handles.append(Line2D([], [], label=rest, **style))
        if self.decision_:
            alone = " by these axes alone" if len(self.axes) < self.z.shape[1] else ""
            handles.append(Line2D([], [], label=f"decision{alone}", **DECISION_STYLE))
        self.legend_ = self.ax_.legend(handles=handles, **BESIDE)
        if len(self.axes) == 2:
            for handle in filter(None, self.legend_.legend_handles):
                handle.set_alpha(1.0)


def _subclass_centers(model: Verifier) -> Array:
    """Return the subclass means in the subspace."""
    if has_density(model):
        return np.asarray(model.density_.base.subclasses)
    with warnings.catch_warnings():
        # The means are a plain array even if the model was fitted on named columns.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return np.asarray(model.transform(model.subclass_means_))


def _encode_groups(
    positive: Mask, subclasses: ArrayLike | None, pos_label: object
) -> tuple[NDArray[np.int64], list[str]]:
    """Return group numbers 0..K and group names; subclasses are numbered in sorted order."""
    groups = np.zeros(len(positive), dtype=np.int64)
    if subclasses is None:
        groups[~positive] = 1
        present = ["rest"]
    else:
        labels, codes = np.unique(column_or_1d(subclasses)[~positive], return_inverse=True)
        groups[~positive] = 1 + codes
        present = [f"{_SUBCLASS}{label}" for label in labels]
    # The labels 1 and True add nothing to "the class of interest".
    named = "" if pos_label == 1 else f": {pos_label}"
    return groups, [f"class of interest{named}", *present]


def _named_groups(groups: NDArray[np.int64], names: list[str], labels: NDArray[Any]) -> list[str]:
    """Add each subclass's majority label to its name, if there are several labels."""
    if len(np.unique(labels[groups > 0])) < 2:
        return names
    found = list(names)
    for group, most in enumerate(mostly(groups, labels), 1):
        same = names[group] == f"{_SUBCLASS}{most.removeprefix('mostly ')}"
        if not most.endswith(MIXED) and not same and names[group] != "rest":
            found[group] = f"{names[group]} ({most})"
    return found


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
) -> Array | None:
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

"""Bootstrap confidence intervals that resample whole identities rather than single trials."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_consistent_length, column_or_1d

from ..core.linalg import Array, Ints
from ..progress import progress
from ..validation import Seed, check_count, random_source
from . import detection, ratios
from .trials import Order, check_trials

OF_TRIALS = detection.OF_TRIALS | ratios.OF_TRIALS


@dataclass(frozen=True)
class Interval:
    """A figure with its confidence interval.

    Attributes
    ----------
    value : float
        The figure computed on all samples.
    low, high : float
        Ends of the interval.
    level : float
        Confidence level of the interval.
    resamples : array of shape (n_resamples,)
        The figure computed on each resample.

    Examples
    --------
    >>> import numpy as np
    >>> from pcsda.metrics import Interval
    >>> print(Interval(0.05, 0.03, 0.08, level=0.95, resamples=np.array([0.03, 0.08])))
    0.05 (95% interval 0.03 to 0.08)
    """

    value: float
    low: float
    high: float
    level: float
    resamples: Array

    @property
    def _span(self) -> str:
        return f"({100 * self.level:g}% interval {self.low:.4g} to {self.high:.4g})"

    def __str__(self) -> str:
        return f"{self.value:.4g} {self._span}"

    def __repr__(self) -> str:
        return f"<Interval: {self}>"

    def _repr_html_(self) -> str:
        """Return the figure and its interval as HTML, for notebooks."""
        return f"<b>{self.value:.4g}</b> {self._span}"


def bootstrap_interval(
    metric: Callable[..., Any],
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 1000,
    pos_label: object = None,
    random_state: Seed = None,
    verbose: bool = False,
) -> Interval:
    """Compute a percentile bootstrap interval for a metric by resampling whole identities.

    Samples from the same person, device or recording resemble each other. If they were drawn
    individually, they would count as more evidence than they are, and the interval would be too
    narrow [1]_. Here all samples in a group are drawn, or left out, together.

    Parameters
    ----------
    metric : callable
        ``metric(y_true, y_score)``, which returns a number, or a tuple whose first entry is used,
        such as a rate with its threshold. If it takes `sample_weight`, samples drawn m times have
        weight m; otherwise they are repeated m times. For other arguments use
        :func:`functools.partial`.
    y_true : array-like of shape (n_samples,)
        True labels.
    y_score : array-like of shape (n_samples,) or (n_samples, n_columns)
        Scores.
    groups : array-like of shape (n_samples,), default=None
        Identity of each sample. None means that each sample has its own identity.
    level : float, default=0.95
        Confidence level, between 0 and 1.
    n_resamples : int, default=1000
        How many times the identities are resampled.
    pos_label : int, float, bool or str, default=None
        The class of interest; if given, the metric sees ``y_true == pos_label``.
    random_state : int, RandomState instance or None, default=None
        Seed for the draws.
    verbose : bool, default=False
        Draw a progress bar on a terminal.

    Returns
    -------
    Interval

    Notes
    -----
    With two labels, groups are drawn separately depending on whether they contain the first label,
    the second, or both, so each resample contains both classes. If there is only one group of a
    kind, it is always drawn and adds no width, so an interval from few identities is too narrow.

    References
    ----------
    .. [1] R. M. Bolle, N. K. Ratha and S. Pankanti, "Error analysis of pattern recognition
       systems: the subsets bootstrap", Computer Vision and Image Understanding 93 (2004) 1-33.

    Examples
    --------
    >>> import numpy as np
    >>> from pcsda.metrics import bootstrap_interval, equal_error_rate
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 200)
    >>> found = bootstrap_interval(equal_error_rate, y, rng.normal(2 * y), random_state=0)
    >>> bool(found.low < found.value < found.high)
    True
    """
    if not 0 < level < 1:
        raise ValueError(f"level={level} must lie between 0 and 1, both excluded; 0.95 is usual")
    check_count("n_resamples", n_resamples)
    labels, scores = column_or_1d(y_true), np.asarray(y_score)
    check_consistent_length(labels, scores, groups)
    if pos_label is not None:
        labels = labels == pos_label
    members = np.arange(len(labels))
    if groups is not None:
        members = np.unique(column_or_1d(groups), return_inverse=True)[1]
    strata = _strata(labels, members)
    figure_of = _resampled(metric, labels, scores)
    rng = random_source(random_state)
    figures = np.empty(n_resamples)
    for i in progress(range(n_resamples), "resamples", enabled=verbose):
        times = _draw(strata, members.max() + 1, rng)[members]
        figures[i] = _number(figure_of(times))
    low, high = np.quantile(figures, [(1 - level) / 2, (1 + level) / 2])
    value = _number(metric(labels, scores))
    return Interval(value, float(low), float(high), float(level), figures)


def _resampled(
    metric: Callable[..., Any], labels: NDArray[Any], scores: NDArray[Any]
) -> Callable[[Ints], Any]:
    """Return the metric as a function of how often each sample is drawn."""
    plain, options = metric, {}
    if isinstance(metric, partial) and not metric.args:
        plain, options = metric.func, dict(metric.keywords)
    if "sample_weight" in options:
        raise ValueError("metric already has a sample_weight, which resampling would replace")
    if plain in OF_TRIALS:
        # One sort serves all resamples.
        name = options.pop("pos_label", None)
        positive, checked, _ = check_trials(labels, scores, "y_score", name, None)
        order = Order.of(positive, checked)
        return lambda times: OF_TRIALS[plain](order.trials(times.astype(np.float64)), **options)
    if "sample_weight" in inspect.signature(metric).parameters:
        return lambda times: metric(labels, scores, sample_weight=times)
    return lambda times: metric(np.repeat(labels, times), np.repeat(scores, times, axis=0))


def _strata(labels: NDArray[Any], members: Ints) -> list[Ints]:
    """Divide the groups into strata that are resampled separately.

    With two labels, the groups that contain the same labels form a stratum. With any other number
    of labels, there is only one stratum.
    """
    if len(labels) == 0:
        raise ValueError("y_true has 0 samples, but at least 1 is needed")
    n_groups = int(members.max()) + 1
    first, others = labels == labels[0], labels != labels[0]
    if len(np.unique(labels[others])) != 1:
        return [np.arange(n_groups)]
    kinds = np.zeros(n_groups, dtype=int)
    kinds[members[first]] |= 1
    kinds[members[others]] |= 2
    return [np.flatnonzero(kinds == kind) for kind in np.unique(kinds)]


def _draw(strata: list[Ints], n_groups: int, rng: np.random.RandomState) -> Ints:
    """Resample the groups in each stratum, and return how often each group was drawn."""
    times = np.zeros(n_groups, dtype=np.intp)
    for stratum in strata:
        drawn = rng.randint(len(stratum), size=len(stratum))
        times[stratum] = np.bincount(drawn, minlength=len(stratum))
    return times


def _number(figure: Any) -> float:
    return float(figure[0] if isinstance(figure, tuple) else figure)

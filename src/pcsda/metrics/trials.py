"""Check trials and sort them once, to count the samples in each class at each score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.isotonic import isotonic_regression
from sklearn.utils import check_consistent_length, column_or_1d

from ..core.linalg import Array, Ints, Mask
from ..targets import MIXED, distinct, shorten


@dataclass(frozen=True)
class Trials:
    """Numbers of positives and negatives at each distinct score, which is called a level.

    Attributes
    ----------
    levels : array of shape (n_levels,)
        Distinct scores, ascending.
    positives, negatives : arrays of shape (n_levels,)
        Number, or total weight, of samples in each class at each level.
    """

    levels: Array
    positives: Array
    negatives: Array

    @property
    def rates(self) -> tuple[Array, Array]:
        """False-match and false-non-match rates, of shape (n_levels + 1,).

        Entry i is for the threshold ``levels[i]``; the last entry is for rejecting everything.
        """
        below = np.append(0.0, np.cumsum(self.positives))
        above = np.append(np.cumsum(self.negatives[::-1])[::-1], 0.0)
        return above / above[0], below / below[-1]

    @property
    def thresholds(self) -> Array:
        """Thresholds for `rates`; the last is infinity, which rejects everything."""
        return np.append(self.levels, np.inf)

    def pooled(self) -> Trials:
        """Join adjacent levels until the proportion of positives increases at each level.

        This is the pool-adjacent-violators algorithm, and the rates of the result are the vertices
        of the ROC convex hull. A joined level keeps its lowest score.
        """
        total = self.positives + self.negatives
        share = isotonic_regression(self.positives / total, sample_weight=total)
        starts = _starts(share)
        sums = (np.add.reduceat(part, starts) for part in (self.positives, self.negatives))
        return Trials(self.levels[starts], *sums)


@dataclass(frozen=True)
class Order:
    """Samples sorted by score, which need not be sorted again for new weights.

    Attributes
    ----------
    order : array of shape (n,)
        Row numbers, by ascending score.
    positive : boolean array of shape (n,)
        Whether each sorted row is positive.
    starts : array of shape (n_levels,)
        Index of the first sorted row in each level.
    levels : array of shape (n_levels,)
        Distinct scores, ascending.
    """

    order: Ints
    positive: Mask
    starts: Ints
    levels: Array

    @classmethod
    def of(cls, positive: Mask, scores: Array) -> Order:
        """Sort checked scores; this is the only sort that a metric needs."""
        order = np.argsort(scores)
        scores = scores[order]
        starts = _starts(scores)
        return cls(order, positive[order], starts, scores[starts])

    def trials(self, weights: Array | None = None) -> Trials:
        """Count the samples at each level; `weights`, if given, are in the original order."""
        if weights is None:
            sizes = np.diff(self.starts, append=len(self.order)).astype(np.float64)
            hits = self._sums(self.positive.astype(np.float64))
            return Trials(self.levels, hits, sizes - hits)
        weights = weights[self.order]
        hits = self._sums(np.where(self.positive, weights, 0.0))
        others = self._sums(np.where(self.positive, 0.0, weights))
        present = (hits > 0) | (others > 0)
        if present.all():
            return Trials(self.levels, hits, others)
        return Trials(self.levels[present], hits[present], others[present])

    def _sums(self, values: Array) -> Array:
        """Sum values over each level; without ties, return the values themselves."""
        if len(self.starts) == len(values):
            return values
        return np.asarray(np.add.reduceat(values, self.starts))


def sort_trials(positive: Mask, scores: Array, weights: Array | None) -> Trials:
    """Sort checked samples, and count both classes at each distinct score."""
    return Order.of(positive, scores).trials(weights)


def _starts(values: Array) -> Ints:
    """Return the positions where runs of equal values start; equal infinities form one run."""
    changes: Ints = np.flatnonzero(values[1:] != values[:-1])
    return np.append(0, changes + 1)


def check_trials(
    y_true: ArrayLike,
    y_score: ArrayLike,
    score_name: str,
    pos_label: object,
    sample_weight: ArrayLike | None,
) -> tuple[Mask, Array, Array | None]:
    """Check samples and drop those with zero weight.

    Return which samples are positive, their scores, and their weights or None.
    """
    labels = column_or_1d(y_true)
    scores = check_scores(y_score, score_name)
    check_consistent_length(labels, scores, sample_weight)
    positive = is_positive(labels, pos_label)
    weights = None
    if sample_weight is not None:
        weights = _check_weights(sample_weight)
        # A sample of weight zero is absent, even if its cost is infinite.
        kept = weights > 0
        positive, scores, weights = positive[kept], scores[kept], weights[kept]
    for name, present in (("positive", positive.any()), ("negative", not positive.all())):
        if not present:
            raise ValueError(
                f"y_true has 0 {name} samples (of weight above 0), but at least 1 is needed; give"
                " samples of both classes"
            )
    return positive, scores, weights


def check_scores(y_score: ArrayLike, name: str) -> Array:
    """Return scores as a float array; NaN is rejected, infinities are allowed."""
    scores: Array = column_or_1d(y_score, dtype=np.float64)
    n_missing = int(np.count_nonzero(np.isnan(scores)))
    if n_missing:
        raise ValueError(
            f"{name} has {n_missing} NaN among {len(scores)} values; remove or replace them"
        )
    return scores


def is_positive(labels: NDArray[Any], pos_label: object) -> Mask:
    """Return which labels denote the class of interest."""
    if labels.dtype.kind in "fc" and np.isnan(labels).any():
        raise ValueError(f"y_true has {np.isnan(labels).sum()} NaN; remove those samples")
    if labels.dtype.kind == "b" and pos_label is None:
        return labels
    present = distinct(labels, "y_true " + MIXED)[0].tolist()
    if pos_label is None:
        if not (set(present) <= {0, 1} or set(present) <= {-1, 1}):
            raise ValueError(
                f"pos_label=None needs labels in {{0, 1}} or {{-1, 1}}, y_true has"
                f" {shorten(present)}; name the class of interest with pos_label"
            )
        pos_label = 1
    elif pos_label not in present:
        raise ValueError(
            f"pos_label={pos_label!r} must be one of the labels in y_true, {shorten(present)};"
            " name one of them"
        )
    return np.asarray(labels == pos_label)


def _check_weights(sample_weight: ArrayLike) -> Array:
    weights: Array = column_or_1d(sample_weight, dtype=np.float64)
    bad = weights[~(np.isfinite(weights) & (weights >= 0))]
    if len(bad):
        raise ValueError(
            f"sample_weight has {len(bad)} values that are negative or not finite, such as"
            f" {bad[0]}; all must be at least 0"
        )
    return weights

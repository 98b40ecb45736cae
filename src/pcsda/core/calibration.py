"""Turn the views of a density, which are log ratios, into a calibrated log-likelihood ratio."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .linalg import Array, Ints, Mask
from .logistic import fit_logistic

# The chance that the next row of a class differs from all n known ones is UNSEEN / (n + 1), the
# estimate of Krichevsky and Trofimov for an event that has never occurred.
UNSEEN = 0.5
# Beyond the odds of that chance, the log-likelihood ratio is bent: each time its distance from that
# point grows e-fold, the bent ratio moves by only this much.
FALL = 1.0


class Scored(NamedTuple):
    """Log-likelihood ratios of rows that the model has not seen, with their classes and weights.

    `weights` is None if all rows have weight one. `together` is the group of each row, if the rows
    of a group were left out together. `rows` holds their numbers among the training rows with
    positive weight, if these are known.
    """

    scores: Array
    positive: Mask
    weights: Array | None
    together: Ints | None = None
    rows: Ints | None = None

    @property
    def without_rows(self) -> tuple[Array, Mask, Array | None, Ints | None]:
        """All but the numbers of the rows: what thresholds and error rates rest on."""
        return self.scores, self.positive, self.weights, self.together

    @property
    def has_both(self) -> bool:
        """Whether there are rows of both classes."""
        return bool(self.positive.any() and not self.positive.all())

    @property
    def evidence(self) -> Array:
        """Weight of each row as evidence."""
        mass = np.ones(len(self.scores)) if self.weights is None else self.weights
        return evidence_of(mass, self.together)

    def with_scores(self, scores: Array) -> Scored:
        """Return the same rows with other scores."""
        return self._replace(scores=scores)

    def with_rows(self, rows: Ints) -> Scored:
        """Return the same rows with their numbers."""
        return self._replace(rows=rows)

    def finite(self) -> Scored:
        """Return only the rows whose score is finite."""
        seen = np.isfinite(self.scores)
        weights = None if self.weights is None else self.weights[seen]
        together = None if self.together is None else self.together[seen]
        rows = None if self.rows is None else self.rows[seen]
        return Scored(self.scores[seen], self.positive[seen], weights, together, rows)


def evidence_of(mass: Array, together: Ints | None) -> Array:
    """Return the weight of each row as evidence, given its `mass` and its block.

    The mass of a row is divided by the number of rows in its block, so that a whole block counts as
    much as its average row.
    """
    if together is None:
        return mass
    _, block = np.unique(together, return_inverse=True)
    return mass / np.bincount(block)[block]


@dataclass(frozen=True)
class Calibration:
    """A function that returns the log-likelihood ratio ``weights @ views + offset``.

    Attributes
    ----------
    weights : tuple of float
        Weight of each view; with one view, the slope.
    offset : float
    bend : float
        A ratio that is t below `top` becomes ``top - bend ln(1 + t/bend)``: almost unchanged near
        the top, and logarithmic far below it. In the same way, a ratio that is t above `highest`
        becomes ``highest + bend ln(1 + t/bend)``. With an infinite bend, no ratio changes.
    top, highest : float
        Ratios between these two are never bent.
    """

    weights: tuple[float, ...] = (1.0,)
    offset: float = 0.0
    bend: float = np.inf
    top: float = 0.0
    highest: float = np.inf

    @classmethod
    def none(cls, n_views: int) -> Calibration:
        """Return a calibration with equal weights and no offset."""
        return cls((1 / n_views,) * n_views)

    @property
    def slope(self) -> float:
        """Sum of the weights of the views, which is 1 before calibration."""
        return float(sum(self.weights))

    @property
    def is_bent(self) -> bool:
        """Whether ratios below `top` and above `highest` are bent."""
        return 0 < self.bend < np.inf

    def __call__(self, views: Array) -> Array:
        """Return the log-likelihood ratio for `views`, whose first axis indexes the views."""
        # There are at most four views; for a single row, a general product would take longer.
        ratio = self.weights[0] * views[0]
        for weight, view in zip(self.weights[1:], views[1:], strict=True):
            ratio = ratio + weight * view
        total: Array = ratio + self.offset
        if self.is_bent:
            inner = np.minimum(np.maximum(total, self.top), self.highest)
            apart = total - inner
            total = inner + self.bend * np.copysign(np.log1p(np.abs(apart) / self.bend), apart)
        return total

    def of_unit_slope(self) -> Calibration:
        """Return a calibration without an offset, whose weights are scaled to sum to one."""
        weights = tuple(weight / self.slope for weight in self.weights)
        if not self.is_bent:
            return Calibration(weights)
        ends = ((end - self.offset) / self.slope for end in (self.top, self.highest))
        return Calibration(weights, 0.0, self.bend / self.slope, *ends)

    def then(self, slope: float, offset: float) -> Calibration:
        """Return a calibration that multiplies this one's ratio by `slope` and adds `offset`."""
        weights = tuple(slope * weight for weight in self.weights)
        moved = slope * self.offset + offset
        if not self.is_bent:
            return Calibration(weights, moved)
        ends = (slope * end + offset for end in (self.top, self.highest))
        return Calibration(weights, moved, slope * self.bend, *ends)

    def since(self, before: Calibration) -> Calibration:
        """Return the calibration that turns the ratios from `before` into those from this one."""
        slope = self.slope / before.slope
        moved = Calibration((slope,), self.offset - slope * before.offset)
        if before.is_bent:
            return moved
        return replace(moved, bend=self.bend, top=self.top, highest=self.highest)

    def straight(self) -> Calibration:
        """Return the same calibration without the bend."""
        return replace(self, bend=np.inf, top=0.0, highest=np.inf)

    def straightened(self, ratios: Array) -> Array:
        """Undo the bend: return the ratios that :meth:`straight` would give for the same rows."""
        if not self.is_bent:
            return ratios
        inner = np.minimum(np.maximum(ratios, self.top), self.highest)
        apart = ratios - inner
        straight: Array = inner + self.bend * np.copysign(
            np.expm1(np.abs(apart) / self.bend), apart
        )
        return straight

    def limited(self, n_positive: float, n_negative: float) -> Calibration:
        """Limit how strong the evidence for and against the class can be, given numbers of rows.

        A class may be wider than its rows show, so n positives cannot justify odds of much more
        than n to one against a new row, nor n negatives such odds for it. Beyond these odds, the
        ratio grows only logarithmically, so that the order of scores is preserved. A calibration
        that is already bent is returned unchanged.
        """
        if self.is_bent:
            return self
        lowest, highest = (np.log((n + 1) / UNSEEN) for n in (n_positive, n_negative))
        return replace(self, bend=FALL, top=-float(lowest), highest=float(highest))


def fit_calibration(
    views: Array, positive: Mask, weights: Array | None = None, start: Calibration | None = None
) -> Calibration:
    """Fit a logistic regression of the label on the views, with positive weights.

    The log odds are ``weights @ views + offset + ln(N_p/N_n)``, so that weights and offset give a
    log-likelihood ratio. A weak prior assumes that the mean of the views is already such a ratio:
    weights have the distribution Gamma(2, V), with mode 1/V for V views, and the offset N(0, 10^2).
    The prior keeps weights finite if the views separate the classes, and positive if the views are
    uninformative, so that calibration preserves the order of scores.

    Parameters
    ----------
    views : array of shape (V, n)
        Views of samples that the model has not seen: left out, cross-validated or held out.
    positive : boolean array of shape (n,)
    weights : array of shape (n,), optional
        Weights of the samples.
    start : Calibration, optional
        A calibration fitted to similar views. Starting from it saves steps.

    Notes
    -----
    Platt's smoothed targets would also keep the slope finite, but they act like one positive among
    the negatives. Log-likelihood ratios can be so large that this positive outweighs all others and
    flattens the slope.
    """
    near = None if start is None else (start.weights, start.offset)
    slopes, offset = fit_logistic(views, positive, weights, near)
    return Calibration(tuple(map(float, slopes)), offset)

"""Calibration: the only place where density views are turned into a log-likelihood ratio."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .linalg import Array, Mask
from .logistic import fit_logistic


@dataclass(frozen=True)
class Calibration:
    """A calibration that returns the log-likelihood ratio ``weights @ views + offset``.

    Attributes
    ----------
    weights : tuple of float
        Weight of each view; with one view, the slope.
    offset : float
    bend : float
        A view t below `top` counts as ``top - bend ln(1 + t/bend)``: almost unchanged near the top,
        and logarithmic far below it. If infinite, views are used unchanged.
    top : float
    """

    weights: tuple[float, ...] = (1.0,)
    offset: float = 0.0
    bend: float = np.inf
    top: float = 0.0

    @classmethod
    def none(cls, n_views: int) -> Calibration:
        """Return a calibration with equal weights and no offset."""
        return cls((1 / n_views,) * n_views)

    @property
    def slope(self) -> float:
        """Sum of the weights: 1 if the views are used unchanged."""
        return float(sum(self.weights))

    def __call__(self, views: Array) -> Array:
        """Return the log-likelihood ratio for `views`, whose first axis indexes the views."""
        if np.isfinite(self.bend):
            below = np.maximum(self.top - views, 0.0)
            views = views + below - self.bend * np.log1p(below / self.bend)
        # There are one or two views; for a single row a general product would cost more.
        ratio = self.weights[0] * views[0]
        for weight, view in zip(self.weights[1:], views[1:], strict=True):
            ratio = ratio + weight * view
        total: Array = ratio + self.offset
        return total

    def of_unit_slope(self) -> Calibration:
        """Return a calibration with the weights scaled to sum to one, without the offset."""
        return replace(self, weights=tuple(w / self.slope for w in self.weights), offset=0.0)

    def then(self, slope: float, offset: float) -> Calibration:
        """Return this calibration followed by another one with the given slope and offset."""
        weights = tuple(slope * weight for weight in self.weights)
        return replace(self, weights=weights, offset=slope * self.offset + offset)


def fit_calibration(
    views: Array, positive: Mask, weights: Array | None = None, start: Calibration | None = None
) -> Calibration:
    """Fit a logistic regression of the label on the views, with positive weights.

    The log odds are ``weights @ views + offset + ln(N_p/N_n)``, so that weights and offset give a
    log-likelihood ratio. A weak prior assumes that the mean of the views is already such a ratio:
    weights Gamma(2, V), with their mode at 1/V for V views, and offset N(0, 10^2). It keeps the
    weights finite if the views separate the classes, and positive if they are worthless, so that
    calibration preserves the order of scores.

    Parameters
    ----------
    views : array of shape (V, n)
        Views of samples that the model has not seen: left out, cross-validated or held out.
    positive : boolean array of shape (n,)
    weights : array of shape (n,), optional
        Weights of the samples.
    start : Calibration, optional
        Starting point, fitted to similar views; it only saves steps.

    Notes
    -----
    Platt's smoothed targets would keep the slope finite as well, but they act like one positive
    among the negatives. Far out on the scale of a log-likelihood ratio, that one positive outweighs
    all others and flattens the slope.
    """
    near = None if start is None else (start.weights, start.offset)
    slopes, offset = fit_logistic(views, positive, weights, near)
    return Calibration(tuple(map(float, slopes)), offset)

"""Thresholds, counts of positives and recalibration of a fitted model.

The functions with `self` are methods of every `Verifier` and of `MixtureVerifier`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError

from ..core import threshold
from ..core.calibration import Scored, fit_calibration
from ..core.density import NoDensity
from ..core.linalg import Array, Ints, Mask
from ..core.threshold import Threshold, check_criterion
from ..core.warning import warn
from ..metrics import PriorEstimate, estimate_prior
from ..targets import check_labels, check_weights
from ..unwrap import unwrap
from ..validation import MatrixLike, as_rows
from .steps import forget, rule_of
from .threads import updates

if TYPE_CHECKING:
    from .verifier import Verifier

V = TypeVar("V", bound="Verifier")

# Source of the rows used to choose a threshold.
LEFT_OUT, GIVEN = "left-out rows", "the rows given"
# For models without left-out scores, whose calibration error is unknown.
AS_EXACT = (
    "The intervals take the log-likelihood ratios as exact: the model has no left-out scores of "
    "both classes to estimate their error."
)
# Models that leave rows out in folds need this many positives: with fewer, the model of a fold has
# learned from so much less that its scores do not tell those of the whole model. With two positives
# in 200 columns, the threshold of CSDA for 5% false alarms accepted 42% of new negatives.
ENOUGH_FOR_FOLDS = 10
# With this many positives per column, the scatter of the positives, by which CSDA divides, is close
# to singular, and that of the folds still closer. With 32 positives in 30 columns, the threshold
# for 5% accepted 30%; with 45 it accepted 12%, with 60 it accepted 7%.
NEARLY_SINGULAR = 0.9, 1.5
# Counts need more: in 20 columns, 90% intervals held in 7% of draws with 10 positives, in 47% with
# 40 and in 87% with 60.
COUNTS_FAIL = 0.4, 2.6
AGAINST_STRANGERS = (
    "The ratios of a bank compare a label with strangers, so this count is too low if the pool "
    "holds the bank's other labels."
)


def choose_threshold(
    self: Verifier,
    max_false_alarms: float | None = None,
    max_misses: float | None = None,
    prior: float | None = None,
    cost_miss: float = 1.0,
    cost_false_alarm: float = 1.0,
    X: Any = None,
    y: ArrayLike | None = None,
) -> Threshold:
    """Choose the log-likelihood ratio at which rows are accepted, and store it.

    Give exactly one of `max_false_alarms`, `max_misses` and `prior`. The model stores the result as
    `threshold_`, which :meth:`accepts` uses, until the next fit.

    Parameters
    ----------
    max_false_alarms : float, optional
        Share of negatives that may be accepted. The lowest threshold within this limit is chosen.
    max_misses : float, optional
        Share of positives that may be rejected. The highest threshold within this limit is chosen.
    prior : float, optional
        Share of the class of interest among the rows to be scored. The threshold with the
        smallest expected cost is chosen.
    cost_miss, cost_false_alarm : float, default=1
        Costs of the two errors, used with `prior`.
    X : array-like or sparse matrix of shape (n_samples, n_features), optional
        Held-out rows from which the error rates are estimated. By default, they are estimated from
        the left-out scores of the training rows.
    y : array-like of shape (n_samples,), optional
        Labels of X, among ``classes_``.

    Returns
    -------
    Threshold
        The threshold, the expected rates of both errors, their 90% intervals, and the number of
        rows from which the rates are estimated. In the intervals, rows that were left out together
        (`groups` of the fit) count as one row.

    Warns
    -----
    UserWarning
        If there are fewer than 1/r rows to estimate a rate r. For a model that leaves rows out in
        folds, if there are fewer than ten positives, or for CSDA about as many as columns.

    Notes
    -----
    An exponential tail is fitted to the highest twentieth of the negatives' scores, but at least to
    the 20 highest. Without the tail, a rate of 1% would depend on just three of 300 negatives.

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(6000, random_state=0)
    >>> model = PCSDA(random_state=0).fit(data.data[:2000], data.target[:2000])
    >>> threshold = model.choose_threshold(max_false_alarms=0.01)
    >>> accepted, truth = model.accepts(data.data[2000:]), data.target[2000:]
    >>> bool(0.005 < accepted[truth == 0].mean() < 0.02)
    True
    """
    self._require_model()
    check_criterion(max_false_alarms, max_misses, prior, cost_miss, cost_false_alarm)
    if (X is None) != (y is None):
        raise ValueError(f"{'y' if X is None else 'X'} is given alone; give X and y, or neither")
    rows = _rows_for(self, max_false_alarms, max_misses, X, y)
    if X is None and (why := _unlike_folds(self, rows)):
        warn(f"{why} Give rows that were not used for fitting as X and y, or use PCSDA")
    self.threshold_ = threshold.choose_threshold(
        *rows.without_rows,
        max_false_alarms=max_false_alarms,
        max_misses=max_misses,
        prior=prior,
        cost_miss=cost_miss,
        cost_false_alarm=cost_false_alarm,
        source=LEFT_OUT if X is None else GIVEN,
    )
    return self.threshold_


def accepts(self: Verifier, X: MatrixLike) -> Mask:
    """Accept each row whose log-likelihood ratio is at least `threshold_`.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)

    Returns
    -------
    boolean array of shape (n_samples,)

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(500, random_state=0)
    >>> model = PCSDA(random_state=0).fit(data.data, data.target)
    >>> threshold = model.choose_threshold(prior=0.1, cost_miss=5)
    >>> model.accepts(data.data).shape
    (500,)
    """
    self._require_model()
    if not hasattr(self, "threshold_"):
        raise NotFittedError(
            f"this {type(self).__name__} has no threshold; call choose_threshold, for instance "
            "with max_false_alarms=0.01, after each fit"
        )
    return np.asarray(self.log_likelihood_ratio(X) >= self.threshold_.value)


def count(self: Verifier, X: MatrixLike) -> PriorEstimate:
    """Estimate how many rows in an unlabelled pool belong to the class of interest.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        The rows of the pool. Any share may be positive; the negatives should resemble those in
        training. A copy of a training row counts with its left-out score, if the fit left it out,
        because the model is too certain of the rows that it learned from.

    Returns
    -------
    PriorEstimate
        The number and the share of positives with 90% intervals, and a note on what the data
        cannot tell. The intervals allow for the error of a calibration with few positives, where
        rows that were left out together (`groups` of the fit) count as one row. The rows of the
        pool count as independent.

    See Also
    --------
    pcsda.metrics.estimate_prior : The same estimate, computed from log-likelihood ratios.

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(3000, separation=6, random_state=0)
    >>> model = PCSDA(random_state=0).fit(data.data[:1000], data.target[:1000])
    >>> found = model.count(data.data[1000:])
    >>> bool(found.count_low <= data.target[1000:].sum() <= found.count_high)
    True
    """
    self._require_model()
    ratios = np.asarray(self.log_likelihood_ratio(X), dtype=np.float64)
    return count_positives(self, fair_ratios(self, X, ratios))


@updates
def recalibrate(
    self: V, X: MatrixLike, y: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> V:
    """Refit the calibration on held-out rows.

    This changes the slope and offset, and hence the log-likelihood ratios, but not the ranking of
    rows.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        Labels among ``classes_``; both must occur.
    sample_weight : array-like of shape (n_samples,), optional

    Returns
    -------
    self : estimator

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(2000, random_state=0)
    >>> X, y = data.data, data.target
    >>> model = PCSDA(random_state=0).fit(X[::2], y[::2])
    >>> model.recalibrate(X[1::2], y[1::2]).calibration_.slope > 0
    True
    """
    views = self._views(X)
    index, positive = _labels_of(self, y, views.shape[1])
    if positive.all() or not positive.any():
        raise ValueError(
            f"recalibrate needs both classes, but y has {'only' if positive.all() else 'no'} "
            f"{self.classes_.tolist()[index]!r}; hold out rows of both"
        )
    weights = check_weights(sample_weight, positive)
    before, mean = self.calibration_, self.calibration_.of_unit_slope()
    found = fit_calibration(mean(views)[None], positive, weights)
    self.calibration_ = mean.then(found.slope, found.offset)
    forget(self, "against_strangers_", "threshold_")  # they belong to the earlier ratios
    since = self.calibration_.since(before)
    if hasattr(self, "loo_scores_"):
        self.loo_scores_ = since(self.loo_scores_[None])
    if hasattr(self, "held_out_"):
        scores, positives, weight = self.held_out_
        self.held_out_ = since(scores[None]), positives, weight
    return self


def _rows_for(
    model: Verifier,
    max_false_alarms: float | None,
    max_misses: float | None,
    X: MatrixLike,
    y: ArrayLike | None,
) -> Scored:
    """Return the scored rows for choosing a threshold: left-out training rows or given rows."""
    density = getattr(model, "density_", None)  # a mixture has one for each mode
    if isinstance(density, NoDensity):
        raise ValueError(f"no threshold without a log-likelihood ratio: {density.why}")
    rows = left_out(model) if X is None else _given(model, X, y)
    if rows is None:
        raise ValueError(
            "this model has no left-out scores to choose a threshold from; give rows that were "
            "not used for fitting as X and y, or fit with calibrate=True and at least 2 rows of "
            "each class"
        )
    source = LEFT_OUT if X is None else GIVEN
    needed = {"negatives": max_false_alarms, "positives": max_misses}
    present = {"negatives": not rows.positive.all(), "positives": bool(rows.positive.any())}
    for kind, asked in needed.items():
        if asked is not None and not present[kind]:
            why = f"y has no {kind}" if X is not None else _why_none(model, kind)
            raise ValueError(
                f"no {kind} to count errors on among {source}. {why}; give {kind} that were not "
                "used for fitting in X and y, or use another criterion"
            )
    return rows


def left_out(model: Verifier) -> Scored | None:
    """Return the scores of rows left out one by one or in folds; None if the model has none."""
    together: Ints | None = getattr(model, "loo_groups_", None)
    if not hasattr(model, "loo_scores_"):
        if not hasattr(model, "held_out_"):
            return None
        scores, positive, mass = model.held_out_
        return Scored(scores, positive, mass, together)
    used = (model.partition_ >= 0) & ~np.isnan(model.loo_scores_)
    weights: Array | None = getattr(model, "loo_weights_", None)
    return Scored(model.loo_scores_[used], model.partition_[used] == 0, weights, together)


def fair_ratios(model: Verifier, X: MatrixLike, ratios: Array) -> Array:
    """Replace the ratios of the rows of X that copy training rows by their left-out scores."""
    rows = left_out(model)
    if not hasattr(model, "fingerprints_") and len(getattr(model, "models_", [])) == 1:
        # The only mode of a mixture is calibrated in folds, and knows the rows as it receives them.
        inside = unwrap(model.models_[0])
        model, X = inside.model, inside.rows(as_rows(X))
    if rows is None or not hasattr(model, "fingerprints_"):
        return ratios
    found = model.fingerprints_.of_copies(as_rows(X), rows.scores)
    return np.where(np.isnan(found), ratios, found)


def _unlike_folds(
    model: Verifier, rows: Scored, singular: tuple[float, float] = NEARLY_SINGULAR
) -> str:
    """Return why the models of folds may differ from the model, or an empty string.

    `singular` holds the numbers of positives per column between which they differ too much.
    """
    final = unwrap(getattr(model, "models_", [model])[0]).model  # a mixture has one for each mode
    if rule_of(final).leave_one_out:
        return ""
    n_positive, least = int(np.sum(rows.positive)), ENOUGH_FOR_FOLDS
    is_csda = hasattr(final, "reference") and hasattr(final, "components_")  # not KernelCSDA
    n_columns = final.n_features_in_ if is_csda else 0
    folded = f"{type(final).__name__} leaves rows out in folds"
    so = "that the rates of this model may be far from theirs."
    if n_positive < least:
        return (
            f"{folded}, which takes {least} positives. With {n_positive}, the models of the folds "
            f"learned from so much less {so}"
        )
    if singular[0] * n_columns <= n_positive <= singular[1] * n_columns:
        return (
            f"{folded}. With {n_positive} positives in {n_columns} columns, the scatter of the "
            f"positives is close to singular, and differs so much between folds {so}"
        )
    return ""


def _why_none(model: Verifier, kind: str) -> str:
    """Return the reason, for an error message, why no rows of a class were left out."""
    counts = {"positives": model.positive_count_, "negatives": model.subclass_counts_.sum()}
    if hasattr(model, "partition_"):  # count rows; the attributes above may be total weights
        counts = {"positives": np.sum(model.partition_ == 0)}
        counts["negatives"] = np.sum(model.partition_ > 0)
    if counts[kind] == 1:
        return "The only one cannot be left out"
    return f"Rows of a group are left out together, and without the {kind} there is no model"


def _given(model: Verifier, X: MatrixLike, y: ArrayLike | None) -> Scored:
    scores = np.asarray(model.log_likelihood_ratio(X), dtype=np.float64)
    return Scored(scores, _labels_of(model, y, len(scores))[1], None)


def _labels_of(model: Verifier, y: ArrayLike | None, n_rows: int) -> tuple[int, Mask]:
    """Check the labels of held-out rows.

    Return the index of the class of interest in `classes_`, and the mask of positive rows.
    """
    _, index, positive = check_labels(y, model.pos_label, model.classes_, "label them as in fit")
    if len(positive) != n_rows:
        raise ValueError(f"X has {n_rows} rows but y has {len(positive)} labels")
    return index, positive


def count_positives(model: Verifier, llr: ArrayLike) -> PriorEstimate:
    """Estimate the number of positives in a pool from its log-likelihood ratios.

    If the model has left-out scores, they show how uncertain the ratios are, and the intervals
    allow for that.
    """
    rows = left_out(model)
    strange = getattr(model, "against_strangers_", False)
    if rows is None or not rows.has_both:
        found = estimate_prior(llr)
        notes = [found.note, AS_EXACT, AGAINST_STRANGERS if strange else ""]
        return replace(found, note=" ".join(filter(None, notes)))
    if strange:  # recalibrate against the other labels, which the rest of a pool resembles
        own = fit_calibration(rows.scores[None], rows.positive, rows.weights)
        llr = own(np.asarray(llr, dtype=np.float64)[None])
        rows = rows.with_scores(own(rows.scores[None]))
    known = rows.positive.astype(np.intp), rows.scores, rows.weights, rows.together
    found = estimate_prior(llr, calibrated_on=known)
    why = _unlike_folds(model, rows, COUNTS_FAIL)
    return replace(found, note=" ".join(filter(None, [found.note, why]))) if why else found

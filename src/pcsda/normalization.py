"""Cohort normalisation of bank scores, so that one threshold suits all labels and samples.

The mean and spread of impostor scores differ between models and between samples. Z-norm estimates
them for each model from a cohort of rows, T-norm for each sample from a cohort of models. S-norm is
the mean of the two, and adaptive S-norm uses only the highest scores of each cohort.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted

from . import validation
from .core.linalg import Array, Floats, Ints, Mask
from .documented import documented
from .targets import shorten

__all__ = ["AdaptiveSNorm", "SNorm", "TNorm", "ZNorm"]

# Scores of the same sample agree to this relative precision, however the rows are batched.
SAME = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-6}
# A spread below this share of the largest score is a rounding error.
FLAT = 1e-12


@documented
class _CohortNorm(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Base class of the four norms, which are fitted to cohort rows and then reject those rows."""

    n_features_in_: int
    # Whether a norm uses statistics over cohort rows (per model) and over cohort models (per row).
    _of_models = True
    _of_rows = True

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        labels: ArrayLike | None = None,
        ids: ArrayLike | None = None,
    ) -> Self:
        """Estimate score statistics from a cohort.

        Parameters
        ----------
        X : array-like of shape (n_cohort, n_labels)
            Scores of the cohort's rows, ``bank.log_likelihood_ratio(X_cohort)``. These rows must
            not be scored later, and should not have been used to fit the bank.
        y : array-like of shape (n_cohort,), default=None
            Labels of the cohort's rows, whether or not the bank knows them. Rows with a model's own
            label are excluded from its statistics. None means that no row has a label known to the
            bank.
        labels : array-like of shape (n_labels,), default=None
            Labels of the columns, ``bank.classes_``. None means 0, 1, ...
        ids : array-like of shape (n_cohort,), default=None
            Identifiers of the rows, or of the people they show, by which :meth:`transform`
            recognises the cohort. If None, it recognises the cohort by the scores.

        Returns
        -------
        self
        """
        validation.check_count("n_top", self._most, None)
        if self._most is not None and self._most < 2:
            raise ValueError(f"n_top={self._most} must be at least 2: one score has no spread")
        given = validation.validated(self, X, dtype=[np.float64, np.float32])
        scores: Array = given.astype(np.float64, copy=False)
        self.labels_ = _labels(labels, scores.shape[1])
        self.cohort_ = self._cohort_columns()
        stranger = np.ones(scores.shape, dtype=bool)
        if y is not None:
            stranger = _column("y", y, len(scores))[:, None] != self.labels_
        if self._of_models:
            self.mean_, self.scale_ = self._model_statistics(scores, stranger)
        self._keep_rows(scores, ids, SAME[given.dtype])
        return self

    @property
    def _most(self) -> int | None:
        """How many of a cohort's highest scores to use; None means all."""
        return getattr(self, "n_top", None)

    def _cohort_columns(self) -> Ints:
        """Return the column numbers of the models in the cohort."""
        cohort, known = getattr(self, "cohort", "others"), self.labels_.tolist()
        columns = np.arange(len(known))
        if not (isinstance(cohort, str) and cohort == "others"):
            wanted = np.asarray(cohort)
            if wanted.ndim != 1 or not all(label in known for label in wanted.tolist()):
                raise ValueError(
                    f"cohort={cohort!r} must be 'others' or a list of labels among those of the "
                    f"columns, {shorten(known)}"
                )
            columns = np.flatnonzero(np.isin(self.labels_, wanted))
        if self._of_rows and len(columns) < 3:
            raise ValueError(
                f"the cohort has {len(columns)} models, but at least 3 are needed, because one "
                "may be the model in question; enroll more labels, or use ZNorm"
            )
        return columns

    def _model_statistics(self, scores: Array, stranger: Mask) -> tuple[Array, Array]:
        means, scales = np.empty(scores.shape[1]), np.empty(scores.shape[1])
        for column, name in enumerate(self.labels_.tolist()):
            found = scores[stranger[:, column], column]
            if len(found) < 2:
                raise ValueError(
                    f"the cohort has {len(found)} rows that are strangers to label {name!r}, but "
                    "at least 2 are needed; give a larger cohort"
                )
            most = self._most or len(found)
            if most < len(found):
                found = np.partition(found, -most)[-most:]
            with np.errstate(over="ignore", invalid="ignore"):  # an overflow shows in the spread
                means[column], scales[column] = found.mean(), found.std()
            if not FLAT * np.abs(found).max() < scales[column] < np.inf:
                raise ValueError(
                    f"the cohort's scores for label {name!r} have a spread of {scales[column]:g} "
                    f"about {means[column]:g}, which cannot serve as a scale; give a larger or more"
                    " varied cohort"
                )
        return means, scales

    def _row_statistics(self, scores: Array) -> tuple[Array, Array]:
        """Return the mean and standard deviation of each row's cohort scores, for every column.

        The statistics for a column exclude the score of the column's own model.
        """
        cohort = scores[:, self.cohort_]
        order = np.argsort(-cohort, axis=1, kind="stable")
        place = np.argsort(order, axis=1)
        most = min(self._most or cohort.shape[1], cohort.shape[1])
        ranked = np.take_along_axis(cohort, order, axis=1)[:, : most + 1]
        top = ranked[:, :most]
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow shows in the spread
            usual, without = (top.mean(axis=1), top.std(axis=1)), _without_each(ranked)
        result = []
        for value, left_out in zip(usual, without, strict=True):
            # `value` is the statistic for models outside the top. A model inside the top is left
            # out of its own statistic, and the next model takes its place.
            seen = np.repeat(value[:, None], scores.shape[1], axis=1)
            nearest = np.take_along_axis(left_out, np.minimum(place, left_out.shape[1] - 1), axis=1)
            seen[:, self.cohort_] = np.where(place < most, nearest, value[:, None])
            result.append(seen)
        means, spread = result
        limit = FLAT * np.abs(ranked).max(axis=1, keepdims=True)
        bad = ~((limit < spread) & (spread < np.inf))
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise ValueError(
                f"the scores of row {row} for the cohort's models have a spread of "
                f"{spread[row, column]:g}, which cannot serve as a scale; leave the row out or "
                "give a cohort with more models"
            )
        return means, spread

    def transform(
        self, X: ArrayLike, *, ids: ArrayLike | None = None, y: ArrayLike | None = None
    ) -> Floats:
        """Normalise scores of rows that are not in the cohort.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_labels)
            Scores, ``bank.log_likelihood_ratio(X_test)``, for the labels seen in `fit`.
        ids : array-like of shape (n_samples,), default=None
            Identifiers of the rows or people; required if they were passed to `fit`. Identifiers
            from the cohort are rejected. Without identifiers, rows with the same scores as a cohort
            row are rejected.
        y : array-like of shape (n_samples,), default=None
            True labels, if known. If `cohort` is a list of labels, rows with these labels are
            rejected.

        Returns
        -------
        array of shape (n_samples, n_labels)
            Normalised scores, in standard deviations above the cohort mean. They are no longer
            log-likelihood ratios: choose a threshold or calibrate again, using rows that are
            neither in the cohort nor in X.
        """
        check_is_fitted(self)
        given = validation.validated(self, X, reset=False, dtype=[np.float64, np.float32])
        scores = given.astype(np.float64, copy=False)
        self._refuse_cohort(scores, ids, SAME[given.dtype])
        self._refuse_labels(y, len(scores))
        parts = []
        with np.errstate(over="ignore"):  # an overflow shows in the result
            if self._of_rows:
                means, spread = self._row_statistics(scores)
                parts.append((scores - means) / spread)
            if self._of_models:
                parts.append((scores - self.mean_) / self.scale_)
            result: Floats = np.mean(parts, axis=0).astype(given.dtype, copy=False)
        if not np.isfinite(result).all():
            row = int(np.flatnonzero(~np.isfinite(result).all(axis=1))[0])
            raise ValueError(f"the scores of row {row} are too large to normalise; leave it out")
        return result

    def _keep_rows(self, scores: Array, ids: ArrayLike | None, precision: float) -> None:
        """Store what identifies the cohort rows: their identifiers, or all their scores."""
        self.ids_: NDArray[Any] | None = None
        self._rows, self._precision = scores[:0], precision
        if ids is not None:
            self.ids_ = _column("ids", ids, len(scores))
        elif scores.shape[1] > 1:
            self._rows = scores[np.argsort(_keys(scores), kind="stable")]
        else:
            raise ValueError(
                "rows cannot be distinguished by 1 column of scores; give ids of the rows, here "
                "and in transform"
            )

    def _refuse_cohort(self, scores: Array, ids: ArrayLike | None, precision: float) -> None:
        """Reject cohort rows: statistics must not come from the rows that they normalise."""
        if (ids is None) != (self.ids_ is None):
            had, has = ("ids", "none") if ids is None else ("no ids", "some")
            raise ValueError(
                f"the cohort was given {had}, but the rows to normalise have {has}; give ids for "
                "both or for neither"
            )
        if self.ids_ is not None and ids is not None:
            known = set(self.ids_.tolist())
            names = dict.fromkeys(_column("ids", ids, len(scores)).tolist())
            shared = [name for name in names if name in known]
            if shared:
                raise ValueError(
                    f"{len(shared)} ids are in the cohort too, such as {shared[0]!r}; the "
                    "cohort must not contain rows that are scored: remove them from one of the two"
                )
            return
        rows = _matches(self._rows, scores, max(precision, self._precision))
        if len(rows):
            raise ValueError(
                f"{len(rows)} rows have exactly the scores of a cohort row, such as row {rows[0]}; "
                "the cohort must not contain rows that are scored: remove them from one of the "
                "two, or give ids to both if they are different samples"
            )

    def _refuse_labels(self, y: ArrayLike | None, n_rows: int) -> None:
        if y is None or len(self.cohort_) == len(self.labels_):
            return
        own = _column("y", y, n_rows)
        shared = np.isin(own, self.labels_[self.cohort_])
        if shared.any():
            raise ValueError(
                f"{shared.sum()} rows have labels whose models are in the cohort, such as "
                f"{own[shared].tolist()[0]!r}; leave those rows out, or choose other models"
            )


class ZNorm(_CohortNorm):
    """Z-norm: normalise each model's scores by its scores for strangers.

    The result is ``(s - mean) / std``, with the mean and standard deviation of the scores that the
    same model gives to a cohort of rows [1]_. This brings the models of a bank to a common scale.

    Attributes
    ----------
    mean_, scale_ : arrays of shape (n_labels,)
        Mean and standard deviation of the cohort's scores for each model.
    labels_ : array of shape (n_labels,)
        Labels of the columns.

    See Also
    --------
    TNorm, SNorm, AdaptiveSNorm

    References
    ----------
    .. [1] R. Auckenthaler, M. Carey and H. Lloyd-Thomas, "Score normalization for text-independent
       speaker verification systems", Digital Signal Processing 10 (2000) 42-54.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from pcsda import VerifierBank
    >>> from pcsda.normalization import ZNorm
    >>> X, y = load_digits(return_X_y=True)
    >>> bank = VerifierBank().fit(X[:900], y[:900])
    >>> norm = ZNorm().fit(bank.log_likelihood_ratio(X[900:1300]), y[900:1300])
    >>> norm.transform(bank.log_likelihood_ratio(X[1300:])).shape
    (497, 10)
    """

    _of_rows = False


class TNorm(_CohortNorm):
    """T-norm: normalise each sample's scores by its scores for a cohort of models.

    The result is ``(s - mean) / std``, with the mean and standard deviation of the same sample's
    scores for the cohort's models, except the model in question [1]_. This brings samples, for
    example of different quality, to a common scale. `fit` only stores the columns of the cohort's
    models, and the identifiers or scores of the cohort rows, which `transform` rejects.

    Parameters
    ----------
    cohort : "others" or array-like of labels, default="others"
        Labels whose models form the cohort, for instance people enrolled only for this purpose;
        "others" uses all models of the bank.

    Attributes
    ----------
    labels_ : array of shape (n_labels,)
        Labels of the columns.
    cohort_ : array of shape (n_models,)
        Columns of the cohort's models.

    References
    ----------
    .. [1] R. Auckenthaler, M. Carey and H. Lloyd-Thomas, "Score normalization for text-independent
       speaker verification systems", Digital Signal Processing 10 (2000) 42-54.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from pcsda import VerifierBank
    >>> from pcsda.normalization import TNorm
    >>> X, y = load_digits(return_X_y=True)
    >>> bank = VerifierBank().fit(X[:900], y[:900])
    >>> norm = TNorm().fit(bank.log_likelihood_ratio(X[900:1300]), y[900:1300])
    >>> norm.transform(bank.log_likelihood_ratio(X[1300:])).shape
    (497, 10)
    """

    _of_models = False

    def __init__(self, cohort: str | ArrayLike = "others") -> None:
        self.cohort = cohort


class SNorm(_CohortNorm):
    """S-norm: the mean of Z-norm and T-norm.

    Scores are compared with a cohort of rows and with a cohort of models [1]_.

    Parameters
    ----------
    cohort : "others" or array-like of labels, default="others"
        Models for the T-norm, as in :class:`TNorm`; the rows for the Z-norm are passed to `fit`.

    Attributes
    ----------
    mean_, scale_ : arrays of shape (n_labels,)
        Mean and standard deviation of the cohort's scores for each model.
    labels_, cohort_
        As in :class:`TNorm`.

    References
    ----------
    .. [1] P. Kenny, "Bayesian speaker verification with heavy-tailed priors", Odyssey 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from pcsda import VerifierBank
    >>> from pcsda.normalization import SNorm
    >>> X, y = load_digits(return_X_y=True)
    >>> bank = VerifierBank().fit(X[:900], y[:900])
    >>> norm = SNorm().fit(bank.log_likelihood_ratio(X[900:1300]), y[900:1300])
    >>> norm.transform(bank.log_likelihood_ratio(X[1300:])).shape
    (497, 10)
    """

    def __init__(self, cohort: str | ArrayLike = "others") -> None:
        self.cohort = cohort


class AdaptiveSNorm(_CohortNorm):
    """Adaptive S-norm: S-norm using only the highest scores in each cohort.

    Each model is compared with the cohort rows that score highest for it, and each sample with the
    cohort models for which it scores highest. These are the strangers that are hardest to
    distinguish [1]_.

    Parameters
    ----------
    n_top : int, default=100
        Number of cohort rows, and of cohort models, to use; if there are fewer, all are used.
    cohort : "others" or array-like of labels, default="others"
        As in :class:`SNorm`.

    Attributes
    ----------
    mean_, scale_ : arrays of shape (n_labels,)
        Mean and standard deviation of the highest cohort scores for each model.
    labels_, cohort_
        As in :class:`TNorm`.

    References
    ----------
    .. [1] P. Matejka, O. Novotny, O. Plchot, L. Burget, M. Diez Sanchez and J. Cernocky, "Analysis
       of score normalization in multilingual speaker recognition", Interspeech 2017.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from pcsda import VerifierBank
    >>> from pcsda.normalization import AdaptiveSNorm
    >>> X, y = load_digits(return_X_y=True)
    >>> bank = VerifierBank().fit(X[:900], y[:900])
    >>> norm = AdaptiveSNorm(n_top=5).fit(bank.log_likelihood_ratio(X[900:1300]), y[900:1300])
    >>> norm.transform(bank.log_likelihood_ratio(X[1300:])).shape
    (497, 10)
    """

    def __init__(self, n_top: int = 100, cohort: str | ArrayLike = "others") -> None:
        self.n_top = n_top
        self.cohort = cohort


def _labels(labels: ArrayLike | None, n_columns: int) -> NDArray[Any]:
    if labels is None:
        return np.arange(n_columns)
    names: NDArray[Any] = column_or_1d(labels)
    if len(names) != n_columns or len(np.unique(names)) != n_columns:
        raise ValueError(
            f"labels must name each of the {n_columns} columns once, got {shorten(names.tolist())}"
        )
    return names


def _column(name: str, values: ArrayLike, n_rows: int) -> NDArray[Any]:
    column: NDArray[Any] = column_or_1d(values)
    if len(column) != n_rows:
        raise ValueError(f"{name} has {len(column)} entries but there are {n_rows} rows of scores")
    return column


def _without_each(ranked: Array) -> tuple[Array, Array]:
    """For each entry, return the mean and standard deviation of the other entries in its row.

    The statistics of the entries before and after it are merged. Subtracting an extreme entry from
    the statistics of the whole row would lose digits.
    """
    last = ranked.shape[1] - 1
    n_before = np.arange(last + 1)
    mean_before, squares_before = _running(ranked)
    mean_behind, squares_behind = (part[:, ::-1] for part in _running(ranked[:, ::-1]))
    apart = mean_behind - mean_before
    means = mean_before + apart * (last - n_before) / last
    squares = squares_before + squares_behind + apart**2 * n_before * (last - n_before) / last
    return means, np.sqrt(squares / last)


def _running(values: Array) -> tuple[Array, Array]:
    """Return the mean and the sum of squared deviations of the values before each column.

    Each row is treated separately, with Welford's algorithm.
    """
    means, squares = np.zeros(values.shape), np.zeros(values.shape)
    for place in range(1, values.shape[1]):
        step = values[:, place - 1] - means[:, place - 1]
        means[:, place] = means[:, place - 1] + step / place
        squares[:, place] = squares[:, place - 1] + step * (values[:, place - 1] - means[:, place])
    return means, squares


def _keys(scores: Array) -> Array:
    """Return a weighted sum of the scores in each row, by which rows are sorted and searched.

    Nearly equal rows have nearly equal sums, and different rows rarely have the same sum.
    """
    turn = np.random.default_rng(0).uniform(0.5, 1.5, scores.shape[1])
    with np.errstate(over="ignore"):
        return np.asarray(scores @ turn)


def _matches(rows: Array, scores: Array, precision: float) -> Ints:
    """Return the positions in `scores` of rows that also occur in `rows`, up to rounding.

    `rows` must be sorted by key. `precision` is the relative tolerance.
    """
    known, wanted = _keys(rows), _keys(scores)
    reach = precision * np.abs(scores).max(axis=1)
    width = 2 * reach * scores.shape[1]
    first = np.searchsorted(known, wanted - width)
    last = np.searchsorted(known, wanted + width, side="right")
    found = [
        row
        for row in np.flatnonzero(first < last)
        if np.any(np.all(np.abs(rows[first[row] : last[row]] - scores[row]) <= reach[row], axis=1))
    ]
    return np.array(found, dtype=np.intp)

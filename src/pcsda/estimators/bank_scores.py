"""Scoring with a fitted bank: ratios, probabilities, names, thresholds and explanations."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import cached_property
from numbers import Real
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from .. import validation
from ..core.explanation import Explanation
from ..core.linalg import Array, Floats, Ints
from ..core.threshold import Threshold
from ..core.warning import warn
from ..targets import refuse_label, shown
from ..unwrap import asked
from ..validation import MatrixLike, validated
from .changes import BankRows, KnownRowError, listed
from .closed_set import chances, identities, second_of_two
from .doors import warn_of_misses
from .kindred_labels import KindredLabels
from .labels import LabelModels
from .naming import add_examples
from .pooled_labels import PooledLabels
from .ratios import narrowed, sets_of
from .separate import SeparateLabels
from .threads import reads

Labels = PooledLabels | KindredLabels | SeparateLabels
# Share of strangers that the threshold chosen by `fit` accepts.
USUAL_RATE = 0.01


class BankScores:
    """Methods of `VerifierBank` that score rows and change no label.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    threshold_ : Threshold
    """

    classes_: NDArray[Any]
    _labels_: Labels
    _rows: BankRows
    _rate: float | None

    @property
    def models_(self) -> Mapping[Any, Any]:
        """The fitted estimator for each label."""
        if "_labels_" not in self.__dict__:
            raise AttributeError("models_ exists only after fit")
        names, fitted = self.classes_.tolist(), self._labels_
        if isinstance(fitted, SeparateLabels):
            return MappingProxyType(dict(zip(names, fitted.models, strict=True)))
        if fitted.built is None or fitted.built.rows is not self._rows:
            fitted.built = LabelModels(names, self._rows, fitted.build)
        return fitted.built

    @cached_property
    def threshold_(self) -> Threshold:
        """The threshold used by `identify`, chosen when it is first needed."""
        check_is_fitted(self)
        door = self._labels_.door
        if not len(door.best):
            raise AttributeError("the bank has no threshold; call choose_threshold")
        rate = getattr(self, "_rate", None)
        if rate is not None:  # the user asked for it
            return door.choose(rate, len(self.classes_), quiet=True)
        return door.choose(USUAL_RATE, len(self.classes_), quiet=True, up_to_zero=True)

    def _checked(self, X: MatrixLike) -> Floats:
        check_is_fitted(self)
        if (ready := validation.ready_rows(self, X)) is not None:
            return ready
        rows: Floats = validated(self, X, reset=False, dtype=[np.float64, np.float32])
        return rows

    def _scores(
        self, X: MatrixLike, trials: ArrayLike | None = None
    ) -> tuple[Floats, np.dtype[np.floating]]:
        """Return log-likelihood ratios, shape (n, n_classes), and the dtype of X."""
        X = self._checked(X)
        fitted = self._labels_
        if isinstance(fitted, SeparateLabels):
            return fitted.scores(X, trials), X.dtype
        if trials is None:
            return fitted.scores(X), X.dtype
        models = self.models_.values()
        columns = [asked(model, "log_likelihood_ratio", X, trials) for model in models]
        return np.column_stack(columns).astype(np.float64), X.dtype

    @reads
    def log_likelihood_ratio(self, X: MatrixLike, trials: ArrayLike | None = None) -> Floats:
        """Return the log-likelihood ratio of each row or trial for each label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        trials : array-like of shape (n_samples,), default=None
            Trial of each row, as in :meth:`PCSDA.log_likelihood_ratio`. The result then has one row
            per trial, in the order of ``np.unique(trials)``.

        Returns
        -------
        array of shape (n_samples, n_classes) or (n_trials, n_classes)
        """
        return narrowed(*self._scores(X, trials))

    def _odds(self, X: MatrixLike) -> tuple[Array, np.dtype[np.floating]]:
        scores, dtype = self._scores(X)
        priors = self._labels_.priors()
        odds = np.log(priors[:, 1] / priors[:, 0])
        return odds + scores, dtype

    @reads
    def decision_function(self, X: MatrixLike) -> Floats:
        """Return, for each label, the log posterior ratio of belonging to it rather than not.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_classes)
            With two labels, the shape is (n_samples,) and the values are for ``classes_[1]``, as
            in scikit-learn.
        """
        odds, dtype = self._odds(X)
        return narrowed(second_of_two(odds), dtype)

    @reads
    def predict_proba(self, X: MatrixLike) -> Floats:
        """Return the probability of each label, assuming that every row belongs to some label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, n_classes)
        """
        odds, dtype = self._odds(X)
        return chances(odds).astype(dtype, copy=False)

    @reads
    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Return the label with the largest posterior ratio for each row. No row is rejected.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)
        """
        odds, _ = self._odds(X)
        labels: NDArray[Any] = self.classes_[odds.argmax(axis=1)]
        return labels

    def choose_threshold(
        self, max_false_alarms: float = USUAL_RATE, strangers: MatrixLike | None = None
    ) -> Threshold:
        """Choose and store the smallest log-likelihood ratio at which `identify` names a row.

        Parameters
        ----------
        max_false_alarms : float, default=0.01
            Largest share of strangers to whom `identify` may give a label.
        strangers : array-like of shape (n_strangers, n_features), optional
            Rows of strangers, which belong neither to a label nor to the background. Without them,
            each label of the bank serves as a stranger: its rows are left out of all models, and
            their best score among the other labels is taken as a stranger's score.

        Returns
        -------
        Threshold
            Its `misses` is the share of left-out rows that their own label rejects.

        Notes
        -----
        If the bank's clusters have fewer than 50 rows or 10 labels on average, labels are left out
        in folds, and each fold is clustered anew. Otherwise labels are left out one by one, in
        closed form. Labels that are calibrated separately are always left out in folds. This
        happens when a threshold is first needed, and takes a few times as long as the fit. The best
        of many scores is higher than the best of few, so the threshold changes when labels are
        added or removed.

        If labels and strangers lie far apart, a threshold for a rate is far below 0, where it also
        accepts noise. So a threshold that `fit` chooses is raised to 0, or as far as at most 0.1%
        of left-out rows are expected to be missed; it then accepts fewer strangers than 1%.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from pcsda import VerifierBank
        >>> X, y = load_digits(return_X_y=True)
        >>> bank = VerifierBank().fit(X[y < 8], y[y < 8])
        >>> threshold = bank.choose_threshold(max_false_alarms=0.05)
        >>> bank.identify(X[y < 8], unknown=-1).shape == y[y < 8].shape
        True
        """
        check_is_fitted(self)
        fitted = self._labels_
        if strangers is not None:
            with validation.named("strangers"):
                rows = self._checked(strangers)
            self._refuse_known(rows, "strangers")
            best = self._scores(strangers)[0].max(axis=1)
            self.threshold_, self._rate = fitted.door.of_strangers(best, max_false_alarms), None
        elif len(fitted.door.best):
            self.threshold_ = fitted.door.choose(max_false_alarms, len(self.classes_))
            self._rate = max_false_alarms
        else:
            reason, remedy = self._doorless()
            raise ValueError(f"the bank cannot choose a threshold: {reason}. {remedy}")
        return self.threshold_

    def _doorless(self) -> tuple[str, str]:
        """Return why no label could serve as a stranger, and what the user can do about it."""
        if len(self.classes_) == 2 and np.all(self._rows.labels >= 0):
            return (
                "with 2 labels and no background, nothing is left to compare the second label "
                "with once the first serves as a stranger",
                "Call choose_threshold with rows of strangers, enroll a third label and call "
                "refresh, or fit with background=",
            )
        return (
            "its labels were not scored as strangers, because the model file is older than this "
            "feature or the labels cannot be fitted without some of them",
            "Call refresh, or call choose_threshold with rows of strangers",
        )

    def identify(
        self,
        X: MatrixLike,
        threshold: float | None = None,
        unknown: object = None,
        *,
        trials: ArrayLike | None = None,
    ) -> NDArray[Any]:
        """Return the label with the largest log-likelihood ratio, or `unknown` below `threshold`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        threshold : float, optional
            Smallest log-likelihood ratio at which a row gets a label. None means the value of
            `threshold_`; if the bank has no threshold, it means 0, with a warning. See
            :meth:`choose_threshold`.
        unknown : object, default=None
            Value for rows that no label accepts. It must not be a label of the bank.
        trials : array-like of shape (n_samples,), default=None
            Trial of each row. The result then has one label per trial, in the order of
            ``np.unique(trials)``.

        Returns
        -------
        array of shape (n_samples,) or (n_trials,)
            Its dtype is that of the labels if `unknown` fits it, otherwise object.
        """
        if threshold is None:
            # Choose it on this object, because `_identified` works on a snapshot.
            getattr(self, "threshold_", None)
        return self._identified(X, threshold, unknown, trials)

    @reads
    def _identified(
        self, X: MatrixLike, threshold: float | None, unknown: object, trials: ArrayLike | None
    ) -> NDArray[Any]:
        scores, _ = self._scores(X, trials)
        refuse_label("unknown", unknown, self.classes_)
        if threshold is None:
            threshold = self._usual_threshold()
        elif isinstance(threshold, bool) or not isinstance(threshold, Real) or np.isnan(threshold):
            raise ValueError(
                f"threshold={threshold!r} must be a log-likelihood ratio, such as the `value` of "
                "what choose_threshold returns, or None for the bank's own"
            )
        best = scores.argmax(axis=1)
        known = scores[np.arange(len(best)), best] >= threshold
        return identities(self.classes_[best], known, unknown)

    def _usual_threshold(self) -> float:
        """Return the value of `threshold_`, or 0 with a warning if the bank has no threshold."""
        if hasattr(self, "threshold_"):
            warn_of_misses(self.threshold_)
            return self.threshold_.value
        reason, remedy = self._doorless()
        warn(
            "identify uses a threshold of 0, at which most strangers may be given a label, because "
            f"the bank cannot choose one: {reason}. {remedy}, or give threshold="
        )
        return 0.0

    @reads
    def verify(
        self, X: MatrixLike, claimed: ArrayLike, *, trials: ArrayLike | None = None
    ) -> Floats:
        """Return the log-likelihood ratio of each row or trial for the label it claims.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        claimed : label or array-like of shape (n_samples,)
            The claimed label: one for all rows, or one per row. The rows should be new, because a
            label accepts its own training rows.
        trials : array-like of shape (n_samples,), default=None
            Trial of each row. All rows of a trial must claim the same label. The result then has
            one value per trial, in the order of ``np.unique(trials)``.

        Returns
        -------
        array of shape (n_samples,) or (n_trials,)
        """
        X = self._checked(X)
        claims = np.asarray(claimed)
        if claims.shape not in ((), (len(X),)):
            raise ValueError(
                f"claimed has shape {claims.shape} but must be one label, or one for each of the "
                f"{len(X)} rows of X"
            )
        names = np.broadcast_to(claims, (len(X),)).tolist()
        sets, n_sets = (np.arange(len(X)), len(X)) if trials is None else sets_of(trials, len(X))
        claim_of: dict[int, Any] = {}
        for number, name in zip(sets.tolist(), names, strict=True):
            if claim_of.setdefault(number, name) != name:
                raise ValueError(
                    f"trial {np.unique(np.asarray(trials)).tolist()[number]!r} claims both "
                    f"{claim_of[number]!r} and {name!r}; a trial has one claim"
                )
        result = np.empty(n_sets, dtype=X.dtype)
        for label in dict.fromkeys(names):
            rows = np.array([row for row, name in enumerate(names) if name == label])
            # Trials are numbered in their sorted order, so the values come back in that order.
            found = None if trials is None else sets[rows]
            result[np.unique(sets[rows])] = self._claims(X[rows], label, found)
        return result

    @reads
    def explain(self, X: MatrixLike, label: object = None) -> Explanation:
        """Explain the log-likelihood ratio of rows for `label`; see :meth:`PCSDA.explain`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        label : object
            One of `classes_`. It must be given.

        Returns
        -------
        Explanation
        """
        X = self._checked(X)
        if label is None:
            raise ValueError(
                "explain needs label=, one of classes_: each label has its own subspace. For the "
                "best label of row i, call explain(X[[i]], predict(X[[i]])[0])"
            )
        explanation: Explanation = asked(self.named_model(label), "explain", X)
        names = getattr(self, "feature_names_in_", None)
        if names is None or explanation.columns is None:
            return explanation
        return replace(explanation, names=tuple(map(str, names)))

    @reads
    def named_model(self, label: object) -> Any:
        """Return the estimator for one label, with examples of its subclasses if rows have names.

        Parameters
        ----------
        label : object
            One of `classes_`.

        Returns
        -------
        estimator
            The estimator in `models_`. After `name_rows`, it also has `subclass_examples_`: the
            names of the rows nearest to the centre of each subclass.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from pcsda import PCSDA, VerifierBank
        >>> X, y = load_digits(return_X_y=True)
        >>> bank = VerifierBank(PCSDA(random_state=0)).fit(X[:900], y[:900])
        >>> model = bank.name_rows([f"scan {i}" for i in range(900)]).named_model(3)
        >>> model.subclass_names_[0], model.subclass_examples_[0]
        ('mostly 2', ['scan 573', 'scan 566', 'scan 567'])
        """
        model = self._model(label)
        add_examples(model, self._rows.X, self._rows.ids)
        return model

    @reads
    def rank(self, X: MatrixLike, label: object, by: str | None = None) -> Ints:
        """Order rows by how well they fit `label`; see :meth:`PCSDA.rank`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        label : object
            One of `classes_`.
        by : {"likelihood", "distance"} or None, default=None

        Returns
        -------
        array of shape (n_samples,)
            Row numbers, best first.
        """
        X = self._checked(X)
        order: Ints = asked(self._model(label), "rank", X, by)
        return order

    def _claims(self, X: Floats, label: object, trials: Ints | None) -> Floats:
        """Return the log-likelihood ratios of rows or trials for one label."""
        fitted = self._labels_
        if trials is None and isinstance(fitted, KindredLabels):  # needs no estimator
            return fitted.scores(X, self._place(self._known(label)))[:, 0]
        ratios: Floats = asked(self._model(label), "log_likelihood_ratio", X, trials)
        return ratios

    def _model(self, label: object) -> Any:
        return self.models_[self._known(label)]

    def _known(self, label: object) -> Any:
        """Return the label, or raise a ValueError if the bank does not have it."""
        if not isinstance(label, Hashable) or label not in self.models_:
            raise ValueError(
                f"label {shown(label)} is not in the bank; enroll it first, or use one of "
                f"{listed(self.classes_)}"
            )
        return label

    def _place(self, label: object) -> int:
        return int(np.flatnonzero(self.classes_ == label)[0])

    def _refuse_known(self, X: Floats, name: str = "X") -> None:
        """Raise a KnownRowError if the bank already contains a row of X.

        The message refers to X as `name`.
        """
        found = self._rows.find(X)
        if found is not None:
            owner = self._rows.labels[found[1]]
            whose = "the background"
            if owner >= 0:
                whose = f"label {self.classes_.tolist()[owner]!r}"
            raise KnownRowError(
                found[0],
                name,
                f"is already in the bank, as a row of {whose}; a row belongs to one label or to "
                "the background, so leave it out, or remove that label first",
            )

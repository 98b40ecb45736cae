"""A class-specific model for each label, all sharing one factorisation."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import validation
from ..core.copies import silent_on_copies, warn_of_copies
from ..core.linalg import Floats, Ints, Mask, SingularMatrixError
from ..core.many import BACKGROUND
from ..core.scatter import group_means
from ..documented import documented
from ..partition import nearest
from ..validation import MatrixLike
from .bank_scores import USUAL_RATE, BankScores, Labels
from .callbacks import CallbackSupportMixin, calls_back
from .changes import (
    BankRows,
    Change,
    Settings,
    alone,
    check_background,
    check_kind,
    check_template,
    numbered_labels,
    warn_of_shared_rows,
)
from .doors import Door
from .kindred_labels import KindredLabels, are_kindred
from .labels import LabelModels
from .linear import PCSDA
from .naming import name_in_bank
from .pooled_labels import PooledLabels, can_pool
from .separate import SeparateLabels
from .shared import cluster_rows, given_clusters
from .steps import auto_ridge, draw_seed
from .threads import updates


@documented
class VerifierBank(CallbackSupportMixin, BankScores, ClassifierMixin, BaseEstimator):
    """A verifier for each label, all fitted from one factorisation of the data.

    Parameters
    ----------
    estimator : PCSDA, KernelPCSDA or any class-specific estimator, default=None
        The model for each label; None means ``PCSDA()``. PCSDA and KernelPCSDA with their default
        solver share one factorisation. So does PCSDACV around one of these, with bandwidths other
        than "positive". Any other estimator is fitted separately for each label, in parallel.
        If it has `contamination`, background rows may be hidden rows of a label: each label is
        then fitted separately and takes the background as unchecked.
        With pooled calibration, ``gamma="positive"``, the default of KernelPCSDA, means "all":
        labels share one bandwidth. With ``calibration="per-label"``, each label has its own.
    subclasses : {"shared", "per-class"}, default="shared"
        Use one clustering of all rows, from which each label removes its own rows, or a separate
        k-means for each label, started from the shared clustering. With pooled calibration, ten or
        more labels with few rows each need no clusters: they share two covariances (see the notes).
        Set the estimator's `n_subclasses` to a number to use k-means there too.
        PCSDACV, which chooses K for each label, has one shared clustering per K, or separate
        clusters if it needs folds or cannot share.
    calibration : {"pooled", "per-label"}, default="pooled"
        Estimate one shrinkage, one pair of tails and one calibration from the left-out scores of
        all labels, or separate ones for each label from its own scores. Labels with many rows
        depart from the common calibration as far as their rows support it. Labels are calibrated
        separately if rows cannot be left out in closed form: with estimators other than PCSDA and
        KernelPCSDA, with ``subclasses="per-class"``, with the published rule's settings, and in a
        bank of two labels without background.
    n_jobs : int or None, default=None
        Number of parallel jobs, as in joblib, if models are fitted separately. The result does not
        depend on it.
    verbose : bool, default=False
        Draw a progress bar on a terminal.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    models_ : mapping
        The fitted estimator for each label; its positive class is True. Read-only; if labels
        share one calibration, estimators are built on request.
    threshold_ : Threshold
        The threshold used by `identify`: set by `choose_threshold`, or by default one that accepts
        1 % of strangers, chosen when it is first needed. Absent if no label can be left out as a
        stranger, as with two labels and no background, and no strangers were given.
    clusters_ : array of shape (n_samples,)
        Shared cluster of each training row; background rows come last.
    centroids_ : array of shape (n_clusters, n_features)
        Cluster means; enrolled rows join the cluster with the nearest mean.
    ridge_ : float
        The absolute ridge, which stays the same when rows are added or removed.
    unit_length_ : bool
        Whether the bank divides rows by their Euclidean length, which stays the same, too (see the
        notes). The estimators in `models_` are then pipelines that begin with Normalizer.

    Notes
    -----
    Banks of ten or more labels share two covariances, one within labels and one between labels
    (two-covariance PLDA), if the median label has up to 50 rows, or with more than 100 labels
    whatever their size. The axes are the same as in PCSDA with the labels as subclasses. A row is
    compared under two predictive distributions: one for the label, whose mean is shrunk more
    strongly toward the centre of all labels the fewer rows it has, and one for a stranger. This
    requires the default values of `subclasses`, `n_subclasses`, `n_components`, `negatives` and
    `shrinkage`, and no groups. In this case, ``regularization="auto"`` is Ledoit and Wolf's
    shrinkage, or 0.1, 0.3 or 3 times that value, whichever separates left-out rows from strangers
    best. The bank also divides each row by its length (`unit_length_`) if this separates them
    clearly better: by more than 0.03 nat in the losses of two logistic functions of the score, one
    against the best scores of strangers and one against their scores for random labels. Up to 300
    labels decide. A kernel bank does so unless its `gamma` is a number or its `kernel` a function,
    which are meant for rows as they are. Each background row counts as a separate label with one
    row. If most labels have one row and fewer than ten have more, the rows do not determine the
    within-label covariance. It is assumed to be the square root of the total covariance, with 30 %
    of the variance; ratios are calibrated on simulated rows, and models have no left-out scores.
    Rows are then divided by their length if this makes the tails of their distribution lighter:
    if the reciprocal of the degrees of freedom falls by more than 0.02.

    `enroll`, `update`, `reject`, `remove` and `refresh` need no earlier data from you: the bank
    keeps its training rows. They refit the affected label at once; `refresh` refits the others and
    the common calibration. If labels share covariances, all labels are updated at once: the sums
    behind the covariances are updated in closed form, and the next query solves for the models.
    Banks with clusters update their factorisation, which costs ``D^2`` per row. Kernel banks, and
    linear ones with more features than rows, factorise again. So do all banks after unpickling,
    because pickles do not contain the factorisation.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from pcsda import VerifierBank
    >>> X, y = load_digits(return_X_y=True)
    >>> bank = VerifierBank().fit(X[:900], y[:900])
    >>> bank.log_likelihood_ratio(X[900:903]).shape
    (3, 10)
    """

    def __init__(
        self,
        estimator: BaseEstimator | None = None,
        *,
        subclasses: str = "shared",
        calibration: str = "pooled",
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.subclasses = subclasses
        self.calibration = calibration
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __getstate__(self) -> dict[str, Any]:
        # A dict would not survive in a model file: JSON turns its keys into strings.
        # The factorisation is large and can be recomputed.
        state = dict(super().__getstate__())
        if "_labels_" in state:
            if hasattr(self, "threshold_"):
                state["threshold_"] = self.threshold_
            rows = state.pop("_rows")
            state |= {"_X": rows.X, "_labels": rows.labels, "_keys": rows.keys}
            state |= {"_together": rows.together, "_ids": rows.ids}
            fitted = state.pop("_labels_")
            if isinstance(fitted, PooledLabels):
                state["_pooled"] = fitted.state()
            elif isinstance(fitted, KindredLabels):
                state["_kindred"] = fitted.state()
                same = fitted.support is None or fitted.support is rows.X
                state["_support"] = None if same else fitted.support
            else:
                state |= {"models_": list(fitted.models), "_door": dict(vars(fitted.door))}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        state.setdefault("calibration", "per-label")  # the only choice in version 0.1.0
        pooled, models = state.pop("_pooled", None), state.pop("models_", None)
        kindred, support = state.pop("_kindred", None), state.pop("_support", None)
        door = state.pop("_door", None)  # absent in earlier versions
        fitted = pooled is not None or models is not None or kindred is not None
        if fitted:
            for name in ("_source", "_factor", "_matrix"):  # stored by earlier versions
                state.pop(name, None)
            X, labels = state.pop("_X"), state.pop("_labels")
            together, ids = state.pop("_together", None), state.pop("_ids", None)
            state.setdefault("unit_length_", False)  # absent in earlier versions
            keys = state.pop("_keys", None)
            keys = np.random.default_rng(state["_seed"]).random(len(X)) if keys is None else keys
            state["_rows"] = BankRows(X, labels, state["clusters_"], keys, together, ids)
        super().__setstate__(state)
        if not fitted:
            return
        kernel = getattr(self, "kernel_", None)
        if pooled is not None:
            of_state = PooledLabels.of_state(pooled, self._settings, self._rows, kernel)
            self._labels_: Labels = of_state
        elif kindred is not None:
            if kernel is not None and support is None:
                support = self._rows.X
            held = self._settings, kindred, kernel, support
            self._labels_ = KindredLabels(*held, unit=self.unit_length_)
        else:
            known = self._settings, self._rows, getattr(self, "ridge_", None), kernel
            self._labels_ = SeparateLabels(*known, models)
            self._labels_.door = Door.empty() if door is None else Door.of(door)

    @calls_back
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        background: Any = None,
        subclass_labels: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit a model for each label in y.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            At least two labels.
        background : array-like of shape (n_background, n_features), optional
            Rows without a label, which serve as negatives for all labels.
        subclass_labels : array-like of shape (n_samples,), optional
            Shared clusters of all rows; by default the labels, or clusters found by k-means (see
            `subclasses`). Background rows join the nearest cluster.
        groups : array-like of shape (n_samples,), optional
            Rows in the same group, such as frames from one recording, are left out together. Rows
            added in one later call form their own group; so does each background row.

        Returns
        -------
        self : VerifierBank
        """
        validation.check_option("subclasses", self.subclasses, ("shared", "per-class"))
        validation.check_option("calibration", self.calibration, ("pooled", "per-label"))
        validation.refuse_dask(X, y)
        for name in (
            "ridge_",
            "kernel_",
            "regularization_",
            "unit_length_",
            "threshold_",
            "_rate",
            "_gamma",
            "_kindred_",
        ):
            self.__dict__.pop(name, None)
        # Later enrolments and kernel models need the rows, so the bank keeps a copy.
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], copy=True)
        classes, labels = numbered_labels(np.asarray(y))
        with warnings.catch_warnings():
            # Labels with one row each are no sign of a regression here.
            warnings.filterwarnings("ignore", message="The number of unique classes")
            check_classification_targets(y)
        self.classes_ = classes
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class only, {self.classes_.tolist()}; a bank needs at least two labels"
            )
        template = self._template
        check_template(template, groups, background)
        self._seed = draw_seed(getattr(template, "random_state", None))
        self._given = subclass_labels is not None
        if isinstance(getattr(template, "regularization", None), str):
            self.regularization_ = self._auto_ridge(labels)
        self._set_rows(self._collected(X, labels, background, subclass_labels, groups))
        with silent_on_copies():
            self._fit_labels()
        warn_of_shared_rows(X, labels, classes)
        if groups is None:
            warn_of_copies(X)
        return self

    def _collected(
        self,
        X: Floats,
        labels: Ints,
        background: MatrixLike | None,
        subclass_labels: ArrayLike | None,
        groups: ArrayLike | None,
    ) -> BankRows:
        """Collect the labelled and background rows, together with their clusters."""
        together = validation.check_groups(groups, len(X))
        rows, clusters = X, None
        if subclass_labels is not None:
            clusters = given_clusters(subclass_labels, len(X))
        if background is not None:
            kinds: Any = {"reset": False, "dtype": X.dtype, "ensure_min_samples": 0}
            others = validate_data(self, background, **kinds)
            check_background(X, others)
            rows = np.concatenate([X, others])
            labels = np.append(labels, np.full(len(others), BACKGROUND))
            if clusters is not None:
                sizes = np.bincount(clusters).astype(np.float64)
                near = nearest(others, group_means(X, clusters, sizes, None))
                clusters = np.append(clusters, near)
            if together is not None:
                together = np.append(together, together.max() + 1 + np.arange(len(others)))
        self._share_bandwidth(rows, labels)
        if clusters is None and self.calibration == "pooled" and together is None:
            self._kindred_ = are_kindred(self._settings, X, labels[: len(X)])
            clusters = alone(labels) if self._kindred_ else None
        if clusters is None:
            clusters = cluster_rows(self._template, rows, None, self._seed)
        keys = np.random.default_rng(self._seed).random(len(rows))
        return BankRows(rows, labels, clusters, keys, together)

    def _share_bandwidth(self, rows: Floats, labels: Ints) -> None:
        """Use one bandwidth if only separate ones keep the labels from sharing a calibration."""
        template = self._template
        if self.calibration == "pooled" and getattr(template, "gamma", None) == "positive":
            common = replace(self._settings, template=clone(template).set_params(gamma="all"))
            if can_pool(common, BankRows(rows, labels, labels, np.zeros(len(rows)), None)):
                self._gamma = "all"

    @property
    def _template(self) -> Any:
        template = PCSDA() if self.estimator is None else self.estimator
        names = {"regularization": "regularization_", "gamma": "_gamma"}
        found = {name: getattr(self, own) for name, own in names.items() if hasattr(self, own)}
        return clone(template).set_params(**found) if found else template

    @property
    def _settings(self) -> Settings:
        own = self.subclasses == "per-class"
        fixed = self._template, self._seed, self._given, own
        given = getattr(self.estimator, "regularization", "auto")
        return Settings(*fixed, self.n_jobs, bool(self.verbose), isinstance(given, str))

    def _fit_labels(self) -> None:
        """Fit all labels to the current rows, keeping the ridge and kernel if already known."""
        settings = self._settings
        known = getattr(self, "ridge_", None), getattr(self, "kernel_", None)
        unit = getattr(self, "unit_length_", None)
        found: Labels | None = None
        if getattr(self, "_kindred_", False):
            try:
                found = KindredLabels.fit(settings, self._rows, *known, unit)
            except SingularMatrixError:  # the rows do not determine both covariances
                self._take_clusters()
                self._fit_labels()
                return
        elif self.calibration == "pooled" and can_pool(settings, self._rows):
            try:
                found = PooledLabels.fit(settings, self._rows, *known)
            except SingularMatrixError:  # the shared rows do not determine a label
                found = None
        if found is None:
            found = SeparateLabels(settings, self._rows, *known)
            found.models = found.fit(range(len(self.classes_)))
        self._keep(found)
        if isinstance(found, KindredLabels) and settings.auto_ridge:
            self.regularization_ = found.regularization
        self._forget_threshold()

    def _take_clusters(self) -> None:
        """Switch from shared covariances to a clustering of all rows."""
        self._kindred_ = False
        for name in ("ridge_", "kernel_"):
            self.__dict__.pop(name, None)
        if hasattr(self, "regularization_"):
            self.regularization_ = self._auto_ridge(self._rows.labels)
        clusters = cluster_rows(self._template, self._rows.X, None, self._seed)
        self._set_rows(replace(self._rows, clusters=clusters))

    def _set_rows(self, rows: BankRows) -> None:
        """Store the rows and compute their cluster means."""
        self._rows, self.clusters_ = rows, rows.clusters
        sizes = np.bincount(rows.clusters).astype(np.float64)
        self.centroids_ = group_means(rows.X, rows.clusters, sizes, None)

    def _auto_ridge(self, labels: Ints) -> float:
        """Return one ridge for all labels, so that they can share one factorisation."""
        median = float(np.median(np.bincount(labels[labels >= 0])))
        template = PCSDA() if self.estimator is None else self.estimator
        return auto_ridge(template, median)

    def _keep(self, found: Labels) -> None:
        self._labels_ = found
        self._name_separate()
        self.unit_length_ = isinstance(found, KindredLabels) and found.unit
        if found.ridge is not None:
            self.ridge_ = found.ridge
        if found.kernel is not None:
            self.kernel_ = found.kernel

    def _name_separate(self) -> None:
        """Name the subclasses of stored models; others are named when they are built."""
        if isinstance(self._labels_, SeparateLabels):
            for model in self._labels_.models:
                name_in_bank(model, self._rows.labels, self.classes_.tolist())

    def _forget_threshold(self) -> None:
        """Choose the threshold again when it is next needed, unless given strangers chose it."""
        if getattr(self, "_rate", USUAL_RATE) is not None:
            self.__dict__.pop("threshold_", None)

    def name_rows(self, ids: ArrayLike) -> Self:
        """Name the training rows, so that explanations name examples of the nearest subclass.

        Without names, a subclass is only described by its most frequent label, such as "mostly 8".

        Parameters
        ----------
        ids : array-like of shape (n_samples,)
            Names of the rows given to `fit`, then of its background rows, then of any rows added
            since. Rows added later are named by their numbers.

        Returns
        -------
        self : VerifierBank
            Fitting again discards the names.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from pcsda import VerifierBank
        >>> X, y = load_digits(return_X_y=True)
        >>> bank = VerifierBank().fit(X[:900], y[:900])
        >>> bank.name_rows([f"scan {i}" for i in range(900)]).explain(X[900:901], 3).subclass_of()
        'subclass 5 (mostly 4, examples scan 367, scan 450 and scan 483, n = 78)'
        """
        check_is_fitted(self)
        names = column_or_1d(ids).astype(str)
        if len(names) != len(self._rows.X):
            raise ValueError(
                f"ids has {len(names)} names but the bank has {len(self._rows.X)} rows; give one "
                "for each row given to fit, each background row and each row added later"
            )
        self._rows = replace(self._rows, ids=names)
        return self

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

    @updates
    def enroll(self, X: Any, label: Any) -> Self:
        """Add a new label with its rows; the class notes say what happens to the other labels.

        The new model equals a separate fit to all rows with the bank's ridge and clusters; new rows
        join the cluster with the nearest centroid.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        label : object
            A label that is not yet in the bank.

        Returns
        -------
        self : VerifierBank

        Warns
        -----
        UserWarning
            If X has a single row; the message gives the label's expected error rate.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from pcsda import VerifierBank
        >>> X, y = load_digits(return_X_y=True)
        >>> bank = VerifierBank().fit(X[y < 8], y[y < 8])
        >>> bank.enroll(X[y == 8], 8).predict(X[y == 8][:3])
        array([8, 8, 8])
        """
        check_is_fitted(self)
        if label in self.models_:
            raise ValueError(
                f"the bank already has a label {label!r}; remove it first to enroll it again, or "
                "add rows to it with update"
            )
        self._add(X, label, np.unique(check_kind(self.classes_, label)))
        return self

    @updates
    def update(self, X: Any, label: Any) -> Self:
        """Add rows to a label and refit it; the class notes say what happens to the other labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        label : object
            One of `classes_`.

        Returns
        -------
        self : VerifierBank

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from pcsda import VerifierBank
        >>> X, y = load_digits(return_X_y=True)
        >>> bank = VerifierBank().fit(X[:900], y[:900])
        >>> bank.update(X[900:][y[900:] == 3], 3).score(X, y) > 0.9
        True
        """
        check_is_fitted(self)
        self._add(X, self._known(label), self.classes_)
        return self

    @updates
    def reject(self, X: Any, label: Any) -> Self:
        """Add rows to the background because they do not belong to `label`.

        The label is refitted at once; the class notes say what happens to the other labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows that belong to no known label.
        label : object
            One of `classes_`.

        Returns
        -------
        self : VerifierBank

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from pcsda import VerifierBank
        >>> X, y = load_digits(return_X_y=True)
        >>> bank = VerifierBank().fit(X[y < 8], y[y < 8])
        >>> before = bank.verify(X[y == 9], 3).mean()
        >>> bool(bank.reject(X[y == 9][:20], 3).verify(X[y == 9], 3).mean() < before)
        True
        """
        check_is_fitted(self)
        validation.refuse_contamination(
            self._template,
            "rejected rows would join the background, whose rows are unchecked",
            "fit the bank again without them",
        )
        self._add(X, self._known(label), self.classes_, belongs=False)
        return self

    @updates
    def remove(self, label: object) -> Self:
        """Remove a label and its rows; the class notes say what happens to the other labels.

        Parameters
        ----------
        label : object
            One of `classes_`.

        Returns
        -------
        self : VerifierBank
        """
        check_is_fitted(self)
        self._known(label)
        if len(self.classes_) == 2:
            raise ValueError("a bank needs at least two labels; this would leave one")
        place = self._place(label)
        kept: Mask = self._rows.labels != place
        classes = np.delete(self.classes_, place)
        before, places = self._renumbered(classes)
        self._change(Change(before, before.kept(kept), classes, places, kept))
        return self

    @updates
    def refresh(self) -> Self:
        """Refit all models and their common calibration to the current rows.

        The rows are factorised from scratch, which also removes rounding errors accumulated over
        many updates. A threshold chosen from the bank's own labels is chosen again for the same
        rate.

        Returns
        -------
        self : VerifierBank
        """
        check_is_fitted(self)
        if getattr(self, "_kindred_", False):
            self._set_rows(replace(self._rows, clusters=alone(self._rows.labels)))
        self._fit_labels()
        return self

    def _renumbered(self, classes: NDArray[Any]) -> tuple[BankRows, list[int | None]]:
        """Renumber the rows for new labels; also return the previous number of each new label."""
        old = {label: place for place, label in enumerate(self.classes_.tolist())}
        new = {label: place for place, label in enumerate(classes.tolist())}
        unused = len(old)  # the number of a label that is removed
        numbers = np.array([new.get(label, unused) for label in old])
        return self._rows.numbered(numbers), [old.get(label) for label in new]

    def _add(self, X: Any, label: Any, classes: NDArray[Any], *, belongs: bool = True) -> None:
        """Add rows to a label, or to the background if they do not belong to it; refit the label.

        If this fails, the bank stays unchanged.
        """
        X = validate_data(self, X, reset=False, dtype=self._rows.X.dtype)
        self._refuse_known(X)
        before, places = self._renumbered(classes)
        touched = int(np.flatnonzero(classes == label)[0])
        kindred = isinstance(self._labels_, KindredLabels)
        # Labels that share covariances are their own clusters, see `_change`.
        clusters = np.zeros(len(X), dtype=np.intp) if kindred else nearest(X, self.centroids_)
        rows = before.appended(X, touched if belongs else BACKGROUND, clusters, self._seed)
        threshold = None  # labels calibrated separately do not need it
        if not isinstance(self._labels_, SeparateLabels) and hasattr(self, "threshold_"):
            threshold = self.threshold_.value
        change = Change(before, rows, classes, places, touched=touched, threshold=threshold)
        self._change(change)

    def _change(self, change: Change) -> None:
        """Update the labels after rows were added or removed."""
        kindred = isinstance(self._labels_, KindredLabels)
        if kindred:
            own = replace(change.rows, clusters=alone(change.rows.labels))
            change = replace(change, rows=own)
        moved = len(change.classes) != len(self.classes_)
        try:
            self._labels_ = self._labels_.changed(change)
        except SingularMatrixError:
            if not kindred:
                raise
            # The remaining rows do not determine both covariances.
            self._rows, self.classes_ = change.rows, change.classes
            self._take_clusters()
            self._fit_labels()
            return
        self._rows, self.classes_ = change.rows, change.classes
        self.clusters_ = change.rows.clusters
        self._name_separate()
        if moved:  # the threshold follows the number of labels
            self._forget_threshold()

"""A class-specific model for each label, all sharing one factorisation."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from .. import validation
from ..core.copies import silent_on_copies, warn_of_copies
from ..core.linalg import Mask, SingularMatrixError
from ..core.shared_rows import BACKGROUND
from ..documented import documented
from ..partition import nearest
from ..targets import shown
from ..validation import validated
from .bank_fit import BankFit
from .bank_scores import BankScores
from .bank_state import restored, stored
from .callbacks import CallbackSupportMixin, calls_back
from .changes import (
    BankRows,
    Change,
    alone,
    check_kind,
    check_template,
    numbered_labels,
    places_of,
    warn_of_shared_rows,
)
from .grid import seeded_of
from .kindred_labels import KindredLabels
from .parameters import refuse_contamination
from .separate import SeparateLabels
from .steps import draw_seed, forget
from .threads import updates


@documented
class VerifierBank(CallbackSupportMixin, BankFit, BankScores, ClassifierMixin, BaseEstimator):
    """One verifier per label, all fitted from a single factorisation of the rows.

    Parameters
    ----------
    estimator : PCSDA, KernelPCSDA or any class-specific estimator, default=None
        The model for each label; None means ``PCSDA()``. The labels share one factorisation if this
        is PCSDA or KernelPCSDA with the default solver, or a PCSDACV that tunes one of them and
        does not try the bandwidth "positive". Any other estimator is fitted separately for each
        label, in parallel. An estimator with `contamination` is also fitted separately. Some
        background rows may then belong to a label, so all background rows count as unchecked.
        With pooled calibration, labels share one bandwidth: ``gamma="positive"``, the default of
        KernelPCSDA, then means "all". With ``calibration="per-label"``, each label has its own
        bandwidth.
    subclasses : {"shared", "per-class"}, default="shared"
        "shared" clusters all rows once; each label removes its own rows from the clusters. If the
        estimator's `subclasses` is "samples", each negative is a subclass instead.
        "per-class" runs k-means for each label, starting from the shared clusters. With pooled
        calibration, ten or more labels with few rows each need no clusters, because they share two
        covariances (see the notes); to use k-means anyway, set the estimator's `n_subclasses` to a
        number. PCSDACV chooses K for each label. It clusters all rows once per K, or clusters them
        separately for each label if it uses folds or if labels cannot share a factorisation.
    calibration : {"pooled", "per-label"}, default="pooled"
        "pooled" estimates one shrinkage, one pair of tails and one calibration from the left-out
        scores of all labels. (A row is left out by removing it from the model in closed form.) A
        label with many rows departs from the common calibration as far as its rows justify.
        "per-label" estimates all of these for each label from its own scores. The bank always does
        so if rows cannot be left out in closed form: with estimators other than PCSDA and
        KernelPCSDA, with ``subclasses="per-class"``, with the settings of the published rule, and
        in a bank of two labels without background.
    n_jobs : int or None, default=None
        Number of parallel jobs for models that are fitted separately, as in joblib. It does not
        affect the result.
    verbose : bool, default=False
        Whether to draw a progress bar on a terminal.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    models_ : mapping
        The fitted estimator for each label; its positive class is True. The mapping is read-only.
        If labels share one calibration, an estimator is built when it is first needed. Each look-up
        returns a new one, so changing it, for instance by `recalibrate`, does not change the bank.
        If labels are calibrated separately, the bank scores with these estimators, and follows such
        changes.
    threshold_ : Threshold
        The threshold used by `identify`. `choose_threshold` sets it. Otherwise it is chosen when it
        is first needed, to accept 1% of strangers (rows that belong to no label), or fewer if
        labels lie far apart (see :meth:`choose_threshold`). It does not exist if no label can serve
        as a stranger, as with two labels and no background, unless `choose_threshold` was given
        rows of strangers.
    clusters_ : array of shape (n_samples,)
        Shared cluster of each training row: of the rows given to `fit`, then of the background
        rows, then of the rows added later.
    centroids_ : array of shape (n_clusters, n_features)
        Cluster means. Rows added later join the cluster with the nearest mean.
    ridge_ : float
        The absolute ridge. It does not change when rows are added or removed; see
        :meth:`refresh`.
    unit_length_ : bool
        Whether the bank divides each row by its Euclidean length (see the notes). This does not
        change when rows are added or removed. If True, the estimators in `models_` are pipelines
        that begin with a Normalizer.

    Notes
    -----
    Labels share two covariances, one within labels and one between labels (two-covariance PLDA), if
    there are at least ten labels and the median label has fewer than 50 rows, or if there are more
    than 100 labels of any size or, without a kernel, at least ten labels and more labels than
    columns. This requires the default values of `subclasses`, `n_subclasses`, `n_components`,
    `negatives` and `shrinkage`, and no groups. The axes are those of PCSDA with the
    labels as subclasses. The score of a row compares two predictive distributions, one for the
    label and one for a stranger. The fewer rows a label has, the more its mean is shrunk toward the
    centre of all labels. Each background row counts as a label with one row.
    ``regularization="auto"`` then means Ledoit and Wolf's shrinkage, or 0.1, 0.3 or 3 times that
    value, whichever best separates left-out rows from strangers.

    Such a bank also divides each row by its length if this separates left-out rows from strangers
    clearly better. To measure this, the bank fits two logistic functions of the score. One
    separates left-out rows from the best score of each stranger, the other from strangers' scores
    for random labels. The sum of the two losses, computed on at most 300 labels, must fall by more
    than 0.03 nat. A kernel bank does not scale rows if its `gamma` is a number or its `kernel` a
    function.

    If most labels have one row and fewer than ten have more, the rows do not determine the
    covariance within labels. The bank then assumes that this covariance is the square root of the
    total covariance, scaled to 30% of the variance. Ratios are calibrated on simulated rows, and
    models have no left-out scores. Rows are divided by their length if this makes the tails of
    their distribution lighter, that is, if the reciprocal of the degrees of freedom falls by more
    than 0.02.

    The bank keeps its training rows, so `enroll`, `update`, `reject`, `remove` and `refresh` need
    no earlier data from you. The first four refit only the affected label; `refresh` refits all
    labels and the common calibration. If labels share covariances, every change updates all labels:
    the sums behind the covariances are updated in closed form, and the next query solves for the
    models. Banks with clusters update their factorisation, which costs ``D^2`` per row, or ``N^2``
    with a kernel. Linear banks with more features than rows, and banks with an indefinite kernel,
    factorise the rows again, and kernel banks whose labels share covariances do so at the next
    query. So do all banks after unpickling, because pickles do not contain the factorisation.

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
        state = dict(super().__getstate__())
        if "_labels_" not in state:
            return state
        if hasattr(self, "threshold_"):
            state["threshold_"] = self.threshold_
        return stored(state)

    def __setstate__(self, state: dict[str, Any]) -> None:
        state, labels = restored(state)
        super().__setstate__(state)
        if labels is not None:
            self._labels_ = labels(self._settings)

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
            Rows without a label; they are negatives for every label.
        subclass_labels : array-like of shape (n_samples,), optional
            Shared cluster of each row. Background rows join the nearest cluster. By default, each
            label is a cluster, or k-means finds the clusters (see `subclasses`).
        groups : array-like of shape (n_samples,), optional
            Rows of one group, such as frames of one recording, are left out together. Each row of
            `background` forms its own group. Rows added by one later call form one group.

        Returns
        -------
        self : VerifierBank
        """
        validation.check_option("subclasses", self.subclasses, ("shared", "per-class"))
        validation.check_option("calibration", self.calibration, ("pooled", "per-label"))
        validation.refuse_dask(X, y)
        forget(self, "ridge_", "kernel_", "regularization_", "unit_length_", "threshold_")
        forget(self, "_rate", "_gamma", "_kindred_")
        # Later enrolments and kernel models need the rows, so the bank keeps a copy.
        X, y = validated(self, X, y, dtype=[np.float64, np.float32], copy=True)
        classes, labels = numbered_labels(np.asarray(y))
        with warnings.catch_warnings():
            # scikit-learn suspects regression targets if many labels have one row.
            warnings.filterwarnings("ignore", message="The number of unique classes")
            check_classification_targets(y)
        self.classes_ = classes
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class only, {self.classes_.tolist()}; a bank needs at least two labels"
            )
        template = self._template
        check_template(template, groups, background)
        self._seed = draw_seed(getattr(seeded_of(template), "random_state", None))
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

    def name_rows(self, ids: ArrayLike) -> Self:
        """Name the training rows, so that explanations can show examples of the nearest subclass.

        Without row names, a subclass is described only by its most frequent label, such as "mostly
        8".

        Parameters
        ----------
        ids : array-like of shape (n_samples,)
            Names of the rows given to `fit`, then of the background rows, then of the rows added
            since. A row added after this call is named after its number.

        Returns
        -------
        self : VerifierBank
            Another fit discards the names.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from pcsda import PCSDA, VerifierBank
        >>> X, y = load_digits(return_X_y=True)
        >>> bank = VerifierBank(PCSDA(random_state=0)).fit(X[:900], y[:900])
        >>> bank.name_rows([f"scan {i}" for i in range(900)]).explain(X[900:901], 3).subclass_of()
        'subclass 10 (mostly 4, examples scan 367, scan 124 and scan 380, n = 77)'
        """
        check_is_fitted(self)
        names = column_or_1d(ids).astype(str)
        n_rows = len(self._rows.labels)
        if len(names) != n_rows:
            raise ValueError(
                f"ids has {len(names)} names but the bank has {n_rows} rows; give one "
                "for each row given to fit, each background row and each row added later"
            )
        self._rows = replace(self._rows, ids=names)
        return self

    @updates
    def enroll(self, X: Any, label: Any) -> Self:
        """Add a new label with its rows.

        The new model equals a separate fit to all rows with the bank's ridge and clusters. The new
        rows join the cluster with the nearest centroid. See the class notes for the effect on other
        labels.

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
            If X has a single row. The message gives the expected share of missed rows.

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
        order = check_kind(self.classes_, label)
        if label in self.models_:
            raise ValueError(
                f"the bank already has a label {shown(label)}; remove it first to enroll it again, "
                "or add rows to it with update"
            )
        self._add(X, label, np.unique(order))
        return self

    @updates
    def update(self, X: Any, label: Any) -> Self:
        """Add rows to a label and refit its model.

        See the class notes for the effect on other labels.

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

        The label is refitted at once. See the class notes for the effect on other labels.

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
        refuse_contamination(
            self._template,
            "rejected rows would join the background, whose rows are unchecked",
            "fit the bank again without them",
        )
        self._add(X, self._known(label), self.classes_, belongs=False)
        return self

    @updates
    def remove(self, label: object) -> Self:
        """Remove a label and its rows.

        See the class notes for the effect on other labels. Files and pickles no longer contain the
        rows, unless the bank has a kernel and clusters or ``calibration="per-label"``: then the
        models of other labels need the rows until :meth:`refresh`. Memory may contain them until
        then in any bank.

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

        The rows are factorised from scratch, which also removes rounding errors from many updates.
        A threshold that was chosen from the bank's own labels is chosen again for the same rate of
        false alarms.

        Clusters, ridge, bandwidth and `unit_length_` stay the same, unless the number of rows has
        at least doubled or halved since they were chosen. Then all four are chosen again, as in a
        new fit. If clusters were given to :meth:`fit`, all four always stay the same.

        Returns
        -------
        self : VerifierBank
        """
        check_is_fitted(self)
        self._rows = self._rows.compact()
        chosen, now = getattr(self, "_n_chosen", len(self._rows.labels)), len(self._rows.labels)
        if not self._given and not chosen / 2 < now < 2 * chosen:
            forget(self, "ridge_", "kernel_", "unit_length_", "_gamma", "_kindred_")
            if hasattr(self, "regularization_"):
                self.regularization_ = self._auto_ridge(self._rows.labels)
            self._set_rows(replace(self._rows, clusters=self._choose_shared(self._rows)))
        elif self._kindred_:
            self._set_rows(replace(self._rows, clusters=alone(self._rows.labels)))
        self._fit_labels()
        return self

    def _renumbered(self, classes: NDArray[Any]) -> tuple[BankRows, list[int | None]]:
        """Return the rows with each label numbered by its position in `classes`.

        Also return the previous number of each label in `classes`, or None for a new label.
        """
        if classes is self.classes_:
            return self._rows, list(range(len(classes)))
        now = places_of(self.classes_, classes)
        # A label that is removed gets a number that no label has.
        rows = self._rows.numbered(np.where(now < 0, len(self.classes_), now))
        earlier = places_of(classes, self.classes_).tolist()
        return rows, [place if place >= 0 else None for place in earlier]

    def _add(self, X: Any, label: Any, classes: NDArray[Any], *, belongs: bool = True) -> None:
        """Add rows to a label, or to the background if `belongs` is False, and refit the label.

        If this fails, the bank stays unchanged.
        """
        X = validated(self, X, reset=False, dtype=self._rows.dtype)
        self._refuse_known(X)
        before, places = self._renumbered(classes)
        touched = int(np.flatnonzero(classes == label)[0])
        kindred = isinstance(self._labels_, KindredLabels)
        # If labels share covariances, each label is a cluster, and `_change` sets the clusters.
        clusters = np.zeros(len(X), dtype=np.intp) if kindred else nearest(X, self.centroids_)
        rows = before.appended(X, touched if belongs else BACKGROUND, clusters, self._seed)
        threshold = None
        # Only the warning about a new label with one row needs the threshold, which takes time to
        # choose. Labels that are calibrated separately do not use it.
        single = places[touched] is None and len(X) == 1
        if single and not isinstance(self._labels_, SeparateLabels) and hasattr(self, "threshold_"):
            threshold = self.threshold_.value
        change = Change(before, rows, classes, places, touched=touched, threshold=threshold)
        self._change(change)

    def _change(self, change: Change) -> None:
        """Update the labels after rows were added or removed."""
        kindred = isinstance(self._labels_, KindredLabels)
        if kindred:
            own = replace(change.rows, clusters=alone(change.rows.labels))
        else:  # needs the rows in one array
            own = change.rows.compact()
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
        if change.touched is not None:
            self._name_separate(slice(change.touched, change.touched + 1))
        if moved:  # the threshold depends on the number of labels
            self._forget_threshold()

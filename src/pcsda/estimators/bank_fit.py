"""How a bank fits its labels: what they share, and which kind of labels they are."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone

from ..core.linalg import Array, Floats, Ints, SingularMatrixError
from ..core.scatter import Grouping
from ..core.shared_rows import BACKGROUND
from ..partition import nearest
from ..targets import check_groups
from ..validation import MatrixLike, named, validated
from .bank_scores import USUAL_RATE, Labels
from .candidates import template_of
from .changes import BankRows, Settings, alone, check_background
from .kindred_choice import are_kindred
from .kindred_labels import KindredLabels
from .naming import name_in_bank
from .pooled_labels import PooledLabels, can_pool
from .separate import SeparateLabels
from .shared import cluster_rows, given_clusters
from .steps import auto_ridge, forget


class BankFit:
    """Methods of `VerifierBank` that choose what labels share, and fit all labels to the rows.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    clusters_ : array of shape (n_samples,)
    centroids_ : array of shape (n_clusters, n_features)
    ridge_ : float
    kernel_ : Kernel
    regularization_ : float
    unit_length_ : bool
    """

    estimator: BaseEstimator | None
    subclasses: str
    calibration: str
    n_jobs: int | None
    verbose: bool
    classes_: NDArray[Any]
    clusters_: Ints
    centroids_: Array
    _labels_: Labels
    _rows: BankRows
    _seed: int
    # Whether the clusters were given, and whether labels share two covariances.
    _given: bool
    _kindred_: bool = False

    def _collected(
        self,
        X: Floats,
        labels: Ints,
        background: MatrixLike | None,
        subclass_labels: ArrayLike | None,
        groups: ArrayLike | None,
    ) -> BankRows:
        """Return the labelled rows followed by the background rows, with their clusters."""
        together = check_groups(groups, len(X), keep_single=True)
        rows, clusters = X, None
        if subclass_labels is not None:
            clusters = given_clusters(subclass_labels, len(X))
        if background is not None:
            kinds: Any = {"reset": False, "dtype": X.dtype, "ensure_min_samples": 0}
            with named("background"):
                others = validated(self, background, **kinds)
            check_background(X, others)
            rows = np.concatenate([X, others])
            labels = np.append(labels, np.full(len(others), BACKGROUND))
            if clusters is not None:
                near = nearest(others, Grouping.of(clusters).means(X))
                clusters = np.append(clusters, near)
            if together is not None:
                together = np.append(together, together.max() + 1 + np.arange(len(others)))
        keys = np.random.default_rng(self._seed).random(len(rows))
        found = BankRows(rows, labels, np.zeros(len(rows), dtype=np.intp), keys, together)
        return replace(found, clusters=self._choose_shared(found, clusters))

    def _choose_shared(self, rows: BankRows, clusters: Ints | None = None) -> Ints:
        """Choose what all labels share, and return the cluster of each row.

        The method chooses the bandwidth, whether labels share two covariances, and the clusters
        unless they are given. The choice holds until the number of rows has doubled or halved. The
        ridge and the scaling of rows to unit length are chosen later, by the first fit.
        """
        self._n_chosen = len(rows.labels)
        self._share_bandwidth(rows.X, rows.labels)
        if clusters is None and self.calibration == "pooled" and rows.together is None:
            known = rows.labels >= 0
            X = rows.X if known.all() else rows.X[known]
            self._kindred_ = are_kindred(self._settings, X, rows.labels[known])
            clusters = alone(rows.labels) if self._kindred_ else None
        if clusters is None:
            clusters = cluster_rows(self._template, rows.X, None, self._seed)
        return clusters

    def _share_bandwidth(self, rows: Floats, labels: Ints) -> None:
        """Use one bandwidth for all labels if they can then share a calibration."""
        template = self._template
        if self.calibration == "pooled" and getattr(template, "gamma", None) == "positive":
            common = replace(self._settings, template=clone(template).set_params(gamma="all"))
            if can_pool(common, rows, labels):
                self._gamma = "all"

    @property
    def _template(self) -> Any:
        template = template_of(self)
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
        """Fit all labels to the current rows. The ridge and kernel of an earlier fit are kept."""
        settings = self._settings
        known = getattr(self, "ridge_", None), getattr(self, "kernel_", None)
        unit = getattr(self, "unit_length_", None)
        found: Labels | None = None
        if self._kindred_:
            try:
                found = KindredLabels.fit(settings, self._rows, *known, unit)
            except SingularMatrixError:  # the rows do not determine both covariances
                self._take_clusters()
                self._fit_labels()
                return
        elif self.calibration == "pooled" and can_pool(settings, self._rows.X, self._rows.labels):
            with suppress(SingularMatrixError):  # the shared rows may not determine a label
                found = PooledLabels.fit(settings, self._rows, *known)
        if found is None:
            found = SeparateLabels(settings, self._rows, *known)
            found.models = found.fit(range(len(self.classes_)))
        self._labels_ = found
        self._name_separate()
        self.unit_length_ = isinstance(found, KindredLabels) and found.unit
        if found.ridge is not None:
            self.ridge_ = found.ridge
        if found.kernel is not None:
            self.kernel_ = found.kernel
        if isinstance(found, KindredLabels) and settings.auto_ridge:
            self.regularization_ = found.regularization
        self._forget_threshold()

    def _take_clusters(self) -> None:
        """Switch from shared covariances to a clustering of all rows."""
        self._kindred_ = False
        forget(self, "ridge_", "kernel_")
        if hasattr(self, "regularization_"):
            self.regularization_ = self._auto_ridge(self._rows.labels)
        clusters = cluster_rows(self._template, self._rows.X, None, self._seed)
        self._set_rows(replace(self._rows, clusters=clusters))

    def _set_rows(self, rows: BankRows) -> None:
        """Store the rows and compute their cluster means."""
        self._rows, self.clusters_ = rows, rows.clusters
        self.centroids_ = Grouping.of(rows.clusters).means(rows.X)

    def _auto_ridge(self, labels: Ints) -> float:
        """Return the relative ridge for a label of median size.

        All labels use this ridge, so that they can share a factorisation.
        """
        return auto_ridge(template_of(self), float(np.median(np.bincount(labels[labels >= 0]))))

    def _name_separate(self, chosen: slice = slice(None)) -> None:
        """Name the subclasses of models that were just fitted separately.

        All other models are named when they are built.
        """
        if isinstance(self._labels_, SeparateLabels):
            for model in self._labels_.models[chosen]:
                name_in_bank(model, self._rows.labels, self.classes_.tolist())

    def _forget_threshold(self) -> None:
        """Discard the threshold, so that it is chosen again when it is next needed.

        A threshold that was chosen from the user's rows of strangers is kept.
        """
        if getattr(self, "_rate", USUAL_RATE) is not None:
            forget(self, "threshold_")

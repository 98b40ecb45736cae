"""Fitting a bank's labels to its rows: of which kind they are, and their threshold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from ..core.linalg import Array, Ints, SingularMatrixError
from ..core.scatter import group_means
from ..kernels import Kernel
from .bank_scores import USUAL_RATE, BankScores, Labels
from .changes import BankRows
from .kindred_labels import KindredLabels
from .linear import PCSDA
from .naming import name_in_bank
from .pooled_labels import PooledLabels, Settings, can_pool
from .separate import SeparateLabels
from .shared import cluster_rows
from .steps import auto_ridge


class BankFit(BankScores):
    """Methods that fit a bank's labels to the rows that it keeps."""

    estimator: BaseEstimator | None
    subclasses: str
    calibration: str
    n_jobs: int | None
    verbose: bool
    regularization_: float
    ridge_: float
    kernel_: Kernel
    clusters_: Ints
    centroids_: Array
    _seed: int
    _given: bool
    _kindred_: bool

    @property
    def models_(self) -> Mapping[Any, Any]:
        """The fitted estimator for each label."""
        if "_labels_" not in self.__dict__:
            raise AttributeError("models_ exists only after fit")
        names, fitted = self.classes_.tolist(), self._labels_
        if not isinstance(fitted, SeparateLabels):
            return fitted.models(names, self._rows)
        return MappingProxyType(dict(zip(names, fitted.models, strict=True)))

    @property
    def _template(self) -> Any:
        template = PCSDA() if self.estimator is None else self.estimator
        if hasattr(self, "regularization_"):
            return clone(template).set_params(regularization=self.regularization_)
        return template

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
        found: Labels | None = None
        if getattr(self, "_kindred_", False):
            try:
                found = KindredLabels.fit(settings, self._rows, *known)
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
            found.fit_all(len(self.classes_))
        self._keep(found)
        if isinstance(found, KindredLabels) and settings.auto_ridge:
            self.regularization_ = found.regularization
        if not isinstance(found, SeparateLabels):
            self._rate = getattr(self, "_rate", USUAL_RATE)
            self._set_door()

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
        if found.ridge is not None:
            self.ridge_ = found.ridge
        if found.kernel is not None:
            self.kernel_ = found.kernel

    def _name_separate(self) -> None:
        """Name the subclasses of stored models; others are named when they are built."""
        if isinstance(self._labels_, SeparateLabels):
            for model in self._labels_.models:
                name_in_bank(model, self._rows.labels, self.classes_.tolist())

    def _set_door(self) -> None:
        """Choose the threshold for the requested rate and the current number of labels."""
        fitted = self._labels_
        if not isinstance(fitted, SeparateLabels) and self._rate is not None:
            self.threshold_ = fitted.door.choose(self._rate, len(self.classes_), quiet=True)

"""Models of many labels that share one factorisation: clusters, settings and fitted estimators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, clone

from ..core.copies import Fingerprints
from ..core.fit import complete
from ..core.linalg import Array, Floats, Ints, Mask
from ..core.subspace import Factor, Subspace, is_far, project_rows
from ..kernels import SCALED_KERNELS, check_memory
from ..partition import different_subclasses, given_labels, run_kmeans, settle_count
from .candidates import (
    bandwidths,
    grid_of,
    is_standard,
    standard_counts,
    standard_ridges,
    template_of,
)
from .changes import BankRows, Settings
from .dual import keep_kernel, kernel_coordinates, kernel_factory
from .grid import Data, GridRows, grid_rows, with_setting
from .kernel import KernelPCSDA
from .linear import PCSDA
from .parameters import is_contaminated
from .ratios import variances_of
from .rows import TrainingRows
from .search import PCSDACV, keep_choice
from .selection import choose_setting
from .steps import (
    auto_ridge,
    by_cholesky,
    is_precomputed,
    keep_training,
    least_subclasses,
    leave_sample,
    rule_of,
    settle_ridge,
)
from .training import held_out_scores, keep_linear, pcsda_factory

Sharing = Literal["linear", "kernel", "search"]


def completed(
    model: PCSDA | KernelPCSDA, subspace: Subspace, data: TrainingRows, seen: Fingerprints
) -> PCSDA | KernelPCSDA:
    """Turn the subspace of one label into a fitted estimator.

    A kernel estimator refers to the rows without copying them. `seen` holds their fingerprints.
    """
    X, groups = data.X, data.groups
    model.classes_ = np.array([False, True])
    model.n_features_in_ = X.shape[1]
    settle_ridge(model, float(np.sum(data.positive)))
    if isinstance(model, PCSDA):
        factorise = pcsda_factory(model, data.seed)
    else:
        factorise = kernel_factory(model, data.seed)
    held_out = held_out_scores(model, factorise, data)
    fitted = complete(subspace, rule_of(model), held_out=held_out)
    if isinstance(model, PCSDA):
        keep_linear(model, fitted, X.dtype)
    else:
        assert data.kernel is not None
        model.kernel_, model.support_ = data.kernel, np.arange(len(X))
        keep_kernel(model, fitted, X, model.support_)
    keep_training(model, fitted, groups, slice(None), X, data.values, seen)
    return model


def sharing_of(template: BaseEstimator, shape: tuple[int, ...]) -> Sharing | None:
    """Return the kind of factorisation that the models of all labels share; None if they cannot."""
    if is_contaminated(template):  # each label has its own hidden positives
        return None
    if isinstance(template, PCSDACV):
        inner = template_of(template)
        common = isinstance(inner, PCSDA) or (
            isinstance(inner, KernelPCSDA)
            and not is_precomputed(inner)
            and "positive" not in bandwidths(template, inner)
        )
        return "search" if common and isinstance(template.cv, str) else None
    if not by_cholesky(template) or template.subclasses == "samples":
        return None
    if isinstance(template, PCSDA):
        # For wide rows without a ridge, each label has its own null space.
        return None if shape[1] > shape[0] and template.regularization == 0 else "linear"
    common = template.kernel not in SCALED_KERNELS or template.gamma != "positive"
    rows = isinstance(template, KernelPCSDA) and not is_precomputed(template)
    return "kernel" if common and rows else None


def given_clusters(labels: Any, n_rows: int) -> Ints:
    """Return the cluster number of each row, from the cluster labels that the user gave."""
    if len(labels) != n_rows:
        raise ValueError(f"subclass_labels has {len(labels)} entries but X has {n_rows} rows")
    return different_subclasses(given_labels(labels, np.zeros(n_rows, dtype=bool)))[1]


def cluster_rows(template: BaseEstimator, X: Floats, count: int | None, seed: int) -> Ints:
    """Return the cluster of each row, for `count` clusters.

    A `count` of None means the estimator's `n_subclasses`. If the estimator's `subclasses` is a
    clusterer, the clusterer decides the number.
    """
    if isinstance(template, PCSDACV):
        template = template_of(template)
    way = getattr(template, "subclasses", "kmeans")
    if not isinstance(way, str):
        return np.unique(clone(way).fit_predict(X), return_inverse=True)[1]
    least = least_subclasses(template)
    least += least > 1  # one cluster may hold only rows of the label itself
    count = settle_count(X, count if count else getattr(template, "n_subclasses", 1), least=least)
    if count == 1:
        return np.zeros(len(X), dtype=np.intp)
    return np.unique(run_kmeans(X, count, None, seed), return_inverse=True)[1]


class SharedSearch:
    """The choice of K, d, ridge and bandwidth for each label of a bank.

    For any number of labels, the rows are factorised once per ridge and bandwidth, and clustered
    once per K.
    """

    def __init__(self, settings: Settings, rows: BankRows) -> None:
        search, X, labels = settings.template, rows.X, rows.labels
        self.bank, self.seed = rows, settings.seed
        self.given = given = rows.clusters if settings.given else None
        self.standard = is_standard(search)
        template = clone(template_of(search))
        median = int(np.median(np.bincount(labels[labels >= 0])))
        if search.n_subclasses is None and given is None:  # all labels share the clusters
            counts = standard_counts(template, settle_count(X, "auto", len(X) - median))
            search = clone(search).set_params(n_subclasses=counts)
        if search.regularization is None:  # all labels share the factorisations
            search = clone(search).set_params(regularization=standard_ridges(template, median))
            template.set_params(regularization=auto_ridge(template, median))
        self.search = search = clone(search).set_params(estimator=template)
        data = self._data(labels == labels.max())  # the factorisation does not depend on the label
        grid = grid_of(search, data)
        self.ridges = list(dict.fromkeys(cell.regularization for cell in grid))
        first = {cell.gamma: cell for cell in reversed(grid)}
        if isinstance(template, KernelPCSDA):
            check_memory(len(X), 3 + len(first) * (1 + len(self.ridges)))
        self.rows: dict[Any, GridRows] = {}
        self.factors: dict[Any, list[Factor]] = {}  # per bandwidth, in the order of the ridges
        for gamma, cell in first.items():
            self.rows[gamma] = grid_rows(with_setting(template, cell), data, None, self.seed)
            self.factors[gamma] = list(self.rows[gamma].factors(self.ridges))
        tried = {cell.n_subclasses for cell in grid} if given is None else ()
        self.clusters = {count: cluster_rows(search, X, count, self.seed) for count in tried}

    def _data(self, positive: Mask) -> Data:
        known = self.bank.X, positive, positive, None, self.given, 1
        return Data(*known, together=self.bank.together)

    def fit(self, label: int) -> PCSDACV:
        """Choose the setting for one label, and return the search with the fitted estimator."""
        search: PCSDACV = clone(self.search)
        positive, X = self.bank.labels == label, self.bank.X
        search.classes_ = np.array([False, True])
        search.n_features_in_ = X.shape[1]
        data = self._data(positive)

        def groups(count: int) -> Ints:
            # Without its own rows, each label may have a different number of given subclasses.
            clusters = self.clusters[count] if self.given is None else self.given
            return np.unique(np.where(positive, -1, clusters), return_inverse=True)[1]

        def rows_of(model: BaseEstimator, data: Data, _: object, __: int) -> GridRows:
            gamma = getattr(model, "gamma", None)
            gamma = gamma if gamma in self.rows else None
            made, shared = self.factors[gamma], self.rows[gamma]
            return replace(
                shared,
                groups=groups,
                factors=lambda ridges: (made[self.ridges.index(ridge)] for ridge in ridges),
                log_odds=data.log_odds(model.priors),
            )

        choice = choose_setting(search, data, rows_of, self.standard)
        keep_choice(search, choice)
        model = with_setting(template_of(search), choice.cell)
        if choice.in_folds:
            search.best_estimator_ = model.fit(
                X, positive, subclass_labels=self.given, groups=self.bank.together
            )
            return search
        cell, partition = choice.cell, groups(choice.cell.n_subclasses)
        factor = self.factors[cell.gamma][self.ridges.index(cell.regularization)]
        along = None, self.seed, self.bank.together, self.rows[cell.gamma].kernel
        rows = TrainingRows(X, partition, *along)
        leave = leave_sample(model, rows)
        found = factor.solve(partition, cell.n_components, leave_out=leave)
        search.best_estimator_ = completed(model, found, rows, self.bank.fingerprints)
        return search


def project_all(models_: list[Any], X: Any) -> Floats:
    """Return the coordinates of rows under all models, joined as columns in the order of models.

    Linear models share one matrix product. So do kernel models with the same kernel and rows.
    """
    if isinstance(models_[0], PCSDA):
        components = np.vstack([model.components_ for model in models_])
        means = [model.positive_mean_ for model in models_]
        centre: Array = np.mean(means, axis=0)
        origins = [
            model.components_.astype(np.float64) @ (mean - centre)
            for model, mean in zip(models_, means, strict=True)
        ]
        spread = [variances_of(model) for model in models_]
        far = is_far(components, centre, np.concatenate(spread), X.dtype)
        return project_rows(X, components, np.concatenate(origins), centre, far=far)
    # Kernel models share training rows and kernel, except those enrolled later or with another
    # bandwidth. Kernel values are computed once for all models that share both.
    columns: list[Any] = [None] * len(models_)
    kinds = [(id(model.X_fit_), id(model.kernel_)) for model in models_]
    for kind in dict.fromkeys(kinds):
        chosen = [i for i, own in enumerate(kinds) if own == kind]
        alike = [models_[i] for i in chosen]
        z = kernel_coordinates(
            alike[0],
            X,
            np.hstack([model.dual_coef_ for model in alike]),
            np.concatenate([model.origin_ for model in alike]),
        )
        edges = np.cumsum([model.n_components_ for model in alike])
        for i, part in zip(chosen, np.split(z, edges[:-1], axis=1), strict=True):
            columns[i] = part
    return np.hstack(columns)

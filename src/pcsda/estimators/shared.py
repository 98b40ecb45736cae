"""Models of many labels on one factorisation: how each is completed, chosen and projected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ..core.fit import complete
from ..core.linalg import Array
from ..core.subspace import Subspace, is_far, project_rows
from ..kernels import Kernel, check_memory
from .grid import Data, GridRows, grid_rows, with_setting
from .kernel import (
    KernelPCSDA,
    keep_kernel,
    kernel_coordinates,
    kernel_factory,
    kernel_held_out,
)
from .linear import PCSDA, held_out_scores, pcsda_factory
from .search import PCSDACV, choose_setting, grid_of, template_of
from .stream import keep_linear
from .verifier import leave_sample, rule_of, variances_of


def completed(
    model: Any,
    subspace: Subspace,
    X: Any,
    groups: NDArray[np.intp],
    seed: int,
    kernel: Kernel | None,
    together: NDArray[np.intp] | None = None,
) -> Any:
    """Complete a solved label to a fitted estimator; its rows X are shared, not copied."""
    model.classes_ = np.array([False, True])
    model.n_features_in_ = X.shape[1]
    rule = rule_of(model)
    if kernel is None:
        held_out = held_out_scores(
            model, pcsda_factory(model, seed), X, groups, None, seed, together
        )
        fitted = complete(subspace, rule, held_out=held_out)
        keep_linear(model, fitted, X.dtype)
    else:
        model.kernel_ = kernel
        held_out = kernel_held_out(
            model, kernel_factory(model, seed), X, groups, None, seed, together
        )
        fitted = complete(subspace, rule, held_out=held_out)
        model.support_ = np.arange(len(X))
        keep_kernel(model, fitted, X, model.support_)
    model.groups_ = groups
    left_out = fitted.left_out_of(len(X))
    if left_out is not None:
        model.loo_scores_ = left_out
    return model


class SharedSearch:
    """Chooses K, d, ridge and bandwidth for each label.

    The rows are factorised once for each ridge and bandwidth and clustered once for each K,
    whatever the number of labels.
    """

    def __init__(
        self,
        search: PCSDACV,
        X: Any,
        labels: NDArray[np.intp],
        cluster: Callable[[int], NDArray[np.intp]],
        given: NDArray[np.intp] | None,
        seed: int,
        together: NDArray[np.intp] | None,
    ) -> None:
        self.search, self.X, self.labels, self.given, self.seed = search, X, labels, given, seed
        self.together = together
        template = template_of(search)
        data = self._data(labels == labels[0])  # the factorisation knows no label
        grid = grid_of(search, data)
        self.ridges = list(dict.fromkeys(cell.regularization for cell in grid))
        first = {cell.gamma: cell for cell in reversed(grid)}
        if isinstance(template, KernelPCSDA):
            check_memory(len(X), 3 + len(first) * (1 + len(self.ridges)))
        self.rows: dict[Any, GridRows] = {}
        for gamma, cell in first.items():
            rows = grid_rows(with_setting(template, cell), data, None, seed)
            factors = list(rows.factors(self.ridges))
            self.rows[gamma] = replace(rows, factors=_always(factors))
        self.clusters = {
            count: cluster(count) if given is None else given
            for count in dict.fromkeys(cell.n_subclasses for cell in grid)
        }

    def _data(self, positive: NDArray[np.bool_]) -> Data:
        return Data(self.X, positive, positive, None, self.given, 1, together=self.together)

    def fit(self, label: int) -> PCSDACV:
        """Choose the setting of one label and complete its model."""
        search = clone(self.search)
        positive = self.labels == label
        search.classes_ = np.array([False, True])
        search.n_features_in_ = self.X.shape[1]
        data = self._data(positive)

        def groups(count: int) -> NDArray[np.intp]:
            clusters = np.where(positive, -1, self.clusters[count])
            return np.unique(clusters, return_inverse=True)[1]

        def rows_of(model: Any, data: Data, _: Any, __: int) -> GridRows:
            gamma = getattr(model, "gamma", None)
            shared = self.rows[gamma if gamma in self.rows else None]
            return replace(shared, groups=groups, log_odds=data.log_odds(model.priors))

        cell = choose_setting(search, data, rows_of)
        model = with_setting(template_of(search), cell)
        if search.cv_method_ != "leave-one-out":
            search.best_estimator_ = model.fit(
                self.X, positive, subclass_labels=self.given, groups=self.together
            )
            return search
        rows = self.rows[cell.gamma]
        factor = list(rows.factors(self.ridges))[self.ridges.index(cell.regularization)]
        partition = groups(cell.n_subclasses)
        leave = leave_sample(model, partition, None, self.seed, self.together)
        found = factor.solve(partition, cell.n_components, leave_out=leave)
        search.best_estimator_ = completed(
            model, found, self.X, partition, self.seed, rows.kernel, self.together
        )
        return search


def _always(factors: list[Any]) -> Callable[[list[float]], Iterator[Any]]:
    """A function that yields factors made before."""
    return lambda _: iter(factors)


def project_all(models_: list[Any], X: Any) -> NDArray[np.floating]:
    """Coordinates under all models, side by side, by one matrix product."""
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
    # Kernel models have their training rows and kernel in common, all but those enrolled since or
    # with a bandwidth of their own: the first computes the kernel for all that share it.
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

"""Where the models of a bank come from: one factorisation, then a solution for each label."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from .calibration import Calibration
from .core import dual, linalg, shared
from .core import model as models
from .core.linalg import Array, SingularMatrixError
from .core.scatter import group_means
from .core.solvers import Projection
from .kernel_estimators import KernelPCSDA, feature_ridge, not_definite
from .kernels import SCALED_KERNELS, Kernel, bandwidth, check_memory, training_matrix
from .settings import Data, KernelRows, LinearRows, with_setting


class LinearSource:
    """Models of linear estimators from one whitening of the rows, or one Gram matrix if D > N."""

    def __init__(self, bank: Any) -> None:
        self.bank = bank
        template = bank._template
        template._check_parameters()
        centred, self.origin, variance = shared.centre(bank._X, None)
        if not hasattr(bank, "ridge_"):
            bank.ridge_ = models.ridge_of(variance, template.regularization)
        leave_one_out = template.covariance == "leave-one-out"
        self.wide = centred.shape[1] > centred.shape[0]
        self.lift = 0.0
        try:
            if self.wide:
                gram, trace = models.lifted_gram(centred, None)
                self.lift = trace / len(centred) ** 2
                factor = models.gram_factor(gram, trace, bank.ridge_)
                self.shared: Any = shared.DualShared(factor, bank.ridge_, leave_one_out)
            else:
                self.shared = shared.PrimalShared(shared.whiten(centred, bank.ridge_), bank.ridge_)
        except SingularMatrixError as error:
            raise models.singular_scatter(len(self.origin), template.regularization) from error
        self._use_cells(centred)

    def _use_cells(self, centred: Array) -> None:
        """Sum over the cells of the bank's labels and clusters."""
        self.centred = centred if self.wide else None
        self.cells = shared.Cells.of(self.bank._labels, self.bank.clusters_)
        self.sums = self.cells.sums(centred)
        self.totals = self.cells.totals(self.sums)
        if self.bank.subclasses == "shared":
            self.shared.use(self.cells)

    def grown(self, count: int) -> LinearSource:
        """Return the same with the last `count` rows of the bank added to the factorisation."""
        source = copy(self)
        centred = self.bank._X - self.origin
        fresh = centred[-count:]
        if self.wide:
            values = fresh @ centred.T + self.lift
            source.shared = self.shared.grown(values[:, :-count], values[:, -count:])
        else:
            source.shared = self.shared.grown(fresh)
        source._use_cells(centred)
        return source

    def shrunk(self, kept: NDArray[np.bool_]) -> LinearSource:
        """Return the same without the rows that the bank does not have any more."""
        source = copy(self)
        source.shared = self.shared.shrunk(kept)
        source._use_cells(self.bank._X - self.origin)
        return source

    def fit(self, label: int) -> Any:
        """Fit the model of one label."""
        bank = self.bank
        model = clone(bank._template)
        leave_one_out = model.covariance == "leave-one-out"
        rows = self.centred
        alone = bank.subclasses == "per-class"
        groups = bank._own_groups(label) if alone else self.cells.partition(label)[0]
        try:
            if alone:
                found = self.shared.solve(groups, model.n_components, leave_one_out)
            else:
                found, _ = self.shared.solve_class(label, model.n_components, leave_one_out)
        except SingularMatrixError:
            # Groups that are almost separable: the update would be rounding.
            found, rows = self._direct(model, groups), None
        learned = _learned(model, found, groups, self._means(label, groups), bank.ridge_, rows)
        return _kept(model, bank, groups, learned)

    def _direct(self, model: Any, groups: NDArray[np.intp]) -> dual.DualSubspace:
        bank = self.bank
        centred = shared.centre(bank._X, None)[0]
        try:
            found = models.direct(centred, groups, None, bank.ridge_, model.n_components)
        except SingularMatrixError as error:
            raise models.singular_scatter(centred.shape[1], model.regularization) from error
        return found if model.covariance == "leave-one-out" else replace(found, left=None)

    def _means(self, label: int, groups: NDArray[np.intp]) -> Array:
        if self.bank.subclasses == "shared":
            _, counts = self.cells.partition(label)
            sums = self.cells.group_sums(label, self.sums, self.totals)
            return sums / counts[:, None] + self.origin
        return group_means(self.bank._X, groups, np.bincount(groups).astype(np.float64), None)


def _learned(
    model: Any,
    found: dual.DualSubspace,
    groups: NDArray[np.intp],
    means: Array,
    ridge: float,
    rows: Array | None,
) -> models.Model:
    """Complete a solved partition to a linear model; `rows` are those of dual coefficients."""
    components = found.coefficients.T if rows is None else found.coefficients.T @ rows
    projection = Projection(components, found.eigenvalues, found.rank)
    subspace = models.Subspace(means, projection, found.projected, ridge, found.left)
    return models.with_density(models.signed(subspace), model._rule, groups, None)


def _kept(model: Any, bank: Any, groups: NDArray[np.intp], learned: Any) -> Any:
    """Store a learned model in its estimator, calibrated; without one it is fitted on its own."""
    model.classes_ = np.array([False, True])
    model.n_features_in_ = bank.n_features_in_
    return model._fit_groups(bank._X, groups, None, bank._seed, learned)


class KernelSource:
    """Models of kernel estimators from one Cholesky factor of the kernel matrix."""

    def __init__(self, bank: Any) -> None:
        self.bank = bank
        template = bank._template
        template._check_parameters()
        X = bank._X
        check_memory(len(X), 3.5)
        if not hasattr(bank, "kernel_") or not hasattr(bank, "ridge_"):
            gamma = None
            if template.kernel in SCALED_KERNELS:
                gamma = bandwidth(template.gamma, X, None, template.kernel, bank._seed)
            params = dict(template.kernel_params or {})
            bank.kernel_ = Kernel(template.kernel, gamma, template.degree, template.coef0, params)
        matrix = training_matrix(bank.kernel_, X, bank.verbose)
        ridge = feature_ridge(matrix, None, template.regularization)
        if not hasattr(bank, "ridge_"):
            bank.ridge_ = ridge
        in_features = isinstance(template.subclasses, str) and template.subclasses == "kmeans"
        self.matrix = matrix.copy() if bank.subclasses == "per-class" and in_features else None
        self.moved = dual.move_origin(matrix, None, ridge / template.regularization)
        leave_one_out = template.covariance == "leave-one-out"
        try:
            factor = linalg.cholesky_in_place(matrix, bank.ridge_)
        except SingularMatrixError as error:
            raise not_definite(template.regularization) from error
        self.shared = shared.DualShared(factor, bank.ridge_, leave_one_out)
        self._use_cells()

    def _use_cells(self) -> None:
        """Solve for the cells of the bank's labels and clusters."""
        if self.bank.subclasses == "shared":
            self.shared.use(shared.Cells.of(self.bank._labels, self.bank.clusters_))

    def grown(self, count: int) -> KernelSource | None:
        """Return the same with the last `count` rows of the bank added to the factor."""
        if self.matrix is not None or self.moved.any():
            return None  # the matrix itself, or the origin, would have to be made anew
        X = self.bank._X
        values = self.bank.kernel_(X[-count:], X)
        source = copy(self)
        source.shared = self.shared.grown(values[:, :-count], values[:, -count:])
        source.moved = np.zeros(len(X))
        source._use_cells()
        return source

    def shrunk(self, kept: NDArray[np.bool_]) -> KernelSource | None:
        """Return the same without the rows that the bank does not have any more."""
        if self.matrix is not None or self.moved.any():
            return None
        source = copy(self)
        source.shared = self.shared.shrunk(kept)
        source.moved = self.moved[kept]
        source._use_cells()
        return source

    def fit(self, label: int) -> Any:
        """Fit the model of one label."""
        bank = self.bank
        model = clone(bank._template)
        leave_one_out = model.covariance == "leave-one-out"
        if bank.subclasses == "shared":
            found, groups = self.shared.solve_class(label, model.n_components, leave_one_out)
        else:
            groups = bank._own_groups(label, self.matrix)
            found = self.shared.solve(groups, model.n_components, leave_one_out)
        return _kernel_kept(model, bank, bank.kernel_, found, self.moved, groups)


def _kernel_kept(
    model: Any,
    bank: Any,
    kernel: Kernel,
    found: dual.DualSubspace,
    moved: Array,
    groups: NDArray[np.intp],
) -> Any:
    """Complete a solved partition to a kernel model; `moved` is as in `dual.move_origin`."""
    found = replace(found, origin=found.origin + moved @ found.coefficients)
    model.kernel_ = kernel
    model.classes_ = np.array([False, True])
    model.n_features_in_ = bank.n_features_in_
    learned = model._model_of(found, groups, None)
    calibration = Calibration()
    if model.calibrate:
        calibration = model._calibrated(learned, bank._X, groups, None, bank._seed)
    return model._keep(learned, calibration, bank._X, np.arange(len(bank._X)), groups)


class SearchSource:
    """Models whose K, d, ridge and bandwidth are chosen for each label.

    The rows are factorised once for each ridge and bandwidth (linear rows: diagonalised once for
    all ridges) and clustered once for each K, whatever the number of labels.
    """

    def __init__(self, bank: Any) -> None:
        self.bank = bank
        search = bank._template
        search._check(search._template)
        everyone = np.zeros(len(bank._X), dtype=bool)
        everyone[0] = True  # some label has to be of interest; the factorisation knows none
        labels = bank.clusters_ if bank._given else None
        data = Data(bank._X, bank._labels, everyone, None, labels, 1)
        grid = search._grid(search._template, data)
        self.ridges = list(dict.fromkeys(cell.regularization for cell in grid))
        first = {cell.gamma: cell for cell in reversed(grid)}
        if isinstance(search._template, KernelPCSDA):
            check_memory(len(bank._X), 3 + len(first) * (1 + len(self.ridges)))
        self._rows: dict[Any, Any] = {}
        self._engines: dict[Any, list[Any]] = {}
        self._clusters: dict[int, NDArray[np.intp]] = {}
        for gamma, cell in first.items():
            model = with_setting(search._template, cell)
            kind = KernelRows if isinstance(model, KernelPCSDA) else LinearRows
            self._rows[gamma] = kind(model, data, None, bank._seed)
            self._engines[gamma] = list(self._rows[gamma].engines(self.ridges))
        for count in dict.fromkeys(cell.n_subclasses for cell in grid):
            self.clusters(count)

    def clusters(self, count: int) -> NDArray[np.intp]:
        """Clusters of all rows: those given to the bank, or made once for each K."""
        if self.bank._given:
            return self.bank.clusters_
        if count not in self._clusters:
            self._clusters[count] = self.bank._clusters(self.bank._X, None, count)
        return self._clusters[count]

    def fit(self, label: int) -> Any:
        """Choose the setting of one label and complete its model."""
        bank = self.bank
        search = clone(bank._template)
        positive = bank._labels == label
        search.classes_ = np.array([False, True])
        search.n_features_in_ = bank.n_features_in_

        def rows_of(model: Any, data: Data, others: Any = None, seed: int | None = None) -> Any:
            gamma = getattr(model, "gamma", None)
            gamma = gamma if gamma in self._rows else None  # no bandwidth is searched
            return self._rows[gamma].of_label(model, data, self.clusters, self._engines[gamma])

        labels = bank.clusters_ if bank._given else None
        data = Data(bank._X, positive, positive, None, labels, 1)
        cell = search._search(data, None, rows_of)
        model = with_setting(search._template, cell)
        if search.cv_method_ != "leave-one-out":
            search.best_estimator_ = model.fit(bank._X, positive, subclass_labels=labels)
            return search
        rows = rows_of(model, data)
        groups = rows.groups(cell.n_subclasses)
        engine = self._engines[cell.gamma][self.ridges.index(cell.regularization)]
        found = rows.solve(engine, groups, cell.n_components)
        if isinstance(model, KernelPCSDA):
            best = _kernel_kept(model, bank, rows.kernel, found, rows.moved, groups)
        else:
            means = group_means(bank._X, groups, np.bincount(groups).astype(np.float64), None)
            wide = rows.centred if rows.wide else None
            best = _kept(
                model, bank, groups, _learned(model, found, groups, means, engine.ridge, wide)
            )
        search.best_estimator_ = best
        return search


SOURCES: dict[str, Any] = {"linear": LinearSource, "kernel": KernelSource, "search": SearchSource}

"""Left-out scores of every setting of a grid, from as few factorisations as it takes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state

from . import validation
from .calibration import Calibration, fit_calibration
from .core import dual, linalg, shared
from .core import model as models
from .core.linalg import Array, SingularMatrixError
from .kernel_estimators import KernelPCSDA, feature_ridge, not_definite
from .kernels import check_memory, training_matrix


@dataclass(frozen=True)
class Cell:
    """One setting of the grid."""

    n_subclasses: int
    n_components: int
    regularization: float
    gamma: Any = None


@dataclass(frozen=True)
class Data:
    """Training rows with all that goes along with them."""

    X: Any
    y: Any
    positive: NDArray[np.bool_]
    weights: Array | None
    subclass_labels: Any
    index: int
    pairwise: bool = False

    def counted(self) -> Data:
        """Without the rows of weight zero, which take no part."""
        if self.weights is None or self.weights.all():
            return self
        return self.take(np.flatnonzero(self.weights))

    def take(self, rows: NDArray[np.intp]) -> Data:
        """Only these rows."""
        labels = None if self.subclass_labels is None else np.asarray(self.subclass_labels)[rows]
        weights = None if self.weights is None else self.weights[rows]
        X = self.X[np.ix_(rows, rows)] if self.pairwise else self.X[rows]
        part = (self.y[rows], self.positive[rows], weights, labels, self.index, self.pairwise)
        return Data(X, *part)

    def log_odds(self, priors: Any) -> float:
        """Prior log odds of the class of interest."""
        weight = np.ones(len(self.X)) if self.weights is None else self.weights
        share = weight[self.positive].sum() / weight.sum()
        shares = np.array([1 - share, share])
        order = 1 if self.index == 1 else -1
        prior = validation.check_priors(priors, shares[::order])[::order]
        return float(np.log(prior[1] / prior[0]))


def with_setting(template: Any, cell: Cell) -> Any:
    """The estimator at one setting."""
    model = clone(template)
    last = f"{model.steps[-1][0]}__" if isinstance(model, Pipeline) else ""
    settings = ("n_subclasses", "n_components", "regularization")
    model.set_params(**{last + name: getattr(cell, name) for name in settings})
    if cell.gamma is not None:
        owners = [""] if not last else [f"{n}__" for n, s in model.steps if hasattr(s, "gamma")]
        if not owners:
            raise ValueError("gamma is given, but no step of the pipeline has a gamma")
        model.set_params(**{f"{owners[-1]}gamma": cell.gamma})
    return model


def left_out_scores(
    template: Any,
    data: Data,
    grid: list[Cell],
    tasks: Any,
    parallel: Parallel,
    make_rows: Any = None,
) -> Iterator[tuple[list[int], Any, Array]]:
    """Yield indices of settings, test rows (None: the training rows, left out) and scores.

    `make_rows(model, data, others, seed)` may bring rows that are factorised already.
    """
    for train, test in tasks:
        part = data.take(train) if test is not None else data
        for gamma in dict.fromkeys(cell.gamma for cell in grid):
            numbers = [i for i, cell in enumerate(grid) if cell.gamma == gamma]
            model = with_setting(template, grid[numbers[0]])
            rows, others = part.X, None
            if test is not None:
                others = data.X[np.ix_(test, train)] if data.pairwise else data.X[test]
            if isinstance(model, Pipeline):
                maps = model[:-1].fit(rows, part.y)
                rows = maps.transform(rows)
                others = None if test is None else maps.transform(others)
                model = model[-1]
            fold = Data(rows, part.y, part.positive, part.weights, part.subclass_labels, part.index)
            seed = check_random_state(model.random_state).randint(2**31 - 1)
            kind = KernelRows if isinstance(model, KernelPCSDA) else LinearRows
            if test is None and make_rows is not None:  # those of a fold are not all rows
                kind = make_rows
            source = kind(model, fold, others, seed)
            for chosen, values in _one_fold(source, grid, numbers, parallel):
                yield chosen, test, values


def _one_fold(
    source: Any, grid: list[Cell], numbers: list[int], parallel: Parallel
) -> Iterator[tuple[list[int], Array]]:
    """Scores of all settings with one bandwidth on one set of training rows."""
    counts = list(dict.fromkeys(grid[i].n_subclasses for i in numbers))
    groups = dict(zip(counts, parallel(delayed(source.groups)(k) for k in counts), strict=True))
    ridges = list(dict.fromkeys(grid[i].regularization for i in numbers))
    for ridge, engine in zip(ridges, source.engines(ridges), strict=True):
        chosen = [i for i in numbers if grid[i].regularization == ridge]
        dims = {
            k: [grid[i].n_components for i in chosen if grid[i].n_subclasses == k] for k in counts
        }
        paths = parallel(delayed(source.path)(engine, groups[k], dims[k]) for k in counts)
        values = {
            (k, d): row for k, path in zip(counts, paths, strict=True) for d, row in path.items()
        }
        missing = np.full(source.n_scored, np.nan)
        cells = [(grid[i].n_subclasses, grid[i].n_components) for i in chosen]
        yield chosen, np.stack([values.get(cell, missing) for cell in cells])


class _Rows:
    """Training rows of one fold that every setting is solved on."""

    def __init__(self, model: Any, data: Data, others: Any, seed: int) -> None:
        self.model, self.data, self.others, self.seed = model, data, others, seed
        self.log_odds = data.log_odds(model.priors)
        self.n_scored = len(data.X) if others is None else len(others)
        self.clusters: Callable[[int], NDArray[np.intp]] | None = None
        self.made: list[Any] = []

    def of_label(
        self, model: Any, data: Data, clusters: Callable[[int], NDArray[np.intp]], made: list[Any]
    ) -> Self:
        """Return the same rows with one label of a bank as the class of interest.

        `clusters` of all rows and the engines `made` for every ridge are those of all labels.
        """
        rows = copy(self)
        rows.model, rows.data, rows.clusters, rows.made = model, data, clusters, made
        rows.log_odds = data.log_odds(model.priors)
        return rows

    def groups(self, count: int) -> NDArray[np.intp]:
        """Divide the negatives into `count` subclasses."""
        if self.clusters is None:
            return self._divide(clone(self.model).set_params(n_subclasses=count, verbose=False))
        clusters = np.where(self.data.positive, -1, self.clusters(count))
        return np.unique(clusters, return_inverse=True)[1]

    def engines(self, ridges: list[float]) -> Iterator[Any]:
        """Yield what solves any partition at each ridge."""
        return iter(self.made) if self.made else self._factorise(ridges)

    @abstractmethod
    def _divide(self, model: Any) -> NDArray[np.intp]:
        """Groups as the estimator makes them."""

    @abstractmethod
    def _factorise(self, ridges: list[float]) -> Iterator[Any]:
        """Factorise the rows at each ridge."""

    @abstractmethod
    def solve(self, engine: Any, groups: NDArray[np.intp], d: int) -> dual.DualSubspace:
        """Solve one partition."""

    @abstractmethod
    def project(self, found: dual.DualSubspace) -> Array:
        """Coordinates of the other rows."""

    def path(self, engine: Any, groups: NDArray[np.intp], dims: list[int]) -> dict[int, Array]:
        """Decision values at every d of one partition: left-out rows, or the other rows."""
        data, model = self.data, self.model
        found = self.solve(engine, groups, max(dims))
        z = None if self.others is None else self.project(found)
        values = {}
        density = None
        for d in dims:
            if d > len(found.eigenvalues):
                continue
            part = found.leading(d)
            density, scores = models.estimate(
                part.projected,
                np.eye(d),
                part.left,
                groups,
                data.weights,
                model._rule,
                density,
            )
            calibration = Calibration()
            if model.calibrate and scores is not None and density.offset is None:
                calibration = self._calibration(scores, groups)
            if z is not None:
                scores = density.log_ratio(z[:, :d])
            if scores is not None:
                values[d] = calibration(scores) + self.log_odds
        return values

    def _calibration(self, scores: Array, groups: NDArray[np.intp]) -> Calibration:
        """Calibrate on the rows that are not alone in their group, as the estimators do."""
        seen = np.bincount(groups)[groups] > 1
        positive, weights = self.data.positive[seen], self.data.weights
        if positive.all() or not positive.any():
            return Calibration()
        return fit_calibration(scores[seen], positive, None if weights is None else weights[seen])


class LinearRows(_Rows):
    """Linear rows: one eigendecomposition for all ridges, or Gram factors if D > N."""

    def __init__(self, model: Any, data: Data, others: Any, seed: int) -> None:
        super().__init__(model, data, others, seed)
        self.centred, self.origin, self.variance = shared.centre(data.X, data.weights)
        self.wide = data.X.shape[1] > data.X.shape[0]

    def _divide(self, model: Any) -> NDArray[np.intp]:
        data = self.data
        labels, weights = data.subclass_labels, data.weights
        groups: NDArray[np.intp] = model._groups(data.X, data.positive, labels, weights, self.seed)[
            0
        ]
        return groups

    def _factorise(self, ridges: list[float]) -> Iterator[Any]:
        absolute = [models.ridge_of(self.variance, ridge) for ridge in ridges]
        weights = self.data.weights
        try:
            if self.wide:
                root = 1.0 if weights is None else np.sqrt(weights)[:, None]
                gram, trace = models.lifted_gram(self.centred * root, weights)
                for ridge in absolute:
                    factor = models.gram_factor(gram.copy(), trace, ridge)
                    yield shared.DualShared(factor, ridge, True, weights)
                return
            # Beyond two ridges one eigendecomposition is cheaper than a factor for each.
            whites = shared.whiten_path(self.centred, absolute, weights)
            if len(ridges) <= 2:
                whites = (shared.whiten(self.centred, ridge, weights) for ridge in absolute)
            for ridge, white in zip(absolute, whites, strict=True):
                yield shared.PrimalShared(white, ridge, weights)
        except SingularMatrixError as error:
            raise models.singular_scatter(len(self.origin), min(ridges)) from error

    def solve(self, engine: Any, groups: NDArray[np.intp], d: int) -> dual.DualSubspace:
        """Solve one partition, on its own where the shared solution would be rounding."""
        try:
            return engine.solve(groups, d, True)
        except SingularMatrixError as error:
            singular = models.singular_scatter(len(self.origin), engine.ridge / self.variance)
            if self.wide:
                raise singular from error
        try:
            return models.direct(self.centred, groups, self.data.weights, engine.ridge, d)
        except SingularMatrixError as error:
            raise singular from error

    def project(self, found: dual.DualSubspace) -> Array:
        """Coordinates of the other rows."""
        columns = self.centred.T @ found.coefficients if self.wide else found.coefficients
        weight = self.data.positive * (1.0 if self.data.weights is None else self.data.weights)
        middle = (weight / weight.sum()) @ self.centred
        return (self.others - self.origin - middle) @ columns


class KernelRows(_Rows):
    """Rows of a kernel: one Cholesky factor for each ridge."""

    def __init__(self, model: Any, data: Data, others: Any, seed: int) -> None:
        super().__init__(model, data, others, seed)
        self.kernel = model._settled_kernel(data.X, data.positive, seed)
        check_memory(len(data.X), 4)
        self.matrix = training_matrix(self.kernel, data.X)
        self.values: Any = None if others is None else self.kernel(others, data.X)

    def _divide(self, model: Any) -> NDArray[np.intp]:
        data = self.data
        labels, weights = data.subclass_labels, data.weights
        groups: NDArray[np.intp] = model._divide(
            data.X, self.matrix, data.positive, labels, weights, self.seed
        )
        return groups

    def _factorise(self, ridges: list[float]) -> Iterator[Any]:
        weights = self.data.weights
        absolutes = [feature_ridge(self.matrix, weights, ridge) for ridge in ridges]
        self.moved = dual.move_origin(self.matrix, weights, absolutes[0] / ridges[0])
        if weights is not None:
            self.matrix *= np.sqrt(weights)[:, None]
            self.matrix *= np.sqrt(weights)
        spare = np.empty_like(self.matrix)  # one for all ridges: fresh memory costs time
        for ridge, absolute in zip(ridges, absolutes, strict=True):
            try:
                factor = linalg.cholesky_in_place(self.matrix.copy(), absolute)
            except SingularMatrixError as error:
                raise not_definite(ridge) from error
            np.copyto(spare, factor.T)
            diagonal = dual.inverse_diagonal(spare.T)
            yield shared.DualShared(factor, absolute, True, weights, diagonal)

    def solve(self, engine: Any, groups: NDArray[np.intp], d: int) -> dual.DualSubspace:
        """Solve one partition."""
        return engine.solve(groups, d, True)

    def project(self, found: dual.DualSubspace) -> Array:
        """Coordinates of the other rows."""
        origin = found.origin + self.moved @ found.coefficients
        return self.values @ found.coefficients - origin

"""Left-out scores of every setting in a grid, from as few factorisations as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline

from ..core.factor import factor_shared
from ..core.fit import Rule, complete
from ..core.gram import WideRows, of_kernel
from ..core.linalg import Array, Ints, Mask
from ..core.loo import Leave
from ..core.subspace import Factor
from ..kernels import (
    Kernel,
    check_memory,
    finite_diagonal,
    naming_far_rows,
    settled_kernel,
    squared_distances,
    training_matrix,
)
from .dual import divide_features, divide_inputs
from .kernel import KernelPCSDA
from .linear import PCSDA
from .parameters import check_priors
from .rows import rows_of, some
from .steps import draw_seed, is_curved, rule_of
from .training import divide

# Up to this many rows, squared distances are stored for all bandwidths. Beyond that, storing them
# saves little work but takes much memory.
MOST_SQUARES = 2000


@dataclass(frozen=True)
class Cell:
    """One setting in the grid."""

    n_subclasses: int
    n_components: int
    regularization: float
    gamma: Any = None

    @property
    def size(self) -> tuple[int, int]:
        """The number of subclasses K and the dimension d."""
        return self.n_subclasses, self.n_components

    @property
    def strength(self) -> tuple[float, Any]:
        """The ridge and bandwidth, which determine the factorisation."""
        return self.regularization, self.gamma


@dataclass(frozen=True)
class Data:
    """Training rows with their labels, weights and groups.

    The last four attributes are caches, which all bandwidths, ridges and steps of a search share.

    Attributes
    ----------
    inputs : dict
        The division of the rows into groups in input space, for each K.
    squares : list
        Squared distances between the rows and, if other rows are to be scored, from those rows to
        the training rows.
    wide : list
        Inner products of wide rows.
    folds : dict
        The data of each fold.
    """

    X: Any
    y: Any
    positive: Mask
    weights: Array | None
    subclass_labels: Any
    index: int
    pairwise: bool = False
    together: Ints | None = None
    inputs: dict[int, Ints] = field(default_factory=dict)
    squares: list[Array] = field(default_factory=list)
    wide: list[WideRows] = field(default_factory=list)
    folds: dict[int, Data] = field(default_factory=dict)

    def fold(self, number: int, rows: Ints) -> Data:
        """Return the training data of a fold. If X is small, they are kept with their caches."""
        if len(self.X) > MOST_SQUARES:
            return self.take(rows)
        if number not in self.folds:
            self.folds[number] = self.take(rows)
        return self.folds[number]

    def mapped(self, X: Any) -> Data:
        """Return the data with another X, such as the output of a map, and empty caches."""
        known = (self.y, self.positive, self.weights, self.subclass_labels, self.index)
        return Data(X, *known, together=self.together)

    def counted(self) -> Data:
        """Return the data without the rows of weight zero."""
        if self.weights is None or self.weights.all():
            return self
        return self.take(np.flatnonzero(self.weights))

    def take(self, rows: Ints) -> Data:
        """Return the data of the given rows only, with empty caches."""
        labels = None if self.subclass_labels is None else np.asarray(self.subclass_labels)[rows]
        X = self.X[np.ix_(rows, rows)] if self.pairwise else self.X[rows]
        part = X, self.y[rows], self.positive[rows], some(self.weights, rows), labels
        return Data(*part, self.index, self.pairwise, some(self.together, rows))

    def log_odds(self, priors: str | Sequence[float] | None) -> float:
        """Return the prior log odds of the class of interest."""
        weight = np.ones(len(self.X)) if self.weights is None else self.weights
        share = weight[self.positive].sum() / weight.sum()
        shares = np.array([1 - share, share])
        order = 2 * self.index - 1
        prior = check_priors(priors, shares[::order])[::order]
        return float(np.log(prior[1] / prior[0]))


def final_of(template: BaseEstimator) -> Any:
    """Return the final estimator of a pipeline, or the estimator itself."""
    return template[-1] if isinstance(template, Pipeline) else template


def seeded_of(template: BaseEstimator) -> Any:
    """Return the estimator with a `random_state` inside pipelines, searches and mixtures."""
    template = final_of(template)
    inner = getattr(template, "estimator", None)
    return template if inner is None or hasattr(template, "random_state") else seeded_of(inner)


def prefix_of(template: BaseEstimator) -> str:
    """Return the prefix of the final estimator's parameter names, empty without a pipeline."""
    return f"{template.steps[-1][0]}__" if isinstance(template, Pipeline) else ""


def fit_last(model: Any, X: Any, y: Any, given: dict[str, Any]) -> Any:
    """Fit an estimator or a pipeline, whose last step gets the arguments in `given`.

    A pipeline takes them by the name of its last step, which metadata routing does not know.
    """
    last = prefix_of(model)
    with config_context(enable_metadata_routing=False) if last else nullcontext():
        return model.fit(X, y, **{last + name: value for name, value in given.items()})


def with_setting(template: BaseEstimator, cell: Cell) -> Any:
    """Return a copy of the estimator or pipeline with one setting applied."""
    model, last = clone(template), prefix_of(template)
    settings = ("n_subclasses", "n_components", "regularization")
    model.set_params(**{last + name: getattr(cell, name) for name in settings})
    if cell.gamma is not None:
        owners = [""] if not last else [f"{n}__" for n, s in model.steps if hasattr(s, "gamma")]
        if not owners:
            raise ValueError("gamma is given, but no step of the pipeline has a gamma")
        model.set_params(**{f"{owners[-1]}gamma": cell.gamma})
    return model


@dataclass(frozen=True)
class GridRows:
    """Training rows for one fold, shared by all settings with the same bandwidth.

    Attributes
    ----------
    rule : Rule
    log_odds : float
        Prior log odds of the class of interest.
    groups : function of K
        Divides the rows into groups, with K subclasses.
    factors : function of a list of ridges
        Yields a factor for each ridge. A factor can solve the problem for any division into groups.
    others : array or None
        Rows to score, or their kernel values; None means to score the training rows, each left out.
    leave : Leave
        Which rows are left out together.
    kernel : Kernel or None
    """

    rule: Rule
    log_odds: float
    groups: Callable[[int], Ints]
    factors: Callable[[list[float]], Iterator[Factor]]
    others: Any
    leave: Leave
    kernel: Kernel | None = None

    def path(self, factor: Factor, groups: Ints, dims: list[int]) -> dict[int, Array]:
        """Return the decision values of the rows to score for one division, by dimension d.

        Values of `dims` that exceed the number of axes are skipped.
        """
        found = factor.solve(groups, max(dims), leave_out=self.leave)
        z = None if self.others is None else found.project(self.others)
        values, fitted = {}, None
        for d in dims:
            if d > len(found.eigenvalues):
                continue
            fitted = complete(found.leading(d), self.rule, near=fitted)
            scores = fitted.left_out
            if z is not None:
                scores = fitted.calibration(fitted.density.views(z[:, :d]))
            if scores is not None:
                values[d] = scores + self.log_odds
        return values


def _kernel_values(kernel: Kernel, data: Data, others: Any) -> tuple[Array, Array | None]:
    """Return the kernel matrix of the rows in `data`, and the kernel values of `others` with them.

    If `others` is None, so is the second result.
    """
    X = data.X
    if kernel.metric != "rbf" or len(X) > MOST_SQUARES:
        check_memory(len(X), 4)
        return training_matrix(kernel, X), None if others is None else kernel(others, X)
    if not data.squares:
        check_memory(len(X), 5)
        data.squares.append(squared_distances(X))
        if others is not None:
            data.squares.append(squared_distances(X, others).T)
    matrix = finite_diagonal(kernel.of_squares(data.squares[0]))
    return matrix, None if others is None else kernel.of_squares(data.squares[1])


MakeRows = Callable[[Any, Data, Any, int], GridRows]


def grid_rows(model: PCSDA | KernelPCSDA, data: Data, others: Any, seed: int) -> GridRows:
    """Prepare the training rows of a fold for all settings with the bandwidth of `model`.

    `others` are the rows to score. If it is None, each training row is left out and scored.
    """
    X, weights = data.X, data.weights
    whole = rows_of(X, data.positive, weights, seed)
    if not isinstance(model, KernelPCSDA) and X.shape[1] > X.shape[0]:
        if not data.wide:
            data.wide.append(WideRows.of(X, weights))
        whole = replace(whole, wide=data.wide[0])
    kernel, values = None, others

    def at(count: int) -> Any:
        one = copy(model)  # a shallow copy, because it is not fitted and `clone` is slow
        one.n_subclasses, one.verbose = count, False
        return one

    if isinstance(model, KernelPCSDA):
        kernel = settled_kernel(model, X, data.positive, seed)
        matrix, values = _kernel_values(kernel, data, others)

    def groups(count: int) -> Ints:
        if count not in data.inputs and kernel is None:
            data.inputs[count] = divide(at(count), whole, data.subclass_labels)[0]
        elif count not in data.inputs:
            # For k-means, minus half the squared distances serve as inner products.
            known = data.squares and np.isfinite(data.squares[0].max())
            products = -0.5 * data.squares[0] if known else None
            data.inputs[count] = divide_inputs(at(count), whole, data.subclass_labels, products)
        inputs = data.inputs[count]
        if kernel is None:
            return inputs
        return divide_features(at(count), whole, matrix, data.subclass_labels, inputs)

    def factors(ridges: list[float]) -> Iterator[Factor]:
        if kernel is None:
            yield from factor_shared(X if whole.wide is None else whole.wide, ridges, weights)
        else:
            with naming_far_rows(kernel, X):
                yield from of_kernel(matrix, ridges, weights)  # overwrites the matrix

    leave, log_odds = Leave(together=data.together), data.log_odds(model.priors)
    rule = replace(rule_of(model), columns=np.inf if is_curved(model) else float(X.shape[1]))
    return GridRows(rule, log_odds, groups, factors, values, leave, kernel)


def left_out_scores(
    template: BaseEstimator,
    data: Data,
    grid: list[Cell],
    tasks: Any,
    parallel: Parallel,
    make_rows: MakeRows = grid_rows,
) -> Iterator[tuple[list[int], Any, Array]]:
    """Yield the left-out scores of all settings in a grid, a few settings at a time.

    Each item has the numbers of the settings, the numbers of the test rows, and the scores of these
    rows for each setting. Test rows of None mean that each training row was left out. `make_rows`
    prepares each fold; it may return rows that are already factorised.
    """
    of_gamma: dict[Any, list[int]] = {}
    for number, cell in enumerate(grid):
        of_gamma.setdefault(cell.gamma, []).append(number)
    models = {gamma: with_setting(template, grid[own[0]]) for gamma, own in of_gamma.items()}
    drawn = clone(template)  # the user's random generator must not advance
    seed = draw_seed(final_of(drawn).random_state)
    for fold, (train, test) in enumerate(tasks):
        part = data.fold(fold, train) if test is not None else data
        for gamma, numbers in of_gamma.items():
            model, known, others = models[gamma], replace(part, pairwise=False), None
            if test is not None:
                others = data.X[np.ix_(test, train)] if data.pairwise else data.X[test]
            if isinstance(model, Pipeline) and len(model) > 1:
                maps = model[:-1].fit(part.X, part.y)
                known = part.mapped(maps.transform(part.X))
                others = None if test is None else maps.transform(others)
            source = make_rows(final_of(model), known, others, seed)
            for chosen, values in _one_fold(source, grid, numbers, parallel):
                yield chosen, test, values


def _one_fold(
    source: GridRows, grid: list[Cell], numbers: list[int], parallel: Parallel
) -> Iterator[tuple[list[int], Array]]:
    """Yield the scores of one fold for the settings in `numbers`, one ridge at a time.

    These settings have the same bandwidth. Each item has the numbers of some settings and their
    scores.
    """
    counts = list(dict.fromkeys(grid[i].n_subclasses for i in numbers))
    groups = dict(zip(counts, parallel(delayed(source.groups)(k) for k in counts), strict=True))
    ridges = list(dict.fromkeys(grid[i].regularization for i in numbers))
    for ridge, factor in zip(ridges, source.factors(ridges), strict=True):
        chosen = [i for i in numbers if grid[i].regularization == ridge]
        dims = {
            k: [grid[i].n_components for i in chosen if grid[i].n_subclasses == k] for k in counts
        }
        _prepare(factor)
        paths = parallel(delayed(source.path)(factor, groups[k], dims[k]) for k in counts)
        values = {
            (k, d): row for k, path in zip(counts, paths, strict=True) for d, row in path.items()
        }
        scored = groups[counts[0]] if source.others is None else source.others
        missing = np.full(len(scored), np.nan)
        yield chosen, np.stack([values.get(grid[i].size, missing) for i in chosen])


def _prepare(factor: Any) -> None:
    """Compute the cached attributes of a factor before several threads use the factor at once."""
    for name in ("norms", "diagonal"):
        getattr(factor, name, None)

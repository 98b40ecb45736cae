"""CSDA: the criterion in which each negative is its own subclass (MATH 6, 13, 14)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from . import csda_dual, csda_solvers, krylov, linalg
from .csda_dual import Centred, FeaturePart, Solved, is_coarse
from .direct import keep_leading, linear_subspace, out_of_row_span
from .kernel_matrix import FeatureFactor, features_of, kernel_ridge, not_definite
from .linalg import Array, Floats, Ints, SingularMatrixError
from .loo import Leave
from .scatter import Grouping, GroupScatter
from .solvers import Projection
from .spread import centred, naming_the_ridge, ridge_of
from .subspace import Factor, Subspace


@dataclass(frozen=True)
class Criterion:
    """The CSDA problem and its solver.

    Attributes
    ----------
    solver : str
        Name of the solver, as in :class:`pcsda.CSDA`. "auto" means "eigen", or "trace_ratio" if the
        reference vector is learned.
    regularization : float
    seed : int
        Seed for the random targets.
    learn_reference : bool
        Whether to optimise the vector about which both scatter matrices are taken; otherwise it is
        the positive mean.
    """

    solver: str
    regularization: float
    seed: int = 0
    learn_reference: bool = False

    @property
    def by_ratio(self) -> bool:
        """Whether the solver maximises the trace ratio itself."""
        return self.solver == "trace_ratio" or self.learn_reference

    @property
    def by_inner_products(self) -> bool:
        """Whether the solver needs only inner products; a regression needs the rows themselves."""
        return self.solver not in csda_solvers.TARGETS

    def targets(self, groups: Ints, d: int, weights: Array | None) -> Array:
        """Return `d` regression targets for the negatives, as columns."""
        rng = np.random.default_rng(self.seed)
        counts = np.bincount(groups, weights).astype(np.float64)
        lengths = csda_solvers.target_lengths(self.solver, counts, d)
        return csda_solvers.label_targets(groups, d, rng, weights) * lengths


@dataclass(frozen=True)
class CSDAFactor:
    """A factor that solves CSDA for rows in memory, with all negatives in one group.

    This factor cannot leave rows out, so `solve` ignores `leave_out`.
    """

    X: Floats
    criterion: Criterion
    weights: Array | None = None

    def solve(
        self, groups: Ints, n_components: int | None = None, *, leave_out: Leave | None = None
    ) -> Subspace:
        """Solve CSDA; `groups` holds 0 for positives and 1 for negatives."""
        X, wide = self.X, self.X.shape[1] > len(self.X)
        most = min(int(np.sum(groups > 0)), *X.shape)
        if wide:
            middle, origin, variance = centred(X, self.weights)
            ridge = ridge_of(variance, self.criterion.regularization)
            if self.criterion.by_inner_products and not is_coarse(len(X) * variance, ridge):
                found = self._by_gram(middle, groups, ridge, n_components, most)
                assert found.means is not None
                means = found.means + origin
                return replace(found, means=means, origin=means[0] @ found.coefficients)
            X, basis = linalg.row_span(middle)
        scatter = GroupScatter.from_samples(X, groups, weights=self.weights)
        d = most if n_components is None else min(n_components, most)
        projection = None
        if self.criterion.solver in csda_solvers.TARGETS:
            ridge = ridge_of(scatter.total_variance, self.criterion.regularization)
            targets = self.criterion.targets(groups, d, self.weights)
            with naming_the_ridge(X.shape[1], self.criterion.regularization):
                projection = csda_solvers.by_targets(
                    self.criterion.solver, X, groups, scatter, ridge, targets, self.weights
                )
        found = csda_subspace(scatter, self.criterion, n_components, most, projection)
        return out_of_row_span(found, origin, basis) if wide else found

    def _by_gram(
        self, X: Array, groups: Ints, ridge: float, n_components: int | None, most: int
    ) -> Subspace:
        """Solve CSDA for centred wide rows from inner products, in ``N^2 D`` operations."""
        division = Grouping.of(groups, self.weights)
        means, root = division.means(X), np.sqrt(division.weight)
        rows = X - means[0]
        scaled = rows if self.weights is None else rows * root[:, None]
        inner = Centred(scaled @ scaled.T, groups, ridge, root)
        with naming_the_ridge(X.shape[1], self.criterion.regularization):
            solved = solve_centred(inner, self.criterion, n_components, most)
        found = csda_dual.subspace_of(inner, solved, n_components, most)
        return replace(found, coefficients=rows.T @ found.coefficients, means=means).signed()


@dataclass
class KernelCSDAFactor:
    """A factor that solves CSDA for a kernel matrix, with all negatives in one group.

    `solve` overwrites the matrix. No rows can be left out, so `solve` ignores `leave_out`.

    Attributes
    ----------
    matrix : array of shape (N, N)
    criterion : Criterion
    weights : array of shape (N,) or None
    definite : bool
        Whether the matrix is known to be positive definite; otherwise `solve` checks it.
    near : array of shape (N_n, d) or None
        Starting point of the search: the axes for a larger set that contains these rows, as
        coefficients of the negatives.
    whole : tuple of Centred and Solved, or None
        The centred matrix and its solution. `solve` sets them so that models of a subset of the
        rows can reuse them. None if the solution was found from features and cannot be reused.
    """

    matrix: Array
    criterion: Criterion
    weights: Array | None = None
    definite: bool = False
    near: Array | None = None
    whole: tuple[Centred, Solved] | None = field(default=None, init=False)

    def solve(
        self, groups: Ints, n_components: int | None = None, *, leave_out: Leave | None = None
    ) -> Subspace:
        """Solve CSDA; `groups` holds 0 for positives and 1 for negatives."""
        matrix, weights, regularization = self.matrix, self.weights, self.criterion.regularization
        ridge = kernel_ridge(matrix, weights, regularization)
        root = np.ones(len(matrix)) if weights is None else np.sqrt(weights)
        coarse = is_coarse(float(root**2 @ matrix.diagonal()), ridge)
        if coarse or not self.criterion.by_inner_products:
            features, pivots, triangle = features_of(matrix, weights, regularization)
            inner = CSDAFactor(features, self.criterion, weights)
            return FeatureFactor(inner, pivots, triangle).solve(groups, n_components)
        share = np.where(groups == 0, root**2, 0.0)
        share /= share.sum()
        means: Array = matrix @ share
        matrix -= means
        matrix -= (means - share @ means)[:, None]
        if weights is not None:
            matrix *= root
            matrix *= root[:, None]
        most = min(int(np.sum(groups > 0)), len(matrix) - 1)
        rows = Centred(matrix, groups, ridge, root, self.near)
        try:
            if not self.definite:
                linalg.cholesky(matrix, ridge)
            solved = solve_centred(rows, self.criterion, n_components, most)
        except SingularMatrixError as error:
            raise not_definite(regularization) from error
        self.whole = rows, solved
        found = csda_dual.subspace_of(rows, solved, n_components, most)
        found = replace(found, origin=means @ found.coefficients)
        # Signs are set by the mean, because coefficients depend on how often a row occurs.
        return found.flipped(np.where(found.projected.delta[0] < 0, -1.0, 1.0))

    def part(self, train: Ints) -> tuple[Factor, Callable[[Ints], Array]] | None:
        """Return a factor for the rows `train`, and a function that prepares rows for scoring.

        Call this method after `solve`. The factor starts from the solution for all rows. It needs
        no new kernel values and, for the trace ratio, no new factorisation. The feature space stays
        the same, with its origin at the mean of all positives. The function takes row numbers and
        returns these rows in the form that the factor's models can score. The method returns None
        if the solution for all rows cannot be reused.
        """
        if self.whole is None:
            return None
        rows, solved = self.whole
        root, weights = rows.root, None if self.weights is None else self.weights[train]
        if solved.features is not None and solved.directions is not None:
            near = solved.directions
            if krylov.pays(*near.shape):
                features = solved.features / root[:, None]
                settings = self.criterion.regularization, self.criterion.learn_reference
                part = FeaturePart(features[train], *settings, weights, near)
                return part, lambda test: features[test]
        near = solved.axes.components.T[train[rows.groups[train] > 0]]
        own = root[train]
        matrix = rows.matrix[np.ix_(train, train)] / own / own[:, None]
        made = KernelCSDAFactor(matrix, self.criterion, weights, definite=True, near=near)
        return made, lambda test: rows.matrix[np.ix_(test, train)] / own / root[test][:, None]


def solve_centred(
    rows: Centred, criterion: Criterion, n_components: int | None, most: int
) -> Solved:
    """Solve CSDA, with at most `most` axes, from inner products of rows about the positive mean."""
    d = most if n_components is None else min(n_components, most)
    if criterion.by_ratio:
        return csda_dual.trace_ratio(rows, d, criterion.learn_reference)
    return csda_dual.eigen(rows, d)


def csda_subspace(
    scatter: GroupScatter,
    criterion: Criterion,
    n_components: int | None,
    most: int | None = None,
    projection: Projection | None = None,
) -> Subspace:
    """Solve CSDA from group statistics alone, with at most `most` axes.

    Solvers that regress on targets need the rows, so for these solvers the caller must provide the
    `projection`.
    """
    width = scatter.means.shape[1]
    most = width if most is None else most
    ridge = ridge_of(scatter.total_variance, criterion.regularization)
    d = None if n_components is None else min(n_components, most)
    if projection is None:
        with naming_the_ridge(width, criterion.regularization):
            projection = _solved_scatter(scatter, criterion, ridge, d, most)
    found = linear_subspace(scatter, keep_leading(projection, d, most), ridge)
    ridged = found.ridged - found.projected.within  # the negatives are not in the denominator
    delta = scatter.counts[1:] @ found.projected.delta / scatter.n_negative
    reference = -projection.step * delta if projection.step else None
    return replace(found, ridged=ridged, single_negatives=True, reference=reference)


def _solved_scatter(
    scatter: GroupScatter, criterion: Criterion, ridge: float, d: int | None, most: int
) -> Projection:
    """Find the `d` leading directions, by default all, from group statistics alone."""
    if criterion.by_ratio:
        learn = criterion.learn_reference
        return csda_solvers.trace_ratio(scatter, ridge, d or most, learn_reference=learn)
    if criterion.solver in csda_solvers.TARGETS:
        raise ValueError(f"solver={criterion.solver!r} needs the samples; use 'eigen' or 'lowrank'")
    solve = csda_solvers.lowrank if criterion.solver == "lowrank" else csda_solvers.eigen
    return solve(scatter, ridge, d)

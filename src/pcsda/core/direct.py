"""Factors that compute new statistics for each division of the rows into groups."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from . import float32, linalg, solvers
from .gram import wide
from .leaver import Leaver
from .linalg import Array, Floats, Ints, TooFewRowsError
from .loo import EVERY, Leave, LeftOut
from .scatter import Grouping, GroupScatter
from .solvers import Projection
from .spread import naming_the_ridge, ridge_of
from .subspace import Subspace

# If a left-out row has a gap (one minus its leverage) below SMALL_GAP, scatter matrices lose
# digits. The Gram matrix keeps these digits if there are fewer than FEW_ROWS rows per feature.
SMALL_GAP, FEW_ROWS = 1e-3, 3
PCSDA_SOLVERS = {"cholesky": solvers.cholesky, "eigen": solvers.eigen, "spectral": solvers.spectral}


def keep_leading(projection: Projection, n_components: int | None, most: int) -> Projection:
    """Keep the first `n_components` axes, or all axes if None, but at most `most`.

    The `rank` of the result is at most `most`, too.
    """
    bound = min(most, projection.rank)
    if bound == 0:
        raise solvers.no_direction()
    return replace(projection.leading(min(n_components or bound, bound)), rank=bound)


def solve_scatter(
    scatter: GroupScatter, solver: str, ridge: float, regularization: float
) -> Projection:
    """Solve PCSDA from group statistics and return all axes, which a :class:`Leaver` needs."""
    solvers.require_apart(scatter.means, scatter.total_variance)
    with naming_the_ridge(scatter.means.shape[1], regularization):
        projection = PCSDA_SOLVERS[solver](scatter, ridge)
    return keep_leading(projection, None, min(scatter.n_subclasses, scatter.means.shape[1]))


def scatter_subspace(
    scatter: GroupScatter, solver: str, regularization: float, n_components: int | None
) -> tuple[Subspace, Projection, float]:
    """Solve PCSDA from group statistics alone, for example if rows are read in blocks.

    Returns the subspace, the projection on all axes, and the ridge. A :class:`Leaver` needs the
    projection and the ridge.
    """
    ridge = ridge_of(scatter.total_variance, regularization)
    projection = solve_scatter(scatter, solver, ridge, regularization)
    kept = keep_leading(projection, n_components, projection.rank)
    return linear_subspace(scatter, kept, ridge), projection, ridge


def linear_subspace(scatter: GroupScatter, projection: Projection, ridge: float) -> Subspace:
    """Return the subspace that a projection defines, given the group statistics of the rows."""
    components = projection.components
    projected = scatter.project(components)
    return Subspace(
        components.T,
        components @ scatter.means[0],
        projection.eigenvalues,
        projection.rank,
        projected,
        projected.intra + ridge * (components @ components.T),
        scatter.means,
    )


def out_of_row_span(found: Subspace, origin: Array, basis: Array) -> Subspace:
    """Convert a subspace from coordinates in the span of the rows to the columns of X.

    `basis` holds the basis of the span, and `origin` the point from which coordinates are measured.
    """
    assert found.means is not None
    means = found.means @ basis + origin
    coefficients = basis.T @ found.coefficients
    moved = replace(found, coefficients=coefficients, means=means, origin=means[0] @ coefficients)
    return moved.signed()


def null_space(X: Array, groups: Ints, weights: Array | None, n_components: int | None) -> Subspace:
    """Solve PCSDA for wide rows in the limit of a vanishing ridge (MATH 14).

    Problem: ``max w' S_n w`` over unit vectors w with ``S_I w = 0``. Along such a vector, each
    group is a point and the criterion is infinite, so the eigenvalues of S_n are returned instead.
    The solutions span the same space as the paper's ``(X')^+ V``. Without spread within groups,
    there is no density. Cost: two singular value decompositions of N x N matrices.
    """
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    solvers.require_apart(scatter.means, scatter.total_variance)
    residuals = X - scatter.means[groups]
    _, sizes, axes = np.linalg.svd(residuals, full_matrices=False)
    within = axes[: linalg.numerical_rank(sizes**2, len(X))]
    outside = scatter.delta - (scatter.delta @ within.T) @ within
    _, lengths, directions = np.linalg.svd(outside, full_matrices=False)
    noise = solvers.means_noise(directions.T, scatter.means)
    # Outside the span of the residuals, the means are accurate only up to their rounding error.
    noise = np.maximum(noise, linalg.RANK_TOLERANCE * len(X) * np.sum(scatter.delta**2))
    rank = solvers.count_axes(lengths**2, noise, len(X))
    projection = Projection(linalg.fix_signs(directions[:rank]), lengths[:rank] ** 2, rank)
    found = keep_leading(projection, n_components, scatter.n_subclasses)
    return linear_subspace(scatter, found, 0.0)


def is_close(left: LeftOut | None, shape: tuple[int, ...]) -> bool:
    """Return whether left-out rows lose digits because there are few rows per feature.

    `shape` holds the number of rows and the number of features.
    """
    return left is not None and left.gap < SMALL_GAP and shape[0] < FEW_ROWS * shape[1]


def with_digits(
    found: Subspace,
    X: Floats,
    groups: Ints,
    weights: Array | None,
    regularization: float,
    ridge: float,
    n_components: int | None,
    leave: Leave | None,
) -> Subspace:
    """Solve again with the Gram matrix if scatter matrices lose digits for left-out rows.

    With few rows per feature, leverages are close to one. Scatter matrices give the gap to one as a
    difference, while the Gram matrix gives it directly; see :class:`GramFactor`. `found` is the
    solution from scatter matrices at this `ridge`, and is returned if it is accurate enough.
    """
    if leave is not None and ridge > 0 and is_close(found.left, X.shape):
        with suppress(TooFewRowsError):  # the Gram matrix may be too close to singular
            gram = next(wide(X, [regularization], weights, [ridge]))
            return gram.solve(groups, n_components, leave_out=leave)
    return found


@dataclass(frozen=True)
class DirectFactor:
    """A factor for rows in memory that computes new statistics for each division into groups.

    Wide rows (D > N) are first expressed in a basis of their span. With `resample`, every subclass
    of negatives is replaced with the same number of random draws, a variant from the paper, and no
    row can be left out. Blocks of rows can never be left out. An absolute `ridge`, if given,
    overrides `regularization`.
    """

    X: Floats
    regularization: float
    weights: Array | None = None
    solver: str = "cholesky"
    resample: np.random.Generator | None = None
    ridge: float | None = None

    def solve(
        self, groups: Ints, n_components: int | None = None, *, leave_out: Leave | None = EVERY
    ) -> Subspace:
        """Find the axes in ``N D^2 + D^3/3`` operations; leaving rows out doubles the cost."""
        if self.X.shape[1] <= len(self.X):
            found, ridge = self._solve(self.X, groups, n_components, leave_out)
        else:
            origin = self.X.mean(axis=0, dtype=np.float64)
            coordinates, basis = linalg.row_span(self.X - origin)
            if self.regularization == 0 and self.resample is None:
                found = null_space(coordinates, groups, self.weights, n_components)
                return out_of_row_span(found, origin, basis)
            found, ridge = self._solve(coordinates, groups, None, leave_out)
            found = out_of_row_span(found, origin, basis)
            # Count the axes again in input space, where rows far from zero were rounded.
            assert found.means is not None
            rank = min(found.rank, solvers.count_apart(found.coefficients, found.means))
            if rank == 0:
                raise solvers.no_direction()
            found = replace(found.leading(min(n_components or rank, rank)), rank=rank)
        rest = self.weights, self.regularization, ridge, n_components, leave_out
        return with_digits(found, self.X, groups, *rest)

    def _solve(
        self, X: Floats, groups: Ints, n_components: int | None, leave: Leave | None
    ) -> tuple[Subspace, float]:
        """Find the axes for rows that are not wide; return the subspace and the ridge."""
        fast = float32.pays(X)
        found = None
        if fast and self.solver == "cholesky" and self.weights is None and self.resample is None:
            with suppress(ValueError):  # float64 raises the proper error
                found = self._statistics(X, groups, np.float32)
        if found is None or not float32.determines(found[0], found[2], found[1]):
            found = self._statistics(X, groups, np.float64)
        scatter, projection, ridge = found
        kept = keep_leading(projection, n_components, projection.rank)
        subspace = linear_subspace(scatter, kept, ridge)
        if leave is None or leave.together is not None or self.resample is not None:
            return subspace, ridge
        # Not every solver needs a regular scatter matrix, but leaving rows out does.
        with naming_the_ridge(self.X.shape[1], self.regularization):
            leaver = Leaver.of(scatter, projection, ridge)
        dtype = np.float32 if fast else np.float64
        weights = None if self.weights is None else leave.take(self.weights)
        left = leaver.leave_out(leave.take(X), leave.take(groups), weights, dtype)
        left = left.leading(len(kept.components))
        left = replace(left, stands_for=leave.stands_for, rows=leave.rows)
        return replace(subspace, left=left), ridge

    def _statistics(
        self, X: Floats, groups: Ints, dtype: type[np.floating]
    ) -> tuple[GroupScatter, Projection, float]:
        scatter = GroupScatter.from_samples(X, groups, weights=self.weights, dtype=dtype)
        ridge = self.ridge
        if ridge is None:
            ridge = ridge_of(scatter.total_variance, self.regularization)
        if self.resample is not None:
            scatter = _resampled(X, groups, scatter, self.weights, self.resample)
        projection = solve_scatter(scatter, self.solver, ridge, self.regularization)
        return scatter, projection, ridge


def _resampled(
    X: Floats, groups: Ints, scatter: GroupScatter, weights: Array | None, rng: np.random.Generator
) -> GroupScatter:
    """Replace every subclass with the same number of random draws, a variant from the paper.

    For each subclass, ``M = round(N_n / K)`` vectors are drawn from ``N(xbar_k, S_w^(k) / n_k)``.
    The draws are Gaussian combinations of the subclass residuals, so no D x D covariance is formed.
    Returns the statistics of the positives and of the draws.
    """
    draws = max(1, round(scatter.n_negative / scatter.n_subclasses))
    width = X.shape[1]
    drawn = np.empty((draws * scatter.n_subclasses, width))
    for subclass in range(1, scatter.n_subclasses + 1):
        members = np.flatnonzero(groups == subclass)
        weight = np.ones(len(members)) if weights is None else weights[members]
        mixing = rng.standard_normal((draws, len(members)))
        mixing *= np.sqrt(weight / scatter.counts[subclass])
        mean = scatter.means[subclass]
        drawn[(subclass - 1) * draws : subclass * draws] = mean + mixing @ (X[members] - mean)
    labels = np.repeat(np.arange(1, scatter.n_subclasses + 1), draws)
    redrawn = GroupScatter.from_samples(drawn, labels, scatter.n_subclasses + 1)
    means = np.vstack([scatter.means[:1], redrawn.means[1:]])
    # The draws carry the total weight of the negatives, even if N_n / K is not an integer.
    share = scatter.n_negative / scatter.n_subclasses
    counts = np.append(scatter.counts[0], np.full(scatter.n_subclasses, share))
    return GroupScatter(counts, means, scatter.positive, redrawn.within * (share / draws))


@dataclass(frozen=True)
class IterativeFactor:
    """A factor for sparse or very wide rows that uses only products with X.

    This factor cannot leave rows out, so `solve` ignores `leave_out`.
    """

    X: Any
    regularization: float
    weights: Array | None = None

    def solve(
        self, groups: Ints, n_components: int | None = None, *, leave_out: Leave | None = EVERY
    ) -> Subspace:
        """Find the axes by iterative least squares."""
        X, origin = self.X, np.zeros(self.X.shape[1])
        if not sparse.issparse(X):
            # Dense rows far from zero would lose digits in every product.
            origin = X.mean(axis=0, dtype=np.float64)
            X = X - origin
        division = Grouping.of(groups, self.weights)
        counts, means = division.counts, division.means(X)
        variance = _mean_square(X, counts @ means / counts.sum(), division.weight)
        ridge = ridge_of(variance, self.regularization)
        solvers.require_apart(means, variance)
        with naming_the_ridge(X.shape[1], self.regularization):
            projection = solvers.lsqr(X, groups, counts, means, ridge, self.weights)
        components = keep_leading(projection, n_components, len(counts) - 1).components
        z = X @ components.T - components @ means[0]
        projected = GroupScatter.from_samples(z, groups, len(counts), self.weights)
        return Subspace(
            components.T,
            components @ (means[0] + origin),
            projection.eigenvalues[: len(components)],
            min(projection.rank, len(counts) - 1),
            projected,
            projected.intra + ridge * (components @ components.T),
            means + origin,
        )


@np.errstate(over="ignore", invalid="ignore")
def _mean_square(X: Any, origin: Array, weight: Array) -> float:
    """Return the weighted mean squared distance of rows from `origin`, without loss of digits."""
    if not sparse.issparse(X):
        return float(weight @ ((X - origin) ** 2).sum(axis=1) / weight.sum())
    stored = X.tocoo()
    if not X.has_canonical_format:
        stored.sum_duplicates()
    mass = weight[stored.row]
    zeros = weight.sum() - np.bincount(stored.col, mass, minlength=X.shape[1])
    squares = (stored.data - origin[stored.col]) ** 2
    return float((mass @ squares + zeros @ origin**2) / weight.sum())

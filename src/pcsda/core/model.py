"""The whole way from samples and groups to a scored model; estimators only wire it.

Three routes lead to a projection: group statistics (D <= N), the dual form or the row span
(D > N), and iterative least squares (sparse data). What follows the projection is shared.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from . import density as densities
from . import dual, linalg, loo, loo_scores, single, solvers
from .density import Density, Moments, Rule
from .linalg import Array, SingularMatrixError, TooFewRowsError
from .scatter import GroupScatter, group_means
from .solvers import Projection

PCSDA_SOLVERS = {
    "cholesky": solvers.cholesky,
    "eigen": solvers.eigen,
    "spectral": solvers.spectral,
}
CSDA_SOLVERS = ("eigen", "labels", "lowrank", "trace_ratio")
# Below this, inverses of variances overflow.
SMALLEST_VARIANCE = 1e-280
# Squares of numbers up to this do not overflow, nor do sums of many of them.
LARGEST_NUMBER = 1e150


@dataclass(frozen=True)
class Model:
    """A fitted class-specific model.

    Attributes
    ----------
    counts : array of shape (K + 1,)
    means : array of shape (K + 1, D)
        Means of the positives and of the subclasses.
    projection : Projection
    density : Density
    left_out : array of shape (N,) or None
        Left-out log-likelihood ratios of the training rows.
    """

    counts: Array
    means: Array
    projection: Projection
    density: Density
    left_out: Array | None = None

    def project(self, X: Any) -> Array:
        """Project rows: z = W'(x - m)."""
        components = self.projection.components
        z: Array = X @ components.T - components @ self.means[0]
        return z

    def score(self, X: Any) -> Array:
        """Log-likelihood ratio of every row, not calibrated."""
        return self.density.log_ratio(self.project(X))


@dataclass(frozen=True)
class Subspace:
    """A projection with the statistics of the training rows in it."""

    means: Array
    projection: Projection
    projected: GroupScatter
    ridge: float
    left: loo.LeftOut | None = None


def fit_pcsda(
    X: Any,
    groups: NDArray[np.intp],
    *,
    weights: Array | None,
    solver: str,
    regularization: float,
    n_components: int | None,
    rule: Rule,
    leave_one_out: bool,
    resample: np.random.Generator | None = None,
) -> Model:
    """Fit PCSDA on rows in memory."""
    wide = X.shape[1] > X.shape[0]
    if solver == "lsqr":
        subspace = _iterative(X, groups, weights, regularization, n_components)
    elif wide and solver == "cholesky" and resample is None:
        subspace = _dual(X, groups, weights, regularization, n_components, leave_one_out)
    elif wide:
        rows, origin, basis = _in_row_span(X)
        subspace = _primal(
            rows, groups, weights, solver, regularization, n_components, leave_one_out, resample
        )
        subspace = _out_of_row_span(subspace, origin, basis)
    else:
        subspace = _primal(
            X, groups, weights, solver, regularization, n_components, leave_one_out, resample
        )
    return with_density(subspace, rule, groups, weights)


def fit_pcsda_scatter(
    scatter: GroupScatter,
    *,
    solver: str,
    regularization: float,
    n_components: int | None,
    rule: Rule,
) -> Model:
    """Fit PCSDA from statistics alone, with resubstituted covariances."""
    subspace = scatter_subspace(scatter, solver, regularization, n_components)
    return with_density(subspace, rule)


def scatter_subspace(
    scatter: GroupScatter, solver: str, regularization: float, n_components: int | None
) -> Subspace:
    """Solve PCSDA from statistics; the projection keeps its factor for leaving rows out."""
    ridge = ridge_of(scatter.total_variance, regularization)
    projection = _solve(scatter, solver, ridge, regularization, n_components)
    return Subspace(scatter.means, projection, scatter.project(projection.components), ridge)


class OverflowingSquares(ValueError):
    """The squares of the rows are not finite."""

    def __init__(self) -> None:
        super().__init__(
            "the squares of X overflow, its spread is beyond 1e150; divide X by its scale first"
        )


def require_squares(X: NDArray[np.floating]) -> None:
    """Refuse rows whose squares may overflow, before they enter statistics for good."""
    if max(float(X.max()), -float(X.min())) > LARGEST_NUMBER:
        raise OverflowingSquares


def no_spread() -> TooFewRowsError:
    """Make the error for rows that are all equal."""
    return TooFewRowsError(
        "all rows of X are equal (total variance 0); at least two different rows are needed"
    )


def ridge_of(total_variance: float, regularization: float) -> float:
    """Turn the relative ridge into an absolute one (MATH 1), refusing data without spread."""
    if not np.isfinite(total_variance):
        raise OverflowingSquares
    if total_variance <= 0:
        raise no_spread()
    if total_variance < SMALLEST_VARIANCE:
        raise ValueError(
            f"the squares of X vanish, its spread is {np.sqrt(total_variance):.1g} and must be at "
            "least 1e-140; divide X by its scale first"
        )
    return regularization * total_variance


def require_apart(means: Array, total_variance: float) -> None:
    """Refuse subclass means that all equal the positive mean but for rounding."""
    delta = means[1:] - means[0]
    if np.einsum("ij,ij->i", delta, delta).max() <= linalg.SAME_POINT**2 * total_variance:
        raise solvers.no_direction()


def choose(projection: Projection, n_components: int | None, most: int) -> Projection:
    """Keep the asked number of components, or as many as there are; `rank` becomes the bound."""
    bound = min(most, projection.rank)
    if bound == 0:
        raise solvers.no_direction()
    return replace(projection.leading(min(n_components or bound, bound)), rank=bound)


def _solve(
    scatter: GroupScatter,
    solver: str,
    ridge: float,
    regularization: float,
    n_components: int | None,
) -> Projection:
    require_apart(scatter.means, scatter.total_variance)
    try:
        projection = PCSDA_SOLVERS[solver](scatter, ridge)
    except SingularMatrixError as error:
        raise singular_scatter(scatter.means.shape[1], regularization) from error
    most = min(scatter.n_subclasses, scatter.means.shape[1])
    return choose(projection, n_components, most)


def singular_scatter(width: int, regularization: float) -> TooFewRowsError:
    """Make the error for a denominator that cannot be factorised."""
    return TooFewRowsError(
        f"the within-class scatter of {width} dimensions is singular at "
        f"regularization={regularization:g}; raise regularization, to 0.1 for instance"
    )


def _primal(
    X: NDArray[np.floating],
    groups: NDArray[np.intp],
    weights: Array | None,
    solver: str,
    regularization: float,
    n_components: int | None,
    leave_one_out: bool,
    resample: np.random.Generator | None,
) -> Subspace:
    def solve(dtype: type[np.floating]) -> tuple[GroupScatter, float, Projection]:
        scatter = GroupScatter.from_samples(X, groups, weights=weights, dtype=dtype)
        ridge = ridge_of(scatter.total_variance, regularization)
        if resample is not None:
            scatter = resampled(X, groups, scatter, weights, resample)
        return scatter, ridge, _solve(scatter, solver, ridge, regularization, None)

    found = None
    fast = single.pays(X)
    if fast and solver == "cholesky" and weights is None and resample is None:
        with suppress(ValueError):  # float64 will say what is wrong
            found = solve(np.float32)
    if found is None or not single.determines(*found):
        found = solve(np.float64)
    scatter, ridge, projection = found
    projection = choose(projection, n_components, projection.rank)
    projected = scatter.project(projection.components)
    left = None
    if leave_one_out and resample is None:
        dtype = np.float32 if fast else np.float64
        left = loo.primal(X, groups, scatter, projection, ridge, weights, dtype)
    return Subspace(scatter.means, replace(projection, factor=None), projected, ridge, left)


def direct(
    centred: Array,
    groups: NDArray[np.intp],
    weights: Array | None,
    ridge: float,
    n_components: int | None,
) -> dual.DualSubspace:
    """Solve one partition of centred rows on its own, left-out rows included.

    What a shared factorisation falls back on where its update would be rounding.
    """
    scatter = GroupScatter.from_samples(centred, groups, weights=weights)
    most = min(scatter.n_subclasses, scatter.means.shape[1])
    projection = choose(solvers.cholesky(scatter, ridge), n_components, most)
    return dual.DualSubspace(
        projection.components.T,
        projection.components @ scatter.means[0],
        projection.eigenvalues,
        projection.rank,
        scatter.project(projection.components),
        loo.primal(centred, groups, scatter, projection, ridge, weights),
    )


def resampled(
    X: NDArray[np.floating],
    groups: NDArray[np.intp],
    scatter: GroupScatter,
    weights: Array | None,
    rng: np.random.Generator,
) -> GroupScatter:
    """Redraw the negatives with equal subclasses, the paper's other way (MATH 2, point 3).

    ``M = round(N_n / K)`` vectors come from ``N(xbar_k, S_w^(k) / n_k)`` for each subclass:
    Gaussian combinations of its residuals, so no D x D covariance is formed.
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
    # The draws stand for all negatives, also where N_n / K is not whole: priors do not change.
    share = scatter.n_negative / scatter.n_subclasses
    counts = np.append(scatter.counts[0], np.full(scatter.n_subclasses, share))
    return GroupScatter(counts, means, scatter.positive, redrawn.within * (share / draws))


def _in_row_span(X: NDArray[np.floating]) -> tuple[Array, Array, Array]:
    origin = X.mean(axis=0, dtype=np.float64)
    coordinates, basis = linalg.row_span(X - origin)
    return coordinates, origin, basis


def _out_of_row_span(subspace: Subspace, origin: Array, basis: Array) -> Subspace:
    components = subspace.projection.components @ basis
    projection = replace(subspace.projection, components=components)
    means = subspace.means @ basis + origin
    return signed(replace(subspace, means=means, projection=projection))


def signed(subspace: Subspace) -> Subspace:
    """Fix the signs of the components, and with them everything expressed in those axes."""
    signs = linalg.row_signs(subspace.projection.components)
    left = subspace.left
    if left is not None:
        left = replace(left, coordinates=left.coordinates * signs, residuals=left.residuals * signs)
    components = subspace.projection.components * signs[:, None]
    return replace(
        subspace,
        projection=replace(subspace.projection, components=components),
        projected=subspace.projected.project(np.diag(signs)),
        left=left,
    )


def _dual(
    X: NDArray[np.floating],
    groups: NDArray[np.intp],
    weights: Array | None,
    regularization: float,
    n_components: int | None,
    leave_one_out: bool,
) -> Subspace:
    """Wide rows: factorise the N x N Gram matrix instead of the D x D scatter."""
    counts = np.bincount(groups, weights).astype(np.float64)
    means = group_means(X, groups, counts, weights)
    grand = counts @ means / counts.sum()
    rows = X - grand
    if weights is not None:
        rows *= np.sqrt(weights)[:, None]
    gram, trace = lifted_gram(rows, weights)
    total = counts.sum()
    ridge = ridge_of(trace / total, regularization)
    require_apart(means, trace / total)
    try:
        factor = gram_factor(gram, trace, ridge)
    except SingularMatrixError as error:
        raise singular_scatter(X.shape[1], regularization) from error
    found = dual.fit(factor, groups, ridge, weights, n_components, leave_one_out)
    components = found.coefficients.T @ (X - grand)
    projection = Projection(components, found.eigenvalues, found.rank)
    return signed(Subspace(means, projection, found.projected, ridge, found.left))


@np.errstate(over="ignore", invalid="ignore")  # which the trace shows
def lifted_gram(rows: Array, weights: Array | None) -> tuple[Array, float]:
    """Gram matrix of centred rows (times the roots of the weights) and its trace.

    Centring leaves a null vector that costs digits at a small ridge. The statistics know no
    origin, so a constant feature, which takes it away, changes nothing else.
    """
    gram = rows @ rows.T
    trace = float(np.trace(gram))
    total = len(rows) if weights is None else weights.sum()
    constant = 1.0 if weights is None else np.sqrt(np.outer(weights, weights))
    gram += trace / len(rows) / total * constant
    return gram, trace


def gram_factor(gram: Array, trace: float, ridge: float) -> Array:
    """Cholesky factor of a lifted Gram matrix, in its memory."""
    if ridge <= linalg.PIVOT_TOLERANCE * trace:  # S_I has null vectors where D > N
        raise SingularMatrixError("the ridge is rounding beside the scatter")
    return linalg.cholesky_in_place(gram, ridge)


def _iterative(
    X: Any,
    groups: NDArray[np.intp],
    weights: Array | None,
    regularization: float,
    n_components: int | None,
) -> Subspace:
    """Sparse or very wide rows: products with X only."""
    origin: Any = 0.0
    if not sparse.issparse(X):
        # Far from zero, dense rows would lose digits in every product.
        origin = X.mean(axis=0, dtype=np.float64)
        X = X - origin
    counts = np.bincount(groups, weights).astype(np.float64)
    means = group_means(X, groups, counts, weights)
    grand = counts @ means / counts.sum()
    weight = np.ones(len(groups)) if weights is None else weights
    variance = _mean_square(X, grand, weight)
    ridge = ridge_of(variance, regularization)
    require_apart(means, variance)
    try:
        projection = solvers.lsqr(X, groups, counts, means, ridge, weights)
    except SingularMatrixError as error:
        raise singular_scatter(X.shape[1], regularization) from error
    projection = choose(projection, n_components, len(counts) - 1)
    components = projection.components
    z = X @ components.T - components @ means[0]
    projected = GroupScatter.from_samples(z, groups, len(counts), weights)
    return Subspace(means + origin, projection, projected, ridge)


@np.errstate(over="ignore", invalid="ignore")
def _mean_square(X: Any, origin: Array, weight: Array) -> float:
    """Mean squared distance of rows from `origin`, as a sum of squares: no digits cancel."""
    if not sparse.issparse(X):
        return float(weight @ ((X - origin) ** 2).sum(axis=1) / weight.sum())
    stored = X.tocoo()
    if not X.has_canonical_format:
        stored.sum_duplicates()
    mass = weight[stored.row]
    zeros = weight.sum() - np.bincount(stored.col, mass, minlength=X.shape[1])
    squares = (stored.data - origin[stored.col]) ** 2
    return float((mass @ squares + zeros @ origin**2) / weight.sum())


def with_density(
    subspace: Subspace,
    rule: Rule,
    groups: NDArray[np.intp] | None = None,
    weights: Array | None = None,
) -> Model:
    """Complete a PCSDA subspace to a model."""
    density, scores = estimate(
        subspace.projected,
        _ridged(subspace),
        subspace.left,
        groups,
        weights,
        rule,
    )
    return Model(subspace.projected.counts, subspace.means, subspace.projection, density, scores)


def with_left_out(
    subspace: Subspace,
    seen: GroupScatter,
    n_positive: float,
    n_within: float,
    rule: Rule,
) -> Model:
    """Complete a PCSDA subspace by the left-out scatter of rows that are out of reach by now."""
    density = left_out_density(
        subspace.projected, _ridged(subspace), seen, n_positive, n_within, rule
    )
    return Model(subspace.projected.counts, subspace.means, subspace.projection, density)


def _ridged(subspace: Subspace) -> Array:
    """``W'(S_I + eps I)W``."""
    components = subspace.projection.components
    return subspace.projected.intra + subspace.ridge * (components @ components.T)


def estimate(
    projected: GroupScatter,
    ridged: Array,
    left: loo.LeftOut | None,
    groups: NDArray[np.intp] | None,
    weights: Array | None,
    rule: Rule,
    near: Density | None = None,
) -> tuple[Density, Array | None]:
    """Estimate the densities of a PCSDA subspace and score the left-out rows.

    `ridged` is ``W'(S_I + eps I)W``: the pooled scatter that resubstituted covariances are shrunk
    toward, and a floor for left-out ones. Without left-out rows nothing tells the shares of a
    blend, which is its mixture then. A density that is `near` may save steps.
    """
    if left is None or groups is None:
        total = projected.counts.sum()
        moments = Moments(projected, ridged / total, projected.n_positive, projected.within_freedom)
        alone = replace(rule, negatives="mixture") if rule.negatives == "blend" else rule
        return _fit_density(projected, moments, alone), None
    seen, n_positive, n_within = left.scatter(projected, groups, weights)
    density = left_out_density(projected, ridged, seen, n_positive, n_within, rule)
    if not both_left(projected, n_positive, n_within):
        return density, None
    return loo_scores.complete(density, left, groups, projected.counts, weights, rule, near=near)


def left_out_density(
    projected: GroupScatter,
    ridged: Array,
    seen: GroupScatter,
    n_positive: float,
    n_within: float,
    rule: Rule,
) -> Density:
    """Estimate the densities from the scatter of left-out rows and the weight behind it."""
    # Where rows are alone in every group nothing was seen: the ridge alone says how they spread.
    total = n_positive + n_within
    pooled = seen.intra + densities.RESIDUAL_FLOOR * ridged if total > 0 else ridged
    moments = Moments(seen, pooled / max(total, 1.0), n_positive, n_within)
    return _fit_density(projected, moments, rule)


def both_left(projected: GroupScatter, n_positive: float, n_within: float) -> bool:
    """Whether leaving out a row, of one positive or one negative for instance, leaves a class."""
    return n_positive > 0 and (projected.n_subclasses > 1 or n_within > 0)


def _fit_density(projected: GroupScatter, moments: Moments, rule: Rule) -> Density:
    width = projected.means.shape[1]
    nu = width / 2 if rule.shrinkage is None else rule.shrinkage
    try:
        return densities.fit_density(moments, negatives=rule.negatives, shrinkage=nu)
    except SingularMatrixError as error:
        raise TooFewRowsError(
            f"{error}: {projected.n_positive:g} positives and {projected.n_negative:g} negatives "
            f"do not fill n_components={width} axes; lower n_components or set shrinkage='auto'"
        ) from error


def fit_csda(
    X: NDArray[np.floating],
    groups: NDArray[np.intp],
    *,
    weights: Array | None,
    solver: str,
    regularization: float,
    n_components: int | None,
    shrinkage: float | None,
    rng: np.random.Generator,
) -> Model:
    """Fit CSDA on rows in memory; groups are 0 for positives and 1 for negatives."""
    rows, origin, basis = _in_row_span(X) if X.shape[1] > X.shape[0] else (X, None, None)
    scatter = GroupScatter.from_samples(rows, groups, weights=weights)
    subspace = _csda_subspace(
        scatter, solver, regularization, n_components, rows, groups, weights, rng
    )
    if basis is not None and origin is not None:
        subspace = _out_of_row_span(subspace, origin, basis)
    return _csda_density(subspace, shrinkage)


def fit_csda_scatter(
    scatter: GroupScatter,
    *,
    solver: str,
    regularization: float,
    n_components: int | None,
    shrinkage: float | None,
) -> Model:
    """Fit CSDA from statistics alone."""
    return _csda_density(_csda_subspace(scatter, solver, regularization, n_components), shrinkage)


def _csda_subspace(
    scatter: GroupScatter,
    solver: str,
    regularization: float,
    n_components: int | None,
    rows: NDArray[np.floating] | None = None,
    groups: NDArray[np.intp] | None = None,
    weights: Array | None = None,
    rng: np.random.Generator | None = None,
) -> Subspace:
    width = scatter.means.shape[1]
    ridge = ridge_of(scatter.total_variance, regularization)
    n_negative = width if groups is None else int(np.sum(groups > 0))
    most = min(n_negative, width)
    if n_components is not None:
        n_components = min(n_components, most)
    try:
        if solver == "labels":
            if rows is None or groups is None or rng is None:
                raise ValueError("solver='labels' needs the samples; use 'eigen' or 'lowrank'")
            projection = solvers.csda_labels(
                rows, groups, scatter, ridge, n_components or most, rng, weights
            )
        elif solver == "trace_ratio":
            projection = solvers.csda_trace_ratio(scatter, ridge, n_components or most)
        elif solver == "lowrank":
            projection = solvers.csda_lowrank(scatter, ridge, n_components)
        else:
            projection = solvers.csda_eigen(scatter, ridge, n_components)
    except SingularMatrixError as error:
        raise singular_scatter(width, regularization) from error
    projection = choose(projection, n_components, most)
    return Subspace(scatter.means, projection, scatter.project(projection.components), ridge)


def _csda_density(subspace: Subspace, shrinkage: float | None) -> Model:
    """Give a CSDA subspace its marginal density: every negative is a subclass of its own."""
    projected, components = subspace.projected, subspace.projection.components
    ridged = projected.positive + subspace.ridge * (components @ components.T)
    n_positive = projected.n_positive
    moments = Moments(projected, ridged / n_positive, n_positive, 0.0)
    density = replace(_fit_density(projected, moments, Rule("marginal", shrinkage)), within=None)
    return Model(projected.counts, subspace.means, subspace.projection, density)

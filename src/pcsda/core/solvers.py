"""Solvers that turn group statistics into a projection; each is one pure function.

PCSDA maximises ``w' S_n w / w' (S_p + S_w + eps I) w``, where S_n is the scatter of the subclass
means and eps is the ridge (MATH 1 to 5). Components are rows in descending order of eigenvalue.
They are scaled so that the denominator becomes the identity, and the largest entry of each is
positive. The CSDA solvers are in :mod:`pcsda.core.csda_solvers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, lsmr

from . import linalg
from .linalg import Array, Ints, Mask, SingularMatrixError, TooFewRowsError
from .scatter import GroupScatter
from .warning import warn


@dataclass(frozen=True)
class Projection:
    """Directions of a subspace.

    Attributes
    ----------
    components : array of shape (d, D)
    eigenvalues : array of shape (d,)
        Criterion value of each component.
    rank : int
        Number of components that the problem has, at least d.
    factor : array of shape (D, D) or None
        Lower Cholesky factor of ``S_I + eps I`` if the solver computed one.
    step : float
        CSDA's reference vector is ``m + step (m - m_n)``, where m is the mean of the positives and
        m_n the mean of the negatives.
    """

    components: Array
    eigenvalues: Array
    rank: int
    factor: Array | None = None
    step: float = 0.0

    def leading(self, count: int) -> Projection:
        """Return only the first `count` directions, as if the problem had that rank."""
        components, values = self.components[:count], self.eigenvalues[:count]
        return Projection(components, values, count, self.factor, self.step)


# Relative tolerance of LSMR; the relative change of the solution at which restarts end; and the
# largest number of restarts.
LSMR_TOLERANCE, SETTLED, RESTARTS = 1e-14, 1e-10, 6
# Each entry of a group mean may have a rounding error of this share of its size.
MEANS_ROUNDING = 8 * float(np.finfo(np.float64).eps)


def no_direction(weight: float = 1.0) -> TooFewRowsError:
    """Create the error for subclass means that all equal the positive mean.

    A total `weight` below one is the likelier cause: the ridge hides rows that count for so little.
    """
    if weight < 1:
        return TooFewRowsError(
            "no direction tells the classes apart next to the ridge, because the weights sum to "
            f"{weight:.3g}; multiply all weights so that their mean is 1"
        )
    return TooFewRowsError(
        "every subclass mean equals the positive mean, so no direction tells them apart; raise "
        "n_subclasses or give subclass_labels"
    )


def require_apart(means: Array, total_variance: float) -> None:
    """Raise TooFewRowsError if all subclass means equal the positive mean up to rounding."""
    delta = means[1:] - means[0]
    rounding = np.linalg.norm(MEANS_ROUNDING * np.abs(means).max(axis=0))
    least = max(linalg.SAME_POINT * np.sqrt(total_variance), float(rounding))
    if np.einsum("ij,ij->i", delta, delta).max() <= least**2:
        raise no_direction()


def count_axes(values: Array, noise: Array | float, size: int) -> int:
    """Count the axes of a problem, by the same rule for all solvers.

    `values` are the criterion values in descending order, from a matrix with `size` rows. An axis
    counts if its value exceeds `noise`, the largest value that rounding alone can cause, and also
    exceeds rounding relative to the largest value.
    """
    rank = linalg.numerical_rank(values, size)
    unseen = np.flatnonzero(values <= noise)
    return min(rank, int(unseen[0])) if len(unseen) else rank


def means_noise(directions: Array, means: Array) -> Array:
    """Return the largest criterion value that rounding of the means can cause on each direction.

    Directions are columns, scaled so that the denominator is the identity. A criterion value is
    then a squared distance between the means along its direction. If no row varies along a
    direction, only the ridge limits the effect of rounding, and the ridge may be small.
    """
    rounding: Array = MEANS_ROUNDING * (np.abs(means).max(axis=0) @ np.abs(directions))
    return rounding**2


def ordered(directions: Array, values: Array, size: int, factor: Array | None = None) -> Projection:
    """Build a projection from directions, given as columns in descending order of their `values`.

    Directions whose values are only rounding error of a matrix with `size` rows are dropped.
    """
    rank = linalg.numerical_rank(values, size)
    return Projection(linalg.fix_signs(directions[:, :rank].T), values[:rank], rank, factor)


def count_apart(directions: Array, means: Array) -> int:
    """Count the leading directions along which the group means differ by more than rounding.

    The distances are computed from the means themselves, because an eigenvalue may be only rounding
    error if its direction combines others that nearly cancel.
    """
    moved = (means[1:] - means[0]) @ directions
    values = np.einsum("ij,ij->j", moved, moved)
    return count_axes(values, means_noise(directions, means), len(directions))


def rayleigh_ritz(basis: Array, numerator: Array, denominator: Array) -> Projection:
    """Find the best directions in the span of the columns of `basis`.

    `numerator` and `denominator` are the criterion's quadratic forms on these columns. Columns are
    first scaled to equal norm, and linearly dependent columns are dropped.

    Raises
    ------
    SingularMatrixError
        If the denominator vanishes where the numerator does not.
    """
    size = len(basis)
    bottom = np.diag(denominator)
    scale = np.sqrt(np.where(bottom > 0, bottom, 1.0))
    values, vectors = linalg.eigh_descending(denominator / np.outer(scale, scale))
    kept = linalg.numerical_rank(values, size)
    vectors = vectors / scale[:, None]
    # A column that depends on the others vanishes in both forms.
    dropped = np.einsum("ij,ij->j", vectors[:, kept:], numerator @ vectors[:, kept:])
    singular = dropped > np.sqrt(linalg.RANK_TOLERANCE) * np.sum(np.diag(numerator) / scale**2)
    rounding = bottom < linalg.RANK_TOLERANCE * size * np.diag(numerator)
    if kept == 0 or np.any(singular) or np.any(rounding):
        raise SingularMatrixError("the denominator vanishes on the span of the solution")
    white = vectors[:, :kept] / np.sqrt(values[:kept])
    ratio, rotation = linalg.eigh_descending(white.T @ numerator @ white)
    return ordered(basis @ (white @ rotation), ratio, size)


def cholesky(scatter: GroupScatter, ridge: float) -> Projection:
    """Solve eq. (PnPi_eigproblem) with one Cholesky factorisation (MATH 3).

    Problem: ``S_n w = lambda (S_I + eps I) w``, solved exactly. S_n has rank at most K, so with
    ``S_I + eps I = L L'`` it is enough to find the singular vectors of the D x K matrix
    ``L^-1 Delta'``. Cost: ``D^3/3 + 2 D^2 K``.
    """
    if ridge == 0:
        _require_spread(scatter)
    factor = linalg.cholesky(scatter.intra, ridge)
    half = linalg.lower_solve(factor, scatter.delta.T)
    left, singular, _ = np.linalg.svd(half, full_matrices=False)
    values = singular**2
    rank = linalg.numerical_rank(values, len(factor))
    directions = linalg.lower_solve(factor, left[:, :rank], transposed=True)
    rank = count_axes(values[:rank], means_noise(directions, scatter.means), len(factor))
    return ordered(directions[:, :rank], values[:rank], len(factor), factor)


def _require_spread(scatter: GroupScatter) -> None:
    """Raise SingularMatrixError if a feature is constant within groups up to rounding.

    Cholesky pivots do not reveal such features.
    """
    rounding = MEANS_ROUNDING * np.abs(scatter.means).max(axis=0)
    if np.any(scatter.intra.diagonal() <= scatter.counts.sum() * rounding**2):
        raise SingularMatrixError("a feature does not vary within groups")


def eigen(scatter: GroupScatter, ridge: float) -> Projection:
    """Solve eq. (PnPi_eigproblem) directly; tests compare the other solvers with this one.

    Problem: ``S_n w = lambda (S_I + eps I) w``, solved by a dense generalised eigensolver. The
    squares in S_n amplify the rounding of the means, so :func:`cholesky` counts the axes.
    Cost: about ``10 D^3``.
    """
    size = scatter.means.shape[1]
    exact = cholesky(scatter, ridge)
    rank = exact.rank
    if rank == 0:
        return exact
    del exact  # frees as much memory as the denominator takes
    denominator = scatter.intra + ridge * np.eye(size)
    values, vectors = linalg.top_generalized(scatter.between, denominator, rank)
    return Projection(linalg.fix_signs(vectors.T), values, rank)


def label_targets(counts: Array) -> Array:
    """Return the coefficients (K + 1, K) of the spectral targets on the group indicators (MATH 5).

    The targets ``V = U Q`` are the top eigenvectors of ``(L_I + e I)^-1 L_n`` in
    eq. (EigProbLnLw). They follow from the labels alone: ``U`` holds ``1_k/n_k - 1_p/n_p``, and Q
    holds the eigenvectors of the K x K matrix ``U'U = diag(1/n_k) + 11'/n_p``.
    """
    gram = np.diag(1 / counts[1:]) + 1 / counts[0]
    values, rotation = linalg.eigh_descending(gram)
    rotation = rotation / np.sqrt(values)
    return np.vstack([-rotation.sum(axis=0) / counts[0], rotation / counts[1:, None]])


def spectral(scatter: GroupScatter, ridge: float) -> Projection:
    """Solve PCSDA by spectral regression (MATH 5; section III-C of the paper).

    Problem: ``min ||X_m W - V||^2 + eps ||W||^2`` on data centred at the positive mean, then the
    best directions in the span of W. The subspace equals that of :func:`cholesky`. With ridge 0 the
    regression is the paper's ``W = (X')^+ V``, which also solves singular problems. If the
    regression fits V without error, the criterion is infinite and the directions keep the order
    of V. Cost: ``D^3/3 + 2 D^2 K`` (ridge 0: about ``9 D^3``).
    """
    size = scatter.means.shape[1]
    delta, counts = scatter.delta, scatter.counts
    # X_m' V: the positive indicator is orthogonal to X_m, so only the subclass rows count.
    right = delta.T @ (counts[1:, None] * label_targets(counts)[1:])
    about_mean = scatter.intra + (delta * counts[1:, None]).T @ delta
    if ridge > 0:
        factor = linalg.cholesky(about_mean, ridge)
        span = linalg.lower_solve(factor, linalg.lower_solve(factor, right), transposed=True)
    else:
        span = _pseudo_solve(about_mean, right)
    moved = delta @ span
    intra = span.T @ scatter.intra @ span
    # The residual of the regression, relative to what it fits.
    fitted = np.sum(counts[1:, None] * moved**2)
    if ridge == 0 and np.trace(intra) <= linalg.RANK_TOLERANCE * size * fitted:
        unbounded = np.full(span.shape[1], np.inf)
        return Projection(linalg.fix_signs(span.T), unbounded, span.shape[1])
    found = rayleigh_ritz(span, moved.T @ moved, intra + ridge * (span.T @ span))
    # Without a ridge some targets may be fitted exactly and others not.
    if ridge == 0 and not seen_by(scatter.intra, found.components.T).all():
        raise SingularMatrixError("the denominator vanishes on part of the span of the solution")
    return found.leading(count_apart(found.components.T, scatter.means))


def _pseudo_solve(matrix: Array, right: Array) -> Array:
    """Return the minimum-norm least-squares solution of ``matrix @ x = right``.

    The matrix must be symmetric and positive semi-definite.
    """
    values, vectors = linalg.eigh_descending(matrix)
    rank = linalg.numerical_rank(values, len(matrix))
    vectors = vectors[:, :rank]
    return vectors @ ((vectors.T @ right) / values[:rank, None])


def lsqr(
    X: Any, groups: Ints, counts: Array, means: Array, ridge: float, weights: Array | None = None
) -> Projection:
    """Solve PCSDA by iterative least squares, for sparse and very wide data (MATH 5).

    Problem: the same as for :func:`spectral`. Only products with X and X' are used: X stays sparse,
    and no D x D or N x N matrix is formed. Columns are scaled to equal norm, including the ridge,
    so that their units do not matter. Cost: about 2 K products with X per LSMR iteration; the
    number of iterations grows with the condition number of the problem. Warns if the iterations do
    not converge.
    """
    n_samples, width = X.shape
    root = np.ones(n_samples) if weights is None else np.sqrt(weights)
    origin = means[0]
    sizes, rounding = _column_sizes(X, root**2, origin)
    sizes += ridge
    scale = 1 / np.sqrt(np.where(sizes > 0, sizes, 1.0))
    damping = np.sqrt(ridge) * scale

    # The rows of X_m are (x - m) sqrt(w); each product subtracts the mean.
    def forward(v: Array) -> Array:
        step = scale * v.ravel()
        return np.concatenate([root * (X @ step - origin @ step), damping * v.ravel()])

    def backward(u: Array) -> Array:
        part, rest = root * u.ravel()[:n_samples], u.ravel()[n_samples:]
        product: Array = scale * (X.T @ part - origin * part.sum()) + damping * rest
        return product

    operator = LinearOperator((n_samples + width, width), forward, backward, dtype=np.float64)
    targets = np.zeros((n_samples + width, len(counts) - 1))
    targets[:n_samples] = label_targets(counts)[groups] * root[:, None]
    limit = 20 * min(X.shape) + 100
    solutions = [_settled(operator, column, limit, rounding) for column in targets.T]
    if not all(settled for _, settled in solutions):
        warn(
            "solver='lsqr' did not converge: the problem is too badly conditioned for it at "
            f"ridge {ridge:.3g}; raise regularization, or pass dense X with solver='cholesky'",
            RuntimeWarning,
        )
    span = scale[:, None] * np.column_stack([solution for solution, _ in solutions])
    projected = GroupScatter.from_samples(X @ span - origin @ span, groups, len(counts), weights)
    denominator = projected.intra + ridge * (span.T @ span)
    found = rayleigh_ritz(span, projected.between, denominator)
    return found.leading(count_apart(found.components.T, means))


def _column_sizes(X: Any, weight: Array, origin: Array) -> tuple[Array, float]:
    """Return each column's weighted sum of squares about `origin`, and a relative rounding error.

    If columns are far from zero, the sums are differences of large numbers and lose digits.
    Products with the rows lose as many digits, and the second result is their relative rounding
    error.
    """
    squares = np.asarray((X.multiply(X) if hasattr(X, "multiply") else X**2).T @ weight).ravel()
    sizes: Array = squares - 2 * origin * (X.T @ weight) + weight.sum() * origin**2
    epsilon = float(np.finfo(np.float64).eps)
    sizes = np.maximum(sizes, epsilon * squares)
    total = float(sizes.sum())
    return sizes, epsilon * float(np.sqrt(squares.sum() / total)) if total > 0 else epsilon


def _settled(
    operator: LinearOperator, target: Array, limit: int, rounding: float
) -> tuple[Array, bool]:
    """Solve a least-squares problem by LSMR, restarted on the residual until it has converged.

    Returns the solution, and whether it has converged. `limit` is the largest number of iterations
    between restarts, and `rounding` the relative rounding error of products with the operator.
    """
    solution = np.zeros(operator.shape[1])
    enough = max(SETTLED, 100 * rounding)
    for _ in range(RESTARTS):
        left = target - operator.matvec(solution)
        step = lsmr(operator, left, 0.0, LSMR_TOLERANCE, LSMR_TOLERANCE, 0.0, limit)[0]
        solution = solution + step
        if np.linalg.norm(step) <= enough * np.linalg.norm(solution):
            return solution, True
    return solution, False


def seen_by(form: Array, directions: Array) -> Mask:
    """Return a mask of the directions along which a quadratic form exceeds rounding error.

    The result does not depend on the units of the features. Criterion values do not reveal rounding
    error: with a small ridge, a numerator of pure rounding error can have a large quotient.
    """
    value = np.einsum("ij,ij->j", directions, form @ directions)
    reach = np.sqrt(form.diagonal()) @ np.abs(directions)
    seen: Mask = value > linalg.RANK_TOLERANCE * len(form) * reach**2
    return seen

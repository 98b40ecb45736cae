"""From group statistics to a projection: one pure function for each way to solve the criterion.

PCSDA maximises ``w' S_n w / w' (S_p + S_w + eps I) w`` over the subclass means, CSDA maximises
``w' S_n w / w' (S_p + eps I) w`` over all negatives (MATH 1 to 6). The ridge ``eps`` sits on the
denominator. Components are rows in descending order of their eigenvalue, scaled so that the
denominator becomes the identity, largest entry positive.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg as scipy_linalg
from scipy.sparse.linalg import LinearOperator, lsmr

from . import linalg
from .linalg import Array, SingularMatrixError, TooFewRowsError
from .scatter import GroupScatter


@dataclass(frozen=True)
class Projection:
    """Directions of a subspace.

    Attributes
    ----------
    components : array of shape (d, D)
    eigenvalues : array of shape (d,)
        The criterion on each component.
    rank : int
        How many components the problem has; d is at most that.
    factor : array of shape (D, D) or None
        Lower Cholesky factor of ``S_I + eps I`` when the solver made one.
    """

    components: Array
    eigenvalues: Array
    rank: int
    factor: Array | None = None

    def leading(self, count: int) -> Projection:
        """Return the first `count` directions as the whole of a problem of that rank."""
        return Projection(self.components[:count], self.eigenvalues[:count], count, self.factor)


# LSMR stops at this share of its residual, and starts again until a start moves less than SETTLED.
LSMR_TOLERANCE, SETTLED, RESTARTS = 1e-14, 1e-10, 6
# Group means are sums: each entry may be off by this many times the rounding of its size.
MEANS_ROUNDING = 8 * float(np.finfo(np.float64).eps)


def no_direction() -> TooFewRowsError:
    """Make the error for subclass means that all equal the positive mean."""
    return TooFewRowsError(
        "every subclass mean equals the positive mean, so no direction tells them apart; raise "
        "n_subclasses or give subclass_labels"
    )


def require_apart(means: Array, total_variance: float) -> None:
    """Refuse subclass means that all equal the positive mean but for rounding."""
    delta = means[1:] - means[0]
    rounding = np.linalg.norm(MEANS_ROUNDING * np.abs(means).max(axis=0))
    least = max(linalg.SAME_POINT * np.sqrt(total_variance), float(rounding))
    if np.einsum("ij,ij->i", delta, delta).max() <= least**2:
        raise no_direction()


def count_axes(values: Array, noise: Array | float, size: int) -> int:
    """Count the axes of a problem: the one rule for how many there are.

    `values` of the criterion descend. An axis counts as long as its value is above the `noise` that
    rounding alone may put there, and above rounding beside the largest value; `size` is that of the
    matrix the values come from.
    """
    rank = linalg.numerical_rank(values, size)
    unseen = np.flatnonzero(values <= noise)
    return min(rank, int(unseen[0])) if len(unseen) else rank


def means_noise(directions: Array, means: Array) -> Array:
    """Largest value of the criterion that rounding of the group means may give on directions.

    Directions are columns, scaled so that the denominator is the identity. Then a value is the
    squared distance of the means along its direction. Where no row spreads along it, a small ridge
    is all that holds the rounding of the means down.
    """
    rounding: Array = MEANS_ROUNDING * (np.abs(means).max(axis=0) @ np.abs(directions))
    return rounding**2


def _ordered(
    directions: Array, values: Array, size: int, factor: Array | None = None
) -> Projection:
    """Build a projection from columns in descending order, dropping those that are rounding."""
    rank = linalg.numerical_rank(values, size)
    return Projection(linalg.fix_signs(directions[:, :rank].T), values[:rank], rank, factor)


def count_apart(directions: Array, means: Array) -> int:
    """Count the leading directions along which the group means differ by more than rounding.

    The distances are taken from the means themselves: where directions are combined of others that
    nearly cancel, the values that came with them may be rounding.
    """
    moved = (means[1:] - means[0]) @ directions
    values = np.einsum("ij,ij->j", moved, moved)
    return count_axes(values, means_noise(directions, means), len(directions))


def _rayleigh_ritz(basis: Array, numerator: Array, denominator: Array) -> Projection:
    """Best directions inside the span of the columns of `basis`.

    `numerator` and `denominator` are the two forms on that basis. Columns are scaled to one
    size first; those that depend on the others are left out.

    Raises
    ------
    SingularMatrixError
        When the denominator vanishes where the numerator does not.
    """
    size = len(basis)
    bottom = np.diag(denominator)
    scale = np.sqrt(np.where(bottom > 0, bottom, 1.0))
    values, vectors = linalg.eigh_descending(denominator / np.outer(scale, scale))
    kept = linalg.numerical_rank(values, size)
    vectors = vectors / scale[:, None]
    # A column that depends on the others is null in both forms.
    dropped = np.einsum("ij,ij->j", vectors[:, kept:], numerator @ vectors[:, kept:])
    singular = dropped > np.sqrt(linalg.RANK_TOLERANCE) * np.sum(np.diag(numerator) / scale**2)
    rounding = bottom < linalg.RANK_TOLERANCE * size * np.diag(numerator)
    if kept == 0 or np.any(singular) or np.any(rounding):
        raise SingularMatrixError("the denominator vanishes on the span of the solution")
    white = vectors[:, :kept] / np.sqrt(values[:kept])
    ratio, rotation = linalg.eigh_descending(white.T @ numerator @ white)
    return _ordered(basis @ (white @ rotation), ratio, size)


def cholesky(scatter: GroupScatter, ridge: float) -> Projection:
    """Solve eq. (PnPi_eigproblem) through one Cholesky factor (MATH 3).

    Problem: ``S_n w = lambda (S_I + eps I) w``, exactly. S_n has rank at most K, so with
    ``S_I + eps I = L L'`` the singular vectors of the D x K matrix ``L^-1 Delta'`` are all that is
    needed. Cost: ``D^3/3 + 2 D^2 K``.
    """
    factor = linalg.cholesky(scatter.intra, ridge)
    half = linalg.lower_solve(factor, scatter.delta.T)
    left, singular, _ = np.linalg.svd(half, full_matrices=False)
    values = singular**2
    rank = linalg.numerical_rank(values, len(factor))
    directions = linalg.lower_solve(factor, left[:, :rank], transposed=True)
    rank = count_axes(values[:rank], means_noise(directions, scatter.means), len(factor))
    return _ordered(directions[:, :rank], values[:rank], len(factor), factor)


def eigen(scatter: GroupScatter, ridge: float) -> Projection:
    """Solve eq. (PnPi_eigproblem) as written: the reference for the other solvers.

    Problem: ``S_n w = lambda (S_I + eps I) w`` by a dense generalised eigensolver. S_n squares the
    rounding of the means, so the number of axes comes from the means themselves.
    Cost: about ``10 D^3``.
    """
    size = scatter.means.shape[1]
    exact = cholesky(scatter, ridge)
    rank = exact.rank
    if rank == 0:
        return exact
    del exact  # its factor is as large as the denominator
    denominator = scatter.intra + ridge * np.eye(size)
    values, vectors = linalg.top_generalized(scatter.between, denominator, rank)
    return Projection(linalg.fix_signs(vectors.T), values, rank)


def label_targets(counts: Array) -> Array:
    """Coefficients (K + 1, K) of the spectral targets on the group indicators (MATH 5).

    The targets ``V = U Q`` are the top eigenvectors of ``(L_I + e I)^-1 L_n`` in
    eq. (EigProbLnLw), known from the labels alone: ``U`` holds ``1_k/n_k - 1_p/n_p`` and Q the
    eigenvectors of the K x K matrix ``U'U = diag(1/n_k) + 11'/n_p``.
    """
    gram = np.diag(1 / counts[1:]) + 1 / counts[0]
    values, rotation = linalg.eigh_descending(gram)
    rotation = rotation / np.sqrt(values)
    return np.vstack([-rotation.sum(axis=0) / counts[0], rotation / counts[1:, None]])


def spectral(scatter: GroupScatter, ridge: float) -> Projection:
    """Solve PCSDA by spectral regression (MATH 5; section III-C of the paper).

    Problem: ``min ||X_m W - V||^2 + eps ||W||^2`` on data centred at the positive mean, then the
    best directions in the span of W; the same subspace as :func:`cholesky`. With ridge 0 the
    regression is the paper's ``W = (X')^+ V``, which also answers singular problems; where it
    fits V without error the criterion is infinite and the order of the directions is that of V.
    Cost: ``D^3/3 + 2 D^2 K`` (ridge 0: about ``9 D^3``).
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
    # What the regression leaves unfitted, measured against what it fits.
    fitted = np.sum(counts[1:, None] * moved**2)
    if ridge == 0 and np.trace(intra) <= linalg.RANK_TOLERANCE * size * fitted:
        unbounded = np.full(span.shape[1], np.inf)
        return Projection(linalg.fix_signs(span.T), unbounded, span.shape[1])
    found = _rayleigh_ritz(span, moved.T @ moved, intra + ridge * (span.T @ span))
    # Without a ridge some targets may be fitted without error, and others not.
    if ridge == 0 and not _seen_by(scatter.intra, found.components.T).all():
        raise SingularMatrixError("the denominator vanishes on part of the span of the solution")
    return found.leading(count_apart(found.components.T, scatter.means))


def _pseudo_solve(matrix: Array, right: Array) -> Array:
    """Minimum-norm solution with a symmetric positive semi-definite matrix."""
    values, vectors = linalg.eigh_descending(matrix)
    rank = linalg.numerical_rank(values, len(matrix))
    vectors = vectors[:, :rank]
    solution: Array = vectors @ ((vectors.T @ right) / values[:rank, None])
    return solution


def lsqr(
    X: Any,
    groups: NDArray[np.intp],
    counts: Array,
    means: Array,
    ridge: float,
    weights: Array | None = None,
) -> Projection:
    """Solve PCSDA by iterative least squares, for sparse and very wide data (MATH 5).

    Problem: that of :func:`spectral`, using only products with X and X'; X is never made dense
    and no D x D or N x N matrix is formed. Columns are brought to one size, ridge included, so
    their units do not matter. Cost: some 2 K products with X for each iteration of LSMR; the
    number of iterations grows with the condition of the problem. A warning tells where it was
    too large for the solution to settle.
    """
    n_samples, width = X.shape
    root = np.ones(n_samples) if weights is None else np.sqrt(weights)
    origin = means[0]
    sizes, rounding = _column_sizes(X, root**2, origin)
    sizes += ridge
    scale = 1 / np.sqrt(np.where(sizes > 0, sizes, 1.0))
    damping = np.sqrt(ridge) * scale

    # The rows of X_m are (x - m) sqrt(w); the mean is taken off inside each product.
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
        warnings.warn(
            "solver='lsqr' did not settle: the problem is too badly conditioned for it at ridge "
            f"{ridge:.3g}; raise regularization, or pass dense X with solver='cholesky'",
            RuntimeWarning,
            stacklevel=2,
        )
    span = scale[:, None] * np.column_stack([solution for solution, _ in solutions])
    projected = GroupScatter.from_samples(X @ span - origin @ span, groups, len(counts), weights)
    denominator = projected.intra + ridge * (span.T @ span)
    found = _rayleigh_ritz(span, projected.between, denominator)
    return found.leading(count_apart(found.components.T, means))


def _column_sizes(X: Any, weight: Array, origin: Array) -> tuple[Array, float]:
    """Weighted sums of squares of the columns about `origin`, roughly; and rounding of products.

    Far from zero the sums are differences of large numbers, and products with the rows lose as many
    digits.
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
    """Solve least squares by LSMR, started again on what is left until that adds nothing more."""
    solution = np.zeros(operator.shape[1])
    enough = max(SETTLED, 100 * rounding)
    for _ in range(RESTARTS):
        left = target - operator.matvec(solution)
        step = lsmr(operator, left, 0.0, LSMR_TOLERANCE, LSMR_TOLERANCE, 0.0, limit)[0]
        solution = solution + step
        if np.linalg.norm(step) <= enough * np.linalg.norm(solution):
            return solution, True
    return solution, False


def csda_eigen(scatter: GroupScatter, ridge: float, n_components: int | None = None) -> Projection:
    """Solve CSDA as written: the reference (MATH 6).

    Problem: ``S_n w = lambda (S_p + eps I) w``, S_n over all negatives. Cost: about ``10 D^3``
    for all directions, less for the leading few.
    """
    size = scatter.means.shape[1]
    denominator = scatter.positive + ridge * np.eye(size)
    numerator = scatter.out_of_class
    values, vectors = linalg.top_generalized(numerator, denominator, n_components or size)
    seen = _seen_by(numerator, vectors)
    return _ordered(vectors[:, seen], values[seen], size)


def _seen_by(form: Array, directions: Array) -> NDArray[np.bool_]:
    """Mark directions on which a quadratic form is more than rounding, in any units of features.

    A small ridge makes the quotient of a null direction large, but not its numerator.
    """
    value = np.einsum("ij,ij->j", directions, form @ directions)
    reach = np.sqrt(form.diagonal()) @ np.abs(directions)
    seen: NDArray[np.bool_] = value > linalg.RANK_TOLERANCE * len(form) * reach**2
    return seen


def csda_lowrank(
    scatter: GroupScatter, ridge: float, n_components: int | None = None
) -> Projection:
    """Solve CSDA in its low-rank regression form (MATH 6).

    Problem: regression of the targets ``e_i - 1_p/N_p``, one for each negative, with a
    coefficient matrix of rank d. Its solution is led by the top eigenvectors of
    ``L^-1 S_n L^-T``, ``L L' = S_n + S_p + eps I``: the CSDA subspace exactly.
    Cost: ``D^3/3`` for the factor and a symmetric eigenproblem of size D.
    """
    size = scatter.means.shape[1]
    numerator = scatter.out_of_class
    factor = linalg.cholesky(numerator + scatter.positive, ridge)
    half = linalg.lower_solve(factor, linalg.lower_solve(factor, numerator).T)
    count = n_components or size
    _, vectors = scipy_linalg.eigh(
        half, subset_by_index=[size - count, size - 1], check_finite=False
    )
    directions = linalg.lower_solve(factor, vectors[:, ::-1], transposed=True)
    # Values near one lose the digits of 1 - value; the quotient itself does not.
    top = np.einsum("ij,ij->j", directions, numerator @ directions)
    bottom = np.einsum("ij,ij->j", directions, scatter.positive @ directions)
    bottom = bottom + ridge * np.einsum("ij,ij->j", directions, directions)
    if np.any(bottom <= linalg.RANK_TOLERANCE * size):  # of the whole, which is one
        raise SingularMatrixError("the denominator is not positive definite")
    seen = _seen_by(numerator, directions)
    return _ordered((directions / np.sqrt(bottom))[:, seen], (top / bottom)[seen], size)


def csda_labels(
    X: NDArray[np.floating],
    groups: NDArray[np.intp],
    scatter: GroupScatter,
    ridge: float,
    n_components: int,
    rng: np.random.Generator,
    weights: Array | None = None,
) -> Projection:
    """Approximate CSDA with targets known from the labels alone (MATH 6).

    Problem: ridge regression of ``1_n - (N_n/N_p) 1_p`` and of d - 1 random orthonormal vectors on
    the negatives that are orthogonal to ``1_n``, then the best directions in the span. All those
    targets tie, so the span is that of CSDA only when all N_n of them are used.
    Cost: ``D^3/3 + 2 N D d``; no eigenproblem larger than d.
    """
    negative = np.flatnonzero(groups)
    root = np.ones(len(negative)) if weights is None else np.sqrt(weights[negative])
    targets = np.column_stack([root, rng.standard_normal((len(negative), n_components - 1))])
    targets = np.linalg.qr(targets)[0]
    right = (X[negative] - scatter.means[0]).T @ (root[:, None] * targets)
    factor = linalg.cholesky(scatter.positive + scatter.out_of_class, ridge)
    span = linalg.lower_solve(factor, linalg.lower_solve(factor, right), transposed=True)
    numerator = span.T @ scatter.out_of_class @ span
    denominator = span.T @ scatter.positive @ span + ridge * (span.T @ span)
    return _rayleigh_ritz(span, numerator, denominator)


def csda_trace_ratio(
    scatter: GroupScatter,
    ridge: float,
    n_components: int,
    tolerance: float = 1e-12,
    max_iter: int = 100,
) -> Projection:
    """Maximise the trace ratio of eq. (CSKDA_J2) itself over orthonormal W (MATH 6).

    Problem: ``tr(W' S_n W) / tr(W' (S_p + eps I) W)`` with ``W'W = I``. Each step takes the top
    eigenvectors of ``S_n - rho (S_p + eps I)`` at the current ratio rho; the ratio rises
    monotonically and converges quadratically. Cost: one symmetric eigenproblem of size D a step,
    usually five to ten. The eigenvalues are the quotients of the single components.

    W stays where negatives spread about the positive mean, or positives about it: elsewhere all
    samples coincide, and at so small a cost in the denominator such directions would be welcome.
    """
    size = scatter.means.shape[1]
    spread, basis = linalg.eigh_descending(scatter.out_of_class + scatter.positive)
    basis = basis[:, : linalg.numerical_rank(spread, size)]
    numerator = basis.T @ scatter.out_of_class @ basis
    denominator = basis.T @ scatter.positive @ basis + ridge * np.eye(basis.shape[1])
    rank = linalg.numerical_rank(linalg.eigh_descending(numerator)[0], size)
    if rank == 0:
        return Projection(np.empty((0, size)), np.empty(0), 0)
    window = [basis.shape[1] - min(n_components, rank), basis.shape[1] - 1]
    ratio = 0.0
    for _ in range(max_iter):
        _, vectors = scipy_linalg.eigh(
            numerator - ratio * denominator, subset_by_index=window, check_finite=False
        )
        top = np.einsum("ij,ij->j", vectors, numerator @ vectors)
        bottom = np.einsum("ij,ij->j", vectors, denominator @ vectors)
        if np.any(bottom <= linalg.RANK_TOLERANCE * size * top):
            raise SingularMatrixError("the denominator is not positive definite")
        previous, ratio = ratio, float(top.sum() / bottom.sum())
        if ratio - previous <= tolerance * ratio:
            break
    quotients = top / bottom
    order = np.argsort(-quotients, kind="stable")
    directions = basis @ vectors[:, order]
    return Projection(linalg.fix_signs(directions.T), quotients[order], rank)

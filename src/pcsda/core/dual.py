"""PCSDA in dual form: one Cholesky factor of the N x N Gram or kernel matrix (MATH 7).

For wide data (D > N) the Gram matrix of the centred rows takes the place of the D x D scatter; any
positive semi-definite kernel matrix may stand in for it. With sample weights the matrix is
``sqrt(w_i) k_ij sqrt(w_j)`` throughout.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtri

from . import linalg, loo
from .linalg import Array
from .scatter import GroupScatter
from .solvers import no_direction


@dataclass(frozen=True)
class Solution:
    """One partition solved, before any rotation or choice of d.

    Attributes
    ----------
    gram : array of shape (K, K)
        ``G = Delta A Delta'``.
    coordinates : array of shape (N, K)
        ``y_i = Delta A (phi_i - m)`` of the training rows.
    residuals : array of shape (N, K)
        ``a_i = Delta A r_i``, r_i the row minus the mean of its group.
    origin : array of shape (K,)
        ``Delta A m``, m the positive mean.
    """

    gram: Array
    coordinates: Array
    residuals: Array
    origin: Array


@dataclass(frozen=True)
class DualSolution(Solution):
    """One partition solved in dual form.

    Attributes
    ----------
    alpha : array of shape (N, K)
        ``A Delta' = Phi' alpha`` with ``A = (S_I + eps I)^-1``.
    solved, inner : arrays of shape (N, K + 1) and (K + 1, K + 1)
        ``Y = (Kx + eps I)^-1 E`` and the Cholesky factor of ``E'Y``.
    """

    alpha: Array
    solved: Array
    inner: Array


def indicators(groups: NDArray[np.intp], counts: Array, weights: Array | None) -> Array:
    """Group indicators (N, K + 1), weighted, as orthonormal columns."""
    columns = np.zeros((len(groups), len(counts)))
    root = 1.0 if weights is None else np.sqrt(weights)
    columns[np.arange(len(groups)), groups] = root / np.sqrt(counts)[groups]
    return columns


def solve(
    factor: Array,
    groups: NDArray[np.intp],
    counts: Array,
    ridge: float,
    weights: Array | None = None,
) -> DualSolution:
    """Solve one partition, given the lower Cholesky factor of ``Kx + eps I``.

    Cost: ``2 N^2 (K + 1)`` for the triangular solves, and nothing else that grows with N^2: the
    kernel matrix itself is not needed again, because ``(Kx + eps I) Y = E``.
    """
    unit = indicators(groups, counts, weights)
    half = linalg.lower_solve(factor, unit)
    solved = linalg.lower_solve(factor, half, transposed=True)
    return combine(solved, half.T @ half, groups, counts, ridge, weights)


def combine(
    solved: Array,
    inner: Array,
    groups: NDArray[np.intp],
    counts: Array,
    ridge: float,
    weights: Array | None = None,
) -> DualSolution:
    """Solve one partition from ``Y = (Kx + eps I)^-1 E`` and ``E'Y`` alone, in O(N K^2)."""
    unit = indicators(groups, counts, weights)
    contrast = np.vstack(
        [np.full((1, len(counts) - 1), -1 / np.sqrt(counts[0])), np.diag(1 / np.sqrt(counts[1:]))]
    )
    inner_factor = linalg.cholesky(inner)
    weighted = linalg.lower_solve(
        inner_factor, linalg.lower_solve(inner_factor, contrast), transposed=True
    )  # (E'Y)^-1 C
    alpha = solved @ weighted / ridge
    gram = contrast.T @ (weighted / ridge - contrast)
    root = np.ones(len(groups)) if weights is None else np.sqrt(weights)
    # Kx alpha = E (E'Y)^-1 C / eps - eps alpha; its part outside the group means is -eps P alpha.
    residuals = -ridge * (alpha - unit @ (unit.T @ alpha)) / root[:, None]
    centres = (weighted / ridge - contrast) / np.sqrt(counts)[:, None]
    coordinates = residuals + (centres - centres[0])[groups]
    gram = (gram + gram.T) / 2
    return DualSolution(gram, coordinates, residuals, centres[0], alpha, solved, inner_factor)


def rotation(gram: Array, size: int, noise: float = 0.0) -> tuple[Array, Array]:
    """Eigenvalues and ``Q Lambda^(-1/2)`` of G, leading first, without those that are rounding.

    `noise` is the size up to which an eigenvalue may be the rounding of what G was made of.
    """
    values, vectors = linalg.eigh_descending(gram)
    rank = linalg.numerical_rank(values[values > noise], size)
    if rank == 0:
        raise no_direction()
    return values[:rank], vectors[:, :rank] / np.sqrt(values[:rank])


def inverse_diagonal(factor: Array) -> Array:
    """Diagonal of ``(Kx + eps I)^-1`` from its Cholesky factor, N^3/3; shared by all partitions.

    A Fortran-ordered factor is overwritten by its inverse.
    """
    inverse = dtrtri(factor, lower=1, overwrite_c=1)[0]
    diagonal: Array = np.einsum("ji,ji->i", inverse, inverse)
    return diagonal


def leverages(
    solution: DualSolution,
    diagonal: Array,
    groups: NDArray[np.intp],
    counts: Array,
    ridge: float,
    weights: Array | None = None,
) -> tuple[Array, Array]:
    """Return ``h_i = r_i' A r_i`` and the gap ``1 - f_i h_i`` of every row (MATH 8).

    The gap comes directly from the factor: as a difference it would lose all digits where the
    rows are many-dimensional and the ridge is small. It is meaningless for groups of one row.
    """
    half = linalg.lower_solve(solution.inner, solution.solved.T)
    unfitted = ridge * (diagonal - np.einsum("ji,ji->i", half, half))  # eps q_i
    weight = np.ones(len(groups)) if weights is None else weights
    share = weight / counts[groups]
    with np.errstate(divide="ignore", invalid="ignore"):
        return (1 - share - unfitted) / weight, unfitted / (1 - share)


@dataclass(frozen=True)
class DualSubspace:
    """A subspace of feature space: ``z(x) = coefficients' k_x - origin``.

    Attributes
    ----------
    coefficients : array of shape (N, d)
        On kernel values with the training rows, in the order of the eigenvalues.
    origin : array of shape (d,)
        What the positive mean is projected to.
    eigenvalues : array of shape (d,)
    rank : int
        How many components the problem has.
    projected : GroupScatter
        Statistics of the training rows in the subspace.
    left : LeftOut or None
    """

    coefficients: Array
    origin: Array
    eigenvalues: Array
    rank: int
    projected: GroupScatter
    left: loo.LeftOut | None

    def leading(self, d: int) -> DualSubspace:
        """Return the subspace of the first `d` components."""
        return DualSubspace(
            self.coefficients[:, :d],
            self.origin[:d],
            self.eigenvalues[:d],
            self.rank,
            self.projected.leading(d),
            None if self.left is None else self.left.leading(d),
        )


def total_variance(matrix: Array, weights: Array | None) -> float:
    """trace(S_T) / N in feature space: the mean of the diagonal minus the mean of the matrix."""
    if weights is None:
        return float(matrix.diagonal().mean() - matrix.mean())
    share = weights / weights.sum()
    return float(share @ matrix.diagonal() - share @ matrix @ share)


def move_origin(matrix: Array, weights: Array | None, variance: float) -> Array:
    """Move the origin of feature space close to the mean of the rows, in place.

    The statistics know no origin, and a part that all kernel values have in common would cost
    their digits. A small constant feature stays, so that the matrix is regular. `variance` is
    trace(S_T) / N; nothing is done where it is not small beside the kernel values.

    Returns
    -------
    means : array of shape (N,)
        What was taken off the kernel values with every row. Coefficients of a subspace sum to zero,
        so ``coefficients' means`` is all that the move takes off the origin in it.
    """
    share = np.full(len(matrix), 1 / len(matrix)) if weights is None else weights / weights.sum()
    if share @ matrix.diagonal() <= 10 * variance:
        return np.zeros(len(matrix))
    means: Array = matrix @ share
    shift = share @ means + variance / len(matrix)
    step = max(1, linalg.BLOCK_BYTES // (8 * len(matrix)))
    for start in range(0, len(matrix), step):
        block = matrix[start : start + step]
        block -= means
        block += (shift - means[start : start + step])[:, None]
    return means


def fit(
    factor: Array,
    groups: NDArray[np.intp],
    ridge: float,
    weights: Array | None,
    n_components: int | None,
    leave_one_out: bool,
) -> DualSubspace:
    """Find the subspace of one partition from the Cholesky factor of ``Kx + eps I``.

    Leave-one-out inverts the factor in place, so `factor` is spent afterwards.
    """
    counts = np.bincount(groups, weights).astype(np.float64)
    solution = solve(factor, groups, counts, ridge, weights)
    # Rounding in the factor acts as a feature of its own, which the ridge alone holds down.
    trace = np.einsum("ij,ij->", factor, factor)
    noise = np.finfo(np.float64).eps * trace / ridge * (1 / counts[1:] + 1 / counts[0]).max()
    apart = None
    if leave_one_out:
        diagonal = inverse_diagonal(factor)
        apart = leverages(solution, diagonal, groups, counts, ridge, weights)
    root = np.ones((len(groups), 1)) if weights is None else np.sqrt(weights)[:, None]
    directions = root * solution.alpha
    return assemble(solution, directions, apart, groups, counts, weights, n_components, noise)


def assemble(
    solution: Solution,
    directions: Array,
    apart: tuple[Array, Array] | None,
    groups: NDArray[np.intp],
    counts: Array,
    weights: Array | None,
    n_components: int | None,
    noise: float = 0.0,
) -> DualSubspace:
    """Rotate a solved partition to its components and leave out its rows.

    `directions` are the columns of ``A Delta'``, on whatever rows are multiplied with later;
    `apart` holds leverages and gaps, or None where nothing is to be left out; `noise` is as in
    :func:`rotation`.
    """
    values, turn = rotation(solution.gram, len(groups), noise)
    rank = len(values)
    d = min(n_components or rank, rank)
    values, turn = values[:d], turn[:, :d]
    turn = turn * linalg.row_signs((directions @ turn).T)
    left = None
    if apart is not None:
        alone = loo.alone_rows(groups, counts, weights)
        rows = (solution.residuals, *apart, solution.gram, turn)
        left = loo.LeftOut(*loo.left_out(*rows, groups, counts, alone, weights), alone)
    return DualSubspace(
        directions @ turn,
        solution.origin @ turn,
        values,
        rank,
        GroupScatter.from_samples(solution.coordinates @ turn, groups, len(counts), weights),
        left,
    )

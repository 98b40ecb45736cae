"""Subspaces at every setting of a grid from one factorisation, for choosing among them.

These are shortcuts for the folds only: what is reported comes from the estimators themselves. The
tests hold each of them against the estimator that it stands for. All of it happens in the
eigenbasis of the total scatter T of a `Basis`, where T is diagonal. Ridges are relative: `eps` is
the ridge times the mean squared distance from the grand mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg
from scipy.linalg.lapack import dpotrf, dtrtrs

from .spaces import Array, Basis

# Leading pivots of a covariance below this share of its diagonal are rounding.
SINGULAR = 1e-10
# Residual at which a trace-ratio subspace counts as found, relative to the matrix.
SETTLED = 1e-4


@dataclass(frozen=True, eq=False)
class Subspace:
    """Coordinates about the positive mean, best axis first; axes are nested in d.

    `groups` are 0 for positives and 1..K for subclasses; None where every negative is a subclass
    of its own, as in CSDA. `ridge` is what the ridge of the criterion, eps I, is on these axes.
    """

    rows: Array
    others: Array
    y: Array
    groups: Array | None = None
    ridge: Array | float = 0.0

    def distance(self, d: int) -> Array:
        """Minus the distance to the positive mean in the leading d axes: the ranking score."""
        return -np.sqrt(np.sum(self.others[:, :d] ** 2, axis=1))

    def rule(self, ridged: bool = False) -> Array:
        """Decision values g of eq. (classifier) at equal priors, a row for each leading d.

        NaN where the covariances of so many axes are singular. With `ridged` they are those of
        S_p + eps I and S_w + eps I.
        """
        added = self.ridge if ridged else 0.0
        positive, negative = self.rows[self.y], self.rows[~self.y]
        phi_p = (positive.T @ positive + added) / len(positive)
        phi_o = negative.T @ negative / len(negative)
        if self.groups is not None:
            phi_o = self._phi_o(negative)
        phi_o = phi_o + added / len(negative)
        near, far = _log_densities(phi_p, self.others), _log_densities(phi_o, self.others)
        near[len(positive) - 1 :] = np.nan
        return near - far

    def _phi_o(self, negative: Array) -> Array:
        """Eq. (Phi_o): S_n / K + S_w / N_n."""
        labels = self.groups[~self.y] - 1
        counts = np.bincount(labels)
        members = np.zeros((len(counts), len(labels)))
        members[labels, np.arange(len(labels))] = 1 / counts[labels]
        means = members @ negative
        within = negative - means[labels]
        return means.T @ means / len(counts) + within.T @ within / len(negative)


def _log_densities(covariance: Array, rows: Array) -> Array:
    """Log densities of rows, up to 2 pi, in the leading 1, 2, ... axes of a centred Gaussian."""
    factor, broken = dpotrf(covariance, lower=1)
    regular = len(covariance) if broken == 0 else max(broken - 1, 0)
    pivots = factor.diagonal() ** 2
    weak = np.flatnonzero(~(pivots > SINGULAR * covariance.diagonal()))
    regular = min([regular, *weak[:1]])
    values = np.full((len(covariance), len(rows)), np.nan)
    if regular:
        part = np.asfortranarray(factor[:regular, :regular])
        white, _ = dtrtrs(part, rows[:, :regular].T, lower=1)
        half_logs = np.log(part.diagonal())[:, None]
        values[:regular] = -np.cumsum(half_logs + 0.5 * white**2, axis=0)
    return values


def pcsda(basis: Basis, y: Array, groups: Array, ridge: float) -> Subspace:
    """PCSDA from T by a low-rank update: S_I = T - M' diag(n) M, with the group means M."""
    counts = np.bincount(groups)
    members = np.zeros((len(counts), len(groups)))
    members[groups, np.arange(len(groups))] = 1 / counts[groups]
    means = members @ basis.rows
    shift = basis.scatter + ridge * basis.unit
    delta = means[1:] - means[0]
    scaled = means / shift
    inner = np.diag(1 / counts) - scaled @ means.T
    toward = delta / shift
    toward = toward + linalg.solve(inner, means @ toward.T, assume_a="sym").T @ scaled
    values, turn = linalg.eigh(toward @ delta.T)
    kept = values > 1e-12 * values[-1]
    directions = toward.T @ (turn[:, kept] / np.sqrt(values[kept]))[:, ::-1]
    origin = means[0] @ directions
    rows, others = basis.rows @ directions - origin, basis.others @ directions - origin
    return Subspace(rows, others, y, groups, ridge * basis.unit * directions.T @ directions)


@dataclass(frozen=True, eq=False)
class ClassSpecific:
    """What all CSDA variants start from: S_p, and S_n about the positive mean, in the basis."""

    basis: Basis
    y: Array
    mean: Array
    S_p: Array
    S_n: Array

    @classmethod
    def of(cls, basis: Basis, y: Array) -> ClassSpecific:
        mean = basis.rows[y].mean(axis=0)
        positive = basis.rows[y] - mean
        S_p = positive.T @ positive
        # The grand mean is the origin, so all rows about `mean` have T + N mean mean'.
        S_n = np.diag(basis.scatter) + len(y) * np.outer(mean, mean) - S_p
        return cls(basis, y, mean, S_p, S_n)

    def project(self, directions: Array) -> Subspace:
        origin = self.mean @ directions
        rows, others = self.basis.rows @ directions, self.basis.others @ directions
        return Subspace(rows - origin, others - origin, self.y)


def csda(problem: ClassSpecific, ridges: tuple[float, ...], d: int) -> dict[float, Subspace]:
    """CSDA, ``S_n w = lambda (S_p + eps I) w``, at all ridges from one eigenbasis of S_p."""
    values, vectors = linalg.eigh(problem.S_p, check_finite=False)
    numerator = vectors.T @ problem.S_n @ vectors
    found = {}
    for ridge in ridges:
        scale = 1 / np.sqrt(np.maximum(values, 0) + ridge * problem.basis.unit)
        top = _top(numerator * np.outer(scale, scale), d)[1]
        found[ridge] = problem.project(vectors @ (scale[:, None] * top))
    return found


def regression(
    problem: ClassSpecific, ridges: tuple[float, ...], d: int, seed: int
) -> dict[float, Array]:
    """Ridge regression of the label-only targets, about the positive mean: directions by column.

    T about the positive mean is T + N mean mean', diagonal but for one rank.
    """
    right = (problem.basis.rows - problem.mean).T @ label_targets(problem.y, d, seed)
    found = {}
    for ridge in ridges:
        shift = problem.basis.scatter + ridge * problem.basis.unit
        solved, mean = right / shift[:, None], problem.mean / shift
        share = len(problem.y) / (1 + len(problem.y) * problem.mean @ mean)
        found[ridge] = solved - share * np.outer(mean, problem.mean @ solved)
    return found


def label_targets(y: Array, d: int, seed: int) -> Array:
    """Orthonormal eigenvectors v of ``P_n v = lambda P_p v``, known from the labels alone.

    The first is 1_n - (N_n/N_p) 1_p. All others tie: any vectors on the negatives that are
    orthogonal to 1_n, here seeded ones.
    """
    negative = np.flatnonzero(~y)
    first = np.where(y, -len(negative) / y.sum(), 1.0)
    start = np.random.default_rng(seed).standard_normal((len(negative), d - 1))
    start -= start.mean(axis=0)
    targets = np.zeros((len(y), d))
    targets[:, 0] = first / np.linalg.norm(first)
    targets[negative, 1:] = np.linalg.qr(start)[0]
    return targets


def ritz(problem: ClassSpecific, directions: Array, eps: float) -> Array:
    """CSDA directions, best first, inside the span of the given ones."""
    top = directions.T @ problem.S_n @ directions
    bottom = directions.T @ problem.S_p @ directions + eps * (directions.T @ directions)
    _, turn = linalg.eigh(top, bottom)
    return directions @ turn[:, ::-1]


def trace_ratio(
    problem: ClassSpecific, ridges: tuple[float, ...], dims: tuple[int, ...]
) -> dict[tuple[float, int], Subspace]:
    """Maximal tr(W'S_n W) / tr(W'(S_p + eps I)W) over orthonormal W, for every ridge and d.

    W holds the top eigenvectors of ``S_n - rho S_p`` at the right rho, whatever the ridge, and
    these change smoothly with rho. So all problems are solved in the span of the eigenvectors at a
    few rho, to which those at the worst rho are added until no solution leaves a residual.
    """
    most = min(max(dims), len(problem.S_p))
    size = np.linalg.norm(problem.S_n)
    span = _top(problem.S_n, most)[1]
    rho = {(ridge, d): 0.0 for ridge in ridges for d in dims}
    found: dict[tuple[float, int], Subspace] = {}
    while rho:
        S_n, S_p = span.T @ problem.S_n @ span, span.T @ problem.S_p @ span
        left = {}
        for (ridge, d), start in rho.items():
            eps = ridge * problem.basis.unit
            small, value = _dinkelbach(S_n, S_p, eps, min(d, most), start)
            W = span @ small
            image = problem.S_n @ W - value * (problem.S_p @ W)
            residual = np.linalg.norm(image - W @ (W.T @ image)) / size
            if residual <= SETTLED or span.shape[1] == len(problem.S_p):
                found[ridge, d] = problem.project(W)
            else:
                left[ridge, d] = residual, value
        rho = {key: value for key, (_, value) in left.items()}
        if left:
            worst = max(left.values())[1]
            span = _joined(span, _top(problem.S_n - worst * problem.S_p, most)[1])
    return found


def _joined(span: Array, added: Array) -> Array:
    """Orthonormal basis of both, which starts with the first."""
    for _ in range(2):  # once leaves rounding
        added = added - span @ (span.T @ added)
    fresh, sizes, _ = linalg.qr(added, mode="economic", pivoting=True)
    return np.hstack([span, fresh[:, np.abs(sizes.diagonal()) > 1e-9]])


def _dinkelbach(S_n: Array, S_p: Array, eps: float, d: int, rho: float) -> tuple[Array, float]:
    """Raise rho until the top d eigenvalues of S_n - rho (S_p + eps I) sum to zero."""
    for _ in range(100):
        W = _top(S_n - rho * S_p, d)[1]
        bottom = np.sum(W * (S_p @ W)) + eps * d
        raised = float(np.sum(W * (S_n @ W)) / bottom)
        if abs(raised - rho) <= 1e-10 * raised:
            break
        rho = raised
    return W, rho


def _top(matrix: Array, d: int) -> tuple[Array, Array]:
    """Leading d eigenpairs of a symmetric matrix, in descending order."""
    size = len(matrix)
    window = [max(size - d, 0), size - 1]
    values, vectors = linalg.eigh(matrix, subset_by_index=window, check_finite=False)
    return values[::-1], vectors[:, ::-1]

"""Subspaces at every setting of a grid from one factorisation, for choosing among them.

These are shortcuts for the folds only: reported results come from the estimators themselves. Tests
compare each shortcut with the estimator that it replaces. The estimators also compute the axes, for
all d at once. Only the axes of the trace ratio are not nested in d; the estimator finds them within
a span that all settings share. Rows are those of a `Basis`. Ridges are relative: `eps` is the ridge
times the mean squared distance from the grand mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg
from scipy.linalg.lapack import dpotrf, dtrtrs

from pcsda import CSDA

from .spaces import Array, Basis

# Pivots of a covariance below this share of its diagonal are rounding errors.
SINGULAR = 1e-10
# Residual at which a trace-ratio subspace counts as found, relative to the norm of S_n.
SETTLED = 1e-4


@dataclass(frozen=True, eq=False)
class Subspace:
    """Coordinates about the positive mean, or a learned reference; axes are nested in d.

    `groups` is 0 for positives and 1..K for subclasses, or None if every negative is its own
    subclass, as in CSDA. `ridge` is the ridge of the criterion, eps I, on these axes.
    """

    rows: Array
    others: Array
    y: Array
    groups: Array | None = None
    ridge: Array | float = 0.0

    def distance(self, d: int) -> Array:
        """Return minus the distance to the origin in the leading d axes, the ranking score."""
        return -np.sqrt(np.sum(self.others[:, :d] ** 2, axis=1))

    def rule(self, ridged: bool = False) -> Array:
        """Return decision values g, eq. (27), at equal priors, one row for each leading d.

        They are NaN if the covariances on these d axes are singular. With `ridged`, covariances
        are those of S_p + eps I and S_w + eps I.
        """
        added = self.ridge if ridged else 0.0
        positive, negative = self.rows[self.y], self.rows[~self.y]
        centre = positive.mean(axis=0)  # zero, unless the reference is learned
        about = positive - centre
        phi_p = (about.T @ about + added) / len(positive)
        phi_o = negative.T @ negative / len(negative)
        if self.groups is not None:
            phi_o = self._phi_o(negative)
        phi_o = phi_o + added / len(negative)
        near = _log_densities(phi_p, self.others - centre)
        far = _log_densities(phi_o, self.others)
        near[len(positive) - 1 :] = np.nan
        return near - far

    def _phi_o(self, negative: Array) -> Array:
        """Compute eq. (Phi_o): S_n / K + S_w / N_n."""
        labels = self.groups[~self.y] - 1
        counts = np.bincount(labels)
        members = np.zeros((len(counts), len(labels)))
        members[labels, np.arange(len(labels))] = 1 / counts[labels]
        means = members @ negative
        within = negative - means[labels]
        return means.T @ means / len(counts) + within.T @ within / len(negative)


def _log_densities(covariance: Array, rows: Array) -> Array:
    """Compute log densities of a centred Gaussian in the leading 1, 2, ... axes, without 2 pi."""
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


def subspace_of(
    model: Any, basis: Basis, y: Array, ridge: float, groups: Array | None = None
) -> Subspace:
    """Project the rows of a basis, and the others, onto the axes of a fitted estimator."""
    W = model.components_
    added = ridge * basis.unit * (W @ W.T)
    return Subspace(model.transform(basis.rows), model.transform(basis.others), y, groups, added)


def best_in_span(found: Subspace, d: int) -> Subspace:
    """Find the best directions within the first d axes, by a Rayleigh-Ritz step."""
    positive, negative = (found.rows[part, :d] for part in (found.y, ~found.y))
    bottom = positive.T @ positive + np.asarray(found.ridge)[:d, :d]
    turn = linalg.eigh(negative.T @ negative, bottom)[1][:, ::-1]
    return Subspace(found.rows[:, :d] @ turn, found.others[:, :d] @ turn, found.y)


@dataclass(frozen=True, eq=False)
class ClassSpecific:
    """What all CSDA variants start from: S_p, and S_n about the positive mean, in the basis."""

    basis: Basis
    y: Array
    mean: Array
    S_p: Array
    S_n: Array

    @property
    def counts(self) -> Array:
        return np.array([self.y.sum(), (~self.y).sum()])

    @property
    def gap(self) -> Array:
        """m - m_n; the grand mean is zero."""
        return self.mean * len(self.y) / (~self.y).sum()

    @classmethod
    def of(cls, basis: Basis, y: Array) -> ClassSpecific:
        mean = basis.rows[y].mean(axis=0)
        positive = basis.rows[y] - mean
        S_p = positive.T @ positive
        # The grand mean is the origin, so the scatter of all rows about `mean` is T + N mean mean'.
        S_n = np.diag(basis.scatter) + len(y) * np.outer(mean, mean) - S_p
        return cls(basis, y, mean, S_p, S_n)

    def about(self, step: float) -> tuple[Array, Array]:
        """Return both scatters about the reference m + step (m - m_n)."""
        n_p, n_n = self.counts
        square = np.outer(self.gap, self.gap)
        return self.S_n + n_n * (step**2 + 2 * step) * square, self.S_p + n_p * step**2 * square

    def project(self, directions: Array, step: float = 0.0) -> Subspace:
        """Return coordinates about the reference m + step (m - m_n)."""
        origin = (self.mean + step * self.gap) @ directions
        rows, others = self.basis.rows @ directions, self.basis.others @ directions
        return Subspace(rows - origin, others - origin, self.y)


def trace_ratio(
    problem: ClassSpecific,
    ridges: tuple[float, ...],
    dims: tuple[int, ...],
    learn_reference: bool = False,
) -> dict[tuple[float, int], Subspace]:
    """Maximise tr(W'S_n W) / tr(W'(S_p + eps I)W) over orthonormal W, for all ridges and d.

    For every ridge, W holds the top eigenvectors of ``S_n - rho S_p`` at the right rho, and these
    change smoothly with rho. So all problems are solved in a common span of eigenvectors at a few
    rho. Until no solution leaves a residual, the eigenvectors at the rho with the largest residual
    are added. If the reference is learned too, the span includes the gap between the class means.
    """
    most = min(max(dims), len(problem.S_p))
    span = _top(problem.S_n, most)
    span = _joined(span, problem.gap[:, None]) if learn_reference else span
    reference = "optimal" if learn_reference else "mean"
    todo = [(ridge, d) for ridge in ridges for d in dims]
    found: dict[tuple[float, int], Subspace] = {}
    while todo:
        rows, left = problem.basis.rows @ span, {}
        # Ridges are relative to the spread of the whole rows, not to that in the span.
        share = problem.basis.unit / np.mean(np.sum(rows**2, axis=1))
        for ridge, d in todo:
            model = CSDA.published(
                min(d, most),
                solver="trace_ratio",
                reference=reference,
                regularization=ridge * share,
            ).fit(rows, problem.y)
            W, step = span @ model.components_.T, model.reference_step_
            residual = _left_over(problem, W, ridge, step)[0]
            if residual <= SETTLED or span.shape[1] == len(problem.S_p):
                found[ridge, d] = problem.project(W, step)
            else:
                left[ridge, d] = residual, (W, ridge, step)
        todo = list(left)
        if left:
            worst = max(left.values(), key=lambda pair: pair[0])[1]
            span = _joined(span, _top(_left_over(problem, *worst)[1], most))
    return found


def _left_over(problem: ClassSpecific, W: Array, ridge: float, step: float) -> tuple[float, Array]:
    """Return the residual of W as eigenvectors of ``S_n - rho S_p``, and this matrix."""
    S_n, S_p = problem.about(step)
    bottom = np.sum(W * (S_p @ W)) + ridge * problem.basis.unit * W.shape[1]
    form = S_n - np.sum(W * (S_n @ W)) / bottom * S_p
    image = form @ W
    outside = np.linalg.norm(image - W @ (W.T @ image))
    return float(outside / np.linalg.norm(problem.S_n)), form


def _top(matrix: Array, d: int) -> Array:
    """Return the leading d eigenvectors of a symmetric matrix, as columns."""
    window = [len(matrix) - d, len(matrix) - 1]
    return linalg.eigh(matrix, subset_by_index=window, check_finite=False)[1][:, ::-1]


def _joined(span: Array, added: Array) -> Array:
    """Return an orthonormal basis of both spans, which begins with the columns of `span`."""
    for _ in range(2):  # the second pass removes rounding errors
        added = added - span @ (span.T @ added)
    fresh, sizes, _ = linalg.qr(added, mode="economic", pivoting=True)
    return np.hstack([span, fresh[:, np.abs(sizes.diagonal()) > 1e-9]])

"""Solvers that turn group statistics into a projection, for CSDA and its variants (MATH 6, 14).

CSDA maximises ``w' S_n w / w' (S_p + eps I) w``, where S_n is the scatter of all negatives about
the positive mean. Exact solvers return components in descending order of eigenvalue, scaled so that
the denominator becomes the identity. The trace ratio has orthonormal components. Regressions on
targets made from the labels keep the order of the targets, unless a Rayleigh-Ritz step sorts the
result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from . import linalg
from .linalg import Array, Floats, Ints, SingularMatrixError
from .scatter import GroupScatter
from .solvers import Projection, ordered, rayleigh_ritz, seen_by

# Solvers that regress on targets, and so need the rows themselves.
TARGETS = ("labels", "raw_labels", "spectral")
# The trace ratio has converged when a step raises it by at most this share; there are at most
# STEPS steps.
TOLERANCE, STEPS = 1e-12, 100


def eigen(scatter: GroupScatter, ridge: float, n_components: int | None = None) -> Projection:
    """Solve CSDA directly; tests compare the other solvers with this one (MATH 6).

    Problem: ``S_n w = lambda (S_p + eps I) w``. Cost: about ``10 D^3`` for all directions, less for
    a few leading ones.
    """
    size = scatter.means.shape[1]
    denominator = scatter.positive + ridge * np.eye(size)
    numerator = scatter.out_of_class
    values, vectors = linalg.top_generalized(numerator, denominator, n_components or size)
    seen = seen_by(numerator, vectors)
    return ordered(vectors[:, seen], values[seen], size)


def lowrank(scatter: GroupScatter, ridge: float, n_components: int | None = None) -> Projection:
    """Solve CSDA in its low-rank regression form (MATH 6).

    Problem: regression of the targets ``e_i - 1_p/N_p``, one for each negative i, with a
    coefficient matrix of rank d. With ``L L' = S_n + S_p + eps I``, the top eigenvectors of
    ``L^-1 S_n L^-T`` span the solution, which is exactly the CSDA subspace. Cost: ``D^3/3`` for the
    factor, and a symmetric eigenproblem of size D.
    """
    size = scatter.means.shape[1]
    numerator = scatter.out_of_class
    factor = linalg.cholesky(numerator + scatter.positive, ridge)
    half = linalg.lower_solve(factor, linalg.lower_solve(factor, numerator).T)
    vectors = linalg.top_eigenvectors(half, n_components or size)
    directions = linalg.lower_solve(factor, vectors, transposed=True)
    # For eigenvalues near one, 1 - value would lose digits; the quotient does not.
    top = np.einsum("ij,ij->j", directions, numerator @ directions)
    bottom = np.einsum("ij,ij->j", directions, scatter.positive @ directions)
    bottom = bottom + ridge * np.einsum("ij,ij->j", directions, directions)
    if np.any(bottom <= linalg.RANK_TOLERANCE * size):  # top + bottom is one
        raise SingularMatrixError("the denominator is not positive definite")
    seen = seen_by(numerator, directions)
    return ordered((directions / np.sqrt(bottom))[:, seen], (top / bottom)[seen], size)


def label_targets(
    groups: Ints, n_components: int, rng: np.random.Generator, weights: Array | None = None
) -> Array:
    """Return regression targets for the negatives, as columns, from labels alone (MATH 6).

    The first target is constant and the others are random; all are orthonormal. The targets are
    eigenvectors of the graph problem ``P_n v = lambda P_p v``, except that the first lacks its part
    on the positives, which has no effect in a regression about the positive mean. All but the first
    have the same eigenvalue, so their order is arbitrary. A larger `n_components` appends targets
    and leaves the first ones unchanged.
    """
    negative = np.flatnonzero(groups)
    root = np.ones(len(negative)) if weights is None else np.sqrt(weights[negative])
    targets = np.column_stack([root, *rng.standard_normal((n_components - 1, len(negative)))])
    return np.linalg.qr(targets)[0]


def target_lengths(solver: str, counts: Array, n_components: int) -> Array:
    """Return the length of each target's part on the negatives, which depends on the solver.

    In spectral regression, an eigenvector has length one over all rows, and the first one,
    ``1_n - (N_n/N_p) 1_p``, also has a part on the positives.
    """
    lengths = np.ones(n_components)
    if solver == "spectral":
        lengths[0] = np.sqrt(counts[0] / counts.sum())
    return lengths


def by_targets(
    solver: str,
    X: Floats,
    groups: Ints,
    scatter: GroupScatter,
    ridge: float,
    targets: Array,
    weights: Array | None = None,
) -> Projection:
    """Approximate CSDA with targets known from the labels alone (MATH 6, 14).

    Problem: ridge regression, on rows about the positive mean, of ``1_n - (N_n/N_p) 1_p`` and of
    d - 1 random orthonormal vectors on the negatives that are orthogonal to ``1_n``. The solver
    "labels" returns the best directions in the span of the regression's solution. The solvers
    "raw_labels" and "spectral" return the solution itself, in the order of the targets; its `rank`
    is the number of independent directions. The span equals the CSDA subspace only if all N_n
    targets are used. Cost: ``D^3/3 + 2 N D d``, without an eigenproblem larger than d.

    Raises
    ------
    SingularMatrixError
        If the denominator of the criterion vanishes along a direction.
    """
    negative = np.flatnonzero(groups)
    root = np.ones(len(negative)) if weights is None else np.sqrt(weights[negative])
    right = (X[negative] - scatter.means[0]).T @ (root[:, None] * targets)
    factor = linalg.cholesky(scatter.positive + scatter.out_of_class, ridge)
    span = linalg.lower_solve(factor, linalg.lower_solve(factor, right), transposed=True)
    numerator = span.T @ scatter.out_of_class @ span
    denominator = span.T @ scatter.positive @ span + ridge * (span.T @ span)
    if solver == "labels":
        return rayleigh_ritz(span, numerator, denominator)
    top, bottom = numerator.diagonal(), denominator.diagonal()
    if np.any(bottom <= linalg.RANK_TOLERANCE * len(span) * top):
        raise SingularMatrixError("the denominator vanishes on the span of the solution")
    directions = span / np.linalg.norm(span, axis=0)
    spread = np.linalg.svd(directions, compute_uv=False) ** 2
    rank = linalg.numerical_rank(spread, len(span))
    return Projection(linalg.fix_signs(span.T), top / bottom, rank)


@dataclass(frozen=True)
class Forms:
    """The quadratic forms of a trace ratio, as matrices in some basis.

    Attributes
    ----------
    numerator, denominator : arrays of shape (r, r)
        S_n about the positive mean, and S_p without the ridge.
    gap : array of shape (r, r) or None
        ``D D'``, where D is the difference of the class means. None if the reference vector is not
        learned, or if both means are equal.
    counts : array of shape (2,)
        N_p and N_n.
    """

    numerator: Array
    denominator: Array
    gap: Array | None
    counts: Array

    def at(self, ratio: float, step: float) -> Array:
        """Return ``S_n(s) - rho S_p(s)``, where rho is `ratio` and s is `step`.

        Both scatter matrices are taken about the reference vector ``m + s (m - m_n)``, where m and
        m_n are the means of the positives and of the negatives.
        """
        form = self.numerator - ratio * self.denominator
        return form if self.gap is None else form + self.pull(ratio, step) * self.gap

    def pull(self, ratio: float, step: float) -> float:
        """Return the factor by which :meth:`at` multiplies `gap`."""
        n_p, n_n = self.counts
        return float(n_n * (step**2 + 2 * step) - ratio * n_p * step**2)

    def ratio(self, W: Array, ridge: float, step: float) -> tuple[Array, Array]:
        """Return the numerator and the denominator of the ratio along each column of W."""
        top, bottom = (np.einsum("ij,ij->j", W, f @ W) for f in (self.numerator, self.denominator))
        bottom = bottom + ridge * np.einsum("ij,ij->j", W, W)
        if self.gap is not None and step:
            gap = np.einsum("ij,ij->j", W, self.gap @ W)
            top = top + self.counts[1] * (step**2 + 2 * step) * gap
            bottom = bottom + self.counts[0] * step**2 * gap
        return top, bottom


@dataclass(frozen=True)
class Ascent:
    """State of a trace-ratio ascent.

    It holds orthonormal directions, their trace ratio, the step s of the reference vector, and the
    quotient of each direction.
    """

    directions: Array
    ratio: float
    step: float
    quotients: Array


def best_step(forms: Forms, ratio: float) -> float | None:
    """Return the s of the best reference vector ``m + s (m - m_n)`` at a given trace ratio.

    The best s does not depend on the directions. At ratios up to N_n/N_p, no s is best, because a
    more distant reference vector always exceeds such a ratio (MATH 14). The result is then None.
    """
    if forms.gap is None:
        return 0.0
    n_p, n_n = forms.counts
    lead = ratio * n_p - n_n
    return float(n_n / lead) if lead > 1e-9 * n_n else None


def _distant_step(forms: Forms, ridge: float, d: int) -> float:
    """Return a step s at which the trace ratio of the best `d` directions exceeds N_n/N_p.

    From such a ratio, :func:`ascend` can continue with :func:`best_step`. The search doubles s.
    """
    ratio, step = float(forms.counts[1] / forms.counts[0]), 1.0
    while step < 1e12:
        W = linalg.top_eigenvectors(forms.at(ratio, step), d)
        top, bottom = forms.ratio(W, ridge, step)
        if top.sum() > (1 + 1e-6) * ratio * bottom.sum():
            return step
        step *= 2
    return step


def ascend(forms: Forms, ridge: float, d: int, ratio: float = 0.0) -> Iterator[Ascent]:
    """Raise the trace ratio iteratively, starting from a given ratio, and yield each state.

    Each iteration takes the top `d` eigenvectors of ``S_n(s) - rho (S_p(s) + eps I)`` at the
    current ratio rho. The step s of the reference vector is the best one at rho, whatever the
    directions. So the ratio never falls, and its limit is the largest ratio over all directions and
    reference vectors (Dinkelbach).
    """
    size = len(forms.numerator)
    while True:
        step = best_step(forms, ratio)
        if step is None:  # below N_n/N_p the formula gives a negative s
            step = 0.0 if ratio == 0 else _distant_step(forms, ridge, d)
        W = linalg.top_eigenvectors(forms.at(ratio, step), d)
        top, bottom = forms.ratio(W, ridge, step)
        if np.any(bottom <= linalg.RANK_TOLERANCE * size * top):
            raise SingularMatrixError("the denominator is not positive definite")
        ratio = float(top.sum() / bottom.sum())
        yield Ascent(W, ratio, step, top / bottom)


def settled(forms: Forms, ridge: float, d: int, ratio: float = 0.0, limit: int = STEPS) -> Ascent:
    """Run :func:`ascend` until it converges, but for at most `limit` iterations.

    Returns the last state, with the directions sorted by their quotients, best first.
    """
    for number, found in enumerate(ascend(forms, ridge, d, ratio), 1):
        low = best_step(forms, found.ratio) is None
        if number == limit or (not low and found.ratio - ratio <= TOLERANCE * found.ratio):
            break
        ratio = found.ratio
    order = np.argsort(-found.quotients, kind="stable")
    return replace(found, directions=found.directions[:, order], quotients=found.quotients[order])


def spread_basis(numerator: Array, denominator: Array) -> Array:
    """Return orthonormal directions, as columns, along which samples of either class vary."""
    spread, basis = linalg.eigh_descending(numerator + denominator)
    return basis[:, : linalg.numerical_rank(spread, len(basis))]


def trace_ratio(
    scatter: GroupScatter,
    ridge: float,
    n_components: int,
    *,
    learn_reference: bool = False,
    max_iter: int = STEPS,
) -> Projection:
    """Maximise the trace ratio in eq. (CSKDA_J2) itself over orthonormal W (MATH 6, 14).

    Problem: ``tr(W' S_n W) / tr(W' (S_p + eps I) W)`` with ``W'W = I``. With `learn_reference`,
    both scatter matrices are taken about a reference vector, which is optimised as well. Each step
    takes the top eigenvectors of ``S_n - rho (S_p + eps I)`` at the current ratio rho; the ratio
    rises monotonically and converges quadratically. Cost: one symmetric eigenproblem of size D per
    step, usually five to ten steps. The returned eigenvalues are the ratios along each component.

    W is confined to directions in which samples vary about the positive mean. Along all other
    directions the samples coincide, and the ratio of two vanishing scatters would be noise.
    """
    size = scatter.means.shape[1]
    basis = spread_basis(scatter.out_of_class, scatter.positive)
    numerator = basis.T @ scatter.out_of_class @ basis
    rank = linalg.numerical_rank(linalg.eigh_descending(numerator)[0], size)
    if rank == 0:
        return Projection(np.empty((0, size)), np.empty(0), 0)
    gap = None
    if learn_reference:
        apart = basis.T @ (scatter.counts[1:] @ scatter.delta / scatter.n_negative)
        # If the class means are equal, no reference is better than their mean.
        same = linalg.SAME_POINT**2 * max(scatter.total_variance, 0.0)
        gap = np.outer(apart, apart) if apart @ apart > same else None
    counts = np.array([scatter.n_positive, scatter.n_negative])
    forms = Forms(numerator, basis.T @ scatter.positive @ basis, gap, counts)
    found = settled(forms, ridge, min(n_components, rank), limit=max_iter)
    components = linalg.fix_signs((basis @ found.directions).T)
    return Projection(components, found.quotients, rank, step=found.step)

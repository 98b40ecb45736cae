"""Samples for the tests, and the statistics of the paper written out row by row."""

from types import SimpleNamespace

import numpy as np
from scipy import linalg
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, multivariate_t

from pcsda.core import loo, solvers
from pcsda.core.scatter import GroupScatter


def make_rows(sizes, width, *, seed=0, weighted=False, spread=2.0):
    """Correlated rows of `len(sizes)` groups in random order: X, groups and weights (or None)."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    mixing = rng.standard_normal((width, width)) / np.sqrt(width) + np.eye(width)
    centres = spread * rng.standard_normal((len(sizes), width))
    X = rng.standard_normal((len(groups), width)) @ mixing + centres[groups]
    weights = rng.uniform(0.3, 2.5, len(groups)) if weighted else None
    return X, groups, weights


def with_heavy_tails(X, groups, seed=0):
    """The same rows with some of them far from the mean of their group, as in a t of 3 degrees."""
    means = np.array([X[groups == g].mean(axis=0) for g in range(groups.max() + 1)])[groups]
    stretch = np.sqrt(3 / np.random.default_rng(seed).chisquare(3, (len(X), 1)))
    return means + stretch * (X - means)


def assert_same_blend(found, expected, rtol=1e-7):
    """Tails, shares, offset and Fisher's axis of two densities agree."""
    np.testing.assert_allclose(found.tails, expected.tails, rtol=rtol)
    np.testing.assert_allclose(found.shares, expected.shares, rtol=rtol, atol=rtol)
    assert (found.offset is None) == (expected.offset is None)
    if expected.offset is not None:
        np.testing.assert_allclose(found.offset, expected.offset, rtol=rtol, atol=rtol)
    assert (found.axis is None) == (expected.axis is None)
    if expected.axis is not None:
        np.testing.assert_allclose(found.axis, expected.axis, atol=rtol)


def outer_sum(rows, weights):
    """Sum of weighted outer products, one row after the other."""
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for row, weight in zip(rows, weights, strict=True):
        total += weight * np.outer(row, row)
    return total


def paper_statistics(X, groups, weights=None, n_groups=None):
    """All scatter matrices of the paper by their definitions, in double precision."""
    X = np.asarray(X, dtype=np.float64)
    w = np.ones(len(X)) if weights is None else weights
    n_groups = groups.max() + 1 if n_groups is None else n_groups
    counts, means = np.zeros(n_groups), np.zeros((n_groups, X.shape[1]))
    for g in range(n_groups):
        counts[g] = w[groups == g].sum()
        if counts[g] > 0:
            means[g] = (w[groups == g, None] * X[groups == g]).sum(axis=0) / counts[g]
    positive, negative = groups == 0, groups > 0
    residuals = X - means[groups]
    m, total = means[0], w.sum()
    grand = (w[:, None] * X).sum(axis=0) / total
    n_p, n_n, n_k = counts[0], counts[1:].sum(), n_groups - 1
    S_p = outer_sum(residuals[positive], w[positive])
    S_w = outer_sum(residuals[negative], w[negative])
    S_n = outer_sum(means[1:] - m, np.ones(n_k))
    out_of_class = outer_sum(X[negative] - m, w[negative])
    return SimpleNamespace(
        counts=counts,
        means=means,
        m=m,
        delta=means[1:] - m,
        n_p=n_p,
        n_n=n_n,
        n_k=n_k,
        S_p=S_p,
        S_w=S_w,
        S_n=S_n,
        S_I=S_p + S_w,
        out_of_class=out_of_class,
        total_variance=np.trace(outer_sum(X - grand, w)) / total,
    )


def log_density(z, mean, covariance, tail=np.inf):
    """SciPy's Gaussian, or its t with `tail` degrees of freedom and the same covariance."""
    if np.isinf(tail):
        return multivariate_normal.logpdf(z, mean, covariance)
    return multivariate_t.logpdf(z, mean, covariance * ((tail - 2) / tail), tail)


def cloud_of(density):
    """Variances of both classes on Fisher's axis, and the mean of the negatives there."""
    shares = np.exp(density.log_weights)
    centre = shares @ density.centres
    spread = density.centres - centre
    total = density.negative + (shares * spread.T) @ spread
    v = density.axis
    return v @ density.positive @ v, v @ total @ v, centre @ v


def log_ratio_by_scipy(density, z, sets=None):
    """Log ratio of rows, or of sets of independent rows that share a centre, tails included."""

    def summed(values):
        return values if sets is None else np.bincount(sets, values)

    tail, on_axis = density.tails
    parts = [summed(log_density(z, c, density.negative, tail)) for c in density.centres]
    inside = summed(log_density(z, np.zeros(z.shape[1]), density.positive, tail))
    mixture = inside - logsumexp(np.array(parts) + density.log_weights[:, None], axis=0)
    if density.axis is None:
        return mixture
    positive, negative, centre = cloud_of(density)
    u = z @ density.axis
    cloud = log_density(u, 0.0, positive, on_axis) - log_density(u, centre, negative, on_axis)
    return density.shares[0] * mixture + density.shares[1] * summed(cloud) + (density.offset or 0.0)


def generalized_eigen(numerator, denominator, count):
    """Leading eigenpairs by SciPy: rows of unit denominator norm, largest entry positive."""
    values, vectors = linalg.eigh(numerator, denominator)
    rows = vectors.T[::-1][:count]
    peaks = rows[np.arange(count), np.abs(rows).argmax(axis=1)]
    return values[::-1][:count], rows * np.sign(peaks)[:, None]


def largest_angle(first, second):
    """Largest principal angle between the spans of the rows."""
    return linalg.subspace_angles(np.asarray(first).T, np.asarray(second).T).max()


def leave_rows_out(X, groups, weights, ridge, solver=solvers.cholesky, d=None):
    """Projection, statistics and left-out rows by the closed form."""
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    projection = solver(scatter, ridge)
    projection = projection.leading(d or projection.rank)
    return projection, scatter, loo.primal(X, groups, scatter, projection, ridge, weights)


def refit_without_each_row(X, groups, weights, ridge, components):
    """Left-out coordinates and residuals by N refits of the statistics (MATH 8).

    The ridge, the groups and the rotation of the full fit are held; a subclass that vanishes with
    its only row leaves a zero in the place of its coordinate.
    """
    w = np.ones(len(X)) if weights is None else weights
    width, n_groups = X.shape[1], groups.max() + 1
    full = paper_statistics(X, groups, w)
    toward = np.linalg.solve(full.S_I + ridge * np.eye(width), full.delta.T)  # A Delta'
    rotation = np.linalg.lstsq(toward, components.T, rcond=1e-10)[0]
    np.testing.assert_allclose(
        toward @ rotation, components.T, atol=1e-7 * np.abs(components).max()
    )
    coordinates, residuals = [], []
    for i in range(len(X)):
        kept = np.arange(len(X)) != i
        s = paper_statistics(X[kept], groups[kept], w[kept], n_groups)
        alone = s.counts[groups[i]] == 0
        delta = np.where(s.counts[1:, None] > 0, s.delta, 0.0)
        offsets = np.array([X[i] - s.m, np.zeros(width) if alone else X[i] - s.means[groups[i]]])
        y = offsets @ np.linalg.solve(s.S_I + ridge * np.eye(width), delta.T)
        coordinates.append(y[0] @ rotation)
        residuals.append(y[1] @ rotation)
    return np.array(coordinates), np.array(residuals)

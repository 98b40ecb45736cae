"""Samples for the tests, and the paper's statistics computed row by row."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import linalg
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, multivariate_t

from pcsda.core import solvers
from pcsda.core.calibration import Calibration
from pcsda.core.density import Blend
from pcsda.core.leaver import Leaver
from pcsda.core.scatter import GroupScatter


def make_rows(sizes, width, *, seed=0, weighted=False, spread=2.0):
    """Draw correlated rows of `len(sizes)` groups in random order: X, groups, weights (or None)."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    mixing = rng.standard_normal((width, width)) / np.sqrt(width) + np.eye(width)
    centres = spread * rng.standard_normal((len(sizes), width))
    X = rng.standard_normal((len(groups), width)) @ mixing + centres[groups]
    weights = rng.uniform(0.3, 2.5, len(groups)) if weighted else None
    return X, groups, weights


def labelled(width=6, sizes=(30, 25, 40, 20), *, seed=0, spread=1.0):
    """Return rows, binary labels (1 for group 0) and groups."""
    X, groups, _ = make_rows(sizes, width, seed=seed, spread=spread)
    return X, (groups == 0).astype(int), groups


def random_cells(seed):
    """Draw labels and clusters of 60 rows; cluster 3 has only class 1, cluster 2 no class 0."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(4), rng.integers(4, size=56)])
    clusters = np.concatenate([np.zeros(4, dtype=int), rng.integers(3, size=56)])
    clusters[(clusters == 2) & (labels == 0)] = 1
    clusters[np.flatnonzero(labels == 1)[1:4]] = 3
    order = rng.permutation(60)
    return labels[order], clusters[order]


def in_turn(names, values, **settings):
    """Run a test on all values; in `make test`, each value in a third of the tests."""
    over = pytest.mark.parametrize(names, values, **settings)
    return lambda test: pytest.mark.in_turn(names)(over(test))


def lean(checks):
    """Leave to `make every` those of scikit-learn's checks that vary another or must fail."""
    names, cases = checks.args
    params = [case if hasattr(case, "values") else pytest.param(*case) for case in cases]
    for number, param in enumerate(params):
        check = param.values[1]
        name, given = getattr(check, "func", check).__name__, getattr(check, "keywords", {})
        varied = given.get("readonly_memmap") or "_sparse_" in name
        if varied or name == "check_sample_weight_equivalence_on_dense_data":
            marks = [*param.marks, pytest.mark.more]
            params[number] = pytest.param(*param.values, marks=marks)
    return pytest.mark.parametrize(names, params, **checks.kwargs)


def refuses(message, error=ValueError):
    """Expect an error whose message contains these words."""
    return pytest.raises(error, match=re.escape(message))


def close(found, expected, rtol=1e-8):
    """Check that numbers agree, relative to the largest of them."""
    largest = np.nanmax(np.abs(expected), initial=0.0)
    assert_allclose(found, expected, rtol=rtol, atol=rtol * largest)


def with_heavy_tails(X, groups, seed=0):
    """Move some rows far from their group mean, as a t with 3 degrees of freedom would."""
    means = np.array([X[groups == g].mean(axis=0) for g in range(groups.max() + 1)])[groups]
    stretch = np.sqrt(3 / np.random.default_rng(seed).chisquare(3, (len(X), 1)))
    return means + stretch * (X - means)


def parts_of(model):
    """Return density and calibration of a fitted estimator or core model."""
    if hasattr(model, "density_"):
        return model.density_, model.calibration_
    return model.density, model.calibration


def tails_of(density):
    """Return the degrees of freedom of the mixture and, in a blend, of the cloud."""
    tails = [density.base.tail]
    return [*tails, density.tail] if isinstance(density, Blend) else tails


def assert_same_density(found, expected, rtol=1e-7):
    """Check that kind, covariances, weighted centres, tails and Fisher's axis agree."""
    assert type(found) is type(expected)
    for name in ("positive", "negative", "centres", "log_weights", "subclasses"):
        one, other = getattr(found.base, name), getattr(expected.base, name)
        scale = np.abs(other).max()
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * scale, err_msg=name)
    np.testing.assert_allclose(tails_of(found), tails_of(expected), rtol=rtol)
    if isinstance(expected, Blend):
        np.testing.assert_allclose(found.axis, expected.axis, atol=rtol)


def assert_same_calibration(found, expected, rtol=1e-7):
    """Check that weights and offset agree."""
    np.testing.assert_allclose(found.weights, expected.weights, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found.offset, expected.offset, rtol=rtol, atol=rtol)


def assert_same_blend(found, expected, rtol=1e-7):
    """Check that density and calibration of two fitted models agree."""
    (one, found_map), (other, expected_map) = parts_of(found), parts_of(expected)
    assert_same_density(one, other, rtol)
    assert_same_calibration(found_map, expected_map, rtol)


def outer_sum(rows, weights):
    """Sum weighted outer products row by row."""
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for row, weight in zip(rows, weights, strict=True):
        total += weight * np.outer(row, row)
    return total


def paper_statistics(X, groups, weights=None, n_groups=None):
    """Compute all scatter matrices of the paper from their definitions, in double precision."""
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
    """Return SciPy's Gaussian log density, or its t with `tail` degrees of freedom."""
    if np.isinf(tail):
        return multivariate_normal.logpdf(z, mean, covariance)
    return multivariate_t.logpdf(z, mean, covariance * ((tail - 2) / tail), tail)


def cloud_of(density):
    """Return both class variances and the negatives' mean on Fisher's axis."""
    base, v = density.base, density.axis
    shares = np.exp(base.log_weights)
    centre = shares @ base.centres
    spread = base.centres - centre
    total = base.negative + (shares * spread.T) @ spread
    return v @ base.positive @ v, v @ total @ v, centre @ v


def views_by_scipy(density, z, sets=None):
    """Compute views of rows, or of sets of independent rows with a common centre, with tails."""

    def summed(values):
        return values if sets is None else np.bincount(sets, values)

    base = density.base
    parts = [summed(log_density(z, c, base.negative, base.tail)) for c in base.centres]
    inside = summed(log_density(z, np.zeros(z.shape[1]), base.positive, base.tail))
    mixture = inside - logsumexp(np.array(parts) + base.log_weights[:, None], axis=0)
    if not isinstance(density, Blend):
        return mixture[None]
    if not density.axis.any():
        return np.array([mixture, mixture])
    positive, negative, centre = cloud_of(density)
    u, tail = z @ density.axis, density.tail
    cloud = log_density(u, 0.0, positive, tail) - log_density(u, centre, negative, tail)
    return np.array([mixture, summed(cloud)])


def log_ratio_by_scipy(density, z, sets=None, calibration=None):
    """Compute log-likelihood ratios of rows or sets; without a calibration, average the views."""
    calibration = Calibration.none(density.n_views) if calibration is None else calibration
    views = views_by_scipy(density, z, sets)
    return bent(calibration, np.array(calibration.weights) @ views + calibration.offset)


def bent(calibration, ratios):
    """Bend log-likelihood ratios: beyond either end they grow logarithmically."""
    if np.isinf(calibration.bend):
        return ratios
    below, above = calibration.top - ratios, ratios - calibration.highest
    with np.errstate(invalid="ignore"):
        down, up = (calibration.bend * np.log(1 + t / calibration.bend) for t in (below, above))
    ratios = np.where(below > 0, calibration.top - down, ratios)
    return np.where(above > 0, calibration.highest + up, ratios)


def positives_without(base, left, members):
    """Return the covariance of the positives without some rows, and how far their mean moves.

    Each remaining positive is measured from the mean without its own block and without `members`.
    """
    ids = np.arange(len(left.groups)) if left.together is None else left.together
    own = (left.groups == 0) & left.known
    z, weight, mass = left.coordinates, left.weight, left.mass
    total, nu = mass[own].sum(), base.positive_strength - mass[own].sum()

    def mean_without(rows):  # seen from the mean of all positives
        return -weight[rows] @ z[rows] / total

    out = own & members
    if not out.any():
        return base.positive, np.zeros(z.shape[1])
    leaving = weight[out].sum()
    centre = weight[out] @ z[out] / leaving + mean_without(out)
    scatter, count = np.zeros_like(base.positive), 0.0
    for row in np.flatnonzero(own & ~members):
        block = own & (ids == ids[row])
        rest = total - weight[block].sum() - leaving
        if rest <= 1e-10 * (total - leaving):
            continue
        place = mean_without(block)
        both = ((total - weight[block].sum()) * place - leaving * centre) / rest
        residual = z[row] + place - both
        scatter, count = scatter + mass[row] * np.outer(residual, residual), count + mass[row]
    before = (z[own].T * mass[own]) @ z[own]
    # The shrinkage target is the covariance of all left-out rows, so it loses the rows as well.
    prior = base.positive_strength * base.positive - before
    prior += nu / mass[left.known].sum() * (scatter - before)
    return (scatter + prior) / (count + nu), -mean_without(out)


def axis_ridge(n_positive):
    """Return the ridge of Fisher's axis relative to the criterion's: 5 / sqrt(n), 0 from 20 on."""
    return 5 * max(n_positive**-0.5 - 20**-0.5, 0.0)


def cloud_without(density, covariance, centres, counts, z):
    """Return the cloud's log ratio of a row on Fisher's axis, for other positives and centres."""
    base, shares = density.base, np.exp(density.base.log_weights)
    at = shares @ centres
    spread = base.centres - shares @ base.centres
    cloud = base.negative + (spread.T * shares) @ spread
    share = counts[0] / counts.sum()
    pooled = share * covariance + (1 - share) * cloud
    pooled += axis_ridge(counts[0]) / counts.sum() * np.eye(len(z))
    axis = np.linalg.solve(pooled, at)
    inside = log_density(z @ axis, 0.0, axis @ covariance @ axis, density.tail)
    return inside - log_density(z @ axis, at @ axis, axis @ cloud @ axis, density.tail)


def moves_of_centres(left, centres):
    """Return how far the subclass means move on the axes for each left-out row, dense."""
    moves = np.zeros((len(left.groups), *centres.shape))
    moves[left.shifts.rows] = left.shifts.of(slice(None))
    return moves


def scores_by_scipy(model, z, sets=None):
    """Compute a fitted model's log-likelihood ratio at coordinates `z`."""
    density, calibration = parts_of(model)
    return log_ratio_by_scipy(density, z, sets, calibration)


def generalized_eigen(numerator, denominator, count):
    """Return SciPy's leading eigenpairs: rows of unit denominator norm, largest entry positive."""
    values, vectors = linalg.eigh(numerator, denominator)
    rows = vectors.T[::-1][:count]
    peaks = rows[np.arange(count), np.abs(rows).argmax(axis=1)]
    return values[::-1][:count], rows * np.sign(peaks)[:, None]


def largest_angle(first, second):
    """Return the largest principal angle between the row spans."""
    return linalg.subspace_angles(np.asarray(first).T, np.asarray(second).T).max()


def leave_rows_out(X, groups, weights, ridge, solver=solvers.cholesky, d=None):
    """Return projection, statistics and left-out rows from the closed form."""
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    projection = solver(scatter, ridge)
    projection = projection.leading(d or projection.rank)
    left = Leaver.of(scatter, projection, ridge).leave_out(X, groups, weights)
    return projection, scatter, left


def refit_without_each_row(X, groups, weights, ridge, components, blocks=None):
    """Left-out coordinates, residuals and centres by refits of the statistics (MATH 8 and 17).

    The ridge and the groups of the full fit are held. The axes of the refit are orthonormal in its
    own scatter, and turned to lie as close as possible to those of the full fit. The centres are
    the subclass means of the full fit on these axes, relative to its positive mean. Rows of one
    block leave together; where all rows of a class leave with them, all three are zero.
    """
    w = np.ones(len(X)) if weights is None else weights
    blocks = np.arange(len(X)) if blocks is None else blocks
    width, n_groups = X.shape[1], groups.max() + 1
    full = paper_statistics(X, groups, w)
    given, components = len(components), _all_axes(full, ridge, components)
    toward = np.linalg.solve(full.S_I + ridge * np.eye(width), full.delta.T)  # A Delta'
    rotation = np.linalg.lstsq(toward, components.T, rcond=1e-10)[0]
    np.testing.assert_allclose(
        toward @ rotation, components.T, atol=1e-7 * np.abs(components).max()
    )
    coordinates = np.zeros((len(X), len(components)))
    residuals = np.zeros((len(X), len(components)))
    centres = np.zeros((len(X), len(full.delta), len(components)))
    for block in np.unique(blocks):
        kept = blocks != block
        s = paper_statistics(X[kept], groups[kept], w[kept], n_groups)
        if s.counts[0] == 0 or s.counts[1:].sum() == 0:
            continue
        delta = np.where(s.counts[1:, None] > 0, s.delta, 0.0)
        bottom = s.S_I + ridge * np.eye(width)
        axes = np.linalg.solve(bottom, delta.T) @ rotation
        solved = turned_toward(axes, bottom, components.T, full.S_I + ridge * np.eye(width))
        for i in np.flatnonzero(~kept):
            coordinates[i], centres[i] = (X[i] - s.m) @ solved, full.delta @ solved
            if s.counts[groups[i]] > 0:
                residuals[i] = (X[i] - s.means[groups[i]]) @ solved
    return coordinates[:, :given], residuals[:, :given], centres[:, :, :given]


def turned_toward(axes, scatter, target, before):
    """Axes of the same span, orthonormal in the scatter, as close to others as they can be.

    `before` is the scatter in which the others are orthonormal; all are columns.
    """
    values, vectors = np.linalg.eigh(axes.T @ scatter @ axes)
    there = values > 1e-10 * values[-1]  # a subclass that vanished takes its axis with it
    axes = axes @ (vectors[:, there] / np.sqrt(values[there]))
    left, _, right = np.linalg.svd(axes.T @ before @ target, full_matrices=False)
    return axes @ left @ right


def _all_axes(full, ridge, components):
    """Return a fit's leading axes, followed by those it dropped."""
    most = min(len(full.delta), len(full.S_I))
    bottom = full.S_I + ridge * np.eye(len(full.S_I))
    values, axes = generalized_eigen(full.S_n, bottom, most)
    rank = np.sum(values > 1e-9 * values[0])
    return np.vstack([components, axes[len(components) : rank]])

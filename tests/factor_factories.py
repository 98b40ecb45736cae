"""Every way to factorise rows, by name, and checks that their solutions agree."""

import numpy as np
import pytest
from factories import close, moves_of_centres
from numpy.testing import assert_array_equal

from pcsda.core import gram
from pcsda.core.direct import DirectFactor, IterativeFactor
from pcsda.core.kernel_matrix import FeatureFactor, features_of
from pcsda.core.white import whiten

WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
TALL_AND_WIDE = pytest.mark.parametrize("width", [6, 70], ids=["D<N", "D>N"])


def direct(solver):
    """Make a factor that solves by `solver`."""
    return lambda X, regularization, weights: DirectFactor(X, regularization, weights, solver)


def of_linear_kernel(X, regularization, weights):
    """Factorise the matrix of the linear kernel."""
    return next(gram.of_kernel(X @ X.T, [regularization], weights))


def on_features(X, regularization, weights):
    """Solve on exact features of the linear kernel."""
    features, pivots, triangle = features_of(X @ X.T, weights, regularization)
    return FeatureFactor(DirectFactor(features, regularization, weights), pivots, triangle)


# DirectFactor by its first solver is what the others are compared with.
FACTORS = {
    "direct": direct("cholesky"),
    "eigen": direct("eigen"),
    "spectral": direct("spectral"),
    "white": lambda X, regularization, weights: next(whiten(X, [regularization], weights)),
    "gram": lambda X, regularization, weights: next(gram.wide(X, [regularization], weights)),
    "kernel": of_linear_kernel,
    "features": on_features,
}
ON_KERNEL_VALUES = {"kernel", "features"}
EVERY = pytest.mark.parametrize("name", FACTORS)
OTHERS = pytest.mark.parametrize("name", [name for name in FACTORS if name != "direct"])
SHARED = pytest.mark.parametrize("name", ["white", "gram", "kernel"])


def make_factor(name, X, regularization, weights=None):
    """Factorise rows; "lsqr" leaves no row out, all others do."""
    if name == "lsqr":
        return IterativeFactor(X, regularization, weights)
    return FACTORS[name](X, regularization, weights)


def solve(name, X, groups, regularization=0.01, weights=None, n_components=None, **more):
    """Factorise rows and solve one division of them."""
    return make_factor(name, X, regularization, weights).solve(groups, n_components, **more)


def as_seen(name, X, rows):
    """Return rows as this factor's subspace takes them: kernel values or the rows themselves."""
    return rows @ X.T if name in ON_KERNEL_VALUES else rows


def close_to_refits(left, coordinates, residuals, centres, full, rtol=1e-8):
    """Check left-out rows, and the centres seen with positives left out, against refits.

    `full` holds the centres of the full fit.
    """
    close(left.coordinates, coordinates, rtol)
    close(left.residuals, residuals, rtol)
    own = (left.groups == 0) & left.known
    close((full + moves_of_centres(left, full))[own], centres[own], rtol)


def assert_same_left(found, expected, signs=1.0, rtol=1e-8):
    """Check that left-out rows agree, up to the signs of axes."""
    close(found.coordinates * signs, expected.coordinates, rtol)
    close(found.residuals * signs, expected.residuals, rtol)
    assert_array_equal(found.groups, expected.groups)
    assert_array_equal(found.alone, expected.alone)
    assert_array_equal(found.known, expected.known)


def assert_same_subspace(found, expected, seen=None, rtol=1e-8):
    """Axes, statistics and left-out rows agree; `seen` are rows as each of the two takes them.

    Without them the coefficients themselves have to agree; with them axes may differ in sign.
    """
    signs = 1.0
    if seen is None:
        close(found.coefficients, expected.coefficients, rtol)
        close(found.origin, expected.origin, rtol)
    else:
        one, other = found.project(seen[0]), expected.project(seen[1])
        assert one.shape == other.shape
        signs = np.sign(np.einsum("ij,ij->j", one, other))
        close(one * signs, other, rtol)
    assert found.rank == expected.rank
    close(found.eigenvalues, expected.eigenvalues, rtol)
    close(found.projected.counts, expected.projected.counts, rtol)
    close(found.projected.means * signs, expected.projected.means, rtol)
    turn = np.outer(signs, signs) if seen is not None else 1.0
    for name in ("positive", "within"):
        close(getattr(found.projected, name) * turn, getattr(expected.projected, name), rtol)
    close(found.ridged * turn, expected.ridged, rtol)
    assert (found.left is None) == (expected.left is None)
    if expected.left is not None:
        assert_same_left(found.left, expected.left, signs, rtol)

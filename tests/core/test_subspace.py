"""A subspace: leading axes, signs, and projections close to and far from zero."""

from dataclasses import replace

import numpy as np
import pytest
from factor_factories import TALL_AND_WIDE, as_seen, assert_same_subspace, close, solve
from factories import make_rows
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from pcsda.core import linalg
from pcsda.core.subspace import FAR, is_far, project_rows


@pytest.mark.parametrize("name", ["direct", "white", "gram", "kernel"])
def test_the_positive_mean_is_projected_to_zero(name):
    X, groups, weights = make_rows([14, 9, 12, 7], 6, weighted=True)
    found = solve(name, X + 5, groups, weights=weights)
    z = found.project(as_seen(name, X + 5, X + 5))
    own = groups == 0
    close(np.average(z[own], axis=0, weights=weights[own]) + 1, np.ones(3), 1e-9)
    close(found.projected.means[0] + 1, np.ones(3), 1e-9)


@TALL_AND_WIDE
def test_leading_axes_form_a_subspace(width):
    X, groups, weights = make_rows([14, 9, 12, 7], width, weighted=True)
    found = solve("direct", X, groups, weights=weights)
    two = found.leading(2)
    close(two.project(X), found.project(X)[:, :2])
    assert_array_equal(two.eigenvalues, found.eigenvalues[:2])
    assert_array_equal(two.left.coordinates, found.left.coordinates[:, :2])
    assert_array_equal(two.left.residuals, found.left.residuals[:, :2])
    assert_array_equal(two.projected.within, found.projected.within[:2, :2])
    assert_array_equal(two.ridged, found.ridged[:2, :2])
    assert two.rank == 3  # the problem has more
    assert solve("direct", X, groups, leave_out=None).leading(2).left is None


def test_flipping_a_sign_flips_everything_on_that_axis():
    X, groups, weights = make_rows([14, 9, 12, 7], 6, weighted=True)
    found = solve("direct", X, groups, weights=weights)
    assert_same_subspace(found.signed(), found)  # its largest entries are positive already
    # Coefficients against their signs, as after a change of basis.
    flipped = replace(found, coefficients=-found.coefficients, origin=-found.origin)
    turned = flipped.signed()
    close(turned.coefficients, found.coefficients)
    close(turned.origin, found.origin)
    close(turned.projected.means, -found.projected.means)
    close(turned.projected.within, found.projected.within)
    close(turned.left.coordinates, -found.left.coordinates)
    close(turned.left.residuals, -found.left.residuals)


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_rows_are_projected_about_the_positive_mean(offset):
    X, groups, _ = make_rows([14, 9, 12, 7], 6)
    found = solve("direct", X + offset, groups)
    expected = ((X + offset) - found.means[0]) @ found.coefficients
    assert_allclose(found.project(X + offset), expected, rtol=1e-12, atol=1e-12)


def test_sparse_rows_are_projected_without_centring():
    X, groups, _ = make_rows([14, 9, 12, 7], 6)
    X[np.abs(X) < 1] = 0
    found = solve("direct", X, groups)
    assert_allclose(found.project(sparse.csr_array(X)), found.project(X), atol=1e-12)


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("block", [3, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_projected_in_their_own_floating_type(monkeypatch, far, block, dtype):
    monkeypatch.setattr(linalg, "cache_rows", lambda width: block)
    rng = np.random.default_rng(0)
    components, origins = rng.standard_normal((3, 6)), rng.standard_normal(3)
    centre = rng.standard_normal(6) + 5
    X = rng.standard_normal((20, 6)).astype(dtype) + 5
    before = X.copy()
    expected = (X.astype(np.float64) - centre) @ components.T - origins
    z = project_rows(X, components, origins, centre, far=far)
    assert z.dtype == dtype
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    assert_allclose(z, expected, atol=tolerance)
    assert_array_equal(X, before)


@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_float32_rows_far_from_zero_keep_their_digits(offset):
    rng = np.random.default_rng(0)
    components, centre = rng.standard_normal((3, 6)), rng.standard_normal(6) + offset
    X = (centre + 10 * rng.standard_normal((50, 6))).astype(np.float32)
    expected = (X.astype(np.float64) - centre) @ components.T
    z = project_rows(X, components, np.zeros(3), centre, far=True)
    assert np.abs(z - expected).max() < 3e-6 * np.abs(expected).max()
    plain = project_rows(X, components, np.zeros(3), centre, far=False)
    assert np.abs(plain - expected).max() > 5 * np.abs(z - expected).max()


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64)])
def test_distance_from_zero_is_measured_in_standard_deviations_per_axis(dtype):
    components, variances = np.diag([1.0, 2.0]), np.array([1.0, 9.0])
    limit = FAR[dtype]
    assert not is_far(components, np.array([0.99 * limit, 0.0]), variances, dtype)
    assert is_far(components, np.array([1.01 * limit, 0.0]), variances, dtype)
    assert not is_far(components, np.array([0.0, 1.49 * limit]), variances, dtype)
    assert is_far(components, np.array([0.0, 1.51 * limit]), variances, dtype)
    # Parts that cancel in the sum cost digits too.
    both = np.array([[1.0, -1.0]])
    assert is_far(both, np.array([limit, limit]), np.ones(1), dtype)

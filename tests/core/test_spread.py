"""Centre and spread of rows, and the ridge derived from them."""

import numpy as np
import pytest
from factor_factories import WEIGHTED
from factories import make_rows, paper_statistics
from numpy.testing import assert_allclose

from pcsda.core import spread


@WEIGHTED
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_centred_rows_have_zero_mean_and_the_defined_variance(weighted, offset):
    X, groups, weights = make_rows([14, 9, 12], 5, weighted=weighted)
    rows, origin, variance = spread.centred(X + offset, weights)
    assert_allclose(origin, np.average(X + offset, axis=0, weights=weights), rtol=1e-14)
    assert_allclose(np.average(rows, axis=0, weights=weights), 0, atol=1e-9)
    s = paper_statistics(X, groups, weights)
    assert_allclose(variance, s.total_variance, rtol=1e-8)


def test_centring_converts_float32_rows_without_writing_to_them():
    X = make_rows([14, 9], 3)[0].astype(np.float32)
    before = X.copy()
    rows, origin, _ = spread.centred(X, None)
    assert rows.dtype == origin.dtype == np.float64
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("value", [1 / 3, 1e8 / 7, -1e-5 / 3])
def test_equal_rows_have_zero_variance_despite_rounding(value):
    for n in (3, 7, 11, 49):
        rows, _, variance = spread.centred(np.full((n, 3), value), None)
        assert variance == 0.0
        assert not rows.any()
    means = np.full((2, 3), value)
    rounding = (1e-15 * value) ** 2
    assert spread.known_variance(rounding, means) == 0.0
    assert spread.known_variance(1e-20 * value**2, means) > 0


def test_the_ridge_is_a_fraction_of_the_variance():
    assert spread.ridge_of(4.0, 0.25) == 1.0
    assert spread.ridge_of(4.0, 0.0) == 0.0


@pytest.mark.parametrize(
    ("variance", "message"),
    [
        (0.0, r"all rows of X are equal \(total variance 0\)"),
        (np.inf, "the squares of X overflow"),
        (np.nan, "the squares of X overflow"),
        (1e-290, "the squares of X underflow: its spread is 1e-145 but must be at least 1e-140"),
    ],
)
def test_rows_without_measurable_spread_have_no_ridge(variance, message):
    with pytest.raises(ValueError, match=message):
        spread.ridge_of(variance, 0.1)


@pytest.mark.parametrize("entry", [2e150, -2e150])
def test_numbers_whose_squares_overflow_are_refused_early(entry):
    X = np.ones((4, 2))
    spread.require_squares(X)
    X[2, 1] = entry
    with pytest.raises(spread.OverflowingSquares, match="divide X by its scale first"):
        spread.require_squares(X)

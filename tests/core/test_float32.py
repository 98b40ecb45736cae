"""Float32 rows: products in float32 where that is accurate enough, otherwise in float64."""

import numpy as np
import pytest
from factories import largest_angle, make_rows
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from pcsda import PCSDA
from pcsda.core import float32, linalg
from pcsda.core.direct import DirectFactor, scatter_subspace
from pcsda.core.fit import Rule
from pcsda.core.fit import fit as fit_factor
from pcsda.core.leaver import Leaver
from pcsda.core.scatter import GroupScatter

SIZES = [90, 70, 80, 60]
SINGLE, BOTH, DOUBLE = ["float32"], ["float32", "float64"], ["float64"]


@pytest.fixture(autouse=True)
def _every_fit_is_large(monkeypatch):
    monkeypatch.setattr(float32, "ENOUGH", 0)


@pytest.fixture
def products(monkeypatch):
    """Record the types in which statistics are collected."""
    seen = []
    collect = GroupScatter.from_samples.__func__

    def watched(cls, *args, **kwargs):
        if "dtype" in kwargs:  # statistics of projections are not collected in a type
            seen.append(np.dtype(kwargs["dtype"]).name)
        return collect(cls, *args, **kwargs)

    monkeypatch.setattr(GroupScatter, "from_samples", classmethod(watched))
    return seen


def fit(X, groups, weights=None, *, regularization=0.01, solver="cholesky", d=None, **rule):
    factor = DirectFactor(X, regularization, weights, solver)
    return fit_factor(factor, groups, Rule(**rule), d)


def assert_same_fit(X, groups, weights=None, **changes):
    """Check that float32 rows give the same model as in float64."""
    exact = X.astype(np.float64)
    found = fit(X, groups, weights, **changes)
    expected = fit(exact, groups, weights, **changes)
    assert found.subspace.rank == expected.subspace.rank
    assert_allclose(found.subspace.eigenvalues, expected.subspace.eigenvalues, rtol=1e-3)
    assert_allclose(
        found.subspace.means, expected.subspace.means, rtol=1e-6, atol=1e-6 * exact.std()
    )
    scores = expected.score(exact)
    close = {"rtol": 1e-3, "atol": 1e-3 * max(1.0, scores.std())}
    assert_allclose(found.score(exact), scores, **close)
    if expected.left_out is not None:
        assert_allclose(found.left_out, expected.left_out, **close)


def decaying(decay, width=6, seed=0, sizes=SIZES):
    """Return groups whose variances fall from 1 to `decay` along oblique directions."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    centres = rng.standard_normal((len(sizes), width))
    rows = rng.standard_normal((len(groups), width)) + centres[groups]
    turn = np.linalg.qr(rng.standard_normal((width, width)))[0]
    return (rows * np.sqrt(np.geomspace(1, decay, width))) @ turn, groups


@given(
    decay=st.sampled_from([1.0, 1e-2, 1e-4, 1e-6, 1e-8]),
    offset=st.sampled_from([0.0, 10.0, 1e3, 1e5]),
    scale=st.sampled_from([1e-30, 1e-13, 1.0, 1e11, 1e20, 1e30]),
    regularization=st.sampled_from([1e-2, 1e-4, 1e-9]),
    order=st.sampled_from("CF"),
    leave_one_out=st.booleans(),
    seed=st.integers(0, 20),
)
@example(1e-8, 0.0, 1.0, 1e-9, "C", True, 0)
@example(1.0, 1e5, 1e30, 1e-2, "F", True, 0)
def test_float32_rows_give_the_model_of_the_same_numbers(
    decay, offset, scale, regularization, order, leave_one_out, seed
):
    X, groups = decaying(decay, seed=seed)
    X = np.asarray((X + offset) * scale, dtype=np.float32, order=order)
    assert_same_fit(X, groups, regularization=regularization, leave_one_out=leave_one_out)


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_rows_that_float32_holds_well_are_multiplied_in_float32(products, offset, scale):
    X, groups = decaying(0.1)
    assert_same_fit(((X + offset) * scale).astype(np.float32), groups)
    assert products == SINGLE + DOUBLE  # the float64 rows they are compared with


@pytest.mark.parametrize("scale", [1e-37, 1e-20, 1e20, 1e36])
def test_squares_that_float32_does_not_hold_are_float64(products, scale):
    X, groups, _ = make_rows(SIZES, 6)
    assert_same_fit((X * scale).astype(np.float32), groups)
    assert products == BOTH + DOUBLE


@pytest.mark.parametrize("decay", [1e-6, 1e-8])
def test_a_scatter_with_small_pivots_is_float64(products, decay):
    X, groups = decaying(decay)
    assert_same_fit(X.astype(np.float32), groups, regularization=1e-9)
    assert products == BOTH + DOUBLE


@pytest.mark.parametrize("column", ["constant", "constant and far", "equal", "almost equal"])
def test_redundant_columns_do_not_change_the_model(column):
    X, groups, _ = make_rows(SIZES, 5)
    noise = np.random.default_rng(1).standard_normal(len(X))
    more = {
        "constant": np.full(len(X), 7.3),
        "constant and far": np.full(len(X), 1.1e8),
        "equal": X[:, 0],
        "almost equal": X[:, 0] + 1e-4 * noise,
    }[column]
    assert_same_fit(np.column_stack([X, more]).astype(np.float32), groups)


@pytest.mark.parametrize("n_components", [1, None])
def test_rounding_of_means_adds_no_direction(n_components):
    X, groups, _ = make_rows([80, 80, 80], 5)
    X = X.astype(np.float32)
    X[np.flatnonzero(groups == 2)] = X[np.flatnonzero(groups == 1)[::-1]]
    assert_same_fit(X, groups, d=n_components)
    X[np.flatnonzero(groups == 0)] = X[np.flatnonzero(groups == 1)[::-1]]
    with pytest.raises(ValueError, match="every subclass mean equals the positive mean"):
        fit(X, groups)


def test_there_may_be_more_subclasses_than_columns():
    X, groups, _ = make_rows([40, *[30] * 9], 4)
    assert_same_fit(X.astype(np.float32), groups)


def test_coinciding_positives_have_no_density_in_float32_either():
    X, groups, _ = make_rows(SIZES, 5)
    X[groups == 0] = 1 / 3
    fitted = fit(X.astype(np.float32), groups, shrinkage=0.0)
    with pytest.raises(ValueError, match=r"positive class is (a point|singular) in the subspace"):
        fitted.score(X)


def test_tightly_packed_positives_keep_their_own_covariance():
    X, groups = decaying(1.0)
    X[groups == 0] *= 1e-5
    assert_same_fit(X.astype(np.float32), groups, leave_one_out=False, shrinkage=0.0)


def test_singular_statistics_are_refused_in_the_same_words():
    X, groups, _ = make_rows(SIZES, 5)
    X = np.column_stack([X, X[:, 0]]).astype(np.float32)
    with pytest.raises(ValueError, match="of 6 dimensions is singular at regularization=0; raise"):
        fit(X, groups, regularization=0.0)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_non_finite_values_are_refused_in_the_same_words(odd):
    X, groups, _ = make_rows(SIZES, 5)
    X = X.astype(np.float32)
    X[3, 2] = odd
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        PCSDA().fit(X, groups == 0, subclass_labels=groups)


def test_one_row_may_be_an_extreme_outlier():
    X, groups, _ = make_rows(SIZES, 5)
    for far in (1e3, 1e6, 1e18):
        changed = X.copy()
        changed[np.flatnonzero(groups == 2)[0]] *= far
        assert_same_fit(changed.astype(np.float32), groups)


def test_weights_and_other_solvers_collect_in_float64(products):
    X, groups, weights = make_rows(SIZES, 6, weighted=True)
    X = X.astype(np.float32)
    assert_same_fit(X, groups, weights)
    assert_same_fit(X, groups, weights * 1e-40)
    assert_same_fit(X, groups, solver="eigen")
    assert set(products) == set(DOUBLE)


def test_small_fits_are_float64_to_the_last_digit(monkeypatch):
    monkeypatch.setattr(float32, "ENOUGH", 1e8)
    X, groups, _ = make_rows(SIZES, 6)
    X = X.astype(np.float32)
    assert_array_equal(fit(X, groups).left_out, fit(X.astype(np.float64), groups).left_out)


@pytest.mark.parametrize("block", [7, 1000])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e8])
def test_scatter_entries_are_accurate_relative_to_their_variances(monkeypatch, block, offset):
    monkeypatch.setattr(linalg, "block_rows", lambda width: block)
    X, groups, _ = make_rows([300, 200, 250], 6)
    X = (300 * X + offset).astype(np.float32)
    found = GroupScatter.from_samples(X, groups, dtype=np.float32)
    expected = GroupScatter.from_samples(X.astype(np.float64), groups)
    assert found.positive.dtype == found.means.dtype == np.float64
    for matrix, exact in ((found.positive, expected.positive), (found.within, expected.within)):
        roots = np.sqrt(exact.diagonal())
        assert np.all(np.abs(matrix - exact) <= 2e-6 * np.outer(roots, roots))
    spread = np.sqrt(expected.intra.diagonal() / len(X))
    assert np.all(np.abs(found.means - expected.means) <= 1e-6 * spread)


@pytest.mark.parametrize("offset", [0.0, 1e8])
@pytest.mark.parametrize("far", [1.0, 30.0], ids=["usual", "leverage near one"])
def test_left_out_rows_match_float64(offset, far):
    X, groups, _ = make_rows(SIZES, 6)
    X[7] *= far
    X = (300 * X + offset).astype(np.float32)
    exact = X.astype(np.float64)
    scatter = GroupScatter.from_samples(exact, groups)
    _, projection, ridge = scatter_subspace(scatter, "cholesky", 0.01, None)
    leaver = Leaver.of(scatter, projection, ridge)
    expected = leaver.leave_out(exact, groups)
    found = leaver.leave_out(X, groups, dtype=np.float32)
    for one, other in (
        (found.coordinates, expected.coordinates),
        (found.residuals, expected.residuals),
    ):
        assert_allclose(one, other, atol=1e-5 * np.abs(other).max())
    # Where a row is almost alone in some direction, float64 is needed.
    assert np.array_equal(found.coordinates, expected.coordinates) == (far > 1)


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_offset_costs_no_digits_in_predictions_on_float32_rows(offset, dtype):
    X, groups, _ = make_rows(SIZES, 6)
    X = (300 * X + offset).astype(np.float32)
    exact = PCSDA(random_state=0).fit(X.astype(np.float64), groups == 0, subclass_labels=groups)
    expected = exact.log_likelihood_ratio(X.astype(np.float64))
    found = PCSDA(random_state=0).fit(X.astype(dtype), groups == 0, subclass_labels=groups)
    ratio = found.log_likelihood_ratio(X)
    assert ratio.dtype == np.float32
    assert_allclose(ratio, expected, rtol=1e-4, atol=1e-4 * expected.std())
    assert largest_angle(found.components_, exact.components_) < 1e-5
    assert_allclose(found.transform(X), exact.transform(X.astype(np.float64)), rtol=0, atol=1e-5)


def scatter_of(variances):
    """Return statistics of distant groups with the given variances."""
    scatter = np.diag(np.array(variances))
    means = np.array([np.zeros(len(scatter)), np.ones(len(scatter))])
    return GroupScatter(np.array([10.0, 10.0]), means, 10 * scatter, 10 * scatter)


def test_a_solution_without_its_factor_has_no_error_estimate():
    scatter = scatter_of([1.0, 2.0])
    _, projection, ridge = scatter_subspace(scatter, "cholesky", 0.01, None)
    assert float32.determines(scatter, ridge, projection)
    _, projection, ridge = scatter_subspace(scatter, "eigen", 0.01, None)
    assert not float32.determines(scatter, ridge, projection)


@pytest.mark.parametrize(
    ("variance", "inside"),
    [(1e-25, False), (1e-23, True), (1.0, True), (1e23, True), (1e25, False)],
)
def test_variances_must_stay_within_the_float32_range(variance, inside):
    assert float32.in_range(np.array([1.0, variance])) == inside


@pytest.mark.parametrize(("mean", "parts"), [(1.0, 1), (1 / 3, 1), (1e3 / 3, 2), (1e7 / 3, 2)])
def test_means_are_split_into_as_many_parts_as_rounding_requires(mean, parts):
    means, variances = np.full((2, 3), mean), np.ones(3)
    found = float32.in_parts(means, variances)
    assert len(found) == parts
    assert all(part.dtype == np.float32 for part in found)
    error = np.abs(sum(part.astype(np.float64) for part in found) - means).max()
    assert error <= np.finfo(np.float32).eps * (1.0 if parts == 1 else 1e-7 * mean)


def test_only_large_float32_products_use_the_fast_path(monkeypatch):
    monkeypatch.setattr(float32, "ENOUGH", 100)
    assert float32.pays(np.zeros((4, 5), np.float32))
    assert not float32.pays(np.zeros((4, 5)))
    assert not float32.pays(np.zeros((3, 5), np.float32))

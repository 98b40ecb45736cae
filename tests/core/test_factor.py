"""Laws for every factor: the same solution, however the rows were factorised."""

import re
from itertools import product

import numpy as np
import pytest
from factor_factories import (
    EVERY,
    FACTORS,
    ON_KERNEL_VALUES,
    OTHERS,
    SHARED,
    TALL_AND_WIDE,
    WEIGHTED,
    as_seen,
    assert_same_left,
    assert_same_subspace,
    close,
    close_to_refits,
    make_factor,
    solve,
)
from factories import (
    generalized_eigen,
    make_rows,
    paper_statistics,
    random_cells,
    refit_without_each_row,
)
from numpy.testing import assert_allclose, assert_array_equal

from pcsda.core import gram
from pcsda.core.cells import Cells
from pcsda.core.direct import DirectFactor
from pcsda.core.factor import factor_once, factor_shared
from pcsda.core.linalg import SingularMatrixError
from pcsda.core.loo import Leave
from pcsda.core.white import WhiteFactor, whiten

AND_LSQR = pytest.mark.parametrize("name", [*FACTORS, "lsqr"])
NO_DIRECTION = (
    "every subclass mean equals the positive mean, so no direction tells them apart; raise "
    "n_subclasses or give subclass_labels"
)


def components_of(name, X, found):
    """Return the directions in input space."""
    return found.coefficients.T @ X if name in ON_KERNEL_VALUES else found.coefficients.T


def random_division(rng, n_rows, n_groups):
    """Draw groups 0..n_groups-1, each with at least two rows."""
    groups = np.concatenate(
        [np.repeat(np.arange(n_groups), 2), rng.integers(n_groups, size=n_rows)]
    )
    return rng.permutation(groups[:n_rows])


# --- against definitions -------------------------------------------------------------------------


@pytest.mark.each_pair
@AND_LSQR
@TALL_AND_WIDE
@WEIGHTED
@pytest.mark.parametrize("regularization", [1e-2, 1e-5])
def test_axes_are_the_generalised_eigenvectors(name, width, weighted, regularization):
    X, groups, weights = make_rows([14, 9, 12, 7], width, weighted=weighted)
    s = paper_statistics(X, groups, weights)
    denominator = s.S_I + regularization * s.total_variance * np.eye(width)
    values, W = generalized_eigen(s.S_n, denominator, 3)
    found = solve(name, X, groups, regularization, weights)
    assert found.rank == 3
    assert_allclose(found.eigenvalues, values, rtol=1e-7)
    components = components_of(name, X, found)
    signs = np.sign(np.einsum("ij,ij->i", components, W))[:, None]
    close(components * signs, W, 1e-6)
    if name not in ON_KERNEL_VALUES:
        assert np.all(signs == 1)
    close(found.ridged, np.eye(3), 1e-7)
    z = found.project(as_seen(name, X, X))
    close(z * signs.T, (X - s.m) @ W.T, 1e-6)
    w = np.ones(len(X)) if weights is None else weights
    means = [np.average(z[groups == g], axis=0, weights=w[groups == g]) for g in range(4)]
    close(found.projected.means, means, 1e-7)
    if found.means is None:
        assert name in ON_KERNEL_VALUES
    else:
        close(found.means, s.means, 1e-10)
        close(found.origin, components @ s.m, 1e-7)


@pytest.mark.each_value
@EVERY
@WEIGHTED
@pytest.mark.parametrize("width", [4, 9, 40], ids=["D<K", "D<N", "D>N"])
@pytest.mark.parametrize("regularization", [1e-2, 1.0])
def test_left_out_rows_equal_refits(name, weighted, width, regularization):
    X, groups, weights = make_rows([9, 7, 1, 6, 1, 5], width, weighted=weighted)
    found = solve(name, X, groups, regularization, weights)
    ridge = regularization * paper_statistics(X, groups, weights).total_variance
    components = components_of(name, X, found)
    refits = refit_without_each_row(X, groups, weights, ridge, components)
    close_to_refits(found.left, *refits, found.projected.delta, 1e-7)
    assert_array_equal(found.left.alone, np.isin(groups, [2, 4]))
    assert_array_equal(found.left.known, ~found.left.alone)
    assert (found.left.weights is None) == (not weighted)


# --- against each other --------------------------------------------------------------------------


@pytest.mark.each_value
@OTHERS
@WEIGHTED
@pytest.mark.parametrize("seed", range(3))
def test_random_divisions_solve_to_the_direct_fit(name, weighted, seed):
    rng = np.random.default_rng(seed)
    width = (7, 45)[seed % 2]
    X, _, weights = make_rows([8, 9, 33], width, seed=seed, weighted=weighted)
    regularization = 10.0 ** rng.integers(-4, 1)
    factor = make_factor(name, X, regularization, weights)  # one for all divisions
    direct = DirectFactor(X, regularization, weights)
    for n_groups in (2, 4, 9):
        groups = random_division(rng, len(X), n_groups)
        expected = direct.solve(groups)
        seen = as_seen(name, X, X), X
        assert_same_subspace(factor.solve(groups), expected, seen, 1e-7)
        one = factor.solve(groups, 1, leave_out=None)
        assert one.left is None
        assert one.rank == expected.rank
        close(np.abs(one.project(seen[0])), np.abs(expected.project(X)[:, :1]), 1e-7)


@EVERY
@TALL_AND_WIDE
def test_fewer_components_are_the_leading_ones(name, width):
    X, groups, weights = make_rows([14, 9, 12, 7], width, weighted=True)
    every = solve(name, X, groups, weights=weights)
    for d in (1, 2):
        few = solve(name, X, groups, weights=weights, n_components=d)
        assert few.rank == 3
        assert_same_subspace(few, every.leading(d), rtol=1e-9)
    # Asking for more than exist gives all of them.
    assert solve(name, X, groups, n_components=9).coefficients.shape[1] == 3


@EVERY
@TALL_AND_WIDE
def test_results_ignore_group_numbers_and_row_order(name, width):
    X, groups, weights = make_rows([14, 9, 12, 7], width, weighted=True)
    order = np.random.default_rng(0).permutation(len(X))
    renamed = np.array([0, 3, 1, 2])[groups]
    expected = solve(name, X, groups, weights=weights)
    found = solve(name, X[order], renamed[order], weights=weights[order])
    one, other = (
        f.project(as_seen(name, rows, X)) for f, rows in [(found, X[order]), (expected, X)]
    )
    signs = np.sign(np.sum(one * other, axis=0))
    close(one * signs, other, 1e-9)
    close(found.left.coordinates * signs, expected.left.coordinates[order], 1e-8)
    close(found.left.residuals * signs, expected.left.residuals[order], 1e-8)


@pytest.mark.each_pair
@EVERY
@TALL_AND_WIDE
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_coordinates_ignore_the_unit_of_measurement(name, width, scale):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    first, second = (solve(name, rows, groups) for rows in (X, X * scale))
    assert_allclose(second.eigenvalues, first.eigenvalues, rtol=1e-8)
    assert_same_left(second.left, first.left, rtol=1e-8)


@pytest.mark.parametrize("name", [n for n in [*FACTORS, "lsqr"] if n not in ON_KERNEL_VALUES])
@TALL_AND_WIDE
def test_an_offset_of_1e8_costs_only_the_digits_the_rows_lose(name, width):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    far = X + 1e8
    first, second = (solve(name, rows, groups) for rows in (far - 1e8, far))
    close(second.coefficients, first.coefficients, 1e-6)
    close(second.project(far), first.project(far - 1e8), 1e-6)
    close(second.projected.positive, first.projected.positive, 1e-6)
    if name != "lsqr":
        assert_same_left(second.left, first.left, rtol=1e-5)


@pytest.mark.parametrize("name", ["kernel", "features"])
def test_a_constant_added_to_a_kernel_changes_nothing(name):
    X, groups, weights = make_rows([14, 9, 12, 7], 6, weighted=True)
    expected, found = (solve(name, rows, groups, 0.1, weights) for rows in (X, X + 100))
    seen = as_seen(name, X + 100, X + 100), as_seen(name, X, X)
    assert_same_subspace(found, expected, seen, 1e-6)


@pytest.mark.each_value
@EVERY
@pytest.mark.parametrize(
    ("form", "width"), [("float32", 6), ("fortran", 6), ("strided", 6), ("read-only", 70)]
)
def test_any_array_layout_is_read_and_never_written(name, form, width):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    X = X.astype(np.float32).astype(np.float64)
    given = {
        "float32": X.astype(np.float32),
        "fortran": np.asfortranarray(X),
        "read-only": X.copy(),
        "strided": np.repeat(X, 2, axis=0)[::2],
    }[form]
    if form == "float32" and name in ON_KERNEL_VALUES:
        given = X  # kernel values are float64 by then
    given.flags.writeable = form != "read-only"
    before = given.copy()
    assert_same_subspace(solve(name, given, groups), solve(name, X, groups), rtol=1e-9)
    assert_array_equal(given, before)


# --- how many axes there are ---------------------------------------------------------------------


def of_rank(rank, width, sizes, *, seed=0, offset=0.0):
    """Return low-rank rows in many columns."""
    rng = np.random.default_rng(seed)
    X, groups, _ = make_rows(sizes, rank, seed=seed)
    return X @ rng.standard_normal((rank, width)) + offset * rng.standard_normal(width), groups


@pytest.mark.each_value
@OTHERS
@pytest.mark.parametrize("width", [10, 150], ids=["D<N", "D>N"])
@pytest.mark.parametrize("regularization", [1e-2, 1e-6, 1e-8, 1e-10])
def test_rows_of_rank_two_have_two_axes_and_the_same_coordinates(name, width, regularization):
    # Rounding of an inner product matters in proportion to the ridge.
    rtol = 1e-8 + (1e-13 / regularization if name in {"gram", "kernel"} else 0.0)
    for seed in range(3):
        X, groups = of_rank(2, width, [30, 20, 25, 18], seed=seed)
        expected = DirectFactor(X, regularization).solve(groups)
        found = solve(name, X, groups, regularization)
        assert found.rank == expected.rank == 2
        assert_same_subspace(found, expected, (as_seen(name, X, X), X), rtol)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("name", "width"),
    [(name, 10) for name in ("direct", "eigen", "spectral", "white", "gram")]
    + [(name, 60) for name in ("direct", "eigen", "spectral", "gram")],
)
@pytest.mark.parametrize(
    ("offset", "regularization"), [(1e3, 1e-8), (1e3, 1e-10), (1e6, 1e-2), (1e6, 1e-8)]
)
def test_rounding_of_distant_rows_adds_no_axis(name, width, offset, regularization):
    for seed, rank in product((0, 10), (1, 3)):
        for sizes in ([30, 20, 25, 18], [6, 3, 4, 2, 2]):
            X, groups = of_rank(rank, width, sizes, seed=seed, offset=offset)
            assert solve(name, X, groups, regularization).rank == min(rank, len(sizes) - 1)


@EVERY
def test_equal_subclass_means_lower_the_rank(name):
    X, groups, weights = make_rows([30, 12, 14, 16], 6, weighted=True)
    means = paper_statistics(X, groups, weights).means
    X += (means[1] - means[3]) * (groups == 3)[:, None]
    found = solve(name, X, groups, weights=weights)
    assert found.rank == 2
    expected = DirectFactor(X, 0.01, weights).solve(groups)
    assert_same_subspace(found, expected, (as_seen(name, X, X), X))


@TALL_AND_WIDE
@pytest.mark.parametrize(
    ("name", "offset"),
    # Rounding of kernel values far from zero exceeds that of means.
    [(name, 0.3) for name in [*FACTORS, "lsqr"]]
    + [(name, 1e4) for name in [*FACTORS, "lsqr"] if name not in ON_KERNEL_VALUES],
)
def test_every_factor_refuses_coinciding_means_in_the_same_words(name, width, offset):
    half, _, _ = make_rows([4, 6], width)
    X = np.vstack([half, -half]) + offset  # both classes are symmetric about one point
    groups = np.tile([0, 0, 0, 0, 1, 1, 1, 1, 1, 1], 2)
    with pytest.raises(ValueError, match=f"^{NO_DIRECTION}$"):
        solve(name, X, groups)


@pytest.mark.parametrize("name", ["direct", "eigen", "spectral", "white", "lsqr"])
def test_coinciding_means_are_refused_without_a_ridge_too(name):
    half, _, _ = make_rows([4, 6], 6)
    X = np.vstack([half, -half]) + 0.3
    with pytest.raises(ValueError, match=f"^{NO_DIRECTION}$"):
        solve(name, X, np.tile([0, 0, 0, 0, 1, 1, 1, 1, 1, 1], 2), 0.0)


# --- rows that cannot be left out ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["direct", "eigen", "spectral", "white"])
@WEIGHTED
@pytest.mark.parametrize("group", [0, 2])
def test_a_row_that_keeps_the_scatter_regular_cannot_be_left_out(name, weighted, group):
    X, groups, weights = make_rows([14, 9, 12, 7, 1], 5, weighted=weighted)
    only = np.flatnonzero(groups == group)[3]
    X = np.column_stack([X, np.where(np.arange(len(X)) == only, 3.0, 0.0)])
    found = solve(name, X, groups, 0.0, weights)
    expected = np.arange(len(X)) != only
    assert_array_equal(found.left.known, expected & (groups != 4))
    assert_array_equal(found.left.alone, groups == 4)
    for part in (found.left.coordinates, found.left.residuals):
        assert np.all(np.isfinite(part))
    # With a ridge, every row but the singleton can be left out.
    assert_array_equal(solve(name, X, groups, 1e-4, weights).left.known, groups != 4)


@pytest.mark.each_pair
@EVERY
@pytest.mark.parametrize("tiny", [1e-14, 1e-20, 1e-300])
@pytest.mark.parametrize("width", [5, 40], ids=["D<N", "D>N"])
def test_rows_with_all_of_a_groups_weight_count_as_singletons(name, tiny, width):
    X, groups, _ = make_rows([9, 7, 6], width)
    heavy = np.flatnonzero(groups == 2)[0]
    weights = np.where(groups == 2, tiny, 1.0)
    weights[heavy] = 1.0
    kept = (groups < 2) | (weights == 1)
    left = solve(name, X, groups, 0.01, weights).left
    without = solve(name, X[kept], groups[kept], 0.01).left
    assert_array_equal(np.flatnonzero(left.alone), heavy)
    assert np.all(np.isfinite(left.coordinates))
    signs = np.sign(np.sum(left.coordinates[kept] * without.coordinates, axis=0))
    assert_allclose(left.coordinates[kept], signs * without.coordinates, atol=1e-7)


# --- many divisions and many ridges of one factorisation -----------------------------------------


def ridges_of(name, X, regularizations, weights, ridges=None):
    """Factorise at several ridges in one pass."""
    if name == "kernel":
        return gram.of_kernel(X @ X.T, regularizations, weights, ridges)
    make = {"white": whiten, "gram": gram.wide}[name]
    return make(X, regularizations, weights, ridges)


@SHARED
@WEIGHTED
@pytest.mark.parametrize("count", [2, 4])
def test_a_path_over_ridges_equals_a_factor_at_each(name, weighted, count):
    X, groups, weights = make_rows([14, 9, 12, 7], 6, weighted=weighted)
    regularizations = [1e-4, 3e-3, 0.05, 2.0][:count]
    for value, factor in zip(
        regularizations, ridges_of(name, X, regularizations, weights), strict=True
    ):
        alone = make_factor(name, X, value, weights)
        assert_allclose(factor.ridge, alone.ridge, rtol=1e-12)
        assert_same_subspace(factor.solve(groups), alone.solve(groups), rtol=1e-7)


@SHARED
def test_absolute_ridges_are_used_unchanged(name):
    X, groups, _ = make_rows([14, 9, 12, 7], 6)
    (factor,) = ridges_of(name, X, [0.01], None, [3.7])
    assert factor.ridge == 3.7
    expected = DirectFactor(X, 0.01, ridge=3.7).solve(groups)
    assert_same_subspace(factor.solve(groups), expected, (as_seen(name, X, X), X))


def test_shape_and_solver_select_the_factor():
    tall, wide = make_rows([14, 9, 12], 5)[0], make_rows([14, 9, 12], 50)[0]
    assert isinstance(next(factor_shared(tall, [0.1])), WhiteFactor)
    assert isinstance(next(factor_shared(wide, [0.1])), gram.GramFactor)
    assert isinstance(factor_once(tall, 0.1), DirectFactor)
    assert isinstance(factor_once(wide, 0.1, solver="eigen"), DirectFactor)
    alone = factor_once(wide, 0.1)
    assert isinstance(alone, gram.GramFactor)
    assert alone.spend  # nothing else needs it


@pytest.mark.each_pair
@SHARED
@pytest.mark.parametrize("leave_out", [Leave(), None])
@pytest.mark.parametrize(("seed", "width"), [(0, 5), (1, 5), (2, 80)])
def test_each_class_of_cells_solves_like_its_own_division(name, leave_out, seed, width):
    labels, clusters = random_cells(seed)
    X = make_rows([20, 20, 20], width, seed=seed)[0] + labels[:, None]
    factor = make_factor(name, X, 0.01)
    cells = Cells.of(labels, clusters)
    over = factor.over(cells)
    direct = DirectFactor(X, 0.01)
    for label in range(4):
        groups, _ = cells.division(label)
        found = over.solve(label, 3, leave_out=leave_out)
        assert_same_subspace(found, factor.solve(groups, 3, leave_out=leave_out), rtol=1e-7)
        expected = direct.solve(groups, 3, leave_out=leave_out)
        assert_same_subspace(found, expected, (as_seen(name, X, X), X), 1e-7)


# --- rows that come and go -----------------------------------------------------------------------


def kernel_values(name, X, fresh):
    return X[-fresh:] @ X.T if name == "kernel" else None


@pytest.mark.each_pair
@SHARED
@pytest.mark.parametrize("width", [6, 70], ids=["D<N", "D>N"])
@pytest.mark.parametrize("fresh", [1, 5, 12], ids=str)
@pytest.mark.parametrize("used", [True, False], ids=["used", "unused"])
def test_appended_rows_equal_a_factor_of_all(name, width, fresh, used):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    first = make_factor(name, X[:-fresh], 0.01)
    if used:  # cached results of a solution are updated too
        first.solve(np.arange(len(X) - fresh) % 3)
    grown = first.appended(X, kernel_values(name, X, fresh))
    assert grown.ridge == first.ridge
    expected = DirectFactor(X, 0.01, ridge=first.ridge).solve(groups)
    assert_same_subspace(grown.solve(groups), expected, (as_seen(name, X, X), X))


@pytest.mark.each_pair
@SHARED
@pytest.mark.parametrize("width", [6, 70], ids=["D<N", "D>N"])
@pytest.mark.parametrize("removed", ["first", "last", "some"])
@pytest.mark.parametrize("used", [True, False], ids=["used", "unused"])
def test_without_rows_equals_a_factor_of_the_rest(name, width, removed, used):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    n = len(X)
    kept = {
        "first": np.arange(n) > 0,
        "last": np.arange(n) < n - 5,
        "some": ~np.isin(np.arange(n), [3, 4, 17, n - 1]),
    }[removed]
    whole = make_factor(name, X, 0.01)
    if used:
        whole.solve(groups)
    less = whole.without(kept, X[kept])
    expected = DirectFactor(X[kept], 0.01, ridge=whole.ridge).solve(groups[kept])
    seen = as_seen(name, X[kept], X[kept]), X[kept]
    assert_same_subspace(less.solve(groups[kept]), expected, seen)
    # And back again.
    order = np.concatenate([np.flatnonzero(kept), np.flatnonzero(~kept)])
    back = less.appended(X[order], kernel_values(name, X[order], int(np.sum(~kept))))
    expected = DirectFactor(X[order], 0.01, ridge=whole.ridge).solve(groups[order])
    assert_same_subspace(
        back.solve(groups[order]), expected, (as_seen(name, X[order], X), X), rtol=1e-7
    )


@SHARED
def test_adding_or_removing_rows_leaves_no_axis_of_rounding(name):
    X, groups = of_rank(1, 10, [30, 20, 25, 18])
    first = make_factor(name, X[:-5], 1e-8)
    grown = first.appended(X, kernel_values(name, X, 5))
    assert grown.solve(groups).rank == 1
    kept = np.arange(len(X)) % 11 > 0
    assert grown.without(kept, X[kept]).solve(groups[kept]).rank == 1


def test_whitened_rows_do_not_shrink_to_rounding():
    X = np.random.default_rng(4).normal(size=(30, 3))
    X[:, 0] *= 1e-8
    X[:2, 0] = 1.0, -1.0
    factor = next(whiten(X, [1e-12]))
    with pytest.raises(SingularMatrixError, match="too little of the total scatter"):
        factor.without(np.arange(30) > 1, X[2:])


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in [*FACTORS, "lsqr"] if n not in ON_KERNEL_VALUES])
@TALL_AND_WIDE
def test_rows_without_spread_are_refused(name, width):
    message = "all rows of X are equal (total variance 0); at least two different rows are needed"
    with pytest.raises(ValueError, match=re.escape(message)):
        solve(name, np.full((6, width), 0.5), np.array([0, 0, 0, 1, 1, 2]))


@AND_LSQR
@TALL_AND_WIDE
def test_rows_whose_squares_overflow_are_refused(name, width):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    message = (
        "the squares of X overflow because its spread is above 1e150; divide X by its scale first"
    )
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=message):
        solve(name, X * 1e160, groups)


@AND_LSQR
@TALL_AND_WIDE
def test_rows_whose_squares_vanish_are_refused(name, width):
    X, groups, _ = make_rows([14, 9, 12, 7], width)
    message = r"the squares of X underflow: its spread is .*e-15\d but must be at least 1e-140"
    with pytest.raises(ValueError, match=message):
        solve(name, X * 1e-152, groups)


@pytest.mark.parametrize(
    ("name", "width"),
    # There are 13 rows in 3 groups; direct solvers have an answer to wide rows without a ridge.
    [(name, 12) for name in ("direct", "eigen", "spectral")]
    + [(name, 30) for name in ("white", "gram", "lsqr")],
)
def test_a_singular_scatter_names_the_ridge(name, width):
    X, groups, _ = make_rows([5, 4, 4], width)
    message = (
        f"the within-class scatter of {width} dimensions is singular at regularization=0; raise "
        "regularization, to 0.1 for instance"
    )
    with pytest.raises(ValueError, match=message):
        solve(name, X, groups, 0.0)


@pytest.mark.parametrize("name", ["direct", "eigen", "white"])
def test_collinear_features_without_ridge_are_refused(name):
    X, groups, _ = make_rows([40, 30, 30], 4)
    X = np.column_stack([X, X @ [1.0, 2.0, -1.0, 0.5]])
    with pytest.raises(ValueError, match="of 5 dimensions is singular at regularization=0"):
        solve(name, X, groups, 0.0)

"""GroupScatter against row-by-row sums, and the laws of merging."""

import numpy as np
import pytest
from factories import make_rows, outer_sum, paper_statistics
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_limits

from pcsda.core import linalg
from pcsda.core.scatter import GroupScatter

WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])


def assert_statistics(scatter, expected, rtol=1e-11):
    assert_allclose(scatter.counts, expected.counts, rtol=rtol)
    assert_allclose(scatter.means, expected.means, rtol=rtol, atol=rtol)
    scale = np.abs(expected.S_p).max() + np.abs(expected.S_w).max()
    assert_allclose(scatter.positive, expected.S_p, rtol=rtol, atol=rtol * scale)
    assert_allclose(scatter.within, expected.S_w, rtol=rtol, atol=rtol * scale)


def assert_same(left, right, rtol=1e-9):
    """Compare two statistics; measure entries that cancel against the largest."""
    for name in ("counts", "means", "positive", "within"):
        a, b = getattr(left, name), getattr(right, name)
        scale = max(np.abs(a).max(), 1.0)
        assert_allclose(a, b, rtol=rtol, atol=rtol * scale, err_msg=name)


@pytest.mark.each_pair
@WEIGHTED
@pytest.mark.parametrize("block", [None, 1, 7, 50])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_statistics_equal_brute_force_whatever_the_blocks(monkeypatch, weighted, block, threads):
    if block:
        monkeypatch.setattr(linalg, "block_rows", lambda width: block)
    X, groups, weights = make_rows([40, 30, 1, 50, 2], 6, weighted=weighted)
    with threadpool_limits(threads, user_api="blas"):
        scatter = GroupScatter.from_samples(X, groups, weights=weights)
    assert_statistics(scatter, paper_statistics(X, groups, weights))


@WEIGHTED
def test_groups_larger_than_a_memory_block_are_merged(monkeypatch, weighted):
    monkeypatch.setattr(linalg, "BLOCK_BYTES", 1)
    X, groups, weights = make_rows([700, 300, 900], 3, weighted=weighted)
    assert linalg.block_rows(3) < 300
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    assert_statistics(scatter, paper_statistics(X, groups, weights))


def test_scatter_matrices_are_symmetric_to_the_last_bit_beyond_one_tile():
    X, groups, _ = make_rows([20, 20, 20], 300)
    scatter = GroupScatter.from_samples(X, groups)
    assert_array_equal(scatter.positive, scatter.positive.T)
    assert_array_equal(scatter.within, scatter.within.T)
    residuals = X[groups == 0] - X[groups == 0].mean(axis=0)
    assert_allclose(scatter.positive, residuals.T @ residuals, atol=1e-10)


def test_float32_rows_accumulate_in_float64():
    X, groups, _ = make_rows([400, 500, 300], 4)
    X = (X + 1000).astype(np.float32)
    scatter = GroupScatter.from_samples(X, groups)
    assert scatter.positive.dtype == scatter.means.dtype == np.float64
    assert_statistics(scatter, paper_statistics(X, groups), rtol=1e-10)


@pytest.mark.parametrize("form", ["fortran", "strided", "reversed", "read-only", "memory-mapped"])
def test_memory_layout_does_not_matter(form, tmp_path):
    X, groups, weights = make_rows([30, 20, 25], 5, weighted=True)
    expected = GroupScatter.from_samples(X, groups, weights=weights)
    if form == "fortran":
        given = np.asfortranarray(X)
    elif form == "strided":
        given = np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]
    elif form == "reversed":
        given = np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1]
    elif form == "read-only":
        given = X.copy()
        given.flags.writeable = False
    else:
        np.save(tmp_path / "X.npy", X)
        given = np.load(tmp_path / "X.npy", mmap_mode="r")
    before = np.array(given)
    assert_same(GroupScatter.from_samples(given, groups, weights=weights), expected, rtol=1e-13)
    assert_array_equal(given, before)


def test_empty_and_singleton_groups_are_counted_correctly():
    X, groups, _ = make_rows([5, 1, 0, 3], 2)
    scatter = GroupScatter.from_samples(X, groups, n_groups=6)
    assert_array_equal(scatter.counts, [5, 1, 0, 3, 0, 0])
    assert_array_equal(scatter.means[[2, 4, 5]], 0)
    assert_array_equal(scatter.means[1], X[groups == 1][0])
    assert_statistics(scatter, paper_statistics(X, groups, n_groups=6))


def test_singleton_groups_have_no_scatter():
    X = np.arange(8.0).reshape(4, 2)
    scatter = GroupScatter.from_samples(X, np.arange(4))
    assert not scatter.positive.any()
    assert not scatter.within.any()
    assert_array_equal(scatter.means, X)


@pytest.mark.parametrize("block", [1, 1000])
def test_zero_weight_rows_are_ignored(monkeypatch, block):
    monkeypatch.setattr(linalg, "block_rows", lambda width: block)
    X, groups, weights = make_rows([10, 8, 9], 3, weighted=True)
    weights[::3] = 0
    kept = weights > 0
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    assert_same(scatter, GroupScatter.from_samples(X[kept], groups[kept], weights=weights[kept]))


def test_integer_weights_equal_repeated_rows():
    X, groups, _ = make_rows([12, 9, 1, 7], 4)
    weights = np.random.default_rng(1).integers(1, 5, len(X))
    repeated = GroupScatter.from_samples(np.repeat(X, weights, axis=0), np.repeat(groups, weights))
    weighted = GroupScatter.from_samples(X, groups, weights=weights.astype(float))
    assert_same(weighted, repeated, rtol=1e-12)
    assert_allclose(weighted.total_variance, repeated.total_variance, rtol=1e-12)


@WEIGHTED
def test_an_offset_of_1e8_keeps_variances_positive_and_accurate(weighted):
    X, groups, weights = make_rows([300, 200, 100], 3, weighted=weighted)
    far = X + 1e8
    scatter = GroupScatter.from_samples(far, groups, weights=weights)
    exact = paper_statistics(far - 1e8, groups, weights)  # this subtraction is exact
    assert np.all(np.diag(scatter.positive) > 0)
    assert np.all(np.diag(scatter.within) > 0)
    assert_allclose(scatter.positive, exact.S_p, rtol=1e-9, atol=1e-9)
    assert_allclose(scatter.within, exact.S_w, rtol=1e-9, atol=1e-9)
    assert_allclose(scatter.total_variance, exact.total_variance, rtol=1e-7)
    assert_allclose(scatter.delta, exact.delta, atol=1e-7)


@pytest.mark.parametrize("threads", [1, 2])
def test_groups_1e8_apart_keep_their_within_scatter(monkeypatch, threads):
    monkeypatch.setattr(linalg, "block_rows", lambda width: 16)
    X, groups, _ = make_rows([60, 50, 40], 3)
    far = X + np.array([0.0, 1e8, -1e8])[groups][:, None]
    near = far - np.array([0.0, 1e8, -1e8])[groups][:, None]
    with threadpool_limits(threads, user_api="blas"):
        scatter = GroupScatter.from_samples(far, groups)
    exact = paper_statistics(near, groups)
    assert_allclose(scatter.positive, exact.S_p, rtol=1e-10, atol=1e-10)
    # A mean near 1e8 has a last digit of 1e-8; squares of 1e8 would have left none of this.
    assert_allclose(scatter.within, exact.S_w, atol=3e-6)


@st.composite
def samples(draw):
    """Draw a few rows with ties, an offset and possibly empty groups."""
    n_rows = draw(st.integers(1, 12))
    width = draw(st.integers(1, 3))
    offset = draw(st.sampled_from([0.0, 1e3, -1e5]))
    elements = st.floats(-100, 100, width=32)
    X = draw(hnp.arrays(np.float64, (n_rows, width), elements=elements)) + offset
    groups = draw(hnp.arrays(np.intp, n_rows, elements=st.integers(0, 3)))
    weights = draw(
        st.none() | hnp.arrays(np.float64, n_rows, elements=st.floats(0.125, 8, width=32))
    )
    return X, groups, weights


def collect(X, groups, weights, rows=slice(None), n_groups=None):
    chosen = None if weights is None else weights[rows]
    return GroupScatter.from_samples(X[rows], groups[rows], n_groups, chosen)


@given(samples(), st.data())
def test_merging_does_not_depend_on_the_split(sample, data):
    n_rows = len(sample[0])
    part = data.draw(hnp.arrays(np.intp, n_rows, elements=st.integers(0, 3)))
    n_groups = data.draw(st.sampled_from([None, 4]))
    pieces = [collect(*sample, part == p, n_groups) for p in np.unique(part)]
    merged = pieces[0]
    for piece in pieces[1:]:
        merged = merged.merge(piece)
    whole = collect(*sample, n_groups=n_groups)
    assert_same(merged, whole)


@given(samples())
def test_merging_is_commutative_and_associative(sample):
    part = np.arange(len(sample[0])) % 3
    width = sample[0].shape[1]
    nothing = np.zeros((width, width))
    empty = GroupScatter(np.zeros(1), np.zeros((1, width)), nothing, nothing)
    a, b, c = (collect(*sample, part == p) if np.any(part == p) else empty for p in range(3))
    assert_same(a.merge(b), b.merge(a))
    assert_same(a.merge(b).merge(c), a.merge(b.merge(c)))


@WEIGHTED
@pytest.mark.parametrize("offset", [0, 1e6])
def test_merged_statistics_can_be_subtracted_again(weighted, offset):
    X, groups, weights = make_rows([20, 14, 9, 1], 5, weighted=weighted)
    X = X + offset
    out = np.arange(len(X)) % 3 == 0
    out[groups == 3] = True  # nothing is left of this one
    parts = (
        GroupScatter.from_samples(
            X[part], groups[part], size, None if weights is None else weights[part]
        )
        for part, size in ((~out, 3), (out, 4))
    )
    rest, taken = parts
    found = rest.merge(taken).without(taken)
    tolerance = 1e-10 if offset == 0 else 1e-6
    for name in ("counts", "means", "positive", "within"):
        expected = getattr(rest, name)
        assert_allclose(getattr(found, name), expected, rtol=tolerance, atol=tolerance)


def test_merging_keeps_the_scatter_of_far_offsets():
    X, groups, _ = make_rows([90, 80, 70], 2)
    far = X + 1e8
    chunks = [GroupScatter.from_samples(far[i::3], groups[i::3]) for i in range(3)]
    merged = chunks[0].merge(chunks[1]).merge(chunks[2])
    exact = paper_statistics(far - 1e8, groups)
    assert_allclose(merged.positive, exact.S_p, rtol=1e-8)
    assert_allclose(merged.within, exact.S_w, rtol=1e-8, atol=1e-6)


def test_merging_modifies_neither_operand():
    X, groups, _ = make_rows([10, 10, 10], 2)
    left, right = (GroupScatter.from_samples(X[i::2], groups[i::2]) for i in range(2))
    before = left.positive.copy(), right.within.copy(), left.means.copy()
    left.merge(right)
    for now, then in zip((left.positive, right.within, left.means), before, strict=True):
        assert_array_equal(now, then)


@WEIGHTED
def test_every_divisor_matches_the_paper(weighted):
    X, groups, weights = make_rows([20, 14, 9, 11], 5, weighted=weighted)
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    s = paper_statistics(X, groups, weights)
    mean_size = s.n_n / s.n_k
    phi_w = s.S_w / (s.n_n - s.n_k)  # eq. (Phi_w)
    phi_n = s.S_n / s.n_k - s.S_w / (mean_size * (s.n_n - s.n_k))  # eq. (Phi_n2)
    assert_allclose(scatter.positive, s.S_p, rtol=1e-11, atol=1e-11)
    assert_allclose(scatter.within / scatter.within_freedom, phi_w, rtol=1e-11, atol=1e-12)
    assert_allclose(scatter.phi_o, phi_n + phi_w, rtol=1e-10, atol=1e-11)  # eq. (Phi_o)
    assert_allclose(scatter.phi_o, s.S_n / s.n_k + s.S_w / s.n_n, rtol=1e-10, atol=1e-11)
    assert_allclose(scatter.between, s.S_n, rtol=1e-11, atol=1e-11)
    assert_allclose(scatter.intra, s.S_I, rtol=1e-11, atol=1e-11)
    assert_allclose(scatter.out_of_class, s.out_of_class, rtol=1e-11, atol=1e-11)
    assert_allclose(scatter.total_variance, s.total_variance, rtol=1e-12)
    assert scatter.n_subclasses == 3
    assert_allclose([scatter.n_positive, scatter.n_negative], [s.n_p, s.n_n])


def test_nothing_varies_within_subclasses_when_every_negative_is_a_subclass():
    X, groups, _ = make_rows([6, 1, 1, 1, 1], 3)
    scatter = GroupScatter.from_samples(X, groups)
    assert scatter.within_freedom == 0
    assert_array_equal(scatter.within, np.zeros((3, 3)))
    assert_allclose(scatter.phi_o, scatter.out_of_class / 4)


def test_degrees_of_freedom_are_zero_when_all_weights_of_negatives_are_below_one():
    X, groups, _ = make_rows([6, 2, 2], 2)
    scatter = GroupScatter.from_samples(X, groups, weights=np.full(len(X), 0.25))
    assert scatter.within_freedom == 0


@given(st.integers(1, 9), st.integers(0, 2**16))
def test_out_of_class_scatter_and_total_variance_are_the_same_for_any_partition(n_k, seed):
    X, first, weights = make_rows([7, 9], 3, weighted=True)
    rng = np.random.default_rng(seed)
    groups = np.where(first == 0, 0, rng.integers(1, n_k + 1, len(first)))
    one = GroupScatter.from_samples(X, first, weights=weights)
    many = GroupScatter.from_samples(X, groups, n_k + 1, weights)
    assert_allclose(many.out_of_class, one.out_of_class, rtol=1e-10, atol=1e-10)
    assert_allclose(many.total_variance, one.total_variance, rtol=1e-11)
    assert_allclose(
        one.out_of_class,
        outer_sum(X[first > 0] - one.means[0], weights[first > 0]),
        rtol=1e-10,
        atol=1e-10,
    )


@WEIGHTED
def test_projecting_equals_the_statistics_of_projected_rows(weighted):
    X, groups, weights = make_rows([20, 10, 15], 6, weighted=weighted)
    components = np.random.default_rng(3).standard_normal((4, 6))
    scatter = GroupScatter.from_samples(X, groups, weights=weights)
    rows = (X - scatter.means[0]) @ components.T
    assert_statistics(scatter.project(components), paper_statistics(rows, groups, weights))
    assert_allclose(scatter.project(components).means[0], 0, atol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 3.0, 9.9, 1e4, 1e8])
@pytest.mark.parametrize("constant", [False, True])
def test_long_groups_are_exact_near_and_far_from_zero(offset, constant):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1400, 6)) + offset
    if constant:
        X[:, 2] = offset
    groups = np.repeat([0, 1, 2], [400, 700, 300])
    found = GroupScatter.from_samples(X, groups)
    for number, scatter in ((0, found.positive), ([1, 2], found.within)):
        expected = 0
        for group in np.atleast_1d(number):
            rows = X[groups == group].astype(np.longdouble)
            rows -= rows.mean(axis=0)
            expected = expected + rows.T @ rows
        spread = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
        # Digits that the numbers themselves lose far from zero do not count against the statistics.
        allowed = 1e-13 + 1e-15 * (offset + 1) ** (offset > 1e6)
        assert np.all(np.abs(scatter - expected) <= allowed * spread + 1e-9 * constant)

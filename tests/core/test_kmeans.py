"""K-means by matrix products finds scikit-learn's clusters from the same draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans

from pcsda.core.kmeans import Coarse, closest, kmeans, kmeans_of_products, lloyd, nearest_centre


def make_rows(seed, n_rows=150, width=4, n_clouds=6):
    rng = np.random.default_rng(seed)
    rows = 3 * rng.standard_normal((n_clouds, width))[rng.integers(0, n_clouds, n_rows)]
    rows += rng.standard_normal(rows.shape)
    return rows - rows.mean(axis=0)


@given(st.integers(0, 2**31), st.integers(2, 12), st.booleans())
def test_clusters_equal_scikit_learns(seed, count, weighted):
    rows = make_rows(seed)
    weights = np.random.default_rng(seed).random(len(rows)) + 0.1 if weighted else None
    theirs = KMeans(count, n_init=1, random_state=seed).fit(rows, sample_weight=weights)
    ours = kmeans(rows, count, np.random.RandomState(seed), weights)
    if ours is None:  # a cluster ran empty, which scikit-learn repairs
        return
    assert_array_equal(ours.labels, theirs.labels_)
    assert_allclose(ours.centres, theirs.cluster_centers_, atol=1e-12)


@given(st.integers(0, 2**31), st.integers(2, 12), st.booleans(), st.sampled_from([0.0, 1.0, 1e3]))
def test_inner_products_give_the_clusters_of_the_rows(seed, count, weighted, offset):
    rows = make_rows(seed, width=200)
    some = np.flatnonzero(np.random.default_rng(seed).random(len(rows)) < 0.8)
    weights = np.random.default_rng(seed).random(len(some)) + 0.1 if weighted else None
    ours = kmeans(rows[some], count, np.random.RandomState(seed), weights)
    moved = rows + offset / np.sqrt(rows.shape[1])  # any origin close to the rows works
    width, rng = rows.shape[1], np.random.RandomState(seed)
    labels = kmeans_of_products(moved @ moved.T, some, count, width, rng, weights)
    assert (labels is None) == (ours is None)
    if ours is not None:
        assert_array_equal(labels, ours.labels)


@given(st.integers(0, 2**31), st.integers(2, 8))
def test_negative_half_squared_distances_serve_as_inner_products(seed, count):
    rows = make_rows(seed)
    squares, every = ((rows[:, None] - rows) ** 2).sum(axis=2), np.arange(len(rows))
    ours = kmeans(rows, count, np.random.RandomState(seed))
    labels = kmeans_of_products(-squares / 2, every, count, 4, np.random.RandomState(seed))
    assert (labels is None) == (ours is None)
    if ours is not None:
        assert_array_equal(labels, ours.labels)


def test_inner_products_use_the_same_stopping_tolerance():
    ends = []
    for seed in range(20):
        rows = np.random.default_rng(seed).standard_normal((1000, 2))
        rows -= rows.mean(axis=0)
        ours = kmeans(rows, 12, np.random.RandomState(seed))
        every, rng = np.arange(len(rows)), np.random.RandomState(seed)
        labels = kmeans_of_products(rows @ rows.T, every, 12, 2, rng)
        assert_array_equal(labels, ours.labels)
        ends.append(np.any(lloyd(rows, ours.centres, None, 1).labels != labels))
    assert any(ends)


@pytest.mark.parametrize("steps", [1, 2, 3, 300])
@pytest.mark.parametrize("weighted", [False, True])
def test_steps_from_given_centres_equal_scikit_learns(steps, weighted):
    rows = make_rows(1)
    weights = np.random.default_rng(2).random(len(rows)) if weighted else None
    theirs = KMeans(5, init=rows[:5], n_init=1, max_iter=steps).fit(rows, sample_weight=weights)
    ours = lloyd(rows, rows[:5], weights, steps)
    assert_array_equal(ours.labels, theirs.labels_)
    assert_allclose(ours.centres, theirs.cluster_centers_, atol=1e-12)


@pytest.mark.more
def test_the_tolerance_equals_scikit_learns():
    # Long runs end by the shift of the centres, not because no row moves.
    ends = []
    for seed in range(20):
        rows = np.random.default_rng(seed).standard_normal((2000, 2))
        rows -= rows.mean(axis=0)
        theirs = KMeans(12, n_init=1, random_state=seed).fit(rows)
        ours = kmeans(rows, 12, np.random.RandomState(seed))
        assert_array_equal(ours.labels, theirs.labels_)
        onward = lloyd(rows, ours.centres, None, 1)
        ends.append(np.any(onward.labels != ours.labels))
    assert any(ends)


def test_an_empty_cluster_is_reported():
    rows = make_rows(0)
    centres = np.vstack([rows[:3], [[1e3, 0, 0, 0]]])
    assert lloyd(rows, centres) is None
    weights = np.ones(len(rows))
    weights[nearest_centre(rows, rows[:3]) == 2] = 0
    assert lloyd(rows, rows[:3], weights) is None


def test_rows_and_centres_are_not_written_to():
    rows = make_rows(0)
    kept, start = rows.copy(), rows[:4].copy()
    lloyd(rows, start)
    kmeans(rows, 4, np.random.RandomState(0))
    assert_array_equal(rows, kept)
    assert_array_equal(start, kept[:4])


@given(
    st.integers(0, 2**31),
    st.sampled_from([1e-70, 1e-42, 1e-21, 1.0, 1e18, 1e25, 1e70]),
    st.sampled_from([0.0, 1.0, 1e4]),
    st.booleans(),
)
def test_coarse_rows_have_the_nearest_centres_of_exact_ones(seed, size, offset, equal):
    rows = size * (make_rows(seed, width=30) + offset)
    centres = rows[:7].copy()
    if equal:  # rows between two centres, and copies of them
        rows[20:40] = (centres[0] + centres[1]) / 2
        centres[5] = centres[4]
    half = 0.5 * np.einsum("ij,ij->i", centres, centres)
    exact = rows @ centres.T - half
    found = closest(rows, centres, half, Coarse.of(rows))
    best = exact[np.arange(len(rows)), found]
    # Ties in float64 are rounding, which a product of fewer rows may round otherwise.
    rounding = 1e-14 * np.linalg.norm(rows, axis=1) * np.linalg.norm(centres, axis=1).max()
    assert np.all(best >= exact.max(axis=1) - rounding)


def test_few_rows_are_multiplied_again(monkeypatch):
    rows = make_rows(0, 2000, 100)
    exact, again = nearest_centre(rows, rows[:20]), []

    def count(some, *rest):
        if len(rest) == 2:
            again.append(len(some))
        return closest(some, *rest)

    monkeypatch.setattr("pcsda.core.kmeans.closest", count)
    assert_array_equal(nearest_centre(rows, rows[:20], Coarse.of(rows)), exact)
    assert sum(again) < len(rows) / 100

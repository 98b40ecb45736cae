"""Dividing negatives into subclasses: found, given and refused."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_info, threadpool_limits

from pcsda import PCSDA, PCSDACV, KernelPCSDA, VerifierBank, fit_blocks, partition
from pcsda.partition import count_distinct, given_labels, make_groups
from pcsda.targets import distinct


def clouds(n_negatives=60, n_clouds=3, n_positives=10, seed=0):
    """Draw well-separated clouds of negatives around positives, in random order."""
    rng = np.random.default_rng(seed)
    cloud = np.arange(n_negatives) % n_clouds
    angles = 2 * np.pi * cloud / n_clouds
    negatives = 20 * np.column_stack([np.cos(angles), np.sin(angles)])
    negatives += rng.standard_normal(negatives.shape)
    X = np.vstack([rng.standard_normal((n_positives, 2)), negatives])
    truth = np.concatenate([np.full(n_positives, -1), cloud])
    order = rng.permutation(len(X))
    return X[order], truth[order] == -1, truth[order]


def assert_numbered(groups, positive, n_subclasses):
    assert groups.dtype == np.intp
    assert_array_equal(groups == 0, positive)
    assert_array_equal(np.unique(groups[~positive]), np.arange(1, n_subclasses + 1))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csc_array, np.float32])
def test_kmeans_finds_separated_clouds(form):
    X, positive, truth = clouds()
    groups, names = make_groups(form(X), positive, n_subclasses=3, random_state=0)
    assert_numbered(groups, positive, 3)
    assert_array_equal(names, [0, 1, 2])
    assert adjusted_rand_score(truth[~positive], groups[~positive]) == 1


def test_subclasses_come_from_kmeans_on_the_negatives_only():
    X, positive, _ = clouds()
    groups, _ = make_groups(X, positive, n_subclasses=5, random_state=7)
    start = np.random.RandomState(7)
    expected = KMeans(5, n_init=1, random_state=start).fit(X[~positive]).labels_
    assert_array_equal(groups[~positive], expected + 1)


def test_kmeans_is_seeded():
    X, positive, _ = clouds(n_clouds=1)
    first, again = (make_groups(X, positive, n_subclasses=6, random_state=3)[0] for _ in range(2))
    assert_array_equal(first, again)
    others = [make_groups(X, positive, n_subclasses=6, random_state=seed)[0] for seed in range(9)]
    assert any(np.any(first != other) for other in others)


def test_kmeans_sees_the_weights_of_the_negatives():
    X = np.array([[9.0], [0.0], [1.0], [3.0]])
    positive = np.array([True, False, False, False])
    light, _ = make_groups(X, positive, n_subclasses=2, random_state=0)
    weights = np.array([1.0, 1000.0, 1000.0, 0.001])
    heavy, _ = make_groups(X, positive, n_subclasses=2, weights=weights, random_state=0)
    assert light[1] == light[2] != light[3]
    assert heavy[1] != heavy[2] == heavy[3]


@pytest.mark.parametrize(
    ("n_negatives", "expected"), [(1, 1), (20, 1), (22, 1), (24, 2), (75, 5), (2000, 20)]
)
def test_auto_takes_one_subclass_per_fifteen_negatives_up_to_twenty(n_negatives, expected):
    X, positive, _ = clouds(n_negatives)
    groups, _ = make_groups(X, positive, random_state=0)
    assert_numbered(groups, positive, expected)


@pytest.mark.parametrize(
    ("n_positives", "width", "expected"), [(3, 1, 3), (1, 2, 4), (3, 5, 20), (7, 2, 7), (10, 1, 20)]
)
def test_auto_takes_few_subclasses_in_few_columns_for_few_positives(n_positives, width, expected):
    X = np.random.default_rng(0).standard_normal((400, width))
    positive = np.arange(400) < n_positives
    assert_numbered(make_groups(X, positive, random_state=0)[0], positive, expected)


@pytest.mark.parametrize("n_components", [1, pytest.param(2, marks=pytest.mark.more), 7])
def test_auto_makes_enough_subclasses_for_the_axes_asked_for(n_components):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 9)), np.arange(40) < 10
    expected = max(n_components, 2)
    for model in (PCSDA(n_components=n_components), KernelPCSDA(n_components=n_components)):
        assert model.fit(X, y).n_components_ == n_components
        assert len(model.subclass_counts_) == expected
    precomputed = KernelPCSDA("precomputed", n_components=n_components)
    assert precomputed.fit(X @ X.T, y).n_components_ == n_components
    blocks = fit_blocks(PCSDA(n_components=n_components), X, y=y)
    assert len(blocks.subclass_counts_) == expected
    stream = PCSDA(n_components=n_components)
    for start in range(0, 40, 2):
        stream.partial_fit(X[start : start + 2], y[start : start + 2], classes=[False, True])
    assert stream.n_components_ == n_components
    found = PCSDACV(PCSDA(n_components=n_components)).fit(X, y)
    assert found.best_estimator_.n_components_ == n_components


@pytest.mark.more
def test_a_bank_makes_enough_subclasses_although_a_label_fills_one():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 3)
    X = rng.standard_normal((10, 20))[y] + 0.5 * rng.standard_normal((30, 20))
    for seed in (0, 5, 35):  # with the last two, a label fills one of two clusters
        bank = VerifierBank(PCSDA(n_components=2, random_state=seed)).fit(X, y)
        assert np.isfinite(bank.log_likelihood_ratio(X)).all()


@pytest.mark.parametrize("distinct", [1, 2, 7])
def test_auto_takes_one_subclass_per_two_distinct_negatives(distinct):
    X, positive, _ = clouds(500)
    X[~positive] = np.arange(500)[:, None] % distinct * [1.0, 10.0]
    groups, _ = make_groups(X, positive, random_state=0)
    assert_numbered(groups, positive, max(distinct // 2, 1))
    enough, _ = make_groups(X, positive, random_state=0, least=3)
    assert_numbered(enough, positive, min(distinct, 3))


@pytest.mark.parametrize("model", [PCSDA(), KernelPCSDA()], ids=["linear", "kernel"])
def test_ratios_of_a_yes_no_column_are_those_of_the_frequencies(model):
    """With a subclass for each of the two values, all ratios were below -1.6."""
    X = np.repeat([0.0, 1.0, 0.0, 1.0], [7, 3, 86, 414])[:, None]
    model.fit(X, np.arange(510) < 10)
    expected = np.log([7 / 10, 3 / 10]) - np.log([86 / 500, 414 / 500])
    assert_allclose(model.log_likelihood_ratio([[0.0], [1.0]]), expected, atol=0.2)


def test_more_subclasses_than_distinct_negatives_are_refused():
    X, positive, _ = clouds(12, n_clouds=3)
    X[~positive] = np.round(X[~positive], -1)
    distinct = len(np.unique(X[~positive], axis=0))
    message = (
        f"n_subclasses={distinct + 1} must be at most {distinct} (= number of different negative "
        "samples); lower it or use n_subclasses='auto'"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        make_groups(X, positive, n_subclasses=distinct + 1)
    assert_numbered(make_groups(X, positive, n_subclasses=distinct)[0], positive, distinct)


class Half:
    """A k-means that leaves every other cluster empty."""

    def __init__(self, n_clusters, **_):
        self.n_clusters = n_clusters

    def fit(self, rows, sample_weight=None):
        self.labels_ = 2 * (np.arange(rows.shape[0]) % (self.n_clusters // 2))
        self.cluster_centers_ = np.zeros((self.n_clusters, rows.shape[1]))
        return self


def test_an_empty_subclass_is_dropped_with_a_warning(monkeypatch):
    monkeypatch.setattr(partition, "KMeans", Half)
    X, positive, _ = clouds()
    message = "k-means left 3 of 6 subclasses empty; they are dropped"
    with pytest.warns(UserWarning, match=message):
        groups, _ = make_groups(sparse.csr_array(X), positive, n_subclasses=6)
    assert_numbered(groups, positive, 3)


def test_scikit_learn_repeats_the_draws_when_a_cluster_runs_empty(monkeypatch):
    X, _, _ = clouds(n_clouds=1)

    def empty(rows, count, rng, weights):
        rng.random_sample(5)

    monkeypatch.setattr(partition, "kmeans", empty)
    expected = KMeans(6, n_init=1, random_state=np.random.RandomState(3)).fit(X).labels_
    assert_array_equal(partition.run_kmeans(X, 6, None, 3), expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("few", [True, False])
def test_known_inner_products_change_no_subclass(monkeypatch, weighted, few):
    rng = np.random.default_rng(3)
    X, positive = rng.standard_normal((80, 120)), rng.random(80) < 0.2
    weights = rng.random(80) + 0.1 if weighted else None
    if not few:  # many rows are clustered by a sample, which takes the rows themselves
        monkeypatch.setattr(partition, "SAMPLE", 60)
    given = {"n_subclasses": 5, "weights": weights, "random_state": 0}
    groups, _ = make_groups(X, positive, **given)
    again, _ = make_groups(X, positive, **given, products=X @ X.T)
    assert_array_equal(again, groups)


def test_an_empty_cluster_of_products_is_left_to_scikit_learn(monkeypatch):
    X, positive = np.random.default_rng(4).standard_normal((40, 60)), np.arange(40) < 4
    groups, _ = make_groups(X, positive, n_subclasses=4, random_state=0)
    monkeypatch.setattr(partition, "kmeans_of_products", lambda *_: None)
    again, _ = make_groups(X, positive, n_subclasses=4, random_state=0, products=X @ X.T)
    assert_array_equal(again, groups)


def test_each_sample_may_be_its_own_subclass():
    X, positive, _ = clouds(8)
    groups, names = make_groups(X, positive, subclasses="samples")
    assert_numbered(groups, positive, 8)
    assert_array_equal(names, np.arange(8))


def test_any_clusterer_is_cloned_and_fitted_on_the_negatives():
    X, positive, truth = clouds()
    clusterer = AgglomerativeClustering(3)
    groups, _ = make_groups(X, positive, n_subclasses=9, subclasses=clusterer)
    assert_numbered(groups, positive, 3)
    assert adjusted_rand_score(truth[~positive], groups[~positive]) == 1
    assert not hasattr(clusterer, "labels_")


def test_a_clusterers_noise_forms_its_own_subclass():
    X, positive, _ = clouds()
    outliers = np.flatnonzero(~positive)[[0, 5]]
    X[outliers] = [[500.0, 0.0], [0.0, -700.0]]
    groups, names = make_groups(X, positive, subclasses=DBSCAN(eps=5))
    assert_numbered(groups, positive, 4)
    assert names[0] == -1
    assert_array_equal(np.flatnonzero(groups == 1), np.sort(outliers))


def test_given_labels_take_precedence_and_are_ignored_for_positives():
    X, positive, truth = clouds()
    labels = np.array(["north", "east", "west"], dtype=object)[truth]
    labels[positive] = None
    groups, names = make_groups(X, positive, n_subclasses=9, subclass_labels=labels)
    assert_numbered(groups, positive, 3)
    assert_array_equal(names, ["east", "north", "west"])
    assert_array_equal(names[groups[~positive] - 1], labels[~positive])


@pytest.mark.parametrize(
    "labels",
    [
        [0, 5, 5, 7],
        [np.nan, 5.0, 5.0, 7.0],
        np.array([pd.NA, "a", "a", "b"], dtype=object),
        pd.Series([pd.NA, 5, 5, 7], dtype="Int64"),
        np.array(["2020", "2021", "2021", "2022"], dtype="datetime64[Y]"),
    ],
    ids=["numbers", "NaN", "NA", "nullable numbers", "dates"],
)
def test_labels_may_be_of_any_type(labels):
    positive = np.array([True, False, False, False])
    groups, _ = make_groups(np.zeros((4, 1)), positive, subclass_labels=labels)
    assert_array_equal(groups, [0, 1, 1, 2])


@pytest.mark.parametrize(
    "labels",
    [
        [1, np.nan, 2, np.nan],
        np.array([None, None, "a", None], dtype=object),
        pd.Series(["a", None, "b", pd.NA]),
        np.array([1, pd.NA, 2, pd.NA], dtype=object),
    ],
    ids=["NaN", "None", "in a series", "NA"],
)
def test_negatives_without_a_label_are_counted_and_refused(labels):
    message = (
        "subclass_labels is missing (NaN or None) for 2 negative rows; give each negative a label, "
        "or leave subclass_labels out to cluster them"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        given_labels(labels, np.array([True, False, False, False]))


def test_labels_without_a_common_order_are_refused():
    labels = np.array([None, 1, "a", "b"], dtype=object)
    message = (
        "subclass_labels mixes int and str, which have no common order; make all of them text or "
        "all of them numbers"
    )
    with pytest.raises(ValueError, match=message):
        make_groups(np.zeros((4, 1)), np.array([True, False, False, False]), subclass_labels=labels)


@pytest.mark.parametrize("shape", [(3,), (4, 1), ()])
def test_labels_of_another_shape_are_refused(shape):
    message = (
        f"subclass_labels has shape {shape} but must have one entry for each of the 4 rows of X; "
        "entries of positive rows are ignored"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        given_labels(np.zeros(shape), np.array([True, False, False, False]))


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 600), st.just(2)), elements=st.integers(0, 4)),
    st.integers(1, 30),
)
def test_distinct_rows_are_counted_up_to_a_limit(rows, enough):
    distinct = len(np.unique(rows, axis=0))
    assert count_distinct(rows, enough) == min(distinct, enough)
    assert count_distinct(sparse.csr_array(rows), enough) == min(distinct, enough)


def test_zeros_of_either_sign_are_the_same_row():
    assert count_distinct(np.array([[0.0, 1.0], [-0.0, 1.0]]), 5) == 1


def test_counting_stops_as_soon_as_there_are_enough():
    class Counted:
        """Rows that record how far they were read."""

        def __init__(self, rows):
            self.rows, self.shape, self.read = rows, rows.shape, 0

        def __getitem__(self, part):
            self.read = part.stop
            return self.rows[part]

    rows = Counted(np.arange(10000.0).reshape(-1, 1))
    assert count_distinct(rows, 10) == 10
    assert rows.read < 1000


def test_inputs_are_not_written_to():
    X, positive, truth = clouds()
    copies = X.copy(), positive.copy(), truth.copy()
    make_groups(X, positive, n_subclasses=3, random_state=0)
    make_groups(X, positive, subclass_labels=truth)
    for now, then in zip((X, positive, truth), copies, strict=True):
        assert_array_equal(now, then)


def watch_kmeans(monkeypatch):
    """Record how many rows k-means and its last steps receive."""
    sizes = []

    def watched(function):
        def call(rows, *rest):
            sizes.append(len(rows))
            return function(rows, *rest)

        return call

    for name in ("kmeans", "lloyd"):
        monkeypatch.setattr(partition, name, watched(getattr(partition, name)))
    return sizes


def test_clustering_a_sample_of_many_rows_gives_the_same_clusters(monkeypatch):
    X, positive, truth = clouds()
    whole, _ = make_groups(X, positive, n_subclasses=3, random_state=0)
    half, sizes = int((~positive).sum()) // 2, watch_kmeans(monkeypatch)
    monkeypatch.setattr(partition, "SAMPLE", half)
    monkeypatch.setattr(partition, "SAMPLE_PER_CLUSTER", half // 3)
    sampled, _ = make_groups(X, positive, n_subclasses=3, random_state=0)
    assert sizes == [half // partition.START, half]
    assert adjusted_rand_score(whole[~positive], sampled[~positive]) == 1
    assert adjusted_rand_score(truth[~positive], sampled[~positive]) == 1


def test_many_clusters_take_a_larger_sample(monkeypatch):
    X = np.random.default_rng(0).standard_normal((400, 2))
    sizes = watch_kmeans(monkeypatch)
    monkeypatch.setattr(partition, "SAMPLE", 60)
    monkeypatch.setattr(partition, "SAMPLE_PER_CLUSTER", 30)
    for count in (2, 5, 20, 40):
        partition.run_kmeans(X, count, None, 0)
    assert sizes == [20, 60, 50, 150, 200, 400, 400]


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e100, 1e-100])
def test_the_centroids_of_a_sample_equal_scikit_learns(monkeypatch, form, weighted, scale):
    rng = np.random.default_rng(0)
    X = 3 + rng.standard_normal((400, 3))
    weights = rng.random(400) if weighted else np.ones(400)
    monkeypatch.setattr(partition, "SAMPLE", 50)
    monkeypatch.setattr(partition, "SAMPLE_PER_CLUSTER", 20)
    draws = np.random.RandomState(7)
    chosen = np.sort(draws.choice(400, 100, replace=False))
    first = chosen[np.sort(draws.choice(100, 100 // partition.START, replace=False))]
    begun = KMeans(5, n_init=1, random_state=draws).fit(X[first], sample_weight=weights[first])
    means = KMeans(5, init=begun.cluster_centers_, n_init=1, max_iter=partition.STEPS)
    means.fit(X[chosen], sample_weight=weights[chosen])
    given = weights if weighted else None
    labels = partition.run_kmeans(form(scale * X), 5, given, 7)
    assert_array_equal(labels, cdist(X, means.cluster_centers_).argmin(axis=1))
    centroids = partition.find_centroids(scale * X, 5, given, 7)
    assert_allclose(centroids, scale * means.cluster_centers_, rtol=1e-10)


@pytest.mark.parametrize("offset", [0.0, 30.0, 1e6, 1e12])
@pytest.mark.parametrize("share", [0.2, 0.9])
@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_array])
def test_the_nearest_centre_is_found_near_zero_and_far_from_it(offset, share, form):
    rng = np.random.default_rng(3)
    if form is not np.asarray:
        offset = min(offset, 30.0)  # neither single precision nor sparse rows go farther
    X = form(offset + rng.standard_normal((500, 6)))
    among = np.flatnonzero(rng.random(500) < share)
    dense = X.toarray() if sparse.issparse(X) else X.astype(np.float64)
    centres = dense[:7] + 0.1
    expected = cdist(dense - offset, centres - offset).argmin(axis=1)
    assert_array_equal(partition.nearest(X, centres), expected)
    assert_array_equal(partition.nearest(X, centres, among), expected[among])


@pytest.mark.parametrize("size", [200, 400])
def test_rows_in_memory_join_the_nearest_returned_centroid(monkeypatch, size):
    X = np.random.default_rng(1).standard_normal((400, 3))
    monkeypatch.setattr(partition, "SAMPLE", size)
    monkeypatch.setattr(partition, "SAMPLE_PER_CLUSTER", 20)
    labels = partition.run_kmeans(X, 5, None, 7)
    assert_array_equal(labels, partition.nearest(X, partition.find_centroids(X, 5, None, 7)))


@pytest.mark.parametrize("sample", [1000, 50], ids=["all rows", "a sample"])
def test_selected_rows_are_clustered_as_if_alone_and_not_written_to(monkeypatch, sample):
    monkeypatch.setattr(partition, "SAMPLE", sample)
    monkeypatch.setattr(partition, "SAMPLE_PER_CLUSTER", 10)
    X = 1e3 + np.random.default_rng(0).standard_normal((300, 4))
    kept, among = X.copy(), np.flatnonzero(np.arange(300) % 3)
    weights = 1.0 + among % 2
    X.flags.writeable = False
    labels = partition.run_kmeans(X, 4, weights, 0, among=among)
    assert_array_equal(X, kept)
    assert_array_equal(partition.run_kmeans(X[among], 4, weights, 0), labels)
    assert_array_equal(X, kept)


LABELS = st.one_of(
    hnp.arrays(st.sampled_from(["int8", "int64", "uint64"]), 20, elements=st.integers(0, 9)),
    hnp.arrays("int64", 20, elements=st.integers(-3, 3)),
    hnp.arrays("int64", 20, elements=st.sampled_from([0, 2**15 - 1, 2**15, 2**62])),
    hnp.arrays("bool", 20),
    hnp.arrays("float64", 20, elements=st.sampled_from([0.0, 1.5, 2.0])),
    hnp.arrays("U1", 20, elements=st.sampled_from("abc")),
    hnp.arrays("int64", 0),
)


@given(LABELS)
def test_labels_are_counted_like_numpy_unique(labels):
    names, codes = distinct(labels)
    expected, places = np.unique(labels, return_inverse=True)
    assert names.dtype == labels.dtype
    assert_array_equal(names, expected)
    assert_array_equal(codes, places)


class Watcher(KMeans):
    """K-means that records how many threads it was given."""

    def fit(self, X, y=None, sample_weight=None):
        self.threads_ = openmp_threads()
        return super().fit(X, sample_weight=sample_weight)


def openmp_threads():
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "openmp"}


@pytest.mark.parametrize(("light", "expected"), [(300 * 4 * 3, {1}), (300 * 4 * 3 - 1, {2})])
def test_light_steps_use_a_single_thread(monkeypatch, light, expected):
    X = np.random.default_rng(0).standard_normal((300, 4))
    monkeypatch.setattr(partition, "LIGHT", light)
    with threadpool_limits(2, user_api="openmp"):
        found = partition.fit_kmeans(Watcher(3, random_state=0), X)
        assert found.threads_ == expected
        assert openmp_threads() == {2}  # as it was
    expected = KMeans(3, random_state=0).fit(X).labels_
    assert_array_equal(found.labels_, expected)

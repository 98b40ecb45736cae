"""The planted population: what is returned must be exactly what was sampled."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from pcsda.datasets import make_class_specific
from pcsda.metrics import cllr


def full_dimensional_llr(population, X):
    """Compute the log-likelihood ratio from the returned moments, without using the subspace."""
    logpdf = np.array(
        [
            multivariate_normal.logpdf(X, mean, population.covariance, allow_singular=False)
            for mean in population.means
        ]
    )
    n_subclasses = len(population.means) - 1
    return logpdf[0] - (logsumexp(logpdf[1:], axis=0) - np.log(n_subclasses))


@pytest.mark.parametrize(
    ("n_features", "n_informative", "n_subclasses"), [(50, 4, 6), (3, 3, 2), (2, 2, 9), (5, 1, 2)]
)
def test_llr_is_the_difference_of_the_full_log_densities(n_features, n_informative, n_subclasses):
    population = make_class_specific(
        300,
        n_features=n_features,
        n_informative=n_informative,
        n_subclasses=n_subclasses,
        random_state=0,
    )
    anywhere = 5.0 * np.random.default_rng(1).standard_normal((50, n_features))
    for X in (population.data, anywhere):
        assert_allclose(
            population.log_likelihood_ratio(X), full_dimensional_llr(population, X), atol=1e-9
        )


def test_llr_ignores_everything_outside_the_subspace():
    population = make_class_specific(100, random_state=3)
    moves = 100.0 * np.random.default_rng(0).standard_normal(population.data.shape)
    moves -= moves @ population.subspace @ population.subspace.T
    assert_allclose(
        population.log_likelihood_ratio(population.data + moves),
        population.log_likelihood_ratio(population.data),
        atol=1e-9,
    )


def test_llr_is_finite_far_away_and_survives_pickling():
    population = make_class_specific(100, random_state=3)
    far = population.means[:1] + 1e150 * population.subspace.T[:1]
    assert np.isfinite(population.log_likelihood_ratio(far)).all()
    again = pickle.loads(pickle.dumps(population))
    assert_array_equal(
        again.log_likelihood_ratio(population.data),
        population.log_likelihood_ratio(population.data),
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_bayes_cllr_of_the_default_setting(seed):
    population = make_class_specific(20_000, random_state=seed)
    llr = population.log_likelihood_ratio(population.data)
    assert 0.1 < cllr(population.target, llr) < 0.3


def test_sample_moments_match_the_returned_ones():
    population = make_class_specific(100_000, n_features=8, random_state=0)
    residuals = population.data - population.means[population.subclass_labels + 1]
    # Standard errors are below 2 * sqrt(2 / 100000) for covariances of variances up to 2 ...
    assert_allclose(np.cov(residuals, rowvar=False), population.covariance, atol=0.05)
    # ... and below sqrt(2 / 10000) for the mean of the smallest group.
    for label, mean in enumerate(population.means, start=-1):
        members = population.data[population.subclass_labels == label]
        assert_allclose(members.mean(axis=0), mean, atol=0.08)


def test_shapes_counts_and_labels():
    population = make_class_specific(1003, positive_fraction=0.25, random_state=0)
    assert population.data.shape == (1003, 50)
    assert population.subspace.shape == (50, 4)
    assert population.means.shape == (7, 50)
    assert population.covariance.shape == (50, 50)
    assert population.target.sum() == 251
    assert_array_equal(population.subclass_labels == -1, population.target == 1)
    counts = np.bincount(population.subclass_labels[population.target == 0])
    assert len(counts) == 6
    assert np.ptp(counts) <= 1
    assert_allclose(population.subspace.T @ population.subspace, np.eye(4), atol=1e-12)
    assert "251 samples of the class of interest" in population.DESCR
    assert "752 of 6 other" in population.DESCR


@pytest.mark.parametrize(
    ("n_informative", "n_subclasses", "least_distance"),
    [(1, 2, 2.0), (2, 6, 1.0), (3, 3, 2**0.5), (4, 5, 2.5**0.5), (4, 6, 2**0.5), (3, 10, 1.0)],
)
def test_centers_lie_at_the_radius_spread_out_and_span_the_space(
    n_informative, n_subclasses, least_distance
):
    population = make_class_specific(
        n_informative=n_informative, n_subclasses=n_subclasses, separation=3.0, random_state=5
    )
    centers = (population.means[1:] - population.means[0]) @ population.subspace
    assert_allclose(np.linalg.norm(centers, axis=1), 3.0)
    assert np.linalg.matrix_rank(centers, tol=1.0) == min(n_informative, n_subclasses)
    assert pdist(centers / 3.0).min() > least_distance - 1e-3
    if n_subclasses > n_informative:
        assert_allclose(centers.mean(axis=0), 0.0, atol=0.1)


@pytest.mark.more
def test_kmeans_can_find_the_subclasses():
    population = make_class_specific(20_000, random_state=0)
    negative = population.target == 0
    found = KMeans(6, n_init=3, random_state=0).fit_predict(population.data[negative])
    assert adjusted_rand_score(population.subclass_labels[negative], found) > 0.9


def test_random_state_determines_everything():
    one, same, other = (make_class_specific(50, random_state=seed) for seed in (1, 1, 2))
    assert_array_equal(one.data, same.data)
    assert_array_equal(one.subspace, same.subspace)
    assert not np.allclose(one.subspace, other.subspace)
    X, y = make_class_specific(50, random_state=1, return_X_y=True)
    assert_array_equal(X, one.data)
    assert_array_equal(y, one.target)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"n_informative": 60},
            ValueError,
            r"^n_informative=60 must be at most 50 \(= n_features\); lower it or raise n_features$",
        ),
        ({"n_subclasses": 0}, ValueError, r"^n_subclasses=0 must be at least 1; raise it$"),
        ({"n_samples": 10.0}, TypeError, r"^n_samples=10.0 must be an integer; give a whole"),
        ({"n_features": True}, TypeError, r"^n_features=True must be an integer"),
        (
            {"n_informative": 1},
            ValueError,
            r"^n_subclasses=6 must be at most 2 \(= directions on a line, as n_informative=1\);"
            r" lower it or raise n_informative$",
        ),
        (
            {"positive_fraction": 1.0},
            ValueError,
            r"^positive_fraction=1.0 must be above 0 and below 1; change it$",
        ),
        ({"positive_fraction": "half"}, TypeError, r"^positive_fraction='half' must be a real"),
        ({"separation": -1}, ValueError, r"^separation=-1 must be above 0 and below inf; change"),
        ({"separation": np.nan}, ValueError, r"^separation=nan must be above 0"),
        (
            {"n_samples": 20, "positive_fraction": 0.01},
            ValueError,
            r"^positive_fraction=0.01 of n_samples=20 gives no positive sample, but at least 1 is"
            r" needed; raise either$",
        ),
        (
            {"n_samples": 6, "positive_fraction": 0.5},
            ValueError,
            r"^n_samples=6 with positive_fraction=0.5 leaves 3 negatives, but at least 6"
            r" \(= n_subclasses\) are needed; raise n_samples or lower n_subclasses$",
        ),
    ],
)
def test_bad_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        make_class_specific(**arguments)


def test_llr_refuses_another_number_of_features():
    population = make_class_specific(random_state=0)
    with pytest.raises(ValueError, match=r"^X has 3 features but the generated data have 50"):
        population.log_likelihood_ratio(np.zeros((2, 3)))

"""The bank: every model equals a separate fit; identification, enrolment, refusals."""

import pickle
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from bank_factories import animals as problem
from factories import close, in_turn, lean, tails_of, with_heavy_tails
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.base import clone
from sklearn.cluster import AgglomerativeClustering
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from pcsda import (
    CSDA,
    PCSDA,
    PCSDACV,
    KernelPCSDA,
    MixtureVerifier,
    NystroemMap,
    VerifierBank,
)
from pcsda.estimators.changes import BankRows
from pcsda.unwrap import unwrap

pd = pytest.importorskip("pandas")

# Laws for labels calibrated one by one; test_pooled_bank.py has the others.
per_label = partial(VerifierBank, calibration="per-label")
LINEAR = PCSDA(n_subclasses=3, regularization=0.1, random_state=0)
KERNEL = KernelPCSDA(gamma=0.03, n_subclasses=3, regularization=0.1, random_state=0)
SHARED = [
    ("D<N", LINEAR, 6),
    ("D>N", LINEAR, 130),
    ("rbf all", clone(KERNEL).set_params(gamma="all"), 6),
    ("rbf number", KERNEL, 6),
    ("linear kernel", clone(KERNEL).set_params(kernel="linear"), 6),
]
TEMPLATES = in_turn(
    ("template", "width"), [case[1:] for case in SHARED], ids=[case[0] for case in SHARED]
)
TWO = pytest.mark.parametrize("template", [LINEAR, KERNEL], ids=["linear", "kernel"])
SETTINGS = pytest.mark.parametrize(
    "settings",
    [
        {},
        {"calibrate": False},
        {"covariance": "resubstitution"},
        {"covariance": "resubstitution", "calibrate": False, "negatives": "marginal"},
        {"negatives": "marginal", "n_components": 2, "shrinkage": 0.7, "priors": "equal"},
        {"negatives": "mixture"},
        {"tails": "gaussian", "n_components": 2},
    ],
    ids=[
        "default",
        "not calibrated",
        "resubstitution",
        "published",
        "marginal",
        "mixture",
        "tails",
    ],
)


def assert_same_model(found, expected, X, rtol=1e-8):
    """Compare everything that two models return and store."""
    assert found.n_components_ == expected.n_components_
    assert_array_equal(found.partition_, expected.partition_)
    close(found.eigenvalues_, expected.eigenvalues_, rtol)
    close(found.class_prior_, expected.class_prior_)
    assert_allclose(tails_of(found.density_), tails_of(expected.density_), rtol=rtol)
    close(found.calibration_.weights, np.array(expected.calibration_.weights), rtol)
    assert hasattr(found, "loo_scores_") == hasattr(expected, "loo_scores_")
    if hasattr(expected, "loo_scores_"):
        seen = ~np.isnan(expected.loo_scores_)  # all but a positive that is alone
        assert_array_equal(seen, ~np.isnan(found.loo_scores_))
        close(found.loo_scores_[seen], expected.loo_scores_[seen], rtol)
    if isinstance(expected, PCSDA):
        close(found.positive_mean_, expected.positive_mean_, rtol)
        close(found.subclass_means_, expected.subclass_means_, rtol)
        for row, wanted in zip(found.components_, expected.components_, strict=True):
            close(row, wanted, rtol)
    close(found.log_likelihood_ratio(X), expected.log_likelihood_ratio(X), rtol)
    close(found.score_samples(X), expected.score_samples(X), rtol)


def separate(bank, label, X, y, **changes):
    """Fit the label's model separately, with the groups of the bank's model."""
    model = clone(bank.estimator).set_params(**changes)
    return model.fit(X, y == label, subclass_labels=bank.models_[label].partition_)


def relative(bank, X):
    """Return the regularization that gives a separate fit on X the bank's ridge."""
    if not isinstance(bank.estimator, KernelPCSDA):
        return bank.ridge_ / X.var(axis=0).sum()
    matrix = bank.kernel_(X, X)
    return bank.ridge_ / (matrix.diagonal().mean() - matrix.mean())


@pytest.mark.each_value
@TEMPLATES
@SETTINGS
@pytest.mark.parametrize("subclasses", ["shared", "per-class"])
def test_every_model_equals_a_separate_fit(template, width, settings, subclasses):
    X, y = problem(width)
    fresh, _ = problem(width, seed=7)
    template = clone(template).set_params(**settings)
    bank = per_label(template, subclasses=subclasses).fit(X, y)
    assert bank._labels_.sharing is not None
    assert list(bank.models_) == bank.classes_.tolist() == ["ant", "bee", "cat", "dog"]
    for label, model in bank.models_.items():
        assert_same_model(model, separate(bank, label, X, y), fresh)
        if subclasses == "shared":
            alone = clone(template).fit(X, y == label, subclass_labels=bank.clusters_)
            assert_array_equal(model.partition_, alone.partition_)


@TEMPLATES
def test_models_with_heavy_tails_equal_separate_fits(template, width):
    X, y = problem(width)
    X = with_heavy_tails(X, np.unique(y, return_inverse=True)[1])
    bank = per_label(template).fit(X, y)
    for label, model in bank.models_.items():
        assert_same_model(model, separate(bank, label, X, y), X)
    tails = [tails_of(model.density_) for model in bank.models_.values()]
    blends = [pair for pair in tails if len(pair) == 2]
    assert np.isfinite(blends).any(axis=0).all()


@pytest.mark.parametrize(("template", "width"), [(LINEAR, 6), (LINEAR, 130), (KERNEL, 6)])
def test_every_model_uses_the_given_clusters(template, width):
    X, y = problem(width)
    names = np.random.default_rng(0).choice(["p", "q", "r", "s", "t"], size=len(X))
    names[np.flatnonzero(y == "bee")[:3]] = "only bees"
    bank = per_label(template).fit(X, y, subclass_labels=names)
    for label, model in bank.models_.items():
        alone = clone(template).fit(X, y == label, subclass_labels=names)
        assert_same_model(model, alone, X)
        assert len(model.subclass_counts_) == (5 if label == "bee" else 6)


def test_without_given_subclasses_k_means_clusters_all_rows():
    X, y = problem(spread=6.0)
    bank = per_label(PCSDA(n_subclasses=4, random_state=0)).fit(X, y)
    # The labels are so far apart that they are the clusters, and each label drops its own.
    assert len({*zip(y.tolist(), bank.clusters_.tolist(), strict=True)}) == 4
    assert all(len(model.subclass_counts_) == 3 for model in bank.models_.values())
    for cluster in range(4):
        close(bank.centroids_[cluster], X[bank.clusters_ == cluster].mean(axis=0))


def test_a_clusterer_divides_all_rows_at_once():
    X, y = problem()
    bank = per_label(PCSDA(subclasses=AgglomerativeClustering(4), regularization=0.1)).fit(X, y)
    expected = AgglomerativeClustering(4).fit_predict(X)
    assert_array_equal(bank.clusters_, np.unique(expected, return_inverse=True)[1])
    for label, model in bank.models_.items():
        alone = PCSDA(regularization=0.1).fit(X, y == label, subclass_labels=expected)
        assert_same_model(model, alone, X)


def test_own_clusters_of_a_label_are_a_fixed_point_of_k_means_on_its_negatives():
    X, y = problem()
    bank = per_label(LINEAR, subclasses="per-class").fit(X, y)
    moved = 0
    for label, model in bank.models_.items():
        rows, groups = X[y != label], model.partition_[y != label]
        means = np.array([rows[groups == k].mean(axis=0) for k in range(1, groups.max() + 1)])
        nearest = ((rows[:, None] - means) ** 2).sum(axis=2).argmin(axis=1) + 1
        assert_array_equal(nearest, groups)
        start = np.unique(bank.clusters_[y != label], return_inverse=True)[1]
        moved += not np.array_equal(start, groups - 1)
    assert moved > 0


@pytest.mark.each_value
@pytest.mark.parametrize("subclasses", ["shared", "per-class"])
@pytest.mark.parametrize("covariance", ["leave-one-out", "resubstitution"])
def test_nearly_separable_groups_agree_at_a_tiny_ridge(subclasses, covariance):
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([0, 1, 2, 3], [12, 10, 9, 11]))
    X = rng.standard_normal((4, 5))[y] + 1e-6 * rng.standard_normal((len(y), 5))
    # At the edge of the precision there is: scores are in the hundreds of millions. Heavy tails
    # would take their logarithm, and rounding would be all that is left of small distances.
    # A calibration would limit how strongly they speak against a class.
    template = PCSDA(4, regularization=1e-12, covariance=covariance, tails="gaussian")
    template.set_params(random_state=0, calibrate=False)
    bank = per_label(template, subclasses=subclasses).fit(X, y)
    for label, model in bank.models_.items():
        assert_same_model(model, separate(bank, label, X, y), X, rtol=1e-6)


def test_own_clusters_survive_where_the_shared_solution_would_be_rounding():
    rng = np.random.default_rng(1)
    y = rng.permutation(np.repeat([0, 1, 2, 3], 12))
    part = rng.integers(2, size=len(y))
    centres = rng.standard_normal((4, 2, 5)) * [1.0, 1.0, 1.0, 0.3, 0.3]
    X = centres[y, part] + 1e-6 * rng.standard_normal((len(y), 5))
    template = PCSDA(3, regularization=1e-12, tails="gaussian", random_state=0)
    bank = per_label(template, subclasses="per-class").fit(X, y)
    for label, model in bank.models_.items():
        assert_array_equal(model.partition_, bank._labels_.own_groups(label))
        assert_same_model(model, separate(bank, label, X, y), X, rtol=1e-5)


@pytest.mark.parametrize(
    "template", [clone(KERNEL).set_params(kernel="linear")], ids=["linear kernel"]
)
def test_kernel_values_with_a_large_part_in_common_keep_their_digits(template):
    X, y = problem()
    bank = per_label(template).fit(X + 1e3, y)
    for label in bank.classes_:
        alone = separate(bank, label, X + 1e3, y)
        close(bank.models_[label].loo_scores_, alone.loo_scores_)


@in_turn(
    "template",
    [
        CSDA(random_state=0),
        clone(KERNEL).set_params(gamma="positive"),
        clone(LINEAR).set_params(solver="eigen"),
        clone(LINEAR).set_params(balance="resampled"),
        clone(LINEAR).set_params(subclasses="samples"),
    ],
    ids=["CSDA", "paper's bandwidth", "eigen", "resampled", "samples"],
)
def test_estimators_that_cannot_share_are_fitted_separately(template):
    X, y = problem()
    bank = per_label(template).fit(X, y)
    assert bank._labels_.sharing is None
    scores = bank.log_likelihood_ratio(X)
    for column, label in enumerate(bank.classes_):
        own = isinstance(template, CSDA) or template.subclasses == "samples"
        known = {} if own else {"subclass_labels": bank.clusters_}
        alone = clone(template).fit(X, y == label, **known)
        assert_array_equal(scores[:, column], alone.log_likelihood_ratio(X))
    assert bank.score(X, y) > 0.5


@pytest.mark.more  # as in test_bank_search.py
def test_a_search_in_folds_equals_each_labels_own_search():
    X, y = problem()
    search = PCSDACV(PCSDA(random_state=0), n_subclasses=[1, 4], regularization=0.01)
    bank = per_label(search).fit(X, y)
    scores = bank.log_likelihood_ratio(X)
    for column, label in enumerate(bank.classes_):
        alone = clone(search).fit(X, y == label)
        assert bank.models_[label].cv_method_ == alone.cv_method_ == "k-fold"
        assert_allclose(scores[:, column], alone.log_likelihood_ratio(X), rtol=1e-9, atol=1e-11)


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "template",
    [
        make_pipeline(StandardScaler(), LINEAR),
        make_pipeline(StandardScaler(), KERNEL),
        GridSearchCV(LINEAR, {"regularization": [0.1, 1]}, cv=3),
        MixtureVerifier(LINEAR, n_modes=2),
    ],
    ids=["linear pipeline", "kernel pipeline", "search", "mixture"],
)
def test_every_method_works_with_models_inside_others(template):
    X, y = problem()
    X = X * [1, 9, 2, 5, 7, 3] + 4
    bank = VerifierBank(template).fit(X, y)
    scores = bank.log_likelihood_ratio(X)
    for column, label in enumerate(bank.classes_):
        inside = unwrap(clone(template).fit(X, y == label))
        ratios, rows = inside.model.log_likelihood_ratio(inside.rows(X)), inside.rows(X)
        assert_allclose(scores[:, column], ratios, rtol=1e-9, atol=1e-11)
        assert_allclose(bank.verify(X, np.full(len(X), label)), ratios, rtol=1e-9, atol=1e-11)
        assert_array_equal(bank.rank(X, label, "distance"), inside.model.rank(rows, "distance"))
        if hasattr(inside.model, "explain"):
            assert_allclose(bank.explain(X[:3], label).score, ratios[:3], rtol=1e-9, atol=1e-11)
    assert "none" not in bank.identify(X, threshold=-1e9, unknown="none").tolist()
    assert bank.score(X, y) > 0.5


@pytest.mark.parametrize("template", [LogisticRegression(), VerifierBank(), 3, PCSDA])
def test_what_is_no_verifier_is_refused_before_the_fit(template):
    name = type(template).__name__
    with pytest.raises(TypeError, match=f"^VerifierBank takes PCSDA, CSDA, .* got {name}; for"):
        VerifierBank(template).fit(*problem())


def test_a_pipeline_inside_a_search_scores_raw_rows():
    X, y = problem()
    search = PCSDACV(
        make_pipeline(StandardScaler(), PCSDA(random_state=0)),
        n_subclasses=[1, 3],
        n_components=[1, 2],
        regularization=0.01,
    )
    bank = per_label(search).fit(X * [1, 9, 2, 5, 7, 3] + 4, y)
    rows = X[:20] * [1, 9, 2, 5, 7, 3] + 4
    scores = bank.log_likelihood_ratio(rows)
    for column, model in enumerate(bank.models_.values()):
        scaled = model.best_estimator_[0].transform(rows)
        assert_array_equal(scores[:, column], model.best_estimator_[1].log_likelihood_ratio(scaled))


def test_a_precomputed_kernel_is_fitted_separately():
    X, y = problem()
    matrix = np.exp(-0.03 * ((X[:, None] - X) ** 2).sum(axis=2))
    template = clone(KERNEL).set_params(kernel="precomputed")
    clusters = np.arange(len(X)) % 3
    bank = per_label(template).fit(matrix, y, subclass_labels=clusters)
    expected = per_label(KERNEL).fit(X, y, subclass_labels=clusters)
    close(bank.log_likelihood_ratio(matrix), expected.log_likelihood_ratio(X), 1e-7)


@pytest.mark.each_value
@TEMPLATES
@pytest.mark.parametrize("calibrate", [True, False])
def test_one_product_equals_scoring_model_by_model(template, width, calibrate):
    X, y = problem(width)
    fresh, _ = problem(width, seed=5)
    bank = per_label(clone(template).set_params(calibrate=calibrate)).fit(X, y)
    ratios, odds = bank.log_likelihood_ratio(fresh), bank.decision_function(fresh)
    assert ratios.shape == odds.shape == (len(fresh), 4)
    for column, label in enumerate(bank.classes_):
        model = bank.models_[label]
        close(ratios[:, column], model.log_likelihood_ratio(fresh))
        close(odds[:, column], model.decision_function(fresh))
        share = np.mean(y == label)
        close(odds[:, column] - ratios[:, column], np.full(len(X), np.log(share / (1 - share))))


@pytest.mark.parametrize(
    ("template", "subclasses"),
    [
        pytest.param(LINEAR, "shared", id="linear"),
        pytest.param(KERNEL, "per-class", id="kernel"),
        # starts processes
        pytest.param(CSDA(random_state=0), "shared", id="separate", marks=pytest.mark.more),
    ],
)
def test_the_number_of_jobs_does_not_matter(template, subclasses):
    X, y = problem()
    one, two = (
        per_label(template, subclasses=subclasses, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2)
    )
    assert_array_equal(one.clusters_, two.clusters_)
    assert_array_equal(one.log_likelihood_ratio(X), two.log_likelihood_ratio(X))
    for label in one.classes_:
        assert_array_equal(one.models_[label].partition_, two.models_[label].partition_)
        assert_array_equal(one.models_[label].predict_proba(X), two.models_[label].predict_proba(X))


@pytest.mark.each_value
@TWO
@pytest.mark.parametrize("covariance", ["leave-one-out", "resubstitution"])
def test_a_class_with_one_sample_has_a_model(template, covariance):
    X, y = problem(sizes=(30, 25, 20, 1))
    template = clone(template).set_params(covariance=covariance)
    bank = per_label(template).fit(X, y)
    for label, model in bank.models_.items():
        assert_same_model(model, separate(bank, label, X, y), X)
    assert np.isfinite(bank.log_likelihood_ratio(X)).all()
    left_out = hasattr(bank.models_["dog"], "loo_scores_")
    assert left_out == (covariance == "leave-one-out")  # of the negatives


@TWO
def test_every_class_with_one_sample_is_identified(template):
    X = 5 * np.random.default_rng(0).standard_normal((6, 8))
    bank = per_label(clone(template).set_params(n_subclasses=2)).fit(X, list("abcdef"))
    assert_array_equal(bank.predict(X), list("abcdef"))


@TWO
def test_two_labels_are_separated_by_the_difference_of_their_odds(template):
    X, y = problem(sizes=(40, 30))
    bank = per_label(clone(template).set_params(regularization=0.01)).fit(X, y)
    odds = bank.decision_function(X)
    own = [bank.models_[label].decision_function(X) for label in ("ant", "bee")]
    close(odds, own[1] - own[0])
    assert_array_equal(bank.predict(X), np.where(odds > 0, "bee", "ant"))
    close(bank.predict_proba(X), np.column_stack([expit(-odds), expit(odds)]))
    assert bank.log_likelihood_ratio(X).shape == (70, 2)
    assert bank.score(X, y) > 0.9


@TWO
def test_single_precision_is_kept_and_agrees(template):
    X, y = problem()
    narrow = X.astype(np.float32)
    bank = per_label(template).fit(narrow, y)
    exact = per_label(template).fit(narrow.astype(np.float64), y)
    assert_array_equal(bank.clusters_, exact.clusters_)
    for method in ("log_likelihood_ratio", "decision_function", "predict_proba"):
        found = getattr(bank, method)(narrow)
        assert found.dtype == np.float32
        expected = getattr(exact, method)(narrow.astype(np.float64))
        assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    assert bank.verify(narrow, "ant").dtype == np.float32
    assert_array_equal(bank.predict(narrow), exact.predict(narrow.astype(np.float64)))
    alone = separate(bank, "ant", narrow, y)
    assert_allclose(bank.log_likelihood_ratio(narrow)[:, 0], alone.log_likelihood_ratio(narrow))


def test_extreme_rows_get_the_finite_scores_of_the_model():
    X, y = problem()
    bank = per_label(LINEAR).fit(X, y)
    far = (X[:2] * 1e30).astype(np.float32)
    found = bank.log_likelihood_ratio(far)
    assert np.isfinite(found).all()
    assert_array_equal(found[:, 1], bank.models_["bee"].log_likelihood_ratio(far))


def test_inputs_are_not_modified():
    X, y = problem()
    X.setflags(write=False)
    before = y.copy()
    bank = per_label(LINEAR).fit(X, y)
    bank.enroll(X[:4] + 1, "new").remove("new").refresh()
    assert_array_equal(y, before)
    expected = PCSDA(n_subclasses=3, regularization=0.1, random_state=0)
    assert LINEAR.get_params() == expected.get_params()


def test_none_means_pcsda():
    X, y = problem(sizes=(30, 25))
    bank = per_label().fit(X, y)
    assert bank.estimator is None
    assert type(bank.models_["ant"]) is PCSDA
    params = PCSDA(regularization=bank.regularization_).get_params()
    assert bank.models_["ant"].get_params() == params


@TWO
def test_a_closed_set_has_probabilities_that_sum_to_one(template):
    X, y = problem(spread=1.5)
    bank = per_label(template).fit(X[:60], y[:60])
    odds, proba = bank.decision_function(X[60:]), bank.predict_proba(X[60:])
    assert_allclose(proba.sum(axis=1), 1, rtol=1e-12)
    assert np.all(proba >= 0)
    posterior = expit(odds)
    assert_allclose(proba, posterior / posterior.sum(axis=1, keepdims=True), rtol=1e-10)
    assert_array_equal(bank.predict(X[60:]), bank.classes_[proba.argmax(axis=1)])
    assert bank.score(X[60:], y[60:]) > 0.6


def test_probabilities_are_finite_when_every_label_is_implausible():
    X, y = problem()
    bank = per_label(LINEAR).fit(X, y)
    proba = bank.predict_proba(X[:5] + 1e6)
    assert_allclose(proba.sum(axis=1), 1)
    assert_array_equal(bank.predict(X[:5] + 1e6), bank.classes_[proba.argmax(axis=1)])


def test_identification_says_unknown_below_the_threshold():
    X, y = problem()
    bank = per_label(LINEAR).fit(X, y)
    ratios = bank.log_likelihood_ratio(X)
    threshold = float(np.median(ratios.max(axis=1)))
    found = bank.identify(X, threshold, "nobody")
    best = bank.classes_[ratios.argmax(axis=1)]
    assert_array_equal(found, np.where(ratios.max(axis=1) >= threshold, best, "nobody"))
    assert 0.4 < np.mean(found == "nobody") < 0.6
    assert np.all(bank.identify(X, -np.inf, "nobody") == best)
    assert np.all(bank.identify(X, np.inf, "nobody") == "nobody")
    bank.choose_threshold(0.5, strangers=problem(seed=5)[0])
    expected = ratios.max(axis=1) < bank.threshold_.value
    assert_array_equal(bank.identify(X) == None, expected)  # noqa: E711


@pytest.mark.parametrize("threshold", [np.nan, "high", True, [1.0]])
def test_identification_refuses_a_threshold_that_is_no_number(threshold):
    X, y = problem()
    bank = per_label(LINEAR).fit(X, y)
    with pytest.raises(ValueError, match=r"threshold=.* such as the `value` of what .* or None"):
        bank.identify(X, threshold)


@pytest.mark.parametrize(
    ("kind", "unknown", "dtype"),
    [
        (int, -1, np.int64),
        (int, None, object),
        (int, "nobody", object),
        (int, 0.5, object),
        (str, "somebody else entirely", "<U22"),
        (str, None, object),
        (str, -1, object),
        (float, -1.0, np.float64),
    ],
)
def test_identities_keep_the_label_type_when_unknown_fits_it(kind, unknown, dtype):
    X, y = problem()
    labels = np.unique(y, return_inverse=True)[1].astype(kind)
    bank = per_label(LINEAR).fit(X, labels)
    found = bank.identify(X, 1.0, unknown)
    assert found.dtype == dtype
    unlike = np.array([value == unknown or value is unknown for value in found.tolist()])
    assert_array_equal(unlike, bank.log_likelihood_ratio(X).max(axis=1) < 1.0)
    assert 0 < unlike.sum() < len(X)
    assert {*found[~unlike].tolist()} <= {*bank.classes_.tolist()}


@TWO
def test_verification_gives_the_ratio_of_the_claimed_label(template):
    X, y = problem()
    bank = per_label(template).fit(X, y)
    ratios = bank.log_likelihood_ratio(X)
    close(bank.verify(X, "cat"), ratios[:, 2])
    claimed = np.random.default_rng(0).choice(bank.classes_, len(X))
    expected = ratios[np.arange(len(X)), np.searchsorted(bank.classes_, claimed)]
    for claims in (claimed, claimed.tolist(), pd.Series(claimed), claimed.astype(object)):
        close(bank.verify(X, claims), expected)


def test_numeric_labels_may_be_claimed_in_any_numeric_type():
    X, y = problem()
    labels = np.unique(y, return_inverse=True)[1] + 1
    bank = per_label(LINEAR).fit(X, labels)
    expected = bank.log_likelihood_ratio(X)[:, 1]
    for claimed in (2, np.int32(2), np.full(len(X), 2, dtype=np.uint8), 2.0):
        close(bank.verify(X, claimed), expected)


@pytest.mark.parametrize("by", ["distance", "likelihood"])
def test_ranking_equals_the_labels_model(by):
    X, y = problem()
    bank = per_label(LINEAR).fit(X, y)
    assert_array_equal(bank.rank(X, "bee", by), bank.models_["bee"].rank(X, by))
    assert np.mean(y[bank.rank(X, "bee", by)[:10]] == "bee") > 0.5


def test_banks_rank_by_likelihood_and_published_ones_by_distance():
    X, y = problem()
    for estimator, by in ((LINEAR, "likelihood"), (PCSDA.published(2, random_state=0), "distance")):
        bank = per_label(estimator).fit(X, y)
        assert_array_equal(bank.rank(X, "bee"), bank.rank(X, "bee", by))
        both = [bank.rank(X, "bee", one).tolist() for one in ("distance", "likelihood")]
        assert both[0] != both[1]


def test_every_method_checks_column_names():
    X, y = problem()
    table = pd.DataFrame(X, columns=[f"f{i}" for i in range(6)])
    bank = per_label(LINEAR).fit(table, y)
    assert_array_equal(bank.feature_names_in_, table.columns)
    assert_array_equal(bank.rank(table, "bee"), bank.models_["bee"].rank(X))
    close(bank.verify(table, "bee"), bank.log_likelihood_ratio(table)[:, 1])
    bank.enroll(table.iloc[:5] + 1.0, "new")
    assert bank.n_features_in_ == 6
    swapped = table[table.columns[::-1]]
    for call in (bank.predict, lambda T: bank.rank(T, "bee"), lambda T: bank.enroll(T, "newer")):
        with pytest.raises(ValueError, match="feature names"):
            call(swapped)


def newcomers(width, seed=11):
    return 0.5 + problem(width, seed=seed)[0][:12]


@pytest.mark.each_value
@TEMPLATES
@SETTINGS
def test_an_enrolled_model_equals_a_separate_fit_at_the_ridge_of_the_bank(
    template, width, settings
):
    if settings == {"covariance": "resubstitution"}:
        settings = settings | {"calibrate": False}  # folds of the calibration have other ridges
    X, y = problem(width)
    bank = per_label(clone(template).set_params(**settings)).fit(X, y)
    ridge, clusters, centroids = bank.ridge_, bank.clusters_, bank.centroids_
    new = newcomers(width)
    assert bank.enroll(new, "cow") is bank
    assert bank.ridge_ == ridge
    assert bank.classes_.tolist() == list(bank.models_) == ["ant", "bee", "cat", "cow", "dog"]
    rows, names = np.concatenate([X, new]), np.append(y, ["cow"] * len(new))
    nearest = ((new[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    assert_array_equal(bank.clusters_, np.concatenate([clusters, nearest]))
    alike = {"regularization": relative(bank, rows)}
    if isinstance(template, KernelPCSDA) and bank.kernel_.gamma is not None:
        alike["gamma"] = bank.kernel_.gamma
    alone = clone(bank.estimator).set_params(**alike)
    alone.fit(rows, names == "cow", subclass_labels=bank.clusters_)
    assert_same_model(bank.models_["cow"], alone, X)
    close(bank.log_likelihood_ratio(X)[:, 3], alone.log_likelihood_ratio(X))


@pytest.mark.parametrize("template", [LINEAR, CSDA()], ids=["shared", "separate"])
def test_a_bank_follows_changes_of_models_that_it_scores_with(template):
    X, y = problem()
    bank = per_label(template).fit(X, y)
    before = bank.log_likelihood_ratio(X)
    bank.models_["bee"].recalibrate(X, y != "bee")
    after = bank.models_["bee"].log_likelihood_ratio(X)
    assert np.abs(after - before[:, 1]).max() > 0.1
    close(bank.log_likelihood_ratio(X)[:, 1], after)
    assert_array_equal(np.delete(bank.log_likelihood_ratio(X), 1, 1), np.delete(before, 1, 1))


@TEMPLATES
def test_other_models_stay_until_a_refresh(template, width):
    X, y = problem(width)
    bank = per_label(template).fit(X, y)
    old, before = dict(bank.models_), bank.log_likelihood_ratio(X)
    new = newcomers(width)
    bank.enroll(new, "cow")
    assert all(bank.models_[label] is old[label] for label in old)
    close(bank.log_likelihood_ratio(X)[:, [0, 1, 2, 4]], before)
    assert bank.refresh() is bank
    rows, names = np.concatenate([X, new]), np.append(y, ["cow"] * len(new))
    alike = {"regularization": relative(bank, rows)}
    if isinstance(template, KernelPCSDA) and bank.kernel_.gamma is not None:
        alike["gamma"] = bank.kernel_.gamma
    assert np.abs(bank.log_likelihood_ratio(X)[:, [0, 1, 2, 4]] - before).max() > 1e-3
    for label, model in bank.models_.items():
        assert_same_model(model, separate(bank, label, rows, names, **alike), X)


@pytest.mark.each_value
@TEMPLATES
@pytest.mark.parametrize("subclasses", ["shared", "per-class"])
@pytest.mark.parametrize("label", ["aaa", "bug", "zebra, a long name"])
def test_enrolling_and_removing_returns_the_old_bank(template, width, subclasses, label):
    X, y = problem(width)
    bank = per_label(template, subclasses=subclasses).fit(X, y)
    old, clusters = dict(bank.models_), bank.clusters_.copy()
    before, names = bank.decision_function(X), bank.identify(X, 0.0, "?")
    bank.enroll(newcomers(width), label)
    assert bank.decision_function(X).shape == (len(X), 5)
    bank.remove(label)
    assert_array_equal(bank.classes_, ["ant", "bee", "cat", "dog"])
    assert bank.models_ == old
    assert_array_equal(bank.clusters_, clusters)
    assert_array_equal(bank.decision_function(X), before)
    assert_array_equal(bank.identify(X, 0.0, "?"), names)
    bank.refresh()
    assert_allclose(bank.decision_function(X), before, rtol=1e-9, atol=1e-9)


def test_removing_and_re_enrolling_restores_the_model():
    X, y = problem()
    bank = per_label(LINEAR).fit(X, y)
    before = bank.models_["bee"].log_likelihood_ratio(X)
    bank.remove("bee")
    assert bank.log_likelihood_ratio(X).shape == (len(X), 3)
    bank.enroll(X[y == "bee"], "bee")
    close(bank.models_["bee"].log_likelihood_ratio(X), before)


def test_separately_fitted_labels_are_enrolled_and_removed_too():
    X, y = problem()
    bank = per_label(CSDA(random_state=0)).fit(X, y)
    before, new = bank.log_likelihood_ratio(X), newcomers(6)
    bank.enroll(new, "cow")
    rows, names = np.concatenate([X, new]), np.append(y, ["cow"] * len(new))
    alone = CSDA(random_state=0).fit(rows, names == "cow")
    assert_array_equal(bank.log_likelihood_ratio(X)[:, 3], alone.log_likelihood_ratio(X))
    assert_array_equal(bank.remove("cow").log_likelihood_ratio(X), before)


def test_one_row_can_be_enrolled():
    X, y = problem()
    bank = per_label(LINEAR).fit(X, y)
    with pytest.warns(
        UserWarning, match="label 'new' has one row, which says nothing about its spread"
    ):
        bank.enroll(X[:1] + 8, "new")
    assert bank.predict(X[:1] + 8) == "new"
    assert np.isfinite(bank.log_likelihood_ratio(X)).all()


def test_a_label_that_cannot_be_fitted_leaves_the_bank_unchanged():
    X, y = problem(spread=6.0)
    template = PCSDA(n_subclasses=4, n_components=3, random_state=0)
    bank = per_label(template).fit(X, y).remove("dog")
    before, rows = bank.log_likelihood_ratio(X), len(bank.clusters_)
    bank.models_["bee"]
    wider = clone(template).set_params(n_components=4)
    bank._labels_.settings = replace(bank._labels_.settings, template=wider)
    with pytest.raises(ValueError, match="n_components=4 must be at most 3"):
        bank.enroll(X[y == "dog"], "dog")
    assert_array_equal(bank.classes_, ["ant", "bee", "cat"])
    assert len(bank.clusters_) == rows
    assert_array_equal(bank.log_likelihood_ratio(X), before)


@pytest.fixture(scope="module")
def animals():
    return per_label(LINEAR).fit(*problem())


LISTED = r"\['ant', 'bee', 'cat', 'dog'\]"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b, X: b.remove("cow"), f"label 'cow' is not in the bank; enroll it .* {LISTED}"),
        (lambda b, X: b.verify(X, "cow"), f"label 'cow' is not in the bank; .* one of {LISTED}"),
        (lambda b, X: b.verify(X, 3), f"label 3 is not in the bank; .* one of {LISTED}"),
        (
            lambda b, X: b.verify(X[:3], ["ant", None, "bee"]),
            f"label None is not in the bank; .* one of {LISTED}",
        ),
        (lambda b, X: b.rank(X, "cow"), "label 'cow' is not in the bank"),
        (lambda b, X: b.rank(X, ["ant"]), r"label \['ant'\] is not in the bank; .* one of"),
        (lambda b, X: b.update(X, np.array(["ant"])), r"label array.* is not in the bank"),
        (
            lambda b, X: b.enroll(X[:2], ["new", "old"]),
            r"label \['new', 'old'\] has a different type from the bank's labels",
        ),
        (
            lambda b, X: b.enroll(X, np.str_("bee")),
            "the bank already has a label 'bee'; remove it first to enroll it again",
        ),
        (
            lambda b, X: b.verify(X, ["ant", "bee"]),
            r"claimed has shape \(2,\) but must be one label, or one for each of the 90 rows",
        ),
        (lambda b, X: b.predict(X[:, :3]), "X has 3 features, but VerifierBank is expecting 6"),
        (lambda b, X: b.enroll(X[:, :3], "new"), "X has 3 features"),
        (lambda b, X: b.enroll(np.full((2, 6), np.nan), "new"), "Input X contains NaN"),
        (lambda b, X: b.predict(np.full((2, 6), np.inf)), "Input X contains infinity"),
        (lambda b, X: b.rank(X, "bee", "name"), "by='name' must be one of 'distance', 'likelihoo"),
    ],
)
def test_refusals_say_what_to_do_and_change_nothing(animals, call, message):
    X, _ = problem()
    before = dict(vars(animals))
    with pytest.raises(ValueError, match=message):
        call(animals, X)
    assert all(vars(animals)[name] is value for name, value in before.items())


@TWO
def test_rows_too_large_to_project_are_refused(template):
    X, y = problem()
    tiny = clone(template).set_params(**({"kernel": "linear"} if template is KERNEL else {}))
    bank = per_label(tiny).fit(1e-6 * X, y)
    far = np.vstack([1e-6 * X[:2], np.full((1, 6), 1.7e308)])
    with pytest.raises(ValueError, match="row 2 of X is too large to project; bring X to the fit"):
        bank.predict(far)


@pytest.mark.parametrize("labels", [str, object], ids=["text", "objects"])
def test_a_label_of_another_type_is_refused(labels):
    X, y = problem()
    bank = per_label(LINEAR).fit(X, y.astype(labels))
    with pytest.raises(
        ValueError, match=f"label 5 has a different type .* {LISTED}; use a label of"
    ):
        bank.enroll(X[:5], 5)
    assert len(bank.clusters_) == len(X)


@pytest.mark.parametrize("label", ["five", 2.5])
def test_a_string_among_numeric_labels_is_refused(label):
    X, y = problem()
    bank = per_label(LINEAR).fit(X, np.unique(y, return_inverse=True)[1])
    message = f"label {label!r} has a different type from the bank's labels, [0, 1, 2, 3]; use"
    with pytest.raises(ValueError, match=re.escape(message)):
        bank.enroll(X[:5], label)


@pytest.mark.parametrize("dtype", ["u1", "u8", "i2"])
@pytest.mark.parametrize("label", [100, np.int64(101), 70000])
def test_integer_labels_are_of_one_type(dtype, label):
    X, y = problem()
    bank = per_label(LINEAR).fit(X, np.unique(y, return_inverse=True)[1].astype(dtype))
    assert label in bank.enroll(X[:5] + 9, label).classes_
    assert_array_equal(bank.classes_, [0, 1, 2, 3, label])
    assert bank.classes_.dtype.kind in "iu"


def test_a_bank_does_not_shrink_below_two_labels():
    bank = per_label(LINEAR).fit(*problem(sizes=(30, 25)))
    with pytest.raises(ValueError, match="at least two labels; this would leave one"):
        bank.remove("ant")
    assert_array_equal(bank.classes_, ["ant", "bee"])


def test_long_lists_of_labels_are_shortened():
    X = np.random.default_rng(0).standard_normal((40, 3))
    bank = per_label(PCSDA(n_subclasses=2, random_state=0)).fit(X, np.arange(40) // 2)
    with pytest.raises(ValueError, match=r"\[0, 1, 2, 3, 4, 5, 6, 7, ...\] \(20 labels\)"):
        bank.remove(77)


@pytest.mark.parametrize(
    ("bank", "changes", "message"),
    [
        (VerifierBank(subclasses="mine"), {}, "subclasses='mine' must be one of 'shared', 'per-cl"),
        (
            VerifierBank(),
            {"y": ["a"] * 90},
            r"y has one class only, \['a'\]; a bank needs at least",
        ),
        (VerifierBank(), {"y": np.linspace(0, 1, 90)}, "Unknown label type: continuous"),
        (
            VerifierBank(),
            {"subclass_labels": [1, 2]},
            "subclass_labels has 2 entries but X has 90 rows",
        ),
        (
            VerifierBank(),
            {"subclass_labels": [None] * 2 + ["a"] * 88},
            r"subclass_labels is missing \(NaN or None\) for 2 .* rows; give each",
        ),
        (
            VerifierBank(),
            {"subclass_labels": np.array([1, "a"] * 45, dtype=object)},
            "subclass_labels mixes int and str, which have no common order",
        ),
        (
            VerifierBank(PCSDA(pos_label="ant")),
            {},
            "pos_label='ant' cannot be used in a bank, .* leave it as None",
        ),
        (VerifierBank(PCSDA(pos_label=False)), {}, "pos_label=False cannot be used in a bank"),
        (VerifierBank(PCSDA(regularization=-1)), {}, "regularization=-1 must be a number of at"),
        (VerifierBank(PCSDA(n_subclasses=91)), {}, "n_subclasses=91 must be at most 90"),
        (VerifierBank(PCSDA(n_components=9)), {}, "n_components=9 must be at most [1-6] "),
        (
            VerifierBank(KernelPCSDA(gamma="all", regularization=0)),
            {},
            "regularization=0 leaves the scatter in feature space singular",
        ),
        (VerifierBank(LINEAR), {"X": np.ones((90, 6))}, "n_subclasses=3 must be at most 1"),
        (VerifierBank(), {"X": np.ones((90, 6))}, r"all rows of X are equal \(total variance 0\)"),
        (
            VerifierBank(KernelPCSDA(gamma=0.1)),
            {"X": np.ones((90, 6))},
            r"all rows of X are equal \(total variance 0\)",
        ),
        (
            VerifierBank(KernelPCSDA("poly", gamma=1, degree=1, coef0=0, regularization=0.01)),
            {"X": 1e6 + problem()[0]},
            "too coarse for regularization=0.01; centre X first",
        ),
    ],
)
def test_bad_input_is_refused_with_a_remedy(bank, changes, message):
    X, y = problem()
    with pytest.raises(ValueError, match=message):
        bank.fit(**({"X": X, "y": y} | changes))


def test_a_singular_scatter_without_a_ridge_is_refused():
    X, y = problem()
    X = np.column_stack([X, X[:, 0]])
    message = "the within-class scatter of 7 dimensions is singular at regularization=0"
    with pytest.raises(ValueError, match=message):
        per_label(PCSDA(regularization=0, n_subclasses=2)).fit(X, y)


def test_wide_rows_without_a_ridge_have_axes_but_no_scores():
    X, y = problem(130)
    bank = per_label(PCSDA(regularization=0, n_subclasses=2, random_state=0)).fit(X, y)
    for label, model in bank.models_.items():
        close(model.transform(X + 1), separate(bank, label, X, y).transform(X + 1))
        spread = np.abs(model.transform(X[y == label])).max()  # of what rounding leaves
        assert spread < 1e-9 * np.abs(model.transform(X[y != label])).max()
    with pytest.raises(ValueError, match="the positive class is a point in the subspace"):
        bank.log_likelihood_ratio(X)


@pytest.mark.parametrize(
    "method", ["predict", "log_likelihood_ratio", "identify", "refresh", "enroll", "remove", "rank"]
)
def test_an_unfitted_bank_says_so(method):
    given = {"refresh": (), "enroll": ([[1.0]], "a"), "remove": ("a",), "rank": ([[1.0]], "a")}
    with pytest.raises(ValueError, match="is not fitted yet"):
        getattr(VerifierBank(), method)(*given.get(method, ([[1.0]],)))


@pytest.mark.each_value
@pytest.mark.parametrize("template", [LINEAR, KERNEL, CSDA(random_state=0)], ids=str)
@pytest.mark.parametrize("subclasses", ["shared", "per-class"])
def test_a_pickled_bank_answers_and_enrols_alike(template, subclasses):
    X, y = problem()
    bank = per_label(template, subclasses=subclasses).fit(X, y).enroll(newcomers(6), "cow")
    packed = pickle.dumps(bank)
    assert len(packed) < 8 * len(bank.clusters_) ** 2  # no matrix of all rows with all rows
    copy = pickle.loads(packed)
    assert_array_equal(copy.log_likelihood_ratio(X), bank.log_likelihood_ratio(X))
    for one in (bank, copy):
        one.enroll(newcomers(6, seed=12), "new")
    # The copy factorises anew what the bank only updates.
    close(copy.log_likelihood_ratio(X), bank.log_likelihood_ratio(X), 1e-10)


@pytest.mark.each_value
@pytest.mark.parametrize("template", [LINEAR, KERNEL], ids=str)
@pytest.mark.parametrize("width", [6, 90], ids=["tall", "wide"])
def test_adding_and_removing_labels_needs_no_new_factorisation(monkeypatch, template, width):
    X, y = problem(width)
    bank = per_label(template).fit(X, y)
    before = bank.log_likelihood_ratio(X)

    def forbidden(*args, **kwargs):
        raise AssertionError("factorised anew")

    for way in ("factor_shared", "of_kernel"):
        monkeypatch.setattr(f"pcsda.estimators.separate.{way}", forbidden)
    bank.enroll(newcomers(width), "cow").remove("cow").remove("bee").enroll(X[y == "bee"], "bee")
    close(bank.log_likelihood_ratio(X), before)
    with pytest.raises(AssertionError, match="factorised anew"):
        bank.refresh()


def test_a_factorisation_an_update_would_spoil_is_rebuilt():
    X, y = problem(6)
    X = X.copy()
    X[y != "bee", 0] *= 1e-9  # only "bee" spreads along the first axis
    X[y == "bee", 0] -= X[y == "bee", 0].mean()
    bank = per_label(PCSDA(n_subclasses=3, regularization=1e-12, random_state=0)).fit(X, y)
    bank.remove("bee")
    assert bank._labels_.factor is None
    alike = per_label(PCSDA(n_subclasses=3, random_state=0)).fit(X, y)
    alike.remove("bee")
    assert alike._labels_.factor is not None


def test_a_clone_keeps_parameters_and_nothing_fitted():
    X, y = problem()
    bank = per_label(LINEAR, subclasses="per-class", n_jobs=2, verbose=True).fit(X, y)
    copy = clone(bank)
    assert not hasattr(copy, "models_")
    assert copy.get_params(deep=False).keys() == bank.get_params(deep=False).keys()
    assert (copy.subclasses, copy.n_jobs, copy.verbose) == ("per-class", 2, True)
    assert copy.get_params()["estimator__n_subclasses"] == 3
    assert_array_equal(copy.fit(X, y).predict_proba(X), bank.predict_proba(X))


def test_fitting_again_forgets_the_first_data():
    X, y = problem()
    bank = per_label(LINEAR).fit(100 * X, y)
    again = bank.fit(X[:60], y[:60])
    fresh = per_label(LINEAR).fit(X[:60], y[:60])
    assert again.ridge_ == fresh.ridge_
    assert_array_equal(again.log_likelihood_ratio(X), fresh.log_likelihood_ratio(X))


# With a seed: without one, k-means may divide the rows of two fits differently.
@lean(parametrize_with_checks([VerifierBank(PCSDA(random_state=0))]))
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.more
@parametrize_with_checks(
    [
        VerifierBank(PCSDA(random_state=0), subclasses="per-class"),
        VerifierBank(PCSDA(random_state=0), calibration="per-label"),
        VerifierBank(KernelPCSDA(gamma="all", random_state=0)),
    ]
)
def test_scikit_learn_checks_pass_with_other_parameters(estimator, check):
    check(estimator)


@in_turn(
    "estimator",
    [
        PCSDA(2, random_state=0),
        PCSDA(2, negatives="marginal", random_state=0),
        KernelPCSDA(n_subclasses=2, gamma="all", random_state=0),
        CSDA(2, random_state=0),
        PCSDACV(
            make_pipeline(NystroemMap(20, random_state=0), PCSDA(random_state=0)),
            n_subclasses=[2],
            n_components=[1],
            regularization=[0.1],
        ),
    ],
    ids=["linear", "marginal", "kernel", "separate", "pipeline"],
)
def test_trials_of_several_samples_equal_the_models(estimator):
    X, y = make_blobs(90, 4, centers=3, cluster_std=4.0, random_state=0)
    bank = per_label(estimator).fit(X, y)
    trials = np.array([f"t{i}" for i in np.random.default_rng(0).permutation(90) // 4])
    found = bank.log_likelihood_ratio(X, trials)
    expected = [bank.models_[label].log_likelihood_ratio(X, trials) for label in (0, 1, 2)]
    assert_allclose(found, np.transpose(expected), rtol=1e-8, atol=1e-8)
    best = found.argmax(axis=1)
    known = found.max(axis=1) >= 1.0
    assert_array_equal(
        bank.identify(X, 1.0, -1, trials=trials), np.where(known, bank.classes_[best], -1)
    )
    names, sets = np.unique(trials, return_inverse=True)
    claims = np.arange(len(names)) % 3
    ratios = bank.verify(X, claims[sets], trials=trials)
    assert_allclose(ratios, found[np.arange(len(names)), claims], rtol=1e-8, atol=1e-8)


def test_bad_trials_are_refused():
    X, y = make_blobs(30, 4, centers=2, random_state=0)
    bank = per_label(PCSDA(1, random_state=0)).fit(X, y)
    with pytest.raises(ValueError, match=r"^trials has shape \(3,\) but must have one entry for e"):
        bank.log_likelihood_ratio(X, [1, 2, 3])
    with pytest.raises(ValueError, match=r"^trials mixes names of the types \['int', 'str'\]"):
        bank.identify(X, trials=np.array([1, "a"] * 15, dtype=object))
    trials = np.arange(30) // 2
    claims = np.where(np.arange(30) == 7, 1, 0)
    with pytest.raises(ValueError, match=r"^trial 3 claims both 0 and 1; a trial has one cla"):
        bank.verify(X, claims, trials=trials)


def test_rows_added_one_by_one_are_copied_seldom_and_change_no_earlier_ones():
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 4
    none = BankRows(X, y, y, np.zeros(40), None)
    one = none.appended(X[:1] + 9, 1, y[:1], 0)
    two = one.appended(X[1:2] + 9, 1, y[:1], 0)
    assert np.shares_memory(one.X, two.X)
    fork = one.appended(X[2:3] + 9, 1, y[:1], 0)  # as after a change that was refused
    assert not np.shares_memory(fork.X, two.X)
    assert_array_equal(two.X, np.concatenate([X, X[:2] + 9]))
    assert_array_equal(fork.X, np.concatenate([X, X[:1] + 9, X[2:3] + 9]))
    many = two
    for row in range(30):
        many = many.appended(X[row : row + 1] - 9, 2, y[:1], 0)
    assert_array_equal(many.X, np.concatenate([X, X[:2] + 9, X[:30] - 9]))
    fewer = many.kept(np.arange(len(many.X)) % 3 > 0)
    assert_array_equal(fewer.X, many.X[np.arange(len(many.X)) % 3 > 0])
    assert np.shares_memory(fewer.X, fewer.appended(X[:1] + 5, 1, y[:1], 0).X)


def test_removing_rows_copies_none_until_all_are_needed():
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 4
    stay = y != 1
    every = BankRows(X, y, y, np.zeros(40), None)
    fewer = every.kept(stay)
    more = fewer.appended(X[:2] + 9, 2, y[:2], 0).appended(X[2:3] + 9, 2, y[:1], 0)
    assert fewer.held is X
    assert "_copied" not in vars(fewer)
    assert fewer.find(X[y == 1]) is None  # removed rows may be added again
    assert fewer.find(X[[1, 4]]) == (1, np.flatnonzero(stay).tolist().index(4))
    assert more.find(X[2:3] + 9) == (0, 32)
    expected = np.concatenate([X[stay], X[:3] + 9])
    assert_array_equal(more.take(np.arange(33)), expected)
    assert_array_equal(more.X, expected)
    assert_array_equal(every.X, X)
    last = more.kept(more.labels == 2)
    assert_array_equal(last.X, np.concatenate([X[y == 2], X[:3] + 9]))
    assert last.places is None  # most rows are gone, so their memory is given back


def test_a_refresh_gives_back_the_memory_of_removed_rows():
    X, y = make_blobs(60, 4, centers=12, random_state=0)
    of_clusters = VerifierBank(PCSDA(n_subclasses=3, random_state=0)).fit(X, y).remove(2)
    bank = VerifierBank(PCSDA(random_state=0)).fit(X, y).remove(2)
    assert len(bank._rows.held) == 60
    for one in (of_clusters, bank.refresh()):  # clusters need the other rows in one array
        assert len(one._rows.held) == 55
        assert_array_equal(one._rows.X, X[y != 2])

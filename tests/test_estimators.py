"""Laws of CSDA and PCSDA as estimators: what holds for any data."""

import pickle
import re
from itertools import pairwise

import numpy as np
import pytest
from factories import in_turn, make_rows, scores_by_scipy, tails_of, with_heavy_tails
from factories import labelled as problem
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg, sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.cluster import AgglomerativeClustering
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler

from pcsda import CSDA, PCSDA, KernelCSDA, KernelPCSDA, make_pipeline
from pcsda.core.calibration import Calibration
from pcsda.datasets import make_class_specific
from pcsda.metrics import cllr
from pcsda.validation import takes_plain

SIZES = [30, 25, 40, 20]
PLAIN = {"covariance": "resubstitution", "calibrate": False}

TARGETS = ("labels", "raw_labels", "spectral")
SETTINGS = [
    PCSDA(random_state=0),
    PCSDA(n_components=2, negatives="marginal", random_state=0),
    PCSDA.published(3, random_state=0),
    PCSDA(solver="eigen", shrinkage=0, random_state=0),
    PCSDA(solver="spectral", priors="equal", random_state=0),
    PCSDA(solver="lsqr", n_components=1, random_state=0),
    PCSDA(balance="resampled", random_state=0),
    CSDA(random_state=0),
    CSDA(n_components=2, solver="lowrank", random_state=0),
    CSDA(n_components=3, solver="labels", random_state=0),
    CSDA(n_components=3, solver="raw_labels", random_state=0),
    CSDA.published(2, solver="trace_ratio", random_state=0),
    CSDA(n_components=2, reference="optimal", random_state=0),
]


def over(estimators):
    """Run a test on all estimators; in `make test`, each of them runs a third of the tests."""
    return in_turn("estimator", estimators, ids=lambda e: " ".join(str(e).split()))


EVERY = over(SETTINGS)
# The directions of these depend on how many there are.
TRACE_RATIO = [e for e in SETTINGS if "trace_ratio" in str(e) or "optimal" in str(e)]
NESTED = over([e for e in SETTINGS if e.solver not in TARGETS and e not in TRACE_RATIO])
# The random draws of these are tied to rows.
UNDRAWN = over(
    [e for e in SETTINGS if e.solver not in TARGETS and getattr(e, "balance", "") != "resampled"]
)
BOTH = over([PCSDA(random_state=0), CSDA(random_state=0)])
PCSDA_SOLVERS = ["cholesky", "eigen", "spectral", "lsqr"]
CSDA_SOLVERS = ["eigen", "labels", "lowrank", "raw_labels", "spectral", "trace_ratio"]
TALL_AND_WIDE = pytest.mark.parametrize("width", [6, 200], ids=["tall", "wide"])


def fit(estimator, X, y, groups=None, **params):
    """Fit a clone; CSDA takes no subclasses."""
    if groups is not None and isinstance(estimator, PCSDA):
        params["subclass_labels"] = groups
    return clone(estimator).fit(X, y, **params)


def odds_of(prior):
    return np.log(prior[1] / prior[0])


# --- one subspace, one score, many faces ---------------------------------------------------------


@EVERY
def test_scores_are_densities_of_the_transformed_rows(estimator):
    X, y, groups = problem()
    model = fit(estimator, X, y, groups)
    z, base = model.transform(X), model.density_.base
    assert z.shape == (len(X), model.n_components_)
    assert model.components_.shape == (model.n_components_, X.shape[1])
    assert_allclose(z, (X - model.positive_mean_) @ model.components_.T, rtol=1e-9, atol=1e-9)
    if getattr(model, "negatives", "marginal") != "marginal":
        shares = model.subclass_counts_ / model.subclass_counts_.sum()
        assert_allclose(base.centres, model.transform(model.subclass_means_), atol=1e-9)
        assert_allclose(base.log_weights, np.log(shares))
    expected = scores_by_scipy(model, z)
    assert_allclose(model.log_likelihood_ratio(X), expected, rtol=1e-8, atol=1e-8)
    decided = model.classes_[(expected + odds_of(model.class_prior_) >= 0).astype(int)]
    assert_array_equal(model.predict(X), decided)
    away = z - getattr(model, "reference_", 0.0)
    assert_allclose(model.score_samples(X), -np.linalg.norm(away, axis=1), rtol=1e-12)


@NESTED
@pytest.mark.parametrize("wanted", [1, 2])
def test_fewer_components_keep_the_leading_axes(estimator, wanted):
    X, y, groups = problem()
    every = fit(clone(estimator).set_params(n_components=3), X, y, groups)
    few = fit(clone(estimator).set_params(n_components=wanted), X, y, groups)
    assert few.transform(X).shape == (len(X), wanted)
    assert few.density_.base.positive.shape == (wanted, wanted)
    assert_allclose(few.transform(X), every.transform(X)[:, :wanted], rtol=1e-6, atol=1e-8)
    assert_allclose(few.eigenvalues_, every.eigenvalues_[:wanted], rtol=1e-6)
    assert np.abs(few.decision_function(X) - every.decision_function(X)).max() > 1e-3


@pytest.mark.each_value
@EVERY
@pytest.mark.parametrize(
    ("labels", "pos_label"),
    [
        ([0, 1], None),
        ([0, 1], 0),
        ([-1, 1], -1),
        (["yes", "no"], None),
        (["no", "yes"], "no"),
        ([False, True], None),
        ([True, False], False),
    ],
)
def test_probabilities_decision_and_prediction_agree_for_any_labels(estimator, labels, pos_label):
    X, y, groups = problem()
    named = np.array(labels)[y]
    groups = groups + np.arange(len(X)) % 3  # either class has three subclasses, if it is the rest
    model = fit(clone(estimator).set_params(pos_label=pos_label), X, named, groups)
    assert_array_equal(model.classes_, np.unique(labels))
    decision, probability = model.decision_function(X), model.predict_proba(X)
    assert_allclose(probability.sum(axis=1), 1, rtol=1e-12)
    # Numbers below 1e-300 have few digits or none, and may be returned as zero.
    assert np.all(probability > 0)
    assert_allclose(probability[:, 1], expit(decision), rtol=1e-12, atol=1e-300)
    assert_allclose(np.exp(model.predict_log_proba(X)), probability, rtol=1e-7, atol=1e-300)
    assert_array_equal(model.predict(X), model.classes_[(decision >= 0).astype(int)])
    assert_array_equal(model.predict(X), model.classes_[(probability[:, 1] >= 0.5).astype(int)])
    interest = model.classes_[1] if pos_label is None else pos_label
    sign = 1 if interest == model.classes_[1] else -1
    ratio = sign * model.log_likelihood_ratio(X) + odds_of(model.class_prior_)
    assert_allclose(decision, ratio, rtol=1e-12, atol=1e-12)
    assert model.predict(X).dtype == named.dtype


# Labels of three groups, the class of interest, and what `classes_` is then.
ONE_OF_MANY = {
    "numbers": ([3, 7, 5], 3, [-1, 3]),
    "negative": ([3, -1, -4], 3, [-5, 3]),
    "floats": ([4.0, 2.0, 1.0], 4, [-1.0, 4.0]),
    "unsigned": (np.array([2, 0, 1], dtype=np.uint8), 2, [-1, 2]),
    "texts": (["oak", "ash", "elm"], "oak", ["not oak", "oak"]),
    "first text": (["ash", "oak", "elm"], "ash", ["not ash", "ash"]),
    "taken": (["ash", "oak", "not ash"], "ash", ["not not ash", "ash"]),
    "objects": (np.array(["oak", "a", "b"], dtype=object), "oak", ["not oak", "oak"]),
}


@pytest.mark.each_value
@pytest.mark.parametrize("make", [PCSDA, CSDA, KernelPCSDA, KernelCSDA])
@pytest.mark.parametrize(("labels", "pos_label", "classes"), ONE_OF_MANY.values(), ids=ONE_OF_MANY)
def test_all_labels_but_pos_label_are_negatives(make, labels, pos_label, classes):
    X, y, groups = problem()
    groups = np.minimum(groups, 2)
    many = np.asarray(labels)[groups]
    model = make(pos_label=pos_label, random_state=0).fit(X, many)
    expected = make(random_state=0).fit(X, y)
    assert model.classes_.tolist() == classes
    for method in ("log_likelihood_ratio", "decision_function", "predict_proba", "transform"):
        assert_array_equal(getattr(model, method)(X), getattr(expected, method)(X))
    assert_array_equal(model.predict(X) == pos_label, expected.predict(X) == 1)
    assert {*model.predict(X).tolist()} == {*classes}
    assert model.score(X, many) == expected.score(X, y) > 0.8
    weights = np.linspace(0, 1, len(X))
    assert_allclose(model.score(X, many, weights), expected.score(X, y, weights), rtol=1e-12)


@pytest.mark.parametrize(("labels", "pos_label", "classes"), ONE_OF_MANY.values(), ids=ONE_OF_MANY)
def test_streams_and_recalibration_accept_many_labels(labels, pos_label, classes):
    X, y, groups = problem()
    many = np.asarray(labels)[np.minimum(groups, 2)]
    model = PCSDA(2, pos_label=pos_label, random_state=0)
    expected = PCSDA(2, random_state=0)
    for rows in np.array_split(np.random.default_rng(0).permutation(len(X)), 3):
        model.partial_fit(X[rows], many[rows], classes=np.unique(many))
        expected.partial_fit(X[rows], y[rows], classes=[0, 1])
    for one, target in ((model, many), (expected, y)):
        one.recalibrate(X, target)
    assert model.classes_.tolist() == classes
    assert_array_equal(model.decision_function(X), expected.decision_function(X))


def test_a_stream_begun_with_two_labels_refuses_others():
    X, y, _ = problem()
    model = PCSDA(2, pos_label=3).partial_fit(X, np.where(y, 3, 5))
    with pytest.raises(ValueError, match=r"y has labels \[7\] that are not among classes \[3, 5\]"):
        model.partial_fit(X, np.where(y, 3, 7))


@pytest.mark.parametrize("make", [PCSDA, KernelPCSDA, CSDA])
def test_a_common_class_of_interest_that_nobody_named_is_reported(make):
    """With "anna" and "other" the class of interest is "other", and nothing said so."""
    X, few = make_rows(SIZES, 5)[0], np.arange(sum(SIZES)) < 10
    named = np.where(few, "anna", "other")
    with pytest.warns(UserWarning, match=r"is 'other', .* 105 of 115 rows; .* pos_label='anna'"):
        make(random_state=0).fit(X, named)
    make(random_state=0, pos_label="other").fit(X, named)
    make(random_state=0, pos_label="anna").fit(X, named)
    make(random_state=0).fit(X, np.where(few, "other", "anna"))
    make(random_state=0).fit(X, ~few)  # any warning is an error


@pytest.mark.parametrize("pos_label", [0, 1])
def test_a_tie_goes_to_the_second_class(pos_label):
    X, y, _ = problem()
    model = PCSDA(priors="equal", pos_label=pos_label).fit(X, y)
    model.calibration_ = model.calibration_.then(0.0, 0.0)
    assert np.all(model.decision_function(X) == 0)
    assert np.all(model.predict(X) == 1)


@EVERY
def test_pos_label_names_the_class_of_interest_whatever_its_value(estimator):
    X, y, groups = problem()
    last = fit(estimator, X, y, groups)
    first = fit(clone(estimator).set_params(pos_label="a"), X, np.where(y == 1, "a", "b"), groups)
    assert_array_equal(first.transform(X), last.transform(X))
    assert_array_equal(first.log_likelihood_ratio(X), last.log_likelihood_ratio(X))
    assert_array_equal(first.score_samples(X), last.score_samples(X))
    assert_array_equal(first.rank(X), last.rank(X))
    assert_allclose(first.class_prior_, last.class_prior_[::-1])
    assert_allclose(first.decision_function(X), -last.decision_function(X), rtol=1e-12, atol=1e-12)
    assert_allclose(first.predict_proba(X), last.predict_proba(X)[:, ::-1], rtol=1e-12)


@pytest.mark.each_value
@EVERY
@pytest.mark.parametrize("pos_label", [0, 1])
def test_priors_shift_the_decision_by_their_log_odds_and_leave_the_ratio_alone(
    estimator, pos_label
):
    X, y, groups = problem()
    n_p = np.mean(y == pos_label)
    empirical = np.array([n_p, 1 - n_p]) if pos_label == 0 else np.array([1 - n_p, n_p])
    groups = groups + np.arange(len(X)) % 3  # either class has three subclasses, if it is the rest
    expected = {
        "empirical": empirical,
        "equal": np.array([0.5, 0.5]),
        (0.9, 0.1): np.array([0.9, 0.1]),
    }
    models = {
        priors: fit(clone(estimator).set_params(priors=priors, pos_label=pos_label), X, y, groups)
        for priors in expected
    }
    ratio = models["equal"].log_likelihood_ratio(X)
    decision = models["equal"].decision_function(X)
    assert_array_equal(decision, ratio if pos_label == 1 else -ratio)
    for priors, model in models.items():
        assert_allclose(model.class_prior_, expected[priors], rtol=1e-12)
        assert_array_equal(model.log_likelihood_ratio(X), ratio)
        shift = model.decision_function(X) - decision
        assert_allclose(shift, odds_of(expected[priors]), rtol=1e-9, atol=1e-9)


def test_empirical_priors_count_weights():
    X, y, groups = problem()
    weights = np.where(y == 1, 3.0, 0.5)
    for model in (PCSDA(**PLAIN), CSDA(calibrate=False)):
        fitted = fit(model, X, y, groups, sample_weight=weights)
        share = 3 * SIZES[0] / (3 * SIZES[0] + 0.5 * sum(SIZES[1:]))
        assert_allclose(fitted.class_prior_, [1 - share, share])


def test_empirical_priors_count_samples_not_resampled_draws():
    X, y, groups = problem(sizes=[4, 3, 2])
    model = PCSDA(balance="resampled", random_state=0, **PLAIN)
    model.fit(X, y, subclass_labels=groups)
    assert_allclose(model.class_prior_, [5 / 9, 4 / 9])
    assert_allclose(model.subclass_counts_, [2.5, 2.5])


@EVERY
def test_rank_puts_the_nearest_or_likeliest_first(estimator):
    X, y, groups = problem()
    model = fit(estimator, X, y, groups)
    by_distance, by_likelihood = (model.rank(X, by=by) for by in ("distance", "likelihood"))
    assert sorted(by_distance) == sorted(by_likelihood) == list(range(len(X)))
    away = model.transform(X) - getattr(model, "reference_", 0.0)
    assert np.all(np.diff(np.linalg.norm(away[by_distance], axis=1)) >= 0)
    assert np.all(np.diff(model.log_likelihood_ratio(X)[by_likelihood]) <= 0)
    n_positive = y.sum()
    assert y[by_likelihood[:n_positive]].mean() > 0.7 > y[by_likelihood[n_positive:]].mean() + 0.4


@EVERY
def test_models_rank_by_likelihood_and_published_ones_by_distance(estimator):
    X, y, groups = problem()
    model = fit(estimator, X, y, groups)
    by_distance, by_likelihood = (model.rank(X, by=by) for by in ("distance", "likelihood"))
    assert not np.array_equal(by_distance, by_likelihood)
    published = not model.calibrate and model.shrinkage == 0
    published &= getattr(model, "negatives", "marginal") == "marginal"
    published &= getattr(model, "covariance", "resubstitution") == "resubstitution"
    assert_array_equal(model.rank(X), by_distance if published else by_likelihood)


@pytest.mark.parametrize("make", [PCSDA, CSDA, KernelPCSDA, KernelCSDA])
def test_published_models_rank_as_the_paper_does_at_any_ridge(make):
    X, y, _ = problem()
    given = {"n_subclasses": 3} if hasattr(make(), "n_subclasses") else {"n_components": 3}
    for model in (make.published(**given), make.published(**given, regularization=0.5)):
        model.set_params(random_state=0).fit(X, y)
        assert_array_equal(model.rank(X), np.argsort(-model.score_samples(X), kind="stable"))
        assert not np.array_equal(model.rank(X), model.rank(X, by="likelihood"))


def test_equal_rows_keep_their_order_in_a_rank():
    X, y, _ = problem()
    twice = np.vstack([X[:5], X[:5]])
    order = PCSDA(random_state=0).fit(X, y).rank(twice).tolist()
    assert all(order.index(i) + 1 == order.index(i + 5) for i in range(5))


# --- several samples of one trial ----------------------------------------------------------------


@EVERY
def test_a_trial_of_one_sample_scores_as_the_sample(estimator):
    X, y, groups = problem()
    model = fit(estimator, X, y, groups)
    found = model.log_likelihood_ratio(X, trials=np.arange(len(X)))
    assert_allclose(found, model.log_likelihood_ratio(X), rtol=1e-8, atol=1e-8)


@EVERY
def test_trials_are_returned_in_name_order(estimator):
    X, y, groups = problem()
    model = fit(estimator, X, y, groups)
    trials = np.array(["m", "a", "z", "a", "m", "z", "a", "k"])
    found = model.log_likelihood_ratio(X[:8], trials=trials)
    assert found.shape == (4,)
    each = [
        model.log_likelihood_ratio(X[:8][trials == name], trials=trials[trials == name])[0]
        for name in ["a", "k", "m", "z"]
    ]
    assert_allclose(found, each, rtol=1e-9)
    order = np.random.default_rng(0).permutation(8)
    again = model.log_likelihood_ratio(X[:8][order], trials=trials[order].tolist())
    assert_allclose(again, found, rtol=1e-9)


@pytest.mark.parametrize("negatives", ["blend", "mixture"])
def test_samples_of_a_trial_share_one_subclass_of_the_mixture(negatives):
    X, y, groups = problem()
    model = PCSDA(calibrate=False, negatives=negatives).fit(X, y, subclass_labels=groups)
    expected = scores_by_scipy(model, model.transform(X[:3]), np.zeros(3, dtype=int))
    found = model.log_likelihood_ratio(X[:3], trials=[7, 7, 7])
    assert_allclose(found, expected, rtol=1e-9)
    assert abs(found[0] - model.log_likelihood_ratio(X[:3]).sum()) > 0.1


@pytest.mark.parametrize("negatives", ["blend", "mixture"])
def test_heavy_tails_agree_across_all_methods(negatives):
    X, y, groups = problem()
    X = with_heavy_tails(X, np.minimum(groups, 1))  # seen as one cloud, too
    model = PCSDA(negatives=negatives).fit(X, y, subclass_labels=groups)
    tails = tails_of(model.density_)
    assert np.isfinite(tails).all()
    assert len(tails) == (2 if negatives == "blend" else 1)
    expected = scores_by_scipy(model, model.transform(X))
    found = model.log_likelihood_ratio(X)
    assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert_allclose(model.fast_scorer()(X), found, rtol=1e-9, atol=1e-9)
    assert_allclose(model.fast_scorer()(X[3]), found[3], rtol=1e-9)
    assert_allclose(model.log_likelihood_ratio(X, trials=np.arange(len(X))), found, atol=1e-9)
    why = model.explain(X)
    assert_allclose(why.contributions.sum(axis=1) + why.offset, found, rtol=1e-9, atol=1e-9)


@pytest.mark.each_value
@pytest.mark.parametrize("estimator", [PCSDA(), KernelPCSDA(gamma="all")], ids=["pcsda", "kernel"])
@pytest.mark.parametrize("width", [6, 80])
@pytest.mark.parametrize(
    "sizes",
    [(1, 1), (1, 1, 1), (2, 1, 1), (1, 9, 8), (9, 1), (2, 2, 1), (9, *[1] * 12), (9, 8, 1, 7)],
    ids=str,
)
def test_few_and_singleton_rows_have_finite_scores(estimator, width, sizes):
    X, y, groups = problem(width, sizes=sizes)
    model = clone(estimator).set_params(calibrate=False)
    model.fit(X, y, subclass_labels=groups)
    n_views = 2 if len(sizes) > 2 else 1  # a single subclass is a cloud already
    assert np.isfinite(model.log_likelihood_ratio(X)).all()
    assert model.density_.n_views == n_views
    assert model.calibration_ == Calibration.none(n_views)
    if hasattr(model, "loo_scores_"):  # only a positive that is alone cannot be left out
        assert np.isfinite(model.loo_scores_[(y == 0) | (sizes[0] > 1)]).all()
    known = max(sizes[1:]) > 1
    if not known:  # no row is left out, so there is nothing to fit weights or tails to
        assert np.isinf(tails_of(model.density_)).all()
        model.set_params(calibrate=True).fit(X, y, subclass_labels=groups)
        none = Calibration.none(n_views).limited(sizes[0], sum(sizes[1:]))
        assert (model.calibration_ == none) == (min(np.bincount(y)) == 1)


def test_several_samples_of_a_trial_carry_more_evidence_than_one():
    X, y, groups = problem()
    model = PCSDA(random_state=0).fit(X, y, subclass_labels=groups)
    for label, sign in ((1, 1), (0, -1)):
        rows = X[y == label][:20]
        together = model.log_likelihood_ratio(rows, trials=np.repeat(np.arange(5), 4))
        alone = model.log_likelihood_ratio(rows).reshape(5, 4)
        assert np.all(sign * together > sign * alone.mean(axis=1))


# --- kinds of input ------------------------------------------------------------------------------


@EVERY
def test_float32_in_means_float32_out_near_the_float64_result(estimator):
    X, y, groups = problem()
    exact = fit(estimator, X, y, groups)
    single = fit(estimator, X.astype(np.float32), y, groups)
    for method in (
        "transform",
        "decision_function",
        "predict_proba",
        "predict_log_proba",
        "log_likelihood_ratio",
        "score_samples",
    ):
        found = getattr(single, method)(X.astype(np.float32))
        assert found.dtype == np.float32
        assert_allclose(found, getattr(exact, method)(X), rtol=2e-3, atol=2e-3)
        assert getattr(single, method)(X).dtype == np.float64
    assert single.components_.dtype == np.float32


def as_is(X):
    return X


def read_only(X):
    X = X.copy()
    X.setflags(write=False)
    return X


def strided(X):
    wide = np.full((2 * X.shape[0], 3 * X.shape[1]), np.nan)
    wide[::2, ::3] = X
    return wide[::2, ::3]


def reversed_twice(X):
    return X[::-1].copy()[::-1]


def as_list(X):
    return X.tolist()


def as_frame(X):
    return pytest.importorskip("pandas").DataFrame(X)


def as_objects(X):
    return X.astype(object)


def as_matrix_of_other_endian(X):
    return X.astype(">f8")


FORMS = [
    read_only,
    np.asfortranarray,
    strided,
    reversed_twice,
    as_list,
    as_frame,
    as_objects,
    as_matrix_of_other_endian,
]


@pytest.mark.each_value
@EVERY
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_every_container_of_the_same_numbers_gives_the_same_answer(estimator, form):
    X, y, groups = problem()
    expected = fit(estimator, X, y, groups)
    given = form(X)
    model = fit(estimator, given, y, groups)
    # Another memory layout may add in another order.
    for method in ("transform", "decision_function", "predict_proba"):
        found, wanted = getattr(model, method)(given), getattr(expected, method)(X)
        assert_allclose(found, wanted, rtol=1e-7, atol=1e-9)


@EVERY
def test_memory_mapped_rows_give_the_same_answer(estimator, tmp_path):
    X, y, groups = problem()
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    model, expected = fit(estimator, mapped, y, groups), fit(estimator, X, y, groups)
    assert_array_equal(model.decision_function(mapped), expected.decision_function(X))


@BOTH
@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.int64, np.uint8, bool])
def test_integers_and_half_precision_are_exact(estimator, dtype):
    X, y, _ = problem()
    given = (X * 10 > 0) if dtype is bool else (10 * X + 100).astype(dtype)
    model = clone(estimator).fit(given, y)
    exact = clone(estimator).fit(given.astype(np.float64), y)
    assert_array_equal(model.decision_function(given), exact.decision_function(given.astype(float)))
    assert model.transform(given).dtype == np.float64


@pytest.mark.each_value
@EVERY
@TALL_AND_WIDE
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_inputs_are_never_modified(estimator, width, dtype):
    X, y, groups = problem(width)
    X = X.astype(dtype)
    weights = np.random.default_rng(0).uniform(0.5, 2, len(X))
    given = (X, y, groups, weights)
    before = [array.copy() for array in given]
    model = fit(estimator, X, y, groups, sample_weight=weights)
    for method in ("transform", "predict", "predict_proba", "rank", "score_samples"):
        getattr(model, method)(X)
    model.log_likelihood_ratio(X, trials=groups)
    model.recalibrate(X, y, sample_weight=weights)
    if hasattr(model, "partial_fit"):
        clone(estimator).partial_fit(X, y, sample_weight=weights)
    for array, copy in zip(given, before, strict=True):
        assert_array_equal(array, copy)


SPARSE = [sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix]


def sparse_problem(seed=0, n_features=40):
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(4), SIZES))
    rate = rng.uniform(0.05, 0.4, (4, n_features))
    X = rng.uniform(0.5, 2, (len(groups), n_features)) * (
        rng.random((len(groups), n_features)) < rate[groups]
    )
    return X, (groups == 0).astype(int), groups


@pytest.mark.each_value
@pytest.mark.parametrize("form", SPARSE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_sparse_rows_give_what_dense_rows_give(form, weighted):
    X, y, groups = sparse_problem()
    weights = np.random.default_rng(1).uniform(0.5, 2, len(X)) if weighted else None
    model = PCSDA(solver="lsqr", **PLAIN).fit(
        form(X), y, subclass_labels=groups, sample_weight=weights
    )
    for solver in ("lsqr", "cholesky"):
        dense = PCSDA(solver=solver, **PLAIN)
        dense.fit(X, y, subclass_labels=groups, sample_weight=weights)
        assert_allclose(model.transform(form(X)), dense.transform(X), rtol=1e-6, atol=1e-8)
        found = model.decision_function(form(X))
        assert_allclose(found, dense.decision_function(X), rtol=1e-6, atol=1e-7)
    assert_allclose(model.decision_function(X), found, rtol=1e-9, atol=1e-9)


@pytest.mark.in_turn
@pytest.mark.parametrize("form", SPARSE, ids=lambda f: f.__name__)
def test_small_sparse_rows_are_fitted_as_dense_rows(form, monkeypatch):
    X, y, _ = sparse_problem()
    model, dense = (PCSDA(3, random_state=0).fit(rows, y) for rows in (form(X), X))
    assert_array_equal(model.loo_scores_, dense.loo_scores_)
    assert_array_equal(model.decision_function(X), dense.decision_function(X))
    assert model.choose_threshold(max_misses=0.1) == dense.choose_threshold(max_misses=0.1)
    monkeypatch.setattr("pcsda.validation.LARGE_DENSE", X.nbytes - 1)
    with pytest.warns(
        UserWarning, match="stays sparse, .* as a dense array exceed .* leaves no row"
    ):
        large = PCSDA(3, random_state=0).fit(form(X), y)
    assert not hasattr(large, "loo_scores_")
    # Its threshold comes from folds, which score all rows of such a small set.
    assert large.choose_threshold(max_misses=0.1).n_positives == np.sum(y == 1)


@pytest.mark.parametrize(
    ("bound", "value", "reason"),
    [
        ("DENSE_WORK", 1000, r"\S+ multiplications for a dense array exceed 1e\+03"),
        (
            "available_memory",
            lambda: 2**10,
            r"a dense fit takes \S+ GiB, but 9.54e-07 GiB are avai",
        ),
    ],
)
def test_a_warning_says_why_sparse_rows_stay_sparse(bound, value, reason, monkeypatch):
    X, y, _ = sparse_problem()
    monkeypatch.setattr(f"pcsda.validation.{bound}", value)
    with pytest.warns(UserWarning, match=f"{reason}.*; solver='lsqr' leaves no rows out"):
        PCSDA(3, random_state=0).fit(sparse.csr_array(X), y)
    PCSDA(3, random_state=0, solver="lsqr").fit(sparse.csr_array(X), y)  # asked for: no warning


def test_ordinary_texts_are_fitted_as_dense_rows():
    """Texts of 70 MB as dense rows lost their left-out rows, and with them the counts."""
    X = sparse.random(1000, 9000, 0.004, format="csr", random_state=0)
    model = PCSDA(2, random_state=0).fit(X, np.arange(1000) % 5 == 0)
    assert hasattr(model, "loo_scores_")


@pytest.mark.parametrize(
    "fit",
    [
        lambda X, y: PCSDA(3, contamination=0.1, random_state=0).fit(X, y),
        lambda X, y: PCSDA(3, random_state=0).partial_fit(X, y),
        lambda X, y: CSDA(2, random_state=0).fit(X, y),
        lambda X, y: CSDA(2, random_state=0).partial_fit(X, y),
    ],
    ids=["contamination", "partial_fit", "CSDA", "CSDA.partial_fit"],
)
def test_small_sparse_rows_are_taken_everywhere(fit):
    X, y, _ = sparse_problem()
    expected = fit(X, y).decision_function(X)
    assert_array_equal(fit(sparse.csr_array(X), y).decision_function(X), expected)


def test_duplicate_sparse_entries_are_summed():
    X, y, groups = sparse_problem()
    whole = sparse.csr_array(X)
    halves = sparse.csr_array(
        (np.repeat(whole.data / 2, 2), np.repeat(whole.indices, 2), 2 * whole.indptr), X.shape
    )
    assert not halves.has_canonical_format
    before = halves.data.copy()
    model = PCSDA(solver="lsqr", **PLAIN).fit(halves, y, subclass_labels=groups)
    expected = PCSDA(solver="lsqr", **PLAIN).fit(whole, y, subclass_labels=groups)
    assert_allclose(model.decision_function(X), expected.decision_function(X), rtol=1e-7)
    assert_array_equal(halves.data, before)


def test_sparse_rows_are_clustered_and_calibrated():
    X, y, _ = sparse_problem()
    model = PCSDA(3, random_state=0, solver="lsqr").fit(sparse.csr_array(X), y)
    assert len(model.subclass_counts_) == 3
    assert model.calibration_.slope != 1
    assert model.score(sparse.csr_array(X), y) > 0.8
    assert not hasattr(model, "loo_scores_")


# --- invariances ---------------------------------------------------------------------------------


@pytest.mark.each_value
@UNDRAWN
@TALL_AND_WIDE
def test_scores_do_not_depend_on_the_order_of_rows(estimator, width):
    X, y, groups = problem(width)
    plain = clone(estimator).set_params(calibrate=False)
    order = np.random.default_rng(0).permutation(len(X))
    model = fit(plain, X, y, groups)
    shuffled = fit(plain, X[order], y[order], groups[order])
    assert_allclose(shuffled.decision_function(X), model.decision_function(X), rtol=1e-6, atol=1e-6)
    if hasattr(model, "loo_scores_"):
        assert_allclose(shuffled.loo_scores_, model.loo_scores_[order], rtol=1e-6, atol=1e-6)


def rotated(rng, width):
    return np.linalg.qr(rng.standard_normal((width, width)))[0]


def mixed(rng, width):
    return rng.standard_normal((width, width)) + 3 * np.eye(width)


def ill_scaled(rng, width):
    return np.diag(10.0 ** np.linspace(-8, 8, width))


AFFINE = [
    PCSDA(regularization=0),
    PCSDA(regularization=0, negatives="marginal", **PLAIN),
    PCSDA(regularization=0, solver="eigen"),
    CSDA(regularization=0, random_state=0),
    CSDA(regularization=0, n_components=2, solver="lowrank", random_state=0),
]
# Its pseudo-inverse cuts directions off by their size, so sizes may not differ much.
SPECTRAL = PCSDA(regularization=0, solver="spectral", **PLAIN)


@in_turn(
    ("make", "estimator"),
    [
        *((make, estimator) for make in (rotated, mixed) for estimator in [*AFFINE, SPECTRAL]),
        *((ill_scaled, estimator) for estimator in AFFINE),
    ],
)
def test_without_a_ridge_scores_do_not_change_under_affine_maps(make, estimator):
    X, y, groups = problem()
    rng = np.random.default_rng(5)
    turned = X @ make(rng, X.shape[1]) + 10 * rng.standard_normal(X.shape[1])
    model, moved = fit(estimator, X, y, groups), fit(estimator, turned, y, groups)
    expected = model.log_likelihood_ratio(X)
    tolerance = 1e-5 if make is ill_scaled else 1e-7
    assert_allclose(moved.log_likelihood_ratio(turned), expected, rtol=tolerance, atol=tolerance)
    if hasattr(model, "loo_scores_"):
        assert_allclose(moved.loo_scores_, model.loo_scores_, rtol=tolerance, atol=tolerance)


@pytest.mark.each_value
@EVERY
@TALL_AND_WIDE
def test_an_offset_of_1e8_changes_nothing(estimator, width):
    X, y, groups = problem(width)
    model, moved = fit(estimator, X, y, groups), fit(estimator, X + 1e8, y, groups)
    expected = model.decision_function(X)
    assert_allclose(moved.decision_function(X + 1e8), expected, rtol=1e-4, atol=1e-4)
    assert np.all(np.linalg.eigvalsh(moved.density_.base.positive) > 0)


def test_an_offset_of_1e8_changes_nothing_for_sparse_rows():
    X, y, groups = problem()
    model = PCSDA(regularization=1, **PLAIN).fit(X, y, subclass_labels=groups)
    moved = PCSDA(regularization=1, solver="lsqr", **PLAIN).fit(
        sparse.csr_array(X + 1e8), y, subclass_labels=groups
    )
    expected = model.decision_function(X)
    assert_allclose(moved.decision_function(X + 1e8), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.each_value
@EVERY
@TALL_AND_WIDE
@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_scale_of_the_data_does_not_matter(estimator, width, scale, dtype):
    X, y, groups = problem(width)
    model = fit(estimator, X, y, groups)
    rows = (X * scale).astype(dtype)
    scaled = fit(estimator, rows, y, groups)
    tolerance = 1e-6 if dtype == np.float64 else 2e-2
    found = scaled.decision_function(rows)
    assert_allclose(found, model.decision_function(X), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_scale_of_the_data_does_not_change_the_clusters(scale, dtype):
    X, y, _ = problem(spread=3.0)
    clusters = PCSDA(3, random_state=0).fit(X, y).partition_
    found = PCSDA(3, random_state=0).fit((X * scale).astype(dtype), y).partition_
    assert_array_equal(found, clusters)


@EVERY
def test_constant_and_repeated_columns_carry_nothing(estimator):
    X, y, groups = problem()
    model = fit(estimator, X, y, groups)
    constant = np.column_stack([X, np.full(len(X), 7.5), np.zeros(len(X))])
    found = fit(estimator, constant, y, groups)
    assert_allclose(found.components_[:, 6:], 0, atol=1e-10)
    assert_allclose(found.decision_function(constant), model.decision_function(X), rtol=1e-6)
    # Doubled columns are stretched ones, and the relative ridge stretches with them.
    twice = fit(estimator, np.hstack([X, X]), y, groups)
    found = twice.decision_function(np.hstack([X, X]))
    assert twice.n_components_ == model.n_components_
    assert_allclose(found, model.decision_function(X), rtol=1e-6, atol=1e-6)


@EVERY
def test_collinear_features_are_accepted(estimator):
    X, y, groups = problem()
    mixing = np.random.default_rng(0).standard_normal((6, 30)) / np.sqrt(30)
    model = fit(estimator, X @ mixing, y, groups)
    assert model.n_components_ <= 6
    assert np.isfinite(model.decision_function(X @ mixing)).all()
    assert model.score(X @ mixing, y) > 0.85


def test_published_without_a_ridge_solves_the_literal_problem_of_the_paper():
    X, y, groups = problem()
    model = PCSDA.published(regularization=0).fit(X, y, subclass_labels=groups)
    means = [X[groups == g].mean(axis=0) for g in range(4)]
    delta = np.array(means[1:]) - means[0]
    inside = sum((X[groups == g] - means[g]).T @ (X[groups == g] - means[g]) for g in range(4))
    values = linalg.eigh(delta.T @ delta, inside, eigvals_only=True)[::-1][:3]
    assert_allclose(model.eigenvalues_, values, rtol=1e-9)
    found = delta.T @ delta @ model.components_.T
    assert_allclose(found, inside @ model.components_.T * values, rtol=1e-7, atol=1e-9)
    assert PCSDA.published().regularization == KernelPCSDA.published().regularization == 0.01


def test_duplicated_rows_leave_the_published_subspace_and_scale_its_coordinates():
    X, y, groups = problem()
    once = PCSDA.published().fit(X, y, subclass_labels=groups)
    thrice = PCSDA.published(regularization=0.01 / 3).fit(
        np.repeat(X, 3, axis=0), np.repeat(y, 3), subclass_labels=np.repeat(groups, 3)
    )
    again = PCSDA.published(regularization=0.01).fit(X, y, subclass_labels=groups)
    assert_array_equal(again.components_, once.components_)
    cosine = np.sum(thrice.components_ * once.components_, axis=1)
    cosine /= np.linalg.norm(thrice.components_, axis=1) * np.linalg.norm(once.components_, axis=1)
    assert_allclose(cosine, 1, atol=1e-3)
    assert_allclose(
        thrice.log_likelihood_ratio(X), once.log_likelihood_ratio(X), rtol=0.05, atol=0.05
    )


# --- small and lopsided samples ------------------------------------------------------------------


@EVERY
def test_models_generalise_with_far_more_features_than_samples(estimator):
    rng = np.random.default_rng(0)
    direction = rng.standard_normal((3, 2000)) * 0.12
    groups = np.repeat([0, 1, 2], [40, 40, 40])
    X = rng.standard_normal((240, 2000)) + np.tile(direction[groups], (2, 1))
    y = np.tile((groups == 0).astype(int), 2)
    model = fit(estimator, X[:120], y[:120], groups)
    positive = model.log_likelihood_ratio(X[120:][y[120:] == 1])
    negative = model.log_likelihood_ratio(X[120:][y[120:] == 0])
    assert np.isfinite(positive).all()
    assert np.isfinite(negative).all()
    if estimator.solver not in (*TARGETS, "trace_ratio") and isinstance(estimator, PCSDA):
        assert np.mean(positive[:, None] > negative) > 0.8


@BOTH
@TALL_AND_WIDE
def test_one_positive_is_enough(estimator, width):
    X, y, groups = problem(width, sizes=[1, 25, 40], spread=3.0)
    model = fit(estimator, X, y, groups)
    scores = model.log_likelihood_ratio(X)
    assert np.isfinite(scores).all()
    assert scores[y == 1][0] > np.quantile(scores[y == 0], 0.95)
    if isinstance(estimator, PCSDA):
        assert scores[y == 1][0] > 0
    assert model.rank(X)[0] == np.flatnonzero(y)[0]
    if isinstance(estimator, PCSDA):
        assert_array_equal(np.isnan(model.loo_scores_), y == 1)
    else:
        assert (model.calibration_.slope, model.calibration_.offset) == (1, 0)


@BOTH
@TALL_AND_WIDE
def test_one_negative_is_enough(estimator, width):
    X, y, groups = problem(width, sizes=[40, 1], spread=3.0)
    model = fit(estimator, X, y, groups)
    scores = model.log_likelihood_ratio(X)
    assert np.isfinite(scores).all()
    assert scores[y == 0][0] < np.quantile(scores[y == 1], 0.05)
    assert model.n_components_ == 1


@BOTH
@pytest.mark.parametrize("width", [1, 3, 50])
def test_two_points_are_separated(estimator, width):
    X = np.random.default_rng(0).standard_normal((2, width))
    model = clone(estimator).fit(X, ["no", "yes"])
    assert model.predict(X).tolist() == ["no", "yes"]
    assert np.isfinite(model.decision_function(X)).all()
    near = X + 0.01 * (X[::-1] - X)
    assert model.predict(near).tolist() == ["no", "yes"]


@BOTH
@TALL_AND_WIDE
@pytest.mark.parametrize("which", [0, 1], ids=["negatives", "positives"])
def test_a_class_of_equal_rows_is_accepted(estimator, width, which):
    X, y, _ = problem(width, spread=3.0)
    X[y == which] = X[y == which].mean(axis=0)
    model = clone(estimator).fit(X, y)
    decision = model.decision_function(X)
    assert np.isfinite(decision).all()
    own, other = decision[y == which], decision[y != which]
    assert np.ptp(own) <= 1e-6 * np.abs(own).max()
    right = (own[0] > other) if which == 1 else (own[0] < other)
    assert right.mean() > 0.9


@BOTH
def test_two_classes_of_equal_rows_are_separated(estimator):
    X = np.repeat([[0.0, 1.0, 2.0], [5.0, 1.0, -1.0]], 8, axis=0)
    y = np.repeat([0, 1], 8)
    model = clone(estimator).fit(X, y)
    assert_array_equal(model.predict(X), y)
    assert np.isfinite(model.predict_log_proba(X)).all()


def test_auto_takes_one_subclass_per_two_distinct_negatives():
    X, y, _ = problem(sizes=[30, 400])
    X = X[:, :1]
    X[y == 0, 0] = np.repeat([1.0, 2.0, 7.0, 8.0, 30.0, 31.0], [100, 100, 50, 70, 50, 30])
    model = PCSDA(random_state=0).fit(X, y)
    assert_array_equal(np.sort(model.subclass_counts_), [80, 120, 200])
    assert np.isfinite(model.decision_function(X)).all()


@pytest.mark.parametrize(("n_negative", "expected"), [(10, 1), (30, 2), (75, 5), (400, 20)])
def test_auto_takes_one_subclass_per_fifteen_negatives_up_to_twenty(n_negative, expected):
    X, y, _ = problem(3, sizes=[20, n_negative])
    assert len(PCSDA(random_state=0).fit(X, y).subclass_counts_) == expected


def test_a_lone_outlier_as_a_subclass_does_not_spoil_the_calibration():
    X, y, _ = problem(sizes=[60, 80, 80], spread=2.0)
    clean = PCSDA(2, random_state=0).fit(X, y)
    outlier = np.vstack([X, 100 + np.zeros(6)])
    model = PCSDA(3, random_state=0).fit(outlier, np.append(y, 0))
    assert model.subclass_counts_.min() == 1
    assert model.calibration_.slope > 0.5 * clean.calibration_.slope
    assert cllr(y, model.log_likelihood_ratio(X)) < cllr(y, clean.log_likelihood_ratio(X)) + 0.1


@pytest.mark.parametrize("seed", [0, 1, 6])
def test_singleton_outliers_inform_the_fitted_tails(seed):
    rng = np.random.default_rng(seed)
    y = np.arange(1350) % 7 == 0
    clouds = 1.5 * rng.normal(size=(7, 10))
    X = clouds[np.where(y, 0, rng.integers(1, 7, len(y)))] + rng.standard_normal((len(y), 10))
    X = np.column_stack([X, 100 * rng.lognormal(0, 3, len(y))])
    model = PCSDA(random_state=0).fit(X[:350], y[:350])
    assert np.sum(model.subclass_counts_ == 1) >= 8
    fresh = model.log_likelihood_ratio(X[350:])
    assert cllr(y[:350], model.loo_scores_) < 0.6
    assert cllr(y[350:], fresh) < 0.6
    assert fresh[~y[350:]].max() < 20


@pytest.mark.more
def test_subclasses_of_one_sample_are_calibrated_on_folds():
    data = make_class_specific(4000, random_state=0)
    X, y, train, fresh = data.data, data.target, slice(0, 1000), slice(1000, None)
    model = PCSDA(subclasses="samples", regularization=0.1, random_state=0)
    model.fit(X[train], y[train])
    assert len(model.subclass_counts_) == np.sum(y[train] == 0)
    assert cllr(y[fresh], model.log_likelihood_ratio(X[fresh])) < 0.9
    model.set_params(calibrate=False).fit(X[train], y[train])
    assert cllr(y[fresh], model.log_likelihood_ratio(X[fresh])) > 1


# --- weights -------------------------------------------------------------------------------------

WEIGHED = [
    *[PCSDA(solver=solver, **PLAIN) for solver in PCSDA_SOLVERS],
    PCSDA.published(),
    PCSDA(priors="equal", shrinkage=3.0, **PLAIN),
    *[CSDA(solver=solver, calibrate=False) for solver in CSDA_SOLVERS if solver not in TARGETS],
    CSDA.published(2),
]


@pytest.mark.each_value
@over(WEIGHED)
@TALL_AND_WIDE
def test_integer_weights_equal_repeated_rows(estimator, width):
    X, y, groups = problem(width)
    times = np.random.default_rng(3).integers(0, 4, len(X))
    repeated = [np.repeat(array, times, axis=0) for array in (X, y, groups)]
    weighted = fit(estimator, X, y, groups, sample_weight=times)
    expected = fit(estimator, *repeated)
    assert_allclose(weighted.eigenvalues_, expected.eigenvalues_, rtol=1e-7)
    assert_allclose(weighted.subclass_counts_, expected.subclass_counts_)
    for method in ("transform", "decision_function"):
        found, wanted = getattr(weighted, method)(X), getattr(expected, method)(X)
        assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.each_value
@EVERY
@pytest.mark.parametrize("given", [True, False], ids=["given", "clustered"])
def test_weight_zero_equals_absence(estimator, given):
    X, y, groups = problem(sizes=[40, 60, 60, 50])
    weights = np.random.default_rng(3).integers(0, 3, len(X)).astype(float)
    weights[groups == 3] = 0
    kept = weights > 0
    labels, rest = (groups, groups[kept]) if given else (None, None)
    whole = fit(estimator, X, y, labels, sample_weight=weights)
    part = fit(estimator, X[kept], y[kept], rest, sample_weight=weights[kept])
    assert_allclose(whole.decision_function(X), part.decision_function(X), rtol=1e-9, atol=1e-9)
    assert_array_equal(whole.partition_[kept], part.partition_)
    assert np.all(whole.partition_[~kept] == -1)
    assert hasattr(whole, "loo_scores_") == hasattr(part, "loo_scores_")
    if hasattr(whole, "loo_scores_"):
        assert_allclose(whole.loo_scores_[kept], part.loo_scores_, rtol=1e-9, atol=1e-9)
        absent = whole.log_likelihood_ratio(X[~kept])
        assert_allclose(whole.loo_scores_[~kept], absent, rtol=1e-9, atol=1e-9)


@EVERY
def test_a_scalar_weight_applies_to_every_row(estimator):
    X, y, groups = problem()
    scalar = fit(estimator, X, y, groups, sample_weight=2.5)
    each = fit(estimator, X, y, groups, sample_weight=np.full(len(X), 2.5))
    assert_array_equal(scalar.decision_function(X), each.decision_function(X))
    one = fit(estimator, X, y, groups, sample_weight=1)
    none = fit(estimator, X, y, groups)
    assert_array_equal(one.decision_function(X), none.decision_function(X))
    assert not np.allclose(scalar.decision_function(X), none.decision_function(X))


def test_weights_shape_the_clusters():
    X, y, _ = problem()
    weights = np.random.default_rng(0).uniform(0.1, 20, len(X))
    plain = PCSDA(4, random_state=0).fit(X, y)
    weighted = PCSDA(4, random_state=0).fit(X, y, sample_weight=weights)
    assert not np.array_equal(plain.partition_, weighted.partition_)


# --- subclasses ----------------------------------------------------------------------------------


def test_given_subclasses_are_used_and_ignored_for_positives():
    X, y, groups = problem()
    names = np.array(["unused", "b", "a", "c"])[groups]
    model = PCSDA(n_subclasses=1, random_state=0).fit(X, y, subclass_labels=names)
    assert_array_equal(model.partition_, np.array([0, 2, 1, 3])[groups])
    assert_array_equal(model.subclass_counts_, [SIZES[2], SIZES[1], SIZES[3]])
    assert_allclose(model.subclass_means_[1], X[groups == 1].mean(axis=0))
    assert_allclose(model.positive_mean_, X[groups == 0].mean(axis=0))
    missing = names.astype(object)
    missing[y == 1] = None
    again = PCSDA(random_state=0).fit(X, y, subclass_labels=missing)
    assert_array_equal(again.decision_function(X), model.decision_function(X))
    mixed = names.copy()
    mixed[y == 1] = "b"
    again = PCSDA(random_state=0).fit(X, y, subclass_labels=mixed)
    assert_array_equal(again.decision_function(X), model.decision_function(X))


def test_a_clusterer_makes_the_subclasses_and_is_not_fitted_itself():
    X, y, _ = problem()
    clusterer = AgglomerativeClustering(4)
    model = PCSDA(subclasses=clusterer).fit(X, y)
    expected = clone(clusterer).fit_predict(X[y == 0])
    assert_array_equal(model.partition_[y == 0] - 1, expected)
    assert not hasattr(clusterer, "labels_")


@pytest.mark.parametrize("wanted", [1, 2, 5])
def test_kmeans_finds_the_requested_number_of_subclasses(wanted):
    X, y, _ = problem()
    model = PCSDA(wanted, random_state=0).fit(X, y)
    assert model.subclass_means_.shape == (wanted, 6)
    assert model.n_components_ == wanted
    assert_array_equal(np.bincount(model.partition_)[1:], model.subclass_counts_)
    for group in range(1, wanted + 1):
        mean = X[model.partition_ == group].mean(axis=0)
        assert_allclose(model.subclass_means_[group - 1], mean)


@pytest.mark.more  # `core/test_direct.py` has the law of the draws themselves
@pytest.mark.parametrize("solver", ["cholesky", "eigen", "spectral"])
def test_resampled_subclasses_of_equal_size_are_near_the_pooled_ones(solver):
    X, y, groups = problem(sizes=[2000, 4000, 4000, 4000])
    pooled = PCSDA.published(solver=solver).fit(X, y, subclass_labels=groups)
    drawn = PCSDA.published(solver=solver, balance="resampled", random_state=0)
    drawn.fit(X, y, subclass_labels=groups)
    assert_allclose(drawn.eigenvalues_, pooled.eigenvalues_, rtol=0.1)
    error = np.abs(drawn.log_likelihood_ratio(X) - pooled.log_likelihood_ratio(X))
    assert 0 < np.median(error) < 0.1


def test_resampling_balances_subclasses_of_unequal_size():
    X, y, groups = problem(sizes=[100, 900, 30, 30])
    model = PCSDA(balance="resampled", random_state=0).fit(X, y, subclass_labels=groups)
    assert_array_equal(model.subclass_counts_, [320, 320, 320])
    assert_allclose(model.density_.base.log_weights, np.log(1 / 3))
    assert not hasattr(model, "loo_scores_")


def test_resampling_is_seeded():
    X, y, groups = problem()
    scores = [
        PCSDA(balance="resampled", random_state=seed)
        .fit(X, y, subclass_labels=groups)
        .decision_function(X)
        for seed in (0, 0, 1)
    ]
    assert_array_equal(scores[0], scores[1])
    assert np.abs(scores[0] - scores[2]).max() > 1e-3


# --- the same data, the same model ---------------------------------------------------------------


@EVERY
def test_one_seed_gives_one_model(estimator):
    X, y, _ = problem()
    first, second = clone(estimator).fit(X, y), clone(estimator).fit(X, y)
    assert_array_equal(first.decision_function(X), second.decision_function(X))
    states = [np.random.RandomState(5), np.random.RandomState(5)]
    first, second = (clone(estimator).set_params(random_state=s).fit(X, y) for s in states)
    assert_array_equal(first.decision_function(X), second.decision_function(X))


@pytest.mark.parametrize(
    "estimator",
    [PCSDA(8), PCSDA(1, balance="resampled"), CSDA(), CSDA(2, solver="labels", calibrate=False)],
    ids=str,
)
def test_another_seed_gives_another_draw(estimator):
    X, y, _ = problem()
    scores = [
        clone(estimator).set_params(random_state=seed).fit(X, y).decision_function(X)
        for seed in (0, 1)
    ]
    assert np.abs(scores[0] - scores[1]).max() > 1e-6


@EVERY
def test_a_refit_forgets_the_earlier_fit(estimator):
    X, y, _ = problem()
    other, labels, _ = problem(9, sizes=[12, 70, 33], seed=4)
    names = np.where(labels == 1, "y", "x")
    fresh = clone(estimator).fit(X, y)
    model = clone(estimator)
    if hasattr(model, "partial_fit"):
        model.partial_fit(other, names)
    model.fit(other, names).fit(X, y)
    assert set(vars(model)) == set(vars(fresh))
    assert_array_equal(model.classes_, [0, 1])
    assert_array_equal(model.partition_, fresh.partition_)
    assert_array_equal(model.decision_function(X), fresh.decision_function(X))


def test_stale_attributes_are_removed_by_a_refit():
    X, y, groups = problem()
    model = PCSDA(random_state=0).fit(X, y)
    assert model.loo_scores_.shape == (len(X),)
    model.set_params(covariance="resubstitution").fit(X, y)
    assert not hasattr(model, "loo_scores_")
    model = clone(model).set_params(calibrate=False).partial_fit(X, y, subclass_labels=groups)
    assert not hasattr(model, "partition_")
    assert model.scatter_.n_positive == SIZES[0]
    model.fit(X, y)
    assert not hasattr(model, "scatter_")
    model = PCSDA(random_state=0).partial_fit(X, y)
    assert len(model.sample_.X) == len(X)
    assert not hasattr(model.fit(X, y), "sample_")


@EVERY
def test_the_old_name_of_the_partition_warns(estimator):
    X, y, _ = problem()
    model = clone(estimator).fit(X, y)
    message = (
        "groups_ was renamed partition_ in pcsda 0.2, because the groups of fit(groups=) are "
        "something else; the old name will be removed in 0.3"
    )
    with pytest.warns(FutureWarning, match=f"^{re.escape(message)}$"):
        old = model.groups_
    assert old is model.partition_
    assert not hasattr(clone(estimator), "groups_")


def test_a_pickle_with_the_old_name_of_the_partition_is_read():
    X, y, _ = problem()
    model = PCSDA(random_state=0).fit(X, y)
    state = dict(model.__getstate__())
    state["groups_"] = state.pop("partition_")
    copy = PCSDA()
    copy.__setstate__(state)
    assert_array_equal(copy.partition_, model.partition_)
    assert "groups_" in state
    assert "groups_" not in vars(copy)


# --- batches -------------------------------------------------------------------------------------


def batches(n_rows, n_batches, seed=0):
    """Draw uneven random batches that cover the rows."""
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.choice(np.arange(1, n_rows), n_batches - 1, replace=False))
    return np.split(rng.permutation(n_rows), edges)


def stream(estimator, X, y, groups, parts, weights=None):
    model = clone(estimator)
    for part in parts:
        params = {"subclass_labels": groups[part]} if isinstance(estimator, PCSDA) else {}
        if weights is not None:
            params["sample_weight"] = weights[part]
        model.partial_fit(X[part], y[part], classes=[0, 1], **params)
    return model


STREAMED = [
    PCSDA(**PLAIN),
    PCSDA.published(n_components=2),
    PCSDA(solver="eigen", pos_label=1, **PLAIN),
    PCSDA(solver="spectral", priors="equal", **PLAIN),
    CSDA(calibrate=False),
    CSDA(2, solver="lowrank", calibrate=False),
    CSDA.published(2, solver="trace_ratio"),
]


@pytest.mark.each_value
@over(STREAMED)
@pytest.mark.parametrize("n_batches", [1, 2, 7, 40])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_any_batches_equal_one_fit(estimator, n_batches, weighted):
    X, y, groups = problem()
    # Until two subclasses are seen there are not two components: begin with some of each group.
    start = np.concatenate([np.flatnonzero(groups == g)[:2] for g in range(4)])
    rest = np.setdiff1d(np.arange(len(X)), start)
    parts = [start, *(rest[part] for part in batches(len(rest), n_batches))]
    weights = np.random.default_rng(1).uniform(0.5, 2, len(X)) if weighted else None
    streamed = stream(estimator, X, y, groups, parts, weights)
    whole = fit(estimator, X, y, groups, sample_weight=weights)
    # Subclasses are numbered as they come.
    order = np.argsort(streamed.subclass_counts_)
    expected = np.argsort(whole.subclass_counts_)
    means = whole.subclass_means_[expected]
    assert_allclose(streamed.subclass_means_[order], means, rtol=1e-8, atol=1e-8)
    for method in ("transform", "log_likelihood_ratio", "decision_function"):
        found, wanted = getattr(streamed, method)(X), getattr(whole, method)(X)
        assert_allclose(found, wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("offset", [0, 1e8])
def test_batches_of_single_rows_equal_one_fit(offset):
    X, y, groups = problem(4, sizes=[6, 7, 8])
    X = X + offset
    streamed = stream(PCSDA(**PLAIN), X, y, groups, np.arange(len(X))[:, None])
    whole = PCSDA(**PLAIN).fit(X, y, subclass_labels=groups)
    tolerance = 1e-8 if offset == 0 else 1e-4
    found = streamed.decision_function(X)
    assert_allclose(found, whole.decision_function(X), rtol=tolerance, atol=tolerance)


def test_a_subclass_may_first_appear_in_a_later_batch():
    X, y, groups = problem()
    late = groups == 3
    model = PCSDA(**PLAIN).partial_fit(X[~late], y[~late], subclass_labels=groups[~late])
    assert model.n_components_ == 2
    model.partial_fit(X[late], y[late], subclass_labels=groups[late])
    assert model.n_components_ == 3
    whole = PCSDA(**PLAIN).fit(X, y, subclass_labels=groups)
    assert_allclose(model.decision_function(X), whole.decision_function(X), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("estimator", [PCSDA(**PLAIN), CSDA(calibrate=False)], ids=["P", "C"])
@pytest.mark.parametrize("first", [0, 1], ids=["negatives first", "positives first"])
def test_batches_of_one_class_wait_for_the_other(estimator, first):
    X, y, groups = problem()
    params = {"subclass_labels": groups} if isinstance(estimator, PCSDA) else {}

    def part(label):
        return {name: values[y == label] for name, values in params.items()}

    model = clone(estimator)
    model.partial_fit(X[y == first], y[y == first], classes=[0, 1], **part(first))
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X[y != first], y[y != first], **part(1 - first))
    whole = clone(estimator).fit(X, y, **params)
    assert_allclose(model.decision_function(X), whole.decision_function(X), rtol=1e-8, atol=1e-8)


def waits(model, X, reason, and_so_on=""):
    """Expect a stream without a model to say what it waits for."""
    message = (
        f"This {type(model).__name__} instance is not fitted yet. The batches that partial_fit has "
        f"collected do not make a model: {reason}"
    )
    for ask in (model.predict, model.transform, model.rank, lambda _: model.fast_scorer()):
        with pytest.raises(NotFittedError, match=f"^{re.escape(message)}{and_so_on}$"):
            ask(X)


@BOTH
@pytest.mark.parametrize("pos_label", [0, 1])
def test_a_stream_may_begin_with_one_row_of_either_class(estimator, pos_label):
    X, y, _ = problem()
    for label in (0, 1):
        model = clone(estimator).set_params(pos_label=pos_label)
        own, other = np.flatnonzero(y == label), np.flatnonzero(y != label)
        model.partial_fit(X[own[:1]], y[own[:1]], classes=[0, 1])
        waits(model, X, f"no row of class {1 - label} with positive weight has arrived")
        model.partial_fit(X[other[:1]], y[other[:1]])
        assert np.isfinite(model.decision_function(X)).all()


@over(STREAMED)
def test_a_stream_recovers_from_equal_first_rows(estimator):
    X, y, groups = problem()
    same = np.repeat(X[:1], 12, axis=0)
    model = stream(estimator, same, np.arange(12) % 2, np.arange(12) % 2 + 7, [np.arange(12)])
    waits(model, X, "", ".*rows of X are equal.*")
    params = {"subclass_labels": groups} if isinstance(estimator, PCSDA) else {}
    model.partial_fit(X, y, **params)
    assert model.scatter_.counts.sum() == len(X) + 12
    assert np.isfinite(model.decision_function(X)).all()


def test_a_stream_recovers_from_equal_means():
    X = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    model = PCSDA(1).partial_fit(X, [0, 0, 1, 1])
    waits(
        model,
        X,
        "every subclass mean equals the positive mean, so no direction tells them apart; raise "
        "n_subclasses or give subclass_labels",
    )
    assert_array_equal(model.partial_fit(X[:2] + 5, [0, 0]).predict(X[:2] + 5), [0, 0])


@pytest.mark.parametrize(
    ("estimator", "reason"),
    [
        (PCSDA.published(), "the covariance of the positive class is singular in the subspace"),
        (CSDA.published(), "the covariance of the positive class is singular in the subspace"),
        (PCSDA(regularization=0, **PLAIN), "the within-class scatter of 9 dimensions is singular"),
        (
            CSDA(regularization=0, calibrate=False),
            "the within-class scatter of 9 dimensions is singular",
        ),
    ],
    ids=str,
)
def test_a_stream_waits_for_enough_rows_for_its_covariances(estimator, reason):
    X, y, groups = problem(9)
    few = np.concatenate([np.flatnonzero(groups == g)[:2] for g in range(4)])
    rest = np.setdiff1d(np.arange(len(X)), few)
    model = stream(estimator, X, y, groups, [few])
    waits(model, X, reason, ".*")
    params = {"subclass_labels": groups} if isinstance(estimator, PCSDA) else {}
    part = {name: values[rest] for name, values in params.items()}
    model.partial_fit(X[rest], y[rest], **part)
    whole = clone(estimator).set_params(calibrate=False).fit(X, y, **params)
    assert_allclose(model.decision_function(X), whole.decision_function(X), rtol=1e-6, atol=1e-6)


def test_later_subclasses_may_add_components():
    X, y, groups = problem()
    early = groups < 2
    model = PCSDA(n_components=2, **PLAIN)
    model.partial_fit(X[early], y[early], subclass_labels=groups[early])
    reason = (
        "n_components=2 must be at most 1 (= min(n_subclasses, n_features, rank)); lower it or "
        "raise n_subclasses"
    )
    waits(model, X, reason)
    model.partial_fit(X[~early], y[~early], subclass_labels=groups[~early])
    whole = PCSDA(n_components=2, **PLAIN).fit(X, y, subclass_labels=groups)
    assert_allclose(model.decision_function(X), whole.decision_function(X), rtol=1e-8, atol=1e-8)


def test_losing_the_model_to_a_batch_warns_and_later_rows_restore_it():
    X, y, groups = problem()
    some = (groups < 2) & ((groups > 0) | (np.cumsum(groups == 0) <= 2))
    positives = (groups == 0) & ~some
    model = PCSDA.published().partial_fit(X[some], y[some], subclass_labels=groups[some])
    assert model.n_components_ == 1
    with pytest.warns(
        UserWarning, match="with this batch, there is no model until more rows arrive"
    ):
        model.partial_fit(X[groups > 1], y[groups > 1], subclass_labels=groups[groups > 1])
    waits(model, X, "", ".+")
    model.partial_fit(X[positives], y[positives])
    whole = PCSDA.published().fit(X, y, subclass_labels=groups)
    assert_allclose(model.decision_function(X), whole.decision_function(X), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_k_means_waits_for_enough_distinct_negatives(dtype):
    X, y, _ = problem()
    X = X.astype(dtype)
    negatives = np.flatnonzero(y == 0)
    model = PCSDA(5, random_state=0, **PLAIN)
    for count, row in enumerate(negatives[:4], 1):
        model.partial_fit(X[[row]], y[[row]], classes=[0, 1])
        waits(
            model,
            X,
            f"n_subclasses=5 needs as many different negatives, but only {count} have arrived",
        )
    size = len(pickle.dumps(model))
    for _ in range(3):  # rows that are equal wait as one
        model.partial_fit(X[negatives[:4]], y[negatives[:4]])
        assert len(pickle.dumps(model)) == size
    assert model.scatter_.counts.sum() == 0
    rest = np.setdiff1d(np.arange(len(X)), negatives[:4])
    model.partial_fit(X[rest], y[rest])
    assert len(model.subclass_counts_) == 5
    assert model.subclass_counts_.sum() == len(negatives) + 12
    assert np.isfinite(model.decision_function(X)).all()


def test_waiting_negatives_are_clustered_with_the_rest():
    X, y, _ = problem()
    order = np.argsort(y, kind="stable")  # negatives first
    X, y = X[order], y[order]
    weights = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    for weight in (None, weights):
        model, whole = (PCSDA(6, random_state=0, **PLAIN) for _ in range(2))
        whole.partial_fit(X, y, sample_weight=weight)
        for part in (slice(0, 3), slice(3, 5), slice(5, None)):
            own = None if weight is None else weight[part]
            model.partial_fit(X[part], y[part], classes=[0, 1], sample_weight=own)
        assert_array_equal(model.subclass_counts_, whole.subclass_counts_)
        found = model.decision_function(X)
        assert_allclose(found, whole.decision_function(X), rtol=1e-9, atol=1e-9)


def test_waiting_negatives_fix_how_later_batches_give_subclasses():
    X, y, groups = problem()
    two = np.flatnonzero(y == 0)[:2]
    model = PCSDA(3).partial_fit(X[two], y[two], classes=[0, 1])
    with pytest.raises(ValueError, match="subclass_labels must be given in every call"):
        model.partial_fit(X, y, subclass_labels=groups)
    waits(model, X, "n_subclasses=3 needs as many different negatives, but only 2 have arrived")
    model.set_params(n_subclasses=2).partial_fit(X[y == 1], y[y == 1])
    assert_array_equal(model.subclass_counts_, [1, 1])


@BOTH
def test_a_batch_without_weight_adds_nothing(estimator):
    X, y, _ = problem()
    for label in (0, 1):
        model = clone(estimator).partial_fit(X, y, sample_weight=(y != label).astype(float))
        waits(model, X, f"no row of class {label} with positive weight has arrived")
        model.partial_fit(X[y == label], y[y == label])
        order = np.argsort(y == label, kind="stable")  # as they counted
        whole = clone(estimator).partial_fit(X[order], y[order])
        assert_allclose(model.decision_function(X), whole.decision_function(X), rtol=1e-8)


@BOTH
def test_a_refused_first_batch_leaves_no_trace(estimator):
    X, y, _ = problem()
    model = clone(estimator)
    far = X * 1e200
    for rows, labels in ((far, y), (far[y == 0], y[y == 0]), (far[:1], y[:1]), (X, y + 1)):
        with pytest.raises(ValueError, match=r"the squares of X overflow|y has labels"):
            model.partial_fit(rows, labels, classes=[0, 1])
    assert not hasattr(model, "scatter_")
    with pytest.raises(NotFittedError, match="Call 'fit' with appropriate arguments"):
        model.predict(X)
    model.partial_fit(X, y)
    expected = clone(estimator).partial_fit(X, y)
    assert_array_equal(model.decision_function(X), expected.decision_function(X))


@BOTH
def test_fit_discards_waiting_rows_of_a_stream(estimator):
    X, y, _ = problem()
    model = clone(estimator).partial_fit(X[y == 0][:1], y[y == 0][:1], classes=[0, 1]).fit(X, y)
    fresh = clone(estimator).fit(X, y)
    assert set(vars(model)) == set(vars(fresh))
    assert_array_equal(model.decision_function(X), fresh.decision_function(X))


def test_later_negatives_join_the_first_batchs_nearest_centroid():
    X, y, _ = problem(sizes=[30, 60, 60, 60], spread=3.0)
    first, later = slice(0, 100), slice(100, None)
    model = PCSDA(3, random_state=0, **PLAIN).partial_fit(X[first], y[first])
    centroids = model.subclass_means_.copy()
    model.partial_fit(X[later], y[later])
    negatives = X[later][y[later] == 0]
    nearest = np.linalg.norm(negatives[:, None] - centroids, axis=2).argmin(axis=1)
    start = PCSDA(3, random_state=0, **PLAIN).fit(X[first], y[first])
    assert_allclose(start.subclass_means_, centroids, rtol=1e-9)
    groups = np.zeros(len(X), dtype=int)
    groups[first] = start.partition_
    groups[later][y[later] == 0] = nearest + 1
    whole = PCSDA(**PLAIN).fit(X, y, subclass_labels=groups)
    assert_allclose(model.decision_function(X), whole.decision_function(X), rtol=1e-8, atol=1e-8)


def test_the_nearest_centroid_is_found_far_from_the_origin():
    X, y, _ = problem(sizes=[30, 60, 60, 60], spread=3.0)
    X /= 10
    counts = []
    for offset in (0, 1e8):
        model = PCSDA(3, random_state=0).partial_fit(X[:100] + offset, y[:100])
        model.partial_fit(X[100:] + offset, y[100:])
        counts.append(model.subclass_counts_)
    assert_array_equal(counts[0], counts[1])


def test_zero_weight_rows_add_nothing_to_a_stream():
    X, y, groups = problem()
    weights = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    weights[groups == 3] = 0
    kept = weights > 0
    parts = batches(len(X), 3)
    model = stream(PCSDA(**PLAIN), X, y, groups, parts, weights)
    expected = PCSDA(**PLAIN).fit(
        X[kept], y[kept], subclass_labels=groups[kept], sample_weight=weights[kept]
    )
    assert len(model.subclass_counts_) == 2
    assert_allclose(model.decision_function(X), expected.decision_function(X), rtol=1e-8)


def test_a_refused_batch_leaves_the_stream_unchanged():
    X, y, groups = problem()
    model = PCSDA(**PLAIN).partial_fit(X[:60], y[:60], subclass_labels=groups[:60])
    before = model.decision_function(X)
    with pytest.raises(ValueError, match="the squares of X overflow"):
        model.partial_fit(X[:3] * 1e200, y[:3], subclass_labels=["new"] * 3)
    with pytest.raises(ValueError, match="subclass_labels must be given in every call"):
        model.partial_fit(X[60:], y[60:])
    assert_array_equal(model.decision_function(X), before)
    model.partial_fit(X[60:], y[60:], subclass_labels=groups[60:])
    whole = PCSDA(**PLAIN).fit(X, y, subclass_labels=groups)
    assert_allclose(model.decision_function(X), whole.decision_function(X), rtol=1e-8, atol=1e-8)


@BOTH
def test_partial_fit_after_fit_is_refused_and_changes_nothing(estimator):
    X, y, _ = problem()
    model = clone(estimator).fit(X[:, :5], y)
    before = vars(model).copy()
    message = (
        "partial_fit cannot continue from fit, which keeps no statistics to merge a batch into; "
        "call partial_fit from the first batch on, on a fresh estimator such as "
        "sklearn.base.clone(model), or call fit on all rows together"
    )
    for rows, labels in ((X[:, :5], y), (X, y), (X[y == 0], y[y == 0])):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            model.partial_fit(rows, labels, classes=[0, 1])
    assert vars(model).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(model).items())
    clone(model).partial_fit(X, y)


@BOTH
def test_fit_after_partial_fit_ends_the_stream(estimator):
    X, y, _ = problem()
    model = clone(estimator).partial_fit(X, y).fit(X, y)
    with pytest.raises(ValueError, match="partial_fit cannot continue from fit"):
        model.partial_fit(X, y)


def test_a_stream_may_change_its_numeric_type():
    X, y, groups = problem()
    model = PCSDA(**PLAIN).partial_fit(
        X[:60].astype(np.float32), y[:60], subclass_labels=groups[:60]
    )
    assert model.transform(X.astype(np.float32)).dtype == np.float32
    model.partial_fit(X[60:], y[60:], subclass_labels=groups[60:])
    whole = PCSDA(**PLAIN).fit(X, y, subclass_labels=groups)
    assert_allclose(model.decision_function(X), whole.decision_function(X), rtol=1e-4, atol=1e-4)


def overconfident(n_train=120, width=60, seed=0):
    """Return a stream with nearly as many features as rows, and fresh rows of its population."""
    data = make_class_specific(
        4000, n_features=width, positive_fraction=0.3, separation=3.0, random_state=seed
    )
    rows = slice(0, n_train)
    model = PCSDA(regularization=1e-4, **PLAIN).partial_fit(
        data.data[rows], data.target[rows], subclass_labels=data.subclass_labels[rows]
    )
    return model, data


@pytest.mark.parametrize("seed", range(3))
def test_recalibration_on_held_out_rows_cures_overconfidence(seed):
    model, data = overconfident(seed=seed)
    held, fresh = slice(120, 1000), slice(1000, None)
    before = cllr(data.target[fresh], model.log_likelihood_ratio(data.data[fresh]))
    order = model.rank(data.data[fresh], by="likelihood")
    assert model.recalibrate(data.data[held], data.target[held]) is model
    after = cllr(data.target[fresh], model.log_likelihood_ratio(data.data[fresh]))
    assert before > 1.5
    assert after < 0.95
    assert 0 < model.calibration_.slope < 0.5
    assert_array_equal(model.rank(data.data[fresh], by="likelihood"), order)


def test_weights_in_recalibration_count_as_repetitions():
    model, data = overconfident()
    held = slice(120, 400)
    X, y = data.data[held], data.target[held]
    times = np.random.default_rng(0).integers(0, 4, len(X))
    weighted = model.recalibrate(X, y, sample_weight=times).calibration_
    repeated = model.recalibrate(np.repeat(X, times, axis=0), np.repeat(y, times)).calibration_
    assert_allclose([weighted.slope, weighted.offset], [repeated.slope, repeated.offset], rtol=1e-6)


def test_recalibrating_twice_on_the_same_rows_changes_nothing():
    model, data = overconfident()
    first = model.recalibrate(data.data[120:400], data.target[120:400]).calibration_
    second = model.recalibrate(data.data[120:400], data.target[120:400]).calibration_
    assert first == second


# --- honest scores -------------------------------------------------------------------------------


def crowded(seed, n_train=160, width=80):
    """Draw rows with half as many features as rows."""
    data = make_class_specific(
        6000, n_features=width, positive_fraction=0.25, separation=3.5, random_state=seed
    )
    train, fresh = slice(0, n_train), slice(n_train, None)
    return data, train, fresh


@pytest.mark.parametrize("seed", range(4))
def test_left_out_scores_resemble_fresh_ones_and_resubstituted_do_not(seed):
    data, train, fresh = crowded(seed)
    X, y, labels = data.data, data.target, data.subclass_labels
    model = PCSDA(calibrate=False, regularization=1e-3)
    model.fit(X[train], y[train], subclass_labels=labels[train])
    ours, seen = model.log_likelihood_ratio(X[fresh]), model.log_likelihood_ratio(X[train])
    for label in (0, 1):
        truth = ours[y[fresh] == label]
        left_out = model.loo_scores_[y[train] == label]
        error = truth.std() / np.sqrt(len(left_out))
        assert abs(left_out.mean() - truth.mean()) < 4 * error
        gap = abs(seen[y[train] == label].mean() - truth.mean())
        assert gap > (4 * error if label == 1 else 2 * error)


def one_hot(seed, n_rows=1500, n_categories=8):
    """Draw a category in one-hot columns and a number; most positives have the first category."""
    rng = np.random.default_rng(seed)
    category, number = rng.integers(0, n_categories, n_rows), rng.standard_normal(n_rows)
    y = 3 * (category == 0) + number + rng.logistic(size=n_rows) > 4
    return np.column_stack([np.eye(n_categories)[category], number]), y, category


def test_left_out_positives_of_a_rare_category_equal_refits_without_them():
    X, y, category = one_hot(0)
    settings = {"random_state": 0, "calibrate": False}
    model = PCSDA(**settings).fit(X, y)
    rare = np.flatnonzero(y & (category > 0))[:6]
    for groups in (None, np.arange(len(X)) // 2):
        blocks = np.arange(len(X)) if groups is None else groups
        model.fit(X, y, groups=groups)
        refit = PCSDA(regularization=model.regularization_, **settings)
        for row in rare:
            kept = blocks != blocks[row]
            refit.fit(X[kept], y[kept], subclass_labels=model.partition_[kept])
            expected = refit.log_likelihood_ratio(X[[row]])[0]
            assert abs(model.loo_scores_[row] - expected) < 1


@pytest.mark.parametrize("make", [PCSDA, KernelPCSDA])
def test_ratios_counts_and_thresholds_are_honest_with_one_hot_columns(make):
    (X, y, _), (new, truth, _) = one_hot(0), one_hot(1)
    model = make_pipeline(StandardScaler(), make(random_state=0)).fit(X, y)
    assert cllr(truth, model.log_likelihood_ratio(new)) < 0.9
    threshold = model.choose_threshold(max_false_alarms=0.05)
    misses = 1 - model.accepts(new)[truth].mean()
    assert abs(misses - threshold.misses) < 0.15
    found = model.count(new)
    assert found.count_low <= truth.sum() <= found.count_high


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.more) for s in (1, 2, 3))])
def test_calibrated_ratios_beat_the_published_rule_with_many_features(seed):
    data, train, fresh = crowded(seed)
    X, y, labels = data.data, data.target, data.subclass_labels
    costs = {}
    for name, model in {
        "default": PCSDA(random_state=0),
        "not calibrated": PCSDA(calibrate=False, random_state=0),
        "resubstituted": PCSDA(**PLAIN),
        "published": PCSDA.published(),
    }.items():
        model.fit(X[train], y[train], subclass_labels=labels[train])
        costs[name] = cllr(y[fresh], model.log_likelihood_ratio(X[fresh]))
    bayes = cllr(y[fresh], data.log_likelihood_ratio(X[fresh]))
    assert bayes < costs["default"] < 0.9 < 1 < costs["published"]
    assert costs["not calibrated"] < costs["resubstituted"] < costs["published"]


@pytest.mark.in_turn
@pytest.mark.parametrize("negatives", ["blend", "mixture", "marginal"])
@pytest.mark.more
def test_calibration_pays_on_average(negatives):
    costs = []
    for seed in range(8):
        data, train, fresh = crowded(seed)
        X, y, labels = data.data, data.target, data.subclass_labels
        for calibrate in (True, False):
            model = PCSDA(negatives=negatives, calibrate=calibrate, regularization=0.1)
            model.fit(X[train], y[train], subclass_labels=labels[train])
            costs.append(cllr(y[fresh], model.log_likelihood_ratio(X[fresh])))
    calibrated, plain = np.mean(np.reshape(costs, (8, 2)), axis=0)
    assert calibrated < plain - 0.02


@pytest.mark.parametrize(
    "estimator",
    [
        PCSDA(6, solver="lsqr", random_state=0),
        PCSDA(6, balance="resampled", random_state=0),
        PCSDA(6, covariance="resubstitution", random_state=0),
        CSDA(4, random_state=0),
    ],
    ids=str,
)
def test_fold_scores_calibrate_where_none_are_left_out(estimator):
    data, train, fresh = crowded(0, n_train=300)
    X, y = data.data, data.target
    model = clone(estimator).fit(X[train], y[train])
    raw = clone(estimator).set_params(calibrate=False).fit(X[train], y[train])
    assert not hasattr(model, "loo_scores_")
    calibrated = cllr(y[fresh], model.log_likelihood_ratio(X[fresh]))
    assert calibrated < 1.1
    assert calibrated < cllr(y[fresh], raw.log_likelihood_ratio(X[fresh])) - 0.1


# --- odds and ends -------------------------------------------------------------------------------


def test_published_gives_the_papers_rule_and_takes_overrides():
    rule = {
        "negatives": "marginal",
        "tails": "gaussian",
        "regularization": 0.01,
        "covariance": "resubstitution",
        "shrinkage": 0,
        "calibrate": False,
    }
    expected = PCSDA(1, None, **rule).get_params()
    assert PCSDA.published().get_params() == expected
    changed = PCSDA.published(5, 3, priors="equal", calibrate=True).get_params()
    differing = {"n_subclasses": 5, "n_components": 3, "priors": "equal", "calibrate": True}
    assert changed == expected | differing
    plain = CSDA(None, shrinkage=0, calibrate=False).get_params()
    assert CSDA.published().get_params() == plain
    assert CSDA.published(2, solver="eigen").get_params() == plain | {
        "n_components": 2,
        "solver": "eigen",
    }


def test_csda_is_pcsda_with_singleton_subclasses_up_to_the_denominator():
    X, y, _ = problem()
    csda = CSDA.published(2).fit(X, y)
    samples = PCSDA.published(n_components=2, subclasses="samples").fit(X, y)
    # S_w is zero then, so S_I is S_p; both criteria and both densities coincide.
    assert_allclose(samples.eigenvalues_, csda.eigenvalues_, rtol=1e-8)
    assert_allclose(samples.components_, csda.components_, rtol=1e-6, atol=1e-9)
    found = samples.log_likelihood_ratio(X)
    assert_allclose(found, csda.log_likelihood_ratio(X), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("solver", ["lowrank", "eigen"])
def test_exact_csda_solvers_agree_on_scores(solver):
    X, y, _ = problem()
    expected = CSDA(2, calibrate=False).fit(X, y).decision_function(X)
    found = CSDA(2, solver=solver, calibrate=False).fit(X, y).decision_function(X)
    assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("solver", PCSDA_SOLVERS)
@TALL_AND_WIDE
def test_exact_pcsda_solvers_agree_on_scores(solver, width):
    X, y, groups = problem(width)
    expected = PCSDA(**PLAIN).fit(X, y, subclass_labels=groups).decision_function(X)
    model = PCSDA(solver=solver, **PLAIN).fit(X, y, subclass_labels=groups)
    assert_allclose(model.decision_function(X), expected, rtol=1e-6, atol=1e-6)


def test_components_make_the_ridged_within_scatter_the_identity():
    X, y, groups = problem()
    model = PCSDA(regularization=0.1, **PLAIN).fit(X, y, subclass_labels=groups)
    residuals = X - np.vstack([X[groups == g].mean(axis=0) for g in range(4)])[groups]
    ridge = 0.1 * np.mean(np.sum((X - X.mean(axis=0)) ** 2, axis=1))
    scatter = residuals.T @ residuals + ridge * np.eye(6)
    W = model.components_
    assert_allclose(W @ scatter @ W.T, np.eye(3), atol=1e-10)
    assert np.all(np.take_along_axis(W, np.abs(W).argmax(axis=1)[:, None], axis=1) > 0)
    assert all(first >= second for first, second in pairwise(model.eigenvalues_))


@pytest.mark.parametrize(
    "estimator", [PCSDA(3), PCSDA(3, negatives="mixture"), CSDA()], ids=["blend", "mixture", "CSDA"]
)
def test_verbose_prints_the_stages_and_the_default_is_silent(estimator, capsys):
    X, y, _ = problem()
    clone(estimator).fit(X, y)
    assert capsys.readouterr().out == ""
    clone(estimator).set_params(verbose=True).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    name = type(estimator).__name__
    expected = [f"[{name}] learning from 115 rows in {4 if name == 'PCSDA' else 2} groups"]
    if name == "PCSDA":
        expected.insert(0, "[PCSDA] dividing 85 negatives into subclasses")
    if name == "CSDA":  # no row can be left out one by one
        expected.append("[CSDA] calibrating on folds")
    assert lines == expected


@pytest.mark.filterwarnings("ignore:groups puts all")
@pytest.mark.parametrize("make", [PCSDA, KernelPCSDA])
def test_few_groups_give_as_many_folds_and_one_gives_none(make, capsys):
    X, y, subclasses = problem(spread=0.5)
    model = make(covariance="resubstitution", random_state=0, verbose=True)
    for count in (1, 2, 3):
        model.fit(X, y, subclass_labels=subclasses, groups=np.arange(len(X)) % count)
        folds = count > 1
        assert (model.calibration_.straight() != Calibration.none(1)) == folds
        assert ("calibrating on folds" in capsys.readouterr().out) == folds


@pytest.mark.parametrize("estimator", [PCSDA(2), CSDA(), KernelPCSDA(gamma="all", n_subclasses=2)])
def test_verbose_mentions_folds_only_where_there_are_some(estimator, capsys):
    X, y, _ = problem(sizes=(1, 9, 8))
    clone(estimator).set_params(verbose=True, n_components=1, shrinkage=1.0).fit(X, y)
    assert "folds" not in capsys.readouterr().out


@pytest.mark.each_value
@pytest.mark.parametrize(
    "estimator",
    [
        PCSDA(n_subclasses=4, random_state=0),
        PCSDA(n_subclasses=4, negatives="marginal", calibrate=False, random_state=0),
        PCSDA.published(3, random_state=0),
        CSDA(random_state=0),
        KernelPCSDA(n_subclasses=4, random_state=0),
        KernelPCSDA("poly", gamma=0.05, n_subclasses=4, random_state=0),
        KernelCSDA(n_components=3, random_state=0),
    ],
    ids=str,
)
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_the_fast_scorer_gives_the_log_likelihood_ratio(estimator, offset):
    X, groups, _ = make_rows([30, 20, 25, 15, 22], 6)
    if getattr(estimator, "kernel", None) != "poly":  # whose values at 1e6 have lost all digits
        X = X + offset
    model = clone(estimator).fit(X, groups == 0)
    score = model.fast_scorer()
    expected = model.log_likelihood_ratio(X)
    tolerance = 1e-9 if offset == 0 else 1e-5
    assert_allclose(score(X), expected, rtol=tolerance, atol=tolerance)
    one = score(X[3])
    assert np.ndim(one) == 0
    assert_allclose(one, expected[3], rtol=tolerance, atol=tolerance)
    assert score(X[:1]).shape == (1,)


def test_the_fast_scorer_accepts_single_precision_and_kernel_values():
    X, groups, _ = make_rows([30, 20, 25], 6)
    score = PCSDA(random_state=0).fit(X.astype(np.float32), groups == 0).fast_scorer()
    exact = PCSDA(random_state=0).fit(X, groups == 0).log_likelihood_ratio(X)
    assert_allclose(score(X.astype(np.float32)), exact, rtol=1e-3, atol=1e-3)
    matrix = X @ X.T
    model = KernelPCSDA("precomputed", random_state=0).fit(matrix, groups == 0)
    assert_allclose(model.fast_scorer()(matrix), model.log_likelihood_ratio(matrix), rtol=1e-9)
    assert_allclose(model.fast_scorer()(matrix[2]), model.log_likelihood_ratio(matrix)[2])


def test_the_fast_scorer_needs_a_fitted_model():
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        PCSDA().fast_scorer()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("labels", [np.array([0, 1]), np.array([True, False])])
def test_plain_arrays_are_checked_as_by_scikit_learn(dtype, labels):
    X = np.random.default_rng(0).standard_normal((40, 3)).astype(dtype)
    y = labels[np.arange(40) % 2]
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(X, columns=list("abc"))
    model = PCSDA(random_state=0).fit(table, y)
    expected = model.log_likelihood_ratio(table)
    model.fit(X, y)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 3
    close = 1e-4 if dtype == np.float32 else 1e-9  # a table has its numbers in another order
    assert_allclose(model.log_likelihood_ratio(X), expected, rtol=close, atol=close)
    # The sum of these numbers overflows, but they are finite.
    assert takes_plain(model, np.full_like(X, np.finfo(dtype).max / 4), y, finite=False)
    assert not takes_plain(model, np.full_like(X, np.finfo(dtype).max / 4), y)
    for wrong in (np.nan, np.inf, -np.inf):
        X[3, 1] = wrong
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            model.fit(X, y)
    for bad_X, bad_y in ((X[0], y), (X[:0], y[:0]), (X[:, :0], y), (X, y[1:]), (X, y[:, None])):
        assert not takes_plain(model, bad_X, bad_y, finite=False)

"""A class of interest made of several clouds: laws of the joined ratio, and the gain from modes."""

import pickle

import numpy as np
import pytest
from factories import in_turn, lean, make_rows
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline as plain_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils import check_random_state
from sklearn.utils.estimator_checks import parametrize_with_checks

from pcsda import (
    CSDA,
    PCSDA,
    PCSDACV,
    KernelCSDA,
    KernelPCSDA,
    MixtureVerifier,
    load,
    make_pipeline,
    save,
)
from pcsda.core.calibration import fit_calibration
from pcsda.metrics import cllr, make_detection_scorer, min_cllr
from pcsda.persistence import describe
from pcsda.report import evaluate
from pcsda.scoring import Scorer

LINEAR = PCSDA(3, random_state=0)
EVERY = {
    "linear": LINEAR,
    "published": PCSDA.published(3, random_state=0),
    "csda": CSDA(2, random_state=0),
    "kernel": KernelPCSDA(n_subclasses=2, random_state=0),
    "kernel csda": KernelCSDA(n_components=2, random_state=0),
    "pipeline": plain_pipeline(StandardScaler(), LINEAR),
    "search": PCSDACV(LINEAR, n_subclasses=[1, 3], regularization=0.1),
}
every = in_turn("name", list(EVERY))
METHODS = (
    *("log_likelihood_ratio", "decision_function", "predict", "predict_proba"),
    *("predict_log_proba", "score_samples", "rank"),
)


@pytest.mark.each_value
@every
@pytest.mark.parametrize("n_modes", [1, 2])
def test_a_mixture_has_the_methods_of_a_verifier(name, n_modes):
    X, y, _ = clouds(2, 400)
    new, truth, _ = clouds(2, 400, seed=1)
    model = MixtureVerifier(clone(EVERY[name]), n_modes=n_modes).fit(X, y)
    ratios = model.log_likelihood_ratio(new)
    score = model.fast_scorer()
    assert_allclose(score(new), ratios, rtol=1e-8, atol=1e-8)
    assert_allclose(score(new[0]), ratios[0], rtol=1e-8, atol=1e-8)
    found = model.choose_threshold(max_misses=0.2, X=new, y=truth)
    assert_array_equal(model.accepts(new), ratios >= found.value)
    assert model.count(new).n_rows == len(new)
    slope, offset = model.calibration_.slope, model.calibration_.offset
    fresh = fit_calibration((ratios[None] - offset) / slope, truth == 1)
    model.recalibrate(new, truth)
    assert not hasattr(model, "threshold_")
    expected = fresh.slope * (ratios - offset) / slope + fresh.offset
    assert_allclose(model.log_likelihood_ratio(new), expected, rtol=1e-6, atol=1e-6)


def clouds(n_modes, n_rows=1500, seed=0, width=20, n_subclasses=8, apart=0.85):
    """Draw a class of several clouds among others; the clouds do not depend on the seed."""
    places = np.random.default_rng(3).standard_normal((n_modes + n_subclasses, width)) * apart
    rng = np.random.default_rng(seed)
    n_positive = n_rows // 10
    which = np.concatenate(
        [
            rng.integers(n_modes, size=n_positive),
            n_modes + rng.integers(n_subclasses, size=n_rows - n_positive),
        ]
    )
    X = places[which] + 1.3 * rng.standard_normal((n_rows, width))
    return X, (np.arange(n_rows) < n_positive).astype(int), places


def two_clouds(seed=0, spread=0.8):
    """Return few rows; groups 0 and 1 are the class of interest."""
    X, groups, _ = make_rows((40, 45, 50, 35), 6, seed=seed, spread=spread)
    return X, (groups < 2).astype(int), groups


# --- the laws ------------------------------------------------------------------------------------


@every
def test_one_mode_equals_the_estimator(name):
    X, y, _ = two_clouds()
    new = two_clouds(1)[0]
    model = MixtureVerifier(EVERY[name], n_modes=1).fit(X, y)
    alone = clone(EVERY[name]).fit(X, y)
    inside = Scorer(alone).final
    rows = new if name != "pipeline" else alone[0].transform(new)
    for method in METHODS:
        assert_array_equal(getattr(model, method)(new), getattr(inside, method)(rows))
    assert_array_equal(model.class_prior_, inside.class_prior_)
    assert model.n_modes_ == 1
    assert model.mode_counts_.tolist() == [85]
    if hasattr(inside, "loo_scores_"):
        assert_array_equal(model.loo_scores_, inside.loo_scores_)


@every
def test_the_ratio_equals_a_mixture_of_verifiers(name):
    X, y, _ = two_clouds()
    new = two_clouds(1)[0]
    model = MixtureVerifier(EVERY[name], n_modes=2).fit(X, y)
    ratios = []
    for mode in range(2):
        rows = (model.modes_ == mode) | (y == 0)
        alone = clone(EVERY[name]).fit(X[rows], y[rows])
        ratios.append(Scorer(alone).log_likelihood_ratios(new)[:, 0])
    shares = model.mode_counts_ / y.sum()
    joined = np.log(shares @ np.exp(ratios)) if name == "linear" else None
    stable = logsumexp(np.array(ratios) + np.log(shares)[:, None], axis=0)
    if joined is not None:
        assert_allclose(stable, joined, rtol=1e-9, atol=1e-9)
    slope, offset = model.calibration_.slope, model.calibration_.offset
    assert_allclose(model.log_likelihood_ratio(new), slope * stable + offset, rtol=1e-9)
    assert slope > 0
    assert ((slope, offset) == (1, 0)) == (name == "published")


def test_positives_are_left_out_of_their_own_mode_and_new_to_the_others():
    X, y, _ = two_clouds(spread=1.0)
    model = MixtureVerifier(LINEAR, n_modes=2).fit(X, y)
    scores = np.array([one.log_likelihood_ratio(X) for one in model.models_])
    for mode, one in enumerate(model.models_):
        scores[mode, (model.modes_ == mode) | (y == 0)] = one.loo_scores_
    joined = logsumexp(scores + np.log(model.mode_counts_ / y.sum())[:, None], axis=0)
    calibration = fit_calibration(joined[None], y == 1)
    assert_allclose(model.calibration_.slope, calibration.slope, rtol=1e-9)
    assert_allclose(model.loo_scores_, calibration(joined[None]), rtol=1e-9)
    assert not np.allclose(model.loo_scores_, model.log_likelihood_ratio(X))


@pytest.mark.parametrize("name", ["csda", pytest.param("kernel csda", marks=pytest.mark.more)])
def test_estimators_without_left_out_rows_are_calibrated_on_folds(name):
    X, y, _ = two_clouds(spread=0.5)
    model = MixtureVerifier(EVERY[name], n_modes=2).fit(X, y)
    assert not hasattr(model.models_[0], "loo_scores_")
    scores = np.empty(len(X))
    folds = StratifiedKFold(5, shuffle=True, random_state=check_random_state(0).randint(2**31 - 1))
    for train, test in folds.split(X, y):
        rows = [train[(model.modes_[train] == mode) | (y[train] == 0)] for mode in range(2)]
        ratios = [clone(EVERY[name]).fit(X[r], y[r]).log_likelihood_ratio(X[test]) for r in rows]
        shares = np.bincount(model.modes_[train][y[train] == 1]) / y[train].sum()
        scores[test] = logsumexp(np.array(ratios) + np.log(shares)[:, None], axis=0)
    calibration = fit_calibration(scores[None], y == 1)
    assert_allclose(model.loo_scores_, calibration(scores[None]), rtol=1e-7, atol=1e-7)


def test_the_ratio_of_planted_clouds_is_recovered():
    X, y, places = clouds(2, 20000, apart=0.6)
    new, truth, _ = clouds(2, 4000, seed=1, apart=0.6)
    densities = np.array([multivariate_normal(p, 1.3**2).logpdf(new) for p in places])
    exact = logsumexp(densities[:2], axis=0) - np.log(2)
    exact -= logsumexp(densities[2:], axis=0) - np.log(8)
    model = MixtureVerifier(PCSDA(8, random_state=0), n_modes=2).fit(X, y)
    found = model.log_likelihood_ratio(new)
    assert np.corrcoef(found, exact)[0, 1] > 0.9
    assert cllr(truth, found) < cllr(truth, exact) + 0.03


def test_label_names_do_not_matter():
    X, y, groups = two_clouds()
    usual = MixtureVerifier(LINEAR, n_modes=2).fit(X, y)
    first = MixtureVerifier(clone(LINEAR).set_params(pos_label="a"), n_modes=2)
    first.fit(X, np.where(y, "a", "b"))
    assert_array_equal(first.decision_function(X), -usual.decision_function(X))
    assert first.score(X, np.where(y, "a", "b")) == usual.score(X, y)
    many = np.where(y, "a", np.array(["", "", "c", "d"])[groups])
    among = clone(first).fit(X, many)
    assert among.classes_.tolist() == ["not a", "a"]
    assert_array_equal(among.decision_function(X), usual.decision_function(X))


def test_priors_come_from_the_estimator():
    X, y, _ = two_clouds()
    model = MixtureVerifier(PCSDA(3, priors=(0.2, 0.8), random_state=0), n_modes=2).fit(X, y)
    assert model.class_prior_.tolist() == [0.2, 0.8]
    odds = model.log_likelihood_ratio(X) + np.log(4)
    assert_allclose(model.decision_function(X), odds, rtol=1e-12)


def test_weights_count_and_zero_weight_rows_do_not():
    X, y, _ = two_clouds()
    weights = np.random.default_rng(0).integers(1, 4, len(X))
    model = MixtureVerifier(LINEAR, n_modes=2).fit(X, y, sample_weight=weights)
    assert_allclose(model.mode_counts_.sum(), weights[y == 1].sum())
    assert_allclose(model.class_prior_[1], weights[y == 1].sum() / weights.sum())
    ones = MixtureVerifier(LINEAR, n_modes=2).fit(X, y, sample_weight=np.ones(len(X)))
    plain = MixtureVerifier(LINEAR, n_modes=2).fit(X, y)
    assert_array_equal(ones.log_likelihood_ratio(X), plain.log_likelihood_ratio(X))
    # A row of weight zero gets a mode but has no influence.
    weights = np.where(np.arange(len(X)) % 7 == 0, 0, 1)
    without = MixtureVerifier(LINEAR, n_modes=2).fit(X, y, sample_weight=weights)
    assert without.mode_counts_.sum() == weights[y == 1].sum()
    counted = weights > 0
    gone = MixtureVerifier(LINEAR, n_modes=2).fit(X[counted], y[counted])
    assert_allclose(without.log_likelihood_ratio(X), gone.log_likelihood_ratio(X), rtol=1e-9)
    assert_array_equal(without.modes_[counted], gone.modes_)
    assert_allclose(without.loo_scores_[counted], gone.loo_scores_, rtol=1e-9)
    new = gone.log_likelihood_ratio(X[~counted])
    assert_allclose(without.loo_scores_[~counted], new, rtol=1e-9)


def test_subclasses_and_groups_reach_the_estimator():
    X, y, groups = two_clouds()
    given = MixtureVerifier(LINEAR, n_modes=2).fit(X, y, subclass_labels=groups)
    for mode, model in enumerate(given.models_):
        rows = (given.modes_ == mode) | (y == 0)
        assert_array_equal(model.partition_[y[rows] == 0], groups[rows][y[rows] == 0] - 1)
    piped = MixtureVerifier(plain_pipeline(StandardScaler(), LINEAR), n_modes=2)
    piped.fit(X, y, subclass_labels=groups)
    assert [len(model[-1].subclass_counts_) for model in piped.models_] == [2, 2]
    recordings = np.arange(len(X)) // 5
    model = MixtureVerifier(LINEAR, n_modes=2).fit(X, y, groups=recordings)
    for recording in np.unique(recordings[y == 1]):
        assert len(np.unique(model.modes_[(recordings == recording) & (y == 1)])) == 1
    alone = MixtureVerifier(LINEAR, n_modes=2).fit(X, y)
    assert not np.allclose(model.loo_scores_, alone.loo_scores_)


def test_a_pipelines_modes_are_found_in_its_transformed_space():
    X, y, _ = two_clouds(spread=0.5)
    wide = np.column_stack([X, 1e6 * np.random.default_rng(0).standard_normal(len(X))])
    model = MixtureVerifier(plain_pipeline(StandardScaler(), LINEAR), n_modes=2).fit(wide, y)
    expected = MixtureVerifier(LINEAR, n_modes=2).fit(StandardScaler().fit_transform(wide), y)
    assert_array_equal(model.modes_, expected.modes_)


def test_samples_of_a_trial_come_from_one_mode():
    X, y, _ = two_clouds()
    model = MixtureVerifier(LINEAR, n_modes=2).fit(X, y)
    trials = np.arange(len(X)) // 3
    ratios = np.array([one.log_likelihood_ratio(X, trials) for one in model.models_])
    joined = logsumexp(ratios + np.log(model.mode_counts_ / y.sum())[:, None], axis=0)
    assert_allclose(
        model.log_likelihood_ratio(X, trials), model.calibration_(joined[None]), rtol=1e-9
    )


def test_ranks_are_by_likelihood_or_by_the_nearest_mode():
    X, y, _ = two_clouds()
    model = MixtureVerifier(LINEAR, n_modes=2).fit(X, y)
    nearest = np.max([one.score_samples(X) for one in model.models_], axis=0)
    assert_array_equal(model.score_samples(X), nearest)
    by_distance = np.argsort(-nearest, kind="stable")
    by_likelihood = np.argsort(-model.log_likelihood_ratio(X), kind="stable")
    assert_array_equal(model.rank(X), by_likelihood)
    assert_array_equal(model.rank(X, by="distance"), by_distance)
    published = MixtureVerifier(PCSDA.published(3, random_state=0), n_modes=2).fit(X, y)
    assert_array_equal(published.rank(X), published.rank(X, by="distance"))


# --- the number of modes -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.more)])
def test_one_cloud_is_one_mode_and_equals_the_estimator(seed):
    X, y, _ = clouds(1, seed=seed)
    model = MixtureVerifier(PCSDA(random_state=0)).fit(X, y)
    assert model.n_modes_ == 1
    expected = PCSDA(random_state=0).fit(X, y)
    assert_array_equal(model.log_likelihood_ratio(X), expected.log_likelihood_ratio(X))
    assert list(model.losses_) == [1, 2, 3, 5]
    assert model.losses_[1] == min(model.losses_.values())


@pytest.mark.more  # some hundred fits
def test_losses_come_from_folds_that_find_the_modes_again():
    X, y, _ = two_clouds(spread=0.6)
    model = MixtureVerifier(LINEAR).fit(X, y)
    assert list(model.losses_)[:2] == [1, 2]
    seed = check_random_state(LINEAR.random_state).randint(2**31 - 1)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    for count, loss in model.losses_.items():
        scores = np.empty(len(X))
        for train, test in folds.split(X, y):
            modes = KMeans(count, n_init=10, random_state=seed).fit_predict(X[train][y[train] == 1])
            scores[test] = joined(X, y, train, modes, test)
        scores = fit_calibration(scores[None], y == 1)(scores[None])
        odds = scores + np.log(y.mean() / (1 - y.mean()))
        assert_allclose(np.logaddexp(0, np.where(y, -odds, odds)).mean(), loss, rtol=1e-6)


def joined(X, y, train, modes, test):
    """Return ratios of test rows, joined over verifiers for the modes of `train`'s positives."""
    inside, outside = train[y[train] == 1], train[y[train] == 0]
    ratios = []
    for mode in range(modes.max() + 1):
        rows = np.sort(np.r_[inside[modes == mode], outside])
        ratios.append(clone(LINEAR).fit(X[rows], y[rows]).log_likelihood_ratio(X[test]))
    shares = np.bincount(modes) / len(modes)
    return logsumexp(np.array(ratios) + np.log(shares)[:, None], axis=0)


@pytest.mark.parametrize(
    ("n_positive", "tried"),
    [(19, None), (25, [1, 2]), pytest.param(38, [1, 2, 3], marks=pytest.mark.more)],
)
def test_every_mode_has_ten_positives(n_positive, tried):
    rng = np.random.default_rng(0)
    places = 6 * np.eye(3)[np.arange(n_positive) % 3]
    if n_positive == 25:
        places = 6 * np.eye(3)[np.arange(n_positive) % 2]
    X = np.vstack([places, np.zeros((80, 3))]) + rng.standard_normal((n_positive + 80, 3))
    y = np.arange(len(X)) < n_positive
    model = MixtureVerifier(PCSDA(2, random_state=0)).fit(X, y)
    assert (list(model.losses_) if hasattr(model, "losses_") else None) == tried
    assert model.mode_counts_.min() >= 10


# --- what it gains -------------------------------------------------------------------------------

DIGITS = load_digits(return_X_y=True)


@pytest.mark.more  # planted clouds, below, show the same
@pytest.mark.parametrize("estimator", [PCSDA(random_state=0), KernelPCSDA(random_state=0)])
def test_pairs_of_digits_are_found_as_well_as_by_an_svm(estimator):
    X, digits = DIGITS
    found = {"mixture": [], "alone": [], "svm": []}
    for pair in ((1, 8), (2, 5), (4, 6), (3, 8)):
        y = np.isin(digits, pair)
        parts = train_test_split(X, y, stratify=digits, test_size=0.5, random_state=0)
        for name, model in (("mixture", MixtureVerifier(estimator)), ("alone", estimator),
                            ("svm", SVC())):  # fmt: skip
            scores = clone(model).fit(parts[0], parts[2]).decision_function(parts[1])
            found[name].append(average_precision_score(parts[3], scores))
    means = {name: np.mean(values) for name, values in found.items()}
    assert means["mixture"] >= means["svm"]
    if isinstance(estimator, PCSDA):
        assert means["mixture"] > means["alone"] + 0.003


def test_unchecked_negatives_reach_the_verifier_of_each_mode():
    X, y, _ = clouds(2)
    negative = y == 0
    unchecked = negative & (np.arange(len(y)) % 2 == 0)
    estimator = PCSDA(contamination="auto", random_state=0)
    model = MixtureVerifier(estimator, n_modes=2).fit(X, y, unchecked=unchecked)
    for mode, found in enumerate(model.models_):
        rows = np.flatnonzero((model.modes_ == mode) | negative)
        alone = clone(found).fit(X[rows], y[rows], unchecked=unchecked[rows])
        assert found.contamination_ == alone.contamination_
        assert_array_equal(found.log_likelihood_ratio(X), alone.log_likelihood_ratio(X))
    with pytest.raises(ValueError, match="unchecked has shape"):
        model.fit(X, y, unchecked=unchecked[:-1])


@pytest.mark.more  # a matter of quality, on large samples
@pytest.mark.parametrize("n_modes", [2, 3])
def test_planted_clouds_are_found_better_than_by_an_svm_and_ratios_are_calibrated(n_modes):
    new, truth, _ = clouds(n_modes, 10000, seed=100)
    gained = []
    for seed in range(6):
        X, y, _ = clouds(n_modes, seed=seed)
        ratios = MixtureVerifier(PCSDA(random_state=0)).fit(X, y).log_likelihood_ratio(new)
        machine = SVC().fit(X, y).decision_function(new)
        gained.append(
            average_precision_score(truth, ratios) - average_precision_score(truth, machine)
        )
        assert cllr(truth, ratios) < 1.1 * min_cllr(truth, ratios)
    assert np.mean(gained) > 0


# --- among other estimators ----------------------------------------------------------------------


def repeated_rows_differ_by_nature(estimator):
    reason = "a left-out row of weight two takes its copy along, and k-means draws other starts"
    return {
        "check_sample_weight_equivalence_on_dense_data": reason,
        "check_sample_weight_equivalence_on_sparse_data": reason,
    }


@lean(
    parametrize_with_checks(
        [MixtureVerifier(PCSDA(1, random_state=0), n_modes=2)],
        expected_failed_checks=repeated_rows_differ_by_nature,
    )
)
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.more
@parametrize_with_checks(
    [MixtureVerifier(PCSDA(random_state=0))], expected_failed_checks=repeated_rows_differ_by_nature
)
def test_scikit_learn_checks_pass_with_auto(estimator, check):
    check(estimator)


@pytest.mark.each_value
@every
@pytest.mark.parametrize("n_modes", [1, 2])
def test_models_are_saved_and_loaded(name, n_modes, tmp_path):
    X, y, _ = two_clouds()
    model = MixtureVerifier(EVERY[name], n_modes=n_modes).fit(X, y)
    save(model, tmp_path / "m.pcsda")
    again = load(tmp_path / "m.pcsda")
    assert_array_equal(again.log_likelihood_ratio(X), model.log_likelihood_ratio(X))
    assert again.n_modes_ == n_modes
    facts = describe(tmp_path / "m.pcsda")
    assert facts["model"].startswith("MixtureVerifier(")
    assert (facts["n_samples"], facts["n_positive"], facts["pos_label"]) == (170, 85, 1)


@pytest.mark.more
def test_losses_survive_saving_and_a_refit_drops_them(tmp_path):
    X, y, _ = two_clouds()
    model = MixtureVerifier(LINEAR).fit(X, y)
    save(model, tmp_path / "m.pcsda")
    assert load(tmp_path / "m.pcsda").losses_ == model.losses_
    assert hasattr(model, "loo_scores_")
    model.set_params(n_modes=1, estimator=CSDA(2, random_state=0)).fit(X, y)
    assert not hasattr(model, "losses_")
    assert not hasattr(model, "loo_scores_")


def test_pickles_clones_and_searches_work():
    X, y, _ = two_clouds()
    model = MixtureVerifier(LINEAR, n_modes=2).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.log_likelihood_ratio(X), model.log_likelihood_ratio(X))
    assert clone(model).get_params()["estimator__n_subclasses"] == 3
    grid = {"n_modes": [1, 2], "estimator__n_subclasses": [1, 3]}
    search = GridSearchCV(model, grid, cv=3, scoring=make_detection_scorer(cllr)).fit(X, y)
    assert search.best_estimator_.n_modes_ in (1, 2)


def test_a_mixture_can_end_a_pipeline():
    X, y, _ = two_clouds()
    model = make_pipeline(StandardScaler(), MixtureVerifier(LINEAR, n_modes=2)).fit(X, y)
    rows = model[0].transform(X)
    assert_array_equal(model.log_likelihood_ratio(X), model[-1].log_likelihood_ratio(rows))
    assert_array_equal(model.rank(X), model[-1].rank(rows))
    assert not hasattr(model, "explain")


def test_a_report_has_no_subspace_and_names_the_modes():
    X, y, _ = two_clouds()
    model = MixtureVerifier(LINEAR, n_modes=2).fit(X, y)
    report = evaluate(model, X, y, n_resamples=5)
    assert report.facts["Modes"] == "2"
    assert report.subspaces == [None]


def test_sparse_and_single_precision_rows_work():
    sparse = pytest.importorskip("scipy.sparse")
    X, y, _ = two_clouds()
    model = MixtureVerifier(PCSDA(2, random_state=0), n_modes=2).fit(sparse.csr_array(X), y)
    ratios = model.log_likelihood_ratio(sparse.csr_array(X))
    assert_allclose(model.log_likelihood_ratio(X), ratios, rtol=1e-6, atol=1e-6)
    narrow = MixtureVerifier(LINEAR, n_modes=2).fit(X.astype(np.float32), y)
    assert narrow.log_likelihood_ratio(X.astype(np.float32)).dtype == np.float32


def test_many_negatives_are_all_left_out_by_every_mode():
    X, y, _ = two_clouds()
    template = PCSDA(3, calibration_rows=20, random_state=0)
    model = MixtureVerifier(template, n_modes=2).fit(X, y)
    assert np.isfinite(model.loo_scores_).all()
    assert template.calibration_rows == 20
    single = MixtureVerifier(template, n_modes=1).fit(X, y)
    assert np.isnan(single.loo_scores_).any()


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (MixtureVerifier(n_modes=0), ValueError, "n_modes=0 must be a whole number of at least 1"),
        (MixtureVerifier(n_modes="two"), ValueError, "n_modes='two' must be a whole number"),
        (MixtureVerifier(n_modes=99), ValueError, r"n_modes=99 must be at most 85 \(= number of"),
        (MixtureVerifier(LogisticRegression()), TypeError, "takes PCSDA, CSDA, .* got LogisticReg"),
        (MixtureVerifier(KernelPCSDA("precomputed")), ValueError, "has no rows to find modes in"),
    ],
)
def test_bad_input_is_refused(model, error, message):
    X, y, _ = two_clouds()
    with pytest.raises(error, match=message):
        model.fit(X, y)


def test_without_a_fit_there_are_no_scores():
    X, y, _ = two_clouds()
    for method in ("log_likelihood_ratio", "rank", "score_samples", "predict"):
        with pytest.raises(NotFittedError):
            getattr(MixtureVerifier(), method)(X)
    model = MixtureVerifier(LINEAR, n_modes=2).fit(X, y)
    with pytest.raises(ValueError, match="by='score' must be one of 'distance', 'likelihood'"):
        model.rank(X, by="score")


def test_one_positive_is_one_mode():
    X, y, _ = two_clouds()
    y = (np.arange(len(X)) == 3).astype(int)
    model = MixtureVerifier(LINEAR).fit(X, y)
    expected = clone(LINEAR).fit(X, y)
    assert_array_equal(model.log_likelihood_ratio(X), expected.log_likelihood_ratio(X))


def three_clouds():
    """Twelve rows of each of three clouds, each cloud a group, among 200 broad negatives."""
    rng = np.random.default_rng(0)
    centres = 4 * rng.standard_normal((3, 6))
    X = np.concatenate([np.repeat(centres, 12, axis=0), np.zeros((200, 6))])
    X += rng.standard_normal(X.shape) * np.where(np.arange(236) < 36, 1, 3)[:, None]
    return X, np.arange(236) < 36, np.append(np.repeat(np.arange(3), 12), np.arange(3, 203))


@pytest.mark.filterwarnings("error")
def test_divisions_that_are_only_tried_warn_of_nothing():
    X, y, groups = three_clouds()
    model = MixtureVerifier(LINEAR).fit(X, y, groups=groups)
    assert set(model.losses_) > {1} == {model.n_modes_}


@pytest.mark.filterwarnings("error")
def test_a_mode_with_one_row_in_a_fold_is_not_called_the_class():
    # Wide rows of rare ones: within a fold, k-means makes modes of one row.
    rng = np.random.default_rng(0)
    y = np.arange(750) < 100
    X = (rng.random((750, 100)) < 0.02 + 0.05 * y[:, None]).astype(float)
    assert 3 in MixtureVerifier(LINEAR).fit(X, y).losses_


def test_a_warning_of_one_mode_names_the_mode():
    X, y, groups = three_clouds()
    with pytest.warns(UserWarning, match="^mode . of 3, with 12 positives: groups puts all 12"):
        MixtureVerifier(LINEAR, n_modes=3).fit(X, y, groups=groups)
    X[0] = 50
    with pytest.warns(UserWarning, match="^mode . of 4, with 1 positive: a single positive"):
        MixtureVerifier(LINEAR, n_modes=4).fit(X, y)


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["csda", "kernel csda", "resubstituted"])
def test_one_mode_keeps_the_scores_of_folds(name, tmp_path):
    estimator = {**EVERY, "resubstituted": PCSDA(3, covariance="resubstitution", random_state=0)}
    X, y, _ = three_clouds()
    alone = clone(estimator[name]).fit(X, y)
    model = MixtureVerifier(clone(estimator[name]), n_modes=1).fit(X, y)
    chosen = model.choose_threshold(max_false_alarms=0.1)
    assert chosen == alone.choose_threshold(max_false_alarms=0.1)
    assert model.count(X) == alone.count(X)
    save(model, tmp_path / "model.pcsda")
    assert load(tmp_path / "model.pcsda").threshold_ == chosen
    assert not hasattr(model.set_params(n_modes=2).fit(X, y), "held_out_")

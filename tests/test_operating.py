"""Thresholds and counts of fitted models: chosen from left-out scores, stored, saved, refused."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from pcsda import (
    CSDA,
    PCSDA,
    PCSDACV,
    KernelCSDA,
    KernelPCSDA,
    MixtureVerifier,
    MultilinearCSDA,
    Threshold,
    VerifierBank,
    fit_blocks,
    load,
    save,
)
from pcsda import make_pipeline as pcsda_pipeline
from pcsda.core.threshold import choose_threshold
from pcsda.datasets import make_class_specific
from pcsda.estimators.operating import count_positives
from pcsda.metrics import PriorEstimate, bayes_threshold, estimate_prior
from pcsda.unwrap import unwrap

DATA = make_class_specific(3000, n_features=10, positive_fraction=0.2, random_state=0)
X, Y = DATA.data[:600], DATA.target[:600]
NEW, NEW_Y = DATA.data[600:], DATA.target[600:]
NO_SCORES = "^this model has no left-out scores to choose a threshold from; give rows that were not"


@pytest.fixture(scope="module")
def model():
    return PCSDA(6, random_state=0).fit(X, Y)


VERIFIERS = {
    "PCSDA": PCSDA(6, random_state=0),
    "KernelPCSDA": KernelPCSDA(n_subclasses=6, random_state=0),
    "PCSDACV": PCSDACV(n_subclasses=6, n_components=[2, 4], regularization=0.1),
    "mixture": MixtureVerifier(PCSDA(6, random_state=0), n_modes=2),
    "pipeline": PCSDACV(
        make_pipeline(StandardScaler(), PCSDA(random_state=0)),
        n_subclasses=6,
        n_components=4,
        regularization=0.1,
    ),
}


@pytest.mark.parametrize("kind", VERIFIERS)
def test_false_alarms_on_fresh_rows_are_near_the_target(kind):
    verifier = clone(VERIFIERS[kind]).fit(X, Y)
    found = verifier.choose_threshold(max_false_alarms=0.05)
    assert isinstance(found, Threshold)
    assert verifier.threshold_ is found
    assert (found.n_negatives, found.n_positives) == (np.sum(Y == 0), np.sum(Y == 1))
    accepted = verifier.accepts(NEW)
    assert accepted.dtype == bool
    np.testing.assert_array_equal(accepted, verifier.log_likelihood_ratio(NEW) >= found.value)
    assert 0.025 < accepted[NEW_Y == 0].mean() < 0.1
    assert found.misses == pytest.approx(1 - accepted[NEW_Y == 1].mean(), abs=0.15)


IN_FOLDS = {
    "CSDA": CSDA(5, random_state=0),
    "KernelCSDA": KernelCSDA(n_components=5, gamma=0.02, random_state=0),
    "MultilinearCSDA": MultilinearCSDA((2, 3), shape=(2, 5), random_state=0),
    "lsqr": PCSDA(6, solver="lsqr", random_state=0),
    "resubstitution": PCSDA(6, covariance="resubstitution", random_state=0),
    "mixture": MixtureVerifier(CSDA(5, random_state=0), n_modes=2),
}


@pytest.mark.parametrize("kind", IN_FOLDS)
def test_models_calibrated_on_folds_keep_their_false_alarms_near_the_target(kind):
    verifier = clone(IN_FOLDS[kind]).fit(X, Y)
    found = verifier.choose_threshold(max_false_alarms=0.05)
    assert min(found.n_negatives, found.n_positives) >= 100
    assert 0.02 < verifier.accepts(NEW[NEW_Y == 0]).mean() < 0.1
    assert found.misses == pytest.approx(1 - verifier.accepts(NEW[NEW_Y == 1]).mean(), abs=0.15)


FOLDED = {
    "csda": CSDA(),
    "kernel csda": KernelCSDA(),
    "multilinear": MultilinearCSDA((2, 2), shape=(100, 2)),
    "resubstituted": PCSDA(covariance="resubstitution", random_state=0),
    "mixture": MixtureVerifier(CSDA(), n_modes=1),
    "pipeline": pcsda_pipeline(StandardScaler(), CSDA()),
}


@pytest.mark.parametrize(("n_positive", "told"), [(12, True), (40, True), (60, False)])
def test_counts_of_csda_name_a_scatter_close_to_singular(n_positive, told):
    """With twice as many positives as columns, it counted 176 for 100 without a word."""
    rng = np.random.default_rng(0)
    X = np.vstack([0.8 * rng.standard_normal((n_positive, 20)), rng.standard_normal((200, 20))])
    X[n_positive:, 0] += 2
    model = CSDA(random_state=0).fit(X, np.arange(len(X)) < n_positive)
    assert ("differs so much between folds" in model.count(X[::2] + 0.1).note) == told


@pytest.mark.parametrize("name", list(FOLDED))
def test_folds_with_too_few_positives_are_named(name):
    # The models of the folds learned from one positive, the model itself from two.
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 200)), np.arange(400) < 2
    X[y] += 0.5
    model = clone(FOLDED[name]).fit(X, y)
    said = "leaves rows out in folds, which takes 10 positives. With 2, "
    with pytest.warns(UserWarning, match=f"{said}.* Give rows"):
        model.choose_threshold(max_false_alarms=0.05)
    assert said in model.count(X).note


@pytest.mark.parametrize("n_positive", [28, 36, 45, 90])
def test_csda_with_about_as_many_positives_as_columns_is_named(n_positive):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((500, 30)), np.arange(500) < n_positive
    X[y] += 0.4
    model, near = CSDA().fit(X, y), n_positive < 90
    said = f"With {n_positive} positives in 30 columns, the scatter"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.choose_threshold(max_false_alarms=0.05)
    assert [said in str(each.message) for each in caught] == [True] * near
    assert (said in model.count(X).note) == near
    rate = model.accepts(rng.standard_normal((5000, 30))).mean()
    assert (rate > 0.075) == near
    assert "columns" not in KernelCSDA().fit(X, y).count(X).note


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", [*FOLDED, "left out"])
def test_folds_with_enough_positives_and_closed_forms_need_no_warning(name):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 200)), np.arange(400) < (5 if name == "left out" else 10)
    X[y] += 0.5
    model = clone(FOLDED.get(name, PCSDA(random_state=0))).fit(X, y)
    model.choose_threshold(max_false_alarms=0.05)
    assert "in folds" not in model.count(X).note
    rows = X[[0, -1]], y[[0, -1]]
    assert model.choose_threshold(prior=0.5, X=rows[0], y=rows[1]).n_positives == 1


def test_scores_in_folds_are_the_calibrated_scores_of_models_without_the_fold():
    settings = {"covariance": "resubstitution", "regularization": 0.1, "random_state": 0}
    rows, labels = X[:400], Y[:400]
    verifier = PCSDA(6, **settings).fit(rows, labels)
    scores, positive, weights = verifier.held_out_
    assert weights is None
    np.testing.assert_array_equal(positive, labels == 1)
    seed = check_random_state(0).randint(2**31 - 1)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    for train, test in folds.split(rows, labels == 1):
        part = PCSDA(calibrate=False, **settings)
        part.fit(rows[train], labels[train], subclass_labels=verifier.partition_[train])
        expected = verifier.calibration_(part.log_likelihood_ratio(rows[test])[None])
        np.testing.assert_allclose(scores[test], expected, rtol=1e-8)


def in_blocks(model, rows, labels):
    cut = len(rows) // 3
    return fit_blocks(model, [(rows[:cut], labels[:cut]), (rows[cut:], labels[cut:])])


@pytest.mark.parametrize("kind", ["PCSDA", "CSDA"])
def test_models_fitted_in_blocks_choose_thresholds(kind):
    own = clone((VERIFIERS | IN_FOLDS)[kind])
    verifier = in_blocks(own, X, Y)
    found = verifier.choose_threshold(max_false_alarms=0.05)
    assert (found.n_negatives, found.n_positives) == (np.sum(Y == 0), np.sum(Y == 1))
    assert 0.02 < verifier.accepts(NEW[NEW_Y == 0]).mean() < 0.1


def test_left_out_rows_of_blocks_score_as_in_memory():
    given = PCSDA(6, random_state=0).fit(X, Y).partition_
    whole = PCSDA(random_state=0).fit(X, Y, subclass_labels=given)
    blocks = [(X[:250], Y[:250], given[:250]), (X[250:], Y[250:], given[250:])]
    scores, positive, _ = fit_blocks(PCSDA(random_state=0), blocks).held_out_
    for mask, own in ((positive, Y == 1), (~positive, Y == 0)):
        expected = np.sort(whole.loo_scores_[own])
        np.testing.assert_allclose(np.sort(scores[mask]), expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:a single positive shows no spread")
def test_blocks_with_one_positive_name_what_is_missing():
    rows = np.r_[np.flatnonzero(Y == 1)[:1], np.flatnonzero(Y == 0)]
    verifier = in_blocks(PCSDA(6, random_state=0), X[rows], Y[rows])
    assert verifier.choose_threshold(max_false_alarms=0.05).n_positives == 0
    with pytest.raises(ValueError, match="no positives to count errors on among left-out rows"):
        verifier.choose_threshold(max_misses=0.1)


def test_a_new_calibration_moves_scores_in_folds_too():
    verifier = CSDA(5, random_state=0).fit(X, Y)
    before, ratios = verifier.held_out_[0], verifier.log_likelihood_ratio(NEW)
    verifier.recalibrate(NEW, NEW_Y)
    slope, offset = np.polyfit(ratios, verifier.log_likelihood_ratio(NEW), 1)
    np.testing.assert_allclose(verifier.held_out_[0], slope * before + offset, rtol=1e-6)


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", IN_FOLDS)
def test_models_without_left_out_scores_take_given_rows(kind):
    verifier = clone(IN_FOLDS[kind])
    name = "estimator__calibrate" if kind == "mixture" else "calibrate"
    verifier.set_params(**{name: False}).fit(X, Y)
    if kind == "mixture":
        del verifier.loo_scores_
    with pytest.raises(ValueError, match=NO_SCORES):
        verifier.choose_threshold(max_false_alarms=0.05)
    found = verifier.choose_threshold(max_misses=0.1, X=NEW[:1000], y=NEW_Y[:1000])
    assert found.rule == "at most 10% misses, on the rows given"
    assert verifier.accepts(NEW[1000:][NEW_Y[1000:] == 1]).mean() == pytest.approx(0.9, abs=0.06)
    assert isinstance(verifier.count(NEW), PriorEstimate)


def test_the_threshold_comes_from_left_out_scores(model):
    found = model.choose_threshold(prior=0.2, cost_miss=3)
    assert found.value == bayes_threshold(0.2, cost_miss=3)
    negatives = model.loo_scores_[model.partition_ > 0]
    assert found.false_alarms == pytest.approx(np.mean(negatives >= found.value), abs=0.01)
    expected = choose_threshold(
        model.loo_scores_, model.partition_ == 0, max_misses=0.2, source="left-out rows"
    )
    assert model.choose_threshold(max_misses=0.2) == expected


def test_sampled_rows_represent_those_outside_the_sample():
    sampled = PCSDA(6, calibration_rows=100, random_state=0).fit(X, Y)
    left = ~np.isnan(sampled.loo_scores_)
    assert len(sampled.loo_weights_) == left.sum() < len(X)
    assert sampled.loo_weights_.sum() == pytest.approx(len(X))
    found = sampled.choose_threshold(max_false_alarms=0.1)
    assert found.n_negatives == np.sum(left & (sampled.partition_ > 0))
    assert sampled.accepts(NEW[NEW_Y == 0]).mean() == pytest.approx(0.1, abs=0.07)


@pytest.mark.parametrize("kind", [PCSDA, KernelPCSDA])
def test_weights_of_the_fit_count_as_repetitions(kind):
    rows, y, groups = X[:200], Y[:200], DATA.subclass_labels[:200]
    times = np.random.default_rng(0).integers(0, 4, len(rows))
    verifier = kind(random_state=0).fit(
        rows, y, subclass_labels=groups, sample_weight=times.astype(float)
    )
    assert verifier.loo_weights_.tolist() == times[times > 0].tolist()
    found = verifier.choose_threshold(prior=0.3)
    negatives = (y == 0) & (times > 0)
    repeated = np.repeat(verifier.loo_scores_[negatives], times[negatives])
    assert found.n_negatives == negatives.sum()
    assert found.false_alarms == pytest.approx(np.mean(repeated >= found.value), abs=0.02)
    assert not hasattr(kind(random_state=0).fit(rows, y), "loo_weights_")


def test_a_refit_forgets_the_threshold_and_the_weights(model):
    again = PCSDA(6, random_state=0).fit(X, Y, sample_weight=1.0 + (Y == 0))
    again.choose_threshold(max_false_alarms=0.05)
    again.fit(X, Y)
    assert not hasattr(again, "threshold_")
    assert not hasattr(again, "loo_weights_")
    with pytest.raises(
        NotFittedError, match=r"^this PCSDA has no threshold; call choose_threshold, for instance"
    ):
        again.accepts(NEW)
    search = PCSDACV(n_subclasses=6, n_components=4, regularization=0.1).fit(X, Y)
    assert not hasattr(search, "threshold_")
    search.choose_threshold(prior=0.5)
    assert hasattr(search, "threshold_")
    assert not hasattr(search.fit(X, Y), "threshold_")


def test_recalibrating_forgets_the_threshold_and_moves_the_left_out_scores(model):
    moved = pickle.loads(pickle.dumps(model))
    moved.choose_threshold(prior=0.5)
    before, ratios = moved.loo_scores_, moved.log_likelihood_ratio(X)
    moved.recalibrate(NEW[:300], NEW_Y[:300])
    assert not hasattr(moved, "threshold_")
    slope, offset = np.polyfit(ratios, moved.log_likelihood_ratio(X), 1)
    np.testing.assert_allclose(moved.loo_scores_, slope * before + offset, rtol=1e-7, atol=1e-7)


def test_files_and_pickles_keep_the_threshold_and_clones_do_not(model, tmp_path):
    model.choose_threshold(max_false_alarms=0.05)
    assert not hasattr(clone(model), "threshold_")
    save(model, tmp_path / "model")
    search = PCSDACV(n_subclasses=6, n_components=4, regularization=0.1).fit(X, Y)
    search.choose_threshold(max_misses=0.1)
    save(search, tmp_path / "search")
    for one, restored in (
        (model, load(tmp_path / "model")),
        (model, pickle.loads(pickle.dumps(model))),
        (search, load(tmp_path / "search")),
    ):
        assert restored.threshold_ == one.threshold_
        np.testing.assert_array_equal(restored.accepts(NEW), one.accepts(NEW))
    assert type(model.threshold_).__module__ == "pcsda"


def test_pos_label_flips_the_decision_with_the_class():
    words = np.where(Y == 1, "a", "b")
    turned = PCSDA(6, pos_label="a", random_state=0).fit(X, words)
    plain = PCSDA(6, random_state=0).fit(X, Y)
    for verifier in (turned, plain):
        verifier.choose_threshold(max_false_alarms=0.05)
    np.testing.assert_array_equal(turned.accepts(NEW), plain.accepts(NEW))
    given = turned.choose_threshold(prior=0.5, X=NEW, y=np.where(NEW_Y == 1, "a", "b"))
    assert given == plain.choose_threshold(prior=0.5, X=NEW, y=NEW_Y)


def test_float32_rows_get_the_same_decisions(model):
    model.choose_threshold(max_false_alarms=0.05)
    narrow = model.accepts(NEW.astype(np.float32))
    assert np.mean(narrow != model.accepts(NEW)) < 0.005


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "^no criterion given; choose_threshold takes exactly one of"),
        ({"max_misses": 0.1, "prior": 0.1}, "^max_misses and prior given; choose_threshold"),
        ({"max_false_alarms": 1}, "^max_false_alarms=1 must be a number between 0 and 1"),
        ({"prior": 0.1, "X": NEW}, "^X is given alone; give X and y, or neither$"),
        ({"prior": 0.1, "y": NEW_Y}, "^y is given alone; give X and y, or neither$"),
        ({"prior": 0.1, "X": NEW, "y": NEW_Y + 5}, r"^y has labels \[5, 6\] that are not among"),
        ({"prior": 0.1, "X": NEW, "y": NEW_Y[:9]}, "^X has 2400 rows but y has 9 labels$"),
        (
            {"max_misses": 0.1, "X": NEW[:9], "y": [0] * 9},
            "^no positives to count errors on among the rows given. y has no positives; give",
        ),
        (
            {"max_false_alarms": 0.1, "X": NEW[:9], "y": [1] * 9},
            "^no negatives to count errors on among the rows given. y has no negatives; give",
        ),
    ],
)
def test_nonsensical_criteria_are_refused_and_the_threshold_stays(model, given, message):
    kept = model.choose_threshold(max_false_alarms=0.05)
    with pytest.raises(ValueError, match=message):
        model.choose_threshold(**given)
    assert model.threshold_ is kept


def test_models_without_left_out_scores_say_so():
    stream = PCSDA.published(6, random_state=0).partial_fit(X, Y)
    published = PCSDA.published(6, random_state=0).fit(X, Y)
    few = np.r_[np.flatnonzero(Y == 1), np.flatnonzero(Y == 0)[:1]]
    one = PCSDA(1, random_state=0).fit(X[few], Y[few])
    for verifier in (stream, published, one):
        for criterion in ("max_misses", "max_false_alarms", "prior"):
            with pytest.raises(ValueError, match=NO_SCORES):
                verifier.choose_threshold(**{criterion: 0.1})
        assert verifier.choose_threshold(max_misses=0.1, X=NEW, y=NEW_Y).n_positives == NEW_Y.sum()
        assert verifier.count(NEW).n_rows == len(NEW)
        assert "take the log-likelihood ratios as exact" in verifier.count(NEW).note


ONLY = "^no positives to count errors on among left-out rows. The only one cannot be left out; give"
TOGETHER = (
    "^no positives to count errors on among left-out rows. Rows of a group are left out together, "
    "and without the positives there is no model; give"
)


@pytest.mark.filterwarnings("ignore:groups puts all")
@pytest.mark.each_value
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [PCSDA, KernelPCSDA])
@pytest.mark.parametrize(
    ("n_positives", "message"), [(1, ONLY), (5, TOGETHER)], ids=["one", "group"]
)
def test_negatives_suffice_where_no_positive_can_be_left_out(kind, weighted, n_positives, message):
    rows = np.r_[np.flatnonzero(Y == 1)[:n_positives], np.flatnonzero(Y == 0)]
    options = {"sample_weight": np.linspace(1, 2, len(rows))} if weighted else {}
    if n_positives > 1:
        options["groups"] = np.r_[np.zeros(n_positives), 1 + np.arange(len(rows) - n_positives)]
    verifier = kind(n_subclasses=6, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "a single positive shows no spread")
        warnings.filterwarnings("ignore", "gamma='positive' is undefined")
        verifier.fit(X[rows], Y[rows], **options)
    found = verifier.choose_threshold(max_false_alarms=0.05)
    assert (found.n_negatives, found.n_positives) == (np.sum(Y == 0), 0)
    assert np.isnan(found.misses)
    assert "an unknown share of misses (0 positives)" in str(found)
    assert 0.025 < verifier.accepts(NEW[NEW_Y == 0]).mean() < 0.1
    assert verifier.choose_threshold(prior=0.2).value == bayes_threshold(0.2)
    with pytest.raises(ValueError, match=message):
        verifier.choose_threshold(max_misses=0.1)
    assert verifier.choose_threshold(max_misses=0.1, X=NEW, y=NEW_Y).n_positives == NEW_Y.sum()
    count, plain = verifier.count(NEW), estimate_prior(verifier.log_likelihood_ratio(NEW))
    assert replace(count, note=plain.note) == plain
    assert "take the log-likelihood ratios as exact" in count.note


def test_a_model_without_a_density_says_why_it_has_no_threshold():
    few = np.r_[np.flatnonzero(Y == 1)[:3], np.flatnonzero(Y == 0)]
    bare = PCSDA(8, shrinkage=0, regularization=0.01, random_state=0).fit(X[few], Y[few])
    with pytest.raises(ValueError, match=r"^no threshold without a log-likelihood ratio: .*shrink"):
        bare.choose_threshold(max_false_alarms=0.1)


def test_an_unfitted_model_says_so():
    for method in ("accepts", "count"):
        with pytest.raises(NotFittedError):
            getattr(PCSDA(), method)(NEW)
        with pytest.raises(NotFittedError):
            getattr(PCSDACV(), method)(NEW)
    with pytest.raises(NotFittedError):
        PCSDA().choose_threshold(prior=0.5)


def test_a_fine_rate_warns_at_the_callers_line(model):
    with pytest.warns(UserWarning, match="^max_false_alarms=0.0001 is below .* 476") as caught:
        model.choose_threshold(max_false_alarms=0.0001)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.choose_threshold(max_false_alarms=0.01)


def test_a_banks_models_choose_their_own_thresholds():
    bank = VerifierBank(PCSDA(random_state=0)).fit(X, DATA.subclass_labels[:600])
    one = bank.models_[-1]
    one.choose_threshold(max_false_alarms=0.05)
    assert 0.02 < one.accepts(NEW[NEW_Y == 0]).mean() < 0.12


def test_the_count_includes_the_uncertainty_of_the_calibration(model):
    found, plain = model.count(NEW), estimate_prior(model.log_likelihood_ratio(NEW))
    assert found.prior == plain.prior
    assert not found.note
    assert found.low < plain.low
    assert plain.high < found.high
    assert found.count_low <= NEW_Y.sum() <= found.count_high
    search = PCSDACV(n_subclasses=6, n_components=4, regularization=0.1).fit(X, Y)
    assert search.count(NEW) == search.best_estimator_.count(NEW)


ROWS_THEY_SAW = {
    **VERIFIERS,
    "CSDA": CSDA(5, random_state=0),
    "KernelCSDA": KernelCSDA(n_components=5, random_state=0),
    "MultilinearCSDA": MultilinearCSDA((2, 3), shape=(2, 5), random_state=0),
    "resubstitution": PCSDA(6, covariance="resubstitution", random_state=0),
    "a sample": PCSDA(6, calibration_rows=50, random_state=0),
    "mixture in folds": MixtureVerifier(CSDA(5, random_state=0), n_modes=2),
    "scaled": pcsda_pipeline(StandardScaler(), PCSDA(6, random_state=0)),
    "selected": pcsda_pipeline(SelectKBest(k=5), PCSDA(6, random_state=0)),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ROWS_THEY_SAW)
@pytest.mark.each_value
def test_training_rows_count_with_their_left_out_scores(kind, dtype, tmp_path):
    rows, fresh = X.astype(dtype), NEW[:50].astype(dtype)
    verifier = clone(ROWS_THEY_SAW[kind]).fit(rows, Y)
    inside = unwrap(verifier).model
    ratios = verifier.log_likelihood_ratio(rows).astype(np.float64)
    if hasattr(inside, "loo_scores_"):
        known = inside.loo_scores_
    else:  # folds are fitted until enough rows have scores
        known = np.full(len(X), np.nan)
        found = inside.fingerprints_.of_copies(unwrap(verifier).rows(rows), inside.held_out_[0])
        known[~np.isnan(found)] = inside.held_out_[0]
        assert (np.isnan(found) == np.isnan(known)).all()
        assert np.sum(~np.isnan(found)) == len(inside.held_out_[0])
    fair = np.where(np.isnan(known), ratios, known)
    pool = np.concatenate([fair[::-2], verifier.log_likelihood_ratio(fresh)])
    expected = estimate_prior(pool).prior
    assert expected != estimate_prior(np.append(ratios[::-2], pool[300:])).prior
    found = verifier.count(np.vstack([rows[::-2], fresh])).prior
    assert found == pytest.approx(expected, rel=1e-6)
    save(verifier, tmp_path / "model.pcsda")
    assert load(tmp_path / "model.pcsda").count(np.vstack([rows[::-2], fresh])).prior == found


def test_a_mixture_of_one_mode_recognises_rows_that_were_left_out_in_folds():
    csda = CSDA(5, random_state=0)
    for verifier in (csda, pcsda_pipeline(StandardScaler(), csda)):
        mixture = MixtureVerifier(verifier, n_modes=1).fit(X[:200], Y[:200])
        mixture.recalibrate(NEW, NEW_Y)
        known = mixture.held_out_[0]
        assert len(known) == 200
        assert mixture.count(X[:200]).count == pytest.approx(count_positives(mixture, known).count)


def test_training_rows_are_recognised_after_steps_whose_fit_transform_differs():
    rng = np.random.default_rng(0)
    positive = np.arange(600) < 120
    rows = rng.normal(size=(600, 520)) + positive[:, None] * (np.arange(520) < 4)
    pca = PCA(8, svd_solver="randomized", random_state=0)
    assert not np.allclose(pca.fit_transform(rows), pca.transform(rows))
    for final in (PCSDA(4, random_state=0), PCSDACV(PCSDA(random_state=0), n_components=[4])):
        pipeline = pcsda_pipeline(pca, final).fit(rows, positive)
        inside = unwrap(pipeline).model
        expected = count_positives(inside, inside.loo_scores_)
        assert pipeline.count(rows).count == pytest.approx(expected.count)


def test_training_rows_of_blocks_and_batches_count_with_their_left_out_scores():
    expected = PCSDA(6, random_state=0).fit(X, Y).count(X)
    labels = DATA.subclass_labels[:600]
    streamed = PCSDA(random_state=0)
    for part in (slice(0, 300), slice(300, 600)):
        streamed.partial_fit(X[part], Y[part], subclass_labels=labels[part])
    given = PCSDA(random_state=0).fit(X, Y, subclass_labels=labels)
    assert streamed.count(X).prior == pytest.approx(given.count(X).prior, rel=1e-6)
    blocks = fit_blocks(PCSDA(6, random_state=0), [(X[:300], Y[:300]), (X[300:], Y[300:])])
    assert blocks.count(X).prior == pytest.approx(expected.prior, rel=0.02)
    assert blocks.count(X) != count_positives(blocks, blocks.log_likelihood_ratio(X))


@pytest.mark.parametrize(
    "model", [PCSDA(6, covariance="resubstitution", random_state=0), CSDA(5, random_state=0)]
)
def test_training_rows_of_blocks_count_with_their_scores_from_folds(model):
    blocks = fit_blocks(model, [(X[:300], Y[:300]), (X[300:], Y[300:])])
    fair = blocks.fingerprints_.of_copies(X, blocks.held_out_[0])
    np.testing.assert_allclose(np.sort(fair), np.sort(blocks.held_out_[0]))
    assert blocks.count(X) == count_positives(blocks, fair)


def test_rows_without_weight_and_labels_of_banks_are_counted_fairly():
    weights = np.where(np.arange(600) % 7 == 0, 0.0, 1.0)
    verifier = PCSDA(6, random_state=0).fit(X, Y, sample_weight=weights)
    expected = count_positives(verifier, verifier.loo_scores_)
    assert verifier.count(X).count == pytest.approx(expected.count)
    kinds = DATA.subclass_labels[:600]
    for calibration in ("pooled", "per-label"):
        one = VerifierBank(PCSDA(6, random_state=0), calibration=calibration).fit(X, kinds)
        verifier = one.models_[-1]
        scores, ratios = verifier.loo_scores_, verifier.log_likelihood_ratio(X)
        expected = count_positives(verifier, np.where(np.isnan(scores), ratios, scores))
        assert verifier.count(X).count == pytest.approx(expected.count)


def test_a_bank_that_scales_rows_to_unit_length_counts_its_rows_fairly():
    rng = np.random.default_rng(0)
    kinds = np.repeat(np.arange(14), 8)
    rows = rng.normal(size=(14, 12))[kinds] * 2.5 + rng.normal(size=(112, 12))
    rows *= rng.uniform(0.5, 20, size=(112, 1))
    bank = VerifierBank().fit(rows, kinds)
    assert bank.unit_length_
    for label in (3, 5):
        verifier = unwrap(bank.models_[label]).model
        expected = count_positives(verifier, verifier.loo_scores_)
        assert bank.models_[label].count(rows).count == pytest.approx(expected.count)


def test_positives_hidden_among_the_training_rows_are_counted():
    # The model has learned that they are negatives, and scores them so.
    covered, in_sample = 0, 0
    for seed in range(12):
        planted = make_class_specific(
            400, n_features=300, positive_fraction=0.1, separation=7.0, random_state=seed
        )
        hidden = np.flatnonzero(planted.target)[::2]
        labels = planted.target.copy()
        labels[hidden] = 0
        verifier = KernelPCSDA(contamination="auto", random_state=0)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "contamination='auto' estimates", UserWarning)
            verifier.fit(planted.data, labels)
        fair = verifier.count(planted.data)
        plain = count_positives(verifier, verifier.log_likelihood_ratio(planted.data))
        truth = planted.target.sum()
        covered += fair.count_low <= truth <= fair.count_high
        in_sample += plain.count_low <= truth <= plain.count_high
    assert covered >= 10
    assert in_sample < covered


@pytest.mark.more  # many fits; `metrics/test_counting.py` has the same for exact ratios
@pytest.mark.parametrize(("n_positives", "share", "separation"), [(10, 0.1, 5.0), (20, 0.03, 6.0)])
def test_intervals_of_the_count_cover_planted_numbers(n_positives, share, separation):
    # A 90% interval; 10 to 20 positives and 200 negatives are what the model knows.
    covered, factors = [], []
    for seed in range(25):
        there = np.random.default_rng(seed).binomial(400, share)
        total = n_positives + 200 + 400
        planted = make_class_specific(
            total,
            n_features=15,
            separation=separation,
            positive_fraction=(n_positives + there) / total,
            random_state=seed,
        )
        order = np.argsort(-planted.target, kind="stable")
        pool = np.r_[order[n_positives : n_positives + there], order[-(400 - there) :]]
        train = np.setdiff1d(order, pool)
        verifier = PCSDA(random_state=0).fit(planted.data[train], planted.target[train])
        found = verifier.count(planted.data[pool])
        covered.append(found.count_low <= there <= found.count_high)
        factors.append(abs(np.log((found.count + 0.5) / (there + 0.5))))
    assert np.mean(covered) >= 0.85
    assert np.exp(np.median(factors)) <= 1.3

"""Intervals of thresholds and counts if the rows of a group resemble each other."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.feature_selection import SelectKBest
from sklearn.preprocessing import StandardScaler

from pcsda import (
    CSDA,
    PCSDA,
    PCSDACV,
    KernelCSDA,
    KernelPCSDA,
    MixtureVerifier,
    Threshold,
    VerifierBank,
    load,
    make_pipeline,
    save,
)
from pcsda.core.threshold import choose_threshold, interval
from pcsda.metrics import estimate_prior

WIDTH, N_POSITIVE, N_NEGATIVE = 10, 12, 40


def recordings(n_positive, n_negative, n_rows, rng):
    """Draw groups of alike rows; return the rows, a mask of the positives and the groups."""
    centres = rng.standard_normal((n_positive + n_negative, WIDTH))
    centres[:n_positive] += 1
    groups = np.repeat(np.arange(len(centres)), n_rows)
    X = centres[groups] + 0.5 * rng.standard_normal((len(groups), WIDTH))
    return X, groups < n_positive, groups


def covered(n_positive, n_negative, n_rows, seed):
    """Return whether the intervals of count, false alarms and misses hold the truth."""
    rng = np.random.default_rng(seed)
    X, y, groups = recordings(n_positive, n_negative, n_rows, rng)
    model = PCSDA(random_state=0).fit(X, y, groups=groups)
    threshold = model.choose_threshold(max_false_alarms=0.1)
    pool, inside, _ = recordings(60, 540, 1, rng)
    count = model.count(pool)
    new, truth, _ = recordings(5000, 5000, 1, rng)
    accepted = model.accepts(new)
    ends = threshold.false_alarms_interval, threshold.misses_interval
    rates = accepted[~truth].mean(), 1 - accepted[truth].mean()
    held = [low <= rate <= high for (low, high), rate in zip(ends, rates, strict=True)]
    return [count.count_low <= inside.sum() <= count.count_high, *held]


@pytest.mark.filterwarnings("ignore:max_false_alarms")
@pytest.mark.parametrize(
    ("n_positive", "n_negative", "n_rows", "n_draws"),
    [
        (20, 100, 20, 12),
        pytest.param(8, 60, 5, 100, marks=pytest.mark.more),
        pytest.param(20, 100, 20, 100, marks=pytest.mark.more),
    ],
)
def test_intervals_hold_the_truth_for_rows_of_new_groups(n_positive, n_negative, n_rows, n_draws):
    draws = [covered(n_positive, n_negative, n_rows, seed) for seed in range(n_draws)]
    assert np.mean(draws, axis=0).min() >= (0.85 if n_draws > 50 else 0.75)


def scored(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    positive = np.arange(60 * n_rows) < 10 * n_rows
    return rng.normal(np.where(positive, 2.0, -2.0), 2), positive, rng.uniform(1, 3, len(positive))


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_groups_of_single_rows_leave_the_intervals_as_they_are(weighted):
    scores, positive, weights = scored(1)
    weights = weights if weighted else None
    alone = np.random.default_rng(1).permutation(len(scores))
    plain = choose_threshold(scores, positive, weights, max_false_alarms=0.1)
    found = choose_threshold(scores, positive, weights, alone, max_false_alarms=0.1)
    assert found == plain
    known = positive, scores, weights
    counted = estimate_prior(scores, calibrated_on=(*known, alone))
    assert counted == estimate_prior(scores, calibrated_on=known)


def test_copies_of_a_row_in_a_group_add_no_evidence():
    scores, positive, _ = scored(1)
    groups = np.arange(len(scores))
    copies = [np.repeat(part, 4) for part in (scores, positive, groups)]
    often = choose_threshold(*copies[:2], None, copies[2], prior=0.2)
    assert_allclose(often.false_alarms_interval, interval(often.false_alarms, 50), rtol=1e-9)
    assert_allclose(often.misses_interval, interval(often.misses, 10), rtol=1e-9)
    assert (often.n_negatives, often.independent_negatives) == (200, pytest.approx(50))
    assert (often.n_positives, often.independent_positives) == (40, pytest.approx(10))
    counted = estimate_prior(scores, calibrated_on=(copies[1], copies[0], None, copies[2]))
    plain = estimate_prior(scores, calibrated_on=(positive, scores))
    assert_allclose([counted.low, counted.high], [plain.low, plain.high], rtol=1e-9)


def test_the_effective_number_lies_between_one_and_the_rows():
    scores, positive, weights = scored(5)
    for groups in (np.zeros(len(scores), int), np.sort(np.arange(len(scores)) % 7)):
        found = choose_threshold(scores, positive, weights, groups, prior=0.2)
        assert 1 - 1e-9 < found.independent_positives <= found.n_positives
        assert 1 - 1e-9 < found.independent_negatives <= 7


IN_FOLDS = PCSDA(4, covariance="resubstitution", random_state=0)
ROUTES = {
    "PCSDA": PCSDA(4, random_state=0),
    "KernelPCSDA": KernelPCSDA(n_subclasses=4, random_state=0),
    "in folds": IN_FOLDS,
    "CSDA": CSDA(5, random_state=0),
    "KernelCSDA": KernelCSDA(n_components=5, random_state=0),
    "hidden positives": PCSDA(4, contamination=0.02, random_state=0),
    "PCSDACV": PCSDACV(n_subclasses=4, n_components=[2, 4], regularization=0.1),
    "pipeline": make_pipeline(StandardScaler(), PCSDA(4, random_state=0)),
    "pipeline in folds": make_pipeline(SelectKBest(k=6), PCSDA(4, random_state=0)),
    "one mode": MixtureVerifier(PCSDA(4, random_state=0), n_modes=1),
    "one mode in folds": MixtureVerifier(IN_FOLDS, n_modes=1),
    "two modes": MixtureVerifier(PCSDA(4, random_state=0), n_modes=2),
    "two modes in folds": MixtureVerifier(IN_FOLDS, n_modes=2),
}


def fitted_on_groups(kind, n_rows=4):
    rng = np.random.default_rng(0)
    X, y, groups = recordings(N_POSITIVE, N_NEGATIVE, n_rows, rng)
    name = f"{ROUTES[kind].steps[-1][0]}__groups" if kind.startswith("pipeline") else "groups"
    return clone(ROUTES[kind]).fit(X, y, **{name: groups}), X


@pytest.mark.parametrize("kind", ROUTES)
def test_every_route_keeps_the_groups(kind, tmp_path):
    model, X = fitted_on_groups(kind)
    save(model, tmp_path / "model")
    for one in (model, load(tmp_path / "model")):
        found = one.choose_threshold(prior=0.3)
        # The weights of hidden positives are not quite equal.
        assert found.independent_negatives == pytest.approx(N_NEGATIVE, rel=0.01)
        assert found.independent_positives == pytest.approx(N_POSITIVE, rel=0.01)
        assert f"%; {4 * N_NEGATIVE} negatives in groups, worth {N_NEGATIVE} indep" in str(found)
        assert f"<td>{4 * N_POSITIVE} in groups, worth {N_POSITIVE} indep" in found._repr_html_()
        assert one.count(X) == model.count(X)


@pytest.mark.parametrize("calibration", ["pooled", "per-label"])
def test_labels_of_a_bank_keep_the_groups(calibration, tmp_path):
    X, y, groups = recordings(N_POSITIVE, N_NEGATIVE, 4, np.random.default_rng(0))
    labels = np.where(y, "a", np.where(groups % 2, "b", "c"))
    bank = VerifierBank(PCSDA(random_state=0), calibration=calibration)
    bank.fit(X, labels, groups=groups)
    save(bank, tmp_path / "bank")
    for one in (bank, load(tmp_path / "bank")):
        found = one.models_["a"].choose_threshold(prior=0.3)
        assert found.independent_negatives == pytest.approx(N_NEGATIVE)
        assert found.independent_positives == pytest.approx(N_POSITIVE)


def test_a_sample_of_rows_and_rows_of_weight_zero_keep_their_groups():
    X, y, groups = recordings(N_POSITIVE, N_NEGATIVE, 4, np.random.default_rng(0))
    gone = np.isin(groups, [0, 1, N_POSITIVE])
    weights = np.where(gone, 0.0, 1.0)
    for model in (PCSDA(4, random_state=0), MixtureVerifier(PCSDA(4, random_state=0), n_modes=2)):
        found = model.fit(X, y, groups=groups, sample_weight=weights).choose_threshold(prior=0.3)
        assert found.independent_negatives == pytest.approx(N_NEGATIVE - 1)
        assert found.independent_positives == pytest.approx(N_POSITIVE - 2)
    sampled = PCSDA(4, calibration_rows=50, random_state=0).fit(X, y, groups=groups)
    found = sampled.choose_threshold(prior=0.3)
    assert len(sampled.loo_groups_) == found.n_negatives + found.n_positives < len(X)
    assert found.independent_negatives < found.n_negatives / 3


@pytest.mark.filterwarnings("ignore:a single positive shows no spread")
def test_one_positive_leaves_the_groups_of_the_negatives():
    X, _, groups = recordings(N_POSITIVE, N_NEGATIVE, 4, np.random.default_rng(0))
    X, groups = X[4 * N_POSITIVE - 1 :], groups[4 * N_POSITIVE - 1 :]
    model = PCSDA(4, random_state=0).fit(X, groups < N_POSITIVE, groups=groups)
    found = model.choose_threshold(max_false_alarms=0.1)
    assert found.n_positives == 0
    assert found.independent_positives is None
    assert found.independent_negatives == pytest.approx(N_NEGATIVE)


def test_a_refit_without_groups_forgets_them():
    for kind in ("PCSDA", "in folds", "one mode", "two modes"):
        model, X = fitted_on_groups(kind)
        model.fit(X, np.arange(len(X)) < 4 * N_POSITIVE)
        found = model.choose_threshold(prior=0.3)
        assert not hasattr(model, "loo_groups_")
        assert found.independent_negatives is None


def test_a_rate_too_fine_for_the_groups_says_how_many_it_takes():
    model, _ = fitted_on_groups("PCSDA")
    said = r"below 0.025, the smallest rate that 40 independent negatives can show.* at least 50 in"
    with pytest.warns(UserWarning, match=said):
        model.choose_threshold(max_false_alarms=0.02)


def test_a_threshold_from_an_older_file_has_no_independent_rows():
    plain = choose_threshold(*scored(1)[:2], prior=0.2)
    old = object.__new__(Threshold)
    known = {name: value for name, value in vars(plain).items() if "independent" not in name}
    old.__dict__.update(known)  # as files are read
    assert (old, str(old)) == (plain, str(plain))

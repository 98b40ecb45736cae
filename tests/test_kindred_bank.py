"""Banks whose labels share two covariances: oracles, laws, changes and refusals."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from bank_factories import named_correctly, people
from factories import close, in_turn
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.covariance import ledoit_wolf_shrinkage

from pcsda import PCSDA, KernelPCSDA, VerifierBank, load, save
from pcsda.core import labelled
from pcsda.core.kindred import FAR_OFF, WITHIN, Kindred, Predictive, ledoit_wolf
from pcsda.core.kindred_fit import RIDGES, fit_kindred
from pcsda.core.labelled import LabelledRows, LabelSums
from pcsda.core.linalg import SingularMatrixError
from pcsda.core.pooling import calibrate
from pcsda.estimators.spaces import DualSpace
from pcsda.metrics import cllr

LINEAR = PCSDA(random_state=0)
KERNEL = KernelPCSDA(gamma="all", random_state=0)
CASES = in_turn(
    ("template", "width"),
    [(LINEAR, 20), (LINEAR, 130), (KERNEL, 20)],
    ids=["tall", "wide", "kernel"],
)


def sums_of(X, y):
    counts = np.bincount(y).astype(float)
    means = np.stack([X[y == label].mean(axis=0) for label in range(len(counts))])
    residuals = X - means[y]
    return LabelSums(counts, means, residuals.T @ residuals, np.zeros((0, X.shape[1]))), residuals


def test_the_shrinkage_is_ledoit_and_wolfs():
    X, y = people(9, 5)
    sums, residuals = sums_of(X, y)
    fourth = (residuals**2).sum(axis=1) @ (residuals**2).sum(axis=1)
    found = ledoit_wolf(sums.scatter, fourth, len(X))
    assert found == pytest.approx(ledoit_wolf_shrinkage(residuals, assume_centered=True))
    ridge = fit_kindred(X, y, np.random.default_rng(0)).ridge
    usual = found / (1 - found) * np.trace(sums.scatter) / 20
    assert np.abs(np.array(RIDGES) - ridge / usual).min() < 1e-9


def test_the_chosen_ridge_separates_strangers_best():
    """The loss of left-out rows against the best strangers is lowest at the chosen ridge."""
    rng = np.random.default_rng(1)
    scale = np.append(np.full(5, 0.1), np.full(45, 1.5))
    y = np.repeat(np.arange(24), 4)
    X = scale * rng.standard_normal((24, 50))[y] + 0.7 * scale * rng.standard_normal((len(y), 50))
    found = fit_kindred(X, y, np.random.default_rng(0))
    sums, residuals = sums_of(X, y)
    fourth = (residuals**2).sum(axis=1) @ (residuals**2).sum(axis=1)
    share = ledoit_wolf(sums.scatter, fourth, len(X))
    usual = share / (1 - share) * np.trace(sums.scatter) / 50
    losses = []
    for times in RIDGES:
        one = fit_kindred(X, y, np.random.default_rng(0), ridge=times * usual)
        losses.append(calibrate(one.own[None], np.ones(len(one.own)), one.best[None])[1])
    assert found.ridge == pytest.approx(RIDGES[int(np.argmin(losses))] * usual)


@pytest.mark.parametrize("n_people", [8, 40])
def test_the_axes_make_one_covariance_the_identity_and_the_other_diagonal(n_people):
    X, y = people(n_people, 5)
    sums, _ = sums_of(X, y)
    found = Kindred.fit(sums, 3.0)
    within = found.scale * (sums.scatter + 3.0 * np.eye(20))
    assert np.trace(within) == pytest.approx(np.trace(sums.scatter) / sums.free)
    close(found.axes.T @ within @ found.axes, np.eye(found.axes.shape[1]))
    z = found.project(sums.means)
    assert_allclose(z.mean(axis=0), 0, atol=1e-10)
    between = z.T @ z
    assert_allclose(between - np.diag(np.diag(between)), 0, atol=1e-8 * between.max())
    assert np.all(np.diff(found.values) <= 1e-9)
    assert found.axes.shape[1] == min(n_people - 1, 20)


def test_ratios_equal_the_joint_gaussian_of_label_and_row():
    """The Gaussian covers a row and a label's rows, with the label's mean integrated out."""
    values, n = np.array([4.0, 0.7, 0.1]), 3
    law = Predictive(values, np.inf)
    rng = np.random.default_rng(0)
    own, new = rng.standard_normal((n, 3)), rng.standard_normal((5, 3))
    means, counts = np.vstack([own.mean(axis=0), np.ones(3)]), np.array([3.0, 1.0])
    found = law.ratios(new, law.places(means, counts))[:, 0]
    for row, ratio in zip(new, found, strict=True):
        together = 0.0
        for axis, value in enumerate(values):
            known = np.append(own[:, axis], row[axis])
            joint = multivariate_normal(np.zeros(n + 1), np.eye(n + 1) + value)
            before = multivariate_normal(np.zeros(n), np.eye(n) + value)
            alone = multivariate_normal(0, 1 + value)
            together += joint.logpdf(known) - before.logpdf(own[:, axis])
            together -= alone.logpdf(row[axis])
        assert ratio == pytest.approx(together, rel=1e-10)


def test_folds_equal_fits_on_the_remaining_rows():
    X, y = people(12, 4)
    folds = []

    def keep(made, _):
        folds.extend(made)
        return iter(folds)

    found = fit_kindred(X, y, np.random.default_rng(0), ridge=2.0, steps=keep)
    assert len(folds) == 12
    assert sorted(label for one in folds for label in np.unique(one.identity)) == list(range(12))
    for one in folds:
        left = np.flatnonzero(~np.isin(np.arange(12), one.identity))
        rows = np.isin(y, left)
        # Rows that left their own labels are the ones whose coordinates the fold has.
        z = one.kindred.project(X)
        gone = np.array(
            [np.flatnonzero((np.abs(z - own) < 1e-9).all(axis=1))[0] for own in one.own]
        )
        assert_array_equal(y[gone], left[one.of_own])
        rows[gone] = False
        number = np.searchsorted(left, y[rows])
        again = Kindred.fit(sums_of(X[rows], number)[0], found.ridge)
        close(again.values, one.kindred.values, 1e-7)
        close(np.abs(again.project(X)), np.abs(z), 1e-6)


@CASES
def test_axes_equal_a_fit_with_labels_as_subclasses(template, width):
    X, y = people(12, 6, width)
    new = people(12, 6, width, seed=1)[0]
    bank = VerifierBank(template).fit(X, y)
    assert_array_equal(bank.clusters_, y)
    for label in (0, 7):
        model = bank.models_[label]
        alone = clone(template).set_params(regularization=bank.regularization_)
        alone.fit(X, y == label, subclass_labels=y)
        close(model.eigenvalues_, alone.eigenvalues_, 1e-7)
        found, expected = model.transform(new), alone.transform(new)
        moved = found[0] - expected[0] * np.sign((found - found[0]) * (expected - expected[0])).sum(
            axis=0
        ).clip(-1, 1)
        signs = np.sign(((found - found[0]) * (expected - expected[0])).sum(axis=0))
        close(found, expected * signs + moved, 1e-6)
        assert_array_equal(model.partition_, alone.partition_)


@CASES
def test_the_bank_agrees_with_its_models(template, width):
    X, y = people(12, 4, width)
    new = people(12, 2, width, seed=1)[0]
    bank = VerifierBank(template).fit(X, y)
    ratios, odds = bank.log_likelihood_ratio(new), bank.decision_function(new)
    for column, model in enumerate(bank.models_.values()):
        close(ratios[:, column], model.log_likelihood_ratio(new), 1e-9)
        close(odds[:, column], model.decision_function(new), 1e-9)
        assert model.loo_scores_.shape == (len(X),)
        own = y == column
        assert model.loo_scores_[own].min() > model.loo_scores_[~own].max()
    close(bank.verify(new, 5), ratios[:, 5])
    close(bank.log_likelihood_ratio(new, np.arange(len(new))), ratios)
    close(bank.explain(new, 5).score, ratios[:, 5])


@pytest.mark.parametrize("kind", [PCSDA, KernelPCSDA])
def test_labels_of_one_row_each_are_explained(kind):
    X, y = people(12, 1)
    bank = VerifierBank(kind(random_state=0)).fit(X, y)
    found = bank.explain(X + 0.1, 3)
    close(found.score, bank.log_likelihood_ratio(X + 0.1)[:, 3])
    assert np.all((found.typicality > 0) & (found.typicality <= 1))


def test_rows_of_a_trial_share_one_unknown_mean():
    """For two rows of a trial, compare with the joint Gaussian of these and the label's rows."""
    X, y = people(12, 4)
    bank = VerifierBank(clone(LINEAR).set_params(tails="gaussian")).fit(X, y)
    labels, new = bank._labels_, people(12, 2, seed=3)[0]
    z, means, n = labels.project(new[:2]), labels.shared.means, labels.counts[0]
    ratio = 0.0
    for axis, value in enumerate(labels.law.values):
        both = np.eye(2) + value
        shrunk = n * value / (1 + n * value)
        after = np.eye(2) + value / (1 + n * value)
        expected = np.full(2, shrunk * means[0, axis])
        ratio += multivariate_normal(expected, after).logpdf(z[:, axis])
        ratio -= multivariate_normal(np.zeros(2), both).logpdf(z[:, axis])
    found = bank.log_likelihood_ratio(new[:2], [0, 0])[0, 0]
    assert found == pytest.approx(labels.calibration(np.array([[ratio]]))[0], rel=1e-9)


@CASES
def test_files_and_pickles_change_nothing(template, width, tmp_path):
    X, y = people(12, 3, width)
    bank = VerifierBank(template).fit(X, y)
    bank.enroll(X[:3] + 1.0, 30)
    ratios = bank.log_likelihood_ratio(X)
    save(bank, tmp_path / "bank.pcsda")
    for copy in (load(tmp_path / "bank.pcsda"), pickle.loads(pickle.dumps(bank))):
        assert_array_equal(copy.log_likelihood_ratio(X), ratios)
        assert copy.threshold_ == bank.threshold_
        close(copy.models_[30].log_likelihood_ratio(X), ratios[:, -1])
        close(copy.refresh().log_likelihood_ratio(X), clone_of(bank).log_likelihood_ratio(X))


def clone_of(bank):
    return pickle.loads(pickle.dumps(bank)).refresh()


def uncalibrated(bank, X):
    """Return log ratios with Gaussian tails before the calibration, which waits for a refresh."""
    calibration = bank._labels_.calibration
    return (bank.log_likelihood_ratio(X) - calibration.offset) / calibration.slope


def fresh_fit(bank, X, y, others=None):
    """Fit the same rows with the ridge and kernel of a bank."""
    rows = X if others is None else np.concatenate([X, others])
    values = None if not hasattr(bank, "kernel_") else bank.kernel_(rows, rows)
    spread = rows.var(axis=0).sum() if values is None else np.trace(values) / len(rows)
    spread = spread if values is None else spread - values.mean()
    fixed = {"regularization": bank.ridge_ / spread}
    if values is not None:
        fixed["gamma"] = bank.kernel_.gamma
    found = VerifierBank(clone(bank.estimator).set_params(**fixed))
    return found.fit(X, y, background=others)


@pytest.mark.each_value
@CASES
@pytest.mark.parametrize("change", ["enroll", "update", "remove", "reject", "all", "loaded"])
def test_after_a_change_all_labels_equal_a_fresh_fit(template, width, change):
    X, y = people(14, 5, width)
    new = people(14, 2, width, seed=1)[0]
    extra, away = X[y == 4] + 0.3, people(3, 2, width, seed=5)[0]
    given = clone(template).set_params(regularization=0.5, tails="gaussian")
    every = change in ("all", "loaded")
    late = y == 13 if change == "enroll" or every else y < 0
    bank = VerifierBank(given).fit(X[~late], y[~late])
    bank = pickle.loads(pickle.dumps(bank)) if change == "loaded" else bank
    rows, names, others = X, y, None
    if change == "enroll" or every:
        bank.enroll(X[late][:2], 13).update(X[late][2:], 13)
    if change == "update" or every:
        bank.update(extra[:1], 4).update(extra[1:], 4)
        rows, names = np.concatenate([rows, extra]), np.append(names, np.full(5, 4))
    if change == "reject" or every:
        bank.reject(away[:4], 3).reject(away[4:], 5)
        others = away
    if change == "remove" or every:
        bank.remove(2)
        rows, names = rows[names != 2], names[names != 2]
    again = fresh_fit(bank, rows, names, others)
    assert type(bank._labels_) is type(again._labels_)
    assert_array_equal(bank.classes_, again.classes_)
    close(uncalibrated(bank, new), uncalibrated(again, new))
    label = 13 if change == "enroll" else 4
    found, expected = bank.models_[label], again.models_[label]
    close(found.eigenvalues_, expected.eigenvalues_)
    slopes = [one._labels_.calibration for one in (bank, again)]
    left = [
        (model.loo_scores_ - one.offset) / one.slope
        for model, one in zip((found, expected), slopes, strict=True)
    ]
    # Rows stand in another order; each has its left-out score.
    close(np.sort(left[0]), np.sort(left[1]), 1e-7)
    close(uncalibrated(bank.refresh(), new), uncalibrated(again, new))


def test_changes_at_once_equal_changes_one_by_one():
    X, y = people(14, 5)
    new = people(14, 2, seed=1)[0]
    first = y < 13
    bank = VerifierBank(LINEAR).fit(X[first], y[first]).enroll(X[~first], 13)
    step = VerifierBank(LINEAR).fit(X[first], y[first]).enroll(X[~first][:2], 13)
    step.log_likelihood_ratio(new)  # solves the covariances in between
    step.update(X[~first][2:], 13)
    close(step.log_likelihood_ratio(new), bank.log_likelihood_ratio(new), 1e-9)
    assert_array_equal(bank.clusters_, np.append(y[first], np.full(5, 13)))


def test_changes_of_a_kernel_bank_wait_for_the_next_query(monkeypatch):
    X, y = people(14, 5)
    bank = VerifierBank(KERNEL).fit(X, y)
    made = []
    of = DualSpace.of
    monkeypatch.setattr(DualSpace, "of", lambda *given: made.append(1) or of(*given))
    bank.update(X[:1] + 0.3, 4).reject(X[1:2] + 3, 2).remove(13).enroll(X[y == 13], 13)
    assert made == []
    ratios = bank.log_likelihood_ratio(X)
    assert len(made) == 1
    close(pickle.loads(pickle.dumps(bank)).log_likelihood_ratio(X), ratios, 1e-9)
    given = clone(KERNEL).set_params(kernel="poly", coef0=1.0)  # its values have no bound
    VerifierBank(given).fit(X, y).update(X[:1] + 0.3, 4)
    assert len(made) > 2


@pytest.mark.filterwarnings("ignore:.* rows of X occur more than once")  # on purpose
@pytest.mark.more
@pytest.mark.parametrize("template", [LINEAR, KERNEL], ids=["linear", "kernel"])
def test_a_bank_whose_labels_lose_their_spread_returns_to_clusters(template):
    X, y = people(14, 5)
    alike = y < 11
    X[alike] = X[alike][::5][y[alike]]  # only the last labels have different rows
    bank = VerifierBank(template).fit(X, y).remove(13).remove(12)
    assert type(bank._labels_).__name__ == "KindredLabels"
    bank.remove(11)
    assert type(bank._labels_).__name__ == "PooledLabels"
    assert len(bank.classes_) == 11
    assert np.isfinite(bank.log_likelihood_ratio(X)).all()


def test_labels_that_no_longer_differ_score_alike_until_a_refresh():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 4)), np.repeat(np.arange(12), 5)
    X[y > 8] += 100.0 * rng.standard_normal((12, 4))[y[y > 8]]
    bank = VerifierBank(LINEAR).fit(X, y)
    assert type(bank._labels_).__name__ == "KindredLabels"
    bank.remove(11).remove(10).remove(9)
    ratios = bank.log_likelihood_ratio(X)
    assert np.ptp(ratios) < 1
    assert np.isfinite(bank.refresh().log_likelihood_ratio(X)).all()


def test_rejected_rows_count_as_unseen_people():
    """They widen the covariance between people, though their identity is unknown."""
    X, y = people(12, 5)
    rng = np.random.default_rng(0)
    bank = VerifierBank(LINEAR).fit(X, y)
    stranger = 3 * rng.standard_normal((1, 20)) + 0.3 * rng.standard_normal((6, 20))
    before = bank._labels_.shared.values.sum()
    with pytest.raises(ValueError, match="already in the bank"):
        bank.reject(X[:1], 0)
    assert_array_equal(bank.clusters_, y)
    bank.reject(stranger[:3], 0)
    assert_array_equal(bank.clusters_, np.append(y, [12, 13, 14]))
    assert bank._labels_.shared.values.sum() > before
    assert bank.refresh().threshold_.n_negatives == len(X)
    again = VerifierBank(LINEAR).fit(X, y, background=stranger[:3])
    close(bank._labels_.shared.values, again._labels_.shared.values, 0.2)  # the ridge differs
    assert len(bank.reject(stranger[3:], 1).clusters_) == len(X) + 6


def test_verifying_one_label_builds_no_estimator(monkeypatch):
    X, y = people(12, 5)
    bank = VerifierBank(LINEAR).fit(X, y)
    monkeypatch.setattr(type(bank), "models_", dict.fromkeys(range(12)))
    close(bank.verify(X, 5), bank.log_likelihood_ratio(X)[:, 5])


@pytest.mark.more
def test_banks_that_cannot_share_covariances_use_clusters():
    X, y = people(10, 3)
    assert type(VerifierBank().fit(X, y)._labels_).__name__ == "KindredLabels"
    for bank in (
        VerifierBank(PCSDA(n_subclasses=4)).fit(X, y),
        VerifierBank(PCSDA(n_components=2)).fit(X, y),
        VerifierBank().fit(X, y, groups=np.arange(len(X)) // 2),
        VerifierBank(calibration="per-label").fit(X, y),
        VerifierBank().fit(*people(4, 15)),  # few labels, many rows
    ):
        assert type(bank._labels_).__name__ != "KindredLabels"


@pytest.mark.filterwarnings("ignore:.* rows of X occur more than once")  # on purpose
@pytest.mark.more
def test_labels_of_equal_rows_have_no_spread():
    X, y = people(12, 1)
    with pytest.raises(SingularMatrixError, match="equal"):
        fit_kindred(np.repeat(X, 3, axis=0), np.repeat(y, 3), np.random.default_rng(0))
    bank = VerifierBank(LINEAR).fit(np.repeat(X, 3, axis=0), np.repeat(y, 3))
    assert type(bank._labels_).__name__ == "PooledLabels"


def test_unequal_labels_and_single_precision_work():
    X, y = people(15, 8)
    kept = np.arange(len(X)) % 8 < 1 + y % 6
    bank = VerifierBank(LINEAR).fit(X[kept], y[kept])
    ratios = bank.log_likelihood_ratio(X)
    single = VerifierBank(LINEAR).fit(X[kept].astype(np.float32), y[kept])
    found = single.log_likelihood_ratio(X.astype(np.float32))
    assert found.dtype == np.float32
    assert_allclose(found, ratios, rtol=1e-3, atol=1e-3 * np.abs(ratios).max())
    far = VerifierBank(LINEAR).fit(X[kept] + 1e6, y[kept])
    assert_allclose(far.log_likelihood_ratio(X + 1e6), ratios, rtol=1e-5, atol=1e-4)
    for label in (0, 5):
        close(bank.models_[label].log_likelihood_ratio(X), ratios[:, label], 1e-9)


def test_the_assumed_covariance_is_the_root_of_the_total():
    X, y = people(30, 1, width=8)
    sums = sums_of(X, y)[0]
    assert sums.single
    found = Kindred.assumed(sums)
    share = ledoit_wolf_shrinkage(X - X.mean(axis=0), assume_centered=True)
    total = np.cov(X.T)
    total = (1 - share) * total + share * np.trace(total) / 8 * np.eye(8)
    values, turn = np.linalg.eigh(total)
    within = (turn * np.sqrt(values)) @ turn.T * WITHIN * values.sum() / np.sqrt(values).sum()
    close(found.axes.T @ within @ found.axes, np.eye(8))
    both = found.axes.T @ total @ found.axes
    close(both, np.diag(1 + found.values))


@CASES
def test_labels_may_have_one_row(template, width, tmp_path):
    X, y = people(18, 6, width)
    first = np.arange(len(y)) % 6 < 1
    bank = VerifierBank(template).fit(X[first], y[first])
    assert type(bank._labels_).__name__ == "KindredLabels"
    assert bank.score(X[~first], y[~first]) > 0.9
    ratios = bank.log_likelihood_ratio(X[~first])
    model = bank.models_[3]
    close(model.log_likelihood_ratio(X[~first]), ratios[:, 3])
    assert not hasattr(model, "loo_scores_")
    save(bank, tmp_path / "bank.pcsda")
    assert_array_equal(load(tmp_path / "bank.pcsda").log_likelihood_ratio(X[~first]), ratios)
    # A second row of one label changes its mean, and no assumption.
    bank.update(X[4:5] + 0.01, 0)
    again = VerifierBank(template).fit(
        np.concatenate([X[first], X[4:5] + 0.01]), np.append(y[first], 0)
    )
    if template is LINEAR:  # kernels have a bandwidth that follows the rows
        found, expected = bank._labels_, again._labels_
        close(found.shared.values, expected.shared.values)
        close(np.abs(found.shared.means), np.abs(expected.shared.means))
    # With two rows of most labels, their spread is known.
    second = np.arange(len(y)) % 6 == 1
    for label in range(1, 12):
        bank.update(X[second & (y == label)], label)
    if width == 20 and template is LINEAR:
        assert not bank._labels_._sums.single
    assert bank.score(X[~first & ~second], y[~first & ~second]) > 0.9
    assert bank.refresh().score(X[~first & ~second], y[~first & ~second]) > 0.9


@pytest.mark.more  # a matter of quality, on large samples
@pytest.mark.parametrize(
    ("n_people", "n_known", "n_rows", "within", "gain"),
    [(100, 60, 1, 0.5, 0.1), (160, 120, 4, 1.0, 0.03)],
)
def test_modelling_strangers_beats_modelling_the_other_labels(
    n_people, n_known, n_rows, within, gain
):
    """It names more known rows at 1% strangers than a bank of clusters, also from one row each."""
    X, y = people(n_people, 8, width=30, within=within)
    known, train = y < n_known, np.arange(len(y)) % 8 < n_rows
    clusters = PCSDA(n_subclasses=10, random_state=0)
    found = [named_correctly(one, X, y, known, train) for one in (LINEAR, clusters)]
    assert found[0] > found[1] + gain


def test_in_few_columns_large_labels_keep_strangers_out():
    """Clusters took strangers for the label that they resemble most."""
    X, y = people(32, 90, width=6, within=0.25)
    known, train = y < 12, np.arange(len(y)) % 90 < 60
    clusters = PCSDA(n_subclasses=20, random_state=0)
    found = [named_correctly(one, X, y, known, train) for one in (LINEAR, clusters)]
    assert found[0] > found[1] + 0.2


def test_labels_of_one_row_have_the_spread_of_those_with_more(monkeypatch):
    # Rows vary most where labels do not differ, which no assumption could guess.
    X, y = people(90, 6, width=30, within=0.6)
    X[:, 15:] += np.random.default_rng(1).normal(scale=2.0, size=(len(X), 15))
    first = np.arange(len(y)) % 6 == 0
    train = first | (y >= 70)  # 70 of 90 labels have one row
    found = []
    for enough in (10, 100):
        monkeypatch.setattr(labelled, "ENOUGH_REPEATED", enough)
        bank = VerifierBank(LINEAR).fit(X[train], y[train])
        assert bank._labels_._sums.single == (enough == 100)
        scores = bank.log_likelihood_ratio(X[~train])
        own = y[~train][:, None] == bank.classes_
        right = own[np.arange(len(own)), scores.argmax(axis=1)]
        found.append([right.mean(), cllr(own.ravel(), scores.ravel())])
    (named, loss), (assumed, loss_assumed) = found
    assert named > assumed + 0.1
    assert loss < loss_assumed - 0.1


@pytest.mark.each_value
@pytest.mark.parametrize("n_rows", [1, 5])
@CASES
def test_noise_is_hardly_ever_named(template, width, n_rows):
    """On every axis, a stranger's distribution is wider than that of any label."""
    X, y = people(60, n_rows, width)
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((200, width))
    drawn = rng.integers(len(X), size=noise.shape)
    kinds = {
        "noise of the same scale": X.mean() + X.std() * noise,
        "noise a hundred times larger": 100 * X.std() * noise,
        "columns of different rows": np.take_along_axis(X, drawn, axis=0),
        "columns in another order": rng.permuted(X, axis=1),
        "equal values": np.linspace(X.min(), X.max(), 21)[:, None] * np.ones(width),
        "rows a hundred times larger": 100 * X,
    }
    bank = VerifierBank(template).fit(X, y)
    for kind, rows in kinds.items():
        assert np.mean(bank.identify(rows, unknown=-1) >= 0) <= 0.03, kind


def test_some_rows_drawn_for_single_rows_are_as_far_off_as_strangers():
    law = Predictive(np.full(200, 30.0), np.inf)
    means = np.random.default_rng(0).normal(scale=np.sqrt(31), size=(2000, 200))
    counts = np.ones(2000)
    rows = law.draw(means, counts, np.random.default_rng(1))
    square = ((rows - law.expected(means, counts)) ** 2 / law.variances(counts)).mean(axis=1)
    # 1 for rows of the label, times the square of their spread; about 30 for a stranger.
    assert np.mean(square > 8) == pytest.approx(FAR_OFF, abs=0.03)
    assert np.median(square[square < 8]) == pytest.approx(1, abs=0.1)


@pytest.mark.each_value
@pytest.mark.parametrize(
    "n_rows", [1, 5, *(pytest.param(n, marks=pytest.mark.more) for n in (10, 20))]
)
@pytest.mark.parametrize("n_people", [30, 300])
def test_strangers_are_accepted_as_often_as_promised(n_people, n_rows):
    rates, came = (0.1, 0.05), []
    for seed in range(8 if n_people == 30 else 4):  # few people say little about others
        X, y = people(n_people + 100, n_rows, width=40, within=2.0, seed=seed)
        known = y < n_people
        bank = VerifierBank(LINEAR).fit(X[known], y[known])
        best = bank.log_likelihood_ratio(X[~known]).max(axis=1)
        came.append([np.mean(best >= bank.choose_threshold(rate).value) for rate in rates])
    for rate, share in zip(rates, np.mean(came, axis=0), strict=True):
        assert rate / 2 < share < rate * 2


@pytest.mark.filterwarnings("ignore:at the threshold of .* labels reject")
@pytest.mark.more  # at the default rate; higher ones, above, need fewer draws
@pytest.mark.parametrize(("n_people", "n_rows"), [(10, 20), (30, 5)])
def test_one_stranger_in_a_hundred_comes_in_on_average(n_people, n_rows):
    came = []
    for seed in range(8):
        X, y = people(n_people + 60, n_rows, width=8, seed=seed)
        known = y < n_people
        bank = VerifierBank(LINEAR).fit(X[known], y[known])
        came.append(np.mean(bank.identify(X[~known], unknown=-1) != -1))
    assert 0.005 < np.mean(came) < 0.018


def test_tails_follow_the_rows():
    rng = np.random.default_rng(0)
    X, y = people(60, 6)
    heavy = X + 0.5 * rng.standard_t(3, size=X.shape) * rng.gamma(1, 1, size=(len(X), 1))
    assert fit_kindred(heavy, y, rng).kindred.tail < 20
    assert np.isinf(fit_kindred(heavy, y, rng, tails=False).kindred.tail)
    known = LabelledRows.of(X, np.where(y > 50, -1, y))
    assert len(known.counts) == 51
    law = Predictive(np.ones(3), 5.0)
    near = law.places(np.zeros((2, 3)), np.array([2.0, 4.0]))
    row = np.full((1, 3), 3.0)
    single = replace(law).ratios(row.astype(np.float32), near.single())
    assert_allclose(single, law.ratios(row, near), rtol=1e-5)

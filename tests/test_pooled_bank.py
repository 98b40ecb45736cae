"""The bank with one calibration for all labels: equalities, strangers, changes, refusals."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from bank_factories import animals as problem
from bank_factories import exposed, people
from factories import close, in_turn, make_rows, turned_toward
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from pcsda import (
    CSDA,
    PCSDA,
    PCSDACV,
    KernelPCSDA,
    MixtureVerifier,
    VerifierBank,
    load,
    make_pipeline,
    save,
)
from pcsda.core.calibration import Scored
from pcsda.core.many import solve_labels
from pcsda.core.pooling import Block, moved_labels, turns_of
from pcsda.core.shared_rows import SharedRows
from pcsda.unwrap import asked, unwrap

LINEAR = PCSDA(n_subclasses=3, regularization=0.1, random_state=0)
KERNEL = KernelPCSDA(gamma=0.03, n_subclasses=3, regularization=0.1, random_state=0)
CASES = in_turn(
    ("template", "width"),
    [(LINEAR, 6), (LINEAR, 130), (KERNEL, 6), (clone(LINEAR).set_params(negatives="mixture"), 6)],
    ids=["tall", "wide", "kernel", "mixture"],
)


@CASES
def test_axes_and_densities_equal_a_separate_fit_with_common_shrinkage(template, width):
    X, y = problem(width)
    new = problem(width, seed=3)[0]
    bank = VerifierBank(template).fit(X, y)
    strength = bank._labels_.side.pool.shrinkage
    for label, model in bank.models_.items():
        alone = clone(template).set_params(shrinkage=strength, tails="gaussian")
        alone.fit(X, y == label, subclass_labels=bank.clusters_)
        close(model.eigenvalues_, alone.eigenvalues_, 1e-7)
        signs = np.sign(np.sum(model.transform(new) * alone.transform(new), axis=0))
        close(model.transform(new) * signs, alone.transform(new), 1e-7)
        found, expected = model.density_.base, alone.density_.base
        for name in ("positive", "negative"):
            close(getattr(found, name) * np.outer(signs, signs), getattr(expected, name), 1e-7)
        close(found.centres * signs, expected.centres, 1e-7)
        assert_array_equal(model.partition_, alone.partition_)


@in_turn(
    ("template", "data"),
    [
        (LINEAR, problem()),
        (KERNEL, problem()),
        (PCSDA(random_state=0), people(12, 5)),
        (PCSDA(random_state=0), (exposed(people(40, 5)[0]), people(40, 5)[1])),
    ],
    ids=["clusters", "kernel", "shared covariances", "unit length"],
)
def test_changing_a_model_changes_neither_the_bank_nor_the_next_model(template, data):
    X, y = data
    bank, label = VerifierBank(template).fit(X, y), y[0]
    before, left = bank.log_likelihood_ratio(X), unwrap(bank.models_[label]).model.loo_scores_
    changed = unwrap(bank.models_[label])
    changed.model.choose_threshold(max_false_alarms=0.1)
    changed.model.recalibrate(changed.rows(X), y != label)
    again = bank.models_[label]
    close(asked(again, "log_likelihood_ratio", X), before[:, 0])
    assert_array_equal(unwrap(again).model.loo_scores_, left)
    assert not hasattr(unwrap(again).model, "threshold_")
    assert_array_equal(bank.log_likelihood_ratio(X), before)
    close(bank.explain(X, label).score, before[:, 0])


@CASES
def test_the_bank_agrees_with_its_models(template, width):
    X, y = problem(width)
    new = problem(width, seed=3)[0]
    bank = VerifierBank(template).fit(X, y)
    ratios, odds = bank.log_likelihood_ratio(new), bank.decision_function(new)
    for column, model in enumerate(bank.models_.values()):
        close(ratios[:, column], model.log_likelihood_ratio(new), 1e-9)
        close(odds[:, column], model.decision_function(new), 1e-9)
        assert model.loo_scores_.shape == (len(X),)
    close(bank.verify(new, "cat"), ratios[:, 2])
    trials = np.arange(len(new)) // 3
    expected = [model.log_likelihood_ratio(new, trials) for model in bank.models_.values()]
    close(bank.log_likelihood_ratio(new, trials), np.transpose(expected))


@CASES
def test_files_pickles_and_jobs_change_nothing(template, width, tmp_path):
    X, y = problem(width)
    bank = VerifierBank(template).fit(X, y)
    ratios = bank.log_likelihood_ratio(X)
    save(bank, tmp_path / "bank.pcsda")
    copies = [load(tmp_path / "bank.pcsda"), pickle.loads(pickle.dumps(bank))]
    copies.append(VerifierBank(template, n_jobs=2).fit(X, y))
    for copy in copies:
        assert_array_equal(copy.log_likelihood_ratio(X), ratios)
        assert copy.threshold_ == bank.threshold_
        limit = bank.threshold_.value
        assert_array_equal(copy.identify(X, limit, "?"), bank.identify(X, limit, "?"))
        assert copy.enroll(X[:4] + 0.3, "cow").classes_.tolist()[3] == "cow"
        assert copy.choose_threshold(0.2).value < bank.threshold_.value


def fresh(bank, X, y, background=None):
    """Fit the same rows with a bank's clusters and ridge."""
    other = clone(bank.estimator)
    rows = X if background is None else np.concatenate([X, background])
    values = bank.kernel_(rows, rows) if hasattr(bank, "kernel_") else None
    spread = rows.var(axis=0).sum() if values is None else np.trace(values) / len(rows)
    spread = spread if values is None else spread - values.mean()
    other.set_params(regularization=bank.ridge_ / spread)
    clusters = bank.clusters_[: len(X)]
    return VerifierBank(other).fit(X, y, subclass_labels=clusters, background=background)


CHANGES = {
    "enroll": lambda bank, new: bank.enroll(new, "cow"),
    "update": lambda bank, new: bank.update(new, "bee"),
    "remove": lambda bank, new: bank.remove("dog"),
    "reject": lambda bank, new: bank.reject(new, "bee"),
}


@pytest.mark.each_value
@pytest.mark.parametrize("change", CHANGES)
@CASES
def test_a_change_equals_a_fresh_fit(template, width, change):
    X, y = problem(width)
    new, rows, names, background = 0.5 + problem(width, seed=11)[0][:7], X, y, None
    # Given clusters are held in folds, too.
    clusters = VerifierBank(template).fit(X, y).clusters_
    bank = VerifierBank(template).fit(X, y, subclass_labels=clusters)
    before = bank.log_likelihood_ratio(X)
    CHANGES[change](bank, new)
    label = {"enroll": "cow", "update": "bee", "reject": "bee", "remove": None}[change]
    if change == "remove":
        rows, names = X[y != "dog"], y[y != "dog"]
    elif change == "reject":
        background = new
    else:
        rows, names = np.concatenate([X, new]), np.append(y, [label] * len(new))
    again = fresh(bank, rows, names, background)
    assert_array_equal(bank.clusters_, again.clusters_)
    for name in bank.classes_.tolist():
        found, expected = bank.models_[name], again.models_[name]
        if name == label:
            close(np.abs(found.transform(X)), np.abs(expected.transform(X)), 1e-7)
            close(found.eigenvalues_, expected.eigenvalues_, 1e-7)
        else:
            old = {"ant": 0, "bee": 1, "cat": 2, "dog": 3}[name]
            close(bank.verify(X, name), before[:, old])
    assert_allclose(
        bank.refresh().log_likelihood_ratio(X), again.log_likelihood_ratio(X), 1e-5, 1e-5
    )
    assert bank.threshold_.value == pytest.approx(again.threshold_.value, abs=1e-4)


@pytest.mark.parametrize(
    "steps", [["add"], ["copy"], ["remove", "add"], ["reject", "copy", "add"]], ids="-".join
)
def test_many_changes_of_a_kernel_bank_equal_factorising_again(steps):
    X, y = problem(6)
    new, copies = 0.5 + problem(6, seed=11)[0], np.repeat(1 + X[:1], 2, axis=0)
    bank, anew = (VerifierBank(KERNEL).fit(X, y) for _ in range(2))
    say = {
        "add": lambda bank: bank.update(new[:3], "bee"),
        "copy": lambda bank: bank.update(copies, "cat"),  # adds less than a feature per row
        "remove": lambda bank: bank.remove("dog"),
        "reject": lambda bank: bank.reject(new[9:12], "ant"),
    }
    for step in steps:
        say[step](bank)
        anew._labels_.factorised = None
        say[step](anew)
        close(bank.log_likelihood_ratio(new), anew.log_likelihood_ratio(new), 1e-7)
    copy = pickle.loads(pickle.dumps(bank))
    assert_array_equal(copy.log_likelihood_ratio(new), bank.log_likelihood_ratio(new))
    model = copy.models_["bee"]
    close(model.log_likelihood_ratio(new), bank.verify(new, "bee"))
    model, other = (one.update(new[20:22], "ant").models_["ant"] for one in (copy, bank))
    close(model.loo_scores_, other.loo_scores_, 1e-7)


@CASES
def test_stacked_labels_follow_changes(template, width):
    """Scores after changes equal those of a copy that stacks all labels again."""
    X, y = problem(width)
    new = 0.5 + problem(width, seed=11)[0]
    bank = VerifierBank(template).fit(X, y)
    bank.log_likelihood_ratio(new)
    for changes in (
        [lambda: bank.enroll(new[:6], "cow")],
        [lambda: bank.update(new[6:8], "ant"), lambda: bank.remove("bee")],
        [lambda: bank.reject(new[8:9], "dog"), lambda: bank.enroll(new[9:12], "bat")],
        [lambda: bank.remove("cow")],
    ):
        for change in changes:
            change()
        copy = pickle.loads(pickle.dumps(bank))
        close(bank.log_likelihood_ratio(new), copy.log_likelihood_ratio(new), 1e-9)
        assert bank._labels_.side.earlier is None  # given back


def test_a_samples_statistics_follow_added_and_removed_rows():
    X, labels, _ = make_rows((60, 50, 40), 5, seed=0)
    X = X + 3.0
    rng = np.random.default_rng(0)
    clusters, keys = rng.integers(0, 3, len(X)), rng.random(len(X))
    first, kept = np.arange(120), np.arange(150) % 7 > 0
    shared = SharedRows.of(X[:120], labels[:120], clusters[:120], keys[:120], 40, 0.1)
    for step in range(2):  # with what the first sample knew, and without
        if step == 0:
            assert len(shared.norms) < 50
        more = shared.holding(X, labels, clusters, keys, None).with_last(30)
        data = X[kept], labels[kept], clusters[kept], keys[kept], None
        less = more.without(np.flatnonzero(~kept)).holding(*data, kept)
        for found in (more, less):
            fresh = replace(found, held=None)
            assert (found.held is None) == (step == 1)
            assert_array_equal(found.sample, fresh.sample)
            close(found.sample_products(np.eye(5)), fresh.sample_products(np.eye(5)))
            close(found.norms, fresh.norms)
        shared = SharedRows.of(X[first], labels[first], clusters[first], keys[first], 40, 0.1)


def test_a_samples_statistics_follow_many_small_changes():
    """Rows that leave the sample stay in its arrays for a while, and are then dropped."""
    X, labels, _ = make_rows((60, 50, 40), 5, seed=0)
    rng = np.random.default_rng(1)
    clusters, keys = rng.integers(0, 3, len(X)), rng.random(len(X))
    shared = SharedRows.of(X[:140], labels[:140], clusters[:140], keys[:140], 60, 0.1)
    assert len(shared.norms) < 70
    for step in range(10):
        rows = shared.rows, shared.owner, shared.clusters, shared.keys
        more = X[140 + step], labels[140 + step], clusters[140 + step], keys[140 + step]
        data = [np.append(old, [new], 0) for old, new in zip(rows, more, strict=True)]
        shared = shared.holding(*data, None).with_last(1)
        kept = np.arange(len(data[0])) != rng.integers(len(data[0]))
        rows = shared.rows[kept], shared.owner[kept], shared.clusters[kept], shared.keys[kept]
        shared = shared.without(np.flatnonzero(~kept)).holding(*rows, None, kept)
        fresh = replace(shared, held=None)
        close(shared.sample_products(np.eye(5)), fresh.sample_products(np.eye(5)))
        close(shared.norms, fresh.norms)


@pytest.mark.more  # a matter of quality; other tests cover their definition
def test_labels_as_subclasses_separate_strangers_better():
    """The planted identities differ in directions where their rows vary little."""
    rng = np.random.default_rng(0)
    scale = np.append(np.full(10, 0.3), np.full(40, 1.5))
    centres = np.append(np.full(10, 1.0), np.full(40, 0.5)) * rng.standard_normal((60, 50))
    y = np.repeat(np.arange(60), 12)
    X = centres[y] + scale * rng.standard_normal((len(y), 50))
    known, train = y < 40, np.arange(len(y)) % 12 < 6
    found = []
    for estimator in (PCSDA(), PCSDA(n_subclasses=16, random_state=0)):
        bank = VerifierBank(estimator).fit(X[known & train], y[known & train])
        scores = bank.log_likelihood_ratio(X[~train])
        bar = np.quantile(scores[~known[~train]].max(axis=1), 0.99)
        right = scores.argmax(axis=1) == y[~train]
        found.append(np.mean((right & (scores.max(axis=1) > bar))[known[~train]]))
    assert found[0] > found[1] + 0.03


def scatter_of(shared, X, label):
    """Return the scatter within a label's groups, and the ridge."""
    within = shared.ridge * np.eye(X.shape[1])
    groups = shared.groups(label, np.arange(len(X)), np.arange(4))
    for group in range(5):
        rest = X[groups == group] - X[groups == group].mean(axis=0)
        within += rest.T @ rest
    return within


def test_leaving_out_strangers_equals_a_refit_without_them():
    X, y = people(6, 5, width=4)
    clusters = np.arange(30) % 4
    keys, every = np.zeros(30), np.arange(6)
    shared = SharedRows.of(X, y, clusters, keys, 1000, 0.3)
    labels = list(solve_labels(shared, every))
    turns = turns_of(labels, 4, 4)
    block = Block.of(shared, shared.own(2), np.array([0, 5]), turns[[0, 5]])
    kept = y != 2
    without = shared.without(np.flatnonzero(~kept)).holding(
        X[kept], y[kept], clusters[kept], keys[kept], None
    )
    for place, label in enumerate((0, 5)):
        _, counts, means = without.division(without.own(label))
        within, before = (
            scatter_of(rows, some, label) for rows, some in ((without, X[kept]), (shared, X))
        )
        delta = means[1:] - means[0]
        solved = np.linalg.solve(within, delta.T) @ turns[label]
        solved = turned_toward(solved, within, labels[label].subspace.coefficients, before)
        close(block.z[place], (X[~kept] - shared.origin - means[0]) @ solved)
        close(block.centres[place], delta @ solved)
        close(np.exp(block.log_weights[place]), counts[1:] / counts[1:].sum())


@pytest.mark.parametrize("n_rows", [5, pytest.param(20, marks=pytest.mark.more)])
@pytest.mark.parametrize("n_people", [60, pytest.param(300, marks=pytest.mark.more)])
def test_strangers_are_accepted_about_as_often_as_promised(n_people, n_rows):
    X, y = people(n_people + 400, n_rows)
    known = y < n_people
    bank = VerifierBank(PCSDA(random_state=0)).fit(X[known], y[known])
    for rate in (0.05, 0.2):
        bank.choose_threshold(rate)
        let_in = np.mean(bank.identify(X[~known], unknown=-1) != -1)
        assert rate / 2.5 < let_in < 2.5 * rate


@pytest.mark.more  # 500 people; the law is that of the test above
def test_strangers_are_no_outliers_where_the_axes_fill_the_space():
    X, y = people(500, 10)
    known, train = y < 300, np.arange(len(y)) % 10 < 5
    bank = VerifierBank(PCSDA(random_state=0)).fit(X[known & train], y[known & train])
    assert len(np.unique(bank.clusters_)) >= X.shape[1]
    strangers = bank.log_likelihood_ratio(X[~known]).max(axis=1)
    assert 0.005 < np.mean(strangers >= bank.threshold_.value) < 0.02


@pytest.mark.more
def test_the_threshold_grows_with_the_number_of_labels():
    X, y = people(40, 5)
    bank = VerifierBank(PCSDA(random_state=0)).fit(X[y < 30], y[y < 30])
    before = bank.threshold_.value
    for label in range(30, 40):
        bank.enroll(X[y == label], label)
    assert bank.threshold_.value > before
    assert "for 40 labels" in bank.threshold_.rule


def test_given_strangers_set_the_threshold():
    X, y = people(60, 5)
    bank = VerifierBank(PCSDA(random_state=0)).fit(X[y < 30], y[y < 30])
    strangers = X[y >= 30]
    threshold = bank.choose_threshold(0.3, strangers)  # where strangers are counted
    best = bank.log_likelihood_ratio(strangers).max(axis=1)
    assert np.mean(best >= threshold.value) == pytest.approx(0.3, abs=0.01)
    assert threshold.rule == "at most 30% of strangers accepted, on the 150 given"
    bank.enroll(X[y == 50], 50)  # this threshold is kept
    assert bank.threshold_ == threshold


def test_labels_leave_the_common_calibration_as_far_as_their_rows_allow():
    rng = np.random.default_rng(0)

    def label(offset, count):
        scores = np.append(rng.normal(2 + offset, 2, count), rng.normal(-2 + offset, 2, count))
        return Scored(scores, np.arange(2 * count) < count, np.ones(2 * count))

    alike, spread = moved_labels([label(0.0, 400) for _ in range(12)])
    assert np.abs(alike).max() < 0.2
    assert max(spread) < 0.2
    offsets = np.linspace(-3, 3, 12)
    moved, spread = moved_labels([label(offset, 400) for offset in offsets])
    assert spread[1] > 1
    assert_allclose(moved[:, 1], -offsets, atol=0.5)
    few, _ = moved_labels([label(3.0, 1)])
    assert abs(few[0, 1]) < 0.3


def test_background_rows_are_negatives_of_all_labels():
    X, y = people(8, 10)
    others = people(30, 1, seed=5)[0]
    bank = VerifierBank(PCSDA(random_state=0)).fit(X, y, background=others)
    plain = VerifierBank(PCSDA(random_state=0)).fit(X, y)
    assert len(bank.clusters_) == 110
    assert bank.models_[0].partition_.shape == (110,)
    assert bank.verify(others, 0).mean() < plain.verify(others, 0).mean()
    # Two labels can have strangers only with a background.
    two = y < 2
    assert not hasattr(VerifierBank(PCSDA(random_state=0)).fit(X[two], y[two]), "threshold_")
    small = VerifierBank(PCSDA(random_state=0)).fit(X[two], y[two], background=others)
    assert "31" not in small.threshold_.rule
    with pytest.warns(UserWarning, match="labels reject 100% of their own left-out rows"):
        assert small.identify(X[:3], unknown=-1).tolist() == [-1] * 3


def test_enrolling_one_row_warns_what_to_expect():
    X, y = people(20, 5)
    bank = VerifierBank(PCSDA(random_state=0)).fit(X, y)
    with pytest.warns(UserWarning, match=r"label 99 has one row.*expect about \d+% of its rows"):
        bank.enroll(people(1, 1, seed=9)[0], 99)
    assert bank.predict(people(1, 1, seed=9)[0]) == 99


def test_a_label_of_one_row_may_have_fewer_views_than_the_bank():
    """Its negatives form a single cluster, so there is no blend, whose weights the bank has."""
    rng = np.random.default_rng(0)
    X = 3 * rng.normal(size=(5, 3))
    bank = VerifierBank(PCSDA(random_state=0)).fit(X, list("abcde"), background=X[:1] + 1)
    with pytest.warns(UserWarning, match="label 'f' has one row"):
        bank.enroll(X[:1] - 1, "f")
    assert np.isfinite(bank.log_likelihood_ratio(X)).all()


@pytest.mark.parametrize("n_rows", [1, 2])
def test_labels_of_few_or_equal_rows_have_models(n_rows):
    X, y = people(12, n_rows)
    X[y == 3] = X[y == 3][0]
    bank = VerifierBank(PCSDA(random_state=0)).fit(X, y)
    assert np.isfinite(bank.log_likelihood_ratio(X + 0.01)).all()
    assert np.mean(bank.predict(X + 0.01) == y) > 0.9


@pytest.fixture(scope="module")
def crowd():
    X, y = people(12, 6)
    return X, y, VerifierBank(PCSDA(random_state=0)).fit(X, y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b, X: b.update(X[:2] + 1, 77), r"label 77 is not in the bank; enroll it first"),
        (lambda b, X: b.reject(X[:2] + 1, 77), r"label 77 is not in the bank; enroll it first"),
        (lambda b, X: b.update(X[:2, :5], 3), "X has 5 features, but VerifierBank is expecting 20"),
        (lambda b, X: b.reject(X[:2, :5], 3), "X has 5 features, but VerifierBank is expecting 20"),
        (lambda b, X: b.update(X[:1], 3), "row 0 of X is already in the bank, as a row of label 0"),
        (
            lambda b, X: b.enroll(np.vstack([X[:1] + 1, X[7:8]]), 50),
            "row 1 of X is already in the bank, as a row of label 1; a row belongs to one label",
        ),
        (lambda b, X: b.reject(X[:1], 0), "row 0 of X is already in the bank, as a row of label 0"),
        (lambda b, X: b.enroll(X[:1] + 1, "me"), "label 'me' has a different type"),
        (lambda b, X: b.choose_threshold(0), "max_false_alarms=0 must be a number between 0 and 1"),
        (lambda b, X: b.choose_threshold(0.1, X[:, :3]), "^strangers: X has 3 features"),
        (lambda b, X: b.choose_threshold(0.1, X * np.nan), "^strangers: Input X contains NaN"),
        (lambda b, X: b.update(X[:0], 3), "0 sample"),
    ],
)
def test_refusals_change_nothing(crowd, call, message):
    X, _, bank = crowd
    before = dict(vars(bank))
    with pytest.raises(ValueError, match=message):
        call(bank, X)
    assert all(vars(bank)[name] is value for name, value in before.items())


@pytest.mark.parametrize(
    ("background", "message"),
    [
        (np.zeros((0, 20)), "background has 0 rows and needs at least 1; leave it out"),
        (np.zeros((3, 4)), "^background: X has 4 features"),
        (np.full((3, 20), np.nan), "^background: Input X contains NaN"),
        (people(12, 6)[0][5:7], "row 0 of background is row 5 of X, which has a label"),
    ],
)
def test_a_nonsensical_background_is_refused(background, message):
    X, y = people(12, 6)
    with pytest.raises(ValueError, match=message):
        VerifierBank().fit(X, y, background=background)


def test_a_row_with_two_labels_warns():
    X, y = people(4, 6)
    names = np.array(["ant", "bee", "cat", "dog"])[y]
    with pytest.warns(UserWarning, match="rows 2 and 24 of X .* 'ant' and 'cat'; a row belongs"):
        VerifierBank().fit(np.vstack([X, X[2:3]]), np.append(names, "cat"))


def test_labels_of_mixed_types_are_refused():
    X, y = people(4, 6)
    with pytest.raises(ValueError, match=r"several types, int, str, .* such as y.astype\(str\)"):
        VerifierBank().fit(X, np.array([0, 1, "cat", "dog"], dtype=object)[y])


def test_rows_of_the_bank_are_refused_as_strangers(crowd):
    X, _, bank = crowd
    before = bank.threshold_
    with pytest.raises(ValueError, match="row 1 of strangers is already in the bank"):
        bank.choose_threshold(0.1, strangers=np.vstack([X[:1] + 50.0, X[7:8]]))
    assert bank.threshold_ is before


def test_a_rate_finer_than_the_people_can_show_warns(crowd):
    bank = crowd[2]
    with pytest.warns(UserWarning, match=r"max_false_alarms=0.001 is below .* the bank's own 12"):
        bank.choose_threshold(0.001)
    n_rows = len(bank._labels_.door.best)
    worth = n_rows / (1 + 0.5 * (n_rows / 12 - 1))  # scores of one label correlate by a half
    with pytest.warns(UserWarning, match=f"is below {1 / worth:.2g}, .* 12 labels with {n_rows} r"):
        bank.choose_threshold(0.9 / worth)
    bank.choose_threshold(1.1 / worth)
    with pytest.warns(UserWarning, match=r"=0.001 is below 0.1, .* 10 strangers can.*least 1000"):
        bank.choose_threshold(0.001, people(10, 1, seed=4)[0])
    with pytest.warns(UserWarning, match="the smallest rate that 1 stranger can show"):
        bank.choose_threshold(0.001, people(1, 1, seed=4)[0])


def test_two_labels_without_background_need_strangers():
    X, y = people(2, 12)
    bank = VerifierBank(PCSDA(random_state=0)).fit(X, y)
    cause = "with 2 labels and no background, .* strangers, enroll a third label and call refresh"
    with pytest.raises(ValueError, match=f"the bank cannot choose a threshold: {cause}"):
        bank.choose_threshold()
    with pytest.warns(UserWarning, match=f"identify uses a threshold of 0, .*: {cause}"):
        found = bank.identify(X, unknown=-1)
    assert_array_equal(found, bank.identify(X, 0.0, unknown=-1))
    assert bank.choose_threshold(0.1, people(30, 1, seed=4)[0]).n_negatives == 30
    bank.identify(X)
    more = people(3, 12, seed=5)[0][:12]
    assert not hasattr(VerifierBank(PCSDA(random_state=0)).fit(X, y), "threshold_")
    again = VerifierBank(PCSDA(random_state=0)).fit(X, y).enroll(more, 2).refresh()
    assert "on 3 identities" in again.threshold_.rule
    with pytest.raises(ValueError, match="calibration='mine' must be one of 'pooled', 'per-label'"):
        VerifierBank(calibration="mine").fit(X, y)


SEPARATE = {
    "linear": {"estimator": PCSDA(random_state=0), "calibration": "per-label"},
    "own bandwidths": {"estimator": KernelPCSDA(random_state=0), "calibration": "per-label"},
    "own clusters": {"estimator": PCSDA(random_state=0), "subclasses": "per-class"},
    "CSDA": {"estimator": CSDA(random_state=0)},
    "search": {"estimator": PCSDACV(PCSDA(2, random_state=0), n_subclasses=2, regularization=0.1)},
}


@pytest.mark.parametrize(
    "name",
    [
        "linear",
        *(pytest.param(n, marks=pytest.mark.more) for n in SEPARATE if n != "linear"),
    ],
)
def test_labels_calibrated_separately_have_a_threshold_too(name):
    accepted, named = [], []
    for seed in range(2):  # much depends on who the strangers are
        X, y = people(20, 12, width=12, seed=seed)
        known, train = y < 8, np.arange(len(y)) % 2 == 0
        bank = VerifierBank(**SEPARATE[name]).fit(X[known & train], y[known & train])
        rule, n_positives = bank.threshold_.rule, bank.threshold_.n_positives
        assert rule.startswith("at most 1% of strangers accepted, on 8 identities")
        # Models without left-out scores leave out one of six rows per label.
        assert n_positives == (8 if isinstance(bank.estimator, CSDA) else 48)
        threshold = bank.choose_threshold(0.2).value
        best = bank.log_likelihood_ratio(X).max(axis=1)
        accepted.append(np.mean(best[~known] >= threshold))
        named.append(np.mean(best[known & ~train] >= threshold))
    assert 0.05 < np.mean(accepted) < 0.4
    assert np.mean(named) > 2 * np.mean(accepted)


@pytest.mark.more
def test_separate_labels_are_scored_as_strangers_by_banks_that_lack_them():
    X, y = people(9, 6, width=8)
    clusters = np.arange(len(X)) % 3
    template = PCSDA(solver="eigen", regularization=0.1, random_state=0)
    bank = VerifierBank(template).fit(X, y, subclass_labels=clusters)
    door = bank._labels_.door
    assert_array_equal(np.unique(door.identity), np.arange(9))
    expected = [model.loo_scores_[y == label] for label, model in bank.models_.items()]
    assert_array_equal(door.own, np.concatenate(expected))
    # The labels of a fold are next to each other; find the folds by the scores themselves.
    ends = np.flatnonzero(np.diff(door.identity) < 0) + 1
    parts = list(zip(np.split(door.identity, ends), np.split(door.best, ends), strict=True))
    for identity, best in parts:
        gone = np.isin(y, identity)
        rest = VerifierBank(template).fit(X[~gone], y[~gone], subclass_labels=clusters[~gone])
        assert_allclose(best, rest.log_likelihood_ratio(X[gone]).max(axis=1), rtol=1e-9)


@pytest.mark.more
def test_the_scores_of_strangers_are_kept_by_files_and_changes(tmp_path):
    X, y = people(10, 6, width=8)
    bank = VerifierBank(PCSDA(random_state=0), calibration="per-label").fit(X, y)
    save(bank, tmp_path / "bank.pcsda")
    for copy in (load(tmp_path / "bank.pcsda"), pickle.loads(pickle.dumps(bank))):
        assert copy.threshold_ == bank.threshold_
        assert copy.choose_threshold(0.3) == pickle.loads(pickle.dumps(bank)).choose_threshold(0.3)
    before = bank.threshold_.value
    bank.enroll(people(11, 6, width=8, seed=3)[0][-6:], 10)
    assert bank.threshold_.value > before  # one more label may accept a stranger
    assert "on 10 identities" in bank.threshold_.rule
    assert "on 11 identities" in bank.refresh().threshold_.rule


@pytest.mark.filterwarnings("ignore:at the threshold of")  # of so few labels
@pytest.mark.more
def test_labels_are_scored_as_strangers_only_when_the_threshold_is_needed():
    X, y = people(9, 6, width=8)
    fresh, _ = people(11, 6, width=8, seed=3)
    early, late = (
        VerifierBank(PCSDA(random_state=0), calibration="per-label").fit(X, y) for _ in range(2)
    )
    asked = early.threshold_
    for bank in (early, late):  # the labels of the fit serve as strangers, asked for or not
        bank.enroll(fresh[-6:], 9).update(fresh[:2], 0).remove(3)
    assert "door" not in vars(late._labels_)
    assert_array_equal(late.identify(X), early.identify(X))
    assert late.threshold_ == early.threshold_ == asked
    assert vars(late)["threshold_"] is late.threshold_  # identify has stored it
    late.choose_threshold(0.1, strangers=fresh[20:40])
    assert late.remove(4).refresh().threshold_.rule.endswith("on the 20 given")


@pytest.mark.more
def test_a_matrix_of_kernel_values_has_the_threshold_of_its_kernel():
    X, y = people(9, 6, width=8)
    clusters = np.arange(len(X)) % 3
    fixed = {"regularization": 0.1, "random_state": 0}
    matrix = np.exp(-0.03 * ((X[:, None] - X) ** 2).sum(axis=2))
    banks = [
        VerifierBank(KernelPCSDA(**one, **fixed), calibration="per-label").fit(
            rows, y, subclass_labels=clusters
        )
        for one, rows in (({"kernel": "precomputed"}, matrix), ({"gamma": 0.03}, X))
    ]
    doors = [bank._labels_.door for bank in banks]
    assert_array_equal(doors[0].identity, doors[1].identity)
    # Shared rows keep the ridge of all labels, a matrix takes the ridge of those that are left.
    assert np.corrcoef(doors[0].best, doors[1].best)[0, 1] > 0.99


@pytest.mark.more
def test_the_papers_bandwidth_is_shared_where_labels_share_a_calibration():
    X, y = people(12, 6)
    banks = [
        VerifierBank(KernelPCSDA(gamma=gamma, random_state=0)).fit(X, y)
        for gamma in ("positive", "all")
    ]
    assert_array_equal(*(bank.log_likelihood_ratio(X) for bank in banks))
    assert banks[0].threshold_ == banks[1].threshold_
    assert banks[0].estimator.gamma == "positive"
    alone = VerifierBank(KernelPCSDA(random_state=0), calibration="per-label").fit(X, y)
    assert len({model.kernel_.gamma for model in alone.models_.values()}) == 12
    banks[0].set_params(calibration="per-label").fit(X, y)  # nothing is left of the first fit
    assert_array_equal(banks[0].log_likelihood_ratio(X), alone.log_likelihood_ratio(X))


def test_a_bank_that_names_hardly_anybody_says_so():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 5)), np.repeat([0, 1, 2], 10)
    bank = VerifierBank(PCSDA(random_state=0)).fit(X, y)
    assert bank.threshold_.misses > 0.9
    message = r"labels reject \d+% of their own left-out rows.*1% of strangers.*a higher rate"
    with pytest.warns(UserWarning, match=message):
        assert np.mean(bank.identify(X, unknown=-1) == -1) > 0.9
    bank.choose_threshold(0.9)
    bank.identify(X)


@pytest.mark.more
def test_models_without_left_out_scores_are_refitted_to_know_their_misses():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 5)), np.repeat([0, 1, 2], 10)
    bank = VerifierBank(CSDA()).fit(X, y)
    assert not hasattr(bank.models_[0], "loo_scores_")
    with pytest.warns(UserWarning, match=r"labels reject \d+% of their own left-out rows"):
        bank.identify(X, unknown=-1)
    # Where labels differ, the bank expects as many misses as new rows suffer.
    X, y = people(12, 10)
    bank = VerifierBank(CSDA()).fit(X, y, background=people(5, 1, seed=3)[0])
    new = people(12, 40)[0]
    missed = bank.verify(new, np.repeat(np.arange(12), 40)) < bank.threshold_.value
    assert bank.threshold_.n_positives == 24
    assert bank.threshold_.misses == pytest.approx(np.mean(missed), abs=0.15)
    alone = replace(bank._labels_.door, own=np.zeros(0)).choose(0.01, 12, quiet=True)
    assert alone.value == bank.threshold_.value  # only strangers decide


def test_labels_of_one_row_cannot_be_refitted_without_it():
    X, y = people(6, 1)
    bank = VerifierBank(CSDA()).fit(X, y)
    assert len(bank._labels_.door.own) == 0


def test_too_many_labels_for_memory_are_refused_before_allocation(monkeypatch):
    X, y = people(12, 6)
    monkeypatch.setattr("pcsda.estimators.pooled_labels.available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"a bank of 12 labels with .* GiB are available; lower"):
        VerifierBank(PCSDA(random_state=0)).fit(X, y)


def test_labels_that_shared_rows_do_not_determine_are_fitted_separately():
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([0, 1, 2, 3], [12, 10, 9, 11]))
    X = rng.standard_normal((4, 5))[y] + 1e-6 * rng.standard_normal((len(y), 5))
    bank = VerifierBank(PCSDA(4, regularization=1e-12, random_state=0)).fit(X, y)
    assert hasattr(bank._labels_, "sharing")
    assert bank.score(X, y) == 1


@pytest.mark.more
def test_groups_are_left_out_together():
    X, y = people(10, 8)
    groups = np.arange(80) // 2
    X = X + 0.4 * np.random.default_rng(1).standard_normal((40, 20))[groups]
    bank = VerifierBank(PCSDA(random_state=0)).fit(X, y, groups=groups)
    rows = VerifierBank(PCSDA(random_state=0)).fit(X, y)
    left = np.array([bank.models_[label].loo_scores_[y == label].mean() for label in range(10)])
    one = np.array([rows.models_[label].loo_scores_[y == label].mean() for label in range(10)])
    assert left.mean() < one.mean()


@pytest.mark.more  # a matter of quality
def test_a_sample_of_the_rows_gives_nearly_the_same_bank():
    X, y = people(30, 40)
    whole = VerifierBank(PCSDA(shrinkage=10, random_state=0)).fit(X, y)
    part = VerifierBank(PCSDA(shrinkage=10, random_state=0, calibration_rows=400)).fit(X, y)
    assert np.isnan(part.models_[0].loo_scores_).sum() > 700
    assert len(part.models_[0].loo_weights_) == 1200 - np.isnan(part.models_[0].loo_scores_).sum()
    new = people(30, 40, within=0.5)[0][::7] + 0.05
    found, expected = part.log_likelihood_ratio(new), whole.log_likelihood_ratio(new)
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.95


def test_models_are_a_read_only_mapping(crowd):
    bank = crowd[2]
    assert list(bank.models_) == list(range(12))
    assert 3 in bank.models_
    assert [] not in bank.models_
    with pytest.raises(TypeError):
        bank.models_[3] = None


@pytest.mark.parametrize(
    "template",
    [PCSDA(random_state=0), pytest.param(KernelPCSDA(random_state=0), marks=pytest.mark.more)],
    ids=str,
)
def test_a_label_is_counted_against_the_other_labels(template, tmp_path):
    rng = np.random.default_rng(0)
    centres = 2 * rng.standard_normal((8, 8))
    y = np.repeat(np.arange(8), 60)
    X, pool = (centres[y] + rng.standard_normal((480, 8)) for _ in range(2))
    bank = VerifierBank(template).fit(X, y)
    errors = [abs(bank.models_[label].count(pool).count - 60) for label in range(8)]
    assert np.mean(errors) < 5
    model = bank.models_[0]
    save(model, tmp_path / "one.pcsda")
    assert load(tmp_path / "one.pcsda").count(pool) == model.count(pool)
    with pytest.warns(UserWarning, match="one row"):
        bank.enroll(X[:1] + 9, 8)
    assert "compare a label with strangers" in bank.models_[8].count(pool).note
    wrong = model.log_likelihood_ratio(pool)
    assert model.recalibrate(pool, y == 0).count(pool).count == pytest.approx(60, abs=8)
    assert not np.allclose(model.log_likelihood_ratio(pool), wrong)


@pytest.mark.parametrize(
    "template",
    [pytest.param(LINEAR, marks=pytest.mark.more), PCSDA(random_state=0)],
    ids=["pooled", "kindred"],
)
def test_a_model_is_built_once_until_the_bank_changes(template):
    X, y = people(12, 6)[:2]
    bank = VerifierBank(template).fit(X, y)
    model = bank.models_[3]
    for again in (bank.models_[3], bank.named_model(3)):  # another object with the same arrays
        assert again.components_ is model.components_
        assert again.loo_scores_ is model.loo_scores_
    size = len(pickle.dumps(bank))
    assert size == len(pickle.dumps(VerifierBank(template).fit(X, y)))
    bank.update(X[y == 3] + 0.1, 3)
    assert bank.models_[3].positive_count_ == model.positive_count_ + 6


@pytest.mark.parametrize("rows", [8, pytest.param(80, marks=pytest.mark.more)])
def test_a_refresh_chooses_again_what_labels_share_once_the_rows_have_doubled(rows):
    X, y = people(12, rows)
    first = np.flatnonzero(np.arange(len(X)) % rows < 3)
    first = first[y[first] < 3]
    bank = VerifierBank(PCSDA(random_state=0)).fit(X[first], y[first])
    kept = len(bank.centroids_), bank.ridge_
    bank.update(X[first[:1]] + 0.1, 0).refresh()  # few new rows change none of these
    assert (len(bank.centroids_), bank.ridge_) == kept
    bank = VerifierBank(PCSDA(random_state=0)).fit(X[first], y[first])
    rest = np.setdiff1d(np.arange(len(X)), first)
    for label in range(12):
        add = bank.update if label < 3 else bank.enroll
        add(X[rest[y[rest] == label]], label)
    bank = pickle.loads(pickle.dumps(bank)).refresh()
    fresh = VerifierBank(PCSDA(random_state=0)).fit(X, y)
    assert type(bank._labels_) is type(fresh._labels_)
    assert len(bank.centroids_) == len(fresh.centroids_)
    close(bank.ridge_, fresh.ridge_, 1e-6)
    given = VerifierBank(PCSDA(random_state=0))
    given.fit(X[first], y[first], subclass_labels=np.arange(len(first)) % 2)
    given.update(X[rest[y[rest] == 0]], 0).refresh()
    assert len(given.centroids_) == 2


@pytest.mark.more
@pytest.mark.parametrize(
    "template",
    [
        make_pipeline(StandardScaler(), PCSDA(random_state=0)),
        MixtureVerifier(PCSDA(random_state=0)),
        PCSDACV(PCSDA(random_state=0)),
    ],
    ids=lambda template: type(template).__name__,
)
def test_a_seed_inside_the_template_seeds_the_bank(template):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 20)
    X = 2 * rng.standard_normal((6, 5))[y] + rng.standard_normal((120, 5))
    thresholds = {VerifierBank(template).fit(X, y).threshold_.value for _ in range(3)}
    assert len(thresholds) == 1


def test_strangers_cannot_have_the_name_of_a_label():
    X, y = people(4, 12, width=5)
    bank = VerifierBank(LINEAR).fit(X, y)
    with pytest.raises(ValueError, match="unknown=1 is a label of the bank, so strangers could"):
        bank.identify(X, unknown=1)
    assert set(bank.identify(X + 50, threshold=1e9, unknown="nobody")) == {"nobody"}


@pytest.mark.parametrize("template", [LINEAR, KERNEL], ids=["linear", "kernel"])
@pytest.mark.parametrize("order", ["refresh", "update"])
def test_rows_can_join_a_cluster_that_was_empty_when_the_rows_were_factorised(template, order):
    """The number of clusters was that of the last one with rows."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 12)
    centres = 5 * rng.normal(size=(5, 6))
    X = centres[y] + rng.normal(size=(60, 6))
    near, more = centres[4] + rng.normal(size=(4, 6)), centres[1] + rng.normal(size=(2, 6))
    bank = VerifierBank(template).fit(X, y, subclass_labels=y).remove(4)
    cold = pickle.loads(pickle.dumps(bank))
    for one in (bank, cold):
        one.refresh() if order == "refresh" else one.update(more, 1)
        one.log_likelihood_ratio(X)
        one.reject(near, 0)
    scores = bank.log_likelihood_ratio(X)
    close(cold.log_likelihood_ratio(X), scores, 1e-7)
    close(bank.models_[0].log_likelihood_ratio(X), scores[:, 0], 1e-7)
    assert bank._labels_.side.models[0].kept.tolist() == [1, 2, 3, 4]

"""Groups in estimators that score left-out rows in folds, above all CSDA and its relatives."""

from functools import partial

import numpy as np
import pytest
from factories import labelled
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.feature_selection import SelectKBest
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedGroupKFold
from sklearn.preprocessing import StandardScaler

from pcsda import (
    CSDA,
    PCSDA,
    PCSDACV,
    KernelCSDA,
    KernelPCSDA,
    MixtureVerifier,
    MultilinearCSDA,
    VerifierBank,
    load,
    make_pipeline,
    save,
)
from pcsda.core.calibration import Calibration, Scored
from pcsda.core.copies import silent_on_copies
from pcsda.core.fit import calibrated_on
from pcsda.estimators import learned, training
from pcsda.estimators.modes import Rows
from pcsda.estimators.separate import SeparateLabels

CSDAS = {
    "csda": partial(CSDA, 3, random_state=0),
    "optimal": partial(CSDA, 3, reference="optimal", random_state=0),
    "labels": partial(CSDA, 3, solver="labels", random_state=0),
    "kernel": partial(KernelCSDA, n_components=3, gamma=0.05, random_state=0),
    "multilinear": partial(MultilinearCSDA, (2, 2), shape=(2, 3), random_state=0),
}
FOLDING = CSDAS | {
    "resubstitution": partial(PCSDA, 3, covariance="resubstitution", random_state=0),
    "resampled": partial(PCSDA, 3, balance="resampled", random_state=0),
    "spectral": partial(PCSDA, 3, covariance="resubstitution", solver="spectral", random_state=0),
    "kernel pcsda": partial(
        KernelPCSDA, n_subclasses=3, covariance="resubstitution", gamma=0.05, random_state=0
    ),
}
each_csda = pytest.mark.parametrize("make", CSDAS.values(), ids=CSDAS)
each_folding = pytest.mark.parametrize("make", FOLDING.values(), ids=FOLDING)


def copied(n_places=150, copies=10, seed=0):
    """Return rows with their labels, and the number of the row that each copy repeats."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_places) % 3 == 0
    X = rng.standard_normal((n_places, 6)) + 0.9 * y[:, None]
    return X, y.astype(int), np.repeat(np.arange(n_places), copies)


@each_folding
def test_groups_of_one_row_change_nothing(make):
    X, y, _ = labelled()
    alone = make().fit(X, y)
    found = make().fit(X, y, groups=[f"row {i}" for i in range(len(X))])
    for ours, theirs in zip(found.held_out_[:2], alone.held_out_[:2], strict=True):
        assert_array_equal(ours, theirs)
    assert_array_equal(found.log_likelihood_ratio(X), alone.log_likelihood_ratio(X))


@pytest.mark.parametrize("kind", [PCSDA, KernelPCSDA, "search", "mixture"])
def test_groups_of_one_row_change_nothing_in_closed_form_either(kind):
    X, y, _ = labelled()
    search = partial(PCSDACV, PCSDA(random_state=0), n_subclasses=[2])
    mixture = partial(MixtureVerifier, PCSDA(random_state=0), n_modes=2)
    several = {"search": search, "mixture": mixture}
    make = several[kind] if isinstance(kind, str) else partial(kind, random_state=0)
    alone, found = make().fit(X, y), make().fit(X, y, groups=np.arange(len(X))[::-1])
    assert_array_equal(found.log_likelihood_ratio(X), alone.log_likelihood_ratio(X))


def test_a_splitter_of_groups_gets_groups_of_one_row():
    X, y, _ = labelled()
    search = PCSDACV(PCSDA(), n_subclasses=[2], regularization=[0.1], cv=GroupKFold(3))
    assert np.isfinite(search.fit(X, y, groups=np.arange(len(X))).cv_scores_).all()


@each_folding
def test_no_group_is_on_both_sides_of_a_fold(make, monkeypatch):
    X, y, _ = labelled()
    together, folds = np.arange(len(X)) // 4, []

    def spy(learn, *args):
        def learn_and_tell(train, labels):
            score = learn(train, labels)

            def score_and_tell(test):
                folds.append((train, test))
                return score(test)

            return score_and_tell

        return plain(learn_and_tell, *args)

    plain = training.fold_scores
    monkeypatch.setattr(training, "fold_scores", spy)
    make().fit(X, y, groups=together)
    assert len(folds) > 1
    for train, test in folds:
        assert not {*together[train]} & {*together[test]}


@each_folding
@pytest.mark.filterwarnings("ignore:50 of the 50 different positive rows")
def test_copies_in_one_group_are_calibrated_like_the_rows_once(make):
    moved = []
    for seed in range(3):
        X, y, ids = copied(seed=seed)
        new = copied(600, seed=seed + 100)[0]
        once = make().fit(X, y)
        apart = make().fit(X[ids], y[ids])
        together = make().fit(X[ids], y[ids], groups=ids)
        ratios = [model.log_likelihood_ratio(new) for model in (once, apart, together)]
        moved.append(np.std(np.array(ratios) - ratios[0], axis=1))
        if isinstance(once, PCSDA | KernelPCSDA):  # the bound on evidence against the class
            assert_allclose(together.calibration_.top, once.calibration_.top)
            assert apart.calibration_.top < once.calibration_.top - 0.5
    _, apart, together = np.mean(moved, axis=0)
    assert together < 0.8 * apart


def test_a_group_weighs_in_the_calibration_as_one_row():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2 == 0
    scores = 3.0 * y + rng.standard_normal(40)
    ids = np.repeat(np.arange(40), np.arange(40) % 7 + 1)
    once, _ = calibrated_on(Calibration(), Scored(scores, y, None))
    copies, _ = calibrated_on(Calibration(), Scored(scores[ids], y[ids], None, ids))
    assert_allclose(copies.weights, once.weights, rtol=1e-6)
    assert_allclose([copies.offset, copies.top], [once.offset, once.top], rtol=1e-6, atol=1e-8)
    heavy = rng.uniform(0.5, 2, 40)
    once, _ = calibrated_on(Calibration(), Scored(scores, y, heavy))
    copies, known = calibrated_on(Calibration(), Scored(scores[ids], y[ids], heavy[ids], ids))
    assert_allclose(copies.weights, once.weights, rtol=1e-6)
    assert_array_equal(known.weights, heavy[ids])


@each_folding
def test_a_group_that_holds_a_whole_class_warns_and_leaves_scores_uncalibrated(make):
    X, y, _ = labelled()
    for own, which in ((y == 1, "positives"), (y == 0, "negatives")):
        with pytest.warns(UserWarning, match=f"groups puts all {own.sum()} {which} into one"):
            model = make().fit(X, y, groups=np.where(own, -1, np.arange(len(X))))
        assert not hasattr(model, "held_out_")
        assert model.calibration_.slope == 1
        assert np.isfinite(model.log_likelihood_ratio(X)).all()


@each_folding
def test_groups_may_hold_rows_of_both_classes(make):
    X, y, _ = labelled()
    model = make().fit(X, y, groups=np.arange(len(X)) // 8)
    scores, positive, weights = model.held_out_
    assert weights is None
    assert_array_equal(positive, y == 1)
    assert np.isfinite(scores).all()


@each_folding
def test_rows_of_weight_zero_count_in_no_group(make):
    X, y, _ = labelled()
    ids, weights = np.arange(len(X)) // 3, np.random.default_rng(0).uniform(0.5, 2, len(X))
    weights[::4] = 0
    kept = weights > 0
    model = make().fit(X, y, sample_weight=weights, groups=ids)
    fewer = make().fit(X[kept], y[kept], sample_weight=weights[kept], groups=ids[kept])
    assert_allclose(model.held_out_[0], fewer.held_out_[0], rtol=1e-9, atol=1e-9)
    assert_allclose(model.log_likelihood_ratio(X), fewer.log_likelihood_ratio(X), atol=1e-9)


def test_sparse_rows_leave_groups_out_in_folds():
    X, y, _ = labelled()
    ids = np.arange(len(X)) // 3
    model = PCSDA(3, solver="lsqr", random_state=0)
    dense = clone(model).fit(X, y, groups=ids)
    found = clone(model).fit(sparse.csr_array(X), y, groups=ids)
    assert_allclose(found.held_out_[0], dense.held_out_[0], rtol=1e-4, atol=1e-4)


def test_a_precomputed_kernel_takes_groups():
    X, y, _ = labelled()
    ids = np.arange(len(X)) // 3
    model = KernelCSDA("linear", n_components=3, random_state=0)
    found = clone(model).set_params(kernel="precomputed").fit(X @ X.T, y, groups=ids)
    model.fit(X, y, groups=ids)
    assert_allclose(found.held_out_[0], model.held_out_[0], rtol=1e-6, atol=1e-6)


@each_csda
def test_wrong_groups_are_refused(make):
    X, y, _ = labelled()
    with pytest.raises(ValueError, match=r"groups has shape \(3,\) but must have one entry for"):
        make().fit(X, y, groups=[1, 2, 3])
    with pytest.raises(ValueError, match="groups is NaN for 1 rows"):
        make().fit(X, y, groups=np.append(np.nan, np.arange(len(X) - 1.0)))


@pytest.mark.parametrize("make", [*CSDAS.values(), PCSDACV], ids=[*CSDAS, "search"])
def test_unchecked_rows_are_refused_because_the_negatives_are_trusted(make):
    X, y, _ = labelled()
    message = r"trusts its negatives.*PCSDA\(contamination='auto'\)"
    with pytest.raises(ValueError, match=message):
        make().fit(X, y, unchecked=y == 0)
    make().fit(X, y, unchecked=None)


@pytest.mark.parametrize("make", [PCSDA, CSDA])
def test_batches_refuse_groups_and_name_what_takes_them(make):
    X, y, _ = labelled()
    model = make(random_state=0).partial_fit(X, y)
    before = model.log_likelihood_ratio(X)
    with pytest.raises(ValueError, match=r"partial_fit.*groups.*fit\(groups=\)"):
        model.partial_fit(X, y, groups=np.arange(len(X)))
    assert_array_equal(model.log_likelihood_ratio(X), before)
    assert not hasattr(clone(model), "scatter_")


@each_csda
def test_wrappers_pass_groups_on(make):
    X, y, _ = labelled()
    X = StandardScaler().fit_transform(X)
    ids = np.arange(len(X)) // 3
    alone = make().fit(X, y, groups=ids)
    expected = alone.log_likelihood_ratio(X)
    name = type(alone).__name__.lower()
    pipe = make_pipeline(StandardScaler(), make()).fit(X, y, **{f"{name}__groups": ids})
    assert_allclose(pipe.log_likelihood_ratio(X), expected, rtol=1e-6, atol=1e-6)
    if isinstance(alone, CSDA | KernelCSDA):
        mixture = MixtureVerifier(make(), n_modes=1).fit(X, y, groups=ids)
        assert_allclose(mixture.log_likelihood_ratio(X), expected, rtol=1e-9)
    with config_context(enable_metadata_routing=True):
        routed = make_pipeline(StandardScaler(), make().set_fit_request(groups=True))
        routed.fit(X, y, groups=ids)
        assert_allclose(routed.log_likelihood_ratio(X), expected, rtol=1e-6, atol=1e-6)
        search = GridSearchCV(
            make().set_fit_request(groups=True),
            {"regularization": [0.01]},
            cv=StratifiedGroupKFold(2),
        ).fit(X, y, groups=ids)
        found = search.best_estimator_.log_likelihood_ratio(X)
        assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("make", [CSDAS["csda"], CSDAS["kernel"]])
def test_banks_pass_groups_on(make):
    X, _, labels = labelled()
    ids = np.arange(len(X)) // 3
    bank = VerifierBank(make()).fit(X, labels, groups=ids)
    for label in range(4):
        alone = make().fit(X, labels == label, groups=ids)
        assert_allclose(bank.models_[label].calibration_.slope, alone.calibration_.slope)
        assert_array_equal(bank.models_[label].held_out_[0], alone.held_out_[0])
    bank.update(X[:3] + 0.1, 0)
    assert np.isfinite(bank.log_likelihood_ratio(X)).all()


def test_banks_of_folding_models_leave_whole_groups_out_to_count_misses(monkeypatch):
    X, _, labels = labelled()
    ids, kept = np.arange(len(X)) // 3, []
    bank = VerifierBank(CSDA(3, random_state=0)).fit(X, labels, groups=ids)

    def spy(self, rows, gone, number):
        kept.append((rows, gone))
        return plain(self, rows, gone, number)

    plain = SeparateLabels._refitted
    monkeypatch.setattr(SeparateLabels, "_refitted", spy)
    assert 0 <= bank.threshold_.misses <= 1
    assert bank.threshold_.n_positives > 0
    rows, gone = kept[-1]
    assert not {*ids[rows]} & {*ids[gone]}
    own = np.where(labels == 1, -1, np.arange(len(X)))  # no row of this label can be left out
    bank = VerifierBank(CSDA(3, random_state=0))
    with pytest.warns(UserWarning, match="groups puts all 25 positives into one group"):
        bank.fit(X, labels, groups=own)
    assert np.isfinite(bank.log_likelihood_ratio(X)).all()


@pytest.mark.parametrize("make", [CSDAS["csda"], partial(PCSDA, 3, random_state=0)])
def test_banks_pass_groups_on_through_pipelines(make):
    X, _, labels = labelled()
    ids = np.arange(len(X)) // 3
    bank = VerifierBank(make_pipeline(StandardScaler(), make())).fit(X, labels, groups=ids)
    alone = make().fit(StandardScaler().fit_transform(X), labels == 2, groups=ids)
    assert_allclose(bank.models_[2][-1].calibration_.weights, alone.calibration_.weights)


def test_a_bank_of_searches_that_take_no_groups_says_so():
    X, _, labels = labelled()
    search = GridSearchCV(CSDA(), {"n_components": [2, 3]}, cv=2)
    with pytest.raises(ValueError, match="VerifierBank cannot pass groups on to GridSearchCV"):
        VerifierBank(search).fit(X, labels, groups=labels)


@each_csda
def test_files_keep_a_model_with_groups(make, tmp_path):
    X, y, _ = labelled()
    model = make().fit(X, y, groups=np.arange(len(X)) // 3)
    save(model, tmp_path / "model.pcsda")
    again = load(tmp_path / "model.pcsda")
    assert_array_equal(again.log_likelihood_ratio(X), model.log_likelihood_ratio(X))
    assert_array_equal(again.held_out_[0], model.held_out_[0])
    assert again.choose_threshold(prior=0.5) == model.choose_threshold(prior=0.5)


def test_grouped_folds_do_not_flatter_rows_that_have_relatives():
    rng, losses = np.random.default_rng(0), []
    for _ in range(4):
        X, y, ids = copied(90, 6, seed=rng.integers(1000))
        X, y = X[ids] + 0.05 * rng.standard_normal((len(ids), 6)), y[ids]
        X = np.hstack([X, rng.standard_normal((90, 15))[ids]])
        new, labels, _ = copied(600, 1, seed=rng.integers(1000))
        new = np.hstack([new, rng.standard_normal((600, 15))])
        row = []
        for groups in (None, ids):
            model = CSDA(random_state=0).fit(X, y, groups=groups)
            odds = np.log(y.mean() / (1 - y.mean()))
            scores, positive, _ = model.held_out_
            row += [
                np.logaddexp(0, np.where(positive, -1, 1) * (scores + odds)).mean(),
                -model.predict_log_proba(new)[np.arange(600), labels].mean(),
            ]
        losses.append(row)
    flattered, harmed, left_out, fresh = np.mean(losses, axis=0)
    assert flattered < 0.5 * left_out
    assert fresh < harmed
    assert abs(np.log(left_out / fresh)) < np.log(1.3)


def test_a_mixture_weighs_a_group_as_one_row():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3 == 0
    held_out = {count: 2.0 * y + rng.standard_normal(60) for count in (1, 2)}
    ids = np.repeat(np.arange(60), np.arange(60) % 7 + 1)
    once = Rows(None, None, y, y, np.ones(60), None, {}, 0)
    copies = Rows(None, None, y[ids], y[ids], np.ones(len(ids)), ids, {}, 0)
    ours = copies.calibration(held_out[1][ids])
    theirs = once.calibration(held_out[1])
    assert_allclose([*ours.weights, ours.offset], [*theirs.weights, theirs.offset], rtol=1e-6)
    chosen, losses = once.compare(held_out)
    found = copies.compare({count: scores[ids] for count, scores in held_out.items()})
    assert found[0] == chosen
    assert found[1] == pytest.approx(losses)


@pytest.mark.parametrize("grouped", [False, True])
def test_a_pipeline_scored_in_folds_weighs_a_group_as_one_row(grouped, monkeypatch):
    X, y, ids = copied(60, 4)
    seen = []

    def spy(calibration, unseen):
        seen.append(unseen.evidence)
        return plain(calibration, unseen)

    plain = learned.calibrated_on
    monkeypatch.setattr(learned, "calibrated_on", spy)
    given = {"pcsda__groups": ids if grouped else np.arange(len(ids))}
    model = make_pipeline(SelectKBest(k=4), PCSDA(3, random_state=0))
    with silent_on_copies():
        model.fit(X[ids], y[ids], **given)
    assert_allclose(seen[0], 0.25 if grouped else 1.0)

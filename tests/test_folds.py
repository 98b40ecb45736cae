"""Fold scores against refits by hand."""

import numpy as np
import pytest
from factories import make_rows
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import StratifiedKFold

from pcsda.core.factor import factor_once
from pcsda.core.fit import Rule, fit
from pcsda.folds import FOLDS, fold_scores


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_fold_scores_equal_refits_by_hand_with_the_groups_held(weighted):
    X, groups, weights = make_rows([12, 9, 2, 10], 4, weighted=weighted)

    rule = Rule(leave_one_out=False, calibrate=False)

    def learn(train, labels):
        w = None if weights is None else weights[train]
        model = fit(factor_once(X[train], 0.01, w), labels, rule)
        return lambda test: model.score(X[test])

    scores = fold_scores(learn, groups, seed=4)
    folds = StratifiedKFold(5, shuffle=True, random_state=4).split(X, groups == 0)
    expected = np.empty(len(X))
    for train, test in folds:
        kept = sorted(set(groups[train]))
        renumbered = np.array([kept.index(g) for g in groups[train]])
        expected[test] = learn(train, renumbered)(test)
    assert_allclose(scores, expected, rtol=1e-10)


class Recorder:
    """Records the rows it was fitted on; a row's number is its score."""

    def __init__(self, fail=()):
        self.shown, self.labels, self.fail = [], [], fail

    def __call__(self, train, labels):
        self.shown.append(train)
        self.labels.append(labels)
        if len(self.shown) in self.fail:
            raise ValueError("too few rows")
        return lambda test: test.astype(float)


def test_each_row_is_scored_once_by_a_model_fitted_without_it():
    rows, groups = np.arange(40), np.arange(40) % 4
    learn = Recorder()
    assert_array_equal(fold_scores(learn, groups, seed=0), rows)
    assert len(learn.shown) == FOLDS
    held_back = [np.setdiff1d(rows, shown) for shown in learn.shown]
    assert_array_equal(np.sort(np.concatenate(held_back)), rows)
    for shown, labels in zip(learn.shown, learn.labels, strict=True):
        assert_array_equal(labels, groups[shown])
        assert np.sum(labels == 0) == 8  # both classes keep their share


def test_a_subclass_missing_from_a_fold_leaves_no_gap():
    groups = np.where(np.arange(30) < 10, 0, np.where(np.arange(30) == 29, 1, 2))
    learn = Recorder()
    fold_scores(learn, groups, seed=0)
    assert sorted(labels.max() for labels in learn.labels) == [1, 2, 2, 2, 2]


def test_folds_are_seeded():
    first, again, other = Recorder(), Recorder(), Recorder()
    for learn, seed in ((first, 1), (again, 1), (other, 2)):
        fold_scores(learn, np.arange(40) % 4, seed=seed)
    assert_array_equal(first.shown[0], again.shown[0])
    assert np.any(first.shown[0] != other.shown[0])


def test_a_fold_that_cannot_be_fitted_warns_and_leaves_its_rows_without_a_score():
    learn = Recorder(fail=(2,))
    message = "a calibration fold could not be fitted: too few rows"
    with pytest.warns(UserWarning, match=message):
        scores = fold_scores(learn, np.arange(40) % 4, seed=0)
    missing = np.setdiff1d(np.arange(40), learn.shown[1])
    assert_array_equal(np.flatnonzero(np.isnan(scores)), missing)


@pytest.mark.parametrize(("n_positive", "n_negative", "folds"), [(1, 9, 0), (9, 1, 0), (2, 9, 2)])
def test_small_classes_have_fewer_folds_or_none(n_positive, n_negative, folds):
    learn = Recorder()
    scores = fold_scores(learn, np.repeat([0, 1], [n_positive, n_negative]), seed=0)
    assert len(learn.shown) == folds
    assert np.all(np.isnan(scores)) == (folds == 0)


def test_groups_are_never_on_both_sides_of_a_fold():
    groups, together = np.arange(40) % 4, np.arange(40) // 3
    learn = Recorder()
    assert_array_equal(fold_scores(learn, groups, 0, together), np.arange(40))
    for shown in learn.shown:
        rest = np.setdiff1d(np.arange(40), shown)
        assert not {*together[shown]} & {*together[rest]}


@pytest.mark.parametrize(
    ("n_positive", "n_negative", "both", "folds"),
    [(3, 4, 0, 3), (9, 7, 0, 5), (1, 9, 0, 0), (2, 1, 1, 2), (0, 0, 4, 4), (0, 0, 1, 0)],
)
def test_groups_are_not_split_across_folds(n_positive, n_negative, both, folds):
    """Blocks have four rows: all positive, all negative, or two of each class."""
    kinds = [[0] * 4] * n_positive + [[1] * 4] * n_negative + [[0, 0, 1, 1]] * both
    together = np.repeat(np.arange(len(kinds)), 4)
    learn = Recorder()
    scores = fold_scores(learn, np.concatenate(kinds), 0, together)
    assert len(learn.shown) == folds
    assert np.all(np.isfinite(scores) == (folds > 0))
    for shown in learn.shown:
        left_out = np.setdiff1d(np.arange(len(together)), shown)
        assert not {*together[shown]} & {*together[left_out]}


def test_no_more_folds_are_fitted_once_each_class_has_enough_scores():
    groups, fitted = np.repeat([0, 1], [30, 70]), []

    def learn(train, _):
        fitted.append(train)
        return lambda test: test.astype(float)

    scores = fold_scores(learn, groups, 0, enough=12)
    assert len(fitted) == 2  # six positives and 14 negatives in each
    assert np.isfinite(scores[:30]).sum() == 12
    assert np.isfinite(scores[30:]).sum() == 28
    whole = fold_scores(learn, groups, 0)
    np.testing.assert_array_equal(scores[np.isfinite(scores)], whole[np.isfinite(scores)])

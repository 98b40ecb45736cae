"""Precision at k and the rank of the true label, against enumeration of all tie orders."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metric_factories import tied_scores
from numpy.testing import assert_allclose
from sklearn.metrics import top_k_accuracy_score

from pcsda.metrics import cmc_curve, precision_at_k, rank_k_rate


@given(tied_scores(st.integers(0, 2), max_size=4), st.integers(1, 6))
def test_precision_is_the_mean_over_all_orders_of_ties(data, k):
    y, scores = data
    k = min(k, len(y))
    found = [
        np.mean(y[np.array(order)][np.argsort(-scores[np.array(order)], kind="stable")][:k])
        for order in permutations(range(len(y)))
    ]
    assert_allclose(precision_at_k(y, scores, k), np.mean(found), atol=1e-12)


def test_precision_accepts_any_labels_infinite_scores_and_one_class():
    assert precision_at_k(["b", "a", "b"], [0.0, np.inf, -np.inf], 2, pos_label="a") == 0.5
    assert precision_at_k([1, 1], [0.0, 1.0], 2) == 1.0
    assert precision_at_k(np.array([False, False]), [0.0, 1.0], 1) == 0.0


@pytest.mark.parametrize("k", [0, 4, 1.5, True])
def test_precision_refuses_invalid_counts(k):
    with pytest.raises(ValueError, match=r"must be a whole number between 1 and 3 \(= n_samples\)"):
        precision_at_k([0, 1, 1], [1, 2, 3], k)


def test_precision_refuses_nan():
    with pytest.raises(ValueError, match=r"^y_score has 1 NaN among 2 values"):
        precision_at_k([0, 1], [np.nan, 2.0], 1)


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_cmc_is_the_mean_over_all_orders_of_ties(n_labels, n_rows, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, (n_rows, n_labels)).astype(float)
    y = rng.integers(0, n_labels, n_rows)
    expected = np.zeros(n_labels)
    for order in permutations(range(n_labels)):
        order = np.array(order)
        ranked = order[np.argsort(-scores[:, order], axis=1, kind="stable")]
        places = np.argmax(ranked == y[:, None], axis=1)
        expected += [np.mean(places <= k) for k in range(n_labels)]
    expected /= len(list(permutations(range(n_labels))))
    curve = cmc_curve(y, scores, labels=np.arange(n_labels))
    assert_allclose(curve, expected, atol=1e-12)
    assert_allclose(rank_k_rate(y, scores, n_labels, labels=np.arange(n_labels)), 1)


def test_without_ties_cmc_equals_top_k_accuracy():
    rng = np.random.default_rng(0)
    y, scores = np.arange(40) % 7, rng.standard_normal((40, 7))
    for k in range(1, 7):
        assert_allclose(rank_k_rate(y, scores, k), top_k_accuracy_score(y, scores, k=k))


def test_an_uninformed_bank_scores_like_guessing():
    assert_allclose(cmc_curve(["a", "b", "c"], np.zeros((3, 3))), [1 / 3, 2 / 3, 1])


def test_labels_name_the_columns():
    scores = [[3.0, 1.0, -np.inf], [3.0, 5.0, 0.0]]
    assert_allclose(cmc_curve(["c", "a"], scores, labels=["b", "a", "c"]), [0.5, 0.5, 1.0])


@pytest.mark.parametrize(
    ("arguments", "labels", "message"),
    [
        ((["a"], [[1.0, 2.0]]), None, r"^scores has 2 columns but y_true has 1 labels; give the"),
        ((["a"], [[1.0, 2.0]]), ["a"], r"^scores has 2 columns but labels has 1 labels"),
        ((["a"], [[1.0, 2.0]]), ["a", "a"], r"^labels names some columns twice: \['a', 'a'\]$"),
        (
            (["a", "z"], [[1.0, 2.0]] * 2),
            ["a", "b"],
            r"^y_true has labels without a column, \['z'\]; ranks require a closed set: leave",
        ),
        ((["a", "b"], [[1.0, np.nan]] * 2), None, r"^scores has 2 NaN; remove or replace them$"),
        ((["a", "b"], [[1.0, 2.0]]), None, r"inconsistent numbers of samples"),
    ],
)
def test_bad_tables_are_refused(arguments, labels, message):
    with pytest.raises(ValueError, match=message):
        cmc_curve(*arguments, labels=labels)


def test_ranks_beyond_the_number_of_labels_are_refused():
    with pytest.raises(ValueError, match=r"^k=3 must be a whole number between 1 and 2 \(= n_lab"):
        rank_k_rate(["a", "b"], [[1.0, 2.0]] * 2, 3)

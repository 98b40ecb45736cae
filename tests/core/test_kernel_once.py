"""Solving a kernel matrix once gives the same result as its factor."""

import numpy as np
import pytest
from factor_factories import WEIGHTED, assert_same_subspace
from factories import make_rows
from numpy.testing import assert_array_equal

from pcsda.core import gram
from pcsda.core.kernel_once import KernelOnce, apply_exchange, exchange
from pcsda.core.loo import Leave


def kernel_rows(weighted=False):
    X, groups, weights = make_rows([16, 12, 15, 9], 5, weighted=weighted)
    return np.exp(-0.05 * ((X[:, None] - X[None]) ** 2).sum(axis=2)), groups, weights


@WEIGHTED
@pytest.mark.parametrize("count", [1, 20, 45], ids=["one row", "some", "nearly all"])
def test_moving_rows_last_does_not_change_their_left_out_values(weighted, count):
    matrix, groups, weights = kernel_rows(weighted)
    rows = np.sort(np.random.default_rng(count).choice(len(groups), count, replace=False))
    leave = Leave(rows, np.linspace(1.0, 2.0, count))
    expected = next(gram.of_kernel(matrix.copy(), [0.01], weights)).solve(groups, leave_out=leave)
    found = KernelOnce(matrix, 0.01, weights).solve(groups, leave_out=leave)
    assert_same_subspace(found, expected)
    assert_array_equal(found.left.rows, rows)
    assert_array_equal(found.left.stands_for, leave.stands_for)


@pytest.mark.parametrize(
    "leave", [Leave(), None, Leave(np.arange(0, 52, 3), None, np.arange(52) // 3)]
)
def test_leaving_out_all_rows_none_or_blocks_uses_the_full_factor(leave):
    matrix, groups, _ = kernel_rows()
    expected = next(gram.of_kernel(matrix.copy(), [0.01])).solve(groups, 2, leave_out=leave)
    assert_same_subspace(KernelOnce(matrix, 0.01).solve(groups, 2, leave_out=leave), expected)


@pytest.mark.parametrize("count", [1, 5, 12, 22])
def test_rows_move_to_the_end_in_place(count):
    rng = np.random.default_rng(count)
    matrix, rows = rng.standard_normal((23, 23)), np.sort(rng.choice(23, count, replace=False))
    places = exchange(rows, 23)
    assert_array_equal(np.sort(places[rows]), np.arange(23 - count, 23))
    assert_array_equal(places[places], np.arange(23))  # pairs are swapped
    expected = matrix[places][:, places]
    apply_exchange(matrix, places)
    assert_array_equal(matrix, expected)


@pytest.mark.parametrize("size", [1, 7, 22, 23])
def test_the_last_block_moves_within_its_memory(monkeypatch, size):
    matrix = np.asfortranarray(np.random.default_rng(size).standard_normal((23, 23)))
    monkeypatch.setattr(gram.linalg, "cache_rows", lambda _: 3)
    expected = matrix[-size:, -size:].copy()
    found = gram.last_block(matrix, size)
    assert_array_equal(found, expected)
    assert found.flags.f_contiguous
    assert np.shares_memory(found, matrix)

"""Cells of classes and clusters against groups and sums computed directly."""

import numpy as np
import pytest
from factories import random_cells
from numpy.testing import assert_allclose, assert_array_equal

from pcsda.core.cells import Cells


def brute_groups(labels, clusters, label):
    groups = np.zeros(len(labels), dtype=int)
    left = sorted({c for own, c in zip(labels, clusters, strict=True) if own != label})
    for row, (own, cluster) in enumerate(zip(labels, clusters, strict=True)):
        groups[row] = 0 if own == label else 1 + left.index(cluster)
    return groups


@pytest.mark.parametrize("seed", range(4))
def test_cells_give_each_classs_groups_counts_and_sums(seed):
    labels, clusters = random_cells(seed)
    values = np.random.default_rng(seed).standard_normal((60, 3))
    cells = Cells.of(labels, clusters)
    assert cells.counts.sum() == 60
    assert len(cells.counts) == len({*zip(labels.tolist(), clusters.tolist(), strict=True)})
    sums = cells.sums(values)
    for cluster in range(4):
        assert_allclose(sums.totals[cluster], values[clusters == cluster].sum(axis=0), atol=1e-12)
    for label in range(4):
        expected = brute_groups(labels, clusters, label)
        groups, counts = cells.division(label)
        assert_array_equal(groups, expected)
        assert_array_equal(counts, np.bincount(expected))
        by_group = [values[expected == g].sum(axis=0) for g in range(expected.max() + 1)]
        assert_allclose(sums.over_groups(label), by_group, atol=1e-12)


def test_a_cluster_emptied_by_a_class_is_dropped_for_that_class_only():
    cells = Cells.of(*random_cells(0))
    assert [len(cells.division(label)[1]) - 1 for label in range(4)] == [4, 3, 4, 4]
    assert np.all(cells.division(1)[1] > 0)


def test_gaps_in_cluster_numbers_change_nothing():
    labels, clusters = random_cells(1)
    plain, gaps = Cells.of(labels, clusters), Cells.of(labels, 3 * clusters + 2)
    values = np.random.default_rng(0).standard_normal((60, 2))
    for label in range(4):
        assert_array_equal(plain.division(label)[0], gaps.division(label)[0])
        assert_allclose(plain.sums(values).over_groups(label), gaps.sums(values).over_groups(label))

"""Rows for the tests of blocks, and a check that two fitted models agree."""

from itertools import pairwise

import numpy as np
from factories import (
    assert_same_calibration,
    assert_same_density,
    make_rows,
    with_heavy_tails,
)

SIZES = (60, 50, 70, 40)


def make_data(seed=0, *, sizes=SIZES, width=5, weighted=False, heavy=False):
    """Return rows, binary labels, subclass labels and weights (or None)."""
    X, groups, weights = make_rows(sizes, width, seed=seed, weighted=weighted)
    X = with_heavy_tails(X, groups) if heavy else X
    return X, groups == 0, groups, weights


def in_blocks(cuts, *arrays):
    """Return a function that iterates over the same row ranges of all arrays."""
    ranges = list(pairwise([0, *sorted(cuts), len(arrays[0])]))

    def blocks():
        for start, stop in ranges:
            yield tuple(None if array is None else array[start:stop] for array in arrays)

    return blocks


def assert_same_model(found, expected, X, *, tolerance=1e-8, calibrated=True):
    """Check that components, means, covariances and scores agree."""

    def close(one, other):
        scale = np.abs(other).max()
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * scale)

    np.testing.assert_array_equal(found.classes_, expected.classes_)
    for name in ("components_", "eigenvalues_", "positive_mean_", "subclass_means_"):
        assert getattr(found, name).dtype == getattr(expected, name).dtype
        close(getattr(found, name), getattr(expected, name))
    close(found.subclass_counts_, expected.subclass_counts_)
    close(found.class_prior_, expected.class_prior_)
    assert_same_density(found.density_, expected.density_, tolerance)
    close(found.density_.views(found.transform(X)), expected.density_.views(expected.transform(X)))
    if not calibrated:
        return
    assert_same_calibration(found.calibration_, expected.calibration_, tolerance)
    close(found.log_likelihood_ratio(X), expected.log_likelihood_ratio(X))
    close(found.decision_function(X), expected.decision_function(X))

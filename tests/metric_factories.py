"""Trials for the tests of metrics, with few distinct scores so that ties are common."""

import numpy as np
from hypothesis import strategies as st


@st.composite
def tied_scores(draw, elements=None, max_size=20):
    """Draw labels of both classes and scores with few distinct values."""
    if elements is None:
        elements = st.integers(-3, 3)
    labels = [0, 1, *draw(st.lists(st.integers(0, 1), max_size=max_size))]
    scores = draw(st.lists(elements, min_size=len(labels), max_size=len(labels)))
    return np.array(labels), np.array(scores, dtype=float)


def gaussian_scores(distance, n, seed=0):
    """Draw scores of n negatives from N(0, 1) and n positives from N(distance, 1)."""
    rng = np.random.default_rng(seed)
    scores = np.concatenate([rng.standard_normal(n), distance + rng.standard_normal(n)])
    return np.repeat([0, 1], n), scores


def error_rates(y, scores, threshold):
    """Return false-match and false-non-match rates by counting."""
    accepted = scores >= threshold
    return np.mean(accepted[y == 0]), np.mean(~accepted[y == 1])


def operating_points(y, scores):
    """Return the error rates at every threshold, starting with the one that rejects everything."""
    return [(0.0, 1.0), *(error_rates(y, scores, t) for t in sorted(set(scores))[::-1])]

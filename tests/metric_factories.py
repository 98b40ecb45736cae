"""Trials for the tests of metrics: few score values, so that ties are common."""

import numpy as np
from hypothesis import strategies as st


@st.composite
def tied_scores(draw, elements=None, max_size=20):
    """Labels with both classes and scores from few values."""
    if elements is None:
        elements = st.integers(-3, 3)
    labels = [0, 1, *draw(st.lists(st.integers(0, 1), max_size=max_size))]
    scores = draw(st.lists(elements, min_size=len(labels), max_size=len(labels)))
    return np.array(labels), np.array(scores, dtype=float)


def gaussian_scores(distance, n, seed=0):
    """Scores of N(0, 1) negatives and N(distance, 1) positives, n of each."""
    rng = np.random.default_rng(seed)
    scores = np.concatenate([rng.standard_normal(n), distance + rng.standard_normal(n)])
    return np.repeat([0, 1], n), scores


def error_rates(y, scores, threshold):
    """False-match and false-non-match rate by counting."""
    accepted = scores >= threshold
    return np.mean(accepted[y == 0]), np.mean(~accepted[y == 1])


def operating_points(y, scores):
    """Error rates at every threshold, the one that rejects everything first."""
    return [(0.0, 1.0), *(error_rates(y, scores, t) for t in sorted(set(scores))[::-1])]

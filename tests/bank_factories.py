"""Rows for the tests of banks, and a measure of identification."""

import numpy as np
from factories import make_rows

from pcsda import VerifierBank


def animals(width=6, seed=0, sizes=(30, 25, 20, 15), spread=0.7):
    """Return overlapping rows of four labels that differ from their clusters."""
    X, labels, _ = make_rows(sizes, width, seed=seed, spread=spread)
    return X, np.array(["ant", "bee", "cat", "dog", "eel", "fox"])[labels]


def people(n_people, n_rows, width=20, seed=0, within=0.5):
    """Draw rows of planted identities."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n_people, width))
    y = np.repeat(np.arange(n_people), n_rows)
    return centres[y] + within * rng.standard_normal((len(y), width)), y


def exposed(X, seed=0):
    """Return rows about a common offset, each multiplied by a random factor."""
    rng = np.random.default_rng([seed, 77])
    return (X + 3) * np.exp(0.5 * rng.standard_normal((len(X), 1)))


def named_correctly(template, X, y, known, train):
    """Return the share of known test rows that get their name where 1% of strangers do too."""
    bank = VerifierBank(template).fit(X[known & train], y[known & train])
    scores = bank.log_likelihood_ratio(X[~train])
    bar = np.quantile(scores[~known[~train]].max(axis=1), 0.99)
    right = scores.argmax(axis=1) == y[~train]
    return np.mean((right & (scores.max(axis=1) > bar))[known[~train]])

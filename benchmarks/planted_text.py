"""Compare weights for document screening on planted documents.

    python -m benchmarks.planted_text                 least squares against ASReview's SVM
    python -m benchmarks.planted_text --seeds 4 --draws 3

Real reviews are not used here; `python -m benchmarks.search` reports them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product

import numpy as np
from scipy import sparse
from scipy.linalg import solve
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.svm import LinearSVC

DOCUMENTS, WORDS, TOPICS = 1000, 5000, 40
# Number of kinds in the class, whether they share a topic, and the mean share of each topic.
KINDS = {
    "one kind": (1, False, 0.25),
    "three kinds with a common topic": (3, True, 0.3),
    "three unrelated kinds": (3, False, 0.35),
}
SHARES = (0.02, 0.05, 0.1)
# Shares of near misses among the other documents and of odd members in the class. Both have only
# one of the two topics.
NEAR, ODD = 0.2, 0.1
MARKS = (0.05, 0.1, 0.2, 0.3)
# Ratio of the ridge to the weight of an included, an excluded and a random unchecked row.
RIDGES = {
    "as the SVM, no random rows": (0.46, 4.5, None),
    "light random rows": (0.2, 5.0, 50.0),
    "still lighter random rows": (0.2, 5.0, 500.0),
    "heavier random rows": (0.5, 5.0, 15.0),
    "lighter inclusions": (0.5, 5.0, 50.0),
    "lighter exclusions": (0.2, 15.0, 50.0),
    "all lighter": (0.5, 15.0, 150.0),
}
Ranker = Callable[[list[int], list[int]], np.ndarray]


def planted(seed: int, share: float, kind: str) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Return TF-IDF rows of documents drawn from topics, and which belong to the class."""
    rng = np.random.default_rng([seed, int(1000 * share), KINDS[kind][0]])
    common = 1 / (np.arange(WORDS) + 10.0)
    common /= common.sum()
    laws = common * rng.gamma(0.02, 50.0, (TOPICS, WORDS))
    laws /= laws.sum(axis=1, keepdims=True)
    truth = rng.random(DOCUMENTS) < share
    chances = 0.5 * common + 0.5 * (_topics(rng, truth, *KINDS[kind]) @ laws)
    chances /= chances.sum(axis=1, keepdims=True)
    length = np.maximum(rng.lognormal(np.log(130), 0.4, DOCUMENTS).astype(int), 20)
    counts = sparse.csr_matrix(rng.multinomial(length, chances))
    used = np.flatnonzero(np.asarray((counts > 0).sum(axis=0)).ravel() >= 2)
    return TfidfTransformer().fit_transform(counts[:, used]).tocsr(), truth


def _topics(
    rng: np.random.Generator, truth: np.ndarray, kinds: int, common: bool, strength: float
) -> np.ndarray:
    """Draw the share of each topic in each document.

    A member has both topics of its kind. One topic alone makes a near miss, or an odd member.
    """
    weights = rng.gamma(0.15, 1.0, (DOCUMENTS, TOPICS)) + 1e-6
    weights /= weights.sum(axis=1, keepdims=True)
    pairs = rng.permutation(TOPICS)[: 2 * kinds].reshape(kinds, 2)
    if common:
        pairs[:, 0] = pairs[0, 0]
    pair = pairs[rng.integers(kinds, size=DOCUMENTS)]
    has = np.repeat(truth[:, None], 2, axis=1)
    one = rng.random(DOCUMENTS) < np.where(truth, ODD, NEAR)
    has[one] = np.eye(2, dtype=bool)[rng.integers(2, size=DOCUMENTS)][one]
    added = np.zeros((DOCUMENTS, TOPICS))
    amount = 2 * strength * rng.beta(3, 3, (DOCUMENTS, 2))
    np.put_along_axis(added, pair, has * amount, axis=1)
    return weights * np.clip(1 - added.sum(axis=1, keepdims=True), 0, None) + added


def svm(X: sparse.csr_matrix) -> Ranker:
    """Return ASReview's ranker, which learns from answered rows only."""

    def rank(yes: list[int], no: list[int]) -> np.ndarray:
        positive = np.arange(len(yes) + len(no)) < len(yes)
        model = LinearSVC(C=0.11, class_weight={True: 9.8, False: 1.0})
        return model.fit(X[[*yes, *no]], positive).decision_function(X)

    return rank


def least_squares(gram: np.ndarray, ridges: tuple) -> Ranker:
    """Return a ranker by weighted least squares, given the inner products of all rows."""
    drawn = np.random.default_rng(0).permutation(len(gram))[:300]

    def rank(yes: list[int], no: list[int]) -> np.ndarray:
        weak = [] if ridges[2] is None else np.setdiff1d(drawn, [*yes, *no]).tolist()
        rows, sizes = [*yes, *no, *weak], (len(yes), len(no), len(weak))
        extra = np.repeat(np.array([ridge or 0.0 for ridge in ridges]), sizes)
        inner = gram[np.ix_(rows, rows)] + np.diag(extra)
        parts = solve(inner, np.repeat([1.0, -1.0, -1.0], sizes), assume_a="pos")
        return gram[:, rows] @ parts

    return rank


def screen(rank: Ranker, truth: np.ndarray, draw: int, batch: int = 10) -> np.ndarray:
    """Simulate a user who starts with one record of each class; return the recall at each mark."""
    rng = np.random.default_rng([draw, 0])
    yes, no = ([int(rng.choice(np.flatnonzero(kind)))] for kind in (truth, ~truth))
    found: list[bool] = []
    while len(found) < MARKS[-1] * len(truth):
        scores = np.array(rank(yes, no), dtype=float)
        scores[[*yes, *no]] = -np.inf
        for row in np.argsort(-scores, kind="stable")[:batch].tolist():
            (yes if truth[row] else no).append(row)
            found.append(bool(truth[row]))
    recall = np.cumsum(found) / (truth.sum() - 1)
    return recall[[int(mark * len(truth)) - 1 for mark in MARKS]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--draws", type=int, default=2)
    options = parser.parse_args()
    for kind in KINDS:
        recalls: dict[str, list[np.ndarray]] = {}
        for share, seed in product(SHARES, range(options.seeds)):
            X, truth = planted(seed, share, kind)
            gram = (X @ X.T).toarray() + 1.0
            rankers = {"SVM as ASReview": svm(X)}
            rankers |= {name: least_squares(gram, ridges) for name, ridges in RIDGES.items()}
            for name, rank in rankers.items():
                found = [screen(rank, truth, draw) for draw in range(options.draws)]
                recalls.setdefault(name, []).extend(found)
        report(kind, recalls)


def report(kind: str, recalls: dict[str, list[np.ndarray]]) -> None:
    """Print the recall at each mark, and the mean gap to the SVM with its standard error."""
    print(kind)
    for name, found in recalls.items():
        gap = np.mean(np.array(found) - recalls["SVM as ASReview"], axis=1)
        error = gap.std(ddof=1) / np.sqrt(len(gap))
        means = " ".join(f"{mean:.3f}" for mean in np.mean(found, axis=0))
        print(f"  {name:28} {means}  {gap.mean():+.3f} ±{error:.3f}")


if __name__ == "__main__":
    main()

"""Methods that a user would choose today."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.svm import SVC

from ...peers import shrunk_qda
from ..grids import TODAY as GRIDS
from ..grids import Setting
from ..spaces import Space
from .interface import Method, Scores, both


def choose_svc(space: Space, grid: list[Setting]) -> Scores:
    """Use one kernel matrix per bandwidth, and skip values of C that change nothing.

    If no coefficient is at its bound C, every larger C has the same solution.
    """
    scores: list[Any] = [None] * len(grid)
    for gamma in dict.fromkeys(setting["gamma"] for setting in grid):
        within, across = (np.exp(-space.gamma(gamma) * part) for part in space.distances)
        values, bounded = None, True
        numbers = [i for i, setting in enumerate(grid) if setting["gamma"] == gamma]
        for number in sorted(numbers, key=lambda i: grid[i]["C"]):
            if bounded:
                C = grid[number]["C"]
                model = SVC(C=C, kernel="precomputed").fit(within, space.y)
                values = model.decision_function(across)
                bounded = np.abs(model.dual_coef_).max() >= (1 - 1e-9) * C
            scores[number] = values
    return both(np.stack(scores))


def report_svc(space: Space, setting: Setting) -> Scores:
    model = SVC(C=setting["C"], gamma=space.gamma(setting["gamma"])).fit(space.X, space.y)
    return both(model.decision_function(space.others))


def choose_qda(space: Space, grid: list[Setting]) -> Scores:
    """Score all shrinkages with one eigendecomposition of each covariance."""
    rows, others = space.mapped
    shares = np.array([setting["shrinkage"] for setting in grid])
    scores = np.full((len(grid), len(others)), space.log_odds)
    for part, sign in ((rows[space.y], 1.0), (rows[~space.y], -1.0)):
        centred = part - part.mean(axis=0)
        values, vectors = np.linalg.eigh(centred.T @ centred / len(part))
        values = np.maximum(values, 0)
        shrunk = (1 - shares)[:, None] * values + shares[:, None] * values.mean()
        squares = ((others - part.mean(axis=0)) @ vectors) ** 2
        scores -= sign * 0.5 * ((1 / shrunk) @ squares.T + np.log(shrunk).sum(axis=1)[:, None])
    return both(scores)


def report_qda(space: Space, setting: Setting) -> Scores:
    rows, others = space.mapped
    model = shrunk_qda(setting["shrinkage"], tol=0.0)
    return both(model.fit(rows, space.y).decision_function(others))


def _logistic(C: float) -> LogisticRegression:
    return LogisticRegression(C=C, max_iter=2000, tol=1e-6, warm_start=True)


def choose_logistic(space: Space, grid: list[Setting]) -> Scores:
    """Use one map per bandwidth, and start each C from the previous solution."""
    scores: list[Any] = [None] * len(grid)
    for gamma in dict.fromkeys(setting["gamma"] for setting in grid):
        rows, others = space.mapped if gamma == "positive" else space.features(gamma)
        model = _logistic(1.0)
        numbers = [i for i, setting in enumerate(grid) if setting["gamma"] == gamma]
        for number in sorted(numbers, key=lambda i: grid[i]["C"]):
            model.set_params(C=grid[number]["C"]).fit(rows, space.y)
            scores[number] = model.decision_function(others)
    return both(np.stack(scores))


def report_logistic(space: Space, setting: Setting) -> Scores:
    gamma = setting["gamma"]
    rows, others = space.mapped if gamma == "positive" else space.features(gamma)
    return both(_logistic(setting["C"]).fit(rows, space.y).decision_function(others))


def report_cosine(space: Space, setting: Setting) -> Scores:
    """Score by the cosine to the positive mean; the nearer class mean decides."""
    means = np.stack([space.X[part].mean(axis=0) for part in (space.y, ~space.y)])
    near, far = cosine_similarity(space.others, means).T
    return {"ranking": near, "classification": near - far}


METHODS = [
    Method(
        "SVC",
        "today",
        "scikit-learn's SVC with the RBF kernel, C and bandwidth chosen.",
        report_svc,
        choose_svc,
        GRIDS["SVC"],
    ),
    Method(
        "QDA",
        "today",
        "scikit-learn's quadratic discriminant analysis (eigen, shrinkage chosen) on the features "
        "of the paper's kernel map.",
        report_qda,
        choose_qda,
        GRIDS["QDA"],
    ),
    Method(
        "Nystroem+LR",
        "today",
        "Kernel features (on small sets all rows are landmarks) and scikit-learn's logistic "
        "regression, C and bandwidth chosen.",
        report_logistic,
        choose_logistic,
        GRIDS["Nystroem+LR"],
    ),
    Method(
        "cosine",
        "today",
        "Cosine to the mean of the positives, on the rows as they are; the nearer of the two class "
        "means decides. Nothing is chosen.",
        report_cosine,
    ),
]

"""The methods of the paper's tables."""

from __future__ import annotations

from functools import partial

import numpy as np
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.neighbors import NearestCentroid
from sklearn.svm import LinearSVR

from pcsda import PCSDA

from .. import subspaces
from ..grids import PAPER as GRIDS
from ..grids import Setting
from ..spaces import Array, Space
from ..subspaces import Subspace
from .interface import KINDS, Method, Scores, both, linear_svm, one_by_one, published

# Errors up to this size cost nothing in support vector regression; LIBLINEAR's default.
EPSILON = 0.1
# Ridge of the ablation in which it is not chosen, as in PCSDA.published.
FIXED_RIDGE = 1e-2


def choose_ridge(space: Space, grid: list[Setting]) -> Scores:
    """Solve for all ridges in the eigenbasis of the total scatter."""
    basis, centred = space.basis, space.targets - space.targets.mean()
    ridges = np.array([setting["ridge"] for setting in grid])
    weights = (basis.rows.T @ centred)[:, None] / (basis.scatter[:, None] + ridges)
    return both((basis.others @ weights).T + space.targets.mean())


def report_ridge(space: Space, setting: Setting) -> Scores:
    rows, others = space.mapped
    return both(Ridge(alpha=setting["ridge"]).fit(rows, space.targets).predict(others))


def report_svr(space: Space, setting: Setting) -> Scores:
    rows, others = space.mapped
    loss = "squared_epsilon_insensitive"
    model = LinearSVR(C=setting["C"], loss=loss, epsilon=EPSILON, dual=False)
    return {"ranking": model.fit(rows, space.targets).predict(others)}


def report_svm(space: Space, setting: Setting) -> Scores:
    rows, others = space.mapped
    model = linear_svm(setting["C"]).fit(rows, space.y)
    return {"classification": model.decision_function(others)}


def _about_positives(space: Space, rows: Array, others: Array) -> Subspace:
    mean = rows[space.y].mean(axis=0)
    return Subspace(rows - mean, others - mean, space.y)


def choose_pca(space: Space, grid: list[Setting]) -> Scores:
    found = _about_positives(space, space.basis.rows, space.basis.others)
    return {"ranking": np.stack([found.distance(setting["d"]) for setting in grid])}


def report_pca(space: Space, setting: Setting) -> Scores:
    rows, others = space.mapped
    model = PCA(setting["d"], svd_solver="covariance_eigh").fit(rows)
    found = _about_positives(space, model.transform(rows), model.transform(others))
    return {"ranking": found.distance(setting["d"])}


def choose_pca_svm(space: Space, grid: list[Setting]) -> Scores:
    basis, scores = space.basis, []
    for setting in grid:
        d = setting["d"]
        model = linear_svm(setting["C"]).fit(basis.rows[:, :d], space.y)
        scores.append(model.decision_function(basis.others[:, :d]))
    return {"classification": np.stack(scores)}


def report_pca_svm(space: Space, setting: Setting) -> Scores:
    rows, others = space.mapped
    model = PCA(setting["d"], svd_solver="covariance_eigh").fit(rows)
    svm = linear_svm(setting["C"]).fit(model.transform(rows), space.y)
    return {"classification": svm.decision_function(model.transform(others))}


def _axes(space: Space, K: int, ridge: float) -> Subspace:
    """Return all axes of PCSDA with K subclasses."""
    groups = space.subclasses(K)
    model = PCSDA.published(K, regularization=ridge)
    model.fit(space.basis.rows, space.y, subclass_labels=groups)
    return subspaces.subspace_of(model, space.basis, space.y, ridge, groups)


def _one_axis(space: Space, ridge: float) -> Subspace:
    """Return the axis of PCSDA with one subclass, which is that of LDA."""
    return _axes(space, 1, ridge)


def choose_lda(space: Space, grid: list[Setting]) -> Scores:
    found = [_one_axis(space, setting["ridge"]) for setting in grid]
    # The positive mean is at zero, so rows on its side of half the negative mean are nearer to it.
    far = [sub.rows[~space.y].mean() for sub in found]
    nearer = [m * (m / 2 - sub.others[:, 0]) for m, sub in zip(far, found, strict=True)]
    return {
        "ranking": np.stack([sub.distance(1) for sub in found]),
        "classification": np.stack(nearer),
    }


def report_lda(space: Space, setting: Setting) -> Scores:
    """Fit scikit-learn's LDA with the shrinkage that corresponds to the ridge."""
    rows, others = space.mapped
    parts = (rows[space.y], rows[~space.y])
    within = sum(np.sum((part - part.mean(axis=0)) ** 2) for part in parts)
    eps = setting["ridge"] * np.sum((rows - rows.mean(axis=0)) ** 2) / len(rows)
    shrinkage = eps / (eps + within / rows.shape[1])
    # The solver "eigen" also shrinks the scatter between the classes, which rotates the axis.
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(rows, space.y)
    rows, others = rows @ model.coef_.T, others @ model.coef_.T
    nearest = NearestCentroid().fit(rows, space.y).predict(others)
    return {
        "ranking": _about_positives(space, rows, others).distance(1),
        "classification": np.where(nearest, 1.0, -1.0),
    }


def choose_pcsda(space: Space, grid: list[Setting], ridged: bool = False) -> Scores:
    """Score all settings, with one clustering per K, small systems per ridge, and all d at once."""
    scores = {kind: np.full((len(grid), len(space.others)), np.nan) for kind in KINDS}
    for K in dict.fromkeys(setting["K"] for setting in grid):
        for ridge in dict.fromkeys(s["ridge"] for s in grid if s["K"] == K):
            found = _axes(space, K, ridge)
            rule = found.rule(ridged)
            for number, setting in enumerate(grid):
                d = setting["d"]
                if (setting["K"], setting["ridge"]) == (K, ridge) and d <= len(rule):
                    scores["ranking"][number] = found.distance(d)
                    scores["classification"][number] = rule[d - 1]
    return scores


def choose_shared_priors(space: Space, grid: list[Setting]) -> Scores:
    scores = choose_pcsda(space, grid)
    return scores | {"classification": scores["classification"] + space.log_odds}


def report_pcsda(space: Space, setting: Setting, priors: str = "equal") -> Scores:
    rows, others = space.mapped
    model = PCSDA.published(
        setting["K"], setting["d"], regularization=setting["ridge"], priors=priors
    )
    model.fit(rows, space.y, subclass_labels=space.subclasses(setting["K"]))
    return published(model, others)


def report_ridged(space: Space, setting: Setting) -> Scores:
    """Fit by the shortcut, because the estimators keep the ridge out of the covariances."""
    return {kind: scores[0] for kind, scores in choose_pcsda(space, [setting], True).items()}


_ABOUT = {
    "RR": "Ridge regression of the labels 1 and -1; the sign decides.",
    "SVR": "Linear support vector regression of the labels (LIBLINEAR, squared loss).",
    "SVM": "Linear support vector machine (LIBLINEAR, squared hinge loss).",
    "PCA": "Principal components; rows are ranked by their distance to the positive mean.",
    "PCA+SVM": "The linear SVM on principal components.",
    "LDA": "The one axis of linear discriminant analysis, ridged; ranked by the distance to the "
    "positive mean, which makes it PCSDA-1 in ranking.",
    "LDA+NCC": "The same axis, and the nearest class centroid on it.",
    "PCSDA-1": "PCSDA as published with one negative subclass.",
    "PCSDA-K": "PCSDA as published with K subclasses found by k-means.",
}
_WAYS = {
    "RR": (report_ridge, choose_ridge, KINDS),
    "SVR": (report_svr, one_by_one(report_svr), ("ranking",)),
    "SVM": (report_svm, one_by_one(report_svm), ("classification",)),
    "PCA": (report_pca, choose_pca, ("ranking",)),
    "PCA+SVM": (report_pca_svm, choose_pca_svm, ("classification",)),
    "LDA": (report_lda, choose_lda, ("ranking",)),
    "LDA+NCC": (report_lda, choose_lda, ("classification",)),
    "PCSDA-1": (report_pcsda, choose_pcsda, KINDS),
    "PCSDA-K": (report_pcsda, choose_pcsda, KINDS),
}
METHODS = [
    Method(name, "paper", _ABOUT[name], report, choose, GRIDS[name], kinds)
    for name, (report, choose, kinds) in _WAYS.items()
]
for _name in ("PCSDA-1", "PCSDA-K"):
    _held = [setting for setting in GRIDS[_name] if setting["ridge"] == FIXED_RIDGE]
    METHODS += [
        Method(
            f"{_name}, ridge {FIXED_RIDGE:g}",
            "ablation",
            "With the ridge fixed at 0.01, as in PCSDA.published, instead of chosen.",
            report_pcsda,
            choose_pcsda,
            _held,
        ),
        Method(
            f"{_name}, shares as priors",
            "ablation",
            "With the shares of the classes as priors instead of equal ones.",
            partial(report_pcsda, priors="empirical"),
            choose_shared_priors,
            GRIDS[_name],
        ),
        Method(
            f"{_name}, ridge in covariances",
            "ablation",
            "With the ridge of the criterion in the covariances of the rule as well: those of "
            "S_p + eps I and S_w + eps I.",
            report_ridged,
            partial(choose_pcsda, ridged=True),
            GRIDS[_name],
            ("classification",),
        ),
    ]

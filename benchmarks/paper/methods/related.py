"""The related class-specific systems that the paper names."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from sklearn.linear_model import Ridge

from pcsda import CSDA

from .. import subspaces
from ..grids import FEW_RIDGES, Setting
from ..grids import RELATED as GRIDS
from ..spaces import Space
from ..subspaces import ClassSpecific, Subspace
from .interface import Method, Scores, both, linear_svm, published

# The ridge of the CSDA subspace before a linear SVM: the default of the library.
CSDA_RIDGE = 1e-2
# Targets of the regression, of which a setting takes the first d.
MOST = 25


def _dims(grid: list[Setting]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(setting["d"] for setting in grid))


def _ridges(grid: list[Setting]) -> tuple[float, ...]:
    return tuple(dict.fromkeys(setting["ridge"] for setting in grid))


def _on_paths(grid: list[Setting], find: Callable[[Setting], Subspace]) -> Scores:
    """Scores in class-specific subspaces, of which `find` gives the one of a setting."""
    found = [(find(setting), setting["d"]) for setting in grid]
    rules = {id(sub): sub.rule() for sub, _ in found}
    return {
        "ranking": np.stack([sub.distance(d) for sub, d in found]),
        "classification": np.stack([rules[id(sub)][d - 1] for sub, d in found]),
    }


@lru_cache(maxsize=1)
def _problem(space: Space) -> ClassSpecific:
    return ClassSpecific.of(space.basis, space.y)


@lru_cache(maxsize=1)
def _csda(space: Space) -> dict[float, Subspace]:
    """CSDA at every ridge that a method here asks for."""
    return subspaces.csda(_problem(space), (*FEW_RIDGES, CSDA_RIDGE), MOST)


def choose_csda(space: Space, grid: list[Setting]) -> Scores:
    found = _csda(space)
    return _on_paths(grid, lambda setting: found[setting["ridge"]])


def choose_trace_ratio(space: Space, grid: list[Setting]) -> Scores:
    found = subspaces.trace_ratio(_problem(space), _ridges(grid), _dims(grid))
    return _on_paths(grid, lambda setting: found[setting["ridge"], setting["d"]])


def choose_labels(space: Space, grid: list[Setting]) -> Scores:
    problem = _problem(space)
    spans = subspaces.regression(problem, _ridges(grid), MOST, space.seed)

    def find(setting: Setting) -> Subspace:
        ridge, d = setting["ridge"], setting["d"]
        span = subspaces.ritz(problem, spans[ridge][:, :d], ridge * space.basis.unit)
        return problem.project(span)

    return _on_paths(grid, find)


def choose_spectral(space: Space, grid: list[Setting]) -> Scores:
    problem = _problem(space)
    spans = subspaces.regression(problem, _ridges(grid), MOST, space.seed)
    found = {ridge: problem.project(span) for ridge, span in spans.items()}
    return _on_paths(grid, lambda setting: found[setting["ridge"]])


def report_csda(solver: str) -> Callable[[Space, Setting], Scores]:
    def report(space: Space, setting: Setting) -> Scores:
        rows, others = space.mapped
        model = CSDA.published(
            setting["d"],
            solver=solver,
            regularization=setting["ridge"],
            priors="equal",
            random_state=space.seed,
        )
        return published(model.fit(rows, space.y), others)

    return report


def report_spectral(space: Space, setting: Setting) -> Scores:
    rows, others = space.mapped
    mean = rows[space.y].mean(axis=0)
    eps = setting["ridge"] * np.sum((rows - rows.mean(axis=0)) ** 2) / len(rows)
    d = setting["d"]
    targets = subspaces.label_targets(space.y, MOST, space.seed)[:, :d]
    directions = Ridge(alpha=eps, fit_intercept=False).fit(rows - mean, targets).coef_
    directions = directions.reshape(d, -1).T
    found = Subspace((rows - mean) @ directions, (others - mean) @ directions, space.y)
    return {"ranking": found.distance(d), "classification": found.rule()[d - 1]}


def choose_csda_svm(space: Space, grid: list[Setting]) -> Scores:
    found = _csda(space)[CSDA_RIDGE]
    rows, others, scores = np.abs(found.rows), np.abs(found.others), []
    for setting in grid:
        d = setting["d"]
        model = linear_svm(setting["C"]).fit(rows[:, :d], space.y)
        scores.append(model.decision_function(others[:, :d]))
    return both(np.stack(scores))


def report_csda_svm(space: Space, setting: Setting) -> Scores:
    rows, others = space.mapped
    model = CSDA.published(setting["d"], solver="eigen", regularization=CSDA_RIDGE)
    model.fit(rows, space.y)
    svm = linear_svm(setting["C"]).fit(np.abs(model.transform(rows)), space.y)
    return both(svm.decision_function(np.abs(model.transform(others))))


_ABOUT = {
    "CSDA": "Class-specific discriminant analysis: the subspace that spreads all negatives about "
    "the positive mean and keeps the positives together, S_n w = lambda S_p w with a ridge on "
    "S_p. Ranked by the distance to the positive mean; classified by the rule g of the paper, "
    "with every negative as a subclass of its own.",
    "SR-CSDA": "Spectral regression for CSDA (Arashloo and Kittler 2014, Iosifidis and others "
    "2015): eigenvectors of the graph problem P_n v = lambda P_p v, then ridge regression of them "
    "on the rows about the positive mean. All eigenvectors but the first tie, so their order "
    "means nothing; seeded ones are taken, and the regression is used as it is.",
    "label-only": "The fast solution with targets known from the labels alone (Iosifidis and "
    "others 2016): the same regression, and then the best directions within its span, which "
    "mends the order.",
    "low-rank": "CSDA as low-rank regression of the targets e_i - 1_p/N_p (Iosifidis and Gabbouj "
    "2017). Its subspace is that of CSDA exactly, so its scores are too, up to rounding.",
    "CSDA+SVM": "A linear SVM on |z - mu|, entry by entry, in the CSDA subspace (Iosifidis and "
    "others 2015); its decision value ranks as well.",
    "trace-ratio": "The trace ratio tr(W'S_n W) / tr(W'S_p W) itself (Jia and others 2009), "
    "maximised over orthonormal W with a ridge on S_p.",
}
_WAYS = {
    "CSDA": (report_csda("eigen"), choose_csda),
    "SR-CSDA": (report_spectral, choose_spectral),
    "label-only": (report_csda("labels"), choose_labels),
    "low-rank": (report_csda("lowrank"), choose_csda),
    "CSDA+SVM": (report_csda_svm, choose_csda_svm),
    "trace-ratio": (report_csda("trace_ratio"), choose_trace_ratio),
}
METHODS = [
    Method(name, "related", _ABOUT[name], report, choose, GRIDS[name])
    for name, (report, choose) in _WAYS.items()
]

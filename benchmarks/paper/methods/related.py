"""The related class-specific systems that the paper names."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from pcsda import CSDA, MultilinearCSDA

from .. import subspaces
from ..grids import RELATED as GRIDS
from ..grids import Setting
from ..spaces import Space
from ..subspaces import ClassSpecific, Subspace
from .interface import Method, Scores, both, linear_svm, one_by_one, published

# Ridge of the CSDA subspace before a linear SVM: the default of CSDA.
CSDA_RIDGE = 1e-2
# Largest number of axes, or of regression targets; a setting uses the first d.
MOST = 25


def _dims(grid: list[Setting]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(setting["d"] for setting in grid))


def _ridges(grid: list[Setting]) -> tuple[float, ...]:
    return tuple(dict.fromkeys(setting["ridge"] for setting in grid))


def _on_paths(grid: list[Setting], find: Callable[[Setting], Subspace]) -> Scores:
    """Score in class-specific subspaces; `find` returns the one for a setting."""
    found = [(find(setting), setting["d"]) for setting in grid]
    rules = {id(sub): sub.rule() for sub, _ in found}
    return {
        "ranking": np.stack([sub.distance(d) for sub, d in found]),
        "classification": np.stack([rules[id(sub)][d - 1] for sub, d in found]),
    }


@lru_cache(maxsize=1)
def _problem(space: Space) -> ClassSpecific:
    return ClassSpecific.of(space.basis, space.y)


@lru_cache(maxsize=12)
def _solved(space: Space, ridge: float, solver: str = "eigen") -> Subspace:
    """Return the leading axes of CSDA; a smaller d uses the first of them."""
    most = min(MOST, int((~space.y).sum()), space.basis.rows.shape[1])
    rule = CSDA.published(most, solver=solver, regularization=ridge, random_state=space.seed)
    model = rule.fit(space.basis.rows, space.y)
    return subspaces.subspace_of(model, space.basis, space.y, ridge)


def choose_csda(space: Space, grid: list[Setting], solver: str = "eigen") -> Scores:
    return _on_paths(grid, lambda setting: _solved(space, setting["ridge"], solver))


def choose_labels(space: Space, grid: list[Setting]) -> Scores:
    """Find the best directions in the span of the first d targets."""

    def find(setting: Setting) -> Subspace:
        raw = _solved(space, setting["ridge"], "raw_labels")
        return subspaces.best_in_span(raw, setting["d"])

    return _on_paths(grid, find)


def choose_trace_ratio(space: Space, grid: list[Setting], learn: bool = False) -> Scores:
    found = subspaces.trace_ratio(_problem(space), _ridges(grid), _dims(grid), learn)
    return _on_paths(grid, lambda setting: found[setting["ridge"], setting["d"]])


def report_csda(solver: str, reference: str = "mean") -> Callable[[Space, Setting], Scores]:
    def report(space: Space, setting: Setting) -> Scores:
        rows, others = space.mapped
        model = CSDA.published(
            setting["d"],
            solver=solver,
            reference=reference,
            regularization=setting["ridge"],
            priors="equal",
            random_state=space.seed,
        )
        return published(model.fit(rows, space.y), others)

    return report


def choose_csda_svm(space: Space, grid: list[Setting]) -> Scores:
    found = _solved(space, CSDA_RIDGE)
    rows, others, scores = np.abs(found.rows), np.abs(found.others), []
    for setting in grid:
        d = setting["d"]
        model = linear_svm(setting["C"]).fit(rows[:, :d], space.y)
        scores.append(model.decision_function(others[:, :d]))
    return both(np.stack(scores))


def report_csda_svm(space: Space, setting: Setting) -> Scores:
    rows, others = space.mapped
    projection = CSDA.published(setting["d"], solver="eigen", regularization=CSDA_RIDGE)
    distances = FunctionTransformer(np.abs)  # of z from the positive mean, axis by axis
    model = make_pipeline(projection, distances, linear_svm(setting["C"]))
    return both(model.fit(rows, space.y).decision_function(others))


def report_multilinear(space: Space, setting: Setting) -> Scores:
    model = MultilinearCSDA.published(
        setting["d"], space.shape, regularization=setting["ridge"], priors="equal"
    )
    return published(model.fit(space.X, space.y), space.others)


_ABOUT = {
    "CSDA": "Class-specific discriminant analysis: the subspace that spreads all negatives about "
    "the positive mean and keeps the positives together, S_n w = lambda S_p w with a ridge on "
    "S_p. Ranked by the distance to the positive mean; classified by the rule g of the paper, "
    "with every negative as a subclass of its own.",
    "SR-CSDA": "Spectral regression for CSDA (Arashloo and Kittler 2014, Iosifidis and others "
    "2015): eigenvectors of the graph problem P_n v = lambda P_p v, then ridge regression of them "
    "on the rows about the positive mean. All eigenvectors but the first tie, so their order "
    "means nothing; seeded ones are taken, and the regression is used as it is.",
    "raw label-only": "Targets known from the labels alone (Iosifidis and Gabbouj 2016), and "
    "the regression used as it is. It differs from SR-CSDA in the length of the first axis.",
    "label-only": "The fast solution with targets known from the labels alone (Iosifidis and "
    "others 2016): the same regression, and then the best directions within its span, which "
    "mends the order.",
    "low-rank": "CSDA as low-rank regression of the targets e_i - 1_p/N_p (Iosifidis and Gabbouj "
    "2017). Its subspace is that of CSDA exactly, so its scores are too, up to rounding.",
    "CSDA+SVM": "A linear SVM on |z - mu|, entry by entry, in the CSDA subspace (Iosifidis and "
    "others 2015); its decision value ranks as well.",
    "CSRDA": "Class-specific reference discriminant analysis (Iosifidis and others 2015): the "
    "trace ratio with scatters about a reference vector that is learned too. Ranked by the "
    "distance to it; the rule g has the negatives about it.",
    "trace-ratio": "The trace ratio tr(W'S_n W) / tr(W'S_p W) itself (Jia and others 2009), "
    "maximised over orthonormal W with a ridge on S_p.",
    "multilinear CSDA": "The trace ratio over outer products of one to five directions for the "
    "rows and for the columns of a picture (Tran, Gabbouj and Iosifidis 2017). It works on the "
    "pixels themselves, not on features of a kernel map, and only where samples are pictures.",
}
_WAYS = {
    "CSDA": (report_csda("eigen"), choose_csda),
    "SR-CSDA": (report_csda("spectral"), partial(choose_csda, solver="spectral")),
    "raw label-only": (report_csda("raw_labels"), partial(choose_csda, solver="raw_labels")),
    "label-only": (report_csda("labels"), choose_labels),
    "low-rank": (report_csda("lowrank"), choose_csda),
    "CSDA+SVM": (report_csda_svm, choose_csda_svm),
    "trace-ratio": (report_csda("trace_ratio"), choose_trace_ratio),
    "CSRDA": (report_csda("auto", "optimal"), partial(choose_trace_ratio, learn=True)),
    "multilinear CSDA": (report_multilinear, one_by_one(report_multilinear)),
}
METHODS = [
    Method(
        name,
        "related",
        _ABOUT[name],
        report,
        choose,
        GRIDS[name],
        of_pictures=name == "multilinear CSDA",
    )
    for name, (report, choose) in _WAYS.items()
]

"""Every way to a fitted model: the routes that must agree, and problems to send along them.

A route is a function from a problem to a `Result`; it may refuse by a ValueError. A new route is
one function with `@route`. Only public names are used.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import onnxruntime
from scipy.special import expit
from sklearn.pipeline import make_pipeline

from pcsda import (
    PCSDA,
    PCSDACV,
    ExactKernelMap,
    KernelPCSDA,
    VerifierBank,
    distributed,
    export_onnx,
    fit_blocks,
    load,
    save,
)

# What routes agree to where nothing stands in the way, relative to the largest score.
CLOSE = 1e-8
# Float32 rows are known to 6e-8 of their distance from the mean, and a score adds up some hundred
# such roundings.
CLOSE_SINGLE = 1e-4
# A solution is known to a few roundings times the condition of what is solved. On regular rows one
# is seen at most; weak axes, rows left out, and fitted tails and shares make it a few dozen.
ROUNDINGS = 50.0


@dataclass(frozen=True)
class Problem:
    """Rows of groups, 0 for the class of interest and 1..K for the subclasses; rows to score.

    `params` are those of PCSDA.
    """

    X: Any
    groups: Any
    new: Any
    weights: Any = None
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def y(self):
        return (self.groups == 0).astype(int)

    @property
    def single(self):
        return self.X.dtype == np.float32

    @property
    def ridge(self):
        return self.params["regularization"]

    def given(self, prefix=""):
        known = {"subclass_labels": self.groups, "sample_weight": self.weights}
        return {prefix + name: value for name, value in known.items() if value is not None}

    def exact(self):
        """The same rows in double precision."""
        return replace(self, X=self.X.astype(np.float64), new=self.new.astype(np.float64))

    @cached_property
    def conditions(self):
        """Condition of the ridged within scatter and of the ridged Gram matrix.

        The first is what a solver on statistics meets, the second what one on kernel values does,
        with rows centred.
        """
        X = self.X.astype(np.float64)
        w = np.ones(len(X)) if self.weights is None else self.weights
        centred = X - w @ X / w.sum()
        means = np.array(
            [w[g] @ centred[g] / max(w[g].sum(), 1e-300) for g in self._members], dtype=np.float64
        )
        root = np.sqrt(w)[:, None]
        total = np.linalg.svd(root * centred, compute_uv=False) ** 2
        within = np.linalg.svd(root * (centred - means[self.groups]), compute_uv=False) ** 2
        ridge = self.ridge * total.sum() / w.sum()
        least = within[-1] if X.shape[1] <= len(X) else 0.0
        if ridge == 0 and least == 0:
            return np.inf, np.inf
        with np.errstate(divide="ignore"):
            return (within[0] + ridge) / (least + ridge), (total[0] + ridge) / ridge

    @property
    def _members(self):
        return [self.groups == g for g in range(self.groups.max() + 1)]

    def tolerance(self, by_gram):
        """How far scores may lie apart, relative to the largest of them (at least to one).

        Solving multiplies a rounding of 1e-16 by the condition; float32 rows have roundings of
        their own.
        """
        primal, gram = self.conditions
        wide = self.X.shape[1] > len(self.X)
        condition = max(primal, gram) if by_gram or wide else primal
        exact = max(CLOSE, ROUNDINGS * np.finfo(np.float64).eps * condition)
        return max(exact, CLOSE_SINGLE) if self.single else exact


@dataclass(frozen=True)
class Result:
    """What a route says of the new rows, and of the training rows where it leaves them out."""

    llr: Any
    n_axes: int | None = None
    proba: Any = None
    left_out: Any = None


@dataclass(frozen=True)
class Route:
    """A route by its name; `by_gram` says that it solves with kernel values."""

    name: str
    fit: Callable[[Problem], Result]
    by_gram: bool = False
    weighted: bool = True


ROUTES: dict[str, Route] = {}


def route(name, **facts):
    def enter(function):
        ROUTES[name] = Route(name, function, **facts)
        return function

    return enter


def result_of(model, new):
    return Result(
        model.log_likelihood_ratio(new),
        model.n_components_,
        model.predict_proba(new)[:, 1],
        getattr(model, "loo_scores_", None),
    )


def fitted(problem, **params):
    return PCSDA(**problem.params | params).fit(problem.X, problem.y, **problem.given())


@route("cholesky")
def by_cholesky(problem):
    return result_of(fitted(problem, solver="cholesky"), problem.new)


@route("eigen")
def by_eigen(problem):
    return result_of(fitted(problem, solver="eigen"), problem.new)


@route("spectral")
def by_spectral(problem):
    return result_of(fitted(problem, solver="spectral"), problem.new)


@route("kernel", by_gram=True)
def by_kernel(problem):
    model = KernelPCSDA("linear", **problem.params)
    return result_of(model.fit(problem.X, problem.y, **problem.given()), problem.new)


@route("kernel map", by_gram=True)
def by_map(problem):
    pipe = make_pipeline(ExactKernelMap("linear"), PCSDA(**problem.params))
    pipe.fit(problem.X, problem.y, **problem.given("pcsda__"))
    return result_of(pipe[-1], pipe[:-1].transform(problem.new))


def bank_of(estimator, problem):
    """A bank whose label 0 is the class of interest.

    The subclasses cut through its three labels, and the class of interest has its part in each of
    them: what the label's own rows take with them has to be taken off.
    """
    number, own = np.arange(len(problem.X)), problem.groups == 0
    labels = np.where(own, 0, 1 + number % 2)
    shared = np.where(own, 1 + number % problem.groups.max(), problem.groups)
    return VerifierBank(estimator).fit(problem.X, labels, subclass_labels=shared)


def result_of_bank(bank, new):
    model = bank.models_[0]
    model = getattr(model, "best_estimator_", model)
    llr = bank.log_likelihood_ratio(new)[:, 0]
    prior = model.class_prior_
    return Result(
        llr,
        model.n_components_,
        expit(llr + np.log(prior[1] / prior[0])),
        getattr(model, "loo_scores_", None),
    )


@route("bank", weighted=False)
def by_bank(problem):
    return result_of_bank(bank_of(PCSDA(**problem.params), problem), problem.new)


@route("bank's model", weighted=False)
def by_model_of_bank(problem):
    return result_of(bank_of(PCSDA(**problem.params), problem).models_[0], problem.new)


@route("kernel bank", by_gram=True, weighted=False)
def by_kernel_bank(problem):
    bank = bank_of(KernelPCSDA("linear", **problem.params), problem)
    return result_of_bank(bank, problem.new)


def search_of(problem, n_components=None):
    """A search in which nothing is left open, but the number of components where it is None."""
    return PCSDACV(
        PCSDA(**problem.params),
        n_components=n_components or problem.params.get("n_components"),
        regularization=[problem.ridge],
        cv="leave-one-out",
        stay=0,
        slack=0,
    )


def widest(search):
    """The largest number of components that has a score."""
    scores = search.cv_results_["mean_test_score"]
    tried = np.asarray(search.cv_results_["param_n_components"], dtype=int)
    return int(tried[np.isfinite(scores)].max())


@route("search")
def by_search(problem):
    """The search at its largest number of components, by its own left-out scores."""
    given = problem.given()
    n_axes = widest(search_of(problem).fit(problem.X, problem.y, **given))
    search = search_of(problem, [n_axes]).fit(problem.X, problem.y, **given)
    prior = search.best_estimator_.class_prior_
    return Result(
        search.log_likelihood_ratio(problem.new),
        n_axes,
        search.predict_proba(problem.new)[:, 1],
        search.cv_scores_[0] - np.log(prior[1] / prior[0]) if problem.weights is None else None,
    )


@route("bank of searches", weighted=False)
def by_bank_of_searches(problem):
    n_axes = widest(bank_of(search_of(problem), problem).models_[0])
    bank = bank_of(search_of(problem, [n_axes]), problem)
    return result_of_bank(bank, problem.new)


def cut(problem):
    """Blocks of unequal size, one of a single row."""
    size = len(problem.X)
    arrays = (problem.X, problem.y, problem.groups, problem.weights)
    for start, stop in pairwise([0, size // 4, size // 4 + 1, size // 2, size]):
        yield tuple(None if array is None else array[start:stop] for array in arrays)


@route("blocks")
def by_blocks(problem):
    model = fit_blocks(PCSDA(**problem.params), lambda: cut(problem), classes=[0, 1])
    return result_of(model, problem.new)


@route("dask")
def by_dask(problem):
    step = len(problem.X) // 3 + 1

    def lazy(array):
        return da.from_array(array, chunks=(step, *array.shape[1:]))

    known = {name: lazy(value) for name, value in problem.given().items()}
    model = distributed.fit(
        PCSDA(**problem.params), lazy(problem.X), lazy(problem.y), classes=[0, 1], **known
    )
    return result_of(model, problem.new)


@route("saved and loaded")
def by_file(problem):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pcsda"
        save(fitted(problem), path)
        return result_of(load(path), problem.new)


@route("ONNX")
def by_onnx(problem):
    model = fitted(problem)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export_onnx(model, path, dtype="float64")
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    inputs = {session.get_inputs()[0].name: problem.new.astype(np.float64)}
    found = dict(zip(names, session.run(None, inputs), strict=True))
    llr = found["log_likelihood_ratio"].ravel()
    return Result(llr, found["z"].shape[1], found["probabilities"][:, 1])


@route("fast_scorer")
def by_fast_scorer(problem):
    model = fitted(problem)
    return Result(np.asarray(model.fast_scorer()(problem.new)), model.n_components_)

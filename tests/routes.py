"""Every way to a fitted model: the routes that must agree, and problems to send along them.

A route is a function from a problem to a `Result`; it may refuse by a ValueError. A new route is
one function with `@route`. Only public names are used.
"""

from __future__ import annotations

import tempfile
import warnings
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
from sklearn.exceptions import NotFittedError
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

# How closely routes agree on well-posed problems, relative to the largest score.
CLOSE = 1e-8
# Float32 rows are known to 6e-8 of their distance from the mean, and a score adds up some hundred
# such roundings.
CLOSE_SINGLE = 1e-4
# A solution is accurate to a few roundings times its condition number; up to five occur.
ROUNDINGS = 10.0
# Folds of the calibration, where no row is left out.
FOLDS = 5


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
    def labels(self):
        """Three labels for a bank, of which 0 is the class of interest, and shared subclasses.

        These cut through all labels, so that what the class of interest takes with it has to be
        taken off them.
        """
        number, own = np.arange(len(self.X)), self.groups == 0
        shared = np.where(own, 1 + number % self.groups.max(), self.groups)
        return np.where(own, 0, 1 + number % 2), shared

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
        """Return the problem in double precision."""
        return replace(self, X=self.X.astype(np.float64), new=self.new.astype(np.float64))

    @cached_property
    def bank(self):
        """Bank of three labels, which two routes use."""
        return bank_of(PCSDA(**self.params), self)

    @cached_property
    def scatter(self):
        """Group sizes and means, spectra of total and within scatter, and the ridge."""
        X = self.X.astype(np.float64)
        w = np.ones(len(X)) if self.weights is None else self.weights
        centred = X - X[0]
        centred -= w @ centred / w.sum()
        counts = np.bincount(self.groups, w)
        means = np.array([w[own] @ centred[own] for own in self._members]) / counts[:, None]
        root = np.sqrt(w)[:, None]
        total = np.linalg.svd(root * centred, compute_uv=False) ** 2
        within = np.linalg.svd(root * (centred - means[self.groups]), compute_uv=False) ** 2
        if X.shape[1] > len(X):  # some directions have no scatter
            within = np.append(within, 0.0)
        return counts, means, total, within, self.ridge * total.sum() / w.sum()

    @property
    def _members(self):
        return [np.flatnonzero(self.groups == g) for g in range(self.groups.max() + 1)]

    @property
    def most_axes(self):
        """Return how many directions the subclass means span, to the precision of the rows."""
        _, means, *_ = self.scatter
        gaps = means[1:] - means[0]
        rounding = np.finfo(np.float64).eps * np.abs(self.X.astype(np.float64)).max()
        lengths = np.linalg.svd(gaps, compute_uv=False)
        return int(np.sum(lengths > 4 * np.sqrt(gaps.size) * rounding))

    def fitted_share(self, components):
        """Return the share of within-group scatter in the denominator, which also has the ridge."""
        _, means, _, _, ridge = self.scatter
        X = self.X.astype(np.float64)
        w = np.ones(len(X)) if self.weights is None else self.weights
        centred = X - X[0]
        centred -= w @ centred / w.sum()
        spread = w @ ((centred - means[self.groups]) @ components.T) ** 2
        return float((spread / (spread + ridge * (components**2).sum(axis=1))).max())

    def tolerance(self, route, expected):
        """How far scores may lie apart, relative to the largest of them (at least to one).

        A solver on statistics knows the eigenvalues to a rounding of the largest, times the
        condition of the ridged within scatter; one on kernel values knows them to a rounding of the
        total scatter beside the ridge, as far as groups differ at all. What that is beside the
        weakest eigenvalue is what the weakest axis is known to. Besides, a mean far from zero has
        an error that shows beside the least spread within groups.

        Coordinates from kernel values, z = k(x)' alpha, have a rounding of their own. The solution
        alpha = (W K + eps I)^-1 E C / eps, with W = I - EE', has the parts E'alpha = C / eps in
        the means of groups and W alpha = -a / eps in the residuals a of the rows. On an axis of
        unit denominator their lengths are sqrt(g / lambda) / eps, g = 1/n_k + 1/n_0, and
        sqrt(s) / eps, s the share of scatter in the denominator. A rounding of |k(x)| |alpha|,
        |k(x)|^2 = lambda_1(S_T)^2 / N, is sqrt(s + g / lambda) lambda_1(S_T) / eps beside the
        deviation of new rows: 1 / sqrt(N), or more where the ridge is most of the denominator.
        No solver avoids it: `test_rounded_kernel_values_allow_no_better_accuracy`.
        """
        counts, _, total, within, ridge = self.scatter
        if within[-1] + ridge == 0:
            return np.inf
        eigenvalues, dtype = expected.eigenvalues, route.dtype(self)
        solved = (within[0] + ridge) / (within[-1] + ridge) * eigenvalues[0] / eigenvalues[-1]
        if route.by_gram or self.X.shape[1] > len(self.X):
            weak = (1 / counts[1:] + 1 / counts[0]).max() / eigenvalues[-1]
            if route.dual:
                weak = max(weak, np.sqrt(self.fitted_share(expected.components) + weak))
            with np.errstate(divide="ignore"):
                solved = max(solved, np.divide(total[0], ridge) * weak)
        farthest = np.linalg.norm(self.X.astype(np.float64), axis=1).max()
        far = farthest * np.sqrt(counts.sum() / (within[-1] + ridge))
        exact = ROUNDINGS * np.finfo(dtype).eps * (solved + far)
        if self.params.get("covariance") == "resubstitution" and self.params.get("calibrate", True):
            exact *= FOLDS  # each fold adds the roundings of a fit on fewer rows
        return float(max(exact, CLOSE_SINGLE if self.single else CLOSE))


@dataclass(frozen=True)
class Result:
    """A route's results for new rows, and for training rows if it leaves them out."""

    llr: Any
    n_axes: int | None = None
    proba: Any = None
    left_out: Any = None
    eigenvalues: Any = None
    components: Any = None


@dataclass(frozen=True)
class Route:
    """A route by its name.

    `by_gram` says that it solves with kernel values, `dual` that it also projects with them,
    `by_scatter` that it has nothing but scatter
    matrices also where there are more features than rows, `rounds` that it turns rows and rounds
    them again to the type they came in.
    """

    name: str
    fit: Callable[[Problem], Result]
    by_gram: bool = False
    dual: bool = False
    by_scatter: bool = False
    weighted: bool = True
    rounds: bool = False

    def dtype(self, problem):
        """Return the type to which this route rounds the rows."""
        return problem.X.dtype if self.rounds else np.float64


ROUTES: dict[str, Route] = {}


def solved(route, problem):
    """Return a route's result, or the error with which it refused."""
    try:
        return ROUTES[route].fit(problem)
    except ValueError as error:
        return error


def assert_near(found, expected, tolerance, what):
    """Check that differences are at most `tolerance` times the largest value (at least one)."""
    missing = np.isnan(expected)
    assert np.array_equal(np.isnan(found), missing), f"{what} are missing elsewhere"
    found, expected = np.asarray(found, dtype=np.float64)[~missing], expected[~missing]
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    apart = float(np.abs(found - expected).max(initial=0.0)) / scale
    assert apart <= tolerance, f"{what} differ by {apart:.1e} of {scale:.3g}, above {tolerance:.1e}"


def assert_agrees(found, expected, problem, route):
    """Check the law: the result of Cholesky in double precision, or the same refusal."""
    if isinstance(expected, ValueError):
        assert isinstance(found, ValueError), f"accepts what Cholesky refuses: {expected}"
        assert str(found) == str(expected), f"{found} (in place of: {expected})"
        return
    assert not isinstance(found, ValueError), f"refuses: {found}"
    tolerance = problem.tolerance(ROUTES[route], expected)
    if found.n_axes is not None:
        assert found.n_axes == expected.n_axes, f"{found.n_axes} axes, not {expected.n_axes}"
    assert_near(found.llr, expected.llr, tolerance, "log-likelihood ratios")
    if found.proba is not None:
        scale = max(1.0, np.abs(expected.llr).max())
        assert_near(found.proba, expected.proba, tolerance * scale, "probabilities")
    if found.left_out is not None and expected.left_out is not None:
        assert_near(found.left_out, expected.left_out, tolerance, "left-out scores")


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
        model.eigenvalues_,
        getattr(model, "components_", None),
    )


def fitted(problem, **params):
    return PCSDA(**problem.params | params).fit(problem.X, problem.y, **problem.given())


@route("cholesky")
def by_cholesky(problem):
    return result_of(fitted(problem, solver="cholesky"), problem.new)


@route("eigen", by_scatter=True)
def by_eigen(problem):
    return result_of(fitted(problem, solver="eigen"), problem.new)


@route("spectral", by_scatter=True)
def by_spectral(problem):
    return result_of(fitted(problem, solver="spectral"), problem.new)


@route("kernel", by_gram=True, dual=True)
def by_kernel(problem):
    model = KernelPCSDA("linear", **problem.params)
    return result_of(model.fit(problem.X, problem.y, **problem.given()), problem.new)


@route("kernel map", by_gram=True, by_scatter=True, rounds=True)
def by_map(problem):
    pipe = make_pipeline(ExactKernelMap("linear"), PCSDA(**problem.params))
    pipe.fit(problem.X, problem.y, **problem.given("pcsda__"))
    return result_of(pipe[-1], pipe[:-1].transform(problem.new))


def bank_of(estimator, problem):
    """Return a bank whose label 0 is the class of interest."""
    labels, shared = problem.labels
    bank = VerifierBank(estimator, calibration="per-label")
    return bank.fit(problem.X, labels, subclass_labels=shared)


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
    return result_of_bank(problem.bank, problem.new)


@route("bank's model", weighted=False)
def by_model_of_bank(problem):
    return result_of(problem.bank.models_[0], problem.new)


@route("kernel bank", by_gram=True, dual=True, weighted=False)
def by_kernel_bank(problem):
    bank = bank_of(KernelPCSDA("linear", **problem.params), problem)
    return result_of_bank(bank, problem.new)


def search_of(problem, n_components=None):
    """Return a search with every setting fixed, except a number of components of None."""
    every = list(range(1, problem.most_axes + 1)) or None
    return PCSDACV(
        PCSDA(**problem.params),
        n_components=n_components or problem.params.get("n_components") or every,
        regularization=[problem.ridge],
        cv="leave-one-out",
        stay=0,
        slack=0,
    )


def widest(search):
    """Return the largest number of components that has a score."""
    scores = search.cv_results_["mean_test_score"]
    tried = np.asarray(search.cv_results_["param_n_components"], dtype=int)
    return int(tried[np.isfinite(scores)].max())


@route("search")
def by_search(problem):
    """Return the search at its largest number of components, with its own left-out scores."""
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
    """Cut rows into blocks of unequal size, one with a single row."""
    size = len(problem.X)
    arrays = (problem.X, problem.y, problem.groups, problem.weights)
    edges = sorted({0, size // 4, size // 4 + 1, size // 2, size})
    for start, stop in pairwise(edges):
        yield tuple(None if array is None else array[start:stop] for array in arrays)


@route("blocks", by_scatter=True)
def by_blocks(problem):
    model = fit_blocks(PCSDA(**problem.params), lambda: cut(problem), classes=[0, 1])
    return result_of(model, problem.new)


@route("dask", by_scatter=True)
def by_dask(problem):
    step = len(problem.X) // 3 + 1

    def lazy(array):
        return da.from_array(array, chunks=(step, *array.shape[1:]))

    known = {name: lazy(value) for name, value in problem.given().items()}
    model = distributed.fit(
        PCSDA(**problem.params), lazy(problem.X), lazy(problem.y), classes=[0, 1], **known
    )
    return result_of(model, problem.new)


@route("batches")
def by_batches(problem):
    model = PCSDA(**problem.params)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "with this batch, there is no model until more rows arrive"
        )
        for X, y, groups, weights in cut(problem):
            model.partial_fit(X, y, classes=[0, 1], subclass_labels=groups, sample_weight=weights)
    try:
        found = result_of(model, problem.new)
    except NotFittedError as error:  # batches wait for more where a fit refuses
        raise ValueError(str(error).partition("do not make a model: ")[2]) from error
    if found.left_out is None:
        return found
    # Rows of weight zero are not kept: to the model they are new.
    left_out = model.log_likelihood_ratio(problem.X).astype(np.float64)
    left_out[model.sample_.numbers] = found.left_out
    return replace(found, left_out=left_out)


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

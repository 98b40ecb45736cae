"""Choice of K, d, ridge and bandwidth from left-out scores that cost almost nothing."""

from __future__ import annotations

from itertools import product
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from joblib import Parallel
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, TransformerMixin
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import validation
from ..core.explanation import Explanation
from ..core.linalg import Array
from ..kernels import SCALED_KERNELS, bandwidth
from ..maps import NystroemMap
from ..metrics import equal_error_rate
from ..partition import count_distinct, given_labels, settle_count
from ..progress import progress
from ..unwrap import unwrap
from .grid import Cell, Data, MakeRows, grid_rows, left_out_scores, with_setting
from .kernel import KernelPCSDA, is_precomputed
from .linear import PCSDA

N_SUBCLASSES = (1, 5, 10, 15, 20)
N_COMPONENTS = tuple(range(1, 26))
REGULARIZATION = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
# Bandwidths for kernels: the paper's, and these multiples of scikit-learn's "scale".
GAMMA = ("positive", 0.3, 1.0, 3.0)
FOLDS = 5
# Leave-one-out holds the clustering. That is honest with this many negatives a subclass.
HONEST_SUBCLASS = 50
# With fewer positives left-out scores ask for too much; folds, with fewer still, are more careful.
FEW_POSITIVES = 30
# Landmarks among fewer positives than this flatter them; the map is then refitted in folds.
HONEST_POSITIVES = 200
# Parts that left-out scores are divided into where a metric has no value for single rows.
PARTS = 5
SCORINGS = ("neg_log_loss", "average_precision", "f1", "eer")


class PCSDACV(MetaEstimatorMixin, ClassifierMixin, TransformerMixin, BaseEstimator):
    """PCSDA with K, d, ridge and bandwidth chosen by left-out scores in closed form.

    All d come from one fit, all K from one factorisation, and all ridges of a linear model from one
    eigendecomposition (those of a kernel model from one Cholesky factor each).

    Parameters
    ----------
    estimator : PCSDA, KernelPCSDA or Pipeline that ends in PCSDA, default=None
        What to tune, with leave-one-out covariances; None stands for ``PCSDA()``.
    n_subclasses : int or list of int, default=None
        Values of K; None stands for 1, 5, 10, 15, 20. Those above the number of different
        negatives are left out.
    n_components : int or list of int, default=None
        Values of d; None stands for 1 to 25. Those above what K allows are left out.
    regularization : float or list of float, default=None
        Ridges; None stands for 1e-4, 1e-3, 0.01, 0.1, 1.
    gamma : value or list of values, default=None
        Bandwidths of a kernel estimator or of the map in a pipeline; None stands for "positive" and
        0.3, 1 and 3 times "scale" (pipelines: those of the map as it is).
    cv : {"auto", "leave-one-out"}, int or splitter, default="auto"
        "leave-one-out" holds the clustering and the map. "auto" does that where it is honest: at
        least 30 positives, at least 50 negatives a subclass at the largest K, and no Nystroem
        landmarks among fewer than 200 positives; otherwise 5 folds that cluster and map anew, at
        five times the price, and more in a bank, which shares no factorisation of folds.
    scoring : {"neg_log_loss", "average_precision", "f1", "eer"} or callable, default="neg_log_loss"
        A callable takes labels (1 for the class of interest) and decision values; larger is better.
        :func:`pcsda.metrics.make_detection_scorer` makes one of a metric.
    stay : float, default=2.0
        A setting's score is its mean gain over the estimator's own setting minus this many standard
        errors of the paired difference. Where no setting scores above zero, the estimator's own is
        kept: the best of a thousand is partly luck. 0 turns this off, and so does a grid that does
        not contain the estimator's own setting.
    slack : float, default=0.5
        With `stay` off, settings whose score is within this many standard errors of the best count
        as equal. The largest ridge among them wins, and at that ridge the best score. 0 takes the
        best of all.
    n_jobs : int or None, default=None
        Parallel jobs, as in joblib. The result does not depend on it.
    verbose : bool, default=False
        Draw a progress bar on a terminal.

    Attributes
    ----------
    best_estimator_ : estimator
        Fitted on all rows at the chosen setting; predictions are its own.
    best_params_ : dict
    best_index_ : int
    best_score_ : float
    cv_results_ : dict of arrays
        As in scikit-learn's searches. `std_test_score` is over folds, or over rows (log-loss) or
        parts of the rows for leave-one-out.
    cv_scores_ : array of shape (n_settings, n_samples)
        Left-out decision values of the training rows at every setting.
    cv_method_ : {"leave-one-out", "k-fold"}

    Examples
    --------
    >>> from pcsda import PCSDACV
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(2000, random_state=0)
    >>> model = PCSDACV().fit(data.data, data.target)
    >>> sorted(model.best_params_)
    ['n_components', 'n_subclasses', 'regularization']
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_subclasses: Any = None,
        n_components: Any = None,
        regularization: Any = None,
        gamma: Any = None,
        cv: Any = "auto",
        scoring: Any = "neg_log_loss",
        stay: float = 2.0,
        slack: float = 0.5,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.n_subclasses = n_subclasses
        self.n_components = n_components
        self.regularization = regularization
        self.gamma = gamma
        self.cv = cv
        self.scoring = scoring
        self.stay = stay
        self.slack = slack
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        subclass_labels: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose the setting and fit it on all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Binary labels.
        subclass_labels : array-like of shape (n_samples,), optional
            Given subclasses; K is then not searched.
        sample_weight : array-like of shape (n_samples,), optional
        groups : array-like of shape (n_samples,), optional
            Rows of one group, such as frames of one recording, are left out together, in closed
            form or in folds.
        """
        template = template_of(self)
        final = check_search(self)
        validation.refuse_dask(X, y)
        as_given = X
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        self.classes_, index, positive = validation.check_labels(y, final.pos_label)
        weights = validation.check_weights(sample_weight, positive)
        together = validation.check_groups(groups, len(positive))
        pairwise = _is_pairwise(template)
        data = Data(X, y, positive, weights, subclass_labels, index, pairwise, together)
        chosen = choose_setting(self, data)
        given = {
            "subclass_labels": subclass_labels,
            "sample_weight": sample_weight,
            "groups": groups,
        }
        best = with_setting(template, chosen)
        last = f"{best.steps[-1][0]}__" if isinstance(best, Pipeline) else ""
        given = {last + name: value for name, value in given.items() if value is not None}
        # Fitted on the rows as given, the model knows the names of their columns.
        self.best_estimator_ = best.fit(as_given, y, **given)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.pairwise = _is_pairwise(template_of(self))
        return tags

    @property
    def class_prior_(self) -> NDArray[np.float64]:
        """Prior probabilities of the chosen model, in the order of `classes_`."""
        prior: NDArray[np.float64] = self._proper(None)[0].class_prior_
        return prior

    def _fitted(self) -> Any:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Project with the chosen model."""
        return self._fitted().transform(X)

    def decision_function(self, X: Any) -> NDArray[np.floating]:
        """Log posterior ratio of the chosen model."""
        return self._fitted().decision_function(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels by the chosen model."""
        return self._fitted().predict(X)

    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """Posterior probabilities of the chosen model."""
        return self._fitted().predict_proba(X)

    def predict_log_proba(self, X: Any) -> NDArray[np.floating]:
        """Logarithms of the posterior probabilities of the chosen model."""
        return self._fitted().predict_log_proba(X)

    def log_likelihood_ratio(self, X: Any, trials: ArrayLike | None = None) -> Any:
        """Log-likelihood ratio of the chosen model; see :meth:`PCSDA.log_likelihood_ratio`."""
        model, X = self._proper(X)
        return model.log_likelihood_ratio(X, trials)

    def score_samples(self, X: Any) -> NDArray[np.floating]:
        """Minus the distance to the positive mean in the chosen subspace."""
        return self._fitted().score_samples(X)

    def rank(self, X: Any, by: str = "distance") -> NDArray[np.intp]:
        """Order rows by how well they fit the class of interest; see :meth:`PCSDA.rank`."""
        model, X = self._proper(X)
        return model.rank(X, by=by)

    def explain(self, X: Any) -> Explanation:
        """Say why rows have their log-likelihood ratio; see :meth:`PCSDA.explain`."""
        model, X = self._proper(X)
        explanation: Explanation = model.explain(X)
        return explanation

    def _proper(self, X: Any) -> tuple[Any, Any]:
        """The fitted estimator at the end of a pipeline, and rows as they reach it."""
        inside = unwrap(self._fitted())
        return inside.model, None if X is None else inside.rows(X)


def template_of(search: PCSDACV) -> Any:
    """The estimator that a search tunes."""
    return PCSDA() if search.estimator is None else search.estimator


def _is_pairwise(template: Any) -> bool:
    return isinstance(template, KernelPCSDA) and is_precomputed(template)


def choose_setting(search: PCSDACV, data: Data, make_rows: MakeRows = grid_rows) -> Cell:
    """Score every setting and choose one; `make_rows` may bring rows factorised already."""
    if data.subclass_labels is not None:
        given_labels(data.subclass_labels, data.positive)  # refuses what rows left out hide
    data = data.counted()
    template = template_of(search)
    grid = grid_of(search, data)
    folds, parts = _folds(search, template, data, grid)
    if folds is not None and data.subclass_labels is None:
        grid = _in_folds(grid, data, folds)
    search.cv_method_ = "leave-one-out" if folds is None else "k-fold"
    # What was factorised with all rows is of no use to folds.
    make_rows = make_rows if folds is None else grid_rows
    search.cv_scores_ = _left_out(search, data, grid, folds, make_rows)
    _select(search, grid, data, parts, folds is not None)
    return grid[search.best_index_]


def check_search(search: PCSDACV) -> Any:
    """Check the parameters; returns the estimator proper."""
    template = template_of(search)
    final = template[-1] if isinstance(template, Pipeline) else template
    tunable = isinstance(final, PCSDA | KernelPCSDA)
    if isinstance(template, Pipeline) and not isinstance(final, PCSDA):
        tunable = False
    if not tunable:
        raise ValueError(
            f"estimator={type(final).__name__} cannot be tuned; use PCSDA, KernelPCSDA or a "
            "Pipeline that ends in PCSDA"
        )
    validation.check_verifier(final)
    if final.covariance != "leave-one-out" or final.balance != "pooled":
        raise ValueError(
            "PCSDACV selects by left-out scores; set covariance='leave-one-out' and "
            "balance='pooled', or use scikit-learn's GridSearchCV"
        )
    if isinstance(search.cv, str):
        validation.check_option("cv", search.cv, ("auto", "leave-one-out"))
    elif not hasattr(search.cv, "split") and not (
        isinstance(search.cv, Integral) and int(search.cv) >= 2
    ):
        raise ValueError(
            f"cv={search.cv!r} must be 'auto', 'leave-one-out', a whole number of at least 2 or "
            "a splitter"
        )
    if not callable(search.scoring):
        validation.check_option("scoring", search.scoring, SCORINGS)
    validation.check_number("slack", search.slack)
    validation.check_number("stay", search.stay)
    return final


def grid_of(search: PCSDACV, data: Data) -> list[Cell]:
    """All settings that the data allow, those of one factorisation next to each other."""
    template = template_of(search)
    counts = _values("n_subclasses", search.n_subclasses, N_SUBCLASSES, whole=True)
    if data.subclass_labels is not None:
        counts = (len(np.unique(given_labels(data.subclass_labels, data.positive))),)
    else:
        way = (template[-1] if isinstance(template, Pipeline) else template).subclasses
        if not (isinstance(way, str) and way in ("kmeans", "input")):
            raise ValueError(
                f"subclasses={way!r} takes no number of subclasses to search; use 'kmeans', or "
                "give subclass_labels"
            )
        distinct = count_distinct(data.X, max(counts), np.flatnonzero(~data.positive))
        wanted, counts = counts, [count for count in counts if count <= distinct]
        if not counts:
            raise ValueError(
                f"n_subclasses={wanted} must have a value of at most "
                f"{distinct} (= number of different negative samples)"
            )
    dims = _values("n_components", search.n_components, N_COMPONENTS, whole=True)
    ridges = _values("regularization", search.regularization, REGULARIZATION)
    most = max(counts)
    if isinstance(template, PCSDA):
        most = min(most, data.X.shape[1])
    cells = [
        Cell(count, d, ridge, gamma)
        for gamma, ridge, count, d in product(_gammas(search, template, data), ridges, counts, dims)
        if d <= min(count, most)
    ]
    if not cells:
        raise ValueError(
            f"no n_components in {list(dims)} is at most {most} (= min(n_subclasses, "
            "n_features)); lower n_components or raise n_subclasses"
        )
    return cells


def bandwidths(search: PCSDACV, template: KernelPCSDA) -> tuple[Any, ...]:
    """Bandwidths of a kernel estimator as they are asked for, before the data are seen."""
    if template.kernel not in SCALED_KERNELS:
        return (None,)
    if search.gamma is None:
        return GAMMA
    return (search.gamma,) if isinstance(search.gamma, str | Real) else tuple(search.gamma)


def _gammas(search: PCSDACV, template: Any, data: Data) -> tuple[Any, ...]:
    is_kernel = isinstance(template, KernelPCSDA)
    if search.gamma is not None:
        if not is_kernel and not isinstance(template, Pipeline):
            raise ValueError("gamma is for kernels; PCSDA has none, use KernelPCSDA")
        given = [search.gamma] if isinstance(search.gamma, str | Real) else list(search.gamma)
        if not given:
            raise ValueError("gamma=[] must be a list of bandwidths to try")
        for gamma in given:
            validation.check_kernel("rbf", gamma)
        return tuple(given)
    if not is_kernel or template.kernel not in SCALED_KERNELS:
        return (None,)
    scale = bandwidth("scale", data.X, None)
    return tuple(g if isinstance(g, str) else g * scale for g in GAMMA)


def _folds(
    search: PCSDACV, template: Any, data: Data, grid: list[Cell]
) -> tuple[Any, NDArray[np.intp]]:
    """Train and test rows of folds, None for leave-one-out; and the part of each row."""
    positive, cv, groups = data.positive, search.cv, data.together
    final = template[-1] if isinstance(template, Pipeline) else template
    seed = check_random_state(final.random_state).randint(2**31 - 1)
    if isinstance(cv, str):
        largest = max(cell.n_subclasses for cell in grid)
        honest = (~positive).sum() >= HONEST_SUBCLASS * largest
        honest = honest and positive.sum() >= FEW_POSITIVES
        if isinstance(template, Pipeline) and any(
            isinstance(step, NystroemMap) for _, step in template.steps
        ):
            honest = honest and positive.sum() >= HONEST_POSITIVES
        cv = "leave-one-out" if cv == "leave-one-out" or honest else FOLDS
    few = int(min(positive.sum(), (~positive).sum()))
    if few < 2:
        raise ValueError(
            f"the rarer class has {few} sample; selection needs at least 2 of each, use the "
            "estimator itself"
        )
    parts = np.zeros(len(positive), dtype=np.intp)
    splitter = cv
    if isinstance(cv, str) or not hasattr(cv, "split"):
        kind = StratifiedKFold if groups is None else StratifiedGroupKFold
        count = min(PARTS if isinstance(cv, str) else int(cv), few)
        splitter = kind(count, shuffle=True, random_state=seed)
    splits = list(splitter.split(data.X, positive, groups))
    seen = np.zeros(len(positive), dtype=np.intp)
    for part, (train, test) in enumerate(splits):
        parts[test] = part
        seen[test] += 1
        if positive[train].all() or not positive[train].any():
            raise ValueError(
                f"fold {part} leaves only one class to train on; use fewer folds, or groups of "
                "which each class has several"
            )
        if search.scoring != "neg_log_loss" and len(np.unique(positive[test])) < 2:
            raise ValueError(
                f"fold {part} leaves out samples of one class only, and scoring="
                f"{search.scoring!r} compares both in every fold; use scoring='neg_log_loss', "
                "fewer folds, or groups of which each class has as many as there are folds"
            )
    if not np.all(seen == 1):
        raise ValueError(
            f"cv={cv!r} leaves out {np.sum(seen == 0)} rows never and {np.sum(seen > 1)} rows "
            "more than once; each row must be left out once, as StratifiedKFold does"
        )
    return (None if isinstance(cv, str) else splits), parts


def _left_out(
    search: PCSDACV, data: Data, grid: list[Cell], folds: Any, make_rows: MakeRows
) -> Array:
    """Decision values of all rows at all settings by models that did not see them."""
    scores = np.full((len(grid), len(data.X)), np.nan)
    everything = np.arange(len(data.X))
    tasks = [(everything, None)] if folds is None else folds
    with Parallel(n_jobs=search.n_jobs, prefer="threads") as parallel:
        total = len(tasks) * len({(c.gamma, c.regularization) for c in grid})
        work = left_out_scores(template_of(search), data, grid, tasks, parallel, make_rows)
        for chosen, test, values in progress(work, "settings", enabled=search.verbose, total=total):
            scores[np.ix_(np.array(chosen), everything if test is None else test)] = values
    return scores


def _select(search: PCSDACV, grid: list[Cell], data: Data, parts: Any, in_folds: bool) -> None:
    """Rank the settings and take one of those that count as best."""
    usable = np.asarray(np.isfinite(search.cv_scores_).all(axis=1))
    if not usable.any():
        raise ValueError("no setting could be fitted; use other grids or a larger ridge")
    units = _unit_scores(search.scoring, search.cv_scores_, data, parts)
    if in_folds or search.scoring == "neg_log_loss":
        mean = _average(units, data.weights)
    else:
        mean = np.array([_metric(search.scoring, data.positive, s) for s in search.cv_scores_])
    mean = np.where(usable, mean, -np.inf)
    best = int(mean.argmax())
    own = _own_setting(template_of(search), grid, data)
    if own is not None and usable[own] and search.stay > 0:
        gain, error = _gains(units, own, data.weights)
        sure = np.where(usable, gain - search.stay * error, -np.inf)
        chosen = int(sure.argmax()) if sure.max() > 0 else own
    elif search.slack > 0:
        gain, error = _gains(units, best, data.weights)
        close = usable & (-gain <= search.slack * error)
        close[best] = True
        order = sorted(np.flatnonzero(close), key=lambda i: (-grid[i].regularization, -mean[i]))
        chosen = int(order[0])
    else:
        chosen = best
    search.best_index_, search.best_score_ = chosen, float(mean[chosen])
    names = [f for f in Cell.__dataclass_fields__ if f != "gamma" or grid[0].gamma is not None]
    params = [{name: getattr(cell, name) for name in names} for cell in grid]
    search.best_params_ = params[chosen]
    rank = rankdata(-mean, method="min")
    search.cv_results_ = {
        "params": params,
        "mean_test_score": mean,
        "std_test_score": units.std(axis=1),
        "rank_test_score": rank.astype(np.int32),
        **{f"param_{name}": _column([p[name] for p in params]) for name in names},
    }
    if in_folds:
        for part in range(parts.max() + 1):
            rows = parts == part
            values = [
                _metric(search.scoring, data.positive[rows], s[rows]) for s in search.cv_scores_
            ]
            search.cv_results_[f"split{part}_test_score"] = np.array(values)


def _in_folds(grid: list[Cell], data: Data, folds: Any) -> list[Cell]:
    """Settings of no more subclasses than there are different negatives in every fold."""
    wanted = {cell.n_subclasses for cell in grid}
    most = min(
        count_distinct(data.X, max(wanted), train[~data.positive[train]]) for train, _ in folds
    )
    kept = [cell for cell in grid if cell.n_subclasses <= most]
    if not kept:
        raise ValueError(
            f"n_subclasses={sorted(wanted)} must have a value of at most {most} (= number of "
            "different negative samples in a fold); lower it, or use fewer folds"
        )
    return kept


def _own_setting(template: Any, grid: list[Cell], data: Data) -> int | None:
    """Number of the setting that the estimator has before any search, if it is in the grid.

    Of K that is chosen by the number of negatives the grid may have the next smaller one.
    """
    steps = template if isinstance(template, Pipeline) else [template]
    final, count = steps[-1], steps[-1].n_subclasses
    gammas = [step.gamma for step in steps if hasattr(step, "gamma")]
    if data.subclass_labels is not None:
        count = grid[0].n_subclasses
    elif count == "auto":
        most = settle_count(data.X[~data.positive], count)
        count = max((c.n_subclasses for c in grid if c.n_subclasses <= most), default=most)
    full = min(count, data.X.shape[1]) if isinstance(template, PCSDA) else count
    d = full if final.n_components is None else final.n_components
    for number, cell in enumerate(grid):
        same = cell.gamma is None or cell.gamma in gammas
        setting = (cell.n_subclasses, cell.n_components, cell.regularization)
        if same and setting == (count, d, final.regularization):
            return number
    return None


def _column(values: list[Any]) -> Any:
    """Values of a parameter as a masked array, as in scikit-learn's searches."""
    mixed = len({isinstance(value, str) for value in values}) > 1
    return np.ma.array(values, dtype=object if mixed else None)


def _metric(scoring: Any, positive: NDArray[np.bool_], scores: Array) -> float:
    """Score of decision values; larger is better."""
    if not np.isfinite(scores).all():
        return float("nan")
    if callable(scoring):
        return float(scoring(positive.astype(int), scores))
    if scoring == "neg_log_loss":
        return float(np.mean(_row_scores(positive, scores)))
    if scoring == "average_precision":
        return float(average_precision_score(positive, scores))
    if scoring == "f1":
        return float(f1_score(positive, scores >= 0, zero_division=0.0))
    return -float(equal_error_rate(positive, scores)[0])


def _row_scores(positive: NDArray[np.bool_], scores: Array) -> Array:
    """Minus the log-loss of each row."""
    with np.errstate(invalid="ignore"):  # settings that could not be fitted are NaN
        return -np.logaddexp(0, np.where(positive, -scores, scores))


def _values(name: str, given: Any, default: Any, whole: bool = False) -> Any:
    """Values of one side of the grid, checked."""
    if given is None:
        return default
    values = [given] if isinstance(given, Real) or not np.iterable(given) else list(given)
    if isinstance(given, str) or not values:
        raise ValueError(f"{name}={given!r} must be a list of values to try")
    for value in values:
        validation.check_number(name, value)
        if whole:
            validation.check_count(name, value, None)
    return values


def _unit_scores(scoring: Any, scores: Array, data: Data, parts: NDArray[np.intp]) -> Array:
    """Scores of rows (log-loss) or of parts of the rows, whose differences are compared."""
    if scoring == "neg_log_loss":
        return _row_scores(data.positive, scores)
    columns = [
        [_metric(scoring, data.positive[parts == part], row[parts == part]) for row in scores]
        for part in range(parts.max() + 1)
    ]
    return np.array(columns).T


def _gains(units: Array, other: int, weights: Array | None) -> tuple[Array, Array]:
    """Mean gain of every setting over another one, and its standard error."""
    gain = units - units[other]
    return _average(gain, weights), gain.std(axis=1, ddof=1) / np.sqrt(gain.shape[1])


def _average(units: Array, weights: Array | None) -> Array:
    """Mean over rows, weighted, or over parts."""
    if weights is not None and units.shape[1] == len(weights):
        return units @ weights / weights.sum()
    return units.mean(axis=1)

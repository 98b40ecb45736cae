"""The choice of a setting from a grid by left-out scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, f1_score
from sklearn.pipeline import Pipeline

from .. import validation
from ..core.linalg import Array, Floats, Ints, Mask, one_thread
from ..metrics import equal_error_rate
from ..partition import given_labels
from ..progress import progress
from .candidates import grid_of, is_standard, own_setting, template_of
from .grid import Cell, Data, MakeRows, final_of, grid_rows, left_out_scores
from .kernel import KernelPCSDA
from .linear import PCSDA
from .parameters import check_verifier, refuse_contamination
from .splits import check_cv, settings_for_folds, settled_cv, splits_of
from .steps import draw_seed, is_curved

if TYPE_CHECKING:
    from .search import PCSDACV

# A search without given values uses at most this many positives and negatives, and fewer with a
# kernel, whose matrix takes the cube of their number. The chosen setting is fitted on all rows.
ROWS_IN_FOLDS = 150, 450
ROWS_LEFT_OUT = 1000, 2000
KERNEL_ROWS_LEFT_OUT = 500, 1000
# Up to this many rows, a search uses one BLAS thread.
MOST_ON_ONE_THREAD = 1500
# Up to this many rows or columns, the final fit is less work than the search.
LIGHT_LAST = 2500
SCORINGS = ("neg_log_loss", "average_precision", "f1", "eer")
# Training rows and test rows; None means the training rows themselves, each left out.
Tasks = list[tuple[Ints, Ints | None]]


@dataclass(frozen=True)
class Choice:
    """Outcome of a search.

    Attributes
    ----------
    cell : Cell
        The chosen setting.
    index : int
        Position of the chosen setting in `results` and `scores`.
    results : dict of arrays
        Like `cv_results_` in scikit-learn's searches.
    scores : array of shape (n_settings, n_samples)
        Left-out decision values; NaN for rows that the search did not use.
    in_folds : bool
        Whether the scores come from folds rather than leave-one-out.
    """

    cell: Cell
    index: int
    results: dict[str, Any]
    scores: Array
    in_folds: bool


@dataclass(frozen=True)
class Scored:
    """Settings with their left-out scores.

    Attributes
    ----------
    cells : list of Cell
    scores : array of shape (n_settings, n_rows)
        Left-out decision values.
    units : array of shape (n_settings, n_units)
        Scores of single rows, or of parts of the rows. Settings are compared by the differences of
        their scores on the same rows or parts.
    mean : array of shape (n_settings,)
        Score of each setting; minus infinity if it could not be fitted.
    """

    cells: list[Cell]
    scores: Array
    units: Array
    mean: Array

    @property
    def usable(self) -> Mask:
        """Mask of the settings that could be fitted."""
        return self.mean > -np.inf

    def joined(self, other: Scored) -> Scored:
        """Return these settings followed by the settings in `other`, scored on the same rows."""
        names = ("scores", "units", "mean")
        arrays = (np.concatenate([getattr(one, name) for one in (self, other)]) for name in names)
        return Scored(self.cells + other.cells, *arrays)


def choose_setting(
    search: PCSDACV, data: Data, make_rows: MakeRows = grid_rows, standard: bool | None = None
) -> Choice:
    """Score the settings of a search and choose one.

    A `standard` search, for which the user gave no values, tries ridges and bandwidths first, then
    K and d with the best ridge and bandwidth. If there are many rows, it uses a sample. `make_rows`
    prepares the rows of a fold, and may return rows that are already factorised.
    """
    if data.subclass_labels is not None:
        given_labels(data.subclass_labels, data.positive)  # also checks the rows of weight zero
    weights, data = data.weights, data.counted()
    standard = is_standard(search) if standard is None else standard
    grid = grid_of(search, data)
    own = own_setting(template_of(search), grid, data)
    cv = settled_cv(search, data, grid, weights)
    in_folds = not isinstance(cv, str)
    n_rows, rows = len(data.X), None
    if in_folds:
        make_rows = grid_rows  # folds cannot use a factorisation of all rows
    if standard and make_rows is grid_rows:
        rows = _some_rows(search, data, _most_rows(search, in_folds))
        data = data.take(rows)
    splits, parts = splits_of(cv, search, data)
    if in_folds and data.subclass_labels is None:
        grid = settings_for_folds(grid, data, splits)
    tasks: Tasks = [*splits] if in_folds else [(np.arange(len(parts)), None)]

    def score(cells: list[Cell]) -> Scored:
        scores = _left_out(search, data, cells, tasks, make_rows)
        return _scored(search, data, cells, scores, parts, in_folds)

    found = _in_two_steps(score, grid, own) if standard and own in grid else score(grid)
    if not found.usable.any():
        raise ValueError("no setting could be fitted; use other grids or a larger ridge")
    index = _best(search, found, own, data.weights)
    results = _table(found)
    for part in range(parts.max() + 1 if in_folds else 0):
        own_rows = parts == part
        positive = data.positive[own_rows]
        values = [_metric(search.scoring, positive, row[own_rows]) for row in found.scores]
        results[f"split{part}_test_score"] = np.array(values)
    scores = found.scores
    if rows is not None and len(rows) < n_rows:
        scores = np.full((len(found.cells), n_rows), np.nan)
        scores[:, rows] = found.scores
    return Choice(found.cells[index], index, results, scores, in_folds)


def is_light_last(X: Floats) -> bool:
    """Return whether the final fit should use one thread, as the search does.

    BLAS threads spin while they wait, so on a busy machine a light fit with several threads could
    take longer than the whole search.
    """
    return bool(len(X) * max(X.shape) <= LIGHT_LAST**2)


def _in_two_steps(
    score: Callable[[list[Cell]], Scored], grid: list[Cell], own: Cell | None
) -> Scored:
    """Score ridges and bandwidths at the estimator's K and d, then K and d at the best of them."""
    assert own is not None
    first = [cell for cell in grid if cell.size == own.size]
    rest = [cell for cell in grid if cell.size != own.size]
    found = score(first)
    if found.usable.any():
        best = found.cells[int(found.mean.argmax())]
        rest = [cell for cell in rest if cell.strength == best.strength]
    return found.joined(score(rest)) if rest else found


def _most_rows(search: PCSDACV, in_folds: bool) -> tuple[int, int]:
    """Return the largest number of positives and of negatives that a standard search uses."""
    if in_folds:
        return ROWS_IN_FOLDS
    return KERNEL_ROWS_LEFT_OUT if is_curved(final_of(template_of(search))) else ROWS_LEFT_OUT


def _some_rows(search: PCSDACV, data: Data, most: tuple[int, int]) -> Ints:
    """Return the numbers of the rows that a search uses: a sample from each class, or all rows.

    A search with given `cv` or groups uses all rows. `most` is the largest number of positives and
    of negatives in a sample.
    """
    if search.cv != "auto" or data.together is not None:
        return np.arange(len(data.X))
    rng = np.random.default_rng(draw_seed(final_of(template_of(search)).random_state))
    classes = np.flatnonzero(data.positive), np.flatnonzero(~data.positive)
    chosen = [
        rng.choice(members, count, replace=False) if len(members) > count else members
        for members, count in zip(classes, most, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def _scored(
    search: PCSDACV, data: Data, cells: list[Cell], scores: Array, parts: Ints, in_folds: bool
) -> Scored:
    """Compute the score of each setting from its left-out decision values."""
    units = _unit_scores(search.scoring, scores, data, parts)
    if in_folds or search.scoring == "neg_log_loss":
        mean = _average(units, data.weights)
    else:
        mean = np.array([_metric(search.scoring, data.positive, row) for row in scores])
    usable = np.isfinite(scores).all(axis=1)
    return Scored(cells, scores, units, np.where(usable, mean, -np.inf))


def check_search(search: PCSDACV) -> Any:
    """Check the parameters of a search; return the estimator, or the last step of its pipeline."""
    template = template_of(search)
    final = final_of(template)
    kinds = PCSDA if isinstance(template, Pipeline) else PCSDA | KernelPCSDA
    if isinstance(final, KernelPCSDA) and not isinstance(final, kinds):
        raise ValueError(
            f"estimator={type(template).__name__} ends in KernelPCSDA, which PCSDACV tunes only "
            "without steps before it; transform the rows first, put a map such as NystroemMap() "
            "and PCSDA() in its place, or use GridSearchCV"
        )
    if not isinstance(final, kinds):
        raise ValueError(
            f"estimator={type(final).__name__} cannot be tuned; use PCSDA, KernelPCSDA or a "
            "Pipeline that ends in PCSDA"
        )
    check_verifier(final)
    refuse_contamination(
        final,
        "PCSDACV selects settings by the scores of rows with correct labels",
        "use GridSearchCV",
    )
    if final.covariance != "leave-one-out" or final.balance != "pooled":
        raise ValueError(
            "PCSDACV selects by left-out scores; set covariance='leave-one-out' and "
            "balance='pooled', or use scikit-learn's GridSearchCV"
        )
    check_cv(search.cv)
    if not callable(search.scoring):
        validation.check_option("scoring", search.scoring, SCORINGS)
    validation.check_number("slack", search.slack)
    validation.check_number("stay", search.stay)
    return final


def _left_out(
    search: PCSDACV, data: Data, grid: list[Cell], tasks: Tasks, make_rows: MakeRows
) -> Array:
    """Return held-out decision values of all rows for all settings."""
    scores = np.full((len(grid), len(data.X)), np.nan)
    few = len(data.X) <= MOST_ON_ONE_THREAD
    with one_thread(few), Parallel(n_jobs=search.n_jobs, prefer="threads") as parallel:
        total = len(tasks) * len({cell.strength for cell in grid})
        work = left_out_scores(template_of(search), data, grid, tasks, parallel, make_rows)
        for chosen, test, values in progress(work, "settings", enabled=search.verbose, total=total):
            rows = np.arange(len(data.X)) if test is None else test
            scores[np.ix_(np.array(chosen), rows)] = values
    return scores


def _best(search: PCSDACV, found: Scored, own: Cell | None, weights: Array | None) -> int:
    """Return the index of the chosen setting. Settings that could not be fitted are not chosen."""
    best, usable = int(found.mean.argmax()), found.usable
    at = found.cells.index(own) if own in found.cells else None
    if at is not None and usable[at] and search.stay > 0:
        gain, error = _gains(found.units, at, weights)
        sure = np.where(usable, gain - search.stay * error, -np.inf)
        return int(sure.argmax()) if sure.max() > 0 else at
    if search.slack > 0:
        gain, error = _gains(found.units, best, weights)
        close = usable & (-gain <= search.slack * error)
        close[best] = True
        order = sorted(
            np.flatnonzero(close), key=lambda i: (-found.cells[i].regularization, -found.mean[i])
        )
        return int(order[0])
    return best


def _table(found: Scored) -> dict[str, Any]:
    """Tabulate the settings and their scores as in scikit-learn's searches."""
    grid, mean = found.cells, found.mean
    names = [f.name for f in fields(Cell) if f.name != "gamma" or grid[0].gamma is not None]
    params = [{name: getattr(cell, name) for name in names} for cell in grid]
    return {
        "params": params,
        "mean_test_score": mean,
        "std_test_score": found.units.std(axis=1),
        "rank_test_score": rankdata(-mean, method="min").astype(np.int32),
        **{f"param_{name}": _column([p[name] for p in params]) for name in names},
    }


def _column(values: list[Any]) -> Any:
    """Return a parameter's values as a masked array, as in scikit-learn's searches."""
    mixed = len({isinstance(value, str) for value in values}) > 1
    return np.ma.array(values, dtype=object if mixed else None)


def _unit_scores(
    scoring: str | Callable[..., float], scores: Array, data: Data, parts: Ints
) -> Array:
    """Return the score of each row (log-loss) or of each part of the rows, for all settings."""
    if scoring == "neg_log_loss":
        return _row_scores(data.positive, scores)
    columns = [
        [_metric(scoring, data.positive[parts == part], row[parts == part]) for row in scores]
        for part in range(parts.max() + 1)
    ]
    return np.array(columns).T


def _metric(scoring: str | Callable[..., float], positive: Mask, scores: Array) -> float:
    """Return the score of decision values, where larger is better; NaN if a value is missing."""
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


def _row_scores(positive: Mask, scores: Array) -> Array:
    """Return minus the log-loss of each row."""
    with np.errstate(invalid="ignore"):  # settings that could not be fitted are NaN
        return -np.logaddexp(0, np.where(positive, -scores, scores))


def _gains(units: Array, other: int, weights: Array | None) -> tuple[Array, Array]:
    """Return each setting's mean gain over setting `other`, and the standard error of the gain."""
    gain = units - units[other]
    return _average(gain, weights), gain.std(axis=1, ddof=1) / np.sqrt(gain.shape[1])


def _average(units: Array, weights: Array | None) -> Array:
    """Return the mean score of each setting over rows, with weights, or over parts of the rows."""
    if weights is not None and units.shape[1] == len(weights):
        mean: Array = units @ weights / weights.sum()
        return mean
    return np.asarray(units.mean(axis=1))

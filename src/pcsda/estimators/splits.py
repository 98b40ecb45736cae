"""The folds in which a search leaves rows out, unless it leaves them out one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from sklearn.pipeline import Pipeline

from .. import validation
from ..core.linalg import Array, Ints, Mask
from ..folds import stratified
from ..maps import NystroemMap
from ..partition import count_distinct
from .candidates import template_of
from .grid import Cell, Data, final_of
from .steps import draw_seed

if TYPE_CHECKING:
    from .search import PCSDACV

FOLDS = 5
# Leave-one-out keeps the clustering fixed, which needs at least this many negatives per subclass.
HONEST_SUBCLASS = 50
# With fewer positives than this, scores of rows left out one by one favour complex settings.
FEW_POSITIVES = 30
# With landmarks and fewer positives than this, scores from a fixed map are biased.
HONEST_POSITIVES = 200
# Metrics that have no value for a single row are computed on this many parts of the rows.
PARTS = 5
Splits = list[tuple[Ints, Ints]]


@dataclass(frozen=True)
class GivenSplits:
    """A splitter that yields given splits, without the rows of weight zero."""

    pairs: Sequence[tuple[Any, Any]]
    weights: Array

    def __repr__(self) -> str:
        return f"[{len(self.pairs)} splits]"

    def split(self, *_: Any) -> Iterator[tuple[Ints, Ints]]:
        """Yield training and test rows, numbered among the rows with positive weight."""
        counted = self.weights > 0
        places = np.where(counted, np.cumsum(counted) - 1, -1)
        for part, pair in enumerate(self.pairs):
            try:
                train, test = (places[np.asarray(rows)] for rows in pair)
            except IndexError as error:
                raise ValueError(
                    f"split {part} of cv does not fit {len(places)} rows: {error}; give row numbers"
                ) from error
            yield train[train >= 0], test[test >= 0]


def check_cv(cv: Any) -> None:
    """Reject a `cv` that does not define how rows are left out."""
    if isinstance(cv, str):
        validation.check_option("cv", cv, ("auto", "leave-one-out"))
    elif not (hasattr(cv, "split") or _are_splits(cv)) and not (
        isinstance(cv, Integral) and int(cv) >= 2
    ):
        raise ValueError(
            f"cv={cv!r} must be 'auto', 'leave-one-out', a whole number of at least 2, a splitter "
            "or a list of splits, each a pair of training and test rows"
        )


def _are_splits(cv: object) -> TypeGuard[Sequence[tuple[Any, Any]]]:
    return (
        isinstance(cv, list | tuple)
        and len(cv) > 0
        and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in cv)
    )


def settled_cv(search: PCSDACV, data: Data, grid: list[Cell], weights: Array | None) -> Any:
    """Turn `cv` into "leave-one-out", a number of folds or a splitter.

    `weights` are the weights of all rows. Splits given by the user number all rows, while `data`
    has only the rows with positive weight.
    """
    if _are_splits(search.cv):
        return GivenSplits(search.cv, np.ones(len(data.X)) if weights is None else weights)
    if not isinstance(search.cv, str) or search.cv == "leave-one-out":
        return search.cv
    n_positive, n_negative = data.positive.sum(), (~data.positive).sum()
    template = template_of(search)
    steps = [step for _, step in template.steps] if isinstance(template, Pipeline) else []
    on_landmarks = any(isinstance(step, NystroemMap) for step in steps)
    least = HONEST_POSITIVES if on_landmarks else FEW_POSITIVES
    largest = max(cell.n_subclasses for cell in grid)
    honest = n_negative >= HONEST_SUBCLASS * largest and n_positive >= least
    return "leave-one-out" if honest else FOLDS


def splits_of(cv: Any, search: PCSDACV, data: Data) -> tuple[Splits, Ints]:
    """Return the folds, and the number of the fold that each row is in.

    For leave-one-out, the folds only divide the rows into parts that are scored separately.
    """
    positive, splitter = data.positive, cv
    seed = draw_seed(final_of(template_of(search)).random_state)
    few = int(min(positive.sum(), (~positive).sum()))
    if few < 2:
        raise ValueError(
            f"the rarer class has {few} sample; selection needs at least 2 of each, so use the "
            "estimator itself"
        )
    if isinstance(cv, str) or not hasattr(cv, "split"):
        count = min(PARTS if isinstance(cv, str) else int(cv), few)
        _check_groups(count, data.together)
        splitter = stratified(count, data.together, seed)
    splits = list(splitter.split(data.X, positive, data.together))
    parts, seen = np.zeros((2, len(positive)), dtype=np.intp)
    for part, (train, test) in enumerate(splits):
        parts[test] = part
        seen[test] += 1
        _check_split(part, positive[train], positive[test], search.scoring)
    if not np.all(seen == 1):
        raise ValueError(
            f"cv={cv!r} never leaves out {np.sum(seen == 0)} rows, and leaves out "
            f"{np.sum(seen > 1)} rows more than once; each row must be left out exactly once, as "
            "StratifiedKFold does"
        )
    return splits, parts


def _check_groups(count: int, together: Ints | None) -> None:
    """Reject fewer groups than folds, because a fold leaves out whole groups."""
    there = count if together is None else len(np.unique(together))
    if there < count:
        instead = f", or cv={there}" if there > 1 else ""
        raise ValueError(
            f"groups has {there} different values, but {count} folds need at least {count}; give "
            f"more groups{instead}"
        )


def _check_split(part: int, train: Mask, test: Mask, scoring: str | Callable[..., float]) -> None:
    """Reject a fold whose training rows are all of one class, or whose test rows have no score.

    Only the log-loss can score test rows that are all of one class.
    """
    if train.all() or not train.any():
        raise ValueError(
            f"fold {part} leaves only one class to train on; use fewer folds, or several groups "
            "for each class"
        )
    if scoring != "neg_log_loss" and (test.all() or not test.any()):
        raise ValueError(
            f"fold {part} leaves out samples of one class only, and scoring="
            f"{scoring!r} compares both in every fold; use scoring='neg_log_loss', "
            "fewer folds, or at least as many groups of each class as there are folds"
        )


def settings_for_folds(grid: list[Cell], data: Data, splits: Splits) -> list[Cell]:
    """Return the settings whose K does not exceed the number of distinct negatives in any fold."""
    wanted = {cell.n_subclasses for cell in grid}
    most = min(
        count_distinct(data.X, max(wanted), train[~data.positive[train]]) for train, _ in splits
    )
    kept = [cell for cell in grid if cell.n_subclasses <= most]
    if not kept:
        raise ValueError(
            f"n_subclasses={sorted(wanted)} must have a value of at most {most} (= number of "
            "different negative samples in a fold); lower it, or use fewer folds"
        )
    return kept

"""Fits with positives hidden among the negatives: `contamination` and `unchecked`."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ..core.contamination import Contaminated, Problem, fit_contaminated
from ..core.fit import Fitted
from ..core.gram import GramFactor
from ..core.linalg import Array, Ints, Mask
from ..core.loo import Leave
from ..core.shares import LARGEST_SHARE
from ..core.subspace import Factor
from ..core.warning import warn
from ..core.white import WhiteFactor
from ..partition import count_distinct
from ..targets import check_unchecked
from .parameters import is_contaminated
from .rows import Hidden, Kept, TrainingRows
from .steps import axes_of, forget, leave_sample, rule_of, say, settle_ridge
from .verifier import Verifier

Kind = TypeVar("Kind", bound=Verifier)

# The interval of the share reaches its bound if it ends this close to it.
CLOSE = 1e-3


def hidden_rows(
    model: Verifier, unchecked: ArrayLike | None, positive: Mask, subclass_labels: ArrayLike | None
) -> Hidden | None:
    """Return the rows that may be hidden positives, or None if the labels are trusted."""
    mask = check_unchecked(unchecked, positive)
    if not is_contaminated(model):
        return None
    if mask is not None and not mask.any():
        raise ValueError(
            "unchecked marks no row, so no positive can be hidden; leave it out to mark all "
            "negatives, or set contamination=0"
        )
    return Hidden(~positive if mask is None else mask, subclass_labels is None)


def fit_hidden(
    model: Verifier,
    factorise: Callable[[Array | None], Factor],
    data: TrainingRows,
    regroup: Callable[[Mask], Ints],
    trust: Callable[[Leave], Fitted],
) -> Contaminated:
    """Fit in rounds, allowing for positives among the unchecked negatives.

    `factorise` factorises the rows with the given weights. `regroup` takes a mask of likely
    positives and finds the subclasses again without them. `trust` fits a model that takes all
    labels as correct, and leaves out the given rows.
    """
    assert data.hidden is not None
    share, unchecked = model.__dict__["contamination"], data.hidden.unchecked

    def factor(weights: Array | None) -> WhiteFactor | GramFactor:
        found = factorise(weights)
        if not isinstance(found, (WhiteFactor, GramFactor)):
            raise ValueError(
                f"contamination={share!r} needs a ridge if X has more columns than rows; set "
                "regularization='auto' or contamination=0"
            )
        if isinstance(found, GramFactor) and weights is not data.weights:
            return replace(found, spend=True)  # other weights serve for a single step
        return found

    say(model, f"looking for positives among {unchecked.sum()} unchecked negatives")
    problem = Problem(
        factor,
        rule_of(model),
        axes_of(model),
        data.positive,
        unchecked,
        data.weights,
        None if isinstance(share, str) else float(share),
        leave=lambda division: leave_sample(model, replace(data, groups=division)),
        score=lambda fitted, rest: fitted.score(data.values(rest)),
        regroup=regroup,
        trust=trust,
    )
    found = fit_contaminated(problem)
    if problem.share is None:
        _warn_of_unbounded(found, int(unchecked.sum()))
    return found


def trusting(model: Kind, data: TrainingRows) -> tuple[Kind, TrainingRows]:
    """Return the settings and the rows for the same fit with all labels taken as correct."""
    plain = copy(model)
    plain.__dict__.update(contamination=0.0, verbose=False)
    weight = np.ones(len(data.groups)) if data.weights is None else data.weights
    settle_ridge(plain, float(weight[data.positive].sum()))
    return plain, replace(data, hidden=None)


def _warn_of_unbounded(found: Contaminated, n_unchecked: int) -> None:
    """Warn if the data set no upper limit to the share of hidden positives below its bound."""
    low, high = found.shares.interval
    if high >= LARGEST_SHARE - CLOSE:
        warn(
            f"contamination='auto' estimates that {found.shares.share:.2f} of the {n_unchecked} "
            f"unchecked negatives are positives, with a 90% interval of {low:.2f} to {high:.2f}, "
            "which reaches the bound of 0.5: the classes overlap too much, or the rows are too "
            "few, to tell hidden positives from ordinary negatives, so ratios and counts may be "
            "far off. Check some negatives and mark only the others in unchecked=, give the share "
            "if you know it, such as contamination=0.1, or set contamination=0 if the labels are "
            "right"
        )


def regrouping(
    model: Verifier,
    data: TrainingRows,
    divide: Callable[[Any, Ints], Ints],
    nearest: Callable[[Ints, Ints], Ints],
) -> Callable[[Mask], Ints]:
    """Return a function that takes a mask of rows to set apart and finds the subclasses again.

    `divide` takes an estimator and the numbers of the kept rows, and returns their groups.
    `nearest` takes the numbers of the rows set apart and the groups, which are -1 for these rows,
    and returns the nearest subclass of each, counted from 0. The number of subclasses stays the
    same. If there are too few distinct rows left for so many subclasses, the groups stay unchanged.
    """
    groups, count = data.groups, int(data.groups.max())
    held = copy(model)
    held.__dict__.update(n_subclasses=count, verbose=False)

    def regroup(apart: Mask) -> Ints:
        kept = np.flatnonzero(~apart)
        among = np.flatnonzero(~apart & (groups > 0))
        if not apart.any() or count_distinct(data.X, count, among) < count:
            return groups
        found = np.full(len(groups), -1, dtype=np.intp)
        found[kept] = divide(held, kept)
        others = np.flatnonzero(apart)
        found[others] = nearest(others, found) + 1
        return found

    assert data.hidden is not None
    return regroup if data.hidden.clusters else lambda _: groups


def keep_shares(model: Verifier, found: Contaminated | None, kept: Kept, n_rows: int) -> None:
    """Store the share of hidden positives and the responsibilities of all rows.

    If `found` is None, the values of an earlier fit are only deleted.
    """
    forget(model, "contamination_", "contamination_interval_", "responsibilities_")
    if found is None:
        return
    model.contamination_ = found.shares.share
    model.contamination_interval_ = found.shares.interval
    model.responsibilities_ = np.zeros(n_rows)
    model.responsibilities_[kept] = found.responsibilities

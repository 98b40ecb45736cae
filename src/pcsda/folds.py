"""Cross-validated training scores, for models without a closed form for left-out rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from .core.linalg import Array, Ints, Mask
from .core.warning import warn

FOLDS = 5


def count_folds(positive: Mask, together: Ints | None = None) -> int:
    """Return the number of folds, at most FOLDS, so that each fold can contain both classes.

    Return 0 if not even two folds can contain both classes. Rows with the same value in `together`
    count as one row, because they must stay in one fold.
    """
    count = min(FOLDS, _blocks_of_rarer(positive, together))
    return count if count > 1 else 0


def _blocks_of_rarer(positive: Mask, together: Ints | None, rows: Mask | None = None) -> int:
    """Return the number of blocks, or rows, of the rarer class, among all rows or some of them."""
    blocks = np.arange(len(positive)) if together is None else together
    among = np.ones(len(positive), dtype=bool) if rows is None else rows
    return min(len(np.unique(blocks[among & own])) for own in (positive, ~positive))


def stratified(n_folds: int, together: Ints | None, seed: int) -> Any:
    """Return a splitter into folds with like shares of both classes; a block stays in one fold."""
    kind = StratifiedKFold if together is None else StratifiedGroupKFold
    return kind(n_folds, shuffle=True, random_state=seed)


def fold_scores(
    learn: Callable[[Ints, Ints], Callable[[Ints], Array]],
    groups: Ints,
    seed: int,
    together: Ints | None = None,
    enough: int | None = None,
) -> Array:
    """Score each row with a model fitted on the other folds.

    `groups` holds the group of each row: 0 for positives, 1..K for the subclasses. `learn` fits a
    model, given the numbers of the training rows and their groups. It returns a function that
    scores the rows with given numbers. Rows that share a number in `together` are a block, which
    stays in one fold.

    A score is NaN if its model is missing, because the fold contains a whole class or the model
    cannot be fitted. Fitting stops once each class has scores of `enough` rows, or of rows from as
    many blocks.
    """
    scores = np.full(len(groups), np.nan)
    positive = groups == 0
    n_folds = count_folds(positive, together)
    if n_folds == 0:
        return scores
    folds = stratified(n_folds, together, seed)
    for train, test in folds.split(np.empty(len(groups)), positive, together):
        seen = np.isfinite(scores)
        if enough is not None and _blocks_of_rarer(positive, together, seen) >= enough:
            break
        if positive[train].all() or not positive[train].any():
            continue  # the test fold holds all rows of a class
        labels = np.unique(groups[train], return_inverse=True)[1]
        try:
            scores[test] = learn(train, labels)(test)
        except ValueError as error:
            warn(f"a calibration fold could not be fitted: {error}")
    return scores

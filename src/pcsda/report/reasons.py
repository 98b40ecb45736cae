"""Explain single rows by the evidence for and against them, and by similar rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from ..core.linalg import Array, Ints, Mask
from ..estimators import MixtureVerifier
from ..scoring import Scorer
from ..unwrap import unwrap
from ..validation import MatrixLike
from .subspaces import subspace_sample
from .views import View, take_rows

# How many of the worst positives, and of the worst negatives, are explained.
EXPLAINED = 30
# An explanation has at most this many characters; later parts are left out.
LONGEST = 400


def reasons(
    scorer: Scorer,
    view: View,
    labels: NDArray[np.str_],
    ids: NDArray[np.str_],
    positive: Mask,
    take: Callable[[Ints], Any],
    seed: int,
) -> list[str]:
    """Return an explanation for each row listed in a model's view.

    An explanation names the columns that speak for and against the class of interest, or the
    nearest training rows. It also names the nearest test row of each class in the subspace. Only
    the EXPLAINED worst rows of each class are explained; the text for other rows is empty.
    """
    place, kind = view.listed["place"], view.listed["positive"]
    chosen = np.concatenate([np.flatnonzero(kind)[:EXPLAINED], np.flatnonzero(~kind)[:EXPLAINED]])
    found = [""] * len(place)
    if isinstance(scorer.final, MixtureVerifier):  # each of its modes has its own subspace
        return found
    around = subspace_sample(positive, seed)
    wanted = np.unique(np.concatenate([place[chosen], around]))
    X = take(wanted)
    rows = np.searchsorted(wanted, place[chosen])
    said = str(_explained(scorer, take_rows(X, rows))).splitlines()
    near = _near(scorer.coordinates(X), rows, np.searchsorted(wanted, around), positive[wanted])
    for number, sentence, pair in zip(chosen.tolist(), said, near, strict=True):
        names = [f"{ids[wanted[i]]} ({labels[wanted[i]]})" for i in pair]
        found[number] = f"{_shortened(sentence)} Nearest in this test: {' and '.join(names)}."
    return found


def _shortened(sentence: str) -> str:
    """End an explanation; of one that is too long, leave out the last parts, after semicolons."""
    if len(sentence) <= LONGEST:
        return f"{sentence}."
    whole = sentence[:LONGEST].rpartition("; ")[0]
    return f"{whole}." if whole else f"{sentence[: LONGEST - 1]}…"


def _explained(scorer: Scorer, X: MatrixLike) -> Any:
    """Explain rows; in a scikit-learn pipeline, the last step explains the transformed rows."""
    if hasattr(scorer.model, "explain"):
        return scorer.model.explain(X)
    return scorer.final.explain(unwrap(scorer.model).rows(X))


def _near(z: Array, rows: Ints, around: Ints, positive: Mask) -> list[list[int]]:
    """For each row, find the nearest positive and the nearest negative among the rows `around`."""
    distances = cdist(z[rows], z[around])
    distances[rows[:, None] == around] = np.inf
    found: list[list[int]] = []
    for distance in distances:
        sides = (np.where(positive[around] == kind, distance, np.inf) for kind in (True, False))
        found.append([int(around[side.argmin()]) for side in sides if np.isfinite(side.min())])
    return found

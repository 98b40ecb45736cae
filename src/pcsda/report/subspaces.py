"""Data for the plots of the subspace: coordinates of some rows, and the named subclass means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ..core.linalg import Ints, Mask
from ..estimators import MixtureVerifier
from ..partition import MIXED
from ..scoring import Scorer
from .views import take_rows

# At most this many points are drawn, which keeps a page small.
SUBSPACE_POINTS = 1200
# If more subclasses than this have the same name, the name is written only once in a plot.
MOST_ALIKE = 3
# A label whose subspace is drawn: its value in the model and in y, and the factor by which the
# limit on points is reduced.
Drawn = tuple[Any, Any, int]


def subspace_sample(positive: Mask, seed: int, share: int = 1) -> Ints:
    """Return the numbers of the rows to plot.

    These are all rows or, if there are too many, a sample in which at most half are positives.
    """
    limit = SUBSPACE_POINTS // share
    if len(positive) <= limit:
        return np.arange(len(positive))
    rng = np.random.default_rng(seed)
    few = rng.permutation(np.flatnonzero(positive))[: limit // 2]
    rest = rng.permutation(np.flatnonzero(~positive))[: limit - len(few)]
    return np.sort(np.concatenate([few, rest]))


def subspaces_of(
    scorer: Scorer,
    labels: NDArray[Any],
    ids: NDArray[Any],
    drawn: list[Drawn],
    take: Callable[[Ints], Any],
    seed: int,
) -> list[dict[str, Any] | None]:
    """Project a sample of rows onto the first two axes of each label in `drawn`.

    The result is None for each label of a mixture: every mode has its own subspace, but the mixture
    as a whole has none.
    """
    if any(isinstance(scorer.verifier(label), MixtureVerifier) for label, *_ in drawn):
        return [None] * len(drawn)
    samples = [subspace_sample(labels == interest, seed, share) for _, interest, share in drawn]
    if not samples:
        return []
    wanted = np.unique(np.concatenate(samples))
    X = take(wanted)
    found: list[dict[str, Any] | None] = []
    for (label, interest, _), rows in zip(drawn, samples, strict=True):
        points = take_rows(X, np.searchsorted(wanted, rows))
        z, second = scorer.coordinates(points, label), "axis 2"
        if z.shape[1] == 1:
            # With a single axis, the score is the second coordinate.
            second = "log-likelihood ratio"
            ratios = scorer.log_likelihood_ratios(points)
            z = np.column_stack([z, ratios[:, scorer.labels.index(label)]])
        kept = {"truth": labels[rows].astype(str), "id": ids[rows].astype(str)}
        kept |= {"x": z[:, 0], "y": z[:, 1], "positive": labels[rows] == interest}
        named = _named_centres(scorer.verifier(label))
        found.append({"axes": ["axis 1", second], "centres": named, **kept})
    return found


def _named_centres(model: BaseEstimator) -> list[tuple[str, float, float]]:
    """Return names and first two coordinates of the subclasses with a majority label.

    A name shared by many subclasses is written only once, at the largest of them, so that labels
    do not overlap.
    """
    names = getattr(model, "subclass_names_", None)
    if names is None or model.n_components_ < 2:
        return []
    centres = model.density_.base.subclasses
    if centres.shape[1] < 2:  # a second density may have axes of its own
        return []
    times, seen = Counter(names), set()
    found = []
    for i in np.argsort(-np.asarray(model.subclass_counts_), kind="stable"):
        name = names[i]
        if name.endswith(MIXED) or (name in seen and times[name] > MOST_ALIKE):
            continue
        seen.add(name)
        shown = name if times[name] <= MOST_ALIKE else f"{name} (largest of {times[name]})"
        found.append((shown, *centres[i, :2].tolist()))
    return found

"""Whether labels share two covariances, and whether their rows are scaled to unit length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.kindred_fit import Fold, KindredFit, fit_kindred
from ..core.labelled import spread_unknown
from ..core.linalg import Floats, Ints, unit_rows
from ..core.shared_rows import BACKGROUND
from ..core.spread import known_variance, ridge_of
from ..kernels import SCALED_KERNELS, Kernel
from ..progress import progress
from .changes import BankRows, Settings
from .linear import PCSDA
from .pooled_labels import can_pool, space_for
from .spaces import Space
from .steps import is_curved

# Fewer labels do not determine the covariance between labels well enough.
LEAST_LABELS = 10
# With at least this many rows per label, clusters separate labels better, unless there are many
# labels, or more labels than columns.
MANY_ROWS, MANY_LABELS = 50, 100
# Rows are scaled to unit length if this lowers the left-out losses by more than the first number of
# nats. If labels have one row, it must lower the reciprocal of the tails' degrees of freedom by
# more than the second number.
LEAST_GAIN, LIGHTER_TAILS = 0.03, 0.02
# At most this many labels decide whether rows are scaled.
CHOICE_LABELS = 300


def are_kindred(settings: Settings, X: Floats, labels: Ints) -> bool:
    """Return whether labels should share two covariances instead of clusters (MATH 18).

    Many labels with few rows each determine the covariance between labels, and k-means would mix
    them. For few labels with many rows each, clusters describe the negatives better, except in few
    columns: there, a stranger far from all clusters resembles one of the labels most, and is taken
    for it.
    """
    template, sizes = settings.template, np.bincount(labels)
    if not can_pool(settings, X, labels) or len(sizes) < LEAST_LABELS:
        return False
    by_means = template.subclasses == "kmeans"
    as_usual = template.n_subclasses == "auto" and template.n_components is None
    usual = template.negatives == "blend" and template.shrinkage == "auto"
    few = np.median(sizes) < MANY_ROWS or len(sizes) > MANY_LABELS
    narrow = not is_curved(template) and len(sizes) > X.shape[1]
    return bool(by_means and as_usual and usual and (few or narrow))


@dataclass(frozen=True)
class Trial:
    """A fit of all labels, with rows either unchanged or scaled to unit length."""

    space: Space
    variance: float
    found: KindredFit

    @classmethod
    def of(
        cls,
        settings: Settings,
        rows: BankRows,
        unit: bool,
        ridge: float | None = None,
        kernel: Kernel | None = None,
        *,
        ridges: Sequence[float] | None = None,
    ) -> Trial:
        """Fit all labels.

        If `unit` is True, rows are scaled to unit length. A `ridge` or `kernel` of None is chosen
        from the rows. For `ridges`, see `fit_kindred`.
        """
        space = space_for(settings, unit_rows(rows.X) if unit else rows.X, kernel)
        variance = _variance(space.features)
        if ridge is None and (single_rows(rows) or not settings.auto_ridge):
            ridge = ridge_of(variance, float(settings.template.regularization))

        def steps(folds: Iterator[Fold], count: int) -> Iterator[Fold]:
            return iter(progress(folds, "folds", enabled=settings.verbose, total=count))

        rng = np.random.default_rng(settings.seed)
        how: Any = {"ridge": ridge, "ridges": ridges, "steps": steps}
        how["tails"] = settings.template.tails == "fitted"
        found = fit_kindred(space.features, rows.labels, rng, **how)
        return cls(space, variance, found)


def single_rows(rows: BankRows) -> bool:
    """Return whether too few labels have several rows, so the spread within labels is assumed."""
    return spread_unknown(np.bincount(rows.labels[rows.labels >= 0]))


def _follows_rows(template: Any) -> bool:
    """Return whether the bank may scale its rows to unit length.

    It may not if the bandwidth is a number or the kernel a function, since the user chose these for
    unscaled rows.
    """
    if isinstance(template, PCSDA):
        return True
    scaled = template.kernel in SCALED_KERNELS and isinstance(template.gamma, str)
    return bool(scaled or template.kernel == "linear")


def prefers_unit(settings: Settings, rows: BankRows) -> bool:
    """Return whether unit length makes left-out rows clearly easier to tell from strangers.

    Two losses are added, one for the best scores of strangers and one for the scores of strangers
    for random labels. The best scores decide which rows are named. The random scores show a
    difference even if the bank can name hardly any row.

    Labels with one row have no left-out rows. A bank of such labels prefers unit length if this
    makes the tails clearly lighter. A kernel bank then decides as a linear bank would.
    """
    template, single = settings.template, single_rows(rows)
    if not _follows_rows(template):
        return False
    if single:
        template = PCSDA(regularization=template.regularization, tails=template.tails)
    quiet = replace(settings, template=template, verbose=False)
    some = _some_labels(rows, settings.seed, 1 if single else 2)
    try:
        raw, scaled = (Trial.of(quiet, some, unit, ridges=(1.0,)).found for unit in (False, True))
    except ValueError:  # such as rows that differ only in length
        return False
    if single:
        return 1 / scaled.kindred.tail < 1 / raw.kindred.tail - LIGHTER_TAILS
    before, after = (one.loss + one.pair_loss for one in (raw, scaled))
    return after < before - LEAST_GAIN


def _some_labels(rows: BankRows, seed: int, least: int) -> BankRows:
    """Return all rows or, if there are many labels, the rows of a random sample of labels.

    The sample has only labels with at least `least` rows, and no background rows.
    """
    counts = np.bincount(rows.labels[rows.labels >= 0])
    if len(counts) <= CHOICE_LABELS:
        return rows
    enough = np.flatnonzero(counts >= least)
    chosen = np.random.default_rng(seed).permutation(enough)[:CHOICE_LABELS]
    numbers = np.full(len(counts), BACKGROUND)
    numbers[np.sort(chosen)] = np.arange(len(chosen))
    return rows.numbered(numbers).kept(np.isin(rows.labels, chosen))


def _variance(features: Floats) -> float:
    """Return the mean squared distance of the rows from their mean."""
    exact = features.astype(np.float64, copy=False)
    origin = exact.mean(axis=0)
    variance = sum(
        float(np.einsum("ij,ij->", part, part))
        for part in (exact[i : i + 4096] - origin for i in range(0, len(exact), 4096))
    )
    return known_variance(variance / len(exact), origin)

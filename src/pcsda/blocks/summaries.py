"""Passes whose results make the model: group statistics, rows to leave out, scores of folds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.fit import Fitted
from ..core.linalg import Array
from ..core.scatter import GroupScatter
from .folds import Folds
from .intake import Division, Head, Intake, Piece
from .passes import FOR_CALIBRATION, Draw, Pass, Reservoir, union

# How positives and how negatives are drawn.
Draws = tuple[Draw, Draw]


@dataclass(frozen=True)
class Scored:
    """Rows of both classes from which scores are calibrated: the positives, the negatives."""

    positive: Reservoir
    negative: Reservoir

    @classmethod
    def of(
        cls, keys: Array, columns: tuple[Any, ...], positive: Any, seen: Any, draws: Draws
    ) -> Scored:
        """Sample the rows that are `seen`, each class on its own, so that a rare one is kept.

        The last of the columns is the weight of the row.
        """
        parts = []
        for mask, draw in zip((seen & positive, seen & ~positive), draws, strict=True):
            members = np.flatnonzero(mask)

            def take(kept: Any, members: Any = members) -> Array:
                rows = members[kept]
                table: Array = np.column_stack([column[rows] for column in columns])
                return table

            parts.append(Reservoir.of(keys[members], columns[-1][members], take, draw))
        return cls(*parts)

    def merge(self, other: Scored, draws: Draws) -> Scored:
        """Sample of both."""
        return Scored(
            self.positive.merge(other.positive, draws[0].size),
            self.negative.merge(other.negative, draws[1].size),
        )


@dataclass(frozen=True)
class Statistics:
    """Group statistics of each fold of the rows, with the names of the subclasses.

    Attributes
    ----------
    head : Head
    names : array of shape (K,)
    n_rows : array of shape (2,)
        Number of positives and of negatives, whatever they weigh.
    leads : bool
        Whether the first row is positive.
    scatters : tuple of GroupScatter
        One for each fold; with one fold, of all rows.
    sample : Scored
        Rows to leave out: features, group and weight.
    """

    head: Head
    names: NDArray[Any]
    n_rows: NDArray[np.intp]
    leads: bool
    scatters: tuple[GroupScatter, ...]
    sample: Scored

    def whole(self, without: int | None = None) -> GroupScatter:
        """Statistics of all folds together, or of all but one."""
        kept = [scatter for fold, scatter in enumerate(self.scatters) if fold != without]
        return reduce(GroupScatter.merge, kept)


@dataclass(frozen=True)
class StatisticsPass(Pass):
    """Counts, means and scatter of the groups, and a sample of rows to leave out."""

    intake: Intake
    division: Division
    seed: int
    draws: Draws
    folds: Folds | None = None
    name: str = "statistics"

    def of_piece(self, piece: Piece) -> Statistics:
        """Statistics of one piece."""
        names, groups = self.division.groups(piece)
        folds = None if self.folds is None else self.folds.of(piece)
        scatters = []
        for fold in range(1 if self.folds is None else self.folds.count):
            rows: Any = slice(None) if folds is None else np.flatnonzero(folds == fold)
            weights = None if piece.weights is None else piece.weights[rows]
            scatters.append(
                GroupScatter.from_samples(piece.X[rows], groups[rows], len(names) + 1, weights)
            )
        inside = int(piece.positive.sum())
        n_rows = np.array([inside, len(groups) - inside])
        keys = piece.rng(self.seed, FOR_CALIBRATION).random(len(groups))
        columns = (piece.X, groups, piece.weight)
        everyone = np.ones(len(groups), dtype=bool)
        sample = Scored.of(keys, columns, piece.positive, everyone, self.draws)
        leads = bool(piece.positive[0])
        return Statistics(piece.head, names, n_rows, leads, tuple(scatters), sample)

    def merge(self, left: Statistics, right: Statistics) -> Statistics:
        """Statistics of both; subclasses are matched by name."""
        head = left.head.join(right.head)
        names = left.names
        if not np.array_equal(left.names, right.names):
            names = union(left.names, right.names, "subclass_labels")
            left, right = _renamed(left, names), _renamed(right, names)
        pairs = zip(left.scatters, right.scatters, strict=True)
        merged = tuple(one.merge(other) for one, other in pairs)
        sample = left.sample.merge(right.sample, self.draws)
        n_rows = left.n_rows + right.n_rows
        return Statistics(head, names, n_rows, left.leads, merged, sample)


def _renamed(statistics: Statistics, names: NDArray[Any]) -> Statistics:
    """Statistics with more subclasses, of which those that are new are empty."""
    place = np.append(0, 1 + np.searchsorted(names, statistics.names))
    scatters = []
    for old in statistics.scatters:
        counts = np.zeros(len(names) + 1)
        means = np.zeros((len(names) + 1, old.means.shape[1]))
        counts[place], means[place] = old.counts, old.means
        scatters.append(replace(old, counts=counts, means=means))
    negative = statistics.sample.negative
    table = negative.table.copy()
    table[:, -2] = place[table[:, -2].astype(np.intp)]
    sample = replace(statistics.sample, negative=replace(negative, table=table))
    return replace(statistics, names=names, scatters=tuple(scatters), sample=sample)


@dataclass(frozen=True)
class FoldScorePass(Pass):
    """Every row is scored by the model that was fitted without its fold."""

    intake: Intake
    models: tuple[Fitted | None, ...]
    folds: Folds
    seed: int
    draws: Draws
    name: str = "fold scores"

    def of_piece(self, piece: Piece) -> Scored:
        """Sample of one piece."""
        folds = self.folds.of(piece)
        scores = np.full(len(piece.X), np.nan)
        for fold, model in enumerate(self.models):
            if model is not None:
                rows = np.flatnonzero(folds == fold)
                scores[rows] = model.score(piece.X[rows])
        keys = piece.rng(self.seed, FOR_CALIBRATION).random(len(scores))
        columns = (scores, piece.weight)
        return Scored.of(keys, columns, piece.positive, np.isfinite(scores), self.draws)

    def merge(self, left: Scored, right: Scored) -> Scored:
        """Sample of both."""
        return left.merge(right, self.draws)

"""Passes whose results make the model: group statistics, left-out rows, scores to calibrate on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.linalg import Array
from ..core.loo import Leaver
from ..core.model import Model
from ..core.scatter import GroupScatter
from .folds import Folds
from .intake import Division, Head, Intake, Piece
from .passes import FOR_CALIBRATION, Draw, Pass, Reservoir, union

# How positives and how negatives are drawn.
Draws = tuple[Draw, Draw]


@dataclass(frozen=True)
class Statistics:
    """Group statistics of each fold of the rows, with the names of the subclasses.

    Attributes
    ----------
    head : Head
    names : array of shape (K,)
    n_rows : array of shape (2,)
        Number of positives and of negatives, whatever they weigh.
    scatters : tuple of GroupScatter
        One for each fold; with one fold, of all rows.
    """

    head: Head
    names: NDArray[Any]
    n_rows: NDArray[np.intp]
    scatters: tuple[GroupScatter, ...]

    def whole(self, without: int | None = None) -> GroupScatter:
        """Statistics of all folds together, or of all but one."""
        kept = [scatter for fold, scatter in enumerate(self.scatters) if fold != without]
        return reduce(GroupScatter.merge, kept)


@dataclass(frozen=True)
class StatisticsPass(Pass):
    """Counts, means and scatter of the groups."""

    intake: Intake
    division: Division
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
        return Statistics(piece.head, names, n_rows, tuple(scatters))

    def merge(self, left: Statistics, right: Statistics) -> Statistics:
        """Statistics of both; subclasses are matched by name."""
        head = left.head.join(right.head)
        names = left.names
        if not np.array_equal(left.names, right.names):
            names = union(left.names, right.names, "subclass_labels")
            left, right = _renamed(left, names), _renamed(right, names)
        pairs = zip(left.scatters, right.scatters, strict=True)
        merged = tuple(one.merge(other) for one, other in pairs)
        return Statistics(head, names, left.n_rows + right.n_rows, merged)


def _renamed(statistics: Statistics, names: NDArray[Any]) -> Statistics:
    """Statistics with more subclasses, of which those that are new are empty."""
    place = np.append(0, 1 + np.searchsorted(names, statistics.names))
    scatters = []
    for old in statistics.scatters:
        counts = np.zeros(len(names) + 1)
        means = np.zeros((len(names) + 1, old.means.shape[1]))
        counts[place], means[place] = old.counts, old.means
        scatters.append(replace(old, counts=counts, means=means))
    return replace(statistics, names=names, scatters=tuple(scatters))


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
class LeftOutSums:
    """Scatter of the left-out residuals, the weight behind it, and rows to calibrate on.

    `total` is the weight of all rows, also of those that are alone in their group.
    """

    positive: Array
    within: Array
    n_positive: float
    n_within: float
    total: float
    scored: Scored


@dataclass(frozen=True)
class LeftOutPass(Pass):
    """Every row is left out of the fit and projected (MATH 8)."""

    intake: Intake
    division: Division
    names: NDArray[Any]
    leaver: Leaver
    seed: int
    draws: Draws
    name: str = "left-out"

    def of_piece(self, piece: Piece) -> LeftOutSums:
        """Sums and sample of one piece."""
        found, groups = self.division.groups(piece)
        unknown = found[~np.isin(found, self.names)]
        if len(unknown):
            raise ValueError(
                f"subclass {unknown.tolist()[0]!r} was not there in the pass before; blocks must "
                "be the same in every pass"
            )
        groups = np.append(0, 1 + np.searchsorted(self.names, found))[groups]
        left = self.leaver.leave_out(piece.X, groups, piece.weights)
        width = self.leaver.rotation.shape[1]
        nothing = GroupScatter(self.leaver.counts, self.leaver.means, *np.zeros((2, width, width)))
        sums, n_positive, n_within = left.scatter(nothing, groups, piece.weights)
        columns = (left.coordinates, left.residuals, groups, piece.weight)
        keys = piece.rng(self.seed, FOR_CALIBRATION).random(len(groups))
        scored = Scored.of(keys, columns, groups == 0, ~left.alone, self.draws)
        total = float(piece.weight.sum())
        return LeftOutSums(sums.positive, sums.within, n_positive, n_within, total, scored)

    def merge(self, left: LeftOutSums, right: LeftOutSums) -> LeftOutSums:
        """Sums and sample of both."""
        return LeftOutSums(
            left.positive + right.positive,
            left.within + right.within,
            left.n_positive + right.n_positive,
            left.n_within + right.n_within,
            left.total + right.total,
            left.scored.merge(right.scored, self.draws),
        )


@dataclass(frozen=True)
class FoldScorePass(Pass):
    """Every row is scored by the model that was fitted without its fold."""

    intake: Intake
    models: tuple[Model | None, ...]
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

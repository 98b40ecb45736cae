"""Passes over blocks define what each block contributes, and how two results are merged.

Each result is a small frozen dataclass, and merging is associative. Results can therefore be
merged one after the other, starting from a checkpoint, or in a tree on a cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from ..core.fit import Fitted
from ..core.linalg import Ints, Result, narrow_fit
from ..core.scatter import GroupScatter
from ..targets import different_labels
from . import sampling
from .data import Block, Division, Head, Intake, check_shape, check_y, naming
from .sampling import Counts, Draw, Draws, Folds, Reservoir, Samples, sample_classes


class Pass(ABC, Generic[Result]):
    """A single pass over all blocks, whose results are merged into one."""

    name: str
    # Whether the pass needs X; if not, blocks are read without X where possible.
    needs_rows = True

    @abstractmethod
    def results(self, number: int, title: str, block: Block) -> Iterator[Result]:
        """Yield a result for each piece of a block."""

    @abstractmethod
    def merge(self, left: Result, right: Result) -> Result:
        """Merge the results of earlier blocks (`left`) and of later blocks (`right`)."""

    def join(self, left: Result | None, right: Result | None) -> Result | None:
        """Merge two results; a result is None if no row in its blocks has positive weight."""
        if left is None or right is None:
            return right if left is None else left
        return self.merge(left, right)

    def of_block(self, number: int, name: str, block: Block) -> Result | None:
        """Return the result for one block; error messages name the block."""
        title = f"block {number} ({name})"
        width = (*getattr(block.X, "shape", ()), 0, 0)[1]
        with narrow_fit(width), naming(title):
            return reduce(self.join, self.results(number, title, block), None)


@dataclass(frozen=True)
class Look:
    """The labels seen so far, and whether all blocks have subclass labels."""

    labels: NDArray[Any]
    given: bool

    def settled(self, pos_label: object = None) -> bool:
        """Return whether all labels needed for the fit are known, including `pos_label`."""
        if self.labels.dtype.kind == "b":
            return True
        return len(self.labels) > 1 and (pos_label is None or pos_label in self.labels.tolist())


@dataclass(frozen=True)
class LookPass(Pass[Look]):
    """Pass that collects the distinct labels; `pos_label` is a label that must be among them."""

    pos_label: Any = None
    name: str = "labels"
    needs_rows = False

    def results(self, number: int, title: str, block: Block) -> Iterator[Look]:
        """Yield the distinct labels in a block."""
        n_rows = None if block.X is None else check_shape(block)[0].shape[0]
        labels = different_labels(check_y(block.y, n_rows))
        yield Look(labels, block.subclass_labels is not None)

    def merge(self, left: Look, right: Look) -> Look:
        """Return the union of both label sets."""
        return Look(union(left.labels, right.labels, "y"), left.given and right.given)


def union(left: NDArray[Any], right: NDArray[Any], what: str) -> NDArray[Any]:
    """Merge sorted labels; reject a mix of numbers and text, which would turn 1 into "1"."""
    if not (len(left) and len(right)):
        return left if len(left) else right
    text = [side for side in (left, right) if side.dtype.kind in "US"]
    if len(text) == 1:
        raise ValueError(
            f"{what} is text in some blocks ({text[0].tolist()[0]!r}) and numbers in others; make "
            "it one or the other"
        )
    return np.union1d(left, right)


@dataclass(frozen=True)
class CountPass(Pass[Counts]):
    """Pass that counts the rows of each class in each block."""

    intake: Intake
    name: str = "counts"
    needs_rows = False

    def results(self, number: int, title: str, block: Block) -> Iterator[Counts]:
        """Yield the row counts for a block."""
        positive, weights = self.intake.classified(block, None)
        if weights is not None:
            positive = positive[weights > 0]
        inside = int(positive.sum())
        counts = np.array([[inside, len(positive) - inside]])
        yield Counts(counts, np.array([len(positive) > 0 and bool(positive[0])]))

    def merge(self, left: Counts, right: Counts) -> Counts:
        """Append the counts for later blocks to the counts for earlier blocks."""
        counts = np.concatenate([left.counts, right.counts])
        return Counts(counts, np.concatenate([left.leads, right.leads]))


@dataclass(frozen=True)
class Sample:
    """A seeded sample of untransformed rows: features, positive/negative flags and weights.

    `n_negative` counts the negatives among all rows, not only in the sample.
    """

    head: Head
    rows: Reservoir
    n_negative: int


@dataclass(frozen=True)
class SamplePass(Pass[Sample]):
    """Pass that draws a seeded sample of rows for fitting transformers and k-means."""

    intake: Intake
    seed: int
    draw: Draw
    name: str = "sample"

    def results(self, number: int, title: str, block: Block) -> Iterator[Sample]:
        """Yield a sample of the rows in each piece."""
        for piece in self.intake.pieces(number, title, block):
            keys = piece.rng(self.seed, sampling.FOR_SAMPLE).random(len(piece.X))
            columns = (piece.X, piece.positive, piece.weight)
            rows = Reservoir.of(keys, columns, self.draw, np.ones(len(keys), dtype=bool))
            yield Sample(piece.head, rows, int(np.sum(~piece.positive)))

    def merge(self, left: Sample, right: Sample) -> Sample:
        """Merge two samples into one."""
        head = left.head.join(right.head)  # also checks that the columns agree
        rows = left.rows.merge(right.rows, self.draw.size)
        return Sample(head, rows, left.n_negative + right.n_negative)


@dataclass(frozen=True)
class Statistics:
    """Group statistics for each fold, with the subclass names.

    Attributes
    ----------
    head : Head
    names : array of shape (K,)
        Names of the subclasses.
    n_rows : array of shape (2,)
        Numbers of positives and negatives with positive weight, each counted as one row.
    leads : bool
        Whether the first row is positive.
    scatters : tuple of GroupScatter
        One for each fold; without folds, a single one for all rows.
    samples : pair of Reservoir
        Samples of positives and negatives to leave out of the fit, one row at a time: the features,
        group and weight of each row.
    """

    head: Head
    names: NDArray[Any]
    n_rows: Ints
    leads: bool
    scatters: tuple[GroupScatter, ...]
    samples: Samples

    def whole(self, without: int | None = None) -> tuple[NDArray[Any], GroupScatter]:
        """Return names and statistics of the nonempty subclasses, optionally without one fold."""
        folds = [scatter for fold, scatter in enumerate(self.scatters) if fold != without]
        scatter = reduce(GroupScatter.merge, folds)
        kept = np.flatnonzero(scatter.counts[1:] > 0)
        groups = np.append(0, 1 + kept)
        counts, means = scatter.counts[groups], scatter.means[groups]
        return self.names[kept], replace(scatter, counts=counts, means=means)

    def renamed(self, names: NDArray[Any]) -> Statistics:
        """Return the statistics for a larger set of subclasses; the added subclasses are empty."""
        place = np.append(0, 1 + np.searchsorted(names, self.names))
        scatters = tuple(old.renumbered(place, len(names) + 1) for old in self.scatters)
        X, groups, weights = self.samples[1].columns
        negative = replace(self.samples[1], columns=(X, place[groups], weights))
        samples = (self.samples[0], negative)
        return replace(self, names=names, scatters=scatters, samples=samples)


@dataclass(frozen=True)
class StatisticsPass(Pass[Statistics]):
    """Pass that collects group counts, means and scatter, and a sample of rows to leave out."""

    intake: Intake
    division: Division
    seed: int
    draws: Draws
    folds: Folds | None = None
    name: str = "statistics"

    def results(self, number: int, title: str, block: Block) -> Iterator[Statistics]:
        """Yield the statistics for each piece."""
        for piece in self.intake.pieces(number, title, block):
            names, groups = self.division.groups(piece)
            rows: list[Any] = [slice(None)]
            if self.folds is not None:
                folds = self.folds.of(piece)
                rows = [np.flatnonzero(folds == fold) for fold in range(self.folds.count)]
            scatters = []
            for part in rows:
                weights = None if piece.weights is None else piece.weights[part]
                own = piece.X[part], groups[part], len(names) + 1, weights
                scatters.append(GroupScatter.from_samples(*own))
            n_rows = np.bincount(~piece.positive, minlength=2)
            every = np.ones(len(groups), dtype=bool)
            samples = sample_classes(piece, self.seed, (piece.X, groups), every, self.draws)
            leads = bool(piece.positive[0])
            yield Statistics(piece.head, names, n_rows, leads, tuple(scatters), samples)

    def merge(self, left: Statistics, right: Statistics) -> Statistics:
        """Merge two sets of statistics, matching subclasses by name."""
        head = left.head.join(right.head)
        if not np.array_equal(left.names, right.names):
            names = union(left.names, right.names, "subclass_labels")
            left, right = left.renamed(names), right.renamed(names)
        pairs = zip(left.scatters, right.scatters, strict=True)
        scatters = tuple(one.merge(other) for one, other in pairs)
        samples = sampling.merge_samples(left.samples, right.samples, self.draws)
        n_rows = left.n_rows + right.n_rows
        return Statistics(head, left.names, n_rows, left.leads, scatters, samples)


@dataclass(frozen=True)
class FoldScorePass(Pass[Samples]):
    """Pass that scores each row with the model that was fitted without the row's fold.

    Its samples hold the rows and their scores.
    """

    intake: Intake
    models: tuple[Fitted | None, ...]
    folds: Folds
    seed: int
    draws: Draws
    name: str = "fold scores"

    def results(self, number: int, title: str, block: Block) -> Iterator[Samples]:
        """Yield a sample of the scores in each piece."""
        for piece in self.intake.pieces(number, title, block):
            folds = self.folds.of(piece)
            scores = np.full(len(piece.X), np.nan)
            for fold, model in enumerate(self.models):
                if model is not None:
                    rows = np.flatnonzero(folds == fold)
                    scores[rows] = model.score(piece.X[rows])
            columns = piece.X, scores
            yield sample_classes(piece, self.seed, columns, np.isfinite(scores), self.draws)

    def merge(self, left: Samples, right: Samples) -> Samples:
        """Merge two pairs of samples, one sample for each class."""
        return sampling.merge_samples(left, right, self.draws)

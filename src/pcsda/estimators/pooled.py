"""How a bank is fitted if all labels share one calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..core.calibration import Scored
from ..core.density import Blend, Mixture
from ..core.linalg import Array, Floats, Ints, Mask
from ..core.many import SolvedLabel, solve_labels
from ..core.panel import Panel
from ..core.pooling import (
    CHOICE_LABELS,
    MANY_ROWS,
    Block,
    Pool,
    Strangers,
    calibrate,
    choose_pool,
    moved_labels,
    positive_views,
    scored_rows,
    turns_of,
)
from ..core.shared_rows import BACKGROUND, SharedRows
from ..progress import progress
from .changes import BankRows, Settings
from .doors import Door
from .spaces import Space

# About as many rows are left out for each label as the second number divided by the number of
# labels, but at least the first number. The estimator's `calibration_rows` may lower this.
LEAST_SAMPLE, MOST_PAIRS = 1000, 2_500_000
# Number of left-out negatives, over all labels, used to fit the tails.
TAIL_PAIRS = 20_000
# With fewer rows or labels per cluster, strangers are left out in folds with separate clusters,
# because a label leaves a trace in the clusters it shaped (MATH 17).
ROWS_PER_CLUSTER, PEOPLE_PER_CLUSTER = 50, 10
# Number of folds of labels: the first number up to FEW_LABELS labels, otherwise the second.
FOLDS, FEW_FOLDS, FEW_LABELS = 10, 5, 40
# If folds are used only because the axes fill the space, a fold has at most this many coordinates
# under all labels. More would take too much memory.
MOST_FOLD_NUMBERS = 50_000_000
# Largest number of identities that serve as strangers, and the number of labels that each is scored
# against: those with the highest scores, and some drawn at random.
MOST_STRANGERS, CLOSEST, DRAWN = 1000, 16, 4
# Coordinates under all labels are computed in batches of about this many bytes.
EVERYONE_BYTES = 64 << 20


@dataclass(frozen=True)
class Training:
    """The rows of a bank and the settings for fitting them.

    Attributes
    ----------
    settings : Settings
    rows : BankRows
        The rows, with X replaced by their features in the space where they are factorised.
    ridge : float or None
        The absolute ridge; None if the estimator's relative ridge determines it.
    cluster : function that takes a mask of rows, or None
        Returns new clusters of the rows in the mask; None if the user gave the clusters.
    """

    settings: Settings
    rows: BankRows
    ridge: float | None
    cluster: Callable[[Mask], Ints] | None

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.rows.labels.max()) + 1

    @property
    def most(self) -> int:
        """Approximate number of rows that are left out for each label."""
        most = max(LEAST_SAMPLE, MOST_PAIRS // self.n_labels)
        return min(self.settings.template.calibration_rows or len(self.rows.labels), most)

    def shared(self) -> SharedRows:
        """Return the factorised rows, which all labels share."""
        rows, template = self.rows, self.settings.template
        known = rows.X, rows.labels, rows.clusters, rows.keys, self.most
        return SharedRows.of(*known, float(template.regularization), self.ridge, rows.together)

    def solve(self, shared: SharedRows, labels: Ints, text: str = "") -> list[SolvedLabel]:
        """Solve the problem of each label, and keep only the left-out rows that the tails need.

        `text` names the progress bar. Without it, no bar is drawn.
        """
        most = -(-TAIL_PAIRS // self.n_labels)
        found = solve_labels(shared, labels, self.settings.template.n_components)
        verbose = self.settings.verbose and bool(text)
        steps = progress(found, text, enabled=verbose, total=len(labels))
        return [label.thinned(most) for label in steps]


@dataclass(frozen=True)
class Prepared:
    """Factorised rows, the space in which they are factorised, and the settings for the fit."""

    space: Space
    shared: SharedRows
    training: Training


@dataclass(frozen=True)
class Solved:
    """The solutions for all labels of a bank, with the rows and the calibration that they share.

    Attributes
    ----------
    training : Training
    shared : SharedRows
    labels : list of SolvedLabel
    densities : list of Mixture or Blend
    pool : Pool
    """

    training: Training
    shared: SharedRows
    labels: list[SolvedLabel]
    densities: list[Mixture | Blend]
    pool: Pool

    def strangers(self, rng: np.random.Generator) -> tuple[list[Strangers], float]:
        """Score identities of the bank as strangers, by labels that have not seen them.

        An identity is a label or a block of background rows. Return the views of its rows, which
        are the log ratios that the calibration combines. Also return the number of labels from
        which the best score of each identity is taken.
        """
        training, shared, count = self.training, self.shared, len(self.labels)
        clusters, n_rows = len(shared.counts), len(shared.live)
        small = n_rows < ROWS_PER_CLUSTER * clusters or count < PEOPLE_PER_CLUSTER * clusters
        # If the axes fill the space, the last ones are poorly determined. The closed form keeps
        # rotations fixed, so any shift along these axes would look like an outlier.
        pairs = n_rows * count * clusters / FEW_FOLDS
        small = small or (clusters >= training.rows.shape[1] and pairs < MOST_FOLD_NUMBERS)
        if small and training.cluster is not None and clusters > 1:
            n_folds = min(FOLDS if count <= FEW_LABELS else FEW_FOLDS, count)
            fold = rng.permutation(count) % n_folds
            try:
                # The ridge stays the same, as when rows are left out in closed form.
                held = replace(training, ridge=shared.ridge)
                parts = [_fold(held, self.pool, fold == i) for i in range(n_folds)]
            except ValueError:  # the rows outside a fold do not determine a bank
                parts = []
            if parts:
                return parts, count * (1 - 1 / n_folds)
        return list(self._closed_form(rng)), count - 1.0

    def _closed_form(self, rng: np.random.Generator) -> Iterator[Strangers]:
        """Yield views of each identity's rows, removed from all labels in closed form."""
        shared, labels, pool, count = self.shared, self.labels, self.pool, len(self.labels)
        shared.index()
        chosen = np.sort(rng.permutation(count)[:MOST_STRANGERS])
        blocks = [(int(label), shared.own(int(label))) for label in chosen]
        others = _background(shared, rng, MOST_STRANGERS // 2)
        blocks += [(count + number, block) for number, block in enumerate(others)]
        aligned = _aligned(labels, self.densities, shared)
        panel, turns = Panel.of(*aligned, pool.n_views), turns_of(labels, *aligned[2])
        verbose = self.training.settings.verbose
        steps = progress(blocks, "strangers", enabled=verbose, total=len(blocks))
        scored = [scored_rows(block, len(blocks)) for _, block in blocks]
        # If there are few labels, all of them score each stranger, so none need be selected.
        highest = _highest(self, panel, scored) if count > FEW_LABELS else iter(())
        for (identity, block), rows in zip(steps, scored, strict=True):
            met, n_drawn = _met(identity, highest, count, rng)
            away = Block.of(shared, block, met, turns[met], rows)
            views = away.views(panel.take(met), pool.tails)
            yield Strangers(views, met, np.full(views.shape[2], identity), n_drawn)

    def moves(self, strangers: list[Strangers]) -> tuple[Array, tuple[float, float]]:
        """Return how far each label's own rows shift its slope and offset from the common values.

        Also return the spread of these shifts among the labels.
        """
        pool, moved = self.pool, np.zeros((len(self.labels), 2))
        large = [i for i, label in enumerate(self.labels) if label.n_own >= MANY_ROWS]
        met: dict[int, list[Array]] = {label: [] for label in large}
        for part in strangers:
            scores = pool.calibration(part.views[:, : part.chosen])
            for row, label in zip(scores, part.labels.tolist(), strict=False):
                if label in met:
                    met[label].append(row)
        places = [label for label in large if met[label]]
        found: list[Scored] = []
        for label in places:
            one = [self.labels[label]], [self.densities[label]]
            positives, mass = positive_views(*one, pool.n_views)
            own, rest = pool.calibration(positives[:, mass == 1]), np.concatenate(met[label])
            weight = np.append(np.ones(len(own)), np.full(len(rest), len(own) / len(rest)))
            positive = np.arange(len(weight)) < len(own)
            found.append(Scored(np.append(own, rest), positive, weight))
        points, spread = moved_labels(found)
        moved[places] = points
        return moved, spread


def fit_pooled(training: Training, shared: SharedRows) -> tuple[Solved, Array, Door]:
    """Fit all labels on factorised rows, with one calibration.

    Returns
    -------
    solved : Solved
    moved : array of shape (C, 2)
        Log slope and offset of each label, relative to the common values.
    door : Door

    Raises
    ------
    SingularMatrixError
        If the shared rows do not determine the model of some label.
    """
    numbers = np.arange(training.n_labels)
    labels = training.solve(shared, numbers, "models")
    rng, template = np.random.default_rng(training.settings.seed), training.settings.template
    chosen = np.sort(rng.permutation(numbers)[:CHOICE_LABELS])
    identities = [shared.own(int(label)) for label in chosen]
    identities += _background(shared, rng, CHOICE_LABELS)
    shrinkage = None if template.shrinkage == "auto" else float(template.shrinkage)
    fixed = template.negatives, shrinkage, template.tails
    pool = choose_pool(shared, chosen, [labels[i] for i in chosen], identities, *fixed)
    n_views, densities = pool.n_views, [pool.density(label) for label in labels]
    solved = Solved(training, shared, labels, densities, pool)
    strangers, n_met = solved.strangers(rng)
    positives, mass = positive_views(labels, densities, n_views)
    drawn = [part.views[:, : part.chosen].reshape(n_views, -1) for part in strangers]
    calibration, _ = calibrate(positives, mass, np.concatenate(drawn, axis=1))
    pool = replace(pool, calibration=calibration)
    moved, spread = replace(solved, pool=pool).moves(strangers)
    best = np.concatenate([_scores(part, calibration, moved).max(axis=0) for part in strangers])
    own = calibration(positives[:, mass == 1]) if np.any(mass == 1) else np.zeros(0)
    identity = np.concatenate([part.identity for part in strangers])
    shared.__dict__.pop("white_rows", None)  # as large as the rows, and recomputed if needed
    solved = replace(solved, pool=replace(pool, spread=spread))
    return solved, moved, Door(best, identity, own, n_met)


def _scores(part: Strangers, calibration: Callable[[Array], Array], moved: Array) -> Array:
    """Return the calibrated scores of n strangers for L labels, shape (L, n)."""
    slopes, offsets = np.exp(moved[part.labels, :1]), moved[part.labels, 1:]
    return slopes * calibration(part.views) + offsets


def _background(shared: SharedRows, rng: np.random.Generator, most: int) -> list[Ints]:
    """Return at most `most` blocks of background rows. The rows of a block have one identity."""
    rows = np.flatnonzero(shared.owner == BACKGROUND)
    if len(rows) == 0:
        return []
    if shared.together is None:
        return [rows[i : i + 1] for i in np.sort(rng.permutation(len(rows))[:most])]
    ids = rng.permutation(np.unique(shared.together[rows]))[:most]
    return [rows[shared.together[rows] == one] for one in np.sort(ids)]


def _fold(training: Training, pool: Pool, away: Mask) -> Strangers:
    """Score the rows of some labels as strangers, with a bank fitted without these labels.

    `away` marks the labels to leave out. The bank has its own clusters.
    """
    assert training.cluster is not None
    owner, rest = training.rows.labels, np.flatnonzero(~away)
    gone = np.isin(owner, np.flatnonzero(away))
    rows = training.rows.kept(~gone).numbered(np.cumsum(~away) - 1)
    rows = replace(rows, clusters=training.cluster(~gone))
    part = replace(training, settings=replace(training.settings, verbose=False), rows=rows)
    shared = part.shared()
    solved = part.solve(shared, np.arange(len(rest)))
    densities = [pool.density(one) for one in solved]
    panel = Panel.of(*_aligned(solved, densities, shared), pool.n_views)
    z = np.zeros((len(rest), gone.sum(), panel.precision.shape[1]))
    strangers = training.rows.X[gone].astype(np.float64)
    for place, label in enumerate(solved):
        own = label.subspace.project(strangers)
        z[place, :, : own.shape[1]] = own
    views = panel.views(z @ panel.turn.swapaxes(1, 2), pool.tails)
    return Strangers(views, rest, owner[gone], len(rest))


def _aligned(
    labels: Sequence[SolvedLabel], densities: list[Mixture | Blend], shared: SharedRows
) -> tuple[list[Mixture | Blend], list[Ints], tuple[int, int]]:
    width = max(label.turn.shape[1] for label in labels)
    return densities, [label.kept for label in labels], (len(shared.counts), width)


def _met(
    identity: int, highest: Iterator[Array], count: int, rng: np.random.Generator
) -> tuple[Ints, int]:
    """Return the labels that score a stranger, and how many of them were drawn at random.

    `highest` yields the scores by which the other labels are selected.
    """
    others = np.delete(np.arange(count), identity) if identity < count else np.arange(count)
    scores = next(highest, None)
    if scores is None or len(others) <= FEW_LABELS:
        return others, len(others)
    if identity < count:
        scores[identity] = -np.inf
    drawn = rng.choice(others, DRAWN, replace=False)
    closest = np.argsort(-scores, kind="stable")[: CLOSEST + DRAWN]
    closest = closest[~np.isin(closest, drawn)][:CLOSEST]
    return np.concatenate([drawn, closest]), DRAWN


def _highest(solved: Solved, panel: Panel, blocks: Sequence[Ints]) -> Iterator[Array]:
    """Yield, for each block of rows, the highest score that each label gives to one of its rows.

    Coordinates are computed for many blocks at once, in single precision, which is enough here.
    """
    shared, labels = solved.shared, solved.labels
    origins = np.zeros(panel.precision.shape)
    size = len(labels[0].subspace.coefficients)
    columns: Floats = np.zeros((size, *origins.shape), dtype=np.float32)
    for place, label in enumerate(labels):
        turn = panel.turn[place, :, : label.turn.shape[1]]
        columns[:, place] = label.subspace.coefficients @ turn.T
        origins[place] = turn @ label.subspace.origin
    flat = columns.reshape(size, -1)
    shift = (origins.ravel() - shared.origin @ flat).astype(np.float32)
    sizes = np.array([len(block) for block in blocks])
    batch = np.cumsum(sizes) // max(1, EVERYONE_BYTES // (flat.itemsize * flat.shape[1]))
    for number in np.unique(batch):
        part = np.flatnonzero(batch == number)
        rows = shared.about(np.concatenate([blocks[place] for place in part.tolist()]))
        z = rows.astype(np.float32) @ flat - shift
        z = z.reshape(len(rows), *origins.shape).swapaxes(0, 1)
        scores = solved.pool.calibration(panel.views(z, solved.pool.tails))
        starts = np.cumsum(sizes[part]) - sizes[part]
        yield from np.maximum.reduceat(scores, starts, axis=1).T

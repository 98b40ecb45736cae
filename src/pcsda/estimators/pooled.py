"""Fitting a bank whose labels all share one calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..core.density import Blend, Mixture
from ..core.linalg import Array, Floats, Ints, Mask
from ..core.many import BACKGROUND, SharedRows, SolvedLabel, solve_labels
from ..core.panel import Panel
from ..core.pooling import (
    CHOICE_LABELS,
    MANY_ROWS,
    Block,
    Own,
    Pool,
    Strangers,
    calibrate,
    choose_pool,
    moved_labels,
    positive_views,
    scored_rows,
    turns_of,
)
from ..progress import progress
from .doors import Door

# Size of the sample left out for every label: at least this many rows, and over all labels at most
# this many, unless the estimator asks for fewer.
LEAST_SAMPLE, MOST_PAIRS = 1000, 10_000_000
# Number of left-out negatives, over all labels, used to fit the tails.
TAIL_PAIRS = 20_000
# With fewer rows or identities per cluster, strangers come from folds with separate clusters,
# because an identity leaves a trace in the clusters it shaped (MATH 17).
ROWS_PER_CLUSTER, PEOPLE_PER_CLUSTER = 50, 10
# Folds of identities, and the number of labels up to which the larger number is used.
FOLDS, FEW_FOLDS, FEW_LABELS = 10, 5, 40
# Large banks use no folds, which need memory for a fold's rows under all labels.
MOST_FOLD_NUMBERS = 50_000_000
# Identities used as strangers, and the labels each is scored against: those with the highest
# scores, and some drawn at random.
MOST_STRANGERS, CLOSEST, DRAWN = 1000, 16, 4
# Coordinates of identities under all labels are computed in batches of about this many bytes.
EVERYONE_BYTES = 64 << 20


@dataclass(frozen=True)
class Training:
    """The rows of a bank and the settings for fitting them.

    Attributes
    ----------
    features : array of shape (N, r)
    owner, clusters, keys, together : arrays of shape (N,)
        See `SharedRows`.
    regularization : float
    ridge : float or None
        The absolute ridge, if known.
    negatives, tails : str
    shrinkage : float or None
    n_components : int or None
    calibration_rows : int
    seed : int
    cluster : function that takes row numbers, or None
        Clusters a subset of the rows anew; None if the clusters were given.
    verbose : bool
    """

    features: Floats
    owner: Ints
    clusters: Ints
    keys: Array
    together: Ints | None
    regularization: float
    ridge: float | None
    negatives: str
    tails: str
    shrinkage: float | None
    n_components: int | None
    calibration_rows: int
    seed: int
    cluster: Callable[[Ints], Ints] | None
    verbose: bool

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.owner.max()) + 1

    def shared(self) -> SharedRows:
        """Factorise the rows."""
        most = min(self.calibration_rows, max(LEAST_SAMPLE, MOST_PAIRS // self.n_labels))
        return SharedRows.of(
            self.features,
            self.owner,
            self.clusters,
            self.keys,
            most,
            self.regularization,
            self.ridge,
            self.together,
        )

    def solve(self, shared: SharedRows, labels: Ints, text: str = "") -> list[SolvedLabel]:
        """Solve labels, keeping only the left-out rows that the tails need."""
        most = -(-TAIL_PAIRS // self.n_labels)
        found = solve_labels(shared, labels, self.n_components)
        steps = progress(found, text, enabled=self.verbose and bool(text), total=len(labels))
        return [label.thinned(most) for label in steps]


@dataclass(frozen=True)
class PooledFit:
    """All labels of a bank, their common calibration, and the scores of strangers.

    Attributes
    ----------
    shared : SharedRows
    labels : list of SolvedLabel
    densities : list of Mixture or Blend
    pool : Pool
    moved : array of shape (C, 2)
        Log slope and offset of each label, relative to the common values.
    door : Door
    """

    shared: SharedRows
    labels: list[SolvedLabel]
    densities: list[Mixture | Blend]
    pool: Pool
    moved: Array
    door: Door


def fit_pooled(training: Training, shared: SharedRows) -> PooledFit:
    """Fit all labels on factorised rows.

    Raises
    ------
    SingularMatrixError
        If a label cannot be solved on the shared rows.
    """
    numbers = np.arange(training.n_labels)
    labels = training.solve(shared, numbers, "models")
    rng = np.random.default_rng(training.seed)
    chosen = np.sort(rng.permutation(numbers)[:CHOICE_LABELS])
    identities = [shared.own(int(label)) for label in chosen]
    identities += _background(shared, rng, CHOICE_LABELS)
    fixed = training.negatives, training.shrinkage, training.tails
    pool = choose_pool(shared, chosen, [labels[i] for i in chosen], identities, *fixed)
    densities = [pool.density(label) for label in labels]
    strangers, n_met = _strangers(training, shared, labels, densities, pool, rng)
    n_views = pool.n_views
    positives, mass = positive_views(labels, densities, n_views)
    drawn = [part.views[:, : part.chosen].reshape(n_views, -1) for part in strangers]
    calibration, _ = calibrate(positives, mass, np.concatenate(drawn, axis=1))
    pool = replace(pool, calibration=calibration)
    moved, spread = _moves(training, labels, densities, pool, strangers)
    best = np.concatenate([_scores(part, calibration, moved).max(axis=0) for part in strangers])
    own = calibration(positives[:, mass == 1]) if np.any(mass == 1) else np.zeros(0)
    identity = np.concatenate([part.identity for part in strangers])
    pool = replace(pool, spread=spread)
    shared.__dict__.pop("white_rows", None)  # as large as the rows, and recomputed if needed
    return PooledFit(shared, labels, densities, pool, moved, Door(best, identity, own, n_met))


def _scores(part: Strangers, calibration: Callable[[Array], Array], moved: Array) -> Array:
    """Return calibrated scores of strangers, shape (L, n)."""
    slopes, offsets = np.exp(moved[part.labels, :1]), moved[part.labels, 1:]
    scores: Array = slopes * calibration(part.views) + offsets
    return scores


def _background(shared: SharedRows, rng: np.random.Generator, most: int) -> list[Ints]:
    """Return blocks of background rows, where each block is a separate identity."""
    rows = np.flatnonzero(shared.owner == BACKGROUND)
    if len(rows) == 0:
        return []
    if shared.together is None:
        return [rows[i : i + 1] for i in np.sort(rng.permutation(len(rows))[:most])]
    ids = rng.permutation(np.unique(shared.together[rows]))[:most]
    return [rows[shared.together[rows] == one] for one in np.sort(ids)]


def _strangers(
    training: Training,
    shared: SharedRows,
    labels: list[SolvedLabel],
    densities: list[Mixture | Blend],
    pool: Pool,
    rng: np.random.Generator,
) -> tuple[list[Strangers], float]:
    """Return views of rows from all or many identities, under labels that have not seen them."""
    count = training.n_labels
    clusters = len(shared.counts)
    small = len(shared.live) < ROWS_PER_CLUSTER * clusters or count < PEOPLE_PER_CLUSTER * clusters
    # If the axes fill the space, the last ones are poorly determined, and fixed rotations turn
    # whatever moves there into outliers.
    pairs = len(shared.live) * count * clusters / FEW_FOLDS
    small = small or (clusters >= training.features.shape[1] and pairs < MOST_FOLD_NUMBERS)
    if small and training.cluster is not None and clusters > 1:
        n_folds = min(FOLDS if count <= FEW_LABELS else FEW_FOLDS, count)
        fold = rng.permutation(count) % n_folds
        try:
            # The ridge is held, as when rows are left out in closed form.
            held = replace(training, ridge=shared.ridge)
            parts = [_fold(held, pool, fold == i) for i in range(n_folds)]
        except ValueError:  # there is no model without the fold
            parts = []
        if parts:
            return parts, count * (1 - 1 / n_folds)
    return list(_closed_form(training, shared, labels, densities, pool, rng)), count - 1.0


def _fold(training: Training, pool: Pool, away: Mask) -> Strangers:
    """Return views of some labels' rows under a bank of the other labels, clustered separately."""
    owner = training.owner
    out = np.isin(owner, np.flatnonzero(away))
    kept, gone = np.flatnonzero((owner >= BACKGROUND) & ~out), np.flatnonzero(out)
    assert training.cluster is not None
    rest = np.flatnonzero(~away)
    number = np.full(len(away), BACKGROUND)
    number[rest] = np.arange(len(rest))
    part = replace(
        training,
        features=training.features[kept],
        owner=np.where(owner[kept] >= 0, number[owner[kept]], BACKGROUND),
        clusters=training.cluster(kept),
        keys=training.keys[kept],
        together=None if training.together is None else training.together[kept],
        verbose=False,
    )
    shared = part.shared()
    solved = part.solve(shared, np.arange(len(rest)))
    densities = [pool.density(one) for one in solved]
    panel = Panel.of(*_aligned(solved, densities, shared), pool.n_views)
    z = np.zeros((len(rest), len(gone), panel.precision.shape[1]))
    rows = training.features[gone].astype(np.float64)
    for place, label in enumerate(solved):
        own = label.subspace.project(rows)
        z[place, :, : own.shape[1]] = own
    views = panel.views(z @ panel.turn.swapaxes(1, 2), pool.tails)
    return Strangers(views, rest, owner[gone], len(rest))


def _aligned(
    labels: Sequence[SolvedLabel], densities: list[Mixture | Blend], shared: SharedRows
) -> tuple[list[Mixture | Blend], list[Ints], tuple[int, int]]:
    width = max(label.turn.shape[1] for label in labels)
    return densities, [label.kept for label in labels], (len(shared.counts), width)


def _closed_form(
    training: Training,
    shared: SharedRows,
    labels: list[SolvedLabel],
    densities: list[Mixture | Blend],
    pool: Pool,
    rng: np.random.Generator,
) -> Iterator[Strangers]:
    """Remove each identity in turn, in closed form."""
    count = training.n_labels
    shared.index()
    chosen = np.sort(rng.permutation(count)[:MOST_STRANGERS])
    blocks = [(int(label), shared.own(int(label))) for label in chosen]
    others = _background(shared, rng, MOST_STRANGERS // 2)
    blocks += [(count + number, block) for number, block in enumerate(others)]
    aligned = _aligned(labels, densities, shared)
    panel, turns = Panel.of(*aligned, pool.n_views), turns_of(labels, *aligned[2])
    everyone = Everyone(labels, panel, pool)
    steps = progress(blocks, "strangers", enabled=training.verbose, total=len(blocks))
    scored = [scored_rows(block, len(blocks)) for _, block in blocks]
    # With few labels, every stranger is scored against all, so the highest scores are not needed.
    highest = everyone.best(shared, scored) if count > FEW_LABELS else iter(())
    for (identity, block), rows in zip(steps, scored, strict=True):
        met, n_drawn = _met(identity, highest, count, rng)
        away = Block.of(shared, block, met, turns[met], rows)
        views = away.views(panel.take(met), pool.tails)
        yield Strangers(views, met, np.full(views.shape[2], identity), n_drawn)


def _met(
    identity: int, highest: Iterator[Array], count: int, rng: np.random.Generator
) -> tuple[Ints, int]:
    """Return the labels an identity is scored against as a stranger, and how many are random."""
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


@dataclass
class Everyone:
    """All labels of a bank, for finding the highest scores; single precision is enough."""

    labels: list[SolvedLabel]
    panel: Panel
    pool: Pool
    columns: Floats = field(init=False)
    origins: Array = field(init=False)

    def __post_init__(self) -> None:
        count, width = self.panel.precision.shape
        size = len(self.labels[0].subspace.coefficients)
        self.columns = np.zeros((size, count, width), dtype=np.float32)
        self.origins = np.zeros((count, width))
        for place, label in enumerate(self.labels):
            turn = self.panel.turn[place, :, : label.turn.shape[1]]
            self.columns[:, place] = label.subspace.coefficients @ turn.T
            self.origins[place] = turn @ label.subspace.origin

    def best(self, shared: SharedRows, blocks: Sequence[Ints]) -> Iterator[Array]:
        """Yield every label's highest score within each block, computed for many blocks at once."""
        flat = self.columns.reshape(len(self.columns), -1)
        shift = (self.origins.ravel() - shared.origin @ flat).astype(np.float32)
        sizes = np.array([len(block) for block in blocks])
        batch = np.cumsum(sizes) // max(1, EVERYONE_BYTES // (flat.itemsize * flat.shape[1]))
        for number in np.unique(batch):
            part = np.flatnonzero(batch == number)
            rows = shared.about(np.concatenate([blocks[place] for place in part.tolist()]))
            z = rows.astype(np.float32) @ flat - shift
            z = z.reshape(len(rows), *self.origins.shape).swapaxes(0, 1)
            scores = self.pool.calibration(self.panel.views(z, self.pool.tails))
            starts = np.cumsum(sizes[part]) - sizes[part]
            yield from np.maximum.reduceat(scores, starts, axis=1).T


def _moves(
    training: Training,
    labels: list[SolvedLabel],
    densities: list[Mixture | Blend],
    pool: Pool,
    strangers: list[Strangers],
) -> tuple[Array, tuple[float, float]]:
    """Return how far each label's own rows shift its slope and offset from the common values."""
    moved = np.zeros((training.n_labels, 2))
    large = [i for i, label in enumerate(labels) if label.n_own >= MANY_ROWS]
    n_views = pool.n_views
    found: list[Own] = []
    places: list[int] = []
    met: dict[int, list[Array]] = {label: [] for label in large}
    for part in strangers:
        scores = pool.calibration(part.views[:, : part.chosen])
        for row, label in zip(scores, part.labels.tolist(), strict=False):
            if label in met:
                met[label].append(row)
    for label in large:
        positives, mass = positive_views([labels[label]], [densities[label]], n_views)
        if not met[label]:
            continue
        own, rest = pool.calibration(positives[:, mass == 1]), np.concatenate(met[label])
        weight = np.append(np.ones(len(own)), np.full(len(rest), len(own) / len(rest)))
        positive = np.arange(len(weight)) < len(own)
        found.append(Own(np.append(own, rest), positive, weight))
        places.append(label)
    points, spread = moved_labels(found)
    moved[places] = points
    return moved, spread


def solve_one(training: Training, shared: SharedRows, label: int) -> SolvedLabel:
    """Solve one label after the bank's rows have changed.

    Raises
    ------
    SingularMatrixError
        If the shared rows do not determine the label.
    """
    return training.solve(shared, np.array([label]))[0]

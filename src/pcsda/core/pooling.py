"""One calibration for all labels in a bank, from their pooled left-out scores (MATH 18).

Five rows are too few to calibrate a label, but the rows of thirty labels are enough to calibrate
them all. The labels share the shrinkage strength, the tails, the view weights and the offset.
Positives are left out row by row; negatives are left out one identity at a time. A label with many
rows may deviate from the common slope and offset, as far as its rows justify it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .calibration import Calibration, Scored, fit_calibration
from .density import Blend, Mixture
from .left_density import left_out_squares
from .linalg import Array, Ints
from .many import SolvedLabel
from .panel import Panel, Tails
from .predictive import pseudo_positives
from .shared_rows import SharedRows
from .strangers import Away, as_strangers
from .student import fit_tail

# Shrinkage strengths to try.
STRENGTHS = (3.0, 10.0, 30.0, 100.0)
# Number of labels on which strength and tails are chosen, and of identities scored for each.
CHOICE_LABELS = 40
# With at least this many left-out positives, no pseudo-positives are needed.
ENOUGH_POSITIVES = 20
# Labels with at least this many rows show how much labels deviate from the common calibration.
MANY_ROWS = 20
# Spread of log slope and offset between labels, assumed if fewer than LEAST_LABELS can show it.
USUAL_SPREAD, LEAST_LABELS = 0.3, 5
# At most ROWS_OF_STRANGER rows of one identity are scored as strangers, or an equal share of
# ROWS_OF_STRANGERS if that is larger.
ROWS_OF_STRANGER, ROWS_OF_STRANGERS = 10, 2000


@dataclass(frozen=True)
class Pool:
    """Settings that all labels in a bank share.

    Attributes
    ----------
    negatives : {"blend", "mixture"}
    shrinkage : float
    tails : Tails
    calibration : Calibration
    spread : tuple of two floats
        Standard deviations, between labels, of the log slope and of the offset.
    """

    negatives: str
    shrinkage: float
    tails: Tails
    calibration: Calibration = field(default_factory=Calibration)
    spread: tuple[float, float] = (0.0, 0.0)

    @property
    def n_views(self) -> int:
        """Number of views, the same for all labels.

        With two views, a label without a cloud has its mixture view twice.
        """
        return 2 if self.negatives == "blend" else 1

    def density(self, label: SolvedLabel) -> Mixture | Blend:
        """Return a label's density with the common tails."""
        return with_tails(label.density(self.negatives, self.shrinkage), self.tails)


@dataclass(frozen=True)
class Strangers:
    """Views (log density ratios) of rows under labels that were fitted without these rows.

    Attributes
    ----------
    views : array of shape (n_views, L, n)
    labels : array of shape (L,)
        Label numbers.
    identity : array of shape (n,)
        Identity of each row.
    chosen : int
        The first `chosen` labels were drawn at random; the others are the highest-scoring labels.
    """

    views: Array
    labels: Ints
    identity: Ints
    chosen: int


def with_tails(density: Mixture | Blend, tails: Tails) -> Mixture | Blend:
    """Return a density with the given degrees of freedom."""
    if isinstance(density, Blend):
        return replace(density, base=replace(density.base, tail=tails.mixture), tail=tails.cloud)
    return replace(density, tail=tails.mixture)


def common_tails(labels: Sequence[SolvedLabel], densities: Sequence[Mixture | Blend]) -> Tails:
    """Fit the degrees of freedom to the left-out negatives of many labels together.

    Only labels with the most common number of axes are used.
    """
    widths = [len(density.base.positive) for density in densities]
    usual = max(set(widths), key=widths.count)
    about_centres: list[tuple[Array, Array]] = []
    on_axis: list[tuple[Array, Array]] = []
    for label, density, width in zip(labels, densities, widths, strict=True):
        left = label.subspace.left_rows
        if width != usual:
            continue
        known, squares = left_out_squares(density.base.spreads[1], density.base.centres, left)
        about_centres.append((squares, left.mass[known]))
        if isinstance(density, Blend):
            on_axis.append((density.cloud_squares(left)[known], left.mass[known]))
    mixture = _joint_tail(about_centres, usual)
    return Tails(mixture, _joint_tail(on_axis, 1)) if on_axis else Tails(mixture)


def _joint_tail(parts: Sequence[tuple[Array, Array]], width: int) -> float:
    """Fit the degrees of freedom to the squared distances and weights of several labels."""
    squares, mass = map(np.concatenate, zip(*parts, strict=True))
    return fit_tail(squares, width, mass)


def turns_of(labels: Sequence[SolvedLabel], n_clusters: int, width: int) -> Array:
    """Stack the rotations of all labels in one array of shape (L, K, d).

    Entries are zero for clusters and axes that a label does not have.
    """
    turns = np.zeros((len(labels), n_clusters, width))
    for place, label in enumerate(labels):
        turns[place, label.kept, : label.turn.shape[1]] = label.turn
    return turns


def scored_rows(block: Ints, n_identities: int) -> Ints:
    """Select the rows of one identity that are scored as strangers.

    `block` holds the numbers of all rows of the identity, and `n_identities` is the number of
    identities that are scored.
    """
    most = max(ROWS_OF_STRANGER, ROWS_OF_STRANGERS // n_identities)
    return block[:: -(-len(block) // most)]


@dataclass(frozen=True)
class Block:
    """Rows of one identity, projected by labels that were fitted without the identity.

    `z` holds the rows on the axes of each label. `centres` and `log_weights` are the subclass means
    and log weights of each label's negatives without the identity.
    """

    z: Array
    centres: Array
    log_weights: Array

    @classmethod
    def of(
        cls, shared: SharedRows, block: Ints, labels: Ints, turns: Array, scored: Ints | None = None
    ) -> Block:
        """Remove a block of rows from the negatives of some labels, and project these rows.

        `scored` holds the numbers of the rows to project; by default, all rows of the block.
        """
        scored = block if scored is None else scored
        return cls(*as_strangers(shared, Away.of(shared, block, scored), labels, turns))

    def views(self, panel: Panel, tails: Tails) -> Array:
        """Return the views of the rows under the densities in `panel`."""
        turn = panel.turn.swapaxes(1, 2)
        moved = panel.with_centres(self.centres @ turn, self.log_weights)
        return moved.views(self.z @ turn, tails)


def choose_pool(
    shared: SharedRows,
    numbers: Ints,
    labels: Sequence[SolvedLabel],
    identities: Sequence[Ints],
    negatives: str,
    shrinkage: float | None,
    tails: str,
) -> Pool:
    """Choose shrinkage strength and tails by the log-loss of left-out scores.

    Parameters
    ----------
    shared : SharedRows
    numbers : array of shape (L,)
        Numbers of the labels.
    labels : sequence of SolvedLabel
    identities : sequence of row numbers
        Row numbers of each identity that is scored as a stranger. Each identity is scored by all
        labels except its own.
    negatives, tails : str
        As in `fit.Rule`.
    shrinkage : float or None
        The shrinkage strength; if None, several are tried.
    """
    shared.index()
    width = max(label.turn.shape[1] for label in labels)
    turns = turns_of(labels, len(shared.counts), width)
    met = [np.flatnonzero(numbers != shared.owner[block[0]]) for block in identities]
    blocks = [
        Block.of(shared, block, numbers[others], turns[others], scored_rows(block, len(met)))
        for block, others in zip(identities, met, strict=True)
    ]
    tried: list[tuple[float, Pool]] = []
    for strength in STRENGTHS if shrinkage is None else (shrinkage,):
        densities = [label.density(negatives, strength) for label in labels]
        found = common_tails(labels, densities) if tails == "fitted" else Tails()
        pool = Pool(negatives, strength, found)
        densities = [with_tails(density, found) for density in densities]
        kept = [label.kept for label in labels]
        panel = Panel.of(densities, kept, turns.shape[1:], pool.n_views)
        views = [
            block.views(panel.take(others), found).reshape(panel.n_views, -1)
            for block, others in zip(blocks, met, strict=True)
        ]
        positives, mass = positive_views(labels, densities, panel.n_views)
        calibration, loss = calibrate(positives, mass, np.concatenate(views, axis=1))
        tried.append((loss, replace(pool, calibration=calibration)))
    return min(tried, key=lambda pair: pair[0])[1]


def positive_views(
    labels: Sequence[SolvedLabel], densities: Sequence[Mixture | Blend], n_views: int
) -> tuple[Array, Array]:
    """Return views (n_views, n) of all labels' left-out positives, and their weights.

    If positives are few, pseudo-positives are added where new positives may lie (MATH 16).
    """
    views: list[Array] = []
    pseudo: list[Array] = []
    for label, density in zip(labels, densities, strict=True):
        left = label.own_left
        counts = label.subspace.projected.counts
        own = density.left_out_views(left, counts)[:, left.known]
        views.append(np.broadcast_to(own, (n_views, own.shape[1])))
        few = pseudo_positives(label.subspace)
        if few is not None:
            rows = density.views(few[0])
            pseudo.append(np.broadcast_to(rows, (n_views, rows.shape[1])))
    seen = np.concatenate(views, axis=1)
    mass = np.ones(seen.shape[1])
    if len(mass) >= ENOUGH_POSITIVES or not pseudo:
        return seen, mass
    more = np.concatenate(pseudo, axis=1)
    share = np.full(more.shape[1], (ENOUGH_POSITIVES - len(mass)) / more.shape[1])
    return np.concatenate([seen, more], axis=1), np.append(mass, share)


def calibrate(positives: Array, mass: Array, negatives: Array) -> tuple[Calibration, float]:
    """Fit view weights and an offset, with equal weight for both classes, and compute the log-loss.

    `mass` holds the weights of the positives.
    """
    views = np.concatenate([positives, negatives], axis=1)
    positive = np.arange(views.shape[1]) < positives.shape[1]
    total = max(mass.sum(), 1.0)
    rest = np.full(negatives.shape[1], total / max(negatives.shape[1], 1))
    weight = np.append(mass, rest)
    found = fit_calibration(views, positive, weight)
    wrong = np.where(positive, -1.0, 1.0) * found(views)
    return found, float(weight @ np.logaddexp(0.0, wrong) / weight.sum())


def moved_labels(scores: Sequence[Scored]) -> tuple[Array, tuple[float, float]]:
    """Return each label's deviations (L, 2) from the common log slope and offset, and their spread.

    `scores` holds the scores of each label's rows under the common calibration. The squared spread
    is the variance of the labels' estimates minus the variance of the estimation errors. With fewer
    than `LEAST_LABELS` labels, the spread is `USUAL_SPREAD`.
    """
    if not scores:
        return np.zeros((0, 2)), (0.0, 0.0)
    spread = USUAL_SPREAD, USUAL_SPREAD
    if len(scores) >= LEAST_LABELS:
        found, errors = map(
            np.array, zip(*(_moved(own, (1.0, 1.0)) for own in scores), strict=True)
        )
        learned = np.sqrt(np.maximum((found**2 - errors).mean(axis=0), 0.0))
        spread = float(min(learned[0], 1.0)), float(min(learned[1], 3.0))
    return np.array([_moved(own, spread)[0] for own in scores]), spread


def _moved(own: Scored, spread: tuple[float, float]) -> tuple[Array, Array]:
    """Return a label's most likely log slope and offset, and the variances of both estimates.

    The log slope and the offset are relative to the common calibration. Both have normal priors
    about zero, with standard deviations `spread`. They are found by Newton steps.
    """
    prior = np.array([1 / max(size, 1e-3) ** 2 for size in spread])
    point = np.zeros(2)
    sign, weight = np.where(own.positive, -1.0, 1.0), own.evidence
    hessian = np.diag(prior)
    for _ in range(25):
        slope = np.exp(point[0])
        wrong = sign * (slope * own.scores + point[1])
        share = 1 / (1 + np.exp(-np.clip(wrong, -500, 500)))
        error, curve = weight * share * sign, weight * share * (1 - share)
        each = np.stack([slope * own.scores, np.ones(len(sign))])
        gradient = each @ error + prior * point
        hessian = (each * curve) @ each.T + np.diag(prior)
        hessian[0, 0] += max(float(each[0] @ error), 0.0)
        step = np.linalg.solve(hessian, gradient)
        point = point - np.clip(step, -0.5, 0.5)
        if np.abs(step).max() < 1e-10:
            break
    variances: Array = np.linalg.inv(hessian).diagonal()
    return point, variances

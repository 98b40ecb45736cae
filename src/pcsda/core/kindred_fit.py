"""Fit labels that share two covariances (MATH 18).

Labels are left out in folds, and their rows are scored as strangers, that is, rows of unknown
labels. Some rows of the remaining labels are also left out, and scored for their own labels. Both
kinds of scores determine the ridge, the tails and the calibration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .calibration import Calibration
from .kindred import Kindred, ledoit_wolf
from .labelled import LabelledRows, LabelSums
from .linalg import Array, Floats, Ints
from .pooling import calibrate
from .student import energy, fit_tail

# Number of folds of labels that act as strangers; with at most FEW_LABELS, each label is a fold.
FOLDS, FEW_LABELS = 10, 40
# With each fold, one row is also left out of each label in this many following folds.
OWN_FOLDS = 3
# Largest number of rows scored as strangers, per label and in total.
ROWS_OF_STRANGER, ROWS_OF_STRANGERS = 10, 5000
# Number of labels, drawn at random, for which the calibration uses the scores of strangers.
DRAWN = 40
# Ridges to try, relative to that of Ledoit and Wolf, if there are at most MOST_TRIED labels.
RIDGES, MOST_TRIED = (0.1, 0.3, 1.0, 3.0), 1000
# Largest shrinkage weight; above it, the ridge would replace the spread within labels.
MOST_SHRINKAGE = 0.999


@dataclass(frozen=True)
class Fold:
    """A model without some labels, which act as strangers, and without one row of other labels.

    Attributes
    ----------
    kindred : Kindred
        Covariances and means of the remaining labels.
    counts : array of shape (L,)
        Number of rows of each remaining label.
    z : array of shape (n, q)
        Rows of strangers, on the axes.
    identity : array of shape (n,)
        Label of each stranger's row.
    own : array of shape (m, q)
        Rows left out of the remaining labels, on the axes.
    of_own : array of shape (m,)
        Index of the label of each row in `own`, among the remaining labels.
    """

    kindred: Kindred
    counts: Array
    z: Array
    identity: Ints
    own: Array
    of_own: Ints

    def squares(self) -> tuple[Array, Array]:
        """Return squared Mahalanobis distances of strangers and of own rows, as two arrays.

        Strangers are measured from the centre, and own rows from their label's posterior mean.
        """
        law = self.kindred.law
        counts = self.counts[self.of_own]
        apart = self.own - law.expected(self.kindred.means[self.of_own], counts)
        return law.outside(self.z), (apart**2 / law.variances(counts)).sum(axis=1)

    def views(self, tail: float, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Return three arrays of log ratios, with degrees of freedom `tail`.

        The first holds each stranger's highest log ratio for any label. The second holds the log
        ratios of strangers for random labels. The third holds the log ratio of each row in `own`
        for its own label.
        """
        law = replace(self.kindred.law, tail=tail)
        labels, width = law.places(self.kindred.means, self.counts), len(law.values)
        ratios = law.ratios(self.z, labels)
        drawn = rng.permutation(ratios.shape[1])[:DRAWN]
        inside = energy(self.squares()[1], width, tail)
        own = energy(law.outside(self.own), width, tail) - inside + labels.volumes[self.of_own]
        return ratios.max(axis=1), ratios[:, drawn].ravel(), own


@dataclass(frozen=True)
class KindredFit:
    """Fitted labels that share covariances, with the scores of left-out strangers and rows.

    Attributes
    ----------
    kindred : Kindred
    ridge : float
        The absolute ridge.
    sums : LabelSums
    calibration : Calibration
    best : array of shape (n,)
        Highest score of each stranger's row for any label.
    identity : array of shape (n,)
        Label of each stranger's row.
    own : array of shape (m,)
        Score of each left-out row for its own label.
    n_met : float
        Number of labels that each stranger was scored against.
    loss : float
        Log-loss, in nats, of a logistic regression that separates the scores of left-out rows from
        the highest scores of strangers. A threshold must separate these two kinds of scores.
    pair_loss : float
        The same log-loss, but with the scores of strangers for random labels instead of their
        highest scores. Verification must separate these scores from those of left-out rows. This
        loss still distinguishes models when the highest scores of strangers overlap with those of
        left-out rows.
    """

    kindred: Kindred
    ridge: float
    sums: LabelSums
    calibration: Calibration
    best: Array
    identity: Ints
    own: Array
    n_met: float
    loss: float
    pair_loss: float


def fit_kindred(
    rows: Floats,
    owner: Ints,
    rng: np.random.Generator,
    *,
    ridge: float | None = None,
    ridges: Sequence[float] | None = None,
    tails: bool = True,
    steps: Callable[[Iterator[Fold], int], Iterator[Fold]] = lambda folds, _: folds,
) -> KindredFit:
    """Fit both covariances, and calibrate the scores on left-out labels and rows.

    Labels are left out in folds. For each fold, everything but the ridge is fitted without the
    left-out labels.

    Parameters
    ----------
    rows : array of shape (N, r)
    owner : array of shape (N,)
        Label of each row, or -1 for a background row. Each background row counts as a separate
        label with one row. Background rows are not left out as strangers, because it is unknown
        which of them belong together.
    rng : Generator
    ridge : float, optional
        The absolute ridge. The default is the multiple of the ridge from Ledoit-Wolf shrinkage
        within labels that best separates left-out rows from strangers. If the spread within labels
        is assumed (:func:`spread_unknown`), a ridge must be given but has no effect.
    ridges : sequence of float, optional
        The multiples of that ridge to try: by default `RIDGES`, or only 1 if there are many labels.
    tails : bool
        Whether to fit the tails to left-out rows; otherwise they are Gaussian.
    steps : function of folds and their number
        Returns the same folds, and reports progress.

    Raises
    ------
    SingularMatrixError
        If the rows do not determine the covariances.
    """
    known = LabelledRows.of(rows, owner)
    n_folds = FOLDS if len(known.counts) > FEW_LABELS else len(known.counts)
    fold = rng.permutation(len(known.counts)) % n_folds
    parts, fourth = _scatters(known, fold, n_folds)
    sums = LabelSums(known.counts, known.means, np.sum(parts, axis=0), known.others)
    if sums.single:
        assert ridge is not None
        folds = list(steps(_folds(known, sums, fold, parts, None, rng), n_folds))
        return _settled(sums, folds, ridge, tails, rng)
    if ridge is not None:
        absolute = [ridge]
    else:
        share = min(ledoit_wolf(sums.scatter, fourth, len(known.rows)), MOST_SHRINKAGE)
        usual = share / (1 - share) * float(sums.scatter.trace()) / len(sums.scatter)
        tried = RIDGES if len(known.counts) <= MOST_TRIED else (1.0,)
        absolute = [times * usual for times in ridges or tried]
    seed = int(rng.integers(2**31))
    found: list[KindredFit] = []
    for one in absolute:
        again = np.random.default_rng(seed)  # the same strangers for all ridges
        made = _folds(known, sums, fold, parts, one, again)
        folds = list(made if found else steps(made, n_folds))
        found.append(_settled(sums, folds, one, tails, again))
    return min(found, key=lambda fit: fit.loss)


def _settled(
    sums: LabelSums, folds: Sequence[Fold], ridge: float, tails: bool, rng: np.random.Generator
) -> KindredFit:
    """Fit the covariances to all rows, and the tails and the calibration to the folds."""
    kindred = Kindred.assumed(sums) if sums.single else Kindred.fit(sums, ridge)
    tail = common_tail(folds, with_own=not sums.single) if tails else np.inf
    views = [one.views(tail, rng) for one in folds]
    highest, drawn, own = (np.concatenate([part[kind] for part in views]) for kind in range(3))
    calibration, pair_loss = calibrate(own[None], np.ones(len(own)), drawn[None])
    highest, own = calibration(highest[None]), calibration(own[None])
    _, loss = calibrate(own[None], np.ones(len(own)), highest[None])
    return KindredFit(
        replace(kindred, tail=tail),
        ridge,
        sums,
        calibration,
        highest,
        np.concatenate([one.identity for one in folds]),
        own,
        len(sums.counts) * (1 - 1 / len(folds)),
        loss,
        pair_loss,
    )


def _scatters(known: LabelledRows, fold: Ints, n_folds: int) -> tuple[list[Array], float]:
    """Return each fold's scatter within labels, and the sum of fourth powers over all folds.

    The fourth powers are those of the lengths of the residuals, rows minus their label means.
    """
    parts, fourth = [], 0.0
    of_rows = fold[known.owner]
    for number in range(n_folds):
        apart = known.residuals(np.flatnonzero(of_rows == number))
        parts.append(apart.T @ apart)
        fourth += float((np.einsum("ij,ij->i", apart, apart) ** 2).sum())
    return parts, fourth


def _folds(
    known: LabelledRows,
    sums: LabelSums,
    fold: Ints,
    parts: Sequence[Array],
    ridge: float | None,
    rng: np.random.Generator,
) -> Iterator[Fold]:
    """Leave out each fold of labels in turn, and with it one row of each label in the next folds.

    If `ridge` is None, the covariance within labels is assumed. Then `own` holds no left-out rows:
    the model draws one row for each remaining label instead.
    """
    n_folds = len(parts)
    of_rows = fold[known.owner]
    most = max(1, min(ROWS_OF_STRANGER, ROWS_OF_STRANGERS // len(known.counts)))
    for number in range(n_folds):
        left = np.flatnonzero(fold != number)
        place = np.full(len(fold), -1)
        place[left] = np.arange(len(left))
        later = (fold - number) % n_folds
        turns = range(1, min(OWN_FOLDS, n_folds - 1) + 1)
        chosen = np.concatenate([known.some(np.flatnonzero(later == turn), turn) for turn in turns])
        of_own = known.owner[chosen]
        remaining = known.without(chosen, sums.scatter - parts[number])
        rest = remaining.some(left)
        kindred = Kindred.assumed(rest) if ridge is None else Kindred.fit(rest, ridge)
        strangers = _some(np.flatnonzero(of_rows == number), known.owner, most, rng)
        own, of_own = kindred.project(known.rows[chosen].astype(np.float64)), place[of_own]
        if ridge is None:  # labels with a single row have no row to leave out
            own, of_own = kindred.law.draw(kindred.means, rest.counts, rng), np.arange(len(left))
        z = kindred.project(known.rows[strangers].astype(np.float64))
        yield Fold(kindred, rest.counts, z, known.owner[strangers], own, of_own)


def _some(rows: Ints, owner: Ints, most: int, rng: np.random.Generator) -> Ints:
    """Draw some of the given rows, but at most `most` rows of each label.

    The total is at most the share of one fold in `ROWS_OF_STRANGERS`.
    """
    order = rows[np.lexsort((rng.random(len(rows)), owner[rows]))]
    _, starts, counts = np.unique(owner[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(starts, counts)
    found = order[place < most]
    limit = ROWS_OF_STRANGERS // FOLDS
    return found if len(found) <= limit else rng.permutation(found)[:limit]


def common_tail(folds: Sequence[Fold], *, with_own: bool = True) -> float:
    """Return the degrees of freedom under which left-out rows are most likely.

    Only the shape of the distribution matters, so squared distances are divided by their mean. The
    fit uses the rows of strangers and, with `with_own`, the rows left out of their own labels. Set
    `with_own` to False if the model drew these rows.
    """
    width = int(np.median([len(one.kindred.values) for one in folds]))
    squares = [one.squares() for one in folds]
    kinds = [np.concatenate([pair[kind] for pair in squares]) for kind in range(1 + with_own)]
    scaled = [kind * (width / kind.mean()) for kind in kinds if len(kind)]
    return fit_tail(np.concatenate(scaled), width, np.ones(sum(map(len, scaled))))

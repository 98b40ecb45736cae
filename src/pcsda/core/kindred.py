"""Labels that share two covariances: that of rows within labels, and that between labels.

A label is drawn from N(c, Phi_b), its rows from N(label, Phi_w) (MATH 18). Given its n rows, the
mean of a label has a posterior. A new row is compared under two predictive distributions: that of
the label, and that of a stranger, N(c, Phi_b + Phi_w). On axes on which Phi_w is the identity and
Phi_b is diagonal with entries v, both factorise over the axes:

    stranger:              mean 0,                 variance 1 + v
    label, mean z, n rows: mean z n v / (1 + n v), variance 1 + v / (1 + n v)

The axes span the subspace of PCSDA with the labels as subclasses, which is the same for every
label, so a row is projected once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from . import linalg
from .calibration import Calibration
from .linalg import Array, Floats, Ints, SingularMatrixError
from .pooling import calibrate
from .scatter import group_means
from .student import energy, fit_tail

# Folds of labels that are strangers in turn; with up to this many labels, each is a fold.
FOLDS, FEW_LABELS = 10, 40
# For each fold, one row is left out of the labels of this many following folds.
OWN_FOLDS = 3
# Rows scored as strangers: at most this many of one label, and in all.
ROWS_OF_STRANGER, ROWS_OF_STRANGERS = 10, 5000
# Labels drawn for each stranger, if the calibration does not use all.
DRAWN = 40
# Ridges to try, relative to Ledoit and Wolf's, in banks of up to this many labels.
RIDGES, MOST_TRIED = (0.1, 0.3, 1.0, 3.0), 1000
# Above this, the spread within labels would be the ridge alone.
MOST_SHRINKAGE = 0.999


def ledoit_wolf(scatter: Array, fourth: float, count: float) -> float:
    """Ledoit and Wolf's weight of the identity for rows about zero.

    Parameters
    ----------
    scatter : array of shape (r, r)
        Sum of the squares of the rows.
    fourth : float
        Sum of the fourth powers of their lengths.
    count : float
        Number of rows.
    """
    size = len(scatter)
    square = float(np.einsum("ij,ij->", scatter, scatter)) / count**2
    apart = (square - (scatter.trace() / count) ** 2 / size) / size
    noise = (fourth / count - square) / (size * count)
    return 1.0 if apart <= 0 else float(np.clip(noise / apart, 0.0, 1.0))


@dataclass(frozen=True)
class LabelSums:
    """Statistics of labelled rows.

    Attributes
    ----------
    counts : array of shape (C,)
    means : array of shape (C, r)
    scatter : array of shape (r, r)
        Scatter of the rows about the means of their labels.
    """

    counts: Array
    means: Array
    scatter: Array

    @property
    def free(self) -> float:
        """Degrees of freedom: the number of rows minus the number of labels."""
        return float(self.counts.sum()) - len(self.counts)


@dataclass(frozen=True)
class Kindred:
    """Two covariances, on axes on which the one within labels is the identity.

    Attributes
    ----------
    centre : array of shape (r,)
        c, the mean of the label means.
    axes : array of shape (r, q)
    values : array of shape (q,)
        Variances v between labels on the axes.
    scale : float
        ``Phi_w = scale (S_w + ridge I)``.
    tail : float
        Degrees of freedom of both predictive distributions.
    """

    centre: Array
    axes: Array
    values: Array
    scale: float
    tail: float = np.inf

    @classmethod
    def fit(cls, sums: LabelSums, ridge: float) -> Kindred:
        """Fit the covariances: ``r^3/3``, and products with the means.

        The covariance between labels is shrunk by Ledoit and Wolf's rule on these axes.

        Raises
        ------
        SingularMatrixError
            If no label has two rows, or labels differ no more than their rows do.
        """
        count, size = sums.means.shape
        if sums.free <= 0 or count < 3:
            raise SingularMatrixError("no label shows how its rows spread")
        centre = sums.means.mean(axis=0)
        apart = sums.means - centre
        level = float(sums.scatter.trace()) / size
        if level <= linalg.SAME_POINT**2 * float(np.einsum("ij,ij->", apart, apart)):
            raise SingularMatrixError("the rows of each label are equal")
        scale = (level / (level + ridge)) / sums.free
        factor = linalg.cholesky(sums.scatter, ridge)
        white = linalg.lower_solve(factor, apart.T).T / np.sqrt(scale)
        variances, turn = principal(white)
        fourth = float((np.einsum("ij,ij->i", white, white) ** 2).sum())
        share = ledoit_wolf(np.diag(variances * (count - 1)), fourth, count)
        values = (1 - share) * variances + share * variances.mean()
        values = values - float(np.mean(1 / sums.counts))
        if values[0] <= 0:
            raise SingularMatrixError("labels differ no more than their rows do")
        axes = linalg.lower_solve(factor, turn, transposed=True) / np.sqrt(scale)
        return cls(centre, axes, np.maximum(values, 0.0), scale)

    def project(self, rows: Array) -> Array:
        """Coordinates of rows."""
        z: Array = (rows - self.centre) @ self.axes
        return z

    @property
    def law(self) -> Predictive:
        """The predictive distributions, for scoring."""
        return Predictive(self.values, self.tail)


def principal(rows: Array) -> tuple[Array, Array]:
    """Variances of centred rows in descending order, and their directions as columns."""
    count, size = rows.shape
    wide = size > count
    values, vectors = linalg.eigh_descending(rows @ rows.T if wide else rows.T @ rows)
    rank = min(count - 1, size)
    rank = int(np.sum(values[:rank] > linalg.SAME_POINT * values[0]))
    values, vectors = values[:rank], vectors[:, :rank]
    turn = rows.T @ (vectors / np.sqrt(values)) if wide else vectors
    return values / (count - 1), turn


@dataclass(frozen=True)
class Predictive:
    """The two predictive distributions on the axes.

    Attributes
    ----------
    values : array of shape (q,)
    tail : float
    """

    values: Array
    tail: float

    def expected(self, means: Array, counts: Array) -> Array:
        """Posterior means (C, q) of labels from the means of their rows."""
        shrunk = counts[:, None] * self.values
        found: Array = means * (shrunk / (1 + shrunk))
        return found

    def variances(self, counts: Array) -> Array:
        """Variances (C, q) of a new row about the posterior mean of its label."""
        found: Array = 1 + self.values / (1 + counts[:, None] * self.values)
        return found

    def outside(self, z: Floats) -> Array:
        """Squared distance of rows from the centre under the distribution of a stranger."""
        square: Array = (z * z) @ (1 / (1 + self.values)).astype(z.dtype)
        return square

    def ratios(self, z: Floats, labels: Places) -> Array:
        """Log ratios (n, C) of rows for all labels, in the precision of the rows."""
        width = len(self.values)
        inside: Array = (-2 * z) @ labels.pulls.T
        of_sizes = (z * z) @ labels.precisions.T
        inside += of_sizes if of_sizes.shape[1] == 1 else of_sizes[:, labels.size]
        inside += labels.lengths
        outside = energy(self.outside(z), width, self.tail)
        found = energy(inside, width, self.tail)
        np.subtract(outside[:, None], found, out=found)
        found += labels.volumes
        return found

    def places(self, means: Array, counts: Array) -> Places:
        """Prepare labels for `ratios`."""
        sizes, which = np.unique(counts, return_inverse=True)
        variances = self.variances(sizes)
        expected = self.expected(means, counts)
        pulls = expected / variances[which]
        lengths = np.einsum("ij,ij->i", pulls, expected)
        volumes = 0.5 * (np.log1p(self.values) - np.log(variances)).sum(axis=1)
        return Places(pulls, 1 / variances, which, lengths, volumes[which])


@dataclass(frozen=True)
class Places:
    """Labels prepared for products: an array for each label, and one for each number of rows.

    Attributes
    ----------
    pulls : array of shape (C, q)
        Posterior means divided by the variances.
    precisions : array of shape (U, q)
        Inverse variances for labels of each size.
    size : array of shape (C,)
        Index of each label's size.
    lengths, volumes : arrays of shape (C,)
        Squared lengths of the posterior means, and log ratios of the volumes.
    """

    pulls: Array
    precisions: Array
    size: Ints
    lengths: Array
    volumes: Array

    def single(self) -> Places:
        """The same in single precision."""
        arrays = {
            name: getattr(self, name).astype(np.float32)
            for name in ("pulls", "precisions", "lengths", "volumes")
        }
        return replace(self, **arrays)


@dataclass(frozen=True)
class LabelledRows:
    """Rows of labels, by label.

    Attributes
    ----------
    rows : array of shape (N, r)
    owner : array of shape (N,)
        Label of each row; -1 for unlabelled rows.
    counts : array of shape (C,)
    means : array of shape (C, r)
    """

    rows: Floats
    owner: Ints
    counts: Array
    means: Array

    @classmethod
    def of(cls, rows: Floats, owner: Ints) -> LabelledRows:
        """Compute the label means."""
        if np.any(owner < 0):
            rows, owner = rows[owner >= 0], owner[owner >= 0]
        counts = np.bincount(owner).astype(np.float64)
        return cls(rows, owner, counts, group_means(rows, owner, counts, None))

    def residuals(self, chosen: Ints) -> Array:
        """Rows about the means of their labels."""
        apart: Array = self.rows[chosen] - self.means[self.owner[chosen]]
        return apart

    def some(self, labels: Ints, turn: int) -> Ints:
        """One row of each of these labels with two or more rows; another in each turn."""
        order = np.argsort(self.owner, kind="stable")
        sizes = self.counts.astype(np.intp)
        starts = np.cumsum(sizes) - sizes
        labels = labels[sizes[labels] > 1]
        found: Ints = order[starts[labels] + turn % sizes[labels]]
        return found


@dataclass(frozen=True)
class Fold:
    """A bank without some labels, its strangers, and without one row of some other labels.

    Attributes
    ----------
    kindred : Kindred
    means : array of shape (L, q)
        Means of the remaining labels.
    counts : array of shape (L,)
    z : array of shape (n, q)
        Rows of strangers.
    identity : array of shape (n,)
        Identity of each row.
    own : array of shape (m, q)
        Rows left out of their own labels.
    of_own : array of shape (m,)
        Index of their labels among the remaining ones.
    """

    kindred: Kindred
    means: Array
    counts: Array
    z: Array
    identity: Ints
    own: Array
    of_own: Ints

    def squares(self) -> tuple[Array, Array]:
        """Squared distances of strangers from the centre, and of left-out rows from their label."""
        law = self.kindred.law
        counts = self.counts[self.of_own]
        apart = self.own - law.expected(self.means[self.of_own], counts)
        return law.outside(self.z), (apart**2 / law.variances(counts)).sum(axis=1)

    def views(self, tail: float, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Log ratios: best of each stranger, of strangers for some labels, of own left-out rows."""
        law = replace(self.kindred.law, tail=tail)
        labels, width = law.places(self.means, self.counts), len(law.values)
        ratios = law.ratios(self.z, labels)
        drawn = rng.permutation(ratios.shape[1])[:DRAWN]
        inside = energy(self.squares()[1], width, tail)
        own = energy(law.outside(self.own), width, tail) - inside + labels.volumes[self.of_own]
        return ratios.max(axis=1), ratios[:, drawn].ravel(), own


@dataclass(frozen=True)
class KindredFit:
    """A fit of labels that share covariances, with the scores of strangers.

    Attributes
    ----------
    kindred : Kindred
    ridge : float
        The absolute ridge.
    means : array of shape (C, q)
        Means of the labels' rows on the axes.
    counts : array of shape (C,)
    calibration : Calibration
    best : array of shape (n,)
        Best score of each row of a stranger.
    identity : array of shape (n,)
        Identity of each row.
    own : array of shape (m,)
        Scores of left-out rows for their own labels.
    n_met : float
        Number of labels that each stranger was scored against.
    """

    kindred: Kindred
    ridge: float
    means: Array
    counts: Array
    calibration: Calibration
    best: Array
    identity: Ints
    own: Array
    n_met: float


def fit_kindred(
    rows: Floats,
    owner: Ints,
    rng: np.random.Generator,
    *,
    ridge: float | None = None,
    tails: bool = True,
    steps: Callable[[Iterator[Fold], int], Iterator[Fold]] = lambda folds, _: folds,
) -> KindredFit:
    """Fit both covariances, and calibrate on left-out labels and rows.

    Labels are left out in folds, and everything but the ridge is fitted without them.

    Parameters
    ----------
    rows : array of shape (N, r)
    owner : array of shape (N,)
        Label of each row; -1 for unlabelled rows, which are not used.
    ridge : float, optional
        The absolute ridge; by default that of Ledoit and Wolf's shrinkage within labels, or a
        multiple from `RIDGES` if it separates left-out rows from strangers better.
    tails : bool
        Whether tails are fitted to left-out rows; otherwise they are Gaussian.
    steps : function of folds and their number
        Reports progress.

    Raises
    ------
    SingularMatrixError
        If the rows do not determine the covariances.
    """
    known = LabelledRows.of(rows, owner)
    n_folds = FOLDS if len(known.counts) > FEW_LABELS else len(known.counts)
    fold = rng.permutation(len(known.counts)) % n_folds
    parts, fourth = _scatters(known, fold, n_folds)
    sums = LabelSums(known.counts, known.means, np.sum(parts, axis=0))
    ridges = [ridge]
    if ridge is None:
        share = min(ledoit_wolf(sums.scatter, fourth, len(known.rows)), MOST_SHRINKAGE)
        usual = share / (1 - share) * float(sums.scatter.trace()) / len(sums.scatter)
        tried = RIDGES if len(known.counts) <= MOST_TRIED else (1.0,)
        ridges = [times * usual for times in tried]
    seed = int(rng.integers(2**31))
    best, least = None, np.inf
    for number, one in enumerate(ridges):
        assert one is not None
        again = np.random.default_rng(seed)  # the same strangers for all ridges
        made = _folds(known, sums, fold, parts, one, again)
        folds = list(steps(made, n_folds) if number == 0 else made)
        found = _settled(known, sums, folds, one, tails, again)
        # Left-out rows against the best scores of strangers: what a threshold must separate.
        _, loss = calibrate(found.own[None], np.ones(len(found.own)), found.best[None])
        if best is None or loss < least:
            best, least = found, loss
    assert best is not None
    return best


def _settled(
    known: LabelledRows,
    sums: LabelSums,
    folds: Sequence[Fold],
    ridge: float,
    tails: bool,
    rng: np.random.Generator,
) -> KindredFit:
    """Fit the covariances on all rows, with tails and calibration from folds."""
    kindred = Kindred.fit(sums, ridge)
    tail = common_tail(folds) if tails else np.inf
    views = [one.views(tail, rng) for one in folds]
    highest, drawn, own = (np.concatenate([part[kind] for part in views]) for kind in range(3))
    calibration, _ = calibrate(own[None], np.ones(len(own)), drawn[None])
    return KindredFit(
        replace(kindred, tail=tail),
        ridge,
        kindred.project(known.means),
        known.counts,
        calibration,
        calibration(highest[None]),
        np.concatenate([one.identity for one in folds]),
        calibration(own[None]),
        len(known.counts) * (1 - 1 / len(folds)),
    )


def _scatters(known: LabelledRows, fold: Ints, n_folds: int) -> tuple[list[Array], float]:
    """Scatter within the labels of each fold, and the fourth powers of all residuals."""
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
    ridge: float,
    rng: np.random.Generator,
) -> Iterator[Fold]:
    """Leave out each fold of labels in turn, and rows of the labels of the next folds."""
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
        apart, of_own = known.residuals(chosen), known.owner[chosen]
        size = known.counts[of_own][:, None]
        means, counts = known.means.copy(), known.counts.copy()
        means[of_own] -= apart / (size - 1)
        counts[of_own] -= 1
        weighted = apart * np.sqrt(size / (size - 1))
        scatter = sums.scatter - parts[number] - weighted.T @ weighted
        kindred = Kindred.fit(LabelSums(counts[left], means[left], scatter), ridge)
        strangers = _some(np.flatnonzero(of_rows == number), known.owner, most, rng)
        yield Fold(
            kindred,
            kindred.project(means[left]),
            counts[left],
            kindred.project(known.rows[strangers].astype(np.float64)),
            known.owner[strangers],
            kindred.project(known.rows[chosen].astype(np.float64)),
            place[of_own],
        )


def _some(rows: Ints, owner: Ints, most: int, rng: np.random.Generator) -> Ints:
    """At most `most` rows of each label, for as many labels as there is room for."""
    order = rows[np.lexsort((rng.random(len(rows)), owner[rows]))]
    _, starts, counts = np.unique(owner[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(starts, counts)
    found = order[place < most]
    limit = ROWS_OF_STRANGERS // FOLDS
    return found if len(found) <= limit else rng.permutation(found)[:limit]


def common_tail(folds: Sequence[Fold]) -> float:
    """Degrees of freedom under which left-out rows are most likely.

    Only the shape matters: distances are relative to their mean.
    """
    width = int(np.median([len(one.kindred.values) for one in folds]))
    squares = [one.squares() for one in folds]
    kinds = [np.concatenate([pair[kind] for pair in squares]) for kind in (0, 1)]
    scaled = [kind * (width / kind.mean()) for kind in kinds if len(kind)]
    return fit_tail(np.concatenate(scaled), width, np.ones(sum(map(len, scaled))))

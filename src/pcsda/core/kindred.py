"""Labels that share two covariances: one for rows within a label, and one between labels.

A label's mean is drawn from N(c, Phi_b), and its rows from N(mean, Phi_w) (MATH 18). Given n rows,
the label's mean has a posterior. A new row is scored by the ratio of two predictive densities: the
label's, and a stranger's, N(c, Phi_b + Phi_w). On axes where Phi_w is the identity and Phi_b is
diagonal with entries v, both factorise over the axes:

    stranger:              mean 0,                 variance 1 + v
    label, mean z, n rows: mean z n v / (1 + n v), variance 1 + v / (1 + n v)

The axes span the PCSDA subspace with the labels as subclasses. It is the same for every label, so a
row is projected only once.
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

# Number of folds of labels that act as strangers; with at most this many labels, each is a fold.
FOLDS, FEW_LABELS = 10, 40
# For each fold, one row is left out of each label in this many following folds.
OWN_FOLDS = 3
# Rows scored as strangers: at most this many per label, and in total.
ROWS_OF_STRANGER, ROWS_OF_STRANGERS = 10, 5000
# Number of labels drawn for the strangers, if the calibration does not use them all.
DRAWN = 40
# Ridges to try, relative to Ledoit and Wolf's, in banks of up to this many labels.
RIDGES, MOST_TRIED = (0.1, 0.3, 1.0, 3.0), 1000
# Scores are finished in parts of about this many bytes, which fit in the cache.
CACHE_BYTES = 1 << 20
# With more than this, the spread within labels would be only the ridge.
MOST_SHRINKAGE = 0.999
# If most labels have one row, the covariance within labels is assumed to have this share of the
# total variance, and at most the second share on each axis.
WITHIN, MOST_WITHIN = 0.3, 0.95
# Standard deviation of the logarithm of that spread, for rows drawn to calibrate on.
UNSURE = 0.5


def ledoit_wolf(scatter: Array, fourth: float, count: float) -> float:
    """Return the Ledoit-Wolf weight for shrinking towards the identity, for rows with mean zero.

    Parameters
    ----------
    scatter : array of shape (r, r)
        Sum of the outer products of the rows.
    fourth : float
        Sum of the fourth powers of the rows' lengths.
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
    """Statistics of labelled rows, with closed-form updates for added and removed rows.

    Attributes
    ----------
    counts : array of shape (C,)
    means : array of shape (C, r)
    scatter : array of shape (r, r)
        Scatter of the rows about their label means.
    others : array of shape (B, r)
        Background rows: each counts as a separate label with one row.
    """

    counts: Array
    means: Array
    scatter: Array
    others: Array

    @classmethod
    def of(cls, rows: Floats, owner: Ints) -> LabelSums:
        """Compute the statistics of rows; an owner of -1 marks a background row."""
        known = LabelledRows.of(rows, owner)
        apart = known.residuals(np.arange(len(known.rows)))
        return cls(known.counts, known.means, apart.T @ apart, known.others)

    @property
    def free(self) -> float:
        """Degrees of freedom: the number of rows minus the number of labels."""
        return float(self.counts.sum()) - len(self.counts)

    @property
    def single(self) -> bool:
        """Whether most labels have only one row, so that their spread must be assumed."""
        return bool(np.median(self.counts) < 2)

    @property
    def everybody(self) -> Array:
        """The label means, followed by the background rows."""
        return np.concatenate([self.means, self.others]) if len(self.others) else self.means

    @property
    def noise(self) -> float:
        """Mean of 1/n over identities: how much a mean varies, relative to a single row."""
        count = len(self.counts) + len(self.others)
        return (float((1 / self.counts).sum()) + len(self.others)) / count

    def placed(self, places: Sequence[int | None]) -> LabelSums:
        """Reorder the labels, given their old positions; None marks a new label without rows."""
        if places == list(range(len(self.counts))):
            return self
        old = np.array([-1 if place is None else place for place in places])
        counts, means = self.counts[old], self.means[old]
        counts[old < 0], means[old < 0] = 0.0, 0.0
        return replace(self, counts=counts, means=means)

    def with_rows(self, place: int, rows: Floats) -> LabelSums:
        """Add rows to a label."""
        counts, means = self.counts.copy(), self.means.copy()
        exact, count = rows.astype(np.float64), self.counts[place]
        mean = exact.mean(axis=0)
        moved = mean - means[place]
        counts[place] += len(rows)
        means[place] += moved * (len(rows) / counts[place])
        between = moved * np.sqrt(count * len(rows) / counts[place])
        apart = np.vstack([exact - mean, between])
        return replace(self, counts=counts, means=means, scatter=self.scatter + apart.T @ apart)

    def without(self, place: int, rows: Floats) -> LabelSums:
        """Remove a label, given its rows."""
        apart = rows - self.means[place]
        left = np.arange(len(self.counts)) != place
        scatter = self.scatter - apart.T @ apart
        return replace(self, counts=self.counts[left], means=self.means[left], scatter=scatter)

    def some(self, labels: Ints) -> LabelSums:
        """Keep only the given labels; the scatter must already be limited to them."""
        return replace(self, counts=self.counts[labels], means=self.means[labels])

    def with_others(self, rows: Floats) -> LabelSums:
        """Add background rows."""
        return replace(self, others=np.concatenate([self.others, rows.astype(np.float64)]))

    def require_spread(self) -> None:
        """Check that rows differ within labels.

        Raises
        ------
        SingularMatrixError
            If no label has two rows, or all rows are equal within each label.
        """
        if self.free <= 0 or len(self.counts) < 3:
            raise SingularMatrixError(
                "no label has two rows, so the spread within labels is unknown"
            )
        apart = self.means - self.means.mean(axis=0)
        level = float(self.scatter.trace()) / len(self.scatter)
        if level <= linalg.SAME_POINT**2 * float(np.einsum("ij,ij->", apart, apart)):
            raise SingularMatrixError("the rows of each label are equal")


@dataclass(frozen=True)
class Kindred:
    """Both covariances, on axes where the within-label covariance is the identity.

    Attributes
    ----------
    centre : array of shape (r,)
        c, the mean of the label means.
    axes : array of shape (r, q)
    values : array of shape (q,)
        Variances v between labels on the axes.
    scale : float
        ``Phi_w = scale (S_w + ridge I)``.
    means : array of shape (C, q)
        Mean of each label's rows, on the axes.
    tail : float
        Degrees of freedom of both predictive distributions.
    """

    centre: Array
    axes: Array
    values: Array
    scale: float
    means: Array
    tail: float = np.inf

    @classmethod
    def assumed(cls, sums: LabelSums) -> Kindred:
        """Assume a within-label covariance, because labels with one row do not reveal it.

        It is the scaled square root of the total covariance: a label's rows spread along the axes
        on which labels differ, but more evenly. The total is shrunk by the Ledoit-Wolf rule.

        Raises
        ------
        SingularMatrixError
            If all rows are equal.
        """
        means, size = sums.everybody, sums.means.shape[1]
        centre = means.mean(axis=0)
        apart = means - centre
        variances, turn = principal(apart, np.eye(size))
        if len(variances) == 0:
            raise SingularMatrixError("all rows are equal")
        fourth = float((np.einsum("ij,ij->i", apart, apart) ** 2).sum())
        scatter = np.zeros(size)
        scatter[: len(variances)] = variances * (len(means) - 1)
        share = ledoit_wolf(np.diag(scatter), fourth, len(means))
        total = (1 - share) * variances + share * variances.sum() / size
        within = np.sqrt(total) * (WITHIN * total.sum() / np.sqrt(total).sum())
        within = np.minimum(within, MOST_WITHIN * total)
        axes = turn / np.sqrt(within)
        values = np.maximum(total / within - sums.noise, 0.0)
        return cls(centre, axes, values, 1.0, sums.means @ axes - centre @ axes)

    @classmethod
    def fit(cls, sums: LabelSums, ridge: float, *, strict: bool = True) -> Kindred:
        """Fit the covariances with one eigendecomposition and products with the means.

        The between-label covariance is shrunk on these axes by the Ledoit-Wolf rule. If labels
        differ no more than their rows do, it is zero, or an error if `strict`.

        Raises
        ------
        SingularMatrixError
            If no label has two rows, or, if `strict`, labels differ no more than their rows do.
        """
        sums.require_spread()
        means, size = sums.everybody, sums.means.shape[1]
        count = len(means)
        centre = means.mean(axis=0)
        apart = means - centre
        level = float(sums.scatter.trace()) / size
        scale = (level / (level + ridge)) / sums.free
        variances, axes = principal(apart, linalg.cholesky(sums.scatter, ridge))
        variances, axes = variances / scale, axes / np.sqrt(scale)
        z = apart @ axes
        fourth = float((np.einsum("ij,ij->i", z, z) ** 2).sum())
        share = ledoit_wolf(np.diag(variances * (count - 1)), fourth, count)
        values = (1 - share) * variances + share * variances.mean() - sums.noise
        if strict and values[0] <= 0:
            raise SingularMatrixError("labels differ no more than their rows do")
        return cls(centre, axes, np.maximum(values, 0.0), scale, z[: len(sums.means)])

    def project(self, rows: Array) -> Array:
        """Return the coordinates of rows on the axes."""
        z: Array = (rows - self.centre) @ self.axes
        return z

    @property
    def law(self) -> Predictive:
        """The predictive distributions, for scoring."""
        return Predictive(self.values, self.tail)


def principal(rows: Array, factor: Array) -> tuple[Array, Array]:
    """Return the variances of centred rows in descending order, and the corresponding axes.

    The axes are columns, orthonormal under the covariance whose Cholesky factor is given.
    """
    count, size = rows.shape
    wide = size > count
    if wide:
        white = linalg.lower_solve(factor, rows.T).T
        inner = white @ white.T
    else:
        half = linalg.lower_solve(factor, rows.T @ rows)
        inner = linalg.lower_solve(factor, half.T)
    values, vectors = linalg.eigh_descending(inner)
    rank = min(count - 1, size)
    rank = int(np.sum(values[:rank] > linalg.SAME_POINT * values[0]))
    values, vectors = values[:rank], vectors[:, :rank]
    turn = white.T @ (vectors / np.sqrt(values)) if wide else vectors
    return values / (count - 1), linalg.lower_solve(factor, turn, transposed=True)


@dataclass(frozen=True)
class Predictive:
    """Predictive distributions of a label and of a stranger, on the axes.

    Attributes
    ----------
    values : array of shape (q,)
    tail : float
    """

    values: Array
    tail: float

    def expected(self, means: Array, counts: Array) -> Array:
        """Return the labels' posterior means (C, q), given the means of their rows."""
        shrunk = counts[:, None] * self.values
        found: Array = means * (shrunk / (1 + shrunk))
        return found

    def variances(self, counts: Array) -> Array:
        """Return the variances (C, q) of a new row about its label's posterior mean."""
        found: Array = 1 + self.values / (1 + counts[:, None] * self.values)
        return found

    def draw(self, means: Array, counts: Array, rng: np.random.Generator) -> Array:
        """Simulate a new row for each label, with a random spread because the spread is assumed."""
        noise = rng.standard_normal(means.shape)
        noise *= np.exp(UNSURE * rng.standard_normal((len(means), 1)))
        rows: Array = self.expected(means, counts) + np.sqrt(self.variances(counts)) * noise
        return rows

    def outside(self, z: Floats) -> Array:
        """Return the rows' squared distances from the centre under a stranger's distribution."""
        square: Array = (z * z) @ (1 / (1 + self.values)).astype(z.dtype)
        return square

    def ratios(self, z: Floats, labels: Places, slope: float = 1.0, offset: float = 0.0) -> Array:
        """Return the rows' calibrated log ratios (n, C) for all labels, in the rows' precision."""
        outside = slope * energy(self.outside(z), len(self.values), self.tail) + offset
        found: Array = labels.rows(z) @ labels.vectors.T
        part = max(1, CACHE_BYTES // max(found[:1].nbytes, 1))
        for start in range(0, len(z), part):
            here = found[start : start + part]
            if labels.power is None:
                here *= -slope
            else:
                np.maximum(here, labels.factors, out=here)  # rounding may make a square negative
                np.log(here, out=here)
                here *= -slope * labels.power
            here += outside[start : start + part, None]
        return found

    def places(self, means: Array, counts: Array) -> Places:
        """Prepare labels for scoring by `ratios`."""
        sizes, which = np.unique(counts, return_inverse=True)
        variances, expected = self.variances(sizes), self.expected(means, counts)
        pulls = expected / variances[which]
        lengths = np.einsum("ij,ij->i", pulls, expected)
        volumes = (0.5 * (np.log1p(self.values) - np.log(variances)).sum(axis=1))[which]
        if np.isinf(self.tail):
            power, scale, factors = None, 0.5, np.ones(len(counts))
            last = scale * lengths - volumes
        else:
            power, scale = 0.5 * (self.tail + len(self.values)), 1 / (self.tail - 2)
            factors, last = np.exp(-volumes / power), 1 + scale * lengths
        # Squared coordinates are combined for each label size, or kept if sizes outnumber axes.
        few = len(sizes) <= len(self.values)
        precisions = (scale / variances).T if few else np.eye(len(self.values))
        squares = np.eye(len(sizes))[which] if few else scale / variances[which]
        vectors = np.concatenate([-2 * scale * pulls, squares, last[:, None]], axis=1)
        return Places(vectors * factors[:, None], precisions, factors, volumes, power)


@dataclass(frozen=True)
class Places:
    """Labels prepared so that a single matrix product of rows and labels gives all scores.

    With heavy tails the product is ``1 + square / (tail - 2)`` times a factor for the label's
    volume, so that the whole energy is a multiple of its logarithm. With Gaussian tails the product
    is half the square minus the log ratio of the volumes.

    Attributes
    ----------
    vectors : array of shape (C, q + U + 1)
        Weights for a row's coordinates, for their combined squares, and a constant.
    precisions : array of shape (q, U)
        Weights that combine a row's squared coordinates.
    factors : array of shape (C,)
        Smallest value that the product can take for each label.
    volumes : array of shape (C,)
        Log volume ratio of each label.
    power : float or None
        Factor that multiplies the logarithm; None with Gaussian tails.
    """

    vectors: Array
    precisions: Array
    factors: Array
    volumes: Array
    power: float | None

    def rows(self, z: Floats) -> Floats:
        """Append squares and a one to each row, ready for the product with `vectors`."""
        found: Floats = np.empty((len(z), self.vectors.shape[1]), z.dtype)
        found[:, : z.shape[1]], found[:, -1] = z, 1
        np.matmul(z * z, self.precisions, out=found[:, z.shape[1] : -1])
        return found

    def single(self) -> Places:
        """Return the same labels in single precision."""
        names = ("vectors", "precisions", "factors", "volumes")
        return replace(self, **{name: getattr(self, name).astype(np.float32) for name in names})

    def one(self, place: int) -> Places:
        """Keep only one label."""
        here = slice(place, place + 1)
        names = ("vectors", "factors", "volumes")
        return replace(self, **{name: getattr(self, name)[here] for name in names})


@dataclass(frozen=True)
class LabelledRows:
    """Labelled rows and the mean of each label.

    Attributes
    ----------
    rows : array of shape (N, r)
    owner : array of shape (N,)
        Label of each row.
    counts : array of shape (C,)
    means : array of shape (C, r)
    others : array of shape (B, r)
        Background rows.
    """

    rows: Floats
    owner: Ints
    counts: Array
    means: Array
    others: Array

    @classmethod
    def of(cls, rows: Floats, owner: Ints) -> LabelledRows:
        """Group rows by label and compute the means; an owner of -1 marks a background row."""
        others = np.zeros((0, rows.shape[1]))
        if np.any(owner < 0):
            others = rows[owner < 0].astype(np.float64)
            rows, owner = rows[owner >= 0], owner[owner >= 0]
        counts = np.bincount(owner).astype(np.float64)
        return cls(rows, owner, counts, group_means(rows, owner, counts, None), others)

    def residuals(self, chosen: Ints) -> Array:
        """Return the chosen rows minus their label means."""
        apart: Array = self.rows[chosen] - self.means[self.owner[chosen]]
        return apart

    def without(self, chosen: Ints, scatter: Array) -> LabelSums:
        """Return the statistics without one row per label, given the scatter that includes them."""
        apart, of_own = self.residuals(chosen), self.owner[chosen]
        size = self.counts[of_own][:, None]
        means, counts = self.means.copy(), self.counts.copy()
        means[of_own] -= apart / (size - 1)
        counts[of_own] -= 1
        weighted = apart * np.sqrt(size / (size - 1))
        return LabelSums(counts, means, scatter - weighted.T @ weighted, self.others)

    def some(self, labels: Ints, turn: int) -> Ints:
        """Choose one row from each label that has at least two; each `turn` gives another row."""
        order = np.argsort(self.owner, kind="stable")
        sizes = self.counts.astype(np.intp)
        starts = np.cumsum(sizes) - sizes
        labels = labels[sizes[labels] > 1]
        found: Ints = order[starts[labels] + turn % sizes[labels]]
        return found


@dataclass(frozen=True)
class Fold:
    """A bank without some labels, which act as strangers, and without one row from some others.

    Attributes
    ----------
    kindred : Kindred
        Covariances and means of the remaining labels.
    counts : array of shape (L,)
    z : array of shape (n, q)
        Rows of strangers.
    identity : array of shape (n,)
        Identity of each row.
    own : array of shape (m, q)
        Rows left out of their own labels.
    of_own : array of shape (m,)
        Index of each such row's label among the remaining labels.
    """

    kindred: Kindred
    counts: Array
    z: Array
    identity: Ints
    own: Array
    of_own: Ints

    def squares(self) -> tuple[Array, Array]:
        """Return squared distances: strangers from the centre, and own rows from their labels."""
        law = self.kindred.law
        counts = self.counts[self.of_own]
        apart = self.own - law.expected(self.kindred.means[self.of_own], counts)
        return law.outside(self.z), (apart**2 / law.variances(counts)).sum(axis=1)

    def views(self, tail: float, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Return log ratios: each stranger's best, strangers for random labels, and own rows."""
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
        Best score of each stranger's row.
    identity : array of shape (n,)
        Identity of each row.
    own : array of shape (m,)
        Score of each left-out row for its own label.
    n_met : float
        Number of labels that each stranger was scored against.
    """

    kindred: Kindred
    ridge: float
    sums: LabelSums
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
    """Fit both covariances, and calibrate the scores on left-out labels and rows.

    Labels are left out in folds, and everything but the ridge is fitted without them.

    Parameters
    ----------
    rows : array of shape (N, r)
    owner : array of shape (N,)
        Label of each row, or -1 for a background row. Each background row counts as a separate
        label with one row. Background rows are not left out as strangers, because it is unknown
        which of them belong together.
    ridge : float, optional
        The absolute ridge. The default is the ridge from Ledoit-Wolf shrinkage within labels, or a
        multiple of it from `RIDGES` that separates left-out rows from strangers better. If most
        labels have one row, it must be given but is not used.
    tails : bool
        Whether to fit the tails to left-out rows; otherwise they are Gaussian.
    steps : function of folds and their number
        Called to report progress.

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
        found = _settled(sums, folds, one, tails, again)
        # Left-out rows against the best scores of strangers: what a threshold must separate.
        _, loss = calibrate(found.own[None], np.ones(len(found.own)), found.best[None])
        if best is None or loss < least:
            best, least = found, loss
    assert best is not None
    return best


def _settled(
    sums: LabelSums, folds: Sequence[Fold], ridge: float, tails: bool, rng: np.random.Generator
) -> KindredFit:
    """Fit the covariances on all rows, taking tails and calibration from the folds."""
    kindred = Kindred.assumed(sums) if sums.single else Kindred.fit(sums, ridge)
    tail = common_tail(folds, with_own=not sums.single) if tails else np.inf
    views = [one.views(tail, rng) for one in folds]
    highest, drawn, own = (np.concatenate([part[kind] for part in views]) for kind in range(3))
    calibration, _ = calibrate(own[None], np.ones(len(own)), drawn[None])
    return KindredFit(
        replace(kindred, tail=tail),
        ridge,
        sums,
        calibration,
        calibration(highest[None]),
        np.concatenate([one.identity for one in folds]),
        calibration(own[None]),
        len(sums.counts) * (1 - 1 / len(folds)),
    )


def _scatters(known: LabelledRows, fold: Ints, n_folds: int) -> tuple[list[Array], float]:
    """Return the within-label scatter of each fold, and the sum of fourth powers of residuals."""
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
    """Leave out each fold of labels in turn, together with some rows from the next folds' labels.

    Without a ridge, the within-label covariance is assumed, and the labels' rows are simulated.
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
        if ridge is None:  # labels of one row have none to leave out
            own, of_own = kindred.law.draw(kindred.means, rest.counts, rng), np.arange(len(left))
        z = kindred.project(known.rows[strangers].astype(np.float64))
        yield Fold(kindred, rest.counts, z, known.owner[strangers], own, of_own)


def _some(rows: Ints, owner: Ints, most: int, rng: np.random.Generator) -> Ints:
    """Draw at most `most` rows from each label, for as many labels as there is room for."""
    order = rows[np.lexsort((rng.random(len(rows)), owner[rows]))]
    _, starts, counts = np.unique(owner[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(starts, counts)
    found = order[place < most]
    limit = ROWS_OF_STRANGERS // FOLDS
    return found if len(found) <= limit else rng.permutation(found)[:limit]


def common_tail(folds: Sequence[Fold], *, with_own: bool = True) -> float:
    """Return the degrees of freedom under which left-out rows are most likely.

    Only the shape matters: distances are taken relative to their mean. Rows left out of their own
    labels count too, unless `with_own` is False because they were simulated.
    """
    width = int(np.median([len(one.kindred.values) for one in folds]))
    squares = [one.squares() for one in folds]
    kinds = [np.concatenate([pair[kind] for pair in squares]) for kind in range(1 + with_own)]
    scaled = [kind * (width / kind.mean()) for kind in kinds if len(kind)]
    return fit_tail(np.concatenate(scaled), width, np.ones(sum(map(len, scaled))))

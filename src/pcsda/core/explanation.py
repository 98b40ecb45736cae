"""Explain a score by the contributions of the axes, the nearest subclass, and the typicality."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
from scipy import stats

from .calibration import Calibration
from .density import Density
from .linalg import BLOCK_BYTES, Array, Ints, Mask
from .student import whitening

# Samples with a lower typicality are marked as outside. About this share of ordinary samples is
# marked, too.
OUTSIDE = 1e-3
# Number of quadrature points between the reference and a row, and the step of finite differences in
# standard deviations of the class of interest.
POINTS, STEP = 16, 1e-4
# Number of columns named in a text, and number of rows shown in a table.
LISTED, LISTED_ROWS = 6, 5


@dataclass(frozen=True)
class Explanation:
    """Explanations of the scores of n samples.

    Attributes
    ----------
    score : array of shape (n,)
        Log-likelihood ratio; ``contributions.sum(axis=1) + offset``.
    contributions : array of shape (n, d)
        Contribution of each axis to the score. For axis j, it is the log ratio on axes 1 to j minus
        the log ratio on axes 1 to j - 1, times the calibration slope. Contributions sum to the
        score minus `offset`. A negative contribution is evidence for the rest, that is, the
        negative class. Axes are in the order of their eigenvalues; another order would divide the
        same evidence differently.
    offset : float
        Part of the score that belongs to no axis: the calibration offset.
    positive_distance : array of shape (n,)
        Distance from the mean of the class of interest, in its standard deviations (Mahalanobis).
    subclass : array of shape (n,)
        Nearest subclass of the rest, numbered from 1 as in `partition_`. Models without subclasses
        have only one, the whole rest.
    subclass_size : array of shape (n,)
        Number, or total weight, of the training samples in the nearest subclass.
    subclass_distance : array of shape (n,)
        Distance from the mean of the nearest subclass, in standard deviations of a subclass.
    typicality : array of shape (n,)
        Expected share of samples in the class of interest that lie farther from its mean than this
        sample. The same share is computed for the nearest part of the rest, and the larger of the
        two is the typicality. It is 1 at the centre of either, and near 0 far from both.
    outside : boolean array of shape (n,)
        Whether the typicality is below 0.001. Such a sample resembles nothing seen in training, so
        do not trust its score.
    columns : array of shape (n, n_features) or None
        Contribution of each column of X to the score, relative to `baseline`. Positive values are
        evidence for the class of interest, negative values are evidence against it. The
        contributions and the baseline sum exactly to the score. None for models that are not
        linear, for sparse rows, and for more than 200 rows at a time.
    baseline : array of shape (n,) or None
        Roughly the score half-way between the class mean and the mean of the nearest subclass.
    names : tuple of str or None
        Names of the columns; None if X has no column names.
    nearest_positive, nearest_negative : arrays of shape (n, at most 3) or None
        Numbers of the training rows of each class that are nearest in the subspace, for kernel
        models that store their training rows.
    subclass_names, subclass_examples : sequences or None
        The majority label of each subclass, and the names of its most central rows. None if the
        model does not store them; see `name_rows`.
    row_ids : sequence of str or None
        Names of the training rows. None if the model does not store them; see `name_rows`.

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> X, y = make_class_specific(500, random_state=0, return_X_y=True)
    >>> found = PCSDA(random_state=0).fit(X, y).explain(X[:3])
    >>> bool(abs(found.contributions.sum(axis=1) + found.offset - found.score).max() < 1e-9)
    True
    """

    score: Array
    contributions: Array
    offset: float
    positive_distance: Array
    subclass: Ints
    subclass_size: Array
    subclass_distance: Array
    typicality: Array
    outside: Mask
    columns: Array | None = None
    baseline: Array | None = None
    names: tuple[str, ...] | None = None
    nearest_positive: Ints | None = None
    nearest_negative: Ints | None = None
    subclass_names: Sequence[str] | None = None
    subclass_examples: Sequence[Sequence[str]] | None = None
    row_ids: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.score)

    def __getitem__(self, rows: Any) -> Explanation:
        """Return the explanation for selected samples; a single integer selects one sample."""
        chosen = np.arange(len(self))[rows].reshape(-1)
        cut = {name: v[chosen] for name, v in vars(self).items() if isinstance(v, np.ndarray)}
        return replace(self, **cut)

    def table(self, row: int = 0) -> list[tuple[str, float]]:
        """Return the name of each column with its contribution to a row's score, largest first.

        Contributions are ordered by magnitude.
        """
        if self.columns is None:
            raise ValueError(
                "contributions of columns exist for linear models (PCSDA, CSDA) and up to "
                "200 rows at a time; the attribute contributions holds those of the axes"
            )
        parts = self.columns[row]
        names = self.names or tuple(f"column {place}" for place in range(len(parts)))
        order = np.argsort(-np.abs(parts), kind="stable").tolist()
        return [(names[place], float(parts[place])) for place in order]

    def _for_and_against(self, row: int) -> str:
        """Name the columns that are evidence for and against the class of interest.

        If there are no contributions of columns, name the nearest training rows instead.
        """
        if self.columns is not None:
            sides: dict[str, list[str]] = {"for": [], "against": []}
            for name, part in self.table(row)[:LISTED]:
                sides["for" if part > 0 else "against"].append(f"{name} ({part:+.3g})")
            said = ", ".join(f"{word} it {_and(names)}" for word, names in sides.items() if names)
            return f"{said}; "
        if self.nearest_positive is None or self.nearest_negative is None:
            return ""
        own, rest = (
            _and([self._id(number) for number in near[row].tolist()])
            for near in (self.nearest_positive, self.nearest_negative)
        )
        return f"nearest training rows of the class {own}, of the rest {rest}; "

    def subclass_of(self, row: int = 0) -> str:
        """Describe the subclass nearest to a row, with the subclass name and examples if known."""
        number = int(self.subclass[row])
        said = [f"n = {self.subclass_size[row]:g}"]
        if self.subclass_examples is not None and self.subclass_examples[number - 1]:
            said.insert(0, f"examples {_and(list(self.subclass_examples[number - 1]))}")
        if self.subclass_names is not None:
            said.insert(0, self.subclass_names[number - 1])
        return f"subclass {number} ({', '.join(said)})"

    def _id(self, number: int) -> str:
        return str(number) if self.row_ids is None else self.row_ids[number]

    def __repr__(self) -> str:
        rows = "1 row" if len(self) == 1 else f"{len(self)} rows"
        more = "" if len(self) <= LISTED_ROWS else "\n..."
        return f"<Explanation of {rows}>\n{self[:LISTED_ROWS]}{more}"

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: a sentence for each row, and a table for the first row."""
        told = "".join(f"<li>{escape(line)}</li>" for line in str(self[:LISTED_ROWS]).splitlines())
        html = f"<ol start='0'>{told}</ol>"
        if self.columns is None or not len(self):
            return html
        parts = self.table()[: 2 * LISTED]
        most = max(abs(part) for _, part in parts) or 1.0
        lines = "".join(
            f"<tr><td>{escape(name)}</td><td style='text-align:right'>{part:+.3g}</td><td>"
            f"<span style='display:inline-block;height:0.7em;width:{8 * abs(part) / most:.2f}em;"
            f"background:{'#2471b0' if part > 0 else '#c4560f'}'></span></td></tr>"
            for name, part in parts
        )
        head = "<tr><th>column</th><th>adds</th><th>for (blue) or against (orange)</th></tr>"
        return f"{html}<table><caption>Row 0</caption>{head}{lines}</table>"

    def __str__(self) -> str:
        return "\n".join(self._sentence(row) for row in range(len(self)))

    def _sentence(self, row: int) -> str:
        parts = self.contributions[row]
        order = np.argsort(-np.abs(parts), kind="stable")[:3]
        listed = ", ".join(f"axis {axis + 1} {parts[axis]:+.3g}" for axis in order)
        rest = np.delete(parts, order)
        more = f", {len(rest)} more {rest.sum():+.3g}" if len(rest) else ""
        text = (
            f"log-likelihood ratio {self.score[row]:.3g}: {self._for_and_against(row)}{listed}"
            f"{more}, offset {self.offset:+.3g}; {self.positive_distance[row]:.3g} standard "
            f"deviations from the class of interest, {self.subclass_distance[row]:.3g} from "
            f"{self.subclass_of(row)}; typicality {self.typicality[row]:.2g}"
        )
        return text + (", outside everything seen" if self.outside[row] else "")


def explain(
    z: Array, density: Density, calibration: Calibration, *, sizes: Array, unseen: Mask
) -> Explanation:
    """Explain the calibrated scores of rows in the subspace.

    `sizes` are the subclass sizes. Rows marked `unseen` resemble no training row, and always count
    as outside. Typicality uses the F distribution of a squared Mahalanobis distance whose
    covariance is estimated from a finite sample (Hotelling). If the fitted tails are heavier, it
    uses the F distribution that belongs to Student's t distribution.
    """
    # Memory grows with rows, centres and axes; with many centres, blocks have few rows.
    step = max(1, BLOCK_BYTES // (8 * density.base.centres.size))
    blocks = [
        _parts(z[start : start + step], density, calibration) for start in range(0, len(z), step)
    ]
    parts, positive, nearest, apart, typicality = map(np.concatenate, zip(*blocks, strict=True))
    typicality[unseen] = 0.0
    return Explanation(
        score=parts.sum(axis=1) + calibration.offset,
        contributions=parts,
        offset=calibration.offset,
        positive_distance=positive,
        subclass=nearest + 1,
        subclass_size=sizes[nearest],
        subclass_distance=apart,
        typicality=typicality,
        outside=typicality < OUTSIDE,
    )


def column_parts(
    rows: Array,
    references: Array,
    components: Array,
    z: Array,
    score: Callable[[Array], Array],
    spread: Array,
) -> Array:
    """Return each column's contribution to the score of a row, by integrated gradients.

    The contributions are relative to the score of the row's reference point. Let x0 be the
    reference point of a row x, and z = C x. From x0 to x, the score changes by the integral of its
    gradient along the line between the two points. So column j adds (x_j - x0_j) (C' g)_j, where g
    is the mean gradient with respect to z on the line. If the score is linear in x with weights w,
    column j adds w_j (x_j - x0_j). `spread` holds the standard deviations of the class of interest
    along the axes. Cost: ``2 d POINTS`` scores per row.
    """
    places, weights = np.polynomial.legendre.leggauss(POINTS)
    moved = rows - references
    steps = moved @ components.T
    slopes = np.zeros_like(z)
    for place, weight in zip((places + 1) / 2, weights / 2, strict=True):
        at = z - (1 - place) * steps
        for axis, width in enumerate(STEP * spread):
            ahead, behind = at.copy(), at.copy()
            ahead[:, axis] += width
            behind[:, axis] -= width
            slopes[:, axis] += weight * (score(ahead) - score(behind)) / (2 * width)
    return moved * (slopes @ components)


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def _parts(
    z: Array, density: Density, calibration: Calibration
) -> tuple[Array, Array, Ints, Array, Array]:
    """Return five arrays that explain the scores of rows in the subspace.

    The arrays hold the contributions of the axes, the distance from the class of interest, the
    index of the nearest subclass, the distance from that subclass, and the typicality.
    """
    path = calibration(density.path(z)) - calibration.offset
    contributions = np.diff(path, axis=1, prepend=0.0)
    base, width = density.base, len(density.base.positive)
    z = z[:, :width]  # a second density may have axes of its own
    positive = _distances(z, np.zeros((1, width)), base.positive)[:, 0]
    spread = base.negative if base.within is None else base.within
    apart = _distances(z, base.subclasses, spread)
    # Typicality uses the centres of the density, which need not be the subclass means.
    rest = _distances(z, base.centres, base.negative).min(axis=1)
    typicality = np.maximum(
        _farther(positive, width, base.positive_strength, base.tail),
        _farther(rest, width, base.negative_strength, base.tail),
    )
    return contributions, positive, apart.argmin(axis=1), apart.min(axis=1), typicality


def _distances(z: Array, centres: Array, covariance: Array) -> Array:
    """Return Mahalanobis distances of all rows from all centres, shape (n, number of centres)."""
    white = whitening(covariance)
    rows, middles = z @ white.T, centres @ white.T
    return np.stack([np.linalg.norm(rows - middle, axis=1) for middle in middles], axis=1)


def _farther(distance: Array, width: int, strength: float, tail: float) -> Array:
    """Return the probability that a row of a class lies farther from its centre than `distance`.

    `width` is the number of axes, `strength` the number of samples behind the covariance, and
    `tail` the degrees of freedom.
    """
    freedom = max(strength - width + 1, 1.0)
    scale = freedom / strength
    if tail < freedom:
        freedom, scale = tail, tail / (tail - 2)
    share: Array = stats.f.sf(distance**2 * scale / width, width, freedom)
    return share

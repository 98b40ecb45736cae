"""Fitting many labels, each against all others, after factorising the rows once (MATH 4, 11).

The positives of a label are its own rows, and its negative subclasses are the shared clusters
without these rows. The label's own rows and the sample are left out: each is projected by a model
fitted without it. The rows, clusters and sample are in `core.shared_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from .covariance import Moments
from .density import Blend, Mixture, fit_density
from .fit import left_moments
from .linalg import Array, Ints
from .loo import Leave, LeftOut
from .scatter import Grouping, GroupScatter
from .shared_rows import SharedRows
from .solvers import require_apart
from .subspace import Subspace
from .white import solution_of

# Labels are projected in batches whose arrays hold about this many numbers.
STEP_NUMBERS = 4_000_000


@dataclass(frozen=True)
class SolvedLabel:
    """The solution for one label against all others, with the left-out rows for its calibration.

    Attributes
    ----------
    kept : array of shape (K',)
        Clusters that contain negatives for this label.
    turn : array of shape (K', d)
        Rotation from the coordinates ``Delta A (x - m)`` to the axes, where m is the positive mean.
    subspace : Subspace
        Axes in the space of the rows or features. `left` holds the label's own rows first, then
        the other rows of the sample.
    moments : Moments
        Moments of all left-out rows.
    n_own : int
        Number of left-out rows that belong to the label.
    rows : array of shape (n,)
        Numbers of all left-out rows.
    """

    kept: Ints
    turn: Array
    subspace: Subspace
    moments: Moments
    n_own: int
    rows: Ints

    def density(self, negatives: str, shrinkage: float) -> Mixture | Blend:
        """Estimate the densities of the label's positives and negatives, with Gaussian tails."""
        return fit_density(self.moments, negatives=negatives, shrinkage=shrinkage)

    def thinned(self, most: int) -> SolvedLabel:
        """Keep the label's own left-out rows and at most `most` other left-out rows."""
        left = self.subspace.left_rows
        others = np.arange(self.n_own, len(left.groups))
        step = -(-len(others) // most)
        chosen = np.concatenate([np.arange(self.n_own), others[::step]])
        return replace(self, subspace=replace(self.subspace, left=left.take(chosen)))

    @property
    def own_left(self) -> LeftOut:
        """The label's own left-out rows."""
        return self.subspace.left_rows.take(slice(0, self.n_own))


def solve_labels(
    shared: SharedRows, labels: Ints, n_components: int | None = None
) -> Iterator[SolvedLabel]:
    """Yield the solution for each label against all others.

    The sample is projected for many labels at once to save time.
    """
    if len(labels) > 1:
        shared.index()
    width = len(shared.counts) + 1
    step = max(1, STEP_NUMBERS // (width * max(len(shared.sample), shared.rows.shape[1])))
    for start in range(0, len(labels), step):
        part = [int(label) for label in labels[start : start + step]]
        owned = [shared.own(label) for label in part]
        divisions = [(own, *shared.division(own)) for own in owned]
        white = np.concatenate([means for *_, means in divisions]) @ shared.back
        projected = shared.sample_products(shared.back @ white.T)
        edges = np.cumsum([0] + [len(counts) for _, _, counts, _ in divisions])
        for label, division, ends in zip(part, divisions, pairwise(edges), strict=True):
            own_white, of_sample = white[slice(*ends)], projected[:, slice(*ends)]
            yield _solve(shared, label, *division, own_white, of_sample, n_components)


def _solve(
    shared: SharedRows,
    label: int,
    own: Ints,
    kept: Ints,
    counts: Array,
    means: Array,
    white: Array,
    of_sample: Array,
    n_components: int | None,
) -> SolvedLabel:
    """Solve one label against all others.

    `own` holds the numbers of the label's rows. `kept`, `counts` and `means` are the results of
    :meth:`SharedRows.division`. `white` holds the whitened group means, and `of_sample` holds their
    inner products with the whitened rows of the sample.
    """
    require_apart(means + shared.origin, shared.variance)
    rest = np.flatnonzero(shared.owner[shared.sample] != label)
    whole = len(rest) == len(shared.sample)
    chosen = np.concatenate([own, shared.sample if whole else shared.sample[rest]])
    own_white = shared.about(own) @ shared.back
    projected = np.vstack([own_white @ white.T, of_sample if whole else of_sample[rest]])
    norms = np.append(np.einsum("ij,ij->i", own_white, own_white), shared.norms[rest])
    groups = shared.groups(label, chosen, kept)

    def block(members: Ints) -> tuple[Array, Array]:
        rows = shared.about(chosen[members].ravel()) @ shared.back
        rows = rows.reshape(*members.shape, -1)
        return rows @ rows.swapaxes(-1, -2), projected[members]

    division = Grouping(groups, counts)
    solution = solution_of(white, projected, lambda: norms, division, shared.back, block)
    axes = solution.axes(len(shared.owner), n_components, means + shared.origin)
    seen = np.bincount(groups, minlength=len(counts))
    stands_for = (counts / np.maximum(seen, 1))[groups]
    together = None if shared.together is None else shared.together[chosen]
    leave = Leave(None, None if np.all(stands_for == 1) else stands_for, together)
    left = solution.left_out(axes, division, leave)
    centres = solution.means_on(axes.turn)
    flat = np.zeros((len(axes.values), len(axes.values)))
    projected_groups = GroupScatter(counts, centres, flat, flat)
    coefficients = solution.directions @ axes.turn
    origin = (means[0] + shared.origin) @ coefficients
    subspace = Subspace(
        coefficients,
        origin,
        axes.values,
        axes.rank,
        projected_groups,
        np.eye(len(axes.values)),
        means + shared.origin,
        left,
    )
    return SolvedLabel(kept, axes.turn, subspace, left_moments(subspace), len(own), chosen)

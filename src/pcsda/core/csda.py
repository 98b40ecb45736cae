"""CSDA: the criterion in which every negative is a subclass of its own (MATH 6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from . import linalg, solvers
from .direct import keep_leading, linear_subspace, out_of_row_span
from .linalg import Array, SingularMatrixError
from .loo import Leave
from .scatter import GroupScatter
from .solvers import Projection
from .spread import ridge_of, singular_scatter
from .subspace import Subspace

SOLVERS = ("eigen", "labels", "lowrank", "trace_ratio")


@dataclass(frozen=True)
class CSDAFactor:
    """Rows in memory whose negatives are one group; no row can be left out.

    `rng` draws the targets of solver "labels".
    """

    X: NDArray[np.floating]
    regularization: float
    weights: Array | None
    solver: str
    rng: np.random.Generator

    def solve(
        self,
        groups: NDArray[np.intp],
        n_components: int | None = None,
        *,
        leave_out: Leave | bool = False,
    ) -> Subspace:
        """Solve the criterion; groups are 0 for positives and 1 for negatives."""
        X, wide = self.X, self.X.shape[1] > len(self.X)
        if wide:
            origin = X.mean(axis=0, dtype=np.float64)
            X, basis = linalg.row_span(X - origin)
        scatter = GroupScatter.from_samples(X, groups, weights=self.weights)
        most = min(int(np.sum(groups > 0)), X.shape[1])
        d = most if n_components is None else min(n_components, most)
        labels = None
        if self.solver == "labels":
            ridge = ridge_of(scatter.total_variance, self.regularization)
            with _naming_the_ridge(X.shape[1], self.regularization):
                labels = solvers.csda_labels(X, groups, scatter, ridge, d, self.rng, self.weights)
        found = csda_subspace(scatter, self.solver, self.regularization, n_components, most, labels)
        return out_of_row_span(found, origin, basis) if wide else found


def csda_subspace(
    scatter: GroupScatter,
    solver: str,
    regularization: float,
    n_components: int | None,
    most: int | None = None,
    labels: Projection | None = None,
) -> Subspace:
    """Solve CSDA from statistics alone.

    There are at most as many axes as negatives, `most`; the projection of solver "labels" needs the
    rows, and comes from the caller.
    """
    width = scatter.means.shape[1]
    most = width if most is None else most
    ridge = ridge_of(scatter.total_variance, regularization)
    d = None if n_components is None else min(n_components, most)
    with _naming_the_ridge(width, regularization):
        if labels is not None:
            projection = labels
        elif solver == "trace_ratio":
            projection = solvers.csda_trace_ratio(scatter, ridge, d or most)
        elif solver == "lowrank":
            projection = solvers.csda_lowrank(scatter, ridge, d)
        elif solver == "labels":
            raise ValueError("solver='labels' needs the samples; use 'eigen' or 'lowrank'")
        else:
            projection = solvers.csda_eigen(scatter, ridge, d)
    found = linear_subspace(scatter, keep_leading(projection, d, most), ridge)
    ridged = found.ridged - found.projected.within  # the denominator has no part of the negatives
    return replace(found, ridged=ridged, single_negatives=True)


@contextmanager
def _naming_the_ridge(width: int, regularization: float) -> Iterator[None]:
    """Say which ridge was too small where the denominator is singular."""
    try:
        yield
    except SingularMatrixError as error:
        raise singular_scatter(width, regularization) from error

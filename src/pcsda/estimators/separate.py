"""Labels of a bank, each calibrated on its own scores."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import get_tags

from ..core.cells import Cells
from ..core.factor import SharedFactor, factor_shared
from ..core.gram import of_kernel
from ..core.kmeans import kernel_kmeans
from ..core.linalg import Array, Floats, Ints, Mask, SingularMatrixError
from ..core.loo import Leave
from ..core.many import BACKGROUND
from ..core.spread import no_spread
from ..core.warning import warn
from ..kernels import Kernel, check_memory, settled_kernel, training_matrix
from ..partition import count_distinct, refine_kmeans
from ..progress import progress
from ..unwrap import asked, unwrap
from ..validation import is_contaminated
from .changes import BankRows
from .doors import Door
from .pooled_labels import Settings
from .ratios import scores_of, sets_of, too_large
from .rows import TrainingRows
from .search import PCSDACV
from .shared import (
    SharedSearch,
    Sharing,
    cluster_rows,
    completed,
    project_all,
    sharing_of,
)
from .steps import axes_of, leave_sample

# Folds of labels that act as strangers, and the number of labels up to which the larger number is
# used. Each fold costs another fit of the remaining labels.
FOLDS, FEW_FOLDS, FEW_LABELS = 5, 3, 40
# One of this many rows of a label is left out if its model has no left-out scores.
EVERY = 5


class SeparateLabels:
    """Models for labels, sharing one factorisation if possible, otherwise fitted separately.

    Parameters
    ----------
    settings : Settings
    rows : BankRows
    ridge : float or None
        The absolute ridge, if known.
    kernel : Kernel or None
    models : list of estimators, optional
    factor : SharedFactor or None
    """

    def __init__(
        self,
        settings: Settings,
        rows: BankRows,
        ridge: float | None = None,
        kernel: Kernel | None = None,
        models: list[Any] | None = None,
        factor: SharedFactor | None = None,
    ) -> None:
        self.template, self.seed = settings.template, settings.seed
        self.given, self.own_clusters = settings.given, settings.own_clusters
        self.n_jobs, self.verbose = settings.n_jobs, settings.verbose
        self.settings, self.rows = settings, rows
        self.X, self.labels, self.clusters = rows.X, rows.labels, rows.clusters
        self.together = rows.together
        self.ridge, self.kernel, self.factor = ridge, kernel, factor
        self.models: list[Any] = [] if models is None else models
        self.matrix: Array | None = None  # kernel values, for k-means in feature space
        self.origin: SeparateLabels | None = None  # the labels before rows were added or removed

    @cached_property
    def door(self) -> Door:
        """Scores of each fitted label as a stranger; they take further fits, so only on request."""
        if self.origin is not None:
            return self.origin.door
        count = len(self.models)
        n_folds = min(FOLDS if count <= FEW_LABELS else FEW_FOLDS, count)
        fold = np.random.default_rng(self.seed).permutation(count) % n_folds
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # already given for all labels
            try:
                parts = [self._without(fold == number) for number in np.unique(fold)]
            except ValueError:  # there is no bank without the fold
                return Door.empty()
            own = self._own_scores()
            own = own if len(own) else self._own_refitted()
        best, gone = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        n_met = count * (1 - 1 / len(parts))
        return Door(best, self.labels[gone], own, n_met)

    def _without(self, away: Mask) -> tuple[Array, Ints]:
        """Fit a bank without some labels; return their rows' best scores in it, and the rows."""
        out = np.isin(self.labels, np.flatnonzero(away))
        kept, gone = np.flatnonzero(~out), np.flatnonzero(out)
        if isinstance(self.template, PCSDACV) and self.together is None and not self.given:
            return self._as_found(np.flatnonzero(~away), kept, self.X[gone]), gone
        number = np.append(np.cumsum(~away) - 1, BACKGROUND)  # the background stays
        return self._refitted(kept, gone, number).max(axis=1), gone

    def _refitted(self, kept: Ints, gone: Ints, number: Ints) -> Array:
        """Fit a bank to some rows, with new label numbers; return the scores of other rows."""
        rows = self.rows.kept(np.isin(np.arange(len(self.X)), kept))
        pairwise = get_tags(self.template).input_tags.pairwise
        if pairwise:
            rows = replace(rows, X=rows.X[:, kept])
        clusters = self.clusters[kept]
        if not self.given:
            clusters = cluster_rows(self.template, rows.X, None, self.seed)
        clusters = np.unique(clusters, return_inverse=True)[1]
        rows = replace(rows, labels=number[rows.labels], clusters=clusters)
        rest = SeparateLabels(replace(self.settings, verbose=False), rows, self.ridge, self.kernel)
        rest.models = rest.fit(range(int(number.max()) + 1))
        return rest.scores(self.X[np.ix_(gone, kept)] if pairwise else self.X[gone])

    def _own_refitted(self) -> Array:
        """Leave out some rows of each label; return their scores for their own labels.

        Without such scores a bank could not warn that it names hardly anybody. A search is not
        repeated, because it would take as long as the first.
        """
        counts = np.bincount(self.labels[self.labels >= 0])
        order = np.lexsort((self.rows.keys, self.labels))
        order = order[self.labels[order] >= 0]
        place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        size = counts[self.labels[order]]
        chosen = (place < np.maximum(size // EVERY, 1)) & (size > 1)
        if not chosen.any() or self.together is not None or isinstance(self.template, PCSDACV):
            return np.zeros(0)
        gone = np.sort(order[chosen])
        kept = np.setdiff1d(np.arange(len(self.X)), gone)
        number = np.append(np.arange(len(counts)), BACKGROUND)
        try:
            scores = self._refitted(kept, gone, number)
        except ValueError:  # the remaining rows do not determine a label
            return np.zeros(0)
        own: Array = scores[np.arange(len(gone)), self.labels[gone]]
        return own

    def _as_found(self, labels: Ints, kept: Ints, strangers: Floats) -> Array:
        """Return best scores for labels fitted to some rows, with the settings they have found."""
        best = np.full(len(strangers), -np.inf)
        for label in labels.tolist():  # another search would take as long as the first
            model = clone(self.models[label].best_estimator_)
            found = unwrap(model.fit(self.X[kept], self.labels[kept] == label))
            ratios = found.model.log_likelihood_ratio(found.rows(strangers))
            np.maximum(best, ratios, out=best)
        return best

    def _own_scores(self) -> Array:
        """Return the left-out scores of all rows for their own labels, if the models have any."""
        own = [np.zeros(0)]
        for label, model in enumerate(self.models):
            scores = getattr(unwrap(model).model, "loo_scores_", None)
            if scores is not None:
                own.append(scores[self.labels == label])
        found = np.concatenate(own)
        return found[~np.isnan(found)]

    def scores(self, X: Floats, trials: ArrayLike | None = None) -> Array:
        """Return the log-likelihood ratios of rows, or of trials, for all labels."""
        if self.sharing is None:
            columns = [asked(model, "log_likelihood_ratio", X, trials) for model in self.models]
            return np.column_stack(columns).astype(np.float64)
        models = [unwrap(model).model for model in self.models]
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            z = project_all(models, X)
        if not np.isfinite(z).all():
            raise too_large(z)
        edges = np.cumsum([0] + [model.n_components_ for model in models])
        sets = None if trials is None else sets_of(trials, len(X))
        columns = [
            scores_of(model, z[:, start:stop], sets)
            for model, start, stop in zip(models, edges[:-1], edges[1:], strict=True)
        ]
        return np.column_stack(columns)

    def priors(self) -> Array:
        """Return the prior probabilities of the rest and of each label, shape (C, 2)."""
        return np.array([unwrap(model).model.class_prior_ for model in self.models])

    def changed(
        self,
        before: BankRows,
        rows: BankRows,
        places: list[int | None],
        *,
        kept: Mask | None = None,
        touched: int | None = None,
        name: object = None,
        threshold: float | None = None,
    ) -> SeparateLabels:
        """Return the updated labels after the rows changed; see `PooledLabels.changed`."""
        fresh = len(rows.X) - len(before.X)
        factor = self.updated_factor(rows.X, kept, fresh)
        models = [self.models[old or 0] for old in places]
        found = SeparateLabels(self.settings, rows, self.ridge, self.kernel, models, factor)
        if touched is not None:
            (found.models[touched],) = found.fit([touched])
            if places[touched] is None and fresh == 1:
                warn(
                    f"label {name!r} has one row, which says nothing about its spread: the ratios "
                    "are based on the spread of the other labels. Add rows with update as soon "
                    "as you have them",
                )
        if "door" in self.__dict__:
            found.door = self.door
        else:
            found.origin = self.origin or self
        return found

    @property
    def sharing(self) -> Sharing | None:
        """Return how the models share a factorisation."""
        return sharing_of(self.template, self.X.shape)

    def fit(self, chosen: range | list[int]) -> list[Any]:
        """Fit the models for the chosen labels."""
        shared = self.sharing is not None
        fit: Callable[[int], Any] = self._shared_fit() if shared else self._separate
        threads = "threads" if shared else None
        jobs = Parallel(n_jobs=self.n_jobs, prefer=threads, return_as="generator")(
            delayed(fit)(label) for label in chosen
        )
        return list(progress(jobs, "models", enabled=self.verbose, total=len(chosen)))

    def cluster(self, count: int | None = None) -> Ints:
        """Cluster all rows into `count` clusters, or into as many as the estimator requires."""
        return cluster_rows(self.template, self.X, count, self.seed)

    def _shared_fit(self) -> Callable[[int], Any]:
        """Return a function that fits one label on the shared factorisation."""
        if self.sharing == "search":
            given = self.clusters if self.given else None
            data = self.X, self.labels, self.cluster, given, self.seed, self.together
            return SharedSearch(self.template, *data).fit
        if self.factor is None:
            self._factorise()
        factor, template = self.factor, self.template
        assert factor is not None
        leave_out = template.covariance == "leave-one-out"
        if leave_out:  # computed before threads use it
            _ = getattr(factor, "diagonal", None)
        kernel = self.kernel if self.sharing == "kernel" else None
        cells, together = Cells.of(self.labels, self.clusters), self.together
        over = None if self.own_clusters else factor.over(cells)

        def fit(label: int) -> Any:
            model = clone(template)
            groups = self.own_groups(label) if over is None else cells.division(label)[0]
            leave: Leave | None = None
            if leave_out:
                data = TrainingRows(self.X, groups, None, self.seed, together)
                leave = leave_sample(model, data)
            if over is not None:
                subspace = over.solve(label, axes_of(model), leave_out=leave)
            else:
                subspace = factor.solve(groups, axes_of(model), leave_out=leave)
            return completed(model, subspace, self.X, groups, self.seed, kernel, together)

        return fit

    def _factorise(self) -> None:
        """Factorise the rows, keeping the ridge and the kernel from the first fit."""
        template, X = self.template, self.X
        known = None if self.ridge is None else [self.ridge]
        if self.sharing == "linear":
            self.factor = next(factor_shared(X, [template.regularization], ridges=known))
        else:
            if count_distinct(X, 2) < 2:
                raise no_spread()
            check_memory(len(X), 3.5)
            if self.kernel is None or known is None:
                self.kernel = settled_kernel(template, X, None, self.seed)
            matrix = training_matrix(self.kernel, X, self.verbose)
            if self._in_features:
                self.matrix = matrix.copy()
            self.factor = next(of_kernel(matrix, [template.regularization], ridges=known))
        self.ridge = self.factor.ridge

    def _separate(self, label: int) -> Any:
        """Fit one label separately."""
        model = clone(self.template)
        known: dict[str, Any] = {}
        if is_contaminated(model):
            known = {"unchecked": self.labels == BACKGROUND}
            return model.fit(self.X, self.labels == label, groups=self.together, **known)
        searched = isinstance(model, PCSDACV) and not self.given  # it chooses K itself
        if not self.own_clusters and hasattr(model, "n_subclasses") and not searched:
            known = {"subclass_labels": self.clusters}
        if self.together is not None:
            known["groups"] = self.together
        return model.fit(self.X, self.labels == label, **known)

    @property
    def _in_features(self) -> bool:
        """Whether each label has its own k-means in a kernel's feature space."""
        way = getattr(self.template, "subclasses", None)
        own = self.own_clusters and self.sharing == "kernel"
        return own and isinstance(way, str) and way == "kmeans"

    def own_groups(self, label: int) -> Ints:
        """Group a label's negatives with its own k-means, started from the shared clusters."""
        groups = np.zeros(len(self.labels), dtype=np.intp)
        rows = np.flatnonzero(self.labels != label)
        start = np.unique(self.clusters[rows], return_inverse=True)[1]
        if self._in_features:
            assert self.matrix is not None
            found = kernel_kmeans(self.matrix, rows, start)[0]
        else:
            found = refine_kmeans(self.X[rows], start)
        groups[rows] = np.unique(found, return_inverse=True)[1] + 1
        return groups

    def updated_factor(self, X: Floats, kept: Mask | None, fresh: int) -> SharedFactor | None:
        """Update the factorisation for changed rows; return None if that would lose digits.

        Rows that are not `kept` were removed; `fresh` rows were added at the end of X.
        """
        factor = self.factor
        # The kernel matrix, or the origin of feature space, would have to change as well.
        if factor is None or self._in_features or getattr(factor, "moved", None) is not None:
            return None
        try:
            if kept is not None:
                return factor.without(kept, X)
            values = None
            if self.sharing == "kernel":
                assert self.kernel is not None
                values = self.kernel(X[-fresh:], X)
            return factor.appended(X, values)
        except SingularMatrixError:
            return None

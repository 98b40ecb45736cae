"""Bank labels that are calibrated separately, each on its own scores."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
from ..core.shared_rows import BACKGROUND
from ..core.spread import naming_the_offset, no_spread
from ..kernels import Kernel, check_memory, naming_far_rows, settled_kernel, training_matrix
from ..partition import count_distinct, refine_kmeans
from ..progress import progress
from ..unwrap import asked, unwrap
from .changes import BankRows, Change, Settings
from .doors import Door
from .dual import in_features
from .grid import fit_last
from .parameters import is_contaminated
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

# Folds of labels that serve as strangers: the first number up to FEW_LABELS labels, otherwise the
# second. Each fold costs another fit of the remaining labels.
FOLDS, FEW_FOLDS, FEW_LABELS = 5, 3, 40
# If models have no left-out scores, a refit leaves out one in this many rows of each label.
EVERY = 5


@dataclass(eq=False)
class SeparateLabels:
    """The labels of a bank, each with its own calibration.

    The labels share one factorisation if possible. Otherwise, each label is fitted separately.

    Attributes
    ----------
    settings : Settings
    rows : BankRows
    ridge : float or None
        The absolute ridge; None if it is not settled yet, or if labels share no ridge.
    kernel : Kernel or None
    models : list of estimators
    factor : SharedFactor or None
    matrix : array of shape (N, N) or None
        Kernel values, kept for k-means in feature space.
    origin : SeparateLabels or None
        The labels before rows were added or removed. Their scores of strangers still apply.
    """

    settings: Settings
    rows: BankRows
    ridge: float | None = None
    kernel: Kernel | None = None
    models: list[Any] = field(default_factory=list)
    factor: SharedFactor | None = None
    matrix: Array | None = field(default=None, init=False)
    origin: SeparateLabels | None = field(default=None, init=False)

    @cached_property
    def door(self) -> Door:
        """Scores of each label as a stranger.

        They are computed when they are first needed, because they require further fits.
        """
        if self.origin is not None:
            return self.origin.door
        count = len(self.models)
        n_folds = min(FOLDS if count <= FEW_LABELS else FEW_FOLDS, count)
        fold = np.random.default_rng(self.settings.seed).permutation(count) % n_folds
        with warnings.catch_warnings(action="ignore"):  # already given for all labels
            try:
                parts = [self._without(fold == number) for number in np.unique(fold)]
            except ValueError:  # the rows outside a fold do not determine a bank
                return Door.empty()
            own = self._own_scores()
            own = own if len(own) else self._own_refitted()
        best, gone = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        n_met = count * (1 - 1 / len(parts))
        return Door(best, self.rows.labels[gone], own, n_met)

    def _without(self, away: Mask) -> tuple[Array, Ints]:
        """Fit a bank without the labels marked in `away`.

        Return the best score of each row of these labels in that bank, and the numbers of the rows.
        """
        out = np.isin(self.rows.labels, np.flatnonzero(away))
        kept, gone = np.flatnonzero(~out), np.flatnonzero(out)
        searched = isinstance(self.settings.template, PCSDACV) and not self.settings.given
        if searched and self.rows.together is None:
            return self._as_found(np.flatnonzero(~away), kept, self.rows.X[gone]), gone
        number = np.append(np.cumsum(~away) - 1, BACKGROUND)  # the background stays
        return self._refitted(kept, gone, number).max(axis=1), gone

    def _refitted(self, kept: Ints, gone: Ints, number: Ints) -> Array:
        """Fit a bank to the rows `kept`, and return its scores for the rows `gone`.

        ``number[i]`` is the number of label i in this bank; the last entry is for the background.
        """
        rows = self.rows.kept(np.isin(np.arange(len(self.rows.labels)), kept))
        pairwise = get_tags(self.settings.template).input_tags.pairwise
        if pairwise:
            rows = rows.over(rows.X[:, kept])
        clusters = self.rows.clusters[kept]
        if not self.settings.given:
            clusters = cluster_rows(self.settings.template, rows.X, None, self.settings.seed)
        clusters = np.unique(clusters, return_inverse=True)[1]
        rows = replace(rows, labels=number[rows.labels], clusters=clusters)
        rest = SeparateLabels(replace(self.settings, verbose=False), rows, self.ridge, self.kernel)
        rest.models = rest.fit(range(int(number.max()) + 1))
        return rest.scores(self.rows.X[np.ix_(gone, kept)] if pairwise else self.rows.X[gone])

    def _own_refitted(self) -> Array:
        """Fit a bank without some rows of each label; return their scores for their own labels.

        With groups, all rows of the same groups are left out too. Without such scores, a bank could
        not warn that it names hardly any row. If the estimator is a search, there are no such
        scores, because another search would take as long as the first.
        """
        labels, searched = self.rows.labels, isinstance(self.settings.template, PCSDACV)
        counts = np.bincount(labels[labels >= 0])
        order = np.lexsort((self.rows.keys, labels))
        order = order[labels[order] >= 0]
        place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        size = counts[labels[order]]
        chosen = (place < np.maximum(size // EVERY, 1)) & (size > 1)
        if not chosen.any() or searched:
            return np.zeros(0)
        gone, together = np.sort(order[chosen]), self.rows.together
        if together is not None:
            gone = np.flatnonzero(np.isin(together, together[gone]) & (labels >= 0))
        kept = np.setdiff1d(np.arange(len(labels)), gone)
        if len(np.unique(labels[kept][labels[kept] >= 0])) < len(counts):
            return np.zeros(0)  # the groups hold a whole label
        number = np.append(np.arange(len(counts)), BACKGROUND)
        try:
            scores = self._refitted(kept, gone, number)
        except ValueError:  # the remaining rows do not determine a label
            return np.zeros(0)
        return scores[np.arange(len(gone)), labels[gone]]

    def _as_found(self, labels: Ints, kept: Ints, strangers: Floats) -> Array:
        """Fit labels to the rows `kept`, with the settings that the searches of the bank chose.

        Return the best score of each row of `strangers`.
        """
        best = np.full(len(strangers), -np.inf)
        for label in labels.tolist():  # another search would take as long as the first
            model = clone(self.models[label].best_estimator_)
            found = unwrap(model.fit(self.rows.X[kept], self.rows.labels[kept] == label))
            ratios = found.model.log_likelihood_ratio(found.rows(strangers))
            np.maximum(best, ratios, out=best)
        return best

    def _own_scores(self) -> Array:
        """Return the left-out scores of rows for their own labels, if the models have any."""
        own = [np.zeros(0)]
        for label, model in enumerate(self.models):
            scores = getattr(unwrap(model).model, "loo_scores_", None)
            if scores is not None:
                own.append(scores[self.rows.labels == label])
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
        """Return the prior probabilities of each label's negatives and positives, shape (C, 2)."""
        return np.array([unwrap(model).model.class_prior_ for model in self.models])

    def changed(self, change: Change) -> SeparateLabels:
        """Return the labels after a change of rows. Only ``change.touched`` is fitted again."""
        touched, places = change.touched, change.places
        models = [self.models[old or 0] for old in places]
        known = self.ridge, self.kernel, models, self._updated_factor(change)
        found = SeparateLabels(self.settings, change.rows, *known)
        if touched is not None:
            (found.models[touched],) = found.fit([touched])
            if places[touched] is None and len(change.fresh) == 1:
                change.warn_of_one_row()
        if "door" in self.__dict__:
            found.door = self.door
        else:
            found.origin = self.origin or self
        return found

    @property
    def sharing(self) -> Sharing | None:
        """The kind of factorisation that the models share; None if they share none."""
        return sharing_of(self.settings.template, self.rows.shape)

    def fit(self, chosen: range | list[int]) -> list[Any]:
        """Fit the models for the chosen labels."""
        shared = self.sharing is not None
        fit: Callable[[int], Any] = self._shared_fit() if shared else self._separate
        threads = "threads" if shared else None
        jobs = Parallel(n_jobs=self.settings.n_jobs, prefer=threads, return_as="generator")(
            delayed(fit)(label) for label in chosen
        )
        return list(progress(jobs, "models", enabled=self.settings.verbose, total=len(chosen)))

    def _shared_fit(self) -> Callable[[int], Any]:
        """Return a function that fits one label on the shared factorisation."""
        if self.sharing == "search":
            return SharedSearch(self.settings, self.rows).fit
        if self.factor is None:
            self._factorise()
        factor, template = self.factor, self.settings.template
        assert factor is not None
        leave_out = template.covariance == "leave-one-out"
        if leave_out:  # computed before threads use it
            _ = getattr(factor, "diagonal", None)
        kernel = self.kernel if self.sharing == "kernel" else None
        cells, rows = Cells.of(self.rows.labels, self.rows.clusters), self.rows
        over = None if self.settings.own_clusters else factor.over(cells)

        def fit(label: int) -> Any:
            model = clone(template)
            groups = self.own_groups(label) if over is None else cells.division(label)[0]
            data = TrainingRows(rows.X, groups, None, self.settings.seed, rows.together, kernel)
            leave = leave_sample(model, data) if leave_out else None
            if over is not None:
                subspace = over.solve(label, axes_of(model), leave_out=leave)
            else:
                subspace = factor.solve(groups, axes_of(model), leave_out=leave)
            return completed(model, subspace, data, rows.fingerprints)

        return fit

    def _factorise(self) -> None:
        """Factorise the rows, with the ridge and the kernel of an earlier fit if there was one."""
        template, X = self.settings.template, self.rows.X
        known = None if self.ridge is None else [self.ridge]
        if count_distinct(X, 2) < 2:
            raise no_spread()
        if self.sharing == "linear":
            with naming_the_offset(X):
                self.factor = next(factor_shared(X, [template.regularization], ridges=known))
        else:
            check_memory(len(X), 3.5)
            if self.kernel is None or known is None:
                self.kernel = settled_kernel(template, X, None, self.settings.seed)
            matrix = training_matrix(self.kernel, X, self.settings.verbose)
            if self._in_features:
                self.matrix = matrix.copy()
            with naming_far_rows(self.kernel, X):
                self.factor = next(of_kernel(matrix, [template.regularization], ridges=known))
        self.ridge = self.factor.ridge

    def _separate(self, label: int) -> Any:
        """Fit the estimator of one label by itself, without a shared factorisation."""
        model, rows = clone(self.settings.template), self.rows
        known: dict[str, Any] = {} if rows.together is None else {"groups": rows.together}
        searched = isinstance(model, PCSDACV) and not self.settings.given  # it chooses K itself
        alone = getattr(model, "subclasses", "") == "samples" and not self.settings.given
        if is_contaminated(model):
            known["unchecked"] = rows.labels == BACKGROUND
        elif not (self.settings.own_clusters or searched or alone) and hasattr(
            model, "n_subclasses"
        ):
            known["subclass_labels"] = rows.clusters
        return fit_last(model, rows.X, rows.labels == label, known)

    @property
    def _in_features(self) -> bool:
        """Whether k-means is run for each label separately, in a kernel's feature space."""
        own = self.settings.own_clusters and self.sharing == "kernel"
        return own and in_features(self.settings.template)

    def own_groups(self, label: int) -> Ints:
        """Return the group of each row for one label: 0 for its own rows, else the subclass.

        K-means on the label's negatives starts from the shared clusters.
        """
        groups = np.zeros(len(self.rows.labels), dtype=np.intp)
        rows = np.flatnonzero(self.rows.labels != label)
        start = np.unique(self.rows.clusters[rows], return_inverse=True)[1]
        if self._in_features:
            assert self.matrix is not None
            found = kernel_kmeans(self.matrix, rows, start)[0]
        else:
            found = refine_kmeans(self.rows.X[rows], start)
        groups[rows] = np.unique(found, return_inverse=True)[1] + 1
        return groups

    def _updated_factor(self, change: Change) -> SharedFactor | None:
        """Return the factorisation updated for changed rows; None if it must be computed anew."""
        factor, X = self.factor, change.rows.X
        # The stored kernel matrix or the origin of feature space would have to be updated as well.
        if factor is None or self._in_features or getattr(factor, "moved", None) is not None:
            return None
        try:
            if change.kept is not None:
                return factor.without(change.kept, X)
            values = None
            if self.sharing == "kernel":
                assert self.kernel is not None
                values = self.kernel(change.fresh, X)
            return factor.appended(X, values)
        except SingularMatrixError:
            return None

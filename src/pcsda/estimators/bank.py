"""A class-specific model for every label, on one factorisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from .. import validation
from ..core.cells import Cells
from ..core.explanation import Explanation
from ..core.factor import SharedFactor, factor_shared
from ..core.gram import of_kernel
from ..core.linalg import Array, SingularMatrixError
from ..core.loo import Leave
from ..core.scatter import group_means
from ..core.spread import no_spread
from ..kernels import SCALED_KERNELS, check_memory, settled_kernel, training_matrix
from ..partition import (
    count_distinct,
    kernel_kmeans,
    make_groups,
    nearest,
    refine_kmeans,
    run_kmeans,
    settle_count,
)
from ..progress import progress
from ..unwrap import unwrap
from .kernel import (
    KernelPCSDA,
    is_precomputed,
)
from .linear import PCSDA
from .search import PCSDACV, bandwidths, check_search, template_of
from .shared import SharedSearch, completed, project_all
from .verifier import leave_sample, narrowed, scores_of, sets_of


class VerifierBank(ClassifierMixin, BaseEstimator):
    """A verifier for every label, fitted on one factorisation of the data.

    Parameters
    ----------
    estimator : PCSDA, KernelPCSDA or any class-specific estimator, default=None
        What each label's model is; None stands for ``PCSDA()``. PCSDA with its default solver, and
        KernelPCSDA with a bandwidth common to all classes (`gamma` "all", "scale" or a number),
        share one factorisation, and so does PCSDACV of these, with bandwidths that are not
        "positive"; everything else is fitted for each label on its own, in parallel.
    subclasses : {"shared", "per-class"}, default="shared"
        One clustering of all rows, of which each label's negatives keep their part, or a k-means
        of its own for each label, started from the shared one.
        PCSDACV, which chooses K for each label, has a shared clustering for each K, and where it
        needs folds, or cannot share, clusters of its own.
    n_jobs : int or None, default=None
        Parallel jobs, as in joblib. The result does not depend on it.
    verbose : bool, default=False
        Draw a progress bar on a terminal.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    models_ : dict
        The fitted estimator of each label; its positive class is True.
    clusters_ : array of shape (n_samples,)
        Shared cluster of each training row.
    centroids_ : array of shape (n_clusters, n_features)
        Their means, which enrolled rows are assigned by.
    ridge_ : float
        The absolute ridge, kept when labels are enrolled or removed.

    Notes
    -----
    `enroll`, `remove` and `refresh` need no data from the caller: the bank keeps its training rows
    and its factorisation, which are updated. That is N x D numbers twice, or N x D and N x N for a
    kernel bank and for D > N. Enrolling n rows costs ``4 N D n`` (kernel: n N kernel values and
    ``2 N^2 n``) instead of ``N D^2`` (``N^3/3``), and one model. Removing costs the same; of a
    kernel factor all that follows the first removed row is made anew. Where an update would lose
    digits, with k-means for each label in a kernel bank, with a kernel whose values have a large
    part in common, with PCSDACV, and after unpickling (the factorisation is left out of pickles),
    everything is factorised anew.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from pcsda import VerifierBank
    >>> X, y = load_digits(return_X_y=True)
    >>> bank = VerifierBank().fit(X[:900], y[:900])
    >>> bank.log_likelihood_ratio(X[900:903]).shape
    (3, 10)
    """

    ridge_: float

    def __init__(
        self,
        estimator: Any = None,
        *,
        subclasses: str = "shared",
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.subclasses = subclasses
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __getstate__(self) -> dict[str, Any]:
        # Not every label survives as the key of a dictionary in a model file: False would be True.
        # The factorisation is large, and made anew when it is needed.
        state = dict(super().__getstate__())
        if "models_" in state:
            state["models_"] = list(state["models_"].values())
            state["_factor"] = state["_matrix"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if "models_" in state:
            state.pop("_source", None)  # what files of version 0.1.0 have in the place of _factor
            state["_factor"] = state["_matrix"] = None
            state.setdefault("_together", None)
            names = state["classes_"].tolist()
            state["models_"] = dict(zip(names, state["models_"], strict=True))
        super().__setstate__(state)

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        subclass_labels: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit a model for every label in y.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            At least two labels.
        subclass_labels : array-like of shape (n_samples,), optional
            Shared clusters of all rows; without it they are found by k-means.
        groups : array-like of shape (n_samples,), optional
            Rows of one group, such as the frames of one recording, are left out together. Rows
            that are enrolled later are a group of their own.
        """
        validation.check_option("subclasses", self.subclasses, ("shared", "per-class"))
        validation.refuse_dask(X, y)
        # Enrolling and kernel models go on using the rows, so they must not be the caller's.
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], copy=True)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class only, {self.classes_.tolist()}; a bank needs at least two labels"
            )
        template = self._template
        if isinstance(template, PCSDACV):
            check_search(template)
        elif isinstance(template, (PCSDA, KernelPCSDA)):
            validation.check_verifier(template)
        if getattr(template, "pos_label", None) is not None:
            raise ValueError(
                f"pos_label={template.pos_label!r} is not for a bank, where every label in turn is "
                "the class of interest; leave it None"
            )
        self._seed = check_random_state(getattr(template, "random_state", None)).randint(2**31 - 1)
        self._X, self._labels = X, labels
        self._together = validation.check_groups(groups, len(X))
        if groups is not None and not has_fit_parameter(template, "groups"):
            raise ValueError(
                f"groups are left out in closed form, which {type(template).__name__} cannot; use "
                "PCSDA, KernelPCSDA or PCSDACV, or leave groups out"
            )
        self._given = subclass_labels is not None
        self.clusters_ = self._clusters(X, subclass_labels)
        sizes = np.bincount(self.clusters_).astype(np.float64)
        self.centroids_ = group_means(X, self.clusters_, sizes, None)
        for name in ("ridge_", "kernel_"):
            self.__dict__.pop(name, None)
        self._factor: SharedFactor | None = None
        self._matrix: Array | None = None  # kernel values, for k-means in feature space
        self.models_ = dict(zip(self.classes_.tolist(), self._fit_models(), strict=True))
        return self

    @property
    def _template(self) -> Any:
        return PCSDA() if self.estimator is None else self.estimator

    @property
    def _sharing(self) -> str | None:
        """How models share a factorisation: "linear", "kernel", "search" or not at all."""
        template = self._template
        if isinstance(template, PCSDACV):
            inner = template_of(template)
            common = isinstance(inner, PCSDA) or (
                isinstance(inner, KernelPCSDA)
                and not is_precomputed(inner)
                and "positive" not in bandwidths(template, inner)
            )
            return "search" if common and isinstance(template.cv, str) else None
        pooled = getattr(template, "balance", None) == "pooled"
        if not pooled or template.solver not in ("auto", "cholesky"):
            return None
        if isinstance(template.subclasses, str) and template.subclasses == "samples":
            return None
        if isinstance(template, PCSDA):
            # Wide rows without a ridge have a null space for each label.
            wide = self._X.shape[1] > len(self._X)
            return None if wide and template.regularization == 0 else "linear"
        common = template.kernel not in SCALED_KERNELS or template.gamma != "positive"
        rows = not is_precomputed(template)
        return "kernel" if isinstance(template, KernelPCSDA) and common and rows else None

    def _clusters(self, X: Any, given: Any, count: int | None = None) -> NDArray[np.intp]:
        """Shared clusters of all rows, `count` of them or as many as the estimator asks for."""
        if given is not None:
            if len(given) != len(X):
                raise ValueError(
                    f"subclass_labels has {len(given)} entries but X has {len(X)} rows"
                )
            nobody = np.zeros(len(X), dtype=bool)
            return make_groups(X, nobody, subclass_labels=given)[0] - 1
        template = self._template
        if isinstance(template, PCSDACV):
            template = template_of(template)
        found = getattr(template, "subclasses", "kmeans")
        if not isinstance(found, str):
            return np.unique(clone(found).fit_predict(X), return_inverse=True)[1]
        count = settle_count(X, count if count else getattr(template, "n_subclasses", 1))
        if count == 1:
            return np.zeros(len(X), dtype=np.intp)
        return np.unique(run_kmeans(X, count, None, self._seed), return_inverse=True)[1]

    def _fit_models(self, chosen: range | list[int] | None = None) -> list[Any]:
        """Fit the models of the chosen labels, of all without a choice."""
        chosen = range(len(self.classes_)) if chosen is None else chosen
        shared = self._sharing is not None
        fit: Callable[[int], Any] = self._shared_fit() if shared else self._separate
        threads = "threads" if shared else None
        jobs = Parallel(n_jobs=self.n_jobs, prefer=threads, return_as="generator")(
            delayed(fit)(label) for label in chosen
        )
        return list(progress(jobs, "models", enabled=self.verbose, total=len(chosen)))

    def _shared_fit(self) -> Callable[[int], Any]:
        """How one label is fitted on the factorisation that all share."""
        if self._sharing == "search":
            clusters = self.clusters_ if self._given else None
            return SharedSearch(
                self._template,
                self._X,
                self._labels,
                self._clusters_of,
                clusters,
                self._seed,
                self._together,
            ).fit
        if self._factor is None:
            self._factorise()
        factor, template = self._factor, self._template
        assert factor is not None
        leave_out = template.covariance == "leave-one-out"
        if leave_out:  # what all labels share is computed before threads ask for it
            _ = getattr(factor, "diagonal", None)
        kernel = self.kernel_ if self._sharing == "kernel" else None
        cells, together = Cells.of(self._labels, self.clusters_), self._together
        over = factor.over(cells) if self.subclasses == "shared" else None

        def fit(label: int) -> Any:
            model = clone(template)
            groups = self._own_groups(label) if over is None else cells.division(label)[0]
            leave: Leave | bool = False
            if leave_out:
                leave = leave_sample(model, groups, None, self._seed, together)
            if over is not None:
                subspace = over.solve(label, model.n_components, leave_out=leave)
            else:
                subspace = factor.solve(groups, model.n_components, leave_out=leave)
            return completed(model, subspace, self._X, groups, self._seed, kernel, together)

        return fit

    def _factorise(self) -> None:
        """Factorise the rows; the ridge and the kernel of the first time stay."""
        template, X = self._template, self._X
        known = [self.ridge_] if hasattr(self, "ridge_") else None
        if self._sharing == "linear":
            self._factor = next(factor_shared(X, [template.regularization], ridges=known))
        else:
            if count_distinct(X, 2) < 2:
                raise no_spread()
            check_memory(len(X), 3.5)
            if not hasattr(self, "kernel_") or known is None:
                self.kernel_ = settled_kernel(template, X, None, self._seed)
            matrix = training_matrix(self.kernel_, X, self.verbose)
            if self._in_features:
                self._matrix = matrix.copy()
            self._factor = next(of_kernel(matrix, [template.regularization], ridges=known))
        self.ridge_ = self._factor.ridge

    def _separate(self, label: int) -> Any:
        """Fit one label on its own."""
        model = clone(self._template)
        known = {}
        searched = isinstance(model, PCSDACV) and not self._given  # K is its own business
        if self.subclasses == "shared" and hasattr(model, "n_subclasses") and not searched:
            known = {"subclass_labels": self.clusters_}
        if self._together is not None:
            known["groups"] = self._together
        return model.fit(self._X, self._labels == label, **known)

    @property
    def _in_features(self) -> bool:
        """Whether each label has a k-means of its own in the feature space of a kernel."""
        way = getattr(self._template, "subclasses", None)
        own = self.subclasses == "per-class" and self._sharing == "kernel"
        return own and isinstance(way, str) and way == "kmeans"

    def _clusters_of(self, count: int) -> NDArray[np.intp]:
        return self._clusters(self._X, None, count)

    def _own_groups(self, label: int) -> NDArray[np.intp]:
        """Groups of one label by a k-means of its own, started from the shared clusters."""
        groups = np.zeros(len(self._labels), dtype=np.intp)
        rows = np.flatnonzero(self._labels != label)
        start = np.unique(self.clusters_[rows], return_inverse=True)[1]
        if self._in_features:
            assert self._matrix is not None
            found = kernel_kmeans(self._matrix, rows, start)[0]
        else:
            found = refine_kmeans(self._X[rows], start)
        groups[rows] = np.unique(found, return_inverse=True)[1] + 1
        return groups

    def _scores(self, X: Any, trials: ArrayLike | None = None) -> tuple[Array, Any]:
        """Log-likelihood ratios (n, n_classes) as float64, and the type to return them in."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        if self._sharing is None:
            columns = [model.log_likelihood_ratio(X, trials) for model in self.models_.values()]
            return np.column_stack(columns).astype(np.float64), X.dtype
        models_ = [unwrap(model).model for model in self.models_.values()]
        with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is looked at below
            z = project_all(models_, X)
        if not np.isfinite(z).all():
            row = int(np.flatnonzero(~np.isfinite(z).all(axis=1))[0])
            raise ValueError(f"row {row} of X is too large to project; bring X to the fitted scale")
        edges = np.cumsum([0] + [model.n_components_ for model in models_])
        sets = None if trials is None else sets_of(trials, len(X))
        columns = [
            scores_of(model, z[:, start:stop], sets)
            for model, start, stop in zip(models_, edges[:-1], edges[1:], strict=True)
        ]
        return np.column_stack(columns), X.dtype

    def log_likelihood_ratio(self, X: Any, trials: ArrayLike | None = None) -> NDArray[np.floating]:
        """Log-likelihood ratio of every row, or trial, for every label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        trials : array-like of shape (n_samples,), default=None
            Trial of each row; the result then has a row for each of ``np.unique(trials)``. See
            :meth:`PCSDA.log_likelihood_ratio`.

        Returns
        -------
        array of shape (n_samples, n_classes) or (n_trials, n_classes)
        """
        return narrowed(*self._scores(X, trials))

    def _odds(self, X: Any) -> tuple[Array, Any]:
        scores, dtype = self._scores(X)
        priors = np.array([model.class_prior_ for model in self.models_.values()])
        return scores + np.log(priors[:, 1] / priors[:, 0]), dtype

    def decision_function(self, X: Any) -> NDArray[np.floating]:
        """Log posterior ratio of every label against the rest, shape (n_samples, n_classes).

        With two labels it is that of ``classes_[1]``, shape (n_samples,), as in scikit-learn.
        """
        odds, dtype = self._odds(X)
        return narrowed(self._two(odds), dtype)

    @staticmethod
    def _two(odds: Array) -> Array:
        """Of two labels the second against the first; other numbers of labels as they are."""
        return odds[:, 1] - odds[:, 0] if odds.shape[1] == 2 else odds

    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """Probabilities of the labels in a closed set: posteriors, normalised over the labels."""
        odds, dtype = self._odds(X)
        if odds.shape[1] == 2:
            odds = self._two(odds)[:, None] * np.array([-1.0, 1.0])
            return np.exp(log_expit(odds)).astype(dtype, copy=False)
        logs = log_expit(odds)
        logs -= logs.max(axis=1, keepdims=True)
        chances = np.exp(logs)
        return (chances / chances.sum(axis=1, keepdims=True)).astype(dtype, copy=False)

    def predict(self, X: Any) -> NDArray[Any]:
        """Label with the largest posterior ratio: identification in a closed set."""
        odds, _ = self._odds(X)
        return self.classes_[odds.argmax(axis=1)]

    def identify(
        self,
        X: Any,
        threshold: float = 0.0,
        unknown: Any = None,
        *,
        trials: ArrayLike | None = None,
    ) -> NDArray[Any]:
        """Label with the largest log-likelihood ratio, or `unknown` where none reaches `threshold`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        threshold : float, default=0.0
            Least log-likelihood ratio of a known label; see `metrics.bayes_threshold`.
        unknown : object, default=None
            What to return for rows of no known label.
        trials : array-like of shape (n_samples,), default=None
            Trial of each row; the result then has one label for each of ``np.unique(trials)``.

        Returns
        -------
        array of shape (n_samples,) or (n_trials,)
            Of the type of the labels if `unknown` fits that, else of objects.
        """
        scores, _ = self._scores(X, trials)
        best = scores.argmax(axis=1)
        known = scores[np.arange(len(best)), best] >= threshold
        found = self.classes_[best]
        kind = np.result_type(np.asarray(unknown), found) if unknown is not None else object
        same = np.asarray(unknown).dtype.kind == found.dtype.kind
        found = found.astype(kind if same else object)
        found[~known] = unknown
        return found

    def verify(
        self, X: Any, claimed: ArrayLike, *, trials: ArrayLike | None = None
    ) -> NDArray[np.floating]:
        """Log-likelihood ratio of each row, or trial, for the label it claims.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        claimed : label or array-like of shape (n_samples,)
        trials : array-like of shape (n_samples,), default=None
            Trial of each row, all of whose rows claim one label; the result then has one value for
            each of ``np.unique(trials)``.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        claims = np.asarray(claimed)
        if claims.shape not in ((), (len(X),)):
            raise ValueError(
                f"claimed has shape {claims.shape} but must be one label, or one for each of the "
                f"{len(X)} rows of X"
            )
        names = np.broadcast_to(claims, (len(X),)).tolist()
        sets, n_sets = (np.arange(len(X)), len(X)) if trials is None else sets_of(trials, len(X))
        claim_of: dict[int, Any] = {}
        for number, name in zip(sets.tolist(), names, strict=True):
            if claim_of.setdefault(number, name) != name:
                raise ValueError(
                    f"trial {np.unique(np.asarray(trials)).tolist()[number]!r} claims both "
                    f"{claim_of[number]!r} and {name!r}; a trial has one claim"
                )
        result = np.empty(n_sets, dtype=X.dtype)
        for label in dict.fromkeys(names):
            rows = np.array([row for row, name in enumerate(names) if name == label])
            # Numbers of trials keep their order, so the values come back in the order of these.
            found = None if trials is None else sets[rows]
            ratios = self._model(label).log_likelihood_ratio(X[rows], found)
            result[np.unique(sets[rows])] = ratios
        return result

    def explain(self, X: Any, label: Any) -> Explanation:
        """Say why rows have their log-likelihood ratio for `label`; see :meth:`PCSDA.explain`."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        explanation: Explanation = self._model(label).explain(X)
        return explanation

    def rank(self, X: Any, label: Any, by: str = "distance") -> NDArray[np.intp]:
        """Order rows by how well they fit `label`, best first; `by` as in :meth:`PCSDA.rank`."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return self._model(label).rank(X, by=by)

    def _model(self, label: Any) -> Any:
        if label not in self.models_:
            raise ValueError(
                f"label {label!r} is not in the bank; enroll it first, or use one of "
                f"{_listed(self.classes_)}"
            )
        return self.models_[label]

    def enroll(self, X: Any, label: Any) -> Self:
        """Add a label from new rows; the other models stay as they are until `refresh`.

        The new model is that of a separate fit on all rows with the bank's ridge and clusters, new
        rows belonging to the cluster of the nearest centroid.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        label : object
            A label that the bank does not have.
        """
        check_is_fitted(self)
        if label in self.models_:
            raise ValueError(
                f"label {label!r} is in the bank already; remove it first to enroll it anew"
            )
        X = validate_data(self, X, reset=False, dtype=self._X.dtype)
        order = np.append(self.classes_, label)
        try:
            same = order.dtype.kind == self.classes_.dtype.kind and len(np.unique(order)) > 0
            same = same and (order.dtype.kind != "U" or isinstance(label, str))
        except TypeError:  # objects that have no common order
            same = False
        if not same:
            raise ValueError(
                f"label {label!r} is of another kind than the labels of the bank, "
                f"{_listed(self.classes_)}; use a label of the same type"
            )
        clusters = nearest(X, self.centroids_)
        before = dict(self.__dict__)
        try:
            self._X = np.concatenate([self._X, X])
            self.clusters_ = np.concatenate([self.clusters_, clusters])
            if self._together is not None:
                own = np.full(len(X), self._together.max() + 1)
                self._together = np.concatenate([self._together, own])
            names = np.concatenate([self.classes_[self._labels], np.full(len(X), label)])
            self._rename(names)
            place = int(np.flatnonzero(self.classes_ == label)[0])
            self._update(fresh=len(X))
            (model,) = self._fit_models([place])
        except Exception:  # the bank stays as it was
            self.__dict__.update(before)
            raise
        fitted = self.models_ | {self.classes_.tolist()[place]: model}
        self.models_ = {name: fitted[name] for name in self.classes_.tolist()}
        return self

    def remove(self, label: Any) -> Self:
        """Take a label and its rows away; the other models stay as they are until `refresh`."""
        check_is_fitted(self)
        self._model(label)
        if len(self.classes_) == 2:
            raise ValueError("a bank needs at least two labels; this would leave one")
        kept = self.classes_[self._labels] != label
        names = self.classes_[self._labels][kept]
        self._X, self.clusters_ = self._X[kept], self.clusters_[kept]
        if self._together is not None:
            self._together = self._together[kept]
        self._rename(names)
        self._update(kept)
        del self.models_[label]
        return self

    def _update(self, kept: NDArray[np.bool_] | None = None, fresh: int = 0) -> None:
        """Bring the factorisation in line with the rows, or forget it where that loses digits.

        Rows that are not `kept` are gone, or `fresh` ones are at the end.
        """
        factor, self._factor, self._matrix = self._factor, None, None
        # The matrix itself, or the origin of feature space, would have to be made anew.
        if factor is None or self._in_features or getattr(factor, "moved", None) is not None:
            return
        try:
            if kept is not None:
                self._factor = factor.without(kept, self._X)
                return
            values = None
            if self._sharing == "kernel":
                values = self.kernel_(self._X[-fresh:], self._X)
            self._factor = factor.appended(self._X, values)
        except SingularMatrixError:
            self._factor = None

    def refresh(self) -> Self:
        """Fit all models anew on the rows of all labels that are enrolled now.

        They are factorised from scratch, which also takes off what rounding many updates left.
        """
        check_is_fitted(self)
        self._factor = self._matrix = None
        self.models_ = dict(zip(self.classes_.tolist(), self._fit_models(), strict=True))
        return self

    def _rename(self, names: NDArray[Any]) -> None:
        self.classes_, self._labels = np.unique(names, return_inverse=True)


def _listed(classes: NDArray[Any]) -> str:
    shown = classes[:8].tolist()
    return str(shown) if len(classes) <= 8 else f"{str(shown)[:-1]}, ...] ({len(classes)} labels)"

"""A class-specific model for every label, on one factorisation."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from . import validation
from .core.explanation import Explanation
from .core.linalg import Array, SingularMatrixError
from .core.scatter import group_means
from .estimators import PCSDA
from .kernel_estimators import KernelPCSDA
from .kernels import SCALED_KERNELS
from .model_selection import PCSDACV
from .partition import fit_kmeans, kernel_kmeans, make_groups, run_kmeans, settle_count
from .progress import progress
from .sources import SOURCES
from .unwrap import unwrap
from .verifier import narrowed, sets_of


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
            state["_source"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if "models_" in state:
            names = state["classes_"].tolist()
            state["models_"] = dict(zip(names, state["models_"], strict=True))
        super().__setstate__(state)

    def fit(self, X: Any, y: ArrayLike, *, subclass_labels: ArrayLike | None = None) -> Self:
        """Fit a model for every label in y.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            At least two labels.
        subclass_labels : array-like of shape (n_samples,), optional
            Shared clusters of all rows; without it they are found by k-means.
        """
        validation.check_option("subclasses", self.subclasses, ("shared", "per-class"))
        validation.refuse_dask(X, y)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class only, {self.classes_.tolist()}; a bank needs at least two labels"
            )
        template = self._template
        if getattr(template, "pos_label", None) is not None:
            raise ValueError(
                f"pos_label={template.pos_label!r} is not for a bank, where every label in turn is "
                "the class of interest; leave it None"
            )
        self._seed = check_random_state(getattr(template, "random_state", None)).randint(2**31 - 1)
        self._X, self._labels = X, labels
        self._given = subclass_labels is not None
        self.clusters_ = self._clusters(X, subclass_labels)
        sizes = np.bincount(self.clusters_).astype(np.float64)
        self.centroids_ = group_means(X, self.clusters_, sizes, None)
        self.__dict__.pop("ridge_", None)
        self._source: Any = None
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
            inner = template._template
            common = isinstance(inner, PCSDA) or (
                isinstance(inner, KernelPCSDA)
                and inner.kernel != "precomputed"
                and "positive" not in template._bandwidths(inner)
            )
            return "search" if common and isinstance(template.cv, str) else None
        pooled = getattr(template, "balance", None) == "pooled"
        if not pooled or template.solver not in ("auto", "cholesky"):
            return None
        if isinstance(template.subclasses, str) and template.subclasses == "samples":
            return None
        if isinstance(template, PCSDA):
            return "linear"
        common = template.kernel not in SCALED_KERNELS or template.gamma != "positive"
        rows = not (isinstance(template.kernel, str) and template.kernel == "precomputed")
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
            template = template._template
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
        fit, threads = self._separate, None
        if self._sharing is not None:
            if self._source is None:
                self._source = SOURCES[self._sharing](self)
            fit, threads = self._source.fit, "threads"
        jobs = Parallel(n_jobs=self.n_jobs, prefer=threads, return_as="generator")(
            delayed(fit)(label) for label in chosen
        )
        return list(progress(jobs, "models", enabled=self.verbose, total=len(chosen)))

    def _separate(self, label: int) -> Any:
        """Fit one label on its own."""
        model = clone(self._template)
        known = {}
        searched = isinstance(model, PCSDACV) and not self._given  # K is its own business
        if self.subclasses == "shared" and hasattr(model, "n_subclasses") and not searched:
            known = {"subclass_labels": self.clusters_}
        return model.fit(self._X, self._labels == label, **known)

    def _own_groups(self, label: int, matrix: Array | None = None) -> NDArray[np.intp]:
        """Groups of one label by a k-means of its own, started from the shared clusters."""
        groups = np.zeros(len(self._labels), dtype=np.intp)
        rows = np.flatnonzero(self._labels != label)
        start = np.unique(self.clusters_[rows], return_inverse=True)[1]
        if matrix is not None:
            found = kernel_kmeans(matrix, rows, start)[0]
        else:
            sizes = np.bincount(start).astype(np.float64)
            centroids = group_means(self._X[rows], start, sizes, None)
            centroids = centroids.astype(self._X.dtype)
            means = KMeans(len(sizes), init=centroids, n_init=1)
            found = fit_kmeans(means, self._X[rows]).labels_
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
            z = _project_all(models_, X)
        if not np.isfinite(z).all():
            row = int(np.flatnonzero(~np.isfinite(z).all(axis=1))[0])
            raise ValueError(f"row {row} of X is too large to project; bring X to the fitted scale")
        edges = np.cumsum([0] + [model.n_components_ for model in models_])
        sets = () if trials is None else sets_of(trials, len(X))
        columns = [
            model.calibration_(
                model._log_ratio_of_sets(z[:, start:stop], *sets)
                if sets
                else model._log_ratio(z[:, start:stop])
            )
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
            Least log-likelihood ratio of a known label. Strangers were not among the rest in
            training, and 0 accepts nearly all of them: take a high quantile of
            ``log_likelihood_ratio(strangers).max(axis=1)``, of strangers held back.
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
        nearest = pairwise_distances_argmin(X, self.centroids_.astype(X.dtype))
        before = dict(self.__dict__)
        try:
            self._X = np.concatenate([self._X, X])
            self.clusters_ = np.concatenate([self.clusters_, nearest])
            names = np.concatenate([self.classes_[self._labels], np.full(len(X), label)])
            self._rename(names)
            place = int(np.flatnonzero(self.classes_ == label)[0])
            self._update("grown", len(X))
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
        self._rename(names)
        self._update("shrunk", kept)
        del self.models_[label]
        return self

    def _update(self, how: str, change: Any) -> None:
        """Bring the factorisation in line with the rows, or forget it where that loses digits."""
        update = getattr(self._source, how, None)
        try:
            self._source = None if update is None else update(change)
        except SingularMatrixError:
            self._source = None

    def refresh(self) -> Self:
        """Fit all models anew on the rows of all labels that are enrolled now.

        They are factorised from scratch, which also takes off what rounding many updates left.
        """
        check_is_fitted(self)
        self._source = None
        self.models_ = dict(zip(self.classes_.tolist(), self._fit_models(), strict=True))
        return self

    def _rename(self, names: NDArray[Any]) -> None:
        self.classes_, self._labels = np.unique(names, return_inverse=True)


def _project_all(models_: list[Any], X: Any) -> Array:
    """Coordinates under all models, side by side, by one matrix product."""
    if isinstance(models_[0], PCSDA):
        components = np.vstack([model.components_ for model in models_])
        origins = [model.components_ @ model.positive_mean_ for model in models_]
        return X @ components.T.astype(X.dtype) - np.concatenate(origins).astype(X.dtype)
    # Kernel models have their training rows and kernel in common, all but those enrolled since or
    # with a bandwidth of their own: the first computes the kernel for all that share it.
    columns: list[Any] = [None] * len(models_)
    kinds = [(id(model.X_fit_), id(model.kernel_)) for model in models_]
    for kind in dict.fromkeys(kinds):
        chosen = [i for i, own in enumerate(kinds) if own == kind]
        alike = [models_[i] for i in chosen]
        z = alike[0]._against(
            X,
            np.hstack([model.dual_coef_ for model in alike]),
            np.concatenate([model.origin_ for model in alike]),
        )
        edges = np.cumsum([model.n_components_ for model in alike])
        for i, part in zip(chosen, np.split(z, edges[:-1], axis=1), strict=True):
            columns[i] = part
    return np.hstack(columns)


def _listed(classes: NDArray[Any]) -> str:
    shown = classes[:8].tolist()
    return str(shown) if len(classes) <= 8 else f"{str(shown)[:-1]}, ...] ({len(classes)} labels)"

"""PCSDA as a scikit-learn estimator: it checks the data, calls the core and stores the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from .. import validation
from ..core.linalg import Array, Floats, Ints, Mask, is_light, narrow_fit, one_thread
from ..core.scatter import GroupScatter
from ..partition import (
    count_distinct,
    different_subclasses,
    given_labels,
    merge_equal,
    nearest,
)
from ..validation import MatrixLike, Seed
from . import stream
from .callbacks import calls_back
from .hidden import hidden_rows
from .naming import name_as_given, name_by_labels
from .parameters import check_verifier, is_contaminated
from .rows import rows_of
from .steps import PUBLISHED, check_training, least_subclasses
from .threads import updates
from .training import (
    divide,
    fit_rows,
    held_out_scores,
    linear_coordinates,
    linear_map,
    pcsda_factory,
    with_products,
)
from .verifier import Verifier

__all__ = ["PCSDA", "held_out_scores", "pcsda_factory"]


class PCSDA(Verifier):
    """Probabilistic class-specific discriminant analysis.

    Learns a subspace that separates one class from all others, and a calibrated log-likelihood
    ratio in this subspace. The other classes may consist of subclasses without labels, which the
    model takes into account.

    Parameters
    ----------
    n_subclasses : int or "auto", default="auto"
        Number K of subclasses into which k-means divides the negatives. "auto" means about one per
        15 negatives, but at least 1 and at most 20 or one per 2 distinct negatives, and with fewer
        than 10 positives in D columns at most ``max(2**D, n_positives)``. If `n_components` is a
        number, "auto" is at least that number. K must not exceed the number of distinct negatives.
    n_components : int or None, default=None
        Dimension d of the subspace. None means the largest possible,
        ``min(n_subclasses, n_features, rank)``.
    subclasses : {"kmeans", "samples"} or clusterer, default="kmeans"
        How to divide the negatives: by k-means, with one subclass per sample, or with any
        scikit-learn clusterer.
    balance : {"pooled", "resampled"}, default="pooled"
        The paper's two ways to treat subclasses of unequal size: "pooled" adds up their scatter,
        "resampled" draws equally many Gaussian samples for each. Drawn samples cannot be left out,
        so "resampled" uses ``covariance="resubstitution"``.
    solver : {"auto", "cholesky", "eigen", "spectral", "lsqr"}, default="auto"
        "cholesky" is exact and fastest. "eigen" solves the generalised eigenproblem as the paper
        states it. "spectral" is the paper's spectral regression, and "lsqr" its iterative form.
        "lsqr" never makes sparse data dense, but it cannot leave rows out, so it uses
        ``covariance="resubstitution"``, and the model ranks and counts less well. "auto" means
        "cholesky", which makes sparse X dense. It means "lsqr", with a warning, for sparse X that
        would need more than 2 GiB as a dense array, or a quarter of the free memory, or
        ``N D min(N, D) > 1e12`` multiplications.
    regularization : float or "auto", default="auto"
        Ridge on the criterion's denominator, relative to the mean squared distance from the grand
        mean. With n positives, "auto" means 3 / sqrt(n), limited to between 0.3 and 2, but at least
        10 / n^2. With `contamination`, it means 30 / n, but at least 0.9.
    negatives : {"blend", "mixture", "marginal"}, default="blend"
        Density of the negatives in the subspace. A "mixture" has one component at each subclass
        mean; the published "marginal" is one Gaussian about the positive mean. A "blend" combines
        the mixture's log ratio with a second log ratio, which treats all negatives as one cloud
        along Fisher's axis of the subspace; the weights are fitted to left-out samples. Without
        left-out samples, that is, with resubstituted covariances, a "blend" is a "mixture".
    tails : {"fitted", "gaussian"}, default="fitted"
        Tails of both classes: Student's t with degrees of freedom fitted to left-out negatives, or
        Gaussian as published. A "marginal" density and densities with resubstituted covariances are
        always Gaussian.
    covariance : {"leave-one-out", "resubstitution"}, default="leave-one-out"
        "leave-one-out" estimates covariances from left-out samples: each sample is removed from the
        model in closed form and then projected. "resubstitution" uses the training projections, as
        published.
    shrinkage : float or "auto", default="auto"
        How strongly the covariances are shrunk toward the pooled within-class covariance. The unit
        is a number of samples. "auto" means d/2, and 0 is the published rule.
    calibrate : bool, default=True
        Whether to calibrate the scores, using left-out scores or, if there are none, scores from 5
        folds. This fits a slope and an offset or, for a blend, the weights of its two ratios and an
        offset. With fewer than 20 positives, pseudo-positives derived from the spread of the
        negatives are added. A model with a single negative is not calibrated. With n positives,
        ratios below -ln(2 n + 2) are compressed, because n samples support no stronger evidence
        against the class.
    calibration_rows : int or None, default=5000
        Largest number of rows of each class to leave out and score, drawn with a seed; None leaves
        out all rows. Means, scatter and axes always come from all rows. Left-out rows determine
        only a few dozen numbers (covariances, tails, calibration), for which a sample is enough.
        `partial_fit` keeps this many rows of each class.
    contamination : float or "auto", default=0.0
        Share of positives hidden among the unchecked negatives, at least 0 and below 0.5. 0 trusts
        the labels, another number fixes the share, and "auto" estimates it together with the
        calibration. The log-likelihood ratio is then a mean of two: that of a plain model, and that
        of a model without the rows most like positives. The second has ten times the share as its
        weight, but at most one half. The model has the axes of both, up to ``2 * n_components``.
        Looking for hidden positives needs left-out scores, so `balance`, `covariance` and
        `calibrate` must have their defaults, and some subclass must have two rows.
    priors : {"empirical", "equal"} or pair of floats, default="empirical"
        Prior probabilities of the two classes, in the order of `classes_`. They affect decisions
        and probabilities, but not the log-likelihood ratio.
    pos_label : label or None, default=None
        Class of interest; None means ``classes_[1]``. With `pos_label`, y may have more than two
        labels, and all others are negatives. `classes_` then holds `pos_label` and a name for the
        rest, and `predict` returns these two. For example, the rest of "weld" is named "not weld".
        If labels are numbers, the rest is -1, or one below the smallest label if any is negative.
    random_state : int, RandomState instance or None, default=None
        Seed for k-means, the draws of ``balance="resampled"`` and the calibration folds.
    verbose : bool, default=False
        Whether to print the stages of fitting.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        The axes of the subspace, scaled so that the within-class scatter plus the ridge is the
        identity along them.
    eigenvalues_ : array of shape (n_components,)
        Value of the criterion along each axis. With `contamination`, those of the plain model come
        first.
    positive_mean_ : array of shape (n_features,)
    subclass_means_ : array of shape (n_subclasses, n_features)
    subclass_names_ : list of str
        The majority label of each subclass. Set by :meth:`name_rows`, and by `fit` if y has more
        than two labels or `subclass_labels` are given.
    subclass_counts_ : array of shape (n_subclasses,)
        Number of samples, or total weight, of each subclass.
    positive_count_ : float
        Number of samples, or total weight, of the class of interest.
    regularization_ : float
        The relative ridge that was used; with `contamination`, for the model without the rows most
        like positives.
    classes_ : array of shape (2,)
    class_prior_ : array of shape (2,)
        Prior probabilities in the order of `classes_`.
    n_components_ : int
    partition_ : array of shape (n_samples,)
        Group of each training row: 0 for a positive, 1..K for a subclass, -1 for a row of weight
        zero. After `partial_fit` it has one entry per row of `sample_`.
    loo_scores_ : array of shape (n_samples,)
        Log-likelihood ratio of each training row under the model without that row, if rows were
        left out; NaN for rows outside the sample of `calibration_rows`. After `partial_fit`, it has
        one entry per row of `sample_`.
    held_out_ : tuple of arrays
        Set instead of `loo_scores_` if rows were not left out in closed form: scores, labels and
        weights of rows that the model had not seen, in folds or in a fit in blocks. The weights are
        None if they are equal.
    density_ : Density
        The two densities in the subspace.
    calibration_ : Calibration
        Slope and offset that turn the log ratio of the densities into the log-likelihood ratio.
    contamination_ : float
        Estimated share of positives among the unchecked negatives; set only if `contamination` is
        not 0.
    contamination_interval_ : pair of float
        The 90% profile-likelihood interval of `contamination_`, with a more cautious lower end. If
        the share was given, both ends equal it.
    responsibilities_ : array of shape (n_samples,)
        Probability that each training row is a hidden positive; 0 for checked rows.
    scatter_ : GroupScatter
        Merged statistics of all rows so far; set only by `partial_fit`.
    sample_ : RowSample
        The rows that `partial_fit` keeps in order to leave them out, in order of arrival, with
        attributes `X`, `groups`, `weights` and `numbers` (positions among all rows so far). Not set
        if the model neither leaves rows out nor calibrates.
    n_samples_seen_, seed_ : int
        Number of rows so far, and the seed for all random draws; set only by `partial_fit`.

    Notes
    -----
    The defaults differ from the paper: covariances come from left-out samples, the negatives have a
    mixture density, covariances are shrunk, and scores are calibrated. :meth:`published` turns all
    of this off.

    For many float32 rows, products are computed in float32. Log-likelihood ratios then differ by
    less than 5e-4, and angles of the subspace by less than 1e-4, from the float64 results. If they
    would differ by more, because features are collinear or have extreme scales, the products are
    computed in float64.

    References
    ----------
    A. Iosifidis, Probabilistic Class-Specific Discriminant Analysis.

    Examples
    --------
    >>> from pcsda import PCSDA
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(500, random_state=0)
    >>> model = PCSDA(n_subclasses=6, random_state=0).fit(data.data, data.target)
    >>> model.transform(data.data).shape
    (500, 6)
    """

    def __init__(
        self,
        n_subclasses: int | str = "auto",
        n_components: int | None = None,
        *,
        subclasses: str | BaseEstimator = "kmeans",
        balance: str = "pooled",
        solver: str = "auto",
        regularization: float | str = "auto",
        negatives: str = "blend",
        tails: str = "fitted",
        covariance: str = "leave-one-out",
        shrinkage: float | str = "auto",
        calibrate: bool = True,
        calibration_rows: int | None = 5000,
        contamination: float | str = 0.0,
        priors: str | Sequence[float] | None = "empirical",
        pos_label: object = None,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.n_subclasses = n_subclasses
        self.n_components = n_components
        self.subclasses = subclasses
        self.balance = balance
        self.solver = solver
        self.regularization = regularization
        self.negatives = negatives
        self.tails = tails
        self.covariance = covariance
        self.shrinkage = shrinkage
        self.calibrate = calibrate
        self.calibration_rows = calibration_rows
        self.contamination = contamination
        self.priors = priors
        self.pos_label = pos_label
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def published(
        cls, n_subclasses: int | str = 1, n_components: int | None = None, **params: Any
    ) -> Self:
        """Make an estimator that follows the rule published in the paper.

        It uses the marginal density for the negatives and resubstituted covariances, without
        shrinkage or calibration.

        Parameters
        ----------
        n_subclasses, n_components
            As in the constructor.
        **params
            Further constructor parameters, which override the paper's settings.

        Returns
        -------
        PCSDA

        Notes
        -----
        The criterion has a ridge of 0.01. The paper solves "a regularized version" of a singular
        problem, but says neither how nor how strongly it is regularized. We take it to be a ridge
        on the denominator, relative to the mean squared distance from the grand mean.
        ``regularization=0`` solves the problem as the paper writes it; the problem must then be
        nonsingular.
        """
        return cls(n_subclasses, n_components, **(PUBLISHED | params))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.solver in ("auto", "lsqr") and self.balance == "pooled"
        return tags

    @calls_back
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        *,
        subclass_labels: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        unchecked: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Two labels, or more if `pos_label` is set.
        subclass_labels : array-like of shape (n_samples,), optional
            Subclass of each negative, for instance the original multi-class label; values for
            positives are ignored. By default, the negatives are clustered.
        sample_weight : array-like of shape (n_samples,), optional
            Weights, at least 0. A whole number w counts as w copies of the row.
        groups : array-like of shape (n_samples,), optional
            Rows of one group, such as frames of one recording, are left out together. Otherwise
            near-copies of a left-out row would stay in the model.
        unchecked : array-like of bool of shape (n_samples,), optional
            Marks negatives whose labels nobody has checked, so that some may be positives. By
            default, all negatives are unchecked. Ignored if `contamination` is 0.

        Returns
        -------
        self : PCSDA
        """
        check_verifier(self)
        # With given subclasses, NaN and infinity show up in the statistics of tall X; not looking
        # for them here saves a pass.
        unread = (
            subclass_labels is not None
            and sample_weight is None
            and isinstance(X, np.ndarray)
            and len(X) > X[:1].size
        )
        X, y = stream.check_rows(self, X, y, finite=not unread)
        if self.solver not in ("auto", "lsqr"):
            validation.refuse_sparse(X, f"solver={self.solver!r}", "use solver='lsqr'")
        if self.balance == "resampled":
            validation.refuse_sparse(X, "balance='resampled'", "use balance='pooled'")
        if self.solver == "auto":
            X = validation.dense_if_small(X)
        if is_contaminated(self):
            validation.refuse_sparse(X, f"contamination={self.contamination!r}", "make X dense")
        if self.solver == "auto":
            validation.warn_of_sparse(X)
        positive, weights, together, seed = check_training(self, y, sample_weight, groups)
        stream.forget_stream(self)
        hidden = hidden_rows(self, unchecked, positive, subclass_labels)
        data = rows_of(X, positive, weights, seed, together=together, hidden=hidden)
        shared = together is not None or hidden is not None
        with narrow_fit(data.X.shape[1]), one_thread(is_light(*data.X.shape)):
            data = with_products(self, data)
            data = replace(data, groups=divide(self, data, subclass_labels)[0])
            fit_rows(self, pcsda_factory(self, seed, together=shared), data)
        name_by_labels(self, y, subclass_labels)
        return self

    _coordinates = linear_coordinates
    _map = linear_map

    # Distinct negatives held back until there are enough for k-means, with weights and row numbers.
    _waiting: tuple[Floats, Array, Ints]

    def _streams(self) -> bool:
        if self.balance == "resampled":
            raise AttributeError(
                "partial_fit does not support balance='resampled', which draws from each subclass "
                "as a whole; use balance='pooled'"
            )
        return True

    @stream.available_where(_streams)
    @updates
    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        subclass_labels: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Add a batch of rows to the model.

        The result equals `fit` on all rows so far with the same subclasses, as long as neither
        class has more rows than `calibration_rows`. Beyond that, the model keeps a seeded sample of
        that many rows per class, in which all rows of a subclass are equally likely. Means, scatter
        and axes still come from all rows; covariances, tails and calibration come from leaving out
        the sampled rows. ``regularization="auto"`` depends on the number of positives so far.

        Without `subclass_labels`, k-means on the first batch with negatives defines the subclasses,
        and their number if `n_subclasses` is "auto". Later negatives join the nearest centroid.

        Batches are only collected until they determine a model. They do not determine one if a
        class is missing, if all rows are equal, if there are too few positives for their
        covariance, or if there are fewer axes than `n_components`. Until then, `predict` and the
        other methods raise a NotFittedError that says what is missing. Without shrinkage, a model
        may be lost again if new rows add axes before there are enough positives; a warning says so.
        With fewer distinct negatives than `n_subclasses`, k-means waits for more; meanwhile, equal
        rows are stored once, with their total weight.

        Parameters
        ----------
        X, y
            A batch, as in `fit`.
        classes : array-like of shape (2,), optional
            Both labels. Required in the first call unless the batch has rows of both classes.
        subclass_labels, sample_weight
            Values for the batch, as in `fit`.
        groups : None
            Batches take no groups: rows that belong together need `fit`.

        Returns
        -------
        self : PCSDA

        Raises
        ------
        ValueError
            If the batch cannot be used (NaN, another number of columns, unknown labels), or if
            `n_components` is too large for any batch. Also after `fit`, which keeps no statistics
            to merge a batch into: start from ``sklearn.base.clone(model)``, or call `fit` on all
            rows together. After an error, the statistics and the model are as before the call.

        Notes
        -----
        The model contains rows of the data, in `sample_`, and so do its files and pickles. With
        ``covariance="resubstitution"`` and ``calibrate=False``, as in :meth:`published`, no row is
        left out and no row is kept. Rows of weight zero are never kept. As long as all rows are
        kept, a batch costs as much as `fit` on all rows so far; later, a batch of m rows costs
        ``m D^2 + D^3/3``.

        Examples
        --------
        >>> from pcsda import PCSDA
        >>> from pcsda.datasets import make_class_specific
        >>> data = make_class_specific(500, random_state=0)
        >>> model = PCSDA(n_subclasses=3, random_state=0)
        >>> for part in range(5):
        ...     model = model.partial_fit(data.data[part::5], data.target[part::5])
        >>> whole = PCSDA(random_state=0)
        >>> rows = [row for part in range(5) for row in range(part, 500, 5)]
        >>> whole = whole.fit(data.data[rows], data.target[rows], subclass_labels=model.partition_)
        >>> apart = model.log_likelihood_ratio(data.data) - whole.log_likelihood_ratio(data.data)
        >>> bool(abs(apart).max() < 1e-8)
        True
        """
        X, positive, weights = stream.check_batch(self, X, y, classes, sample_weight, groups)
        dtype, most, lacks = X.dtype, self.n_features_in_, None
        numbers = stream.begin_batch(self, len(X))
        self._settle_labelled(subclass_labels is not None, positive)
        if subclass_labels is None and not self._subclasses:
            X, positive, weights, numbers = self._until_enough(X, positive, weights, numbers)
        division = self._stream_groups(X, positive, subclass_labels, weights)
        stream.merge_batch(self, X, division, weights, numbers, len(self._subclasses) + 1)
        if hasattr(self, "_waiting"):
            most = min(most, self._wanted)
            lacks = (
                f"n_subclasses={self.n_subclasses} needs as many different negatives, but only "
                f"{len(self._waiting[0])} have arrived"
            )
        elif self._subclasses and not self._labelled:  # labels may bring further subclasses
            most = min(most, len(self._subclasses))
        stream.refit(self, pcsda_factory(self, self.seed_), dtype, most, lacks)
        if getattr(self, "_labelled", False) and hasattr(self, "density_"):
            name_as_given(self, self._subclasses)
        return self

    @property
    def _wanted(self) -> int:
        """The number of distinct negatives needed to divide them into subclasses."""
        if self.subclasses != "kmeans":
            return 1
        return least_subclasses(self) if self.n_subclasses == "auto" else int(self.n_subclasses)

    def _settle_labelled(self, given: bool, positive: Mask) -> None:
        """Check that all batches with negatives have subclass labels, or that none has."""
        if not hasattr(self, "_subclasses"):
            self._subclasses: list[Any] = []
        if positive.all():
            return
        if given != getattr(self, "_labelled", given):
            raise ValueError(
                "subclass_labels must be given in every call of partial_fit or in none"
            )
        self._labelled = given

    def _until_enough(
        self, X: Floats, positive: Mask, weights: Array | None, numbers: Ints
    ) -> tuple[Floats, Mask, Array | None, Ints]:
        """Add the waiting negatives to a batch, or let all negatives wait if there are too few.

        Negatives wait until there are enough distinct rows to divide into subclasses. Equal
        negatives are stored once, so fewer than `n_subclasses` ever wait. Return the rows, the mask
        of positives, the weights and the row numbers. Negatives that wait have weight zero.
        """
        weight = np.ones(len(X)) if weights is None else weights
        if hasattr(self, "_waiting"):
            rows, mass, places = self._waiting
            X, weight = np.vstack([rows, X]), np.append(mass, weight)
            numbers = np.append(places, numbers)
            positive = np.append(np.zeros(len(rows), dtype=bool), positive)
            del self._waiting
        counted = np.flatnonzero(~positive & (weight > 0))
        if len(counted) and count_distinct(X[counted], self._wanted) < self._wanted:
            first, mass = merge_equal(X[counted], weight[counted])
            self._waiting = X[counted[first]], mass, numbers[counted[first]]
            weight = np.where(positive, weight, 0.0)  # negatives are not in the statistics yet
        return X, positive, None if np.all(weight == 1) else weight, numbers

    def _stream_groups(
        self, X: Floats, positive: Mask, subclass_labels: ArrayLike | None, weights: Array | None
    ) -> Ints:
        """Return the group of each row in a batch.

        Given subclass labels are numbered in sorted order, as in `fit`.
        """
        groups = np.zeros(len(positive), dtype=np.intp)
        counted = ~positive if weights is None else ~positive & (weights > 0)
        if subclass_labels is not None and not positive.all():
            labels = given_labels(subclass_labels, positive)[counted[~positive]]
            names, codes = different_subclasses(labels)
            groups[counted] = self._enter_labels(names.tolist())[codes]
        elif not counted.any():
            return groups
        elif self._subclasses:
            centroids = np.asarray(self._subclasses, dtype=np.float64)
            groups[counted] = 1 + nearest(X[counted], centroids)
        else:
            groups, names = divide(self, rows_of(X, positive, weights, self.seed_))
            first = GroupScatter.from_samples(X, groups, len(names) + 1, weights)
            self._subclasses = list(first.means[1:].astype(X.dtype))
        return groups

    def _enter_labels(self, names: list[Any]) -> Ints:
        """Add labels to the known subclasses, and return the number of each label.

        All labels are numbered in sorted order, so earlier subclasses may be renumbered.
        """
        every = sorted({*self._subclasses, *names}, key=lambda name: (isinstance(name, str), name))
        number = {name: place for place, name in enumerate(every, 1)}
        if hasattr(self, "scatter_"):
            places = np.array([0, *(number[name] for name in self._subclasses)])
            stream.renumber(self, places, len(every) + 1)
        self._subclasses = every
        return np.array([number[name] for name in names])

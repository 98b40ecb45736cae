"""CSDA as a scikit-learn estimator: it checks the data, calls the core and stores the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from .. import validation
from ..core.csda import CSDAFactor
from ..core.csda_solvers import TARGETS
from ..validation import MatrixLike, Seed
from . import stream
from .callbacks import calls_back
from .parameters import check_verifier
from .rows import rows_of
from .steps import PUBLISHED_CSDA, check_training, refuse_unchecked
from .threads import updates
from .training import Factorise, criterion_of, fit_rows, linear_coordinates, linear_map
from .verifier import Verifier


class CSDA(Verifier):
    """Class-specific discriminant analysis, as a probabilistic classifier.

    The criterion is that of PCSDA with each negative as a subclass: it maximises the spread of the
    negatives about the positive mean, relative to the spread of the positives. The density of the
    negatives is one Gaussian centred at the positive mean. Covariances come from the training rows
    themselves, without leaving any out, and scores are calibrated on five folds. Far from the
    positive mean, scores change only logarithmically, because new positives lie farther out than
    training positives.

    Parameters
    ----------
    n_components : int, "auto" or None, default="auto"
        Dimension of the subspace. "auto" means 25, or all axes if there are fewer. None means the
        largest possible, ``min(n_negatives, n_features, rank)``; a few hundred negatives do not
        determine a density along so many axes.
    solver : {"auto", "eigen", "lowrank", "trace_ratio", "labels", "raw_labels", "spectral"}, \
default="auto"
        "auto" means "eigen", which solves the generalised eigenproblem as published. "lowrank" is
        the low-rank regression form, with the same subspace. "trace_ratio" maximises the trace
        ratio itself over orthonormal directions. The others are fast approximations that regress on
        targets derived from the labels: "raw_labels" uses the regression coefficients as axes,
        "spectral" (class-specific spectral regression) changes only the length of the first axis,
        and "labels" takes the best directions in the span of the coefficients.
    reference : {"mean", "optimal"}, default="mean"
        The point about which negatives spread and near which positives lie: the positive mean, or a
        vector learned together with the directions. "optimal" maximises a trace ratio, so it
        requires the solver "auto" or "trace_ratio".
    regularization : float, default=0.01
        Ridge on the denominator, relative to the mean squared distance from the grand mean.
    shrinkage : float or "auto", default="auto"
        How strongly the positive covariance is shrunk toward the same covariance with the ridge
        added. The unit is a number of samples. "auto" means d/2, and 0 is the published rule.
    calibrate, priors, pos_label, random_state, verbose
        As in :class:`PCSDA`; `random_state` seeds the folds and random targets.

    Attributes
    ----------
    components_, eigenvalues_, positive_mean_, positive_count_, classes_, class_prior_,
    n_components_, density_, calibration_, scatter_, sample_, n_samples_seen_, seed_
        As in :class:`PCSDA`.
    subclass_means_, subclass_counts_
        Mean and number of all negatives, which form a single subclass.
    reference_ : array of shape (n_components,)
        Coordinates of the reference in the subspace, where the positive mean is zero.
    reference_step_ : float
        The step t in the reference ``m + t (m - m_n)``, where m is the mean of the positives and
        m_n that of the negatives; 0 if the reference is the positive mean.
    partition_ : array of shape (n_samples,)
        0 for a positive, 1 for a negative, -1 for a row with zero weight. After `partial_fit` it
        has one entry per row of `sample_`.
    held_out_ : tuple of arrays
        Scores, labels and weights of the training rows. A model fitted to the other folds scores
        the rows of each fold. Set only if scores are calibrated.

    Notes
    -----
    The coordinates z of `transform` are relative to the positive mean, and `score_samples` is minus
    the distance to the reference. The classifier published in [2]_ is a linear SVM on ``|z|``:
    ``make_pipeline(CSDA(10), FunctionTransformer(np.abs), LinearSVC())``.

    References
    ----------
    .. [1] S. R. Arashloo and J. Kittler, Class-specific kernel fusion of multiple descriptors for
       face verification using multiscale binarised statistical image features, IEEE Trans.
       Information Forensics and Security 9(12), 2014 (spectral regression).
    .. [2] A. Iosifidis, A. Tefas and I. Pitas, Class-specific reference discriminant analysis with
       application in human behavior analysis, IEEE Trans. Human-Machine Systems 45(3), 2015
       (optimal reference; linear SVM).
    .. [3] A. Iosifidis and M. Gabbouj, Scaling up class-specific kernel discriminant analysis for
       large-scale face verification, IEEE Trans. Information Forensics and Security 11(11), 2016
       (targets from labels).
    .. [4] A. Iosifidis and M. Gabbouj, Class-specific kernel discriminant analysis revisited:
       further analysis and extensions, IEEE Trans. Cybernetics 47(12), 2017 (low-rank regression).
    .. [5] Y. Jia, F. Nie and C. Zhang, Trace ratio problem revisited, IEEE Trans. Neural Networks
       20(4), 2009.

    Examples
    --------
    >>> from pcsda import CSDA
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(500, random_state=0)
    >>> model = CSDA(n_components=2, random_state=0).fit(data.data, data.target)
    >>> model.transform(data.data).shape
    (500, 2)
    >>> learned = CSDA(2, reference="optimal").fit(data.data, data.target)
    >>> learned.reference_step_ > 0
    True
    """

    def __init__(
        self,
        n_components: int | str | None = "auto",
        *,
        solver: str = "auto",
        reference: str = "mean",
        regularization: float = 1e-2,
        shrinkage: float | str = "auto",
        calibrate: bool = True,
        priors: str | Sequence[float] | None = "empirical",
        pos_label: object = None,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.reference = reference
        self.regularization = regularization
        self.shrinkage = shrinkage
        self.calibrate = calibrate
        self.priors = priors
        self.pos_label = pos_label
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def published(cls, n_components: int | None = None, **params: Any) -> Self:
        """Make an estimator that follows the paper: no shrinkage, no calibration.

        The ridge of 0.01 is our reading of "a regularized version" (see :meth:`PCSDA.published`);
        ``regularization=0`` solves the problem without a ridge.

        Parameters
        ----------
        n_components
            As in the constructor.
        **params
            Further constructor parameters, which override the paper's settings.

        Returns
        -------
        CSDA
        """
        return cls(n_components, **(PUBLISHED_CSDA | params))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @calls_back
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        unchecked: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Two labels, or more if `pos_label` is set.
        sample_weight : array-like of shape (n_samples,), optional
            Weights, at least 0. A whole number w counts as w copies of the row.
        groups : array-like of shape (n_samples,), optional
            Rows of one group, such as frames of one recording, stay in one fold, and in the
            calibration a group counts as one row.
        unchecked : None
            Only for calls that suit every verifier: CSDA trusts its negatives. For unchecked
            negatives, use :class:`PCSDA` with `contamination`.

        Returns
        -------
        self : CSDA
        """
        check_verifier(self)
        refuse_unchecked(self, unchecked)
        X, y = stream.check_rows(self, X, y)
        X = validation.dense_if_small(X)
        validation.refuse_sparse(X, "CSDA", "use PCSDA with solver='lsqr'")
        positive, weights, together, seed = check_training(self, y, sample_weight, groups)
        stream.forget_stream(self)
        data = rows_of(X, positive, weights, seed, together=together)
        fit_rows(self, self._factory(seed), data)
        return self

    def _factory(self, seed: int) -> Factorise:
        return lambda rows, weights: CSDAFactor(rows, criterion_of(self, seed), weights)

    _coordinates = linear_coordinates
    _map = linear_map

    def _streams(self) -> bool:
        if self.solver in TARGETS:
            raise AttributeError(
                f"partial_fit does not support solver={self.solver!r}, whose targets need all "
                "samples; use solver='eigen' or 'lowrank'"
            )
        return True

    @stream.available_where(_streams)
    @updates
    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Update the model with a batch of rows.

        The result equals `fit` on all rows so far, as long as neither class has more than 5000
        rows. Beyond that, the model keeps a seeded sample of 5000 rows per class, and scores each
        fold of the sample with the statistics of all other rows. Solvers that regress on targets
        are not available. The errors are those of :meth:`PCSDA.partial_fit`.

        Parameters
        ----------
        X, y, classes, sample_weight, groups
            As in :meth:`PCSDA.partial_fit`.

        Returns
        -------
        self : CSDA

        Examples
        --------
        >>> from pcsda import CSDA
        >>> from pcsda.datasets import make_class_specific
        >>> data = make_class_specific(500, random_state=0)
        >>> model = CSDA(n_components=2, random_state=0)
        >>> for part in range(5):
        ...     model = model.partial_fit(data.data[part::5], data.target[part::5])
        >>> len(model.sample_.X), model.calibration_.slope > 0
        (500, True)
        """
        X, positive, weights = stream.check_batch(self, X, y, classes, sample_weight, groups)
        numbers = stream.begin_batch(self, len(X))
        stream.merge_batch(self, X, (~positive).astype(np.intp), weights, numbers, 2)
        stream.refit(self, self._factory(self.seed_), X.dtype)
        return self

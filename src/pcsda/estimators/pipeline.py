"""Pipelines that offer the methods of a verifier."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn import pipeline

from ..core.copies import few_values_repeat, silent_on_copies
from ..validation import MatrixLike, is_dask
from .learned import follow_transform, keeps_scores, learned_much, score_in_folds, warn_of_learned
from .wrapping import VerifierMethods


class VerifierPipeline(VerifierMethods, pipeline.Pipeline):
    """A scikit-learn pipeline that offers the methods of its last step, a verifier.

    Rows pass through all steps before the verifier, which may be inside a nested pipeline or
    search. The pipeline offers only the methods that the verifier has. :func:`make_pipeline` names
    the steps automatically.

    Parameters
    ----------
    steps : list of (name, estimator)
        Transformers, and at the end a verifier, a bank or a search.
    transform_input, memory, verbose
        As in :class:`sklearn.pipeline.Pipeline`.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> from pcsda import PCSDA, VerifierPipeline
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(500, random_state=0)
    >>> model = VerifierPipeline([("scale", StandardScaler()), ("verify", PCSDA(random_state=0))])
    >>> model.fit(data.data, data.target).log_likelihood_ratio(data.data).shape
    (500,)
    """

    def fit(self, X: MatrixLike, y: ArrayLike | None = None, **params: Any) -> Self:
        """Fit all steps.

        A step before the verifier may learn much from the rows, such as a selection of columns by
        the labels or many axes of wide rows. Rows that are left out of the verifier alone then look
        better than new rows, so they are scored in 5 folds of the whole pipeline, which takes as
        many further fits. The verifier keeps these scores as `held_out_`, and calibration,
        thresholds and counts use them. If the last step is a bank or a search, or if it looks for
        hidden positives, a warning says what to do instead.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        **params
            Arguments of the steps, as in :class:`sklearn.pipeline.Pipeline`.

        Returns
        -------
        self : VerifierPipeline
        """
        # The last step sees mapped rows, in which columns of few values no longer look like it.
        natural = _few_values_repeat(X)
        with silent_on_copies() if natural else nullcontext():
            super().fit(X, y, **params)
        if y is not None and keeps_scores(self):
            learned = learned_much(self, np.shape(y)[0])
            if not learned or not score_in_folds(self, X, y, params):
                follow_transform(self, X)
                if learned:
                    warn_of_learned(self, learned)
        return self


def _few_values_repeat(X: Any) -> bool:
    """Return whether rows of numbers repeat because columns take few values; False for others."""
    if not sparse.issparse(X):
        if not (isinstance(X, np.ndarray) or hasattr(X, "iloc")) or is_dask(X):
            return False
        X = np.asarray(X)
    if X.ndim != 2 or min(X.shape) == 0 or X.dtype.kind not in "biuf":
        return False
    plain = X.dtype in (np.float32, np.float64)
    return few_values_repeat(X if plain else X.astype(np.float64))


def make_pipeline(*steps: Any, memory: object = None, verbose: bool = False) -> VerifierPipeline:
    """Make a pipeline that offers the methods of its last step; the steps are named automatically.

    Parameters
    ----------
    *steps : estimators
        Transformers such as scalers, PCA and kernel maps, and at the end a verifier, a bank or a
        search.
    memory, verbose
        As in :func:`sklearn.pipeline.make_pipeline`.

    Returns
    -------
    VerifierPipeline

    Examples
    --------
    >>> from sklearn.decomposition import PCA
    >>> from sklearn.preprocessing import StandardScaler
    >>> from pcsda import PCSDA, make_pipeline
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(500, random_state=0)
    >>> model = make_pipeline(StandardScaler(), PCA(5), PCSDA(random_state=0))
    >>> model = model.fit(data.data, data.target)
    >>> data.target[model.rank(data.data)[:5]]
    array([1, 1, 1, 1, 1])
    """
    named = pipeline.make_pipeline(*steps)
    return VerifierPipeline(named.steps, memory=memory, verbose=verbose)

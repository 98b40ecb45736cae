"""Pipelines that offer the methods of a verifier."""

from __future__ import annotations

from typing import Any

from sklearn import pipeline

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

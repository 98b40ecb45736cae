"""Probabilities of labels from their log odds, and identities from the best labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

from ..core.linalg import Array, Mask


def second_of_two(odds: Array) -> Array:
    """Return the log odds of the second label against the first if there are only two labels.

    Otherwise, return the odds unchanged.
    """
    return odds[:, 1] - odds[:, 0] if odds.shape[1] == 2 else odds


def chances(odds: Array) -> Array:
    """Return the posterior probabilities of all labels, normalised so that each row sums to one."""
    if odds.shape[1] == 2:
        odds = second_of_two(odds)[:, None] * np.array([-1.0, 1.0])
        both: Array = np.exp(log_expit(odds))
        return both
    logs = log_expit(odds)
    shares: Array = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def identities(labels: NDArray[Any], known: Mask, unknown: object) -> NDArray[Any]:
    """Return the label of each row that is `known`, and `unknown` for all other rows.

    The result is an object array if the labels and `unknown` have different types.
    """
    kind = np.result_type(np.asarray(unknown), labels) if unknown is not None else object
    same = np.asarray(unknown).dtype.kind == labels.dtype.kind
    found: NDArray[Any] = labels.astype(kind if same else object)
    found[~known] = unknown
    return found

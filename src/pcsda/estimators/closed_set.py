"""From the log odds of many labels to probabilities, and from best labels to identities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

from ..core.linalg import Array, Mask


def second_of_two(odds: Array) -> Array:
    """With two labels, return the log odds of the second against the first; otherwise all odds."""
    return odds[:, 1] - odds[:, 0] if odds.shape[1] == 2 else odds


def chances(odds: Array) -> Array:
    """Return posterior label probabilities, normalised to sum to one."""
    if odds.shape[1] == 2:
        odds = second_of_two(odds)[:, None] * np.array([-1.0, 1.0])
        both: Array = np.exp(log_expit(odds))
        return both
    logs = log_expit(odds)
    shares: Array = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def identities(labels: NDArray[Any], known: Mask, unknown: object) -> NDArray[Any]:
    """Return the labels, with `unknown` for rows not `known`; as objects if the types differ."""
    kind = np.result_type(np.asarray(unknown), labels) if unknown is not None else object
    same = np.asarray(unknown).dtype.kind == labels.dtype.kind
    found: NDArray[Any] = labels.astype(kind if same else object)
    found[~known] = unknown
    return found

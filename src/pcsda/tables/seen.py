"""Row fingerprints that let `evaluate` recognise training rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..validation import MatrixLike

# Number of fingerprints to keep. The smallest are kept, so that two tables have comparable samples.
KEPT = 1000
STRIP_BYTES = 8 << 20


def row_hashes(X: MatrixLike) -> NDArray[np.uint64]:
    """Hash each row's float32 values, so that the file format does not matter."""
    rows = np.asarray(X)
    width = rows.shape[1]
    factors = np.random.default_rng(0).integers(1, 2**63, width, dtype=np.uint64) * 2 + 1
    hashes = np.empty(len(rows), dtype=np.uint64)
    step = max(1, STRIP_BYTES // (8 * max(width, 1)))
    for start in range(0, len(rows), step):
        with np.errstate(over="ignore", invalid="ignore"):
            part = rows[start : start + step].astype(np.float32) + np.float32(0)  # no -0
        bits = np.ascontiguousarray(part).view(np.uint32).astype(np.uint64)
        mixed = (bits * factors).sum(axis=1, dtype=np.uint64)
        # The low bits of a product are poorly mixed; a second product mixes in the high bits.
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
        hashes[start : start + step] = mixed ^ (mixed >> np.uint64(29))
    return hashes


def sketch(hashes: Iterable[NDArray[np.uint64]]) -> list[str]:
    """Return the `KEPT` smallest distinct hashes from all parts of a table, as text."""
    kept = np.empty(0, dtype=np.uint64)
    for part in hashes:
        kept = np.unique(np.concatenate([kept, part]))[:KEPT]
    return [f"{value:016x}" for value in kept.tolist()]


def share_seen(known: list[str], hashes: NDArray[np.uint64]) -> float:
    """Estimate the share of rows that also occur in another table.

    `hashes` are those of the rows, and `known` is the sketch of the other table. A sketch of `KEPT`
    hashes contains every hash up to its largest, so the rows with hashes up to that value are a
    fair sample.
    """
    values = np.array([int(value, 16) for value in known], dtype=np.uint64)
    if len(values) == 0:
        return 0.0
    among = hashes if len(values) < KEPT else hashes[hashes <= values[-1]]
    return float(np.isin(among, values).mean()) if len(among) else 0.0

"""Marks for tests of the benchmarks whose peers not every version of scikit-learn has."""

import pytest
from benchmarks import peers

SHRUNK_QDA = pytest.mark.skipif(not peers.QDA_SHRINKS, reason=peers.NO_SHRINKAGE)


def with_qda(case, needed, *marks):
    """Return a case of a test, marked `SHRUNK_QDA` if it needs that."""
    return pytest.param(case, marks=[*marks, *[SHRUNK_QDA] * needed])

"""Evaluations for the tests of the report, with a label that looks like a script."""

from functools import cache

import numpy as np
from sklearn.datasets import make_blobs

from pcsda import PCSDA, VerifierBank
from pcsda.report import evaluate

NASTY = "<script>alert('x')</script>"


def _rows():
    X, y = make_blobs(360, 6, centers=4, cluster_std=3.0, random_state=0)
    names = np.array(["ash", "birch & co", "cedar", NASTY])[y]
    return X[:200], names[:200], X[200:], names[200:]


@cache
def verifier_report():
    X, y, X_test, y_test = _rows()
    model = PCSDA(n_subclasses=3, random_state=0).fit(X, y == NASTY)
    return evaluate(model, X_test, y_test, pos_label=NASTY, n_resamples=10)


@cache
def bank_report():
    X, y, X_test, y_test = _rows()
    bank = VerifierBank(PCSDA(n_subclasses=3, random_state=0)).fit(X, y)
    return evaluate(bank, X_test, y_test, n_resamples=10)

"""Warnings name the line of the user's code, whoever calls `fit` on its behalf."""

import inspect
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pcsda
from pcsda import PCSDA, KernelPCSDA
from pcsda.core.warning import warn

X = np.random.default_rng(0).standard_normal((40, 5))
ONE = np.arange(40) < 1


def where(action):
    """File and line of every warning that an action gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return {(each.filename, each.lineno) for each in caught}


@pytest.mark.parametrize(
    "fit",
    [
        lambda: PCSDA(random_state=0).fit(X, ONE),
        lambda: KernelPCSDA(random_state=0).fit(X, ONE),
        lambda: make_pipeline(StandardScaler(), PCSDA(random_state=0)).fit(X, ONE),
        lambda: pcsda.make_pipeline(StandardScaler(), PCSDA(random_state=0)).fit(X, ONE),
        lambda: GridSearchCV(
            PCSDA(random_state=0), {"n_subclasses": [1]}, cv=[(np.arange(40), np.arange(40))]
        ).fit(X, ONE),
    ],
)
def test_one_positive_is_said_at_the_line_that_fits(fit):
    found = where(fit)
    lines, first = inspect.getsourcelines(fit)
    assert found
    assert {name for name, _ in found} == {__file__}
    assert all(first <= line < first + len(lines) for _, line in found)


def test_a_stack_without_a_user_still_warns():
    names = {"warn": warn, "__name__": "pcsda.made_up"}
    assert where(lambda: exec("warn('here')", names))


def test_no_module_counts_frames_by_hand():
    root = Path(pcsda.__file__).parent
    found = [path for path in root.rglob("*.py") if "stacklevel" in path.read_text("utf-8")]
    assert [path.name for path in found] == ["warning.py"]

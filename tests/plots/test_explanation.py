"""Bars of an explanation: the rows of its table, and the rest combined."""

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from pcsda import PCSDA, KernelPCSDA
from pcsda.datasets import make_class_specific
from pcsda.plots import ExplanationDisplay


@pytest.fixture(scope="module")
def fitted():
    data = make_class_specific(300, n_features=8, random_state=0)
    frame = pd.DataFrame(data.data, columns=list("abcdefgh"))
    return PCSDA(n_subclasses=3, random_state=0).fit(frame, data.target), frame, data


def test_bars_show_columns_with_the_weightiest_on_top(fitted):
    model, frame, _ = fitted
    display = ExplanationDisplay.from_estimator(model, frame[:5], row=3, n_columns=4)
    table = model.explain(frame[3:4]).table()
    names = [text.get_text() for text in display.ax_.get_yticklabels()][::-1]
    widths = np.array([bar.get_width() for bar in display.bars_])[::-1]
    assert names == [name for name, _ in table[:4]] + ["4 more columns"]
    assert_allclose(widths[:4], [part for _, part in table[:4]])
    assert_allclose(widths.sum(), sum(part for _, part in table))


def test_a_kernel_has_no_columns_to_draw(fitted):
    _, _, data = fitted
    model = KernelPCSDA(n_subclasses=3, random_state=0).fit(data.data, data.target)
    with pytest.raises(ValueError, match="contributions of columns exist for linear models"):
        ExplanationDisplay.from_estimator(model, data.data[:1])

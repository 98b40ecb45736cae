"""The progress bar: drawn on a terminal only, and the items pass unchanged."""

import io
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from kernel_factories import labelled

from pcsda import ExactKernelMap, FourierMap, KernelPCSDA, NystroemMap
from pcsda.progress import progress


class Terminal(io.StringIO):
    """A standard error that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("pcsda.progress.sys", SimpleNamespace(stderr=stream))
    return stream


@pytest.mark.parametrize("items", [range(3), ["a", "b"], [None]], ids=str)
@pytest.mark.parametrize("enabled", [True, False])
def test_items_pass_unchanged_and_in_order(terminal, items, enabled):
    assert list(progress(items, "work", enabled=enabled)) == list(items)


def test_the_bar_fills_with_every_item(terminal):
    drawn = []
    for _ in progress(range(4), "kernel", enabled=True):
        drawn.append(terminal.getvalue())
    lines = terminal.getvalue().split("\r")
    assert drawn[0] == ""  # an item counts when it is done, not when it is begun
    assert lines[0] == ""
    for done, line in enumerate(lines[1:], start=1):
        filled = 6 * done
        bar = "#" * filled + "." * (24 - filled)
        assert re.fullmatch(rf"kernel \[{re.escape(bar)}\] {done}/4, \d+ s left ?\n?", line)
    assert len(lines) == 5
    assert lines[-1].endswith("\n")


def test_sizes_add_up_where_the_number_of_items_is_unknown(terminal):
    assert list(progress(iter(["ab", "c"]), "letters", enabled=True, size=len)) == ["ab", "c"]
    assert terminal.getvalue() == "\r2 letters \r3 letters \n"


def test_nothing_is_drawn_when_not_enabled(terminal):
    list(progress(range(4), "kernel", enabled=False))
    assert terminal.getvalue() == ""


def test_nothing_is_drawn_where_standard_error_is_no_terminal(capsys):
    assert not sys.stderr.isatty()
    list(progress(range(4), "kernel", enabled=True))
    assert capsys.readouterr() == ("", "")


def test_nothing_to_do_is_fine(terminal):
    assert list(progress([], "kernel", enabled=True)) == []
    assert "/" not in terminal.getvalue()


def test_work_stops_where_the_caller_stops(terminal):
    for item in progress(range(10), "kernel", enabled=True):
        if item == 2:
            break
    assert "2/10" in terminal.getvalue()
    assert "3/10" not in terminal.getvalue()


MODELS = [
    (KernelPCSDA(gamma=0.1, random_state=0), ["kernel matrix", "kernel rows"]),
    (ExactKernelMap(), ["kernel matrix", "features"]),
    (NystroemMap(10, random_state=0), ["kernel matrix", "features"]),
    (FourierMap(10, random_state=0), ["features"]),
]
EVERY_MODEL = pytest.mark.parametrize(
    ("model", "labels"), MODELS, ids=lambda value: str(value).split("(")[0]
)


def fitted_transform(model, verbose):
    X, y, _ = labelled()
    return model.set_params(verbose=verbose).fit(X, y).transform(X)


@EVERY_MODEL
def test_long_work_shows_its_progress_when_verbose(terminal, model, labels):
    shown = fitted_transform(model, True)
    for label in labels:
        assert f"{label} [" in terminal.getvalue()
    before = terminal.getvalue()
    np.testing.assert_array_equal(fitted_transform(model, False), shown)
    assert terminal.getvalue() == before


@EVERY_MODEL
def test_nothing_reaches_standard_error_of_a_file(capsys, model, labels):
    fitted_transform(model, True)
    assert capsys.readouterr().err == ""


@EVERY_MODEL
def test_nothing_is_printed_unless_verbose(capsys, model, labels):
    fitted_transform(model, False)
    assert capsys.readouterr() == ("", "")

"""The progress bar: drawn only on a terminal, and items pass through unchanged."""

import io
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from kernel_factories import labelled

from pcsda import ExactKernelMap, FourierMap, KernelPCSDA, NystroemMap
from pcsda.progress import bars_everywhere, progress


class Terminal(io.StringIO):
    """A standard error that claims to be a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("pcsda.progress.sys", SimpleNamespace(stderr=stream))
    monkeypatch.setattr("pcsda.progress.DELAY", 0)
    monkeypatch.setenv("TERM", "xterm")
    return stream


@pytest.mark.parametrize("items", [range(3), ["a", "b"], [None]], ids=str)
@pytest.mark.parametrize("enabled", [True, False])
def test_items_pass_through_unchanged_and_in_order(terminal, items, enabled):
    assert list(progress(items, "work", enabled=enabled)) == list(items)


def test_the_bar_ends_at_full_length(terminal):
    for _ in progress(range(4), "kernel", enabled=True):
        pass
    last = terminal.getvalue().split("kernel")[-1]
    assert "4/4" in last
    assert "━" * 24 in last


def test_sizes_add_up_when_the_number_of_items_is_unknown(terminal):
    assert list(progress(iter(["ab", "c"]), "letters", enabled=True, size=len)) == ["ab", "c"]
    assert "3 letters" in terminal.getvalue()


def test_short_work_has_no_bar(terminal, monkeypatch):
    monkeypatch.setattr("pcsda.progress.DELAY", 60)
    assert list(progress(range(4), "kernel", enabled=True)) == [0, 1, 2, 3]
    assert "kernel" not in terminal.getvalue()


def test_a_slow_first_item_gets_a_bar(terminal, monkeypatch):
    monkeypatch.setattr("pcsda.progress.DELAY", 0.01)
    for _ in progress([1], "kernel", enabled=True):
        until = time.monotonic() + 30
        while "kernel" not in terminal.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
        assert "0/1" in terminal.getvalue()


def test_nested_work_has_no_second_bar(terminal):
    for _ in progress(range(2), "outer", enabled=True):
        list(progress(range(2), "inner", enabled=True))
    assert "inner" not in terminal.getvalue()
    assert "2/2" in terminal.getvalue()


def test_without_rich_there_is_no_bar(terminal, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert list(progress(range(2), "kernel", enabled=True)) == [0, 1]
    assert terminal.getvalue() == ""


def test_commands_draw_all_bars(terminal):
    with bars_everywhere():
        list(progress(range(2), "kernel", enabled=False))
    assert "2/2" in terminal.getvalue()
    list(progress(range(3), "kernel", enabled=False))
    assert "3/3" not in terminal.getvalue()


def test_nothing_is_drawn_when_not_enabled(terminal):
    list(progress(range(4), "kernel", enabled=False))
    assert terminal.getvalue() == ""


def test_nothing_is_drawn_unless_standard_error_is_a_terminal(capsys):
    assert not sys.stderr.isatty()
    list(progress(range(4), "kernel", enabled=True))
    assert capsys.readouterr() == ("", "")


def test_empty_work_is_accepted(terminal):
    assert list(progress([], "kernel", enabled=True)) == []


def test_iteration_stops_when_the_caller_stops(terminal):
    for item in progress(range(10), "kernel", enabled=True):
        if item == 2:
            break
    assert "2/10" in terminal.getvalue()
    assert "3/10" not in terminal.getvalue()
    list(progress(range(5), "next", enabled=True))  # the bar of the first is gone
    assert "5/5" in terminal.getvalue()


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
        assert f"{label} " in terminal.getvalue()
    before = terminal.getvalue()
    np.testing.assert_array_equal(fitted_transform(model, False), shown)
    assert terminal.getvalue() == before


@EVERY_MODEL
def test_a_file_as_standard_error_stays_empty(capsys, model, labels):
    fitted_transform(model, True)
    assert capsys.readouterr().err == ""


@EVERY_MODEL
def test_nothing_is_printed_unless_verbose(capsys, model, labels):
    fitted_transform(model, False)
    assert capsys.readouterr() == ("", "")

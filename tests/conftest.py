"""Settings for the whole test suite: which cases run, and what its last lines report."""

import gc
import os
import shutil
from collections import Counter
from itertools import combinations
from zlib import crc32

import numpy as np
import pytest
from hypothesis import settings

# `make every` sets it and runs every case; `make test` leaves cases marked `more` out.
FUZZ = "PCSDA_FUZZ" in os.environ

# Times vary too much between machines to be a law.
settings.register_profile("few", deadline=None, max_examples=6)
settings.register_profile("pcsda", deadline=None, max_examples=15)
settings.register_profile("fuzz", deadline=None, max_examples=300)

# `make browser` sets it: then a missing browser or site is a failure.
BROWSER = os.environ.get("PCSDA_BROWSER") == "required"

# One in this many cases of a test marked `in_turn` runs.
TURNS = 3


def pytest_configure(config):
    """Let hypothesis make few examples in `make test`, and more where every case runs."""
    few = "few" if config.option.markexpr == "not more" else "pcsda"
    settings.load_profile("fuzz" if FUZZ else few)


def pytest_collection_finish():
    """Keep the collector of cycles from walking through all modules and cases, again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Seed NumPy's shared generator, so that a fit without `random_state` can be repeated."""
    np.random.seed(crc32(item.nodeid.encode()))  # noqa: NPY002 - such a fit uses no other


def pytest_pycollect_makeitem(collector, obj):
    """Pass over whole tests marked `more`; to make their thousands of cases takes seconds."""
    marks = {mark.name for mark in getattr(obj, "pytestmark", ())}
    return [] if "more" in marks and collector.config.option.markexpr == "not more" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the surplus cases of `each_value`, `each_pair` and `in_turn` tests as `more`."""
    families = {}
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        size = 2 if "each_pair" in marks else int("each_value" in marks)
        turns = "in_turn" in marks
        if (size or turns) and "more" not in marks:
            families.setdefault((item.path, item.originalname, size, turns), []).append(item)
    for (*_, size, turns), family in families.items():
        kept = in_turn(family, size) if turns else family
        for item in set(family).difference(covering(kept, size) if size else kept):
            item.add_marker("more")


def in_turn(family, size):
    """Return a third of the items: the first, second or third, as the file's tests take turns.

    Of a test that also takes each value, or each pair, these are all items with a third of the
    values that the mark names, so that every other value is still taken. Where another list is
    as long, that would spare nothing.
    """
    start = turn_of(family[0])
    if not size:
        return a_third(family, start)
    names = names_in(*family[0].get_closest_marker("in_turn").args)
    lists = {}
    for item in family:
        for value in values_of(item):
            lists.setdefault(value[0], {})[value] = True
    own = list(lists.pop(names))
    if len(own) <= max(map(len, lists.values())):
        return family
    chosen = set(a_third(own, start))
    return [item for item in family if chosen.intersection(values_of(item))]


def turn_of(item):
    """Count the file's tests in turn before this one; which of them were selected is all one."""
    tests = vars(item.module).items()
    marked = [n for n, f in tests if "in_turn" in {m.name for m in getattr(f, "pytestmark", ())}]
    return marked.index(item.originalname)


def a_third(values, start):
    """Return every third value; of one or two, all."""
    return values if len(values) < TURNS else values[start % TURNS :: TURNS]


def covering(family, size):
    """Return few items that together cover every value, or every pair, and each about as often."""
    has = {item: set(combinations(values_of(item), size)) for item in family}
    left, taken, times = set().union(*has.values()), [], Counter()
    while left:
        gain = {item: (len(v & left), -sum(times[one] for one in v)) for item, v in has.items()}
        best = max(family, key=gain.__getitem__)
        left -= has[best]
        times.update(has[best])
        taken.append(best)
    return taken


def values_of(item):
    """Return an item's values; arguments of a single `parametrize` count as one value."""
    params = item.callspec.params
    together = [names_in(mark.args[0]) for mark in item.iter_markers("parametrize")]
    alone = set(params).difference(*together)  # parametrised fixtures
    together += [(name,) for name in sorted(alone)]
    return [(names, *(id(params[name]) for name in names)) for names in together]


def names_in(names):
    """Return the names that `parametrize` was given, in a string or a sequence."""
    return tuple(n.strip() for n in (names.split(",") if isinstance(names, str) else names))


def pytest_terminal_summary(terminalreporter):
    """Count skipped tests by reason, and write expected failures to a file."""
    stats = terminalreporter.stats
    reasons = Counter(report.longrepr[2] for report in stats.get("skipped", ()))
    expected = sorted(f"{r.nodeid}: {r.wasxfail}" for r in stats.get("xfailed", ()))
    if not reasons and not expected:
        return
    terminalreporter.section("did not pass, and need not")
    for reason, count in sorted(reasons.items()):
        terminalreporter.line(f"{count} skipped: {reason.removeprefix('Skipped: ')}")
    if expected:
        path = terminalreporter.config.rootpath / "build" / "expected-failures.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([*expected, ""]), encoding="utf-8")
        terminalreporter.line(f"{len(expected)} failed as expected: build/{path.name}")


@pytest.fixture(scope="session")
def lacking():
    """Return a function that ends a test for want of something; `make browser` then fails."""
    return pytest.fail if BROWSER else pytest.skip


@pytest.fixture(scope="module")
def browser(lacking):
    """Start Chromium, driven by Playwright."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        lacking("no Chromium found; install it to test the pages in a browser")
    if not BROWSER:
        pytest.importorskip("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()

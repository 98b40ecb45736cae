"""Which cases of the suite run, and what its last lines report."""

from pathlib import Path

import pytest

SUITE = """
import pytest

@pytest.mark.each_value
@pytest.mark.parametrize("a", range(3))
@pytest.mark.parametrize("b", [*"xyzw", pytest.param("v", marks=pytest.mark.more)])
def test_products(a, b): ...

@pytest.mark.each_pair
@pytest.mark.parametrize("a", range(3))
@pytest.mark.parametrize("b", range(3))
@pytest.mark.parametrize("c", range(3))
def test_pairs(a, b, c): ...

@pytest.fixture(params=range(2))
def c(request): ...

@pytest.mark.each_value
@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 2), (0, 2)])
def test_what_comes_together_is_one_value(a, b, c): ...

@pytest.mark.in_turn
@pytest.mark.parametrize("a", range(7))
def test_turns(a): ...

@pytest.mark.in_turn
@pytest.mark.parametrize("a", range(7))
def test_other_turns(a): ...

@pytest.mark.in_turn
@pytest.mark.parametrize("a", range(2))
def test_two(a): ...

@pytest.mark.in_turn("a")
@pytest.mark.each_value
@pytest.mark.parametrize("a", range(7))
@pytest.mark.parametrize("b", "xy")
def test_turns_of_values(a, b): ...

@pytest.mark.parametrize("a", [0, pytest.param(1, marks=pytest.mark.more)])
def test_more(a): ...

@pytest.mark.more
def test_whole(): ...

@pytest.mark.parametrize("a", range(2))
def test_skips(a):
    pytest.skip("no browser here")

@pytest.mark.xfail(reason="a known fault")
def test_fails():
    raise AssertionError
"""


@pytest.fixture
def suite(pytester, monkeypatch):
    monkeypatch.delenv("PCSDA_FUZZ", raising=False)
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(test_suite=SUITE)
    pytester.makeini("[pytest]\nmarkers =\n  each_value\n  each_pair\n  in_turn\n  more\n")
    return pytester


def run(suite, *options):
    return suite.runpytest_inprocess("-p", "no:cacheprovider", *options)


def params_of(result, test):
    names = [line.split()[0] for line in result.outlines if f"::{test}[" in line]
    return [name.split("[")[1].rstrip("]").split("-") for name in names]


def test_each_value_or_pair_runs_and_every_combination_can(suite):
    result = run(suite, "-m", "not more", "-v")
    values = params_of(result, "test_products")
    assert [set(found) for found in zip(*values, strict=True)] == [set("xyzw"), set("012")]
    triples = params_of(result, "test_pairs")
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert len({(triple[i], triple[j]) for triple in triples}) == 9
    assert 9 <= len(triples) <= 12
    one, other = ({int(a) for (a,) in params_of(result, f"test_{t}turns")} for t in ("", "other_"))
    assert one != other
    for found in (one, other):
        assert found == set(range(min(found), 7, 3))
    assert len(params_of(result, "test_two")) == 2
    letters, numbers = zip(*params_of(result, "test_turns_of_values"), strict=True)
    assert set(letters) == set("xy")
    assert {int(a) for a in numbers} == set(range(int(min(numbers)), 7, 3))
    n_run = 4 + len(triples) + 3 + len(one) + len(other) + 2 + len(numbers) + 1
    n_all = 15 + 27 + 6 + 7 + 7 + 2 + 14 + 2
    result.assert_outcomes(passed=n_run, skipped=2, xfailed=1, deselected=n_all - n_run)
    # A test that is left out as a whole is not even collected.
    run(suite, "-m", "").assert_outcomes(passed=n_all + 1, skipped=2, xfailed=1)
    rest = run(suite, "-m", "more")
    rest.assert_outcomes(passed=n_all - n_run + 1, deselected=n_run + 3)


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "a worker"])
def test_skips_are_counted_and_expected_failures_written_to_a_file(suite, options):
    result = run(suite, *options)
    result.stdout.fnmatch_lines(
        ["2 skipped: no browser here", "1 failed as expected: build/expected-failures.txt"]
    )
    assert sum("test_fails" in line for line in result.outlines) == 0
    written = (suite.path / "build" / "expected-failures.txt").read_text(encoding="utf-8")
    assert written == "test_suite.py::test_fails: a known fault\n"

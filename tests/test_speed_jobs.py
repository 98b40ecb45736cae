"""The jobs of the speed benchmark run, their numbers become exponents and a picture, and the
command goes on where it stopped.
"""

import json
import sys

import numpy as np
import pytest
from benchmarks.speed import __main__ as command
from benchmarks.speed import (
    elsewhere,
    growth,
    intelex,
    memory,
    plot,
    predictions,
    rows,
    startup,
    tables,
)
from benchmarks.speed.jobs import JOBS, ON_REQUEST
from benchmarks.speed.measure import Bound, Contestant, Cost, Effort, Job, measure
from benchmarks.speed.setup import Setup, factor_and_leverages, kernel_and_leverages
from numpy.testing import assert_allclose
from peer_factories import SHRUNK_QDA, with_qda
from sklearn.metrics.pairwise import rbf_kernel
from threadpoolctl import threadpool_limits

CONTEXT = rows.environment(1) | {"quick": False}
GLANCE = Effort(repeats=1, attempts=1, turn=1e-9, pause=0.0, look=1e-9)
# Jobs that start processes or search take seconds; other tests cover what is new in them.
IN_PROCESS = [
    name
    for name in JOBS
    if name not in ON_REQUEST | {"imports", "selection", "busy-machine"}
    and not name.endswith("-memory")
]
QUICK = Setup(quick=True, threads=1)


def grown_rows(
    job="growth-N",
    exponent=2.0,
    sizes=(10, 20, 40),
    unit="seconds",
    steepest=None,
    noisy=False,
    quick=False,
):
    """Return rows of a contestant whose time is a power of N, with N^3 + 100 N^2 operations."""
    cost = Cost("N^3 + 100 N^2", lambda N, **_: N**3 + 100 * N**2)
    return [
        {
            "job": job,
            "case": {"N": size, "D": 3},
            "contestant": "ours",
            "role": "pcsda",
            unit: 1e-3 * size**exponent,
            "grows": "N",
            "formula": cost.formula,
            "operations": cost.operations(N=size, D=3),
            "steepest": steepest,
            "bounds": [],
            "noisy": noisy,
            "quick": quick,
        }
        for size in sizes
    ]


# Of these jobs, `make test` runs a few that differ in kind.
SOME = ("linear-fit", "kernel-fit", "growth-N")
AGAINST_QDA = ("linear-fit", "linear-predict", "requests", "bank-fit")


@pytest.mark.parametrize(
    "name",
    [
        with_qda(name, name in AGAINST_QDA, *[pytest.mark.more] * (name not in SOME))
        for name in IN_PROCESS
    ],
)
def test_every_job_runs(name):
    with threadpool_limits(1):
        found = [(job, measure(job, GLANCE)) for job in JOBS[name](QUICK)]
    cases = [json.dumps(job.case) for job, _ in found]
    assert len(set(cases)) == len(cases)
    for job, measurement in found:
        labels = [one.label for one in job.contestants]
        assert job.name == name
        assert "pcsda" in {one.role for one in job.contestants}
        assert list(measurement.rounds) == labels
        assert all(value > 0 for (value,) in measurement.rounds.values())
        named = {bound.against for one in job.contestants for bound in one.bounds}
        assert named <= {None, *labels}


@pytest.mark.parametrize("name", [name for name in JOBS if name.startswith("growth-")])
def test_growth_jobs_vary_one_size_and_state_the_theory(name):
    jobs = list(JOBS[name](QUICK))
    (varied,) = {job.grows for job in jobs}
    assert len({job.case[varied] for job in jobs}) == len(jobs) > 2
    rest = [{size: job.case[size] for size in job.case if size != varied} for job in jobs]
    assert all(case == rest[0] for case in rest)
    for job in jobs:
        assert all(one.cost.operations(**job.case) > 0 for one in job.contestants)


@SHRUNK_QDA
def test_the_bare_expression_must_give_the_same_numbers(monkeypatch):
    monkeypatch.setattr(predictions, "bare_expression", lambda *_: lambda X: np.zeros(len(X)))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        next(predictions.requests(QUICK))


@pytest.mark.parametrize("shape", [(50, 7), (20, 50)])
def test_the_limit_of_fits_that_leave_rows_out_finds_their_leverages(shape):
    X = np.random.default_rng(0).standard_normal(shape)
    found = factor_and_leverages(X)
    if shape[0] > shape[1]:
        hat = X @ np.linalg.solve(X.T @ X + np.eye(shape[1]), X.T)
        assert_allclose(np.sum(found**2, axis=0), np.diag(hat))
    else:  # LAPACK leaves the other triangle as it was
        inverse = np.linalg.inv(X @ X.T + np.eye(shape[0]))
        assert_allclose(np.sum(np.tril(found) ** 2, axis=0), np.diag(inverse))


def test_the_limit_of_kernel_fits_inverts_only_the_rows_left_out():
    X = np.random.default_rng(0).standard_normal((20, 5))
    found = np.sum(np.square(np.tril(kernel_and_leverages(X, 0.1, 8))), axis=0)
    matrix = rbf_kernel(X, gamma=0.1) + np.eye(20)
    assert_allclose(found, np.diag(np.linalg.inv(matrix))[-8:])


@SHRUNK_QDA
def test_a_single_request_has_both_its_bounds():
    first = next(predictions.requests(QUICK))
    fast = {one.label: one for one in first.contestants}["fast_scorer"]
    assert first.case["n"] == 1
    assert [(bound.against, bound.at_most) for bound in fast.bounds] == [
        ("bare NumPy", 15),
        (None, 60e-6),
    ]


def test_imports_are_timed_in_fresh_processes(monkeypatch):
    asked = []

    def answer(code, *names):
        asked.append(names)
        return "sklearn.svm sklearn" if code is startup.LIST else "0.5"

    monkeypatch.setattr(startup, "in_fresh_process", answer)
    (job,) = startup.imports(Setup())
    assert measure(job, GLANCE).rounds == {one.label: [0.5] for one in job.contestants}
    assert job.case == {"submodules": 2}
    assert asked[1:4] == [
        ("perf_counter", "sklearn", "sklearn.svm"),
        ("perf_counter", "pcsda"),
        ("perf_counter", "sklearn.discriminant_analysis"),
    ]


@pytest.mark.more  # it starts two processes
def test_an_import_takes_time_and_only_public_submodules_are_needed():
    assert 0 < startup.import_seconds("perf_counter", "json") < 10
    needed = startup.in_fresh_process(startup.LIST).split()
    assert {"sklearn", "sklearn.cluster", "sklearn.utils.validation"} <= set(needed)
    assert not any("._" in name or name.startswith("pcsda") for name in needed)


def test_metric_learn_runs_in_its_own_python(monkeypatch):
    monkeypatch.setattr(elsewhere, "fit_seconds", lambda python, name, *_: len(python + name))
    (job,) = JOBS["metric-learn"](Setup(quick=True, threads=1, metric_learn="py"))
    found = measure(job, GLANCE).rounds
    assert found["metric-learn LFDA"] == [6.0]
    assert found["metric-learn RCA_Supervised"] == [16.0]


def test_intelex_runs_in_its_own_python(monkeypatch):
    monkeypatch.setattr(intelex, "fit_seconds", lambda python, name, *_: len(python + name))
    jobs = JOBS["intelex"](Setup(quick=True, threads=1, intelex="py"))
    few, _, curved = (measure(job, GLANCE).rounds for job in jobs)
    assert few["intelex LogisticRegression"] == [20.0]
    assert curved["intelex SVC"] == [5.0]


@pytest.mark.parametrize("name", ["intelex", "metric-learn"])
def test_jobs_of_another_python_run_only_when_it_is_named(name):
    assert name not in command.parse_arguments([]).jobs
    assert name in command.parse_arguments([f"--{name}", "py"]).jobs
    with pytest.raises(SystemExit, match=f"the job {name} needs --{name} PYTHON"):
        next(JOBS[name](Setup()))


@pytest.mark.more  # starts a Python of its own
def test_a_python_without_intelex_is_named():
    with pytest.raises(RuntimeError, match=r"could not fit SVC:\n(.|\n)*sklearnex"):
        intelex.fit_seconds(sys.executable, "SVC", (60, 3, 10), Setup(threads=1))


@pytest.mark.more  # starts a Python of its own
def test_a_python_without_metric_learn_is_named():
    with pytest.raises(RuntimeError, match=r"could not fit LFDA:\n(.|\n)*metric_learn"):
        elsewhere.fit_seconds(sys.executable, "LFDA", 50, 3, 1)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.5])
def test_a_power_law_is_found_whatever_its_factor(exponent):
    sizes = [3, 10, 40, 100]
    slope, error = growth.fit_exponent(sizes, [7.5 * size**exponent for size in sizes])
    assert slope == pytest.approx(exponent, abs=1e-12)
    assert error == pytest.approx(0, abs=1e-9)


def test_the_error_of_an_exponent_comes_from_least_squares():
    sizes, values = [1, np.e, np.e**2], np.exp([0, 1.3, 2])
    slope, error = growth.fit_exponent(sizes, values)
    residuals = np.array([0, 1.3, 2]) - (0.1 + np.array([0, 1, 2]))
    assert slope == pytest.approx(1)
    assert error == pytest.approx(np.sqrt((residuals**2).sum() / (3 - 2) / 2))


def test_theory_is_fitted_at_the_same_sizes():
    (found,) = growth.growths(list(reversed(grown_rows())))
    assert found.sizes == [10, 20, 40]
    assert found.exponent == pytest.approx(2)
    operations = [size**3 + 100 * size**2 for size in found.sizes]
    assert found.theory == pytest.approx(np.polyfit(np.log(found.sizes), np.log(operations), 1)[0])
    assert 2 < found.theory < 3


def test_a_single_size_and_other_rows_show_no_growth():
    plain = {"job": "a", "case": {"N": 1}, "contestant": "b", "seconds": 1.0}
    assert growth.growths([plain, *grown_rows(sizes=(10,)), *grown_rows(sizes=(10,))]) == []


def growth_line(**settings):
    """Return the table cells that follow the description of the measurement."""
    line = tables.growth_table(growth.growths(grown_rows(**settings))).splitlines()[2]
    return [cell.strip() for cell in line.split("|")[4:-1]]


def test_growth_has_a_table_of_its_own():
    lines = tables.growth_table(growth.growths(grown_rows() + grown_rows("growth-D", noisy=True)))
    rest = "| ours | N = 10, 20, 40 | 100 to 1600 ms | 2.00 ± 0.00 | 2.17 | N^3 + 100 N^2 |  |  |"
    assert lines.splitlines()[2:] == [f"| growth-N {rest}", f"| growth-D ~ {rest}"]
    assert growth_line(unit="bytes", exponent=8.0)[0] == "0.1 to 6554 MB"


def test_growth_with_a_bound_is_in_both_tables():
    jobs = [fake_job("sizes", {"N": size}, grows="N", most=2) for size in (1, 2)]
    found = [row for job in jobs for row in of_job(job)]
    page = tables.markdown(found)
    assert "| N = 1 | ours | 1500 | 3.00 | 3.00 to 3.00 | at most 2 x limit, is 3.00 x |" in page
    assert "| ours | N = 1, 2 | 1500 to 1500 ms |" in page
    assert "| N = 1 | limit |" not in page


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ({"steepest": 2.01}, "yes"),
        ({"steepest": 1.99}, "**no**"),
        ({"steepest": 1.99, "noisy": True}, "**no**?"),
        ({"steepest": 1.99, "quick": True}, "-"),
    ],
)
def test_an_exponent_may_have_a_bound(settings, verdict):
    assert growth_line(**settings)[-2:] == [f"at most {settings['steepest']}", verdict]


def of_job(job):
    """Return rows of a job, as measured on an idle machine."""
    found = rows.make_rows(job, measure(job, GLANCE), CONTEXT, judge=True)
    return [row | {"noisy": False} for row in found]


def fake_job(name, case, seconds=0.5, grows=None, most=None):
    bounds = (Bound("limit", at_most=most),) if most else ()
    contestants = (
        Contestant("limit", "limit", lambda: seconds, reports=True),
        Contestant("ours", "pcsda", lambda: 3 * seconds, bounds, reports=True),
    )
    return Job(name, case, contestants, grows=grows)


@pytest.fixture
def stage(monkeypatch, tmp_path):
    """Return two jobs that record their calls, and a command that runs them."""
    asked = []

    def job_named(name, cases, grows=None):
        def job(setup):
            """Do nothing."""
            for case in cases:
                asked.append((name, case["N"]))
                yield fake_job(name, case, grows=grows)

        return job

    jobs = {
        "one": job_named("one", [{"N": 1}, {"N": 2}]),
        "two": job_named("two", [{"N": 1}, {"N": 2}], grows="N"),
    }
    monkeypatch.setattr(command, "JOBS", jobs)
    monkeypatch.setattr(command, "LOOK", GLANCE)
    # Drawing takes longer than everything else, and has tests of its own.
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    def run(*arguments):
        asked.clear()
        code = command.main(["--quick", *arguments, "--output", str(tmp_path)])
        return code, rows.read(tmp_path / "rows.jsonl")

    run.asked, run.jobs, run.folder = asked, jobs, tmp_path
    return run


def test_one_job_leaves_the_rows_of_the_others(stage, capsys):
    code, every = stage()
    assert code == 0
    assert [row["job"] for row in every] == ["one"] * 4 + ["two"] * 4
    code, again = stage("--jobs", "one")
    assert stage.asked == [("one", 1), ("one", 2)]
    assert [(row["job"], row["case"]) for row in again] == [
        (row["job"], row["case"]) for row in every
    ]
    shown = capsys.readouterr()
    assert "[1/1] one, N = 2\n" in shown.err
    assert "| limit | N = 1, 2 | 500 to 500 ms | 0.00 ± 0.00 |  |  |  |  |" in shown.out


def test_renamed_cases_belong_to_their_job(stage, monkeypatch):
    monkeypatch.setitem(command.JOBS, "one", lambda setup: iter([fake_job("one-memory", {"N": 1})]))
    stage()
    _, found = stage("--jobs", "two")
    assert [row["job"] for row in found] == ["one-memory"] * 2 + ["two"] * 4
    _, found = stage("--jobs", "one")
    assert len(found) == 6
    assert stage.asked == []


def test_rows_measured_under_other_conditions_are_not_mixed_in(stage):
    stage()
    _, found = stage("--jobs", "one", "--threads", "1")
    assert {row["job"] for row in found} == {"one"}
    assert {row["threads"] for row in found} == {1}


def test_a_stopped_run_keeps_its_rows_and_resumes(stage, monkeypatch, capsys):
    def interrupted(job, *_, **__):
        if job.name == "two":
            raise KeyboardInterrupt
        return measure(job, GLANCE)

    with monkeypatch.context() as stopped:
        stopped.setattr(command, "measure", interrupted)
        code, found = stage()
    assert code == 130
    assert [row["job"] for row in found] == ["one"] * 4
    assert "--resume goes on from there" in capsys.readouterr().err
    code, found = stage("--resume")
    assert code == 0
    assert [row["job"] for row in found] == ["one"] * 4 + ["two"] * 4
    assert "[1/2]" not in capsys.readouterr().err


def test_a_file_that_holds_no_rows_is_refused(stage):
    (stage.folder / "rows.jsonl").write_text("half a li")
    with pytest.raises(SystemExit, match=r"is not a file of rows .*; remove it or give --output"):
        stage()


def test_a_missing_plotting_library_is_not_an_error(stage, capsys):
    code, found = stage("--jobs", "one")
    assert code == 0
    assert len(found) == 4
    assert 'plot.svg: left out, matplotlib is missing: pip install "pcsda[plot]"' in (
        capsys.readouterr().err
    )
    assert not (stage.folder / "plot.svg").exists()


def test_unknown_memory_is_left_out(stage, monkeypatch, capsys):
    monkeypatch.setattr(memory, "available", lambda: False)
    monkeypatch.setitem(command.JOBS, "more-memory", command.JOBS["one"])
    stage("--jobs", "more-memory")
    assert stage.asked == []
    assert "more-memory: left out, peak memory is read on Linux only" in capsys.readouterr().err


def test_a_terminal_sees_every_round_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    ticker = command.Ticker(5)
    ticker.show("1/2", "fit", 0, 0)
    ticker.show("1/2", "fit", 3, 1)
    assert capsys.readouterr().err == (
        "\r\033[K[1/2] fit: warming up\r\033[K[1/2] fit: round 3 of 5, run 2"
    )


@pytest.mark.more
def test_the_picture_shows_every_contestant_and_is_the_same_each_time(tmp_path):
    found = of_job(fake_job("fits", {"N": 5})) + of_job(fake_job("more", {"N": 6}))
    found += grown_rows()
    page = plot.figure(found)
    left, right, grown = (axes for part in page.subfigs for axes in part.axes)
    assert [label.get_text() for label in left.get_yticklabels()] == [
        "fits: N = 5",
        "limit",
        "ours",
    ]
    assert right.get_yticklabels()[0].get_text() == "more: N = 6"
    dots = {tuple(line.get_xdata()) for line in left.get_lines() if line.get_marker() == "o"}
    assert {(1.0,), (3.0,)} <= dots
    (line,) = grown.get_lines()
    assert line.get_label() == "ours: 2.00, theory 2.17"
    assert list(line.get_xdata()) == [10, 20, 40]
    for name in ("a.svg", "b.svg"):
        plot.draw(found, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("found", [[], grown_rows()])
def test_a_picture_of_few_rows_is_drawn(found, tmp_path):
    plot.draw(found, tmp_path / "plot.svg")
    assert "</svg>" in (tmp_path / "plot.svg").read_text()


def test_a_quick_run_does_not_touch_the_results():
    assert command.parse_arguments(["--quick"]).output == command.RESULTS / "quick"
    assert command.parse_arguments([]).output == command.RESULTS


def test_profiling_measures_nothing(stage, monkeypatch):
    _, before = stage("--jobs", "one")
    looks = iter([{"ours": {"core.loo.here": 0.9}}, {"ours": {"core.loo.there": 0.8}}])
    monkeypatch.setattr(command.where, "of_job", lambda job, seconds: next(looks))
    code, after = stage("--where")  # "two" was never measured, so it is not mentioned
    assert code == 0
    assert [row.pop("where", None) for row in after] == [
        None,
        {"core.loo.here": 0.9},
        None,
        {"core.loo.there": 0.8},
    ]
    assert after == before


def placed(*, grows=False):
    """Return rows of three cases that took three times the limit, and where their time went."""
    found = []
    for size in (1, 2, 4):
        some = of_job(fake_job("sizes", {"N": size}, grows="N" if grows else None))
        rows.add_where(some, {"ours": {"core.loo.leave": 0.625, "verifier.look": 0.01}})
        found += some
    return found


def test_the_page_shows_where_slow_cases_spend_their_time():
    found = placed()
    found[-1]["ratio"] = 1.4
    _, _, table = tables.markdown(found).partition("Where the time goes")
    assert [line for line in table.splitlines() if line.startswith("|")][2:] == [
        "| sizes | N = 1 | ours | 3.00 | 62% `core.loo.leave` |",
        "| sizes | N = 2 | ours | 3.00 | 62% `core.loo.leave` |",
    ]
    assert "Where the time goes" not in tables.markdown(of_job(fake_job("sizes", {"N": 1})))


def test_the_page_shows_it_for_both_ends_of_a_growth_job():
    _, _, table = tables.markdown(placed(grows=True)).partition("Where the time goes")
    assert [line.split(" | ")[1] for line in table.splitlines() if "core.loo" in line] == [
        "N = 1",
        "N = 4",
    ]

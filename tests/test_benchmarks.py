"""The speed benchmark: it measures fairly, reports noise, and its command runs."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import cheaper
from benchmarks.speed import folded, headline, measure, rows, tables, where
from benchmarks.speed.__main__ import first_line, parse_arguments
from benchmarks.speed.data import make_sample
from benchmarks.speed.jobs import JOBS
from benchmarks.speed.measure import Bound, Clock, Contestant, Effort, Job

from pcsda import PCSDA, KernelPCSDA
from pcsda.datasets import make_class_specific

ROOT = Path(__file__).parents[1]
THREE = Effort(repeats=3)
CONTEXT = {
    "threads": 2,
    "cpu": "abacus",
    "cores": 2,
    "python": "3.11",
    "versions": {"pcsda": "0"},
    "blas": [],
    "quick": False,
}


class Stage:
    """A clock that only contestants advance, each by its next scripted number of seconds."""

    def __init__(self, foreign_share=0.0):
        self.time, self.calls = 0.0, []
        cores = measure.os.cpu_count()
        self.clock = Clock(
            lambda: self.time, lambda _: None, lambda: foreign_share * cores * self.time
        )

    def contestant(self, label, seconds, **settings):
        script = iter(seconds)

        def run():
            self.calls.append(label)
            self.time += next(script)

        return Contestant(label, "peer", run, **settings)


def job_of(*contestants, unit="seconds"):
    return Job("job", {"N": 5, "D": 2}, contestants, unit)


def endless(value):
    while True:
        yield value


def test_contestants_take_turns_in_rotating_order_after_a_warm_up():
    stage = Stage()
    job = job_of(*(stage.contestant(label, endless(1.0)) for label in "abc"))
    measure.measure(job, THREE, stage.clock)
    assert "".join(stage.calls) == "abc" + "abc" + "bca" + "cab"


def test_every_round_gives_one_value_and_the_warm_up_none():
    stage = Stage()
    found = measure.measure(
        job_of(stage.contestant("a", [9.0, 1.0, 1.1, 1.05])), THREE, stage.clock
    )
    assert found.rounds["a"] == pytest.approx([1.0, 1.1, 1.05])
    assert found.variation == pytest.approx(1.1)
    assert found.discarded == 0
    assert not found.noisy


def test_a_short_call_is_repeated_within_its_turn_and_the_best_counts():
    stage = Stage()
    one = stage.contestant("a", [0.04, 0.03, 0.05, 99])
    assert measure.best_call(one, stage.clock, 0.1) == pytest.approx(0.03)
    assert len(stage.calls) == 3


def test_the_share_of_other_programs_is_measured_in_wall_time():
    stage = Stage(foreign_share=0.4)
    busy = replace(stage.clock, name="processor", wall=lambda: 8 * stage.time)
    job = job_of(stage.contestant("a", endless(1.0)))
    assert measure.measure(job, THREE, stage.clock).others == pytest.approx(0.4)
    assert measure.measure(job, THREE, busy).others == pytest.approx(0.05)


@pytest.mark.more
def test_the_processor_clock_counts_work_of_children_but_no_waiting():
    start = measure.PROCESSOR.now()
    time.sleep(0.3)
    waited = measure.PROCESSOR.now() - start
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    assert waited < 0.2
    assert measure.PROCESSOR.now() - start > waited + 0.05


def test_processor_time_is_measured_on_one_thread(capsys):
    with pytest.raises(SystemExit):
        parse_arguments(["--processor-time", "--threads", "2"])
    assert "give --threads 1 with it" in capsys.readouterr().err
    assert parse_arguments(["--processor-time", "--threads", "1"]).processor_time


def test_a_run_with_an_unsteady_yardstick_is_repeated():
    stage = Stage()
    yardstick = stage.contestant("a", [1.0, *(1.0, 1.3), *(1.0, 1.1, 1.1)])
    other = stage.contestant("b", [1.0, *(7.0, 7.0), *(2.0, 3.0, 4.0)])
    found = measure.measure(job_of(yardstick, other), THREE, stage.clock)
    # The noisy run ended in the round that showed it, and nothing of it was kept.
    assert found.rounds["a"] == pytest.approx([1.0, 1.1, 1.1])
    assert found.rounds["b"] == pytest.approx([2.0, 3.0, 4.0])
    assert found.discarded == 1
    assert not found.noisy


def test_only_the_yardstick_has_to_be_steady():
    stage = Stage()
    wild = stage.contestant("b", [1.0, 1.0, 5.0, 1.0])
    found = measure.measure(job_of(stage.contestant("a", endless(1.0)), wild), THREE, stage.clock)
    assert found.discarded == 0
    assert not found.noisy


def test_after_several_attempts_a_run_is_kept_and_marked_noisy():
    stage = Stage()
    unsteady = [1.0] + [1.0, 2.0] * (THREE.attempts - 1) + [1.0, 2.0, 1.0]
    found = measure.measure(job_of(stage.contestant("a", unsteady)), THREE, stage.clock)
    assert found.rounds["a"] == pytest.approx([1.0, 2.0, 1.0])
    assert found.discarded == THREE.attempts - 1
    assert found.noisy


@pytest.mark.parametrize(("share", "noisy"), [(0.0, False), (0.05, False), (0.5, True)])
def test_a_steady_load_from_other_programs_counts_as_noise(share, noisy):
    stage = Stage(share)
    found = measure.measure(job_of(stage.contestant("a", endless(1.0))), THREE, stage.clock)
    assert found.others == pytest.approx(share)
    assert found.noisy is noisy


def test_a_contestants_own_measurement_is_used():
    stage = Stage()
    outside = stage.contestant("a", endless(1.0))
    inside = Contestant("b", "peer", lambda: outside.run() or 0.25, reports=True)
    found = measure.measure(job_of(outside, inside), THREE, stage.clock)
    assert found.rounds == {"a": pytest.approx([1.0] * 3), "b": [0.25] * 3}


def test_the_rounds_can_be_watched():
    stage, seen = Stage(), []
    job = job_of(stage.contestant("a", [1.0, 1.0, 1.3, 1.0, 1.0, 1.0]))
    measure.measure(job, THREE, stage.clock, lambda number, attempt: seen.append((number, attempt)))
    assert seen == [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (3, 1)]


@pytest.mark.skipif(sys.platform != "linux", reason="others are seen on Linux only")
def test_child_processes_do_not_count_as_other_programs(monkeypatch):
    monkeypatch.setattr(measure.os, "times", lambda: (0.0, 0.0, 0.0, 0.0, 7.0))
    everybody = measure.foreign_seconds()
    monkeypatch.setattr(measure.os, "times", lambda: (100.0, 200.0, 300.0, 400.0, 7.0))
    assert everybody - measure.foreign_seconds() == pytest.approx(1000, abs=10)


def test_memory_is_reported_by_the_contestants():
    given = Contestant("room", "limit", lambda: 100)
    found = measure.measure(
        job_of(given, Contestant("fit", "pcsda", lambda: 80), unit="bytes"), THREE
    )
    assert found.rounds == {"room": [100.0], "fit": [80.0]}


@pytest.mark.parametrize(
    ("bound", "ratio", "holds"),
    [
        (Bound("a", at_most=2), 2.0, True),
        (Bound("a", at_most=2), 2.01, False),
        (Bound("a", at_least=8), 8.0, True),
        (Bound("a", at_least=8), 7.9, False),
    ],
)
def test_a_bound_is_met_or_missed(bound, ratio, holds):
    assert bound.holds(ratio) is holds


def test_a_bound_may_be_absolute():
    one = Contestant("a", "pcsda", None, (Bound(None, at_most=60e-6),))
    found = measure.Measurement({"a": [50e-6, 70e-6]})
    (row,) = rows.make_rows(job_of(one), found, CONTEXT, judge=True)
    assert row["bounds"][0]["ratio"] == 50e-6
    assert row["bounds"][0]["holds"] is True
    assert "| at most 0.06 ms, is 0.05 ms | yes |" in tables.markdown([row])


def three_rows(*, judge=True, noisy=False):
    """Return rows of the limit, of pcsda at 1.5 times it, and of a peer at 0.8 times our time."""
    nothing = dict.fromkeys(("role", "run"))
    job = job_of(
        Contestant("limit", **nothing),
        Contestant("ours", **nothing, bounds=(Bound("limit", at_most=2),)),
        Contestant(
            "theirs", **nothing, bounds=(Bound("ours", at_least=1), Bound("limit", at_least=1))
        ),
    )
    rounds = {"limit": [0.2, 0.21], "ours": [0.4, 0.3], "theirs": [0.24, 0.3]}
    found = measure.Measurement(rounds, variation=2.0 if noisy else 1.05)
    return rows.make_rows(job, found, CONTEXT | {"quick": not judge}, judge=judge)


def test_ratios_compare_the_best_rounds():
    limit, ours, theirs = three_rows()
    assert [row["seconds"] for row in (limit, ours, theirs)] == [0.2, 0.3, 0.24]
    assert [row["ratio"] for row in (limit, ours, theirs)] == pytest.approx([1.0, 1.5, 1.2])
    assert ours["ratio_spread"] == pytest.approx([0.3 / 0.21, 2.0])
    assert limit["bounds"] == []
    assert [bound["ratio"] for bound in ours["bounds"]] == pytest.approx([1.5])
    assert [bound["holds"] for bound in ours["bounds"]] == [True]
    assert [bound["ratio"] for bound in theirs["bounds"]] == pytest.approx([0.8, 1.2])
    assert [bound["holds"] for bound in theirs["bounds"]] == [False, True]
    assert all(row["threads"] == 2 and row["cpu"] == "abacus" for row in (limit, ours, theirs))


def test_the_table_follows_from_the_rows_alone():
    lines = tables.markdown([json.loads(json.dumps(row)) for row in three_rows()]).splitlines()
    assert "abacus, 2 cores, 2 threads; Python 3.11, pcsda 0" in lines[2]
    table = [line for line in lines if line.startswith("|")]
    assert table == [
        "| job | case | contestant | ms | ratio | in rounds | bound | holds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| job | N = 5, D = 2 | limit | 200 | 1.00 | 1.00 to 1.00 |  |  |",
        "|  |  | ours | 300 | 1.50 | 1.43 to 2.00 | at most 2 x limit, is 1.50 x | yes |",
        "|  |  | theirs | 240 | 1.20 | 1.20 to 1.43 "
        "| at least 1 x ours, is 0.80 x<br>at least 1 x limit, is 1.20 x | **no**<br>yes |",
    ]


def test_the_page_shows_user_calls_and_collapses_the_rest():
    limit, ours, theirs = (row | {"job": "default-fit"} for row in three_rows())
    first, other = [limit, ours | {"role": "pcsda"}, theirs], three_rows(noisy=True)
    page = folded.page([*first, *other])
    shown, _, rest = page.partition("<details>")
    assert [line for line in shown.splitlines() if line.startswith("|")] == [
        "| call | ms, and those of others |",
        "| --- | --- |",
        "| `ours`<br>5 x 2 | **300**<br>limit 200 (1.5 x)<br>theirs 240 (1.2 x) |",
    ]
    assert "<summary>All times, with their bounds</summary>\n\n" in rest
    assert tables.table([*first, *other], "seconds") in rest
    assert page.count("<details>") == page.count("</details>") == 1


def test_the_table_marks_noise_and_does_not_judge_a_quick_look():
    noisy = tables.markdown(three_rows(noisy=True))
    assert "| job ~ |" in noisy
    assert "is 1.50 x | yes? |" in noisy
    assert "| **no**?<br>yes? |" in noisy
    quick = tables.markdown(three_rows(judge=False))
    assert "bounds are not judged" in quick
    assert "yes" not in quick
    assert "**no**" not in quick


@pytest.mark.parametrize(
    ("value", "text"), [(0.01234, "0.0123"), (1.5, "1.5"), (999.4, "999"), (14021.7, "14022")]
)
def test_numbers_are_written_without_exponents(value, text):
    assert tables.number(value) == text


def test_memory_has_a_table_of_its_own():
    job = job_of(
        Contestant("room", "limit", lambda: 4e6),
        Contestant("fit", "pcsda", lambda: 3e6, (Bound("room", at_most=1),)),
        unit="bytes",
    )
    page = tables.markdown(rows.make_rows(job, measure.measure(job, THREE), CONTEXT, judge=True))
    assert "|  |  | fit | 3 | 0.75 | at most 1 x room, is 0.75 x | yes |" in page
    assert " ms " not in page


def test_files_are_replaced_atomically(tmp_path, monkeypatch):
    path = tmp_path / "new" / "rows.jsonl"
    rows.write(path, "first")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(rows.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        rows.write(path, "second")
    assert [file.name for file in path.parent.iterdir()] == ["rows.jsonl"]
    assert path.read_text() == "first"


def test_generated_groups_have_equal_sizes():
    sample = make_sample(1100, 7)
    assert (sample.groups == 0).sum() == 100
    assert set(sample.groups) == set(range(11))
    assert ((sample.groups == 0) == sample.y).all()


@pytest.mark.parametrize(
    "arguments", [["--jobs", "flying"], ["--repeats", "0"], ["--threads", "x"]]
)
def test_wrong_usage_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as refused:
        parse_arguments(arguments)
    assert refused.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_help_names_every_job(capsys):
    with pytest.raises(SystemExit):
        parse_arguments(["--help"])
    shown = capsys.readouterr().out
    assert all(name in shown and first_line(job.__doc__) in shown for name, job in JOBS.items())


def busy_in(module, inner=None):
    """Return a function of that module that calls another one, or is busy for a while."""
    source = "def busy(seconds):\n    end = now() + seconds\n    while now() < end:\n        pass\n"
    if inner:
        source = "def busy(seconds):\n    inner(seconds)\n"
    names = {"__name__": module, "now": time.process_time, "inner": inner}
    exec(source, names)
    return names["busy"]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_time_is_attributed_to_the_innermost_library_function():
    handler = signal.getsignal(signal.SIGALRM)
    ours = busy_in("pcsda.core.loo", inner=busy_in("numpy.linalg"))
    theirs = busy_in("sklearn.svm", inner=busy_in("scipy.linalg"))

    def run():
        ours(0.15)
        theirs(0.02)
        busy_in("elsewhere")(0.005)

    found = where.shares(run, 0.0)
    assert list(found) == ["core.loo.busy", "sklearn.svm", "the benchmark itself"]
    assert sum(found.values()) == pytest.approx(1)
    assert found["core.loo.busy"] > 0.5
    assert signal.getsignal(signal.SIGALRM) == handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_time_before_a_call_is_not_attributed_to_the_callee():
    callee, places, before = busy_in("pcsda.verifier"), {}, sys.gettrace()
    names = {"__name__": "pcsda.core.loo", "empty": callee}
    exec("def work():\n    empty(-1)\n", names)

    def watch(frame, event, _):
        if frame.f_code is callee.__code__:
            places[event] = where.place(frame)
        return watch

    sys.settrace(watch)
    try:
        names["work"]()
    finally:
        sys.settrace(before)
    # The callee has done nothing yet when it is called, and something when it has reached a line.
    assert places["call"] == "core.loo.work"
    assert places["line"] == "verifier.busy"


def test_only_the_library_is_profiled_and_only_in_this_process():
    def run():
        raise AssertionError("must not be run")

    others = [Contestant("a", "peer", run), Contestant("b", "pcsda", run, reports=True)]
    assert where.of_job(job_of(*others), 0.0) == {}
    assert where.of_job(job_of(Contestant("c", "pcsda", run), unit="bytes"), 0.0) == {}


@pytest.mark.more
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read on Linux only")
def test_the_command_measures_time_and_memory(tmp_path):
    command = [sys.executable, "-m", "benchmarks.speed", "--quick", "--repeats", "2"]
    command += ["--threads", "1", "--jobs", "linear-predict", "kernel-memory"]
    subprocess.run([*command, "--output", tmp_path], cwd=ROOT, check=True, capture_output=True)
    found = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["job"] for row in found] == ["linear-predict"] * 7 + ["kernel-memory"] * 3
    assert all(row["seconds"] > 0 and len(row["rounds"]) == 2 for row in found[:7])
    assert [row["contestant"] for row in found if "where" in row] == ["decision_function"]
    assert all(row["bytes"] > 0 for row in found[7:])
    # A kernel fit cannot do without its N x N matrix, so less would be a wrong measurement.
    assert all(row["bytes"] > 0.9 * 8 * row["case"]["N"] ** 2 for row in found[8:])
    assert (tmp_path / "table.md").read_text() == tables.markdown(found)
    written = sorted(file.name for file in tmp_path.iterdir())
    assert written == ["plot.svg", "rows.jsonl", "table.md"]


def test_a_page_of_several_runs_names_the_run_of_each_job():
    found = three_rows()
    alone = tables.headings(found)
    assert not alone.startswith("- ")
    both = tables.headings(found + [row | {"job": "other", "cpu": "slide rule"} for row in found])
    assert both.splitlines()[0] == f"- {found[0]['job']}: {alone}"
    assert both.splitlines()[1].startswith("- other: slide rule, ")


def test_the_page_of_the_cheaper_search_has_the_mean_difference_and_its_standard_error():
    rows = [
        {"dataset": "USPS", "estimator": "PCSDA", "cheap_loss": cheap, "full_loss": 0.2}
        | {"cheap_seconds": 1.0, "full_seconds": 5.0}
        for cheap in (0.2, 0.3, 0.4)
    ]
    page = cheaper.page(rows)
    line = "`PCSDACV(PCSDA())`, {} | 3 | 0.3000 | 0.2000 | +0.1000 ± 0.0577 | 1.0, 5.0 |"
    assert line.format("USPS") in page
    assert line.format("all") in page
    assert "ORL" not in page
    assert cheaper.page([]) == "No rows yet."


def test_a_full_search_has_the_values_of_the_default():
    data = make_class_specific(200, random_state=0)
    for model in (PCSDA(random_state=0), KernelPCSDA(random_state=0)):
        values = cheaper.every_value(model.fit(data.data, data.target), data.data)
        assert len(model.subclass_counts_) in values["n_subclasses"]
        assert model.regularization_ in values["regularization"]
        assert ("gamma" in values) == isinstance(model, KernelPCSDA)


def test_calls_beside_busy_processes_are_timed_and_leave_none_behind(monkeypatch):
    started, start = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a: started.append(start(*a)) or started[-1])
    took = headline.seconds_beside(time.perf_counter, lambda: time.sleep(0.01))
    assert took >= 0.01
    assert [process.poll() for process in started] == [-signal.SIGKILL] * 2

"""Run the jobs and write rows, a table and a plot; ``python -m benchmarks.speed --help``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from . import memory, plot, rows, tables, where
from .jobs import JOBS, ON_REQUEST
from .measure import LOOK, PROCESSOR, REAL, Effort, Job, measure
from .setup import Setup

RESULTS = Path(__file__).parent / "results"
STOPPED = 130


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    listed = "\n".join(f"  {name:15} {first_line(job.__doc__)}" for name, job in JOBS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measure pcsda against the limit (the BLAS and LAPACK calls that no "
        "implementation can avoid)\nand against what a user would choose instead. Contestants take "
        "turns within one run; the best\nround counts. Close other programs first: runs "
        "in which the limit varies by more than\n20% are discarded and repeated.",
        epilog=f"jobs:\n{listed}\n\nexamples:\n"
        "  python -m benchmarks.speed --quick            see everything run, in two minutes\n"
        "  python -m benchmarks.speed --jobs kernel-fit  one job at full size, others kept\n"
        "  python -m benchmarks.speed --resume           resume a run that was stopped\n"
        "  python -m benchmarks.speed --where            show again where our time goes",
    )
    parser.add_argument("--quick", action="store_true", help="sizes by ten smaller, no judgement")
    parser.add_argument(
        "--jobs",
        nargs="+",
        choices=JOBS,
        metavar="NAME",
        help=f"default: all but {', '.join(sorted(ON_REQUEST))}; what an earlier run found for the "
        "others is kept if it was measured with the same threads, machine and versions",
    )
    parser.add_argument(
        "--resume", action="store_true", help="leave out cases that an earlier run has measured"
    )
    parser.add_argument(
        "--where",
        action="store_true",
        help="measure nothing: only look where the time goes in cases that an earlier run has "
        "measured, which needs no quiet machine",
    )
    parser.add_argument(
        "--repeats",
        type=positive,
        help=f"rounds of a run (default: {Effort().repeats}, quick: {LOOK.repeats})",
    )
    parser.add_argument(
        "--threads", type=positive, default=2, help="of BLAS and OpenMP (default: %(default)s)"
    )
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="count processor seconds, where others keep the machine busy; with --threads 1 only",
    )
    parser.add_argument(
        "--metric-learn",
        metavar="PYTHON",
        help="run the job metric-learn too, with this Python, which can import metric_learn",
    )
    parser.add_argument(
        "--intelex",
        metavar="PYTHON",
        help="run the job intelex too, with this Python, which can import sklearnex",
    )
    parser.add_argument(
        "--scratch",
        type=Path,
        metavar="DIR",
        help="where the scale jobs put their files, of up to 8 GB, while they run (default: the "
        "temporary folder)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="where rows.jsonl, table.md and plot.svg go (default: benchmarks/speed/results, "
        "quick: its folder quick)",
    )
    args = parser.parse_args(arguments)
    if args.processor_time and args.threads != 1:
        parser.error("--processor-time adds up all threads; give --threads 1 with it")
    if args.jobs is None:
        args.jobs = [name for name in JOBS if name not in ON_REQUEST]
    if args.metric_learn and "metric-learn" not in args.jobs:
        args.jobs.append("metric-learn")
    if args.intelex and "intelex" not in args.jobs:
        args.jobs.append("intelex")
    if args.output is None:
        args.output = RESULTS / "quick" if args.quick else RESULTS
    return args


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def first_line(text: str | None) -> str:
    return (text or "").split("\n", 1)[0]


class Ticker:
    """Shows progress: one changing line on a terminal, otherwise one line per case."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.live = sys.stderr.isatty()

    def show(self, place: str, title: str, round_number: int, attempt: int) -> None:
        """Show a round."""
        if self.live:
            doing = f"round {round_number} of {self.rounds}" if round_number else "warming up"
            again = f", run {attempt + 1}" if attempt else ""
            print(f"\r\033[K[{place}] {title}: {doing}{again}", end="", file=sys.stderr, flush=True)
        elif round_number == attempt == 0:
            print(f"[{place}] {title}", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Print a message on its own line."""
        print(("\r\033[K" if self.live else "") + text, file=sys.stderr, flush=True)


def cases(names: list[str], setup: Setup, ticker: Ticker) -> Iterator[tuple[str, str, Job]]:
    """Yield the jobs: their position, the requested name, and a case."""
    for number, name in enumerate(names, start=1):
        if name.endswith("-memory") and not memory.available():
            ticker.say(f"{name}: left out, peak memory is read on Linux only")
            continue
        for job in JOBS[name](setup):
            yield f"{number}/{len(names)}", name, job


def save(output: Path, found: list[rows.Row]) -> None:
    rows.write(output / "rows.jsonl", rows.to_json_lines(found))
    rows.write(output / "table.md", tables.markdown(found))


def run(args: argparse.Namespace, ticker: Ticker, effort: Effort) -> list[rows.Row]:
    """Measure all jobs, writing the files after each case, so that a stop loses only one."""
    clock = PROCESSOR if args.processor_time else REAL
    context = rows.environment(args.threads) | {"quick": args.quick, "clock": clock.name}
    earlier = rows.comparable(rows.read(args.output / "rows.jsonl"), context)
    kept = args.resume or args.where
    found = [row for row in earlier if kept or row["asked"] not in args.jobs]
    setup = Setup(args.quick, args.threads, args.metric_learn, args.scratch, args.intelex, clock)
    with threadpool_limits(args.threads):
        for place, name, job in cases(args.jobs, setup, ticker):
            known = [row for row in found if row["job"] == job.name and row["case"] == job.case]
            if known:
                if args.where:
                    ticker.say(f"[{place}] {job.title}")
                    rows.add_where(known, where.of_job(job, effort.look))
                    save(args.output, found)
                continue
            if args.where:
                continue

            def watch(round_number: int, attempt: int, place=place, title=job.title) -> None:
                ticker.show(place, title, round_number, attempt)

            measured = measure(job, effort, clock, watch)
            about = context | {"asked": name}
            fresh = rows.make_rows(job, measured, about, judge=not args.quick)
            rows.add_where(fresh, where.of_job(job, effort.look))
            found = rows.in_order(found + fresh, list(JOBS))
            save(args.output, found)
    return found


def main(arguments: list[str] | None = None) -> int:
    args = parse_arguments(arguments)
    effort = LOOK if args.quick else Effort()
    if args.repeats:
        effort = replace(effort, repeats=args.repeats)
    ticker = Ticker(effort.repeats)
    try:
        found = run(args, ticker, effort)
    except KeyboardInterrupt:
        ticker.say(f"stopped; {args.output} has what was measured, --resume goes on from there")
        return STOPPED
    ticker.say(f"writing {args.output}")
    save(args.output, found)
    try:
        plot.draw(found, args.output / "plot.svg")
    except ModuleNotFoundError as error:
        ticker.say(f'plot.svg: left out, {error.name} is missing: pip install "pcsda[plot]"')
    print(tables.markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

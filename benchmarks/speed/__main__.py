"""Run the jobs and write rows and tables; ``python -m benchmarks.speed --help``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from threadpoolctl import threadpool_limits

from . import memory, rows, tables
from .jobs import JOBS, Setup
from .measure import Job, measure

RESULTS = Path(__file__).parent / "results"


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    listed = "\n".join(f"  {name:15} {job.__doc__}" for name, job in JOBS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measure pcsda against the limit (the BLAS and LAPACK calls that no "
        "implementation can avoid)\nand against what a user would pick instead. Contestants take "
        "turns within one run; the best\nof the rounds counts. Close other programs first: runs "
        "in which the limit varies by more than\n20 % are discarded and repeated.",
        epilog=f"jobs:\n{listed}\n\nexamples:\n"
        "  python -m benchmarks.speed --quick            see everything run, in a minute\n"
        "  python -m benchmarks.speed --jobs kernel-fit  one job at full size",
    )
    parser.add_argument("--quick", action="store_true", help="sizes by ten smaller, no judgement")
    parser.add_argument(
        "--jobs", nargs="+", choices=JOBS, default=list(JOBS), metavar="NAME", help="default: all"
    )
    parser.add_argument(
        "--repeats", type=positive, default=5, help="rounds of a run (default: %(default)s)"
    )
    parser.add_argument(
        "--threads", type=positive, default=2, help="of BLAS and OpenMP (default: %(default)s)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help="where rows.jsonl and table.md go, replacing those of an earlier run (default: "
        "benchmarks/speed/results)",
    )
    return parser.parse_args(arguments)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def run(job: Job, args: argparse.Namespace) -> list[rows.Row]:
    case = ", ".join(f"{name} = {size}" for name, size in job.case.items())
    print(f"{job.name}, {case} ...", file=sys.stderr, flush=True)
    context = rows.environment(args.threads) | {"quick": args.quick}
    return rows.make_rows(job, measure(job, args.repeats), context, judge=not args.quick)


def main(arguments: list[str] | None = None) -> int:
    args = parse_arguments(arguments)
    setup = Setup(args.quick, args.threads)
    found: list[rows.Row] = []
    with threadpool_limits(args.threads):
        for name in args.jobs:
            if name.endswith("-memory") and not memory.available():
                print(f"{name}: left out, peak memory is read on Linux only", file=sys.stderr)
                continue
            for job in JOBS[name](setup):
                found += run(job, args)
                # After every job, so that a run that is stopped leaves what it has.
                rows.write(args.output / "rows.jsonl", rows.to_json_lines(found))
                rows.write(args.output / "table.md", tables.markdown(found))
    print(tables.markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

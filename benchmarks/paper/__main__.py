"""Run the paper's experiments and write the tables; ``python -m benchmarks.paper --help``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from . import rows, tables
from .datasets import PAPER, SOURCES, AbsentError, Dataset, load
from .methods import METHODS
from .protocol import FULL, QUICK
from .rows import RowFile
from .run import plan, run

RESULTS = Path(__file__).parent / "results"
# Rows of the whole study, stored with the code; tables are made from them if there are no others.
COMMITTED = Path(__file__).parent / "rows.jsonl.gz"
GROUPS = tuple(dict.fromkeys(method.group for method in METHODS.values()))


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run the experiments of the paper: class-specific ranking and classification.\n"
        "Every result is a row in a file. A run that was stopped goes on where it was when it is\n"
        "started again. Data sets are read from the folder that PCSDA_DATA names.",
        epilog=f"data sets: {', '.join(SOURCES)}\n"
        f"methods: {', '.join(repr(name) for name in METHODS)}\n"
        f"groups of methods: {', '.join(GROUPS)}; all but ablation by default\n\nexamples:\n"
        "  python -m benchmarks.paper --quick                     the digits, in a minute or two\n"
        "  python -m benchmarks.paper                             the whole study, some hours\n"
        "  python -m benchmarks.paper --datasets OptDigits --methods paper ours --splits 1\n"
        "  python -m benchmarks.paper --tables-only               the tables of the rows at hand",
    )
    add = parser.add_argument
    add("--datasets", nargs="+", choices=SOURCES, metavar="NAME", help="default: the paper's eight")
    add("--methods", nargs="+", metavar="NAME", help="methods or groups of them")
    add("--classes", nargs="+", metavar="NAME", help="default: all, or 10 seeded if over 15")
    add("--splits", type=positive, metavar="N", help="default: 5, with --quick 1")
    add("--quick", action="store_true", help="few folds, settings and landmarks; default: digits")
    add("--jobs", type=positive, default=os.cpu_count(), metavar="N", help="default: all cores")
    add("--openml", action="store_true", help="fetch absent sets from OpenML where it has them")
    add("--rows", type=Path, metavar="FILE", help="default: rows.jsonl in benchmarks/paper/results")
    add("--tables", type=Path, default=RESULTS, metavar="DIR", help="where the tables go")
    add("--tables-only", action="store_true", help="run nothing; --rows may be compressed (.gz)")
    args = parser.parse_args(arguments)
    args.protocol = QUICK if args.quick else FULL
    args.splits = args.splits or args.protocol.n_splits
    args.datasets = args.datasets or (["digits"] if args.quick else [s.name for s in PAPER])
    if args.rows is None:
        args.rows = RESULTS / f"rows{'-quick' if args.quick else ''}.jsonl"
        if args.tables_only and not args.rows.exists() and COMMITTED.exists():
            args.rows = COMMITTED
    if args.rows.suffix == ".gz" and not args.tables_only:
        parser.error("argument --rows: a compressed file cannot be added to; unpack it first")
    try:
        args.methods = chosen_methods(args.methods)
    except ValueError as error:
        parser.error(f"argument --methods: {error}")
    return args


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def chosen_methods(names: list[str] | None) -> list[str]:
    """Return the names of methods, given names and groups, in the order of the tables."""
    wanted = set(names or [group for group in GROUPS if group != "ablation"])
    unknown = wanted - set(METHODS) - set(GROUPS)
    if unknown:
        known = ", ".join([*GROUPS, *METHODS])
        raise ValueError(f"{', '.join(sorted(unknown))} unknown; choose from {known}")
    return [n for n, method in METHODS.items() if n in wanted or method.group in wanted]


def load_all(args: argparse.Namespace) -> dict[str, Dataset]:
    """Load the data sets that are available, and report the others."""
    found = {}
    for name in args.datasets:
        try:
            found[name] = load(name, openml=args.openml)
        except AbsentError as error:
            print(error, file=sys.stderr)
            continue
        unknown = set(args.classes or []) - set(found[name].classes)
        if unknown:
            known = ", ".join(found[name].classes)
            raise SystemExit(f"{name} has no class {', '.join(sorted(unknown))}; it has {known}")
    return found


def measure(args: argparse.Namespace) -> dict[str, str]:
    """Run what is missing, and return what failed."""
    datasets = load_all(args)
    file = RowFile(args.rows)
    try:
        done, profile = {rows.key(row) for row in file.rows}, args.protocol.profile
        units = plan(datasets.values(), args.methods, args.classes, args.splits, profile, done)
        return run(units, datasets, args.protocol, file, args.jobs)
    finally:
        file.close()


def write_tables(found: list[rows.Row], folder: Path, suffix: str) -> list[Path]:
    blocks = tables.page(found)
    texts = {".md": tables.to_markdown(blocks), ".html": tables.to_html(blocks)}
    paths = [folder / f"tables{suffix}{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        rows.write(path, text)
    return paths


def main(arguments: list[str] | None = None) -> int:
    args = parse_arguments(arguments)
    if args.tables_only and not args.rows.exists():
        print(f"{args.rows} is not there; run python -m benchmarks.paper first", file=sys.stderr)
        return 1
    try:
        failures = {} if args.tables_only else measure(args)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    found = [row for row in rows.read(args.rows) if row["profile"] == args.protocol.profile]
    paths = write_tables(found, args.tables, "-quick" if args.quick else "")
    print(f"{len(found)} rows in {args.rows}; tables in {' and '.join(map(str, paths))}")
    for where, error in failures.items():
        print(f"\n{where} failed; the next run tries it again:\n{error}", file=sys.stderr)
    return len(failures) > 0


if __name__ == "__main__":
    sys.exit(main())

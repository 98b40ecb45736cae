"""A short version of the benchmark on the bundled digits, and a picture; ``make study``."""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from pathlib import Path

from matplotlib.figure import Figure

from pcsda import PCSDA
from pcsda.plots import SubspaceDisplay

from . import published
from .__main__ import chosen_methods
from .datasets import Dataset, load
from .methods import KINDS, METHODS
from .protocol import QUICK, Unit, split_rows
from .rows import Row, RowFile
from .run import plan, run
from .summary import Summary, cells, summarise

HEAD = ("", "mAP", "published", "F1", "published")
LINE = "{:16}  {:>15}  {:>15}  {:>15}  {:>15}"
EXPLANATION = """
Each of the ten digits against the other nine, learned from 70% of scikit-learn's 1797 digits and
tested on the rest: mean average precision of the ranking and F1 of the classification, with the
standard deviation over the ten problems. The published numbers are those of the paper on OptDigits,
of which these digits are a part: all 5620 of them, five splits and finer grids. Here it is one
split, few settings and few landmarks. `python -m benchmarks.paper` is the whole study."""


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper.demo",
        description="Run the paper's experiment on scikit-learn's bundled digits in quick form, "
        "print a table beside the paper's row for OptDigits, and draw one subspace.",
    )
    add = parser.add_argument
    add(
        "--output",
        type=Path,
        default=Path("demo_subspace.png"),
        help="where to save the picture, .png, .pdf or .svg (default: %(default)s)",
    )
    add("--digit", default="3", choices=[str(n) for n in range(10)], help="the digit that is drawn")
    add("--digits", nargs="+", metavar="DIGIT", help="digits to verify (default: all ten)")
    add("--jobs", type=int, default=os.cpu_count(), help="default: all cores")
    return parser.parse_args(arguments)


def measure(digits: Dataset, classes: list[str] | None, n_jobs: int) -> tuple[list[Row], list[str]]:
    """Return the rows of the quick protocol, and what failed."""
    units = plan([digits], chosen_methods(None), classes, QUICK.n_splits, QUICK.profile, set())
    with tempfile.TemporaryDirectory() as folder:
        file = RowFile(Path(folder) / "rows.jsonl")
        try:
            failures = run(units, {digits.name: digits}, QUICK, file, n_jobs)
        finally:
            file.close()
        return file.rows, list(failures)


def table(rows: list[Row]) -> str:
    """List every method, with the paper's values for OptDigits beside it."""
    here = {kind: summarise(cells(rows, kind)["digits"]) for kind in KINDS}
    paper = {kind: published.values(kind) for kind in KINDS}
    lines = [LINE.format(*HEAD)]
    for name in METHODS:
        if any(name in found for found in here.values()):
            entries = []
            for kind in KINDS:
                entries.append(entry(here[kind].get(name)))
                entries.append(entry(paper[kind].get(("OptDigits", name))))
            lines.append(LINE.format(name, *entries).rstrip())
    return "\n".join(lines)


def entry(one: Summary | tuple[float, float] | None) -> str:
    if one is None:
        return ""
    mean, deviation = (one.mean, one.deviation) if isinstance(one, Summary) else one
    return f"{mean:.4f}" + ("" if math.isnan(deviation) else f" ({deviation:.4f})")


def save_picture(digits: Dataset, digit: str, output: Path) -> None:
    """Draw the test images of the first split in the subspace of a default model."""
    y = digits.y == digits.classes.index(digit)
    unit = Unit(digits.name, digit, 0, ())
    train, test = split_rows(y, unit.seed)
    model = PCSDA(random_state=0).fit(digits.X[train], y[train])
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    SubspaceDisplay.from_estimator(model, digits.X[test], y[test], ax=figure.subplots())
    figure.suptitle(f"Digit {digit} and the other digits, test images")
    # Renamed when complete, so that a failure leaves no partial picture.
    unfinished = output.with_name(f".{output.stem}.{os.getpid()}{output.suffix}")
    try:
        figure.savefig(unfinished, dpi=150)
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    args = parse_arguments(arguments)
    digits = load("digits")
    rows, failures = measure(digits, args.digits, args.jobs)
    print(table(rows))
    print(EXPLANATION)
    for failure in failures:
        print(f"{failure} failed; python -m benchmarks.paper --quick says why", file=sys.stderr)
    try:
        save_picture(digits, args.digit, args.output)
    except (OSError, ValueError) as error:
        print(f"{args.output} was not saved: {error}", file=sys.stderr)
        return 1
    print(f"\nThe subspace of digit {args.digit} is drawn in {args.output}.")
    return len(failures) > 0


if __name__ == "__main__":
    sys.exit(main())

"""Option types and option groups that several commands share."""

from __future__ import annotations

import math
from argparse import Action, ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)
Value = str | int | float

MODEL = "model file that 'pcsda fit' wrote"
DATA = (
    "table: .csv, .tsv, .parquet, .arrow, .feather, .npy, .npz or a folder of them; - reads CSV "
    "from standard input"
)
ROW_ID = "column that names the rows"
ONE_ORIGIN = "rows with the same value have one origin and are scored together"
UNKNOWN = "name for rows that match no label (default: %(default)s)"


def names(text: str) -> list[str]:
    """Parse names separated by commas."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise ArgumentTypeError("names no column")
    return found


def number_or(*words: str) -> Callable[[str], Value]:
    """Return a function that parses a number or one of `words`."""

    def value(text: str) -> Value:
        if text in words:
            return text
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                pass
        raise ArgumentTypeError(f"{text!r} must be {' or '.join(('a number', *words))}")

    return value


def values_or(*words: str) -> Callable[[str], Value | list[Value]]:
    """Return a function that parses one or more values, separated by commas.

    Each value is a number or one of `words`.
    """
    one = number_or(*words)

    def value(text: str) -> Value | list[Value]:
        found = [one(part.strip()) for part in text.split(",")]
        return found[0] if len(found) == 1 else found

    return value


def checked(
    kind: type[Number], allows: Callable[[Number], bool], what: str
) -> Callable[[str], Number]:
    """Return a function that parses a number and rejects it if `allows` returns False.

    `what` describes the allowed numbers in the error message.
    """

    def value(text: str) -> Number:
        try:
            number = kind(text)
        except ValueError:
            number = None
        if number is None or not allows(number):
            raise ArgumentTypeError(f"{text!r} must be {what}")
        return number

    return value


share = checked(float, lambda value: 0 < value < 1, "a number between 0 and 1")
finite = checked(float, math.isfinite, "a number")
above_zero = checked(float, lambda value: 0 < value < math.inf, "a number above 0")
count = checked(int, lambda value: value >= 1, "a whole number of at least 1")
port_number = checked(int, lambda value: 0 <= value < 2**16, "a whole number from 0 to 65535")
seed = checked(int, lambda value: 0 <= value < 2**32, "a whole number from 0 to 4294967295")


def feature_columns(add: Callable[..., Action], features: str) -> None:
    """Add options for choosing feature columns; `features` is the help of the first."""
    ignored = "columns to leave out, as names or patterns"
    for option, help in (("--features", features), ("--ignore", ignored)):
        add(option, type=names, action="extend", default=[], metavar="A,B", help=help)


def columns(parser: ArgumentParser, spooled: str = "", fits: bool = False) -> None:
    """Add options for choosing feature columns and for reading the table.

    `spooled` is a sentence on blocks that ends the help. `fits` says that the command fits a model;
    other commands read the table as the model file says.
    """
    add = parser.add_argument_group("columns").add_argument
    default = "all numeric columns that do not look like ids" if fits else "those of the model"
    feature_columns(add, f"feature columns, as names or patterns such as 'f*' (default: {default})")
    group = "stored in the model file" if fits else "by default, as the model file says"
    add = parser.add_argument_group(f"reading ({group})").add_argument
    gaps, scale, encoding, decimal = (
        f" (default: {value})" if fits else "" for value in ("fail", "none", "utf-8", ".")
    )
    gaps = f"if numbers are missing or infinite: fail, drop their rows, or impute medians{gaps}"
    scale = f"scale the columns{scale}" if fits else "must be as in the fit"
    encoding = f"text encoding, such as cp1252{encoding}"
    decimal = f"decimal separator in text files{decimal}"
    add("--missing", choices=("fail", "drop", "impute"), help=gaps)
    add("--scale", choices=("standard", "robust", "none"), help=scale)
    add("--encoding", metavar="NAME", help=encoding)
    add("--decimal", choices=(".", ","), help=decimal)
    parser.add_argument(
        "--block-rows",
        type=count,
        metavar="N",
        help="read N rows at a time; by default, only tables larger than half of the free memory "
        f"are read in blocks{spooled}",
    )


def formulas(parser: ArgumentParser) -> None:
    """Add an option that leaves text unchanged even if it looks like a formula."""
    formulas = "write text such as =1+1 unchanged; by default, a ' is put before it in CSV files"
    parser.add_argument("--keep-formulas", action="store_true", help=formulas)


def costs(parser: ArgumentParser) -> None:
    """Add options for the decision: a threshold, a rate of false alarms, or a prior and costs."""
    add = parser.add_argument_group("threshold").add_argument
    add("--threshold", type=finite, metavar="LLR", help="smallest log-likelihood ratio to accept")
    alarms = (
        "use the threshold that accepts this share of the rest, estimated on training rows that "
        "are left out of the fit"
    )
    add("--max-false-alarms", type=share, metavar="R", help=alarms)
    prior = (
        "probability of the class of interest in actual use (default: its share of the "
        "training rows; 0.5 for a bank)"
    )
    add("--prior", type=share, metavar="P", help=prior)
    miss = "cost of rejecting a positive (default: 1)"
    alarm = "cost of accepting a negative (default: 1)"
    add("--cost-miss", type=above_zero, metavar="C", help=miss)
    add("--cost-false-alarm", type=above_zero, metavar="C", help=alarm)

"""The words of the command line: commands, options and the help that teaches them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

DATA = "table: .csv, .tsv, .parquet, .npy or .npz; - reads CSV from standard input"
GAP = "\n\n"

ABOUT = """\
Tell one class from the rest of the world: fit a verifier on a table, score and
rank new rows, evaluate on labelled ones, and look at the result in a browser."""

START = """\
start here:
  pcsda demo                                             a model for each digit, in seconds
  pcsda fit train.csv --label kind --positive weld -o weld.pcsda
  pcsda score weld.pcsda new.csv                         a log-likelihood ratio for each row
  pcsda rank weld.pcsda new.csv --top 20                 the rows that fit best
  pcsda evaluate weld.pcsda test.csv --label kind --report report.html

Tables are CSV, Parquet, NPY or NPZ by their extension; - is CSV on standard input.
Columns are matched by name. Rows are counted from 0.
Each command has its own help with examples: pcsda fit --help
Exit codes: 0 done, 1 the data or the model is at fault, 2 wrong usage."""

FIT = """\
examples:
  one class against the rest
    pcsda fit train.parquet --label kind --positive weld -o weld.pcsda
  a verifier for every label
    pcsda fit faces.npz --label y --positive all -o faces.pcsda
  let left-out scores choose the number of subclasses, the axes and the ridge
    pcsda fit train.csv --label kind --positive weld --auto -o weld.pcsda
  with a kernel, exact; and for many rows, through 500 landmarks
    pcsda fit train.csv --label kind --positive weld --kernel rbf -o weld.pcsda
    pcsda fit train.csv --label kind --positive weld --approx nystroem \\
        --map-components 500 -o weld.pcsda
  from another program
    zcat train.csv.gz | pcsda fit - --label kind --positive weld -o weld.pcsda --json

All columns but those named by an option are features. In an NPZ file the array of two
dimensions holds the features and one-dimensional arrays are columns by name; in a plain
NPY file columns go by their number, as in --label 0."""

SCORE = """\
examples:
  pcsda score weld.pcsda new.csv -o scores.csv
  pcsda score weld.pcsda new.csv --id part --prior 0.01 --cost-miss 10
  several rows of one origin, such as photographs of one part, give one score together
    pcsda score weld.pcsda new.csv --trial part
  a bank: the best label of each row, or unknown; a claim for each row; all labels
    pcsda score faces.pcsda door.npz --threshold 2
    pcsda score faces.pcsda door.csv --claimed name
    pcsda score faces.pcsda door.npz --all --json

The log-likelihood ratio says how many times likelier (as a natural logarithm) a row is
under the class of interest than under the rest; no prior is in it. It is accepted where it
reaches the threshold ln(cost of a false alarm / cost of a miss) - ln(prior / (1 - prior))."""

RANK = """\
examples:
  pcsda rank weld.pcsda gallery.parquet --top 20 --id file
  pcsda rank faces.pcsda gallery.npz --positive anna --by likelihood
  pcsda rank weld.pcsda gallery.csv --json | jq '.rows[0]'

By default rows are ordered by their distance to the mean of the class in the subspace, as
in the paper; --by likelihood takes the log-likelihood ratio."""

EVALUATE = """\
examples:
  pcsda evaluate weld.pcsda test.csv --label kind
  pcsda evaluate weld.pcsda test.csv --label kind --report report.html
  frames of one recording are no independent rows: resample whole recordings
    pcsda evaluate voices.pcsda test.npz --label speaker --group recording --json
  costs of the application
    pcsda evaluate weld.pcsda test.csv --label kind --prior 0.01 --cost-miss 10

Intervals are bootstrap intervals at the level of --confidence. The report is one HTML file
that needs no network."""

INSPECT = """\
examples:
  pcsda inspect weld.pcsda
  pcsda inspect weld.pcsda --json | jq .n_components

Nothing in a model file is executed: it may hold the types of pcsda and nothing else."""

EXPORT = """\
examples:
  pcsda export weld.pcsda --onnx weld.onnx
  pcsda export weld.pcsda --onnx weld.onnx --dtype float64"""

DEMO = """\
columns: average precision and F1 (1 is perfect), EER = equal error rate (0 is perfect),
K = subclasses found among the other digits, d = dimensions of the subspace.

example:
  pcsda demo --digit 8 --report digits.html"""


COMPLETION = """\
examples:
  bash, in ~/.bashrc:  eval "$(pcsda completion bash)"
  zsh, in ~/.zshrc:    eval "$(pcsda completion zsh)\""""


def names(text: str) -> list[str]:
    """Names in a row, separated by commas."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError("names no column")
    return found


def number_or(*words: str) -> Callable[[str], Any]:
    """Make a reader of a number that takes these words as they are."""

    def value(text: str) -> Any:
        if text in words:
            return text
        try:
            return int(text)
        except ValueError:
            pass
        try:
            return float(text)
        except ValueError:
            known = ", ".join(("a number", *words))
            raise argparse.ArgumentTypeError(f"{text!r} must be {known}") from None

    return value


def values_or(*words: str) -> Callable[[str], Any]:
    """Make a reader of one value, or of several to choose from, separated by commas."""
    one = number_or(*words)

    def value(text: str) -> Any:
        found = [one(part.strip()) for part in text.split(",")]
        return found[0] if len(found) == 1 else found

    return value


def share(text: str) -> float:
    """Read a probability, both ends excluded."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number between 0 and 1")
    return value


def finite(text: str) -> float:
    """Read a number that is not infinite."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number")
    return value


def above_zero(text: str) -> float:
    """Read a number above zero."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0")
    return value


def count(text: str) -> int:
    """Read a whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least 1")
    return value


def seed(text: str) -> int:
    """Read a seed."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 0 to 4294967295")
    return value


class Parser(argparse.ArgumentParser):
    """Parser that knows the parsers of its commands by name."""

    commands: dict[str, argparse.ArgumentParser]


def build(version: str) -> Parser:
    """Make the parser of all commands."""
    parser = Parser(
        prog="pcsda",
        description=ABOUT,
        epilog=START,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pcsda {version}")
    commands = parser.add_subparsers(
        dest="command", metavar="command", required=True, parser_class=argparse.ArgumentParser
    )
    parser.commands = {}

    def command(name: str, line: str, epilog: str, add: Callable[[Any], None]) -> None:
        one = commands.add_parser(
            name,
            help=line,
            description=line[0].upper() + line[1:] + ".",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add(one)
        parser.commands[name] = one
        one.add_argument("--json", action="store_true", help="print one JSON object, for programs")

    command("fit", "fit a verifier, or a bank of them, and save it", FIT, _fit)
    command("score", "score rows and decide on them", SCORE, _score)
    command("rank", "list the rows that fit a class best", RANK, _rank)
    command("evaluate", "measure a model on labelled rows", EVALUATE, _evaluate)
    command("inspect", "say what is in a model file", INSPECT, _inspect)
    command("export", "write a model in another format", EXPORT, _export)
    command("demo", "verify each of ten digits on bundled data", DEMO, _demo)
    command("completion", "print what a shell needs to complete words", COMPLETION, _completion)
    return parser


def _columns(parser: Any) -> None:
    group = parser.add_argument_group("columns")
    group.add_argument(
        "--features",
        type=names,
        action="extend",
        default=[],
        metavar="A,B",
        help="feature columns, as names or patterns such as 'f*' (default: all others)",
    )
    group.add_argument(
        "--ignore",
        type=names,
        action="extend",
        default=[],
        metavar="A,B",
        help="columns to leave out, as names or patterns",
    )
    parser.add_argument(
        "--block-rows",
        type=count,
        metavar="N",
        help="read N rows at a time; without it, tables larger than half of the free memory are "
        "read in blocks. A fit writes them to a temporary file beside the output",
    )


def _model(parser: Any) -> None:
    parser.add_argument("model", help="model file that 'pcsda fit' wrote")


def _output(parser: Any, help: str) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", help=help)


def _costs(parser: Any) -> None:
    group = parser.add_argument_group("threshold")
    group.add_argument(
        "--threshold", type=finite, metavar="LLR", help="accept at this log-likelihood ratio"
    )
    group.add_argument(
        "--prior",
        type=share,
        metavar="P",
        help="probability of the class of interest in use (default: its share at the fit; "
        "0.5 for a bank)",
    )
    group.add_argument(
        "--cost-miss", type=above_zero, metavar="C", help="cost of rejecting a positive (1)"
    )
    group.add_argument(
        "--cost-false-alarm",
        type=above_zero,
        metavar="C",
        help="cost of accepting a negative (1)",
    )


def _fit(parser: Any) -> None:
    parser.add_argument("data", help=DATA)
    parser.add_argument("--label", required=True, metavar="COLUMN", help="column of the labels")
    parser.add_argument(
        "--positive",
        required=True,
        metavar="LABEL",
        help="label of the class of interest; 'all' fits a bank with a verifier for each label",
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="model file to write")
    _columns(parser)
    extra = parser.add_argument_group("further columns")
    extra.add_argument("--weight", metavar="COLUMN", help="weights of the rows")
    extra.add_argument(
        "--subclass",
        metavar="COLUMN",
        help="subclasses of the rest, instead of k-means; may be the label column itself",
    )
    extra.add_argument(
        "--group", metavar="COLUMN", help="rows that are left out together (with --auto)"
    )
    model = parser.add_argument_group("model (defaults are those of the library)")
    model.add_argument(
        "--method", choices=("pcsda", "csda"), default="pcsda", help="default: %(default)s"
    )
    model.add_argument(
        "--published", action="store_true", help="the rule of the paper, without later additions"
    )
    model.add_argument(
        "--n-subclasses", "-K", type=values_or("auto"), metavar="K", help="number, or auto"
    )
    model.add_argument(
        "--n-components", "-d", type=values_or(), metavar="D", help="dimensions of the subspace"
    )
    model.add_argument("--regularization", type=values_or(), metavar="R", help="relative ridge")
    model.add_argument("--subclasses", help="kmeans, samples; input (kernels)")
    model.add_argument("--balance", choices=("pooled", "resampled"))
    model.add_argument("--solver", help="see the library's documentation")
    model.add_argument(
        "--negatives", choices=("blend", "mixture", "marginal"), help="density of the rest"
    )
    model.add_argument("--tails", choices=("fitted", "gaussian"), help="tails of both densities")
    model.add_argument("--covariance", choices=("leave-one-out", "resubstitution"))
    model.add_argument("--shrinkage", type=number_or("auto"), metavar="S", help="number, or auto")
    model.add_argument(
        "--no-calibrate", dest="calibrate", action="store_false", default=None, help="raw scores"
    )
    model.add_argument(
        "--priors",
        type=number_or("empirical", "equal"),
        metavar="P",
        help="empirical, equal or the probability of the class of interest",
    )
    model.add_argument("--seed", type=seed, default=0, help="of all random draws (default: 0)")
    kernel = parser.add_argument_group("kernel")
    kernel.add_argument(
        "--kernel", help="rbf, laplacian, polynomial, sigmoid, cosine, chi2 or linear"
    )
    kernel.add_argument(
        "--gamma",
        type=values_or("positive", "all", "scale"),
        metavar="G",
        help="positive, all, scale or a number",
    )
    kernel.add_argument("--degree", type=number_or(), help="of the polynomial kernel")
    kernel.add_argument("--coef0", type=number_or(), help="of the polynomial and sigmoid kernels")
    kernel.add_argument(
        "--approx",
        choices=("nystroem", "fourier"),
        help="a map to kernel features instead of the exact kernel, for many rows",
    )
    kernel.add_argument("--map-components", type=count, metavar="M", help="size of the map (1000)")
    kernel.add_argument("--landmarks", choices=("random", "kmeans", "pivoted"), help="of nystroem")
    search = parser.add_argument_group("search")
    search.add_argument(
        "--auto",
        action="store_true",
        help="choose -K, -d, --regularization and --gamma by left-out scores; each may be a list "
        "of values such as 1,5,10",
    )
    search.add_argument("--scoring", choices=("neg_log_loss", "average_precision", "f1", "eer"))
    search.add_argument(
        "--cv", type=number_or("auto", "leave-one-out"), help="or a number of folds"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="parallel jobs of a bank or a search")
    parser.add_argument("-v", "--verbose", action="store_true", help="say the stages of fitting")


def _score(parser: Any) -> None:
    _model(parser)
    parser.add_argument("data", help=DATA)
    _output(parser, "write the scores there, .csv or .parquet (default: CSV on standard output)")
    parser.add_argument("--id", metavar="COLUMN", help="column that names the rows, carried along")
    parser.add_argument(
        "--trial", metavar="COLUMN", help="rows of one value are of one origin and score together"
    )
    bank = parser.add_argument_group("banks")
    bank.add_argument("--positive", metavar="LABEL", help="score for this label only")
    bank.add_argument("--claimed", metavar="COLUMN", help="score each row for the label it claims")
    bank.add_argument("--all", action="store_true", help="the scores for all labels, in columns")
    bank.add_argument(
        "--unknown", default="unknown", metavar="WORD", help="for rows of no label (%(default)s)"
    )
    _costs(parser)
    _columns(parser)


def _rank(parser: Any) -> None:
    _model(parser)
    parser.add_argument("data", help=DATA)
    parser.add_argument("--top", type=count, default=20, metavar="N", help="how many (20)")
    parser.add_argument("--by", choices=("distance", "likelihood"), default="distance")
    parser.add_argument("--positive", metavar="LABEL", help="which label of a bank")
    parser.add_argument("--id", metavar="COLUMN", help="column that names the rows")
    _output(parser, "write the list there, .csv or .parquet")
    _columns(parser)


def _evaluate(parser: Any) -> None:
    _model(parser)
    parser.add_argument("data", help=DATA)
    parser.add_argument("--label", required=True, metavar="COLUMN", help="column of the labels")
    parser.add_argument(
        "--positive",
        metavar="LABEL",
        help="label of the class of interest, if the model knows it by another name; or one label "
        "of a bank",
    )
    parser.add_argument("--report", metavar="FILE", help="write a report, one HTML file")
    parser.add_argument("--title", help="of the report")
    parser.add_argument("--id", metavar="COLUMN", help="column that names the rows")
    parser.add_argument(
        "--trial", metavar="COLUMN", help="rows of one value are of one origin and score together"
    )
    parser.add_argument(
        "--group", metavar="COLUMN", help="identities; intervals resample them, not single rows"
    )
    parser.add_argument(
        "--confidence", type=share, default=0.95, metavar="C", help="of the intervals (0.95)"
    )
    parser.add_argument(
        "--resamples", type=count, default=500, metavar="B", help="for the intervals (500)"
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the resampling (default: 0)")
    _costs(parser)
    _columns(parser)


def _inspect(parser: Any) -> None:
    _model(parser)


def _export(parser: Any) -> None:
    _model(parser)
    parser.add_argument("--onnx", required=True, metavar="FILE", help="ONNX file to write")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")


def _demo(parser: Any) -> None:
    parser.add_argument(
        "--digit", type=int, default=3, choices=range(10), help="whose subspace is drawn (3)"
    )
    _output(parser, "picture of the subspace, .png, .pdf or .svg (demo_subspace.png)")
    parser.add_argument("--report", metavar="FILE", help="also write a report on all ten digits")


def _completion(parser: Any) -> None:
    parser.add_argument("shell", choices=("bash", "zsh"))

"""Tell one class from the rest of the world: fit a verifier on a table, score and
rank new rows, evaluate it on labelled ones, and look at the result in a browser.

start here:
  pcsda demo                                             a model for each digit, in seconds
  pcsda fit train.csv --label kind --positive weld -o weld.pcsda
  pcsda score weld.pcsda new.csv                         a log-likelihood ratio for each row
  pcsda rank weld.pcsda new.csv --top 20                 the rows that fit best
  pcsda evaluate weld.pcsda test.csv --label kind --report report.html

Tables are CSV, Parquet, Arrow, NPY or NPZ files, or folders of such files; - reads
CSV from standard input. A column of equally long lists is an embedding.
Columns are matched by name. Rows are counted from 0.
Each command has its own help with examples: pcsda fit --help
Exit codes: 0 success, 1 the data or the model is at fault, 2 wrong usage.
"""

# Docstrings are the help texts: this file's for the program, and each function's for the command
# whose options it adds. The first paragraph comes before the options, the rest after them.
# ruff: noqa: D205, D405, D406, D407 (help is not numpydoc)

from __future__ import annotations

from argparse import Action, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from inspect import getdoc
from typing import NoReturn

from . import options
from .options import DATA, MODEL, ONE_ORIGIN, ROW_ID, UNKNOWN, columns, costs, count, formulas


class Command(ArgumentParser):
    """Argument parser for one command."""

    @property
    def options(self) -> list[Action]:
        """All arguments, including those in groups; argparse has no public list of arguments."""
        return self._actions


class Parser(ArgumentParser):
    """Argument parser that keeps the parser of each command by name."""

    commands: dict[str, Command]

    def error(self, message: str) -> NoReturn:
        """Print the message and where to find help, and exit."""
        super().error(f"{message}; pcsda --help lists the commands, with examples")


def build(version: str) -> Parser:
    """Make the parser for all commands."""
    plain = RawDescriptionHelpFormatter
    about, _, start = (__doc__ or "").strip().partition("\n\n")
    parser = Parser(prog="pcsda", description=about, epilog=start, formatter_class=plain)
    parser.add_argument("--version", action="version", version=f"pcsda {version}")
    commands = parser.add_subparsers(
        dest="command", metavar="command", required=True, parser_class=Command
    )
    parser.commands = {}
    for add in (
        *(_fit, _score, _rank, _count, _identify, _evaluate, _update),
        *(_inspect, _export, _search, _demo, _completion),
    ):
        name = add.__name__.removeprefix("_")
        line, _, more = (getdoc(add) or "").partition("\n\n")
        short = line[:1].lower() + line[1:].rstrip(".")
        one = commands.add_parser(
            name, help=short, description=line, epilog=more, formatter_class=plain
        )
        add(one)
        one.add_argument("--json", action="store_true", help="print one JSON object, for programs")
        parser.commands[name] = one
    return parser


def _fit(parser: ArgumentParser) -> None:
    r"""Fit a verifier, or a bank of them, and save it.

    examples:
      one class against the rest
        pcsda fit train.parquet --label kind --positive weld -o weld.pcsda
      a verifier for every label
        pcsda fit faces.npz --label y --positive all -o faces.pcsda
      let left-out scores choose the number of subclasses, the axes and the ridge
        pcsda fit train.csv --label kind --positive weld --auto -o weld.pcsda
      a threshold that accepts one negative in a hundred, stored with the model
        pcsda fit train.csv --label kind --positive weld --max-false-alarms 0.01 -o weld.pcsda
      columns in different units, with gaps, as written by European spreadsheets
        pcsda fit train.csv --label kind --positive weld --scale standard --missing impute \
            --encoding cp1252 --decimal , -o weld.pcsda
      with an exact kernel; and for many rows, with 500 landmarks
        pcsda fit train.csv --label kind --positive weld --kernel rbf -o weld.pcsda
        pcsda fit train.csv --label kind --positive weld --approx nystroem \
            --map-components 500 -o weld.pcsda
      from another program
        zcat train.csv.gz | pcsda fit - --label kind --positive weld -o weld.pcsda --json

    All numeric columns are features, except those named by an option; a note lists the columns of
    text, dates and ids that are left out. The model file records how the table was read and
    prepared, so that other commands can do the same. In an NPZ file, the two-dimensional array
    holds the features, and one-dimensional arrays are columns with their names; in a plain NPY
    file, columns are numbered, as in --label 0.
    """
    add = parser.add_argument
    positive = "label of the class of interest; 'all' fits a bank with a verifier for each label"
    add("data", help=DATA)
    add("--label", required=True, metavar="COLUMN", help="column that holds the labels")
    add("--positive", required=True, metavar="LABEL", help=positive)
    add("-o", "--output", required=True, metavar="FILE", help="model file to write")
    spooled = ". Fitting in blocks writes the table to a temporary file next to the output"
    columns(parser, spooled, fits=True)
    add = parser.add_argument_group("further columns").add_argument
    subclass = "column of subclasses of the rest, instead of k-means; may be the label column"
    add("--weight", metavar="COLUMN", help="column of row weights")
    add("--subclass", metavar="COLUMN", help=subclass)
    group = "rows with the same value are left out of the fit together"
    add("--group", metavar="COLUMN", help=group)
    add("--id", metavar="COLUMN", help=f"{ROW_ID}, to name the examples in the model")
    _fit_model(parser)
    _fit_kernel(parser)
    _fit_search(parser)
    add = parser.add_argument
    add("--jobs", type=int, metavar="N", help="number of parallel jobs for a bank or a search")
    add("-v", "--verbose", action="store_true", help="report the stages of fitting")


def _fit_model(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("model (defaults are the same as in the library)").add_argument
    method = "with subclasses of the rest (pcsda, the default) or without (csda)"
    add("--method", choices=("pcsda", "csda"), default="pcsda", help=method)
    published = "use the rule published in the paper, without later additions"
    add("--published", action="store_true", help=published)
    number = "number of subclasses, or auto"
    add("--n-subclasses", "-K", type=options.values_or("auto"), metavar="K", help=number)
    numbers = options.values_or()
    add("--n-components", "-d", type=numbers, metavar="D", help="dimensions of the subspace")
    ridge = "ridge, relative to the variance of the rows"
    add("--regularization", type=numbers, metavar="R", help=ridge)
    subclasses = (
        "how to divide the rest: kmeans, samples (each row is a subclass) or, with a kernel, input "
        "(k-means in input space)"
    )
    add("--subclasses", help=subclasses)
    balance = "pool the scatter of unequal subclasses, or draw equally many samples for each"
    add("--balance", choices=("pooled", "resampled"), help=balance)
    add("--solver", help="see the library's documentation")
    density = "density of the rest: a mixture of subclasses, one Gaussian (marginal) or a blend"
    add("--negatives", choices=("blend", "mixture", "marginal"), help=density)
    tails = "tails of both densities: as heavy as the data, or Gaussian"
    add("--tails", choices=("fitted", "gaussian"), help=tails)
    covariance = "estimate covariances from rows left out of the fit, or from the training rows"
    add("--covariance", choices=("leave-one-out", "resubstitution"), help=covariance)
    shrinkage = "how much to shrink covariances, in samples, or auto"
    add("--shrinkage", type=options.number_or("auto"), metavar="S", help=shrinkage)
    hidden = "share of the other rows that belong to the class (below 0.5), or auto to estimate it"
    add("--contamination", type=options.number_or("auto"), metavar="SHARE", help=hidden)
    raw = "leave the scores as they are, without calibration"
    add("--no-calibrate", dest="calibrate", action="store_false", default=None, help=raw)
    priors = "prior of both classes: empirical, equal or the probability of the class of interest"
    add("--priors", type=options.number_or("empirical", "equal"), metavar="P", help=priors)
    add("--seed", type=options.seed, default=0, help="seed for all random draws (default: 0)")
    alarms = "choose the threshold that accepts this share of the rest, and store it in the model"
    add("--max-false-alarms", type=options.share, metavar="R", help=alarms)


def _fit_kernel(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("kernel").add_argument
    add("--kernel", help="rbf, laplacian, polynomial, sigmoid, cosine, chi2 or linear")
    gamma = options.values_or("positive", "all", "scale")
    width = "bandwidth of the kernel: positive, all, scale or a number"
    add("--gamma", type=gamma, metavar="G", help=width)
    number = options.number_or()
    add("--degree", type=number, help="degree of the polynomial kernel")
    add("--coef0", type=number, help="constant term of the polynomial and sigmoid kernels")
    approx = "use approximate kernel features instead of the exact kernel, for many rows"
    add("--approx", choices=("nystroem", "fourier"), help=approx)
    features = "number of approximate features (default: 1000)"
    add("--map-components", type=count, metavar="M", help=features)
    landmarks = "how --approx nystroem chooses its landmarks"
    add("--landmarks", choices=("random", "kmeans", "pivoted"), help=landmarks)


def _fit_search(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("search").add_argument
    auto = (
        "choose -K, -d, --regularization and --gamma using left-out scores; each may be a "
        "list of values to try, such as 1,5,10"
    )
    add("--auto", action="store_true", help=auto)
    scoring = "figure by which to choose the settings (default: neg_log_loss)"
    add("--scoring", choices=("neg_log_loss", "average_precision", "f1", "eer"), help=scoring)
    folds = "how to leave rows out: a number of folds, leave-one-out or auto"
    add("--cv", type=options.number_or("auto", "leave-one-out"), help=folds)


def _use_of_model(parser: ArgumentParser, model: str = MODEL) -> Callable[..., Action]:
    parser.add_argument("model", help=model)
    parser.add_argument("data", help=DATA)
    return parser.add_argument


def _score(parser: ArgumentParser) -> None:
    """Score rows and decide which to accept.

    examples:
      pcsda score weld.pcsda new.csv -o scores.csv
      pcsda score weld.pcsda new.csv --id part --prior 0.01 --cost-miss 10
      several rows of one origin, such as photographs of one part, scored together
        pcsda score weld.pcsda new.csv --trial part
      a bank: score the label that each row claims, or all labels (see also pcsda identify)
        pcsda score faces.pcsda door.csv --claimed name
        pcsda score faces.pcsda door.npz --all --json

    The log-likelihood ratio says how many times likelier (as a natural logarithm) a row is under
    the class of interest than under the rest; it does not depend on a prior. A row is accepted if
    its ratio reaches ln(cost of a false alarm / cost of a miss) - ln(prior / (1 - prior)), or the
    threshold that 'pcsda fit --max-false-alarms' chose, unless an option says otherwise. Unless a
    label is given or claimed, a bank gives each row its best label, if the ratio for that label
    reaches the bank's own threshold.
    """
    add = _use_of_model(parser)
    output = "file for the scores, .csv or .parquet (default: CSV on standard output)"
    add("-o", "--output", metavar="FILE", help=output)
    add("--id", metavar="COLUMN", help=f"{ROW_ID}, copied to the output")
    add("--trial", metavar="COLUMN", help=ONE_ORIGIN)
    add = parser.add_argument_group("banks").add_argument
    add("--positive", metavar="LABEL", help="score for this label only")
    add("--claimed", metavar="COLUMN", help="score each row for the label it claims")
    add("--all", action="store_true", help="write the scores for all labels, in columns")
    add("--unknown", default="unknown", metavar="WORD", help=UNKNOWN)
    formulas(parser)
    costs(parser)
    columns(parser)


def _rank(parser: ArgumentParser) -> None:
    """List the rows that fit a class best.

    examples:
      pcsda rank weld.pcsda gallery.parquet --top 20 --id file
      pcsda rank faces.pcsda gallery.npz --positive anna --by distance
      pcsda rank weld.pcsda gallery.csv --json | jq '.rows[0]'

    By default, rows are ordered by log-likelihood ratio; --by distance uses the distance to the
    class mean in the subspace, as in the paper. Models with the published rule use the distance
    unless an option says otherwise. The table shows the distance only if rows are ordered by it;
    files and --json always include it.
    """
    add = _use_of_model(parser)
    add("--top", type=count, default=20, metavar="N", help="number of rows (default: 20)")
    add("--by", choices=("likelihood", "distance"), help="what to order the rows by")
    add("--positive", metavar="LABEL", help="label to use in a bank")
    add("--id", metavar="COLUMN", help=ROW_ID)
    add("-o", "--output", metavar="FILE", help="file for the list, .csv or .parquet")
    formulas(parser)
    columns(parser)


def _count(parser: ArgumentParser) -> None:
    """Estimate how many rows belong to a class.

    examples:
      pcsda count weld.pcsda archive.parquet
      pcsda count faces.pcsda door.npz --positive anna --json

    This is not the number of accepted rows: if positives are rare, most accepted rows may be false
    alarms. The negatives among the rows must resemble the training negatives.
    """
    add = _use_of_model(parser)
    add("--positive", metavar="LABEL", help="label to use in a bank")
    columns(parser)


def _identify(parser: ArgumentParser) -> None:
    """Name each row with a label from a bank, or as unknown.

    examples:
      pcsda identify faces.pcsda door.npz
      pcsda identify faces.pcsda door.csv --id photo --max-false-alarms 0.001 -o names.csv
      several rows of one origin get one name
        pcsda identify faces.pcsda door.csv --trial visit

    A row gets the label with the largest log-likelihood ratio if this ratio reaches the threshold.
    The default is the bank's own threshold, which accepts about one stranger in a hundred; to
    estimate it, each of the bank's labels is treated in turn as a stranger.
    """
    add = _use_of_model(parser, "model file of a bank, written by 'pcsda fit --positive all'")
    add("-o", "--output", metavar="FILE", help="file for the names, .csv or .parquet")
    add("--id", metavar="COLUMN", help=f"{ROW_ID}, copied to the output")
    add("--trial", metavar="COLUMN", help=ONE_ORIGIN)
    add("--unknown", default="unknown", metavar="WORD", help=UNKNOWN)
    limits = parser.add_mutually_exclusive_group().add_argument
    least = "smallest ratio that gets a name"
    limits("--threshold", type=options.finite, metavar="LLR", help=least)
    alarms = "largest share of strangers that may get a name"
    limits("--max-false-alarms", type=options.share, metavar="R", help=alarms)
    formulas(parser)
    columns(parser)


def _update(parser: ArgumentParser) -> None:
    """Add labelled rows to a model that keeps its rows.

    examples:
      pcsda update faces.pcsda more.csv --label name
      pcsda update faces.pcsda more.csv --label name -o faces2.pcsda

    A bank adds rows to its labels and enrolls new labels; then it refits all labels and its
    threshold. A model made by partial_fit adds the rows to its statistics. Other models keep no
    rows; fit them again on all rows. Scaling and medians stay as fitted.
    """
    add = _use_of_model(parser, "file of a bank, or of a model made by partial_fit")
    add("--label", required=True, metavar="COLUMN", help="column that holds the labels")
    add("-o", "--output", metavar="FILE", help="file to write (default: the model file itself)")
    columns(parser)


def _evaluate(parser: ArgumentParser) -> None:
    """Measure a model on labelled rows.

    examples:
      pcsda evaluate weld.pcsda test.csv --label kind
      pcsda evaluate weld.pcsda test.csv --label kind --report report.html
      frames of one recording are not independent: resample whole recordings
        pcsda evaluate voices.pcsda test.npz --label speaker --group recording --json
      costs of the application, or a bound on false alarms
        pcsda evaluate weld.pcsda test.csv --label kind --prior 0.01 --cost-miss 10
        pcsda evaluate weld.pcsda test.csv --label kind --max-false-alarms 0.001

    Intervals are bootstrap intervals at the level set by --confidence. The report is one HTML file
    that needs no network.
    """
    add = _use_of_model(parser)
    positive = (
        "label of the class of interest, if the table and the model name it differently; for "
        "a bank, the only label to evaluate"
    )
    group = "column of identities; intervals resample identities, not rows"
    add("--label", required=True, metavar="COLUMN", help="column that holds the labels")
    add("--positive", metavar="LABEL", help=positive)
    add("--report", metavar="FILE", help="write a report as one HTML file")
    add("--title", help="title of the report")
    add("--id", metavar="COLUMN", help=ROW_ID)
    add("--trial", metavar="COLUMN", help=ONE_ORIGIN)
    add("--group", metavar="COLUMN", help=group)
    level = "level of the intervals (default: 0.95)"
    resamples = "bootstrap resamples (default: 500)"
    add("--confidence", type=options.share, default=0.95, metavar="C", help=level)
    add("--resamples", type=count, default=500, metavar="B", help=resamples)
    add("--seed", type=options.seed, default=0, help="seed for the resampling (default: 0)")
    costs(parser)
    columns(parser)


def _inspect(parser: ArgumentParser) -> None:
    """Show what is in a model file.

    examples:
      pcsda inspect weld.pcsda
      pcsda inspect weld.pcsda --json | jq .n_components

    Nothing in a model file is executed, and types that pcsda does not trust are refused.
    """
    parser.add_argument("model", help=MODEL)


def _export(parser: ArgumentParser) -> None:
    """Write a model in another format.

    examples:
      pcsda export weld.pcsda --onnx weld.onnx
      pcsda export weld.pcsda --onnx weld.onnx --dtype float64
    """
    parser.add_argument("model", help=MODEL)
    parser.add_argument("--onnx", required=True, metavar="FILE", help="ONNX file to write")
    dtype = "type of the model's inputs and outputs (default: %(default)s)"
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help=dtype)


def _search(parser: ArgumentParser) -> None:
    """Find more like these, on a page in the browser.

    examples:
      pictures in a folder, with a table of their embeddings and file names
        pcsda search photos.parquet --id file --media photos --examples cat1.jpg,cat2.jpg
      texts in a column
        pcsda search papers.parquet --id doi --media abstract
      rows of a table
        pcsda search parts.csv --id part

    Every answer is stored at once in GALLERY.labels.db; the same command resumes from there. The
    page is served on this machine only and needs no network; it exports labels, model and report.
    """
    add = parser.add_argument
    add("gallery", help="table with a row of features for each item: .csv, .parquet, .npy, .npz")
    media = "folder of pictures or sounds named by --id, or column of file names or texts"
    add("--media", metavar="COLUMN|FOLDER", help=media)
    add("--id", metavar="COLUMN", help="column that names the rows (default: row numbers)")
    examples = "ids of examples to start from, separated by commas"
    add("--examples", type=options.names, action="extend", default=[], metavar="A,B", help=examples)
    features = "feature columns, as names or patterns (default: all numeric columns)"
    options.feature_columns(add, features)
    add("--store", metavar="FILE", help="file for the labels (default: GALLERY.labels.db)")
    carry = "keep using the labels after the gallery has changed, for ids that are still in it"
    add("--carry-over", action="store_true", help=carry)
    add("--host", default="127.0.0.1", help="address to listen on (%(default)s: this machine only)")
    port = "port to listen on (default: a free one)"
    add("--port", type=options.port_number, default=0, help=port)
    add("--no-browser", action="store_true", help="print the address but do not open a browser")


def _demo(parser: ArgumentParser) -> None:
    """Verify each of ten digits on bundled data.

    columns: average precision and F1 (1 is perfect), EER = equal error rate (0 is perfect),
    K = subclasses found among the other digits, d = dimensions of the subspace.

    example:
      pcsda demo --digit 8 --report digits.html
    """
    add = parser.add_argument
    picture = "picture of the subspace, .png, .pdf or .svg (default: demo_subspace.png)"
    digit = "digit whose subspace to draw (default: 3)"
    add("--digit", type=int, default=3, choices=range(10), help=digit)
    add("-o", "--output", metavar="FILE", help=picture)
    add("--report", metavar="FILE", help="also write a report on all ten digits")


def _completion(parser: ArgumentParser) -> None:
    """Print a completion script for a shell.

    examples:
      bash, in ~/.bashrc:  eval "$(pcsda completion bash)"
      zsh, in ~/.zshrc:    eval "$(pcsda completion zsh)"
      fish:                pcsda completion fish > ~/.config/fish/completions/pcsda.fish
    """
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))

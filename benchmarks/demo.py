"""Find, verify and reject strangers on scikit-learn's digits (``make demo``).

Logistic regression and SVC do the same jobs as pcsda, with the same rows. One half of the digits is
used for searching and training, the other half only for evaluation.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from pcsda import PCSDA, KernelPCSDA, SearchSession, VerifierBank
from pcsda.plots import SubspaceDisplay

EXAMPLES, SCREEN, MOST = 3, 20, 300
FALSE_ALARMS = 0.01
STRANGERS = (8, 9)
RIVALS: dict[str, Callable[[], Any]] = {
    "logistic regression": lambda: make_pipeline(
        StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000)
    ),
    "SVC": lambda: SVC(class_weight="balanced"),
}


@dataclass
class Story:
    """The report of the demo, which is printed and collected as HTML."""

    html: list[str] = field(default_factory=list)

    def begin(self, title: str) -> None:
        self.html.append(f"<h2>{escape(title)}</h2>")
        print(f"\n{title}")

    def say(self, line: str) -> None:
        self.html.append(f"<p>{escape(line)}</p>")
        print(f"  {line}")

    def compare(self, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
        cells = [[f"<td>{escape(cell)}</td>" for cell in row] for row in rows]
        titles = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        lines = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
        self.html.append(f"<table><tr>{titles}</tr>{lines}</table>")
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        print()
        for row in (head, *rows):
            others = [cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)]
            print("   ".join([f"    {row[0].ljust(widths[0])}", *others]))
        print()

    def show(self, title: str, source: str) -> None:
        caption = escape(title)
        image = f'<img alt="{caption}" src="{source}">'
        self.html.append(f"<figure>{image}<figcaption>{caption}</figcaption></figure>")


@dataclass(frozen=True)
class Digits:
    """One half of the digits for searching and training, the other half for evaluation."""

    X: np.ndarray
    y: np.ndarray
    fresh_X: np.ndarray
    fresh_y: np.ndarray

    @classmethod
    def load(cls) -> Digits:
        X, y = load_digits(return_X_y=True)
        X, fresh_X, y, fresh_y = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
        return cls(X, y, fresh_X, fresh_y)


def find(data: Digits, digit: int, story: Story) -> SearchSession:
    """Search for one digit from three examples; a simulated user answers."""
    truth = data.y == digit
    examples = np.flatnonzero(truth)[:EXAMPLES]
    session = SearchSession(data.X)
    session.label(examples, True)
    found = [int(truth[examples].sum())]
    while len(session.labels()) < MOST:
        rows = session.suggest(SCREEN)
        session.label(rows, truth[rows])
        found.append(sum(value is True for value in session.labels().values()))
        if session.stop(recall=0.95):
            break
    shown, left, all_ = len(session.labels()), session.remaining(), int(truth.sum())
    story.begin(
        f"1. Find: {EXAMPLES} examples of the digit {digit}, {len(data.X)} pictures to search"
    )
    story.say(f"{shown - EXAMPLES} pictures were shown, {SCREEN} at a time, until pcsda said stop.")
    story.say(
        f"It estimates that {left.count:.0f} remain (90% interval {left.count_low} to "
        f"{left.count_high}). In truth, {all_ - found[-1]} remain."
    )
    rows = [("pcsda", f"{found[-1]} of {all_}", f"{left.count:.0f}")]
    for name, make in RIVALS.items():
        other = search_with(make, data, truth, examples, shown)
        rows.append((name, f"{other} of {all_}", "none"))
    story.compare(("with as many pictures shown", "found", "estimate of the rest"), rows)
    yes = [row for row, value in session.labels().items() if value]
    story.show("The pictures found; the three examples come first", mosaic(data.X[yes]))
    story.show("Pictures found against pictures shown", curve(found, all_))
    return session


def search_with(
    make: Callable[[], Any], data: Digits, truth: np.ndarray, examples: np.ndarray, budget: int
) -> int:
    """Count the finds with a classifier that is refitted on all answers and random negatives."""
    rng = np.random.default_rng(0)
    weak = rng.choice(len(truth), 300, replace=False)
    seen = set(examples.tolist())
    while len(seen) < budget:
        known = np.array(sorted(seen))
        rest = np.setdiff1d(weak, known)
        rows = np.concatenate([known, rest])
        labels = np.concatenate([truth[known], np.zeros(len(rest), dtype=bool)])
        scores = make().fit(data.X[rows], labels).decision_function(data.X)
        scores[known] = -np.inf
        seen.update(np.argsort(-scores)[: min(SCREEN, budget - len(seen))].tolist())
    return int(truth[sorted(seen)].sum())


def verify(data: Digits, digit: int, session: SearchSession, story: Story) -> None:
    """Test the verifier from the search, with its threshold, on fresh rows."""
    fresh = data.fresh_y == digit
    story.begin(
        f"2. Verify: a threshold for {FALSE_ALARMS:.0%} false alarms, {len(fresh)} fresh pictures"
    )
    table = [rates("pcsda, straight from the search", session.model_.accepts(data.fresh_X), fresh)]
    labels = session.labels()
    rows = np.array([row for row, value in labels.items() if value is not None])
    # The rivals learn from the same answers, with random rows as further negatives.
    rest = np.setdiff1d(np.random.default_rng(0).choice(len(data.y), 300, replace=False), rows)
    X = data.X[np.concatenate([rows, rest])]
    y = np.concatenate([[labels[row] for row in rows], np.zeros(len(rest), dtype=bool)])
    for name, make in RIVALS.items():
        left_out = cross_val_predict(make(), X, y, cv=5, method="decision_function")
        threshold = np.quantile(left_out[~y], 1 - FALSE_ALARMS)
        scores = make().fit(X, y).decision_function(data.fresh_X)
        table.append(rates(f"{name}, threshold by cross-validation", scores >= threshold, fresh))
    head = ("", f"accepted of {fresh.sum()}", f"false alarms of {np.sum(~fresh)}")
    story.compare(head, table)
    story.show(f"Fresh pictures in the subspace for the digit {digit}", subspace(data, digit))


def rates(name: str, accepted: np.ndarray, truth: np.ndarray) -> tuple[str, ...]:
    return (name, f"{np.mean(accepted[truth]):.0%}", f"{np.mean(accepted[~truth]):.1%}")


def know_strangers(data: Digits, story: Story) -> None:
    """Enroll eight digits as if they were people, and test with the other two as strangers."""
    known = ~np.isin(data.y, STRANGERS)
    stranger = np.isin(data.fresh_y, STRANGERS)
    story.begin(
        f"3. Reject strangers: the digits 0 to 7 are enrolled with {known.sum() // 8} pictures "
        f"each, {STRANGERS[0]} and {STRANGERS[1]} are strangers"
    )
    bank = VerifierBank(KernelPCSDA(gamma="all", random_state=0)).fit(data.X[known], data.y[known])
    named = bank.identify(data.fresh_X, unknown=-1)
    right = np.mean((named == data.fresh_y)[~stranger])
    story.say(
        f"The bank chose a threshold that should accept {FALSE_ALARMS:.0%} of strangers. It "
        f"accepts {np.mean(named[stranger] != -1):.1%} of {stranger.sum()} pictures of strangers, "
        f"and names {right:.0%} of {np.sum(~stranger)} known pictures correctly."
    )
    scores = {"pcsda": bank.log_likelihood_ratio(data.fresh_X)}
    for name, make in RIVALS.items():
        model = OneVsRestClassifier(make()).fit(data.X[known], data.y[known])
        scores[name] = model.decision_function(data.fresh_X)
    table = []
    for name, found in scores.items():
        best, guess = found.max(axis=1), bank.classes_[found.argmax(axis=1)]
        inside = best >= np.quantile(best[stranger], 1 - FALSE_ALARMS)
        table.append((name, f"{np.mean((inside & (guess == data.fresh_y))[~stranger]):.0%}"))
    story.say(
        "The others offer no such threshold. So here each gets the one that accepts exactly "
        f"{FALSE_ALARMS:.0%} of the strangers, chosen in hindsight:"
    )
    story.compare(("", "known pictures named correctly"), table)


def subspace(data: Digits, digit: int) -> str:
    model = PCSDA(random_state=0).fit(data.X, data.y == digit, subclass_labels=data.y)
    figure = Figure(figsize=(5, 4.2), layout="constrained")
    rows, names, ax = data.fresh_X, data.fresh_y.astype(str), figure.subplots()
    shown = SubspaceDisplay.from_estimator(model, rows, names == str(digit), labels=names, ax=ax)
    # Below the axes, so that the picture stays legible on a phone.
    shown.legend_.set_loc("upper center")
    shown.legend_.set_bbox_to_anchor((0.5, -0.15))
    return picture(figure)


def curve(found: list[int], total: int) -> str:
    figure = Figure(figsize=(5, 3), layout="constrained")
    ax = figure.subplots()
    shown = EXAMPLES + SCREEN * np.arange(len(found))
    ax.plot(shown, found, marker="o", color="#1b6ca8")
    ax.axhline(total, color="#777777", linestyle=":")
    ax.set(xlabel="pictures shown", ylabel="found", ylim=(0, None))
    ax.annotate(f"all {total}", (shown[0], total), (0, -12), textcoords="offset points")
    return picture(figure)


def mosaic(rows: np.ndarray, columns: int = 20) -> str:
    height = -(-len(rows) // columns)
    tiles = np.zeros((height * columns, 10, 10))  # a margin of one pixel around each picture
    tiles[: len(rows), 1:-1, 1:-1] = rows.reshape(-1, 8, 8)
    sheet = tiles.reshape(height, columns, 10, 10).swapaxes(1, 2)
    sheet = sheet.reshape(10 * height, 10 * columns)
    figure = Figure(figsize=(8, 0.4 * height), layout="constrained")
    ax = figure.subplots()
    ax.imshow(sheet, cmap="gray_r", interpolation="nearest")
    ax.axis("off")
    return picture(figure)


def picture(figure: Figure) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return "data:image/png;base64," + b64encode(file.getvalue()).decode()


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; } th, td { padding: .3rem .9rem .3rem 0; text-align: left; }
tr { border-bottom: 1px solid #8884; } tr:nth-child(2) { font-weight: 600; }
figure { margin: 1.5rem 0; } figcaption { opacity: .7; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181a1b; } }
"""


def page(story: Story, digit: int) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>pcsda: find, verify, reject strangers</title><style>{STYLE}</style>"
        f"<h1>One digit, the {digit}, and the rest of the world</h1>{''.join(story.html)}</html>"
    )


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument("--digit", type=int, default=3, choices=range(10), metavar="0..9")
    parser.add_argument(
        "--output", type=Path, default=Path("demo.html"), help="(default: %(default)s)"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    args = parse_arguments(arguments)
    warnings.simplefilter("ignore", FutureWarning)
    story, data = Story(), Digits.load()
    session = find(data, args.digit, story)
    verify(data, args.digit, session, story)
    know_strangers(data, story)
    unfinished = args.output.with_name(f".{args.output.name}.{os.getpid()}")
    try:
        unfinished.write_text(page(story, args.digit), encoding="utf-8")
        unfinished.replace(args.output)
    except OSError as error:
        print(f"{args.output} was not saved: {error}", file=sys.stderr)
        return 1
    finally:
        unfinished.unlink(missing_ok=True)
    print(f"\n{args.output.resolve()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

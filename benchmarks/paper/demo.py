"""Tell each handwritten digit from the other nine, and look at one of the subspaces."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import train_test_split

from pcsda import PCSDA
from pcsda.metrics import equal_error_rate
from pcsda.plots import SubspaceDisplay

ROW = "{:>5}  {:>17}  {:>6}  {:>6}  {:>4}  {:>4}"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train one PCSDA model for each of the ten digits in scikit-learn's bundled "
        "data, on 70 % of the images, and test it on the other 30 %.",
        epilog="Columns: average precision and F1 (1 is perfect), EER = equal error rate (0 is "
        "perfect), K = subclasses found among the other digits, d = dimensions of the subspace.",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("demo_subspace.png"),
        help="where to save the picture of one subspace, .png, .pdf or .svg (default: %(default)s)",
    )
    parser.add_argument(
        "--digit",
        type=int,
        default=3,
        choices=range(10),
        help="the digit whose subspace is drawn (default: %(default)s)",
    )
    return parser.parse_args()


def evaluate(model: PCSDA, X: np.ndarray, y: np.ndarray) -> tuple[float, ...]:
    scores = model.decision_function(X)
    return (
        average_precision_score(y, scores),
        f1_score(y, model.predict(X)),
        equal_error_rate(y, scores)[0],
        len(model.subclass_counts_),
        model.n_components_,
    )


def print_table(rows: list[tuple[float, ...]]) -> None:
    print(ROW.format("digit", "average precision", "F1", "EER", "K", "d"))
    for digit, (precision, f1, eer, n_subclasses, n_components) in enumerate(rows):
        figures = (f"{value:.3f}" for value in (precision, f1, eer))
        print(ROW.format(digit, *figures, n_subclasses, n_components))
    precision, f1, eer, n_subclasses, n_components = np.mean(rows, axis=0)
    figures = (f"{value:.3f}" for value in (precision, f1, eer))
    print(ROW.format("mean", *figures, f"{n_subclasses:.1f}", f"{n_components:.1f}"))


def save_picture(model: PCSDA, X: np.ndarray, y: np.ndarray, digit: int, output: Path) -> None:
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    SubspaceDisplay.from_estimator(model, X, y, ax=figure.subplots())
    figure.suptitle(f"Digit {digit} and the other digits, test images")
    # Renamed when complete, so that a failure leaves no half picture behind.
    unfinished = output.with_name(f".{output.stem}.{os.getpid()}{output.suffix}")
    try:
        figure.savefig(unfinished, dpi=150)
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)


def main() -> int:
    arguments = parse_arguments()
    X, digits = load_digits(return_X_y=True)
    X_train, X_test, digits_train, digits_test = train_test_split(
        X, digits, test_size=0.3, stratify=digits, random_state=0
    )
    models = [PCSDA(random_state=0).fit(X_train, digits_train == digit) for digit in range(10)]
    rows = [evaluate(model, X_test, digits_test == digit) for digit, model in enumerate(models)]
    print_table(rows)
    worst = int(np.argmax([eer for _, _, eer, *_ in rows]))
    print(
        f"\nEach model saw {len(X_train)} images and was tested on {len(X_test)} new ones: digit"
        f" {worst} is the hardest to tell from the rest, with {rows[worst][2]:.1%} of both kinds of"
        " error."
    )
    digit = arguments.digit
    try:
        save_picture(models[digit], X_test, digits_test == digit, digit, arguments.output)
    except (OSError, ValueError) as error:
        print(f"{arguments.output} was not saved: {error}", file=sys.stderr)
        return 1
    print(f"The subspace of digit {digit} is drawn in {arguments.output}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

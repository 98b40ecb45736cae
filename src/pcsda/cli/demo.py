"""The command `demo`: a verifier for each handwritten digit, on bundled data."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import train_test_split

from ..core.linalg import Array, Floats, Ints, Mask
from ..estimators import PCSDA, VerifierBank
from ..metrics import equal_error_rate
from ..plots import SubspaceDisplay
from ..report import evaluate, write_page
from ..writing import whole_file
from .printing import show_json, show_table
from .problems import Problem, check_target, needs

HEADER = ("digit", "average precision", "F1", "EER", "K", "d")
PICTURES = (".png", ".pdf", ".svg")


def demo(a: Namespace) -> None:
    """Fit a model for each digit on 70 % of the images and test it on the others."""
    picture = a.output or "demo_subspace.png"
    if Path(picture).suffix.lower() not in PICTURES:
        raise Problem(f"{picture}: pictures are written as {', '.join(PICTURES)}; use one of these")
    needs("matplotlib", "plot", "to draw the subspace")
    check_target(picture)
    check_target(a.report)
    X, digits = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        X, digits, test_size=0.3, stratify=digits, random_state=0
    )
    # Every digit is known, so there are no strangers; each label has enough rows to calibrate
    # itself.
    bank = VerifierBank(PCSDA(random_state=0), calibration="per-label").fit(X_train, y_train)
    scores = bank.decision_function(X_test)
    rows = [(i, *_measure(bank.models_[i], scores[:, i], y_test == i)) for i in range(10)]
    _save_picture(bank.models_[a.digit], X_test, y_test, a.digit, picture)
    if a.report:
        found = evaluate(bank, X_test, y_test, n_resamples=200)
        write_page(found, a.report, title="Ten handwritten digits")
    if a.json:
        records = [dict(zip(HEADER, row, strict=True)) for row in rows]
        show_json({"digits": records, "picture": picture, "report": a.report})
        return
    mean = np.mean([row[1:] for row in rows], axis=0)
    shown = [
        (digit, *(f"{rate:.3f}" for rate in rates), n_subclasses, n_components)
        for digit, *rates, n_subclasses, n_components in [*rows, ("mean", *mean)]
    ]
    show_table(shown, HEADER)
    worst = max(rows, key=lambda row: row[3])
    print(
        f"\nEach model saw {len(X_train)} images and was tested on {len(X_test)} new ones: digit "
        f"{worst[0]} is the hardest to tell from the rest, with an equal error rate of "
        f"{worst[3]:.1%}.\nThe subspace of digit {a.digit} is drawn in {picture}."
    )
    if a.report:
        print(f"The report on all ten digits is {a.report}.")


def _measure(model: PCSDA, scores: Floats, y: Mask) -> tuple[float, ...]:
    return (
        float(average_precision_score(y, scores)),
        float(f1_score(y, scores >= 0)),
        equal_error_rate(y, scores)[0],
        len(model.subclass_counts_),
        model.n_components_,
    )


def _save_picture(model: PCSDA, X: Array, digits: Ints, digit: int, path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    SubspaceDisplay.from_estimator(model, X, digits == digit, labels=digits, ax=figure.subplots())
    figure.suptitle(f"Digit {digit} and the other digits, test images")
    with whole_file(path) as file:
        figure.savefig(file, dpi=150, format=Path(path).suffix[1:].lower())

"""The command `demo`, which fits a verifier for each handwritten digit in bundled data."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from ..core.linalg import Array, Ints
from ..estimators import PCSDA, VerifierBank
from ..plots import SubspaceDisplay
from ..report import evaluate, write_page
from ..report.words import equal_errors
from ..writing import whole_file
from .evaluating import show_labels
from .printing import show_json
from .problems import Problem, check_target, needs

PICTURES = (".png", ".pdf", ".svg")
RESAMPLES = 200


def demo(a: Namespace) -> None:
    """Fit a model for each digit on 70% of the images and test it on the rest."""
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
    # Every digit is known, so there are no strangers, and each label has enough rows for its own
    # calibration.
    bank = VerifierBank(PCSDA(random_state=0), calibration="per-label").fit(X_train, y_train)
    _save_picture(bank.models_[a.digit], X_test, y_test, a.digit, picture)
    # The table and the report show one evaluation, so that they cannot disagree.
    found = evaluate(bank, X_test, y_test, n_resamples=RESAMPLES)
    if a.report:
        write_page(found, a.report, title="Ten handwritten digits")
    pairs = zip(found.by_label, bank.models_.values(), strict=True)
    rows = [
        figures | {"subclasses": len(model.subclass_counts_), "dimensions": model.n_components_}
        for figures, model in pairs
    ]
    if a.json:
        together = {figure.key: figure.value for figure in found.figures}
        show_json({"digits": rows, "all": together, "picture": picture, "report": a.report})
        return
    show_labels(rows)
    print(
        f"\nEach model saw {len(X_train)} images and was tested on {len(X_test)} new ones. "
        f"{' '.join(equal_errors(found))}\nThe subspace of digit {a.digit} is drawn in {picture}."
    )
    if a.report:
        print(f"The report on all ten digits is {a.report}.")


def _save_picture(model: PCSDA, X: Array, digits: Ints, digit: int, path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    SubspaceDisplay.from_estimator(model, X, digits == digit, labels=digits, ax=figure.subplots())
    figure.suptitle(f"Digit {digit} and the other digits, test images")
    with whole_file(path) as file:
        figure.savefig(file, dpi=150, format=Path(path).suffix[1:].lower())

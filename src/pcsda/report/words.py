"""An evaluation told in a few sentences."""

from __future__ import annotations

from .evaluation import Evaluation
from .figures import Figure

# Calibration is called good where it loses at most this share of what perfect scores would have,
# or this many bits.
GOOD_LOSS = 0.1
GOOD_BITS = 0.01
# With fewer positives than this, the intervals say most.
FEW = 30


def percent(share: float) -> str:
    """A share in percent, with more digits where it is small."""
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    digits = 1 if share >= 0.01 else 2
    return f"{100 * share:.{digits}f} %"


def value_of(figure: Figure) -> tuple[str, str]:
    """A figure and its interval as text."""
    show = percent if figure.is_rate else "{:.3f}".format
    return show(figure.value), f"{show(figure.low)} to {show(figure.high)}"


def summary(evaluation: Evaluation) -> list[str]:
    """Say how good the model is, what it does at the threshold and how far to trust that."""
    by_key = {figure.key: figure for figure in evaluation.figures}
    view, s = evaluation.views[0], evaluation.settings
    missed, alarms = view.counts()
    what = f"“{evaluation.names[0]}” from the rest"
    sentences = []
    eer, interval = value_of(by_key["eer"])
    if evaluation.is_bank:
        what = f"{len(evaluation.names)} labels from each other"
        if "rank_1" in by_key:
            rate, limits = value_of(by_key["rank_1"])
            sentences.append(
                f"The right label comes first for {rate} of the {evaluation.unit}s "
                f"({s.level:.0%} interval {limits})."
            )
    sentences.insert(
        0,
        f"The model tells {what} with an equal error rate of {eer} ({s.level:.0%} interval "
        f"{interval}).",
    )
    sentences.append(
        f"At the threshold {s.threshold:.2f} it misses {missed:,} of {view.n_positive:,} positives "
        f"and raises {alarms:,} false alarm{'' if alarms == 1 else 's'} among {view.n_negative:,} "
        "negatives."
    )
    sentences.append(_on_calibration(by_key["cllr"], by_key["min_cllr"]))
    ranked = [row for row in evaluation.by_label if row["eer"] is not None]
    if ranked:
        hardest = max(ranked, key=lambda row: row["eer"])
        if hardest["eer"] > 0:
            sentences.append(
                f"The hardest label is “{hardest['label']}”, with an equal error rate of "
                f"{percent(hardest['eer'])}."
            )
    if evaluation.strangers:
        n = len(evaluation.strangers)
        sentences.append(
            f"{n} label{'s' if n > 1 else ''} of the test {'are' if n > 1 else 'is'} unknown to "
            "the bank; those rows are negatives for all."
        )
    if view.n_positive < FEW:
        sentences.append(
            f"There are only {view.n_positive} positives: look at the intervals rather than at the "
            "figures."
        )
    return sentences


def _on_calibration(cllr: Figure, least: Figure) -> str:
    lost = cllr.value - least.value
    costs = f"Cllr {cllr.value:.3f} bits, {least.value:.3f} at best"
    if cllr.value >= 1:
        return f"Its log-likelihood ratios mislead ({costs}): recalibrate before using a threshold."
    if lost <= max(GOOD_BITS, GOOD_LOSS * cllr.value):
        return f"Its log-likelihood ratios are well calibrated ({costs})."
    return (
        f"Its log-likelihood ratios lose {lost:.3f} bits by calibration ({costs}): a threshold "
        "from costs and prior is not the best one here."
    )

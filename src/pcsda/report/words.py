"""Summarise an evaluation in a few sentences."""

from __future__ import annotations

from collections.abc import Iterator

from .evaluation import Evaluation
from .facts import NAMES
from .figures import Figure, percent, value_of

# Calibration counts as good if it loses at most this fraction of Cllr, or this many bits.
GOOD_LOSS = 0.1
GOOD_BITS = 0.01
# With fewer positives than this, the intervals matter most.
FEW = 30


def summary(evaluation: Evaluation) -> list[str]:
    """Describe how good the model is, what it does at the threshold, and what is uncertain."""
    by_key = {figure.key: figure for figure in evaluation.figures}
    view, s = evaluation.views[0], evaluation.settings
    named = [_finds(evaluation)] if NAMES in evaluation.facts else []
    sentences = [answer(evaluation), *named, *equal_errors(evaluation)]
    if "rank_1" in by_key:
        rate, interval = value_of(by_key["rank_1"])
        sentences.append(
            f"The right label comes first for {rate} of the {evaluation.unit}s ({s.level:.0%} "
            f"interval {interval})."
        )
    sentences += [_on_calibration(by_key["cllr"], by_key["min_cllr"]), *_on_strangers(evaluation)]
    if view.n_positive < FEW:
        sentences.append(
            f"There are only {view.n_positive} positives: look at the intervals rather than at the "
            "figures, and test on more if you can."
        )
    return sentences


def answer(evaluation: Evaluation) -> str:
    """Describe what the model does at its threshold; for a bank, how `identify` names rows."""
    if named := evaluation.facts.get(NAMES):
        return f"{named[:1].upper()}{named[1:]}."
    return _finds(evaluation)


def _finds(evaluation: Evaluation) -> str:
    """Describe how much the model finds at a threshold, and how many false alarms it raises."""
    by_key = {figure.key: figure for figure in evaluation.figures}
    view, s = evaluation.views[0], evaluation.settings
    missed, alarms = view.counts()
    miss, alarm = by_key["misses"], by_key["false_alarms"]
    finds = f"{100 * (1 - miss.high):.1f} to {100 * (1 - miss.low):.1f}"
    raises = f"{1000 * alarm.low:.1f} to {1000 * alarm.high:.1f}"
    at = "Verifying each label on its own, at" if NAMES in evaluation.facts else "At"
    return (
        f"{at} the threshold {s.threshold:.2f} it finds {100 * (1 - miss.value):.1f} of 100 "
        f"positives ({s.level:.0%} interval {finds}) and raises {1000 * alarm.value:.1f} false "
        f"alarms per 1000 negatives ({raises}): in this test it missed {missed:,} of "
        f"{view.n_positive:,} and accepted {alarms:,} of {view.n_negative:,}."
    )


def equal_errors(evaluation: Evaluation) -> Iterator[str]:
    """Yield a sentence with the equal error rate and, for a bank, one on the hardest label.

    The rate of a bank is over all labels together: each row is scored for all labels with the same
    threshold, as in practice. A mean over labels, each with its own threshold, would be too
    optimistic.
    """
    figure = next(figure for figure in evaluation.figures if figure.key == "eer")
    eer, interval = value_of(figure)
    rate = f"an equal error rate of {eer} ({evaluation.settings.level:.0%} interval {interval})"
    if not evaluation.is_bank:
        yield f"The model tells “{evaluation.names[0]}” from the rest with {rate}."
        return
    yield (
        f"The model tells {len(evaluation.names)} labels from each other with {rate}: every "
        f"{evaluation.unit} was scored for each label, with one threshold for all."
    )
    hardest = max(evaluation.by_label, key=lambda row: row["eer"] or 0.0)
    if hardest["eer"]:
        yield (
            f"The hardest label is “{hardest['label']}”: with its own threshold it has an equal "
            f"error rate of {percent(hardest['eer'])}."
        )


def _on_strangers(evaluation: Evaluation) -> Iterator[str]:
    if n := len(evaluation.strangers):
        labels = "1 label in the test is" if n == 1 else f"{n} labels in the test are"
        yield f"{labels} unknown to the bank; such rows count as negatives for all its labels."


def _on_calibration(cllr: Figure, least: Figure) -> str:
    lost = cllr.value - least.value
    costs = f"Cllr {cllr.value:.3f} bits, {least.value:.3f} at best"
    if cllr.value >= 1:
        return f"Its log-likelihood ratios mislead ({costs}): recalibrate before using a threshold."
    if lost <= max(GOOD_BITS, GOOD_LOSS * cllr.value):
        return f"Its log-likelihood ratios are well calibrated ({costs})."
    return (
        f"Its log-likelihood ratios lose {lost:.3f} bits to poor calibration ({costs}), so a "
        "threshold from costs and prior is not the best one here; recalibrate on rows like "
        "these, or choose the threshold for a false-alarm rate."
    )

"""Decide by log-likelihood ratios, given a prior and the costs of errors."""

from __future__ import annotations

import math


def bayes_threshold(
    prior: float = 0.5, *, cost_miss: float = 1.0, cost_false_alarm: float = 1.0
) -> float:
    """Return the log-likelihood-ratio threshold that minimises the expected cost.

    Parameters
    ----------
    prior : float
        Probability of the class of interest, between 0 and 1.
    cost_miss, cost_false_alarm : float
        Costs of rejecting a positive and of accepting a negative.

    Returns
    -------
    float
        Accept a row if its log-likelihood ratio is at least this.

    Examples
    --------
    >>> from pcsda.metrics import bayes_threshold
    >>> round(bayes_threshold(0.01, cost_false_alarm=10), 2)
    6.9
    """
    of_miss, of_false_alarm = weighted_costs(prior, cost_miss, cost_false_alarm)
    return math.log(of_false_alarm) - math.log(of_miss)


def weighted_costs(prior: float, cost_miss: float, cost_false_alarm: float) -> tuple[float, float]:
    """Return the cost of a miss times the prior, and of a false alarm times one minus the prior."""
    if not 0 < prior < 1:
        raise ValueError(f"prior={prior} must lie between 0 and 1, both excluded")
    for name, cost in (("cost_miss", cost_miss), ("cost_false_alarm", cost_false_alarm)):
        if not 0 < cost < math.inf:
            raise ValueError(f"{name}={cost} must be a positive number")
    return float(cost_miss * prior), float(cost_false_alarm * (1 - prior))

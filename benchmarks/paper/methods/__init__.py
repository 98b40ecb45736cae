"""The methods: how their settings are chosen in folds, and how they are fitted for the report.

A method has two functions. `choose(space, grid)` scores the held-out rows of a fold at every
setting, in the cheapest exact way; `report(space, setting)` fits the estimator itself on the whole
training part and scores the test rows. Both return scores by kind of problem: for "ranking" larger
is better, for "classification" at least zero means positive.
"""

from . import ours, paper, related, today
from .interface import KINDS, Method, Scores

METHODS = {method.name: method for room in (paper, related, today, ours) for method in room.METHODS}

__all__ = ["KINDS", "METHODS", "Method", "Scores"]

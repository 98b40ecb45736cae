"""Plots of models, scores and choices; matplotlib is imported only to draw."""

from .det import DetDisplay
from .explanation import ExplanationDisplay
from .reliability import BayesErrorDisplay, ReliabilityDisplay
from .scores import ScoreDisplay
from .selection import SelectionDisplay
from .spectrum import SpectrumDisplay
from .subspace import SubspaceDisplay

__all__ = [
    "BayesErrorDisplay",
    "DetDisplay",
    "ExplanationDisplay",
    "ReliabilityDisplay",
    "ScoreDisplay",
    "SelectionDisplay",
    "SpectrumDisplay",
    "SubspaceDisplay",
]

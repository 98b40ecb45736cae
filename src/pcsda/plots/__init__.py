"""Plots of models, scores and model selection; matplotlib is only imported when drawing."""

from .det import DetDisplay
from .explanation import ExplanationDisplay
from .reliability import BayesErrorDisplay, ReliabilityDisplay
from .scores import ScoreDisplay
from .selection import SelectionDisplay
from .spectrum import SpectrumDisplay
from .subspace import SubspaceDisplay

__all__ = ["BayesErrorDisplay", "DetDisplay", "ExplanationDisplay", "ReliabilityDisplay"]
__all__ += ["ScoreDisplay", "SelectionDisplay", "SpectrumDisplay", "SubspaceDisplay"]

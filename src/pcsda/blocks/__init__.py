"""Fit and predict block by block, for data larger than memory."""

from .local import fit_blocks
from .predict import METHODS, predict_blocks

__all__ = ["METHODS", "fit_blocks", "predict_blocks"]

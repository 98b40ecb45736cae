"""Tell one class from the rest of the world: class-specific discriminant analysis."""

from . import datasets, metrics, plots
from .estimators import CSDA, PCSDA

__version__ = "0.1.0"
__all__ = ["CSDA", "PCSDA", "datasets", "metrics", "plots"]

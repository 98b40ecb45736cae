"""Explicit feature maps of kernels: exact, Nystroem and random Fourier features."""

from .fourier import FourierMap
from .pivots import ExactKernelMap, NystroemMap

__all__ = ["ExactKernelMap", "FourierMap", "NystroemMap"]

# Model files name these classes after the package, like the estimators.
for _public in (ExactKernelMap, FourierMap, NystroemMap):
    _public.__module__ = "pcsda"
del _public

"""Tell one class from the rest of the world: class-specific discriminant analysis."""

from . import datasets, distributed, metrics, normalization, plots
from .bank import VerifierBank
from .blocks import fit_blocks, predict_blocks
from .estimators import CSDA, PCSDA
from .kernel_estimators import KernelCSDA, KernelPCSDA
from .maps import ExactKernelMap, FourierMap, NystroemMap
from .model_selection import PCSDACV
from .onnx_export import export_onnx, register_onnx
from .persistence import load, save

__version__ = "0.1.0"
__all__ = [
    "CSDA",
    "PCSDA",
    "PCSDACV",
    "ExactKernelMap",
    "FourierMap",
    "KernelCSDA",
    "KernelPCSDA",
    "NystroemMap",
    "VerifierBank",
    "datasets",
    "distributed",
    "export_onnx",
    "fit_blocks",
    "load",
    "metrics",
    "normalization",
    "plots",
    "predict_blocks",
    "register_onnx",
    "save",
]

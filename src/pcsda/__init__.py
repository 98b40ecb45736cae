"""Tell one class from the rest of the world: class-specific discriminant analysis."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import datasets, metrics
from .estimators import CSDA, PCSDA, PCSDACV, KernelCSDA, KernelPCSDA, VerifierBank
from .maps import ExactKernelMap, FourierMap, NystroemMap

# Files and pickles name public classes by the package, so that the rooms they live in may move.
for _public in (
    *(CSDA, PCSDA, PCSDACV, KernelCSDA, KernelPCSDA, VerifierBank),
    *(ExactKernelMap, FourierMap, NystroemMap),
):
    _public.__module__ = __name__
del _public

if TYPE_CHECKING:
    from . import distributed, normalization, plots, report
    from .blocks import fit_blocks, predict_blocks
    from .onnx_export import export_onnx, register_onnx
    from .persistence import load, save

__version__ = "0.2.0.dev0"
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
    "report",
    "save",
]
# Rooms that many programs never enter are opened when something in them is first asked for.
_LATE = {
    "distributed": "distributed",
    "export_onnx": "onnx_export",
    "fit_blocks": "blocks",
    "load": "persistence",
    "normalization": "normalization",
    "plots": "plots",
    "predict_blocks": "blocks",
    "register_onnx": "onnx_export",
    "report": "report",
    "save": "persistence",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = import_module(f".{_LATE[name]}", __name__)
    value = room if _LATE[name] == name else getattr(room, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

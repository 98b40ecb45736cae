"""Tell one class from the rest of the world: class-specific discriminant analysis."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import datasets, distributed, metrics, normalization, plots, report
    from .blocks import fit_blocks, predict_blocks
    from .core.threshold import Threshold
    from .estimators import (
        CSDA,
        PCSDA,
        PCSDACV,
        KernelCSDA,
        KernelPCSDA,
        MixtureVerifier,
        MultilinearCSDA,
        VerifierBank,
        VerifierPipeline,
        make_pipeline,
    )
    from .maps import ExactKernelMap, FourierMap, NystroemMap
    from .onnx_export import export_onnx, register_onnx
    from .persistence import load, save
    from .retrieval import SearchSession

__version__ = "0.2.0.dev0"
__all__ = ["CSDA", "PCSDA", "PCSDACV", "ExactKernelMap", "FourierMap", "KernelCSDA"]
__all__ += ["KernelPCSDA", "MixtureVerifier", "MultilinearCSDA", "NystroemMap"]
__all__ += ["SearchSession", "Threshold", "VerifierBank", "VerifierPipeline"]
__all__ += ["datasets", "distributed", "export_onnx", "fit_blocks", "load", "make_pipeline"]
__all__ += ["metrics", "normalization", "plots", "predict_blocks", "register_onnx"]
__all__ += ["report", "save"]
# Modules are imported on first use, so that `--help` and `--version` need not wait a second for
# scikit-learn.
_MODULES = {
    "blocks": ("fit_blocks", "predict_blocks"),
    "core.threshold": ("Threshold",),
    "estimators": (
        *("CSDA", "PCSDA", "PCSDACV", "KernelCSDA", "KernelPCSDA", "MixtureVerifier"),
        *("MultilinearCSDA", "VerifierBank", "VerifierPipeline", "make_pipeline"),
    ),
    "maps": ("ExactKernelMap", "FourierMap", "NystroemMap"),
    "onnx_export": ("export_onnx", "register_onnx"),
    "persistence": ("load", "save"),
    "retrieval": ("SearchSession",),
}
_OWNER = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_OWNER.get(name, name)}", __name__)
    value = getattr(module, name) if name in _OWNER else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})

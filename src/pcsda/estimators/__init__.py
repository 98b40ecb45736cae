"""The estimators: each checks its input, calls the core and stores the result."""

from .bank import VerifierBank
from .csda import CSDA
from .kernel import KernelCSDA, KernelPCSDA
from .linear import PCSDA
from .mixture import MixtureVerifier
from .multilinear import MultilinearCSDA
from .pipeline import VerifierPipeline, make_pipeline
from .search import PCSDACV
from .verifier import Verifier

__all__ = [
    "CSDA",
    "PCSDA",
    "PCSDACV",
    "KernelCSDA",
    "KernelPCSDA",
    "MixtureVerifier",
    "MultilinearCSDA",
    "Verifier",
    "VerifierBank",
    "VerifierPipeline",
    "make_pipeline",
]

# Files and pickles name public classes after the package, so that modules can be moved.
for _public in (
    *(CSDA, PCSDA, PCSDACV, KernelCSDA, KernelPCSDA),
    *(MixtureVerifier, MultilinearCSDA, VerifierBank, VerifierPipeline),
):
    _public.__module__ = "pcsda"
del _public

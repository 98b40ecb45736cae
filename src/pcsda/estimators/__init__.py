"""The estimators: each checks its input, wires the core and keeps the result."""

from .bank import VerifierBank
from .kernel import KernelCSDA, KernelPCSDA
from .linear import CSDA, PCSDA
from .search import PCSDACV
from .verifier import Verifier

__all__ = ["CSDA", "PCSDA", "PCSDACV", "KernelCSDA", "KernelPCSDA", "Verifier", "VerifierBank"]

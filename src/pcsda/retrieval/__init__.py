"""The search session: find the rest of them, from a few examples."""

from .estimates import Remaining, Stop
from .session import SearchSession

__all__ = ["Remaining", "SearchSession", "Stop"]

# Named by the package, so that the room it lives in may move.
SearchSession.__module__ = "pcsda"

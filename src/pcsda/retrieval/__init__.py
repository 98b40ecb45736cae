"""Search sessions that start from a few examples and find the rest of the class."""

from .estimates import Remaining, Stop
from .session import SearchSession

__all__ = ["Remaining", "SearchSession", "Stop"]

# Named after the package, so that the file may move.
SearchSession.__module__ = "pcsda"

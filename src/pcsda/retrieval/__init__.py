"""Search sessions that start from a few examples and find the rest of the class."""

from .estimates import Remaining
from .session import SearchSession
from .stopping import Stop

__all__ = ["Remaining", "SearchSession", "Stop"]

# Named after the package, so that the file may move.
SearchSession.__module__ = "pcsda"

"""Pictures of models and their choices; matplotlib is needed only when one is drawn."""

from .selection import SelectionDisplay
from .subspace import SubspaceDisplay

__all__ = ["SelectionDisplay", "SubspaceDisplay"]

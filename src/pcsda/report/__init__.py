"""A model measured on labelled rows, and the result as one HTML file that needs no network."""

from .evaluation import Evaluation, evaluate, evaluate_scores
from .page import write_page

__all__ = ["Evaluation", "evaluate", "evaluate_scores", "write_page"]

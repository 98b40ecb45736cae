"""Measure a model on labelled rows, and write the result as one self-contained HTML file."""

from .evaluation import Evaluation, evaluate, evaluate_scores
from .page import write_page

__all__ = ["Evaluation", "evaluate", "evaluate_scores", "write_page"]

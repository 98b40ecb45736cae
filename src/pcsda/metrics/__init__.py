"""Figures of merit for detection scores; higher scores favour the class of interest.

Metrics available in scikit-learn are not repeated here; see :func:`sklearn.metrics.det_curve`,
:func:`sklearn.metrics.roc_auc_score` and :func:`sklearn.metrics.average_precision_score`.
"""

from ..core.decision import bayes_threshold
from .bootstrap import Interval, bootstrap_interval
from .counting import PriorEstimate, estimate_prior
from .detection import (
    detection_cost,
    equal_error_rate,
    fnmr_at_fmr,
    min_detection_cost,
    roc_convex_hull,
)
from .ranking import cmc_curve, precision_at_k, rank_k_rate
from .ratios import bayes_error_curve, cllr, min_cllr
from .scorers import make_detection_scorer

__all__ = ["Interval", "PriorEstimate"]
__all__ += ["bayes_error_curve", "bayes_threshold", "bootstrap_interval", "cllr"]
__all__ += ["cmc_curve", "detection_cost", "equal_error_rate", "estimate_prior"]
__all__ += ["fnmr_at_fmr", "make_detection_scorer", "min_cllr", "min_detection_cost"]
__all__ += ["precision_at_k", "rank_k_rate", "roc_convex_hull"]

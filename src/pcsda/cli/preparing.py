"""Reading and preparing tables in the same way as `fit`, with settings from the model file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import RobustScaler, StandardScaler

from ..core.linalg import Mask
from ..core.spread import scale_problem
from ..core.warning import number_of
from ..estimators import make_pipeline
from ..persistence import describe
from ..tables import Table, Wording, is_large, missing, pieces, read
from ..tables.table import bases
from ..unwrap import steps
from .problems import Problem, Usage, note

if TYPE_CHECKING:
    from .columns import Features

SCALERS = {"standard": StandardScaler, "robust": RobustScaler}
# Columns whose ranges differ by more than this factor are taken to be in different units.
UNITS = 100


@dataclass(frozen=True)
class Preparation:
    """How a model's tables are read and prepared.

    Attributes
    ----------
    encoding, decimal : str
        Encoding and decimal separator of text files.
    scale : {"standard", "robust", "none"}
        How features are scaled.
    missing : {"fail", "drop", "impute"}
        What to do with rows that have missing values.
    left_out : tuple of str
        Columns that were excluded automatically.
    rows : tuple of str
        Fingerprints of the training rows.
    """

    encoding: str = "utf-8"
    decimal: str = "."
    scale: str = "none"
    missing: str = "fail"
    left_out: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()

    def wording(self, text: Sequence[str | None]) -> Wording:
        """Return the settings for reading text; the columns named in `text` stay as written."""
        names = tuple(name for name in text if name)
        return Wording(self.encoding, self.decimal, text=names)


def of_options(a: Namespace, kept: Preparation | None = None) -> Preparation:
    """Return how to prepare tables: as the options say, and otherwise as in `kept`.

    `kept` is the preparation used for the fit, or None before a fit.
    """
    names = ("encoding", "decimal", "scale", "missing")
    given: dict[str, Any] = {n: v for n in names if (v := getattr(a, n, None)) is not None}
    if kept is not None:
        if given.get("scale", kept.scale) != kept.scale:
            raise Usage(f"--scale {given['scale']}: the model was fitted with --scale {kept.scale}")
        if given.get("missing") == "impute" != kept.missing:
            raise Usage(
                "--missing impute: the model was fitted without it and has no values to fill in; "
                "fit with --missing impute, or use --missing drop"
            )
    prepared = replace(kept or Preparation(), **given)
    try:
        "a".encode(prepared.encoding)
    except (LookupError, ValueError):
        raise Usage(
            f"--encoding {prepared.encoding} is not known; use utf-8, cp1252, latin-1, utf-16 or "
            "another name that Python knows"
        ) from None
    return prepared


def of_model(a: Namespace) -> Preparation:
    """Read from a model file how tables are prepared; options of the command take precedence."""
    kept = describe(a.model).get("table") or {}
    known = {field.name for field in fields(Preparation)}
    values: dict[str, Any] = {
        n: tuple(v) if isinstance(v, list) else v for n, v in kept.items() if n in known
    }
    return of_options(a, Preparation(**values))


def facts_of(path: str) -> dict[str, Any]:
    """Describe a model file, leaving out its row fingerprints."""
    facts = describe(path)
    if "table" in facts:
        facts["table"] = {n: v for n, v in facts["table"].items() if n != "rows" and v != []}
    return facts


def opened(a: Namespace, prepared: Preparation, text: Sequence[str | None]) -> Iterator[Table]:
    """Yield a command's table as a whole, or in parts if it is large or an option says so."""
    wording = prepared.wording(text)
    if a.block_rows is not None or is_large(a.data):
        yield from pieces(a.data, wording, a.block_rows)
    else:
        yield read(a.data, wording)


def _unusable(values: NDArray[Any]) -> Mask:
    """Return a mask of the rows with a missing or infinite value."""
    infinite = np.isinf(values).reshape(len(values), -1).any(axis=1)
    return np.asarray(missing(values) | infinite)


def without_gaps(table: Table, names: Sequence[str], prepared: Preparation) -> Table:
    """Drop rows with missing features if --missing drop is set, and print how many."""
    if prepared.missing != "drop":
        return table
    if table.matrix is not None:
        gaps = _unusable(table.matrix)
    else:
        columns = [table.column(name) for name in bases(names, table.names)]
        gaps = np.any([_unusable(c) for c in columns if c.dtype.kind in "buif"], axis=0)
    if not np.any(gaps):
        return table
    have, are = ("has", "is") if gaps.sum() == 1 else ("have", "are")
    note(
        f"{int(gaps.sum())} of {len(table)} rows of {table.source} {have} missing or infinite "
        f"values and {are} left out"
    )
    return table.part(np.flatnonzero(~gaps))


def prepared_estimator(estimator: BaseEstimator, prepared: Preparation) -> BaseEstimator:
    """Put an imputer and a scaler before an estimator, as the preparation requires."""
    before: list[BaseEstimator] = []
    if prepared.missing == "impute":
        before.append(SimpleImputer(strategy="median", keep_empty_features=True))
    if prepared.scale in SCALERS:
        before.append(SCALERS[prepared.scale]())
    return make_pipeline(*before, *steps(estimator)) if before else estimator


def say_units(X: Features, prepared: Preparation) -> None:
    """Print a note if columns have different units and are not scaled."""
    if prepared.scale != "none" or not hasattr(X, "columns"):
        return
    rows = np.asarray(X, dtype=np.float64)
    with np.errstate(all="ignore"):
        spread = np.nanmax(rows, axis=0) - np.nanmin(rows, axis=0)
    places = np.flatnonzero(np.isfinite(spread) & (spread > 0))
    if len(places) == 0:
        return
    low, high = places[spread[places].argmin()], places[spread[places].argmax()]
    if spread[high] > UNITS * spread[low]:
        note(
            f"columns have different units: {X.columns[high]} spans {spread[high]:.3g} and "
            f"{X.columns[low]} {spread[low]:.3g}; --scale standard puts them on one scale. "
            "Without it, columns with small values count for less than they could"
        )


def refuse_scale(X: Features) -> None:
    """Reject numbers whose squares overflow or vanish, which scalers turn into NaN or zeros."""
    text = scale_problem(np.asarray(X, dtype=np.float64), getattr(X, "columns", None))
    if text:
        raise Problem(text)


def say_gaps(X: Features, prepared: Preparation) -> None:
    """Print a note with the number of imputed values."""
    if prepared.missing == "impute":
        gaps = np.isnan(np.asarray(X, dtype=np.float64))
        if gaps.any():
            one = gaps.sum() == 1
            note(
                f"{number_of(int(gaps.sum()), 'missing or infinite value')} in "
                f"{number_of(int(gaps.any(axis=1).sum()), 'row')} {'is' if one else 'are'} "
                f"filled in with the median of {'its' if one else 'their'} column"
            )

"""Apply a fitted model block by block."""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Iterator
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib.format import dtype_to_descr, write_array_header_2_0
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .. import validation
from ..core.linalg import Floats
from ..tables import refuse_overwrite
from ..unwrap import unwrap
from ..writing import whole_file
from .data import Blocks, check_rows, check_shape, naming, row_slices, typed_labels
from .files import open_blocks

METHODS = (
    *("log_likelihood_ratio", "decision_function", "predict_proba", "predict_log_proba"),
    *("predict", "transform", "score_samples"),
)


def predict_blocks(
    estimator: BaseEstimator,
    blocks: object,
    output: str | os.PathLike[str] | None = None,
    *,
    method: str = "log_likelihood_ratio",
    columns: list[str] | None = None,
    block_rows: int | None = None,
) -> Any:
    """Apply a fitted estimator block by block, writing the results as they are computed.

    Parameters
    ----------
    estimator : fitted estimator, pipeline or search
        A model of this library, or a pipeline or search that contains one.
    blocks : as in :func:`fit_blocks`
        Labels, if the blocks have any, are ignored. Files may come from untrusted sources: none of
        their content is executed.
    output : path, optional
        File to write: ``.npy``, or ``.csv`` with a header. The file appears only once it is
        complete. A file that the blocks are read from is refused.
    method : str, default="log_likelihood_ratio"
        Method of the estimator to call: "log_likelihood_ratio", "decision_function",
        "predict_proba", "predict_log_proba", "predict", "transform" or "score_samples".
    columns : list of str, optional
        Feature columns in Parquet and CSV files; by default, the columns used in the fit.
    block_rows : int, optional
        As in :func:`fit_blocks`.

    Returns
    -------
    Path of the file or, without `output`, a generator that yields the results for each block.

    Examples
    --------
    >>> import numpy as np
    >>> from pcsda import PCSDA, predict_blocks
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(500, random_state=0)
    >>> model = PCSDA(random_state=0).fit(data.data, data.target)
    >>> scores = list(predict_blocks(model, data.data, block_rows=200))
    >>> [len(part) for part in scores]
    [200, 200, 100]
    """
    validation.check_option("method", method, METHODS)
    check_is_fitted(estimator)
    names = getattr(unwrap(estimator).first, "feature_names_in_", None)
    names = None if names is None else list(names)
    found = open_blocks(blocks, columns=columns or names, block_rows=block_rows)
    refuse_overwrite(output, blocks)
    results = _results(estimator, found, method, names, output)
    if output is None:
        return results
    path = Path(output)
    if path.suffix == ".npy":
        _write_npy(path, results)
    elif path.suffix == ".csv":
        _write_csv(path, results, _result_names(estimator, method))
    else:
        raise ValueError(f"output={str(path)!r} must end in .npy or .csv")
    return path


def _results(
    estimator: BaseEstimator,
    blocks: Blocks,
    method: str,
    names: list[str] | None,
    output: str | os.PathLike[str] | None,
) -> Iterator[NDArray[Any]]:
    before = unwrap(estimator).before
    for number, name, block in blocks.ahead():
        with naming(f"block {number} ({name})"):
            # An iterator may yield mapped files. No file is replaced until all blocks are read.
            refuse_overwrite(output, block.X)
            X, columns = check_shape(block)
            if names is not None and columns is not None and list(columns) != names:
                raise ValueError(
                    f"the columns {list(columns)[:8]} differ from the training columns, "
                    f"{names[:8]}; select and order them"
                )
            parts = [
                apply_rows(estimator, method, check_rows(X[rows], rows.start))
                for rows in row_slices(X.shape, before)
            ]
        yield np.concatenate(parts)


def apply_rows(estimator: BaseEstimator, method: str, X: Floats) -> NDArray[Any]:
    """Call a model's method on rows in memory, even if the pipeline around the model lacks it."""
    inside = unwrap(estimator)
    with warnings.catch_warnings():
        # The column names have already been checked; plain rows have none.
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        result = np.asarray(getattr(inside.model, method)(inside.rows(X)))
    if result.dtype.kind == "O":  # text of fixed length, so that blocks fit in one file
        result = result.astype(typed_labels(inside.model.classes_).dtype)
    return result


def _write_npy(path: Path, results: Iterator[NDArray[Any]]) -> None:
    with whole_file(path) as file:
        first = next(results, None)
        if first is None:
            raise ValueError("there are no blocks; the data are empty")
        n_rows, begin = 0, _write_header(file, first, 0)
        for result in chain([first], results):
            file.write(np.ascontiguousarray(result, dtype=first.dtype).tobytes())
            n_rows += len(result)
        file.seek(0)
        if _write_header(file, first, n_rows) != begin:
            raise RuntimeError("the header of the .npy file has changed its length")


def _write_header(file: BinaryIO, first: NDArray[Any], n_rows: int) -> int:
    """Write a .npy header, and return the position after it.

    NumPy pads the header, so that the number of rows can be updated later.
    """
    shape = (n_rows, *first.shape[1:])
    about = {"descr": dtype_to_descr(first.dtype), "fortran_order": False, "shape": shape}
    write_array_header_2_0(file, about)
    return file.tell()


def _write_csv(path: Path, results: Iterator[NDArray[Any]], names: list[str]) -> None:
    with whole_file(path) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            writer = csv.writer(text)
            writer.writerow(names)
            for result in results:
                writer.writerows(result.reshape(len(result), -1).tolist())
        finally:
            text.detach()  # whole_file closes the file


def _result_names(estimator: BaseEstimator, method: str) -> list[str]:
    """Return the names of the columns in a CSV file of results."""
    model = unwrap(estimator).model
    if method == "transform":
        return [str(name) for name in model.get_feature_names_out()]
    if method in ("predict_proba", "predict_log_proba"):
        return [str(label) for label in model.classes_]
    return [method]

"""Run the passes of :func:`pcsda.fit_blocks` on Dask.

Each block is a task, and the results of the blocks are merged in a tree. Only this module imports
Dask, and only when one of its functions is called.
"""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from . import validation
from .blocks.data import Address, Block, check_rows, naming, typed_labels
from .blocks.files import feature_columns, open_blocks
from .blocks.fit import check_blockwise, fit_over
from .blocks.passes import Look, LookPass, Pass
from .blocks.predict import METHODS, apply_rows
from .core.linalg import Result
from .estimators import VerifierBank
from .unwrap import unwrap
from .validation import MatrixLike

# Number of results merged at once. The depth of the merge tree is the logarithm of the number of
# blocks to this base.
FAN_IN = 8


def fit(
    estimator: BaseEstimator,
    X: object,
    y: object = None,
    *,
    subclass_labels: object = None,
    sample_weight: object = None,
    columns: list[str] | None = None,
    classes: ArrayLike | None = None,
    block_rows: int | None = None,
    sample_rows: int = 20_000,
    calibration_rows: int | None = None,
    client: object = None,
) -> Any:
    """Fit an estimator on a Dask collection, or on files that the workers read.

    Parameters
    ----------
    estimator : PCSDA, CSDA or a Pipeline that ends in one of them
        The estimator to fit in place, as :func:`pcsda.fit_blocks` does.
    X : Dask array or DataFrame, or any source that :func:`pcsda.fit_blocks` accepts
        Each block of rows becomes a task; column chunks are joined. Paths must lead to the same
        files on all workers.
    y, subclass_labels, sample_weight : Dask array, Series, array or name
        Labels and weights of the rows, chunked like X. Arrays in memory are split to match X. If
        X is a DataFrame, each may be the name of one of its columns.
    columns : list of str, optional
        Feature columns of a DataFrame, Parquet or CSV source; by default, all columns except labels
        and weights.
    classes, block_rows, sample_rows, calibration_rows
        As in :func:`pcsda.fit_blocks`.
    client : dask.distributed.Client, optional
        The client to use; by default, the active client or, if there is none, threads in this
        process.

    Returns
    -------
    estimator

    Notes
    -----
    Each pass computes the blocks again. If the chunks fit in the cluster memory, pass
    ``X.persist()``. Only merged statistics return to the client: two D x D matrices, and the
    samples. If a worker dies, only its blocks are computed again. As in :func:`pcsda.fit_blocks`,
    data files may come from untrusted sources. But the workers and the scheduler run what the
    client sends, and Dask unpickles what they send back, so all of them must be trusted.

    Examples
    --------
    >>> import dask.array as da
    >>> from pcsda import PCSDA, distributed
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(500, random_state=0)
    >>> X = da.from_array(data.data, chunks=(100, -1))
    >>> model = distributed.fit(PCSDA(random_state=0), X, data.target)
    >>> model.classes_
    array([0, 1])
    """
    _dask()
    check_blockwise(estimator, sample_rows, calibration_rows)
    companions = {"y": y, "subclass_labels": subclass_labels, "sample_weight": sample_weight}
    given = {name: value for name, value in companions.items() if value is not None}
    if _is_array(X):
        blocks = _of_array(X, given)
    elif _is_frame(X):
        blocks = _of_frame(X, given, columns)
    else:
        blocks = _of_files(X, given, columns, block_rows)
    runner = _OnDask(blocks, _active(client))
    return fit_over(estimator, runner, classes, sample_rows, calibration_rows)


def predict(estimator: BaseEstimator, X: Any, method: str = "log_likelihood_ratio") -> Any:
    """Apply a fitted estimator to a Dask array or DataFrame, returning a lazy Dask array.

    Parameters
    ----------
    estimator : fitted estimator, pipeline or search
        A model of this library, a bank or mixture included, or a pipeline or search that contains
        one.
    X : Dask array or DataFrame of shape (n_samples, n_features)
        The rows; the columns of a DataFrame are matched by name.
    method : str, default="log_likelihood_ratio"
        As in :func:`pcsda.predict_blocks`.

    Returns
    -------
    Dask array, chunked like X

    Examples
    --------
    >>> import dask.array as da
    >>> from pcsda import PCSDA, distributed
    >>> from pcsda.datasets import make_class_specific
    >>> data = make_class_specific(500, random_state=0)
    >>> model = PCSDA(random_state=0).fit(data.data, data.target)
    >>> scores = distributed.predict(model, da.from_array(data.data, chunks=(100, -1)))
    >>> scores.chunks
    ((100, 100, 100, 100, 100),)
    """
    _dask()
    validation.check_option("method", method, METHODS)
    check_is_fitted(estimator)
    inside = unwrap(estimator)
    if _is_frame(X):
        names = getattr(inside.first, "feature_names_in_", None)
        X = (X if names is None else X[list(names)]).to_dask_array()
    if not _is_array(X):
        raise TypeError(
            f"X is a {type(X).__name__}; predict takes a Dask array or DataFrame. For files use "
            "pcsda.predict_blocks, for arrays in memory the estimator itself"
        )
    X = _whole_rows(X)
    model = inside.model
    width = _width(model, method)
    dtype = X.dtype if X.dtype == np.float32 else np.dtype(np.float64)
    if method == "predict":
        dtype = typed_labels(model.classes_).dtype
    shape = (0,) if width is None else (0, width)
    return X.map_blocks(
        _apply,
        estimator=estimator,
        method=method,
        drop_axis=1 if width is None else (),
        chunks=(X.chunks[0], *((size,) for size in shape[1:])),
        meta=np.empty(shape, dtype),
    )


def _width(model: Any, method: str) -> int | None:
    """Return the number of columns that a method returns; None for one value per row."""
    if not hasattr(model, method):
        raise ValueError(
            f"method={method!r}: {type(model).__name__} has none; use one of "
            f"{[name for name in METHODS if hasattr(model, name)]}"
        )
    if method == "transform":
        return int(model.n_components_)
    per_label = ["predict_proba", "predict_log_proba"]
    if isinstance(model, VerifierBank):
        per_label += ["log_likelihood_ratio", "decision_function"]
    return len(model.classes_) if method in per_label else None


def _apply(X: MatrixLike, estimator: BaseEstimator, method: str) -> NDArray[Any]:
    return apply_rows(estimator, method, check_rows(np.asarray(X), 0))


def _dask(module: str = "dask") -> Any:
    return validation.import_extra(module, "pcsda.distributed needs", "dask")


def _is_array(value: object) -> bool:
    return validation.is_dask(value) and hasattr(value, "numblocks")


def _is_frame(value: object) -> bool:
    return validation.is_dask(value) and hasattr(value, "to_dask_array")


class _Lazy(NamedTuple):
    """A block that Dask computes later: its name, the whole block, and the block without X.

    For a block in a file, both `block` and `labels` are the address of the block. The task that
    uses the block reads the file.
    """

    name: str
    block: Any
    labels: Any


def _whole_rows(X: Any) -> Any:
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions and must have 2, rows and columns")
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def _of_array(X: Any, companions: dict[str, Any]) -> list[_Lazy]:
    X = _whole_rows(X)
    parts = {name: _like(X, name, value) for name, value in companions.items()}
    names = [
        f"chunk {number} of X" + ("" if np.isnan(size) else f", {size} rows")
        for number, size in enumerate(X.chunks[0])
    ]
    return _lazy(names, X.to_delayed().ravel(), parts)


def _lazy(names: list[str], rows: Sequence[Any], parts: dict[str, Sequence[Any]]) -> list[_Lazy]:
    make = _dask().delayed(Block, pure=False)
    blocks = []
    for number, name in enumerate(names):
        own = {part: values[number] for part, values in parts.items()}
        blocks.append(_Lazy(name, make(rows[number], **own), make(None, **own)))
    return blocks


def _like(X: Any, name: str, value: Any) -> Sequence[Any]:
    """Split an array such as labels or weights into delayed parts, one per row chunk of X."""
    sizes = X.chunks[0]
    value = value.to_dask_array() if _is_frame(value) else value
    unknown = [number for number, size in enumerate(sizes) if np.isnan(size)]
    if not _is_array(value):
        if unknown:
            raise ValueError(
                f"chunk {unknown[0]} of X has an unknown number of rows, so {name}, an array in "
                "memory, cannot be split to match; call X.compute_chunk_sizes() first"
            )
        array = np.asarray(value)
        if array.shape != (sum(sizes),):
            raise ValueError(f"{name} has shape {array.shape} but X has {sum(sizes)} rows")
        value = _dask("dask.array").from_array(array, chunks=(sizes,))
    if value.ndim == 2 and value.shape[1] == 1:
        value = value[:, 0]
    if value.ndim != 1:
        raise ValueError(f"{name} has {value.ndim} dimensions and must have 1")
    own = value.chunks[0]
    unknown = unknown or [number for number, size in enumerate(own) if np.isnan(size)]
    if unknown and len(own) != len(sizes):
        raise ValueError(
            f"chunk {unknown[0]} has an unknown number of rows, and X has {len(sizes)} chunks "
            f"but {name} has {len(own)}; call compute_chunk_sizes() on both first"
        )
    if not unknown and sum(own) != sum(sizes):
        raise ValueError(f"{name} has {sum(own)} entries but X has {sum(sizes)} rows")
    if not unknown and own != sizes:
        value = value.rechunk((sizes,))
    delayed: Sequence[Any] = value.to_delayed().ravel()
    return delayed


def _of_frame(X: Any, companions: dict[str, Any], columns: list[str] | None) -> list[_Lazy]:
    inside = {name: value for name, value in companions.items() if isinstance(value, str)}
    features = feature_columns("X", list(X.columns), inside, columns)
    parts = {}
    for name, value in companions.items():
        series = X[value] if name in inside else value
        parts[name] = series.to_delayed() if validation.is_dask(series) else ()
        if len(parts[name]) != X.npartitions:
            raise ValueError(
                f"{name} must be the name of a column of X, or have its {X.npartitions} partitions"
            )
    names = [f"partition {number} of X" for number in range(X.npartitions)]
    return _lazy(names, X[list(features)].to_delayed(), parts)


def _of_files(
    X: object, companions: dict[str, Any], columns: list[str] | None, block_rows: int | None
) -> list[_Lazy]:
    found = open_blocks(X, columns=columns, block_rows=block_rows, **companions)
    if found.addresses is None:
        raise TypeError(
            f"X is a {type(X).__name__}, which workers cannot read from; pass a Dask collection, "
            "files that all workers see, or use pcsda.fit_blocks"
        )
    # The task that uses a block reads it, so rows never move between workers.
    place = partial(_dask().delayed, traverse=False, pure=False)
    return [_Lazy(address.name, *[place(address)] * 2) for address in found.addresses]


def _active(client: object) -> Any:
    """Return `client` or, if it is None, the active client; None if no client is active."""
    if client is not None:
        return client
    try:
        return _dask("distributed").default_client()
    except (ImportError, ValueError):
        return None


class _OnDask:
    """Runner that executes passes as Dask graphs, and names the block in which an error occurs."""

    once = False
    moves = True

    def __init__(self, blocks: list[_Lazy], client: Any) -> None:
        if not blocks:
            raise ValueError("there are no blocks; the data are empty")
        self.blocks, self.client = blocks, client

    def seed(self, draw: Callable[[], int]) -> int:
        """Draw and return the seed of the fit."""
        return draw()

    def look(self, task: LookPass, first: bool) -> Look:
        """Collect the labels of all blocks, or of the first block if `first`; X is not computed."""
        chosen = self.blocks[: 1 if first else None]
        look = self._run(task, [block.labels for block in chosen])
        assert look is not None
        return look

    def run(self, task: Pass[Result]) -> Result | None:
        """Run a pass and return the merged result, or None if no row has positive weight."""
        rows = task.needs_rows
        return self._run(task, [block.block if rows else block.labels for block in self.blocks])

    def _run(self, task: Pass[Result], blocks: list[Any]) -> Result | None:
        delayed = _dask().delayed
        # All blocks share one node for the task, so that the client sends it only once. The
        # scheduler can send it again.
        shared = delayed(task, name=f"pcsda-{task.name}-{uuid.uuid4()}", traverse=False)
        of_block, merge = delayed(_of_block, pure=False), delayed(_merge, pure=False)
        level = [
            of_block(shared, number, self.blocks[number].name, block)
            for number, block in enumerate(blocks)
        ]
        done = delayed(_done, pure=False)
        marks = [done(part) for part in level]
        while len(level) > 1:
            starts = range(0, len(level), FAN_IN)
            level = [merge(shared, level[start : start + FAN_IN]) for start in starts]
        # Workers may be threads of this process. Each would set and reset the BLAS threads, and the
        # last to finish would not restore the original number.
        with threadpool_limits(1, user_api="blas"):
            compute = self._in_threads if self.client is None else self._on_cluster
            result: Result | None = compute(level[0], marks)
            return result

    def _in_threads(self, root: Any, marks: list[Any]) -> Any:
        compute = partial(_dask().compute, scheduler="threads")
        try:
            return compute(root)[0]
        except Exception:
            for number, mark in enumerate(marks):  # compute again to find the block that failed
                with self._naming(number):
                    compute(mark)
            raise

    def _on_cluster(self, root: object, marks: list[Any]) -> Any:
        with warnings.catch_warnings():
            # The task contains its D x D matrices on purpose, so that they are sent only once.
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            result, *done = self.client.compute([root, *marks])
        try:
            return result.result()
        except CancelledError as error:
            raise RuntimeError(
                "the cluster lost this fit, because its scheduler was restarted or closed; call "
                "fit again with a client that is connected, or fit_blocks with checkpoint=, which "
                "resumes"
            ) from error
        except Exception:
            for _ in range(20):  # the error of the block may arrive a moment later
                failed = [number for number, mark in enumerate(done) if mark.status == "error"]
                if failed:
                    break
                time.sleep(0.1)
            for number in failed:
                with self._naming(number):
                    done[number].result()
            raise
        finally:
            self.client.cancel([result, *done])

    def _naming(self, number: int) -> AbstractContextManager[None]:
        return naming(f"block {number} ({self.blocks[number].name})")


def _done(_: object) -> None:
    """Return None once a block has been processed, to show which blocks succeeded."""


def _of_block(task: Pass[Result], number: int, name: str, block: Block | Address) -> Result | None:
    if isinstance(block, Address):
        with naming(f"block {number} ({name})"):
            block = block.read(not task.needs_rows)
    return task.of_block(number, name, block)


def _merge(task: Pass[Result], results: list[Result | None]) -> Result | None:
    return reduce(task.join, results)

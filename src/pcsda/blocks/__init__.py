"""Data larger than memory: fit and predict block by block."""

from __future__ import annotations

import csv
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib.format import dtype_to_descr, write_array_header_2_0
from sklearn.utils.validation import check_is_fitted

from .. import validation
from ..progress import progress
from ..unwrap import unwrap
from ..writing import whole_file
from .addresses import Block, plain_labels
from .checkpoint import Checkpoint, describe, digest
from .intake import check_rows, check_shape, row_slices
from .passes import Look, LookPass, Pass, naming
from .readers import Blocks, open_blocks
from .stages import Sizes, fit_over, split

METHODS = (
    "log_likelihood_ratio",
    "decision_function",
    "predict_proba",
    "predict_log_proba",
    "predict",
    "transform",
    "score_samples",
)


def fit_blocks(
    estimator: Any,
    blocks: Any,
    *,
    y: Any = None,
    subclass_labels: Any = None,
    sample_weight: Any = None,
    columns: list[str] | None = None,
    classes: Any = None,
    block_rows: int | None = None,
    sample_rows: int = 20_000,
    calibration_rows: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
) -> Any:
    """Fit an estimator on blocks of rows that never meet in memory.

    Parameters
    ----------
    estimator : PCSDA, CSDA or a Pipeline that ends in one of them
        Fitted in place. Transformers before it, such as NystroemMap or FourierMap, are fitted on a
        seeded sample of rows and then map block by block.
    blocks : path, list of paths, array, iterable or callable
        A ``.npy`` file; a ``.npz`` file with arrays ``X`` and ``y`` (and `subclass_labels` and
        `sample_weight`, if wanted); a Parquet file, read by row groups; a CSV file with a header; a
        folder or list of files of one kind, in the order of their names; an array, also
        memory-mapped or sparse; or an iterable of ``(X, y)``, ``(X, y, subclass_labels)`` or
        ``(X, y, subclass_labels, sample_weight)``. Where a fit takes several passes, pass a
        function that returns a new iterator in place of one that can be read once.
    y, subclass_labels, sample_weight : array, path or name
        What belongs to the rows. For arrays and ``.npy``: an array or a ``.npy`` file as long as
        the data, or, for a folder, a folder with files of the same names. For Parquet, CSV and
        ``.npz``: the name of the column or array. Iterables yield them.
    columns : list of str, optional
        Feature columns of Parquet and CSV; all other columns where not given.
    classes : array-like of shape (2,), optional
        Both labels. Without it, labels are looked at until both were seen.
    block_rows : int, optional
        Rows of a block for arrays, ``.npy`` and (roughly) CSV; as many as make 64 MiB of float64
        where not given.
    sample_rows : int, default=20000
        Rows of the seeded sample on which transformers and k-means are fitted.
    calibration_rows : int, optional
        Rows of each class, drawn with a seed, that are left out and scored: covariances, tails and
        calibration come from them, and each class counts with its full weight. Where not given, it
        is that of the estimator, 5000 by default.
    checkpoint : path, optional
        File in which the state is kept, replaced every `checkpoint_seconds`. If it exists, the fit
        goes on from it, and the result equals that of a fit that was not stopped. It is deleted
        when the fit is done, and refused where data or settings are others.
    checkpoint_seconds : float, default=30
        Seconds between two savings; 0 saves after every block.

    Returns
    -------
    estimator
        The fitted estimator; it has no `groups_` and `loo_scores_`, which are as long as the data.

    Notes
    -----
    One pass over the data takes the statistics, and with them the sample of rows to leave out.
    K-means and transformers are fitted on a sample of rows, which is one pass before. Where
    calibration needs folds (CSDA, ``covariance="resubstitution"``) labels are counted first,
    statistics are kept for each fold, and one more pass scores every row by the model without its
    fold.

    The result equals that of `fit`, to rounding, as long as neither class has more than
    `calibration_rows` rows and k-means, if any, has all rows in its sample of `sample_rows`;
    beyond, both leave out samples of their own. The folds are those of `fit` up to two million
    rows; beyond, each block draws its own.
    Memory: a few D x D matrices and blocks. Sparse blocks are made dense a piece at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from pcsda import PCSDA, fit_blocks
    >>> rng = np.random.default_rng(0)
    >>> def blocks():
    ...     for seed in range(5):
    ...         rng = np.random.default_rng(seed)
    ...         y = rng.random(200) < 0.3
    ...         yield rng.standard_normal((200, 8)) + 2 * y[:, None], y
    >>> fit_blocks(PCSDA(n_subclasses=3, random_state=0), blocks).n_components_
    3
    """
    _, model = split(estimator)
    sizes = Sizes.of(model, sample_rows, calibration_rows)
    validation.check_count("block_rows", block_rows, None)
    validation.check_number("checkpoint_seconds", checkpoint_seconds)
    found = open_blocks(
        blocks,
        y=y,
        subclass_labels=subclass_labels,
        sample_weight=sample_weight,
        columns=columns,
        block_rows=block_rows,
    )
    runner = _InProcess(found, model.verbose)
    if checkpoint is not None:
        settings = [describe(estimator), describe(classes), sample_rows, calibration_rows]
        runner.keep(Path(checkpoint), json.dumps(settings), checkpoint_seconds)
    fit_over(estimator, runner, classes, sizes)
    if runner.checkpoint is not None:
        runner.checkpoint.remove()
    return estimator


class _InProcess:
    """Takes passes in this process, one block after the other, and keeps a checkpoint."""

    moves = False

    def __init__(self, blocks: Blocks, verbose: bool) -> None:
        self.blocks, self.verbose = blocks, verbose
        self.checkpoint: Checkpoint | None = None

    @property
    def once(self) -> bool:
        """Whether the blocks can be read only once."""
        return self.blocks.once

    def keep(self, path: Path, settings: str, every: float) -> None:
        """Keep a checkpoint of this data and these settings."""
        if self.blocks.once:
            raise ValueError(
                "a checkpoint needs blocks that can be read again; pass a function that returns a "
                "new iterator"
            )
        stamps = [address.stamp() for address in self.blocks.addresses or ()]
        first = next((digest(read()) for _, read in self.blocks.readers()), "")
        identity = {"settings": settings, "data": digest(json.dumps(stamps, default=str), first)}
        self.checkpoint = Checkpoint(path, identity, every)

    def seed(self, draw: Callable[[], int]) -> int:
        """Draw the seed, or take that of the checkpoint."""
        if self.checkpoint is None:
            return draw()
        if self.checkpoint.seed is None:
            self.checkpoint.seed = draw()
        return self.checkpoint.seed

    def look(self, task: LookPass, first: bool) -> Look:
        """Look at labels until both classes were seen."""
        look: Look | None = None
        for number, name, block in _read(self.blocks.readers(labels_only=True)):
            look = task.join(look, task.of_block(number, name, block))
            if self.blocks.once:
                if not (look.settled or first):
                    raise ValueError(
                        f"block {number} ({name}) has one class only, {look.labels.tolist()}, and "
                        "an iterator that can be read once shows no other before it is used; give "
                        "classes=[...]"
                    )
                self._put_back(block)
            if look.settled or first:
                break
        if look is None:
            raise ValueError("there are no blocks; the data are empty")
        return look

    def _put_back(self, block: Block) -> None:
        start = self.blocks.start
        assert start is not None
        rest = start()
        self.blocks = Blocks(start=lambda: chain([block], rest), once=True)

    def run(self, task: Pass) -> Any:
        """Take a pass, from where the checkpoint ended."""
        kept = self.checkpoint
        if kept is not None and task.name in kept.finished:
            return kept.finished[task.name]
        taken, result = (0, None) if kept is None else kept.begin(task.name)
        bar = self.verbose and self.blocks.addresses is not None
        found = taken
        for number, name, block in progress(
            ahead(self.blocks, taken, labels_only=not task.needs_rows),
            task.name,
            enabled=bar,
            total=len(self.blocks) - taken,
        ):
            result = task.join(result, task.of_block(number, name, block))
            found = number + 1
            if kept is not None:
                kept.advance(found, result)
        if found == 0:
            raise ValueError(
                f"the pass for {task.name} found no blocks, and the one before did; the function "
                "must return a new iterator each time"
            )
        if kept is not None:
            kept.finish(result)
        return result


def _read(
    readers: Iterable[tuple[str, Callable[[], Block]]], skip: int = 0
) -> Iterator[tuple[int, str, Block]]:
    """Read blocks, with their numbers and names; the first `skip` are passed over."""
    for number, (name, read) in enumerate(readers):
        if number >= skip:
            with naming(f"block {number} ({name})"):
                block = read()
            yield number, name, block


def ahead(
    blocks: Blocks, skip: int = 0, *, labels_only: bool = False
) -> Iterator[tuple[int, str, Block]]:
    """Read blocks, the next one while the last one is in use."""
    items = _read(blocks.readers(labels_only), skip)
    if blocks.addresses is None:  # a generator may hold what only the thread of the user can use
        yield from items
        return
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


def predict_blocks(
    estimator: Any,
    blocks: Any,
    output: str | os.PathLike[str] | None = None,
    *,
    method: str = "log_likelihood_ratio",
    columns: list[str] | None = None,
    block_rows: int | None = None,
) -> Any:
    """Apply a fitted estimator block by block, and write the results as they come.

    Parameters
    ----------
    estimator : fitted estimator, pipeline or search
    blocks : as in :func:`fit_blocks`
        Labels, if the blocks have any, are not looked at.
    output : path, optional
        A ``.npy`` file, or a ``.csv`` file with a header. It appears when it is complete.
    method : str, default="log_likelihood_ratio"
        Also "decision_function", "predict_proba", "predict_log_proba", "predict", "transform" or
        "score_samples".
    columns : list of str, optional
        Feature columns of Parquet and CSV; those the estimator was fitted on where not given.
    block_rows : int, optional
        As in :func:`fit_blocks`.

    Returns
    -------
    Path of the file, or without `output` a generator of the results of one block after the other.
    """
    validation.check_option("method", method, METHODS)
    check_is_fitted(estimator)
    names = getattr(unwrap(estimator).first, "feature_names_in_", None)
    if columns is None and names is not None:
        columns = list(names)
    found = open_blocks(blocks, columns=columns, block_rows=block_rows)
    results = _results(estimator, found, method, names)
    if output is None:
        return results
    path = Path(output)
    if path.suffix not in (".npy", ".csv"):
        raise ValueError(f"output={str(path)!r} must end in .npy or .csv")
    write = _write_npy if path.suffix == ".npy" else _write_csv
    write(path, results, _result_names(estimator, method))
    return path


def _results(estimator: Any, blocks: Blocks, method: str, names: Any) -> Iterator[Any]:
    before = unwrap(estimator).before
    for number, name, block in ahead(blocks):
        with naming(f"block {number} ({name})"):
            X, columns = check_shape(block)
            if names is not None and columns is not None and list(columns) != list(names):
                raise ValueError(
                    f"the columns {list(columns)[:8]} differ from those at fitting, "
                    f"{list(names)[:8]}; select and order them"
                )
            parts = [
                apply_rows(estimator, method, check_rows(X[rows], rows.start))
                for rows in row_slices(X.shape, before)
            ]
        yield np.concatenate(parts)


def apply_rows(estimator: Any, method: str, X: Any) -> Any:
    """Result of one method on rows in memory; a pipeline has them all, also those it hides."""
    inside = unwrap(estimator)
    with warnings.catch_warnings():
        # Names were compared with those of the block; the rows themselves carry none.
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        result = np.asarray(getattr(inside.model, method)(inside.rows(X)))
    if result.dtype.kind == "O":  # of one length, so that blocks fit into one file
        result = result.astype(plain_labels(inside.model.classes_).dtype)
    return result


def _write_npy(path: Path, results: Iterator[Any], _: list[str]) -> None:
    with whole_file(path) as file:
        n_rows, first = 0, None
        for result in results:
            if first is None:
                first = result
                begin = _write_header(file, first, 0)
            file.write(np.ascontiguousarray(result, dtype=first.dtype).tobytes())
            n_rows += len(result)
        if first is None:
            raise ValueError("there are no blocks; the data are empty")
        file.seek(0)
        if _write_header(file, first, n_rows) != begin:
            raise RuntimeError("the header of the .npy file has changed its length")


def _write_header(file: BinaryIO, first: Any, n_rows: int) -> int:
    """Write the header of a .npy file; NumPy leaves room in it for the number of rows to grow."""
    shape = (n_rows, *first.shape[1:])
    about = {"descr": dtype_to_descr(first.dtype), "fortran_order": False, "shape": shape}
    write_array_header_2_0(file, about)
    return file.tell()


def _write_csv(path: Path, results: Iterator[Any], names: list[str]) -> None:
    with whole_file(path) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            writer = csv.writer(text)
            writer.writerow(names)
            for result in results:
                writer.writerows(result.reshape(len(result), -1).tolist())
        finally:
            text.detach()  # the file is closed by who has opened it


def _result_names(estimator: Any, method: str) -> list[str]:
    """Names of the columns of a result."""
    model = unwrap(estimator).model
    if method == "transform":
        return [str(name) for name in model.get_feature_names_out()]
    if method in ("predict_proba", "predict_log_proba"):
        return [str(label) for label in model.classes_]
    return [method]

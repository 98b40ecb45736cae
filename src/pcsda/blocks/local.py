"""Run the passes of a fit in this process, one block after the other."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from .. import validation
from ..core.linalg import Result
from ..progress import progress
from ..tables import refuse_overwrite
from .checkpoint import DONE, Checkpoint, describe
from .data import Blocks
from .files import open_blocks
from .fit import check_blockwise, fit_over
from .passes import Look, LookPass, Pass


def fit_blocks(
    estimator: BaseEstimator,
    blocks: object,
    *,
    y: object = None,
    subclass_labels: object = None,
    sample_weight: object = None,
    columns: list[str] | None = None,
    classes: ArrayLike | None = None,
    block_rows: int | None = None,
    sample_rows: int = 20_000,
    calibration_rows: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
) -> Any:
    """Fit an estimator block by block, on data that does not fit in memory.

    Parameters
    ----------
    estimator : PCSDA, CSDA or a Pipeline that ends in one of them
        The estimator to fit in place. Transformers in the pipeline, such as NystroemMap or
        FourierMap, are fitted on a seeded sample of rows and then applied block by block.
    blocks : path, list of paths, array, data frame, iterable or callable
        A ``.npy`` file; a ``.npz`` file with arrays ``X`` and ``y`` (and, optionally,
        `subclass_labels` and `sample_weight`); a Parquet or Arrow file, read by row groups or
        batches; a CSV file with a header; a folder, possibly with partitions such as ``year=2020``,
        or a list of files of one kind, in the order of their names; an array, which may be
        memory-mapped or sparse; a pandas, Polars or Arrow data frame; or an iterable of ``(X, y)``,
        ``(X, y, subclass_labels)`` or ``(X, y, subclass_labels, sample_weight)``. If a fit takes
        several passes, give a function that returns a new iterator instead of an iterator that can
        be read only once.
    y, subclass_labels, sample_weight : array, path or name
        Labels and weights of the rows. For arrays and ``.npy``: an array or a ``.npy`` file as long
        as the data, or, for a folder, a folder with files of the same names. For tables and
        ``.npz``: the name of the column or array. Iterables yield them together with X.
    columns : list of str, optional
        Feature columns of a table; by default, all columns other than labels and weights. A column
        of equally long lists is an embedding: each list entry is a feature.
    classes : array-like of shape (n_labels,), optional
        Both labels, or all labels if the model's `pos_label` is one of many. By default, blocks are
        searched until two labels, including `pos_label`, have been seen.
    block_rows : int, optional
        Number of rows per block for arrays, ``.npy`` and (roughly) CSV; by default, as many as fill
        64 MiB in float64.
    sample_rows : int, default=20000
        Number of rows in the seeded sample on which transformers and k-means are fitted.
    calibration_rows : int, optional
        Number of rows per class, drawn with a seed, that are removed from the fit in closed form,
        one at a time, and then scored. The covariances, the heaviness of the tails and the
        calibration are estimated from these rows, weighted so that each class keeps its total
        weight. The default is the estimator's setting, which is 5000 unless you change it.
    checkpoint : path, optional
        File that stores the state of the fit and is replaced every `checkpoint_seconds`. If the
        file exists, the fit resumes from it, with the same result as without the interruption. The
        file is deleted when the fit is done. It is rejected if the settings have changed, or if
        rows, labels, subclasses or weights have changed in any block read before; to check this, a
        resumed fit reads those blocks again. The file contains plain arrays and no code, but its
        numbers are trusted, so resume only from files that you wrote.
    checkpoint_seconds : float, default=30
        Seconds between saves; 0 saves after every block.

    Returns
    -------
    estimator
        The fitted estimator, without `partition_` and `loo_scores_`, which would be as long as the
        data. The scores of the sample of left-out rows are in `held_out_`.

    Notes
    -----
    One pass over the data collects the statistics and the sample of rows to leave out. K-means and
    transformers are fitted on a sample of rows, which takes an earlier pass. If calibration needs
    folds (CSDA, ``covariance="resubstitution"``), labels are counted first, statistics are kept for
    each fold, and one more pass scores each row with the model fitted without its fold.

    The result is the same as from `fit`, up to rounding, if neither class has more than
    `calibration_rows` rows and, where k-means is used, if there are at most `sample_rows` rows.
    With more rows, `fit` and `fit_blocks` draw different samples. Up to two million rows, the folds
    are the same as in `fit`; beyond that, each block draws its own folds.
    Memory is needed for a few D x D matrices and blocks. Sparse blocks are made dense one piece at
    a time.

    Data files may come from untrusted sources: no code in them is run (pickled arrays are refused),
    and arrays that claim more memory than is available are rejected before they are read. Numbers
    are trusted if they are finite.

    Examples
    --------
    >>> import numpy as np
    >>> from pcsda import PCSDA, fit_blocks
    >>> def blocks():
    ...     for seed in range(5):
    ...         rng = np.random.default_rng(seed)
    ...         y = rng.random(200) < 0.3
    ...         yield rng.standard_normal((200, 8)) + 2 * y[:, None], y
    >>> fit_blocks(PCSDA(n_subclasses=3, random_state=0), blocks).n_components_
    3
    """
    model = check_blockwise(estimator, sample_rows, calibration_rows)
    validation.check_count("block_rows", block_rows, None)
    validation.check_number("checkpoint_seconds", checkpoint_seconds)
    companions = {"y": y, "subclass_labels": subclass_labels, "sample_weight": sample_weight}
    found = open_blocks(blocks, columns=columns, block_rows=block_rows, **companions)
    kept = Checkpoint(None, {}, np.inf)
    if checkpoint is not None:
        refuse_overwrite(checkpoint, blocks, *companions.values())
        settings = [describe(estimator), describe(classes), sample_rows, calibration_rows]
        identity = {"settings": json.dumps(settings), "data": _identity(found)}
        kept = Checkpoint(Path(checkpoint), identity, checkpoint_seconds)
        kept.verify(found)
    runner = _InProcess(found, kept, model.verbose)
    fit_over(estimator, runner, classes, sample_rows, calibration_rows)
    kept.remove()
    return estimator


def _identity(blocks: Blocks) -> str:
    """Return a hash of the block stamps, which identify the data without reading them.

    The contents of a block are compared later, when the block is read.
    """
    if blocks.once:
        raise ValueError(
            "a checkpoint needs blocks that can be read again; pass a function that returns a new "
            "iterator"
        )
    return str(joblib.hash([address.stamp for address in blocks.addresses or ()]))


class _InProcess:
    """Runner for passes in this process, one block after the other, with a checkpoint."""

    moves = False

    def __init__(self, blocks: Blocks, checkpoint: Checkpoint, verbose: bool) -> None:
        self.blocks, self.checkpoint, self.verbose = blocks, checkpoint, verbose

    @property
    def once(self) -> bool:
        """Whether the blocks can be read only once."""
        return self.blocks.once

    def seed(self, draw: Callable[[], int]) -> int:
        """Draw a seed, or restore the seed stored in the checkpoint."""
        if self.checkpoint.seed is None:
            self.checkpoint.seed = draw()
        return self.checkpoint.seed

    def look(self, task: LookPass, first: bool) -> Look:
        """Read labels until both classes are seen or, if `first`, from the first block only."""
        look: Look | None = None
        for number, name, block in self.blocks.read(labels_only=True):
            look = task.join(look, task.of_block(number, name, block))
            assert look is not None
            enough = first or look.settled(task.pos_label)
            if self.blocks.once:
                if not enough:
                    labels = look.labels.tolist()
                    has = f"no {task.pos_label!r} but" if len(labels) > 1 else "one class only,"
                    raise ValueError(
                        f"block {number} ({name}) has {has} {labels}, and "
                        "an iterator that can be read only once cannot be searched for others; "
                        "give classes=[...]"
                    )
                assert self.blocks.start is not None
                self.blocks = Blocks(start=partial(chain, [block], self.blocks.start()), once=True)
            if enough:
                return look
        if look is None:
            raise ValueError("there are no blocks; the data are empty")
        return look

    def run(self, task: Pass[Result]) -> Result | None:
        """Run a pass, starting after the last block in the checkpoint."""
        result: Result | None
        taken, result = self.checkpoint.passes.get(task.name, (0, None))
        if taken == DONE:
            return result
        blocks = progress(
            self.blocks.ahead(taken, labels_only=not task.needs_rows),
            task.name,
            enabled=self.verbose and self.blocks.addresses is not None,
            total=len(self.blocks) - taken,
        )
        for number, name, block in blocks:
            self.checkpoint.see(number, name, block)
            result = task.join(result, task.of_block(number, name, block))
            taken = number + 1
            self.checkpoint.advance(task.name, taken, result)
        if taken == 0:
            raise ValueError(
                f"the pass for {task.name} found no blocks, but an earlier one did; the function "
                "must return a new iterator each time"
            )
        self.checkpoint.advance(task.name, DONE, result)
        return result

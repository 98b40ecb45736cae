"""The rows that a session searches: in memory, memory-mapped, sparse, or in blocks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.linalg import Array, Floats, Ints, Mask, one_thread
from ..core.warning import warn
from ..partition import find_centroids, nearest, settle_count
from ..tables import is_frame, of_frame, refuse_overwrite
from ..validation import MatrixLike

# Size in bytes of a block of rows that is scored at once.
BLOCK_BYTES = 8 * 2**20
# Number of sampled rows from which the mean and the clusters of the gallery are computed.
SAMPLE = 3000
# The fingerprint of a gallery larger than HASHED_BYTES covers only HASHED_ROWS evenly spaced rows.
HASHED_BYTES = 64 * 2**20
HASHED_ROWS = 2000
# A row is far off if its largest entry is this many times as large as in the median row: it would
# dominate every mean, cluster and fit.
FAR_OFF = 1e4
# Rows of words have fewer entries that are not zero. Features of pictures and sounds have more.
FEW_ENTRIES = 0.05
NOT_FINITE = "missing or infinite values"


class Gallery:
    """The rows to search, with distinct ids and with masks of the rows fit for use.

    Parameters
    ----------
    rows : array, memory map, sparse matrix, data frame, sequence of arrays, or sliceable
        Anything two-dimensional, with a `shape`, that returns rows for a slice, or a list of
        arrays to be concatenated by rows.
    ids : sequence of hashable or None
        A name for each row; if None, the rows are numbered.

    Attributes
    ----------
    usable : boolean array
        Which rows are finite.
    ordinary : boolean array
        Which finite rows are not far off: their largest entry is at most `FAR_OFF` times that of
        the median row. Only these rows are used for learning.
    """

    def __init__(self, rows: MatrixLike, ids: Sequence[Hashable] | None = None) -> None:
        self._parts = _parts(rows)
        self.shape = _shape(self._parts)
        self._edges = np.cumsum([0, *(part.shape[0] for part in self._parts)])
        self.ids = _check_ids(ids, self.shape[0])
        self._place = {name: place for place, name in enumerate(self.ids)}
        largest = np.concatenate(self._over_blocks(lambda rows, _: _largest_entries(rows)))
        self.usable = np.isfinite(largest)
        if not self.usable.any():
            raise ValueError(
                f"none of the {len(self)} rows of the gallery is finite; fill in the missing values"
            )
        self._tell_unusable()
        self.ordinary = self.usable & ~self._far_off(largest)

    def __len__(self) -> int:
        return self.shape[0]

    def _tell_unusable(self) -> None:
        """Warn about rows that are not finite. The command line shows the warning as a note."""
        lost = np.flatnonzero(~self.usable)
        if len(lost):
            warn(
                f"{len(lost)} of {len(self)} rows have {NOT_FINITE} and are never shown; the first "
                f"is {self.ids[lost[0]]!r}. Nothing is learned from them; fill them in to search "
                "them"
            )

    def _far_off(self, largest: Floats) -> Mask:
        """Return a mask of rows with far larger entries than the median row; warn about them."""
        middle = float(np.median(largest[self.usable]))
        far: Mask = self.usable & (largest > FAR_OFF * middle) & (middle > 0)
        if far.any():
            first = int(far.argmax())
            warn(
                f"{far.sum()} of {len(self)} rows have entries more than {FAR_OFF:g} times as "
                f"large as the median row; the first is {self.ids[first]!r} with "
                f"{largest[first]:.3g} against {middle:.3g}. Nothing is learned from them; "
                "correct them or leave them out",
            )
        return far

    def refuse_file(self, path: str | os.PathLike[str] | None) -> None:
        """Raise an error if writing a file would replace one that the gallery is mapped from."""
        refuse_overwrite(path, self._parts)

    def places(self, names: Iterable[Hashable]) -> Ints:
        """Return the row numbers of ids, all of which must be in the gallery."""
        return np.array([self._place[name] for name in names], dtype=np.intp)

    def place(self, name: Hashable) -> int | None:
        """Return the row number of an id, or None if it is not in the gallery."""
        try:
            return self._place.get(name)
        except TypeError:  # an unhashable object is not an id
            return None

    def take(self, places: Ints) -> Floats:
        """Return the rows at the given positions as a dense array of floats."""
        order = np.argsort(places, kind="stable")
        found = np.empty((len(places), self.shape[1]), dtype=self._dtype)
        for number, part in enumerate(self._parts):
            low, high = np.searchsorted(places[order], self._edges[number : number + 2])
            here = order[low:high]
            if len(here):
                found[here] = _dense(_pick(part, places[here] - self._edges[number]))
        return found

    def score(self, function: Callable[[Any], Floats]) -> Array:
        """Apply a scoring function to all rows; rows that are not finite get minus infinity."""

        def of_finite(rows: Any, first: int) -> Floats:
            usable = self.usable[first : first + rows.shape[0]]
            return function(rows if usable.all() else _emptied(rows, ~usable))

        scores = np.concatenate(self._over_blocks(of_finite)).astype(np.float64)
        scores[~self.usable] = -np.inf
        return scores

    def fingerprint(self) -> str:
        """Return a digest of the ids and rows. In a large gallery it covers only some rows."""
        digest = hashlib.sha256(repr((self.shape, self.ids)).encode())
        size = self.shape[0] * self.shape[1] * self._dtype.itemsize
        most = len(self) if size <= HASHED_BYTES else HASHED_ROWS
        places = np.unique(np.linspace(0, len(self) - 1, most).astype(np.intp))
        for start in range(0, len(places), 1000):
            digest.update(self.take(places[start : start + 1000]).tobytes())
        return digest.hexdigest()

    def sample(self, rng: np.random.Generator, most: int = SAMPLE) -> Ints:
        """Draw the numbers of at most `most` ordinary rows, in random order."""
        return np.asarray(rng.permutation(np.flatnonzero(self.ordinary))[:most])

    @property
    def _dtype(self) -> np.dtype[np.floating]:
        single = all(part.dtype in (np.float32, np.float16) for part in self._parts)
        return np.dtype(np.float32 if single else np.float64)

    def _blocks(self) -> Iterator[Any]:
        """Yield for each block the array that holds it, its slice, and its first row number."""
        step = max(1, BLOCK_BYTES // (self.shape[1] * self._dtype.itemsize))
        for part, edge in zip(self._parts, self._edges[:-1].tolist(), strict=True):
            for start in range(0, part.shape[0], step):
                yield part, slice(start, min(start + step, part.shape[0])), edge + start

    def _over_blocks(self, function: Callable[[Any, int], Any]) -> list[Any]:
        """Call a function with the rows and first row number of each block; return the results.

        The calls run in parallel, with one thread per core.
        """

        def work(block: tuple[Any, slice, int]) -> Any:
            part, rows, first = block
            return function(_floats(part[rows], self._dtype), first)

        blocks = list(self._blocks())
        if len(blocks) == 1:
            return [work(blocks[0])]
        with one_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(work, blocks))


class Clusters:
    """K-means clusters of a gallery, fitted once on a sample; rows are assigned on request.

    Attributes
    ----------
    mean : array of shape (n_columns,)
    of_words : bool
        Whether nearly all entries are zero, as in rows that count words.
    """

    def __init__(self, gallery: Gallery, seed: int) -> None:
        places = gallery.sample(np.random.default_rng(seed))
        rows = gallery.take(places)
        self.mean: Array = rows.mean(axis=0, dtype=np.float64)
        self.of_words = bool(np.count_nonzero(rows) < FEW_ENTRIES * rows.size)
        count = settle_count(rows, "auto")
        self._centroids = find_centroids(rows, count, None, seed) if count > 1 else self.mean[None]
        self._gallery = gallery

    @cached_property
    def lengths(self) -> Array:
        """The distance of each gallery row from the mean of the sampled rows."""

        def distance(rows: Any) -> Floats:
            about = _dense(rows) - self.mean.astype(rows.dtype)
            return np.asarray(np.linalg.norm(about, axis=1))

        with np.errstate(over="ignore", invalid="ignore"):
            return np.maximum(self._gallery.score(distance), np.finfo(np.float32).tiny)

    def of(self, rows: Floats) -> Ints:
        """Return the cluster number of each row."""
        return np.asarray(nearest(rows, self._centroids), dtype=np.intp)


def _parts(rows: Any) -> list[Any]:
    """Return the arrays that make up a gallery."""
    blocks = isinstance(rows, (list, tuple)) and rows and hasattr(rows[0], "shape")
    if blocks and len(rows[0].shape) == 2:
        return [_plain(part) for part in rows]
    return [_plain(rows)]


def _plain(rows: Any) -> Any:
    """Convert rows to a two-dimensional numeric array, sparse matrix or sliceable object."""
    if np.ma.is_masked(rows):
        raise ValueError(
            "the gallery has masked values, and masks would be ignored; fill them, with "
            ".filled(np.nan) to set their rows aside"
        )
    if sparse.issparse(rows):
        rows = rows.tocsr()
    elif is_frame(rows) or hasattr(rows, "to_numpy"):
        rows = _of_frame(rows)
    elif not (hasattr(rows, "shape") and hasattr(rows, "dtype")):
        rows = np.asarray(rows)
    if len(rows.shape) != 2:
        raise ValueError(
            f"the gallery has shape {tuple(rows.shape)} and must have two dimensions, rows and "
            "features"
        )
    if rows.dtype.kind not in "biuf":
        raise ValueError(f"the gallery has the type {rows.dtype}; it must hold numbers")
    return rows


def _of_frame(frame: Any) -> NDArray[Any]:
    """Convert a data frame to an array, with NaN for missing values.

    Lists of equal length in a column become an embedding.
    """
    rows = np.asarray(frame)
    # Lists, nullable numbers and booleans beside numbers become objects.
    if rows.dtype.kind in "biuf" or not is_frame(frame):
        return rows
    columns = of_frame(frame).columns
    for name, values in columns.items():
        if values.dtype.kind not in "biuf":
            raise ValueError(
                f"the column {name!r} of the gallery has the type {values.dtype} and must hold "
                "numbers; leave it out of the gallery"
            )
    return np.column_stack(list(columns.values()))


def _shape(parts: list[Any]) -> tuple[int, int]:
    widths = sorted({int(part.shape[1]) for part in parts})
    if len(widths) > 1:
        raise ValueError(
            f"the blocks of the gallery have {widths} columns; all need the same number"
        )
    count = sum(int(part.shape[0]) for part in parts)
    if count == 0 or widths[0] == 0:
        raise ValueError(
            f"the gallery is empty with shape {(count, widths[0])}; give at least one row and "
            "one column"
        )
    return count, widths[0]


def _check_ids(ids: Sequence[Hashable] | None, count: int) -> list[Hashable]:
    if ids is None:
        return list(range(count))
    names = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    names = [name.item() if isinstance(name, np.generic) else name for name in names]
    if len(names) != count:
        raise ValueError(f"ids has {len(names)} entries but the gallery has {count} rows")
    first: dict[Hashable, int] = {}
    for place, name in enumerate(names):
        if not isinstance(name, (str, int, float)) or isinstance(name, bool) or name != name:
            raise ValueError(f"the id of row {place} is {name!r}; ids must be text or numbers")
        if first.setdefault(name, place) != place:
            raise ValueError(
                f"ids must be distinct, but {name!r} names the rows {first[name]} and {place}; "
                "leave ids out to number the rows"
            )
    return names


def _pick(part: Any, places: Ints) -> Any:
    if isinstance(part, np.ndarray) or sparse.issparse(part):
        return part[places]
    # HDF5 files need sorted, distinct row numbers.
    rising, back = np.unique(places, return_inverse=True)
    return np.asarray(part[rising])[back]


def _floats(rows: Any, dtype: np.dtype[np.floating]) -> Any:
    if sparse.issparse(rows):
        return rows.astype(dtype, copy=False)
    return np.asarray(rows).astype(dtype, copy=False)


def _dense(rows: Any) -> NDArray[Any]:
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows)


def _emptied(rows: Any, bad: Mask) -> Any:
    """Return a copy of the rows in which the rows marked `bad` are zero.

    Estimators would reject a whole block if one of its rows were not finite.
    """
    rows = rows.copy()
    if sparse.issparse(rows):
        rows.data[np.repeat(bad, np.diff(rows.indptr))] = 0
    else:
        rows[bad] = 0
    return rows


def _largest_entries(rows: Any) -> Floats:
    """Return the largest absolute value in each row, or NaN or infinity if the row has one."""
    if sparse.issparse(rows):
        return np.asarray(abs(rows).max(axis=1).toarray().ravel())
    return np.asarray(np.maximum(rows.max(axis=1), -rows.min(axis=1)))

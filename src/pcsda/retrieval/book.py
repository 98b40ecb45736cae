"""The answers given in a session, matched to rows of the gallery."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Container, Iterable
from numbers import Real
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.linalg import Array, Ints
from .gallery import NOT_FINITE, Gallery
from .store import VALUES, Entry, OtherGalleryError, Store

NO_EXAMPLE = (
    "no row has been answered yes yet; label at least one example of what you are looking for"
)


class LabelBook:
    """The stored answers that belong to rows of a gallery.

    Parameters
    ----------
    gallery : Gallery
    store : Store
    carry_over : bool
        Whether a store made for another gallery may be used.
    """

    def __init__(self, gallery: Gallery, store: Store, carry_over: bool) -> None:
        self.gallery = gallery
        self.store = store
        self._lock = RLock()  # several threads read the answers
        self._read_at: tuple[int, int] | None = None
        self._entries: list[Entry] = []
        self._values: dict[Any, bool | None] = {}
        self._check_gallery(carry_over)

    def _check_gallery(self, carry_over: bool) -> None:
        """Reject a store that belongs to another gallery, unless `carry_over` is set."""
        mark, shape = self.gallery.fingerprint(), str(self.gallery.shape)
        before, was = self.store.fact("fingerprint"), self.store.fact("shape")
        if before not in (None, mark) and not carry_over and self.store.entries():
            other = "the same shape, but other rows, ids or type of numbers"
            if was != shape:
                other = f"shape {was}; this one has {shape}"
            self.store.close()
            raise OtherGalleryError(self.store.path, other)
        if before != mark:
            if before is not None:
                self.store.end_audits()
            self.store.keep("fingerprint", mark)
            self.store.keep("shape", shape)

    def add(
        self,
        ids: Any,
        values: ArrayLike,
        who: str | None,
        model: int,
        scores_of: Callable[[Ints], Array],
    ) -> None:
        """Store answers for ids in the gallery.

        If some ids are not in the gallery, the other answers are stored before a ValueError is
        raised. `scores_of` takes row numbers and returns the score of each row before it was
        answered, or NaN for a row without a score.
        """
        names = self._checked(ids)
        answers = answers_of(values, len(names))
        rows, known, lost = [], [], []
        for name, value in zip(names, answers, strict=True):
            place = self.gallery.place(name)
            if place is None:
                lost.append(name)
            else:
                rows.append(self.gallery.ids[place])
                known.append(value)
        if known:
            found = scores_of(self.gallery.places(rows)).tolist()
            scores = [score if np.isfinite(score) else None for score in found]
            self.store.add(rows, known, who or user_name(), model, scores)
        if lost:
            others = f"{len(known)} other labels were" if len(known) > 1 else "the other label was"
            raise ValueError(self._unknown(lost) + (f"; {others} stored" if known else ""))

    def _unknown(self, lost: list[Any]) -> str:
        """Return the message about ids that are not in the gallery."""
        which = f"the id {lost[0]!r} is not in the gallery, whose"
        if len(lost) > 1:
            which = f"{len(lost)} ids are not in the gallery, the first of them {lost[0]!r}; its"
        if self._numbered:
            return f"{which} ids are the row numbers 0 to {len(self.gallery) - 1}"
        return f"{which} ids look like {self.gallery.ids[0]!r}"

    @property
    def _numbered(self) -> bool:
        """Whether the ids are row numbers."""
        return bool(self.gallery.ids == list(range(len(self.gallery))))

    def _checked(self, ids: Any) -> list[Any]:
        """Return ids as a list. Reject a mask, because True and False equal the ids 1 and 0."""
        names = listed(ids)
        if any(isinstance(name, bool) for name in names):
            remedy = "np.flatnonzero(mask)" if self._numbered else "np.asarray(ids)[mask]"
            raise ValueError(f"True and False are not ids; give {remedy} to label rows by a mask")
        return names

    def history(self) -> list[Entry]:
        """Return all answers for ids in the gallery, except those that were undone."""
        with self._lock:
            self._read()
            return list(self._entries)

    def _read(self) -> None:
        """Read the answers that were stored or undone since the last call."""
        state = self.store.state()
        if state != self._read_at:
            # Only an undo changes stored labels, so usually only new labels are read. Another
            # program may add labels after `state` is read; they must not be read twice.
            if self._read_at is None or state[1] != self._read_at[1]:
                self._read_at, self._entries, self._values = (0, state[1]), [], {}
            last = self._read_at[0]
            for entry in self.store.entries(last):
                last = entry.number
                if entry.undone is None and self.gallery.place(entry.id) is not None:
                    self._entries.append(entry)
                    self._values.pop(entry.id, None)  # so that ids are in the order of answers
                    self._values[entry.id] = entry.value
            self._read_at = last, state[1]

    def values(self) -> dict[Any, bool | None]:
        """Return the current answer for each id, which is the latest one given."""
        with self._lock:
            self._read()
            return dict(self._values)

    def ranked(self, others: Container[Any]) -> list[Entry]:
        """Return the latest yes or no for each row that a model had ranked, in answer order.

        The ids in `others` are omitted.
        """
        with self._lock:
            last = {entry.id: entry for entry in self.history()}
            values = dict(self._values)
        return [
            last[name]
            for name, value in values.items()
            if value is not None and last[name].model > 0 and name not in others
        ]

    def rows(self, value: bool | None) -> Ints:
        """Return the numbers of the finite rows whose answer is `value`, in answer order."""
        values = self.values()
        places = self.gallery.places(name for name in values if values[name] is value)
        return np.asarray(places[self.gallery.usable[places]])

    def finite_values(self) -> dict[Any, bool | None]:
        """Return the current answer for each id of a finite row, in answer order."""
        usable = self.gallery.usable
        return {name: v for name, v in self.values().items() if usable[self.gallery.place(name)]}

    def no_example(self) -> str:
        """Return a message that says why there is nothing to learn from.

        The message names a row that was answered yes but is not finite, if there is one.
        """
        for name, value in self.values().items():
            if value is True and not self.gallery.usable[self.gallery.place(name)]:
                return (
                    f"nothing can be learned from row {name!r}, which was answered yes but has "
                    f"{NOT_FINITE}; label an example that is finite"
                )
        finite = "" if self.gallery.usable.all() else f", in a row without {NOT_FINITE}"
        return NO_EXAMPLE + finite

    def uncovered(self) -> str:
        """Return a sentence with the number of unanswered rows that are not finite.

        No bound on the number of members left covers these rows. If there are none, return an
        empty string.
        """
        lost = ~self.gallery.usable
        lost[self.gallery.places(self.values())] = False
        text = f"Rows with {NOT_FINITE} can never be shown and are not counted"
        return f"{text}: {lost.sum()} of {len(lost)}." if lost.any() else ""

    def free(self) -> Ints:
        """Return the numbers of the finite rows without an answer."""
        return self._finite_without(self.values())

    def undecided(self) -> Ints:
        """Return the numbers of the finite rows that were skipped or have no answer."""
        values = self.values()
        return self._finite_without(name for name in values if values[name] is not None)

    def _finite_without(self, ids: Iterable[Any]) -> Ints:
        """Return the numbers of the finite rows except those with the given ids."""
        kept = self.gallery.usable.copy()
        kept[self.gallery.places(ids)] = False
        return np.flatnonzero(kept)


def listed(ids: Any) -> list[Any]:
    """Return one or more ids as a list, converting NumPy scalars to Python objects."""
    if isinstance(ids, np.ndarray):
        return list(np.atleast_1d(ids).tolist())
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        ids = [ids]
    return [name.item() if isinstance(name, np.generic) else name for name in ids]


def answers_of(values: Any, count: int) -> list[bool | None]:
    """Return one answer for each of `count` ids; a single value applies to all of them."""
    if values is None or isinstance(values, (str, bool, int, np.generic)):
        values = [values] * count
    answers = [_answer(value) for value in listed(values)]
    if len(answers) != count:
        raise ValueError(f"{len(answers)} values were given for {count} ids; give one for each")
    return answers


def _answer(value: object) -> bool | None:
    if isinstance(value, str) and value in VALUES:
        return VALUES[value]
    if value is None or (isinstance(value, Real) and value in (0, 1)):
        return None if value is None else bool(value)
    raise ValueError(
        f"{value!r} is not an answer; use True, False or None, or 'yes', 'no' or 'skip'"
    )


def user_name() -> str:
    """Return the name of the user who runs this program."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # the environment does not name the user
        return "unknown"

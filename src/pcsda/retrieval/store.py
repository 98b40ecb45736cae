"""A SQLite file for a session's labels, which are written immediately and never overwritten."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Any

from ..writing import whole_file

# "PCSD" as a number, in the header of every store.
APPLICATION = 0x50435344
FORMAT = 1
# Seconds to wait for another program that is writing at the same time.
PATIENCE = 30.0
WORDS = {True: "yes", False: "no", None: "skip"}
VALUES = {word: value for value, word in WORDS.items()}

_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE labels (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  act INTEGER NOT NULL,
  id TEXT NOT NULL,
  value TEXT NOT NULL CHECK (value IN ('yes', 'no', 'skip')),
  who TEXT NOT NULL,
  at TEXT NOT NULL,
  model INTEGER NOT NULL,
  undone TEXT
);
CREATE TABLE audits (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  audit INTEGER NOT NULL,
  id TEXT NOT NULL,
  pool INTEGER NOT NULL,
  after INTEGER NOT NULL,
  at TEXT NOT NULL
);
"""


class StoreError(ValueError):
    """Error raised if a store cannot be used; the message suggests a remedy."""


class OtherGalleryError(StoreError):
    """Error raised if a store has labels for another gallery."""

    def __init__(self, path: object, other: str) -> None:
        super().__init__(path, other)
        self.path, self.other = path, other

    def __str__(self) -> str:
        return self.saying("carry_over=True")

    def saying(self, setting: str) -> str:
        """Return the message; `setting` keeps the labels of the ids that both galleries have."""
        return (
            f"{self.path} has labels for another gallery ({self.other}); give that gallery, "
            f"another store, or {setting} to keep the labels of the ids that are still there"
        )


@dataclass(frozen=True)
class Entry:
    """A label that a user gave to a row.

    Attributes
    ----------
    number : int
        Sequence number of the label in its store.
    act : int
        Number shared by all labels that were given together.
    id : hashable
    value : bool or None
        None means "skip".
    who, at : str
        The user, and the time in UTC in ISO format.
    model : int
        Number of the last label that the model had seen when the row was shown.
    undone : str or None
        When the label was undone, or None.
    score : float or None
        The row's log-likelihood ratio from the model at the time, or None if there was no model or
        it had already learned from an answer for this row.
    """

    number: int
    act: int
    id: Any
    value: bool | None
    who: str
    at: str
    model: int
    undone: str | None
    score: float | None = None


@dataclass(frozen=True)
class Audit:
    """A random sample of the unanswered rows, drawn to check how many members are left.

    Attributes
    ----------
    ids : list
    pool : int
        Number of rows the sample was drawn from.
    after : int
        Number of the last label before the sample was drawn.
    """

    ids: list[Any]
    pool: int
    after: int


class Store:
    """The labels, audits and named facts, such as the seed, of one session.

    Parameters
    ----------
    path : path or None
        SQLite file, created if missing; if None, labels are kept in memory.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._lock = RLock()
        if self.path is not None and not self.path.resolve().parent.is_dir():
            raise StoreError(
                f"{path}: there is no folder {self.path.resolve().parent}; create it first"
            )
        if self.path is not None and self.path.is_dir():
            raise StoreError(f"{self.path} is a folder; give the name of a file for the labels")
        with self._explained():
            # Every statement is its own transaction and is on disk when it returns.
            self._base = sqlite3.connect(
                ":memory:" if self.path is None else self.path,
                timeout=PATIENCE,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._prepare()
            except BaseException:
                self._base.close()
                raise

    def _prepare(self) -> None:
        run = self._base.execute
        run("PRAGMA synchronous = FULL")
        with self._writing():
            empty = run("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
            if empty and run("PRAGMA application_id").fetchone()[0] == 0:
                for statement in _TABLES.split(";"):
                    run(statement)
                run(f"PRAGMA application_id = {APPLICATION}")
                run(f"PRAGMA user_version = {FORMAT}")
        if run("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise StoreError(f"{self.path} is a database, not a store of labels; give another name")
        found = run("PRAGMA user_version").fetchone()[0]
        if found != FORMAT:
            raise StoreError(
                f"{self.path} has format {found}, and this version of pcsda knows format {FORMAT}; "
                "open it with the version that wrote it. Nothing was changed"
            )
        if run("PRAGMA quick_check").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("its pages are inconsistent")
        with self._writing():
            # Earlier versions kept no scores. They can still read and write a file that has them.
            if "score" not in {row[1] for row in run("PRAGMA table_info(labels)")}:
                run("ALTER TABLE labels ADD COLUMN score REAL")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn SQLite errors into a StoreError whose message suggests a remedy."""
        try:
            with self._lock:
                yield
        except (sqlite3.DatabaseError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise StoreError(self._explanation(error)) from error

    def _explanation(self, error: Exception) -> str:
        # Python reports text that is not UTF-8 as an operational error; SQLite has no such error.
        damaged = "decode to UTF-8" in str(error)
        if getattr(error, "sqlite_errorname", "") == "SQLITE_READONLY_DBMOVED":
            return (
                f"{self.path} was removed, renamed or replaced while the session was open; save "
                "the session under another name before you close it, or its labels may be lost"
            )
        if isinstance(error, sqlite3.OperationalError) and not damaged:
            return (
                f"{self.path} cannot be read or written ({error}); check that the disk has room, "
                "the file is writable and no other program holds it. The stored labels are safe"
            )
        if isinstance(error, sqlite3.ProgrammingError):
            return f"the session is closed ({error}); open it again. Labels in a file are safe"
        return (
            f"{self.path} is damaged or not a store of labels ({error}). It was left as it is: "
            f'save what can be read with sqlite3 "{self.path}" ".recover", or give another name'
        )

    def _rows(self, find: str, *given: Any) -> list[Any]:
        """Return what a query finds."""
        with self._explained():
            return self._base.execute(find, given).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Run several statements as one transaction; other programs wait before they write."""
        with self._base:  # commits, or rolls back after an error
            self._base.execute("BEGIN IMMEDIATE")
            yield

    def add(
        self,
        ids: Sequence[Any],
        values: Sequence[bool | None],
        who: str,
        model: int,
        scores: Sequence[float | None] | None = None,
    ) -> None:
        """Write labels that were given together; they are on disk when this method returns."""
        scores = [None] * len(ids) if scores is None else scores
        who = _person(who)
        with self._explained(), self._writing():
            ((act,),) = self._rows("SELECT coalesce(max(act), 0) + 1 FROM labels")
            self._base.executemany(
                "INSERT INTO labels (act, id, value, who, at, model, score) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (act, _write(name), WORDS[value], who, _now(), model, score)
                    for name, value, score in zip(ids, values, scores, strict=True)
                ],
            )

    def undo(self, who: str | None = None) -> list[Any]:
        """Undo the labels last given together by `who`, or by anyone, and return their ids."""
        name = None if who is None else _person(who)
        with self._explained(), self._writing():
            find = "SELECT max(act) FROM labels WHERE undone IS NULL AND (? IS NULL OR who = ?)"
            ((act,),) = self._rows(find, name, name)
            ids = self._rows("SELECT id FROM labels WHERE act = ?", act)
            self._base.execute("UPDATE labels SET undone = ? WHERE act = ?", (_now(), act))
            return list(dict.fromkeys(json.loads(name) for (name,) in ids))

    def entries(self, after: int = 0) -> list[Entry]:
        """Return the labels numbered above `after`, in order, including undone ones."""
        columns = "number, act, id, value, who, at, model, undone, score"
        find = f"SELECT {columns} FROM labels WHERE number > ? ORDER BY number"
        with self._explained():
            return [
                Entry(number, act, json.loads(name), VALUES[value], *rest)
                for number, act, name, value, *rest in self._rows(find, after)
            ]

    def state(self) -> tuple[int, int]:
        """Return the number of the last label and the count of undone labels.

        Every label and every undo changes this pair.
        """
        ((last, undone),) = self._rows("SELECT coalesce(max(number), 0), count(undone) FROM labels")
        return last, undone

    def draw(self, ids: Sequence[Any], pool: int, after: int, extend: bool) -> None:
        """Record the ids of a new audit, or add them to the last audit if `extend` is set."""
        with self._explained(), self._writing():
            last = self._last_audit()
            self._base.executemany(
                "INSERT INTO audits (audit, id, pool, after, at) VALUES (?, ?, ?, ?, ?)",
                [(last + (not extend), _write(name), pool, after, _now()) for name in ids],
            )

    def end_audits(self) -> None:
        """Make `audits` ignore all audits so far, because they come from another gallery."""
        self.keep("ended_audits", str(self._last_audit()))

    def _last_audit(self) -> int:
        """Return the number of the last audit, or 0 if there is none."""
        ((last,),) = self._rows("SELECT coalesce(max(audit), 0) FROM audits")
        return int(last)

    def audits(self) -> list[Audit]:
        """Return the audits of this gallery, in the order they were drawn."""
        find = "SELECT audit, id, pool, after FROM audits WHERE audit > ? ORDER BY number"
        found: dict[int, Audit] = {}
        with self._explained():
            for number, name, pool, after in self._rows(find, int(self.fact("ended_audits") or 0)):
                found.setdefault(number, Audit([], pool, after)).ids.append(json.loads(name))
        return list(found.values())

    def fact(self, name: str) -> str | None:
        """Return the value of a named fact, or None if it is not stored."""
        found = self._rows("SELECT value FROM facts WHERE name = ?", name)
        return str(found[0][0]) if found else None

    def keep(self, name: str, value: str) -> None:
        """Store a named fact."""
        with self._explained():
            self._base.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Copy the store to another file, atomically; a copy to its own file changes nothing."""
        if self.path is not None and os.path.exists(path) and self.path.samefile(path):
            return  # replacing a file that is open here would cut this store off from it
        with self._explained():
            content = self._base.serialize()
        with whole_file(path) as file:
            file.write(content)

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._base.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _person(who: object) -> str:
    if not isinstance(who, str):
        raise ValueError(
            f"who={who!r} must be text, the name of a person; leave it out to undo the last call "
            "by anyone, or to label under your own name"
        )
    return _legible(who)


def _legible(text: str) -> str:
    """Make text valid UTF-8; ids may be file names with invalid bytes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _write(name: object) -> str:
    """Convert an id to JSON text, which distinguishes 3 from "3"."""
    text = json.dumps(name, ensure_ascii=False, default=str)
    return text if text == _legible(text) else json.dumps(name, default=str)

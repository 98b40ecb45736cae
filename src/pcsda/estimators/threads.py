"""Thread safety: a call sees a model either before or after an update, never in between.

An update changes a copy, and then the estimator takes over all attributes of the copy at once. A
read starts from a snapshot of all attributes. Updates of the same estimator wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from threading import Lock, RLock
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

Model = TypeVar("Model")
Given = ParamSpec("Given")
Answer = TypeVar("Answer")

# The locks are not attributes, because a lock can be neither pickled nor copied.
_LOCKS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_GUARD = Lock()
if hasattr(os, "register_at_fork"):  # in a forked child, no thread is left to release the locks
    os.register_at_fork(after_in_child=_LOCKS.clear)


def twin_of(model: Model) -> Model:
    """Return a new object that shares the model's current attributes."""
    twin = object.__new__(type(model))
    twin.__dict__.update(model.__dict__)
    return twin


def reads(
    method: Callable[Concatenate[Model, Given], Answer],
) -> Callable[Concatenate[Model, Given], Answer]:
    """Make a method read from a snapshot of the estimator."""

    @wraps(method)
    def read(self: Model, /, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        return method(twin_of(self), *args, **kwargs)

    return read


def updates(
    method: Callable[Concatenate[Model, Given], Any],
) -> Callable[Concatenate[Model, Given], Model]:
    """Make a method change the estimator atomically: if the method fails, nothing changes."""

    @wraps(method)
    def update(self: Model, /, *args: Given.args, **kwargs: Given.kwargs) -> Model:
        with _GUARD:
            lock = _LOCKS.setdefault(self, RLock())
        with lock:
            twin = twin_of(self)
            method(twin, *args, **kwargs)
            self.__dict__ = twin.__dict__
        return self

    return update

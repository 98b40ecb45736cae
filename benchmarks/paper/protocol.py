"""The protocol of the paper: problems, splits, folds, metrics, and all rows of one problem.

What the paper leaves open is decided here, in `grids.py` and in `methods`; `README.md` in this
folder lists these decisions.
"""

from __future__ import annotations

import platform
import time
import traceback
import warnings
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy
import sklearn
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

import pcsda

from .datasets import Dataset
from .grids import Setting
from .methods import METHODS, Method
from .rows import Row
from .spaces import Array, Space

TRAINING_SHARE = 0.7
# A set with at most ALL_CLASSES classes uses all of them, a larger set a seeded SOME_CLASSES.
ALL_CLASSES = 15
SOME_CLASSES = 10
METRICS = {"ranking": "average precision", "classification": "F1"}
VERSIONS = {
    "python": platform.python_version(),
    **{m.__name__: m.__version__ for m in (pcsda, np, scipy, sklearn)},
}


@dataclass(frozen=True)
class Protocol:
    """How thorough a run is. Rows of different profiles are never mixed."""

    profile: str
    n_splits: int
    n_folds: int
    exact_up_to: int
    n_landmarks: int
    most_settings: int | None = None

    def grid(self, method: Method) -> list[Setting]:
        """Return the settings of a method; a quick run takes a few of them, spread evenly."""
        if self.most_settings is None or len(method.grid) <= self.most_settings:
            return method.grid
        spread = np.linspace(0, len(method.grid) - 1, self.most_settings)
        return [method.grid[int(number)] for number in spread.round()]


FULL = Protocol("full", n_splits=5, n_folds=5, exact_up_to=2000, n_landmarks=1000)
QUICK = Protocol("quick", n_splits=1, n_folds=3, exact_up_to=0, n_landmarks=250, most_settings=7)


@dataclass(frozen=True)
class Unit:
    """One class-specific problem with one split, and the methods that have yet to run on it."""

    dataset: str
    label: str
    split: int
    methods: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.dataset}, class {self.label}, split {self.split}"

    @property
    def seed(self) -> int:
        """Seed for the split, the folds and a method's draws; it depends only on the names."""
        return zlib.crc32(f"{self.dataset}/{self.label}/{self.split}".encode())


@dataclass
class Outcome:
    """The rows of a unit, and what went wrong for each method."""

    unit: Unit
    rows: list[Row] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


def chosen_classes(dataset: Dataset) -> list[str]:
    """Return all classes, or some drawn with a seed that depends on the name of the set."""
    if len(dataset.classes) <= ALL_CLASSES:
        return list(dataset.classes)
    rng = np.random.default_rng(zlib.crc32(dataset.name.encode()))
    numbers = np.sort(rng.choice(len(dataset.classes), SOME_CLASSES, replace=False))
    return [dataset.classes[number] for number in numbers]


def split_rows(y: Array, seed: int) -> tuple[Array, Array]:
    """Draw 70 % of the positives and 70 % of the negatives for training, the rest for testing."""
    rng = np.random.default_rng(seed)
    train, test = [], []
    for part in (np.flatnonzero(y), np.flatnonzero(~y)):
        order, count = rng.permutation(part), round(TRAINING_SHARE * len(part))
        train.append(order[:count])
        test.append(order[count:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


def average_precisions(y: Array, scores: Array) -> Array:
    """Compute the average precision of each row of scores; tied scores share a threshold."""
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked, hits = np.take_along_axis(scores, order, axis=1), y[order]
    places = np.arange(1, len(y) + 1)
    precision = np.cumsum(hits, axis=1) / places
    ends = np.ones_like(hits)
    ends[:, :-1] = ranked[:, :-1] != ranked[:, 1:]
    # Tied samples all count at the last of their places.
    last = np.where(ends, places, len(y) + 1)[:, ::-1]
    last = np.minimum.accumulate(last, axis=1)[:, ::-1] - 1
    return np.sum(hits * np.take_along_axis(precision, last, axis=1), axis=1) / y.sum()


def f1_scores(y: Array, scores: Array) -> Array:
    """Compute the F1 of each row of decision values; 0 if nothing is accepted."""
    called = scores >= 0
    return 2 * np.sum(called & y, axis=1) / (np.sum(called, axis=1) + y.sum())


def fold_values(kind: str, y: Array, scores: Array) -> Array:
    """Compute the metric of each setting in a fold; NaN if a setting could not be fitted."""
    usable = np.isfinite(scores).all(axis=1)
    values = np.full(len(scores), np.nan)
    measure = average_precisions if kind == "ranking" else f1_scores
    values[usable] = measure(y, scores[usable])
    return values


def best_setting(values: list[Array]) -> int:
    """Return the index of the setting with the best mean over folds; ties go to the first."""
    mean = np.mean(values, axis=0)  # NaN if any fold has NaN
    if np.isnan(mean).all():
        raise ValueError("no setting could be fitted in every fold")
    return int(np.nanargmax(np.round(mean, 12)))


def measure_test(kind: str, y: Array, scores: Array) -> float:
    if kind == "ranking":
        return float(average_precision_score(y, scores))
    return float(f1_score(y, scores >= 0, zero_division=0.0))


def run_unit(dataset: Dataset, unit: Unit, protocol: Protocol) -> Outcome:
    """Choose each method's setting on folds of the training part; measure it on the test part."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("always")
        return _Run(dataset, unit, protocol).outcome()


class _Run:
    """The work on one unit, fold by fold, so that only one fold's factorisations are kept."""

    def __init__(self, dataset: Dataset, unit: Unit, protocol: Protocol) -> None:
        self.unit, self.protocol = unit, protocol
        self.result = Outcome(unit)
        self.seconds = dict.fromkeys(unit.methods, 0.0)
        self.warned: dict[str, set[str]] = {name: set() for name in unit.methods}
        y = dataset.y == dataset.classes.index(unit.label)
        train, test = split_rows(y, unit.seed)
        self.X, self.y, self.shape = dataset.X[train], y[train], dataset.shape
        self.X_test, self.y_test = dataset.X[test], y[test]

    def outcome(self) -> Outcome:
        chosen = self._choose()
        space = self._space(self.X, self.y, self.X_test)
        for method in self._standing():
            rows: list[Row] = []
            with self._watch(method):
                rows = list(self._report(method, space, chosen[method.name]))
            noted = {"warnings": sorted(self.warned[method.name])}
            self.result.rows += [row | noted for row in rows]
        return self.result

    def _standing(self) -> Iterable[Method]:
        return [METHODS[n] for n in self.unit.methods if n not in self.result.failures]

    def _space(self, X: Array, y: Array, others: Array) -> Space:
        sizes = (self.protocol.exact_up_to, self.protocol.n_landmarks, len(self.X))
        return Space(X, y, others, self.unit.seed, *sizes, self.shape)

    def _choose(self) -> dict[str, dict[str, int]]:
        """Return the index of the best setting, by method and kind."""
        tally: dict[tuple[str, str], list[Array]] = {}
        folds = StratifiedKFold(self.protocol.n_folds, shuffle=True, random_state=self.unit.seed)
        for train, held in folds.split(self.X, self.y):
            space = self._space(self.X[train], self.y[train], self.X[held])
            for method in self._standing():
                if method.choose is None:
                    continue
                with self._watch(method):
                    scores = method.choose(space, self.protocol.grid(method))
                    for kind in method.kinds:
                        values = fold_values(kind, self.y[held], scores[kind])
                        tally.setdefault((method.name, kind), []).append(values)
        chosen: dict[str, dict[str, int]] = {name: {} for name in self.unit.methods}
        for method in self._standing():
            with self._watch(method):
                for kind in method.kinds:
                    values = tally.get((method.name, kind))
                    chosen[method.name][kind] = 0 if values is None else best_setting(values)
        return chosen

    def _report(self, method: Method, space: Space, chosen: dict[str, int]) -> Iterator[Row]:
        grid = self.protocol.grid(method)
        done: dict[int, Any] = {}
        for kind in method.kinds:
            number = chosen[kind]
            if number not in done:
                begin, params = time.process_time(), dict(grid[number])
                scores = method.report(space, params)
                n_settings = params.pop("n_settings", len(grid))
                done[number] = scores, params, n_settings, time.process_time() - begin
            scores, params, n_settings, seconds = done[number]
            if not np.isfinite(scores[kind]).all():
                raise ValueError(f"scores at {params} are not finite")
            yield {
                "dataset": self.unit.dataset,
                "class": self.unit.label,
                "split": self.unit.split,
                "method": method.name,
                "kind": kind,
                "metric": METRICS[kind],
                "value": measure_test(kind, self.y_test, scores[kind]),
                "params": {name: _plain(value) for name, value in params.items()},
                "n_settings": n_settings,
                "n_train": len(self.y),
                "n_positive": int(self.y.sum()),
                "n_test": len(self.y_test),
                "seconds": round(self.seconds[method.name] + seconds, 3),
                "seed": self.unit.seed,
                "profile": self.protocol.profile,
                "versions": VERSIONS,
            }

    def _watch(self, method: Method) -> _Watch:
        return _Watch(self, method.name)


class _Watch:
    """Record a method's processor time, warnings and failure; the other methods go on."""

    def __init__(self, run: _Run, name: str) -> None:
        self.run, self.name = run, name
        self.record = warnings.catch_warnings(record=True)

    def __enter__(self) -> None:
        self.begin = time.process_time()
        self.caught = self.record.__enter__()
        warnings.simplefilter("always")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.record.__exit__(kind, error, trace)
        self.run.seconds[self.name] += time.process_time() - self.begin
        self.run.warned[self.name] |= {w.category.__name__ for w in self.caught or []}
        if not isinstance(error, Exception):
            return False
        self.run.result.failures[self.name] = "".join(traceback.format_exception(error))
        return True


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value

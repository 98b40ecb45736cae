"""Simulated users who search a collection for a class, with pcsda and with other methods.

    python -m benchmarks.search                       the whole study; resumes
    python -m benchmarks.search --sets ISOLET --classes 3 --starts 3 --minutes 5
    python -m benchmarks.search --page                docs/search_study.md from stored rows

A user starts with some examples of a class and labels the rows that a method ranks first, in
batches and always correctly. The settings of the session were chosen on ISOLET and USPS.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from pcsda import SearchSession

from .markdown import details, table
from .paper.datasets import AbsentError, Dataset, load
from .paper.rows import Row, RowFile, read
from .planted_text import RIDGES, least_squares

HERE = Path(__file__).parent
ROWS = HERE / "search.jsonl.gz"
PAGE = HERE.parent / "docs" / "search_study.md"
SETS = ("ISOLET", "USPS", "15 scenes", "Caltech101")
REVIEWS = ("nagtegaal_2019", "bannach_brown_2019", "kitchenham_2010")
STARTS = (1, 3, 10)
LABELS, BATCH = 200, 25
MARKS = (50, 100, 200)
WEAK = 300
KEY = ("dataset", "class", "start", "draw", "method")


class Start(NamedTuple):
    """All rows, which of them belong to the class, and the first answers."""

    X: object
    truth: np.ndarray
    yes: list[int]
    no: list[int]


@dataclass
class Search:
    """The data for a compared method: all rows, the answers, and unchecked random rows."""

    X: object
    truth: np.ndarray
    yes: list[int]
    no: list[int] = field(default_factory=list)
    seed: int = 0

    def __post_init__(self) -> None:
        order = np.random.default_rng(self.seed).permutation(self.X.shape[0])
        self._drawn = order[:WEAK]

    @cached_property
    def gram(self) -> np.ndarray:
        """Inner products of all rows of a sparse matrix, plus one for an intercept."""
        return (self.X @ self.X.T).toarray() + 1.0

    def training(self, weak: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return training rows, their labels, and a mask of the random rows without an answer."""
        extra = np.setdiff1d(self._drawn, [*self.yes, *self.no]) if weak else []
        rows = np.array([*self.yes, *self.no, *extra], dtype=int)
        known = len(self.yes) + len(self.no)
        return rows, np.arange(len(rows)) < len(self.yes), np.arange(len(rows)) >= known


Score = Callable[[Search], np.ndarray]
RIVALS: dict[str, Score] = {}
DOCUMENTS: dict[str, Score] = {}


def enter(table: dict[str, Score], name: str) -> Callable[[Score], Score]:
    def add(function: Score) -> Score:
        table[name] = function
        return function

    return add


@enter(RIVALS, "cosine, Rocchio")
def rocchio(search: Search) -> np.ndarray:
    aim = search.X[search.yes].mean(axis=0)
    if search.no:
        aim = aim - 0.25 * search.X[search.no].mean(axis=0)
    return normalize(search.X) @ aim


def logistic(search: Search, weight: float, balanced: bool = False) -> np.ndarray:
    rows, positive, weak = search.training()
    weights = np.where(weak, weight, 1.0)
    kind = "balanced" if balanced else None
    model = LogisticRegression(class_weight=kind, max_iter=200)
    model.fit(search.X[rows], positive, sample_weight=weights)
    return model.decision_function(search.X)


@enter(RIVALS, "logistic regression")
def logistic_plain(search: Search) -> np.ndarray:
    return logistic(search, 1.0)


@enter(RIVALS, "logistic regression, balanced")
def logistic_balanced(search: Search) -> np.ndarray:
    return logistic(search, 1.0, balanced=True)


@enter(RIVALS, "logistic regression, weak 0.05")
def logistic_weak(search: Search) -> np.ndarray:
    return logistic(search, 0.05)


@enter(RIVALS, "uncertainty sampling")
def uncertain(search: Search) -> np.ndarray:
    """Rank by closeness to even odds and by score in alternate batches, with the same model."""
    scores = logistic(search, 0.05)
    order = np.argsort(np.argsort(-np.abs(scores)))
    best = np.argsort(np.argsort(scores))
    turn = (len(search.yes) + len(search.no)) // BATCH % 2
    return order if turn else best


def svm(search: Search, weak: bool) -> np.ndarray:
    rows, positive, _ = search.training(weak)
    model = LinearSVC(C=0.11, class_weight={True: 9.8, False: 1.0})
    return model.fit(search.X[rows], positive).decision_function(search.X)


@enter(RIVALS, "linear SVM as ASReview")
def svm_weak(search: Search) -> np.ndarray:
    return svm(search, weak=True)


@enter(DOCUMENTS, "linear SVM as ASReview")
def svm_documents(search: Search) -> np.ndarray:
    return svm(search, weak=False)


@enter(DOCUMENTS, "naive Bayes as ASReview")
def bayes(search: Search) -> np.ndarray:
    rows, positive, _ = search.training(weak=False)
    model = MultinomialNB(alpha=3.822).fit(search.X[rows], positive)
    return model.predict_log_proba(search.X) @ [-1, 1]


@enter(DOCUMENTS, "least squares, random rows")
def squares(search: Search) -> np.ndarray:
    return least_squares(search.gram, RIDGES["light random rows"])(search.yes, search.no)


def simulate(search: Search, score: Score, labels: int, batch: int) -> tuple[list[bool], float]:
    """Return the answers in the order given, and the seconds per round."""
    found, spent, rounds = [], 0.0, 0
    while len(found) < labels:
        start = time.process_time()
        scores = np.array(score(search), dtype=float)
        spent, rounds = spent + time.process_time() - start, rounds + 1
        scores[[*search.yes, *search.no]] = -np.inf
        for row in np.argsort(-scores, kind="stable")[: min(batch, labels - len(found))].tolist():
            (search.yes if search.truth[row] else search.no).append(row)
            found.append(bool(search.truth[row]))
    return found, spent / rounds


def simulate_session(
    X: object, truth: np.ndarray, yes: list[int], no: list[int], labels: int, batch: int
) -> tuple[list[bool], float, Row]:
    """Do the same with a session, and compare its estimates with the truth."""
    session = SearchSession(X)
    session.label(yes, True)
    session.label(no, False)
    found, spent, rounds, facts = [], 0.0, 0, {}
    while len(found) < labels:
        start = time.process_time()
        rows = session.suggest(min(batch, labels - len(found)))
        session.label(rows, truth[rows])
        session.refit()
        spent, rounds = spent + time.process_time() - start, rounds + 1
        found += truth[rows].tolist()
        left = int(truth.sum()) - len(yes) - sum(found)
        if len(found) in MARKS:
            guess = session.remaining()
            factor = (guess.count + 0.5) / (left + 0.5)
            facts[f"factor_{len(found)}"] = round(float(factor), 3)
            facts[f"covered_{len(found)}"] = bool(guess.count_low <= left <= guess.count_high)
        if "stopped" not in facts and len(found) % 25 == 0 and session.stop(0.95):
            facts["stopped"] = len(found)
            facts["recall_at_stop"] = round(1 - left / int(truth.sum()), 3)
    return found, spent / rounds, facts


def problems(options: argparse.Namespace) -> Iterator[tuple[Row, Start]]:
    """Yield all searches: their facts, and the rows, the truth and the examples to start with."""
    cells = product(range(options.draws), options.sets, options.starts)
    for draw, name, n_start in cells:
        try:
            data = load(name)
        except AbsentError as error:
            print(f"{name} is absent: {error}")
            continue
        sizes = np.bincount(data.y)
        labels = np.flatnonzero(sizes >= min(30, sizes.max()))
        chosen = np.random.default_rng(0).permutation(labels)[: options.classes]
        for label in np.sort(chosen).tolist():
            facts = (name, label, n_start, draw)
            yield dict(zip(KEY, facts, strict=False)), of_class(data, label, n_start, draw)
    for draw, name in product(range(options.draws), options.reviews):
        if not review_file(name).exists():
            print(f"{name} is absent")
            continue
        yield dict(zip(KEY, (name, 1, 1, draw), strict=False)), of_review(name, draw)


def of_class(data: Dataset, label: int, n_start: int, draw: int) -> Start:
    """Return the start of a search for a class of pictures or sounds."""
    truth = data.y == label
    rng = np.random.default_rng([draw, label, n_start])
    yes = rng.choice(np.flatnonzero(truth), n_start, replace=False).tolist()
    return Start(np.asarray(data.X, dtype=np.float32), truth, yes, [])


def of_review(name: str, draw: int) -> Start:
    """Return the start of a search for the included records of a review."""
    with np.load(review_file(name), allow_pickle=False) as file:
        parts = file["data"].astype("f4"), file["indices"], file["indptr"]
        X, truth = sparse.csr_matrix(parts, shape=tuple(file["shape"])), file["y"] == 1
    rng = np.random.default_rng([draw, 0])
    yes = [int(rng.choice(np.flatnonzero(truth)))]
    no = [int(rng.choice(np.flatnonzero(~truth)))]
    return Start(X, truth, yes, no)


def review_file(name: str) -> Path:
    return Path(os.environ.get("PCSDA_DATA", ".")) / f"review_{name}.npz"


def measured(name: str, start: Start) -> Row:
    """Measure one search."""
    X, truth, yes, no = start
    documents = sparse.issparse(X)
    labels = int(0.3 * X.shape[0]) // 10 * 10 if documents else LABELS
    batch = 10 if documents else BATCH
    facts: Row = {}
    if name.startswith("pcsda"):
        if name.endswith("LSA"):
            X = normalize(TruncatedSVD(200, random_state=0).fit_transform(X)).astype(np.float32)
        found, seconds, facts = simulate_session(X, truth, yes, no, labels, batch)
    else:
        table = DOCUMENTS if documents else RIVALS
        search = Search(X, truth, list(yes), list(no))
        found, seconds = simulate(search, table[name], labels, batch)
    recall = np.cumsum(found) / (truth.sum() - len(yes))
    marks = {f"recall_{share}": int(share / 100 * X.shape[0]) for share in (5, 10, 20, 30)}
    if not documents:
        marks = {f"recall_{mark}": mark for mark in MARKS}
    enough = np.flatnonzero(recall >= 0.95)
    facts["to_95"] = int(enough[0]) + 1 if len(enough) else None
    for key, mark in marks.items():
        facts[key] = round(float(recall[min(mark, len(recall)) - 1]), 4)
    return facts | {"seconds": round(seconds, 4)}


def run(options: argparse.Namespace) -> None:
    """Measure the missing rows, and write each row as soon as it is computed."""
    file = RowFile(options.rows)
    done = {tuple(row[name] for name in KEY) for row in file.rows}
    end = time.monotonic() + 60 * options.minutes
    for facts, start in problems(options):
        documents = sparse.issparse(start.X)
        ours = ("pcsda", "pcsda, LSA") if documents else ("pcsda",)
        for name in (*ours, *(DOCUMENTS if documents else RIVALS)):
            row = facts | {"method": name}
            if tuple(row[key] for key in KEY) in done:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                file.append([row | measured(name, start)])
            if time.monotonic() > end:
                print("the time is up; the same command resumes from here")
                file.close()
                return
    file.close()


INTRODUCTION = """
# Searches by simulated users

How much of a class does a user find who labels what a method shows? A simulated user starts with 1,
3 or 10 examples of a class and labels the rows that a method ranks first, in batches of 25 up to
200 labels, always correctly. The figures are the share of the other members of the class that were
found, averaged over classes, with the standard error of the difference to pcsda. The best figure of
a line is bold. All other methods except Rocchio also learn from 300 random rows as negatives.

The settings of the session were chosen on ISOLET, on USPS (also with thinned classes) and on ORL.
No value was chosen on 15 scenes, Caltech101 and the reviews, but variants had been tried on them
before (a first form of the order by nearest answers on Caltech101), so they are not quite unseen.
The session leads or ties on
ISOLET, 15 scenes and USPS; on USPS nearly every row that any method shows is a find. On Caltech101
it does not always lead: cosine is ahead after 50 labels from ten examples, logistic regression
after 100 labels from ten examples and after 200 labels. No gap is more than a standard error. More
weight for the cosine does not help on the sets used for tuning: with 10 or 20 instead of 5 in
5/(5 + n), recall after 50 labels falls by 0.008 and 0.035 on ISOLET from ten examples. On USPS, ORL
and planted classes it changes by at most 0.014, about a standard error. The results and times of
the other methods come from earlier runs; they do not depend on this library. The times of pcsda
were measured while the machine was busy.

Once many answers are "no", the session reorders the best rows by their nearest answers in the
subspace of the verifier. Logistic regression was ahead by 0.012 ±0.005 before, on Caltech101 after
200 labels from one example. In 254 searches on ISOLET, ORL, USPS and planted classes, with thinned
classes and classes of four letters or persons, recall after 50, 100 and 200 labels changes by 0.003
±0.001, 0.008 ±0.002 and 0.005 ±0.001: mostly on planted classes (after 100 labels 0.023 ±0.008) and
on USPS thinned to 40 members (0.020 ±0.007); it falls on no set by more than 0.001. In the tables
below, the last members of ISOLET come slightly later: recall after 200 labels falls by 0.002 to
0.005. The nearest answers by cosine instead of the subspace are as good on thinned USPS but not on
planted classes; without the condition of many "no" answers, classes of four persons lose 0.05 after
100 labels.

`python -m benchmarks.search` computes the results and writes this page.
"""


def page(rows: list[Row]) -> str:
    """Return the page of the documentation."""
    few, *more = MARKS
    parts = [INTRODUCTION.strip(), f"## Recall after {few} labels"]
    parts += [_table(rows, SETS, f"recall_{few}")]
    parts += [
        details(f"Recall after {mark} labels", _table(rows, SETS, f"recall_{mark}"))
        for mark in more
    ]
    parts += ["## Document screening", DOCUMENTS_WORDS.strip()]
    screened = [
        part
        for share in (5, 10, 20, 30)
        for part in (
            f"Recall after {share} % of the records:",
            _table(rows, REVIEWS, f"recall_{share}"),
        )
    ]
    parts += [details("Recall after 5, 10, 20 and 30 % of the records", *screened)]
    parts += ["## How many are left, and when to stop", ESTIMATES_WORDS.strip()]
    factors, *stops = _estimates(rows)
    parts += [factors, details("Where searches stopped", *stops), "## Speed"]
    seconds = _table(rows, SETS, "seconds", least=True)
    parts += [details("Seconds of processor time per round", seconds)]
    return "\n\n".join(parts) + "\n"


DOCUMENTS_WORDS = """
Three public systematic reviews, as TF-IDF rows. The user starts with one included and one excluded
record, and labels batches of 10. "pcsda" learns from these rows, "pcsda, LSA" from 200 dimensions
of their latent semantic analysis. "least squares, random rows" are weighted least squares alone, in
the dual form, with heavier inclusions and 300 light random rows as negatives. The tables have the
searches that all methods have done, too few to tell the methods apart in general.

On the reviews, over ten starts each, least squares are ahead of the SVM in the mean of the four
recalls by 0.015 ±0.002 (nagtegaal_2019), 0.001 ±0.001 (bannach_brown_2019) and 0.011 ±0.005
(kitchenham_2010), mostly in the first 10 % of the records. These errors are over starts within one
review, not over reviews. The weights were chosen on planted documents (`python -m
benchmarks.planted_text` has the generator), where the evidence is mixed. They are the best of 14
settings over 81 searches, ahead by 0.009 ±0.004, which flatters them: 0.012 if the class has one
kind, 0.015 if its kinds have a common topic, nothing if they are unrelated. In 20 searches before
that, they were behind by 0.003 ±0.007. In searches after that, 12 each, they were ahead by 0.034
±0.011 with one kind, and behind by 0.008 ±0.010 with a common topic.

The session ranks rows of words by the sum of two standardised scores, that of its verifier and that
of least squares. Three mixtures were tried on 33 planted searches: this one, the mean of two logits
of ranks, and least squares alone. In mean recall they are ahead of the verifier's order by 0.020,
0.020 and 0.024 (one kind), 0.034, 0.031 and 0.025 (a common topic), and 0.023, 0.017 and 0.066
(unrelated kinds). The sum of scores has the smallest errors: 0.005, 0.008 and 0.018. In 18 searches
on planted documents drawn after that choice, it is ahead by 0.025 ±0.017, 0.053 ±0.008 and 0.001
±0.025, and least squares alone by 0.017 ±0.023, 0.083 ±0.018 and 0.048 ±0.013. The reviews were
tried only after that, over three starts each: the sum of scores is ahead by 0.013 ±0.004
(nagtegaal_2019), -0.001 ±0.001 (bannach_brown_2019) and 0.010 ±0.008 (kitchenham_2010), least
squares alone by 0.019 ±0.004, -0.002 ±0.003 and -0.011 ±0.015. The gain comes late in a search.

For rows of pictures and sounds, the same idea does not help. The mean of the logits of ranks of the
session and of logistic regression was tried with the weight 1/2, 1/4, and two weights that grow
with the answers, in 110 searches on ISOLET, USPS, USPS thinned to 60 members and ORL. Recall after
50, 100 and 200 labels changes by -0.025 to 0.012. The best, a quarter of the weight, changes the
mean by -0.001 ±0.002, -0.000 ±0.000, 0.005 ±0.004 and -0.002 ±0.002; a ridge regression was far
worse.

`remaining()` used to count far too few documents, with either order. Ratios are calibrated on
left-out finds. Finds were chosen by rank, so they score higher than the members still hidden: in a
planted search with 65 found and 52 hidden, their medians were 3.9 and -1.4. So the odds of
documents fall more slowly than their ratios say, and members with low ratios were not counted. The
model also takes the members among its 300 random rows for negatives, and with thousands of columns
it scores them lower than it would score new rows. Now the slope of the odds is fitted to the
answers, and random rows count with left-out ratios. Over eight starts of each review, in the order
above, the median factor after 100 labels goes from 7.2, 6.1 and 2.0 to 1.4, 2.2 and 2.1, and the
interval holds in 8, 7 and 8 searches instead of 3, 2 and 8. After 200 labels the factors go from
3.3, 3.9 and 1.2 to 1.5, 1.8 and 2.2: for kitchenham_2010 the count is now too high.

On planted documents the factor after 100 labels goes from 4.2 to 2.2 with one kind (12 searches),
from 5.1 to 2.1 with a common topic (12), and from 29 to 7.8 with unrelated kinds (9); the interval
holds in 75, 58 and 33 % before, and in 100, 100 and 56 % now. Unrelated kinds do not resemble what
was found. The intervals are wide, often from a twentieth to six times the truth, so draw an audit
before you stop screening. No search for documents stopped by the model, before or now. These
figures are from searches in the order of the verifier alone. With least squares in the order, the
tables below have the counts on the reviews: over the same four starts the median factor after 100
labels goes from 1.10, 2.11 and 2.56 to 1.27, 2.59 and 3.34, and after 200 from 1.22, 1.16 and 1.96
to 1.73, 1.40 and 1.74, with four starts too few to tell. In 18 planted searches, with one kind and
with a common topic, the mean absolute log error goes from 0.82 and 0.88 to 0.68 and 0.40 after 100
labels, and from 0.54 and 0.83 to 0.76 and 0.73 after 200. The intervals hold as often. The fit was
chosen on planted documents and the other sets used for tuning; some variants had been tried on the
reviews, 15 scenes and Caltech101 before, so these sets are not quite unseen.
"""
ESTIMATES_WORDS = """
The factor is the ratio of the estimated to the true number of unlabelled members, or its inverse if
that is larger, with half a row added to both. `stop()` was asked for 95 % after every 25 labels, in
the reviews after every 50; "could" counts the searches that found 95 % of the class within 200
labels, in the reviews within 30 % of the records. Classes of USPS and 15 scenes have more members
than that. The count and its interval were tuned on ISOLET and USPS, also with classes thinned to
30, 35, 60 and 150 members, and on planted classes. The thinned classes were added after an earlier
estimate had failed on rare classes of Caltech101, so that set is not quite unseen. The intervals
were widened after they had held in 79 % of its searches at 50 labels; how much was chosen on ISOLET
and USPS. How fast the bound falls without finds was chosen on ISOLET, USPS and planted classes of 5
to 500 members. The targets were intervals that hold in 90 % of searches, and a factor of at most
1.25 after 100 labels. Only ISOLET meets the second. On 15 scenes the count is too low after 200
labels, at about 0.7 of the truth; on the other sets it errs in both directions. A longer tail for
the class does not help: with Student's t the factor after 100 labels rises from 1.35 to 2.06 on
USPS. Nor does a larger count while nearly all answers are finds: with 0.4 instead of 0.25 added to
its logarithm, USPS goes from 1.35 to 1.29, but planted classes from 1.61 to 1.65. What is left is
spread between classes rather than a common bias. Nor does it help to count by the shape of the
scores until 60 instead of 35 % of the answers are "no", from 30 instead of 15 % on together with
the odds, and to add 0.35: in 159 searches, the mean absolute log error after 100 labels changes by
-0.07 ±0.02 on USPS, -0.05 ±0.03 on ISOLET and -0.19 ±0.05 on planted classes, but after 50 labels
by 0.07 ±0.03 on ISOLET and 0.13 ±0.06 on thinned digits. Without the mixture that has three
Gaussians for the rest and with 0.35, it changes by -0.10 ±0.06 on USPS and 0.05 ±0.04 on thinned
digits, after 50 labels by 0.02 ±0.06 and 0.12 ±0.03. The distribution of scores over the whole
gallery holds no better count, if left-out finds give the shape of the class: finds score so far
above the hidden members that the smallest ratio of tails, the mean ratio of tails, the valley
between the modes and twice the rows above the upper mode find almost none of them. After 100 labels
on USPS (15 searches) the first is too low by a factor of 1505, the third by 79, and by 40 and 14 if
averaged with the count of the session on a log scale.

With the nearest answers in the order, the mean absolute log error after 100 labels changes by -0.30
±0.09 on planted classes, -0.06 ±0.03 on ISOLET and 0.11 ±0.07 on ORL; on Caltech101, in the table
below, by 0.14 ±0.10, after 200 labels by -0.13 ±0.08.

If many answers are "no", the slope of the odds in the ratios is fitted to the answers, by the
ratios that rows had before their answers and by left-out ratios. Left-out ratios alone count too
many of the digits thinned to 30 members: after 50 labels, the mean absolute log error is 1.16
instead of 0.76. Earlier ratios alone do so at the end of searches on ISOLET. With both, it changes
by less than 0.1 on ISOLET, USPS, ORL and planted classes, whole or thinned, except for digits
thinned to 150 members after 200 labels, where it falls from 0.91 to 0.69. In 45 searches on 15
scenes it falls by 0.08 ±0.03 after 100 labels; in 60 on Caltech101 it rises by 0.16 ±0.10, with a
median factor of 2.0 before and now.

The 300 random rows contain members of the class, which the model takes for negatives. Without the
rows most like the class, as many as the estimate expects among them if it expects ten or more, the
mean absolute log error of the count falls on USPS (after 50, 100 and 200 labels from 0.62, 0.44 and
0.58 to 0.49, 0.36 and 0.41), and changes by at most 0.06 with 400 members and on ISOLET; without
the limit of ten it rises by 0.15 to 0.27 with 150 members. Recall on ISOLET changes by -0.006,
0.001 and -0.004. So this is not adopted.

A threshold for 1 % false alarms used to be the quantile of these random rows, and its misses were
those of left-out finds. On USPS, after 100 labels, it missed 75 % of the digit and stated 2 %. Now
it is chosen on the whole gallery: an unanswered row counts as a member with its probability in the
mixtures that `remaining` counts with, moved so that they sum to that count. 130 searches tested
this that had no part in its choice, from 3 or 10 examples, with thresholds after 25, 50, 100 and
200 labels: ten classes each of ISOLET, ORL and USPS, of USPS as a quarter of the gallery or with 60
members in it, 40 planted classes of 2 to 30 %, and, for evaluation only, ten classes each of
Caltech101 and of 15 scenes, these also as a quarter or with 60 members. Before and now, the rate of
false alarms is within a factor of two of the promise in 51 and 80 % of the cases on the sets used
for tuning, in 61 and 76 % on the others (on rows outside the gallery, in 42 and 71 %, and in 56 and
68 %); for 5 % false alarms, in 63 and 93 %, and in 70 and 93 %. After 25 labels it is in 61 % of
all cases now, after 200 in 90 %. The misses are 51 and 41 % on the sets used for tuning, and stated
as 12 and 35 %; on the others 37 and 22 %, and stated as 14 and 30 %. Their intervals hold in 26 and
92 %, and in 37 and 96 %. On USPS after 100 labels, the mean rate of false alarms is 0.09 and 1.9 %,
the misses are 64 and 33 %, stated as 2 and 28 %. What is left is mostly the error of the count: too
low for classes of a quarter or more and for classes of several kinds, so that their misses are
stated too low, too. Two other ways to find the probabilities were tried on 159 other searches.
Ratios plus a constant as log odds are as good, except if the class overlaps with the rest: on
Gaussian classes of 10 to 30 %, false alarms are then 2.5 to 4.4 % instead of 0.9 to 1.2 %. The
slope fitted to the answers, used as in `remaining`, makes no difference. In 24 searches for planted
documents, with thresholds after 50, 100 and 200 labels, false alarms are within a factor of two in
78 and 100 % of the cases, and the intervals of the misses hold in 24 and 100 %.

A bound from the model holds if the rest resembles what was found, at 95 % confidence. In 184
searches on ISOLET, USPS, ORL and planted classes, many of them thinned, `stop()` came in 86 within
200 labels, and never too early; before the slope was fitted it came in 91, once too early. In 205
other searches before that, 3 of 113 stops came too early: one on ISOLET and two of nine on USPS, at
233 of 250 and at 26 of 30 members. The digits that were missing score far below the others. A bound
that forgets earlier answers faster or falls more slowly avoids one of the two, but stops later or
not at all elsewhere, so it was not adopted. These searches were in the order of the ratios; with
the nearest answers in the order, `stop()` came in 96 of 254 searches instead of 98, too early in 6
instead of 8, all of them for classes of four letters or persons. No tuning helps if a whole cluster
of the class is missing from the examples; then only an audit shows it.
"""


def _table(rows: list[Row], sets: tuple, measure: str, least: bool = False) -> str:
    cells: dict[tuple, dict[str, dict[tuple, float]]] = {}
    for row in rows:
        if row["dataset"] in sets and row.get(measure) is not None:
            cell = cells.setdefault((row["dataset"], row["start"]), {})
            cell.setdefault(row["method"], {})[row["class"], row["draw"]] = row[measure]
    methods = list(dict.fromkeys(m for cell in cells.values() for m in cell))
    lines = []
    for name, start in sorted(cells, key=lambda cell: (sets.index(cell[0]), cell[1])):
        found = cells[name, start]
        common = set.intersection(*(set(values) for values in found.values()))
        if not common or len(found) < len(methods):
            continue
        means = {m: np.mean([found[m][key] for key in common]) for m in methods}
        best = (min if least else max)(means.values())
        texts = []
        for m in methods:
            text = f"{means[m]:.3f}"
            text = f"**{text}**" if means[m] == best else text
            if m != "pcsda" and len(common) > 1 and not least:
                gap = np.array([found["pcsda"][key] - found[m][key] for key in common])
                text += f" ±{gap.std(ddof=1) / np.sqrt(len(gap)):.3f}"
            texts.append(text)
        lines.append([name, str(start), str(len(common)), *texts])
    return table(["set", "examples", "searches", *methods], lines)


def _estimates(rows: list[Row]) -> list[str]:
    lines, ends = [], []
    for name in (*SETS, *REVIEWS):
        ours = [row for row in rows if row["dataset"] == name and row["method"] == "pcsda"]
        for mark in MARKS:
            part = [row for row in ours if f"factor_{mark}" in row]
            if part:
                factors = np.array([row[f"factor_{mark}"] for row in part])
                middle = np.median(np.maximum(factors, 1 / factors))
                held = np.mean([row[f"covered_{mark}"] for row in part])
                lines.append([name, str(mark), str(len(part)), f"{middle:.2f}", f"{held:.0%}"])
        stopped = [row["recall_at_stop"] for row in ours if "stopped" in row]
        if ours:
            text = f"{np.median(stopped):.3f}" if stopped else "–"
            could = sum(row["to_95"] is not None for row in ours)
            early = sum(recall < 0.95 for recall in stopped)
            ends.append([name, *map(str, (len(ours), could, len(stopped), early)), text])
    return [
        table(["set", "labels", "searches", "median factor", "interval holds"], lines),
        table(["set", "searches", "could", "stopped", "below 95 %", "median recall at stop"], ends),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    listed = lambda kind: lambda text: [kind(part) for part in text.split(",") if part]  # noqa: E731
    parser.add_argument("--sets", type=listed(str), default=list(SETS))
    parser.add_argument("--reviews", type=listed(str), default=list(REVIEWS))
    parser.add_argument("--starts", type=listed(int), default=list(STARTS))
    parser.add_argument("--classes", type=int, default=5)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rows", type=Path, default=HERE / "results" / "search.jsonl")
    parser.add_argument("--page", action="store_true", help="write the page and run nothing")
    options = parser.parse_args()
    if options.page:
        PAGE.write_text(page(read(ROWS)))
        return
    run(options)


if __name__ == "__main__":
    main()

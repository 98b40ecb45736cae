"""All routes to a model agree: one law over every way to fit and every kind of data.

Each route (see `routes.py`) gives the scores, the number of axes and the left-out scores of PCSDA
by Cholesky in double precision, or both refuse with the same message. How close they have to be
follows from the condition of the problem: `Problem.tolerance`.

A new route is one function in `routes.py`, a new kind of data one function here.
"""

from functools import cache

import numpy as np
import pytest
from routes import ROUTES, Problem, assert_agrees, solved

KINDS = {}


COPIES = "ignore:.* rows of X occur more than once"


def kind(name):
    def enter(function):
        KINDS[name] = function
        return function

    return enter


def draw(sizes=(30, 25, 28, 20), width=5, *, seed=0, spread=1.0, n_new=20):
    """Draw correlated rows in random order, their groups, and new rows."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((width, width)) / np.sqrt(width) + np.eye(width)
    centres = spread * rng.standard_normal((len(sizes), width))

    def rows(groups):
        return rng.standard_normal((len(groups), width)) @ mixing + centres[groups]

    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return rows(groups), groups, rows(rng.integers(0, len(sizes), n_new))


def problem(X, groups, new, regularization=0.1, weights=None, **params):
    params = {"regularization": regularization, "random_state": 0} | params
    return Problem(X, groups, new, weights, params)


WIDE = {"sizes": (12, 10, 9, 11), "width": 70}


@kind("regular")
def regular():
    return [problem(*draw()), problem(*draw(seed=1), negatives="mixture", tails="gaussian")]


@kind("published rule")
def published_rule():
    rule = {"negatives": "marginal", "covariance": "resubstitution", "calibrate": False}
    return [problem(*draw(), shrinkage=0, tails="gaussian", **rule)]


@kind("fewer components")
def fewer_components():
    return [problem(*draw(), n_components=2)]


@kind("D > N")
def wide():
    return [problem(*draw(**WIDE))]


def of_rank_two(width, regularization):
    """Eight weak subclasses in a plane of a space of `width`; half of the new rows lie off it.

    Whether rounding makes further axes is chance, so there are three problems.
    """
    problems = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        groups = np.where(rng.random(120) < 1 / 3, 0, rng.integers(1, 9, 120))
        plane = rng.standard_normal((2, width))
        X = rng.standard_normal((120, 2)) @ plane
        new = rng.standard_normal((20, 2)) @ plane
        new[::2] += rng.standard_normal((10, width))
        problems.append(problem(X, groups, new, regularization))
    return problems


@kind("rank 2, D > N")
def rank_two_wide():
    return of_rank_two(200, 0.1)


@kind("rank 2, D > N, ridge 1e-4")
def rank_two_wide_small():
    return of_rank_two(200, 1e-4)


@kind("rank 2, D > N, ridge 1e-8")
def rank_two_wide_tiny():
    return of_rank_two(200, 1e-8)


@kind("rank 2, D < N")
def rank_two():
    return of_rank_two(4, 0.1)


@kind("rank 2, D < N, ridge 1e-4")
def rank_two_small():
    return of_rank_two(4, 1e-4)


@kind("rank 2, D < N, ridge 1e-8")
def rank_two_tiny():
    return of_rank_two(4, 1e-8)


def repeated(regularization):
    X, groups, new = draw()
    number = np.concatenate([np.arange(len(X)), np.arange(0, len(X), 2)])
    return [problem(X[number], groups[number], new, regularization)]


@kind("duplicated rows")
def duplicated():
    return repeated(0.1)


@kind("duplicated rows, ridge 1e-6")
def duplicated_small():
    return repeated(1e-6)


def with_constants(regularization):
    X, groups, new = draw()
    for rows in (X, new):
        rows[:, 1], rows[:, 3] = 0.0, 7.0
    return [problem(X, groups, new, regularization)]


@kind("constant columns")
def constant():
    return with_constants(0.1)


@kind("a column in which one row alone differs")
def lone():
    """As many axes as columns, so that the axes without that row lose one."""
    found = []
    for group in (0, 2):
        X, groups, new = draw(sizes=(30, 25, 28, 20, 22), width=3)
        alone = np.arange(len(X)) == np.flatnonzero(groups == group)[0]
        X, new = np.column_stack([X, alone]), np.column_stack([new, np.zeros(len(new))])
        found.append(problem(X, groups, new))
    return found


@kind("constant columns, ridge 1e-6")
def constant_small():
    return with_constants(1e-6)


def in_single(offset):
    X, groups, new = draw()
    return [problem((X + offset).astype(np.float32), groups, (new + offset).astype(np.float32))]


@kind("float32")
def single():
    return in_single(0.0)


@kind("float32, offset 1e5")
def single_far():
    return in_single(1e5)


@kind("offset 1e6")
def far():
    X, groups, new = draw()
    return [problem(X + 1e6, groups, new + 1e6)]


@kind("one positive")
def one_positive():
    return [problem(*draw((1, 25, 28, 20)))]


@kind("one subclass")
def one_subclass():
    return [problem(*draw((30, 60)))]


@kind("weighted")
def weighted():
    weights = np.random.default_rng(9).uniform(0.3, 2.5, 103)
    some = weights.copy()
    some[::9] = 0.0
    return [problem(*draw(), weights=weights), problem(*draw(), weights=some)]


@kind("ridge 1e-6")
def small_ridge():
    return [problem(*draw(), 1e-6)]


@kind("ridge 1e-10")
def tiny_ridge():
    return [problem(*draw(), 1e-10)]


@kind("D > N, ridge 1e-6")
def wide_small_ridge():
    return [problem(*draw(**WIDE), 1e-6)]


@kind("D > N, ridge 1e-10")
def wide_tiny_ridge():
    return [problem(*draw(**WIDE), 1e-10)]


@kind("column scales")
def scales():
    X, groups, new = draw()
    scale = np.logspace(-3, 3, X.shape[1])
    return [problem(X * scale, groups, new * scale, 1e-4)]


@kind("equal means")
def equal_means():
    X, groups, new = draw()
    for group in range(4):
        X[groups == group] -= X[groups == group].mean(axis=0)
    return [problem(X, groups, new)]


@kind("equal rows")
def equal_rows():
    X, groups, new = draw()
    return [problem(np.tile(X[0], (len(X), 1)), groups, new)]


@kind("singular")
def singular():
    """Return problems with two equal columns and no ridge."""
    X, groups, new = draw()
    X[:, 1], new[:, 1] = X[:, 0], new[:, 0]
    return [problem(X, groups, new, 0.0)]


# Routes that do not support a kind of data, and why. This number may only fall.
BANKS = ("bank", "bank's model", "kernel bank", "bank of searches")
SEARCHES = ("search", "bank of searches")
SKIPS = {
    **{(route, "weighted"): "a bank takes no weights" for route in BANKS},
    **{(route, "one positive"): "a search needs two positives" for route in SEARCHES},
    ("search", "published rule"): "a search needs left-out scores",
    ("bank of searches", "published rule"): "a search needs left-out scores",
    ("kernel map", "singular"): "the map has no feature for what is singular",
    ("kernel", "singular"): "a kernel needs a ridge, and says so before it looks at rows",
    ("kernel bank", "singular"): "a kernel needs a ridge, and says so before it looks at rows",
}
MOST_SKIPS = 11

# Routes that may refuse a kind of data by themselves, if they say what to do about it: values of
# the linear kernel far from zero are squares of the offset, and what is left of them is rounding.
MAY_REFUSE = {
    (route, far): "centre X first"
    for route in ("kernel", "kernel bank", "kernel map")
    for far in ("offset 1e6", "float32, offset 1e5")
}


@cache
def reference(name):
    """Return problems of one kind with their results from Cholesky in double precision."""
    return [(each, solved("cholesky", each.exact())) for each in KINDS[name]()]


# Routes that take as long as all others together: `make test` sends every third kind along them.
COSTLY = ("dask", "saved and loaded", "ONNX", "search", "kernel bank", "bank of searches")


def cells():
    for start, route in enumerate(ROUTES):
        for number, name in enumerate(KINDS, start):
            cell = (route, name)
            marks = []
            if cell in SKIPS:
                marks.append(pytest.mark.skip(reason=SKIPS[cell]))
            if number % (4 if route in COSTLY else 3):
                marks.append(pytest.mark.more)
            yield pytest.param(route, name, marks=marks, id=f"{route}-{name}")


# A bank also warns of a row that has two labels, as duplicated rows do here.
@pytest.mark.filterwarnings("ignore:rows .* are equal and have the labels")
@pytest.mark.filterwarnings(COPIES)
@pytest.mark.parametrize(("route", "name"), list(cells()))
def test_all_routes_agree(route, name):
    for each, expected in reference(name):
        found = solved(route, each)
        if (route, name) in MAY_REFUSE and isinstance(found, ValueError):
            assert MAY_REFUSE[route, name] in str(found)
            continue
        assert_agrees(found, expected, each, route)


def test_the_exceptions_are_few_and_known(capsys):
    every = {(route, name) for route in ROUTES for name in KINDS}
    assert {*SKIPS, *MAY_REFUSE} <= every
    with capsys.disabled():
        print(
            f"\n{len(every)} cells of {len(ROUTES)} routes and {len(KINDS)} kinds of data: "
            f"{len(SKIPS)} skipped"
        )
    assert len(SKIPS) <= MOST_SKIPS


@pytest.mark.filterwarnings(COPIES)
def test_impossible_problems_are_refused():
    for name in ("equal means", "equal rows", "singular"):
        for _, expected in reference(name):
            assert isinstance(expected, ValueError)
    for name in KINDS.keys() - {"equal means", "equal rows", "singular"}:
        for _, expected in reference(name):
            assert not isinstance(expected, ValueError)

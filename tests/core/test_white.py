"""Whitening against its definition, and divisions that need their own factorisation."""

import numpy as np
import pytest
from factor_factories import WEIGHTED, assert_same_subspace, close
from factories import make_rows

from pcsda.core import white
from pcsda.core.direct import DirectFactor
from pcsda.core.white import whiten


@WEIGHTED
@pytest.mark.parametrize("ridge", [0.0, 1e-3, 10.0])
@pytest.mark.parametrize("count", [1, 3], ids=["cholesky", "eigendecomposition"])
def test_rows_are_white_under_the_ridged_total_scatter(weighted, ridge, count):
    X, _, weights = make_rows([14, 9, 12], 5, weighted=weighted)
    w = np.ones(len(X)) if weights is None else weights
    middle = X - np.average(X, axis=0, weights=w)
    inverse = np.linalg.inv((middle * w[:, None]).T @ middle + ridge * np.eye(5))
    ridges = [ridge, 7.0, 9.0][:count]
    factor = next(whiten(X, [0.1] * count, weights, ridges))
    close(factor.back @ factor.back.T, inverse)
    close(factor.rows, middle @ factor.back)
    close(factor.norms, np.einsum("ij,jk,ik->i", middle, inverse, middle))
    close(factor.variance, np.average(np.sum(middle**2, axis=1), weights=w))


def test_badly_scaled_features_keep_their_digits_along_the_path():
    X, groups, _ = make_rows([14, 9, 12, 7], 4)
    X = X * [1e7, 1.0, 1e-4, 1e4]
    factor = next(whiten(X, [0.0, 1e-3, 1.0]))  # more than two would share eigenvectors
    expected = DirectFactor(X, 0.0).solve(groups)
    found = factor.solve(groups)
    assert_same_subspace(found, expected, (X, X))


@pytest.mark.parametrize("regularizations", [[0.0], [0.0, 0.1, 1.0]])
def test_both_ways_of_whitening_refuse_a_singular_scatter(regularizations):
    X, _, _ = make_rows([14, 9], 3)
    message = "of 4 dimensions is singular at regularization=0; raise regularization"
    with pytest.raises(ValueError, match=message):
        next(whiten(np.column_stack([X, X[:, 0]]), regularizations))


def near_separable():
    """Return groups whose rows hardly differ, so that the means account for all scatter."""
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat(np.arange(4), [12, 10, 9, 11]))
    centres = rng.standard_normal((4, 5))
    return centres[groups] + 1e-6 * rng.standard_normal((len(groups), 5)), groups


@pytest.mark.parametrize(("regularization", "alone"), [(1e-12, True), (0.1, False)])
def test_groups_that_leave_no_scatter_get_their_own_factorisation(
    monkeypatch, regularization, alone
):
    X, groups = near_separable()
    expected = DirectFactor(X, regularization).solve(groups)
    made = []

    def watched(*args, **kwargs):
        made.append(args)
        return DirectFactor(*args, **kwargs)

    monkeypatch.setattr(white, "DirectFactor", watched)
    found = next(whiten(X, [regularization])).solve(groups)
    assert bool(made) == alone
    assert_same_subspace(found, expected, rtol=1e-7)


def test_the_update_loses_no_more_digits_than_allowed(monkeypatch):
    """Test just above the bound below which a division gets its own factorisation."""
    X, groups = near_separable()
    expected = DirectFactor(X, 1e-6).solve(groups)
    monkeypatch.setattr(white, "DirectFactor", None)
    found = next(whiten(X, [1e-6])).solve(groups)
    assert_same_subspace(found, expected, rtol=1e-5)

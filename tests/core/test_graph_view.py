"""Both scatters as graph Laplacians on the rows, compared with what the paper prints."""

import numpy as np
import pytest
from factories import make_rows
from numpy.testing import assert_allclose

from pcsda import CSDA, PCSDA
from pcsda.core.scatter import GroupScatter


def graphs(groups):
    """Return the signed graph weights of S_n and of S_I (MATH 14)."""
    counts = np.bincount(groups)
    positive, K = groups == 0, len(counts) - 1
    across = np.outer(positive, ~positive) / (counts[0] * counts[groups][None, :])
    same = groups[:, None] == groups[None, :]
    penalty = across + across.T
    penalty -= K / counts[0] ** 2 * np.outer(positive, positive)
    penalty -= np.where(same & ~positive, 1 / counts[groups] ** 2, 0.0)
    return penalty, same / counts[groups]


def laplacian(weights):
    return np.diag(weights.sum(axis=1)) - weights


@pytest.mark.parametrize("sizes", [[12, 20], [9, 8, 15, 3], [1, 5, 1], [6, *[1] * 14]])
def test_the_scatters_are_laplacians_of_signed_graphs(sizes):
    X, groups, _ = make_rows(sizes, 5)
    scatter = GroupScatter.from_samples(X, groups)
    penalty, intrinsic = graphs(groups)
    assert_allclose(X.T @ laplacian(penalty) @ X, scatter.between, atol=1e-10)
    assert_allclose(X.T @ laplacian(intrinsic) @ X, scatter.intra, atol=1e-10)
    # The trace is a sum over pairs: pull with the weights of one graph, push with the other's.
    z = X @ np.random.default_rng(0).standard_normal((5, 2))
    apart = np.sum((z[:, None] - z[None]) ** 2, axis=2)
    for weights, form in ((penalty, scatter.between), (intrinsic, scatter.intra)):
        W = np.linalg.lstsq(X, z, rcond=None)[0]
        assert_allclose(0.5 * np.sum(weights * apart), np.trace(W.T @ form @ W), rtol=1e-8)


def test_pcsda_maximises_the_ratio_of_two_pairwise_sums():
    X, groups, _ = make_rows([12, 10, 14], 5)
    penalty, intrinsic = graphs(groups)
    model = PCSDA(n_components=1, regularization=1e-9, calibrate=False)
    model.fit(X, groups == 0, subclass_labels=groups)

    def ratio(w):
        apart = (X @ w)[:, None] - (X @ w)[None]
        return np.sum(penalty * apart**2) / np.sum(intrinsic * apart**2)

    best = ratio(model.components_[0])
    assert_allclose(best, model.eigenvalues_[0], rtol=1e-6)
    others = np.random.default_rng(0).standard_normal((200, 5))
    assert best > max(ratio(w) for w in others)


def printed(groups):
    """Return P_n and P_p from the paper's review of CSDA, as printed and as corrected."""
    e_p, e_n = (groups == 0).astype(float), (groups == 1).astype(float)
    n_p, n_n = e_p.sum(), e_n.sum()
    cross = (np.outer(e_n, e_p) + np.outer(e_p, e_n)) / n_p
    paper = (
        np.outer(e_n, e_n) - cross + np.outer(e_p, e_p) / n_p**2,
        (1 - 2 / n_p + 1 / n_p**2) * np.outer(e_p, e_p),
    )
    right = (
        np.diag(e_n) - cross + n_n / n_p**2 * np.outer(e_p, e_p),
        np.diag(e_p) - np.outer(e_p, e_p) / n_p,
    )
    return paper, right


def test_the_papers_review_misprints_two_matrices():
    X, groups, _ = make_rows([8, 17], 5)
    scatter = GroupScatter.from_samples(X, groups)
    paper, right = printed(groups)
    assert_allclose(X.T @ right[0] @ X, scatter.out_of_class, atol=1e-9)
    assert_allclose(X.T @ right[1] @ X, scatter.positive, atol=1e-9)
    assert np.linalg.matrix_rank(paper[0]) <= 2
    assert np.linalg.matrix_rank(paper[1]) == 1
    assert not np.allclose(X.T @ paper[0] @ X, scatter.out_of_class, rtol=0.1)
    assert not np.allclose(X.T @ paper[1] @ X, scatter.positive, rtol=0.1)


def test_the_literal_regression_needs_rows_about_the_positive_mean():
    X, groups, _ = make_rows([8, 7, 9], 60)
    model = PCSDA(regularization=0).fit(X, groups == 0, subclass_labels=groups)
    labels = np.eye(3)[groups] / np.bincount(groups)
    targets = labels[:, 1:] - labels[:, :1]
    centred = np.linalg.pinv(X - X[groups == 0].mean(axis=0)) @ targets
    literal = np.linalg.pinv(X) @ targets

    def angle(span):
        Q = np.linalg.qr(span)[0]
        return np.linalg.norm(model.components_.T - Q @ (Q.T @ model.components_.T))

    assert angle(centred) < 1e-8
    assert angle(literal) > 1e-3


@pytest.mark.parametrize("solver", ["cholesky", "eigen", "spectral"])
def test_the_angle_to_the_null_space_falls_linearly_with_the_ridge(solver):
    X, groups, _ = make_rows([8, 7, 9], 60)
    fitting = {"subclass_labels": groups}
    limit = PCSDA(regularization=0).fit(X, groups == 0, **fitting).components_
    ridges = 10.0 ** -np.arange(2, 7)
    angles = []
    for ridge in ridges:
        settings = {"solver": solver, "regularization": ridge, "calibrate": False}
        W = PCSDA(**settings).fit(X, groups == 0, **fitting).components_
        Q = np.linalg.qr(W.T)[0]
        angles.append(np.linalg.norm(limit.T - Q @ (Q.T @ limit.T)))
    slopes = np.diff(np.log10(angles)) / np.diff(np.log10(ridges))
    assert_allclose(slopes, 1.0, atol=0.1)
    assert angles[-1] < 1e-4 * angles[0] * 3


def test_csda_is_the_graph_of_singleton_subclasses():
    X, groups, _ = make_rows([8, 17], 5)
    alone = groups.copy()
    alone[groups > 0] = 1 + np.arange(17)
    penalty, intrinsic = graphs(alone)
    model = CSDA(2, regularization=0.1, calibrate=False).fit(X, groups == 0)
    eps = 0.1 * np.mean(np.sum((X - X.mean(axis=0)) ** 2, axis=1))
    S_n, S_p = (X.T @ laplacian(weights) @ X for weights in (penalty, intrinsic))
    W = model.components_
    assert_allclose(W @ (S_p + eps * np.eye(5)) @ W.T, np.eye(2), atol=1e-8)
    assert_allclose(W @ S_n @ W.T, np.diag(model.eigenvalues_), atol=1e-6)

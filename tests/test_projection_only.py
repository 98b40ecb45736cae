"""A projection without a density: axes and ranking work where samples determine no density."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import linalg
from sklearn.base import clone

from pcsda import PCSDA, KernelPCSDA, VerifierBank, load, save
from pcsda.datasets import make_class_specific

NEEDS_A_DENSITY = (
    "decision_function",
    "predict",
    "predict_proba",
    "predict_log_proba",
    "log_likelihood_ratio",
    "explain",
)


def few(n_positive, width=40, n_negative=300, seed=0):
    """Draw few positives among planted subclasses, and rows to rank."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.standard_normal((31, width))
    groups = np.append(np.zeros(n_positive, int), 1 + np.arange(n_negative) % 30)
    X = rng.standard_normal((len(groups), width)) + centres[groups]
    new = np.append(np.zeros(40, int), rng.integers(1, 31, 200))
    return X, groups, rng.standard_normal((240, width)) + centres[new], new == 0


def distances(X, groups, new, ridge, d):
    """Rank as in the paper with a dense eigensolver: distances from the positive mean."""
    means = np.array([X[groups == g].mean(axis=0) for g in range(groups.max() + 1)])
    residuals, delta = X - means[groups], means[1:] - means[0]
    centred = X - X.mean(axis=0)
    eps = ridge * np.trace(centred.T @ centred) / len(X)
    _, vectors = linalg.eigh(delta.T @ delta, residuals.T @ residuals + eps * np.eye(X.shape[1]))
    W = vectors[:, ::-1][:, :d]
    return np.linalg.norm((new - means[0]) @ W, axis=1)


@pytest.mark.each_value
@pytest.mark.parametrize("n_positive", [18, 21, 24])
@pytest.mark.parametrize("d", [1, 5, 17, 18, 20, 21, 23, 24, 25])
def test_the_papers_protocol_ranks_few_positives_at_every_d(n_positive, d):
    X, groups, new, _ = few(n_positive)
    model = PCSDA.published(30, d).fit(X, groups == 0, subclass_labels=groups)
    expected = distances(X, groups, new, 0.01, d)
    assert model.n_components_ == d
    assert_allclose(-model.score_samples(new), expected, rtol=1e-8)
    np.testing.assert_array_equal(model.rank(new), np.argsort(expected, kind="stable"))
    if d < n_positive:
        assert np.isfinite(model.log_likelihood_ratio(new)).all()


@pytest.mark.parametrize("method", NEEDS_A_DENSITY)
@pytest.mark.parametrize("kernel", [False, True], ids=["linear", "kernel"])
def test_methods_that_need_a_density_say_why_there_is_none(method, kernel):
    X, groups, new, _ = few(5)
    estimator = (KernelPCSDA if kernel else PCSDA).published(30, 12)
    model = estimator.fit(X, groups == 0, subclass_labels=groups)
    assert model.transform(new).shape == (240, 12)
    with pytest.raises(
        ValueError, match=r"5 positives and 300 negatives are too few for n_components"
    ):
        getattr(model, method)(new)
    with pytest.raises(ValueError, match="lower n_components or set shrinkage='auto'"):
        model.fast_scorer()


def test_a_model_without_density_is_saved_cloned_and_ranks_in_a_bank(tmp_path):
    X, groups, new, _ = few(5)
    model = PCSDA.published(30, 12).fit(X, groups == 0, subclass_labels=groups)
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").transform(new), model.transform(new))
    assert not hasattr(clone(model), "density_")
    labels = np.where(groups == 0, 0, 1 + groups % 3)
    bank = VerifierBank(PCSDA.published(30, 12)).fit(X, labels, subclass_labels=groups)
    assert sorted(bank.rank(new, 0)) == list(range(240))
    with pytest.raises(ValueError, match="are too few for n_components"):
        bank.log_likelihood_ratio(new)


@pytest.mark.parametrize("solver", ["auto", "cholesky", "eigen", "spectral"])
def test_without_a_ridge_wide_rows_give_the_small_ridge_limit(solver):
    data = make_class_specific(60, n_features=150, random_state=0)
    X, y = data.data, data.target
    subclasses = np.arange(60) % 4
    model = PCSDA(solver=solver, regularization=0).fit(X, y, subclass_labels=subclasses)
    groups = model.partition_
    means = np.array([X[groups == g].mean(axis=0) for g in range(groups.max() + 1)])
    # Every group is a point, and the axes are orthonormal.
    assert_allclose(model.transform(X), model.transform(means)[groups], atol=1e-8)
    assert_allclose(model.components_ @ model.components_.T, np.eye(4), atol=1e-10)
    near = PCSDA(regularization=1e-9).fit(X, y, subclass_labels=subclasses)
    assert linalg.subspace_angles(model.components_.T, near.components_.T).max() < 1e-5
    # It is the span of the regression on the labels, the paper's literal route.
    labels = np.eye(5)[groups] / np.bincount(groups)
    targets = labels[:, 1:] - labels[:, :1]
    literal = np.linalg.pinv(X - means[0]) @ targets
    assert linalg.subspace_angles(model.components_.T, literal).max() < 1e-7
    with pytest.raises(
        ValueError, match=r"is a point in .* lower n_components or raise regularization"
    ):
        model.predict(X)

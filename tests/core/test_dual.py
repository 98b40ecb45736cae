"""The dual form against the primal definitions and against exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from factories import generalized_eigen, make_rows, paper_statistics
from numpy.testing import assert_allclose

from pcsda.core import dual, linalg, model
from pcsda.core.density import Rule

WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
SIZES = [8, 5, 6, 2]


def gram_matrix(X, weights):
    root = np.ones(len(X)) if weights is None else np.sqrt(weights)
    return root[:, None] * (X @ X.T) * root


def solved(X, groups, weights, ridge):
    factor = linalg.cholesky(gram_matrix(X, weights), ridge)
    counts = np.bincount(groups, weights).astype(float)
    return factor, counts, dual.solve(factor, groups, counts, ridge, weights)


@WEIGHTED
@pytest.mark.parametrize("width", [6, 40], ids=["D<N", "D>N"])
def test_dual_solution_equals_the_primal_definitions(weighted, width):
    X, groups, weights = make_rows(SIZES, width, weighted=weighted)
    _, _, solution = solved(X, groups, weights, 0.7)
    s = paper_statistics(X, groups, weights)
    A = np.linalg.inv(s.S_I + 0.7 * np.eye(width))
    root = np.ones(len(X)) if weights is None else np.sqrt(weights)
    assert_allclose(solution.alpha.T @ (root[:, None] * X), s.delta @ A, atol=1e-10)
    assert_allclose(solution.gram, s.delta @ A @ s.delta.T, atol=1e-10)
    assert_allclose(solution.coordinates, (X - s.m) @ A @ s.delta.T, atol=1e-10)
    assert_allclose(solution.residuals, (X - s.means[groups]) @ A @ s.delta.T, atol=1e-10)


@WEIGHTED
def test_dual_solution_does_not_depend_on_the_origin(weighted):
    X, groups, weights = make_rows(SIZES, 40, weighted=weighted)
    _, _, here = solved(X, groups, weights, 0.7)
    _, _, there = solved(X - X.mean(axis=0), groups, weights, 0.7)
    for name in ("alpha", "gram", "coordinates", "residuals"):
        assert_allclose(getattr(here, name), getattr(there, name), atol=1e-9)


@WEIGHTED
def test_leverages_equal_the_quadratic_forms_of_residuals(weighted):
    X, groups, weights = make_rows(SIZES, 40, weighted=weighted)
    factor, counts, solution = solved(X, groups, weights, 3.0)
    diagonal = dual.inverse_diagonal(factor)
    regular = np.linalg.inv(gram_matrix(X, weights) + 3.0 * np.eye(len(X)))
    assert_allclose(diagonal, regular.diagonal(), rtol=1e-10)
    h, gap = dual.leverages(solution, diagonal, groups, counts, 3.0, weights)
    s = paper_statistics(X, groups, weights)
    residuals = X - s.means[groups]
    A = np.linalg.inv(s.S_I + 3.0 * np.eye(40))
    expected = np.einsum("ij,jk,ik->i", residuals, A, residuals)
    w = np.ones(len(X)) if weights is None else weights
    assert_allclose(h, expected, rtol=1e-9)
    assert_allclose(gap, 1 - w * counts[groups] / (counts[groups] - w) * expected, rtol=1e-8)


@WEIGHTED
def test_total_variance_of_a_kernel_matrix_is_that_of_its_rows(weighted):
    X, groups, weights = make_rows(SIZES, 4, weighted=weighted)
    expected = paper_statistics(X, groups, weights).total_variance
    assert_allclose(dual.total_variance(X @ X.T, weights), expected, rtol=1e-11)


def test_rotation_scales_and_drops_what_is_rounding():
    gram = np.array([[4.0, 2.0], [2.0, 1.0]])
    values, rotation = dual.rotation(gram, 10)
    assert_allclose(values, [5.0])
    assert_allclose(rotation.T @ gram @ rotation, [[1.0]])
    with pytest.raises(ValueError, match="no direction tells them apart"):
        dual.rotation(np.zeros((2, 2)), 10)


def exact_gaps(X, groups, regularization, weights):
    """Gaps 1 - f h, ridge and ``Delta A`` in rational arithmetic, from integer rows."""
    rows = [[Fraction(int(value)) for value in row] for row in X]
    w = [Fraction(weight) for weight in weights]
    members = [[i for i in range(len(rows)) if groups[i] == g] for g in range(max(groups) + 1)]
    columns = range(len(rows[0]))

    def mean(chosen):
        total = sum(w[i] for i in chosen)
        return [sum(w[i] * rows[i][j] for i in chosen) / total for j in columns]

    grand, means = mean(range(len(rows))), [mean(chosen) for chosen in members]
    counts = [sum(w[i] for i in chosen) for chosen in members]
    spread = sum(w[i] * (rows[i][j] - grand[j]) ** 2 for i in range(len(rows)) for j in columns)
    ridge = Fraction(regularization) * spread / sum(w)
    residuals = [[rows[i][j] - means[groups[i]][j] for j in columns] for i in range(len(rows))]
    deltas = [[mean[j] - means[0][j] for j in columns] for mean in means[1:]]
    # Gauss-Jordan elimination on [S_I + eps I | residuals | deltas].
    system = [
        [sum(x * r[a] * r[b] for x, r in zip(w, residuals, strict=True)) for b in columns]
        + [r[a] for r in residuals]
        + [delta[a] for delta in deltas]
        for a in columns
    ]
    for c in columns:
        system[c][c] += ridge
    for c in columns:
        system[c] = [value / system[c][c] for value in system[c]]
        for r in columns:
            if r != c:
                share = system[r][c]
                system[r] = [x - share * y for x, y in zip(system[r], system[c], strict=True)]
    gaps = []
    for i, own in enumerate(residuals):
        h = sum(own[a] * system[a][len(columns) + i] for a in columns)
        total = counts[groups[i]]
        gaps.append(float(1 - w[i] * total / (total - w[i]) * h))
    solved = [[float(v) for v in system[a][len(columns) + len(rows) :]] for a in columns]
    return np.array(gaps), float(ridge), np.array(solved).T


@WEIGHTED
@pytest.mark.parametrize("regularization", [1e-4, 1e-10, 1e-13])
def test_left_out_gaps_are_accurate_at_a_tiny_ridge(monkeypatch, weighted, regularization):
    rng = np.random.default_rng(0)
    groups = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2])
    X = rng.integers(-9, 10, (len(groups), 12)).astype(float)
    weights = rng.integers(1, 5, len(groups)) / 2 if weighted else np.ones(len(groups))
    gaps, ridge, delta_a = exact_gaps(X, groups, regularization, weights)
    assert gaps.max() < 100 * regularization  # as a difference from one they would be rounding
    seen = {}
    leverages = dual.leverages

    def spy(solution, diagonal, groups, counts, ridge, weights):
        seen.update(
            ridge=ridge, values=leverages(solution, diagonal, groups, counts, ridge, weights)
        )
        return seen["values"]

    monkeypatch.setattr(dual, "leverages", spy)
    fitted = model.fit_pcsda(
        X,
        groups,
        weights=weights if weighted else None,
        solver="cholesky",
        regularization=regularization,
        n_components=None,
        rule=Rule("mixture", None, "gaussian"),
        leave_one_out=True,
    )
    assert_allclose(seen["ridge"], ridge, rtol=1e-12)
    assert_allclose(seen["values"][1], gaps, rtol=1e-9)
    # Components lie in the rows of Delta A, exactly.
    coefficients = np.linalg.lstsq(delta_a.T, fitted.projection.components.T)[0]
    assert_allclose(coefficients.T @ delta_a, fitted.projection.components, rtol=1e-8, atol=1e-12)


@WEIGHTED
@pytest.mark.parametrize("regularization", [1e-2, 1e-7])
def test_wide_rows_give_the_generalised_eigenvectors(weighted, regularization):
    X, groups, weights = make_rows([8, 5, 6, 4], 60, weighted=weighted)
    s = paper_statistics(X, groups, weights)
    ridge = regularization * s.total_variance
    expected = generalized_eigen(s.S_n, s.S_I + ridge * np.eye(60), 3)
    fitted = model.fit_pcsda(
        X,
        groups,
        weights=weights,
        solver="cholesky",
        regularization=regularization,
        n_components=None,
        rule=Rule(),
        leave_one_out=False,
    )
    assert_allclose(fitted.projection.eigenvalues, expected[0], rtol=1e-7)
    scale = np.abs(expected[1]).max()
    assert_allclose(fitted.projection.components, expected[1], atol=1e-7 * scale)

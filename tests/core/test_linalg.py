"""Dense linear algebra against NumPy, and its tolerances."""

import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_info, threadpool_limits

from pcsda.core import linalg
from pcsda.core.linalg import SingularMatrixError

# Narrow and wide matrices go through different products.
WIDTHS = pytest.mark.parametrize("width", [1, 5, 64, 65, 200, 300])


def positive_definite(size, seed=0):
    rows = np.random.default_rng(seed).standard_normal((2 * size + 3, size))
    return rows.T @ rows / len(rows) + 0.1 * np.eye(size)


@WIDTHS
def test_cholesky_factorises_the_ridged_matrix_and_leaves_it_alone(width):
    matrix = positive_definite(width)
    before = matrix.copy()
    factor = linalg.cholesky(matrix, 0.5)
    assert_allclose(factor @ factor.T, matrix + 0.5 * np.eye(width), atol=1e-12)
    assert_array_equal(np.triu(factor, 1), 0)
    assert_array_equal(matrix, before)


@WIDTHS
def test_cholesky_in_place_gives_the_same_factor(width):
    matrix = positive_definite(width)
    expected = linalg.cholesky(matrix, 0.5)
    factor = linalg.cholesky_in_place(matrix.copy(), 0.5)
    assert_allclose(np.tril(factor), expected, atol=1e-13)


@pytest.mark.parametrize("factorise", [linalg.cholesky, linalg.cholesky_in_place])
@pytest.mark.parametrize(
    "matrix",
    [
        np.zeros((2, 2)),
        np.array([[1.0, 2.0], [2.0, 1.0]]),
        np.array([[1.0, 1.0], [1.0, 1.0]]),
        np.array([[1.0, 1.0], [1.0, 1.0 + 1e-15]]),
        np.diag([1.0, 0.0]),
    ],
    ids=["zero", "indefinite", "rank one", "rank one but for rounding", "a zero column"],
)
def test_cholesky_refuses_numerically_singular_matrices(factorise, matrix):
    with pytest.raises(SingularMatrixError):
        factorise(matrix.copy(), 0.0)


def test_cholesky_accepts_badly_scaled_regular_matrices():
    factor = linalg.cholesky(np.diag([1e-30, 1.0, 1e30]))
    assert_allclose(factor.diagonal(), [1e-15, 1.0, 1e15])


@WIDTHS
def test_whitened_square_norms_are_quadratic_forms(width):
    matrix = positive_definite(width)
    rows = np.random.default_rng(1).standard_normal((30, width))
    expected = np.einsum("ij,ij->i", rows, np.linalg.solve(matrix, rows.T).T)
    inverse = linalg.triangular_inverse(linalg.cholesky(matrix))
    columns = np.random.default_rng(1).standard_normal((width, 3))
    norms, products = linalg.whitened_square_norms(rows.copy(), inverse, columns)
    assert_allclose(norms, expected, rtol=1e-10)
    assert_allclose(products, rows @ columns, rtol=1e-10, atol=1e-12)


def test_triangular_solves_undo_the_factor():
    factor = linalg.cholesky(positive_definite(6))
    right = np.random.default_rng(1).standard_normal((6, 3))
    assert_allclose(factor @ linalg.lower_solve(factor, right), right, atol=1e-12)
    back = linalg.lower_solve(factor, right, transposed=True)
    assert_allclose(factor.T @ back, right, atol=1e-12)


@pytest.mark.parametrize("size", [1, 6, 128, 129, 300])
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_inverse_of_a_triangle_is_a_triangle(size, order):
    factor = np.array(linalg.cholesky(positive_definite(size)), order=order)
    before = factor.copy()
    inverse = linalg.triangular_inverse(factor)
    assert_allclose(inverse @ factor, np.eye(size), atol=1e-11)
    assert_array_equal(np.triu(inverse, 1), 0)
    assert_array_equal(factor, before)


@pytest.mark.parametrize("count", [1, 3, 6])
def test_top_generalized_gives_leading_pairs_of_unit_denominator_norm(count):
    numerator, denominator = positive_definite(6, 1), positive_definite(6, 2)
    values, vectors = linalg.top_generalized(numerator, denominator, count)
    assert values.shape == (count,)
    assert np.all(np.diff(values) < 0)
    assert_allclose(numerator @ vectors, denominator @ vectors * values, atol=1e-11)
    assert_allclose(vectors.T @ denominator @ vectors, np.eye(count), atol=1e-12)
    assert_allclose(values[0], np.linalg.eigvals(np.linalg.solve(denominator, numerator)).max())


def test_top_generalized_refuses_a_singular_denominator():
    with pytest.raises(SingularMatrixError):
        linalg.top_generalized(np.eye(2), np.diag([1.0, -1.0]), 1)


@pytest.mark.parametrize(
    ("eigenvalues", "rank"),
    [([3.0, 2.0, 1e-16], 2), ([3.0, 1e-10], 2), ([0.0, 0.0], 0), ([-1e-20], 0), ([], 0)],
)
def test_numerical_rank_counts_values_above_rounding(eigenvalues, rank):
    assert linalg.numerical_rank(np.array(eigenvalues), 10) == rank


def test_largest_entry_of_each_row_becomes_positive():
    rows = np.array([[1.0, -2.0], [3.0, 2.0], [-0.5, 0.1], [0.0, 0.0]])
    expected = [[-1.0, 2.0], [3.0, 2.0], [0.5, -0.1], [0.0, 0.0]]
    assert_array_equal(linalg.fix_signs(rows), expected)


@pytest.mark.parametrize("shape", [(5, 12), (5, 5), (1, 4)])
def test_row_span_keeps_inner_products(shape):
    rows = np.random.default_rng(0).standard_normal(shape)
    coordinates, basis = linalg.row_span(rows)
    assert coordinates.shape == (shape[0], shape[0])
    assert_allclose(coordinates @ basis, rows, atol=1e-13)
    assert_allclose(basis @ basis.T, np.eye(shape[0]), atol=1e-13)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("n_rows", [0, 1, 511, 512, 5000])
def test_ranges_cover_every_row_once(monkeypatch, threads, n_rows):
    monkeypatch.setattr(linalg, "BLOCK_BYTES", 1)
    with threadpool_limits(threads, user_api="blas"):
        ranges = linalg.over_rows(lambda start, stop: (start, stop), n_rows, 4)
    assert [row for start, stop in ranges for row in range(start, stop)] == list(range(n_rows))
    assert len(ranges) <= threads


def test_narrow_rows_are_split_among_threads(monkeypatch):
    monkeypatch.setattr(linalg, "BLOCK_BYTES", 1)
    barrier = threading.Barrier(2, timeout=10)  # breaks unless both ranges run at once
    with threadpool_limits(2, user_api="blas"):
        linalg.over_rows(lambda start, stop: barrier.wait(), 1000, 4)
        assert len(linalg.over_rows(lambda start, stop: None, 1000, 100000)) == 1


def test_an_error_in_a_thread_is_not_lost(monkeypatch):
    monkeypatch.setattr(linalg, "BLOCK_BYTES", 1)

    def fail(start, stop):
        raise ValueError("lost")

    with threadpool_limits(2, user_api="blas"), pytest.raises(ValueError, match="lost"):
        linalg.over_rows(fail, 1000, 4)


@pytest.mark.parametrize(("alone", "expected"), [(True, 1), (False, 2)])
def test_light_work_limits_blas_to_one_thread_and_restores_it(alone, expected):
    def threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with linalg.one_thread(alone):
            assert threads() <= {1, expected}
        assert threads() == before


def test_a_nested_blas_limit_is_not_set_again(monkeypatch):
    with threadpool_limits(2, user_api="blas"), linalg.one_thread():
        monkeypatch.setattr(linalg, "_blas", lambda: pytest.fail("asked"))
        with linalg.one_thread():
            pass
        linalg.lower_solve(np.eye(2), np.ones(2))
        monkeypatch.undo()


def test_work_is_light_up_to_a_number_of_multiplications():
    assert linalg.is_light(300, 512)
    assert linalg.is_light(512, 300)
    assert not linalg.is_light(3000, 512)
    assert not linalg.is_light(50_000, 100)

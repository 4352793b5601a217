"""Our operators as SciPy's, and SciPy's as ours."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse.linalg as sl

import lowtucker as lt
from interop.ours import OURS, PARTS, SHAPE, M, N, numbers


@pytest.fixture
def S(A):
    return lt.to_scipy(A)


def test_products_are_those_of_the_matrix(A, S, matrix, atol):
    assert isinstance(S, sl.LinearOperator)
    assert S.shape == matrix.shape
    x, v = numbers(N, dtype=S.dtype), numbers(len(matrix), dtype=S.dtype)
    np.testing.assert_allclose(S @ x, matrix @ x, atol=atol)
    np.testing.assert_allclose(S.matvec(x[:, None]), (matrix @ x)[:, None], atol=atol)
    np.testing.assert_allclose(S.rmatvec(v), matrix.conj().T @ v, atol=atol)
    np.testing.assert_allclose(S.H @ v, matrix.conj().T @ v, atol=atol)
    np.testing.assert_allclose(S.T @ v, matrix.T @ v, atol=atol)
    assert (S @ x).dtype == S.dtype


def test_products_with_matrices_are_those_of_the_matrix(S, matrix, atol):
    X, V = numbers(N, 5, dtype=S.dtype), numbers(len(matrix), 5, dtype=S.dtype)
    np.testing.assert_allclose(S @ X, matrix @ X, atol=atol)
    np.testing.assert_allclose(S.matmat(X), matrix @ X, atol=atol)
    np.testing.assert_allclose(S.rmatmat(V), matrix.conj().T @ V, atol=atol)
    np.testing.assert_allclose(S.H @ V, matrix.conj().T @ V, atol=atol)
    np.testing.assert_allclose(S @ np.eye(N), matrix, atol=atol)


def test_real_operators_accept_complex_vectors(S, matrix, atol):
    x, v = numbers(N, dtype=complex), numbers(len(matrix), dtype=complex)
    np.testing.assert_allclose(S @ x, matrix @ x, atol=atol)
    np.testing.assert_allclose(S.H @ v, matrix.conj().T @ v, atol=atol)
    np.testing.assert_allclose(S @ np.outer(x, x[:3]), np.outer(matrix @ x, x[:3]), atol=100 * atol)


def test_vectors_of_any_stride_and_of_integers(S, matrix, atol):
    x = np.arange(2 * N)[::-2]
    np.testing.assert_allclose(S @ x, matrix @ x, atol=100 * atol)
    v = numbers(2 * len(matrix))[::-2]
    np.testing.assert_allclose(S.H @ v, matrix.conj().T @ v, atol=atol)


LEAST_SQUARES = {
    "lsqr": lambda S, b: sl.lsqr(S, b, atol=1e-13, btol=1e-13, conlim=0, iter_lim=500)[0],
    "lsmr": lambda S, b: sl.lsmr(S, b, atol=1e-13, btol=1e-13, conlim=0, maxiter=500)[0],
}


# lsmr compares numbers of single precision with 1e100
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning:scipy.*")
@pytest.mark.parametrize("solver", LEAST_SQUARES)
def test_least_squares_of_scipy(solver, S, matrix):
    b = matrix @ numbers(N, dtype=S.dtype) + 0.1 * numbers(len(matrix), dtype=S.dtype, seed=6)
    expected = np.linalg.lstsq(matrix, b, rcond=None)[0]
    x = LEAST_SQUARES[solver](S, b)
    np.testing.assert_allclose(x, expected, atol=1e-3 if S.dtype == np.float32 else 1e-8)


def test_singular_values_of_scipy(S, matrix):
    U, s, Vh = sl.svds(S, k=3, v0=numbers(min(S.shape), dtype=S.dtype))
    expected = np.linalg.svd(matrix, compute_uv=False)[:3]
    np.testing.assert_allclose(np.sort(s)[::-1], expected, rtol=1e-4)
    np.testing.assert_allclose(S @ Vh.conj().T, U * s, atol=1e-3)


def test_operators_combine_with_those_of_scipy(S, matrix, atol):
    D = sl.aslinearoperator(np.diag(np.arange(1.0, N + 1)))
    x = numbers(N, dtype=S.dtype)
    combined = 2 * S @ D + S
    np.testing.assert_allclose(
        combined @ x, 2 * matrix @ (np.arange(1, N + 1) * x) + matrix @ x, atol=100 * atol
    )


@pytest.mark.parametrize("name", OURS, indirect=True)
def test_converting_back_returns_the_original_operator(A, S):
    assert lt.as_operator(S) is A
    assert lt.as_operator(S, SHAPE) is A


@pytest.mark.parametrize("name", OURS, indirect=True)
def test_converting_back_with_another_shape_reads_a_plain_operator(A, S, matrix, atol):
    other = lt.as_operator(S, (N,))
    assert isinstance(other, lt.LinearOperatorAdapter)
    np.testing.assert_allclose(other.forward(numbers(N)), matrix @ numbers(N), atol=atol)
    reversed_ = lt.as_operator(S, SHAPE, order="F")
    X = numbers(*SHAPE)
    np.testing.assert_allclose(reversed_.forward(X), matrix @ X.ravel(order="F"), atol=atol)


@pytest.mark.parametrize("name", PARTS, indirect=True)
def test_converting_back_from_real_parts_measures_real_parts(A, S, matrix):
    B = lt.as_operator(S, SHAPE)
    assert B.m == 2 * A.m
    X = numbers(*SHAPE)
    y = A.forward(X)
    np.testing.assert_allclose(B.forward(X), np.concatenate([y.real, y.imag]), atol=1e-12)
    np.testing.assert_allclose(
        B.adjoint(np.concatenate([y.real, y.imag])), A.adjoint(y), atol=1e-12
    )


def test_a_combination_is_not_converted_back_to_the_original(A, S, matrix, atol):
    twice = lt.as_operator(2 * S, SHAPE)
    X = numbers(*SHAPE)
    np.testing.assert_allclose(twice.forward(X), 2 * (matrix @ X.ravel()), atol=atol)


THEIRS = {
    "matrix": lambda: sl.aslinearoperator(numbers(M, N)),
    "complex": lambda: sl.aslinearoperator(numbers(M, N, dtype=complex)),
    "product": lambda: sl.aslinearoperator(numbers(M, 9)) @ sl.aslinearoperator(numbers(9, N)),
    "adjoint": lambda: sl.aslinearoperator(numbers(N, M, dtype=complex)).H,
    "sum": lambda: 3 * sl.aslinearoperator(numbers(M, N)) + sl.aslinearoperator(numbers(M, N)),
    "identity": lambda: sl.LinearOperator((N, N), matvec=lambda x: x, rmatvec=lambda x: x,
                                          dtype=float),
}  # fmt: skip


@pytest.mark.parametrize("theirs", THEIRS)
def test_scipy_operators_measure_as_ours_and_survive_the_round_trip(theirs):
    S = THEIRS[theirs]()
    A = lt.as_operator(S, SHAPE)
    assert lt.check_adjoint(A) < 1e-13
    X = numbers(*SHAPE, dtype=S.dtype)
    np.testing.assert_array_equal(A.forward(X), S @ X.ravel())
    back = lt.to_scipy(A)
    for unit in np.eye(N, dtype=S.dtype):
        np.testing.assert_array_equal(back @ unit, S @ unit)
    assert back.dtype == S.dtype


def test_torch_operators_exchange_numpy_arrays_with_scipy():
    torch = pytest.importorskip("torch", reason="torch is not installed: .ci/run installs it")
    matrix = numbers(M, N)
    S = lt.to_scipy(lt.DenseOperator(torch.asarray(matrix), SHAPE))
    assert lt.as_operator(S).prototype.dtype == torch.float64
    b = matrix @ numbers(N)
    np.testing.assert_allclose(sl.lsqr(S, b, atol=0, btol=0)[0], numbers(N), atol=1e-9)
    np.testing.assert_allclose(S @ numbers(N)[::-1], matrix @ numbers(N)[::-1], atol=1e-12)

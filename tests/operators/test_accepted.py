"""What operators accept: lists, any dtype, any sparse format, rows of any array kind."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import lowtucker as lt
from bad_calls.operators import KINDS, MATRIX, SHAPE, SPARSE, M, N, Own, X, Y


@pytest.fixture(params=KINDS, ids=["dense", "batch", "sparse", "adapter", "function"])
def A(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.SlowOperatorWarning)
        yield request.param


def test_misfit_takes_weights_as_a_list(A):
    X = np.broadcast_to(np.arange(12.0).reshape(SHAPE), (*A.batch_shape, *SHAPE))
    y = np.ones((*A.batch_shape, M))
    weights = [1.0, 2.0, 0.0, 1.0, 0.5]
    listed, given = A.misfit(X, y, weights), A.misfit(X, y, np.array(weights))
    np.testing.assert_array_equal(listed[1], given[1])


@pytest.mark.parametrize(
    "dtype", [complex, "complex128", np.complex128, np.dtype(complex)], ids=str
)
def test_a_dtype_may_be_given_in_any_form_that_numpy_accepts(dtype):
    A = lt.DenseOperator(MATRIX, SHAPE, dtype=dtype)
    assert A.dtype == np.complex128
    assert A.adjoint(1j * Y).dtype == np.complex128


def test_rows_may_be_of_any_kind(A):
    torch = pytest.importorskip("torch")
    rows = torch.asarray([3, 0, 3])
    X = np.broadcast_to(np.arange(12.0).reshape(SHAPE), (*A.batch_shape, *SHAPE))
    np.testing.assert_allclose(
        A.restrict(rows).forward(X), A.forward(X)[..., [3, 0, 3]], atol=1e-12
    )


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_a_numpy_matrix_is_read_as_an_array():
    A = lt.DenseOperator(np.matrix(MATRIX), SHAPE)
    assert A.forward(X).shape == (M,)
    np.testing.assert_allclose(A.forward(X), MATRIX @ X.ravel(), atol=1e-13)


def test_complex_measurements_of_real_tensors_are_real_and_imaginary_parts_in_scipy():
    matrix = MATRIX + 1j * MATRIX[::-1]
    S = lt.to_scipy(lt.DenseOperator(matrix, SHAPE, dtype=float))
    assert S.shape == (2 * M, N)
    assert S.dtype == np.float64
    both = np.vstack([matrix.real, matrix.imag])
    np.testing.assert_allclose(S @ np.eye(N), both, rtol=0, atol=1e-13)
    np.testing.assert_allclose(S.rmatmat(np.eye(2 * M)), both.T, rtol=0, atol=1e-13)


def test_tensors_have_the_precision_of_the_matrix():
    assert lt.DenseOperator(MATRIX, SHAPE, dtype=np.complex64).dtype == np.complex128
    assert lt.DenseOperator(MATRIX.astype(np.float32), SHAPE, dtype=complex).dtype == np.complex64


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "lil", "dia", "dok"])
def test_every_sparse_format_is_accepted_and_not_changed(form):
    given = SPARSE.asformat(form)
    A = lt.SparseOperator(given, SHAPE)
    np.testing.assert_allclose(A.forward(X), MATRIX @ X.ravel())
    assert given.format == form
    np.testing.assert_array_equal(given.toarray(), MATRIX)


def test_complex_tensors_need_a_complex_operator():
    A = lt.DenseOperator(MATRIX, SHAPE, dtype=complex)
    np.testing.assert_allclose(A.forward(1j * X), 1j * (MATRIX @ X.ravel()), atol=1e-13)


def test_an_operator_without_m_lacks_other_attributes_as_any_object_does():
    with pytest.raises(AttributeError, match="'Own' object has no attribute 'foo'"):
        _ = Own(shape=SHAPE).foo

"""What has no meaning is refused by name, before any work: the operators."""

from __future__ import annotations

import tracemalloc
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import lowtucker as lt

SHAPE, N, M = (3, 4), 12, 5
MATRIX = np.random.default_rng(0).standard_normal((M, N))
X = np.random.default_rng(1).standard_normal(SHAPE)
Y = np.random.default_rng(2).standard_normal(M)
RAGGED = [[1.0, 2.0], [3.0]]
SPARSE = scipy.sparse.csr_array(MATRIX)


def dense():
    return lt.DenseOperator(MATRIX, SHAPE)


def stack():
    return lt.gaussian(SHAPE, M, seed=1, trials=3)


def function(forward=None, adjoint=None):
    return lt.FunctionOperator(
        (lambda X: MATRIX @ X.ravel()) if forward is None else forward,
        (lambda v: (MATRIX.T @ v).reshape(SHAPE)) if adjoint is None else adjoint,
        SHAPE,
        M,
    )


def with_entry(value, dtype=float):
    matrix = MATRIX.astype(dtype)
    matrix[2, 3] = value
    return matrix


MAKERS = {
    "dense": dense,
    "stack": stack,
    "sparse": lambda: lt.SparseOperator(SPARSE, SHAPE),
    "adapter": lambda: lt.as_operator(scipy.sparse.linalg.aslinearoperator(MATRIX), SHAPE),
    "function": function,
}

bad_operators = {
    "dense-None": (lambda: lt.DenseOperator(None), TypeError, "matrix must be an array .*NoneType"),
    "dense-string": (lambda: lt.DenseOperator("A"), TypeError, "matrix must be an array .*got str"),
    "dense-ragged": (lambda: lt.DenseOperator(RAGGED), ValueError, "matrix must be .*ragged list"),
    "dense-objects": (
        lambda: lt.DenseOperator(np.array([[None, 1]])),
        TypeError,
        "matrix must be an array of numbers, got dtype object",
    ),
    "dense-number": (lambda: lt.DenseOperator(3.0), ValueError, r"matrix must have one row .*\(\)"),
    "dense-vector": (
        lambda: lt.DenseOperator(np.ones(12), SHAPE),
        ValueError,
        r"matrix must have one row per measurement, got shape \(12,\)",
    ),
    "dense-nan": (
        lambda: lt.DenseOperator(with_entry(np.nan), SHAPE),
        ValueError,
        "matrix has NaN or infinite entries",
    ),
    "dense-inf": (
        lambda: lt.DenseOperator(with_entry(-np.inf), SHAPE),
        ValueError,
        "matrix has NaN or infinite entries",
    ),
    "dense-complex-nan": (
        lambda: lt.DenseOperator(with_entry(1j * np.nan, complex), SHAPE),
        ValueError,
        "matrix has NaN or infinite entries",
    ),
    "dense-needs-shape": (
        lambda: lt.DenseOperator(MATRIX),
        ValueError,
        r"shape is needed to read the rows of a matrix of shape \(5, 12\)",
    ),
    "dense-wrong-shape": (
        lambda: lt.DenseOperator(MATRIX, (3, 5)),
        ValueError,
        r"rows of 12 entries .*tensors of shape \(3, 5\) have 15",
    ),
    "dense-transposed": (
        lambda: lt.DenseOperator(MATRIX.T, SHAPE),
        ValueError,
        r"rows of 5 entries .*transpose the matrix",
    ),
    "dense-shape-number": (
        lambda: lt.DenseOperator(MATRIX, 12),
        TypeError,
        "shape must .*number 12",
    ),
    "dense-shape-float": (
        lambda: lt.DenseOperator(MATRIX, (3.0, 4)),
        ValueError,
        r"shape must be a tuple of positive integers, got \(3\.0, 4\)",
    ),
    "dense-shape-empty": (lambda: lt.DenseOperator(MATRIX, ()), ValueError, r"shape must .*\(\)"),
    "dense-order": (
        lambda: lt.DenseOperator(MATRIX, SHAPE, order="X"),
        ValueError,
        r'order must be "C" \(row-major\) or "F".*got \'X\'',
    ),
    "dense-order-None": (
        lambda: lt.DenseOperator(MATRIX, SHAPE, order=None),
        ValueError,
        "order must be .*got None",
    ),
    "dense-dtype-name": (
        lambda: lt.DenseOperator(MATRIX, SHAPE, dtype="foo"),
        TypeError,
        "dtype must be .*'foo'",
    ),
    "dense-dtype-int": (
        lambda: lt.DenseOperator(MATRIX, SHAPE, dtype=np.dtype(int)),
        TypeError,
        "dtype must be .*int64",
    ),
    "dense-no-rows": (
        lambda: lt.DenseOperator(np.zeros((0, N)), SHAPE),
        ValueError,
        r"matrix must have .*got shape \(0, 12\)",
    ),
    "dense-no-columns": (
        lambda: lt.DenseOperator(np.zeros((3, 0, 4))),
        ValueError,
        r"got .*\((3, )?0, 4\)",
    ),
    "as_operator-None": (lambda: lt.as_operator(None), TypeError, "(A|matrix) must be .*NoneType"),
    "as_operator-path": (
        lambda: lt.as_operator("a.npy"),
        TypeError,
        "A must be an operator or an array, got the path 'a.npy'",
    ),
    "as_operator-other-shape": (
        lambda: lt.as_operator(dense(), (4, 3)),
        ValueError,
        r"shape=\(4, 3\) is not the shape of A's tensors, \(3, 4\)",
    ),
    "as_operator-sparse-needs-shape": (
        lambda: lt.as_operator(SPARSE),
        ValueError,
        r"shape is needed to read csr_array of shape \(5, 12\)",
    ),
    "as_operator-order-of-an-operator": (
        lambda: lt.as_operator(dense(), order="F"),
        ValueError,
        'DenseOperator.*pass order="F" when you create the operator',
    ),
    "as_operator-wrong-order-of-an-operator": (
        lambda: lt.as_operator(dense(), order="X"),
        ValueError,
        "order must be .*got 'X'",
    ),
    "as_operator-function": (
        lambda: lt.as_operator(lambda X: X.ravel(), SHAPE),
        TypeError,
        r"got a function.*lowtucker\.FunctionOperator\(forward, adjoint, shape, m\)",
    ),
    "as_operator-functions": (
        lambda: lt.as_operator((np.ravel, np.ravel), SHAPE),
        TypeError,
        r"got a function.*lowtucker\.FunctionOperator\(forward, adjoint, shape, m\)",
    ),
    "as_operator-no-rmatvec": (
        lambda: lt.as_operator(
            scipy.sparse.linalg.LinearOperator((M, N), matvec=lambda x: MATRIX @ x, dtype=float),
            SHAPE,
        ),
        ValueError,
        r"has no rmatvec.*FunctionOperator\(forward, adjoint, shape, m\)",
    ),
    "as_operator-no-rmatvec-at-all": (
        lambda: lt.as_operator(SimpleNamespace(shape=(M, N), matvec=np.ravel), SHAPE),
        TypeError,
        "must have shape, matvec and rmatvec.*FunctionOperator",
    ),
    "as_operator-order": (
        lambda: lt.as_operator(MATRIX, SHAPE, order="X"),
        ValueError,
        "order must be .*got 'X'",
    ),
    "sparse-dense-array": (
        lambda: lt.SparseOperator(MATRIX, SHAPE),
        TypeError,
        "matrix must be a SciPy sparse array, got ndarray",
    ),
    "sparse-None": (
        lambda: lt.SparseOperator(None, SHAPE),
        TypeError,
        "matrix must be a SciPy sparse array, got NoneType",
    ),
    "sparse-nan": (
        lambda: lt.SparseOperator(scipy.sparse.csr_array(with_entry(np.nan)), SHAPE),
        ValueError,
        "matrix has NaN or infinite entries",
    ),
    "sparse-shape": (
        lambda: lt.SparseOperator(SPARSE, (3, 5)),
        ValueError,
        r"A has shape \(5, 12\), expected \(m, 15\) for tensors of shape \(3, 5\)",
    ),
    "sparse-order": (
        lambda: lt.SparseOperator(SPARSE, SHAPE, order="X"),
        ValueError,
        "order must be .*got 'X'",
    ),
    "adapter-number": (
        lambda: lt.LinearOperatorAdapter(5, SHAPE),
        TypeError,
        "operator must .*int",
    ),
    "adapter-None": (
        lambda: lt.LinearOperatorAdapter(None, SHAPE),
        TypeError,
        "operator must .*NoneType",
    ),
    "adapter-shape": (
        lambda: lt.LinearOperatorAdapter(scipy.sparse.linalg.aslinearoperator(MATRIX), (3, 5)),
        ValueError,
        r"A has shape \(5, 12\), expected \(m, 15\)",
    ),
    "function-forward": (
        lambda: lt.FunctionOperator(None, len, SHAPE, M),
        TypeError,
        "forward must be callable, got NoneType",
    ),
    "function-adjoint": (
        lambda: lt.FunctionOperator(len, 3, SHAPE, M),
        TypeError,
        "adjoint must be callable, got int",
    ),
    "function-m": (
        lambda: lt.FunctionOperator(len, len, SHAPE, 0),
        ValueError,
        "m must be at least 1, got 0",
    ),
    "function-shape": (
        lambda: lt.FunctionOperator(len, len, 12, M),
        TypeError,
        "shape must have one entry per mode, got the number 12",
    ),
    "function-dtype": (
        lambda: lt.FunctionOperator(len, len, SHAPE, M, dtype="foo"),
        TypeError,
        "dtype must be .*'foo'",
    ),
    "gaussian-normalize": (
        lambda: lt.gaussian(SHAPE, M, normalize="foo"),
        ValueError,
        'normalize must be None, "unit" or "frobenius", got \'foo\'',
    ),
    "gaussian-m": (lambda: lt.gaussian(SHAPE, 0), ValueError, "m must be at least 1, got 0"),
    "gaussian-m-float": (
        lambda: lt.gaussian(SHAPE, 5.0),
        TypeError,
        r"m must be an integer, got 5\.0",
    ),
    "gaussian-shape": (lambda: lt.gaussian((), M), ValueError, r"shape must .*got \(\)"),
    "gaussian-shape-None": (lambda: lt.gaussian(None, M), TypeError, "shape must .*NoneType"),
    "gaussian-seed": (
        lambda: lt.gaussian(SHAPE, M, -3),
        ValueError,
        "seed must not be negative, got -3",
    ),
    "gaussian-seed-str": (lambda: lt.gaussian(SHAPE, M, "a"), TypeError, "seed must be .*got 'a'"),
    "gaussian-dtype": (
        lambda: lt.gaussian(SHAPE, M, dtype=int),
        TypeError,
        "dtype must be float32, float64, complex64 or complex128, got int64",
    ),
    "gaussian-dtype-long": (
        lambda: lt.gaussian(SHAPE, M, dtype=np.longdouble),
        TypeError,
        "dtype must be float32, float64, complex64 or complex128, got",
    ),
    "gaussian-trials": (
        lambda: lt.gaussian(SHAPE, M, trials=0),
        ValueError,
        "trials must be at least 1, got 0",
    ),
    "check_adjoint": (
        lambda: lt.check_adjoint(5),
        TypeError,
        "A must be a MeasurementOperator.*int",
    ),
    "check_restriction": (
        lambda: lt.check_restriction(MATRIX),
        TypeError,
        "A must be a MeasurementOperator.*ndarray",
    ),
    "operator_norm": (
        lambda: lt.operator_norm(None),
        TypeError,
        "A must be a MeasurementOperator.*NoneType",
    ),
    "operator_norm-stack": (
        lambda: lt.operator_norm(stack()),
        ValueError,
        "operator_norm expects one operator, got a batch",
    ),
    "to_scipy": (lambda: lt.to_scipy(5), TypeError, "A must be a MeasurementOperator.*int"),
    "to_scipy-stack": (lambda: lt.to_scipy(stack()), ValueError, "one operator, got a batch"),
    "check_adjoint-seed": (
        lambda: lt.check_adjoint(dense(), seed=-1),
        ValueError,
        "seed must not be negative, got -1",
    ),
}


@pytest.mark.parametrize("name", bad_operators)
def test_what_does_not_make_an_operator_is_refused_by_name(name):
    make, error, message = bad_operators[name]
    with pytest.raises(error, match=message):
        make()


@pytest.fixture(params=MAKERS)
def A(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.SlowOperatorWarning)
        yield MAKERS[request.param]()


bad_inputs = {
    "None": (None, TypeError, "{} must be an array of numbers, got NoneType"),
    "string": ("x", TypeError, "{} must be an array of numbers, got str"),
    "ragged": (RAGGED, ValueError, "{} must be an array of numbers, got a ragged list"),
    "objects": (np.array([None]), TypeError, "{} must be an array of numbers, got dtype object"),
    "number": (1.0, ValueError, r"expects {} of shape .*got \(\)"),
    "empty": ([], ValueError, r"expects {} of shape .*got \(0,\)"),
    "wrong": (np.ones((7, 9)), ValueError, r"expects {} of shape .*got \(7, 9\)"),
}


@pytest.mark.parametrize("given", bad_inputs)
def test_forward_and_adjoint_and_misfit_refuse_what_they_cannot_take(A, given):
    value, error, message = bad_inputs[given]
    X, y = np.zeros((*A.batch_shape, *SHAPE)), np.zeros((*A.batch_shape, M))
    for call, name in (
        (A.forward, "X"),
        (A.adjoint, "v"),
        (lambda V: A.misfit(V, y), "X"),
        (lambda V: A.misfit(X, V), "y"),
    ):
        with pytest.raises(error, match=message.format(name)):
            call(value)


def test_a_vectorised_tensor_is_refused_with_a_hint(A):
    with pytest.raises(ValueError, match=r"forward expects X .*got \(12,\).*vectorise"):
        A.forward(np.ones(N))


def test_a_tucker_tensor_of_another_shape_is_refused(A):
    with pytest.raises(ValueError, match=r"forward expects X of shape .*got \(4, 3\)"):
        A.forward(lt.random_tucker((4, 3), (1, 1)))


def test_a_message_about_a_batch_has_the_whole_shape():
    with pytest.raises(
        ValueError, match=r"forward expects X of shape .*\(3, 3, 4\).*, got \(7, 9\)"
    ):
        stack().forward(np.ones((7, 9)))


bad_weights = {
    "short": (np.ones(M - 1), ValueError, r"weights .*\(4,\)"),
    "number-string": ("w", TypeError, "weights must be an array of numbers, got str"),
    "stack-for-one": (np.ones((2, M)), ValueError, r"weights .*\(2, 5\)"),
    "objects": (np.array([None] * M), TypeError, "weights must be an array of numbers"),
}


@pytest.mark.parametrize("given", bad_weights)
def test_misfit_refuses_weights_that_do_not_fit(given):
    weights, error, message = bad_weights[given]
    with pytest.raises(error, match=message):
        dense().misfit(X, Y, weights)


def test_misfit_takes_weights_as_a_list(A):
    X = np.broadcast_to(np.arange(12.0).reshape(SHAPE), (*A.batch_shape, *SHAPE))
    y = np.ones((*A.batch_shape, M))
    weights = [1.0, 2.0, 0.0, 1.0, 0.5]
    listed, given = A.misfit(X, y, weights), A.misfit(X, y, np.array(weights))
    np.testing.assert_array_equal(listed[1], given[1])


bad_rows = {
    "None": (None, TypeError, "rows must be .*NoneType"),
    "string": ("abc", TypeError, "rows must be .*str"),
    "number": (2, TypeError, r"rows must be a slice, a 1-D integer array.*shape \(\)"),
    "floats": ([0.0, 1.0], TypeError, "rows must be a slice, a 1-D integer array.*float64"),
    "matrix": ([[0, 1]], TypeError, r"rows must be a slice, a 1-D integer array.*shape \(1, 2\)"),
    "short-mask": ([True, False], TypeError, "rows must be .*boolean mask of length 5"),
    "empty-mask": ([False] * M, ValueError, "rows selects none of the 5 measurements"),
    "empty": (np.array([], dtype=int), ValueError, "rows selects none of the 5 measurements"),
    "empty-slice": (slice(5, 9), ValueError, "rows selects none of the 5 measurements"),
    "beyond": ([0, 5], ValueError, "rows must be from 0 to 4, got values from 0 to 5"),
    "negative": ([-1], ValueError, "rows must be from 0 to 4, got values from -1"),
    "slice-of-strings": (slice("a", "b"), TypeError, "rows must be a slice of integers"),
    "slice-of-floats": (slice(0.0, 2.0), TypeError, "rows must be a slice of integers"),
    "step-zero": (slice(0, 3, 0), ValueError, "rows must .*step"),
}


@pytest.mark.parametrize("given", bad_rows)
def test_restrict_refuses_rows_that_do_not_exist(A, given):
    rows, error, message = bad_rows[given]
    with pytest.raises(error, match=message):
        A.restrict(rows)


def test_rows_of_a_batch_must_have_one_entry_per_problem():
    with pytest.raises(
        ValueError, match="rows must have one entry for each of the 3 problems, got 2"
    ):
        stack().restrict((slice(0, 1), slice(0, 1)))
    with pytest.raises(ValueError, match="rows must be from 0 to 4"):
        stack().restrict((slice(0, 1), slice(0, 1), np.array([9])))


def test_a_batch_of_tensors_that_does_not_fit_a_batch_of_operators_is_refused():
    with pytest.raises(ValueError, match=r"expects X of shape .*got \(2, 3, 4\)"):
        stack().forward(np.ones((2, *SHAPE)))


def test_complex_tensors_in_a_real_operator_are_refused_with_advice_that_works():
    with pytest.raises(
        TypeError, match=r"X is complex.*DenseOperator\(matrix, shape, dtype=complex\)"
    ):
        dense().forward(1j * X)
    advised = lt.DenseOperator(MATRIX, SHAPE, dtype=complex)
    np.testing.assert_allclose(advised.forward(1j * X), 1j * (MATRIX @ X.ravel()), atol=1e-13)


@pytest.mark.parametrize(
    "dtype", [complex, "complex128", np.complex128, np.dtype(complex)], ids=str
)
def test_a_dtype_may_be_given_in_any_form_that_numpy_accepts(dtype):
    A = lt.DenseOperator(MATRIX, SHAPE, dtype=dtype)
    assert A.dtype == np.complex128
    assert A.adjoint(1j * Y).dtype == np.complex128


# Arrays of another kind


def torch_operator():
    torch = pytest.importorskip("torch")
    return lt.DenseOperator(torch.asarray(MATRIX), SHAPE)


def test_a_torch_tensor_in_a_numpy_operator_is_refused(A):
    torch = pytest.importorskip("torch")
    X = torch.zeros((*A.batch_shape, *SHAPE), dtype=torch.float64)
    v = torch.zeros((*A.batch_shape, M), dtype=torch.float64)
    with pytest.raises(TypeError, match=r"X is a torch .*NumPy"):
        A.forward(X)
    with pytest.raises(TypeError, match=r"v is a torch .*NumPy"):
        A.adjoint(v)
    with pytest.raises(TypeError, match=r"X is a torch .*NumPy"):
        A.misfit(X, np.zeros((*A.batch_shape, M)))


def test_a_numpy_array_in_a_torch_operator_is_refused():
    A = torch_operator()
    with pytest.raises(TypeError, match="X is a NumPy array, but DenseOperator holds torch"):
        A.forward(X)
    with pytest.raises(TypeError, match="v is a NumPy array, but DenseOperator holds torch"):
        A.adjoint(Y)
    with pytest.raises(TypeError, match="X is a NumPy array, but DenseOperator holds torch"):
        A.forward(lt.random_tucker(SHAPE, (1, 1)))
    with pytest.raises(TypeError, match="y is a NumPy array, but DenseOperator holds torch"):
        lt.Problem(A, Y)


def test_a_jax_array_in_a_torch_operator_is_refused():
    jnp = pytest.importorskip("jax.numpy")
    with pytest.raises(TypeError, match=r"X is a jax.*torch"):
        torch_operator().forward(jnp.zeros(SHAPE))


def test_rows_may_be_of_any_kind(A):
    torch = pytest.importorskip("torch")
    rows = torch.asarray([3, 0, 3])
    X = np.broadcast_to(np.arange(12.0).reshape(SHAPE), (*A.batch_shape, *SHAPE))
    np.testing.assert_allclose(
        A.restrict(rows).forward(X), A.forward(X)[..., [3, 0, 3]], atol=1e-12
    )


# What a user's own functions return is checked


@pytest.mark.parametrize(
    ("value", "given"),
    [(np.ones(M + 1), r"\(6,\)"), (1.0, r"(\(\)|float)"), ([1.0] * (M + 1), "."), (None, "None")],
    ids=["wrong-length", "number", "list", "None"],
)
def test_what_forward_and_adjoint_return_is_checked(value, given):
    with pytest.raises(
        (TypeError, ValueError), match=rf"FunctionOperator\._forward returned.*{given}"
    ):
        function(forward=lambda X: value).forward(X)
    with pytest.raises(
        (TypeError, ValueError), match=rf"FunctionOperator\._adjoint returned.*{given}"
    ):
        function(adjoint=lambda v: value).adjoint(Y)


def test_what_the_functions_return_is_checked_in_misfit_too():
    with pytest.raises((TypeError, ValueError), match=r"FunctionOperator\._forward returned"):
        function(forward=lambda X: np.ones(1)).misfit(X, Y)
    with pytest.raises((TypeError, ValueError), match=r"FunctionOperator\._adjoint returned"):
        function(adjoint=lambda v: np.ones(M)).misfit(X, Y)


# The checks find what is wrong


def test_check_adjoint_finds_a_wrong_adjoint():
    wrong = function(adjoint=lambda v: (MATRIX.T @ v).reshape(SHAPE) * 1.001)
    with pytest.raises(
        lt.CheckError, match=r"FunctionOperator: <A\(X\), v> = <X, A\*\(v\)>.*fails by"
    ):
        lt.check_adjoint(wrong)


def test_check_adjoint_finds_maps_that_are_not_linear():
    affine = function(forward=lambda X: MATRIX @ X.ravel() + 1)
    with pytest.raises(lt.CheckError, match=r"FunctionOperator: forward is linear fails by"):
        lt.check_adjoint(affine)
    adjoint = function(adjoint=lambda v: (MATRIX.T @ np.abs(v)).reshape(SHAPE))
    with pytest.raises(lt.CheckError, match=r"FunctionOperator: adjoint is linear fails by"):
        lt.check_adjoint(adjoint)


def test_check_restriction_finds_wrong_blocks():
    class Wrong(lt.DenseOperator):
        def _restrict(self, rows):
            return lt.DenseOperator(self.matrix[rows] * 1.01, self.shape)

    with pytest.raises(lt.CheckError, match=r"Wrong: restrict\(rows\)\.forward\(X\).*fails by"):
        lt.check_restriction(Wrong(MATRIX, SHAPE))


def test_check_restriction_finds_wrong_adjoints_of_blocks():
    class Wrong(lt.DenseOperator):
        def _restrict(self, rows):
            matrix = self.matrix[rows]
            return lt.FunctionOperator(
                lambda X: matrix @ X.ravel(),
                lambda v: 1.01 * (matrix.T @ v).reshape(self.shape),
                self.shape,
                len(matrix),
            )

    with pytest.raises(lt.CheckError, match="Wrong: the blocks' adjoints sum to the adjoint fails"):
        lt.check_restriction(Wrong(MATRIX, SHAPE))


# The operator norm


@pytest.mark.parametrize("m", [5, 40], ids=["small", "large"])
@pytest.mark.parametrize("shape", [(3, 4), (6, 8)], ids=str)
def test_norm_of_complex_measurements_of_real_tensors(m, shape):
    """||A|| over real tensors is that of the real and imaginary parts, one above the other."""
    rng = np.random.default_rng(3)
    n = shape[0] * shape[1]
    matrix = rng.standard_normal((m, n)) + 1j * rng.standard_normal((m, n))
    A = lt.DenseOperator(matrix, shape, dtype=np.dtype(np.float64))
    expected = np.linalg.norm(np.vstack([matrix.real, matrix.imag]), 2)
    assert lt.operator_norm(A) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("m", [1, 2, 5, 40], ids=str)
@pytest.mark.parametrize("shape", [(1,), (2,), (6, 8)], ids=str)
def test_norm_of_any_size_and_of_the_zero_operator(m, shape):
    n = int(np.prod(shape))
    matrix = np.random.default_rng(3).standard_normal((m, n))
    A = lt.DenseOperator(matrix, shape)
    assert lt.operator_norm(A) == pytest.approx(np.linalg.norm(matrix, 2), rel=1e-9)
    assert lt.operator_norm(lt.DenseOperator(0 * matrix, shape)) == 0


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_a_numpy_matrix_is_read_as_an_array():
    A = lt.DenseOperator(np.matrix(MATRIX), SHAPE)
    assert A.forward(X).shape == (M,)
    np.testing.assert_allclose(A.forward(X), MATRIX @ X.ravel(), atol=1e-13)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e300])
def test_the_norm_does_not_depend_on_the_scale_of_the_operator(scale):
    matrix = np.random.default_rng(3).standard_normal((40, 48))
    A = lt.DenseOperator(matrix * scale, (6, 8))
    assert lt.operator_norm(A) / scale == pytest.approx(np.linalg.norm(matrix, 2), rel=1e-9)
    assert lt.check_adjoint(A) < 1e-13


def test_complex_measurements_of_real_tensors_are_real_and_imaginary_parts_in_scipy():
    matrix = MATRIX + 1j * MATRIX[::-1]
    S = lt.to_scipy(lt.DenseOperator(matrix, SHAPE, dtype=float))
    assert S.shape == (2 * M, N)
    assert S.dtype == np.float64
    both = np.vstack([matrix.real, matrix.imag])
    np.testing.assert_allclose(S @ np.eye(N), both, rtol=0, atol=1e-13)
    np.testing.assert_allclose(S.rmatmat(np.eye(2 * M)), both.T, rtol=0, atol=1e-13)


def test_leading_axes_of_tensors_and_data_must_fit():
    with pytest.raises(
        ValueError, match=r"X and y must have the same leading axes.*\(2,\).*\(3,\)"
    ):
        dense().misfit(np.ones((2, *SHAPE)), np.ones((3, M)))
    with pytest.raises(
        ValueError, match=r"X and y must have the same leading axes.*\(2,\).*\(3,\)"
    ):
        lt.Problem(dense(), np.ones((3, M))).residual(np.ones((2, *SHAPE)))
    with pytest.raises(ValueError, match=r"expects X of shape \(3, 3, 4\), got \(4, 3, 3, 4\)"):
        stack().forward(np.ones((4, 3, *SHAPE)))


def test_only_dense_operators_take_different_rows_for_every_problem():
    y = np.ones((3, M))
    for name in ("sparse", "adapter", "function"):
        problem = lt.Problem(MAKERS[name](), y)
        with pytest.raises(
            TypeError, match=r"measures the same rows for every problem of a batch, got 3 sets"
        ):
            problem.block((slice(0, 2), slice(1, 3), slice(2, 4)))


def test_the_precision_of_the_tensors_is_that_of_the_matrix():
    assert lt.DenseOperator(MATRIX, SHAPE, dtype=np.complex64).dtype == np.complex128
    assert lt.DenseOperator(MATRIX.astype(np.float32), SHAPE, dtype=complex).dtype == np.complex64


def test_the_output_of_functions_is_checked_in_a_batch_and_in_a_block_too():
    wrong = function(forward=lambda X: [1.0] * M)
    with pytest.raises(TypeError, match=r"FunctionOperator\._forward returned list"):
        wrong.forward(np.ones((2, *SHAPE)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.SlowOperatorWarning)
        block = wrong.restrict([0, 1])
    with pytest.raises(TypeError, match=r"FunctionOperator\._forward returned list"):
        block.forward(X)
    two_axes = function(forward=lambda X: np.ones((1, M)))
    with pytest.raises(ValueError, match=r"returned shape \(1, 5\), expected \(5,\)\."):
        two_axes.forward(X)


def test_what_a_linear_operator_returns_is_checked():
    class Wrong:
        shape, dtype = (M, N), np.dtype(float)

        def matvec(self, x):
            return x[:3]

        rmatvec = matvec

    A = lt.as_operator(Wrong(), SHAPE)
    with pytest.raises(ValueError, match=r"Wrong\.matvec returned shape \(3,\), expected \(5,\)"):
        A.forward(X)
    with pytest.raises(ValueError, match=r"Wrong\.rmatvec returned shape \(3,\), expected \(12,\)"):
        A.adjoint(Y)


@pytest.mark.parametrize("missing", ["m", "shape"])
def test_a_custom_operator_without_m_or_shape_is_refused_by_name(missing):
    class Own(lt.MeasurementOperator):
        def __init__(self):
            setattr(self, *({"m": ("shape", SHAPE), "shape": ("m", M)}[missing]))

        def _forward(self, X):
            return MATRIX @ X.ravel()

        def _adjoint(self, v):
            return (MATRIX.T @ v).reshape(SHAPE)

    A = Own()
    calls = [lambda: A.forward(X), lambda: A.adjoint(Y), lambda: lt.Problem(A, Y).gradient(X)]
    for call in [*calls, *([lambda: A.restrict([0])] if missing == "m" else [])]:
        with pytest.raises(TypeError, match=rf"Own has no {missing}, .*set self\.{missing} in"):
            call()
    with pytest.raises(AttributeError, match="'Own' object has no attribute 'foo'"):
        _ = A.foo


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("dtype", [float, complex])
def test_row_norms_in_tiles(scale, dtype, monkeypatch):
    monkeypatch.setattr("lowtucker.operators.tiles.TILE_BYTES", 2 * N * 8)
    matrix = (MATRIX + (1j * MATRIX[::-1] if dtype is complex else 0)) * scale
    expected = np.linalg.norm(matrix / scale, axis=-1)
    for rows in (slice(None), slice(1, 4)):
        got = lt.DenseOperator(matrix, SHAPE).restrict(rows).row_norms()
        np.testing.assert_allclose(got / scale, expected[rows], rtol=1e-13)
    two = lt.DenseOperator(np.stack([matrix, 2 * matrix]), SHAPE).restrict(slice(1, 4))
    np.testing.assert_allclose(
        two.row_norms() / scale, [expected[1:4], 2 * expected[1:4]], rtol=1e-13
    )


def test_row_norms_make_nothing_of_the_size_of_the_matrix():
    A = lt.gaussian((50, 40), m=1500)  # 24 MB
    tracemalloc.start()
    A.row_norms()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * 2**20


@pytest.mark.parametrize("index", [-1, 10**8])
@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "lil"])
def test_a_sparse_matrix_with_an_index_out_of_range_is_refused(form, index):
    """SciPy's loops would follow it out of their arrays, and end the interpreter."""
    bad = SPARSE.asformat(form).copy()
    if form == "coo":
        bad.coords[1][2] = index
    elif form == "lil":
        bad.rows[1][2] = index
    else:
        bad.indices[-1] = index
    for call in (lt.SparseOperator, lt.as_operator):
        with pytest.raises(ValueError, match=r"matrix of shape \(5, 12\) has indices that do not"):
            call(bad, SHAPE)


@pytest.mark.parametrize(("where", "value"), [(0, 1), (2, 10**8), (2, 0), (-1, 10**8)])
def test_a_sparse_matrix_with_pointers_out_of_order_is_refused(where, value):
    bad = SPARSE.copy()
    bad.indptr[where] = value
    with pytest.raises(ValueError, match=r"pointers that do not fit its CSR form\. Build it"):
        lt.SparseOperator(bad, SHAPE)


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "lil", "dia", "dok"])
def test_every_sparse_form_is_taken_and_left_as_it_was(form):
    given = SPARSE.asformat(form)
    A = lt.SparseOperator(given, SHAPE)
    np.testing.assert_allclose(A.forward(X), MATRIX @ X.ravel())
    assert given.format == form
    np.testing.assert_array_equal(given.toarray(), MATRIX)

"""Our operators as PyLops', and PyLops' as ours."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pylops
import pytest
from pylops.optimization.basic import cgls, lsqr
from pylops.utils import dottest

import lowtucker as lt
from interop.ours import OURS, PARTS, SHAPE, M, N, numbers


@pytest.fixture
def op(A):
    return lt.to_pylops(A)


def test_the_converted_operator_passes_the_dot_test_of_pylops(A, op, matrix, name):
    assert isinstance(op, pylops.LinearOperator)
    assert (op.shape, op.dims, op.name) == (matrix.shape, SHAPE, type(A).__name__)
    both = 3 if op.dtype.kind == "c" else 0
    rtol = 1e-3 if name == "single" else 1e-10
    dottest(op, *op.shape, complexflag=both, rtol=rtol, raiseerror=True)


def test_the_converted_operator_takes_tensors_and_vectors(op, matrix, atol):
    X = numbers(*SHAPE, dtype=op.dtype)
    for x in (X, X.ravel()):
        y = op @ x
        assert y.shape == (len(matrix),)
        np.testing.assert_allclose(y, matrix @ X.ravel(), atol=atol)
    x = op.H @ y
    assert x.shape == (N,)
    np.testing.assert_allclose(x, matrix.conj().T @ y, atol=100 * atol)


def test_the_matrix_of_the_converted_operator(op, matrix, atol):
    np.testing.assert_allclose(op.todense(), matrix, atol=atol)
    np.testing.assert_allclose(op.H.todense(), matrix.conj().T, atol=atol)
    np.testing.assert_allclose(op.matmat(np.eye(N)), matrix, atol=atol)


# sampled entries are orthonormal rows: lsqr converges in one step, and divides by the residual
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning:pylops.*")
@pytest.mark.parametrize("solver", [lsqr, cgls])
def test_least_squares_of_pylops(solver, op, matrix):
    b = matrix @ numbers(N, dtype=op.dtype) + 0.1 * numbers(len(matrix), dtype=op.dtype, seed=6)
    expected = np.linalg.pinv(matrix) @ b
    limits = (
        {"atol": 1e-13, "btol": 1e-13}
        if solver is lsqr
        else {"tol": 1e-20 if op.dtype != np.float32 else 1e-6}
    )
    x = solver(op, b, x0=np.zeros(N, op.dtype), niter=200, **limits)[0]
    atol = 1e-4 if op.dtype == np.float32 else 1e-9
    np.testing.assert_allclose(x, expected, atol=atol)


def test_the_converted_operator_combines_with_those_of_pylops(op, matrix, atol):
    smooth = pylops.Smoothing1D(3, SHAPE, axis=0)
    both = pylops.VStack([2 * op @ smooth, op])
    X = numbers(*SHAPE, dtype=op.dtype)
    smoothed = (smooth @ X).ravel()
    expected = np.concatenate([2 * matrix @ smoothed, matrix @ X.ravel()])
    np.testing.assert_allclose(both @ X.ravel(), expected, atol=100 * atol)
    if op.dtype != np.float32:
        dottest(both, *both.shape, complexflag=3 * (op.dtype.kind == "c"), raiseerror=True)


@pytest.mark.parametrize("name", OURS, indirect=True)
def test_converting_back_returns_the_original_operator(A, op):
    assert lt.as_operator(op) is A
    assert lt.as_operator(op, SHAPE) is A
    assert lt.as_operator(op, (N,)) is not A
    assert lt.as_operator(2 * op) is not A
    assert lt.as_operator(op.H.H) is not A


@pytest.mark.parametrize("name", PARTS, indirect=True)
def test_converting_back_from_real_parts_measures_real_parts(A, op):
    X = numbers(*SHAPE)
    y = A.forward(X)
    B = lt.as_operator(op)
    np.testing.assert_allclose(B.forward(X), np.concatenate([y.real, y.imag]), atol=1e-12)
    assert lt.check_adjoint(B) < 1e-13


def test_without_pylops_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pylops", None)
    with pytest.raises(ImportError, match=r"needs PyLops.*pip install pylops"):
        lt.to_pylops(OURS["dense"]())


def test_pylops_is_imported_only_when_needed():
    code = (
        "import sys, numpy as np, lowtucker as lt\n"
        "lt.as_operator(lt.to_scipy(lt.gaussian((2, 3), 4)))\n"
        "assert 'pylops' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_non_operators_are_refused():
    with pytest.raises(TypeError, match="A must be a MeasurementOperator, got ndarray"):
        lt.to_pylops(np.ones((2, N)))
    batch = lt.DenseOperator(numbers(3, M, N), SHAPE)
    with pytest.raises(ValueError, match="A must be one operator, got a batch"):
        lt.to_pylops(batch)


def fourier(dtype, **settings):
    return pylops.signalprocessing.FFTND(SHAPE, axes=(0, 1, 2), dtype=dtype, **settings)


KEPT = np.flatnonzero(numbers(N) > -0.5)
# of several kinds, with a shape of their own and without; and whether they measure real tensors
THEIRS = {
    "matrix": (lambda: pylops.MatrixMult(numbers(M, N)), True),
    "complex matrix": (lambda: pylops.MatrixMult(numbers(M, N, dtype=complex), dtype=complex),
                       False),
    "single": (lambda: pylops.MatrixMult(numbers(M, N, dtype="float32"), dtype="float32"), True),
    "along a mode": (lambda: pylops.MatrixMult(numbers(7, SHAPE[0]), otherdims=SHAPE[1:]), True),
    "fourier": (lambda: fourier(complex), False),
    "fourier of real": (lambda: fourier(float), True),
    "half fourier": (lambda: fourier(float, real=True), True),
    "restriction": (lambda: pylops.Restriction(N, KEPT), True),
    "restriction of a mode": (lambda: pylops.Restriction(SHAPE, [0, 2], axis=1), True),
    "smoothing": (lambda: pylops.Smoothing2D((3, 3), SHAPE, axes=(0, 1)), True),
    "derivative": (lambda: pylops.FirstDerivative(SHAPE, axis=2), True),
    "sampled fourier": (lambda: pylops.Restriction(N, KEPT, dtype=complex) @ fourier(complex),
                        False),
    "stacked": (lambda: pylops.VStack([pylops.MatrixMult(numbers(5, N)), pylops.Diagonal(
        numbers(*SHAPE))]), True),
    "block-diagonal": (lambda: pylops.BlockDiag([pylops.MatrixMult(numbers(7, 6, seed=k))
                                                 for k in range(4)]), True),
    "scaled sum": (lambda: 3 * pylops.MatrixMult(numbers(N, N)) + pylops.Identity(N), True),
    "adjoint": (lambda: pylops.MatrixMult(numbers(N, M)).H, True),
}  # fmt: skip


@pytest.mark.parametrize("name", THEIRS)
def test_pylops_operators_measure_as_ours(name):
    make, is_real = THEIRS[name]
    op = make()
    A = lt.as_operator(op, SHAPE)
    assert (A.dtype.kind == "f") == is_real
    assert lt.check_adjoint(A) < (1e-5 if name == "single" else 1e-13)
    X = numbers(*SHAPE, dtype=A.dtype)
    y = A.forward(X)
    np.testing.assert_array_equal(y, op.matvec(X.ravel()))
    adjoint = op.rmatvec(y).reshape(SHAPE)
    np.testing.assert_array_equal(A.adjoint(y), adjoint.real if is_real else adjoint)
    assert A.adjoint(y).dtype == A.dtype


@pytest.mark.parametrize("name", THEIRS)
def test_pylops_operators_survive_the_round_trip(name):
    op = THEIRS[name][0]()
    A = lt.as_operator(op, SHAPE)
    back = lt.to_pylops(A)
    X = numbers(*SHAPE, dtype=A.dtype).ravel()
    y, made = op.matvec(X), back.matvec(X)
    by_parts = np.iscomplexobj(y) and A.dtype.kind == "f"
    assert by_parts or lt.as_operator(back) is A
    np.testing.assert_array_equal(made, np.concatenate([y.real, y.imag]) if by_parts else y)
    np.testing.assert_array_equal(back.rmatvec(made), op.rmatvec(y).real if by_parts
                                  else op.rmatvec(y))  # fmt: skip


@pytest.mark.parametrize("name", ["fourier", "along a mode", "derivative", "restriction of a mode"])
def test_dims_are_the_default_shape(name):
    assert lt.as_operator(THEIRS[name][0]()).shape == SHAPE


def test_a_single_dimension_is_not_a_default_shape():
    with pytest.raises(ValueError, match=r"shape is needed to read MatrixMult of shape \(60, 24\)"):
        lt.as_operator(pylops.MatrixMult(numbers(M, N)))


@pytest.mark.parametrize("name", ["fourier of real", "half fourier"])
def test_complex_tensors_are_refused_by_operators_on_real_tensors(name):
    A = lt.as_operator(THEIRS[name][0]())
    with pytest.raises(TypeError, match="X is complex, but the operator measures real tensors"):
        A.forward(numbers(*SHAPE, dtype=complex))


SHAPE3, RANK = (8, 7, 6), (2, 2, 1)


def test_recover_from_measurements_of_pylops():
    X_true = lt.random_tucker(SHAPE3, RANK, seed=0)
    blurred = pylops.MatrixMult(numbers(200, 336)) @ pylops.Smoothing1D(3, SHAPE3, axis=1)
    y = blurred @ X_true.full().ravel()
    result = lt.recover(blurred, y, RANK, shape=SHAPE3)
    assert result.success
    assert lt.metrics.relative_error(result.X, X_true) < 1e-5


def test_recover_a_real_tensor_from_complex_coefficients_of_pylops():
    X_true = lt.random_tucker(SHAPE3, RANK, seed=0)
    transform = pylops.signalprocessing.FFTND(SHAPE3, axes=(0, 1, 2), dtype=float)
    chosen = np.sort(np.random.default_rng(0).permutation(336)[:150])
    sampled = pylops.Restriction(336, chosen, dtype=complex) @ transform
    result = lt.recover(sampled, sampled @ X_true.full().ravel(), RANK, shape=SHAPE3)
    assert result.success
    assert result.X.dtype == float
    assert lt.metrics.relative_error(result.X, X_true) < 1e-5

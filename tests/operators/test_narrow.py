"""Matrices as they are in memory: integers, half precision, column-major; no copy is made."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.operators import tiles

SHAPE, N, M = (4, 3, 5), 60, 37
RANK = (2, 2, 2)
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "int64", "bool", ">i2"]
WIDE = {"float16": np.float32, "float32": np.float32} | dict.fromkeys(INTEGERS, np.float64)


def numbers(dtype, shape=(M, N), seed=0):
    """Numbers that the dtype has exactly."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "fc":
        return (rng.integers(-99, 100, shape) / 16).astype(dtype)
    return rng.integers(0, 2 if np.dtype(dtype).kind == "b" else 100, shape).astype(dtype)


def in_order(matrix, order):
    """The same matrix, or every matrix of a batch, in another order of memory."""
    return matrix if order == "C" else np.ascontiguousarray(matrix.mT).mT


@pytest.fixture(params=[1 << 20, 1000], ids=["one-tile", "many-tiles"])
def tile_bytes(request, monkeypatch):
    monkeypatch.setattr(tiles, "TILE_BYTES", request.param)


def same_products(A, B, rtol):
    """Assert that two operators of the same rows measure alike; B is the reference."""
    rng = np.random.default_rng(1)
    batch, dtype = A.batch_shape, B.dtype
    assert A.dtype == dtype
    real = rng.standard_normal((*batch, *SHAPE))
    X = (real + 1j * real[..., ::-1] if dtype.kind == "c" else real).astype(dtype)
    y = rng.standard_normal((*batch, A.m)).astype(A.forward(X).dtype)
    w = rng.uniform(size=A.m).astype(y.real.dtype)
    pairs = [
        (A.forward(X), B.forward(X)),
        (A.adjoint(y), B.adjoint(y)),
        (A.row_norms(), B.row_norms()),
        *zip(A.misfit(X, y), B.misfit(X, y), strict=True),
        *zip(A.misfit(X, y, w), B.misfit(X, y, w), strict=True),
    ]
    if not batch:
        T = lt.TangentSpace(lt.random_tucker(SHAPE, RANK, seed=2, dtype=dtype))
        pairs += [
            (A.tangent(T).dense(), B.tangent(T).dense()),
            *zip(A.tangent(T).normal_equations(y), B.tangent(T).normal_equations(y), strict=True),
            (A.forward(np.stack([X, -2 * X])), B.forward(np.stack([X, -2 * X]))),
            (A.adjoint(np.stack([y, -2 * y])), B.adjoint(np.stack([y, -2 * y]))),
        ]
    for got, expected in pairs:
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=0, atol=rtol * np.abs(expected).max())


@pytest.mark.usefixtures("tile_bytes")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [*INTEGERS, "float16", "float32", "float64", "complex128"])
def test_products_equal_those_of_a_wide_row_major_matrix(dtype, order):
    matrix, wide = numbers(dtype), WIDE.get(dtype, dtype)
    given = in_order(matrix, order)
    A, B = (lt.DenseOperator(a, SHAPE) for a in (given, matrix.astype(wide)))
    assert A.matrix is given
    rtol = 50 * np.finfo(wide).eps
    same_products(A, B, rtol)
    sets = (slice(3, 30), slice(1, None, 5), np.array([5, 0, 0, 36, 7]), np.arange(M) % 3 > 0)
    for rows in sets:
        assert A.restrict(rows).matrix.dtype == matrix.dtype
        same_products(A.restrict(rows), B.restrict(rows), rtol)


@pytest.mark.usefixtures("tile_bytes")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["int8", "bool", "float16", "float64"])
def test_batches(dtype, order):
    matrix, wide = numbers(dtype, (3, M, N)), WIDE.get(dtype, dtype)
    A = lt.DenseOperator(in_order(matrix, order), SHAPE)
    B = lt.DenseOperator(matrix.astype(wide), SHAPE)
    rtol = 50 * np.finfo(wide).eps
    same_products(A, B, rtol)
    same_products(A.select([2, 0]), B.select([2, 0]), rtol)
    sets = (slice(0, 20), np.array([3, 3, 30]), np.arange(9))
    same_products(A.restrict(sets), B.restrict(sets), rtol)
    assert A.restrict(sets).count.dtype == B.restrict(sets).count.dtype


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_complex_tensors_from_narrow_rows(dtype):
    matrix, wide = numbers(dtype), WIDE[dtype]
    A, B = (lt.DenseOperator(a, SHAPE, dtype=complex) for a in (matrix, matrix.astype(wide)))
    same_products(A, B, 50 * np.finfo(wide).eps)


@pytest.mark.parametrize("dtype", ["int8", "float64"])
def test_tensors_in_column_major_memory_are_not_copied(dtype):
    rows = numbers(dtype, (M, *SHAPE))
    A, B = lt.DenseOperator(np.asfortranarray(rows)), lt.DenseOperator(rows.astype(float))
    assert A.order == "F"
    assert A.matrix.base is not None
    same_products(A, B, 1e-14)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_recovery_equals_that_from_wide_rows(dtype, order):
    matrix = np.sign(numbers("float64")).astype(dtype)
    X = lt.random_tucker(SHAPE, (1, 1, 1), seed=3)
    B = lt.DenseOperator(matrix.astype(WIDE[dtype]), SHAPE)
    y = B.forward(X.full().astype(B.dtype))
    tol, error = (1e-12, 1e-10) if dtype == "int8" else (1e-5, 1e-4)
    expected = lt.recover(B, y, (1, 1, 1), tol=tol)
    result = lt.recover(in_order(matrix, order), y, (1, 1, 1), shape=SHAPE, tol=tol)
    assert result.status == expected.status
    assert lt.metrics.relative_error(result.X, expected.X) < error
    assert lt.metrics.relative_error(result.X, X) < error


@pytest.mark.parametrize("kind", ["npy", "h5"])
@pytest.mark.parametrize("dtype", ["int8", "bool", "float16", ">i2"])
def test_stored_rows_are_read_as_they_are(dtype, kind, tmp_path):
    matrix, path = numbers(dtype), tmp_path / f"rows.{kind}"
    if kind == "npy":
        np.save(path, matrix)
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            file["rows"] = matrix
    A, B = lt.stored(path, SHAPE), lt.DenseOperator(matrix.astype(WIDE[dtype]), SHAPE)
    assert A._buffer(1).itemsize == matrix.itemsize
    same_products(A, B, 50 * np.finfo(WIDE[dtype]).eps)
    same_products(A.restrict(slice(2, 9)), B.restrict(slice(2, 9)), 50 * np.finfo(B.dtype).eps)


def test_half_precision_that_is_not_finite_is_refused_and_large_sums_are_not():
    matrix = np.full((40, N), 6e4, np.float16)
    assert lt.DenseOperator(matrix, SHAPE).dtype == np.float32
    matrix[3, 4] = np.inf
    with pytest.raises(ValueError, match="NaN or infinite"):
        lt.DenseOperator(matrix, SHAPE)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["int8", "float16", "float64"])
def test_no_copy_of_the_matrix_is_made(dtype, order):
    m, shape = 500, (20, 25, 40)
    matrix = in_order(numbers(dtype, (m, 20000)), order)
    wide = m * 20000 * (4 if dtype == "float16" else 8)
    y = np.ones(m)
    T = lt.TangentSpace(lt.random_tucker(shape, RANK, seed=2))
    tracemalloc.start()
    A = lt.DenseOperator(matrix, shape)
    X = A.adjoint(y)
    A.forward(X), A.misfit(X, y), A.row_norms()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    A.tangent(T).normal_equations(y)
    peak_of_design = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < wide / 8
    assert peak_of_design < wide / 2

"""Norms of operators and of their rows: any size, any scale, and no copy of the matrix."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import lowtucker as lt

SHAPE, N, M = (3, 4), 12, 5
MATRIX = np.random.default_rng(0).standard_normal((M, N))


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


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e300])
def test_the_norm_does_not_depend_on_the_scale_of_the_operator(scale):
    matrix = np.random.default_rng(3).standard_normal((40, 48))
    A = lt.DenseOperator(matrix * scale, (6, 8))
    assert lt.operator_norm(A) / scale == pytest.approx(np.linalg.norm(matrix, 2), rel=1e-9)
    assert lt.check_adjoint(A) < 1e-13


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


def test_row_norms_allocate_nothing_of_the_size_of_the_matrix():
    A = lt.gaussian((50, 40), m=1500)  # 24 MB
    tracemalloc.start()
    A.row_norms()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * 2**20

"""The tangent design beyond the contract: chunks, tiles, arguments."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.operators import design
from lowtucker.operators.design import DenseDesign, NormalEquations, TangentDesign

SHAPE, RANK, M = (4, 3, 5), (2, 2, 2), 23


def numbers(rng, shape, dtype=float):
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def make(rng, dtype=float, shape=SHAPE, rank=RANK, m=M):
    A = lt.DenseOperator(numbers(rng, (m, *shape), dtype))
    T = lt.TangentSpace(lt.random_tucker(shape, rank, seed=1, dtype=np.dtype(dtype)))
    return A, T


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of two rows in chunks of five: neither divides m."""
    monkeypatch.setattr(design, "CHUNK", 5)
    monkeypatch.setattr(design, "TILE_BYTES", 8 * 60 * 2)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.usefixtures("small_tiles")
def test_chunks_and_tiles_are_the_whole(rng, dtype):
    A, T = make(rng, dtype)
    D = A.tangent(T)
    assert isinstance(D, DenseDesign)
    slices = [rows for rows, _ in D.rows()]
    assert slices == [slice(0, 5), slice(5, 10), slice(10, 15), slice(15, 20), slice(20, 23)]
    whole = TangentDesign(A, T)
    np.testing.assert_allclose(D.dense(), whole.dense(), atol=1e-12)
    y, w = numbers(rng, M, dtype), rng.uniform(0, 2, M)
    for weights in (None, w):
        got, expected = D.normal_equations(y, weights), whole.normal_equations(y, weights)
        assert isinstance(got, NormalEquations)
        for a, b in zip(got, expected, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, atol=1e-10)


@pytest.mark.parametrize("dtype", [float, complex])
def test_columns_are_formed_together_up_to_a_limit(rng, dtype, monkeypatch):
    """By dof forwards above, by one of all tangent vectors below; both are the product."""
    A, T = make(rng, dtype)
    B = lt.FunctionOperator(A.forward, A.adjoint, SHAPE, M, dtype=np.dtype(dtype))
    calls = []
    forward = type(B).forward
    monkeypatch.setattr(type(B), "forward", lambda *args: calls.append(1) or forward(*args))
    rows = A.matrix.reshape(M, -1) @ T.basis().reshape(T.dof, -1).T
    for limit, count in ((T.dof * 60, 1), (T.dof * 60 - 1, T.dof)):
        monkeypatch.setattr(design, "FORMED", limit)
        calls.clear()
        D = TangentDesign(B, T)
        assert [rows for rows, _ in D.rows()] == [slice(0, M)]
        assert len(calls) == count
        assert D.dense().dtype == dtype
        np.testing.assert_allclose(D.dense(), rows, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 3, 100), (600, 2)])
def test_wide_rows_are_tiled_one_by_one(rng, shape, monkeypatch):
    monkeypatch.setattr(design, "TILE_BYTES", 8)
    A, T = make(rng, shape=shape, rank=(2,) * len(shape), m=3)
    np.testing.assert_allclose(A.tangent(T).dense(), TangentDesign(A, T).dense(), atol=1e-11)


def test_more_rows_than_a_chunk(rng):
    A, T = make(rng, shape=(3, 2, 2), rank=(1, 2, 2), m=2 * design.CHUNK + 3)
    D = A.tangent(T)
    assert [rows.stop - rows.start for rows, _ in D.rows()] == [design.CHUNK, design.CHUNK, 3]
    basis = np.stack([T.full(e).reshape(-1) for e in np.eye(T.dof)], axis=1)
    np.testing.assert_allclose(D.dense(), A.matrix @ basis, atol=1e-12)


def test_weights_of_zero_leave_rows_out(rng):
    A, T = make(rng)
    y, keep = numbers(rng, M), np.arange(M) % 3 > 0
    with_zeros = A.tangent(T).normal_equations(y, keep.astype(float))
    without = A.restrict(keep).tangent(T).normal_equations(y[keep])
    np.testing.assert_allclose(with_zeros.gram, without.gram, atol=1e-12)
    np.testing.assert_allclose(with_zeros.gradient, without.gradient, atol=1e-12)


def test_residual_is_zero_at_the_truth(rng):
    A, T = make(rng)
    equations = A.tangent(T).normal_equations(A.forward(T.X))
    assert np.abs(equations.residual).max() < 1e-12
    assert np.abs(equations.gradient).max() < 1e-11


def test_fast_tangents_are_declared(rng):
    A, T = make(rng)
    assert A.traits.has_fast_tangent
    slow = lt.FunctionOperator(A.forward, A.adjoint, SHAPE, M)
    assert not slow.traits.has_fast_tangent
    assert type(slow.tangent(T)) is TangentDesign
    np.testing.assert_allclose(slow.tangent(T).dense(), A.tangent(T).dense(), atol=1e-12)


def test_too_few_spaces_and_another_shape_are_refused(rng):
    _, T = make(rng)
    batch = lt.gaussian(SHAPE, M, seed=0, trials=2)
    with pytest.raises(ValueError, match=r"T must be a batch of \(2,\) tangent spaces.*got \(\)"):
        batch.tangent(T)
    with pytest.raises(ValueError, match=r"DenseOperator\.tangent expects X of shape .*4, 3, 6\)"):
        lt.gaussian((4, 3, 6), M, seed=0).tangent(T)

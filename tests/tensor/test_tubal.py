"""Tubal rank against plain loops: block-circulant matrices, and an SVD of every Fourier slice."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt

SHAPES = [(4, 5, 6), (5, 4, 3), (3, 3, 1), (4, 3, 2)]


def circulant(X):
    """Block-circulant matrix of a tensor: block (a, b) is its slice a - b."""
    n = X.shape[2]
    return np.block([[X[:, :, (a - b) % n] for b in range(n)] for a in range(n)])


def t_product(X, Y):
    """Block-circulant matrix times stacked slices."""
    n = X.shape[2]
    stacked = circulant(X) @ np.concatenate([Y[:, :, k] for k in range(n)])
    return np.stack(np.split(stacked, n), axis=2)


def t_transpose(X):
    """Conjugate transposes of the slices, those from the second on in reverse order."""
    order = [-k % X.shape[2] for k in range(X.shape[2])]
    return np.stack([X[:, :, k].conj().T for k in order], axis=2)


def t_svd(Z, r):
    """Truncated SVD of every Fourier slice, by a loop over the DFT's definition."""
    n = Z.shape[2]
    waves = np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)
    out = np.zeros(Z.shape, complex)
    for k in range(n):
        U, s, Vh = np.linalg.svd(sum(Z[:, :, j] * waves[j, k] for j in range(n)))
        truncated = (U[:, :r] * s[:r]) @ Vh[:r]
        for j in range(n):
            out[:, :, j] += truncated * waves[j, k].conj() / n
    return out


def tensor(rng, shape, dtype=float):
    Z = rng.standard_normal(shape)
    return Z + 1j * rng.standard_normal(shape) if dtype is complex else Z


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_loop_over_fourier_slices(rng, shape, dtype):
    Z = tensor(rng, shape, dtype)
    for r in range(1, min(shape[:2]) + 1):
        X = lt.Tubal(r)(Z)
        np.testing.assert_allclose(X.full(), t_svd(Z, r), atol=1e-12)
        assert X.dtype == Z.dtype


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("shape", SHAPES)
def test_is_the_t_product_of_its_factors(rng, shape, dtype):
    X = lt.Tubal(2)(tensor(rng, shape, dtype))
    product = t_product(X.left, t_transpose(X.right))
    np.testing.assert_allclose(X.full(), product, atol=1e-12)
    eye = np.zeros((2, 2, shape[2]))
    eye[:, :, 0] = np.eye(2)
    np.testing.assert_allclose(t_product(t_transpose(X.right), X.right), eye, atol=1e-13)


def test_the_rank_of_the_block_circulant_matrix_is_bounded(rng):
    X = lt.Tubal(2)(tensor(rng, (5, 4, 3)))
    assert np.linalg.matrix_rank(circulant(X.full()), tol=1e-10) == 2 * 3


def test_no_tensor_of_that_rank_is_closer(rng):
    """The block-circulant matrix has the same singular values: its tail bounds every error."""
    Z = tensor(rng, (5, 6, 4))
    for r in (1, 3):
        error = np.linalg.norm(lt.Tubal(r)(Z).full() - Z)
        slices = np.fft.fft(Z, axis=2)
        tails = [np.linalg.svd(slices[:, :, k])[1][r:] for k in range(4)]
        assert error == pytest.approx(np.linalg.norm(np.concatenate(tails)) / 2, rel=1e-12)
    assert lt.Tubal(3).eta == 1


@pytest.mark.parametrize("dtype", [float, complex])
def test_compress_is_the_truncation_of_the_full_tensor(rng, dtype):
    X = lt.Tubal(3)(tensor(rng, (5, 4, 6), dtype))
    np.testing.assert_allclose(X.compress(1).full(), t_svd(X.full(), 1), atol=1e-12)
    assert (X + X).rank == 4
    assert (X + X).compress().rank == 3
    assert (X - X).compress().rank <= 4
    assert (0.0 * X).compress().rank == 1


def test_complex_multiples_of_real_tensors(rng):
    X = lt.Tubal(2)(tensor(rng, (4, 5, 6)))
    Y = 1j * X
    np.testing.assert_allclose(Y.full(), 1j * X.full(), atol=1e-13)
    assert Y.dtype == complex
    np.testing.assert_allclose((Y + Y).full(), 2j * X.full(), atol=1e-12)


def test_huge_and_tiny_entries_are_truncated_alike(rng):
    Z = tensor(rng, (4, 5, 6))
    both = lt.Tubal(2)(np.stack([np.ldexp(Z, 800), np.ldexp(Z, -800)]))
    for k, power in enumerate((-800, 800)):
        np.testing.assert_allclose(np.ldexp(both.full()[k], power), t_svd(Z, 2).real, atol=1e-12)


def test_many_entries_are_computed_in_chunks(rng):
    X = lt.Tubal(2)(tensor(rng, (2, 9, 8, 20)))
    index = rng.integers(0, (9, 8, 20), (4000, 3))  # 40 numbers each: three chunks
    got = X.entries(index)
    np.testing.assert_allclose(got, X.full()[:, *index.T], atol=1e-13)
    assert X.entries(index[:0]).shape == (2, 0)


@pytest.mark.slow
def test_rank_2_of_20x20x10_is_recovered_from_gaussian_rows():
    H = lt.Tubal(2)
    X = lt.random_tensor(H, (20, 20, 10), seed=0)
    assert H.degrees_of_freedom(X.shape) == 760
    A = lt.gaussian(X.shape, 3 * 760, seed=1)
    result = lt.recover(A, A.forward(X), H, X_true=X)
    assert result.success
    assert result.error < 1e-5

"""Coefficients of fast transforms, against explicit matrices."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.linalg

import lowtucker as lt
from lowtucker.operators.transforms import KINDS, subsampled_transform


def matrix_of_mode(kind, n):
    """The orthonormal 1-D transform, by its definition."""
    i, j = np.arange(n), np.arange(n)[:, None]
    if kind == "fft":
        return np.exp(-2j * np.pi * i * j / n) / np.sqrt(n)
    if kind == "hadamard":
        return scipy.linalg.hadamard(n) / np.sqrt(n)
    scale = np.where(j == 0, np.sqrt(1 / n), np.sqrt(2 / n))
    return scale * np.cos(np.pi * (2 * i + 1) * j / (2 * n))


def matrix_of_all_modes(kind, shape):
    F = np.ones((1, 1))
    for n in shape:
        F = np.kron(F, matrix_of_mode(kind, n))
    return F


def operator(shape, m, kind, signs=True, seed=3):
    """Operator, and the matrix that it should have."""
    A = subsampled_transform(shape, m, kind, signs=signs, seed=seed)
    index = subsampled_transform(shape, m, kind, signs=False, seed=seed).index
    rows = matrix_of_all_modes(kind, shape)[np.ravel_multi_index(tuple(index.T), shape)]
    s = A.signs.reshape(-1) if signs else 1
    return A, np.sqrt(np.prod(shape)) * rows * s


CASES = [
    ("dct", (3, 4, 2), 24),
    ("dct", (5, 1, 7), 20),
    ("fft", (3, 4, 2), 14),
    ("fft", (4, 3, 5), 30),
    ("fft", (6, 1), 4),
    ("fft", (7,), 4),
    ("hadamard", (4, 2, 8), 64),
    ("hadamard", (128, 2), 100),  # in pieces of 64
    ("hadamard", (1, 4), 3),
]


@pytest.mark.parametrize("signs", [True, False])
@pytest.mark.parametrize(("kind", "shape", "m"), CASES, ids=str)
def test_rows_are_those_of_the_transform(kind, shape, m, signs, rng):
    A, matrix = operator(shape, m, kind, signs)
    X = rng.standard_normal(shape)
    near = {"rtol": 0, "atol": 1e-10}
    y = A.forward(X)
    assert y.dtype == matrix.dtype
    np.testing.assert_allclose(y, matrix @ X.reshape(-1), **near)
    v = rng.standard_normal(m) + (1j * rng.standard_normal(m) if kind == "fft" else 0)
    Z = A.adjoint(v)
    assert Z.dtype == np.float64
    np.testing.assert_allclose(Z.reshape(-1), (matrix.conj().T @ v).real, **near)
    np.testing.assert_allclose(A.row_norms(), np.linalg.norm(matrix, axis=1))
    rows = np.array([m - 1, 0, 1, 1])  # one of them twice
    block = A.restrict(rows)
    np.testing.assert_allclose(block.forward(X), y[rows], **near)
    Z = block.adjoint(y[rows])
    np.testing.assert_allclose(Z.reshape(-1), (matrix[rows].conj().T @ y[rows]).real, **near)


@pytest.mark.parametrize("kind", KINDS)
def test_all_rows_of_a_transform_are_an_isometry(kind, rng):
    """Half of the Fourier coefficients are: a real part and an imaginary part each."""
    shape = (4, 8, 2)
    X = rng.standard_normal(shape)
    m = KINDS[kind](shape).count
    y = subsampled_transform(shape, m, kind).forward(X)
    if kind == "fft":
        index = subsampled_transform(shape, m, kind, signs=False).index
        alone = (2 * index % np.array(shape) == 0).all(axis=1)  # their own conjugates
        y = np.where(alone, y, np.sqrt(2) * y)
    assert np.linalg.norm(y) == pytest.approx(8 * np.linalg.norm(X))


@pytest.mark.parametrize(
    "shape", [(6,), (7,), (1,), (4, 6), (3, 5), (1, 4), (4, 1), (2, 2), (3, 4, 2), (2, 5, 4, 3)]
)
def test_fourier_chooses_one_of_two_conjugates(shape):
    transform = KINDS["fft"](shape)
    index = transform.index(np.arange(transform.count))
    assert (index[:, -1] <= shape[-1] // 2).all()  # what a real transform computes
    flat = np.ravel_multi_index(tuple(index.T), shape)
    conjugates = np.ravel_multi_index(tuple((-index % shape).T), shape)
    assert len(set(flat)) == len(set(np.minimum(flat, conjugates))) == transform.count
    assert {*flat, *conjugates} == set(range(int(np.prod(shape))))


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides(kind):
    def made(seed, signs=True):
        return subsampled_transform((8, 8, 8), 60, kind, signs=signs, seed=seed)

    one = made(7)
    assert len(set(one.at)) == 60
    for same in (made(7), made((7, 0))):
        np.testing.assert_array_equal(one.at, same.at)
        np.testing.assert_array_equal(one.signs, same.signs)
    np.testing.assert_array_equal(one.at, made(7, signs=False).at)
    for other in (made(8), made((7, 1))):
        assert (one.at != other.at).any()
        assert (one.signs != other.signs).any()
    assert one.signs.dtype == np.int8
    assert set(one.signs.reshape(-1)) == {-1, 1}
    assert abs(one.signs.sum()) < 4 * np.sqrt(512)


@pytest.mark.parametrize("kind", KINDS)
def test_signs_make_measurements_isotropic(kind):
    """Without them a constant tensor is one coefficient, which is seldom drawn."""
    shape, X = (8, 16, 8), np.ones((8, 16, 8))
    ratios, unseen = [], 0
    for seed in range(10):
        y = subsampled_transform(shape, 200, kind, seed=seed).forward(X)
        ratios.append(np.linalg.norm(y) ** 2 / 200 / np.linalg.norm(X) ** 2)
        y = subsampled_transform(shape, 200, kind, signs=False, seed=seed).forward(X)
        unseen += np.linalg.norm(y) < 1e-10 * np.linalg.norm(X)
    assert all(0.6 < ratio < 1.5 for ratio in ratios)
    assert np.mean(ratios) == pytest.approx(1, abs=0.1)
    assert unseen >= 4


@pytest.mark.parametrize("signs", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_is_preserved(kind, signs, rng):
    A, matrix = operator((4, 8, 2), 11, kind, signs)
    X = lt.random_tucker((4, 8, 2), (2, 2, 2), seed=0, dtype=np.float32)
    single = np.complex64 if kind == "fft" else np.float32
    expected = (matrix @ X.full().reshape(-1)).astype(single)
    for given in (X, X.full()):
        y = A.forward(given)
        assert y.dtype == single
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-4)
    assert A.adjoint(expected).dtype == np.float32
    design = A.tangent(lt.TangentSpace(X))
    assert design.dense().dtype == single
    assert design.rmatvec(expected).dtype == np.float32


@pytest.mark.parametrize("signs", [True, False])
@pytest.mark.parametrize("kind", ["dct", "hadamard"])
def test_complex_tensors_have_complex_coefficients(kind, signs, rng):
    A, matrix = operator((4, 8, 2), 11, kind, signs)
    X = lt.random_tucker((4, 8, 2), (2, 2, 2), seed=0, dtype=np.complex128)
    near = {"rtol": 0, "atol": 1e-12}
    for given in (X, X.full()):
        np.testing.assert_allclose(A.forward(given), matrix @ X.full().reshape(-1), **near)
    v = rng.standard_normal(11) + 1j * rng.standard_normal(11)
    np.testing.assert_allclose(A.adjoint(v).reshape(-1), matrix.T @ v, **near)
    T = lt.TangentSpace(X)
    D = A.tangent(T)
    np.testing.assert_allclose(D.rmatvec(v), D.dense().conj().T @ v, **near)
    np.testing.assert_allclose(D.rmatvec(v), T.coordinates(A.adjoint(v)), **near)


@pytest.mark.parametrize("signs", [True, False])
def test_fourier_refuses_complex_tensors(signs):
    A = subsampled_transform((4, 3), 5, "fft", signs=signs)
    X = lt.random_tucker((4, 3), (1, 1), seed=0, dtype=np.complex128)
    for given in (X, X.full()):
        with pytest.raises(TypeError, match='X must be real for kind="fft", got dtype complex128'):
            A.forward(given)


@pytest.mark.parametrize("kind", KINDS)
def test_products_with_a_separable_design(kind, rng):
    shape, m = (8, 4, 4), 50
    A, matrix = operator(shape, m, kind, signs=False)
    X = lt.random_tucker(shape, (2, 3, 2), seed=0)
    T = lt.TangentSpace(X)
    basis = np.stack([T.full(e).reshape(-1) for e in np.eye(T.dof)], axis=1)
    D = matrix @ basis
    y = D @ rng.standard_normal(T.dof) + rng.standard_normal(m)
    w, c = rng.uniform(0.5, 2, m), rng.standard_normal(T.dof)
    design = A.tangent(T)
    near = {"rtol": 0, "atol": 1e-10}
    np.testing.assert_allclose(design.dense(), D, **near)
    np.testing.assert_allclose(design.matvec(c), D @ c, **near)
    residual, gradient = design.misfit(y, w)
    r = y - matrix @ X.full().reshape(-1)
    np.testing.assert_allclose(residual, r, **near)
    assert gradient.dtype == np.float64
    np.testing.assert_allclose(gradient, (D.conj().T @ (w * r)).real, **near)
    np.testing.assert_allclose(design.normal_equations(y, w).gradient, gradient, **near)


@pytest.mark.parametrize("kind", ["dct", "fft"])
def test_separable_rows_form_no_full_tensor(kind):
    """A tensor of these would have 512 MB."""
    shape = (400, 400, 400)
    X = lt.random_tucker(shape, (2, 2, 2), seed=0)
    tracemalloc.start()
    A = subsampled_transform(shape, 40, kind, signs=False, seed=1)
    y = A.restrict(slice(3, 20)).forward(X)
    T = lt.TangentSpace(X)
    back = A.tangent(T).rmatvec(A.forward(X))
    A.spectral_start(A.forward(X), (2, 2, 2))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * 400**2
    matrix = matrix_of_mode(kind, 400)
    rows = [matrix[A.index[:, k]] for k in range(3)]
    seen = [row @ U for row, U in zip(rows, X.factors, strict=True)]
    expected = 400**1.5 * np.einsum("ja,jb,jc,abc->j", *seen, X.core)
    np.testing.assert_allclose(A.forward(X), expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(y, expected[3:20], rtol=0, atol=1e-9)
    # D c(X) = A(X), so <D^* A(X), c(X)> is its squared norm
    assert back @ T.here == pytest.approx(np.linalg.norm(expected) ** 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_without_signs_omits_the_diagonal_of_the_spectrum(kind, rng):
    shape, rank, m = (8, 4, 16), (2, 3, 2), 60
    A, matrix = operator(shape, m, kind, signs=False)
    v = rng.standard_normal(m) + (1j * rng.standard_normal(m) if kind == "fft" else 0)
    Z = (matrix.conj().T @ v).real.reshape(shape)
    projected = Z
    for k, n in enumerate(shape):
        F = matrix_of_mode(kind, n)
        B = F @ np.moveaxis(Z, k, 0).reshape(n, -1)
        gram = B @ B.conj().T
        gram = F.conj().T @ (gram - np.diag(np.diag(gram))) @ F  # real, for real tensors
        U = np.linalg.eigh(gram.real)[1][:, -rank[k] :]
        projected = np.moveaxis(np.tensordot(U @ U.T, projected, axes=(1, k)), 0, k)
    start = A.spectral_start(v, rank)
    np.testing.assert_allclose(start.full(), projected, rtol=0, atol=1e-11)
    assert start.core.dtype == start.factors[0].dtype == np.float64


def test_blocks_with_signs_are_not_cheaper():
    signed = subsampled_transform((8, 8, 8), 60)
    separable = subsampled_transform((8, 8, 8), 60, signs=False)
    assert (signed.traits.row_separable, signed.traits.has_fast_tangent) == (False, False)
    assert (separable.traits.row_separable, separable.traits.has_fast_tangent) == (True, True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", lt.SlowOperatorWarning)
        block = signed.restrict(slice(0, 5))
    assert not block.traits.row_separable
    assert block.signs is signed.signs  # not copied


@pytest.mark.parametrize("signs", [True, False])
@pytest.mark.parametrize(("kind", "m"), [("dct", 400), ("fft", 200), ("hadamard", 400)])
def test_recovery(kind, m, signs):
    """88 degrees of freedom; a complex measurement is two."""
    shape, rank = (16, 16, 8), (2, 2, 2)
    A = subsampled_transform(shape, m, kind, signs=signs, seed=0)
    X = lt.random_tucker(shape, rank, seed=0)
    result = lt.recover(A, A.forward(X), rank)
    assert result.success
    assert result.X.core.dtype == np.float64
    assert lt.metrics.relative_error(result.X, X) < 1e-5


def test_recovery_of_a_smooth_tensor_needs_signs():
    """Without them the relevant coefficients are not measured, and success is False."""
    t = np.linspace(0, 1, 16)
    X = lt.hosvd(np.exp(-t[:, None, None] * t[:, None]) + t, (3, 3, 2))
    for signs in (True, False):
        A = subsampled_transform(X.shape, 700, signs=signs, seed=1)
        result = lt.recover(A, A.forward(X), X.rank, max_epochs=60)
        assert result.success == signs
        assert (lt.metrics.relative_error(result.X, X) < 1e-5) == signs


@pytest.mark.parametrize(
    ("arguments", "exception", "message"),
    [
        ({"m": 0}, ValueError, "m must be at least 1, got 0"),
        ({"m": 2.5}, TypeError, "m must be an integer, got 2.5"),
        ({"m": 25}, ValueError, 'm must be at most 24, the number of different "dct"'),
        ({"m": 15, "kind": "fft"}, ValueError, 'at most 14.*different "fft".*got 15'),
        ({"kind": "dst"}, ValueError, 'kind must be "dct", "fft" or "hadamard", got \'dst\''),
        ({"kind": None}, ValueError, "kind must be .* got None"),
        ({"signs": 1}, TypeError, "signs must be True or False, got 1"),
        ({"seed": -1}, ValueError, "seed must not be negative"),
        ({"shape": 24}, TypeError, "shape must have one entry per mode"),
        (
            {"shape": (3, 4, 6), "kind": "hadamard"},
            ValueError,
            r'power of two in every mode.*3 \(mode 0\), 6 \(mode 2\)\. Try kind="dct"',
        ),
    ],
)
def test_bad_arguments_are_refused(arguments, exception, message):
    with pytest.raises(exception, match=message):
        subsampled_transform(**{"shape": (3, 4, 2), "m": 5, **arguments})

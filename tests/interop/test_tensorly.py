"""Conversion from and to Tucker tensors of TensorLy."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tensorly
from tensorly.decomposition import parafac, partial_tucker, tucker

import lowtucker as lt

SHAPE, RANK = (6, 5, 4), (2, 3, 2)


def tensor(dtype=float, shape=SHAPE, rank=RANK):
    X = lt.random_tucker(shape, rank, seed=0)
    core = X.core.astype(dtype)
    if np.dtype(dtype).kind == "c":
        core = core * (1 + 2j)
    return lt.TuckerTensor.from_factors(core, [U.astype(dtype) for U in X.factors])


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_round_trip_keeps_every_bit(dtype):
    X = tensor(dtype)
    back = lt.TuckerTensor.from_tensorly(X.to_tensorly())
    assert back.core is X.core
    assert all(U is V for U, V in zip(back.factors, X.factors, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_tensorly_reads_the_converted_tensor(dtype):
    X = tensor(dtype)
    theirs = X.to_tensorly()
    assert isinstance(theirs, tensorly.tucker_tensor.TuckerTensor)
    assert (theirs.shape, theirs.rank) == (SHAPE, RANK)
    np.testing.assert_allclose(theirs.to_tensor(), X.full(), rtol=0, atol=1e-5)
    assert theirs.to_tensor().dtype == X.dtype


def test_converted_tensor_is_mutable():
    theirs = tensor().to_tensorly()
    theirs.factors[0] = 2 * theirs.factors[0]
    np.testing.assert_allclose(theirs.to_tensor(), 2 * tensor().full())


def test_tensorly_decomposition_is_read():
    Z = np.random.default_rng(0).standard_normal(SHAPE)
    theirs = tucker(Z, rank=RANK)
    X = lt.TuckerTensor.from_tensorly(theirs)
    np.testing.assert_allclose(X.full(), theirs.to_tensor(), atol=1e-13)
    assert X.factors[0] is theirs.factors[0]
    # the converted tensor can be used
    np.testing.assert_allclose((X + X).full(), 2 * theirs.to_tensor(), atol=1e-13)


@pytest.mark.parametrize("rank", [RANK, (2, 7, 4)])
def test_non_orthonormal_factors_are_orthonormalised(rank):
    rng = np.random.default_rng(1)
    factors = [rng.standard_normal((n, r)) for n, r in zip(SHAPE, rank, strict=True)]
    theirs = tensorly.tucker_tensor.TuckerTensor((rng.standard_normal(rank), factors))
    X = lt.TuckerTensor.from_tensorly(theirs)
    assert X.rank == tuple(map(min, SHAPE, rank))
    for U in X.factors:
        np.testing.assert_allclose(U.T @ U, np.eye(U.shape[1]), atol=1e-13)
    np.testing.assert_allclose(X.full(), theirs.to_tensor(), atol=1e-12)


def test_one_non_orthonormal_factor_suffices_to_orthonormalise():
    X = tensor()
    X = lt.TuckerTensor.from_tensorly((X.core, [*X.factors[:2], 3 * X.factors[2]]))
    np.testing.assert_allclose(X.full(), 3 * tensor().full())
    np.testing.assert_allclose(X.norm(), 3 * tensor().norm())


def test_result_can_be_converted_to_tensorly():
    A = lt.gaussian(SHAPE, m=120, seed=1)
    X = lt.recover(A, A.forward(tensor()), rank=RANK).X
    np.testing.assert_allclose(X.to_tensorly().to_tensor(), tensor().full(), atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch_tensors_of_the_pytorch_backend(dtype):
    torch = pytest.importorskip("torch", reason="torch is not installed: .ci/run installs it")
    X = tensor(dtype)
    ours = lt.TuckerTensor.trusted(torch.asarray(X.core), list(map(torch.asarray, X.factors)))
    with tensorly.backend_context("pytorch"):
        theirs = ours.to_tensorly()
        assert isinstance(theirs.to_tensor(), torch.Tensor)
        np.testing.assert_allclose(theirs.to_tensor().numpy(), X.full(), atol=1e-5)
        decomposed = tucker(theirs.to_tensor(), rank=RANK)
    back = lt.TuckerTensor.from_tensorly(theirs)
    assert back.core is ours.core
    made = lt.TuckerTensor.from_tensorly(decomposed)
    assert isinstance(made.core, torch.Tensor)
    assert made.core.dtype == ours.core.dtype
    assert made.core.device == ours.core.device
    np.testing.assert_allclose(made.full().numpy(), X.full(), atol=1e-5)


def test_the_backend_must_be_that_of_the_arrays():
    torch = pytest.importorskip("torch", reason="torch is not installed: .ci/run installs it")
    X = tensor()
    ours = lt.TuckerTensor.trusted(torch.asarray(X.core), list(map(torch.asarray, X.factors)))
    with pytest.raises(TypeError, match=r"holds torch on cpu arrays.*'numpy'.*set_backend"):
        ours.to_tensorly()
    with (
        tensorly.backend_context("pytorch"),
        pytest.raises(TypeError, match=r"holds NumPy arrays.*backend 'pytorch'"),
    ):
        X.to_tensorly()


def test_tensorly_is_not_imported_to_read_from_it():
    code = (
        "import sys, numpy as np, lowtucker as lt\n"
        "lt.TuckerTensor.from_tensorly((np.ones((1, 1)), [np.ones((2, 1)), np.ones((3, 1))]))\n"
        "assert 'tensorly' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_tensorly_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorly", None)
    with pytest.raises(ImportError, match=r"needs TensorLy.*pip install"):
        tensor().to_tensorly()


def batch():
    return lt.random_tucker(SHAPE, RANK, seed=0, trials=3)


def test_tensors_that_tensorly_does_not_support_are_rejected():
    with pytest.raises(ValueError, match=r"two or more modes, got a batch of \(3,\).*trial\(k\)"):
        batch().to_tensorly()
    with pytest.raises(ValueError, match=r"two or more modes, got one mode.*X\.full\(\)"):
        tensor(shape=(5,), rank=(1,)).to_tensorly()


Z = np.random.default_rng(2).standard_normal(SHAPE)
X = tensor()
BAD = {
    "array": (lambda: Z, ValueError, "tensor must be a Tucker tensor.*got ndarray"),
    "number": (lambda: 5, TypeError, "tensor must be a Tucker tensor.*got int"),
    "none": (lambda: None, TypeError, "tensor must be a Tucker tensor.*got NoneType"),
    "three": (lambda: (X.core, X.factors, 1), ValueError, "got tuple: too many values"),
    "no factors": (lambda: (X.core, 5), TypeError, "got tuple: 'int' object is not iterable"),
    "no core": (lambda: ("abc", X.factors), TypeError, "got tuple: core must be an array"),
    "text": (lambda: (X.core, "abc"), TypeError, r"factors\[0\] must be an array"),
    "ours": (lambda: X, TypeError, "got TuckerTensor"),
    "cp": (lambda: parafac(Z, rank=2, n_iter_max=2), ValueError, r"got 3 for a core of.*CP tensor"),
    "missing": (lambda: (X.core, X.factors[:2]), ValueError, "a factor for every mode.*got 2"),
    "partial": (lambda: partial_tucker(Z, (2, 3), modes=(0, 1))[0], ValueError, "partial_tucker"),
    "order": (lambda: (X.core, X.factors[1:] + X.factors[:1]), ValueError, r"factors\[0\] must"),
    "nan": (lambda: (X.core * np.nan, X.factors), ValueError, "core has NaN or infinite"),
    "batch": (lambda: (batch().core, batch().factors), ValueError, "a factor for every mode"),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_tucker_tensors_are_rejected(name):
    make, error, message = BAD[name]
    with pytest.raises(error, match=message):
        lt.TuckerTensor.from_tensorly(make())

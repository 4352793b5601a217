"""Operators from files."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.io
import scipy.sparse

import lowtucker as lt

SHAPE = (3, 4, 2)


@pytest.fixture
def tensors(rng):
    return rng.standard_normal((5, *SHAPE))


def test_npy_of_vectorised_rows_gives_the_same_measurements(tmp_path, tensors, rng):
    np.save(tmp_path / "A.npy", tensors.reshape(5, -1))
    A = lt.io.load_operator(tmp_path / "A.npy", SHAPE)
    X = rng.standard_normal(SHAPE)
    expected = [np.sum(tensor * X) for tensor in tensors]
    np.testing.assert_allclose(A.forward(X), expected)


def test_npy_of_tensors_needs_no_shape(tmp_path, tensors):
    np.save(tmp_path / "A.npy", tensors)
    assert lt.io.load_operator(tmp_path / "A.npy").shape == SHAPE


def test_mat_rows_in_matlab_order_give_the_same_measurements(tmp_path, tensors, rng):
    rows = np.array([tensor.reshape(-1, order="F") for tensor in tensors])  # X(:)' of MATLAB
    scipy.io.savemat(tmp_path / "A.mat", {"A": rows})
    X = rng.standard_normal(SHAPE)
    A = lt.io.load_operator(tmp_path / "A.mat", SHAPE, order="F")
    np.testing.assert_allclose(A.forward(X), [np.sum(tensor * X) for tensor in tensors])


def test_mat_needs_an_order(tmp_path, tensors):
    scipy.io.savemat(tmp_path / "A.mat", {"A": tensors.reshape(5, -1)})
    with pytest.raises(ValueError, match=r'order is needed for .*A\.mat: "F" if'):
        lt.io.load_operator(tmp_path / "A.mat", SHAPE)


def test_npz_with_several_arrays_needs_a_name(tmp_path, tensors):
    np.savez(tmp_path / "data.npz", A=tensors, y=np.ones(5))
    assert lt.io.load_operator(tmp_path / "data.npz", name="A").m == 5
    with pytest.raises(ValueError, match="holds several arrays; give the name of one of: A"):
        lt.io.load_operator(tmp_path / "data.npz")


def test_sparse_npz_gives_a_sparse_operator(tmp_path, tensors, rng):
    rows = np.where(tensors > 0.5, tensors, 0).reshape(5, -1)
    scipy.sparse.save_npz(tmp_path / "A.npz", scipy.sparse.csr_array(rows))
    A = lt.io.load_operator(tmp_path / "A.npz", SHAPE)
    assert isinstance(A, lt.SparseOperator)
    X = rng.standard_normal(SHAPE)
    np.testing.assert_allclose(A.forward(X), rows @ X.reshape(-1))
    with pytest.raises(ValueError, match="shape is needed"):
        lt.io.load_operator(tmp_path / "A.npz")


def test_file_without_an_array_is_rejected(tmp_path):
    (tmp_path / "A.npy").write_text("<html>not found</html>")
    with pytest.raises(lt.FileFormatError, match="is an HTML page"):
        lt.io.load_operator(tmp_path / "A.npy", SHAPE)


def test_max_bytes_limits_the_size(tmp_path, tensors):
    np.save(tmp_path / "A.npy", tensors)
    with pytest.raises(lt.FileFormatError, match="at most 100 are allowed"):
        lt.io.load_operator(tmp_path / "A.npy", max_bytes=100)

"""A stream takes every kind of operator: what it adds is that of its matrix."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import lowtucker as lt
from cases import OPERATORS


@pytest.mark.parametrize("name", OPERATORS)
def test_a_block_of_every_operator(name):
    """At full rank, where X is linear in y: against numpy.linalg.lstsq."""
    A = OPERATORS[name]()
    if A.batch_shape:
        with pytest.raises(ValueError, match="must be one operator"):
            lt.Online(A.shape, lt.attainable_rank(A.shape)).update(A, np.zeros(A.m))
        return
    dtype = np.dtype(np.float64 if A.dtype is None else A.dtype)
    unit = np.eye(int(np.prod(A.shape)), dtype=dtype).reshape(-1, *A.shape)
    rows = np.stack([A.forward(one) for one in unit], axis=1)  # the matrix of A
    rng = np.random.default_rng(0)
    first = rng.standard_normal((5 * len(unit), len(unit))).astype(dtype)
    if dtype.kind == "c":
        first = first + 1j * rng.standard_normal(first.shape)
    truth = rng.standard_normal(len(unit)).astype(dtype)
    z = first @ truth + 0.1 * rng.standard_normal(len(first)).astype(first.real.dtype)
    y = rows @ truth + 0.1 * rng.standard_normal(A.m).astype(first.real.dtype)
    online = lt.Online(A.shape, lt.attainable_rank(A.shape))
    online.update(first, z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.SlowOperatorWarning)
        online.update(A, y)
    M, right = np.concatenate([first, rows]), np.concatenate([z, y])
    if dtype.kind != "c":  # complex rows of real tensors
        M, right = np.concatenate([M.real, M.imag]), np.concatenate([right.real, right.imag])
    expected = np.linalg.lstsq(M, right, rcond=None)[0]
    tolerance = 1e-3 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(online.X.full().ravel(), expected, atol=tolerance)

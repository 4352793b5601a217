"""Residuals that stay with the rows: fetched as NumPy arrays when their values are needed."""

from __future__ import annotations

import numpy as np
import pytest

from lowtucker._array import as_float, is_array, is_numpy, like, namespace, same_kind, to_numpy
from lowtucker.operators.deferred import Deferred

VALUES = np.array([3.0, 4.0])


@pytest.fixture
def fetched():
    return []


@pytest.fixture
def v(fetched):
    def fetch():
        fetched.append(1)
        return VALUES

    return Deferred((2,), np.dtype(float), 5.0, None, fetch)


def test_shape_norm_and_kind_fetch_nothing(v, fetched):
    assert (v.shape, v.ndim, len(v), v.norm) == ((2,), 1, 2, 5.0)
    assert is_array(v)
    assert is_numpy(v)
    assert namespace(v) is namespace(v, VALUES) is namespace(VALUES, v) is np
    assert same_kind(v, VALUES, "v", "A") is v
    assert not fetched


def test_numbers_are_fetched_once(v, fetched):
    assert as_float(v, "v") is VALUES
    np.testing.assert_array_equal(to_numpy(v), VALUES)
    np.testing.assert_array_equal(like(v, VALUES), VALUES)
    np.testing.assert_array_equal(2 * v - VALUES, VALUES)
    np.testing.assert_array_equal(np.concatenate([v, v[:1]]), [3, 4, 3])
    assert np.array(v, copy=True) is not VALUES
    assert len(fetched) == 1


def test_scalars_have_no_kind_of_their_own():
    assert not is_numpy(np.float64(1))
    assert not is_numpy(1.0)

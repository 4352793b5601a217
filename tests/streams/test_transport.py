"""Coordinates of tangent vectors of another space, against full tensors."""

from __future__ import annotations

import array_api_strict as strict
import numpy as np
import pytest

import lowtucker as lt

CASES = [
    ((7,), (1,), (1,)),
    ((7, 6), (2, 2), (2, 2)),
    ((5, 6, 7), (2, 2, 3), (2, 2, 3)),
    ((2, 6, 7), (2, 2, 3), (2, 3, 3)),
    ((4, 4, 4, 5), (2, 2, 2, 2), (2, 1, 2, 2)),
    ((4, 3, 3), (4, 3, 3), (4, 3, 3)),
    ((60, 5, 5), (2, 2, 2), (2, 2, 2)),  # a complement that is not formed
]


@pytest.mark.parametrize("dtype", [np.float64, np.complex128], ids=["real", "complex"])
@pytest.mark.parametrize(("shape", "here", "there"), CASES, ids=str)
def test_transport_is_the_projection_of_the_basis(shape, here, there, dtype):
    T = lt.TangentSpace(lt.random_tucker(shape, here, seed=0, dtype=dtype))
    S = lt.TangentSpace(lt.random_tucker(shape, there, seed=1, dtype=dtype))
    moved = T.transported(np.eye(S.dof, dtype=dtype), S)
    assert moved.shape == (S.dof, T.dof)
    np.testing.assert_allclose(moved, T.coordinates(S.basis()), atol=1e-14)


def test_transport_to_the_same_space_changes_nothing():
    T = lt.TangentSpace(lt.random_tucker((5, 6, 4), (2, 2, 2), seed=0))
    c = np.random.default_rng(0).standard_normal((3, T.dof))
    np.testing.assert_allclose(T.transported(c, T), c, atol=1e-14)


def test_transport_of_other_arrays():
    def space(seed):
        X = lt.random_tucker((5, 6, 4), (2, 2, 2), seed=seed)
        parts = [strict.asarray(part) for part in (X.core, *X.factors)]
        return lt.TangentSpace(X), lt.TangentSpace(lt.TuckerTensor(parts[0], parts[1:]))

    (T, T_), (S, S_) = space(0), space(1)
    moved = T_.transported(strict.eye(S.dof, dtype=strict.float64), S_)
    np.testing.assert_allclose(np.asarray(moved), T.transported(np.eye(S.dof), S), atol=1e-13)

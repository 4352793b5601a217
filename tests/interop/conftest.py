"""Operators of this package as fixtures, and their matrices."""

from __future__ import annotations

import pytest

from interop.ours import OURS, PARTS, matrix_of

ALL = OURS | PARTS
ATOL = {"single": 1e-4}


@pytest.fixture(params=ALL)
def name(request):
    return request.param


@pytest.fixture
def A(name):
    return ALL[name]()


@pytest.fixture
def matrix(A):
    return matrix_of(A)


@pytest.fixture
def atol(name):
    return ATOL.get(name, 1e-12)

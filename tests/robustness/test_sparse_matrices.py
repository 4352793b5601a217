"""Sparse matrices whose parts do not fit each other, which SciPy's C code takes on trust.

Several of these kill the interpreter if a product is computed with them, so each runs in a child.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import aslinearoperator

import lowtucker as lt
from matrices import random_sparse
from robustness import faults

SHAPE, BIG = (4, 3, 2), 10**9
X = lt.random_tucker(SHAPE, (1, 1, 1), seed=0)
FORMATS = ("csr", "csc", "bsr", "coo", "lil", "dia", "dok")
COMPRESSED = FORMATS[:3]


def set_index(S, value):
    """Put an index out of range into the matrix."""
    if S.format in COMPRESSED:
        S.indices[3] = value
    elif S.format == "coo":
        S.coords[1][3] = value
    elif S.format == "lil":
        S.rows[2], S.data[2] = [value], [1.0]
    elif S.format == "dok":
        S._dict[0, value] = 1.0
    else:
        S.offsets = np.append(S.offsets, S.offsets[:1])


def shorten_data(S):
    if S.format == "lil":
        S.rows[2], S.data[2] = [0, 1, 2], [1.0]
    elif S.format == "dok":
        S._dict[0, 0, 0] = 1.0
    else:
        S.data = S.data[:1].copy()


def shift_pointers(S):
    if S.format in COMPRESSED:
        S.indptr[5] = BIG
    elif S.format == "lil":
        S.rows = S.rows[:3]
    elif S.format == "dok":
        S._dict["x"] = 1.0
    elif S.format == "coo":
        S.coords = (S.coords[0][:3], S.coords[1])
    else:
        S.offsets = S.offsets.astype(float)


BREAKS = {
    "index too large": lambda S: set_index(S, BIG),
    "negative index": lambda S: set_index(S, -BIG),
    "too few values": shorten_data,
    "pointers": shift_pointers,
}


DOORS = {
    "as_operator": lambda S: lt.as_operator(S, SHAPE).forward(X),
    "LinearOperator": lambda S: lt.as_operator(aslinearoperator(S), SHAPE).forward(X),
    "sum": lambda S: lt.as_operator(2 * aslinearoperator(S) + aslinearoperator(S), SHAPE),
}


def matrix(form):
    """A sparse matrix of 100 rows."""
    made = random_sparse((100, 24), 0)
    made.setdiag(1.0)
    if form == "dia":
        return scipy.sparse.diags_array([np.ones(24), np.ones(23)], offsets=[0, 1]).copy()
    return made.asformat(form).copy()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("form", FORMATS)
def test_a_sparse_matrix_with_broken_parts_is_refused(form, door):
    def scenario():
        for change in BREAKS.values():
            broken = matrix(form)
            change(broken)
            with pytest.raises(ValueError, match="do not fit its shape"):
                DOORS[door](broken)

    faults.in_child(scenario)


@pytest.mark.parametrize("form", FORMATS)
def test_a_sound_sparse_matrix_is_accepted(form):
    S = matrix(form)
    wanted = S.toarray() @ X.full().ravel()
    for door in ("as_operator", "LinearOperator"):
        assert np.allclose(DOORS[door](S), wanted, rtol=1e-12), door


OF_DASK = """
import dask.array, lowtucker as lt
from robustness.test_sparse_matrices import BIG, SHAPE, X, matrix

def loaded():
    S = matrix("csr")
    S.indices[3] = BIG
    return S

rows = dask.array.from_delayed(dask.delayed(loaded)(), (100, 24), float)
try:
    lt.from_dask(rows, SHAPE).forward(X)
except ValueError as error:
    print(error)
"""


def test_a_sparse_chunk_of_a_dask_array_is_checked():
    """In a process of its own: one that is forked has none of the threads that Dask counts on."""
    pytest.importorskip("dask.array")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", OF_DASK], env=environment, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("a chunk of A of shape (100, 24) has indices that do not fit")


def around(operator):
    """PyLops operators that are made of one of 100 rows, in many ways."""
    import pylops

    rest = pylops.Identity(100)
    return {
        "VStack": pylops.VStack([operator, operator]),
        "HStack": pylops.HStack([operator, operator]),
        "BlockDiag": pylops.BlockDiag([rest, operator]),
        "Block": pylops.Block([[rest, operator]]),
        "Kronecker": pylops.Kronecker(operator, pylops.Identity(2)),
        "adjoint": operator.H.H,
        "product": rest @ pylops.VStack([operator]),
        "real part": operator.toreal(),
    }


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize(
    "way",
    ["VStack", "HStack", "BlockDiag", "Block", "Kronecker", "adjoint", "product", "real part"],
)
def test_a_matrix_with_broken_parts_inside_operators_of_pylops_is_refused(way):
    pylops = pytest.importorskip("pylops")

    def scenario():
        S = matrix("csr")
        made = around(pylops.MatrixMult(S))[way]
        shape = (made.shape[1],)
        lt.as_operator(made, shape)
        S.indices[3] = BIG
        with pytest.raises(ValueError, match="do not fit its shape"):
            lt.as_operator(made, shape)

    faults.in_child(scenario)


def test_weights_of_a_functional_are_checked():
    A = lt.gaussian((6, 5), 60, seed=0)
    truth = lt.random_tucker((6, 5), (1, 1), seed=0)
    noise = 0.01 * np.random.default_rng(0).standard_normal(60)
    result = lt.recover(A, A.forward(truth) + noise, (1, 1))
    W = scipy.sparse.csr_array(np.eye(6, 5))
    result.uncertainty.functional(W)
    W.indices[2] = BIG

    def scenario():
        with pytest.raises(ValueError, match=r"W of shape \(6, 5\) has indices that do not fit"):
            result.uncertainty.functional(W)

    faults.in_child(scenario)


def test_padding_behind_the_last_element_is_allowed():
    S = matrix("csr")
    more = np.append(S.indices, [BIG, BIG]).astype(S.indices.dtype), np.append(S.data, [1.0, 1.0])
    wanted = S.toarray()
    S.indices, S.data = more
    assert np.allclose(lt.as_operator(S, SHAPE).forward(X), wanted @ X.full().ravel(), rtol=1e-12)

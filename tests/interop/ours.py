"""Operators that are converted for other packages: real, complex, of every class."""

from __future__ import annotations

import numpy as np
import scipy.sparse

import lowtucker as lt

SHAPE, M, N = (4, 3, 2), 60, 24


def numbers(*shape, dtype=float, seed=5):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def snapshot():
    """Two functions, as a user would write them."""
    return lt.FunctionOperator(
        lambda X: X.sum(axis=2).reshape(-1),
        lambda v: np.repeat(v, SHAPE[2]).reshape(SHAPE),
        SHAPE,
        12,
    )


OURS = {
    "dense": lambda: lt.DenseOperator(numbers(M, N), SHAPE),
    "column-major": lambda: lt.DenseOperator(numbers(M, N), SHAPE, order="F"),
    "single": lambda: lt.DenseOperator(numbers(M, N, dtype="float32"), SHAPE),
    "complex": lambda: lt.DenseOperator(numbers(M, N, dtype=complex), SHAPE),
    "sparse": lambda: lt.as_operator(scipy.sparse.csr_array(numbers(M, N) * (numbers(M, N) > 0)),
                                     SHAPE),
    "rank-one": lambda: lt.rank_one([numbers(M, n, seed=n) for n in SHAPE]),
    "entries": lambda: lt.entries(SHAPE, np.argwhere(numbers(*SHAPE) > 0)),
    "functions": snapshot,
    "stacked": lambda: lt.stack([lt.gaussian(SHAPE, 9, seed=1), snapshot()]),
}  # fmt: skip
# Complex measurements of real tensors: other packages get twice as many real ones
PARTS = {
    "real tensors": lambda: lt.DenseOperator(numbers(M, N, dtype=complex), SHAPE, dtype=float),
    "fourier": lambda: lt.subsampled_transform(SHAPE, 13, kind="fft", seed=2),
}


def matrix_of(A):
    """The matrix of an operator, by its forward; real and imaginary parts if y is complex."""
    units = np.eye(N).reshape(N, *A.shape)
    columns = np.stack([A.forward(unit) for unit in units], axis=1)
    is_real = not np.iscomplexobj(A.adjoint(columns[:, 0]))
    if np.iscomplexobj(columns) and is_real:
        return np.concatenate([columns.real, columns.imag])
    return columns

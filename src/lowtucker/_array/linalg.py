"""Matrix decompositions with fallbacks if LAPACK does not converge.

Each function calls that of the namespace of its array. If it fails for a matrix with finite
entries, another algorithm is applied to a NumPy copy, and :func:`fallbacks` lists it. A matrix
with NaN or infinite entries raises ``LinAlgError``. (JAX does not raise but returns NaN, which
the solvers check for.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from lowtucker._array import Array, all_finite, like, namespace, to_numpy

__all__ = [
    "eigh",
    "eigvalsh",
    "fallbacks",
    "inv",
    "note_fallback",
    "qr",
    "solve",
    "svd",
    "svdvals",
]

NumPyArray = np.ndarray[Any, Any]
# What the libraries raise if an algorithm fails
FAILURES = (np.linalg.LinAlgError, RuntimeError)
# Fallbacks used so far; separate for every thread and task
_USED: ContextVar[list[str] | None] = ContextVar("lowtucker_fallbacks", default=None)


@contextmanager
def fallbacks() -> Iterator[list[str]]:
    """Record the fallback algorithms used inside the ``with`` block.

    If blocks are nested, the innermost one records.

    Examples
    --------
    >>> with fallbacks() as used:
    ...     x = solve(np.zeros((2, 2)), np.ones(2))  # a singular matrix
    >>> used
    ['solve by gelsy']
    """
    used: list[str] = []
    token = _USED.set(used)
    try:
        yield used
    finally:
        _USED.reset(token)


def note_fallback(text: str) -> None:
    """Add an entry to the innermost :func:`fallbacks`, if there is one."""
    used = _USED.get()
    if used is not None:
        used.append(text)


def svd(matrix: Array, *, full_matrices: bool = False) -> tuple[Array, Array, Array]:
    """Return the singular value decomposition U, s, V^* of a matrix or a batch of matrices.

    Falls back to ``gesvd``, whose iteration differs from that of ``gesdd``, and then to the
    eigenvectors of the Gram matrix, with half the digits.
    """
    try:
        U, s, Vh = namespace(matrix).linalg.svd(matrix, full_matrices=full_matrices)
    except FAILURES as error:
        _check(error, "svd", matrix)
        U, s, Vh = _each(lambda M: _svd(M, full_matrices), matrix)
    return U, s, Vh


def svdvals(matrix: Array) -> Array:
    """Return the singular values in decreasing order, with the fallbacks of :func:`svd`."""
    try:
        return namespace(matrix).linalg.svdvals(matrix)
    except FAILURES as error:
        _check(error, "svd", matrix)
        return _each(lambda M: _svd(M, False)[1:2], matrix)[0]


def eigh(matrix: Array) -> tuple[Array, Array]:
    """Return eigenvalues, in increasing order, and eigenvectors of Hermitian matrices.

    Falls back to the drivers ``ev`` and ``evr``, whose iterations differ from that of ``evd``.
    """
    try:
        values, vectors = namespace(matrix).linalg.eigh(matrix)
    except FAILURES as error:
        _check(error, "eigh", matrix)
        values, vectors = _each(_eigh, matrix)
    return values, vectors


def eigvalsh(matrix: Array) -> Array:
    """Return eigenvalues of Hermitian matrices in increasing order, as :func:`eigh`."""
    try:
        return namespace(matrix).linalg.eigvalsh(matrix)
    except FAILURES as error:
        _check(error, "eigh", matrix)
        return _each(lambda M: _eigh(M)[:1], matrix)[0]


def solve(matrix: Array, right: Array) -> Array:
    """Solve a linear system; if it is singular, by least squares of minimum norm."""
    try:
        return namespace(matrix).linalg.solve(matrix, right)
    except FAILURES as error:
        columns = right[..., None] if right.ndim == 1 else right
        _check(error, "solve", matrix, columns)
        found = _each(_least_squares, matrix, columns)[0]
        return found[..., 0] if found.ndim > right.ndim else found


def inv(matrix: Array) -> Array:
    """Return the inverse of a matrix; if it is singular, the pseudo-inverse."""
    try:
        return namespace(matrix).linalg.inv(matrix)
    except FAILURES as error:
        _check(error, "inv", matrix)
        return _each(lambda M: _least_squares(M, np.eye(len(M), dtype=M.dtype)), matrix)[0]


def qr(matrix: Array, *, complete: bool = False) -> tuple[Array, Array]:
    """Return the reduced or the complete QR decomposition; falls back to SciPy."""
    try:
        Q, R = namespace(matrix).linalg.qr(matrix, mode="complete" if complete else "reduced")
    except FAILURES as error:
        _check(error, "qr", matrix)
        Q, R = _each(lambda M: _qr(M, "full" if complete else "economic"), matrix)
    return Q, R


def _check(error: Exception, name: str, *arrays: Array) -> None:
    """Raise the error unless LAPACK failed for finite matrices."""
    # torch raises its own LinAlgError, a subclass of RuntimeError
    if not type(error).__name__.endswith("LinAlgError"):
        raise error
    if not all(map(all_finite, arrays)):
        raise np.linalg.LinAlgError(f"{name}: the matrix has NaN or infinite entries.") from error


def _each(other: Callable[..., Any], *arrays: Array) -> tuple[Array, ...]:
    """Return the result of another algorithm for every matrix of a batch."""
    hosts = [to_numpy(a) for a in arrays]
    batch = hosts[0].shape[:-2]
    stacks = [h.reshape(-1, *h.shape[-2:]) for h in hosts]
    found = [other(*items) for items in zip(*stacks, strict=True)]
    parts = [np.stack(some) for some in zip(*found, strict=True)]
    return tuple(like(part.reshape(*batch, *part.shape[1:]), arrays[0]) for part in parts)


def _qr(M: NumPyArray, mode: str) -> Any:
    import scipy.linalg

    note_fallback("qr by SciPy")
    return scipy.linalg.qr(M, mode=mode, check_finite=False)


def _svd(M: NumPyArray, full_matrices: bool) -> Any:
    import scipy.linalg

    # scaled to a largest entry near 1, in case the iteration failed by underflow
    largest = float(np.abs(M).max(initial=0.0))
    scale = 2.0 ** (math.frexp(largest)[1] - 1) if largest > np.finfo(M.dtype).tiny else 1.0
    try:
        U, s, Vh = scipy.linalg.svd(
            M / scale, full_matrices=full_matrices, lapack_driver="gesvd", check_finite=False
        )
    except np.linalg.LinAlgError:
        if M.shape[0] < M.shape[1]:
            V, s, Uh = _svd_by_gram((M / scale).conj().T, full_matrices)
            U, Vh = Uh.conj().T, V.conj().T
        else:
            U, s, Vh = _svd_by_gram(M / scale, full_matrices)
        note_fallback("svd by its gram")
    else:
        note_fallback("svd by gesvd")
    return U, (s * scale).astype(s.dtype), Vh


def _svd_by_gram(M: NumPyArray, full_matrices: bool) -> tuple[NumPyArray, NumPyArray, NumPyArray]:
    """SVD of a tall matrix: V diagonalises M^* M, and a QR decomposition gives M V = U s."""
    import scipy.linalg

    V = _eigh(M.conj().T @ M)[1][:, ::-1]
    mode = "full" if full_matrices else "economic"
    U, R = scipy.linalg.qr(M @ V, mode=mode, check_finite=False)
    diagonal = np.diagonal(R)
    s = np.abs(diagonal)
    phases = np.where(s > 0, diagonal, 1) / np.where(s > 0, s, 1)
    U[:, : len(s)] *= phases
    return U, s, V.conj().T


def _eigh(M: NumPyArray) -> Any:
    import scipy.linalg

    try:
        found = scipy.linalg.eigh(M, driver="ev", check_finite=False)
        note_fallback("eigh by ev")
    except np.linalg.LinAlgError:
        found = scipy.linalg.eigh(M, driver="evr", check_finite=False)
        note_fallback("eigh by evr")
    return found


def _least_squares(M: NumPyArray, right: NumPyArray) -> Any:
    import scipy.linalg

    note_fallback("solve by gelsy")  # pivoted QR does not iterate, so it cannot fail to converge
    return (scipy.linalg.lstsq(M, right, lapack_driver="gelsy", check_finite=False)[0],)

"""Matrix decompositions that do not give up: what is done when LAPACK does not converge.

In ordinary use each function here is that of the array's own namespace. Where it fails on a
matrix of finite numbers, another algorithm does the work in NumPy's memory, and :func:`fallbacks`
lists it. A matrix with NaN or infinity has no decomposition: that is a ``LinAlgError``. (JAX
raises nothing: it answers with NaN, which the solvers look for themselves.)
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
# What was used in place of the usual algorithm; every thread and task has its own
_USED: ContextVar[list[str] | None] = ContextVar("lowtucker_fallbacks", default=None)


@contextmanager
def fallbacks() -> Iterator[list[str]]:
    """List the algorithms that had to stand in for others while the block ran.

    Of two such blocks, one inside the other, the inner one gets the list.

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
    """Tell the innermost :func:`fallbacks`, if there is one."""
    used = _USED.get()
    if used is not None:
        used.append(text)


def svd(matrix: Array, *, full_matrices: bool = False) -> tuple[Array, Array, Array]:
    """Singular value decomposition U, s, V^* of (stacks of) matrices.

    Failing that by ``gesvd``, which iterates otherwise than ``gesdd``; and failing that by the
    eigenvectors of the gram matrix, with half the digits.
    """

    def usual() -> Any:
        return tuple(namespace(matrix).linalg.svd(matrix, full_matrices=full_matrices))

    def other(M: NumPyArray) -> Any:
        return _svd(M, full_matrices)

    U, s, Vh = _done(usual, "svd", other, matrix)
    return U, s, Vh


def svdvals(matrix: Array) -> Array:
    """Singular values, largest first; failing that as :func:`svd`."""

    def usual() -> Any:
        return (namespace(matrix).linalg.svdvals(matrix),)

    return _done(usual, "svd", lambda M: _svd(M, False)[1:2], matrix)[0]


def eigh(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and eigenvectors of Hermitian matrices.

    Failing that by the drivers ``ev`` and ``evr``, which iterate otherwise than ``evd``.
    """

    def usual() -> Any:
        return tuple(namespace(matrix).linalg.eigh(matrix))

    values, vectors = _done(usual, "eigh", _eigh, matrix)
    return values, vectors


def eigvalsh(matrix: Array) -> Array:
    """Eigenvalues of Hermitian matrices, ascending; failing that as :func:`eigh`."""

    def usual() -> Any:
        return (namespace(matrix).linalg.eigvalsh(matrix),)

    return _done(usual, "eigh", lambda M: _eigh(M)[:1], matrix)[0]


def solve(matrix: Array, right: Array) -> Array:
    """Solution of a linear system; of a singular one the smallest least-squares solution."""

    def usual() -> Any:
        return (namespace(matrix).linalg.solve(matrix, right),)

    columns = right[..., None] if right.ndim == 1 else right
    found = _done(usual, "solve", _least_squares, matrix, columns)[0]
    return found[..., 0] if found.ndim > right.ndim else found


def inv(matrix: Array) -> Array:
    """Inverse of a matrix; of a singular one the pseudo-inverse."""

    def other(M: NumPyArray) -> Any:
        return _least_squares(M, np.eye(len(M), dtype=M.dtype))

    return _done(lambda: (namespace(matrix).linalg.inv(matrix),), "inv", other, matrix)[0]


def qr(matrix: Array) -> tuple[Array, Array]:
    """QR decomposition with as many columns as can be; failing that by SciPy."""

    def other(M: NumPyArray) -> Any:
        import scipy.linalg

        note_fallback("qr by SciPy")
        return scipy.linalg.qr(M, mode="economic", check_finite=False)

    Q, R = _done(lambda: tuple(namespace(matrix).linalg.qr(matrix)), "qr", other, matrix)
    return Q, R


def _done(usual: Callable[[], Any], name: str, other: Callable[..., Any], *arrays: Array) -> Any:
    """Result of the usual algorithm; where that fails, of another one for every matrix."""
    try:
        return usual()
    except (np.linalg.LinAlgError, RuntimeError) as error:
        # torch has an error of its own, which is a RuntimeError as many others are
        if not type(error).__name__.endswith("LinAlgError"):
            raise
        if not all(map(all_finite, arrays)):
            raise np.linalg.LinAlgError(
                f"{name}: the matrix has NaN or infinite entries."
            ) from error
    hosts = [to_numpy(a) for a in arrays]
    batch = hosts[0].shape[:-2]
    stacks = [h.reshape(-1, *h.shape[-2:]) for h in hosts]
    found = [other(*items) for items in zip(*stacks, strict=True)]
    parts = [np.stack(some) for some in zip(*found, strict=True)]
    return tuple(like(part.reshape(*batch, *part.shape[1:]), arrays[0]) for part in parts)


def _svd(M: NumPyArray, full_matrices: bool) -> Any:
    import scipy.linalg

    # a largest entry near 1: an iteration that failed by underflow has another chance
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
    """Singular vectors of a tall matrix: V diagonalises M^* M, and M V = U s by a QR."""
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

    note_fallback("solve by gelsy")  # by a QR with pivots, which cannot fail to converge
    return (scipy.linalg.lstsq(M, right, lapack_driver="gelsy", check_finite=False)[0],)

"""Tests that any operator must pass; run them on custom operators too."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    as_number,
    eps,
    is_complex,
    like,
    namespace,
    real,
    size,
    to_numpy,
)
from lowtucker._array.errors import CheckError
from lowtucker._array.linalg import note_fallback, svdvals
from lowtucker._array.memory import check_full
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.operators.adapters import to_scipy
from lowtucker.operators.base import MeasurementOperator, check_operator
from lowtucker.tensor.products import inner, norm

__all__ = ["check_adjoint", "check_restriction", "inconsistency", "operator_norm"]

# A matrix with fewer rows or columns is decomposed as it is: ARPACK wants two and more.
SMALL = 32
# Relative differences that inexact functions may have, as of transforms in single precision or of
# unequal spacing; above it a recovery says so
INEXACT = 1e-3


def check_adjoint(A: MeasurementOperator, *, rtol: float | None = None, seed: Seed = 0) -> float:
    r"""Test :math:`\langle \mathcal{A}(X), v \rangle = \langle X, \mathcal{A}^*(v) \rangle`.

    Random tensors and vectors, three times; first, that ``forward`` and ``adjoint`` are linear.
    Real tensors with complex measurements: the inner product is its real part.

    Parameters
    ----------
    A : MeasurementOperator
    rtol : float, optional
        Largest accepted difference, relative to :math:`\|\mathcal{A}(X)\| \|v\|`.
        Default: rounding error in the operator's precision.
    seed : int

    Returns
    -------
    float
        The largest relative difference found.

    Raises
    ------
    CheckError
        Names the property that failed and by how much.

    Examples
    --------
    >>> import numpy as np
    >>> from lowtucker import FunctionOperator, gaussian
    >>> check_adjoint(gaussian((3, 4), m=5)) < 1e-13
    True
    >>> wrong = FunctionOperator(lambda X: X.sum(0), lambda v: 2 * np.tile(v, (3, 1)), (3, 4), 4)
    >>> check_adjoint(wrong)
    Traceback (most recent call last):
    ...
    lowtucker._array.errors.CheckError: FunctionOperator: <A(X), v> = <X, A*(v)> (...) fails by ...
    """
    check_operator(A)
    rng = generator(seed, Stream.PROBE)
    worst = 0.0
    for _ in range(3):
        X, W = _random(rng, A, A.shape), _random(rng, A, A.shape)
        v, w = (_random_measurements(rng, A) for _ in range(2))
        AX, Av = A.forward(X), A.adjoint(v)
        tol = _tolerance(A, AX, rtol)
        # rounding is relative to ||A||, at least this: A(X) itself may nearly cancel
        least = max(float(norm(AX)) / float(norm(X)), float(norm(Av)) / float(norm(v)))
        linear = A.forward(2 * X - 3 * W) - (2 * AX - 3 * A.forward(W))
        _demand(A, "forward is linear", _relative(norm(linear), least * norm(X)), 10 * tol)
        linear = A.adjoint(2 * v - 3 * w) - (2 * Av - 3 * A.adjoint(w))
        _demand(A, "adjoint is linear", _relative(norm(linear), least * norm(v)), 10 * tol)
        left, right = inner(AX, v), inner(X, Av)
        left = left if is_complex(right) else real(left)
        gap = _relative(left - right, norm(AX) * norm(v) + norm(X) * norm(Av))
        _demand(A, f"<A(X), v> = <X, A*(v)> ({_number(left)} against {_number(right)})", gap, tol)
        worst = max(worst, gap)
    return worst


def inconsistency(
    A: MeasurementOperator, length: float, *, seed: Seed = 0
) -> tuple[str, float] | None:
    r"""Say how forward and adjoint contradict each other by more than 1e-3, and by how much.

    None if they do not.

    Tested are :math:`\mathcal{A}(-s X) = -s \mathcal{A}(X)` with an :math:`s` by which the
    measurements get the given length, and
    :math:`\|\mathcal{A}(X)\|^2 = \langle X, \mathcal{A}^*(\mathcal{A}(X)) \rangle`, for one
    random X: less than :func:`check_adjoint`, by two forwards and one adjoint.

    Parameters
    ----------
    A : MeasurementOperator
    length : float
        Length of the measurements: detectors may be linear up to some size only.
    seed : int
    """
    X = _random(generator(seed, Stream.PROBE), A, A.shape)
    AX = A.forward(X)
    size_of_AX = float(norm(AX))
    if not size_of_AX:
        return None
    by = length / size_of_AX or 1.0
    gap = _relative(norm(A.forward(-by * X) + by * AX), by * norm(AX))
    if not gap <= INEXACT:
        return (
            f"forward is not linear: A(-{by:.3g} X) differs from -{by:.3g} A(X) by {gap:.2g} of "
            "it for a random X"
        ), gap
    right = real(inner(X, A.adjoint(AX)))
    gap = _relative(right - norm(AX) ** 2, norm(AX) ** 2)
    if not gap <= INEXACT:
        return (
            "adjoint is not the adjoint of forward: <A(X), A(X)> is "
            f"{_number(norm(AX) ** 2)}, <X, A*(A(X))> is {_number(right)} for a random X"
        ), gap
    return None


def check_restriction(
    A: MeasurementOperator, *, rtol: float | None = None, seed: Seed = 0
) -> float:
    r"""Test that blocks of the operator measure the rows that they should.

    ``restrict(rows).forward(X)`` equals ``forward(X)[rows]`` for slices and index sets, and the
    adjoints of the blocks of a partition sum to the adjoint.

    Parameters, Returns, Raises
        As in :func:`check_adjoint`.

    Examples
    --------
    >>> from lowtucker import gaussian
    >>> check_restriction(gaussian((3, 4), m=5)) < 1e-13
    True
    """
    check_operator(A)
    rng = generator(seed, Stream.PROBE)
    X, v = _random(rng, A, A.shape), _random_measurements(rng, A)
    whole, adjoint = A.forward(X), A.adjoint(v)
    tol = _tolerance(A, whole, rtol)
    # rounding is relative to ||A||, at least this: A(X) itself may nearly cancel
    least = max(float(norm(whole)) / float(norm(X)), float(norm(adjoint)) / float(norm(v)))
    middle = (A.m + 1) // 2
    cut = [slice(0, middle), slice(middle, A.m)] if A.m > 1 else [slice(0, 1)]
    some = rng.integers(0, A.m, size=max(1, A.m // 3))
    worst = 0.0
    chosen: list[Any] = [*cut, some]
    for rows in chosen:
        part = A.restrict(rows).forward(X)
        gap = _relative(norm(part - _rows_of(whole, rows)), least * norm(X))
        label = f"rows {rows}" if isinstance(rows, slice) else f"{len(rows)} chosen rows"
        _demand(A, f"restrict(rows).forward(X) = forward(X)[rows] for {label}", gap, tol)
        worst = max(worst, gap)
    total = sum(A.restrict(rows).adjoint(_rows_of(v, rows)) for rows in cut)
    gap = _relative(norm(total - adjoint), least * norm(v))
    _demand(A, "the blocks' adjoints sum to the adjoint", gap, tol)
    return max(worst, gap)


def operator_norm(A: MeasurementOperator, *, seed: Seed = 0) -> float:
    r"""Largest singular value :math:`\|\mathcal{A}\|`, by Lanczos iteration (ARPACK).

    Cost: some tens of ``forward`` and ``adjoint``, nothing of the size of A.

    Examples
    --------
    >>> import numpy as np
    >>> from lowtucker import as_operator
    >>> operator_norm(as_operator(np.diag([3.0, 2, 1, 0]), shape=(2, 2)))
    3.0
    """
    if check_operator(A).batch_shape:
        raise ValueError("operator_norm expects one operator, got a batch.")
    as_seed(seed)
    check_full(A.shape, np.dtype(float))
    matrix = to_scipy(A)
    m, n = matrix.shape
    if m == 1 or n == 1 or max(m, n) <= SMALL:
        dense = matrix @ np.eye(n) if n <= m else matrix.rmatmat(np.eye(m))
        return float(svdvals(dense)[0])
    from scipy.sparse.linalg import ArpackError, svds

    scale = float(norm(matrix.matvec(generator(seed, Stream.PROBE).standard_normal(n))))
    if scale == 0:
        return 0.0  # ARPACK refuses the zero operator
    scaled = matrix * (1 / scale)  # it squares the operator, which must not overflow
    start = generator(seed, Stream.PROBE).standard_normal(min(m, n)).astype(scaled.dtype)
    try:
        largest = svds(scaled, k=1, v0=start, return_singular_vectors=False)
    except ArpackError:  # not converged
        note_fallback("svds by PROPACK")
        left = generator(seed, Stream.PROBE).standard_normal(m).astype(scaled.dtype)
        settings = {"solver": "propack", "v0": left, "maxiter": min(m, n, 500)}
        largest = svds(scaled, k=1, return_singular_vectors=False, **settings)
    return scale * float(largest[0])


def _random(rng: np.random.Generator, A: MeasurementOperator, shape: tuple[int, ...]) -> Array:
    """Make a random tensor in the operator's own dtype and on its device."""
    full = (*A.batch_shape, *shape)
    check_full(full, np.dtype(float))
    draw = rng.standard_normal(full)
    if A.dtype is not None and "complex" in str(A.dtype):
        draw = draw + 1j * rng.standard_normal(full)
    return like(draw, A.prototype, A.dtype)


def _random_measurements(rng: np.random.Generator, A: MeasurementOperator) -> Array:
    """Make random measurements in the dtype that the operator returns."""
    example = A.forward(like(np.zeros((*A.batch_shape, *A.shape)), A.prototype, A.dtype))
    draw = rng.standard_normal((*A.batch_shape, A.m))
    if is_complex(example):
        draw = draw + 1j * rng.standard_normal(draw.shape)
    return like(draw, A.prototype, example.dtype)


def _tolerance(A: MeasurementOperator, example: Array, rtol: float | None) -> float:
    if rtol is not None:
        return as_number(rtol, "rtol", 0)
    return 10 * float(np.sqrt(size(A.shape) + A.m)) * eps(example)


def _rows_of(v: Array, rows: Any) -> Array:
    if isinstance(rows, slice):
        return v[..., rows]
    return namespace(v).take(v, like(rows, v), axis=-1)


def _number(x: Array) -> str:
    return f"{to_numpy(x)[()]:.4g}"


def _relative(gap: Array, scale: Array) -> float:
    size_of_gap, size_of_all = abs(complex(to_numpy(gap))), float(to_numpy(scale))
    return size_of_gap / size_of_all if size_of_all > 0 else size_of_gap


def _demand(A: MeasurementOperator, what: str, gap: float, tol: float) -> None:
    if not gap <= tol:
        raise CheckError(
            f"{type(A).__name__}: {what} fails by {gap:.1e} relative to the norms; rounding "
            f"explains {tol:.1e}."
        )

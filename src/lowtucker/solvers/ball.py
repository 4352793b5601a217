r"""Projections onto the tensors that fit the measurements to within a radius."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    adjoint,
    conj,
    eps,
    is_complex,
    like,
    namespace,
    real,
    real_dtype,
    size,
    to_numpy,
)
from lowtucker._array.linalg import eigh
from lowtucker._array.random import Stream, generator
from lowtucker.operators.base import MeasurementOperator
from lowtucker.problem import Problem
from lowtucker.solvers.base import Cache
from lowtucker.solvers.rows import is_complex_tensor, normal_numbers
from lowtucker.solvers.shrinking import host
from lowtucker.tensor.products import norm

__all__ = ["Ball", "adjoint_of", "measured", "short_vector", "weighted", "weighted_data"]

NumPyArray = np.ndarray[Any, Any]
# Measurements up to which the gram matrix is decomposed: 0.2 CPU seconds for 1000, 1.3 for 2000
GRAM = 3000
# Numbers of the adjoints that are formed at a time for it
NUMBERS = 2**24
# Most Lanczos steps of a projection by products, and their accuracy
LANCZOS, ACCURACY = 200, 1e-9
# Rounding errors of measurements, in units of machine epsilon, that count as none
ROUNDING = 1000
# Steps of Newton's method for the length of the residual: 3 to 8 suffice
NEWTON = 60


@dataclass(frozen=True)
class Ball(Cache):
    r"""What projections onto :math:`\{X : \|\tilde A(X) - \tilde y\| \le \epsilon\}` need.

    :math:`\tilde A = W^{1/2} A`, with the weights. The gram operator
    :math:`\tilde A \tilde A^*` is diagonal, decomposed, or known by products only.

    Attributes
    ----------
    values : array, shape (batch, k), or None
        Its eigenvalues; None where it is known by products.
    basis : array, shape (batch, m, k), or None
        Its eigenvectors; None where it is diagonal.
    unit : array, shape (batch,)
        Powers of two next to the norm of the smallest tensor that fits.
    left : array, shape (batch,)
        Norm of the part of the measurements that no tensor has, in that unit.
    """

    values: Array | None
    basis: Array | None
    unit: Array
    left: Array

    @classmethod
    def of(cls, problem: Problem) -> Ball:
        """Look at the rows.

        Four passes for orthogonal rows, two for sampled entries; where a gram matrix is formed, two
        more for as many rows at a time as memory allows.
        """
        # the adjoint of complex measurements of real tensors is no complex-linear map
        linear = is_complex(problem.y) == is_complex_tensor(problem)
        values = _of_samples(problem) if linear else None
        values, basis = _of_orthogonal_rows(problem) if values is None else values, None
        if values is None and linear and problem.m <= GRAM:
            values, basis = _decomposed(problem)
        one = like(np.ones(_lead(problem)), problem.y, real_dtype(problem.y))
        plain = cls(values, basis, one, one)
        y = weighted_data(problem, plain)
        v = short_vector(problem, plain, y, 0.0)
        least = adjoint_of(problem, v)
        sizes = host(norm(least, batch_ndim=1))
        unit = np.ldexp(1.0, np.frexp(np.where(sizes > 0, sizes, 1.0))[1])
        unit = like(unit, problem.y, one.dtype)
        rest = norm(y - measured(problem, least), batch_ndim=1)
        left = namespace(y).where(rest > ROUNDING * eps(y) * norm(y, batch_ndim=1), rest, 0 * rest)
        return cls(values, basis, unit, left / unit)

    def reached(self, radius: Any) -> NumPyArray:
        """Radius that the part of the measurements that no tensor has leaves of one."""
        squares = np.square(radius) - np.square(host(self.left))
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def weighted_data(problem: Problem, ball: Ball) -> Array:
    r"""Return :math:`W^{1/2} y` in units of the ball, shape (batch, m)."""
    return weighted(problem, problem.y) / ball.unit[:, None]


def measured(problem: Problem, X: Array) -> Array:
    r"""Return :math:`W^{1/2} A(X)`, shape (batch, m). One pass."""
    return weighted(problem, problem.A.forward(X))


def adjoint_of(problem: Problem, v: Array) -> Array:
    r"""Return :math:`A^*(W^{1/2} v)`, shape (batch, n_1, ..., n_d). One pass."""
    return problem.A.adjoint(weighted(problem, v))


def weighted(problem: Problem, v: Array) -> Array:
    r"""Return :math:`W^{1/2} v`."""
    return v if problem.weights is None else namespace(v).sqrt(problem.weights) * v


def short_vector(problem: Problem, ball: Ball, c: Array, radius: Any) -> Array:
    r"""Return v with :math:`\|c - \tilde A \tilde A^* v\| \le` radius, and the least adjoint.

    With :math:`c = \tilde A(V) - \tilde y`, the projection of V is :math:`V - \tilde A^*(v)`. In
    the eigenvectors of the gram operator :math:`v = (c - u) / \lambda` and
    :math:`u = c / (1 + \mu \lambda)`, where :math:`\mu` is such that u is as long as the radius.
    What no X changes, where eigenvalues are zero, counts for nothing; see :meth:`Ball.reached`.

    Parameters
    ----------
    problem : Problem
    ball : Ball
    c : array, shape (batch, m)
    radius : float or NumPy array, shape (batch,)

    Notes
    -----
    No pass; by products, two for every Lanczos step.
    """
    xp = namespace(c)
    values, basis, parts = ball.values, ball.basis, c
    if values is None:
        values, basis, parts = _lanczos(problem, c)
    elif basis is not None:
        parts = (adjoint(basis) @ c[..., None])[..., 0]
    largest = xp.max(values, axis=-1, keepdims=True)
    seen = values > 100 * eps(values) * largest
    parts = xp.where(seen, parts, xp.zeros_like(parts))
    values = xp.where(seen, values, xp.ones_like(values))
    v = (parts - _shortened(parts, values, np.broadcast_to(radius, c.shape[:1]))) / values
    return v if basis is None else (xp.astype(basis, v.dtype, copy=False) @ v[..., None])[..., 0]


def _shortened(c: Array, values: Array, radius: NumPyArray) -> Array:
    r"""Return :math:`c / (1 + \mu \lambda)` of the length of the radius; c where it is shorter.

    Newton's method for :math:`1 / \|u\|`, which is concave: it never goes too far.
    """
    xp = namespace(c)
    if not np.any(radius > 0):
        return xp.zeros_like(c)

    def column(numbers: Any) -> Array:
        return like(numbers, c, values.dtype)[:, None]

    mu, squares = np.zeros(c.shape[0]), xp.abs(c) ** 2
    positive = np.where(radius > 0, radius, 1.0)
    for _ in range(NEWTON):
        shares = 1 / (1 + column(mu) * values)
        of_u = squares * shares**2
        length = np.sqrt(host(xp.sum(of_u, axis=-1)))
        longer = (length > (1 + 1e-9) * radius) & (radius > 0)
        if not longer.any():
            break
        slope = host(xp.sum(values * shares * of_u, axis=-1))
        step = (length / positive - 1) * length**2 / np.where(slope > 0, slope, 1.0)
        mu = np.where(longer, mu + step, mu)
    exactly = np.where(length > radius, radius / np.where(length > 0, length, 1.0), 1.0)
    return c * shares * column(exactly)


# What is known of the rows


def _lead(problem: Problem) -> int:
    return problem.batch_shape[0] if problem.batch_shape else 1


def _weights(problem: Problem) -> NumPyArray:
    """Weights of all measurements, shape (batch, m)."""
    given = np.ones(problem.m) if problem.weights is None else to_numpy(problem.weights)
    return np.broadcast_to(given, (_lead(problem), problem.m))


def _of_samples(problem: Problem) -> Array | None:
    """Eigenvalues for different sampled entries; None for other rows."""
    samples = problem.A.entry_samples()
    if samples is None:
        return None
    indices, factors = samples
    places = np.ravel_multi_index(tuple(np.asarray(indices).T), problem.shape)
    if len(np.unique(places)) < len(places):
        return None
    values = _weights(problem) * (1.0 if factors is None else np.abs(to_numpy(factors)) ** 2)
    return like(values, problem.y, real_dtype(problem.y))


def _of_orthogonal_rows(problem: Problem) -> Array | None:
    """Eigenvalues of orthogonal rows of equal length; None for others. Two passes.

    A random vector tells: it has a part in every eigenspace.
    """
    draws = normal_numbers(generator(0, Stream.PROBE), (problem.m,), is_complex(problem.y))
    counts = _weights(problem) > 0
    v = like(np.where(counts, draws, 0.0), problem.y, problem.y.dtype)
    back = measured(problem, adjoint_of(problem, v))
    ratio = _real_inner(v, back) / _real_inner(v, v)
    rest, length = (host(norm(x, batch_ndim=1)) for x in (back - ratio[:, None] * v, back))
    if np.any(rest > 1000 * eps(back) * length):
        return None
    return ratio[:, None] * like(counts, back, ratio.dtype)


def _real_inner(x: Array, y: Array) -> Array:
    return real(namespace(x).sum(conj(x) * y, axis=-1))


def _decomposed(problem: Problem) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of the gram matrix of every problem."""
    A, xp, lead = problem.A, namespace(problem.y), _lead(problem)
    each = [A.trial(k) for k in range(lead)] if A.batch_shape else [A]
    gram = xp.stack([_gram(one, problem) for one in each])
    if problem.weights is not None:
        roots = xp.sqrt(problem.weights)
        gram = roots[..., :, None] * gram * roots[..., None, :]
    values, basis = eigh(gram)  # one for all, where they share rows and weights
    return (
        xp.broadcast_to(values, (lead, *values.shape[1:])),
        xp.broadcast_to(basis, (lead, *basis.shape[1:])),
    )


def _gram(A: MeasurementOperator, problem: Problem) -> Array:
    """Gram matrix of the rows, padded with zeros to the m of the problem."""
    xp, m = namespace(problem.y), problem.m
    some = max(1, NUMBERS // size(A.shape))
    unit, rows = np.eye(A.m), []
    for first in range(0, A.m, some):
        v = like(unit[first : first + some], problem.y, problem.y.dtype)
        rows.append(A.forward(A.adjoint(v)))
    gram = _hermitian(xp.concat(rows))
    if A.m == m:
        return gram
    padded = np.zeros((m, m), dtype=to_numpy(gram).dtype)
    padded[: A.m, : A.m] = to_numpy(gram)
    return like(padded, problem.y, problem.y.dtype)


def _hermitian(rows: Array) -> Array:
    """Gram matrix, exactly Hermitian, from rows that hold its columns A A* e_i."""
    gram = namespace(rows).matrix_transpose(rows)
    return (gram + adjoint(gram)) / 2


def _lanczos(problem: Problem, c: Array) -> tuple[Array, Array, Array]:
    """Ritz values, Ritz vectors and the coordinates of c, in the Krylov space of c.

    Inner products are real parts: a real-linear map is symmetric for them. Two passes a step.
    """
    xp, lead, dtype = namespace(c), c.shape[0], real_dtype(c)
    accuracy, length = max(ACCURACY, 10 * eps(c)), host(norm(c, batch_ndim=1))
    T: NumPyArray = np.zeros((lead, LANCZOS, LANCZOS))
    Q = (c * like(_inverse(length), c, dtype)[:, None])[..., None]
    pivot, last = np.full(lead, np.inf), np.ones(lead)  # of T = L D L^*, and of T^-1 e_1
    beta = np.zeros(lead)
    for j in range(LANCZOS):
        z = measured(problem, adjoint_of(problem, Q[..., j]))
        T[:, j, j] = host(_real_inner(Q[..., j], z))
        pivot = T[:, j, j] - beta**2 / pivot
        pivot = np.where(pivot > 0, pivot, np.inf)
        last = last * (beta if j else 1.0) / pivot
        for _ in range(2):  # once is not enough to be orthogonal
            shares = xp.astype(real(adjoint(Q) @ z[..., None]), c.dtype, copy=False)
            z = z - (Q @ shares)[..., 0]
        beta = host(norm(z, batch_ndim=1))
        beta = np.where(beta > 100 * eps(c) * T[:, 0, 0], beta, 0.0)
        if j + 1 == LANCZOS or np.all(beta * last <= accuracy):  # the residual of a solution
            break
        T[:, j, j + 1] = T[:, j + 1, j] = beta
        Q = xp.concat([Q, (z * like(_inverse(beta), c, dtype)[:, None])[..., None]], axis=-1)
    values, S = eigh(T[:, : j + 1, : j + 1])
    coordinates = like(length[:, None] * S[:, 0, :], c, c.dtype)
    return like(values, c, dtype), Q @ like(S, c, c.dtype), coordinates


def _inverse(numbers: NumPyArray) -> NumPyArray:
    """Inverse of numbers, 0 of 0."""
    return np.where(numbers > 0, 1 / np.where(numbers > 0, numbers, 1.0), 0.0)

"""Alternating directions for nuclear norms: iterations, and the bound that they prove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import Array, conj, eps, like, namespace, per_trial, real
from lowtucker._array.clock import check_time
from lowtucker._array.linalg import svdvals
from lowtucker.problem import Problem
from lowtucker.solvers.ball import Ball, adjoint_of, measured, short_vector
from lowtucker.solvers.shrinking import host
from lowtucker.solvers.unfoldings import shrunk_unfoldings, unfolded
from lowtucker.tensor.products import norm

__all__ = ["Dual", "Step", "balancing", "dual_point", "iterated", "radius_of", "relative_gap"]

NumPyArray = np.ndarray[Any, Any]
# Iterations of an epoch, after which the gap is computed
INNER = 10
# Over-relaxation of an iteration; between 0 and 2
RELAXATION = 1.6
# Largest change of the threshold in an epoch
CHANGE = 2.0
# Tolerances up to which measurements are exact: small balls make for slow convergence
EXACT = 1e-5
# Share of the tolerance, and rounding errors, that are left: they must not decide whether X fits
SAFE, ROUNDING = 1e-9, 20


class Step(NamedTuple):
    """What the iterations of an epoch end with.

    Attributes
    ----------
    X : array, shape (batch, n_1, ..., n_d)
        Tensor that fits.
    Z, before, V : arrays, shape (batch, K, n_1, ..., n_d)
        The copies of it, those of the iteration before, and the multipliers.
    points : array, shape (batch, K, n_1, ..., n_d)
        What is shrunk next.
    spectra : list of arrays, shape (batch, n)
        Singular values of the copies.
    """

    X: Array
    Z: Array
    before: Array
    V: Array
    points: Array
    spectra: list[Array]


def iterated(
    problem: Problem,
    ball: Ball,
    points: Array,
    tau: Array,
    y: Array,
    radius: NumPyArray,
    splits: Sequence[tuple[int, ...]],
) -> Step:
    """Do the iterations of an epoch. Two passes each, but for projections by products."""
    xp = namespace(y)
    at = X = Z = before = points
    for _ in range(INNER):
        check_time()
        at, before, (Z, spectra) = points, Z, shrunk_unfoldings(points, tau, splits)
        ahead = xp.mean(2 * Z - at, axis=1)
        v = short_vector(problem, ball, measured(problem, ahead) - y, radius)
        X = ahead - adjoint_of(problem, v)
        points = at + RELAXATION * (X[:, None, ...] - Z)
    return Step(X, Z, before, (at - Z) / per_trial(tau, Z), points, spectra)


class Dual(NamedTuple):
    """Feasible point of the dual problem: a vector, and the parts of its adjoint."""

    vector: Array
    parts: Array

    def bound(self, y: Array, radius: Any) -> Array:
        """Lower bound on the sum of nuclear norms of tensors that fit y to within the radius."""
        v = self.vector
        inner = real(namespace(v).sum(conj(v) * y, axis=-1))
        return inner - like(radius, y, inner.dtype) * norm(v, batch_ndim=1)


def dual_point(problem: Problem, ball: Ball, V: Array, splits: Sequence[tuple[int, ...]]) -> Dual:
    """Feasible point of the dual problem next to some multipliers. Two passes."""
    xp = namespace(V)
    total = xp.sum(V, axis=1)
    v = short_vector(problem, ball, measured(problem, total), 0.0)
    parts = V - ((total - adjoint_of(problem, v)) / len(splits))[:, None, ...]
    norms = [svdvals(unfolded(parts[:, k, ...], rows))[:, 0] for k, rows in enumerate(splits)]
    largest = xp.max(xp.stack(norms), axis=0)
    largest = xp.where(largest > 0, largest, xp.ones_like(largest))
    return Dual(v / largest[:, None], parts / per_trial(largest, parts))


def radius_of(tol: Any, y: Array) -> NumPyArray:
    """Radius of the ball of tensors that fit, for each problem: 0 for exact data."""
    tol = np.asarray(tol, dtype=np.float64)
    share = np.where(tol > EXACT, (1 - SAFE) * tol - ROUNDING * eps(y), 0.0)
    return np.asarray(np.maximum(share, 0.0) * host(norm(y, batch_ndim=1)))


def relative_gap(primal: Array, dual: Array) -> Array:
    """Gap between bounds, in units of the larger; 0 for zero."""
    xp = namespace(primal)
    return (primal - dual) / xp.where(primal > 0, primal, xp.ones_like(primal))


def balancing(step: Step, tau: Array) -> Array:
    """Factor of the threshold by which primal and dual residual would be equal, if moderate."""
    moved = (step.Z - step.before) / per_trial(tau, step.Z)
    apart = step.X[:, None, ...] - step.Z
    lengths = [host(norm(x, batch_ndim=1)) for x in (apart, step.Z, moved, step.V)]
    primal, of_Z, dual, of_V = (np.maximum(x, 1e-30) for x in lengths)
    factor = np.sqrt((dual / of_V) / (primal / of_Z))
    return like(np.clip(factor, 1 / CHANGE, CHANGE), step.Z, tau.dtype)

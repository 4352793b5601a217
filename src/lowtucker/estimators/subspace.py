"""What a sample can be: a subspace of low Tucker rank, and how samples lie in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtucker._array.linalg import inv, qr, solve, svd
from lowtucker.estimators.arguments import Rank
from lowtucker.operators import EntriesOperator
from lowtucker.problem import Problem
from lowtucker.recovery import solve as solve_problem
from lowtucker.run.stopping import MaxEpochs, ResidualBelow, Stalled
from lowtucker.solvers import RGN
from lowtucker.tensor.decompose import hosvd
from lowtucker.tensor.rank import degrees_of_freedom

__all__ = ["Subspace", "learned", "polished"]

NumPyArray = np.ndarray[Any, Any]
# Share of the mean variance of the coefficients below which no direction is taken to vary
JITTER = 1e-7
# Share of the information on a row of the basis that the row before is taken for
NEAR = 0.01
# A sweep that changes the noise by less than such a share is the last
SETTLED = 1e-5
# Noise is taken to be at least so large, for values of about 1
SMALLEST = 1e-200
# Share of the values that a start takes for noise: with all of it some directions never grow
FIRST = 0.01
# Noise below such a share of the values is worth a least-squares fit, which knows no other
CLEAN = 0.01


@dataclass(frozen=True)
class Subspace:
    r"""Samples :math:`x = B c + \text{noise}`, with c normal of a mean and a covariance.

    Attributes
    ----------
    basis : array, shape (N, r)
        Orthonormal columns.
    mean : array, shape (r,)
    covariance : array, shape (r, r)
    noise : float
        Variance of the noise of an entry.
    """

    basis: NumPyArray
    mean: NumPyArray
    covariance: NumPyArray
    noise: float

    def coefficients(self, Z: NumPyArray, known: NumPyArray) -> tuple[NumPyArray, NumPyArray]:
        r"""Most likely coefficients of samples, and their covariances.

        .. math:: (B_K^T B_K + \sigma^2 \Sigma^{-1})\, c = B_K^T x_K + \sigma^2 \Sigma^{-1} m

        Parameters
        ----------
        Z : array, shape (n, N)
            Zero where it is not known.
        known : array, shape (n, N)
            1.0 where it is, else 0.0.
        """
        r = len(self.mean)
        prior = self.noise * inv(self.covariance)
        gram = self._products(known).reshape(-1, r, r) + prior
        inverse = inv(gram)
        c = np.einsum("nij,nj->ni", inverse, Z @ self.basis + prior @ self.mean)
        return c, self.noise * inverse

    def _products(self, known: NumPyArray) -> NumPyArray:
        """Sums of b b^T over what is known of every sample."""
        return known @ _squares(self.basis)


def learned(
    Z: NumPyArray, known: NumPyArray, shape: Rank, rank: Rank, *, tol: float, max_epochs: int
) -> tuple[Subspace, NumPyArray, int]:
    """Subspace by expectation-maximisation; the coefficients of the samples, and the sweeps.

    A sweep solves an r x r system for every sample, then for every feature, and truncates the basis
    to the rank of the other modes. Cost: 4 n N r^2 flops; memory (n + N) r^2 numbers.

    Parameters
    ----------
    Z : array, shape (n, N)
        Zero where it is not known.
    known : array, shape (n, N)
        1.0 where it is, else 0.0.
    shape, rank : tuple of int
        Shape of a sample, and the rank of all, that of the samples first.
    tol : float
        The share of the noise in the values that is as good as none.
    max_epochs : int
    """
    count = float(known.sum())
    power = float(np.sum(Z * Z)) / count
    least = max(tol * tol * power, SMALLEST)
    model = _start(Z, known, shape, rank, max(FIRST * power, least))
    C, P = model.coefficients(Z, known)
    sweeps = 0
    while sweeps < max_epochs:
        sweeps += 1
        B = _features(Z, known, C, P, model)
        B = _truncated(B, shape, rank)
        left = known * (Z - C @ B.T)
        spread = float(np.sum(_squares(B) * (known.T @ P.reshape(len(P), -1))))
        noise = max((float(np.sum(left * left)) + spread) / count, least)
        Q, R = qr(B)
        C, P = C @ R.T, R @ P @ R.T
        before = model.noise
        model = Subspace(Q, *_moments(C, P), noise)
        C, P = model.coefficients(Z, known)
        if noise <= least or abs(before - noise) <= SETTLED * before:
            break
    return model, C, sweeps


def polished(
    model: Subspace, C: NumPyArray, Z: NumPyArray, known: NumPyArray, shape: Rank, rank: Rank,
    *, tol: float, max_epochs: int,
) -> tuple[Subspace, NumPyArray, int]:  # fmt: skip
    """Subspace of the least-squares fit to what is known, where next to nothing is noise.

    Sweeps come close to it only: they fit the features one by one, and truncate afterwards.
    """
    count = int(known.sum())
    power = float(np.sum(Z * Z)) / count
    whole = (len(Z), *shape)
    noisy = model.noise > CLEAN * power or model.noise <= tol * tol * power
    dof = degrees_of_freedom(whole, rank)
    if noisy or len(shape) == 1 or count < dof:
        return model, C, 0
    there = np.argwhere(known.reshape(whole))
    problem = Problem(EntriesOperator(whole, there), Z.reshape(whole)[tuple(there.T)])
    start = hosvd((C @ model.basis.T).reshape(whole), rank, warn=False)
    stop = ResidualBelow(tol) | Stalled() | MaxEpochs(max_epochs)
    result = solve_problem(problem, RGN(), rank, stop=stop, start=start)
    noise = float(result.residual) ** 2 * power * count / max(1, count - dof)
    if not noise < model.noise:
        return model, C, int(result.epochs)
    wide = np.ravel(result.X.full()).reshape(len(Z), -1)
    basis = svd(wide)[2][: rank[0]].T
    C = wide @ basis
    moments = _moments(C, np.zeros((1, rank[0], rank[0])))
    return Subspace(basis, *moments, max(noise, tol * tol * power)), C, int(result.epochs)


def _start(Z: NumPyArray, known: NumPyArray, shape: Rank, rank: Rank, noise: float) -> Subspace:
    """Truncated HOSVD of the known entries, scaled by their share."""
    share = known.mean()
    X = hosvd((Z / share).reshape(-1, *shape), rank, warn=False)
    wide = np.ravel(X.full()).reshape(len(Z), -1)
    basis = svd(wide)[2][: rank[0]].T
    C = wide @ basis
    return Subspace(basis, *_moments(C, np.zeros((1, rank[0], rank[0]))), noise)


def _features(
    Z: NumPyArray, known: NumPyArray, C: NumPyArray, P: NumPyArray, model: Subspace
) -> NumPyArray:
    """Rows of the basis, by least squares over the samples that know a feature."""
    r = C.shape[1]
    second = _squares(C) + P.reshape(len(P), -1)
    gram = (known.T @ second).reshape(-1, r, r)
    # rows that few samples tell of stay near what the other modes make of them
    near = NEAR * float(np.trace(gram.mean(axis=0))) / r or 1.0
    wanted = Z.T @ C + near * model.basis
    rows: NumPyArray = solve(gram + near * np.eye(r), wanted[..., None])[..., 0]
    return rows


def _truncated(B: NumPyArray, shape: Rank, rank: Rank) -> NumPyArray:
    """Basis whose modes have the rank of the tensor."""
    if len(shape) == 1:
        return B
    X = hosvd(B.reshape(*shape, -1), (*rank[1:], B.shape[1]), warn=False)
    return np.ravel(X.full()).reshape(B.shape)


def _moments(C: NumPyArray, P: NumPyArray) -> tuple[NumPyArray, NumPyArray]:
    """Mean and covariance of coefficients that are known up to P."""
    mean = C.mean(axis=0)
    away = C - mean
    covariance = away.T @ away / len(C) + P.mean(axis=0)
    scale = float(np.trace(covariance)) + float(mean @ mean)
    return mean, covariance + (JITTER * scale or 1.0) * np.eye(len(mean))


def _squares(A: NumPyArray) -> NumPyArray:
    """Products of the numbers of a row with each other: (n, r) -> (n, r^2)."""
    return (A[:, :, None] * A[:, None, :]).reshape(len(A), -1)

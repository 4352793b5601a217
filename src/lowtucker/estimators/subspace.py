"""Subspaces of low Tucker rank with a normal distribution of samples."""

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
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Subspace", "learned", "of_completed", "polished"]

NumPyArray = np.ndarray[Any, Any]
# Lower bound on the variance of the coefficients in any direction, relative to the mean variance
JITTER = 1e-7
# Weight of the previous row of the basis, relative to the mean information on a row
NEAR = 0.01
# Relative change of the noise below which the sweeps stop
SETTLED = 1e-5
# Lower bound on the noise variance, for values of about 1
SMALLEST = 1e-200
# Initial noise relative to the values: with a larger one some directions never grow
FIRST = 0.01
# Share of the squared error on held-out entries that counts as noise of an entry: a completion may
# fit the known ones almost exactly. On 6x5 samples of decaying spectra, new ones are predicted to
# 0.49-0.65 with it, and to 0.58-1.15 without
UNSEEN = 0.3
# Variance of a direction, relative to the noise of an entry, below which it predicts nothing
USELESS = 1e-3
# Noise relative to the values below which a least-squares fit, which ignores noise, is tried
CLEAN = 0.01


@dataclass(frozen=True)
class Subspace:
    r"""Samples :math:`x = B c + \text{noise}`, with normal coefficients c.

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
        r"""Return the most likely coefficients of samples, and their covariances.

        .. math:: (B_K^T B_K + \sigma^2 \Sigma^{-1})\, c = B_K^T x_K + \sigma^2 \Sigma^{-1} m

        Parameters
        ----------
        Z : array, shape (n, N)
            Zero where the entry is not known.
        known : array, shape (n, N)
            1.0 where it is known, else 0.0.
        """
        r = len(self.mean)
        prior = self.noise * inv(self.covariance)
        gram = self._products(known).reshape(-1, r, r) + prior
        inverse = inv(gram)
        c = np.einsum("nij,nj->ni", inverse, Z @ self.basis + prior @ self.mean)
        return c, self.noise * inverse

    def variances(self, covariances: NumPyArray) -> NumPyArray:
        r"""Return the variances of all entries of samples, :math:`b^T P b + \sigma^2`, (n, N).

        Parameters
        ----------
        covariances : array, shape (n, r, r)
            Of their coefficients.
        """
        of_means: NumPyArray = covariances.reshape(len(covariances), -1) @ _squares(self.basis).T
        variances: NumPyArray = np.maximum(of_means, 0) + self.noise
        return variances

    def _products(self, known: NumPyArray) -> NumPyArray:
        """Return the sums of b b^T over the known entries of every sample."""
        return known @ _squares(self.basis)


def learned(
    Z: NumPyArray, known: NumPyArray, shape: Rank, rank: Rank, *, tol: float, max_epochs: int
) -> tuple[Subspace, NumPyArray, int]:
    """Fit a subspace by EM; return it, the coefficients, and the number of sweeps.

    A sweep solves an r x r system for every sample, then for every feature, and truncates the basis
    to the rank of the other modes. Cost: 4 n N r^2 flops; memory (n + N) r^2 numbers.

    Parameters
    ----------
    Z : array, shape (n, N)
        Zero where the entry is not known.
    known : array, shape (n, N)
        1.0 where it is known, else 0.0.
    shape, rank : tuple of int
        Shape of a sample, and the rank of the tensor of all samples, with the mode of samples
        first.
    tol : float
        Relative noise that counts as zero.
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
    """Refine a subspace by a least-squares fit to the known entries, if there is little noise.

    The sweeps of :func:`learned` only approximate this fit: they fit the features one by one and
    truncate afterwards.
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
    refined, C = _spanned(result.X, rank[0], max(noise, tol * tol * power))
    return refined, C, int(result.epochs)


def of_completed(
    full: NumPyArray, Z: NumPyArray, known: NumPyArray, *, tol: float, unseen: float
) -> tuple[Subspace, NumPyArray]:
    """Return the subspace and distribution of completed samples, and their coefficients.

    Sweeps of :func:`learned` from there change the error on new samples of IL2, COVID and kinetic
    data by less than 2 %. Cost: an SVD of the samples.

    Parameters
    ----------
    full : array, shape (n, N)
    Z, known : array, shape (n, N)
        As in :func:`learned`.
    tol : float
        Relative noise that counts as zero.
    unseen : float
        Relative error of the completion on held-out entries.
    """
    count = float(known.sum())
    left = known * (Z - full)
    power = float(np.sum(Z * Z)) / count
    least = max(tol * tol * power, UNSEEN * unseen * unseen * power, SMALLEST)
    noise = max(float(np.sum(left * left)) / count, least)
    _, s, Vt = svd(full)
    r = max(1, int(np.sum(s * s > USELESS * noise * len(full))))
    C = full @ Vt[:r].T
    return Subspace(Vt[:r].T, *_moments(C, np.zeros((1, r, r))), noise), C


def _start(Z: NumPyArray, known: NumPyArray, shape: Rank, rank: Rank, noise: float) -> Subspace:
    """Truncated HOSVD of the known entries, scaled by their share."""
    share = known.mean()
    X = hosvd((Z / share).reshape(-1, *shape), rank, warn=False)
    return _spanned(X, rank[0], noise)[0]


def _spanned(X: TuckerTensor, r: int, noise: float) -> tuple[Subspace, NumPyArray]:
    """Return the subspace spanned by the samples of a tensor, and their coefficients."""
    wide = np.ravel(X.full()).reshape(X.shape[0], -1)
    basis = svd(wide)[2][:r].T
    C = wide @ basis
    return Subspace(basis, *_moments(C, np.zeros((1, r, r))), noise), C


def _features(
    Z: NumPyArray, known: NumPyArray, C: NumPyArray, P: NumPyArray, model: Subspace
) -> NumPyArray:
    """Fit the rows of the basis by least squares over the samples with a known feature."""
    r = C.shape[1]
    second = _squares(C) + P.reshape(len(P), -1)
    gram = (known.T @ second).reshape(-1, r, r)
    # rows with few samples stay near the previous basis, which the other modes determine
    near = NEAR * float(np.trace(gram.mean(axis=0))) / r or 1.0
    wanted = Z.T @ C + near * model.basis
    rows: NumPyArray = solve(gram + near * np.eye(r), wanted[..., None])[..., 0]
    return rows


def _truncated(B: NumPyArray, shape: Rank, rank: Rank) -> NumPyArray:
    """Truncate the modes of the basis to the rank of the tensor."""
    if len(shape) == 1:
        return B
    X = hosvd(B.reshape(*shape, -1), (*rank[1:], B.shape[1]), warn=False)
    return np.ravel(X.full()).reshape(B.shape)


def _moments(C: NumPyArray, P: NumPyArray) -> tuple[NumPyArray, NumPyArray]:
    """Return mean and covariance of coefficients with uncertainty P."""
    mean = C.mean(axis=0)
    away = C - mean
    covariance = away.T @ away / len(C) + P.mean(axis=0)
    scale = float(np.trace(covariance)) + float(mean @ mean)
    return mean, covariance + (JITTER * scale or 1.0) * np.eye(len(mean))


def _squares(A: NumPyArray) -> NumPyArray:
    """Return the products of all pairs in each row: (n, r) -> (n, r^2)."""
    return (A[:, :, None] * A[:, None, :]).reshape(len(A), -1)

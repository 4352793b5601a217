"""Whether the residual of a fit is noise."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import Array, all_finite, like, size, to_numpy
from lowtucker._array.linalg import eigvalsh
from lowtucker._array.random import Stream, generator
from lowtucker.limits import CLEAR, PLENTY, STRUCTURE
from lowtucker.problem import Problem
from lowtucker.tensor.products import exponent, multi_mode_product, shifted
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["FULL", "Structure", "is_noise", "structure"]

NumPyArray = np.ndarray[Any, Any]
# Entries of the largest tensor that is formed in full, and of all that are formed at a time
FULL = 10**7
# Random signs that a residual is compared with
FLIPS = 32


class Structure(NamedTuple):
    """How a residual differs from noise of the same size.

    Attributes
    ----------
    excess : float
        Largest excess of a spectral norm over those with random signs, in standard deviations.
    visible : float
        What that of a misfit of rank one and of the size of the residual would be, in units of
        those with random signs: below 1 it would not be seen.
    effective : float
        Number of measurements that count: fewer than m where some rows, or some directions of
        them, outweigh others.
    """

    excess: float
    visible: float
    effective: float


def is_noise(problem: Problem, residual: Array, X: TuckerTensor) -> bool | None:
    """Whether a residual of a fit X has no structure, so that other starts lead no further.

    None is no answer: fewer than 2.8 measurements per degree of freedom cannot tell (of 600
    noiseless problems with 1.2 to 1.6, six local minima looked like noise), nor can a residual
    above 0.3, nor operators without a tangent design or whose rows are not isotropic.
    """
    traits = problem.A.traits
    plenty = _counting(problem) >= PLENTY * X.degrees_of_freedom
    small = float(problem.relative(residual)) <= CLEAR
    if not (traits.has_fast_tangent and traits.isotropic and plenty and small):
        return None
    found = structure(problem, residual, X)
    return None if found is None else found.excess <= STRUCTURE


def _counting(problem: Problem) -> float:
    """Number of equations that count: fewer than all where some weights outweigh others."""
    if problem.weights is None:
        return float(problem.equations)
    w = to_numpy(problem.weights)
    w = w / (float(w.max()) or 1.0)
    return float(problem.equations * np.mean(w[w > 0]) ** 2 / np.mean(w[w > 0] ** 2))


def structure(problem: Problem, residual: Array, X: TuckerTensor) -> Structure | None:
    r"""Compare the adjoint of a residual with that of the same numbers with random signs.

    A misfit shows in :math:`G = \mathcal{A}^*(r)` as directions that X has not: a large spectral
    norm of its unfoldings, outside the factors of X in some modes and inside in the others (those
    sets of modes are tried in turn). Independent errors with symmetric distributions have the same
    distribution as with random signs, whatever A is and however their sizes differ: that of the
    spectral norms is estimated from 32 of them.

    33 adjoints: one reading of a matrix, as far as 10^7 numbers hold them. None is no answer:
    tensors of more than 10^7 entries are not formed.
    """
    if size(problem.shape) > FULL or not isinstance(X, TuckerTensor):
        return None
    r = residual if problem.weights is None else problem.weights * residual
    r = to_numpy(r)
    if not all_finite(r):
        return Structure(math.inf, math.inf, 0.0)
    top = np.abs(r).max(initial=0.0)
    if not top > 0:
        return Structure(0.0, math.inf, float(problem.m))
    r = shifted(r, -exponent(top))  # its squares must not overflow
    draws = generator((0, 0), Stream.PROBE)
    signs = np.concatenate([np.ones((1, problem.m)), draws.choice([-1.0, 1.0], (FLIPS, problem.m))])
    factors = [to_numpy(U) for U in X.factors]
    some = max(1, FULL // size(problem.shape))
    norms, adjoints = [], []
    try:
        for start in range(0, FLIPS + 1, some):
            flipped = like((signs[start : start + some] * r).astype(r.dtype), problem.y)
            G = to_numpy(problem.A.adjoint(flipped))
            if not start:
                unit = exponent(np.abs(G).max(initial=0.0))
            G = shifted(G, -unit)  # nor must theirs, or underflow
            norms.append(_spectral_norms(G, factors))
            adjoints.append(G.reshape(len(G), -1))
    except np.linalg.LinAlgError:
        return None
    own, *others = np.concatenate(norms)
    mean, spread = np.mean(others, axis=0), np.std(others, axis=0, ddof=1)
    length, effective = _rows(np.concatenate(adjoints)[1:], r)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.nan_to_num((own - mean) / spread, nan=0.0)
        share = math.sqrt(min(1.0, effective / size(problem.shape)))
        visible = float(length * share / mean.max())
    return Structure(float(excess.max()), visible, effective)


def _rows(G: NumPyArray, r: NumPyArray) -> tuple[float, float]:
    r"""Length of the adjoints of a vector r with random signs, and how many rows count.

    With K the gram matrix of the rows times r, products of two such adjoints have the mean square
    :math:`\|K\|_F^2`. Then :math:`(\mathrm{tr} K)^2 / \|K\|_F^2` rows count, times 1 + m/N and the
    kurtosis of r, so that it is m for i.i.d. rows.
    """
    products = np.abs(G.conj() @ G.T) ** 2
    square = float(np.mean(np.diagonal(products) ** 0.5))
    count = len(G)
    off = (float(np.sum(products)) - float(np.sum(np.diagonal(products)))) / (count * (count - 1))
    m, sizes = len(r), np.abs(r) ** 2
    kurtosis = m * float(np.sum(sizes**2)) / float(np.sum(sizes)) ** 2
    effective = kurtosis * (1 + m / G.shape[1]) * square**2 / off if off > 0 else float(m)
    return math.sqrt(square), min(effective, float(m))


def _spectral_norms(G: NumPyArray, factors: list[NumPyArray]) -> NumPyArray:
    """Spectral norms of tensors G, shape (batch, *shape).

    One column for each set of modes, all of them last: outside the factors in these modes, inside
    in the others.
    """
    columns = []
    outside = [np.eye(len(U)) - U @ U.conj().T for U in factors]
    for count in range(1, G.ndim):
        for modes in combinations(range(G.ndim - 1), count):
            onto = [outside[k] if k in modes else U.conj().T for k, U in enumerate(factors)]
            part = multi_mode_product(G, onto)
            columns.append(np.max([_spectral_norm(part, k) for k in modes], axis=0))
    return np.stack(columns, axis=1)


def _spectral_norm(tensors: NumPyArray, k: int) -> NumPyArray:
    """Largest singular values of unfoldings, by the smaller gram: accurate enough to compare."""
    matrix = np.moveaxis(tensors, k + 1, 1).reshape(len(tensors), tensors.shape[k + 1], -1)
    other = np.swapaxes(matrix.conj(), 1, 2)
    gram = matrix @ other if matrix.shape[1] <= matrix.shape[2] else other @ matrix
    return np.asarray(np.sqrt(np.maximum(eigvalsh(gram)[:, -1], 0)))

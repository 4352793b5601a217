"""Whether the residual of a fit is noise."""

from __future__ import annotations

import math

import numpy as np

from lowtucker._array import Array, all_finite, size, to_numpy
from lowtucker._array.linalg import svdvals
from lowtucker.limits import CLEAR, PLENTY, STRUCTURE
from lowtucker.problem import Problem
from lowtucker.tensor.products import exponent, shifted
from lowtucker.tensor.unfolding import unfold

__all__ = ["FULL", "is_noise", "structure"]

# Entries of the largest tensor that is formed in full
FULL = 10**7


def is_noise(problem: Problem, residual: Array, dof: int) -> bool | None:
    """Whether a residual, of a fit of so many degrees of freedom, has no structure.

    None where :func:`structure` has no answer.
    """
    found = structure(problem, residual, dof)
    return None if found is None else found <= STRUCTURE


def structure(problem: Problem, residual: Array, dof: int) -> float | None:
    r"""Spectral norm of the adjoint of a residual, in units of that of noise.

    A signal in the residual shows in :math:`G = \mathcal{A}^*(r)` as unfoldings of large
    spectral norm. Noise through isotropic measurements gives a G without structure: its
    unfoldings have the spectral norm of Gaussian matrices,
    :math:`(\sqrt{n_k} + \sqrt{N/n_k}) \|G\|_F / \sqrt N`. Measured over shapes from 5x5x6 to
    30x30x30: noise at most 1.02 times that, a rank that is too small 1.02 to 1.6 times, the
    paper's candle 1.3 and more. One pass, where there is an answer.

    None is no answer: fewer than 2.8 measurements per degree of freedom cannot tell (of 600
    noiseless problems with 1.2 to 1.6, six local minima looked like noise), nor can a residual
    above 0.3, nor operators without a tangent design or whose rows are not isotropic; and tensors
    of more than 10^7 entries are not formed.
    """
    share = float(problem.relative(residual))
    fits = (
        problem.A.traits.has_fast_tangent
        and problem.A.traits.isotropic
        and size(problem.shape) <= FULL
    )
    if not (fits and _effective(problem) >= PLENTY * dof and share <= CLEAR):
        return None
    weighted = residual if problem.weights is None else problem.weights * residual
    G = to_numpy(problem.A.adjoint(weighted))
    if not all_finite(G):
        return math.inf
    G = shifted(G, -exponent(np.abs(G).max()))  # its squares must not overflow
    entry = np.linalg.norm(G) / np.sqrt(G.size)
    try:
        spectral = [svdvals(unfold(G, k))[0] for k in range(G.ndim)]
    except np.linalg.LinAlgError:
        return None
    if not entry > 0:
        return 0.0
    ratios = [
        s / (entry * (np.sqrt(n) + np.sqrt(G.size / n)))
        for n, s in zip(G.shape, spectral, strict=True)
    ]
    return float(max(ratios))


def _effective(problem: Problem) -> float:
    r"""Equations that count, fewer where weights differ: :math:`(\sum w)^2 / \sum w^2` in m.

    One row that outweighs all others looks as noise does.
    """
    if problem.weights is None:
        return float(problem.equations)
    w = to_numpy(problem.weights).astype(np.float64)
    w = w[w > 0] / w.max()
    return float(problem.equations * w.sum() ** 2 / (w**2).sum() / w.size)

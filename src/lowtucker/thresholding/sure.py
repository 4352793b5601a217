r"""Shrinkage that tunes itself: a combination of Wiener filters of least estimated risk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import Array, conj, like, namespace, real, real_dtype, to_numpy
from lowtucker._array.linalg import solve
from lowtucker.thresholding.shrinkage import (
    Prior,
    ShrunkTensor,
    signal_variances,
    wiener_factors,
)
from lowtucker.thresholding.spectrum import (
    Spectrum,
    coefficients,
    multilinear_spectrum,
    synthesis,
)

__all__ = ["Denoised", "sure_shrinkage"]

# The filters: a prior, the share of the noise that is subtracted from the variances, and a factor
# on the noise. The first is the one that the others are combined with
FILTERS: tuple[tuple[Prior, float, float], ...] = (
    ("sum", 1.0, 1.0),
    ("product", 1.0, 1.0),
    ("sum", 1.0, 4.0),
    ("sum", 1.0, 0.25),
    ("sum", 0.0, 1.0),
    ("product", 1.0, 0.1),
    ("product", 1.0, 10.0),
)
# Weight of the other modes in filters that look at one mode
OTHERS = 0.1
# Ridge on the combination, in units of the noise's energy. On the paper's clip (30x30x10, Gaussian
# rows) 1e-3 to 1e-2 gave the same errors; without it some runs with 1000 measurements blew up
RIDGE = 3e-3
# Length of the finite difference, in units of the noise's standard deviation
DIFFERENCE = 1e-3


class Denoised(NamedTuple):
    """A tensor without its noise, as far as can be.

    Attributes
    ----------
    X : ShrunkTensor
        Its effective degrees of freedom are the divergence.
    divergence : float
        Sum of the derivatives of X's entries by those of Z, by one probe.
    risk : float
        Estimated mean square error of an entry of X.
    """

    X: ShrunkTensor
    divergence: float
    risk: float


def sure_shrinkage(Z: Array, noise: float, probe: Array) -> Denoised:
    r"""Denoise Z by the combination of filters with the lowest estimate of the risk.

    All filters share the bases of Z; the j-th multiplies the core by factors :math:`f_j`, which
    gives :math:`S_j(Z)`. By Stein's lemma

    .. math::

        \mathbb E \Big\| \sum_j a_j S_j(Z) - X \Big\|^2 = \mathbb E \Big(
        \Big\| \sum_j a_j S_j(Z) - Z \Big\|^2 + 2 \sigma^2 \sum_j a_j \,\mathrm{div}\, S_j
        - N \sigma^2 \Big),

    a quadratic function of a, whose minimum (with a small ridge) is taken. The divergences follow
    from one probe e, :math:`\langle e, S_j(Z + \epsilon e) - S_j(Z) \rangle / \epsilon`: the
    bases depend on Z, so that the sum of the factors is too small, by up to a half.

    Parameters
    ----------
    Z : array, shape (n_1, ..., n_d)
    noise : float
        Variance of the noise in an entry of Z, which is Gaussian and white.
    probe : array, shape (n_1, ..., n_d)
        Random numbers of mean 0 and variance 1.

    Returns
    -------
    Denoised

    Notes
    -----
    Cost: two multilinear spectra and three products with all bases. Memory: a tensor for each of
    the 7 + d filters, and some more.
    """
    xp, step = namespace(Z), DIFFERENCE * noise**0.5
    here = multilinear_spectrum(Z)
    there = multilinear_spectrum(Z + step * probe)
    seen_here, seen_there = (coefficients(probe, s.bases) for s in (here, there))
    S = [xp.astype(f, real_dtype(Z), copy=False) * here.core for f in _filters(here, noise)]
    after = [_inner(seen_there, f * there.core) for f in _filters(there, noise)]
    before = [_inner(seen_here, one) for one in S]
    divergences = (np.array(after) - np.array(before)) / step
    gram = np.array([[_inner(one, other) for other in S] for one in S])
    towards = np.array([_inner(one, here.core) for one in S]) - noise * divergences
    a = _combination(gram, towards, RIDGE * noise * _count(Z))
    core = sum((float(c) * one for c, one in zip(a[1:], S[1:], strict=True)), float(a[0]) * S[0])
    energy = _inner(here.core, here.core)  # of Z: nothing was dropped
    # |S a - Z|^2 + 2 noise <a, div> - N noise, with towards = <S, Z> - noise div
    risk = float(a @ gram @ a - 2 * a @ towards + energy) / _count(Z) - noise
    divergence = float(a @ divergences)
    effective = like(np.asarray(max(divergence, 0.0)), Z, real_dtype(Z))
    X = ShrunkTensor(synthesis(core, here.bases), effective)
    return Denoised(X, divergence, max(risk, 0.0))


def _filters(spectrum: Spectrum, noise: float) -> Iterator[Array]:
    """Factors of every filter, one after the other."""
    shape = tuple(U.shape[-2] for U in spectrum.bases)
    signal = {
        share: [signal_variances(w, noise, share) for w in spectrum.variances]
        for share in (0.0, 1.0)
    }
    for prior, share, factor in FILTERS:
        yield wiener_factors(signal[share], factor * noise, prior, shape)
    for k in range(len(shape)):
        modes = [1 + OTHERS if j == k else OTHERS for j in range(len(shape))]
        yield wiener_factors(signal[1.0], noise, "sum", shape, modes)


def _combination(gram: Any, towards: Any, ridge: float) -> Any:
    """Coefficients of the filters; a ridge draws them to the first filter alone."""
    first = np.zeros(len(gram))
    first[0] = 1.0
    ridge = ridge + 1e-12 * float(np.trace(gram))  # filters may be equal
    if not ridge > 0:
        return first
    return first + solve(gram + ridge * np.eye(len(gram)), towards - gram @ first)


def _inner(x: Array, y: Array) -> float:
    """Real part of the inner product of two tensors."""
    xp = namespace(x)
    return float(to_numpy(real(xp.sum(conj(x) * y))))


def _count(Z: Array) -> int:
    return int(np.prod(Z.shape))

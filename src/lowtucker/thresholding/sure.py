r"""Shrinkage that tunes itself: a combination of Wiener filters of least estimated risk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import Array, conj, like, namespace, per_trial, real, real_dtype, to_numpy
from lowtucker._array.linalg import solve
from lowtucker.thresholding.shrinkage import (
    Prior,
    ShrunkTensor,
    pieces,
    signal_variances,
    wiener_factors,
)
from lowtucker.thresholding.spectrum import Spectrum, coefficients, multilinear_spectrum, synthesis

__all__ = ["Denoised", "sure_shrinkage"]

NumPyArray = np.ndarray[Any, Any]

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
    divergence : float or NumPy array, shape (*batch,)
        Sum of the derivatives of X's entries by those of Z, by one probe.
    risk : float or NumPy array, shape (*batch,)
        Estimated mean square error of an entry of X.
    """

    X: ShrunkTensor
    divergence: Any
    risk: Any


def sure_shrinkage(Z: Array, noise: Any, probe: Array) -> Denoised:
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
    Z : array, shape (*batch, n_1, ..., n_d)
    noise : float, or NumPy array of shape (batch,)
        Variance of the noise in an entry of Z, which is Gaussian and white. An array says that
        there is a batch.
    probe : array, shape (*batch, n_1, ..., n_d)
        Random numbers of mean 0 and variance 1.

    Returns
    -------
    Denoised

    Notes
    -----
    Cost: two multilinear spectra and three products with all bases. Memory: a tensor for each of
    the 7 + d filters, and some more. Of a batch so many at a time as stay in the cache, at least
    one.
    """
    b, count = np.ndim(noise), math.prod(Z.shape[np.ndim(noise) :])
    if b and len(cut := pieces(Z.shape[0], count)) > 1:
        parts = [sure_shrinkage(Z[k, ...], noise[k], probe[k, ...]) for k in cut]
        return Denoised(
            ShrunkTensor.concat([one.X for one in parts]),
            np.concatenate([one.divergence for one in parts]),
            np.concatenate([one.risk for one in parts]),
        )
    xp, step = namespace(Z), DIFFERENCE * noise**0.5
    inside, length = (like(x, Z, real_dtype(Z)) if b else x for x in (noise, step))
    here = multilinear_spectrum(Z, b)
    there = multilinear_spectrum(Z + per_trial(length, Z) * probe, b)
    seen_here, seen_there = (coefficients(probe, s.bases, b) for s in (here, there))
    S = [xp.astype(f, real_dtype(Z), copy=False) * here.core for f in _filters(here, inside)]
    after = [_inner(seen_there, f * there.core, b) for f in _filters(there, inside)]
    before = [_inner(seen_here, one, b) for one in S]
    each = np.asarray(noise)[..., None]
    divergences = (np.stack(after, axis=-1) - np.stack(before, axis=-1)) / np.asarray(step)[
        ..., None
    ]
    gram = _gram(S, b)
    towards = np.stack([_inner(one, here.core, b) for one in S], axis=-1) - each * divergences
    a = _combination(gram, towards, RIDGE * noise * count)
    shares = [per_trial(like(a[..., j], Z, real_dtype(Z)), Z) for j in range(len(S))]
    core = sum((c * one for c, one in zip(shares[1:], S[1:], strict=True)), shares[0] * S[0])
    energy = _inner(here.core, here.core, b)  # of Z: nothing was dropped
    # |S a - Z|^2 + 2 noise <a, div> - N noise, with towards = <S, Z> - noise div
    missed = _dot(_times(gram, a), a) - 2 * _dot(a, towards) + energy
    risk = np.maximum(missed / count - noise, 0.0)
    divergence = _dot(a, divergences)
    effective = like(np.maximum(divergence, 0.0), Z, real_dtype(Z))
    X = ShrunkTensor(synthesis(core, here.bases, b), effective)
    return Denoised(X, *((divergence, risk) if b else (float(divergence), float(risk))))


def _filters(spectrum: Spectrum, noise: Any) -> Iterator[Array]:
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


def _combination(gram: NumPyArray, towards: NumPyArray, ridge: Any) -> NumPyArray:
    """Coefficients of the filters, (*batch, j); a ridge draws them to the first filter alone."""
    count = gram.shape[-1]
    first = np.zeros(towards.shape)
    first[..., 0] = 1.0
    ridge = np.asarray(ridge + 1e-12 * np.trace(gram, axis1=-2, axis2=-1))  # filters may be equal
    rest = np.where((ridge > 0)[..., None], towards - _times(gram, first), 0.0)
    ridge = np.where(ridge > 0, ridge, 1.0)
    found: NumPyArray = solve(gram + ridge[..., None, None] * np.eye(count), rest[..., None])[
        ..., 0
    ]
    return first + found


def _gram(S: list[Array], b: int) -> NumPyArray:
    """Inner products of all pairs, (*batch, j, j)."""
    rows = [[_inner(one, other, b) for other in S[: j + 1]] for j, one in enumerate(S)]
    pairs = [[rows[max(i, j)][min(i, j)] for j in range(len(S))] for i in range(len(S))]
    return np.moveaxis(np.array(pairs), (0, 1), (-2, -1))


def _times(matrix: NumPyArray, vector: NumPyArray) -> NumPyArray:
    product: NumPyArray = (matrix @ vector[..., None])[..., 0]
    return product


def _dot(x: NumPyArray, y: NumPyArray) -> NumPyArray:
    product: NumPyArray = (x[..., None, :] @ y[..., None])[..., 0, 0]
    return product


def _inner(x: Array, y: Array, b: int) -> NumPyArray:
    """Real part of the inner product of two tensors, or of each pair of two batches."""
    xp = namespace(x)
    product = xp.sum(conj(x) * y, axis=tuple(range(b, x.ndim)))
    return np.asarray(to_numpy(real(product)), dtype=np.float64)

"""Quasi-optimality eta of truncations, equation (3.6): proven and measured."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import as_float, as_integer, as_tensor, size, to_numpy
from lowtucker._array.linalg import svdvals
from lowtucker._array.random import Seed, as_seed
from lowtucker.tensor.decompose import hooi
from lowtucker.tensor.random import MOST_TRIALS, random_tucker
from lowtucker.tensor.rank import attainable_rank
from lowtucker.thresholding import Iterate, Thresholding, TuckerTruncation

__all__ = ["Eta", "eta"]

NumPyArray = np.ndarray[Any, Any]


class Eta(NamedTuple):
    r"""Quasi-optimality of a thresholding, :math:`\|H_r(Z) - Z\| \le \eta \|Z_{best} - Z\|`.

    Attributes
    ----------
    proven : float
        Bound that holds for every tensor.
    measured : float or None
        The ratio for one tensor, relative to the best approximation found: at most the true
        ratio, and equal to it if that approximation is optimal.
    best : Iterate or None
        The best approximation found, such as a TuckerTensor.
    at_most : float or None
        A bound on the ratio for one tensor: no approximation is better than that of any
        matricisation whose rank is bounded.
    """

    proven: float
    measured: float | None = None
    best: Any = None
    at_most: float | None = None


def eta(thresholding: Thresholding, Z: Any = None, *, starts: int = 20, seed: Seed = 0) -> Eta:
    r"""Quasi-optimality :math:`\eta` of equation (3.6), proven and, for a tensor, measured.

    The proven bound is :math:`\sqrt d` for the truncated HOSVD, the sequentially truncated HOSVD,
    SeMP and HOOI, and 1 for matrices; :math:`\sqrt{d-1}` for tensor trains and
    :math:`\sqrt{2d-3}` for hierarchical Tucker; 1 for sparse and tubal tensors, whose truncation
    is a best approximation. The paper quotes :math:`\sqrt{2d-3}`, :math:`\sqrt{2d-2}` and
    :math:`(2+\sqrt 2)\sqrt d`, which belong to hierarchical formats.

    Parameters
    ----------
    thresholding : Thresholding
        Such as ``lowtucker.HOSVD((3, 3, 3))``.
    Z : array, shape (n_1, ..., n_d), or TuckerTensor, optional
        The tensor to measure the ratio for.
    starts : int
        Tucker: number of random subspaces from which HOOI starts, besides the HOSVD. Other
        formats: number of steps :math:`X \leftarrow H(X + (Z - X)/2)`, TIHT for the identity. The
        best of these and the output of the thresholding counts as the best approximation.
    seed : int

    Notes
    -----
    Cost: ``starts`` runs of HOOI, each some tens of products of Z with thin matrices; or ``starts``
    thresholdings. And a singular value decomposition of every matricisation.

    Examples
    --------
    >>> import numpy as np, lowtucker as lt
    >>> Z = np.random.default_rng(0).standard_normal((6, 7, 8))
    >>> found = lt.theory.eta(lt.HOSVD((2, 2, 2)), Z)
    >>> round(found.proven, 3), 1 < found.measured < found.at_most < found.proven
    (1.732, True)
    >>> lt.theory.eta(lt.Sparse(5), Z).measured
    1.0
    """
    if not isinstance(thresholding, Thresholding) or isinstance(thresholding, type):
        raise TypeError(
            f"thresholding must be a Thresholding, got {thresholding!r}. "
            "Try lowtucker.HOSVD((3, 3, 3))."
        )
    if Z is None:
        if thresholding.eta != thresholding.eta:
            raise ValueError(
                f"eta of {thresholding!r} depends on the number of modes, which it does not know. "
                "Try thresholding.for_shape(shape)."
            )
        return Eta(float(thresholding.eta))
    starts = as_integer(starts, "starts", 0, MOST_TRIALS)
    Z = to_numpy(Z.full() if isinstance(Z, Iterate) else as_float(as_tensor(Z, "Z"), "Z"))
    if not np.isfinite(Z).all():
        raise ValueError("Z has NaN or infinite entries: it has no simple approximation.")
    thresholding = thresholding.for_shape(Z.shape)
    proven = float(thresholding.eta)
    scale = float(np.linalg.norm(Z)) or 1.0
    Z = Z / scale
    tried = [thresholding(Z)]
    if isinstance(thresholding, TuckerTruncation):
        tried += _by_hooi(thresholding, Z, starts, seed)
    else:
        tried += _by_steps(thresholding, Z, starts)
    errors = [float(np.linalg.norm(to_numpy(X.full()) - Z)) for X in tried]
    best = int(np.argmin(errors))
    # Z is of that format: all errors are rounding errors, and their ratio is meaningless
    exact = errors[0] <= 100 * np.finfo(Z.dtype).eps * Z.ndim
    measured = 1.0 if exact else errors[0] / errors[best]
    least = max((_tail(Z, *one) for one in thresholding.matricisations(Z.shape)), default=0.0)
    at_most = proven if exact or not least else min(proven, max(measured, errors[0] / least))
    return Eta(proven, measured, tried[best] * scale, at_most)


def _by_hooi(thresholding: Any, Z: NumPyArray, starts: int, seed: Seed) -> list[Any]:
    """Tucker approximations by HOOI, from the HOSVD and from random subspaces."""
    rank = attainable_rank(thresholding.rank)
    tried = [hooi(Z, rank, warn=False)]
    number, trial = as_seed(seed)
    for k in range(starts):
        start = random_tucker(Z.shape, rank, (number, trial + k), dtype=Z.dtype)
        tried.append(hooi(Z, rank, start=start, warn=False))
    return tried


def _by_steps(thresholding: Any, Z: NumPyArray, steps: int) -> list[Any]:
    """Approximations by thresholding half way between the last one and Z."""
    tried: list[Any] = []
    X = thresholding(Z)
    for _ in range(steps if thresholding.eta > 1 else 0):
        X = thresholding(0.5 * X.full() + 0.5 * Z)
        tried.append(X)
    return tried


def _tail(Z: NumPyArray, modes: tuple[int, ...], rank: int) -> float:
    """Norm of the discarded singular values of a matricisation."""
    rest = tuple(k for k in range(Z.ndim) if k not in modes)
    matrix = np.transpose(Z, (*modes, *rest)).reshape(size([Z.shape[k] for k in modes]), -1)
    return float(np.linalg.norm(to_numpy(svdvals(matrix))[rank:]))

"""Quasi-optimality eta of truncations, equation (3.6): proven and measured."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import as_float, as_integer, as_tensor, to_numpy
from lowtucker._array.random import Seed, as_seed
from lowtucker.tensor.decompose import hooi
from lowtucker.tensor.random import random_tucker
from lowtucker.tensor.rank import attainable_rank, check_rank
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.thresholding import Thresholding

__all__ = ["Eta", "eta"]


class Eta(NamedTuple):
    r"""Quasi-optimality of a thresholding, :math:`\|H_r(Z) - Z\| \le \eta \|Z_{best} - Z\|`.

    Attributes
    ----------
    proven : float
        Bound that holds for every tensor.
    measured : float or None
        The ratio for one tensor, relative to the best approximation found: at most the true
        ratio, and equal to it if that approximation is optimal.
    best : TuckerTensor or None
        The best approximation found.
    """

    proven: float
    measured: float | None = None
    best: TuckerTensor | None = None


def eta(thresholding: Thresholding, Z: Any = None, *, starts: int = 20, seed: Seed = 0) -> Eta:
    r"""Quasi-optimality :math:`\eta` of equation (3.6), proven and, for a tensor, measured.

    The proven bound is :math:`\sqrt d` for the truncated HOSVD, the sequentially truncated HOSVD
    and HOOI, and 1 for matrices. The paper quotes :math:`\sqrt{2d-3}`, :math:`\sqrt{2d-2}` and
    :math:`(2+\sqrt 2)\sqrt d`, which belong to hierarchical formats.

    Parameters
    ----------
    thresholding : Thresholding
        Such as ``lowtucker.HOSVD((3, 3, 3))``.
    Z : array, shape (n_1, ..., n_d), or TuckerTensor, optional
        The tensor to measure the ratio for.
    starts : int
        Number of random subspaces from which HOOI starts, besides the HOSVD. The best of these
        and the output of the thresholding counts as the best approximation.
    seed : int

    Notes
    -----
    Cost: ``starts`` runs of HOOI, each some tens of products of Z with thin matrices.

    Examples
    --------
    >>> import numpy as np, lowtucker as lt
    >>> Z = np.random.default_rng(0).standard_normal((6, 7, 8))
    >>> found = lt.theory.eta(lt.HOSVD((2, 2, 2)), Z)
    >>> round(found.proven, 3), 1 < found.measured < found.proven
    (1.732, True)
    """
    if not isinstance(thresholding, Thresholding) or isinstance(thresholding, type):
        raise TypeError(
            f"thresholding must be a Thresholding, got {thresholding!r}. "
            "Try lowtucker.HOSVD((3, 3, 3))."
        )
    proven = float(thresholding.eta)
    if Z is None:
        return Eta(proven)
    starts = as_integer(starts, "starts", 0)
    Z = to_numpy(Z.full() if isinstance(Z, TuckerTensor) else as_float(as_tensor(Z, "Z"), "Z"))
    if not np.isfinite(Z).all():
        raise ValueError("Z has NaN or infinite entries: it has no low-rank approximation.")
    rank = attainable_rank(check_rank(thresholding.rank, Z.shape, warn=False))
    scale = float(np.linalg.norm(Z)) or 1.0
    Z = Z / scale
    given = thresholding(Z)
    tried = [given, hooi(Z, rank, warn=False)]
    number, trial = as_seed(seed)
    for k in range(starts):
        start = random_tucker(Z.shape, rank, (number, trial + k), dtype=Z.dtype)
        tried.append(hooi(Z, rank, start=start, warn=False))
    errors = [float(np.linalg.norm(to_numpy(X.full()) - Z)) for X in tried]
    best = int(np.argmin(errors))
    # Z has that rank: all errors are rounding errors, and their ratio is meaningless
    exact = errors[0] <= 100 * np.finfo(Z.dtype).eps * len(rank)
    return Eta(proven, 1.0 if exact else errors[0] / errors[best], tried[best] * scale)

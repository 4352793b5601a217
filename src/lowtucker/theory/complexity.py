"""Sample complexity: the number of measurements that the theory requires."""

from __future__ import annotations

import math
from typing import Any

from lowtucker._array import as_number, as_shape
from lowtucker.tensor.rank import check_rank

__all__ = ["sample_complexity"]


def sample_complexity(
    shape: tuple[int, ...], rank: tuple[int, ...], delta: float, constant: float = 1.0
) -> int:
    r"""Order of the number of Gaussian measurements that satisfy the TRIP, section 5 of the paper.

    .. math:: m = \lceil C \delta^{-2} (r^d + d n r) \rceil, \quad n = \max_k n_k, \;
        r = \max_k r_k

    Parameters
    ----------
    shape, rank : tuple of int
        The rank may exceed the shape: Theorem 5.1 requires the TRIP of rank 3r.
    delta : float
        The required constant :math:`\delta_r` of the TRIP, between 0 and 1.
    constant : float
        C, which the theory does not specify.

    Notes
    -----
    C is unknown, so the result shows how m scales with the shape, the rank and delta, not how many
    measurements to take. :func:`phase_transition` measures how many are needed.

    Examples
    --------
    >>> sample_complexity((30, 30, 30), (3, 3, 3), delta=0.5)
    1188
    """
    shape = as_shape(shape)
    rank = check_rank(rank)
    if len(rank) != len(shape):
        raise ValueError(
            f"rank must have one entry per mode: got {len(rank)} entries, {rank}, for shape "
            f"{shape}."
        )
    delta, constant = _share(delta), as_number(constant, "constant", positive=True)
    n, r, d = max(shape), max(rank), len(shape)
    m: float = constant * (r**d + d * n * r) / delta / delta
    if m == math.inf:
        raise ValueError(f"delta = {delta:g} is too small for constant = {constant:g}.")
    return math.ceil(m)


def _share(delta: Any) -> float:
    number = as_number(delta, "delta", positive=True)
    if number >= 1:
        raise ValueError(f"delta must be between 0 and 1, got {number:g}. Try delta=0.5.")
    return number

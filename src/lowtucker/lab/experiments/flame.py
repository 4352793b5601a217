"""The synthetic flame, truncated to a rank."""

from __future__ import annotations

from lowtucker.datasets import flame
from lowtucker.tensor import TuckerTensor, hosvd

__all__ = ["synthetic_clip"]


def synthetic_clip(
    shape: tuple[int, int, int] = (32, 32, 12), rank: tuple[int, int, int] = (5, 5, 4)
) -> TuckerTensor:
    """Return the synthetic flame truncated to a Tucker rank, which can be recovered exactly.

    Examples
    --------
    >>> clip = synthetic_clip()
    >>> clip.shape, clip.rank
    ((32, 32, 12), (5, 5, 4))
    """
    return hosvd(flame(shape).values, rank)

"""StoTIHT: stochastic iterative hard thresholding, Algorithm 1 of the paper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from lowtucker.problem import Problem
from lowtucker.solvers.iht import IHT, Thresholded
from lowtucker.solvers.sampling import BlockSampler, KaczmarzRows, Partition
from lowtucker.solvers.schedule import GrowingRank
from lowtucker.thresholding import Thresholding

__all__ = ["StoTIHT"]


@dataclass(frozen=True, repr=False, kw_only=True)
class DrawnBlocks(Thresholded):
    """The settings of blocks that are drawn at random."""

    block_size: int | None = None
    p: Any = None
    sampler: BlockSampler | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.sampler is not None:
            if not isinstance(self.sampler, BlockSampler):
                raise TypeError(
                    f"sampler must be a BlockSampler, got {type(self.sampler).__name__}. "
                    "Try lowtucker.Partition(block_size)."
                )
            if self.block_size is not None or self.p is not None:
                raise ValueError("Give block_size and p to the sampler, not beside it.")
        else:
            checked = Partition(1 if self.block_size is None else self.block_size, self.p)
            object.__setattr__(self, "p", checked.p)

    def _make_sampler(self, problem: Problem, thresholding: Thresholding) -> BlockSampler:
        if self.sampler is not None:
            return self.sampler
        if self.block_size is not None:
            return Partition(self.block_size, self.p)
        rows = thresholding.block_size(problem.shape)
        return Partition(default_block_size(problem, rows), self.p)


@dataclass(frozen=True, repr=False, kw_only=True)
class StoTIHT(DrawnBlocks, IHT):
    r"""Stochastic tensor iterative hard thresholding, Algorithm 1.

    A step draws a block :math:`i` with probability :math:`p(i)`, equations (4.3) and (3.5):

    .. math::

        \tilde X^t &= X^t - \frac{\mu}{M p(i)} \nabla f_i(X^t) \\
        X^{t+1} &= H_r(\tilde X^t)

    Parameters
    ----------
    block_size : int, optional
        :math:`b`; chosen from m and the degrees of freedom unless given.
    step : float or "auto"
        :math:`\mu`, which multiplies the mean gradient (with its 1/b). With rows of variance 1 a
        good step is below 1. "auto" is an exact line search along the block's gradient,
        projected onto the space of the current factors, times a damping that falls whenever a
        step did harm, so that it cannot blow up. The published experiments use another
        convention: :math:`\mu_{paper} b` is the step here.
    p : None, "norms" or M numbers
        Probabilities of the blocks; see :class:`lowtucker.Partition`.
    sampler : BlockSampler, optional
        How blocks are drawn, in place of ``block_size`` and ``p``.
    trim : float, optional
        Share of a block's measurements that its step leaves out; see :class:`lowtucker.TIHT`.
    thresholding : Thresholding, or a class of them, optional
        :math:`H_r`; the truncated HOSVD at the rank of the call unless given.
        ``lowtucker.Sparse(s)`` makes it StoIHT, and so on for every format.
    schedule : GrowingRank, optional
        A rank that grows during the first epochs.

    Notes
    -----
    A step costs one pass over b rows (``step="auto"`` and ``trim`` one more each), and an HOSVD of
    the full tensor: :math:`O(N \sum n_k)` flops, a few N-vectors of memory. Nothing of the size of
    A.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
    >>> X_true = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)
    >>> result = lt.recover(A, A.forward(X_true), rank=(1, 2, 2), solver=StoTIHT(block_size=60))
    >>> result.success
    True
    """

    block_size: int | None = None
    step: float | Literal["auto"] = "auto"
    p: Any = None
    sampler: BlockSampler | None = None
    trim: float | None = None
    thresholding: Any = None
    schedule: GrowingRank | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        IHT.__post_init__(self)
        super().__post_init__()
        if isinstance(self.sampler, KaczmarzRows) and (
            self.step == "auto" or self.trim is not None
        ):
            raise ValueError(
                f"KaczmarzRows needs a fixed step and no trim, got step={self.step!r} and "
                f"trim={self.trim!r}. Try step=1.0 with blocks of all m rows (step N / b must be "
                "below 2), or TIHT(trim=0.05)."
            )


def default_block_size(problem: Problem, rows: int) -> int:
    """Choose b: blocks of equal size, about so many rows, at least two of them.

    On Gaussian problems of 1.2 to 16 measurements per degree of freedom (5x5x6 and 30x30x30)
    blocks of 1.5 to 2.5 degrees of freedom needed the fewest epochs, and one block alone failed
    most often.
    """
    return math.ceil(problem.m / max(2, round(problem.m / rows)))

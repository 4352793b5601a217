"""TIHT: iterative hard thresholding with all the measurements, equations (3.4) and (3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lowtucker.problem import Problem
from lowtucker.solvers.iht import IHT
from lowtucker.solvers.sampling import BlockSampler, Partition
from lowtucker.solvers.schedule import GrowingRank
from lowtucker.thresholding import Thresholding

__all__ = ["TIHT"]


@dataclass(frozen=True, repr=False, kw_only=True)
class TIHT(IHT):
    r"""Tensor iterative hard thresholding, equations (3.4) and (3.5).

    .. math::

        \tilde X^t &= X^t - \mu \nabla F(X^t) \\
        X^{t+1} &= H_r(\tilde X^t)

    It is :class:`lowtucker.StoTIHT` with one block, bit for bit.

    Parameters
    ----------
    step : float or "auto"
        :math:`\mu`, which multiplies the mean gradient (with its 1/m, as in Algorithm 1; (3.4)
        has none). "auto" is the normalised TIHT of the literature.
    trim : float, optional
        Share of the measurements that a step leaves out, between 0 and 1: those that fit worst at
        :math:`X^t`. The gradient is the mean over the others, and an automatic step is the line
        search for these. It helps if rows have heavy tails, such as outer products, or y outliers;
        residuals and stopping rules still cover all measurements. TrimTIHT of Suryanarayanan and
        Rebrova (arXiv:2502.02843) has ``step=1``, :class:`lowtucker.HOOI`, and leaves out 5 to 80
        measurements. None, the default, uses them all.
    thresholding : Thresholding, or a class of them, optional
        The truncated HOSVD at the rank of the call unless given. ``lowtucker.Sparse(s)`` makes it
        IHT, ``lowtucker.TensorTrain(rank)`` TIHT for tensor trains, and so on.
    schedule : GrowingRank, optional
        A rank that grows during the first epochs.

    Notes
    -----
    A step costs one pass over A and an HOSVD; ``step="auto"`` and ``trim`` one more pass each.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
    >>> X_true = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)
    >>> lt.recover(A, A.forward(X_true), rank=(1, 2, 2), solver=TIHT(step=0.5)).success
    True
    """

    step: float | Literal["auto"] = "auto"
    trim: float | None = None
    thresholding: Any = None
    schedule: GrowingRank | None = None

    def _make_sampler(self, problem: Problem, thresholding: Thresholding) -> BlockSampler:
        return Partition(problem.m)

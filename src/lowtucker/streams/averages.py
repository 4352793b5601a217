"""Many degrees of freedom: the measurements so far as one number, the mean information."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from lowtucker.problem import Problem
from lowtucker.recovery.accuracy import Accuracy
from lowtucker.solvers.models import ProductModel
from lowtucker.streams.recursion import Recent, Tally, contiguous, decay_of, pieces
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Averages"]

# Relative accuracy of a step
SOLVED = 1e-3


@dataclass(frozen=True, eq=False)
class Averages:
    r"""A tensor, and the mean eigenvalue :math:`\lambda` of the information behind it.

    A block moves X to the minimiser of
    :math:`\|y - A(X + \xi)\|_W^2 + \lambda \|\xi\|^2` over its tangent space, by LSMR.

    Notes
    -----
    Memory: O(dof), and the block. A block costs two passes over its rows for each of up to 200
    iterations. All directions count as equally well known: what rows tell of directions that others
    hardly see is averaged away, and the error is larger than that of
    :class:`~lowtucker.streams.recursion.Recursion` where rows are far from isotropic.
    """

    X: TuckerTensor
    information: float
    squares: float
    tally: Tally
    recent: Recent
    dof: int

    at_hand: ClassVar[bool] = True  # whether X costs no solve

    @classmethod
    def of(cls, problem: Problem, X: TuckerTensor) -> Averages:
        """Start from a fit to the measurements so far."""
        X = contiguous(X)
        seen = float(problem.measured_norm(X)) / (float(X.norm()) or 1.0)
        squares = float(problem.weighted_norm(problem.residual(X))) ** 2
        tally = Tally().plus(problem, 1.0)
        return cls(X, seen * seen, squares, tally, Recent(), X.degrees_of_freedom)

    def absorbed(self, problem: Problem, memory: float | None) -> Averages:
        """Tensor after one more block."""
        now = self
        for block in pieces(problem, self.dof):
            now = now._plus(block, memory)
        return now

    def _plus(self, problem: Problem, memory: float | None) -> Averages:
        decay = decay_of(problem.m, memory)
        model = ProductModel.at(problem, self.X)
        squares = float(problem.weighted_norm(model.residual)) ** 2
        if not math.isfinite(squares):
            raise ValueError(
                "the block makes numbers that are not finite: NaN in A, or numbers too large to "
                "square. Leave that row out, or rescale A and y."
            )
        ratio = float(model.scale) / self.information if self.information else 0.0
        known = decay * self.information
        total = known + float(model.scale)
        if not total:
            return self
        xi = replace(model, scale=total).step(known / total, SOLVED).xi
        return Averages(
            contiguous(model.T.retract(xi)),
            total,
            decay * self.squares + squares,
            self.tally.plus(problem, decay),
            self.recent.plus(problem, squares, self.dof, ratio),
            self.dof,
        )

    @property
    def residual(self) -> float:
        """Relative residual over all rows, each before it was used."""
        return math.sqrt(self.squares / self.tally.energy) if self.tally.energy else 0.0

    @property
    def sigma(self) -> float:
        """Standard deviation of a measurement of weight 1, a little too large."""
        spare = self.tally.spare(self.dof)
        return math.sqrt(self.squares / spare) if spare > 0 else 0.0

    @property
    def accuracy(self) -> Accuracy:
        """Error of X by noise, as if all directions were measured equally."""
        spare, size = self.tally.spare(self.dof), float(self.X.norm())
        if spare <= 0 or not size or not self.information:
            return Accuracy(0.0, math.inf, self.sigma, 1.0, 0, 1.0, math.nan)
        noise = self.sigma * math.sqrt(self.tally.share * self.dof / self.information) / size
        return Accuracy(0.0, noise, self.sigma, float(self.dof), int(spare), math.inf, math.nan)

"""Evidence: what checks look at, each piece computed once, when a check asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import to_numpy
from lowtucker._array.random import Seed, as_seed
from lowtucker.limits import AGAIN, AMPLIFIED, OUTLYING, PLENTY, UNEVEN
from lowtucker.problem import Problem
from lowtucker.recovery.accuracy import (
    COSTLY,
    Accuracy,
    accuracy_at,
    accuracy_of_block,
    accuracy_unexamined,
)
from lowtucker.recovery.precondition import Equivalent, isotropic_rows
from lowtucker.recovery.robust import MAD
from lowtucker.run.result import Result
from lowtucker.solvers.crew import Trace
from lowtucker.solvers.noise import Structure, structure
from lowtucker.status import Status
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Agreement", "Evidence", "Outliers"]

# Ends of starts as close as this are one and the same minimum
SAME = 1.01


class Agreement(NamedTuple):
    """How many starts ended, and how many of them at the lowest residual.

    ``confirmed`` says whether a fit to preconditioned measurements led there, too.
    """

    lowest: int
    starts: int
    confirmed: bool = False

    def found_again(self, share: float) -> bool:
        """Whether the lowest residual is no accident of a few starts."""
        often = self.lowest >= AGAIN and self.lowest >= share * self.starts
        return often or self.confirmed


class Outliers(NamedTuple):
    """How far the residuals are from normal ones.

    Attributes
    ----------
    excess : float
        Of their kurtosis over that of normal numbers, in standard deviations.
    far_out : int
        Residuals that are far out, by the median.
    share : float
        Their share of the sum of squares.
    """

    excess: float
    far_out: int
    share: float


@dataclass(frozen=True)
class Evidence:
    """What the measurements say of a result.

    Attributes
    ----------
    problem : Problem
        With the weights of the last fit.
    result : Result
    seed : int
    given : Problem or None
        With the weights that were given, where Huber's loss chose others.
    """

    problem: Problem
    result: Result
    seed: Seed
    given: Problem | None = None

    @classmethod
    def of(cls, problem: Problem, result: Result, seed: Seed) -> Evidence:
        """Evidence on a result of a problem, with the weights that a loss chose."""
        if result.weights is None:
            return cls(problem, result, seed)
        return cls(Problem(problem.A, problem.y, result.weights), result, seed, problem)

    @property
    def is_tucker(self) -> bool:
        """Whether X has a Tucker rank and a tangent space; other formats have neither."""
        return isinstance(self.result.X, TuckerTensor)

    @property
    def per_dof(self) -> float:
        """Measurements per degree of freedom, without multiples of others."""
        return self.different / self.result.degrees_of_freedom

    @cached_property
    def different(self) -> int:
        """Equations, without multiples of others.

        One pass, none for sampled entries and most matrices in memory. Where that takes a pass,
        rows that may be taken for independent ones are counted as they are if they are plenty.
        """
        problem = self.problem
        counting = slice(None) if problem.weights is None else to_numpy(problem.weights) > 0
        if problem.as_entries is not None:
            mask = None if problem.weights is None else counting
            found = problem.A.diagnose((1,) * len(problem.shape), mask)
            twice = sum(f.numbers["duplicates"] for f in found if f.kind == "duplicates")
            return int(problem.equations - twice)
        plenty = problem.equations >= PLENTY * self.result.degrees_of_freedom
        if plenty and problem.A.traits.isotropic and problem.A.row_heads(1) is None:
            return int(problem.equations)
        labels = problem.repeated_rows
        if labels is None:
            return int(problem.equations)
        parts = problem.equations // max(len(labels[counting]), 1)
        return int(parts * len(np.unique(labels[counting])))

    @property
    def few(self) -> bool:
        """Whether there are so few measurements that local minima are frequent."""
        return self.per_dof < PLENTY

    @property
    def uneven(self) -> bool:
        """Whether some rows, or directions of them, outweigh others: few of them count."""
        found, made = self.structure, self.equivalent
        plenty = PLENTY * self.result.degrees_of_freedom
        if made is not None:
            others = [f.numbers for f in self.result.findings if f.kind == "preconditioned"]
            better = any(n["distance"] == np.inf for n in others)  # there are local minima
            if made.effective < (1.0 if better else UNEVEN) * plenty:
                return True
        return found is not None and found.effective < UNEVEN * plenty

    @cached_property
    def cross_validated(self) -> float:
        r"""Relative residual to expect of held-out measurements: that of all, over 1 - dof/m.

        Generalised cross-validation; infinite where there are no more measurements than degrees of
        freedom. Of isotropic rows it bounds the error of X, be the residual noise or misfit: the
        larger one where rows can be made isotropic.
        """
        spare, residual = 1 - 1 / self.per_dof, float(self.result.residual)
        if self.equivalent is not None:
            other = self.equivalent.problem.relative_residual(self.result.X)
            residual = max(residual, float(other))
        return residual / spare if spare > 0 else np.inf

    @property
    def amplified(self) -> bool:
        """Whether some directions of X are hardly measured: no residual bounds its error."""
        return self.accuracy.noise > AMPLIFIED * self.cross_validated

    @cached_property
    def equivalent(self) -> Equivalent | None:
        """An equivalent problem, where rows are far from isotropic and can be made so."""
        return isotropic_rows(self.problem, as_seed(self.seed))

    @cached_property
    def residual(self) -> Any:
        """Residual y - A(X). One pass."""
        return self.problem.residual(self.result.X)

    @cached_property
    def accuracy(self) -> Accuracy:
        """Error to expect, by the linear model at X; see :mod:`~lowtucker.recovery.accuracy`."""
        if self.result.status is Status.CONVERGED:
            by_block = accuracy_of_block(self.problem, self.result)
            if by_block is not None and not self.few:
                return by_block
            if not self.few and not self._affordable:
                return accuracy_unexamined(self.result)
        return accuracy_at(self.problem, self.result, self.seed)

    @property
    def _affordable(self) -> bool:
        """Whether the tangent design is to be examined where measurements are plenty."""
        A, dof = self.problem.A, self.result.degrees_of_freedom
        return not A.traits.has_fast_tangent or self.problem.equations * dof**2 <= COSTLY

    @cached_property
    def structure(self) -> Structure | None:
        """How the residual differs from noise; see :func:`lowtucker.solvers.noise.structure`.

        Also that of isotropic rows, where rows are not: a few strong ones may hide a misfit.
        """
        found = structure(self.problem, self.residual, self.result.X)
        if self.equivalent is None or found is None:
            return found
        problem, X = self.equivalent.problem, self.result.X
        other = structure(problem, problem.residual(X), X)
        return found if other is None else Structure(*map(max, found, other))

    @cached_property
    def agreement(self) -> Agreement:
        """Where the starts of the last solver ended."""
        memory = None if self.result.state is None else self.result.state.memory
        ends = memory.ends if isinstance(memory, Trace) else ()
        lowest = SAME * min((float(self.result.residual), *ends))
        others = [f.numbers for f in self.result.findings if f.kind == "preconditioned"]
        near = max(self.accuracy.error, SAME - 1) if others else 0.0
        confirmed = any(n["residual"] <= lowest and n["distance"] <= near for n in others)
        return Agreement(sum(end <= lowest for end in ends), len(ends), confirmed)

    @cached_property
    def outliers(self) -> Outliers:
        """Outliers among the measurements, by the residuals.

        And by residuals over row norms, where these are at hand: rows of different norms differ in
        what a misfit leaves.
        """
        r = to_numpy(self.residual)
        counting: Any = slice(None)
        if self.problem.weights is not None:
            counting = to_numpy(self.problem.weights) > 0
        found = [_outliers(np.abs(r[counting]))]
        if self.problem.A.traits.has_fast_row_norms:
            norms = to_numpy(self.problem.A.row_norms())[counting]
            found.append(_outliers(np.abs(r[counting]) / np.where(norms > 0, norms, 1)))
        return min(found)


def _outliers(sizes: Any) -> Outliers:
    """Outliers among the absolute values of residuals."""
    squares = (sizes / (sizes.max(initial=0.0) or 1.0)) ** 2
    total = float(np.sum(squares))
    if not total:
        return Outliers(0.0, 0, 0.0)
    kurtosis = len(sizes) * float(np.sum(squares**2)) / total**2
    out = sizes > OUTLYING * MAD * np.median(sizes)
    share = float(np.sum(squares[out])) / total
    return Outliers((kurtosis - 3) / (24 / len(sizes)) ** 0.5, int(np.sum(out)), share)

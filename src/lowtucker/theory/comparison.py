"""Theorem 5.1 for a given problem and solver, and runs compared with its bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from lowtucker._array import as_number, to_numpy
from lowtucker._array.random import Seed
from lowtucker.operators import MeasurementOperator
from lowtucker.problem import Problem
from lowtucker.run.result import Result
from lowtucker.solvers import as_solver
from lowtucker.solvers.iht import IHT
from lowtucker.solvers.sampling import Shuffled
from lowtucker.tensor.products import norm
from lowtucker.tensor.rank import multilinear_rank
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.theory.isometry import Trip, block_norms, block_slices, trip, within
from lowtucker.theory.rates import Contraction, Source, Version, contraction
from lowtucker.thresholding import TuckerTruncation

__all__ = ["Comparison", "compare", "contraction_of"]

NumPyArray = np.ndarray[Any, Any]
Which = Literal["at_least", "sampled", "at_most"]


def contraction_of(
    problem: Problem,
    X_true: Any,
    solver: Any,
    rank: tuple[int, ...] | None = None,
    *,
    delta: Which | float | Trip = "at_least",
    version: Version = "repaired",
    seed: Seed = 0,
) -> Contraction:
    r"""Compute the constants of Theorem 5.1 for a problem and a solver.

    :math:`\delta_{3r}` from :func:`trip`, :math:`L_i` from the norms of the blocks, p, M and
    :math:`\mu` from the solver, :math:`\eta` from its thresholding, and the gradients
    :math:`\nabla f_i(X^*)` from the data.

    Parameters
    ----------
    problem : Problem
        A single problem without weights.
    X_true : TuckerTensor or array
        :math:`X^*`.
    solver : TIHT or StoTIHT
        With a fixed step (a number) and fixed blocks.
    rank : tuple of int, optional
        The rank r; by default that of the solver's thresholding, or of ``X_true``.
    delta : "at_least", "sampled", "at_most", a number, or a Trip of rank 3r
        Which bound on delta to use. With "at_least", kappa is a lower bound: a value of 1 or more
        means that the theorem guarantees nothing. With "at_most", kappa is a guarantee, which is
        possible only with more rows than entries.
    version : "repaired" or "paper"
    seed : int

    Returns
    -------
    Contraction
        Step and sigma are in the units of the problem. Delta, alpha and L are those of c A with
        the best c (``scale_squared`` is its square): scaling A only rescales the step.

    Notes
    -----
    Cost: that of :func:`trip` at rank 3r, plus one pass over A for the gradients.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((4, 4), m=4000, seed=1)
    >>> X_true = lt.random_tucker((4, 4), (1, 1), seed=0)
    >>> problem = lt.Problem(A, A.forward(X_true))
    >>> found = lt.theory.contraction_of(problem, X_true, lt.TIHT(step=1.0), delta="at_most")
    >>> found.contracts  # a guarantee, for 250 times as many measurements as entries
    True
    """
    solver = _checked(problem, X_true, solver, delta)
    if rank is None and (solver.thresholding is None or isinstance(solver.thresholding, type)):
        rank = X_true.rank if isinstance(X_true, TuckerTensor) else multilinear_rank(X_true, 1e-10)
    bound = solver.bind(problem, rank)
    sampler, tucker = bound.sampler, isinstance(bound.thresholding, TuckerTruncation)
    if not tucker and isinstance(delta, str | Trip):
        raise ValueError(
            f"delta must be a number for {bound.thresholding!r}: trip knows Tucker ranks only. "
            "Give the isometry constant of sums of three tensors of the format."
        )
    rank = tuple(bound.rank) if tucker else None
    if isinstance(sampler, Shuffled):
        raise ValueError(
            "The theorem assumes blocks drawn with replacement; Shuffled draws each once per "
            "epoch. Try lowtucker.Partition(block_size)."
        )
    rows = block_slices(sampler, problem.m)
    gradients = [to_numpy(problem.block(one).gradient(X_true)) for one in rows]
    found = _isometry(problem.A, delta, rank, rows, seed)
    scale_squared = found.scale_squared
    made = contraction(
        found.delta,
        solver.step / scale_squared,
        sampler.probabilities,
        len(rows),
        bound.thresholding.eta,
        version,
        scale_squared * found.norms,
        [scale_squared * one for one in gradients],
        rank=rank,
        block_sizes=_sizes(rows),
    )
    return replace(made, step=solver.step, source=found.source, scale_squared=scale_squared)


def _checked(problem: Any, X_true: Any, solver: Any, delta: Any) -> IHT:
    """Check the arguments, and return the solver."""
    if not isinstance(problem, Problem) or problem.batch_shape or problem.weights is not None:
        raise TypeError(
            "problem must be a single Problem without weights. Try lowtucker.Problem(A, y)."
        )
    automatic = isinstance(solver, str) and solver.lower() == "auto"
    solver = solver if automatic else as_solver(solver)
    if not isinstance(solver, IHT) or isinstance(solver.step, str) or solver.trim is not None:
        raise TypeError(
            "solver must be TIHT or StoTIHT with a step that is a number and without trim, got "
            f"{solver!r}: the theorem covers no others. "
            "Try lowtucker.StoTIHT(block_size=60, step=0.5)."
        )
    if tuple(X_true.shape) != problem.shape:
        raise ValueError(
            f"X_true must have the shape of the tensor, {problem.shape}, got {tuple(X_true.shape)}."
        )
    if isinstance(delta, str) and delta not in get_args(Which):
        raise ValueError(
            f'delta must be "at_least", "sampled", "at_most", a number or a Trip, got {delta!r}.'
        )
    return solver


class _Isometry(NamedTuple):
    """Delta of c A, the norms of the blocks of A, c^2, and the origin of delta."""

    delta: float
    norms: NumPyArray
    scale_squared: float
    source: Source


def _isometry(
    A: MeasurementOperator, delta: Any, rank: tuple[int, ...] | None, rows: list[slice], seed: Seed
) -> _Isometry:
    """Compute the requested delta at rank 3r, and the norms of the blocks."""
    if not isinstance(delta, str | Trip):
        return _Isometry(as_number(delta, "delta", 0), block_norms(A, rows), 1.0, "given")
    triple, sizes = tuple(3 * r for r in rank or ()), _sizes(rows)
    found = delta if isinstance(delta, Trip) else trip(A, triple, sizes[0], seed=seed)
    wanted = (A.shape, within(triple, A.shape), sizes)
    if (found.shape, found.rank, found.block_sizes) != wanted:
        raise ValueError(
            f"delta is a Trip of tensors {found.shape}, rank {found.rank}, blocks of "
            f"{found.block_sizes} rows; the theorem needs {wanted[0]}, rank {wanted[1]}, "
            f"which is 3r, and blocks of {sizes}. Try trip(A, {triple}, {sizes[0]})."
        )
    which: Any = "at_least" if isinstance(delta, Trip) else delta
    scale_squared, chosen = _delta(found, which)
    return _Isometry(chosen, found.block_norms, scale_squared, which.replace("_", " "))


def _sizes(rows: list[slice]) -> tuple[int, ...]:
    return tuple(one.stop - one.start for one in rows)


def _delta(found: Trip, which: Which) -> tuple[float, float]:
    """Return the square of the scale, and the requested delta at this scale."""
    if which == "at_least":
        return found.scaled[:2]
    if which == "sampled":
        return 1 / found.usual, min(1.0, found.scaled.delta_sampled)
    low, high = found.floor, float(found.block_norms.max())
    return 2 / (low + high), (high - low) / (high + low)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """A run compared with the bound of Theorem 5.1.

    Attributes
    ----------
    epoch : array
    measured : array
        Relative error if the run was given ``X_true``, otherwise the residual; for a batch of
        problems their mean, since the theorem bounds the expectation.
    what : "error" or "residual"
    rate : float
        Factor per epoch, fitted to the logarithm of ``measured`` up to where it flattens.
    fitted : array, shape (rows, 2)
        Epochs, and the fitted line.
    steps_per_epoch : int
    bound : array or None
        Bound of the theorem on the relative error, at every epoch.
    contraction : Contraction or None
    """

    epoch: NumPyArray
    measured: NumPyArray
    what: str
    rate: float
    fitted: NumPyArray
    steps_per_epoch: int
    bound: NumPyArray | None
    contraction: Contraction | None

    @property
    def rate_per_iteration(self) -> float:
        """Factor per iteration, which is what kappa bounds."""
        return float(self.rate ** (1 / self.steps_per_epoch))

    def __str__(self) -> str:
        lines = [
            f"measured: the {self.what} is multiplied by {self.rate:.4g} per epoch, "
            f"{self.rate_per_iteration:.4g} per iteration"
        ]
        if self.contraction is not None:
            kappa, name = self.contraction.kappa, self.contraction.version
            guarantee = "" if kappa < 1 else ": no guarantee"
            lines.append(f"theorem ({name}): kappa = {kappa:.4g} per iteration{guarantee}")
        return "\n".join(lines)

    __repr__ = __str__

    def plot(self, ax: Any = None) -> Any:
        """Plot the measured values, the fitted rate and the bound; return the Matplotlib axes."""
        from lowtucker._plotting import new_axes

        ax = new_axes() if ax is None else ax
        ax.semilogy(self.epoch, np.maximum(self.measured, 1e-17), label=f"measured {self.what}")
        line = self.fitted[:, 1] > self.measured.min() / 10
        ax.semilogy(*self.fitted[line].T, "--", label=f"fitted: {self.rate:.3g} per epoch")
        low, high = ax.get_ylim()
        if self.bound is not None and self.contraction is not None:
            label = f"bound, {self.contraction.version}: kappa = {self.contraction.kappa:.3g}"
            top = 1e3 * max(1.0, float(np.nanmax(self.measured)))
            shown = np.isfinite(self.bound) & (self.bound <= top)
            ax.semilogy(self.epoch[shown], self.bound[shown], ":", label=label)
            high = max(high, min(top, float(self.bound[shown].max(initial=high))))
        ax.set_ylim(low, high)
        ax.set_xlabel("epoch")
        ax.set_ylabel(f"relative {self.what}")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.legend()
        return ax


def compare(
    result: Result, contraction: Contraction | None = None, *, X_true: Any = None
) -> Comparison:
    r"""Compare the measured decrease of a run with its fitted linear rate and the bound.

    Parameters
    ----------
    result : Result
        Result of a run with ``X_true`` to compare errors; otherwise residuals are compared.
    contraction : Contraction, optional
        Result of :func:`contraction_of`. Adds its bound, starting from the error of the start.
    X_true : TuckerTensor or array, optional
        Its norm makes sigma, which is absolute, relative; by default that of ``result.X``.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((4, 4), m=4000, seed=1)
    >>> X_true = lt.random_tucker((4, 4), (1, 1), seed=0)
    >>> problem, solver = lt.Problem(A, A.forward(X_true)), lt.TIHT(step=0.9)
    >>> result = lt.solve(problem, solver, (1, 1), X_true=X_true)
    >>> bound = lt.theory.contraction_of(problem, X_true, solver, delta="at_most")
    >>> seen = lt.theory.compare(result, bound)
    >>> seen.rate < bound.kappa < 1
    True
    >>> bool((seen.measured <= seen.bound).all())
    True
    >>> axes = seen.plot()  # axes.figure.savefig("theory.png")
    """
    if not isinstance(result, Result):
        raise TypeError(f"result must be a Result, got {type(result).__name__}.")
    what = "error" if "error" in result.history else "residual"
    values = result.history[what]
    if contraction is not None and what == "residual":
        raise ValueError(
            "The theorem bounds the error, which this run did not record: give X_true to recover "
            "or solve, or leave out contraction to compare residuals."
        )
    measured = values.mean(axis=1) if values.ndim > 1 else np.array(values)
    epoch = np.array(result.history.epoch)
    steps = 1 if contraction is None else contraction.n_blocks
    if result.state is not None and np.max(result.epochs) > 0:
        steps = max(1, round(result.state.t / int(np.max(result.epochs))))
    rate, fitted = _rate(epoch, measured)
    bound = None
    if contraction is not None:
        truth = result.X if X_true is None else X_true
        length = float(np.mean(to_numpy(truth.norm() if isinstance(truth, TuckerTensor) else
                                        norm(truth))))  # fmt: skip
        relative = replace(contraction, sigma=contraction.sigma / (length or 1.0))
        bound = relative.error_bound(steps * epoch, float(measured[0]))
    return Comparison(epoch, measured, what, rate, fitted, steps, bound, contraction)


def _rate(epoch: NumPyArray, measured: NumPyArray) -> tuple[float, NumPyArray]:
    """Fit the factor per epoch by least squares on the logarithm, up to where it flattens."""
    good = np.isfinite(measured) & (measured > 0)
    if good.sum() < 2:
        return float("nan"), np.empty((0, 2))
    x, y = epoch[good], np.log(measured[good])
    flat = int(np.argmax(y <= y.min() + np.log(3)))  # the first value near the minimum
    stop = max(2, flat + 1)
    slope, start = np.polyfit(x[:stop], y[:stop], 1)
    return float(np.exp(slope)), np.column_stack([x, np.exp(start + slope * x)])

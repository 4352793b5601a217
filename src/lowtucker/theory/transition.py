"""Phase transitions: how many measurements recovery needs, measured on random tensors."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtucker._array import as_integer, as_number, as_shape, as_tuple, size
from lowtucker.operators import MeasurementOperator
from lowtucker.simulation.base import Columns
from lowtucker.solvers import as_solver
from lowtucker.tensor.random import MOST_TRIALS
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom
from lowtucker.theory.trials import (
    OPERATORS,
    RandomRecoveries,
    Report,
    Simulation,
    as_operator_name,
    check_noise,
    describe_operator,
    per_dof,
)

__all__ = ["PhaseTransition", "check_rate", "phase_transition", "wilson"]

NumPyArray = np.ndarray[Any, Any]

# Operators with at most as many rows as the tensor has entries
LIMITED = ("entries", "dct")
# Default numbers of measurements per degree of freedom
RATIOS = (1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)
# Quantile of the normal distribution for 95 % intervals
Z95 = 1.959963984540054


def wilson(recovered: Any, trials: Any) -> tuple[NumPyArray, NumPyArray]:
    r"""Wilson score interval of a proportion, at a confidence of 95 %.

    .. math:: \frac{1}{1 + z^2/n} \Big( \hat p + \frac{z^2}{2n}
        \pm z \sqrt{\frac{\hat p (1 - \hat p)}{n} + \frac{z^2}{4 n^2}} \Big)

    Examples
    --------
    >>> low, high = wilson(19, 20)
    >>> print(f"{low:.3f} {high:.3f}")
    0.764 0.991
    """
    n = np.asarray(trials, dtype=float)
    p = np.asarray(recovered) / n
    centre = p + Z95**2 / (2 * n)
    half = Z95 * np.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2))
    scale = 1 + Z95**2 / n
    return np.clip((centre - half) / scale, 0, 1), np.clip((centre + half) / scale, 0, 1)


@dataclass(frozen=True, eq=False)
class PhaseTransition:
    """Recovery rate of random tensors for several numbers of measurements.

    Attributes
    ----------
    shape, rank : tuple of int
    dof : int
        Degrees of freedom.
    m : array of int
        Numbers of measurements, in increasing order.
    trials, recovered : arrays of int
        Number of trials at each m, and of recovered tensors among them.
    error, passes : arrays of float
        Medians over the trials of the relative error and of the number of passes over A.
    called_success : array of int
        Number of recovered tensors with ``result.success``, which does not use the true tensor.
    """

    shape: tuple[int, ...]
    rank: tuple[int, ...]
    dof: int
    m: NumPyArray
    trials: NumPyArray
    recovered: NumPyArray
    error: NumPyArray
    passes: NumPyArray
    called_success: NumPyArray

    @classmethod
    def of(cls, experiment: RandomRecoveries, columns: Mapping[int, Columns]) -> PhaseTransition:
        """Summarise the trials of an experiment, given for each m."""
        m = sorted(columns)
        trials = [columns[k] for k in m]
        recovered = [experiment.recovered(c["error"]) for c in trials]
        return cls(
            experiment.shape,
            experiment.rank,
            degrees_of_freedom(experiment.shape, experiment.rank),
            np.array(m),
            np.array([len(c["error"]) for c in trials]),
            np.array([r.sum() for r in recovered]),
            np.array([np.median(c["error"]) for c in trials]),
            np.array([np.median(c["passes"]) for c in trials]),
            np.array(
                [(r & (c["success"] > 0)).sum() for r, c in zip(recovered, trials, strict=True)]
            ),
        )

    @property
    def rate(self) -> NumPyArray:
        """Observed recovery rate for each m."""
        return np.asarray(self.recovered / self.trials)

    @property
    def interval(self) -> NumPyArray:
        """95 % Wilson score intervals of the rate, shape (levels, 2)."""
        return np.stack(wilson(self.recovered, self.trials), axis=1)

    def suggest(self, rate: float = 0.95) -> int | None:
        """Return the smallest m such that it and every larger one reach the rate.

        Compares the observed rate; :attr:`interval` quantifies its uncertainty. Returns None if
        the largest m does not reach the rate.
        """
        reached = self.rate >= check_rate(rate) - 1e-12
        below = np.flatnonzero(~reached)
        first = below[-1] + 1 if len(below) else 0
        return int(self.m[first]) if first < len(self.m) else None

    def rows(self) -> list[dict[str, Any]]:
        """Return the table as a list of rows, for ``csv.DictWriter`` or ``pandas.DataFrame``."""
        columns = {
            "m": self.m,
            "m_over_dof": self.m / self.dof,
            "trials": self.trials,
            "recovered": self.recovered,
            "rate": self.rate,
            "rate_low": self.interval[:, 0],
            "rate_high": self.interval[:, 1],
            "median_error": self.error,
            "median_passes": self.passes,
            "called_success": self.called_success,
        }
        return [{name: x[i].item() for name, x in columns.items()} for i in range(len(self.m))]

    def plot(self, ax: Any = None) -> Any:
        """Plot the rate against m / dof with its intervals, and return the Matplotlib axes."""
        from lowtucker._plotting import new_axes

        ax = new_axes() if ax is None else ax
        bars = np.abs(self.interval.T - self.rate)
        ax.errorbar(self.m / self.dof, self.rate, yerr=bars, fmt="o-", markersize=4, capsize=3)
        ax.set_xlabel(f"measurements per degree of freedom, m / {self.dof}")
        ax.set_ylabel("share recovered")
        ax.set_ylim(-0.03, 1.03)
        ax.grid(alpha=0.3)
        return ax

    def __repr__(self) -> str:
        head = f"PhaseTransition: shape {self.shape}, rank {self.rank}, dof {self.dof}"
        lines = ["       m   m/dof   recovered   rate (95 %)      error    passes"]
        for row in self.rows():
            count = f"{row['recovered']}/{row['trials']}"
            span = f"({row['rate_low']:.2f}-{row['rate_high']:.2f})"
            lines.append(
                f"{row['m']:8d} {row['m_over_dof']:7.2f}   {count:>9}   {row['rate']:4.2f} {span} "
                f"{row['median_error']:8.1e} {row['median_passes']:9.1f}"
            )
        return "\n".join([head, *lines])


def phase_transition(
    operator: Any,
    shape: tuple[int, ...],
    rank: tuple[int, ...],
    *,
    measurements: Sequence[int] | None = None,
    trials: int = 20,
    solver: Any = "auto",
    noise: float = 0.0,
    tol: float = 1e-5,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    workers: int = 1,
    progress: Report | bool | None = None,
) -> PhaseTransition:
    """Estimate the recovery rate of random tensors for several numbers of measurements.

    Parameters
    ----------
    operator : "gaussian", "rank-one", "entries", "dct", callable, or MeasurementOperator
        A callable ``(m, seed) -> MeasurementOperator`` creates a new operator for every trial.
        ``seed`` is an integer below 2**31; one extra call with seed 0 for each m identifies the
        callable in ``folder``. From a MeasurementOperator, m rows are drawn at random for every
        trial.
    shape, rank : tuple of int
    measurements : sequence of int, optional
        Numbers m to try. By default 1.1 to 8 times the degrees of freedom, limited by the number
        of entries ("entries", "dct") or rows.
    trials : int
        Number of trials for each m. Trial k = 0, 1, ... recovers
        ``random_tucker(shape, rank, seed=(seed, k))``.
    solver : str or Solver
        As in :func:`lowtucker.recover`, limited to 500 epochs.
    noise : float
        Standard deviation of the noise, relative to the root mean square of A(X_true). Passed to
        the solver.
    tol : float
        A tensor counts as recovered if the relative error is at most ``max(tol, noise)``. The
        solver stops at a relative residual of ``tol / 10``.
    seed : int
    folder : path, optional
        Where to store the trials. Stored trials are reused, more trials add to them, and an
        interrupt loses no finished batch. Trials are stored separately for each operator, rank,
        solver, seed, other setting, and version of the package.
    workers : int
        Number of processes. The operator is sent to them with every batch, so it must be
        picklable.
    progress : callable or bool, optional
        Called as ``progress(done, total, text)`` for every trial; True shows a progress bar.

    Notes
    -----
    Up to 50 trials of the same m run as one batch, if there is no noise and tensors are small (a
    matrix of up to 10^6 numbers; for "rank-one", "entries" and "dct" up to 30000 entries). For 150
    and for 1000 entries, 20 trials then take a half of the time of single ones where most need
    several starts, and a fifth where none does. Each trial gives the error of a single one, to
    rounding; its number of passes may be larger by one, as the trials of a batch end with an epoch,
    or by some where several trials begin a start in the same epoch.

    Failing trials take the longest: "auto" tries up to 100 starts. Memory: about 256 MB for each
    worker, or one operator.

    Examples
    --------
    >>> found = phase_transition("gaussian", (5, 5, 6), (1, 2, 2), measurements=[20, 66], trials=5)
    >>> found.rate, found.suggest()
    (array([0., 1.]), 66)
    """
    shape = as_shape(shape)
    rank = attainable_rank(check_rank(rank, shape))
    _check_operator(operator, shape)
    wanted = _levels(measurements, operator, shape, rank)
    trials = as_integer(trials, "trials", high=MOST_TRIALS)
    noise, tol = check_noise(noise), _check_tol(tol)
    blank = RandomRecoveries(operator, (), shape, rank, _check_solver(solver), noise, tol)
    settings = {"seed": seed, "folder": folder, "workers": workers, "progress": progress}
    with Simulation.opened(**settings) as simulation:
        experiment = blank.at(wanted)
        columns = simulation.run(experiment, trials)
    return PhaseTransition.of(experiment, columns)


def check_rate(rate: Any) -> float:
    """Check a recovery rate: above 0, at most 1."""
    number = as_number(rate, "rate", positive=True)
    if number > 1:
        raise ValueError(f"rate must be at most 1, got {number:g}. Write 95 % as rate=0.95.")
    return number


def _check_tol(tol: Any) -> float:
    number = as_number(tol, "tol", positive=True)
    if number >= 1:
        raise ValueError(f"tol must be below 1, the error of X = 0, got {number:g}. Try tol=1e-5.")
    return number


def _check_operator(operator: Any, shape: tuple[int, ...]) -> None:
    if isinstance(operator, str):
        as_operator_name(operator)
    elif isinstance(operator, MeasurementOperator):
        if operator.shape != shape or operator.batch_shape:
            raise ValueError(
                f"operator must measure single tensors of shape {shape}, got {operator!r}."
            )
    elif not callable(operator) or isinstance(operator, type):
        raise TypeError(
            f"operator must be one of {', '.join(OPERATORS)}, a callable (m, seed), or a "
            f"MeasurementOperator, got {describe_operator(operator)}. "
            "Try lowtucker.as_operator(A, shape)."
        )


def _levels(
    measurements: Any, operator: Any, shape: tuple[int, ...], rank: tuple[int, ...]
) -> list[int]:
    """Return the numbers of measurements: as given, or multiples of dof up to the limit."""
    whole = isinstance(operator, MeasurementOperator)
    limited = isinstance(operator, str) and operator in LIMITED
    most = size(shape) if limited else operator.m if whole else None
    dof = degrees_of_freedom(shape, rank)
    if measurements is not None:
        given = as_tuple(measurements)
        if not given:
            raise ValueError(
                f"measurements must be a sequence of integers, got {measurements!r:.80}. "
                f"Try measurements=[{2 * dof}, {4 * dof}]."
            )
        return sorted({as_integer(m, "measurements", 1, most) for m in given})
    if most is not None and most < dof:
        raise ValueError(
            f"operator has {most} rows, fewer than the {dof} degrees of freedom of rank {rank}: no "
            "tensor can be recovered. Use an operator with more rows, or a smaller rank."
        )
    wanted = (per_dof(x, dof) for x in RATIOS)
    return sorted({m if most is None else min(m, most) for m in wanted})


def _check_solver(solver: Any) -> Any:
    """Resolve a solver to its settings, which identify stored trials; keep "auto"."""
    if isinstance(solver, list | tuple) and solver:
        return tuple(map(as_solver, solver))
    automatic = isinstance(solver, str) and solver.lower() == "auto"
    return "auto" if automatic else as_solver(solver)

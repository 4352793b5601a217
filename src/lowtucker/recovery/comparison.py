"""Which format fits? Candidates compared by what they predict of held-out measurements."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lowtucker._array import as_number, as_time, size
from lowtucker._array.clock import Clock
from lowtucker._array.errors import UnderdeterminedWarning
from lowtucker._array.random import Seed
from lowtucker.operators import as_operator
from lowtucker.operators.matrix import Order
from lowtucker.problem import Problem
from lowtucker.recovery.completion import held_samples
from lowtucker.recovery.entry import recover
from lowtucker.recovery.fit import Fit
from lowtucker.recovery.hard import rank_given_or_searched
from lowtucker.recovery.holdout import Candidate, Holdout
from lowtucker.run.progress import Callback
from lowtucker.run.result import Result
from lowtucker.solvers import Solver
from lowtucker.solvers.iht import Thresholded
from lowtucker.solvers.manifold import Manifold
from lowtucker.status import Status
from lowtucker.tensor.rank import check_rank, per_mode
from lowtucker.thresholding import (
    HierarchicalTucker,
    Sparse,
    TensorTrain,
    Thresholding,
    Tubal,
)

__all__ = ["Compared", "FormatComparison", "compare"]

# Measurements per degree of freedom of the formats that are tried where none are given
PER_DOF = (8, 3)
# Measurements that are held out at least, where there are enough
LEAST = 10
# Standard errors by which a candidate must be worse to be no tie
CLEARLY = 2.0


@dataclass(frozen=True, eq=False)
class Compared:
    """A candidate with its fit to most of the measurements.

    Attributes
    ----------
    name : str
    candidate : Thresholding, tuple of int, "auto", Solver or None
        What to give to :func:`lowtucker.recover` in place of a rank (a solver as ``solver``).
    held_out : float
        Relative residual on the held-out measurements; 1 is that of zero.
    standard_error : float
        Of ``held_out``, by the spread of the squared residuals.
    degrees_of_freedom : int
    result : Result
        The fit.
    tie : bool
        Whether it is not clearly worse than the best: by two standard errors of the difference, or
        twice the sum of both standard errors; fits that both converged to ``tol`` are ties.
    """

    name: str
    candidate: Any
    held_out: float
    standard_error: float
    degrees_of_freedom: int
    result: Result
    tie: bool


@dataclass(frozen=True, eq=False, repr=False)
class FormatComparison:
    """Candidates in the order of their held-out errors: what :func:`compare` returns.

    Attributes
    ----------
    rows : tuple of Compared
        The best first.
    fitted, held : int
        The number of fitted and of held-out measurements.
    """

    rows: tuple[Compared, ...]
    fitted: int
    held: int

    @property
    def best(self) -> Compared:
        """The candidate that predicts the held-out measurements best."""
        return self.rows[0]

    @property
    def ties(self) -> tuple[Compared, ...]:
        """Candidates that are not clearly worse than the best, which is one of them."""
        return tuple(row for row in self.rows if row.tie)

    def plot(self, ax: Any = None) -> Any:
        """Draw the held-out errors with their standard errors, and return the Matplotlib axes.

        Candidates that are clearly worse than the best are grey.
        """
        from lowtucker._plotting import new_figure

        if ax is None:
            ax = new_figure(width=7.0, height=1.2 + 0.4 * len(self.rows))[1]
        rows = self.rows[::-1]
        values = [row.held_out for row in rows]
        for row in rows:
            colour = "C0" if row.tie else "0.6"
            ax.errorbar(
                row.held_out, row.name, xerr=row.standard_error, fmt="o", color=colour, capsize=3
            )
        ax.grid(axis="y", alpha=0.3)
        if min(values) > 0 and max(values) > 20 * min(values):
            ax.set_xscale("log")
        ax.set_xlabel(f"relative error on {self.held} held-out measurements")
        return ax

    def _table(self) -> tuple[list[str], list[list[str]]]:
        head = ["format", "held out", "+-", "dof", "per dof", "status"]
        body = [
            [
                row.name + (" *" if row.tie else ""),
                f"{row.held_out:.2g}",
                f"{row.standard_error:.1g}",
                str(row.degrees_of_freedom),
                f"{self.fitted / row.degrees_of_freedom:.1f}",
                row.result.status.name,
            ]
            for row in self.rows
        ]
        return head, body

    def __repr__(self) -> str:
        head, body = self._table()
        widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
        lines = [
            "  ".join(
                text.ljust(width) if k in (0, 5) else text.rjust(width)
                for k, (text, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in (head, *body)
        ]
        about = f"{self.fitted} measurements fitted, {self.held} held out; * not clearly worse"
        return "\n".join([f"FormatComparison: {about}", *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        from html import escape

        head, body = self._table()
        cells = "".join(f"<th>{escape(text)}</th>" for text in head)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in line) + "</tr>" for line in body
        )
        about = f"{self.fitted} measurements fitted, {self.held} held out; * not clearly worse"
        return f"<div><table><tr>{cells}</tr>{rows}</table><small>{about}</small></div>"


def compare(
    A: Any,
    y: Any,
    candidates: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    shape: tuple[int, ...] | None = None,
    order: Order = "C",
    weights: Any = None,
    held_out: float = 0.1,
    tol: float = 1e-6,
    max_epochs: int = 500,
    max_seconds: float | None = None,
    loss: Literal["squared", "huber"] = "squared",
    seed: Seed = 0,
    callbacks: Sequence[Callback] = (),
) -> FormatComparison:
    r"""Compare formats by the error of their predictions of held-out measurements.

    Every candidate is fitted to the same measurements by :func:`lowtucker.recover`, and predicts
    the others:

    .. math:: \|y_{held} - A_{held}(X)\| / \|y_{held}\|

    Parameters
    ----------
    A : MeasurementOperator, array, SciPy sparse matrix, SciPy or PyLops linear operator
        As in :func:`lowtucker.recover`; ``lowtucker.entries(shape, indices)`` for known entries.
    y : array, shape (m,)
    candidates : list, or dict with names, optional
        Thresholdings such as ``lowtucker.TensorTrain((2, 2))``, Tucker ranks, "auto" for a search
        of the Tucker rank, None for shrinkage (and a rank where the spectra show one), or solvers.
        By default shrinkage, "auto", and tensor trains, trees, tubal and sparse tensors of about 8
        and 3 measurements per degree of freedom.
    shape, order, weights, tol, max_epochs, loss, callbacks
        As in :func:`lowtucker.recover`.
    held_out : float
        Share of the measurements that no candidate sees; at least 10 of them, or a quarter.
    max_seconds : float, optional
        Limit on the wall time of the whole call, in equal parts for the candidates.
    seed : int

    Returns
    -------
    FormatComparison
        ``.best.candidate`` is what to give to :func:`lowtucker.recover` with all measurements;
        ``print`` shows a table, ``.plot()`` a picture.

    Notes
    -----
    Cost: one fit for each candidate. Ctrl-C returns the candidates that were finished.

    Examples
    --------
    >>> import lowtucker as lt
    >>> X = lt.random_tensor(lt.Sparse(8), (6, 6, 6), seed=0)
    >>> A = lt.gaussian((6, 6, 6), m=80, seed=1)
    >>> found = lt.compare(A, A.forward(X), [(2, 2, 2), lt.TensorTrain((2, 2)), lt.Sparse(8)])
    >>> found.best.name, found.best.held_out < 1e-4
    ('Sparse(rank=8)', True)
    """
    problem = Problem(as_operator(A, shape, order=order), y, weights)
    if problem.batch_shape:
        raise ValueError(
            f"compare takes one problem, got a batch of {problem.batch_shape}. Try one of them: "
            "A.trial(0), y[0]."
        )
    share = as_number(held_out, "held_out", positive=True)
    if share >= 1:
        raise ValueError(
            f"held_out is a share of the measurements, below 1, got {share:g}. Try 0.1."
        )
    named = _named(candidates, problem)
    share = max(share, min(LEAST / problem.m, 0.25))
    parts = _split(problem, share, seed)
    limit = math.inf if max_seconds is None else as_time(max_seconds, "max_seconds")
    clock = Clock(None if limit == math.inf else limit)
    fit = Fit("auto", tol, max_epochs, max_seconds, None, None, seed, callbacks, loss)
    settings: dict[str, Any] = {
        "tol": tol, "max_epochs": max_epochs, "loss": loss, "seed": seed, "callbacks": callbacks,
        "weights": parts.train.weights,
    }  # fmt: skip
    fits: list[tuple[str, Any, Result, Candidate]] = []
    for k, (name, candidate) in enumerate(named.items()):
        left = clock.left()
        seconds = None if left is None else max(1e-3, left / (len(named) - k))
        result = _fitted(parts.train, candidate, settings | {"max_seconds": seconds})
        fits.append((name, candidate, result, parts.score(result.X, fit)))
        if result.status is Status.INTERRUPTED:
            break
    return _ranked(fits, parts)


def _fitted(train: Problem, candidate: Any, settings: dict[str, Any]) -> Result:
    is_solver = isinstance(candidate, Solver)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnderdeterminedWarning)  # the status says it
        return recover(
            train.A, train.y, None if is_solver else candidate,
            solver=candidate if is_solver else "auto", **settings,
        )  # fmt: skip


def _split(problem: Problem, share: float, seed: Seed) -> Holdout:
    """Measurements to fit, and those to predict."""
    parts: Holdout | None
    if problem.A.entry_samples() is not None and problem.weights is None:
        held = held_samples(problem.A, (1,) * len(problem.shape), share, seed)
        parts = Holdout.by_rows(problem, held) if held.any() else None
    else:
        parts = Holdout.draw(problem, share, seed)
    if parts is None:
        raise ValueError(
            f"{problem.m} measurements are too few to hold any out and compare. Give more, or a "
            "larger share held_out."
        )
    return parts


def _ranked(fits: Sequence[tuple[str, Any, Result, Candidate]], parts: Holdout) -> FormatComparison:
    """Order by the held-out error, and mark what is not clearly worse than the best."""
    fits = sorted(fits, key=lambda one: one[3].score if math.isfinite(one[3].score) else math.inf)
    _, _, first, best = fits[0]

    def is_tie(result: Result, scored: Candidate) -> bool:
        if scored is best or first.status is result.status is Status.CONVERGED:
            return True  # what differs is a matter of tol
        # a few large losses make a difference uncertain, but not the errors themselves
        apart = scored.score - best.score
        spread = _standard_error(scored) + _standard_error(best)
        return scored.worse_by(best) <= CLEARLY and apart <= CLEARLY * spread

    rows = tuple(
        Compared(
            name,
            candidate,
            scored.score,
            _standard_error(scored),
            result.degrees_of_freedom,
            result,
            is_tie(result, scored),
        )
        for name, candidate, result, scored in fits
    )
    return FormatComparison(rows, int(parts.train.equations), int(parts.held.equations))


def _standard_error(scored: Candidate) -> float:
    """Of a score, the root of a mean: by the spread of the losses."""
    losses = scored.losses
    mean = float(np.mean(losses))
    spread = float(np.std(losses)) / len(losses) ** 0.5
    return scored.score * spread / (2 * mean) if mean else 0.0


def _named(candidates: Any, problem: Problem) -> dict[str, Any]:
    """Candidates by name, each checked before any is fitted."""
    if candidates is None:
        candidates = default_candidates(problem.shape, int(problem.equations))
    if isinstance(candidates, Mapping):
        named = {str(name): one for name, one in candidates.items()}
    elif isinstance(candidates, list | tuple):
        named = {}
        for one in candidates:
            name = _name(per_mode(one, problem.shape))
            copies = sum(other.split(" (again")[0] == name for other in named)
            named[f"{name} (again {copies})" if copies else name] = one
    else:
        raise TypeError(
            f"candidates must be a list, or a dict with names, got {candidates!r:.80}. Try "
            "[None, (2, 2, 2), lowtucker.TensorTrain((2, 2))]."
        )
    if not named:
        raise ValueError("candidates must have one entry at least, got none. Try [None, 'auto'].")
    return {name: _checked(one, problem.shape) for name, one in named.items()}


def _checked(candidate: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(candidate, Thresholding) and not isinstance(candidate, type):
        return candidate.for_shape(shape)
    if isinstance(candidate, type):
        raise TypeError(
            f"candidates must be ranks, thresholdings or solvers, got the class "
            f"{candidate.__name__}. Try lowtucker.{candidate.__name__}(3)."
        )
    if isinstance(candidate, Solver):
        needs = isinstance(candidate, Thresholded | Manifold)
        if needs and not isinstance(getattr(candidate, "thresholding", None), Thresholding):
            raise ValueError(
                f"{candidate!r} needs a rank, which compare cannot give it. Try the rank itself, "
                "or lowtucker.TIHT(thresholding=...)."
            )
        return candidate
    if candidate is None:
        return None
    given, search = rank_given_or_searched(per_mode(candidate, shape))
    return candidate if search is not None else check_rank(given, shape, warn=False)


def _name(candidate: Any) -> str:
    if candidate is None:
        return "shrinkage"
    if isinstance(candidate, str):
        return "Tucker, rank searched"
    return f"Tucker rank {candidate}" if isinstance(candidate, tuple | list) else repr(candidate)


def default_candidates(shape: tuple[int, ...], m: int) -> dict[str, Any]:
    """Shrinkage, a search of the Tucker rank, and formats of two numbers of degrees of freedom."""
    d = len(shape)
    formats: list[Callable[[int], Any]] = [Sparse]
    formats += [TensorTrain] if d > 2 else []
    formats += [Tubal] if d == 3 else []
    formats += [HierarchicalTucker] if d > 3 else []
    made: dict[str, Any] = {"shrinkage": None}
    made |= {"Tucker, rank searched": "auto"} if d > 1 else {}
    for of_rank in formats:
        for per_dof in PER_DOF:
            largest = _largest(of_rank, shape, m / per_dof)
            made |= {} if largest is None else {_name(largest): largest}
    return made


def _largest(of_rank: Callable[[int], Any], shape: tuple[int, ...], most: float) -> Any:
    """Format of the largest rank with at most so many degrees of freedom; None where there is none.

    By doubling, then by halves: the number grows with the rank.
    """
    low, high = 0, 1

    def fits(rank: int) -> bool:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                made = of_rank(rank).for_shape(shape)
                return bool(made.degrees_of_freedom(shape) <= most)
        except (ValueError, Warning):  # no tensor of the shape has that rank
            return False

    while high <= size(shape) and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return of_rank(low) if low else None

"""Base classes of experiments and figures.

An :class:`Experiment` is a frozen record of settings. It consists of cells, each a small frozen
record; a cell is computed for a range of trials, on any worker, and yields columns of numbers
whose first axis indexes the trials. A :class:`Figure` makes a table and a plot of the columns.
Neither depends on where the columns are stored (:mod:`lowtucker.simulation.store`) or which
worker computes them (:mod:`lowtucker.simulation.runner`).
"""

from __future__ import annotations

import hashlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lowtucker._array.errors import RankWarning, UnderdeterminedWarning
from lowtucker._version import __version__
from lowtucker.operators import gaussian
from lowtucker.problem import Problem
from lowtucker.tensor import random_tucker

__all__ = [
    "Columns",
    "Experiment",
    "Figure",
    "Highlights",
    "Results",
    "draw_trials",
    "joined",
    "quietly",
    "rank_label",
]

NumPyArray = np.ndarray[Any, Any]
Columns = dict[str, NumPyArray]
Results = Mapping[Any, Columns]


class Experiment(ABC):
    """Settings, and the computation of a cell. Subclasses are frozen dataclasses."""

    stack: ClassVar[int] = 50  # most trials in a batch; small enough for the cache
    max_trials: ClassVar[int | None] = None

    name: str  # name of its folder; a field of every subclass

    @abstractmethod
    def cells(self) -> Sequence[Any]:
        """Return frozen records; their ``str`` is the name of a folder."""

    @abstractmethod
    def compute(self, cell: Any, first: int, count: int, seed: int) -> Columns:
        """Compute trials ``first`` to ``first + count - 1``; pure in its arguments."""

    @abstractmethod
    def work(self, cell: Any) -> float:
        """Return the relative cost of a trial, for progress bars and scheduling."""

    def batch(self, cell: Any) -> int:
        """Return the number of trials of a cell that are computed as one batch."""
        return self.stack

    def trials(self, wanted: int) -> int:
        """Return the number of trials to compute: ``wanted``, at most ``max_trials``."""
        return wanted if self.max_trials is None else min(wanted, self.max_trials)

    def fingerprint(self, cell: Any, seed: int) -> str:
        """Return a hash of the settings, the cell, the seed and the version."""
        text = repr((__version__, self, cell, seed))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Highlights(NamedTuple):
    """Summary table: names of the columns, and rows of text."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


class Figure(ABC):
    """A table and a plot of an experiment's results."""

    name: ClassVar[str]  # name of its files, and on the command line
    title: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]

    experiment: Any

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """Experiments whose cells are shown; usually one."""
        return (self.experiment,)

    @property
    def label(self) -> str:
        """Name in running text, such as "Figure 1"."""
        number = self.name.removeprefix("fig")
        return f"Figure {number}" if number.isdigit() else "Tuned steps"

    @abstractmethod
    def rows(self, results: Results) -> list[tuple[Any, ...]]:
        """Return the rows of the CSV, in the order of ``columns``."""

    @abstractmethod
    def draw(self, table: list[dict[str, Any]], results: Results) -> Any:
        """Return the plot as a Matplotlib figure."""

    @abstractmethod
    def caption(self) -> str:
        """Describe what is shown, and with which settings."""

    @abstractmethod
    def highlights(self, table: list[dict[str, Any]], results: Results) -> Highlights:
        """Select the numbers that a report prints."""

    def table(self, results: Results) -> list[dict[str, Any]]:
        """Return the rows as dictionaries."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows(results)]


def draw_trials(
    shape: tuple[int, ...], rank: tuple[int, ...], m: int, seed: int, first: int, count: int
) -> tuple[Problem, NumPyArray]:
    """Draw a batch of the paper's synthetic problems and their true tensors.

    Core and factors i.i.d. N(0, 1); A i.i.d. N(0, 1) divided by its Frobenius norm; no noise.
    Trial k is made by ``random_tucker(shape, rank, seed=(seed, k), orthonormal=False)`` and
    ``gaussian(shape, m, seed=(seed, k), normalize="frobenius")``, in every setting, so that
    settings are compared on the same random numbers and any trial can be repeated by itself.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)  # (1, 1, 2): explained in the report
        targets = random_tucker(shape, rank, seed=(seed, first), orthonormal=False, trials=count)
    A = gaussian(shape, m, seed=(seed, first), normalize="frobenius", trials=count)
    X_true = targets.full()
    return Problem(A, A.forward(X_true)), X_true


class quietly(warnings.catch_warnings):  # noqa: N801 - reads as a statement
    """Suppress the warnings that the paper's settings cause: few measurements, odd ranks."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore", RankWarning)
        warnings.simplefilter("ignore", UnderdeterminedWarning)


def joined(parts: Sequence[Columns]) -> Columns:
    """Concatenate the columns of consecutive ranges of trials."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def rank_label(rank: Sequence[int]) -> str:
    """Format a rank as in the tables.

    Examples
    --------
    >>> rank_label((1, 2, 2))
    '1-2-2'
    """
    return "-".join(map(str, rank))

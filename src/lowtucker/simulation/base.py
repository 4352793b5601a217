"""What an experiment and a figure are.

An :class:`Experiment` is a frozen record of settings. It is made of cells, each a small frozen
record too; a cell is computed for a range of trials, alone or on any worker, and gives columns
of numbers whose first axis counts the trials. A :class:`Figure` makes a table and a picture of
the columns. Neither knows where the columns are kept
(:mod:`lowtucker.simulation.store`) or who computes them
(:mod:`lowtucker.simulation.runner`).
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
    """Settings, and how a cell of them is computed. Subclasses are frozen dataclasses."""

    stack: ClassVar[int] = 50  # trials computed together: what they read stays in the cache
    max_trials: ClassVar[int | None] = None

    name: str  # of its folder; a field of every subclass

    @abstractmethod
    def cells(self) -> Sequence[Any]:
        """Frozen records; their ``str`` is the name of a folder."""

    @abstractmethod
    def compute(self, cell: Any, first: int, count: int, seed: int) -> Columns:
        """Columns of trials ``first`` to ``first + count - 1``: pure in its arguments."""

    @abstractmethod
    def work(self, cell: Any) -> float:
        """Relative cost of a trial, for progress bars and for who goes first."""

    def trials(self, wanted: int) -> int:
        """Trials to compute when so many are wanted."""
        return wanted if self.max_trials is None else min(wanted, self.max_trials)

    def fingerprint(self, cell: Any, seed: int) -> str:
        """Name of the numbers: another setting, seed or version has another one."""
        text = repr((__version__, self, cell, seed))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Highlights(NamedTuple):
    """Small table for people: names of the columns, and rows of text."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


class Figure(ABC):
    """A table and a picture of an experiment's results."""

    name: ClassVar[str]  # of its files, and on the command line
    title: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]

    experiment: Any

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """Whose cells it shows: one experiment's, for most."""
        return (self.experiment,)

    @property
    def label(self) -> str:
        """Name in a text: "Figure 1"."""
        number = self.name.removeprefix("fig")
        return f"Figure {number}" if number.isdigit() else "Tuned steps"

    @abstractmethod
    def rows(self, results: Results) -> list[tuple[Any, ...]]:
        """Rows of the CSV, in the order of ``columns``."""

    @abstractmethod
    def draw(self, table: list[dict[str, Any]], results: Results) -> Any:
        """Picture, as a Matplotlib figure."""

    @abstractmethod
    def caption(self) -> str:
        """Say what is shown, and with which settings."""

    @abstractmethod
    def highlights(self, table: list[dict[str, Any]], results: Results) -> Highlights:
        """Choose the numbers that a report prints."""

    def table(self, results: Results) -> list[dict[str, Any]]:
        """Rows with their names."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows(results)]


def draw_trials(
    shape: tuple[int, ...], rank: tuple[int, ...], m: int, seed: int, first: int, count: int
) -> tuple[Problem, NumPyArray]:
    """Problems of the paper's synthetic experiments, as a stack, and their true tensors.

    Core and factors i.i.d. N(0, 1); A i.i.d. N(0, 1) divided by its Frobenius norm; no noise.
    Trial k is made by ``random_tucker(shape, rank, seed=(seed, k), orthonormal=False)`` and
    ``gaussian(shape, m, seed=(seed, k), normalize="frobenius")``, in every setting: settings are
    compared on the same random numbers, and any trial can be looked at by itself.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)  # (1, 1, 2): the report tells of it
        targets = random_tucker(shape, rank, seed=(seed, first), orthonormal=False, trials=count)
    A = gaussian(shape, m, seed=(seed, first), normalize="frobenius", trials=count)
    X_true = targets.full()
    return Problem(A, A.forward(X_true)), X_true


class quietly(warnings.catch_warnings):  # noqa: N801 - reads as a statement
    """Without the warnings that the paper's settings ask for: few measurements, odd ranks."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore", RankWarning)
        warnings.simplefilter("ignore", UnderdeterminedWarning)


def joined(parts: Sequence[Columns]) -> Columns:
    """One set of columns for consecutive ranges of trials."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def rank_label(rank: Sequence[int]) -> str:
    """Rank as the tables write it.

    Examples
    --------
    >>> rank_label((1, 2, 2))
    '1-2-2'
    """
    return "-".join(map(str, rank))

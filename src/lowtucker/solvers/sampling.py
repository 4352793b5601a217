r"""Which measurements a stochastic step looks at.

A sampler is bound to a problem, then draws: a pure function of (t, seed). The weight of a draw,
:math:`b_i / (m\,p(i))`, is the paper's :math:`1/(M p(i))` where b divides m, and keeps the block
gradient unbiased where it does not: :math:`\sum_i p(i)\, weight_i \nabla f_i = \nabla F`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np

from lowtucker._array import Rows, as_array, as_integer, to_numpy
from lowtucker._array.random import LIMIT, Seed, as_seed, uniforms
from lowtucker.problem import Problem

__all__ = ["BlockSampler", "Draw", "KaczmarzRows", "Partition", "RandomRows", "Shuffled"]

NumPyArray = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Draw:
    """A block: its rows, and the weight of its gradient.

    For a batch of problems ``rows`` has one entry and ``weight`` one number for each.

    ``row_weights``, (b,) or (trials, b), say that the rows are to be used one after the other, each
    with its weight; None, as a rule, that they are used together.
    """

    rows: Rows
    weight: float | NumPyArray
    row_weights: NumPyArray | None = None

    __hash__ = None  # type: ignore[assignment]  # rows may be arrays

    def __eq__(self, other: object) -> bool:
        """Whether rows and weights are the same."""
        if not isinstance(other, Draw):
            return NotImplemented
        return (
            _same_rows(self.rows, other.rows)
            and np.array_equal(self.weight, other.weight)
            and np.array_equal(self.row_weights, other.row_weights)  # type: ignore[arg-type]
        )


def _same_rows(a: Rows, b: Rows) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same_rows, a, b))
    if isinstance(a, slice | tuple) or isinstance(b, slice | tuple):
        return type(a) is type(b) and a == b
    return np.array_equal(a, b)


@dataclass(frozen=True)
class BlockSampler(ABC):
    """Draws blocks of measurements.

    Parameters
    ----------
    block_size : int
        b, from 1 to m.
    """

    block_size: int
    # of the problem that it is bound to
    m: int = field(default=0, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        """Check what can be checked without a problem."""
        as_integer(self.block_size, "block_size")

    def bind(self, problem: Problem) -> Self:
        """Give a copy of the sampler that knows the problem it draws for."""
        if not isinstance(problem, Problem):
            raise TypeError(
                f"problem must be a Problem, got {type(problem).__name__}. "
                "Try lowtucker.Problem(A, y)."
            )
        if self.block_size > problem.m:
            raise ValueError(
                f"block_size = {self.block_size} must be between 1 and the number of measurements, "
                f"{problem.m}."
            )
        return replace(self, m=problem.m)

    def draw(self, t: int, seed: Seed = 0, trials: Sequence[int] | None = None) -> Draw:
        """Block of step ``t``.

        Parameters
        ----------
        t : int
        seed : int or (int, trial)
        trials : sequence of int, optional
            Draw for a batch of these trials: for trial k what ``seed=(seed, k)`` draws alone.
        """
        if not self.m:
            raise ValueError(
                f"{type(self).__name__} does not know its problem yet: call bind(problem) first."
            )
        number, first = as_seed(seed)
        t = as_integer(t, "t", 0, LIMIT - 1)
        numbers = (first,) if trials is None else _checked_trials(trials)
        rows, weights = self._draw(t, number, numbers)
        if trials is None:
            return Draw(rows[0], float(weights[0]))
        return Draw(tuple(rows), weights)

    def select(self, positions: Sequence[int]) -> Self:
        """Sampler for some problems of the batch that it is bound to, by position."""
        return self

    @property
    def n_blocks(self) -> int:
        """Return M = ceil(m / b)."""
        return math.ceil(self.m / self.block_size)

    @property
    def probabilities(self) -> NumPyArray:
        """Probabilities p(i) of the M blocks: uniform, unless the sampler has others."""
        return np.full(self.n_blocks, 1 / self.n_blocks)

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps that count as one epoch: as many as there are blocks."""
        return self.n_blocks

    @abstractmethod
    def _draw(self, t: int, seed: int, trials: tuple[int, ...]) -> tuple[list[Any], NumPyArray]:
        """Rows and weight of step t for every trial."""

    def _slices(self, blocks: NumPyArray) -> list[slice]:
        """Rows of some blocks, by number."""
        slices = _all_slices(self.m, self.block_size)
        return [slices[i] for i in blocks.tolist()]

    def _lengths(self) -> NumPyArray:
        """Lengths b_i of the blocks; the last is shorter where b does not divide m."""
        lengths = np.full(self.n_blocks, self.block_size)
        lengths[-1] = self.m - (self.n_blocks - 1) * self.block_size
        return lengths


@dataclass(frozen=True)
class Partition(BlockSampler):
    """Fixed contiguous blocks, one drawn with probability p(i), with replacement: Algorithm 1.

    Parameters
    ----------
    block_size : int
        b, from 1 to m. M = ceil(m / b) blocks; the last is shorter where b does not divide m.
    p : None, "norms" or M numbers
        Probabilities p(i): uniform by default; "norms" is proportional to the blocks' squared
        Frobenius norms.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((3, 4), m=10)
    >>> problem = lt.Problem(A, A.forward(lt.random_tucker((3, 4), (1, 1))))
    >>> sampler = Partition(block_size=4).bind(problem)
    >>> sampler.n_blocks
    3
    >>> sampler.draw(t=0, seed=0) == sampler.draw(t=0, seed=0)
    True
    """

    p: Any = None
    _p: NumPyArray = field(
        default_factory=lambda: np.empty(0), repr=False, compare=False, kw_only=True
    )

    def __post_init__(self) -> None:
        """Check the probabilities."""
        super().__post_init__()
        if isinstance(self.p, str):
            if self.p != "norms":
                raise ValueError(
                    f'p must be None (uniform), "norms" or a list of probabilities, got {self.p!r}.'
                )
        elif self.p is not None:
            object.__setattr__(self, "p", _checked_probabilities(self.p))

    def bind(self, problem: Problem) -> Self:
        """Fix the probabilities for a problem."""
        bound = super().bind(problem)
        M = bound.n_blocks
        if self.p is None:
            return bound
        if isinstance(self.p, str):
            p = bound._norms(problem)
        else:
            p = np.asarray(self.p)
            if len(p) != M:
                raise ValueError(
                    f"p must have one probability for each of the {M} blocks of {self.block_size} "
                    f"out of {problem.m} measurements, got {len(p)}."
                )
        return replace(bound, _p=p)

    def select(self, positions: Sequence[int]) -> Self:
        """Sampler for some of the trials, each with its own probabilities."""
        if self._p.ndim < 2:
            return self
        return replace(self, _p=self._p[list(positions)])

    @property
    def probabilities(self) -> NumPyArray:
        """Probabilities p(i), shape (M,); (trials, M) for p="norms" and a batch of problems."""
        return self._p if self._p.size else super().probabilities

    def _norms(self, problem: Problem) -> NumPyArray:
        """Share of the squared row norms in each block, one row a trial in a stack."""
        norms = _row_norms(problem)
        largest = norms.max(axis=-1, keepdims=True)
        squares = (norms / np.where(largest > 0, largest, 1.0)) ** 2
        sums = np.add.reduceat(squares, range(0, self.m, self.block_size), axis=-1)
        if not (sums > 0).all():
            raise ValueError(
                'p="norms" would never draw a block whose rows are all zero. '
                "Remove the zero measurements, or use p=None."
            )
        return np.asarray(sums / sums.sum(axis=-1, keepdims=True))

    def _draw(self, t: int, seed: int, trials: tuple[int, ...]) -> tuple[list[Any], NumPyArray]:
        epoch, position = divmod(t, self.n_blocks)
        u = _epoch_uniforms(seed, epoch, trials, self.n_blocks)[:, position]
        if self.p is None:
            blocks = (u * self.n_blocks).astype(int)
            weights = self._lengths()[blocks] * (self.n_blocks / self.m)
            return self._slices(blocks), weights
        if self._p.ndim == 2 and len(self._p) != len(trials):
            raise ValueError(
                f'p="norms" was bound to a batch of {len(self._p)} problems, each with its own '
                f"probabilities: draw for as many, got {len(trials)}. "
                f"Try draw(t, seed, trials=range({len(self._p)}))."
            )
        p = np.broadcast_to(self._p, (len(trials), self.n_blocks))
        cdf = np.cumsum(p, axis=-1)
        blocks = np.minimum((u[:, None] * cdf[:, -1:] >= cdf).sum(axis=-1), self.n_blocks - 1)
        drawn = np.take_along_axis(p, blocks[:, None], axis=-1)[:, 0]
        weights = self._lengths()[blocks] / (self.m * drawn)
        return self._slices(blocks), weights


@dataclass(frozen=True)
class Shuffled(BlockSampler):
    """Fixed contiguous blocks, each drawn once an epoch, in a new random order every epoch."""

    def _draw(self, t: int, seed: int, trials: tuple[int, ...]) -> tuple[list[Any], NumPyArray]:
        epoch, position = divmod(t, self.n_blocks)
        u = _epoch_uniforms(seed, epoch, trials, self.n_blocks)
        blocks = np.argsort(u, axis=-1, kind="stable")[:, position]
        weights = self._lengths()[blocks] * (self.n_blocks / self.m)
        return self._slices(blocks), weights


@dataclass(frozen=True)
class RandomRows(BlockSampler):
    """A fresh random set of b different rows at every step, as in Figures 3 to 7 of the paper."""

    @property
    def steps_per_epoch(self) -> int:
        """Return round(m / b), as the paper counts."""
        return max(1, round(self.m / self.block_size))

    def _draw(self, t: int, seed: int, trials: tuple[int, ...]) -> tuple[list[Any], NumPyArray]:
        u = uniforms(seed, t, trials, self.m)
        if self.block_size < self.m:
            u = np.argpartition(u, self.block_size, axis=-1)[:, : self.block_size]
            rows = np.sort(u, axis=-1)
        else:
            rows = np.broadcast_to(np.arange(self.m), u.shape)
        return list(rows), np.ones(len(trials))


@dataclass(frozen=True)
class KaczmarzRows(BlockSampler):
    r"""Rows one after the other, in a new random order every epoch: KaczTIHT.

    A step of :class:`lowtucker.StoTIHT` goes through b rows, each with a relaxed projection onto
    the tensors that agree with that measurement, and thresholds after the last:

    .. math::
        X \leftarrow X + \frac{\mu}{b} \frac{N}{\|A_j\|^2} A_j (y_j - \langle A_j, X \rangle)

    with N entries in the tensor. b = m and :math:`\mu = 1` are the published method (Suryanarayanan
    and Rebrova, arXiv:2502.02843). It needs a fixed step, which does not depend on the scale of A;
    with :math:`\mu N / b \le 2` no row increases the distance to a solution.

    Parameters
    ----------
    block_size : int
        b, from 1 to m: rows between two thresholdings.

    Notes
    -----
    One pass over A for the norms of the rows, if the operator does not know them, and one per
    epoch; but b calls of the operator for each thresholding.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
    >>> y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0))
    >>> solver = lt.StoTIHT(sampler=lt.KaczmarzRows(A.m), step=1.0)
    >>> lt.recover(A, y, rank=(1, 2, 2), solver=solver).success
    True
    """

    # N / ||A_j||^2, (m,) or (trials, m); larger by m / count for a problem with padding
    _weights: NumPyArray = field(
        default_factory=lambda: np.empty(0), repr=False, compare=False, kw_only=True
    )

    def bind(self, problem: Problem) -> Self:
        """Measure the norms of the rows."""
        bound = super().bind(problem)
        norms = _row_norms(problem)
        known = norms > 0  # a row of zeros says nothing
        weights = np.where(known, math.prod(problem.shape) / np.where(known, norms, 1.0) ** 2, 0.0)
        share = to_numpy(problem.count).reshape(-1, 1) / problem.m if norms.ndim > 1 else 1.0
        return replace(bound, _weights=weights / share)

    def select(self, positions: Sequence[int]) -> Self:
        """Sampler for some of the trials, each with its own weights."""
        if self._weights.ndim < 2:
            return self
        return replace(self, _weights=self._weights[list(positions)])

    def draw(self, t: int, seed: Seed = 0, trials: Sequence[int] | None = None) -> Draw:
        """Rows of step ``t`` in their order, with their weights; see :class:`BlockSampler`."""
        draw = super().draw(t, seed, trials)
        rows: Any = np.asarray(draw.rows)
        if self._weights.ndim < 2:
            return replace(draw, row_weights=self._weights[rows])
        problems, given = len(self._weights), 1 if rows.ndim < 2 else len(rows)
        if given != problems or rows.ndim < 2:
            raise ValueError(
                f"KaczmarzRows was bound to a batch of {problems} problems, each with its own "
                f"weights: draw for as many, got {given}. "
                f"Try draw(t, seed, trials=range({problems}))."
            )
        return replace(draw, row_weights=np.take_along_axis(self._weights, rows, axis=-1))

    def _draw(self, t: int, seed: int, trials: tuple[int, ...]) -> tuple[list[Any], NumPyArray]:
        epoch, position = divmod(t, self.n_blocks)
        order = np.argsort(_epoch_uniforms(seed, epoch, trials, self.m), axis=-1, kind="stable")
        start = position * self.block_size
        rows = order[:, start : start + self.block_size]
        return list(rows), np.full(len(trials), rows.shape[-1] * (self.n_blocks / self.m))


def _row_norms(problem: Problem) -> NumPyArray:
    """Norms of the rows in double precision, (m,) or (trials, m)."""
    norms = to_numpy(problem.A.row_norms()).astype(np.float64)
    return norms.reshape(-1, problem.m) if norms.ndim > 2 else norms


@lru_cache(maxsize=16)
def _all_slices(m: int, block_size: int) -> list[slice]:
    """Contiguous blocks of the rows; the last is shorter where b does not divide m."""
    return [slice(i, min(m, i + block_size)) for i in range(0, m, block_size)]


@lru_cache(maxsize=16)
def _epoch_uniforms(seed: int, epoch: int, trials: tuple[int, ...], count: int) -> NumPyArray:
    """Keep the numbers of the epoch at hand: setting up Philox costs as much as many steps."""
    u = uniforms(seed, epoch, trials, count)
    u.flags.writeable = False
    return u


def _checked_trials(trials: Any) -> tuple[int, ...]:
    try:
        if isinstance(trials, str | bytes | set | dict):
            raise TypeError
        return _as_trials(tuple(trials))
    except TypeError:
        raise TypeError(
            "trials must be a sequence of integers, the numbers of the trials, got "
            f"{trials!r:.80}. Try trials=range(2)."
        ) from None


@lru_cache(maxsize=16)  # a solver asks for the same ones at every step
def _as_trials(trials: tuple[Any, ...]) -> tuple[int, ...]:
    if not trials:
        raise ValueError("trials must have at least one entry, got none. Try trials=range(2).")
    return tuple(as_integer(k, "trials", 0, LIMIT - 1) for k in trials)


def _checked_probabilities(p: Any) -> tuple[float, ...]:
    values = to_numpy(as_array(p, "p"))
    if values.dtype.kind not in "iuf":
        raise ValueError(f"p must be real numbers, got dtype {values.dtype}. Try p=None (uniform).")
    if values.ndim != 1 or not values.size:
        raise ValueError(
            f"p must be a list of probabilities, got shape {values.shape}. Try p=None (uniform)."
        )
    # single precision sums to 1 within its own rounding error
    rounding = np.finfo(values.dtype).eps * values.size if values.dtype.kind == "f" else 0.0
    values = values.astype(np.float64)
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(
            "p must be positive: a block that is never drawn is never used. Try p=None (uniform)."
        )
    if not math.isclose(values.sum(), 1.0, rel_tol=max(1e-9, rounding)):
        raise ValueError(f"p must sum to 1, got {values.sum():.9g}. Try p / p.sum().")
    return tuple(map(float, values / values.sum()))

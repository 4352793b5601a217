"""Measurements that arrive one after the other: a tensor that follows them."""

from __future__ import annotations

import os
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np

from lowtucker._array import as_array, is_array, like, to_numpy
from lowtucker._array.random import Seed
from lowtucker.operators import entries
from lowtucker.run.result import Result
from lowtucker.status import Status
from lowtucker.streams.blocks import as_block, in_stream
from lowtucker.streams.files import load_state, save_state
from lowtucker.streams.state import FIRST, Settings, State
from lowtucker.streams.verdict import accuracy_of, finding_of, result_of

__all__ = ["Online"]


class Online:
    r"""A tensor of low Tucker rank that follows a stream of measurements.

    The first measurements are kept, until a fit to them succeeds. After that each block is used
    once and forgotten: it adds to the normal equations of one tangent space, which is moved along
    after every dof measurements (recursive Gauss-Newton, an extended Kalman filter).

    Parameters
    ----------
    shape : tuple of int
    rank : tuple of int, or int for a matrix
    memory : float, optional
        For tensors that change: a measurement counts less by the factor exp(-age / memory), its
        age in measurements. At least one per degree of freedom. A short memory follows fast, a long
        one averages more noise out. By default nothing is forgotten.
    tol : float
        A relative residual below which the measurements are fitted exactly.
    seed : int
        Of the fits to the first measurements.

    Notes
    -----
    The first measurements are fitted by :func:`lowtucker.recover` at 2.8 per degree of freedom, and
    after every growth by a half. A fit that converges, or ends at the noise floor, is used; when it
    has predicted new measurements as well, a quarter per degree of freedom, and another fit finds
    nothing better, the first ones are freed. So they are at 10 per degree of freedom, whatever the
    verdict. Until then their memory is that of the user's blocks: d numbers a sample for entries, N
    a row for arrays, which are copied.

    After that the memory is dof^2 numbers, and a block of b rows costs one pass over them and
    b dof^2 flops; every dof rows, and for every ``X`` that is asked for after a block, some dof^3
    more. Beyond 5000 degrees of freedom only the mean information is kept, O(dof) numbers: each
    block is a least-squares step that is penalised by it, which takes all directions to be equally
    well known, and is less accurate where they are not. The error estimate is then rough, mostly
    too small, and a result has no interval of the error and no error bars.

    Measured (20x20x20, rank 2; Gaussian rows, outer products and entries): after one pass over 10
    measurements per degree of freedom the error is within 0.3 % of that of a fit to all at once,
    with 1 % noise and blocks of 1 to 116 rows; within 6 % with 30 % noise and blocks of 100.

    Examples
    --------
    >>> import numpy as np, lowtucker as lt
    >>> rng = np.random.default_rng(0)
    >>> X_true = lt.random_tucker((10, 10, 10), (2, 2, 2), seed=0)
    >>> online = lt.Online((10, 10, 10), rank=(2, 2, 2))
    >>> for _ in range(50):
    ...     where = rng.integers(0, 10, (10, 3))
    ...     online.update_entries(where, X_true.entries(where) + 1e-3 * rng.standard_normal(10))
    >>> online
    Online: tensor of shape (10, 10, 10), rank (2, 2, 2), after 500 measurements: noise floor
    >>> bool(lt.metrics.relative_error(online.X, X_true) < 3 * online.error_estimate)
    True
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        rank: tuple[int, ...] | int,
        *,
        memory: float | None = None,
        tol: float = 1e-6,
        seed: Seed = 0,
    ) -> None:
        asked = Settings(shape, rank, memory, tol, seed)  # type: ignore[arg-type]
        self._state = State(asked.checked())
        self._closed = False
        self._asked: tuple[State, Result] | None = None
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        """All but the lock, which cannot be copied."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Copy with a lock of its own."""
        vars(self).update(state, _lock=Lock())

    # What arrives

    def update(self, A_block: Any, y_block: Any, weights: Any = None) -> None:
        """Use a block of measurements.

        Parameters
        ----------
        A_block : MeasurementOperator, array, SciPy sparse matrix, SciPy or PyLops linear operator
            An array of shape (b, n_1, ..., n_d) or (b, N); or one row, with a number for y_block.
        y_block : array, shape (b,)
        weights : array, shape (b,), optional
            Weights of the squared residuals, such as 1 / variance; 0 leaves a measurement out.

        Notes
        -----
        Rows of a block have the same age, where the stream forgets, up to dof of them. A block of
        no rows, or whose weights are all 0, changes nothing, not even ``m``. Where a block is
        refused, or anything else is raised, Ctrl-C included, the stream stays as it was.

        Updates from several threads wait for each other: none is lost.
        """
        self._use(A_block, y_block, weights, "y_block")

    def update_entries(self, indices: Any, values: Any, weights: Any = None) -> None:
        """Use sampled entries.

        Parameters
        ----------
        indices : array of int, shape (b, d), or (d,) with one number for values
        values : array, shape (b,)
        weights : array, shape (b,), optional
        """
        self._check_open()
        index = to_numpy(as_array(indices, "indices"))
        if index.shape == (len(self.shape),) and not np.ndim(values):
            index = index[None, :]
        if not len(np.atleast_1d(index)) and not np.size(values):
            return
        self._use(entries(self.shape, index), values, weights, "values")

    def _use(self, A: Any, y: Any, weights: Any, name: str) -> None:
        self._check_open()
        problem = as_block(A, y, weights, self.shape, name)
        if problem is None:
            return
        with self._lock:
            state = self._state
            if state.example is None:
                example = like(np.zeros(0), problem.y, problem.tensor_dtype)
                state = replace(state, example=example)
            problem = in_stream(problem, state.example)
            self._state = state.after(problem)  # all or nothing

    def close(self) -> None:
        """End the stream: no more blocks are taken; results can still be asked for."""
        self._closed = True

    def __enter__(self) -> Online:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(
                "the stream is closed and takes no more blocks; results can still be asked for. "
                "To continue, save it before close(), and use lowtucker.Online.load(path)."
            )

    # What is known

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self._state.settings.shape

    @property
    def rank(self) -> tuple[int, ...]:
        """Tucker rank of the tensor."""
        return self._state.settings.rank

    @property
    def memory(self) -> float | None:
        """Measurements until one counts less by the factor e; None if nothing is forgotten."""
        return self._state.settings.memory

    @property
    def degrees_of_freedom(self) -> int:
        """Degrees of freedom of the rank."""
        return self._state.settings.dof

    @property
    def m(self) -> int:
        """Measurements so far."""
        return self._state.m

    @property
    def needed(self) -> int:
        """Measurements that are missing until the rank is first fitted; 0 after that."""
        state = self._state
        first = int(np.ceil(FIRST * state.settings.dof))
        return 0 if state.filter is not None else max(first - state.equations, 0)

    @property
    def warming_up(self) -> bool:
        """Whether measurements are still kept: the rank has not been fitted with success."""
        return self._state.filter is None

    @property
    def X(self) -> Any:
        """The tensor: a TuckerTensor of the rank; during the warm-up a shrunk estimate.

        The estimate is :func:`lowtucker.recover` without a rank, of all measurements so far.
        """
        self._check_begun()
        now = self._state.filter
        return self.result().X if now is None else now.X

    @property
    def status(self) -> Status:
        """Verdict so far; ``result()`` says what it means."""
        status = finding_of(self._state).status
        assert status is not None
        return status

    @property
    def error_estimate(self) -> float | None:
        """Relative error of X to expect: by noise, and by lag where the tensor changes.

        None during the warm-up, and where the measurements do not determine X. Rough beyond 5000
        degrees of freedom.
        """
        accuracy = accuracy_of(self._state)
        return None if accuracy is None else accuracy.error

    def result(self) -> Result:
        """Result so far: X with its verdict, its error to expect, and error bars.

        ``residual`` is over all measurements, with what forgetting leaves of their weights;
        ``held_out`` is the relative error of predictions of recent ones before they were used. Once
        for every state of the stream; some 20 dof^3 flops.
        """
        self._check_begun()
        state, asked = self._state, self._asked
        if asked is None or asked[0] is not state:
            self._asked = asked = state, result_of(state)
        return asked[1]

    def _check_begun(self) -> None:
        if not self.m:
            raise ValueError(
                "the stream has no measurements yet. Call online.update(A_block, y_block) first."
            )

    # Files

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the stream to an .npz file that :meth:`load` reads; no pickle.

        A stream that is loaded continues as if it had never stopped, bit for bit. During the
        warm-up blocks must be arrays or sampled entries: others cannot be written.
        """
        save_state(self._state, path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, example: Any = None) -> Online:
        """Read a stream that :meth:`save` wrote.

        Parameters
        ----------
        path : path-like
        example : array, optional
            Of the kind that blocks will have; NumPy by default.
        """
        if example is not None and not is_array(example):
            raise TypeError(
                f"example must be an array, got {type(example).__name__}. Try torch.zeros(1)."
            )
        made = object.__new__(cls)
        made.__setstate__({"_state": load_state(path, example), "_closed": False, "_asked": None})
        return made

    def __repr__(self) -> str:
        begun = f"after {self.m} measurements: {self.status.words}" if self.m else "no measurements"
        closed = ", closed" if self._closed else ""
        missing = f", {self.needed} more needed" if self.needed else ""
        forgets = f", memory {self.memory:g}" if self.memory else ""
        return (
            f"Online: tensor of shape {self.shape}, rank {self.rank}{forgets}, "
            f"{begun}{missing}{closed}"
        )

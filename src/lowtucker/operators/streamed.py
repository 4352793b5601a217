"""Rows that are generated or read on demand: a matrix that need not fit into memory."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lowtucker._array import Array, Rows, all_finite, size
from lowtucker._array.memory import check_room
from lowtucker._array.readings import read
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.dense import DenseOperator
from lowtucker.operators.design import DenseDesign, TangentDesign
from lowtucker.operators.matrix import Order
from lowtucker.operators.traits import Traits
from lowtucker.tensor.tangent import TangentSpace

__all__ = ["StreamedOperator"]

NumPyArray = np.ndarray[Any, Any]
# Bytes of rows that are in memory at a time; twice, as the next ones are read meanwhile
BLOCK_BYTES = 1 << 25


class StreamedOperator(MeasurementOperator):
    """Measurements by the rows of a matrix that are read block by block.

    A subclass defines how rows are read. Every product is a sum over blocks of 32 MB, each a
    :class:`DenseOperator`; while one is in use, a thread reads the next.
    """

    traits = Traits(
        row_separable=True,
        has_fast_tangent=True,
        supports_batch=True,
        has_fast_row_norms=True,
        has_batch_tangent=True,
    )
    # Indices of this operator's rows among all rows
    rows: range | NumPyArray

    def _set(self, shape: tuple[int, ...], m: int, dtype: Any, order: Order = "C") -> None:
        self._one = object.__new__(DenseOperator)
        self._one.shape, self._one.order = shape, order
        self._one._set(np.empty((0, size(shape)), dtype), None)
        self.shape, self.dtype, self.order = shape, self._one.dtype, order
        self._set_rows(range(m))

    def _set_rows(self, rows: range | NumPyArray) -> None:
        self.rows, self.m = rows, len(rows)

    @abstractmethod
    def _read(self, start: int, stop: int, out: NumPyArray) -> None:
        """Write successive rows, counted among all rows, into ``out`` (stop - start, N)."""

    @abstractmethod
    def _place(self, start: int, stop: int) -> str:
        """Name these rows in a message."""

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        """Few rows are read at once, and kept; many are read on demand."""
        block = object.__new__(type(self))
        block.__dict__.update(self.__dict__)
        block._set_rows(self.rows[rows] if isinstance(rows, slice) else np.asarray(self.rows)[rows])
        if block.m <= self._height:
            read(block.m)
            kept = block._dense(block._filled(slice(0, block.m), self._buffer(block.m)))
            kept.kept = True
            return kept
        return block

    @property
    def _height(self) -> int:
        """Rows of a block."""
        matrix = self._one.matrix
        return max(1, BLOCK_BYTES // int(matrix.shape[1] * matrix.itemsize))

    def _buffer(self, rows: int) -> NumPyArray:
        matrix = self._one.matrix
        need = rows * int(matrix.shape[1] * matrix.itemsize)
        check_room(need, f"{rows} rows of A", "Try a smaller shape, or lowtucker.rank_one.")
        return np.empty((rows, matrix.shape[1]), matrix.dtype)

    def _dense(self, matrix: NumPyArray) -> DenseOperator:
        return self._one._like_this(matrix)

    def _filled(self, part: slice, buffer: NumPyArray) -> NumPyArray:
        """Rows of this operator in a buffer; each run of successive rows is read at once."""
        numbers = np.asarray(self.rows[part])
        ends = np.flatnonzero(np.diff(numbers) != 1) + 1
        for run in np.split(np.arange(len(numbers)), ends):
            first, last = numbers[run[0]], numbers[run[-1]]
            self._read(int(first), int(last) + 1, buffer[run[0] : run[-1] + 1])
        return buffer[: len(numbers)]

    def _blocks(self) -> Iterator[tuple[slice, DenseOperator]]:
        """All rows in blocks, which share two buffers."""
        parts = [
            slice(start, min(start + self._height, self.m))
            for start in range(0, self.m, self._height)
        ]
        height = parts[0].stop
        buffers = [self._buffer(height) for _ in parts[:2]]
        coming = _meanwhile(self._filled, parts[0], buffers[0])
        for k, part in enumerate(parts):
            matrix = coming()
            if k + 1 < len(parts):
                coming = _meanwhile(self._filled, parts[k + 1], buffers[(k + 1) % 2])
            yield part, self._dense(matrix)

    def _finite(self, out: Array, part: slice, block: DenseOperator) -> Array:
        """Check the output of a block: NaN in its rows shows in any product."""
        if not all_finite(out) and not all_finite(block.matrix):
            bad = np.flatnonzero(~np.isfinite(block.matrix).all(axis=1))[0]
            number = int(self.rows[part][bad])
            raise ValueError(
                f"{self._place(number, number + 1)} has NaN or infinite entries. Leave that "
                "measurement out with A.restrict(rows)."
            )
        return out

    def _forward(self, X: Array) -> Array:
        parts = [self._finite(block._forward(X), part, block) for part, block in self._blocks()]
        return np.concatenate(parts, axis=-1)

    def _adjoint(self, v: Array) -> Array:
        total: Any = 0
        for part, block in self._blocks():
            total = total + self._finite(block._adjoint(v[..., part]), part, block)
        return total

    def _misfit(self, X: Array, y: Array, weights: Array | None) -> tuple[Array, Array]:
        residuals, total = [], None
        for part, block in self._blocks():
            w = None if weights is None else weights[..., part]
            residual, gradient = block._misfit(X, y[..., part], w)
            residuals.append(self._finite(residual, part, block))
            total = gradient if total is None else total + gradient
        return np.concatenate(residuals, axis=-1), total

    def _tangent(self, T: TangentSpace) -> TangentDesign:
        return StreamedDesign(self, T)

    def _row_norms(self) -> Array:
        return np.concatenate([block._row_norms() for _, block in self._blocks()])


class StreamedDesign(TangentDesign):
    """Design of rows that come block by block, in one pass."""

    A: StreamedOperator

    def rows(self) -> Iterator[tuple[slice, Array]]:
        """D in chunks of rows."""
        for part, block in self.A._blocks():
            for some, D in DenseDesign(block, self.T).rows():
                rows = slice(part.start + some.start, part.start + some.stop)
                yield rows, self.A._finite(D, part, block)


def _meanwhile(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """Start a call in a thread; return a function that waits for its result, or raises."""
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append((function(*arguments), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def wait() -> Any:
        thread.join()
        value, error = outcome[0]
        if error is not None:
            raise error
        return value

    return wait

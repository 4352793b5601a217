"""Rows in the chunks of a Dask array: they stay on the workers, only small results travel."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lowtucker._array import Array, Rows, all_finite, as_flag, size
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.deferred import Deferred
from lowtucker.operators.dense import DenseOperator
from lowtucker.operators.design import NormalEquations, TangentDesign
from lowtucker.operators.matrix import Order, check_order, shape_of_rows
from lowtucker.operators.sparse import check_sparse, is_scipy_sparse
from lowtucker.operators.traits import Traits
from lowtucker.operators.units import PoweredOperator
from lowtucker.tensor.products import norm
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

if TYPE_CHECKING:  # where there is no Dask array, none of it is needed
    from lowtucker.operators.engines import Engine

__all__ = ["DaskOperator", "from_dask", "is_dask"]

NumPyArray = np.ndarray[Any, Any]
# Function that a worker applies to the operator of a piece and its parts of the vectors
Action = Callable[..., Any]
Wrap = Callable[[MeasurementOperator], MeasurementOperator]


def is_dask(A: Any) -> bool:
    """Whether A is a Dask array."""
    return type(A).__module__.startswith("dask.array") and hasattr(A, "chunks")


class Piece(NamedTuple):
    """Rows of one chunk, and where they stand among the measurements of an operator."""

    chunk: int
    rows: slice | NumPyArray
    place: slice | NumPyArray


class DaskOperator(MeasurementOperator):
    """Measurements by the rows of a Dask array; see :func:`lowtucker.from_dask`.

    Parameters
    ----------
    array : dask.array.Array, shape (m, N)
        Of single or double precision, chunked along rows only.
    shape : tuple of int
    order : "C" or "F"
    client : distributed.Client, optional
    keep : bool, optional
    """

    traits = Traits(
        row_separable=True,
        has_fast_tangent=True,
        supports_batch=True,
        has_fast_row_norms=True,
        has_batch_tangent=True,
    )
    # Wrapper of the operator of every piece, which may have another scale
    wrap: Wrap | None = None

    def __init__(
        self,
        array: Any,
        shape: tuple[int, ...],
        *,
        order: Order = "C",
        client: Any = None,
        keep: bool | None = None,
    ) -> None:
        self._one = object.__new__(DenseOperator)
        self._one.shape, self._one.order = shape, order
        self._one._set(np.empty((0, size(shape)), array.dtype), None)
        self.shape, self.dtype, self.order = shape, self._one.dtype, order
        self.array, self._client, self._keep = array, client, keep
        self._set_rows(range(int(array.shape[0])))

    def _set_rows(self, rows: range | NumPyArray) -> None:
        self.rows, self.m = rows, len(rows)
        self.__dict__.pop("_pieces", None)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the array's graph, not the cluster: what is unpickled finds its own."""
        left_out = ("engine", "_pieces", "_client")
        return {key: x for key, x in self.__dict__.items() if key not in left_out} | {
            "_client": None
        }

    @cached_property
    def engine(self) -> Engine:
        """Where the chunks are; the client's cluster, or that of the session if there is one."""
        from lowtucker.operators.engines import engine_for

        client = self._client if self._client is not None else _session_client()
        return engine_for(self.array, client, self._keep)

    def each(self, wrap: Wrap) -> DaskOperator:
        """Operator whose pieces are wrapped, where they are."""
        other = self._copy()
        other.wrap = wrap if self.wrap is None else partial(_both, first=self.wrap, then=wrap)
        return other

    def in_units(self, power: int) -> MeasurementOperator:
        """Operator times 2**power, scaled where its rows are."""
        return self.each(partial(PoweredOperator, power=power)) if power else self

    def _copy(self) -> DaskOperator:
        other = object.__new__(type(self))
        _ = self.engine  # one for all that comes of an operator
        other.__dict__.update(self.__dict__)
        return other

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        block = self._copy()
        block._set_rows(self.rows[rows] if isinstance(rows, slice) else np.asarray(self.rows)[rows])
        return block

    @cached_property
    def _pieces(self) -> list[list[Piece]]:
        """Pieces of the operator's rows, by groups; a group may have none."""
        ends = np.cumsum(self.array.chunks[0])
        starts = ends - np.asarray(self.array.chunks[0])
        rows = self.rows
        successive = isinstance(rows, range) and rows.step == 1
        found = (_of_range if successive else _of_set)(rows, starts, ends)
        return [[piece for piece in found if piece.chunk in group] for group in self.engine.groups]

    @property
    def _whole(self) -> bool:
        return isinstance(self.rows, range) and self.rows == range(int(self.array.shape[0]))

    # Asking

    def _ask(
        self, action: Action, vectors: Sequence[NumPyArray | None], *arguments: Any, total: bool
    ) -> Any:
        """Run an action on every group that has rows; a total is a tuple of arrays."""
        from lowtucker.operators.engines import Task

        pieces = self._pieces
        parts: list[list[Any]] = [self._vector(v) for v in vectors]
        tasks = [
            Task(
                group,
                [piece.chunk for piece in some],
                [part[group] for part in parts],
                (action, some, self._one, self.wrap, total, arguments),
            )
            for group, some in enumerate(pieces)
            if some
        ]
        return self.engine.ask(_answer, tasks, total=total)

    def _vector(self, v: NumPyArray | None) -> list[Any]:
        """Parts of a vector of measurements for each group."""
        places = [[piece.place for piece in some] for some in self._pieces]
        if v is None:
            return [None] * len(places)
        if self._whole and v.ndim == 1:  # which passes over all rows will ask for again
            return self.engine.vector(v, places)  # type: ignore[arg-type]
        return [[v[..., place] for place in some] for some in places]

    def _joined(self, answers: Sequence[Sequence[Array]]) -> Array:
        """Numbers of the pieces, along the last axis, as measurements."""
        flat = [x for some in answers for x in some]
        places = [piece.place for some in self._pieces for piece in some]
        if len(flat) == 1 and isinstance(places[0], slice):
            return flat[0]
        out = np.empty((*flat[0].shape[:-1], self.m), dtype=np.result_type(*flat))
        for place, x in zip(places, flat, strict=True):
            out[..., place] = x
        return out

    # The hooks

    def _forward(self, X: Array) -> Array:
        return self._joined(self._ask(_forward, [], X, total=False))

    def _forward_tucker(self, X: TuckerTensor) -> Array:
        return self._joined(self._ask(_forward, [], X, total=False))

    def _adjoint(self, v: Array) -> Array:
        return self._ask(_adjoint, [v], total=True)[0]

    def _misfit(self, X: Array, y: Array, weights: Array | None) -> tuple[Array, Array]:
        squares, gradient = self._ask(_misfit, [y, weights], X, total=True)
        return self._deferred(X, y, weights, squares), gradient

    def _residual(self, X: Any, y: Array | None, weights: Array | None) -> Array:
        (squares,) = self._ask(_squares, [y, weights], X, total=True)
        return self._deferred(X, y, weights, squares)

    def known_norm(self, residual: Any, weights: Array | None) -> Any:
        """Weighted norm of a residual that is still on the workers."""
        known = isinstance(residual, Deferred) and residual.weights is weights
        return residual.norm if known else None

    def _deferred(self, X: Any, y: Any, weights: Any, squares: Any) -> Deferred:
        """Residual whose norm is known; its numbers are fetched on demand."""

        def fetch() -> NumPyArray:
            measured = self.forward(X)
            left: NumPyArray = -measured if y is None else y - measured
            return left

        batch = np.shape(squares)
        dtype = np.result_type(self._one.matrix.dtype, *(() if y is None else (y.dtype,)))
        return Deferred((*batch, self.m), dtype, np.sqrt(squares), weights, fetch)

    def _tangent(self, T: TangentSpace) -> TangentDesign:
        return DaskDesign(self, T)

    def _row_norms(self) -> Array:
        return self._joined(self._ask(_row_norms, [], total=False))


class DaskDesign(TangentDesign):
    """Tangent design of rows on workers: only T and sums of size dof travel."""

    A: DaskOperator

    def matvec(self, c: Array) -> Array:
        """Return D c. m numbers travel."""
        return self.A.forward(self.T.tensor(c))

    def rmatvec(self, r: Array) -> Array:
        """Return D^* r. A vector of measurements travels there, dof numbers come back."""
        return self.A._ask(_projected_adjoint, [r], self.T, total=True)[0]

    def misfit(self, y: Array, weights: Array | None = None) -> tuple[Array, Array]:
        """Residual, whose norm is known, and D^* W r: dof numbers from each worker."""
        squares, gradient = self.A._ask(_projected_misfit, [y, weights], self.T, total=True)
        return self.A._deferred(self.T.X, y, weights, squares), gradient

    def rows(self) -> Iterator[tuple[slice, Array]]:
        """D, all of it: m dof numbers travel."""
        blocks = self.A._ask(_design_rows, [], self.T, total=False)
        yield slice(0, self.A.m), np.swapaxes(self.A._joined(blocks), -1, -2)

    def normal_equations(self, y: Array, weights: Array | None = None) -> NormalEquations:
        """D^* W D and D^* W r: dof^2 numbers from each group of chunks, summed on the workers."""
        gram, gradient, squares = self.A._ask(_equations, [y, weights], self.T, total=True)
        return NormalEquations(gram, gradient, self.A._deferred(self.T.X, y, weights, squares))


# What workers compute from the operator of a piece and its parts of the vectors


def _answer(
    sources: Sequence[Any],
    vectors: Sequence[Any],
    action: Action,
    pieces: Sequence[Piece],
    one: DenseOperator,
    wrap: Any,
    total: bool,
    arguments: tuple[Any, ...],
) -> Any:
    """Result of a group: the sum over its pieces, or a list."""
    answers: list[Any] = []
    for k, source in enumerate(sources):
        matrix = source() if callable(source) else source
        part = one._like_this(matrix)
        rows = pieces[k].rows
        block: Any = part if _is_all(rows, part.m) else part._restrict(rows)
        given = [None if v is None else v[k] for v in vectors]
        answer = action(block if wrap is None else wrap(block), *given, *arguments)
        if not all(map(all_finite, answer if total else [answer])):
            _refuse_nan(block.matrix, pieces[k])
        if total and answers:
            answer = tuple(a + b for a, b in zip(answers.pop(), answer, strict=True))
        answers.append(answer)
    return answers[0] if total else answers


def _is_all(rows: Any, m: int) -> bool:
    return isinstance(rows, slice) and rows == slice(0, m)


def _refuse_nan(matrix: NumPyArray, piece: Piece) -> None:
    """Name the row that is not finite, if it is the matrix that is not."""
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if bad.size:
        rows = piece.rows
        row = rows.start + bad[0] if isinstance(rows, slice) else rows[bad[0]]
        raise ValueError(
            f"A has NaN or infinite entries, in row {row} of its chunk {piece.chunk}. "
            "Leave those measurements out: A[dask.array.isfinite(A).all(axis=1)], with "
            "compute_chunk_sizes(), and the same entries of y."
        )


def _forward(block: MeasurementOperator, X: Any) -> Array:
    return block._forward_tucker(X) if isinstance(X, TuckerTensor) else block._forward(X)


def _adjoint(block: MeasurementOperator, v: Array) -> tuple[Array]:
    return (block._adjoint(v),)


def _square(residual: Array, weights: Array | None) -> Any:
    """Return the weighted sum of squares, one for each problem of a batch."""
    v = residual if weights is None else np.sqrt(weights) * residual
    length = norm(v, batch_ndim=v.ndim - 1)
    return length * length


def _misfit(block: MeasurementOperator, y: Array, w: Array, X: Array) -> tuple[Any, Array]:
    residual, gradient = block._misfit(X, y, w)
    return _square(residual, w), gradient


def _squares(block: MeasurementOperator, y: Array, w: Array, X: Any) -> tuple[Any]:
    measured = _forward(block, X)
    return (_square(measured if y is None else y - measured, w),)


def _projected_adjoint(block: MeasurementOperator, r: Array, T: TangentSpace) -> tuple[Array]:
    return (block.tangent(T).rmatvec(r),)


def _projected_misfit(
    block: MeasurementOperator, y: Array, w: Array, T: TangentSpace
) -> tuple[Any, Array]:
    residual, gradient = block.tangent(T).misfit(y, w)
    return _square(residual, w), gradient


def _equations(
    block: MeasurementOperator, y: Array, w: Array, T: TangentSpace
) -> tuple[Array, Array, Any]:
    gram, gradient, residual = block.tangent(T).normal_equations(y, w)
    return gram, gradient, _square(residual, w)


def _design_rows(block: MeasurementOperator, T: TangentSpace) -> Array:
    return np.swapaxes(block.tangent(T).dense(), -1, -2)


def _row_norms(block: MeasurementOperator) -> Array:
    return block._row_norms()


def _both(A: MeasurementOperator, first: Wrap, then: Wrap) -> MeasurementOperator:
    return then(first(A))


# Which rows of which chunks


def _of_range(rows: Any, starts: NumPyArray, ends: NumPyArray) -> list[Piece]:
    """Pieces of successive rows: views."""
    chunks = np.flatnonzero((starts < rows.stop) & (ends > rows.start))
    pieces = []
    for k in chunks.tolist():
        low, high = max(rows.start, int(starts[k])), min(rows.stop, int(ends[k]))
        local = slice(low - int(starts[k]), high - int(starts[k]))
        pieces.append(Piece(k, local, slice(low - rows.start, high - rows.start)))
    return pieces


def _of_set(rows: Any, starts: NumPyArray, ends: NumPyArray) -> list[Piece]:
    """Pieces of any rows, in any order, some more than once."""
    numbers = np.asarray(rows)
    chunk_of = np.searchsorted(ends, numbers, side="right")
    pieces = []
    for k in np.unique(chunk_of).tolist():
        place = np.flatnonzero(chunk_of == k)
        pieces.append(Piece(k, numbers[place] - starts[k], place))
    return pieces


def from_dask(
    array: Any,
    shape: tuple[int, ...] | None = None,
    *,
    order: Order = "C",
    client: Any = None,
    keep: bool | None = None,
) -> DaskOperator:
    r"""Measurements by the rows of a Dask array, which stay on their workers.

    On a cluster every worker holds some chunks, and computes their contributions:
    :math:`D_b^* D_b` and :math:`D_b^* r_b` for a Gauss-Newton step, the small result of one block
    for RSGD and StoTIHT, :math:`\mathcal{A}_b^*(r_b)` for TIHT. X is always local.

    Parameters
    ----------
    array : dask.array.Array, shape (m, N) or (m, n_1, ..., n_d)
        Chunked along rows only; chunks of 50 to 500 MB are good.
    shape : tuple of int, optional
        Shape of the tensors; needed if the rows are vectors.
    order : "C" or "F"
        How the rows of an (m, N) array were vectorised.
    client : distributed.Client or str, optional
        The cluster, or the address of its scheduler. By default the client of the session, if
        there is one; without a cluster the threads of this process compute.
    keep : bool, optional
        Whether chunks stay in the workers' memory. By default, if they fit; otherwise they are
        computed again in every pass, and for every block of StoTIHT and RSGD.

    Notes
    -----
    In every pass over the rows each thread of a worker gets one task, with X (or the tangent
    space) in it, and returns one result: dof^2 numbers for a Gauss-Newton step, dof for RCG, N for
    TIHT. No vector of length m travels, except y, once; the client holds y and X. If a worker dies,
    the others load its chunks again: the result is the same, bit for bit. Worthwhile above about
    100 MB per pass, or if A does not fit into the memory of one machine.

    Examples
    --------
    >>> import dask.array as da, lowtucker as lt
    >>> X_true = lt.random_tucker((10, 10, 10), (2, 2, 2), seed=0)
    >>> rows = da.random.default_rng(1).standard_normal((600, 1000), chunks=(200, -1))
    >>> A = lt.from_dask(rows, (10, 10, 10))
    >>> A
    DaskOperator: 600 measurements of tensors of shape (10, 10, 10) (0.6 per entry)
    >>> lt.recover(A, A.forward(X_true), rank=(2, 2, 2)).success
    True
    """
    if not is_dask(array):
        raise TypeError(
            f"array must be a Dask array, got {type(array).__name__}. Try "
            "dask.array.from_array(array, chunks=(1000, -1)), or give the array itself to recover."
        )
    shape = _checked_shape(array, shape)
    if keep is not None:
        as_flag(keep, "keep")
    order = "C" if array.ndim > 2 else check_order(order)
    if isinstance(client, str):
        from lowtucker.operators.connection import connect

        client = connect(client)
    A = DaskOperator(_as_rows(array), shape, order=order, client=client, keep=keep)
    _ = A.engine  # refuses unsuitable workers before any work
    return A


def _checked_shape(array: Any, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    if array.ndim < 2:
        raise ValueError(
            f"array must have one row per measurement, (m, N), got shape {array.shape}."
        )
    if any(math.isnan(n) for n in array.shape):
        raise ValueError(
            f"array has chunks of unknown sizes, shape {array.shape}: which rows belong to which "
            "measurements is not known. Try array.compute_chunk_sizes() first."
        )
    given = tuple(int(n) for n in array.shape)
    split = [axis for axis in range(1, array.ndim) if array.numblocks[axis] > 1]
    if split:
        whole = ", ".join(f"{axis}: -1" for axis in range(1, array.ndim))
        raise ValueError(
            f"array is chunked along axis {split[0]}, into {array.numblocks[split[0]]} parts: a "
            f"chunk must hold whole rows. Try array.rechunk({{0: 'auto', {whole}}})."
        )
    return shape_of_rows(given, shape, "array")


def _as_rows(array: Any) -> Any:
    """Array of shape (m, N), row-major and of single or double precision, chunk by chunk."""
    dtype = np.dtype(array.dtype).newbyteorder("=")
    if dtype.kind not in "biufc" or dtype.char in "gG":
        raise TypeError(
            f"array holds {dtype}, expected numbers of single or double precision. Try "
            "array.astype(float)."
        )
    dtype = dtype if dtype.char in "fdFD" else np.dtype(np.float64)
    kept = [n for n in array.chunks[0] if n]
    if len(kept) < len(array.chunks[0]):  # chunks without rows
        array = array.rechunk({0: tuple(kept)})
    return array.map_blocks(
        _row_major,
        dtype,
        chunks=(array.chunks[0], (size(array.shape[1:]),)),
        drop_axis=list(range(1, array.ndim)),
        new_axis=1,
        dtype=dtype,
        meta=np.empty((0, 0), dtype),
    )


def _row_major(chunk: Any, dtype: Any, block_info: Any = None) -> NumPyArray:
    """Rows of a chunk; checks the output of the loader, which Dask does not."""
    if is_scipy_sparse(chunk):
        check_sparse(chunk, "a chunk of A")
    dense = chunk.toarray() if hasattr(chunk, "toarray") else np.asarray(chunk)
    if block_info:
        wanted = tuple(stop - start for start, stop in block_info[0]["array-location"])
        complex_rows = dense.dtype.kind == "c" and dtype.kind != "c"
        if dense.shape != wanted or complex_rows:
            raise ValueError(
                f"Chunk {block_info[0]['chunk-location'][0]} of A is an array of shape "
                f"{dense.shape} and dtype {dense.dtype}, but the Dask array "
                f"declares {wanted} and {dtype}. Correct its loader, or the shape and dtype "
                "given to from_delayed."
            )
    return np.ascontiguousarray(dense.reshape(len(dense), -1), dtype)


def _session_client() -> Any:
    """Client of the session, where one was made."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None

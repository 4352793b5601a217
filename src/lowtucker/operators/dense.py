"""Measurements by a matrix in memory, or by a batch of matrices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    Rows,
    all_finite,
    as_flag,
    as_float_dtype,
    as_shape,
    as_tensor,
    conj,
    in_precision_of,
    is_complex,
    is_numpy,
    like,
    namespace,
    pad_and_stack,
    real_dtype,
    size,
)
from lowtucker.operators.arguments import common_batch
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.design import DenseDesign, TangentDesign
from lowtucker.operators.matrix import MatrixOperator, Order, check_order
from lowtucker.operators.tiles import (
    TILE_BYTES,
    adjoint_times,
    as_rows,
    joined_parts,
    parts,
    tiled_misfit,
    tiled_norms,
    times,
    wide_dtype,
    with_parts,
)
from lowtucker.operators.traits import Traits
from lowtucker.tensor.products import norm
from lowtucker.tensor.tangent import TangentSpace

__all__ = ["BatchedBlocks", "DenseOperator"]

NumPyArray = np.ndarray[Any, Any]


class DenseOperator(MatrixOperator):
    r"""Measurements by a matrix in memory.

    Parameters
    ----------
    matrix : array, shape (m, N), (m, n_1, ..., n_d), or (*batch, m, N) for a batch
        Row i is the vectorised sensing tensor :math:`A_i` (complex: its conjugate, so that
        ``forward`` is ``matrix @ vec(X)``). It is not copied: a NumPy matrix may be in row-major
        or column-major memory, of integers, booleans or half precision.
    shape : tuple of int, optional
        Shape of the tensors; may be omitted if ``matrix`` is (m, n_1, ..., n_d).
    order : "C" or "F"
        How the rows of an (m, N) matrix were vectorised.
    dtype : dtype, optional
        Dtype of the tensors; the matrix's by default, double for integers and booleans, single
        for half precision. A real dtype with a complex matrix means
        real tensors from complex measurements: the adjoint is then the real part. A complex
        dtype with a real matrix measures complex tensors. The precision is the matrix's.
    isotropic : bool
        Whether rows may be treated as drawn i.i.d. from one isotropic distribution, as Gaussian
        rows are; see :class:`lowtucker.Traits`.

    Notes
    -----
    ``forward`` and ``adjoint`` cost 2 m N flops and one pass over the matrix each (two if a real
    matrix measures a complex tensor). ``misfit`` needs one pass over a row-major NumPy matrix, real
    or complex, and two over column-major ones and other arrays. No copy of the size of a NumPy
    matrix is ever made: integers and half precision are widened in tiles of 1 MiB, and tensors are
    cast to the matrix's precision rather than the matrix to theirs.

    Examples
    --------
    >>> import numpy as np
    >>> A = DenseOperator(np.ones((2, 3, 4)))
    >>> A.shape, A.m
    ((3, 4), 2)
    >>> A.forward(np.ones((3, 4)))
    array([12., 12.])
    """

    takes_rows_per_problem = True
    traits = Traits(
        row_separable=True,
        has_fast_tangent=True,
        supports_batch=True,
        has_fast_row_norms=True,
        has_batch_tangent=True,
    )
    # Whether these are rows of a file, and their reading is counted already
    kept: bool = False

    def __init__(
        self,
        matrix: Array,
        shape: tuple[int, ...] | None = None,
        *,
        order: Order = "C",
        dtype: Any = None,
        isotropic: bool = True,
    ) -> None:
        if not as_flag(isotropic, "isotropic"):
            self.traits = replace(self.traits, isotropic=False)
        matrix = as_rows(matrix, "matrix")
        self.shape, self.order = _split_shape(matrix, shape, check_order(order))
        d = len(self.shape)
        if matrix.ndim == d + 1 and tuple(matrix.shape[1:]) == self.shape:
            matrix, self.order = _flattened(matrix, self.order)
        if not all_finite(matrix):
            raise ValueError(
                "matrix has NaN or infinite entries. Leave out the measurements they belong to."
            )
        self._set(matrix, dtype)

    def _set(self, matrix: Array, dtype: Any) -> None:
        self._wide = wide_dtype(matrix)  # the dtype that products are computed in
        self._complex_matrix = is_complex(matrix)
        self._complex_domain = self._complex_matrix
        if dtype is not None:
            self._complex_domain = "complex" in str(as_float_dtype(dtype, matrix))
        self.dtype = in_precision_of(self._wide, matrix, is_complex=self._complex_domain)
        self.tiles = is_numpy(matrix)  # whether `misfit` may go tile by tile
        self._set_rows(matrix)

    def _set_rows(self, matrix: Array) -> None:
        self.matrix = matrix
        # of the matrix's kind, in a dtype that tensors can have
        self.prototype = np.empty(0, self._wide) if matrix.dtype != self._wide else matrix
        self.m = int(matrix.shape[-2])
        self.batch_shape = tuple(matrix.shape[:-2])

    def _like_this(self, matrix: Array) -> DenseOperator:
        """Operator of other rows, without the checks."""
        other = object.__new__(DenseOperator)
        other.__dict__.update(self.__dict__)
        other._set_rows(matrix)
        return other

    @property
    def rows_read(self) -> int:
        """Rows that a product reads."""
        return 0 if self.kept else self.m

    def rows_in_memory(self) -> Array | None:
        """Return the rows as tensors; None for batches, and arrays other than NumPy's.

        A view of the matrix, unless it has to be widened.
        """
        if not self.tiles or self.batch_shape:
            return None
        return self._unvec(self.matrix.astype(self._wide, copy=False))

    def row_heads(self, count: int) -> Array | None:
        """Return columns of a NumPy matrix; None for batches and other arrays."""
        if not self.tiles or self.batch_shape:
            return None
        return self.matrix[:, :count]

    def _vec(self, X: Array) -> Array:
        return super()._vec(self._cast(X))

    def _cast(self, x: Array) -> Array:
        """Cast a small array to the matrix's precision; real stays real, complex complex."""
        if x.dtype == self._wide:
            return x
        wanted = in_precision_of(self._wide, self.matrix, is_complex=is_complex(x))
        return x if x.dtype == wanted else namespace(x).astype(x, wanted)

    def _matvec(self, x: Array) -> Array:
        return with_parts(self._times, x, self._complex_matrix)

    def _rmatvec(self, v: Array) -> Array:
        return with_parts(self._adjoint_times, self._cast(v), self._complex_matrix)

    def _times(self, x: Array) -> Array:
        xp, A = namespace(x, self.matrix), self.matrix
        x = xp.astype(x, self._wide) if x.dtype != self._wide else x
        if A.dtype != self._wide:
            return self._each(times, x, self.m)
        if A.ndim == 2:
            return A @ x if x.ndim == 1 else xp.matmul(x, xp.matrix_transpose(A))
        return xp.matmul(A, x[..., None])[..., 0]

    def _adjoint_times(self, v: Array) -> Array:
        # A^* v = conj(conj(v) A): conjugates the small vector, not the matrix
        xp, A = namespace(v, self.matrix), self.matrix
        v = xp.astype(v, self._wide) if v.dtype != self._wide else v
        if A.dtype != self._wide:
            return self._each(adjoint_times, v, A.shape[-1])
        v = conj(v)
        out = xp.matmul(v, A) if A.ndim == 2 else xp.matmul(v[..., None, :], A)[..., 0, :]
        return conj(out)

    def _each(self, product: Any, x: NumPyArray, length: int) -> NumPyArray:
        """Product of a NumPy matrix, or of every matrix of a batch, that has to be widened."""
        if not self.batch_shape:
            return np.asarray(product(self.matrix, x, self._wide))
        x = np.broadcast_to(x, (*self.batch_shape, x.shape[-1]))
        out = np.empty((*self.batch_shape, length), self._wide)
        for k in np.ndindex(*self.batch_shape):
            out[k] = product(self.matrix[k], x[k], self._wide)
        return out

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        if isinstance(rows, tuple):
            matrices = self._items(len(rows))
            blocks = [_take(A, one) for A, one in zip(matrices, rows, strict=True)]
            return BatchedBlocks(blocks, self, self.batch_shape or (len(rows),))
        return self._like_this(_take(self.matrix, rows))

    def _select(self, trials: Sequence[int]) -> MeasurementOperator:
        return BatchedBlocks([self._item(k) for k in trials], self, (len(trials),))

    def _trial(self, k: int) -> MeasurementOperator:
        return self._like_this(self._item(k))

    def _items(self, count: int) -> Iterable[Array]:
        """Matrices of all problems, as views."""
        if self.tiles and len(self.batch_shape) == 1:
            views: Iterable[Array] = self.matrix  # NumPy makes views faster than we index them
            return views
        return (self._item(k) for k in range(count))

    def _item(self, k: int) -> Array:
        """Matrix of one problem, as a view."""
        if len(self.batch_shape) == 1:
            return self.matrix[k, ...]
        if not self.batch_shape:
            return self.matrix
        return self.matrix[(*map(int, np.unravel_index(k, self.batch_shape)), ...)]

    def _misfit(self, X: Array, y: Array, weights: Array | None) -> tuple[Array, Array]:
        if not self.tiles:
            return super()._misfit(X, y, weights)
        x, y = self._vec(X), self._cast(y)
        if self.batch_shape:
            x = np.broadcast_to(x, (*self.batch_shape, x.shape[-1]))
            y = np.broadcast_to(y, (*self.batch_shape, self.m))
        w = None if weights is None else self._cast(weights)
        residual, gradient = self._by_parts(self._rows_once, x, y, w)
        return residual, self._unvec(gradient)

    def _by_parts(
        self, rows_once: Any, x: NumPyArray, y: NumPyArray, weights: NumPyArray | None
    ) -> tuple[NumPyArray, NumPyArray]:
        """Misfit by ``rows_once``, which cannot mix a real matrix with complex vectors."""
        if self._complex_matrix:
            residual, gradient = rows_once(x, y, weights)
            return residual, gradient if self._complex_domain else gradient.real
        if self._complex_domain:  # real and imaginary parts side by side in one product
            w = None if weights is None else weights[..., None, :]
            residual, gradient = rows_once(parts(x), parts(y), w)
            return joined_parts(residual), joined_parts(gradient)
        if y.dtype.kind != "c":
            residual, gradient = rows_once(x, y, weights)
            return residual, gradient
        residual, gradient = rows_once(x, y.real, weights)  # A(X) is real
        return residual + 1j * y.imag, gradient

    def _rows_once(
        self, x: NumPyArray, y: NumPyArray, weights: NumPyArray | None
    ) -> tuple[NumPyArray, NumPyArray]:
        """Misfit of vectors, which may have a second axis of real and imaginary parts."""
        A = self.matrix
        batch = common_batch(x.shape[:-1], y.shape[:-1])
        residual = np.empty((*batch, self.m), dtype=self._wide)
        gradient = np.empty((*batch, x.shape[-1]), dtype=self._wide)
        if not self.batch_shape:
            tiled_misfit(A, x, y, weights, residual, gradient)
            return residual, gradient
        w = None if weights is None else np.broadcast_to(weights, y.shape)
        for k in np.ndindex(*self.batch_shape):
            wk = None if w is None else w[k]
            tiled_misfit(A[k], x[k], y[k], wk, residual[k], gradient[k])
        return residual, gradient

    def _tangent(self, T: TangentSpace) -> TangentDesign:
        return DenseDesign(self, T)

    def _row_norms(self) -> Array:
        if not self.tiles:
            return norm(self.matrix, batch_ndim=self.matrix.ndim - 1)
        each = [tiled_norms(self.matrix[k], self._wide) for k in np.ndindex(*self.batch_shape)]
        return np.reshape(each, self.matrix.shape[:-1])


class BatchedBlocks(MeasurementOperator):
    """A different block of rows for every problem of a batch: slices are views, sets are copied.

    Blocks of unequal length are padded with rows of zeros, which measure nothing.

    Parameters
    ----------
    matrices : sequence of arrays, shapes (b_k, N)
    one : DenseOperator
        The operator that the blocks come from: shape, order, dtype.
    batch_shape : tuple of int
    measured : NumPy array of bool, shape (problems, m), optional
        Which rows measure, if the ``matrices`` are padded with zeros already.
    """

    takes_rows_per_problem = True
    traits = DenseOperator.traits

    def __init__(
        self,
        matrices: Sequence[Array],
        one: DenseOperator,
        batch_shape: tuple[int, ...],
        measured: NumPyArray | None = None,
    ) -> None:
        self.matrices, self.one, self.batch_shape = matrices, one, batch_shape
        self.shape, self.dtype, self.prototype = one.shape, one.dtype, one.prototype
        if not one.traits.isotropic:
            self.traits = replace(self.traits, isotropic=False)
        lengths = [matrix.shape[0] for matrix in matrices]
        # a selection keeps the length of the batch, as its data do: short blocks may be all it has
        self.m = max(lengths) if measured is None else int(measured.shape[-1])
        if measured is None and min(lengths) < self.m:
            measured = np.arange(self.m) < np.asarray(lengths)[:, None]
        self.measured = measured

    @cached_property
    def count(self) -> Any:
        """Rows of each problem without the padding; m if there is none."""
        if self.measured is None:
            return self.m
        counts = self.measured.sum(axis=-1).reshape(self.batch_shape)
        return like(counts, self.prototype, real_dtype(self.prototype))

    @property
    def rows_read(self) -> int:
        """Rows that a product reads of one problem."""
        return 0 if self.one.kept else self.m

    def _blocks(self) -> list[DenseOperator]:
        return [self.one._like_this(matrix) for matrix in self.matrices]

    def _forward(self, X: Array) -> Array:
        flat, one = self._flat(X, len(self.shape)), self.one
        if one.tiles and (one._complex_matrix or not one._complex_domain):
            x = one._vec(flat)
            out = np.zeros((len(x), self.m), dtype=one._wide)
            wide = self.matrices[0].dtype == one._wide
            for A, v, seen in zip(self.matrices, x, out, strict=True):
                seen[: A.shape[0]] = A.dot(v) if wide else times(A, v, one._wide)
            return out.reshape(*self.batch_shape, self.m)
        return self._joined([b._forward(flat[k, ...]) for k, b in enumerate(self._blocks())])

    def _adjoint(self, v: Array) -> Array:
        flat = self._flat(v, 1)
        parts = [b._adjoint(flat[k, : b.m]) for k, b in enumerate(self._blocks())]
        xp = namespace(v)
        return xp.reshape(xp.stack(parts), (*self.batch_shape, *self.shape))

    def _misfit(self, X: Array, y: Array, weights: Array | None) -> tuple[Array, Array]:
        if not self.one.tiles:
            return super()._misfit(X, y, weights)
        x = self.one._vec(self._flat(X, len(self.shape)))
        y = self._flat(self.one._cast(y), 1)
        w = None if weights is None else self._flat(self.one._cast(weights), 1)
        residual, gradient = self.one._by_parts(self._rows_once, x, y, w)
        shape = (*self.batch_shape, gradient.shape[-1])
        return residual.reshape(*self.batch_shape, self.m), self.one._unvec(gradient.reshape(shape))

    def _rows_once(
        self, x: NumPyArray, y: NumPyArray, weights: NumPyArray | None
    ) -> tuple[NumPyArray, NumPyArray]:
        dtype = self.one._wide
        residual, gradient = np.array(y, dtype=dtype), np.empty(x.shape, dtype=dtype)
        largest = self.m * x.shape[-1] * dtype.itemsize
        simple = x.ndim == 2 and dtype.kind != "c" and self.matrices[0].dtype == dtype
        if simple and largest <= TILE_BYTES:
            self._small_rows_once(x, weights, residual, gradient)
            return residual, gradient
        for k, A in enumerate(self.matrices):
            b = A.shape[0]
            w = None if weights is None else weights[k, ..., :b]
            tiled_misfit(A, x[k], y[k, ..., :b], w, residual[k, ..., :b], gradient[k])
        return residual, gradient

    def _tangent(self, T: TangentSpace) -> TangentDesign:
        return GatheredDesign(self, T)

    def _unvec(self, x: Array) -> Array:
        return self.one._unvec(x)

    def _small_rows_once(
        self,
        x: NumPyArray,
        weights: NumPyArray | None,
        residual: NumPyArray,
        gradient: NumPyArray,
    ) -> None:
        """Subtract A x from ``residual``, and write the gradient: for blocks that fit the cache.

        A block is still there when it is read again. The loop does as little as it can beside the
        two products, which take some 4 us on Figure 1 of the paper (from the cache).
        """
        residuals: Iterable[NumPyArray] = residual
        if self.measured is not None:  # beside the padding
            residuals = [r[: A.shape[0]] for r, A in zip(residual, self.matrices, strict=True)]
        if weights is None:
            for A, v, r, g in zip(self.matrices, x, residuals, gradient, strict=True):
                r -= A.dot(v)
                r.dot(A, out=g)
            return
        for A, v, r, w, g in zip(self.matrices, x, residuals, weights, gradient, strict=True):
            r -= A.dot(v)
            (r * w[: A.shape[0]]).dot(A, out=g)

    def _row_norms(self) -> Array:
        return self._joined([b._row_norms() for b in self._blocks()])

    def _trial(self, k: int) -> MeasurementOperator:
        return self.one._like_this(self.matrices[k])

    def _select(self, trials: Sequence[int]) -> MeasurementOperator:
        measured = None if self.measured is None else self.measured[list(trials)]
        return BatchedBlocks([self.matrices[k] for k in trials], self.one, (len(trials),), measured)

    def arranged(self, batch_shape: tuple[int, ...]) -> MeasurementOperator:
        """Batch with its problems arranged along these leading axes."""
        return BatchedBlocks(self.matrices, self.one, batch_shape, self.measured)

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        each = rows if isinstance(rows, tuple) else (rows,) * len(self.matrices)
        if self.measured is None:
            pairs = zip(self.matrices, each, strict=True)
            return BatchedBlocks([_take(A, r) for A, r in pairs], self.one, self.batch_shape)
        # blocks of different length are gathered with their padding
        pairs = zip(self.matrices, each, strict=True)
        blocks = [_take(_lengthened(A, self.m), r) for A, r in pairs]
        measured = pad_and_stack([self.measured[k][r] for k, r in enumerate(each)])
        return BatchedBlocks(blocks, self.one, self.batch_shape, measured)

    def _flat(self, x: Array, core_ndim: int) -> Array:
        xp = namespace(x)
        core = x.shape[x.ndim - core_ndim :]
        x = xp.broadcast_to(x, (*self.batch_shape, *core))
        return xp.reshape(x, (len(self.matrices), *core))

    def _joined(self, parts: list[Array]) -> Array:
        joined = pad_and_stack(parts)
        xp, missing = namespace(joined), self.m - joined.shape[-1]
        if missing:
            zeros = like(np.zeros((len(parts), missing)), joined, joined.dtype)
            joined = xp.concat([joined, zeros], axis=-1)
        return xp.reshape(joined, (*self.batch_shape, self.m))


class GatheredDesign(DenseDesign):
    """Designs of a batch of blocks, whose rows are gathered tile by tile."""

    A: BatchedBlocks

    def _tile(self, rows: slice) -> Array:
        parts = [matrix[rows, :] for matrix in self.A.matrices]
        if self.A.measured is not None:
            height = min(rows.stop, self.A.m) - rows.start
            parts = [_lengthened(part, height) for part in parts]
        tile, wide = namespace(parts[0]).stack(parts), self.A.one._wide
        return tile if tile.dtype == wide else tile.astype(wide)


def _lengthened(matrix: Array, height: int) -> Array:
    """Matrix with rows of zeros below, which measure nothing."""
    zeros = like(np.zeros((height - matrix.shape[0], matrix.shape[1])), matrix, matrix.dtype)
    return namespace(matrix).concat([matrix, zeros], axis=0)


def _split_shape(matrix: Array, shape: Any, order: Order) -> tuple[tuple[int, ...], Order]:
    """Shape of the tensors, and the order to read the rows in."""
    if matrix.ndim < 2:
        raise ValueError(
            f"matrix must have one row per measurement, got shape {tuple(matrix.shape)}."
        )
    as_tensor(matrix, "matrix")
    if shape is None:
        if matrix.ndim == 2:
            raise ValueError(
                f"shape is needed to read the rows of a matrix of shape {tuple(matrix.shape)} as "
                f"tensors. Try shape=(30, 30, 10), or shape=({matrix.shape[1]},) for vectors."
            )
        return tuple(int(n) for n in matrix.shape[1:]), "C"
    shape = as_shape(shape)
    if matrix.ndim == len(shape) + 1 and tuple(matrix.shape[1:]) == shape:
        return shape, order if len(shape) == 1 else "C"
    if matrix.shape[-1] != size(shape):
        raise ValueError(
            f"matrix has rows of {matrix.shape[-1]} entries (shape {tuple(matrix.shape)}), but "
            f"tensors of shape {shape} have {size(shape)}. Check shape, or transpose the matrix."
        )
    return shape, order


def _flattened(matrix: Array, order: Order) -> tuple[Array, Order]:
    """Rows as vectors, and their order: a view of a NumPy array in row- or column-major memory."""
    flat = (matrix.shape[0], size(matrix.shape[1:]))
    if isinstance(matrix, np.ndarray) and matrix.ndim > 2 and matrix.flags.fnc:
        return matrix.reshape(flat, order="F"), "F"
    return namespace(matrix).reshape(matrix, flat), order


def _take(matrix: Array, rows: Rows) -> Array:
    if isinstance(rows, slice):
        return matrix[rows, :] if matrix.ndim == 2 else matrix[..., rows, :]
    return namespace(matrix).take(matrix, like(rows, matrix), axis=-2)

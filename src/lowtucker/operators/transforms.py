"""Coefficients of a fast orthonormal transform, with or without random signs before it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np

from lowtucker._array import (
    Array,
    Rows,
    as_array_shape,
    as_choice,
    as_flag,
    as_integer,
    conj,
    is_complex,
    real,
    size,
)
from lowtucker._array.linalg import svd
from lowtucker._array.memory import check_room
from lowtucker._array.random import Seed, Stream, generator
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.entries import EntriesOperator
from lowtucker.operators.factored import FactoredOperator, weighted_sum
from lowtucker.operators.traits import Traits
from lowtucker.tensor.products import product
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["SeparableTransformOperator", "TransformOperator", "subsampled_transform"]

NumPyArray = np.ndarray[Any, Any]
# Largest Hadamard matrix that is multiplied by: longer transforms are Kronecker products of these
PIECE = 64


class Transform(ABC):
    """Orthonormal transform F of tensors of one shape: the product of those of the modes.

    Attributes
    ----------
    spectrum : tuple of int
        Shape of the output of :meth:`all_modes`.
    count : int
        The number of coefficients to choose from.
    """

    # Smallest dtype of coefficients
    least: ClassVar[Any] = np.float32

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = self.spectrum = shape
        self.count = size(shape)

    def index(self, chosen: NumPyArray) -> NumPyArray:
        """Indices (m, d) of coefficients, given by numbers below ``count``."""
        return np.stack(np.unravel_index(chosen, self.shape), axis=1)

    @abstractmethod
    def all_modes(self, X: NumPyArray, *, overwrite: bool = False) -> NumPyArray:
        """Transform a tensor: F X."""

    @abstractmethod
    def all_modes_adjoint(self, Y: NumPyArray) -> NumPyArray:
        """Go back, overwriting: F^* Y, its real part where the tensors are real."""

    @abstractmethod
    def one_mode(self, U: NumPyArray) -> NumPyArray:
        """Transform the columns of a matrix."""

    @abstractmethod
    def one_mode_adjoint(self, W: NumPyArray) -> NumPyArray:
        """Apply the conjugate transpose of :meth:`one_mode`."""

    def measure(self, X: NumPyArray, at: NumPyArray, *, overwrite: bool = False) -> NumPyArray:
        r"""Coefficients of :math:`\sqrt N F X` at some places of the flat spectrum."""
        coefficients = self.all_modes(X, overwrite=overwrite).reshape(-1)[at]
        return math.sqrt(size(self.shape)) * coefficients

    def spread(self, v: NumPyArray, at: NumPyArray) -> NumPyArray:
        """Adjoint of :meth:`measure`."""
        Y = np.zeros(size(self.spectrum), dtype=np.result_type(v, self.least))
        np.add.at(Y, at, math.sqrt(size(self.shape)) * v)  # places may repeat
        return self.all_modes_adjoint(Y.reshape(self.spectrum))


class Cosine(Transform):
    """Discrete cosine transform, type 2."""

    def all_modes(self, X: NumPyArray, *, overwrite: bool = False) -> NumPyArray:
        from scipy.fft import dctn

        return np.asarray(dctn(X, norm="ortho", overwrite_x=overwrite))

    def all_modes_adjoint(self, Y: NumPyArray) -> NumPyArray:
        from scipy.fft import idctn

        return np.asarray(idctn(Y, norm="ortho", overwrite_x=True))

    def one_mode(self, U: NumPyArray) -> NumPyArray:
        from scipy.fft import dct

        return np.asarray(dct(U, axis=0, norm="ortho"))

    def one_mode_adjoint(self, W: NumPyArray) -> NumPyArray:
        from scipy.fft import idct

        return np.asarray(idct(W, axis=0, norm="ortho"))


class Hadamard(Transform):
    """Walsh-Hadamard transform, in the natural order; symmetric, so its own inverse."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        wrong = [k for k, n in enumerate(shape) if n & (n - 1)]
        if wrong:
            modes = ", ".join(f"{shape[k]} (mode {k})" for k in wrong)
            raise ValueError(
                f'kind="hadamard" needs a power of two in every mode, got shape {shape} with '
                f'{modes}. Try kind="dct".'
            )

    def all_modes(self, X: NumPyArray, *, overwrite: bool = False) -> NumPyArray:
        # the Kronecker product of the modes' matrices is the Hadamard matrix of the whole
        return _hadamard(X.reshape(-1)).reshape(X.shape)

    def all_modes_adjoint(self, Y: NumPyArray) -> NumPyArray:
        return self.all_modes(Y)

    def one_mode(self, U: NumPyArray) -> NumPyArray:
        return _hadamard(U)

    def one_mode_adjoint(self, W: NumPyArray) -> NumPyArray:
        return _hadamard(W)


def _hadamard(X: NumPyArray) -> NumPyArray:
    """Orthonormal Hadamard transform along the first axis."""
    pieces, left = [], len(X)
    while left > 1:
        pieces.append(min(left, PIECE))
        left //= pieces[-1]
    out = X.reshape(*pieces, *X.shape[1:])
    for k, n in enumerate(pieces):
        i = np.arange(n)
        H = (1.0 - 2.0 * (np.bitwise_count(i[:, None] & i) % 2)) / math.sqrt(n)
        out = product(out, H.astype(X.real.dtype), k, 0)
    return out.reshape(X.shape)


class Fourier(Transform):
    """Fourier transform of real tensors; one of each pair of conjugate coefficients."""

    least: ClassVar[Any] = np.complex64

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.spectrum = (*shape[:-1], shape[-1] // 2 + 1)
        self.count = _pairs(shape)

    def index(self, chosen: NumPyArray) -> NumPyArray:
        """Indices (m, d), the last at most n_d / 2, no two of them conjugates.

        If the last index is 0 or n_d / 2, those of the other modes are chosen in the same way;
        otherwise they are free.
        """
        index = np.zeros((len(chosen), len(self.shape)), dtype=np.int64)
        rows = np.arange(len(chosen))
        for k in reversed(range(len(self.shape))):
            before, n = self.shape[:k], self.shape[k]
            between = size(before) * ((n - 1) // 2)
            free = chosen < between
            index[rows[free], k] = 1 + chosen[free] // size(before)
            others = np.unravel_index(chosen[free] % size(before), (1, *before))
            index[rows[free], :k] = np.stack(others, axis=1)[:, 1:]
            rows, chosen = rows[~free], chosen[~free] - between
            index[rows, k] = chosen // _pairs(before) * (n // 2)
            chosen = chosen % _pairs(before)
        return index

    def all_modes(self, X: NumPyArray, *, overwrite: bool = False) -> NumPyArray:
        from scipy.fft import rfftn

        return np.asarray(rfftn(_must_be_real(X), norm="ortho", overwrite_x=overwrite))

    def all_modes_adjoint(self, Y: NumPyArray) -> NumPyArray:
        from scipy.fft import irfftn

        Y[..., 1 : (self.shape[-1] + 1) // 2] *= 0.5  # irfftn adds their conjugates
        return np.asarray(irfftn(Y, self.shape, norm="ortho", overwrite_x=True))

    def one_mode(self, U: NumPyArray) -> NumPyArray:
        from scipy.fft import fft

        return np.asarray(fft(_must_be_real(U), axis=0, norm="ortho"))

    def one_mode_adjoint(self, W: NumPyArray) -> NumPyArray:
        from scipy.fft import ifft

        return np.asarray(ifft(W, axis=0, norm="ortho"))


def _pairs(shape: tuple[int, ...]) -> int:
    """Count frequencies, two that are conjugates as one."""
    own = size([2 - n % 2 for n in shape])  # 0 or n_k / 2 in every mode: their own conjugates
    return (size(shape) + own) // 2


def _must_be_real(X: NumPyArray) -> NumPyArray:
    if is_complex(X):
        raise TypeError(
            f'X must be real for kind="fft", got dtype {X.dtype}. Try kind="dct", which takes '
            "complex tensors, or measure the real and the imaginary parts."
        )
    return X


class TransformOperator(MeasurementOperator):
    """Coefficients of a tensor whose entries have random signs; see :func:`subsampled_transform`.

    Parameters
    ----------
    transform : Transform
    at : array of int, shape (m,)
        Places in the flat spectrum.
    signs : array of int8, +1 and -1, of the shape of the tensors
    """

    traits = Traits(has_fast_row_norms=True)  # a block costs a transform, as all the rows do

    def __init__(self, transform: Transform, at: NumPyArray, signs: NumPyArray) -> None:
        self.transform, self.at, self.signs = transform, at, signs
        self.shape, self.m = transform.shape, len(at)
        self.dtype = _tensor_dtype(transform)

    def _forward(self, X: Array) -> Array:
        return self.transform.measure(self.signs * X, self.at, overwrite=True)

    def _adjoint(self, v: Array) -> Array:
        out = self.transform.spread(v, self.at)
        out *= self.signs
        return out

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        return TransformOperator(self.transform, self.at[rows], self.signs)

    def _row_norms(self) -> Array:
        return np.full(self.m, math.sqrt(size(self.shape)))


class SeparableTransformOperator(FactoredOperator):
    """Coefficients of a tensor: rows are outer products; see :func:`subsampled_transform`.

    Parameters
    ----------
    transform : Transform
    index : array of int, shape (m, d)
        One row of frequencies for each coefficient.
    """

    traits = Traits(
        row_separable=True, has_fast_tangent=True, forms_full_tensor=False, has_fast_row_norms=True
    )

    def __init__(self, transform: Transform, index: NumPyArray) -> None:
        self.transform, self.index = transform, index
        self.at = np.ravel_multi_index(tuple(index.T), transform.spectrum)
        self.shape, self.m = transform.shape, len(index)
        self.dtype = _tensor_dtype(transform)

    def _mode_times(self, k: int, U: Array) -> Array:
        return math.sqrt(self.shape[k]) * self.transform.one_mode(U)[self.index[:, k]]

    def _mode_adjoint(self, k: int, W: Array) -> Array:
        import scipy.sparse

        n, m = self.shape[k], self.m
        ones = np.full(m, math.sqrt(n), dtype=W.real.dtype)
        scatter = scipy.sparse.csc_array((ones, self.index[:, k], np.arange(m + 1)), shape=(n, m))
        return self.transform.one_mode_adjoint(scatter @ W)

    def _mode_rows(self, k: int, rows: slice) -> Array:
        n = self.shape[k]
        different, which = np.unique(self.index[rows, k], return_inverse=True)
        units = np.zeros((n, len(different)))
        units[different, np.arange(len(different))] = math.sqrt(n)
        return self.transform.one_mode_adjoint(units).conj().T[which]

    def _forward(self, X: Array) -> Array:
        return self.transform.measure(X, self.at)

    def _adjoint(self, v: Array) -> Array:
        return self.transform.spread(v, self.at)

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        return SeparableTransformOperator(self.transform, self.index[rows])

    def _spectral_start(self, v: Array, rank: tuple[int, ...]) -> TuckerTensor:
        """Start as for sampled entries: the coefficients are entries of F X, of the same rank.

        No full tensor is formed; memory: n_k^2 numbers.
        """
        index, values, fourier = self.index, v, isinstance(self.transform, Fourier)
        if fourier:  # the coefficients of a real tensor are conjugate in pairs
            index = np.concatenate([index, -index % np.asarray(self.shape)])
            values = np.concatenate([v, v.conj()]) / 2
        factors = []
        for U in EntriesOperator(self.shape, index)._spectral_start(values, rank).factors:
            W = self.transform.one_mode_adjoint(U)
            if fourier:  # real vectors, but for phases
                both = np.concatenate([W.real, W.imag], axis=1)
                W = svd(both)[0][:, : U.shape[1]]
            factors.append(W)
        core = weighted_sum(v, [conj(self._mode_times(k, U)) for k, U in enumerate(factors)])
        return TuckerTensor.trusted(np.reshape(real(core) if fourier else core, rank), factors)

    def _row_norms(self) -> Array:
        return np.full(self.m, math.sqrt(size(self.shape)))


def _tensor_dtype(transform: Transform) -> Any:
    """Dtype to find tensors in: real for Fourier coefficients, else that of the measurements."""
    return np.dtype(np.float64) if isinstance(transform, Fourier) else None


KINDS: dict[str, Callable[[tuple[int, ...]], Transform]] = {
    "dct": Cosine,
    "fft": Fourier,
    "hadamard": Hadamard,
}


def subsampled_transform(
    shape: tuple[int, ...],
    m: int,
    kind: Literal["dct", "fft", "hadamard"] = "dct",
    signs: bool = True,
    seed: Seed = 0,
) -> MeasurementOperator:
    r"""Random coefficients of a fast transform: rows are not stored.

    .. math:: y_j = \sqrt N \, \big(F (s \odot X)\big)_{\omega_j}, \quad j = 1, \dots, m

    F is the orthonormal transform of all modes, s are i.i.d. signs, one for each of the N entries,
    and :math:`\omega` are m different places, drawn without replacement. As for
    :func:`lowtucker.gaussian`, :math:`\tfrac1m \|\mathcal{A}(X)\|^2 \approx \|X\|_F^2`.

    Parameters
    ----------
    shape : tuple of int
    m : int
        The number of coefficients: at most N, or (for "fft") at most the number of frequencies of
        which no two are conjugates, about N / 2.
    kind : "dct", "fft" or "hadamard"
        Discrete cosine transform; Fourier transform, with complex measurements of real tensors;
        Walsh-Hadamard transform, where every :math:`n_k` is a power of two.
    signs : bool
        Without signs, most measurements of a smooth tensor are zero, and the others may not be
        among those that were drawn.
    seed : int, or (int, trial)
        The coefficients are the same with and without signs.

    Notes
    -----
    With signs: ``forward``, ``adjoint`` and any block of rows cost one transform,
    :math:`O(N \log N)` flops, and a few tensors of memory; the signs take N bytes.

    Without signs each row is an outer product of rows of the modes' transforms. Memory: m d
    numbers. Measuring a TuckerTensor costs :math:`O(m \prod r_k + \sum n_k r_k \log n_k)`, and
    so does a product with the tangent design; neither forms a full tensor, nor does the start.

    Arrays are NumPy's. ``forward`` and ``adjoint`` keep single precision; a :class:`Problem` of
    Fourier coefficients is in double precision.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.subsampled_transform((16, 16, 16), m=500, seed=1)
    >>> X_true = lt.random_tucker((16, 16, 16), (2, 2, 2), seed=0)
    >>> result = lt.recover(A, A.forward(X_true), rank=(2, 2, 2))
    >>> result.success, lt.metrics.relative_error(result.X, X_true) < 1e-5
    (True, True)
    """
    shape, m = as_array_shape(shape), as_integer(m, "m")
    as_choice(kind, "kind", tuple(KINDS))
    as_flag(signs, "signs")
    transform = KINDS[kind](shape)
    if m > transform.count:
        raise ValueError(
            f'm must be at most {transform.count}, the number of different "{kind}" coefficients '
            f"of a tensor of shape {shape}, got {m}."
        )
    # NumPy draws many of them from a permutation of all
    need = 8 * (transform.count if 50 * m > transform.count else m * (4 + len(shape)))
    check_room(need, f"Drawing m = {m} of {transform.count} coefficients", "Try fewer.")
    rng = generator(seed, Stream.OPERATOR)
    index = transform.index(rng.choice(transform.count, m, replace=False))
    separable = SeparableTransformOperator(transform, index)
    if not signs:
        return separable
    advice = "Try signs=False, which needs no array of the full size."
    check_room(2 * size(shape), f"Signs for a tensor of shape {shape}", advice)
    s = 2 * rng.integers(0, 2, shape, dtype=np.int8) - 1
    return TransformOperator(transform, separable.at, s)

r"""Tensors of low tubal rank: the t-SVD of Kilmer and Martin (2011), for three modes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from lowtucker._array import (
    Array,
    adjoint,
    all_finite,
    as_float,
    as_integer,
    as_tensor,
    conj,
    eps,
    in_precision_of,
    is_complex,
    like,
    moved_axis,
    namespace,
    per_trial,
    real,
    reshaped,
    size,
    to_numpy,
)
from lowtucker._array.linalg import qr, svdvals
from lowtucker._array.memory import check_full
from lowtucker.tensor.decompose import leading_left, safely_scaled
from lowtucker.tensor.iterate import NO_LAYOUT, Iterate, checked_indices
from lowtucker.tensor.products import norm
from lowtucker.tensor.tucker import orthonormality_defect
from lowtucker.thresholding.network import by_chunks, contiguous, square_spectral_norm
from lowtucker.thresholding.protocol import ThresholdingDefaults

__all__ = ["Tubal", "TubalTensor"]


@dataclass(frozen=True, repr=False, eq=False)
class TubalTensor(Iterate):
    r"""Tensor of three modes and low tubal rank: a t-product of two thin tensors.

    .. math:: \mathbf{X} = \mathbf{L} * \mathbf{V}^*, \qquad
              X_{ijk} = \sum_{a \le r} \sum_{s} L_{i,a,(k+s) \bmod n_3} \overline{V_{j,a,s}}

    In terms of Fourier slices, the matrices of the discrete Fourier transform along mode 3:
    :math:`\hat X_k = \hat L_k \hat V_k^*`, with orthonormal columns of :math:`\hat V_k`. The arrays
    of a real tensor are real.

    Parameters
    ----------
    left : array, shape (*batch, n_1, r, n_3)
    right : array, shape (*batch, n_2, r, n_3)
        With orthonormal Fourier slices.

    Notes
    -----
    Memory: :math:`r (n_1 + n_2) n_3` numbers.

    Examples
    --------
    >>> import numpy as np
    >>> X = Tubal(1)(np.ones((4, 5, 6)))
    >>> X
    TubalTensor of shape (4, 5, 6), tubal rank 1: 54 numbers instead of 120 (2.22x)
    >>> bool(np.allclose(X.full(), 1))
    True
    """

    left: Array
    right: Array

    def __post_init__(self) -> None:
        """Lay the arrays out as files do: rounding must not depend on where they come from."""
        object.__setattr__(self, "left", contiguous(self.left))
        object.__setattr__(self, "right", contiguous(self.right))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (n_1, n_2, n_3), without the leading axes."""
        return (self.left.shape[-3], self.right.shape[-3], self.left.shape[-1])

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of a batch; () for one tensor."""
        return tuple(self.left.shape[:-3])

    @property
    def rank(self) -> int:
        """The tubal rank: a bound on the ranks of the Fourier slices."""
        return int(self.left.shape[-2])

    @property
    def degrees_of_freedom(self) -> int:
        """Degrees of freedom of the tensors of its shape and rank."""
        return _degrees_of_freedom(self.rank, self.shape)

    def parts(self) -> dict[str, Array]:
        """Return the two factors."""
        return {"left": self.left, "right": self.right}

    @classmethod
    def from_parts(
        cls, parts: Mapping[str, Array], layout: Mapping[str, Any] = NO_LAYOUT
    ) -> TubalTensor:
        """Build from the arrays of :meth:`parts`, which are not checked."""
        return cls(parts["left"], parts["right"])

    def validated(self) -> TubalTensor:
        """Return the tensor, its parts checked as those of a file must be."""
        left, right = as_float(self.left, "left"), as_float(self.right, "right")
        fits = left.ndim == right.ndim >= 3 and left.shape[-2:] == right.shape[-2:]
        if not (fits and left.shape[:-3] == right.shape[:-3] and size(right.shape)):
            raise ValueError(f"left {tuple(left.shape)} does not fit right {tuple(right.shape)}")
        if not (all_finite(left) and all_finite(right)) or left.dtype != right.dtype:
            raise ValueError("left or right has NaN or infinite entries, or another dtype")
        defect = max(orthonormality_defect(V) for V in _slices(right))
        if defect:
            raise ValueError(f"right is not orthonormal: |V^T V - I| reaches {defect:.1e}")
        return self

    def full(self) -> Array:
        """Return the full tensor, shape (*batch, n_1, n_2, n_3).

        Cost: r N flops of products, and the Fourier transforms.
        """
        check_full((*self.batch_shape, *self.shape), self.left.dtype)
        pairs = zip(_slices(self.left), _slices(self.right), strict=True)
        return _from_slices([_matmul(L, adjoint(V)) for L, V in pairs], self.shape[2])

    def norm(self) -> Array:
        """Frobenius norm, shape (*batch,), which is that of the left factor."""
        return norm(self.left, batch_ndim=len(self.batch_shape))

    def project(self, G: Array) -> TubalTensor:
        r"""Project a full tensor onto those with the same right factor, :math:`G * V * V^*`."""
        pairs = zip(_slices(G), _slices(self.right), strict=True)
        left = _from_slices([_matmul(g, V) for g, V in pairs], self.shape[2])
        return TubalTensor(left, self.right)

    def entries(self, indices: Any) -> Array:
        """Return the elements at ``indices``, shape (*batch, k), without forming the full tensor.

        Cost: 2 k r n_3 flops.

        Parameters
        ----------
        indices : integer array, shape (k, 3)
            One row of 0-based indices per element.
        """
        index = checked_indices(indices, self.shape)
        return by_chunks(self._entries, index, self.rank * self.shape[2])

    def _entries(self, index: np.ndarray[Any, Any]) -> Array:
        i, j, k = (index[:, m, None] for m in range(3))
        depth = self.shape[2]
        along = np.arange(depth)
        L = _rows(self.left, i * depth + (k + along) % depth)
        V = _rows(self.right, j * depth + along)
        return namespace(L).sum(L * conj(V), axis=-1)

    def compress(self, rank: int | None = None) -> TubalTensor:
        """Truncate to a lower tubal rank; by default drop only what is zero up to rounding.

        Cost: an eigendecomposition of order r for each Fourier slice.
        """
        stacks = _slices(self.left)
        if rank is None:
            if self.batch_shape:
                raise ValueError(
                    "compress needs a rank for a batch: the ranks of its tensors may differ."
                )
            rank = _numerical_rank(stacks)
        rank = as_integer(rank, "rank", 1, self.rank)
        turns = [leading_left(adjoint(L), rank) for L in stacks]
        left, right = (
            _from_slices([_matmul(S, W) for S, W in zip(of, turns, strict=True)], self.shape[2])
            for of in (stacks, _slices(self.right))
        )
        return TubalTensor(left, right)

    def __add__(self, other: TubalTensor) -> TubalTensor:
        """Return the sum, of tubal rank at most the sum of the ranks."""
        self._check_partner(other)
        xp = namespace(self.left)
        left, right = (
            _slices(xp.concat(pair, axis=-2))
            for pair in ([self.left, other.left], [self.right, other.right])
        )
        pairs = [qr(V) for V in right]
        moved = [_matmul(L, adjoint(R)) for L, (_, R) in zip(left, pairs, strict=True)]
        depth = self.shape[2]
        return TubalTensor(_from_slices(moved, depth), _from_slices([Q for Q, _ in pairs], depth))

    def __mul__(self, number: Any) -> TubalTensor:
        """Multiply by a number, or by one for each tensor of a batch."""
        left, right = self.left * self._factor(number, self.left), self.right
        if is_complex(left) and not is_complex(right):
            right = namespace(right).astype(right, left.dtype)
        return TubalTensor(left, right)

    def __repr__(self) -> str:
        rows, columns, depth = self.shape
        return self._described("tubal rank", self.rank * (rows + columns) * depth)


@dataclass(frozen=True)
class Tubal(ThresholdingDefaults):
    r"""Truncate the SVDs of the Fourier slices along mode 3: the t-SVD.

    .. math:: H_r(Z) = \arg\min \{ \|X - Z\| : \mathrm{rank}(\hat X_k) \le r
              \text{ for every Fourier slice} \}

    The best approximation of tubal rank r (Kilmer, Martin 2011), for tensors of three modes; mode 3
    is the one along which they are transformed, such as the time of a video.

    Parameters
    ----------
    rank : int
        r, at most n_1 and n_2.

    Notes
    -----
    Cost: the Fourier transforms; :math:`2 N n_2` flops and an eigendecomposition of order
    :math:`n_2` for each slice. Real tensors need half of the slices.

    Examples
    --------
    >>> import lowtucker as lt
    >>> X = lt.random_tensor(lt.Tubal(1), (6, 6, 4), seed=0)
    >>> A = lt.gaussian((6, 6, 4), m=120, seed=1)
    >>> result = lt.recover(A, A.forward(X), lt.Tubal(1))
    >>> result.success, lt.metrics.relative_error(result.X, X) < 1e-5
    (True, True)
    """

    rank: int

    def __post_init__(self) -> None:
        """Check the rank by itself; against the shape when a tensor comes."""
        object.__setattr__(self, "rank", as_integer(self.rank, "rank"))

    @property
    def eta(self) -> float:
        """1: the truncation is the best approximation."""
        return 1.0

    def for_shape(self, shape: tuple[int, ...]) -> Self:
        """Return itself; raise ValueError where tensors of that shape have no such tubal rank."""
        if len(shape) != 3:
            raise ValueError(
                f"Tubal takes tensors of three modes, got shape {shape}. Try "
                "lowtucker.TensorTrain or lowtucker.HOSVD, or reshape the modes into three."
            )
        if self.rank > min(shape[:2]):
            raise ValueError(
                f"Tubal({self.rank}) exceeds the largest tubal rank of a tensor of shape {shape}, "
                f"which is {min(shape[:2])}. Try Tubal({min(shape[:2])}) at most."
            )
        return self

    def degrees_of_freedom(self, shape: tuple[int, ...]) -> int:
        """Return r (n_1 + n_2 - r) n_3."""
        self.for_shape(shape)
        return _degrees_of_freedom(self.rank, shape)

    def block_size(self, shape: tuple[int, ...]) -> int:
        r"""Return two Gaussian rows for a degree of freedom of one Fourier slice.

        Measured for 14x14x8 and 10x20x5 at rank 2, and two measurements for a degree of freedom, 3
        problems each: all are recovered with these blocks, in 52 and 60 epochs, and none with
        blocks of ``degrees_of_freedom`` rows.
        """
        return 2 * (self.degrees_of_freedom(shape) // shape[2])

    def noise_gain(self, shape: tuple[int, ...]) -> float:
        r"""Return :math:`(\sqrt{n_1} + \sqrt{n_2})^2`: the squared spectral norm of a slice.

        Measured for 10x10x6 at rank 1 and 12x12x6 at rank 2, with short blocks, of a quarter of the
        degrees of freedom, and two to four measurements for each: 36 of 36 problems, in 13 to 56
        epochs; with :math:`n_3` times as much, the bound for all slices, 35 of 36 in 20 to 184.
        Without a bound it is nearly the same (36 of 36): it acts on still shorter blocks only.
        """
        return square_spectral_norm(shape[0], shape[1])

    def __call__(self, Z: Array) -> TubalTensor:
        """Approximate Z, shape (*batch, n_1, n_2, n_3)."""
        Z = as_float(as_tensor(Z, "Z"), "Z")
        self.for_shape(tuple(Z.shape[-3:]))
        Z, scale = safely_scaled(Z, 3)
        depth, stacks = Z.shape[-1], _slices(Z)
        bases = [leading_left(adjoint(S), self.rank) for S in stacks]
        left = [_matmul(S, V) for S, V in zip(stacks, bases, strict=True)]
        X = TubalTensor(_from_slices(left, depth), _from_slices(bases, depth))
        if scale is None:
            return X
        factor = per_trial(reshaped(scale, X.batch_shape), X.left)
        return replace(X, left=X.left * factor)


def _degrees_of_freedom(rank: int, shape: tuple[int, ...]) -> int:
    rows, columns, depth = shape
    return rank * (rows + columns - rank) * depth


def _slices(X: Array) -> list[Array]:
    """Fourier slices of tensors (*batch, p, q, n), as batches of matrices (*batch, count, p, q).

    Those of a real tensor that are real, of frequency 0 and n/2, are a batch of their own, and real
    arrays: what is computed of them is real then. Of the others one half is left out.
    """
    xp, n = namespace(X), X.shape[-1]
    transform = xp.fft.fft if is_complex(X) else xp.fft.rfft
    slices = moved_axis(transform(X, axis=-1), X.ndim - 1, X.ndim - 3)
    if is_complex(X):
        return [slices]
    middle = slices[..., 1 : (n + 1) // 2, :, :]
    ends = real(xp.concat([slices[..., :1, :, :], slices[..., (n + 1) // 2 :, :, :]], axis=-3))
    # n = 1: frequency 0 is all there is, and stands at both ends
    return [ends[..., : 2 - n % 2, :, :], middle] if n > 2 else [ends[..., :n, :, :]]


def _from_slices(stacks: list[Array], n: int) -> Array:
    """Tensors of the batches of :func:`_slices`."""
    first, xp = stacks[0], namespace(stacks[0])
    last = first.ndim - 1
    if is_complex(first):
        return xp.fft.ifft(moved_axis(first, last - 2, last), axis=-1)
    ends = xp.astype(first, in_precision_of(first.dtype, first, is_complex=True))
    slices = xp.concat([ends[..., :1, :, :], *stacks[1:], ends[..., 1:, :, :]], axis=-3)
    return xp.fft.irfft(moved_axis(slices, last - 2, last), n=n, axis=-1)


def _matmul(A: Array, B: Array) -> Array:
    return namespace(A, B).matmul(A, B)


def _rows(part: Array, places: np.ndarray[Any, Any]) -> Array:
    """Numbers of a factor (*batch, n, r, n_3) at positions (k, n_3), shape (*batch, k, n_3 r)."""
    xp, batch = namespace(part), tuple(part.shape[:-3])
    n, r, depth = part.shape[-3:]
    flat = reshaped(moved_axis(part, part.ndim - 1, part.ndim - 2), (*batch, n * depth, r))
    some = xp.take(flat, like(np.ravel(places), part), axis=-2)
    return reshaped(some, (*batch, len(places), depth * r))


def _numerical_rank(stacks: list[Array]) -> int:
    """Largest number of singular values of a slice above rounding error; 1 at least."""
    values = np.concat([to_numpy(svdvals(S)) for S in stacks], axis=-2)
    cut = 16 * values.shape[-1] * eps(stacks[0]) * values.max()
    return max(1, int((values > cut).sum(axis=-1).max()))

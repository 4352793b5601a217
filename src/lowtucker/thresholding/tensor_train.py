r"""Tensor trains: one core of three axes for each mode (Oseledets 2011)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    adjoint,
    all_finite,
    as_float,
    as_float_on,
    conj,
    like,
    moved_axis,
    namespace,
    reshaped,
    size,
)
from lowtucker._array.linalg import qr, svd
from lowtucker._array.memory import check_full
from lowtucker.tensor.decompose import leading_left
from lowtucker.tensor.iterate import NO_LAYOUT
from lowtucker.thresholding.network import (
    Network,
    NetworkTruncation,
    matrix_of,
    named_arrays,
    numerical_rank,
    square_spectral_norm,
)

__all__ = ["TTTensor", "TensorTrain"]


@dataclass(frozen=True, repr=False, eq=False)
class TTTensor(Network):
    r"""Tensor train: cores of three axes, all of them left-orthonormal but the last.

    .. math:: X_{i_1 \ldots i_d} = G^{(1)}_{i_1} G^{(2)}_{i_2} \cdots G^{(d)}_{i_d},

    where :math:`G^{(k)}_i` is an :math:`r_{k-1} \times r_k` matrix, and :math:`r_0 = r_d = 1`.

    Parameters
    ----------
    bases : tuple of d - 1 arrays, shapes (*batch, r_{k-1}, n_k, r_k)
        The first cores; each is orthonormal as a matrix of r_k columns.
    root : array, shape (*batch, r_{d-1}, n_d, 1)
        The last core.

    See Also
    --------
    TTTensor.from_cores : of any cores.

    Notes
    -----
    Memory: :math:`\sum_k r_{k-1} n_k r_k` numbers.

    Examples
    --------
    >>> import numpy as np
    >>> X = TensorTrain((1, 2))(np.add.outer(np.ones((3, 4)), np.arange(5.0)))
    >>> X
    TTTensor of shape (3, 4, 5), rank (1, 2): 21 numbers instead of 60 (2.86x)
    """

    @classmethod
    def from_cores(cls, cores: Sequence[Array]) -> TTTensor:
        """Build from any cores, shapes (*batch, r_{k-1}, n_k, r_k), which are orthonormalised.

        Cost: a QR decomposition of each core.

        Examples
        --------
        >>> import numpy as np
        >>> X = TTTensor.from_cores([np.ones((1, 3, 2)), np.ones((2, 4, 1))])
        >>> X.full()[0].round(12)
        array([2., 2., 2., 2.])
        """
        first, *others = cores
        first = as_float(first, "cores[0]")
        rest = [as_float_on(G, first, f"cores[{k}]", "cores[0]") for k, G in enumerate(others, 1)]
        if not rest:
            raise ValueError("cores must have two entries at least, one for each mode; got 1.")
        given = cls((first, *rest[:-1]), rest[-1])
        given._check_shapes()
        for k, core in enumerate(given.cores):
            if not (size(core.shape) and all_finite(core)):
                raise ValueError(f"cores[{k}] is empty, or has NaN or infinite entries.")
        return cls._swept([[core] for core in given.cores], given.batch_shape)

    @classmethod
    def _swept(cls, cores: list[list[Array]], batch: tuple[int, ...]) -> TTTensor:
        """Sum of trains, whose k-th cores are together in a list, by QR from left to right."""
        bases: list[Array] = []
        transfers = [like(np.ones((*batch, 1, 1)), G, G.dtype) for G in cores[0]]
        for k, some in enumerate(cores):
            moved = [_times(R, G) for R, G in zip(transfers, some, strict=True)]
            if k == len(cores) - 1:
                return cls(tuple(bases), sum(moved[1:], moved[0]))
            joined = namespace(*moved).concat(moved, axis=-1)
            Q, R = qr(matrix_of(joined, batch))
            bases.append(reshaped(Q, (*joined.shape[:-1], Q.shape[-1])))
            ends = np.cumsum([G.shape[-1] for G in some])
            transfers = [R[..., b - G.shape[-1] : b] for G, b in zip(some, ends, strict=True)]
        raise AssertionError("a train has a last core")

    @classmethod
    def from_parts(
        cls, parts: Mapping[str, Array], layout: Mapping[str, Any] = NO_LAYOUT
    ) -> TTTensor:
        """Build from the arrays of ``parts()``, which are not checked."""
        return cls(*named_arrays(parts))

    def _check_shapes(self) -> None:
        batch = tuple(self.root.shape[:-3])
        rank = 1
        for k, G in enumerate(self.cores):
            if G.ndim != len(batch) + 3 or tuple(G.shape[:-2]) != (*batch, rank):
                raise ValueError(
                    f"cores[{k}] must have shape ({', '.join(map(str, (*batch, rank)))}, n, r), "
                    f"got {tuple(G.shape)}."
                )
            rank = G.shape[-1]
        if rank != 1:
            raise ValueError(f"the last core must have one column, got {rank}.")

    @property
    def cores(self) -> tuple[Array, ...]:
        """All d cores."""
        return (*self.bases, self.root)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (n_1, ..., n_d), without the leading axes."""
        return tuple(G.shape[-2] for G in self.cores)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of a batch; () for one tensor."""
        return tuple(self.root.shape[:-3])

    @property
    def rank(self) -> tuple[int, ...]:
        """Sizes (r_1, ..., r_{d-1}) of the axes between the cores."""
        return tuple(G.shape[-1] for G in self.bases)

    @property
    def degrees_of_freedom(self) -> int:
        """Degrees of freedom of the tensors of its shape and attainable rank."""
        return _degrees_of_freedom(_attainable(self.rank, self.shape), self.shape)

    def full(self) -> Array:
        """Return all elements, shape (*batch, n_1, ..., n_d). Forms the full tensor."""
        batch = self.batch_shape
        check_full((*batch, *self.shape), self.root.dtype)
        X = self.cores[0]
        for G in self.cores[1:]:
            X = _times(matrix_of(X, batch), G)
        return reshaped(X, (*batch, *self.shape))

    def project(self, G: Array) -> TTTensor:
        """Project a full tensor onto the tensors with the same bases: the last core is free.

        Cost: about 2 N r_1 flops, where N is the number of elements of ``G``.
        """
        batch, rest, left = self.batch_shape, G, size(self.shape)
        for U, n in zip(self.bases, self.shape, strict=False):
            Q, left = matrix_of(U, batch), left // n
            rest = reshaped(rest, (*batch, Q.shape[-2], left))
            rest = namespace(rest, Q).matmul(adjoint(Q), rest)
        return TTTensor(self.bases, reshaped(rest, (*batch, *self.root.shape[-3:])))

    def _entries(self, index: Array) -> Array:
        xp, batch = namespace(self.root), self.batch_shape
        row = None
        for k, G in enumerate(self.cores):
            at = xp.take(G, like(index[:, k], G), axis=-2)
            at = moved_axis(at, len(batch) + 1, len(batch))  # (*batch, count, r_{k-1}, r_k)
            row = at if row is None else xp.matmul(row, at)
        return row[..., 0, 0]  # type: ignore[index]

    def inner(self, other: TTTensor) -> Array:
        """Return the inner product with another tensor train, shape (*batch,).

        Cost: about 2 d n r^3 flops; the full tensors are not formed.
        """
        self._check_partner(other)
        batch, xp = self.batch_shape, namespace(self.root)
        gram = like(np.ones((*batch, 1, 1)), self.root, self.root.dtype)
        for G, F in zip(self.cores, other.cores, strict=True):
            moved = matrix_of(_times(xp.matrix_transpose(gram), G), batch)
            gram = xp.matmul(xp.matrix_transpose(moved), conj(matrix_of(F, batch)))
        return gram[..., 0, 0]

    def compress(self, rank: tuple[int, ...] | int | None = None) -> TTTensor:
        r"""Truncate to a lower rank: the TT-SVD of the full tensor, by way of the cores.

        By default drops only what is zero up to rounding.

        Notes
        -----
        Cost: QR decompositions from right to left and SVDs from left to right of the cores, some
        :math:`d n r^3` flops; the full tensor is not formed.

        Examples
        --------
        >>> import numpy as np
        >>> X = TensorTrain(2)(np.random.default_rng(0).standard_normal((3, 4, 5)))
        >>> (X + X).rank, (X + X).compress().rank
        ((3, 4), (2, 2))
        """
        batch, cores = self.batch_shape, list(self.cores)
        for k in range(len(cores) - 1, 0, -1):  # orthonormal from the right
            G = cores[k]
            flat = reshaped(G, (*batch, G.shape[-3], G.shape[-2] * G.shape[-1]))
            Q, R = qr(adjoint(flat))
            cores[k] = reshaped(adjoint(Q), (*batch, Q.shape[-1], *G.shape[-2:]))
            cores[k - 1] = _from_right(cores[k - 1], adjoint(R))
        xp, bases, kept = namespace(self.root), [], self._rank_to_keep(rank, [0] * len(self.rank))
        for k, most in enumerate(kept):
            U, s, Vh = svd(matrix_of(cores[k], batch))
            r = min(most, s.shape[-1]) if rank is not None else numerical_rank(s)
            bases.append(reshaped(U[..., :r], (*cores[k].shape[:-1], r)))
            rest = xp.astype(s[..., :r, None], Vh.dtype) * Vh[..., :r, :]
            cores[k + 1] = _times(rest, cores[k + 1])
        return TTTensor(tuple(bases), cores[-1])

    def __add__(self, other: TTTensor) -> TTTensor:
        """Return the sum, of rank at most the sum of the ranks."""
        self._check_partner(other)
        pairs = [list(pair) for pair in zip(self.cores, other.cores, strict=True)]
        return TTTensor._swept(pairs, self.batch_shape)


@dataclass(frozen=True)
class TensorTrain(NetworkTruncation):
    r"""TT-SVD: truncate the unfoldings of the first k modes against the others, from k = 1 on.

    .. math:: \|H(Z) - Z\|^2 \le \sum_{k<d} \sum_{i > r_k} \sigma_i(Z_{(1..k)})^2
              \le (d - 1) \|Z_{best} - Z\|^2

    TIHT with it is the TT-TIHT of Rauhut, Schneider and Stojanac (2017).

    Parameters
    ----------
    rank : tuple of d - 1 int, or int
        :math:`r_k` bounds the rank of the unfolding of the first k modes. An int stands for that
        rank everywhere, or the largest attainable one.

    Notes
    -----
    Cost: :math:`2 N n_1` flops for the Gram matrix of the first unfolding and less for the others,
    each with an eigendecomposition of order :math:`r_{k-1} n_k`.

    Examples
    --------
    >>> import lowtucker as lt
    >>> H = lt.TensorTrain((2, 2, 2))
    >>> X = lt.random_tensor(H, (5, 5, 5, 5), seed=0)
    >>> A = lt.gaussian((5, 5, 5, 5), m=300, seed=1)
    >>> result = lt.recover(A, A.forward(X), H)
    >>> result.success, lt.metrics.relative_error(result.X, X) < 1e-5
    (True, True)
    """

    @property
    def eta(self) -> float:
        r"""Proven bound :math:`\sqrt{d - 1}`; NaN as long as the number of modes is not known."""
        return math.nan if isinstance(self.rank, int) else math.sqrt(len(self.rank))

    @property
    def _order(self) -> int | None:
        return None if isinstance(self.rank, int) else len(self.rank) + 1

    def _count(self, order: int) -> int:
        return order - 1

    def _attainable(self, rank: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
        return _attainable(rank, shape)

    def degrees_of_freedom(self, shape: tuple[int, ...]) -> int:
        r"""Return :math:`\sum_k r_{k-1} n_k r_k - \sum_{k<d} r_k^2` at the attainable rank."""
        return _degrees_of_freedom(self._rank_for(shape), shape)

    def matricisations(self, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
        """List the unfoldings of the first k modes, with their ranks."""
        return [(tuple(range(k + 1)), r) for k, r in enumerate(self._rank_for(shape))]

    def noise_gain(self, shape: tuple[int, ...]) -> float:
        r"""Return :math:`\min_k (\sqrt{n_1 \cdots n_k} + \sqrt{n_{k+1} \cdots n_d})^2`.

        A tensor train is of low rank in every unfolding, so that the squarest one bounds the noise
        that is left. Measured for 9^4 and 3^7 at rank 2, with 3, 4 and 8 measurements for a degree
        of freedom and the default blocks: 35 of 36 problems, in 12 to 60 epochs (medians of 6);
        with the maximum in place of the minimum 28, in 16 to 168; without a bound 34, in 12 to 70.
        Blocks of half that length need the bound: 33 of 36, and 16 without it.
        """
        return min(square_spectral_norm(size(shape[:k]), size(shape[k:]))
                   for k in range(1, len(shape)))  # fmt: skip

    def _truncated(self, Z: Array, batch: tuple[int, ...]) -> TTTensor:
        shape, left, bases = tuple(Z.shape[len(batch) :]), 1, []
        rank: Any = self.rank
        for k, r in enumerate(rank):
            Z = reshaped(Z, (*batch, left * shape[k], size(shape[k + 1 :])))
            Q = leading_left(Z, r)
            bases.append(reshaped(Q, (*batch, left, shape[k], r)))
            Z, left = namespace(Z).matmul(adjoint(Q), Z), r
        return TTTensor(tuple(bases), reshaped(Z, (*batch, left, shape[-1], 1)))


def _attainable(rank: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """No r_k exceeds n_k r_{k-1}, nor n_{k+1} r_{k+1}."""
    bound, forwards = 1, []
    for r, n in zip(rank, shape, strict=False):
        bound = min(r, n * bound)
        forwards.append(bound)
    bound, backwards = 1, []
    for r, n in zip(reversed(forwards), reversed(shape), strict=False):
        bound = min(r, n * bound)
        backwards.append(bound)
    return tuple(reversed(backwards))


def _degrees_of_freedom(rank: tuple[int, ...], shape: tuple[int, ...]) -> int:
    sizes = zip((1, *rank), shape, (*rank, 1), strict=True)
    return sum(a * n * b for a, n, b in sizes) - sum(r * r for r in rank)


def _times(matrix: Array, G: Array) -> Array:
    """Matrix (*batch, p, r) times a core (*batch, r, n, s) along its first axis."""
    batch = tuple(G.shape[:-3])
    flat = reshaped(G, (*batch, G.shape[-3], G.shape[-2] * G.shape[-1]))
    out = namespace(matrix, G).matmul(matrix, flat)
    return reshaped(out, (*batch, matrix.shape[-2], *G.shape[-2:]))


def _from_right(G: Array, matrix: Array) -> Array:
    """Core (*batch, r, n, s) times a matrix (*batch, s, p) along its last axis."""
    batch = tuple(G.shape[:-3])
    out = namespace(G, matrix).matmul(matrix_of(G, batch), matrix)
    return reshaped(out, (*G.shape[:-1], matrix.shape[-1]))

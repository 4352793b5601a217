"""The Tucker format: a small core and an orthonormal factor for each mode, equation (2.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    adjoint,
    all_finite,
    as_float,
    as_float_on,
    eps,
    kind,
    like,
    namespace,
    size,
)
from lowtucker._array.linalg import qr
from lowtucker._array.memory import check_full
from lowtucker.tensor.iterate import NO_LAYOUT, Iterate, checked_indices
from lowtucker.tensor.products import inner, multi_mode_product, norm, product, shifted

__all__ = ["CHUNK", "TuckerTensor", "orthonormality_defect"]

# Entries computed at a time by `entries`: bounds the memory by CHUNK * prod(r) numbers.
CHUNK = 1 << 16


@dataclass(frozen=True, repr=False, eq=False)
class TuckerTensor(Iterate):
    r"""Tensor in Tucker format: core and orthonormal factors, equation (2.1).

    .. math:: \mathbf{X} = \mathbf{S} \times_1 \mathbf{U}^{(1)} \cdots \times_d \mathbf{U}^{(d)}

    Parameters
    ----------
    core : array, shape (*batch, r_1, ..., r_d)
    factors : sequence of d arrays, shapes (*batch, n_k, r_k), orthonormal columns

    See Also
    --------
    TuckerTensor.from_factors : accepts factors that are not orthonormal.

    Notes
    -----
    Memory: :math:`\prod r_k + \sum n_k r_k` numbers. Leading axes are batch axes.

    Examples
    --------
    >>> import numpy as np
    >>> X = TuckerTensor(np.ones((1, 1)), [np.eye(3)[:, :1], np.eye(4)[:, :1]])
    >>> X
    TuckerTensor of shape (3, 4), rank (1, 1): 8 numbers instead of 12 (1.5x)
    >>> float(X.norm())
    1.0
    """

    core: Array
    factors: tuple[Array, ...]

    # For parts that are known to be right: skip the checks
    _trusted: InitVar[bool] = field(default=False, kw_only=True)

    def __post_init__(self, _trusted: bool) -> None:
        """Check the arguments. Internal code uses :meth:`trusted`."""
        if _trusted:
            return
        core, factors = _checked_parts(self.core, self.factors)
        for k, U in enumerate(factors):
            defect = orthonormality_defect(U)
            if defect:
                raise ValueError(
                    f"factors[{k}] must have orthonormal columns, but |U^T U - I| reaches "
                    f"{defect:.1e}. Try TuckerTensor.from_factors(core, factors)."
                )
        object.__setattr__(self, "core", core)
        object.__setattr__(self, "factors", factors)

    @classmethod
    def trusted(cls, core: Array, factors: Sequence[Array]) -> TuckerTensor:
        """Build from valid parts, without checking them."""
        return cls(core, tuple(factors), _trusted=True)

    @classmethod
    def from_factors(cls, core: Array, factors: Sequence[Array]) -> TuckerTensor:
        """Build from any factors, which are orthonormalised by QR.

        Examples
        --------
        >>> import numpy as np
        >>> X = TuckerTensor.from_factors(np.ones((1, 1)), [np.ones((3, 1)), np.ones((4, 1))])
        >>> bool(np.allclose(X.full(), np.ones((3, 4))))
        True
        """
        core, factors = _checked_parts(core, factors)
        pairs = [qr(U) for U in factors]
        return cls.trusted(multi_mode_product(core, [R for _, R in pairs]), [Q for Q, _ in pairs])

    @classmethod
    def from_tensorly(cls, tensor: Any) -> TuckerTensor:
        """Build from a Tucker tensor of TensorLy, or any other pair of core and factors.

        Factors with orthonormal columns, as ``tensorly.decomposition.tucker`` returns them, are
        used unchanged; others as in :meth:`from_factors`. TensorLy is not imported.

        Parameters
        ----------
        tensor : tensorly.TuckerTensor, or pair (core, factors)
            With NumPy, torch or JAX arrays.

        Examples
        --------
        >>> import numpy as np
        >>> TuckerTensor.from_tensorly((np.ones((1, 1)), [np.ones((3, 1)), np.ones((4, 1))]))
        TuckerTensor of shape (3, 4), rank (1, 1): 8 numbers instead of 12 (1.5x)
        """
        try:
            core, factors = tensor
            core, factors = as_float(core, "core"), tuple(factors)
        except (TypeError, ValueError) as error:
            raise type(error)(
                "tensor must be a Tucker tensor of TensorLy, or a pair (core, factors), got "
                f"{type(tensor).__name__}: {error}"
            ) from error
        if len(factors) != core.ndim:
            raise ValueError(
                f"tensor must have a factor for every mode of its core, got {len(factors)} for a "
                f"core of shape {tuple(core.shape)}. Is it a CP tensor? After partial_tucker, use "
                "identity matrices for the other modes."
            )
        core, factors = _checked_parts(core, factors)
        if any(orthonormality_defect(U) for U in factors):
            return cls.from_factors(core, factors)
        return cls.trusted(core, factors)

    def to_tensorly(self) -> Any:
        """Return a Tucker tensor of TensorLy with the same core and factors, not copied.

        Raises
        ------
        ImportError
            TensorLy is not installed.
        TypeError
            The backend of TensorLy uses another kind of array.
        ValueError
            TensorLy has no such tensors: this is a batch, or has one mode.

        Examples
        --------
        >>> from lowtucker import random_tucker
        >>> random_tucker((3, 4, 5), (1, 2, 2), seed=0).to_tensorly()
        Decomposed rank-(1, 2, 2) TuckerTensor of shape (3, 4, 5)
        """
        if self.batch_shape or self.order < 2:
            what = f"a batch of {self.batch_shape}" if self.batch_shape else "one mode"
            raise ValueError(
                f"TensorLy supports single Tucker tensors of two or more modes, got {what}. Try "
                "X.trial(k) for a tensor of a batch, X.full() for a vector."
            )
        try:
            import tensorly
        except ImportError as error:
            raise ImportError(
                "to_tensorly needs TensorLy, which is not installed. "
                'Try: pip install "lowtucker[bench]"'
            ) from error
        from tensorly.tucker_tensor import TuckerTensor as Theirs

        if not tensorly.is_tensor(self.core):
            raise TypeError(
                f"The tensor holds {kind(self.core)} arrays, but TensorLy uses the backend "
                f"{tensorly.get_backend()!r}. Try tensorly.set_backend(...) first."
            )
        return Theirs((self.core, list(self.factors)))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading batch axes; () for a single tensor."""
        return tuple(self.core.shape[: self.core.ndim - len(self.factors)])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (n_1, ..., n_d), without the batch axes."""
        return tuple(U.shape[-2] for U in self.factors)

    @property
    def rank(self) -> tuple[int, ...]:
        """Size (r_1, ..., r_d) of the core."""
        return tuple(U.shape[-1] for U in self.factors)

    @property
    def degrees_of_freedom(self) -> int:
        """Degrees of freedom of the tensors of its shape and attainable rank."""
        from lowtucker.tensor.rank import attainable_rank, degrees_of_freedom  # which knows this

        return degrees_of_freedom(self.shape, attainable_rank(self.rank))

    def full(self) -> Array:
        """Return all elements, shape (*batch, n_1, ..., n_d). Forms the full tensor."""
        X = self.core
        batch_ndim = X.ndim - len(self.factors)
        check_full((*X.shape[:batch_ndim], *self.shape), X.dtype)
        for k, U in enumerate(self.factors):
            X = product(X, U, k, batch_ndim)
        return X

    def parts(self) -> dict[str, Array]:
        """Return the arrays that make up the tensor, by name.

        Examples
        --------
        >>> from lowtucker import random_tucker
        >>> {name: part.shape for name, part in random_tucker((3, 4), (2, 2)).parts().items()}
        {'core': (2, 2), 'factor_0': (3, 2), 'factor_1': (4, 2)}
        """
        return {"core": self.core, **{f"factor_{k}": U for k, U in enumerate(self.factors)}}

    def _map(self, function: Callable[..., Array], *others: TuckerTensor) -> TuckerTensor:
        """Apply a function to the core and each factor: as the base class, without their names."""
        core = function(self.core, *(X.core for X in others))
        factors = zip(self.factors, *(X.factors for X in others), strict=True)
        return TuckerTensor.trusted(core, tuple(function(*parts) for parts in factors))

    @classmethod
    def from_parts(
        cls, parts: Mapping[str, Array], layout: Mapping[str, Any] = NO_LAYOUT
    ) -> TuckerTensor:
        """Build from the arrays of :meth:`parts`, which are used unchanged and not checked.

        Examples
        --------
        >>> from lowtucker import random_tucker
        >>> TuckerTensor.from_parts(random_tucker((3, 4), (1, 1)).parts())
        TuckerTensor of shape (3, 4), rank (1, 1): 8 numbers instead of 12 (1.5x)
        """
        names = ["core", *(f"factor_{k}" for k in range(len(parts) - 1))]
        if len(names) < 2 or set(names) != set(parts):
            raise ValueError(
                "parts must be named 'core', 'factor_0', 'factor_1', ..., as parts() returns "
                f"them, got {sorted(parts)}."
            )
        core, *factors = (parts[name] for name in names)
        return cls.trusted(core, factors)

    def validated(self) -> TuckerTensor:
        """Return the tensor, its core and factors checked as if a user had given them."""
        return TuckerTensor(self.core, self.factors)

    def project(self, G: Array) -> TuckerTensor:
        r"""Project a full tensor onto the span of the current factors.

        .. math:: \mathbf{G} \times_1 \mathbf{U}^{(1)} \mathbf{U}^{(1)*} \cdots
            \times_d \mathbf{U}^{(d)} \mathbf{U}^{(d)*}

        Parameters
        ----------
        G : array, shape (*batch, n_1, ..., n_d)

        Returns
        -------
        TuckerTensor
            With the factors of this one, and the core of
            :math:`\mathbf{G} \times_1 \mathbf{U}^{(1)*} \cdots \times_d \mathbf{U}^{(d)*}`.

        Notes
        -----
        Cost: about 2 N min(r_k) flops, where N is the number of elements of ``G``.

        Examples
        --------
        >>> import numpy as np
        >>> from lowtucker import random_tucker
        >>> X = random_tucker((3, 4), (1, 1), seed=0)
        >>> bool(np.allclose(X.project(X.full()).full(), X.full()))
        True
        """
        core = multi_mode_product(G, self.factors, transpose=True)
        return TuckerTensor.trusted(core, self.factors)

    def shifted(self, power: int) -> TuckerTensor:
        """Multiply by ``2**power``, exactly unless the elements overflow or underflow.

        Examples
        --------
        >>> from lowtucker import random_tucker
        >>> X = random_tucker((3, 4), (1, 1), seed=0)
        >>> bool((X.shifted(900).shifted(-900).core == X.core).all())
        True
        """
        return TuckerTensor.trusted(shifted(self.core, power), self.factors)

    def norm(self) -> Array:
        """Return the Frobenius norm, shape (*batch,), which is that of the core."""
        return norm(self.core, batch_ndim=len(self.batch_shape))

    def entries(self, indices: Any) -> Array:
        """Return the elements at ``indices``, without forming the full tensor.

        Parameters
        ----------
        indices : integer array, shape (k, d)
            One row of 0-based indices per element.

        Returns
        -------
        array, shape (*batch, k)

        Notes
        -----
        Cost: 2 k prod(r) flops, at most 65536 prod(r) numbers of memory at a time.

        Examples
        --------
        >>> import numpy as np
        >>> X = TuckerTensor.from_factors(np.ones((1, 1)), [np.ones((3, 1)), np.ones((4, 1))])
        >>> X.entries([[0, 0], [2, 3]]).round(12)
        array([1., 1.])
        """
        index = checked_indices(indices, self.shape)
        xp = namespace(self.core)
        count = index.shape[0]
        starts = range(0, max(1, count), CHUNK)
        parts = [self._entries(index[i : min(count, i + CHUNK), :]) for i in starts]
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=-1)

    def _entries(self, index: Array) -> Array:
        xp = namespace(self.core)
        batch, count = self.batch_shape, index.shape[0]
        partial = xp.reshape(self.core, (*batch, 1, size(self.rank)))
        for k, U in enumerate(self.factors):
            at = like(index[:, k], self.core)
            rows = xp.take(U, at, axis=-2)[..., :, None, :]
            rest = size(self.rank[k + 1 :])
            partial = xp.reshape(partial, (*batch, partial.shape[-2], self.rank[k], rest))
            partial = xp.reshape(xp.matmul(rows, partial), (*batch, count, rest))
        return partial[..., 0]

    def inner(self, other: TuckerTensor) -> Array:
        """Return the inner product with another tensor of the same shape, shape (*batch,)."""
        self._check_partner(other)
        gram = [
            namespace(U).matmul(adjoint(U), V)
            for U, V in zip(self.factors, other.factors, strict=True)
        ]
        moved = multi_mode_product(other.core, gram)
        return inner(self.core, moved, batch_ndim=len(self.batch_shape))

    def compress(self, rank: tuple[int, ...] | None = None) -> TuckerTensor:
        """Compress to ``rank`` by the truncated HOSVD of the core.

        By default, drops only directions that are zero up to rounding. Cost: an HOSVD of the
        core.
        """
        from lowtucker.tensor.decompose import hosvd
        from lowtucker.tensor.rank import multilinear_rank

        if rank is None:
            if self.batch_shape:
                raise ValueError(
                    "compress needs a rank for a batch: the ranks of its tensors may differ."
                )
            rank = tuple(max(1, r) for r in multilinear_rank(self.core))
        return hosvd(self, rank)

    def __add__(self, other: TuckerTensor) -> TuckerTensor:
        """Return the sum, of rank at most the sum of the ranks."""
        self._check_partner(other)
        xp = namespace(self.core, other.core)
        factors, left, right = [], [], []
        for U, V in zip(self.factors, other.factors, strict=True):
            Q, R = qr(xp.concat([U, V], axis=-1))
            factors.append(Q)
            left.append(R[..., : U.shape[-1]])
            right.append(R[..., U.shape[-1] :])
        core = multi_mode_product(self.core, left) + multi_mode_product(other.core, right)
        return TuckerTensor.trusted(core, factors)

    def __mul__(self, number: Any) -> TuckerTensor:
        """Return the product with a number, or with one number per tensor of a batch."""
        return TuckerTensor.trusted(self.core * self._factor(number, self.core), self.factors)

    def __repr__(self) -> str:
        stored = size(self.rank) + sum(n * r for n, r in zip(self.shape, self.rank, strict=True))
        return self._described("rank", stored)


def _checked_parts(core: Any, factors: Any) -> tuple[Array, tuple[Array, ...]]:
    core = as_float(core, "core")
    try:
        factors = tuple(factors)
    except TypeError:
        raise TypeError(
            f"factors must be a list with one matrix per mode, got {type(factors).__name__}."
        ) from None
    factors = tuple(as_float_on(U, core, f"factors[{k}]", "core") for k, U in enumerate(factors))
    if not 1 <= len(factors) <= core.ndim:
        raise ValueError(
            f"factors must have one matrix for each mode of the core, got {len(factors)} for a "
            f"core of shape {tuple(core.shape)}."
        )
    batch, rank = core.shape[: core.ndim - len(factors)], core.shape[core.ndim - len(factors) :]
    for k, U in enumerate(factors):
        fits = U.ndim == len(batch) + 2 and (*U.shape[:-2], U.shape[-1]) == (*batch, rank[k])
        if not (fits and size(U.shape)):
            raise ValueError(
                f"factors[{k}] must have shape {_shape_of(batch, rank[k])} to match a core "
                f"of shape {tuple(core.shape)}, got {tuple(U.shape)}."
            )
    for name, part in [("core", core), *((f"factors[{k}]", U) for k, U in enumerate(factors))]:
        if not all_finite(part):
            raise ValueError(f"{name} has NaN or infinite entries.")
    return core, factors


def orthonormality_defect(U: Array) -> float:
    """Return the largest entry of |U^T U - I|, or 0 if it is rounding error."""
    xp = namespace(U)
    gram = xp.matmul(adjoint(U), U)
    unit = like(np.eye(U.shape[-1]), U, U.dtype)
    defect = float(xp.max(xp.abs(gram - unit)))
    return 0.0 if defect <= 100 * U.shape[-2] * eps(U) else defect


def _shape_of(batch: Sequence[int], r: int) -> str:
    return f"({', '.join(map(str, (*batch, 'n', r)))}), no axis empty,"

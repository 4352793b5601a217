"""Sampled entries: tensor completion."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from lowtucker._array import Array, Rows, as_array, as_shape, like, namespace, size, to_numpy
from lowtucker._array.linalg import eigh, note_fallback, qr
from lowtucker._array.memory import check_room
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.factored import FactoredOperator, row_chunks, weighted_sum
from lowtucker.operators.traits import Traits
from lowtucker.status import Finding
from lowtucker.tensor.products import exponent, shifted
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["EntriesOperator", "entries"]

NumPyArray = np.ndarray[Any, Any]
# Largest mode whose unfolding's gram matrix a start forms
DENSE = 2000


# Bytes for a slice: the number of its samples, a row of a factor, its number in a finding
OF_SLICE = 64


class EntriesOperator(FactoredOperator):
    """Measurements that are entries of the tensor; see :func:`entries`.

    Parameters
    ----------
    shape : tuple of int
    indices : array of int, shape (m, d)
    """

    traits = Traits(
        row_separable=True,
        has_fast_tangent=True,
        isotropic=False,
        forms_full_tensor=False,
        has_fast_row_norms=True,
    )

    def __init__(self, shape: tuple[int, ...], indices: Any) -> None:
        self.shape = as_shape(shape)
        _check_size(self.shape)
        self._set(_checked(indices, self.shape))

    def _set(self, indices: NumPyArray) -> None:
        self.indices = indices
        self.m = len(indices)
        self._orders: dict[int, NumPyArray] = {}

    @property
    def _flat(self) -> NumPyArray:
        return np.asarray(np.ravel_multi_index(tuple(self.indices.T), self.shape))

    def sorted_by(self, k: int) -> NumPyArray:
        """Permutation that sorts the samples by their index in mode k; computed once."""
        if k not in self._orders:
            self._orders[k] = np.argsort(self.indices[:, k], kind="stable")
        return self._orders[k]

    def _mode_times(self, k: int, U: Array) -> Array:
        return namespace(U).take(U, like(self.indices[:, k], U), axis=0)

    def _mode_adjoint(self, k: int, W: Array) -> Array:
        given = to_numpy(W)
        hot = _one_hot(self.indices[:, k], self.shape[k], given.real.dtype)
        return like(hot.T @ given, W)

    def _mode_rows(self, k: int, rows: slice) -> Array:
        return _one_hot(self.indices[rows, k], self.shape[k]).toarray()

    def _forward(self, X: Array) -> Array:
        xp = namespace(X)
        return xp.take(xp.reshape(X, (-1,)), like(self._flat, X))

    def _adjoint(self, v: Array) -> Array:
        given = to_numpy(v)
        full = np.zeros(size(self.shape), dtype=given.dtype)
        np.add.at(full, self._flat, given)
        return like(full.reshape(self.shape), v)

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        block = object.__new__(EntriesOperator)
        block.shape = self.shape
        block._set(self.indices[rows])
        return block

    def _row_norms(self) -> Array:
        return np.ones(self.m)

    def diagnose(self, rank: tuple[int, ...], mask: Array | None = None) -> list[Finding]:
        """Duplicate samples, and slices with fewer samples than a row of their factor has numbers.

        Kinds "duplicates", "unsampled" and "undersampled".
        """
        chosen, different = self.indices, self._different
        if mask is not None:
            chosen = self.indices[mask]
            unique = different is self.indices
            different = chosen if unique else _without_duplicates(chosen, self.shape)
        findings = []
        if len(different) < len(chosen):
            findings.append(_duplicates(len(chosen) - len(different), len(chosen)))
        for k, (n, r) in enumerate(zip(self.shape, rank, strict=True)):
            counts = np.bincount(different[:, k], minlength=n)
            if not counts.all():
                findings.append(unsampled(k, np.flatnonzero(counts == 0).tolist()))
            elif (counts < r).any():
                findings.append(_undersampled(k, np.flatnonzero(counts < r).tolist(), r))
        return findings

    @cached_property
    def _different(self) -> NumPyArray:
        """Samples without their duplicates; the indices themselves if there are none."""
        return _without_duplicates(self.indices, self.shape)

    def as_entries(
        self, y: Array, weights: Array | None
    ) -> tuple[MeasurementOperator, Array, Array | None]:
        """Return itself: the rows are entries."""
        return self, y, weights

    def entry_samples(self) -> tuple[NumPyArray, None]:
        """Return the indices; all factors are 1."""
        return self.indices, None

    def scale_exponent(self) -> int:
        """Return 0: an entry is at most the norm."""
        return 0

    def _spectral_start(self, v: Array, rank: tuple[int, ...]) -> TuckerTensor:
        r"""Leading eigenvectors of :math:`B_k B_k^*`, diagonal zeroed, with B_k a sparse unfolding.

        The diagonal holds the samples' squares, which carry no information about the subspace and
        dominate if samples are few. The core is the samples' projection. No full tensor is formed;
        memory: n_k^2 numbers up to n_k = 2000, and beyond that of the order of m + n_k r_k.
        """
        import scipy.sparse

        given = to_numpy(v)
        given = given.astype(given.dtype.newbyteorder("="), copy=False)  # SciPy takes no other
        near_one = shifted(given, -exponent(np.abs(given).max()))  # squares must be numbers
        factors = []
        for k, (n, r) in enumerate(zip(self.shape, rank, strict=True)):
            others = [j for j in range(len(self.shape)) if j != k]
            sizes = [self.shape[j] for j in others]
            columns = np.zeros(self.m, dtype=np.int64)
            for j, length in zip(others, sizes, strict=True):
                columns = columns * length + self.indices[:, j]
            _, columns = np.unique(columns, return_inverse=True)
            B = scipy.sparse.csr_array((near_one, (self.indices[:, k], columns)), shape=(n, self.m))
            factors.append(_leading(B, r))
        core: Any = 0
        for rows in row_chunks(self.m, size(rank)):
            parts = [U.conj()[self.indices[rows, k]] for k, U in enumerate(factors)]
            core = core + weighted_sum(given[rows], parts)
        X = TuckerTensor.trusted(np.reshape(core, rank), factors)
        return TuckerTensor.trusted(like(X.core, v), [like(U, v) for U in X.factors])


def _leading(B: Any, r: int) -> NumPyArray:
    """Leading eigenvectors of B B^*, its diagonal zeroed: (n, r)."""
    n = B.shape[0]
    if n <= DENSE or n < 3 * r:
        gram = (B @ B.conj().T).toarray()
        np.fill_diagonal(gram, 0)
        vectors: NumPyArray = eigh(gram)[1][:, ::-1][:, :r].copy()
        return vectors
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    if not B.count_nonzero():  # ARPACK refuses it
        return np.eye(n, r, dtype=B.dtype)
    back = B.conj().T.tocsr()
    diagonal = np.asarray((abs(B) ** 2).sum(axis=1)).reshape(n)

    def times(x: NumPyArray) -> NumPyArray:
        x = x.reshape(n)
        return np.asarray(B @ (back @ x) - diagonal * x)

    gram = LinearOperator((n, n), matvec=times, dtype=B.dtype)
    first = np.random.default_rng(0).standard_normal(n).astype(B.dtype)
    try:
        found = eigsh(gram, r, which="LA", v0=first, tol=1e-2, ncv=min(n, 3 * r + 20))[1]
    except ArpackError as error:  # the converged vectors, and random ones: it is only a start
        note_fallback("eigsh unfinished")
        had = getattr(error, "eigenvectors", np.empty((n, 0), B.dtype))
        rest = np.random.default_rng(1).standard_normal((n, r - had.shape[1])).astype(B.dtype)
        found = np.concatenate([rest, had], axis=1)
    basis: NumPyArray = qr(found[:, ::-1])[0]
    return basis


def _without_duplicates(indices: NumPyArray, shape: tuple[int, ...]) -> NumPyArray:
    """Different samples, in any order; the array itself if there are no duplicates."""
    if size(shape) >= 2**62:
        different = np.unique(indices, axis=0)
    else:
        flat = np.unique(np.ravel_multi_index(tuple(indices.T), shape))
        if len(flat) == len(indices):
            return indices
        different = np.stack(np.unravel_index(flat, shape), axis=1)
    return different if len(different) < len(indices) else indices


def _duplicates(count: int, samples: int) -> Finding:
    which = "is a duplicate: the mean of both" if count == 1 else "are duplicates: their mean"
    text = f"{count} of the {samples} samples {which} is fitted."
    return Finding("duplicates", text, {"duplicates": count, "samples": samples})


def _check_size(shape: tuple[int, ...]) -> None:
    """Refuse modes larger than memory."""
    check_room(
        OF_SLICE * max(shape),
        f"What is known of the {max(shape)} slices of one mode of shape {shape}",
        "Are these the sizes of the modes?",
    )


def unsampled(mode: int, slices: Sequence[int]) -> Finding:
    """Finding that no measurement samples some slices of a mode."""
    text = f"Mode {mode} has no samples in {_of_slices(slices)}: X is not determined there."
    return Finding("unsampled", text, {"mode": mode, "slices": tuple(slices)})


def _undersampled(mode: int, slices: Sequence[int], needed: int) -> Finding:
    text = (
        f"Mode {mode} has fewer than {needed} samples in {_of_slices(slices)}: X is not "
        "determined there."
    )
    numbers = {"mode": mode, "slices": tuple(slices), "needed": needed}
    return Finding("undersampled", text, numbers)


def _of_slices(numbers: Sequence[int]) -> str:
    """Name some slices, and say how many more there are."""
    shown = ", ".join(map(str, numbers[:10]))
    more = f" and {len(numbers) - 10} more" if len(numbers) > 10 else ""
    return f"slice{'s' if len(numbers) > 1 else ''} {shown}{more}"


def _one_hot(index: NumPyArray, n: int, dtype: Any = np.float64) -> Any:
    """Sparse matrix with a one in each row: (t, n)."""
    import scipy.sparse

    t = len(index)
    return scipy.sparse.csr_array((np.ones(t, dtype), index, np.arange(t + 1)), shape=(t, n))


def _checked(indices: Any, shape: tuple[int, ...]) -> NumPyArray:
    index = to_numpy(as_array(indices, "indices"))
    if index.ndim != 2 or index.shape[1] != len(shape) or not len(index):
        raise ValueError(
            f"indices must have one row for each sample and {len(shape)} columns, one for each "
            f"mode of {shape}, got shape {index.shape}. Try np.argwhere(mask)."
        )
    if index.dtype.kind not in "iu":
        raise TypeError(f"indices must be integers, got dtype {index.dtype}.")
    outside = np.argwhere((index < 0) | (index >= np.asarray(shape)))
    if len(outside):
        i, k = outside[0]
        raise ValueError(
            f"indices[{i}, {k}] = {index[i, k]} must be between 0 and {shape[k] - 1}: indices "
            "count from 0. Subtract 1 if yours count from 1."
        )
    return np.ascontiguousarray(index, dtype=np.int64)


def entries(shape: tuple[int, ...], indices: Any) -> EntriesOperator:
    """Sampled entries of a tensor: completion.

    Parameters
    ----------
    shape : tuple of int
    indices : array of int, shape (m, d)
        One row per sample, counted from 0: ``np.argwhere(mask)`` of a mask of the known entries.

    Notes
    -----
    Memory: m d numbers. Measuring a TuckerTensor costs O(m prod r_k), and so does a product with
    the tangent design; neither forms a full tensor.

    Examples
    --------
    >>> import numpy as np, lowtucker as lt
    >>> X_true = lt.random_tucker((20, 20, 20), (2, 2, 2), seed=0)
    >>> known = np.argwhere(np.random.default_rng(0).random((20, 20, 20)) < 0.1)
    >>> A = lt.entries((20, 20, 20), known)
    >>> result = lt.recover(A, X_true.entries(known), rank=(2, 2, 2))
    >>> result.success, lt.metrics.relative_error(result.X, X_true) < 1e-5
    (True, True)
    """
    return EntriesOperator(shape, indices)

"""Operators made of operators: stacked, and scaled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    IntArray,
    Rows,
    all_finite,
    as_float,
    as_float_on,
    conj,
    in_precision_of,
    is_complex,
    like,
    namespace,
    real,
    same_kind,
    size,
    to_numpy,
)
from lowtucker._array.readings import at_least
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.design import NormalEquations, TangentDesign
from lowtucker.operators.entries import EntriesOperator, unsampled
from lowtucker.operators.kronecker import KroneckerOperator, sketch_start
from lowtucker.operators.traits import Traits
from lowtucker.operators.wrapped import WrappedOperator
from lowtucker.status import Finding
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["ScaledOperator", "StackedOperator", "scale", "stack"]

# Entries of the largest tensor that a start forms
FULL = 10**7


class StackedOperator(MeasurementOperator):
    r"""Measurements of several operators, one below the other; see :func:`stack`.

    Parameters
    ----------
    parts : sequence of MeasurementOperator
    dtype : dtype or None
        Dtype of the tensors.
    only_real : sequence of bool
        Which parts give real measurements of real tensors while others give complex ones: their
        adjoint takes the real part of v.
    """

    def __init__(
        self, parts: Sequence[MeasurementOperator], dtype: Any, only_real: Sequence[bool]
    ) -> None:
        self.parts, self.only_real = tuple(parts), tuple(only_real)
        self.shape, self.dtype, self.prototype = parts[0].shape, dtype, common_prototype(parts)
        self.starts = np.cumsum([0, *(part.m for part in parts)])
        self.m = int(self.starts[-1])
        every = [part.traits for part in parts]
        self.traits = Traits(
            row_separable=all(one.row_separable for one in every),
            has_fast_tangent=all(one.has_fast_tangent for one in every),
            isotropic=all(one.isotropic for one in every),
            # the start of a small tensor sums the adjoints
            forms_full_tensor=size(self.shape) <= FULL
            or any(one.forms_full_tensor for one in every),
            supports_batch=True,
            has_fast_row_norms=all(one.has_fast_row_norms for one in every),
            has_batch_tangent=all(one.has_batch_tangent for one in every),
        )

    @property
    def rows_read(self) -> int:
        """Rows that a product reads, of all parts."""
        return sum(part.rows_read for part in self.parts)

    @property
    def complex_rows(self) -> bool:
        """Whether a part gives complex measurements."""
        return any(part.complex_rows for part in self.parts)

    def diagnose(self, rank: tuple[int, ...], mask: Array | None = None) -> list[Finding]:
        """Findings that hold for all parts together.

        If all parts sample entries, those of all samples. Otherwise slices that no part samples,
        and the remarks of the parts: another part may determine what one reports undersampled.
        """
        merged = self._merged
        if merged is not None:
            samples, measures = merged
            if not measures.all():
                mask = measures if mask is None else measures & mask
            return samples.diagnose(rank, mask)
        pieces = [None if mask is None else mask[place] for place in self._places()]
        found = [part.diagnose(rank, m) for part, m in zip(self.parts, pieces, strict=True)]
        slices = ("unsampled", "undersampled")
        remarks = [one for some in found for one in some if one.kind not in slices]
        return [*remarks, *_unsampled_by_all(found, len(rank))]

    @cached_property
    def _merged(self) -> tuple[EntriesOperator, Array] | None:
        """Samples of all parts as one operator, and which of them have a factor other than 0."""
        samples = self.entry_samples()
        if samples is None:
            return None
        indices, factors = samples
        measures = np.ones(self.m, dtype=bool) if factors is None else factors != 0
        return EntriesOperator(self.shape, indices), measures

    def entry_samples(self) -> tuple[IntArray, Array | None] | None:
        """Entries that the parts sample, if all of them do."""
        samples = [part.entry_samples() for part in self.parts]
        given = [pair for pair in samples if pair is not None]
        if len(given) < len(samples):
            return None
        indices = np.concatenate([index for index, _ in given])
        if all(factors is None for _, factors in given):
            return indices, None
        factors = [np.ones(len(index)) if f is None else to_numpy(f) for index, f in given]
        return indices, np.concatenate(factors)

    def in_units(self, power: int) -> MeasurementOperator:
        """Parts times 2**power, one below the other."""
        parts = [part.in_units(power) for part in self.parts]
        return StackedOperator(parts, self.dtype, self.only_real) if power else self

    def _places(self) -> list[slice]:
        """Slices of y that hold the measurements of each part."""
        return [slice(a, b) for a, b in pairwise(self.starts.tolist())]

    def _split(self, v: Array) -> list[Array]:
        """Measurements of each part, for its adjoint."""
        pieces = [v[..., rows] for rows in self._places()]
        pairs = zip(pieces, self.only_real, strict=True)
        return [real(piece) if only else piece for piece, only in pairs]

    def _joined(self, pieces: list[Array]) -> Array:
        return in_precision(namespace(*pieces).concat(pieces, axis=-1), self.dtype)

    def _forward(self, X: Array) -> Array:
        return self._joined([part.forward(X) for part in self.parts])

    def _forward_tucker(self, X: TuckerTensor) -> Array:
        return self._joined([part.forward(X) for part in self.parts])

    def _adjoint(self, v: Array) -> Array:
        pairs = zip(self.parts, self._split(v), strict=True)
        return as_tensor(sum(part.adjoint(piece) for part, piece in pairs), self.dtype)

    def _misfit(self, X: Array, y: Array, weights: Array | None) -> tuple[Array, Array]:
        if any(self.only_real):  # such a part would lose the imaginary part of its y
            return super()._misfit(X, y, weights)
        residuals, gradients = [], []
        for part, rows in zip(self.parts, self._places(), strict=True):
            w = None if weights is None else weights[..., rows]
            residual, gradient = part.misfit(X, y[..., rows], w)
            residuals.append(residual)
            gradients.append(gradient)
        return self._joined(residuals), as_tensor(sum(gradients), self.dtype)

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        runs = self._runs(rows)
        blocks = [self.parts[k]._restrict(local) for k, local in runs]
        only_real = [self.only_real[k] for k, _ in runs]
        # compared as text: NumPy takes None for float64
        if len(blocks) == 1 and not only_real[0] and str(blocks[0].dtype) == str(self.dtype):
            return blocks[0]
        return StackedOperator(blocks, self.dtype, only_real)

    def _runs(self, rows: Rows) -> list[tuple[int, Rows]]:
        """Successive rows of one part, as the part counts them."""
        if not isinstance(rows, slice):
            index: Any = rows
            owner = np.searchsorted(self.starts, index, side="right") - 1
            cuts = np.flatnonzero(np.diff(owner)) + 1
            locals_ = np.split(index - self.starts[owner], cuts)
            return list(zip(owner[[0, *cuts]].tolist(), locals_, strict=True))
        start, stop, step = rows.indices(self.m)
        runs: list[tuple[int, Rows]] = []
        for k, place in enumerate(self._places()):
            skipped = max(0, -(-(place.start - start) // step))
            first, last = start + skipped * step, min(stop, place.stop)
            if first < last:
                runs.append((k, slice(first - place.start, last - place.start, step)))
        return runs

    def _tangent(self, T: TangentSpace) -> TangentDesign:
        return StackedDesign(self, T)

    def _spectral_start(self, v: Array, rank: tuple[int, ...]) -> TuckerTensor:
        sketches = [part for part in self.parts if isinstance(part, KroneckerOperator)]
        if len(sketches) == len(self.parts) and v.ndim == 1:
            found = sketch_start(sketches, self._split(v), rank)
            if found is not None:
                return found
        if len(self.parts) > 1 and size(self.shape) <= FULL:
            return super()._spectral_start(v, rank)
        # The sum of the adjoints would have to be formed. A part may have a start that forms no
        # tensor; that of the part with the most rows is the best.
        k = int(np.argmax([part.m for part in self.parts]))
        return self.parts[k].spectral_start(self._split(v)[k], rank)

    def _row_norms(self) -> Array:
        return self._joined([like(part.row_norms(), self.prototype) for part in self.parts])


def _unsampled_by_all(found: Sequence[Sequence[Finding]], modes: int) -> list[Finding]:
    """Unsampled slices that are in the findings of every part."""
    common = []
    for k in range(modes):
        slices = [
            {i for one in some if one.kind == "unsampled" and one.numbers["mode"] == k
             for i in one.numbers["slices"]}
            for some in found
        ]  # fmt: skip
        shared = sorted(set.intersection(*slices))
        if shared:
            common.append(unsampled(k, shared))
    return common


class StackedDesign(TangentDesign):
    """Tangent designs of the parts, one below the other."""

    A: StackedOperator

    def __init__(self, A: StackedOperator, T: TangentSpace) -> None:
        super().__init__(A, T)
        self.designs = [part.tangent(T) for part in A.parts]

    def matvec(self, c: Array) -> Array:
        """Return D c, part by part."""
        return self.A._joined([design.matvec(c) for design in self.designs])

    def rmatvec(self, r: Array) -> Array:
        """Return D^* r, the sum over the parts."""
        pairs = zip(self.designs, self.A._split(r), strict=True)
        return as_tensor(sum(design.rmatvec(piece) for design, piece in pairs), self.A.dtype)

    def misfit(self, y: Array, weights: Array | None = None) -> tuple[Array, Array]:
        """Residual and D^* W r, part by part."""
        if any(self.A.only_real):
            at_least(2)
            residual = y - self.A.forward(self.T.X)
            return residual, self.rmatvec(residual if weights is None else weights * residual)
        residuals, gradients = [], []
        for design, rows in zip(self.designs, self.A._places(), strict=True):
            w = None if weights is None else weights[..., rows]
            residual, gradient = design.misfit(y[..., rows], w)
            residuals.append(residual)
            gradients.append(gradient)
        return self.A._joined(residuals), as_tensor(sum(gradients), self.A.dtype)

    def normal_equations(self, y: Array, weights: Array | None = None) -> NormalEquations:
        """Sum over the parts, some of which have D^* D in closed form."""
        if any(self.A.only_real):
            return super().normal_equations(y, weights)
        grams, gradients, residuals = [], [], []
        for design, rows in zip(self.designs, self.A._places(), strict=True):
            w = None if weights is None else weights[..., rows]
            gram, gradient, residual = design.normal_equations(y[..., rows], w)
            grams.append(gram)
            gradients.append(gradient)
            residuals.append(residual)
        gram, gradient = (as_tensor(sum(some), self.A.dtype) for some in (grams, gradients))
        return NormalEquations(gram, gradient, self.A._joined(residuals))

    def rows(self) -> Iterator[tuple[slice, Array]]:
        """D in blocks of rows: those of one part after the other."""
        for design, place in zip(self.designs, self.A._places(), strict=True):
            for rows, block in design.rows():
                shifted = slice(place.start + rows.start, place.start + rows.stop)
                yield shifted, in_precision(block, self.A.dtype)


def stack(operators: Sequence[MeasurementOperator]) -> MeasurementOperator:
    r"""Measurements of several operators of the same tensor, one below the other.

    .. math:: y = (\mathcal{A}_1(X), \mathcal{A}_2(X), \dots)

    Parameters
    ----------
    operators : sequence of MeasurementOperator
        For tensors of one shape, one array kind and one dtype. An operator without a dtype, such
        as sampled entries, takes that of the others. Nested stacks are flattened.

    Notes
    -----
    Every operation costs the sum over the parts. Blocks and tangent designs are those of the
    parts, so solvers are as fast as with the slowest of them. The start is the HOSVD of the sum of
    the adjoints; for tensors of more than 10^7 entries, the start of the part with the most rows.
    Mode-wise sketches (:func:`kronecker`) of which every mode has one with a matrix of full column
    rank start from the one-pass solution: factors from the ranges of their unfoldings.

    Parts with larger rows weigh more; :func:`scale` balances them.

    Examples
    --------
    >>> import numpy as np, lowtucker as lt
    >>> X_true = lt.random_tucker((15, 15, 15), (2, 2, 2), seed=0)
    >>> known = np.random.default_rng(0).integers(0, 15, (150, 3))
    >>> A = lt.stack([lt.entries((15, 15, 15), known), lt.gaussian((15, 15, 15), m=200, seed=1)])
    >>> A
    StackedOperator: 350 measurements of tensors of shape (15, 15, 15) (0.1 per entry)
    >>> result = lt.recover(A, A.forward(X_true), rank=(2, 2, 2))
    >>> result.success, lt.metrics.relative_error(result.X, X_true) < 1e-5
    (True, True)
    """
    if not isinstance(operators, list | tuple) or not operators:
        raise TypeError(
            "operators must be a list of at least one MeasurementOperator, got "
            f"{'an empty one' if isinstance(operators, list | tuple) else type(operators).__name__}"
            "."
        )
    dtype = None
    for k, A in enumerate(operators):
        check_part(A, operators[0], "operators", k)
        if A.shape != operators[0].shape:
            raise ValueError(
                f"operators must measure tensors of one shape: operators[{k}] measures {A.shape}, "
                f"operators[0] {operators[0].shape}."
            )
        if not (dtype is None or A.dtype is None or A.dtype == dtype):
            raise TypeError(
                f"operators must measure tensors of one dtype: operators[{k}] measures {A.dtype}, "
                f"those before it {dtype}. Create it from arrays of that precision; for a matrix "
                "try lowtucker.DenseOperator(matrix, shape, dtype=...)."
            )
        dtype = A.dtype if dtype is None else dtype
    parts: list[MeasurementOperator] = []
    for A in operators:
        parts.extend(A.parts if isinstance(A, StackedOperator) else [A])
    if len(parts) == 1:
        return parts[0]
    gives = [is_real(dtype) and part.complex_rows for part in parts]
    return StackedOperator(parts, dtype, [any(gives) and not one for one in gives])


class ScaledOperator(WrappedOperator):
    """Measurements times numbers; see :func:`scale`.

    Parameters
    ----------
    inner : MeasurementOperator
    factor : array, shape (m,)
    only_real : bool
        Whether ``inner`` gives real measurements of real tensors, but the factor is complex.
    """

    def __init__(self, inner: MeasurementOperator, factor: Array, only_real: bool) -> None:
        super().__init__(inner)
        self.factor, self.only_real = factor, only_real

    def _around(self, inner: MeasurementOperator) -> MeasurementOperator:
        return ScaledOperator(inner, self.factor, self.only_real)

    @property
    def complex_rows(self) -> bool:
        """Whether the factor or the measurements are complex."""
        return is_complex(self.factor) or self.inner.complex_rows

    def diagnose(self, rank: tuple[int, ...], mask: Array | None = None) -> list[Finding]:
        """Findings of the inner operator, of whose rows a factor of zero measures nothing."""
        seen = to_numpy(self.factor) != 0
        if not seen.all():
            mask = seen if mask is None else seen & mask
        return self.inner.diagnose(rank, mask)

    def entry_samples(self) -> tuple[IntArray, Array | None] | None:
        """Entries that the inner operator samples, and their factors."""
        samples = self.inner.entry_samples()
        if samples is None:
            return None
        indices, factors = samples
        own = to_numpy(self.factor)
        return indices, own if factors is None else own * factors

    def rows_in_memory(self) -> Array | None:
        """Return those of the inner operator times the factors: a copy."""
        rows = self.inner.rows_in_memory()
        if rows is None:
            return None
        return to_numpy(self.factor).reshape(-1, *(1,) * len(self.shape)) * rows

    def row_heads(self, count: int) -> Array | None:
        """Return those of the inner operator, whose rows are multiples of these."""
        return None if np.any(to_numpy(self.factor) == 0) else self.inner.row_heads(count)

    def _scaled(self, y: Array) -> Array:
        return in_precision(self.factor, y.dtype) * y

    def _back(self, v: Array) -> Array:
        """Input of the inner adjoint."""
        v = in_precision(conj(self.factor), v.dtype) * v
        return real(v) if self.only_real else v

    def _forward(self, X: Array) -> Array:
        return self._scaled(self.inner.forward(X))

    def _forward_tucker(self, X: TuckerTensor) -> Array:
        return self._scaled(self.inner.forward(X))

    def _adjoint(self, v: Array) -> Array:
        return as_tensor(self.inner.adjoint(self._back(v)), self.dtype)

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        factor = self.factor
        if isinstance(rows, slice):
            factor = factor[rows]
        else:
            factor = namespace(factor).take(factor, like(rows, factor))
        return ScaledOperator(self.inner._restrict(rows), factor, self.only_real)

    def _tangent(self, T: TangentSpace) -> TangentDesign:
        return ScaledDesign(self, T)

    def _spectral_start(self, v: Array, rank: tuple[int, ...]) -> TuckerTensor:
        return self.inner.spectral_start(self._back(v), rank)

    def _row_norms(self) -> Array:
        norms = like(self.inner.row_norms(), self.prototype)
        return in_precision(namespace(self.factor).abs(self.factor), norms.dtype) * norms


class ScaledDesign(TangentDesign):
    """Tangent design with its rows times numbers."""

    A: ScaledOperator

    def __init__(self, A: ScaledOperator, T: TangentSpace) -> None:
        super().__init__(A, T)
        self.inner = A.inner.tangent(T)

    def matvec(self, c: Array) -> Array:
        """Return D c."""
        return self.A._scaled(self.inner.matvec(c))

    def rmatvec(self, r: Array) -> Array:
        """Return D^* r."""
        return as_tensor(self.inner.rmatvec(self.A._back(r)), self.A.dtype)

    def misfit(self, y: Array, weights: Array | None = None) -> tuple[Array, Array]:
        """Residual and D^* W r. Two passes."""
        at_least(2)
        residual = y - self.A.forward(self.T.X)
        return residual, self.rmatvec(residual if weights is None else weights * residual)

    def rows(self) -> Iterator[tuple[slice, Array]]:
        """D in blocks of rows."""
        for rows, block in self.inner.rows():
            yield rows, in_precision(self.A.factor[rows], block.dtype)[:, None] * block


def scale(A: MeasurementOperator, factor: Any) -> ScaledOperator:
    r"""Measurements times a number, or each times its own: :math:`y_j = f_j \mathcal{A}_j(X)`.

    Parameters
    ----------
    A : MeasurementOperator
    factor : number, or array of shape (m,)
        Real or complex, finite, not zero everywhere. With complex factors, measurements of
        real tensors are complex; the adjoint is then the real part. If A has no dtype of its
        own, the tensors have that of y.

    Notes
    -----
    Every operation costs that of A and m flops. Memory: m numbers. ``misfit`` is a forward and an
    adjoint.

    Examples
    --------
    Rows of norm 1, so that a few large ones do not dominate:

    >>> import numpy as np, lowtucker as lt
    >>> rng = np.random.default_rng(0)
    >>> A = lt.rank_one([rng.standard_normal((300, 15)) for _ in range(3)])
    >>> B = lt.scale(A, 1 / A.row_norms())
    >>> bool(np.allclose(B.row_norms(), 1))
    True
    """
    _check_one(A, "A")
    given = as_float(factor, "factor")
    if tuple(given.shape) not in {(), (A.m,)}:
        raise ValueError(
            f"factor must be a number, or an array with one for each of the {A.m} measurements, "
            f"shape ({A.m},), got shape {tuple(given.shape)}."
        )
    if given.ndim == 0:  # a number has no kind
        given = like(np.full(A.m, to_numpy(given)), A.prototype)
    else:
        given = as_float_on(factor, A.prototype, "factor", type(A).__name__)
    with np.errstate(over="ignore"):
        given = in_precision(given, A.dtype)
    if not all_finite(given):
        raise ValueError(
            "factor has NaN or infinite entries, or entries that overflow in A's precision."
        )
    if not bool(namespace(given).any(given != 0)):
        raise ValueError(
            "factor is zero everywhere: nothing would be measured. To leave out measurements, "
            "restrict A or give them the weight 0."
        )
    only_real = is_complex(given) and is_real(A.dtype) and not A.complex_rows
    return ScaledOperator(A, given, only_real)


def check_part(A: Any, first: Any, name: str, k: int) -> None:
    """Check that A is one operator, of the array kind of the first."""
    _check_one(A, f"{name}[{k}]")
    if k:
        mine = np.empty(0) if A.prototype is None else A.prototype
        same_kind(mine, first.prototype, f"a tensor of {name}[{k}]", f"{name}[0]")


def _check_one(A: Any, name: str) -> None:
    if not isinstance(A, MeasurementOperator):
        raise TypeError(
            f"{name} must be a MeasurementOperator, got {type(A).__name__}. "
            "Try lowtucker.as_operator(A, shape)."
        )
    if A.batch_shape:
        raise ValueError(f"{name} must be one operator, got a batch of {A.batch_shape}.")


def common_prototype(operators: Sequence[MeasurementOperator]) -> Array | None:
    given = (A.prototype for A in operators)
    return next((prototype for prototype in given if prototype is not None), None)


def is_real(dtype: Any) -> bool:
    """Whether tensors of an operator's dtype are real; False without a dtype."""
    return dtype is not None and "complex" not in str(dtype)


def in_precision(x: Array, dtype: Any) -> Array:
    """Array in the precision of a dtype; real stays real, complex complex."""
    if dtype is None or x.dtype == dtype:
        return x
    wanted = in_precision_of(dtype, x, is_complex=is_complex(x))
    return x if x.dtype == wanted else namespace(x).astype(x, wanted)


def as_tensor(x: Array, dtype: Any) -> Array:
    """Output of an adjoint in the dtype of the tensors: the real part if these are real."""
    return in_precision(real(x) if is_real(dtype) else x, dtype)

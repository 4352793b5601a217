"""Operators made of operators: one below the other, and scaled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from lowtucker._array import (
    Array,
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
from lowtucker.operators.arguments import refuse_rows_of_trials
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.design import NormalEquations, TangentDesign
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["ScaledOperator", "StackedOperator", "scale", "stack"]

# Entries of the largest tensor that a start makes in full
FULL = 10**7


class StackedOperator(MeasurementOperator):
    r"""Measurements of several operators, one below the other; see :func:`stack`.

    Parameters
    ----------
    parts : sequence of MeasurementOperator
    dtype : dtype or None
        Dtype of the tensors.
    only_real : sequence of bool
        Which parts give real measurements of real tensors where others give complex ones: of a
        complex v their adjoint takes the real part.
    """

    takes_stacks: ClassVar[bool] = True

    def __init__(
        self, parts: Sequence[MeasurementOperator], dtype: Any, only_real: Sequence[bool]
    ) -> None:
        self.parts, self.only_real = tuple(parts), tuple(only_real)
        self.shape, self.dtype, self.prototype = parts[0].shape, dtype, common_prototype(parts)
        self.starts = np.cumsum([0, *(part.m for part in parts)])
        self.m = int(self.starts[-1])
        self.alike = all(part.alike for part in parts)

    @property
    def complex_rows(self) -> bool:
        """Whether a part gives complex measurements."""
        return any(map(gives_complex, self.parts))

    @property
    def restricts(self) -> bool:
        """Whether a block costs its own rows only: where it does so for every part."""
        return all(part.restricts for part in self.parts)

    @property
    def designs(self) -> bool:
        """Whether the tangent design costs about a reading of the rows, in every part."""
        return all(part.designs for part in self.parts)

    def _places(self) -> list[slice]:
        """Where the measurements of each part are in y."""
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
        refuse_rows_of_trials(rows, self)
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
        if len(self.parts) > 1 and size(self.shape) <= FULL:
            return super()._spectral_start(v, rank)
        # The sum of the adjoints would be formed. A part may know the HOSVD of its own without
        # that, and the one with the most rows has seen the most.
        k = int(np.argmax([part.m for part in self.parts]))
        return self.parts[k].spectral_start(self._split(v)[k], rank)

    def _row_norms(self) -> Array:
        return self._joined([like(part.row_norms(), self.prototype) for part in self.parts])


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
            residual = y - self.A.forward(self.T.X)
            return residual, self.rmatvec(residual if weights is None else weights * residual)
        residuals, gradients = [], []
        for design, rows in zip(self.designs, self.A._places(), strict=True):
            residual, gradient = design.misfit(y[rows], None if weights is None else weights[rows])
            residuals.append(residual)
            gradients.append(gradient)
        return self.A._joined(residuals), as_tensor(sum(gradients), self.A.dtype)

    def normal_equations(self, y: Array, weights: Array | None = None) -> NormalEquations:
        """Sum over the parts, some of which have D^* D in closed form."""
        if any(self.A.only_real):
            return super().normal_equations(y, weights)
        grams, gradients, residuals = [], [], []
        for design, rows in zip(self.designs, self.A._places(), strict=True):
            w = None if weights is None else weights[rows]
            gram, gradient, residual = design.normal_equations(y[rows], w)
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
        For tensors of one shape, one array kind and one dtype. An operator without a dtype, as of
        sampled entries, takes that of the others. Stacks among them are taken apart.

    Notes
    -----
    Every operation costs what it costs the parts. Blocks and tangent designs are those of the
    parts, so that solvers are as fast as with the slowest of them. The start is the HOSVD of the
    sum of the adjoints; for tensors of more than 10^7 entries, the start of the part with the most
    rows.

    Parts with larger rows count more. :func:`scale` changes that.

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
                f"those before it {dtype}. Make it of arrays of that precision; whether tensors "
                "are real or complex is up to lowtucker.DenseOperator(matrix, shape, dtype=...)."
            )
        dtype = A.dtype if dtype is None else dtype
    parts: list[MeasurementOperator] = []
    for A in operators:
        parts.extend(A.parts if isinstance(A, StackedOperator) else [A])
    if len(parts) == 1:
        return parts[0]
    gives = [is_real(dtype) and gives_complex(part) for part in parts]
    return StackedOperator(parts, dtype, [any(gives) and not one for one in gives])


class ScaledOperator(MeasurementOperator):
    """Measurements times numbers; see :func:`scale`.

    Parameters
    ----------
    inner : MeasurementOperator
    factor : array, shape (m,)
    only_real : bool
        Whether ``inner`` gives real measurements of real tensors, where the factor is complex.
    """

    takes_stacks: ClassVar[bool] = True

    def __init__(self, inner: MeasurementOperator, factor: Array, only_real: bool) -> None:
        self.inner, self.factor, self.only_real = inner, factor, only_real
        self.shape, self.m = inner.shape, inner.m
        self.dtype, self.prototype, self.alike = inner.dtype, inner.prototype, inner.alike

    @property
    def complex_rows(self) -> bool:
        """Whether the factor or the measurements are complex."""
        return is_complex(self.factor) or gives_complex(self.inner)

    @property
    def restricts(self) -> bool:
        """Whether a block costs its own rows only."""
        return self.inner.restricts

    @property
    def designs(self) -> bool:
        """Whether the tangent design costs about a reading of the rows."""
        return self.inner.designs

    def _scaled(self, y: Array) -> Array:
        return in_precision(self.factor, y.dtype) * y

    def _back(self, v: Array) -> Array:
        """What the inner adjoint is applied to."""
        v = in_precision(conj(self.factor), v.dtype) * v
        return real(v) if self.only_real else v

    def _forward(self, X: Array) -> Array:
        return self._scaled(self.inner.forward(X))

    def _forward_tucker(self, X: TuckerTensor) -> Array:
        return self._scaled(self.inner.forward(X))

    def _adjoint(self, v: Array) -> Array:
        return as_tensor(self.inner.adjoint(self._back(v)), self.dtype)

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        refuse_rows_of_trials(rows, self)
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

    def _blind_spots(self, rank: tuple[int, ...], measured: Array | None) -> tuple[str, ...]:
        """What the inner operator cannot tell, and what is measured times zero."""
        seen = to_numpy(self.factor) != 0
        if not seen.all():
            measured = seen if measured is None else seen & measured
        return self.inner._blind_spots(rank, measured)

    def _remarks(self) -> tuple[str, ...]:
        return self.inner._remarks()

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
        Real or complex, finite, not zero everywhere. Complex factors of measurements of real
        tensors give complex y; the adjoint is then the real part. Where A has no dtype of its
        own, the tensors have that of y.

    Notes
    -----
    Every operation costs what it costs A, and m flops. Memory: m numbers. ``misfit`` is a
    forward and an adjoint.

    Examples
    --------
    Rows of norm 1, where a few large ones would drown the others:

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
        raise ValueError("factor has NaN or infinite entries, or some beyond A's precision.")
    if not bool(namespace(given).any(given != 0)):
        raise ValueError(
            "factor is zero everywhere: nothing would be measured. To leave out measurements "
            "restrict A, or give them the weight 0."
        )
    only_real = is_complex(given) and is_real(A.dtype) and not gives_complex(A)
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
        raise ValueError(f"{name} must be one operator, got a stack of {A.batch_shape} trials.")


def common_prototype(operators: Sequence[MeasurementOperator]) -> Array | None:
    given = (A.prototype for A in operators)
    return next((prototype for prototype in given if prototype is not None), None)


def is_real(dtype: Any) -> bool:
    """Whether tensors of an operator's dtype are real; without one they may be either."""
    return dtype is not None and "complex" not in str(dtype)


def gives_complex(A: MeasurementOperator) -> bool:
    """Whether A gives complex measurements, as seen in one row where it has fast ones."""
    if "complex" in str(A.dtype):
        return True
    if hasattr(A, "complex_rows"):  # operators made of others ask these
        return bool(A.complex_rows)
    one_row = A.restrict(slice(0, 1)) if A.restricts else A
    parts = [np.zeros((1,) * len(A.shape)), *(np.zeros((n, 1)) for n in A.shape)]
    core, *factors = (like(part, A.prototype, A.dtype) for part in parts)
    return is_complex(one_row.forward(TuckerTensor.trusted(core, factors)))


def in_precision(x: Array, dtype: Any) -> Array:
    """Array in the precision of a dtype, real or complex as it is."""
    if dtype is None or x.dtype == dtype:
        return x
    wanted = in_precision_of(dtype, x, is_complex=is_complex(x))
    return x if x.dtype == wanted else namespace(x).astype(x, wanted)


def as_tensor(x: Array, dtype: Any) -> Array:
    """What adjoints give, in the dtype of the tensors: its real part where these are real."""
    return in_precision(real(x) if is_real(dtype) else x, dtype)

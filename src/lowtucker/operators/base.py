"""The measurement operator: the contract that everything above relies on.

A custom operator needs ``shape``, ``m`` and two hooks: :class:`MeasurementOperator` has an example.
The public methods check their arguments, loop over the leading axes of a batch, and check what the
hooks return. Run :func:`lowtucker.check_adjoint` on it once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lowtucker._array import (
    Array,
    IntArray,
    Rows,
    all_finite,
    as_float_on,
    is_array,
    is_complex,
    like,
    namespace,
    real_dtype,
    same_kind,
    size,
    to_numpy,
)
from lowtucker._array.clock import check_time
from lowtucker._array.errors import SlowOperatorWarning, warn_caller
from lowtucker._array.memory import check_full, check_room
from lowtucker._array.readings import at_least, reading, side_by_side
from lowtucker.operators.arguments import check_rows, check_weights, common_batch
from lowtucker.operators.design import DesignOfEach, TangentDesign
from lowtucker.operators.traits import Traits
from lowtucker.status import Finding
from lowtucker.tensor.decompose import hooi, hosvd
from lowtucker.tensor.iterate import Iterate
from lowtucker.tensor.products import norm
from lowtucker.tensor.rank import check_rank
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["MeasurementOperator", "check_operator"]

# Sweeps of HOOI for a start
SWEEPS = 10


class MeasurementOperator(ABC):
    r"""A linear map :math:`\mathcal{A}: \mathbb{R}^{n_1 \times \dots \times n_d} \to \mathbb{R}^m`.

    Equation (3.1): :math:`y_i = \mathcal{A}_i(\mathbf{X}) = \langle A_i, \mathbf{X} \rangle`.

    Attributes
    ----------
    shape : tuple of int
        (n_1, ..., n_d), the shape of the tensors that are measured.
    m : int
        The number of measurements.
    batch_shape : tuple of int
        Leading axes of an operator that is a batch, with other rows for every problem; () for one.
    dtype : dtype or None
        Dtype of the tensors, if the operator requires one.
    prototype : array or None
        An array of the kind and on the device that the operator works with; None is NumPy.
    traits : Traits
        What solvers and diagnosis may rely on. Declared, never deduced from the hooks: an operator
        that overrides ``_restrict`` says ``traits = Traits(row_separable=True)``, one that
        overrides ``_tangent`` adds ``has_fast_tangent=True``. See :class:`lowtucker.Traits`.

    Examples
    --------
    A custom operator: pictures exposed over all the frames of a video, the last mode. ``_forward``
    takes one tensor of ``shape`` to ``(m,)``, ``_adjoint`` goes back.

    >>> import numpy as np, lowtucker as lt
    >>> class Exposure(lt.MeasurementOperator):
    ...     shape, m = (4, 5, 3), 20
    ...     def _forward(self, X):
    ...         return X.sum(axis=-1).ravel()
    ...     def _adjoint(self, v):
    ...         return np.repeat(v, 3).reshape(self.shape)
    >>> lt.check_adjoint(Exposure()) < 1e-13
    True

    One that measures some of its rows at their own cost declares it:

    >>> class Fibres(lt.MeasurementOperator):
    ...     traits = lt.Traits(row_separable=True)
    ...     def __init__(self, at):
    ...         self.shape, self.m, self.at = (4, 5, 3), len(at), np.asarray(at)
    ...     def _forward(self, X):
    ...         return X.sum(axis=-1).ravel()[self.at]
    ...     def _adjoint(self, v):
    ...         pictures = np.zeros(20)
    ...         np.add.at(pictures, self.at, v)
    ...         return np.repeat(pictures, 3).reshape(self.shape)
    ...     def _restrict(self, rows):
    ...         return Fibres(self.at[rows])
    >>> lt.check_restriction(Fibres([3, 14, 15, 9])) < 1e-13
    True
    """

    shape: tuple[int, ...]
    m: int
    batch_shape: tuple[int, ...] = ()
    dtype: Any = None
    prototype: Array | None = None
    traits: Traits = Traits()
    # Whether the output of the hooks is checked for NaN: True for operators outside this package
    validate_output: ClassVar[bool] = True
    # Whether ``_restrict`` takes a tuple, with other rows for every problem of a batch
    takes_rows_per_problem: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if "validate_output" not in cls.__dict__:
            outside = cls.__module__.partition(".")[0] != __name__.partition(".")[0]
            cls.validate_output = outside

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:  # only what is not found otherwise
            if name in ("shape", "m"):
                what = "the number of measurements" if name == "m" else "the shape of the tensors"
                raise TypeError(
                    f"{type(self).__name__} has no {name}, {what}: set self.{name} in its __init__."
                )
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
            )

    @property
    def count(self) -> Any:
        """Rows that an average divides by: m, except for a batch of blocks of unequal length."""
        return self.m

    @property
    def rows_read(self) -> int:
        """Rows that a product reads, for ``passes``: m, in general.

        All rows of an operator that cannot measure some alone; none of a block that was read from
        a file, and is in memory now.
        """
        return self.m

    @property
    def complex_rows(self) -> bool:
        """Whether measurements of the operator's own tensors are complex.

        Measures zeros, with one row if the operator is row-separable.
        """
        if "complex" in str(self.dtype):
            return True
        A = self.restrict(slice(0, 1)) if self.traits.row_separable else self
        parts = [np.zeros((1,) * len(A.shape)), *(np.zeros((n, 1)) for n in A.shape)]
        core, *factors = (like(part, A.prototype, A.dtype) for part in parts)
        return is_complex(A.forward(TuckerTensor.trusted(core, factors)))

    def diagnose(self, rank: tuple[int, ...], mask: Array | None = None) -> list[Finding]:
        """Report what the measurements cannot determine of a tensor of that rank, and remarks.

        Kinds: "unsampled" and "undersampled" slices, in which X is not determined; "duplicates",
        a remark. Override it where such things are plain to see; nothing by default.

        Parameters
        ----------
        rank : tuple of int
        mask : NumPy array of bool, shape (m,), optional
            The measurements that count; all by default.
        """
        return []

    @property
    def stored_elements(self) -> int | None:
        """Numbers that a pass reads, for a sparse matrix; None, the default, for all others."""
        return None

    def entry_samples(self) -> tuple[IntArray, Array | None] | None:
        """Return indices (m, d) and factors (m,) if every row is a multiple of a tensor entry.

        The factors are None if all are 1. None, the default, for all other operators.
        """
        return None

    def as_entries(
        self, y: Array, weights: Array | None
    ) -> tuple[MeasurementOperator, Array, Array | None] | None:
        r"""Return an operator of plain sampled entries, with data and weights of the same problem.

        .. math:: \sum_j w_j |f_j X_{i_j} - y_j|^2 = \sum_j w_j |f_j|^2 |X_{i_j} - y_j / f_j|^2

        plus the rows with a factor :math:`f_j = 0`, which get the weight 0. None unless every row
        is a multiple of a tensor entry; see :meth:`entry_samples`.
        """
        samples = self.entry_samples()
        if samples is None:
            return None
        from lowtucker.operators.entries import EntriesOperator  # which is one of these

        indices, factors = samples
        if factors is not None:
            divisors = np.where(factors == 0, 1, factors)
            sizes = np.abs(factors).astype(real_dtype(y)) ** 2
            y, weights = (
                (y / divisors).astype(y.dtype),
                sizes if weights is None else weights * sizes,
            )
        return EntriesOperator(self.shape, indices), y, weights

    def rows_in_memory(self) -> Array | None:
        """Return the rows as a NumPy array (m, n_1, ..., n_d), if they are one; None by default."""
        return None

    def row_heads(self, count: int) -> Array | None:
        """Return the first entries of every row, up to multiples, if they can be had alone.

        A NumPy array, shape (m, count or fewer); None by default, where that takes a pass.
        """
        return None

    def scale_exponent(self) -> int | None:
        """Return the exponent of ||A(X)|| for X of norm 1, if known without measuring; or None."""
        return None

    def in_units(self, power: int) -> MeasurementOperator:
        """Operator times 2**power, exactly: no digit changes, and no row is copied."""
        if not power:
            return self
        from lowtucker.operators.units import PoweredOperator

        return PoweredOperator(self, power)

    # The hooks: two required, the others for speed

    @abstractmethod
    def _forward(self, X: Array) -> Array:
        """Measure a tensor: ``shape`` -> ``(m,)``."""

    @abstractmethod
    def _adjoint(self, v: Array) -> Array:
        """Apply the adjoint: ``(m,)`` -> ``shape``."""

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        """Make the operator of some of the rows; ``rows`` are checked."""
        from lowtucker.operators.wrapped import RestrictedOperator

        if SlowOperatorWarning not in self._warned:
            self._warned.add(SlowOperatorWarning)
            warn_caller(
                f"{type(self).__name__} cannot measure some of its rows alone: every block costs "
                'all the rows. Try solver="tiht", which uses them all at once; or give a custom '
                "operator a _restrict method, and traits = Traits(row_separable=True).",
                SlowOperatorWarning,
            )
        return RestrictedOperator(self, rows)

    @cached_property
    def _warned(self) -> set[type[Warning]]:
        """Warnings that this operator has given: each is given once."""
        return set()

    def _forward_tucker(self, X: TuckerTensor) -> Array:
        """Measure a tensor given by its factors."""
        return self._batched(self._forward, X.full(), len(self.shape))

    def _forward_each(self, X: TuckerTensor) -> Array:
        """Measure the tensors of a batch one after the other."""
        xp = namespace(X.core)
        measured = [self._forward_tucker(X.trial(k)) for k in range(size(X.batch_shape))]
        return xp.reshape(xp.stack(measured), (*X.batch_shape, self.m))

    def _misfit(self, X: Array, y: Array, weights: Array | None) -> tuple[Array, Array]:
        """Residual y - A(X) and A*(weights * residual)."""
        at_least(2)
        residual = y - self._batched(self._forward, X, len(self.shape))
        weighted = residual if weights is None else weights * residual
        return residual, self._batched(self._adjoint, weighted, 1)

    def _residual(self, X: Array | TuckerTensor, y: Array | None, weights: Array | None) -> Array:
        """Residual y - A(X), or -A(X) without y.

        An operator whose rows are elsewhere may return an array that knows its weighted norm and
        fetches its numbers on demand; see ``known_norm``.
        """
        measured = self.forward(X)
        if y is None:
            return -measured
        common_batch(measured.shape[:-1], y.shape[:-1])
        return y - measured

    def known_norm(self, residual: Array, weights: Array | None) -> Array | None:
        """Weighted norm of a residual, if ``_residual`` or ``_misfit`` left it known; or None."""
        return None

    def _tangent(self, T: TangentSpace) -> TangentDesign:
        """Design of a tangent space: by forwards and adjoints unless an operator overrides it."""
        return TangentDesign(self, T)

    def _spectral_start(self, v: Array, rank: tuple[int, ...]) -> TuckerTensor:
        """HOSVD of A*(v), which is formed; ten sweeps of HOOI follow if rows are isotropic.

        The sweeps cost next to nothing beside A. With few measurements A*(v) is mostly noise, and
        they find the subspaces better: for 30x30x30 tensors of rank 3 from 5 measurements per
        degree of freedom, "auto" needs 2.3 passes after them, and 3.1 without. Rows with heavy
        tails, such as outer products, leave spikes in A*(v) that the sweeps would follow.
        """
        Z = self._batched(self._adjoint, v, 1)
        if not self.traits.isotropic:
            return hosvd(Z, rank, warn=False)
        return hooi(Z, rank, max_iterations=SWEEPS, warn=False)

    def _row_norms(self) -> Array:
        """Frobenius norms of the rows, ``(m,)``: by default one adjoint each.

        Complex measurements of real tensors need two: the adjoint is a real part.
        """
        zero = like(np.zeros(self.shape), self.prototype, self.dtype)
        two_parts = is_complex(self._batched(self._forward, zero, len(self.shape)))
        two_parts = two_parts and not is_complex(zero)
        norms, units = np.zeros(self.m), (1.0, 1.0j) if two_parts else (1.0,)
        at_least(1 + len(units) * self.m)
        for i in range(self.m):
            for part in units:
                unit = np.zeros(self.m, dtype=type(part))
                unit[i] = part
                row = self._batched(self._adjoint, like(unit, self.prototype), 1)
                norms[i] = np.hypot(norms[i], float(norm(row)))
        return like(norms, self.prototype)

    # What users and solvers call

    @reading
    def forward(self, X: Array | TuckerTensor) -> Array:
        """Measure: A(X), shape (*batch, m).

        Parameters
        ----------
        X : array, shape (*batch, n_1, ..., n_d), or TuckerTensor
        """
        check_time()
        check_room(8 * self.m, f"{self.m} measurements", "Try fewer: A.restrict(rows).")
        if isinstance(X, Iterate) and not isinstance(X, TuckerTensor):
            X = X.full()
        if isinstance(X, TuckerTensor):
            self._check(X.shape, X.batch_shape, self.shape, "forward", "X")
            same_kind(X.core, self.prototype, "X", type(self).__name__)
            out = self._checked(self._forward_tucker(X), (self.m,), "_forward_tucker")
            return self._without_nan(out, "_forward_tucker", self._forward_tucker, X, X.core)
        return self._batched(self._forward, self._tensor(X, "forward"), len(self.shape))

    @reading
    def adjoint(self, v: Array) -> Array:
        """Apply the adjoint: A*(v), shape (*batch, n_1, ..., n_d).

        Parameters
        ----------
        v : array, shape (*batch, m)
        """
        check_time()
        v = self._measurements(v, "adjoint", "v")
        check_full((*v.shape[:-1], *self.shape), v.dtype)
        return self._batched(self._adjoint, v, 1)

    def restrict(self, rows: Rows) -> MeasurementOperator:
        """Operator of some of the measurements: ``restrict(rows).forward(X) = forward(X)[rows]``.

        Parameters
        ----------
        rows : slice or integer array
            For a batch also a tuple with one of these for every problem; if their lengths
            differ, the shorter ones are padded with rows of zeros.
        """
        return self.block(check_rows(rows, self.m, self.batch_shape))

    def own_rows(self, rows: Rows, *, fill: bool) -> Rows:
        """Rows without those of the padding that a batch of unequal operators has.

        To ``fill``, a problem that has none of them gets another one of its rows.
        """
        return rows

    def block(self, rows: Rows) -> MeasurementOperator:
        """Return :meth:`restrict` for rows known to be valid, as those of a sampler are."""
        if isinstance(rows, tuple) and not self.takes_rows_per_problem:
            from lowtucker.operators.batched import BatchOperator  # which is one of these

            return BatchOperator([self._restrict(one) for one in side_by_side(rows)])
        return self._restrict(rows)

    @reading
    def residual(
        self, X: Array | TuckerTensor, y: Array | None = None, weights: Array | None = None
    ) -> Array:
        """Residual y - A(X), or -A(X) without y; see :meth:`known_norm` for the weights."""
        check_time()
        if isinstance(X, Iterate) and not isinstance(X, TuckerTensor):
            X = X.full()
        return self._residual(X, y, weights)

    def select(self, trials: Sequence[int]) -> MeasurementOperator:
        """Batch of some of the problems of a batch, without a copy; a single operator stays."""
        return self._select(trials) if self.batch_shape else self

    def trial(self, k: int) -> MeasurementOperator:
        """Operator k of a batch; a single operator stays."""
        return self._trial(k) if self.batch_shape else self

    # Hooks of batches only, which have a batch_shape of their own
    def _trial(self, k: int) -> MeasurementOperator:
        raise NotImplementedError(f"{type(self).__name__} is a batch, but cannot select a problem.")

    def _select(self, trials: Sequence[int]) -> MeasurementOperator:
        raise NotImplementedError(f"{type(self).__name__} is a batch, but cannot select problems.")

    def arranged(self, batch_shape: tuple[int, ...]) -> MeasurementOperator:
        """Batch with its problems arranged along these leading axes."""
        if self.batch_shape == batch_shape:
            return self
        raise NotImplementedError(
            f"{type(self).__name__} is a batch of {self.batch_shape}, and cannot be arranged as "
            f"{batch_shape}."
        )

    @reading
    def misfit(
        self, X: Array | TuckerTensor, y: Array, weights: Array | None = None
    ) -> tuple[Array, Array]:
        """Residual y - A(X) and A*(weights * (y - A(X))).

        One pass over a NumPy matrix; other operators do a forward and an adjoint.

        Parameters
        ----------
        X : array, shape (*batch, n_1, ..., n_d), or TuckerTensor
        y : array, shape (*batch, m)
        weights : array, shape (m,) or (*batch, m), optional

        Returns
        -------
        residual : array, shape (*batch, m)
        gradient : array, shape (*batch, n_1, ..., n_d)
        """
        check_time()
        X = X.full() if isinstance(X, Iterate) else X
        X, y = self._tensor(X, "misfit"), self._measurements(y, "misfit", "y")
        batch = common_batch(X.shape[: X.ndim - len(self.shape)], y.shape[:-1])
        if weights is not None:
            weights = self._weights(weights, batch or self.batch_shape)
        residual, gradient = self._misfit(X, y, weights)
        self._checked(residual, (self.m,), "_misfit")
        return residual, self._checked(gradient, self.shape, "_misfit")

    def tangent(self, T: TangentSpace) -> TangentDesign:
        """Tangent design D: row j holds the coordinates of the projection of A_j.

        Parameters
        ----------
        T : TangentSpace
            One, or a batch of them: then a batch of designs. A batch of operators needs one for
            each.
        """
        check_time()
        if not isinstance(T, TangentSpace):
            raise TypeError(
                f"T must be a TangentSpace, got {type(T).__name__}. Try lowtucker.TangentSpace(X)."
            )
        self._check(T.X.shape, T.batch_shape, self.shape, "tangent", "X")
        if T.batch_shape != self.batch_shape and self.batch_shape:
            raise ValueError(
                f"T must be a batch of {self.batch_shape} tangent spaces, one for each problem of "
                f"the batch {type(self).__name__}, got {T.batch_shape}. Try A.trial(k).tangent(T)."
            )
        if T.batch_shape and not self.traits.has_batch_tangent:
            return DesignOfEach(self, T)
        return self._tangent(T)

    @reading
    def spectral_start(self, v: Array, rank: tuple[int, ...]) -> TuckerTensor:
        """Rank-r approximation of A*(v), the start of the Riemannian solvers.

        Parameters
        ----------
        v : array, shape (*batch, m)
        rank : tuple of int
        """
        rank = check_rank(rank, self.shape, warn=False)
        return self._spectral_start(self._measurements(v, "spectral_start", "v"), rank)

    @reading
    def row_norms(self) -> Array:
        """Frobenius norms of the sensing tensors, shape (*batch, m)."""
        return self._row_norms()

    # Checks shared by the public methods

    def _batched(self, hook: Any, x: Array, core_ndim: int) -> Array:
        """Apply a hook to every item of a batch."""
        forward = hook == self._forward
        name, wanted = ("_forward", (self.m,)) if forward else ("_adjoint", self.shape)
        if self.traits.supports_batch:
            return self._without_nan(self._checked(hook(x), wanted, name), name, hook, x, x)
        batch = x.shape[: x.ndim - core_ndim]
        if not batch:
            out = self._checked(hook(x), wanted, name, one=True)
            return self._without_nan(out, name, hook, x, x)
        xp = namespace(x)
        flat = xp.reshape(x, (size(batch), *x.shape[x.ndim - core_ndim :]))
        items = [
            self._checked(hook(flat[i, ...]), wanted, name, one=True) for i in range(size(batch))
        ]
        out = xp.reshape(xp.stack(items), (*batch, *wanted))
        return self._without_nan(out, name, lambda z: self._batched(hook, z, core_ndim), x, x)

    def _tensor(self, X: Any, caller: str) -> Array:
        X = as_float_on(X, self.prototype, "X", type(self).__name__)
        d = len(self.shape)
        self._check(tuple(X.shape[max(0, X.ndim - d) :]), X.shape[:-d], self.shape, caller, "X")
        return X

    def _measurements(self, v: Any, caller: str, name: str) -> Array:
        v = as_float_on(v, self.prototype, name, type(self).__name__)
        self._check(tuple(v.shape[-1:]), v.shape[:-1], (self.m,), caller, name)
        return v

    def _weights(self, weights: Any, batch: tuple[int, ...]) -> Array:
        weights = as_float_on(weights, self.prototype, "weights", type(self).__name__)
        check_weights(weights, (*batch, self.m))
        return weights

    def _check(
        self, given: tuple[int, ...], batch: Any, wanted: tuple[int, ...], caller: str, name: str
    ) -> None:
        if given != wanted or not self._takes_batch(tuple(batch)):
            leading = map(str, self.batch_shape) if self.batch_shape else ["*batch"]
            hint = (
                "Did you restrict the operator but not the data?"
                if name != "X"
                else "Did you vectorise the tensor, or pass another shape=?"
            )
            raise ValueError(
                f"{type(self).__name__}.{caller} expects {name} of shape "
                f"{_shape_text(*leading, *wanted)}, got {tuple(batch) + tuple(given)}. {hint}"
            )

    def _takes_batch(self, batch: tuple[int, ...]) -> bool:
        """Whether leading axes fit: any for one operator; none, or its own, for a batch."""
        own = self.batch_shape
        if not own or not batch or batch == own:
            return True
        return len(batch) <= len(own) and all(
            b in (1, n) for b, n in zip(reversed(batch), reversed(own), strict=False)
        )

    def _checked(self, out: Any, wanted: tuple[int, ...], hook: str, *, one: bool = False) -> Array:
        """Check the output of a hook: an array of the operator's kind, trailing axes ``wanted``."""
        name = f"{type(self).__name__}.{hook}"
        if not is_array(out):
            raise TypeError(
                f"{name} returned {type(out).__name__}, expected an array of shape {wanted}. "
                "Does it return its result?"
            )
        core = out.shape if one else out.shape[max(0, out.ndim - len(wanted)) :]
        if tuple(core) != wanted:
            expected = _shape_text(*wanted) if one else _shape_text("*batch", *wanted)
            raise ValueError(
                f"{name} returned shape {tuple(out.shape)}, expected {expected}. "
                "Check the operator's m and shape."
            )
        return same_kind(out, self.prototype, f"the output of {name}", type(self).__name__)

    def _without_nan(self, out: Array, name: str, hook: Any, x: Any, numbers: Array) -> Array:
        """Refuse NaN and infinity that a hook outside the package makes of finite numbers.

        Overflow is allowed, for the run then reports divergence: a smaller multiple of the input
        is finite. Cost: one sum of the output; more only if that is not finite.
        """
        if not self.validate_output or all_finite(out) or not all_finite(numbers):
            return out
        largest = float(namespace(numbers).max(namespace(numbers).abs(numbers)))
        if largest > 1 and all_finite(hook(x * (1 / largest))):
            return out
        values = to_numpy(out)
        bad = tuple(np.argwhere(~np.isfinite(values))[0].tolist())
        forward = name != "_adjoint"
        place = f"row {bad[-1]}" if forward else f"entry {bad[-len(self.shape) :]}"
        advice = "or leave that row out with A.restrict(rows)" if forward else ""
        raise ValueError(
            f"{type(self).__name__}.{name} returned {values[bad]} in {place} for finite input. "
            f"Correct the function{', ' * forward}{advice}; lowtucker.check_adjoint(A) tests it."
        )

    def __repr__(self) -> str:
        batch = f"batch of {self.batch_shape}, " if self.batch_shape else ""
        share = self.m / size(self.shape)
        return (
            f"{type(self).__name__}: {batch}{self.m} measurements of tensors of shape "
            f"{self.shape} ({share:.2g} per entry)"
        )


def _shape_text(*entries: Any) -> str:
    return f"({entries[0]},)" if len(entries) == 1 else f"({', '.join(map(str, entries))})"


def check_operator(A: Any) -> MeasurementOperator:
    """Check that A is an operator."""
    if not isinstance(A, MeasurementOperator):
        raise TypeError(
            f"A must be a MeasurementOperator, got {type(A).__name__}. "
            "Try lowtucker.as_operator(A, shape)."
        )
    return A

"""The measurement operator: the contract that everything above relies on.

An operator of one's own needs ``shape``, ``m`` and two hooks: :class:`MeasurementOperator` has
an example. The public methods check their arguments, loop over the leading axes of a stack, and
check what the hooks return. Run :func:`lowtucker.check_adjoint` on it once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lowtucker._array import (
    Array,
    Rows,
    all_finite,
    as_float_on,
    is_array,
    is_complex,
    like,
    namespace,
    same_kind,
    size,
    to_numpy,
)
from lowtucker._array.errors import SlowOperatorWarning, warn_caller
from lowtucker.operators.arguments import (
    check_rows,
    check_weights,
    common_batch,
    refuse_rows_of_trials,
)
from lowtucker.operators.design import TangentDesign
from lowtucker.operators.traits import Traits
from lowtucker.status import Finding
from lowtucker.tensor.decompose import hooi, hosvd
from lowtucker.tensor.products import norm
from lowtucker.tensor.rank import check_rank
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["MeasurementOperator", "RestrictedOperator", "check_operator"]

# Sweeps of HOOI that a start gets
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
        Leading axes, for an operator that is a stack of trials; ().
    dtype : dtype or None
        Dtype of the tensors, where the operator insists on one.
    prototype : array or None
        An array of the kind and on the device that the operator works with; None is NumPy.

    Examples
    --------
    An operator of one's own: pictures exposed over all the frames of a video, the last mode.
    ``_forward`` takes one tensor of ``shape`` to ``(m,)``, ``_adjoint`` goes back.

    >>> import numpy as np, lowtucker as lt
    >>> class Exposure(lt.MeasurementOperator):
    ...     shape, m = (4, 5, 3), 20
    ...     def _forward(self, X):
    ...         return X.sum(axis=-1).ravel()
    ...     def _adjoint(self, v):
    ...         return np.repeat(v, 3).reshape(self.shape)
    >>> lt.check_adjoint(Exposure()) < 1e-13
    True
    """

    shape: tuple[int, ...]
    m: int
    batch_shape: tuple[int, ...] = ()
    dtype: Any = None
    prototype: Array | None = None
    # Whether the hooks take leading axes themselves; otherwise the base class loops over them.
    takes_stacks: ClassVar[bool] = False
    # Whether the hooks are not the package's own: what they return is looked at for NaN.
    foreign: ClassVar[bool] = True
    # Whether rows are alike, as Gaussian ones are: noise has then no structure in the adjoint.
    alike: bool = True

    def __init_subclass__(cls) -> None:
        if "foreign" not in cls.__dict__:
            cls.foreign = cls.__module__.partition(".")[0] != __name__.partition(".")[0]

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
        """Rows that an average divides by: m, but for stacked blocks of unequal length."""
        return self.m

    @property
    def restricts(self) -> bool:
        """Whether a block costs its own rows only."""
        return type(self)._restrict is not MeasurementOperator._restrict

    @property
    def designs(self) -> bool:
        """Whether the tangent design costs about a reading of the rows."""
        return type(self)._tangent is not MeasurementOperator._tangent

    @property
    def makes_tensors(self) -> bool:
        """Whether tensors of the full size are made, as for the start of a run."""
        return type(self)._spectral_start is MeasurementOperator._spectral_start

    @property
    def traits(self) -> Traits:
        """What solvers and diagnosis may rely on."""
        return Traits(
            self.restricts, self.designs, self.alike, self.makes_tensors, self.takes_stacks
        )

    def diagnose(self, rank: tuple[int, ...], measured: Array | None = None) -> list[Finding]:
        """Say what measurements cannot determine of a tensor of that rank, and other remarks.

        ``measured`` is a mask of the measurements that count, None for all.
        """
        unseen = [Finding("unsampled", text) for text in self._blind_spots(rank, measured)]
        return [*(Finding("duplicates", text) for text in self._remarks()), *unseen]

    # The hooks: two required, six that make it faster, two that tell

    @abstractmethod
    def _forward(self, X: Array) -> Array:
        """Measure a tensor: ``shape`` -> ``(m,)``."""

    @abstractmethod
    def _adjoint(self, v: Array) -> Array:
        """Apply the adjoint: ``(m,)`` -> ``shape``."""

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        """Make the operator of some of the rows; ``rows`` are checked."""
        refuse_rows_of_trials(rows, self)
        if not getattr(self, "_told_slow", False):
            self._told_slow = True
            warn_caller(
                f"{type(self).__name__} cannot measure some of its rows alone: every block costs "
                'all the rows. solver="tiht" uses them all at once; or give an operator of your '
                "own a _restrict method.",
                SlowOperatorWarning,
            )
        return RestrictedOperator(self, rows)

    def _forward_tucker(self, X: TuckerTensor) -> Array:
        """Measure a tensor given by its factors."""
        return self._stacked(self._forward, X.full(), len(self.shape))

    def _misfit(self, X: Array, y: Array, weights: Array | None) -> tuple[Array, Array]:
        """Residual y - A(X) and A*(weights * residual)."""
        residual = y - self._stacked(self._forward, X, len(self.shape))
        weighted = residual if weights is None else weights * residual
        return residual, self._stacked(self._adjoint, weighted, 1)

    def _residual(self, X: Array | TuckerTensor, y: Array | None, weights: Array | None) -> Array:
        """Residual y - A(X), or -A(X) without y; weights for those who only know its norm."""
        measured = self.forward(X)
        if y is None:
            return -measured
        common_batch(measured.shape[:-1], y.shape[:-1])
        return y - measured

    def _tangent(self, T: TangentSpace) -> TangentDesign:
        """Design of a tangent space: by forwards and adjoints unless an operator knows better."""
        return TangentDesign(self, T)

    def _spectral_start(self, v: Array, rank: tuple[int, ...]) -> TuckerTensor:
        """HOSVD of A*(v), which is formed, and ten sweeps of HOOI where rows are alike.

        The sweeps cost next to nothing beside A. With few measurements A*(v) is mostly noise, and
        they find the subspaces better: of 30x30x30 tensors of rank 3 from 5 measurements per
        degree of freedom, "auto" reads the rows 2.3 times after them, and 3.1 times without. Rows
        with heavy tails, as outer products have, leave spikes in A*(v) that they would run after.
        """
        Z = self._stacked(self._adjoint, v, 1)
        if not self.alike:
            return hosvd(Z, rank, warn=False)
        return hooi(Z, rank, max_iterations=SWEEPS, warn=False)

    def _blind_spots(self, rank: tuple[int, ...], measured: Array | None) -> tuple[str, ...]:
        """What of a tensor of that rank no measurement can tell, where that is plain to see.

        ``measured`` is a mask of the measurements that count, None for all.
        """
        return ()

    def _remarks(self) -> tuple[str, ...]:
        """Say what a user should know of the measurements."""
        return ()

    def _row_norms(self) -> Array:
        """Frobenius norms of the rows, ``(m,)``: by default one adjoint for each.

        Complex measurements of real tensors need two: the adjoint is a real part.
        """
        zero = like(np.zeros(self.shape), self.prototype, self.dtype)
        two_parts = is_complex(self._stacked(self._forward, zero, len(self.shape)))
        two_parts = two_parts and not is_complex(zero)
        norms = np.zeros(self.m)
        for i in range(self.m):
            for part in (1.0, 1.0j) if two_parts else (1.0,):
                unit = np.zeros(self.m, dtype=type(part))
                unit[i] = part
                row = self._stacked(self._adjoint, like(unit, self.prototype), 1)
                norms[i] = np.hypot(norms[i], float(norm(row)))
        return like(norms, self.prototype)

    # What users and solvers call

    def forward(self, X: Array | TuckerTensor) -> Array:
        """Measure: A(X), shape (*batch, m).

        Parameters
        ----------
        X : array, shape (*batch, n_1, ..., n_d), or TuckerTensor
        """
        if isinstance(X, TuckerTensor):
            self._check(X.shape, X.batch_shape, self.shape, "forward", "X")
            same_kind(X.core, self.prototype, "X", type(self).__name__)
            out = self._checked(self._forward_tucker(X), (self.m,), "_forward_tucker")
            return self._without_nan(out, "_forward_tucker", self._forward_tucker, X, X.core)
        return self._stacked(self._forward, self._tensor(X, "forward"), len(self.shape))

    def adjoint(self, v: Array) -> Array:
        """Apply the adjoint: A*(v), shape (*batch, n_1, ..., n_d).

        Parameters
        ----------
        v : array, shape (*batch, m)
        """
        v = self._measurements(v, "adjoint", "v")
        return self._stacked(self._adjoint, v, 1)

    def restrict(self, rows: Rows) -> MeasurementOperator:
        """Operator of some of the measurements: ``restrict(rows).forward(X) = forward(X)[rows]``.

        Parameters
        ----------
        rows : slice or integer array
            For a stack of trials also a tuple with one of these for every trial; where they
            differ in length the shorter ones are filled up with rows of zeros.
        """
        return self._restrict(check_rows(rows, self.m, self.batch_shape))

    def select(self, trials: Sequence[int]) -> MeasurementOperator:
        """Stack of some of the trials of a stack, without a copy; one operator for all stays."""
        return self._select(trials) if self.batch_shape else self

    # A hook of stacks only, with a batch_shape of their own
    def _select(self, trials: Sequence[int]) -> MeasurementOperator:
        raise NotImplementedError(f"{type(self).__name__} is a stack, but cannot select trials.")

    def misfit(
        self, X: Array | TuckerTensor, y: Array, weights: Array | None = None
    ) -> tuple[Array, Array]:
        """Residual y - A(X) and A*(weights * (y - A(X))).

        A matrix in NumPy is read once for both; other operators do a forward and an adjoint.

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
        X = X.full() if isinstance(X, TuckerTensor) else X
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
        """
        if self.batch_shape:
            raise ValueError(
                f"{type(self).__name__}.tangent takes one operator, not a stack. "
                "Make one for each trial."
            )
        if not isinstance(T, TangentSpace):
            raise TypeError(
                f"T must be a TangentSpace, got {type(T).__name__}. Try lowtucker.TangentSpace(X)."
            )
        self._check(T.X.shape, (), self.shape, "tangent", "X")
        return self._tangent(T)

    def spectral_start(self, v: Array, rank: tuple[int, ...]) -> TuckerTensor:
        """Approximation of the adjoint by that rank, where the Riemannian solvers start.

        Parameters
        ----------
        v : array, shape (*batch, m)
        rank : tuple of int
        """
        rank = check_rank(rank, self.shape, warn=False)
        return self._spectral_start(self._measurements(v, "spectral_start", "v"), rank)

    def row_norms(self) -> Array:
        """Frobenius norms of the sensing tensors, shape (*batch, m)."""
        return self._row_norms()

    # Checks shared by the public methods

    def _stacked(self, hook: Any, x: Array, core_ndim: int) -> Array:
        """Apply a hook to every item of a stack."""
        forward = hook == self._forward
        name, wanted = ("_forward", (self.m,)) if forward else ("_adjoint", self.shape)
        if self.takes_stacks:
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
        return self._without_nan(out, name, lambda z: self._stacked(hook, z, core_ndim), x, x)

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
                else "Did you vectorise the tensor, or is shape= not the tensor's?"
            )
            raise ValueError(
                f"{type(self).__name__}.{caller} expects {name} of shape "
                f"{_shape_text(*leading, *wanted)}, got {tuple(batch) + tuple(given)}. {hint}"
            )

    def _takes_batch(self, batch: tuple[int, ...]) -> bool:
        """Whether leading axes fit: any for one operator; none, or its own, for a stack."""
        own = self.batch_shape
        if not own or not batch or batch == own:
            return True
        return len(batch) <= len(own) and all(
            b in (1, n) for b, n in zip(reversed(batch), reversed(own), strict=False)
        )

    def _checked(self, out: Any, wanted: tuple[int, ...], hook: str, *, one: bool = False) -> Array:
        """Check what a hook returned: an array of the operator's kind that ends in ``wanted``."""
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
        return same_kind(out, self.prototype, f"what {name} returned", type(self).__name__)

    def _without_nan(self, out: Array, name: str, hook: Any, x: Any, numbers: Array) -> Array:
        """Refuse NaN and infinity that a foreign hook makes of finite numbers.

        What overflows is allowed, for it ends as a blow-up: a smaller multiple is then finite. One
        sum of what the hook returned; the rest where that is not finite.
        """
        if not self.foreign or all_finite(out) or not all_finite(numbers):
            return out
        largest = float(namespace(numbers).max(namespace(numbers).abs(numbers)))
        if largest > 1 and all_finite(hook(x * (1 / largest))):
            return out
        values = to_numpy(out)
        bad = tuple(np.argwhere(~np.isfinite(values))[0].tolist())
        forward = name != "_adjoint"
        place = f"row {bad[-1]}" if forward else f"entry {bad[-len(self.shape) :]}"
        advice = "or leave that row out: A.restrict(rows) with the others" if forward else ""
        raise ValueError(
            f"{type(self).__name__}.{name} returned {values[bad]} in {place} for finite numbers. "
            f"Correct the function{', ' * forward}{advice}; lowtucker.check_adjoint(A) looks at it."
        )

    def __repr__(self) -> str:
        stack = f"stack of {self.batch_shape}, " if self.batch_shape else ""
        share = self.m / size(self.shape)
        return (
            f"{type(self).__name__}: {stack}{self.m} measurements of tensors of shape "
            f"{self.shape} ({share:.2g} per entry)"
        )


class RestrictedOperator(MeasurementOperator):
    """Some rows of an operator that cannot restrict itself: right, and slow.

    Every ``forward`` and ``adjoint`` costs that of the whole operator.
    """

    def __init__(self, whole: MeasurementOperator, rows: Rows) -> None:
        self.whole = whole
        self.rows = np.arange(whole.m)[rows]
        self.shape = whole.shape
        self.m = len(self.rows)
        self.dtype = whole.dtype
        self.prototype = whole.prototype

    def _forward(self, X: Array) -> Array:
        out = self.whole._stacked(self.whole._forward, X, len(self.shape))
        return namespace(out).take(out, like(self.rows, out), axis=-1)

    def _adjoint(self, v: Array) -> Array:
        # a matrix product with 0/1 columns would be m x m; adding up handles repeated rows too
        given = to_numpy(v)
        filled = np.zeros(self.whole.m, dtype=given.dtype)
        np.add.at(filled, self.rows, given)
        return self.whole._stacked(self.whole._adjoint, like(filled, v), 1)

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        refuse_rows_of_trials(rows, self)
        return RestrictedOperator(self.whole, self.rows[rows])


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

"""Error bars of a recovered tensor: standard errors, intervals, functionals, draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    all_finite,
    as_float,
    as_float_on,
    as_integer,
    as_number,
    conj,
    is_complex,
    like,
    namespace,
    to_numpy,
)
from lowtucker._array.random import Seed, Stream, generator
from lowtucker.operators import EntriesOperator
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.design import TangentDesign
from lowtucker.operators.sparse import check_sparse
from lowtucker.problem import Problem
from lowtucker.tensor.iterate import Iterate, checked_indices
from lowtucker.tensor.products import exponent, norm, shifted
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.thresholding import SparseTensor
from lowtucker.uncertainty.information import (
    UNKNOWN,
    Information,
    Noise,
    ProductInformation,
    information_at,
)

__all__ = ["Functional", "KeptInformation", "Uncertainty", "as_level"]

# Degrees of freedom up to which a covariance goes into a file: dof^2 numbers, 8 MB
KEPT = 1000
# A covariance from a file is refused where tangent coordinates differ by more than this
SAME = 1e-6


@dataclass(frozen=True)
class Functional:
    """A linear functional <X, W> of a recovered tensor; arrays for a batch of problems.

    Attributes
    ----------
    estimate : float or complex
    standard_error : float
        Of a complex estimate, the root of the mean squared absolute error.
    interval : tuple
        Lower and upper end; of a complex estimate, corners of a rectangle: each part is inside at
        that level.
    p_value : float
        Probability of an estimate as far from zero where <X, W> is zero, two-sided.
    level : float
        That of the interval.
    """

    estimate: Any
    standard_error: Any
    interval: tuple[Any, Any]
    p_value: Any
    level: float


@dataclass(frozen=True, eq=False)
class KeptInformation:
    """Information as a file keeps it; ``probe`` tells whether tangent coordinates are the same."""

    root: Any
    null: Any
    left: Any
    sigma: float
    spare: float
    power: int
    probe: Any


class Uncertainty:
    r"""How uncertain a recovered tensor of low Tucker rank is, by the linear model at X.

    :class:`lowtucker.Result` has these methods too; there they also ask the verdict whether the
    model can be trusted. The information matrix is computed at first use: one pass over the rows,
    dof^2 numbers and dof^3 flops where it can be formed, up to 5000 degrees of freedom; otherwise
    all is done by products with the tangent design.

    Parameters
    ----------
    X : TuckerTensor
        A batch for a batch of problems.
    problem : Problem, optional
        The measurements; not kept in files and pickles.
    noise : Noise
        What is known of the noise.
    power : int
        X and the problem are in units of two to this power.
    information : Information or callable, optional
        Instead of a problem; a callable is asked at first use.
    """

    def __init__(
        self,
        X: TuckerTensor,
        problem: Problem | None = None,
        noise: Noise = UNKNOWN,
        *,
        power: int = 0,
        information: Information | Callable[[], Information] | None = None,
    ) -> None:
        self.X, self.problem, self.noise, self.power = X, problem, noise, power
        self._information: Any = information
        count = X.batch_shape[0] if X.batch_shape else 0
        self._each: list[Uncertainty | None] = [None] * count

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the measurements: a pickle would hold all of A."""
        state = {**self.__dict__, "problem": None}
        if isinstance(self._information, ProductInformation):
            state["_information"] = None
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> Uncertainty:
        """Return itself: all that it has is never changed, and a copy would hold all of A."""
        return self

    @property
    def information(self) -> Information | ProductInformation:
        """The information of the measurements at X, of a single problem; computed once."""
        if callable(self._information):
            self._information = self._information()
        if self._information is None:
            if self.problem is None:
                raise ValueError(
                    "The measurements are not at hand: a file or a pickle does not keep them. Try "
                    "result.with_measurements(A, y), or ask for error bars before result.save."
                )
            self._information = information_at(self.problem, self.X, self.noise)
        known: Information | ProductInformation = self._information
        return known

    def trial(self, k: int) -> Uncertainty:
        """Uncertainty of one problem of a batch."""
        made = self._each[k]
        if made is None:
            problem, huber = self.problem, self.noise.huber
            if problem is not None:
                problem = problem.trial(k)
            if huber is not None:
                huber = huber[k, : problem.m] if problem is not None else None
            noise = self.noise._replace(huber=huber)
            made = Uncertainty(self.X.trial(k), problem, noise, power=self.power)
            self._each[k] = made
        return made

    def standard_error(self, indices: Any) -> Array:
        """Standard errors of some entries, shape (*batch, k).

        Parameters
        ----------
        indices : integer array, shape (k, d)
            One row of 0-based indices per entry.
        """
        index = checked_indices(indices, self.X.shape)
        if not len(index):
            return _none(self.X)
        return self.standard_error_of(EntriesOperator(self.X.shape, index))

    def standard_error_of(self, A: MeasurementOperator) -> Array:
        """Standard errors of what an operator measures of X, shape (*batch, m). One pass over A.

        These are errors of A(X) without the noise of new measurements.
        """
        if self.X.batch_shape:
            return self._stacked([one.standard_error_of(A) for one in self.trials()])
        with np.errstate(all="ignore"):
            found = self.information.deviations(self._design(A))
        return shifted(found, self.power)

    def interval(self, indices: Any, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper ends of intervals for some entries, each of shape (*batch, k).

        Each alone covers its entry with the probability ``level``, by quantiles of the t
        distribution; of complex entries, each of the two parts does.
        """
        level = as_level(level)
        width = self.standard_error(indices) * self.quantiles(level)
        return around(self._entries(indices), width)

    def functional(self, W: Any, level: float = 0.95) -> Functional:
        """Return <X, W> with its standard error, interval and p-value.

        Parameters
        ----------
        W : array, TuckerTensor or another iterate, SciPy sparse matrix, or (indices, values)
            A tensor of the shape of X. Values of a pair stand at the rows of ``indices``, (k, d).
        level : float
        """
        level = as_level(level)
        if self.X.batch_shape:
            return _joined([one.functional(W, level) for one in self.trials()], level)
        T = self.information.T
        w = _coordinates(T, W)
        unit = exponent(norm(w)) if float(norm(w)) else 0  # squares must be numbers
        row = conj(shifted(w, -unit))[None, :]
        with np.errstate(all="ignore"):
            error = float(shifted(self.information.deviations_of(row), unit + self.power)[0])
        value = namespace(w).sum(row * T.here[None, :], axis=1)
        estimate = to_numpy(shifted(value, unit + self.power))[0]
        plain = complex(estimate) if is_complex(T.X.core) else float(estimate.real)
        low, high = around(np.asarray(plain), np.asarray(error * self.quantiles(level)))
        ends = (low.item(), high.item())
        return Functional(plain, error, ends, self._p_value(plain, error), level)

    def sample(self, n: int, seed: Seed = 0) -> TuckerTensor:
        """Draw tensors from the approximate posterior: X moved along its tangent space.

        Parameters
        ----------
        n : int
        seed : int

        Returns
        -------
        TuckerTensor
            A batch of n tensors of the rank of X.
        """
        n = as_integer(n, "n", 1)
        if self.X.batch_shape:
            raise ValueError(
                f"sample draws from one problem, got a batch of {self.X.batch_shape[0]}. Try "
                "result.trial(k).sample(n)."
            )
        information = self.information
        if not information.determined:
            raise ValueError(
                "The measurements do not determine X: a posterior would be infinitely wide. Add "
                "measurements or lower the rank."
            )
        T, draws = information.T, information.draws(n, seed)
        drawn = TuckerTensor.concat([T.retract(draws[k, :]).batched() for k in range(n)])
        return drawn.shifted(self.power)

    def quantiles(self, level: float) -> Any:
        """Half-widths of intervals in standard errors; an array for a batch."""
        if self.X.batch_shape:
            return np.array([[float(one.quantiles(level))] for one in self.trials()])
        spare = self.information.spare
        root = math.sqrt(2) if is_complex(self.X.core) else 1.0
        return student_quantile(level, spare) / root

    def trials(self) -> list[Uncertainty]:
        """Uncertainties of the problems of a batch."""
        return [self.trial(k) for k in range(len(self._each))]

    def kept(self) -> tuple[KeptInformation | None, ...]:
        """Return what a file keeps of every problem: information that was computed and is small."""
        if self.X.batch_shape:
            return tuple(one.kept()[0] for one in self.trials())
        made = self._information
        if not isinstance(made, Information) or made.T.dof > KEPT:
            return (None,)
        values = {f.name: getattr(made, f.name) for f in fields(made) if f.name != "T"}
        return (KeptInformation(**values, power=self.power, probe=_probe(made.T)),)

    @classmethod
    def of_kept(cls, X: TuckerTensor, kept: tuple[KeptInformation | None, ...]) -> Uncertainty:
        """Uncertainty of a file's content."""
        made = cls(X)
        if X.batch_shape:
            made._each = [cls.of_kept(X.trial(k), (one,)) for k, one in enumerate(kept)]
            return made
        (one,) = kept
        if one is None:
            return made
        _check_kept(one, X)
        made.power = one.power
        made.X = X.shifted(-one.power)
        T = TangentSpace(made.X)
        same = np.shape(one.probe) == (T.dof,) and np.allclose(_probe(T), one.probe, 0, SAME)
        if same:  # another LAPACK may have another basis
            values = {f.name: getattr(one, f.name) for f in fields(Information) if f.name != "T"}
            made._information = Information(T, **values)
        return made

    def _design(self, A: MeasurementOperator) -> TangentDesign:
        return A.tangent(self.information.T)

    def _entries(self, indices: Any) -> Array:
        return shifted(self.X.entries(indices), self.power)

    def _stacked(self, parts: list[Array]) -> Array:
        return namespace(*parts).stack(parts)

    def _p_value(self, estimate: Any, error: float) -> float:
        from scipy.special import fdtrc

        spare = self.information.spare
        parts = 2 if is_complex(self.X.core) else 1
        if not error or not math.isfinite(error):
            return 1.0 if error or not abs(estimate) else 0.0
        ratio = (abs(estimate) / error) ** 2
        # a normal distribution has infinitely many degrees of freedom
        return float(fdtrc(parts, min(spare, 1e12), ratio)) if spare else 1.0


def _check_kept(one: KeptInformation, X: TuckerTensor) -> None:
    """Raise ValueError if what a file keeps is no covariance of tensors like X."""
    dof, seen = X.degrees_of_freedom, np.shape(one.root)[-1:]
    shapes = {"root": (dof, *seen), "null": (dof, dof - sum(seen)), "left": (dof,)}
    for name, shape in shapes.items():
        if np.shape(getattr(one, name)) != shape or not all_finite(getattr(one, name)):
            raise ValueError(f"{name} of the covariance is not finite, of shape {shape}")
    if not isinstance(one.power, int) or not (one.sigma >= 0 and one.spare >= 0):
        raise ValueError(f"sigma {one.sigma}, spare {one.spare}, power {one.power}")


def as_level(level: Any) -> float:
    """Check the level of an interval."""
    value = as_number(level, "level", 0.0)
    if not 0 < value < 1:
        raise ValueError(
            f"level must be between 0 and 1, a probability, got {value:g}. Try level=0.95."
        )
    return float(value)


def student_quantile(level: float, spare: float) -> float:
    """Half-width of a two-sided interval of the t distribution; normal where spare is infinite."""
    from scipy.special import ndtri, stdtrit

    upper = (1 + level) / 2
    if not spare:
        return math.inf
    return float(ndtri(upper) if math.isinf(spare) else stdtrit(spare, upper))


def around(middle: Array, width: Any) -> tuple[Array, Array]:
    """Ends of intervals of a half-width; corners of rectangles for complex numbers."""
    xp = namespace(middle)
    half = like(width, middle, middle.dtype)
    if is_complex(middle):
        half = half * (1 + 1j)
    return xp.asarray(middle - half), xp.asarray(middle + half)


def _coordinates(T: TangentSpace, W: Any) -> Array:
    """Tangent coordinates of a tensor, which is not formed where it is sparse."""
    if isinstance(W, tuple) and len(W) == 2:
        return _of_samples(T, *W)
    if hasattr(W, "tocoo"):
        _check_shape(W.shape, T)
        check_sparse(W, "W")
        W = W.tocoo()
        return _of_samples(T, np.stack([W.row, W.col], axis=1), W.data)
    if isinstance(W, Iterate):
        _check_shape((*W.batch_shape, *W.shape), T)
    if isinstance(W, SparseTensor) and not W.row:
        places = np.unravel_index(to_numpy(W.places), W.shape)
        return _of_samples(T, np.stack(places, axis=1), W.values)
    if isinstance(W, TuckerTensor):
        _check_numbers(W.core, T)
        return T.coordinates(W)
    W = W.full() if isinstance(W, Iterate) else W
    dense = as_float_on(W, T.X.core, "W", "X")
    _check_shape(dense.shape, T)
    _check_numbers(dense, T)
    return T.coordinates(dense)


def _check_shape(given: Any, T: TangentSpace) -> None:
    if tuple(given) != T.X.shape:
        raise ValueError(
            f"W must have the shape of X, {T.X.shape}, got {tuple(given)}. For a few entries "
            "give a pair (indices, values)."
        )


def _check_numbers(W: Array, T: TangentSpace) -> None:
    if not all_finite(W):
        raise ValueError("W has NaN or infinite entries. Use 0 where an entry does not count.")
    if is_complex(W) and not is_complex(T.X.core):
        raise ValueError(
            "W is complex, but X is real. Ask for the real and the imaginary part of W one by one."
        )


def _of_samples(T: TangentSpace, indices: Any, values: Any) -> Array:
    index = checked_indices(indices, T.X.shape)
    given = to_numpy(as_float(values, "W"))
    if given.shape != (len(index),):
        raise ValueError(
            f"W as a pair (indices, values) must have one value for each of the {len(index)} rows "
            f"of indices, got shape {given.shape}."
        )
    _check_numbers(given, T)
    A = EntriesOperator(T.X.shape, index)
    dtype = T.X.core.dtype
    return A.tangent(T).rmatvec(like(given, T.X.core, dtype))


def _joined(parts: list[Functional], level: float) -> Functional:
    """Functionals of a batch as one, of arrays."""
    ends = [np.array([one.interval[k] for one in parts]) for k in (0, 1)]
    return Functional(
        np.array([one.estimate for one in parts]),
        np.array([one.standard_error for one in parts]),
        (ends[0], ends[1]),
        np.array([one.p_value for one in parts]),
        level,
    )


def _none(X: TuckerTensor) -> Array:
    return like(np.zeros((*X.batch_shape, 0)), X.core)


def _probe(T: TangentSpace) -> Any:
    """Coordinates of a fixed tensor of norm 1, which show the basis of a tangent space."""
    rng = generator(0, Stream.PROBE)
    vectors = [rng.standard_normal((n, 1)) for n in T.X.shape]
    factors = [v / np.linalg.norm(v) for v in vectors]
    core = np.ones((1,) * len(T.X.shape))
    dtype = T.X.core.dtype
    Z = TuckerTensor.trusted(
        like(core, T.X.core, dtype), [like(U, T.X.core, dtype) for U in factors]
    )
    return to_numpy(T.coordinates(Z))

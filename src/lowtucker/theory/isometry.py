"""Tensor restricted isometry property: bounds on delta of Definition 5.1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import Array, as_integer, as_number, eps, is_complex, like, size, to_numpy
from lowtucker._array.linalg import eigh
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.operators import MeasurementOperator, as_operator, operator_norm
from lowtucker.operators.design import TangentDesign
from lowtucker.run.units import exponent_of
from lowtucker.solvers.sampling import BlockSampler, KaczmarzRows, RandomRows
from lowtucker.tensor.random import MOST_TRIALS, random_tucker
from lowtucker.tensor.rank import attainable_rank, check_rank, per_mode
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = [
    "Scaled",
    "Trip",
    "as_accepted",
    "block_norms",
    "block_slices",
    "random_tensors",
    "trip",
    "within",
]

NumPyArray = np.ndarray[Any, Any]

# Number of blocks, of largest norm, that are searched for extreme tensors
SEARCHED = 4
# Number of tensors with a single nonzero entry to try: sampled entries miss most of them
SPIKES = 64
# Entries of the tensors that are measured at a time
CHUNK_NUMBERS = 1 << 22
# Tangent dimension up to which the Gram matrix is decomposed; dimension of the Krylov space above
GRAM, KRYLOV = 1500, 12
# Exponents of two beyond which fourth powers of measurements would overflow or underflow
EXTREME = 200
# Entries of a tensor up to which the smallest singular value of A is computed
SMALL = 2000


class Scaled(NamedTuple):
    """Isometry constant of c A for the c that minimises it.

    Attributes
    ----------
    scale_squared : float
        c^2. A step for A, divided by it, is a step for c A.
    delta : float
        Lower bound for every scale.
    delta_sampled : float
        Quantile over random tensors, with the c that suits them; not a bound.
    """

    scale_squared: float
    delta: float
    delta_sampled: float


@dataclass(frozen=True, eq=False, repr=False)
class Trip:
    r"""Bounds on :math:`\delta_r` of Definition 5.1.

    With :math:`q(X) = \frac1m \|\mathcal{A}(X)\|^2 / \|X\|_F^2`, and :math:`q_i` of block i,
    :math:`\delta_r = \max(1 - \min q,\ \max_i \max q_i - 1)` over tensors of rank at most r.

    Attributes
    ----------
    shape, rank : tuple of int
    m : int
    block_sizes : tuple of int
    lowest, highest : float
        The smallest q and the largest :math:`q_i` found.
    lowest_witness, highest_witness : TuckerTensor
        Tensors of norm 1 that attain them.
    highest_block : int
        The block i of ``highest``.
    sampled : array, shape (samples, 2)
        q and :math:`\max_i q_i` of random tensors.
    quantile : float
    floor : float
        :math:`\sigma_{\min}(\mathcal{A})^2 / m`, a lower bound on q; 0 if there are fewer
        measurements than entries, or more than 2000 entries.
    block_norms : array, shape (M,)
        :math:`L_i = \|\mathcal{A}_{b_i}\|^2 / b_i`, an upper bound on :math:`q_i`.
    """

    shape: tuple[int, ...]
    rank: tuple[int, ...]
    m: int
    block_sizes: tuple[int, ...]
    lowest: float
    highest: float
    lowest_witness: TuckerTensor
    highest_witness: TuckerTensor
    highest_block: int
    sampled: NumPyArray
    quantile: float
    floor: float
    block_norms: NumPyArray

    @property
    def delta_at_least(self) -> float:
        """Certified lower bound on delta, attained by the witnesses."""
        return max(1 - self.lowest, self.highest - 1, 0.0)

    @property
    def delta_sampled(self) -> float:
        """Quantile of delta over random tensors; not a bound."""
        return self._seen(1.0)

    def _seen(self, scale_squared: float) -> float:
        low, high = scale_squared * self.sampled.T
        return max(0.0, float(np.quantile(np.maximum(1 - low, high - 1), self.quantile)))

    @property
    def delta_at_most(self) -> float:
        """Certified upper bound on delta, from the norms of A and its blocks."""
        return max(1 - self.floor, float(self.block_norms.max()) - 1, 0.0)

    @property
    def usual(self) -> float:
        """Median of q over random tensors: 1 for rows of variance 1."""
        return float(np.median(self.sampled[:, 0]))

    @property
    def scaled(self) -> Scaled:
        """Isometry constant after scaling A by the best factor."""
        total = self.lowest + self.highest
        if not (total > 0 and self.usual > 0):
            return Scaled(1.0, 1.0, 1.0)
        delta = max(0.0, (self.highest - self.lowest) / total)
        return Scaled(2 / total, delta, self._seen(1 / self.usual))

    def __str__(self) -> str:
        blocks = len(self.block_sizes)
        where = (
            "of A" if blocks == 1 else f"of the {_ordinal(self.highest_block)} of {blocks} blocks"
        )
        shape = "x".join(map(str, self.shape))
        scale, delta, seen = self.scaled
        floor = f"{self.floor:.3g}" if self.floor else "none"
        return (
            f"TRIP of {self.m} measurements, {shape} tensors of rank {self.rank}\n"
            f"  delta >= {self.delta_at_least:<8.4g} certified by witnesses: ||A(X)||^2/m is "
            f"{self.lowest:.4g} for one, and {self.highest:.4g} for another, by the rows {where}\n"
            f"  delta ~  {self.delta_sampled:<8.4g} holds for {self.quantile:.0%} of "
            f"{len(self.sampled)} random tensors: not a bound\n"
            f"  delta <= {self.delta_at_most:<8.4g} certified by norms: ||A_b||^2/b at most "
            f"{self.block_norms.max():.4g}, lower bound on ||A(X)||^2/m: {floor}\n"
            f"  for A times {scale**0.5:.4g}, the best scale: delta >= {delta:.4g}; random tensors "
            f"at the scale that suits them: {seen:.4g}"
        )

    __repr__ = __str__


def trip(
    A: Any,
    rank: tuple[int, ...],
    blocks: int | BlockSampler | None = None,
    *,
    starts: int = 20,
    samples: int = 200,
    quantile: float = 0.95,
    iterations: int = 30,
    seed: Seed = 0,
) -> Trip:
    r"""Bound the isometry constant :math:`\delta_r` of Definition 5.1.

    .. math::

        \tfrac1m \|\mathcal{A}(X)\|^2 \ge (1-\delta_r) \|X\|_F^2 \quad (5.1), \qquad
        \tfrac1b \|\mathcal{A}_{b_i}(X)\|^2 \le (1+\delta_r) \|X\|_F^2 \quad (5.2)

    for all X of rank at most r. Computing it is hard. This function returns a lower bound with
    tensors that attain it, an upper bound from norms, and the values for random tensors.

    Parameters
    ----------
    A : MeasurementOperator, or array of shape (m, n_1, ..., n_d)
    rank : tuple of int
        The theorem needs 3r; a rank that exceeds the shape is reduced to it.
    blocks : int or BlockSampler, optional
        The block size b, or a sampler such as ``Partition(b)``; by default A is the only block.
    starts : int
        Number of starts of the search for extreme tensors, for A and for each of the (at most
        four) blocks of largest norm.
    samples : int
        Number of random tensors, with Gaussian cores and uniform factors.
    quantile : float
        Quantile over the random tensors that ``delta_sampled`` reports.
    iterations : int
        Maximum number of steps from a start.
    seed : int

    Returns
    -------
    Trip

    Notes
    -----
    From a start X, the tangent vector at X with the extreme quotient (an eigenvector of the Gram
    matrix of the tangent design) is retracted to rank r, with a step short enough to make the
    quotient more extreme: a projected power iteration over the whole tangent space.

    Cost: ``samples / chunk`` passes over A for the random tensors (measured in batches if the
    operator supports them), tens of passes for each norm, and for each start up to ``iterations``
    tangent designs, with dof^2 numbers (above 1500 degrees of freedom, by products only).

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 4, 3), m=120, seed=1)
    >>> found = lt.theory.trip(A, (1, 2, 2), blocks=60, starts=3)
    >>> found.delta_sampled < found.delta_at_least < found.delta_at_most
    True
    >>> X = found.lowest_witness  # the bound can be verified
    >>> q = float((A.forward(X) ** 2).sum()) / 120
    >>> abs(q - found.lowest) < 1e-12
    True
    """
    A = as_operator(A)
    if A.batch_shape:
        raise ValueError(
            f"A must be a single operator, got a batch of {A.batch_shape}. Try A.select."
        )
    rank = within(rank, A.shape)
    power = exponent_of(A)
    if abs(power) > EXTREME:
        raise ValueError(
            f"A maps a tensor of norm 1 to measurements of norm 2^{power}, whose squares overflow "
            "or underflow. Rescale A: lowtucker.scale(A, number)."
        )
    rows = block_slices(blocks, A.m)
    starts = as_integer(starts, "starts", high=MOST_TRIALS)
    samples = as_integer(samples, "samples", high=MOST_TRIALS)
    iterations = as_integer(iterations, "iterations", 0)
    quantile = as_number(quantile, "quantile", 0)
    if quantile > 1:
        raise ValueError(f"quantile must be between 0 and 1, got {quantile:g}. Try 0.95.")
    if rank == A.shape:
        starts = 1  # the tangent space is the whole space: one step finds the extremes
    number, trial = as_seed(seed)
    pool = [*random_tensors(A, rank, samples, (number, trial)), *_spikes(A, rank, number)]
    seen = _quotients(A, pool, rows)
    norms = block_norms(A, rows)
    lowest = _extreme(A, _best(pool, seen[:, 0], starts, -1), -1, iterations)
    highest, where = None, 0
    for i in np.argsort(-norms, kind="stable")[:SEARCHED].tolist():
        part = _block(A, rows[i])
        first = [*_best(pool, seen[:, 1 + i], starts, +1), _spectral(part, rank, number)]
        found = _extreme(part, first, +1, iterations)
        if highest is None or found.quotient > highest.quotient:
            highest, where = found, i
    assert highest is not None
    some = seen[:samples]
    return Trip(
        shape=A.shape,
        rank=rank,
        m=A.m,
        block_sizes=tuple(one.stop - one.start for one in rows),
        lowest=lowest.quotient,
        highest=highest.quotient,
        lowest_witness=lowest.X,
        highest_witness=highest.X,
        highest_block=where,
        sampled=np.column_stack([some[:, 0], some[:, 1:].max(axis=1)]),
        quantile=quantile,
        floor=_floor(A),
        block_norms=norms,
    )


def block_slices(blocks: Any, m: int) -> list[slice]:
    """Return the rows of each block: contiguous, the last shorter if b does not divide m."""
    if isinstance(blocks, RandomRows | KaczmarzRows):
        raise ValueError(
            f"blocks must be fixed: {type(blocks).__name__} draws any subset of rows. "
            "Try lowtucker.Partition(block_size)."
        )
    b = blocks.block_size if isinstance(blocks, BlockSampler) else blocks
    b = m if b is None else as_integer(b, "blocks", 1, m)
    return [slice(start, min(start + b, m)) for start in range(0, m, b)]


def block_norms(A: MeasurementOperator, rows: list[slice]) -> NumPyArray:
    """Return L_i = ||A_{b_i}||^2 / b_i of each block. Tens of passes over A."""
    return np.array([operator_norm(_block(A, one)) ** 2 / (one.stop - one.start) for one in rows])


def _ordinal(k: int) -> str:
    """Format the 0-based index k as an ordinal number: 0 is "1st"."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get((k + 1) % 10 if (k + 1) // 10 % 10 != 1 else 0, "th")
    return f"{k + 1}{ending}"


class _Found(NamedTuple):
    quotient: float
    X: TuckerTensor


def within(rank: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the rank reduced to the shape, and to an attainable one."""
    rank = check_rank(per_mode(rank, shape), warn=False)
    if len(rank) == len(shape):
        rank = tuple(min(r, n) for r, n in zip(rank, shape, strict=True))
    return attainable_rank(check_rank(rank, shape, warn=False))


def _block(A: MeasurementOperator, rows: slice) -> MeasurementOperator:
    return A if rows == slice(0, A.m) else A.restrict(rows)


def random_tensors(
    A: MeasurementOperator, rank: tuple[int, ...], count: int, seed: tuple[int, int]
) -> Iterator[TuckerTensor]:
    """Yield random tensors of norm 1, of the array kind and dtype of A."""
    dtype = np.float64 if A.dtype is None else to_numpy(_zeros(A, ())).dtype
    for k in range(count):
        yield _unit(
            as_accepted(A, random_tucker(A.shape, rank, (seed[0], seed[1] + k), dtype=dtype))
        )


def _spikes(A: MeasurementOperator, rank: tuple[int, ...], seed: int) -> Iterator[TuckerTensor]:
    """Yield tensors with one nonzero entry, with unit vectors as factor columns."""
    rng = generator(seed, Stream.PROBE)
    core = np.zeros(rank)
    core[(0,) * len(rank)] = 1
    for _ in range(SPIKES):
        columns = [rng.permutation(n)[:r] for n, r in zip(A.shape, rank, strict=True)]
        factors = [np.zeros((n, r)) for n, r in zip(A.shape, rank, strict=True)]
        for U, where in zip(factors, columns, strict=True):
            U[where, np.arange(len(where))] = 1
        yield as_accepted(A, TuckerTensor.trusted(core, factors))


def _spectral(A: MeasurementOperator, rank: tuple[int, ...], seed: int) -> TuckerTensor:
    """Truncated adjoint of random measurements: favours tensors with large measurements."""
    example = A.forward(_zeros(A, A.shape))
    draws = generator(seed, Stream.PROBE).standard_normal(A.m)
    X = A.spectral_start(like(draws, example, example.dtype), rank)
    return _unit(X) if float(X.norm()) > 0 else next(_spikes(A, rank, seed))


def _zeros(A: MeasurementOperator, shape: tuple[int, ...]) -> Array:
    return like(np.zeros(shape), A.prototype, A.dtype)


def as_accepted(A: MeasurementOperator, X: TuckerTensor) -> TuckerTensor:
    """Convert a tensor to the array kind and dtype of A."""
    parts = [like(part, A.prototype, A.dtype) for part in (X.core, *X.factors)]
    return TuckerTensor.trusted(parts[0], parts[1:])


def _unit(X: TuckerTensor) -> TuckerTensor:
    return X * (1 / float(X.norm()))


def _quotients(A: MeasurementOperator, tensors: list[TuckerTensor], rows: list[slice]) -> Any:
    """Quotients of tensors of norm 1: for A in the first column, for the blocks in the others."""
    sizes = np.array([one.stop - one.start for one in rows])
    starts = [one.start for one in rows]
    table = []
    for measured in _measured(A, tensors):
        sums = np.add.reduceat(np.abs(measured) ** 2, starts, axis=-1)
        table.append(np.column_stack([sums.sum(axis=-1) / A.m, sums / sizes]))
    return np.concatenate(table)


def _measured(A: MeasurementOperator, tensors: list[TuckerTensor]) -> Iterator[NumPyArray]:
    """Yield the measurements of tensors, in batches if the operator supports them."""
    if not A.traits.supports_batch:
        for X in tensors:
            yield to_numpy(A.forward(X))[None]
        return
    chunk = max(1, CHUNK_NUMBERS // size(A.shape))
    for start in range(0, len(tensors), chunk):
        full = np.stack([to_numpy(X.full()) for X in tensors[start : start + chunk]])
        yield to_numpy(A.forward(like(full, A.prototype, A.dtype)))


def _best(
    pool: list[TuckerTensor], quotients: NumPyArray, count: int, sign: int
) -> list[TuckerTensor]:
    """Return the tensors of the pool with the most extreme quotients."""
    return [pool[k] for k in np.argsort(-sign * quotients, kind="stable")[:count]]


def _extreme(
    A: MeasurementOperator, starts: list[TuckerTensor], sign: int, iterations: int
) -> _Found:
    """Find the tensor with the largest (sign 1) or smallest (-1) quotient from the starts."""
    found = [_climb(A, X, sign, iterations) for X in starts]
    return max(found, key=lambda one: sign * one.quotient)


def _quotient(A: MeasurementOperator, X: TuckerTensor) -> float:
    return float(_quotients(A, [X], [slice(0, A.m)])[0, 0])


def _climb(A: MeasurementOperator, X: TuckerTensor, sign: int, iterations: int) -> _Found:
    """Iterate :func:`_step` while the quotient becomes more extreme."""
    best = _Found(_quotient(A, X), X)
    for _ in range(iterations):
        better = _step(A, best, sign)
        if better is None:
            break
        gain, best = abs(better.quotient - best.quotient), better
        if gain <= 1e-4 * best.quotient:
            break
    return best


def _step(A: MeasurementOperator, here: _Found, sign: int) -> _Found | None:
    """Return the next tensor, or None if no step makes the quotient more extreme."""
    T = TangentSpace(here.X)
    design, now = A.tangent(T), to_numpy(T.here)
    small = A.traits.has_fast_tangent and T.dof <= GRAM
    c = _from_gram(design, A, sign) if small else _from_products(design, now, sign)
    inner = np.vdot(c, now)
    c = c * (inner / abs(inner) if inner else 1)  # an eigenvector has no sign
    way = c - now
    for _ in range(8):
        X = T.retract(like(way, T.X.core, T.X.core.dtype))
        if float(X.norm()) > 0:
            X = _unit(X)
            found = _Found(_quotient(A, X), X)
            if sign * (found.quotient - here.quotient) > 0:
                return found
        way = way / 2
    return None


def _from_gram(design: TangentDesign, A: MeasurementOperator, sign: int) -> NumPyArray:
    """Extreme eigenvector of D^* D. One tangent design.

    Computes all eigenvectors: a LAPACK driver for one may fail for a multiple of the identity.
    """
    y = A.forward(_zeros(A, A.shape))
    gram = to_numpy(design.normal_equations(y).gram)
    return np.asarray(eigh(gram)[1][:, -1 if sign > 0 else 0])


def _from_products(design: TangentDesign, now: NumPyArray, sign: int) -> NumPyArray:
    """Extreme Ritz vector of D^* D in the Krylov space of X: KRYLOV forwards and adjoints."""
    core = design.T.X.core
    V = [now / np.linalg.norm(now)]
    images: list[NumPyArray] = []
    while True:
        seen = design.matvec(like(V[-1], core, core.dtype))
        images.append(to_numpy(design.rmatvec(seen)))
        if len(V) == KRYLOV:
            break
        w = images[-1]
        for _ in range(2):  # one pass leaves rounding error along the basis
            w = w - np.stack(V, axis=1) @ (np.conj(np.stack(V)) @ w)
        length = np.linalg.norm(w)
        if length <= 100 * eps(core) * np.linalg.norm(images[-1]):
            break
        V.append(w / length)
    basis = np.stack(V, axis=1)
    small = np.conj(basis.T) @ np.stack(images, axis=1)
    vectors = np.linalg.eigh((small + np.conj(small.T)) / 2)[1]
    return np.asarray(basis @ vectors[:, -1 if sign > 0 else 0])


def _floor(A: MeasurementOperator) -> float:
    """Square of the smallest singular value of A, over m: a lower bound on all quotients."""
    N = size(A.shape)
    if N > SMALL:
        return 0.0
    units = like(np.eye(N).reshape(N, *A.shape), A.prototype, A.dtype)
    columns = to_numpy(A.forward(units))
    if is_complex(columns) and not is_complex(units):
        columns = np.concatenate([columns.real, columns.imag], axis=-1)
    if columns.shape[-1] < N:
        return 0.0
    values = np.linalg.eigvalsh(columns @ np.conj(columns.T)) / A.m
    rounding = 10 * N * eps(columns) * values[-1]
    return max(0.0, float(values[0] - rounding))

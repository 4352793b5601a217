"""The tensor restricted isometry property: what can be said of delta, Definition 5.1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import (
    Array,
    as_integer,
    as_number,
    eps,
    is_complex,
    like,
    size,
    to_numpy,
)
from lowtucker._array.linalg import eigh
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.operators import MeasurementOperator, as_operator, operator_norm
from lowtucker.operators.design import TangentDesign
from lowtucker.run.units import exponent_of
from lowtucker.solvers.sampling import BlockSampler, RandomRows
from lowtucker.tensor.random import random_tucker
from lowtucker.tensor.rank import attainable_rank, check_rank
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Scaled", "Trip", "block_norms", "block_slices", "random_tensors", "trip", "within"]

NumPyArray = np.ndarray[Any, Any]

# Blocks whose worst tensors are looked for: those of the largest norms
SEARCHED = 4
# Tensors with one entry that are tried too: sampled entries miss most of them
SPIKES = 64
# Numbers of tensors that are measured at a time
CHUNK_NUMBERS = 1 << 22
# Coordinates of a tangent space up to which its gram matrix is decomposed, and products otherwise
GRAM, KRYLOV = 1500, 12
# Powers of two beyond which the squares of measurements, and of these, would overflow or vanish
EXTREME = 200
# Entries of a tensor up to which the smallest singular value of A is computed
SMALL = 2000


class Scaled(NamedTuple):
    """The isometry constant of c A, with the c for which it is smallest.

    Attributes
    ----------
    scale_squared : float
        c^2. A step for c A is a step for A divided by it.
    delta : float
        At least so much, whatever the scale.
    delta_sampled : float
        What random tensors see of c A, with a c of their own; no bound.
    """

    scale_squared: float
    delta: float
    delta_sampled: float


@dataclass(frozen=True, eq=False, repr=False)
class Trip:
    r"""What is known of :math:`\delta_r` of Definition 5.1.

    With :math:`q(X) = \frac1m \|\mathcal{A}(X)\|^2 / \|X\|_F^2`, and :math:`q_i` of block i,
    :math:`\delta_r = \max(1 - \min q,\ \max_i \max q_i - 1)` over tensors of rank at most r.

    Attributes
    ----------
    shape, rank : tuple of int
    m : int
    block_sizes : tuple of int
    lowest, highest : float
        The smallest q and the largest :math:`q_i` that were found.
    lowest_witness, highest_witness : TuckerTensor
        Tensors of norm 1 that have them.
    highest_block : int
        The block i.
    sampled : array, shape (samples, 2)
        q and :math:`\max_i q_i` of random tensors.
    quantile : float
    floor : float
        :math:`\sigma_{\min}(\mathcal{A})^2 / m`, below which no q is; 0 where there are fewer
        measurements than entries, or more than 2000 entries.
    block_norms : array, shape (M,)
        :math:`L_i = \|\mathcal{A}_{b_i}\|^2 / b_i`, above which no :math:`q_i` is.
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
        """Certified lower bound: the witnesses have it."""
        return max(1 - self.lowest, self.highest - 1, 0.0)

    @property
    def delta_sampled(self) -> float:
        """Quantile over random tensors: what most of them see. No bound."""
        return self._seen(1.0)

    def _seen(self, scale_squared: float) -> float:
        low, high = scale_squared * self.sampled.T
        return max(0.0, float(np.quantile(np.maximum(1 - low, high - 1), self.quantile)))

    @property
    def delta_at_most(self) -> float:
        """Certified upper bound: from the norms of A and its blocks."""
        return max(1 - self.floor, float(self.block_norms.max()) - 1, 0.0)

    @property
    def usual(self) -> float:
        """Median of q over random tensors: 1 for rows of variance 1."""
        return float(np.median(self.sampled[:, 0]))

    @property
    def scaled(self) -> Scaled:
        """What is left of delta when A is multiplied by the best number."""
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
            f"  delta ~  {self.delta_sampled:<8.4g} seen by {self.quantile:.0%} of "
            f"{len(self.sampled)} random tensors: no bound\n"
            f"  delta <= {self.delta_at_most:<8.4g} certified by norms: ||A_b||^2/b at most "
            f"{self.block_norms.max():.4g}, lower bound on ||A(X)||^2/m: {floor}\n"
            f"  for A times {scale**0.5:.4g}, the best scale: delta >= {delta:.4g}; random tensors "
            f"at their own best scale see {seen:.4g}"
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
    r"""Bounds on the isometry constant :math:`\delta_r` of Definition 5.1.

    .. math::

        \tfrac1m \|\mathcal{A}(X)\|^2 \ge (1-\delta_r) \|X\|_F^2 \quad (5.1), \qquad
        \tfrac1b \|\mathcal{A}_{b_i}(X)\|^2 \le (1+\delta_r) \|X\|_F^2 \quad (5.2)

    for all X of rank at most r. To compute it is hard; what is given is a lower bound with
    tensors that prove it, an upper bound from norms, and what random tensors see.

    Parameters
    ----------
    A : MeasurementOperator, or array of shape (m, n_1, ..., n_d)
    rank : tuple of int
        The theorem asks for 3r; a rank beyond the shape is cut to it.
    blocks : int or BlockSampler, optional
        The block size b, or a sampler such as ``Partition(b)``; A is its only block otherwise.
    starts : int
        Tensors from which the worst ones are looked for, for A and for each of the (at most four)
        blocks of largest norm.
    samples : int
        Random tensors: Gaussian cores, uniform factors.
    quantile : float
        Of what these see.
    iterations : int
        Most steps from a start.
    seed : int

    Returns
    -------
    Trip

    Notes
    -----
    From a start X, the tangent vector at X with the extreme quotient (an eigenvector of the gram
    matrix of the tangent design) is brought back to rank r, or as much of the way to it as makes
    the quotient worse: a projected power iteration that takes the whole tangent space at a time.

    Cost: ``samples / chunk`` passes for the random tensors (a stack is measured at once where the
    operator can), some tens of passes for each norm, and for each start up to ``iterations``
    tangent designs, with dof^2 numbers (above 1500 degrees of freedom, by products alone).

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 4, 3), m=120, seed=1)
    >>> found = lt.theory.trip(A, (1, 2, 2), blocks=60, starts=3)
    >>> found.delta_sampled < found.delta_at_least < found.delta_at_most
    True
    >>> X = found.lowest_witness  # anyone can check it
    >>> q = float((A.forward(X) ** 2).sum()) / 120
    >>> abs(q - found.lowest) < 1e-12
    True
    """
    A = as_operator(A)
    if A.batch_shape:
        raise ValueError(f"A must be one operator, got a stack of {A.batch_shape}. Take A.select.")
    rank = within(rank, A.shape)
    power = exponent_of(A)
    if abs(power) > EXTREME:
        raise ValueError(
            f"A takes a tensor of norm 1 to measurements of norm 2^{power}, whose squares are no "
            "numbers. Give A in other units: lowtucker.scale(A, number)."
        )
    rows = block_slices(blocks, A.m)
    starts, samples = as_integer(starts, "starts"), as_integer(samples, "samples")
    iterations = as_integer(iterations, "iterations", 0)
    quantile = as_number(quantile, "quantile", 0)
    if quantile > 1:
        raise ValueError(f"quantile must be between 0 and 1, got {quantile:g}. Try 0.95.")
    if rank == A.shape:
        starts = 1  # the tangent space is all there is: one step finds the extremes
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
    """Rows of each block: contiguous, the last one shorter where b does not divide m."""
    if isinstance(blocks, RandomRows):
        raise ValueError(
            "blocks must be fixed: RandomRows draws any rows, and delta would be over all subsets. "
            "Try lowtucker.Partition(block_size)."
        )
    b = blocks.block_size if isinstance(blocks, BlockSampler) else blocks
    b = m if b is None else as_integer(b, "blocks", 1, m)
    return [slice(start, min(start + b, m)) for start in range(0, m, b)]


def block_norms(A: MeasurementOperator, rows: list[slice]) -> NumPyArray:
    """L_i = ||A_{b_i}||^2 / b_i of each block. Some tens of passes."""
    return np.array([operator_norm(_block(A, one)) ** 2 / (one.stop - one.start) for one in rows])


def _ordinal(k: int) -> str:
    """Place of the k-th, counted from 0, as people count."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get((k + 1) % 10 if (k + 1) // 10 % 10 != 1 else 0, "th")
    return f"{k + 1}{ending}"


class _Found(NamedTuple):
    quotient: float
    X: TuckerTensor


def within(rank: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Rank cut to the shape, and to what is attainable."""
    rank = check_rank(rank, warn=False)
    if len(rank) == len(shape):
        rank = tuple(min(r, n) for r, n in zip(rank, shape, strict=True))
    return attainable_rank(check_rank(rank, shape, warn=False))


def _block(A: MeasurementOperator, rows: slice) -> MeasurementOperator:
    return A if rows == slice(0, A.m) else A.restrict(rows)


def random_tensors(
    A: MeasurementOperator, rank: tuple[int, ...], count: int, seed: tuple[int, int]
) -> Iterator[TuckerTensor]:
    """Random tensors of norm 1, of the kind and precision that A takes."""
    dtype = np.float64 if A.dtype is None else to_numpy(_zeros(A, ())).dtype
    for k in range(count):
        yield _unit(_on(A, random_tucker(A.shape, rank, (seed[0], seed[1] + k), dtype=dtype)))


def _spikes(A: MeasurementOperator, rank: tuple[int, ...], seed: int) -> Iterator[TuckerTensor]:
    """Tensors with one entry, as tensors of that rank: their other factors are unit vectors too."""
    rng = generator(seed, Stream.PROBE)
    core = np.zeros(rank)
    core[(0,) * len(rank)] = 1
    for _ in range(SPIKES):
        columns = [rng.permutation(n)[:r] for n, r in zip(A.shape, rank, strict=True)]
        factors = [np.zeros((n, r)) for n, r in zip(A.shape, rank, strict=True)]
        for U, where in zip(factors, columns, strict=True):
            U[where, np.arange(len(where))] = 1
        yield _on(A, TuckerTensor.trusted(core, factors))


def _spectral(A: MeasurementOperator, rank: tuple[int, ...], seed: int) -> TuckerTensor:
    """Truncated adjoint of random measurements: it leans towards what A sees most of."""
    example = A.forward(_zeros(A, A.shape))
    draws = generator(seed, Stream.PROBE).standard_normal(A.m)
    X = A.spectral_start(like(draws, example, example.dtype), rank)
    return _unit(X) if float(X.norm()) > 0 else next(_spikes(A, rank, seed))


def _zeros(A: MeasurementOperator, shape: tuple[int, ...]) -> Array:
    return like(np.zeros(shape), A.prototype, A.dtype)


def _on(A: MeasurementOperator, X: TuckerTensor) -> TuckerTensor:
    """Tensor as arrays of the kind that A takes."""
    parts = [like(part, A.prototype, A.dtype) for part in (X.core, *X.factors)]
    return TuckerTensor.trusted(parts[0], parts[1:])


def _unit(X: TuckerTensor) -> TuckerTensor:
    return X * (1 / float(X.norm()))


def _quotients(A: MeasurementOperator, tensors: list[TuckerTensor], rows: list[slice]) -> Any:
    """Quotients of tensors of norm 1: of A in the first column, of each block in the others."""
    sizes = np.array([one.stop - one.start for one in rows])
    starts = [one.start for one in rows]
    table = []
    for measured in _measured(A, tensors):
        sums = np.add.reduceat(np.abs(measured) ** 2, starts, axis=-1)
        table.append(np.column_stack([sums.sum(axis=-1) / A.m, sums / sizes]))
    return np.concatenate(table)


def _measured(A: MeasurementOperator, tensors: list[TuckerTensor]) -> Iterator[NumPyArray]:
    """Measurements of tensors, as stacks where the operator reads its rows once for a stack."""
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
    """Those of the pool with the most extreme quotients."""
    return [pool[k] for k in np.argsort(-sign * quotients, kind="stable")[:count]]


def _extreme(
    A: MeasurementOperator, starts: list[TuckerTensor], sign: int, iterations: int
) -> _Found:
    """Tensor with the largest quotient (sign 1) or the smallest (-1) that the starts lead to."""
    found = [_climb(A, X, sign, iterations) for X in starts]
    return max(found, key=lambda one: sign * one.quotient)


def _quotient(A: MeasurementOperator, X: TuckerTensor) -> float:
    return float(_quotients(A, [X], [slice(0, A.m)])[0, 0])


def _climb(A: MeasurementOperator, X: TuckerTensor, sign: int, iterations: int) -> _Found:
    """Go to the best tangent vector, brought back to the rank, while that makes it better."""
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
    """Next tensor on the way; None where there is no better one."""
    T = TangentSpace(here.X)
    design, now = A.tangent(T), to_numpy(T.here)
    small = A.traits.has_fast_tangent and T.dof <= GRAM
    c = _from_gram(design, A, sign) if small else _from_products(design, now, sign)
    inner = np.vdot(c, now)
    c = c * (inner / abs(inner) if inner else 1)  # the sign of an eigenvector means nothing
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

    From all eigenvectors: asked for one alone, LAPACK may give none of a multiple of the identity.
    """
    y = A.forward(_zeros(A, A.shape))
    gram = to_numpy(design.normal_equations(y).gram)
    return np.asarray(eigh(gram)[1][:, -1 if sign > 0 else 0])


def _from_products(design: TangentDesign, now: NumPyArray, sign: int) -> NumPyArray:
    """Extreme vector of the Krylov space of D^* D from X: so many forwards and adjoints."""
    core = design.T.X.core
    V = [now / np.linalg.norm(now)]
    images: list[NumPyArray] = []
    while True:
        seen = design.matvec(like(V[-1], core, core.dtype))
        images.append(to_numpy(design.rmatvec(seen)))
        if len(V) == KRYLOV:
            break
        w = images[-1]
        for _ in range(2):  # once leaves rounding error along the others
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
    """Smallest singular value of A, squared, over m: no tensor at all has a smaller quotient."""
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
    return max(0.0, float(values[0] - 10 * N * eps(columns) * values[-1]))  # certified: rounding

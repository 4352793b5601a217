"""Random low-rank tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lowtucker._array import as_flag, as_float_dtype, as_integer, as_number, as_shape
from lowtucker._array.linalg import qr
from lowtucker._array.memory import check_room
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.tensor.rank import check_rank
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["MOST_TRIALS", "gaussians", "items_of", "random_tucker", "stack_seeds"]

# Random trials of one call, at most: of a microsecond each they would take a second
MOST_TRIALS = 10**6
# Bytes that an item of a batch takes before it is stacked, beside its numbers
OF_ITEM = 1 << 9


def random_tucker(
    shape: tuple[int, ...],
    rank: tuple[int, ...],
    seed: Seed = 0,
    *,
    orthonormal: bool = True,
    core_mean: float = 0.0,
    dtype: Any = np.float64,
    trials: int | None = None,
) -> TuckerTensor:
    """Draw a tensor with a Gaussian core and random factors.

    Parameters
    ----------
    shape, rank : tuple of int
    seed : int, or (int, trial)
    orthonormal : bool
        Whether factors are uniformly distributed orthonormal matrices. ``False`` gives the
        targets of the paper's experiments: core and factors i.i.d. N(0, 1). (That tensor is also
        stored with orthonormal factors.)
    core_mean : float
        Mean of the core's entries.
    dtype : float or complex dtype
    trials : int, optional
        Draw a batch of ``trials`` tensors: item k is the tensor of ``seed=(seed, k)``.

    Examples
    --------
    >>> random_tucker((30, 30, 10), (8, 8, 2), seed=0)
    TuckerTensor of shape (30, 30, 10), rank (8, 8, 2): 628 numbers instead of 9000 (14.3x)
    """
    shape = as_shape(shape)
    rank = check_rank(rank, shape)
    dtype = as_float_dtype(dtype)
    as_flag(orthonormal, "orthonormal")
    mean = dtype.type(as_number(core_mean, "core_mean"))
    numbers = math.prod(rank) + sum(n * r for n, r in zip(shape, rank, strict=True))
    check_room(
        2 * numbers * dtype.itemsize * items_of(trials),  # one copy by the decompositions
        f"Core and factors of {numbers} numbers{'' if trials is None else ', times trials,'}",
        "Try a smaller shape, rank or number of trials.",
    )
    cores, factors = [], []
    for one in stack_seeds(seed, trials):
        rng = generator(one, Stream.TENSOR)
        cores.append(gaussians(rng, rank, dtype) + mean)
        draws = (gaussians(rng, (n, r), dtype) for n, r in zip(shape, rank, strict=True))
        factors.append([qr(U)[0] if orthonormal else U for U in draws])
    if trials is None:
        return TuckerTensor.from_factors(cores[0], factors[0])
    stacked = [np.stack([item[k] for item in factors]) for k in range(len(shape))]
    return TuckerTensor.from_factors(np.stack(cores), stacked)


def items_of(trials: int | None) -> int:
    """The number of items of a batch; 1 if ``trials`` is None."""
    return 1 if trials is None else as_integer(trials, "trials")


def stack_seeds(seed: Seed, trials: int | None) -> list[Seed]:
    """Return the seeds of the items of a batch, or one seed if ``trials`` is None."""
    number, trial = as_seed(seed)
    count = items_of(trials)
    check_room(OF_ITEM * count, f"A batch of {count} items", "Try fewer trials.")
    return [(number, trial + k) for k in range(count)]


def gaussians(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """Draw Gaussian numbers of variance 1 (complex: circular), in single or double precision."""
    real = np.float32 if dtype in (np.float32, np.complex64) else np.float64
    if dtype.kind == "f":
        return rng.standard_normal(shape, dtype=real)
    parts = rng.standard_normal((2, *shape), dtype=real) / real(np.sqrt(2))
    return np.asarray(parts[0] + 1j * parts[1], dtype=dtype)

"""Examination of an operator: what its measurements can determine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from lowtucker._array import like, size, to_numpy
from lowtucker._array.errors import CheckError
from lowtucker._array.random import Seed, as_seed
from lowtucker.limits import PLENTY
from lowtucker.operators import MeasurementOperator, as_operator, check_adjoint
from lowtucker.problem import Problem
from lowtucker.solvers.models import eigenvalues, full_rank_margin, has_full_rank
from lowtucker.solvers.rgn import LARGE
from lowtucker.solvers.stotiht import default_block_size
from lowtucker.status import UNDETERMINED
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom
from lowtucker.theory.isometry import Trip, block_slices, random_tensors, trip

__all__ = ["Examination", "Finding", "examine"]

NumPyArray = np.ndarray[Any, Any]
Level = Literal["good", "note", "bad"]

# Number of random tensors at which the tangent design is examined
POINTS = 3
# Largest number of blocks whose balance is examined
BLOCKS = 16
# Entries of a matrix above which bounds and tangent designs use only its first rows
MANY = 1 << 27
# Degrees of freedom up to which a tangent design without a fast path is computed by columns
FEW = 500
# Noise amplification from y to X above which to note it, and above which it is too large
LOUD, DEAFENING = 10.0, 100.0
# Ratios of row norms, and of energies of blocks, above which to note them
UNEQUAL, UNBALANCED = 10.0, 2.0
# Ratio of the smallest to the largest energy of measured tensors below which to note it
FAINT = 0.01


class Finding(NamedTuple):
    """One finding: good, a note, or bad."""

    level: Level
    text: str


@dataclass(frozen=True, eq=False, repr=False)
class Examination:
    """What an operator can determine about tensors of a given rank.

    Attributes
    ----------
    shape, rank : tuple of int
    m, equations, dof : int
        Number of measurements; of real equations, two for each complex measurement of a real
        tensor; and of degrees of freedom.
    looked_at : int
        Number of rows used for bounds and designs: m, or fewer for a very large operator.
    adjoint : float or None
        Relative difference of the adjoint test; None if it failed.
    row_norms : array or None
        Frobenius norms of the rows; None if each would cost an adjoint.
    trip : Trip or None
    design : array, shape (points, 2), or None
        Smallest and largest eigenvalue of D^* D at random tensors, where D is the tangent design.
    amplification : float or None
        Relative error of X per unit of relative noise in y, by least squares on the true tangent
        space: the largest over the random tensors.
    findings : tuple of Finding
    """

    shape: tuple[int, ...]
    rank: tuple[int, ...]
    m: int
    equations: int
    dof: int
    looked_at: int
    adjoint: float | None
    row_norms: NumPyArray | None
    trip: Trip | None
    design: NumPyArray | None
    amplification: float | None
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there are no bad findings."""
        return all(one.level != "bad" for one in self.findings)

    @property
    def verdict(self) -> str:
        """Conclusion in one sentence."""
        if not self.ok:
            first = next(one.text for one in self.findings if one.level == "bad")
            return f"These measurements are not sufficient: {first}"
        per = self.equations / self.dof
        if per < PLENTY:
            return (
                f"These measurements can determine a tensor of rank {self.rank}; with {per:.1f} "
                "per degree of freedom expect local minima and restarts."
            )
        return f"These measurements can determine a tensor of rank {self.rank}."

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        lines = [
            f"{self.m} measurements of {shape} tensors, {size(self.shape)} entries",
            f"  rank {self.rank}: {self.dof} degrees of freedom, "
            f"{self.equations / self.dof:.2f} equations per degree of freedom",
        ]
        if self.trip is not None:
            lines += [f"  {line}" for line in str(self.trip).splitlines()]
        marks = {"good": "ok  ", "note": "note", "bad": "BAD "}
        lines += [f"  {marks[one.level]}  {one.text}" for one in self.findings]
        return "\n".join([*lines, self.verdict])

    __repr__ = __str__


def examine(
    A: Any,
    rank: tuple[int, ...],
    *,
    block_size: int | None = None,
    starts: int = 2,
    samples: int = 100,
    seed: Seed = 0,
    report: Callable[[str], None] = lambda what: None,
) -> Examination:
    """Examine an operator: adjoint, row norms, balance of blocks, TRIP and identifiability.

    Parameters
    ----------
    A : MeasurementOperator, or array of shape (m, n_1, ..., n_d)
    rank : tuple of int
        Rank of the tensors to recover.
    block_size : int, optional
        Size of the blocks whose balance is examined; by default that of StoTIHT, but at most 16
        blocks.
    starts, samples : int
        As in :func:`trip`.
    seed : int
    report : callable, optional
        Called with the name of each step before it starts.

    Returns
    -------
    Examination

    Notes
    -----
    Cost: tens to hundreds of passes over A. For a matrix of more than 1 GB, bounds and designs use
    only the first rows.

    Examples
    --------
    >>> import lowtucker as lt
    >>> found = lt.theory.examine(lt.gaussian((5, 5, 6), m=88, seed=1), (1, 2, 2))
    >>> print(found.verdict)
    These measurements can determine a tensor of rank (1, 2, 2).
    >>> found.ok, found.equations, found.dof
    (True, 88, 22)
    """
    A = as_operator(A)
    if A.batch_shape:
        raise ValueError(
            f"A must be a single operator, got a batch of {A.batch_shape}. Try A.select."
        )
    rank = attainable_rank(check_rank(rank, A.shape))
    dof = degrees_of_freedom(A.shape, rank)
    equations, few = _empty(A).equations, _first_rows(A)
    report("the adjoint")
    adjoint, wrong = _adjoint(A, seed)
    findings = [wrong] if wrong else [Finding("good", f"the adjoint is correct ({adjoint:.0e})")]
    findings += _counted(equations, dof, size(A.shape))
    noted = A.diagnose(rank)
    findings += [Finding("bad", one.text) for one in noted if one.kind in UNDETERMINED]
    report("row norms")
    norms = _row_norms(A)
    findings += _rows_found(norms)
    found = design = amplification = None
    if not wrong:
        b = block_size
        if b is None and few.traits.row_separable:
            b = _block_size(few, rank)
        report("blocks and isometry bounds")
        found = trip(few, rank, b, starts=starts, samples=samples, seed=seed)
        findings += [*_balance(found, norms), *_isometry(found)]
        report("tangent designs")
        design, amplification, seen = _designs(few, rank, found, seed)
        findings += _identified(seen, amplification)
    findings += [Finding("note", one.text) for one in noted if one.kind not in UNDETERMINED]
    if few.m < A.m:
        findings.append(Finding("note", f"bounds and designs use the first {few.m} rows"))
    return Examination(
        A.shape, rank, A.m, equations, dof, few.m, adjoint, norms, found, design, amplification,
        tuple(findings),
    )  # fmt: skip


def _empty(A: MeasurementOperator) -> Problem:
    """Problem with measurements of zero, used only for its operator."""
    return Problem(A, A.forward(like(np.zeros(A.shape), A.prototype, A.dtype)))


def _first_rows(A: MeasurementOperator) -> MeasurementOperator:
    """Return the operator, or the first rows of a matrix too large for many passes."""
    numbers, traits = size(A.shape), A.traits
    # each row is a full tensor
    is_matrix = traits.row_separable and traits.has_fast_tangent and traits.forms_full_tensor
    if not is_matrix or A.m * numbers <= MANY:
        return A
    return A.restrict(slice(0, max(1, MANY // numbers)))


def _adjoint(A: MeasurementOperator, seed: Seed) -> tuple[float | None, Finding | None]:
    try:
        return check_adjoint(A, seed=seed), None
    except CheckError as error:
        return None, Finding("bad", str(error))


def _counted(equations: int, dof: int, entries: int) -> Iterator[Finding]:
    per = equations / dof
    if equations < dof:
        yield Finding(
            "bad",
            f"{equations} equations for {dof} degrees of freedom: take at least {2 * dof}, or "
            "use a smaller rank.",
        )
    elif per < PLENTY:
        yield Finding(
            "note", f"{per:.1f} equations per degree of freedom are few: `lowtucker plan` "
            "estimates the recovery rate"
        )  # fmt: skip
    else:
        yield Finding(
            "good", f"{per:.1f} equations per degree of freedom: enough, if they are independent"
        )
    if equations >= entries:
        yield Finding(
            "note", f"{equations} equations for {entries} entries: ordinary least squares suffices"
        )


def _row_norms(A: MeasurementOperator) -> NumPyArray | None:
    """Norms of the rows, unless each costs an adjoint and there are many."""
    fast = A.traits.has_fast_row_norms
    return to_numpy(A.row_norms()) if fast or A.m <= 1000 else None


def _rows_found(norms: NumPyArray | None) -> Iterator[Finding]:
    if norms is None:
        return
    zeros = int((norms == 0).sum())
    if zeros:
        yield Finding("note", f"zero rows: {zeros}; leave them out")
    positive = norms[norms > 0]
    if positive.size and positive.max() > UNEQUAL * positive.min():
        ratio = positive.max() / positive.min()
        yield Finding(
            "note", f"row norms differ by a factor of {ratio:.3g}: unless the noise is "
            "proportional to them, divide the rows and y by them"
        )  # fmt: skip


def _block_size(A: MeasurementOperator, rank: tuple[int, ...]) -> int:
    dof = degrees_of_freedom(A.shape, rank)
    return max(default_block_size(_empty(A), 2 * dof), math.ceil(A.m / BLOCKS))


def _balance(found: Trip, norms: NumPyArray | None) -> Iterator[Finding]:
    """Compare the energies of blocks: StoTIHT draws them with equal probability."""
    sizes = np.array(found.block_sizes)
    if len(sizes) == 1:
        return
    energies = found.block_norms
    if norms is not None:
        rows = block_slices(int(sizes[0]), int(sizes.sum()))
        energies = np.array([np.mean(norms[one] ** 2) for one in rows])
    low, high = float(energies.min()), float(energies.max())
    if not high:
        return
    if high > UNBALANCED * low:
        yield Finding(
            "note", f"blocks of {sizes[0]} rows differ in energy by a factor of "
            f"{high / low if low else math.inf:.3g}: shuffle the rows, or give StoTIHT p=\"norms\""
        )  # fmt: skip
    else:
        yield Finding("good", f"{len(sizes)} blocks of {sizes[0]} rows are balanced")


def _isometry(found: Trip) -> Iterator[Finding]:
    least, usual = found.lowest / max(found.highest, 1e-300), found.usual
    if least <= 1e-12:
        yield Finding(
            "note", "some tensor of that rank has measurements of zero (trip.lowest_witness): the "
            "findings below hold for most tensors, not for all"
        )  # fmt: skip
    else:
        level: Level = "good" if least > FAINT else "note"
        yield Finding(
            level, "the smallest energy ||A(X)||^2 found for a tensor of that rank is "
            f"{least:.2g} of the largest"
        )  # fmt: skip
    if not 0.5 <= usual <= 2:
        yield Finding(
            "note", f"||A(X)||^2/m is about {usual:.3g} ||X||^2: steps of TIHT and StoTIHT scale "
            'with its inverse (step="auto" chooses them)'
        )  # fmt: skip


def _designs(
    A: MeasurementOperator, rank: tuple[int, ...], found: Trip, seed: Seed
) -> tuple[NumPyArray | None, float | None, bool]:
    """Extreme eigenvalues of D^* D, noise amplification, and whether D has full rank."""
    problem = _empty(A)
    pairs, worst, seen = [], 0.0, True
    for X in random_tensors(A, rank, POINTS, as_seed(seed)):
        if degrees_of_freedom(A.shape, rank) > (LARGE if A.traits.has_fast_tangent else FEW):
            return None, None, has_full_rank(problem, X, seed)
        values = eigenvalues(problem, X)
        pairs.append((values[0], values[-1]))
        if full_rank_margin(values) <= 1:
            seen = False
            continue
        parts = problem.equations / problem.m  # complex noise has a real and an imaginary part
        worst = max(worst, math.sqrt(found.usual / parts * float(np.sum(1 / values))))
    return np.array(pairs), worst if seen else None, seen


def _identified(seen: bool, amplification: float | None) -> Iterator[Finding]:
    if not seen:
        yield Finding(
            "bad", "the tangent design at random tensors is rank-deficient: other tensors nearby "
            "have the same measurements. Add measurements of what is missing, or use a smaller "
            "rank."
        )  # fmt: skip
    elif amplification is not None:
        level: Level = "good" if amplification <= LOUD else "note"
        text = f"1 % of noise in y becomes about {amplification:.2g} % in X"
        if amplification > DEAFENING:
            text += ": parts of X are barely measured. Use other measurements, or a smaller rank."
            level = "bad"
        yield Finding(level, f"the tangent design has full rank; {text}")
    else:
        yield Finding("good", "the tangent design has full rank")

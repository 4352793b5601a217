"""Look at an operator before the work: what these measurements can determine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from lowtucker._array import like, size, to_numpy
from lowtucker._array.errors import CheckError
from lowtucker._array.random import Seed, as_seed
from lowtucker.operators import DenseOperator, MeasurementOperator, as_operator, check_adjoint
from lowtucker.operators.streamed import StreamedOperator
from lowtucker.problem import Problem
from lowtucker.solvers.manifold import eigenvalues, full_rank_margin, sees_all
from lowtucker.solvers.noise import PLENTY
from lowtucker.solvers.rgn import LARGE
from lowtucker.solvers.stotiht import default_block_size
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom
from lowtucker.theory.isometry import Trip, block_slices, random_tensors, trip

__all__ = ["Examination", "Finding", "examine"]

NumPyArray = np.ndarray[Any, Any]
Level = Literal["good", "note", "bad"]

# Random points at which the tangent design is looked at
POINTS = 3
# Most blocks whose balance is looked at
BLOCKS = 16
# Numbers of a matrix beyond which only its first rows are looked at for bounds and designs
MANY = 1 << 27
# Degrees of freedom up to which a design is made column by column, where there is none
FEW = 500
# Noise in y that becomes so many times as much in X is worth a word, and is too much
LOUD, DEAFENING = 10.0, 100.0
# Row norms, and energies of blocks, that differ by more are worth a word
UNEQUAL, UNBALANCED = 10.0, 2.0
# Share of the energy below which the tensor that is measured least is worth a word
FAINT = 0.01


class Finding(NamedTuple):
    """One thing that was found: good, a note, or bad."""

    level: Level
    text: str


@dataclass(frozen=True, eq=False, repr=False)
class Examination:
    """What an operator can do for tensors of a rank.

    Attributes
    ----------
    shape, rank : tuple of int
    m, equations, dof : int
        Measurements; real equations, which are two for a complex measurement of a real tensor;
        degrees of freedom.
    looked_at : int
        Rows that bounds and designs are of: m, or the first ones of a very large operator.
    adjoint : float or None
        Relative difference of the adjoint test; None where it failed.
    row_norms : array or None
        Frobenius norms of the rows; None where each would cost an adjoint.
    trip : Trip or None
    design : array, shape (points, 2), or None
        Smallest and largest eigenvalue of D^* D at random tensors, D the tangent design.
    amplification : float or None
        Relative error of X for each unit of relative noise in y, by least squares at the true
        tangent space: the worst of the points.
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
        """Whether nothing bad was found."""
        return all(one.level != "bad" for one in self.findings)

    @property
    def verdict(self) -> str:
        """All in one sentence."""
        if not self.ok:
            first = next(one.text for one in self.findings if one.level == "bad")
            return f"These measurements will not do: {first}"
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
            f"{self.equations / self.dof:.2f} equations for each",
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
    """Examine measurements: adjoint, norms, balance of blocks, TRIP, identifiability, verdict.

    Parameters
    ----------
    A : MeasurementOperator, or array of shape (m, n_1, ..., n_d)
    rank : tuple of int
        Of the tensors that are to be recovered.
    block_size : int, optional
        Whose balance is looked at; what StoTIHT would choose, but at most 16 blocks.
    starts, samples : int
        As in :func:`trip`.
    seed : int
    report : callable, optional
        Told what is looked at next.

    Returns
    -------
    Examination

    Notes
    -----
    Cost: some tens to hundreds of passes. Of a matrix of more than 1 GB only the first rows are
    looked at for bounds and designs.

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
        raise ValueError(f"A must be one operator, got a stack of {A.batch_shape}. Take A.select.")
    rank = attainable_rank(check_rank(rank, A.shape))
    dof = degrees_of_freedom(A.shape, rank)
    equations, few = _empty(A).equations, _first_rows(A)
    report("the adjoint")
    adjoint, wrong = _adjoint(A, seed)
    findings = [wrong] if wrong else [Finding("good", f"the adjoint is right ({adjoint:.0e})")]
    findings += _counted(equations, dof, size(A.shape))
    notes = A.diagnose(rank)
    findings += [
        Finding("bad", one.text) for one in notes if one.kind in ("unsampled", "undersampled")
    ]
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
    findings += [
        Finding("note", one.text) for one in notes if one.kind not in ("unsampled", "undersampled")
    ]
    if few.m < A.m:
        findings.append(Finding("note", f"bounds and designs are of the first {few.m} rows"))
    return Examination(
        A.shape, rank, A.m, equations, dof, few.m, adjoint, norms, found, design, amplification,
        tuple(findings),
    )  # fmt: skip


def _empty(A: MeasurementOperator) -> Problem:
    """Problem of which only the operator matters."""
    return Problem(A, A.forward(like(np.zeros(A.shape), A.prototype, A.dtype)))


def _first_rows(A: MeasurementOperator) -> MeasurementOperator:
    """As many rows as can be read again and again; all, unless a matrix is very large."""
    numbers = size(A.shape)
    is_matrix = isinstance(A, DenseOperator | StreamedOperator)
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
            f"{equations} equations for {dof} degrees of freedom: take at least {2 * dof}, or a "
            "smaller rank.",
        )
    elif per < PLENTY:
        yield Finding(
            "note", f"{per:.1f} equations per degree of freedom are few: `lowtucker plan` says how "
            "often that is enough"
        )  # fmt: skip
    else:
        yield Finding("good", f"{per:.1f} equations per degree of freedom: plenty, if they differ")
    if equations >= entries:
        yield Finding(
            "note", f"{equations} equations for {entries} entries: least squares alone would do"
        )


def _row_norms(A: MeasurementOperator) -> NumPyArray | None:
    """Norms of the rows, where they do not cost an adjoint each."""
    own = type(A)._row_norms is not MeasurementOperator._row_norms
    return to_numpy(A.row_norms()) if own or A.m <= 1000 else None


def _rows_found(norms: NumPyArray | None) -> Iterator[Finding]:
    if norms is None:
        return
    zeros = int((norms == 0).sum())
    if zeros:
        yield Finding("note", f"rows that are zero: {zeros}; leave them out")
    positive = norms[norms > 0]
    if positive.size and positive.max() > UNEQUAL * positive.min():
        ratio = positive.max() / positive.min()
        yield Finding(
            "note", f"row norms differ by a factor of {ratio:.3g}: unless the noise does too, "
            "divide rows and y by them"
        )  # fmt: skip


def _block_size(A: MeasurementOperator, rank: tuple[int, ...]) -> int:
    return max(default_block_size(_empty(A), rank), math.ceil(A.m / BLOCKS))


def _balance(found: Trip, norms: NumPyArray | None) -> Iterator[Finding]:
    """Whether blocks are alike: StoTIHT draws them with equal probability."""
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
            "note", "of some tensor of that rank nothing is measured (trip.lowest_witness): what "
            "follows is about most tensors, not about all"
        )  # fmt: skip
    else:
        level: Level = "good" if least > FAINT else "note"
        yield Finding(
            level, "the tensor of that rank that is measured least, of those found, has "
            f"{least:.2g} of the energy of the one measured most"
        )  # fmt: skip
    if not 0.5 <= usual <= 2:
        yield Finding(
            "note", f"||A(X)||^2/m is about {usual:.3g} ||X||^2: steps of TIHT and StoTIHT are "
            'in units of its inverse (step="auto" finds them)'
        )  # fmt: skip


def _designs(
    A: MeasurementOperator, rank: tuple[int, ...], found: Trip, seed: Seed
) -> tuple[NumPyArray | None, float | None, bool]:
    """Extreme eigenvalues of D^* D and the noise's amplification at random tensors."""
    problem = _empty(A)
    pairs, worst, seen = [], 0.0, True
    for X in random_tensors(A, rank, POINTS, as_seed(seed)):
        if degrees_of_freedom(A.shape, rank) > (LARGE if A.traits.has_fast_tangent else FEW):
            return None, None, sees_all(problem, X, seed)
        values = eigenvalues(problem, X)
        pairs.append((values[0], values[-1]))
        if full_rank_margin(values) <= 1:
            seen = False
            continue
        parts = problem.equations / problem.m  # noise of a complex measurement has two parts
        worst = max(worst, math.sqrt(found.usual / parts * float(np.sum(1 / values))))
    return np.array(pairs), worst if seen else None, seen


def _identified(seen: bool, amplification: float | None) -> Iterator[Finding]:
    if not seen:
        yield Finding(
            "bad", "the tangent design at random tensors has less than full rank: near each there "
            "are others with the same measurements. Measure what these leave out, take more, or a "
            "smaller rank."
        )  # fmt: skip
    elif amplification is not None:
        level: Level = "good" if amplification <= LOUD else "note"
        said = f"1 % of noise in y becomes about {amplification:.2g} % in X"
        if amplification > DEAFENING:
            said += ": parts of X are hardly measured. Take other measurements, or a smaller rank."
            level = "bad"
        yield Finding(level, f"the tangent design has full rank; {said}")
    else:
        yield Finding("good", "the tangent design has full rank")

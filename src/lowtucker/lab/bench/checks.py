r"""How often each check of a result is wrong: ``lowtucker bench checks``.

A check (:mod:`lowtucker.recovery.diagnosis`) compares a statistic with a threshold
(:mod:`lowtucker.limits`). Its simulation draws cases of which it is known what the check should
say: a function of a random generator that returns an :class:`Outcome` for each of its claims (None
where the case says nothing of it), and an entry in :data:`SIMULATIONS`. What cases are made of is
in :mod:`lowtucker.lab.bench.cases`.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lowtucker import limits
from lowtucker._array import one_blas_thread
from lowtucker.lab.bench.cases import (
    DEFICIENT,
    FIT,
    NOISE,
    as_functions,
    draw_case,
    ended_at,
    fitted,
    gaussian_core,
    noisy,
)
from lowtucker.lab.bench.draws import OPERATORS, Rng, Trial, between, draw_rank, draw_sizes
from lowtucker.lab.bench.verdict import FALSE_FAILURE, FALSE_SUCCESS, examine
from lowtucker.metrics import relative_error
from lowtucker.operators import MeasurementOperator, as_operator
from lowtucker.problem import Problem
from lowtucker.recovery.accuracy import accuracy_at
from lowtucker.recovery.evidence import Evidence, Outliers
from lowtucker.recovery.fit import noise_floor
from lowtucker.recovery.rank import compare_larger_rank
from lowtucker.solvers.models import NOT_SEEN
from lowtucker.solvers.noise import Structure
from lowtucker.tensor import (
    attainable_rank,
    degrees_of_freedom,
    hosvd,
    mode_product,
    multi_mode_product,
)

__all__ = ["SIMULATIONS", "Claim", "Outcome", "Row", "Simulation", "run", "simulated"]

# Quantiles of the statistic in the table
QUANTILES = (0.01, 0.5, 0.99)
# A stated rate is exceeded where so many wrong claims, or more, would be this unlikely
UNLIKELY = 1e-3
# Kinds of operators: all, and those whose rows are drawn independently from one distribution
ALL, ISOTROPIC = tuple(OPERATORS), ("gaussian", "rank_one", "entries", "dct", "dct signs")
# Small tensors, of which few measurements have many local minima
SMALL = ((5, 5, 6), (4, 4, 4), (6, 5, 4, 3), (7, 6, 5), (8, 8))
# Measurements per degree of freedom: any number, few, enough to tell, for estimates, for ranks
ANY, FEW, PLENTY, SOME, MANY = (
    (1.3, 8.0), (1.03, 2.5), (limits.PLENTY, 8.0), (3.0, 6.0), (5.0, 10.0),
)  # fmt: skip
# Size of noise relative to the measurements, where it does not matter
LEVEL = 0.05
# Share of outliers, and their size in standard deviations of the noise
OUTLYING, FAR = 0.05, 10.0


class Outcome(NamedTuple):
    """Statistic of a case, and whether the claim is wrong."""

    statistic: float
    wrong: bool


@dataclass(frozen=True)
class Claim:
    """What a check may be wrong about.

    Parameters
    ----------
    check : str
    mistake : str
        What is said wrongly.
    statistic, threshold : str
        What is compared, and when that is wrong: "> {STRUCTURE:g}" with a name of
        :mod:`lowtucker.limits`.
    stated : float
        The rate of mistakes that the check states.
    """

    check: str
    mistake: str
    statistic: str
    threshold: str
    stated: float


class Simulation(NamedTuple):
    """How to draw a case of some claims, and how many to draw."""

    draw: Callable[[Rng], Sequence[Outcome | None]]
    cases: int
    claims: tuple[Claim, ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A claim, and how often it was wrong.

    Parameters
    ----------
    check, mistake, statistic, threshold : str
        As in :class:`Claim`.
    cases, wrong : int
        How many cases there were, and in how many of them the claim was wrong.
    rate, stated : float
        Share of wrong claims, measured and stated.
    met : bool or None
        False where the stated rate is exceeded by more than chance; None without cases.
    low, median, high : float
        Quantiles 1, 50 and 99 % of the statistic.
    needed : float
        Threshold at which the rate is the stated one; NaN where one number does not decide.
    """

    check: str
    mistake: str
    statistic: str
    threshold: str
    cases: int
    wrong: int
    rate: float
    stated: float
    met: bool | None
    low: float
    median: float
    high: float
    needed: float


def run(seed: int = 0, share: float = 1.0) -> Iterator[Row]:
    """Yield the rows of all claims; with a share, of so many of the cases. One BLAS thread."""
    for simulation in SIMULATIONS:
        yield from simulated(simulation, seed, math.ceil(share * simulation.cases))


def simulated(simulation: Simulation, seed: int, cases: int) -> list[Row]:
    """Return one row for each claim: a pure function of its arguments.

    A case depends on the seed, the name of the function that draws it, and its number.
    """
    name = zlib.crc32(simulation.draw.__name__.encode())
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = [
            simulation.draw(np.random.default_rng([seed, name, index])) for index in range(cases)
        ]
    return [
        _row(claim, [outcome for outcome in column if outcome is not None])
        for claim, column in zip(simulation.claims, zip(*drawn, strict=True), strict=True)
    ]


def _row(claim: Claim, outcomes: list[Outcome]) -> Row:
    from scipy.special import bdtrc  # a module that takes long to load

    threshold = claim.threshold.format_map(vars(limits))
    cases, wrong = len(outcomes), sum(outcome.wrong for outcome in outcomes)
    # probability of this number or more; bdtrc has that of more
    chance = float(bdtrc(wrong - 1, cases, claim.stated)) if wrong else 1.0
    statistics = [outcome.statistic for outcome in outcomes]
    decisive = {">": 1 - claim.stated, "<": claim.stated}.get(threshold[0])
    low, median, high = (_quantile(statistics, q) for q in QUANTILES)
    return Row(
        check=claim.check,
        mistake=claim.mistake,
        statistic=claim.statistic,
        threshold=threshold,
        cases=cases,
        wrong=wrong,
        rate=wrong / cases if cases else math.nan,
        stated=claim.stated,
        met=chance > UNLIKELY if cases else None,
        low=low,
        median=median,
        high=high,
        needed=math.nan if decisive is None else _quantile(statistics, decisive),
    )


def _quantile(numbers: list[float], q: float) -> float:
    """One of the numbers: some may be infinite."""
    method: Any = "higher" if q > 0.5 else "lower"
    return float(np.quantile(numbers, q, method=method)) if numbers else math.nan


# Noise


def noise_of_unknown_size(rng: Rng) -> list[Outcome | None]:
    """Noise of three kinds: where the check asks for its structure, and where it does not."""
    case = draw_case(rng, ALL, ANY)
    e, _ = noisy(rng, case.clean, LEVEL, str(rng.choice(list(NOISE))))
    evidence = case.evidence(case.left(e))
    excess = _structure(evidence).excess
    found = Outcome(excess, excess > limits.STRUCTURE)
    return [None, found] if evidence.few or evidence.uneven else [found, None]


def misfit(rng: Rng) -> list[Outcome | None]:
    """A misfit of rank one, outside the factors of X in one mode or in all, and no noise."""
    case = draw_case(rng, ALL, PLENTY)
    d = len(case.A.shape)
    outside = set(range(d)) if rng.random() < 0.5 else {int(rng.integers(d))}
    vectors = []
    for k, U in enumerate(case.X.factors):
        u = rng.standard_normal((len(U), 1))
        inside = U @ (U.T @ u)
        vectors.append(u - inside if k in outside else inside)
    rank_one = multi_mode_product(np.ones((1,) * d), vectors)
    seen = np.asarray(case.A.forward(rank_one))
    left, size = case.left(seen), float(np.linalg.norm(seen))
    if float(np.linalg.norm(left)) <= 1e-3 * size or min(map(np.linalg.norm, vectors)) < 1e-9:
        return [None]  # a tangent vector, or a square factor, outside of which there is nothing
    evidence = case.evidence(LEVEL * np.linalg.norm(case.clean) / np.linalg.norm(left) * left)
    found = _structure(evidence)
    if found.visible < limits.VISIBLE or evidence.uneven:
        return [None]
    return [Outcome(found.excess, found.excess <= limits.STRUCTURE)]


def _structure(evidence: Evidence) -> Structure:
    found = evidence.structure
    assert found is not None  # the tensors are small
    return found


def noise_of_the_given_size(rng: Rng) -> list[Outcome | None]:
    """Noise whose standard deviation is known: normal, and other."""
    case, kind = draw_case(rng, ALL, ANY), str(rng.choice(list(NOISE)))
    e, std = noisy(rng, case.clean, LEVEL, kind)
    problem = Problem(case.A, case.clean + case.left(e))
    floor = float(noise_floor(problem, std, case.X.degrees_of_freedom))
    ratio = float(problem.relative_residual(case.X)) / floor
    found = Outcome(ratio, ratio > 1)
    return [found, None] if kind == "normal" else [None, found]


def outliers(rng: Rng) -> list[Outcome]:
    """Normal noise, and the same with outliers."""
    case = draw_case(rng, ALL, PLENTY)
    e, std = noisy(rng, case.clean, LEVEL)
    normal = case.evidence(case.left(e)).outliers
    where = rng.permutation(e.size)[: max(1, round(OUTLYING * e.size))]
    e[where] = FAR * std * e[where] / np.abs(e[where])
    far = case.evidence(case.left(e)).outliers
    return [Outcome(normal.excess, _called(normal)), Outcome(far.excess, not _called(far))]


def _called(found: Outliers) -> bool:
    return found.excess >= limits.KURTOSIS and found.share >= limits.OUTLIERS


def uneven(rng: Rng) -> list[Outcome | None]:
    """Rows drawn from one distribution: of similar norms; or rank-one ones, of different norms."""
    kind = str(rng.choice(ISOTROPIC))
    case = draw_case(rng, (kind,), PLENTY)
    evidence = case.evidence(case.left(noisy(rng, case.clean, LEVEL)[0]))
    rows = _structure(evidence).effective / (limits.PLENTY * case.X.degrees_of_freedom)
    found = Outcome(rows, evidence.uneven)
    return [None, found] if kind == "rank_one" else [found, None]


# What the measurements determine


def determined(rng: Rng) -> list[Outcome | None]:
    """Gaussian rows, with one direction of a mode damped; by products, as far as these can see."""
    shape, rank = draw_sizes(rng)
    k, m = int(rng.integers(len(shape))), 3 * degrees_of_freedom(shape, rank)
    u, size = rng.standard_normal(shape[k]), between(rng, 1e-5, 0.1)
    damping = np.eye(shape[k]) - (1 - size) * np.outer(u, u) / (u @ u)
    rows = mode_product(rng.standard_normal((m, *shape)), damping, k + 1)
    margins = _margins(rng, as_operator(rows, shape), rank)
    found = [Outcome(margin, margin <= 1) for margin in margins]
    return [found[0], found[1] if size > 2 * NOT_SEEN else None]


def deficient(rng: Rng) -> list[Outcome]:
    """Measurements that other tensors of the same rank share, whatever X is."""
    while True:
        shape, rank = draw_sizes(rng)
        A = DEFICIENT[int(rng.integers(len(DEFICIENT)))](rng, shape, rank)
        if A is not None and A.m > degrees_of_freedom(shape, rank):
            break
    return [Outcome(margin, margin > 1) for margin in _margins(rng, A, rank)]


def _margins(rng: Rng, A: MeasurementOperator, rank: tuple[int, ...]) -> list[float]:
    """Margins of the design at a random tensor, by its eigenvalues and by products."""
    X = gaussian_core(rng, A.shape, rank)
    margins = []
    for one in (A, as_functions(A)):
        problem = Problem(one, np.asarray(A.forward(X)))
        margins.append(accuracy_at(problem, ended_at(problem, X), 0).margin)
    return margins


def few(rng: Rng) -> list[Outcome | None]:
    """``recover`` from few measurements, with the right rank and noise of unknown size or none."""
    shape, kind = SMALL[int(rng.integers(len(SMALL)))], str(rng.choice(ISOTROPIC))
    m = math.inf
    while m > math.prod(shape):
        rank = draw_rank(rng, shape)
        m = math.ceil(between(rng, *FEW) * degrees_of_freedom(shape, rank))
    X, level = gaussian_core(rng, shape, rank), float(rng.choice([0, 1e-3, 0.01, 0.1]))
    A = OPERATORS[kind].draw(rng, shape, int(m), np.float64)
    clean = np.asarray(A.forward(X))
    trial = Trial(
        A=A, y=clean + noisy(rng, clean, level)[0], X_true=np.asarray(X.full()), operator=kind,
        noise="unknown" if level else "none", level=level, given="right", rank=rank,
        arguments={"rank": rank},
    )  # fmt: skip
    row, result = examine(trial)
    assert result is not None, row.note
    ratio = row.error / row.estimate if row.estimate > 0 else math.inf
    lowest, starts, _ = Evidence(Problem(A, trial.y), result, 0).agreement
    success = Outcome(ratio, row.verdict == FALSE_SUCCESS)
    failure = Outcome(lowest / max(starts, 1), row.verdict == FALSE_FAILURE)
    return [success if row.success else None, failure if row.recoverable and row.near else None]


def error_interval(rng: Rng) -> list[Outcome | None]:
    """Gauss-Newton fits of noisy measurements, from the truth; estimates that are trusted."""
    case = draw_case(rng, ALL, SOME)
    problem = Problem(case.A, case.clean + noisy(rng, case.clean, between(rng, 1e-3, 0.1))[0])
    result = fitted(problem, case.X)
    accuracy = accuracy_at(problem, result, 0)
    error, (low, high) = float(relative_error(result.X, case.X)), accuracy.interval
    if accuracy.error > limits.HOPELESS or high > limits.LARGEST:  # infinite if not determined
        return [None, None]
    ratio = error / accuracy.error
    return [
        Outcome(error / high, not low <= error <= high),
        Outcome(ratio, not 0.5 <= ratio <= 2),
    ]


# The rank


def right_rank(rng: Rng) -> list[Outcome | None]:
    """Noise of 1 or 10 %, fitted at the right rank."""
    case, level = draw_case(rng, ALL, MANY), float(rng.choice([0.01, 0.1]))
    problem = Problem(case.A, case.clean + noisy(rng, case.clean, level)[0])
    result = fitted(problem, case.X)
    found = compare_larger_rank(problem, result, FIT)
    if found.score is None:
        return [None]
    return [Outcome(found.best / found.score, found.larger(result.rank))]


def rank_too_small(rng: Rng) -> list[Outcome | None]:
    """A rank that is too small by one in a mode; noise of 1 %, or none."""
    case, level = draw_case(rng, ALL, MANY), float(rng.choice([0, 0.01]))
    right = case.X.rank
    ranks = [tuple(r - (j == k) for j, r in enumerate(right)) for k in range(len(right))]
    ranks = [rank for rank in ranks if min(rank) > 0 and attainable_rank(rank) == rank]
    if not ranks:
        return [None]
    problem = Problem(case.A, case.clean + noisy(rng, case.clean, level)[0])
    result = fitted(problem, hosvd(case.X, ranks[int(rng.integers(len(ranks)))]))
    found = compare_larger_rank(problem, result, FIT)
    if found.score is None:
        return [None]
    return [Outcome(found.best / found.score, not found.larger(result.rank))]


# Numbers of cases such that all take three to four minutes of one core
SIMULATIONS: tuple[Simulation, ...] = (
    Simulation(noise_of_unknown_size, 3000, (
        Claim("noise of unknown size", "noise has structure", "excess", "> {STRUCTURE:g}", 1e-3),
        Claim("the same, not asked for", "noise has structure", "excess", "> {STRUCTURE:g}", 0.02),
    )),
    Simulation(misfit, 1000, (
        Claim("noise of unknown size", "a misfit is noise", "excess", "<= {STRUCTURE:g}", 0.05),
    )),
    Simulation(noise_of_the_given_size, 1500, (
        Claim("noise of the given size", "normal noise is larger", "residual / floor", "> 1", 0.02),
        Claim("noise of the given size", "other noise is larger", "residual / floor", "> 1", 0.02),
    )),
    Simulation(outliers, 1000, (
        Claim("outliers", "normal noise has some", "kurtosis",
              ">= {KURTOSIS:g}, share >= {OUTLIERS:g}", 1e-3),
        Claim("outliers", "5 % of 10 sigma are none", "kurtosis",
              "< {KURTOSIS:g}, or share < {OUTLIERS:g}", 0.1),
    )),
    Simulation(uneven, 1000, (
        Claim("effective rows", "i.i.d. rows are uneven", "rows / PLENTY", "< {UNEVEN:g}", 1e-3),
        Claim("effective rows", "rank-one rows are uneven", "rows / PLENTY", "< {UNEVEN:g}", 0.05),
    )),
    Simulation(determined, 200, (
        Claim("determined", "a damped direction is not", "margin", "<= 1", 1e-3),
        Claim("determined, by products", "a damped direction is not", "margin", "<= 1", 0.01),
    )),
    Simulation(deficient, 300, (
        Claim("determined", "a deficient design is", "margin", "> 1", 1e-3),
        Claim("determined, by products", "a deficient design is", "margin", "> 1", 0.01),
    )),
    Simulation(few, 80, (
        Claim("few measurements", "success, error > 3 estimates", "error / estimate", "> 3", 0.01),
        Claim("few measurements", "recovered, no success", "share of starts",
              "{AGAIN:g} starts, {AGAIN_SHARE:g}", 0.1),
    )),
    Simulation(error_interval, 600, (
        Claim("error interval", "the error is outside", "error / upper end", "95 %", 0.05),
        Claim("error estimate", "not within a factor 2", "error / estimate", "0.5 to 2", 0.05),
    )),
    Simulation(right_rank, 100, (
        Claim("larger rank", "the right rank is too small", "best / score",
              "1 - {CLEARLY:g}, {SURELY:g} errors", 0.01),
    )),
    Simulation(rank_too_small, 100, (
        Claim("larger rank", "too small by one is right", "best / score",
              "1 - {CLEARLY:g}, {SURELY:g} errors", 0.05),
    )),
)  # fmt: skip

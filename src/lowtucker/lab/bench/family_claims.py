"""What the publications of the paper's family claim, and what ``bench family`` measures.

A claim has a function that returns the numbers, as a sentence, and whether each part of the claim
holds. Some follow from the phase diagrams, others need an experiment (``family_experiments``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

from lowtucker._array import one_blas_thread
from lowtucker.lab.bench import family_experiments as experiments
from lowtucker.lab.bench.family import Point, half
from lowtucker.lab.bench.family_experiments import Evidence
from lowtucker.lab.bench.family_series import DEFAULT, name_of
from lowtucker.lab.bench.trimmed import TRIALS

__all__ = ["CLAIMS", "Claim", "Judged", "judge"]

Points = Sequence[Point]
# How close 50 % must be to a published ratio
CLOSE = 0.05
# A gap that counts as closed; a ratio of measurements below which there is a gain: with 20 problems
# for a number of measurements, 50 % points are known to some 5 %
GAP, GAIN = 1e-4, 0.95


@dataclass(frozen=True)
class Claim:
    """A claim of a publication.

    Parameters
    ----------
    name : str
        The format, as in ``--only``.
    source : str
    text : str
    check : callable
        (points of that format, quick) -> Evidence
    """

    name: str
    source: str
    text: str
    check: Callable[[Points, bool], Evidence]


@dataclass(frozen=True)
class Judged:
    """A claim with the numbers: "supported", "refuted", "mixed", or "open" after a quick run."""

    name: str
    source: str
    claim: str
    verdict: str
    numbers: str
    measured: str


def judge(names: Sequence[str], points: Points, *, quick: bool = False) -> Iterator[Judged]:
    """Yield the claims about some formats, judged by the points of their diagrams.

    A quick run has too few problems for a verdict: claims stay open.
    """
    with one_blas_thread():
        for claim in CLAIMS:
            if claim.name in names:
                own = [point for point in points if name_of(point.panel) == claim.name]
                found = claim.check(own, quick)
                word = "open" if quick else verdict(found.holds)
                yield Judged(claim.name, claim.source, claim.text, word, found.numbers,
                             date.today().isoformat())  # fmt: skip


def verdict(holds: Sequence[bool | None]) -> str:
    """Summarise which parts of a claim hold."""
    if None in holds or not holds:
        return "open"
    return "supported" if all(holds) else "mixed" if any(holds) else "refuted"


def fewer_epochs(points: Points, quick: bool) -> Evidence:
    """StoIHT against IHT, at the largest m, where both recover all."""
    parts, holds = [], []
    for panel in _panels(points):
        iht, sto = (_last(points, panel, method) for method in ("IHT", "StoIHT"))
        if iht is None or sto is None:
            return Evidence("", [None])
        at = f"{iht.target}, m = {iht.m}"
        parts.append(f"{at}: {sto.epochs:g} epochs ({sto.passes:.0f} passes), IHT {iht.epochs:g} "
                     f"({iht.passes:.0f})")  # fmt: skip
        holds.append(_less(sto.epochs, iht.epochs))
    return Evidence("; ".join(parts), holds)


def joint_columns(points: Points, quick: bool) -> Evidence:
    """Eight columns that share a support, together and one by one."""
    apart, together = _per_column(points, "column by column", 8), _per_column(points, "MStoIHT", 8)
    text = f"L = 8, 50 % at {together:.1f} measurements per column, column by column {apart:.1f}"
    return Evidence(text, [_less(together, GAIN * apart)])


def more_columns(points: Points, quick: bool) -> Evidence:
    """Measurements for each column at 50 %, from each number of columns to its double."""
    own = {L: _per_column(points, "MStoIHT", L) for L in (1, 2, 4, 8)}
    auto = {L: _per_column(points, DEFAULT, L) for L in (1, 8)}
    text = ", ".join(f"L = {L}: {m:.1f}" for L, m in own.items())
    text += f"; {DEFAULT} " + ", ".join(f"L = {L}: {m:.1f}" for L, m in auto.items())
    return Evidence(f"MStoIHT {text}", [_less(b, a) for a, b in pairwise(own.values())])


def pursuit(points: Points, quick: bool) -> Evidence:
    """StoGradMP, with which the default begins, against StoIHT near the transition."""
    parts, holds = [], []
    for panel in _panels(points):
        both = zip(_of(points, panel, "StoIHT"), _of(points, panel, DEFAULT), strict=True)
        near = [pair for pair in both if min(one.share for one in pair) >= 0.5]
        if not near:
            return Evidence("", [None])
        sto, pursued = near[0]
        parts.append(f"{sto.target}, m = {sto.m}: {pursued.epochs:g} epochs ({pursued.passes:.0f} "
                     f"passes), StoIHT {sto.epochs:g} ({sto.passes:.0f})")  # fmt: skip
        holds.append(_less(pursued.epochs, sto.epochs))
    return Evidence("; ".join(parts), holds)


def matrix_ratio(points: Points, quick: bool) -> Evidence:
    """Rho = r (n_1 + n_2 - r) / m at 50 %, 30x30, rank 3; and over m / N by other ranks."""
    rho = {name: _rho(points, "matrix 3", name) for name in ("NIHT", DEFAULT)}
    curves = []
    for name in rho:
        found = [(_rho(points, panel, name), half(_of(points, panel, name)))
                 for panel in _panels(points)]  # fmt: skip
        pairs = sorted((m / 900, ratio) for ratio, m in found if not math.isnan(m))
        curves.append(f"{name} " + ", ".join(f"{ratio:.2f} at m/N = {d:.2f}" for d, ratio in pairs))
    text = ", ".join(f"{name} {ratio:.2f}" for name, ratio in rho.items())
    return Evidence(f"rank 3: {text}. By rank: {'; '.join(curves)}",
                   [_near(rho["NIHT"], 0.75), _near(rho[DEFAULT], 0.9)])  # fmt: skip


def default_needs(points: Points, quick: bool) -> Evidence:
    """Measurements per degree of freedom at 50 %, default against ancestor."""
    parts, holds = [], []
    for panel in _panels(points):
        methods = list(dict.fromkeys(p.method for p in points if p.panel == panel))
        if DEFAULT not in methods or panel.startswith("convex"):
            continue
        ratios = {name: half(own := _of(points, panel, name)) / own[0].dof for name in methods}
        parts.append(f"{panel}: " + ", ".join(f"{name} {x:.2f}" for name, x in ratios.items()))
        others = [x for name, x in ratios.items() if name != DEFAULT]
        holds.append(None if any(map(math.isnan, ratios.values()))
                     else GAIN * ratios[DEFAULT] <= min(others))  # fmt: skip
    return Evidence("m per degree of freedom at 50 %: " + "; ".join(parts), holds)


def growing_rank(points: Points, quick: bool) -> Evidence:
    """Nearly low-rank tensors: measurements until the error is twice the best."""
    parts, holds = [], []
    for panel in _panels(points):
        fixed, growing = (_of(points, panel, f"{name} rank") for name in ("fixed", "growing"))
        counts = ", ".join(f"m = {a.m}: {b.recovered} and {a.recovered} of {a.trials}"
                           for a, b in zip(fixed, growing, strict=True))  # fmt: skip
        parts.append(f"spectra k^-{panel.split()[1]}: 50 % at m = {half(growing):.0f}, fixed "
                     f"{half(fixed):.0f} ({counts})")  # fmt: skip
        holds.append(_less(half(growing), GAIN * half(fixed)))
    return Evidence("; ".join(parts), holds)


def duality_gap(points: Points, quick: bool) -> Evidence:
    """The largest gap of all convex programs."""
    gaps = [(point.gap, point.trials) for point in points if not math.isnan(point.gap)]
    worst, count = max(gap for gap, _ in gaps), sum(trials for _, trials in gaps)
    return Evidence(f"largest of {count} problems: {worst:.5g}; the solver stops there",
                    [worst < GAP])  # fmt: skip


def square_gain(points: Points, quick: bool) -> Evidence:
    """Four modes: the order of the 50 % points."""
    at = _convex(points, "convex 4")
    dof = _of(points, "convex 4", "SNN")[0].dof
    text = ", ".join(f"{name} m = {m:.0f}" for name, m in at.items())
    order = [_less(dof, at["square deal"]), _less(at["square deal"], at["SNN"])]
    return Evidence(f"6x6x6x6, rank 1, {dof} degrees of freedom; 50 % at: {text}", order)


def no_gain(points: Points, quick: bool) -> Evidence:
    """Three modes: the square deal against the sum of nuclear norms."""
    at = _convex(points, "convex 3")
    text = ", ".join(f"{name} m = {m:.0f}" for name, m in at.items())
    less = _less(at["square deal"], GAIN * at["SNN"])
    return Evidence(f"8x8x8, rank 1; 50 % at: {text}", [None if less is None else not less])


def growth(points: Points, quick: bool) -> Evidence:
    """The exponent of n in the measurements that the sum of nuclear norms needs."""
    panels = {5: "convex, n = 5", 8: "convex 3", 12: "convex, n = 12"}
    at = {n: half(_of(points, panel, "SNN")) for n, panel in panels.items()}
    power = math.log(at[12] / at[5]) / math.log(12 / 5)
    text = ", ".join(f"n = {n}: m = {m:.0f}" for n, m in at.items())
    return Evidence(f"rank 1, 50 % at {text}: n^{power:.2f}, which must be within 0.25 of n^2",
                   [None if math.isnan(power) else abs(power - 2) < 0.25])  # fmt: skip


def tubal_recovery(points: Points, quick: bool) -> Evidence:
    """Counts of the diagram of 20x20x10, tubal rank 2."""
    parts, holds = [], []
    for method in dict.fromkeys(point.method for point in points):
        own = _of(points, "tubal", method)
        counts = ", ".join(f"m = {p.m}: {p.recovered} of {p.trials}" for p in own)
        parts.append(f"{method} {counts}")
        holds.append(own[-1].recovered == own[-1].trials)
    text = f"{points[0].dof} degrees of freedom of 4000 entries; " + "; ".join(parts)
    return Evidence(text, holds)


def published_counts(points: Points, quick: bool) -> Evidence:
    """Counts of TIHT, TrimTIHT and KaczTIHT against the published ones, by Fisher's test."""
    from scipy.stats import fisher_exact

    parts, holds = [], []
    for p in points:
        theirs = round(p.published * TRIALS)
        table = [[p.recovered, p.trials - p.recovered], [theirs, TRIALS - theirs]]
        holds.append(bool(fisher_exact(table).pvalue >= 0.05))
        parts.append(f"{p.panel[-2:]} {p.method} m = {p.m}: {p.recovered}/{p.trials} (published "
                     f"{theirs}/{TRIALS}{'' if holds[-1] else ', differs'})")  # fmt: skip
    return Evidence(f"{sum(holds)} of {len(holds)} agree; " + "; ".join(parts), list(holds))


def _of(points: Points, panel: str, method: str) -> list[Point]:
    found = [point for point in points if (point.panel, point.method) == (panel, method)]
    return sorted(found, key=lambda point: point.m)


def _panels(points: Points) -> list[str]:
    return list(dict.fromkeys(point.panel for point in points))


def _last(points: Points, panel: str, method: str) -> Point | None:
    found = _of(points, panel, method)
    return found[-1] if found and found[-1].recovered else None


def _rho(points: Points, panel: str, method: str) -> float:
    own = _of(points, panel, method)
    return own[0].dof / half(own) if own else math.nan


def _per_column(points: Points, method: str, columns: int) -> float:
    return half(_of(points, "mmv", f"{method}, L = {columns}")) / columns


def _convex(points: Points, panel: str) -> dict[str, float]:
    return {name: half(_of(points, panel, name)) for name in (DEFAULT, "square deal", "SNN")}


def _less(a: float, b: float) -> bool | None:
    return None if math.isnan(a) or math.isnan(b) else bool(a < b)


def _near(a: float, b: float) -> bool | None:
    return None if math.isnan(a) else abs(a - b) <= CLOSE


IHT, QIN = "Blumensath, Davies 2009; Nguyen, Needell, Woolf 2017", "Qin, Li, Needell, Ma et al."
RSS, SEMP = "Rauhut, Schneider, Stojanac 2017", "de Morais Goulart, Favier 2017"
MU, OURS = "Mu, Huang, Wright, Goldfarb 2014", "lowtucker"
NEEDS = "The default needs at most 5 % more measurements than the best ancestor."
CLAIMS = (
    Claim("sparse", IHT, "StoIHT with blocks needs fewer epochs than IHT.", fewer_epochs),
    Claim("sparse", IHT, "With noise, the result is the oracle: least squares on the right "
          "support.", experiments.oracle),
    Claim("sparse", "Nguyen, Needell, Woolf 2017", "StoGradMP needs fewer epochs than StoIHT near "
          "the phase transition.", pursuit),
    Claim("sparse", OURS, NEEDS, default_needs),
    Claim("mmv", QIN, "Joint sparsity needs fewer measurements per column than StoIHT column by "
          "column.", joint_columns),
    Claim("mmv", OURS, "The measurements per column at 50 % fall with every doubling of L.",
          more_columns),
    Claim("matrix", "Tanner, Wei 2013; lowtucker", "30x30, rank 3: half is recovered near rho = "
          "0.75 by NIHT and 0.9 by the default.", matrix_ratio),
    Claim("tucker", OURS, NEEDS, default_needs),
    Claim("train", RSS, "The error of TT-SVD is at most sqrt(d - 1) times the best.",
          experiments.train_bound),
    Claim("train", RSS, "TIHT recovers 10x10x10x10 tensors of TT rank 2 and 3 from Gaussian rows "
          "and from entries.", experiments.large_trains),
    Claim("train", OURS, NEEDS, default_needs),
    Claim("hierarchical", "Grasedyck 2010", "The error of the truncation is at most sqrt(2d - 3) "
          "times the best.", experiments.hierarchical_bound),
    Claim("hierarchical", OURS, NEEDS, default_needs),
    Claim("tubal", "Kilmer, Martin 2011", "The truncation is that of the SVDs of all Fourier "
          "slices.", experiments.brute_force_tubal),
    Claim("tubal", OURS, "Tensors of tubal rank 2, 20x20x10, are recovered from Gaussian rows.",
          tubal_recovery),
    Claim("tubal", OURS, NEEDS, default_needs),
    Claim("growing", SEMP, "SeMP is never worse than the truncated HOSVD in error.",
          experiments.never_worse),
    Claim("growing", SEMP, "On nearly low-rank tensors a growing rank needs fewer measurements "
          "than a fixed one.", growing_rank),
    Claim("convex", "Gandy, Recht, Yamada 2011", "The duality gap is below 1e-4.", duality_gap),
    Claim("convex", MU, "SNN needs O(r n^(K-1)) measurements (K = 3, r = 1).", growth),
    Claim("convex", MU, "Four modes: degrees of freedom < square deal < SNN at 50 % success.",
          square_gain),
    Claim("convex", MU, "Three modes: no gain by the square deal.", no_gain),
    Claim("trimmed", "Suryanarayanan, Rebrova 2025", "Published success counts of TIHT, TrimTIHT "
          "and KaczTIHT.", published_counts),
)  # fmt: skip

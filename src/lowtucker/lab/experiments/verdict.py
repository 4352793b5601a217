"""The paper's four claims, each with the numbers of a run that support or limit it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from lowtucker.simulation.base import Results

__all__ = ["Claim", "Point", "claims", "points"]

Table = list[dict[str, Any]]
Tables = Mapping[str, Table]
TARGET = 1e-6  # mean error whose first epoch is compared in claim 1


@dataclass(frozen=True)
class Claim:
    """A claim, whether this run supports it, and why."""

    title: str
    verdict: str
    supports: tuple[str, ...]
    limits: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """Something to know beside the figures."""

    title: str
    text: str


def claims(
    tables: Tables, results: Mapping[str, Results], approximations: Mapping[str, float] | None
) -> list[Claim]:
    """Claims whose figures are at hand, in the paper's order."""
    made = []
    if "fig1" in tables and "fig2" in tables:
        made.append(_speed(tables, results["fig1"]))
    if "fig3" in tables:
        made.append(_success(tables))
    if "fig4" in tables:
        made.append(_many_measurements(tables))
    if "fig7" in tables and approximations is not None:
        made.append(_video(tables, approximations))
    return made


def points(tables: Tables, facts: Mapping[str, float] | None, clip: Any) -> list[Point]:
    """What an honest report says beside the figures."""
    n_clip = math.prod(clip.pixels.shape)
    solved = ""
    if facts is not None:
        solved = (
            f" In this run, least squares without any rank has a median relative error of "
            f"{facts['small']:.0e} in the setting of Figure 1, and of {facts['clip']:.0e} on the "
            f"clip after as many LSQR iterations as the figure has epochs: below every "
            f"rank-(8,8,2) tensor, because it may leave that set."
        )
    return [
        Point(
            "Over-determined, all but Figure 3",
            f"A 5x5x6 tensor has N = 150 entries, and Figures 1, 2, 4 and 5 use m = 240 to 460 "
            f"measurements; the clip has N = {n_clip} entries and m = 30000. With m > N and no "
            f"noise the linear system alone determines the tensor, of whatever rank.{solved} These "
            f"figures compare how fast two iterations converge, which they show well; what low "
            f"rank adds is seen where m < N, in Figure 3.",
        ),
        Point(
            "The step size",
            "Both methods use the same mu. With ||A||_F = 1 the matrix A^T A is about I/N, so an "
            "iteration of TIHT moves by about mu/N and one of StoTIHT by (mu/N)(b/m). TIHT is at "
            "its best just below mu/N = 1 and oscillates above; in Figures 4, 5 and 7 mu grows "
            "with m and passes N (at m = 300, 375; on the clip mu/N = 1.5). A block of m/4 rows "
            "would bear a step several times longer. "
            "So a common mu favours TIHT where mu/N < 1 and StoTIHT where mu/N > 1."
            + _tuned_summary(tables),
        ),
        Point(
            "Rank (1,1,2) is not a rank",
            "No entry of a Tucker rank exceeds the product of the others, so (1,1,2) is no "
            "tensor's rank: those targets have rank (1,1,1)"
            + (
                f" (largest second singular value of their mode-3 unfoldings in this run: "
                f"{facts['second_singular_value']:.0e} of the first)"
                if facts is not None
                else ""
            )
            + ". The algorithms work all the same, with one direction too many in mode 3.",
        ),
        Point(
            "How trials are counted",
            "Figure 5: the authors' script counts a trial that fails as 0 epochs; here failures "
            "have a column of their own and the mean is over the others. Figure 6: their script "
            "draws frames 1 and 2 under the titles 9 and 10; here the frames are those named.",
        ),
    ]


def _speed(tables: Tables, results: Results) -> Claim:
    epochs, seconds = _first_below(tables["fig1"]), _first_below(tables["fig2"], "seconds")
    tiht = epochs.pop(("TIHT", _largest(epochs)))
    tiht_seconds = seconds.pop(("TIHT", _largest(seconds)))
    blocks = {b: e for (_, b), e in epochs.items() if b != _largest(epochs)}
    times = {b: s for (_, b), s in seconds.items() if b in blocks}
    sooner = [b for b in blocks if _before(blocks[b], tiht)]
    quicker = [b for b in times if _before(times[b], tiht_seconds)]
    supports = (
        f"As published (Figure 1, mu = 0.46 m), the mean error falls below {TARGET:g} after "
        f"{_span(blocks.values(), '.0f')} epochs of StoTIHT, over all block sizes b < m, and after "
        f"{_number(tiht, '.0f')} of TIHT.",
        f"In time (Figure 2), TIHT needs {_milliseconds(tiht_seconds)} a trial; StoTIHT "
        + ", ".join(f"{_milliseconds(s)} with b = {b}" for b, s in times.items())
        + ".",
    )
    slower = [b for b in times if b not in quicker]
    limits = [
        f"Less time holds for b = {_listed(quicker)}, not for b = {_listed(slower)}: an iteration "
        f"costs a thresholding whatever the block, and an epoch of small blocks has many."
        if slower
        else "Less time holds for every block size here; it depends on what an iteration costs "
        "besides reading A, and so on the machine and the implementation."
    ]
    limits.append(_median_story(results))
    rows = _choices(tables, "figure 1")
    if rows:
        limits.append(
            f"Part of the gap is the step. With each method tuned, {_ahead(rows)} is ahead. Mean "
            f"error after 10 epochs: TIHT {_value(rows['TIHT', 'published'])} as published, "
            f"{_value(rows['TIHT', 'best'])} at its best; StoTIHT with b = 90 "
            f"{_value(rows['StoTIHT', 'published'])} and {_value(rows['StoTIHT', 'best'])}."
        )
    verdict = _verdict(len(sooner) == len(blocks), bool(slower))
    if verdict.startswith("supported") and not quicker:
        verdict = "supported in epochs, not in time"
    if "fig5" in tables:
        limits.append(_fewer_epochs(tables["fig5"]))
    return Claim(
        "StoTIHT needs fewer epochs and less time than TIHT", verdict, supports, tuple(limits)
    )


def _median_story(results: Results) -> str:
    """TIHT's mean is that of a few slow trials: say so with the medians of the same runs."""
    below = {
        run.block_size: np.median(columns["relative_error"], axis=0) <= TARGET
        for run, columns in results.items()
    }
    first = {b: float(np.argmax(mask)) if mask.any() else math.nan for b, mask in below.items()}
    tiht = first.pop(max(first))
    return (
        f"These are means, as in the paper, and TIHT's is that of its slowest trials. The median "
        f"error falls below {TARGET:g} after {_span(first.values(), '.0f')} epochs of StoTIHT and "
        f"{_number(tiht, '.0f')} of TIHT."
    )


def _success(tables: Tables) -> Claim:
    rates: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in tables["fig3"]:
        rates.setdefault((row["algorithm"], row["rank"]), []).append(
            (row["m"], row["success_rate"])
        )
    trials = tables["fig3"][0]["trials"]
    falls = [a[1] - b[1] for line in rates.values() for a, b in pairwise(line)]
    half = {key: next((m for m, rate in line if rate >= 0.5), None) for key, line in rates.items()}
    means = {key: sum(rate for _, rate in line) / len(line) for key, line in rates.items()}
    ranks = list(dict.fromkeys(rank for _, rank in rates))
    falling = all(
        means[name, a] > means[name, b] for name in ("TIHT", "StoTIHT") for a, b in pairwise(ranks)
    )
    rising = all(line[-1][1] > line[0][1] for line in rates.values())
    noise = math.sqrt(0.5 / trials)  # of a difference of two rates near one half
    supports = (
        "Half of the trials succeed from m = "
        + "; ".join(
            f"{half['TIHT', r]} (TIHT) and {half['StoTIHT', r]} (StoTIHT) for rank "
            f"({r.replace('-', ',')})"
            for r in ranks
        )
        + ".",
        f"The largest fall of a rate from one m to the next is {max(falls):.2f}; the Monte-Carlo "
        f"deviation of such a difference is up to {noise:.2f} with {trials} trials.",
        "The success rate averaged over m falls with the rank: TIHT "
        + ", ".join(f"{means['TIHT', r]:.2f}" for r in ranks)
        + "; StoTIHT "
        + ", ".join(f"{means['StoTIHT', r]:.2f}" for r in ranks)
        + ".",
    )
    gap = sum(means["TIHT", r] - means["StoTIHT", r] for r in ranks) / len(ranks)
    who = "TIHT is ahead" if gap > 0 else "StoTIHT is ahead"
    limits = (
        f"In this regime {who} by {abs(gap):.2f} on average; the paper claims no advantage of "
        f"StoTIHT here. Rank (1,1,2) stands for (1,1,1), see below.",
    )
    return Claim(
        "Success rises with m and falls with the rank",
        _verdict(rising and falling and max(falls) <= 4 * noise, False),
        supports,
        limits,
    )


def _many_measurements(tables: Tables) -> Claim:
    table = tables["fig4"]
    lowest = {
        name: min((row for row in table if row["algorithm"] == name), key=_rate)
        for name in ("TIHT", "StoTIHT")
    }
    sure = [row for row in table if row["algorithm"] == "TIHT" and row["success_rate"] == 1]
    total = sum(row["algorithm"] == "TIHT" for row in table)
    worst = lowest["TIHT"]
    supports = (
        f"StoTIHT: the lowest success rate over all ranks and m is {_rate(lowest['StoTIHT']):.2f}.",
        f"TIHT: {len(sure)} of {total} settings succeed in every trial; the lowest rate is "
        f"{_rate(worst):.2f}, at rank ({worst['rank'].replace('-', ',')}), m = {worst['m']}.",
    )
    top = max((row["m"] for row in sure), default=None)
    limits = [
        f"It is an effect of the step: mu = 0.5 m means an effective step mu/N of 0.8 at m = 240 "
        f"and 1.5 at m = 460 for TIHT, which always succeeds up to m = {top} at most and fails as "
        f"the step grows, with more measurements, not fewer."
    ]
    rows = _choices(tables, "figure 4", m=400)
    if rows:
        best = {name: rows[name, "best"] for name in ("TIHT", "StoTIHT")}
        limits.append(
            f"At rank (1,2,2), m = 400, TIHT fails in {rows['TIHT', 'published']['failures']} "
            f"trials with the published step. With each method tuned, it fails in "
            f"{best['TIHT']['failures']} and StoTIHT in {best['StoTIHT']['failures']}; mean epochs "
            f"to success are {_value(best['TIHT'])} for TIHT and {_value(best['StoTIHT'])} for "
            f"StoTIHT: {_ahead(rows)} is ahead."
        )
    holds = _rate(lowest["StoTIHT"]) == 1 and _rate(worst) < 1
    return Claim(
        "With many measurements and 80 epochs StoTIHT always succeeds and TIHT does not",
        _verdict(holds, True),
        supports,
        tuple(limits),
    )


def _fewer_epochs(table: Table) -> str:
    """Where TIHT needs fewer epochs in Figure 5."""
    mean = {(r["algorithm"], r["rank"], r["m"]): (r["failures"], r["mean_epochs"]) for r in table}
    cells = sorted({(rank, m) for _, rank, m in mean}, key=lambda cell: cell[1])
    # a setting where TIHT fails more often is not one where it needs fewer epochs
    wins = [(r, m) for r, m in cells if mean["TIHT", r, m] < mean["StoTIHT", r, m]]
    low = [cell for cell in cells if cell[1] <= 360]
    high = [cell for cell in cells if cell[1] > 360]
    return (
        f"In Figure 5 (mu = 0.4 m) TIHT needs fewer epochs than StoTIHT in "
        f"{sum(c in wins for c in low)} of {len(low)} settings with m <= 360, and in "
        f"{sum(c in wins for c in high)} of {len(high)} with m > 360."
    )


def _video(tables: Tables, approximations: Mapping[str, float]) -> Claim:
    last = {row["algorithm"]: row["relative_error"] for row in tables["fig7"]}
    supports = (
        f"After the last epoch the relative error is {last['StoTIHT']:.4f} for StoTIHT and "
        f"{last['TIHT']:.4f} for TIHT.",
        f"StoTIHT is where it can be: the truncated HOSVD of the clip itself has error "
        f"{approximations['hosvd']:.4f}, the best rank-(8,8,2) approximation found by HOOI "
        f"{approximations['hooi']:.4f}.",
    )
    limits = ["TIHT's effective step is mu/N = 1.5 on the clip: it oscillates."]
    rows = _choices(tables, "figure 7")
    if rows:
        limits.append(
            f"With each method tuned the last errors are {_value(rows['TIHT', 'best'], 3)} for "
            f"TIHT and {_value(rows['StoTIHT', 'best'], 3)} for StoTIHT: {_ahead(rows)} is ahead, "
            f"and the gap is {_gap(rows, 'best'):.2g} instead of {_gap(rows, 'published'):.2g}."
        )
    return Claim(
        "On the video StoTIHT reaches a lower error than TIHT",
        _verdict(last["StoTIHT"] < last["TIHT"], True),
        supports,
        tuple(limits),
    )


def _before(first: float, second: float) -> bool:
    """Whether one comes before the other; NaN is never."""
    return not math.isnan(first) and (math.isnan(second) or first < second)


def _verdict(holds: bool, limited: bool) -> str:
    if not holds:
        return "not supported in this run"
    return "supported, with limits" if limited else "supported"


def _first_below(table: Table, x: str = "epoch") -> dict[tuple[str, int], float]:
    """Where each curve first falls below the target; NaN where it never does."""
    found: dict[tuple[str, int], float] = {}
    for row in table:
        key = (row["algorithm"], row["block_size"])
        found.setdefault(key, math.nan)
        if math.isnan(found[key]) and row["relative_error"] <= TARGET:
            found[key] = row[x]
    return found


Choices = dict[tuple[str, str], dict[str, Any]]


def _choices(tables: Tables, setting: str, m: int | None = None) -> Choices:
    """Rows of the published and the best step of each algorithm."""
    found = {}
    for row in tables.get("tuned", []):
        if row["setting"] == setting and m in (None, row["m"]):
            for mark in ("published", "best"):
                if mark in row["choice"]:
                    found[row["algorithm"], mark] = row
    return found


def _value(row: dict[str, Any], digits: int = 2) -> str:
    return f"{row['value']:.{digits}g} (mu = {row['mu_over_m']:g} m)"


def _ahead(rows: Choices) -> str:
    """Method that is better when both are tuned: fewer failures, then the lower number."""
    order = {name: rows[name, "best"] for name in ("TIHT", "StoTIHT")}
    return min(order, key=lambda name: (order[name]["failures"], order[name]["value"]))


def _gap(rows: Choices, mark: str) -> float:
    return abs(float(rows["TIHT", mark]["value"] - rows["StoTIHT", mark]["value"]))


def _tuned_summary(tables: Tables) -> str:
    return " The section on tuned steps shows both methods at their best." * ("tuned" in tables)


def _rate(row: dict[str, Any]) -> float:
    return float(row["success_rate"])


def _largest(keys: Mapping[tuple[str, int], float]) -> int:
    return max(b for _, b in keys)


def _span(values: Any, form: str) -> str:
    known = sorted(v for v in values if not math.isnan(v))
    if not known:
        return "no number of"
    low, high = f"{known[0]:{form}}", f"{known[-1]:{form}}"
    return low if low == high else f"{low} to {high}"


def _number(value: float, form: str) -> str:
    return "none" if math.isnan(value) else f"{value:{form}}"


def _milliseconds(seconds: float) -> str:
    return "more than was run" if math.isnan(seconds) else f"{1e3 * seconds:.2f} ms"


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values)) if values else "none"

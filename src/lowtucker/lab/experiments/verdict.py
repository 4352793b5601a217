"""Verdicts on the paper's four claims, with the numbers that support or limit them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

import numpy as np

from lowtucker.simulation.base import Results

__all__ = ["Claim", "Verdict", "claims"]

Table = list[dict[str, Any]]
Tables = Mapping[str, Table]
TARGET = 1e-6  # claim 1 compares when the mean error first falls below this


class Verdict(StrEnum):
    """Whether a run supports a claim."""

    SUPPORTED = "supported"
    LIMITED = "supported, with limits"
    EPOCHS_ONLY = "supported in epochs, not in time"
    UNSUPPORTED = "not supported in this run"

    @classmethod
    def of(cls, holds: bool, limited: bool) -> Verdict:
        """Return the verdict on a claim that holds or not, with limits or without."""
        if not holds:
            return cls.UNSUPPORTED
        return cls.LIMITED if limited else cls.SUPPORTED

    @property
    def style(self) -> str:
        """CSS class in the report."""
        return {"SUPPORTED": "supported", "LIMITED": "limits"}.get(self.name, "unsupported")


@dataclass(frozen=True)
class Claim:
    """A claim, the verdict of this run, and the reasons."""

    title: str
    verdict: Verdict
    supports: tuple[str, ...]
    limits: tuple[str, ...]


def claims(
    tables: Tables, results: Mapping[str, Results], approximations: Mapping[str, float] | None
) -> list[Claim]:
    """Return the claims whose figures are available, in the paper's order."""
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
        f"In time (Figure 2), TIHT needs {_milliseconds(tiht_seconds)} per trial; StoTIHT "
        + ", ".join(f"{_milliseconds(s)} with b = {b}" for b, s in times.items())
        + ".",
    )
    slower = [b for b in times if b not in quicker]
    limits = [
        f"StoTIHT takes less time for b = {_listed(quicker)}, not for b = {_listed(slower)}: every "
        f"iteration costs a thresholding, and an epoch of small blocks has many iterations."
        if slower
        else "StoTIHT takes less time for every block size in this run; this depends on the cost "
        "of an iteration besides the pass over A, and so on machine and implementation."
    ]
    limits.append(_median_story(results))
    rows = _choices(tables, "figure 1")
    if rows:
        limits.append(
            f"Part of the gap is due to the step. With each method tuned, {_ahead(rows)} is ahead. "
            f"Mean error after 10 epochs: TIHT {_value(rows['TIHT', 'published'])} as published, "
            f"{_value(rows['TIHT', 'best'])} at its best; StoTIHT with b = 90 "
            f"{_value(rows['StoTIHT', 'published'])} and {_value(rows['StoTIHT', 'best'])}."
        )
    holds = len(sooner) == len(blocks)
    verdict = Verdict.of(holds, bool(slower))
    if holds and not quicker:
        verdict = Verdict.EPOCHS_ONLY
    if "fig5" in tables:
        limits.append(_fewer_epochs(tables["fig5"]))
    return Claim(
        "StoTIHT needs fewer epochs and less time than TIHT", verdict, supports, tuple(limits)
    )


def _median_story(results: Results) -> str:
    """Compare the medians: TIHT's mean is dominated by a few slow trials."""
    below = {
        run.block_size: np.median(columns["relative_error"], axis=0) <= TARGET
        for run, columns in results.items()
    }
    first = {b: float(np.argmax(mask)) if mask.any() else math.nan for b, mask in below.items()}
    tiht = first.pop(max(first))
    return (
        f"These are means, as in the paper, and TIHT's is dominated by its slowest trials. The "
        f"median error falls below {TARGET:g} after {_span(first.values(), '.0f')} epochs of "
        f"StoTIHT and {_number(tiht, '.0f')} of TIHT."
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
    noise = math.sqrt(0.5 / trials)  # deviation of a difference of two rates near one half
    supports = (
        "Half of the trials succeed from m = "
        + "; ".join(
            f"{half['TIHT', r]} (TIHT) and {half['StoTIHT', r]} (StoTIHT) for rank "
            f"({r.replace('-', ',')})"
            for r in ranks
        )
        + ".",
        f"The largest decrease of a rate from one m to the next is {max(falls):.2f}; the standard "
        f"deviation of such a difference is up to {noise:.2f} with {trials} trials.",
        "The success rate averaged over m decreases with the rank: TIHT "
        + ", ".join(f"{means['TIHT', r]:.2f}" for r in ranks)
        + "; StoTIHT "
        + ", ".join(f"{means['StoTIHT', r]:.2f}" for r in ranks)
        + ".",
    )
    gap = sum(means["TIHT", r] - means["StoTIHT", r] for r in ranks) / len(ranks)
    who = "TIHT is ahead" if gap > 0 else "StoTIHT is ahead"
    limits = (
        f"In this regime {who} by {abs(gap):.2f} on average; the paper claims no advantage of "
        f"StoTIHT here. Rank (1,1,2) is in fact (1,1,1), see below.",
    )
    return Claim(
        "Success rises with m and falls with the rank",
        Verdict.of(rising and falling and max(falls) <= 4 * noise, False),
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
        f"This is an effect of the step: mu = 0.5 m gives TIHT an effective step mu/N of 0.8 at "
        f"m = 240 and 1.5 at m = 460. TIHT always succeeds up to m = {top} at most and fails as "
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
        Verdict.of(holds, True),
        supports,
        tuple(limits),
    )


def _fewer_epochs(table: Table) -> str:
    """Count the settings of Figure 5 where TIHT needs fewer epochs."""
    mean = {(r["algorithm"], r["rank"], r["m"]): (r["failures"], r["mean_epochs"]) for r in table}
    cells = sorted({(rank, m) for _, rank, m in mean}, key=lambda cell: cell[1])
    # more failures never count as fewer epochs
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
        f"StoTIHT is close to the attainable error: the truncated HOSVD of the clip has error "
        f"{approximations['hosvd']:.4f}, the best rank-(8,8,2) approximation found by HOOI "
        f"{approximations['hooi']:.4f}.",
    )
    limits = ["TIHT's effective step is mu/N = 1.5 on the clip: it oscillates."]
    rows = _choices(tables, "figure 7")
    if rows:
        limits.append(
            f"With each method tuned, the {rows['TIHT', 'best']['quantity']}, the lowest of all "
            f"runs up to 2 %, are {_value(rows['TIHT', 'best'])} for TIHT and "
            f"{_value(rows['StoTIHT', 'best'])} for StoTIHT: {_ahead(rows)} is ahead."
        )
        if not rows["TIHT", "best"]["failures"]:
            limits.append("TIHT reaches that error too: its higher one is due to the step.")
    return Claim(
        "On the video StoTIHT reaches a lower error than TIHT",
        Verdict.of(last["StoTIHT"] < last["TIHT"], True),
        supports,
        tuple(limits),
    )


def _before(first: float, second: float) -> bool:
    """Return whether one comes before the other; NaN means never."""
    return not math.isnan(first) and (math.isnan(second) or first < second)


def _first_below(table: Table, x: str = "epoch") -> dict[tuple[str, int], float]:
    """Return where each curve first falls below the target; NaN if never."""
    found: dict[tuple[str, int], float] = {}
    for row in table:
        key = (row["algorithm"], row["block_size"])
        found.setdefault(key, math.nan)
        if math.isnan(found[key]) and row["relative_error"] <= TARGET:
            found[key] = row[x]
    return found


Choices = dict[tuple[str, str], dict[str, Any]]


def _choices(tables: Tables, setting: str, m: int | None = None) -> Choices:
    """Return the rows of the published and the best step of each algorithm."""
    found = {}
    for row in tables.get("tuned", []):
        if row["setting"] == setting and m in (None, row["m"]):
            for mark in ("published", "best"):
                if getattr(row["choice"], mark):
                    found[row["algorithm"], mark] = row
    return found


def _value(row: dict[str, Any]) -> str:
    number = "never reached" if math.isnan(row["value"]) else f"{row['value']:.2g}"
    return f"{number} (mu = {row['mu_over_m']:g} m)"


def _ahead(rows: Choices) -> str:
    """Return the better tuned method: fewer failures, then the smaller value."""
    order = {name: rows[name, "best"] for name in ("TIHT", "StoTIHT")}
    return min(order, key=lambda name: (order[name]["failures"], order[name]["value"]))


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
    return "more than the run" if math.isnan(seconds) else f"{1e3 * seconds:.2f} ms"


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values)) if values else "none"

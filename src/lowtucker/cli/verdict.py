"""``lowtucker bench verdict``: run it, and show what it found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import click

from lowtucker.cli.common import console, table

__all__ = ["PROBLEMS", "QUICK", "indices_of", "single_problems", "verdict"]

# Problems by default, and with --quick; problems between two lines of progress
PROBLEMS, QUICK, REPORT = 2000, 60, 100


def verdict(
    problems: int, seed: int, jobs: int, kernel: str | None, source: str
) -> tuple[list[Any], list[Any]]:
    """Judge problems and print the tables; return the rows and the goals."""
    from lowtucker.lab.bench import confusion
    from lowtucker.lab.bench.verdict import CRASH, FALSE_SUCCESS, check_kernel

    if kernel is not None:
        check_kernel(kernel)
    rows = _judged(seed, range(problems), jobs, source)
    others = None if kernel is None else _judged(seed, range(problems), jobs, source, kernel)
    for column in ("operator", "noise", "family"):
        _show_confusion(column, confusion.grouped(rows, column))
    _show_estimates(confusion.grouped(rows, "noise"))
    _show_rows("Misses", [row for row in rows if _is_miss(row)])
    _show_rows("Slowest", confusion.slowest(rows))
    if others is not None:
        _show_flips(kernel, rows, others)
    goals = confusion.goals(rows, others)
    if source == "hostile":  # not to find an answer is no fault
        goals = [goal for goal in goals if goal.what in (FALSE_SUCCESS, CRASH)]
    columns = ["goal", "share", "target", "met", ""]
    cells = [[g.what, _number(g.ratio), g.target, _met(g.met), g.detail] for g in goals]
    console().print(table(columns, cells))
    return rows, goals


def single_problems(seed: int, indices: Sequence[int], source: str) -> tuple[list[Any], list[Any]]:
    """Solve problems one by one in this process, and print all that is known of their results."""
    from lowtucker.lab.bench.verdict import SOURCES, examine

    rows = []
    for index in indices:
        trial = SOURCES[source](seed, index)
        row, result = examine(trial)
        rows.append(row)
        click.echo(f"{trial}\n{_line(row)}\n{row.note if result is None else result}")
        if result is not None:
            click.echo(f"{result.advice}\n")
    return rows, []


def indices_of(text: str) -> list[int]:
    """Parse the indices of problems; ValueError if they are none."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--only {text} of verdict must be indices of problems, such as 3,17: those that the "
            "list of misses begins its lines with."
        ) from None


def _judged(
    seed: int, indices: Sequence[int], jobs: int, source: str, kernel: str | None = None
) -> list[Any]:
    """Judge problems; print misses as they are found, and now and then how far it is."""
    from lowtucker.lab.bench.verdict import run

    rows: list[Any] = []
    label = "" if kernel is None else f" with {kernel}"
    for row in run(seed, indices, jobs, kernel, source):
        rows.append(row)
        if _is_miss(row):
            click.echo(f"  {_line(row)}", err=True)
        if len(rows) % REPORT == 0 or len(rows) == len(indices):
            misses = sum(map(_is_miss, rows))
            click.echo(f"  {len(rows)} of {len(indices)}{label}, {misses} misses", err=True)
    return rows


def _is_miss(row: Any) -> bool:
    from lowtucker.lab.bench.verdict import MISSES

    return row.verdict in MISSES


def _line(row: Any) -> str:
    """One row in a line: the verdict, the numbers behind it, and the problem."""
    numbers = {"error": row.error, "estimate": row.estimate, "oracle": row.oracle}
    said = ", ".join(f"{name} {x:.2g}" for name, x in numbers.items() if not math.isnan(x))
    kind = f"{row.family}, {row.operator}, noise {row.noise} {row.level:g}, rank {row.given}"
    per_dof = "" if math.isnan(row.m_per_dof) else f", {row.m_per_dof:.2f} per dof"
    return f"{row.index} {row.verdict}: {row.status} {said} ({kind}{per_dof}) {row.note}".rstrip()


def _show_confusion(column: str, groups: dict[str, list[Any]]) -> None:
    from lowtucker.lab.bench import confusion

    everything = [row for rows in groups.values() for row in rows]
    made = table(
        [column, "problems", "recoverable", *confusion.CLASSES],
        [
            [name, str(len(rows)), str(sum(row.recoverable for row in rows)),
             *map(str, confusion.counts(rows).values())]
            for name, rows in [*groups.items(), ("all", everything)]
        ],
    )  # fmt: skip
    console().print(made)


def _show_estimates(groups: dict[str, list[Any]]) -> None:
    from lowtucker.lab.bench import confusion

    everything = [row for rows in groups.values() for row in rows]
    columns = ["error / estimate, by noise", "successes", "no estimate", "5 %", "50 %", "95 %",
               "0.5 to 2", "in interval"]  # fmt: skip
    cells = []
    for name, rows in [*groups.items(), ("all", everything)]:
        found = confusion.estimates(rows)
        shares = (_share(found.good, found.successes), _share(found.inside, found.intervals))
        quantiles = map(_number, found.quantiles)
        cells.append([name, str(found.successes), str(found.without), *quantiles, *shares])
    console().print(table(columns, cells))


def _show_rows(title: str, rows: Sequence[Any]) -> None:
    click.echo(f"{title}: {len(rows)}")
    for row in rows:
        click.echo(f"  {_line(row)}; {row.seconds:.2f} s")


def _show_flips(kernel: str | None, rows: Sequence[Any], others: Sequence[Any]) -> None:
    from lowtucker.lab.bench import confusion

    changed = confusion.flips(rows, others)
    click.echo(f"Other verdicts with {kernel}: {len(changed)}")
    for one, other in zip(rows, others, strict=True):
        if one.index in changed:
            click.echo(f"  {_line(one)}; {kernel}: {other.status or other.note}")


def _number(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.3g}"


def _share(count: int, total: int) -> str:
    return f"{count / total:.1%}" if total else ""


def _met(met: bool | None) -> str:
    return {True: "yes", False: "no", None: ""}[met]

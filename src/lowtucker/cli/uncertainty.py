"""``lowtucker bench uncertainty`` and ``lowtucker bench online``: run them and print the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from lowtucker.cli.common import check_extras, console, table

__all__ = ["online", "uncertainty"]

NAMES = ("F1", "F2")


def uncertainty(
    only: str | None, trials: int | None, quick: bool, data: Path | None, default: Path
) -> list[Any]:
    """Measure coverage and print it: F1 on synthetic tensors, F2 on real data."""
    from lowtucker.lab.bench import coverage_real
    from lowtucker.lab.bench import uncertainty as bench

    names = _names(only, NAMES)
    if data is not None and not data.is_dir():
        raise ValueError(f"--data {data} is not a folder. Check the path.")
    rows: list[Any] = []
    if "F1" in names:
        runs = trials or (math.ceil(bench.RUNS / 10) if quick else bench.RUNS)
        columns = ["", "runs", "entries", "functionals", "+-", "width", "target", "met"]
        rows += _shown(bench.run(runs=runs), _said_of_runs, columns, _cells_of_runs)
    if "F2" in names:
        check_extras("tensorly", extra="bench")
        columns = ["", "data", "hidden", "coverage", "by quarters", "width", "of one width",
                   "CPU s", "target", "met", ""]  # fmt: skip
        found = coverage_real.rows(data or default)
        rows += _shown(found, _said_of_data, columns, _cells_of_data)
    return rows


def online(only: str | None, trials: int | None, quick: bool) -> list[Any]:
    """Measure streams against fits to all rows, F3, and to sliding windows, F4; print the rows."""
    from lowtucker.lab.bench import online as bench

    rows: list[Any] = []
    for name in _names(only, bench.NAMES):
        streams = bench.STREAMS[name]
        count = trials or (math.ceil(streams / 10) if quick else streams)
        columns = ["", "stream", "read by", "against", "streams", "error", "ratio", "worst", "CPU",
                   "kept", "second half", "first half", "target", "met", ""]  # fmt: skip
        rows += _shown(bench.run((name,), count), _said_of_streams, columns, _cells_of_streams)
    return rows


def _names(only: str | None, known: Sequence[str]) -> Sequence[str]:
    from lowtucker.lab.bench.timing import check_names

    names = known if only is None else tuple(only.upper().split(","))
    check_names(names, known)
    return names


def _shown(
    measured: Iterable[Any],
    said: Callable[[Any], str],
    columns: Sequence[str],
    cells: Callable[[Any], list[str]],
) -> list[Any]:
    """Print rows as they are measured, then their table; return the rows."""
    rows = []
    for row in measured:
        rows.append(row)
        click.echo(f"  {said(row)}", err=True)
    console().print(table(columns, map(cells, rows)))
    return rows


def _said_of_runs(row: Any) -> str:
    return (
        f"{row.what}: entries {row.entries:.1%}, functionals {row.functionals:.1%}, "
        f"width {row.width:.3f}"
    )


def _cells_of_runs(row: Any) -> list[str]:
    shares = (f"{share:.1%}" for share in (row.entries, row.functionals, row.error))
    return [row.what, str(row.runs), *shares, f"{row.width:.3f}", row.target, _met(row.met)]


def _said_of_data(row: Any) -> str:
    return f"{row.work} {row.data}: " + (row.note or f"coverage {row.coverage:.1%}")


def _cells_of_data(row: Any) -> list[str]:
    if row.note:
        return [row.work, row.data, *[""] * 6, row.target, "", row.note]
    quarters = ", ".join(f"{share:.0%}" for share in row.quarters)
    numbers = (f"{number:.3g}" for number in (row.width, row.relative_width, row.seconds))
    return [
        row.work, row.data, str(row.hidden), f"{row.coverage:.1%}", quarters, *numbers, row.target,
        _met(row.met), "",
    ]  # fmt: skip


def _said_of_streams(row: Any) -> str:
    return (
        f"{row.work} {row.what}, {row.method}, against {row.other}: error {row.ratio:.3f}, "
        f"CPU {row.cost:.3g}"
    )


def _cells_of_streams(row: Any) -> list[str]:
    numbers = (row.error, row.ratio, row.worst, row.cost, row.kept, row.peak, row.warm_up)
    return [
        row.work, row.what, row.method, row.other, str(row.streams), *map(_number, numbers),
        row.target, _met(row.met), row.note,
    ]  # fmt: skip


def _number(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.3g}"


def _met(met: bool | None) -> str:
    return {True: "yes", False: "no", None: ""}[met]

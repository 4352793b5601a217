"""``lowtucker bench family``: run it, and write the tables and the picture of its page."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import click

from lowtucker.cli.common import (
    check_extras,
    check_folder,
    check_targets,
    console,
    table,
    write_picture,
)

__all__ = ["FILES", "family"]

FILES = ("points.csv", "claims.csv", "diagrams.png")


def family(
    only: str | None, quick: bool, folder: Path | None, overwrite: bool, update: bool
) -> list[Any]:
    """Measure the points, judge the claims, print both and write them; return the points."""
    from lowtucker.lab.bench import family as bench
    from lowtucker.lab.bench import family_claims, family_series
    from lowtucker.lab.bench.timing import check_names

    names = family_series.NAMES if only is None else tuple(only.lower().split(","))
    check_names(names, family_series.NAMES)
    if update and folder is None:
        raise ValueError("--update keeps rows of the files in a folder: give it with --output.")
    if folder is not None:
        check_extras("matplotlib", extra="plot")
        check_folder(folder)
        check_targets([folder / name for name in FILES], overwrite or update)
    trimmed = family_series.published(quick) if "trimmed" in names else ()
    points = []
    for point in chain(bench.run(family_series.chosen(names), quick=quick), trimmed):
        points.append(point)
        click.echo(f"  {point.panel}, {point.method}, m = {point.m}: {point.recovered} of "
                   f"{point.trials}", err=True)  # fmt: skip
    claims = []
    for claim in family_claims.judge(names, points, quick=quick):
        claims.append(claim)
        click.echo(f"  {claim.name}: {claim.claim} {claim.verdict}", err=True)
    _show(points, claims)
    if folder is not None:
        _write(points, claims, names, folder, update)
    return points


def _show(points: list[Any], claims: list[Any]) -> None:
    columns = ["", "method", "m", "m / dof", "recovered", "epochs", "passes", "CPU s"]
    cells = [
        [p.panel, p.method, str(p.m), f"{p.per_dof:.2f}", f"{p.recovered} of {p.trials}",
         f"{p.epochs:.3g}", f"{p.passes:.3g}", f"{p.seconds:.2g}"]
        for p in points
    ]  # fmt: skip
    console().print(table(columns, cells))
    lines = [[c.name, c.claim, c.verdict, c.numbers] for c in claims]
    console().print(table(["", "claim", "verdict", "numbers"], lines))


def _write(
    points: list[Any], claims: list[Any], names: tuple[str, ...], folder: Path, update: bool
) -> None:
    """Write the files; with ``update`` after what they have on other formats."""
    from lowtucker.lab.bench.family import Point, read
    from lowtucker.lab.bench.family_claims import CLAIMS, Judged
    from lowtucker.lab.bench.family_plot import diagrams
    from lowtucker.lab.bench.family_series import NAMES, name_of
    from lowtucker.lab.bench.timing import write_csv

    at, stated, picture = (folder / name for name in FILES)
    if update and at.exists():
        points = points + [p for p in read(at, Point) if name_of(p.panel) not in names]
    if update and stated.exists():
        claims = claims + [c for c in read(stated, Judged) if c.name not in names]
    points.sort(key=lambda p: NAMES.index(name_of(p.panel)))
    order = [(claim.name, claim.text) for claim in CLAIMS]
    claims.sort(key=lambda c: order.index((c.name, c.claim)))
    write_csv(points, at)
    write_csv(claims, stated)
    write_picture(diagrams(points), picture, dpi=80)

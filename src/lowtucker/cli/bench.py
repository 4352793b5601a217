"""``lowtucker bench``: measurements against the yardsticks, as ratios inside one run."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lowtucker.cli.common import NOT_RECOVERED, console, table

__all__ = ["bench"]


@click.command()
@click.argument("what", type=click.Choice(["iteration"]))
@click.option(
    "--csv", "csv_file", type=click.Path(path_type=Path), help="Write the rows there too."
)
def bench(what: str, csv_file: Path | None) -> None:
    """Measure, side by side, what the parts of the library cost.

    \b
    iteration  a gradient, an HOSVD, a StoTIHT iteration (against TensorLy and NumPy loops),
               and the import; one BLAS thread, half a minute

    Exit code 0 when every target was met, 3 when one was missed.
    """
    from lowtucker.bench import iteration
    from lowtucker.bench.timing import write_csv

    rows = []
    screen = console()
    for row in iteration.run():
        rows.append(row)
        click.echo(f"  {row.what}: {row.ratio:.3g}", err=True)
    screen.print(
        table(
            ["what", "ratio", "target", "met", "times"],
            [
                [r.what, f"{r.ratio:.3g}", r.target, "yes" if r.met else "no", r.detail]
                for r in rows
            ],
        )
    )
    if csv_file is not None:
        write_csv(rows, csv_file)
    sys.exit(0 if all(row.met for row in rows) else NOT_RECOVERED)

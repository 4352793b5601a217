"""``lowtucker complete``: tensor completion on files."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import click

from lowtucker.cli.common import FILE, IntTuple, Names
from lowtucker.cli.outcome import (
    EXIT_CODES,
    OUTPUTS,
    as_rank,
    check_fits,
    check_output,
    check_rank_known,
    finish,
    may_replace,
    rank_options,
    run_options,
)
from lowtucker.cli.verbose import progress

__all__ = ["complete"]


@click.command(epilog=EXIT_CODES)
@click.argument("samples", type=FILE)
@rank_options
@click.option("--shape", type=IntTuple(), help="Shape, for a table whose columns are indices.")
@click.option("--index", type=Names(), help="Columns of labels, by name, or by number from 1.")
@click.option("--value", help="Column of a table that holds the values.")
@click.option("--decimal", type=click.Choice([".", ","]),
              help="Decimal mark of a table; by default found out.")  # fmt: skip
@click.option("--name", help="Name of the array, if the file holds several.")
@click.option(
    "--held-out",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.1,
    show_default=True,
    help="Share of the samples held out of a first fit to estimate its error.",
)
@click.option(
    "--predict",
    nargs=2,
    type=FILE,
    metavar="CELLS OUT",
    help="Table of indices i1,...,id, and the file to write i1,...,id,value to.",
)
@click.option(
    "--solver", type=click.Choice(["auto", "shrinkage", "als", "rgn", "rcg", "rsgd"]),
    default="auto", show_default=True,
)  # fmt: skip
@run_options
def complete(samples: Path, shape: tuple[int, ...] | None, index: tuple[str, ...] | None,
             value: str | None, decimal: str | None, rank: Any,
             max_rank: tuple[int, ...] | None, output: Path, name: str | None, held_out: float,
             predict: tuple[Path, Path] | None, solver: str, tol: float, max_epochs: int,
             max_seconds: float | None, noise_std: float | None, loss: Any, seed: int,
             checkpoint: Path | None, plot: Path | None, overwrite: bool,
             quiet: bool) -> None:  # fmt: skip
    """Complete a tensor of low Tucker rank from some of its entries.

    SAMPLES is a table (.csv, .tsv, .txt), or a tensor with NaN for unknown entries (.npy, .npz,
    .mat). A table has a column of labels for each mode (texts, numbers, dates), and one of values,
    named by --index and --value; by default the last column has the values, and all others labels.
    Combinations of labels that are missing, or have no value, are predicted: -o filled.csv writes
    all of them, with standard errors where there are any. With --shape, its columns are
    i1, ..., id, value, with indices from 0.

    \b
    Examples:
      lowtucker complete counts.csv --index station,day,hour --value count -o filled.csv
      lowtucker complete samples.csv --shape 300,400,500 --rank 12,4,3 -o X.npz
      lowtucker complete samples.csv --shape 300,400,500 --rank auto -o X.npz \\
          --predict cells.csv predicted.csv
      lowtucker complete holes.npy -o filled.npy
      lowtucker complete holes.npy --rank 3,3,3 -o filled.npy --max-seconds 300

    Without --rank, data need only be nearly of low rank: held-out samples decide how they are
    approximated. The error on held-out samples is printed with the result.
    """
    import lowtucker as lt

    others = [path for path in (plot, predict[1] if predict else None) if path is not None]
    read = (samples, checkpoint, *(predict[:1] if predict else ()))
    overwrite = may_replace(output, overwrite, checkpoint)
    as_table = output.suffix.lower() in lt.io.TABLES
    check_output(
        output, plot, overwrite, also=[predict[1]] if predict else [], inputs=read,
        kinds=(*OUTPUTS, *lt.io.TABLES),
    )  # fmt: skip
    check_rank_known(rank, max_rank, solver)
    is_table = samples.suffix.lower() in lt.io.TABLES
    _check_columns(is_table, name, shape, (index, value, decimal), predict, output)
    values: Any
    indices: Any = None
    if is_table and shape is None:
        values = lt.io.load_table(samples, index, value, decimal=decimal)
    elif is_table:
        indices, values = lt.io.load_samples(samples, len(shape or ()))
    else:
        values = lt.io.load_array(samples, name)
    sizes = shape if indices is not None and shape is not None else values.shape
    check_fits(output, sizes)
    if predict and values.dtype.kind == "c":
        raise ValueError(
            "--predict writes real numbers, but the samples are complex. Omit --predict."
        )
    cells = lt.io.load_indices(predict[0], len(sizes)) if predict else None
    if cells is not None:
        lt.entries(sizes, cells)  # fail before the recovery if they are out of range
    result = lt.complete(
        values,
        as_rank(rank, max_rank),
        indices=indices,
        shape=shape,
        held_out=held_out,
        solver=solver,
        tol=tol,
        max_epochs=max_epochs,
        max_seconds=max_seconds,
        noise_std=noise_std,
        loss=loss,
        seed=seed,
        checkpoint=checkpoint,
        callbacks=progress("complete", quiet),
    )

    def write_predictions() -> None:
        if predict and cells is not None:
            lt.io.save_samples(predict[1], cells, result.X.entries(cells), overwrite=overwrite)

    finish(
        result,
        output,
        plot,
        overwrite=overwrite,
        quiet=quiet,
        written=others,
        then=write_predictions,
        write=partial(_write_table, result, values, output, overwrite) if as_table else None,
    )


def _check_columns(
    is_table: bool,
    name: str | None,
    shape: tuple[int, ...] | None,
    columns: tuple[Any, ...],
    predict: Any,
    output: Path,
) -> None:
    """Refuse options that do not belong to the kind of file."""
    import lowtucker as lt

    if is_table and name is not None:
        raise ValueError("--name belongs to .npz and .mat files: a table holds one array.")
    by_labels = is_table and shape is None
    if not by_labels and any(one is not None for one in columns):
        reason = "--shape is for tables of indices" if is_table else "this file is no table"
        raise ValueError(
            f"--index, --value and --decimal belong to tables with labels, and {reason}. Omit one."
        )
    if not by_labels and output.suffix.lower() in lt.io.TABLES:
        raise ValueError(
            f"{output} would be a table, and the data have no labels. Try -o {output.stem}.npz, or "
            "--predict for some entries of a table with --shape."
        )
    if by_labels and predict:
        raise ValueError(
            "--predict belongs to tables of indices, with --shape. With labels, -o filled.csv "
            "has every combination."
        )


def _write_table(result: Any, table: Any, output: Path, overwrite: bool) -> None:
    """Write every combination of labels, in the manner of the file that was read."""
    import lowtucker as lt
    from lowtucker.lab.experiments.bars import why_no_bars

    quick = not why_no_bars(result, math.prod(result.X.shape))
    lt.io.save_table(
        output,
        result.filled(standard_error=quick),
        delimiter="\t" if output.suffix.lower() == ".tsv" else table.delimiter,
        decimal=table.decimal,
        overwrite=overwrite,
    )

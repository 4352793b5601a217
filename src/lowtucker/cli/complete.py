"""``lowtucker complete``: tensor completion on files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lowtucker.cli.common import FILE, IntTuple, console
from lowtucker.cli.outcome import (
    as_rank,
    check_fits,
    check_output,
    check_rank_known,
    finish,
    may_replace,
    rank_options,
    run_options,
)

__all__ = ["complete"]


@click.command()
@click.argument("samples", type=FILE)
@rank_options
@click.option("--shape", type=IntTuple(), help="Shape of the tensor; required for a table.")
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
    "--solver", type=click.Choice(["auto", "als", "rgn", "rcg", "rsgd"]), default="auto",
    show_default=True,
)  # fmt: skip
@run_options
def complete(samples: Path, shape: tuple[int, ...] | None, rank: Any,
             max_rank: tuple[int, ...] | None, output: Path, name: str | None, held_out: float,
             predict: tuple[Path, Path] | None, solver: str, tol: float, max_epochs: int,
             max_seconds: float | None, noise_std: float | None, loss: Any, seed: int,
             checkpoint: Path | None, plot: Path | None, overwrite: bool,
             quiet: bool) -> None:  # fmt: skip
    """Complete a tensor of low Tucker rank from some of its entries.

    SAMPLES is a table with the columns i1, ..., id, value (.csv, .tsv, .txt; indices from 0,
    optional header line), or a tensor with NaN for unknown entries (.npy, .npz, .mat).

    \b
    Examples:
      lowtucker complete samples.csv --shape 300,400,500 --rank 12,4,3 -o X.npz
      lowtucker complete samples.csv --shape 300,400,500 --rank auto -o X.npz \\
          --predict cells.csv predicted.csv
      lowtucker complete holes.npy -o filled.npy
      lowtucker complete holes.npy --rank 3,3,3 -o filled.npy --max-seconds 300

    Without --rank, data need only be nearly of low rank: held-out samples decide how they are
    approximated. The error on held-out samples is printed with the result. Exit codes as for
    recover.
    """
    import lowtucker as lt

    others = [path for path in (plot, predict[1] if predict else None) if path is not None]
    read = (samples, checkpoint, *(predict[:1] if predict else ()))
    overwrite = may_replace(output, overwrite, checkpoint)
    check_output(output, plot, overwrite, also=[predict[1]] if predict else [], inputs=read)
    check_rank_known(rank, max_rank, solver)
    if samples.suffix.lower() in lt.io.TABLES:
        if name is not None:
            raise ValueError("--name belongs to .npz and .mat files: a table holds one array.")
        if shape is None:
            raise ValueError("--shape is needed to complete a tensor from a table.")
        indices, values = lt.io.load_samples(samples, len(shape))
    else:
        indices, values = None, lt.io.load_array(samples, name)
    sizes = values.shape if indices is None or shape is None else shape
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
        callbacks=() if quiet else (lt.ProgressBar("complete", console(stderr=True)),),
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
    )

"""``lowtucker recover``: tensor recovery on files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from lowtucker.cli.common import FILE, SOLVERS, as_solver, operator_options
from lowtucker.cli.inputs import Source, as_entries, check_complete
from lowtucker.cli.outcome import (
    EXIT_CODES,
    as_rank,
    check_fits,
    check_output,
    check_rank_known,
    finish,
    kept,
    may_replace,
    rank_options,
    run_options,
)
from lowtucker.cli.verbose import progress

__all__ = ["recover"]


@click.command(epilog=EXIT_CODES)
@click.argument("a", metavar="A", type=FILE)
@click.argument("y", metavar="[Y]", type=FILE, required=False)
@partial(rank_options, required=False)  # what is missing is told together
@operator_options
@click.option("--name-a", help="Name of the array A in its file, if it holds several.")
@click.option("--name-y", help="Name of the array y in its file, if it holds several.")
@click.option("--solver", type=click.Choice(SOLVERS), default="auto", show_default=True,
              help="shrinkage needs no rank, and fits none; the others but auto need one. als is "
              "for a sparse A whose rows pick entries.")  # fmt: skip
@click.option("--step", type=float, help="Step size; automatic by default.")
@click.option("--block-size", type=int, help="Measurements per step (stotiht); chosen by default.")
@click.option("--weights", type=FILE, help="File with one weight per measurement.")
@click.option("--start", type=FILE, help="Result file to resume from, or an initial tensor.")
@click.option("--truth", type=FILE, help="File with the true tensor, to report the error.")
@click.option("--name-truth", help="Name of the true tensor in its file; without --truth, in A's.")
@run_options
def recover(a: Path, y: Path | None, rank: Any, max_rank: tuple[int, ...] | None,
            shape: tuple[int, ...] | None, output: Path,
            order: Any, name_a: str | None, name_y: str | None, solver: str, step: float | None,
            block_size: int | None, tol: float, max_epochs: int, max_seconds: float | None,
            noise_std: float | None, loss: Any, weights: Path | None, start: Path | None,
            truth: Path | None, name_truth: str | None,
            seed: int, checkpoint: Path | None, plot: Path | None, overwrite: bool,
            quiet: bool) -> None:  # fmt: skip
    """Recover the tensor X of low Tucker rank with Y = A(X).

    A is a file with an array (m, N) or (m, *shape), or a sparse matrix; Y one with m numbers:
    .npy, .npz, .mat or HDF5 (.h5). Without Y, the file of A holds both. HDF5 and Zarr arrays of A,
    and .npy files larger than half the memory, are read block by block.

    \b
    Examples:
      lowtucker recover A.npy y.npy --shape 30,30,10 -o X.npz
      lowtucker recover A.npy y.npy --shape 30,30,10 --rank 8,8,2 -o X.npz
      lowtucker recover problem.mat --order F --shape 30,30,10 -o X.npz
      lowtucker recover data.mat --name-a Phi --name-y b --name-truth X0 --order F \\
          --shape 30,30,10 --rank 8,8,2 -o X.npz --plot run.png
      lowtucker recover A.npy y.npy --shape 30,30,10 -o more.npz --start X.npz
      lowtucker recover A.npy y.npy --shape 30,30,10 --rank auto --max-rank 10,10,4 -o X.npz
      lowtucker recover A.npy y.npy --shape 30,30,10 --rank 8,8,2 -o X.npz --checkpoint run.ckpt
      python -c "import lowtucker; print(lowtucker.load('X.npz').X.full().shape)"

    With --checkpoint, run the same command to resume an interrupted or killed run; the final
    tensor is the same.
    """
    import lowtucker as lt

    of_A, of_y, of_truth = sources(a, y, truth, name_a, name_y, name_truth)
    check_complete(of_A, shape, order, {"output": output})
    overwrite = may_replace(output, overwrite, checkpoint)
    check_output(output, plot, overwrite, inputs=(a, y, weights, start, truth, checkpoint))
    chosen, begin = as_solver(solver, step, block_size), None if start is None else _start(start)
    if rank is None and max_rank is None and solver != "shrinkage":
        rank = getattr(begin, "rank", None)
        if begin is not None and rank is None:
            raise ValueError(f"--rank is needed with --start {start}, which has none. Give it.")
    check_rank_known(rank, max_rank, chosen)
    A = lt.io.load_operator(a, shape, name=of_A.name, order=order)
    A = as_entries(A) if solver == "als" else A
    check_fits(output, A.shape)
    with kept(output):
        result = lt.recover(
            A,
            of_y.vector(),
            as_rank(rank, max_rank),
            solver=chosen,
            tol=tol,
            max_epochs=max_epochs,
            max_seconds=max_seconds,
            noise_std=noise_std,
            loss=loss,
            weights=None if weights is None else Source(weights).vector(),
            start=begin,
            X_true=None if of_truth is None else of_truth.array(),
            seed=seed,
            checkpoint=checkpoint,
            callbacks=progress("recover", quiet),
        )
    also = [] if plot is None else [plot]
    finish(result, output, plot, overwrite=overwrite, quiet=quiet, written=also)


def sources(
    a: Path, y: Path | None, truth: Path | None,
    name_a: str | None, name_y: str | None, name_truth: str | None,
) -> tuple[Source, Source, Source | None]:  # fmt: skip
    """Where A, y and the truth are; the file of A may hold the others."""
    of_A = Source.found(a, name_a, "A", "--name-a", alone=y is not None)
    of_y = Source.found(a if y is None else y, name_y, "y", "--name-y", alone=y is not None)
    if truth is None and name_truth is None:
        return of_A, of_y, None
    return of_A, of_y, Source.found(truth or a, name_truth, "X", "--name-truth")


def _start(path: Path) -> Any:
    """Read the result of an earlier run, or a tensor."""
    import lowtucker as lt

    names = {info.name for info in lt.io.describe(path)}
    return lt.load(path) if "meta" in names else lt.io.load_array(path)

"""``lowtucker recover``: tensor recovery on files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lowtucker.cli.common import FILE, SOLVERS, as_solver, console, operator_options
from lowtucker.cli.outcome import (
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

__all__ = ["recover"]


@click.command()
@click.argument("a", metavar="A", type=FILE)
@click.argument("y", metavar="Y", type=FILE)
@rank_options
@operator_options
@click.option("--name-a", help="Name of the array in A, if it holds several.")
@click.option("--name-y", help="Name of the array in Y, if it holds several.")
@click.option("--solver", type=click.Choice(SOLVERS), default="auto", show_default=True)
@click.option("--step", type=float, help="Step size; automatic by default.")
@click.option("--block-size", type=int, help="Measurements per step (stotiht); chosen by default.")
@click.option("--weights", type=FILE, help="File with one weight per measurement.")
@click.option("--start", type=FILE, help="Result file to resume from, or an initial tensor.")
@click.option("--truth", type=FILE, help="The true tensor, to report the error.")
@run_options
def recover(a: Path, y: Path, rank: Any, max_rank: tuple[int, ...] | None,
            shape: tuple[int, ...] | None, output: Path,
            order: Any, name_a: str | None, name_y: str | None, solver: str, step: float | None,
            block_size: int | None, tol: float, max_epochs: int, max_seconds: float | None,
            noise_std: float | None, loss: Any, weights: Path | None, start: Path | None,
            truth: Path | None,
            seed: int, checkpoint: Path | None, plot: Path | None, overwrite: bool,
            quiet: bool) -> None:  # fmt: skip
    """Recover the tensor X of low Tucker rank with Y = A(X).

    A is a file with an array (m, N) or (m, *shape), or a sparse matrix; Y one with m numbers:
    .npy, .npz or .mat. HDF5 (.h5) and Zarr arrays, and .npy files larger than half the memory,
    are read block by block.

    \b
    Examples:
      lowtucker recover A.npy y.npy --shape 30,30,10 -o X.npz
      lowtucker recover A.npy y.npy --shape 30,30,10 --rank 8,8,2 -o X.npz
      lowtucker recover data.mat data.mat --name-a A --name-y y --order F \\
          --shape 30,30,10 --rank 8,8,2 -o X.npz --plot run.png
      lowtucker recover A.npy y.npy --shape 30,30,10 -o more.npz --start X.npz
      lowtucker recover A.npy y.npy --shape 30,30,10 --rank auto --max-rank 10,10,4 -o X.npz
      lowtucker recover A.npy y.npy --shape 30,30,10 --rank 8,8,2 -o X.npz --checkpoint run.ckpt
      python -c "import lowtucker; print(lowtucker.load('X.npz').X.full().shape)"

    Exit code 0 when the tensor was recovered, 3 when not (the result is still written, and its
    status states the reason), 2 for bad input, 4 when a file could not be written (the message
    says where the result is instead), 130 when interrupted. With --checkpoint, run the same
    command to resume an interrupted or killed run; the final tensor is the same.
    """
    import lowtucker as lt

    overwrite = may_replace(output, overwrite, checkpoint)
    check_output(output, plot, overwrite, inputs=(a, y, weights, start, truth, checkpoint))
    chosen, begin = as_solver(solver, step, block_size), None if start is None else _start(start)
    if rank is None and max_rank is None:
        rank = getattr(begin, "rank", None)
        if begin is not None and rank is None:
            raise ValueError(f"--rank is needed with --start {start}, which has none. Give it.")
    check_rank_known(rank, max_rank, chosen)
    A = lt.io.load_operator(a, shape, name=name_a, order=order)
    check_fits(output, A.shape)
    with kept(output):
        result = lt.recover(
            A,
            _vector(y, name_y),
            as_rank(rank, max_rank),
            solver=chosen,
            tol=tol,
            max_epochs=max_epochs,
            max_seconds=max_seconds,
            noise_std=noise_std,
            loss=loss,
            weights=None if weights is None else _vector(weights, None),
            start=begin,
            X_true=None if truth is None else lt.io.load_array(truth),
            seed=seed,
            checkpoint=checkpoint,
            callbacks=() if quiet else (lt.ProgressBar("recover", console(stderr=True)),),
        )
    also = [] if plot is None else [plot]
    finish(result, output, plot, overwrite=overwrite, quiet=quiet, written=also)


def _vector(path: Path, name: str | None) -> Any:
    """Read a vector; flatten a matrix of one column, as MATLAB stores vectors."""
    import lowtucker as lt

    array = lt.io.load_array(path, name)
    return array.reshape(-1) if array.ndim == 2 and 1 in array.shape else array


def _start(path: Path) -> Any:
    """Read the result of an earlier run, or a tensor."""
    import lowtucker as lt

    names = {info.name for info in lt.io.describe(path)}
    return lt.load(path) if "meta" in names else lt.io.load_array(path)

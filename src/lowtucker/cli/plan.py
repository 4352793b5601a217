"""``lowtucker plan``: what to expect before an experiment."""

from __future__ import annotations

from pathlib import Path

import click

from lowtucker.cli.common import (
    FILE,
    IntTuple,
    check_folder,
    check_picture,
    check_targets,
    console,
    write_picture,
)

__all__ = ["plan"]


@click.command()
@click.option("--shape", type=IntTuple(), required=True, help="Shape of the tensor.")
@click.option("--rank", type=IntTuple(), required=True, help="Tucker rank, one entry a mode.")
@click.option("--operator", type=click.Choice(["gaussian", "rank-one", "entries", "dct"]),
              default="gaussian", show_default=True, help="What measures.")  # fmt: skip
@click.option("--noise", type=float, default=0.0, show_default=True,
              help="Standard deviation of the noise, relative to the measurements.")  # fmt: skip
@click.option("--rate", type=float, default=0.95, show_default=True,
              help="Share of tensors that should be recovered.")  # fmt: skip
@click.option("--trials", type=click.IntRange(min=1),
              help="Simulated recoveries for each number of measurements; 20 by default, down to 5 "
              "where they take long.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path),
              help="Where to keep trials: those that are there are not done again.")  # fmt: skip
@click.option("--workers", type=click.IntRange(min=1),
              help="Processes; as many as there are cores by default.")  # fmt: skip
@click.option("--plot", type=FILE, help="Picture of the rate against m (.png, .pdf, .svg).")
@click.option("--overwrite", is_flag=True, help="Replace the picture.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar.")
def plan(shape: tuple[int, ...], rank: tuple[int, ...], operator: str, noise: float, rate: float,
         trials: int | None, seed: int, folder: Path | None, workers: int | None, plot: Path | None,
         overwrite: bool, quiet: bool) -> None:  # fmt: skip
    """Say how many measurements recovery needs, before they are made.

    Recoveries of random tensors are simulated with more or fewer measurements until the number
    is found from which on the rate is reached; the next larger one is suggested. The solver, the
    passes over the measurements, the memory and the error to expect are printed with it.
    Tensors that take too long are replaced by smaller ones: the number is then an extrapolation.

    \b
    Examples:
      lowtucker plan --shape 30,30,30 --rank 3,3,3
      lowtucker plan --shape 300,400,500 --rank 12,4,3 --operator entries --noise 0.01
      lowtucker plan --shape 30,30,30 --rank 3,3,3 --trials 100 --folder trials --plot rate.png

    With --folder an interrupted command goes on where it was, and more trials add to those there.
    """
    import lowtucker as lt
    from lowtucker.simulation.runner import available_workers

    if plot is not None:
        check_targets([plot], overwrite)
        check_picture(plot)
    if folder is not None:
        check_folder(folder)
    try:
        made = lt.theory.plan(
            shape, rank, operator, noise=noise, rate=rate, trials=trials, seed=seed, folder=folder,
            workers=workers or available_workers(), progress=not quiet,
        )  # fmt: skip
    except KeyboardInterrupt:
        click.echo("Interrupted. With --folder the trials are kept, and the same command goes on "
                   "from there." if folder is None else f"Interrupted. What was computed is kept "
                   f"in {folder}: the same command goes on from there.", err=True)  # fmt: skip
        raise
    if plot is not None:
        write_picture(made.transition.plot().figure, plot)
    console().print(f"{made}\n\n{made.transition}", markup=False, soft_wrap=True)

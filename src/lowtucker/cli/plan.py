"""``lowtucker plan``: simulate an experiment before it is made."""

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
    single,
    write_picture,
)

__all__ = ["plan"]


@click.command()
@click.option("--shape", type=IntTuple(), required=True, help="Shape of the tensor.")
@click.option("--rank", type=IntTuple(), required=True, help="Tucker rank, one entry per mode.")
@click.option("--operator", type=click.Choice(["gaussian", "rank-one", "entries", "dct"]),
              default="gaussian", show_default=True, help="Kind of measurements.")  # fmt: skip
@click.option("--noise", type=float, default=0.0, show_default=True,
              help="Standard deviation of the noise, relative to the measurements.")  # fmt: skip
@click.option("--rate", type=float, default=0.95, show_default=True,
              help="Required success rate.")  # fmt: skip
@click.option("--trials", type=click.IntRange(min=1),
              help="Simulated recoveries per number of measurements; 20 by default, down to 5 "
              "if they are slow.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path),
              help="Folder for the trials; existing trials are reused.")  # fmt: skip
@click.option("--workers", type=click.IntRange(min=1),
              help="Number of processes; defaults to the number of cores.")  # fmt: skip
@click.option("--plot", type=FILE, help="Write a plot of the rate against m (.png, .pdf, .svg).")
@click.option("--overwrite", is_flag=True, help="Replace an existing plot.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar.")
def plan(shape: tuple[int, ...], rank: tuple[int, ...], operator: str, noise: float, rate: float,
         trials: int | None, seed: int, folder: Path | None, workers: int | None, plot: Path | None,
         overwrite: bool, quiet: bool) -> None:  # fmt: skip
    """Estimate by simulation how many measurements a recovery needs.

    Recovers random tensors from varying numbers of measurements to find the smallest number that
    reaches the rate, and suggests the next larger one. Also prints the solver and the expected
    passes over the measurements, memory and error. If the recoveries are too slow, smaller
    tensors are simulated and the number is extrapolated.

    \b
    Examples:
      lowtucker plan --shape 30,30,30 --rank 3,3,3
      lowtucker plan --shape 300,400,500 --rank 12,4,3 --operator entries --noise 0.01
      lowtucker plan --shape 30,30,30 --rank 3,3,3 --trials 100 --folder trials --plot rate.png

    With --folder, run the same command to resume after an interruption, or to add trials.
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
            shape, single(rank), operator, noise=noise, rate=rate, trials=trials, seed=seed,
            folder=folder, workers=workers or available_workers(), progress=not quiet,
        )  # fmt: skip
    except KeyboardInterrupt:
        kept = (
            "Use --folder to keep the trials and resume from them."
            if folder is None
            else f"Results so far are kept in {folder}: run the same command to resume."
        )
        raise KeyboardInterrupt(f"Interrupted. {kept}") from None
    console().print(f"{made}\n\n{made.transition}", markup=False, soft_wrap=True)
    if plot is not None:
        write_picture(made.transition.plot().figure, plot)

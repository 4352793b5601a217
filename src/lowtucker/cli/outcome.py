"""What ``recover`` and ``complete`` do with a result: write it, say it, and end."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import click

from lowtucker.cli.common import (
    FILE,
    INTERRUPTED,
    NOT_RECOVERED,
    IntTuple,
    Rank,
    check_picture,
    check_targets,
    console,
    write_picture,
)

__all__ = [
    "check_fits",
    "check_output",
    "finish",
    "kept",
    "may_replace",
    "rank_options",
    "run_options",
    "sought",
]

OUTPUTS = (".npz", ".npy", ".mat")
Command = Callable[..., Any]


def rank_options(command: Command) -> Command:
    """Options that say what is looked for, and where it goes."""
    for option in (
        click.option("-o", "--output", type=FILE, required=True,
                     help="The result as .npz, or the full tensor X as .npy or .mat."),
        click.option("--max-rank", type=IntTuple(), help="Largest rank that --rank auto tries."),
        click.option("--rank", type=Rank(), required=True,
                     help='Tucker rank, one entry a mode; or "auto".'),
    ):  # fmt: skip
        command = option(command)
    return command


def run_options(command: Command) -> Command:
    """Options of a run, and of what is shown of it."""
    for option in (
        click.option("-q", "--quiet", is_flag=True, help="No progress bar and no summary."),
        click.option("--overwrite", is_flag=True, help="Replace files that are there."),
        click.option("--plot", type=FILE, help="Picture of the run to write (.png, .pdf, .svg)."),
        click.option("--checkpoint", type=FILE,
                     help="File to keep the run in; the same command goes on from it."),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
        click.option("--loss", type=click.Choice(["squared", "huber"]), default="squared",
                     show_default=True, help="huber bears gross outliers in y."),
        click.option("--noise-std", type=float, help="Standard deviation of the noise in y."),
        click.option("--max-seconds", type=float, help="Time limit for the iterations."),
        click.option("--max-epochs", type=int, default=500, show_default=True),
        click.option("--tol", type=float, default=1e-6, show_default=True,
                     help="Relative residual to reach."),
    ):  # fmt: skip
        command = option(command)
    return command


def sought(rank: Any, largest: tuple[int, ...] | None) -> Any:
    """Rank, or the search for it."""
    import lowtucker as lt

    if rank == "auto":
        return lt.RankSearch(largest)
    if largest is not None:
        raise ValueError("--max-rank belongs to --rank auto. Leave one of them out.")
    return rank


def check_output(
    output: Path,
    plot: Path | None,
    overwrite: bool,
    also: Sequence[Path] = (),
    *,
    inputs: Sequence[Path | None] = (),
) -> None:
    """Find out before the work whether its result can be written, and replaces no input."""
    if output.suffix.lower() not in OUTPUTS:
        raise ValueError(
            f"output must be one of {', '.join(OUTPUTS)}, got {output}. Try -o {output.stem}.npz."
        )
    paths = [output, *also, *([] if plot is None else [plot])]
    check_targets(paths, overwrite)
    given = {path.resolve() for path in inputs if path is not None}
    for path in paths:
        if path.resolve() in given:
            raise ValueError(f"output {path} is an input, which is never replaced. Try another.")
    if plot is not None:
        check_picture(plot)


def may_replace(output: Path, overwrite: bool, checkpoint: Path | None) -> bool:
    """Whether the output may be replaced: also where it is of a run that is gone on with."""
    if overwrite or checkpoint is None or not checkpoint.exists() or output.suffix != ".npz":
        return overwrite
    import lowtucker as lt

    unfinished = (lt.Status.INTERRUPTED, lt.Status.MAX_EPOCHS, lt.Status.MAX_SECONDS)
    try:
        return output.exists() and lt.load(output).status in unfinished
    except ValueError:  # not a result
        return False


def check_fits(output: Path, shape: Sequence[int]) -> None:
    """Find out before the work whether the full tensor, where it is asked for, can be made."""
    from lowtucker.io.guards import physical_memory

    if output.suffix.lower() != ".npz" and 16 * math.prod(shape) > physical_memory():
        raise ValueError(
            f"{output} would hold all {math.prod(shape)} entries, more than fit into memory. Try "
            f"-o {output.stem}.npz, which holds the factors."
        )


@contextmanager
def kept(output: Path) -> Iterator[None]:
    """Write what was found until rows could not be read, and say so."""
    try:
        yield
    except OSError as error:
        result = getattr(error, "result", None)
        if result is None:
            raise
        names = (output.with_name(f"{output.stem}-until-then{k or ''}.npz") for k in count())
        path = next(path for path in names if not path.exists())
        result.save(path)
        raise OSError(
            f"{error} What was found until then is in {path}: go on with --start {path}."
        ) from error


def finish(
    result: Any,
    output: Path,
    plot: Path | None,
    *,
    overwrite: bool,
    quiet: bool,
    written: Sequence[Path],
    then: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Write the files, print what was found, and exit with its code."""
    import lowtucker as lt

    _write(result, output, overwrite)
    then()
    if plot is not None:
        write_picture(result.plot(), plot)
    if not quiet:
        files = ", ".join(map(str, [output, *written]))
        console().print(f"{result}\n  written   {files}", markup=False)
    if result.status is lt.Status.INTERRUPTED:
        sys.exit(INTERRUPTED)
    sys.exit(0 if result.success else NOT_RECOVERED)


def _write(result: Any, output: Path, overwrite: bool) -> None:
    """Result as .npz; the full tensor X as .npy or .mat."""
    suffix = output.suffix.lower()
    if suffix == ".npz":
        result.save(output, overwrite=overwrite)
        return
    import numpy as np

    from lowtucker.io import replacing

    full = np.asarray(result.X)
    with replacing(output) as file:
        if suffix == ".npy":
            np.save(file, full)
        else:
            from scipy.io import savemat

            savemat(file, {"X": full})

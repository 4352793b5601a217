"""Options and output shared by ``recover`` and ``complete``."""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from lowtucker.cli.common import (
    FILE,
    INTERRUPTED,
    NOT_RECOVERED,
    IntTuple,
    Rank,
    check_picture,
    check_targets,
    console,
    exit_codes,
    single,
    write_picture,
)
from lowtucker.cli.rescue import save_or_keep
from lowtucker.cli.verbose import verbose_option
from lowtucker.cli.words import in_options

__all__ = [
    "EXIT_CODES",
    "as_rank",
    "check_fits",
    "check_output",
    "check_rank_known",
    "finish",
    "kept",
    "max_seconds_option",
    "may_replace",
    "next_command",
    "rank_options",
    "run_options",
]

OUTPUTS = (".npz", ".npy", ".mat")
EXIT_CODES = exit_codes(
    "the tensor was recovered",
    "ran, but the tensor was not recovered: the result is written, and says why",
    "interrupted: the best result so far is written",
)
Command = Callable[..., Any]
# Options that another one makes void
BELONG = {"rank": ("max_rank", "start"), "solver": ("step", "block_size")}
max_seconds_option = click.option(
    "--max-seconds",
    type=float,
    help="Limit on the wall time. By default 60 for small data and --solver auto; inf for none.",
)


def rank_options(command: Command, *, required: bool = True) -> Command:
    """Add the options for the rank and the output file."""
    for option in (
        click.option("-o", "--output", type=FILE, required=required,
                     help="The result as .npz, or the full tensor as .npy or .mat; `complete` "
                     "also writes a table with labels, .csv."),
        click.option("--max-rank", type=IntTuple(), help="Largest rank tried by --rank auto."),
        click.option("--rank", type=Rank(),
                     help='Tucker rank, one entry per mode; "auto" searches for one. By default '
                     "none is needed: held-out data decide."),
    ):  # fmt: skip
        command = option(command)
    return command


def run_options(command: Command) -> Command:
    """Add the options of a run and its output."""
    for option in (
        click.option("-q", "--quiet", is_flag=True, help="No progress bar and no summary."),
        verbose_option,
        click.option("--overwrite", is_flag=True, help="Replace existing files."),
        click.option("--plot", type=FILE,
                     help="Write a plot of the run (.png, .pdf, .svg), with the first slice and "
                     "its standard error where that is quick and the tensor was recovered."),
        click.option("--checkpoint", type=FILE,
                     help="File to save the run to; run the same command to resume."),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
        click.option("--loss", type=click.Choice(["squared", "huber"]), default="squared",
                     show_default=True, help="huber is robust to outliers in y."),
        click.option("--noise-std", type=float, help="Standard deviation of the noise in y."),
        max_seconds_option,
        click.option("--max-epochs", type=int, default=500, show_default=True),
        click.option("--tol", type=float, default=1e-6, show_default=True,
                     help="Relative residual to reach."),
    ):  # fmt: skip
        command = option(command)
    return command


def as_rank(rank: Any, largest: tuple[int, ...] | None) -> Any:
    """Return the rank, a rank search for "auto", or None where there is none."""
    import lowtucker as lt

    if rank == "auto" or (rank is None and largest is not None):
        return lt.RankSearch(largest)
    if largest is not None:
        raise ValueError("--max-rank belongs to --rank auto. Omit one of them.")
    return single(rank)


def check_rank_known(rank: Any, largest: tuple[int, ...] | None, solver: Any) -> None:
    """Raise ValueError if there is no rank and the solver needs one."""
    if solver == "shrinkage" and (rank is not None or largest is not None):
        raise ValueError("--solver shrinkage needs no rank. Omit --rank and --max-rank, or it.")
    if rank is None and largest is None and solver not in ("auto", "shrinkage"):
        raise ValueError(
            "--rank is needed with these solver settings. Give it, or omit --solver, --step and "
            "--block-size."
        )


def check_output(
    output: Path,
    plot: Path | None,
    overwrite: bool,
    also: Sequence[Path] = (),
    *,
    inputs: Sequence[Path | None] = (),
    kinds: Sequence[str] = OUTPUTS,
) -> None:
    """Raise ValueError if an output cannot be written or would replace an input."""
    if os.path.isdir(output):  # false for a name that is too long
        raise ValueError(f"output {output} is a folder. Give a file name: -o {output / 'X.npz'}.")
    if output.suffix.lower() not in kinds:
        raise ValueError(
            f"output must be one of {', '.join(kinds)}, got {output}. Try -o {output.stem}.npz."
        )
    paths = [output, *also, *([] if plot is None else [plot])]
    check_targets(paths, overwrite)
    given = {path.resolve() for path in inputs if path is not None}
    for path in paths:
        if path.resolve() in given:
            raise ValueError(f"output {path} is an input, which is never replaced. Rename it.")
    if plot is not None:
        check_picture(plot)


def may_replace(output: Path, overwrite: bool, checkpoint: Path | None) -> bool:
    """Return whether the output may be replaced; true for that of a run being resumed."""
    if overwrite or checkpoint is None or not os.path.exists(checkpoint) or output.suffix != ".npz":
        return overwrite
    import lowtucker as lt

    unfinished = (lt.Status.INTERRUPTED, lt.Status.MAX_EPOCHS, lt.Status.MAX_SECONDS)
    try:
        return output.exists() and lt.load(output).status in unfinished
    except ValueError:  # not a result
        return False


def check_fits(output: Path, shape: Sequence[int]) -> None:
    """Raise ValueError if the full tensor is requested and does not fit into memory."""
    from lowtucker.io.guards import physical_memory

    if output.suffix.lower() != ".npz" and 16 * math.prod(shape) > physical_memory():
        raise ValueError(
            f"{output} would hold all {math.prod(shape)} entries, more than fits into memory. Try "
            f"-o {output.stem}.npz, which holds the factors."
        )


@contextmanager
def kept(output: Path) -> Iterator[None]:
    """Save the partial result if rows of A cannot be read."""
    try:
        yield
    except OSError as error:
        result = getattr(error, "result", None)
        if result is None:
            raise
        names = (output.with_name(f"{output.stem}-partial{k or ''}.npz") for k in count())
        path = next(path for path in names if not path.exists())
        save_or_keep(lambda: result.save(path), result.save, path)
        raise OSError(
            f"{error} The partial result is in {path}: resume with --start {path}."
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
    write: Callable[[], None] | None = None,
) -> NoReturn:
    """Write the files, print a summary, and exit with the code of the result."""
    import lowtucker as lt
    from lowtucker.io.guards import WriteError

    save_or_keep(write or (lambda: _write(result, output, overwrite)), result.save, output)
    try:
        then()
        if plot is not None:
            write_picture(_picture(result), plot)
    except OSError as error:
        raise WriteError(f"{getattr(error, 'reason', error)}. The result is in {output}") from error
    if not quiet:
        files = ", ".join(map(str, [output, *written]))
        text = _in_options(result.text_in(partial(next_command, output)))
        # not wrapped: the next command is to be copied
        console().print(f"{text}\n  written   {files}", markup=False, soft_wrap=True)
    if result.status is lt.Status.INTERRUPTED:
        sys.exit(INTERRUPTED)
    sys.exit(0 if result.success else NOT_RECOVERED)


def _in_options(text: str) -> str:
    """Summary whose sentences name options; the line of the solver is its settings."""
    lines = text.split("\n")
    return "\n".join(one if one.startswith("  solver") else in_options(one) for one in lines)


def _picture(result: Any) -> Any:
    """Draw the run; below it a slice with its standard error, where that is quick and sound."""
    from lowtucker.lab.experiments.bars import why_no_bars
    from lowtucker.run.pictures import draw_run, kind_of_bars

    quick = not why_no_bars(result, math.prod(result.X.shape[:2]))
    return draw_run(result, bars=quick and kind_of_bars(result) != "presumed")


def next_command(output: Path, changes: Mapping[str, Any]) -> str:
    """The command that is running, with other options and another output file."""
    context = click.get_current_context()
    options = {p.name: p for p in context.command.params if p.name is not None}
    given = {name: value for name, value in context.params.items() if _was_given(context, name)}
    changes = dict(changes)
    if changes.get("solver") == "auto":
        changes["solver"] = None
    if changes.get("start") and ("start" not in options or output.suffix.lower() != ".npz"):
        del changes["start"]
        changes["max_epochs"] = max(500, 2 * context.params["max_epochs"])
    elif changes.get("start"):
        changes["start"] = output
    for name, others in BELONG.items():
        if name in changes:
            given = {key: value for key, value in given.items() if key not in others}
    if set(changes) - {"max_epochs", "max_seconds"}:
        given.pop("checkpoint", None)  # it is of other settings
    given |= {name: value for name, value in changes.items() if name in options}
    given |= {"output": _free(output), "overwrite": bool(given.get("plot") or given.get("predict"))}
    words = [context.command_path]
    for name, option in options.items():
        words += _words(option, given.get(name))
    return " ".join(words)


def _was_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _words(option: click.Parameter, value: Any) -> list[str]:
    """Words of a command for one option; none for a default."""
    if value is None or value is False:
        return []
    name = [] if isinstance(option, click.Argument) else [max(option.opts, key=len)]
    if value is True:
        return name
    if option.nargs == 1 and isinstance(value, tuple):
        value = ",".join(map(str, value))
    values = value if isinstance(value, tuple) else (value,)
    return [*name, *(shlex.quote(str(one)) for one in values)]


def _free(output: Path) -> Path:
    """Name like that of a file, of which there is none yet."""
    names = (output.with_name(f"{output.stem}-{k}{output.suffix}") for k in count(2))
    return next(path for path in names if not path.exists())


def _write(result: Any, output: Path, overwrite: bool) -> None:
    """Write the result as .npz, or the tensor as .npy or .mat: known entries as they were given."""
    suffix = output.suffix.lower()
    if suffix == ".npz":
        result.save(output, overwrite=overwrite)
        return
    import numpy as np

    from lowtucker.io import replacing

    filled = result.filled(standard_error=False)
    if isinstance(filled, dict):  # a table has every combination of labels in order
        filled = filled[result.labels.value].reshape(result.X.shape)
    full = np.asarray(filled)
    with replacing(output) as file:
        if suffix == ".npy":
            np.save(file, full)
        else:
            from scipy.io import savemat

            savemat(file, {"X": full})

"""Parameter types, checks and output helpers shared by the subcommands."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

__all__ = [
    "FILE",
    "INTERRUPTED",
    "NOT_RECOVERED",
    "SOLVERS",
    "IntTuple",
    "Rank",
    "Span",
    "as_solver",
    "check_extras",
    "check_folder",
    "check_picture",
    "check_targets",
    "console",
    "operator_options",
    "single",
    "table",
    "write_picture",
]

NOT_RECOVERED, INTERRUPTED = 3, 130
SOLVERS = ("auto", "tiht", "stotiht", "rsgd", "rgn", "rcg")
FILE = click.Path(path_type=Path)


class IntTuple(click.ParamType[tuple[int, ...]]):
    """Comma-separated integers, such as 30,30,10."""

    name = "n1,n2,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Parse the value."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of integers such as 30,30,10", param, ctx)


class Rank(IntTuple):
    """Comma-separated integers, or "auto"."""

    name = "r1,r2,...|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the value; keep "auto"."""
        return "auto" if str(value).lower() == "auto" else super().convert(value, param, ctx)


class Span(click.ParamType[tuple[int, int]]):
    """An inclusive range first:last, such as 61:90."""

    name = "first:last"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Parse the value."""
        if isinstance(value, tuple):
            return value
        try:
            first, last = (int(part) for part in str(value).split(":"))
        except ValueError:
            self.fail(f"{value!r} is not a range such as 61:90", param, ctx)
        return first, last


def operator_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe how to read the file of A."""
    shape = click.option(
        "--shape", type=IntTuple(), help="Shape of the tensor; required unless A is (m, *shape)."
    )
    order = click.option(
        "--order",
        type=click.Choice(["C", "F"]),
        help="How the rows were vectorised: C row-major, F column-major (MATLAB). Required for "
        ".mat files.",
    )
    return shape(order(command))


def as_solver(name: str, step: float | None = None, block_size: int | None = None) -> Any:
    """Return the named solver with the given settings."""
    import lowtucker as lt

    riemannian = name in ("rsgd", "rgn", "rcg")
    if riemannian and (step is not None or (block_size is not None and name != "rsgd")):
        raise ValueError(f"--step and --block-size do not apply to {name}. Omit them.")
    if riemannian or (name == "auto" and step is None and block_size is None):
        return lt.RSGD(block_size=block_size) if block_size is not None else name
    if name == "tiht":
        if block_size is not None:
            raise ValueError("--block-size belongs to stotiht: tiht uses all measurements.")
        return lt.TIHT(step="auto" if step is None else step)
    return lt.StoTIHT(block_size=block_size, step="auto" if step is None else step)


def check_extras(*modules: str, extra: str) -> None:
    """Raise ImportError if an optional dependency is missing."""
    from importlib.util import find_spec

    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise ImportError(
            f"This needs {', '.join(missing)}, which is not installed. "
            f'Try: pip install "lowtucker[{extra}]"'
        )


def check_folder(folder: Path) -> None:
    """Create a folder; raise ValueError if it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be written to ({error.strerror}). Try another folder."
        ) from error


def check_targets(paths: Sequence[Path], overwrite: bool) -> None:
    """Raise ValueError if files cannot be written or must not be replaced."""
    from lowtucker.io.guards import check_target

    if len({path.resolve() for path in paths}) < len(paths):
        raise ValueError(f"{', '.join(map(str, paths))} must be different files. Rename one.")
    for path in paths:
        if os.path.isdir(path):  # false for a name that is too long
            raise ValueError(f"output {path} is a folder. Give a file name.")
        if not path.absolute().parent.is_dir():
            raise ValueError(
                f"{path.parent} is not a folder: cannot write {path}. Create the folder first."
            )
        if os.path.lexists(path) and not overwrite:
            raise ValueError(f"output {path} exists. Give another name, or --overwrite.")
        try:
            check_target(path)
        except OSError as error:
            raise ValueError(f"output {getattr(error, 'reason', error)}.") from error


def check_picture(plot: Path) -> None:
    """Raise ValueError if the image format is not supported."""
    from lowtucker._plotting import new_figure

    formats = new_figure()[0].canvas.get_supported_filetypes()
    if plot.suffix.lower().lstrip(".") not in formats:
        raise ValueError(f"plot must be an image file such as {plot.stem}.png, got {plot}.")


def write_picture(figure: Any, path: Path, dpi: int | None = None) -> None:
    """Write a figure atomically."""
    from lowtucker.io import replacing

    with replacing(path) as file:
        figure.savefig(file, format=path.suffix.lower().lstrip("."), dpi=dpi or "figure")


def console(stderr: bool = False) -> Any:
    """Return a console; 140 columns wide if the output is not a terminal."""
    from rich.console import Console

    found = Console(stderr=stderr, highlight=False)
    return found if found.is_terminal else Console(stderr=stderr, highlight=False, width=140)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    """Return a table for the terminal."""
    from rich.table import Table

    made = Table(*columns)
    for row in rows:
        made.add_row(*row)
    return made


def single(rank: Any) -> Any:
    """Rank of one entry, such as that of a matrix, as a number."""
    return rank[0] if isinstance(rank, tuple) and len(rank) == 1 else rank

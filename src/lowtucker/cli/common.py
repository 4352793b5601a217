"""What the subcommands share: tuples of integers, tables."""

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
    "table",
    "write_picture",
]

NOT_RECOVERED, INTERRUPTED = 3, 130
SOLVERS = ("auto", "tiht", "stotiht", "rsgd", "rgn", "rcg")
FILE = click.Path(path_type=Path)


class IntTuple(click.ParamType[tuple[int, ...]]):
    """Integers between commas, such as 30,30,10."""

    name = "n1,n2,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Split and convert."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of integers such as 30,30,10", param, ctx)


class Rank(IntTuple):
    """Integers between commas, or the word auto."""

    name = "r1,r2,...|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Keep the word, split and convert the rest."""
        return "auto" if str(value).lower() == "auto" else super().convert(value, param, ctx)


class Span(click.ParamType[tuple[int, int]]):
    """First and last of a range, both included, such as 61:90."""

    name = "first:last"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Split and convert."""
        if isinstance(value, tuple):
            return value
        try:
            first, last = (int(part) for part in str(value).split(":"))
        except ValueError:
            self.fail(f"{value!r} is not a range such as 61:90", param, ctx)
        return first, last


def operator_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say how the file of A is to be read."""
    shape = click.option(
        "--shape", type=IntTuple(), help="Shape of the tensor; needed unless A is (m, *shape)."
    )
    order = click.option(
        "--order",
        type=click.Choice(["C", "F"]),
        help="How rows were vectorised: C row-major, F column-major (MATLAB). A .mat file must "
        "say.",
    )
    return shape(order(command))


def as_solver(name: str, step: float | None = None, block_size: int | None = None) -> Any:
    """Solver of a name, with the settings that were given."""
    import lowtucker as lt

    riemannian = name in ("rsgd", "rgn", "rcg")
    if riemannian and (step is not None or (block_size is not None and name != "rsgd")):
        raise ValueError(f"--step and --block-size do not belong to {name}. Leave them out.")
    if riemannian or (name == "auto" and step is None and block_size is None):
        return lt.RSGD(block_size=block_size) if block_size is not None else name
    if name == "tiht":
        if block_size is not None:
            raise ValueError("--block-size belongs to stotiht: tiht uses all the measurements.")
        return lt.TIHT(step="auto" if step is None else step)
    return lt.StoTIHT(block_size=block_size, step="auto" if step is None else step)


def check_extras(*modules: str, extra: str) -> None:
    """Find out before the work whether its result can be written."""
    from importlib.util import find_spec

    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise ImportError(
            f"This needs {', '.join(missing)}, not installed here. "
            f'Try: pip install "lowtucker[{extra}]"'
        )


def check_folder(folder: Path) -> None:
    """Find out before the work whether a folder can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be written to ({error.strerror}). Try another."
        ) from error


def check_targets(paths: Sequence[Path], overwrite: bool) -> None:
    """Find out before the work whether files can be written, and may be replaced."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise ValueError(f"{', '.join(map(str, paths))} must be different files. Rename some.")
    for path in paths:
        if path.is_dir():
            raise ValueError(f"output {path} is a folder. Give the name of a file.")
        if not path.absolute().parent.is_dir():
            raise ValueError(
                f"{path.parent} is not a folder: {path} could not be written there. Make it first."
            )
        if os.path.lexists(path) and not overwrite:
            raise ValueError(f"output {path} exists. Give another name, or --overwrite.")


def check_picture(plot: Path) -> None:
    """Find out before the work whether there is such a format of pictures."""
    from lowtucker._plotting import new_figure

    formats = new_figure()[0].canvas.get_supported_filetypes()
    if plot.suffix.lower().lstrip(".") not in formats:
        raise ValueError(f"plot must be a picture such as {plot.stem}.png, got {plot}.")


def write_picture(figure: Any, path: Path, dpi: int | None = None) -> None:
    """Write a figure: completely, or not at all."""
    from lowtucker.io import replacing

    with replacing(path) as file:
        figure.savefig(file, format=path.suffix.lower().lstrip("."), dpi=dpi or "figure")


def console(stderr: bool = False) -> Any:
    """Terminal to write on; wide enough for a table where there is none."""
    from rich.console import Console

    found = Console(stderr=stderr, highlight=False)
    return found if found.is_terminal else Console(stderr=stderr, highlight=False, width=140)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    """Table for the terminal."""
    from rich.table import Table

    made = Table(*columns)
    for row in rows:
        made.add_row(*row)
    return made

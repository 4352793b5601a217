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
    "Names",
    "Rank",
    "Span",
    "as_solver",
    "check_extras",
    "check_folder",
    "check_picture",
    "check_targets",
    "console",
    "exit_codes",
    "operator_options",
    "single",
    "table",
    "write_picture",
]

NOT_RECOVERED, INTERRUPTED = 3, 130
SOLVERS = ("auto", "shrinkage", "tiht", "stotiht", "rsgd", "rgn", "rcg", "als")
# Options of solvers that have settings
SETTINGS = {"auto": ("step", "block_size"), "tiht": ("step",), "stotiht": ("step", "block_size"),
            "rsgd": ("block_size",)}  # fmt: skip
FILE = click.Path(path_type=Path)


# Generic since click 8.4: with a subscript, older versions could not import this module
class ParamType(click.ParamType):  # type: ignore[type-arg]
    """A type of parameter."""


class IntTuple(ParamType):
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


class Names(ParamType):
    """Comma-separated names, such as station,day,hour."""

    name = "a,b,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Split the value."""
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip() for part in str(value).split(","))
        if not all(names):
            self.fail(f"{value!r} is not a list of names such as station,day,hour", param, ctx)
        return names


class Rank(IntTuple):
    """Comma-separated integers, or "auto"."""

    name = "r1,r2,...|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the value; keep "auto"."""
        return "auto" if str(value).lower() == "auto" else super().convert(value, param, ctx)


class Span(ParamType):
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

    given = {"step": step, "block_size": block_size}
    given = {key: value for key, value in given.items() if value is not None}
    for key in given:
        if key not in SETTINGS.get(name, ()):
            owners = ", ".join(one for one, keys in SETTINGS.items() if key in keys)
            option = f"--{key.replace('_', '-')}"
            raise ValueError(f"{option} does not apply to {name}. Omit it, or try {owners}.")
    if not given:
        return name
    kinds = {"tiht": lt.TIHT, "rsgd": lt.RSGD}
    return kinds.get(name, lt.StoTIHT)(**given)


def exit_codes(zero: str, three: str, interrupted: str, *, writes: bool = True) -> str:
    """Lines of a help text on the exit codes of a command."""
    codes = {
        0: zero,
        1: "failed: out of memory, or a numerical failure",
        2: "bad input: the message says which and what to try",
        3: three,
        4: "a file could not be written: the message says where the result is instead",
        130: interrupted,
    }
    lines = [f"  {code:<4} {text}" for code, text in codes.items() if writes or code != 4]
    return "\n".join(["\b", "Exit codes:", *lines])


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

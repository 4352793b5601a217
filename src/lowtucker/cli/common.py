"""What the subcommands share: tuples of integers, tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

__all__ = ["NOT_RECOVERED", "IntTuple", "console", "table"]

NOT_RECOVERED = 3


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

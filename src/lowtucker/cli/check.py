"""``lowtucker check``: test whether measurements can determine a tensor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from lowtucker.cli.common import (
    FILE,
    NOT_RECOVERED,
    IntTuple,
    console,
    exit_codes,
    operator_options,
    single,
)
from lowtucker.cli.inputs import Source, check_complete
from lowtucker.cli.verbose import verbose_option

__all__ = ["check"]


@click.command(
    epilog=exit_codes(
        "no problem was found: the measurements can determine such tensors",
        "a problem was found: the report says which",
        "interrupted",
        writes=False,
    )
)
@click.argument("a", metavar="A", type=FILE)
@click.option("--rank", type=IntTuple(), help="Tucker rank, one entry per mode.")
@operator_options
@click.option("--name", help="Name of the array, if the file holds several.")
@click.option("--block-size", type=click.IntRange(min=1), help="Rows per block; chosen by default.")
@click.option("--starts", type=click.IntRange(min=1), default=2, show_default=True,
              help="Number of starts of the search for the worst tensors.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@verbose_option
def check(a: Path, rank: tuple[int, ...], shape: tuple[int, ...] | None, order: Any,
          name: str | None, block_size: int | None, starts: int, seed: int) -> None:  # fmt: skip
    """Report whether the measurements A can determine tensors of a given rank.

    A is a file as for `lowtucker recover`. Checks the adjoint, the row norms, the balance of the
    blocks, bounds on the isometry constant of the paper's Definition 5.1, and the tangent design
    at random tensors (do nearby tensors have the same measurements?).

    \b
    Examples:
      lowtucker check A.npy --shape 30,30,10 --rank 8,8,2
      lowtucker check data.mat --name Phi --order F --shape 30,30,10 --rank 8,8,2
    """
    import lowtucker as lt

    source = Source.found(a, name, "A", "--name")
    check_complete(source, shape, order, {"rank": rank})
    A = lt.io.load_operator(a, shape, name=source.name, order=order)
    with console(stderr=True).status("") as status:
        found = lt.theory.examine(
            A, single(rank), block_size=block_size, starts=starts, seed=seed,
            report=lambda what: status.update(f"checking {what}"),
        )  # fmt: skip
    console().print(str(found), markup=False)
    sys.exit(0 if found.ok else NOT_RECOVERED)

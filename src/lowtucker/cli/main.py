"""The ``lowtucker`` command. Each subcommand is one file and one line here."""

from __future__ import annotations

import sys
import warnings

import click

from lowtucker._version import __version__
from lowtucker.cli.app import app
from lowtucker.cli.bench import bench
from lowtucker.cli.check import check
from lowtucker.cli.common import INTERRUPTED
from lowtucker.cli.complete import complete
from lowtucker.cli.demo import demo
from lowtucker.cli.plan import plan
from lowtucker.cli.recover import recover
from lowtucker.cli.reproduce import reproduce
from lowtucker.cli.video import video

__all__ = ["main"]

FAILED, BAD_INPUT = 1, 2


class _Commands(click.Group):
    """Shows what a user can put right as one line instead of a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default", UserWarning)
                warnings.showwarning = _show_warning  # type: ignore[assignment]
                return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except (
            ValueError, TypeError, OSError, ImportError, NotImplementedError,
            ArithmeticError, MemoryError,
        ) as error:  # fmt: skip
            if ctx.params.get("traceback"):
                raise
            advice = _advice(error)
            click.echo(f"Error: {advice or error}", err=True)
            sys.exit(FAILED if advice else BAD_INPUT)


def _advice(error: Exception) -> str:
    """What to say of a failure that is not about the input alone."""
    from numpy.linalg import LinAlgError

    if isinstance(error, MemoryError):
        return (
            f"there is not enough memory ({error}). Keep A in a .npy file, which is read block by "
            "block where it is large, or take a smaller tensor."
        )
    if isinstance(error, ArithmeticError | LinAlgError):
        return (
            f"the computation failed ({error}). Bring A and y to moderate sizes, such as entries "
            "about 1, and look for rows that stick out; `lowtucker --traceback` shows where."
        )
    return ""


def _show_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    click.echo(f"{category.__name__}: {message}", err=True)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lowtucker")
@click.option("--traceback", is_flag=True, help="Show where an error came from.")
def main(traceback: bool) -> None:
    """Recover a low-Tucker-rank tensor from linear measurements.

    \b
    Try:
      lowtucker demo
      lowtucker app
      lowtucker recover A.npy y.npy --shape 30,30,10 --rank 8,8,2 -o X.npz
      lowtucker complete samples.csv --shape 300,400,500 --rank 12,4,3 -o X.npz
      lowtucker plan --shape 30,30,30 --rank 3,3,3
      lowtucker check A.npy --shape 30,30,10 --rank 8,8,2
      lowtucker reproduce fig1 --trials 20

    \b
    Exit codes:
      0    done; `recover`, `complete`: the tensor was recovered
      1    failed: out of memory, or numbers beyond what can be computed
      2    bad input: the message says which and what to try
      3    `recover`, `complete`: ran, but the tensor was not recovered;
           `check`: the measurements will not do; `bench`: a target was missed
      130  interrupted
    """


main.add_command(demo)
main.add_command(app)
main.add_command(recover)
main.add_command(complete)
main.add_command(plan)
main.add_command(check)
main.add_command(reproduce)
main.add_command(video)
main.add_command(bench)

"""The ``lowtucker`` command. Each subcommand is one file and one line here."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module

import click

from lowtucker._version import __version__
from lowtucker.cli.verbose import verbose_option

__all__ = ["main"]

FAILED, BAD_INPUT, NOT_WRITTEN, INTERRUPTED = 1, 2, 4, 130
# Errors that the user can do something about
EXPECTED = (
    ValueError, TypeError, OSError, ImportError, NotImplementedError, ArithmeticError, MemoryError,
)  # fmt: skip
# First sentence of each command, so that a list of them imports none; a test compares the texts
SUMMARIES = {
    "app": "Serve a page for trying recoveries: synthetic tensors, your data, phase diagrams.",
    "bench": "Measure the cost of the library's parts and the quality of its results, with "
    "targets.",
    "check": "Report whether the measurements A can determine tensors of a given rank.",
    "complete": "Complete a tensor of low Tucker rank from some of its entries.",
    "demo": "Measure a small synthetic clip and recover it with TIHT, StoTIHT and auto.",
    "plan": "Estimate by simulation how many measurements a recovery needs.",
    "recover": "Recover the tensor X of low Tucker rank with Y = A(X).",
    "reproduce": "Run the paper's experiments; write tables, plots and a report.",
    "stream": "Follow a tensor of low Tucker rank through a stream of its entries.",
    "video": "Recover a clip from Gaussian measurements and report the result.",
}


class _Commands(click.Group):
    """Imports a command when it is used; reports an error the user can fix in one line."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            return None
        command: click.Command = getattr(import_module(f"lowtucker.cli.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        click.Group(commands=self.commands).format_commands(ctx, formatter)  # from the summaries

    def invoke(self, ctx: click.Context) -> object:
        try:
            if ctx.obj is not None:  # started as a program
                ctx.obj()
            with warnings.catch_warnings():
                warnings.simplefilter("default", UserWarning)
                warnings.showwarning = _show_warning  # type: ignore[assignment]
                return super().invoke(ctx)
        except click.MissingParameter as error:
            from lowtucker.cli.words import missing

            raise missing(error) from None
        except (Exception, KeyboardInterrupt) as error:
            if ctx.params.get("traceback") or isinstance(error, click.exceptions.Exit):
                raise
            text, code = _explained(error)
            if code == BAD_INPUT and ctx.invoked_subcommand:
                from lowtucker.cli.words import in_options

                text = in_options(text, self.get_command(ctx, ctx.invoked_subcommand))
            if not code:
                raise
            click.echo(text, err=True)
            sys.exit(code)


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: imports turn it into others, such as RuntimeError."""
    return error is not None and (
        isinstance(error, KeyboardInterrupt) or _interrupted(error.__cause__ or error.__context__)
    )


def _explained(error: BaseException) -> tuple[str, int]:
    """Message and exit code for an error; 0 for one that is a defect."""
    if isinstance(error, KeyboardInterrupt) and error.args:
        return str(error), INTERRUPTED
    if _interrupted(error):
        return "Interrupted before there was a result.", INTERRUPTED
    from lowtucker.io.guards import WriteError

    if isinstance(error, WriteError):
        return f"Error: {error.reason}.", NOT_WRITTEN
    advice = _advice(error)
    if advice:
        return f"Error: {advice}", FAILED
    return f"Error: {error}", BAD_INPUT if isinstance(error, EXPECTED) else 0


def _advice(error: BaseException) -> str:
    """Message for a failure that the input alone does not explain."""
    from numpy.linalg import LinAlgError

    if isinstance(error, MemoryError):
        return (
            f"there is not enough memory ({error}). Keep A in a .npy file, which is read block by "
            "block if it is large, or use a smaller tensor."
        )
    if isinstance(error, ArithmeticError | LinAlgError):
        return (
            f"the computation failed ({error}). Bring A and y to moderate sizes, with entries "
            "about 1, and look for outlying rows; `lowtucker --traceback` shows where."
        )
    return ""


def _show_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    from lowtucker.cli.words import in_options

    click.echo(f"{category.__name__}: {in_options(str(message))}", err=True)


@click.group(
    cls=_Commands,
    commands=[click.Command(name, help=text) for name, text in SUMMARIES.items()],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="lowtucker")
@click.option("--traceback", is_flag=True, help="Show where an error came from.")
@verbose_option
def main(traceback: bool) -> None:
    """Recover a low-Tucker-rank tensor from linear measurements.

    \b
    Try:
      lowtucker demo
      lowtucker app
      lowtucker recover A.npy y.npy --shape 30,30,10 --rank 8,8,2 -o X.npz
      lowtucker complete samples.csv --shape 300,400,500 --rank 12,4,3 -o X.npz
      lowtucker stream samples.csv --shape 100,100,50 --rank 3,3,3 -o X.npz --follow
      lowtucker plan --shape 30,30,30 --rank 3,3,3
      lowtucker check A.npy --shape 30,30,10 --rank 8,8,2
      lowtucker reproduce fig1 --trials 20

    \b
    Exit codes:
      0    done; `recover`, `complete`, `stream`, `video`: the tensor was recovered
      1    failed: out of memory, or a numerical failure
      2    bad input: the message says which and what to try
      3    `recover`, `complete`, `stream`, `video`: ran, but the tensor was not recovered;
           `check`: the measurements do not suffice; `bench`: a target was missed
      4    done, but a file could not be written, as on a full disk: the message says
           where the result is instead
      130  interrupted

    \b
    Completion of commands, options and file names by the Tab key:
      bash  eval "$(_LOWTUCKER_COMPLETE=bash_source lowtucker)"     in ~/.bashrc
      zsh   eval "$(_LOWTUCKER_COMPLETE=zsh_source lowtucker)"      in ~/.zshrc,
            after `autoload -U compinit && compinit`
      fish  _LOWTUCKER_COMPLETE=fish_source lowtucker | source      in
            ~/.config/fish/completions/lowtucker.fish
    """

"""Messages of the library in the words of the command line: options in place of arguments."""

from __future__ import annotations

import re

import click

__all__ = ["in_options", "lacks", "missing"]

# Arguments of the library whose options have another name
RENAMED = {"X_true": "truth"}
# Values as Python writes them: a tuple, a string, a number or a word
VALUE = r"""\([\d, ]*\)|"[^"]*"|'[^']*'|[\w.+-]*\w"""
# Options that some commands need, and ask for together with what their files need
TOLD_LATER = ("output",)
SEARCH = re.compile(r"(?:lowtucker\.)?RankSearch\(max=(\([\d, ]*\))\)")


def in_options(text: str, command: click.Command | None = None) -> str:
    """Text with options in place of arguments: those of a command, by default of the running one.

    ``tol=1e-6`` becomes ``--tol 1e-6``. A name alone becomes an option where it cannot be prose: at
    the beginning ("rank must have ..."), after "Check", "Give" and "Leave", and where it is no word
    of English (max_seconds, tol).
    """
    context = click.get_current_context(silent=True)
    command = context.command if command is None and context is not None else command
    options = {} if command is None else _options(command)
    if "max_rank" in options:
        text = SEARCH.sub(lambda found: f"--max-rank {_plain(found[1])}", text)
    for name, (option, separator) in options.items():
        text = _renamed(text, name, option, separator)
    return text


def _renamed(text: str, name: str, option: str, separator: str) -> str:
    """Text with an option in place of one argument."""
    given = re.compile(rf"(?<![\w.(-]){name} ?= ?({VALUE})")
    text = given.sub(lambda found: f"{option} {_plain(found[1], separator)}", text)
    alone = rf"(?<![\w.(-]){name}\b(?!-| ?=)"
    if "_" in name or name == "tol":
        return re.sub(alone, option, text)
    before = r"^(?:Error: )?(?:\S+: )?|\b(?:Check|Give|Leave) "
    return re.sub(rf"({before}){name}\b(?=\[| must| is| has| out|,)", rf"\1{option}", text)


def missing(error: click.MissingParameter) -> click.UsageError:
    """Error that names all that a command lacks, each with its help.

    What was given is converted before what was not: nothing of this is in the context.
    """
    context = error.ctx
    assert context is not None
    lacking = [
        param
        for param in context.command.params
        if (param.required or param.name in TOLD_LATER) and param.name not in context.params
    ]
    return lacks(context, lacking)


def lacks(context: click.Context, params: list[click.Parameter]) -> click.UsageError:
    """Error that names parameters that a command lacks, each with its help."""
    formatter = click.HelpFormatter()
    formatter.indent()
    formatter.write_dl([_described(param, context) for param in params])
    return click.UsageError(f"Missing:\n{formatter.getvalue().rstrip()}", context)


def _described(param: click.Parameter, context: click.Context) -> tuple[str, str]:
    record = param.get_help_record(context)
    name, text = record or (param.make_metavar(context), "")
    return name, text.replace("  [required]", "").replace("; required]", "]")


def _options(command: click.Command) -> dict[str, tuple[str, str]]:
    """Arguments of the library; options that stand for them, and what separates their numbers."""
    found = {
        str(param.name): (max(param.opts, key=len), ":" if ":" in param.type.name else ",")
        for param in command.params
        if isinstance(param, click.Option)
    }
    return found | {name: found[other] for name, other in RENAMED.items() if other in found}


def _plain(value: str, separator: str = ",") -> str:
    """Value of an option, from Python code."""
    if value.startswith("("):
        return separator.join(re.findall(r"\d+", value))
    return value.strip("\"'")

"""What --verbose shows: the lines of the library's loggers, in place of a progress bar."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["progress", "verbose_option"]


def _listen(context: click.Context, _: click.Parameter, count: int) -> None:
    """Show what the library logs, until the command has ended."""
    if not count or context.resilient_parsing:
        return
    import logging

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            click.echo(self.format(record), err=True)

    log, lines = logging.getLogger("lowtucker"), Lines()
    level = logging.INFO if count == 1 else logging.DEBUG
    lines.setFormatter(logging.Formatter("%(relativeCreated)7.0f ms  %(message)s"))
    root, before = context.find_root(), log.level
    root.call_on_close(lambda: log.removeHandler(lines))
    root.call_on_close(lambda: log.setLevel(before))
    log.addHandler(lines)
    log.setLevel(level)


verbose_option = click.option(
    "-v", "--verbose", count=True, expose_value=False, callback=_listen,
    help="Tell on stderr what is decided and how long it takes; -vv tells every epoch too.",
)  # fmt: skip


def progress(name: str, quiet: bool) -> tuple[Any, ...]:
    """Callbacks with a progress bar; none with --quiet, or where lines of --verbose tell more."""
    import logging

    import lowtucker as lt
    from lowtucker.cli.common import console

    if quiet or logging.getLogger("lowtucker").isEnabledFor(logging.INFO):
        return ()
    return (lt.ProgressBar(name, console(stderr=True)),)

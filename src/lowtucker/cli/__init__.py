"""The command-line interface; it contains no numerical code."""

from lowtucker.cli.main import main

__all__ = ["main"]

"""The command line: faces only, no numerics."""

from lowtucker.cli.main import main

__all__ = ["main"]

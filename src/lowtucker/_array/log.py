"""Loggers of the package: ``lowtucker`` and those below it, silent unless the user asks.

INFO tells what was decided and what it took, DEBUG every epoch:
``logging.basicConfig(level=logging.INFO)`` shows it.
"""

from __future__ import annotations

import logging

__all__ = ["logger"]

NAME = "lowtucker"
logging.getLogger(NAME).addHandler(logging.NullHandler())  # or else warnings reach stderr


def logger(part: str) -> logging.Logger:
    """Logger of a part of the package, such as ``lowtucker.recovery``."""
    return logging.getLogger(f"{NAME}.{part}")

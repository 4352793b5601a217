"""Matplotlib, imported only when something is drawn."""

from __future__ import annotations

from typing import Any

__all__ = ["new_axes", "new_figure"]


def new_figure(
    rows: int = 1, columns: int = 1, *, width: float | None = None, height: float | None = None
) -> tuple[Any, Any]:
    """Figure and axes that belong to no global state (``pyplot`` is not used); in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'Drawing needs Matplotlib, which is not installed. Try: pip install "lowtucker[plot]"'
        ) from error
    figure = Figure(
        figsize=(width or 5.0 * columns, height or 3.6 * rows),
        layout="constrained",
    )
    return figure, figure.subplots(rows, columns)


def new_axes() -> Any:
    """One pair of axes in a figure of its own."""
    return new_figure()[1]

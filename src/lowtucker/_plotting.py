"""Figures and axes of Matplotlib, which is imported on first use."""

from __future__ import annotations

from typing import Any

__all__ = ["new_axes", "new_figure"]


def new_figure(
    rows: int = 1, columns: int = 1, *, width: float | None = None, height: float | None = None
) -> tuple[Any, Any]:
    """Return a figure and its axes, independent of ``pyplot``; sizes in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'Plotting needs Matplotlib, which is not installed. Try: pip install "lowtucker[plot]"'
        ) from error
    figure = Figure(
        figsize=(width or 5.0 * columns, height or 3.6 * rows),
        layout="constrained",
    )
    return figure, figure.subplots(rows, columns)


def new_axes() -> Any:
    """Return the axes of a new figure."""
    return new_figure()[1]

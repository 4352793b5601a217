"""A result in a notebook: verdict, convergence plot, findings and advice, as HTML without scripts.

Colours are those of the page where possible, so that it reads in light and dark themes.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from lowtucker.run.advice import advised
from lowtucker.run.history import History, span
from lowtucker.run.pictures import bars_line
from lowtucker.status import Status

if TYPE_CHECKING:
    from lowtucker.run.result import Result

__all__ = ["convergence", "html_of"]

NumPyArray = np.ndarray[Any, Any]
# Visible on white and on black
GREEN, AMBER, RED, BLUE = "#2a9d5c", "#c98500", "#e0524d", "#4a90d9"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 380, 200, 44, 8, 18, 34
# Points of a curve, labels of the vertical axis, and pixels of a letter
POINTS, LABELS, LETTER = 300, 6, 6.2
LOWEST, HIGHEST = 1e-17, 1e300
CELL = "style='text-align:left;vertical-align:top;padding:1px 10px 1px 0'"
TABLE = "style='margin:4px 0;font-size:inherit'"


def html_of(result: Result) -> str:
    """HTML of a result, or of a batch with a row for each kind of ending."""
    main = _batch(result) if result.X.batch_shape else _single(result)
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:0 24px;align-items:flex-start">'
        f'<div style="flex:1 1 420px;max-width:720px">{_title(result)}{main}</div>'
        f'<div style="flex:0 0 auto">{convergence(result.history)}</div></div>'
    )


def _title(result: Result) -> str:
    """The verdict, with a dot in its colour."""
    dot = _dot(np.atleast_1d(result.status).tolist())
    return (
        f'<div style="font-size:115%;margin-bottom:4px">{dot}Result: '
        f"<strong>{escape(result.headline)}</strong></div>"
    )


def _dot(statuses: list[Status]) -> str:
    """A coloured dot: no colour of letters can be read on every background."""
    return (
        "<span style='display:inline-block;width:.7em;height:.7em;border-radius:50%;"
        f"margin-right:.4em;background:{_colour(statuses)}'></span>"
    )


def _colour(statuses: list[Status]) -> str:
    good = sum(status.success for status in statuses)
    return GREEN if good == len(statuses) else AMBER if good else RED


def _single(result: Result) -> str:
    """Numbers of one problem; findings and advice below."""
    said = ("note", "borderline", "status", "advice")
    lines = [line for line in result._lines() if line[0] not in said]
    bars = bars_line(result)
    table = _rows([*lines, *([("error bars", bars)] if bars else [])])
    advice = advised(result, result.status)
    notes = [note for note in result.notes if note.lower() not in advice.lower()]
    items = [*notes, *(f"Borderline: {remark}" for remark in result.borderline)]
    return f"{table}{_list(items)}{_advice(result.status, advice)}"


def _batch(result: Result) -> str:
    """Numbers of a batch; a row and the advice for each kind of ending."""
    said = ("status", "advice", "residual", "error", "estimate")
    numbers = _rows([line for line in result._lines() if line[0] not in said])
    statuses = np.atleast_1d(result.status)
    names = ["status", "problems", "residual", "epochs"]
    head = "".join(f"<th {CELL}>{name}</th>" for name in names)
    body, advice = "", ""
    for status in dict.fromkeys(statuses.tolist()):
        mask = np.array([one is status for one in statuses])
        cells = [
            f"{_dot([status])}{escape(status.words)}",
            f"{int(mask.sum())} of {mask.size}",
            escape(span(np.asarray(result.residual)[mask], ".1e")),
            escape(span(np.asarray(result.epochs)[mask])),
        ]
        body += f"<tr>{''.join(f'<td {CELL}>{cell}</td>' for cell in cells)}</tr>"
        advice += _advice(status, advised(result, status))
    return f"{numbers}<table {TABLE}><tr>{head}</tr>{body}</table>{advice}"


def _rows(lines: list[tuple[str, str]]) -> str:
    rows = "".join(
        f"<tr><th {CELL}>{escape(name).replace(' ', '&#160;')}</th>"
        f"<td {CELL}>{escape(text)}</td></tr>"
        for name, text in lines
    )
    return f"<table {TABLE}>{rows}</table>"


def _list(items: list[str]) -> str:
    if not items:
        return ""
    inside = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul style='margin:6px 0;padding-left:20px'>{inside}</ul>"


def _advice(status: Status, text: str) -> str:
    """Advice with a bar in the colour of its status; the next call as code."""
    sentences, _, call = text.partition("Try: ")
    code = f"<br>Try: <code>{escape(call)}</code>" if call else ""
    return (
        f'<div style="border-left:3px solid {_colour([status])};padding-left:8px;margin:6px 0">'
        f"<strong>{escape(status.name)}</strong> {escape(sentences)}{code}</div>"
    )


# The plot


def convergence(history: History) -> str:
    """Residual, and error where it is known, against epochs: logarithmic, with phases; SVG.

    Of a batch the median, and a band from the smallest to the largest. "" for fewer than two rows.
    """
    curves = {name: _logs(history[name]) for name in ("residual", "error") if name in history}
    count = len(history["residual"])
    known = np.concatenate([logs.ravel() for logs in curves.values()])
    known = known[np.isfinite(known)]
    if count < 2 or not known.size:
        return ""
    frame = _Frame(count, known)
    parts = [frame.axes(), _phases(history["phase"].tolist(), frame)]
    for (name, logs), colour in zip(curves.items(), (BLUE, AMBER), strict=False):
        if logs.ndim > 1:
            parts.append(frame.band(logs, colour))
        middle = logs if logs.ndim == 1 else np.median(logs, axis=1)
        parts.append(frame.curve(middle, colour, dashed=name == "error"))
    legend = _legend(has_error=len(curves) > 1, is_batch=history["residual"].ndim > 1)
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="residual against epochs, logarithmic" font-size="11" '
        f'font-family="sans-serif" fill="currentColor">{"".join(parts)}{legend}</svg>'
    )


def _logs(values: NumPyArray) -> NumPyArray:
    numbers = np.asarray(values, dtype=float)
    with np.errstate(all="ignore"):
        logs: NumPyArray = np.log10(np.clip(numbers, LOWEST, HIGHEST))
    return np.where(np.isfinite(numbers), logs, np.nan)


class _Frame:
    """Places of epochs and logarithms in the picture."""

    def __init__(self, count: int, logs: NumPyArray) -> None:
        self.count = count
        self.low, self.high = math.floor(logs.min()), math.ceil(logs.max())
        self.high += self.high == self.low

    def x(self, row: Any) -> Any:
        return LEFT + (WIDTH - LEFT - RIGHT) * row / (self.count - 1)

    def y(self, log: Any) -> Any:
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - log) / (self.high - self.low)

    def points(self, logs: NumPyArray) -> str:
        """Points of a curve, at most some hundred; those that are not finite are left out."""
        rows = np.unique(np.linspace(0, self.count - 1, min(self.count, POINTS)).astype(int))
        rows = rows[np.isfinite(logs[rows])]
        return " ".join(f"{self.x(k):.1f},{self.y(logs[k]):.1f}" for k in rows)

    def curve(self, logs: NumPyArray, colour: str, *, dashed: bool) -> str:
        dashes = ' stroke-dasharray="5 3"' if dashed else ""
        return (
            f'<polyline points="{self.points(logs)}" fill="none" stroke="{colour}" '
            f'stroke-width="1.8" stroke-linejoin="round"{dashes}/>'
        )

    def band(self, logs: NumPyArray, colour: str) -> str:
        ends = self.points(np.max(logs, axis=1)).split()
        ends += reversed(self.points(np.min(logs, axis=1)).split())
        return f'<polygon points="{" ".join(ends)}" fill="{colour}" opacity="0.2"/>'

    def axes(self) -> str:
        every = -(-(self.high - self.low) // (LABELS - 1))
        parts = [
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(k):.1f}" y2="{self.y(k):.1f}" '
            'stroke="currentColor" opacity="0.18"/>'
            f'<text x="{LEFT - 5}" y="{self.y(k) + 4:.1f}" text-anchor="end">10'
            f'<tspan dy="-4" font-size="8">{k}</tspan></text>'
            for k in range(self.low, self.high + 1, every)
        ]
        below = HEIGHT - BOTTOM + 14
        last = self.count - 1
        parts += [
            f'<text x="{self.x(k):.1f}" y="{below}" text-anchor="{anchor}">{k}</text>'
            for k, anchor in ((0, "middle"), (last // 2, "middle"), (last, "end"))
            if k in (0, last) or last > 3
        ]
        return "".join(parts)


def _phases(phases: list[str], frame: _Frame) -> str:
    """Lines where another phase begins, and their names where there is room."""
    first = [k for k, phase in enumerate(phases) if not k or phase != phases[k - 1]]
    parts = []
    for k, end in zip(first, [*first[1:], len(phases) - 1], strict=True):
        x, name = frame.x(max(k - 1, 0)), phases[k]
        room = int((frame.x(max(end - 1, k)) - x) / LETTER)
        if end == len(phases) - 1:
            room = int((WIDTH - RIGHT - x) / LETTER)
        short = name if len(name) <= room else f"{name[: room - 1]}…" if room > 4 else ""
        parts.append(
            f"<g><title>{escape(name)}, from epoch {max(k - 1, 0)}</title>"
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{HEIGHT - BOTTOM}" '
            f'stroke="currentColor" stroke-dasharray="2 3" opacity="0.45"/>'
            f'<text x="{x + 3:.1f}" y="{TOP - 7}" opacity="0.8">{escape(short)}</text></g>'
        )
    return "".join(parts)


def _legend(*, has_error: bool, is_batch: bool) -> str:
    """Names of the axis and the curves, below the plot."""
    middle = " (median, range)" if is_batch else ""
    words = [f'<tspan fill="{BLUE}">—</tspan> residual{middle}']
    if has_error:
        words.append(f'<tspan fill="{AMBER}">--</tspan> error')
    return (
        f'<text x="{LEFT}" y="{HEIGHT - 5}">{"  ".join(words)}</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 5}" text-anchor="end">epoch</text>'
    )

"""Draw the pictures of ``docs/architecture.md``: the layers, and the path of a call.

    python tools/draw_architecture.py    # rewrites docs/images/layers.svg and path.svg

The layers are those that ``tests/test_layers.py`` checks; a test compares the committed pictures
with what this script draws. Boxes are pale with dark text, and all else is a grey that can be read
on white and on black, so that the pictures suit light and dark pages.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from test_layers import FACES, LEVELS

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SANS = "system-ui,-apple-system,Segoe UI,DejaVu Sans,sans-serif"
MONO = "ui-monospace,SFMono-Regular,DejaVu Sans Mono,monospace"
DARK, MILD, GREY = "#1f2328", "#3b4250", "#7a7f87"
WIDTH = 860
# Widths of a character, in font sizes, of the widest of the fonts above
WIDE = {SANS: 0.6, MONO: 0.61}

# Title, note and colour of every level of LEVELS, from the bottom
LAYERS = [
    ("foundation", "arrays, statuses", "#d9c3e6"),
    ("tensors", "pure functions", "#c3bdf0"),
    ("problem", "what is solved", "#adc8ee"),
    ("algorithms", "pure steps", "#a9dccb"),
    ("runs", "the only loop", "#bfe0b0"),
    ("recovery", "what users call", "#fbe3a4"),
]
FOUNDATION, TENSOR, PROBLEM, SOLVERS, RUN, RECOVERY = (colour for *_, colour in LAYERS)
FACE = "#f7c99f"
# What is in every part
INSIDE = {
    "_version": "the version",
    "limits": "thresholds",
    "status": "Status, Finding",
    "_array": "NumPy, torch, JAX",
    "_plotting": "Matplotlib",
    "tensor": "Iterate, TuckerTensor; products, truncations, the tangent space",
    "operators": "maps, Traits",
    "io": "guarded readers",
    "metrics": "errors, PSNR",
    "problem": "A, y, weights",
    "thresholding": "H_r; FORMATS",
    "labels": "xarray, tables",
    "solvers": "one algorithm a file; Solver, State, Bound; auto",
    "uncertainty": "covariances; error bars; Calibration",
    "run": "loop, stopping rules, history; Scope: units, Ctrl-C, checkpoint; Result",
    "recovery": "entry, fit, rank search, hold-out, Huber's loss, completion, diagnosis",
    "streams": "Online",
    "estimators": "scikit-learn",
    "simulation": "on workers",
    "theory": "bounds, plans",
    "lab": "bench, app",
    "cli": "commands",
    "datasets": "real data",
}


def rectangle(x: float, y: float, w: float, h: float, colour: str, opacity: float = 1) -> str:
    """Box without text; a pale one is the background of others."""
    edge = " stroke='#00000033'" if opacity == 1 else f" fill-opacity='{opacity}'"
    return f"<rect x='{x:g}' y='{y:g}' width='{w:g}' height='{h:g}' rx='8' fill='{colour}'{edge}/>"


def text(
    x: float, y: float, words: str, size: float, colour: str = GREY, *,
    font: str = SANS, bold: bool = False, anchor: str = "start", room: float = WIDTH,
) -> str:  # fmt: skip
    """Draw a line of text; an error if it is wider than its room."""
    if len(words) * size * WIDE[font] > room:
        raise ValueError(f"{words!r} at size {size:g} does not fit into {room:g}: shorten it.")
    weight = " font-weight='600'" if bold else ""
    return (
        f"<text x='{x:g}' y='{y:g}' font-size='{size:g}' fill='{colour}' font-family='{font}'"
        f" text-anchor='{anchor}'{weight}>{escape(words, quote=False)}</text>"
    )


def box(
    x: float, y: float, w: float, h: float, colour: str, title: str, note: str, *, code: bool
) -> list[str]:
    """Box with a title and a note below it; one of the two is a name in the code."""
    fonts = (MONO, SANS) if code else (SANS, MONO)
    middle, room = x + w / 2, w - 8
    return [
        rectangle(x, y, w, h, colour),
        text(middle, y + h / 2 - 3, title, 13, DARK, font=fonts[0], bold=not code,
             anchor="middle", room=room),
        text(middle, y + h / 2 + 14, note, 10.5, MILD, font=fonts[1], anchor="middle", room=room),
    ]  # fmt: skip


def arrow(*points: tuple[float, float], dashed: bool = False) -> list[str]:
    """Arrow along points, whose last stretch is horizontal or vertical."""
    (x0, y0), (x1, y1) = points[-2:]
    dx, dy = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
    line = [*points[:-1], (x1 - 6 * dx, y1 - 6 * dy)]
    path = " L ".join(f"{x:g} {y:g}" for x, y in line)
    dashes = " stroke-dasharray='4 4'" if dashed else ""
    tip = [(x1, y1), (x1 - 9 * dx - 5 * dy, y1 - 9 * dy + 5 * dx)]
    tip.append((x1 - 9 * dx + 5 * dy, y1 - 9 * dy - 5 * dx))
    corners = " L ".join(f"{x:g} {y:g}" for x, y in tip)
    return [
        f"<path d='M {path}' stroke='{GREY}' stroke-width='2' fill='none'{dashes}/>",
        f"<path d='M {corners} z' fill='{GREY}'/>",
    ]


def frame(x: float, y: float, w: float, h: float, title: str, code: str) -> list[str]:
    """Dashed frame around boxes, its title inside at the top."""
    return [
        f"<rect x='{x:g}' y='{y:g}' width='{w:g}' height='{h:g}' rx='10' fill='none'"
        f" stroke='{GREY}' stroke-dasharray='5 5'/>",
        text(x + 14, y + 20, title, 12, bold=True, room=w - 130),
        text(x + w - 14, y + 20, code, 10.5, font=MONO, anchor="end", room=120),
    ]


def picture(height: float, label: str, parts: list[str]) -> str:
    """SVG of its parts, with a description for those who cannot see it."""
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height:g}' role='img'"
        f" aria-label='{escape(label)}'>"
    )
    return "\n".join([head, *parts, "</svg>", ""])


def layers() -> str:
    """Draw the levels of tests/test_layers.py, the faces on top."""
    rows = [("faces", "on top of all", FACE, FACES)]
    for (title, note, colour), parts in reversed(list(zip(LAYERS, LEVELS, strict=True))):
        rows.append((title, note, colour, parts))
    left, right, height, gap = 140, 826, 60, 8
    drawn = []
    for k, (title, note, colour, parts) in enumerate(rows):
        y = 4 + k * (height + gap)
        drawn.append(rectangle(0, y, right, height, colour, 0.1))
        drawn.append(text(14, y + 27, title, 14, bold=True, room=left - 14))
        drawn.append(text(14, y + 45, note, 11, room=left - 14))
        w = (right - 8 - left + gap) / len(parts) - gap
        for j, part in enumerate(parts):
            x = left + j * (w + gap)
            drawn += box(x, y + 8, w, height - 16, colour, part, INSIDE[part], code=True)
    bottom = len(rows) * (height + gap)
    drawn += arrow((843, 4), (843, bottom - 4))
    drawn.append(
        f"<g transform='rotate(90 850 {bottom / 2:g})'>"
        + text(850, bottom / 2, "imports", 11, anchor="middle")
        + "</g>"
    )
    order = ", ".join([*reversed([title for title, *_ in LAYERS])])
    return picture(bottom, f"Layers of lowtucker, from the top: faces, {order}", drawn)


def path() -> str:
    """Draw what happens between the arguments and the result of a call."""
    left, middle, right, w, h = 228, 440, 652, 188, 56
    first, second, third = 42, 180, 312
    return picture(
        400,
        "The path of a call: entry, scope, selection, run, solver, diagnosis, result",
        [
            *box(4, first, 172, h, RECOVERY, "recover(A, y, rank)", "recovery.entry", code=False),
            *arrow((176, first + h / 2), (left, first + h / 2)),
            *frame(206, 8, 650, 382, "Scope: units, Ctrl-C, checkpoint", "run.scope"),
            *box(left, first, w, h, RECOVERY, "Selection: which rank?", "recovery.rank, holdout",
                 code=False),
            *arrow((left + w, first + h / 2), (middle, first + h / 2)),
            *box(middle, first, w, h, RECOVERY, "Fit: loss, limits", "recovery.fit, robust",
                 code=False),
            *arrow((middle + w, first + h / 2), (right, first + h / 2)),
            *box(right, first, w, h, SOLVERS, "Phases: which solvers?", "solvers.auto", code=False),
            *arrow((right + w / 2, first + h), (right + w / 2, second)),
            *arrow((left + w - 10, second), (left + w - 10, first + h), dashed=True),
            text(left + w + 4, first + h + 26, "again: next rank, next weights, all samples",
                 11, room=300),
            *frame(216, 142, 632, 142, "Run: epoch after epoch", "run.loop"),
            *box(right, second, w, h, SOLVERS, "bind, init: the start", "solvers, operators",
                 code=False),
            *arrow((right, second + h / 2), (middle + w, second + h / 2)),
            *box(middle, second, w, h, SOLVERS, "advance: a step", "solvers, operators",
                 code=False),
            *arrow((middle, second + h / 2), (left + w, second + h / 2)),
            *box(left, second, w, h, RUN, "record; stop?", "run.history, stopping", code=False),
            *arrow((left + 140, second + h), (left + 140, 264), (middle + w / 2, 264),
                   (middle + w / 2, second + h)),
            text(middle + w / 2 + 12, 262, "the next epoch; a new phase begins at bind", 11,
                 room=300),
            *arrow((left + w / 2, second + h), (left + w / 2, third)),
            *box(left, third, 400, h, RECOVERY, "Diagnosis: noise? another rank? is X determined?",
                 "recovery.diagnosis, limits", code=False),
            *arrow((left, third + h / 2), (176, third + h / 2)),
            *box(4, third, 172, h, RUN, "Result", "X, status, findings", code=False),
        ],
    )  # fmt: skip


PICTURES = {"layers.svg": layers, "path.svg": path}


def main() -> None:
    """Write the pictures."""
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw(), encoding="utf-8", newline="\n")
        print(IMAGES / name)


if __name__ == "__main__":
    main()

"""Draw "Which function for me?", the picture at the top of ``docs/solvers.md``.

    python tools/draw_decision.py    # rewrites docs/images/decision.svg

The picture is narrow, so that its text can be read on a phone. Boxes are pale with dark text, and
lines are grey, which suits light and dark pages. A test compares the committed picture with what
this script draws.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from draw_architecture import DARK, IMAGES, MILD, MONO, arrow, rectangle, text

WIDTH, LEFT, GAP = 440, 214, 26
QUESTION, ANSWER, OPTION = "#e6e1da", "#fbd9b8", "#cfe3f5"
# What you have, in at most two lines; the call; what it is for
QUESTIONS = [
    (("An array or a table", "with missing values?"), "lt.complete(data)", "fills the gaps"),
    (("Measurements that", "keep arriving?"), "lt.Online(shape, rank)", "keeps X up to date"),
    (("Sums or projections", "y = A(X) of a tensor?"), "lt.recover(A, y)", "finds X"),
    (("Samples, each with", "a number to predict?"), "TuckerRegressor()", "learns and predicts"),
    (("No data yet: how", "many will you need?"), "lowtucker plan", "simulates it"),
]
OPTIONS = [
    ("You do not know the rank", "leave it out"),
    ("You know the rank", "rank=(3, 3, 2)"),
    ("You want a rank to be found", 'rank="auto"'),
    ("Some values are gross errors", 'loss="huber"'),
    ("You know the noise", "noise_std=0.1"),
    ("It takes too long", "max_seconds=30"),
]


def question(y: float, lines: tuple[str, str], call: str, purpose: str) -> list[str]:
    """Draw a question, an arrow marked yes, and the function that answers it."""
    x = LEFT + GAP
    w = WIDTH - x - 4
    return [
        rectangle(4, y, LEFT - 8, 56, QUESTION),
        *(text(14, y + 24 + 19 * k, line, 14, DARK, room=LEFT - 20)
          for k, line in enumerate(lines)),
        *arrow((LEFT - 4, y + 28), (x, y + 28)),
        rectangle(x, y, w, 56, ANSWER),
        text(x + w / 2, y + 25, call, 13.5, DARK, font=MONO, anchor="middle", room=w),
        text(x + w / 2, y + 44, purpose, 13, MILD, anchor="middle", room=w),
    ]  # fmt: skip


def option(y: float, case: str, argument: str) -> list[str]:
    """Draw a case and the argument for it."""
    x = LEFT + GAP + 24
    return [
        rectangle(4, y, x - 12, 30, QUESTION),
        text(14, y + 20, case, 14, DARK, room=x - 20),
        rectangle(x, y, WIDTH - x - 4, 30, OPTION),
        text((x + WIDTH - 4) / 2, y + 20, argument, 13.5, DARK, font=MONO, anchor="middle",
             room=WIDTH - x - 8),
    ]  # fmt: skip


def decision() -> str:
    """Draw the questions, then the options that all calls share."""
    parts = [text(8, 24, "What do you have?", 17, bold=True)]
    for k, row in enumerate(QUESTIONS):
        parts += question(40 + 76 * k, *row)
        parts.append(text(LEFT + GAP / 2 - 4, 60 + 76 * k, "yes", 11, anchor="middle"))
        if k:
            parts += arrow((LEFT / 2, 20 + 76 * k), (LEFT / 2, 40 + 76 * k))
            parts.append(text(LEFT / 2 + 10, 34 + 76 * k, "no", 11))
    top = 40 + 76 * len(QUESTIONS) + 24
    parts.append(text(8, top, "Then, only if you need it", 17, bold=True))
    for k, row in enumerate(OPTIONS):
        parts += option(top + 16 + 38 * k, *row)
    height = top + 16 + 38 * len(OPTIONS)
    label = "Which function for me? " + "; ".join(
        f"{' '.join(lines)} {call}" for lines, call, _ in QUESTIONS
    )
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' "
        f"width='{WIDTH}' height='{height}' role='img' aria-label='{escape(label)}'>"
    )
    return "\n".join([head, *parts, "</svg>", ""])


PICTURES = {"decision.svg": decision}


def main() -> None:
    """Write the picture."""
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw(), encoding="utf-8", newline="\n")
        print(IMAGES / name)


if __name__ == "__main__":
    main()

"""Write the tables "How it compares" of the README from ``docs/compare.csv``.

    lowtucker bench compare --csv docs/compare.csv --overwrite    # measures, some minutes
    python tools/write_compare.py                                 # rewrites README.md

A test compares the README with the file.
"""

from __future__ import annotations

import csv
from pathlib import Path

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- compare: begin -->", "<!-- compare: end -->"
# Heading of each column, by the problem's name in the file
COMPLETION = {
    "photograph": "photograph, 50 % missing",
    "il2": "IL-2 responses, 50 % missing",
    "kinetic": "fluorescence, 80 % missing",
}
SENSING = {"lowrank": "synthetic, rank (3, 3, 3)", "pines": "Indian Pines, 20x20x20"}

Row = dict[str, str]


def read(path: Path = ROOT / "docs" / "compare.csv") -> list[Row]:
    """Read the rows of the benchmark."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def cell(row: Row) -> str:
    """Return error and CPU seconds, as in ``13.9 % (2.7 s)``."""
    error, seconds = float(row["error"]), float(row["seconds"])
    shown = f"{100 * error:.1f} %" if error >= 1e-3 else f"{error:.0e}"
    return f"{shown} ({'< 0.1' if seconds < 0.1 else format(seconds, '.1f')} s)"


def table(rows: list[Row], problems: dict[str, str]) -> str:
    """Return a table of Markdown: a line for each method, a column for each problem."""
    chosen = [row for row in rows if row["problem"] in problems]
    lines = [["", *problems.values()], ["---"] * (1 + len(problems))]
    for method in dict.fromkeys(row["method"] for row in chosen):
        found = {row["problem"]: cell(row) for row in chosen if row["method"] == method}
        lines.append([method, *(found.get(problem, "") for problem in problems)])
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def compared(rows: list[Row]) -> str:
    """Return what stands between the two marks in the README."""
    dates = sorted({row["measured"] for row in rows})
    measured = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return "\n\n".join(
        [
            "Missing values, relative error where values were hidden (CPU seconds):",
            table(rows, COMPLETION),
            "1000 Gaussian measurements of a 20x20x20 tensor, relative error (CPU seconds):",
            table(rows, SENSING),
            f"Measured {measured} with `lowtucker bench compare`, one run, one BLAS thread.",
        ]
    )


def main() -> None:
    """Rewrite the README between its marks."""
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    head, tail = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    path.write_text(f"{head}\n\n{compared(read())}\n\n{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()

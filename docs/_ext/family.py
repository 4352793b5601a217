"""The directives ``family-half`` and ``family-claims``: tables of ``lowtucker bench family``."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from realdata import markdown
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from lowtucker.lab.bench.family import Point, half, read
from lowtucker.lab.bench.family_plot import PANELS
from lowtucker.lab.bench.family_series import DEFAULT


def halves(points: Sequence[Point]) -> list[list[str]]:
    """Return measurements per degree of freedom at 50 %, a line for each diagram, with a header."""
    lines = [["diagram", "degrees of freedom", "ancestors", "default"]]
    for panel, title in PANELS.items():
        own = [point for point in points if point.panel == panel]
        if panel.startswith("trimmed") or not own:
            continue
        cells: dict[bool, list[str]] = {False: [], True: []}
        for method in dict.fromkeys(point.method for point in own):
            ours = method.startswith(DEFAULT)
            some = [point for point in own if point.method == method]
            ratio = half(some) / some[0].dof
            label = method.removeprefix(DEFAULT).lstrip(", ")
            shown = "not enclosed" if math.isnan(ratio) else f"{ratio:.2f}"
            cells[ours].append(f"{label} {shown}".strip())
        sizes = sorted({point.dof for point in own})
        shown = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        lines.append([title, shown, "; ".join(cells[False]), "; ".join(cells[True])])
    return lines


def claims(rows: Sequence[dict[str, str]]) -> list[list[str]]:
    """Return a line for each claim, with a header."""
    header = ["claim", "source", "verdict", "numbers"]
    return [header] + [
        [row["claim"], row["source"], f"**{row['verdict']}**", row["numbers"]] for row in rows
    ]


class FamilyTable(SphinxDirective):
    """A table from a CSV file of the benchmark, and when it was measured.

    ``:verdicts:`` says which claims to show.
    """

    required_arguments = 1
    option_spec = {"verdicts": directives.unchanged}  # noqa: RUF012 - as docutils has it

    def run(self) -> list[nodes.Node]:
        """Read the file and format it."""
        relative, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(relative)
        if self.name == "family-half":
            points = read(Path(path), Point)
            lines, dates = halves(points), {point.measured for point in points}
        else:
            with Path(path).open(newline="", encoding="utf-8") as file:
                wanted = self.options["verdicts"].split()
                rows = [row for row in csv.DictReader(file) if row["verdict"] in wanted]
            lines, dates = claims(rows), {row["measured"] for row in rows}
        text = f"{markdown(lines)}\n\nMeasured on {' and '.join(sorted(dates))}.\n"
        return self.parse_text_to_nodes(text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("family-half", FamilyTable)
    app.add_directive("family-claims", FamilyTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

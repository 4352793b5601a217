"""The directive ``realdata``: a table of ``lowtucker bench realdata``, from its CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

Row = dict[str, str]
OURS = "lowtucker"


def pivoted(rows: Iterable[Row]) -> list[list[str]]:
    """Return one line for each data set and one column for each method, with a header.

    The smallest error of a line is bold.
    """
    works = _works(rows)
    methods = list(dict.fromkeys(name for found in works.values() for name in found))
    # a long name may break
    lines = [["data", *(name.replace("Imputer", "<wbr>Imputer") for name in methods)]]
    for (work, data), found in works.items():
        best = min((float(row["error"]) for row in found.values()), default=float("nan"))
        unit = "RMSE" if found[OURS]["measure"] == "RMSE" else "relative"
        cells = [_cell(found[name], best) if name in found else "" for name in methods]
        lines.append([f"{work}: {data} ({unit})", *cells])
    return lines


def goals(rows: Iterable[Row]) -> list[list[str]]:
    """Return the goal of each data set and whether it was reached, and published numbers.

    With a header; empty where there are neither. Columns without content are left out.
    """
    lines = [["data", "goal", "published"]]
    for (work, data), found in _works(rows).items():
        ours = found[OURS]
        if ours["target"] or ours["published"]:
            lines.append([f"{work}: {data}", _goal(ours), ours["published"]])
    kept = [k for k in range(3) if any(line[k] for line in lines[1:])]
    return [[line[k] for k in kept] for line in lines] if kept else []


def _works(rows: Iterable[Row]) -> dict[tuple[str, str], dict[str, Row]]:
    """Rows by data set and method."""
    works: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        works.setdefault((row["work"], row["data"]), {})[row["method"]] = row
    return works


def _cell(row: Row, best: float) -> str:
    """Error and CPU seconds; passes where they are few enough to count."""
    if row["error"] == "nan":
        return "not available"
    error, seconds, passes = (float(row[name]) for name in ("error", "seconds", "passes"))
    shown = f"{error:.3g}"
    if error == best:
        shown = f"**{shown}**"
    cost = "< 0.1 s" if seconds < 0.1 else f"{seconds:.2g} s"
    if "passes" in row["target"]:
        cost += f", {passes:.0f} passes"
    return f"{shown}<br>{cost}"


def _goal(row: Row) -> str:
    """Return the goal, and whether it was reached."""
    if not row["target"] or not row["met"]:
        return row["target"]
    missed = row["note"].partition("missed: ")[2]
    return f"{row['target']}: {f'missed ({missed})' if missed else 'reached'}"


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    first, *rest = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([first, "|" + " --- |" * len(lines[0]), *rest])


class RealData(SphinxDirective):
    """A table of the rows whose names are given, and the date of their measurement."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {"file": directives.path}  # noqa: RUF012 - as docutils has it

    def run(self) -> list[nodes.Node]:
        """Read the file and pivot it."""
        relative, path = self.env.relfn2path(self.options["file"])
        self.env.note_dependency(relative)
        with Path(path).open(newline="", encoding="utf-8") as file:
            wanted = self.arguments[0].split()
            rows = [row for row in csv.DictReader(file) if row["work"] in wanted]
        if not rows:
            raise self.error(f"{path} has no rows of {self.arguments[0]}.")
        dates = " and ".join(sorted({row["measured"] for row in rows}))
        tables = [markdown(lines) for lines in (pivoted(rows), goals(rows)) if lines]
        text = "\n\n".join([*tables, f"Measured on {dates}.\n"])
        return self.parse_text_to_nodes(text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("realdata", RealData)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

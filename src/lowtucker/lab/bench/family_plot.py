"""The picture of ``lowtucker bench family``: a phase diagram for each format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from lowtucker._plotting import new_figure
from lowtucker.lab.bench.family import Point, half
from lowtucker.lab.bench.family_series import DEFAULT

__all__ = ["PANELS", "diagrams"]

# Panels in the order of the page; curves over m / N are drawn from the points of all ranks
RATIO = "matrices"
PANELS = {
    "sparse 5": "Sparse(5), 256 entries",
    "sparse 20": "Sparse(20), 256 entries",
    "sparse 40": "Sparse(40), 256 entries",
    "mmv": "RowSparse(10), 128 x L",
    "matrix 3": "matrices, 30x30, rank 3",
    RATIO: "matrices, 30x30, ranks 1 to 8",
    "tucker": "Tucker (2,2,2), 10x10x10",
    "train": "TensorTrain(2), 6x6x6x6",
    "train, entries": "TensorTrain(2), 8x8x8x8, entries",
    "hierarchical 4": "HierarchicalTucker(2), 6x6x6x6",
    "hierarchical 5": "HierarchicalTucker(2), 4x4x4x4x4",
    "tubal": "Tubal(2), 20x20x10",
    "growing 1.5": "SeMP (4,4,4), spectra k^-1.5, 12x12x12",
    "growing 2.5": "SeMP (4,4,4), spectra k^-2.5, 12x12x12",
    "convex 3": "nuclear norms, 8x8x8, rank 1",
    "convex 4": "nuclear norms, 6x6x6x6, rank 1",
    "trimmed A2": "TrimTIHT, KaczTIHT, Gaussian rows (A2)",
    "trimmed A4": "TrimTIHT, KaczTIHT, rank-one rows (A4)",
}
COLUMNS = 3
# The default in one colour everywhere; ancestors in the others, that people who do not see all
# colours can tell apart (Okabe and Ito)
OURS = "#d55e00"
OTHERS = ("#0072b2", "#009e73", "#56b4e9", "#cc79a7", "#000000")
MARKERS = ("s", "^", "v", "D", "x")


def diagrams(points: Sequence[Point]) -> Any:
    """Draw the panels that have points; returns the figure."""
    panels = [name for name in PANELS if _own(points, name)]
    rows = math.ceil(len(panels) / COLUMNS)
    columns = min(COLUMNS, len(panels))
    figure, axes = new_figure(rows, columns, width=4.2 * columns, height=3.0 * rows)
    cells = list(axes.flat) if len(panels) > 1 else [axes]
    for name, cell in zip(panels, cells, strict=False):
        (_ratios if name == RATIO else _shares)(cell, _own(points, name))
        cell.set_title(PANELS[name], fontsize=10)
        cell.grid(alpha=0.25)
        many = len(cell.get_lines()) > 4
        cell.legend(fontsize=6 if many else 7.5, loc="best", framealpha=0.6)
    for cell in cells[len(panels) :]:
        cell.set_axis_off()
    return figure


def _own(points: Iterable[Point], panel: str) -> list[Point]:
    if panel == RATIO:
        return [point for point in points if point.panel.startswith("matrix ")]
    return [point for point in points if point.panel == panel]


def _shares(axes: Any, points: Sequence[Point]) -> None:
    """Fraction recovered against measurements per degree of freedom."""
    for method, style in _styles(points).items():
        own = sorted((p for p in points if p.method == method), key=lambda p: p.m)
        ratios = [p.per_dof for p in own]
        axes.plot(ratios, [p.share for p in own], label=method, **style)
        if not all(math.isnan(p.published) for p in own):
            axes.plot(ratios, [p.published for p in own], label=f"{method}, published", ls="none",
                      marker="o", ms=9, mfc="none", color=style["color"])  # fmt: skip
    axes.set_ylim(-0.04, 1.04)
    axes.set_xlabel("m / degrees of freedom")
    axes.set_ylabel("fraction recovered")


def _ratios(axes: Any, points: Sequence[Point]) -> None:
    """Degrees of freedom per measurement at 50 % against measurements per entry, 30x30."""
    for method, style in _styles(points).items():
        own = [p for p in points if p.method == method]
        found = [(half(q for q in own if q.panel == panel), dof)
                 for panel, dof in sorted({(p.panel, p.dof) for p in own})]  # fmt: skip
        pairs = sorted((m / 900, dof / m) for m, dof in found if not math.isnan(m))
        axes.plot([x for x, _ in pairs], [y for _, y in pairs], label=method, **style)
    axes.set_ylim(0.5, 1.02)
    axes.set_xlabel("m / N at 50 %")
    axes.set_ylabel("degrees of freedom / m at 50 %")


def _styles(points: Sequence[Point]) -> dict[str, dict[str, Any]]:
    """Style of each method: the default thick, and dashed where it has a second curve."""
    styles: dict[str, dict[str, Any]] = {}
    for method in dict.fromkeys(point.method for point in points):
        ours = [name for name in styles if name.startswith(DEFAULT)]
        if method.startswith(DEFAULT):
            style = {"color": OURS, "marker": "o", "ls": "--" if ours else "-", "lw": 2.2}
        else:
            k = (len(styles) - len(ours)) % len(OTHERS)
            style = {"color": OTHERS[k], "marker": MARKERS[k], "ls": "-", "lw": 1.3}
        styles[method] = {**style, "ms": 4.5}
    return styles

"""Run figures and write their tables, pictures and one report: ``lowtucker reproduce``."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowtucker.experiments import runner
from lowtucker.experiments.base import Experiment, Figure, Results
from lowtucker.experiments.beyond import Tuned
from lowtucker.experiments.clip import Clip, RecoveredFrames
from lowtucker.experiments.figures import figures
from lowtucker.experiments.provenance import machine
from lowtucker.experiments.report import DPI, Section, data_url, png, render
from lowtucker.experiments.store import Store
from lowtucker.experiments.verdict import Claim, claims, points
from lowtucker.io import replacing
from lowtucker.metrics import relative_error
from lowtucker.tensor import hooi, hosvd

__all__ = ["Reproduction", "csv_text"]


@dataclass(frozen=True)
class Reproduction:
    """Which figures, how many trials, where to.

    Parameters
    ----------
    names : sequence of str
        "fig1" to "fig7", "tuned".
    out : Path
        Folder of the tables, pictures and the report; ``out/cells`` keeps the results.
    trials, seed, workers : int
    clip : Clip, optional
        For Figures 6 and 7; the synthetic flame by default.
    """

    names: Sequence[str]
    out: Path
    trials: int = 100
    seed: int = 0
    workers: int = 1
    clip: Clip | None = None

    @property
    def store(self) -> Store:
        """Where results are kept."""
        return Store(self.out / "cells")

    def pending(self) -> list[runner.Job]:
        """Jobs that are still to be done."""
        every = figures(self.clip)
        wanted = {e.name: e for name in self.names for e in every[name].experiments}
        return runner.pending(wanted.values(), self.store, self.seed, self.trials)

    def run(self, jobs: Sequence[runner.Job], report: Callable[[runner.Job], None]) -> list[Claim]:
        """Do the jobs, then write everything; returns the verdict on the paper's claims."""
        self.out.mkdir(parents=True, exist_ok=True)
        begin = time.perf_counter()
        runner.run(jobs, self.store, workers=self.workers, report=report)
        took = time.perf_counter() - begin
        return self.write(_effort(len(jobs), took, self.workers))

    def write(self, effort: str) -> list[Claim]:
        """CSV and PNG of the figures asked for; a report of all that is at hand."""
        every = figures(self.clip)
        found: dict[str, Results] = {}
        seen: dict[str, Results | None] = {}
        for name, figure in every.items():
            parts = [self._results(e, seen) for e in figure.experiments]
            if all(part is not None for part in parts):
                found[name] = {k: v for part in parts if part is not None for k, v in part.items()}
        tables = {name: every[name].table(results) for name, results in found.items()}
        sections = []
        for name, results in found.items():
            figure = every[name]
            drawn = figure.draw(tables[name], results)
            picture = png(drawn)
            if name in self.names:
                _write(self.out / f"{name}.csv", csv_text(figure, tables[name]).encode())
                _write(self.out / f"{name}.png", picture)
            sections.append(_section(figure, tables[name], picture, drawn))
        made = claims(tables, _approximations(every) if "fig7" in found else None)
        _write(self.out / "report.html", self._report(every, found, tables, sections, made, effort))
        return made

    def _results(self, experiment: Experiment, seen: dict[str, Results | None]) -> Results | None:
        """Results of an experiment, read once though several figures show them."""
        if experiment.name not in seen:
            seen[experiment.name] = runner.results(experiment, self.store, self.seed, self.trials)
        return seen[experiment.name]

    def _report(
        self,
        every: Mapping[str, Figure],
        found: Mapping[str, Results],
        tables: Mapping[str, list[dict[str, Any]]],
        sections: list[Section],
        made: list[Claim],
        effort: str,
    ) -> bytes:
        tuned, clip = every["tuned"], _clip(every)
        assert isinstance(tuned, Tuned)
        facts = tuned.least_squares(found["tuned"]) if "tuned" in found else None
        provenance = machine() | {
            "seed": str(self.seed),
            "trials": str(self.trials),
            "clip": clip.origin,
            "computed": effort,
            **{figure.label: _settings(figure) for name, figure in every.items() if name in found},
        }
        context = {
            "title": "StoTIHT and TIHT: the paper's experiments",
            "provenance": provenance,
            "synthetic": clip.synthetic and "fig7" in found,
            "sections": sections,
            "claims": made,
            "points": points(tables, facts, clip),
            "missing": ", ".join(every[name].label for name in every if name not in found),
        }
        return render("reproduce.html", context).encode()


def csv_text(figure: Figure, table: list[dict[str, Any]]) -> str:
    """Table of a figure as CSV; floats to nine digits."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(figure.columns)
    for row in table:
        writer.writerow(f"{v:.9g}" if isinstance(v, float) else v for v in row.values())
    return file.getvalue()


def _write(path: Path, data: bytes) -> None:
    with replacing(path) as file:
        file.write(data)


def _section(figure: Figure, table: list[dict[str, Any]], picture: bytes, drawn: Any) -> Section:
    return Section(
        figure.name, figure.label, figure.title, figure.caption(), data_url(picture),
        round(DPI * drawn.get_size_inches()[0]), figure.highlights(table),
    )  # fmt: skip


def _clip(every: Mapping[str, Figure]) -> Clip:
    frames = every["fig6"]
    assert isinstance(frames, RecoveredFrames)
    return frames.experiment.clip


def _approximations(every: Mapping[str, Figure]) -> dict[str, float]:
    """How well the clip itself can be approximated at the rank of the figures."""
    frames = every["fig6"]
    assert isinstance(frames, RecoveredFrames)
    clip, rank = frames.experiment.clip.pixels, frames.experiment.rank
    return {
        "hosvd": float(relative_error(hosvd(clip, rank), clip)),
        "hooi": float(relative_error(hooi(clip, rank), clip)),
    }


def _settings(figure: Figure) -> str:
    return "; ".join(map(repr, figure.experiments))


def _effort(jobs: int, seconds: float, workers: int) -> str:
    if not jobs:
        return "nothing new: all results were at hand"
    return f"{jobs} jobs on {workers} workers in {seconds:.0f} s; the rest was at hand"

"""Run the figures; write tables, plots and a report: ``lowtucker reproduce``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lowtucker.lab.experiments.clip import ClipRecovery
from lowtucker.lab.experiments.figures import Paper
from lowtucker.lab.experiments.provenance import machine
from lowtucker.lab.experiments.report import (
    DPI,
    Section,
    csv_bytes,
    data_url,
    png,
    render,
    write_bytes,
)
from lowtucker.lab.experiments.verdict import Claim, claims
from lowtucker.metrics import relative_error
from lowtucker.simulation import runner
from lowtucker.simulation.base import Figure, Highlights, Results
from lowtucker.simulation.store import Store
from lowtucker.tensor import hooi, hosvd

__all__ = ["Reproduction"]

LOG = "log.txt"  # of the computations, in the folder of the results


@dataclass(frozen=True)
class Reproduction:
    """A reproduction of some figures in a folder.

    Parameters
    ----------
    names : sequence of str
        "fig1" to "fig7", "shrinkage", "tuned".
    out : Path
        Folder of the tables, plots and the report; ``out/cells`` holds the results.
    trials, seed, workers : int
    paper : Paper
        Settings of the experiments.
    client : distributed.Client, optional
        Client of a Dask cluster to run on.
    """

    names: Sequence[str]
    out: Path
    trials: int = 100
    seed: int = 0
    workers: int = 1
    paper: Paper = field(default_factory=Paper)
    client: Any = None

    @property
    def store(self) -> Store:
        """Store of the results."""
        return Store(self.out / "cells")

    def pending(self) -> list[runner.Job]:
        """Return the jobs to be computed."""
        figures = self.paper.figures()
        wanted = {e.name: e for name in self.names for e in figures[name].experiments}
        return runner.pending(wanted.values(), self.store, self.seed, self.trials)

    def run(
        self, jobs: Sequence[runner.Job], report: Callable[[runner.Job], None] = lambda job: None
    ) -> list[Claim]:
        """Run the jobs, then write everything; return the verdicts on the paper's claims."""
        self.out.mkdir(parents=True, exist_ok=True)
        begin, done = time.perf_counter(), 0

        def count(job: runner.Job) -> None:
            nonlocal done
            done += 1
            report(job)

        try:
            runner.run(jobs, self.store, workers=self.workers, client=self.client, report=count)
        finally:
            self._log(done, time.perf_counter() - begin)
        return self.write()

    def _log(self, jobs: int, seconds: float) -> None:
        """Append a line on the computation to the log."""
        if jobs:
            facts = machine()
            where = f"{self.workers} worker(s)" if self.client is None else "a Dask cluster"
            line = (
                f"{facts['written']}: {jobs} jobs in {seconds:.0f} s, {where}, "
                f"seed {self.seed}, {self.trials} trial(s), lowtucker {facts['lowtucker']}, "
                f"{facts['processor']}"
            )
            path = self.out / "cells" / LOG
            before = path.read_bytes() if path.exists() else b""
            write_bytes(path, before + line.encode() + b"\n")

    def _efforts(self) -> str:
        """Return the log."""
        path = self.out / "cells" / LOG
        return path.read_text(encoding="utf-8").strip() if path.exists() else "unknown"

    def write(self) -> list[Claim]:
        """Write CSV and PNG of every complete figure, and a report; return the verdicts."""
        figures = self.paper.figures()
        found = self._found(figures)
        tables = {name: figures[name].table(results) for name, results in found.items()}
        sections = []
        for name, results in found.items():
            figure, table = figures[name], tables[name]
            drawn = figure.draw(table, results)
            picture = png(drawn)
            # of all complete figures, so that files and report agree
            rows = [tuple(row.values()) for row in table]
            write_bytes(self.out / f"{name}.csv", csv_bytes(figure.columns, rows))
            write_bytes(self.out / f"{name}.png", picture)
            sections.append(_section(figure, figure.highlights(table, results), picture, drawn))
        made = claims(tables, found, _approximations(self.paper.clip) if "fig7" in found else None)
        page = self._report(figures, found, sections, made, _recovered(tables))
        write_bytes(self.out / "report.html", page)
        return made

    def _found(self, figures: Mapping[str, Figure]) -> dict[str, Results]:
        """Return the results of the complete figures; read each experiment once."""
        experiments = {e.name: e for figure in figures.values() for e in figure.experiments}
        at_hand = {
            name: runner.results(experiment, self.store, self.seed, self.trials)
            for name, experiment in experiments.items()
        }
        found: dict[str, Results] = {}
        for name, figure in figures.items():
            parts = [part for e in figure.experiments if (part := at_hand[e.name]) is not None]
            if len(parts) == len(figure.experiments):
                found[name] = {cell: columns for part in parts for cell, columns in part.items()}
        return found

    def _report(
        self,
        figures: Mapping[str, Figure],
        found: Mapping[str, Results],
        sections: list[Section],
        made: list[Claim],
        recovered: dict[str, float],
    ) -> bytes:
        clip = self.paper.clip.clip
        facts = self.paper.beyond.least_squares(found["tuned"]) if "tuned" in found else None
        settings = {figures[name].label: _settings(figures[name]) for name in found}
        provenance = machine() | {
            "seed": str(self.seed),
            "trials": f"{self.trials} (Figures 6 and 7, and beside it: one)",
            "clip": clip.origin,
            "computed": self._efforts(),
            **settings,
        }
        context = {
            "title": "StoTIHT and TIHT: the paper's experiments",
            "provenance": provenance,
            "synthetic": clip.synthetic and "fig7" in found,
            "sections": _picture_first(sections),
            "recovered": recovered,
            "clip": self.paper.clip,
            "claims": made,
            "facts": facts,
            "clip_entries": clip.pixels.size,
            "trials": self.trials,
            "missing": ", ".join(figures[name].label for name in figures if name not in found),
        }
        return render("reproduce.html", context).encode()


def _section(figure: Figure, highlights: Highlights, picture: bytes, drawn: Any) -> Section:
    return Section(
        figure.name, figure.label, figure.title, figure.caption(), data_url(picture),
        round(DPI * drawn.get_size_inches()[0]), highlights,
    )  # fmt: skip


def _picture_first(sections: list[Section]) -> list[Section]:
    """Return the recovered frames, if they were computed, before the other sections."""
    return sorted(sections, key=lambda section: section.name != "fig6")


def _recovered(tables: Mapping[str, Any]) -> dict[str, float]:
    """Return the final error on the clip of each algorithm; empty if it was not computed."""
    return {row["algorithm"]: row["relative_error"] for row in tables.get("fig7", ())}


def _approximations(recovery: ClipRecovery) -> dict[str, float]:
    """Return the errors of approximating the clip at the rank of the figures."""
    clip, rank = recovery.clip.pixels, recovery.rank
    return {
        "hosvd": float(relative_error(hosvd(clip, rank), clip)),
        "hooi": float(relative_error(hooi(clip, rank), clip)),
    }


def _settings(figure: Figure) -> str:
    return "; ".join(map(repr, figure.experiments))

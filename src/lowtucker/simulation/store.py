"""Results on disk, cell by cell: written atomically and never computed twice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from lowtucker._array.errors import FileFormatError
from lowtucker.io import describe, save_arrays
from lowtucker.io.arrays import load_members
from lowtucker.simulation.base import Columns, Experiment, joined

__all__ = ["Store"]

COUNT = "number_of_columns"  # stored with them, to detect a lost column
NAME = re.compile(r"(\d+)-(\d+)\.npz")


class Store:
    """Folder of results.

    A file holds the columns of a range of trials of a cell:
    ``experiment/cell-fingerprint/first-end.npz``. The fingerprint identifies the settings, the
    seed and the version, so that results of other settings are never reused.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, experiment: Experiment, cell: Any, seed: int, first: int, made: Columns) -> None:
        """Store the columns of the trials from ``first`` on."""
        count = len(next(iter(made.values())))
        folder = self._cell(experiment, cell, seed)
        folder.mkdir(parents=True, exist_ok=True)
        counted = made | {COUNT: np.full(count, len(made))}
        save_arrays(folder / f"{first}-{first + count}.npz", counted, overwrite=True)

    def get(self, experiment: Experiment, cell: Any, seed: int, trials: int) -> Columns | None:
        """Return the columns of the first ``trials`` trials; None if some are missing."""
        parts, end = [], 0
        for first, stop, path in self._files(experiment, cell, seed):
            if stop <= end or first > end or end >= trials:
                continue
            columns = _read(path, stop - first)
            if columns is not None:
                parts.append({name: x[end - first : trials - first] for name, x in columns.items()})
                end = stop
        return joined(parts) if end >= trials else None

    def missing(
        self, experiment: Experiment, cell: Any, seed: int, trials: int
    ) -> list[tuple[int, int]]:
        """Return the missing ranges of trials (first, count), split into batches."""
        done = np.zeros(trials, dtype=bool)
        for first, stop, path in self._files(experiment, cell, seed):
            if not done[first:stop].all() and _read(path, stop - first) is not None:
                done[first:stop] = True
        ranges, k, batch = [], 0, experiment.batch(cell)
        while k < trials:
            if done[k]:
                k += 1
                continue
            full = min((k // batch + 1) * batch, trials)
            stop = k + int(np.argmax(np.append(done[k:full], True)))
            ranges.append((k, stop - k))
            k = stop
        return ranges

    def _cell(self, experiment: Experiment, cell: Any, seed: int) -> Path:
        return self.folder / experiment.name / f"{cell}-{experiment.fingerprint(cell, seed)}"

    def _files(self, experiment: Experiment, cell: Any, seed: int) -> list[tuple[int, int, Path]]:
        """Return the stored ranges, in order."""
        paths = self._cell(experiment, cell, seed).glob("*.npz")
        matches = ((NAME.fullmatch(path.name), path) for path in paths)
        return sorted((int(match[1]), int(match[2]), path) for match, path in matches if match)


def _read(path: Path, trials: int) -> Columns | None:
    """Return the columns of a file; None if it is damaged and must be computed again."""
    try:
        infos = describe(path)
        if any(info.shape[:1] != (trials,) for info in infos):
            return None
        columns = load_members(path, infos)
    except (FileFormatError, OSError):
        return None
    counts = columns.pop(COUNT, np.array([-1]))
    return columns if (counts == len(columns)).all() else None

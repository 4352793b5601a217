"""Real data with holes, and measurements of real data: the problems of ``bench realdata``.

No data are part of the package. They are read from a folder (the authors' candle clip, Birmingham
and Hangzhou), and by :mod:`lowtucker.datasets` from TensorLy and from Debian's package
ferret-datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from lowtucker.datasets import (
    Dataset,
    climatology,
    covid,
    il2,
    indian_pines,
    kinetic,
    photograph,
)
from lowtucker.datasets.ferret import FERRET, VARIABLES
from lowtucker.io import load_array
from lowtucker.lab.experiments.clip import candle
from lowtucker.operators import MeasurementOperator, gaussian, subsampled_transform

__all__ = [
    "FERRET",
    "SOURCES",
    "Completion",
    "Holes",
    "Sensing",
    "Source",
    "Task",
    "missing_data",
    "tasks",
]

NumPyArray = np.ndarray[Any, Any]
Measure = Literal["RMSE", "relative"]


class Source(NamedTuple):
    """A data set: its file (None if TensorLy has it), where to get it, and its reader."""

    file: Callable[[Path], Path | None]
    origin: str
    read: Callable[[Path], NumPyArray]


def _traffic(name: str) -> Source:
    """Counts of the transdim collection, in which zeros are missing."""

    def read(folder: Path) -> NumPyArray:
        counts = np.asarray(load_array(folder / f"{name}.mat", "tensor"), dtype=float)
        return np.where(counts == 0, np.nan, counts)

    return Source(lambda folder: folder / f"{name}.mat", "the transdim collection", read)


def _tensorly(load: Callable[[], Dataset], *part: Any) -> Source:
    """Part of a data set that TensorLy ships; slices of the last modes."""
    index: Any = (..., *part)
    return Source(lambda folder: None, "TensorLy", lambda folder: load().values[index])


def _ferret(variable: str, *part: Any) -> Source:
    """Part of a variable of ferret-datasets; slices of the last modes."""
    index: Any = (..., *part)
    file = VARIABLES[variable].file
    return Source(
        lambda folder: FERRET / file,
        "Debian's package ferret-datasets",
        lambda folder: climatology(variable, folder=FERRET).values[index],
    )


def _clip(folder: Path) -> NumPyArray:
    return candle(folder / "candle_5_A.mat").pixels


EVERY_THIRD = slice(None, None, 3)
SOURCES: Mapping[str, Source] = {
    "candle": Source(lambda folder: folder / "candle_5_A.mat", "the authors of the paper", _clip),
    "Birmingham": _traffic("Birmingham"),
    "Hangzhou": _traffic("Hangzhou"),
    "IL2": _tensorly(il2),
    "covid": _tensorly(covid),
    "kinetic": _tensorly(kinetic, slice(None, None, 10)),
    "Indian Pines": _tensorly(
        lambda: indian_pines(repair=False), slice(64), slice(64), slice(None, None, 4)
    ),
    "photograph": Source(
        lambda folder: None, "scikit-learn", lambda folder: photograph().values[::4, ::4]
    ),
    "sea surface": _ferret("sea_surface_temperature"),
    "ocean": _ferret("ocean_temperature", EVERY_THIRD, EVERY_THIRD),
    "winds": _ferret("monthly_zonal_wind", EVERY_THIRD, EVERY_THIRD),
}  # fmt: skip


def missing_data(source: str, folder: Path) -> str:
    """Return why a data set cannot be read; an empty string if it can."""
    file = SOURCES[source].file(folder)
    if file is None or file.exists():
        return ""
    return f"{file} does not exist; it comes from {SOURCES[source].origin}"


@dataclass(frozen=True, eq=False)
class Holes:
    """Data with known, hidden and missing entries.

    Parameters
    ----------
    truth : array
        The data; NaN where nobody knows them.
    hidden : array of bool
        Entries to predict.
    units : array of int
        What is hidden together: entries of one number are hidden as a whole. It tells other methods
        what to hold out when they choose their settings.
    """

    truth: NumPyArray
    hidden: NumPyArray
    units: NumPyArray

    @property
    def array(self) -> NumPyArray:
        """What a method is given: NaN where entries are hidden or missing."""
        return np.where(self.hidden, np.nan, self.truth)

    def without_empty_slices(self) -> Holes:
        """Leave out slices without a known entry: nothing says what is in them."""
        known = ~np.isnan(self.array)
        modes = range(known.ndim)
        kept = [known.any(axis=tuple(j for j in modes if j != k)) for k in modes]
        part = np.ix_(*kept)
        return Holes(self.truth[part], self.hidden[part], self.units[part])


@dataclass(frozen=True, kw_only=True)
class Task:
    """Data, and what is known of them.

    Parameters
    ----------
    name : str
        Row of the table, such as D1.
    what : str
        Data, and how they are observed.
    source : str
        Key of :data:`SOURCES`.
    targets : mapping
        Goals for the error, and for the seconds or passes.
    published : str
        Numbers of others, quoted.
    """

    name: str
    what: str
    source: str
    targets: Mapping[str, str] = field(default_factory=dict)
    published: str = ""

    def data(self, folder: Path) -> NumPyArray:
        """Read the data."""
        return SOURCES[self.source].read(folder)


@dataclass(frozen=True, kw_only=True)
class Completion(Task):
    """Entries are hidden, at random or as larger units.

    Parameters
    ----------
    rate : float
        Share of the units that is hidden.
    unit : tuple of int
        Size of what is hidden as a whole, 0 for all of a mode: entries by default, (1, 1, 0) for
        fibres of the third mode.
    measure : "relative" or "RMSE"
        How the error on hidden entries is counted.
    legacy : bool
        Draw as the published experiments on these data do: ``numpy.random.seed(1000)``.
    """

    rate: float
    unit: tuple[int, ...] = ()
    measure: Measure = "relative"
    legacy: bool = False

    def holes(self, folder: Path) -> Holes:
        """Hide entries of the data, the same in every run."""
        truth = self.data(folder)
        sizes = zip(self.unit or (1,) * truth.ndim, truth.shape, strict=True)
        where = np.ix_(*(np.arange(n) // (size or n) for size, n in sizes))
        grid = tuple(int(index.max()) + 1 for index in where)
        drawn: NumPyArray = (
            np.random.RandomState(1000).rand(*grid)
            if self.legacy
            else np.random.default_rng(0).random(grid)
        )
        hidden = np.round(drawn + 0.5 - self.rate)[where] == 0
        units = np.arange(drawn.size).reshape(grid)[where]
        return Holes(truth, hidden & ~np.isnan(truth), units).without_empty_slices()

    def error(self, X: NumPyArray, holes: Holes) -> float:
        """Error on the hidden entries."""
        truth = holes.truth[holes.hidden]
        distance = np.linalg.norm(X[holes.hidden] - truth)
        whole = truth.size**0.5 if self.measure == "RMSE" else np.linalg.norm(truth)
        return float(distance / whole)


@dataclass(frozen=True, kw_only=True)
class Sensing(Task):
    """Measurements that are no entries; the error is that of the whole tensor, relative.

    Parameters
    ----------
    kind : "gaussian" or "dct"
    m : float
        Number of measurements; below 1, a share of the number of entries.
    rank : tuple of int
        For the methods that need one, chosen by somebody who saw the data.
    """

    kind: Literal["gaussian", "dct"]
    m: float
    rank: tuple[int, ...]

    measure: Measure = "relative"

    def problem(self, folder: Path) -> tuple[MeasurementOperator, NumPyArray, NumPyArray]:
        """Return the operator, the measurements and the data."""
        truth = self.data(folder)
        m = round(self.m * truth.size) if self.m < 1 else int(self.m)
        A: MeasurementOperator = (
            gaussian(truth.shape, m, seed=0)
            if self.kind == "gaussian"
            else subsampled_transform(truth.shape, m, kind="dct", seed=0)
        )
        return A, A.forward(truth), truth


def tasks() -> list[Task]:
    """Return table D of the yardsticks, and data on which nothing was tuned (N1 to N3)."""
    return [*_measured(), *_traffic_counts(), *_shipped_with_tensorly(), *_climate()]


def _goals(error: float, seconds: float) -> dict[str, str]:
    return {"error": f"<= {error:g}", "seconds": f"<= {seconds:g}"}


def _measured() -> list[Task]:
    """Candle and Indian Pines: D0 and D8."""
    in_40_passes = {"passes": "<= 40"}
    clip: dict[str, Any] = {"source": "candle", "kind": "gaussian", "rank": (8, 8, 2)}
    cube: dict[str, Any] = {"source": "Indian Pines", "kind": "dct", "rank": (25, 25, 4)}
    return [
        *(
            Sensing(name="D0", what=f"candle, {m} Gaussian", m=m, **clip,
                    targets={"error": f"<= {goal:g}", **in_40_passes},
                    published="0.092 at m = 30000 (StoTIHT, rank (8, 8, 2), the paper)")
            for m, goal in {1000: 0.095, 2000: 0.06, 4000: 0.03, 8000: 0.006}.items()
        ),
        *(
            Sensing(name="D8", what=f"Indian Pines, {m:.0%} DCT", m=m, **cube,
                    targets={"error": f"<= {goal:g}", **in_40_passes})
            for m, goal in {0.1: 0.05, 0.3: 0.027}.items()
        ),
    ]  # fmt: skip


def _traffic_counts() -> list[Task]:
    """Birmingham and Hangzhou: D1 to D4."""
    common: dict[str, Any] = {"measure": "RMSE", "legacy": True}
    fibres: dict[str, Any] = {"rate": 0.4, "unit": (1, 1, 0), **common}
    quoted = {
        ("Birmingham", 0.4): "BATF 25.2 in 23 s, BGCP 25.6 in 20 s",
        ("Birmingham", 0.6): "BGCP 27.9",
        ("Hangzhou", 0.4): "BGCP 33.7 in 114 s; of 30 %: LATC 29.0, LRTC-TNN 24.9",
        ("Hangzhou", 0.6): "BGCP 37.7",
        ("Hangzhou", 0.7): "LRTC-TNN 29.5",
    }
    goals = {"Birmingham": {0.4: 14.0, 0.6: 20.0}, "Hangzhou": {0.4: 25.0, 0.6: 26.0, 0.7: 28.0}}
    made: list[Task] = []
    for name, few, many, seconds in (("Birmingham", "D1", "D2", 2), ("Hangzhou", "D3", "D4", 5)):
        made += [
            Completion(name=few, what=f"{name}, {rate:.0%}", source=name, rate=rate, **common,
                       targets=_goals(goal, seconds), published=quoted[name, rate])
            for rate, goal in goals[name].items()
        ]  # fmt: skip
        goal = {"D2": 60, "D4": 40}[many]
        best = {"D2": "BGCP 74.3, BATF 113", "D4": "BATF 40.5, BGCP 76.1"}[many]
        made.append(
            Completion(name=many, what=f"{name}, 40% of fibres", source=name, **fibres,
                       targets=_goals(goal, seconds), published=best)
        )  # fmt: skip
    return made


def _shipped_with_tensorly() -> list[Task]:
    """IL2, covid, kinetic: D5 to D7."""
    goals = {
        ("D5", "IL2", 1): {0.2: 0.13, 0.5: 0.165, 0.8: 0.235},
        ("D6", "covid", 2): {0.2: 0.41, 0.5: 0.48},
        ("D7", "kinetic", 2): {0.5: 0.033, 0.8: 0.036, 0.95: 0.06},
    }
    return [
        Completion(name=name, what=f"{source}, {rate:.0%}", source=source, rate=rate,
                   targets=_goals(goal, seconds))
        for (name, source, seconds), rates in goals.items()
        for rate, goal in rates.items()
    ]  # fmt: skip


def _climate() -> list[Task]:
    """Climate data, with no goals: N1 to N3.

    Months of a place are fibres of the first mode; boxes are half a year of 5x6 places.
    """
    sea: dict[str, Any] = {"name": "N1", "source": "sea surface", "measure": "RMSE"}
    ocean: dict[str, Any] = {"name": "N2", "source": "ocean", "measure": "RMSE"}
    winds: dict[str, Any] = {"name": "N3", "source": "winds", "measure": "RMSE"}
    return [
        Completion(what="sea surface temperature, 50%", rate=0.5, **sea),
        Completion(what="sea surface temperature, 40% of fibres", rate=0.4, unit=(0, 1, 1), **sea),
        Completion(what="sea surface temperature, 30% of boxes", rate=0.3, unit=(6, 5, 6), **sea),
        Completion(what="ocean temperature, 80%", rate=0.8, **ocean),
        Completion(what="winds, 50%", rate=0.5, **winds),
    ]

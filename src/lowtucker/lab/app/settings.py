"""Settings of the page, parsed from the query string and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtucker.lab.app.limits import Limits
from lowtucker.lab.app.photo import SHAPE, known_pixels
from lowtucker.lab.app.words import SettingError, Words

__all__ = [
    "OPERATORS", "SOLVERS", "Data", "Figure", "Phase", "Picture", "Recovery", "Synthetic", "parsed",
]  # fmt: skip

OPERATORS = ("gaussian", "rank-one", "entries", "dct")
SOLVERS = {"tiht": "TIHT", "stotiht": "StoTIHT", "auto": "auto"}
FIGURES = tuple(f"fig{k}" for k in range(1, 8))
# Operators with at most as many measurements as the tensor has entries
LIMITED = ("entries", "dct")
AXES = ("rows", "columns", "frames")
# Ends of a diagram, in measurements per degree of freedom; where cells take longest (measured:
# at 8x8x8, ten trials of a cell take 2-8 s of CPU near 1.1, 0.1-1 s elsewhere)
LEAST, HARDEST = 0.5, 1.1
# Epochs of a run; of "auto" on real data, where more epochs only try other starts
EPOCHS, FEW = 500, 60


@dataclass(frozen=True)
class Recovery:
    """Settings shared by a synthetic recovery and that of a file."""

    shape: tuple[int, ...]
    rank: tuple[int, ...] | None  # None: not given, for data
    m: int
    operator: str
    solvers: tuple[str, ...]
    block_size: int | None
    step: float | None
    seed: int
    max_epochs: int  # per solver, as is max_seconds
    max_seconds: float

    @property
    def dof(self) -> int | None:
        """Degrees of freedom of a tensor of this rank, if it is given."""
        return None if self.rank is None else degrees_of_freedom(self.shape, self.rank)

    def facts(self) -> dict[str, Any]:
        """Return the numbers that the page shows with the settings."""
        size, ratio = math.prod(self.shape), None if self.dof is None else self.m / self.dof
        return {"m": self.m, "dof": self.dof, "entries": size, "ratio": ratio,
                "share": self.m / size}  # fmt: skip


@dataclass(frozen=True)
class Synthetic(Recovery):
    """Recovery of a synthetic tensor, with or without noise."""

    rank: tuple[int, ...]
    signal: str
    noise: float  # standard deviation, relative to the root mean square of A(X)


@dataclass(frozen=True)
class Picture(Recovery):
    """Completion of a photograph; its rank is not given."""

    missing: float  # share of the pixels that are missing at random
    scratches: int


@dataclass(frozen=True)
class Data(Recovery):
    """Recovery of a part of a file."""

    file: str  # safe name of the upload
    reader: str  # "video" or "array"
    name: str | None  # of the array, if arrays have names
    crop: tuple[tuple[int, int], ...]  # rows, columns, frames: first and last, from 1
    example: tuple[int, ...] | None = None  # shape of the generated flame, if used
    original: str = ""  # name of the file on the user's machine


@dataclass(frozen=True)
class Phase:
    """A grid of ranks and measurements per degree of freedom."""

    shape: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]
    ratios: tuple[float, ...]
    operator: str
    solver: str
    trials: int
    seed: int

    def cells(self) -> list[tuple[tuple[int, ...], float, int]]:
        """Return (rank, ratio, m), coarse to fine, without those that cannot be measured.

        The first cells are those of a coarse grid over the whole diagram, each further round halves
        its mesh. Within a round, cells far from the transition are first: those near it try many
        starts.
        """
        made = [(self.ranks[i], self.ratios[j], max(1, round(self.ratios[j] * dof)))
                for i, j in _coarse_to_fine(len(self.ranks), self.ratios)
                for dof in (degrees_of_freedom(self.shape, self.ranks[i]),)]  # fmt: skip
        most = math.prod(self.shape) if self.operator in LIMITED else math.inf
        return [cell for cell in made if cell[2] <= most]

    def facts(self) -> dict[str, Any]:
        """Return the numbers that the page shows with the settings."""
        dofs = [degrees_of_freedom(self.shape, rank) for rank in self.ranks]
        return {"cells": len(self.cells()), "recoveries": len(self.cells()) * self.trials,
                "ranks": [list(rank) for rank in self.ranks], "ratios": list(self.ratios),
                "dofs": dofs}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, with the authors' settings and fewer trials."""

    name: str
    trials: int
    seed: int

    def facts(self) -> dict[str, Any]:
        """Return no numbers."""
        return {}


def _coarse_to_fine(rows: int, ratios: Sequence[float]) -> list[tuple[int, int]]:
    """Return the places of a grid: a coarse one with both ends first, then halved again and again.

    Examples
    --------
    >>> _coarse_to_fine(1, (0.5, 0.875, 1.25, 1.625, 2.0))
    [(0, 4), (0, 0), (0, 2), (0, 3), (0, 1)]
    """

    def round_of(k: int, n: int) -> int:
        if k in (0, n - 1):
            return 0
        return next(r for r in range(1, 32) if any(
            k == round((n - 1) * part / 2**r) for part in range(1, 2**r)))  # fmt: skip

    columns = len(ratios)
    places = [(i, j) for i in range(rows) for j in range(columns)]
    return sorted(places, key=lambda at: (max(round_of(at[0], rows), round_of(at[1], columns)),
                                          -abs(ratios[at[1]] - HARDEST), at))  # fmt: skip


def degrees_of_freedom(shape: tuple[int, ...], rank: tuple[int, ...]) -> int:
    """Return the degrees of freedom at the attainable rank."""
    import lowtucker as lt

    return lt.degrees_of_freedom(shape, lt.attainable_rank(rank))


def parsed(
    values: Mapping[str, Any], limits: Limits, upload: Mapping[str, Any] | None = None
) -> Synthetic | Picture | Data | Phase | Figure:
    """Parse the settings of the page.

    Parameters
    ----------
    values : mapping of str to str
        As in the query string: ``tab``, and the settings of that tab. All have defaults.
    limits : Limits
    upload : mapping, optional
        Description of the uploaded file, for the tab "data".

    Raises
    ------
    SettingError

    Examples
    --------
    >>> parsed({"tab": "synthetic", "shape": "10,10,10", "rank": "2,2,2"}, Limits()).m
    224
    """
    words = Words(values)
    tab = words.choice("tab", ("picture", "synthetic", "data", "phase"), "picture")
    if tab == "picture":
        return _picture(words, limits)
    if tab == "synthetic":
        return _synthetic(words, limits)
    if tab == "data":
        return _data(words, limits, upload)
    if words.choice("preset", ("grid", *FIGURES), "grid") != "grid":
        name, trials = words.text("preset"), words.integer("trials", 10, 1, limits.trials)
        return Figure(name, trials, words.integer("seed", 0, 0, 10**9))
    return _phase(words, limits)


def _picture(words: Words, limits: Limits) -> Picture:
    missing = words.number("missing", 50.0, 0, 99) / 100
    scratches = words.integer("scratches", 4, 0, 20)
    seed = words.integer("seed", 0, 0, 10**9)
    m = SHAPE[2] * int(known_pixels(missing, scratches, seed).sum())
    return Picture(
        SHAPE, None, m, "entries", ("auto",), None, None, seed, FEW, limits.seconds, missing,
        scratches,
    )  # fmt: skip


def _synthetic(words: Words, limits: Limits) -> Synthetic:
    shape = words.integers("shape", (24, 24, 12), 2, 200)
    rank = _rank(words, (4, 4, 3), shape)
    m = max(1, round(words.number("ratio", 4.0, 0.2, 100) * degrees_of_freedom(shape, rank)))
    operator = words.choice("operator", OPERATORS, "gaussian")
    _check_sizes(limits, "ratio", shape, m, operator, 8)
    names = words.text("solvers", ",".join(SOLVERS)).split(",")
    solvers = tuple(name for name in SOLVERS if name in names)
    if not solvers or set(names) - set(SOLVERS):
        raise SettingError("solvers", f"Choose one or more of the solvers {', '.join(SOLVERS)}.")
    noise = words.number("noise", 0.0, 0, 0.5)
    signal = words.choice("signal", ("flame", "random"), "flame")
    return Synthetic(
        shape, rank, m, operator, solvers, words.integer_or_auto("block", 1, m),
        words.number_or_auto("step"), words.integer("seed", 0, 0, 10**9), EPOCHS,
        limits.seconds / len(solvers), signal, noise,
    )  # fmt: skip


def _data(words: Words, limits: Limits, upload: Mapping[str, Any] | None) -> Data:
    if upload is None:
        raise SettingError("file", "The file is not available. Drop it on the page again.")
    arrays = {one["name"]: one for one in upload["arrays"]}
    name = words.text("array", upload["arrays"][0]["name"] or "") or None
    if name not in arrays:
        raise SettingError("array", f"{upload['file']} has no array {name!r} of three modes.")
    full = arrays[name]["shape"]
    crop = tuple(words.span(axis, n) for axis, n in zip(AXES, full, strict=True))
    shape = tuple(last - first + 1 for first, last in crop)
    usual = tuple(min(n, r) for n, r in zip(shape, (6, 6, 3), strict=True))
    known = words.choice("known", ("given", "none"), "given") == "given"
    rank = _rank(words, usual, shape) if known else None
    share = words.number("share", 30.0, 0.01, 400)
    m = max(1, round(share / 100 * math.prod(shape)))
    operator = words.choice("operator", ("gaussian", "entries", "dct"), "gaussian")
    _check_sizes(limits, "share", shape, m, operator, 4)
    solver = words.choice("solver", tuple(SOLVERS), "auto")
    if rank is None and solver != "auto":
        raise SettingError(
            "solver", f"{SOLVERS[solver]} needs a rank. Choose auto, or give the rank."
        )
    return Data(
        shape, rank, m, operator, (solver,), None, None, words.integer("seed", 0, 0, 10**9),
        FEW if solver == "auto" else EPOCHS, limits.seconds, upload["file"], upload["reader"],
        name, crop, tuple(full) if upload.get("example") else None, upload.get("original", ""),
    )  # fmt: skip


def _phase(words: Words, limits: Limits) -> Phase:
    shape = words.integers("shape", (8, 8, 8), 2, 30)
    largest = words.integer("largest", 4, 1, min(shape))
    columns = words.integer("columns", 9, 2, 20)
    most = words.number("most", 2.0, 1.1, 20)
    trials = words.integer("trials", 10, 1, limits.trials)
    operator = words.choice("operator", OPERATORS, "gaussian")
    steps = (most - LEAST) / (columns - 1)
    ratios = tuple(round(LEAST + steps * k, 3) for k in range(columns))
    ranks = tuple((r,) * len(shape) for r in range(1, largest + 1))
    if len(ratios) * len(ranks) > limits.cells:
        raise SettingError(
            "columns", f"{len(ratios) * len(ranks)} cells are too many; at most {limits.cells}."
        )
    dof = degrees_of_freedom(shape, ranks[-1])
    if operator not in LIMITED:
        _check_sizes(limits, "most", shape, round(most * dof), operator, 8)
    solver = words.choice("solver", tuple(SOLVERS), "auto")
    seed = words.integer("seed", 0, 0, 10**9)
    return Phase(shape, ranks, ratios, operator, solver, trials, seed)


def _rank(words: Words, default: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    rank = words.integers("rank", default, 1, 200)
    if any(r > n for r, n in zip(rank, shape, strict=True)):
        raise SettingError(
            "rank", f"The rank {rank} is larger than the shape {shape}. Make it smaller."
        )
    return rank


def _check_sizes(
    limits: Limits, field: str, shape: tuple[int, ...], m: int, operator: str, itemsize: int
) -> None:
    """Raise SettingError for too much memory or too many measurements."""
    size = math.prod(shape)
    if size > limits.entries:
        raise SettingError(
            "shape", f"{'x'.join(map(str, shape))} = {size} entries are too many for this page; "
            f"at most {limits.entries}. Make it smaller, or use lowtucker in Python.",
        )  # fmt: skip
    if operator in LIMITED and m > size:
        raise SettingError(
            field, f"{m} measurements are more than the {size} entries, the maximum for "
            f"{operator}. Use fewer measurements, or Gaussian ones.",
        )  # fmt: skip
    # a rank-one measurement is stored as one vector per mode
    each = {"gaussian": size, "rank-one": sum(shape)}.get(operator, 1)
    need = m * each * (itemsize if operator == "gaussian" else 8)
    if need > limits.matrix_bytes:
        what = "matrix" if operator == "gaussian" else "vectors"
        raise SettingError(
            field, f"The {what} of {m} x {each} numbers take {need / 1e6:.0f} MB; at most "
            f"{limits.matrix_bytes / 1e6:.0f} here. Use fewer measurements, a smaller tensor, or "
            "DCT measurements, which need no matrix.",
        )  # fmt: skip

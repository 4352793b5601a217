"""The curves of ``lowtucker bench family``: formats, tensors, ancestors and the default."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np

from lowtucker.lab.bench import trimmed
from lowtucker.lab.bench.family import USUAL, Point, Series
from lowtucker.lab.bench.timing import check_names
from lowtucker.run.stopping import MaxEpochs, ResidualBelow, Stalled
from lowtucker.solvers import TIHT, GrowingRank, NuclearNorm, StoTIHT
from lowtucker.tensor import degrees_of_freedom, random_tucker
from lowtucker.thresholding import HierarchicalTucker, RowSparse, SeMP, Sparse, TensorTrain, Tubal

__all__ = [
    "DEFAULT",
    "NAMES",
    "chosen",
    "decaying_truth",
    "name_of",
    "published",
    "sparse_truth",
    "standard",
]

NumPyArray = np.ndarray[Any, Any]
NAMES = ("sparse", "mmv", "matrix", "tucker", "train", "hierarchical", "tubal", "growing",
         "convex", "trimmed")  # fmt: skip
DEFAULT = "default"
# Error of an approximation, relative to the best one of its rank, that counts as good; the entries
# of the cores of nearly low-rank tensors decay as (i j k)^-power
NEAR, POWERS = 2.0, (1.5, 2.5)
# 500 epochs end many runs of NIHT that converge; convex programs cannot stall, and end with a gap
PATIENT = ResidualBelow(1e-6) | Stalled() | MaxEpochs(1000)
CONVEX, CONVEX_TOL = ResidualBelow(1e-6) | MaxEpochs(200), 1e-2


def standard() -> list[Series]:
    """Return the curves of all diagrams except those of the trimmed variants."""
    return [*_sparse(), *_mmv(), *_matrices(), *_tensors(), *_growing(), *_convex()]


def _pair(ancestor: str, **options: Any) -> list[Series]:
    """An ancestor that is TIHT with normalised steps, and the default."""
    both = ((ancestor, TIHT()), (DEFAULT, "auto"))
    return [Series(method=name, solver=solver, **options) for name, solver in both]


def _sparse() -> list[Series]:
    found = []
    for s, per_dof in (
        (5, (3, 4, 5, 6, 7, 8, 10)),
        (10, (2.5, 3, 3.5, 4, 5, 6, 8)),
        (20, (2.25, 2.75, 3, 3.5, 4, 5, 6)),
        (40, (1.75, 2, 2.25, 2.5, 3, 3.5, 4)),
    ):
        for name, solver in (("IHT", TIHT()), ("StoIHT", StoTIHT()), (DEFAULT, "auto")):
            found.append(
                Series(panel=f"sparse {s}", method=name, solver=solver, target=Sparse(s),
                       shape=(256,), per_dof=per_dof, trials=20, truth=sparse_truth((256,), s))
            )  # fmt: skip
    return found


def _mmv(n: int = 128, s: int = 10) -> list[Series]:
    """Row-sparse matrices of L columns; and 8 columns one by one."""
    per_dof = (1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8)
    found = []
    for name, count, solver in (
        ("column by column, L = 8", 8, StoTIHT()),
        *((f"MStoIHT, L = {count}", count, StoTIHT()) for count in (1, 2, 4, 8)),
        (f"{DEFAULT}, L = 1", 1, "auto"),
        (f"{DEFAULT}, L = 8", 8, "auto"),
    ):
        found.append(
            Series(panel="mmv", method=name, solver=solver, target=RowSparse(s), shape=(n, count),
                   per_dof=per_dof, trials=30, rows="columns", truth=sparse_truth((n, count), s),
                   split="column by" in name)
        )  # fmt: skip
    return found


def _matrices() -> list[Series]:
    """30x30: rank 3, and the curve over m/N by other ranks; few for the default, which restarts."""
    found = []
    for r, niht, auto in (
        (1, (1.1, 1.25, 1.5, 2), (1.02, 1.05, 1.1, 1.25)),
        (2, (1.2, 1.3, 1.4, 1.6), (1.05, 1.1, 1.2)),
        (3, (1.1, 1.2, 1.25, 1.3, 1.4, 1.5, 1.7), (1.05, 1.1, 1.15, 1.25, 1.4)),
        (5, (1.15, 1.25, 1.35, 1.5), (1.05, 1.15)),
        (8, (1.1, 1.2, 1.3, 1.4), ()),
    ):
        panel, wide = f"matrix {r}", r == 3
        shape: dict[str, Any] = {"panel": panel, "target": (r, r), "shape": (30, 30)}
        found.append(
            Series(method="NIHT", solver=TIHT(), per_dof=niht, trials=16 if wide else 8,
                   stop=PATIENT, **shape)
        )  # fmt: skip
        if auto:
            found.append(
                Series(method=DEFAULT, solver="auto", per_dof=auto, trials=8 if wide else 4,
                       **shape)
            )  # fmt: skip
    return found


def _tensors() -> list[Series]:
    """Tucker, tensor train, hierarchical Tucker, tubal rank."""
    train, wide = TensorTrain(2), (1.25, 1.5, 1.75, 2, 2.5, 3, 4)
    return [
        *_pair("TIHT", panel="tucker", target=(2, 2, 2), shape=(10, 10, 10),
               per_dof=(1.1, 1.25, 1.5, 2, 2.5, 3, 4), trials=20),
        *_pair("TIHT", panel="train", target=train, shape=(6,) * 4, per_dof=wide, trials=16),
        *_pair("TIHT", panel="train, entries", target=train, shape=(8,) * 4,
               per_dof=(2, 3, 4, 5, 6, 8), trials=16, rows="entries"),
        *_pair("TIHT", panel="hierarchical 4", target=HierarchicalTucker(2), shape=(6,) * 4,
               per_dof=wide, trials=16),
        *_pair("TIHT", panel="hierarchical 5", target=HierarchicalTucker(2), shape=(4,) * 5,
               per_dof=wide, trials=16),
        *_pair("TIHT", panel="tubal", target=Tubal(2), shape=(20, 20, 10),
               per_dof=(1.3, 1.45, 1.6, 2), trials=5),
    ]  # fmt: skip


def _growing() -> list[Series]:
    """Nearly low-rank tensors, at a fixed rank and one that grows."""
    shape, rank = (12, 12, 12), (4, 4, 4)
    return [
        Series(panel=f"growing {power}", method=name, solver=TIHT(schedule=schedule),
               target=SeMP(rank), shape=shape, per_dof=(1.2, 1.35, 1.5, 1.65, 1.8, 2, 2.5),
               trials=20, tol=NEAR, truth=decaying_truth(shape, power), near=True)
        for power in POWERS
        for name, schedule in (("fixed rank", None), ("growing rank", GrowingRank(1, 50)))
    ]  # fmt: skip


def _convex() -> list[Series]:
    """Nuclear norms beside the default, for four modes and for three."""
    found = []
    wide, few = (2.5, 3.5, 4.5, 5.5, 7, 9), (1, 1.25, 1.5, 2)
    for panel, shape, convex, auto in (
        ("convex 4", (6,) * 4, (4, 6, 8, 10, 12, 15), few),
        ("convex 3", (8,) * 3, wide, few),
        ("convex, n = 5", (5,) * 3, wide, ()),
        ("convex, n = 12", (12,) * 3, wide, ()),
    ):
        rank = (1,) * len(shape)
        for name, solver, per_dof in (
            ("SNN", NuclearNorm(), convex),
            ("square deal", NuclearNorm(unfolding="square"), convex),
            (DEFAULT, "auto", auto),
        ):
            if name != "SNN" and not auto:  # growth with n
                continue
            found.append(
                Series(panel=panel, method=name, solver=solver, target=rank, shape=shape,
                       per_dof=per_dof, trials=20, tol=CONVEX_TOL,
                       stop=USUAL if name == DEFAULT else CONVEX)
            )  # fmt: skip
    return found


def published(quick: bool = False) -> Iterator[Point]:
    """Yield the counts of TrimTIHT and KaczTIHT beside the published ones."""
    cells = trimmed.PUBLISHED[:2] if quick else trimmed.PUBLISHED
    for cell in cells:
        row = trimmed.measure(cell, *((5, 1) if quick else (20, 3)))
        yield Point(
            panel=f"trimmed {row.work}",
            method=row.method,
            target=f"HOOI(rank={cell.rank})",
            m=row.m,
            dof=degrees_of_freedom(trimmed.SHAPE, cell.rank),
            trials=row.trials,
            recovered=row.recovered,
            epochs=math.nan,
            passes=math.nan,
            gap=math.nan,
            published=row.published / trimmed.TRIALS,
            seconds=row.seconds,
            measured=date.today().isoformat(),
        )


def name_of(panel: str) -> str:
    """Format that a diagram belongs to."""
    return panel.split()[0].rstrip(",")


def chosen(names: Sequence[str] = NAMES) -> list[Series]:
    """Return the curves of some formats."""
    check_names(names, NAMES)
    return [one for one in standard() if name_of(one.panel) in names]


def sparse_truth(shape: tuple[int, ...], s: int) -> Callable[[int, int], NumPyArray]:
    """Gaussian entries, or rows of a matrix, at s random places."""

    def draw(trials: int, seed: int) -> NumPyArray:
        rng = np.random.default_rng(seed)
        X = np.zeros((trials, *shape))
        for one in X:
            places = rng.choice(shape[0], s, replace=False)
            one[places] = rng.standard_normal((s, *shape[1:]))
        return X

    return draw


def decaying_truth(shape: tuple[int, ...], power: float) -> Callable[[int, int], NumPyArray]:
    """Gaussian tensors whose spectra decay by a power law, in random bases."""
    weights = np.prod(np.indices(shape) + 1.0, axis=0) ** -power

    def draw(trials: int, seed: int) -> NumPyArray:
        bases = random_tucker(shape, shape, seed=seed, trials=trials, orthonormal=True)
        return np.asarray(replace(bases, core=bases.core * weights).full())

    return draw

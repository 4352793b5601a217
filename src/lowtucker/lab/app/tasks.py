"""Tasks of the worker processes: each calls the package and emits events.

Tasks do not depend on the web server.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import lowtucker as lt
from lowtucker.lab.app.advice import fields_to_change, in_fields
from lowtucker.lab.app.limits import Limits
from lowtucker.lab.app.memory import bounded_memory
from lowtucker.lab.app.photo import known_pixels, photo
from lowtucker.lab.app.pictures import difference, finite, holes, standard_errors, volume
from lowtucker.lab.app.problems import (
    least_norm,
    load,
    made_signal,
    make_operator,
    make_solver,
    noisy,
)
from lowtucker.lab.app.settings import (
    SOLVERS,
    Data,
    Figure,
    Phase,
    Picture,
    Recovery,
    Synthetic,
    parsed,
)
from lowtucker.metrics import relative_error
from lowtucker.run import Progress

__all__ = ["Emit", "run"]

NumPyArray = np.ndarray[Any, Any]
Emit = Callable[[str, dict[str, Any]], None]
COLUMNS = ("epoch", "passes", "seconds", "residual", "error")
# Seconds between events of a run: points of the curves; pictures, plus seconds per entry
POINTS, PICTURES, PER_ENTRY = 0.05, 0.15, 1e-6


def run(job: Mapping[str, Any], emit: Emit) -> None:
    """Run a job: ``job`` holds the settings of the page and the paths of the files."""
    limits = Limits(**job["limits"])
    setting = parsed(job["values"], limits, job.get("upload"))
    with _warnings_emitted(emit):
        if isinstance(setting, Synthetic):
            _synthetic(setting, emit)
        elif isinstance(setting, Picture):
            _picture(setting, emit)
        elif isinstance(setting, Data):
            _data(setting, Path(job["path"]), Path(job["folder"]), limits, emit)
        elif isinstance(setting, Phase):
            _phase(setting, emit)
        else:
            _figure(setting, emit)


@contextmanager
def _warnings_emitted(emit: Emit) -> Iterator[None]:
    """Emit every warning once as a notice."""
    seen = set[str]()

    def show(message: Warning | str, *_: Any) -> None:
        if str(message) not in seen:
            seen.add(str(message))
            emit("notice", {"text": str(message)})

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _synthetic(setting: Synthetic, emit: Emit) -> None:
    X_true = made_signal(setting)
    A = make_operator(setting)
    y, noise_std = noisy(A.forward(X_true), setting)
    full = X_true.full()
    _emit_problem(setting, full, _before(A, y, full), emit)
    for name in setting.solvers:
        solve = partial(lt.recover, A, y, setting.rank, solver=make_solver(name, setting),
                        noise_std=noise_std)  # fmt: skip
        _recovered(setting, name, solve, X_true, full, emit)


def _picture(setting: Picture, emit: Emit) -> None:
    X_true = photo()
    known = known_pixels(setting.missing, setting.scratches, setting.seed)
    known = np.repeat(known[:, :, None], X_true.shape[2], axis=2)
    _emit_problem(setting, X_true, _holes(X_true, known), emit)
    solve = partial(lt.complete, np.where(known, X_true, np.nan))
    _recovered(setting, "auto", solve, X_true, X_true, emit)


def _data(setting: Data, path: Path, folder: Path, limits: Limits, emit: Emit) -> None:
    from lowtucker.lab.app.report import DataReport

    single = setting.operator == "gaussian"
    with bounded_memory(path.name, limits.array_bytes):
        pixels = load(path, setting.reader, setting.name, setting.crop, limits.array_bytes)
    if pixels.dtype.kind == "c" or not np.isfinite(pixels).all():
        raise ValueError(
            "This part holds complex numbers, NaN or infinity; expected real numbers. Choose "
            "another part; `lowtucker complete` fills missing entries."
        )
    if not pixels.any():
        raise ValueError("This part is zero everywhere: nothing to recover. Choose another part.")
    X_true = pixels.astype(np.float32 if single else np.float64)
    A = make_operator(setting, np.float32 if single else np.float64)
    y = A.forward(X_true)
    _emit_problem(setting, pixels, _before(A, y, pixels), emit)
    (name,) = setting.solvers
    best = None
    if setting.rank is not None:
        best = float(relative_error(lt.hooi(pixels, setting.rank, warn=False), pixels))
    solve = partial(lt.recover, A, y, setting.rank, solver=make_solver(name, setting))
    result = _recovered(setting, name, solve, X_true, pixels, emit, best)
    result.save(folder / "result.npz")
    emit("file", {"name": "result.npz"})
    report = DataReport.of(setting, pixels)
    lines = report.summary(result)
    emit("summary", {"lines": {k: v for k, v in lines.items() if k not in ("ended", "advice")}})
    report.write(folder, result)
    emit("file", {"name": "report.html"})


def _before(A: Any, y: Any, full: NumPyArray) -> dict[str, Any]:
    """What a user has without low rank: the holes, or the least-norm answer and its error."""
    if isinstance(A, lt.EntriesOperator):
        return _holes(full, A.adjoint(np.ones(A.m)) > 0)
    found = least_norm(A, y)
    return {"what": "least norm", "picture": volume(found, float(full.min()), float(full.max())),
            "error": finite(relative_error(found, full))}  # fmt: skip


def _holes(full: NumPyArray, known: NumPyArray) -> dict[str, Any]:
    """The known entries, and the relative error if the others are taken as zero."""
    shown = holes(full, known, float(full.min()), float(full.max()))
    error = relative_error(np.where(known, full, 0.0), full)
    return {"what": "holes", "picture": shown, "error": finite(error)}


def _emit_problem(setting: Recovery, full: NumPyArray, before: dict[str, Any], emit: Emit) -> None:
    low, high = float(full.min()), float(full.max())
    emit("problem", {**setting.facts(), "truth": volume(full, low, high), "before": before,
                     "solvers": [SOLVERS[name] for name in setting.solvers]})  # fmt: skip


def _recovered(
    setting: Recovery,
    name: str,
    solve: Callable[..., lt.Result],
    X_true: Any,
    full: NumPyArray,
    emit: Emit,
    best: float | None = None,
) -> lt.Result:
    """Recover; emit curves and pictures during the run, and the result at the end."""
    watch = _Watch(SOLVERS[name], X_true, full, emit)
    result = solve(
        X_true=X_true, max_epochs=setting.max_epochs, max_seconds=setting.max_seconds,
        seed=setting.seed, callbacks=[watch],
    )  # fmt: skip
    columns: dict[str, Any] = {"error": [math.nan] * result.history.rows} | dict(result.history)
    history = {name: [finite(v) for v in columns[name]] for name in COLUMNS}
    content = {
        "solver": SOLVERS[name],
        "history": history,
        "status": result.status.name,
        "success": bool(result.success),
        "headline": result.headline,
        "advice": in_fields(setting, result.advice_in(partial(fields_to_change, setting))),
        "epochs": result.epochs,
        "described": result.solver,
        "best": best,  # error of the best approximation of the rank, for data not of low rank
        **{key: finite(getattr(result, key)) for key in ("passes", "seconds", "residual", "error")},
    }
    emit("result", content | watch.pictures(result.X))
    emit("bars", {"solver": SOLVERS[name]} | standard_errors(result))
    return result


class _Watch:
    """Callback that emits points and pictures, at a limited rate."""

    def __init__(self, solver: str, X_true: Any, full: NumPyArray, emit: Emit) -> None:
        self.solver, self.X_true, self.full, self.emit = solver, X_true, full, emit
        self.low, self.high = float(full.min()), float(full.max())
        self.points: list[list[float | None]] = []
        self.best = math.inf
        self.outside = 0.0  # seconds in this callback, not in the solver
        self.begin = self.sent = self.drawn = time.perf_counter()
        emit("start", {"solver": solver})

    def __call__(self, progress: Progress) -> None:
        """Record the epoch; emit events at a limited rate."""
        now = time.perf_counter()
        numbers = (
            progress.epoch, progress.passes, now - self.begin - self.outside, progress.residual,
            relative_error(progress.state.X, self.X_true),
        )  # fmt: skip
        self.points.append([finite(v) for v in numbers])
        if now - self.sent > POINTS:
            self.sent = now
            self.emit("points", {"solver": self.solver, "points": self.points})
            self.points = []
        better = progress.residual < self.best
        if better and now - self.drawn > PICTURES + PER_ENTRY * self.full.size:
            self.best = progress.residual  # iterates after a restart are shown once they are better
            self.emit("picture", {"solver": self.solver} | self.pictures(progress.state.X))
            self.drawn = time.perf_counter()
        self.outside += time.perf_counter() - now

    def pictures(self, X: Any) -> dict[str, Any]:
        """Return the recovered tensor on the scale of the true one, and the difference."""
        found = X.full()
        return {
            "recovered": volume(found, self.low, self.high),
            "difference": difference(found, self.full),
        }


def _phase(setting: Phase, emit: Emit) -> None:
    from lowtucker.theory import phase_transition

    cells = setting.cells()
    emit("problem", {**setting.facts(), "total": len(cells)})
    for rank, ratio, m in cells:
        found = phase_transition(
            setting.operator, setting.shape, rank, measurements=[m], trials=setting.trials,
            solver=setting.solver, seed=setting.seed,
        )  # fmt: skip
        emit("cell", {"rank": list(rank), "ratio": ratio, "m": m, "rate": float(found.rate[0]),
                      "recovered": int(found.recovered[0]), "trials": setting.trials,
                      "median_error": finite(found.error[0])})  # fmt: skip


def _figure(setting: Figure, emit: Emit) -> None:
    from lowtucker.lab.experiments.figures import Paper
    from lowtucker.simulation.runner import Job

    figure = Paper().figures()[setting.name]
    experiment: Any = figure.experiments[0]
    cells = list(experiment.cells())
    if hasattr(experiment, "clip"):
        _check_memory(4 * experiment.m * experiment.clip.pixels.size)
    trials = experiment.trials(setting.trials)
    content = {"figure": setting.name, "title": figure.title, "caption": figure.caption()}
    emit("problem", {**content, "columns": list(figure.columns), "total": len(cells)})
    for cell in cells:
        columns = Job(experiment, cell, setting.seed, 0, trials)()
        rows = figure.rows({cell: columns})
        emit("rows", {"rows": [[finite(v) if isinstance(v, float) else v for v in row]
                               for row in rows]})  # fmt: skip
        if setting.name == "fig6":
            _emit_frames(experiment, columns, emit)


def _check_memory(need: int) -> None:
    """Raise MemoryError if the paper's large matrix does not fit."""
    from lowtucker._array.memory import available_memory

    if 1.3 * need > (free := available_memory()):
        raise MemoryError(f"the matrix takes {need / 1e9:.1f} GB, {free / 1e9:.1f} are free")


def _emit_frames(experiment: Any, columns: Any, emit: Emit) -> None:
    """Emit the frames of the clip, original and recovered by each algorithm."""
    clip = experiment.clip.pixels
    tensors = {name: X for (name, _), X in zip(experiment.runs, columns["X"][0], strict=True)}
    found = {name: volume(X, 0.0, 1.0) for name, X in tensors.items()}
    emit("frames", {"truth": volume(clip, 0.0, 1.0), "found": found})

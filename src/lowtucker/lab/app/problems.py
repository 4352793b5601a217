"""Build the objects of a setting, and Python code that builds the same.

Each function that builds an object is next to the one that writes its code; a test runs the code.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

import lowtucker as lt
from lowtucker.lab.app.photo import code_of_photo
from lowtucker.lab.app.settings import SOLVERS, Data, Figure, Phase, Picture, Recovery, Synthetic
from lowtucker.lab.video import load_video

__all__ = [
    "code", "cropped", "least_norm", "load", "made_signal", "make_operator", "make_solver", "noisy",
]  # fmt: skip

# Passes of the least-norm answer: enough for two digits of well-conditioned measurements
PASSES = 30

NumPyArray = np.ndarray[Any, Any]


def made_signal(setting: Synthetic) -> lt.TuckerTensor:
    """Return the tensor to recover."""
    from lowtucker.lab.experiments.flame import synthetic_clip

    if setting.signal == "flame":
        return synthetic_clip(setting.shape, setting.rank)  # type: ignore[arg-type]
    return lt.random_tucker(setting.shape, setting.rank, seed=setting.seed)


def _signal_code(setting: Synthetic) -> str:
    if setting.signal == "flame":
        return "X_true = synthetic_clip(shape, rank)  # a flickering flame, truncated to this rank"
    return f"X_true = lt.random_tucker(shape, rank, seed={setting.seed})"


def make_operator(setting: Recovery, dtype: Any = np.float64) -> lt.MeasurementOperator:
    """Return the measurement operator."""
    shape, m, seed = setting.shape, setting.m, setting.seed
    if setting.operator == "gaussian":
        return lt.gaussian(shape, m, seed=seed, dtype=dtype)
    if setting.operator == "dct":
        return lt.subsampled_transform(shape, m, seed=seed)
    rng = np.random.default_rng(seed)
    if setting.operator == "rank-one":
        return lt.rank_one([rng.standard_normal((m, n)) for n in shape])
    places = rng.choice(math.prod(shape), m, replace=False)
    return lt.entries(shape, np.stack(np.unravel_index(places, shape), axis=1))


def least_norm(A: lt.MeasurementOperator, y: NumPyArray) -> NumPyArray:
    """Return the smallest tensor with these measurements: the answer without low rank.

    To two digits, by LSMR: up to 30 passes over A.
    """
    from scipy.sparse.linalg import lsmr

    with np.errstate(over="ignore"):  # it compares float32 with 1e100
        found = lsmr(lt.to_scipy(A), y, atol=1e-3, btol=1e-3, maxiter=PASSES)[0]
    return np.asarray(found, dtype=np.float64).reshape(A.shape)


def _operator_code(setting: Recovery, dtype: str = "") -> list[str]:
    seed = setting.seed
    if setting.operator == "gaussian":
        return [f"A = lt.gaussian(shape, m, seed={seed}{dtype})"]
    if setting.operator == "dct":
        return [f"A = lt.subsampled_transform(shape, m, seed={seed})"]
    rng = f"rng = np.random.default_rng({seed})"
    if setting.operator == "rank-one":
        return [rng, "A = lt.rank_one([rng.standard_normal((m, n)) for n in shape])"]
    return [
        rng,
        "places = rng.choice(np.prod(shape), m, replace=False)",
        "A = lt.entries(shape, np.stack(np.unravel_index(places, shape), axis=1))",
    ]


def noisy(y: NumPyArray, setting: Synthetic) -> tuple[NumPyArray, float | None]:
    """Add noise to measurements; return them and its standard deviation."""
    if not setting.noise:
        return y, None
    std = setting.noise * float(np.sqrt(np.mean(y**2)))
    return y + std * np.random.default_rng(setting.seed + 1).standard_normal(setting.m), std


def _noise_code(setting: Synthetic) -> list[str]:
    if not setting.noise:
        return ["noise_std = None"]
    return [
        f"noise_std = {setting.noise:g} * float(np.sqrt(np.mean(y**2)))",
        f"y = y + noise_std * np.random.default_rng({setting.seed + 1}).standard_normal(m)",
    ]


def make_solver(name: str, setting: Recovery) -> Any:
    """Return the solver with its settings."""
    step: Any = "auto" if setting.step is None else setting.step
    if name == "tiht":
        return lt.TIHT(step=step)
    return lt.StoTIHT(block_size=setting.block_size, step=step) if name == "stotiht" else "auto"


def _solver_code(name: str, setting: Recovery) -> str:
    step = "" if setting.step is None else f"step={setting.step!r}"
    if name == "tiht":
        return f"lt.TIHT({step})"
    block = "" if setting.block_size is None else f"block_size={setting.block_size}"
    given = ", ".join(part for part in (block, step) if part)
    return f"lt.StoTIHT({given})" if name == "stotiht" else '"auto"'


def load(path: Path, reader: str, name: str | None, crop: Any, max_bytes: int) -> NumPyArray:
    """Read a part of a file: a clip in [0, 1], or a tensor in its own units."""
    if reader == "video":
        spans = dict(zip(("rows", "columns", "frames"), crop, strict=True))
        return load_video(path, name=name, max_bytes=max_bytes, **spans)
    array = lt.io.load_array(path, name, max_bytes=max_bytes)
    if array.dtype.kind == "c":
        raise ValueError(
            f"{name or path} holds complex numbers; expected real ones; choose another array, or "
            "save its np.abs"
        )
    return cropped(array, crop).astype(np.float64)


def cropped(array: NumPyArray, crop: Any) -> NumPyArray:
    """Return a part of an array; first and last are counted from 1."""
    return array[tuple(slice(first - 1, last) for first, last in crop)]


def _load_code(setting: Data) -> str:
    name = "" if setting.name is None else f", name={setting.name!r}"
    file = setting.original or setting.file
    part = ", ".join(f"{first - 1}:{last}" for first, last in setting.crop)
    if setting.example is not None:
        return f"X_true = lt.datasets.flame({setting.example}).values[{part}]"
    if setting.reader == "video":
        rows, columns, frames = setting.crop
        return (
            f"X_true = load_video({file!r}{name}, rows={rows}, columns={columns}, frames={frames})"
        )
    return f"X_true = lt.io.load_array({file!r}{name})[{part}].astype(float)"


def code(setting: Synthetic | Picture | Data | Phase | Figure) -> str:
    """Return Python code that computes the same as a run of the setting.

    Examples
    --------
    >>> from lowtucker.lab.app.limits import Limits
    >>> from lowtucker.lab.app.settings import parsed
    >>> print(code(parsed({"tab": "phase", "preset": "fig3"}, Limits())).splitlines()[0])
    from lowtucker.lab.experiments.figures import Paper
    """
    if isinstance(setting, Synthetic):
        return _synthetic_code(setting)
    if isinstance(setting, Picture):
        return _picture_code(setting)
    if isinstance(setting, Data):
        return _data_code(setting)
    return _phase_code(setting) if isinstance(setting, Phase) else _figure_code(setting)


def _synthetic_code(setting: Synthetic) -> str:
    body = [
        f"shape, rank, m = {setting.shape}, {setting.rank}, {setting.m}"
        f"  # {setting.facts()['ratio']:.3g} measurements per degree of freedom",
        _signal_code(setting),
        *_operator_code(setting),
        "y = A.forward(X_true)",
        *_noise_code(setting),
        "",
        "results = {}",
        "for name, solver in {",
        *(f'    "{SOLVERS[s]}": {_solver_code(s, setting)},' for s in setting.solvers),
        "}.items():",
        "    results[name] = lt.recover(",
        "        A, y, rank, solver=solver, X_true=X_true, noise_std=noise_std,",
        f"        max_epochs={setting.max_epochs}, max_seconds={setting.max_seconds:g}, "
        f"seed={setting.seed},",
        "    )",
        "    print(name, results[name].error, results[name].advice)",
    ]
    flame = ["from lowtucker.lab.experiments.flame import synthetic_clip"]
    return _text(body, flame if setting.signal == "flame" else [])


def _picture_code(setting: Picture) -> str:
    body = [
        *code_of_photo(setting.missing, setting.scratches, setting.seed),
        "result = lt.complete(",
        f"    values, X_true=X_true, max_epochs={setting.max_epochs}, "
        f"max_seconds={setting.max_seconds:g}, seed={setting.seed},",
        ")",
        "print(result.error, result.advice)",
    ]
    return _text(body, [])


def _data_code(setting: Data) -> str:
    single = setting.operator == "gaussian"
    body = [
        _load_code(setting),
        *(['X_true = X_true.astype("float32")'] if single else []),
        f"shape, rank, m = {setting.shape}, {setting.rank}, {setting.m}",
        *_operator_code(setting, ', dtype="float32"'),
        "y = A.forward(X_true)",
        "result = lt.recover(",
        f"    A, y, rank, solver={_solver_code(setting.solvers[0], setting)}, X_true=X_true,",
        f"    max_epochs={setting.max_epochs}, max_seconds={setting.max_seconds:g}, "
        f"seed={setting.seed},",
        ")",
        "print(result.error, result.advice)",
        'result.save("result.npz", overwrite=True)',
    ]
    reads_video = setting.example is None and setting.reader == "video"
    return _text(body, ["from lowtucker.lab.video import load_video"] if reads_video else [])


def _phase_code(setting: Phase) -> str:
    most = " if m <= np.prod(shape)" if setting.operator in ("entries", "dct") else ""
    body = [
        f"shape, ratios = {setting.shape}, {list(setting.ratios)}",
        "rates = {}",
        f"for rank in {list(setting.ranks)}:",
        "    dof = lt.degrees_of_freedom(shape, rank)",
        f"    for m in [m for m in (max(1, round(ratio * dof)) for ratio in ratios){most}]:",
        "        found = lt.theory.phase_transition(",
        f'            "{setting.operator}", shape, rank, measurements=[m],'
        f' trials={setting.trials}, solver="{setting.solver}",',
        f"            seed={setting.seed},",
        "        )",
        "        rates[rank, m] = found.rate[0]",
        "        print(rank, m, m / dof, found.rate[0])",
    ]
    return _text(body, [])


def _figure_code(setting: Figure) -> str:
    return "\n".join([
        "from lowtucker.lab.experiments.figures import Paper",
        "from lowtucker.simulation.runner import Job",
        "",
        f'figure = Paper().figures()["{setting.name}"]',
        "experiment = figure.experiment",
        f"trials = experiment.trials({setting.trials})",
        "results = {",
        f"    cell: Job(experiment, cell, seed={setting.seed}, first=0, count=trials)()",
        "    for cell in experiment.cells()",
        "}",
        "table = figure.table(results)  # a list of dicts; figure.draw(table, results) plots it",
        "print(*table, sep=chr(10))",
        "",
    ])  # fmt: skip


def _text(body: list[str], more: list[str]) -> str:
    numpy = ["import numpy as np", ""] if any("np." in line for line in body) else []
    return "\n".join([*numpy, "import lowtucker as lt", *more, "", *body, ""])

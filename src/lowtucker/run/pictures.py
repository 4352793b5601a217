"""Pictures of a result: its run, entries with error bars, a slice with its standard error."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from lowtucker._array import as_array, as_integer, is_complex, to_numpy
from lowtucker.tensor.iterate import Iterate, checked_indices, picked
from lowtucker.tensor.rank import spectra
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.uncertainty.bars import as_level

if TYPE_CHECKING:
    from lowtucker.run.result import Result

__all__ = [
    "bars_line",
    "described_bars",
    "draw_entries",
    "draw_run",
    "draw_slice",
    "kind_of_bars",
    "slice_indices",
]

NumPyArray = np.ndarray[Any, Any]
# Texts below an axis; more of them would overlap
TICKS = 24
# Letters in a line of the title above one of two panels
LETTERS = 44
# Intervals along a mode that are drawn one by one; more of them are a band
BARS = 30


def kind_of_bars(result: Result, method: str = "auto") -> str:
    """Return "conformal", "model", or "presumed": a model that the verdict does not support."""
    if result._method(method) == "conformal":
        return "conformal"
    return "model" if result._unsupported() is None else "presumed"


def described_bars(result: Result, method: str = "auto") -> str:
    """Which error bars these are, and what they presume where the verdict does not support it."""
    return {
        "conformal": "conformal, from held-out entries",
        "model": "by the linear model",
        "presumed": f"presuming rank {result.rank}: the verdict is {result._unsupported()}",
    }[kind_of_bars(result, method)]


def bars_line(result: Result) -> str:
    """Size of the error bars, where it is known already; "" otherwise.

    The mean squared standard error of all entries is that of X over their number, so the error
    estimate has it; but not with Huber's loss, whose error bars are by the sandwich covariance.
    """
    if result.X.batch_shape:
        return ""
    if kind_of_bars(result) == "conformal":
        return f"result.interval(indices), {described_bars(result)}"
    known = result.error_estimate
    if result.uncertainty is None or known is None or result.weights is not None:
        return ""
    size = float(result.X.norm()) / math.sqrt(math.prod(result.X.shape))
    return (
        f"standard error {known * size:.2g} of entries of size {size:.2g} (root mean squares), "
        f"{described_bars(result)}"
    )


def draw_run(result: Result, *, bars: bool = False) -> Any:
    """Draw the residual, the error where it is known, and the spectra; return the figure.

    With ``bars``, the first slice and its standard error below.
    """
    from lowtucker._plotting import new_figure

    figure, panels = new_figure(2 if bars else 1, 2)
    rows = np.reshape(panels, (-1, 2))
    _draw_run_on(rows[0, 0], rows[0, 1], result)
    if bars:
        name = _draw_slice_on(rows[1, 0], rows[1, 1], result, None, None, "auto")
        rows[1, 1].set_title(f"{rows[1, 1].get_title()},\n{name}", fontsize="medium")
    return figure


def _draw_run_on(left: Any, right: Any, result: Result) -> None:
    history = result.history
    for name in ("residual", "error"):
        if name in history:
            values = history[name]
            middle = values if values.ndim == 1 else np.median(values, axis=1)
            label = f"relative {name}" + (" (median)" if values.ndim > 1 else "")
            left.semilogy(history.epoch, np.maximum(middle, 1e-17), label=label)
    left.set_xlabel("epoch")
    left.set_ylabel("relative to ||y||, ||X||" if "error" in history else "residual")
    left.xaxis.get_major_locator().set_params(integer=True)
    left.legend()
    phases = list(dict.fromkeys(history["phase"].tolist()))
    title = " then ".join(phases) if len(phases) < 4 else f"{len(phases)} fits; last: {phases[-1]}"
    left.set_title(fill(title, LETTERS), fontsize="medium")
    X = result.X.take([0]).single() if result.X.batch_shape else result.X
    spectra(X if isinstance(X, TuckerTensor) else X.full()).plot(right)
    which = "first problem" if result.X.batch_shape else "recovered tensor"
    right.set_title(which, fontsize="medium")


def draw_entries(
    result: Result, indices: Any, level: float, method: Any, X_true: Any, labels: Any
) -> Any:
    """Draw entries with their intervals; return the figure."""
    from lowtucker._plotting import new_figure

    _check_single(result, "plot_entries")
    level, index = as_level(level), checked_indices(indices, result.X.shape)
    if not len(index):
        raise ValueError("indices must have at least one row, got none. Try [[0, 0, 0]].")
    places = _Places(index, labels, _names_of_modes(result))
    truth = None if X_true is None else _entries_of(X_true, index, result.X.shape)
    name = described_bars(result, method)
    middle = to_numpy(result.X.entries(index))
    low, high = (to_numpy(end) for end in result.interval(index, level, method=method))
    parts: list[tuple[str, Any]] = [("entry", np.real)]
    if is_complex(middle):
        parts = [("real part", np.real), ("imaginary part", np.imag)]
    width = min(max(6.4, 0.3 * len(index)), 9.0)
    figure, panels = new_figure(len(parts), 1, width=width, height=0.4 + 3.2 * len(parts))
    for panel, (part, of) in zip(np.atleast_1d(panels), parts, strict=True):
        places.draw(panel, of(middle), of(low), of(high), None if truth is None else of(truth))
        panel.set_ylabel(part)
    figure.suptitle(fill(f"{100 * level:g} % intervals, {name}", 84), fontsize="medium")
    return figure


class _Places:
    """Where entries stand in a picture: along a mode, or one after the other."""

    def __init__(self, index: NumPyArray, labels: Any, names: Sequence[str]) -> None:
        varying = [k for k in range(index.shape[1]) if np.ptp(index[:, k])]
        self.fibre = len(varying) == 1
        self.index, self.texts = index, None
        self.x: NumPyArray = index[:, varying[0]] if self.fibre else np.arange(len(index))
        self.name = f"index in {names[varying[0]]}" if self.fibre else ""
        if labels is not None:
            self._label(labels)
        elif not self.fibre:
            self.texts = [_written(row) for row in index]

    def _label(self, labels: Any) -> None:
        """Take texts to write below entries, or numbers to draw them at."""
        listed = np.iterable(labels) and not isinstance(labels, str | bytes)
        given = np.array(list(labels) if listed else None, dtype=object)
        if given.shape != (len(self.index),):
            raise ValueError(
                f"labels must have one text or number for each of the {len(self.index)} rows of "
                f"indices, got {labels!r:.80}."
            )
        if self.fibre and all(isinstance(label, numbers.Real) for label in given):
            self.x, self.name = given.astype(float), ""
        else:
            self.texts = [str(label) for label in given]

    def draw(
        self,
        panel: Any,
        middle: NumPyArray,
        low: NumPyArray,
        high: NumPyArray,
        truth: NumPyArray | None,
    ) -> None:
        """Draw estimates, their intervals and the truth on axes."""
        order = np.argsort(self.x, kind="stable")
        x, middle, low, high = (values[order] for values in (self.x, middle, low, high))
        known = np.isfinite(low) & np.isfinite(high)
        low, high = (np.where(known, end, np.nan) for end in (low, high))
        if self.fibre and len(x) > BARS:
            panel.fill_between(x, low, high, alpha=0.3, linewidth=0, label="interval")
            panel.plot(x, middle, label="estimate", linewidth=1.2)
        else:
            panel.errorbar(
                x, middle, np.stack([middle - low, high - middle]), fmt="o-" if self.fibre else "o",
                markersize=4, capsize=3, linewidth=0.6, elinewidth=1.4, label="estimate, interval",
            )  # fmt: skip
        if not known.all():
            label = "not determined: no interval"
            panel.plot(x[~known], middle[~known], "x", color="tab:red", ms=9, zorder=4, label=label)
        if truth is not None:
            panel.plot(x, truth[order], ".", color="black", markersize=5, zorder=3, label="truth")
        self._tick(panel, x, order)
        panel.legend(fontsize="small")

    def _tick(self, panel: Any, x: NumPyArray, order: NumPyArray) -> None:
        panel.set_xlabel(self.name)
        if self.texts is None:
            if np.array_equal(x, np.round(x)):
                panel.xaxis.get_major_locator().set_params(integer=True)
            return
        every = -(-len(x) // TICKS)
        long = sum(len(text) for text in self.texts[::every]) > 60
        panel.set_xticks(
            x[::every],
            [self.texts[k] for k in order[::every]],
            rotation=90 if long else 0,
            fontsize="small",
        )


def draw_slice(result: Result, modes: Any, at: Any, method: Any) -> Any:
    """Draw a slice of the tensor and its standard error beside it; return the figure."""
    from lowtucker._plotting import new_figure

    _check_single(result, "plot_slice")
    size = tuple(result.X.shape[k] for k in slice_indices(result.X.shape, modes, at)[1])
    tall = 3.6 if len(size) == 1 else min(3.6 * size[0] / size[1] + 1.0, 8.0)
    figure, (left, right) = new_figure(1, 2, height=tall)
    name = _draw_slice_on(left, right, result, modes, at, method)
    figure.suptitle(fill(f"Standard errors, {name}", 100), fontsize="medium")
    return figure


def _draw_slice_on(left: Any, right: Any, result: Result, modes: Any, at: Any, method: Any) -> str:
    """Draw a slice and its standard error on axes; return which error bars these are."""
    index, modes, fixed = slice_indices(result.X.shape, modes, at)
    name = described_bars(result, method)
    size = tuple(result.X.shape[k] for k in modes)
    entries = to_numpy(result.X.entries(index)).reshape(size)
    error = to_numpy(result.standard_error(index, method=method)).reshape(size)
    values = np.abs(entries) if is_complex(entries) else entries
    where = f"X{_written(fixed)}"
    left.set_title(f"|{where}|" if is_complex(entries) else where, fontsize="medium")
    known = bool(np.isfinite(error).all())
    right.set_title(
        "standard error" if known else "standard error (grey: not determined)", fontsize="medium"
    )
    names = [_names_of_modes(result)[k] for k in modes]
    _draw_values(left, values, names, "viridis", None)
    _draw_values(right, np.ma.masked_invalid(error), names, "magma", 0.0)
    return name


def _draw_values(
    panel: Any, values: Any, names: Sequence[str], colours: str, low: float | None
) -> None:
    """Draw an image with its colour bar, or a vector as a curve."""
    if values.ndim == 1:
        panel.plot(values, ".-")
        panel.set_ylim(bottom=low)
        panel.set_xlabel(f"index in {names[0]}")
        return
    panel.set_facecolor("lightgrey")  # seen where nothing is drawn
    image = panel.imshow(values, cmap=colours, vmin=low, interpolation="nearest")
    if np.ma.count(values):
        panel.figure.colorbar(image, ax=panel)
    panel.set_ylabel(names[0])
    panel.set_xlabel(names[1])


def _names_of_modes(result: Result) -> Sequence[str]:
    """Names by the labels of the data, where they had some."""
    order = len(result.X.shape)
    return [f"mode {k}" for k in range(order)] if result.labels is None else result.labels.names


def slice_indices(
    shape: tuple[int, ...], modes: Any = None, at: Any = None
) -> tuple[NumPyArray, tuple[int, ...], list[Any]]:
    """Indices of the entries of a slice, row by row; its modes; and the slice as ":" and numbers.

    Examples
    --------
    >>> slice_indices((2, 2, 5), at=4)[0].tolist()
    [[0, 0, 4], [0, 1, 4], [1, 0, 4], [1, 1, 4]]
    """
    chosen = _as_modes(shape, modes)
    others = [k for k in range(len(shape)) if k not in chosen]
    if at is None:
        at = (0,) * len(others)
    places = tuple(to_numpy(as_array(at, "at")).ravel().tolist())
    if len(places) != len(others):
        raise ValueError(
            f"at must have an index for each of the other modes, {others}, got {at!r:.80}."
        )
    fixed: list[Any] = [":"] * len(shape)
    for k, place in zip(others, places, strict=True):
        fixed[k] = as_integer(place, "at", 0, shape[k] - 1)
    inside = np.indices([shape[k] for k in chosen]).reshape(len(chosen), -1)
    index = np.empty((inside.shape[1], len(shape)), dtype=np.int64)
    index[:, others] = [fixed[k] for k in others]
    index[:, list(chosen)] = inside.T
    return index, chosen, fixed


def _as_modes(shape: tuple[int, ...], modes: Any) -> tuple[int, ...]:
    """One or two different modes; by default the first ones."""
    if modes is None:
        return tuple(range(len(shape)))[:2]
    given = to_numpy(as_array(modes, "modes")).ravel().tolist()
    chosen = tuple(as_integer(k, "modes", 0, len(shape) - 1) for k in given)
    if len(chosen) not in (1, 2) or len(set(chosen)) < len(chosen):
        raise ValueError(
            f"modes must be one mode or two different ones, of 0 to {len(shape) - 1}, got "
            f"{modes!r:.80}. Try modes=(0, 1)."
        )
    return chosen


def _written(row: Any) -> str:
    return f"[{', '.join(map(str, row))}]"


def _entries_of(X: Any, index: NumPyArray, shape: tuple[int, ...]) -> NumPyArray:
    """Entries of the true tensor, which is not formed where it is an iterate."""
    X = X if isinstance(X, Iterate) else as_array(X, "X_true")
    if tuple(X.shape) != shape:
        raise ValueError(f"X_true must have shape {shape}, that of X, got {tuple(X.shape)}.")
    return to_numpy(X.entries(index) if isinstance(X, Iterate) else picked(X, index))


def _check_single(result: Result, name: str) -> None:
    if result.X.batch_shape:
        raise ValueError(
            f"{name} draws one problem, got a batch of {result.X.batch_shape[0]}. Try "
            f"result.trial(k).{name}(...)."
        )

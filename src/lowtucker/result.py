"""What a run found, and how to look at it, keep it and go on from it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowtucker._array import to_numpy
from lowtucker._array.errors import FileFormatError
from lowtucker._version import __version__
from lowtucker.run import History
from lowtucker.solvers import State
from lowtucker.status import Status
from lowtucker.tensor.rank import spectra
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Result", "load"]

FORMAT = "lowtucker result 2"
# Bytes of the text in a result file, beside its arrays; some hundred for an epoch
LONGEST_META = 1 << 24


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """Outcome of a recovery.

    Attributes
    ----------
    X : TuckerTensor
        The tensor; a stack of them for a stack of trials. Where a run did not converge, the best
        of its iterates.
    residual : float, or an array of them
        ||y - A(X)|| / ||y|| of that tensor (weighted where there are weights).
    success : bool, or an array of them
        The verdict, which never uses the truth: the residual is as small as it should be, and
        there are enough measurements. ``recover`` also looks whether these see all of X, where
        the operator has a tangent design; :func:`lowtucker.solve` takes it for granted.
    status : Status, or an array of them
        Why it ended; ``str(result.status)`` is advice.
    history : History
        Columns epoch, passes, seconds, residual, cost, phase; error where X_true was given.
    rank : tuple of int
    epochs : int, or an array of them
    passes : float
        Readings of all the rows by the solver, the start included.
    seconds : float
        Time of the iterations alone.
    solver : str
        The solver with its settings.
    m, degrees_of_freedom : int
    error : float, array or None
        ||X - X_true|| / ||X_true||, where X_true was given.
    error_estimate : float or None
        Estimate of the relative error, by the Gauss-Newton covariance, if the residual is noise.
        None where nothing gave one: a run that did not succeed and whose solver has no tangent
        design at hand, or a design that is too large.
    state : State or None
        Hand it back as ``start`` to go on. None for a stack whose trials ended at different times.
    weights : array or None
        Weights of the last fit, where a loss other than the squared one chose them: those near
        zero belong to outliers.
    held_out : float or None
        Relative error on samples that a fit had not seen, where :func:`lowtucker.complete` held
        some out.
    notes : tuple of str
        What else was found: a rank, and why; a rank that is larger than it need be.
    borderline : tuple of str
        Decisions behind the rank, the status or the verdict that slightly different numbers (other
        noise, another CPU's rounding) could have turned the other way. Empty where all were clear.
    """

    X: TuckerTensor
    residual: Any
    success: Any
    status: Any
    history: History
    rank: tuple[int, ...]
    epochs: Any
    passes: float
    seconds: float
    solver: str
    m: int
    degrees_of_freedom: int
    error: Any = None
    error_estimate: float | None = None
    state: State | None = None
    weights: Any = None
    held_out: float | None = None
    notes: tuple[str, ...] = ()
    borderline: tuple[str, ...] = ()

    @property
    def advice(self) -> str:
        """What the status means, and what this run suggests to try; one line a kind of ending."""
        kinds = dict.fromkeys(np.atleast_1d(self.status).tolist())
        lines = [f"{status} {self._hint(status)}".strip() for status in kinds]
        return "\n".join([*lines, *self.notes, *(f"Borderline: {one}" for one in self.borderline)])

    def _hint(self, status: Status) -> str:
        """Read the likely cause off the numbers."""
        if status is Status.MAX_EPOCHS and "restart" in str(self.history["phase"][-1]):
            return (
                "The last epochs tried other starts, none of them better: the rank may not fit, "
                'there may be noise (noise_std=) or outliers (loss="huber"), or too few '
                "measurements."
            )
        if status is not Status.STALLED or self.notes:  # the notes say more
            return ""
        residual = float(np.max(np.atleast_1d(self.residual)[np.atleast_1d(self.status) == status]))
        ratio = self.m / self.degrees_of_freedom
        # random numbers are fitted about as well as that
        if residual > 0.5 * max(0.0, 1 - 1 / ratio) ** 0.5:
            return (
                "Little was fitted: try a larger rank, check shape=, order= and "
                "lowtucker.check_adjoint(A), or see whether the noise is as large as the signal."
            )
        if residual < 1e-12:
            return "The residual is at rounding error: raise tol."
        if ratio < 3:
            return (
                f"With {ratio:.1f} measurements per degree of freedom the rank may be too large: "
                "try more measurements, a smaller rank, or another seed."
            )
        return "Try noise_std= where there is noise, a larger rank, or another seed."

    def trial(self, k: int) -> Result:
        """One trial of a stack, as a result of its own."""
        X = self.X.trial(k)
        rows = self.history["running"][:, k]
        columns = {
            name: (values[:, k] if values.ndim > 1 else values)[rows]
            for name, values in self.history.items()
            if name != "running"
        }
        columns["epoch"] = np.arange(int(rows.sum()))
        return replace(
            self,
            X=X,
            residual=float(self.residual[k]),
            error=None if self.error is None else float(self.error[k]),
            success=bool(self.success[k]),
            status=self.status[k],
            epochs=int(self.epochs[k]),
            history=History.of(columns),
            state=None,
        )

    def plot(self) -> Any:
        """Draw the residual, the error where it is known, and the spectra; returns the figure.

        Examples
        --------
        >>> import lowtucker as lt
        >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
        >>> y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0))
        >>> figure = lt.recover(A, y, rank=(1, 2, 2)).plot()  # figure.savefig("recovery.png")
        """
        from lowtucker._plotting import new_figure

        figure, (left, right) = new_figure(1, 2)
        for name in ("residual", "error"):
            if name in self.history:
                values = self.history[name]
                middle = values if values.ndim == 1 else np.median(values, axis=1)
                label = f"relative {name}" + (" (median)" if values.ndim > 1 else "")
                left.semilogy(self.history.epoch, np.maximum(middle, 1e-17), label=label)
        left.set_xlabel("epoch")
        left.set_ylabel("relative to ||y||, ||X||" if "error" in self.history else "residual")
        left.xaxis.get_major_locator().set_params(integer=True)
        left.legend()
        phases = list(dict.fromkeys(self.history["phase"].tolist()))
        left.set_title(" then ".join(phases if len(phases) < 4 else [phases[0], "...", phases[-1]]))
        X = self.X
        if X.batch_shape:
            X = TuckerTensor.trusted(X.core[0, ...], [U[0, ...] for U in X.factors])
        spectra(X).plot(right)
        right.set_title("first trial" if self.X.batch_shape else "recovered tensor")
        return figure

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write everything to an .npz file that :func:`lowtucker.load` reads; no pickle."""
        import json

        from lowtucker.io import save_arrays  # zipfile and others: 10 ms that import can save

        arrays = {"core": self.X.core, **_numbered("factor", self.X.factors)}
        arrays["residual"] = np.asarray(self.residual)
        if self.error is not None:
            arrays["error"] = np.asarray(self.error)
        if self.weights is not None:
            arrays["weights"] = self.weights
        columns = {f"history_{name}": self.history[name] for name in self.history}
        columns.pop("history_phase")
        meta = {
            "format": FORMAT,
            "version": __version__,
            "status": [s.name for s in np.atleast_1d(self.status)],
            "stack": bool(self.X.batch_shape),
            "phase": [str(p) for p in self.history["phase"]],
            "epochs": np.asarray(self.epochs).tolist(),
            "held_out": self.held_out,
            **{name: getattr(self, name) for name in _PLAIN},
        }
        if self.state is not None:
            state = self.state
            meta["state"] = {
                "t": state.t, "seed": state.seed, "trials": state.trials, "passes": state.passes,
                "phase": state.phase, "attempt": state.attempt, "trace": state.trace,
                "ends": state.ends, "stuck": state.stuck,
            }  # fmt: skip
            arrays |= {f"state_{name}": getattr(state, name) for name in _STATE_ARRAYS}
            if state.carry is not None:
                arrays["state_carry"] = state.carry
            arrays |= {"state_core": state.X.core, **_numbered("state_factor", state.X.factors)}
        packed = {name: to_numpy(array) for name, array in (arrays | columns).items()}
        packed["meta"] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
        save_arrays(path, packed, overwrite=overwrite)

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self._lines())
        return "\n".join(
            [self._headline(), *(f"  {name:{width}}  {text}" for name, text in self._lines())]
        )

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in self._lines()
        )
        return (
            f"<div><strong>{escape(self._headline())}</strong>"
            f"<table>{rows}</table>{_sparkline(self.history)}</div>"
        )

    def _headline(self) -> str:
        kept = np.atleast_1d(self.success)
        if kept.size > 1 or self.X.batch_shape:
            return f"Result: {int(kept.sum())} of {kept.size} trials recovered"
        return "Result: recovered" if kept[0] else "Result: not recovered"

    def _lines(self) -> list[tuple[str, str]]:
        ratio = self.m / self.degrees_of_freedom
        lines = [
            ("tensor", repr(self.X).removeprefix("TuckerTensor ").removeprefix("of ")),
            ("measured", f"{self.m} measurements, {ratio:.1f} per degree of freedom"),
            ("solver", self.solver),
            (
                "effort",
                f"{_span(self.epochs)} epochs, {self.passes:.1f} passes, {self.seconds:.3g} s",
            ),
            ("residual", _span(self.residual, ".1e")),
        ]
        if self.error is not None:
            lines.append(("error", _span(self.error, ".1e")))
        if self.error_estimate is not None:
            proviso = "" if self.success else ", if what is left were noise"
            lines.append(("estimate", f"{self.error_estimate:.1e} of the error{proviso}"))
        if self.held_out is not None:
            lines.append(("held out", f"{self.held_out:.1e}, the error on samples not fitted"))
        notes = [("note", note) for note in self.notes]
        notes += [("borderline", remark) for remark in self.borderline]
        return [*lines, *self._status_lines(), *notes]

    def _status_lines(self) -> list[tuple[str, str]]:
        names, counts = np.unique([s.name for s in np.atleast_1d(self.status)], return_counts=True)
        total = int(counts.sum())
        return [
            (
                "status",
                f"{name}{f' ({n} of {total})' if total > 1 else ''}: "
                f"{Status[name]} {self._hint(Status[name])}".strip(),
            )
            for name, n in zip(names, counts, strict=True)
        ]


_PLAIN = {
    "rank": list, "passes": float | int, "seconds": float | int, "solver": str, "m": int,
    "degrees_of_freedom": int, "error_estimate": float | int | None, "notes": list,
    "borderline": list,
}  # fmt: skip
_STATE_ARRAYS = ("diverged", "damping", "level")


def load(path: str | os.PathLike[str]) -> Result:
    """Read a result that :meth:`Result.save` wrote.

    Raises
    ------
    FileFormatError
        The file is not a result, or is damaged.
    """
    import json

    from lowtucker.io import describe, load_array

    sizes = {info.name: info.nbytes for info in describe(path)}
    if "meta" not in sizes:
        raise FileFormatError(
            f"{path} is not a lowtucker result: expected a file written by result.save(path). "
            "Try lowtucker.io.load_array for other arrays."
        )
    try:
        if sizes["meta"] > LONGEST_META:
            raise ValueError(f"{sizes['meta']} bytes of text")
        meta = json.loads(load_array(path, "meta").tobytes())
        if meta["format"] != FORMAT:
            raise FileFormatError(
                f"{path} has the format {meta['format']!r}, this version reads {FORMAT!r}. "
                "Upgrade lowtucker."
            )
        return _unpacked(meta, {name: load_array(path, name) for name in set(sizes) - {"meta"}})
    except FileFormatError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(
            f"{path} is a damaged lowtucker result ({error}); save it again."
        ) from error


def _unpacked(meta: dict[str, Any], arrays: dict[str, Any]) -> Result:
    columns = {
        name.removeprefix("history_"): values
        for name, values in arrays.items()
        if name.startswith("history_")
    }
    order = ("epoch", "passes", "seconds", "phase", "residual", "cost", "error", "running")
    columns["phase"] = meta["phase"]
    history = History.of({name: columns[name] for name in order if name in columns})
    statuses = np.array([Status[name] for name in meta["status"]], dtype=object)
    success = np.array([s.success for s in statuses])
    stack, X = meta["stack"], _tucker(arrays, "")
    for name, kind in _PLAIN.items():
        if not isinstance(meta[name], kind):
            raise TypeError(f"{name} is {meta[name]!r:.80}")
    plain: dict[str, Any] = {name: meta[name] for name in _PLAIN}
    plain |= {name: tuple(plain[name]) for name in ("rank", "notes", "borderline")}
    if plain["rank"] != X.rank or (len(statuses),) != (X.batch_shape if stack else (1,)):
        raise ValueError(f"rank {plain['rank']} and {len(statuses)} statuses for {X!r}")
    residual, error = arrays["residual"], arrays.get("error")
    return Result(
        X=X,
        residual=residual if stack else float(residual),
        error=error if stack or error is None else float(error),
        success=success if stack else bool(success[0]),
        status=statuses if stack else statuses[0],
        history=history,
        epochs=np.array(meta["epochs"]) if stack else meta["epochs"],
        state=_state(meta.get("state"), arrays),
        held_out=meta["held_out"],
        weights=arrays.get("weights"),
        **plain,
    )


def _state(meta: dict[str, Any] | None, arrays: dict[str, Any]) -> State | None:
    if meta is None:
        return None
    return State(
        X=_tucker(arrays, "state_"),
        t=meta["t"],
        seed=meta["seed"],
        trials=tuple(meta["trials"]),
        passes=meta["passes"],
        phase=meta["phase"],
        attempt=meta["attempt"],
        trace=tuple(meta["trace"]),
        ends=tuple(meta["ends"]),
        stuck=meta["stuck"],
        carry=arrays.get("state_carry"),
        **{name: arrays[f"state_{name}"] for name in _STATE_ARRAYS},
    )


def _tucker(arrays: dict[str, Any], prefix: str) -> TuckerTensor:
    count = sum(name.startswith(f"{prefix}factor_") for name in arrays)
    return TuckerTensor(
        arrays[f"{prefix}core"], tuple(arrays[f"{prefix}factor_{k}"] for k in range(count))
    )


def _numbered(name: str, parts: Any) -> dict[str, Any]:
    return {f"{name}_{k}": part for k, part in enumerate(parts)}


def _span(values: Any, form: str = "") -> str:
    """One number, or the median and range of a stack's."""
    values = np.atleast_1d(values)
    if values.size == 1:
        return format(values[0], form)
    middle = np.median(values)
    middle = middle if form else int(middle)
    return f"{middle:{form}} (median; {values.min():{form}} to {values.max():{form}})"


def _sparkline(history: History, width: int = 240, height: int = 60) -> str:
    """Residual against epochs as a tiny SVG picture."""
    residual = history["residual"]
    residual = residual if residual.ndim == 1 else np.median(residual, axis=1)
    logs = np.log10(np.clip(np.nan_to_num(residual, nan=1e300), 1e-17, 1e300))
    if len(logs) < 2:
        return ""
    x = np.linspace(2, width - 2, len(logs))
    y = 2 + (height - 4) * (logs.max() - logs) / max(np.ptp(logs), 1e-12)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="residual against epochs">'
        f'<polyline points="{points}" fill="none" stroke="currentColor"/></svg>'
    )

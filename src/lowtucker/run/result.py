"""The outcome of a recovery: to look at, to save, and to resume from."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from lowtucker._array import as_flag, as_integer, as_number, to_numpy
from lowtucker._array.errors import FileFormatError, ModelWarning, warn_caller
from lowtucker._array.random import Seed
from lowtucker._version import __version__
from lowtucker.labels import Data, Labels, TensorForm, as_data
from lowtucker.operators import as_operator
from lowtucker.operators.matrix import Order
from lowtucker.problem import Problem
from lowtucker.run.advice import Words, advised, estimate_text
from lowtucker.run.call import Call
from lowtucker.run.codec import Codec, check_members
from lowtucker.run.history import History, span
from lowtucker.solvers import State
from lowtucker.status import Finding, Status
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.uncertainty.bars import Functional, KeptInformation, Uncertainty, around, as_level
from lowtucker.uncertainty.conformal import Calibration

__all__ = ["Result", "load"]

FORMAT = "lowtucker result 7"
# Bytes of the text in a result file, beside its arrays; some hundred for an epoch
LONGEST_META = 1 << 24
# Findings that go with the status: advice for it, and the reason for it
QUIET = ("hint", "verdict")
Method = Literal["auto", "model", "conformal"]
METHODS = ("auto", "model", "conformal")
RECOVERED = {
    Status.CONVERGED: "recovered",
    Status.NOISE_FLOOR: "recovered up to noise",
    Status.APPROXIMATED: "approximated",
}


@dataclass(frozen=True, eq=False)
class Verdict:
    """What is known of one problem of a batch, beside its tensor; attributes as in a Result."""

    error_estimate: float | None = None
    error_interval: tuple[float, float] | None = None
    findings: tuple[Finding, ...] = ()
    state: State | None = None
    m: int = 0


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """Outcome of a recovery.

    Attributes
    ----------
    X : TuckerTensor
        The tensor; a batch of them for a batch of problems. Where a run did not converge, the best
        of its iterates.
    residual : float, or an array of them
        ||y - A(X)|| / ||y|| of that tensor (weighted where there are weights).
    status : Status, or an array of them
        Why it ended; ``str(result.status)`` says what that means.
    history : History
        Columns epoch, passes, seconds, residual, cost, phase; error where X_true was given.
    rank : tuple of int or None
        None for an iterate without one, such as a ShrunkTensor.
    epochs : int, or an array of them
    passes : float
        Passes over all the rows, by what operators read in the whole call: starts, steps,
        residuals, fits to part of the measurements, diagnosis. For rows in a file, the bytes that
        were read over its size. A batch counts as one problem, that which reads the most.
    seconds : float
        Time of the iterations alone.
    solver : str
        The solver with its settings.
    m, degrees_of_freedom : int
    error : float, array or None
        ||X - X_true|| / ||X_true||, where X_true was given.
    error_estimate : float, array or None
        Estimate of the relative error, by the Gauss-Newton covariance, if the residual is noise.
        None where there is none: a run that did not succeed and whose solver has no tangent
        design at hand, or a design that is too large; NaN for such a problem of a batch.
    error_interval : tuple of float or None
        Where the relative error is to be expected in 95 of 100 such results; None where there is
        no estimate.
    state : State or None
        Give it as ``start`` to resume. None for a batch whose problems ended at different times;
        ``result.trial(k).state`` is that of one.
    weights : array or None
        Weights of the last fit, where a loss other than the squared one chose them: those near
        zero belong to outliers.
    held_out : float or None
        Relative error on held-out measurements. With a rank, of the first fit of
        :func:`lowtucker.complete`; without one, of fits by the same ways to nine tenths of the
        data. The tensor returned is fitted to all.
    findings : tuple of Finding
        What diagnosis found out: each with a kind, a sentence, and the numbers behind it. The last
        one that decides a status decides this one's.
    call : Call or None
        The call that it came from: its function and its arguments as code.
    each : tuple of Verdict
        What is known of every problem of a batch, for :meth:`trial`.
    uncertainty : Uncertainty or None
        What :meth:`standard_error` and the other error bars are computed from; None for tensors
        that are not in Tucker format. It keeps the measurements in memory, not in files.
    calibration : Calibration or None
        Held-out residuals of :func:`lowtucker.complete`, for conformal intervals.
    labels : Labels or None
        Names of the modes and labels of their slices, where the data had some.
    data : Data or None
        What :meth:`filled` keeps of the data that were given: not in files, nor in pickles.
    """

    X: Any
    residual: Any
    status: Any
    history: History
    rank: Any
    epochs: Any
    passes: float
    seconds: float
    solver: str
    m: int
    degrees_of_freedom: int
    error: Any = None
    error_estimate: Any = None
    error_interval: tuple[float, float] | None = None
    state: State | None = None
    weights: Any = None
    held_out: float | None = None
    findings: tuple[Finding, ...] = ()
    call: Call | None = None
    each: tuple[Verdict, ...] = ()
    uncertainty: Uncertainty | None = None
    calibration: Calibration | None = None
    labels: Labels | None = None
    data: Data | None = None

    @property
    def success(self) -> Any:
        """The verdict, a bool or an array of them, which never uses the truth.

        The residual is as small as it should be, and there are enough measurements. ``recover``
        also checks whether these determine X, where the operator has a tangent design;
        :func:`lowtucker.solve` takes it for granted.
        """
        if isinstance(self.status, Status):
            return self.status.success
        return np.array([status.success for status in self.status])

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences of the findings that say more than the status; not the borderline ones."""
        return tuple(f.text for f in self.findings if not f.borderline and f.kind not in QUIET)

    @property
    def borderline(self) -> tuple[str, ...]:
        """Decisions that slightly different numbers could have turned the other way.

        Other noise, or another CPU's rounding. Empty where all were clear.
        """
        return tuple(f.text for f in self.findings if f.borderline)

    @property
    def advice(self) -> str:
        """The most likely cause first, what to do, and the next call to try, as code.

        At most three sentences; for a success, what the error estimate means. One line a kind of
        ending, where a batch of problems has several.
        """
        return self.advice_in()

    def advice_in(self, words: Words | None = None) -> str:
        """Return the advice; ``words`` maps arguments that change to the text of the next call."""
        kinds = dict.fromkeys(np.atleast_1d(self.status).tolist())
        return "\n".join(advised(self, status, words) for status in kinds)

    @property
    def headline(self) -> str:
        """The verdict in a few words."""
        kept = np.atleast_1d(self.success)
        if kept.size > 1 or self.X.batch_shape:
            return f"{int(kept.sum())} of {kept.size} problems recovered"
        return RECOVERED.get(self.status) or f"not recovered: {self.status.words}"

    def found(self, *findings: Finding) -> Result:
        """Result with more findings; the last one that decides a status decides it."""
        if not findings:
            return self
        decisions = [f.status for f in findings if f.status is not None]
        decided = decisions[-1] if decisions else self.status
        return replace(self, findings=(*self.findings, *findings), status=decided)

    def trial(self, k: int) -> Result:
        """Result of one problem of a batch; ``passes`` are those of all until it ended."""
        k = as_integer(k, "k", 0, len(self.status) - 1)
        X = self.X.take([k]).single()
        rows = self.history["running"][:, k]
        columns = {
            name: (values[:, k] if values.ndim > 1 else values)[rows]
            for name, values in self.history.items()
            if name != "running"
        }
        columns["epoch"] = np.arange(int(rows.sum()))
        known = self.each[k] if self.each else Verdict()
        return replace(
            self,
            X=X,
            residual=float(self.residual[k]),
            error=None if self.error is None else float(self.error[k]),
            status=self.status[k],
            epochs=int(self.epochs[k]),
            history=History.of(columns),
            error_estimate=known.error_estimate,
            error_interval=known.error_interval,
            findings=known.findings,
            m=known.m or self.m,
            passes=float(columns["passes"][-1]),
            seconds=float(columns["seconds"][-1]),
            state=known.state,
            each=(),
            uncertainty=None if self.uncertainty is None else self.uncertainty.trial(k),
        )

    def standard_error(self, indices: Any, *, method: Method = "auto") -> Any:
        """Standard errors of some entries, shape (k,); (batch, k) for a batch.

        Parameters
        ----------
        indices : integer array, shape (k, d)
            One row of 0-based indices per entry.
        method : "auto", "model" or "conformal"
            As in :meth:`interval`. The conformal one is half the width of an interval that covers
            68.3 %.

        Notes
        -----
        The model needs one pass over the rows when it is first asked for, and dof^2 numbers, up to
        5000 degrees of freedom; then dof^2 flops an entry. Beyond that, and for operators without
        rows, up to 64 entries take 20 to 100 passes each, and more of them 64 such solves together.

        Examples
        --------
        >>> import lowtucker as lt, numpy as np
        >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
        >>> noise = np.random.default_rng(0).standard_normal(120)
        >>> y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)) + 0.01 * noise
        >>> result = lt.recover(A, y, rank=(1, 2, 2))
        >>> result.standard_error([[0, 0, 0], [4, 4, 5]]).round(6)
        array([0.000435, 0.00035 ])
        """
        if self._method(method) == "conformal":
            return self._calibrated().standard_error(indices)
        return self._modelled().standard_error(indices)

    def interval(
        self, indices: Any, level: float = 0.95, *, method: Method = "auto"
    ) -> tuple[Any, Any]:
        """Lower and upper ends of intervals for some entries, each of shape (k,).

        Parameters
        ----------
        indices : integer array, shape (k, d)
            One row of 0-based indices per entry.
        level : float
            Probability with which each interval, by itself, covers its entry.
        method : "auto", "model" or "conformal"
            "model" presumes that X has low rank and that the residual is noise: the Gauss-Newton
            covariance and quantiles of the t distribution. With Huber's loss it is the sandwich
            covariance. "conformal" presumes no more than that the entries to predict are missing
            as the held-out ones of :func:`lowtucker.complete` are; these calibrate it. "auto" is
            conformal where there is a calibration, unless the verdict is that X is recovered up to
            noise, and that was no close decision; otherwise the model. Intervals of the model are
            for entries of X, conformal ones for values as they would be observed, noise included.

        Returns
        -------
        low, high : arrays
            Of complex entries, corners of rectangles: each part is inside with that probability.

        Warns
        -----
        ModelWarning
            The verdict does not support the model that the intervals presume.
        """
        if self._method(method) == "conformal":
            width = self._calibrated().half_width(indices, as_level(level))
            return around(to_numpy(self.X.entries(indices)), width)
        return self._modelled().interval(indices, level)

    def functional(self, W: Any, level: float = 0.95) -> Functional:
        """Return <X, W> with its standard error, interval and p-value, by the model.

        Parameters
        ----------
        W : array, TuckerTensor or another iterate, SciPy sparse matrix, or (indices, values)
            A tensor of the shape of X. Values of a pair stand at the rows of ``indices``, (k, d).
        level : float
            Of the interval.

        Examples
        --------
        >>> import lowtucker as lt, numpy as np
        >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
        >>> noise = np.random.default_rng(0).standard_normal(120)
        >>> y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)) + 0.01 * noise
        >>> mean = lt.recover(A, y, rank=(1, 2, 2)).functional(np.full((5, 5, 6), 1 / 150))
        >>> print(f"{mean.estimate:.5f} +- {mean.standard_error:.5f}")
        0.00130 +- 0.00001
        >>> mean.p_value < 0.001
        True
        """
        return self._modelled().functional(W, level)

    def sample(self, n: int, seed: Seed = 0) -> TuckerTensor:
        """Draw n tensors of the rank of X from the approximate posterior, as a batch.

        X is moved along its tangent space by normal coordinates of the Gauss-Newton covariance,
        whose scale has the uncertainty of sigma. For what :meth:`functional` does not answer: a
        maximum, a ratio, a picture.
        """
        return self._modelled().sample(n, seed)

    def with_measurements(
        self, A: Any, y: Any, *, weights: Any = None, order: Order = "C", noise_std: Any = None
    ) -> Result:
        """Result with measurements to compute error bars from: files and pickles keep none.

        Parameters
        ----------
        A, y, weights, order, noise_std
            As in :func:`lowtucker.recover`.
        """
        problem = Problem(as_operator(A, self.X.shape, order=order), y, weights)
        if not isinstance(self.X, TuckerTensor):
            self._modelled()
        if problem.batch_shape != self.X.batch_shape:
            raise ValueError(
                f"The measurements have batch shape {problem.batch_shape}, the result "
                f"{self.X.batch_shape}. Give those that it was recovered from."
            )
        from lowtucker.run.scope import Scope  # which knows results

        if noise_std is not None:
            as_number(noise_std, "noise_std", 0.0)
        with Scope(problem) as scope:
            uncertainty = scope.uncertainty(scope.into(self, "result"), noise_std)
        return replace(self, uncertainty=uncertainty)

    def filled(self, values: Any = None, *, standard_error: bool = True) -> Any:
        """Return the completed data in the form in which they were given.

        Known entries are kept (of duplicate samples, the mean), and holes are filled from X: a
        NumPy array, a torch tensor, a DataArray with its coordinates, attributes and names, lazy
        where it was backed by Dask; or a pandas or polars table with a row for every combination
        of labels, sorted, and the columns ``standard_error`` and ``observed``. Results of other
        functions than :func:`lowtucker.complete` give the whole of X, as a DataArray where A was
        one.

        Parameters
        ----------
        values : array, DataArray or DataFrame, optional
            The data that were given to ``complete``; needed for a result from a file or a pickle,
            which keep none.
        standard_error : bool
            Whether a table has the column ``standard_error``, by :meth:`standard_error`: of the
            missing entries, NaN (null in polars) for observed ones. It is left out where there are
            no error bars, or where the verdict does not support the model that they presume. By
            the model it costs dof^2 flops an entry.

        Notes
        -----
        Forms the full tensor, but for arrays of Dask with a rank, whose chunks are computed from
        the factors. ValueError where it does not fit into memory: ``result.X.entries(indices)``
        gives some entries.

        Examples
        --------
        >>> import numpy as np, lowtucker as lt
        >>> array = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
        >>> array[0, 0] = array[2, 1] = np.nan
        >>> lt.complete(array, rank=1, held_out=0).filled().round(3)
        array([[ 1.,  2.,  4.],
               [ 2.,  4.,  8.],
               [ 3.,  6., 12.]])
        """
        as_flag(standard_error, "standard_error")
        bars = self._bars if standard_error else _no_bars
        return self._form(values).filled(self.X, bars)

    def _form(self, values: Any) -> Data:
        """What was given, or the same again."""
        if values is None and self.data is not None:
            return self.data
        if values is None:
            if self.call is None or self.call.function != "complete":
                return TensorForm(self.X.shape)
            raise ValueError(
                "This result comes from a file or a pickle, which do not keep the data. Give them "
                "again: result.filled(values). All of X is result.X.full()."
            )
        columns: dict[str, Any] = {}
        if self.labels is not None and self.call is not None:
            known = {"index": list(self.labels.names), "value": self.labels.value}
            columns = {name: x for name, x in known.items() if self.call.has(name)}
        data = as_data(values, **columns)
        if data.shape != self.X.shape:
            raise ValueError(
                f"values has the shape {data.shape}, and X {self.X.shape}. Give the data that were "
                "completed."
            )
        if self.labels is not None:
            self.labels.check_same(data.labels)
        data.samples()
        return data

    def _bars(self, indices: Any) -> Any:
        """Standard errors of some entries; None where there are none that the verdict supports."""
        by_model = self._method("auto") == "model"
        if by_model and (self.uncertainty is None or self._unsupported() is not None):
            return None
        try:
            return to_numpy(self.standard_error(indices))
        except ValueError:  # too few held-out samples, or no measurements
            return None

    def to_xarray(self) -> Any:
        """Return an xarray Dataset of the core and the factors, with the coordinates of the data.

        The factor of the mode "station" is ``factor_station``, with the dimensions "station" and
        "rank_station"; the core has the dimensions "rank_station" and so on. Modes without names
        are called "mode_0", "mode_1", ...; a batch of problems has a leading dimension "problem".
        Tensors of other formats than Tucker, such as a ShrunkTensor, are given in full, as
        ``tensor``; ``result.X.tucker()`` compresses a ShrunkTensor. Attributes are those of the
        data, with ``status``, ``residual``, and where they are known ``rank``, ``error_estimate``
        and ``held_out``: all of them can be written to netCDF.

        Examples
        --------
        >>> import numpy as np, lowtucker as lt
        >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
        >>> y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0))
        >>> dataset = lt.recover(A, y, rank=(1, 2, 2)).to_xarray()
        >>> dict(dataset["factor_mode_2"].sizes), dataset.attrs["status"]
        ({'mode_2': 6, 'rank_mode_2': 2}, 'CONVERGED')
        """
        from lowtucker.labels.xarray import factors_of

        names = [status.name for status in np.atleast_1d(self.status)]
        known = {
            "status": names if self.X.batch_shape else names[0],
            "residual": self.residual,
            "rank": None if self.rank is None else np.asarray(self.rank),
            "error_estimate": self.error_estimate,
            "held_out": self.held_out,
        }
        return factors_of(self.X, self.labels, {k: v for k, v in known.items() if v is not None})

    def _method(self, method: str) -> str:
        """Which error bars to use."""
        if not isinstance(method, str) or method not in METHODS:
            kind = ValueError if isinstance(method, str) else TypeError
            raise kind(f"method must be one of {', '.join(METHODS)}, got {method!r:.80}.")
        if method != "auto":
            return method
        sure = self.status is Status.NOISE_FLOOR and not self.borderline
        return "model" if sure or self.calibration is None else "conformal"

    def _unsupported(self) -> str | None:
        """Name a status that does not support the model, if there is one."""
        for status in np.atleast_1d(self.status).tolist():
            if status not in (Status.CONVERGED, Status.NOISE_FLOOR, Status.ERROR_REACHED):
                return str(status.name)
        return None

    def _calibrated(self) -> Calibration:
        if self.calibration is None:
            raise ValueError(
                "There is no calibration: conformal intervals need held-out samples of "
                "lowtucker.complete at entries that the fit has not seen, and there are none. Try "
                'lowtucker.complete(values), or method="model".'
            )
        return self.calibration

    def _modelled(self) -> Uncertainty:
        if self.uncertainty is None:
            also = ' Try method="conformal".' if self.calibration is not None else ""
            raise ValueError(
                f"Error bars by the model need a TuckerTensor from recover, complete or solve; X "
                f"is a {type(self.X).__name__}.{also} A call with a rank gives one."
            )
        reason = self._unsupported()
        if reason is not None:
            also = (
                'Conformal intervals presume less: method="conformal".'
                if self.calibration is not None
                else "result.advice says what to try."
            )
            warn_caller(
                f"These error bars presume that X has rank {self.rank} exactly and that the "
                f"residual is noise; the verdict is {reason}. {also}",
                ModelWarning,
            )
        return self.uncertainty

    def plot(self) -> Any:
        """Draw the residual, the error where it is known, and the spectra; returns the figure.

        Examples
        --------
        >>> import lowtucker as lt
        >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
        >>> y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0))
        >>> figure = lt.recover(A, y, rank=(1, 2, 2)).plot()  # figure.savefig("recovery.png")
        """
        from lowtucker.run.pictures import draw_run

        return draw_run(self)

    def plot_entries(
        self,
        indices: Any,
        level: float = 0.95,
        *,
        method: Method = "auto",
        X_true: Any = None,
        labels: Any = None,
    ) -> Any:
        """Draw some entries with their intervals; returns the figure, whose title says which.

        Parameters
        ----------
        indices : integer array, shape (k, d)
            One row of 0-based indices per entry. Where they vary in one mode only, such as those of
            a pixel's spectrum, the intervals are drawn as a band along it.
        level, method
            As in :meth:`interval`, which says what it costs.
        X_true : array or TuckerTensor, optional
            The true tensor, drawn as points.
        labels : sequence of str or of numbers, optional
            A text for each entry; along a mode also its place on the axis, such as a wavelength.

        Examples
        --------
        >>> import lowtucker as lt, numpy as np
        >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
        >>> noise = np.random.default_rng(0).standard_normal(120)
        >>> y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)) + 0.01 * noise
        >>> result = lt.recover(A, y, rank=(1, 2, 2))
        >>> figure = result.plot_entries([[2, 3, k] for k in range(6)])
        """
        from lowtucker.run.pictures import draw_entries

        return draw_entries(self, indices, level, method, X_true, labels)

    def plot_slice(self, modes: Any = None, at: Any = None, *, method: Method = "auto") -> Any:
        """Draw a slice of X and its standard error beside it; returns the figure.

        Of complex entries, the absolute values. Grey entries are not determined by the
        measurements.

        Parameters
        ----------
        modes : pair of int, or int, optional
            Modes along rows and columns, by default the first two; for one, curves.
        at : int or sequence of int, optional
            Index in each of the other modes, in their order; by default 0.
        method
            As in :meth:`standard_error`, which says what it costs for the entries of the slice.

        Examples
        --------
        >>> import lowtucker as lt, numpy as np
        >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
        >>> noise = np.random.default_rng(0).standard_normal(120)
        >>> y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)) + 0.01 * noise
        >>> figure = lt.recover(A, y, rank=(1, 2, 2)).plot_slice(at=3)  # X[:, :, 3]
        """
        from lowtucker.run.pictures import draw_slice

        return draw_slice(self, modes, at, method)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write everything to an .npz file that :func:`lowtucker.load` reads; no pickle.

        The measurements are not written. The covariance of error bars is, where it was computed and
        X has up to 1000 degrees of freedom.
        """
        import json

        from lowtucker.io import save_arrays  # zipfile and others: 10 ms that import can save

        arrays: dict[str, Any] = {}
        content = {name: getattr(self, name) for name in FIELDS}
        if self.uncertainty is not None:
            content["uncertainty"] = self.uncertainty.kept()
        if self.labels is not None:
            content["labels"] = self.labels.kept()
        text = {
            "format": FORMAT,
            "version": __version__,
            "result": {name: CODEC.encode(x, arrays, name) for name, x in content.items()},
        }
        packed = {name: to_numpy(array) for name, array in arrays.items()}
        packed["meta"] = np.frombuffer(json.dumps(text).encode(), dtype=np.uint8)
        save_arrays(path, packed, overwrite=overwrite)

    def __repr__(self) -> str:
        return self.text_in()

    def text_in(self, words: Words | None = None) -> str:
        """Return the summary that ``print`` shows; ``words`` as in :meth:`advice_in`."""
        lines = self._lines(words)
        width = max(len(name) for name, _ in lines)
        return "\n".join(
            [f"Result: {self.headline}", *(f"  {name:{width}}  {text}" for name, text in lines)]
        )

    def _repr_html_(self) -> str:
        from lowtucker.run.notebook import html_of

        return html_of(self)

    def _lines(self, words: Words | None = None) -> list[tuple[str, str]]:
        ratio = self.m / self.degrees_of_freedom
        effective = "" if self.rank is not None else "effective "
        lines = [
            ("tensor", repr(self.X).removeprefix(f"{type(self.X).__name__} ").removeprefix("of ")),
            ("measured", f"{self.m} measurements, {ratio:.1f} per {effective}degree of freedom"),
            ("solver", self.solver),
            (
                "effort",
                f"{span(self.epochs)} epoch{'s' * bool(np.any(self.epochs != 1))}, "
                f"{self.passes:.1f} passes, {self.seconds:.3g} s",
            ),
            ("residual", span(self.residual, ".1e")),
        ]
        if self.error is not None:
            lines.append(("error", span(self.error, ".1e")))
        if self.each and self.error_estimate is not None:
            known = self.error_estimate[np.isfinite(self.error_estimate)]
            lines += [("estimate", f"relative error {span(known, '.1e')}")] if known.size else []
        elif self.error_estimate is not None:
            proviso = "" if self.success else ", if the residual were noise"
            lines.append(("estimate", f"relative error {estimate_text(self)}{proviso}"))
        if self.held_out is not None:
            lines.append(("held out", f"{self.held_out:.1e}, the error on held-out samples"))
        status_lines = self._status_lines(words)
        said = " ".join(text for _, text in status_lines)
        notes = [("note", note) for note in self.notes if note not in said]
        notes += [("borderline", remark) for remark in self.borderline]
        return [*lines, *notes, *status_lines]

    def _status_lines(self, words: Words | None) -> list[tuple[str, str]]:
        """Each kind of ending with its advice."""
        names, counts = np.unique([s.name for s in np.atleast_1d(self.status)], return_counts=True)
        total, lines = int(counts.sum()), []
        for name, n in zip(names, counts, strict=True):
            lines.append(("status", f"{name}{f' ({n} of {total})' if total > 1 else ''}"))
            lines.append(("advice", advised(self, Status[name], words)))
        return lines


CODEC = Codec(Call, Verdict, KeptInformation, Calibration)
FIELDS = tuple(name for name in Result.__dataclass_fields__ if name != "data")
# Types that a file must have, beside arrays
PLAIN: dict[str, Any] = {
    "history": History, "passes": float | int, "seconds": float | int, "solver": str, "m": int,
    "degrees_of_freedom": int, "error_estimate": float | int | np.ndarray | None, "each": tuple,
    "error_interval": tuple | None, "state": State | None,
    "held_out": float | int | None, "findings": tuple, "call": Call | None,
    "uncertainty": tuple | None, "calibration": Calibration | None,
    "labels": dict | None,
}  # fmt: skip


def load(path: str | os.PathLike[str]) -> Result:
    """Read a result that :meth:`Result.save` wrote.

    Raises
    ------
    FileFormatError
        The file is not a result, or is damaged.
    """
    import json

    from lowtucker.io import describe
    from lowtucker.io.arrays import load_members

    infos = {info.name: info for info in describe(path)}
    if infos.get("meta") is None:
        raise FileFormatError(
            f"{path} is not a lowtucker result: expected a file written by result.save(path). "
            "Try lowtucker.io.load_array for other arrays."
        )
    try:
        about = infos.pop("meta")
        if about.nbytes > LONGEST_META:
            raise ValueError(f"{about.nbytes} bytes of text")
        meta = json.loads(load_members(path, [about])["meta"].tobytes())
        if meta["format"].split()[:2] == ["lowtucker", "stream"]:
            raise FileFormatError(f"{path} is a stream. Try lowtucker.Online.load(path).")
        if meta["format"] != FORMAT:
            raise FileFormatError(
                f"{path} has the format {meta['format']!r}, this version reads {FORMAT!r}. "
                "Upgrade lowtucker."
            )
        check_members(meta["result"], set(infos))
        arrays = load_members(path, list(infos.values()))
        return _unpacked(meta["result"], arrays)
    except FileFormatError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FileFormatError(
            f"{path} is a damaged lowtucker result ({error}); save it again."
        ) from error


def _unpacked(content: dict[str, Any], arrays: dict[str, Any]) -> Result:
    """Result of a file's content, checked as far as its parts must fit each other."""
    made = {name: CODEC.decode(content[name], arrays) for name in FIELDS}
    for name, kind in PLAIN.items():
        if not isinstance(made[name], kind):
            raise TypeError(f"{name} is {made[name]!r:.80}")
    X, count = made["X"].validated(), len(np.atleast_1d(made["status"]))
    if made["state"] is not None:
        made["state"].X.validated()
    if made["rank"] != X.rank or (count,) != (X.batch_shape or (1,)):
        raise ValueError(f"rank {made['rank']} and {count} statuses for {X!r}")
    if made["calibration"] is not None and made["calibration"].shape != X.shape:
        raise ValueError(f"a calibration of shape {made['calibration'].shape} for {X!r}")
    if not all(isinstance(f, Finding) for f in made["findings"]):
        raise TypeError("findings are not findings")
    if made["uncertainty"] is not None:
        made["uncertainty"] = Uncertainty.of_kept(X, made["uncertainty"])
    if made["labels"] is not None:
        made["labels"] = Labels.of_kept(made["labels"], X.shape)
    return Result(**made)


def _no_bars(indices: Any) -> None:
    """Return None: no standard errors."""

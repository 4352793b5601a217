"""Fuzzing of ``recover`` and ``complete``: a documented refusal, or a result that can be trusted.

A case is well formed, or has one flaw. With a flaw the call is refused, by a message that names
the argument, before any work. Without one it gives a tensor of finite numbers, a status, no
warning from NumPy; and if it is CONVERGED, its residual is right when recomputed in
extended precision. LOWTUCKER_FUZZ=20000 tries that many cases; 2000 otherwise.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lowtucker as lt

pytestmark = pytest.mark.slow
EXAMPLES = int(os.environ.get("LOWTUCKER_FUZZ", "2000"))
# Largest powers of ten by which A, y and the weights are multiplied, each by its own: X may be as
# large as the square.
LARGEST = 300
MOST_ENTRIES = 240
SOLVERS = ("auto", "tiht", "stotiht", "rsgd", "rgn", "rcg")
ALLOWED = (lt.RankWarning, lt.UnderdeterminedWarning, lt.SlowOperatorWarning)
DTYPES = ("float64", "float32", "int64", "bool", "complex128")


def fuzz(share: float) -> Any:
    return settings(
        max_examples=max(1, round(share * EXAMPLES)),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@dataclass
class Case:
    """Arguments of a call, and a pattern of the message if it has a flaw."""

    arguments: dict[str, Any]
    flaw: str | None = None
    notes: list[str] = field(default_factory=list)


@st.composite
def shapes(draw):
    shape, room = [], MOST_ENTRIES
    for _ in range(draw(st.integers(1, 6))):
        shape.append(draw(st.integers(1, max(1, min(5, room)))))
        room //= shape[-1]
    return tuple(shape)


def scales(dtype: str) -> Any:
    """Mostly 1; single precision has fewer powers, integers and booleans none."""
    largest = {"float64": LARGEST, "complex128": LARGEST, "float32": 10}.get(dtype, 0)
    extremes = st.sampled_from([-largest, largest])
    return st.one_of(st.just(0), st.just(0), st.integers(-largest, largest), extremes)


def scaled(values, power):
    """Multiply by a power of ten, where what comes of it is finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = (values * 10.0**power).astype(values.dtype)
    return product if np.isfinite(product).all() else values


def numbers(rng, shape, dtype):
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype == "int64":
        return rng.integers(-3, 4, shape)
    values = rng.standard_normal(shape)
    if dtype == "complex128":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


@st.composite
def matrices(draw, rng, m, size, dtype):
    """Rows, some of them not helpful: duplicated, zero, dependent, of very different sizes."""
    matrix = numbers(rng, (m, size), dtype)
    spoilt = draw(st.sampled_from(["", "", "", "copies", "zero rows", "rank", "zero", "sizes"]))
    if spoilt == "copies":
        matrix[m // 2 :] = matrix[0]
    elif spoilt == "zero rows":
        matrix[:: draw(st.integers(1, 3))] = 0
    elif spoilt == "rank" and dtype not in ("bool", "int64"):
        matrix = (numbers(rng, (m, 1), dtype) @ numbers(rng, (1, size), dtype)).astype(dtype)
    elif spoilt == "zero":
        matrix[:] = 0
    elif spoilt == "sizes" and dtype in ("float64", "complex128"):
        matrix *= 10.0 ** rng.integers(-8, 9, (m, 1))
    return matrix, spoilt


def low_rank(rng, shape, dtype):
    """A tensor of rank one, mostly."""
    total: Any = 0
    for _ in range(1 + (rng.random() < 0.3)):
        term: Any = np.ones(())
        for n in shape:
            term = np.multiply.outer(term, numbers(rng, n, dtype))
        total = total + term
    return np.asarray(total)


@st.composite
def options(draw, rng, m, y, dtype):
    """Arguments that are used now and then."""
    made: dict[str, Any] = {"max_epochs": draw(st.integers(1, 4))}
    made["tol"] = draw(st.sampled_from([1e-6, 1e-6, 0, 1e-12, 0.5]))
    made["loss"] = draw(st.sampled_from(["squared", "squared", "squared", "huber"]))
    made["seed"] = draw(st.integers(0, 2**64 - 1))
    if draw(st.integers(0, 3)) == 0:
        single = dtype == "float32"  # what that cannot hold is refused
        weights = rng.random(m) * 10.0 ** draw(scales("float32" if single else "float64"))
        weights[1:][rng.random(m - 1) < 0.2] = 0
        made["weights"] = weights.tolist() if draw(st.booleans()) else weights
    if draw(st.integers(0, 3)) == 0:
        counts = np.asarray(made.get("weights", np.ones(m))) > 0
        least = np.abs(y[counts]).min(initial=np.inf)  # noise as large as y is refused
        made["noise_std"] = float(least) * 1e-3 if np.isfinite(least) else 0.0
    return made


FLAWS = {
    "A nan": r"matrix has NaN",
    "A inf": r"matrix has NaN or infinite",
    "y nan": r"y has NaN or infinite entries, the first at",
    "y inf": r"y has NaN or infinite entries, the first at",
    "y short": r"y must have one entry for each",
    "rank 0": r"rank\[0\] = 0 must be between",
    "rank large": r"rank\[0\] = \d+ must be between",
    "rank long": r"rank must have one entry per mode",
    "rank number": r"rank must (have one entry per mode|be a tuple of integers)",
    "weights": r"weights (must|has)",
    "weights nan": r"weights has NaN or infinite",
    "tol": r"tol must be below 1",
    "shape": r"(matrix has rows|shape must)",
    "loss": r"loss must be",
    "noise": r"noise_std must",
    "als": r"ALS is for sampled entries",
}


def spoil(case: Case, flaw: str, bad: int) -> None:
    """Add a flaw to a well-formed case."""
    call = case.arguments
    m, rank = len(call["y"]), call["rank"]
    case.flaw = FLAWS[flaw]
    what, _, how = flaw.partition(" ")
    value = np.nan if how == "nan" else np.inf
    if flaw in ("A nan", "A inf"):
        call["A"] = call["A"].astype(np.result_type(call["A"], np.float32))
        call["A"].reshape(-1)[bad % call["A"].size] = value
    elif flaw in ("y nan", "y inf"):
        call["y"] = call["y"].astype(np.result_type(call["y"], np.float32))
        call["y"][bad % m] = value
        call.pop("weights", None)  # a weight of zero would be right
    elif flaw == "y short":
        call["y"] = call["y"][:-1] if m > 1 else np.ones(2)
        call.pop("weights", None)
    elif what == "rank":
        first = {"0": 0, "large": call["shape"][0] + 1 + bad}.get(how, 1)
        sound = tuple(rank) if isinstance(rank, tuple) else (1,) * len(call["shape"])
        call["rank"] = (first, *sound[1:])
        if how in ("long", "number"):
            one = 1 if len(call["shape"]) > 2 else 1.5  # vectors and matrices may have a number
            call["rank"] = (*sound, 1) if how == "long" else one
    elif what == "weights":
        weights = np.zeros(m)
        weights[bad % m] = value if how else -1.0
        call["weights"] = weights
    else:
        changes = {
            "tol": {"tol": 1.0 + bad},
            "shape": {"shape": (*call["shape"], 2 + bad)},
            "loss": {"loss": "absolute"},
            "noise": {"noise_std": -1.0},
            "als": {"solver": "als"},
        }
        call.update(changes[flaw])


@st.composite
def cases(draw, solver="auto"):
    """Calls of ``recover``."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape, m = draw(shapes()), draw(st.one_of(st.just(1), st.integers(1, 30), st.integers(40, 120)))
    dtype = draw(st.sampled_from(DTYPES))
    A, spoilt = draw(matrices(rng, m, math.prod(shape), dtype))
    target = low_rank(rng, shape, "float64" if dtype in ("bool", "int64") else dtype)
    y = A @ target.reshape(-1)
    kind = draw(st.sampled_from(["exact", "exact", "exact", "noise", "zero"]))
    if kind == "noise":
        y = numbers(rng, m, y.dtype.name)
    y = np.zeros_like(y) if kind == "zero" else y
    if dtype not in ("bool", "int64"):
        A, y = scaled(A, draw(scales(dtype))), scaled(y, draw(scales(dtype)))
    most = [min(n, 3) for n in shape]
    rank: Any = tuple(draw(st.integers(1, n)) for n in most)
    if solver == "auto" and draw(st.integers(0, 9)) == 0 and math.prod(shape) <= 40:
        rank = "auto"
    call = {"A": A, "y": y, "rank": rank, "shape": shape, "solver": solver}
    case = Case(call | draw(options(rng, m, y, dtype)), None, [dtype, spoilt, kind])
    if draw(st.integers(0, 4)) == 0:
        spoil(case, draw(st.sampled_from(sorted(FLAWS))), draw(st.integers(0, 5)))
    elif spoilt != "zero" and draw(st.integers(0, 9)) == 0:
        case.arguments["A"] = scipy.sparse.csr_array(case.arguments["A"])
    return case


def called(function, case):
    """Result of a call, or None where it was refused as it should be."""
    seen: list[Any] = []
    arguments = case.arguments | {"callbacks": [seen.append]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(**arguments)
        except (ValueError, TypeError) as error:
            result = error
    others = [w for w in caught if not issubclass(w.category, ALLOWED)]
    assert not others, "\n".join(map(str, others))
    if "would not be a number of" in str(result):  # X itself, of scales that are 1e300 apart
        assert not seen
        return None
    if case.flaw is None:
        assert isinstance(result, lt.Result), f"refused without a flaw: {result!r}"
        return result
    assert type(result) in (ValueError, TypeError), f"not refused: {result!r}"
    assert re.match(case.flaw, str(result)), result
    assert not seen, "refused after work"
    return None


def recomputed_residual(A, y, weights, X):
    """Relative residual in extended precision, whose exponents are larger too."""
    wide = np.clongdouble if "c" in np.asarray(y).dtype.kind + X.dtype.kind else np.longdouble
    A = A.toarray() if scipy.sparse.issparse(A) else np.asarray(A)
    A = A.reshape(len(y), -1).astype(np.result_type(A, wide))
    y, x = np.asarray(y).astype(wide), X.reshape(-1).astype(wide)
    w = np.ones(len(y)) if weights is None else np.asarray(weights)
    w = np.sqrt(w.astype(np.longdouble))
    top = np.sqrt(np.sum(np.abs(w * (y - A @ x)) ** 2))
    below = np.sqrt(np.sum(np.abs(w * y) ** 2))
    return float(top / below) if below > 0 else float(top)


def check(result, case):
    """Check what holds for every result."""
    X = result.X.full()
    assert np.isfinite(X).all()
    assert X.shape == tuple(case.arguments.get("shape") or result.X.shape)
    assert isinstance(result.status, lt.Status)
    assert result.success == result.status.success
    diverged = result.status is lt.Status.DIVERGED
    assert diverged or (np.isfinite(result.residual) and result.residual >= 0)
    if result.status is lt.Status.CONVERGED and case.arguments["loss"] == "squared":
        call = case.arguments
        single = call["y"].dtype.name == "float32" or call["A"].dtype.name == "float32"
        recomputed = recomputed_residual(call["A"], call["y"], call.get("weights"), X)
        assert recomputed <= 1.01 * call["tol"] + (1e-4 if single else 1e-11)


@pytest.mark.parametrize("solver", SOLVERS)
def test_recover(solver):
    @fuzz(0.4 if solver == "auto" else 0.08)
    @given(cases(solver))
    def holds(case):
        result = called(lt.recover, case)
        if result is not None:
            check(result, case)

    holds()


@st.composite
def holes(draw, solver="auto"):
    """Calls of ``complete``: tensors with NaN, of which at least one entry is known."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = draw(shapes())
    dtype = draw(st.sampled_from(["float64", "float32", "complex128"]))
    values = scaled(low_rank(rng, shape, dtype).astype(dtype), draw(scales(dtype)))
    if draw(st.integers(0, 9)) == 0:
        values[...] = 0
    lost = rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    lost.reshape(-1)[rng.integers(lost.size)] = False
    values[lost] = np.nan
    rank = tuple(draw(st.integers(1, min(n, 3))) for n in shape)
    call = {
        "values": values,
        "rank": rank,
        "solver": solver,
        "max_epochs": draw(st.integers(1, 4)),
        "tol": draw(st.sampled_from([1e-6, 0.1])),
        "loss": draw(st.sampled_from(["squared", "squared", "huber"])),
        "held_out": draw(st.sampled_from([0.0, 0.1, 0.5])),
    }
    case = Case(call, None, [dtype])
    if draw(st.integers(0, 5)) == 0:
        flaw = draw(st.sampled_from(["values", "rank", "held_out"]))
        if flaw == "values":
            values[...] = np.nan
        call.update(
            {"rank": {"rank": (9,) * len(shape)}, "held_out": {"held_out": 1.0}}.get(flaw, {})
        )
        case.flaw = {"rank": r"rank\[0\] = 9"}.get(flaw, flaw)
    return case


@pytest.mark.parametrize("solver", ["auto", "als"])
def test_complete(solver):
    @fuzz(0.1)
    @given(holes(solver))
    def holds(case):
        result = called(lt.complete, case)
        if result is None:
            return
        X, values = result.X.full(), case.arguments["values"]
        assert np.isfinite(X).all()
        assert X.shape == values.shape
        assert result.status is lt.Status.DIVERGED or np.isfinite(result.residual)
        if result.status is lt.Status.CONVERGED and case.arguments["loss"] == "squared":
            known = ~np.isnan(values)
            recomputed = recomputed_residual(np.eye(known.sum()), values[known], None, X[known])
            slack = 1e-4 if values.dtype == np.float32 else 1e-11
            assert recomputed <= 1.01 * case.arguments["tol"] + slack

    holds()

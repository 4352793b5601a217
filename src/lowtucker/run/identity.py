"""What a checkpoint belongs to: a problem, and how it is solved."""

from __future__ import annotations

import math
import numbers
import os
import re
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from lowtucker._array import Array, as_float, eps, is_array, like, size, to_numpy
from lowtucker._array.random import Stream, generator
from lowtucker.operators.base import MeasurementOperator
from lowtucker.problem import Problem
from lowtucker.run.result import Result
from lowtucker.solvers import State
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.thresholding import Iterate

__all__ = ["Identity", "canonical", "fingerprint"]

# Numbers of a matrix that are hashed
HASHED = 1 << 24
# Words of 8 bytes in a sum of a hash
WORDS = 1 << 12
# Sums that an operator without a hash is known by, at most
SUMS = 1024
# Differences of sums that are rounding, in units of the rounding error of one product; and the
# least, relative to the mean square of the measurements, that counts as a difference in double
# precision. As OpenBLAS computes them for CPUs of 2004, 2008 and 2013, sums of the operators of
# tests/cases.py differ by at most 2e-15 and 4e-7, 0.7 % of what is allowed (test_identity.py)
ROUNDING, LEAST = 100.0, 1e-10


@dataclass(frozen=True)
class Identity:
    """What tells a call from others.

    Attributes
    ----------
    texts : dict of str to str
        Hashes of arrays, and settings, by name.
    sums : array of float64, optional
        Of an operator that is not hashed: random sums of what it measures of a random tensor.
    rounding : float
        Differences of sums that are rounding.
    """

    texts: dict[str, str]
    sums: Any = None
    rounding: float = 0.0

    def differences(self, there: Any) -> list[str]:
        """Names of what differs in another identity, with both; none if they are of one call."""
        names = {**there.texts, **self.texts}
        found = [
            f"{name}: there {there.texts.get(name)}, here {self.texts.get(name)}"
            for name in names
            if there.texts.get(name) != self.texts.get(name)
        ]
        if found or self.sums is None:
            return found
        comparable = np.shape(there.sums) == np.shape(self.sums)
        most = float(np.max(np.abs(self.sums - there.sums))) if comparable else math.inf
        if most <= self.rounding:
            return []
        kind = self.texts["operator"]
        return [
            f"operator: there {kind}, here {kind} too, but what they measure of a test tensor "
            f"differs by {most:.1e} of its mean square, where rounding is {self.rounding:.0e}"
        ]


def fingerprint(problem: Problem, start: Any, X_true: Any, settings: dict[str, Any]) -> Identity:
    """Identify a problem and how it is solved.

    y, weights, start and truth are hashed, bit for bit, and so is a matrix in memory with up to
    2^24 numbers. Any other operator is known by what it measures of one random tensor, up to
    rounding: by each measurement if there are at most 1024 (of all problems of a batch), or else by
    1024 sums of consecutive ones, with random real weights. Cost: one forward.

    Notes
    -----
    Seen: another row, other rows in one another's place, modes of equal size in one another's
    place, a sign, a multiple, and a change of one entry by more than about 1e-10 of its row's norm
    (1e-5 sqrt(N) in single precision, for N entries); times sqrt(m / 1024) where sums are
    compared; rows that are smaller than others in proportion less. Not seen: smaller changes,
    changes that do not change what is measured of that very tensor, and the adjoint.
    """
    hashed = _hash_of_matrix(problem.A)
    texts = {
        "shape": str(problem.shape),
        "measurements": str(problem.m),
        "operator": f"{type(problem.A).__name__} {hashed}".strip(),
        "dtype": str(problem.A.dtype),
        "y": _digest(problem.y),
        "weights": _digest(problem.weights),
        "start": _digest_start(start),
        "X_true": _digest(X_true),
        **{name: canonical(value) for name, value in settings.items()},
    }
    return Identity(texts) if hashed else Identity(texts, *_sums(problem.A))


def canonical(value: Any) -> str:
    """Text of a setting that does not depend on how it is written down.

    Examples
    --------
    >>> canonical([2, np.int64(3)]) == canonical((2, 3.0)) == canonical(np.array([2, 3]))
    True
    >>> canonical(1e-6), canonical("auto")
    ('1e-06', "'auto'")
    """
    if is_array(value) or isinstance(value, np.generic):
        value = to_numpy(value).tolist() if size(np.shape(value)) <= SUMS else _digest(value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        if not isinstance(value, numbers.Integral):
            value = float(value)
            value = int(value) if value.is_integer() else value
        return repr(value)
    if isinstance(value, list | tuple | range):
        return f"({', '.join(map(canonical, value))}{',' * (len(value) == 1)})"
    if is_dataclass(value) and not isinstance(value, type):
        inside = [f"{f.name}={canonical(getattr(value, f.name))}" for f in fields(value) if f.init]
        return f"{type(value).__name__}({', '.join(inside)})"
    return re.sub(r" at 0x\w+", "", repr(value))


def _hash_of_matrix(A: MeasurementOperator) -> str:
    """Hash of a matrix in memory that is not large, with its order; "" for others."""
    matrix: Any = getattr(A, "matrix", None)
    if not is_array(matrix) or size(tuple(matrix.shape)) > HASHED:
        return ""
    return f"{_digest(matrix)} {getattr(A, 'order', '')}".strip()


def _sums(A: MeasurementOperator) -> tuple[Array, float]:
    """Random sums of what is measured of a random tensor, and the differences that are rounding.

    They are relative to the root mean square of all measurements.
    """
    rng = generator(int(Stream.PROBE), Stream.PROBE)
    # no entry is small: another one in its place is seen
    vectors = [rng.choice([-1.0, 1.0], n) * rng.uniform(1, 2, n) for n in A.shape]
    units = [v / np.linalg.norm(v) for v in vectors]
    factors = [like(u[:, None], A.prototype, A.dtype) for u in units]
    core = like(np.ones((1,) * len(A.shape)), A.prototype, A.dtype)
    with np.errstate(all="ignore"):
        measured = to_numpy(A.forward(TuckerTensor.trusted(core, factors)))
    single = eps(measured) > 1e-10
    y = np.ravel(measured).astype(np.complex128 if measured.dtype.kind == "c" else np.float64)
    largest = float(np.max(np.abs(y), initial=0.0))
    if not 0 < largest < math.inf:
        return np.array([largest, 0.0]), 0.0
    y /= largest
    mean = math.sqrt(np.mean(np.abs(y) ** 2))
    weights = rng.choice([-1.0, 1.0], y.size) * rng.uniform(1, 2, y.size)
    length = -(-y.size // SUMS)
    sums = np.add.reduceat(y * weights, np.arange(0, y.size, length)) / (mean * math.sqrt(length))
    rounding = ROUNDING * eps(measured) * math.sqrt(size(A.shape))
    scale = np.array([math.log(largest)])
    parts = [scale, sums.real, *([sums.imag] if sums.dtype.kind == "c" else [])]
    return np.concatenate(parts), rounding if single else max(rounding, LEAST)


def _digest_start(start: Any) -> str:
    """Hash of a tensor to start from, and of where in its run a state is."""
    state = getattr(start, "state", start) if isinstance(start, Result) else start
    X = getattr(start, "X", start)
    told = _digest(X if X is None or isinstance(X, Iterate) else as_float(X, "start"))
    if not isinstance(state, State):
        return told
    return f"{told} of a state after {state.t} steps, phase {state.phase}, seed {state.seed}"


def _digest(x: Any) -> str:
    """Short hash of an array, a tensor, or nothing."""
    import hashlib

    if x is None:
        return "none"
    parts = list(x.parts().values()) if isinstance(x, Iterate) else [x]
    made = hashlib.sha256()
    for part in parts:
        array = np.ascontiguousarray(to_numpy(part))
        made.update(f"{array.dtype} {array.shape}".encode())
        made.update(_condensed(array))
    return made.hexdigest()[:16]


def _condensed(array: Any) -> Any:
    """Bytes of a small array; of a large one sums modulo 2^64 of its words, and what is left.

    With random odd weights: a change of any bit changes them. Reads the array once, at a third of
    the speed of a product by a vector; SHA-256 takes four times as long.
    """
    data = array.reshape(-1).view(np.uint8)
    whole = len(data) // (8 * WORDS) * WORDS
    if whole < WORDS * WORDS // 8:
        return data
    words = data[: 8 * whole].view(np.uint64).reshape(-1, WORDS)
    weights = 2 * generator(0, Stream.PROBE).integers(0, 2**63, WORDS, dtype=np.uint64) + 1
    return b"".join([(words @ weights).tobytes(), data[8 * whole :].tobytes()])

"""Checkpoints: a file from which a call resumes, as if it had never been interrupted.

A call is a sequence of fits, one for most. What lies between them is recomputed, and is the same;
finished fits are read from the file, and the one that was at work resumes from its last epoch. The
file holds numbers and JSON, no pickle, with a checksum of all of it.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

from lowtucker._array import Array, eps, is_array, like, size, to_numpy
from lowtucker._array.errors import CheckpointWarning, FileFormatError, warn_caller
from lowtucker._array.random import Stream, generator
from lowtucker._version import __version__
from lowtucker.operators.base import MeasurementOperator
from lowtucker.problem import Problem
from lowtucker.run.codec import Codec
from lowtucker.run.execute import Keeper
from lowtucker.run.ledger import Ledger
from lowtucker.run.result import Result, Verdict
from lowtucker.solvers import State
from lowtucker.status import Status
from lowtucker.tensor.random import random_tucker
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.thresholding import Iterate

__all__ = ["Journal", "fingerprint"]

MAGIC = b"lowtucker checkpoint 3\n"
# The time between two writings is at least so many times what one takes
RARELY = 20
# Endings that a later call, with other limits, resumes from
LIMITED = {Status.MAX_EPOCHS, Status.MAX_SECONDS}
# Numbers of a matrix that are hashed
HASHED = 1 << 24
CODEC = Codec(Result, Verdict, Ledger)


class Journal(Keeper):
    """Record of a call's fits, in memory and in its file.

    Parameters
    ----------
    path : path-like
        The checkpoint; the one before it is kept beside it, with ``.previous`` added.
    whose : dict of str to str
        What problem and solver these are; another's checkpoint is refused.
    example : array
        Tensors come back as arrays of this kind.

    Notes
    -----
    Written after an epoch, but so seldom that it takes at most a twentieth of the time. A file
    takes the place of the last one when it is complete, or never.
    """

    keeps = True

    def __init__(self, path: Any, whose: dict[str, str], example: Array) -> None:
        self.path, self.whose, self.example = _checked(path), whose, example
        self.given = os.fspath(path)  # as the user knows it
        self.trouble = ""  # why the file could not be written, where that is so
        self.closed = False  # whether a fit was interrupted, or time is up: no more is kept
        self.previous = self.path.with_name(self.path.name + ".previous")
        # of each finished fit: its limit, its result, and its last epoch where a limit ended it
        self.fits: list[tuple[int | None, Result, Any]] = []
        self.current: Any = None  # the last epoch of the fit at work
        self.position = 0
        self._written = self._cost = 0.0
        self._changed = True  # since it was written
        if self.path.exists():
            self._read()
            self._changed = False

    def next_fit(self, max_epochs: int | None) -> tuple[Result | None, Any]:
        """Result of the next fit if it is finished, or else what to resume from, if anything."""
        if self.closed:
            return None, None
        k, self.position = self.position, self.position + 1
        if k < len(self.fits):
            limit, result, last = self.fits[k]
            if last is None or (
                limit == max_epochs and Status.MAX_SECONDS not in _statuses(result)
            ):
                return result, None
            del self.fits[k:]  # there is more time, or there are more epochs: that fit resumes
            self.current = last
        return None, self.current

    def close(self) -> None:
        """Keep nothing of what follows."""
        self.closed = True

    def epoch(self, kept: Any) -> None:
        """Note the end of an epoch; write it if it is time."""
        if not self.closed:
            self.current, self._changed = kept, True
            self._write_if_due()

    def finish(self, max_epochs: int | None, result: Result, kept: Any) -> None:
        """Note the end of a fit. One that was interrupted is still at work."""
        if self.closed:
            return
        statuses, self._changed = _statuses(result), True
        not_begun = kept is None and Status.MAX_SECONDS in statuses
        if Status.INTERRUPTED in statuses or not_begun:
            self.current, self.closed = kept, True
            self.write()
            return
        self.fits.append((max_epochs, result, kept if statuses & LIMITED else None))
        self.current = None
        self._write_if_due()

    def _write_if_due(self) -> None:
        if time.monotonic() - self._written >= RARELY * self._cost:
            self.write()

    def write(self) -> None:
        """Write everything: completely, or not at all. A full disk does not end the work."""
        if not self._changed:
            return
        begin = time.monotonic()
        try:
            self._write()
            self.trouble, self._changed = "", False
        except OSError as error:
            if not self.trouble:
                warn_caller(
                    f"checkpoint {self.path} could not be written ({error}). The run continues; "
                    "the file has what was written last.",
                    CheckpointWarning,
                )
            self.trouble = str(error)
        self._written = time.monotonic()
        self._cost = self._written - begin

    def _write(self) -> None:
        import hashlib
        import io
        import json

        from lowtucker.io import replacing

        arrays: dict[str, Any] = {}
        content = {
            "version": __version__,
            "whose": self.whose,
            "fits": CODEC.encode(self.fits, arrays, "fits"),
            "current": CODEC.encode(self.current, arrays, "current"),
        }
        arrays["content"] = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        payload = buffer.getvalue()
        with replacing(self.path) as file:
            file.write(MAGIC + hashlib.sha256(payload).digest() + payload)
            self._keep_previous()

    def _keep_previous(self) -> None:
        """Let the file that is about to be replaced be found under another name, too."""
        import secrets
        import shutil

        if not self.path.exists():
            return
        other = self.path.with_name(f".lowtucker-{secrets.token_hex(8)}.tmp")
        try:
            try:
                os.link(self.path, other)
            except OSError:  # not every file system has links
                shutil.copyfile(self.path, other)
            os.replace(other, self.previous)
        finally:
            other.unlink(missing_ok=True)

    def _read(self) -> None:
        content, arrays = _unpacked(self.path, self.previous)
        there = content["whose"]
        if there != self.whose:
            names = [name for name in {**there, **self.whose} if
                     there.get(name) != self.whose.get(name)]  # fmt: skip
            lines = "; ".join(
                f"{name}: there {there.get(name)}, here {self.whose.get(name)}" for name in names
            )
            raise ValueError(
                f"checkpoint {self.path} belongs to another call. {lines}. Give the checkpoint "
                "another name, or delete it."
            )
        try:
            fits = CODEC.decode(content["fits"], arrays, self.example)
            self.fits = [(limit, result, last) for limit, result, last in fits]
            self.current = CODEC.decode(content["current"], arrays, self.example)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise FileFormatError(
                f"checkpoint {self.path} was not written by lowtucker. Delete it to start over."
            ) from error


def _statuses(result: Result) -> set[Status]:
    return set(np.atleast_1d(result.status).tolist())


def _unpacked(source: Path, previous: Path) -> tuple[Any, dict[str, Any]]:
    """Content of a file whose checksum is right."""
    import hashlib
    import io
    import json
    import zipfile

    data = source.read_bytes()
    payload = data[len(MAGIC) + 32 :]
    if not data.startswith(MAGIC):
        raise FileFormatError(
            f"{source} is not a checkpoint of this version of lowtucker. Give the checkpoint "
            "another name."
        )
    advice = "Delete it to start over."
    if previous.exists():
        advice = f"The one before it is {previous}: put it in its place to resume from there."
    if hashlib.sha256(payload).digest() != data[len(MAGIC) : len(MAGIC) + 32]:
        raise FileFormatError(f"checkpoint {source} is damaged. {advice}")
    try:
        with zipfile.ZipFile(io.BytesIO(payload)) as file:
            for member in file.infolist():
                _check_member(file, member)
        with np.load(io.BytesIO(payload), allow_pickle=False) as members:
            arrays = {name: members[name] for name in members.files}
        content = json.loads(arrays.pop("content").tobytes())
        return {name: content[name] for name in ("whose", "fits", "current", "version")}, arrays
    except (LookupError, TypeError, ValueError, zipfile.BadZipFile, RecursionError) as error:
        raise FileFormatError(
            f"checkpoint {source} was not written by lowtucker. {advice}"
        ) from error


def _check_member(file: Any, member: Any) -> None:
    """Refuse arrays that claim more than the file holds, before memory is taken for them."""
    import zipfile

    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError("compressed")
    with file.open(member) as stream:
        np.lib.format.read_magic(stream)
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.hasobject or size(shape) * dtype.itemsize > member.file_size:
        raise ValueError("larger than it is")


def _checked(path: Any) -> Path:
    import tempfile

    if not isinstance(path, str | os.PathLike):
        raise TypeError(f'checkpoint must be the path of a file, got {path!r}. Try "run.ckpt".')
    file = Path(os.path.realpath(path))
    what = ""
    if file.is_dir():
        what = "is a folder"
    elif not file.absolute().parent.is_dir():
        what = "is in a folder that does not exist"
    elif file.exists() and not file.is_file():
        what = "is a pipe or a device, not a file"  # reading it may wait for ever
    if what:
        raise ValueError(f'checkpoint {file} {what}. Try "run.ckpt".')
    try:
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise ValueError(
            f"checkpoint {file} cannot be written there ({error.strerror}). Try another folder."
        ) from error
    return file


def fingerprint(
    problem: Problem, start: Any, X_true: Any, settings: dict[str, Any]
) -> dict[str, str]:
    """Identify a problem and how it is solved.

    A matrix in memory is hashed unless it is large; other operators are known by what they measure
    of one random tensor, which reads their rows once.
    """
    return {
        "shape": str(problem.shape),
        "measurements": str(problem.m),
        "operator": f"{type(problem.A).__name__} {_known(problem.A)}",
        "y": _digest(problem.y),
        "weights": _digest(problem.weights),
        "start": _digest_start(start),
        "X_true": _digest(X_true),
        **{name: re.sub(r" at 0x\w+", "", repr(value)) for name, value in settings.items()},
    }


def _known(A: MeasurementOperator) -> str:
    """Hash of a matrix in memory that is not large; of others what is measured of a tensor."""
    matrix: Any = getattr(A, "matrix", None)
    if is_array(matrix) and size(tuple(matrix.shape)) <= HASHED:
        return f"{_digest(matrix)} {getattr(A, 'order', '')}".strip()
    return _probe(A)


def _probe(A: MeasurementOperator) -> str:
    """Some numbers of what is measured of a random tensor, as far as rounding leaves them."""
    X = random_tucker(A.shape, (1,) * len(A.shape), seed=int(Stream.PROBE))
    parts = [like(part, A.prototype, A.dtype) for part in (X.core, *X.factors)]
    y = to_numpy(A.forward(TuckerTensor.trusted(parts[0], parts[1:])))
    signs = generator(0, Stream.PROBE).choice([-1.0, 1.0], size=(2, A.m))
    seen = np.ravel(y @ signs.T)
    digits = 6 if eps(y) < 1e-10 else 3
    numbers = [np.linalg.norm(y), *seen.real, *seen.imag]
    return " ".join(f"{number:.{digits}g}" for number in numbers)


def _digest_start(start: Any) -> str:
    """Hash of a tensor to start from, and of where in its run a state is."""
    state = getattr(start, "state", start)
    told = _digest(getattr(start, "X", start))
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
        made.update(array.tobytes())
    return made.hexdigest()[:16]

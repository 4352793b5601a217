"""Checkpoints: a file from which a call resumes, as if it had never been interrupted.

A call is a sequence of fits, one for most. What lies between them is recomputed, and is the same;
finished fits are read from the file, and the one that was at work resumes from its last epoch. The
file holds numbers and JSON, no pickle, with a checksum of all of it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from lowtucker._array import Array, size
from lowtucker._array.errors import CheckpointWarning, FileFormatError, warn_caller
from lowtucker._version import __version__
from lowtucker.run.codec import Codec
from lowtucker.run.execute import Keeper
from lowtucker.run.identity import Identity
from lowtucker.run.ledger import Ledger
from lowtucker.run.lock import FileLock
from lowtucker.run.result import Result, Verdict
from lowtucker.status import Finding, Status

__all__ = ["Journal"]

MAGIC = b"lowtucker checkpoint 4\n"
# The time between two writings is at least so many times what one takes
RARELY = 20
# Endings that a later call, with other limits, resumes from
LIMITED = {Status.MAX_EPOCHS, Status.MAX_SECONDS}
CODEC = Codec(Result, Verdict, Ledger, Identity)


class Journal(Keeper):
    """Record of a call's fits, in memory and in its file.

    Parameters
    ----------
    path : path-like
        The checkpoint; the one before it is kept beside it, with ``.previous`` added.
    whose : Identity
        What problem and solver these are; another's checkpoint is refused.
    example : array
        Tensors come back as arrays of this kind.

    Notes
    -----
    Written after an epoch, but so seldom that it takes at most a twentieth of the time. A file
    takes the place of the last one when it is complete, or never. One call at a time has it: a
    second one is refused (``BlockingIOError``) until :meth:`release`, or until the process of the
    first has ended.
    """

    keeps = True

    def __init__(self, path: Any, whose: Identity, example: Array) -> None:
        self.path, self.whose, self.example = _checked(path), whose, example
        self.given = os.fspath(path)  # as the user knows it
        self.trouble = ""  # why the file could not be written, where that is so
        self.closed = False  # whether a fit was interrupted, or time is up: no more is kept
        self.previous = _previous(self.path)
        # of each finished fit: its limit, its result, and its last epoch where a limit ended it
        self.fits: list[tuple[int | None, Result, Any]] = []
        self.current: Any = None  # the last epoch of the fit at work
        self.position = 0
        self._written = self._cost = 0.0
        self._changed = True  # since it was written
        self._beyond: tuple[int, int] | None = None  # epochs that were kept, and a lower limit
        self._lock = FileLock(self.path, "checkpoint")
        try:
            if self.path.exists():
                self._read()
                self._changed = False
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let other calls have the file."""
        self._lock.release()

    def next_fit(self, max_epochs: int | None) -> tuple[Result | None, Any]:
        """Result of the next fit if it is finished, or else what to resume from, if anything."""
        if self.closed:
            return None, None
        k, self.position = self.position, self.position + 1
        if k < len(self.fits):
            limit, result, last = self.fits[k]
            self._note_epochs(result.epochs, max_epochs)
            if last is None or (
                limit == max_epochs and Status.MAX_SECONDS not in _statuses(result)
            ):
                return result, None
            del self.fits[k:]  # there is more time, or there are more epochs: that fit resumes
            self.current = last
        elif self.current is not None:
            self._note_epochs(self.current.epochs, max_epochs)
        return None, self.current

    def _note_epochs(self, epochs: Any, limit: int | None) -> None:
        """Note that a fit has more epochs than are allowed: it ends where it is."""
        kept = int(np.max(epochs))
        if limit is not None and kept > limit:
            self._beyond = (kept, limit)

    def findings(self) -> list[Finding]:
        """What there is to say of the checkpoint, beside whether it resumes."""
        if self._beyond is None:
            return []
        kept, limit = self._beyond
        text = (
            f"The checkpoint already has {kept} epochs, more than max_epochs={limit}: none were "
            "added. For a run of fewer epochs give the checkpoint another name, or none."
        )
        return [Finding("more epochs", text, {"epochs": kept, "max_epochs": limit})]

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
            "whose": CODEC.encode(self.whose, arrays, "whose"),
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
        try:
            there = CODEC.decode(content["whose"], arrays)
            different = self.whose.differences(there)
            fits = CODEC.decode(content["fits"], arrays, self.example)
            self.fits = [(limit, result, last) for limit, result, last in fits]
            self.current = CODEC.decode(content["current"], arrays, self.example)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise FileFormatError(
                f"checkpoint {self.path} was not written by lowtucker. Delete it to start over."
            ) from error
        if different:
            raise ValueError(
                f"checkpoint {self.path} belongs to another call. {'; '.join(different)}. Give the "
                "checkpoint another name, or delete it."
            )


def _previous(path: Path) -> Path:
    return path.with_name(path.name + ".previous")


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
    from lowtucker.io.guards import check_target

    if not isinstance(path, str | os.PathLike):
        raise TypeError(f'checkpoint must be the path of a file, got {path!r}. Try "run.ckpt".')
    file = Path(os.path.realpath(path))
    try:
        for one in (Path(path), _previous(file)):
            check_target(one)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ValueError(f'checkpoint {reason}. Try "run.ckpt".') from error
    return file

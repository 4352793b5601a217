"""Sampled entries from a text file or a pipe that grows while it is read."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from lowtucker._array.errors import FileFormatError
from lowtucker.io.guards import require_file
from lowtucker.io.samples import EXACT, delimiter_of, is_header

__all__ = ["LostFileError", "SampleLines"]

NumPyArray = np.ndarray[Any, Any]
# Bytes that are read at a time, and the longest line
CHUNK, LONGEST = 1 << 16, 1 << 14


class LostFileError(FileFormatError):
    """A file that was deleted, replaced or truncated while it was read."""


class SampleLines:
    """Reader of the lines ``i1, ..., id, value`` of a file that may grow, or of a pipe.

    Lines are as in :func:`lowtucker.io.load_samples`. A last line without its end is left for
    later: it may not be finished.

    Parameters
    ----------
    path : Path
        "-" is the standard input.
    shape : tuple of int
        Shape of the tensor, which indices must be within.
    """

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self.path, self.shape = path, shape
        self._piped = str(path) == "-"
        if not self._piped and not path.is_fifo():
            require_file(path)
        self._file: BinaryIO = _standard_input() if self._piped else path.open("rb")
        self._regular = not self._piped and path.is_file()
        self._pending = b""
        self._line = 0
        self._delimiter: str | None = None
        self._begun = False
        self._ended = False

    def __enter__(self) -> SampleLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if not self._piped:
            self._file.close()

    @property
    def is_pipe(self) -> bool:
        """Whether what was read cannot be read again."""
        return not self._regular

    @property
    def ended(self) -> bool:
        """Whether nothing more can come: at the end of the standard input."""
        return self._ended

    def read(self, most: int, *, last: bool = False) -> tuple[NumPyArray, NumPyArray]:
        """Return samples that are there now, at most so many: indices (k, d) and values (k,).

        None are there at the end of a file; a pipe is waited for. Samples before a line that is
        not one, or before the loss of the file, are returned, and the next call raises.

        Parameters
        ----------
        most : int
        last : bool
            Whether nothing more is to come, so that an unfinished line counts.
        """
        indices: list[list[int]] = []
        values: list[float] = []
        while len(values) < most:
            try:
                raw = self._next_line(last)
            except FileFormatError:
                if not values:
                    raise
                break
            if raw is None:
                break
            try:
                sample = self._parsed(raw)
            except FileFormatError:
                self._pending = raw + self._pending
                self._line -= 1
                if not values:
                    raise
                break
            if sample is not None:
                indices.append(sample[0])
                values.append(sample[1])
        index = np.array(indices, dtype=np.int64).reshape(-1, len(self.shape))
        return index, np.array(values, dtype=np.float64)

    def skip(self, count: int) -> None:
        """Pass over samples that were used before."""
        while count > 0:
            values = self.read(min(count, CHUNK), last=True)[1]
            if not len(values):
                raise FileFormatError(
                    f"{self.path} has {count} samples fewer than the checkpoint has used. Is it "
                    "another file? Use another --checkpoint to begin anew."
                )
            count -= len(values)

    def _next_line(self, last: bool) -> bytes | None:
        """Next whole line; None where there is none yet."""
        while (end := self._pending.find(b"\n")) < 0:
            if b"\r" in self._pending[:-1]:
                raise self._error("lines that end with CR alone (convert them: tr '\\r' '\\n')")
            if len(self._pending) > LONGEST:
                raise self._error("a line is longer than 16384 bytes")
            more = self._more(last)
            if not more:
                if not ((last or self._ended) and self._pending):
                    return None
                end = len(self._pending) - 1
                break
            self._pending += more
        line, self._pending = self._pending[: end + 1], self._pending[end + 1 :]
        self._line += 1
        return line

    def _more(self, last: bool) -> bytes:
        """Next bytes; none where there are none yet."""
        if self._piped:
            line = self._file.readline()
            self._ended = not line
            return line
        more = self._file.read(CHUNK)
        if self._regular and not more:
            self._check_still_there(last)
        return more

    def _check_still_there(self, last: bool) -> None:
        here = os.fstat(self._file.fileno())
        what = "truncated" if self._file.tell() > here.st_size else None
        if what is None and not last:
            try:
                what = None if os.path.samestat(here, self.path.stat()) else "replaced"
            except FileNotFoundError:
                what = "deleted"
        if what is not None:
            raise LostFileError(
                f"{self.path} was {what} while it was read: no more samples can be expected of "
                "it. Samples before that were used; start another stream for those of a new file."
            )

    def _parsed(self, raw: bytes) -> tuple[list[int], float] | None:
        """Sample of a line; None for a comment, an empty line or the names of columns."""
        try:
            text = raw.decode("utf-8-sig" if not self._begun else "utf-8")
        except UnicodeDecodeError:
            raise self._error("not text") from None
        text = text.partition("#")[0].strip()
        if not text:
            return None
        if not self._begun:
            self._begun, self._delimiter = True, delimiter_of(text)
            if is_header(text, self._delimiter):
                return None
        parts = text.split(self._delimiter)
        if len(parts) != len(self.shape) + 1:
            raise self._error(f"{len(parts)} columns in {text[:60]!r}{_comma(text)}")
        try:
            *where, value = map(float, parts)
        except ValueError:
            raise self._error(f"{text[:60]!r} is not made of numbers{_comma(text)}") from None
        if not np.isfinite(value):
            raise self._error(f"the value {value}; omit unknown entries")
        for k, (i, n) in enumerate(zip(where, self.shape, strict=True)):
            if i != np.floor(i) or abs(i) > EXACT or not 0 <= i < n:
                hint = ". Subtract 1 if yours count from 1" if i == n else ""
                raise self._error(f"the index {i:g} in column {k + 1}, not from 0 to {n - 1}{hint}")
        return [int(i) for i in where], value

    def _error(self, what: str) -> FileFormatError:
        columns = ", ".join(f"i{k + 1}" for k in range(len(self.shape)))
        return FileFormatError(
            f"{self.path}, line {max(self._line, 1)}: {what}; expected the columns {columns}, "
            f"value, with indices from 0 within {self.shape}"
        )


def _standard_input() -> BinaryIO:
    if sys.stdin is None or sys.stdin.closed:
        raise ValueError(
            "the standard input is closed, expected samples from it. Pipe them into the command, "
            "or give a file instead of -."
        )
    return sys.stdin.buffer


def _comma(text: str) -> str:
    """Hint at decimal commas, where columns seem to be separated by something else."""
    return " (write 0.5 for 0,5)" if "," in text and (";" in text or "\t" in text) else ""

"""Clips in video files, read with PyAV; truncated files are rejected."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lowtucker._array.errors import FileFormatError
from lowtucker.io.arrays import looks_like
from lowtucker.io.guards import damage_reported, file_size, require_room
from lowtucker.lab.video.crop import MOST_PIXELS, Crop, grey, needed, require_pixels

__all__ = ["CONTAINERS", "encoded_gif", "read_container", "require_magnify"]

CONTAINERS = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mp4"}
CONTAINERS |= {".avi": "avi", ".webm": "matroska", ".mkv": "matroska", ".gif": "gif"}
_BEGINNINGS = {
    "mp4": rb"....(ftyp|moov|mdat|free|skip|wide)",
    "matroska": rb"\x1aE\xdf\xa3",
    "avi": rb"RIFF....AVI ",
    "gif": rb"GIF8[79]a",
}


def read_container(path: Path, crop: Crop) -> NDArray[np.float64]:
    """Decode a video up to the last requested frame."""
    kind = _identify(path)
    with _quiet() as av, _opened_video(av, path, kind) as (container, stream):
        height, width = stream.height, stream.width  # the decoder modifies those of the stream
        rows, columns = crop.cut("rows", height), crop.cut("columns", width)
        first, last = crop.frames or (1, sys.maxsize)
        known = stream.frames or 1  # 0 if unknown
        crop.require_memory(rows, columns, min(last - first + 1, known))
        kept: list[NDArray[Any]] = []
        count = 0
        with damage_reported(path):
            for count, frame in enumerate(container.decode(stream), 1):
                if frame.is_corrupt or (frame.height, frame.width) != (height, width):
                    raise FileFormatError(
                        f"{path}: frame {count} is damaged, or its {frame.height} x {frame.width}"
                        f" pixels are not the {height} x {width} of the clip; export it again"
                    )
                if count >= first:
                    crop.require_memory(rows, columns, len(kept) + 1)
                    depth = "gray16le" if frame.format.components[0].bits > 8 else "gray"
                    # one thread: several corrupt pixels of 10 bits (PyAV 18.1)
                    grey_frame = frame.reformat(format=depth, threads=1)
                    kept.append(grey_frame.to_ndarray()[rows, columns].copy())
                if count >= last:
                    break
    if not count:
        raise FileFormatError(f"{path} holds no frames; export it again")
    crop.cut("frames", count)
    return grey(path, np.stack(kept, axis=2), colour=False)


@contextmanager
def _quiet() -> Iterator[Any]:
    """Yield PyAV with logging disabled."""
    av = needed("av")
    level = av.logging.get_level()
    av.logging.set_level(None)
    try:
        yield av
    finally:
        av.logging.set_level(level)


@contextmanager
def _opened_video(av: Any, path: Path, kind: str) -> Iterator[tuple[Any, Any]]:
    """Open a container of one kind only, since playlists open other files."""
    with damage_reported(path):
        container = av.open(str(path.absolute()), format=kind, metadata_errors="replace")
    with container:
        if not container.streams.video:
            raise FileFormatError(f"{path} holds no video, perhaps only sound; export the video")
        stream = container.streams.video[0]
        if stream.codec_context is None:
            raise FileFormatError(f"{path} is damaged, or in a codec that PyAV cannot decode")
        require_pixels(path, stream.height, stream.width)
        stream.codec_context.options = {"max_pixels": str(MOST_PIXELS)}  # also for later frames
        yield container, stream


def _identify(path: Path) -> str:
    """Return the kind of a container; reject a mismatched suffix or a truncated file."""
    if not path.is_file():
        raise FileFormatError(f"{path} is a device; expected a file, or a folder of images")
    expected = CONTAINERS[path.suffix.lower()]
    with open(path, "rb") as file:
        head = file.read(1024)
        begins = [k for k, v in _BEGINNINGS.items() if re.match(v, head, re.DOTALL)]
        if begins == [expected]:
            with damage_reported(path):
                require_room(path, _CLAIMS[expected](file), file_size(path))
            return expected
    looks = f"a video of the kind {begins[0]}" if begins else looks_like(head)
    raise FileFormatError(
        f"{path} is {looks}; expected the content of a {path.suffix} file; download or export it"
        " again, or correct the suffix"
    )


# Declared size of a container in bytes; 0 if unknown.


def _number(file: BinaryIO, count: int) -> int:
    return int.from_bytes(file.read(count))


def _claimed_avi(file: BinaryIO) -> int:
    file.seek(4)
    return 8 + int.from_bytes(file.read(4), "little")


def _claimed_mp4(file: BinaryIO) -> int:
    end, size = 0, file.seek(0, os.SEEK_END)
    while end < size:  # box by box
        file.seek(end)
        length, _ = _number(file, 4), file.read(4)
        if length == 1:
            length = _number(file, 8)
        end = end + max(length, 8) if length else size  # 0: up to the end
    return end


def _claimed_matroska(file: BinaryIO) -> int:
    file.seek(4)
    file.seek(_matroska_size(file), os.SEEK_CUR)  # past the header, to the segment
    segment = _number(file, 4) == 0x18538067
    size = _matroska_size(file)
    return file.tell() + size if segment else 0


def _matroska_size(file: BinaryIO) -> int:
    first = _number(file, 1)
    more = 8 - first.bit_length()  # bytes that follow
    ones = (1 << 7 * (more + 1)) - 1
    size = (first << 8 * more | _number(file, more)) & ones
    return 0 if size == ones else size  # all ones: unknown


def _claimed_gif(file: BinaryIO) -> int:
    file.seek(10)
    _skip_palette(file, 2)
    while (mark := file.read(1)) not in (b";", b""):
        if mark == b",":
            file.seek(8, os.SEEK_CUR)
            _skip_palette(file, 1)
        elif mark == b"!":
            file.seek(1, os.SEEK_CUR)
        while mark in (b",", b"!") and (length := _number(file, 1)):
            file.seek(length, os.SEEK_CUR)
    return file.tell() + (mark == b"")  # the end marker is missing


def _skip_palette(file: BinaryIO, more: int) -> None:
    flags = _number(file, 1)
    palette = 6 << (flags & 7) if flags & 0x80 else 0
    file.seek(palette + more, os.SEEK_CUR)


_CLAIMS = {"mp4": _claimed_mp4, "matroska": _claimed_matroska}
_CLAIMS |= {"avi": _claimed_avi, "gif": _claimed_gif}


def require_magnify(magnify: Any, rows: int, columns: int) -> None:
    """Raise ValueError for frames that a GIF cannot hold."""
    whole = isinstance(magnify, int | np.integer) and magnify >= 1
    if (
        not whole
        or magnify * max(rows, columns) > 65535
        or magnify**2 * rows * columns > MOST_PIXELS
    ):
        raise ValueError(
            f"magnify={magnify!r} of frames of {rows} x {columns} pixels; expected a whole number"
            f" from 1, for frames of at most 65535 rows or columns and {MOST_PIXELS} pixels"
        )


def encoded_gif(clip: NDArray[Any], magnify: int, rate: Fraction) -> bytes:
    """Encode a clip as a GIF with 256 grey levels."""
    stream = io.BytesIO()
    with _quiet() as av, av.open(stream, "w", format="gif") as container:
        gif = container.add_stream("gif", rate=rate)
        gif.height, gif.width = (magnify * n for n in clip.shape[:2])
        gif.pix_fmt = "gray"
        for frame in np.moveaxis(clip, 2, 0):
            grey = np.rint(255 * np.clip(frame.astype(np.float64), 0, 1)).astype(np.uint8)
            large = np.ascontiguousarray(grey.repeat(magnify, 0).repeat(magnify, 1))
            container.mux(gif.encode(av.VideoFrame.from_ndarray(large, format="gray")))
        container.mux(gif.encode(None))
    return stream.getvalue()

"""Checks of PNG files that Pillow leaves out: checksums, and all rows are there."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lowtucker._array.errors import FileFormatError
from lowtucker.io.guards import RATIO, file_size, require_room
from lowtucker.lab.video.crop import require_pixels

__all__ = ["check_png"]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
PIECE = 1 << 20
# Samples of a pixel by colour type: grey, RGB, palette, grey with alpha, RGB with alpha
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# Passes of an interlaced image: first column and row, steps
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
         (0, 1, 1, 2))  # fmt: skip


def check_png(path: Path) -> None:
    """Raise FileFormatError for a PNG file that is damaged or incomplete.

    Pillow ignores the checksums of pixels, and shows missing rows as black. Cost: the file is read
    and decompressed once, a megabyte at a time.
    """
    with open(path, "rb") as file:
        if file.read(8) != SIGNATURE:
            return  # Pillow says what it is not
        size = file_size(path)
        chunks = _chunks(file, size)
        wanted = _raw_size(path, chunks)
        require_room(path, wanted, RATIO * size)
        inflater, count, ended = zlib.decompressobj(), 0, False
        for kind, data in chunks:
            ended = ended or kind == b"IEND"
            while kind == b"IDAT" and data and count <= wanted and not inflater.eof:
                count += len(inflater.decompress(data, PIECE))
                data = inflater.unconsumed_tail
    if count != wanted or not inflater.eof or not ended:
        raise FileFormatError(
            f"{path} is truncated or damaged: its pixels take {wanted} bytes, but"
            f" {count if count <= wanted else 'more'} are stored; export it again"
        )


def _chunks(file: BinaryIO, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Kind and data of each chunk up to the end of the image, with right checksums."""
    kind = b""
    while kind != b"IEND" and (head := file.read(8)):
        length, kind = struct.unpack(">I4s", head)
        if length > size - file.tell() - 4:
            raise ValueError(f"a chunk of {length} bytes is truncated")
        data = file.read(length)
        if file.read(4) != struct.pack(">I", zlib.crc32(data, zlib.crc32(kind))):
            raise ValueError("a checksum is wrong")
        yield kind, data


def _raw_size(path: Path, chunks: Iterator[tuple[bytes, bytes]]) -> int:
    """Bytes of all rows before compression, by the header."""
    kind, header = next(chunks, (b"", b""))
    if kind != b"IHDR":
        raise ValueError("it has no header")
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    require_pixels(path, height, width)
    bits = depth * SAMPLES[colour]
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    sizes = ((-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in passes)
    return sum(rows * (1 + -(-columns * bits // 8)) for columns, rows in sizes if columns > 0)

"""Checks of arrays in HDF5 and Zarr files: what they declare is stored, and in the file itself.

Both libraries read what is not stored as zeros. HDF5 also follows a file to other files, and trusts
the length of a decompressed chunk: a shorter one is filled with memory of the process (seen with
HDF5 2.0), which no caller can catch.
"""

from __future__ import annotations

import math
import zlib
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from lowtucker._array.errors import FileFormatError
from lowtucker._array.memory import available_memory, readable_bytes

__all__ = ["check_hdf5", "check_hdf5_rows", "check_zarr"]

# Filters of HDF5 by number
DEFLATE, SHUFFLE, FLETCHER32, LZF = 1, 2, 3, 32000
PIECE = 1 << 20
# Chunks are read whole: their stored bytes, the decompressed ones, and for Zarr a copy
COPIES = 3
BROKEN = -1
ZSTD = b"\x28\xb5\x2f\xfd"  # how a frame begins
EMPTY = 'Zarr leaves out chunks of zeros; to store them: config={"write_empty_chunks": True}.'


def check_hdf5(dataset: Any, where: str) -> None:
    """Refuse an HDF5 data set that is not stored completely, or not in its own file.

    Cost: one look at the index of its chunks, about 1 microsecond for each.
    """
    if dataset.external or dataset.is_virtual:
        what = "is external: its data are" if dataset.external else "is virtual: its parts are"
        raise FileFormatError(
            f"{where} {what} in other files, which are not followed. Copy the data into one file: "
            "target.create_dataset(name, data=source[name])"
        )
    if dataset.chunks is None:
        stored = int(dataset.id.get_storage_size())
        _require_complete(where, stored, int(dataset.nbytes), "bytes")
        return
    grid = _grid(dataset.shape, dataset.chunks)
    _require_complete(where, int(dataset.id.get_num_chunks()), math.prod(grid), "chunks")
    raw = math.prod(dataset.chunks) * dataset.dtype.itemsize
    _require_chunk_memory(where, raw)
    for number, _, parameters, _ in _filters(dataset):
        if number == LZF and parameters[2:3] != (raw,):  # the size of the filter's buffer
            raise FileFormatError(
                f"{where} is damaged: its filter LZF is not made for chunks of {raw} bytes. "
                "Export it again."
            )
    sizes: list[int] = []
    if hasattr(dataset.id, "chunk_iter"):  # HDF5 1.14 and later
        dataset.id.chunk_iter(lambda chunk: sizes.append(chunk.size))
    for size in sizes:
        _require_plausible(where, size, raw)


def check_hdf5_rows(dataset: Any, start: int, stop: int, where: str) -> None:
    """Refuse chunks with these rows that do not decompress to their declared length.

    Of gzip, also with shuffle and Fletcher32; other filters are not looked at. Cost: as much as to
    read the rows.
    """
    filters = [number for number, *_ in _filters(dataset)]
    if not filters or not set(filters) <= {DEFLATE, SHUFFLE, FLETCHER32, LZF}:
        return
    raw = math.prod(dataset.chunks) * dataset.dtype.itemsize
    height = dataset.chunks[0]
    first = start - start % height
    others = (range(0, n, c) for n, c in zip(dataset.shape[1:], dataset.chunks[1:], strict=True))
    for place in product(range(first, stop, height), *others):
        mask, data = dataset.id.read_direct_chunk(place)
        used = [number for k, number in enumerate(filters) if not mask >> k & 1]
        if (length := _length(memoryview(data), used, raw)) != raw:
            made = f"{length} bytes" if length < raw else f"more than {raw} bytes"
            made = "no valid data" if length == BROKEN else made
            raise FileFormatError(
                f"{where} is damaged: the chunk at {place} decompresses to {made}, expected "
                f"{raw} bytes. Export it again."
            )


def check_zarr(array: Any, where: str) -> None:
    """Refuse a Zarr array of which chunks are not stored; Zarr reads them as its fill value.

    Cost: one look at each file of a chunk.
    """
    outer = tuple(getattr(array, "shards", None) or array.chunks)
    grid = _grid(array.shape, outer)
    raw = math.prod(outer) * array.dtype.itemsize
    _require_chunk_memory(where, raw)
    root = getattr(array.store, "root", None)  # of a store in a folder
    if root is None:
        _require_complete(where, int(array.nchunks_initialized), int(array.nchunks), "chunks")
        return
    folder = Path(root) / array.path
    found = _files(folder)
    linked = sorted(key for key, path in found.items() if path.is_symlink())
    if linked:
        raise FileFormatError(
            f"{where} holds the link {linked[0]}, which is not followed. Copy the file there."
        )
    keys: Any = []
    if len(found) >= math.prod(grid):  # a declared size may be any number
        keys = map(array.metadata.encode_chunk_key, np.ndindex(*grid))
    stored = [found[key] for key in keys if key in found]
    count = len(stored) if stored else len(found)
    _require_complete(where, count, math.prod(grid), "chunks", EMPTY)
    by_zstd = _only_by_zstd(array) and outer == tuple(array.chunks)
    for file in stored:
        _require_plausible(where, file.stat().st_size, raw)
        if by_zstd and (declared := _zstd_length(file)) > raw:
            raise FileFormatError(
                f"{where} is damaged: the chunk {file.name} decompresses to {declared} bytes, "
                f"expected {raw}. Export it again."
            )
    if outer != tuple(array.chunks):
        inside = sum(_stored_inside(file, array) for file in stored)
        wanted = math.prod(_grid(array.shape, array.chunks))
        _require_complete(where, inside, wanted, "chunks in shards", EMPTY)


def _only_by_zstd(array: Any) -> bool:
    """Whether Zstandard, Zarr's default, is all that is done to the bytes of chunks."""
    names = [type(codec).__name__.lower() for codec in array.compressors]
    return not array.filters and len(names) == 1 and "zstd" in names[0]


def _zstd_length(file: Path) -> int:
    """Length that the header of a Zstandard frame declares, which is allocated; 0 if none."""
    with open(file, "rb") as opened:
        head = opened.read(18)
    if len(head) < 18 or head[:4] != ZSTD:
        return 0
    # RFC 8878: flags, then the window (unless a segment is single), the dictionary, the length
    single, size = head[4] >> 5 & 1, head[4] >> 6
    start = 5 + (not single) + (0, 1, 2, 4)[head[4] & 3]
    width = (single, 2, 4, 8)[size]
    return int.from_bytes(head[start : start + width], "little") + (256 if size == 1 else 0)


def _files(folder: Path) -> dict[str, Path]:
    """Files of a Zarr array by their keys, without its metadata."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {key: path for key, path in files.items() if path.is_file() and _is_chunk(path.name)}


def _is_chunk(name: str) -> bool:
    return name != "zarr.json" and not name.startswith(".")


def _stored_inside(file: Path, array: Any) -> int:
    """Chunks in a shard, by its index: pairs of place and length, all ones for a missing chunk."""
    count = math.prod(s // c for s, c in zip(array.shards, array.chunks, strict=True))
    location = array.metadata.codecs[0].index_location
    with open(file, "rb") as opened:
        if getattr(location, "value", location) == "end":
            opened.seek(max(file.stat().st_size - 16 * count - 4, 0))
        index = np.frombuffer(opened.read(16 * count)[: 16 * count], dtype=np.uint8)
    whole = index[: len(index) // 16 * 16].view("<u8")
    return int(np.count_nonzero(whole[::2] != np.iinfo(np.uint64).max))


def _grid(shape: Any, chunks: Any) -> tuple[int, ...]:
    """Number of chunks along each axis."""
    return tuple(-(-n // c) for n, c in zip(shape, chunks, strict=True))


def _filters(dataset: Any) -> list[Any]:
    plist = dataset.id.get_create_plist()
    return [plist.get_filter(k) for k in range(plist.get_nfilters())]


def _length(data: memoryview, filters: list[int], raw: int) -> int:
    """Length of a chunk without its filters; raw + 1 where it is longer."""
    for number in reversed(filters):
        if number == FLETCHER32:
            data = data[:-4]
        elif number == LZF:
            return raw  # its buffer was checked at the door
        elif number == DEFLATE:
            return _deflate_length(data, raw)
    return min(len(data), raw + 1)


def _deflate_length(data: memoryview, raw: int) -> int:
    inflater, length, rest = zlib.decompressobj(), 0, bytes(data)
    try:
        while rest and length <= raw and not inflater.eof:
            length += len(inflater.decompress(rest, PIECE))
            rest = inflater.unconsumed_tail
    except zlib.error:
        return BROKEN
    return min(length, raw + 1) if inflater.eof or length > raw else BROKEN


def _require_complete(where: str, stored: int, wanted: int, unit: str, advice: str = "") -> None:
    if stored < wanted:
        raise FileFormatError(
            f"{where} is incomplete: {stored} of its {wanted} {unit} are stored; the others would "
            f"be read as zeros. Copy or write it again. {advice}".rstrip()
        )


def _require_plausible(where: str, stored: int, raw: int) -> None:
    """Refuse a chunk that is larger with compression than without: it may inflate to anything."""
    if stored > raw + raw // 64 + 4096:
        raise FileFormatError(
            f"{where} is damaged: a chunk of {raw} bytes takes {stored} in the file. "
            "Export it again."
        )


def _require_chunk_memory(where: str, raw: int) -> None:
    if COPIES * raw > (free := available_memory()):
        raise FileFormatError(
            f"{where} has chunks of {readable_bytes(raw)}, which are read whole and take "
            f"{readable_bytes(COPIES * raw)} of memory; {readable_bytes(free)} are free. Write it "
            "again with smaller chunks, of a few rows each."
        )

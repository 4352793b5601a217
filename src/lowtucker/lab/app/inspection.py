"""Inspect an uploaded file with the guarded readers, in a worker."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import lowtucker as lt
from lowtucker.lab.app.memory import bounded_memory
from lowtucker.lab.app.pictures import thumbnail
from lowtucker.lab.app.tasks import Emit
from lowtucker.lab.video import load_video

__all__ = ["ARRAYS", "VIDEOS", "inspect", "write_example"]

ARRAYS = (".npy", ".npz", ".mat")
VIDEOS = (".mp4", ".m4v", ".mov", ".avi", ".webm", ".mkv", ".gif")
# How an entry of the directory of a .npz file begins
ENTRY = b"PK\x01\x02"
# Arrays of a file with a preview
PICTURES = 20


def inspect(job: Mapping[str, Any], emit: Emit) -> None:
    """Emit the reader of a file, its arrays of three modes, and their previews."""
    path, most = Path(job["path"]), int(job["limits"]["array_bytes"])
    if job.get("example"):
        write_example(path)
    with bounded_memory(path.name, most):
        found = _described(path, most, int(job["limits"]["members"]))
    emit("upload", {"file": path.name, **found})


def _described(path: Path, most: int, members: int) -> dict[str, Any]:
    _check_members(path, members)
    if path.suffix.lower() in VIDEOS:
        return _video(path, None, most)
    infos = lt.io.describe(path)
    if len(infos) > members:
        raise _too_many(path, len(infos), members)
    # headers only: pickles are rejected before anything is read
    if len(infos) == 1 or not any(len(info.shape) == 3 for info in infos):
        return _one_array(path, infos[0], most)
    return _arrays(path, [info for info in infos if len(info.shape) == 3], most)


def _check_members(path: Path, most: int) -> None:
    """Raise ValueError for an archive of many members, before any is looked at.

    Every member has an entry in the directory, which begins with four bytes; counting these takes
    0.1 s for the largest file.
    """
    if path.suffix.lower() != ".npz" or not path.stat().st_size:
        return
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        count, at = 0, data.find(ENTRY)
        while at >= 0 and count <= most:
            count, at = count + 1, data.find(ENTRY, at + 4)
    if count > most:
        raise _too_many(path, count, most)


def _too_many(path: Path, count: int, most: int) -> ValueError:
    return ValueError(
        f"{path} holds {count} arrays or more; at most {most} are allowed here. Save those that "
        "you need to a file of their own."
    )


def write_example(path: Path) -> None:
    """Write the example clip."""
    from lowtucker.datasets import flame

    np.save(path, flame((48, 48, 16)).values)


def _video(path: Path, name: str | None, most: int) -> dict[str, Any]:
    """Read one pixel for the number of frames, and the middle frame for its size."""
    frames = load_video(path, name=name, rows=(1, 1), columns=(1, 1), max_bytes=most).shape[2]
    middle = (frames + 1) // 2
    frame = load_video(path, name=name, frames=(middle, middle), max_bytes=most)
    shape = [*frame.shape[:2], frames]
    arrays = [{"name": name, "shape": shape}]
    return {"reader": "video", "arrays": arrays, "previews": [thumbnail(frame[:, :, 0])]}


def _one_array(path: Path, info: Any, most: int) -> dict[str, Any]:
    if info.dtype == "uint8" or len(info.shape) == 4:  # a clip, perhaps in colour
        return _video(path, info.name if path.suffix.lower() != ".npy" else None, most)
    return _arrays(path, [info], most)


def _arrays(path: Path, infos: list[Any], most: int) -> dict[str, Any]:
    """List the arrays that can be recovered, with previews within a memory limit."""
    named, left = path.suffix.lower() != ".npy", most
    arrays, previews, refused = list[dict[str, Any]](), list[Any](), list[ValueError]()
    for info in infos:
        name, seen = info.name if named else None, None
        first = not arrays and not refused  # let the reader report its errors
        try:
            if not first:
                _check(path, info.shape, info.dtype.startswith("complex"))
            if not arrays or (len(arrays) < PICTURES and info.nbytes <= left):
                array = lt.io.load_array(path, name, mmap=not named, max_bytes=most)
                _check(path, array.shape, array.dtype.kind == "c")
                seen = thumbnail(_middle(array))
                left -= info.nbytes
        except ValueError as error:
            refused.append(error)
            continue
        arrays.append({"name": name, "shape": list(info.shape)})
        previews.append(seen)
    if not arrays:
        raise refused[0]
    return {"reader": "array", "arrays": arrays, "previews": previews}


def _middle(array: Any) -> Any:
    return np.nan_to_num(array[:, :, (array.shape[2] - 1) // 2].astype(np.float64))


def _check(path: Path, shape: tuple[int, ...], is_complex: bool) -> None:
    if len(shape) != 3 or min(shape) < 2:
        raise ValueError(
            f"{path} has the shape {tuple(shape)}; expected three modes, such as (rows, columns, "
            "frames), each of 2 or more; reshape it"
        )
    if is_complex:
        raise ValueError(f"{path} holds complex numbers; expected real ones; save their np.abs")

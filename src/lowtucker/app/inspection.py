"""What is in a file that was sent: read by the guarded readers, in a worker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import lowtucker as lt
from lowtucker.app.pictures import thumbnail
from lowtucker.app.tasks import Emit

__all__ = ["ARRAYS", "VIDEOS", "inspect", "write_example"]

ARRAYS = (".npy", ".npz", ".mat")
VIDEOS = (".mp4", ".m4v", ".mov", ".avi", ".webm", ".mkv", ".gif")


def inspect(job: Mapping[str, Any], emit: Emit) -> None:
    """Tell how a file is to be read, its arrays of three modes, and a picture of the first."""
    path, most = Path(job["path"]), int(job["limits"]["array_bytes"])
    if job.get("example"):
        write_example(path)
    if path.suffix.lower() in VIDEOS:
        found = _video(path, None, most)
    else:
        infos = lt.io.describe(path)
        # numbers for sure, before anything is read: a pickle is refused here
        if len(infos) == 1 or not any(len(info.shape) == 3 for info in infos):
            found = _one_array(path, infos[0], most)
        else:
            found = _arrays(path, [info for info in infos if len(info.shape) == 3], most)
    emit("upload", {"file": path.name, **found})


def write_example(path: Path) -> None:
    """Clip for those who have none at hand."""
    from lowtucker.experiments.flame import synthetic_flame

    np.save(path, synthetic_flame((48, 48, 16)))


def _video(path: Path, name: str | None, most: int) -> dict[str, Any]:
    """One pixel tells the frames; one frame in the middle tells the rest."""
    frames = lt.io.load_video(path, name=name, rows=(1, 1), columns=(1, 1), max_bytes=most).shape[2]
    middle = (frames + 1) // 2
    frame = lt.io.load_video(path, name=name, frames=(middle, middle), max_bytes=most)
    shape = [*frame.shape[:2], frames]
    arrays = [{"name": name, "shape": shape}]
    return {"reader": "video", "arrays": arrays, "preview": thumbnail(frame[:, :, 0])}


def _one_array(path: Path, info: Any, most: int) -> dict[str, Any]:
    if info.dtype == "uint8" or len(info.shape) == 4:  # a clip, perhaps in colour
        return _video(path, info.name if path.suffix.lower() != ".npy" else None, most)
    return _arrays(path, [info], most)


def _arrays(path: Path, infos: list[Any], most: int) -> dict[str, Any]:
    named = path.suffix.lower() != ".npy"
    name = infos[0].name if named else None
    array = lt.io.load_array(path, name, mmap=not named, max_bytes=most)
    if array.ndim != 3 or not array.size or min(array.shape) < 2:
        raise ValueError(
            f"{path} has the shape {array.shape}; expected three modes, such as (rows, columns, "
            "frames), each of 2 or more; reshape it"
        )
    if array.dtype.kind == "c":
        raise ValueError(f"{path} holds complex numbers; expected real ones; save their np.abs")
    arrays = [{"name": i.name if named else None, "shape": list(i.shape)} for i in infos]
    frame = np.nan_to_num(array[:, :, (array.shape[2] - 1) // 2].astype(np.float64))
    return {"reader": "array", "arrays": arrays, "preview": thumbnail(frame)}

"""Uploaded files and downloadable results, in a temporary folder."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lowtucker.lab.app.inspection import ARRAYS, VIDEOS
from lowtucker.lab.app.processes import BusyError

__all__ = ["Store", "Stored", "TooLargeError", "safe_name", "too_large"]


class TooLargeError(ValueError):
    """A file exceeds the size limit."""


def too_large(limit: int) -> TooLargeError:
    """Return the error for a file that exceeds the limit."""
    return TooLargeError(
        f"The file is larger than {limit / 1e6:g} MB, the limit of this page. Cut it, or use "
        "`lowtucker video` or Python, which have no such limit."
    )


@dataclass
class Stored:
    """A folder of the store, and a description of its content."""

    key: str
    folder: Path
    path: Path | None = None
    info: dict[str, Any] = field(default_factory=dict)
    original: str = ""  # original name of the file
    users: int = 0  # runs that use it


class Store:
    """Folders with unguessable keys; only the latest are kept.

    Parameters
    ----------
    most : int
        Maximum number of folders.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.root = Path(tempfile.mkdtemp(prefix=f"lowtucker-app-{os.getpid()}-"))
        self.items: OrderedDict[str, Stored] = OrderedDict()

    def new(self) -> Stored:
        """Create a folder; remove the oldest unused one if there are too many."""
        while len(self.items) >= self.most:
            idle = next((key for key, item in self.items.items() if not item.users), None)
            if idle is None:
                raise BusyError(
                    f"All {self.most} stored files are in use. Stop a run, or try again later."
                )
            self.remove(idle)
        key = secrets.token_urlsafe(12)
        item = Stored(key, self.root / key)
        item.folder.mkdir(mode=0o700)
        self.items[key] = item
        return item

    def get(self, key: Any) -> Stored | None:
        """Return the folder of a key; None if it does not exist."""
        return self.items.get(key) if isinstance(key, str) else None

    def remove(self, key: str) -> None:
        """Remove a folder and its content, once it is not in use."""
        item = self.items.pop(key, None)
        if item is not None and not item.users:
            shutil.rmtree(item.folder, ignore_errors=True)

    @contextmanager
    def hold(self, item: Stored) -> Iterator[None]:
        """Keep a folder while it is in use; its removal is deferred to the end."""
        item.users += 1
        try:
            yield
        finally:
            item.users -= 1
            if not item.users and item.key not in self.items:
                shutil.rmtree(item.folder, ignore_errors=True)

    def close(self) -> None:
        """Remove everything."""
        self.items.clear()
        shutil.rmtree(self.root, ignore_errors=True)

    async def receive(self, name: str, chunks: AsyncIterable[bytes], most: int) -> Stored:
        """Write a file as it arrives; remove it if it exceeds the limit."""
        safe = safe_name(name)
        item, size = self.new(), 0
        item.path, item.original = item.folder / safe, _base(name)[:200]
        try:
            with self.hold(item), open(item.path, "xb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > most:
                        raise too_large(most)
                    file.write(chunk)
        except BaseException:
            self.remove(item.key)
            raise
        return item


def safe_name(name: str) -> str:
    """Return a file name without folders and special characters; reject unsupported files.

    Examples
    --------
    >>> safe_name("../my clip.MP4")
    'my_clip.mp4'
    """
    base = _base(name)
    suffix = Path(base).suffix.lower()
    if suffix not in ARRAYS + VIDEOS:
        raise ValueError(
            f"{base[:80]!r} is not a supported file; expected one of "
            f"{', '.join(ARRAYS + VIDEOS)}. Convert it."
        )
    stem = re.sub(r"[^A-Za-z0-9_-]+", "_", base[: -len(suffix)]).strip("_")[:60]
    return (stem or "file") + suffix


def _base(name: str) -> str:
    return re.split(r"[/\\]", name)[-1]

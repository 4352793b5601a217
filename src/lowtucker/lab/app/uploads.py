"""Uploaded files and downloadable results, in a temporary folder."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections import Counter, OrderedDict
from collections.abc import AsyncIterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lowtucker.lab.app.inspection import ARRAYS, VIDEOS
from lowtucker.lab.app.processes import BusyError

__all__ = ["Store", "Stored", "TooLargeError", "safe_name", "too_large"]


# Bytes of a file from which on few can be received at a time
LARGE = 1_000_000


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
    owner: str = ""  # address of the client


class Store:
    """Folders with unguessable keys; only the latest are kept.

    Where there are too many, the client with the most folders loses the one that it has not used
    for the longest time; folders in use are never removed.

    Parameters
    ----------
    most : int
        Maximum number of folders.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.root = Path(tempfile.mkdtemp(prefix=f"lowtucker-app-{os.getpid()}-"))
        self.items: OrderedDict[str, Stored] = OrderedDict()

    def new(self, owner: str = "") -> Stored:
        """Create a folder and keep it."""
        item = self._made(owner)
        try:
            self.add(item)
        except BusyError:
            self.drop(item)
            raise
        return item

    def _made(self, owner: str) -> Stored:
        key = secrets.token_urlsafe(12)
        item = Stored(key, self.root / key, owner=owner)
        item.folder.mkdir(mode=0o700)
        return item

    def add(self, item: Stored) -> None:
        """Keep a folder; remove an unused one if there are too many."""
        while len(self.items) >= self.most:
            idle = [one for one in self.items.values() if not one.users]
            if not idle:
                raise BusyError(
                    f"All {self.most} stored files are in use. Stop a run, or try again later."
                )
            count = Counter(one.owner for one in self.items.values())
            # the first of the client with the most; its own where others have as many
            self.remove(max(idle, key=lambda o: (count[o.owner], o.owner == item.owner)).key)
        self.items[item.key] = item

    def drop(self, item: Stored) -> None:
        """Remove a folder that is not kept."""
        shutil.rmtree(item.folder, ignore_errors=True)

    def get(self, key: Any) -> Stored | None:
        """Return the folder of a key, which counts as a use; None if it does not exist."""
        if not isinstance(key, str) or key not in self.items:
            return None
        self.items.move_to_end(key)
        return self.items[key]

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

    async def receive(
        self,
        name: str,
        chunks: AsyncIterable[bytes],
        most: int,
        owner: str,
        large: AbstractContextManager[None],
    ) -> Stored:
        """Write a file as it arrives; remove it if it exceeds the limit.

        It takes the place of no other file before it is complete: see :meth:`add`. One of more
        than 1 MB enters ``large``: those that send nothing keep nobody waiting.
        """
        safe = safe_name(name)
        item, size = self._made(owner), 0
        item.path, item.original = item.folder / safe, _base(name)[:200]
        try:
            with ExitStack() as stack:
                file = stack.enter_context(open(item.path, "xb"))
                async for chunk in chunks:
                    if size <= LARGE < size + len(chunk):
                        stack.enter_context(large)
                    size += len(chunk)
                    if size > most:
                        raise too_large(most)
                    file.write(chunk)
        except BaseException:
            self.drop(item)
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

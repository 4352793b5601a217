"""Real faults of a file system, each in a forked child that ends with it.

A child of its own mount namespace has disks that are small, full or read-only; another user has no
permissions; a limit on file sizes fails like a quota.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import stat
import tempfile
import traceback
import warnings
from pathlib import Path

import pytest

NEW_USER, NEW_MOUNTS = 0x10000000, 0x00020000
READ_ONLY, REMOUNT, PRIVATE, RECURSIVE = 1, 32, 1 << 18, 1 << 14
NOBODY, KILLED, SECONDS = 65534, 99, 60


class NotHereError(Exception):
    """The system does not allow this fault to be made."""


def in_child(scenario):
    """Run a scenario in a forked child; fail or skip as it does; return its exit code."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # JAX and Python 3.12 warn of forks beside threads, which no scenario needs
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        _work(scenario, writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == KILLED:
        return code
    what, text = json.loads(told) if told else ("failed", f"the child ended with {code}")
    if what == "skipped":
        pytest.skip(text)
    assert what == "done", text
    return code


def _work(scenario, pipe):
    signal.alarm(SECONDS)  # a write that waits for ever ends the child
    try:
        scenario()
        told = ("done", "")
    except (NotHereError, pytest.skip.Exception) as error:
        told = ("skipped", str(error))
    except BaseException:
        told = ("failed", traceback.format_exc())
    os.write(pipe, json.dumps(told).encode()[:60_000])
    os._exit(0)


def mount(folder, kilobytes=1024):
    """Mount a small disk, which only this process sees."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(done, what):
        if done:
            raise NotHereError(f"{what}: {os.strerror(ctypes.get_errno())}")

    if not hasattr(libc, "unshare"):
        raise NotHereError("there are no mount namespaces here")
    user, group = os.geteuid(), os.getegid()
    check(libc.unshare(NEW_MOUNTS | (NEW_USER if user else 0)), "unshare")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    check(libc.mount(b"none", b"/", None, PRIVATE | RECURSIVE, None), "private mounts")
    size = f"size={kilobytes}k".encode()
    check(libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, size), "mount")
    return libc


def make_read_only(libc, folder):
    """Remount a disk."""
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", REMOUNT | READ_ONLY, None):
        raise NotHereError(f"remount: {os.strerror(ctypes.get_errno())}")


def fill(folder, left=0):
    """Fill a disk up to some bytes, with a file of another name."""
    ballast = Path(folder, "ballast")
    with open(ballast, "ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
        os.ftruncate(file.fileno(), max(0, os.fstat(file.fileno()).st_size - left))


def limit_files(nbytes):
    """Limit the size of files; as in a shell by ulimit -f."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes))


def make_device(path):
    """Make a device like /dev/full; root could replace that itself, if the guard failed."""
    if os.geteuid():
        path.symlink_to("/dev/full")
        return
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    except OSError as error:
        raise NotHereError(f"mknod: {error.strerror}") from None


def become_nobody():
    """Give up the permissions of root."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def open_folder():
    """Create a folder that every user can reach."""
    made = Path(tempfile.mkdtemp(prefix="lowtucker-faults-"))
    made.chmod(0o755)
    return made


class Killer:
    """Ends the process before the n-th call that changes files; counts them if n is 0.

    The writes of a file count: what a buffer held is lost with the process.
    """

    def __init__(self, guards, n):
        self.n, self.count = n, 0
        for name in ("replace", "fsync", "link", "unlink", "mkdir"):
            setattr(os, name, self._counted(getattr(os, name)))
        guards.open = lambda *how: self._opened(*how)

    def _counted(self, call):
        def counted(*given, **named):
            self.count += 1
            if self.count == self.n:
                os._exit(KILLED)
            return call(*given, **named)

        return counted

    def _opened(self, *how):
        file = self._counted(open)(*how)
        return _Counting(file, self._counted(file.write), self._counted(file.flush))


class _Counting:
    def __init__(self, file, write, flush):
        self._file, self.write, self.flush = file, write, flush

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

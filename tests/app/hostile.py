"""Malicious or mislabelled files, and the expected messages."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from functools import cache
from pathlib import Path

import numpy as np


class Trap:
    """An object that runs code when unpickled."""

    def __reduce__(self):
        return (Path.write_text, (Path("ran-by-pickle"), "code of the file"))


def saved(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def npy(shape, body=b""):
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + body


@cache
def bomb():
    """An archive of a few MB that holds more than 1e9 zeros."""
    stream = io.BytesIO()
    with (
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("X.npy", "w", force_zip64=True) as member,
    ):
        member.write(npy((500, 500, 505)))
        zeros = bytes(10**7)
        for _ in range(101):
            member.write(zeros)
    return stream.getvalue()


FILES = {
    "trapped.npy": (saved(np.array([Trap()], dtype=object)), "pickled Python objects"),
    "pickle.npy": (pickle.dumps(Trap()), "a pickle, which is never read"),
    "bomb.npz": (bomb, "at most 1000000000 are allowed here"),
    "large.npy": (npy((500, 1000, 500), bytes(800)), "claims 2000000"),
    "page.npy": (b"<!doctype html><html><body>404</body></html>", "an HTML page"),
    "garbage.mat": (b"\xff" * 400, "of an unknown format"),
    "header.mat": (b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"\xff" * 200, "damaged"),
    "page.mp4": (b"<!doctype html><html></html>", "an HTML page"),
    "matrix.npy": (saved(np.eye(3)), "expected three modes"),
    "text.npy": (b"1,2,3\n", "plain text"),
}


def content(name):
    """Bytes of a file, generated on demand."""
    data = FILES[name][0]
    return data() if callable(data) else data

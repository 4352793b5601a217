"""Mutated files of every format, each read in a child with limits of memory and time.

Run by test_file_fuzz.py in a process of its own, which has no threads and can fork:
``python tests/robustness/file_fuzz.py 300 0`` tries 300 files with the seed 0 and prints what is
wrong, one line of JSON each, then a count of outcomes.

A file passes if it is refused by FileFormatError, ValueError or OSError with a message that names
it, or if it is read as it was. Formats without a checksum may also give another array, as no reader
can see the damage: one that is not larger. The child may take twice the honest size and SPARE bytes
of memory, and TIME seconds.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import PIL.Image
import scipy.io
import scipy.sparse
import zarr

import lowtucker as lt
from lowtucker.io.lines import SampleLines
from lowtucker.lab.video import load_video, save_gif

SHAPE, RANK = (4, 3, 2), (1, 1, 1)
# Memory beside that of the array: modules that a reader imports, buffers of codecs and threads
SPARE = 64 << 20
# Address space at which an allocation fails, beside that of the process
ADDRESSES = 1 << 30
TIME = 30
RNG = np.random.default_rng(7)
ROWS = np.round(RNG.standard_normal((40, 24)), 3)
A = lt.as_operator(ROWS, SHAPE)
X = lt.random_tucker(SHAPE, RANK, seed=0)
Y = A.forward(X)
SPARSE = scipy.sparse.coo_array(
    np.where(np.random.default_rng(1).random(ROWS.shape) < 0.3, ROWS, 0)
)
CLIP = RNG.random((12, 16, 5))
ENDS = ("FileFormatError", "ValueError", "OSError", "FileNotFoundError", "IsADirectoryError")


@dataclass(frozen=True)
class Kind:
    """A format: how an honest file is written and read, and whether it has a checksum."""

    name: str
    write: Callable[[Path], Any]
    read: Callable[[Path], Any]
    checked: bool
    special: Callable[[Path, np.random.Generator], None] | None = None


# ---- honest files ----


def products(path):
    return lt.stored(path, SHAPE).forward(X)


def sparse_operator(path):
    return lt.io.load_operator(path, SHAPE, order="C").forward(X)


def write_result(path):
    recovered().save(path)


def recovered(**more):
    return lt.recover(A, Y, RANK, solver="rgn", max_epochs=4, X_true=X, **more)


def read_checkpoint(path):
    result = recovered(checkpoint=path)
    return result.X.full(), result.history["residual"]


def write_stream(path):
    online = lt.Online(SHAPE, RANK)
    for start in (0, 20):
        online.update(ROWS[start : start + 20].reshape(-1, *SHAPE), Y[start : start + 20])
    online.save(path)


def read_stream(path):
    online = lt.Online.load(path)
    return online.m, repr(online)


def read_result(path):
    result = lt.load(path)
    return {**result.history}, result.X.full(), repr(result)


def read_lines(path):
    """All samples: those before a bad line come first, then it is refused."""
    blocks = []
    with SampleLines(path, SHAPE) as lines:
        while len((block := lines.read(10, last=True))[1]):
            blocks.append(block)
    return blocks


def write_samples(path):
    index = np.argwhere(np.ones(SHAPE))
    lt.io.save_samples(path, index, X.full().ravel())


def write_indices(path):
    np.savetxt(path, np.argwhere(np.ones(SHAPE)), fmt="%d")


def write_73(path, **options):
    with h5py.File(path, "w", userblock_size=512) as file:
        item = file.create_dataset("A", data=ROWS.T, **options)
        item.attrs["MATLAB_class"] = np.bytes_("double")


def write_hdf5(path, **options):
    with h5py.File(path, "w") as file:
        file.create_dataset("A", data=ROWS, **options)


def write_zarr(path, **options):
    zarr.create_array(path, shape=(40, 24), dtype=float, **options)[:] = ROWS


def write_images(path):
    path.mkdir()
    for k in range(2):
        picture = np.rint(255 * CLIP[:, :, k]).astype(np.uint8)
        PIL.Image.fromarray(picture).save(path / f"{k}.png")


def write_video(path, codec, pix_fmt):
    import av

    with av.open(str(path), "w") as file:
        stream = file.add_stream(codec, rate=10)
        stream.height, stream.width, stream.pix_fmt = 12, 16, pix_fmt
        stream.thread_count = 1
        for frame in np.moveaxis(np.rint(255 * CLIP).astype(np.uint8), 2, 0):
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="gray")
            file.mux(stream.encode(picture))
        file.mux(stream.encode(None))


def save_mat(compressed, what):
    return lambda p: scipy.io.savemat(p, {"A": what}, do_compression=compressed)


# ---- mutations of bytes ----


def place(rng, size):
    """A place in a file: its beginning and its end are as likely as the rest."""
    low, high = [(0, size), (0, 256), (size - 600, size)][rng.integers(3)]
    return int(rng.integers(max(low, 0), max(min(high, size), 1)))


def flip(rng, data):
    for _ in range(1 + int(rng.integers(4))):
        data[place(rng, len(data))] ^= 1 << int(rng.integers(8))


def cut(rng, data):
    del data[place(rng, len(data)) :]


def lengthen(rng, data):
    data += rng.bytes(1 + int(rng.integers(300)))


def remove(rng, data):
    at = place(rng, len(data))
    del data[at : at + 1 + int(rng.integers(40))]


def splice(rng, data):
    """Copy a block over another, or between two bytes."""
    source, at, count = place(rng, len(data)), place(rng, len(data)), 1 + int(rng.integers(64))
    block = data[source : source + count]
    data[at : at + (len(block) if rng.integers(2) else 0)] = block


def clear(rng, data):
    at, count = place(rng, len(data)), 1 + int(rng.integers(64))
    data[at : at + count] = bytes([int(rng.choice([0, 255]))]) * len(data[at : at + count])


def inflate(rng, data):
    """Write a large number where a size may be declared."""
    form = str(rng.choice(["<H", "<I", ">I", "<Q", ">Q"]))
    number = int(rng.choice([2**15, 2**31 - 1, 2**31, 2**40, 2**62])) % 2 ** (
        8 * struct.calcsize(form)
    )
    at = place(rng, len(data))
    data[at : at + struct.calcsize(form)] = struct.pack(form, number)


def replace_digits(rng, data):
    """Change a digit, or make a number much longer: of a header or of a text."""
    digits = [k for k, byte in enumerate(data) if 48 <= byte <= 57]
    if digits:
        at = digits[int(rng.integers(len(digits)))]
        data[at : at + 1] = rng.choice([b"7", b"99999999", b"-1", b"1e999", b"nan", b"x", b"0.5"])


MUTATIONS = (flip, flip, cut, lengthen, remove, splice, clear, inflate, replace_digits)


def mutate_bytes(path, rng):
    data = bytearray(path.read_bytes())
    if data:
        MUTATIONS[rng.integers(len(MUTATIONS))](rng, data)
    path.write_bytes(data)


# ---- mutations that know the format; checksums are right again ----


def rezip(path, rng):
    """Change the members of an archive."""
    with zipfile.ZipFile(path) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    k = int(rng.integers(len(members)))
    (info, data), how = members[k], int(rng.integers(6))
    names = [one.filename for one, _ in members]
    contents = [data for _, data in members]
    if how == 0:
        names[k] = names[k][:-5] + "?.npy"
    elif how == 1:
        names[k] = names[int(rng.integers(len(names)))]
    elif how == 2:
        del names[k], contents[k]
    elif how == 3:
        changed = bytearray(data)
        MUTATIONS[rng.integers(len(MUTATIONS))](rng, changed)
        contents[k] = bytes(changed)
    elif how == 4:
        contents[k] = data + bytes(150 << 20)  # a bomb
    else:
        names.append(info.filename.replace(".npy", "2.npy"))
        contents.append(data)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in zip(names, contents, strict=True):
            archive.writestr(name, content)


def remat(path, rng):
    """Put a bomb into a compressed variable, or change what it holds."""
    data = bytearray(path.read_bytes())
    inside = bytearray(zlib.decompress(bytes(data[136:])))
    if rng.integers(2):
        MUTATIONS[rng.integers(len(MUTATIONS))](rng, inside)
    else:
        inside += bytes(150 << 20)
        if rng.integers(2):
            inside[4:8] = struct.pack("<I", len(inside) - 8)
    packed = zlib.compress(bytes(inside), 1)
    path.write_bytes(bytes(data[:128]) + struct.pack("<II", 15, len(packed)) + packed)


def rechunk(path, rng):
    """Write a chunk of an HDF5 file that is not what its filter expects."""
    with h5py.File(path, "r+") as file:
        data = bytearray(ROWS.tobytes() if rng.integers(2) else bytes(150 << 20))
        if len(data) < 10**5:
            MUTATIONS[rng.integers(len(MUTATIONS))](rng, data)
        chunk = zlib.compress(bytes(data), 1)
        file["A"].id.write_direct_chunk((0, 0), chunk, int(rng.integers(2)))


def rezarr(path, rng):
    """Change the metadata of a Zarr array, or its chunks."""
    files = sorted(p for p in path.rglob("*") if p.is_file())
    meta = [p for p in files if p.suffix == ".json" or p.name == ".zarray"]
    chunk = [p for p in files if p not in meta and not p.name.startswith(".")]
    one, how = chunk[int(rng.integers(len(chunk)))], int(rng.integers(5))
    if how == 0:
        one.unlink()
    elif how == 1:
        one.rename(one.with_name("77"))
    elif how == 2:
        one.write_bytes(gzip.compress(bytes(3 << 20), 1))
    elif how == 3:
        one.write_bytes(chunk[int(rng.integers(len(chunk)))].read_bytes() + rng.bytes(9))
    else:
        content = json.loads(meta[-1].read_text())
        content["shape"][int(rng.integers(2))] = int(rng.choice([0, -1, 1, 10**6, 10**12, 2**62]))
        meta[-1].write_text(json.dumps(content))


def repng(path, rng):
    """Change the header of an image, or its pixels."""
    file = path / "0.png"
    data = file.read_bytes()
    head = bytearray(data[16:29])
    how = int(rng.integers(3))
    if how == 0:
        inflate(rng, head)
    elif how == 1:
        head[int(rng.integers(13))] = int(rng.integers(9))
    raw = zlib.decompress(data[41 : 41 + struct.unpack(">I", data[33:37])[0]])
    raw = raw[: int(rng.integers(len(raw)))] if how == 2 else raw + bytes(how * (150 << 20))
    parts = [(b"IHDR", bytes(head[:13])), (b"IDAT", zlib.compress(raw, 1)), (b"IEND", b"")]
    file.write_bytes(
        data[:8]
        + b"".join(
            struct.pack(">I", len(x)) + kind + x + struct.pack(">I", zlib.crc32(kind + x))
            for kind, x in parts
        )
    )


# ---- the formats ----

load, load_sparse = lt.io.load_array, lt.io.load_sparse
KINDS = [
    Kind("a.npy", lambda p: np.save(p, ROWS), load, False),
    Kind("mapped.npy", lambda p: np.save(p, ROWS), products, False),
    Kind("a.npz", lambda p: lt.io.save_arrays(p, {"A": ROWS}), load, True, rezip),
    Kind("packed.npz", lambda p: np.savez_compressed(p, A=ROWS), load, True, rezip),
    Kind("operator.npz", lambda p: np.savez_compressed(p, A=ROWS), sparse_operator, True, rezip),
    Kind("result.npz", write_result, read_result, True, rezip),
    Kind("stream.npz", write_stream, read_stream, True, rezip),
    Kind("run.ckpt", read_checkpoint, read_checkpoint, True),
    Kind("csr.npz", lambda p: scipy.sparse.save_npz(p, SPARSE.tocsr()), load_sparse, True, rezip),
    Kind("coo.npz", lambda p: scipy.sparse.save_npz(p, SPARSE), sparse_operator, True, rezip),
    Kind("plain.mat", save_mat(False, ROWS), load, False),
    Kind("packed.mat", save_mat(True, ROWS), load, True, remat),
    Kind("sparse.mat", save_mat(True, SPARSE.tocsc()), sparse_operator, True, remat),
    Kind("plain73.mat", write_73, load, False),
    Kind("gzip73.mat", lambda p: write_73(p, chunks=(24, 40), compression="gzip"), load, False),
    Kind("samples.csv", write_samples, lt.io.load_samples, False),
    Kind("indices.txt", write_indices, lambda p: lt.io.load_indices(p, 3), False),
    Kind("lines.tsv", write_samples, read_lines, False),
    Kind("plain.h5", write_hdf5, products, False),
    Kind("array.h5", write_hdf5, load, False),
    Kind(
        "gzip.h5",
        lambda p: write_hdf5(p, chunks=(40, 24), compression="gzip"),
        products,
        False,
        rechunk,
    ),
    Kind(
        "lzf.h5",
        lambda p: write_hdf5(p, chunks=(10, 24), compression="lzf", shuffle=True),
        products,
        False,
    ),
    Kind("sums.h5", lambda p: write_hdf5(p, chunks=(10, 24), fletcher32=True), products, False),
    Kind("v3.zarr", lambda p: write_zarr(p, chunks=(10, 24)), products, False, rezarr),
    Kind(
        "v2.zarr", lambda p: write_zarr(p, chunks=(10, 24), zarr_format=2), products, False, rezarr
    ),
    Kind(
        "gzip.zarr",
        lambda p: write_zarr(p, chunks=(40, 12), compressors=zarr.codecs.GzipCodec()),
        products,
        False,
        rezarr,
    ),
    Kind(
        "shards.zarr",
        lambda p: write_zarr(p, chunks=(5, 24), shards=(20, 24)),
        products,
        False,
        rezarr,
    ),
    Kind("png", write_images, load_video, True, repng),
    Kind("clip.gif", lambda p: save_gif(p, CLIP), load_video, False),
    Kind("clip.avi", lambda p: write_video(p, "ffv1", "gray"), load_video, False),
    Kind("clip.mp4", lambda p: write_video(p, "mpeg4", "yuv420p"), load_video, False),
]


# ---- one case ----


def digest(value: Any) -> tuple[str, int]:
    """Hash of a value, and bytes of its arrays."""
    sha, count = hashlib.sha256(), 0
    if scipy.sparse.issparse(value):
        value = value.toarray()
    if isinstance(value, dict):
        value = [x for pair in value.items() for x in pair]
    if isinstance(value, list | tuple):
        for one in value:
            text, more = digest(one)
            sha.update(text.encode())
            count += more
    elif isinstance(value, np.ndarray) and value.dtype.kind != "U":
        sha.update(f"{value.shape} {value.dtype}".encode() + np.ascontiguousarray(value).tobytes())
        count = value.nbytes
    else:
        text = str(value.tolist() if isinstance(value, np.ndarray) else value)
        sha.update("".join(line for line in text.splitlines() if " s" not in line).encode())
    return sha.hexdigest(), count


def peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def addresses() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def in_child(call: Callable[[], Any]) -> dict[str, Any]:
    """What a call gives in a forked child, with limits of memory and time."""
    source, sink = os.pipe()
    if not (child := os.fork()):
        os.close(source)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (TIME, TIME))
        resource.setrlimit(resource.RLIMIT_AS, (addresses() + ADDRESSES,) * 2)
        signal.alarm(4 * TIME)
        before = peak()
        try:
            text, size = digest(call())
            said: dict[str, Any] = {"read": text, "size": size}
        except BaseException as error:
            said = {"error": type(error).__name__, "message": str(error)[:500]}
        os.write(sink, json.dumps({**said, "grew": peak() - before}).encode())
        os._exit(0)
    os.close(sink)
    with open(source, "rb") as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(text) if text else {"killed": status & 127}


def wrong(kind: Kind, path: Path, said: dict[str, Any], honest: Any, checked: bool) -> str:
    """What is wrong with an outcome; empty if nothing."""
    if "killed" in said:
        return f"killed by signal {said['killed']}"
    if said["grew"] > 2 * honest["size"] + SPARE:
        return f"took {said['grew'] >> 20} MB"
    if "error" in said:
        if said["error"] not in ENDS:
            return "an exception that is not documented"
        if path.name not in said["message"]:
            return "a message that does not name the file"
        lost = "Unable to allocate" in said["message"] or "MemoryError" in said["message"]
        return "memory was asked for" if lost else ""
    if checked and said["read"] != honest["read"]:
        return "another array"
    return "a larger array" if said["size"] > 2 * honest["size"] + 10**6 else ""


def damaged(kind: Kind, path: Path, rng: np.random.Generator) -> bool:
    """Mutate a file; return whether its checksums can show that."""
    if kind.special is not None and rng.integers(3) == 0:
        kind.special(path, rng)
        return False
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    mutate_bytes(files[int(rng.integers(len(files)))], rng)
    return kind.checked


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def run(cases: int, seed: int, only: str = "") -> None:
    """Try mutated files of all formats, or of those whose name has a word."""
    warnings.simplefilter("ignore")  # of zipfile about names that occur twice
    counts: Counter[str] = Counter()
    kinds = [kind for kind in KINDS if only in kind.name]
    with tempfile.TemporaryDirectory() as name:
        folder, honest = Path(name), {}
        for kind in kinds:  # in children, so that no thread is started here
            path = folder / "honest" / kind.name
            path.parent.mkdir(exist_ok=True)
            made = in_child(lambda kind=kind, path=path: [kind.write(path), None][1])
            assert "read" in made, (kind.name, made)
            honest[kind.name] = in_child(lambda kind=kind, path=path: kind.read(path))
            assert "read" in honest[kind.name], (kind.name, honest[kind.name])
        for case in range(cases):
            kind = kinds[case % len(kinds)]
            rng = np.random.default_rng([seed, case])
            path = folder / str(case) / kind.name
            path.parent.mkdir()
            source = folder / "honest" / kind.name
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, path)
            mutation = in_child(lambda kind=kind, path=path, rng=rng: damaged(kind, path, rng))
            assert "read" in mutation, (case, kind.name, mutation)
            checked = mutation["read"] == digest(True)[0]
            said = in_child(lambda kind=kind, path=path: kind.read(path))
            what = wrong(kind, path, said, honest[kind.name], checked)
            same = said.get("read") == honest[kind.name]["read"]
            outcome = what or ("refused" if "error" in said else "same" if same else "other array")
            counts[f"{kind.name}: {outcome}"] += 1
            if what:
                say({"case": case, "kind": kind.name, "what": what, **said})
            shutil.rmtree(path.parent)
    say({"counts": counts})


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])

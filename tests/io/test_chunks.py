"""HDF5 and Zarr files that declare more than they hold, or that refer to other files."""

from __future__ import annotations

import os
import pickle
import struct
import zlib

import h5py
import numpy as np
import pytest
import zarr

import lowtucker as lt
from lowtucker import FileFormatError
from lowtucker.operators import chunks

SHAPE = (4, 3, 2)
ROWS = np.random.default_rng(0).standard_normal((40, 24))
X = lt.random_tucker(SHAPE, (1, 1, 1), seed=0)
WANTED = ROWS @ X.full().ravel()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with h5py.File("other.h5", "w") as file:
        file["A"] = ROWS
    ROWS.tofile("other.raw")
    return tmp_path


def virtual(file, source, name):
    layout = h5py.VirtualLayout((40, 24), float)
    layout[:] = h5py.VirtualSource(source, name, (40, 24))
    file.create_virtual_dataset("A", layout)


def partly_written(file):
    file.create_dataset("A", (40, 24), chunks=(10, 24), dtype=float)[:10] = ROWS[:10]


def gzip(file, data, **options):
    made = file.create_dataset("A", (40, 24), float, chunks=(40, 24), compression="gzip", **options)
    made.id.write_direct_chunk((0, 0), zlib.compress(data))


HOSTILE = {
    "external": (
        lambda f: f.create_dataset("A", (40, 24), float, external=[("other.raw", 0, 7680)]),
        "external: its data are in other files",
    ),
    "external, missing": (
        lambda f: f.create_dataset("A", (40, 24), float, external=[("none.raw", 0, 7680)]),
        "external: its data are in other files",
    ),
    "virtual": (lambda f: virtual(f, "other.h5", "A"), "virtual: its parts are in other files"),
    "virtual, missing": (lambda f: virtual(f, "none.h5", "A"), "virtual: its parts are in"),
    "part of the chunks": (partly_written, "incomplete: 1 of its 4 chunks are stored"),
    "nothing written": (
        lambda f: f.create_dataset("A", (40, 24), float),
        "incomplete: 0 of its 7680 bytes are stored",
    ),
    "a huge shape": (
        lambda f: f.create_dataset("A", (10**12, 24), float, chunks=(1000, 24)),
        "incomplete: 0 of its 1000000000 chunks are stored",
    ),
    "a short chunk": (
        lambda f: gzip(f, bytes(7679)),
        "decompresses to 7679 bytes, expected 7680 bytes",
    ),
    "an empty chunk": (lambda f: gzip(f, b""), "decompresses to 0 bytes, expected 7680 bytes"),
    "a short chunk, shuffled": (lambda f: gzip(f, bytes(99), shuffle=True), "decompresses to 99"),
    "a long chunk": (lambda f: gzip(f, bytes(7681)), "decompresses to more than 7680 bytes"),
    "a bomb": (lambda f: gzip(f, bytes(10**6)), "decompresses to more than 7680 bytes"),
    "a large bomb": (lambda f: gzip(f, bytes(10**8)), "a chunk of 7680 bytes takes"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_hdf5(folder, case):
    write, message = HOSTILE[case]
    with h5py.File("A.h5", "w") as file:
        write(file)
    with pytest.raises(FileFormatError, match=f"A.h5, /A .*{message}"):
        lt.stored("A.h5", SHAPE).forward(X)
    with (
        h5py.File("A.h5") as file,
        pytest.raises(FileFormatError, match=f"A.h5, /A .*{message}"),
    ):
        lt.as_operator(file["A"], SHAPE).forward(X)


@pytest.mark.parametrize("size", [0, 16, 7679, 7681, 2**31])
def test_the_buffer_of_an_lzf_filter_has_the_size_of_a_chunk(folder, size):
    with h5py.File("A.h5", "w") as file:
        file.create_dataset("A", data=ROWS, chunks=(40, 24), compression="lzf")
    data = bytearray((folder / "A.h5").read_bytes())
    at = data.index(struct.pack("<I", ROWS.nbytes), data.index(b"lzf\0"))
    data[at : at + 4] = struct.pack("<I", size)
    (folder / "A.h5").write_bytes(data)
    with pytest.raises(FileFormatError, match="its filter LZF is not made for chunks of 7680 byte"):
        lt.stored("A.h5", SHAPE)


@pytest.mark.parametrize("link", [h5py.ExternalLink("other.h5", "/A"), h5py.SoftLink("/B/A")])
def test_links_are_not_followed(folder, link):
    with h5py.File("A.h5", "w") as file:
        file["A"] = link
        file["B/C"] = ROWS
    assert lt.stored("A.h5", SHAPE).source.name == "/B/C"
    with pytest.raises(ValueError, match=r"A.h5 holds no array 'A'; give .*B/C"):
        lt.stored("A.h5", SHAPE, name="A")


def test_data_sets_in_groups_are_found_once(folder):
    with h5py.File("A.h5", "w") as file:
        file["g/h/A"] = ROWS
        file["g/again"] = file["g/h/A"]
        file["g/h/loop"] = file["g"]
    assert lt.stored("A.h5", SHAPE).source.shape == (40, 24)


PIPELINES = {
    "gzip": {"compression": "gzip"},
    "lzf": {"compression": "lzf"},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf, all": {"compression": "lzf", "shuffle": True, "fletcher32": True},
    "shuffle": {"shuffle": True},
    "sum": {"fletcher32": True},
    "plain": {},
    "scaled": {"scaleoffset": 12},
}


@pytest.mark.parametrize("smooth", [False, True], ids=["noise", "zeros"])
@pytest.mark.parametrize("chunk", [(7, 24), (40, 5), (40, 24), (1, 1)], ids=str)
@pytest.mark.parametrize("how", PIPELINES)
def test_honest_hdf5_is_read(folder, how, chunk, smooth):
    rows = np.zeros((40, 24)) if smooth else np.round(ROWS, 3)
    with h5py.File("A.h5", "w") as file:
        file.create_dataset("A", data=rows, chunks=chunk, **PIPELINES[how])
    A = lt.stored("A.h5", SHAPE)
    assert np.allclose(A.forward(X), rows @ X.full().ravel(), atol=1e-9)
    assert np.allclose(A.restrict([3, 39]).forward(X), rows[[3, 39]] @ X.full().ravel(), atol=1e-9)
    assert np.allclose(pickle.loads(pickle.dumps(A)).forward(X), A.forward(X), rtol=1e-15)


def test_each_chunk_is_checked_once(folder, monkeypatch):
    with h5py.File("A.h5", "w") as file:
        file.create_dataset("A", data=ROWS, chunks=(10, 24), compression="gzip")
    A, calls = lt.stored("A.h5", SHAPE), []
    plain = chunks._deflate_length
    monkeypatch.setattr(chunks, "_deflate_length", lambda *x: calls.append(1) or plain(*x))
    for _ in range(3):
        assert np.allclose(A.forward(X), WANTED)
    assert len(calls) == 4


@pytest.mark.parametrize("kind", ["h5", "zarr"])
def test_chunks_that_do_not_fit_into_memory_are_refused(folder, monkeypatch, kind):
    if kind == "zarr":
        zarr.save_array("A.zarr", ROWS)
    else:
        with h5py.File("A.h5", "w") as file:
            file.create_dataset("A", data=ROWS, chunks=(40, 24), compression="gzip")
    monkeypatch.setattr(chunks, "available_memory", lambda: 3 * ROWS.nbytes - 1)
    with pytest.raises(FileFormatError, match=r"chunks of 7\.68 kB, which are read whole"):
        lt.stored(f"A.{kind}", SHAPE)
    monkeypatch.setattr(chunks, "available_memory", lambda: 3 * ROWS.nbytes)
    lt.stored(f"A.{kind}", SHAPE)


def zarr_of(version=3, **options):
    made = zarr.create_array(
        "A.zarr", shape=(40, 24), dtype=float, zarr_format=version, chunks=(5, 24), **options
    )
    made[:] = ROWS
    return made


@pytest.mark.parametrize("version", [2, 3])
def test_missing_zarr_chunks_are_refused(folder, version):
    zarr_of(version)
    assert np.allclose(lt.stored("A.zarr", SHAPE).forward(X), WANTED)
    os.remove("A.zarr/c/1/0" if version == 3 else "A.zarr/1.0")
    with pytest.raises(FileFormatError, match=r"A\.zarr is incomplete: 7 of its 8 chunks are st"):
        lt.stored("A.zarr", SHAPE)
    with pytest.raises(FileFormatError, match="7 of its 8 chunks"):
        lt.as_operator(zarr.open("A.zarr"), SHAPE)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
@pytest.mark.parametrize("name", ["zarr.json", ".zarray", "A/zarr.json"])
def test_pipes_in_a_zarr_folder_are_refused(folder, name):
    os.makedirs("A.zarr/A")
    if "/" in name:
        zarr.open_group("A.zarr", mode="w")
        os.makedirs("A.zarr/A", exist_ok=True)
    os.mkfifo(f"A.zarr/{name}")
    with pytest.raises(FileFormatError, match=r"is a folder, a pipe or a device; expected a file"):
        lt.stored("A.zarr", SHAPE)


@pytest.mark.parametrize("version", [2, 3])
def test_links_in_a_zarr_folder_are_not_followed(folder, version):
    zarr_of(version, compressors=None)
    name = "A.zarr/c/1/0" if version == 3 else "A.zarr/1.0"
    os.replace(name, "elsewhere")
    os.symlink(folder / "elsewhere", name)
    with pytest.raises(FileFormatError, match=r"the link (c/1/0|1\.0), which is not followed"):
        lt.stored("A.zarr", SHAPE)


def test_a_link_to_a_zarr_folder_is_followed(folder):
    zarr_of()
    os.symlink("A.zarr", "link.zarr")
    assert np.allclose(lt.stored("link.zarr", SHAPE).forward(X), WANTED)


def test_zarr_in_memory_is_checked(folder):
    made = zarr.create_array({}, shape=(40, 24), dtype=float, chunks=(5, 24))
    made[:10] = ROWS[:10]
    with pytest.raises(FileFormatError, match="incomplete: 2 of its 8 chunks are stored"):
        lt.as_operator(made, SHAPE)
    made[:] = ROWS
    assert np.allclose(lt.as_operator(made, SHAPE).forward(X), WANTED)


def test_zarr_of_a_huge_shape_is_refused(folder):
    zarr.create_array("A.zarr", shape=(10**15, 24), dtype=float, chunks=(1, 24))[:3] = 1.0
    with pytest.raises(FileFormatError, match="3 of its 1000000000000000 chunks are stored"):
        lt.stored("A.zarr", SHAPE)


@pytest.mark.parametrize("shard", [(20, 24), (30, 24)], ids=str)
def test_missing_chunks_in_zarr_shards_are_refused(folder, shard):
    made = zarr_of(shards=shard)
    assert np.allclose(lt.stored("A.zarr", SHAPE).forward(X), WANTED)
    made[5:10] = 0.0  # Zarr does not store it
    with pytest.raises(FileFormatError, match="7 of its 8 chunks in shards are stored"):
        lt.stored("A.zarr", SHAPE)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("keep", [0, 100, 959])
def test_a_zarr_chunk_of_another_shape_is_named(folder, version, keep):
    zarr_of(version, compressors=None)
    name = "A.zarr/c/1/0" if version == 3 else "A.zarr/1.0"
    data = ROWS[5:10].tobytes()[:keep]
    with open(name, "wb") as file:
        file.write(data)
    A = lt.stored("A.zarr", SHAPE)
    with pytest.raises(OSError, match=r"A\.zarr, rows 0 to 39, could not be read.*is complete"):
        A.forward(X)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("nbytes", [961, 70_000, 10**8])
def test_a_zarr_chunk_that_inflates_to_more_is_refused(folder, version, nbytes):
    numcodecs = pytest.importorskip("numcodecs")
    codec = numcodecs.Zstd()
    zarr_of(version, compressors=codec if version == 2 else zarr.codecs.ZstdCodec())
    assert np.allclose(lt.stored("A.zarr", SHAPE).forward(X), WANTED)
    name = "A.zarr/c/1/0" if version == 3 else "A.zarr/1.0"
    with open(name, "wb") as file:
        file.write(codec.encode(bytes(nbytes)))
    with pytest.raises(FileFormatError, match=f"to {nbytes} bytes, expected 960|takes"):
        lt.stored("A.zarr", SHAPE)


def test_a_zarr_chunk_that_is_too_long_is_refused(folder):
    zarr_of(compressors=None)
    with open("A.zarr/c/1/0", "ab") as file:
        file.write(bytes(10**5))
    with pytest.raises(FileFormatError, match="a chunk of 960 bytes takes 100960 in the file"):
        lt.stored("A.zarr", SHAPE)

"""Reading and writing arrays: round trips, rejected files, and malicious files."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import sys
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lowtucker._array.errors import FileFormatError
from lowtucker.io import (
    ArrayInfo,
    describe,
    guards,
    is_sparse,
    load_array,
    load_sparse,
    numpy_files,
    save_arrays,
)

A = np.arange(24.0).reshape(2, 3, 4)
TB = 10**12


def npy_bytes(header: str, version: tuple[int, int] = (1, 0), data: bytes = b"") -> bytes:
    text = header.encode("latin-1")
    size = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + size + text + data


def claim(shape: object, descr: str = "'<f8'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n"


def saved(array: object) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def zipped(path: Path, members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def save_v73(path: Path, compression: str | None = "gzip", **variables: np.ndarray) -> Path:
    """Write what MATLAB's save -v7.3 writes: reversed axes, class names, real/imag pairs."""
    names = {"f8": "double", "f4": "single", "c16": "double", "c8": "single", "b1": "logical"}
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in variables.items():
            kind = names.get(array.dtype.str[1:], str(array.dtype))
            data = array.T
            if array.dtype.kind == "c":
                part = data.real.dtype
                data = np.empty(array.T.shape, [("real", part), ("imag", part)])
                data["real"], data["imag"] = array.T.real, array.T.imag
            if array.dtype == bool:
                data = data.astype(np.uint8)
            if array.size == 0:
                data = np.array(array.shape, np.uint64)
            item = file.create_dataset(name, data=data, compression=compression)
            item.attrs["MATLAB_class"] = np.bytes_(kind)
            if array.size == 0:
                item.attrs["MATLAB_empty"] = np.uint8(1)
    return path


def write(path: Path, array: np.ndarray, how: str) -> Path:
    """Write a valid file of the kind `how`; its suffix is what follows the dash."""
    path = path / f"a.{how.split('-')[-1]}"
    if how == "npy":
        np.save(path, array)
    elif how == "npz":
        np.savez(path, a=array)
    elif how == "deflated-npz":
        np.savez_compressed(path, a=array)
    elif how == "73-mat":
        save_v73(path, a=array)
    else:
        scipy.io.savemat(path, {"a": array}, do_compression=how == "deflated-mat")
    return path


ALL = ["npy", "npz", "deflated-npz", "mat", "deflated-mat", "73-mat"]


# ---- valid files ----


@pytest.mark.parametrize("how", ALL)
@pytest.mark.parametrize("array", [A, A + 2j, A.astype("i2"), A > 5, A.astype("c8"), A[:0]])
def test_every_format_round_trips(tmp_path, how, array):
    path = write(tmp_path, array, how)
    got = load_array(path)
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, array)
    assert describe(path) == [ArrayInfo("a", array.shape, str(array.dtype), array.nbytes)]
    assert not is_sparse(path)


DTYPES = ["?", "i1", "u1", "<i2", ">i4", "<u8", "<f4", ">f8", "<c8", ">c16"]


@settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(data=st.data(), how=st.sampled_from(ALL), order=st.sampled_from("CF"))
def test_round_trip(tmp_path_factory, data, how, order):
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    array = np.asarray(data.draw(hnp.arrays(dtype, shape)), order=order)
    if how.endswith("mat"):
        array = np.atleast_2d(array)
    if how == "73-mat":
        array = array.astype(dtype.newbyteorder("="))
    folder = tmp_path_factory.mktemp("round")
    path = save_v73(folder / "a.mat", None, a=array) if how == "73-mat" else None
    got = load_array(path or write(folder, array, how))
    wanted = array.real.dtype if how == "73-mat" and not array.size else array.dtype
    assert got.dtype == wanted.newbyteorder("=")  # empty 7.3 variables store only a shape
    assert got.dtype.isnative
    np.testing.assert_array_equal(got, array)
    assert got.shape == array.shape


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions_of_the_npy_header(tmp_path, version):
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array(file, np.asfortranarray(A), version=version)
    np.testing.assert_array_equal(load_array(tmp_path / "a.npy"), A)


def test_extended_and_half_precision(tmp_path):
    for dtype in (np.longdouble, np.float16):
        np.save(tmp_path / "a.npy", A.astype(dtype))
        assert load_array(tmp_path / "a.npy").dtype == dtype


@pytest.mark.parametrize("array", [A, np.asfortranarray(A), np.array(3.0), np.zeros((0, 2))])
def test_mmap_is_read_only(tmp_path, array):
    got = load_array(write(tmp_path, array, "npy"), mmap=True, max_bytes=1000)
    assert isinstance(got, np.memmap)
    assert not got.flags.writeable
    np.testing.assert_array_equal(got, array)


def test_mmap_is_not_limited_by_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(guards, "physical_memory", lambda: 10)
    path = write(tmp_path, A, "npy")
    assert load_array(path, mmap=True).shape == A.shape
    with pytest.raises(FileFormatError, match="192 bytes of memory; at most 10"):
        load_array(path)
    with pytest.raises(FileFormatError, match="at most 10"):
        load_array(path, mmap=True, max_bytes=100)


def test_mmap_is_rejected_for_other_formats(tmp_path):
    with pytest.raises(ValueError, match=r"only \.npy files can be mapped; use mmap=False"):
        load_array(write(tmp_path, A, "npz"), mmap=True)


def test_names_of_arrays_and_case_of_the_suffix(tmp_path):
    np.savez(tmp_path / "x.npz", a=A, b=A[0])
    path = (tmp_path / "x.npz").rename(tmp_path / "x.NPZ")
    np.testing.assert_array_equal(load_array(str(path), "b"), A[0])
    with pytest.raises(ValueError, match=r"several arrays; .*: a \(2, 3, 4\), b \(3, 4\)"):
        load_array(path)
    with pytest.raises(ValueError, match=r"no array 'c'; .*: a \(2, 3, 4\), b \(3, 4\)"):
        load_array(path, "c")


def test_memory_is_read_from_the_system(monkeypatch):
    assert 10**6 < guards.physical_memory() < sys.maxsize
    monkeypatch.delattr(os, "sysconf")
    assert guards.physical_memory() == sys.maxsize


# ---- MATLAB ----


def mat5(elements: bytes, order: str = "<") -> bytes:
    mark = b"\x00\x01IM" if order == "<" else b"\x01\x00MI"
    return b"MATLAB 5.0 MAT-file".ljust(124) + mark + elements


def element(kind: int, data: bytes, order: str = "<") -> bytes:
    return struct.pack(f"{order}II", kind, len(data)) + data + b"\0" * (-len(data) % 8)


def variable(bits: int, shape: tuple[int, ...], *parts: bytes, name: bytes = b"a", order="<"):
    head = element(6, struct.pack(f"{order}II", bits, 0), order)
    dims = element(5, struct.pack(f"{order}{len(shape)}i", *shape), order)
    return element(14, head + dims + element(1, name, order) + b"".join(parts), order)


def deflated(data: bytes) -> bytes:
    packed = zlib.compress(data)
    return struct.pack("<II", 15, len(packed)) + packed


def test_doubles_stored_as_bytes_are_read_as_doubles(tmp_path):
    data = mat5(variable(6, (2, 3), element(2, bytes(range(6)))))
    got = load_array(put(tmp_path / "a.mat", data))
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, np.arange(6.0).reshape(2, 3, order="F"))


def test_many_zeros_compress_beyond_the_ratio_of_their_class(tmp_path):
    data = mat5(deflated(variable(6, (1000, 1000), element(2, bytes(10**6)))))
    path = put(tmp_path / "a.mat", data)
    assert path.stat().st_size * 1032 < 8 * 10**6
    assert load_array(path).shape == (1000, 1000)


def test_big_endian_and_old_logical(tmp_path):
    part = element(9, struct.pack(">2d", 1, 0), ">")
    data = mat5(variable(0x206, (1, 2), part, order=">"), ">")
    got = load_array(put(tmp_path / "a.mat", data))
    assert got.dtype == bool
    assert got.tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("text", "MATLAB char"),
        ({"x": 1}, "MATLAB struct"),
        (np.array([1, "x"], object), "MATLAB cell"),
    ],
)
def test_classes_without_numbers(tmp_path, value, word):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"a": value, "b": A}, do_compression=True)
    with pytest.raises(FileFormatError, match=f"a holds values of {word}; expected bool"):
        load_array(path, "a")
    assert [i.dtype for i in describe(path)] == [word, "float64"]
    np.testing.assert_array_equal(load_array(path, "b"), A)


def test_rare_classes(tmp_path):
    workspace = variable(9, (1, 4), element(2, bytes(4)), name=b"")
    opaque = element(14, element(6, struct.pack("<II", 17, 0)) + element(1, b"t") + element(1, b""))
    for word, data in {
        "MATLAB function": variable(16, (1, 1)) + workspace,
        "MATLAB object": opaque + workspace,
        "MATLAB unknown class": variable(99, (1, 1)),
        "MATLAB int8": variable(0x808, (1, 1), element(1, b"1"), element(1, b"1")),
    }.items():
        path = put(tmp_path / "a.mat", mat5(data))
        with pytest.raises(FileFormatError, match=f"holds values of {word}"):
            load_array(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (variable(6, (2, 3), element(9, bytes(40))), "is damaged: 5 numbers where 6 are declared"),
        (variable(6, (2, 3), element(99, bytes(48))), "unknown data type 99"),
        (variable(6, (2, 3), element(9, bytes(47))), "an element of 47 bytes is truncated"),
        (variable(6, (2, 3)), "an element of 8 bytes is truncated"),
        (
            variable(6, (2, 3), element(9, bytes(48)), element(9, bytes(48))),
            "data after the 6 values of",
        ),
        (variable(6, (2, -3), element(9, bytes(48))), r"claims the shape \(2, -3\)"),
        (variable(6, (2**31 - 1, 9), bytes(8)), "claims 19327352823 bytes where"),
        (variable(6, (2**31 - 1,) * 5), "is damaged: it claims the shape"),
        (variable(6, (1,) * 40, element(9, bytes(8))), "is damaged: it claims the shape"),
        (element(5, bytes(8)), "no variable begins at byte 128"),
        (deflated(variable(6, (1, 1), element(9, bytes(10**6)))), "claims 1000056 bytes where"),
        (
            deflated(variable(6, (1, 1), element(9, bytes(8))) + b"more"),
            "data after the 1 values of",
        ),
        (deflated(struct.pack("<II", 14, 2**31)), "claims 2147483648 bytes where"),
        (struct.pack("<II", 14, 2**31), "is truncated or damaged: it claims"),
        (struct.pack("<II", 15, 8) + b"rubbish!", "is damaged: .*decompress.*; export it again"),
        (b"", "holds no arrays"),
    ],
)
def test_hostile_mat(tmp_path, data, message):
    with pytest.raises(FileFormatError, match=message):
        load_array(put(tmp_path / "a.mat", mat5(data)))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "c16", "u1", "f4"])
def test_memory_of_a_mat_file_is_that_of_the_array(tmp_path, dtype, compressed):
    array = np.ones((500, 2000), dtype)
    scipy.io.savemat(tmp_path / "a.mat", {"a": array}, do_compression=compressed)
    load_array(tmp_path / "a.mat")
    tracemalloc.start()
    try:
        assert np.array_equal(load_array(tmp_path / "a.mat", max_bytes=array.nbytes), array)
        assert tracemalloc.get_traced_memory()[1] < array.nbytes + 5 * 10**6
    finally:
        tracemalloc.stop()


def test_rows_of_a_sparse_file_count_as_memory(tmp_path):
    one = scipy.sparse.coo_array(([1.0], ([0], [0])), shape=(3 * 10**8, 24))
    scipy.sparse.save_npz(tmp_path / "s.npz", one)
    with pytest.raises(FileFormatError, match=r"s\.npz needs 2700000025 bytes of memory"):
        load_sparse(tmp_path / "s.npz", max_bytes=10**9)


def test_long_name_in_a_compressed_variable_is_not_decompressed(tmp_path):
    path = put(tmp_path / "a.mat", mat5(deflated(variable(6, (1, 1), name=b"n" * 10_000_000))))
    assert peak_of_refusal(path, "is truncated") < 10**6


def test_version_73(tmp_path):
    path = save_v73(tmp_path / "a.mat", a=A, b=A + 1j, c=A > 3, e=np.zeros((0, 3)))
    with h5py.File(path, "a") as file:
        file.create_group("#refs#")
        file.create_dataset("raw", data=A)
        file.create_dataset("t", data=np.zeros((3, 1), "u2")).attrs["MATLAB_class"] = "char"
        file.create_group("s").attrs["MATLAB_class"] = np.bytes_("struct")
        file["far"] = h5py.ExternalLink("/etc/passwd", "x")
        file["soft"] = h5py.SoftLink("/a")
        sparse = file.create_group("sp")
        sparse.attrs["MATLAB_sparse"] = np.uint64(5)
        sparse["jc"] = np.zeros(4, "u8")
    assert describe(path)[:2] == [
        ArrayInfo("a", (2, 3, 4), "float64", 192),
        ArrayInfo("b", (2, 3, 4), "complex128", 384),
    ]
    np.testing.assert_array_equal(load_array(path, "b"), A + 1j)
    assert load_array(path, "c").dtype == bool
    assert load_array(path, "e").shape == (0, 3)
    for name, word in {
        "raw": "MATLAB no MATLAB_class",
        "t": "MATLAB char",
        "s": "MATLAB struct",
        "far": "a link",
        "soft": "a link",
    }.items():
        with pytest.raises(FileFormatError, match=f"{name} holds values of {word}"):
            load_array(path, name)
    assert is_sparse(path, "sp")
    with pytest.raises(FileFormatError, match="sparse matrix; read it with load_sparse"):
        load_array(path, "sp")
    with pytest.raises(FileFormatError, match=r"version 7.3, which is not supported; save it"):
        load_sparse(path, "sp")


def v73_with(path: Path, **options: object) -> Path:
    with h5py.File(path, "w", userblock_size=512) as file:
        item = file.create_dataset("a", **options)
        item.attrs["MATLAB_class"] = np.bytes_("double")
    return path


def test_hostile_version_73(tmp_path):
    path = tmp_path / "a.mat"
    v73_with(path, shape=(TB // 8,), dtype="f8", chunks=(1000,))
    with pytest.raises(FileFormatError, match="incomplete: 0 of its 125000000 chunks are stored"):
        load_array(path)
    v73_with(path, shape=(1,), dtype="f8", chunks=(10**8,), maxshape=(None,))
    with pytest.raises(FileFormatError, match="a is not stored in MATLAB's layout"):
        load_array(path)
    v73_with(path, shape=(4,), dtype="f8", external=[("/etc/passwd", 0, 32)])
    with pytest.raises(FileFormatError, match="a, is external: its data are in other files"):
        load_array(path)
    v73_with(path, data=np.array([10**6, 10**6], "u8"))
    with h5py.File(path, "a") as file:
        file["a"].attrs["MATLAB_empty"] = np.uint8(1)
    assert load_array(path).shape == (2,)
    v73_with(path, data=["text"])
    with pytest.raises(FileFormatError, match="a holds"):
        load_array(path)


def test_version_73_without_h5py(tmp_path, monkeypatch):
    path = write(tmp_path, A, "73-mat")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r'pip install "lowtucker\[hdf5\]"'):
        load_array(path)


# ---- content that does not match the suffix ----


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".mat"])
@pytest.mark.parametrize(
    ("data", "looks"),
    [
        (b"", "is empty"),
        (b"\n<!DOCTYPE html><html><body>Sign in</body></html>", "is an HTML page"),
        (pickle.dumps([1, 2]), "is a pickle, which is never read"),
        (b"1.0,2.0\n3.0,4.0\n", "is plain text"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
        (b"\x1f\x8b\x08\x00" + bytes(9), "is a gzip file; unpack it"),
        (b"\x89PNG\r\n\x1a\n" + bytes(99), "is of an unknown format"),
        (bytes(2000), "is of an unknown format"),
    ],
)
def test_unsupported_content(tmp_path, suffix, data, looks):
    path = put(tmp_path / f"a{suffix}", data)
    with pytest.raises(FileFormatError, match=looks) as caught:
        load_array(path)
    assert str(path) in str(caught.value)
    assert f"expected the content of a {suffix} file" in str(caught.value)
    for function in (describe, is_sparse, load_sparse):
        with pytest.raises(FileFormatError, match=looks):
            function(path)


@pytest.mark.parametrize(
    ("how", "suffix", "looks"),
    [
        ("npz", ".npy", "is a zip archive"),
        ("npy", ".npz", r"is a NumPy \.npy file"),
        ("mat", ".npy", "is a MATLAB version 5 file"),
        ("73-mat", ".npz", "is an HDF5 file"),
        ("npz", ".mat", "is a zip archive"),
    ],
)
def test_content_of_another_suffix(tmp_path, how, suffix, looks):
    path = write(tmp_path, A, how).rename(tmp_path / f"b{suffix}")
    with pytest.raises(FileFormatError, match=f"{looks}.*or correct the suffix"):
        load_array(path)


def test_paths(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.npy does not exist"):
        load_array(tmp_path / "gone.npy")
    (tmp_path / "d.npy").mkdir()
    with pytest.raises(FileFormatError, match="is a directory"):
        load_array(tmp_path / "d.npy")
    with pytest.raises(FileFormatError, match=r"suffix '\.csv'; supported: \.npy, \.npz, \.mat"):
        load_array(put(tmp_path / "a.csv", b"1"))


# ---- hostile .npy ----


def peak_of_refusal(path: Path, message: str, **options: object) -> int:
    """Peak memory while a file is rejected."""
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError, match=message):
            load_array(path, **options)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_small_file_that_declares_a_terabyte(tmp_path, version):
    path = put(tmp_path / "a.npy", npy_bytes(claim((TB // 8,)), version, bytes(900)))
    assert peak_of_refusal(path, r"claims 10000000000\d\d bytes .* at most 9\d\d") < 10**6


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((-1, 5), r"claims the shape \(-1, 5\)"),
        ((0, 10**30), "claims the shape"),
        ((10**30, 10**30), "claims the shape"),
        ((1,) * 40, "claims the shape"),
        ("[2, 3]", "is damaged: shape is not valid"),
        ("(2.0,)", "is damaged: shape is not valid"),
        ("(" + "-" * 5000 + "1,)", "is damaged"),
        ("(" * 3000 + ")" * 3000, "is damaged"),
    ],
)
def test_absurd_shapes(tmp_path, shape, message):
    with pytest.raises(FileFormatError, match=message):
        load_array(put(tmp_path / "a.npy", npy_bytes(claim(shape), data=bytes(8))))


@pytest.mark.parametrize(
    "array",
    [
        np.array(["text"]),
        np.array([b"text"]),
        np.array(["2020-01-01"], "M8[D]"),
        np.array([1], "m8[s]"),
        np.zeros(2, "V4"),
        np.zeros(2, [("x", "f8"), ("y", "i4")]),
        np.zeros(2, [("é", "f8")]),
    ],
)
@pytest.mark.parametrize("how", ["npy", "npz"])
def test_dtypes_that_are_not_numeric(tmp_path, array, how):
    with pytest.raises(FileFormatError, match=r"a holds values of .*; expected bool, integer"):
        load_array(write(tmp_path, array, how))


@pytest.mark.filterwarnings("ignore:Stored array in format 2.0")
def test_objects_are_never_unpickled(tmp_path):
    array = np.array([Bomb(), None])
    for path in (
        put(tmp_path / "a.npy", saved(array)),
        zipped(tmp_path / "a.npz", {"a.npy": saved(array)}),
    ):
        assert describe(path)[0].dtype == "object"
        with pytest.raises(FileFormatError, match="a holds pickled Python objects; expected"):
            load_array(path)


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def test_other_headers(tmp_path):
    path = tmp_path / "a.npy"
    with pytest.raises(FileFormatError, match=r"has \.npy version \(9, 0\)"):
        load_array(put(path, npy_bytes(claim((1,)), (9, 0), bytes(8))))
    with pytest.raises(FileFormatError, match=r"is damaged: Header .* is large"):
        load_array(put(path, npy_bytes(claim((1,)) + " " * 12_000, (2, 0), bytes(8))))
    with pytest.raises(FileFormatError, match="is damaged: descr is not a valid dtype"):
        load_array(put(path, npy_bytes(claim((1,), "'nonsense'"), data=bytes(8))))
    with pytest.raises(FileFormatError, match="has 3 bytes after its array"):
        load_array(put(path, saved(A) + b"end"))
    with pytest.raises(FileFormatError, match="claims 320 bytes where the file holds at most 319"):
        load_array(put(path, saved(A)[:-1]))


def test_file_that_shrinks_between_header_and_data(tmp_path):
    header = numpy_files._file_header(write(tmp_path, A, "npy"))
    with pytest.raises(FileFormatError, match="claims 192 bytes where the file holds at most 100"):
        numpy_files._npy_data(io.BytesIO(saved(A)[:228]), header, "a.npy")


# ---- hostile .npz ----


def patched(path: Path, **fields: int) -> Path:
    """Change the sizes of the only member in both zip headers."""
    data, places = bytearray(path.read_bytes()), {"crc": 0, "stored": 4, "size": 8}
    central = data.index(b"PK\x01\x02")
    for field, value in fields.items():
        struct.pack_into("<I", data, 14 + places[field], value)
        struct.pack_into("<I", data, central + 16 + places[field], value)
    return put(path, bytes(data))


def test_bomb_with_correct_size_is_rejected_before_decompression(tmp_path):
    path = zipped(tmp_path / "a.npz", {"a.npy": saved(np.zeros(10**6))})
    assert path.stat().st_size < 10**5
    assert describe(path) == [ArrayInfo("a", (10**6,), "float64", 8 * 10**6)]
    message = "needs 8000000 bytes of memory; at most 1000000 are allowed"
    assert peak_of_refusal(path, message, max_bytes=10**6) < 10**6
    assert load_array(path, max_bytes=8 * 10**6).shape == (10**6,)


def test_bomb_with_wrong_size(tmp_path):
    bomb = {"a.npy": saved(np.zeros(4)) + bytes(10**7)}
    path = patched(zipped(tmp_path / "a.npz", bomb), size=160)
    assert peak_of_refusal(path, "member a.npy, is damaged: .*CRC") < 2 * 10**6
    path = patched(zipped(tmp_path / "a.npz", bomb))
    assert peak_of_refusal(path, "has 10000000 bytes after its array") < 10**6


def test_small_member_that_declares_a_large_size(tmp_path):
    data = npy_bytes(claim((10**8,)))
    path = patched(zipped(tmp_path / "a.npz", {"a.npy": data}), size=len(data) + 8 * 10**8)
    assert peak_of_refusal(path, "claims 8000000.. bytes where the file holds at most") < 10**6
    path = patched(path, stored=2**31)
    assert peak_of_refusal(path, "claims 8000000.. bytes where the file holds at most") < 10**6
    path = zipped(tmp_path / "b.npz", {"a.npy": data})
    assert peak_of_refusal(path, "claims 8000000.. bytes where") < 10**6


def test_huge_header_of_a_member_is_not_decompressed(tmp_path):
    data = npy_bytes(claim((1,)) + " " * 10_000_000, (2, 0), bytes(8))
    path = zipped(tmp_path / "a.npz", {"a.npy": data})
    del data
    assert peak_of_refusal(path, "EOF: reading array header") < 10**6


def test_an_archive_of_very_many_arrays_is_refused(tmp_path, monkeypatch):
    np.savez(tmp_path / "many.npz", *np.ones((5, 2)))
    monkeypatch.setattr(numpy_files, "_MOST_MEMBERS", 5)
    assert len(describe(tmp_path / "many.npz")) == 5
    monkeypatch.setattr(numpy_files, "_MOST_MEMBERS", 4)
    with pytest.raises(FileFormatError, match=r"many\.npz holds 5 arrays; at most 4 are read"):
        describe(tmp_path / "many.npz")


def test_other_archives(tmp_path):
    path = tmp_path / "a.npz"
    with pytest.raises(FileFormatError, match="holds no arrays; expected at least one"):
        load_array(zipped(path, {"notes.txt": b"text"}))
    with pytest.raises(FileFormatError, match="holds no arrays"):
        load_array(zipped(path, {}))
    with pytest.raises(FileFormatError, match="neither stored nor deflated"):
        load_array(zipped(path, {"a.npy": saved(A)}, zipfile.ZIP_BZIP2))
    with pytest.raises(FileFormatError, match=r"member a\.npy, is damaged: .*magic"):
        load_array(zipped(path, {"a.npy": b"<html>" * 20}))
    with pytest.raises(FileFormatError, match=r"member a\.npy, is damaged: Bad CRC-32"):
        load_array(patched(zipped(path, {"a.npy": saved(A)}), crc=1))
    data = bytearray(zipped(path, {"a.npy": saved(A)}).read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(FileFormatError, match="is encrypted; export it without a password"):
        load_array(put(path, bytes(data)))
    assert load_array(zipped(path, {"a.npy": saved(A), "notes.txt": b"text"})).shape == A.shape


# ---- damage anywhere ----


def value_or_message(reader, path: Path):
    try:
        return reader(path, max_bytes=10**6)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("how", ALL)
def test_truncation_anywhere(tmp_path, how):
    path = write(tmp_path, A, how)
    data = path.read_bytes()
    cuts = {*range(0, len(data), 7 if len(data) < 2000 else 61), len(data) - 1}
    for cut in sorted(cuts):
        put(path, data[:cut])
        for function in (load_array, describe):
            with pytest.raises(FileFormatError):
                function(path)


@pytest.mark.parametrize("how", ALL)
def test_random_corruption(tmp_path, how):
    path, rng = write(tmp_path, A, how), random.Random(20240501)
    data = path.read_bytes()
    refused = 0
    for _ in range(120):
        broken = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 8])):
            broken[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0xFF, rng.randrange(256)])
        put(path, bytes(broken))
        outcome = value_or_message(load_array, path)
        refused += isinstance(outcome, str)
        assert isinstance(outcome, np.ndarray) or str(path) in outcome
    assert refused > 10


# ---- sparse ----

S = scipy.sparse.csr_array(np.diag([1.0, 0.0, 3.0, 0.0])[:, :3])


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("compressed", [False, True])
def test_sparse_npz(tmp_path, form, compressed):
    path = tmp_path / "s.npz"
    scipy.sparse.save_npz(path, S.asformat(form), compressed=compressed)
    assert is_sparse(path)
    assert not is_sparse(path, "data")
    got = load_sparse(path)
    assert isinstance(got, scipy.sparse.csr_array)
    np.testing.assert_array_equal(got.toarray(), S.toarray())
    with pytest.raises(FileFormatError, match="holds a sparse matrix; read it with load_sparse"):
        load_array(path)
    with pytest.raises(FileFormatError, match="bytes of memory; at most 10"):
        load_sparse(path, max_bytes=10)


@pytest.mark.parametrize("matrix", [S, S * 1j, S.astype(bool), S * 0])
@pytest.mark.parametrize("compressed", [False, True])
def test_sparse_mat(tmp_path, matrix, compressed):
    path = tmp_path / "s.mat"
    scipy.io.savemat(path, {"s": matrix, "a": A}, do_compression=compressed)
    assert is_sparse(path, "s")
    assert not is_sparse(path, "a")
    got = load_sparse(path, "s")
    assert isinstance(got, scipy.sparse.csr_array)
    assert got.dtype == matrix.dtype
    np.testing.assert_array_equal(got.toarray(), matrix.toarray())
    with pytest.raises(FileFormatError, match="s is a sparse matrix; read it with load_sparse"):
        load_array(path, "s")
    with pytest.raises(FileFormatError, match="holds no sparse matrix; read it with load_array"):
        load_sparse(path, "a")
    with pytest.raises(ValueError, match="several arrays"):
        is_sparse(path)


CSC = {"format": b"csc", "data": [1.0], "indices": [0], "indptr": [0, 1], "shape": [3, 1]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": [10**6]}, "is damaged"),
        ({"indices": [-(10**6)]}, "is damaged"),
        ({"indptr": [0, 10**6]}, "is damaged"),
        (
            {"indptr": [0, 10**6, 0], "shape": [3, 2]},
            "is damaged: matrix of shape .* pointers that do not fit",
        ),
        ({"shape": [10**14, 1]}, "needs 900000000000025 bytes of memory"),
        ({"format": b"lil"}, "is damaged"),
        ({"format": b"x" * 100}, "format holds values of"),
        ({"data": np.array([None])}, "data holds pickled Python objects"),
        ({"format": np.array([None])}, "is damaged: Object arrays cannot be loaded"),
        ({"indices": ["a"]}, "indices holds values of"),
    ],
)
def test_hostile_sparse_npz(tmp_path, change, message):
    np.savez(tmp_path / "s.npz", allow_pickle=True, **(CSC | change))
    with pytest.raises(FileFormatError, match=message):
        load_sparse(tmp_path / "s.npz")


def test_sparse_of_three_axes(tmp_path):
    coords = np.zeros((3, 1), int)
    fields = {"format": b"coo", "data": [1.0], "coords": coords, "shape": [2, 2, 2]}
    np.savez(tmp_path / "s.npz", _is_array=True, **fields)
    with pytest.raises(FileFormatError, match="has 3 axes; expected a sparse matrix of 2"):
        load_sparse(tmp_path / "s.npz")


@pytest.mark.parametrize("suffix", ["npz", "mat"])
def test_random_corruption_of_sparse_files(tmp_path, suffix):
    path, rng = tmp_path / f"s.{suffix}", random.Random(7)
    if suffix == "npz":
        scipy.sparse.save_npz(path, S.tocsc(), compressed=False)
    else:
        scipy.io.savemat(path, {"s": S})
    data = path.read_bytes()
    refused = 0
    for _ in range(120):
        broken = bytearray(data)
        broken[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0xFF, rng.randrange(256)])
        put(path, bytes(broken))
        outcome = value_or_message(load_sparse, path)
        refused += isinstance(outcome, str)
        assert isinstance(outcome, scipy.sparse.csr_array) or str(path) in outcome
    assert refused > 10


# ---- writing ----


def test_save_and_load(tmp_path):
    path = tmp_path / "out.npz"
    arrays = {"A": A, "file": [1, 2], "ä b": 3.0, "F": np.asfortranarray(A + 1j)}
    save_arrays(path, arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(load_array(path, name), array)
        with np.load(path) as loaded:
            np.testing.assert_array_equal(loaded[name], array)
    first = path.read_bytes()
    save_arrays(str(path), arrays, overwrite=True)
    assert path.read_bytes() == first
    assert os.listdir(tmp_path) == ["out.npz"]


def test_existing_file_is_kept(tmp_path):
    path = put(tmp_path / "out.npz", b"old")
    with pytest.raises(FileExistsError, match=r"out\.npz exists; pass overwrite=True"):
        save_arrays(path, {"a": A})
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ({"a": A, "b": np.array([None])}, TypeError, "'b' has dtype object; expected bool"),
        ({"a": S}, TypeError, "'a' has dtype object"),
        ({"a": "text"}, TypeError, "'a' has dtype <U4"),
        ({"../a": A}, ValueError, "expected a non-empty name without slashes"),
        ({"": A}, ValueError, "expected a non-empty name"),
        ({}, ValueError, "no arrays given"),
        ({"\ud800": A}, ValueError, "surrogates"),
    ],
)
def test_rejected_arrays_keep_the_old_file(tmp_path, arrays, error, message):
    path = put(tmp_path / "out.npz", b"old")
    with pytest.raises(error, match=message):
        save_arrays(path, arrays, overwrite=True)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.npz"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch, step):
    def fail(*_):
        raise OSError("disk full")

    path = put(tmp_path / "out.npz", b"old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        save_arrays(path, {"a": A}, overwrite=True)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.npz"]


def test_invalid_targets(tmp_path):
    with pytest.raises(ValueError, match=r"a\.npy; expected a path ending in \.npz"):
        save_arrays(tmp_path / "a.npy", {"a": A})
    with pytest.raises(FileNotFoundError, match="no/such"):
        save_arrays(tmp_path / "no/such/a.npz", {"a": A})

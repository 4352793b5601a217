"""Clips from videos, images and arrays: valid and invalid files, and GIF round trips."""

from __future__ import annotations

import os
import pickle
import random
import struct
import subprocess
import sys
import tracemalloc
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from lowtucker._array.errors import FileFormatError
from lowtucker.lab.video import clips as video
from lowtucker.lab.video import crop, image_files, load_video, save_gif

av = pytest.importorskip("av", reason="av is not installed: pip install lowtucker[video]")
Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

R, C, T = 24, 32, 12
ROW, COLUMN, FRAME = np.ogrid[:R, :C, :T]
GREY = np.asarray(40 + 3 * ROW + 2 * COLUMN + 4 * FRAME, np.uint8)  # a moving gradient
CLIP = GREY / 255


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def codec(name: str) -> str:
    try:
        av.codec.Codec(name, "w")
    except av.codec.codec.UnknownCodecError:
        pytest.skip(f"this build of PyAV has no codec {name}")
    return name


def write_video(path, name, pix_fmt="yuv420p", frames=GREY, options=None, container=None):
    """Write a clip of bytes (rows, columns, frames), or of colours (rows, columns, frames, 3)."""
    with av.open(str(path), "w", container_options=container or {}) as file:
        stream = file.add_stream(codec(name), rate=10, options=options or {})
        stream.height, stream.width = frames.shape[:2]
        stream.pix_fmt = pix_fmt
        stream.thread_count = 1
        for frame in np.moveaxis(frames, 2, 0):
            kind = "rgb24" if frame.ndim == 3 else "gray16le" if frame.itemsize == 2 else "gray"
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format=kind)
            file.mux(stream.encode(picture))
        file.mux(stream.encode(None))
    return path


FAST = {"movflags": "faststart"}
VIDEOS = {  # file: codec, pixel format, options, largest error in grey levels
    "lossless.avi": ("ffv1", "gray", {}, 0),
    "mpeg4.avi": ("mpeg4", "yuv420p", {"qmin": "1", "qmax": "2"}, 8),
    "x264.mp4": ("libx264", "yuv420p", {"crf": "1"}, 3),
    "mpeg4.mp4": ("mpeg4", "yuv420p", {"qmin": "1", "qmax": "2"}, 8),
    "fast.mov": ("libx264", "yuv420p", {"crf": "1"}, 3),
    "vp8.webm": ("libvpx", "yuv420p", {"crf": "4", "b": "2M"}, 8),
    "lossless.mkv": ("ffv1", "gray", {}, 0),
    "lossless.gif": ("gif", "gray", {}, 0),
}


def write(folder: Path, name: str) -> Path:
    coder, pix_fmt, options, _ = VIDEOS[name]
    container = FAST if name.startswith("fast") else None
    return write_video(folder / name, coder, pix_fmt, options=options, container=container)


# ---- valid files ----


@pytest.mark.parametrize("name", VIDEOS)
def test_videos(tmp_path, name):
    path = write(tmp_path, name)
    got = load_video(path)
    assert got.dtype == np.float64
    assert got.flags.c_contiguous
    assert got.shape == CLIP.shape
    assert got.min() >= 0
    assert got.max() <= 1
    np.testing.assert_allclose(got, CLIP, rtol=0, atol=1e-15 + VIDEOS[name][3] / 255)
    part = load_video(str(path), frames=(3, 7), rows=(2, 9), columns=[5, np.int64(32)])
    np.testing.assert_array_equal(part, got[1:9, 4:32, 2:7])
    assert part.flags.c_contiguous
    np.testing.assert_array_equal(load_video(path, frames=(T, T))[:, :, 0], got[:, :, -1])


def test_suffix_in_capitals(tmp_path):
    path = write(tmp_path, "lossless.avi").rename(tmp_path / "A.AVI")
    np.testing.assert_array_equal(load_video(path), CLIP)


def test_sixteen_bits(tmp_path):
    deep = (GREY.astype(np.uint16) << 8) + 77
    path = write_video(tmp_path / "a.mkv", "ffv1", "gray16le", deep)
    np.testing.assert_allclose(load_video(path), deep / 65535, rtol=0, atol=1e-15)


COLOURS = np.stack([GREY, GREY[::-1], np.full_like(GREY, 90)], axis=-1)  # rows, cols, frames, 3
LUMA = COLOURS @ np.array([0.299, 0.587, 0.114]) / 255


def test_colours_of_a_video(tmp_path):
    path = write_video(tmp_path / "a.avi", "ffv1", "bgr0", COLOURS)
    np.testing.assert_allclose(load_video(path), LUMA, rtol=0, atol=0.6 / 255)


def test_only_the_frames_up_to_the_last_are_decoded(tmp_path):
    """Damage after the crop is not noticed."""
    path = write(tmp_path, "fast.mov")
    wanted = load_video(path)[:, :, :3]
    put(path, path.read_bytes()[:-200] + b"\xff" * 200)
    np.testing.assert_array_equal(load_video(path, frames=(1, 3)), wanted)
    with pytest.raises(FileFormatError, match=r"fast\.mov is damaged"):
        load_video(path)


def write_images(folder: Path, names: list[str], frames=GREY) -> Path:
    for frame, name in enumerate(names):
        Image.fromarray(np.ascontiguousarray(frames[:, :, frame])).save(folder / name)
    return folder


def test_folder_in_natural_order(tmp_path):
    names = ["Frame1.png", "frame2.bmp", "frame10.tif", "frame10b.PNG", "frame11.tiff"]
    write_images(tmp_path, names)
    put(tmp_path / "notes.txt", b"text")
    put(tmp_path / "._frame1.png", b"of macOS")
    (tmp_path / "frame3.png").mkdir()
    np.testing.assert_array_equal(load_video(tmp_path), CLIP[:, :, :5])
    part = load_video(tmp_path, frames=(2, 4), rows=(3, 3), columns=(1, 9))
    np.testing.assert_array_equal(part, CLIP[2:3, :9, 1:4])
    with pytest.raises(ValueError, match=r"frames 4:6 are outside .* which has frames 1:5"):
        load_video(tmp_path, frames=(4, 6))


@pytest.mark.parametrize("suffix", ["jpg", "jpeg", "webp"])
def test_lossy_images(tmp_path, suffix):
    Image.fromarray(GREY[:, :, 0]).save(tmp_path / f"a.{suffix}", quality=95)
    np.testing.assert_allclose(load_video(tmp_path)[:, :, 0], CLIP[:, :, 0], atol=6 / 255)


@pytest.mark.parametrize(
    ("mode", "suffix", "wanted"),
    [
        ("1", "png", [0.0, 1.0]),
        ("L", "png", [51 / 255, 1.0]),
        ("LA", "png", [51 / 255, 1.0]),
        ("P", "png", [51 / 255, 1.0]),
        ("RGB", "png", [51 / 255, 1.0]),
        ("RGBA", "png", [51 / 255, 1.0]),
        ("CMYK", "tif", [51 / 255, 1.0]),
        ("I;16", "png", [51 / 65535, 255 / 65535]),
        ("I", "tif", [51 / 65535, 255 / 65535]),
    ],
)
def test_modes_of_images(tmp_path, mode, suffix, wanted):
    image = Image.fromarray(np.array([[51, 255]], np.uint8))
    image = image.convert("RGB") if mode in ("P", "CMYK") else image
    image.convert(mode, dither=Image.Dither.NONE).save(tmp_path / f"a.{suffix}")
    np.testing.assert_allclose(load_video(tmp_path)[0, :, 0], wanted, rtol=0, atol=1e-15)


def test_colours_of_images_and_alpha(tmp_path):
    alpha = np.concatenate([COLOURS, np.full_like(COLOURS[..., :1], 10)], axis=-1)
    write_images(tmp_path, ["0.png", "1.png"], alpha)
    np.testing.assert_allclose(load_video(tmp_path), LUMA[:, :, :2], rtol=0, atol=1e-15)


def test_floats_in_images(tmp_path):
    Image.fromarray(CLIP[:, :, 0].astype("f4")).save(tmp_path / "a.tif")
    np.testing.assert_array_equal(load_video(tmp_path)[:, :, 0], CLIP[:, :, 0].astype("f4"))
    Image.fromarray(GREY[:, :, 0].astype("f4")).save(tmp_path / "a.tif")
    with pytest.raises(ValueError, match=r"a\.tif holds values from 40 to 171; .* by 255"):
        load_video(tmp_path)


def test_photograph_with_a_preview_is_one_image(tmp_path):
    image = Image.fromarray(GREY[:, :, 0])
    image.save(tmp_path / "a.mpo", save_all=True, append_images=[image])
    (tmp_path / "a.mpo").rename(tmp_path / "a.jpg")
    assert load_video(tmp_path).shape == (R, C, 1)


def save(path: Path, array: np.ndarray) -> Path:
    if path.suffix == ".mat":
        scipy.io.savemat(path, {"a": array})
    elif path.suffix == ".npz":
        np.savez(path, a=array)
    else:
        np.save(path, array)
    return path


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".mat"])
@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (GREY, CLIP),
        (CLIP, CLIP),
        (np.asfortranarray(CLIP), CLIP),
        (CLIP.astype("f4"), CLIP.astype("f4")),
        (GREY.astype("i2"), GREY / 32767),
        (GREY.astype(">u2"), GREY / 65535),
        (GREY > 100, GREY > 100),
        (COLOURS.transpose(0, 1, 3, 2), LUMA),
        (COLOURS.transpose(2, 0, 1, 3), LUMA),
        (COLOURS.transpose(2, 0, 1, 3) / np.float32(255), LUMA),
        (np.full((5, 4, 3, 2), 255, np.uint8), np.ones((5, 4, 2))),
    ],
)
def test_arrays(tmp_path, suffix, array, wanted):
    path = save(tmp_path / f"a{suffix}", array)
    got = load_video(path)
    assert type(got) is np.ndarray
    assert got.dtype == np.float64
    assert got.flags.c_contiguous
    assert got.flags.writeable
    assert got.max() <= 1
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-7 if array.dtype == "f4" else 1e-15)
    part = load_video(path, rows=(2, 3), columns=(1, 2), frames=(2, 2))
    np.testing.assert_array_equal(part, got[1:3, :2, 1:2])
    with pytest.raises(ValueError, match=r"columns 4:99 are outside the clip, which has"):
        load_video(path, columns=(4, 99))


def test_colours_where_both_layouts_fit(tmp_path):
    array = np.zeros((3, 4, 3, 3), np.uint8)
    assert load_video(save(tmp_path / "a.mat", array)).shape == (3, 4, 3)
    assert load_video(save(tmp_path / "a.npz", array)).shape == (4, 3, 3)
    assert load_video(save(tmp_path / "a.npy", array)).shape == (4, 3, 3)


def test_names_of_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", a=CLIP, b=CLIP[:3])
    assert load_video(tmp_path / "a.npz", name="b").shape == (3, C, T)
    with pytest.raises(ValueError, match="several arrays; give the name"):
        load_video(tmp_path / "a.npz")
    for path in (write(tmp_path, "lossless.gif"), tmp_path):
        with pytest.raises(ValueError, match=r"name='b': .* holds no named arrays"):
            load_video(path, name="b")


def peak(call) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_crop_of_a_huge_npy_reads_the_crop_only(tmp_path):
    path = tmp_path / "a.npy"
    huge = np.lib.format.open_memmap(path, "w+", np.uint8, (4000, 4000, 1000))  # a sparse file
    huge[2, 3, 4] = 255
    del huge
    load_video(save(tmp_path / "b.npy", CLIP))
    crop = {"rows": (1, 9), "columns": (1, 9), "frames": (1, 9)}
    assert peak(lambda: load_video(path, **crop)) < 10**6
    assert load_video(path, **crop, max_bytes=9**3 * 8)[2, 3, 4] == 1
    with pytest.raises(FileFormatError, match=r"\(9, 9, 9\) needs 5832 bytes of memory; at most 5"):
        load_video(path, **crop, max_bytes=5)


# ---- arguments ----


@pytest.mark.parametrize("argument", ["frames", "rows", "columns"])
@pytest.mark.parametrize(
    "span",
    [(0, 3), (-2, 3), (3, 2), (1.0, 2), (1, 2, 3), (1,), 5, "12", ("1", "2"), (1, None), (2, 0)],
)
def test_invalid_spans(tmp_path, argument, span):
    path = save(tmp_path / "a.npy", CLIP)
    with pytest.raises(ValueError, match=rf"^{argument}=.*; expected \(first, last\)"):
        load_video(path, **{argument: span})


def test_crops_outside_a_video(tmp_path):
    for name in ("lossless.avi", "lossless.mkv", "lossless.gif"):  # .mkv: unknown length
        path = write(tmp_path, name)
        with pytest.raises(
            ValueError, match=r"^rows 61:90 are outside the clip, which has rows 1:24; choose"
        ) as caught:
            load_video(path, rows=(61, 90))
        assert not isinstance(caught.value, FileFormatError)
        with pytest.raises(ValueError, match=r"columns 1:33 are .* which has columns 1:32"):
            load_video(path, columns=(1, 33))
        for span in ((3, 13), (500, 10**12)):
            with pytest.raises(ValueError, match=r"frames .* are .* which has frames 1:12"):
                load_video(path, frames=span)


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.mp4 does not exist; check the path"):
        load_video(tmp_path / "no.mp4")
    with pytest.raises(FileFormatError, match=r"holds no images; expected some of \.png"):
        load_video(tmp_path)
    path = put(tmp_path / "a.wmv", b"x")
    with pytest.raises(ValueError, match=r"suffix '\.wmv'; clips are read from \.mp4,.*\.mat, or"):
        load_video(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe.mp4")
    with pytest.raises(FileFormatError, match="is a device; expected a file"):
        load_video(tmp_path / "pipe.mp4")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (CLIP + 0.9, r"from 1\.05686 to 1\.7431\d; expected floats between 0 and 1.*by 255"),
        (CLIP * -1, r"from -0\.\d+ to -0\.\d+; expected"),
        (GREY * 1.0, "from 40 to 215; expected floats between 0 and 1"),
        (np.where(GREY == 40, np.nan, CLIP), "from nan to nan; .*replace NaN"),
        (np.where(GREY == 40, np.inf, CLIP), "to inf; expected"),
        (GREY.astype("i2") - 50, "from -10 to 165; .* integers that are not negative"),
        (CLIP * 1j, "holds complex numbers; expected real ones"),
        (CLIP[0], r"has the shape \(32, 12\); expected \(rows, columns, frames\)"),
        (CLIP[..., None], r"shape \(24, 32, 12, 1\); expected .* or in colour \(rows, columns, 3"),
        (CLIP[:0], r"has the shape \(0, 32, 12\)"),
    ],
)
def test_arrays_that_are_not_clips(tmp_path, array, message):
    with pytest.raises(ValueError, match=message):
        load_video(save(tmp_path / "a.npy", array))


@pytest.mark.parametrize("module", ["av", "PIL.Image"])
def test_missing_decoders(tmp_path, monkeypatch, module):
    write_images(tmp_path, ["0.png"])
    path = write(tmp_path, "lossless.gif") if module == "av" else tmp_path
    monkeypatch.setitem(sys.modules, module, None)
    message = rf'{module} is not installed. Try: pip install "lowtucker\[video\]"'
    with pytest.raises(ImportError, match=message):
        load_video(path)
    if module == "av":
        with pytest.raises(ImportError, match=message):
            save_gif(path, CLIP)
        assert load_video(tmp_path).shape == (R, C, 1)  # images need no PyAV


def test_import_is_light():
    code = (
        "import sys, lowtucker.io; print([m for m in ('av', 'imageio', 'PIL') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


# ---- content that does not match the suffix ----


CONTAINERS = [".mp4", ".m4v", ".mov", ".avi", ".webm", ".mkv", ".gif"]


@pytest.mark.parametrize("suffix", CONTAINERS)
@pytest.mark.parametrize(
    ("data", "looks"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>404</html>", "is an HTML page, perhaps from a failed download"),
        (b"hello, world\n" * 100, "is plain text"),
        (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", "is plain text"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "is plain text"),
        (pickle.dumps({"a": 1}), "is a pickle, which is never read"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
        (b"\x93NUMPY\x01\x00", r"is a NumPy \.npy file"),
        (bytes(range(256)) * 9, "is of an unknown format"),
    ],
)
def test_other_content(tmp_path, suffix, data, looks):
    path = put(tmp_path / f"a{suffix}", data)
    with pytest.raises(FileFormatError, match=rf"{looks}.*; expected the content of a \{suffix}"):
        load_video(path)


@pytest.mark.parametrize("suffix", [".mp4", ".avi", ".webm", ".gif"])
def test_video_under_another_suffix(tmp_path, suffix):
    for name in ("x264.mp4", "lossless.avi", "lossless.mkv", "lossless.gif"):
        path = write(tmp_path, name)
        kind = video.CONTAINERS[path.suffix]
        if kind != video.CONTAINERS[suffix]:
            with pytest.raises(FileFormatError, match=f"is a video of the kind {kind}; expected"):
                load_video(path.rename(tmp_path / f"renamed{suffix}"))


@pytest.mark.parametrize("name", VIDEOS)
def test_truncation_anywhere(tmp_path, name):
    path = write(tmp_path, name)
    data = path.read_bytes()
    for cut in [*range(0, len(data), 1 + len(data) // 40), len(data) - 2, len(data) - 1]:
        put(path, data[:cut])
        with pytest.raises(FileFormatError, match=f"{name} (is|holds)"):
            load_video(path)


@pytest.mark.parametrize("name", VIDEOS)
def test_random_corruption(tmp_path, name, capfd):
    path, rng = write(tmp_path, name), random.Random(20240501)
    data = path.read_bytes()
    refused = 0
    for _ in range(25):
        broken = bytearray(data)
        for _ in range(rng.choice([1, 2, 8])):
            broken[rng.randrange(len(data))] = rng.choice([0, 0x7F, 0xFF, rng.randrange(256)])
        put(path, bytes(broken))
        try:
            got = load_video(path, max_bytes=10**7)
        except FileFormatError as error:
            refused += 1
            assert str(path) in str(error)  # noqa: PT017
        else:
            assert got.ndim == 3
    assert refused
    assert capfd.readouterr().err == ""


def test_file_of_magic_bytes_only(tmp_path):
    for name, data in {
        "a.mp4": b"\0\0\0\x18ftypmp42" + bytes(12),
        "a.mov": b"\0\0\0\x01mdat" + struct.pack(">Q", 2**63),
        "a.avi": b"RIFF\x04\0\0\0AVI ",
        "a.webm": b"\x1aE\xdf\xa3",
        "a.mkv": b"\x1aE\xdf\xa3\x00" + b"\xfe" * 20,
        "a.gif": b"GIF89a\1\0\1\0\0\0\0;",
    }.items():
        with pytest.raises(FileFormatError, match=f"{name} (is|holds|claims)"):
            load_video(put(tmp_path / name, data))


def test_unknown_length(tmp_path):
    """Browsers record a segment size of all ones."""
    path = write(tmp_path, "lossless.mkv")
    data = bytearray(path.read_bytes())
    place = data.index(b"\x18\x53\x80\x67") + 4
    data[place : place + 8] = b"\x01" + b"\xff" * 7
    np.testing.assert_array_equal(load_video(put(path, bytes(data))), CLIP)


def test_gif_with_bytes_after_its_end(tmp_path):
    path = write(tmp_path, "lossless.gif")
    put(path, path.read_bytes() + b"appended")
    np.testing.assert_array_equal(load_video(path), CLIP)


def test_sound_only(tmp_path):
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as file:
        stream = file.add_stream(codec("aac"), rate=8000)
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 1024), "f4"), "fltp", "mono")
        sound.sample_rate = 8000
        file.mux(stream.encode(sound))
        file.mux(stream.encode(None))
    with pytest.raises(FileFormatError, match="holds no video, perhaps only sound"):
        load_video(path)


def test_frames_of_different_sizes(tmp_path):
    small = write_video(tmp_path / "b.avi", "mjpeg", "yuvj420p", GREY[:16, :16])
    path = write_video(tmp_path / "a.avi", "mjpeg", "yuvj420p")
    with av.open(str(small)) as file:
        packets = [bytes(p) for p in file.demux(video=0) if p.size]
    with av.open(str(path)) as file:
        packets = [bytes(p) for p in file.demux(video=0) if p.size][:2] + packets
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mjpeg", rate=10)
        stream.height, stream.width, stream.pix_fmt = R, C, "yuvj420p"
        for time, data in enumerate(packets):
            packet = av.Packet(data)
            packet.stream, packet.pts, packet.dts = stream, time, time
            packet.time_base = Fraction(1, 10)
            file.mux(packet)
    assert load_video(path, frames=(1, 2)).shape == (R, C, 2)
    with pytest.raises(FileFormatError, match=r"frame 3 .* 16 x 16 pixels are not the 24 x 32"):
        load_video(path)


# ---- memory ----


@pytest.mark.parametrize("name", VIDEOS)
def test_videos_larger_than_allowed(tmp_path, name):
    path, whole = write(tmp_path, name), R * C * T * 8
    assert load_video(path, max_bytes=whole).nbytes == whole
    with pytest.raises(FileFormatError, match=f"memory; at most {whole - 1} are allowed here"):
        load_video(path, max_bytes=whole - 1)
    with pytest.raises(FileFormatError, match=r"at most 6143 .*; choose fewer frames"):
        load_video(path, max_bytes=R * C * 8 - 1)
    crop = {"rows": (1, 2), "columns": (1, 2), "frames": (1, 3)}
    assert load_video(path, **crop, max_bytes=96).nbytes == 96


def test_images_and_arrays_larger_than_allowed(tmp_path, monkeypatch):
    write_images(tmp_path, ["0.png", "1.png"])
    for path in (tmp_path, save(tmp_path / "a.npy", CLIP[:, :, :2])):
        assert load_video(path, max_bytes=R * C * 16).shape == (R, C, 2)
        with pytest.raises(FileFormatError, match="needs 12288 bytes of memory; at most 12287"):
            load_video(path, max_bytes=R * C * 16 - 1)
    with pytest.raises(FileFormatError, match="needs 73728 bytes of memory; at most 9"):
        load_video(save(tmp_path / "a.npz", CLIP), max_bytes=9, rows=(1, 1))
    monkeypatch.setattr(crop, "physical_memory", lambda: 100)
    with pytest.raises(FileFormatError, match="at most 100 are allowed"):
        load_video(tmp_path)


def gif_bomb(side: int) -> bytes:
    size = struct.pack("<HH", side, side)
    image = b"," + bytes(4) + size + b"\0\x02\x02\x44\x01\0"
    return b"GIF89a" + size + b"\xf0\0\0" + bytes(6) + image + b";"


def png_bomb(side: int) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    data = zlib.compress(bytes(10**6))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("side", [8200, 16000, 65535])
def test_gif_of_a_huge_size(tmp_path, side):
    path = put(tmp_path / "a.gif", gif_bomb(side))
    with pytest.raises(FileFormatError, match=r"claims frames of (\d+) x \1 pixels; expected 1 to"):
        load_video(path, rows=(1, 2), columns=(1, 2))
    assert load_video(put(path, gif_bomb(8))).shape == (8, 8, 1)


@pytest.mark.parametrize("side", [8200, 10_000, 100_000])
def test_image_of_a_huge_size(tmp_path, side):
    put(tmp_path / "a.png", png_bomb(side))
    message = r"a\.png claims frames|a\.png is damaged: Image size .* decompression bomb"

    def refused():
        with pytest.raises(FileFormatError, match=message):
            load_video(tmp_path, rows=(1, 2), columns=(1, 2))

    refused()
    assert peak(refused) < 10**6


def test_header_of_a_video_with_a_huge_size(tmp_path):
    path = write(tmp_path, "lossless.avi")
    data = path.read_bytes()
    size, huge = struct.pack("<ii", C, R), struct.pack("<ii", 16_000, 16_000)
    put(path, data.replace(size, huge))
    before = resident() if sys.platform == "linux" else 0
    with pytest.raises(FileFormatError, match="claims frames of 16000 x 16000 pixels"):
        load_video(path)
    assert sys.platform != "linux" or resident() - before < 10**8


# ---- hostile folders ----


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is damaged: cannot identify image file"),
        (b"<html>", "is damaged: cannot identify image file"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is damaged: cannot identify"),
        (pickle.dumps(1), "is damaged: cannot identify image file"),
        (png_bomb(2000), "is truncated or damaged: it claims 4002000 bytes where"),
    ],
)
def test_hostile_images(tmp_path, data, message):
    put(tmp_path / "a.png", data)
    with pytest.raises(FileFormatError, match=rf"a\.png {message}"):
        load_video(tmp_path)


def png(width, height, depth, colour, raw, interlaced=0, end=True):
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    parts = [chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(raw)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts if end else parts[:2])


FULL = b"".join(b"\0" + bytes([200] * 10) for _ in range(10))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (png(10, 10, 8, 0, FULL[:55]), "its pixels take 110 bytes, but 55 are stored"),
        (png(10, 10, 8, 0, FULL[:-1]), "its pixels take 110 bytes, but 109 are stored"),
        (png(10, 10, 8, 0, FULL + b"x"), "its pixels take 110 bytes, but more are stored"),
        (png(10, 10, 8, 0, FULL, end=False), "its pixels take 110 bytes"),
        (png(10, 10, 8, 0, FULL[:100], interlaced=1), "its pixels take 120 bytes, but 100"),
        (png(8191, 8191, 1, 0, bytes(100)), "it claims 8395775 bytes where the file holds"),
    ],
    ids=["half", "one pixel", "more", "no end", "interlaced", "huge"],
)
def test_png_without_all_of_its_rows(tmp_path, data, message):
    put(tmp_path / "a.png", data)
    with pytest.raises(FileFormatError, match=rf"a\.png is truncated or damaged: {message}"):
        load_video(tmp_path)
    put(tmp_path / "a.png", png(10, 10, 8, 0, FULL))
    assert np.allclose(load_video(tmp_path), 200 / 255)


def test_every_damaged_byte_of_a_png_is_seen(tmp_path):
    whole = png(10, 10, 8, 0, FULL)
    for at in range(8, len(whole)):
        put(tmp_path / "a.png", whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        with pytest.raises(FileFormatError, match=r"a\.png"):
            load_video(tmp_path)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (17, 9)])
def test_honest_png_of_every_kind_is_read(tmp_path, mode, size):
    image = Image.new(mode, size, 1)
    image.save(tmp_path / "a.png")
    assert load_video(tmp_path).shape == (*size[::-1], 1)


def test_decoding_that_takes_more_memory_than_allowed(tmp_path, monkeypatch):
    put(tmp_path / "a.png", png(8191, 8191, 1, 0, bytes(8191 * 1025)))  # 8 KB
    with pytest.raises(FileFormatError, match=r"67092481 pixels takes 1073479776 bytes.*hold 8228"):
        load_video(tmp_path, rows=(1, 1), columns=(1, 10), max_bytes=10**9)
    monkeypatch.setattr(image_files, "available_memory", lambda: 10**9)
    with pytest.raises(FileFormatError, match="at most 500000000 are allowed here"):
        load_video(tmp_path, rows=(1, 1))


def test_image_of_another_format(tmp_path):
    write_images(tmp_path, ["0.bmp"])
    (tmp_path / "0.bmp").rename(tmp_path / "0.png")
    with pytest.raises(FileFormatError, match=r"0\.png is damaged: cannot identify"):
        load_video(tmp_path)


def test_images_of_two_sizes_and_several_in_one_file(tmp_path):
    write_images(tmp_path, ["0.png", "1.png"])
    image = Image.fromarray(GREY[:5, :, 0])
    image.save(tmp_path / "2.png")
    assert load_video(tmp_path, frames=(1, 2)).shape == (R, C, 2)
    with pytest.raises(
        FileFormatError, match=r"2\.png has 5 x 32 pixels, but .*0\.png has 24 x 32"
    ):
        load_video(tmp_path)
    image.save(tmp_path / "3.tif", save_all=True, append_images=[image])
    with pytest.raises(FileFormatError, match=r"3\.tif holds 2 images; expected one per file"):
        load_video(tmp_path, frames=(4, 4))


def test_logging_is_disabled_and_restored(tmp_path, caplog, capfd):
    level, path = av.logging.get_level(), write(tmp_path, "fast.mov")
    data = path.read_bytes()
    put(path, data[:-200] + b"\xff" * 200)
    av.logging.set_level(av.logging.ERROR)
    try:
        with pytest.raises(FileFormatError, match=r"fast\.mov is damaged: .*Invalid data"):
            load_video(path)
        assert not caplog.records
        assert av.logging.get_level() == av.logging.ERROR
        with av.open(str(path)) as file, pytest.raises(av.error.InvalidDataError):
            list(file.decode(video=0))
        assert caplog.records  # logging works
    finally:
        av.logging.set_level(level)
    assert capfd.readouterr() == ("", "")


# ---- writing ----


@pytest.mark.parametrize("magnify", [1, np.int64(3)])
@pytest.mark.parametrize(
    "clip",
    [
        np.random.default_rng(1).random((7, 9, 5)),
        CLIP,
        np.full((3, 2, 4), 0.4),  # equal frames
        np.array([[[0.0]], [[1.0]]]),
        np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16, 1),
    ],
)
def test_gif_round_trip(tmp_path, clip, magnify):
    path = tmp_path / "a.gif"
    save_gif(path, clip, magnify=magnify)
    got = load_video(path)
    assert got.shape == (magnify * clip.shape[0], magnify * clip.shape[1], clip.shape[2])
    large = clip.repeat(magnify, 0).repeat(magnify, 1)
    np.testing.assert_allclose(got, large, rtol=0, atol=0.5 / 255 + 1e-7)
    np.testing.assert_array_equal(np.rint(255 * got), np.rint(255 * large.astype(float)))
    first = path.read_bytes()
    save_gif(str(path), clip, magnify=magnify)
    assert path.read_bytes() == first
    assert os.listdir(tmp_path) == ["a.gif"]


def test_values_outside_the_range_are_clipped(tmp_path):
    save_gif(tmp_path / "a.gif", [[[-3.0], [0.2], [7.0]]])
    np.testing.assert_allclose(load_video(tmp_path / "a.gif")[0, :, 0], [0, 0.2, 1], atol=1e-15)
    save_gif(tmp_path / "a.gif", CLIP > 0.5)
    np.testing.assert_array_equal(load_video(tmp_path / "a.gif"), CLIP > 0.5)


@pytest.mark.parametrize(
    ("rate", "time"), [(10, 100), (50, 20), (0.5, 2000), (3, 330), (0.01, 1e5)]
)
def test_gif_loops_at_its_rate(tmp_path, rate, time):
    save_gif(tmp_path / "a.gif", CLIP[:, :, :3], frames_per_second=rate)
    with Image.open(tmp_path / "a.gif") as image:
        assert image.info["loop"] == 0
        assert image.n_frames == 3
        for frame in range(3):
            image.seek(frame)
            assert image.info["duration"] == time


@pytest.mark.parametrize(
    ("clip", "options", "message"),
    [
        (CLIP[0], {}, r"clip has the shape \(32, 12\); expected \(rows, columns, frames\)"),
        (CLIP[:0], {}, r"clip has the shape \(0, 32, 12\)"),
        (GREY, {}, "clip has dtype uint8, .*divide integers"),
        (CLIP * 1j, {}, "clip has dtype complex128"),
        (np.where(GREY == 40, np.nan, CLIP), {}, "values that are not finite"),
        (CLIP, {"magnify": 0}, r"magnify=0 of frames of 24 x 32 pixels; expected a whole number"),
        (CLIP, {"magnify": 1.5}, "magnify=1.5 of"),
        (CLIP, {"magnify": 10**4}, "magnify=10000 of"),
        (np.zeros((1, 70_000, 1)), {}, "at most 65535 rows or columns"),
        (CLIP, {"frames_per_second": 0}, "frames_per_second=0; expected 0.01 to 50"),
        (CLIP, {"frames_per_second": 100}, "frames_per_second=100; expected"),
        (CLIP, {"frames_per_second": float("nan")}, "frames_per_second=nan; expected"),
        (CLIP, {"frames_per_second": "10"}, "frames_per_second='10'; expected"),
    ],
)
def test_rejected_clips_keep_the_old_file(tmp_path, clip, options, message):
    path = put(tmp_path / "a.gif", b"old")
    with pytest.raises(ValueError, match=message):
        save_gif(path, clip, **options)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.gif"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch, step):
    def fail(*_):
        raise OSError("disk full")

    path = put(tmp_path / "a.gif", b"old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        save_gif(path, CLIP)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.gif"]


def test_invalid_targets(tmp_path):
    with pytest.raises(ValueError, match=r"a\.mp4; expected a path ending in \.gif; rename it"):
        save_gif(tmp_path / "a.mp4", CLIP)
    with pytest.raises(FileNotFoundError, match="no/such"):
        save_gif(tmp_path / "no/such/a.gif", CLIP)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
@pytest.mark.parametrize("white", [255, 65535])
def test_wide_integers_are_scaled_by_8_or_16_bits(tmp_path, dtype, white):
    clip = np.full((6, 7, 3), white, dtype=dtype)
    clip[0, 0, 0] = 0
    np.save(tmp_path / "clip.npy", clip)
    found = load_video(tmp_path / "clip.npy")
    assert found.max() == 1
    assert found[0, 0, 0] == 0


def test_integers_beyond_16_bits_are_rejected(tmp_path):
    np.save(tmp_path / "clip.npy", np.full((6, 7, 3), 70000))
    with pytest.raises(ValueError, match="divide by the largest value"):
        load_video(tmp_path / "clip.npy")


def test_ten_bits_are_read_deterministically(tmp_path):
    """Several threads of the converter corrupt pixels if the width is not a multiple of 16."""
    rng = np.random.default_rng(0)
    path = tmp_path / "ten.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.height, stream.width, stream.pix_fmt = 32, 40, "yuv420p10le"
        for _ in range(6):
            grey = rng.integers(0, 256, (32, 40), dtype=np.uint8)
            frame = av.VideoFrame.from_ndarray(grey, format="gray")
            container.mux(stream.encode(frame.reformat(format="yuv420p10le", threads=1)))
        container.mux(stream.encode(None))
    clips = [load_video(path) for _ in range(12)]
    for clip in clips[1:]:
        np.testing.assert_array_equal(clip, clips[0])

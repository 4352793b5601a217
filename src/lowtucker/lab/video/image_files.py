"""Clips in folders of images."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowtucker._array.errors import FileFormatError
from lowtucker._array.memory import available_memory
from lowtucker.io.guards import BOMB, damage_reported, file_size, memory_limit
from lowtucker.lab.video.crop import Crop, grey, needed, require_pixels
from lowtucker.lab.video.png_files import check_png

__all__ = ["IMAGES", "read_folder"]

# Bytes per pixel while an image is decoded, beside the clip: Pillow's pixels, in RGB, as an array,
# and in grey; measured on 4000 x 4000 pixels: 10.2 in grey to 15.3 in RGB
DECODED = 16
SPARE = 1 << 26  # for decoding, beside the limit for the clip
IMAGES = {".png": "PNG", ".bmp": "BMP", ".webp": "WEBP"}
IMAGES |= {".jpg": "JPEG", ".jpeg": "JPEG", ".tif": "TIFF", ".tiff": "TIFF"}


def read_folder(path: Path, crop: Crop) -> NDArray[np.float64]:
    """Read images of one size, in the natural order of their names."""
    files = sorted(filter(_is_image, path.iterdir()), key=_natural)
    if not files:
        raise FileFormatError(f"{path} holds no images; expected some of {', '.join(IMAGES)}")
    files = files[crop.cut("frames", len(files))]
    with _opened_image(files[0]) as image:
        width, height = image.size
    rows, columns = crop.cut("rows", height), crop.cut("columns", width)
    shape = crop.require_memory(rows, columns, len(files))
    _require_decoding(crop, files, height * width, 8 * math.prod(shape))
    clip = np.empty(shape)
    for place, file in enumerate(files):
        with _opened_image(file) as image:
            if image.size != (width, height):
                raise FileFormatError(
                    f"{file} has {image.height} x {image.width} pixels, but {files[0]} has"
                    f" {height} x {width}; expected images of one size; crop or remove one"
                )
            pixels = _pixels(image)[rows, columns]
        clip[:, :, place] = grey(file, pixels, colour=pixels.ndim == 3)
    return clip


def _require_decoding(crop: Crop, files: list[Path], pixels: int, clip: int) -> None:
    """Raise FileFormatError if an image does not fit into memory while it is decoded."""
    need, stored = clip + DECODED * pixels, sum(map(file_size, files))
    limit = memory_limit(crop.max_bytes) + SPARE
    if crop.max_bytes is None and need > BOMB * stored:
        limit = min(limit, available_memory() // 2)
    if need > limit:
        raise FileFormatError(
            f"{crop.path}: to decode images of {pixels} pixels takes {need} bytes of memory, and"
            f" the files hold {stored}; at most {limit} are allowed here; export them smaller"
        )


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGES and path.name[0] != "." and path.is_file()


def _natural(path: Path) -> tuple[list[int | str], str]:
    parts = re.split(r"(\d+)", path.name.lower())  # text and digits alternate
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], path.name


@contextmanager
def _opened_image(path: Path) -> Iterator[Any]:
    """Open an image only in the format of its suffix: some formats run programs."""
    pillow = needed("PIL.Image")
    if path.suffix.lower() == ".png":
        with damage_reported(path):
            check_png(path)
    with damage_reported(path), pillow.open(path, formats=[IMAGES[path.suffix.lower()]]) as image:
        require_pixels(path, image.height, image.width)
        count = getattr(image, "n_frames", 1)
        if count != 1 and image.format != "MPO":  # MPO: a photograph with previews
            raise FileFormatError(f"{path} holds {count} images; expected one per file; split it")
        yield image


def _pixels(image: Any) -> NDArray[Any]:
    if image.mode == "I":  # 16 bits in older versions of Pillow
        return np.asarray(image) / 65535
    if image.mode in ("1", "L", "F") or image.mode.startswith("I;16"):
        return np.asarray(image)
    return np.asarray(image.convert("RGB"))

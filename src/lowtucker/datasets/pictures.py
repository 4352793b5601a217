"""A photograph and a clip: tensors that can be looked at."""

from __future__ import annotations

import numpy as np

from lowtucker.datasets.base import PILLOW, SKLEARN, Dataset, NumPyArray, require

__all__ = ["flame", "photograph"]


def photograph() -> Dataset:
    """Load a colour photograph of a pagoda in China, 427x640 pixels in 3 colours.

    Returns
    -------
    Dataset
        Modes ``row``, ``column`` and ``colour``; values between 0 and 1.

    Raises
    ------
    ImportError
        scikit-learn, which ships the picture, or Pillow, which reads it, is not installed.

    Examples
    --------
    >>> from lowtucker import datasets
    >>> picture = datasets.photograph()
    >>> picture.shape, float(picture.values.max())
    ((427, 640, 3), 1.0)
    """
    require("photograph", SKLEARN, PILLOW)
    from sklearn.datasets import load_sample_image

    return Dataset(
        values=np.asarray(load_sample_image("china.jpg"), dtype=float) / 255,
        dims=("row", "column", "colour"),
        coords={"colour": np.array(["red", "green", "blue"])},
        title="Photograph of a pagoda in China",
        unit="brightness from 0 to 1",
        licence="CC BY 2.0",
        citation="china.jpg by danielbuechele, Flickr photograph 6061409035",
        source="scikit-learn, china.jpg",
    )


def flame(shape: tuple[int, int, int] = (30, 30, 10)) -> Dataset:
    """Make a synthetic grey clip of a flickering flame, with values between 0 and 1.

    A bright body that sways and flickers, a faint glow, a dark wick. The clip is not of low rank:
    at 30x30x10 the best approximation of rank (8, 8, 2) has a relative error of 0.086, compared to
    0.090 for the paper's candle.

    Parameters
    ----------
    shape : tuple of int
        Numbers of rows, columns and frames.

    Returns
    -------
    Dataset
        Modes ``row``, ``column`` and ``frame``.

    Examples
    --------
    >>> from lowtucker import datasets
    >>> clip = datasets.flame().values
    >>> clip.shape, bool(clip.min() >= 0), bool(clip.max() <= 1)
    ((30, 30, 10), True, True)
    """
    return Dataset(
        values=_flame(shape),
        dims=("row", "column", "frame"),
        title="Synthetic clip of a flame",
        unit="brightness from 0 to 1",
        licence="BSD-3-Clause",
        citation="the lowtucker developers",
        source="lowtucker, computed",
    )


def _flame(shape: tuple[int, int, int]) -> NumPyArray:
    down, x, t = np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij")
    y, turn = 1 - down, 2 * np.pi
    slow, fast = 1.3 * t + 0.9 * y, 3.1 * t - 1.7 * y
    sway = 0.062 * np.sin(turn * slow) + 0.016 * np.sin(turn * fast + 1)
    centre = 0.5 + y**1.5 * sway
    height = np.clip(y / (0.84 + 0.035 * np.sin(turn * 2.3 * t + 0.5)), 0, 1.2)
    width = 0.02 + 0.53 * np.sqrt(height) * np.clip(1 - height, 0, None) ** 0.8
    body = _edge(1 - np.abs(x - centre) / width, 9) * _edge(0.93 - height, 30)
    wick = 0.45 * np.exp(-(((x - 0.5) / 0.06) ** 2) - ((y - 0.12) / 0.1) ** 2)
    glow = 0.12 * np.exp(-(((x - centre) / 0.3) ** 2) - ((y - 0.4) / 0.4) ** 2)
    flicker = 1 + 0.08 * np.sin(turn * 3.7 * t)
    return np.clip(body * (0.85 * (0.75 + 0.25 * height) * flicker - wick) + glow, 0, 1)


def _edge(x: NumPyArray, sharpness: float) -> NumPyArray:
    """Return a smooth step from 0 to 1 at x = 0."""
    return np.asarray(1 / (1 + np.exp(-sharpness * x)))

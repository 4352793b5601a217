"""Coded-aperture snapshots: recover a video from two exposures with a custom operator.

A camera takes one exposure during all the frames of a short video, behind a mask of zeros and ones
that changes from frame to frame. Every pixel is the sum of the frames that its mask transmits,

    y(i, j) = sum_t mask(i, j, t) X(i, j, t).

``Snapshot`` implements this map in one method, and the adjoint in another. Every custom operator
has this form. ``lowtucker.stack`` combines two exposures with different masks into one operator:
2048 measurements of the 8192 pixels of the video, whose Tucker rank is small.

    python examples/coded_aperture.py
    python examples/coded_aperture.py --plot coded_aperture.png
"""
# ruff: noqa: T201 -- a script prints

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

import lowtucker as lt

SHAPE, RANK, SNAPSHOTS = (32, 32, 8), (6, 6, 4), 2


class Snapshot(lt.MeasurementOperator):
    """One exposure over all frames, through a mask that changes from frame to frame."""

    def __init__(self, mask: Any) -> None:
        self.mask = mask
        self.shape, self.m = mask.shape, mask.shape[0] * mask.shape[1]

    def _forward(self, X: Any) -> Any:
        return (self.mask * X).sum(axis=2).reshape(-1)

    def _adjoint(self, v: Any) -> Any:
        return self.mask * v.reshape(*self.shape[:2], 1)


def blobs(shape: tuple[int, int, int]) -> Any:
    """Video of three moving blobs."""
    x, y, t = np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij")
    paths = [(0.2, 0.3, 0.3, 0.1, 0.12), (0.7, 0.2, -0.1, 0.4, 0.15), (0.5, 0.8, 0.2, -0.2, 0.1)]
    return sum(
        np.exp(-((x - a - da * t) ** 2 + (y - b - db * t) ** 2) / (2 * width**2))
        for a, b, da, db, width in paths
    )


def save_picture(path: str, X_true: Any, picture: Any, X: Any) -> None:
    """Draw a snapshot, three frames, and the recovered frames."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    frames = (0, SHAPE[2] // 2, SHAPE[2] - 1)
    images = [("snapshot", picture)]
    images += [(f"frame {t}", X_true[:, :, t]) for t in frames]
    images += [(f"recovered {t}", X[:, :, t]) for t in frames]
    figure, axes = plt.subplots(1, len(images), figsize=(2 * len(images), 2.2))
    for axis, (title, image) in zip(axes, images, strict=True):
        axis.imshow(image, cmap="gray")
        axis.set_title(title)
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> float:
    """Measure, recover and report. Return the relative error."""
    parser = argparse.ArgumentParser(description="A video from two coded-aperture snapshots.")
    parser.add_argument("--plot", metavar="FILE", help="save a figure, such as out.png")
    arguments = parser.parse_args(argv)

    X_true = lt.hosvd(blobs(SHAPE), RANK)  # within 2 % of the blobs, and exactly of that rank
    rng = np.random.default_rng(0)
    A = lt.stack([Snapshot(rng.integers(0, 2, SHAPE).astype(float)) for _ in range(SNAPSHOTS)])
    lt.check_adjoint(A)
    y = A.forward(X_true)

    result = lt.recover(A, y, RANK)
    error = float(lt.metrics.relative_error(result.X, X_true))
    print(A)
    print(result.status)
    print(f"relative error {error:.1e} after {result.seconds:.1f} s")
    if arguments.plot:
        picture = y[: SHAPE[0] * SHAPE[1]].reshape(SHAPE[:2])
        save_picture(arguments.plot, X_true.full(), picture, result.X.full())
    return error


if __name__ == "__main__":
    main()

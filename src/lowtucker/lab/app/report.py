"""The HTML report on an uploaded tensor: that of ``lowtucker video``, in any units."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lowtucker.io.guards import check_target
from lowtucker.lab.app.settings import Data
from lowtucker.lab.experiments.clip import Clip
from lowtucker.lab.experiments.report import write_bytes
from lowtucker.lab.experiments.video import VideoRecovery
from lowtucker.run.result import Result

__all__ = ["DataReport"]

NumPyArray = np.ndarray[Any, Any]
MEASURED = {"gaussian": "Gaussian", "entries": "sampled entries", "dct": "DCT coefficients"}


@dataclass(frozen=True)
class DataReport(VideoRecovery):
    """Report on a finished recovery; images are scaled from low to high."""

    low: float = 0.0
    high: float = 1.0
    operator: str = "gaussian"

    def __post_init__(self) -> None:
        """Skip the checks of a recovery to be run."""

    @classmethod
    def of(cls, setting: Data, pixels: NumPyArray) -> DataReport:
        """Return the report for a setting; a clip in [0, 1] is not rescaled."""
        low, high = min(0.0, float(pixels.min())), max(1.0, float(pixels.max()))
        if high > 1 or low < 0:
            low, high = float(pixels.min()), float(pixels.max())
        crop = (f"{axis} {first}:{last}" for axis, (first, last)
                in zip(("rows", "columns", "frames"), setting.crop, strict=True))  # fmt: skip
        clip = Clip(pixels, ", ".join([setting.file, *crop]), False)
        return cls(
            clip, setting.rank, setting.m, setting.solvers[0], setting.max_epochs, setting.seed,
            setting.crop[2][0], setting.max_seconds, low, high if high > low else low + 1,
            setting.operator,
        )  # fmt: skip

    @property
    def data_range(self) -> float:
        """Range of the values, for PSNR and SSIM."""
        return self.high - self.low

    def shown(self, X: NumPyArray) -> NumPyArray:
        """Map values to [0, 1] for display."""
        return (X - self.low) / self.data_range

    def summary(self, result: Result) -> dict[str, str]:
        """Return the lines of the summary."""
        measured = {"measured": MEASURED[self.operator], "advice": result.advice}
        return super().summary(result) | measured

    def write(self, out: Path, result: Result) -> None:
        """Write ``report.html``, with all images embedded."""
        check_target(out / "report.html")
        recovered = np.asarray(result.X.full(), dtype=np.float64)
        pictures, frames = self.pictures(result), self.frames(result)
        with tempfile.TemporaryDirectory(dir=out) as folder:
            movie = Path(folder, "comparison.gif")
            self.save_comparison(movie, recovered)
            page = self.page(result, pictures, movie, frames, files=False)
        write_bytes(out / "report.html", page)

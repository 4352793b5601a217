"""The HTML report on a tensor of a visitor: that of ``lowtucker video``, in any units."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lowtucker.lab.app.settings import Data
from lowtucker.lab.experiments.clip import Clip
from lowtucker.lab.experiments.report import png, write_bytes
from lowtucker.lab.experiments.video import SSIM_WINDOW, VideoRecovery
from lowtucker.lab.video import save_gif
from lowtucker.metrics import psnr, relative_error, ssim
from lowtucker.run.result import Result

__all__ = ["DataReport"]

NumPyArray = np.ndarray[Any, Any]
MEASURED = {"gaussian": "Gaussian", "entries": "sampled entries", "dct": "DCT coefficients"}


@dataclass(frozen=True)
class DataReport(VideoRecovery):
    """Report on a recovery that was made elsewhere; pictures are drawn from low to high."""

    low: float = 0.0
    high: float = 1.0
    operator: str = "gaussian"

    def __post_init__(self) -> None:
        """Accept what was recovered: the matrix, if there was one, has been there."""

    @classmethod
    def of(cls, setting: Data, pixels: NumPyArray) -> DataReport:
        """Report for a setting; a clip in [0, 1] is shown as it is."""
        low, high = min(0.0, float(pixels.min())), max(1.0, float(pixels.max()))
        if high > 1 or low < 0:
            low, high = float(pixels.min()), float(pixels.max())
        crop = (f"{axis} {first}:{last}" for axis, (first, last)
                in zip(("rows", "columns", "frames"), setting.crop, strict=True))  # fmt: skip
        clip = Clip(pixels, ", ".join([setting.file, *crop]), False)
        return cls(
            clip, setting.rank, setting.m, setting.solvers[0], setting.max_epochs, setting.seed,
            setting.crop[2][0], low, high if high > low else low + 1, setting.operator,
        )  # fmt: skip

    def _shown(self, X: NumPyArray) -> NumPyArray:
        return (X - self.low) / (self.high - self.low)

    def summary(self, result: Result) -> dict[str, str]:
        """Lines that tell how it went; decibels count from the range of the values."""
        recovered = np.asarray(result.X.full(), dtype=np.float64)
        quality = psnr(recovered, self.clip.pixels, data_range=self.high - self.low)
        return super().summary(result) | {
            "measured": MEASURED[self.operator],
            "PSNR": f"{quality:.1f} dB",
            "advice": result.advice,
        }

    def frames(self, result: Result) -> list[tuple[Any, ...]]:
        """Error, PSNR and SSIM of every slice; small ones have no SSIM."""
        clip, found = self.clip.pixels, np.asarray(result.X.full(), dtype=np.float64)
        span, rows = self.high - self.low, []
        for k in range(clip.shape[2]):
            X, true = found[:, :, k], clip[:, :, k]
            error = float(relative_error(X, true)) if true.any() else float("nan")
            large = min(true.shape) >= SSIM_WINDOW
            alike = ssim(X, true, data_range=span) if large else float("nan")
            rows.append((k + self.first_frame, error, psnr(X, true, data_range=span), alike))
        return rows

    def write(self, out: Path, result: Result) -> None:
        """Write one page, ``report.html``, with all pictures inside."""
        recovered = np.asarray(result.X.full(), dtype=np.float64)
        shown, found = self._shown(self.clip.pixels), self._shown(recovered)
        strip = replace(self, clip=Clip(shown, self.clip.origin, False))._strip(found)
        curves = self._draw_curves(result)
        pictures = {"strip": (png(strip), strip), "curves": (png(curves), curves)}
        with tempfile.TemporaryDirectory(dir=out) as folder:
            movie = Path(folder, "comparison.gif")
            magnify = max(1, 240 // max(shown.shape[:2]))
            save_gif(movie, np.concatenate([shown, found], axis=1), magnify=magnify)
            page = self._report(result, pictures, movie.read_bytes(), self.frames(result))
        # the command writes files beside its page; here there are none
        alone = re.sub(rb'<p class="note">Beside this page.*?</p>', b"", page, flags=re.DOTALL)
        write_bytes(out / "report.html", alone)

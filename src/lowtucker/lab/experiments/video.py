"""Measure and recover a clip, and report the result: ``lowtucker video``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lowtucker.io import replacing
from lowtucker.io.guards import physical_memory
from lowtucker.lab.experiments.bars import presumed, why_no_bars
from lowtucker.lab.experiments.clip import Clip
from lowtucker.lab.experiments.provenance import machine
from lowtucker.lab.experiments.report import (
    DPI,
    Section,
    csv_bytes,
    data_url,
    png,
    render,
    write_bytes,
)
from lowtucker.lab.video import save_gif
from lowtucker.metrics import psnr, relative_error, ssim
from lowtucker.operators import gaussian
from lowtucker.recovery import recover
from lowtucker.run import Callback
from lowtucker.run.result import Result
from lowtucker.simulation.base import Highlights
from lowtucker.tensor import hooi
from lowtucker.tensor.rank import check_rank

__all__ = ["VideoRecovery"]

NumPyArray = np.ndarray[Any, Any]
SSIM_WINDOW = 11  # pixels required in both directions of a frame
FRAME_COLUMNS = ("frame", "relative_error", "psnr", "ssim")
CURVE_COLUMNS = ("epoch", "cost", "residual", "relative_error")


@dataclass(frozen=True)
class VideoRecovery:
    """A clip, a rank (or None, or "auto"), a number of Gaussian measurements, a solver.

    The matrix is in single precision and takes 4 m N bytes; a matrix larger than the memory is
    rejected before anything is computed.
    """

    clip: Clip
    rank: Any
    m: int
    solver: Any = "auto"
    max_epochs: int = 100
    seed: int = 0
    first_frame: int = 1  # number of the first frame in the original clip
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        """Check that the rank fits the clip and the matrix the memory."""
        if self.rank is not None and self.rank != "auto":
            rank = check_rank(self.rank, self.clip.pixels.shape, warn=False)  # recover warns
            object.__setattr__(self, "rank", rank)
        need, have = 4 * self.m * self.clip.pixels.size, physical_memory()
        if need > 0.8 * have:
            raise ValueError(
                f"{self.m} measurements of {self.clip.pixels.size} pixels need a matrix of "
                f"{need / 1e9:.3g} GB; this machine has {have / 1e9:.3g} GB. Crop the clip "
                "(--rows, --columns, --frames), or use fewer measurements."
            )

    def run(self, callbacks: Sequence[Callback] = ()) -> Result:
        """Measure and recover; the clip is otherwise used only to report the error."""
        X_true = self.clip.pixels.astype(np.float32)
        A = gaussian(X_true.shape, self.m, seed=self.seed, dtype=np.float32)
        return recover(
            A, A.forward(X_true), self.rank, solver=self.solver, X_true=X_true,
            max_epochs=self.max_epochs, max_seconds=self.max_seconds, seed=self.seed,
            callbacks=callbacks,
        )  # fmt: skip

    @property
    def data_range(self) -> float:
        """Range of the pixels, for PSNR and SSIM."""
        return 1.0

    def shown(self, X: NumPyArray) -> NumPyArray:
        """Map pixels to [0, 1] for display."""
        return X

    def summary(self, result: Result) -> dict[str, str]:
        """Return the lines of the summary."""
        clip, recovered = self.clip.pixels, _full(result)
        error = f"{float(relative_error(recovered, clip)):.4f}"
        dof = "effective degree of freedom"
        if result.rank is not None:
            best = float(relative_error(hooi(clip, result.rank, warn=False), clip))
            error += f"; the best approximation of this rank has {best:.4f}"
            dof = f"degree of freedom of rank {result.rank}"
        return {
            "clip": f"{self.clip.origin}, {'x'.join(map(str, clip.shape))} pixels",
            "measurements": f"{self.m}: {self.m / clip.size:.3g} per pixel, "
            f"{self.m / result.degrees_of_freedom:.3g} per {dof}",
            "relative error": error,
            "PSNR": f"{psnr(recovered, clip, data_range=self.data_range):.1f} dB",
            "ended": f"{result.epochs} epochs, {result.seconds:.1f} s; {result.status}",
        }

    def frames(self, result: Result) -> list[tuple[Any, ...]]:
        """Return error, PSNR and SSIM of every frame; small frames have no SSIM."""
        clip, recovered = self.clip.pixels, _full(result)
        span, rows = self.data_range, []
        for k in range(clip.shape[2]):
            frame, true = recovered[:, :, k], clip[:, :, k]
            error = float(relative_error(frame, true)) if true.any() else float("nan")
            large = min(true.shape) >= SSIM_WINDOW
            similarity = ssim(frame, true, data_range=span) if large else float("nan")
            quality = psnr(frame, true, data_range=span)
            rows.append((k + self.first_frame, error, quality, similarity))
        return rows

    def curves(self, result: Result) -> list[tuple[Any, ...]]:
        """Return cost, residual and error after every epoch."""
        columns = [result.history[name] for name in ("epoch", "cost", "residual")]
        columns.append(_errors(result))
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def write(self, out: Path, result: Result) -> None:
        """Write the recovered clip, plots, tables and report to a folder."""
        out.mkdir(parents=True, exist_ok=True)
        recovered = _full(result)
        result.save(out / "result.npz", overwrite=True)
        with replacing(out / "recovered.npy") as file:
            np.save(file, recovered)
        save_gif(out / "recovered.gif", recovered, magnify=self._magnify)
        self.save_comparison(out / "comparison.gif", recovered)
        pictures = self.pictures(result)
        for name, (data, _) in pictures.items():
            write_bytes(out / f"{name}.png", data)
        frames = self.frames(result)
        write_bytes(out / "frames.csv", csv_bytes(FRAME_COLUMNS, frames))
        write_bytes(out / "curves.csv", csv_bytes(CURVE_COLUMNS, self.curves(result)))
        page = self.page(result, pictures, out / "comparison.gif", frames, files=True)
        write_bytes(out / "report.html", page)

    @property
    def _magnify(self) -> int:
        return max(1, 240 // int(max(self.clip.pixels.shape[:2])))

    def save_comparison(self, path: Path, recovered: NumPyArray) -> None:
        """Write a GIF of the original and the recovered clip side by side."""
        both = np.concatenate([self.shown(self.clip.pixels), self.shown(recovered)], axis=1)
        save_gif(path, both, magnify=self._magnify)

    def pictures(self, result: Result) -> dict[str, tuple[bytes, Any]]:
        """Return the plots of the report, each as PNG and as a Matplotlib figure."""
        figures = {"strip": self._strip(_full(result)), "curves": self._draw_curves(result)}
        figures |= self._draw_bars(result)
        return {name: (png(figure), figure) for name, figure in figures.items()}

    def page(
        self,
        result: Result,
        pictures: dict[str, tuple[bytes, Any]],
        movie: Path,
        frames: list[tuple[Any, ...]],
        *,
        files: bool,
    ) -> bytes:
        """Return the HTML report; ``files`` lists the other files in its folder."""
        rows: list[tuple[str, ...]] = [
            (str(k), f"{e:.4f}", f"{p:.1f}", f"{s:.3f}") for k, e, p, s in frames
        ]
        words = {
            "strip": (
                "Frames",
                "Original, recovered, and five times the difference.",
            ),
            "curves": ("Curves", "Cost, and relative residual and error, after every epoch."),
            "slice": ("Standard errors", "The middle frame, and the standard error of its pixels."),
            "pixel": ("Intervals", "The pixel that changes most over the frames."),
        }
        sections = {
            name: Section(
                name, title, title, text, data_url(pictures[name][0]),
                round(DPI * pictures[name][1].get_size_inches()[0]),
                Highlights(("frame", "relative error", "PSNR, dB", "SSIM"), rows),
            )
            for name, (title, text) in words.items()
            if name in pictures
        }  # fmt: skip
        context = {
            "title": f"{self.clip.origin.split(',')[0]}, recovered from {self.m} measurements",
            "summary": self.summary(result),
            "movie": data_url(movie.read_bytes(), "image/gif"),
            "files": files,
            "sections": list(sections.values()),
            "frames": sections["strip"].highlights,
            "without_bars": self._why_no_bars(result),
            "provenance": machine()
            | {
                "seed": str(self.seed),
                "rank": "none given" if self.rank is None else str(self.rank),
                "measurements": str(self.m),
                "max epochs": str(self.max_epochs),
                "solver": result.solver,
                "clip": repr(self.clip),
            },
        }
        return render("video.html", context).encode()

    def _strip(self, recovered: NumPyArray, most: int = 8) -> Any:
        """Draw frames side by side: original above, recovered and difference below."""
        from lowtucker._plotting import new_figure

        clip, recovered = self.shown(self.clip.pixels), self.shown(recovered)
        count = clip.shape[2]
        chosen = np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))
        tall = max(0.5, min(2.0, clip.shape[0] / clip.shape[1]))
        size = {"width": max(4.0, 1.5 * len(chosen)), "height": 3 * (1.5 * tall + 0.2)}
        figure, axes = new_figure(3, len(chosen), **size)
        difference = 0.5 + 5 * (recovered - clip) / 2
        lines = zip(
            ("original", "recovered", "difference x 5"), (clip, recovered, difference), strict=True
        )
        for row, (name, tensor) in enumerate(lines):
            for column, k in enumerate(chosen):
                panel = np.reshape(axes, (3, -1))[row, column]
                panel.imshow(tensor[:, :, k], cmap="gray", vmin=0, vmax=1)
                panel.set_xticks([])
                panel.set_yticks([])
                if row == 0:
                    panel.set_title(f"frame {k + self.first_frame}", fontsize=9)
                if column == 0:
                    panel.set_ylabel(name, fontsize=9)
        return figure

    def _draw_bars(self, result: Result) -> dict[str, Any]:
        """Draw a frame with its standard error and a pixel with intervals, where they are quick."""
        clip = self.clip.pixels
        rows, columns, count = clip.shape
        if self._why_no_bars(result):
            return {}
        place = np.unravel_index(np.argmax(np.ptp(clip, axis=2)), (rows, columns))
        numbers = [k + self.first_frame for k in range(count)]
        with presumed():
            pixel = result.plot_entries(
                [(*place, k) for k in range(count)], X_true=clip, labels=numbers
            )
            frame = result.plot_slice(at=count // 2)
        pixel.axes[0].set_xlabel("frame")
        pixel.axes[0].set_ylabel(f"X[{place[0]}, {place[1]}, :]")
        return {"slice": frame, "pixel": pixel}

    def _why_no_bars(self, result: Result) -> str:
        rows, columns, count = self.clip.pixels.shape
        return why_no_bars(result, rows * columns + count)

    def _draw_curves(self, result: Result) -> Any:
        from lowtucker._plotting import new_figure

        figure, (left, right) = new_figure(1, 2)
        epoch = result.history["epoch"]
        left.semilogy(epoch, result.history["cost"])
        left.set_ylabel("cost")
        right.semilogy(epoch, result.history["residual"], label="residual")
        right.semilogy(epoch, _errors(result), label="error")
        right.set_ylabel("relative residual and error")
        right.legend(fontsize=8)
        for panel in (left, right):
            panel.set_xlabel("epoch")
            panel.grid(alpha=0.3)
        return figure


def _errors(result: Result) -> NumPyArray:
    """Error after every epoch; NaN where the run did not record it."""
    history = result.history
    return history["error"] if "error" in history else np.full(history.rows, np.nan)


def _full(result: Result) -> NumPyArray:
    return np.asarray(result.X.full(), dtype=np.float64)

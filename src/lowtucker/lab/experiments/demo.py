"""The demonstration: measure a small synthetic clip and recover it with three solvers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtucker.lab.experiments.flame import synthetic_clip
from lowtucker.metrics import psnr
from lowtucker.operators import gaussian
from lowtucker.recovery import recover
from lowtucker.run import Callback
from lowtucker.run.result import Result
from lowtucker.solvers import TIHT, Solver, StoTIHT
from lowtucker.tensor import TuckerTensor, degrees_of_freedom

__all__ = ["Demo", "figure"]


@dataclass(frozen=True)
class Demo:
    """Settings of the demonstration."""

    shape: tuple[int, int, int] = (32, 32, 12)
    rank: tuple[int, int, int] = (5, 5, 4)
    m: int = 1800
    seed: int = 0
    solvers: tuple[tuple[str, Solver | str], ...] = (
        ("TIHT, step 0.5", TIHT(step=0.5)),
        ("StoTIHT, b = 600, step 0.5", StoTIHT(block_size=600, step=0.5)),
        ("auto", "auto"),
    )

    @property
    def degrees_of_freedom(self) -> int:
        """Degrees of freedom of the clip."""
        return degrees_of_freedom(self.shape, self.rank)

    def run(
        self, callbacks: Callable[[str], Sequence[Callback]] = lambda name: ()
    ) -> Iterator[tuple[str, Result, TuckerTensor]]:
        """Yield name, result and the true clip for every solver, as they finish."""
        clip = synthetic_clip(self.shape, self.rank)
        A = gaussian(self.shape, self.m, seed=self.seed, dtype=np.float32)
        y = A.forward(clip.full())
        for name, solver in self.solvers:
            result = recover(
                A, y, self.rank, solver=solver, X_true=clip, tol=1e-5, max_epochs=150,
                seed=self.seed, callbacks=callbacks(name),
            )  # fmt: skip
            yield name, result, clip


def figure(runs: list[tuple[str, Result, TuckerTensor]], frame: int = 4) -> Any:
    """Return a Matplotlib figure: one frame, true and recovered, above the error curves."""
    from lowtucker._plotting import new_figure

    clip = runs[0][2].full()
    pictures = [("original", clip)] + [(name, result.X.full()) for name, result, _ in runs]
    canvas, _ = new_figure(1, 1, width=3.0 * len(pictures), height=6.2)
    canvas.clear()
    grid = canvas.add_gridspec(2, len(pictures), height_ratios=[1, 1])
    for k, (name, tensor) in enumerate(pictures):
        axes = canvas.add_subplot(grid[0, k])
        axes.imshow(tensor[:, :, frame], cmap="inferno", vmin=clip.min(), vmax=clip.max())
        quality = "" if k == 0 else f"\n{psnr(tensor, clip):.0f} dB"
        axes.set_title(name + quality, fontsize=10)
        axes.set_axis_off()
    half = len(pictures) // 2
    for columns, x_name, label in (
        (slice(0, half), "epoch", "epoch"),
        (slice(half, None), "seconds", "seconds of the iterations"),
    ):
        axes = canvas.add_subplot(grid[1, columns])
        for name, result, _ in runs:
            axes.semilogy(result.history[x_name], result.history["error"], label=name)
        axes.set_xlabel(label)
        axes.set_ylabel("relative error")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    return canvas

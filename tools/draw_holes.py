"""Draw the pictures of the README and of ``docs/quickstart.md``: real data with holes.

    python tools/draw_holes.py    # rewrites docs/images/holes.png and holes_curve.png

Needs Matplotlib, and TensorLy, which ships the data. It computes what the pages show.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

import lowtucker as lt

mpl.use("Agg")

from matplotlib import pyplot as plt

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MISSING = "0.78"


def flat(values: np.ndarray) -> np.ndarray:
    """Lay four modes out in a plane: ligands and times down, cells and doses across."""
    ligands, times, doses, cells = values.shape
    return values.transpose(0, 1, 3, 2).reshape(ligands * times, cells * doses)


def holes(path: Path) -> None:
    """Draw the data as measured, with half of them hidden, and completed."""
    data = lt.datasets.il2().values
    hidden = np.random.default_rng(0).random(data.shape) < 0.5
    array = np.where(hidden, np.nan, data)
    result = lt.complete(array)
    filled = np.where(np.isnan(array), result.X.full(), array)
    check = hidden & ~np.isnan(data)
    error = np.linalg.norm((filled - data)[check]) / np.linalg.norm(data[check])
    views = (
        ("measured; two experiments are missing", data),
        ("given: half of that", array),
        (f"completed: error {error:.0%} where hidden", filled),
    )
    colours = plt.get_cmap("viridis").with_extremes(bad=MISSING)
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.7), layout="constrained")
    for axis, (title, values) in zip(axes, views, strict=True):
        axis.imshow(flat(values), cmap=colours, vmin=0, vmax=1, aspect="auto", interpolation="none")
        axis.set_title(title, fontsize=12.5)
        axis.set(xticks=12 * np.arange(1, 8) - 0.5, yticks=4 * np.arange(1, 13) - 0.5)
        axis.tick_params(labelbottom=False, labelleft=False)
        axis.set_xlabel("8 types of cells, 12 doses each")
    axes[0].set_ylabel("13 ligands, 4 times each")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def curve(path: Path) -> None:
    """Draw the response to one ligand by dose: three times measured, one estimated."""
    data = lt.datasets.il2()
    ligand, cell = 3, 0
    times, doses = data.coords["time"], data.coords["dose"].astype(float)
    result = lt.complete(data.values)
    gap = [(ligand, 3, dose, cell) for dose in range(len(doses))]
    low, high = result.interval(gap, level=0.9)
    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for k in range(3):
        axis.plot(
            doses, data.values[ligand, k, :, cell], "o-", ms=4, label=f"{times[k]} h, measured"
        )
    axis.plot(doses, result.X.entries(gap), "k--", label=f"{times[3]} h, estimated")
    axis.fill_between(doses, low, high, color="k", alpha=0.15, lw=0, label="90 % interval")
    axis.set(xscale="log", xlabel="dose", ylabel="response")
    axis.set_title(f"{data.coords['ligand'][ligand]}, {data.coords['cell'][cell]}", fontsize=11)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


PICTURES = {"holes.png": holes, "holes_curve.png": curve}


def main() -> None:
    """Write the pictures."""
    for name, draw in PICTURES.items():
        draw(IMAGES / name)
        print(IMAGES / name)


if __name__ == "__main__":
    main()

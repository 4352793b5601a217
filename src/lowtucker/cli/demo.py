"""``lowtucker demo``: recovery of a built-in example."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from lowtucker.cli.common import (
    FILE,
    check_folder,
    check_picture,
    console,
    table,
    write_picture,
)
from lowtucker.cli.verbose import progress, verbose_option

__all__ = ["demo"]


@click.command()
@click.option("-o", "--out", type=FILE, default=Path("out/demo.png"), show_default=True,
              help="Where to write the figure: a file such as flame.png or flame.pdf, or a folder."
              )  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@verbose_option
def demo(out: Path, seed: int) -> None:
    """Measure a small synthetic clip and recover it with TIHT, StoTIHT and auto.

    Takes a few seconds. Writes a figure of the recovered clips; an existing one is replaced.

    \b
    Examples:
      lowtucker demo
      lowtucker demo -o flame.png
    """
    from lowtucker.lab.experiments.demo import Demo, figure

    path = _figure_at(out)
    setting = Demo(seed=seed)
    size = setting.shape[0] * setting.shape[1] * setting.shape[2]
    screen = console()
    screen.print(
        f"A synthetic flame of {'x'.join(map(str, setting.shape))} = {size} pixels, Tucker rank "
        f"{setting.rank}, {setting.degrees_of_freedom} degrees of freedom.\n"
        f"{setting.m} Gaussian measurements: {setting.m / size:.0%} of the pixels, "
        f"{setting.m / setting.degrees_of_freedom:.1f} per degree of freedom.\n"
    )
    runs = list(setting.run(lambda name: progress(f"{name:28}", quiet=False)))
    screen.print(
        table(
            ["solver", "recovered", "status", "epochs", "passes", "seconds", "residual", "error"],
            [
                [
                    name,
                    "yes" if r.success else "no",
                    r.status.name,
                    str(r.epochs),
                    f"{r.passes:.1f}",
                    f"{r.seconds:.2f}",
                    f"{r.residual:.1e}",
                    f"{r.history['error'][-1]:.1e}",
                ]
                for name, r, _ in runs
            ],
        )
    )
    try:
        picture = figure(runs)
    except ImportError as error:
        screen.print(f"No figure: {error}", markup=False)
        return
    write_picture(picture, path, dpi=120)
    screen.print(f"Figure: {path}", markup=False)


def _figure_at(out: Path) -> Path:
    """File for the figure; its folder is created, and is known to be writable."""
    is_folder = out.is_dir() or not out.suffix
    path = out / "demo.png" if is_folder else out
    if find_spec("matplotlib") is not None:
        check_picture(path)
    check_folder(path.parent)
    return path

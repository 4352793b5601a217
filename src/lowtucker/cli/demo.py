"""``lowtucker demo``: recovery of a built-in example."""

from __future__ import annotations

from pathlib import Path

import click

from lowtucker.cli.common import check_folder, console, table, write_picture

__all__ = ["demo"]


@click.command()
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("out"),
              show_default=True, help="Folder for the figure.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
def demo(out: Path, seed: int) -> None:
    """Measure a small synthetic clip and recover it with TIHT, StoTIHT and auto.

    Takes a few seconds. Writes demo.png and replaces an existing one.
    """
    from lowtucker.lab.experiments.demo import Demo, figure
    from lowtucker.run import ProgressBar

    check_folder(out)
    setting = Demo(seed=seed)
    size = setting.shape[0] * setting.shape[1] * setting.shape[2]
    screen = console()
    screen.print(
        f"A synthetic flame of {'x'.join(map(str, setting.shape))} = {size} pixels, Tucker rank "
        f"{setting.rank}, {setting.degrees_of_freedom} degrees of freedom.\n"
        f"{setting.m} Gaussian measurements: {setting.m / size:.0%} of the pixels, "
        f"{setting.m / setting.degrees_of_freedom:.1f} per degree of freedom.\n"
    )
    errors = console(stderr=True)
    runs = list(setting.run(lambda name: ProgressBar(f"{name:28}", errors)))
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
    write_picture(picture, out / "demo.png", dpi=120)
    screen.print(f"Figure: {out / 'demo.png'}")
